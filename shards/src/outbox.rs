//! What shards of other jobs have yet to learn of those that come and go here, in order. One job may be news to
//! as many as it depends on: those are not listed when it comes or goes, but looked up when they are told.

use crate::dependency::{News, Notice};
use crate::id::JobId;
use crate::unmets::{Dependency, Unmets};
use std::collections::VecDeque;
use std::vec::IntoIter;

enum Item {
    One(Notice),
    /// To all that a job waits for, from this place on.
    Watch {
        dependent: JobId,
        place: usize,
    },
    /// To all that a job has waited for.
    Unwatch {
        dependent: JobId,
        rest: IntoIter<(Dependency, bool)>,
    },
    /// The same to some.
    UnwatchSome {
        dependent: JobId,
        rest: IntoIter<JobId>,
    },
}

/// See the module.
#[derive(Default)]
pub(crate) struct Outbox(VecDeque<Item>);

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells one.
    pub(crate) fn push(&mut self, notice: Notice) {
        self.0.push_back(Item::One(notice));
    }

    /// Tells all that a job waits for that it does.
    pub(crate) fn watch_all(&mut self, dependent: JobId) {
        self.0.push_back(Item::Watch { dependent, place: 0 });
    }

    /// Tells all that a job has waited for that it does no longer.
    pub(crate) fn unwatch_all(&mut self, dependent: JobId, unmet: Unmets) {
        self.0.push_back(Item::Unwatch { dependent, rest: unmet.into_rows() });
    }

    /// The same for some that are no children.
    pub(crate) fn unwatch_some(&mut self, dependent: JobId, some: Vec<JobId>) {
        self.0.push_back(Item::UnwatchSome { dependent, rest: some.into_iter() });
    }

    /// The next notice. `waits_for` gives what a job waits for at a place or behind it, and that place.
    pub(crate) fn pop(
        &mut self,
        mut waits_for: impl FnMut(JobId, usize) -> Option<(usize, JobId, bool)>,
    ) -> Option<Notice> {
        loop {
            match self.0.front_mut()? {
                Item::One(notice) => {
                    let notice = *notice;
                    self.0.pop_front();
                    return Some(notice);
                }
                Item::Watch { dependent, place } => {
                    let dependent = *dependent;
                    if let Some((found, dependency, child)) = waits_for(dependent, *place) {
                        *place = found + 1;
                        let news = if child { News::WatchChild } else { News::Watch };
                        return Some(Notice { news, dependent, dependency });
                    }
                }
                Item::Unwatch { dependent, rest } => {
                    let dependent = *dependent;
                    if let Some((one, _)) = rest.find(|(_, met)| !met) {
                        let news = if one.child { News::UnwatchChild } else { News::Unwatch };
                        return Some(Notice { news, dependent, dependency: one.id });
                    }
                }
                Item::UnwatchSome { dependent, rest } => {
                    let dependent = *dependent;
                    if let Some(dependency) = rest.next() {
                        return Some(Notice { news: News::Unwatch, dependent, dependency });
                    }
                }
            }
            self.0.pop_front();
        }
    }
}
