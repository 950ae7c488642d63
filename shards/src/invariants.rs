//! Looking at a shard as a whole: for tests, the simulator and `verify`. Costs a step per job.

use crate::collections::slab::NONE;
use crate::dead_letter::reason::Cause;
use crate::group::group_ref::GroupRef;
use crate::group::scheduler::Rotation;
use crate::job::name_table::NameRef;
use crate::job::{Options, State, flags};
use crate::queue::Queue;
use crate::queue::rate_limit::Limits;
use crate::shard::Shard;
use std::fmt::Write;

impl Shard {
    /// All durable facts as text, a line per job in id order and a line per queue with a setting.
    ///
    /// Two shards with equal facts are the same to every client after a restart. A job pulled without
    /// an owner counts as waiting, and whether a due time has passed does not count at all: neither
    /// needs a record.
    pub fn facts(&self) -> Vec<String> {
        let mut facts: Vec<String> = self.jobs.indices().map(|job| self.facts_of(job)).collect();
        for queue in self.queues().filter(|queue| queue.is_paused()) {
            facts.push(format!("paused {}", queue.name));
        }
        for queue in self.queues() {
            if let Some(limits) = &queue.limits {
                let (rate, active) = (limits.rate(), limits.active_max());
                facts.push(format!("limited {} to {rate:?} and {active:?}", queue.name));
            }
        }
        for queue in self.queues() {
            if let Some(rules) = &queue.rules {
                facts
                    .push(format!("ruled {} by {:?} and {:?}", queue.name, rules.dlq, rules.stall));
            }
        }
        facts.extend(self.facts_of_groups());
        facts.extend(self.crons.all().map(crate::cron::Cron::facts));
        facts.extend(self.webhooks().map(crate::webhook::Webhook::facts));
        facts.extend(
            self.unreported.iter().map(|(id, left)| format!("remains of {:x}: {left:?}", id.0)),
        );
        facts.extend(self.flows.facts());
        facts.sort();
        facts
    }

    fn facts_of(&self, index: u32) -> String {
        let view = self.view(index);
        let job = view.job;
        let mut text = format!(
            "{:032x} {} at {} from {} data {}+{} priority {} tried {}/{} stalled {} flags {} ",
            job.id.0,
            view.queue,
            job.run_at_ms,
            job.stored.position,
            view.data.position,
            view.data.payload_bytes,
            job.priority,
            job.attempts,
            job.max_attempts,
            job.stalls,
            job.flags
                & !(flags::OUT_OF_ORDER | flags::AWAITED | flags::WATCHED | flags::KEPT_ENDED),
        );
        let lock = view.lease.and_then(|lease| Some((lease.token?, lease.ttl_ms)));
        // Writing to a string cannot fail.
        let _ = match (job.state, lock, view.outcome) {
            (State::Active, Some((token, ttl_ms)), _) => {
                write!(text, "locked {:x} for {ttl_ms}", token.0)
            }
            (state, _, Some(how)) => write!(
                text,
                "{} at {} as {} {}",
                state.name(),
                how.finished_at_ms,
                how.order,
                how.stored.position,
            )
            .and_then(|()| match how.cause {
                Cause::Unknown => Ok(()),
                cause => write!(text, " for {}", cause.name()),
            }),
            (State::WaitingChildren, ..) => write!(text, "waits for others"),
            _ => write!(text, "pending"),
        };
        for stored in view.failures() {
            let _ = write!(text, " failed as {}", stored.position);
        }
        if let Some(name) = view.name {
            let _ = write!(text, " named {name}");
        }
        // Where a name stands depends on which others came before it, and is no fact.
        if let Some(group) = self.group_name_of(index) {
            let _ = write!(text, " of group {group}");
        }
        let options = Options {
            name: None,
            group: GroupRef::default(),
            ..view.options.cloned().unwrap_or_default()
        };
        let options = format!("{options:?}");
        if options != format!("{:?}", Options::default()) {
            let _ = write!(text, " {options}");
        }
        text
    }

