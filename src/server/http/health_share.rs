//! Figures of a shard for `/health` and `/heapstats`.

use super::health::{Figures, Trouble};
use super::rate_limit::Limiter;
use crate::server::connection::protocol::Protocol;
use crate::server::shard_mail::message::GatheredPart;
use crate::server::shard_server::ShardServer;
use corq_io::log::Lack;

impl ShardServer {
    /// This shard's figures.
    pub(crate) fn share_of_figures(&self) -> GatheredPart {
        let held = self.engine.shard.holdings();
        let log = &self.engine.journal.log;
        let log_memory_bytes = log.memory_bytes() as u64;
        let objects = [
            held.jobs,
            held.queues,
            held.leases,
            held.timers,
            held.waiters,
            held.unique_keys,
            held.crons,
            held.watches,
            held.completed_ids,
            held.completed_names,
            self.directory.len(),
            self.workers.len(),
            self.sessions.count(Protocol::Frames),
            self.sessions.count(Protocol::Http),
            self.sessions.count(Protocol::WebSocket),
            self.sessions.count(Protocol::Events),
            self.parked.len(),
            self.tasks.len(),
            self.http.limiter.as_ref().map_or(0, Limiter::len),
            log.memory_bytes() >> 20,
        ];
        let no_room = Trouble::NoRoom(log.lack().unwrap_or(Lack::Space));
        let troubles = [
            (self.stopping, Trouble::Stopping),
            (self.data_presence.is_gone(), Trouble::Gone),
            (self.saturated && self.is_disk_behind(), Trouble::DiskBehind),
            (self.engine.journal.is_full(&self.engine.shard.space_forecast()), no_room),
        ];
        let trouble = troubles.into_iter().find_map(|(is, trouble)| is.then_some(trouble));
        let objects = objects.map(|count| count as u64);
        // A lack that began in this very turn has not been noted yet.
        let lacks = trouble.is_some_and(Trouble::is_of_storage);
        let noted_ms = self.disk_full_notice.lacking_since_ms();
        let lacking_since_ms = noted_ms.or(lacks.then_some(self.now_ms));
        GatheredPart::Figures(Box::new(Figures {
            shards: 1,
            objects,
            log_memory_bytes,
            trouble,
            lacking_since_ms,
        }))
    }
}
