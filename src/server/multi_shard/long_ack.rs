//! Long commands on many jobs that are there: ACKB, `JobHeartbeatB` and `ExtendLocks`.
//!
//! Completions are all checked before the first is carried out. What is lost between the two, because its lock expires or
//! another client ends it, is skipped and reported in the answer as too late. Renewals are done as they are read:
//! none of them depends on another.

use super::long_batch::{
    BYTES_PER_STEP, Doing, ITEMS_PER_STEP, LongCommand, Next, NextPiece, Phase, WINDOW, only_id,
};
use super::task::Task;
use crate::api::commands::PerJob;
use crate::api::error::ErrorKind;
use crate::api::request::{Body, JobRef, Request};
use crate::protocol::decode::{decode_as, decode_frame};
use crate::protocol::large::{FrameRef, KeptFrame};
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::commands::ack_reply::{write_ignored, write_renewed};
use crate::server::commands::job_view::write_ref;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::message::{Message, PartItem, PartKind};
use crate::server::shard_mail::request_context::Lookup;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::effect::Reply;
use corq_shards::job::id::JobId;
use std::collections::HashSet;

/// Items that are shared out to the shards of their jobs in about the time of a step.
const SHARED_PER_STEP: usize = 8;

/// Ids written into the answer at a time.
const LATE_PER_STEP: usize = 200;

/// State of a long ACKB, `JobHeartbeatB` or `ExtendLocks`.
#[derive(Debug)]
pub struct JobsWork {
    per_job: PerJob,
    /// The jobs that are to be completed, by place, as far as they have been found.
    ids: Vec<JobId>,
    /// Jobs with the tokens that were shown for them: none may be completed twice.
    seen: HashSet<(u128, u128)>,
    /// Jobs renewed so far.
    count: u64,
    /// Places of jobs that were not renewed.
    gone: Vec<usize>,
    /// Places of jobs whose attempt was over already.
    late: Vec<usize>,
    /// Late jobs whose ids have been written into the answer.
    told: usize,
    /// Ids of late jobs, as they are answered.
    late_ids: Vec<u8>,
}

impl JobsWork {
    pub(crate) fn new(per_job: PerJob, completes: usize) -> Self {
        Self {
            per_job,
            ids: vec![JobId::default(); completes],
            seen: HashSet::with_capacity(completes),
            count: 0,
            gone: Vec::new(),
            late: Vec::new(),
            told: 0,
            late_ids: Vec::new(),
        }
    }

    /// Memory held, about.
    pub(super) fn held_bytes(&self) -> usize {
        let places = self.gone.capacity() + self.late.capacity();
        self.ids.capacity() * size_of::<JobId>()
            // With a byte beside each, and an eighth of them empty.
            + self.seen.capacity() * (size_of::<(u128, u128)>() + 1) * 8 / 7
            + places * size_of::<usize>()
            + self.late_ids.capacity()
    }

    fn completes(&self) -> bool {
        self.per_job == PerJob::Ack
    }
}

impl ShardServer {
    /// The next step of one.
    pub(crate) fn jobs_on(
        &mut self,
        conns: &mut Connections,
        step: Step,
        command: &mut LongCommand,
    ) -> Next {
        let is_through = command.is_through();
        let Doing::Jobs(work) = &command.doing else { return Next::Over };
        let completes = work.completes();
        match command.phase {
            Phase::Undo => {
                self.refuse_long(conns, command);
                return Next::Over;
            }
            Phase::Prepare if !completes => command.begin(Phase::Act),
            Phase::Prepare if is_through && command.left == 0 => command.begin(Phase::Act),
            Phase::Act if is_through && command.left == 0 => {
                if self.name_late(command) {
                    self.answer_long_jobs(conns, command);
                    return Next::Over;
                }
            }
            _ if is_through || command.left >= WINDOW => return Next::Waits,
            phase => {
                let acts = completes && phase == Phase::Act;
                let owner = if acts { work.ids.get(command.place) } else { None };
                let owner = owner.map(|&job| self.slots.of_job(job));
                let (from, piece) = match self.next_piece(step, command, None, owner) {
                    NextPiece::Taken(from, piece) => (from, piece),
                    NextPiece::More => return Next::More,
                    NextPiece::Waits => return Next::Waits,
                };
                self.meter.note((command.place - from) / SHARED_PER_STEP + 1);
                if acts {
                    self.complete_piece(step, command, from, piece.view());
                } else {
                    command.left += 1;
                    self.start_on_piece(conns, command.origin, (step, from), &piece);
                }
            }
        }
        Next::More
    }

    /// A piece has been renewed, or checked.
    pub(crate) fn piece_done(
        &mut self,
        (step, from): (Step, usize),
        body: &Body<'_>,
        names: &[Lookup],
        reply: &Reply,
    ) {
        let refused = match reply {
            Reply::Refused { place, refusal } => {
                let job = match body {
                    Body::AckBatch { batch } => batch.ids.get(*place).copied(),
                    _ => None,
                };
                let error = self.refusal_error(*refusal, job.unwrap_or(JobRef::Custom("")));
                Some((from + *place, error))
            }
            _ => None,
        };
        let Some(command) = self.long_task(step) else { return };
        command.left -= 1;
        let Doing::Jobs(work) = &mut command.doing else { return };
        let mut refusal = refused;
        match (reply, body) {
            (Reply::Count(count), _) => work.count += count,
            (Reply::Gone { renewed, places }, _) => {
                work.count += renewed;
                work.gone.extend(places.iter().map(|place| from + place));
            }
            (Reply::Done | Reply::Late(_), Body::AckBatch { batch }) => {
                let late: &[usize] = if let Reply::Late(places) = reply { places } else { &[] };
                for (place, name) in names.iter().enumerate() {
                    let Lookup::Done(Some(id)) = *name else { continue };
                    work.ids[from + place] = id;
                    // Of an attempt that is over already, nothing can be done twice.
                    if late.binary_search(&place).is_ok() {
                        continue;
                    }
                    let token = batch.token(place).map_or(0, |token| token.0);
                    if !work.seen.insert((id.0, token)) {
                        refusal = Some((from + place, ErrorKind::NotActive.into()));
                        break;
                    }
                }
            }
            _ => {}
        }
        if let Some((place, error)) = refusal {
            command.refuse(place, error);
        }
        self.wake_long(step);
    }

