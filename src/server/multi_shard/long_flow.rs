//! Long flows: what PUSHF does when it holds more than a turn may take.
//!
//! The steps are those of a short one (see [`super::flow`]), each a piece at a time: ties are checked, ids are claimed in
//! the order of their owner shards and of the ids themselves, room is promised by every shard that gets a part, parts are
//! staged. Until then all of it can be refused, and what was staged is dropped. One record is the word, as ever. Parts
//! then come in slices on their shards, and the answer is written when the last has.

use super::flow::stage_one;
use super::flow_view::{ANSWER_BYTES_MAX, answer_bytes, write_snapshot};
use super::long_batch::{Doing, LongCommand, Next, NextPiece, Phase, UNDONE_PER_STEP, WINDOW};
use super::long_push::Names;
use super::messages::{FlowMessage, LongBatchMessage, LongPushMessage};
use crate::api::error::{Error, ErrorKind};
use crate::api::flow::{FlowJob, Lists, Shape, Tie, named};
use crate::api::request::{Body, Request};
use crate::api::version::Version;
use crate::protocol::decode::decode_again;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply::{self, Frame};
use crate::server::commands::refusal::group_full;
use crate::server::shard_mail::envelope::{Span, Step};
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::effect::Refusal;
use corq_shards::flow::Fate;
use corq_shards::job::id::JobId;
use corq_shards::push_bytes;
use std::collections::{BTreeMap, VecDeque};

/// Jobs that one of a flow names, which are found in about the time of a step; and found again, by place.
const NAMES_PER_STEP: usize = 8;
const TIES_PER_STEP: usize = 64;

/// Names that are found, and ties that are checked, at a time.
const NAMES_PER_SLICE: usize = 4096;
const TIES_PER_SLICE: usize = 32 << 10;

/// Log bytes of a job that another waits for, beside its id's text.
const TIE_BYTES: usize = 24;

/// A job of which the ties are still to be found, and its lists.
#[derive(Debug)]
struct Untied {
    tie: Tie,
    depends_on: Box<[u8]>,
    children: Box<[u8]>,
}

/// Part of a piece for one shard: records, and the places of their jobs with the `groupMaxSize` that they give.
type OfOwner = (Vec<Span>, Vec<(usize, u32)>);

/// Part of a flow for one shard.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    jobs: usize,
    /// Most log bytes of those jobs.
    bytes: u64,
}

/// State of a long flow.
#[derive(Debug)]
pub struct FlowWork {
    stage: Stage,
    shape: Shape,
    /// Pieces, by their first jobs, in which jobs name others, and which are not looked at yet.
    naming: VecDeque<usize>,
    untied: VecDeque<Untied>,
    /// Ids that are to be claimed, by owner shard, with their places.
    names: Names,
    /// Places of those the owner shard is being asked for, and of those it has granted.
    asked: Vec<usize>,
    granted: Vec<usize>,
    ids: Vec<JobId>,
    pushed_at_ms: u64,
    durable: bool,
    /// Shards that get a part.
    shares: BTreeMap<usize, Share>,
    is_staged: bool,
    /// All parts have come.
    has_come: bool,
    answer_bytes: usize,
    answer: Vec<u8>,
    framing: Option<Frame>,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Ties,
    Check,
    Claims,
    Room,
    Parts,
    Word,
    Answer,
}

impl FlowWork {
    pub(crate) fn new(jobs: usize, now_ms: u64) -> Self {
        Self {
            stage: Stage::Ties,
            shape: Shape::with_capacity(jobs),
            naming: VecDeque::new(),
            untied: VecDeque::new(),
            names: BTreeMap::new(),
            asked: Vec::new(),
            granted: Vec::with_capacity(jobs),
            ids: Vec::with_capacity(jobs),
            pushed_at_ms: now_ms,
            durable: false,
            shares: BTreeMap::new(),
            is_staged: false,
            has_come: false,
            answer_bytes: 0,
            answer: Vec::new(),
            framing: None,
        }
    }

