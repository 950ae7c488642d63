//! Deduplication keys in the model: who holds one, for how long, and what a push does that meets a holder.
//! And the other rules that few jobs are pushed with.

use super::check::Check;
use super::events::EventStep;
use super::job_rules::Moment;
use super::model::{Job, Model, State};
use corq_shards::dependency::{News, Notice};
use corq_shards::job::flags;
use corq_shards::job::id::JobId;
use corq_shards::job::overrides::{Extras, Growth};
use corq_shards::query::JobView;
use std::cmp::Reverse;

/// Longest wait between two attempts, where a job names no other and its base is no longer.
const BACKOFF_MAX_MS: u64 = 3_600_000;

/// The time of a key begins, if it has one.
pub fn begin_key(extras: &mut Extras, now_ms: u64) {
    if let Some(dedup) = &mut extras.dedup {
        dedup.until_ms = if dedup.ttl_ms > 0 { now_ms + dedup.ttl_ms } else { 0 };
    }
}

impl Job {
    /// The flags that it was pushed with, or got from its outcome.
    pub fn flags(&self) -> u8 {
        let bit = |given: bool, flag: u8| if given { flag } else { 0 };
        bit(self.lifo, flags::LIFO)
            | bit(self.remove_on_complete, flags::REMOVE_ON_COMPLETE)
            | bit(self.remove_on_fail, flags::REMOVE_ON_FAIL)
    }

    /// Whether a second push under its key meets it.
    pub fn holds_key(&self, now_ms: u64) -> bool {
        let until_ms = self.extras.dedup.map_or(0, |dedup| dedup.until_ms);
        self.is_live() && self.unique_key.is_some() && (until_ms == 0 || now_ms < until_ms)
    }

    /// The least and the most that it waits after its next failed attempt.
    pub fn backoff(&self) -> (u64, u64) {
        let base_ms = u64::from(self.backoff_ms);
        let most_ms = self.extras.backoff_max_ms.map_or(BACKOFF_MAX_MS.max(base_ms), u64::from);
        if self.extras.backoff == Some(Growth::Fixed) {
            return (base_ms.min(most_ms), base_ms.min(most_ms));
        }
        let least_ms = (base_ms << self.attempts).min(most_ms);
        (least_ms, (least_ms + least_ms / 5).min(most_ms))
    }
}

/// The holder of a key that a push meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    Nobody,
    /// Nothing is pushed.
    Stays(JobId),
    /// The job goes once the new one is there.
    Goes(JobId),
}

impl Model {
    /// Jobs that have a key, whether its time is over or not: first the one that holds it for longest, the oldest of
    /// equals.
    fn bearers(&self, queue: &str, key: &str) -> Vec<JobId> {
        let its = |job: &&Job| job.is_live() && job.unique_key.as_deref() == Some(key);
        let mut bearers: Vec<&Job> = self.of_queue(queue).filter(its).collect();
        bearers.sort_by_key(|job| {
            let until_ms = job.extras.dedup.map_or(0, |dedup| dedup.until_ms);
            let until_ms = if until_ms == 0 { u64::MAX } else { until_ms };
            (Reverse(until_ms), job.id)
        });
        bearers.iter().map(|job| job.id).collect()
    }

    /// A push meets who holds its key.
    pub fn meet_holder(&mut self, at: &Moment<'_>, queue: &str, new: &Extras, key: &str) -> Met {
        let dedup = new.dedup.unwrap_or_default();
        for id in self.bearers(queue, key) {
            let job = &self.jobs[&id];
            let active = matches!(job.state, State::Active(_));
            if !job.holds_key(at.now_ms) || dedup.replace && active {
                self.change(id).unique_key = None;
                continue;
            }
            // Others wait for this very job.
            if dedup.replace && !self.is_watched(id) {
                return Met::Goes(id);
            }
            let timed = job.extras.dedup.is_some_and(|held| held.until_ms > 0);
            if dedup.extend && dedup.ttl_ms > 0 && timed {
                let job = self.change(id);
                if let Some(held) = &mut job.extras.dedup {
                    held.until_ms = at.now_ms + dedup.ttl_ms;
                }
            }
            self.note_event(id, EventStep::Duplicated);
            return Met::Stays(id);
        }
        Met::Nobody
    }

