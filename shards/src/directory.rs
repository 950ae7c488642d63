//! Custom ids: one name space for the server. Each name belongs to the shard its hash picks; that
//! shard's directory says which job bears it. Derived state: rebuilt from the jobs, never logged.

use crate::id::{JobId, fnv1a};
use hashbrown::HashTable;
use std::collections::VecDeque;

/// What a directory says about a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The name is now held for the asker, who must settle or release it.
    Granted,
    /// A job bears it.
    Known(JobId),
    /// Somebody else is about to give it to a job; the asker waits and is told.
    Pending,
}

struct Entry<W> {
    name: Box<str>,
    /// `None` while claimed for a job that is not yet pushed.
    job: Option<JobId>,
    waiting: VecDeque<W>,
}

/// The names of one shard. `W` is whatever the owner needs to answer those who wait.
pub struct Directory<W> {
    entries: HashTable<Entry<W>>,
}

impl<W> Default for Directory<W> {
    fn default() -> Self {
        Self { entries: HashTable::new() }
    }
}

fn hash(name: &str) -> u64 {
    fnv1a(name.as_bytes())
}

impl<W> Directory<W> {
    /// The job that bears a name.
    pub fn find(&self, name: &str) -> Option<JobId> {
        self.entries.find(hash(name), |entry| *entry.name == *name)?.job
    }

    /// Asks for a name on behalf of a push. `waiter` is kept only for [`Claim::Pending`].
    pub fn claim(&mut self, name: &str, waiter: W) -> Claim {
        if let Some(entry) = self.entries.find_mut(hash(name), |entry| *entry.name == *name) {
            return match entry.job {
                Some(job) => Claim::Known(job),
                None => {
                    entry.waiting.push_back(waiter);
                    Claim::Pending
                }
            };
        }
        self.insert(name, None);
        Claim::Granted
    }

    /// A job bears the name from now on. Returns those who waited for it.
    pub fn settle(&mut self, name: &str, job: JobId) -> VecDeque<W> {
        match self.entries.find_mut(hash(name), |entry| *entry.name == *name) {
            Some(entry) => {
                entry.job = Some(job);
                std::mem::take(&mut entry.waiting)
            }
            None => {
                self.insert(name, Some(job));
                VecDeque::new()
            }
        }
    }

    /// The push that claimed the name made no job. The claim passes to the first who waited, who is
    /// returned.
    pub fn release(&mut self, name: &str) -> Option<W> {
        let mut found = self.entries.find_entry(hash(name), |entry| *entry.name == *name).ok()?;
        if found.get().job.is_some() {
            return None;
        }
        let next = found.get_mut().waiting.pop_front();
        if next.is_none() {
            found.remove();
        }
        next
    }

    /// The job is gone, and the name free, unless another job bears it by now.
    pub fn forget(&mut self, name: &str, job: JobId) {
        if let Ok(found) = self.entries.find_entry(hash(name), |entry| *entry.name == *name)
            && found.get().job == Some(job)
        {
            found.remove();
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
        let entry = Entry { name: name.into(), job, waiting: VecDeque::new() };
        self.entries.insert_unique(hash(name), entry, |entry| hash(&entry.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_granted_once_and_the_rest_wait_for_the_outcome() {
        let mut names = Directory::default();
        assert_eq!(names.claim("x", 1), Claim::Granted);
        assert_eq!(names.claim("x", 2), Claim::Pending);
        assert_eq!(names.claim("x", 3), Claim::Pending);
        assert_eq!(names.release("x"), Some(2), "the claim passes on when a push is refused");
        assert_eq!(names.settle("x", JobId(9)), [3]);
        assert_eq!(names.claim("x", 4), Claim::Known(JobId(9)));
        names.forget("x", JobId(8));
        assert_eq!(names.find("x"), Some(JobId(9)), "another job's end frees nothing");
        names.forget("x", JobId(9));
        assert_eq!(names.claim("x", 5), Claim::Granted);
    }
}
