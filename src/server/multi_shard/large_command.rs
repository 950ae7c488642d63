//! Commands of more bytes than a turn may look through: with payloads of megabytes, or batches with thousands of payloads.
//!
//! The shard of the connection takes the frame and checks its payloads a slice at a time; then the command begins as any
//! other does, in its turn among those of its connection, and nothing goes through the payloads again: the frame is passed
//! on and kept as it is. One payload by itself is copied to where its log will need it before that. A frame that is refused
//! is looked through for its `reqId`, in slices as well; that of an outcome is repaired first.
//!
//! Until then the connection has no other command in progress: this one counts as all that it may have unanswered.

use super::large_commands::Running;
use super::messages::LargeMessage;
use super::task::Task;
use crate::api::commands::{Batched, Class, CommandSpec, Op, PerJob};
use crate::api::error::Error;
use crate::api::request::{Body, JobRef, Request, Route};
use crate::api::version::Version;
use crate::protocol::decode::beginning::{Face, LONG_BYTES, judge};
use crate::protocol::decode::decode_frame;
use crate::protocol::decode::repair::{Repair, takes_any_form};
use crate::protocol::decode::req_id_search::ReqIdSearch;
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::large::{FrameRef, LargeFrame};
use crate::protocol::large_scan::{LargeScan, has_payloads};
use crate::server::connection::protocol::Protocol;
use crate::server::connection::session::IN_FLIGHT_MAX;
use crate::server::event_loop::turn_meter::Work;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use crate::server::storage::staged_payloads::{COPIED_PER_STEP, SLICE_BYTES};
use corq_io::net::{ConnId, Connections};
use std::sync::Arc;

/// Steps of large commands in one turn.
const STEPS_MAX: u64 = 1500;

/// Values of a frame that are gone through at a time, and in about the time of one step.
const VALUES_PER_SLICE: usize = 16 << 10;
const VALUES_PER_STEP: usize = 32;

/// Slices of other shards' payloads that are staged in one turn.
const SLICES_PER_TURN: usize = 2;

/// How far a large command has come.
#[derive(Debug)]
enum Phase {
    /// The payloads are being checked.
    Check(Box<LargeScan>),
    /// The texts of an outcome are being repaired. A refusal from before stays if the repair changes nothing.
    Repair(Box<Repair>),
    /// The frame is refused, and being searched for its `reqId`.
    Search(ReqIdSearch),
    /// The payload is being copied to where the log of a shard will need it.
    Stage { large: Arc<LargeFrame>, owner: usize, staging: Staging },
}

/// How far a payload has come to where it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Staging {
    No,
    /// Another shard has been asked to stage it.
    Asked,
    /// The payload is there, or is copied with its record.
    Done,
}

/// A large command that is under way.
#[derive(Debug)]
pub struct LargeCommand {
    origin: Origin,
    spec: &'static CommandSpec,
    bytes: Vec<u8>,
    start: usize,
    phase: Phase,
    refused: Option<Error>,
}

/// The next step of a large command.
enum Next {
    /// There is more to do at once.
    More,
    /// Another shard has to answer first.
    Waits,
    /// The command begins, now that its payloads are checked.
    Begins(Arc<LargeFrame>),
    /// The command begins with a frame that is read at once, now that its texts are repaired.
    BeginsAnew,
    /// The command is refused; where its `reqId` is known.
    Refused(ReqIdSearch),
}

impl LargeCommand {
    fn frame(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Memory held.
    fn held_bytes(&self) -> usize {
        let work = match &self.phase {
            Phase::Check(scan) => scan.held_bytes(),
            Phase::Repair(repair) => repair.held_bytes(),
            Phase::Search(_) => 0,
            Phase::Stage { large, .. } => large.held_bytes(),
        };
        self.bytes.capacity() + work
    }

    /// Refuses its frame, unless that is an outcome whose texts can be repaired.
    fn refuse(&mut self, error: Error) {
        self.refused = Some(error);
        self.phase = if takes_any_form(self.spec.op) {
            Phase::Repair(Box::new(Repair::new(self.spec.fields)))
        } else {
            Phase::Search(ReqIdSearch::default())
        };
    }

    /// Goes on with the texts of an outcome repaired, if that has changed any.
    fn end_repair(&mut self, changed: Option<Vec<u8>>) -> Next {
        match (changed, &self.refused) {
            (Some(frame), _) => {
                (self.bytes, self.start, self.refused) = (frame, 0, None);
                if has_payloads(self.spec) {
                    self.phase = Phase::Check(Box::new(LargeScan::new(self.spec)));
                    return Next::More;
                }
                Next::BeginsAnew
            }
            // Nothing was wrong with it: the frame is decoded for the first time.
            (None, None) => Next::BeginsAnew,
            (None, Some(_)) => {
                self.phase = Phase::Search(ReqIdSearch::default());
                Next::More
            }
        }
    }
}

/// The command of a frame, if the frame is long and can be checked in slices.
fn checked_in_slices(frame: &[u8]) -> Option<&'static CommandSpec> {
    match judge(frame, frame.len(), Face::Frame) {
        // An outcome without a payload is cut to the parts that are kept before it is decoded, which takes one turn.
        Some(Ok(spec)) if has_payloads(spec) || takes_any_form(spec.op) => Some(spec),
        _ => None,
    }
}

