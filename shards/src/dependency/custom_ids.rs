//! Custom ids: one name space for the server. Each name belongs to the shard its hash picks; that
//! shard's directory says which job bears it. Derived state: rebuilt from the jobs, never logged.

use crate::collections::hash_key::HashKey;
use crate::collections::table::Table;
use crate::dependency::completed_names::COMPLETED_NAMES_MAX;
use crate::job::id::JobId;
use std::collections::VecDeque;

struct Entry {
    name: Box<str>,
    /// `None` while claimed for a job that is not yet pushed.
    job: Option<JobId>,
}

/// The names of one shard.
pub struct Directory {
    key: HashKey,
    entries: Table<Entry>,
    /// Names whose jobs are gone, with those jobs: a dependency may still be given by such a name.
    completed_ids: Table<Entry>,
    /// Names of `completed_ids`, oldest first, in the order in which they are forgotten. A name is here as often as a
    /// job of it went.
    completed_order: VecDeque<(Box<str>, JobId)>,
}

impl Directory {
    /// No names.
    pub fn new(key: HashKey) -> Self {
        let (entries, completed_ids, completed_order) =
            (Table::default(), Table::default(), VecDeque::new());
        Self { key, entries, completed_ids, completed_order }
    }

    fn entry(&mut self, name: &str) -> Option<&mut Entry> {
        self.entries.find_mut(self.key.text(name), |entry| *entry.name == *name)
    }

    /// The job that bears a name.
    pub fn find(&self, name: &str) -> Option<JobId> {
        self.entries.find(self.key.text(name), |entry| *entry.name == *name)?.job
    }

    /// Whether a push that claimed the name has not said yet what came of it.
    pub fn is_claimed(&self, name: &str) -> bool {
        let entry = self.entries.find(self.key.text(name), |entry| *entry.name == *name);
        entry.is_some_and(|entry| entry.job.is_none())
    }

    /// Holds a name for a push that is about to make its job, and must settle or release it. False
    /// if a job bears it already.
    pub fn claim(&mut self, name: &str) -> bool {
        if self.entry(name).is_some() {
            return false;
        }
        self.insert(name, None);
        true
    }

    /// A job bears the name from now on, unless a newer one does.
    ///
    /// After a restart two jobs of one name may be told of, in any order: a completed job that had been
    /// forgotten for its age, which no record says and a clock that was set back denies, and the job that was
    /// given the name since.
    pub fn settle(&mut self, name: &str, job: JobId) {
        match self.entry(name) {
            Some(entry) => entry.job = entry.job.max(Some(job)),
            None => self.insert(name, Some(job)),
        }
    }

    /// The push that claimed the name made no job of it.
    pub fn release(&mut self, name: &str) {
        if self.is_claimed(name) {
            self.remove(name);
        }
    }

    /// The job is gone, and the name free, unless another job bears it by now.
    pub fn forget(&mut self, name: &str, job: JobId) {
        if self.find(name) == Some(job) {
            self.remove(name);
        }
        self.remember(name, job);
    }

    /// The job that bears a name, or the last that did, as far as is remembered.
    pub fn find_completed(&self, name: &str) -> Option<JobId> {
        let completed_ids =
            || self.completed_ids.find(self.key.text(name), |entry| *entry.name == *name)?.job;
        self.find(name).or_else(completed_ids)
    }

    fn remember(&mut self, name: &str, job: JobId) {
        let key = self.key;
        let hash_of = |entry: &Entry| key.text(&entry.name);
        if self.completed_order.len() == COMPLETED_NAMES_MAX
            && let Some((oldest, its_job)) = self.completed_order.pop_front()
        {
            let same = |entry: &Entry| *entry.name == *oldest && entry.job == Some(its_job);
            self.completed_ids.remove(key.text(&oldest), same, hash_of);
        }
        self.completed_order.push_back((name.into(), job));
        match self.completed_ids.find_mut(key.text(name), |entry| *entry.name == *name) {
            Some(entry) => entry.job = entry.job.max(Some(job)),
            None => {
                let entry = Entry { name: name.into(), job: Some(job) };
                self.completed_ids.insert(key.text(name), entry, hash_of);
            }
        }
    }

    /// How many names are held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no name is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn insert(&mut self, name: &str, job: Option<JobId>) {
        let (key, entry) = (self.key, Entry { name: name.into(), job });
        self.entries.insert(key.text(name), entry, |entry| key.text(&entry.name));
    }

    fn remove(&mut self, name: &str) {
        let key = self.key;
        let hash_of = |entry: &Entry| key.text(&entry.name);
        self.entries.remove(key.text(name), |entry| *entry.name == *name, hash_of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: HashKey = HashKey::new(0x00d1_4ec7_0000_0001_0000_0001_0000_0001);

    #[test]
    fn a_name_is_given_once_until_its_job_is_gone() {
        let mut names = Directory::new(KEY);
        assert!(names.claim("x") && names.is_claimed("x") && !names.claim("x"));
        names.release("x");
        assert!(names.claim("x"), "a claim that came to nothing leaves the name free");
        names.settle("x", JobId(9));
        names.release("x");
        assert_eq!((names.find("x"), names.is_claimed("x")), (Some(JobId(9)), false));
        names.forget("x", JobId(8));
        assert!(!names.claim("x"), "another job's end frees nothing");
        names.forget("x", JobId(9));
        assert_eq!((names.find("x"), names.find_completed("x")), (None, Some(JobId(9))));
        assert!(names.claim("x"));
    }

    /// Guards against a restart that frees the name of a living job: the old bearer, back from the log
    /// because the clock was set back, must not take the name with it.
    #[test]
    fn the_newest_bearer_keeps_the_name_in_whatever_order_both_are_told() {
        for order in [[7, 8], [8, 7]] {
            let mut names = Directory::new(KEY);
            for job in order {
                names.settle("x", JobId(job));
            }
            names.forget("x", JobId(7));
            assert_eq!(names.find("x"), Some(JobId(8)), "told in the order {order:?}");
        }
    }

    #[test]
    fn completed_names_are_remembered_within_a_limit() {
        let mut names = Directory::new(KEY);
        for id in 0..3 * COMPLETED_NAMES_MAX as u128 {
            let name = format!("name-{id}");
            names.settle(&name, JobId(id));
            names.forget(&name, JobId(id));
            names.forget("again", JobId(id));
            assert_eq!(names.find_completed(&name), Some(JobId(id)));
        }
        assert_eq!((names.find_completed("name-0"), names.len()), (None, 0));
        assert!(
            names.completed_ids.len() <= COMPLETED_NAMES_MAX
                && names.completed_order.len() <= COMPLETED_NAMES_MAX
        );
    }
}
