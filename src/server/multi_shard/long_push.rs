//! Long pushes to one queue: what their jobs need is found out, their names are claimed and room is kept for them, a
//! piece at a time; then their jobs come in order, and others may see the first while the last are on their way.
//!
//! Names are claimed in the order of their owner shards and of the names themselves. A push that waits for a name holds none
//! behind it, and one that claims all of its names of an owner shard at once holds none of that shard, so that no two wait for
//! each other.

use super::custom_ids::{jobs_of, known_of, write_ids, write_known};
use super::dependencies::FoundDependencies;
use super::long_batch::{
    BYTES_PER_STEP, Doing, LongCommand, Next, NextPiece, Phase, UNDONE_PER_STEP, WINDOW,
};
use super::messages::{LongBatchMessage, LongPushMessage, Piece, UnmetOf};
use crate::api::error::{Error, ErrorKind};
use crate::api::limits::BATCH_DEPENDENCIES_MAX;
use crate::api::parent_link::linked_parent;
use crate::api::request::{Body, JobRef, Request};
use crate::protocol::decode::{decode_as, decode_frame};
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::msgpack::{Reader, Texts};
use crate::protocol::reply;
use crate::server::commands::pending_replies::CURRENT;
use crate::server::commands::refusal::group_full;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::envelope::{SentFrame, Span, Step};
use crate::server::shard_mail::message::{Batch, Message};
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::command::Command;
use corq_shards::dependency::Unmet;
use corq_shards::effect::{Refusal, Reply};
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::Journal;
use corq_shards::{Caller, push_bytes};
use std::collections::{BTreeMap, VecDeque};

/// Custom ids by owner shard, in the order in which they are claimed, with the places of their jobs.
pub(super) type Names = BTreeMap<(usize, Box<str>), usize>;

/// State of a long push.
#[derive(Debug)]
pub struct PushWork {
    pub(crate) queue: Box<str>,
    owner: usize,
    stage: Stage,
    /// Most log bytes of its jobs, without their lists of unmet dependencies.
    bytes: u64,
    /// Some of its jobs let their groups be only so large.
    is_grouped: bool,
    /// Some of its jobs with custom ids are to outlive a power loss.
    is_durable: bool,
    /// Jobs that its jobs depend on.
    dependencies: usize,
    /// Pieces, by their first jobs, that have dependencies and are not looked at yet.
    needy: VecDeque<usize>,
    /// Outcome of the lookup of dependencies, by the first job of each piece.
    needed: BTreeMap<usize, FoundDependencies>,
    /// Custom ids that are to be claimed, by owner shard, with their jobs.
    names: Names,
    /// Custom ids that are being claimed at their owner shard.
    asked: Vec<(Box<str>, usize)>,
    /// Custom ids that have been granted.
    granted: Vec<Box<str>>,
    /// Jobs whose custom ids others bear; empty if none has one.
    taken: Vec<bool>,
    /// Jobs with the custom id of an earlier one, and that one.
    twice: BTreeMap<usize, usize>,
    /// Answers for these earlier jobs, repeated for the later ones.
    firsts: BTreeMap<usize, Vec<u8>>,
    /// The ids of its jobs, as they are answered.
    answer: Vec<u8>,
    /// How many of its jobs were there already.
    known: u64,
    /// Bytes of all its custom ids, and of what its jobs wait for.
    text_bytes: usize,
}

/// Memory of an entry of a map, beside what it points to.
const ENTRY_BYTES: usize = 64;

/// How far it is prepared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    DependencyLookup,
    Claims,
    Room,
    Groups,
}

impl PushWork {
    pub(crate) fn new(queue: &str, owner: usize) -> Self {
        Self {
            queue: queue.into(),
            owner,
            stage: Stage::DependencyLookup,
            bytes: 0,
            is_grouped: false,
            is_durable: false,
            dependencies: 0,
            needy: VecDeque::new(),
            needed: BTreeMap::new(),
            names: BTreeMap::new(),
            asked: Vec::new(),
            granted: Vec::new(),
            taken: Vec::new(),
            twice: BTreeMap::new(),
            firsts: BTreeMap::new(),
            answer: Vec::new(),
            known: 0,
            text_bytes: 0,
        }
    }

    /// Memory held, about.
    pub(super) fn held_bytes(&self) -> usize {
        let entries = self.names.len()
            + self.asked.len()
            + self.granted.len()
            + self.twice.len()
            + self.firsts.len()
            + self.needed.len();
        entries * ENTRY_BYTES
            + self.text_bytes
            + self.taken.capacity()
            + self.answer.capacity()
            + self.needy.capacity() * size_of::<usize>()
    }

