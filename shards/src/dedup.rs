//! Deduplication: while a job that holds a key lives, a second push under it brings no job, or takes the place of the holder, as
//! the push asks. A client may ask for the holder of a key, and take the key from its job.
//!
//! Mostly one job holds a key. More do when jobs came back that had ended, or when the time of a key ended
//! before its job did: there is no bound on how many. The key is that of the one which holds it for longest,
//! the oldest of equals. All of them stand in that order, so it is known at once, and so is whether time has
//! freed the key: if the first one's time is over, that of all is. What changes costs a step into a tree.

use crate::bulk::LOOKS_MAX;
use crate::collections::count::Count;
use crate::collections::hash_key::HashKey;
use crate::collections::slab::{NONE, Slab};
use crate::collections::table::Table;
use crate::effect::{PushedJob, Reply};
use crate::event::Step;
use crate::job::id::JobId;
use crate::job::new_job::NewJob;
use crate::job::overrides::Dedup;
use crate::job::{Jobs, State, flags};
use crate::log_record::job_change::Changed;
use crate::log_record::{Journal, Record};
use crate::shard::{Caller, Out, Shard};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The jobs that hold a key, by queue and key. The keys themselves stay with the jobs.
pub struct UniqueKeys {
    hash_key: HashKey,
    keys: Table<Key>,
    crowds: Slab<Crowd>,
    /// Holders of all keys.
    holders: usize,
}

/// A deduplication key with its holders.
#[derive(Clone, Copy)]
struct Key {
    /// The job that holds it for longest; it knows the text.
    first: u32,
    /// All that hold it, if that is more than one; or `NONE`.
    crowd: u32,
}

type Crowd = BTreeMap<Rank, u32>;

/// The order of those that hold one key: by when their time with it ends, if ever, the last in front.
pub(crate) type Rank = (Reverse<u64>, JobId);

/// The queue and the key of a job that has one.
fn key_of(jobs: &Jobs, job: u32) -> Option<(u32, &str)> {
    let key = jobs.options_of(job)?.unique_key.as_deref()?;
    Some((jobs.slab[job].queue, key))
}

fn hash_of(hash_key: HashKey, jobs: &Jobs, job: u32) -> u64 {
    key_of(jobs, job).map_or(0, |(queue, key)| hash_key.in_queue(queue, key))
}

/// When the time of a job with its key ends; `u64::MAX` for not before the job does.
fn until_ms(jobs: &Jobs, job: u32) -> u64 {
    let dedup = jobs.extras_of(job).and_then(|extras| extras.dedup);
    dedup.map(|dedup| dedup.until_ms).filter(|&until_ms| until_ms > 0).unwrap_or(u64::MAX)
}

fn rank(jobs: &Jobs, job: u32) -> Rank {
    (Reverse(until_ms(jobs, job)), jobs.slab[job].id)
}

impl UniqueKeys {
    /// No keys.
    pub fn new(hash_key: HashKey) -> Self {
        Self { hash_key, keys: Table::default(), crowds: Slab::new(), holders: 0 }
    }

    fn find(&self, jobs: &Jobs, queue: u32, key: &str) -> Option<Key> {
        let same = |known: &Key| key_of(jobs, known.first) == Some((queue, key));
        self.keys.find(self.hash_key.in_queue(queue, key), same).copied()
    }

    fn find_mut(&mut self, jobs: &Jobs, queue: u32, key: &str) -> Option<&mut Key> {
        let same = |known: &Key| key_of(jobs, known.first) == Some((queue, key));
        self.keys.find_mut(self.hash_key.in_queue(queue, key), same)
    }

    /// The job that holds `key` in a queue for longest, the oldest of equals; its time may be over.
    pub fn holder(&self, jobs: &Jobs, queue: u32, key: &str) -> Option<u32> {
        self.find(jobs, queue, key).map(|known| known.first)
    }

    /// How many jobs hold `key` in a queue.
    pub fn count(&self, jobs: &Jobs, queue: u32, key: &str) -> usize {
        self.find(jobs, queue, key).map_or(0, |known| match known.crowd {
            NONE => 1,
            crowd => self.crowds[crowd].len(),
        })
    }

