//! The end of a child, from its own shard to its parent: reported at once, written down there with its
//! value, and held back here until that is so if nothing else is left of the child.

use crate::collections::count::Count;
use crate::dead_letter::reason::Cause;
use crate::dependency::{News, Notice};
use crate::effect::KnownAs;
use crate::family::unreported::Unreported;
use crate::family::{ChildEnd, ChildEnded, ChildEnds, End, How, Policy, Report, Reported};
use crate::job::id::JobId;
use crate::job::{State, flags};
use crate::lease::ack::Reason;
use crate::log_record::location::LogRef;
use crate::log_record::{Journal, Record};
use crate::shard::{Out, Shard};

/// Stands for the text of an error that has none.
const UNKNOWN_ERROR: &str = "unknown error";

/// Rows of what a job waits for that are gone through in about the time of a step.
const ROWS_PER_STEP: u64 = 1024;

/// Most that a parent says of the child that it fails with.
const CHILD_ERROR_BYTES_MAX: usize = 2048;

impl Shard {
    /// Whether a job was made for another one, which is to know its end.
    #[inline]
    fn is_child(&self, job: u32) -> bool {
        let family = self.jobs.options_of(job).and_then(|has| has.family.as_deref());
        family.is_some_and(|family| family.parent.is_some())
    }

    /// The effect of a job's failure on its parent, if its push named one.
    pub(crate) fn policy_of(&self, job: u32) -> Option<Policy> {
        self.jobs.options_of(job)?.family.as_deref()?.policy
    }

    /// Lets go of the ends of a job's children when the job goes; of many in slices.
    pub(crate) fn forget_ends(&mut self, mut ends: ChildEnds) {
        if !self.recovering && ends.len() as u64 > self.config.bulk_slice {
            self.orphaned.push(ends);
            return;
        }
        while let Some(end) = ends.pop() {
            self.forget_end(&end);
        }
    }

    fn forget_end(&mut self, end: &ChildEnd) {
        self.child_ends.take_out(1);
        self.live.sub(&end.stored);
    }

    /// A slice of what was known of the children of jobs that are gone.
    pub(crate) fn forget_orphaned(&mut self) {
        for _ in 0..self.config.bulk_slice {
            let Some(end) = self.orphaned.pop() else { return };
            self.steps += 1;
            self.forget_end(&end);
        }
    }

    /// A job comes to an end that its parent has to know of: the payload of `stored` is the value. `goes`:
    /// it is forgotten with its end.
    #[inline]
    pub(crate) fn report_end(&mut self, job: u32, end: End, goes: bool, stored: LogRef) {
        if self.jobs.slab[job].has(flags::WATCHED) || self.is_child(job) {
            self.report_end_of_child(job, end, goes, stored);
        }
    }

    #[cold]
    fn report_end_of_child(&mut self, job: u32, end: End, goes: bool, stored: LogRef) {
        let about = &self.jobs.slab[job];
        let (child, queue) = (about.id, about.queue);
        let known_as = self.known_as(job);
        let queue: Box<str> = (&*self.queues[queue].name).into();
        let parent = self.end_for_parents(job, child);
        // The other parents hear of it when it may be gone.
        let is_last = goes && (self.is_child(job) || self.watchers.tells_of(child));
        if let Some(parent) = parent {
            let (known_as, queue) = (known_as.clone(), queue.clone());
            self.reports.push(Report { parent, child, known_as, queue, end, stored, is_last });
        }
        if is_last {
            self.leave_unreported(child, Unreported { queue, known_as, end, stored });
        }
    }

    /// Ends the waits for a job as for a child. Returns the first of them: a child mostly has one parent, which learns
    /// of the end at once; others learn of it in slices.
    pub(crate) fn end_for_parents(&mut self, job: u32, child: JobId) -> Option<JobId> {
        if !self.jobs.slab[job].has(flags::WATCHED) {
            return None;
        }
        let (parent, unwatched) = self.watchers.end_child(child);
        if unwatched {
            self.jobs.slab[job].flags &= !flags::WATCHED;
        }
        parent
    }

