//! `GetJobDetail`: a job with all that is known of it: its record, its attempts, its log, the first of its children with
//! their states, and what webhooks were told of it. What stands in the log may have to be read from the disk; the children are asked for first.

use super::job_view::{
    attempts_of, buried_of, job_text, records_of, text_of, write_job, write_stack,
};
use crate::api::commands::LOG_LEVELS;
use crate::api::error::ErrorKind;
use crate::api::request::JobRef;
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::event_loop::turn_meter::BYTES_PER_STEP;
use crate::server::multi_shard::looks::{FlowTree, JobDetail, Then};
use crate::server::overload::large_replies::LARGE_BYTES;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use crate::server::storage::cold_reads::Continuation;
use crate::server::storage::engine::{Absent, Fetched, Records};
use crate::server::webhooks::told::{HOOKS_LOOKED_AT, write_deliveries};
use corq_io::net::Connections;
use corq_shards::Shard;
use corq_shards::family::Family;
use corq_shards::job::State;
use corq_shards::job::progress::LogEntry;
use corq_shards::log_record::location::LogRef;
use corq_shards::query::JobView;

/// Children that are shown; `GetFlow` shows more.
const CHILDREN_SHOWN: usize = 50;

/// Bytes of the answer beside the records, about.
const ROOM_BESIDE: usize = 64 << 10;

impl ShardServer {
    /// Answers `GetJobDetail`.
    pub(crate) fn get_job_detail(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
    ) {
        let Some((job, index)) = self.known_job(conns, ctx, job) else { return };
        if family_of(&self.engine.shard.view(index))
            .is_some_and(|family| !family.children.is_empty())
        {
            let tree = Box::new(FlowTree::new(job, 1, 1 + CHILDREN_SHOWN, ctx.origin.scope));
            let step = self.begin_looks(ctx.origin, ctx.req_id, Then::Detail(tree));
            self.ask_for_looks(step, &[(0, job)], CHILDREN_SHOWN);
            return;
        }
        let (origin, req_id) = (ctx.origin, ctx.req_id.map(Into::into));
        let detail = JobDetail { origin, req_id, job, children: None };
        self.show_job_detail(conns, detail, Vec::new());
    }

    /// Shows a job, whose children are known. `fetched` holds records that had to be read for it first.
    pub(crate) fn show_job_detail(
        &mut self,
        conns: &mut Connections,
        detail: JobDetail,
        fetched: Vec<Fetched>,
    ) {
        let origin = detail.origin;
        let Some(index) = self.engine.shard.find(detail.job) else {
            self.refuse(conns, origin, detail.req_id.as_deref(), ErrorKind::JobNotFound);
            return;
        };
        let view = self.engine.shard.view(index);
        let lines = lines_of(&view);
        let of_log = lines.iter().map(|line| line.stored).filter(|stored| stored.payload_bytes > 0);
        let records = Records::new(&self.engine.journal, &fetched);
        let missing = |stored: &LogRef| records.record(stored) == Err(Absent::Cold);
        let missing: Vec<LogRef> = records_of(&view).chain(of_log).filter(missing).collect();
        if !missing.is_empty() {
            let then = Continuation::Detail(Box::new(detail));
            self.read_first(origin, then, &missing, fetched);
            return;
        }
        let of_log = lines.iter().map(|line| line.stored).filter(|stored| stored.payload_bytes > 0);
        let bytes: usize =
            records_of(&view).chain(of_log).map(|stored| stored.record_bytes as usize).sum();
        self.meter.note(1 + lines.len() + bytes / BYTES_PER_STEP);
        let req_id = detail.req_id.as_deref();
        let told = self.webhooks.told(view.queue, &job_text(&view));
        self.meter.note(told.posts.len() + HOOKS_LOOKED_AT);
        let since_ms = self.started_at_ms;
        self.respond(conns, origin, |engine, sink| {
            if bytes >= LARGE_BYTES {
                // Reserve at once: a buffer that grows would move what is written already.
                sink.out.reserve(bytes + ROOM_BESIDE);
            }
            let records = Records::new(&engine.journal, &fetched);
            let start = sink.out.len();
            let mut written = Ok(());
            framed(sink, req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, req_id);
                let mut data = reply.map("data");
                let view = engine.shard.view(index);
                written = write_told(&mut data, &engine.shard, &view, (&lines, &records));
                write_children(&mut data, &view, detail.children.as_deref());
                let mut webhooks = data.map("webhooks");
                webhooks.key("since").uint(since_ms);
                webhooks.key("truncated").bool(told.truncated);
                write_deliveries(&mut webhooks.key("deliveries"), &told);
            });
            if written.is_err() {
                sink.out.truncate(start);
                reply::error(sink.out, req_id, ErrorKind::Damaged);
            }
        });
    }
}

