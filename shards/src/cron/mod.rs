//! Schedules that push jobs: their table and their commands.
//!
//! A schedule lives on the shard that owns its queue, so that a run and the schedule's next time are
//! one record. The registry shard, which sends the commands here, keeps its name unique on the server.
//!
//! | file | responsibility |
//! |---|---|
//! | `expression` | cron expressions and intervals |
//! | `push_rate` | how much schedules and repeats push a second |
//! | `schedule` | one schedule: its next runs, what its jobs are pushed with |
//! | `runs` | what is due: runs, put off, passed over or made up for |
//! | `zones` | the rules of time zones |

pub mod expression;
pub(crate) mod push_rate;
pub(crate) mod runs;
pub(crate) mod schedule;
pub mod zones;

pub use crate::cron::schedule::{Cron, LATE_MS_MAX, job_of};

use crate::collections::count::Count;
use crate::collections::deadline_heap::{Timed, Timers};
use crate::collections::hash_key::HashKey;
use crate::collections::slab::{NONE, Slab};
use crate::collections::table::Table;
use crate::command::{CronStanding, SetCron};
use crate::cron::expression::Plan;
use crate::effect::Reply;
use crate::event::Extra;
use crate::job::new_job::NewJob;
use crate::log_record::codec::Malformed;
use crate::log_record::cron::{CronRules, CronSet, template_of};
use crate::log_record::location::LogRef;
use crate::log_record::{Journal, Record};
use crate::queue::Queues;
use crate::shard::{Caller, FULL, JOB_BYTES, Out, Shard};
use std::collections::BTreeMap;

/// The payload of none: nil.
const NO_DATA: &[u8] = b"\xc0";

impl Timed for Slab<Cron> {
    fn place(&mut self, key: u32, place: u32) {
        self[key].timer = place;
    }
}

/// The schedules of a shard.
pub(crate) struct Crons {
    key: HashKey,
    slab: Slab<Cron>,
    by_name: Table<u32>,
    timers: Timers,
    /// Schedules that their limit has ended, by name, without what their jobs were pushed with. They are remembered, so that a
    /// client that registers the same again, as at each of its starts, does not begin it anew, and are in no count. How many
    /// there are is bounded where names are kept, by the registry shard.
    ended: BTreeMap<Box<str>, Box<Cron>>,
    /// From when on they run; not yet, if `None`.
    started_at_ms: Option<u64>,
    /// The next one whose next run is looked at, at a start.
    unchecked: Option<u32>,
}

fn hash(key: HashKey, crons: &Slab<Cron>, cron: u32) -> u64 {
    key.text(&crons[cron].name)
}

