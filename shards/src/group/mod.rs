//! Groups: the jobs of a queue that share a `groupId`, what is set for each group, and who waits for its jobs.
//!
//! A queue has none of this until a job with a group comes to it, or something is set for a group; see
//! `scheduler` for whose turn it is. Time and records are not known here.
//!
//! | file | responsibility |
//! |---|---|
//! | `blocks` | what keeps a group from giving a job, for people who ask |
//! | `group_ref` | which group a job belongs to: data only |
//! | `limits` | what is set for a group |
//! | `membership` | jobs and pulls that come into a group and leave it |
//! | `push_plan` | what a long push will make of the groups of its queue |
//! | `scheduler` | groups take turns |

pub(crate) mod blocks;
pub(crate) mod group_ref;
pub(crate) mod limits;
pub(crate) mod membership;
pub(crate) mod push_plan;
pub(crate) mod scheduler;

use crate::collections::deadline_heap::{Timed, Timers};
use crate::collections::hash_key::HashKey;
use crate::collections::slab::{Linked, Links, List, NONE, Slab};
use crate::collections::table::Table;
use crate::job::id::JobId;
use crate::job::{InQueue, Job};
use crate::lease::waiting_pulls::AtQueue;
use crate::log_record::location::LogRef;
use crate::queue::out_of_order::{Order, OutOfOrderHeap};

/// Groups of a shard for which something may be set at a time. What is set for more is refused.
pub const GROUP_SETTINGS_MAX: u64 = 50_000;

/// Groups of a shard that are remembered only for the rate that pulls brought, while its span lasts. What
/// comes beyond them is forgotten with its last job.
pub const GROUPS_LINGERING_MAX: u64 = 50_000;

/// Largest weight of a group.
pub const WEIGHT_MAX: u32 = 1000;

/// Most jobs of a group in a span of time that begins with the first of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct GroupRate {
    /// How many, at least 1.
    pub jobs: u64,
    /// In which time, at least 1.
    pub span_ms: u64,
}

/// Limits that pulls brought, for groups for which nothing else is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PullLimits {
    /// Most active jobs of a group.
    pub(crate) active_max: Option<u64>,
    /// The rate of a group.
    pub(crate) rate: Option<GroupRate>,
}

impl PullLimits {
    /// Whether there are none.
    pub(crate) fn are_none(self) -> bool {
        self == Self::default()
    }
}

/// Settings of a group. Whatever pulls its jobs is bound by them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSettings {
    /// How fast its jobs may leave.
    pub rate: Option<GroupRate>,
    /// How many of them may be active at a time, at least 1.
    pub active_max: Option<u64>,
    /// Jobs it may give in a row when its turn comes, 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// Whether it gives none.
    pub paused: bool,
    /// Until when it gives none, in milliseconds since the epoch; 0 for no such time.
    pub held_until_ms: u64,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self { rate: None, active_max: None, weight: 1, paused: false, held_until_ms: 0 }
    }
}

/// The settings of a group that has some.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) settings: GroupSettings,
    /// The record that says them.
    pub(crate) set_in: LogRef,
    /// The span of time of their rate.
    pub(crate) window: Window,
}

/// A span of time, and what has left in it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Window {
    pub(crate) began_ms: u64,
    pub(crate) jobs: u64,
}

impl Window {
    /// When it ends, if it is full.
    pub(crate) fn full_until_ms(&self, rate: GroupRate) -> Option<u64> {
        (self.jobs >= rate.jobs).then(|| self.began_ms.saturating_add(rate.span_ms))
    }

    /// A job leaves.
    pub(crate) fn note(&mut self, now_ms: u64, rate: GroupRate) {
        self.end(now_ms, rate);
        if self.jobs == 0 {
            self.began_ms = now_ms;
        }
        self.jobs += 1;
    }

