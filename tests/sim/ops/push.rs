//! PUSH and PUSHB, with every option.

use super::flow::POLICIES;
use super::{Answer, Call, Learned};
use crate::check::Check;
use crate::family::Ties;
use crate::groups::GROUPS;
use crate::judge::Moment;
use crate::ledger::Promise;
use crate::model::{Job, Model, State};
use crate::repeat::Series;
use crate::world::{QUEUES, World};
use corq_shards::command::Command;
use corq_shards::dependency::Unmet;
use corq_shards::id::{JobId, Slot};
use corq_shards::new_job::{NewJob, Repeat};

/// A job to be pushed, with its texts its own.
#[derive(Clone, Debug)]
pub struct NewOne {
    data: Vec<u8>,
    name: Option<String>,
    priority: i32,
    delay_ms: u64,
    max_attempts: u16,
    backoff_ms: u32,
    ttl_ms: Option<u64>,
    timeout_ms: Option<u32>,
    unique_key: Option<String>,
    pub custom_id: Option<String>,
    group_id: Option<String>,
    tags: Vec<u8>,
    lifo: bool,
    remove_on_complete: bool,
    remove_on_fail: bool,
    pub durable: bool,
    repeat: Option<Repeat>,
    pub depends_on: Vec<JobId>,
    /// Which of them are its children.
    pub children: Vec<JobId>,
    /// Those of them that were not completed when their shards were asked.
    pub unmet: Vec<JobId>,
    pub ties: Ties,
}

impl NewOne {
    /// The job as the shard takes it; `unmet` is room for what it waits for.
    pub fn lend<'a>(&'a self, unmet: &'a mut Vec<u8>) -> NewJob<'a> {
        for &id in &self.unmet {
            Unmet::push(unmet, id, "");
        }
        NewJob {
            data: &self.data,
            name: self.name.as_deref(),
            priority: self.priority,
            delay_ms: self.delay_ms,
            max_attempts: self.max_attempts,
            backoff_ms: self.backoff_ms,
            ttl_ms: self.ttl_ms,
            timeout_ms: self.timeout_ms,
            unique_key: self.unique_key.as_deref(),
            custom_id: self.custom_id.as_deref(),
            group_id: self.group_id.as_deref(),
            tags: &self.tags,
            lifo: self.lifo,
            remove_on_complete: self.remove_on_complete,
            remove_on_fail: self.remove_on_fail,
            durable: self.durable,
            repeat: self.repeat,
            depends_on: &self.ties.depends_on,
            unmet: Unmet::new(unmet),
            kin: self.ties.lend(),
            ..NewJob::default()
        }
    }

    pub fn job(&self, id: JobId, queue: &str, now_ms: u64) -> Job {
        let run_at_ms = now_ms + self.delay_ms;
        let series = self.repeat.map(|repeat| Series {
            every_ms: repeat.every_ms,
            limit: repeat.limit,
            count: repeat.count,
            due_ms: run_at_ms,
            ttl_ms: self.ttl_ms,
            continued: false,
        });
        let state = match self.delay_ms {
            _ if !self.unmet.is_empty() => State::WaitingChildren,
            0 => State::Waiting,
            _ => State::Delayed,
        };
        let job = Job {
            priority: self.priority,
            lifo: self.lifo,
            run_at_ms,
            backoff_ms: self.backoff_ms.into(),
            expires_at_ms: self.ttl_ms.map(|ttl_ms| now_ms + ttl_ms),
            timeout_ms: self.timeout_ms.map(Into::into),
            unique_key: self.unique_key.clone(),
            custom_id: self.custom_id.clone(),
            remove_on_complete: self.remove_on_complete,
            remove_on_fail: self.remove_on_fail,
            max_attempts: self.max_attempts,
            group: self.group_id.clone(),
            state,
            series,
            unmet: self.unmet.iter().copied().collect(),
            ..Job::new(id, queue, &self.data)
        };
        job.tied(&self.ties)
    }

    /// As a flow may have it, under this name.
    #[must_use]
    pub fn alone(self, name: String) -> Self {
        let custom_id = Some(name);
        let (depends_on, children, ties) = (Vec::new(), Vec::new(), Ties::default());
        Self { custom_id, unique_key: None, repeat: None, depends_on, children, ties, ..self }
    }
}

/// A push to one queue. Custom ids have been claimed.
#[derive(Clone, Debug)]
pub struct Push {
    pub queue: String,
    pub jobs: Vec<NewOne>,
}

