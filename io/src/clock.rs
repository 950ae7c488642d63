//! The time of a turn: read once, used by all that happens in it.
//!
//! Wall clock in milliseconds since the epoch. It never goes backwards within a process: when
//! the machine's clock is set back, time goes on from where it was at its usual pace, ahead of
//! the wall until that has come as far, or until the next start. (Standing still instead would hold
//! every delay and lease for as long as the clock was set back.)
//!
//! However often the wall goes to and fro, time is never further than the latest that the wall has
//! shown, and what has passed since.
//!
//! Locks, timeouts and waits last as long as time passes, and not as long as the wall says. So a reading also tells by how
//! much the wall leapt ([`Clock::leap_ms`]): those who wait are put off by that. Time in which the process did not run (it
//! was stopped, or frozen with its container) counts as such a leap, since nobody was heard in it. It counts from the last
//! reading before it, so that nothing is due at the first reading after it that was not due before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The latest time that any clock of the process has shown, microseconds.
static LATEST_US: AtomicU64 = AtomicU64::new(0);

/// How far the clocks of the process are ahead of the wall, as the last of them to change has seen it.
static AHEAD_US: AtomicU64 = AtomicU64::new(0);

/// Less than this is no matter: clocks of machines are corrected by it all the time.
const AHEAD_SHOWN_US: u64 = 100_000;

/// How far the process is ahead of the wall because that was set back, in milliseconds; 0 if that is
/// next to nothing.
pub fn ahead_ms() -> u64 {
    let ahead_us = AHEAD_US.load(Ordering::Relaxed);
    if ahead_us < AHEAD_SHOWN_US { 0 } else { ahead_us / 1000 }
}

/// A wall that goes ahead of what has passed by less than this is corrected, by more it leaps.
const LEAP_US_MIN: u64 = 100_000;

/// A reading that comes so much later than it was to comes after a gap in which the process did not run.
const GAP_MIN: Duration = Duration::from_secs(1);

/// By how much the clock of the process before was ahead, as the logs of this one tell.
static SET_BACK_MS: AtomicU64 = AtomicU64::new(0);

/// A log was written by a clock that was so much ahead of this one.
pub fn note_set_back_ms(by_ms: u64) {
    SET_BACK_MS.fetch_max(by_ms, Ordering::Relaxed);
}

/// By how much the clock was ahead when the logs were written that this process started from; 0 if it was not.
pub fn set_back_ms() -> u64 {
    SET_BACK_MS.load(Ordering::Relaxed)
}

/// A shard's clock.
#[derive(Debug)]
pub struct Clock {
    now_us: u64,
    /// Time in microseconds without what other clocks have shown: only the wall and what has passed move it, so that
    /// clocks cannot drive each other on.
    own_us: u64,
    /// How far ahead of the wall that is because the wall was set back.
    ahead_us: u64,
    read_at: Instant,
    /// When the next reading is to come at the latest; `None` if nobody has said.
    wake_at: Option<Instant>,
    leap_ms: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that has been read.
    pub fn new() -> Self {
        let mut clock = Self {
            now_us: 0,
            own_us: 0,
            ahead_us: 0,
            read_at: Instant::now(),
            wake_at: None,
            leap_ms: 0,
        };
        // A clock that starts late goes by the same time as the others.
        clock.own_us = LATEST_US.load(Ordering::Relaxed);
        clock.read();
        (clock.leap_ms, clock.wake_at) = (0, None);
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
        let shown_ms = self.now_ms();
        let before_us = self.ahead_us;
        if wall_us < self.own_us || before_us > 0 {
            // The wall is followed again once it has come as far.
            self.own_us = wall_us.max(self.own_us + elapsed);
            self.ahead_us = self.own_us - wall_us;
        } else {
            self.own_us = wall_us;
        }
        if self.ahead_us / 1000 != before_us / 1000 {
            AHEAD_US.store(self.ahead_us, Ordering::Relaxed);
        }
        self.now_us = self.own_us.max(self.now_us);
        let late = self.wake_at.map(|at| instant.saturating_duration_since(at));
        let passed_us = if late.is_some_and(|late| late > GAP_MIN) { 0 } else { elapsed };
        self.read_at = instant;
        self.wake_at = Some(instant);
        // The shared line is written once per millisecond at most, and only read otherwise.
        let latest = latest_us.load(Ordering::Relaxed);
        if latest / 1000 < self.now_us / 1000 {
            latest_us.fetch_max(self.now_us, Ordering::Relaxed);
        } else {
            self.now_us = self.now_us.max(latest);
        }
        let leap_ms = (self.now_ms() - shown_ms).saturating_sub(passed_us.div_ceil(1000));
        self.leap_ms = if leap_ms * 1000 < LEAP_US_MIN { 0 } else { leap_ms };
    }

    /// By how much the last reading was later than the one before, beyond the time that has passed for those who wait.
    pub fn leap_ms(&self) -> u64 {
        self.leap_ms
    }

    /// The last reading, milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    /// The instant of the last reading.
    pub fn instant(&self) -> Instant {
        self.read_at
    }

    /// The time by now, microseconds since the epoch: the last reading, and what has passed since.
    pub fn now_us(&self) -> u64 {
        self.now_us + self.since_reading_us()
    }

    /// How long ago that was, in microseconds.
    pub fn since_reading_us(&self) -> u64 {
        self.read_at.elapsed().as_micros() as u64
    }

    /// [`Self::instant_of`] a deadline until which the process sleeps: if the next reading comes much later, it did not run.
    pub fn sleep_until(&mut self, deadline_ms: u64) -> Option<Instant> {
        self.wake_at = self.instant_of(deadline_ms);
        self.wake_at
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
        at_wall(5_000_000, at)
    }

