//! Signals from outside: those that end the server, the one that has it read its certificate again, and those that mean
//! nothing to it and would end it if nothing heard them.

use super::certificate;
use corq_io::signal::{Signal, Signals};
use corq_io::tls::CertificateStore;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A signal without a meaning is logged once within this time, however often it comes: a limit on CPU time sends one a
/// second.
const TOLD_FOR: Duration = Duration::from_mins(1);

/// The signals that the server handles.
pub struct SignalHandler {
    signals: Signals,
    certificates: Option<Arc<CertificateStore>>,
    /// Signals that meant nothing, and when that was said. There are some seventy of them.
    told: RefCell<Vec<(Signal, Instant)>>,
}

impl SignalHandler {
    /// Signals that were blocked before the first thread, and what they are about.
    pub fn new(signals: Signals, certificates: Option<Arc<CertificateStore>>) -> Self {
        Self { signals, certificates, told: RefCell::default() }
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
        match (signal, &self.certificates) {
            (signal, _) if signal.is_stop() => return true,
            (Signal::Hangup, Some(certificates)) => certificate::reload(certificates),
            (signal, _) => self.pass_over(signal),
        }
        false
    }

    fn pass_over(&self, signal: Signal) {
        let mut told = self.told.borrow_mut();
        told.retain(|(_, at)| at.elapsed() < TOLD_FOR);
        if told.iter().any(|(known, _)| *known == signal) {
            return;
        }
        told.push((signal, Instant::now()));
        let why =
            if signal == Signal::Hangup { ", without a certificate to read again" } else { "" };
        tracing::warn!(
            "{signal} came and means nothing here{why}: the server goes on; SIGTERM ends it"
        );
    }
}