impl Call for Push {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let mut unmet = vec![Vec::new(); self.jobs.len()];
        let jobs = self.jobs.iter().zip(&mut unmet);
        let jobs: Vec<NewJob<'_>> = jobs.map(|(job, unmet)| job.lend(unmet)).collect();
        to(&Command::Push { queue: &self.queue, jobs: &jobs });
    }

    fn judge(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let Some(Answer::Pushed(ids)) = answer else {
            model.checks.fail(Check::Answer, || format!("a push was answered {answer:?}"));
            return;
        };
        model.must(Check::Answer, ids.len() == self.jobs.len(), || format!("{} ids", ids.len()));
        for (new, &id) in self.jobs.iter().zip(ids) {
            let holder = new.unique_key.as_ref().and_then(|key| model.holder(&self.queue, key));
            if let Some(holder) = holder {
                model.must(Check::Unique, id == holder, || {
                    format!("a push under the key of {holder:?} made {id:?}")
                });
            }
            if holder == Some(id) {
                continue;
            }
            let highest = model.jobs.keys().next_back().is_none_or(|&last| last < id);
            let routed = id.is_v7() && id.slot() == Slot::of_name(&self.queue);
            model.must(Check::Answer, highest && routed, || format!("{id:?} is no good id"));
            model.add(new.job(id, &self.queue, at.now_ms));
        }
    }

    fn names(&self) -> Vec<(usize, &str)> {
        let jobs = self.jobs.iter().enumerate();
        jobs.filter_map(|(place, job)| Some((place, job.custom_id.as_deref()?))).collect()
    }

    fn learn(&self, world: &mut World, learned: &Learned<'_>) {
        let Answer::Pushed(ids) = learned.answer else { return };
        for (new, &id) in self.jobs.iter().zip(ids) {
            let shard = learned.shard;
            // A push that met another under its key promises no more than that one did.
            let ours =
                world.nodes[shard].model.jobs.get(&id).is_some_and(|job| job.data == new.data);
            if ours {
                let durable = new.durable;
                world.ledger.pushed.insert(id, Promise { shard, durable });
            }
        }
    }
}

/// A client pushes.
pub fn act(world: &mut World, client: usize) {
    let queue = world.dice.pick(QUEUES);
    let many = world.dice.one_in(4);
    let count = if many { 1 + world.dice.below(5) } else { 1 };
    let jobs: Vec<NewOne> = (0..count).map(|_| new_one(world)).collect();
    let push = Push { queue: queue.into(), jobs };
    world.push(client, push);
}

pub fn new_one(world: &mut World) -> NewOne {
    world.pushes += 1;
    let mut data = vec![0xce];
    data.extend_from_slice(&(world.pushes as u32).to_be_bytes());
    let dice = &mut world.dice;
    if dice.one_in(20) {
        // A MessagePack binary, long enough to fill blocks and segments.
        let bytes = 1000 + dice.below(3000) as u16;
        let number = data;
        data = vec![0xc5];
        data.extend_from_slice(&bytes.to_be_bytes());
        data.extend(number.iter().copied().cycle().take(bytes.into()));
    }
    let depends_on = if world.dice.one_in(6) { others(world) } else { Vec::new() };
    let dice = &mut world.dice;
    let mut children = if dice.one_in(2) { depends_on.clone() } else { Vec::new() };
    children.sort_unstable();
    children.dedup();
    let mut ties = Ties::default();
    if dice.one_in(6) {
        (ties.parent, ties.policy) = (Some("pending".into()), dice.pick(POLICIES));
    }
    let names = |ids: &[JobId]| ids.iter().map(ToString::to_string).collect::<Vec<String>>();
    ties.bind(&names(&children), &[]);
    let repeat = dice.one_in(8).then(|| Repeat {
        every_ms: dice.pick(&[1, 100, 5000, 100_000]),
        limit: dice.pick(&[None, Some(1), Some(2), Some(4)]),
        count: dice.pick(&[0, 0, 1]),
    });
    let mut some = |odds: u64, of: &[u64]| dice.one_in(odds).then(|| dice.pick(of));
    NewOne {
        data,
        name: some(4, &[0, 1, 2]).map(|name| format!("kind{name}")),
        priority: some(3, &[1, 5, 1_000_000]).map_or(0, |priority| priority as i32 - 3),
        delay_ms: some(4, &[1, 30, 400, 5000, 60_000]).unwrap_or(0),
        max_attempts: some(2, &[1, 2, 5]).unwrap_or(3) as u16,
        backoff_ms: some(2, &[0, 1, 50, 700, 3000]).unwrap_or(1000) as u32,
        ttl_ms: some(6, &[1, 100, 2000, 40_000]),
        timeout_ms: some(6, &[1, 80, 900, 20_000]).map(|timeout_ms| timeout_ms as u32),
        unique_key: some(4, &[0, 1, 2]).map(|key| format!("key{key}")),
        custom_id: some(4, &[0, 1, 2, 3, 4, 5]).map(|id| format!("name{id}")),
        group_id: some(3, &[0, 1, 2]).map(|group| GROUPS[group as usize].into()),
        tags: some(9, &[0]).map_or_else(Vec::new, |_| b"\x91\xa1t".to_vec()),
        lifo: some(5, &[1]).is_some(),
        remove_on_complete: some(5, &[1]).is_some(),
        remove_on_fail: some(5, &[1]).is_some(),
        durable: some(8, &[1]).is_some(),
        repeat,
        depends_on,
        children,
        unmet: Vec::new(),
        ties,
    }
}

/// Jobs to depend on, mostly new ones, of any queue and in any state.
fn others(world: &mut World) -> Vec<JobId> {
    let shard = world.dice.index(world.nodes.len());
    let jobs = world.nodes[shard].model.jobs.keys();
    let jobs: Vec<JobId> = jobs.rev().take(12).copied().collect();
    if jobs.is_empty() {
        return Vec::new();
    }
    (0..=world.dice.below(3)).map(|_| world.dice.pick(&jobs)).collect()
}
