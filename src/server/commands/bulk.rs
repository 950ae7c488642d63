//! Commands that touch many jobs of a queue. The engine does them in slices and answers at the end,
//! so each is parked, even if its answer comes at once.

use super::dlq::write_dlq_stats;
use super::job_record_list::{Show, Wanted};
use super::pending_replies::Shape;
use super::refusal::refusal_error;
use crate::api::request::{JobRef, StateFilter, unlimited};
use crate::protocol::reply;
use crate::server::connection::reply_writer::write_data;
use crate::server::operations::operation::Operation;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::{Clean, Command};
use corq_shards::effect::Reply;
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::queue::listing::Views;

/// States of the jobs that Clean removes if it names none: all but active, whose jobs workers have.
const CLEANED: StateFilter = StateFilter(!StateFilter::ACTIVE);

impl ShardServer {
    /// Begins a command on many jobs of a queue.
    pub(crate) fn begin_bulk(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        command: &Command<'_>,
    ) {
        let request = self.park(ctx.origin, ctx.req_id, Shape::Bulk);
        let caller = Caller { request, ..Self::caller(&ctx) };
        self.apply(conns, caller, command);
    }

    /// Begins a command on one job if one is named, else on the jobs of a queue. That no job bears the id is not an
    /// error.
    pub(super) fn bulk_or_one<'c>(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: Option<JobRef<'_>>,
        command: impl FnOnce(Option<JobId>) -> Command<'c>,
    ) {
        let Some(job) = job else { return self.begin_bulk(conns, ctx, &command(None)) };
        if self.try_as_name(conns, ctx, job) {
            return;
        }
        match ctx.id_of(job) {
            Some(id) => self.begin_bulk(conns, ctx, &command(Some(id))),
            None => self.write_count(conns, ctx.origin, ctx.req_id, 0),
        }
    }

    /// Answers `Drain`. In version 3 of the protocol delayed jobs go as well, unless the command says that they stay.
    pub(crate) fn drain(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        delayed: Option<bool>,
    ) {
        let command = if delayed.unwrap_or(ctx.origin.version.is_three()) {
            Command::DrainAll { queue }
        } else {
            Command::Drain { queue }
        };
        self.begin_bulk(conns, ctx, &command);
    }

    /// Answers `Clean`.
    pub(crate) fn clean(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        grace_ms: u64,
        states: Option<StateFilter>,
        limit: u32,
    ) {
        let views = states.map_or(Views::default(), StateFilter::views);
        let states = states_of(states.unwrap_or(CLEANED));
        let clean =
            Clean { queue, grace_ms, states: &states, limit: unlimited(Some(limit.into())) };
        let command = if views == Views::default() {
            Command::Clean(clean)
        } else {
            Command::CleanViews { clean, views }
        };
        self.begin_bulk(conns, ctx, &command);
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
            Reply::Cleaned(ids) => self.write_cleaned(conns, origin, req_id, ids),
            Reply::Found(jobs) => {
                let (jobs, wanted) = (jobs.to_vec(), Wanted::DeadLetters);
                let req_id = req_id.map(Into::into);
                let show = Show { origin, req_id, jobs, wanted, begun: None };
                self.begin_operation(conns, Operation::Show(show));
            }
            Reply::FailedStats(stats) => self.respond(conns, origin, |_, sink| {
                write_data(sink, req_id, "stats", |writer| write_dlq_stats(writer, stats));
            }),
            // Too many of them wait, or there is no room for a rule.
            Reply::Refused { refusal, .. } => {
                let error = refusal_error(*refusal, JobRef::Id(JobId::default()));
                self.refuse(conns, origin, req_id, &error);
            }
            _ => self.respond(conns, origin, |_, sink| reply::ok(sink.out, req_id)),
        }
    }
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
