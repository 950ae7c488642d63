//! Messages between shards about actions on many jobs: data only.

use super::error_groups::GroupScan;
use super::tasks::Counts;
use crate::api::access::Scope;
use crate::api::bulk::Action;
use crate::api::commands::Op;
use crate::server::event_loop::turn_meter::Work;
use corq_shards::job::id::JobId;

/// An action on some jobs of the receiver.
#[derive(Clone, Debug)]
pub struct Part {
    pub action: Action,
    pub dry_run: bool,
    /// The queues that there are for the client of the task.
    pub scope: Scope,
    /// The jobs are of this queue.
    pub queue: Option<Box<str>>,
    /// Whether the ids are those that a directory has for names: one that no job bears is no name.
    pub looked_up: bool,
}

/// A message about a task: `task` is its number on the shard that coordinates it.
#[derive(Debug)]
pub enum BulkMessage {
    /// Asks which jobs bear custom ids.
    Find {
        /// Who asks.
        from: u16,
        task: u64,
        names: Vec<Box<str>>,
    },
    /// The answer.
    Found { task: u64, jobs: Vec<JobId>, unknown: u64 },
    /// Some jobs are to be changed.
    Act {
        /// Who asks.
        from: u16,
        task: u64,
        part: Box<Part>,
        jobs: Vec<JobId>,
    },
    /// Answers `Act`.
    Acted {
        task: u64,
        counts: Counts,
        /// Jobs that were named by texts of the form of an id.
        named: Vec<JobId>,
        /// Whether nothing can be recorded where the jobs are.
        data_gone: bool,
    },
    /// The receiver's dead letters are next.
    Groups(Box<GroupScan>),
    /// Groups that began at the receiver are answered, or given up.
    GroupsEnded,
}

impl BulkMessage {
    /// The command that the turn meter counts the message as.
    pub fn work(&self) -> Work {
        match self {
            Self::Groups(_) | Self::GroupsEnded => Work::of(Op::DlqGroups),
            _ => Work::of(Op::Bulk),
        }
    }
}
