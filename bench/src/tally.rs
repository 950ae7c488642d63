//! What a phase counted: every reply, every error, and the times.

use hdrhistogram::Histogram;

use crate::pipeline::Kind;

/// Counts and times of one phase.
pub(crate) struct Tally {
    pub(crate) pushed: u64,
    pub(crate) received: u64,
    pub(crate) acked: u64,
    pub(crate) empty_pulls: u64,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) span_ns: u64,
    /// Request to reply. In a closed loop this is what the window makes it.
    pub(crate) push_trip: Histogram<u64>,
    pub(crate) pull_trip: Histogram<u64>,
    pub(crate) ack_trip: Histogram<u64>,
    /// Open loop: from the time a push was due to leave until a worker had the job.
    pub(crate) push_to_receipt: Histogram<u64>,
    /// Open loop: how late the generator itself was; it is part of the above.
    pub(crate) send_lag: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        // The bounds are constants within what the histogram allows.
        let histogram =
            || Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are in order");
        Self {
            pushed: 0,
            received: 0,
            acked: 0,
            empty_pulls: 0,
            errors: 0,
            first_error: None,
            span_ns: 0,
            push_trip: histogram(),
            pull_trip: histogram(),
            ack_trip: histogram(),
            push_to_receipt: histogram(),
            send_lag: histogram(),
        }
    }

    pub(crate) fn trip(&mut self, kind: Kind, nanoseconds: u64) {
        match kind {
            Kind::Push => self.push_trip.saturating_record(nanoseconds),
            Kind::Pull => self.pull_trip.saturating_record(nanoseconds),
            Kind::Ack => self.ack_trip.saturating_record(nanoseconds),
        }
    }

    pub(crate) fn fail(&mut self, text: impl FnOnce() -> String) {
        self.errors += 1;
        if self.first_error.is_none() {
            self.first_error = Some(text());
        }
    }

    /// Jobs that went all the way that this phase takes them.
    pub(crate) fn done(&self) -> u64 {
        if self.acked > 0 { self.acked } else { self.pushed.max(self.received) }
    }
}
