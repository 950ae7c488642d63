//! PUSHF: a flow, and the commands that its shards carry out for it.

use super::push::new_one;
use super::{Answer, Call};
use crate::check::Check;
use crate::flows::FlowJob;
use crate::job_rules::Moment;
use crate::model::{Job, Model};
use crate::world::{QUEUES, World};
use corq_shards::command::Command;
use corq_shards::family::Policy;
use corq_shards::flow::Fate;
use corq_shards::job::id::JobId;

/// The part of one shard.
#[derive(Clone, Debug)]
pub struct Stage {
    flow: JobId,
    durable: bool,
    pub jobs: Vec<Job>,
    pub records: Vec<Vec<u8>>,
}

impl Stage {
    /// An empty one.
    pub fn new(flow: JobId, durable: bool) -> Self {
        Self { flow, durable, jobs: Vec::new(), records: Vec::new() }
    }
}

impl Call for Stage {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let records: Vec<&[u8]> = self.records.iter().map(|record| &record[..]).collect();
        let (records, durable) = (&records[..], self.durable);
        to(&Command::Stage { records, group_max: &[], durable });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        model.must(Check::Answer, answer == Some(&Answer::Done), || format!("{answer:?}"));
        model.stage(at, self.flow, &self.jobs);
    }

    fn is_answered(&self) -> bool {
        false
    }
}

/// Decides on a flow.
#[derive(Clone, Debug)]
pub struct Decide {
    pub flow: JobId,
    pub fate: Fate,
    pub durable: bool,
}

impl Call for Decide {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let &Self { flow, fate, durable } = self;
        to(&Command::Decide { flow, fate, durable });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        model.must(Check::Answer, answer == Some(&Answer::Done), || format!("{answer:?}"));
        model.decide(at, self.flow, self.fate);
    }

    fn is_answered(&self) -> bool {
        false
    }
}

/// Effects that a failure may have on a parent.
pub const POLICIES: &[Option<Policy>] =
    &[None, Some(Policy::Fail), Some(Policy::Continue), Some(Policy::Ignore), Some(Policy::Remove)];

/// A client pushes a flow: trees of parents and children, with a dependency across here and there.
pub fn act(world: &mut World, _client: usize) {
    let count = 2 + world.dice.index(5);
    let mut jobs: Vec<FlowJob> = (0..count).map(|_| one(world)).collect();
    for child in 1..count {
        let other = world.dice.index(child);
        if !world.dice.one_in(4) {
            let parent = jobs[other].name();
            jobs[other].ties.push((child, true));
            let ties = &mut jobs[child].new.ties;
            (ties.parent, ties.policy) = (Some(parent), world.dice.pick(POLICIES));
        }
        let other = world.dice.index(child);
        if world.dice.one_in(5) && jobs[other].ties.iter().all(|(place, _)| *place != child) {
            jobs[other].ties.push((child, false));
        }
    }
    let names: Vec<String> = jobs.iter().map(FlowJob::name).collect();
    let mut seen = std::collections::BTreeSet::new();
    if !names.iter().all(|name| seen.insert(name)) {
        // Refused before anything is done.
        return;
    }
    for job in &mut jobs {
        let named = |child: bool| {
            let ties = job.ties.iter().filter(move |(_, is_child)| *is_child == child);
            ties.map(|&(place, _)| names[place].clone()).collect::<Vec<String>>()
        };
        let (children, others) = (named(true), named(false));
        job.new.ties.bind(&children, &others);
    }
    world.push_flow(jobs);
}

fn one(world: &mut World) -> FlowJob {
    let new = new_one(world);
    let name = new.custom_id.clone().filter(|_| world.dice.one_in(4));
    let name = name.unwrap_or_else(|| format!("flow{}", world.pushes));
    let queue = world.dice.pick(QUEUES).into();
    FlowJob { queue, new: new.alone(name), ties: Vec::new() }
}
