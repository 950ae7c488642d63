//! The model beside the shard, job by job.

use super::check::Check;
use super::model::{Job, Model, State};
use super::repeat::Series;
use super::rules::redelivered;
use corq_shards::Shard;
use corq_shards::job::State as Found;
use corq_shards::job::id::JobId;
use corq_shards::query::JobView;
use std::collections::{BTreeMap, BTreeSet};

impl Model {
    /// Every job, every count and every waiting pull of `shard` is what it should be.
    pub fn compare(&self, now_ms: u64, shard: &mut Shard) {
        let mut counts: BTreeMap<(&str, usize), u64> = BTreeMap::new();
        for job in self.jobs.values() {
            let view = shard.find(job.id).map(|index| shard.view(index));
            let Some(found) = found(&job.state) else {
                self.must(Check::State, view.is_none(), || format!("{:?} is still there", job.id));
                continue;
            };
            *counts.entry((job.queue.as_str(), found as usize)).or_default() += 1;
            match view {
                None => self.missing(now_ms, job),
                Some(view) => self.compare_job(now_ms, job, found, &view),
            }
            if let Some(key) = job.unique_key.as_ref().filter(|_| job.holds_key(now_ms)) {
                self.compare_key(now_ms, job, key);
            }
        }
        let found = shard.holdings().jobs as u64;
        let known: u64 = counts.values().sum();
        self.must(Check::Counters, found == known, || format!("{found} jobs, {known} expected"));
        for queue in shard.queues() {
            for state in Found::ALL {
                let expected = counts.get(&(&*queue.name, state as usize)).copied().unwrap_or(0);
                let counted = queue.count(state);
                self.must(Check::Counters, counted == expected, || {
                    format!("{} counts {counted} {state:?}, not {expected}", queue.name)
                });
            }
            let limits = self.limits.get(&*queue.name);
            let model = limits.map(|has| (has.per_second, has.active_max)).unwrap_or_default();
            let limits = queue.limits.as_deref();
            let found = limits.map(|has| (has.rate().map(|rate| rate.jobs), has.active_max()));
            let found = found.unwrap_or_default();
            self.must(Check::State, model == found, || {
                format!("{} has the limits {found:?}, not {model:?}", queue.name)
            });
            self.compare_rules(queue);
            let paused = self.paused.contains(&*queue.name);
            self.must(Check::State, queue.is_paused() == paused, || {
                format!("{} is paused?", queue.name)
            });
        }
        self.compare_groups(shard);
        self.compare_schedules(shard);
        self.compare_flows(shard);
        self.compare_hooks(shard);
        let waiters = shard.holdings().waiters;
        self.must(Check::Answer, waiters == self.waiters.len(), || {
            format!("{waiters} pulls wait, not {}", self.waiters.len())
        });
    }

    /// A job may name what it depends on after a start as before it.
    pub fn compare_completed_names(&self, shard: &Shard) {
        let known: BTreeMap<JobId, &str> =
            shard.completed_names().map(|(name, id)| (id, name)).collect();
        for job in self.jobs.values().filter(|job| job.state == State::Gone && job.met) {
            let Some(name) = job.custom_id.as_deref() else { continue };
            self.must(Check::Dependency, known.get(&job.id) == Some(&name), || {
                format!("{job:?}\n  is not known as {name}")
            });
        }
    }

    fn missing(&self, now_ms: u64, job: &Job) {
        let check = match job.expires_at_ms {
            Some(expires_at_ms) if job.is_pending() && expires_at_ms > now_ms => Check::EarlyLife,
            _ => Check::Lost,
        };
        self.checks.fail(check, || format!("{job:?} is not there"));
    }

    fn compare_job(&self, now_ms: u64, job: &Job, expected: Found, view: &JobView<'_>) {
        if view.job.state != expected {
            self.misplaced(now_ms, job, view);
            return;
        }
        let attempts = view.job.attempts;
        self.must(Check::Attempts, attempts <= job.max_attempts, || {
            format!("{:?} was tried {attempts} times of {}", job.id, job.max_attempts)
        });
        let model = (job.attempts, job.stalls, job.run_at_ms, job.priority, job.max_attempts);
        let about = view.job;
        let found =
            (about.attempts, about.stalls, about.run_at_ms, about.priority, about.max_attempts);
        self.must(Check::State, model == found && *view.queue == *job.queue_name(), || {
            format!("{job:?}\n  is {found:?} in {}", view.queue)
        });
        self.compare_options(job, view);
        match (&job.state, view.lease, view.outcome) {
            (State::Active(lease), Some(found), _) => {
                let client = found.client.map(|client| client.0);
                let model = (lease.client, lease.token, lease.expires_at_ms, lease.timeout_at_ms);
                let timeout_at_ms = Some(found.timeout_at_ms).filter(|&at| at < u64::MAX);
                let found = (client, found.token, found.expires_at_ms, timeout_at_ms);
                self.must(Check::State, model == found, || format!("{job:?}\n  is {found:?}"));
            }
            (State::Completed { at_ms, .. } | State::Failed { at_ms, .. }, _, Some(how)) => {
                let same_cause = match job.state {
                    State::Failed { cause, .. } => cause == how.cause,
                    _ => true,
                };
                self.must(Check::State, same_cause && how.finished_at_ms == *at_ms, || {
                    format!("{job:?} ended at {} for {:?}", how.finished_at_ms, how.cause)
                });
            }
            _ => {}
        }
    }

