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

use super::cron_backlog::CronBacklog;
use super::cron_view::write_cron;
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
use std::collections::BTreeMap;

/// The shard that keeps the names of all schedules, and all webhooks. One is enough for what changes
/// so rarely, and lets the limits be those of the server.
pub const REGISTRY_SHARD: usize = 0;

/// Schedules of the server.
pub const CRONS_MAX: usize = 10_000;

/// Payloads of all schedules together: they stay in memory.
pub const CRON_DATA_BYTES_MAX: u64 = 64 << 20;

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

/// One name.
#[derive(Debug)]
struct Entry {
    owner: usize,
    version: u64,
    data_bytes: u64,
    /// A command is at work on it.
    busy: bool,
    /// It ended by itself while one was.
    ended: bool,
}

/// What the registry shard knows; empty on all other shards.
#[derive(Debug, Default)]
pub struct CronNames {
    entries: BTreeMap<Box<str>, Entry>,
    /// Payloads of all, those that are being set included.
    data_bytes: u64,
    /// Schedules found twice: the shard of the older, and the name.
    older: Vec<(usize, Box<str>)>,
    /// Commands that wait for a name that is busy.
    pub backlog: CronBacklog,
}

impl CronNames {
    /// Notes a schedule that a shard has found in its log.
    fn found(&mut self, owner: usize, name: &str, version: u64, data_bytes: u64) {
        let entry = Entry { owner, version, data_bytes, busy: false, ended: false };
        match self.entries.get_mut(name) {
            Some(known) if known.version >= version => self.older.push((owner, name.into())),
            Some(known) => {
                self.older.push((known.owner, name.into()));
                self.data_bytes = self.data_bytes - known.data_bytes + data_bytes;
                *known = entry;
            }
            None => {
                self.data_bytes += data_bytes;
                self.entries.insert(name.into(), entry);
            }
        }
    }

    /// Room for a schedule of this name, or why there is none.
    fn reserve(&mut self, name: &str, owner: usize, data_bytes: u64) -> Result<(), Error> {
        let before = self.entries.get(name).map(|entry| entry.data_bytes);
        if before.is_none() && self.entries.len() >= CRONS_MAX {
            return Err(Error::too_many_schedules(CRONS_MAX));
        }
        if self.data_bytes - before.unwrap_or(0) + data_bytes > CRON_DATA_BYTES_MAX {
            return Err(Error::schedules_too_large(CRON_DATA_BYTES_MAX));
        }
        self.data_bytes += data_bytes;
        let entry = self.entries.entry(name.into()).or_insert_with(|| Entry {
            owner,
            version: 0,
            data_bytes: 0,
            busy: true,
            ended: false,
        });
        entry.busy = true;
        Ok(())
    }