impl ShardServer {
    /// Whether a frame is a large command, to be taken with the memory it lies in once it is back with its connection.
    #[inline]
    pub(crate) fn is_taken_whole(&mut self, conn: ConnId, frame: &[u8]) -> bool {
        frame.len() > LONG_BYTES && self.wants_whole(conn, frame)
    }

    #[cold]
    fn wants_whole(&mut self, conn: ConnId, frame: &[u8]) -> bool {
        let Some(session) = self.sessions.get(conn) else { return false };
        let wants = session.trusted && checked_in_slices(frame).is_some();
        if wants {
            session.blocked = true;
            self.large_commands.wanted = Some((conn, frame.len()));
        }
        wants
    }

    /// Takes the frame that [`ShardServer::is_taken_whole`] has found at the front of what a connection has sent.
    #[inline]
    pub(crate) fn take_whole(&mut self, conns: &mut Connections) {
        if let Some((conn, bytes)) = self.large_commands.wanted.take() {
            let Some(session) = self.sessions.get(conn) else { return };
            let (whole, start) = session.pending.take_front(PREFIX_BYTES + bytes);
            let start = start + PREFIX_BYTES;
            if let Some(spec) = checked_in_slices(&whole[start..]) {
                self.check_in_slices(conns, conn, (whole, start), spec.op);
            }
        }
    }

    /// Which large command a frame is that is no connection's own input, if it is one.
    pub(crate) fn large_op(&mut self, conn: ConnId, frame: &[u8]) -> Option<Op> {
        let trusted = self.sessions.get(conn).is_some_and(|session| session.trusted);
        let is_long = trusted && frame.len() > LONG_BYTES;
        if is_long { checked_in_slices(frame).map(|spec| spec.op) } else { None }
    }

    /// Begins to check a large command, whose frame is the end of `bytes`.
    pub(crate) fn check_in_slices(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        (bytes, start): (Vec<u8>, usize),
        op: Op,
    ) {
        let (spec, origin) = (op.spec(), self.origin(conn));
        let phase = if has_payloads(spec) {
            Phase::Check(Box::new(LargeScan::new(spec)))
        } else {
            Phase::Repair(Box::new(Repair::new(spec.fields)))
        };
        self.start_large(conns, LargeCommand { origin, spec, bytes, start, phase, refused: None });
    }

    /// Begins to repair the frame of an outcome, which is refused for this unless that helps.
    pub(crate) fn begin_repair(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        bytes: Vec<u8>,
        (op, error): (Op, &Error),
    ) {
        let (spec, origin) = (op.spec(), self.origin(conn));
        let phase = Phase::Repair(Box::new(Repair::new(spec.fields)));
        let refused = Some(error.clone());
        self.start_large(conns, LargeCommand { origin, spec, bytes, start: 0, phase, refused });
    }

    fn start_large(&mut self, conns: &mut Connections, command: LargeCommand) {
        let LargeCommand { origin, spec, .. } = command;
        let Some(session) = self.sessions.get(origin.conn) else { return };
        // Nothing else is begun beside it.
        session.in_flight += IN_FLIGHT_MAX - 1;
        self.deferred(origin);
        let bytes = command.held_bytes();
        let step = self.tasks.start(self.me, Task::Large(Some(Box::new(command))));
        // A command may be about jobs that its connection holds.
        let completes = spec.class == Class::Batch(Batched::Held(PerJob::Ack))
            || !matches!(spec.class, Class::Batch(_));
        self.large_commands.running.insert(origin.conn, Running { step, bytes, completes });
        self.large_commands.active.push_back(step);
        self.note_received(conns, origin.conn);
    }

