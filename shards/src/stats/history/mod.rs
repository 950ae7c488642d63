//! History of the last day, by steps of ten seconds: jobs that came, ended and failed, how many waited, how long they
//! waited and ran. Of the shard as a whole, and of its busiest queues. In memory only: it begins anew with each start.
//!
//! A job costs two counts of durations and, of a queue that has no history, one comparison. What else is counted stands in
//! counters that are there anyway, and is looked at when a step ends: some queues at a time.
//!
//! At most [`QUEUES_MAX`] queues have a history, the first that have a job. Once all places are taken, a queue that turns out
//! busier than the least busy of them takes its place. How busy a queue is counts its jobs, half as much for each
//! hour since. All histories together have a number of bytes; beyond that the oldest hours of queues go first.
//!
//! | file | responsibility |
//! |---|---|
//! | `record` | the form in which steps are kept |
//! | `share` | what each shard says of a span, and the sum of that |
//! | `span` | which points of time a question is about |
//! | `spread` | durations by buckets, and their quantiles |
//! | `track` | the history of one queue, or of the shard |

pub mod record;
pub mod share;
pub mod span;
pub mod spread;
pub mod track;

use self::span::STEP_MS;
use self::track::{Counters, PIECE_STEPS, Track};
use std::collections::VecDeque;
use std::num::NonZero;

/// Steps that are kept: those of a day.
pub const STEPS_KEPT: u64 = 8640;

/// Queues of a shard that have a history.
pub const QUEUES_MAX: usize = 1000;

/// Queues that may take a place when a step ends.
const RISING_MAX: usize = 32;

/// Pieces that are looked at for their age when some queues are looked at.
const DROPS_MAX: usize = 500;

/// Pieces that have gone with their queues are left where they stand while there are no more.
const STALE_MIN: usize = 1024;

/// Bytes of a place besides its pieces.
pub const PLACE_BYTES: usize = size_of::<Place>();

const HOUR_MS: u64 = 3_600_000;

/// State of the history in each queue, whether it has a place or not.
#[derive(Clone, Debug, Default)]
pub struct OfQueue {
    /// Jobs pushed since the start.
    pub pushed: u64,
    /// Place among the queues with a history.
    place: Option<NonZero<u32>>,
    /// How busy it is without one: its jobs, half as many for each hour since.
    heat: u32,
    /// The hour that this is of.
    hour: u32,
    /// Whether it waits for a place.
    rises: bool,
}

impl OfQueue {
    /// Whether it has a history.
    pub fn has_place(&self) -> bool {
        self.place.is_some()
    }
}

/// A queue that has a history.
#[derive(Debug)]
struct Place {
    queue: u32,
    /// How busy it is.
    heat: u64,
    /// The hour that this is of.
    hour: u32,
    track: Track,
    /// Tells it from an earlier one at the same place.
    serial: u64,
}

impl Place {
    fn heat_at(&self, hour: u32) -> u64 {
        self.heat >> hour.saturating_sub(self.hour).min(63)
    }
}

/// A piece that was begun: where it is, in the order of time.
#[derive(Clone, Copy, Debug)]
struct Begun {
    place: u32,
    serial: u64,
    first: u64,
}

/// How far the look at all queues has come at the end of a step.
#[derive(Clone, Copy, Debug)]
struct Round {
    step: u64,
    next: u32,
    least_heat: u64,
}

/// Access to the queues that the end of a step needs.
pub trait Queues {
    /// Counts of a queue since the start.
    fn counters(&self, queue: u32) -> Counters;
    /// State of the history in a queue, if it is there.
    fn of_queue(&mut self, queue: u32) -> Option<&mut OfQueue>;
}