    /// Forgets a span that is over.
    pub(crate) fn end(&mut self, now_ms: u64, rate: GroupRate) {
        if self.jobs > 0 && self.began_ms.saturating_add(rate.span_ms) <= now_ms {
            self.jobs = 0;
        }
    }

    /// Milliseconds left of the span; `None` if there is none.
    pub(crate) fn left_ms(&self, now_ms: u64, rate: GroupRate) -> Option<u64> {
        let left_ms = self.began_ms.saturating_add(rate.span_ms).saturating_sub(now_ms);
        (self.jobs > 0 && left_ms > 0).then_some(left_ms)
    }
}

/// The waiting jobs of one group: priority low to high, then in the order they were made. Those that came
/// in order are in a list, the others in a heap.
#[derive(Default)]
pub(crate) struct Lane {
    in_order: List<InQueue>,
    out_of_order: OutOfOrderHeap<InGroup>,
}

struct InGroup;

impl Order for InGroup {
    type Rank = (i32, JobId);
    fn rank(job: &Job) -> Self::Rank {
        (job.priority, job.id)
    }
}

impl Lane {
    /// The job to deliver next.
    pub(crate) fn first(&self, jobs: &Slab<Job>) -> Option<u32> {
        match (self.in_order.front(), self.out_of_order.first()) {
            (Some(a), Some(b)) => {
                Some(if InGroup::rank(&jobs[a]) < InGroup::rank(&jobs[b]) { a } else { b })
            }
            (one, other) => one.or(other),
        }
    }

    /// How many jobs leave it before a waiting one, and whether that is all of them: so many neighbours are looked at.
    pub(crate) fn ahead(&self, jobs: &Slab<Job>, index: u32, looks: usize) -> (u64, bool) {
        let own = InGroup::rank(&jobs[index]);
        let before = |&other: &u32| InGroup::rank(&jobs[other]) < own;
        let listed =
            std::iter::successors(self.in_order.front(), |&at| List::<InQueue>::after(jobs, at));
        let listed = listed.take(looks + 1).take_while(before).count();
        let strays = self.out_of_order.iter().take(looks).filter(before).count();
        let exact = listed <= looks && self.out_of_order.len() <= looks;
        ((listed.min(looks) + strays) as u64, exact)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.out_of_order.first().is_none()
    }

    pub(crate) fn insert(&mut self, jobs: &mut Slab<Job>, index: u32) {
        let rank = InGroup::rank(&jobs[index]);
        match (self.in_order.front(), self.in_order.back()) {
            (Some(_), Some(back)) if rank > InGroup::rank(&jobs[back]) => {
                self.in_order.push_back(jobs, index);
            }
            (Some(front), _) if rank < InGroup::rank(&jobs[front]) => {
                self.in_order.push_front(jobs, index);
            }
            (Some(_), _) => self.out_of_order.insert(jobs, index),
            (None, _) => self.in_order.push_back(jobs, index),
        }
    }

    pub(crate) fn remove(&mut self, jobs: &mut Slab<Job>, index: u32) {
        if jobs[index].has(crate::job::flags::OUT_OF_ORDER) {
            self.out_of_order.remove(jobs, index);
        } else {
            self.in_order.remove(jobs, index);
        }
    }
}

