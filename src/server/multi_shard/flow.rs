//! PUSHF: jobs of several queues and shards that come together, or not at all.
//!
//! The shard of the connection coordinates. Ids are claimed; every shard stages its part, which settles
//! whether there is room; the word is given by one record here; then all parts are released, and the
//! client has its answer when they are. Whatever can refuse the flow does so before the word. After
//! a crash the word is passed on again, and what is staged without one goes.

use super::flow_view::{ANSWER_BYTES_MAX, answer_bytes, delay_ms, write_snapshot};
use super::messages::FlowMessage;
use super::task::Task;
use crate::api::error::{Error, ErrorKind};
use crate::api::flow::{FlowJob, Shape};
use crate::api::request::{Body, Request};
use crate::protocol::decode::decode_frame;
use crate::protocol::large::KeptFrame;
use crate::protocol::reply;
use crate::server::commands::pending_replies::CURRENT;
use crate::server::commands::refusal::group_full;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::envelope::{Origin, Span, Step};
use crate::server::shard_mail::message::{Batch, Message};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::Command;
use corq_shards::dependency::Unmet;
use corq_shards::effect::{Refusal, Reply};
use corq_shards::family::NAMED_CHILDREN_MAX;
use corq_shards::flow::{Fate, Staged};
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::{Pushed, Record};
use std::collections::BTreeMap;

/// A flow that is being pushed.
#[derive(Debug)]
pub struct FlowTask {
    origin: Origin,
    pub(super) frame: KeptFrame,
    /// The owner shards of its names, each with places of jobs; asked one after the other, so that two flows
    /// never wait for each other.
    name_owners: Vec<(usize, Vec<usize>)>,
    answered: usize,
    granted: Vec<usize>,
    taken: Option<usize>,
    shape: Box<Shape>,
    /// The ids of its jobs, by place; the first names the flow.
    ids: Vec<JobId>,
    pushed_at_ms: u64,
    /// Some job of the flow has to be durable, and so all of it is: a flow comes as a whole.
    durable: bool,
    /// Shards that have a part.
    owners: Vec<usize>,
    left: usize,
    refused: Option<(usize, Refusal)>,
}

/// Flows that were committed here and are on their way to others: how many have yet to say that their
/// part has come, and the command that waits for it, if one does.
#[derive(Debug, Default)]
pub struct OpenFlows {
    unfinished: BTreeMap<JobId, (usize, Option<Step>)>,
    /// Flows whose parts here come in slices, and the shards that are to know when all of it has come.
    coming: Vec<(JobId, u16)>,
}

impl OpenFlows {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.unfinished.len()
    }
}

