//! Whose turn it is among the groups of a queue, without looking at those whose turn it cannot be.
//!
//! A group whose turn can come, because it has a waiting job and no limit is in the way, has a place in a
//! heap, the one that was served longest ago in front. A group that is paused, busy, used up or empty has
//! none, and comes back by the event or the time that ends this. So a pull costs a step into a heap,
//! however many groups cannot serve it.
//!
//! Pulls may bring limits for groups that have none set. These count for all pulls of the queue, and the last that
//! were said: workers of a queue mostly say the same. A change of them gives no group its place at once. Each is looked
//! at again, some with each pull, and until all have been, the one in front is looked at before its turn comes.

use crate::apply::allowance;
use crate::collections::count::Count;
use crate::collections::deadline_heap::Timers;
use crate::collections::slab::{List, NONE, Slab};
use crate::group::{
    Awaited, GROUPS_LINGERING_MAX, Group, Groups, OfQueue, Places, PullLimits, WithSettings,
    WithWaiters,
};
use crate::lease::waiting_pulls::AtQueue;
use std::collections::BTreeMap;

/// Groups that are looked at with each job that is pulled, while limits have changed.
const LOOKS_PER_JOB: usize = 64;

/// The groups of one queue.
#[derive(Default)]
pub(crate) struct Rotation {
    pub(crate) groups: List<OfQueue>,
    /// Groups that could serve a pull which waits for their jobs only.
    pub(crate) awaited: List<Awaited>,
    /// How many there are.
    pub(crate) count: u32,
    /// Groups with settings.
    pub(crate) with_settings: List<WithSettings>,
    /// How many these are.
    pub(crate) set: u32,
    /// Groups that pulls wait for.
    pub(crate) with_waiters: List<WithWaiters>,
    /// Pulls that wait for a job without a group.
    pub(crate) plain: List<AtQueue>,
    /// Jobs in groups that wait.
    pub(crate) waiting: u64,
    /// Jobs of groups, waiting or delayed.
    pub(crate) pending: u64,
    /// Waiting jobs of groups, by priority.
    pub(crate) priorities: BTreeMap<i32, u32>,
    /// The turn given out last.
    turn: u64,
    /// Groups whose turn can come, by turn. Those that are unseen may be among them wrongly, or lack their place.
    pub(crate) runnable: Timers,
    /// Limits that pulls brought last.
    pub(crate) limits: PullLimits,
    /// The first of the groups that have to be looked at since these have changed.
    unseen: Option<u32>,
}

impl Rotation {
    /// Whether nothing would be lost with it. `awaited`: whether pulls wait for any job, for which its limits stand.
    pub(crate) fn is_idle(&self, awaited: bool) -> bool {
        let limits_stand = awaited && !self.limits.are_none();
        self.groups.is_empty() && self.plain.is_empty() && !limits_stand
    }

    /// A pull says these limits, if it says any: they count instead of those before.
    pub(crate) fn say(&mut self, limits: PullLimits) {
        if !limits.are_none() && limits != self.limits {
            self.limits = limits;
            self.unseen = self.groups.front();
        }
    }

    /// Whether there are groups that have not been looked at since the limits have changed.
    pub(crate) fn is_unseen(&self) -> bool {
        self.unseen.is_some()
    }
}

impl Groups {
    /// The group whose turn it is, as far as that is known: `looks` is how many may be looked at.
    pub(crate) fn first(
        &mut self,
        rotation: &mut Rotation,
        now_ms: u64,
        looks: &mut u64,
    ) -> Option<u32> {
        let mut seen = 0;
        loop {
            let front = rotation.runnable.due(u64::MAX);
            if !rotation.is_unseen() {
                return front;
            }
            let front = front.filter(|&group| self.is_runnable(rotation, now_ms, group));
            let enough = seen >= LOOKS_PER_JOB && front.is_some();
            if enough || !self.see_one(rotation, now_ms, looks) {
                return front;
            }
            seen += 1;
        }
    }

