//! Tasks on the jobs of a queue that a filter lets through. The jobs are those that there were when the task began, in the
//! order in which they came: it looks at each once, whatever it does to them. What a filter asks of records that lie on the disk
//! is read first.

use super::tasks::{Counts, Skip, TaskState};
use super::work::Filtered;
use crate::api::commands::Class;
use crate::api::error::ErrorKind;
use crate::server::commands::job_view::{buried_of, pushed_of};
use crate::server::events::message::NOBODY;
use crate::server::scan::turns::{SLICE_JOBS, SLICE_LOOKS};
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use crate::server::storage::cold_reads::Continuation;
use crate::server::storage::engine::{Fetched, Records};
use corq_io::net::Connections;
use corq_shards::job::State;
use corq_shards::query::LOOKS_PER_STEP;
use corq_shards::queue::scan::Found;

impl ShardServer {
    /// Goes on with a task for which records had to be read.
    pub(crate) fn go_on_with_bulk_task(
        &mut self,
        conns: &mut Connections,
        number: u64,
        fetched: &[Fetched],
    ) {
        if let Some(filtered) = self.bulk_tasks.take_work(number) {
            self.act_on_slice(conns, number, filtered, fetched);
        }
    }

    /// Acts on one slice of a queue's jobs. `fetched` holds records that had to be read for it first.
    pub(super) fn act_on_slice(
        &mut self,
        conns: &mut Connections,
        number: u64,
        mut filtered: Box<Filtered>,
        fetched: &[Fetched],
    ) {
        let Some(task) = self.bulk_tasks.get(number) else { return };
        let (action, dry_run) = (task.action, task.dry_run);
        if self.lacks_data_dir(Class::Bulk) {
            let why = TaskState::Failed(ErrorKind::DataGone);
            return self.bulk_tasks.end(number, why, self.now_ms);
        }
        let mut counts = Counts::default();
        if filtered.pending.is_empty() && !filtered.is_done {
            let slice = self.engine.shard.scan_jobs(&mut filtered.scan, SLICE_JOBS, SLICE_LOOKS);
            self.meter.note((slice.looked / LOOKS_PER_STEP) as usize + slice.found.len());
            counts.counted = slice.looked;
            filtered.is_done = slice.is_done;
            filtered.pending = slice.found.into();
        }
        let (reads_push, reads_end) = (!filtered.sought.is_none(), !filtered.errors.is_none());
        let (jobs, missing) = self.next_at_hand(&filtered.pending, fetched, |view, needs| {
            needs.extend(reads_push.then_some(view.data));
            needs.extend(view.outcome.filter(|_| reads_end).map(|end| end.stored));
        });
        if !missing.is_empty() {
            self.bulk_tasks.note(number, counts);
            self.bulk_tasks.put_back(number, filtered, false);
            let origin = self.origin_of_none();
            let then = Continuation::Task { number };
            return self.read_first(origin, then, &missing, fetched.to_vec());
        }
        for found in jobs {
            filtered.pending.pop_front();
            match self.is_meant(&filtered, found, fetched, &mut counts) {
                Ok(false) => continue,
                Ok(true) => {
                    counts.matched += 1;
                    let before = counts.changed;
                    counts.note(self.act_on_job(conns, found.id, action, dry_run));
                    filtered.left -= counts.changed - before;
                }
                Err(damaged) => counts.note(Err(damaged)),
            }
            if filtered.left == 0 {
                break;
            }
        }
        self.bulk_tasks.note(number, counts);
        if filtered.left == 0 || filtered.is_done && filtered.pending.is_empty() {
            self.bulk_tasks.end(number, TaskState::Done, self.now_ms);
        } else {
            self.bulk_tasks.put_back(number, filtered, true);
        }
    }

    /// Whether a job that was found is meant.
    fn is_meant(
        &self,
        filtered: &Filtered,
        found: Found,
        fetched: &[Fetched],
        counts: &mut Counts,
    ) -> Result<bool, Skip> {
        let shard = &self.engine.shard;
        // The job may have changed, or another may have its place, while records were read.
        let is_there = shard.is_still_wanted(found, &filtered.scan.wanted);
        let Some(index) = shard.find(found.id).filter(|_| is_there) else { return Ok(false) };
        if found.id > filtered.newest {
            return Ok(false);
        }
        let view = shard.view(index);
        let records = Records::new(&self.engine.journal, fetched);
        if !filtered.sought.is_none() {
            let pushed = records.record(&view.data).and_then(pushed_of);
            let judged = filtered.sought.judge(&pushed.map_err(|_| Skip::Damaged)?);
            counts.partly += u64::from(judged.partly);
            if !judged.fits {
                return Ok(false);
            }
        }
        if filtered.errors.is_none() {
            return Ok(true);
        }
        let Some(end) = view.outcome.filter(|_| view.job.state == State::Failed) else {
            return Ok(false);
        };
        let buried = records.record(&end.stored).and_then(buried_of);
        Ok(filtered.errors.has(buried.map_err(|_| Skip::Damaged)?.error))
    }

    /// For what answers no client.
    fn origin_of_none(&self) -> Origin {
        Origin::of_none(self.me as u16, NOBODY)
    }
}
