//! Write stall: while the disk is full and completions have used up their reserve, no command begins and messages that
//! write stay unread, until compaction has made space. So nothing is refused that only needs a little time, and compaction
//! never runs out of space.
//!
//! The same holds while other shards have much to learn of jobs that came or went here: a few commands can be news to
//! hundreds of thousands of jobs, and those who hear late may ask about jobs that are forgotten by then.

use crate::server::bulk_tasks::messages::BulkMessage;
use crate::server::multi_shard::messages::{FlowMessage, ParentLinkMessage};
use crate::server::shard_mail::inbox::MESSAGE_STEPS_MAX;
use crate::server::shard_mail::message::{Batch, Message};
use crate::server::shard_server::ShardServer;
use crate::server::storage::engine::Engine;
use corq_io::log::{Lack, LogError};
use corq_io::net::Connections;
use std::collections::VecDeque;

/// Messages that wait, in order. No more than all connections may have unanswered.
pub type StalledMessages = VecDeque<Batch>;

/// Notices that may wait before no other command is begun; one command more may leave its own.
const NOTICES_WAITING_MAX: u64 = 4000;

/// Until a disk that was full and had room for a while counts as one that had not been full.
const ROOM_LASTS_MS: u64 = 10_000;

/// Whether it has been said that pushes are refused: once, and not again at each file that comes back for a moment.
#[derive(Debug, Default)]
pub struct DiskFullNotice {
    said: bool,
    /// Since when there is room again.
    room_since_ms: Option<u64>,
    /// Since when the log has lacked something for its next file, or its files have been gone.
    lacking_since_ms: Option<u64>,
}

impl DiskFullNotice {
    /// Whether it is full, or was not long ago.
    pub(crate) fn is_full(&self) -> bool {
        self.said
    }

    /// Since when the log has lacked something, if it does.
    pub fn lacking_since_ms(&self) -> Option<u64> {
        self.lacking_since_ms
    }

    /// Once per turn.
    fn note_lack(&mut self, lacking: bool, now_ms: u64) {
        self.lacking_since_ms = lacking.then(|| self.lacking_since_ms.unwrap_or(now_ms));
    }

    /// Whether it is full now. True or false if that is to be said.
    fn note(&mut self, full: bool, now_ms: u64) -> Option<bool> {
        if full {
            self.room_since_ms = None;
            return (!std::mem::replace(&mut self.said, true)).then_some(true);
        }
        let since_ms = *self.room_since_ms.get_or_insert(now_ms);
        let lasts = self.said && now_ms >= since_ms.saturating_add(ROOM_LASTS_MS);
        self.said &= !lasts;
        lasts.then_some(false)
    }
}

/// The cause for which no other file of the log can be made, as words for people.
pub(crate) fn lacking(lack: Option<Lack>) -> &'static str {
    match lack {
        Some(Lack::Space) | None => "the disk is full",
        Some(Lack::Descriptors) => "the system opens no more files (ulimit -n)",
        Some(Lack::Memory) => "the system has no memory for another file",
        Some(Lack::Other) => "another file cannot be made where the log lies",
    }
}

/// The state of the log that a message waits for before it is read.
enum Needs {
    /// The message writes nothing, or must be read at once.
    Nothing,
    /// Needs room in the log only: the message adds nothing that other shards have to catch up on.
    Room,
    /// Needs room in the log, and few notices that wait for other shards.
    Calm,
}

