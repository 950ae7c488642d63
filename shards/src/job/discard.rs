//! Jobs that are sent to the dead-letter queue by hand, and taken out of it.

use crate::event::Extra;
use crate::job::State;
use crate::lease::ack::Reason;
use crate::log_record::Journal;
use crate::shard::{Out, Shard};

impl Shard {
    /// Sends a job to the dead-letter queue. What lies in the dead-letter queue stays as it is.
    pub(super) fn discard<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        attempts: Option<u16>,
        reason: Reason<'_>,
        out: &mut Out<'_, J>,
    ) {
        let about = &self.jobs.slab[job];
        if about.state != State::Failed {
            // Never fewer than are remembered of it: what is remembered of them goes with the last attempt.
            let attempts = attempts.unwrap_or_default().max(about.attempts);
            let stalls = about.stalls;
            self.emit_extra(now_ms, job, Extra::Discarded, out.effects);
            self.bury(now_ms, job, attempts, stalls, reason, out);
        }
    }

    /// Removes a job of the dead-letter queue of this queue. False if it is none.
    pub(super) fn bin<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        queue: &str,
        out: &mut Out<'_, J>,
    ) -> bool {
        let about = &self.jobs.slab[job];
        let of = *queue == *self.queues[about.queue].name;
        let dead = of && about.state == State::Failed;
        if dead {
            self.remove_one(now_ms, job, out);
        }
        dead
    }
}
