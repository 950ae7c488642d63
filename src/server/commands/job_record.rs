//! Answers with jobs in full, once their records are at hand. Which jobs, others have found out. A long list is
//! written slice by slice, a slice a turn, so that other requests are served in between.

use super::dlq::write_letter;
use super::job_record_list::{Begun, Show, Wanted};
use super::job_view::{records_of, write_job};
use crate::api::error::ErrorKind;
use crate::protocol::frame::FRAME_BYTES_MAX;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::event_loop::turn_meter::BYTES_PER_STEP;
use crate::server::overload::large_replies::{LARGE_BYTES, TURN_BYTES_MAX};
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use crate::server::storage::cold_reads::Continuation;
use crate::server::storage::engine::{Absent, Fetched, Records};
use corq_io::net::Connections;
use corq_shards::command::ClientId;
use corq_shards::log_record::location::LogRef;

/// Bytes that a turn writes of a list, but for the last job's.
const SLICE_BYTES: usize = 1 << 20;

/// How often a job's records are written, at most, where there is more to say of each: twice as a job, whose error may be
/// its stack as well, and its error twice beside it.
const LETTER_COPIES: usize = 6;

/// Records that a turn writes of a list, but for the last job's: a job may have more than twenty small ones.
const TURN_RECORDS_MAX: usize = 512;

/// Bytes of the answer for a job beside its records, about.
const ROOM_BESIDE: usize = 4096;

/// Bytes that a row counts at least as, of the large answers of a turn.
const ROW_BYTES_MIN: usize = TURN_BYTES_MAX / 1024;

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
        let copies = if show.wanted == Wanted::DeadLetters { LETTER_COPIES as u64 / 2 } else { 1 };
        let is_long = bytes * copies > TURN_BYTES_MAX as u64 || needed.len() > TURN_RECORDS_MAX;
        if is_long && show.wanted != Wanted::Job {
            show.begun = Some(Box::new(Begun::new(&show, bytes as usize)));
            self.large_replies.note_begun(bytes as usize);
            self.show_slice(conns, origin, show, fetched);
            return;
        }
        let records_count = needed.len();
        let records = Records::new(&self.engine.journal, &fetched);
        let missing = |stored: &LogRef| records.record(stored) == Err(Absent::Cold);
        let missing: Vec<LogRef> = needed.into_iter().filter(missing).collect();
        if !missing.is_empty() {
            self.read_first(origin, Continuation::Show(show), &missing, fetched);
            return;
        }
        self.meter.note(records_count + bytes as usize / BYTES_PER_STEP);
        let now_ms = self.now_ms;
        self.respond(conns, origin, |engine, sink| {
            if bytes >= LARGE_BYTES as u64 {
                // Reserve at once: a buffer that grows would move what is written already.
                sink.out.reserve(bytes as usize + ROOM_BESIDE);
            }
            let records = Records::new(&engine.journal, &fetched);
            let start = sink.out.len();
            let mut written = Ok(());
            framed(sink, req_id, |sink| {
                let letters = show.wanted == Wanted::DeadLetters;
                let mut reply = reply::begin(sink.out, true, req_id);
                let is_one = show.wanted == Wanted::Job;
                let mut list = reply.key(if is_one { "job" } else { "jobs" });
                if !is_one {
                    list.array(jobs.len());
                }
                let shard = &engine.shard;
                written = jobs
                    .iter()
                    .try_for_each(|&job| write_job(&mut list, &shard.view(job), &records));
                if written.is_ok() && letters {
                    let mut entries = reply.key("entries");
                    entries.array(jobs.len());
                    written = jobs.iter().try_for_each(|&job| {
                        write_letter(&mut entries, shard, job, &records, now_ms)
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
        if begun.next == show.jobs.len() {
            self.join_entries(conns, origin, show);
            return;
        }
        let shard = &self.engine.shard;
        let (mut jobs, mut needed, mut bytes, mut next) = (vec![], vec![], 0, begun.next);
        while next < show.jobs.len() && bytes < SLICE_BYTES && needed.len() < TURN_RECORDS_MAX {
            let found = show.wanted.find(shard, show.jobs[next]);
            next += 1;
            let Some(job) = found else { continue };
            jobs.push(job);
            for stored in records_of(&shard.view(job)) {
                bytes += stored.record_bytes as usize * if letters { LETTER_COPIES } else { 1 };
                needed.push(stored);
            }
        }
        let records_count = needed.len();
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
        self.meter.note(records_count);
        self.meter.note_bytes(begun.reply.len() + begun.entries.len() - before);
        begun.next = next;
        begun.count += jobs.len() as u32;
        let bytes = begun.reply.len() + begun.entries.len();
        // Short rows take their time, too: a turn that wrote megabytes of them would be long.
        self.large_replies.note_written((bytes - before).max(jobs.len() * ROW_BYTES_MIN));
        // Rows of jobs that have changed since the estimate may be longer: then the list ends as one that is too large.
        let goes_on = begun.next < show.jobs.len() || letters;
        if written.is_ok() && goes_on && bytes <= FRAME_BYTES_MAX {
            self.deferred(origin);
            self.job_record_lists.push_back(origin.client, (origin, show));
            return;
        }
        let expected_bytes = begun.expected_bytes;
        self.large_replies.note_shown(expected_bytes);
        match (written, show.begun.take()) {
            (Ok(()), Some(_)) if letters => {
                self.refuse(conns, origin, show.req_id.as_deref(), ErrorKind::ReplyTooLarge);
            }
            (Ok(()), Some(begun)) => {
                self.send_list(conns, origin, show.req_id.as_deref(), *begun);
            }
            _ => self.refuse(conns, origin, show.req_id.as_deref(), ErrorKind::Damaged),
        }
    }

    /// Puts more of what there is to say of each job behind the jobs, which are all written.
    fn join_entries(&mut self, conns: &mut Connections, origin: Origin, mut show: Show) {
        let Some(begun) = &mut show.begun else { return };
        if begun.joined == 0 {
            let mut writer = Writer::new(&mut begun.reply);
            writer.str("entries");
            writer.array(begun.count as usize);
        }
        let to = begun.entries.len().min(begun.joined + SLICE_BYTES);
        begun.reply.extend_from_slice(&begun.entries[begun.joined..to]);
        self.meter.note_bytes(to - begun.joined);
        self.large_replies.note_written(to - begun.joined);
        begun.joined = to;
        if to < begun.entries.len() {
            self.deferred(origin);
            self.job_record_lists.push_back(origin.client, (origin, show));
            return;
        }
        self.large_replies.note_shown(begun.expected_bytes);
        if let Some(begun) = show.begun.take() {
            self.send_list(conns, origin, show.req_id.as_deref(), *begun);
        }
    }

    /// Sends a list that is written.
    fn send_list(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        begun: Begun,
    ) {
        let Begun { mut reply, framing, count, count_at, .. } = begun;
        reply[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
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
        for (_, show) in self.job_record_lists.take_of(client, |_| true) {
            if let Some(begun) = show.begun {
                self.large_replies.note_shown(begun.expected_bytes);
            }
        }
    }

    fn needed(&self, jobs: &[u32]) -> Vec<LogRef> {
        jobs.iter().flat_map(|&job| records_of(&self.engine.shard.view(job))).collect()
    }
}