    /// Looks at one more group since the limits have changed. False if all have been looked at, or no more may be.
    pub(crate) fn see_one(
        &mut self,
        rotation: &mut Rotation,
        now_ms: u64,
        looks: &mut u64,
    ) -> bool {
        let Some(group) = rotation.unseen else { return false };
        if !allowance::take(looks) {
            return false;
        }
        rotation.unseen = List::<OfQueue>::after(&self.slab, group);
        self.is_runnable(rotation, now_ms, group);
        true
    }

    /// Whether the turn of a group can come.
    pub(crate) fn is_runnable(&mut self, rotation: &mut Rotation, now_ms: u64, group: u32) -> bool {
        // A span that goes on by an earlier rate may be over by that of now.
        self.end_windows(rotation, now_ms, group);
        self.refresh(rotation, group);
        self.slab[group].place != NONE
    }

    /// A group has its first job to wait, and no place: its turn comes after that of all others.
    pub(crate) fn join(&mut self, rotation: &mut Rotation, group: u32) {
        rotation.turn += 1;
        let about = &mut self.slab[group];
        about.turn = rotation.turn;
        about.credit = about.settings().weight;
    }

    /// Brings the place of a group in line with what it has and what is set for it. True if its turn can
    /// come now, and could not before.
    pub(crate) fn refresh(&mut self, rotation: &mut Rotation, group: u32) -> bool {
        let about = &self.slab[group];
        let (place, turn) = (about.place, about.turn);
        let blocked_until_ms = blocked_until_ms(about, rotation.limits);
        let runs = blocked_until_ms.is_none();
        if runs && place == NONE {
            rotation.runnable.insert(turn, group, &mut Places(&mut self.slab));
        } else if !runs && place != NONE {
            rotation.runnable.remove(place, &mut Places(&mut self.slab));
        }
        if let Some(until_ms) = blocked_until_ms {
            self.set_timer(group, until_ms);
        }
        self.note_awaited(rotation, group, runs) || runs && place == NONE
    }

    /// Lists a group that could serve a pull which waits for its jobs only. True if it could not before.
    fn note_awaited(&mut self, rotation: &mut Rotation, group: u32, runs: bool) -> bool {
        let about = &mut self.slab[group];
        let awaited = runs && !about.waiters.is_empty();
        if std::mem::replace(&mut about.is_awaited, awaited) == awaited {
            return false;
        }
        if awaited {
            rotation.awaited.push_back(&mut self.slab, group);
        } else {
            rotation.awaited.remove(&mut self.slab, group);
        }
        awaited
    }

    fn set_timer(&mut self, group: u32, at_ms: u64) {
        let (timer, stands_ms) = (self.slab[group].timer, self.slab[group].timer_at_ms);
        // A timer that stands too early does no harm: the group is looked at, and that is all.
        if at_ms == u64::MAX || timer != NONE && stands_ms <= at_ms {
            return;
        }
        if timer != NONE {
            self.timers.remove(timer, &mut self.slab);
        }
        self.slab[group].timer_at_ms = at_ms;
        self.timers.insert(at_ms, group, &mut self.slab);
    }

    /// Takes the timer of a group away that stands later than `at_ms`. True if there was one.
    pub(crate) fn end_timer_after(&mut self, group: u32, at_ms: u64) -> bool {
        let about = self.slab.peek(group);
        let (timer, is_later) = (about.timer, about.timer_at_ms > at_ms);
        let ends = timer != NONE && is_later;
        if ends {
            self.timers.remove(timer, &mut self.slab);
        }
        ends
    }

    /// A job of the group has left for a worker.
    pub(crate) fn serve(&mut self, rotation: &mut Rotation, now_ms: u64, group: u32) {
        let about = &mut self.slab[group];
        if let Some(own) = &mut about.own
            && let Some(rate) = own.settings.rate
        {
            own.window.note(now_ms, rate);
        }
        if let Some(rate) = rotation.limits.rate {
            about.window.note(now_ms, rate);
        }
        about.credit = about.credit.saturating_sub(1);
        if about.credit == 0 {
            self.send_back(rotation, group);
        }
        self.refresh(rotation, group);
    }

