//! Long commands on many jobs: PUSHB, PUSHF, ACKB, `JobHeartbeatB` and `ExtendLocks` that hold more than a turn may take.
//!
//! The shard of the connection keeps the frame and goes over it in slices: first to find where its items begin, then to
//! read each as a short command's would be read. Nothing of the command is done before all of it has been read and
//! judged. It is then done a piece at a time, by the shards of its jobs, and nothing can refuse a piece any more: names
//! are claimed, room in the log and in groups is kept for it. The answer comes once, with the last piece.
//!
//! Until then the connection has no other command in progress: the long one counts as all that it may have unanswered. If
//! the connection closes before the first piece is done, nothing is done. Afterwards all of it is
//! done: the leases that acknowledgements still need go back at their end.

use super::long_ack::JobsWork;
use super::long_flow::FlowWork;
use super::long_push::PushWork;
use super::messages::LongBatchMessage;
use super::reservations::Reservations;
use super::task::Task;
use crate::api::commands::{Batched, Class, CommandSpec, Op, PerJob};
use crate::api::error::{Error, ErrorKind};
use crate::api::flow::named;
use crate::api::request::{Body, JobRef, Request, Route};
use crate::protocol::decode::beginning::{Face, LONG_BYTES, judge};
use crate::protocol::decode::pieces::{Walk, is_cut};
use crate::protocol::decode::{Progress, decode, decode_piece, find_req_id};
use crate::protocol::frame::PREFIX_BYTES;
use crate::server::connection::session::IN_FLIGHT_MAX;
use crate::server::event_loop::turn_meter::Work;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::message::{Batch, Message};
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};
use corq_shards::command::ClientId;
use std::collections::{BTreeMap, VecDeque};

/// A command on more jobs is long, however few bytes it has.
pub const LONG_ITEMS: usize = 2000;

/// A flow of more jobs is long, since its jobs are gone over several times; and one whose jobs name more than [`LONG_ITEMS`].
const LONG_FLOW_JOBS: usize = 500;

/// Steps of long commands in one turn.
const STEPS_MAX: u64 = 1500;

/// Values of a frame that are stepped over at a time, and in about the time of one step.
const VALUES_PER_SLICE: usize = 16 << 10;
const VALUES_PER_STEP: usize = 32;

/// Items of a frame that are read in about the time of a step.
pub(crate) const ITEMS_PER_STEP: usize = 2;

/// Bytes of a frame that are looked at in about the time of a step, if they are many small values.
pub(crate) const BYTES_PER_STEP: usize = 256;

/// Pieces that may be on their way to the shards of their jobs.
pub(crate) const WINDOW: usize = 8;

/// Names and places given back at a time.
pub(crate) const UNDONE_PER_STEP: usize = 500;

/// How far a long command has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Its frame is stepped through.
    Walk,
    /// Its items are read.
    Read,
    /// It is found out what has to be known before it can be done.
    Prepare,
    /// It is done.
    Act,
    /// It is not done, and what was kept for it is given back.
    Undo,
}

/// What it does.
#[derive(Debug)]
pub enum Doing {
    /// Not known yet.
    Unknown,
    /// It pushes jobs.
    Push(Box<PushWork>),
    /// Pushes a flow.
    Flow(Box<FlowWork>),
    /// Completes or renews.
    Jobs(Box<JobsWork>),
}

/// One of them.
#[derive(Debug)]
pub struct LongCommand {
    pub(crate) origin: Origin,
    bytes: Vec<u8>,
    start: usize,
    pub(crate) walk: Walk,
    pub(crate) req_id: Option<Box<[u8]>>,
    pub(crate) phase: Phase,
    progress: Progress,
    /// The next item of the phase.
    pub(crate) place: usize,
    /// Answers that are to come.
    pub(crate) left: usize,
    /// Why it is refused, and for the sake of which item: the first.
    pub(crate) refused: Option<(usize, Error)>,
    pub(crate) doing: Doing,
}