    /// A parent waits for a child; if it runs again since `since_ms`, a failure before that is no news.
    pub(crate) fn watch_child(&mut self, parent: JobId, child: JobId, since_ms: u64) {
        let Some(job) = self.jobs.find(child) else {
            if let Some(unreported) = self.unreported.get(child) {
                let Unreported { queue, known_as, end, stored } = unreported.clone();
                let is_last = true;
                self.reports.push(Report { parent, child, known_as, queue, end, stored, is_last });
            } else {
                let completed = self.completed_ids.has(child);
                let news = if completed { News::Completed } else { News::Removed };
                self.notices.push(Notice { news, dependent: parent, dependency: child });
            }
            return;
        };
        let ended_at_ms = self.jobs.outcome_of(job).map_or(0, |how| how.finished_at_ms);
        let end = match (self.jobs.slab[job].state, self.policy_of(job)) {
            (State::Completed, _) => End::Completed,
            (State::Failed, Some(policy)) if policy != Policy::Fail || ended_at_ms > since_ms => {
                End::Failed(policy)
            }
            _ => {
                self.jobs.slab[job].flags |= flags::WATCHED;
                self.watchers.add(parent, child, true);
                return;
            }
        };
        let stored = self.jobs.outcome_of(job).map_or_else(LogRef::default, |how| how.stored);
        let (known_as, is_last) = (self.known_as(job), false);
        let queue = (&*self.queues[self.jobs.slab[job].queue].name).into();
        self.reports.push(Report { parent, child, known_as, queue, end, stored, is_last });
    }

    /// The shard of a child tells how that ended.
    pub(crate) fn take_report<J: Journal>(
        &mut self,
        now_ms: u64,
        reported: &Reported<'_>,
        out: &mut Out<'_, J>,
    ) {
        let Reported { parent, child, is_last, .. } = *reported;
        self.release_heard(now_ms, parent, out);
        if let Some(job) = self.waits_for(parent, child) {
            self.note_report(now_ms, job, reported, out);
        }
        if is_last {
            // Twice does no harm, and a parent that is gone waits for nothing.
            let news = News::UnwatchChild;
            self.notices.push(Notice { news, dependent: parent, dependency: child });
        } else if reported.end == End::Failed(Policy::Fail)
            && self.waits_for(parent, child).is_some()
        {
            // Only the next end of the child is of use to a parent that has ended, since both may run again. A time of
            // this clock would be none to compare with: the clock before a start may have been ahead.
            let news = News::WatchChild { since_ms: u64::MAX };
            self.notices.push(Notice { news, dependent: parent, dependency: child });
        }
    }