/// A group of a queue.
pub(crate) struct Group {
    pub(crate) name: Box<str>,
    /// Index of its queue.
    pub(crate) queue: u32,
    /// Jobs in it, in any state.
    pub(crate) jobs: u32,
    /// Jobs that wait or are delayed.
    pub(crate) pending: u32,
    /// Jobs that workers have.
    pub(crate) active: u32,
    /// Jobs that wait.
    pub(crate) lane: Lane,
    /// The lower, the sooner it is its turn.
    pub(crate) turn: u64,
    /// Jobs it may still give in this turn.
    pub(crate) credit: u32,
    /// Pulls that wait for a job of this group only.
    pub(crate) waiters: List<AtQueue>,
    /// Whether it is in the list of those that could serve such a pull.
    pub(crate) is_awaited: bool,
    /// Place among those whose turn can come, or `NONE`.
    pub(crate) place: u32,
    /// The span of time of the rate that pulls brought.
    pub(crate) window: Window,
    pub(crate) own: Option<Box<Own>>,
    /// Place of the deadline at which it has to be looked at again, or `NONE`.
    pub(crate) timer: u32,
    /// When that is.
    pub(crate) timer_at_ms: u64,
    /// The group is remembered only for how many of its jobs have left.
    pub(crate) lingers: bool,
    of_queue: Links,
    awaited: Links,
    with_settings: Links,
    with_waiters: Links,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            name: Box::default(),
            queue: NONE,
            jobs: 0,
            pending: 0,
            active: 0,
            lane: Lane::default(),
            turn: 0,
            credit: 0,
            waiters: List::default(),
            is_awaited: false,
            place: NONE,
            window: Window::default(),
            own: None,
            timer: NONE,
            timer_at_ms: 0,
            lingers: false,
            of_queue: Links::default(),
            awaited: Links::default(),
            with_settings: Links::default(),
            with_waiters: Links::default(),
        }
    }
}

impl Group {
    /// Settings of the group, or the defaults.
    pub(crate) fn settings(&self) -> GroupSettings {
        self.own.as_deref().map_or_else(GroupSettings::default, |own| own.settings)
    }

    /// The rate by which its jobs may leave, which is set or else brought by pulls, and the span of time for that.
    pub(crate) fn rate(&self, limits: PullLimits) -> Option<(GroupRate, Window)> {
        let own = self.own.as_deref().and_then(|own| Some((own.settings.rate?, own.window)));
        own.or_else(|| Some((limits.rate?, self.window)))
    }

    /// Whether nothing would be lost with it.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs == 0 && self.own.is_none() && self.waiters.is_empty()
    }
}

/// The groups of one queue.
pub(crate) struct OfQueue;

impl Linked<OfQueue> for Group {
    fn links(&self) -> Links {
        self.of_queue
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.of_queue
    }
}

/// The groups of one queue that could serve a pull which waits for their jobs only.
pub(crate) struct Awaited;

impl Linked<Awaited> for Group {
    fn links(&self) -> Links {
        self.awaited
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.awaited
    }
}

/// The groups of one queue that have settings.
pub(crate) struct WithSettings;

impl Linked<WithSettings> for Group {
    fn links(&self) -> Links {
        self.with_settings
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.with_settings
    }
}

/// The groups of one queue that pulls wait for.
pub(crate) struct WithWaiters;

impl Linked<WithWaiters> for Group {
    fn links(&self) -> Links {
        self.with_waiters
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.with_waiters
    }
}

impl Timed for Slab<Group> {
    fn place(&mut self, key: u32, place: u32) {
        self[key].timer = place;
    }
}

/// The places of groups among those whose turn can come.
pub(crate) struct Places<'a>(pub(crate) &'a mut Slab<Group>);

impl Timed for Places<'_> {
    fn place(&mut self, key: u32, place: u32) {
        self.0[key].place = place;
    }
}

/// The groups of a shard.
pub(crate) struct Groups {
    key: HashKey,
    pub(crate) slab: Slab<Group>,
    by_name: Table<u32>,
    pub(crate) timers: Timers,
    /// Groups with settings.
    pub(crate) with_settings: u64,
    /// Detached queues whose groups have settings although the log says that they have none: one for each bulk operation at most.
    pub(crate) to_clear: Vec<u32>,
    /// Groups that linger.
    pub(crate) lingering: u64,
    /// Groups that would have lingered, and were forgotten since too many did.
    pub(crate) forgotten_early: u64,
}

fn hash(key: HashKey, groups: &Slab<Group>, group: u32) -> u64 {
    key.in_queue(groups[group].queue, &groups[group].name)
}

