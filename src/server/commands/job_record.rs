//! Answers with jobs in full, once their records are at hand. Which jobs, others have found out. A long list is
//! written slice by slice, a slice a turn, so that other requests are served in between.

use super::dlq::write_letter;
use super::job_view::{records_of, write_job};
use crate::api::error::ErrorKind;
use crate::protocol::frame::FRAME_BYTES_MAX;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply::{self, Frame};
use crate::server::connection::reply_writer::framed;
use crate::server::overload::large_replies::TURN_BYTES_MAX;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use crate::server::storage::cold_reads::Continuation;
use crate::server::storage::engine::{Absent, Fetched, Records};
use corq_io::net::Connections;
use corq_shards::Shard;
use corq_shards::command::ClientId;
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::log_record::location::LogRef;
use rmp::Marker;
use std::collections::VecDeque;

/// Jobs to be shown.
#[derive(Debug)]
pub struct Show {
    /// The client's name for the request.
    pub req_id: Option<Box<[u8]>>,
    /// Which; those that are gone by now are left out.
    pub jobs: Vec<JobId>,
    /// In which form.
    pub wanted: Wanted,
    /// How far that is, if it takes several turns.
    pub begun: Option<Box<Begun>>,
}

/// A list that is being written.
#[derive(Debug)]
pub struct Begun {
    /// The first of the jobs that have not been looked at.
    next: usize,
    /// How many have been written, and where in the reply that is to be said.
    count: u32,
    count_at: usize,
    framing: Frame,
    reply: Vec<u8>,
    /// What there is to say of each beside it.
    entries: Vec<u8>,
    /// What all of it is expected to take.
    expected_bytes: usize,
}

impl Begun {
    fn new(show: &Show, expected_bytes: usize) -> Self {
        let mut reply = Vec::with_capacity(expected_bytes.min(FRAME_BYTES_MAX));
        let framing = Frame::begin(&mut reply);
        let letters = show.wanted == Wanted::DeadLetters;
        let mut writer =
            reply::head(&mut reply, true, show.req_id.as_deref(), 1 + usize::from(letters));
        writer.str("jobs");
        // Jobs may be gone by the time they are looked at, so their number comes at the end.
        writer.raw(&[Marker::Array32.to_u8(), 0, 0, 0, 0]);
        let count_at = reply.len() - 4;
        let (next, count, entries) = (0, 0, Vec::new());
        Self { next, count, count_at, framing, reply, entries, expected_bytes }
    }
}

/// Lists that are being written, each in its turn.
pub type JobRecordLists = VecDeque<(Origin, Show)>;

/// The form in which jobs are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// One job.
    Job,
    Jobs,
    /// A list, and what there is to say of each as one of a dead-letter queue beside it.
    DeadLetters,
}

impl Wanted {
    /// The index of a job, if it can be shown so. Between the search for it and its answer it may have gone,
    /// or have left the dead-letter queue.
    fn find(self, shard: &Shard, id: JobId) -> Option<u32> {
        let is_there =
            |job: &u32| self != Self::DeadLetters || shard.view(*job).job.state == State::Failed;
        shard.find(id).filter(is_there)
    }
}