    fn note_report<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        reported: &Reported<'_>,
        out: &mut Out<'_, J>,
    ) {
        let about = &self.jobs.slab[job];
        let (queue, state) = (about.queue, about.state);
        let Reported { parent, child, known_as, end, value, .. } = *reported;
        let error = std::str::from_utf8(value).unwrap_or_default();
        let error = if error.is_empty() { UNKNOWN_ERROR } else { error };
        let how = match end {
            End::Completed => How::Completed,
            // A failure of use to nobody.
            End::Failed(Policy::Fail) if state.is_end() => return,
            End::Failed(Policy::Fail) if !matches!(state, State::Active) => {
                let (attempts, stalls) = (about.attempts, about.stalls);
                let reason = failed_child(known_as, error);
                let reason = Reason::new(Cause::Unknown, &reason);
                self.bury(now_ms, job, attempts, stalls, reason, out);
                return;
            }
            End::Failed(Policy::Fail | Policy::Continue) => How::Failed,
            End::Failed(Policy::Ignore) => How::Ignored,
            End::Failed(Policy::Remove) => How::Dropped,
        };
        let value = match how {
            How::Completed => value,
            How::Failed | How::Ignored => error.as_bytes(),
            How::Dropped | How::Detached => &[],
        };
        let queue_of_child = reported.queue;
        let ended = ChildEnded {
            parent,
            child,
            at_ms: now_ms,
            how,
            queue: queue_of_child,
            known_as,
            value,
        };
        self.record_child_end(job, &ended, out);
        self.emit_rest_of_delay(now_ms, job, state, out.effects);
        self.serve(now_ms, queue, out);
    }

    /// Writes down how a child ended.
    pub(crate) fn record_child_end<J: Journal>(
        &mut self,
        job: u32,
        ended: &ChildEnded<'_>,
        out: &mut Out<'_, J>,
    ) {
        let stored = out.journal.append(&Record::ChildEnded(*ended));
        self.end_child(job, ended, stored);
    }

    /// Applies [`Record::ChildEnded`].
    pub(crate) fn end_child(&mut self, job: u32, ended: &ChildEnded<'_>, stored: LogRef) {
        let ChildEnded { child, how, at_ms, .. } = *ended;
        let Some(options) = self.jobs.options_of_mut(job) else { return };
        let family = options.family.get_or_insert_default();
        if how == How::Detached {
            family.children.remove(ended.known_as);
        } else if how != How::Dropped {
            family.ends.insert(ChildEnd { child, how, stored });
            self.child_ends += 1;
            self.live.add(&stored);
        }
        let waits = self.jobs.slab[job].state == State::WaitingChildren;
        if how == How::Failed && waits {
            self.free(job, at_ms);
        }
        self.meet(job, child, at_ms);
    }

    /// A job that waits for others goes on, whatever those do.
    fn free(&mut self, job: u32, at_ms: u64) {
        self.jobs.slab[job].run_at_ms = self.jobs.slab[job].run_at_ms.min(at_ms);
        self.keep_open_children(job);
    }

    /// A job does not wait any more, for whatever reason. How its children end that are still open is kept for it, and if it
    /// runs again it waits for those; what it depends on besides is of no use to it.
    #[inline]
    pub(crate) fn keep_open_children(&mut self, job: u32) {
        if self.jobs.options_of(job).is_some_and(|has| !has.unmet.is_empty()) {
            self.unwatch_others(job);
        }
    }

    #[cold]
    fn unwatch_others(&mut self, job: u32) {
        let (dependent, recovering) = (self.jobs.slab[job].id, self.recovering);
        let Some(options) = self.jobs.options_of_mut(job) else { return };
        let rows = options.unmet.rows() as u64;
        let others = options.unmet.meet_others();
        if !options.unmet.is_empty() {
            options.family.get_or_insert_default().freed = true;
        }
        if !recovering {
            self.notices.unwatch_some(dependent, others);
        }
        self.steps += rows / ROWS_PER_STEP;
    }

    /// A job that has ended runs again: whether it waits for children first. In logs of earlier releases it does not,
    /// and no record there has told it to.
    pub(crate) fn wait_for_open_children(&mut self, job: u32, at_ms: u64) -> bool {
        let waits = self.is_blocked(job);
        if !waits {
            self.unwatch_dependencies(job);
        }
        if let Some(family) =
            self.jobs.options_of_mut(job).and_then(|has| has.family.as_deref_mut())
        {
            family.freed = false;
            family.retried_at_ms = if waits { at_ms } else { 0 };
        }
        waits
    }

    /// Since when a job runs again and waits for its children anew; 0 if it does not.
    pub(crate) fn retried_at_ms(&self, job: u32) -> u64 {
        let family = self.jobs.options_of(job).and_then(|has| has.family.as_deref());
        family.map_or(0, |family| family.retried_at_ms)
    }

    /// A child that has just ended may leave remains: those are written by themselves, since the record of
    /// its end means nothing without that of its push, which nobody needs any more.
    #[inline]
    pub(crate) fn write_unreported<J: Journal>(
        &mut self,
        child: JobId,
        value: &[u8],
        out: &mut Out<'_, J>,
    ) {
        if !self.unreported.is_empty() && self.unreported.get(child).is_some() {
            self.keep_unreported(child, value, out.journal);
        }
    }

    /// Forgets the remembered end of a child once its parent has it, or does not want it.
    pub(crate) fn settle_unreported<J: Journal>(&mut self, child: JobId, out: &mut Out<'_, J>) {
        // Parents that are not notified yet need it as well; the last of them settles it.
        if self.unreported.get(child).is_some() && !self.watchers.tells_of(child) {
            out.journal.append(&Record::Settled { child });
            self.drop_unreported(child);
        }
    }

    /// [`crate::log_record::snapshot::Kept::Unreported`]. A job that is still there goes with it.
    /// The queue of a removed child whose result is kept for its parent.
    pub fn queue_of_unreported(&self, child: JobId) -> Option<&str> {
        self.unreported.get(child).map(|unreported| &*unreported.queue)
    }

    pub(crate) fn take_unreported(&mut self, child: JobId, unreported: Unreported) {
        self.drop_unreported(child);
        if let KnownAs::Custom(name) = &unreported.known_as {
            // A parent that comes late may name the child.
            self.completed_ids.names.note(name.clone(), child, unreported.stored.position);
        }
        self.leave_unreported(child, unreported);
        if let Some(job) = self.jobs.find(child) {
            self.remove(job);
        }
    }

    pub(crate) fn leave_unreported(&mut self, child: JobId, unreported: Unreported) {
        self.live.add(&unreported.stored);
        for gone in self.unreported.insert(child, unreported) {
            self.live.sub(&gone.stored);
        }
    }

    /// Applies [`Record::Settled`].
    pub(crate) fn drop_unreported(&mut self, child: JobId) {
        if let Some(unreported) = self.unreported.remove(child) {
            self.live.sub(&unreported.stored);
        }
    }
}

/// Why a parent fails with its child. Cut, so that a long line of parents does not add up what all of them say:
/// the child has the whole text.
fn failed_child(known_as: &str, error: &str) -> String {
    let mut reason = format!("Child job {known_as} failed: {error}");
    reason.truncate(reason.floor_char_boundary(CHILD_ERROR_BYTES_MAX));
    reason
}

impl std::fmt::Display for KnownAs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Custom(name) => f.write_str(name),
        }
    }
}
