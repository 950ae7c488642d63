//! The history of one thing: of a queue, or of a shard. Steps that are over lie in pieces of an hour, the step under way is
//! what has been counted since.

use super::record::{Records, Sums};
use super::share::Share;
use super::span::{STEP_MS, Span};
use super::spread::Spread;
use std::collections::VecDeque;

/// Steps that lie in one piece, and are forgotten together: those of an hour.
pub const PIECE_STEPS: u64 = 360;

/// Counts since the start, and of jobs that wait now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Jobs pushed.
    pub pushed: u64,
    /// Jobs completed.
    pub completed: u64,
    /// Attempts failed.
    pub failed: u64,
    /// Jobs that wait now.
    pub waiting: u64,
}

impl Counters {
    /// Differences to an earlier moment: pushed, completed, failed.
    fn since(self, earlier: Self) -> (u64, u64, u64) {
        (
            self.pushed.saturating_sub(earlier.pushed),
            self.completed.saturating_sub(earlier.completed),
            self.failed.saturating_sub(earlier.failed),
        )
    }
}

/// Steps of an hour, as records.
#[derive(Clone, Debug)]
struct Piece {
    first: u64,
    last: u64,
    /// Jobs that waited before the piece's first step.
    waiting_before: u64,
    bytes: Vec<u8>,
}

/// Bytes of a piece besides those of its steps.
const PIECE_BYTES: usize = size_of::<Piece>() + 16;

/// A moment at which a step ended.
#[derive(Clone, Copy, Debug, Default)]
struct Edge {
    at_ms: u64,
    counters: Counters,
}

/// Recent rates, per second, and durations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Jobs pushed.
    pub pushed: f64,
    /// Jobs completed.
    pub completed: f64,
    /// Attempts failed.
    pub failed: f64,
    /// How long 99 of 100 jobs waited at most, if any was delivered.
    pub wait_p99_ms: Option<u64>,
    /// How long 99 of 100 jobs ran at most, if any was completed.
    pub run_p99_ms: Option<u64>,
}

/// The history of one thing.
#[derive(Clone, Debug)]
pub struct Track {
    pieces: VecDeque<Piece>,
    /// The first step that is known.
    known_from: u64,
    /// The ends of the last step but one and of the last step, or the beginning.
    edges: [Edge; 2],
    /// The step under way: durations so far. What else was counted in it is the difference to the last edge.
    waits: Spread,
    runs: Spread,
    /// Durations of the step before.
    last_waits: Spread,
    last_runs: Spread,
}

impl Track {
    /// A history that begins now.
    pub fn begin(now_ms: u64, counters: Counters) -> Self {
        Self {
            pieces: VecDeque::new(),
            known_from: now_ms / STEP_MS,
            edges: [Edge { at_ms: now_ms, counters }; 2],
            waits: Spread::default(),
            runs: Spread::default(),
            last_waits: Spread::default(),
            last_runs: Spread::default(),
        }
    }

    /// Jobs were delivered that had waited so long.
    pub fn waited(&mut self, ms: u64, jobs: u32) {
        self.waits.record(ms, jobs);
    }

    /// Jobs were completed that had run so long.
    pub fn ran(&mut self, ms: u64, jobs: u32) {
        self.runs.record(ms, jobs);
    }

    /// A step is over. Returns by how many bytes what is kept has grown, and whether a piece was begun with it.
    pub fn end_step(&mut self, now_ms: u64, step: u64, counters: Counters) -> (isize, bool) {
        let sums = self.under_way(counters);
        self.edges = [self.edges[1], Edge { at_ms: now_ms, counters }];
        std::mem::swap(&mut self.last_waits, &mut self.waits);
        std::mem::swap(&mut self.last_runs, &mut self.runs);
        self.waits.clear();
        self.runs.clear();
        if sums.is_empty() {
            return (0, false);
        }
        let fits = |piece: &Piece| piece.first / PIECE_STEPS == step / PIECE_STEPS;
        let begins = !self.pieces.back().is_some_and(fits);
        let mut grown = 0;
        if begins {
            if let Some(over) = self.pieces.back_mut() {
                let before = over.bytes.capacity();
                over.bytes.shrink_to_fit();
                grown = PIECE_BYTES as isize - (before - over.bytes.capacity()) as isize;
            } else {
                grown = PIECE_BYTES as isize;
            }
            let waiting_before = self.edges[0].counters.waiting;
            let piece = Piece { first: step, last: step, waiting_before, bytes: Vec::new() };
            self.pieces.push_back(piece);
        }
        let Some(piece) = self.pieces.back_mut() else { return (0, false) };
        let before = piece.bytes.capacity();
        sums.write(&mut piece.bytes, step.saturating_sub(piece.last));
        piece.last = piece.last.max(step);
        (grown + (piece.bytes.capacity() - before) as isize, begins)
    }

