//! Lines of metrics: one, and those that tell of a queue.

use corq_shards::job::State;
use corq_shards::queue::Queue;
use corq_shards::stats::queue_times::{EDGES_MS, QueueTimes};
use std::fmt::Write;

/// Value that a family has for a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OfQueue {
    /// How many of its jobs are in this state.
    Jobs(State),
    /// Whether it is paused.
    Paused,
    /// For how long the job has been due that waits for longest.
    OldestWaiting,
    /// How long the jobs have waited that were delivered.
    Waits,
    /// How long the jobs have run that were completed.
    Runs,
}

impl OfQueue {
    /// As the text calls it.
    pub(crate) fn kind(self) -> &'static str {
        if matches!(self, Self::Waits | Self::Runs) { "histogram" } else { "gauge" }
    }
}

/// The labelled families of each queue: name, help, what they say.
pub(crate) const QUEUE_FAMILIES: &[(&str, &str, OfQueue)] = &[
    ("queue_jobs_waiting", "Jobs of the queue that can be pulled", OfQueue::Jobs(State::Waiting)),
    ("queue_jobs_active", "Jobs of the queue that a worker has", OfQueue::Jobs(State::Active)),
    (
        "queue_jobs_delayed",
        "Jobs of the queue whose time has not come",
        OfQueue::Jobs(State::Delayed),
    ),
    (
        "queue_jobs_waiting_children",
        "Jobs of the queue whose dependencies are unmet",
        OfQueue::Jobs(State::WaitingChildren),
    ),
    (
        "queue_jobs_completed",
        "Completed jobs of the queue that are kept",
        OfQueue::Jobs(State::Completed),
    ),
    ("queue_jobs_dlq", "Jobs in the dead-letter queue of the queue", OfQueue::Jobs(State::Failed)),
    ("queue_paused", "1 while the queue is paused", OfQueue::Paused),
    (
        "queue_oldest_waiting_seconds",
        "For how long the job of the queue has been due that waits for longest, 0 if none waits",
        OfQueue::OldestWaiting,
    ),
    (
        "queue_wait_seconds",
        "Time from when a job of the queue was due to its delivery",
        OfQueue::Waits,
    ),
    (
        "queue_run_seconds",
        "Time from the delivery of a job of the queue to its completion",
        OfQueue::Runs,
    ),
];

/// Lines that tell of single queues, by family.
#[derive(Clone, Debug, Default)]
pub struct QueueLines {
    rows: usize,
    pub(super) lines: [String; QUEUE_FAMILIES.len()],
}

impl QueueLines {
    /// Adds those of a queue whose oldest waiting job has been due for so long, with how long its jobs have waited and run if
    /// that is wanted.
    pub fn write(&mut self, queue: &Queue, oldest_ms: u64, with_times: bool) {
        self.rows += 1;
        let label = format!("queue=\"{}\"", escaped(&queue.name));
        for ((name, _, what), lines) in QUEUE_FAMILIES.iter().zip(&mut self.lines) {
            let number = match what {
                OfQueue::Jobs(state) => queue.count(*state).to_string(),
                OfQueue::Paused => u64::from(queue.is_paused()).to_string(),
                OfQueue::OldestWaiting => decimal(oldest_ms),
                OfQueue::Waits | OfQueue::Runs => {
                    let times = if *what == OfQueue::Waits { &queue.waits } else { &queue.runs };
                    if let Some(times) = times.as_ref().filter(|_| with_times) {
                        write_times(lines, name, &label, times);
                    }
                    continue;
                }
            };
            sample(lines, name, &format!("{{{label}}}"), &number);
        }
    }

    /// How many queues they tell of.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How long they are.
    pub fn bytes(&self) -> usize {
        self.lines.iter().map(String::len).sum()
    }
}

/// Writes one sample.
pub(super) fn sample(text: &mut String, name: &str, labels: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "corq_{name}{labels} {value}");
}

/// Thousandths as a decimal number, without zeros that say nothing.
pub(super) fn decimal(thousandths: u64) -> String {
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// The value of a label, as the format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// How long the jobs of a queue have waited or run, in seconds.
fn write_times(text: &mut String, name: &str, label: &str, times: &QueueTimes) {
    let bucket = format!("{name}_bucket");
    let mut so_far = 0;
    for (place, count) in times.counts.iter().enumerate() {
        so_far += count;
        let edge = EDGES_MS.get(place).map_or("+Inf".to_string(), |&edge_ms| decimal(edge_ms));
        sample(text, &bucket, &format!("{{{label},le=\"{edge}\"}}"), &so_far.to_string());
    }
    let label = format!("{{{label}}}");
    sample(text, &format!("{name}_sum"), &label, &decimal(times.sum_ms));
    sample(text, &format!("{name}_count"), &label, &so_far.to_string());
}