fn family_of<'a>(view: &JobView<'a>) -> Option<&'a Family> {
    view.options?.family.as_deref()
}

fn lines_of(view: &JobView<'_>) -> Vec<LogEntry> {
    let notes = view.options.and_then(|options| options.notes.as_deref());
    notes.map_or_else(Vec::new, |notes| notes.logs.iter().copied().collect())
}

/// Writes the parts that stand in records: the job, its attempts, its log.
fn write_told(
    data: &mut MapWriter<'_>,
    shard: &Shard,
    view: &JobView<'_>,
    (lines, records): (&[LogEntry], &Records<'_>),
) -> Result<(), Absent> {
    write_job(&mut data.key("job"), view, records)?;
    write_attempts(&mut data.key("attempts"), shard, view, records)?;
    write_lines(&mut data.key("logs"), lines, records)
}

/// The attempts of which something is known: those that are remembered, and the one under way, or the last.
fn write_attempts(
    writer: &mut Writer<'_>,
    shard: &Shard,
    view: &JobView<'_>,
    records: &Records<'_>,
) -> Result<(), Absent> {
    let failed = u64::from(view.job.attempts);
    let ended = view.outcome.filter(|outcome| outcome.started_at_ms > 0);
    let last = view.lease.is_some() || ended.is_some();
    let remembered = attempts_of(view, records)?;
    writer.array(remembered.len() + usize::from(last));
    for (retried, attempt) in remembered {
        let mut row = writer.begin_map();
        row.key("attempt").uint(u64::from(attempt.number));
        row.key("startedAt").uint(attempt.started_at_ms);
        row.key("endedAt").uint(retried.at_ms);
        row.key("worker").str_or_nil(attempt.worker);
        row.key("error").str(retried.error);
        write_stack(&mut row.key("stacktrace"), retried.error, attempt.stack);
    }
    if let Some(lease) = view.lease {
        let mut row = writer.begin_map();
        row.key("attempt").uint(failed + 1);
        row.key("startedAt").uint(lease.started_at_ms);
        row.key("endedAt").nil();
        row.key("worker").str_or_nil(shard.owner_of(lease));
        row.key("error").nil();
    } else if let Some(outcome) = ended {
        let completed = view.job.state == State::Completed;
        let mut row = writer.begin_map();
        row.key("attempt").uint(failed + u64::from(completed));
        row.key("startedAt").uint(outcome.started_at_ms);
        row.key("endedAt").uint(outcome.finished_at_ms);
        row.key("worker").nil();
        if completed {
            row.key("error").nil();
        } else {
            let buried = buried_of(records.record(&outcome.stored)?)?;
            row.key("error").str(buried.error);
            write_stack(&mut row.key("stacktrace"), buried.error, buried.stack);
        }
    }
    Ok(())
}

fn write_lines(
    writer: &mut Writer<'_>,
    lines: &[LogEntry],
    records: &Records<'_>,
) -> Result<(), Absent> {
    writer.array(lines.len());
    for LogEntry { at_ms, level, stored } in lines {
        let text = text_of(records, stored)?;
        let mut line = writer.begin_map();
        line.key("message").str(text);
        line.key("level").str(LOG_LEVELS[*level as usize]);
        line.key("timestamp").uint(*at_ms);
    }
    Ok(())
}

fn write_children(data: &mut MapWriter<'_>, view: &JobView<'_>, tree: Option<&FlowTree>) {
    let family = family_of(view);
    let mut children = data.map("children");
    children.key("count").uint(family.map_or(0, |family| family.children.len()) as u64);
    children.key("completed").uint(family.map_or(0, Family::completed) as u64);
    match tree {
        Some(tree) => tree.write(&mut children, 1),
        None => {
            children.key("truncated").bool(false);
            children.key("jobs").array(0);
        }
    }
}
