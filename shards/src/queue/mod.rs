//! Queues: what waits in each, what ended in each, and their names.
//!
//! | file | responsibility |
//! |---|---|
//! | `finished` | completed and failed jobs in the order of their ends |
//! | `limit` | what may be set to limit a queue: data only |
//! | `listing` | pages of jobs |
//! | `out_of_order` | waiting jobs that are not in the order of their ids |
//! | `push_order` | all jobs in the order in which they came |
//! | `rate_limit` | rate and concurrency limits |
//! | `ready` | the order of delivery |
//! | `retention` | how many completed jobs are kept, and for how long |
//! | `scan` | pages of jobs by a cursor |
//! | `throughput` | counts per minute |

pub mod finished;
pub(crate) mod limit;
pub mod listing;
pub(crate) mod out_of_order;
pub(crate) mod push_order;
pub(crate) mod rate_limit;
pub(crate) mod ready;
pub mod retention;
pub mod scan;
pub mod throughput;

use crate::collections::count::Count;
use crate::collections::hash_key::HashKey;
use crate::collections::slab::{List, NONE, Slab};
use crate::collections::table::Table;
use crate::dead_letter::policy::Rules;
use crate::group::scheduler::Rotation;
use crate::job::id::Slot;
use crate::job::name_table::JobNames;
use crate::job::{Jobs, State};
use crate::lease::waiting_pulls::AtQueue;
use crate::log_record::location::LogRef;
use crate::queue::finished::Ended;
use crate::queue::listing::States;
use crate::queue::push_order::PushOrder;
use crate::queue::rate_limit::Limits;
use crate::queue::ready::Ready;
use crate::queue::throughput::{Budget, Minutes};
use crate::stats::history::track::Counters;
use crate::stats::history::{self, History, OfQueue};
use crate::stats::latency::Timings;
use crate::stats::queue_times::{Alike, QueueTimes};
use std::collections::BTreeMap;

/// A queue: its jobs by state, settings, and history.
#[derive(Default)]
pub struct Queue {
    /// Name of the queue.
    pub name: Box<str>,
    /// The slot of its name.
    pub slot: Slot,
    /// The waiting jobs.
    pub ready: Ready,
    /// All jobs, in the order they were made.
    pub push_order: PushOrder,
    /// The completed jobs, oldest first.
    pub completed: Ended,
    /// The dead-letter queue, oldest first.
    pub failed: Ended,
    /// Pulls that wait for a job.
    pub waiters: List<AtQueue>,
    /// The record that stopped delivery, while it is stopped.
    pub paused: Option<LogRef>,
    /// Names that clients gave to its jobs, if they did.
    pub names: Option<Box<JobNames>>,
    /// How fast and how many jobs may leave it, if that is limited.
    pub limits: Option<Box<Limits>>,
    /// Groups of the queue, if it has any.
    pub(crate) groups: Option<Box<Rotation>>,
    /// Rules for failed and silent jobs, if any are set.
    pub rules: Option<Box<Rules>>,
    /// Long commands that work on it or wait for their turn.
    pub bulk_operations: u32,
    /// Whether one of them has begun.
    pub busy: bool,
    /// Whether its name has been taken from it: what is left in it is being removed.
    pub detached: bool,
    /// How long its jobs have waited, once one was delivered.
    pub waits: Option<Box<QueueTimes>>,
    /// How long they have run, once one was completed.
    pub runs: Option<Box<QueueTimes>>,
    /// Jobs completed, and attempts failed, by the minute.
    pub done: [Minutes; 2],
    /// Other counts of the last day, if the queue has a place in the history.
    pub history: OfQueue,
    /// Completed jobs whose place among the ends is below this were forgotten for age or number.
    pub evicted_below: u64,
    /// The bound `evicted_below` that the log has: what lies between the two is not recorded.
    pub evicted_noted: u64,
    /// When a pull last came, or has waited in vain, by the clock without its leaps; 0 if none has since the start.
    pub(crate) pulled_ms: u64,
    /// Schedules that run only while it has a worker: what is known of its pulls stays for them.
    pub(crate) watching_crons: u32,
    counts: [u32; STATES],
    /// Waiting jobs of a priority above 0.
    prioritized: u32,
}

