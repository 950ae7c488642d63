//! Dead letters: what a dead-letter queue says of its jobs beside the jobs themselves, and the rules of queues.

use super::job_record_list::{Show, Wanted};
use super::job_view::{attempts_of, buried_of, write_job};
use crate::api::request::{DlqFilter, JobRef, unlimited};
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::operations::operation::Operation;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use crate::server::storage::engine::{Absent, Records};
use corq_io::net::Connections;
use corq_shards::Shard;
use corq_shards::command::{Command, DlqScanRequest};
use corq_shards::dead_letter::policy::{DlqRule, Rules, StallRule};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::dead_letter::scan::{DlqScanFor, FailedStats};
use corq_shards::lease::UNLOCKED_TTL_MS;

impl ShardServer {
    /// `Dlq`. Without a filter: the oldest, and only the jobs.
    pub(crate) fn dead_letters(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        count: u32,
        filter: Option<DlqFilter>,
    ) {
        if filter.is_some() {
            let request =
                scan_request_of(queue, filter, Some(u64::from(count)), DlqScanFor::Listing);
            return self.begin_bulk(conns, ctx, &Command::DlqScan(&request));
        }
        let failed: Vec<u32> = self.engine.shard.failed(queue).take(count as usize).collect();
        let jobs = failed.iter().map(|&job| self.engine.shard.view(job).job.id).collect();
        let (req_id, wanted) = (ctx.req_id.map(Into::into), Wanted::Jobs);
        let show = Show { origin: ctx.origin, req_id, jobs, wanted, begun: None };
        self.begin_operation(conns, Operation::Show(show));
    }

    /// Answers `GetDlqStats`.
    pub(crate) fn dlq_stats(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
    ) {
        let request = scan_request_of(queue, None, None, DlqScanFor::Stats);
        self.begin_bulk(conns, ctx, &Command::DlqScan(&request));
    }

    /// Answers `RetryDlq`.
    pub(crate) fn retry_dlq(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        job: Option<JobRef<'_>>,
        count: Option<u64>,
        filter: Option<DlqFilter>,
    ) {
        if filter.is_some() {
            let limit =
                |filter: DlqFilter| DlqFilter { limit: unlimited(Some(filter.limit)), ..filter };
            let (filter, count) = (filter.map(limit), Some(unlimited(count)));
            let request = scan_request_of(queue, filter, count, DlqScanFor::Retry);
            return self.begin_bulk(conns, ctx, &Command::DlqScan(&request));
        }
        let count = unlimited(count);
        self.bulk_or_one(conns, ctx, job, |job| Command::RetryFailed { queue, job, count });
    }

    /// Answers `RetryCompleted`.
    pub(crate) fn retry_completed(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        job: Option<JobRef<'_>>,
        count: Option<u64>,
        until_ms: Option<u64>,
    ) {
        let (count, until_ms) = (unlimited(count), until_ms.unwrap_or(u64::MAX));
        self.bulk_or_one(conns, ctx, job, |job| Command::RetryCompleted {
            queue,
            job,
            count,
            until_ms,
        });
    }

    /// Answers `GetDlqConfig`.
    pub(crate) fn dlq_config(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
    ) {
        let DlqRule { auto_retry, retry_interval_ms, retries_max, age_max_ms, entries_max } =
            self.rules_of(queue).dlq;
        self.write_config(conns, ctx, |config| {
            config.key("autoRetry").bool(auto_retry);
            config.key("autoRetryInterval").uint(retry_interval_ms);
            config.key("maxAutoRetries").uint(u64::from(retries_max));
            config.key("maxAge").uint_or_nil(age_max_ms);
            config.key("maxEntries").uint_or_nil(entries_max.map(u64::from));
        });
    }

    /// Answers `GetStallConfig`.
    pub(crate) fn stall_config(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
    ) {
        let StallRule { enabled, interval_ms, stalls_max, grace_ms } = self.rules_of(queue).stall;
        self.write_config(conns, ctx, |config| {
            config.key("enabled").bool(enabled);
            config.key("stallInterval").uint(u64::from(interval_ms.unwrap_or(UNLOCKED_TTL_MS)));
            config.key("maxStalls").uint(u64::from(stalls_max));
            config.key("gracePeriod").uint(u64::from(grace_ms));
        });
    }

