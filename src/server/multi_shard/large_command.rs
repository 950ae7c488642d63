//! A command with a payload of megabytes. The payload is checked a slice at a time; then the command begins as any
//! other does, in its turn among those of its connection, and nothing reads the payload again: its frame is passed on
//! and kept as it is.

use super::long_batch::{Doing, LongCommand, Next, Phase};
use super::long_commands::Staging;
use crate::api::request::{Body, JobRef, Request, Route};
use crate::api::version::Version;
use crate::protocol::decode::coerce::coerced;
use crate::protocol::decode::repair::repaired;
use crate::protocol::decode::{decode_as, needs_three};
use crate::protocol::large::{FrameRef, LargeFrame};
use crate::server::connection::protocol::Protocol;
use crate::server::shard_mail::envelope::Step;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};
use std::sync::Arc;

/// Values of a payload that are checked at a time, and in about the time of one step.
const VALUES_PER_SLICE: usize = 16 << 10;
const VALUES_PER_STEP: usize = 32;

/// Longer frames without their payload are judged with it.
const REST_BYTES_MAX: usize = 1 << 20;

impl ShardServer {
    /// Checks the next slice of the frame.
    pub(super) fn check_on(&mut self, command: &mut LongCommand) -> Next {
        let LongCommand { doing: Doing::One(scan), bytes, start, .. } = command else {
            return Next::Over;
        };
        let mut values = VALUES_PER_SLICE;
        let checked = scan.go_on(&bytes[*start..], &mut values);
        self.meter.note((VALUES_PER_SLICE - values) / VALUES_PER_STEP);
        match checked {
            Ok(false) => Next::More,
            Ok(true) => {
                let bytes = std::mem::take(&mut command.bytes);
                let large = Arc::new(LargeFrame::new(bytes, command.start, scan.payload()));
                command.start = 0;
                let owner = self.owner_of((&large).into(), command.origin.version);
                command.doing = Doing::Checked(large, owner.unwrap_or_default());
                command.begin(if owner.is_some() { Phase::Prepare } else { Phase::Act });
                if owner.is_some() { Next::More } else { Next::Over }
            }
            Err(error) => {
                command.refuse_frame(0, error);
                Next::More
            }
        }
    }

    /// The shard whose log will hold the payload of a command, as far as can be told before it is begun.
    fn owner_of(&self, frame: FrameRef<'_>, version: Version) -> Option<usize> {
        let rest = frame.without_payload(REST_BYTES_MAX)?;
        let Ok(Request { body, .. }) = decode_as(&rest, version) else { return None };
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

    /// Has the next slice of the payload copied to where the log will need it.
    pub(super) fn stage_on(&mut self, step: Step, command: &mut LongCommand) -> Next {
        let LongCommand { doing: Doing::Checked(large, owner), staging, .. } = command else {
            return Next::Over;
        };
        match self.stage_at(step, *owner, large, staging) {
            Staging::No => return Next::More,
            Staging::Asked => return Next::Waits,
            Staging::Done => {}
        }
        command.begin(Phase::Act);
        Next::Over
    }

    /// Begins a command whose payload has been checked; nothing if that is not what this one is.
    pub(super) fn begin_checked(&mut self, conns: &mut Connections, command: LongCommand) {
        let conn = command.origin.conn;
        if let Doing::Repaired = command.doing {
            if self.sessions.get(conn).is_some() {
                self.begin(conns, conn, command.frame().into());
            }
            return;
        }
        let (Phase::Act, Doing::Checked(large, _)) = (command.phase, command.doing) else { return };
        let Some(session) = self.sessions.get(conn) else { return };
        if session.protocol == Protocol::Frames {
            // The command waits, like the input behind it, for room and until the client has read its answers.
            session.checked = Some(large);
            self.unblocked.push(conn);
            self.note_received(conns, conn);
        } else {
            self.begin_large(conns, conn, &large);
        }
    }

    /// Begins a command with a large payload that has been checked.
    pub(crate) fn begin_large(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        large: &Arc<LargeFrame>,
    ) {
        let frame = FrameRef::from(large);
        match self.rest_if_refused(conn, frame) {
            Some(rest) => self.begin(conns, conn, (&*rest).into()),
            None => self.begin(conns, conn, frame),
        }
    }

    /// The frame without its payload, if it is refused for what is left: a refusal looks at all of a frame, more than once.
    fn rest_if_refused(&mut self, conn: ConnId, frame: FrameRef<'_>) -> Option<Vec<u8>> {
        let rest = frame.without_payload(REST_BYTES_MAX)?;
        let version = self.origin(conn).version;
        let refused = |version| decode_as(&rest, version).is_err();
        let three = version.is_three() || needs_three(&rest);
        let taken =
            !refused(version) || three && (!refused(Version::Three) || coerced(&rest).is_some());
        let taken = taken || repaired(&rest).is_some();
        (!taken).then_some(rest)
    }
}