    /// Forgets the oldest piece if it begins with this step. Returns how many bytes that frees.
    pub fn drop_piece(&mut self, first: u64) -> usize {
        let Some(piece) = self.pieces.pop_front_if(|piece| piece.first == first) else { return 0 };
        self.known_from = self.known_from.max(piece.last + 1);
        piece.bytes.capacity() + PIECE_BYTES
    }

    /// The step that the oldest piece begins with.
    pub fn oldest(&self) -> Option<u64> {
        self.pieces.front().map(|piece| piece.first)
    }

    /// How many pieces there are.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of all pieces.
    pub fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes.capacity() + PIECE_BYTES).sum()
    }

    /// Counts of the step under way.
    fn under_way(&self, counters: Counters) -> Sums {
        let before = self.edges[1].counters;
        let (pushed, completed, failed) = counters.since(before);
        let waiting = (counters.waiting != before.waiting).then_some(counters.waiting);
        let (waits, runs) = (self.waits.clone(), self.runs.clone());
        Sums { pushed, completed, failed, waiting, waits, runs }
    }

    /// How many jobs came, ended or failed since the last step but one, per second.
    pub fn rate(&self, now_ms: u64, counters: Counters) -> f64 {
        let (pushed, completed, failed) = counters.since(self.edges[0].counters);
        (pushed + completed + failed) as f64 / self.seconds(now_ms)
    }

    fn seconds(&self, now_ms: u64) -> f64 {
        now_ms.saturating_sub(self.edges[0].at_ms).max(1000) as f64 / 1000.0
    }

    /// Rates and durations since the end of the last step but one.
    pub fn pace(&self, now_ms: u64, counters: Counters) -> Pace {
        let seconds = self.seconds(now_ms);
        let (pushed, completed, failed) = counters.since(self.edges[0].counters);
        let p99 = |mut sum: Spread, more: &Spread| {
            sum += more;
            sum.percentile_ms(99)
        };
        Pace {
            pushed: pushed as f64 / seconds,
            completed: completed as f64 / seconds,
            failed: failed as f64 / seconds,
            wait_p99_ms: p99(self.last_waits.clone(), &self.waits),
            run_p99_ms: p99(self.last_runs.clone(), &self.runs),
        }
    }

    /// How many jobs came, ended or failed in the step that ended last.
    pub fn done_in_last_step(&self) -> u64 {
        let (pushed, completed, failed) = self.edges[1].counters.since(self.edges[0].counters);
        pushed + completed + failed
    }

    /// The history of a span, the step under way included, and how many records were looked at.
    pub fn share(&self, now_ms: u64, counters: Counters, span: Span) -> (Share, usize) {
        let mut writer = ShareWriter {
            span,
            share: Share { known_from: span.point_of(self.known_from), ..Share::default() },
            point: None,
            last: 0,
            sums: Sums::default(),
        };
        let (end, mut looks) = (span.first + span.steps(), 0);
        writer.share.waiting = match self.pieces.front() {
            Some(piece) => piece.waiting_before,
            None => self.edges[1].counters.waiting,
        };
        for (at, piece) in self.pieces.iter().enumerate() {
            // A piece that another follows before the span says only what waited then.
            if let Some(next) = self.pieces.get(at + 1).filter(|next| next.first <= span.first) {
                writer.share.waiting = next.waiting_before;
                continue;
            }
            let mut records = Records::new(&piece.bytes, piece.first);
            while let Some(step) = records.next_step().filter(|&step| step < end) {
                looks += 1;
                records.add_next(writer.at(step));
            }
        }
        let now = now_ms / STEP_MS;
        if now < end {
            let sums = self.under_way(counters);
            if !sums.is_empty() {
                let into = writer.at(now);
                into.pushed += sums.pushed;
                into.completed += sums.completed;
                into.failed += sums.failed;
                into.waiting = sums.waiting.or(into.waiting);
                into.waits += &sums.waits;
                into.runs += &sums.runs;
            }
        }
        (writer.end(), looks)
    }
}

/// Puts steps together to points.
struct ShareWriter {
    span: Span,
    share: Share,
    /// The point that is being put together; none while steps lie before the span.
    point: Option<u64>,
    /// The last one that was written.
    last: u64,
    sums: Sums,
}

impl ShareWriter {
    /// Where a step is added. Steps come in order.
    fn at(&mut self, step: u64) -> &mut Sums {
        let point = (step >= self.span.first).then(|| self.span.point_of(step));
        if point != self.point {
            self.write();
            self.point = point;
        }
        &mut self.sums
    }