impl ShardServer {
    /// Shows jobs. `fetched` holds records that had to be read for it first.
    pub(crate) fn show(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        mut show: Show,
        fetched: Vec<Fetched>,
    ) {
        if show.begun.is_some() {
            self.show_slice(conns, origin, show, fetched);
            return;
        }
        let shard = &self.engine.shard;
        let jobs = show.jobs.iter().filter_map(|&id| show.wanted.find(shard, id));
        let jobs: Vec<u32> = jobs.collect();
        self.meter.note(jobs.len());
        let needed = self.needed(&jobs);
        let bytes: u64 = needed.iter().map(|stored| u64::from(stored.record_bytes)).sum();
        // Each is written twice.
        let bytes = if show.wanted == Wanted::DeadLetters { 2 * bytes } else { bytes };
        let req_id = show.req_id.as_deref();
        if bytes > FRAME_BYTES_MAX as u64 {
            self.refuse(conns, origin, req_id, ErrorKind::ReplyTooLarge);
            return;
        }
        if jobs.is_empty() && show.wanted == Wanted::Job {
            self.refuse(conns, origin, req_id, ErrorKind::JobNotFound);
            return;
        }
        if bytes > TURN_BYTES_MAX as u64 && show.wanted != Wanted::Job {
            show.begun = Some(Box::new(Begun::new(&show, bytes as usize)));
            self.large_replies.note_begun(bytes as usize);
            self.show_slice(conns, origin, show, fetched);
            return;
        }
        let records = Records::new(&self.engine.journal, &fetched);
        let missing = |stored: &LogRef| records.record(stored) == Err(Absent::Cold);
        let missing: Vec<LogRef> = needed.into_iter().filter(missing).collect();
        if !missing.is_empty() {
            self.read_first(origin, Continuation::Show(show), &missing, fetched);
            return;
        }
        let now_ms = self.now_ms;
        self.respond(conns, origin, |engine, sink| {
            let records = Records::new(&engine.journal, &fetched);
            let start = sink.out.len();
            let mut written = Ok(());
            framed(sink, req_id, |sink| {
                let letters = show.wanted == Wanted::DeadLetters;
                let mut writer = reply::head(sink.out, true, req_id, 1 + usize::from(letters));
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
                sink.out.truncate(start);
                reply::error(sink.out, req_id, ErrorKind::Damaged);
            }
        });
    }

    /// Writes one slice of a list, whose records may have to be read first.
    fn show_slice(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        mut show: Show,
        fetched: Vec<Fetched>,
    ) {
        let Some(begun) = &mut show.begun else { return };
        let letters = show.wanted == Wanted::DeadLetters;
        let shard = &self.engine.shard;
        let (mut jobs, mut needed, mut bytes, mut next) = (vec![], vec![], 0, begun.next);
        while next < show.jobs.len() && bytes < TURN_BYTES_MAX {
            let found = show.wanted.find(shard, show.jobs[next]);
            next += 1;
            let Some(job) = found else { continue };
            jobs.push(job);
            for stored in records_of(&shard.view(job)) {
                bytes += stored.record_bytes as usize * (1 + usize::from(letters));
                needed.push(stored);
            }
        }
        let records = Records::new(&self.engine.journal, &fetched);
        needed.retain(|stored| records.record(stored) == Err(Absent::Cold));
        if !needed.is_empty() {
            self.read_first(origin, Continuation::Show(show), &needed, fetched);
            return;
        }
        let before = begun.reply.len() + begun.entries.len();
        let now_ms = self.now_ms;
        let written = jobs.iter().try_for_each(|&job| {
            write_job(&mut Writer::new(&mut begun.reply), &shard.view(job), &records)?;
            if letters {
                write_letter(&mut Writer::new(&mut begun.entries), shard, job, &records, now_ms)?;
            }
            Ok::<(), Absent>(())
        });
        self.meter.note(jobs.len());
        begun.next = next;
        begun.count += jobs.len() as u32;
        let bytes = begun.reply.len() + begun.entries.len();
        self.large_replies.note_written(bytes - before);
        // What it says of jobs that have been changed since may be longer: then it ends as one that is too large.
        if written.is_ok() && begun.next < show.jobs.len() && bytes <= FRAME_BYTES_MAX {
            self.deferred(origin);
            self.job_record_lists.push_back((origin, show));
            return;
        }
        let expected_bytes = begun.expected_bytes;
        self.large_replies.note_shown(expected_bytes);
        match (written, show.begun.take()) {
            (Ok(()), Some(begun)) => {
                self.send_list(conns, origin, show.req_id.as_deref(), letters, *begun);
            }
            _ => self.refuse(conns, origin, show.req_id.as_deref(), ErrorKind::Damaged),
        }
    }

    /// Sends a list that is written.
    fn send_list(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        letters: bool,
        begun: Begun,
    ) {
        let Begun { mut reply, framing, entries, count, count_at, .. } = begun;
        reply[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
        if letters {
            let mut writer = Writer::new(&mut reply);
            writer.str("entries");
            writer.array(count as usize);
            writer.raw(&entries);
        }
        if framing.finish(&mut reply).is_err() {
            self.refuse(conns, origin, req_id, ErrorKind::ReplyTooLarge);
            return;
        }
        self.send_whole(conns, origin, reply);
    }

    /// Goes on with the list whose turn it is.
    pub(crate) fn show_in_turn(&mut self, conns: &mut Connections) {
        let Some((origin, show)) = self.job_record_lists.pop_front() else { return };
        self.answered(origin);
        self.show_slice(conns, origin, show, Vec::new());
    }

    /// Ends the lists of a client that is gone.
    pub(crate) fn stop_showing(&mut self, client: ClientId) {
        self.job_record_lists.retain(|(origin, show)| {
            let stays = origin.client != client;
            if let Some(begun) = show.begun.as_ref().filter(|_| !stays) {
                self.large_replies.note_shown(begun.expected_bytes);
            }
            stays
        });
    }

    fn needed(&self, jobs: &[u32]) -> Vec<LogRef> {
        jobs.iter().flat_map(|&job| records_of(&self.engine.shard.view(job))).collect()
    }
}
