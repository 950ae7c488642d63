//! Carries out the commands of queues and jobs that this shard owns, and writes their answers.
//!
//! | file | responsibility |
//! |---|---|
//! | `ack` | ACK |
//! | `ack_reply` | what else than ok is answered about attempts |
//! | `bulk` | commands on all jobs of a queue, in slices |
//! | `cleaned_ids` | the answer of Clean, in slices |
//! | `dlq` | the dead-letter queue, and the rules of queues |
//! | `explain` | Explain: why a job does not run |
//! | `given_options` | what a worker is shown of how a job was pushed |
//! | `group` | groups of jobs |
//! | `job_change` | commands on one job in any state |
//! | `job_detail` | GetJobDetail: a job with its attempts, its log and its children |
//! | `job_list` | pages of jobs, written slice by slice |
//! | `job_progress` | progress and log lines of a job |
//! | `job_read` | GetJob, GetState, GetResult and the like |
//! | `job_record` | jobs in full |
//! | `job_record_list` | which jobs, and lists on their way: data only |
//! | `job_view` | a job as clients see it |
//! | `pending_replies` | commands that are answered later |
//! | `priority_counts` | GetCountsPerPriority, in slices |
//! | `pull` | PULL, PULLB |
//! | `push` | PUSH, PUSHB |
//! | `refusal` | what the engine refuses, as an error for the client |
//! | `queue` | limits of a queue, and what it has done |
//! | `server_info` | what any shard answers: Ping, Hello |
//! | `wait_job` | waits for the end of a job |
//! | `worker` | the registry of workers |
//! | `worker_list` | the list of the workers of all shards |

pub(super) mod ack;
pub(super) mod ack_reply;
pub(super) mod bulk;
mod cleaned_ids;
pub(super) mod dlq;
pub(super) mod explain;
pub(super) mod given_options;
pub(super) mod group;
pub(super) mod job_change;
pub(super) mod job_detail;
pub(super) mod job_list;
pub(super) mod job_progress;
pub(super) mod job_read;
pub(super) mod job_record;
pub(super) mod job_record_list;
pub(super) mod job_view;
pub(super) mod pending_replies;
mod priority_counts;
pub(super) mod pull;
pub(super) mod push;
pub(super) mod queue;
pub(super) mod refusal;
pub(super) mod server_info;
pub(super) mod wait_job;
pub(super) mod worker;
pub(super) mod worker_list;

use super::commands::ack_reply::write_too_late;
use super::commands::pending_replies::{CURRENT, Parked, Shape};
use super::commands::refusal::{lack_error, refusal_error};
use super::commands::worker_list::{About, Told};
use super::connection::reply_writer::{framed, write_data};
use super::multi_shard::row_lists::Kind as Rows;
use super::shard_mail::envelope::Origin;
use super::shard_mail::message::ScatterQuery;
use super::shard_mail::request_context::RequestContext;
use super::shard_server::ShardServer;
use crate::api::commands::{PerJob, command_table};
use crate::api::error::{Error, ErrorKind};
use crate::api::request::{Answer, Body, GroupAsk, JobRef, unlimited};
use crate::protocol::reply;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::{Beat, Command, Fail, GroupLimit, Limit, PerSpan};
use corq_shards::dead_letter::policy::RulePatch;
use corq_shards::effect::{Refusal, Reply};
use corq_shards::family::How;
use corq_shards::group::GroupRate;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;

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

    /// Takes the engine's answer to the command that was just applied.
    pub(super) fn own_reply(&mut self) -> Option<Reply> {
        let replies = &mut self.effects.replies;
        let place = replies.iter().position(|(request, _)| *request == CURRENT)?;
        Some(replies.swap_remove(place).1)
    }

    /// Why the log of this shard has no room.
    pub(super) fn no_room(&self) -> ErrorKind {
        lack_error(self.engine.journal.log.lack())
    }

    /// Why this shard has refused something.
    pub(super) fn refusal_error(&self, refusal: Refusal, job: JobRef<'_>) -> Error {
        match refusal {
            Refusal::Full => self.no_room().into(),
            other => refusal_error(other, job),
        }
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
                reply::begin(sink.out, true, req_id).key("count").uint(count);
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
        let is_strict = ctx.origin.version.is_three();
        let change = if is_strict { change.with_token_if_locked() } else { change };
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
            // Clients of version 3 read no more than whether the move was done.
            Some(Reply::Count(0)) if answer == Answer::Moved && ctx.origin.version.is_three() => {
                self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::NothingToWaitFor);
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
            Answer::Moved => {
                write_data(sink, ctx.req_id, "moved", |writer| writer.bool(changed > 0));
            }
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