    /// The holders of `key` in a queue, in their order.
    pub fn holders(
        &self,
        jobs: &Jobs,
        queue: u32,
        key: &str,
    ) -> impl DoubleEndedIterator<Item = u32> {
        let known = self.find(jobs, queue, key);
        let alone = known.filter(|known| known.crowd == NONE).map(|known| known.first);
        let crowd =
            known.filter(|known| known.crowd != NONE).map(|known| &self.crowds[known.crowd]);
        alone.into_iter().chain(crowd.into_iter().flat_map(|crowd| crowd.values().copied()))
    }

    /// The holders of `key` in a queue behind a place in their order, each with its own.
    fn holders_behind(
        &self,
        jobs: &Jobs,
        (queue, key): (u32, &str),
        behind: Option<Rank>,
    ) -> impl Iterator<Item = (Rank, u32)> {
        let known = self.find(jobs, queue, key);
        let alone = known.filter(|known| known.crowd == NONE).map(|known| known.first);
        let alone = alone.map(|job| (rank(jobs, job), job));
        let crowd =
            known.filter(|known| known.crowd != NONE).map(|known| &self.crowds[known.crowd]);
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let crowd = crowd.into_iter().flat_map(move |crowd| crowd.range((from, Bound::Unbounded)));
        let alone = alone.filter(|(rank, _)| behind.is_none_or(|behind| *rank > behind));
        alone.into_iter().chain(crowd.map(|(rank, job)| (*rank, *job)))
    }

    /// Makes `job` a holder of its key, if it has one. Saying it twice changes nothing.
    pub fn take(&mut self, jobs: &Jobs, job: u32) {
        let Some((queue, key)) = key_of(jobs, job) else { return };
        let Some(known) = self.find(jobs, queue, key) else {
            let alone = Key { first: job, crowd: NONE };
            let hash_key = self.hash_key;
            let hash_of = |other: &Key| hash_of(hash_key, jobs, other.first);
            self.keys.insert(hash_key.in_queue(queue, key), alone, hash_of);
            self.holders += 1;
            return;
        };
        let crowd = match known.crowd {
            NONE if known.first == job => return,
            NONE => self.crowds.insert(BTreeMap::from([(rank(jobs, known.first), known.first)])),
            crowd => crowd,
        };
        self.holders += usize::from(self.crowds[crowd].insert(rank(jobs, job), job).is_none());
        self.note_first(jobs, (queue, key), crowd);
    }

    /// Ends the hold of `job` on its key, if it has one. To be called before the key or its time changes.
    pub fn release(&mut self, jobs: &Jobs, job: u32) {
        let Some((queue, key)) = key_of(jobs, job) else { return };
        let Some(known) = self.find(jobs, queue, key) else { return };
        if known.crowd != NONE {
            self.holders -=
                usize::from(self.crowds[known.crowd].remove(&rank(jobs, job)).is_some());
            self.note_first(jobs, (queue, key), known.crowd);
        } else if known.first == job {
            let hash_key = self.hash_key;
            let hash_of = |other: &Key| hash_of(hash_key, jobs, other.first);
            let hash = hash_key.in_queue(queue, key);
            let gone = self.keys.remove(hash, |known| known.first == job, hash_of);
            self.holders.take_out(usize::from(gone.is_some()));
        }
    }

    /// A crowd has changed, in which at least one is left.
    fn note_first(&mut self, jobs: &Jobs, (queue, key): (u32, &str), crowd: u32) {
        let members = &self.crowds[crowd];
        let Some((_, &first)) = members.first_key_value() else { return };
        let alone = members.len() == 1;
        if let Some(known) = self.find_mut(jobs, queue, key) {
            *known = Key { first, crowd: if alone { NONE } else { crowd } };
        }
        if alone {
            self.crowds.remove(crowd);
        }
    }

    /// How many jobs hold a key.
    pub fn len(&self) -> usize {
        self.holders
    }

    /// Whether `job` is a holder of its key.
    pub fn has(&self, jobs: &Jobs, job: u32) -> bool {
        let Some((queue, key)) = key_of(jobs, job) else { return false };
        self.find(jobs, queue, key).is_some_and(|known| match known.crowd {
            NONE => known.first == job,
            crowd => self.crowds[crowd].get(&rank(jobs, job)) == Some(&job),
        })
    }