/// Messages that wait are read in the order in which they were said.
fn needs_of(message: &Message) -> Needs {
    match message {
        Message::Request { .. }
        | Message::Push { .. }
        | Message::BatchPart { .. }
        | Message::Bulk(BulkMessage::Act { .. }) => Needs::Calm,
        // Notices and reports take work off other shards, and leaving clients free jobs: these only need space.
        Message::Notice(_) | Message::Report { .. } | Message::Leave { .. } => Needs::Room,
        Message::ParentLink(message) => match message {
            ParentLinkMessage::Edge { .. }
            | ParentLinkMessage::Patch { .. }
            | ParentLinkMessage::Abandon { .. } => Needs::Calm,
            ParentLinkMessage::AskChild { .. }
            | ParentLinkMessage::Child { .. }
            | ParentLinkMessage::AskParent { .. }
            | ParentLinkMessage::Parent { .. }
            | ParentLinkMessage::Done { .. } => Needs::Nothing,
        },
        Message::Flow(message) => match message {
            FlowMessage::Stage { .. } => Needs::Calm,
            // Decisions of a flow must not come behind the word that all has been said.
            FlowMessage::Staged { .. } | FlowMessage::Decided { .. } | FlowMessage::Come { .. } => {
                Needs::Nothing
            }
        },
        Message::Large(_)
        | Message::Reply { .. }
        | Message::List { .. }
        | Message::SharedReply { .. }
        | Message::Carried { .. }
        | Message::Taken { .. }
        | Message::FrameTaken { .. }
        | Message::Adopt(_)
        | Message::Claim { .. }
        | Message::Claimed { .. }
        | Message::Reserve { .. }
        | Message::Unclaim { .. }
        | Message::Named { .. }
        | Message::Probe { .. }
        | Message::Probed { .. }
        | Message::Seen { .. }
        | Message::Resolve { .. }
        | Message::Resolved { .. }
        | Message::Stand { .. }
        | Message::Stood { .. }
        | Message::AskParents { .. }
        | Message::Parents { .. }
        | Message::BatchPartDone { .. }
        | Message::Scatter { .. }
        | Message::Gather { .. }
        | Message::Rows(_)
        | Message::Figures(_)
        | Message::Look(_)
        | Message::Bulk(_)
        | Message::Queues(_)
        | Message::Cut { .. }
        | Message::CountRequest { .. }
        | Message::RequestCounted { .. }
        | Message::Events(_)
        | Message::AccessChanged
        | Message::Cron(_)
        | Message::Webhook(_)
        | Message::Open => Needs::Nothing,
    }
}

impl ShardServer {
    /// Whether the next command has to wait: a look at a flag and a number, unless the disk is full.
    #[inline]
    pub(crate) fn must_stall(&mut self) -> bool {
        if !self.saturated && (self.must_pause() || self.is_command_memory_full()) {
            self.saturated = true;
        }
        self.stopping || self.saturated
    }

    /// Whether commands and messages have to wait for room in the log, for the notices of those before them to be given, or
    /// for their large answers to become text or to arrive at other shards.
    #[inline]
    pub(crate) fn must_pause(&mut self) -> bool {
        self.engine.shard.notices_waiting() > NOTICES_WAITING_MAX
            || self.transcodings.writes_too_much()
            || self.large_replies.is_backed_up()
            || self.is_stalled()
    }

    #[inline]
    pub(crate) fn is_stalled(&mut self) -> bool {
        let Engine { shard, journal } = &mut self.engine;
        // At the end no more commands come, and those under way have their room.
        !self.stopping && journal.is_stalled(shard)
    }

    /// Logs, once, if there is no space left for what is to be written: it waits in memory, and so do the answers that depend
    /// on it.
    pub fn note_exhaustion(&mut self) {
        let log = &self.engine.journal.log;
        let lack = log.lack();
        let lacks = lack.is_some() || self.data_presence.is_gone();
        self.disk_full_notice.note_lack(lacks, self.now_ms);
        let exhausted = lack.is_some() && log.unwritten_bytes() > 0 && log.room_bytes() == 0;
        let megabytes = log.segment_bytes() >> 20;
        if exhausted && !self.exhausted {
            match lack {
                Some(Lack::Space) => tracing::error!(
                    shard = self.me,
                    "shard {}: the disk is full, and what was kept for ending jobs is used up: nothing is \
                     answered that needs a record until there is room for a file of {megabytes} MB",
                    self.me,
                ),
                lack => tracing::error!(
                    shard = self.me,
                    "shard {}: {}, and the files that were open beforehand are used up: nothing is answered that \
                     needs a record until one of {megabytes} MB can be opened",
                    self.me,
                    lacking(lack),
                ),
            }
        }
        self.exhausted = exhausted;
        if self.disk_full_notice.said || lack == Some(Lack::Space) {
            self.log_disk_full(lack);
        }
        let lack = lack.filter(|&lack| lack != Lack::Space);
        if lack.is_some() && lack != self.said_lack {
            tracing::error!(
                shard = self.me,
                "shard {}: {}: the log makes no file for what comes, and tries again every second",
                self.me,
                lacking(lack),
            );
        } else if lack.is_none() && self.said_lack.is_some() {
            tracing::info!(shard = self.me, "shard {}: the log makes files again", self.me);
        }
        self.said_lack = lack;
        self.note_stuck_removal();
    }