impl LongCommand {
    pub(crate) fn frame(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Lets go of the frame: nothing of it will be read any more.
    fn drop_frame(&mut self) {
        (self.bytes, self.start) = (Vec::new(), 0);
        self.walk = Walk::new(self.walk.spec());
    }

    /// Memory held.
    fn held_bytes(&self) -> usize {
        let work = match &self.doing {
            Doing::Flow(work) => work.held_bytes(),
            _ => 0,
        };
        self.bytes.capacity() + self.walk.bytes() + work
    }

    /// How many jobs it is about.
    pub(crate) fn items(&self) -> usize {
        self.walk.items()
    }

    /// Whether all items of the phase have been taken.
    pub(crate) fn is_through(&self) -> bool {
        self.place >= self.items()
    }

    pub(crate) fn begin(&mut self, phase: Phase) {
        (self.phase, self.place) = (phase, 0);
    }

    pub(crate) fn refuse(&mut self, place: usize, error: impl Into<Error>) {
        if self.refused.as_ref().is_none_or(|(first, _)| place < *first) {
            self.refused = Some((place, error.into()));
        }
    }

    /// Writes the next piece as a frame of its own, and steps over it.
    pub(crate) fn take_piece(&mut self, queue: Option<&str>) -> (usize, Vec<u8>) {
        let from = self.place;
        let to = self.walk.piece_end(from);
        let mut piece = Vec::new();
        self.walk.write_piece(self.frame(), queue, (from, to), &mut piece);
        self.place = to;
        (from, piece)
    }

    /// One item as a frame of its own.
    pub(crate) fn write_one(&self, queue: Option<&str>, place: usize) -> Vec<u8> {
        let mut piece = Vec::new();
        self.walk.write_piece(self.frame(), queue, (place, place + 1), &mut piece);
        piece
    }
}

/// Whether there is more to do at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// There is.
    More,
    /// Others have to answer first.
    Waits,
    /// It is answered, or given up.
    Over,
}

/// The one of a connection.
#[derive(Clone, Copy, Debug)]
struct Running {
    step: Step,
    /// Memory held.
    bytes: usize,
    /// It is being done, and will be to its end.
    acts: bool,
    /// What its connection holds, it completes.
    completes: bool,
    /// The connection has left, and what it held goes back at the end.
    leave: Option<Leave>,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
pub struct Leave {
    /// Which client.
    pub client: ClientId,
    /// Whether other shards may hold something of it.
    pub seen_elsewhere: bool,
    /// Whether it is gone, or only sends no more.
    pub gone: bool,
}

/// Those of a shard.
#[derive(Debug, Default)]
pub struct LongCommands {
    /// Those that have something to do.
    active: VecDeque<Step>,
    /// A connection whose next frame is one.
    wanted: Option<(ConnId, usize)>,
    /// Those of connections, also of some that are gone.
    running: BTreeMap<ConnId, Running>,
    /// Space and places that are reserved for those, here or elsewhere.
    pub(super) reservations: Reservations,
}

impl LongCommands {
    /// Whether one can go on.
    pub fn has_left(&self) -> bool {
        !self.active.is_empty() || self.reservations.has_left()
    }

    /// Memory that a connection holds by one.
    pub fn held_by(&self, conn: ConnId) -> usize {
        self.running.get(&conn).map_or(0, |running| running.bytes)
    }

    /// Whether a connection has one that is being done: what it holds is of use until the end.
    pub fn acts(&self, conn: ConnId) -> bool {
        self.running.get(&conn).is_some_and(|running| running.acts)
    }

    /// Whether a connection has one that completes what it holds.
    pub fn completes(&self, conn: ConnId) -> bool {
        self.running.get(&conn).is_some_and(|running| running.completes)
    }

