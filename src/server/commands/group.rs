//! Commands on groups of jobs: what is set for them, and what they have.

use crate::api::error::ErrorKind;
use crate::api::request::{Answer, GroupAsk, JobRef};
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::connection::reply_writer::{framed, write_data};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::command::{Command, GroupLimit};
use corq_shards::group::{GroupRate, GroupSettings};
use corq_shards::queue::Queue;

/// Answer for the time to wait where no window counts jobs.
const NO_WINDOW: i64 = -2;

/// Answer to a question about a group.
enum GroupAnswer {
    Number(Option<u64>),
    Rate(Option<GroupRate>),
    NoWindow,
    Flag(bool),
}

impl GroupAnswer {
    fn write(&self, writer: &mut Writer<'_>) {
        match *self {
            Self::Number(number) => writer.uint_or_nil(number),
            Self::Rate(rate) => write_rate(writer, rate),
            Self::NoWindow => writer.int(NO_WINDOW),
            Self::Flag(flag) => writer.bool(flag),
        }
    }
}

impl ShardServer {
    /// A question about one group.
    pub(crate) fn ask_group(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        (queue, group): (&str, &str),
        ask: GroupAsk,
    ) {
        let now_ms = self.now_ms;
        let shard = &mut self.engine.shard;
        let wait_ms = match ask {
            GroupAsk::RateLimitTtl { jobs } => shard.group_wait_ms(now_ms, (queue, group), jobs),
            _ => None,
        };
        let found = shard.group(queue, group);
        let (pending, active) = found.map_or((0, 0), |group| (group.pending, group.active));
        let set = found.map_or_else(GroupSettings::default, |group| group.settings);
        let (name, answer) = match ask {
            GroupAsk::JobsCount => ("count", GroupAnswer::Number(Some(pending))),
            GroupAsk::ActiveCount => ("count", GroupAnswer::Number(Some(active))),
            GroupAsk::RateLimit => ("limit", GroupAnswer::Rate(set.rate)),
            GroupAsk::RateLimitTtl { .. } => {
                ("ttl", wait_ms.map_or(GroupAnswer::NoWindow, |ms| GroupAnswer::Number(Some(ms))))
            }
            GroupAsk::Concurrency => ("concurrency", GroupAnswer::Number(set.active_max)),
            GroupAsk::Weight => ("weight", GroupAnswer::Number(Some(u64::from(set.weight)))),
            GroupAsk::IsPaused => ("paused", GroupAnswer::Flag(set.paused)),
        };
        self.respond(conns, ctx.origin, |_, sink| {
            write_data(sink, ctx.req_id, name, |to| answer.write(to));
        });
    }

    /// Changes what is set for a group.
    pub(crate) fn set_for_group(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        (queue, group): (&str, &str),
        answer: Answer,
        limit: GroupLimit,
    ) {
        self.apply(conns, Self::caller(&ctx), &Command::LimitGroup { queue, group, limit });
        self.answer_on_job(conns, ctx, JobRef::Custom(""), answer);
    }

    /// Answers `GetGroupsJobsCount`.
    pub(crate) fn jobs_in_groups(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
    ) {
        let count = self.engine.shard.queue(queue).map_or(0, Queue::pending_in_groups);
        self.respond(conns, ctx.origin, |_, sink| {
            write_data(sink, ctx.req_id, "count", |writer| writer.uint(count));
        });
    }

    /// Answers `GetGroups`.
    pub(crate) fn list_groups(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        limit: u32,
        after: Option<&str>,
    ) {
        let now_ms = self.now_ms;
        let Some(groups) = self.engine.shard.groups_of(queue, after) else {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::GroupNotFound);
            return;
        };
        let groups = groups.take(limit as usize);
        let rows: Vec<(Box<str>, u64, u64, GroupSettings)> =
            groups.map(|it| (it.name.into(), it.pending, it.active, it.settings)).collect();
        self.meter.note(rows.len());
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                let mut groups = reply.key("groups");
                groups.array(rows.len());
                for (name, pending, active, set) in &rows {
                    let mut row = groups.begin_map();
                    row.key("id").str(name);
                    row.key("count").uint(*pending);
                    row.key("active").uint(*active);
                    row.key("paused").bool(set.paused);
                    row.key("weight").uint(u64::from(set.weight));
                    row.key("concurrency").uint_or_nil(set.active_max);
                    write_rate(&mut row.key("limit"), set.rate);
                    let held_ms = set.held_until_ms.saturating_sub(now_ms);
                    row.key("heldFor").uint_or_nil((held_ms > 0).then_some(held_ms));
                }
            });
        });
    }
}

fn write_rate(writer: &mut Writer<'_>, rate: Option<GroupRate>) {
    let Some(rate) = rate else {
        writer.nil();
        return;
    };
    let mut map = writer.begin_map();
    map.key("max").uint(rate.jobs);
    map.key("duration").uint(rate.span_ms);
}