    /// Takes in the answer for a piece. A name that stands twice is answered twice with what became of the first, which
    /// may be another job.
    fn take_answer(&mut self, from: usize, ids: &[u8]) {
        if self.twice.is_empty() {
            self.answer.extend_from_slice(ids);
            return;
        }
        let mut reader = Reader::new(ids);
        let mut place = from;
        while let Ok(id) = reader.skip() {
            let first = self.twice.get(&place).and_then(|first| self.firsts.get(first));
            self.answer.extend_from_slice(first.map_or(id, |id| id));
            if let Some(first) = self.firsts.get_mut(&place) {
                *first = id.to_vec();
            }
            place += 1;
        }
    }
}

impl ShardServer {
    /// A piece of a long command has been read.
    pub(crate) fn note_read(
        &mut self,
        command: &mut LongCommand,
        from: usize,
        jobs: &[NewJob<'_>],
    ) -> Result<(), Error> {
        let items = command.items();
        let Doing::Push(push) = &mut command.doing else { return Ok(()) };
        push.bytes += push_bytes(&push.queue, jobs);
        push.is_grouped |= jobs.iter().any(|job| job.group_max > 0);
        let names_others = |job: &NewJob<'_>| {
            let children = job.family.as_deref().map_or(&[][..], |family| family.children);
            !Texts::new(job.depends_on).is_empty() || !Texts::new(children).is_empty()
        };
        if jobs.iter().any(names_others) {
            push.needy.push_back(from);
        }
        let is_linked = |job: &NewJob<'_>| linked_parent(job).is_some();
        if command.origin.version.is_three()
            && let Some(place) = jobs.iter().position(is_linked)
        {
            return Err(Error::from(ErrorKind::LongLinks).in_job(from + place));
        }
        for (place, job) in jobs.iter().enumerate() {
            push.dependencies += Texts::new(job.depends_on).len();
            let Some(name) = job.custom_id else { continue };
            if push.taken.is_empty() {
                push.taken = vec![false; items];
            }
            self.meter.note(1);
            push.text_bytes += name.len();
            push.is_durable |= job.durable;
            let place = from + place;
            let key = (self.slots.of_name(name), name.into());
            if let Some(&first) = push.names.get(&key) {
                push.taken[place] = true;
                push.twice.insert(place, first);
                push.firsts.insert(first, Vec::new());
            } else {
                push.names.insert(key, place);
            }
        }
        if push.dependencies > BATCH_DEPENDENCIES_MAX {
            return Err(Error::too_many_dependencies(BATCH_DEPENDENCIES_MAX));
        }
        Ok(())
    }

    /// The next step of a long push.
    pub(crate) fn push_on(
        &mut self,
        conns: &mut Connections,
        step: Step,
        command: &mut LongCommand,
    ) -> Next {
        let is_through = command.is_through();
        let Doing::Push(push) = &mut command.doing else { return Next::Over };
        match (command.phase, push.stage) {
            (Phase::Undo, _) => return self.undo_push(conns, command),
            (Phase::Act, _) if is_through && command.left == 0 => {
                self.answer_push(conns, command);
                return Next::Over;
            }
            (Phase::Act, _) if is_through || command.left >= WINDOW => return Next::Waits,
            (Phase::Act, _) => return self.send_piece(step, command, false),
            (_, Stage::DependencyLookup) if push.needy.is_empty() && command.left == 0 => {
                push.stage = Stage::Claims;
            }
            (_, Stage::DependencyLookup) if command.left >= WINDOW => return Next::Waits,
            (_, Stage::DependencyLookup) => {
                let Some(&from) = push.needy.front() else { return Next::Waits };
                let queue = push.queue.clone();
                command.place = from;
                let NextPiece::Taken(from, piece) =
                    self.next_piece(step, command, Some(&queue), None)
                else {
                    return Next::More;
                };
                if let Doing::Push(push) = &mut command.doing {
                    push.needy.pop_front();
                }
                let piece_at = (step, from);
                command.left += usize::from(self.begin_dependencies_of_piece(
                    conns,
                    command.origin,
                    piece_at,
                    piece,
                ));
            }
            (_, Stage::Claims | Stage::Room) if command.left > 0 => return Next::Waits,
            (_, Stage::Claims) if push.names.is_empty() => {
                push.stage = Stage::Room;
                if let Some((place, error)) = unknown_need(push) {
                    command.refuse(place, error);
                    return Next::More;
                }
                let bytes = push.bytes + needed_bytes(push);
                let message = LongPushMessage::Reserve { step, bytes, jobs: command.walk.items() };
                self.outbox
                    .immediate(push.owner)
                    .messages
                    .push(Message::Long(LongBatchMessage::Push(message)));
                command.left += 1;
            }
            (_, Stage::Claims) => {
                self.claim_some(step, push);
                command.left += 1;
            }
            (_, Stage::Room) if push.is_grouped => {
                push.stage = Stage::Groups;
                command.begin(Phase::Prepare);
            }
            (_, Stage::Room) => command.begin(Phase::Act),
            (_, Stage::Groups) if is_through && command.left == 0 => command.begin(Phase::Act),
            (_, Stage::Groups) if is_through || command.left >= WINDOW => return Next::Waits,
            (_, Stage::Groups) => return self.send_piece(step, command, true),
        }
        Next::More
    }