    /// Says, once, that a segment which is needed no more cannot be removed, and that it could be after all.
    fn note_stuck_removal(&mut self) {
        let stuck = self.engine.journal.log.stuck_removal();
        if stuck.is_some() == self.said_stuck {
            return;
        }
        self.said_stuck = stuck.is_some();
        match stuck {
            Some(LogError { file, errno, .. }) => tracing::error!(
                shard = self.me,
                "shard {}: {file} is needed no more and cannot be removed: {}: the log goes on, tries again every second, and \
                 removes no other segment before",
                self.me,
                std::io::Error::from_raw_os_error(errno),
            ),
            None => {
                tracing::info!(
                    shard = self.me,
                    "shard {}: the log removes segments again",
                    self.me
                );
            }
        }
    }

    /// Says, once, that pushes are refused for want of space, and that they are taken again.
    #[cold]
    fn log_disk_full(&mut self, lack: Option<Lack>) {
        let Engine { shard, journal } = &self.engine;
        let full = lack == Some(Lack::Space) && journal.is_full(&shard.space_forecast());
        match self.disk_full_notice.note(full, self.now_ms) {
            Some(true) => tracing::error!(
                shard = self.me,
                "shard {}: the disk is full, or the log has all of DATA_MAX_MB: pushes are refused, jobs that are there can \
                 be worked off, which makes room; another {} MB are asked for every second",
                self.me,
                journal.log.segment_bytes() >> 20,
            ),
            Some(false) => {
                tracing::info!(
                    shard = self.me,
                    "shard {}: there is room again: pushes are taken",
                    self.me
                );
            }
            None => {}
        }
    }

    /// Whether a message has to wait behind others or for room.
    pub(crate) fn stalls(&mut self, message: &Message, others_wait: bool) -> bool {
        match needs_of(message) {
            Needs::Nothing => false,
            Needs::Room => others_wait || self.is_stalled(),
            Needs::Calm => others_wait || self.must_pause(),
        }
    }

    /// Reads the messages that have waited, as far as there is space.
    pub fn read_stalled_messages(&mut self, conns: &mut Connections) {
        let until = self.steps() + MESSAGE_STEPS_MAX;
        while !self.stalled_messages.is_empty() && !self.must_pause() && self.steps() < until {
            let Some(batch) = self.stalled_messages.pop_front() else { return };
            if let Some(rest) = self.read_again(conns, batch, until) {
                self.stalled_messages.push_front(rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_said_once_and_room_only_when_it_lasts() {
        let mut disk_full_notice = DiskFullNotice::default();
        assert_eq!(disk_full_notice.note(false, 0), None);
        assert_eq!(disk_full_notice.note(true, 1), Some(true));
        for now_ms in 2..50 {
            assert_eq!(
                disk_full_notice.note(now_ms % 3 == 0, now_ms * 1000),
                None,
                "it comes and goes"
            );
        }
        assert_eq!(disk_full_notice.note(true, 50_000), None);
        assert_eq!(disk_full_notice.note(false, 51_000), None);
        assert_eq!(disk_full_notice.note(false, 61_000), Some(false));
        assert_eq!(disk_full_notice.note(false, 99_000), None);
        assert_eq!(disk_full_notice.note(true, 99_001), Some(true));
    }
}
