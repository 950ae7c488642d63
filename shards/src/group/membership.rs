//! Jobs and pulls meet groups: how a job comes into its group and leaves it, and which job a pull gets in a
//! queue that has groups. Called by [`crate::apply::transitions`] and [`crate::lease::pull`] for such queues only.

use crate::collections::count::Count;
use crate::collections::slab::{List, NONE};
use crate::command::Only;
use crate::group::group_ref::GroupRef;
use crate::group::scheduler::groups_after;
use crate::group::{Groups, Lane, PullLimits};
use crate::job::State;
use crate::lease::waiting_pulls::{AtQueue, Place};
use crate::query::JobView;
use crate::queue::ready::merged;
use crate::queue::{Queue, Queues};
use crate::shard::Shard;
use std::ops::Bound;

/// The list that pulls wait in at a place.
pub(crate) fn waiters_at<'a>(
    queues: &'a mut Queues,
    groups: &'a mut Groups,
    queue: u32,
    at: Place,
) -> &'a mut List<AtQueue> {
    if at.group != NONE {
        return &mut groups.slab[at.group].waiters;
    }
    let about = &mut queues[queue];
    match &mut about.groups {
        Some(rotation) if at.plain => &mut rotation.plain,
        _ => &mut about.waiters,
    }
}

impl Queue {
    /// How many jobs wait of each priority that has any, highest first, of at most so many priorities below one.
    pub fn priorities(&self, below: Option<i32>, most: usize) -> Vec<(i32, u64)> {
        let groups = self.groups.as_deref();
        let rest = (Bound::Unbounded, below.map_or(Bound::Unbounded, Bound::Excluded));
        let grouped = groups.map(|groups| groups.priorities.range(rest).rev());
        let grouped = grouped.into_iter().flatten().map(|(&at, &jobs)| (at, u64::from(jobs)));
        merged(self.ready.priorities(below), grouped).take(most).collect()
    }

    /// How many priorities there are at most.
    pub fn priorities_max(&self) -> usize {
        let of_groups = self.groups.as_deref().map_or(0, |groups| groups.priorities.len());
        self.ready.priorities_max() + of_groups
    }

    /// Jobs of groups that wait or are delayed.
    pub fn pending_in_groups(&self) -> u64 {
        self.groups.as_deref().map_or(0, |groups| groups.pending)
    }

    /// Groups that have a job in any state, or a setting.
    pub fn groups_count(&self) -> u64 {
        self.groups.as_deref().map_or(0, |groups| u64::from(groups.count))
    }

    /// Groups for which something is set.
    pub fn groups_with_settings(&self) -> u64 {
        self.groups.as_deref().map_or(0, |groups| u64::from(groups.set))
    }

    /// Limits for groups that pulls have said last, as far as they are remembered.
    pub(crate) fn limits_of_pulls(&self) -> PullLimits {
        self.groups.as_deref().map_or_else(PullLimits::default, |rotation| rotation.limits)
    }

    /// Whether nothing would be lost with what it has for groups.
    fn has_idle_rotation(&self) -> bool {
        let awaited = !self.waiters.is_empty();
        self.groups.as_deref().is_some_and(|rotation| rotation.is_idle(awaited))
    }

    /// Whether a job could be delivered to some pull, as far as its groups are concerned.
    pub(crate) fn has_deliverable(&self, jobs: &crate::job::Jobs) -> bool {
        self.ready.first(&jobs.slab).is_some()
            || self.groups.as_deref().is_some_and(|groups| groups.runnable.len() > 0)
    }
}

impl Shard {
    /// The group of a job.
    #[inline]
    pub(crate) fn group_of(&self, job: u32) -> Option<u32> {
        self.jobs.options_of(job)?.group.get()
    }

