//! Counts the needs of the log anew: the part of the audit of the state that is about compaction.

use crate::compaction::live_bytes::{Live, bytes_of};
use crate::compaction::rewrite::evicted_bytes;
use crate::dead_letter::policy::Rules;
use crate::job::failures::Remembered;
use crate::job::flags;
use crate::queue::rate_limit::Limits;
use crate::shard::Shard;

impl Shard {
    /// Recounts what is needed, and says what does not agree.
    pub(crate) fn audit_needed(&self) -> Result<(), String> {
        let mut counted = Live::new(self.config.span_bits);
        let mut sharing = 0;
        for job in self.jobs.indices() {
            counted.add(&self.jobs.slab[job].stored);
            sharing += u64::from(self.jobs.slab[job].has(flags::SHARED));
            if let Some(outcome) = self.jobs.outcome_of(job) {
                counted.add(&outcome.stored);
            }
            let notes = self.jobs.options_of(job).and_then(|has| has.notes.as_deref());
            notes.iter().flat_map(|notes| notes.texts()).for_each(|text| counted.add(text));
            self.jobs.failures_of(job).iter().for_each(|stored| counted.add(stored));
            let family = self.jobs.options_of(job).and_then(|has| has.family.as_deref());
            family
                .iter()
                .flat_map(|family| family.ends.values())
                .for_each(|end| counted.add(&end.stored));
        }
        self.orphaned.iter().for_each(|end| counted.add(&end.stored));
        self.unreported.iter().for_each(|(_, left)| counted.add(&left.stored));
        self.flows.records().for_each(|stored| counted.add(&stored));
        self.shares.records().for_each(|shared| counted.add(&shared));
        self.crons.all().for_each(|cron| counted.add(&cron.set_in));
        self.webhooks().for_each(|webhook| counted.add(&webhook.set_in));
        let groups = self.groups.indices().filter_map(|at| self.groups.slab[at].own.as_deref());
        groups.for_each(|own| counted.add(&own.set_in));
        for queue in 0..self.queues.end() {
            let about = &self.queues[queue];
            let limits = about.limits.as_deref();
            let limits = limits.into_iter().flat_map(Limits::all_set_in);
            let rules = about.rules.as_deref();
            let rules = rules.into_iter().flat_map(Rules::all_set_in);
            let settings = about.paused.into_iter().chain(limits).chain(rules);
            settings.for_each(|stored| counted.add(&stored));
        }
        let (found, kept) =
            (counted.spans().collect::<Vec<_>>(), self.live.spans().collect::<Vec<_>>());
        if found != kept {
            return Err(format!("needed of the log, by span: {found:?}, counted as {kept:?}"));
        }
        let lines =
            self.jobs.indices().filter_map(|job| self.jobs.options_of(job)?.notes.as_deref());
        let lines: usize = lines.map(|notes| notes.logs.len()).sum();
        let failed: usize = self.jobs.indices().map(|job| self.jobs.failures_of(job).len()).sum();
        let remembered: usize = self.jobs.failures.iter().map(|(_, of_job)| of_job.len()).sum();
        if failed != remembered {
            return Err(format!("{failed} failed attempts of jobs, and {remembered} remembered"));
        }
        let of_jobs = self.jobs.indices().flat_map(|job| self.jobs.failures_of(job));
        let (bytes, all) = (of_jobs.map(bytes_of).sum(), self.jobs.failures.remembered());
        if all != (Remembered { count: failed as u64, bytes }) {
            return Err(format!("{failed} attempts of {bytes} bytes, counted as {all:?}"));
        }
        let lines = lines + failed;
        let ends =
            self.jobs.indices().filter_map(|job| self.jobs.options_of(job)?.family.as_deref());
        let ends = ends.map(|family| family.ends.len() as u64).sum::<u64>();
        let ends = ends + self.orphaned.iter().count() as u64;
        if ends != self.child_ends {
            return Err(format!("{ends} ends of children, counted as {}", self.child_ends));
        }
        if (lines as u64, counted.large()) != (self.live.lines(), self.live.large()) {
            return Err(format!(
                "{lines} lines of logs and {} bytes of large records, counted as {} and {}",
                counted.large(),
                self.live.lines(),
                self.live.large()
            ));
        }
        let ended =
            || self.jobs.indices().filter_map(|job| self.jobs.outcome_of(job).map(|it| (job, it)));
        let unmoved = ended().filter(|(_, outcome)| outcome.is_unmoved()).count() as u64;
        let unkept = ended().filter(|&(job, _)| !self.jobs.slab[job].has(flags::KEPT_ENDED));
        let unkept = unkept.count() as u64;
        if (unmoved, unkept) != (self.ends_unmoved, self.ends_unkept) {
            return Err(format!(
                "{unmoved} ends never moved and {unkept} not kept, counted as {} and {}",
                self.ends_unmoved, self.ends_unkept
            ));
        }
        let queues = (0..self.queues.end()).map(|queue| &self.queues[queue]);
        let unrecorded = queues.filter(|queue| queue.has_unrecorded_evictions());
        let unrecorded: u64 = unrecorded.map(|queue| evicted_bytes(&queue.name)).sum();
        if unrecorded != self.unrecorded_evictions {
            let counted = self.unrecorded_evictions;
            return Err(format!("{unrecorded} bytes of evictions to tell, counted as {counted}"));
        }
        if sharing != self.shares.jobs() {
            return Err(format!("{sharing} jobs share a payload, not {}", self.shares.jobs()));
        }
        Ok(())
    }
}