    fn write(&mut self) {
        match self.point {
            Some(point) if !self.sums.is_empty() => {
                self.sums.write(&mut self.share.bytes, point - self.last);
                self.last = point;
            }
            Some(_) => {}
            None => self.share.waiting = self.sums.waiting.unwrap_or(self.share.waiting),
        }
        self.sums.clear();
    }

    fn end(mut self) -> Share {
        self.write();
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = PIECE_STEPS;

    fn counters(pushed: u64, waiting: u64) -> Counters {
        Counters { pushed, completed: pushed / 2, failed: 0, waiting }
    }

    fn points(share: &Share, span: Span) -> Vec<(u64, u64)> {
        let mut records = Records::new(&share.bytes, 0);
        let mut waiting = share.waiting;
        let point = |point: u64| {
            let mut sums = Sums::default();
            if records.next_step() == Some(point) {
                records.add_next(&mut sums);
            }
            waiting = sums.waiting.unwrap_or(waiting);
            (sums.pushed, waiting)
        };
        (0..u64::from(span.points)).map(point).collect()
    }

    #[test]
    fn steps_come_back_as_points_of_any_length_and_idle_ones_take_nothing() {
        let start = 1_000 * HOUR;
        let mut track = Track::begin(start * STEP_MS, counters(0, 0));
        let mut pushed = 0;
        for step in start..start + 3 * HOUR {
            // An hour of jobs, an idle one, an hour of jobs.
            if (step - start) / HOUR != 1 {
                pushed += 2;
                track.waited(step % 100, 1);
            }
            track.end_step((step + 1) * STEP_MS, step, counters(pushed, pushed / 2));
        }
        assert_eq!(track.pieces.len(), 2, "an idle hour has no piece");
        let now_ms = (start + 3 * HOUR) * STEP_MS;
        let all = Span { first: start, per_point: HOUR, points: 4 };
        let (share, _) = track.share(now_ms, counters(pushed + 5, 7), all);
        assert_eq!(points(&share, all), [(720, 360), (0, 360), (720, 720), (5, 7)]);
        let few = Span { first: start + 2 * HOUR - 2, per_point: 1, points: 4 };
        let (share, _) = track.share(now_ms, counters(pushed, pushed / 2), few);
        assert_eq!(points(&share, few), [(0, 360), (0, 360), (2, 361), (2, 362)]);
        let later = Span { first: start + 3 * HOUR + 50, per_point: 1, points: 2 };
        let (share, looks) = track.share(now_ms, counters(pushed, pushed / 2), later);
        assert_eq!(points(&share, later), [(0, 720), (0, 720)]);
        assert!(looks <= HOUR as usize, "pieces before the span are not read: {looks}");
        let early = Span { first: start - 10, per_point: 5, points: 3 };
        let (share, _) = track.share(now_ms, counters(pushed, pushed / 2), early);
        assert_eq!((share.known_from, points(&share, early)), (2, vec![(0, 0), (0, 0), (10, 5)]));
    }

    #[test]
    fn a_piece_that_is_dropped_takes_its_steps_and_bytes_along() {
        let mut track = Track::begin(0, counters(0, 0));
        let mut bytes = 0;
        for step in 0..2 * HOUR {
            bytes += track.end_step((step + 1) * STEP_MS, step, counters(step + 1, step)).0;
        }
        assert_eq!(bytes, track.bytes() as isize);
        assert_eq!(track.drop_piece(5), 0, "another piece");
        let before = track.bytes();
        assert_eq!(track.drop_piece(0), before - track.bytes());
        let span = Span { first: 0, per_point: HOUR, points: 2 };
        let (share, _) = track.share(2 * HOUR * STEP_MS, counters(2 * HOUR, 2 * HOUR - 1), span);
        assert_eq!(share.known_from, 1);
        assert_eq!(points(&share, span)[1], (HOUR, 2 * HOUR - 1));
    }

    #[test]
    fn the_pace_is_that_of_the_last_steps_and_falls_to_nothing() {
        let mut track = Track::begin(0, counters(0, 0));
        for step in 0..5 {
            track.waited(40, 1);
            track.end_step((step + 1) * STEP_MS, step, counters((step + 1) * 100, 0));
        }
        let pace = track.pace(55_000, counters(550, 0));
        assert!((pace.pushed - 10.0).abs() < 0.01, "{pace:?}");
        assert!(pace.wait_p99_ms.is_some_and(|ms| ms.abs_diff(40) <= 8), "{pace:?}");
        for step in 5..8 {
            track.end_step((step + 1) * STEP_MS, step, counters(550, 0));
        }
        let pace = track.pace(85_000, counters(550, 0));
        assert_eq!((pace.pushed, pace.wait_p99_ms), (0.0, None));
    }
}