    /// The waiting jobs of some groups of a queue: those that became known first.
    pub(crate) fn first_groups_of(
        &self,
        queue: &Queue,
        most: usize,
    ) -> impl Iterator<Item = &Lane> {
        let rotation = queue.groups.as_deref();
        let groups = rotation
            .into_iter()
            .flat_map(|rotation| groups_after(&self.groups.slab, rotation, None));
        groups.take(most).map(|group| &self.groups.slab[group].lane)
    }

    /// The name of a job's group.
    pub fn group_name_of(&self, job: u32) -> Option<&str> {
        self.group_of(job).map(|group| &*self.groups.slab[group].name)
    }

    /// The name of the group of a job that is looked at.
    pub fn group_name_in(&self, view: &JobView<'_>) -> Option<&str> {
        let group = view.options?.group.get()?;
        Some(&self.groups.slab[group].name)
    }

    /// The index of a group, made known if it was not.
    pub(crate) fn find_or_insert_group(&mut self, queue: u32, name: &str) -> u32 {
        if let Some(group) = self.groups.find(queue, name) {
            self.groups.end_lingering(group);
            return group;
        }
        let group = self.groups.insert(queue, name);
        let rotation = self.queues[queue].groups.get_or_insert_default();
        rotation.groups.push_back(&mut self.groups.slab, group);
        rotation.count += 1;
        group
    }

    /// Forgets a group if nothing would be lost with it, and with the last one what the queue has for them.
    pub(crate) fn drop_group_if_idle(&mut self, group: u32) {
        let queue = self.groups.slab[group].queue;
        let about = &mut self.queues[queue];
        let Some(rotation) = about.groups.as_deref_mut() else { return };
        self.groups.drop_if_idle(rotation, group, about.detached);
        self.drop_rotation_if_idle(queue);
    }

    /// Forgets groups of a detached queue that has no jobs any more, at most so many. True if none is left.
    pub(crate) fn drop_groups(&mut self, queue: u32, most: u64) -> bool {
        for _ in 0..most {
            let rotation = self.queues[queue].groups.as_deref();
            let Some(group) = rotation.and_then(|rotation| rotation.groups.front()) else {
                return true;
            };
            if !self.groups.slab[group].is_idle() {
                return true;
            }
            self.drop_group_if_idle(group);
        }
        false
    }

    fn drop_rotation_if_idle(&mut self, queue: u32) {
        if self.queues[queue].has_idle_rotation() {
            self.queues[queue].groups = None;
        }
    }

    /// Whose turn the group of a job has, and how many jobs it may still give in it.
    pub(crate) fn turn_of_group(&self, job: u32) -> Option<(u64, u32)> {
        let group = self.group_of(job)?;
        let about = &self.groups.slab[group];
        Some((about.turn, about.credit))
    }

    /// Gives the group of a job the turn that it had.
    pub(crate) fn give_turn(&mut self, job: u32, turn: Option<(u64, u32)>) {
        let (Some(group), Some((turn, credit))) = (self.group_of(job), turn) else { return };
        let queue = self.groups.slab[group].queue;
        if let Some(rotation) = self.queues[queue].groups.as_deref_mut() {
            self.groups.set_turn(rotation, group, turn, credit);
        }
    }

    /// A job that is being made belongs to a group.
    pub(crate) fn join_group(&mut self, queue: u32, name: Option<&str>) -> GroupRef {
        let Some(name) = name else { return GroupRef::default() };
        let group = self.find_or_insert_group(queue, name);
        self.groups.slab[group].jobs += 1;
        GroupRef::new(group)
    }

    /// A job of a group is being forgotten.
    pub(crate) fn quit_group(&mut self, job: u32) {
        let Some(group) = self.group_of(job) else { return };
        self.groups.slab[group].jobs.take_out(1);
        self.drop_group_if_idle(group);
    }