    /// Takes in the outcome of the lookup of a piece's dependencies.
    pub(crate) fn dependencies_of_piece(
        &mut self,
        (step, from): (Step, usize),
        outcome: Result<FoundDependencies, (usize, Error)>,
    ) {
        if let Some(command) = self.long_task(step) {
            command.left -= 1;
            match outcome {
                Err((place, error)) => command.refuse(place, error),
                Ok(needed) => {
                    if let Doing::Push(push) = &mut command.doing {
                        push.text_bytes += bytes_of(&needed) as usize;
                        push.needed.insert(from, needed);
                    }
                }
            }
            self.wake_long(step);
        }
    }

    /// Asks the next owner shard for some names, in their order.
    fn claim_some(&mut self, step: Step, push: &mut PushWork) {
        let asked = self.claim_next_names(step, &mut push.names, push.is_durable);
        push.asked.extend(asked);
    }

    /// Asks the owner shard of the first of some names for as many of its names as a step may. Returns them with their
    /// places.
    pub(super) fn claim_next_names(
        &mut self,
        step: Step,
        left: &mut Names,
        durable: bool,
    ) -> Vec<(Box<str>, usize)> {
        let mut asked = Vec::new();
        let Some(((owner, _), _)) = left.first_key_value() else { return asked };
        let owner = *owner;
        let batch = self.outbox.immediate(owner);
        let mut names = Vec::new();
        while names.len() < UNDONE_PER_STEP
            && let Some(first) = left.first_entry()
            && first.key().0 == owner
        {
            let ((_, name), place) = first.remove_entry();
            names.push(batch.keep(name.as_bytes()));
            asked.push((name, place));
        }
        self.meter.note(names.len());
        batch.messages.push(Message::Claim { step, names, durable });
        asked
    }

    /// An owner shard has answered.
    pub(crate) fn long_claimed(&mut self, step: Step, taken: &[bool]) {
        let Some(command) = self.long_task(step) else { return };
        command.left -= 1;
        Self::long_flow_claimed(command, taken);
        if let Doing::Push(push) = &mut command.doing {
            for ((name, place), &taken) in push.asked.drain(..).zip(taken) {
                push.taken[place] = taken;
                if !taken {
                    push.granted.push(name);
                }
            }
        }
        self.wake_long(step);
    }

    /// Hands the next piece to the shard of the queue, to be judged or to come.
    fn send_piece(&mut self, step: Step, command: &mut LongCommand, judges: bool) -> Next {
        let Doing::Push(push) = &command.doing else { return Next::Over };
        let (queue, owner) = (push.queue.clone(), push.owner);
        let stages_at = Some(owner).filter(|_| !judges);
        let (from, frame) = match self.next_piece(step, command, Some(&queue), stages_at) {
            NextPiece::Taken(from, frame) => (from, frame),
            NextPiece::More => return Next::More,
            NextPiece::Waits => return Next::Waits,
        };
        let to = command.place;
        let Doing::Push(push) = &mut command.doing else { return Next::Over };
        self.meter.note((to - from) / 8);
        let batch = self.outbox.immediate(owner);
        let frame = batch.keep_frame(frame.view());
        if let SentFrame::Copied(copy) = &frame {
            // Twice.
            self.meter.note_bytes(2 * copy.len());
        }
        let taken = match push.taken.get(from..to) {
            Some(taken) => taken.into(),
            None => vec![false; to - from].into(),
        };
        let needed = if judges {
            push.needed.get(&from).cloned()
        } else {
            // Names are taken for good, and are let go of a few at a time.
            push.granted.truncate(push.granted.len().saturating_sub(to - from));
            push.needed.remove(&from)
        };
        let needed = needed.unwrap_or_default();
        let mut keep = |lists: &UnmetOf<Vec<u8>>| {
            lists.iter().map(|(job, bytes)| (*job, batch.keep(bytes))).collect()
        };
        let (unmet, open) = (keep(&needed.unmet), keep(&needed.open));
        let origin = command.origin;
        let piece = Piece { step, origin, from, judges, frame, taken, unmet, open };
        let message = LongPushMessage::Piece(Box::new(piece));
        batch.messages.push(Message::Long(LongBatchMessage::Push(message)));
        command.left += 1;
        Next::More
    }