impl Crons {
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            key,
            slab: Slab::new(),
            by_name: Table::default(),
            timers: Timers::default(),
            ended: BTreeMap::new(),
            started_at_ms: None,
            unchecked: None,
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let same = |&index: &u32| *self.slab[index].name == *name;
        self.by_name.find(self.key.text(name), same).copied()
    }

    /// When the next one is due, if they run.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let due_ms = self.started_at_ms.and_then(|_| self.timers.next_ms());
        self.unchecked.map(|_| 0).or(due_ms)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cron> {
        let all = (0..self.slab.end()).map(|index| self.slab.peek(index));
        all.filter(|cron| !cron.name.is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn ended_len(&self) -> usize {
        self.ended.len()
    }

    /// The record that says what a name stands for.
    pub(crate) fn set_in(&self, name: &str) -> Option<LogRef> {
        let cron = self.find(name).map(|index| &self.slab[index]);
        cron.or_else(|| self.ended.get(name).map(|cron| &**cron)).map(|cron| cron.set_in)
    }

    /// All that are known, those that have ended included.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Cron> {
        self.iter().chain(self.ended.values().map(|cron| &**cron))
    }

    pub(crate) fn deadlines(&self) -> usize {
        self.timers.len()
    }

    fn set_timer(&mut self, index: u32, at_ms: u64) {
        self.clear_timer(index);
        self.timers.insert(at_ms, index, &mut self.slab);
    }

    /// Waits for the next run of a schedule, if it runs.
    fn arm(&mut self, index: u32) {
        if self.slab[index].runs() {
            self.set_timer(index, self.slab[index].next_run_ms);
        } else {
            self.clear_timer(index);
        }
    }

    fn clear_timer(&mut self, index: u32) {
        let timer = self.slab[index].timer;
        if timer != NONE {
            self.timers.remove(timer, &mut self.slab);
        }
    }

    /// Whether every count and index is right.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let mut timed = 0;
        for index in 0..self.slab.end() {
            let cron = self.slab.peek(index);
            if cron.name.is_empty() {
                continue;
            }
            if self.find(&cron.name) != Some(index) {
                return Err(format!("the schedule {} is not found by its name", cron.name));
            }
            if cron.runs() != (cron.timer != NONE) {
                return Err(format!("the schedule {} runs without a deadline", cron.name));
            }
            timed += usize::from(cron.runs());
        }
        if timed != self.timers.len() || self.by_name.len() != self.slab.len() {
            return Err(format!("{} schedules, {timed} of them timed", self.slab.len()));
        }
        Ok(())
    }
}

/// Carries out the commands.
/// Notes that a schedule no longer asks whether its queue has a worker.
fn unwatch_pulls(queues: &mut Queues, cron: &Cron) {
    if cron.rules.skip_if_no_worker
        && let Some(queue) = queues.find(&cron.queue)
    {
        queues[queue].watching_crons.take_out(1);
    }
}