    /// Looks again at whose turn can come. Pulls that wait for it are served before this call ends.
    pub(crate) fn refresh_group(&mut self, group: u32) {
        let queue = self.groups.slab[group].queue;
        let Some(rotation) = self.queues[queue].groups.as_deref_mut() else { return };
        if self.groups.refresh(rotation, group)
            && !self.recovering
            && self.with_room.last() != Some(&queue)
        {
            self.with_room.push(queue);
        }
    }

    /// A job of a group comes into a state.
    pub(crate) fn enter_group(&mut self, job: u32, group: u32, state: State) {
        let queue = self.jobs.slab[job].queue;
        let Some(rotation) = self.queues[queue].groups.as_deref_mut() else { return };
        match state {
            State::Waiting => {
                rotation.waiting += 1;
                let priority = self.jobs.slab[job].priority;
                *rotation.priorities.entry(priority).or_insert(0) += 1;
                let first = self.groups.slab[group].lane.is_empty();
                self.groups.slab[group].lane.insert(&mut self.jobs.slab, job);
                if first {
                    self.groups.join(rotation, group);
                }
            }
            State::Active => self.groups.slab[group].active += 1,
            _ => {}
        }
        if matches!(state, State::Waiting | State::Delayed) {
            rotation.pending += 1;
            self.groups.slab[group].pending += 1;
        }
        self.refresh_group(group);
    }

    /// A job of a group leaves a state.
    pub(crate) fn leave_group(&mut self, job: u32, group: u32, state: State) {
        let queue = self.jobs.slab[job].queue;
        let Some(rotation) = self.queues[queue].groups.as_deref_mut() else { return };
        match state {
            State::Waiting => {
                rotation.waiting.take_out(1);
                let priority = self.jobs.slab[job].priority;
                if let Some(jobs) = rotation.priorities.get_mut(&priority) {
                    jobs.take_out(1);
                    if *jobs == 0 {
                        rotation.priorities.remove(&priority);
                    }
                }
                self.groups.slab[group].lane.remove(&mut self.jobs.slab, job);
            }
            State::Active => self.groups.slab[group].active.take_out(1),
            _ => {}
        }
        if matches!(state, State::Waiting | State::Delayed) {
            rotation.pending.take_out(1);
            self.groups.slab[group].pending.take_out(1);
        }
        self.refresh_group(group);
    }

    /// The limits that a pull says count for its queue from now on, if this has groups or other pulls wait.
    pub(crate) fn say_limits(&mut self, queue: u32, limits: PullLimits) {
        if limits.are_none() {
            return;
        }
        let about = &mut self.queues[queue];
        if about.groups.is_some() || !about.waiters.is_empty() {
            about.groups.get_or_insert_default().say(limits);
        }
    }

    /// Where a pull stands; `None` if it wants the jobs of a group that is not known, and so has none.
    #[inline]
    pub(crate) fn place_of(&self, queue: u32, only: Only<'_>) -> Option<Place> {
        let group = match only {
            Only::Group(name) => self.groups.find(queue, name)?,
            Only::Any | Only::Ungrouped => NONE,
        };
        Some(Place { plain: only == Only::Ungrouped, group })
    }

    /// Where a pull is to wait. The group that it wants becomes known, and so do the limits that it says.
    pub(crate) fn place_to_wait(
        &mut self,
        queue: u32,
        only: Only<'_>,
        limits: PullLimits,
    ) -> Place {
        if let Only::Group(name) = only {
            self.find_or_insert_group(queue, name);
        }
        if only == Only::Ungrouped || !limits.are_none() {
            self.queues[queue].groups.get_or_insert_default().say(limits);
        }
        self.place_of(queue, only).unwrap_or_default()
    }

    /// The job that a pull gets next in a queue that has groups: one without a group before all others.
    pub(crate) fn next_of_groups(&mut self, now_ms: u64, queue: u32, at: Place) -> Option<u32> {
        if at.group == NONE
            && let Some(job) = self.queues[queue].ready.first(&self.jobs.slab)
        {
            return Some(job);
        }
        let rotation = self.queues[queue].groups.as_deref_mut().filter(|_| !at.plain)?;
        let group = match at.group {
            NONE => self.groups.first(rotation, now_ms, &mut self.allowance.looks)?,
            group if self.groups.is_runnable(rotation, now_ms, group) => group,
            _ => return None,
        };
        self.groups.slab[group].lane.first(&self.jobs.slab)
    }

