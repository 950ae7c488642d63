//! Commands that touch many jobs of a queue. The engine does them in slices and answers at the end,
//! so each is parked, even if its answer comes at once.

use super::dlq::write_dlq_stats;
use super::job_record::{Show, Wanted};
use super::pending_replies::Shape;
use super::refusal_text;
use crate::api::request::{Body, DlqFilter, JobRef, StateFilter};
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::connection::reply_writer::{framed, write_data};
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::{Clean, Command, DlqScanRequest};
use corq_shards::dead_letter::scan::DlqScanFor;
use corq_shards::effect::{KnownAs, Reply};
use corq_shards::job::State;
use corq_shards::job::id::JobId;

/// What Clean is about if it names no states: everything but the jobs that workers have.
const CLEANED: StateFilter = StateFilter(!StateFilter::ACTIVE);

impl ShardServer {
    /// Carries out a command on many jobs of a queue.
    pub(crate) fn begin_bulk(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        body: &Body<'_>,
    ) {
        if let Body::RetryDlq { job: Some(job), .. } | Body::RetryCompleted { job: Some(job), .. } =
            body
            && self.try_as_name(conns, ctx, body, *job)
        {
            return;
        }
        let (states, scan_request);
        let command = match body {
            Body::Dlq { queue, count, filter } => {
                scan_request =
                    scan_request_of(queue, *filter, Some(u64::from(*count)), DlqScanFor::Listing);
                Some(Command::DlqScan(&scan_request))
            }
            Body::GetDlqStats(queue) => {
                scan_request = scan_request_of(queue, None, None, DlqScanFor::Stats);
                Some(Command::DlqScan(&scan_request))
            }
            Body::SetRule { queue, patch } => Some(Command::Rule { queue, patch: *patch }),
            Body::RetryDlq { queue, count, filter: Some(filter), .. } => {
                scan_request = scan_request_of(queue, Some(*filter), *count, DlqScanFor::Retry);
                Some(Command::DlqScan(&scan_request))
            }
            Body::RetryDlq { queue, job, count, .. } => {
                let count = count.unwrap_or(u64::MAX);
                Self::on_one(&ctx, *job).map(|job| Command::RetryFailed { queue, job, count })
            }
            Body::RetryCompleted { queue, job, count, until_ms } => {
                let (count, until_ms) = (count.unwrap_or(u64::MAX), until_ms.unwrap_or(u64::MAX));
                Self::on_one(&ctx, *job).map(|job| Command::RetryCompleted {
                    queue,
                    job,
                    count,
                    until_ms,
                })
            }
            Body::PromoteJobs { queue, count } => {
                Some(Command::PromoteAll { queue, count: count.unwrap_or(u64::MAX) })
            }
            Body::PurgeDlq(queue) => Some(Command::PurgeFailed { queue }),
            Body::Drain(queue) => Some(Command::Drain { queue }),
            Body::Obliterate(queue) => Some(Command::Obliterate { queue }),
            Body::Clean { queue, grace_ms, states: filter, limit } => {
                states = states_of(filter.unwrap_or(CLEANED));
                let (grace_ms, limit) = (*grace_ms, u64::from(*limit));
                Some(Command::Clean(Clean { queue, grace_ms, states: &states, limit }))
            }
            _ => None,
        };
        let Some(command) = command else {
            self.write_count(conns, ctx.origin, ctx.req_id, 0);
            return;
        };
        let request = self.park(ctx.origin, ctx.req_id, Shape::Bulk);
        let caller = Caller { request, ..Self::caller(&ctx) };
        self.apply(conns, caller, &command);
    }

    /// The one job that is meant, if one is: `None` if no job bears the id, which is not an error.
    #[allow(clippy::option_option, reason = "no job named and no job found are different things")]
    fn on_one(ctx: &RequestContext<'_>, job: Option<JobRef<'_>>) -> Option<Option<JobId>> {
        match job {
            Some(job) => ctx.id_of(job).map(Some),
            None => Some(None),
        }
    }

    /// Writes what came of it.
    pub(crate) fn write_bulk(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        reply: &Reply,
    ) {
        match reply {
            Reply::Count(count) => self.write_count(conns, origin, req_id, *count),
            Reply::Cleaned(ids) => self.respond(conns, origin, |_, sink| {
                framed(sink, req_id, |sink| {
                    let mut writer = reply::head(sink.out, true, req_id, 2);
                    writer.str("count");
                    writer.uint(ids.len() as u64);
                    writer.str("ids");
                    writer.array(ids.len());
                    ids.iter().for_each(|id| write_known_as(&mut writer, id));
                });
            }),
            Reply::Found(jobs) => {
                let (jobs, wanted) = (jobs.to_vec(), Wanted::DeadLetters);
                let show = Show { req_id: req_id.map(Into::into), jobs, wanted, begun: None };
                self.show(conns, origin, show, Vec::new());
            }
            Reply::FailedStats(stats) => self.respond(conns, origin, |_, sink| {
                write_data(sink, req_id, "stats", |writer| write_dlq_stats(writer, stats));
            }),
            // Too many of them wait, or there is no room for a rule.
            Reply::Refused { refusal, .. } => {
                let text = refusal_text(*refusal, JobRef::Id(JobId::default()));
                self.refuse(conns, origin, req_id, &text);
            }
            _ => self.respond(conns, origin, |_, sink| reply::ok(sink.out, req_id)),
        }
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

fn states_of(filter: StateFilter) -> Vec<State> {
    let bit = |state: State| match state {
        State::Vacant => 0,
        State::Waiting => StateFilter::WAITING,
        State::Delayed => StateFilter::DELAYED,
        State::Active => StateFilter::ACTIVE,
        State::Completed => StateFilter::COMPLETED,
        State::Failed => StateFilter::FAILED,
        State::WaitingChildren => StateFilter::WAITING_CHILDREN,
    };
    State::ALL.into_iter().filter(|&state| filter.has(bit(state))).collect()
}

fn write_known_as(writer: &mut Writer<'_>, id: &KnownAs) {
    match id {
        KnownAs::Id(id) => writer.uuid(id.0),
        KnownAs::Custom(name) => writer.str(name),
    }
}
