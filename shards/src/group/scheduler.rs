//! Whose turn it is among the groups of a queue, without looking at those whose turn it cannot be.
//!
//! A group whose turn can come, because it has a waiting job and no limit is in the way, has a place in a
//! heap, the one that was served longest ago in front. A group that is paused, busy, used up or empty has
//! none, and comes back by the event or the time that ends this. So a pull costs a step into a heap,
//! however many groups cannot serve it.
//!
//! Pulls may bring limits of their own for groups that have none set. Who may serve such a pull is another
//! question than for others, so there is a [`View`], a heap of its own, for each set of limits in use.
//! There are few: the workers of a queue mostly say the same.

use crate::apply::allowance;
use crate::collections::count::Count;
use crate::collections::deadline_heap::Timers;
use crate::collections::slab::{List, NONE, Slab};
use crate::group::{
    Awaited, GROUPS_LINGERING_MAX, Group, GroupRate, Groups, OfQueue, Seat, Seats, WithSettings,
    WithWaiters,
};
use crate::lease::waiting_pulls::AtQueue;
use std::collections::BTreeMap;

/// Sets of limits that pulls of one queue may bring at a time.
pub const VIEWS_MAX: usize = 8;

/// A set of limits that nobody has pulled with for so long, and nobody waits with, makes room for another, unless its
/// rate still counts what was pulled with it.
pub(super) const VIEW_IDLE_MS: u64 = 10_000;

/// Groups that a new view looks at with each pull until it has seen all.
const VIEW_SLICE: usize = 64;

/// Terms that a pull states for all groups: all but which group it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ViewTerms {
    /// Most active jobs of a group for which nothing else is set.
    pub(crate) active_max: Option<u64>,
    /// The rate of a group for which nothing else is set.
    pub(crate) rate: Option<GroupRate>,
    /// Whether only jobs without a group are wanted.
    pub(crate) plain: bool,
}

/// The order in which one set of terms sees the groups of a queue.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) terms: ViewTerms,
    /// Groups whose turn can come, by turn.
    pub(crate) runnable: Timers,
    /// Pulls that wait for a job of any group. Those that say nothing of groups wait at the queue.
    pub(crate) waiters: List<AtQueue>,
    /// These, and those that wait for one group's jobs.
    pub(crate) waiting: u32,
    pub(super) used_at_ms: u64,
    /// When the last span ends in which jobs of some group have left, as its rate counts them.
    counts_until_ms: u64,
    /// Tells seats in this view from those in an earlier one at its place.
    pub(super) epoch: u32,
    /// The next group that has to be looked at, until all have been.
    unseen: u32,
}

impl View {
    /// Whether there are groups that it has not looked at yet.
    pub(crate) fn is_unseen(&self) -> bool {
        self.unseen != NONE
    }

    /// Whether it may make room for another one.
    fn is_spare(&self, now_ms: u64) -> bool {
        let unused_for = |ms: u64| self.used_at_ms.saturating_add(ms) <= now_ms;
        // Jobs that others have pulled since are counted as well, but bound nothing that was pulled here.
        let span_ms = self.terms.rate.map_or(0, |rate| rate.span_ms);
        let counts = self.counts_until_ms > now_ms && !unused_for(span_ms);
        self.waiting == 0 && unused_for(VIEW_IDLE_MS) && !counts
    }
}

/// Whether a group may have its turn, or what it waits for.
enum Standing {
    Runnable,
    /// Until then.
    Held(u64),
    /// Something that an event will end.
    Blocked,
}

/// The groups of one queue.
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
    /// Jobs in groups that wait.
    pub(crate) waiting: u64,
    /// Jobs of groups, waiting or delayed.
    pub(crate) pending: u64,
    /// Waiting jobs of groups, by priority.
    pub(crate) priorities: BTreeMap<i32, u32>,
    /// The turn given out last.
    turn: u64,
    epoch: u32,
    /// The first is that of pulls that say nothing of groups.
    pub(crate) views: Vec<View>,
}

impl Default for Rotation {
    fn default() -> Self {
        let first = View { epoch: 1, unseen: NONE, ..View::default() };
        Self {
            groups: List::default(),
            awaited: List::default(),
            count: 0,
            with_settings: List::default(),
            set: 0,
            with_waiters: List::default(),
            waiting: 0,
            pending: 0,
            priorities: BTreeMap::new(),
            turn: 0,
            epoch: 1,
            views: vec![first],
        }
    }
}