    /// Goes on with large commands, each in its turn, for so many steps.
    pub fn go_on_with_large(&mut self, conns: &mut Connections) {
        if !self.large_commands.has_left() || self.is_disk_behind() {
            return;
        }
        let before = self.meter_work(Work::OTHER);
        let until = self.steps() + STEPS_MAX;
        self.stage_for_others();
        while self.steps() < until
            && let Some(step) = self.large_commands.active.pop_front()
        {
            let Some(Task::Large(task)) = self.tasks.get(step) else { continue };
            let Some(mut command) = task.take() else { continue };
            let conn = command.origin.conn;
            self.meter_work(Work::of(command.spec.op));
            self.meter.note(1);
            if self.sessions.get(conn).is_none() {
                self.end_large(conns, step, &command);
                continue;
            }
            let next = self.advance_large(step, &mut command);
            if matches!(next, Next::More | Next::Waits) {
                self.note_running(conns, &command);
                if let Some(Task::Large(task)) = self.tasks.get(step) {
                    *task = Some(command);
                }
                if matches!(next, Next::More) {
                    self.large_commands.active.push_back(step);
                }
                continue;
            }
            self.end_large(conns, step, &command);
            match next {
                Next::Begins(large) => self.begin_checked(conns, conn, large),
                Next::BeginsAnew => self.begin(conns, conn, command.frame().into()),
                Next::Refused(search) => {
                    let req_id = search.req_id(command.frame());
                    if let Some(error) = &command.refused {
                        self.refuse(conns, command.origin, req_id, error);
                    }
                }
                Next::More | Next::Waits => {}
            }
        }
        self.meter_work(before);
    }

    /// Notes what one holds, while its connection is there.
    fn note_running(&mut self, conns: &mut Connections, command: &LargeCommand) {
        let (conn, bytes) = (command.origin.conn, command.held_bytes());
        let Some(running) = self.large_commands.running.get_mut(&conn) else { return };
        if running.bytes != bytes {
            running.bytes = bytes;
            self.note_received(conns, conn);
        }
    }

    /// A connection goes, and needs the frame of its command no more.
    pub(crate) fn leave_running(&mut self, conn: ConnId) {
        let Some(running) = self.large_commands.running.remove(&conn) else { return };
        if let Some(Task::Large(Some(command))) = self.tasks.get(running.step) {
            (command.bytes, command.start) = (Vec::new(), 0);
        }
    }

    fn advance_large(&mut self, step: Step, command: &mut LargeCommand) -> Next {
        let LargeCommand { bytes, start, phase, .. } = command;
        let mut values = VALUES_PER_SLICE;
        match phase {
            Phase::Check(scan) => {
                let checked = scan.go_on(&bytes[*start..], &mut values);
                self.meter.note((VALUES_PER_SLICE - values) / VALUES_PER_STEP);
                match checked {
                    Ok(false) => Next::More,
                    Ok(true) => self.has_checked(command),
                    Err(error) => {
                        command.refuse(error);
                        Next::More
                    }
                }
            }
            Phase::Repair(repair) => {
                let repaired = repair.go_on(&bytes[*start..], &mut values);
                self.meter.note((VALUES_PER_SLICE - values) / VALUES_PER_STEP);
                if repaired == Ok(false) {
                    return Next::More;
                }
                let repair = std::mem::replace(repair, Box::new(Repair::new(&[])));
                let changed = if repaired.is_ok() { repair.into_changed() } else { None };
                command.end_repair(changed)
            }
            Phase::Search(search) => {
                let ended = search.go_on(&bytes[*start..], &mut values);
                self.meter.note((VALUES_PER_SLICE - values) / VALUES_PER_STEP);
                if ended { Next::Refused(search.clone()) } else { Next::More }
            }
            Phase::Stage { large, owner, staging } => self.stage_at(step, *owner, large, staging),
        }
    }

