//! When a failed job is tried again. Rule: `backoff` in `docs/protocol.md`, "Jobs".

use crate::job::id::JobId;
use crate::job::overrides::{Extras, Growth};

/// Longest wait between two attempts of a job that names no other, unless its base is longer.
const BACKOFF_MS_MAX: u64 = 3_600_000;

/// The wait before the next attempt of a job that says nothing of its backoff but the base.
pub fn backoff_ms(base_ms: u32, attempts: u16, id: JobId) -> u64 {
    exponential_ms(base_ms, attempts, id, ceiling_ms(base_ms, None))
}

/// Longest wait: what the job says, or else an hour or the base, whichever is longer.
fn ceiling_ms(base_ms: u32, given_ms: Option<u32>) -> u64 {
    given_ms.map_or(BACKOFF_MS_MAX.max(base_ms.into()), u64::from)
}

/// The wait before the next attempt, after `attempts` have failed: exponential in the attempts, with
/// up to a fifth added, taken from the id so that it is the same wherever it is computed.
fn exponential_ms(base_ms: u32, attempts: u16, id: JobId, most_ms: u64) -> u64 {
    if base_ms == 0 {
        return 0;
    }
    let doublings = u32::from(attempts.saturating_sub(1)).min(22);
    let wait_ms = (u64::from(base_ms) << doublings).min(most_ms);
    // The id's chance bits lie above its slot; a prime keeps all of them in play.
    let spread = ((id.0 >> 12) as u64 % 997) * (wait_ms / 5) / 996;
    (wait_ms + spread).min(most_ms)
}

impl Extras {
    /// The wait before the next attempt of a job, after `attempts` have failed.
    pub fn backoff_ms(&self, base_ms: u32, attempts: u16, id: JobId) -> u64 {
        let most_ms = ceiling_ms(base_ms, self.backoff_max_ms);
        match self.backoff {
            Some(Growth::Fixed) => u64::from(base_ms).min(most_ms),
            Some(Growth::Exponential) | None => exponential_ms(base_ms, attempts, id, most_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_and_never_comes_early() {
        for chance in 0..2000_u128 {
            let id = JobId(chance << 12);
            for attempts in 1..=5_u16 {
                let least = 1000 << (attempts - 1);
                let wait = backoff_ms(1000, attempts, id);
                assert!((least..=least + least / 5).contains(&wait), "{wait} after {attempts}");
            }
        }
    }

    #[test]
    fn backoff_has_a_ceiling_and_zero_means_at_once() {
        assert_eq!(backoff_ms(1000, 1000, JobId(0)), BACKOFF_MS_MAX);
        assert_eq!(backoff_ms(1, 1000, JobId(0)), 4_194_304.min(BACKOFF_MS_MAX));
        assert_eq!(backoff_ms(0, 9, JobId(0)), 0);
    }

    #[test]
    fn a_base_beyond_an_hour_is_its_own_ceiling() {
        let fixed = Extras { backoff: Some(Growth::Fixed), ..Extras::default() };
        for attempts in [1, 2, 9] {
            assert_eq!(fixed.backoff_ms(7_200_000, attempts, JobId(0)), 7_200_000);
            assert_eq!(backoff_ms(86_400_000, attempts, JobId(0)), 86_400_000);
        }
        let capped = Extras { backoff_max_ms: Some(60_000), ..fixed };
        assert_eq!(capped.backoff_ms(7_200_000, 1, JobId(0)), 60_000);
    }

    #[test]
    fn a_fixed_wait_stays_and_every_wait_has_its_ceiling() {
        let fixed = Extras { backoff: Some(Growth::Fixed), ..Extras::default() };
        let capped = Extras { backoff_max_ms: Some(2500), ..Extras::default() };
        for attempts in 1..=9 {
            assert_eq!(fixed.backoff_ms(700, attempts, JobId(0)), 700);
            assert!(capped.backoff_ms(1000, attempts, JobId(0)) <= 2500);
        }
        assert_eq!(capped.backoff_ms(1000, 9, JobId(0)), 2500);
        let long = Extras { backoff_max_ms: Some(86_400_000), ..fixed };
        assert_eq!(long.backoff_ms(86_400_000, 1, JobId(0)), 86_400_000);
    }
}