    /// Has the shards of its jobs complete a piece.
    fn complete_piece(
        &mut self,
        step: Step,
        command: &mut LongCommand,
        from: usize,
        piece: FrameRef<'_>,
    ) {
        let decoded = decode_frame(piece, command.origin.version);
        let Ok(Request { body: Body::AckBatch { batch }, .. }) = decoded else { return };
        let Doing::Jobs(work) = &mut command.doing else { return };
        let mut parts: Vec<Vec<PartItem>> = (0..self.slots.shards()).map(|_| Vec::new()).collect();
        for nth in 0..batch.ids.len() {
            let place = from + nth;
            let job = work.ids[place];
            let owner = self.slots.of_job(job);
            let result = self.outbox.immediate(owner).keep_payload(batch.result(nth), piece);
            let (token, remove) = (batch.token(nth), batch.remove(nth));
            parts[owner].push(PartItem { place, job, token, result, remove, ttl_ms: None });
        }
        let (origin, kind, of) = (command.origin, PartKind::Ack, Some(step));
        for (owner, items) in parts.into_iter().enumerate().filter(|(_, items)| !items.is_empty()) {
            command.left += 1;
            self.outbox.immediate(owner).messages.push(Message::BatchPart {
                step,
                origin,
                kind,
                items,
                of,
            });
        }
    }

    /// A shard has completed its part of a piece.
    pub(crate) fn long_parted(&mut self, step: Step, outcome: &Reply) {
        let Some(command) = self.long_task(step) else { return };
        command.left -= 1;
        if let (Doing::Jobs(work), Reply::Late(places)) = (&mut command.doing, outcome) {
            work.late.extend_from_slice(places);
        }
        self.wake_long(step);
    }

    /// Writes the ids of some of those that came too late, as they stand in the request. True after the last.
    fn name_late(&mut self, command: &mut LongCommand) -> bool {
        let Doing::Jobs(work) = &mut command.doing else { return true };
        if work.told == 0 {
            work.late.sort_unstable();
        }
        let mut ids = std::mem::take(&mut work.late_ids);
        let from = work.told;
        work.told = work.late.len().min(from + LATE_PER_STEP);
        let (last, places) = (work.told == work.late.len(), work.late[from..work.told].to_vec());
        let mut bytes = 0;
        for &place in &places {
            let one = command.write_one(None, place);
            bytes += one.len();
            let request = decode_as(&one, command.origin.version);
            let id = request.map_or(JobRef::Custom(""), |request| only_id(&request.body));
            write_ref(&mut Writer::new(&mut ids), id);
        }
        self.meter.note(places.len() / ITEMS_PER_STEP + bytes / BYTES_PER_STEP);
        if let Doing::Jobs(work) = &mut command.doing {
            work.late_ids = ids;
        }
        last
    }

    fn answer_long_jobs(&mut self, conns: &mut Connections, command: &mut LongCommand) {
        let Doing::Jobs(work) = &mut command.doing else { return };
        work.gone.sort_unstable();
        let (late, gone) = (std::mem::take(&mut work.late), std::mem::take(&mut work.gone));
        let late_ids = std::mem::take(&mut work.late_ids);
        let (per_job, count) = (work.per_job, work.count);
        let (origin, req_id): (Origin, _) = (command.origin, command.req_id.as_deref());
        self.meter.note((late.len() + gone.len()) / SHARED_PER_STEP);
        match per_job {
            PerJob::Extend => self.write_count(conns, origin, req_id, count),
            PerJob::Renew => {
                self.respond(conns, origin, |_, sink| write_renewed(sink, req_id, count, &gone));
            }
            PerJob::Ack if late.is_empty() => {
                self.respond(conns, origin, |_, sink| reply::ok(sink.out, req_id));
            }
            PerJob::Ack => {
                self.respond(conns, origin, |_, sink| {
                    write_ignored(sink, req_id, &late, |writer| writer.raw(&late_ids));
                });
            }
        }
    }

    /// Starts on a piece of a long command.
    fn start_on_piece(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        piece: (Step, usize),
        frame: &KeptFrame,
    ) {
        let Ok(Request { body, .. }) = decode_frame(frame.view(), origin.version) else { return };
        let (Body::AckBatch { batch }
        | Body::JobHeartbeatBatch { batch }
        | Body::ExtendLocks { batch }) = &body
        else {
            return;
        };
        let task = super::batch::jobs_task(origin, frame.clone(), &batch.ids, Some(piece));
        let step = self.tasks.start(self.me, Task::Batch(task));
        self.begin_on_jobs(conns, step, &batch.ids);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_jobs_counts_as_memory_of_the_command() {
        let jobs = 1000;
        let (renews, completes) =
            (JobsWork::new(PerJob::Renew, 0), JobsWork::new(PerJob::Ack, jobs));
        let each = size_of::<JobId>() + size_of::<(u128, u128)>();
        assert!(completes.held_bytes() >= renews.held_bytes() + jobs * each);
    }
}
