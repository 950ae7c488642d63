//! Rules of queues in the model: jobs that leave the dead-letter queue by themselves, when a worker counts
//! as silent, and how many stalls bury.

use super::check::Check;
use super::job_rules::{LAST, Moment};
use super::model::{Job, Lease, Model, Old, State};
use corq_shards::Shard;
use corq_shards::dead_letter::policy::{DlqRule, StallRule};
use corq_shards::log_record::{Record, Revived};
use corq_shards::query::JobView;
use corq_shards::queue::Queue;

/// The rules of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    pub dlq: DlqRule,
    pub stall: StallRule,
}

impl Rules {
    fn found(shard: &Shard, queue: &str) -> Self {
        let queue = shard.queues().find(|found| *found.name == *queue);
        queue.map(Self::of).unwrap_or_default()
    }

    fn of(queue: &Queue) -> Self {
        let rules = queue.rules.as_deref();
        rules.map(|rules| Self { dlq: rules.dlq, stall: rules.stall }).unwrap_or_default()
    }
}

/// How often a job left the dead-letter queue by itself.
pub fn redelivered(view: &JobView<'_>) -> u32 {
    let before = view.options.and_then(|options| options.redelivered);
    before.map_or(0, |before| before.times)
}

impl Model {
    /// The rules of a queue are those of the model.
    pub fn compare_rules(&self, queue: &Queue) {
        let (found, model) = (Rules::of(queue), self.rules(&queue.name));
        self.must(Check::State, found == model, || {
            format!("{} has the rules {found:?}, not {model:?}", queue.name)
        });
    }

    pub fn rules(&self, queue: &str) -> Rules {
        self.rules.get(queue).copied().unwrap_or_default()
    }

    /// A queue has other rules from now on.
    pub fn rule(&mut self, queue: &str, rules: Rules) {
        self.keep(Old::Rules(queue.into(), self.rules(queue)));
        self.rules.insert(queue.into(), rules);
    }

    /// A change of rules is lost. `cut`: only perhaps, as `shard` shows.
    pub fn undo_rules(&mut self, queue: &str, old: Rules, cut: bool, shard: &Shard) {
        let (found, mut rules) = (Rules::found(shard, queue), self.rules(queue));
        if !cut || found.dlq == old.dlq {
            rules.dlq = old.dlq;
        }
        if !cut || found.stall == old.stall {
            rules.stall = old.stall;
        }
        self.rules.insert(queue.into(), rules);
    }

    /// When a worker is given up that says nothing more.
    pub fn hold_ends_ms(&self, job: &Job, lease: &Lease) -> u64 {
        // A time that the job itself asked for is part of its lease.
        if job.extras.stall_timeout_ms.is_some() {
            return lease.expires_at_ms;
        }
        let rule = self.rules(&job.queue).stall;
        let silent_ms = match rule.interval_ms {
            _ if !rule.enabled => u64::MAX,
            None => return lease.expires_at_ms,
            Some(interval_ms) => {
                let graced_ms = lease.started_at_ms + u64::from(rule.grace_ms);
                graced_ms.max(lease.seen_at_ms + u64::from(interval_ms))
            }
        };
        // A lock ends whatever the rule says.
        silent_ms.min(lease.token.map_or(u64::MAX, |_| lease.expires_at_ms))
    }

    /// When a job leaves the dead-letter queue by itself to be tried anew, if it will.
    pub fn returns_ms(&self, job: &Job) -> Option<u64> {
        let State::Failed { at_ms, .. } = job.state else { return None };
        let rule = self.rules(&job.queue).dlq;
        let doublings = job.redelivered.saturating_sub(1);
        let left = rule.auto_retry && job.redelivered < rule.retries_max;
        let due_ms = left.then(|| at_ms + (rule.retry_interval_ms << doublings))?;
        job.expires_at_ms.is_none_or(|life_ms| due_ms < life_ms).then_some(due_ms)
    }

    /// When a job in the dead-letter queue has expired.
    fn expires_ms(&self, job: &Job) -> Option<u64> {
        let State::Failed { at_ms, .. } = job.state else { return None };
        self.rules(&job.queue).dlq.age_max_ms.map(|age_ms| at_ms + age_ms)
    }

