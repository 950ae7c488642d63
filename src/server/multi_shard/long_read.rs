//! The frame of a long command is read, a slice at a time: where its items begin, what stands around them, then the items. If
//! it is refused, its `reqId` is looked for.

use super::long_ack::JobsWork;
use super::long_batch::{BYTES_PER_STEP, Doing, LongCommand, Next, NextPiece, Phase};
use super::long_flow::FlowWork;
use super::long_push::PushWork;
use crate::api::access::{Grant, permit};
use crate::api::commands::{Batched, Class, PerJob};
use crate::api::error::ErrorKind;
use crate::api::request::{Body, Plans, Refused, Request, Route};
use crate::protocol::decode::coerce::coerced;
use crate::protocol::decode::{decode_as, decode_piece};
use crate::server::shard_mail::envelope::Step;
use crate::server::shard_server::ShardServer;
use corq_io::net::ConnId;

/// Values of a frame that are stepped over at a time, and in about the time of one step.
const VALUES_PER_SLICE: usize = 16 << 10;
pub(super) const VALUES_PER_STEP: usize = 32;

impl ShardServer {
    /// Rights of a connection. A connection that is gone has all: nothing of its command will be done.
    fn grant_of(&mut self, conn: ConnId) -> Grant {
        self.sessions.get(conn).map_or(Grant::ALL, |session| session.access.grant)
    }

    pub(super) fn walk_on(&mut self, command: &mut LongCommand) -> Next {
        let mut values = VALUES_PER_SLICE;
        let LongCommand { walk, bytes, start, .. } = command;
        let walked = walk.go_on(&bytes[*start..], &mut values);
        self.meter.note((VALUES_PER_SLICE - values) / VALUES_PER_STEP);
        match walked {
            Ok(false) => return Next::More,
            Ok(true) => {}
            Err(error) => {
                command.refuse_frame(0, error);
                return Next::More;
            }
        }
        let around = command.walk.around().to_vec();
        self.meter.note(around.len() / BYTES_PER_STEP);
        let decoded = decode_as(&around, command.origin.version);
        if self.turns_three(command, decoded.as_ref().ok(), &around) {
            return self.begin_around(command, decode_as(&around, command.origin.version));
        }
        self.begin_around(command, decoded)
    }

    /// Takes in the part of a command around its items.
    fn begin_around(
        &mut self,
        command: &mut LongCommand,
        decoded: Result<Request<'_>, Refused<'_>>,
    ) -> Next {
        match decoded {
            Err(refused) => command.refuse_frame(0, refused.error),
            Ok(Request { req_id, body, .. }) => {
                command.req_id = req_id.map(Into::into);
                let grant = self.grant_of(command.origin.conn);
                if let Err(error) = permit(grant, &body) {
                    command.refuse(0, error);
                } else if self.lacks_data_dir(body.spec().class) {
                    command.refuse(0, ErrorKind::DataGone);
                } else {
                    command.doing = self.doing(&body, command.items());
                    command.begin(Phase::Read);
                }
            }
        }
        Next::More
    }

    /// Looks for the `reqId` of one that is refused, wherever it stands.
    pub(super) fn search_on(&mut self, command: &mut LongCommand) -> Next {
        let mut values = VALUES_PER_SLICE;
        let LongCommand { search, bytes, start, .. } = command;
        let ended = search.go_on(&bytes[*start..], &mut values);
        self.meter.note((VALUES_PER_SLICE - values) / VALUES_PER_STEP);
        if ended {
            command.req_id = command.search.req_id(command.frame()).map(Into::into);
            command.begin(Phase::Undo);
        }
        Next::More
    }

    /// Repairs the next slice of a frame that was refused.
    pub(super) fn repair_on(&mut self, command: &mut LongCommand) -> Next {
        let LongCommand { repair, bytes, start, .. } = command;
        let Some(repairing) = repair else { return Next::Over };
        let mut values = VALUES_PER_SLICE;
        let repaired = repairing.go_on(&bytes[*start..], &mut values);
        self.meter.note((VALUES_PER_SLICE - values) / VALUES_PER_STEP);
        if repaired == Ok(false) {
            return Next::More;
        }
        let changed = repair.take().filter(|_| repaired.is_ok()).and_then(|it| it.into_changed());
        match (changed, &command.refused) {
            (Some(frame), _) => command.begin_anew(frame),
            // Nothing was wrong with it: the frame is decoded for the first time.
            (None, None) => {
                command.doing = Doing::Repaired;
                Next::Over
            }
            (None, Some(_)) => {
                command.begin(Phase::Search);
                Next::More
            }
        }
    }

    /// The work of a batch, by its kind. Commands of other kinds do not come here.
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
    pub(super) fn read_piece(&mut self, step: Step, command: &mut LongCommand) -> Next {
        if command.is_through() {
            command.begin(Phase::Prepare);
            match command.walk.fits() {
                Ok(()) => self.settle_version_of(command),
                Err(error) => command.refuse(0, error),
            }
            return Next::More;
        }
        let queue = match &command.doing {
            Doing::Push(push) => Some(push.queue.clone()),
            _ => None,
        };
        let (from, piece) = match self.next_piece(step, command, queue.as_deref(), None) {
            NextPiece::Taken(from, piece) => (from, piece),
            NextPiece::More => return Next::More,
            NextPiece::Waits => return Next::Waits,
        };
        let piece = piece.view();
        command.progress.place = from;
        let grant = self.grant_of(command.origin.conn);
        let before = command.progress;
        let mut decoded = decode_piece(piece, command.origin.version, &mut command.progress);
        if self.turns_three(command, decoded.as_ref().ok(), &piece) {
            command.progress = before;
            decoded = decode_piece(piece, command.origin.version, &mut command.progress);
        }
        let other = match &decoded {
            Err(_) if command.origin.version.is_three() => coerced(&piece),
            _ => None,
        };
        if let Some(other) = &other {
            self.meter.note(piece.len() / BYTES_PER_STEP);
            (command.coerces, command.progress) = (true, before);
            decoded = decode_piece(
                other.as_slice().into(),
                command.origin.version,
                &mut command.progress,
            );
        }
        self.meter.note(decoded.as_ref().map_or(0, |request| request.plans.steps()));
        match decoded {
            Err(error) => command.refuse_frame(from, error),
            Ok(Request { plans: Plans { are_left: true, .. }, .. }) => {
                command.progress = before;
                command.shorten_piece(from);
            }
            Ok(Request { body, .. }) if !grant.is_all() && permit(grant, &body).is_err() => {
                if let Err(error) = permit(grant, &body) {
                    command.refuse(from, error);
                }
            }
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
}