    /// The turn of a group comes after that of all others.
    pub(crate) fn send_back(&mut self, rotation: &mut Rotation, group: u32) {
        self.join(rotation, group);
        let about = &self.slab[group];
        let (turn, credit) = (about.turn, about.credit);
        self.set_turn(rotation, group, turn, credit);
    }

    /// A group has another turn.
    pub(crate) fn set_turn(&mut self, rotation: &mut Rotation, group: u32, turn: u64, credit: u32) {
        let about = &mut self.slab[group];
        (about.turn, about.credit) = (turn, credit);
        let place = about.place;
        if place != NONE {
            rotation.runnable.remove(place, &mut Places(&mut self.slab));
            rotation.runnable.insert(turn, group, &mut Places(&mut self.slab));
        }
    }

    /// Forgets spans of time that are over.
    pub(crate) fn end_windows(&mut self, rotation: &Rotation, now_ms: u64, group: u32) {
        let about = &mut self.slab[group];
        if let Some(own) = &mut about.own
            && let Some(rate) = own.settings.rate
        {
            own.window.end(now_ms, rate);
        }
        if let Some(rate) = rotation.limits.rate {
            about.window.end(now_ms, rate);
        }
    }

    /// For how long the span of time goes on in which this group's jobs are counted; `None` if none are.
    /// Zero if `jobs` of them may leave before it matters.
    pub(crate) fn window_left_ms(
        &self,
        rotation: &Rotation,
        now_ms: u64,
        group: u32,
        jobs: Option<u64>,
    ) -> Option<u64> {
        let (rate, window) = self.slab[group].rate(rotation.limits)?;
        let left_ms = window.left_ms(now_ms, rate)?;
        Some(if jobs.is_some_and(|jobs| window.jobs < jobs) { 0 } else { left_ms })
    }

    /// Lets a group without jobs go on for as long as a rate counts those that have left: else its next job
    /// would leave at once. False if there is none, or too many groups do so.
    fn linger(&mut self, rotation: &Rotation, group: u32) -> bool {
        let window = self.slab[group].window;
        let Some(rate) = rotation.limits.rate.filter(|_| window.jobs > 0) else { return false };
        if !self.slab[group].lingers {
            if self.lingering >= GROUPS_LINGERING_MAX {
                self.forgotten_early += 1;
                return false;
            }
            self.slab[group].lingers = true;
            self.lingering += 1;
        }
        self.set_timer(group, window.began_ms.saturating_add(rate.span_ms));
        true
    }

    /// Forgets a group if nothing would be lost with it; in a queue that goes, whatever was counted.
    pub(crate) fn drop_if_idle(&mut self, rotation: &mut Rotation, group: u32, goes: bool) {
        if !self.slab[group].is_idle() || !goes && self.linger(rotation, group) {
            return;
        }
        self.refresh(rotation, group);
        if rotation.unseen == Some(group) {
            rotation.unseen = List::<OfQueue>::after(&self.slab, group);
        }
        let timer = self.slab[group].timer;
        if timer != NONE {
            self.timers.remove(timer, &mut self.slab);
        }
        rotation.groups.remove(&mut self.slab, group);
        rotation.count.take_out(1);
        self.remove(group);
    }