    /// Recovery has ended: groups take their turns by the age of what each gives first. Who had been served
    /// before, nothing says.
    pub(crate) fn line_up_groups(&mut self) {
        for queue in 0..self.queues.end() {
            let Some(rotation) = self.queues[queue].groups.as_deref_mut() else { continue };
            let first = |group: u32| self.groups.slab[group].lane.first(&self.jobs.slab);
            let groups = groups_after(&self.groups.slab, rotation, None);
            let waiting = groups.filter_map(|group| Some((first(group)?, group)));
            let mut in_line: Vec<_> =
                waiting.map(|(job, group)| (self.jobs.slab[job].id, group)).collect();
            in_line.sort_unstable();
            for (_, group) in in_line {
                self.groups.send_back(rotation, group);
            }
        }
    }

    /// A job of a queue with groups has been handed out.
    pub(crate) fn note_served(&mut self, now_ms: u64, queue: u32, job: u32) {
        let Some(group) = self.group_of(job) else { return };
        if let Some(rotation) = self.queues[queue].groups.as_deref_mut() {
            self.groups.serve(rotation, now_ms, group);
        }
    }

    /// Lets a pull wait at its place, which must be known.
    pub(crate) fn hang(&mut self, waiter: u32) {
        let (queue, at) = (self.waiters[waiter].queue, self.waiters[waiter].at);
        let waiters = waiters_at(&mut self.queues, &mut self.groups, queue, at);
        let first = waiters.is_empty();
        waiters.push_back(&mut self.waiters, waiter);
        if at.group == NONE {
            return;
        }
        if let Some(rotation) = self.queues[queue].groups.as_deref_mut().filter(|_| first) {
            rotation.with_waiters.push_back(&mut self.groups.slab, at.group);
        }
        self.refresh_group(at.group);
    }

    /// Ends that.
    pub(crate) fn unhang(&mut self, waiter: u32) {
        let (queue, at) = (self.waiters[waiter].queue, self.waiters[waiter].at);
        let waiters = waiters_at(&mut self.queues, &mut self.groups, queue, at);
        waiters.remove(&mut self.waiters, waiter);
        let last = waiters.is_empty();
        if at.group == NONE {
            self.drop_rotation_if_idle(queue);
            return;
        }
        if let Some(rotation) = self.queues[queue].groups.as_deref_mut().filter(|_| last) {
            rotation.with_waiters.remove(&mut self.groups.slab, at.group);
        }
        self.refresh_group(at.group);
        self.drop_group_if_idle(at.group);
    }

    /// The pull that came first of those that wait for jobs of any group, and if `plain` of those for jobs without one.
    pub(crate) fn next_waiter(&self, queue: u32, plain: bool) -> Option<u32> {
        let about = &self.queues[queue];
        let rotation = about.groups.as_deref().filter(|_| plain);
        let plain = rotation.and_then(|rotation| rotation.plain.front());
        let fronts = about.waiters.front().into_iter().chain(plain);
        fronts.min_by_key(|&waiter| self.waiters[waiter].since)
    }

    /// The pull to be served next of those that wait for the jobs of one group, if a group could serve one of them.
    pub(crate) fn next_choosy_waiter(&mut self, now_ms: u64, queue: u32) -> Option<u32> {
        let rotation = self.queues[queue].groups.as_deref_mut()?;
        loop {
            match rotation.awaited.front() {
                Some(group) if self.groups.is_runnable(rotation, now_ms, group) => {
                    return self.groups.slab[group].waiters.front();
                }
                // That took it from the list.
                Some(_) => {}
                None if rotation.with_waiters.is_empty() => return None,
                None if self.groups.see_one(rotation, now_ms, &mut self.allowance.looks) => {}
                None => break,
            }
        }
        if rotation.is_unseen() {
            self.seeing.push(queue);
        }
        None
    }

