//! The form in which a step is kept: what was counted in it, as numbers of as many bytes as they need. Steps in which
//! nothing happened are left out, so an idle queue takes nothing.
//!
//! ```text
//! record = marks:u8  gap  [pushed] [completed] [failed] [waiting] [waits] [runs]
//! spread = how many buckets, then for each: buckets since the one before, samples
//! ```
//!
//! `gap` is the number of steps since the record before, or since the first step of the piece. All numbers are LEB128.

use super::spread::Spread;

const PUSHED: u8 = 1;
const COMPLETED: u8 = 1 << 1;
const FAILED: u8 = 1 << 2;
const WAITING: u8 = 1 << 3;
const WAITS: u8 = 1 << 4;
const RUNS: u8 = 1 << 5;

/// Counts of a step, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Jobs pushed.
    pub pushed: u64,
    /// Jobs completed.
    pub completed: u64,
    /// Attempts failed.
    pub failed: u64,
    /// Jobs that waited when the step ended, if that is another number than before.
    pub waiting: Option<u64>,
    /// How long jobs waited that were delivered.
    pub waits: Spread,
    /// How long jobs ran that were completed.
    pub runs: Spread,
}

impl Sums {
    /// Forgets all of it.
    pub fn clear(&mut self) {
        (self.pushed, self.completed, self.failed, self.waiting) = (0, 0, 0, None);
        self.waits.clear();
        self.runs.clear();
    }

    /// Whether a step with this is left out.
    pub fn is_empty(&self) -> bool {
        self.pushed + self.completed + self.failed == 0
            && self.waiting.is_none()
            && self.waits.is_empty()
            && self.runs.is_empty()
    }

    /// Appends the record of a step.
    pub fn write(&self, out: &mut Vec<u8>, gap: u64) {
        let (marks_at, mut marks) = (out.len(), 0);
        out.push(0);
        put(out, gap);
        let counts = [(PUSHED, self.pushed), (COMPLETED, self.completed), (FAILED, self.failed)];
        for (mark, count) in counts {
            if count > 0 {
                marks |= mark;
                put(out, count);
            }
        }
        if let Some(waiting) = self.waiting {
            marks |= WAITING;
            put(out, waiting);
        }
        for (mark, spread) in [(WAITS, &self.waits), (RUNS, &self.runs)] {
            if !spread.is_empty() {
                marks |= mark;
                put_spread(out, spread);
            }
        }
        out[marks_at] = marks;
    }
}

/// Reads records one after the other.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    /// The step of the record before.
    step: u64,
    /// Of the record whose step has been read and its contents not yet.
    begun: Option<u8>,
}

impl<'a> Records<'a> {
    /// Records of a piece that begins with `first`.
    pub fn new(bytes: &'a [u8], first: u64) -> Self {
        Self { rest: bytes, step: first, begun: None }
    }

    /// The step of the next record.
    pub fn next_step(&mut self) -> Option<u64> {
        if self.begun.is_none() {
            let (&marks, rest) = self.rest.split_first()?;
            self.rest = rest;
            self.step += self.number();
            self.begun = Some(marks);
        }
        Some(self.step)
    }

    /// Adds what the next record says to `sums`. What waited is that of the last one added.
    pub fn add_next(&mut self, sums: &mut Sums) {
        if self.next_step().is_none() {
            return;
        }
        let marks = self.begun.take().unwrap_or_default();
        if marks & PUSHED > 0 {
            sums.pushed += self.number();
        }
        if marks & COMPLETED > 0 {
            sums.completed += self.number();
        }
        if marks & FAILED > 0 {
            sums.failed += self.number();
        }
        if marks & WAITING > 0 {
            sums.waiting = Some(self.number());
        }
        if marks & WAITS > 0 {
            self.add_spread(&mut sums.waits);
        }
        if marks & RUNS > 0 {
            self.add_spread(&mut sums.runs);
        }
    }

    fn add_spread(&mut self, spread: &mut Spread) {
        let mut bucket = 0;
        for _ in 0..self.number() {
            bucket += self.number() as usize;
            let samples = self.number();
            spread.add(bucket, samples.min(u64::from(u32::MAX)) as u32);
        }
    }

    /// The next number: it was written here, so bytes that are missing count as none.
    fn number(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let Some((&byte, rest)) = self.rest.split_first() else { break };
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_spread(out: &mut Vec<u8>, spread: &Spread) {
    put(out, spread.filled().count() as u64);
    let mut before = 0;
    for (bucket, samples) in spread.filled() {
        put(out, (bucket - before) as u64);
        put(out, u64::from(samples));
        before = bucket;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(number: u64) -> Sums {
        let mut sums = Sums {
            pushed: number,
            completed: number / 2,
            failed: number % 2,
            waiting: (!number.is_multiple_of(3)).then_some(number * 1000),
            ..Sums::default()
        };
        (0..number % 50).for_each(|n| sums.waits.record(n * n * n, 1));
        (0..number % 7).for_each(|n| sums.runs.record(u64::MAX >> n, 1));
        sums
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        let steps = [(0, 5), (1, 1), (2, 0), (90, 48), (8640, u64::MAX >> 12)];
        for (at, (step, number)) in steps.iter().enumerate() {
            let before = if at == 0 { 0 } else { steps[at - 1].0 };
            sums(*number).write(&mut bytes, step - before);
        }
        let mut records = Records::new(&bytes, 1000);
        for (step, number) in steps {
            assert_eq!(records.next_step(), Some(1000 + step));
            assert_eq!(records.next_step(), Some(1000 + step), "a look takes nothing");
            let mut read = Sums::default();
            records.add_next(&mut read);
            assert_eq!(read, sums(number));
        }
        assert_eq!(records.next_step(), None);
    }

    #[test]
    fn a_step_of_a_steady_queue_takes_about_twenty_bytes() {
        let mut sums = Sums { pushed: 90, completed: 80, waiting: Some(70), ..Sums::default() };
        for ms in [1, 2, 3] {
            sums.waits.record(ms, 30);
            sums.runs.record(ms * 20, 30);
        }
        let mut bytes = Vec::new();
        sums.write(&mut bytes, 1);
        assert!(bytes.len() <= 20, "{}", bytes.len());
    }
}
