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
use crate::server::operations::operation::{Operation, Sliced};
use crate::server::overload::large_replies::{LARGE_BYTES, TURN_BYTES_MAX};
use crate::server::shard_server::ShardServer;
use crate::server::storage::engine::{Absent, Fetched, Records};
use corq_io::net::Connections;
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
        mut show: Show,
        fetched: Vec<Fetched>,
    ) -> Sliced {
        if show.begun.is_some() {
            return self.show_slice(conns, show, fetched);
        }
        let (origin, shard) = (show.origin, &self.engine.shard);
        let jobs = show.jobs.iter().filter_map(|&id| show.wanted.find(shard, id));
        let jobs: Vec<u32> = jobs.collect();
        self.meter.note(jobs.len());
        let needed = jobs.iter().flat_map(|&job| records_of(&shard.view(job)));
        let needed: Vec<LogRef> = needed.collect();
        let bytes: u64 = needed.iter().map(|stored| u64::from(stored.record_bytes)).sum();
        // Each is written twice.
        let bytes = if show.wanted == Wanted::DeadLetters { 2 * bytes } else { bytes };
        let req_id = show.req_id.as_deref();
        if bytes > FRAME_BYTES_MAX as u64 {
            self.refuse(conns, origin, req_id, ErrorKind::ReplyTooLarge);
            return Sliced::Done;
        }
        if jobs.is_empty() && show.wanted == Wanted::Job {
            self.refuse(conns, origin, req_id, ErrorKind::JobNotFound);
            return Sliced::Done;
        }
        let copies = if show.wanted == Wanted::DeadLetters { LETTER_COPIES as u64 / 2 } else { 1 };
        let is_long = bytes * copies > TURN_BYTES_MAX as u64 || needed.len() > TURN_RECORDS_MAX;
        if is_long && show.wanted != Wanted::Job {
            show.begun = Some(Box::new(Begun::new(&show, bytes as usize)));
            return self.show_slice(conns, show, fetched);
        }
        let records_count = needed.len();
        let records = Records::new(&self.engine.journal, &fetched);
        let missing = |stored: &LogRef| records.record(stored) == Err(Absent::Cold);
        let missing: Vec<LogRef> = needed.into_iter().filter(missing).collect();
        if !missing.is_empty() {
            return Sliced::Reads(Operation::Show(show), missing, fetched);
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
        Sliced::Done
    }

    /// Writes one slice of a list, whose records may have to be read first.
    fn show_slice(
        &mut self,
        conns: &mut Connections,
        mut show: Show,
        fetched: Vec<Fetched>,
    ) -> Sliced {
        let Some(begun) = &mut show.begun else { return Sliced::Done };
        let letters = show.wanted == Wanted::DeadLetters;
        if begun.next == show.jobs.len() {
            return self.join_entries(conns, show);
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
            return Sliced::Reads(Operation::Show(show), needed, fetched);
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
        let error = match written {
            Err(_) => ErrorKind::Damaged,
            Ok(()) if begun.next == show.jobs.len() && !letters => {
                return self.join_entries(conns, show);
            }
            Ok(()) if bytes <= FRAME_BYTES_MAX => return Sliced::More(Operation::Show(show)),
            Ok(()) => ErrorKind::ReplyTooLarge,
        };
        self.refuse(conns, show.origin, show.req_id.as_deref(), error);
        Sliced::Done
    }

    /// Puts more of what there is to say of each job behind the jobs, which are all written, and sends the list at its end.
    fn join_entries(&mut self, conns: &mut Connections, mut show: Show) -> Sliced {
        let Some(begun) = &mut show.begun else { return Sliced::Done };
        if begun.joined == 0 && show.wanted == Wanted::DeadLetters {
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
            return Sliced::More(Operation::Show(show));
        }
        let Show { origin, req_id, begun: Some(begun), .. } = show else { return Sliced::Done };
        let Begun { mut reply, framing, count, count_at, .. } = *begun;
        reply[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
        self.end_with_frame(conns, (origin, req_id.as_deref()), framing, reply)
    }
}
