//! The clock as the log shows it, and how a clock that was ahead is set back.
//!
//! A ground type: it knows times and ids.

use crate::job::id::JobId;

/// Clocks are corrected by this much all the time, in milliseconds.
pub(crate) const CORRECTED_MS: u64 = 10_000;

/// No command asks for a time that is further away, but for series and for jobs that say themselves when they were made.
pub(crate) const FAR_MS: u64 = 365 * 86_400_000;

/// The clock as the log shows it, as far as the log has been read.
#[derive(Debug, Default)]
#[allow(clippy::struct_field_names, reason = "a unit comes last")]
pub(crate) struct LogClock {
    /// The time of the last record that tells one; after recovery, that of the last call.
    now_ms: u64,
    /// The latest time in an id.
    ids_ms: u64,
    /// Ids up to this time say nothing: ids rise, so those made after a clock was set back go on from where it was.
    stuck_ms: u64,
    /// When it was last written down for its own sake.
    noted_ms: u64,
}

/// How a clock is set back: see [`crate::log_record::Record::ClockSetBack`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetBack {
    /// The time that the clock ahead had come to.
    pub from_ms: u64,
    /// The time of the right clock.
    pub to_ms: u64,
    /// See `LogClock`; before this one was set back.
    pub stuck_ms: u64,
}

impl SetBack {
    /// By how much.
    pub fn by_ms(&self) -> u64 {
        self.from_ms.saturating_sub(self.to_ms)
    }

    /// A time that the clock which was ahead has set: as far from now on as it was then.
    pub(crate) fn moved(&self, at_ms: u64) -> u64 {
        at_ms.saturating_sub(self.by_ms()).max(self.to_ms.min(at_ms))
    }

    /// Whether the clock that was ahead has pushed a job.
    fn has_pushed(&self, id: JobId) -> bool {
        id.made_at_ms() > self.to_ms.max(self.stuck_ms.saturating_add(CORRECTED_MS))
    }

    /// Whether nothing tells which clock has pushed a job: it came after a clock was set back, and ids stay where that was.
    fn is_unknown(&self, id: JobId) -> bool {
        id.made_at_ms() > self.to_ms && !self.has_pushed(id)
    }

    /// Whether a time, which may be as far away as a client likes, is one of the clock that was ahead. Of a job that may be of
    /// either clock, it is if it is further away than commands ask for, and close to what that clock had come to.
    pub(crate) fn has_set(&self, id: JobId, at_ms: u64) -> bool {
        let is_close = at_ms > self.to_ms.saturating_add(FAR_MS)
            && at_ms.saturating_add(FAR_MS) >= self.from_ms;
        self.has_pushed(id) && at_ms >= id.made_at_ms() || self.is_unknown(id) && is_close
    }

    /// A time of a job that lies ahead: moved, if it is known to be set by the clock that was ahead.
    pub(crate) fn judged(&self, id: JobId, at_ms: u64) -> u64 {
        let far = at_ms > self.to_ms.saturating_add(FAR_MS);
        if far { self.moved(at_ms) } else { self.judged_by_id(id, at_ms) }
    }

    /// Moves a time back if the clock ahead has set it. As `judged`, but a time far away is not moved for that alone:
    /// clients may ask for it.
    pub(crate) fn judged_by_id(&self, id: JobId, at_ms: u64) -> u64 {
        if self.has_set(id, at_ms) { self.moved(at_ms) } else { at_ms }
    }
}

impl LogClock {
    /// An id was made for a job that came: before it came, where it is of a flow that began on another shard.
    pub(crate) fn note_made(&mut self, id: JobId) {
        let made_at_ms = id.made_at_ms();
        if made_at_ms > self.ids_ms {
            self.ids_ms = made_at_ms;
            if made_at_ms > self.stuck_ms.saturating_add(CORRECTED_MS) {
                self.now_ms = self.now_ms.max(made_at_ms);
            }
        }
    }

    /// The time, and the time up to which ids say nothing of it: what a replay of the records behind these has to know.
    pub(crate) fn told(&self) -> (u64, u64) {
        (self.now_ms, self.stuck_ms)
    }

    /// Applies [`crate::log_record::snapshot::Kept::Clock`].
    pub(crate) fn learn(&mut self, at_ms: u64, stuck_ms: u64) {
        (self.now_ms, self.stuck_ms, self.noted_ms) = (at_ms, stuck_ms, at_ms);
    }

    /// Follows the clock of a call.
    #[inline]
    pub(crate) fn show(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Whether jobs that are pushed now will not tell how late it was.
    pub(crate) fn is_silent(&self, now_ms: u64) -> bool {
        self.stuck_ms > 0 && now_ms <= self.stuck_ms.saturating_add(CORRECTED_MS)
    }

    /// Whether a time that is set at `now_ms` could be the only word of a clock that is far ahead.
    pub(crate) fn is_untold(&self, now_ms: u64) -> bool {
        now_ms > self.noted_ms.saturating_add(CORRECTED_MS / 2) || now_ms < self.noted_ms
    }

    /// How it is to be set back, if it is later than `to_ms`, beyond what clocks are corrected by.
    pub(crate) fn judge(&self, to_ms: u64) -> Option<SetBack> {
        let back = SetBack { from_ms: self.now_ms, to_ms, stuck_ms: self.stuck_ms };
        (back.by_ms() > CORRECTED_MS).then_some(back)
    }

    /// Takes over a clock that was set back: ids stay where they are, and say nothing of it until it has passed them.
    pub(crate) fn follow(&mut self, back: SetBack) {
        self.now_ms = back.to_ms;
        self.stuck_ms = self.ids_ms;
        self.noted_ms = 0;
    }

    /// Ids up to this one have been made.
    pub(crate) fn note_ids(&mut self, highest: JobId) {
        self.ids_ms = self.ids_ms.max(highest.made_at_ms());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_was_made_earlier_hides_no_clock_that_is_ahead() {
        let mut clock = LogClock::default();
        let at = |ms: u64| JobId(u128::from(ms) << 80);
        clock.note_made(at(1_000_000));
        clock.show(9_000_000);
        clock.note_made(at(1_000_001));
        assert_eq!(clock.judge(1_000_002).map(|back| back.from_ms), Some(9_000_000));
    }
}