impl ShardServer {
    /// Goes to the shard that has all of a flow, if one has; else it begins here.
    pub(crate) fn dispatch_flow(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        jobs: &[FlowJob<'_>],
    ) {
        let mut owners = jobs.iter().map(|one| self.slots.of_queue(one.queue));
        let first = owners.next().unwrap_or(self.me);
        if first != self.me && owners.all(|owner| owner == first) {
            self.forward(ctx, first);
        } else {
            self.begin_flow(conns, ctx, jobs);
        }
    }

    /// Starts a flow.
    pub(crate) fn begin_flow(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        jobs: &[FlowJob<'_>],
    ) {
        let shape = match Shape::of(jobs) {
            Ok(shape) => Box::new(shape),
            Err(error) => {
                self.refuse(conns, ctx.origin, ctx.req_id, &error);
                return;
            }
        };
        if jobs.iter().map(answer_bytes).sum::<usize>() > ANSWER_BYTES_MAX {
            let error = Error::flow_answer_too_large(ANSWER_BYTES_MAX >> 20);
            self.refuse(conns, ctx.origin, ctx.req_id, &error);
            return;
        }
        let mut owners: Vec<usize> =
            jobs.iter().map(|one| self.slots.of_queue(one.queue)).collect();
        owners.sort_unstable();
        owners.dedup();
        let mut name_owners: Vec<(usize, Vec<usize>)> =
            (0..self.slots.shards()).map(|owner| (owner, Vec::new())).collect();
        for (place, one) in jobs.iter().enumerate() {
            name_owners[self.slots.of_name(one.id)].1.push(place);
        }
        name_owners.retain(|(_, places)| !places.is_empty());
        self.deferred(ctx.origin);
        let task = FlowTask {
            origin: ctx.origin,
            frame: ctx.frame.into(),
            name_owners,
            answered: 0,
            granted: Vec::new(),
            taken: None,
            shape,
            ids: Vec::new(),
            pushed_at_ms: 0,
            durable: jobs.iter().any(|one| one.job.durable),
            owners,
            left: 0,
            refused: None,
        };
        let step = self.tasks.start(self.me, Task::Flow(task));
        if jobs.is_empty() {
            self.finish_flow(conns, step, None);
        } else {
            self.claim_next_of_flow(step, jobs);
        }
    }

    fn flow_task(&mut self, step: Step) -> Option<&mut FlowTask> {
        match self.tasks.get(step) {
            Some(Task::Flow(task)) => Some(task),
            _ => None,
        }
    }

    fn claim_next_of_flow(&mut self, step: Step, jobs: &[FlowJob<'_>]) {
        let Some(Task::Flow(task)) = self.tasks.get(step) else { return };
        let (owner, places) = &task.name_owners[task.answered];
        let batch = self.outbox.immediate(*owner);
        let names = places.iter().map(|&place| batch.keep(jobs[place].id.as_bytes())).collect();
        batch.messages.push(Message::Claim { step, names, durable: false });
    }

    /// An owner shard has answered.
    pub(crate) fn flow_claimed(&mut self, conns: &mut Connections, step: Step, taken: &[bool]) {
        let Some(task) = self.flow_task(step) else { return };
        for (&place, &taken) in task.name_owners[task.answered].1.iter().zip(taken) {
            if taken {
                task.taken = Some(task.taken.map_or(place, |first| first.min(place)));
            } else {
                task.granted.push(place);
            }
        }
        task.answered += 1;
        let goes_on = task.answered < task.name_owners.len() && task.taken.is_none();
        let (frame, version) = (std::mem::take(&mut task.frame), task.origin.version);
        let taken = task.taken;
        let decoded = decode_frame(frame.view(), version);
        let Ok(Request { body: Body::PushFlow { jobs }, .. }) = decoded else { return };
        if let Some(task) = self.flow_task(step) {
            task.frame.clone_from(&frame);
        }
        if goes_on {
            self.claim_next_of_flow(step, &jobs);
        } else if let Some(place) = taken {
            let error = Error::flow_job_exists(jobs[place].id);
            self.finish_flow(conns, step, Some(&error));
        } else {
            self.stage_flow(step, &jobs);
        }
    }

    /// Hands every shard its part.
    fn stage_flow(&mut self, step: Step, jobs: &[FlowJob<'_>]) {
        let now_ms = self.now_ms;
        let shard = &mut self.engine.shard;
        let ids: Vec<JobId> = jobs.iter().map(|one| shard.reserve_id(now_ms, one.queue)).collect();
        let Some(Task::Flow(task)) = self.tasks.get(step) else { return };
        let durable = task.durable;
        let mut records: Vec<Vec<Span>> = vec![Vec::new(); self.slots.shards()];
        for (place, one) in jobs.iter().enumerate() {
            let owner = self.slots.of_queue(one.queue);
            let batch = self.outbox.immediate(owner);
            let span = stage_one(batch, (place, now_ms), one, &ids, &task.shape);
            records[owner].push(span);
        }
        let mut left = 0;
        for (owner, records) in records.into_iter().enumerate().filter(|(_, it)| !it.is_empty()) {
            left += 1;
            let of_owner = jobs.iter().enumerate();
            let of_owner = of_owner.filter(|(_, one)| self.slots.of_queue(one.queue) == owner);
            let mut caps: Vec<(usize, u32)> =
                of_owner.map(|(place, one)| (place, one.job.group_max)).collect();
            if caps.iter().all(|(_, max)| *max == 0) {
                caps.clear();
            }
            let message = FlowMessage::Stage { step, records, caps, durable };
            self.outbox.immediate(owner).messages.push(Message::Flow(message));
        }
        (task.ids, task.pushed_at_ms, task.left) = (ids, now_ms, left);
    }

    /// Messages about flows.
    pub(crate) fn read_flow_message(
        &mut self,
        conns: &mut Connections,
        batch: &Batch,
        message: &FlowMessage,
    ) {
        match message {
            FlowMessage::Stage { step, records, caps, durable } => {
                let records: Vec<&[u8]> =
                    records.iter().map(|span| &batch.bytes[span.clone()]).collect();
                let group_max: Vec<u32> = caps.iter().map(|(_, max)| *max).collect();
                let (records, group_max) = (&records, &group_max);
                let command = Command::Stage { records, group_max, durable: *durable };
                let refused = self.stage(conns, &command);
                let refused = refused
                    .map(|(place, refusal)| (caps.get(place).map_or(0, |(it, _)| *it), refusal));
                if refused.is_some_and(|(_, refusal)| refusal == Refusal::Full) {
                    self.compaction.refused_pushes += records.len() as u64;
                }
                let message = FlowMessage::Staged { step: *step, refused };
                self.outbox
                    .after_commit(usize::from(step.shard))
                    .messages
                    .push(Message::Flow(message));
            }
            FlowMessage::Staged { step, refused } => {
                let Some(task) = self.flow_task(*step) else { return };
                task.refused = task.refused.or(*refused);
                task.left -= 1;
                if task.left == 0 {
                    self.decide_flow(conns, *step);
                }
            }
            FlowMessage::Decided { shard, flow, fate } => {
                self.decide(conns, *flow, *fate, false);
                if *fate == Fate::Released {
                    self.open_flows.coming.push((*flow, *shard));
                    self.report_applied_flows(conns);
                }
            }
            FlowMessage::Come { flow } => self.part_has_come(conns, *flow),
        }
    }

    /// Stages what was handed over at once. Returns why it is not, and for the sake of which record.
    fn stage(
        &mut self,
        conns: &mut Connections,
        command: &Command<'_>,
    ) -> Option<(usize, Refusal)> {
        let caller = Caller { request: CURRENT, ..Caller::default() };
        self.apply(conns, caller, command);
        match self.own_reply() {
            Some(Reply::Refused { place, refusal }) => Some((place, refusal)),
            _ => None,
        }
    }

    fn decide(&mut self, conns: &mut Connections, flow: JobId, fate: Fate, durable: bool) {
        let caller = Caller { request: CURRENT, ..Caller::default() };
        self.apply(conns, caller, &Command::Decide { flow, fate, durable });
    }

    /// All parts are written down, or one is not.
    fn decide_flow(&mut self, conns: &mut Connections, step: Step) {
        let me = self.me;
        let Some(task) = self.flow_task(step) else { return };
        let flow = task.ids.first().copied().unwrap_or_default();
        let (refused, durable, version) = (task.refused, task.durable, task.origin.version);
        let frame = if refused.is_some() { task.frame.clone() } else { KeptFrame::default() };
        let owners = task.owners.clone();
        let shard = me as u16;
        if let Some((place, refusal)) = refused {
            let fate = Fate::Dropped;
            for dest in owners.into_iter().filter(|&it| it != me) {
                let message = FlowMessage::Decided { shard, flow, fate };
                self.outbox.immediate(dest).messages.push(Message::Flow(message));
            }
            self.decide(conns, flow, fate, false);
            let decoded = decode_frame(frame.view(), version);
            let error = match (refusal, decoded.map(|request| request.body)) {
                (Refusal::Full, _) => self.no_room().into(),
                (Refusal::GroupFull, Ok(Body::PushFlow { jobs })) => {
                    group_full(jobs.get(place).map(|one| &one.job), Some(place))
                }
                _ => ErrorKind::LongCommandsWait.into(),
            };
            self.finish_flow(conns, step, Some(&error));
            return;
        }
        if self.commit_flow(conns, step, (flow, durable), &owners) {
            self.finish_flow(conns, step, None);
        }
    }

    /// Gives the word on a flow. True if all of it has come by that.
    fn commit_flow(
        &mut self,
        conns: &mut Connections,
        step: Step,
        (flow, durable): (JobId, bool),
        owners: &[usize],
    ) -> bool {
        let (me, shard) = (self.me, self.me as u16);
        let others: Vec<usize> = owners.iter().copied().filter(|&it| it != me).collect();
        let fate = if others.is_empty() { Fate::CommittedHere } else { Fate::Committed };
        self.decide(conns, flow, fate, durable);
        let comes = self.engine.shard.is_staged(flow);
        if others.is_empty() && !comes {
            return true;
        }
        if comes {
            self.open_flows.coming.push((flow, shard));
        }
        self.open_flows.unfinished.insert(flow, (others.len() + usize::from(comes), Some(step)));
        for dest in others {
            // Behind the record: no shard hears the decision before the log has it.
            let message = FlowMessage::Decided { shard, flow, fate: Fate::Released };
            self.outbox.after_commit(dest).messages.push(Message::Flow(message));
        }
        false
    }

    /// Says of which parts here the last slice has come.
    pub(crate) fn report_applied_flows(&mut self, conns: &mut Connections) {
        if self.open_flows.coming.is_empty() {
            return;
        }
        let shard = &self.engine.shard;
        let has_come = |(flow, _): &mut (JobId, u16)| !shard.is_staged(*flow);
        let come: Vec<_> = self.open_flows.coming.extract_if(.., has_come).collect();
        for (flow, dest) in come {
            if usize::from(dest) == self.me {
                self.part_has_come(conns, flow);
            } else {
                let message = Message::Flow(FlowMessage::Come { flow });
                self.outbox.after_commit(usize::from(dest)).messages.push(message);
            }
        }
    }

    fn part_has_come(&mut self, conns: &mut Connections, flow: JobId) {
        let Some((left, step)) = self.open_flows.unfinished.get_mut(&flow) else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        let step = *step;
        self.open_flows.unfinished.remove(&flow);
        self.decide(conns, flow, Fate::Done, false);
        if let Some(step) = step {
            self.finish_flow(conns, step, None);
        }
    }

    /// After recovery: passes on again what others may not have heard.
    pub(crate) fn resume_flows(&mut self) {
        let others: Vec<usize> = (0..self.slots.shards()).filter(|&it| it != self.me).collect();
        for flow in self.engine.shard.open_flows() {
            let comes = self.engine.shard.is_staged(flow);
            if comes {
                self.open_flows.coming.push((flow, self.me as u16));
            }
            self.open_flows.unfinished.insert(flow, (others.len() + usize::from(comes), None));
            for &dest in &others {
                let shard = self.me as u16;
                let message = FlowMessage::Decided { shard, flow, fate: Fate::Released };
                self.outbox.after_commit(dest).messages.push(Message::Flow(message));
            }
        }
    }

    /// After recovery, when all shards have passed on what they had: what is still staged was not
    /// committed.
    pub(crate) fn drop_uncommitted_flows(&mut self, conns: &mut Connections) {
        for name in self.engine.shard.undecided_names() {
            self.release_name(&name);
        }
        for flow in self.engine.shard.staged_flows() {
            self.decide(conns, flow, Fate::Dropped, false);
        }
        // All of these had come before the process ended, and no other shard has a part to report.
        let unfinished = &mut self.open_flows.unfinished;
        let over: Vec<JobId> =
            unfinished.iter().filter(|(_, (left, _))| *left == 0).map(|(&flow, _)| flow).collect();
        for flow in over {
            self.open_flows.unfinished.remove(&flow);
            self.decide(conns, flow, Fate::Done, false);
        }
    }

    fn finish_flow(&mut self, conns: &mut Connections, step: Step, error: Option<&Error>) {
        let Some(Task::Flow(task)) = self.tasks.end(step) else { return };
        let decoded = decode_frame(task.frame.view(), task.origin.version);
        let Ok(Request { req_id, body: Body::PushFlow { jobs }, .. }) = decoded else { return };
        if let Some(error) = error {
            for &place in &task.granted {
                self.release_name(jobs[place].id);
            }
            self.refuse(conns, task.origin, req_id, error);
        } else {
            self.respond(conns, task.origin, |_, sink| {
                framed(sink, req_id, |sink| {
                    let mut reply = reply::begin(sink.out, true, req_id);
                    let mut data = reply.map("data");
                    let mut list = data.key("jobs");
                    list.array(jobs.len());
                    for one in &jobs {
                        write_snapshot(&mut list, one, task.pushed_at_ms);
                    }
                });
            });
        }
        self.answered(task.origin);
    }
}

/// A job of a flow as it will have been pushed.
fn stage_one(
    batch: &mut Batch,
    (place, now_ms): (usize, u64),
    one: &FlowJob<'_>,
    ids: &[JobId],
    shape: &Shape,
) -> Span {
    let flow = ids[0];
    let (mut unmet, mut open) = (Vec::new(), Vec::new());
    let dependencies = shape.dependencies(place);
    let children = dependencies.iter().filter(|(_, is_child)| *is_child).count();
    for &(other, is_child) in dependencies {
        let other = other as usize;
        let named = !is_child || children <= NAMED_CHILDREN_MAX;
        let list = if is_child { &mut open } else { &mut unmet };
        Unmet::push(list, ids[other], if named { shape.id(other) } else { "" });
    }
    let mut job = NewJob { custom_id: Some(one.id), unmet: Unmet::new(&unmet), ..one.job.clone() };
    if let Some(family) = job.family.as_deref_mut() {
        family.open = Unmet::new(&open);
    }
    job.delay_ms = delay_ms(&one.job, now_ms);
    let run_at_ms = now_ms + job.delay_ms;
    let pushed = Pushed { id: ids[place], queue: one.queue, run_at_ms, job: job.into() };
    let record = Record::Staged(Staged { flow, pushed });
    let start = batch.bytes.len();
    batch.bytes.resize(start + record.encoded_len(), 0);
    record.encode(&mut batch.bytes[start..]);
    start..batch.bytes.len()
}