    /// Whether a job in the dead-letter queue has expired.
    pub fn is_outdated(&self, job: &Job, now_ms: u64) -> bool {
        self.expires_ms(job).is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// Whether that was so long ago that it goes.
    fn is_to_go(&self, job: &Job, now_ms: u64) -> bool {
        self.expires_ms(job).is_some_and(|at_ms| at_ms + self.expired_kept_ms <= now_ms)
    }

    /// How many are in a dead-letter queue beyond what its rule allows.
    fn surplus(&self, queue: &str) -> usize {
        let is_failed = |job: &&Job| matches!(job.state, State::Failed { .. });
        let most = self.rules(queue).dlq.entries_max.map_or(usize::MAX, |most| most as usize);
        self.of_queue(queue).filter(is_failed).count().saturating_sub(most)
    }

    /// Whether a rule lets a job go out of the dead-letter queue for good.
    pub fn may_drop_letter(&self, job: &Job, now_ms: u64) -> bool {
        let State::Failed { at_ms, .. } = job.state else { return false };
        // Of those that came at the same time, the shard chooses.
        let slack_ms = self.clock_slack_ms;
        let older = |other: &Job| matches!(other.state, State::Failed { at_ms: its, .. } if its + slack_ms < at_ms);
        self.is_to_go(job, now_ms)
            || self.surplus(&job.queue) > 0 && !self.of_queue(&job.queue).any(older)
    }

    /// Jobs that left the dead-letter queue by themselves, by the shard's records.
    pub fn return_letters(&mut self, at: &Moment<'_>) {
        for (place, record) in at.records() {
            self.record = Some(place);
            match record {
                Record::Revived(Revived { id, by_itself: true, .. }) => self.return_letter(at, id),
                Record::Removed { id }
                    if self
                        .jobs
                        .get(&id)
                        .is_some_and(|job| self.may_drop_letter(job, at.now_ms)) =>
                {
                    self.drop_letter(at.now_ms, id);
                }
                _ => {}
            }
        }
        self.record = None;
    }

    fn return_letter(&mut self, at: &Moment<'_>, id: corq_shards::job::id::JobId) {
        let job = &self.jobs[&id];
        let due_ms = self.returns_ms(job);
        let lives = job.expires_at_ms.is_none_or(|life_ms| at.now_ms < life_ms);
        let is_due = lives && due_ms.is_some_and(|due_ms| due_ms <= at.now_ms);
        self.must(Check::Rule, is_due && !self.is_outdated(job, at.now_ms), || {
            format!("at {}, not at {due_ms:?}, is tried anew {job:?}", at.now_ms)
        });
        let before = job.redelivered;
        let buried_just_now =
            matches!(job.state, State::Failed { at_ms, .. } if at_ms == at.now_ms);
        self.revive_as_it_is(at.now_ms, id);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.redelivered = before + 1;
        }
        if buried_just_now && self.jobs[&id].state == State::Waiting {
            self.fresh.insert(id, LAST);
        }
    }

    /// Nothing that should have left the dead-letter queue is in it, unless a new rule is just being applied,
    /// or it came just now: then it leaves in the next round.
    pub fn check_letters(&self, now_ms: u64) {
        for job in self.jobs.values() {
            let due = self.returns_ms(job).is_some_and(|due_ms| due_ms <= now_ms);
            let lives = job.expires_at_ms.is_none_or(|life_ms| now_ms < life_ms);
            let due = due && lives && !self.is_outdated(job, now_ms) || self.is_to_go(job, now_ms);
            let fresh = matches!(job.state, State::Failed { at_ms, .. } if at_ms == now_ms);
            self.must(Check::Overdue, !due || fresh || self.has_bulk(&job.queue), || {
                format!("at {now_ms}, still a dead letter: {job:?}")
            });
        }
        for queue in self.rules.keys() {
            let surplus = self.surplus(queue);
            self.must(Check::Overdue, surplus == 0 || self.has_bulk(queue), || {
                format!("{surplus} dead letters too many in {queue}")
            });
        }
    }
}