/// Priorities at each end that are looked at for the job that waits for longest.
const OLDEST_LANES_MAX: usize = 16;

/// States, and that of no job.
const STATES: usize = State::ALL.len() + 1;

impl Queue {
    /// Jobs in a state.
    pub fn count(&self, state: State) -> u64 {
        u64::from(self.counts[state as usize])
    }

    /// Counts since the start.
    pub fn counters(&self) -> Counters {
        Counters {
            pushed: self.history.pushed,
            completed: self.done[0].total,
            failed: self.done[1].total,
            waiting: self.count(State::Waiting),
        }
    }

    /// Waiting jobs of a priority above 0.
    pub fn prioritized(&self) -> u64 {
        u64::from(self.prioritized)
    }

    /// Jobs in any of these states.
    pub fn count_of(&self, states: States) -> u64 {
        let counted = State::ALL.iter().filter(|&&state| states.has(state));
        counted.map(|&state| self.count(state)).sum()
    }

    /// Jobs in any state.
    pub fn total(&self) -> u64 {
        State::ALL.iter().map(|&state| self.count(state)).sum()
    }

    /// The job that has been in an end state for longest.
    pub fn oldest(&self, ended: State, jobs: &Jobs) -> Option<u32> {
        match ended {
            State::Completed => self.completed.front(jobs),
            State::Failed => self.failed.front(jobs),
            _ => None,
        }
    }

    /// The jobs of one end state.
    pub(crate) fn ended(&mut self, state: State) -> &mut Ended {
        match state {
            State::Completed => &mut self.completed,
            _ => &mut self.failed,
        }
    }

    /// Since when the jobs are due that wait for longest, as far as a look at a few priorities and groups shows.
    pub fn oldest_due_ms(&self, jobs: &Jobs) -> Option<u64> {
        self.ready.oldest_due_ms(&jobs.slab, OLDEST_LANES_MAX)
    }

    /// Whether delivery is stopped.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Whether it is paused, limited or has rules. Settings of its groups are counted with those.
    pub fn has_settings(&self) -> bool {
        self.is_paused() || self.limits.is_some() || self.rules.is_some()
    }

    /// Whether clients see it: it has a job or a setting.
    pub fn exists(&self) -> bool {
        let set = self.has_settings() || self.groups_with_settings() > 0;
        !self.detached && (set || self.total() > 0)
    }

    /// Whether completed jobs were forgotten of which the log does not say so.
    pub fn has_unrecorded_evictions(&self) -> bool {
        self.evicted_below > self.evicted_noted
    }

    fn is_idle(&self) -> bool {
        !self.exists()
            && !self.has_unrecorded_evictions()
            && self.waiters.is_empty()
            && self.groups.is_none()
            && self.watching_crons == 0
            && self.bulk_operations == 0
            // A queue with a history stays: jobs that are forgotten on completion leave nothing else of it.
            && !self.history.has_place()
    }
}

impl history::Queues for Slab<Queue> {
    fn counters(&self, queue: u32) -> Counters {
        self.peek(queue).counters()
    }

    fn of_queue(&mut self, queue: u32) -> Option<&mut OfQueue> {
        let is_there = queue < self.end() && !self.peek(queue).name.is_empty();
        is_there.then(|| &mut self.peek_mut(queue).history)
    }
}

/// Queues of a shard that may have settings: a name alone takes a queue's memory once something is set for it, and no job
/// has to be there.
pub const QUEUE_SETTINGS_MAX: u64 = 100_000;

