//! Queries of what workers reported about a job: its progress, its log lines.

use super::job_view::{progress_of, text_bytes_of, text_of};
use crate::api::commands::LOG_LEVELS;
use crate::api::error::ErrorKind;
use crate::api::request::JobRef;
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use crate::server::storage::engine::{Absent, Records};
use corq_io::net::Connections;
use corq_shards::job::progress::{LogEntry, Notes};
use corq_shards::log_record::location::LogRef;

impl ShardServer {
    pub(crate) fn get_progress(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
    ) {
        let Some(notes) = self.notes_of(conns, ctx, job) else { return };
        let needed: Vec<LogRef> = notes.message.into_iter().collect();
        if !self.at_hand(conns, ctx, &needed) {
            return;
        }
        self.respond(conns, ctx.origin, |engine, sink| {
            let records = Records::new(&engine.journal, ctx.fetched);
            let message = notes.message.and_then(|stored| text_bytes_of(&records, &stored).ok());
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                reply.key("progress").number(notes.progress);
                reply.key("message").checked_str_or_nil(message);
            });
        });
    }

    pub(crate) fn get_logs(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
        start: u64,
        end: Option<u64>,
    ) {
        let Some(notes) = self.notes_of(conns, ctx, job) else { return };
        let end = end.map_or(u64::MAX, |last| last.saturating_add(1)).min(notes.logs.len() as u64);
        let range = start.min(end) as usize..end as usize;
        let lines: Vec<LogEntry> = notes.logs.range(range).copied().collect();
        self.meter.note(lines.len());
        let needed: Vec<LogRef> = lines.iter().map(|entry| entry.stored).collect();
        if !self.at_hand(conns, ctx, &needed) {
            return;
        }
        self.respond(conns, ctx.origin, |engine, sink| {
            let records = Records::new(&engine.journal, ctx.fetched);
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                let mut data = reply.map("data");
                let mut logs = data.key("logs");
                logs.array(lines.len());
                for LogEntry { at_ms, level, stored } in &lines {
                    let mut line = logs.begin_map();
                    line.key("message").str(text_of(&records, stored).unwrap_or_default());
                    line.key("level").str(LOG_LEVELS[*level as usize]);
                    line.key("timestamp").uint(*at_ms);
                }
            });
        });
    }

    /// The notes about a job; none if the command has been answered otherwise.
    fn notes_of(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
    ) -> Option<Notes> {
        let (_, index) = self.known_job(conns, ctx, job)?;
        let view = self.engine.shard.view(index);
        let notes = view.options.and_then(|options| options.notes.as_deref());
        let progress = progress_of(&view);
        Some(Notes { progress, ..notes.cloned().unwrap_or_default() })
    }

    /// Whether all these records can be read now. If not, the question is asked again later, or is
    /// refused because one of them is damaged.
    fn at_hand(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        needed: &[LogRef],
    ) -> bool {
        let records = Records::new(&self.engine.journal, ctx.fetched);
        let mut missing = Vec::new();
        for stored in needed.iter().filter(|stored| stored.payload_bytes > 0) {
            match text_of(&records, stored) {
                Ok(_) => {}
                Err(Absent::Cold) => missing.push(*stored),
                Err(Absent::Damaged) => {
                    self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::Damaged);
                    return false;
                }
            }
        }
        if !missing.is_empty() {
            self.read_then_ask(ctx, &missing);
        }
        missing.is_empty()
    }
}
