//! Messages between shards about figures, and the state of a question to all shards: data only.
//!
//! A ground type: of the server it imports the envelope and the samples only.

use super::sample::Sample;
use crate::api::access::QueuePatterns;
use crate::server::shard_mail::envelope::{Origin, Step};
use corq_shards::stats::Census;
use corq_shards::stats::history::share::Share;
use corq_shards::stats::history::span::Span;
use std::sync::Arc;

/// Question to a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// The history of a span.
    History(Span),
    /// The shard's row of `Shards`.
    Row,
}

/// The answer of a shard.
#[derive(Debug)]
pub enum Part {
    /// The history of the span.
    History(Share),
    /// The shard's row, encoded for a reply.
    Row(Box<[u8]>),
}

/// Reply that is made of the answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shows {
    /// `History`, with the series of this mask.
    History(Span, u32),
    /// `Heatmap`, of one shard or of all.
    Heatmap(Span, Option<u16>),
    /// `Shards`, a row for each.
    Shards,
}

/// A question to all shards, and the answers so far.
#[derive(Debug)]
pub struct FiguresTask {
    /// Who asked.
    pub origin: Origin,
    /// The client's name for the request.
    pub req_id: Option<Box<[u8]>>,
    /// The reply that is made of the answers.
    pub shows: Shows,
    /// Answers that are still to come.
    pub left: usize,
    /// Answers that came, with their shards.
    pub parts: Vec<(u16, Part)>,
    /// Bytes of the answers that came.
    pub bytes: usize,
    /// Bytes reserved for the answers from the beginning on.
    pub reserved_bytes: usize,
}

/// Wishes of viewers, of one shard or of all together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// The shortest time between two samples; 0 if there is no viewer.
    pub every_ms: u64,
    /// All that is watched, as a mask.
    pub what: u32,
    /// The most queues.
    pub top: u32,
    /// Of which queues the viewers want samples whose tokens are limited to some: each once, in the order of where they are kept.
    pub scopes: Vec<&'static QueuePatterns>,
}

impl Wanted {
    /// Adds the queues of a token.
    pub fn add_scope(&mut self, queues: &'static QueuePatterns) {
        let place = |queues: &QueuePatterns| std::ptr::from_ref(queues).addr();
        let own = self.scopes.binary_search_by_key(&place(queues), |one| place(one));
        if let Err(at) = own {
            self.scopes.insert(at, queues);
        }
    }

    /// Adds what others want.
    pub fn add(&mut self, other: &Self) {
        if other.every_ms > 0 {
            let every_ms = if self.every_ms == 0 { u64::MAX } else { self.every_ms };
            self.every_ms = every_ms.min(other.every_ms);
        }
        self.what |= other.what;
        self.top = self.top.max(other.top);
        other.scopes.iter().for_each(|queues| self.add_scope(queues));
    }
}

/// A shard's part of a sample.
#[derive(Debug, Default)]
pub struct Seen {
    /// Jobs by state, totals and rates.
    pub census: Census,
    /// The shard's row, encoded for a reply.
    pub row: Box<[u8]>,
    /// The busiest queues of the shard, the busiest first.
    pub queues: Vec<BusyRow>,
    /// The busiest queues among those of each token that is asked for.
    pub scoped: Vec<Vec<BusyRow>>,
    /// The shard's part of a snapshot.
    pub snapshot: SnapshotPart,
}

/// A queue: how busy it is, and its row.
pub type BusyRow = (f64, Box<[u8]>);

/// A shard's part of a snapshot for dashboards.
#[derive(Debug, Default)]
pub struct SnapshotPart {
    /// The busiest queues of the shard, as entries of an object of JSON.
    pub queues: Vec<BusyRow>,
    /// Registered workers.
    pub workers: u64,
    /// Registered workers that have been heard of lately.
    pub attending: u64,
    /// How many schedules there are.
    pub crons: u64,
}

/// Messages between shards about figures.
#[derive(Debug)]
pub enum FiguresMessage {
    /// Asks for figures.
    Ask {
        /// Who waits.
        step: Step,
        question: Question,
    },
    /// The answer.
    Answer {
        /// Who waits.
        step: Step,
        from: u16,
        part: Part,
    },
    /// Announces what the viewers of the sender want.
    Interest {
        shard: u16,
        wanted: Wanted,
        /// Whether a viewer has just come.
        is_new: bool,
    },
    /// Asks for a part of a sample, for the viewers of all shards.
    Look { round: u32, wanted: Wanted },
    /// The answer.
    Seen { shard: u16, round: u32, seen: Box<Seen> },
    /// A sample, for the viewers of the receiver.
    Sample(Arc<Sample>),
}
