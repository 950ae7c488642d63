//! Jobs that wait for jobs, on whatever shard those are. The dependent keeps what is still unmet, and
//! records what is met; the shard of the dependency keeps who watches it, and derives that anew after
//! a start, when every dependent asks again. What passes between them are [`Notice`]s: each may come
//! twice or late without harm.
//!
//! Where a job is found, and how its name becomes an id, is not known here.
//!
//! | file | responsibility |
//! |---|---|
//! | `await_end` | clients that wait for the end of a job |
//! | `completed_ids` | the newest ids of jobs that completed and went |
//! | `completed_names` | their custom ids |
//! | `custom_ids` | custom ids to jobs, on the shard that owns the name |
//! | `news` | what the shards of other jobs have yet to learn |
//! | `unmet` | dependencies that a job still waits for |
//! | `watchers` | which jobs wait for a job |

pub(crate) mod await_end;
pub(crate) mod completed_ids;
pub(crate) mod completed_names;
pub mod custom_ids;
pub(crate) mod news;
pub mod unmet;
pub(crate) mod watchers;

pub use completed_names::COMPLETED_NAMES_MAX;

use crate::dead_letter::reason::Cause;
use crate::dependency::unmet::Dependency;
use crate::dependency::watchers::Fate;
use crate::effect::Effects;
use crate::family::{End, How};
use crate::job::id::JobId;
use crate::job::{State, flags};
use crate::lease::ack::Reason;
use crate::log_record::codec::{Malformed, Reader};
use crate::log_record::{Journal, Record};
use crate::shard::{Out, Shard};

/// News from one shard to another about a job and one that depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The change, and which of the two shards it is for.
    pub news: News,
    /// The job that waits.
    pub dependent: JobId,
    /// The job it waits for.
    pub dependency: JobId,
}

/// The news of a [`Notice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// To the shard of the dependency: the dependent waits for it.
    Watch,
    /// To the shard of a child: its parent waits for it.
    WatchChild {
        /// The parent runs again since then, or 0: a failure before that does not fail it once more.
        since_ms: u64,
    },
    /// To the shard of the dependency: the dependent waits no longer.
    Unwatch,
    /// To the shard of a child: the same for its parent, which needs nothing of what it has left.
    UnwatchChild,
    /// To the shard of the dependent: the dependency was completed.
    Completed,
    /// To the shard of the dependent: the dependency is gone and will never complete.
    Removed,
}

impl Notice {
    /// The job whose shard has to know.
    pub fn addressee(&self) -> JobId {
        match self.news {
            News::Watch | News::WatchChild { .. } | News::Unwatch | News::UnwatchChild => {
                self.dependency
            }
            News::Completed | News::Removed => self.dependent,
        }
    }
}

/// How a job looks to one that wants to depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// No such job, or none that is remembered.
    Unknown,
    /// Done, so there is nothing to wait for.
    Completed,
    /// The job can still be completed, from the dead-letter queue, too.
    Open,
}

/// The unmet dependencies of a job that is pushed, as bytes.
#[derive(Clone, Copy, Default)]
pub struct Unmet<'a>(&'a [u8]);

impl<'a> Unmet<'a> {
    /// Views entries written by [`Unmet::push`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Bytes of a dependency beside its name.
    pub(crate) const HEAD: usize = 16 + 2;

    /// Adds a dependency to a buffer of them. `name` is empty if it was given by its id.
    pub fn push(bytes: &mut Vec<u8>, id: JobId, name: &str) {
        bytes.extend_from_slice(&id.0.to_le_bytes());
        // Names are checked where they come in; a longer one would only be cut in an error text.
        let name = &name[..name.floor_char_boundary(usize::from(u16::MAX))];
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }

    /// Checks bytes read back from a record.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Reader::new(bytes);
        while !rest.is_empty() {
            rest.id()?;
            rest.text()?;
        }
        Ok(Self(bytes))
    }

    /// The entries as bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The entries. Bytes that are none end them early.
    pub fn iter(self) -> impl Iterator<Item = (JobId, &'a str)> {
        let mut rest = Reader::new(self.0);
        std::iter::from_fn(move || Some((rest.id().ok()?, rest.text().ok()?)))
    }
}

