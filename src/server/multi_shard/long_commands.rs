//! The long commands of a shard: which connections have one, how far it has come, and which go on next. What one is and does
//! is in `long_batch`.

use super::reservations::Reservations;
use crate::protocol::large::LargeFrame;
use crate::server::shard_mail::envelope::Step;
use corq_io::net::ConnId;
use corq_shards::command::ClientId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The one of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) step: Step,
    /// Memory held.
    pub(super) bytes: usize,
    /// The command is being done, and will be to its end, even if the connection closes.
    pub(super) acts: bool,
    /// The command may complete jobs that its connection holds.
    pub(super) completes: bool,
    /// The connection has left, and what it held goes back at the end.
    pub(super) leave: Option<Leave>,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
pub struct Leave {
    /// Which client.
    pub client: ClientId,
    /// Whether other shards may hold something of it.
    pub seen_elsewhere: bool,
    /// Whether it is gone, or only sends no more.
    pub gone: bool,
}

/// Long commands that have something to do, each once, in their turn.
#[derive(Debug, Default)]
pub(super) struct Active {
    queue: VecDeque<Step>,
    queued: BTreeSet<Step>,
}

impl Active {
    pub(super) fn push(&mut self, step: Step) {
        if self.queued.insert(step) {
            self.queue.push_back(step);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Step> {
        let step = self.queue.pop_front()?;
        self.queued.remove(&step);
        Some(step)
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// How far the payload of a long command has come to where it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Staging {
    #[default]
    No,
    /// Another shard has been asked to stage it.
    Asked,
    /// The payload is there, or is copied with its record.
    Done,
}

/// Payloads that other shards have asked to be staged here, in their turn. Each belongs to a long command, of which a
/// connection has one.
#[derive(Debug, Default)]
pub(super) struct StagedForOthers(pub(super) VecDeque<(Step, Arc<LargeFrame>)>);

impl StagedForOthers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Long commands of a shard.
#[derive(Debug, Default)]
pub struct LongCommands {
    pub(super) active: Active,
    /// A connection whose next frame is one.
    pub(super) wanted: Option<(ConnId, usize)>,
    /// Commands by connection, also of connections that are gone.
    pub(super) running: BTreeMap<ConnId, Running>,
    /// Space and places that are reserved for those, here or elsewhere.
    pub(super) reservations: Reservations,
    pub(super) staged_for_others: StagedForOthers,
}

impl LongCommands {
    /// Whether one can go on.
    pub fn has_left(&self) -> bool {
        !self.active.is_empty()
            || self.reservations.has_left()
            || !self.staged_for_others.is_empty()
    }

    /// Whether a connection has one.
    pub fn has(&self, conn: ConnId) -> bool {
        self.running.contains_key(&conn)
    }

    /// Memory that a connection holds by one.
    pub fn held_by(&self, conn: ConnId) -> usize {
        self.running.get(&conn).map_or(0, |running| running.bytes)
    }

    /// Whether a connection has one that is being done: what it holds is of use until the end.
    pub fn acts(&self, conn: ConnId) -> bool {
        self.running.get(&conn).is_some_and(|running| running.acts)
    }

    /// Whether a connection has one that completes what it holds.
    pub fn completes(&self, conn: ConnId) -> bool {
        self.running.get(&conn).is_some_and(|running| running.completes)
    }

    /// Puts off what a connection that is gone would give back now, if what is being done completes it.
    pub fn defers_leave(&mut self, conn: ConnId, leave: Leave) -> bool {
        let Some(running) = self.running.get_mut(&conn) else { return false };
        let needs = running.completes && running.acts && leave.gone;
        if needs {
            running.leave = Some(leave);
        }
        needs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_woken_by_many_answers_goes_on_once_and_in_its_turn() {
        let mut active = Active::default();
        let step = |task: u32| Step { shard: 0, task, round: 0 };
        for task in [2, 1, 2, 2, 3, 1] {
            active.push(step(task));
        }
        let order: Vec<u32> = std::iter::from_fn(|| active.pop()).map(|it| it.task).collect();
        assert_eq!(order, [2, 1, 3]);
        active.push(step(2));
        assert_eq!(active.pop(), Some(step(2)), "once it has gone on, it can be woken again");
        assert!(active.is_empty());
    }
}
