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
use super::long_commands::{Running, Staging};
use super::long_flow::FlowWork;
use super::long_push::PushWork;
use super::messages::LongBatchMessage;
use super::task::Task;
use crate::api::commands::{Batched, Class, CommandSpec, Op, PerJob};
use crate::api::error::Error;
use crate::api::flow::named;
use crate::api::request::{Body, JobRef};
use crate::protocol::decode::Progress;
use crate::protocol::decode::beginning::{Face, LONG_BYTES, judge};
use crate::protocol::decode::coerce::coerced;
use crate::protocol::decode::pieces::{PIECE_ITEMS, ReqIdSearch, Walk, is_cut};
use crate::protocol::decode::repair::{Repair, takes_any_form};
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::large::{KeptFrame, LargeFrame, LargeScan, payload_field};
use crate::protocol::large_piece::LargePiece;
use crate::server::connection::session::IN_FLIGHT_MAX;
use crate::server::event_loop::turn_meter::Work;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::message::{Batch, Message};
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};
use std::sync::Arc;

/// A command on more jobs is long, however few bytes it has.
pub const LONG_ITEMS: usize = 2000;

/// A flow of more jobs is long, since its jobs are gone over several times; and one whose jobs name more than [`LONG_ITEMS`].
const LONG_FLOW_JOBS: usize = 500;

/// Most items of a piece of which more have cron expressions than are read at once.
const PIECE_ITEMS_OF_PLANS: usize = 32;

/// Steps of long commands in one turn.
const STEPS_MAX: u64 = 1500;

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
    /// Step through the frame, and find where its items begin.
    Walk,
    /// Repair the texts of an outcome. An error from before stays if the repair changes nothing.
    Repair,
    /// Look for the `reqId` of a frame that is refused.
    Search,
    /// Read the items.
    Read,
    /// Find out all that can refuse the command: names, dependencies, room, leases.
    Prepare,
    /// Carry out the command: nothing can refuse a piece any more.
    Act,
    /// Give back what was kept for a command that is refused.
    Undo,
}

/// The work of a long command, by its kind.
#[derive(Debug)]
pub enum Doing {
    /// Not known yet.
    Unknown,
    /// Pushes jobs.
    Push(Box<PushWork>),
    /// Pushes a flow.
    Flow(Box<FlowWork>),
    /// Completes or renews jobs.
    Jobs(Box<JobsWork>),
    /// A command with a large payload, which is being checked.
    One(Box<LargeScan>),
    /// A command with a large payload that has been checked: the payload is staged where this shard's or another's log
    /// will hold it, then the command is begun as any other.
    Checked(Arc<LargeFrame>, usize),
    /// A command that is read at once, now that its texts are repaired.
    Repaired,
}