/// The histories of a shard.
#[derive(Debug)]
pub struct History {
    shard: Track,
    places: Vec<Option<Box<Place>>>,
    free: Vec<u32>,
    /// Pieces of all queues, oldest first. Some may have gone with their queues.
    begun: VecDeque<Begun>,
    /// How many of them have.
    stale: usize,
    bytes: usize,
    serials: u64,
    /// The step under way.
    step: u64,
    round: Option<Round>,
    /// Queues without a place that may be busier than one that has one.
    rising: Vec<u32>,
    /// How busy such a queue is at least.
    heat_min: u64,
    places_max: usize,
    dropped: u64,
}

impl Default for History {
    fn default() -> Self {
        Self {
            shard: Track::begin(0, Counters::default()),
            places: Vec::new(),
            free: Vec::new(),
            begun: VecDeque::new(),
            stale: 0,
            bytes: 0,
            serials: 0,
            step: 0,
            round: None,
            rising: Vec::new(),
            heat_min: 0,
            places_max: QUEUES_MAX,
            dropped: 0,
        }
    }
}

impl History {
    /// Begins, at the start of the shard.
    pub fn begin(&mut self, now_ms: u64, counters: Counters) {
        self.shard = Track::begin(now_ms, counters);
        self.step = now_ms / STEP_MS;
    }

    /// The history of the whole shard.
    pub fn shard(&self) -> &Track {
        &self.shard
    }

    /// The history of a queue.
    pub fn of(&self, about: &OfQueue) -> Option<&Track> {
        let place = self.places.get(about.place?.get() as usize - 1)?;
        place.as_ref().map(|place| &place.track)
    }

    /// The queues that have one.
    pub fn queues(&self) -> impl Iterator<Item = (u32, &Track)> {
        self.places.iter().flatten().map(|place| (place.queue, &place.track))
    }

    /// How many queues have one.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether no queue has one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory of all of it.
    pub fn bytes(&self) -> usize {
        self.bytes + self.shard.bytes() + self.len() * PLACE_BYTES
    }

    /// Hours of queues that were forgotten before their time since there was too much.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// A job of a queue comes or ends, and is not counted yet.
    #[inline]
    pub fn note(&mut self, now_ms: u64, queue: u32, about: &mut OfQueue, counters: Counters) {
        if about.place.is_none() {
            self.warm(now_ms, queue, about, counters);
        }
    }

    fn warm(&mut self, now_ms: u64, queue: u32, about: &mut OfQueue, counters: Counters) {
        let hour = (now_ms / HOUR_MS) as u32;
        let age = hour.saturating_sub(about.hour).min(31);
        about.heat = (about.heat >> age).saturating_add(1);
        about.hour = hour;
        if self.len() < self.places_max {
            self.take_place(now_ms, queue, about, counters);
        } else if u64::from(about.heat) > self.heat_min
            && !about.rises
            && self.rising.len() < RISING_MAX
        {
            about.rises = true;
            self.rising.push(queue);
        }
    }

    /// Gives a queue a place, if there is one.
    pub fn take_place(&mut self, now_ms: u64, queue: u32, about: &mut OfQueue, counters: Counters) {
        if about.place.is_some() || self.len() >= self.places_max {
            return;
        }
        self.serials += 1;
        let track = Track::begin(now_ms, counters);
        let (heat, hour, serial) = (u64::from(about.heat), about.hour, self.serials);
        let place = Some(Box::new(Place { queue, heat, hour, track, serial }));
        let index = if let Some(index) = self.free.pop() {
            self.places[index as usize] = place;
            index
        } else {
            self.places.push(place);
            self.places.len() as u32 - 1
        };
        about.rises = false;
        about.place = NonZero::new(index + 1);
    }

    /// A queue goes, or gives its place to another.
    pub fn leave_place(&mut self, about: &mut OfQueue) {
        let Some(index) = about.place.take().map(|place| place.get() - 1) else { return };
        if let Some(place) = self.places[index as usize].take() {
            self.bytes -= place.track.bytes();
            self.stale += place.track.pieces();
            about.heat = u32::try_from(place.heat).unwrap_or(u32::MAX);
            about.hour = place.hour;
            self.free.push(index);
        }
    }

