//! Flows as the server takes them: names are claimed, every shard stages its part, the shard that
//! coordinates gives its word, every shard releases its part. After a start words are passed on again,
//! and what has none goes.

use super::check::Check;
use super::model::Job;
use super::names::Task;
use super::node::News;
use super::ops::flow::{Decide, Stage};
use super::ops::push::NewOne;
use super::settings::Flaw;
use super::world::{Mail, World};
use corq_shards::flow::{Fate, Staged};
use corq_shards::job::id::JobId;
use corq_shards::log_record::{Pushed, Record};
use std::collections::BTreeMap;

/// A job of a flow.
#[derive(Clone, Debug)]
pub struct FlowJob {
    pub queue: String,
    pub new: NewOne,
    /// Jobs it waits for, by place, and whether each is its child.
    pub ties: Vec<(usize, bool)>,
}

impl FlowJob {
    pub fn name(&self) -> String {
        self.new.custom_id.clone().unwrap_or_default()
    }
}

/// A flow that is being pushed.
#[derive(Debug)]
pub struct FlowTask {
    jobs: Vec<FlowJob>,
    coordinator: usize,
    /// Owner shards of its names still to be asked, the next one last, each with the places of its jobs.
    name_owners: Vec<(usize, Vec<usize>)>,
    granted: Vec<usize>,
    flow: JobId,
    owners: Vec<usize>,
    left: usize,
    refused: bool,
}

/// Messages between shards about flows.
#[derive(Clone, Debug)]
pub enum FlowMail {
    Stage { from: usize, task: u64, part: Stage, has_room: bool },
    Staged { task: u64, refused: bool },
    Decided { from: usize, flow: JobId, fate: Fate },
    Come { flow: JobId },
}

/// The promise of a flow, and how far it was answered.
#[derive(Clone, Debug)]
struct Promise {
    /// Jobs of the flow, with their shards.
    jobs: Vec<(JobId, usize)>,
    durable: bool,
    acknowledged: bool,
    refused: bool,
}

/// All flows of a run.
#[derive(Default)]
pub struct Flows {
    promises: BTreeMap<JobId, Promise>,
    /// By coordinator: how many shards have yet to say that their part has come, and the push that waits
    /// for it, if one does.
    open: BTreeMap<(usize, JobId), (usize, Option<u64>)>,
    /// Parts that come in slices: the shard, and the coordinator, which is to know when all of it has come.
    coming: Vec<(usize, usize, JobId)>,
}