    /// Puts off what a connection that is gone would give back now, if what is being done completes it.
    pub fn defers_leave(&mut self, conn: ConnId, leave: Leave) -> bool {
        let Some(running) = self.running.get_mut(&conn) else { return false };
        let needs = running.completes && running.acts && leave.gone;
        if needs {
            running.leave = Some(leave);
        }
        needs
    }
}

/// Whether a command that was read at once is better done in slices.
#[inline]
pub(crate) fn is_long(body: &Body<'_>) -> bool {
    match (body.spec().class, body) {
        (Class::Batch(Batched::Flow), Body::PushFlow { jobs }) => {
            jobs.len() > LONG_FLOW_JOBS
                || jobs.iter().map(|one| named(one.lists())).sum::<usize>() > LONG_ITEMS
        }
        (Class::Batch(_), _) => body.items() > LONG_ITEMS,
        _ => false,
    }
}

/// The command of a frame, if it can be cut and the frame is long.
fn cut_of(frame: &[u8]) -> Option<&'static CommandSpec> {
    match judge(frame, frame.len(), Face::Frame) {
        Some(Ok(spec)) if is_cut(spec.op) => Some(spec),
        _ => None,
    }
}

impl ShardServer {
    /// Whether a frame is a long command, to be taken with the memory it lies in once it is back with its connection.
    #[inline]
    pub(crate) fn is_taken_whole(&mut self, conn: ConnId, frame: &[u8]) -> bool {
        frame.len() > LONG_BYTES && self.wants_whole(conn, frame)
    }

    #[cold]
    fn wants_whole(&mut self, conn: ConnId, frame: &[u8]) -> bool {
        let Some(session) = self.sessions.get(conn) else { return false };
        let wants = session.trusted && cut_of(frame).is_some();
        if wants {
            session.blocked = true;
            self.long_commands.wanted = Some((conn, frame.len()));
        }
        wants
    }

    /// Takes the frame that [`ShardServer::is_taken_whole`] has found at the front of what a connection has sent.
    #[inline]
    pub(crate) fn take_whole(&mut self, conns: &mut Connections) {
        if let Some((conn, bytes)) = self.long_commands.wanted.take() {
            let Some(session) = self.sessions.get(conn) else { return };
            session.affinity.note_command();
            let (whole, start) = session.pending.take_front(PREFIX_BYTES + bytes);
            let start = start + PREFIX_BYTES;
            if let Some(spec) = cut_of(&whole[start..]) {
                self.begin_long(conns, conn, (whole, start), spec.op);
            }
        }
    }

    /// Which long command a frame is that is no connection's own input, if it is one.
    pub(crate) fn long_op(&mut self, conn: ConnId, frame: &[u8]) -> Option<Op> {
        let trusted = self.sessions.get(conn).is_some_and(|session| session.trusted);
        let is_long = trusted && frame.len() > LONG_BYTES;
        if is_long { cut_of(frame).map(|spec| spec.op) } else { None }
    }

    /// Begins a long command, whose frame is the end of `bytes`.
    pub(crate) fn begin_long(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        (bytes, start): (Vec<u8>, usize),
        op: Op,
    ) {
        let spec = op.spec();
        let origin = self.origin(conn);
        let Some(session) = self.sessions.get(conn) else { return };
        // Nothing else is begun beside it.
        session.in_flight += IN_FLIGHT_MAX - 1;
        self.deferred(origin);
        let command = LongCommand {
            origin,
            bytes,
            start,
            walk: Walk::new(spec),
            req_id: None,
            phase: Phase::Walk,
            progress: Progress::default(),
            place: 0,
            left: 0,
            refused: None,
            doing: Doing::Unknown,
        };
        let bytes = command.held_bytes();
        let step = self.tasks.start(self.me, Task::Long(Some(Box::new(command))));
        let completes = spec.class == Class::Batch(Batched::Held(PerJob::Ack));
        let running = Running { step, bytes, acts: false, completes, leave: None };
        self.long_commands.running.insert(conn, running);
        self.long_commands.active.push_back(step);
        self.note_received(conns, conn);
    }

    pub(crate) fn long_task(&mut self, step: Step) -> Option<&mut LongCommand> {
        match self.tasks.get(step) {
            Some(Task::Long(command)) => command.as_deref_mut(),
            _ => None,
        }
    }

    /// An answer has come that one has waited for.
    pub(crate) fn wake_long(&mut self, step: Step) {
        if !self.long_commands.active.contains(&step) {
            self.long_commands.active.push_back(step);
        }
    }

