//! Obliterate: a queue is empty and without settings at once for clients, and its jobs, pulls and groups go in slices.

use super::Work;
use crate::effect::Reply;
use crate::event::Extra;
use crate::job::id::JobId;
use crate::log_record::{Journal, Record};
use crate::shard::{Caller, Out, Shard};

impl Shard {
    /// The name changes hands at once: what was in the queue stays behind in a detached one, which
    /// nobody can pull from or push to, and goes in slices. So do the pulls that wait there, and what is set for many groups.
    pub(crate) fn obliterate<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        name: &str,
        out: &mut Out<'_, J>,
    ) {
        if self.refuses_bulk(caller, out) {
            return;
        }
        let known = self.queues.find(name);
        if let Some(queue) = known {
            self.note_evicted(queue, out.journal);
            self.clear_settings(queue, out);
            self.emit_extra_of_queue(now_ms, name, Extra::Obliterated, out.effects);
        }
        let stays = |queue: &u32| {
            let queue = &self.queues[*queue];
            queue.total() > 0 || queue.groups_with_settings() > 0
        };
        let Some(old) = known.filter(stays) else {
            out.effects.replies.push((caller.request, Reply::Done));
            return;
        };
        self.queues.detach(old);
        if self.queues[old].groups_with_settings() > 0 {
            self.groups.to_clear.push(old);
        }
        self.move_waiters(old);
        self.begin_bulk(now_ms, caller, old, Work::Empty, out);
    }

    /// Removes those of some jobs that an obliterate has yet to reach, since their names are wanted: to
    /// clients their queue has been empty for a while.
    pub(crate) fn give_back_names<J: Journal>(
        &mut self,
        now_ms: u64,
        jobs: &[JobId],
        out: &mut Out<'_, J>,
    ) {
        for &id in jobs {
            if self.is_obliterated(id)
                && let Some(job) = self.jobs.find(id)
            {
                self.remove_one(now_ms, job, out);
            }
        }
    }

    /// Whether a job is there only because an obliterate has yet to reach it.
    pub fn is_obliterated(&self, id: JobId) -> bool {
        let job = self.jobs.find(id);
        job.is_some_and(|job| self.queues[self.jobs.slab[job].queue].detached)
    }

    fn clear_settings<J: Journal>(&mut self, queue: u32, out: &mut Out<'_, J>) {
        let name = self.queues[queue].name.clone();
        if self.queues[queue].is_paused() {
            let stored = out.journal.append(&Record::Paused { queue: &name, paused: false });
            self.set_paused(&name, false, stored);
        }
        self.clear_limits(&name, out);
        let groups = self.queues[queue].groups_with_settings();
        if groups > 0 {
            out.journal.append(&Record::GroupsCleared { queue: &name });
        }
        if groups <= self.config.bulk_slice {
            self.clear_groups(&name);
        }
        self.clear_rules(&name, out);
    }
}