    /// Says what does not agree, if anything, where `holding` jobs should hold a key.
    pub fn audit(&self, jobs: &Jobs, holding: usize) -> Result<(), String> {
        let crowds = || self.keys.iter().filter(|known| known.crowd != NONE);
        let mut held = self.keys.len() - self.crowds.len();
        for known in crowds() {
            let crowd = &self.crowds[known.crowd];
            held += crowd.len();
            let first = crowd.values().next() == Some(&known.first);
            if !first || crowd.len() < 2 || crowd.iter().any(|(at, &job)| *at != rank(jobs, job)) {
                return Err("those that hold one key are out of order".into());
            }
        }
        if (crowds().count(), held, holding) != (self.crowds.len(), self.holders, self.holders) {
            return Err(format!("{holding} jobs hold a key, {held} found, {}", self.holders));
        }
        Ok(())
    }
}

/// The holder of a key that a push meets.
pub(crate) enum Met {
    /// No holder: it can be pushed.
    Nobody,
    /// A job that stays: nothing is pushed.
    Stays(PushedJob),
    /// A job that is to go once the new one is there. In this order, so that no crash takes both.
    Goes(JobId),
}

/// Holders that one push takes their key from, at most: those whose time is over and, if it replaces, those
/// that workers have. Mostly there is one.
const HOLDERS_FREED_MAX: usize = 64;

impl Shard {
    /// Whether a job still holds its key, as far as time goes.
    fn holds_at(&self, now_ms: u64, job: u32) -> bool {
        let dedup = self.jobs.extras_of(job).and_then(|extras| extras.dedup);
        dedup.is_none_or(|dedup| dedup.until_ms == 0 || dedup.until_ms > now_ms)
    }

    /// The job that stands in the way of a push to `queue`. Costs no step per holder, however many there are.
    pub(crate) fn meet_holder<J: Journal>(
        &mut self,
        now_ms: u64,
        queue: u32,
        job: &NewJob<'_>,
        out: &mut Out<'_, J>,
    ) -> Met {
        let Some(key) = job.unique_key else { return Met::Nobody };
        let dedup = job.extras.as_ref().and_then(|extras| extras.dedup).unwrap_or_default();
        for _ in 0..HOLDERS_FREED_MAX {
            let Some(holder) = self.unique.holder(&self.jobs, queue, key) else {
                return Met::Nobody;
            };
            let about = &self.jobs.slab[holder];
            let (id, state, is_needed) = (about.id, about.state, about.has(flags::WATCHED));
            // The time is over, or the worker that has the job finishes it without the key.
            if !self.holds_at(now_ms, holder) || dedup.replace && state == State::Active {
                self.record_change(holder, &Record::Changed(Changed::KeyFreed { id }), out);
                continue;
            }
            // Others wait for this very job: they would never run.
            if dedup.replace && !is_needed {
                return Met::Goes(id);
            }
            self.extend_key(now_ms, holder, dedup, out);
            self.emit(now_ms, holder, Step::Duplicated, out.effects);
            let custom_id = self.jobs.options_of(holder).and_then(|has| has.custom_id.clone());
            return Met::Stays(PushedJob { id, custom_id, is_new: false });
        }
        // A crowd. If time has freed the key, it has from all that are left. Those that workers have give way
        // to the next pushes; what an earlier one has brought stands at the end, and is replaced.
        let newest = self.unique.holders(&self.jobs, queue, key).next_back();
        let goes = newest.filter(|&holder| {
            let about = &self.jobs.slab[holder];
            let waits = about.state != State::Active && !about.has(flags::WATCHED);
            dedup.replace && waits && self.holds_at(now_ms, holder)
        });
        goes.map_or(Met::Nobody, |holder| Met::Goes(self.jobs.slab[holder].id))
    }

    /// The holder of a key goes, in whose place a job was pushed.
    pub(crate) fn remove_replaced<J: Journal>(
        &mut self,
        now_ms: u64,
        replaced: Option<JobId>,
        out: &mut Out<'_, J>,
    ) {
        if let Some(job) = replaced.and_then(|id| self.jobs.find(id)) {
            self.remove_one(now_ms, job, out);
        }
    }

