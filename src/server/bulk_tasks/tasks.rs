//! The tasks of a shard: those that run, and the last of those that have ended. Both are bounded.
//!
//! Of the server it imports what a task works on only.

use super::work::{Filtered, Named};
use crate::api::access::{Grant, Holder, Role, Scope};
use crate::api::bulk::{Action, TaskId};
use crate::api::commands::Op;
use crate::api::error::ErrorKind;
use crate::audit::entry::{Entry, Who};
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use std::collections::VecDeque;

/// Tasks of a shard that run at a time; another one is refused.
pub const RUNNING_MAX: usize = 32;

/// Tasks of a shard that have ended and are remembered; the oldest is forgotten for another one.
pub const REMEMBERED_MAX: usize = 100;

/// Why a job was not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Skip {
    /// There is none of this id.
    NotFound,
    /// A worker has it.
    Active,
    /// The state of the job does not allow the action.
    State,
    /// The stored record cannot be read, so it is unknown whether the filter fits.
    Damaged,
}

impl Skip {
    /// As replies call them, in their order.
    const NAMES: [&'static str; 4] = ["notFound", "active", "state", "damaged"];
}

/// Progress of a task, in jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Jobs looked at.
    pub counted: u64,
    /// Jobs that the filter fits, or that the ids name.
    pub matched: u64,
    /// Jobs that were changed; in a dry run, that would be.
    pub changed: u64,
    /// Jobs that were not changed, by [`Skip`].
    pub skipped: [u64; Skip::NAMES.len()],
    /// Payloads that were searched in part.
    pub partly: u64,
}

impl Counts {
    /// A job that is meant was changed, or was not.
    pub fn note(&mut self, outcome: Result<(), Skip>) {
        match outcome {
            Ok(()) => self.changed += 1,
            Err(why) => self.skipped[why as usize] += 1,
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.counted += more.counted;
        self.matched += more.matched;
        self.changed += more.changed;
        self.partly += more.partly;
        for (all, some) in self.skipped.iter_mut().zip(more.skipped) {
            *all += some;
        }
    }
}

/// How far a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskState {
    Running,
    Done,
    Cancelled,
    /// The token that began it is gone, or may not do it any more.
    Revoked,
    /// An error stopped the task: nothing could be recorded.
    Failed(ErrorKind),
}

impl TaskState {
    fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled | Self::Revoked => "cancelled",
            Self::Failed(_) => "failed",
        }
    }

    /// Why it has ended before it was done, if not by a client.
    fn error(self) -> Option<&'static str> {
        match self {
            Self::Failed(why) => Some(why.text()),
            Self::Revoked => Some("The token that began it is gone or may not do this any more"),
            Self::Running | Self::Done | Self::Cancelled => None,
        }
    }
}

/// The jobs that a task has yet to act on.
#[derive(Debug)]
pub enum Work {
    /// With the jobs of a queue; not there while a slice of it goes on.
    Filtered(Option<Box<Filtered>>),
    /// With jobs of given ids.
    Named(Box<Named>),
    Over,
}

/// An action on many jobs.
#[derive(Debug)]
pub struct BulkTask {
    number: u64,
    pub action: Action,
    pub dry_run: bool,
    /// The jobs are of this queue.
    pub queue: Option<Box<str>>,
    /// Role of the token that began the task, shown as `startedBy`.
    pub role: Role,
    /// Queues that the token is for; follows when tokens change.
    pub scope: Scope,
    /// The token, whose rights are checked anew when tokens change.
    pub holder: Holder,
    pub state: TaskState,
    started_ms: u64,
    ended_ms: Option<u64>,
    /// Jobs that there are to look at, as known at its beginning.
    total: u64,
    pub counts: Counts,
    pub work: Work,
}

impl BulkTask {
    /// Whether it is shown to clients of these queues: a task on a queue to those of the queue, one on jobs of given ids to
    /// those who are limited in the same way as its client.
    pub fn is_shown_to(&self, scope: Scope) -> bool {
        match (scope, &self.queue) {
            (None, _) => true,
            (Some(queues), Some(queue)) => queues.cover(queue),
            (Some(_), None) => self.scope == scope,
        }
    }