    /// Recounts everything that is kept as a count or an index, and says what does not agree.
    pub fn audit(&self) -> Result<(), String> {
        self.crons.audit()?;
        let mut counted = std::collections::BTreeMap::new();
        let mut prioritized = std::collections::BTreeMap::new();
        let mut holding = 0;
        for index in self.jobs.indices() {
            let job = &self.jobs.slab[index];
            *counted.entry((job.queue, job.state)).or_insert(0_u64) += 1;
            let urgent = job.state == State::Waiting && job.priority > 0;
            *prioritized.entry(job.queue).or_insert(0_u64) += u64::from(urgent);
            if self.jobs.find(job.id) != Some(index) {
                return Err(format!("{:x} is not found by its id", job.id.0));
            }
            let key = self.jobs.options_of(index).and_then(|has| has.unique_key.as_deref());
            if let Some(key) = key
                && !job.state.is_end()
            {
                holding += 1;
                if !self.unique.has(&self.jobs, index) {
                    return Err(format!("{:x} does not hold its key {key}", job.id.0));
                }
            }
        }
        self.unique.audit(&self.jobs, holding)?;
        let mut watching = std::collections::BTreeMap::new();
        for cron in self.crons.iter().filter(|cron| cron.rules.skip_if_no_worker) {
            *watching.entry(self.queues.lookup(&cron.queue)).or_insert(0_u32) += 1;
        }
        if watching.contains_key(&None) {
            return Err("a schedule wants workers of a queue that is not known".into());
        }
        for queue in 0..self.queues.end() {
            for state in State::ALL {
                let kept = self.queues[queue].count(state);
                let found = counted.get(&(queue, state)).copied().unwrap_or(0);
                if kept != found {
                    return Err(format!("queue {queue}: {found} {state:?}, counted as {kept}"));
                }
            }
            let found = prioritized.get(&queue).copied().unwrap_or(0);
            let kept = self.queues[queue].prioritized();
            if kept != found {
                return Err(format!("queue {queue}: {found} prioritized, counted as {kept}"));
            }
            let found = watching.get(&Some(queue)).copied().unwrap_or(0);
            let kept = self.queues[queue].watching_crons;
            if kept != found {
                return Err(format!("queue {queue}: {found} schedules want workers, not {kept}"));
            }
            self.audit_lists(queue)?;
        }
        for state in State::ALL {
            let of_state = counted.iter().filter(|((_, of), _)| *of == state);
            let seen = of_state.filter(|((queue, _), _)| !self.queues[*queue].detached);
            let found: u64 = seen.map(|(_, count)| count).sum();
            let kept = self.queues.count(state);
            if kept != found {
                return Err(format!("{found} {state:?} in all queues, counted as {kept}"));
            }
        }
        let completed = counted.iter().filter(|((_, state), _)| *state == State::Completed);
        let completed: u64 = completed.map(|(_, count)| count).sum();
        if completed != self.completed_jobs {
            return Err(format!("{completed} completed jobs, counted as {}", self.completed_jobs));
        }
        self.audit_names()?;
        self.audit_end_waiters()?;
        self.audit_needed()?;
        self.audit_limits()?;
        self.audit_groups()?;
        let pulled = self.jobs.indices().filter(|&job| {
            let about = &self.jobs.slab[job];
            about.state == State::Active && self.leases[about.detail].puller.is_some()
        });
        let (pulled, held) = (
            pulled.count() as u64,
            self.clients.iter().map(|(_, held)| held.activity.active).sum(),
        );
        if pulled != held {
            return Err(format!("{pulled} active jobs were pulled, {held} are counted"));
        }
        self.audit_dependencies()?;
        self.unreported.audit()?;
        self.audit_flows()?;
        let active = counted.iter().filter(|((_, state), _)| *state == State::Active);
        let active: u64 = active.map(|(_, count)| count).sum();
        self.audit_burials()?;
        if active != self.leases.len() as u64 || active != self.lease_timers.len() as u64 {
            return Err(format!("{active} active jobs, {} leases", self.leases.len()));
        }
        Ok(())
    }

    /// Whether a pull waits at a queue that could get a job, or could once all groups have been looked at.
    fn waits_idly(&self, about: &Queue) -> bool {
        let (any, rotation) = (!about.waiters.is_empty(), about.groups.as_deref());
        let plain = rotation.is_some_and(|rotation| !rotation.plain.is_empty());
        let choosy = rotation.is_some_and(|rotation| !rotation.with_waiters.is_empty());
        any && about.has_deliverable(&self.jobs)
            || plain && about.ready.first(&self.jobs.slab).is_some()
            || rotation.is_some_and(|rotation| !rotation.awaited.is_empty())
            || (any || choosy) && rotation.is_some_and(Rotation::is_unseen)
    }

    /// No pull waits for a job that could be had, and each that waits for a token will learn of one.
    fn audit_limits(&self) -> Result<(), String> {
        let (mut timed, mut with_settings) = (0, 0);
        for queue in 0..self.queues.end() {
            let about = &self.queues[queue];
            with_settings += u64::from(about.has_settings());
            let limits = about.limits.as_deref();
            timed += usize::from(limits.is_some_and(Limits::is_timed));
            let full = limits.and_then(Limits::active_max);
            let full = full.is_some_and(|max| about.count(State::Active) >= u64::from(max));
            let held_back = about.is_paused() || full || limits.is_some_and(Limits::is_timed);
            let goes_on = self.seeing.contains(queue) && self.is_unseen(queue);
            let goes_on = goes_on || self.unserved.contains(&queue);
            if self.waits_idly(about) && !held_back && !goes_on {
                return Err(format!("queue {queue}: pulls wait beside jobs"));
            }
        }
        if with_settings != self.queues.with_settings() {
            return Err(format!("{with_settings} queues have settings"));
        }
        if timed != self.limit_timers.len() {
            return Err(format!("{timed} queues wait for tokens, not {}", self.limit_timers.len()));
        }
        let bulk_operations: u64 =
            (0..self.queues.end()).map(|at| u64::from(self.queues[at].bulk_operations)).sum();
        if bulk_operations != self.bulk_operations.len() as u64 {
            return Err(format!(
                "queues count {bulk_operations} chores, not {}",
                self.bulk_operations.len()
            ));
        }
        Ok(())
    }

