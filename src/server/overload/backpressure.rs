//! Back-pressure: what a shard cannot keep up with is not read, so that clients wait instead of memory growing.
//!
//! The shard is saturated while too much waits for the disk or for other shards, or commands must wait for room in the log; then no command of
//! any connection begins. A connection is not read while more of its input waits than it may hold.

use crate::server::connection::session::PENDING_BYTES_MAX;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};

impl ShardServer {
    /// Back-pressure: a connection whose commands wait for answers is not read beyond a limit.
    pub(crate) fn read_on_or_not(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        let most =
            if session.quota.waits() { self.fair_shares.held_bytes_max() } else { usize::MAX };
        let most = most.min(PENDING_BYTES_MAX) >> u32::from(session.paused);
        let full = session.blocked && (session.choked || session.pending.len() > most);
        if full && !session.paused {
            conns.pause_reading(conn);
        } else if !full && session.paused {
            conns.resume_reading(conn);
        }
        session.paused = full;
        self.note_received(conns, conn);
    }

    /// Looks how far the disk and the notices are behind, and whether there is space. Once there is, connections go on.
    pub fn note_saturation(&mut self) {
        let was = self.saturated;
        self.saturated =
            self.must_pause() || self.waits_for_disk() || self.is_command_memory_full();
        if was && !self.saturated {
            self.restart_auth_deadlines();
            let blocked = self.sessions.iter().filter(|session| session.blocked);
            self.unblocked.extend(blocked.map(|session| session.conn));
        }
    }

    /// Whether there is enough that waits for the disk, to be written or to be sent.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.is_disk_behind() || self.send_memory.waits_for_log()
    }

    /// Bytes of frames whose commands are on their way to other shards, or in several steps.
    pub(crate) fn command_bytes(&self) -> usize {
        self.forwarded_frames.bytes() + self.tasks.frame_bytes()
    }

    /// Whether they take so much that no other command is begun. Answers to them begin a turn of their own.
    #[inline]
    pub(crate) fn is_command_memory_full(&self) -> bool {
        self.command_bytes() >= self.client_memory.commands()
    }

    /// Whether nothing that commands wait for begins a turn of its own.
    pub(crate) fn may_take_commands(&self) -> bool {
        !self.waits_for_disk() && !self.waits_for_wakeup() && !self.is_command_memory_full()
    }

    pub(crate) fn is_disk_behind(&self) -> bool {
        self.engine.journal.log.unwritten_bytes() > self.unwritten_bytes_max
    }

    /// Whether what commands and messages wait for begins a turn of its own: room in the log, or messages from other shards.
    pub(crate) fn waits_for_wakeup(&self) -> bool {
        self.engine.journal.pressure.stalled || self.large_replies.is_backed_up()
    }
}
