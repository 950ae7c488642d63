//! Rules of queues in the model: jobs that leave the dead-letter queue by themselves, and how many stalls bury.

use super::check::Check;
use super::judge::{LAST, Moment};
use super::model::{Job, Model, Old, State};
use corq_shards::Shard;
use corq_shards::query::JobView;
use corq_shards::queue::Queue;
use corq_shards::record::Record;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// How long after its failure, and how often; none for never.
    pub retry: Option<(u64, u32)>,
    /// 0 for any number.
    pub stalls_max: u8,
}

impl Default for Rules {
    fn default() -> Self {
        Self { retry: None, stalls_max: 3 }
    }
}

impl Rules {
    fn found(shard: &Shard, queue: &str) -> Self {
        let queue = shard.queues().find(|found| *found.name == *queue);
        queue.map(Self::of).unwrap_or_default()
    }

    fn of(queue: &Queue) -> Self {
        let Some(rules) = queue.rules.as_deref() else { return Self::default() };
        let (dlq, stalls_max) = (rules.dlq, rules.stall.stalls_max);
        let retry = dlq.auto_retry.then_some((dlq.retry_interval_ms, dlq.retries_max));
        Self { retry, stalls_max }
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
        if !cut || found.retry == old.retry {
            rules.retry = old.retry;
        }
        if !cut || found.stalls_max == old.stalls_max {
            rules.stalls_max = old.stalls_max;
        }
        self.rules.insert(queue.into(), rules);
    }

    /// When a job leaves the dead-letter queue by itself, if it will.
    fn returns_ms(&self, job: &Job) -> Option<u64> {
        let State::Failed { at_ms } = job.state else { return None };
        let (interval_ms, most) = self.rules(&job.queue).retry?;
        let doublings = job.redelivered.saturating_sub(1);
        let due_ms = (job.redelivered < most).then(|| at_ms + (interval_ms << doublings))?;
        job.expires_at_ms.is_none_or(|life_ms| due_ms < life_ms).then_some(due_ms)
    }

    /// Jobs that left the dead-letter queue by themselves, by the shard's records.
    pub fn return_letters(&mut self, at: &Moment<'_>) {
        for (place, record) in at.records() {
            let Record::Revived { id, by_itself: true, .. } = record else { continue };
            let job = &self.jobs[&id];
            let due_ms = self.returns_ms(job);
            let lives = job.expires_at_ms.is_none_or(|life_ms| at.now_ms < life_ms);
            let is_due = lives && due_ms.is_some_and(|due_ms| due_ms <= at.now_ms);
            self.must(Check::Rule, is_due, || {
                format!("at {}, not at {due_ms:?}, is tried anew {job:?}", at.now_ms)
            });
            let before = job.redelivered;
            let buried_just_now = job.state == State::Failed { at_ms: at.now_ms };
            self.record = Some(place);
            self.revive(at.now_ms, id);
            if let Some(job) = self.jobs.get_mut(&id) {
                job.redelivered = before + 1;
            }
            if buried_just_now {
                self.fresh.insert(id, LAST);
            }
        }
        self.record = None;
    }

    /// Nothing that should have left the dead-letter queue is in it, unless a new rule is just being applied,
    /// or it came just now: then it leaves in the next round.
    pub fn judge_letters(&self, now_ms: u64) {
        for job in self.jobs.values() {
            let due = self.returns_ms(job).is_some_and(|due_ms| due_ms <= now_ms);
            let lives = job.expires_at_ms.is_none_or(|life_ms| now_ms < life_ms);
            let due = due && lives;
            let fresh = job.state == State::Failed { at_ms: now_ms };
            self.must(Check::Overdue, !due || fresh || self.has_chore(&job.queue), || {
                format!("at {now_ms}, still a dead letter: {job:?}")
            });
        }
    }
}
