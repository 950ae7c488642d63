//! Carries out the commands of queues and jobs that this shard owns, and writes their answers.
//!
//! | file | responsibility |
//! |---|---|
//! | `bulk` | commands on all jobs of a queue, in slices |
//! | `dlq` | the dead-letter queue, and the rules of queues |
//! | `group` | groups of jobs |
//! | `job_change` | commands on one job in any state |
//! | `job_list` | pages of jobs, written slice by slice |
//! | `job_progress` | progress and log lines of a job |
//! | `job_read` | GetJob, GetState, GetResult and the like |
//! | `job_record` | jobs in full |
//! | `job_view` | a job as clients see it |
//! | `pending_replies` | commands that are answered later |
//! | `priority_counts` | GetCountsPerPriority, in slices |
//! | `refusal` | what the engine refuses, as an error for the client |
//! | `queue` | limits of a queue, and what it has done |
//! | `server_info` | what any shard answers: Ping, Hello |
//! | `wait_job` | waits for the end of a job |
//! | `worker` | the registry of workers |
//! | `worker_list` | the list of the workers of all shards |
//! | `worker_presence` | which queues have workers, and what their owner shards know of that |

pub(super) mod bulk;
pub(super) mod dlq;
pub(super) mod group;
pub(super) mod job_change;
pub(super) mod job_list;
pub(super) mod job_progress;
pub(super) mod job_read;
pub(super) mod job_record;
pub(super) mod job_view;
pub(super) mod pending_replies;
pub(super) mod priority_counts;
pub(super) mod queue;
pub(super) mod refusal;
pub(super) mod server_info;
pub(super) mod wait_job;
pub(super) mod worker;
pub(super) mod worker_list;
pub(super) mod worker_presence;

use super::commands::job_list::listing_of;
use super::commands::job_view::{write_delivery, write_pushed};
use super::commands::pending_replies::{CURRENT, Parked, Shape};
use super::commands::refusal::group_full;
use super::connection::reply_writer::{ReplyWriter, framed, write_data};
use super::multi_shard::row_pages::Kind as Rows;
use super::shard_mail::envelope::Origin;
use super::shard_mail::message::ScatterQuery;
use super::shard_mail::request_context::RequestContext;
use super::shard_server::ShardServer;
use super::storage::engine::Engine;
use crate::api::commands::{PerJob, command_table};
use crate::api::request::{Answer, Body, GroupAsk, JobRef};
use crate::protocol::reply;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::{Ack, Beat, Command, Fail, GroupLimit, Limit, PerSpan, Token};
use corq_shards::dead_letter::policy::RulePatch;
use corq_shards::effect::{Delivery, Effects, Refusal, Reply};
use corq_shards::family::How;
use corq_shards::group::GroupRate;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use std::ops::Range;

/// Why the outcome of an attempt is not taken that the server has ended for its time.
pub(super) const TOO_LATE: &str = "already-finalized";

macro_rules! executor {
    ($($op:ident $name:literal $([$take:ident, $specs:expr])? {
        $($field:ident: $type:ty $(= $spec:expr)?),* $(,)?
    } => $class:expr, $reply:expr, $route:expr, $run:ident($($argument:expr),* $(,)?);)*) => {
        impl ShardServer {
            /// Carries out a command that belongs to this shard, by the call in its row.
            #[allow(unused_variables, reason = "a call takes the fields that it needs")]
            pub(super) fn execute(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
                match ctx.body {
                    $(Body::$op { $($field),* } => self.$run(conns, ctx, $($argument),*)),*
                }
            }
        }
    };
}

command_table!(executor);

impl ShardServer {
    pub(super) fn caller(ctx: &RequestContext<'_>) -> Caller {
        Caller { client: ctx.origin.client, request: CURRENT }
    }

