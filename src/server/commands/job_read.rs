//! Questions about jobs and queues of this shard. What they need of the log may have to be read from
//! the disk first; then the question is asked again.

use super::job_record_list::{Show, Wanted};
use super::job_view::{write_id, write_ref};
use crate::api::error::ErrorKind;
use crate::api::request::JobRef;
use crate::api::version::Version;
use crate::protocol::decode::decode_frame;
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::reply;
use crate::server::connection::reply_writer::{framed, write_data};
use crate::server::dashboard::queue_page::{NAMES, NO_COUNTS, counts_by_state, counts_once};
use crate::server::operations::operation::Operation;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use crate::server::storage::cold_reads::{Continuation, Waiting};
use crate::server::storage::engine::{Absent, Fetched, Records};
use corq_io::net::Connections;
use corq_shards::job::State;
use corq_shards::log_record::location::LogRef;
use corq_shards::queue::Queue;
use corq_shards::queue::listing::States;

impl ShardServer {
    /// Answers `GetDeduplicationJobId`.
    pub(crate) fn holder_of_key(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        key: &str,
    ) {
        let holder = self.engine.shard.holder_of(self.now_ms, queue, key);
        self.respond(conns, ctx.origin, |engine, sink| {
            write_data(sink, ctx.req_id, "jobId", |writer| match holder {
                Some(job) => write_id(writer, &engine.shard.view(job)),
                None => writer.nil(),
            });
        });
    }

    /// Answers `Count`.
    pub(crate) fn count_jobs(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
    ) {
        let counted = match ctx.origin.version {
            Version::Two => States::all(),
            Version::Three => [State::Waiting, State::Delayed].into_iter().collect(),
        };
        let count = self.engine.shard.queue(queue).map_or(0, |queue| queue.count_of(counted));
        self.write_count(conns, ctx.origin, ctx.req_id, count);
    }