/// Idle queues kept for their next job before they are swept.
const IDLE_QUEUES_MAX: usize = 1024;

/// Queues that are looked at for each that was made: no more than a third of those held stay idle for long.
const SWEEP_LOOKS: u32 = 4;

/// Queues that are looked at in one step, because of those that were made.
const SWEEP_LOOKS_MAX: u32 = 500;

/// The queues of a shard, by index and by name.
pub struct Queues {
    key: HashKey,
    slab: Slab<Queue>,
    by_name: Table<u32>,
    /// Names of detached queues, with how many have them.
    elders: BTreeMap<Box<str>, u32>,
    /// Index of the last queue that was looked up: most lookups repeat it.
    last: Option<u32>,
    /// Queues made since the last sweep.
    made: u32,
    /// Where the next sweep looks first.
    sweep_from: u32,
    /// Jobs by state, in all queues but those that are detached.
    counts: [u64; STATES],
    minutes: Budget,
    history: History,
    pub(crate) timings: Timings,
    /// Queues that have settings.
    with_settings: u64,
    /// The next queue whose minutes are looked at for their age.
    minutes_cursor: u32,
}

fn hash(key: HashKey, queues: &Slab<Queue>, queue: u32) -> u64 {
    key.text(&queues[queue].name)
}

impl Queues {
    /// No queues.
    pub fn new(key: HashKey) -> Self {
        Self {
            key,
            slab: Slab::new(),
            by_name: Table::default(),
            elders: BTreeMap::new(),
            last: None,
            made: 0,
            sweep_from: 0,
            counts: [0; STATES],
            minutes: Budget::default(),
            history: History::default(),
            timings: Timings::default(),
            with_settings: 0,
            minutes_cursor: 0,
        }
    }

    /// The index of a queue that is known.
    pub fn find(&mut self, name: &str) -> Option<u32> {
        if let Some(last) = self.last
            && *self.slab[last].name == *name
        {
            return Some(last);
        }
        let found = self.lookup(name);
        self.last = found.or(self.last);
        found
    }

    /// The index of a queue that is known, without remembering it as the last one.
    pub fn lookup(&self, name: &str) -> Option<u32> {
        let same = |&index: &u32| *self.slab[index].name == *name;
        self.by_name.find(self.key.text(name), same).copied()
    }

    /// The index of a queue, made known if it was not.
    pub fn find_or_insert(&mut self, name: &str) -> u32 {
        if let Some(index) = self.find(name) {
            return index;
        }
        let index = self.slab.insert(Queue {
            name: name.into(),
            slot: Slot::of_name(name),
            ..Queue::default()
        });
        let (key, slab) = (self.key, &self.slab);
        self.by_name.insert(key.text(name), index, |&other| hash(key, slab, other));
        self.made += 1;
        index
    }

    /// Counts a job of this priority in.
    #[inline]
    pub fn enter(&mut self, index: u32, state: State, priority: i32) {
        let queue = &mut self[index];
        queue.counts[state as usize] += 1;
        queue.prioritized += u32::from(state == State::Waiting && priority > 0);
        self.counts[state as usize] += u64::from(!queue.detached);
    }

    /// Counts a job of this priority out.
    #[inline]
    pub fn leave(&mut self, index: u32, state: State, priority: i32) {
        let queue = &mut self[index];
        queue.counts[state as usize].take_out(1);
        queue.prioritized.take_out(u32::from(state == State::Waiting && priority > 0));
        let seen = u64::from(!queue.detached);
        self.counts[state as usize].take_out(seen);
    }

    /// Jobs in a state, in all queues that clients see.
    pub fn count(&self, state: State) -> u64 {
        self.counts[state as usize]
    }

    /// Changes what is set for a queue.
    pub fn change_settings<T>(&mut self, index: u32, change: impl FnOnce(&mut Queue) -> T) -> T {
        let queue = &mut self[index];
        let had = queue.has_settings();
        let changed = change(queue);
        let has = queue.has_settings();
        self.with_settings += u64::from(has);
        self.with_settings.take_out(u64::from(had));
        changed
    }

