//! The steps of sampled jobs, as they happen. Live commands tell; recovery does not.

use crate::dead_letter::reason::Cause;
use crate::effect::Effects;
use crate::job::State;
use crate::shard::Shard;
use crate::traced::{Back, Sampling, Settled, Traced, Tracer, What};

/// Sampled jobs of which it is remembered since when they wait, if that is not the time at which they were due. When there
/// are more, the oldest job counts as waiting since it was due.
const BACK_MAX: usize = 10_000;

impl Shard {
    /// Says of which jobs [`Effects::traced`] tells; none if there are none. Begun in the middle of a job's life, the steps of
    /// what is left of it come.
    pub fn trace(&mut self, sampling: Option<Sampling>) {
        if self.tracer.sampling != sampling {
            self.tracer = Tracer { sampling, ..Tracer::default() };
        }
    }

    /// Sampled jobs that wait since another time than that at which they were due.
    pub fn traced_back(&self) -> usize {
        self.tracer.back.len()
    }

    #[inline]
    fn is_sampled(&self, job: u32) -> bool {
        let Some(sampling) = self.tracer.sampling else { return false };
        let parent = self.jobs.trace_of(job).map(|trace| &trace.parent);
        sampling.takes(self.jobs.slab[job].id, parent)
    }

    /// A job came.
    #[inline]
    pub(crate) fn trace_enqueued(&mut self, at_ms: u64, job: u32, effects: &mut Effects) {
        if self.is_sampled(job) {
            let payload_bytes = self.data_of(job).payload_bytes;
            self.tell(at_ms, job, What::Enqueued { payload_bytes }, effects);
        }
    }

    /// A worker has a job. To be called when it has its lease.
    #[inline]
    pub(crate) fn trace_pulled(&mut self, at_ms: u64, job: u32, effects: &mut Effects) {
        if self.is_sampled(job) {
            let about = &self.jobs.slab[job];
            let due_ms = about.run_at_ms.max(about.id.made_at_ms());
            let back = self.back_of(job);
            let since_ms = due_ms.max(back.since_ms).min(at_ms);
            self.note_back(job, Back { since_ms: 0, ..back });
            self.tell(at_ms, job, What::Pulled { since_ms }, effects);
        }
    }

    /// The attempt of a job, or the job without one, is about to end. `how` is asked only if the job is sampled.
    #[inline]
    pub(crate) fn trace_settled(
        &mut self,
        at_ms: u64,
        job: u32,
        how: impl FnOnce() -> Settled,
        effects: &mut Effects,
    ) {
        if self.is_sampled(job) {
            let about = &self.jobs.slab[job];
            let is_active = about.state == State::Active;
            let started_at_ms = is_active.then(|| self.leases[about.detail].started_at_ms);
            let how = how();
            let since_ms = if goes_back_at_once(&how) { at_ms } else { 0 };
            let is_end = matches!(how, Settled::Completed | Settled::Removed);
            let ended_at_once = started_at_ms == Some(at_ms) && !is_end;
            self.tell(at_ms, job, What::Settled { started_at_ms, how }, effects);
            if is_active {
                let again = if ended_at_once { self.back_of(job).again + 1 } else { 0 };
                self.note_back(job, Back { since_ms, again });
            }
        }
    }

    /// A job waits from now on, unless it is due later.
    #[inline]
    pub(crate) fn trace_back(&mut self, at_ms: u64, job: u32) {
        if self.is_sampled(job) {
            let again = self.back_of(job).again;
            self.note_back(job, Back { since_ms: at_ms, again });
        }
    }

    fn back_of(&self, job: u32) -> Back {
        self.tracer.back.get(&self.jobs.slab[job].id).copied().unwrap_or_default()
    }

    fn note_back(&mut self, job: u32, back: Back) {
        let id = self.jobs.slab[job].id;
        if (back.since_ms, back.again) == (0, 0) {
            self.tracer.back.remove(&id);
            return;
        }
        self.tracer.back.insert(id, back);
        if self.tracer.back.len() > BACK_MAX {
            self.tracer.back.pop_first();
        }
    }

    #[cold]
    fn tell(&mut self, at_ms: u64, job: u32, what: What, effects: &mut Effects) {
        let about = &self.jobs.slab[job];
        let (id, queue) = (about.id, about.queue);
        let lease = (about.state == State::Active).then(|| &self.leases[about.detail]);
        let worker = lease.and_then(|lease| self.owner_of(lease)).map(Into::into);
        let again = self.back_of(job).again;
        let attempt = u32::from(about.attempts) + u32::from(!about.state.is_end());
        let options = self.jobs.options_of(job);
        let custom_id = options.and_then(|has| has.custom_id.clone());
        let trace = options.and_then(|has| has.trace.clone());
        let name = self.name_of(job).map(Into::into);
        let queue = self.tracer.share(&self.queues[queue].name);
        effects.traced.push(Traced {
            at_ms,
            queue,
            id,
            custom_id,
            name,
            trace,
            attempt,
            again,
            worker,
            what,
        });
    }
}

/// Whether an attempt that ends so leaves the time alone at which its job was due.
fn goes_back_at_once(how: &Settled) -> bool {
    match how {
        Settled::Failed { cause, terminal, .. } => *cause == Cause::Stalled && !terminal,
        Settled::GivenBack => true,
        Settled::Completed | Settled::Removed => false,
    }
}
