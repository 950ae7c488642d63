//! Cron, `CronDelete`, and the start of what they set. A name is bound to a shard here: that names are
//! the server's own, and how a schedule moves between shards, is not simulated.

use super::{Answer, Call};
use crate::check::Check;
use crate::job_rules::Moment;
use crate::model::Model;
use crate::schedules::{Rhythm, Schedule};
use crate::world::{QUEUES, World};
use corq_shards::command::{Command, SetCron};
use corq_shards::cron::expression::Plan;
use corq_shards::log_record::cron::CronRules;

/// Sets a schedule.
#[derive(Clone, Debug)]
pub struct SetSchedule {
    name: String,
    queue: String,
    data: Vec<u8>,
    rhythm: Rhythm,
    priority: i32,
    runs_max: Option<u64>,
}

/// Disables one, or enables it again.
#[derive(Clone, Debug)]
struct EnableSchedule {
    name: String,
    enabled: bool,
}

/// Ends one.
#[derive(Clone, Debug)]
pub struct EndSchedule {
    pub name: String,
}

/// The server is open.
#[derive(Clone, Debug)]
pub struct StartSchedules;

impl Call for SetSchedule {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let (plan, repeat_every_ms, schedule) = match self.rhythm {
            Rhythm::Every(every_ms) => (Plan::every(every_ms, None), Some(every_ms), None),
            Rhythm::Round(_, expression) => (Plan::at(expression, None), None, Some(expression)),
        };
        to(&Command::SetCron(&SetCron {
            name: &self.name,
            queue: &self.queue,
            data: &self.data,
            schedule,
            repeat_every_ms,
            timezone: None,
            priority: self.priority,
            runs_max: self.runs_max,
            job: None,
            rules: CronRules::default(),
            plan: plan.expect("the simulator's schedules make sense"),
            moved: None,
        }));
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let known = model.schedules.get(&self.name);
        let version = known.map_or(0, |has| has.version);
        // A schedule that has ended begins anew at other times.
        let same = known.filter(|has| has.rhythm == self.rhythm);
        let goes_on = known.filter(|has| !has.has_ended() || same.is_some());
        let executions = goes_on.map_or(0, |has| has.executions);
        let spent = self.runs_max.is_some_and(|most| executions >= most);
        let planned_ms = self.rhythm.next(at.now_ms, at.now_ms);
        let kept = goes_on.filter(|has| {
            let is_due = has.enabled && has.next_run_ms <= at.now_ms;
            let next_run_ms = has.next_run_ms;
            let as_planned = Schedule { rhythm: self.rhythm, next_run_ms, ..(*has).clone() };
            !has.has_ended() && (same.is_some() || is_due) && !as_planned.is_too_far(at.now_ms)
        });
        let next_run_ms = kept.map_or(planned_ms, |has| has.next_run_ms);
        let enabled = goes_on.is_none_or(|has| has.enabled);
        let expected = Answer::Schedule((!spent).then_some((next_run_ms, executions, version + 1)));
        model.must(Check::Schedule, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
        if spent {
            return;
        }
        let schedule = Schedule {
            queue: self.queue.clone(),
            data: self.data.clone(),
            rhythm: self.rhythm,
            priority: self.priority,
            runs_max: self.runs_max,
            executions,
            version: version + 1,
            next_run_ms,
            enabled,
        };
        model.set_schedule(&self.name, schedule);
    }
}

impl Call for EnableSchedule {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::EnableCron { name: &self.name, enabled: self.enabled });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let known = model.schedules.get(&self.name).filter(|has| !has.has_ended()).cloned();
        let schedule = known.clone().map(|has| {
            let comes_back = self.enabled && !has.enabled;
            let resumed_ms = has.rhythm.resume(has.next_run_ms, at.now_ms);
            let next_run_ms = if comes_back { resumed_ms } else { has.next_run_ms };
            Schedule { enabled: self.enabled, next_run_ms, ..has }
        });
        let told = schedule.as_ref().map(|has| (has.next_run_ms, has.executions, has.version));
        let expected = Answer::Schedule(told);
        model.must(Check::Schedule, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
        if let Some(schedule) = schedule
            && known.as_ref() != Some(&schedule)
        {
            model.set_schedule(&self.name, schedule);
        }
    }
}

impl Call for EndSchedule {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::RemoveCron { name: &self.name });
    }

    fn check(&self, model: &mut Model, _at: &Moment<'_>, answer: Option<&Answer>) {
        let expected = Answer::Count(u64::from(model.end_schedule(&self.name)));
        model.must(Check::Answer, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
    }
}

impl Call for StartSchedules {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::StartCrons);
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, _answer: Option<&Answer>) {
        model.schedules_since_ms = Some(at.now_ms);
    }

    fn is_answered(&self) -> bool {
        false
    }
}

fn name(world: &mut World, shard: usize) -> String {
    format!("schedule{shard}-{}", world.dice.below(2))
}

/// A client sets a schedule, or sets one anew.
pub fn set(world: &mut World, client: usize) {
    let queue = world.dice.pick(QUEUES);
    let shard = world.shard_of_queue(queue);
    let rhythm = world.dice.pick(&[
        Rhythm::Every(700),
        Rhythm::Every(9_999),
        Rhythm::Every(3_600_000),
        Rhythm::Round(1000, "* * * * * *"),
        Rhythm::Round(10_000, "*/10 * * * * *"),
        Rhythm::Round(60_000, "* * * * *"),
        Rhythm::Round(86_400_000, "@daily"),
    ]);
    let data = world.new_data();
    let name = name(world, shard);
    let set = SetSchedule {
        name,
        queue: queue.into(),
        data,
        rhythm,
        priority: world.dice.pick(&[0, 0, 5]),
        runs_max: world.dice.pick(&[None, Some(1), Some(3), Some(10)]),
    };
    world.send(client, shard, set);
}

/// A client disables a schedule, or enables it.
pub fn enable(world: &mut World, client: usize) {
    let shard = world.dice.index(world.nodes.len());
    let name = name(world, shard);
    // Most of them run.
    let enabled = world.dice.below(3) > 0;
    world.send(client, shard, EnableSchedule { name, enabled });
}

/// A client ends a schedule.
pub fn end(world: &mut World, client: usize) {
    let shard = world.dice.index(world.nodes.len());
    let name = name(world, shard);
    world.send(client, shard, EndSchedule { name });
}