impl Rotation {
    /// Whether nothing would be lost with it.
    pub(crate) fn is_idle(&self) -> bool {
        self.groups.is_empty() && !self.is_awaited()
    }

    /// The view of pulls that say this; `None` if there are too many others.
    pub(crate) fn view_of(&mut self, now_ms: u64, terms: ViewTerms) -> Option<usize> {
        let found = self.views.iter().position(|view| view.terms == terms);
        let place = match found {
            Some(known) => known,
            None => self.add_view(now_ms, terms)?,
        };
        self.views[place].used_at_ms = now_ms;
        Some(place)
    }

    fn add_view(&mut self, now_ms: u64, terms: ViewTerms) -> Option<usize> {
        let place = if self.views.len() < VIEWS_MAX {
            self.views.push(View::default());
            self.views.len() - 1
        } else {
            let others = self.views.iter().enumerate().skip(1);
            let others = others.filter(|(_, view)| view.is_spare(now_ms));
            others.min_by_key(|(_, view)| view.used_at_ms)?.0
        };
        self.epoch += 1;
        let unseen = if terms.plain { NONE } else { self.groups.front().unwrap_or(NONE) };
        self.views[place] = View { terms, epoch: self.epoch, unseen, ..View::default() };
        Some(place)
    }

    /// Whether a pull waits that says something of groups.
    pub(crate) fn is_awaited(&self) -> bool {
        self.views.iter().any(|view| view.waiting > 0)
    }

    /// Whether a pull waits for a job of a group that could give one.
    pub(crate) fn could_serve(&self) -> bool {
        let waits = |view: &View| !view.waiters.is_empty() && view.runnable.len() > 0;
        !self.awaited.is_empty() || self.views.iter().any(waits)
    }

    /// Whether there are groups that a view has not looked at yet.
    pub(crate) fn is_unseen(&self, view: u8) -> bool {
        self.views.get(usize::from(view)).is_some_and(|view| view.unseen != NONE)
    }

    /// Whether pulls wait in a view that has not looked at all groups, any of which could serve them.
    pub(crate) fn waits_unseen(&self) -> bool {
        self.views.iter().any(|view| view.is_unseen() && !view.waiters.is_empty())
    }

    /// Whether a pull could get a job of some group.
    pub(crate) fn any_runnable(&self) -> bool {
        self.views.iter().any(|view| view.runnable.len() > 0)
    }
}

impl Groups {
    /// The group whose turn it is for pulls of a view, as far as that is known: `looks` is how many groups may be
    /// looked at.
    pub(crate) fn first(
        &mut self,
        rotation: &mut Rotation,
        view: usize,
        looks: &mut u64,
    ) -> Option<u32> {
        if rotation.views[view].unseen != NONE {
            self.see_more(rotation, view, looks);
        }
        rotation.views[view].runnable.due(u64::MAX)
    }

    /// Gives groups their places in a new view: some with each pull, and as many as it takes to find one, or as may
    /// be looked at.
    #[cold]
    fn see_more(&mut self, rotation: &mut Rotation, view: usize, looks: &mut u64) {
        for step in 0.. {
            let group = rotation.views[view].unseen;
            if group == NONE
                || step >= VIEW_SLICE && rotation.views[view].runnable.len() > 0
                || !allowance::take(looks)
            {
                return;
            }
            rotation.views[view].unseen = List::<OfQueue>::after(&self.slab, group).unwrap_or(NONE);
            self.refresh(rotation, group);
        }
    }

    /// Whether a group could serve a pull of a view that wants its jobs only.
    pub(crate) fn is_runnable(&mut self, rotation: &mut Rotation, group: u32, view: usize) -> bool {
        self.refresh(rotation, group);
        self.place(rotation, group, view).is_some()
    }

    /// The place of a group in a view, if its turn can come there.
    pub(crate) fn place(&self, rotation: &Rotation, group: u32, view: usize) -> Option<u32> {
        let seat = self.slab[group].seat(view);
        (seat.epoch == rotation.views[view].epoch && seat.place != NONE).then_some(seat.place)
    }

    /// A group has its first job to wait, and a place in no view: its turn comes after that of all others.
    pub(crate) fn join(&mut self, rotation: &mut Rotation, group: u32) {
        rotation.turn += 1;
        let about = &mut self.slab[group];
        about.turn = rotation.turn;
        about.credit = about.settings().weight;
    }