    /// Goes on with long commands, each in its turn, for so many steps.
    pub fn go_on_with_long(&mut self, conns: &mut Connections) {
        if !self.long_commands.has_left() || self.is_disk_behind() {
            return;
        }
        let before = self.meter_work(Work::OTHER);
        let until = self.steps() + STEPS_MAX;
        self.long_commands.reservations.return_some(&mut self.engine.shard, UNDONE_PER_STEP);
        while self.steps() < until
            && let Some(step) = self.long_commands.active.pop_front()
        {
            let Some(Task::Long(task)) = self.tasks.get(step) else { continue };
            let Some(mut command) = task.take() else { continue };
            self.meter_work(Work::of(command.walk.spec().op));
            self.meter.note(1);
            let next = self.advance_long(conns, step, &mut command);
            self.note_running(conns, &command);
            if next == Next::Over {
                self.end_long(conns, step, &command);
                continue;
            }
            if let Some(Task::Long(task)) = self.tasks.get(step) {
                *task = Some(command);
            }
            if next == Next::More {
                self.long_commands.active.push_back(step);
            }
        }
        self.meter_work(before);
    }

    /// Notes what one holds and whether it is being done, while its connection is there.
    fn note_running(&mut self, conns: &mut Connections, command: &LongCommand) {
        let conn = command.origin.conn;
        let (bytes, acts) = (command.held_bytes(), command.phase == Phase::Act);
        let Some(running) = self.long_commands.running.get_mut(&conn) else { return };
        if (running.bytes, running.acts) != (bytes, acts) && self.sessions.get(conn).is_some() {
            (running.bytes, running.acts) = (bytes, acts);
            self.note_received(conns, conn);
        }
    }

    /// A connection goes. One that is not being done needs its frame no more; what others take is counted to their end.
    pub(crate) fn leave_running(&mut self, conn: ConnId) {
        let Some(&Running { step, bytes, acts, .. }) = self.long_commands.running.get(&conn) else {
            return;
        };
        match self.long_task(step) {
            Some(command) if !acts => {
                command.drop_frame();
                self.long_commands.running.remove(&conn);
            }
            _ => self.receive_memory.note_firm(0, bytes),
        }
    }

    fn advance_long(
        &mut self,
        conns: &mut Connections,
        step: Step,
        command: &mut LongCommand,
    ) -> Next {
        let acts = matches!(command.phase, Phase::Act | Phase::Undo);
        let is_gone = self.sessions.get(command.origin.conn).is_none();
        if !acts && (is_gone || command.refused.is_some()) {
            if command.left > 0 {
                return Next::Waits;
            }
            command.begin(Phase::Undo);
        }
        match (command.phase, &command.doing) {
            (Phase::Walk, _) => self.walk_on(command),
            (Phase::Read, _) => self.read_piece(command),
            (_, Doing::Push(_)) => self.push_on(conns, step, command),
            (_, Doing::Flow(_)) => self.flow_on(conns, step, command),
            (_, Doing::Jobs(_)) => self.jobs_on(conns, step, command),
            (_, Doing::Unknown) => {
                self.refuse_long(conns, command);
                Next::Over
            }
        }
    }

    /// Answers one that was refused.
    pub(crate) fn refuse_long(&mut self, conns: &mut Connections, command: &LongCommand) {
        if let Some((_, error)) = &command.refused {
            self.refuse(conns, command.origin, command.req_id.as_deref(), error);
        }
    }

    fn end_long(&mut self, conns: &mut Connections, step: Step, command: &LongCommand) {
        self.tasks.end(step);
        if !matches!(command.doing, Doing::Unknown) {
            for dest in 0..self.slots.shards() {
                let message = LongBatchMessage::Forgo { step };
                self.outbox.immediate(dest).messages.push(Message::Long(message));
            }
        }
        let conn = command.origin.conn;
        let running = self.long_commands.running.remove(&conn);
        if let Some(session) = self.sessions.get(conn) {
            session.in_flight -= IN_FLIGHT_MAX - 1;
        } else if let Some(running) = running {
            self.receive_memory.note_firm(running.bytes, 0);
        }
        if let Some(leave) = running.and_then(|running| running.leave) {
            self.give_back(conns, conn, leave);
        }
        self.answered(command.origin);
        self.note_received(conns, conn);
    }