/// A long command that is under way.
#[derive(Debug)]
pub struct LongCommand {
    pub(crate) origin: Origin,
    pub(super) bytes: Vec<u8>,
    pub(super) start: usize,
    pub(crate) walk: Walk,
    /// Where the pieces end that were read; `piece_items` is how many items the next one may have.
    pub(super) cuts: Vec<u32>,
    pub(super) piece_items: usize,
    pub(crate) req_id: Option<Box<[u8]>>,
    /// Whether some of its values are to be taken for others, as version 3 does.
    pub(super) coerces: bool,
    /// The item of megabytes that comes next, as a piece of its own.
    pub(super) large: Option<Box<LargePiece>>,
    /// How far that one is staged, or the payload of a command with one.
    pub(super) staging: Staging,
    pub(super) search: ReqIdSearch,
    pub(super) repair: Option<Box<Repair>>,
    pub(crate) phase: Phase,
    pub(super) progress: Progress,
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
        (self.bytes, self.start, self.large) = (Vec::new(), 0, None);
        self.walk = Walk::new(self.walk.spec());
    }

    /// Memory held.
    fn held_bytes(&self) -> usize {
        let work = match &self.doing {
            Doing::Flow(work) => work.held_bytes(),
            Doing::Push(work) => work.held_bytes(),
            Doing::Jobs(work) => work.held_bytes(),
            Doing::Checked(large, _) => large.held_bytes(),
            Doing::Unknown | Doing::One(_) | Doing::Repaired => 0,
        };
        let large = self.large.as_ref().map_or(0, |large| large.held_bytes());
        let repair = self.repair.as_ref().map_or(0, |repair| repair.held_bytes());
        self.bytes.capacity() + self.walk.bytes() + 4 * self.cuts.capacity() + large + work + repair
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

    /// Refuses its frame, unless that is an outcome whose texts can be repaired.
    pub(super) fn refuse_frame(&mut self, place: usize, error: impl Into<Error>) {
        self.refuse(place, error);
        let spec = self.walk.spec();
        let may_help = takes_any_form(spec.op);
        self.repair = may_help.then(|| Box::new(Repair::new(spec.fields)));
        self.begin(if may_help { Phase::Repair } else { Phase::Search });
    }

    /// Begins anew with a frame that was repaired.
    pub(super) fn begin_anew(&mut self, frame: Vec<u8>) -> Next {
        let spec = self.walk.spec();
        self.drop_frame();
        self.bytes = frame;
        self.cuts.clear();
        (self.piece_items, self.progress) = (PIECE_ITEMS, Progress::default());
        (self.refused, self.req_id) = (None, None);
        self.doing = match payload_field(spec).filter(|_| !is_cut(spec.op)) {
            Some(field) => Doing::One(Box::new(LargeScan::new(field))),
            None if is_cut(spec.op) => Doing::Unknown,
            None => Doing::Repaired,
        };
        self.begin(Phase::Walk);
        if matches!(self.doing, Doing::Repaired) { Next::Over } else { Next::More }
    }

    /// A piece as it is decoded.
    fn shaped(&self, piece: Vec<u8>) -> Vec<u8> {
        if self.coerces { coerced(&piece).unwrap_or(piece) } else { piece }
    }

    /// Where the piece ends that begins there: once it has been read, the same each time.
    pub(super) fn next_cut(&mut self, from: usize) -> usize {
        let known = self.cuts.partition_point(|&cut| cut as usize <= from);
        if let Some(&cut) = self.cuts.get(known) {
            return cut as usize;
        }
        let to = self.walk.piece_end(from).min(from + self.piece_items);
        self.cuts.push(to as u32);
        to
    }

    /// The piece that was taken last is too much for one, and is taken again with fewer items.
    pub(super) fn shorten_piece(&mut self, from: usize) {
        self.cuts.pop();
        self.piece_items = ((self.place - from) / 2).clamp(1, PIECE_ITEMS_OF_PLANS);
        self.place = from;
    }

    /// Writes the next piece as a frame of its own, and steps over it.
    pub(crate) fn take_piece(&mut self, queue: Option<&str>) -> (usize, Vec<u8>) {
        let from = self.place;
        let to = self.next_cut(from);
        let mut piece = Vec::new();
        self.walk.write_piece(self.frame(), queue, (from, to), &mut piece);
        self.place = to;
        (from, self.shaped(piece))
    }

    /// Writes a single item as a frame of its own.
    pub(crate) fn write_one(&self, queue: Option<&str>, place: usize) -> Vec<u8> {
        let mut piece = Vec::new();
        self.walk.write_piece(self.frame(), queue, (place, place + 1), &mut piece);
        self.shaped(piece)
    }
}

/// The next piece of a long batch.
pub(super) enum NextPiece {
    /// From this place on.
    Taken(usize, KeptFrame),
    /// The piece takes another step.
    More,
    /// Another shard has to stage it.
    Waits,
}

/// Whether there is more to do at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// There is.
    More,
    /// Others have to answer first.
    Waits,
    /// The command is answered, or given up.
    Over,
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

