//! What shards say to each other about figures, and what is kept of a question to all of them: data only.
//!
//! A ground type: of the server it imports the envelope and the samples only.

use super::sample::Sample;
use crate::api::access::QueuePatterns;
use crate::server::shard_mail::envelope::{Origin, Step};
use corq_shards::stats::Census;
use corq_shards::stats::history::share::Share;
use corq_shards::stats::history::span::Span;
use std::sync::Arc;

/// What a shard is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// What happened in a span.
    History(Span),
    /// What it does.
    Row,
}

/// The answer of a shard.
#[derive(Debug)]
pub enum Part {
    /// What happened.
    History(Share),
    /// What it does, as the row of a reply.
    Row(Box<[u8]>),
}

/// What is made of the answers.
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
    /// What is made of the answers.
    pub shows: Shows,
    /// Answers that are still to come.
    pub left: usize,
    /// Those that came, with their shards.
    pub parts: Vec<(u16, Part)>,
    /// Their bytes.
    pub bytes: usize,
    /// What is reserved for them from the beginning on.
    pub reserved_bytes: usize,
}

/// What viewers want, of one shard or of all together.
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

/// What a shard adds to a sample.
#[derive(Debug, Default)]
pub struct Seen {
    /// Jobs by state, totals and rates.
    pub census: Census,
    /// What it does, as the row of a reply.
    pub row: Box<[u8]>,
    /// Its busiest queues, the busiest first.
    pub queues: Vec<BusyRow>,
    /// The same of the queues of each token that is asked for.
    pub scoped: Vec<Vec<BusyRow>>,
    /// What snapshots have beside the figures of the server.
    pub snapshot: SnapshotPart,
}

/// A queue: how busy it is, and its row.
pub type BusyRow = (f64, Box<[u8]>);

/// What a shard adds to a snapshot for dashboards.
#[derive(Debug, Default)]
pub struct SnapshotPart {
    /// Its busiest queues, as entries of an object of JSON.
    pub queues: Vec<BusyRow>,
    /// Registered workers.
    pub workers: u64,
    /// Those of them that have been heard of lately.
    pub attending: u64,
    /// How many schedules there are.
    pub crons: u64,
}

/// What shards say to each other.
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
    /// What the viewers of the sender want.
    Interest {
        shard: u16,
        wanted: Wanted,
        /// One of them has just come.
        is_new: bool,
    },
    /// Asks for a part of a sample, for the viewers of all shards.
    Look { round: u32, wanted: Wanted },
    /// The answer.
    Seen { shard: u16, round: u32, seen: Box<Seen> },
    /// A sample, for the viewers of the receiver.
    Sample(Arc<Sample>),
}