    /// Pulls that wait at a queue whose name is taken from it go on waiting at the one that gets the name, some at a time. True
    /// if none is left.
    pub(crate) fn move_waiters(&mut self, old: u32) -> bool {
        let name = self.queues[old].name.clone();
        for _ in 0..self.config.bulk_slice {
            let Some(waiter) = self.any_waiter(old) else { return true };
            self.steps += 1;
            let Place { plain, group } = self.waiters[waiter].at;
            let group = (group != NONE).then(|| self.groups.slab[group].name.clone());
            let limits = self.queues[old].limits_of_pulls();
            self.unhang(waiter);
            let only = match &group {
                Some(group) => Only::Group(group),
                None if plain => Only::Ungrouped,
                None => Only::Any,
            };
            let new = self.queues.find_or_insert(&name);
            // Limits that were said at the new queue came later.
            let said = self.queues[new].limits_of_pulls();
            let at = self.place_to_wait(new, only, if said.are_none() { limits } else { said });
            self.waiters[waiter].queue = new;
            self.waiters[waiter].at = at;
            self.hang(waiter);
            self.note_ready(new);
        }
        self.any_waiter(old).is_none()
    }

    /// Some pull that waits at a queue.
    pub(crate) fn any_waiter(&self, queue: u32) -> Option<u32> {
        let about = &self.queues[queue];
        let rotation = about.groups.as_deref();
        let plain = || rotation?.plain.front();
        let at_group = || self.groups.slab[rotation?.with_waiters.front()?].waiters.front();
        about.waiters.front().or_else(plain).or_else(at_group)
    }

    /// Recounts what groups count, and says what does not agree.
    pub(crate) fn audit_groups(&self) -> Result<(), String> {
        let mut counted = std::collections::BTreeMap::<u32, [u32; 3]>::new();
        for job in self.jobs.indices() {
            let Some(group) = self.group_of(job) else { continue };
            if self.groups.slab[group].queue != self.jobs.slab[job].queue {
                return Err("a job is in the group of another queue".into());
            }
            let [jobs, pending, active] = counted.entry(group).or_default();
            let state = self.jobs.slab[job].state;
            *jobs += 1;
            *pending += u32::from(matches!(state, State::Waiting | State::Delayed));
            *active += u32::from(state == State::Active);
        }
        let mut timed = 0;
        for group in self.groups.indices() {
            let about = &self.groups.slab[group];
            timed += usize::from(about.timer != NONE);
            let kept = [about.jobs, about.pending, about.active];
            let found = counted.remove(&group).unwrap_or_default();
            if kept != found || self.groups.find(about.queue, &about.name) != Some(group) {
                return Err(format!("the group {}: {found:?}, counted as {kept:?}", about.name));
            }
        }
        if timed != self.groups.timers.len() {
            return Err(format!("{timed} groups wait for their time"));
        }
        let lingering = self.groups.indices().filter(|&group| self.groups.slab[group].lingers);
        let lingering = lingering.count() as u64;
        if lingering != self.groups.lingering {
            return Err(format!("{lingering} groups linger, not {}", self.groups.lingering));
        }
        let mut with_settings = 0;
        for queue in 0..self.queues.end() {
            let Some(rotation) = self.queues[queue].groups.as_deref() else { continue };
            with_settings += u64::from(rotation.set);
            if self.queues[queue].has_idle_rotation() {
                return Err(format!("queue {queue} keeps groups it does not have"));
            }
            self.groups.audit(rotation)?;
        }
        if with_settings != self.groups.with_settings {
            return Err(format!("{with_settings} groups have settings"));
        }
        Ok(())
    }
}
