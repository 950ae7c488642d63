//! Schedules over all shards. A schedule lives with its queue; one shard, the registry shard, knows which
//! names there are and where, lets one command at a time touch a name, and bounds their number.
//!
//! ```text
//! client --Cron--> registry --Set--> owner of the queue --> reply
//!                         \-- (the name was on another shard: Hold there, Set here, Remove there)
//! ```
//!
//! A crash between Set and Remove leaves two; the registry shard finds them at the start and drops the older.
//! What it knows is derived from the schedules, as a directory is, and never logged by itself.

use super::cron_view::{write_cron, write_ended_cron};
use super::messages::{Act, CronMessage};
use super::task::Task;
use crate::api::error::{Error, ErrorKind};
use crate::api::request::{Body, Cadence, Cron, Request};
use crate::protocol::decode::decode_as;
use crate::protocol::reply;
use crate::server::commands::pending_replies::CURRENT;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::message::{Batch, Message};
use crate::server::shard_mail::request_context::{Lookup, RequestContext};
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::{Command, CronStanding, SetCron};
use corq_shards::cron::expression::Plan;
use corq_shards::effect::Reply;

/// The shard that keeps the names of all schedules, and all webhooks. One is enough for what changes
/// so rarely, and lets the limits be those of the server.
pub const REGISTRY_SHARD: usize = 0;

/// Commands that waited for a name and are taken up in a turn, if the first of them are refused.
const TAKEN_UP_PER_TURN: usize = 16;

/// A command on a schedule, as seen by the registry shard.
#[derive(Debug)]
pub struct CronTask {
    origin: Origin,
    pub(super) frame: Box<[u8]>,
    name: Box<str>,
    /// The shard that has the schedule, if it is another than `to`.
    from: Option<usize>,
    /// The shard that is to have it.
    to: usize,
    data_bytes: u64,
    act: Act,
    /// Why it could not be set. The client gets it last, when what was held goes on: a schedule
    /// that is held is in no listing, and one that comes right behind the refusal must find it.
    refused: Option<Error>,
}

/// The plan of a schedule, or why it has none.
pub(super) fn plan_of(
    every: Cadence<'_>,
    timezone: Option<&str>,
    now_ms: u64,
) -> Result<Plan, Error> {
    let plan = match every {
        Cadence::Expression(expression) => Plan::at(expression, timezone),
        Cadence::Interval(interval_ms) => Plan::every(interval_ms, timezone),
    };
    let plan = plan.map_err(|bad| Error::bad_schedule(bad.0))?;
    match plan.next(now_ms, now_ms) {
        Some(_) => Ok(plan),
        None => Err(ErrorKind::NoRunAhead.into()),
    }
}