impl std::fmt::Debug for Unmet<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Shard {
    /// How a job of this shard looks to one that wants to depend on it.
    pub fn standing(&mut self, id: JobId) -> Standing {
        match self.jobs.find(id).map(|job| self.jobs.slab[job].state) {
            Some(State::Completed) => Standing::Completed,
            Some(_) if self.is_obliterated(id) => Standing::Unknown,
            Some(_) => Standing::Open,
            None if self.completed_ids.has(id) => Standing::Completed,
            None => match self.unreported.get(id).map(|left| left.end) {
                Some(End::Completed) => Standing::Completed,
                // A failed child that was forgotten counts as open until its parent has learnt of the failure.
                Some(End::Failed(_)) => Standing::Open,
                None => Standing::Unknown,
            },
        }
    }

    /// Notices for the other shards after recovery: one for each job that a job here waits for.
    pub fn watches_to_renew(&self) -> impl Iterator<Item = Notice> {
        self.jobs.indices().flat_map(|job| {
            let dependent = self.jobs.slab[job].id;
            let unmet = self.jobs.options_of(job).into_iter().flat_map(|has| has.unmet.iter());
            let retried_at_ms = self.retried_at_ms(job);
            unmet.map(move |one| {
                let news = watch(one, retried_at_ms);
                Notice { news, dependent, dependency: one.id }
            })
        })
    }

    /// Hands out what others have to learn, in order, as much of it as there is room for until the next step of time:
    /// one command may be news to any number of jobs, and what those are told of may be news to others.
    pub(crate) fn give_notices(&mut self, effects: &mut Effects) {
        self.give_own_notices(effects);
        while self.allowance.tells > 0
            && let Some((dependent, dependency, fate)) = self.watchers.next_notice()
        {
            self.allowance.tells -= 1;
            self.steps += 1;
            let news = match fate {
                Fate::Completed => News::Completed,
                Fate::Removed => News::Removed,
                Fate::ChildEnded => {
                    self.watch_child(dependent, dependency, 0);
                    continue;
                }
            };
            effects.notices.push(Notice { news, dependent, dependency });
        }
        self.give_own_notices(effects);
        effects.reports.append(&mut self.reports);
    }

    fn give_own_notices(&mut self, effects: &mut Effects) {
        let jobs = &self.jobs;
        while self.allowance.news > 0
            && let Some(notice) = self.notices.pop(|dependent, place| {
                let options = jobs.options_of(jobs.find(dependent)?)?;
                let retried_at_ms = options.family.as_deref().map_or(0, |has| has.retried_at_ms);
                let (place, one) = options.unmet.behind(place)?;
                Some((place, one.id, watch(one, retried_at_ms)))
            })
        {
            self.allowance.news -= 1;
            self.steps += 1;
            effects.notices.push(notice);
        }
    }

    /// Notices that jobs which have come or gone here are still to be the reason of. A command may leave any number of
    /// them; while there are many, no other should be begun.
    #[inline]
    pub fn notices_waiting(&self) -> u64 {
        self.notices.waiting()
    }

    /// Whether there is more to be handed out.
    pub(crate) fn has_news(&self) -> bool {
        !self.notices.is_empty() || self.watchers.has_news()
    }

    pub(crate) fn take_notice<J: Journal>(
        &mut self,
        now_ms: u64,
        notice: Notice,
        out: &mut Out<'_, J>,
    ) {
        let Notice { news, dependent, dependency } = notice;
        self.steps += 1;
        self.release_heard(now_ms, notice.addressee(), out);
        match news {
            News::Watch => self.watch(dependent, dependency),
            News::WatchChild { since_ms } => self.watch_child(dependent, dependency, since_ms),
            News::Unwatch | News::UnwatchChild => {
                if self.watchers.remove(dependent, dependency)
                    && let Some(job) = self.jobs.find(dependency)
                {
                    self.jobs.slab[job].flags &= !flags::WATCHED;
                }
                if news == News::UnwatchChild {
                    self.settle_unreported(dependency, out);
                }
            }
            News::Completed => {
                let Some(job) = self.waits_for(dependent, dependency) else { return };
                let (queue, before) = (self.jobs.slab[job].queue, self.jobs.slab[job].state);
                out.journal.append(&Record::Met { id: dependent, dependency, at_ms: now_ms });
                self.meet(job, dependency, now_ms);
                self.emit_rest_of_delay(now_ms, job, before, out.effects);
                self.serve(now_ms, queue, out);
            }
            News::Removed => {
                let Some(job) = self.waits_for(dependent, dependency) else { return };
                // Who runs a parent again does so without those of its children that are gone.
                if self.jobs.slab[job].state != State::WaitingChildren
                    || self.retried_at_ms(job) > 0
                {
                    let queue = self.jobs.slab[job].queue;
                    self.drop_child(now_ms, job, (dependency, ""), How::Dropped, out);
                    self.serve(now_ms, queue, out);
                    return;
                }
                let found = self.jobs.options_of(job).and_then(|has| has.unmet.find(dependency));
                let reason = found.map(removed).unwrap_or_default();
                let (attempts, stalls) = (self.jobs.slab[job].attempts, self.jobs.slab[job].stalls);
                let reason = Reason::new(Cause::Unknown, &reason);
                self.bury(now_ms, job, attempts, stalls, reason, out);
            }
        }
    }

