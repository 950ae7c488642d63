//! Jobs and pulls meet groups: how a job comes into its group and leaves it, and which job a pull gets in a
//! queue that has groups. Called by [`crate::apply::transitions`] and [`crate::lease::pull`] for such queues only.

use crate::collections::count::Count;
use crate::collections::slab::{List, NONE};
use crate::command::{GroupPull, Only};
use crate::effect::Refusal;
use crate::group::group_ref::GroupRef;
use crate::group::scheduler::{Rotation, ViewTerms, groups_after};
use crate::group::{Groups, Lane, OfQueue};
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
        return &mut groups.slab[at.group].seat_mut(usize::from(at.view)).waiters;
    }
    let about = &mut queues[queue];
    match &mut about.groups {
        Some(rotation) if at.view > 0 => &mut rotation.views[usize::from(at.view)].waiters,
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

    /// Whether a job could be delivered to some pull, as far as its groups are concerned.
    pub(crate) fn has_deliverable(&self, jobs: &crate::job::Jobs) -> bool {
        self.ready.first(&jobs.slab).is_some()
            || self.groups.as_deref().is_some_and(Rotation::any_runnable)
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
        let groups = &mut self.queues[queue].groups;
        if groups.as_deref().is_some_and(Rotation::is_idle) {
            *groups = None;
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

    /// Where a pull stands that says something of groups; [`Refusal::GroupTerms`] if pulls of this queue say
    /// too many different things. A group that is not known has no job for it, and is made known only for one
    /// that `waits`.
    pub(crate) fn place_of(
        &mut self,
        now_ms: u64,
        name: &str,
        pull: &GroupPull<'_>,
        waits: bool,
    ) -> Result<Option<Place>, Refusal> {
        let plain = pull.only == Only::Ungrouped;
        let terms = if plain {
            ViewTerms { plain, ..ViewTerms::default() }
        } else {
            ViewTerms { active_max: pull.active_max, rate: pull.rate, plain }
        };
        if terms == ViewTerms::default() && pull.only == Only::Any {
            return Ok(Some(Place::default()));
        }
        let queue = if waits {
            self.queues.find_or_insert(name)
        } else {
            match self.queues.find(name) {
                Some(queue) => queue,
                None => return Ok(None),
            }
        };
        let about = &mut self.queues[queue];
        if about.groups.is_none() && !waits {
            let wanted = !matches!(pull.only, Only::Group(_));
            return Ok(wanted.then(Place::default));
        }
        let rotation = about.groups.get_or_insert_default();
        let Some(view) = rotation.view_of(now_ms, terms) else {
            self.drop_rotation_if_idle(queue);
            return Err(Refusal::GroupTerms);
        };
        let group = match pull.only {
            Only::Group(name) if waits => self.find_or_insert_group(queue, name),
            Only::Group(name) => match self.groups.find(queue, name) {
                Some(group) => group,
                None => return Ok(None),
            },
            Only::Any | Only::Ungrouped => NONE,
        };
        Ok(Some(Place { view: view as u8, group }))
    }

    /// The job that a pull gets next in a queue that has groups: one without a group before all others.
    pub(crate) fn next_of_groups(&mut self, queue: u32, at: Place) -> Option<u32> {
        let view = usize::from(at.view);
        if at.group == NONE
            && let Some(job) = self.queues[queue].ready.first(&self.jobs.slab)
        {
            return Some(job);
        }
        let rotation = self.queues[queue].groups.as_deref_mut()?;
        let group = match at.group {
            NONE => self.groups.first(rotation, view, &mut self.allowance.looks)?,
            group => Some(group).filter(|_| self.groups.is_runnable(rotation, group, view))?,
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
        waiters.push_back(&mut self.waiters, waiter);
        if at == Place::default() {
            return;
        }
        if let Some(rotation) = self.queues[queue].groups.as_deref_mut() {
            rotation.views[usize::from(at.view)].waiting += 1;
            if at.group != NONE && self.groups.slab[at.group].views_awaited == 0 {
                rotation.with_waiters.push_back(&mut self.groups.slab, at.group);
            }
        }
        if at.group != NONE {
            self.groups.slab[at.group].views_awaited |= 1 << at.view;
            self.refresh_group(at.group);
        }
    }

    /// Ends that.
    pub(crate) fn unhang(&mut self, waiter: u32) {
        let (queue, at) = (self.waiters[waiter].queue, self.waiters[waiter].at);
        let waiters = waiters_at(&mut self.queues, &mut self.groups, queue, at);
        waiters.remove(&mut self.waiters, waiter);
        let last = waiters.is_empty();
        if at == Place::default() {
            return;
        }
        if at.group != NONE && last {
            self.groups.slab[at.group].views_awaited &= !(1 << at.view);
        }
        if let Some(rotation) = self.queues[queue].groups.as_deref_mut() {
            rotation.views[usize::from(at.view)].waiting.take_out(1);
            if at.group != NONE && self.groups.slab[at.group].views_awaited == 0 {
                rotation.with_waiters.remove(&mut self.groups.slab, at.group);
            }
        }
        if at.group == NONE {
            self.drop_rotation_if_idle(queue);
            return;
        }
        self.refresh_group(at.group);
        self.drop_group_if_idle(at.group);
    }

    /// The pull to be served next in a queue that has groups, but for those of the views in `not`: of those
    /// that wait for one group's jobs, which can get no others, the first, else the one that came first.
    pub(crate) fn next_waiter(&self, queue: u32, not: u8) -> Option<u32> {
        let about = &self.queues[queue];
        let rotation = about.groups.as_deref();
        let others = rotation.into_iter().flat_map(|rotation| rotation.views.iter().skip(1));
        let fronts = std::iter::once(about.waiters).chain(others.map(|view| view.waiters));
        let tried = |view: usize| not & (1 << view) != 0;
        let fronts = fronts.enumerate().filter(|(view, _)| !tried(*view));
        let fronts = fronts.filter_map(|(_, waiters)| waiters.front());
        fronts.min_by_key(|&waiter| self.waiters[waiter].since)
    }

    /// The pull to be served next of those that wait for the jobs of one group, if a group could serve one of them.
    pub(crate) fn next_choosy_waiter(&mut self, queue: u32) -> Option<u32> {
        let rotation = self.queues[queue].groups.as_deref_mut()?;
        while let Some(group) = rotation.awaited.front() {
            // This takes it from the list if it could serve none of them any more.
            self.groups.refresh(rotation, group);
            let about = &self.groups.slab[group];
            let can_serve = |view: &usize| self.groups.place(rotation, group, *view).is_some();
            let views = (0..rotation.views.len()).filter(can_serve);
            let fronts = views.filter_map(|view| about.seat(view).waiters.front());
            let next = fronts.min_by_key(|&waiter| self.waiters[waiter].since);
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Pulls that wait at a queue whose name is taken from it go on waiting at the one that gets the name, some at a time. True
    /// if none is left.
    pub(crate) fn move_waiters(&mut self, now_ms: u64, old: u32) -> bool {
        let name = self.queues[old].name.clone();
        for _ in 0..self.config.bulk_slice {
            let Some(waiter) = self.any_waiter(old) else { return true };
            self.steps += 1;
            let place = self.waiters[waiter].at;
            let group = (place.group != NONE).then(|| self.groups.slab[place.group].name.clone());
            let terms = match (place.view, self.queues[old].groups.as_deref()) {
                (1.., Some(rotation)) => rotation.views[usize::from(place.view)].terms,
                _ => ViewTerms::default(),
            };
            self.unhang(waiter);
            let only = match (&group, terms.plain) {
                (Some(group), _) => Only::Group(group),
                (None, true) => Only::Ungrouped,
                (None, false) => Only::Any,
            };
            let new = self.queues.find_or_insert(&name);
            let ViewTerms { active_max, rate, .. } = terms;
            let at = if place == Place::default() {
                Place::default()
            } else {
                // The new queue has as much room for views as the old one had.
                let pull = GroupPull { active_max, rate, only };
                self.place_of(now_ms, &name, &pull, true).ok().flatten().unwrap_or_default()
            };
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
        let in_view = || rotation?.views.iter().find_map(|view| view.waiters.front());
        let at_group = || {
            let about = &self.groups.slab[rotation?.with_waiters.front()?];
            about.seat(about.views_awaited.trailing_zeros() as usize).waiters.front()
        };
        about.waiters.front().or_else(in_view).or_else(at_group)
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
            if rotation.is_idle() {
                return Err(format!("queue {queue} keeps groups it does not have"));
            }
            self.groups.audit(rotation)?;
            self.audit_waiting(queue, rotation)?;
        }
        if with_settings != self.groups.with_settings {
            return Err(format!("{with_settings} groups have settings"));
        }
        Ok(())
    }
    /// Recounts the pulls that wait in each view of a queue.
    fn audit_waiting(&self, queue: u32, rotation: &Rotation) -> Result<(), String> {
        let count = |list: List<AtQueue>| {
            std::iter::successors(list.front(), |&at| List::<AtQueue>::after(&self.waiters, at))
                .count()
        };
        for (place, view) in rotation.views.iter().enumerate() {
            let groups = std::iter::successors(rotation.groups.front(), |&group| {
                List::<OfQueue>::after(&self.groups.slab, group)
            });
            let seats = groups.map(|at| self.groups.slab[at].seat(place));
            let found = count(view.waiters) + seats.map(|seat| count(seat.waiters)).sum::<usize>();
            if found != view.waiting as usize {
                let kept = view.waiting;
                return Err(format!("queue {queue}: {found} pulls wait in a view, not {kept}"));
            }
        }
        Ok(())
    }
}