    /// Compares the parts of a job that few jobs have.
    fn compare_options(&self, job: &Job, view: &JobView<'_>) {
        let options = view.options;
        let unmet: BTreeSet<JobId> =
            options.into_iter().flat_map(|has| has.unmet.iter()).map(|one| one.id).collect();
        let expected = &job.unmet;
        self.must(Check::Dependency, unmet == *expected, || {
            format!("{job:?}\n  waits for {unmet:?}")
        });
        let series = options.and_then(|has| has.series.as_deref()).map(|has| Series {
            every_ms: has.every_ms,
            limit: has.limit,
            count: has.count,
            due_ms: has.due_ms,
            ttl_ms: Some(has.ttl_ms).filter(|&ttl_ms| ttl_ms > 0),
            continued: has.continued,
        });
        self.must(Check::Repeat, series == job.series, || format!("{job:?}\n  has {series:?}"));
        self.compare_family(job, view);
        self.compare_rarities(job, view);
        let times = redelivered(view);
        self.must(Check::Rule, times == job.redelivered, || format!("{job:?}\n  not {times}"));
        let notes = options.and_then(|has| has.notes.as_deref()).cloned().unwrap_or_default();
        let logs = notes.logs.iter().map(|entry| (entry.at_ms, entry.level));
        let same = notes.progress.to_bits() == job.notes.progress.to_bits()
            && notes.message.is_some() == job.notes.message.is_some()
            && logs.eq(job.notes.logs.iter().map(|(at_ms, level, _)| (*at_ms, *level)));
        self.must(Check::State, same, || format!("{job:?}\n  has {notes:?}"));
    }

    /// A job stands elsewhere: which promise that breaks.
    fn misplaced(&self, now_ms: u64, job: &Job, view: &JobView<'_>) {
        let found = view.job;
        let check = match &job.state {
            State::Delayed if job.run_at_ms > now_ms => {
                self.too_early(now_ms, job, "is ready");
                return;
            }
            State::Active(lease) if found.attempts > job.attempts => {
                let (lock, time) = (lease.expires_at_ms, lease.timeout_at_ms);
                match found.stalls > job.stalls {
                    true if lock > now_ms => Check::EarlyLock,
                    false if time.is_some_and(|at| at > now_ms) => Check::EarlyTimeout,
                    _ => Check::State,
                }
            }
            State::Completed { .. } => Check::Again,
            _ => Check::State,
        };
        self.checks.fail(check, || format!("{job:?}\n  is {:?} at {now_ms}", found.state));
    }

    /// A job that replaces another is recorded before the other goes. Where the two records lie in different blocks, an
    /// end of the process can come between them: then both hold the key. The other order could lose both.
    pub fn note_torn_keys(&mut self, now_ms: u64) {
        let mut torn = BTreeSet::new();
        for job in self.jobs.values().filter(|job| job.holds_key(now_ms)) {
            let Some(key) = &job.unique_key else { continue };
            let same =
                |other: &&Job| other.holds_key(now_ms) && other.unique_key.as_ref() == Some(key);
            let replaces = job.extras.dedup.is_some_and(|dedup| dedup.replace);
            let holders: Vec<&Job> = self.of_queue(&job.queue).filter(same).collect();
            if replaces && holders.len() == 2 && holders.iter().any(|other| other.id < job.id) {
                torn.insert((job.queue_name().to_owned(), key.clone()));
            }
        }
        self.torn_keys.extend(torn);
    }

    /// Two may hold a key only if a retry out of the dead-letter queue brought the second, or an end of the process
    /// came between a job and what it replaced.
    fn compare_key(&self, now_ms: u64, job: &Job, key: &str) {
        let same =
            |other: &&Job| other.holds_key(now_ms) && other.unique_key.as_deref() == Some(key);
        let holders = self.of_queue(&job.queue).filter(same).count();
        let queue = job.queue_name();
        let torn = || self.torn_keys.contains(&(queue.to_owned(), key.to_owned()));
        let may_be = holders == 1 || self.revived.contains(queue) || holders == 2 && torn();
        self.must(Check::Unique, may_be, || {
            format!("{holders} jobs hold the key {key} in {}", job.queue)
        });
    }
}

/// The state that a shard should have a job in.
pub fn found(state: &State) -> Option<Found> {
    Some(match state {
        State::Waiting => Found::Waiting,
        State::Delayed => Found::Delayed,
        State::WaitingChildren => Found::WaitingChildren,
        State::Active(_) => Found::Active,
        State::Completed { .. } => Found::Completed,
        State::Failed { .. } => Found::Failed,
        State::Gone => return None,
    })
}