/// The part of the registry shard.
impl ShardServer {
    /// Starts a command on a schedule.
    pub(crate) fn begin_cron(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        name: &str,
    ) {
        if !self.crons.is_busy(name) && !self.crons.backlog.has(name) {
            self.start_cron(conns, ctx);
        } else if self.crons.backlog.push(name, ctx.origin, &ctx.frame) {
            self.deferred(ctx.origin);
        } else {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::LongCommandsWait);
        }
    }

    /// Starts a command whose name is not busy.
    fn start_cron(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        match self.plan_cron_task(ctx) {
            Ok(task) => {
                self.deferred(ctx.origin);
                let step = self.tasks.start(self.me, Task::Cron(task));
                self.send_cron_act(step);
            }
            Err(error) => self.refuse(conns, ctx.origin, ctx.req_id, &error),
        }
    }

    /// The first step of a command that is not refused.
    fn plan_cron_task(&mut self, ctx: RequestContext<'_>) -> Result<CronTask, Error> {
        let (origin, frame) = (ctx.origin, ctx.frame.into());
        match ctx.body {
            Body::Cron { cron } => {
                plan_of(cron.every, cron.timezone, self.now_ms)?;
                let to = self.slots.of_queue(cron.queue);
                let data_bytes = cron.data.len() as u64;
                let owner = self.crons.owner(cron.name);
                self.crons.reserve(cron.name, to, data_bytes)?;
                let from = owner.filter(|&owner| owner != to);
                let act = if from.is_some() { Act::Hold } else { Act::Set { moved: None } };
                let name = cron.name.into();
                Ok(CronTask { origin, frame, name, from, to, data_bytes, act, refused: None })
            }
            Body::CronDelete { name }
            | Body::CronGet { name }
            | Body::CronTrigger { name }
            | Body::SetCronEnabled { name, .. }
            | Body::CronPreview { name: Some(name), .. } => {
                let deletes = matches!(ctx.body, Body::CronDelete { .. });
                let to = self.crons.occupy(name, deletes).ok_or(ErrorKind::CronNotFound)?;
                let name = (*name).into();
                let act = if deletes { Act::Delete } else { Act::Answer };
                let (from, refused) = (None, None);
                Ok(CronTask { origin, frame, name, from, to, data_bytes: 0, act, refused })
            }
            _ => Err(ErrorKind::CronNotFound.into()),
        }
    }

    fn send_cron_act(&mut self, step: Step) {
        let Some(Task::Cron(task)) = self.tasks.get(step) else { return };
        let dest = match task.act {
            Act::Hold | Act::LetGo | Act::Leave => task.from.unwrap_or(task.to),
            Act::Set { .. } | Act::Delete | Act::Answer => task.to,
        };
        let batch = self.outbox.immediate(dest);
        let frame = batch.keep(&task.frame);
        let (origin, act) = (task.origin, task.act);
        batch.messages.push(Message::Cron(CronMessage::Act { step, origin, act, frame }));
    }

    /// The owner has done its part: what follows?
    fn cron_acted(
        &mut self,
        conns: &mut Connections,
        step: Step,
        state: Option<CronStanding>,
        refused: Option<&Error>,
    ) {
        let Some(Task::Cron(task)) = self.tasks.get(step) else { return };
        if let Some(error) = refused {
            task.refused = Some(error.clone());
        }
        let next = match (task.act, state) {
            (Act::Hold, moved) => Some(Act::Set { moved }),
            (Act::Set { .. }, Some(_)) if task.from.is_some() => Some(Act::Leave),
            (Act::Set { .. }, None) if task.from.is_some() => Some(Act::LetGo),
            _ => None,
        };
        if let Act::Set { .. } = task.act {
            self.crons.settle(&task.name, task.to, task.data_bytes, state);
        }
        if let Some(act) = next {
            task.act = act;
            self.send_cron_act(step);
            return;
        }
        let Some(Task::Cron(task)) = self.tasks.end(step) else { return };
        self.finish_cron(conns, &task);
    }

    fn finish_cron(&mut self, conns: &mut Connections, task: &CronTask) {
        if let Some(error) = &task.refused {
            let req_id =
                decode_as(&task.frame, task.origin.version).ok().and_then(|request| request.req_id);
            self.refuse(conns, task.origin, req_id, error);
            self.answered(task.origin);
        }
        self.crons.release(&task.name, task.act == Act::Delete);
        self.forget_ended_cron();
        self.go_on_with(conns, &task.name);
    }

    /// Has a name forgotten that need not be remembered any longer.
    fn forget_ended_cron(&mut self) {
        let Some((owner, name)) = self.crons.forget_oldest() else { return };
        let batch = self.outbox.after_commit(owner);
        let name = batch.keep(name.as_bytes());
        batch.messages.push(Message::Cron(CronMessage::Drop { name }));
    }

    /// Starts the next of the commands that waited for a name. If many are refused, the rest of them goes on with the
    /// next mail: as long as one waits, what comes for the name waits behind it.
    fn go_on_with(&mut self, conns: &mut Connections, name: &str) {
        for _ in 0..TAKEN_UP_PER_TURN {
            if self.crons.is_busy(name) {
                return;
            }
            let Some((origin, frame)) = self.crons.backlog.pop(name) else { return };
            self.answered(origin);
            // The frame was decoded before it had to wait, so decoding does not fail now.
            let Ok(Request { op, req_id, body, .. }) = &decode_as(&frame, origin.version) else {
                continue;
            };
            self.meter_command(*op, frame.len());
            let (req_id, lookup) = (*req_id, Lookup::Fresh);
            let frame = &*frame;
            let ctx =
                RequestContext { origin, req_id, frame: frame.into(), body, lookup, fetched: &[] };
            if self.must_defer(&ctx) {
                self.defer_large(conns, ctx);
            } else {
                self.start_cron(conns, ctx);
            }
        }
        if !self.crons.is_busy(name) && self.crons.backlog.has(name) {
            let batch = self.outbox.immediate(self.me);
            let name = batch.keep(name.as_bytes());
            batch.messages.push(Message::Cron(CronMessage::GoOn { name }));
        }
    }

    /// All shards have told what they have.
    pub(crate) fn all_crons_are_known(&mut self) {
        if self.me != REGISTRY_SHARD {
            return;
        }
        for (owner, name) in self.crons.take_older() {
            let batch = self.outbox.after_commit(owner);
            let name = batch.keep(name.as_bytes());
            batch.messages.push(Message::Cron(CronMessage::Drop { name }));
        }
        for dest in 0..self.slots.shards() {
            self.outbox.after_commit(dest).messages.push(Message::Cron(CronMessage::Start));
        }
    }
}

