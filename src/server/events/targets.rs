//! Targets of choices, and how an event finds them: by its queue, by a beginning of the queue's name, or by its job.
//! Finding costs a look for each length of beginnings in use, not one for each choice.

use super::kinds::Kinds;
use super::text::About;
use std::collections::BTreeMap;

/// Queues or a job that a choice concerns.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// All queues whose names begin so.
    Under(Box<str>),
    /// A single queue.
    Queue(Box<str>),
    /// A single job, by its id as JSON.
    Job(Box<[u8]>),
}

impl Target {
    /// Where queues of a name or pattern are found.
    pub fn of_queues(pattern: &str) -> Self {
        match pattern.split_once('*') {
            Some((front, _)) => Self::Under(front.into()),
            None => Self::Queue(pattern.into()),
        }
    }
}

/// Types of events that are wanted of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Which types of events.
    pub kinds: Kinds,
    /// Which of them with their data.
    pub full: Kinds,
    /// Which of them are to be kept, for clients that come back.
    pub kept: Kinds,
}

impl Wanted {
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            kinds: self.kinds.with(other.kinds),
            full: self.full.with(other.full),
            kept: self.kept.with(other.kept),
        }
    }
}

/// Something for each target.
#[derive(Debug)]
pub struct ByTarget<T> {
    under: BTreeMap<Box<str>, T>,
    /// How long the beginnings are, and how many there are of each length.
    lengths: BTreeMap<usize, usize>,
    queues: BTreeMap<Box<str>, T>,
    jobs: BTreeMap<Box<[u8]>, T>,
}

impl<T> Default for ByTarget<T> {
    fn default() -> Self {
        Self {
            under: BTreeMap::new(),
            lengths: BTreeMap::new(),
            queues: BTreeMap::new(),
            jobs: BTreeMap::new(),
        }
    }
}

impl<T> ByTarget<T> {
    pub fn is_empty(&self) -> bool {
        self.under.is_empty() && self.queues.is_empty() && self.jobs.is_empty()
    }

    pub fn len(&self) -> usize {
        self.under.len() + self.queues.len() + self.jobs.len()
    }

    pub fn get(&self, target: &Target) -> Option<&T> {
        match target {
            Target::Under(front) => self.under.get(front),
            Target::Queue(queue) => self.queues.get(queue),
            Target::Job(job) => self.jobs.get(job),
        }
    }

    pub fn get_mut(&mut self, target: &Target) -> Option<&mut T> {
        match target {
            Target::Under(front) => self.under.get_mut(front),
            Target::Queue(queue) => self.queues.get_mut(queue),
            Target::Job(job) => self.jobs.get_mut(job),
        }
    }

    pub fn remove(&mut self, target: &Target) -> Option<T> {
        match target {
            Target::Under(front) => {
                let gone = self.under.remove(front)?;
                if let Some(count) = self.lengths.get_mut(&front.len()) {
                    *count -= 1;
                    if *count == 0 {
                        self.lengths.remove(&front.len());
                    }
                }
                Some(gone)
            }
            Target::Queue(queue) => self.queues.remove(queue),
            Target::Job(job) => self.jobs.remove(job),
        }
    }

    /// Whether jobs are among the targets.
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// How many places are looked up for an event, beside its queue and its job.
    pub fn lookups(&self) -> usize {
        self.lengths.len()
    }

    /// Gives all that an event concerns, each once.
    pub fn find<'t>(&'t self, about: &About<'_>, mut found: impl FnMut(&'t T)) {
        for length in self.lengths.keys() {
            let front = about.queue.get(..*length);
            if let Some(one) = front.and_then(|front| self.under.get(front)) {
                found(one);
            }
        }
        if let Some(one) = self.queues.get(about.queue) {
            found(one);
        }
        if let Some(one) = self.jobs.get(about.job) {
            found(one);
        }
    }
}

impl<T: Default> ByTarget<T> {
    pub fn entry(&mut self, target: &Target) -> &mut T {
        match target {
            Target::Under(front) => {
                if !self.under.contains_key(front) {
                    *self.lengths.entry(front.len()).or_default() += 1;
                }
                self.under.entry(front.clone()).or_default()
            }
            Target::Queue(queue) => self.queues.entry(queue.clone()).or_default(),
            Target::Job(job) => self.jobs.entry(job.clone()).or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_finds_what_concerns_it_and_nothing_of_what_is_gone() {
        let targets = [
            Target::of_queues("*"),
            Target::of_queues("a.*"),
            Target::of_queues("b*c"),
            Target::of_queues("a.x"),
            Target::Job(b"\"1\"".as_slice().into()),
        ];
        let mut by_target = ByTarget::<usize>::default();
        for (number, target) in targets.iter().enumerate() {
            *by_target.entry(target) = number;
        }
        let find = |by_target: &ByTarget<usize>, queue, job: &str| {
            let mut all = Vec::new();
            let about = About { queue, kind: 0, job: job.as_bytes() };
            by_target.find(&about, |number| all.push(*number));
            all
        };
        assert_eq!(find(&by_target, "a.x", "\"2\""), [0, 1, 3]);
        assert_eq!(find(&by_target, "a.", "\"1\""), [0, 1, 4]);
        assert_eq!(find(&by_target, "b", "\"\""), [0, 2]);
        assert_eq!(by_target.len(), 5);
        for target in &targets {
            assert!(by_target.remove(target).is_some() && by_target.remove(target).is_none());
        }
        assert!(by_target.is_empty() && by_target.lengths.is_empty());
        assert!(find(&by_target, "a.x", "\"1\"").is_empty());
    }
}