    /// Queues that have settings.
    pub fn with_settings(&self) -> u64 {
        self.with_settings
    }

    /// Whether nothing can be set for a queue for which nothing is: as many have settings as may.
    pub fn refuses_settings(&self, known: Option<u32>) -> bool {
        self.with_settings >= QUEUE_SETTINGS_MAX
            && !known.is_some_and(|queue| self[queue].has_settings())
    }

    /// Names that clients gave to the jobs of a queue.
    pub fn names_of(&mut self, index: u32) -> &mut JobNames {
        let key = self.key;
        self.slab[index].names.get_or_insert_with(|| Box::new(JobNames::new(key)))
    }

    /// Takes the name from a queue, so that the next user of the name gets a new one.
    pub fn detach(&mut self, index: u32) {
        let queue = &mut self.slab[index];
        queue.detached = true;
        self.history.leave_place(&mut queue.history);
        for (all, own) in self.counts.iter_mut().zip(queue.counts) {
            all.take_out(u64::from(own));
        }
        *self.elders.entry(self.slab[index].name.clone()).or_default() += 1;
        self.unname(index);
        let queue = &mut self.slab[index];
        let watching_crons = std::mem::take(&mut queue.watching_crons);
        if watching_crons > 0 {
            let (name, pulled_ms) = (queue.name.clone(), queue.pulled_ms);
            let heir = self.find_or_insert(&name);
            let heir = &mut self.slab[heir];
            (heir.watching_crons, heir.pulled_ms) = (watching_crons, pulled_ms);
        }
    }

    fn unname(&mut self, index: u32) {
        self.last = None;
        let (key, slab) = (self.key, &self.slab);
        let hash_of = |&other: &u32| hash(key, slab, other);
        self.by_name.remove(hash_of(&index), |&other| other == index, hash_of);
    }

    /// Forgets a detached queue, in which nothing may be left.
    pub fn remove_detached(&mut self, index: u32) {
        let mut queue = self.slab.remove(index);
        queue.done.iter_mut().for_each(|done| done.clear(&mut self.minutes));
        assert!(queue.detached && queue.total() == 0, "a queue that goes is empty");
        if let Some(count) = self.elders.get_mut(&queue.name) {
            count.take_out(1);
            if *count == 0 {
                self.elders.remove(&queue.name);
            }
        }
    }

    /// Whether the log cannot tell the completed jobs of this queue from those of another one, since it is
    /// detached, or has the name of one that is.
    pub fn has_elder(&self, index: u32) -> bool {
        !self.elders.is_empty() && self.elders.contains_key(&self.slab.peek(index).name)
    }

    /// Counts a job that was pushed.
    #[inline]
    pub fn count_push(&mut self, index: u32, now_ms: u64) {
        self.note_in_history(index, now_ms);
        self.slab[index].history.pushed += 1;
    }

    /// A job of a queue is about to be counted.
    #[inline]
    fn note_in_history(&mut self, index: u32, now_ms: u64) {
        let queue = &mut self.slab[index];
        if !queue.history.has_place() && !queue.detached {
            let counters = queue.counters();
            self.history.note(now_ms, index, &mut queue.history, counters);
        }
    }

    /// Jobs were delivered that had waited equally long.
    pub(crate) fn count_waits(&mut self, Alike { queue, ms, jobs }: Alike) {
        self.timings.waiting.record(ms.saturating_mul(1000), jobs.into());
        self.history.waited(&self.slab[queue].history, ms, jobs);
        self.slab[queue].waits.get_or_insert_default().note(ms, jobs);
    }

