//! Questions about a queue as a whole: what limits it, and what it has done by the minute.

use crate::api::request::Finished;
use crate::protocol::reply;
use crate::server::connection::reply_writer::{framed, write_data};
use crate::server::shard_mail::message::ScatterQuery;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::job::State;

/// Answer for the time to wait where there is no rate.
const NO_RATE: i64 = -2;

impl ShardServer {
    /// Answers `GetQueueLimits`.
    pub(crate) fn queue_limits(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        jobs: u64,
    ) {
        let now_ms = self.now_ms;
        let queue = self.engine.shard.queue(queue);
        let limits = queue.and_then(|queue| queue.limits.as_deref());
        let over = |until_ms: u64| until_ms > 0 && until_ms <= now_ms;
        let rate = limits.and_then(corq_shards::Limits::rate).filter(|rate| !over(rate.until_ms));
        let wait_ms = match (rate, limits) {
            // The time of a rate that ends is until its end.
            (Some(rate), _) if rate.until_ms > 0 => (rate.until_ms - now_ms) as i64,
            (Some(_), Some(limits)) => limits.wait_ms(now_ms, jobs) as i64,
            _ => NO_RATE,
        };
        let active_max = limits.and_then(corq_shards::Limits::active_max);
        let active = queue.map_or(0, |queue| queue.count(State::Active));
        self.respond(conns, ctx.origin, |_, sink| {
            write_data(sink, ctx.req_id, "limits", |writer| {
                let mut limits = writer.begin_map();
                match rate {
                    None => limits.key("rateLimit").nil(),
                    Some(rate) => {
                        let mut map = limits.map("rateLimit");
                        map.key("max").uint(u64::from(rate.jobs));
                        map.key("duration").uint(u64::from(rate.span_ms));
                    }
                }
                limits.key("rateLimitTtl").int(wait_ms);
                limits.key("concurrencyLimit").uint_or_nil(active_max.map(u64::from));
                limits.key("maxed").bool(active_max.is_some_and(|max| active >= u64::from(max)));
            });
        });
    }

    /// `Metrics`: of one queue, or of the server.
    pub(crate) fn metrics(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: Option<&str>,
        of: Finished,
        (start, end): (u64, Option<u64>),
    ) {
        let Some(queue) = queue else {
            return self.scatter(conns, ctx, ScatterQuery::Metrics);
        };
        let now_ms = self.now_ms;
        let done = self.engine.shard.queue(queue).map(|queue| &queue.done[of as usize]);
        let done = done.cloned().unwrap_or_default();
        let counts = done.newest_first(now_ms, start, end.unwrap_or(u64::MAX));
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                let mut data = reply.map("data");
                let mut meta = data.map("meta");
                meta.key("count").uint(done.total);
                meta.key("prevTS").uint(done.last_ms);
                meta.key("prevCount").uint(done.last_count());
                drop(meta);
                let mut list = data.key("data");
                list.array(counts.len());
                for count in counts {
                    list.uint(count);
                }
                data.key("count").uint(done.len(now_ms));
            });
        });
    }
}
