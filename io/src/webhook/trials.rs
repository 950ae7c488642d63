//! Posts that people ask for, to see whether a webhook answers: each at once and only once, beside the queues, whether its
//! webhook is enabled or not.

use super::client::Client;
use super::deliveries::{Delivery, Outcome};
use super::event::{Hook, Notice};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A post that was asked for. The one who asked looks for its outcome.
#[derive(Clone, Debug, Default)]
pub struct Trial(pub(super) Arc<OnceLock<Delivery>>);

impl Trial {
    /// How it went, once it is over.
    pub fn outcome(&self) -> Option<&Delivery> {
        self.0.get()
    }
}

/// A trial that has not begun.
pub(super) struct Asked {
    pub(super) hook: Arc<Hook>,
    pub(super) notice: Arc<Notice>,
    pub(super) trial: Trial,
}

/// A trial under way.
struct Running {
    asked: Asked,
    /// When it is broken off; not again after that.
    until: Option<Instant>,
    client: Client,
}

/// All trials.
#[derive(Default)]
pub(super) struct Trials {
    waiting: VecDeque<Asked>,
    running: BTreeMap<u64, Running>,
    next: u64,
}

impl Trials {
    pub(super) fn ask(&mut self, asked: Asked) {
        self.waiting.push_back(asked);
    }

    /// The webhook of the one that begins next.
    pub(super) fn next(&self) -> Option<&Arc<Hook>> {
        self.waiting.front().map(|asked| &asked.hook)
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// The next one begins. Returns its number, and what is posted.
    pub(super) fn begin(
        &mut self,
        client: Client,
        until: Instant,
    ) -> Option<(u64, Arc<Hook>, Arc<Notice>)> {
        let asked = self.waiting.pop_front()?;
        let (hook, notice) = (Arc::clone(&asked.hook), Arc::clone(&asked.notice));
        self.next += 1;
        self.running.insert(self.next, Running { asked, until: Some(until), client });
        Some((self.next, hook, notice))
    }

    /// Ends a trial: remembers its delivery, and hands it to the asker.
    pub(super) fn end(&mut self, number: u64, outcome: &Outcome) {
        let Some(Running { asked, .. }) = self.running.remove(&number) else { return };
        let about = (asked.notice.event(), asked.notice.job());
        let delivery = outcome.delivery(about, 1, true);
        asked.hook.note_delivery(delivery.clone());
        // Ignore the result: each trial is set once.
        let _ = asked.trial.0.set(delivery);
    }

    /// When the next one is to be broken off.
    pub(super) fn next_until(&self) -> Option<Instant> {
        self.running.values().filter_map(|running| running.until).min()
    }

    /// Breaks off those that have outlived their limit: a receiver that reads or writes byte by byte can outlive the
    /// client's own limits.
    pub(super) fn break_off(&mut self, now: Instant) {
        for running in self.running.values_mut() {
            if running.until.take_if(|until| *until <= now).is_some() {
                running.client.clone().break_off();
            }
        }
    }

    /// All are given up: those who asked have been answered.
    pub(super) fn stop(&mut self) {
        self.waiting.clear();
        for running in self.running.values_mut() {
            running.until = None;
            running.client.clone().break_off();
        }
    }
}