    /// Jobs in dead-letter queues have a deadline where their queue has a rule that gives them one.
    fn audit_burials(&self) -> Result<(), String> {
        if self.recovering {
            return Ok(());
        }
        let failed = self.jobs.indices().filter(|&job| self.jobs.slab[job].state == State::Failed);
        for job in failed {
            let about = &self.jobs.slab[job];
            let (due, timed) = (self.burial_ends_ms(0, job) < u64::MAX, about.timer != NONE);
            // A bulk operation may be on its way through the queue or in line, and a life may have ended meanwhile.
            let lives = self.jobs.options_of(job).is_some_and(|has| has.expires_at_ms > 0);
            if due != timed && self.queues[about.queue].bulk_operations == 0 && !lives {
                return Err(format!("{:x} is to leave its dead-letter queue: {due}", about.id.0));
            }
        }
        Ok(())
    }

    fn audit_names(&self) -> Result<(), String> {
        let mut counted = std::collections::BTreeMap::new();
        for index in self.jobs.indices() {
            let job = &self.jobs.slab[index];
            if job.name == NameRef::default() {
                continue;
            }
            let Some(name) = self.name_of(index) else {
                return Err(format!("{:x} has lost its name", job.id.0));
            };
            if job.name != NameRef::APART {
                *counted.entry((job.queue, name)).or_insert(0_u64) += 1;
            }
        }
        let queues =
            (0..self.queues.end()).map(|queue| (queue, self.queues[queue].names.as_deref()));
        let held = queues.filter_map(|(queue, names)| Some((queue, names?)));
        let held =
            held.flat_map(|(queue, names)| names.counts().map(move |it| ((queue, it.0), it.1)));
        let held: std::collections::BTreeMap<_, _> = held.collect();
        if held != counted {
            return Err(format!("names of jobs: {counted:?}, held as {held:?}"));
        }
        Ok(())
    }

    fn audit_dependencies(&self) -> Result<(), String> {
        for index in self.jobs.indices() {
            let job = &self.jobs.slab[index];
            let unmet = self.jobs.options_of(index).map_or(0, |has| has.unmet.len());
            let freed = unmet > 0 && !self.is_blocked(index);
            let kept = freed || job.state.is_end();
            if (job.state == State::WaitingChildren) != (unmet > 0) && !kept {
                return Err(format!("{:x} is {:?} with {unmet} unmet", job.id.0, job.state));
            }
        }
        let watched = self.jobs.indices().filter(|&job| self.jobs.slab[job].has(flags::WATCHED));
        let flagged = watched.count();
        let mut found = 0;
        for id in self.watchers.dependencies() {
            found += 1;
            let job = self.jobs.find(id).ok_or(format!("{:x} is watched and gone", id.0))?;
            if !self.jobs.slab[job].has(flags::WATCHED) {
                return Err(format!("{:x} does not know that it is watched", id.0));
            }
        }
        if flagged != found {
            return Err(format!("{flagged} jobs say that they are watched, {found} are"));
        }
        self.watchers.audit()
    }

    fn audit_lists(&self, queue: u32) -> Result<(), String> {
        let about = &self.queues[queue];
        let ids = || about.push_order.from(0).map(|job| self.jobs.slab[job].id);
        let order = || about.push_order.from(0).map(|job| self.jobs.order_of(job));
        if about.push_order.len() as u64 != about.total() || !order().is_sorted() {
            return Err(format!("queue {queue}: its roll does not match its jobs"));
        }
        if ids().any(|id| self.jobs.find(id).is_none_or(|job| self.jobs.slab[job].queue != queue)) {
            return Err(format!("queue {queue}: its roll names another queue's job"));
        }
        for (list, state) in [(&about.completed, State::Completed), (&about.failed, State::Failed)]
        {
            let orders = || list.iter(&self.jobs).map(|job| self.jobs.end_order(job));
            if !orders().is_sorted() {
                return Err(format!("queue {queue}: ends out of order"));
            }
            let listed = list.iter(&self.jobs);
            let listed = listed.filter(|&job| self.jobs.slab[job].state == state).count() as u64;
            if listed != about.count(state) {
                return Err(format!("queue {queue}: {listed} in the list of {state:?}"));
            }
        }
        let by_priority: u64 =
            about.priorities(None, usize::MAX).into_iter().map(|(_, jobs)| jobs).sum();
        if by_priority != about.count(State::Waiting) {
            return Err(format!("queue {queue}: {by_priority} waiting jobs by priority"));
        }
        let ready = about.ready.first(&self.jobs.slab).is_some();
        let grouped = about.groups.as_deref().map_or(0, |groups| groups.waiting);
        if ready != (about.count(State::Waiting) > grouped) {
            return Err(format!("queue {queue}: waiting jobs do not match what is ready"));
        }
        Ok(())
    }
}
