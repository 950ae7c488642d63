//! Who waits for the end of which job of this shard. Derived state: the shards of the dependents say
//! so when the dependent is pushed, and again after every start.
//!
//! Knows ids only. A job that ends may have any number of watchers: they are told in slices. Those that wait for
//! it as for a child are lists of their own, since they are told at other ends than the rest.

use crate::collections::hash_key::HashKey;
use crate::collections::slab::{Linked, Links, List, Slab};
use crate::collections::table::{Map, Table};
use crate::job::id::JobId;
use std::collections::VecDeque;

/// A dependent's wait for one job.
#[derive(Clone, Copy, Default)]
struct Watch {
    dependent: JobId,
    /// Index of the job's [`Watched`].
    of: u32,
    links: Links,
}

struct OfWatched;

impl Linked<OfWatched> for Watch {
    fn links(&self) -> Links {
        self.links
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// A job that others wait for, either as for a child or not.
#[derive(Default)]
struct Watched {
    dependency: JobId,
    child: bool,
    watches: List<OfWatched>,
}

/// The news for dependents of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The dependency was completed.
    Completed,
    /// The dependency is gone.
    Removed,
    /// A child of the dependents has ended: how, is looked up when they are notified.
    ChildEnded,
}

/// Which jobs wait for which.
pub struct Watchers {
    key: HashKey,
    watches: Slab<Watch>,
    watched: Slab<Watched>,
    by_dependency: Map<JobId, u32>,
    by_child: Map<JobId, u32>,
    by_pair: Table<u32>,
    /// Jobs that have ended, and how, while not all who wait know.
    ended: VecDeque<(u32, Fate)>,
    /// The children among these, with how often they are.
    telling: Map<JobId, u32>,
}

fn hash(key: HashKey, watches: &Slab<Watch>, watched: &Slab<Watched>, watch: u32) -> u64 {
    let about = &watches[watch];
    key.pair(about.dependent, watched[about.of].dependency)
}

impl Watchers {
    /// Begins without any waits.
    pub fn new(key: HashKey) -> Self {
        Self {
            key,
            watches: Slab::new(),
            watched: Slab::new(),
            by_dependency: Map::new(key),
            by_child: Map::new(key),
            by_pair: Table::default(),
            ended: VecDeque::new(),
            telling: Map::new(key),
        }
    }

    fn find(&self, dependent: JobId, dependency: JobId) -> Option<u32> {
        let same = |&watch: &u32| {
            let about = &self.watches[watch];
            about.dependent == dependent && self.watched[about.of].dependency == dependency
        };
        self.by_pair.find(self.key.pair(dependent, dependency), same).copied()
    }

    /// `dependent` waits for `dependency`, which lives, maybe as its parent. Saying it twice changes
    /// nothing.
    pub fn add(&mut self, dependent: JobId, dependency: JobId, parent: bool) {
        if let Some(known) = self.find(dependent, dependency) {
            // A dependency may become a child of its dependent, which then changes lists.
            let of = self.watches[known].of;
            let is_known = self.by_dependency.get(dependency) != Some(&of);
            if !parent || self.watched[of].child || is_known {
                return;
            }
            self.remove(dependent, dependency);
        }
        let watched = &mut self.watched;
        let list = if parent { &mut self.by_child } else { &mut self.by_dependency };
        let new = Watched { dependency, child: parent, watches: List::default() };
        let of = *list.get_or_insert_with(dependency, || watched.insert(new));
        let watch = self.watches.insert(Watch { dependent, of, links: Links::default() });
        self.watched[of].watches.push_back(&mut self.watches, watch);
        let (key, watches, watched) = (self.key, &self.watches, &self.watched);
        let hash_of = |&other: &u32| hash(key, watches, watched, other);
        self.by_pair.insert(key.pair(dependent, dependency), watch, hash_of);
    }

    /// `dependent` waits no longer. True if nobody waits for `dependency` any more.
    pub fn remove(&mut self, dependent: JobId, dependency: JobId) -> bool {
        let Some(watch) = self.find(dependent, dependency) else { return false };
        let of = self.watches[watch].of;
        self.take(watch, of);
        let list =
            if self.watched[of].child { &mut self.by_child } else { &mut self.by_dependency };
        let unwatched = self.watched[of].watches.is_empty() && list.get(dependency) == Some(&of);
        if unwatched {
            list.remove(dependency);
            self.watched.remove(of);
        }
        unwatched && !self.is_watched(dependency)
    }

    fn is_watched(&self, dependency: JobId) -> bool {
        self.by_child.contains(dependency) || self.by_dependency.contains(dependency)
    }

    fn take(&mut self, watch: u32, of: u32) -> JobId {
        let dependent = self.watches[watch].dependent;
        let (key, watches, watched) = (self.key, &self.watches, &self.watched);
        let hash_of = |&other: &u32| hash(key, watches, watched, other);
        self.by_pair.remove(hash_of(&watch), |&other| other == watch, hash_of);
        self.watched[of].watches.remove(&mut self.watches, watch);
        self.watches.remove(watch);
        dependent
    }

