//! Who waits for the end of which job of this shard. Derived state: the shards of the dependents say
//! so when the dependent is pushed, and again after every start.
//!
//! Knows ids only. A job that ends may have any number of watchers: they are told in slices.

use crate::hash_key::HashKey;
use crate::id::JobId;
use crate::slab::{Linked, Links, List, Slab};
use crate::table::{Map, Table};
use std::collections::VecDeque;

/// One dependent that waits for one job.
#[derive(Clone, Copy, Default)]
struct Watch {
    dependent: JobId,
    /// Whether it waits for it as for a child. Those stand in front.
    parent: bool,
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

/// One job that somebody waits for.
#[derive(Default)]
struct Watched {
    dependency: JobId,
    watches: List<OfWatched>,
}

/// See the module.
pub struct Watchers {
    key: HashKey,
    watches: Slab<Watch>,
    watched: Slab<Watched>,
    by_dependency: Map<JobId, u32>,
    by_pair: Table<u32>,
    /// Jobs that have ended, and whether they were completed, while not everybody knows.
    ended: VecDeque<(u32, bool)>,
}

fn hash(key: HashKey, watches: &Slab<Watch>, watched: &Slab<Watched>, watch: u32) -> u64 {
    let about = &watches[watch];
    key.pair(about.dependent, watched[about.of].dependency)
}

impl Watchers {
    /// Those of no jobs.
    pub fn new(key: HashKey) -> Self {
        Self {
            key,
            watches: Slab::new(),
            watched: Slab::new(),
            by_dependency: Map::new(key),
            by_pair: Table::default(),
            ended: VecDeque::new(),
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
            // What it depends on may become its child.
            if parent && !std::mem::replace(&mut self.watches[known].parent, true) {
                let list = &mut self.watched[self.watches[known].of].watches;
                list.remove(&mut self.watches, known);
                list.push_front(&mut self.watches, known);
            }
            return;
        }
        let watched = &mut self.watched;
        let insert = || watched.insert(Watched { dependency, watches: List::default() });
        let of = *self.by_dependency.get_or_insert_with(dependency, insert);
        let watch = self.watches.insert(Watch { dependent, parent, of, links: Links::default() });
        let list = &mut self.watched[of].watches;
        if parent {
            list.push_front(&mut self.watches, watch);
        } else {
            list.push_back(&mut self.watches, watch);
        }
        let (key, watches, watched) = (self.key, &self.watches, &self.watched);
        let hash_of = |&other: &u32| hash(key, watches, watched, other);
        self.by_pair.insert(key.pair(dependent, dependency), watch, hash_of);
    }

    /// `dependent` waits no longer. True if nobody waits for `dependency` any more.
    pub fn remove(&mut self, dependent: JobId, dependency: JobId) -> bool {
        let Some(watch) = self.find(dependent, dependency) else { return false };
        let of = self.watches[watch].of;
        self.take(watch, of);
        let unwatched =
            self.watched[of].watches.is_empty() && self.by_dependency.get(dependency) == Some(&of);
        if unwatched {
            self.by_dependency.remove(dependency);
            self.watched.remove(of);
        }
        unwatched
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

    /// Those who wait for a job as for a child wait no longer. Says, too, whether nobody does any more.
    pub fn take_parents(&mut self, dependency: JobId) -> (Vec<JobId>, bool) {
        let mut parents = Vec::new();
        let Some(&of) = self.by_dependency.get(dependency) else { return (parents, true) };
        while let Some(first) = self.watched[of].watches.front()
            && self.watches[first].parent
        {
            parents.push(self.take(first, of));
        }
        let unwatched = self.watched[of].watches.is_empty();
        if unwatched {
            self.by_dependency.remove(dependency);
            self.watched.remove(of);
        }
        (parents, unwatched)
    }

    /// A watched job has ended: all who wait for it are to be told.
    pub fn end(&mut self, dependency: JobId, completed: bool) {
        if let Some(of) = self.by_dependency.remove(dependency) {
            self.ended.push_back((of, completed));
        }
    }

    /// The next dependent to be told of an end: dependent, dependency, and whether it was completed.
    pub fn next_told(&mut self) -> Option<(JobId, JobId, bool)> {
        while let Some(&(of, completed)) = self.ended.front() {
            let dependency = self.watched[of].dependency;
            if let Some(watch) = self.watched[of].watches.front() {
                return Some((self.take(watch, of), dependency, completed));
            }
            self.watched.remove(of);
            self.ended.pop_front();
        }
        None
    }

    /// Whether there is somebody to be told.
    pub fn has_news(&self) -> bool {
        !self.ended.is_empty()
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.watches.len()
    }

    /// The jobs somebody waits for, in no order that may decide anything.
    pub fn dependencies(&self) -> impl Iterator<Item = JobId> {
        self.by_dependency.keys()
    }

    /// Says what does not agree, if anything.
    pub fn audit(&self) -> Result<(), String> {
        if self.by_pair.len() != self.watches.len() {
            let (pairs, watches) = (self.by_pair.len(), self.watches.len());
            return Err(format!("{watches} watches, {pairs} found by their pair"));
        }
        let ended = self.ended.iter().map(|&(of, _)| of);
        let mut listed = 0;
        for of in self.by_dependency.values().copied().chain(ended) {
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
        // The same job may be watched anew while the old watchers are being told.
        watchers.add(JobId(20), job, false);
        assert!(!watchers.remove(JobId(13), job), "may leave though the job has ended");
        let mut told = Vec::new();
        while let Some((dependent, dependency, completed)) = watchers.next_told() {
            assert!(dependency == job && completed);
            told.push(dependent.0);
        }
        assert_eq!(told, [10, 11, 14]);
        assert!(!watchers.has_news() && watchers.audit().is_ok());
        assert!(watchers.remove(JobId(20), job) && watchers.remove(JobId(10), other));
        assert_eq!((watchers.len(), watchers.dependencies().count()), (0, 0));
    }
}
