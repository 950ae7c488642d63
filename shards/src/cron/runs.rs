//! Schedules that are due: jobs are pushed; runs are put off, wait for room, are passed over or made up for.

use crate::cron::schedule::LATE_MS_MAX;
use crate::dedup::Met;
use crate::job::new_job::NewJob;
use crate::log_record::cron::CronRan;
use crate::log_record::{Journal, Pushed, Record};
use crate::shard::{JOB_BYTES, Out, SLICE, Shard};

/// How soon a run that waits for room is tried again.
const ROOM_WAIT_MS: u64 = 1000;

impl Shard {
    /// Runs what is due, at most a slice of it.
    pub(crate) fn run_crons<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        let Some(started_at_ms) = self.crons.started_at_ms else { return };
        self.replan_crons(now_ms, out);
        for _ in 0..SLICE {
            let Some(index) = self.crons.timers.due(now_ms) else { return };
            self.steps += 1;
            let cron = &self.crons.slab[index];
            let waited = cron.put_off;
            let due_ms = cron.next_run_ms;
            // A run that waited for its turn or for room is not late.
            let late = due_ms < started_at_ms || !waited && due_ms + LATE_MS_MAX < now_ms;
            let has_worker = || {
                let queue = self.queues.lookup(&cron.queue);
                queue.is_some_and(|queue| self.has_worker(now_ms, queue))
            };
            let attended = !cron.rules.skip_if_no_worker || has_worker();
            let wanted = (!late || cron.makes_up()) && attended;
            // Next runs count from now if the run is late: a single run makes up for any number of missed ones.
            let after_ms = if late || waited { now_ms } else { due_ms };
            let texts = (cron.name.len() + cron.queue.len() + cron.data.len()) as u64;
            let bytes = texts + cron.job().bytes() + JOB_BYTES + cron.end_bytes();
            if wanted && !waited && self.puts_off(now_ms, index) {
                continue;
            }
            if wanted && !out.journal.can_append_new(bytes, || self.space_forecast()) {
                self.wait_for_room(now_ms, index, out);
                continue;
            }
            let cron = &mut self.crons.slab[index];
            (cron.put_off, cron.lacks_room) = (false, false);
            if wanted && self.run_cron(now_ms, index, after_ms, out) {
                continue;
            }
            if wanted && !waited {
                self.scheduled.untake();
            }
            self.totals.crons_missed += 1;
            let cron = &self.crons.slab[index];
            match cron.next_after(due_ms, now_ms, self.config.interval_min_ms) {
                Some(next_run_ms) => {
                    out.journal.append(&Record::CronMissed { name: &cron.name, next_run_ms });
                    self.move_cron(index, next_run_ms);
                }
                None => self.end_cron(index, out),
            }
        }
    }

    /// Whether a schedule that is due has to wait because too many are: it runs at the next time that is free, or in
    /// the next slice after that.
    fn puts_off(&mut self, now_ms: u64, index: u32) -> bool {
        let free_ms = self.scheduled.take(now_ms);
        let later = free_ms > now_ms;
        if later {
            self.crons.slab[index].put_off = true;
            self.crons.set_timer(index, free_ms);
        }
        later
    }

    /// Leaves a run due for which there is no room.
    fn wait_for_room<J: Journal>(&mut self, now_ms: u64, index: u32, out: &mut Out<'_, J>) {
        let cron = &mut self.crons.slab[index];
        if !cron.lacks_room {
            self.totals.crons_without_room += 1;
            out.effects.crons_without_room.push(cron.name.clone());
        }
        (cron.put_off, cron.lacks_room) = (true, true);
        self.crons.set_timer(index, now_ms.saturating_add(ROOM_WAIT_MS));
    }

    /// Looks once at each schedule after a start. One whose next run is further away than it can be was set
    /// by a clock that was ahead: it would not run for as long. One that is not at a time of its schedule was set
    /// by other rules of its zone.
    fn replan_crons<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        let Some(first) = self.crons.unchecked else { return };
        let end = self.crons.slab.end();
        let last = end.min(first.saturating_add(SLICE as u32));
        for index in first..last {
            let cron = self.crons.slab.peek(index);
            if cron.name.is_empty() || !cron.runs() {
                continue;
            }
            if let Some(next_run_ms) = cron.replanned_ms(now_ms) {
                out.journal.append(&Record::CronMissed { name: &cron.name, next_run_ms });
                self.move_cron(index, next_run_ms);
            }
        }
        self.crons.unchecked = (last < end).then_some(last);
    }

    /// Pushes the job of one run, unless another one stands in its way. The record of the push holds the
    /// schedule's next time as well, which is after `after_ms`.
    fn run_cron<J: Journal>(
        &mut self,
        now_ms: u64,
        index: u32,
        after_ms: u64,
        out: &mut Out<'_, J>,
    ) -> bool {
        self.tell_silent_clock(now_ms, out.journal);
        // Out of the table while it lends its texts to the record.
        let cron = std::mem::take(&mut self.crons.slab[index]);
        let due_ms = cron.next_run_ms;
        let last = cron.is_last_run();
        let interval_min_ms = self.config.interval_min_ms;
        let next_run_ms = cron.next_after(due_ms, after_ms, interval_min_ms).filter(|_| !last);
        let queue = self.queues.find_or_insert(&cron.queue);
        let mut job = NewJob { data: &cron.data, priority: cron.priority, ..cron.job() };
        let replaced = match self.meet_holder(now_ms, queue, &job, out) {
            Met::Nobody => None,
            Met::Goes(holder) => Some(holder),
            Met::Stays(_) => {
                self.crons.slab[index] = cron;
                return false;
            }
        };
        if let Some(extras) = &mut job.extras {
            **extras = extras.anew(now_ms);
        }
        let id = self.ids.make(now_ms, self.queues[queue].slot);
        let run_at_ms = due_ms.saturating_add(job.delay_ms);
        let pushed = Pushed { id, queue: &cron.queue, run_at_ms, job: job.into() };
        let record = Record::CronRan(CronRan { name: &cron.name, next_run_ms, pushed });
        let stored = out.journal.append(&record);
        if let Record::CronRan(ran) = &record {
            let index = self.add(queue, &ran.pushed, stored);
            self.emit_push(now_ms, index, out.effects);
        }
        self.totals.pushed += 1;
        self.queues.count_push(queue, now_ms);
        let ends = next_run_ms.is_none().then(|| cron.name.clone());
        self.crons.slab[index] = cron;
        self.count_run(index, next_run_ms);
        if let Some(name) = ends {
            self.tell_ended(&name, out.journal);
            out.effects.cron_ends.push(name);
        }
        self.remove_replaced(now_ms, replaced, out);
        self.serve(now_ms, queue, out);
        true
    }

    fn end_cron<J: Journal>(&mut self, index: u32, out: &mut Out<'_, J>) {
        let name = &self.crons.slab[index].name;
        out.journal.append(&Record::CronRemoved { name });
        out.effects.cron_ends.push(name.clone());
        self.drop_cron(index);
    }
}
