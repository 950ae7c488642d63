//! Messages between shards about commands in several steps: data only. The file of each command sends and reads its
//! own.
//!
//! A ground type: of the server it imports the envelope only.

use crate::api::error::Error;
use crate::protocol::large::LargeFrame;
use crate::server::shard_mail::envelope::{Origin, Span, Step};
use corq_shards::command::CronStanding;
use corq_shards::effect::Refusal;

use corq_shards::flow::Fate;
use corq_shards::job::id::JobId;
use corq_shards::query::AboutParent;
use std::sync::Arc;

/// Rows of one page.
pub const PAGE_ROWS: usize = 500;

/// Bytes after which a page ends.
pub const PAGE_BYTES: usize = 256 << 10;

/// Reply bytes that a list over all shards counts as from its beginning on, while its rows are not known: without it
/// all lists that begin in the same turn would pass. With 1,024 MB for the clients of a shard four are under way at a time,
/// with less fewer, and one in any case.
pub const LIST_RESERVE_BYTES: usize = 2 << 20;

/// The unmet dependencies of jobs of a push by place, as [`corq_shards::dependency::Unmet`] writes them.
pub type UnmetOf<T> = Vec<(usize, T)>;

/// The dependencies of the job at a place, if it has any.
pub fn unmet_at<T>(lists: &UnmetOf<T>, place: usize) -> Option<&T> {
    let found = lists.binary_search_by_key(&place, |(job, _)| *job).ok()?;
    Some(&lists[found].1)
}

/// Messages between shards about payloads of megabytes.
#[derive(Debug)]
pub enum LargeMessage {
    /// The log of the receiver will hold this payload, and is to have it in its memory before its record.
    StagePayload {
        /// Who waits.
        step: Step,
        frame: Arc<LargeFrame>,
    },
    /// The payload is staged, or will be copied with its record.
    PayloadStaged {
        /// Who waits.
        step: Step,
    },
}

/// Messages between shards about flows.
#[derive(Debug)]
pub enum FlowMessage {
    /// A part for the receiver.
    Stage {
        /// Who waits.
        step: Step,
        records: Vec<Span>,
        /// Of each, its place in the flow and its `groupMaxSize`, if it has one; empty if none has.
        caps: Vec<(usize, u32)>,
        /// Whether the flow has to be durable.
        durable: bool,
    },
    /// The part is written down, or why not.
    Staged {
        /// Who waits.
        step: Step,
        /// Why not, and for the sake of which job.
        refused: Option<(usize, Refusal)>,
    },
    /// The decision on a flow.
    Decided {
        /// The shard that says so.
        shard: u16,
        flow: JobId,
        fate: Fate,
    },
    /// The part of the sender has come.
    Come { flow: JobId },
}

/// Messages between shards about a parent and a child.
#[derive(Debug)]
pub enum ParentLinkMessage {
    /// To the shard of a child: what is known of it?
    AskChild {
        /// Who waits.
        step: Step,
        child: JobId,
    },
    Child {
        /// Who waits.
        step: Step,
        child: JobId,
        about: AboutChild,
    },
    /// To the shard of a parent: what is known of it, and whether it names the child.
    AskParent {
        /// Who waits.
        step: Step,
        parent: JobId,
        /// The child's name.
        child: Span,
    },
    Parent {
        /// Who waits.
        step: Step,
        /// None if there is no such job.
        about: Option<AboutParent>,
    },
    /// To the shard of a parent: it has one more child from now on, or waits for one no longer.
    Edge {
        /// Who waits.
        step: Step,
        parent: JobId,
        child: JobId,
        /// The child's name.
        name: Span,
        change: EdgeChange,
    },
    /// To the shard of a child: it has this parent from now on, or none.
    Patch {
        /// Who waits.
        step: Step,
        link: Link,
    },
    /// To the shard of a child: its parent has no use for it.
    Abandon {
        /// Who waits.
        step: Step,
        child: JobId,
    },
    /// The change was made, or why not.
    Done {
        /// Who waits.
        step: Step,
        outcome: Result<bool, Error>,
    },
}

/// A change to the children of a parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EdgeChange {
    /// Add a child, as a command of its own asks for.
    Adopt,
    /// Add a child that was pushed for the parent. The log was found to have room for the link before the push.
    AdoptPushed {
        /// The link has to be on the disk before the push is answered.
        durable: bool,
    },
    /// Remove a child.
    LetGo,
}

/// A child as its shard describes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AboutChild {
    pub(super) known: bool,
    pub(super) parent: Option<Box<str>>,
}

/// Change to the parent that a child names.
#[derive(Clone, Debug)]
pub struct Link {
    pub(super) child: JobId,
    /// The parent from now on, and the parent's queue; none to have no parent.
    pub(super) parent: Option<(Box<str>, Box<str>)>,
}

/// Messages between shards about schedules.
#[derive(Debug)]
pub enum CronMessage {
    /// Work for the shard that has the queue of a schedule.
    Act {
        /// Who waits.
        step: Step,
        /// Who asked.
        origin: Origin,
        act: Act,
        /// The client's command.
        frame: Span,
    },
    /// The outcome of an act: what the schedule keeps when it moves, if there is one.
    Acted {
        /// Who waits.
        step: Step,
        state: Option<CronStanding>,
        /// Why it could not be set.
        refused: Option<Error>,
    },
    /// The sender has this schedule, found in its log.
    Known {
        name: Span,
        version: u64,
        /// Bytes of its payload.
        data_bytes: u64,
        owner: u16,
        /// The limit has ended it.
        has_ended: bool,
    },
    /// A schedule of the sender has ended by itself. By its limit, and it is remembered, or because it has no time left.
    Ended { owner: u16, name: Span, is_remembered: bool },
    /// The receiver's schedule of this name is older than another, or need not be remembered any longer.
    Drop { name: Span },
    /// More commands wait for this name than were taken up.
    GoOn { name: Span },
    /// All names are known: schedules run from now on.
    Start,
}

/// An action of the owner of a queue on a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Stop it: it moves to another shard.
    Hold,
    /// Let it go on: it did not move after all.
    LetGo,
    /// Set it and answer the client, or say why not: the registry shard answers the client.
    Set {
        /// State of the schedule on the shard that it moves from, to be kept.
        moved: Option<CronStanding>,
    },
    /// Remove it: it has moved.
    Leave,
    /// Remove it and answer the client.
    Delete,
    /// Carry out the client's command on it, and answer.
    Answer,
}