impl Shard {
    pub(crate) fn set_cron_live<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        command: &SetCron<'_>,
        out: &mut Out<'_, J>,
    ) {
        let own_key = format!("cron:{}", command.name);
        let own_key = Some(&*own_key).filter(|_| command.rules.prevent_overlap);
        let job = command.job.cloned().or(own_key.map(|_| NewJob::default()));
        let job = job.map(|job| NewJob { unique_key: job.unique_key.or(own_key), ..job });
        let template = job.as_ref().map(template_of).unwrap_or_default();
        let texts = command.name.len() + command.queue.len() + command.data.len() + template.len();
        if !out.journal.can_append_new(2 * texts as u64 + JOB_BYTES, || self.space_forecast()) {
            out.effects.replies.push((caller.request, FULL));
            return;
        }
        let known = self.cron(command.name).or_else(|| self.ended_cron(command.name));
        let known = known.map(|cron| cron.standing(&command.plan));
        let known = known.into_iter().chain(command.moved).max_by_key(|known| known.version);
        let version = known.map_or(0, |known| known.version);
        // A schedule that its limit has ended begins anew if it is to run at other times.
        let before = known.filter(|known| !known.has_ended || known.same_times);
        let CronStanding { executions, disabled, .. } = before.unwrap_or_default();
        if command.runs_max.is_some_and(|most| executions >= most) {
            let has_ended = before.is_some_and(|before| before.has_ended);
            out.effects.replies.push((caller.request, Reply::CronSpent { executions, has_ended }));
            return;
        }
        let immediately =
            command.rules.immediately && before.is_none_or(|before| before.is_promised);
        let kept_ms = before.and_then(|before| kept_run_ms(&before, now_ms, command.plan));
        let put_off = self.crons.find(command.name).map(|index| self.crons.slab[index].put_off);
        let next = command.plan.next(now_ms, now_ms);
        let next = next.map(|next_run_ms| if immediately { now_ms } else { next_run_ms });
        let next = next.map(|next_run_ms| kept_ms.unwrap_or(next_run_ms));
        let index = next.map(|next_run_ms| {
            let set = CronSet {
                template: &template,
                rules: CronRules { immediately, disabled, ..command.rules },
                name: command.name,
                queue: command.queue,
                data: command.data,
                schedule: command.schedule,
                repeat_every_ms: command.repeat_every_ms,
                timezone: command.timezone,
                priority: command.priority,
                runs_max: command.runs_max,
                executions,
                version: version + 1,
                next_run_ms,
            };
            let stored = out.journal.append(&Record::CronSet(set));
            let index = self.set_cron(&set, command.plan, stored);
            // The time that was put off is still kept for the run that is.
            self.crons.slab[index].put_off = kept_ms.is_some() && put_off.unwrap_or(false);
            index
        });
        if index.is_some() {
            let extra = if before.is_some() { Extra::CronUpdated } else { Extra::CronCreated };
            self.emit_of_cron(now_ms, (command.queue, command.name), extra, out.effects);
        }
        out.effects.replies.push((caller.request, Reply::Cron(index)));
    }

    /// Stops a schedule for as long as it is on its way to another shard, or lets it go on.
    pub(crate) fn hold_cron<J>(
        &mut self,
        caller: Caller,
        name: &str,
        held: bool,
        out: &mut Out<'_, J>,
    ) {
        let index = self.crons.find(name);
        if let Some(index) = index {
            self.crons.slab[index].held = held;
            self.crons.arm(index);
        }
        out.effects.replies.push((caller.request, Reply::Cron(index)));
    }

    /// Lets a schedule run no more, or again: from its next time on, as if it had run all the while.
    pub(crate) fn enable_cron<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        (name, enabled): (&str, bool),
        out: &mut Out<'_, J>,
    ) {
        let Some(index) = self.crons.find(name) else {
            out.effects.replies.push((caller.request, Reply::Cron(None)));
            return;
        };
        let cron = &self.crons.slab[index];
        if cron.is_enabled() == enabled {
            out.effects.replies.push((caller.request, Reply::Cron(Some(index))));
            return;
        }
        let next_run_ms =
            if enabled { cron.first_from_now_ms(now_ms) } else { Some(cron.next_run_ms) };
        let Some(next_run_ms) = next_run_ms else {
            out.effects.replies.push((caller.request, Reply::Cron(None)));
            return;
        };
        let texts = cron.name.len() + cron.queue.len() + cron.data.len() + cron.template.len();
        if !out.journal.can_append_new(2 * texts as u64 + JOB_BYTES, || self.space_forecast()) {
            out.effects.replies.push((caller.request, FULL));
            return;
        }
        let cron = &self.crons.slab[index];
        let rules = CronRules { disabled: !enabled, ..cron.rules };
        // All of it is written again: one record is the whole truth about a schedule.
        let set = CronSet { next_run_ms, rules, ..cron.told() };
        let stored = out.journal.append(&Record::CronSet(set));
        let cron = &mut self.crons.slab[index];
        (cron.rules, cron.next_run_ms, cron.put_off) = (rules, next_run_ms, false);
        self.note_cron(index, stored);
        self.crons.arm(index);
        out.effects.replies.push((caller.request, Reply::Cron(Some(index))));
    }

    pub(crate) fn remove_cron<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        name: &str,
        out: &mut Out<'_, J>,
    ) {
        let index = self.crons.find(name);
        if let Some(index) = index {
            out.journal.append(&Record::CronRemoved { name });
            // A schedule that is held has only moved to the shard of its new queue, so no event is due.
            let queue = Some(&self.crons.slab[index]).filter(|cron| !cron.held);
            if let Some(queue) = queue.map(|cron| cron.queue.clone()) {
                self.emit_of_cron(now_ms, (&queue, name), Extra::CronDeleted, out.effects);
            }
            self.drop_cron(index);
        }
        let had_ended = index.is_none() && self.forget_ended(name);
        if had_ended {
            out.journal.append(&Record::CronRemoved { name });
        }
        let count = u64::from(index.is_some() || had_ended);
        out.effects.replies.push((caller.request, Reply::Count(count)));
    }

    pub(crate) fn start_crons(&mut self, now_ms: u64) {
        self.crons.started_at_ms = Some(now_ms);
        self.crons.unchecked = (self.crons.len() > 0).then_some(0);
    }

    /// The least time between two runs of a schedule or a repeated job.
    pub fn interval_min_ms(&self) -> u64 {
        self.config.interval_min_ms
    }

    /// A schedule, if this shard has it.
    pub fn cron(&self, name: &str) -> Option<&Cron> {
        self.crons.find(name).map(|index| &self.crons.slab[index])
    }

    /// A schedule by the index that a reply gave.
    pub fn cron_at(&self, index: u32) -> &Cron {
        &self.crons.slab[index]
    }

    /// The schedules that run here.
    pub fn crons(&self) -> impl Iterator<Item = &Cron> {
        self.crons_from(0).filter_map(|(_, cron)| cron)
    }

    /// The places of schedules from an index on, with those that clients see.
    pub fn crons_from(&self, index: u32) -> impl Iterator<Item = (u32, Option<&Cron>)> {
        (index..self.crons.slab.end()).map(|index| {
            let cron = self.crons.slab.peek(index);
            (index, Some(cron).filter(|cron| !cron.name.is_empty() && !cron.held))
        })
    }
}

