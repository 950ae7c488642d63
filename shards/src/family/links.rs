//! Commands that change parents and children which exist: a job gets one more child, or waits for one less; a child
//! gets a parent, or goes as that wishes; a running job waits for its children.

use crate::collections::slab::NONE;
use crate::dependency::unmet::Dependency;
use crate::dependency::{News, Notice};
use crate::event::Step;
use crate::family::unreported::{KeptUnreported, Unreported};
use crate::family::{
    Adopted, CHILD_BYTES, CHILDREN_MAX, ChildEnded, End, FAMILY_BYTES_MAX, How, NAMED_CHILDREN_MAX,
    Policy, Report,
};
use crate::job::change::Change;
use crate::job::id::JobId;
use crate::job::new_job::NewJob;
use crate::job::{Options, State};
use crate::log_record::snapshot::Kept;
use crate::log_record::{Given, Journal, Pushed, Record};
use crate::query::{AboutParent, LOOKS_PER_STEP};
use crate::shard::{Out, Shard};
use crate::traced::Settled;

/// Rows of what a parent waits for that are moved in about the time of a step.
const MOVES_PER_STEP: u64 = 1024;

impl Shard {
    /// Carries out a change of parent or children. Returns how many jobs it was about.
    pub(crate) fn change_family<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        change: &Change<'_>,
        out: &mut Out<'_, J>,
    ) -> u64 {
        let id = self.jobs.slab[job].id;
        match *change {
            Change::Adopt { child, name } => {
                // Asked before, but others may have come meanwhile.
                let Some(about) = self.about_parent(id, name) else { return 0 };
                if about.declared || !about.linkable {
                    return u64::from(about.declared);
                }
                let before = self.jobs.slab[job].state;
                let waits = before != State::Active;
                let adopted = Adopted { parent: id, child, name, waits };
                out.journal.append(&Record::Adopted(adopted));
                self.adopt(job, &adopted);
                if waits && before != State::WaitingChildren {
                    self.emit(now_ms, job, Step::WaitingChildren, out.effects);
                }
                let news = News::WatchChild { since_ms: self.retried_at_ms(job) };
                self.notices.push(Notice { news, dependent: id, dependency: child });
                1
            }
            Change::LetGo { child, name } => {
                if self.waits_for(id, child).is_none() {
                    return 0;
                }
                self.count_looks_at_children(job);
                self.drop_child(now_ms, job, (child, name), How::Detached, out);
                let news = News::UnwatchChild;
                self.notices.push(Notice { news, dependent: id, dependency: child });
                1
            }
            Change::Link { job: new, parent } => {
                self.link(job, new, parent, out);
                1
            }
            Change::Abandon => u64::from(self.abandon(now_ms, job, out)),
            Change::Block { .. } => {
                let open = self.jobs.options_of(job).is_some_and(|has| !has.unmet.is_empty());
                if open {
                    self.renew_ttl(now_ms, job, out);
                    out.journal.append(&Record::Blocked { id });
                    self.trace_settled(now_ms, job, || Settled::GivenBack, out.effects);
                    self.block(job);
                    self.emit(now_ms, job, Step::WaitingChildren, out.effects);
                }
                u64::from(open)
            }
            _ => 0,
        }
    }

    /// The names of all children of a job are gone through, and what it waits for.
    fn count_looks_at_children(&mut self, job: u32) {
        let options = self.jobs.options_of(job);
        let names = options
            .map_or(0, |has| has.family.as_deref().map_or(0, |family| family.children.len()));
        self.steps +=
            (names as u64 + options.map_or(0, |has| has.unmet.rows() as u64)) / LOOKS_PER_STEP;
    }

    /// A parent knows of a child less, and may go on.
    pub(crate) fn drop_child<J: Journal>(
        &mut self,
        at_ms: u64,
        job: u32,
        (child, known_as): (JobId, &str),
        how: How,
        out: &mut Out<'_, J>,
    ) {
        let (parent, before) = (self.jobs.slab[job].id, self.jobs.slab[job].state);
        let ended = ChildEnded { parent, child, at_ms, how, queue: "", known_as, value: &[] };
        self.record_child_end(job, &ended, out);
        self.emit_rest_of_delay(at_ms, job, before, out.effects);
    }

    /// Applies [`Record::Adopted`].
    pub(crate) fn adopt(&mut self, job: u32, adopted: &Adopted<'_>) {
        let state = self.jobs.slab[job].state;
        if state.is_end() {
            return;
        }
        if self.jobs.slab[job].options == NONE {
            self.jobs.slab[job].options = self.jobs.options.insert(Options::default());
        }
        let options = self.jobs.slab[job].options;
        let options = &mut self.jobs.options[options];
        let family = options.family.get_or_insert_default();
        let name = (family.children.len() < NAMED_CHILDREN_MAX).then(|| adopted.name.into());
        let moved = options.unmet.add(Dependency { id: adopted.child, name, child: true });
        family.children.push(adopted.name);
        family.freed = !adopted.waits;
        self.steps += moved as u64 / MOVES_PER_STEP;
        if adopted.waits && matches!(state, State::Waiting | State::Delayed) {
            self.leave(job);
            self.enter(job, State::WaitingChildren);
        }
    }

    /// Applies [`Record::Blocked`].
    pub(crate) fn block(&mut self, job: u32) {
        let Some(family) = self.jobs.options_of_mut(job).and_then(|has| has.family.as_deref_mut())
        else {
            return;
        };
        family.freed = false;
        if self.jobs.slab[job].state.is_end() {
            // The record that it runs again follows.
            return;
        }
        self.leave(job);
        let state = if self.is_blocked(job) { State::WaitingChildren } else { State::Waiting };
        self.enter(job, state);
    }

    /// All of the child is written, as for another payload: one record still tells all of a job.
    fn link<J: Journal>(
        &mut self,
        job: u32,
        new: &NewJob<'_>,
        parent: Option<&str>,
        out: &mut Out<'_, J>,
    ) {
        if self.jobs.slab[job].options == NONE {
            self.jobs.slab[job].options = self.jobs.options.insert(Options::default());
        }
        let about = &self.jobs.slab[job];
        let (id, run_at_ms) = (about.id, about.run_at_ms);
        let family = self.jobs.options[about.options].family.get_or_insert_default();
        family.parent = parent.map(Into::into);
        let queue = self.queues[self.jobs.slab[job].queue].name.clone();
        let linked = Pushed { id, queue: &queue, run_at_ms, job: Given::Lent(new) };
        self.unshare(job);
        let stored = self.write_job(job, linked, out.journal);
        self.restore_at(job, stored);
    }

    /// Removes a job that has not begun, so that its parent does not mind: what it leaves says so, until the
    /// parent has heard.
    fn abandon<J: Journal>(&mut self, now_ms: u64, job: u32, out: &mut Out<'_, J>) -> bool {
        let about = &self.jobs.slab[job];
        let (child, queue, prev) = (about.id, about.queue, about.state);
        if !matches!(prev, State::Waiting | State::Delayed | State::WaitingChildren) {
            return false;
        }
        let queue = self.queues[queue].name.clone();
        let options = self.jobs.options_of(job);
        let custom_id = options.and_then(|has| has.custom_id.as_deref());
        let end = End::Failed(Policy::Remove);
        let left = KeptUnreported { child, queue: &queue, custom_id, end, value: &[] };
        let stored = out.journal.append(&Record::Kept(Kept::Unreported(left)));
        let unreported = left.unreported(stored);
        let Unreported { known_as, queue, .. } = &unreported;
        if let Some(parent) = self.end_for_parents(job, child) {
            let (known_as, queue) = (known_as.clone(), queue.clone());
            let is_last = true;
            self.reports.push(Report { parent, child, known_as, queue, end, stored, is_last });
        }
        self.emit(now_ms, job, Step::Removed { prev }, out.effects);
        self.trace_settled(now_ms, job, || Settled::Removed, out.effects);
        self.take_unreported(child, unreported);
        true
    }

    /// Describes a job as the parent of one whose name is `child`.
    pub fn about_parent(&mut self, job: JobId, child: &str) -> Option<AboutParent> {
        let job = self.jobs.find(job)?;
        self.count_looks_at_children(job);
        let about = &self.jobs.slab[job];
        let family = self.jobs.options_of(job).and_then(|has| has.family.as_deref());
        let children = family.map(|family| &family.children);
        let count = children.map_or(0, crate::family::Names::len) + 1;
        // In the list of children, in that of those that are waited for, and as one that has ended.
        let more = 2 * child.len() + CHILD_BYTES;
        let fits = self
            .data_bytes_max(job)
            .is_some_and(|most| self.data_of(job).payload_bytes as usize + more <= most);
        Some(AboutParent {
            queue: (&*self.queues[about.queue].name).into(),
            known_as: self.known_as(job).to_string().into(),
            parent: family.and_then(|family| family.parent.clone()),
            declared: children.is_some_and(|names| names.has(child)),
            linkable: !about.state.is_end() && count <= CHILDREN_MAX && fits,
        })
    }

    /// The longest payload that a job can have beside its children; none if they leave no room for any.
    pub fn data_bytes_max(&self, job: u32) -> Option<usize> {
        let options = self.jobs.options_of(job);
        let family = options.and_then(|has| Some((has.family.as_deref()?, &has.unmet)));
        FAMILY_BYTES_MAX.checked_sub(family.map_or(0, |(family, unmet)| family.bytes_max(unmet)))
    }
}
