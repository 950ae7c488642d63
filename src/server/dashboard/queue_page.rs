//! A queue as dashboards show it: as one row of all queues, and as a page with its counts and its first jobs.
//!
//! A ground type: it imports nothing of the server.

use crate::api::commands::LISTED;
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::queue::Queue;
use corq_shards::queue::listing::{Listing, States, Views};

/// Priorities that are counted, from the highest on.
const PRIORITIES_MAX: usize = 1000;

/// Jobs of each state that are shown, at most.
pub const JOBS_MAX: u32 = 50;

/// The page of a queue that is being put together.
#[derive(Debug)]
pub struct QueuePage {
    pub queue: Box<str>,
    /// The dead letters as MessagePack, ready to be sent.
    pub letters: Vec<u8>,
    /// Jobs by what they are listed as, and how many of each.
    pub jobs: Vec<(&'static str, Vec<JobId>)>,
    pub limit: usize,
}

/// Lists of jobs on the page, in this order. Waiting jobs of a paused queue are listed as `paused`.
pub const SECTIONS: [&str; 4] = ["waiting", "active", "delayed", "paused"];

impl QueuePage {
    /// The listing of the jobs that come next, if any are left.
    pub fn next(&self, is_paused: bool) -> Option<Listing> {
        let listed = SECTIONS.get(self.jobs.len())?;
        let states: States = match *listed {
            "waiting" if !is_paused => [State::Waiting].into_iter().collect(),
            "active" => [State::Active].into_iter().collect(),
            "delayed" => [State::Delayed].into_iter().collect(),
            _ => States::default(),
        };
        let views = Views { paused: *listed == "paused", ..Views::default() };
        Some(Listing::new(&self.queue, states, 0, self.limit).with(views))
    }

    /// Takes in what a listing has found.
    pub fn note(&mut self, found: Vec<JobId>) {
        if let Some(listed) = SECTIONS.get(self.jobs.len()) {
            self.jobs.push((listed, found));
        }
    }
}

/// Names of the counts of a queue, one for each list that its jobs can be in.
pub const NAMES: [&str; 8] = match LISTED.first_chunk() {
    Some(names) => *names,
    None => panic!("a queue counts more than it lists"),
};

/// Counts of a queue that is not there.
pub const NO_COUNTS: [u64; NAMES.len()] = [0; NAMES.len()];

/// The jobs of a queue by their states. Prioritized and paused ones are among those that wait.
pub fn counts_by_state(queue: &Queue) -> [u64; NAMES.len()] {
    let [waiting, delayed, active, completed, failed, blocked] =
        State::ALL.map(|state| queue.count(state));
    let paused = if queue.is_paused() { waiting } else { 0 };
    [waiting, delayed, active, completed, failed, blocked, queue.prioritized(), paused]
}

/// Counts as `counts_by_state`, but with each waiting job once: as one of a paused queue, as one of a priority above 0,
/// or as another one.
pub fn counts_once(queue: &Queue) -> [u64; NAMES.len()] {
    let [waiting, delayed, active, completed, failed, blocked, prioritized, paused] =
        counts_by_state(queue);
    let (waiting, prioritized) =
        if queue.is_paused() { (0, 0) } else { (waiting - prioritized, prioritized) };
    [waiting, delayed, active, completed, failed, blocked, prioritized, paused]
}

/// Counts of the jobs of a queue, or of several.
#[derive(Debug, Default)]
pub struct Counts {
    by_name: [u64; NAMES.len()],
    is_paused: bool,
    pub priorities: Vec<(i32, u64)>,
}

impl Counts {
    pub fn of(queue: Option<&Queue>) -> Self {
        let Some(queue) = queue else { return Self::default() };
        Self {
            by_name: counts_once(queue),
            is_paused: queue.is_paused(),
            priorities: queue.priorities(None, PRIORITIES_MAX),
        }
    }

    /// Writes them as entries of `data`.
    pub fn write(&self, data: &mut MapWriter<'_>) {
        let mut counts = data.map("counts");
        for (name, count) in NAMES.iter().zip(self.by_name) {
            counts.key(name).uint(count);
        }
        drop(counts);
        data.key("paused").bool(self.is_paused);
        let mut priorities = data.map("priorityCounts");
        for (priority, jobs) in &self.priorities {
            priorities.key(&priority.to_string()).uint(*jobs);
        }
    }
}

/// A queue as one row of `DashboardQueues`.
pub fn write_row(writer: &mut Writer<'_>, queue: &Queue) {
    let mut row = writer.begin_map();
    row.key("name").str(&queue.name);
    let prioritized = queue.prioritized();
    for (name, count) in [
        ("waiting", queue.count(State::Waiting) - prioritized),
        ("prioritized", prioritized),
        ("delayed", queue.count(State::Delayed)),
        ("active", queue.count(State::Active)),
        ("dlq", queue.count(State::Failed)),
    ] {
        row.key(name).uint(count);
    }
    row.key("paused").bool(queue.is_paused());
}
