//! How often long work at the start looks up: many small steps, a look at the clock every now and then, a
//! line for people every second.

use std::time::{Duration, Instant};

/// Between two lines for people.
const LINE: Duration = Duration::from_secs(1);
/// Between two looks at all else, such as whether the end is wanted.
const LOOK: Duration = Duration::from_millis(20);
/// Steps between two looks at the clock.
const STEPS: u32 = 64;

/// Limits how often progress is logged.
#[derive(Debug)]
pub struct ProgressLimiter {
    steps: u32,
    next_look: Instant,
    next_line: Instant,
}

impl Default for ProgressLimiter {
    fn default() -> Self {
        let now = Instant::now();
        Self { steps: 0, next_look: now, next_line: now + LINE }
    }
}

impl ProgressLimiter {
    /// Counts a step. True if a look at the progress is due; the clock is read once in `STEPS` only.
    pub fn is_due(&mut self) -> bool {
        self.steps += 1;
        if self.steps < STEPS {
            return false;
        }
        self.steps = 0;
        let now = Instant::now();
        let due = now >= self.next_look;
        if due {
            self.next_look = now + LOOK;
        }
        due
    }

    /// Whether it is time for a line.
    pub fn tells(&mut self) -> bool {
        let now = Instant::now();
        let due = now >= self.next_line;
        if due {
            self.next_line = now + LINE;
        }
        due
    }
}
