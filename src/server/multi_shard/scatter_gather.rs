//! Questions to all shards: each adds its share, the one that was asked writes the sum.

use super::task::{ScatterGather, Task};
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::http::health::OfServer;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::message::{GatheredPart, Message, ScatterQuery};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::memory::resident_bytes;
use corq_io::net::Connections;
use corq_shards::stats::Census;

impl ShardServer {
    /// Asks all shards.
    pub(crate) fn scatter(
        &mut self,
        _: &mut Connections,
        ctx: RequestContext<'_>,
        question: ScatterQuery,
    ) {
        self.send_scatter_query(ctx.origin, ctx.req_id, question);
    }

    /// Asks all shards a question that may be no command.
    pub(crate) fn send_scatter_query(
        &mut self,
        origin: Origin,
        req_id: Option<&[u8]>,
        question: ScatterQuery,
    ) {
        self.deferred(origin);
        let shards = self.slots.shards();
        let task = ScatterGather {
            origin,
            req_id: req_id.map(Into::into),
            question,
            left: shards,
            census: Census::default(),
            entries: Vec::new(),
            count: 0,
            metrics: Box::default(),
            figures: Box::default(),
        };
        let step = self.tasks.start(self.me, Task::ScatterGather(task));
        for dest in 0..shards {
            self.outbox.immediate(dest).messages.push(Message::Scatter { step, question });
        }
    }

    /// This shard's share.
    pub(crate) fn answer_scatter_query(
        &mut self,
        conns: &Connections,
        step: Step,
        question: ScatterQuery,
    ) {
        let share = match question {
            ScatterQuery::Metrics | ScatterQuery::Prometheus => Some(self.share_of_metrics(conns)),
            ScatterQuery::Health
            | ScatterQuery::Ready
            | ScatterQuery::ServerStats
            | ScatterQuery::Heap => Some(self.share_of_figures()),
            _ => None,
        };
        let census = match question {
            ScatterQuery::Stats
            | ScatterQuery::Health
            | ScatterQuery::ServerStats
            | ScatterQuery::Heap => self.share_of_stats(),
            _ => Census::default(),
        };
        let dest = usize::from(step.shard);
        // Whether it is ready tells nothing of any job, and must be told when nothing can be recorded.
        let batch = match question {
            ScatterQuery::Ready => self.outbox.immediate(dest),
            _ => self.outbox.after_commit(dest),
        };
        batch.messages.push(Message::Gather { step, census, entries: 0..0, count: 0, share });
    }

    /// A share has come.
    pub(crate) fn answer_came(
        &mut self,
        conns: &mut Connections,
        step: Step,
        census: Census,
        entries: &[u8],
        count: usize,
        share: Option<&GatheredPart>,
    ) {
        let Some(Task::ScatterGather(all)) = self.tasks.get(step) else { return };
        all.census += census;
        all.entries.extend_from_slice(entries);
        all.count += count;
        match share {
            Some(GatheredPart::Metrics(metrics)) => all.metrics.add(metrics),
            Some(GatheredPart::Figures(figures)) => all.figures.add(figures),
            None => {}
        }
        all.left -= 1;
        if all.left > 0 {
            return;
        }
        let Some(Task::ScatterGather(all)) = self.tasks.end(step) else { return };
        let uptime_ms = self.now_ms - self.started_at_ms;
        let tls = self.certificates.as_ref().map(|certificates| certificates.status());
        let shards = self.slots.shards();
        let log_id = self.engine.journal.log.id();
        let home = self.data_presence.home();
        let req_id = all.req_id.as_deref();
        if all.figures.are_there() {
            let of_server = OfServer { census: &all.census, uptime_ms, shards, tls };
            self.respond(conns, all.origin, |_, sink| {
                framed(sink, req_id, |sink| all.figures.write(sink.out, all.question, &of_server));
            });
            self.answered(all.origin);
            return;
        }
        if all.question == ScatterQuery::Prometheus {
            let text = all.metrics.text(shards, resident_bytes(), uptime_ms, tls);
            self.list_queues_in_metrics(all.origin, all.req_id, text);
            return;
        }
        self.respond(conns, all.origin, |_, sink| {
            framed(sink, req_id, |sink| {
                let mut writer = reply::head(sink.out, true, req_id, 1);
                match all.question {
                    ScatterQuery::Metrics => {
                        writer.str("metrics");
                        all.metrics.write(&mut writer, resident_bytes());
                    }
                    ScatterQuery::BackupPoint => {
                        writer.str("data");
                        writer.map(4);
                        writer.str("id");
                        writer.str(&format!("{log_id:016x}"));
                        writer.str("path");
                        writer.str(&home.path);
                        writer.str("directory");
                        writer.str(&home.directory);
                        writer.str("shards");
                        writer.array(all.count);
                        writer.raw(&all.entries);
                    }
                    ScatterQuery::Stats => write_stats(&mut writer, &all.census, uptime_ms),
                    _ => {}
                }
            });
        });
        self.answered(all.origin);
    }
}

pub(crate) fn write_stats(writer: &mut Writer<'_>, census: &Census, uptime_ms: u64) {
    let counts = [
        ("queued", census.waiting),
        ("processing", census.active),
        ("delayed", census.delayed),
        ("dlq", census.failed),
        ("completed", census.completed),
        ("waitingChildren", census.waiting_children),
        ("uptime", uptime_ms),
        ("totalPushed", census.totals.pushed),
        ("totalPulled", census.totals.pulled),
        ("totalCompleted", census.totals.completed),
        ("totalFailed", census.totals.failed),
    ];
    writer.str("stats");
    writer.map(counts.len() + 2);
    for (name, count) in counts {
        writer.str(name);
        writer.uint(count);
    }
    writer.str("pushPerSec");
    writer.number(census.pushed_per_second.round());
    writer.str("pullPerSec");
    writer.number(census.pulled_per_second.round());
}
