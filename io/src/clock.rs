//! The time of a turn: read once, used by all that happens in it.
//!
//! Wall clock in milliseconds since the epoch. It never goes backwards within a process: when
//! somebody sets the machine's clock back, time goes on from where it was at its usual pace, ahead of
//! the wall until the next start. (Standing still instead would hold every delay and lease for as
//! long as the clock was set back.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The latest time that any clock of the process has shown, microseconds.
static LATEST_US: AtomicU64 = AtomicU64::new(0);

/// A shard's clock.
#[derive(Debug)]
pub struct Clock {
    now_us: u64,
    /// How far ahead of the wall we are because it was set back.
    ahead_us: u64,
    read_at: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that has been read.
    pub fn new() -> Self {
        let mut clock = Self { now_us: 0, ahead_us: 0, read_at: Instant::now() };
        clock.read();
        clock
    }

    /// Reads the time, once per turn. Returns milliseconds since the epoch.
    pub fn read(&mut self) -> u64 {
        // Before 1970 there is nothing to be ahead of; zero keeps the rules.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.advance(wall.as_micros() as u64, Instant::now(), &LATEST_US);
        self.now_ms()
    }

    fn advance(&mut self, wall_us: u64, instant: Instant, latest_us: &AtomicU64) {
        let elapsed = instant.saturating_duration_since(self.read_at).as_micros() as u64;
        if wall_us + self.ahead_us < self.now_us {
            self.ahead_us = self.now_us + elapsed - wall_us;
        }
        self.now_us = wall_us + self.ahead_us;
        self.read_at = instant;
        // The shared line is written once per millisecond at most, and only read otherwise.
        let latest = latest_us.load(Ordering::Relaxed);
        if latest / 1000 < self.now_us / 1000 {
            latest_us.fetch_max(self.now_us, Ordering::Relaxed);
        } else {
            self.now_us = self.now_us.max(latest);
        }
    }

    /// The last reading, milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    /// The instant of the last reading.
    pub fn instant(&self) -> Instant {
        self.read_at
    }

    /// When a wait must end so that the next reading is at least `deadline_ms`. A deadline in the
    /// past is the last reading; one too far away to be an instant is none.
    pub fn instant_of(&self, deadline_ms: u64) -> Option<Instant> {
        let wait_us = deadline_ms.saturating_mul(1000).saturating_sub(self.now_us);
        self.read_at.checked_add(Duration::from_micros(wait_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(at: Instant) -> Clock {
        Clock { now_us: 5_000_000, ahead_us: 0, read_at: at }
    }

    #[test]
    fn a_wall_set_back_neither_turns_time_back_nor_stops_it() {
        let (start, latest) = (Instant::now(), AtomicU64::new(0));
        let mut clock = clock(start);
        clock.advance(5_010_000, start + Duration::from_millis(10), &latest);
        assert_eq!(clock.now_ms(), 5010);
        clock.advance(1_000_000, start + Duration::from_millis(30), &latest);
        assert_eq!(clock.now_ms(), 5030);
        clock.advance(1_005_000, start + Duration::from_millis(35), &latest);
        assert_eq!(clock.now_ms(), 5035);
    }

    #[test]
    fn a_wall_set_forward_is_followed() {
        let (start, latest) = (Instant::now(), AtomicU64::new(0));
        let mut clock = clock(start);
        clock.advance(9_000_000, start + Duration::from_millis(1), &latest);
        assert_eq!(clock.now_ms(), 9000);
    }

    #[test]
    fn no_clock_shows_less_than_another_has_shown() {
        let (start, latest) = (Instant::now(), AtomicU64::new(0));
        let (mut one, mut two) = (clock(start), clock(start));
        one.advance(6_000_000, start, &latest);
        two.advance(5_999_000, start, &latest);
        assert_eq!(two.now_ms(), 6000);
    }

    #[test]
    fn a_wait_until_a_deadline_reaches_it_and_not_much_more() {
        let start = Instant::now();
        let mut clock = clock(start);
        clock.now_us = 5_000_700;
        let until = |ms| clock.instant_of(ms).map(|at| at - start);
        assert_eq!(until(5001), Some(Duration::from_micros(300)));
        assert_eq!(until(4000), Some(Duration::ZERO));
    }

    #[test]
    fn the_real_clock_shows_this_century_and_goes_on() {
        let mut clock = Clock::new();
        let first = clock.now_ms();
        assert!(first > 1_700_000_000_000);
        assert!(clock.read() >= first);
    }
}