    /// Answers `IsPaused`.
    pub(crate) fn is_paused(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
    ) {
        let paused = self.engine.shard.queue(queue).is_some_and(Queue::is_paused);
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                reply::begin(sink.out, true, ctx.req_id).key("paused").bool(paused);
            });
        });
    }

    /// Asks for records, after which the question is asked again.
    pub(crate) fn read_then_ask(&mut self, ctx: RequestContext<'_>, records: &[LogRef]) {
        let continuation = Continuation::Ask { frame: ctx.frame.into(), lookup: ctx.lookup };
        self.read_first(ctx.origin, continuation, records, ctx.fetched.to_vec());
    }

    /// Starts reads, after which `then` follows.
    pub(crate) fn read_first(
        &mut self,
        origin: Origin,
        continuation: Continuation,
        records: &[LogRef],
        fetched: Vec<Fetched>,
    ) {
        self.deferred(origin);
        for (token, stored) in self.cold.wait(origin, continuation, records, fetched) {
            let position = corq_io::log::Position(stored.position);
            self.engine.journal.log.read_cold(position, stored.record_bytes as usize, token);
        }
    }

    /// A record has been read, or could not be.
    pub fn record_arrived(
        &mut self,
        conns: &mut Connections,
        token: u64,
        bytes: Option<Box<[u8]>>,
    ) {
        let Some(waiting) = self.cold.arrived(token, bytes) else { return };
        let Waiting { origin, continuation, fetched, .. } = waiting;
        self.answered(origin);
        match continuation {
            Continuation::Send { mut frame, placeholders } => {
                if Waiting::fill(&mut frame, &placeholders, &fetched) {
                    self.send_frame(conns, origin, &frame);
                } else {
                    self.refuse_frame(conns, origin, &frame);
                }
            }
            Continuation::Ask { frame, lookup } => {
                if let Ok(request) = decode_frame(frame.view(), origin.version) {
                    self.meter_command(request.op, frame.len());
                    let (req_id, frame, body) = (request.req_id, frame.view(), &request.body);
                    let fetched = &fetched;
                    let ctx = RequestContext { origin, req_id, frame, body, lookup, fetched };
                    self.execute(conns, ctx);
                }
            }
            Continuation::Operation(operation) => self.run_slice(conns, operation, fetched),
            Continuation::Task { number } => self.go_on_with_bulk_task(conns, number, &fetched),
            Continuation::Detail(detail) => self.show_job_detail(conns, *detail, fetched),
            Continuation::SharedValue(stored) => self.value_arrived(stored, &fetched),
            Continuation::PostWebhook { place } => self.trigger_record_arrived(place, &fetched),
            Continuation::Report(report) => self.report_record_arrived(report, &fetched),
            Continuation::ParentLink { step, link } => {
                self.child_record_arrived(conns, step, link, &fetched);
            }
            Continuation::PublishEvent { place } => self.event_record_arrived(place, &fetched),
            Continuation::Nothing => {}
        }
    }

    /// Sends an error in place of a reply that was written and cannot be completed.
    fn refuse_frame(&mut self, conns: &mut Connections, origin: Origin, frame: &[u8]) {
        let req_id = reply::req_id_of(&frame[PREFIX_BYTES..]);
        self.refuse(conns, origin, req_id, ErrorKind::Damaged);
    }

    pub(crate) fn get_job(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
    ) {
        if self.try_as_name(conns, ctx, job) {
            return;
        }
        let jobs = ctx.id_of(job).into_iter().collect();
        let (req_id, wanted) = (ctx.req_id.map(Into::into), Wanted::Job);
        let show = Show { origin: ctx.origin, req_id, jobs, wanted, begun: None };
        self.begin_operation(conns, Operation::Show(show));
    }

    pub(crate) fn get_result(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
    ) {
        if self.try_as_name(conns, ctx, job) {
            return;
        }
        let found = ctx.id_of(job).and_then(|id| self.engine.shard.find(id));
        let view = found.map(|index| self.engine.shard.view(index));
        if view.is_none() && !ctx.origin.version.is_three() {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::JobNotFound);
            return;
        }
        let completed = view.filter(|view| view.job.state == State::Completed);
        let outcome = completed.and_then(|view| view.outcome);
        let stored = outcome.map(|outcome| outcome.stored).filter(|at| at.payload_bytes > 0);
        let records = Records::new(&self.engine.journal, ctx.fetched);
        match stored.map(|stored| (stored, records.payload(&stored))) {
            Some((stored, Err(Absent::Cold))) => self.read_then_ask(ctx, &[stored]),
            Some((_, Err(Absent::Damaged))) => {
                self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::Damaged);
            }
            _ => self.respond(conns, ctx.origin, |engine, sink| {
                let records = Records::new(&engine.journal, ctx.fetched);
                let result = stored.and_then(|stored| records.payload(&stored).ok());
                framed(sink, ctx.req_id, |sink| {
                    let mut reply = reply::begin(sink.out, true, ctx.req_id);
                    write_ref(&mut reply.key("id"), job);
                    // In version 3 a result that there is not stands nowhere: null is one that a worker may give.
                    if result.is_some() || !ctx.origin.version.is_three() {
                        reply.key("result").raw_or_nil(result.unwrap_or_default());
                    }
                });
            }),
        }
    }

    pub(crate) fn get_state(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
    ) {
        if self.try_as_name(conns, ctx, job) {
            return;
        }
        let found = ctx.id_of(job).and_then(|id| self.engine.shard.find(id));
        self.respond(conns, ctx.origin, |engine, sink| {
            let state = found.map_or(State::Vacant, |index| engine.shard.view(index).job.state);
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                write_ref(&mut reply.key("id"), job);
                reply.key("state").str(state.name());
            });
        });
    }

    pub(crate) fn job_counts(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
    ) {
        let is_three = ctx.origin.version.is_three();
        let counts = self.engine.shard.queue(queue).map_or(NO_COUNTS, |queue| {
            if is_three { counts_once(queue) } else { counts_by_state(queue) }
        });
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                let mut map = reply.map("counts");
                for (name, count) in NAMES.iter().zip(counts) {
                    map.key(name).uint(count);
                }
            });
        });
    }
}