    /// The entry of the audit log about its end.
    fn entry(&self, me: usize, server_ms: u64) -> Entry {
        let id = TaskId { shard: me, started_ms: server_ms, number: self.number };
        let who = Who { role: Some(self.role), ..Who::SERVER };
        let at_ms = self.ended_ms.unwrap_or(self.started_ms);
        let entry = Entry::new(at_ms, who, Op::Bulk.spec().name).of_queue(self.queue.as_deref());
        let entry = entry.about(format!("{}; task {id} {}", self.action.name(), self.state.name()));
        Entry { count: Some(self.counts.changed), ..entry }
    }

    /// Writes it. `stalled` if its shard does nothing that is recorded until there is room.
    pub fn write(&self, task: &mut MapWriter<'_>, (me, server_ms): (usize, u64), stalled: bool) {
        let id = TaskId { shard: me, started_ms: server_ms, number: self.number };
        let is_running = self.state == TaskState::Running;
        task.key("id").str(&id.to_string());
        task.key("action").str(self.action.name());
        match self.action {
            Action::Delay { delay_ms } => task.key("delay").uint(delay_ms),
            Action::Priority { priority } => task.key("priority").int(i64::from(priority)),
            _ => {}
        }
        task.key("queue").str_or_nil(self.queue.as_deref());
        task.key("dryRun").bool(self.dry_run);
        task.key("state").str(self.state.name());
        task.key("paused").bool(is_running && stalled);
        if let Some(error) = self.state.error() {
            task.key("error").str(error);
        }
        task.key("total").uint(self.total);
        task.key("counted").uint(self.counts.counted);
        task.key("matched").uint(self.counts.matched);
        task.key("changed").uint(self.counts.changed);
        let mut skipped = task.map("skipped");
        for (name, count) in Skip::NAMES.into_iter().zip(self.counts.skipped) {
            skipped.key(name).uint(count);
        }
        drop(skipped);
        task.key("partly").uint(self.counts.partly);
        task.key("startedAt").uint(self.started_ms);
        task.key("endedAt").uint_or_nil(self.ended_ms);
        task.key("startedBy").str(self.role.name());
    }
}

/// A task that is to begin.
pub struct NewTask<'a> {
    pub action: Action,
    pub dry_run: bool,
    pub queue: Option<&'a str>,
    pub role: Role,
    pub scope: Scope,
    pub holder: Holder,
    pub total: u64,
    pub work: Work,
}

/// Whether a token lets its holder do so with jobs of a queue; or, if none is named, with those of its own.
pub(super) fn may(grant: Grant, action: Action, queue: Option<&str>) -> bool {
    action.acts_as().is_for(grant.role)
        && queue.is_none_or(|queue| grant.queues.is_none_or(|queues| queues.cover(queue)))
}

/// The tasks of a shard.
#[derive(Debug, Default)]
pub struct BulkTasks {
    /// By their numbers.
    tasks: VecDeque<Box<BulkTask>>,
    /// Numbers of tasks that have a slice to do on this shard, in their order.
    turns: VecDeque<u64>,
    /// Numbers of tasks that have ended and are not in the audit log yet.
    ended: Vec<u64>,
    last: u64,
    running: usize,
    /// Jobs that were changed.
    pub changed: u64,
    /// Tasks that were refused because too many run.
    pub refused: u64,
}

impl BulkTasks {
    /// Begins a task, and says its number; `None` if too many run.
    pub fn begin(&mut self, new: NewTask<'_>, now_ms: u64) -> Option<u64> {
        if self.running >= RUNNING_MAX {
            self.refused += 1;
            return None;
        }
        self.running += 1;
        self.last += 1;
        let NewTask { action, dry_run, queue, role, scope, holder, total, work } = new;
        if matches!(work, Work::Filtered(_)) {
            self.turns.push_back(self.last);
        }
        self.tasks.push_back(Box::new(BulkTask {
            number: self.last,
            action,
            dry_run,
            queue: queue.map(Into::into),
            role,
            scope,
            holder,
            state: TaskState::Running,
            started_ms: now_ms,
            ended_ms: None,
            total,
            counts: Counts::default(),
            work,
        }));
        Some(self.last)
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.tasks.binary_search_by_key(&number, |task| task.number).ok()
    }