    /// Jobs were completed that had run equally long.
    pub(crate) fn count_runs(&mut self, Alike { queue, ms, jobs }: Alike) {
        self.timings.processing.record(ms.saturating_mul(1000), jobs.into());
        self.history.ran(&self.slab[queue].history, ms, jobs);
        self.slab[queue].runs.get_or_insert_default().note(ms, jobs);
    }

    /// History of the last day.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Begins the history, with the queues that there are.
    pub fn begin_history(&mut self, now_ms: u64, all: Counters) {
        self.history.begin(now_ms, all);
        for index in 0..self.slab.end() {
            if !self.slab.peek(index).exists() {
                continue;
            }
            let queue = &mut self.slab[index];
            let counters = queue.counters();
            self.history.take_place(now_ms, index, &mut queue.history, counters);
        }
    }

    /// Ends a step of the history: see [`History::end_step`].
    pub fn end_history_step(&mut self, now_ms: u64, all: Counters, most: (usize, usize)) {
        self.history.end_step(now_ms, all, &mut self.slab, most);
    }

    /// Counts the end of a job, or of an attempt.
    #[inline]
    pub fn count_done(&mut self, index: u32, now_ms: u64, failed: bool) {
        self.note_in_history(index, now_ms);
        let held = self.minutes.used();
        self.slab[index].done[usize::from(failed)].count(now_ms, &mut self.minutes);
        if self.minutes.used() > held {
            self.age_minutes(now_ms);
        }
    }

    /// Looks at a few queues for each minute that is added, so that those of which nothing is heard any more
    /// do not hold theirs for ever.
    #[cold]
    fn age_minutes(&mut self, now_ms: u64) {
        for _ in 0..4.min(self.slab.end()) {
            let index = if self.minutes_cursor < self.slab.end() { self.minutes_cursor } else { 0 };
            self.minutes_cursor = index + 1;
            if self.slab.peek(index).name.is_empty() {
                continue;
            }
            for done in &mut self.slab[index].done {
                done.grow_old(now_ms, &mut self.minutes);
            }
        }
    }

    /// Minutes that all queues remember together.
    pub fn minutes(&self) -> usize {
        self.minutes.used()
    }

    /// The queues clients see, by index.
    pub fn existing(&self) -> impl Iterator<Item = &Queue> {
        (0..self.slab.end()).map(|index| self.slab.peek(index)).filter(|queue| queue.exists())
    }

    /// The index above the highest in use.
    pub fn end(&self) -> u32 {
        self.slab.end()
    }

    /// How many queues are held, idle ones included.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether no queue is held.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Forgets idle queues once there are many, so that names nobody uses any more cost nothing: looks at some
    /// for each queue that was made since the last time, and at `more`. To be called when no index of a queue is
    /// in use.
    pub fn sweep(&mut self, more: u32) {
        if self.slab.len() < IDLE_QUEUES_MAX {
            self.made = 0;
            return;
        }
        let made = self.made.min(SWEEP_LOOKS_MAX / SWEEP_LOOKS);
        self.made -= made;
        for _ in 0..made * SWEEP_LOOKS + more {
            if self.sweep_from >= self.slab.end() {
                self.sweep_from = 0;
            }
            let index = self.sweep_from;
            self.sweep_from += 1;
            let queue = self.slab.peek(index);
            if !queue.name.is_empty() && !queue.detached && queue.is_idle() {
                self.unname(index);
                let mut queue = self.slab.remove(index);
                queue.done.iter_mut().for_each(|done| done.clear(&mut self.minutes));
            }
        }
    }
}

impl std::ops::Index<u32> for Queues {
    type Output = Queue;
    fn index(&self, index: u32) -> &Queue {
        assert!(index != NONE, "a job knows its queue");
        // Not an index into the slab: queues are gone through by all numbers below their end.
        self.slab.peek(index)
    }
}

impl std::ops::IndexMut<u32> for Queues {
    fn index_mut(&mut self, index: u32) -> &mut Queue {
        self.slab.peek_mut(index)
    }
}