    /// Jobs of a queue were delivered that had waited so long.
    pub fn waited(&mut self, about: &OfQueue, ms: u64, jobs: u32) {
        self.shard.waited(ms, jobs);
        if let Some(track) = self.track_of(about) {
            track.waited(ms, jobs);
        }
    }

    /// Jobs of a queue were completed that had run so long.
    pub fn ran(&mut self, about: &OfQueue, ms: u64, jobs: u32) {
        self.shard.ran(ms, jobs);
        if let Some(track) = self.track_of(about) {
            track.ran(ms, jobs);
        }
    }

    #[inline]
    fn track_of(&mut self, about: &OfQueue) -> Option<&mut Track> {
        let place = self.places.get_mut(about.place?.get() as usize - 1)?;
        place.as_mut().map(|place| &mut place.track)
    }

    /// Whether a step has ended and not all queues have been looked at for it.
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.round.is_some() || now_ms / STEP_MS > self.step
    }

    /// When the step under way ends.
    pub fn next_ms(&self) -> u64 {
        (self.step + 1) * STEP_MS
    }

    /// Ends a step, of so many queues at a time: to be called until nothing is due. All histories together keep so many
    /// bytes.
    pub fn end_step(
        &mut self,
        now_ms: u64,
        all: Counters,
        queues: &mut impl Queues,
        (looks, bytes_max): (usize, usize),
    ) {
        if !self.is_due(now_ms) {
            return;
        }
        let round = if let Some(round) = self.round {
            round
        } else {
            // Steps in which the shard stood still are left out: what came since is of the last one.
            let step = (now_ms / STEP_MS).saturating_sub(1);
            let (_, begins) = self.shard.end_step(now_ms, step, all);
            if begins {
                self.forget_old_of_shard(step);
            }
            Round { step, next: 0, least_heat: u64::MAX }
        };
        self.round = self.look_at_some(now_ms, round, queues, looks);
        if self.round.is_none() {
            self.step = round.step + 1;
            self.let_rise(now_ms, queues);
        }
        self.drop_old(round.step, bytes_max);
        self.drop_stale();
    }

    /// Goes on with the queues; none if all have been looked at.
    fn look_at_some(
        &mut self,
        now_ms: u64,
        mut round: Round,
        queues: &mut impl Queues,
        looks: usize,
    ) -> Option<Round> {
        let hour = (now_ms / HOUR_MS) as u32;
        for _ in 0..looks {
            let index = round.next;
            let Some(place) = self.places.get_mut(index as usize) else {
                let least = if self.is_full() { round.least_heat } else { 0 };
                // Clearly busier: two of the same would take turns otherwise.
                self.heat_min = least.saturating_add(least / 4);
                return None;
            };
            round.next += 1;
            let Some(place) = place else { continue };
            let (bytes, begins) =
                place.track.end_step(now_ms, round.step, queues.counters(place.queue));
            place.heat = place.heat_at(hour).saturating_add(place.track.done_in_last_step());
            place.hour = hour;
            round.least_heat = round.least_heat.min(place.heat);
            self.bytes = self.bytes.saturating_add_signed(bytes);
            if begins {
                let (serial, first) = (place.serial, round.step);
                self.begun.push_back(Begun { place: index, serial, first });
            }
        }
        Some(round)
    }

    fn is_full(&self) -> bool {
        self.len() >= self.places_max
    }

    /// Queues that are busier take the places of the least busy.
    fn let_rise(&mut self, now_ms: u64, queues: &mut impl Queues) {
        let hour = (now_ms / HOUR_MS) as u32;
        for queue in std::mem::take(&mut self.rising) {
            // Another queue may have come to the place of one that is gone.
            let Some(about) = queues.of_queue(queue).filter(|about| about.rises) else { continue };
            about.rises = false;
            let heat = u64::from(about.heat >> hour.saturating_sub(about.hour).min(31));
            let held = self.places.iter().flatten();
            let least = held.map(|place| (place.heat_at(hour), place.queue)).min();
            if let Some((least, loser)) = least.filter(|_| self.is_full()) {
                if heat <= least.saturating_add(least / 4) {
                    continue;
                }
                if let Some(about) = queues.of_queue(loser) {
                    self.leave_place(about);
                }
            }
            let counters = queues.counters(queue);
            if let Some(about) = queues.of_queue(queue) {
                self.take_place(now_ms, queue, about, counters);
            }
        }
    }

    /// Forgets pieces that are too old, or the oldest while there is too much, some at a time.
    fn drop_old(&mut self, step: u64, bytes_max: usize) {
        for _ in 0..DROPS_MAX {
            let Some(&Begun { place, serial, first }) = self.begun.front() else { return };
            let held = self.places.get_mut(place as usize).and_then(Option::as_deref_mut);
            let held = held.filter(|held| held.serial == serial);
            let is_old = is_too_old(first, step);
            if held.is_some() && !is_old && self.bytes <= bytes_max {
                return;
            }
            self.begun.pop_front();
            if let Some(held) = held {
                self.bytes -= held.track.drop_piece(first);
                self.dropped += u64::from(!is_old);
            } else {
                self.stale = self.stale.saturating_sub(1);
            }
        }
    }

    /// Forgets pieces that have gone with their queues when they are most of all. Those that have not are bounded, and one that
    /// is in use in front of them may be a day old.
    fn drop_stale(&mut self) {
        if self.stale < STALE_MIN || self.stale * 2 < self.begun.len() {
            return;
        }
        let places = &self.places;
        self.begun.retain(|begun| {
            let held = places.get(begun.place as usize).and_then(Option::as_deref);
            held.is_some_and(|held| held.serial == begun.serial)
        });
        self.begun.shrink_to(STALE_MIN);
        self.stale = 0;
    }

    fn forget_old_of_shard(&mut self, step: u64) {
        while let Some(first) = self.shard.oldest().filter(|&first| is_too_old(first, step)) {
            self.shard.drop_piece(first);
        }
    }
}