    /// The engine's answer to the command that was just applied.
    pub(super) fn own_reply(&self) -> Option<Reply> {
        let own = self.effects.replies.iter().find(|(request, _)| *request == CURRENT);
        own.map(|(_, reply)| reply.clone())
    }

    fn ack(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
        token: Option<Token>,
        result: &[u8],
        remove: bool,
    ) {
        if let Some(id) = self.id_or_forward(conns, ctx, job) {
            let token = ctx.origin.token(token);
            let acks = [Ack { job: id, token, result, remove }];
            self.apply(conns, Self::caller(&ctx), &Command::Ack { acks: &acks });
            self.answer_on_job(conns, ctx, job, Answer::Ok);
        }
    }

    fn push(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        jobs: &[NewJob<'_>],
        is_batch: bool,
    ) {
        self.apply(conns, Self::caller(&ctx), &Command::Push { queue, jobs });
        let pushed = match self.own_reply() {
            Some(Reply::Pushed(pushed)) => pushed,
            Some(Reply::Refused { place, refusal: Refusal::GroupFull }) => {
                let error = group_full(jobs.get(place), is_batch.then_some(place));
                self.refuse(conns, ctx.origin, ctx.req_id, &error);
                return;
            }
            Some(Reply::Refused { refusal, .. }) => {
                self.refuse_push(conns, ctx.origin, ctx.req_id, refusal, jobs.len());
                return;
            }
            _ => return,
        };
        let effects = std::mem::take(&mut self.effects);
        let jobs = &effects.pushed[pushed];
        self.respond(conns, ctx.origin, |_, sink| {
            if is_batch {
                framed(sink, ctx.req_id, |sink| {
                    let mut writer = reply::head(sink.out, true, ctx.req_id, 1);
                    writer.str("ids");
                    writer.array(jobs.len());
                    for job in jobs {
                        write_pushed(&mut writer, job);
                    }
                });
            } else {
                framed(sink, ctx.req_id, |sink| {
                    let mut writer = reply::head(sink.out, true, ctx.req_id, 1);
                    writer.str("id");
                    for job in jobs {
                        write_pushed(&mut writer, job);
                    }
                });
            }
        });
        self.effects = effects;
    }

    /// The log has no room for a push.
    pub(super) fn refuse_push(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        refusal: Refusal,
        jobs: usize,
    ) {
        self.compaction.refused_pushes += jobs as u64;
        let error = self.refusal_error(refusal, JobRef::Custom(""));
        self.refuse(conns, origin, req_id, &error);
    }

    fn pull(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        pull: &corq_shards::command::Pull<'_>,
        is_batch: bool,
    ) {
        let locked = pull.locked;
        let shape = if is_batch { Shape::Batch { locked } } else { Shape::Single { locked } };
        let mut caller = Self::caller(&ctx);
        // A pull that another shard sent on before it knew of the end must not hold the end up.
        let timeout_ms = if self.stopping { 0 } else { pull.timeout_ms };
        // One that brings limits of its own may have to wait until they have been compared with all groups.
        if timeout_ms > 0 || pull.group.is_some() {
            caller.request = self.park(ctx.origin, ctx.req_id, shape);
        }
        let pull = corq_shards::command::Pull { timeout_ms, ..*pull };
        self.apply(conns, caller, &Command::Pull(pull));
        match self.own_reply() {
            Some(Reply::Pulled(range)) => {
                self.write_pulled(conns, ctx.origin, ctx.req_id, shape, range);
            }
            Some(Reply::Refused { refusal, .. }) => {
                let error = self.refusal_error(refusal, JobRef::Custom(""));
                self.refuse(conns, ctx.origin, ctx.req_id, &error);
            }
            _ => {}
        }
    }

    fn write_pulled(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        shape: Shape,
        range: Range<usize>,
    ) {
        let effects = std::mem::take(&mut self.effects);
        self.respond(conns, origin, |engine, sink| {
            framed(sink, req_id, |sink| {
                write_deliveries(sink, engine, &effects, req_id, shape, &range);
            });
        });
        self.effects = effects;
    }

    /// Writes the answer to a command that was parked.
    pub(super) fn write_parked(&mut self, conns: &mut Connections, parked: &Parked, reply: &Reply) {
        let req_id = parked.req_id.as_deref();
        match reply {
            Reply::Pulled(range) => {
                self.write_pulled(conns, parked.origin, req_id, parked.shape, range.clone());
            }
            Reply::Ended(ending) => {
                self.write_ending(conns, parked.origin, req_id, Some(*ending));
            }
            Reply::Unended => self.write_ending(conns, parked.origin, req_id, None),
            Reply::Count(count) if parked.shape == Shape::FreedKey => {
                self.respond(conns, parked.origin, |_, sink| {
                    write_data(sink, req_id, "count", |writer| writer.uint(*count));
                });
            }
            Reply::Refused { refusal, .. } if parked.shape != Shape::Bulk => {
                let error = self.refusal_error(*refusal, JobRef::Custom(""));
                self.refuse(conns, parked.origin, req_id, &error);
            }
            other => self.write_bulk(conns, parked.origin, req_id, other),
        }
    }

    pub(super) fn write_count(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        count: u64,
    ) {
        self.respond(conns, origin, |_, sink| {
            framed(sink, req_id, |sink| {
                let mut writer = reply::head(sink.out, true, req_id, 1);
                writer.str("count");
                writer.uint(count);
            });
        });
    }

    /// The id of a job that a command names; none if the command goes on elsewhere. No job bears the zero id, so
    /// the engine refuses what is done to it in its own words.
    pub(super) fn id_or_forward(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
    ) -> Option<JobId> {
        (!self.try_as_name(conns, ctx, job)).then(|| ctx.id_of(job).unwrap_or_default())
    }

    /// Carries out a command on one job and answers, or says why not.
    fn on_job<'c>(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
        answer: Answer,
        command: impl FnOnce(JobId, Origin) -> Command<'c>,
    ) {
        if let Some(id) = self.id_or_forward(conns, ctx, job) {
            self.apply(conns, Self::caller(&ctx), &command(id, ctx.origin));
            self.answer_on_job(conns, ctx, job, answer);
        }
    }

