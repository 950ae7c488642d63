//! Signals from outside: those that end the server, and the one that has it read its certificate again.

use super::certificate;
use corq_io::signal::{Signal, Signals};
use corq_io::tls::Keeper;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
pub struct Ears {
    signals: Signals,
    keeper: Option<Arc<Keeper>>,
}

impl Ears {
    /// Signals that were blocked before the first thread, and what they are about.
    pub fn new(signals: Signals, keeper: Option<Arc<Keeper>>) -> Self {
        Self { signals, keeper }
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

    /// Without a certificate there is nothing to read again: then a terminal has gone.
    fn ends(&self, signal: Signal) -> bool {
        match (signal, &self.keeper) {
            (Signal::Hangup, Some(keeper)) => {
                certificate::reload(keeper);
                false
            }
            _ => true,
        }
    }
}