    /// All payloads are checked: one by itself is staged where its log will hold it.
    fn has_checked(&mut self, command: &mut LargeCommand) -> Next {
        let search = Phase::Search(ReqIdSearch::default());
        let Phase::Check(scan) = std::mem::replace(&mut command.phase, search) else {
            return Next::More;
        };
        let (bytes, start) = (std::mem::take(&mut command.bytes), command.start);
        let large = Arc::new(LargeFrame::new(bytes, start, scan.into_checked()));
        command.start = 0;
        match self.log_of((&large).into(), command.origin.version) {
            Some(owner) => {
                command.phase = Phase::Stage { large, owner, staging: Staging::No };
                Next::More
            }
            None => Next::Begins(large),
        }
    }

    /// The shard whose log will hold the payload of a command, as far as can be told before it is begun.
    fn log_of(&self, frame: FrameRef<'_>, version: Version) -> Option<usize> {
        if frame.payload().is_empty() {
            return None;
        }
        let Ok(Request { body, .. }) = decode_frame(frame, version) else { return None };
        Some(match (&body, body.route()) {
            (Body::Push { queue, .. }, _) => self.slots.of_queue(queue),
            (_, Route::Queue(queue)) => self.slots.of_queue(queue),
            (_, Route::Job(JobRef::Id(id))) => self.slots.of_job(id),
            (_, Route::Job(JobRef::Custom(name))) if self.slots.of_name(name) == self.me => {
                self.directory.find(name).map_or(self.me, |id| self.slots.of_job(id))
            }
            _ => return None,
        })
    }

    /// Copies the next slice of a payload to where the log of this shard will need it, or has another shard do so.
    fn stage_at(
        &mut self,
        step: Step,
        owner: usize,
        large: &Arc<LargeFrame>,
        staging: &mut Staging,
    ) -> Next {
        if *staging == Staging::No && owner == self.me {
            self.meter.note(SLICE_BYTES / COPIED_PER_STEP);
            if self.engine.journal.staged.stage_some(large) {
                *staging = Staging::Done;
            }
        } else if *staging == Staging::No {
            let message = LargeMessage::StagePayload { step, frame: Arc::clone(large) };
            self.outbox.immediate(owner).messages.push(Message::Large(message));
            *staging = Staging::Asked;
        }
        match staging {
            Staging::No => Next::More,
            Staging::Asked => Next::Waits,
            Staging::Done => Next::Begins(Arc::clone(large)),
        }
    }

    /// Messages about payloads that are staged.
    pub(crate) fn read_large_message(&mut self, message: &LargeMessage) {
        match message {
            LargeMessage::StagePayload { step, frame } => {
                self.large_commands.staged_for_others.push_back((*step, Arc::clone(frame)));
            }
            LargeMessage::PayloadStaged { step } => {
                if let Some(Task::Large(Some(command))) = self.tasks.get(*step)
                    && let Phase::Stage { staging, .. } = &mut command.phase
                {
                    *staging = Staging::Done;
                }
                self.large_commands.active.push_back(*step);
            }
        }
    }

    /// Copies the next slices of payloads for other shards, in turn.
    fn stage_for_others(&mut self) {
        for _ in 0..SLICES_PER_TURN {
            let waiting = &mut self.large_commands.staged_for_others;
            let Some((step, frame)) = waiting.pop_front() else { return };
            self.meter.note(SLICE_BYTES / COPIED_PER_STEP);
            if self.engine.journal.staged.stage_some(&frame) {
                let message = Message::Large(LargeMessage::PayloadStaged { step });
                self.outbox.immediate(usize::from(step.shard)).messages.push(message);
            } else {
                self.large_commands.staged_for_others.push_back((step, frame));
            }
        }
    }

    fn end_large(&mut self, conns: &mut Connections, step: Step, command: &LargeCommand) {
        self.tasks.end(step);
        let conn = command.origin.conn;
        self.large_commands.running.remove(&conn);
        if let Some(session) = self.sessions.get(conn) {
            session.in_flight -= IN_FLIGHT_MAX - 1;
        }
        self.answered(command.origin);
        self.note_received(conns, conn);
    }

    /// Begins a command whose payloads have been checked.
    fn begin_checked(&mut self, conns: &mut Connections, conn: ConnId, large: Arc<LargeFrame>) {
        let Some(session) = self.sessions.get(conn) else { return };
        if session.protocol == Protocol::Frames {
            // The command waits, like the input behind it, for room and until the client has read its answers.
            session.checked = Some(large);
            self.unblocked.push(conn);
            self.note_received(conns, conn);
        } else {
            self.begin(conns, conn, (&large).into());
        }
    }
}