    /// Changes a job in a way that the command alone tells.
    fn change(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
        answer: Answer,
        change: Change<'_>,
    ) {
        self.on_job(conns, ctx, job, answer, |job, _| Command::Change { job, change });
    }

    /// Answers a command on one job that the engine has just judged.
    pub(super) fn answer_on_job(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
        answer: Answer,
    ) {
        match self.own_reply() {
            Some(Reply::Refused { refusal: Refusal::TooLate, .. }) if !ctx.origin.tokenless => {
                self.respond(conns, ctx.origin, |_, sink| write_too_late(sink, ctx.req_id));
            }
            Some(Reply::Refused { refusal, .. }) => {
                let error = self.refusal_error(refusal, job);
                self.refuse(conns, ctx.origin, ctx.req_id, &error);
            }
            Some(Reply::Count(count)) => self.write_done(conns, ctx, answer, count),
            _ => self.write_done(conns, ctx, answer, 1),
        }
    }

    /// Answers a command that has changed so much.
    pub(super) fn write_done(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        answer: Answer,
        changed: u64,
    ) {
        self.respond(conns, ctx.origin, |_, sink| match answer {
            Answer::Ok => reply::ok(sink.out, ctx.req_id),
            Answer::Alive => write_data(sink, ctx.req_id, "ok", |writer| writer.bool(true)),
            Answer::Flag(name) => {
                write_data(sink, ctx.req_id, name, |writer| writer.bool(changed > 0));
            }
            Answer::Count(name) => {
                write_data(sink, ctx.req_id, name, |writer| writer.uint(changed));
            }
        });
    }

