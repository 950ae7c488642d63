//! Reports of ended children to the shards of their parents, each with a value out of the log. Answers to clients who
//! ask about them later are in [`super::child_values`].

use crate::server::events::message::NOBODY;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use crate::server::storage::cold_reads::Continuation;
use crate::server::storage::engine::{Absent, Fetched, Records};
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::Command;
use corq_shards::family::{Report, Reported};

impl ShardServer {
    /// Passes on how children here ended.
    #[inline]
    pub(crate) fn send_reports(&mut self) {
        if !self.effects.reports.is_empty() {
            for report in std::mem::take(&mut self.effects.reports) {
                self.send_report(Box::new(report), &[]);
            }
        }
    }

    fn send_report(&mut self, report: Box<Report>, fetched: &[Fetched]) {
        let records = Records::new(&self.engine.journal, fetched);
        let value = match report.stored.payload_bytes {
            0 => Ok(&[][..]),
            _ => records.payload(&report.stored),
        };
        let value = match value {
            Ok(value) => value,
            Err(Absent::Cold) => {
                let origin = Origin::of_none(self.me as u16, NOBODY);
                let stored = report.stored;
                self.read_first(origin, Continuation::Report(report), &[stored], Vec::new());
                return;
            }
            Err(Absent::Damaged) => {
                tracing::error!(
                    shard = self.me,
                    "the value of job {} is damaged: its parent {} does without",
                    report.known_as,
                    report.parent
                );
                &[]
            }
        };
        let batch = self.outbox.after_commit(self.slots.of_job(report.parent));
        let value = batch.keep(value);
        batch.messages.push(Message::Report { report, value });
    }

    /// The value of a child has been read, or could not be.
    pub(crate) fn report_record_arrived(&mut self, report: Box<Report>, fetched: &[Fetched]) {
        self.send_report(report, fetched);
    }

    /// A child of a job here ended.
    pub(crate) fn take_report(&mut self, conns: &mut Connections, report: &Report, value: &[u8]) {
        let Report { parent, child, end, is_last, .. } = *report;
        let known_as = report.known_as.to_string();
        let (known_as, queue) = (&*known_as, &*report.queue);
        let reported = Reported { parent, child, known_as, queue, end, value, is_last };
        self.apply(conns, Caller::default(), &Command::Report(&reported));
    }
}
