//! Actions on many jobs: what is done with each, which jobs are meant, and how a task is named.

use super::commands::Op;
use super::error::{Error, ErrorKind};
use super::objects::ACTIONS;
use corq_shards::job::State;
use corq_shards::job::change::Change;

use crate::protocol::msgpack::Texts;

/// Change that is made to each job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Runs jobs anew that have ended.
    Retry,
    /// Removes jobs, ended or not.
    Remove,
    /// Removes jobs that have not ended.
    Cancel,
    /// Ends the delay of jobs.
    Promote,
    /// Moves jobs to the dead-letter queue.
    Discard,
    /// Delivers jobs no sooner than after so many milliseconds.
    Delay { delay_ms: u64 },
    /// Sets the priority of jobs.
    Priority { priority: i32 },
}

impl Action {
    /// As requests and replies call it.
    pub fn name(self) -> &'static str {
        ACTIONS[match self {
            Self::Retry => 0,
            Self::Remove => 1,
            Self::Cancel => 2,
            Self::Promote => 3,
            Self::Discard => 4,
            Self::Delay { .. } => 5,
            Self::Priority { .. } => 6,
        }]
    }

    /// The command that does the same with one job, or with those of a queue: who may send that may send this.
    pub const fn acts_as(self) -> Op {
        match self {
            Self::Retry => Op::RetryDlq,
            Self::Remove => Op::Clean,
            Self::Cancel => Op::Cancel,
            Self::Promote => Op::Promote,
            Self::Discard => Op::Discard,
            Self::Delay { .. } => Op::MoveToDelayed,
            Self::Priority { .. } => Op::ChangePriority,
        }
    }

    /// The change of a job; `None` for `Retry`, which runs a job anew and is no change of it.
    pub const fn change(self) -> Option<Change<'static>> {
        Some(match self {
            Self::Retry => return None,
            Self::Remove => Change::Remove,
            Self::Cancel => Change::Cancel,
            Self::Promote => Change::Promote,
            Self::Discard => Change::Discard { token: None },
            Self::Delay { delay_ms } => Change::PutOff { delay_ms, token: None },
            Self::Priority { priority } => Change::Prioritize { priority, lifo: None },
        })
    }

    /// Whether it can be done to a job in a state. None is taken from its worker.
    pub fn fits(self, state: State) -> bool {
        let is_idle = match self {
            Self::Discard => state != State::Failed,
            Self::Retry => matches!(state, State::Completed | State::Failed),
            _ => true,
        };
        is_idle && state != State::Active && self.change().is_none_or(|change| change.fits(state))
    }

    /// Whether it is done to jobs in a state where a filter names none. Jobs that are completed run anew, or go to
    /// the dead-letter queue, only where that is said.
    pub fn is_meant_for(self, state: State) -> bool {
        self.fits(state)
            && (state != State::Completed || !matches!(self, Self::Retry | Self::Discard))
    }
}

/// Which jobs of a queue are meant. An absent field selects nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BulkFilter<'a> {
    /// Bits of [`super::objects::LISTED`].
    pub states: Option<u32>,
    pub name: Option<&'a str>,
    pub tag: Option<&'a str>,
    pub group: Option<&'a str>,
    /// Pushed at this time or later.
    pub from_ms: Option<u64>,
    /// Pushed at this time or before.
    pub to_ms: Option<u64>,
    /// With this text somewhere in the payload.
    pub text: Option<&'a str>,
    /// With a value at this path.
    pub path: Option<&'a str>,
    /// Which is this one, a `MessagePack` value; empty for any.
    pub value: &'a [u8],
    /// Dead letters with this text in their error.
    pub error: Option<&'a str>,
    /// Dead letters of this group of errors.
    pub error_group: Option<&'a str>,
}

/// An action and the jobs that it is for, as a request names them.
#[derive(Clone, Debug)]
pub struct Bulk<'a> {
    /// A place in [`super::objects::ACTIONS`].
    pub action: usize,
    /// The queue of the jobs.
    pub queue: Option<&'a str>,
    /// The ids of the jobs.
    pub ids: Option<Texts<'a>>,
    /// Conditions on the jobs of the queue.
    pub filter: Option<BulkFilter<'a>>,
    pub delay_ms: Option<u64>,
    pub priority: Option<i32>,
    /// Limit of the jobs that are changed.
    pub limit: Option<u64>,
    /// Nothing is changed; jobs that would be changed are counted.
    pub dry_run: bool,
}