    /// Who would stay in the way of a push, or go for it.
    pub fn would_meet(&self, now_ms: u64, queue: &str, key: &str, replaces: bool) -> Option<JobId> {
        self.bearers(queue, key).into_iter().find(|id| {
            let job = &self.jobs[id];
            job.holds_key(now_ms) && !(replaces && matches!(job.state, State::Active(_)))
        })
    }

    /// Whether a job has a key, in whatever state it is.
    pub fn has_key(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.unique_key.is_some())
    }

    /// Whether a job holds a key.
    pub fn is_key_held(&self, now_ms: u64, queue: &str, key: &str) -> bool {
        let bearers = self.bearers(queue, key);
        bearers.first().is_some_and(|id| self.jobs[id].holds_key(now_ms))
    }

    /// A key is taken from all that have it.
    pub fn free_key(&mut self, queue: &str, key: &str) {
        for id in self.bearers(queue, key) {
            self.change(id).unique_key = None;
        }
    }

    /// Whether a job is known to its shard as one that others wait for.
    pub fn is_watched(&self, id: JobId) -> bool {
        self.watches.keys().any(|&(_, dependency)| dependency == id)
    }

    /// A shard learns which job waits for one of its own.
    pub fn note_watch(&mut self, at: &Moment<'_>, notice: Notice) {
        let Notice { news, dependent, dependency } = notice;
        match news {
            News::Watch | News::WatchChild { .. } => {
                let known = at.shard.find(dependency).is_some();
                let ended = self.jobs.get(&dependency).is_none_or(|job| match job.state {
                    State::Completed { .. } | State::Gone => true,
                    State::Failed { .. } => match news {
                        News::WatchChild { since_ms } => job.tells_failure(since_ms),
                        _ => false,
                    },
                    _ => false,
                });
                if known && !ended {
                    let parent = self.watches.entry((dependent, dependency)).or_default();
                    *parent |= matches!(news, News::WatchChild { .. });
                }
            }
            News::Unwatch | News::UnwatchChild => {
                self.watches.remove(&(dependent, dependency));
            }
            News::Completed | News::Removed => {}
        }
    }

    /// Forgets dependents of jobs that ended in this call: they have been notified, or are being notified.
    pub fn forget_watches(&mut self) {
        let (jobs, ends) = (&self.jobs, &self.ends);
        self.watches.retain(|(_, dependency), parent| {
            let job = jobs.get(dependency).filter(|_| ends.contains_key(dependency));
            job.is_none_or(|job| match job.state {
                State::Completed { .. } | State::Gone => false,
                State::Failed { .. } => !*parent || job.family.policy.is_none(),
                _ => true,
            })
        });
    }

    /// Compares the options of a job that few jobs are pushed with.
    pub fn compare_rarities(&self, job: &Job, view: &JobView<'_>) {
        let options = view.options;
        let extras = options.and_then(|has| has.extras.as_deref()).copied().unwrap_or_default();
        let text = |text: Option<&Box<str>>| text.map(ToString::to_string);
        let key = text(options.and_then(|has| has.unique_key.as_ref()));
        let custom_id = text(options.and_then(|has| has.custom_id.as_ref()));
        let expires_at_ms = options.map(|has| has.expires_at_ms).filter(|&at_ms| at_ms > 0);
        let found = (extras, &key, &custom_id, expires_at_ms, view.name);
        let (key, custom_id, name) = (&job.unique_key, &job.custom_id, job.name.as_deref());
        let model = (job.extras, key, custom_id, job.expires_at_ms, name);
        self.must(Check::Rarity, found == model, || format!("{job:?}\n  has {found:?}"));
        let flags = view.job.flags & flags::PUSHED;
        self.must(Check::Rarity, flags == job.flags(), || format!("{job:?}\n  has flags {flags}"));
    }
}
