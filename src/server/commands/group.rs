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

/// What is answered for the time to wait where nothing is counted.
const NO_WINDOW: i64 = -2;

/// What is answered to a question about a group.
enum Told {
    Number(Option<u64>),
    Rate(Option<GroupRate>),
    NoWindow,
    Flag(bool),
}

impl Told {
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
        let (name, told) = match ask {
            GroupAsk::JobsCount => ("count", Told::Number(Some(pending))),
            GroupAsk::ActiveCount => ("count", Told::Number(Some(active))),
            GroupAsk::RateLimit => ("limit", Told::Rate(set.rate)),
            GroupAsk::RateLimitTtl { .. } => {
                ("ttl", wait_ms.map_or(Told::NoWindow, |ms| Told::Number(Some(ms))))
            }
            GroupAsk::Concurrency => ("concurrency", Told::Number(set.active_max)),
            GroupAsk::Weight => ("weight", Told::Number(Some(u64::from(set.weight)))),
            GroupAsk::IsPaused => ("paused", Told::Flag(set.paused)),
        };
        self.respond(conns, ctx.origin, |_, sink| {
            write_data(sink, ctx.req_id, name, |to| told.write(to));
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
                let mut writer = reply::head(sink.out, true, ctx.req_id, 1);
                writer.str("groups");
                writer.array(rows.len());
                for (name, pending, active, set) in &rows {
                    writer.map(8);
                    writer.str("id");
                    writer.str(name);
                    writer.str("count");
                    writer.uint(*pending);
                    writer.str("active");
                    writer.uint(*active);
                    writer.str("paused");
                    writer.bool(set.paused);
                    writer.str("weight");
                    writer.uint(u64::from(set.weight));
                    writer.str("concurrency");
                    writer.uint_or_nil(set.active_max);
                    writer.str("limit");
                    write_rate(&mut writer, set.rate);
                    writer.str("heldFor");
                    let held_ms = set.held_until_ms.saturating_sub(now_ms);
                    writer.uint_or_nil((held_ms > 0).then_some(held_ms));
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
    writer.map(2);
    writer.str("max");
    writer.uint(rate.jobs);
    writer.str("duration");
    writer.uint(rate.span_ms);
}