    /// A task that runs or is remembered.
    pub fn get(&mut self, number: u64) -> Option<&mut BulkTask> {
        let place = self.place(number)?;
        Some(&mut self.tasks[place])
    }

    /// All tasks that run or are remembered, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &BulkTask> {
        self.tasks.iter().rev().map(|task| &**task)
    }

    /// Tokens have changed. Ends the tasks of those that are gone or may not do what they began any more; what is left to
    /// do of the others is done as they may by now.
    pub(super) fn follow_rights(
        &mut self,
        now_ms: u64,
        grant_of: impl Fn(Holder) -> Option<Grant>,
    ) {
        let mut revoked = Vec::new();
        let running = self.tasks.iter_mut().filter(|task| task.state == TaskState::Running);
        for task in running {
            match grant_of(task.holder)
                .filter(|grant| may(*grant, task.action, task.queue.as_deref()))
            {
                Some(grant) => task.scope = grant.queues,
                None => revoked.push(task.number),
            }
        }
        for number in revoked {
            self.end(number, TaskState::Revoked, now_ms);
        }
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// How many have ended and are remembered.
    pub fn remembered(&self) -> usize {
        self.tasks.len() - self.running
    }

    /// Adds to what a task has done.
    pub fn note(&mut self, number: u64, counts: Counts) {
        if let Some(task) = self.get(number) {
            task.counts += counts;
            let is_dry = task.dry_run;
            self.changed += if is_dry { 0 } else { counts.changed };
        }
    }

    /// Ends a task that runs.
    pub fn end(&mut self, number: u64, state: TaskState, now_ms: u64) {
        let Some(task) = self.get(number).filter(|task| task.state == TaskState::Running) else {
            return;
        };
        (task.state, task.ended_ms, task.work) = (state, Some(now_ms), Work::Over);
        self.running -= 1;
        self.turns.retain(|other| *other != number);
        self.ended.push(number);
        if self.remembered() > REMEMBERED_MAX
            && let Some(oldest) =
                self.tasks.iter().position(|task| task.state != TaskState::Running)
        {
            self.tasks.remove(oldest);
        }
    }

    /// Takes an entry of the audit log for each task that has ended since: its command was answered before it was known how
    /// many jobs it changes.
    pub(super) fn take_ended(&mut self, me: usize, server_ms: u64) -> Vec<Entry> {
        let ended = std::mem::take(&mut self.ended);
        let tasks = ended.into_iter().filter_map(|number| self.place(number));
        let tasks = tasks.map(|place| &self.tasks[place]).filter(|task| !task.dry_run);
        tasks.map(|task| task.entry(me, server_ms)).collect()
    }

    /// The task whose turn it is, and what it has to do.
    pub(super) fn next_turn(&mut self) -> Option<(u64, Box<Filtered>)> {
        let number = self.turns.pop_front()?;
        Some((number, self.take_work(number)?))
    }

    /// Takes the work of a task on a queue's jobs, unless the task has ended.
    pub(super) fn take_work(&mut self, number: u64) -> Option<Box<Filtered>> {
        match &mut self.get(number)?.work {
            Work::Filtered(work) => work.take(),
            Work::Named(_) | Work::Over => None,
        }
    }

    /// Gives it back for another slice, which follows `at_once` if nothing has to be read for it.
    pub(super) fn put_back(&mut self, number: u64, filtered: Box<Filtered>, at_once: bool) {
        let Some(task) = self.get(number) else { return };
        if let Work::Filtered(work) = &mut task.work {
            *work = Some(filtered);
            if at_once {
                self.turns.push_back(number);
            }
        }
    }

    /// Whether a slice of a task can be done.
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }
}