    /// Memory held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.shape.bytes() + 24 * self.ids.capacity() + self.answer.len()
    }

    fn flow(&self) -> JobId {
        self.ids.first().copied().unwrap_or_default()
    }
}

impl ShardServer {
    /// A piece of a long flow has been read.
    pub(crate) fn note_flow_read(
        &mut self,
        command: &mut LongCommand,
        from: usize,
        jobs: &[FlowJob<'_>],
    ) -> Result<(), Error> {
        let Doing::Flow(work) = &mut command.doing else { return Ok(()) };
        let mut names_others = false;
        for one in jobs {
            let place = work.shape.len();
            work.shape.add(one)?;
            names_others |= named(one.lists()) > 0 || one.job.family.is_some();
            let id = self.engine.shard.reserve_id(work.pushed_at_ms, one.queue);
            work.ids.push(id);
            work.durable |= one.job.durable;
            work.names.insert((self.slots.of_name(one.id), one.id.into()), place);
            work.answer_bytes += answer_bytes(one);
            let ties = named(one.lists()) * TIE_BYTES + one.job.depends_on.len();
            let share = work.shares.entry(self.slots.of_queue(one.queue)).or_default();
            share.jobs += 1;
            share.bytes += push_bytes(one.queue, std::slice::from_ref(&one.job))
                + (one.id.len() + TIE_BYTES + ties) as u64;
        }
        if names_others {
            work.naming.push_back(from);
        }
        if work.answer_bytes > ANSWER_BYTES_MAX {
            return Err(Error::flow_answer_too_large(ANSWER_BYTES_MAX >> 20));
        }
        Ok(())
    }

    /// The next step of a long flow.
    pub(crate) fn flow_on(
        &mut self,
        conns: &mut Connections,
        step: Step,
        command: &mut LongCommand,
    ) -> Next {
        let is_through = command.is_through();
        let is_gone = self.sessions.get(command.origin.conn).is_none();
        let Doing::Flow(work) = &mut command.doing else { return Next::Over };
        match (command.phase, work.stage) {
            (Phase::Undo, _) => return self.undo_flow(conns, command),
            (_, Stage::Ties) => {
                if let Err(error) = self.find_ties(step, command) {
                    command.refuse(0, error);
                }
            }
            (_, Stage::Check) => {
                let mut left = TIES_PER_SLICE;
                let checked = work.shape.check(&mut left);
                self.meter.note((TIES_PER_SLICE - left) / TIES_PER_STEP);
                match checked {
                    Ok(true) => work.stage = Stage::Claims,
                    Ok(false) => {}
                    Err(error) => command.refuse(0, error),
                }
            }
            (_, Stage::Claims | Stage::Room) if command.left > 0 => return Next::Waits,
            (_, Stage::Claims) if work.names.is_empty() => {
                work.stage = Stage::Room;
                for (&owner, &Share { jobs, bytes }) in &work.shares {
                    let message = LongPushMessage::Reserve { step, bytes, jobs };
                    self.outbox
                        .immediate(owner)
                        .messages
                        .push(Message::Long(LongBatchMessage::Push(message)));
                    command.left += 1;
                }
            }
            (_, Stage::Claims) => {
                self.claim_some_of_flow(step, work);
                command.left += 1;
            }
            (_, Stage::Room) => {
                work.stage = Stage::Parts;
                command.begin(Phase::Prepare);
            }
            (_, Stage::Parts) if is_through && command.left == 0 => {
                work.stage = Stage::Word;
                let owners: Vec<usize> = work.shares.keys().copied().collect();
                let word = (work.flow(), work.durable);
                work.has_come = self.commit_flow(conns, step, word, &owners);
                command.begin(Phase::Act);
            }
            (_, Stage::Parts) if is_through || command.left >= WINDOW => return Next::Waits,
            (_, Stage::Parts) => self.stage_piece(step, command),
            (_, Stage::Word) if !work.has_come => return Next::Waits,
            (_, Stage::Word | Stage::Answer) if is_gone => return Next::Over,
            (_, Stage::Word) => {
                let req_id = command.req_id.as_deref();
                work.answer.reserve_exact(work.answer_bytes);
                work.framing = Some(Frame::begin(&mut work.answer));
                let mut reply = reply::begin(&mut work.answer, true, req_id);
                reply.map("data").key("jobs").array(work.shape.len());
                drop(reply);
                work.stage = Stage::Answer;
            }
            (_, Stage::Answer) if is_through => {
                self.answer_long_flow(conns, command);
                return Next::Over;
            }
            (_, Stage::Answer) => self.show_piece(step, command),
        }
        Next::More
    }

    /// Goes on with the ties of the jobs whose lists were read, or reads those of the next piece that has any.
    fn find_ties(&mut self, step: Step, command: &mut LongCommand) -> Result<(), Error> {
        let Doing::Flow(work) = &mut command.doing else { return Ok(()) };
        if work.untied.is_empty() {
            let Some(&from) = work.naming.front() else {
                work.stage = Stage::Check;
                return Ok(());
            };
            command.place = from;
            let NextPiece::Taken(_, piece) = self.next_piece(step, command, None, None) else {
                return Ok(());
            };
            let Doing::Flow(work) = &mut command.doing else { return Ok(()) };
            work.naming.pop_front();
            for (nth, one) in jobs_of(&piece, command.origin.version).iter().enumerate() {
                work.shape.note_parent(from + nth, one)?;
                let Lists { depends_on, children } = one.lists();
                if named(one.lists()) > 0 {
                    let (depends_on, children) = (depends_on.into(), children.into());
                    let tie = Tie::of(from + nth);
                    work.untied.push_back(Untied { tie, depends_on, children });
                }
            }
            return Ok(());
        }
        let mut left = NAMES_PER_SLICE;
        while left > 0
            && let Some(Untied { tie, depends_on, children }) = work.untied.front_mut()
        {
            if work.shape.tie(tie, Lists { depends_on, children }, &mut left)? {
                work.untied.pop_front();
            }
        }
        self.meter.note((NAMES_PER_SLICE - left) / NAMES_PER_STEP);
        Ok(())
    }

    /// Asks the next owner shard for some ids, in their order.
    fn claim_some_of_flow(&mut self, step: Step, work: &mut FlowWork) {
        let asked = self.claim_next_names(step, &mut work.names, false);
        work.asked.extend(asked.into_iter().map(|(_, place)| place));
    }

    /// Hands every shard its part of the next piece.
    fn stage_piece(&mut self, step: Step, command: &mut LongCommand) {
        let NextPiece::Taken(from, piece) = self.next_piece(step, command, None, None) else {
            return;
        };
        let Doing::Flow(work) = &mut command.doing else { return };
        let mut parts: BTreeMap<usize, OfOwner> = BTreeMap::new();
        for (nth, one) in jobs_of(&piece, command.origin.version).iter().enumerate() {
            let place = from + nth;
            let owner = self.slots.of_queue(one.queue);
            let batch = self.outbox.immediate(owner);
            let at = (place, work.pushed_at_ms);
            let span = stage_one(batch, at, one, &work.ids, &work.shape);
            self.meter.note(work.shape.dependencies(place).len() / TIES_PER_STEP);
            let (records, caps) = parts.entry(owner).or_default();
            records.push(span);
            caps.push((place, one.job.group_max));
        }
        work.is_staged = true;
        for (owner, (records, caps)) in parts {
            let (durable, promised) = (work.durable, true);
            let message = FlowMessage::Stage { step, records, caps, durable, promised };
            self.outbox.immediate(owner).messages.push(Message::Flow(message));
            command.left += 1;
        }
    }

    /// An owner shard has answered.
    pub(crate) fn long_flow_claimed(command: &mut LongCommand, taken: &[bool]) {
        let Doing::Flow(work) = &mut command.doing else { return };
        let mut refused = None;
        for (place, &taken) in work.asked.drain(..).zip(taken) {
            if !taken {
                work.granted.push(place);
            } else if refused.is_none_or(|first| place < first) {
                refused = Some(place);
            }
        }
        if let Some(place) = refused {
            let error = Error::flow_job_exists(work.shape.id(place));
            command.refuse(place, error);
        }
    }

    /// A shard has staged some jobs, or not.
    pub(crate) fn long_flow_staged(&mut self, step: Step, refused: Option<(usize, Refusal)>) {
        let no_room = self.no_room();
        let Some(command) = self.long_task(step) else { return };
        command.left -= 1;
        if let Some((place, refusal)) = refused {
            let one = command.write_one(None, place);
            let jobs = jobs_of(&one, command.origin.version);
            let error = match refusal {
                Refusal::Full => no_room.into(),
                Refusal::GroupFull => group_full(jobs.first().map(|one| &one.job), Some(place)),
                _ => ErrorKind::LongCommandsWait.into(),
            };
            command.refuse(place, error);
        }
        self.wake_long(step);
    }

    /// All parts of a long flow have come.
    pub(crate) fn long_flow_has_come(&mut self, step: Step) {
        if let Some(command) = self.long_task(step)
            && let Doing::Flow(work) = &mut command.doing
        {
            work.has_come = true;
            self.wake_long(step);
        }
    }

    /// Writes the next piece of the answer.
    fn show_piece(&mut self, step: Step, command: &mut LongCommand) {
        let NextPiece::Taken(_, piece) = self.next_piece(step, command, None, None) else { return };
        let Doing::Flow(work) = &mut command.doing else { return };
        let mut writer = Writer::new(&mut work.answer);
        for one in &jobs_of(&piece, command.origin.version) {
            write_snapshot(&mut writer, one, work.pushed_at_ms);
        }
    }

    fn answer_long_flow(&mut self, conns: &mut Connections, command: &mut LongCommand) {
        let Doing::Flow(work) = &mut command.doing else { return };
        let mut answer = std::mem::take(&mut work.answer);
        let fits = work.framing.take().is_some_and(|frame| frame.finish(&mut answer).is_ok());
        if fits {
            self.send_whole(conns, command.origin, answer);
        } else {
            self.refuse(conns, command.origin, command.req_id.as_deref(), ErrorKind::ReplyTooLarge);
        }
    }

    /// Gives back what was claimed, and drops what was staged.
    fn undo_flow(&mut self, conns: &mut Connections, command: &mut LongCommand) -> Next {
        let Doing::Flow(work) = &mut command.doing else { return Next::Over };
        if std::mem::take(&mut work.is_staged) {
            let (shard, flow, fate) = (self.me as u16, work.flow(), Fate::Dropped);
            for &owner in work.shares.keys() {
                let message = FlowMessage::Decided { shard, flow, fate };
                self.outbox.immediate(owner).messages.push(Message::Flow(message));
            }
        }
        let mut undone = 0;
        while undone < UNDONE_PER_STEP && work.names.pop_first().is_some() {
            undone += 1;
        }
        while undone < UNDONE_PER_STEP
            && let Some(place) = work.granted.pop()
        {
            self.release_name(work.shape.id(place));
            undone += 1;
        }
        self.meter.note(undone);
        if undone == UNDONE_PER_STEP {
            return Next::More;
        }
        self.refuse_long(conns, command);
        Next::Over
    }
}

/// The jobs of a piece, which has been read before.
fn jobs_of(piece: &[u8], version: Version) -> Vec<FlowJob<'_>> {
    match decode_again(piece, version) {
        Ok(Request { body: Body::PushFlow { jobs }, .. }) => jobs,
        _ => Vec::new(),
    }
}