impl Groups {
    /// No groups.
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            key,
            slab: Slab::new(),
            by_name: Table::default(),
            timers: Timers::default(),
            with_settings: 0,
            to_clear: Vec::new(),
            lingering: 0,
            forgotten_early: 0,
        }
    }

    /// The index of a group that is known.
    pub(crate) fn find(&self, queue: u32, name: &str) -> Option<u32> {
        let same =
            |&group: &u32| self.slab[group].queue == queue && *self.slab[group].name == *name;
        self.by_name.find(self.key.in_queue(queue, name), same).copied()
    }

    /// Makes a group known, which is not.
    pub(crate) fn insert(&mut self, queue: u32, name: &str) -> u32 {
        let group = self.slab.insert(Group { name: name.into(), queue, ..Group::default() });
        let (key, slab) = (self.key, &self.slab);
        self.by_name.insert(key.in_queue(queue, name), group, |&other| hash(key, slab, other));
        group
    }

    /// A group is remembered for more than its rate, or is being forgotten.
    pub(crate) fn end_lingering(&mut self, group: u32) {
        if std::mem::take(&mut self.slab[group].lingers) {
            self.lingering -= 1;
        }
    }

    /// Forgets a group, which must be in no list or heap any more.
    pub(crate) fn remove(&mut self, group: u32) {
        self.end_lingering(group);
        let (key, slab) = (self.key, &self.slab);
        let hash_of = |&other: &u32| hash(key, slab, other);
        self.by_name.remove(hash_of(&group), |&other| other == group, hash_of);
        let about = self.slab.remove(group);
        assert!(about.is_idle() && about.timer == NONE, "a group that goes leaves nothing behind");
    }

    /// The indices of all groups.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        (0..self.slab.end()).filter(|&group| self.slab.peek(group).queue != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::id::Chance;

    /// Guards against an order within a group that depends on how a job came to wait.
    #[test]
    fn order_within_a_group_is_that_of_a_sort() {
        for seed in 0..200 {
            let mut chance = Chance::new(seed);
            let mut jobs = Slab::new();
            let mut lane = Lane::default();
            let mut model: Vec<u32> = Vec::new();
            for _ in 0..300 {
                let dice = chance.draw();
                if dice.is_multiple_of(3) && !model.is_empty() {
                    let gone = model.swap_remove(dice as usize / 3 % model.len());
                    lane.remove(&mut jobs, gone);
                } else {
                    let index = jobs.insert(Job {
                        id: JobId(u128::from(chance.draw() % 10_000)),
                        priority: (chance.draw() % 3) as i32,
                        ..Job::default()
                    });
                    lane.insert(&mut jobs, index);
                    model.push(index);
                }
            }
            model.sort_by_key(|&index| InGroup::rank(&jobs[index]));
            for index in model {
                let first = lane.first(&jobs).map(|first| InGroup::rank(&jobs[first]));
                assert_eq!(first, Some(InGroup::rank(&jobs[index])));
                if let Some(first) = lane.first(&jobs) {
                    lane.remove(&mut jobs, first);
                }
            }
            assert!(lane.is_empty());
        }
    }

    #[test]
    fn a_span_begins_with_its_first_job_and_is_over_when_it_says() {
        let rate = GroupRate { jobs: 2, span_ms: 100 };
        let mut window = Window::default();
        assert_eq!((window.full_until_ms(rate), window.left_ms(5, rate)), (None, None));
        window.note(1000, rate);
        assert_eq!((window.full_until_ms(rate), window.left_ms(1030, rate)), (None, Some(70)));
        window.note(1050, rate);
        assert_eq!(window.full_until_ms(rate), Some(1100));
        window.end(1099, rate);
        assert_eq!(window.full_until_ms(rate), Some(1100));
        window.end(1100, rate);
        assert_eq!((window.full_until_ms(rate), window.left_ms(1100, rate)), (None, None));
    }
}
