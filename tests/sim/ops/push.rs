//! PUSH and PUSHB, with every option.

use super::flow::POLICIES;
use super::{Answer, Call, Learned};
use crate::check::Check;
use crate::dice::Dice;
use crate::family::Ties;
use crate::groups::GROUPS;
use crate::job_rules::Moment;
use crate::keys::{Met, begin_key};
use crate::ledger::Promise;
use crate::model::{Job, Model, State};
use crate::repeat::Series;
use crate::world::{QUEUES, World};
use corq_shards::command::Command;
use corq_shards::dependency::Unmet;
use corq_shards::effect::Refusal;
use corq_shards::job::id::{JobId, Slot};
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::job::overrides::{Dedup, Extras, Growth};
use corq_shards::job::trace::{NewTrace, TraceParent};
use std::collections::BTreeMap;

/// A job to be pushed, with its texts its own.
#[derive(Clone, Debug)]
pub struct NewOne {
    data: Vec<u8>,
    name: Option<String>,
    priority: i32,
    delay_ms: u64,
    max_attempts: u16,
    backoff_ms: u32,
    extras: Extras,
    group_max: u32,
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
    /// Dependencies that were not completed when their shards were asked.
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
            group_max: self.group_max,
            extras: (self.extras != Extras::default()).then(|| Box::new(self.extras)),
            tags: &self.tags,
            lifo: self.lifo,
            remove_on_complete: self.remove_on_complete,
            remove_on_fail: self.remove_on_fail,
            durable: self.durable,
            repeat: self.repeat,
            depends_on: &self.ties.depends_on,
            unmet: Unmet::new(unmet),
            family: self.ties.lend(),
            recurrence: None,
            // Of no chance of its own, so that old seeds stay what they are.
            trace: (self.data.len() % 3 == 1).then(|| {
                let parent = TraceParent { trace_id: [7; 16], span_id: [9; 8], flags: 1 };
                Box::new(NewTrace { parent, state: "sim=1" })
            }),
        }
    }

    pub fn job(&self, id: JobId, queue: &str, now_ms: u64) -> Job {
        // A delay and a life count from when the job was made, as its client says; without a delay there is no wait.
        let made_at_ms = self.extras.made_at_ms.unwrap_or(now_ms);
        let run_at_ms = match self.delay_ms {
            0 => now_ms,
            delay_ms => now_ms.max(made_at_ms + delay_ms),
        };
        let mut extras = self.extras;
        begin_key(&mut extras, now_ms);
        let series = self.repeat.map(|repeat| Series {
            every_ms: repeat.every_ms,
            limit: repeat.limit,
            count: repeat.count,
            due_ms: run_at_ms,
            ttl_ms: self.ttl_ms,
            continued: false,
        });
        let state = match run_at_ms > now_ms {
            _ if !self.unmet.is_empty() => State::WaitingChildren,
            false => State::Waiting,
            true => State::Delayed,
        };
        let job = Job {
            priority: self.priority,
            lifo: self.lifo,
            run_at_ms,
            backoff_ms: self.backoff_ms,
            extras,
            ttl_ms: self.ttl_ms,
            expires_at_ms: self.ttl_ms.map(|ttl_ms| made_at_ms + ttl_ms),
            timeout_ms: self.timeout_ms.map(Into::into),
            unique_key: self.unique_key.clone(),
            custom_id: self.custom_id.clone(),
            name: self.name.clone(),
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
        // How a flow's records come to be is the server's own: nothing in them is put right any more.
        let extras = Extras { made_at_ms: None, dedup: None, ..self.extras };
        let (unique_key, repeat, group_max) = (None, None, 0);
        Self {
            extras,
            group_max,
            unique_key,
            custom_id,
            repeat,
            depends_on,
            children,
            ties,
            ..self
        }
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

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        if let Some(place) = self.first_too_many(model, at.now_ms) {
            let refused = Answer::Refused { place, refusal: Refusal::GroupFull };
            model.must(Check::Answer, answer == Some(&refused), || {
                format!("{self:?}\n  was answered {answer:?}, not {refused:?}")
            });
            return;
        }
        let Some(Answer::Pushed(ids)) = answer else {
            model.checks.fail(Check::Answer, || format!("{self:?} was answered {answer:?}"));
            return;
        };
        model.must(Check::Answer, ids.len() == self.jobs.len(), || format!("{} ids", ids.len()));
        for (new, &id) in self.jobs.iter().zip(ids) {
            let key = new.unique_key.as_ref();
            let met =
                key.map_or(Met::Nobody, |key| model.meet_holder(at, &self.queue, &new.extras, key));
            if let Met::Stays(holder) = met {
                model.must(Check::Unique, id == holder, || {
                    format!("a push under the key of {holder:?} made {id:?}")
                });
                continue;
            }
            let highest = model.jobs.keys().next_back().is_none_or(|&last| last < id);
            let routed = id.is_v7() && id.slot() == Slot::of_name(&self.queue);
            model.must(Check::Answer, highest && routed, || format!("{id:?} is no good id"));
            model.come(at.now_ms, new.job(id, &self.queue, at.now_ms));
            if let Met::Goes(holder) = met {
                model.remove(holder);
                model.fresh.remove(&holder);
            }
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

impl Push {
    /// The first job that its group has no room for: all of them are refused with it.
    fn first_too_many(&self, model: &Model, now_ms: u64) -> Option<usize> {
        if self.jobs.iter().all(|job| job.group_max == 0) {
            return None;
        }
        // Groups of those that would wait or be delayed, and what would hold which key.
        let of_queue = model.of_queue(&self.queue);
        let pending = of_queue.filter(|job| matches!(job.state, State::Waiting | State::Delayed));
        let mut pending: BTreeMap<JobId, &str> =
            pending.filter_map(|job| Some((job.id, job.group.as_deref()?))).collect();
        let mut holders: BTreeMap<&str, JobId> = BTreeMap::new();
        for (place, new) in self.jobs.iter().enumerate() {
            let id = JobId(place as u128);
            if let Some(key) = new.unique_key.as_deref() {
                let dedup = new.extras.dedup.unwrap_or_default();
                let before = match holders.get(key) {
                    Some(&before) => Some(before),
                    None => model.would_meet(now_ms, &self.queue, key, dedup.replace),
                };
                if let Some(before) = before {
                    if !dedup.replace || model.is_watched(before) {
                        continue;
                    }
                    pending.remove(&before);
                }
                holders.insert(key, id);
            }
            let Some(group) = new.group_id.as_deref() else { continue };
            let there = pending.values().filter(|other| **other == group).count();
            if new.group_max > 0 && there >= new.group_max as usize {
                return Some(place);
            }
            // A job that waits for others does not count yet.
            if new.unmet.is_empty() && new.ties.open.is_empty() {
                pending.insert(id, group);
            }
        }
        None
    }
}

/// A client pushes.
pub fn act(world: &mut World, client: usize) {
    let queue = world.dice.pick(QUEUES);
    let many = world.dice.one_in(4);
    let count = if many { 1 + world.dice.below(5) } else { 1 };
    let mut jobs: Vec<NewOne> = (0..count).map(|_| new_one(world)).collect();
    if count > 1 && world.dice.one_in(3) {
        // All of them under one key.
        let key = format!("key{}", world.dice.below(3));
        let of_one_key = jobs.iter_mut().filter(|job| job.repeat.is_none());
        of_one_key.for_each(|job| job.unique_key = Some(key.clone()));
    }
    let push = Push { queue: queue.into(), jobs };
    world.push(client, push);
}

/// A client pushes jobs of one group that can be delivered at once.
pub fn of_one_group(world: &mut World, client: usize, queue: &str, group: &str, count: usize) {
    let one = |world: &mut World| NewOne {
        delay_ms: 0,
        extras: Extras::default(),
        group_max: 0,
        unique_key: None,
        custom_id: None,
        group_id: Some(group.into()),
        repeat: None,
        depends_on: Vec::new(),
        children: Vec::new(),
        ties: Ties::default(),
        ..new_one(world)
    };
    let jobs: Vec<NewOne> = (0..count).map(|_| one(world)).collect();
    world.push(client, Push { queue: queue.into(), jobs });
}

pub fn new_one(world: &mut World) -> NewOne {
    let mut data = world.new_data();
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
    let now_ms = world.now_ms;
    let (extras, debounced) = rarities(dice, now_ms);
    let repeat = dice.one_in(8).then(|| Repeat {
        every_ms: dice.pick(&[1, 100, 5000, 100_000]),
        limit: dice.pick(&[None, Some(1), Some(2), Some(4)]),
        count: dice.pick(&[0, 0, 1]),
    });
    let mut some = |odds: u64, of: &[u64]| dice.one_in(odds).then(|| dice.pick(of));
    let key_odds = if extras.dedup.is_some() { 1 } else { 4 };
    NewOne {
        data,
        name: some(4, &[0, 1, 2]).map(|name| format!("kind{name}")),
        priority: some(3, &[1, 5, 1_000_000]).map_or(0, |priority| priority as i32 - 3),
        delay_ms: some(if debounced { 1 } else { 4 }, &[1, 30, 400, 5000, 60_000]).unwrap_or(0),
        max_attempts: some(2, &[1, 2, 5]).unwrap_or(3) as u16,
        backoff_ms: some(2, &[0, 1, 50, 700, 3000]).unwrap_or(1000) as u32,
        ttl_ms: some(6, &[1, 100, 2000, 40_000]),
        timeout_ms: some(6, &[1, 80, 900, 20_000]).map(|timeout_ms| timeout_ms as u32),
        extras,
        group_max: some(3, &[1, 2, 6]).unwrap_or(0) as u32,
        unique_key: some(key_odds, &[0, 1, 2]).map(|key| format!("key{key}")),
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

/// Rules of its own, and whether it is a debounce: a key with a time, and a delay.
fn rarities(dice: &mut Dice, now_ms: u64) -> (Extras, bool) {
    let mut extras = Extras::default();
    if dice.one_in(3) {
        let growth = [None, Some(Growth::Fixed), Some(Growth::Fixed), Some(Growth::Exponential)];
        extras.backoff = dice.pick(&growth);
        extras.backoff_max_ms = dice.pick(&[None, None, Some(0), Some(60), Some(2500)]);
    }
    if dice.one_in(6) {
        extras.stall_timeout_ms = dice.pick(&[Some(1), Some(150), Some(2500), Some(50_000)]);
    }
    if dice.one_in(3) {
        extras.keep_logs = dice.pick(&[Some(0), Some(1), Some(3), Some(200)]);
    }
    if dice.one_in(6) {
        let ago_ms = dice.pick(&[0, 1, 300, 4000, 30_000]);
        extras.made_at_ms = Some(if dice.one_in(4) { now_ms + ago_ms } else { now_ms - ago_ms });
    }
    let debounced = dice.one_in(8);
    if debounced {
        let ttl_ms = dice.pick(&[0, 40, 800, 20_000]);
        extras.dedup = Some(Dedup { ttl_ms, ..Dedup::default() });
    } else if dice.one_in(4) {
        extras.dedup = Some(Dedup {
            ttl_ms: dice.pick(&[0, 0, 5, 300, 9000]),
            extend: dice.one_in(2),
            replace: dice.one_in(2),
            until_ms: 0,
        });
    }
    (extras, debounced)
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