    /// Answers `RateLimit`.
    fn rate_limit(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        (jobs, span_ms): (u32, u32),
        ttl_ms: Option<u64>,
    ) {
        let until_ms = ttl_ms.map_or(0, |ttl_ms| self.now_ms + ttl_ms);
        let limit = Limit::Rate(Some(PerSpan { jobs, span_ms, until_ms }));
        self.set(conns, ctx, &Command::Limit { queue, limit });
    }

    /// Changes what is set for a queue.
    fn set(&mut self, conns: &mut Connections, ctx: RequestContext<'_>, command: &Command<'_>) {
        self.apply(conns, Self::caller(&ctx), command);
        self.answer_on_job(conns, ctx, JobRef::Custom(""), Answer::Ok);
    }

    /// `RemoveDeduplicationKey`: answered later where many hold it.
    fn free_key(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        key: &str,
    ) {
        let request = self.park(ctx.origin, ctx.req_id, Shape::FreedKey);
        let caller = Caller { request, ..Self::caller(&ctx) };
        self.apply(conns, caller, &Command::FreeKey { queue, key });
    }

    /// `TrimEvents`: nothing of events is kept that could be trimmed.
    fn trim_events(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        self.write_done(conns, ctx, Answer::Count("removed"), 0);
    }
}

fn write_deliveries(
    sink: &mut ReplyWriter<'_>,
    engine: &Engine,
    effects: &Effects,
    req_id: Option<&[u8]>,
    shape: Shape,
    range: &Range<usize>,
) {
    let deliveries = &effects.deliveries[range.clone()];
    let (is_batch, locked) = match shape {
        Shape::Batch { locked } => (true, locked),
        Shape::Single { locked } => (false, locked),
        Shape::Bulk | Shape::FreedKey | Shape::Ending => return,
    };
    // What a call delivers outlives it, see `Delivery`; one that did not would be left out of both lists.
    let there = |one: &&Delivery| engine.shard.look(one.job).is_some();
    let jobs = deliveries.iter().filter(there).count();
    let mut writer = reply::head(sink.out, true, req_id, 1 + usize::from(locked));
    writer.str(if is_batch { "jobs" } else { "job" });
    if is_batch {
        writer.array(jobs);
    } else if jobs == 0 {
        writer.nil();
    }
    for view in deliveries.iter().filter_map(|one| engine.shard.look(one.job)) {
        write_delivery(&mut writer, engine, &view, sink.placeholders);
    }
    if !locked {
        return;
    }
    writer.str(if is_batch { "tokens" } else { "token" });
    if is_batch {
        writer.array(jobs);
    } else if jobs == 0 {
        writer.nil();
    }
    for token in deliveries.iter().filter(there).filter_map(|delivery| delivery.token) {
        writer.uuid(token.0);
    }
}

/// The answer to a client that finishes an attempt which is over already.
fn write_too_late(sink: &mut ReplyWriter<'_>, req_id: Option<&[u8]>) {
    framed(sink, req_id, |sink| {
        let mut writer = reply::head(sink.out, true, req_id, 1);
        writer.str("data");
        writer.map(2);
        writer.str("applied");
        writer.bool(false);
        writer.str("reason");
        writer.str(TOO_LATE);
    });
}

/// How many jobs were renewed, and the places of those that were not.
pub(super) fn write_renewed(
    sink: &mut ReplyWriter<'_>,
    req_id: Option<&[u8]>,
    renewed: u64,
    gone: &[usize],
) {
    framed(sink, req_id, |sink| {
        let mut writer = reply::head(sink.out, true, req_id, 1);
        writer.str("data");
        writer.map(2 + usize::from(!gone.is_empty()));
        writer.str("ok");
        writer.bool(true);
        writer.str("count");
        writer.uint(renewed);
        if !gone.is_empty() {
            writer.str("goneIndices");
            writer.array(gone.len());
            for &place in gone {
                writer.uint(place as u64);
            }
        }
    });
}