    fn rules_of(&mut self, queue: &str) -> Rules {
        let queue = self.engine.shard.queue(queue);
        queue.and_then(|queue| queue.rules.as_deref().cloned()).unwrap_or_default()
    }

    fn write_config(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        write: impl FnOnce(&mut MapWriter<'_>),
    ) {
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                write(&mut reply::begin(sink.out, true, ctx.req_id).map("config"));
            });
        });
    }
}

/// A look through a dead-letter queue for some of its jobs, and at most `count`.
fn scan_request_of(
    queue: &str,
    filter: Option<DlqFilter>,
    count: Option<u64>,
    purpose: DlqScanFor,
) -> DlqScanRequest<'_> {
    let DlqFilter { filter, offset, limit } = filter.unwrap_or_default();
    DlqScanRequest { queue, filter, offset, limit: limit.min(count.unwrap_or(u64::MAX)), purpose }
}

/// Writes a job of the dead-letter queue: the job, why and when it failed, and its attempts as far as they are
/// remembered.
pub fn write_letter(
    writer: &mut Writer<'_>,
    shard: &Shard,
    job: u32,
    records: &Records<'_>,
    now_ms: u64,
) -> Result<(), Absent> {
    let view = shard.view(job);
    let Some(outcome) = view.outcome else { return Err(Absent::Damaged) };
    let buried = buried_of(records.record(&outcome.stored)?)?;
    let (failed_at_ms, reason) = (outcome.finished_at_ms, outcome.cause.name());
    let started_at_ms = Some(outcome.started_at_ms).filter(|&at_ms| at_ms > 0);
    let took_ms = started_at_ms.map_or(0, |at_ms| failed_at_ms.saturating_sub(at_ms));
    let redelivered = view.options.and_then(|options| options.redelivered);
    let mut entry = writer.begin_map();
    write_job(&mut entry.key("job"), &view, records)?;
    entry.key("enteredAt").uint(failed_at_ms);
    entry.key("reason").str(reason);
    entry.key("error").str(buried.error);
    let mut attempts = entry.key("attempts");
    let remembered = attempts_of(&view, records)?;
    attempts.array(remembered.len() + 1);
    for (retried, failed) in remembered {
        let began_ms = Some(failed.started_at_ms).filter(|&at_ms| at_ms > 0);
        let began_ms = began_ms.unwrap_or(retried.at_ms);
        let mut attempt = attempts.begin_map();
        attempt.key("attempt").uint(u64::from(failed.number));
        attempt.key("startedAt").uint(began_ms);
        attempt.key("failedAt").uint(retried.at_ms);
        attempt.key("reason").str(failed.cause.name());
        attempt.key("error").str(retried.error);
        attempt.key("duration").uint(retried.at_ms.saturating_sub(began_ms));
    }
    let mut attempt = attempts.begin_map();
    attempt.key("attempt").uint(u64::from(buried.attempts));
    attempt.key("startedAt").uint(started_at_ms.unwrap_or(failed_at_ms));
    attempt.key("failedAt").uint(failed_at_ms);
    attempt.key("reason").str(reason);
    attempt.key("error").str(buried.error);
    attempt.key("duration").uint(took_ms);
    drop(attempt);
    entry.key("retryCount").uint(redelivered.map_or(0, |before| u64::from(before.times)));
    entry.key("lastRetryAt").uint_or_nil(redelivered.map(|before| before.last_at_ms));
    entry.key("nextRetryAt").uint_or_nil(shard.redelivers_at_ms(now_ms, job));
    entry.key("expiresAt").uint_or_nil(shard.burial_expires_at_ms(job));
    Ok(())
}

/// `stats` of `GetDlqStats`.
pub fn write_dlq_stats(writer: &mut Writer<'_>, stats: &FailedStats) {
    let mut map = writer.begin_map();
    map.key("total").uint(stats.total);
    let mut by_reason = map.map("byReason");
    for (cause, count) in Cause::ALL.into_iter().zip(stats.by_cause) {
        by_reason.key(cause.name()).uint(count);
    }
    drop(by_reason);
    map.map("byQueue").key(&stats.queue).uint(stats.total);
    map.key("pendingRetry").uint(stats.retriable);
    map.key("expired").uint(stats.expired);
    map.key("oldestEntry").uint_or_nil(stats.oldest_ms);
    map.key("newestEntry").uint_or_nil(stats.newest_ms);
}
