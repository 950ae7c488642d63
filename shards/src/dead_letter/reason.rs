//! Why a job is in the dead-letter queue, in a word: what listings are filtered by. The text of the
//! failure stands in its record.

/// Why a job failed for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// Something else, or buried by a release that did not say.
    #[default]
    Unknown,
    /// The worker said that no other attempt can succeed.
    Explicit,
    /// The last attempt failed.
    Attempts,
    /// The last attempt took too long.
    Timeout,
    /// Workers went silent too often.
    Stalled,
    /// The job's life was over. Written by no release so far: such jobs are removed.
    Expired,
    /// The worker is gone. Written by no release so far: such jobs wait again.
    WorkerLost,
}

impl Cause {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Explicit,
        Self::Attempts,
        Self::Timeout,
        Self::Stalled,
        Self::Expired,
        Self::WorkerLost,
    ];

    /// The names that clients see, in the same order.
    pub const NAMES: &'static [&'static str] = &[
        "unknown",
        "explicit_fail",
        "max_attempts_exceeded",
        "timeout",
        "stalled",
        "ttl_expired",
        "worker_lost",
    ];

    /// The cause that is written as `number`.
    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The name that clients see.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_number_and_its_name() {
        assert_eq!(Cause::ALL.len(), Cause::NAMES.len());
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(Cause::of(number as u8), Some(cause));
            assert_eq!(Cause::NAMES[number], cause.name());
        }
        assert_eq!(Cause::of(Cause::ALL.len() as u8), None);
    }
}
