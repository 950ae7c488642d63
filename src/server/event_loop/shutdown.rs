//! The end of a shard: no more commands, and everybody who has asked something gets an answer.

use crate::server::shard_mail::message::Batch;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};
use corq_shards::Caller;
use corq_shards::command::Command;

impl ShardServer {
    /// Takes no more commands; pulls that wait get their empty answer.
    pub fn begin_to_end(&mut self, conns: &mut Connections) {
        self.stopping = true;
        self.apply(conns, Caller::default(), &Command::EndWaits);
        self.end_streams(conns);
    }

    /// Whether everybody here has an answer. `sent` tells of a connection's output.
    pub fn is_quiet(&self, sent: impl Fn(ConnId) -> bool) -> bool {
        self.tasks.is_empty()
            && self.cold.is_empty()
            && self.job_listings.is_empty()
            && self.large_replies.is_empty()
            && self.job_record_lists.is_empty()
            && self.priority_counts.is_empty()
            && self.child_value_reads.is_empty()
            && self.webhooks.outbox.is_empty()
            && self.parked.is_empty()
            && self.unread.is_none()
            && self.sessions.iter().all(|session| session.in_flight == 0 && sent(session.conn))
    }

    /// What still keeps [`ShardServer::is_quiet`] from being true, for people. `sent` as there.
    pub fn unfinished(&self, sent: impl Fn(ConnId) -> bool) -> String {
        let unanswered: u32 = self.sessions.iter().map(|session| session.in_flight).sum();
        let unread = self.sessions.iter().filter(|session| !sent(session.conn)).count();
        let log = &self.engine.journal.log;
        format!(
            "shard {} has {unanswered} commands unanswered, {} in several steps, {} with the engine, {} reads of payloads and {} \
             searches under way, {} set aside, {} bytes of the log on their way to the disk; {unread} connections have not taken all they \
             asked for",
            self.me,
            self.tasks.len(),
            self.parked.len(),
            self.cold.len(),
            self.job_listings.len()
                + self.job_record_lists.len()
                + self.priority_counts.len()
                + self.child_value_reads.len(),
            self.large_replies.len(),
            log.head().0 - log.released().0,
        )
    }

    /// Makes the other shards look around, by mail that says nothing.
    pub fn wake_others(&mut self) {
        for dest in (0..self.slots.shards()).filter(|&dest| dest != self.me) {
            self.outbox.send(dest, Batch::default());
        }
        self.outbox.flush();
    }
}