/// Effects of records: called by live commands and by recovery.
impl Shard {
    /// Recovery's way to them. A schedule that is not known was ended by a later setting of another
    /// shard, or is no longer anybody's.
    pub(crate) fn replay_cron(
        &mut self,
        record: &Record<'_>,
        stored: LogRef,
    ) -> Result<(), Malformed> {
        match record {
            Record::CronSet(set) if set.has_ended() => self.set_ended(set, set.plan()?, stored),
            Record::CronSet(set) => {
                self.set_cron(set, set.plan()?, stored);
            }
            Record::CronRan(ran) => {
                self.replay_push(&ran.pushed, stored)?;
                if let Some(index) = self.crons.find(ran.name) {
                    self.count_run(index, ran.next_run_ms);
                }
            }
            Record::CronMissed { name, next_run_ms } => {
                if let Some(index) = self.crons.find(name) {
                    self.move_cron(index, *next_run_ms);
                }
            }
            Record::CronRemoved { name } => {
                if let Some(index) = self.crons.find(name) {
                    self.drop_cron(index);
                } else {
                    self.forget_ended(name);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// [`Record::CronSet`]. The plan is the one of its schedule.
    pub(crate) fn set_cron(&mut self, set: &CronSet<'_>, plan: Plan, stored: LogRef) -> u32 {
        self.forget_ended(set.name);
        let cron = Cron::of(set, plan, stored);
        let index = match self.crons.find(set.name) {
            Some(index) => {
                self.crons.clear_timer(index);
                let before = std::mem::replace(&mut self.crons.slab[index], cron);
                self.live.sub(&before.set_in);
                unwatch_pulls(&mut self.queues, &before);
                index
            }
            None => {
                let Crons { key, slab, by_name, .. } = &mut self.crons;
                let index = slab.insert(cron);
                by_name.insert(key.text(set.name), index, |&other| hash(*key, slab, other));
                index
            }
        };
        self.live.add(&stored);
        self.crons.arm(index);
        if set.rules.skip_if_no_worker {
            let queue = self.queues.find_or_insert(set.queue);
            self.queues[queue].watching_crons += 1;
        }
        index
    }

    /// All of a schedule was told again.
    pub(crate) fn note_cron(&mut self, index: u32, stored: LogRef) {
        let before = std::mem::replace(&mut self.crons.slab[index].set_in, stored);
        self.live.replace(Some(before), Some(stored));
    }

    /// The schedule's part of [`Record::CronRan`].
    pub(crate) fn count_run(&mut self, index: u32, next_run_ms: Option<u64>) {
        self.crons.slab[index].executions += 1;
        match next_run_ms {
            Some(next_run_ms) => self.move_cron(index, next_run_ms),
            None if self.crons.slab[index].has_ended() => {
                let cron = self.take_cron(index);
                self.remember_ended(cron);
            }
            None => self.drop_cron(index),
        }
    }

    /// Applies [`Record::CronMissed`].
    pub(crate) fn move_cron(&mut self, index: u32, next_run_ms: u64) {
        self.crons.slab[index].next_run_ms = next_run_ms;
        self.crons.arm(index);
    }

    /// Applies [`Record::CronRemoved`].
    pub(crate) fn drop_cron(&mut self, index: u32) {
        let cron = self.take_cron(index);
        self.live.sub(&cron.set_in);
    }

    fn take_cron(&mut self, index: u32) -> Cron {
        self.crons.clear_timer(index);
        let Crons { key, slab, by_name, .. } = &mut self.crons;
        let hash_of = |&other: &u32| hash(*key, slab, other);
        by_name.remove(hash_of(&index), |&other| other == index, hash_of);
        let cron = slab.remove(index);
        unwatch_pulls(&mut self.queues, &cron);
        cron
    }
}

/// Schedules that their limit has ended.
impl Shard {
    /// A schedule that its limit has ended, as far as it is remembered.
    pub fn ended_cron(&self, name: &str) -> Option<&Cron> {
        self.crons.ended.get(name).map(|cron| &**cron)
    }

    /// All schedules that are remembered so.
    pub fn ended_crons(&self) -> impl Iterator<Item = &Cron> {
        self.crons.ended.values().map(|cron| &**cron)
    }

    /// A schedule has had its last run. Its record is counted as before.
    fn remember_ended(&mut self, cron: Cron) {
        let (data, template) = (NO_DATA.into(), Box::default());
        let cron = Cron { data, template, held: false, timer: NONE, ..cron };
        let before = self.crons.ended.insert(cron.name.clone(), Box::new(cron));
        if let Some(before) = before {
            self.live.sub(&before.set_in);
        }
    }

    /// [`Record::CronSet`] of one that has ended.
    fn set_ended(&mut self, set: &CronSet<'_>, plan: Plan, stored: LogRef) {
        if let Some(index) = self.crons.find(set.name) {
            self.drop_cron(index);
        }
        self.live.add(&stored);
        self.remember_ended(Cron::of(set, plan, stored));
    }

    /// True if the name was one of them.
    fn forget_ended(&mut self, name: &str) -> bool {
        let ended = self.crons.ended.remove(name);
        if let Some(cron) = &ended {
            self.live.sub(&cron.set_in);
        }
        ended.is_some()
    }

    /// Writes what is remembered of one, instead of the record that holds the payload of its jobs as well.
    pub(crate) fn tell_ended<J: Journal>(&mut self, name: &str, journal: &mut J) {
        let Some(cron) = self.crons.ended.get_mut(name) else { return };
        let stored = journal.append(&Record::CronSet(cron.told()));
        let before = std::mem::replace(&mut cron.set_in, stored);
        self.live.replace(Some(before), Some(stored));
    }
}

/// The next run that a schedule keeps when it is set anew: at the same times the one that it has, else the one that is due. Not
/// one that is further away than its plan puts it, which is of a clock that was ahead.
fn kept_run_ms(before: &CronStanding, now_ms: u64, plan: Plan) -> Option<u64> {
    let soon_ms = now_ms.saturating_add(LATE_MS_MAX);
    let is_due = !before.disabled && before.next_run_ms <= now_ms;
    let is_kept = !before.has_ended && (before.same_times || is_due);
    let furthest_ms = plan.next(soon_ms, soon_ms)?;
    Some(before.next_run_ms).filter(|&next_run_ms| is_kept && next_run_ms <= furthest_ms)
}
