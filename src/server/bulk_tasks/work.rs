//! The jobs that tasks have yet to act on: data only. Of the server it imports what is searched for.

use super::error_text::group_of;
use crate::api::bulk::{Action, BulkFilter};
use crate::api::request::JobRef;
use crate::server::scan::matching::Sought;
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::queue::listing::{States, Views};
use corq_shards::queue::scan::{Found, Range, Scan, Wanted};
use memchr::memmem::Finder;
use std::collections::VecDeque;

/// Which errors are meant.
#[derive(Debug, Default)]
pub(super) struct SoughtErrors {
    /// A text that the error must contain.
    text: Option<Finder<'static>>,
    /// The group that the error must belong to.
    group: Option<Box<str>>,
}

impl SoughtErrors {
    pub(super) fn is_none(&self) -> bool {
        self.text.is_none() && self.group.is_none()
    }

    pub(super) fn has(&self, error: &str) -> bool {
        self.text.as_ref().is_none_or(|text| text.find(error.as_bytes()).is_some())
            && self.group.as_deref().is_none_or(|group| group_of(error) == group)
    }
}

/// The jobs of a queue, as far as they have been looked at.
#[derive(Debug)]
pub struct Filtered {
    pub(super) scan: Scan,
    pub(super) sought: Sought,
    pub(super) errors: SoughtErrors,
    /// No job that came later is meant.
    pub(super) newest: JobId,
    /// Jobs that were found and have yet to be changed.
    pub(super) pending: VecDeque<Found>,
    /// Whether there are no more.
    pub(super) is_done: bool,
    /// Jobs that may still be changed: the task's limit, less those changed.
    pub(super) left: u64,
}

impl Filtered {
    /// Jobs of a queue. `named` are the states that the filter names.
    pub fn new(
        queue: &str,
        action: Action,
        filter: &BulkFilter<'_>,
        named: Option<(States, Views)>,
        newest: JobId,
        left: u64,
    ) -> Self {
        let is_dead = filter.error.is_some() || filter.error_group.is_some();
        let meant = State::ALL.into_iter();
        let meant = meant.filter(|&state| action.is_meant_for(state));
        let wanted = Wanted {
            states: match named {
                Some((states, _)) => states,
                None if is_dead => States::from_iter([State::Failed]),
                None => meant.collect(),
            },
            views: named.map_or(Views::default(), |(_, views)| views),
            name: filter.name.map(Into::into),
            group: filter.group.map(Into::into),
            from_ms: filter.from_ms.unwrap_or(0),
            to_ms: filter.to_ms.unwrap_or(u64::MAX),
        };
        let range = Range::Queue { name: queue.into(), newest_first: false, after: None };
        let path = filter.path.map(|path| (path, filter.value));
        Self {
            scan: Scan { wanted, range },
            sought: Sought::new(filter.tag, filter.text, path),
            errors: SoughtErrors {
                text: filter.error.map(|text| Finder::new(text.as_bytes()).into_owned()),
                group: filter.error_group.map(Into::into),
            },
            newest,
            pending: VecDeque::new(),
            is_done: false,
            left,
        }
    }
}

/// A job as it is named.
#[derive(Debug)]
pub(super) enum Name {
    Id(JobId),
    Custom(Box<str>),
    /// A job that the directory has given for a custom id.
    LookedUp(JobId),
}

/// The jobs that are left, and the answers that are still to come.
#[derive(Debug)]
pub struct Named {
    pub(super) names: VecDeque<Name>,
    /// Shards that have not answered.
    pub(super) asked: usize,
    /// Jobs that may still be changed: the task's limit, less those changed.
    pub(super) left: u64,
}

impl Named {
    pub fn new<'a>(ids: impl Iterator<Item = &'a str>, left: u64) -> Self {
        let names = ids.map(|id| match JobRef::of(id) {
            JobRef::Id(id) => Name::Id(id),
            JobRef::Custom(name) => Name::Custom(name.into()),
        });
        Self { names: names.collect(), asked: 0, left }
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }
}
