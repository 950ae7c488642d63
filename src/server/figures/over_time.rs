//! `History` and `Heatmap`: what happened in a span, of one queue or of all, by points of time.

use super::messages::Shows;
use crate::api::commands::SERIES;
use crate::api::error::{Error, ErrorKind};
use crate::api::request::StateFilter;
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::stats::history::record::Sums;
use corq_shards::stats::history::share::{Share, each_point};
use corq_shards::stats::history::span::{STEP_MS, Span};
use corq_shards::stats::history::spread::least_ms;

/// Points that are put together in about the time of a step.
const POINTS_PER_STEP: usize = 8;

/// How points are asked for: their length, how many, and until when.
type Asked = (u64, u32, Option<u64>);

/// All series, as a mask.
const ALL_SERIES: u32 = (1 << SERIES.len()) - 1;

/// The values of a point, in the order of [`SERIES`].
fn values(sums: &Sums) -> [Option<u64>; SERIES.len()] {
    [
        Some(sums.pushed),
        Some(sums.completed),
        Some(sums.failed),
        sums.waiting,
        sums.waits.percentile_ms(50),
        sums.waits.percentile_ms(99),
        sums.runs.percentile_ms(50),
        sums.runs.percentile_ms(99),
    ]
}

/// Writes the head of an answer: its queue or shard, whether there is a history, and the times of the points.
fn write_head(
    data: &mut MapWriter<'_>,
    (queue, shard): (Option<&str>, Option<u16>),
    span: Span,
    shares: &[&Share],
) {
    if let Some(queue) = queue {
        data.key("queue").str(queue);
    }
    if let Some(shard) = shard {
        data.key("shard").uint(u64::from(shard));
    }
    data.key("tracked").bool(!shares.is_empty());
    data.key("from").uint(span.begins_ms(0));
    data.key("step").uint(span.per_point * STEP_MS);
    data.key("points").uint(u64::from(span.points));
}

impl ShardServer {
    fn span_of(&self, (point_ms, points, until_ms): Asked) -> Span {
        let until_ms = until_ms.map_or(self.now_ms, |until_ms| until_ms.min(self.now_ms));
        Span::until(until_ms, point_ms, points)
    }

    /// Answers `History`.
    pub(crate) fn history(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: Option<&str>,
        series: Option<StateFilter>,
        asked: Asked,
    ) {
        let span = self.span_of(asked);
        let series = series.map_or(ALL_SERIES, |series| series.0);
        let Some(queue) = queue else {
            let shards = self.slots.shards();
            return self.ask_for_figures(ctx, Shows::History(span, series), 0..shards);
        };
        let share = self.share_of_queue(queue, span);
        let shares: Vec<&Share> = share.iter().collect();
        self.write_history(conns, (ctx.origin, ctx.req_id), Some(queue), (span, series), &shares);
    }

    /// Answers `Heatmap`.
    pub(crate) fn heatmap(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: Option<&str>,
        shard: Option<u64>,
        asked: Asked,
    ) {
        let (span, shards) = (self.span_of(asked), self.slots.shards());
        let shard = match shard.map(|shard| shard as usize) {
            Some(_) if queue.is_some() => {
                return self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::QueueAndShard);
            }
            Some(shard) if shard >= shards => {
                let last = shards - 1;
                let error = Error::must_be("shard", format_args!("between 0 and {last}"));
                return self.refuse(conns, ctx.origin, ctx.req_id, &error);
            }
            shard => shard,
        };
        let Some(queue) = queue else {
            let dests = shard.map_or(0..shards, |shard| shard..shard + 1);
            let shard = shard.map(|shard| shard as u16);
            return self.ask_for_figures(ctx, Shows::Heatmap(span, shard), dests);
        };
        let share = self.share_of_queue(queue, span);
        let shares: Vec<&Share> = share.iter().collect();
        self.write_heatmap(conns, (ctx.origin, ctx.req_id), (Some(queue), None), span, &shares);
    }

    fn share_of_queue(&mut self, queue: &str, span: Span) -> Option<Share> {
        let (share, looks) = self.engine.shard.history_of(queue, self.now_ms, span)?;
        self.meter.note(looks / corq_shards::query::LOOKS_PER_STEP as usize);
        Some(share)
    }

    pub(super) fn write_history(
        &mut self,
        conns: &mut Connections,
        (origin, req_id): (Origin, Option<&[u8]>),
        queue: Option<&str>,
        (span, series): (Span, u32),
        shares: &[&Share],
    ) {
        let mut points = Vec::with_capacity(span.points as usize);
        each_point(shares, span, |sums| points.push(sums.map(values)));
        self.meter.note(points.len() * shares.len().max(1) / POINTS_PER_STEP);
        self.respond(conns, origin, |_, sink| {
            framed(sink, req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, req_id);
                let mut data = reply.map("data");
                write_head(&mut data, (queue, None), span, shares);
                let mut columns = data.map("series");
                let asked = SERIES.iter().enumerate().filter(|(bit, _)| series & 1 << bit > 0);
                for (bit, name) in asked {
                    let mut column = columns.key(name);
                    column.array(points.len());
                    for point in &points {
                        column.uint_or_nil(point.and_then(|values| values[bit]));
                    }
                }
            });
        });
    }

    pub(super) fn write_heatmap(
        &mut self,
        conns: &mut Connections,
        (origin, req_id): (Origin, Option<&[u8]>),
        (queue, shard): (Option<&str>, Option<u16>),
        span: Span,
        shares: &[&Share],
    ) {
        let (mut columns, mut buckets) = (Vec::new(), 0);
        each_point(shares, span, |sums| {
            let mut writer = Writer::new(&mut columns);
            let Some(sums) = sums else { return writer.nil() };
            let used = sums.waits.filled().next_back().map_or(0, |(last, _)| last + 1);
            buckets = buckets.max(used);
            writer.array(used);
            let mut next = 0;
            for (bucket, count) in sums.waits.filled() {
                (next..bucket).for_each(|_| writer.uint(0));
                writer.uint(u64::from(count));
                next = bucket + 1;
            }
        });
        self.meter.note(span.points as usize * shares.len().max(1) / POINTS_PER_STEP);
        self.meter.note_bytes(columns.len());
        self.respond(conns, origin, |_, sink| {
            framed(sink, req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, req_id);
                let mut data = reply.map("data");
                write_head(&mut data, (queue, shard), span, shares);
                let mut edges = data.key("buckets");
                edges.array(buckets);
                (0..buckets).for_each(|bucket| edges.uint(least_ms(bucket)));
                let mut all = data.key("columns");
                all.array(span.points as usize);
                all.raw(&columns);
            });
        });
    }
}
