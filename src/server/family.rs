//! What parents learn of their children: reports from one shard to another, each with a value out of
//! the log, and the questions about what has come of them.

use super::core::Core;
use super::dispatch::Asked;
use super::engine::{Absent, Fetched, Records};
use super::events::NOBODY;
use super::execute::{DAMAGED, NOT_FOUND, TOO_LARGE, framed};
use super::hole::Then;
use super::message::{Message, Origin};
use crate::api::request::Body;
use crate::protocol::frame::FRAME_BYTES_MAX;
use crate::protocol::reply;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::{ClientId, Command};
use corq_shards::job::Stored;
use corq_shards::kin::{ChildEnded, How, Report, Reported};
use corq_shards::record::Record;

impl Core {
    /// Passes on how children here ended.
    #[inline]
    pub(super) fn tell_reports(&mut self) {
        if !self.effects.reports.is_empty() {
            for report in std::mem::take(&mut self.effects.reports) {
                self.tell_report(Box::new(report), &[]);
            }
        }
    }

    fn tell_report(&mut self, report: Box<Report>, fetched: &[Fetched]) {
        let records = Records::new(&self.engine.book, fetched);
        let value = match report.stored.payload_bytes {
            0 => Ok(&[][..]),
            _ => records.payload(&report.stored),
        };
        let value = match value {
            Ok(value) => value,
            Err(Absent::Cold) => {
                let client = ClientId::default();
                let shard = self.me as u16;
                let origin = Origin { shard, conn: NOBODY, client, tokenless: false, lists: false };
                let stored = report.stored;
                self.read_first(origin, Then::Report(report), &[stored], Vec::new());
                return;
            }
            Err(Absent::Damaged) => {
                tracing::error!(
                    "the value of job {} is damaged: its parent {} does without",
                    report.known_as,
                    report.parent
                );
                &[]
            }
        };
        let batch = self.post.tell(self.slots.of_job(report.parent));
        let value = batch.keep(value);
        batch.messages.push(Message::Report { report, value });
    }

    /// The value of a child has been read, or could not be.
    pub(super) fn report_record_arrived(&mut self, report: Box<Report>, fetched: &[Fetched]) {
        self.tell_report(report, fetched);
    }

    /// A child of a job here ended.
    pub(super) fn take_report(&mut self, conns: &mut Connections, report: &Report, value: &[u8]) {
        let Report { parent, child, end, is_last, .. } = *report;
        let known_as = report.known_as.to_string();
        let (known_as, queue) = (&*known_as, &*report.queue);
        let reported = Reported { parent, child, known_as, queue, end, value, is_last };
        self.apply(conns, Caller::default(), &Command::Report(&reported));
    }

    /// Answers what is known of the children of a job.
    pub(super) fn children_values(
        &mut self,
        conns: &mut Connections,
        asked: Asked<'_>,
        body: &Body<'_>,
        fetched: &[Fetched],
    ) {
        let (job, how, in_data) = match body {
            Body::GetChildrenValues(job) => (*job, How::Completed, true),
            Body::GetFailedChildrenValues(job) => (*job, How::Failed, false),
            Body::GetIgnoredChildrenFailures(job) => (*job, How::Ignored, false),
            _ => return,
        };
        if self.try_as_name(conns, asked, body, job) {
            return;
        }
        let found = asked.id_of(job).and_then(|id| self.engine.shard.find(id));
        let Some(index) = found else {
            self.refuse(conns, asked.origin, asked.req_id, NOT_FOUND);
            return;
        };
        let options = self.engine.shard.view(index).options;
        let kin = options.and_then(|options| options.kin.as_deref());
        let ends = kin.into_iter().flat_map(|kin| kin.ends.values());
        let needed: Vec<Stored> = ends.filter(|end| end.how == how).map(|end| end.stored).collect();
        let bytes: u64 = needed.iter().map(|stored| u64::from(stored.record_bytes)).sum();
        if bytes > FRAME_BYTES_MAX as u64 {
            self.refuse(conns, asked.origin, asked.req_id, TOO_LARGE);
            return;
        }
        let records = Records::new(&self.engine.book, fetched);
        let missing = |stored: &&Stored| records.record(stored) == Err(Absent::Cold);
        let missing: Vec<Stored> = needed.iter().filter(missing).copied().collect();
        if !missing.is_empty() {
            self.read_then_ask(asked, &missing, fetched);
            return;
        }
        let read: Option<Vec<ChildEnded<'_>>> =
            needed.iter().map(|stored| ended_of(records.record(stored).ok()?)).collect();
        if read.is_none() {
            self.refuse(conns, asked.origin, asked.req_id, DAMAGED);
            return;
        }
        self.respond(conns, asked.origin, |engine, pen| {
            let records = Records::new(&engine.book, fetched);
            framed(pen, asked.req_id, |pen| {
                let mut writer = reply::head(pen.out, true, asked.req_id, 1);
                if in_data {
                    writer.str("data");
                    writer.map(1);
                }
                writer.str("values");
                writer.map(needed.len());
                let ended = |stored: &Stored| ended_of(records.record(stored).ok()?);
                for ended in needed.iter().filter_map(ended) {
                    let (queue, known_as) = (ended.queue, ended.known_as);
                    writer.str_head(queue.len() + 1 + known_as.len());
                    for part in [queue, ":", known_as] {
                        writer.raw(part.as_bytes());
                    }
                    match how {
                        How::Completed => writer.raw_or_nil(ended.value),
                        _ => writer.str(std::str::from_utf8(ended.value).unwrap_or_default()),
                    }
                }
            });
        });
    }
}

fn ended_of(record: &[u8]) -> Option<ChildEnded<'_>> {
    match Record::decode_original(record).ok()? {
        Record::ChildEnded(ended) => Some(ended),
        _ => None,
    }
}