    fn at_wall(wall_us: u64, at: Instant) -> Clock {
        let (now_us, own_us, ahead_us) = (wall_us, wall_us, 0);
        Clock { now_us, own_us, ahead_us, read_at: at, wake_at: Some(at), leap_ms: 0 }
    }

    #[test]
    fn a_wall_that_is_set_leaps_once_by_what_has_not_passed() {
        let (start, latest) = (Instant::now(), AtomicU64::new(0));
        let mut clock = clock(start);
        let mut leap_of = |wall_ms: u64, passed_ms: u64| {
            clock.advance(wall_ms * 1000, start + Duration::from_millis(passed_ms), &latest);
            (clock.now_ms(), clock.leap_ms())
        };
        assert_eq!(leap_of(5010, 10), (5010, 0));
        assert_eq!(leap_of(65_020, 20), (65_020, 60_000), "set forward by a minute");
        assert_eq!(leap_of(65_030, 30), (65_030, 0));
        assert_eq!(leap_of(5040, 40), (65_040, 0), "set back, and the clock goes on");
        assert_eq!(leap_of(65_050, 50), (65_050, 0), "set forward to where the clock is");
        assert_eq!(leap_of(65_109, 60), (65_109, 0), "corrected");
    }

    #[test]
    fn a_minute_that_another_clock_shows_first_leaps_all_the_same() {
        let (start, latest) = (Instant::now(), AtomicU64::new(65_000_000));
        let mut clock = clock(start);
        clock.advance(5_010_000, start + Duration::from_millis(10), &latest);
        assert_eq!((clock.now_ms(), clock.leap_ms()), (65_000, 59_990));
        clock.advance(65_010_000, start + Duration::from_millis(20), &latest);
        assert_eq!((clock.now_ms(), clock.leap_ms()), (65_010, 0));
    }

    #[test]
    fn a_gap_leaps_by_all_that_passed_since_the_last_reading_and_a_long_sleep_does_not() {
        let (start, latest) = (Instant::now(), AtomicU64::new(0));
        let mut clock = clock(start);
        let mut leap_of = |passed_ms: u64, next_ms: Option<u64>| {
            let instant = start + Duration::from_millis(passed_ms);
            clock.advance((5000 + passed_ms) * 1000, instant, &latest);
            if let Some(next_ms) = next_ms {
                clock.sleep_until(next_ms);
            }
            clock.leap_ms()
        };
        assert_eq!(leap_of(10, Some(5000 + 4010)), 0);
        assert_eq!(leap_of(8010, Some(u64::MAX)), 8000, "asleep until 4010 ms at most");
        assert_eq!(leap_of(3_600_000, Some(5000 + 7_200_000)), 0, "woken by an event");
        assert_eq!(leap_of(7_200_900, None), 0, "a little late");
        assert_eq!(leap_of(7_201_900, None), 0);
        assert_eq!(leap_of(7_203_000, None), 1100, "a turn that took so long");
    }

    #[test]
    fn a_clock_that_has_just_been_made_has_not_leapt() {
        assert_eq!(Clock::new().leap_ms(), 0);
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
    fn a_wall_that_goes_to_and_fro_leaves_time_at_the_latest_that_it_has_shown() {
        const HOUR_US: u64 = 3_600_000_000;
        let (start, latest) = (Instant::now(), AtomicU64::new(0));
        let right_us = 1_700_000_000_000_000;
        let mut clock = at_wall(right_us, start);
        let mut passed_us = 0;
        for _ in 0..5 {
            for wall_us in [right_us + HOUR_US, right_us - 23 * HOUR_US, right_us] {
                passed_us += 1000;
                let instant = start + Duration::from_micros(passed_us);
                let before_ms = clock.now_ms();
                clock.advance(wall_us + passed_us, instant, &latest);
                assert!(clock.now_ms() >= before_ms);
                let ahead_us = clock.now_us - (wall_us + passed_us);
                assert_eq!(ahead_us, clock.ahead_us);
            }
            assert_eq!(clock.ahead_us, HOUR_US, "as far as the wall has been, and no further");
        }
        // The wall comes as far some day, and is followed from then on.
        passed_us += 2 * HOUR_US;
        let instant = start + Duration::from_micros(passed_us);
        clock.advance(right_us + passed_us, instant, &latest);
        assert_eq!(clock.ahead_us, HOUR_US);
        clock.advance(right_us + passed_us + HOUR_US, instant, &latest);
        assert_eq!((clock.now_us, clock.ahead_us), (right_us + passed_us + HOUR_US, 0));
    }

    #[test]
    fn clocks_that_are_ahead_do_not_drive_each_other_on() {
        let (start, latest) = (Instant::now(), AtomicU64::new(0));
        let (mut one, mut two) = (clock(start), clock(start));
        (two.now_us, two.own_us) = (5_000_200, 5_000_200);
        let wall_us = |passed_us: u64| 1_000_000 + passed_us;
        // Each reads the wall, is held up for a while, and then looks at the latest of all.
        for round in 1..10_000_u64 {
            let passed_us = round * 500;
            let at = |us: u64| (wall_us(us), start + Duration::from_micros(us));
            let (early, late) = (at(passed_us), at(passed_us + 400));
            let (first, second) =
                if round % 2 == 0 { (&mut one, &mut two) } else { (&mut two, &mut one) };
            first.advance(late.0, late.1, &latest);
            second.advance(early.0, early.1, &latest);
        }
        let shown_us = one.now_us.max(two.now_us) - 5_000_000;
        assert!(shown_us <= 10_000 * 500 + 1000, "{shown_us} us were shown in 5 s");
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