    /// Whether a command is at work on a name.
    fn is_busy(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.busy)
    }
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
                let owner = self.crons.entries.get(cron.name).map(|entry| entry.owner);
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
                let entry = self.crons.entries.get_mut(*name).ok_or(ErrorKind::CronNotFound)?;
                entry.busy = true;
                let (name, to) = ((*name).into(), entry.owner);
                let act = match ctx.body {
                    Body::CronDelete { .. } => Act::Delete,
                    _ => Act::Answer,
                };
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
        if let Act::Set { .. } = task.act
            && let Some(entry) = self.crons.entries.get_mut(&task.name)
        {
            // The space that was reserved is now either the new payload's or free.
            let freed = match state {
                Some(standing) => {
                    entry.owner = task.to;
                    entry.version = standing.version;
                    // Whatever ended before was not this one.
                    entry.ended = false;
                    std::mem::replace(&mut entry.data_bytes, task.data_bytes)
                }
                None => task.data_bytes,
            };
            self.crons.data_bytes -= freed;
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
        let Some(entry) = self.crons.entries.get_mut(&task.name) else { return };
        entry.busy = false;
        if task.act == Act::Delete || entry.ended || entry.version == 0 {
            self.crons.data_bytes -= entry.data_bytes;
            entry.data_bytes = 0;
            self.crons.entries.remove(&task.name);
        }
        self.go_on_with(conns, &task.name);
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
            // It was decoded before it had to wait.
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

    fn cron_ended(&mut self, owner: usize, name: &str) {
        let Some(entry) = self.crons.entries.get_mut(name) else { return };
        if entry.busy {
            entry.ended = true;
        } else if entry.owner == owner {
            self.crons.data_bytes -= entry.data_bytes;
            self.crons.entries.remove(name);
        }
    }

    /// All shards have told what they have.
    pub(crate) fn all_crons_are_known(&mut self) {
        if self.me != REGISTRY_SHARD {
            return;
        }
        for (owner, name) in std::mem::take(&mut self.crons.older) {
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
            CronMessage::Known { owner, name, version, data_bytes } => {
                self.crons.found(usize::from(*owner), batch.text(name), *version, *data_bytes);
            }
            CronMessage::Ended { owner, name } => {
                self.cron_ended(usize::from(*owner), batch.text(name));
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
        let mut refused = None;
        match (act, &body) {
            (Act::Hold | Act::LetGo, _) => {
                let held = act == Act::Hold;
                self.apply(conns, caller, &Command::HoldCron { name, held });
            }
            (Act::Answer, _) => {
                self.answer_about_cron(conns, (origin, req_id), name, &body);
                self.answered(origin);
            }
            (Act::Set { moved }, Body::Cron { cron }) => {
                let outcome = self.set_cron(conns, caller, cron, moved);
                match outcome {
                    Ok(index) => {
                        self.respond(conns, origin, |engine, sink| {
                            framed(sink, req_id, |sink| {
                                let mut reply = reply::begin(sink.out, true, req_id);
                                let cron = engine.shard.cron_at(index);
                                write_cron(&mut reply.key("cron"), cron, false);
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
        let cron = self.engine.shard.cron(name);
        let state = cron.map(corq_shards::cron::Cron::standing);
        // A setting that was refused leaves what was there, but nothing of it is what was set.
        let state = state.filter(|_| refused.is_none());
        let batch = self.outbox.after_commit(usize::from(step.shard));
        batch.messages.push(Message::Cron(CronMessage::Acted { step, state, refused }));
    }

    fn set_cron(
        &mut self,
        conns: &mut Connections,
        caller: Caller,
        cron: &Cron<'_>,
        moved: Option<CronStanding>,
    ) -> Result<u32, Error> {
        let plan = plan_of(cron.every, cron.timezone, self.now_ms)?;
        let known = self.engine.shard.cron(cron.name).map(|cron| cron.executions);
        let runs = known.or(moved.map(|kept| kept.executions)).unwrap_or(0);
        if cron.runs_max.is_some_and(|most| runs >= most) {
            return Err(Error::runs_are_done(runs));
        }
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
            Some(Reply::Cron(Some(index))) => Ok(index),
            Some(Reply::Refused { .. }) => Err(self.no_room().into()),
            _ => Err(ErrorKind::NoRunAhead.into()),
        }
    }

    /// Tells the registry shard which schedules have ended by themselves.
    pub(crate) fn send_cron_ends(&mut self) {
        if self.effects.cron_ends.is_empty() {
            return;
        }
        let owner = self.me as u16;
        for name in std::mem::take(&mut self.effects.cron_ends) {
            let batch = self.outbox.after_commit(REGISTRY_SHARD);
            let name = batch.keep(name.as_bytes());
            batch.messages.push(Message::Cron(CronMessage::Ended { owner, name }));
        }
    }

    /// Tells the registry shard all schedules, after recovery.
    pub(crate) fn send_all_crons(&mut self) {
        let owner = self.me as u16;
        for cron in self.engine.shard.crons() {
            let batch = self.outbox.after_commit(REGISTRY_SHARD);
            let (version, data_bytes) = (cron.version, cron.data.len() as u64);
            let name = batch.keep(cron.name.as_bytes());
            let known = CronMessage::Known { owner, name, version, data_bytes };
            batch.messages.push(Message::Cron(known));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_schedules_with_one_name_the_older_goes() {
        let mut names = CronNames::default();
        names.found(1, "c", 4, 10);
        names.found(2, "c", 5, 20);
        names.found(3, "c", 3, 30);
        assert_eq!(names.older, [(1, "c".into()), (3, "c".into())]);
        assert_eq!((names.entries["c"].owner, names.data_bytes), (2, 20));
    }

    #[test]
    fn schedules_and_their_payloads_have_a_limit() {
        let mut names = CronNames::default();
        for n in 0..CRONS_MAX {
            assert_eq!(names.reserve(&n.to_string(), 0, 1), Ok(()));
        }
        let refused = names.reserve("one more", 0, 1).expect_err("no more names");
        assert_eq!(refused.text(), "Too many schedules: at most 10000");
        assert_eq!(names.reserve("7", 0, 1), Ok(()), "what is there can be set anew");
        let text = "data of all schedules together must be at most 67108864 bytes";
        assert_eq!(
            names.reserve("7", 0, CRON_DATA_BYTES_MAX).expect_err("no more data").text(),
            text
        );
    }
}