    fn extend_key<J: Journal>(
        &mut self,
        now_ms: u64,
        holder: u32,
        dedup: Dedup,
        out: &mut Out<'_, J>,
    ) {
        let held = self.jobs.extras_of(holder).and_then(|extras| extras.dedup);
        if dedup.extend && dedup.ttl_ms > 0 && held.is_some_and(|held| held.until_ms > 0) {
            let (id, until_ms) = (self.jobs.slab[holder].id, now_ms.saturating_add(dedup.ttl_ms));
            self.tell_clock(now_ms, out.journal);
            let changed = Changed::KeyExtended { id, until_ms };
            self.record_change(holder, &Record::Changed(changed), out);
        }
    }

    /// The job that holds a key.
    pub fn holder_of(&mut self, now_ms: u64, queue: &str, key: &str) -> Option<u32> {
        let queue = self.queues.find(queue)?;
        let holder = self.unique.holder(&self.jobs, queue, key)?;
        self.holds_at(now_ms, holder).then_some(holder)
    }

    /// Takes a key from all jobs that hold it: a long command if there are many.
    pub(crate) fn free_key<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        (queue, key): (&str, &str),
        out: &mut Out<'_, J>,
    ) {
        let held = u64::from(self.holder_of(now_ms, queue, key).is_some());
        let known = self.queues.find(queue);
        let holders = known.map_or(0, |queue| self.unique.count(&self.jobs, queue, key));
        if let Some(queue) = known
            && holders as u64 > self.config.bulk_slice
        {
            self.free_crowded_key(now_ms, caller, (queue, key), held, out);
            return;
        }
        if let Some(queue) = known {
            self.free_some((queue, key), self.ids.highest(), &mut None, out);
        }
        out.effects.replies.push((caller.request, Reply::Count(held)));
    }

    /// Takes a key from some of the jobs that hold it and were made by then; true if there are no more. `behind` is the last one
    /// that was looked at: holders that came since may stand in front of those that are left, any number of them.
    pub(crate) fn free_some<J: Journal>(
        &mut self,
        (queue, key): (u32, &str),
        newest: JobId,
        behind: &mut Option<Rank>,
        out: &mut Out<'_, J>,
    ) -> bool {
        let most = self.config.bulk_slice as usize;
        let looked: Vec<(Rank, u32)> =
            self.unique.holders_behind(&self.jobs, (queue, key), *behind).take(LOOKS_MAX).collect();
        let (mut freed, mut is_last) = (0, looked.len() < LOOKS_MAX);
        for (rank, job) in looked {
            if freed == most {
                is_last = false;
                break;
            }
            *behind = Some(rank);
            let id = self.jobs.slab[job].id;
            if id <= newest {
                self.record_change(job, &Record::Changed(Changed::KeyFreed { id }), out);
                freed += 1;
            }
        }
        is_last
    }

    /// Takes its key from a job, if it still holds it.
    pub(crate) fn free_key_of<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        out: &mut Out<'_, J>,
    ) -> bool {
        let about = &self.jobs.slab[job];
        let (id, ended) = (about.id, about.state.is_end());
        let options = self.jobs.options_of(job);
        if ended || options.is_none_or(|has| has.unique_key.is_none()) {
            return false;
        }
        let held = self.holds_at(now_ms, job);
        self.record_change(job, &Record::Changed(Changed::KeyFreed { id }), out);
        held
    }

    /// Applies [`Changed::KeyFreed`].
    pub(crate) fn forget_key(&mut self, job: u32) {
        self.unique.release(&self.jobs, job);
        if let Some(options) = self.jobs.options_of_mut(job) {
            options.unique_key = None;
        }
    }

    /// Applies [`Changed::KeyExtended`].
    pub(crate) fn hold_key_until(&mut self, job: u32, until_ms: u64) {
        let holds = self.unique.has(&self.jobs, job);
        self.unique.release(&self.jobs, job);
        let options = self.jobs.options_of_mut(job);
        let extras = options.and_then(|has| has.extras.as_deref_mut());
        if let Some(dedup) = extras.and_then(|extras| extras.dedup.as_mut()) {
            dedup.until_ms = until_ms;
        }
        if holds {
            self.unique.take(&self.jobs, job);
        }
    }
}
