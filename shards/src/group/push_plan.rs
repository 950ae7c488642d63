//! Effects of a push on the groups of its queue, foreseen before any of it comes.

use crate::job::new_job::NewJob;
use crate::job::{State, flags};
use crate::shard::Shard;
use std::collections::BTreeMap;

/// The fate of a job that is to be pushed.
enum Foreseen {
    /// The job comes beside all others.
    Comes,
    /// Another one goes for it, which counts in this group.
    Replaces(Option<Box<str>>),
    /// The job does not come.
    Duplicate,
}

/// Effects of the jobs of a push before the next one.
#[derive(Default)]
struct Foresight {
    /// How many jobs groups will have.
    groups: BTreeMap<Box<str>, u64>,
    /// Who holds a key that the push has given away, and in which group it counts.
    holders: BTreeMap<Box<str>, Option<Box<str>>>,
}

/// Whether a job counts in its group: those that wait for others do not yet.
fn counts(job: &NewJob<'_>) -> bool {
    let open = job.family.as_deref().is_some_and(|family| !family.open.is_empty());
    job.unmet.is_empty() && !open
}

impl Shard {
    /// How many jobs wait in a group.
    pub(crate) fn pending_in(&mut self, queue: &str, group: &str) -> u64 {
        self.group(queue, group).map_or(0, |group| group.pending)
    }

    /// The place of the first job, if any, that would make its group larger than it lets it be.
    pub(crate) fn find_overfull(
        &mut self,
        now_ms: u64,
        queue: &str,
        jobs: &[NewJob<'_>],
    ) -> Option<usize> {
        let mut sight = Foresight::default();
        jobs.iter().position(|job| !self.fits_in(now_ms, queue, job, &mut sight))
    }

    /// Counts what a job brings and takes. False if its group would be larger than it lets it be.
    fn fits_in(
        &mut self,
        now_ms: u64,
        queue: &str,
        job: &NewJob<'_>,
        sight: &mut Foresight,
    ) -> bool {
        let known = job.unique_key.and_then(|key| sight.holders.get(key));
        let replaced = match self.foresee(now_ms, queue, job, known) {
            Foreseen::Comes => None,
            Foreseen::Replaces(group) => group,
            // A duplicate stands for a job that is there, and takes no room.
            Foreseen::Duplicate => return true,
        };
        if let Some(group) = replaced {
            let here = self.filling(sight, queue, &group);
            *here = here.saturating_sub(1);
        }
        let counts = counts(job);
        if let Some(group) = job.group_id {
            let here = self.filling(sight, queue, group);
            if job.group_max > 0 && *here >= u64::from(job.group_max) {
                return false;
            }
            *here += u64::from(counts);
        }
        if let Some(key) = job.unique_key {
            let group = job.group_id.filter(|_| counts);
            sight.holders.insert(key.into(), group.map(Into::into));
        }
        true
    }

    /// Foresees the fate of a job that is to be pushed, as [`Shard::meet_holder`] will have it. If the same push has
    /// given its key away, `known` is the group of the job that has it then.
    fn foresee(
        &mut self,
        now_ms: u64,
        queue: &str,
        job: &NewJob<'_>,
        known: Option<&Option<Box<str>>>,
    ) -> Foreseen {
        let Some(key) = job.unique_key else { return Foreseen::Comes };
        let dedup = job.extras.as_ref().and_then(|extras| extras.dedup).unwrap_or_default();
        if let Some(group) = known {
            let replaces = Foreseen::Replaces(group.clone());
            return if dedup.replace { replaces } else { Foreseen::Duplicate };
        }
        let Some(holder) = self.holder_of(now_ms, queue, key) else { return Foreseen::Comes };
        let about = &self.jobs.slab[holder];
        match about.state {
            // The worker that has it finishes it without the key.
            State::Active if dedup.replace => Foreseen::Comes,
            state if dedup.replace && !about.has(flags::WATCHED) => {
                let counts = matches!(state, State::Waiting | State::Delayed);
                let group = self.group_name_of(holder).filter(|_| counts);
                Foreseen::Replaces(group.map(Into::into))
            }
            _ => Foreseen::Duplicate,
        }
    }

    fn filling<'a>(&mut self, sight: &'a mut Foresight, queue: &str, group: &str) -> &'a mut u64 {
        if !sight.groups.contains_key(group) {
            let pending = self.pending_in(queue, group);
            sight.groups.insert(group.into(), pending);
        }
        sight.groups.entry(group.into()).or_default()
    }
}
