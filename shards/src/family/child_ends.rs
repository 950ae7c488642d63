//! How the children of a job ended, kept with it; what is left of that when the job goes is let go of in slices.

use super::How;
use crate::job::id::JobId;
use crate::log_record::location::LogRef;
use std::collections::{BTreeMap, VecDeque};

/// The end of one child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChildEnd {
    /// The child.
    pub child: JobId,
    /// How it ended.
    pub how: How,
    /// The record that says so, with its queue, its id for clients, and its value.
    pub stored: LogRef,
}

/// How children ended, by the address of the record that says so.
#[derive(Clone, Debug, Default)]
pub struct ChildEnds {
    all: BTreeMap<u64, ChildEnd>,
    completed: usize,
}

impl ChildEnds {
    pub(crate) fn insert(&mut self, end: ChildEnd) {
        self.completed += usize::from(end.how == How::Completed);
        self.all.insert(end.stored.position, end);
    }

    pub(crate) fn remove(&mut self, position: u64) -> Option<ChildEnd> {
        let end = self.all.remove(&position)?;
        self.completed -= usize::from(end.how == How::Completed);
        Some(end)
    }

    pub(crate) fn pop(&mut self) -> Option<ChildEnd> {
        let position = *self.all.first_key_value()?.0;
        self.remove(position)
    }

    /// How many children were completed.
    pub fn completed(&self) -> usize {
        self.completed
    }
}

impl std::ops::Deref for ChildEnds {
    type Target = BTreeMap<u64, ChildEnd>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl FromIterator<ChildEnd> for ChildEnds {
    fn from_iter<I: IntoIterator<Item = ChildEnd>>(ends: I) -> Self {
        let mut all = Self::default();
        ends.into_iter().for_each(|end| all.insert(end));
        all
    }
}

/// Ends of children of parents that are gone; let go of in slices.
#[derive(Default)]
pub(crate) struct Orphaned(VecDeque<ChildEnds>);

impl Orphaned {
    /// Takes what is to be let go of in slices.
    pub(crate) fn push(&mut self, ends: ChildEnds) {
        self.0.push_back(ends);
    }

    /// The next one.
    pub(crate) fn pop(&mut self) -> Option<ChildEnd> {
        loop {
            match self.0.front_mut()?.pop() {
                Some(end) => return Some(end),
                None => _ = self.0.pop_front(),
            }
        }
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ChildEnd> {
        self.0.iter().flat_map(|ends| ends.values())
    }
}