/// Which jobs.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    Ids(Texts<'a>),
    /// Jobs of this queue that a filter lets through.
    Filtered(&'a str, BulkFilter<'a>),
}

impl<'a> Bulk<'a> {
    /// The action with its parameter. A missing parameter counts as 0.
    pub fn action(&self) -> Action {
        let (delay_ms, priority) = (self.delay_ms.unwrap_or(0), self.priority.unwrap_or(0));
        let actions = [
            Action::Retry,
            Action::Remove,
            Action::Cancel,
            Action::Promote,
            Action::Discard,
            Action::Delay { delay_ms },
            Action::Priority { priority },
        ];
        actions[self.action.min(actions.len() - 1)]
    }

    /// Which jobs, if that is said, and all that the action needs.
    pub fn which(&self) -> Result<Which<'a>, Error> {
        let which = match (self.ids, self.filter, self.queue) {
            (Some(ids), None, _) => Which::Ids(ids),
            (None, Some(filter), Some(queue)) => Which::Filtered(queue, filter),
            (Some(_), Some(_), _) => return Err(ErrorKind::IdsAndFilter.into()),
            (None, None, _) => return Err(ErrorKind::IdsOrFilter.into()),
            (None, Some(_), None) => return Err(ErrorKind::FilterWithoutQueue.into()),
        };
        match self.action() {
            Action::Delay { .. } if self.delay_ms.is_none() => Err(Error::required("delay")),
            Action::Priority { .. } if self.priority.is_none() => Err(Error::required("priority")),
            _ if self.filter.is_some_and(|it| it.path.is_none() && !it.value.is_empty()) => {
                Err(Error::required("filter.path"))
            }
            _ => Ok(which),
        }
    }
}

/// How a task is named: by its shard, the start of the server, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskId {
    pub shard: usize,
    pub started_ms: u64,
    pub number: u64,
}

impl TaskId {
    /// Reads what [`std::fmt::Display`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix('b')?.split('.');
        let (shard, started, number) = (parts.next()?, parts.next()?, parts.next()?);
        let shard = shard.parse().ok().filter(|_| parts.next().is_none())?;
        Some(Self { shard, started_ms: started.parse().ok()?, number: number.parse().ok()? })
    }
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "b{}.{}.{}", self.shard, self.started_ms, self.number)
    }
}

/// The shard that has a task; any if the text names none.
pub fn shard_of_task(task: &str) -> usize {
    TaskId::parse(task).map_or(0, |task| task.shard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_named_as_it_is_read_and_by_nothing_else() {
        let task = TaskId { shard: 3, started_ms: 1_700_000_000_000, number: 12 };
        assert_eq!(TaskId::parse(&task.to_string()), Some(task));
        for text in ["", "b", "b1", "b1.2", "b1.2.", "b1.2.3.4", "1.2.3", "bx.2.3", "b1.-2.3"] {
            assert_eq!(TaskId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn no_action_takes_a_job_from_its_worker_and_each_is_done_where_its_command_is() {
        let actions = [
            (Action::Retry, "completed failed", "failed"),
            (
                Action::Remove,
                "waiting delayed completed failed waiting-children",
                "waiting delayed completed failed waiting-children",
            ),
            (
                Action::Cancel,
                "waiting delayed waiting-children",
                "waiting delayed waiting-children",
            ),
            (Action::Promote, "delayed", "delayed"),
            (
                Action::Discard,
                "waiting delayed completed waiting-children",
                "waiting delayed waiting-children",
            ),
            (Action::Delay { delay_ms: 1 }, "waiting delayed", "waiting delayed"),
            (Action::Priority { priority: 1 }, "waiting delayed", "waiting delayed"),
        ];
        for (action, fits, meant) in actions {
            let names = |has: &dyn Fn(State) -> bool| {
                let all =
                    State::ALL.into_iter().filter(|&state| state != State::Vacant && has(state));
                let mut names: Vec<_> = all.map(State::name).collect();
                names.sort_unstable();
                names
            };
            let sorted = |text: &'static str| {
                let mut names: Vec<_> = text.split(' ').collect();
                names.sort_unstable();
                names
            };
            assert_eq!(names(&|state| action.fits(state)), sorted(fits), "{}", action.name());
            assert_eq!(
                names(&|state| action.is_meant_for(state)),
                sorted(meant),
                "{}",
                action.name()
            );
        }
    }
}
