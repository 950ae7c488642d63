//! The events of a shard on their way, and which shards listen to what.

use super::interest::{Hearers, Interest};
use super::text::{About, Layout, kind_of, write_job};
use corq_shards::event::Event;
use std::collections::VecDeque;

/// Looks for each step.
pub(super) const LOOKS_PER_STEP: usize = 32;

/// An event that waits for the disk, or behind one that does.
#[derive(Clone)]
pub(super) enum Late {
    Ready {
        queue: Box<str>,
        text: Box<[u8]>,
        layout: Layout,
    },
    /// With the bytes of what it shows that was in memory, kept beside it.
    Cold(Event, usize),
}

/// The events of a shard on their way, and which shards listen to what.
#[derive(Default)]
pub struct Events {
    pub(super) interest: Interest,
    /// Whether the engine puts events together.
    pub(super) listening: bool,
    pub(super) late: VecDeque<Late>,
    /// Bytes of the texts in it.
    pub(super) late_bytes: usize,
    /// How many have left the front of `late`.
    pub(super) left: u64,
    /// Where texts are written.
    pub(super) text: Vec<u8>,
    pub(super) layout: Layout,
    /// Where ids of jobs are written.
    pub(super) job: Vec<u8>,
    /// Who hears the event under way.
    pub(super) hearers: Hearers,
    /// Events that were written as text.
    pub(super) written: u64,
}

impl Events {
    /// Sets how many events are kept for clients that come back.
    pub fn keep(&mut self, most: usize) {
        self.interest.kept_max = most;
    }

    /// Events that were written as text.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Events that are kept, their bytes, and targets that are remembered.
    pub fn kept(&self) -> (usize, usize, usize) {
        let Interest { kept, .. } = &self.interest;
        (kept.len(), kept.bytes(), self.interest.len())
    }

    /// The text that was just written, to wait.
    pub(super) fn late_text(&mut self, queue: &str) -> Late {
        self.late_bytes += self.text.len();
        let (queue, text) = (queue.into(), self.text.as_slice().into());
        Late::Ready { queue, text, layout: self.layout }
    }

    /// Finds who hears an event. Returns the steps that took.
    pub(super) fn find(&mut self, event: &Event) -> usize {
        self.job.clear();
        if self.interest.has_jobs() {
            write_job(&mut self.job, event);
        }
        let about = About { queue: &event.queue, kind: kind_of(event.step), job: &self.job };
        self.interest.find(&about, &mut self.hearers)
    }
}