    /// Brings the places of a group in line with what it has and what is set for it. True if its turn can
    /// come now for a pull that may be waiting, and could not before.
    pub(crate) fn refresh(&mut self, rotation: &mut Rotation, group: u32) -> bool {
        let mut earliest_ms = u64::MAX;
        let (mut runs_in, mut comes) = (0_u8, false);
        for view in 0..rotation.views.len() {
            let about = &rotation.views[view];
            let (terms, epoch) = (about.terms, about.epoch);
            if terms.plain {
                continue;
            }
            let (has_waiters, turn) = (!about.waiters.is_empty(), self.slab[group].turn);
            let seat = self.slab[group].seat_mut(view);
            if seat.epoch != epoch {
                *seat = Seat { epoch, waiters: seat.waiters, ..Seat::default() };
            }
            let place = seat.place;
            let runs = match standing(&self.slab[group], view, terms) {
                Standing::Runnable => true,
                Standing::Held(until_ms) => {
                    earliest_ms = earliest_ms.min(until_ms);
                    false
                }
                Standing::Blocked => false,
            };
            let runnable = &mut rotation.views[view].runnable;
            if runs {
                runs_in |= 1 << view;
                if place == NONE {
                    runnable.insert(turn, group, &mut Seats(&mut self.slab, view));
                    // Pulls of view 0 wait at the queue, which is not known here: assume that there are some.
                    comes |= has_waiters || view == 0;
                }
            } else if place != NONE {
                runnable.remove(place, &mut Seats(&mut self.slab, view));
            }
        }
        self.set_timer(group, earliest_ms);
        self.note_awaited(rotation, group, runs_in) || comes
    }