    /// Gives back what was claimed for a push that does not come.
    fn undo_push(&mut self, conns: &mut Connections, command: &mut LongCommand) -> Next {
        let Doing::Push(push) = &mut command.doing else { return Next::Over };
        let mut unasked = 0;
        while unasked < UNDONE_PER_STEP && push.names.pop_first().is_some() {
            unasked += 1;
        }
        if unasked > 0 {
            self.meter.note(unasked);
            return Next::More;
        }
        let keeps = push.granted.len().saturating_sub(UNDONE_PER_STEP);
        for name in push.granted.split_off(keeps) {
            self.release_name(&name);
            self.meter.note(1);
        }
        if keeps > 0 {
            return Next::More;
        }
        self.refuse_long(conns, command);
        Next::Over
    }

    fn answer_push(&mut self, conns: &mut Connections, command: &LongCommand) {
        let Doing::Push(push) = &command.doing else { return };
        let req_id = command.req_id.as_deref();
        self.meter.note(push.answer.len() / 4096);
        self.respond(conns, command.origin, |_, sink| {
            framed(sink, req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, req_id);
                let mut ids = reply.key("ids");
                ids.array(command.items());
                ids.raw(&push.answer);
                write_known(&mut reply, push.known);
            });
        });
    }

    /// Messages about long pushes.
    pub(crate) fn read_long_push(
        &mut self,
        conns: &mut Connections,
        batch: &Batch,
        message: &LongPushMessage,
    ) {
        match message {
            LongPushMessage::Reserve { step, bytes, jobs } => {
                let Self { engine, .. } = self;
                let takes = engine.journal.can_append_new(*bytes, || engine.shard.space_forecast());
                if takes {
                    let pressure = &mut engine.journal.pressure;
                    self.long_commands.reservations.add(*step, *bytes, pressure);
                } else {
                    self.compaction.refused_pushes += *jobs as u64;
                }
                let refused = (!takes).then_some((0, Refusal::Full));
                self.send_verdict(*step, refused);
            }
            LongPushMessage::Judged { step, refused } => {
                let refused = refused.map(|(place, refusal)| {
                    let error = match refusal {
                        Refusal::GroupFull => self.overfull(*step, place),
                        refusal => self.refusal_error(refusal, JobRef::Custom("")),
                    };
                    (place, error)
                });
                let Some(command) = self.long_task(*step) else { return };
                command.left -= 1;
                if let Some((place, error)) = refused {
                    command.refuse(place, error);
                }
                self.wake_long(*step);
            }
            LongPushMessage::Piece(piece) => self.carry_out_piece(conns, batch, piece),
            LongPushMessage::Pushed { step, from, ids, known } => {
                let Some(command) = self.long_task(*step) else { return };
                command.left -= 1;
                if let Doing::Push(push) = &mut command.doing {
                    push.take_answer(*from, &batch.bytes[ids.clone()]);
                    push.known += known;
                }
                self.wake_long(*step);
            }
        }
    }

    fn send_verdict(&mut self, step: Step, refused: Option<(usize, Refusal)>) {
        let message =
            Message::Long(LongBatchMessage::Push(LongPushMessage::Judged { step, refused }));
        self.outbox.after_commit(usize::from(step.shard)).messages.push(message);
    }

    fn overfull(&mut self, step: Step, place: usize) -> Error {
        let Some(command) = self.long_task(step) else { return ErrorKind::GroupOfJobFull.into() };
        let one = match &command.doing {
            Doing::Push(push) => command.write_one(Some(&push.queue), place),
            _ => Vec::new(),
        };
        let body = decode_as(&one, command.origin.version).map(|request| request.body);
        let job = body.as_ref().ok().and_then(|body| jobs_of(body).first());
        group_full(job, Some(place))
    }

    /// The owner's part: judges a piece, or lets its jobs come.
    fn carry_out_piece(&mut self, conns: &mut Connections, batch: &Batch, piece: &Piece) {
        let frame = batch.frame(&piece.frame);
        self.meter.note((frame.len() - frame.known().len()) / BYTES_PER_STEP);
        let Ok(Request { body, .. }) = decode_frame(frame, piece.origin.version) else { return };
        let Body::PushBatch { queue, .. } = &body else { return };
        let all = jobs_of(&body);
        let of = |list: &UnmetOf<Span>, place: usize| {
            let found = list.binary_search_by_key(&place, |(job, _)| *job).ok()?;
            Some(&batch.bytes[list[found].1.clone()])
        };
        let places = (0..all.len()).filter(|&place| !piece.taken[place]);
        let granted = places.clone().map(|place| {
            let unmet = of(&piece.unmet, place).unwrap_or_default();
            let mut job = NewJob { unmet: Unmet::new(unmet), ..all[place].clone() };
            if let Some(family) = job.family.as_deref_mut() {
                family.open = Unmet::new(of(&piece.open, place).unwrap_or_default());
            }
            job
        });
        let granted: Vec<NewJob<'_>> = granted.collect();
        let now_ms = self.now_ms;
        let sights = &mut self.long_commands.reservations.of(piece.step).places;
        if piece.judges {
            let sight = sights.entry((*queue).into()).or_default();
            let overfull = self.engine.shard.foresee_piece(now_ms, queue, &granted, sight);
            let place = overfull.and_then(|nth| places.clone().nth(nth));
            self.send_verdict(
                piece.step,
                place.map(|place| (piece.from + place, Refusal::GroupFull)),
            );
            return;
        }
        let caller = Caller { client: piece.origin.client, request: CURRENT };
        if let Some(sight) = sights.get_mut(*queue) {
            self.engine.shard.note_coming(now_ms, queue, &granted, sight);
        }
        self.apply(conns, caller, &Command::PushJudged { queue, jobs: &granted });
        let bytes = push_bytes(queue, &granted);
        let pressure = &mut self.engine.journal.pressure;
        self.long_commands.reservations.use_up(piece.step, bytes, pressure);
        let known = all.iter().zip(&piece.taken).filter(|(_, taken)| **taken);
        self.publish_duplicates(queue, known.filter_map(|(job, _)| job.custom_id));
        self.sync_duplicates(all, &piece.taken);
        let Some(Reply::Pushed(pushed)) = self.own_reply() else { return };
        let effects = std::mem::take(&mut self.effects);
        let made = &effects.pushed[pushed];
        self.release_unused(&granted, made);
        let tell = self.outbox.after_commit(usize::from(piece.step.shard));
        let start = tell.bytes.len();
        write_ids(&mut Writer::new(&mut tell.bytes), all, &piece.taken, &granted, made);
        let (step, from, ids) = (piece.step, piece.from, start..tell.bytes.len());
        let known = known_of(&piece.taken, made);
        let message = LongPushMessage::Pushed { step, from, ids, known };
        tell.messages.push(Message::Long(LongBatchMessage::Push(message)));
        self.effects = effects;
    }
}