/// Writes tasks as entries of a list, and says how many they are.
pub fn write_rows<'t>(
    tasks: impl Iterator<Item = &'t BulkTask>,
    here: (usize, u64),
    stalled: bool,
) -> (Vec<u8>, usize) {
    let (mut entries, mut count) = (Vec::new(), 0);
    for task in tasks {
        task.write(&mut Writer::new(&mut entries).begin_map(), here, stalled);
        count += 1;
    }
    (entries, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(tasks: &mut BulkTasks) -> Option<u64> {
        let (queue, work) = (Some("q"), Work::Filtered(None));
        let Grant { role, queues: scope, holder, .. } = Grant::ALL;
        let (action, total) = (Action::Retry, 0);
        let new = NewTask { action, dry_run: false, queue, role, scope, holder, total, work };
        tasks.begin(new, 1)
    }

    #[test]
    fn so_many_tasks_run_and_so_many_are_remembered_the_newest() {
        let mut tasks = BulkTasks::default();
        let running: Vec<u64> = (0..RUNNING_MAX).filter_map(|_| begin(&mut tasks)).collect();
        assert_eq!(running.len(), RUNNING_MAX);
        assert_eq!((begin(&mut tasks), tasks.refused), (None, 1));
        tasks.end(running[0], TaskState::Cancelled, 2);
        let next = begin(&mut tasks).expect("one has ended");
        tasks.end(next, TaskState::Done, 3);
        // To end it once more changes nothing.
        tasks.end(next, TaskState::Cancelled, 4);
        assert_eq!((tasks.running(), tasks.remembered()), (RUNNING_MAX - 1, 2));
        for _ in 0..REMEMBERED_MAX {
            let next = begin(&mut tasks).expect("one has ended");
            tasks.end(next, TaskState::Done, 5);
        }
        assert_eq!((tasks.running(), tasks.remembered()), (RUNNING_MAX - 1, REMEMBERED_MAX));
        assert!(tasks.get(running[0]).is_none() && tasks.get(next).is_none());
        assert!(tasks.get(running[1]).is_some_and(|task| task.state == TaskState::Running));
        assert!(tasks.get(tasks.last).is_some_and(|task| task.state == TaskState::Done));
    }

    #[test]
    fn a_task_that_has_ended_has_no_turn_and_takes_no_work_back() {
        let mut tasks = BulkTasks::default();
        let number = begin(&mut tasks).expect("none runs");
        assert!(tasks.has_turns());
        tasks.end(number, TaskState::Cancelled, 2);
        assert!(!tasks.has_turns() && tasks.next_turn().is_none());
        tasks.note(number, Counts { changed: 2, ..Counts::default() });
        assert_eq!(tasks.get(number).map(|task| task.counts.changed), Some(2));
        assert_eq!(tasks.changed, 2);
    }

    #[test]
    fn a_task_goes_on_as_its_token_lets_it_and_ends_without_it() {
        let mut tasks = BulkTasks::default();
        let holders: Vec<Holder> = (1..=3).map(std::num::NonZeroU32::new).collect();
        let by_ids = |tasks: &mut BulkTasks, holder| {
            let number = begin(tasks).expect("few run");
            let task = tasks.get(number).expect("it runs");
            (task.queue, task.holder) = (None, holder);
            number
        };
        let numbers: Vec<u64> = holders.iter().map(|holder| by_ids(&mut tasks, *holder)).collect();
        let without = begin(&mut tasks).expect("few run");
        let queues: Scope =
            Some(Box::leak(Box::new(crate::api::access::QueuePatterns::new(["a"].into_iter()))));
        tasks.follow_rights(7, |holder| match holder.map_or(0, std::num::NonZeroU32::get) {
            0 => Some(Grant::ALL),
            1 => Some(Grant { queues, ..Grant::ALL }),
            2 => Some(Grant { role: Role::Read, ..Grant::ALL }),
            _ => None,
        });
        let mut state = |number| tasks.get(number).map(|task| (task.state, task.scope));
        assert_eq!(state(without), Some((TaskState::Running, None)));
        assert_eq!(state(numbers[0]), Some((TaskState::Running, queues)));
        for number in &numbers[1..] {
            assert_eq!(state(*number).map(|it| it.0), Some(TaskState::Revoked));
        }
        assert_eq!(tasks.running(), 2);
    }
}
