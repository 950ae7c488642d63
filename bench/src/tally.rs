//! Counts of a phase: every reply, every error, and the times.

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
    /// Whether an open loop was given up because the server is too slow for its rate.
    pub(crate) rate_missed: bool,
    /// Why the phase ended before its time: the server is gone or too slow, and what it left is no error of its own.
    pub(crate) cut_short: Option<String>,
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
            rate_missed: false,
            cut_short: None,
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

    /// Adds the counts and times of a later span of the same work.
    pub(crate) fn add(&mut self, later: &Self) {
        let counts = [
            (&mut self.pushed, later.pushed),
            (&mut self.received, later.received),
            (&mut self.acked, later.acked),
            (&mut self.empty_pulls, later.empty_pulls),
            (&mut self.errors, later.errors),
            (&mut self.span_ns, later.span_ns),
        ];
        for (sum, more) in counts {
            *sum += more;
        }
        let times = [
            (&mut self.push_trip, &later.push_trip),
            (&mut self.pull_trip, &later.pull_trip),
            (&mut self.ack_trip, &later.ack_trip),
            (&mut self.push_to_receipt, &later.push_to_receipt),
            (&mut self.send_lag, &later.send_lag),
        ];
        for (sum, more) in times {
            sum.add(more).expect("all histograms have the same bounds");
        }
        self.rate_missed |= later.rate_missed;
        self.first_error = self.first_error.take().or_else(|| later.first_error.clone());
        self.cut_short = self.cut_short.take().or_else(|| later.cut_short.clone());
    }

    /// Jobs that went all the way that this phase takes them.
    pub(crate) fn done(&self) -> u64 {
        if self.acked > 0 { self.acked } else { self.pushed.max(self.received) }
    }
}
