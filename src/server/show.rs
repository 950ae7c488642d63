//! Answers with jobs in full, once their records are at hand. Which jobs, others have found out.

use super::core::Core;
use super::engine::{Absent, Fetched, Records};
use super::execute::{DAMAGED, NOT_FOUND, TOO_LARGE, framed};
use super::hole::Then;
use super::job_map::{records_of, write_job};
use super::letters::write_letter;
use super::message::Origin;
use crate::protocol::frame::FRAME_BYTES_MAX;
use crate::protocol::reply;
use corq_io::net::Connections;
use corq_shards::id::JobId;
use corq_shards::job::Stored;

/// Jobs to be shown.
#[derive(Debug)]
pub struct Show {
    /// The client's name for the request.
    pub req_id: Option<Box<[u8]>>,
    /// Which; those that are gone by now are left out.
    pub jobs: Vec<JobId>,
    /// In which form.
    pub wanted: Wanted,
}

/// The form in which jobs are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// One.
    Job,
    /// A list.
    Jobs,
    /// A list, and what there is to say of each as one of a dead-letter queue beside it.
    DeadLetters,
}

impl Core {
    /// Shows jobs. `fetched` holds records that had to be read for it first.
    pub(super) fn show(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        show: Show,
        fetched: Vec<Fetched>,
    ) {
        let shard = &self.engine.shard;
        let jobs: Vec<u32> = show.jobs.iter().filter_map(|&id| shard.find(id)).collect();
        let needed = self.needed(&jobs);
        let bytes: u64 = needed.iter().map(|stored| u64::from(stored.record_bytes)).sum();
        // Each is written twice.
        let bytes = if show.wanted == Wanted::DeadLetters { 2 * bytes } else { bytes };
        let req_id = show.req_id.as_deref();
        if bytes > FRAME_BYTES_MAX as u64 {
            self.refuse(conns, origin, req_id, TOO_LARGE);
            return;
        }
        if jobs.is_empty() && show.wanted == Wanted::Job {
            self.refuse(conns, origin, req_id, NOT_FOUND);
            return;
        }
        let records = Records::new(&self.engine.book, &fetched);
        let missing = |stored: &Stored| records.record(stored) == Err(Absent::Cold);
        let missing: Vec<Stored> = needed.into_iter().filter(missing).collect();
        if !missing.is_empty() {
            self.read_first(origin, Then::Show(show), &missing, fetched);
            return;
        }
        let now_ms = self.now_ms;
        self.respond(conns, origin, |engine, pen| {
            let records = Records::new(&engine.book, &fetched);
            let start = pen.out.len();
            let mut written = Ok(());
            framed(pen, req_id, |pen| {
                let letters = show.wanted == Wanted::DeadLetters;
                let mut writer = reply::head(pen.out, true, req_id, 1 + usize::from(letters));
                if show.wanted == Wanted::Job {
                    writer.str("job");
                } else {
                    writer.str("jobs");
                    writer.array(jobs.len());
                }
                let shard = &engine.shard;
                written = jobs
                    .iter()
                    .try_for_each(|&job| write_job(&mut writer, &shard.view(job), &records));
                if written.is_ok() && letters {
                    writer.str("entries");
                    writer.array(jobs.len());
                    written = jobs.iter().try_for_each(|&job| {
                        write_letter(&mut writer, shard, job, &records, now_ms)
                    });
                }
            });
            if written.is_err() {
                pen.out.truncate(start);
                reply::error(pen.out, req_id, DAMAGED);
            }
        });
    }

    fn needed(&self, jobs: &[u32]) -> Vec<Stored> {
        jobs.iter().flat_map(|&job| records_of(&self.engine.shard.view(job))).collect()
    }
}