/// Whether the last step of the piece that begins so is out of the day that ends with `step`.
fn is_too_old(first: u64, step: u64) -> bool {
    (first / PIECE_STEPS + 1) * PIECE_STEPS + STEPS_KEPT <= step
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues by index, with what they have counted.
    #[derive(Default)]
    struct Held {
        queues: Vec<(OfQueue, Counters)>,
    }

    impl Queues for Held {
        fn counters(&self, queue: u32) -> Counters {
            self.queues[queue as usize].1
        }
        fn of_queue(&mut self, queue: u32) -> Option<&mut OfQueue> {
            self.queues.get_mut(queue as usize).map(|(about, _)| about)
        }
    }

    impl Held {
        fn push(&mut self, history: &mut History, now_ms: u64, queue: u32, jobs: u64) {
            let (about, counters) = &mut self.queues[queue as usize];
            for _ in 0..jobs {
                history.note(now_ms, queue, about, *counters);
                counters.pushed += 1;
            }
        }

        fn with_place(&self) -> Vec<usize> {
            (0..self.queues.len()).filter(|&at| self.queues[at].0.has_place()).collect()
        }
    }

    fn end_step(history: &mut History, now_ms: u64, queues: &mut Held, bytes_max: usize) {
        while history.is_due(now_ms) {
            history.end_step(now_ms, Counters::default(), queues, (7, bytes_max));
        }
    }

    fn of(queues: usize, places_max: usize) -> (History, Held) {
        let history = History { places_max, ..History::default() };
        (history, Held { queues: vec![(OfQueue::default(), Counters::default()); queues] })
    }

    #[test]
    fn the_busiest_queues_have_a_history_whichever_came_first() {
        let (mut history, mut queues) = of(50, 10);
        let mut now_ms = 0;
        for round in 0..40_u64 {
            for queue in 0..50 {
                queues.push(&mut history, now_ms, queue, u64::from(queue) + u64::from(round == 0));
            }
            now_ms += STEP_MS;
            end_step(&mut history, now_ms, &mut queues, usize::MAX);
            assert_eq!(history.len(), 10);
        }
        let least = queues.with_place()[0];
        assert!(least >= 32, "the busiest are those of the highest numbers: {least}");
        let kept: usize = history.queues().map(|(_, track)| track.bytes()).sum();
        assert_eq!(history.bytes, kept, "bytes go with those that lose their place");
        // Names that come once each take no place of busy ones.
        let before = queues.with_place();
        queues.queues.resize(2000, (OfQueue::default(), Counters::default()));
        for queue in 50..2000 {
            queues.push(&mut history, now_ms, queue, 1);
            if queue % 10 == 0 {
                now_ms += STEP_MS;
                end_step(&mut history, now_ms, &mut queues, usize::MAX);
            }
        }
        assert_eq!(queues.with_place(), before);
    }

    #[test]
    fn what_is_long_ago_counts_less_than_what_is_done_now() {
        let (mut history, mut queues) = of(3, 1);
        queues.push(&mut history, 0, 0, 1000);
        let mut now_ms = STEP_MS;
        end_step(&mut history, now_ms, &mut queues, usize::MAX);
        queues.push(&mut history, now_ms, 1, 900);
        now_ms += STEP_MS;
        end_step(&mut history, now_ms, &mut queues, usize::MAX);
        assert_eq!(queues.with_place(), [0]);
        now_ms += 2 * HOUR_MS;
        end_step(&mut history, now_ms, &mut queues, usize::MAX);
        queues.push(&mut history, now_ms, 2, 400);
        end_step(&mut history, now_ms + STEP_MS, &mut queues, usize::MAX);
        assert_eq!(queues.with_place(), [2]);
    }

    #[test]
    fn queues_that_come_and_go_leave_nothing_behind_one_that_stays() {
        let (mut history, mut queues) = of(101, 101);
        let mut now_ms = 0;
        for _ in 0..60 {
            for queue in 0..101 {
                queues.push(&mut history, now_ms, queue, 1);
            }
            now_ms += STEP_MS;
            end_step(&mut history, now_ms, &mut queues, usize::MAX);
            for (about, _) in &mut queues.queues[1..] {
                history.leave_place(about);
            }
            assert!(history.begun.len() <= 2 * STALE_MIN + 101, "{}", history.begun.len());
        }
        assert!(history.begun.capacity() <= 4 * STALE_MIN, "{}", history.begun.capacity());
        assert!(queues.queues[0].0.has_place(), "it stands in front of all");
    }

    #[test]
    fn all_histories_together_keep_so_many_bytes_and_a_day_at_most() {
        const BYTES_MAX: usize = 60_000;
        let (mut history, mut queues) = of(20, 20);
        let mut now_ms = 0;
        for step in 0..3 * PIECE_STEPS {
            for queue in 0..20 {
                queues.push(&mut history, now_ms, queue, 1 + step % 5);
            }
            now_ms += STEP_MS;
            end_step(&mut history, now_ms, &mut queues, BYTES_MAX);
            assert!(history.bytes <= BYTES_MAX, "{}", history.bytes);
        }
        assert!(history.dropped() > 0, "there was more than that");
        let kept: usize = history.queues().map(|(_, track)| track.bytes()).sum();
        assert_eq!(history.bytes, kept);
        assert!(history.begun.len() <= 3 * 20);
        // A day later nothing of it is left.
        now_ms += (STEPS_KEPT + PIECE_STEPS + 1) * STEP_MS;
        end_step(&mut history, now_ms, &mut queues, BYTES_MAX);
        assert_eq!((history.bytes, history.begun.len()), (0, 0));
    }
}