/// The owner's part.
impl ShardServer {
    /// Reads messages about schedules.
    pub(crate) fn read_cron_message(
        &mut self,
        conns: &mut Connections,
        batch: &Batch,
        message: &CronMessage,
    ) {
        match message {
            CronMessage::Act { step, origin, act, frame } => {
                self.act_on_cron(conns, *step, *origin, *act, &batch.bytes[frame.clone()]);
            }
            CronMessage::Acted { step, state, refused } => {
                self.cron_acted(conns, *step, *state, refused.as_ref());
            }
            CronMessage::Known { owner, name, version, data_bytes, has_ended } => {
                let (owner, name) = (usize::from(*owner), batch.text(name));
                self.crons.found(owner, name, *version, *data_bytes);
                if *has_ended {
                    self.crons.ended(owner, name, true);
                }
            }
            CronMessage::Ended { owner, name, is_remembered } => {
                self.crons.ended(usize::from(*owner), batch.text(name), *is_remembered);
                self.forget_ended_cron();
            }
            CronMessage::Drop { name } => {
                let command = Command::RemoveCron { name: batch.text(name) };
                self.apply(conns, Caller::default(), &command);
            }
            CronMessage::GoOn { name } => self.go_on_with(conns, batch.text(name)),
            CronMessage::Start => self.apply(conns, Caller::default(), &Command::StartCrons),
        }
    }

    fn act_on_cron(
        &mut self,
        conns: &mut Connections,
        step: Step,
        origin: Origin,
        act: Act,
        frame: &[u8],
    ) {
        let Ok(Request { req_id, body, .. }) = decode_as(frame, origin.version) else { return };
        let (Body::Cron { cron: Cron { name, .. } }
        | Body::CronDelete { name }
        | Body::CronGet { name }
        | Body::CronTrigger { name }
        | Body::SetCronEnabled { name, .. }
        | Body::CronPreview { name: Some(name), .. }) = &body
        else {
            return;
        };
        let caller = Caller { client: origin.client, request: CURRENT };
        let (mut state, mut refused) = (None, None);
        match (act, &body) {
            (Act::Hold, Body::Cron { cron }) => {
                self.apply(conns, caller, &Command::HoldCron { name, held: true });
                state = self.cron_standing(cron);
            }
            (Act::LetGo, _) => {
                self.apply(conns, caller, &Command::HoldCron { name, held: false });
            }
            (Act::Answer, _) => {
                self.answer_about_cron(conns, (origin, req_id), name, &body);
                self.answered(origin);
            }
            (Act::Set { moved }, Body::Cron { cron }) => {
                let outcome = self.set_cron(conns, caller, cron, moved);
                match outcome {
                    Ok(index) => {
                        // A schedule that has ended stays so, where it is.
                        state = index.and_then(|_| self.cron_standing(cron));
                        self.respond(conns, origin, |engine, sink| {
                            framed(sink, req_id, |sink| {
                                let mut reply = reply::begin(sink.out, true, req_id);
                                let mut row = reply.key("cron");
                                match index {
                                    Some(index) => {
                                        write_cron(&mut row, engine.shard.cron_at(index), false);
                                    }
                                    None => write_ended_cron(&mut row, cron),
                                }
                            });
                        });
                        self.answered(origin);
                    }
                    Err(error) => refused = Some(error),
                }
            }
            _ => {
                self.apply(conns, caller, &Command::RemoveCron { name });
                if act == Act::Delete {
                    if self.own_reply() == Some(Reply::Count(0)) {
                        self.refuse(conns, origin, req_id, ErrorKind::CronNotFound);
                    } else {
                        self.respond(conns, origin, |_, sink| reply::ok(sink.out, req_id));
                    }
                    self.answered(origin);
                }
            }
        }
        let batch = self.outbox.after_commit(usize::from(step.shard));
        batch.messages.push(Message::Cron(CronMessage::Acted { step, state, refused }));
    }

