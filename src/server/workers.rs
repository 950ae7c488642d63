//! Registered workers: who says it works here. A registration lives with its connection, on the
//! shard that has it, and ends with it or after long silence; it survives no restart.

use corq_io::net::ConnId;
use std::collections::BTreeMap;

/// Silence after which a worker counts as gone (decisions.md section 5).
pub const SILENCE_MS_MAX: u64 = 90_000;

/// Registrations a shard keeps; beyond that the most silent one goes.
pub const WORKERS_MAX: usize = 10_000;

/// One registration.
#[derive(Clone, Debug)]
pub struct Worker {
    /// The connection that registered it.
    pub conn: ConnId,
    /// When it last said something.
    pub last_seen_ms: u64,
}

/// The workers of one shard, by id.
#[derive(Debug, Default)]
pub struct Workers(BTreeMap<Box<str>, Worker>);

impl Workers {
    /// Takes in a worker, or a new registration of it.
    pub fn register(&mut self, id: &str, conn: ConnId, now_ms: u64) {
        self.0.retain(|_, worker| worker.last_seen_ms + SILENCE_MS_MAX > now_ms);
        if self.0.len() >= WORKERS_MAX
            && let Some(silent) = self.0.iter().min_by_key(|(_, worker)| worker.last_seen_ms)
        {
            let silent = silent.0.clone();
            self.0.remove(&silent);
        }
        self.0.insert(id.into(), Worker { conn, last_seen_ms: now_ms });
    }

    /// A sign of life. False if the worker is not known.
    pub fn seen(&mut self, id: &str, now_ms: u64) -> bool {
        let worker = self.0.get_mut(id);
        if let Some(worker) = worker {
            worker.last_seen_ms = now_ms;
            return true;
        }
        false
    }

    /// Ends a registration. False if there was none.
    pub fn unregister(&mut self, id: &str) -> bool {
        self.0.remove(id).is_some()
    }

    /// A connection is gone, and its workers with it.
    pub fn leave(&mut self, conn: ConnId) {
        if !self.0.is_empty() {
            self.0.retain(|_, worker| worker.conn != conn);
        }
    }
}