    /// Ends the waits for a job as for a child. Returns the first of them, to be notified now, and whether no wait for
    /// the job is left; the others are notified in slices.
    pub fn end_child(&mut self, dependency: JobId) -> (Option<JobId>, bool) {
        let Some(of) = self.by_child.remove(dependency) else {
            return (None, !self.is_watched(dependency));
        };
        let first = self.watched[of].watches.front();
        let first = first.map(|watch| self.take(watch, of));
        if self.watched[of].watches.is_empty() {
            self.watched.remove(of);
        } else {
            self.ended.push_back((of, Fate::ChildEnded));
            *self.telling.get_or_insert_with(dependency, || 0) += 1;
        }
        (first, !self.is_watched(dependency))
    }

    /// Whether some have yet to be told of the end of a child of theirs.
    pub fn tells_of(&self, child: JobId) -> bool {
        self.telling.contains(child)
    }

    /// A watched job has ended: all who wait for it are to be told.
    pub fn end(&mut self, dependency: JobId, completed: bool) {
        let fate = if completed { Fate::Completed } else { Fate::Removed };
        // Parents of the job are notified first.
        for list in [&mut self.by_child, &mut self.by_dependency] {
            if let Some(of) = list.remove(dependency) {
                self.ended.push_back((of, fate));
            }
        }
    }

    /// The next dependent to be told of an end: dependent, dependency, and what.
    pub fn next_notice(&mut self) -> Option<(JobId, JobId, Fate)> {
        while let Some(&(of, fate)) = self.ended.front() {
            let dependency = self.watched[of].dependency;
            let watch = self.watched[of].watches.front();
            let told = watch.map(|watch| (self.take(watch, of), dependency, fate));
            if self.watched[of].watches.is_empty() {
                self.watched.remove(of);
                self.ended.pop_front();
                if fate == Fate::ChildEnded
                    && let Some(times) = self.telling.get_mut(dependency)
                {
                    *times -= 1;
                    if *times == 0 {
                        self.telling.remove(dependency);
                    }
                }
            }
            if told.is_some() {
                return told;
            }
        }
        None
    }

    /// Whether any job has watchers to notify.
    pub fn has_news(&self) -> bool {
        !self.ended.is_empty()
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.watches.len()
    }

    /// The jobs that others wait for, in no order that may decide anything.
    pub fn dependencies(&self) -> impl Iterator<Item = JobId> {
        let children = self.by_child.keys().filter(|&child| !self.by_dependency.contains(child));
        self.by_dependency.keys().chain(children)
    }

    /// Says what does not agree, if anything.
    pub fn audit(&self) -> Result<(), String> {
        if self.by_pair.len() != self.watches.len() {
            let (pairs, watches) = (self.by_pair.len(), self.watches.len());
            return Err(format!("{watches} watches, {pairs} found by their pair"));
        }
        let ended = self.ended.iter().map(|&(of, _)| of);
        let mut listed = 0;
        let lists = self.by_dependency.values().chain(self.by_child.values()).copied();
        for of in lists.chain(ended) {
            let front = self.watched[of].watches.front();
            let next = |&watch: &u32| List::after(&self.watches, watch);
            listed += std::iter::successors(front, next).count();
        }
        if listed != self.watches.len() {
            return Err(format!("{} watches, {listed} listed", self.watches.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_told_once_and_who_left_is_not() {
        let mut watchers = Watchers::new(HashKey::new(1));
        let (job, other) = (JobId(1), JobId(2));
        for dependent in 10..15 {
            watchers.add(JobId(dependent), job, false);
            watchers.add(JobId(dependent), job, false);
        }
        watchers.add(JobId(10), other, false);
        assert_eq!(watchers.len(), 6);
        assert!(!watchers.remove(JobId(12), job));
        watchers.end(job, true);
        // A job may be watched anew while its old watchers are being notified.
        watchers.add(JobId(20), job, false);
        assert!(!watchers.remove(JobId(13), job), "may leave though the job has ended");
        let mut told = Vec::new();
        while let Some((dependent, dependency, fate)) = watchers.next_notice() {
            assert!(dependency == job && fate == Fate::Completed);
            told.push(dependent.0);
        }
        assert_eq!(told, [10, 11, 14]);
        assert!(!watchers.has_news() && watchers.audit().is_ok());
        assert!(watchers.remove(JobId(20), job) && watchers.remove(JobId(10), other));
        assert_eq!((watchers.len(), watchers.dependencies().count()), (0, 0));
    }

    #[test]
    fn a_job_that_some_wait_for_as_a_child_and_others_not_is_one() {
        let mut watchers = Watchers::new(HashKey::new(1));
        let job = JobId(1);
        watchers.add(JobId(10), job, true);
        watchers.add(JobId(11), job, false);
        watchers.add(JobId(12), job, false);
        watchers.add(JobId(12), job, true);
        assert_eq!((watchers.len(), watchers.dependencies().count()), (3, 1));
        assert_eq!(watchers.end_child(job), (Some(JobId(10)), false));
        assert!(watchers.tells_of(job) && watchers.audit().is_ok());
        assert_eq!(watchers.next_notice(), Some((JobId(12), job, Fate::ChildEnded)));
        assert!(!watchers.tells_of(job) && !watchers.has_news());
        assert!(watchers.remove(JobId(11), job), "nobody waits for it any more");
        assert_eq!((watchers.len(), watchers.dependencies().count()), (0, 0));
    }
}