    fn watch(&mut self, dependent: JobId, dependency: JobId) {
        let news = match (self.standing(dependency), self.jobs.find(dependency)) {
            (Standing::Completed, _) => News::Completed,
            (Standing::Open, Some(job)) => {
                self.jobs.slab[job].flags |= flags::WATCHED;
                self.watchers.add(dependent, dependency, false);
                return;
            }
            // The remembered end of a forgotten child is for its parent only; to other dependents the child is gone.
            (Standing::Open | Standing::Unknown, _) => News::Removed,
        };
        self.notices.push(Notice { news, dependent, dependency });
    }

    /// The dependent, if it waits for this one.
    pub(crate) fn waits_for(&self, dependent: JobId, dependency: JobId) -> Option<u32> {
        let job = self.jobs.find(dependent)?;
        self.jobs.options_of(job)?.unmet.find(dependency)?;
        Some(job)
    }

    /// Whether a job has to wait for others.
    pub(crate) fn is_blocked(&self, job: u32) -> bool {
        self.jobs.options_of(job).is_some_and(|has| {
            !has.unmet.is_empty() && !has.family.as_deref().is_some_and(|family| family.freed)
        })
    }

    /// Applies [`Record::Met`].
    pub(crate) fn meet(&mut self, job: u32, dependency: JobId, at_ms: u64) {
        let Some(options) = self.jobs.options_of_mut(job) else { return };
        options.unmet.meet(dependency);
        if self.jobs.slab[job].state == State::WaitingChildren && !self.is_blocked(job) {
            self.leave(job);
            let later = self.jobs.slab[job].run_at_ms > at_ms;
            self.enter(job, if later { State::Delayed } else { State::Waiting });
        }
    }

    /// A job came: the shards of what it waits for have to know.
    pub(crate) fn watch_dependencies(&mut self, job: u32) {
        if self.recovering {
            return;
        }
        let unmet = self.jobs.options_of(job).map_or(0, |has| has.unmet.len());
        if unmet > 0 {
            self.notices.watch_all(self.jobs.slab[job].id, unmet);
        }
    }

    /// A job waits for others no longer, for whatever reason.
    #[inline]
    pub(crate) fn unwatch_dependencies(&mut self, job: u32) {
        if self.jobs.options_of(job).is_some_and(|has| !has.unmet.is_empty()) {
            self.unwatch_all(job);
        }
    }

    #[cold]
    fn unwatch_all(&mut self, job: u32) {
        let (dependent, recovering) = (self.jobs.slab[job].id, self.recovering);
        let Some(options) = self.jobs.options_of_mut(job) else { return };
        let unmet = std::mem::take(&mut options.unmet);
        if !recovering {
            self.notices.unwatch_all(dependent, unmet);
        }
    }

    /// A job is completed or goes for good: those that wait for it learn it.
    pub(crate) fn notify_watchers(&mut self, job: u32, completed: bool) {
        let about = &mut self.jobs.slab[job];
        if about.has(flags::WATCHED) {
            about.flags &= !flags::WATCHED;
            let id = about.id;
            self.watchers.end(id, completed);
        }
    }
}

/// How the shard of a dependency learns that a job waits for it.
fn watch(dependency: &Dependency, retried_at_ms: u64) -> News {
    if dependency.child { News::WatchChild { since_ms: retried_at_ms } } else { News::Watch }
}

/// Why a job will never run.
fn removed(dependency: &Dependency) -> String {
    match &dependency.name {
        Some(name) => format!("Dependency removed: {name}"),
        None => format!("Dependency removed: {}", dependency.id),
    }
}