/// The command of a frame, if the frame is long and can be read in slices.
fn cut_of(frame: &[u8]) -> Option<&'static CommandSpec> {
    match judge(frame, frame.len(), Face::Frame) {
        Some(Ok(spec)) if is_cut(spec.op) || payload_field(spec).is_some() => Some(spec),
        // An outcome without a payload is cut to the parts that are kept before it is decoded, which takes one turn.
        Some(Ok(spec)) if takes_any_form(spec.op) => Some(spec),
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
            let (whole, start) = session.pending.take_front(PREFIX_BYTES + bytes);
            let start = start + PREFIX_BYTES;
            if let Some(spec) = cut_of(&whole[start..]) {
                if is_cut(spec.op)
                    && let Some(session) = self.sessions.get(conn)
                {
                    session.affinity.note_command();
                }
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
        let one = payload_field(spec).filter(|_| !is_cut(op));
        let is_one = one.is_some();
        let doing = one.map(|field| Doing::One(Box::new(LargeScan::new(field))));
        let repair = (!is_one && !is_cut(op)).then(|| Box::new(Repair::new(spec.fields)));
        let Some(session) = self.sessions.get(conn) else { return };
        // Nothing else is begun beside it.
        session.in_flight += IN_FLIGHT_MAX - 1;
        self.deferred(origin);
        let command = LongCommand {
            origin,
            bytes,
            start,
            walk: Walk::new(spec),
            cuts: Vec::new(),
            piece_items: PIECE_ITEMS,
            req_id: None,
            coerces: false,
            large: None,
            staging: Staging::No,
            search: ReqIdSearch::default(),
            phase: if repair.is_some() { Phase::Repair } else { Phase::Walk },
            repair,
            progress: Progress::default(),
            place: 0,
            left: 0,
            refused: None,
            doing: doing.unwrap_or(Doing::Unknown),
        };
        let bytes = command.held_bytes();
        let step = self.tasks.start(self.me, Task::Long(Some(Box::new(command))));
        // A single command may be about a job that its connection holds, too.
        let completes =
            is_one || spec.class == Class::Batch(Batched::Held(PerJob::Ack)) || takes_any_form(op);
        let running = Running { step, bytes, acts: false, completes, leave: None };
        self.long_commands.running.insert(conn, running);
        self.long_commands.active.push(step);
        self.note_received(conns, conn);
    }

    /// Begins to repair the frame of an outcome, which is refused for this unless that helps.
    pub(crate) fn begin_repair(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        frame: Vec<u8>,
        (op, error): (Op, &Error),
    ) {
        self.begin_long(conns, conn, (frame, 0), op);
        let step = self.long_commands.running.get(&conn).map(|running| running.step);
        if let Some(command) = step.and_then(|step| self.long_task(step)) {
            command.refuse_frame(0, error.clone());
        }
    }

    pub(crate) fn long_task(&mut self, step: Step) -> Option<&mut LongCommand> {
        match self.tasks.get(step) {
            Some(Task::Long(command)) => command.as_deref_mut(),
            _ => None,
        }
    }

    /// An answer has come that one has waited for.
    pub(crate) fn wake_long(&mut self, step: Step) {
        self.long_commands.active.push(step);
    }

    /// Goes on with long commands, each in its turn, for so many steps.
    pub fn go_on_with_long(&mut self, conns: &mut Connections) {
        if !self.long_commands.has_left() || self.is_disk_behind() {
            return;
        }
        let before = self.meter_work(Work::OTHER);
        let until = self.steps() + STEPS_MAX;
        self.long_commands.reservations.return_some(&mut self.engine.shard, UNDONE_PER_STEP);
        self.stage_for_others();
        while self.steps() < until
            && let Some(step) = self.long_commands.active.pop()
        {
            let Some(Task::Long(task)) = self.tasks.get(step) else { continue };
            let Some(mut command) = task.take() else { continue };
            self.meter_work(Work::of(command.walk.spec().op));
            self.meter.note(1);
            let next = self.advance_long(conns, step, &mut command);
            self.note_running(conns, &command);
            if next == Next::Over {
                self.end_long(conns, step, &command);
                self.begin_checked(conns, *command);
                continue;
            }
            if let Some(Task::Long(task)) = self.tasks.get(step) {
                *task = Some(command);
            }
            if next == Next::More {
                self.long_commands.active.push(step);
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
        let searches = matches!(command.phase, Phase::Search | Phase::Repair) && !is_gone;
        if !acts && !searches && (is_gone || command.refused.is_some()) {
            if command.left > 0 {
                return Next::Waits;
            }
            command.begin(Phase::Undo);
        }
        match (command.phase, &command.doing) {
            (Phase::Walk, Doing::One(_)) => self.check_on(command),
            (Phase::Prepare, Doing::Checked(..)) => self.stage_on(step, command),
            (Phase::Walk, _) => self.walk_on(command),
            (Phase::Search, _) => self.search_on(command),
            (Phase::Repair, _) => self.repair_on(command),
            (Phase::Read, _) => self.read_piece(step, command),
            (_, Doing::Push(_)) => self.push_on(conns, step, command),
            (_, Doing::Flow(_)) => self.flow_on(conns, step, command),
            (_, Doing::Jobs(_)) => self.jobs_on(conns, step, command),
            (_, Doing::Unknown | Doing::One(_) | Doing::Checked(..) | Doing::Repaired) => {
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
        if matches!(command.doing, Doing::Push(_) | Doing::Flow(_) | Doing::Jobs(_)) {
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
            LongBatchMessage::StagePayload { step, frame } => self.stage_for(*step, frame),
            LongBatchMessage::PayloadStaged { step } => self.payload_staged(*step),
        }
    }
}

/// The id in a frame that names a single job.
pub(crate) fn only_id<'a>(body: &Body<'a>) -> JobRef<'a> {
    match body {
        Body::AckBatch { batch }
        | Body::JobHeartbeatBatch { batch }
        | Body::ExtendLocks { batch } => batch.ids.first().copied().unwrap_or(JobRef::Custom("")),
        _ => JobRef::Custom(""),
    }
}