    fn walk_on(&mut self, command: &mut LongCommand) -> Next {
        let mut values = VALUES_PER_SLICE;
        let LongCommand { walk, bytes, start, .. } = command;
        let walked = walk.go_on(&bytes[*start..], &mut values);
        self.meter.note((VALUES_PER_SLICE - values) / VALUES_PER_STEP);
        match walked {
            Ok(false) => return Next::More,
            Ok(true) => {}
            Err(error) => {
                command.req_id = find_req_id(command.frame()).map(Into::into);
                command.refuse(0, error);
                return Next::More;
            }
        }
        let around = command.walk.around().to_vec();
        match decode(&around) {
            Err(refused) => {
                command.req_id = refused.req_id.map(Into::into);
                command.refuse(0, refused.error);
            }
            Ok(Request { req_id, body, .. }) => {
                command.req_id = req_id.map(Into::into);
                if self.lacks_data_dir(body.spec().class) {
                    command.refuse(0, ErrorKind::DataGone);
                } else {
                    command.doing = self.doing(&body, command.items());
                    command.begin(Phase::Read);
                }
            }
        }
        Next::More
    }

    /// What a batch does. That one of another kind is none is decided before.
    fn doing(&self, body: &Body<'_>, items: usize) -> Doing {
        match (body.spec().class, body.route()) {
            (Class::Batch(Batched::Push), Route::Queue(queue)) => {
                Doing::Push(Box::new(PushWork::new(queue, self.slots.of_queue(queue))))
            }
            (Class::Batch(Batched::Flow), _) => {
                Doing::Flow(Box::new(FlowWork::new(items, self.now_ms)))
            }
            (Class::Batch(Batched::Held(per_job)), _) => {
                // The ids that were acknowledged are kept, so that none is twice.
                let kept = if per_job == PerJob::Ack { items } else { 0 };
                Doing::Jobs(Box::new(JobsWork::new(per_job, kept)))
            }
            _ => Doing::Unknown,
        }
    }

    /// Reads the next piece.
    fn read_piece(&mut self, command: &mut LongCommand) -> Next {
        if command.is_through() {
            command.begin(Phase::Prepare);
            if let Err(error) = command.walk.fits() {
                command.refuse(0, error);
            }
            return Next::More;
        }
        let queue = match &command.doing {
            Doing::Push(push) => Some(push.queue.clone()),
            _ => None,
        };
        let (from, piece) = command.take_piece(queue.as_deref());
        self.meter.note((command.place - from) / ITEMS_PER_STEP + piece.len() / BYTES_PER_STEP);
        command.progress.place = from;
        match decode_piece(&piece, &mut command.progress) {
            Err(error) => command.refuse(from, error),
            Ok(Request { body: Body::PushBatch { jobs, .. }, .. }) => {
                if let Some(error) = self.too_often(&jobs, from) {
                    command.refuse(from, error);
                } else if let Err(error) = self.note_read(command, from, &jobs) {
                    command.refuse(from, error);
                }
            }
            Ok(Request { body: Body::PushFlow { jobs }, .. }) => {
                if let Err(error) = self.note_flow_read(command, from, &jobs) {
                    command.refuse(from, error);
                }
            }
            Ok(_) => {}
        }
        Next::More
    }

    /// Messages about long commands.
    pub(crate) fn read_long_batch_message(
        &mut self,
        conns: &mut Connections,
        batch: &Batch,
        message: &LongBatchMessage,
    ) {
        match message {
            LongBatchMessage::Push(message) => self.read_long_push(conns, batch, message),
            LongBatchMessage::Forgo { step } => {
                self.long_commands.reservations.end(*step, &mut self.engine.journal.pressure);
            }
        }
    }
}

/// What a job was called in a frame that brings only it.
pub(crate) fn only_id<'a>(body: &Body<'a>) -> JobRef<'a> {
    match body {
        Body::AckBatch { batch }
        | Body::JobHeartbeatBatch { batch }
        | Body::ExtendLocks { batch } => batch.ids.first().copied().unwrap_or(JobRef::Custom("")),
        _ => JobRef::Custom(""),
    }
}