    /// Lists a group that could serve a pull which waits for its jobs only. True if it could not before.
    fn note_awaited(&mut self, rotation: &mut Rotation, group: u32, runs_in: u8) -> bool {
        let about = &mut self.slab[group];
        let awaited = about.views_awaited & runs_in != 0;
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
        for view in 0..rotation.views.len() {
            let (rate, epoch) = (rotation.views[view].terms.rate, rotation.views[view].epoch);
            if let Some(rate) = rate {
                let seat = self.slab[group].seat_mut(view);
                if seat.epoch == epoch {
                    seat.window.note(now_ms, rate);
                    let until_ms = seat.window.began_ms.saturating_add(rate.span_ms);
                    let view = &mut rotation.views[view];
                    view.counts_until_ms = view.counts_until_ms.max(until_ms);
                }
            }
        }
        let about = &mut self.slab[group];
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
        for view in 0..rotation.views.len() {
            if let Some(place) = self.place(rotation, group, view) {
                let runnable = &mut rotation.views[view].runnable;
                runnable.remove(place, &mut Seats(&mut self.slab, view));
                runnable.insert(turn, group, &mut Seats(&mut self.slab, view));
            }
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
        for (place, view) in rotation.views.iter().enumerate() {
            if let Some(rate) = view.terms.rate
                && about.seat(place).epoch == view.epoch
            {
                about.seat_mut(place).window.end(now_ms, rate);
            }
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
        let about = &self.slab[group];
        let left = |window: &crate::group::Window, rate: GroupRate| {
            let left_ms = window.left_ms(now_ms, rate)?;
            Some(if jobs.is_some_and(|jobs| window.jobs < jobs) { 0 } else { left_ms })
        };
        let own = about.own.as_deref();
        if let Some((own, rate)) = own.and_then(|own| Some((own, own.settings.rate?))) {
            return left(&own.window, rate);
        }
        let views = rotation.views.iter().enumerate().filter_map(|(place, view)| {
            let seat = about.seat(place);
            left(&seat.window, view.terms.rate?).filter(|_| seat.epoch == view.epoch)
        });
        views.max()
    }

    /// When the last span ends in which jobs of a group have left, of rates that pulls brought.
    fn windows_end_ms(&self, rotation: &Rotation, group: u32) -> Option<u64> {
        let about = &self.slab[group];
        let ends = rotation.views.iter().enumerate().filter_map(|(place, view)| {
            let (rate, seat) = (view.terms.rate?, about.seat(place));
            let counts = seat.epoch == view.epoch && seat.window.jobs > 0;
            counts.then(|| seat.window.began_ms.saturating_add(rate.span_ms))
        });
        ends.max()
    }

    /// Lets a group without jobs go on for as long as a rate counts those that have left: else its next job
    /// would leave at once. False if there is none, or too many groups do so.
    fn linger(&mut self, rotation: &Rotation, group: u32) -> bool {
        let Some(until_ms) = self.windows_end_ms(rotation, group) else { return false };
        if !self.slab[group].lingers {
            if self.lingering >= GROUPS_LINGERING_MAX {
                self.forgotten_early += 1;
                return false;
            }
            self.slab[group].lingers = true;
            self.lingering += 1;
        }
        self.set_timer(group, until_ms);
        true
    }

    /// Forgets a group if nothing would be lost with it; in a queue that goes, whatever was counted.
    pub(crate) fn drop_if_idle(&mut self, rotation: &mut Rotation, group: u32, goes: bool) {
        if !self.slab[group].is_idle() || !goes && self.linger(rotation, group) {
            return;
        }
        self.refresh(rotation, group);
        let next = List::<OfQueue>::after(&self.slab, group).unwrap_or(NONE);
        for view in &mut rotation.views {
            if view.unseen == group {
                view.unseen = next;
            }
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
            (with_waiters.count() as u64, sum(|it| u64::from(it.views_awaited != 0)));
        if listed != waited {
            return Err(format!("pulls wait for {waited} groups, not {listed}"));
        }
        let waiting: u64 = rotation.priorities.values().map(|&jobs| u64::from(jobs)).sum();
        if waiting != rotation.waiting {
            return Err(format!("{waiting} jobs of groups by priority, not {}", rotation.waiting));
        }
        let mut unseen = vec![Vec::new(); rotation.views.len()];
        for (place, view) in rotation.views.iter().enumerate() {
            let rest = std::iter::successors(Some(view.unseen).filter(|&at| at != NONE), |&at| {
                List::<OfQueue>::after(&self.slab, at)
            });
            unseen[place] = rest.collect();
            let seated = groups().filter(|&at| self.place(rotation, at, place).is_some()).count();
            if seated != view.runnable.len() {
                return Err(format!(
                    "{seated} groups have their turn, not {}",
                    view.runnable.len()
                ));
            }
        }
        for group in groups() {
            self.audit_group(rotation, group, &unseen)?;
        }
        Ok(())
    }

    fn audit_group(
        &self,
        rotation: &Rotation,
        group: u32,
        unseen: &[Vec<u32>],
    ) -> Result<(), String> {
        let about = &self.slab[group];
        if about.is_idle() != about.lingers {
            return Err(format!(
                "the group {} is kept for nothing, or lingers for jobs",
                about.name
            ));
        }
        let mut awaited = false;
        for (place, view) in rotation.views.iter().enumerate() {
            let unknown = about.seat(place).epoch != view.epoch;
            let waited = about.views_awaited & (1 << place) != 0;
            if about.seat(place).waiters.is_empty() == waited {
                return Err(format!("the group {} does not know of which views wait", about.name));
            }
            if view.terms.plain || unknown && unseen[place].contains(&group) {
                continue;
            }
            let seated = self.place(rotation, group, place).is_some();
            let should = match standing(about, place, view.terms) {
                Standing::Runnable => true,
                Standing::Held(until_ms) if about.timer == NONE || about.timer_at_ms > until_ms => {
                    return Err(format!("nobody will look at the group {}", about.name));
                }
                Standing::Held(_) | Standing::Blocked => false,
            };
            if seated != should {
                return Err(format!("the group {} has its turn: {seated}", about.name));
            }
            awaited |= seated && about.views_awaited & (1 << place) != 0;
        }
        if about.is_awaited != awaited {
            return Err(format!("the group {} does not know who waits for it", about.name));
        }
        Ok(())
    }
}

/// The standing of `group` for pulls of a view.
fn standing(group: &Group, view: usize, terms: ViewTerms) -> Standing {
    let settings = group.settings();
    // Whether or not there are jobs: that the time is over has to be written.
    if settings.held_until_ms > 0 {
        return Standing::Held(settings.held_until_ms);
    }
    if group.lane.is_empty() || settings.paused {
        return Standing::Blocked;
    }
    let active_max = settings.active_max.or(terms.active_max);
    if active_max.is_some_and(|max| u64::from(group.active) >= max) {
        return Standing::Blocked;
    }
    let full_until_ms = match (settings.rate, terms.rate) {
        (Some(rate), _) => group.own.as_deref().and_then(|own| own.window.full_until_ms(rate)),
        (None, Some(rate)) => group.seat(view).window.full_until_ms(rate),
        (None, None) => None,
    };
    full_until_ms.map_or(Standing::Runnable, Standing::Held)
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