    /// How the schedule stands that is to be set anew.
    fn cron_standing(&self, cron: &Cron<'_>) -> Option<CronStanding> {
        let plan = plan_of(cron.every, cron.timezone, self.now_ms).ok()?;
        let shard = &self.engine.shard;
        let known = shard.cron(cron.name).or_else(|| shard.ended_cron(cron.name));
        known.map(|known| known.standing(&plan))
    }

    /// Sets a schedule; `None` if it is the registration of one that has ended.
    fn set_cron(
        &mut self,
        conns: &mut Connections,
        caller: Caller,
        cron: &Cron<'_>,
        moved: Option<CronStanding>,
    ) -> Result<Option<u32>, Error> {
        let plan = plan_of(cron.every, cron.timezone, self.now_ms)?;
        let (schedule, repeat_every_ms) = match cron.every {
            Cadence::Expression(expression) => (Some(expression), None),
            Cadence::Interval(interval_ms) => (None, Some(interval_ms)),
        };
        let set = SetCron {
            name: cron.name,
            queue: cron.queue,
            data: cron.data,
            schedule,
            repeat_every_ms,
            timezone: cron.timezone,
            priority: cron.priority,
            runs_max: cron.runs_max,
            job: cron.job.as_deref(),
            rules: cron.rules,
            plan,
            moved,
        };
        self.apply(conns, caller, &Command::SetCron(&set));
        match self.own_reply() {
            Some(Reply::Cron(Some(index))) => Ok(Some(index)),
            Some(Reply::CronSpent { has_ended: true, .. }) => Ok(None),
            Some(Reply::CronSpent { executions, .. }) => Err(Error::runs_are_done(executions)),
            Some(Reply::Refused { .. }) => Err(self.no_room().into()),
            _ => Err(ErrorKind::NoRunAhead.into()),
        }
    }

    /// Tells the registry shard which schedules have ended by themselves, and the log which wait for room.
    pub(crate) fn send_cron_ends(&mut self) {
        if let Some(name) = self.effects.crons_without_room.first() {
            let count = self.effects.crons_without_room.len();
            tracing::warn!(
                "schedule {name}: no room for the job of a run ({count} schedules in this turn), it stays due until there is some"
            );
            self.effects.crons_without_room.clear();
        }
        if self.effects.cron_ends.is_empty() {
            return;
        }
        let owner = self.me as u16;
        for name in std::mem::take(&mut self.effects.cron_ends) {
            let is_remembered = self.engine.shard.ended_cron(&name).is_some();
            let batch = self.outbox.after_commit(REGISTRY_SHARD);
            let name = batch.keep(name.as_bytes());
            let ended = CronMessage::Ended { owner, name, is_remembered };
            batch.messages.push(Message::Cron(ended));
        }
    }

    /// Tells the registry shard all schedules, after recovery.
    pub(crate) fn send_all_crons(&mut self) {
        let owner = self.me as u16;
        let shard = &self.engine.shard;
        for cron in shard.crons().chain(shard.ended_crons()) {
            let batch = self.outbox.after_commit(REGISTRY_SHARD);
            let (version, data_bytes) = (cron.version, cron.data.len() as u64);
            let name = batch.keep(cron.name.as_bytes());
            let has_ended = cron.has_ended();
            let known = CronMessage::Known { owner, name, version, data_bytes, has_ended };
            batch.messages.push(Message::Cron(known));
        }
    }
}