impl World {
    /// Sends a flow, once it has its names.
    pub fn push_flow(&mut self, jobs: Vec<FlowJob>) {
        let mut owners: Vec<usize> =
            jobs.iter().map(|job| self.shard_of_queue(&job.queue)).collect();
        owners.sort_unstable();
        owners.dedup();
        let anywhere = self.dice.index(self.nodes.len());
        let coordinator = if owners.len() == 1 { owners[0] } else { anywhere };
        let mut name_owners: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, job) in jobs.iter().enumerate() {
            name_owners.entry(self.owner_of_name(&job.name())).or_default().push(place);
        }
        let task = self.new_request();
        let flow = FlowTask {
            jobs,
            coordinator,
            name_owners: name_owners.into_iter().rev().collect(),
            granted: Vec::new(),
            flow: JobId::default(),
            owners,
            left: 0,
            refused: false,
        };
        self.tasks.insert(task, Task::Flow(flow));
        self.ask_next_name_owner(task);
    }

    fn flow_task(&mut self, task: u64) -> Option<&mut FlowTask> {
        match self.tasks.get_mut(&task) {
            Some(Task::Flow(flow)) => Some(flow),
            _ => None,
        }
    }

    fn ask_next_name_owner(&mut self, task: u64) {
        let Some(flow) = self.flow_task(task) else { return };
        let Some((owner, places)) = flow.name_owners.last() else { return };
        let names = places.iter().map(|&place| flow.jobs[place].name()).collect();
        let way = (true, flow.coordinator as u64, *owner);
        self.post(way, Mail::Claim { task, names });
    }

    /// The owner shard of some names has answered.
    pub fn flow_claimed(&mut self, task: u64, taken: &[bool]) {
        let Some(flow) = self.flow_task(task) else { return };
        let Some((_, places)) = flow.name_owners.pop() else { return };
        let granted = places.iter().zip(taken).filter(|(_, taken)| !**taken);
        flow.granted.extend(granted.map(|(&place, _)| place));
        if taken.contains(&true) {
            self.refuse_flow(task);
        } else if flow.name_owners.is_empty() {
            self.stage_flow(task);
        } else {
            self.ask_next_name_owner(task);
        }
    }

    fn refuse_flow(&mut self, task: u64) {
        let Some(Task::Flow(flow)) = self.tasks.remove(&task) else { return };
        let names = flow.granted.iter().map(|&place| flow.jobs[place].name());
        self.nodes[flow.coordinator].news.extend(names.map(|name| News::Unclaim { name }));
    }

    /// Hands every shard its part; one of them may have no room.
    fn stage_flow(&mut self, task: u64) {
        let now_ms = self.now_ms;
        let full = self.dice.one_in(8).then(|| self.dice.draw() as usize);
        let Some(Task::Flow(flow)) = self.tasks.get_mut(&task) else { return };
        let from = flow.coordinator;
        let shard = &mut self.nodes[from].shard;
        let ids: Vec<JobId> =
            flow.jobs.iter().map(|job| shard.reserve_id(now_ms, &job.queue)).collect();
        flow.flow = ids[0];
        let name = flow.flow;
        let durable = flow.jobs.iter().any(|job| job.new.durable);
        let mut parts: BTreeMap<usize, Stage> = BTreeMap::new();
        let mut jobs = Vec::new();
        for (job, &id) in flow.jobs.iter_mut().zip(&ids) {
            let of = |child: bool| {
                let ties = job.ties.iter().filter(move |(_, is_child)| *is_child == child);
                ties.map(|&(place, _)| ids[place]).collect::<Vec<JobId>>()
            };
            let (children, others) = (of(true), of(false));
            job.new.ties.wait_for(children);
            job.new.unmet = others;
            let owner = corq_shards::job::id::Slot::of_name(&job.queue).index() % self.nodes.len();
            jobs.push((id, owner));
            let part = parts.entry(owner).or_insert_with(|| Stage::new(name, durable));
            part.jobs.push(of_flow(job.new.job(id, &job.queue, now_ms)));
            part.records.push(record_of(name, id, job, now_ms));
        }
        flow.left = parts.len();
        let promise = Promise { jobs, durable, acknowledged: false, refused: false };
        self.flows.promises.insert(name, promise);
        let full = full.map(|dice| dice % parts.len());
        for (place, (owner, part)) in parts.into_iter().enumerate() {
            let mail = FlowMail::Stage { from, task, part, has_room: full != Some(place) };
            self.post((true, from as u64, owner), Mail::Flow(mail));
        }
    }

    /// Mail about flows has come to a shard.
    pub fn read_flow_mail(&mut self, node: usize, mail: FlowMail) {
        match mail {
            FlowMail::Stage { from, task, part, has_room } => {
                if has_room {
                    self.nodes[node].run(self.now_ms, 0, 0, &part);
                }
                self.tell_flow(node, from, FlowMail::Staged { task, refused: !has_room });
            }
            FlowMail::Staged { task, refused } => {
                let Some(flow) = self.flow_task(task) else { return };
                flow.refused |= refused;
                flow.left -= 1;
                if flow.left == 0 {
                    self.decide_flow(task);
                }
            }
            FlowMail::Decided { from, flow, fate } => {
                self.decide(node, flow, fate, false);
                if fate == Fate::Released {
                    self.flows.coming.push((node, from, flow));
                    self.tell_of_come_flows(node);
                }
            }
            FlowMail::Come { flow } => self.part_has_come(node, flow),
        }
    }

    /// Once the log of the one who tells has the reason.
    fn tell_flow(&mut self, from: usize, to: usize, mail: FlowMail) {
        self.nodes[from].news.push(News::Flow { to, mail });
    }

    fn decide(&mut self, node: usize, flow: JobId, fate: Fate, durable: bool) {
        self.nodes[node].run(self.now_ms, 0, 0, &Decide { flow, fate, durable });
    }

    /// All parts are written down, or one is not.
    fn decide_flow(&mut self, task: u64) {
        let Some(at_work) = self.flow_task(task) else { return };
        let (flow, me, refused) = (at_work.flow, at_work.coordinator, at_work.refused);
        let durable = at_work.jobs.iter().any(|job| job.new.durable);
        let others: Vec<usize> = at_work.owners.iter().copied().filter(|&it| it != me).collect();
        if refused {
            for to in others {
                let mail = FlowMail::Decided { from: me, flow, fate: Fate::Dropped };
                self.post((true, me as u64, to), Mail::Flow(mail));
            }
            self.decide(me, flow, Fate::Dropped, false);
            if let Some(promise) = self.flows.promises.get_mut(&flow) {
                promise.refused = true;
            }
            self.refuse_flow(task);
        } else {
            let fate = if others.is_empty() { Fate::CommittedHere } else { Fate::Committed };
            self.decide(me, flow, fate, durable);
            let comes = self.nodes[me].shard.is_staged(flow);
            if others.is_empty() && !comes {
                self.finish_flow(task);
                return;
            }
            self.flows.open.insert((me, flow), (others.len() + usize::from(comes), Some(task)));
            if comes {
                self.flows.coming.push((me, me, flow));
            }
            for to in others {
                self.tell_flow(me, to, FlowMail::Decided { from: me, flow, fate: Fate::Released });
            }
        }
    }

    /// Says of which parts the last slice has come.
    pub fn tell_of_come_flows(&mut self, node: usize) {
        let shard = &self.nodes[node].shard;
        let has_come =
            |(at, _, flow): &mut (usize, usize, JobId)| *at == node && !shard.is_staged(*flow);
        let come: Vec<_> = self.flows.coming.extract_if(.., has_come).collect();
        for (_, from, flow) in come {
            if from == node {
                self.part_has_come(node, flow);
            } else {
                self.tell_flow(node, from, FlowMail::Come { flow });
            }
        }
    }

    fn part_has_come(&mut self, me: usize, flow: JobId) {
        let Some((left, task)) = self.flows.open.get_mut(&(me, flow)) else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        let task = *task;
        self.flows.open.remove(&(me, flow));
        self.decide(me, flow, Fate::Done, false);
        if let Some(task) = task {
            self.finish_flow(task);
        }
    }

    fn finish_flow(&mut self, task: u64) {
        let Some(Task::Flow(flow)) = self.tasks.remove(&task) else { return };
        self.nodes[flow.coordinator].news.push(News::FlowDone { flow: flow.flow });
    }

    /// The client has its answer.
    pub fn learn_of_flow(&mut self, flow: JobId) {
        if let Some(promise) = self.flows.promises.get_mut(&flow) {
            promise.acknowledged = true;
        }
    }

    /// The process has ended. `all`: no part of a flow can have been lost, durable or not.
    pub fn forget_flows(&mut self, all: bool) {
        self.flows.open.clear();
        self.flows.coming.clear();
        self.flows.promises.retain(|_, promise| all || promise.durable);
    }

    /// After a start: words are passed on again.
    pub fn resume_flows(&mut self) {
        if self.settings.has(Flaw::ForgottenWords) {
            return;
        }
        for me in 0..self.nodes.len() {
            for flow in self.nodes[me].shard.open_flows() {
                let others = (0..self.nodes.len()).filter(|&other| other != me);
                for other in others.clone() {
                    self.decide(other, flow, Fate::Released, false);
                    self.flows.coming.push((other, me, flow));
                    self.tell_of_come_flows(other);
                }
                let comes = self.nodes[me].shard.is_staged(flow);
                if comes {
                    self.flows.coming.push((me, me, flow));
                }
                let left = others.count() + usize::from(comes);
                if left == 0 {
                    self.decide(me, flow, Fate::Done, false);
                    continue;
                }
                self.flows.open.insert((me, flow), (left, None));
            }
        }
    }

    /// After that: what is still staged has no word, and goes.
    pub fn drop_uncommitted_flows(&mut self) {
        for node in 0..self.nodes.len() {
            let names = self.nodes[node].shard.undecided_names();
            let unclaim = |name: Box<str>| News::Unclaim { name: name.into() };
            self.nodes[node].news.extend(names.into_iter().map(unclaim));
            for flow in self.nodes[node].shard.staged_flows() {
                self.decide(node, flow, Fate::Dropped, false);
            }
        }
    }

    /// While no news is on its way: of each flow all jobs have come, or none.
    pub fn check_flows(&self) {
        let quiet = self.mail.is_empty()
            && self.tasks.is_empty()
            && self.nodes.iter().all(|node| {
                node.held.is_empty() && node.news.is_empty() && node.model.staged.sliced.is_empty()
            });
        if !quiet {
            return;
        }
        for (flow, promise) in &self.flows.promises {
            let came =
                |(id, shard): &&(JobId, usize)| self.nodes[*shard].model.jobs.contains_key(id);
            let come = promise.jobs.iter().filter(came).count();
            let whole = come == promise.jobs.len();
            let holds =
                if promise.acknowledged { whole } else { come == 0 || whole && !promise.refused };
            self.checks.must(Check::Flow, holds, || {
                format!("{come} jobs of {flow:?} have come: {promise:?}")
            });
        }
        for node in &self.nodes {
            let (staged, words) = (&node.model.staged.parts, &node.model.staged.words);
            self.checks.must(Check::Flow, staged.is_empty() && words.is_empty(), || {
                format!("shard {} has {staged:?} under way, and {words:?}", node.index)
            });
        }
    }
}

fn of_flow(mut job: Job) -> Job {
    job.family.of_flow = true;
    job
}

fn record_of(flow: JobId, id: JobId, job: &FlowJob, now_ms: u64) -> Vec<u8> {
    let mut unmet = Vec::new();
    let new = job.new.lend(&mut unmet);
    let run_at_ms = now_ms + new.delay_ms;
    let pushed = Pushed { id, queue: &job.queue, run_at_ms, job: new.into() };
    let record = Record::Staged(Staged { flow, pushed });
    let mut bytes = vec![0; record.encoded_len()];
    record.encode(&mut bytes);
    bytes
}