/// The first job that depends on an unknown one, unless another bears its name.
fn unknown_need(push: &PushWork) -> Option<(usize, Error)> {
    push.needed.iter().find_map(|(from, needed)| {
        let is_taken = |place: &usize| push.taken.get(from + place).copied().unwrap_or(false);
        let refused = needed.refusals.iter().find(|(place, _)| !is_taken(place));
        refused.map(|(place, error)| (from + place, error.clone()))
    })
}

/// Log bytes of unmet dependency lists, not included in the push's estimate.
fn needed_bytes(push: &PushWork) -> u64 {
    push.needed.values().map(bytes_of).sum()
}

fn bytes_of(needed: &FoundDependencies) -> u64 {
    let lists = needed.unmet.iter().chain(&needed.open);
    lists.map(|(_, bytes)| bytes.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_names_counts_as_memory_of_the_push() {
        let mut push = PushWork::new("q", 0);
        let before = push.held_bytes();
        for place in 0..100 {
            push.names.insert((0, format!("name-{place:03}").into()), place);
            push.text_bytes += 8;
        }
        let with_names = push.held_bytes();
        assert!(with_names >= before + 100 * (8 + size_of::<((usize, Box<str>), usize)>()));
        push.taken = vec![false; 1000];
        push.answer = Vec::with_capacity(5000);
        assert!(push.held_bytes() >= with_names + 6000);
    }
}