    /// Recounts what a rotation counts, and says what does not agree.
    pub(crate) fn audit(&self, rotation: &Rotation) -> Result<(), String> {
        let groups = || {
            std::iter::successors(rotation.groups.front(), |&group| {
                List::<OfQueue>::after(&self.slab, group)
            })
        };
        let sum = |of: fn(&Group) -> u64| groups().map(|group| of(&self.slab[group])).sum::<u64>();
        let counted = (groups().count() as u64, sum(|it| u64::from(it.pending)));
        let kept = (u64::from(rotation.count), rotation.pending);
        let set = sum(|it| u64::from(it.own.is_some()));
        let with_settings = std::iter::successors(rotation.with_settings.front(), |&group| {
            List::<WithSettings>::after(&self.slab, group)
        });
        let listed = with_settings.count() as u64;
        if counted != kept || set != u64::from(rotation.set) || set != listed {
            return Err(format!("groups and their jobs: {counted:?}, counted as {kept:?}"));
        }
        let with_waiters = std::iter::successors(rotation.with_waiters.front(), |&group| {
            List::<WithWaiters>::after(&self.slab, group)
        });
        let (listed, waited) =
            (with_waiters.count() as u64, sum(|it| u64::from(!it.waiters.is_empty())));
        if listed != waited {
            return Err(format!("pulls wait for {waited} groups, not {listed}"));
        }
        let waiting: u64 = rotation.priorities.values().map(|&jobs| u64::from(jobs)).sum();
        if waiting != rotation.waiting {
            return Err(format!("{waiting} jobs of groups by priority, not {}", rotation.waiting));
        }
        let seated = sum(|it| u64::from(it.place != NONE));
        if seated != rotation.runnable.len() as u64 {
            return Err(format!(
                "{seated} groups have their turn, not {}",
                rotation.runnable.len()
            ));
        }
        let mut unseen = false;
        for group in groups() {
            unseen |= rotation.unseen == Some(group);
            self.audit_group(rotation, group, unseen)?;
        }
        if unseen != rotation.is_unseen() {
            return Err("groups are to be looked at that are not there".into());
        }
        Ok(())
    }

    fn audit_group(&self, rotation: &Rotation, group: u32, unseen: bool) -> Result<(), String> {
        let about = &self.slab[group];
        if about.is_idle() != about.lingers {
            return Err(format!(
                "the group {} is kept for nothing, or lingers for jobs",
                about.name
            ));
        }
        let seated = about.place != NONE;
        if about.is_awaited != (seated && !about.waiters.is_empty()) {
            return Err(format!("the group {} does not know who waits for it", about.name));
        }
        let blocked_until_ms = blocked_until_ms(about, rotation.limits);
        if unseen {
            return Ok(());
        }
        if seated != blocked_until_ms.is_none() {
            return Err(format!("the group {} has its turn: {seated}", about.name));
        }
        let timed = blocked_until_ms.is_some_and(|until_ms| until_ms < u64::MAX);
        if timed && (about.timer == NONE || Some(about.timer_at_ms) > blocked_until_ms) {
            return Err(format!("no timer stands for the group {}", about.name));
        }
        Ok(())
    }
}

/// Until when a group gives no job, by what is set for it or else by the limits that pulls brought; `u64::MAX` for until an
/// event ends that, `None` if its turn can come.
fn blocked_until_ms(group: &Group, limits: PullLimits) -> Option<u64> {
    let settings = group.settings();
    // Whether or not there are jobs: that the time is over has to be written.
    if settings.held_until_ms > 0 {
        return Some(settings.held_until_ms);
    }
    let full = |max: u64| u64::from(group.active) >= max;
    let active_max = settings.active_max.or(limits.active_max);
    if group.lane.is_empty() || settings.paused || active_max.is_some_and(full) {
        return Some(u64::MAX);
    }
    let (rate, window) = group.rate(limits)?;
    window.full_until_ms(rate)
}

/// The groups of a queue in the order in which they became known, from behind `after` on.
pub(crate) fn groups_after(
    slab: &Slab<Group>,
    rotation: &Rotation,
    after: Option<u32>,
) -> impl Iterator<Item = u32> {
    let first = match after {
        None => rotation.groups.front(),
        Some(group) => List::<OfQueue>::after(slab, group),
    };
    std::iter::successors(first, |&group| List::<OfQueue>::after(slab, group))
}
