//! Signals from outside: those that end the server, the one that has it read its settings, its certificate and its tokens
//! again, and those that mean nothing to it and would end it if nothing heard them.

use super::audit::Audit;
use super::certificate;
use super::live_settings::LiveSettings;
use crate::server::access::guard::Guard;
use corq_io::service_manager::ServiceManager;
use corq_io::signal::{Signal, Signals};
use corq_io::tls::CertificateStore;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A signal without a meaning is logged once within this time, however often it comes: a limit on CPU time sends one a
/// second.
const REPORTED_FOR: Duration = Duration::from_mins(1);

/// Everything that SIGHUP reads again, and the service manager and audit log that get the outcome.
pub struct Reloads {
    pub certificates: Option<Arc<CertificateStore>>,
    pub guard: Arc<Guard>,
    pub settings: Arc<LiveSettings>,
    /// Hears of it.
    pub manager: Arc<ServiceManager>,
    /// Keeps what has become of it.
    pub audit: Arc<Audit>,
}

impl Reloads {
    fn has_files(&self) -> bool {
        self.certificates.is_some() || self.guard.has_file() || self.settings.has_file()
    }

    /// Reads the files again that may have changed. What is wrong with one is said, and changes nothing.
    fn read_again(&self) {
        if self.settings.has_file() {
            self.audit.note_reload("settings", self.settings.read_again(&self.guard));
        }
        if let Some(certificates) = &self.certificates {
            self.audit.note_reload("certificate", certificate::reload(certificates));
        }
        if self.guard.has_file() {
            let outcome = self.guard.reload(None);
            let told = outcome.as_ref().map(|tokens| format!("{tokens} tokens"));
            self.audit.note_reload("tokens", told.map_err(Clone::clone));
            match outcome {
                Ok(tokens) => tracing::info!("the tokens were read again: there are {tokens}"),
                Err(error) => tracing::error!("the tokens stay as they were: {error}"),
            }
        }
    }
}

/// The signals that the server handles.
pub struct SignalHandler {
    signals: Signals,
    reloads: Reloads,
    /// The status of a server that is ready, for the service manager.
    status: RefCell<Option<String>>,
    /// Signals that meant nothing, and when that was said. There are some seventy of them.
    reported: RefCell<Vec<(Signal, Instant)>>,
}

impl SignalHandler {
    /// Signals that were blocked before the first thread, and what they are about.
    pub fn new(signals: Signals, reloads: Reloads) -> Self {
        Self { signals, reloads, status: RefCell::default(), reported: RefCell::default() }
    }

    /// The server is ready; `status` is a line for the service manager.
    pub fn is_ready(&self, status: &str) {
        self.reloads.manager.ready(status);
        *self.status.borrow_mut() = Some(status.to_owned());
    }

    /// How far a start is that no shard can report yet: a line for the service manager.
    pub fn progress(&self, text: &str) {
        self.reloads.manager.progress(text);
    }

    /// Tells the service manager that the process lives. Shards do not yet.
    pub fn is_alive(&self) {
        if self.reloads.manager.watchdog().is_some() {
            self.reloads.manager.alive();
        }
    }

    /// Sleeps until the end is wanted. Does `meanwhile` once in each `pause`.
    pub fn wait(&self, pause: Duration, mut meanwhile: impl FnMut()) -> io::Result<Signal> {
        loop {
            match self.signals.wait_for(pause)? {
                Some(signal) if self.ends(signal) => return Ok(signal),
                _ => meanwhile(),
            }
        }
    }

    /// Whether the end is wanted by now.
    pub fn wants_end(&self) -> Option<Signal> {
        // An error would mean that the set of signals is not one.
        let signal = self.signals.wait_for(Duration::ZERO).ok().flatten();
        signal.filter(|&signal| self.ends(signal))
    }

    fn ends(&self, signal: Signal) -> bool {
        match signal {
            signal if signal.is_stop() => return true,
            Signal::Hangup if self.reloads.has_files() || self.reloads.manager.is_there() => {
                self.read_again();
            }
            signal => self.pass_over(signal),
        }
        false
    }

    fn read_again(&self) {
        let Reloads { manager, .. } = &self.reloads;
        // A start that reads its files again is no readier for it.
        let status = self.status.borrow();
        if status.is_some() {
            manager.reloading();
        }
        self.reloads.read_again();
        if let Some(status) = &*status {
            manager.ready(status);
        }
    }

    fn pass_over(&self, signal: Signal) {
        let mut reported = self.reported.borrow_mut();
        reported.retain(|(_, at)| at.elapsed() < REPORTED_FOR);
        if reported.iter().any(|(known, _)| *known == signal) {
            return;
        }
        reported.push((signal, Instant::now()));
        let why = if signal == Signal::Hangup { ", without a file to read again" } else { "" };
        tracing::warn!(
            "{signal} came and means nothing here{why}: the server goes on; SIGTERM ends it"
        );
    }
}
