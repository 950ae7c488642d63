//! The audit log of a server: opened before its shards, closed behind them, with entries of its start, its end, and of what is read
//! again.

use super::error::{StartError, other};
use crate::audit::FOLDER;
use crate::audit::entry::{Entry, FAILED, OK, Who};
use crate::audit::names::{KEY_BYTES, NameKey};
use crate::audit::store::Store;
use crate::audit::writer::{AuditLog, now_ms};
use crate::config::Config;
use crate::server::access::guard::Guard;
use corq_io::line_files::Bounds;
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

/// Names in the audit log for acts of the server itself, which no command of a client causes.
const START: &str = "Start";
const STOP: &str = "Stop";
const RELOAD: &str = "Reload";

/// The audit log, once it is open; nothing without one.
#[derive(Default)]
pub struct Audit(OnceLock<AuditLog>);

impl Audit {
    /// Opens it, beside the logs of the shards if there is a data directory, and names the tokens.
    pub fn open(
        &self,
        config: &Config,
        data: Option<&Path>,
        guard: &Guard,
    ) -> Result<(), StartError> {
        if !config.audit {
            return Ok(());
        }
        let failed = |error: io::Error| match data {
            Some(data) => {
                let folder = data.join(FOLDER);
                other(format!("AUDIT: {} (AUDIT=off starts without)", folder.display()), error)
            }
            None => other("AUDIT", error),
        };
        let bounds = Bounds {
            file_bytes_max: config.audit_max_mb << 20,
            files_max: usize::from(config.audit_files),
        };
        let store = match data {
            Some(data) => Store::in_folder(&data.join(FOLDER), bounds).map_err(failed)?,
            None => Store::in_memory(),
        };
        let mut fresh = [0; KEY_BYTES];
        let random = SystemRandom::new().fill(&mut fresh);
        random.map_err(|_| other("AUDIT", "the system gives no randomness"))?;
        let key = NameKey::new(&store.key(&fresh).map_err(failed)?);
        guard.name_tokens(key).map_err(StartError::Other)?;
        let log = AuditLog::start(store).map_err(failed)?;
        // An error would mean that the log is open already: `open` runs once, at the start.
        let _ = self.0.set(log);
        Ok(())
    }

    pub fn log(&self) -> Option<AuditLog> {
        self.0.get().cloned()
    }

    /// The server serves.
    pub fn note_start(&self, shards: usize) {
        let about = format!("corq {}, {shards} shards", env!("CARGO_PKG_VERSION"));
        self.note(START, about, OK);
    }

    /// Something was read again, or could not be.
    pub fn note_reload(&self, what: &str, outcome: Result<String, String>) {
        let (told, outcome) = match outcome {
            Ok(told) => (told, OK),
            Err(error) => (error, FAILED),
        };
        self.note(RELOAD, format!("{what}: {told}"), outcome);
    }

    /// The server ends: waits for all entries.
    pub fn end(&self, is_good: bool, give_up: Instant) {
        self.note(STOP, String::new(), if is_good { OK } else { FAILED });
        if let Some(log) = self.0.get() {
            log.stop(give_up);
        }
    }

    fn note(&self, what: &'static str, about: String, outcome: &'static str) {
        if let Some(log) = self.0.get() {
            log.note(Entry::new(now_ms(), Who::SERVER, what).about(about).ended(outcome));
        }
    }
}
