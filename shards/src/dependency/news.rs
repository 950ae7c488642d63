//! Notices that shards of other jobs have yet to get about jobs that come and go here, in order. One job may be news to
//! as many as it depends on: those are not listed when it comes or goes, but looked up when they are told.

use crate::collections::count::Count;
use crate::dependency::unmet::{Dependency, UnmetDependencies};
use crate::dependency::{News, Notice};
use crate::job::id::JobId;
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
    /// To some that a job has waited for.
    UnwatchSome {
        dependent: JobId,
        rest: IntoIter<JobId>,
    },
}

/// Ended jobs whose watchers are still to be notified.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Each with the number of notices that it is expected to give yet.
    items: VecDeque<(Item, u64)>,
    /// The sum of these numbers.
    waiting: u64,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many notices are still to be given, as far as that is known.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    fn add(&mut self, item: Item, notices: usize) {
        self.waiting += notices as u64;
        self.items.push_back((item, notices as u64));
    }

    /// Tells one.
    pub(crate) fn push(&mut self, notice: Notice) {
        self.add(Item::One(notice), 1);
    }

    /// Tells all that a job waits for, so many, that it does.
    pub(crate) fn watch_all(&mut self, dependent: JobId, unmet: usize) {
        self.add(Item::Watch { dependent, place: 0 }, unmet);
    }

    /// Tells all that a job has waited for that it does no longer.
    pub(crate) fn unwatch_all(&mut self, dependent: JobId, unmet: UnmetDependencies) {
        let left = unmet.len();
        self.add(Item::Unwatch { dependent, rest: unmet.into_rows() }, left);
    }

    /// Tells some that are no children that a job waits for them no longer.
    pub(crate) fn unwatch_some(&mut self, dependent: JobId, some: Vec<JobId>) {
        let left = some.len();
        self.add(Item::UnwatchSome { dependent, rest: some.into_iter() }, left);
    }

    /// The next notice. `waits_for` gives what a job waits for at a place or behind it, that place, and the news for its shard.
    pub(crate) fn pop(
        &mut self,
        mut waits_for: impl FnMut(JobId, usize) -> Option<(usize, JobId, News)>,
    ) -> Option<Notice> {
        loop {
            let (item, left) = self.items.front_mut()?;
            let notice = item.next(&mut waits_for);
            let is_last = notice.is_none() || matches!(item, Item::One(_));
            // Dependencies may have come or gone since the item was added, so its count is an estimate.
            let given = if is_last { *left } else { 1.min(*left) };
            *left -= given;
            self.waiting.take_out(given);
            if is_last {
                self.items.pop_front();
            }
            if notice.is_some() {
                return notice;
            }
        }
    }
}

impl Item {
    fn next(
        &mut self,
        waits_for: &mut impl FnMut(JobId, usize) -> Option<(usize, JobId, News)>,
    ) -> Option<Notice> {
        match self {
            Self::One(notice) => Some(*notice),
            Self::Watch { dependent, place } => {
                let (found, dependency, news) = waits_for(*dependent, *place)?;
                *place = found + 1;
                Some(Notice { news, dependent: *dependent, dependency })
            }
            Self::Unwatch { dependent, rest } => {
                let (one, _) = rest.find(|(_, met)| !met)?;
                let news = if one.child { News::UnwatchChild } else { News::Unwatch };
                Some(Notice { news, dependent: *dependent, dependency: one.id })
            }
            Self::UnwatchSome { dependent, rest } => {
                let dependency = rest.next()?;
                Some(Notice { news: News::Unwatch, dependent: *dependent, dependency })
            }
        }
    }
}
