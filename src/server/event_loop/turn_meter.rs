//! How long turns are, and which command made them so.
//!
//! Work is counted in steps: one for each command, job, message or row that is touched, and one for several
//! looks that only pass by. A turn counts for the command that took most of its steps. Of each command the longest
//! of its turns is kept since the start, in time and in steps, so that what holds a shard has a name. The engine
//! counts its own steps; the meter adds what is done outside of it.
//!
//! Counting reads no clock: a turn reads it at both of its ends.

use crate::api::commands::{COMMANDS, Op};

/// Kinds of work that belong to no command, or to one whose client does not wait.
const BESIDE: [&str; 5] = ["due", "news", "disconnect", "json", "other"];

const KINDS: usize = COMMANDS.len() + BESIDE.len();

/// Bytes of a request that are read in about the time of a step.
pub const BYTES_PER_STEP: usize = 4096;

/// A kind of work: a command, or one of those beside them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work(u8);

impl Work {
    /// Work that time brings: delays, locks, schedules, and the slices of long commands.
    pub const DUE: Self = Self(COMMANDS.len() as u8);
    /// News between shards about jobs that wait for jobs.
    pub const NEWS: Self = Self(COMMANDS.len() as u8 + 1);
    /// Jobs and registrations that a connection held are given back.
    pub const DISCONNECT: Self = Self(COMMANDS.len() as u8 + 2);
    /// Long requests and replies that are turned from JSON or into it.
    pub const JSON: Self = Self(COMMANDS.len() as u8 + 3);
    /// All else.
    pub const OTHER: Self = Self(COMMANDS.len() as u8 + 4);

    pub fn of(op: Op) -> Self {
        Self(op as u8)
    }

    /// As metrics call it.
    pub fn name(self) -> &'static str {
        let place = usize::from(self.0);
        COMMANDS.get(place).map_or_else(|| BESIDE[place - COMMANDS.len()], |spec| spec.name)
    }
}

/// The longest turn of one kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Longest {
    /// How long, in microseconds.
    pub length_us: u64,
    /// The most steps of this work in one turn.
    pub steps: u64,
}

/// The steps of this turn by kind of work, and the longest turns so far.
#[derive(Debug)]
pub struct Meter {
    /// Steps outside of the engine.
    steps: u64,
    current: Work,
    /// All steps when the current work began.
    since: u64,
    of_turn: [u32; KINDS],
    /// The kinds that have steps in this turn: few of all.
    kinds: Vec<Work>,
    longest: [Longest; KINDS],
}

impl Default for Meter {
    fn default() -> Self {
        let (of_turn, longest) = ([0; KINDS], [Longest::default(); KINDS]);
        Self { steps: 0, current: Work::OTHER, since: 0, of_turn, kinds: Vec::new(), longest }
    }
}

impl Meter {
    /// Something is done outside of the engine, of whatever is being done.
    #[inline]
    pub fn note(&mut self, steps: usize) {
        self.steps += steps as u64;
    }

    /// Counts bytes that are read or written outside of the engine.
    pub fn note_bytes(&mut self, bytes: usize) {
        self.note(1 + bytes / BYTES_PER_STEP);
    }

    /// All steps, with those of the engine.
    #[inline]
    pub fn steps(&self, engine_steps: u64) -> u64 {
        self.steps + engine_steps
    }

    /// Other work begins. Returns what was being done.
    #[inline]
    pub fn begin(&mut self, work: Work, engine_steps: u64) -> Work {
        let all = self.steps(engine_steps);
        self.add(self.current, all.saturating_sub(self.since) as u32);
        self.since = all;
        std::mem::replace(&mut self.current, work)
    }

    /// The kind of work that is going on.
    pub fn current(&self) -> Work {
        self.current
    }

    /// Moves so many of the last steps from the current work to another.
    pub fn credit(&mut self, work: Work, steps: u64) {
        self.add(work, steps as u32);
        self.since += steps;
    }

    #[inline]
    fn add(&mut self, work: Work, steps: u32) {
        let of_turn = &mut self.of_turn[usize::from(work.0)];
        if *of_turn == 0 && steps > 0 {
            self.kinds.push(work);
        }
        *of_turn += steps;
    }

    /// A turn is over. Returns the work that it counts for.
    pub fn end_turn(&mut self, engine_steps: u64, length_us: u64) -> Work {
        self.begin(Work::OTHER, engine_steps);
        let mut most = (0, Work::OTHER);
        for work in self.kinds.drain(..) {
            let kind = usize::from(work.0);
            let steps = std::mem::take(&mut self.of_turn[kind]);
            let longest = &mut self.longest[kind];
            longest.steps = longest.steps.max(u64::from(steps));
            if (steps, most.1.0) > (most.0, work.0) {
                most = (steps, work);
            }
        }
        let longest = &mut self.longest[usize::from(most.1.0)];
        longest.length_us = longest.length_us.max(length_us);
        most.1
    }

    /// The work that has been done since the start, with its longest turns.
    pub fn longest(&self) -> impl Iterator<Item = (Work, Longest)> {
        let all = self.longest.iter().enumerate();
        all.filter(|(_, longest)| **longest != Longest::default())
            .map(|(kind, longest)| (Work(kind as u8), *longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(meter: &Meter) -> Vec<(&'static str, u64, u64)> {
        meter.longest().map(|(work, it)| (work.name(), it.length_us, it.steps)).collect()
    }

    #[test]
    fn a_turn_counts_for_the_work_with_most_steps() {
        let mut meter = Meter::default();
        meter.begin(Work::of(Op::Push), 0);
        meter.note(3);
        meter.begin(Work::DUE, 2);
        meter.begin(Work::of(Op::Ack), 6);
        meter.end_turn(9, 70);
        assert_eq!(longest(&meter), [("PUSH", 70, 5), ("ACK", 0, 3), ("due", 0, 4)]);
        meter.begin(Work::of(Op::Ack), 9);
        meter.note(1);
        meter.end_turn(9, 90);
        assert_eq!(longest(&meter), [("PUSH", 70, 5), ("ACK", 90, 3), ("due", 0, 4)]);
    }

    #[test]
    fn what_is_credited_to_a_command_counts_once() {
        let mut meter = Meter::default();
        meter.begin(Work::DUE, 0);
        meter.credit(Work::of(Op::Drain), 3);
        meter.end_turn(4, 70);
        assert_eq!(longest(&meter), [("Drain", 70, 3), ("due", 0, 1)]);
    }

    #[test]
    fn a_turn_in_which_nothing_was_counted_is_nobodys() {
        let mut meter = Meter::default();
        meter.end_turn(0, 5);
        assert_eq!(longest(&meter), [("other", 5, 0)]);
    }
}
