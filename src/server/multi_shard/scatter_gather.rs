//! Questions to all shards: each adds its share, the one that was asked writes the sum.

use super::task::{ScatterGather, Task};
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::dashboard::overview::{Overview, write_census};
use crate::server::events::message::NOBODY;
use crate::server::http::health::{OfServer, write_stats};
use crate::server::metrics::queue_choice::QueueChoice;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::message::{GatheredPart, Message, ScatterQuery};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::memory::resident_bytes;
use corq_io::net::Connections;
use corq_shards::stats::Census;
use std::sync::Arc;

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
        self.ask_all(origin, req_id, question, Arc::default());
    }

    /// Answers `Prometheus`.
    pub(crate) fn prometheus(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queues: Option<&str>,
    ) {
        match QueueChoice::parse(queues) {
            Ok(queues) => {
                let question = ScatterQuery::Prometheus;
                self.ask_all(ctx.origin, ctx.req_id, question, Arc::new(queues));
            }
            Err(error) => self.refuse(conns, ctx.origin, ctx.req_id, &error),
        }
    }

    fn ask_all(
        &mut self,
        origin: Origin,
        req_id: Option<&[u8]>,
        question: ScatterQuery,
        queues: Arc<QueueChoice>,
    ) {
        self.deferred(origin);
        let shards = self.slots.shards();
        let task = ScatterGather {
            origin,
            req_id: req_id.map(Into::into),
            question,
            queues,
            left: shards,
            census: Census::default(),
            entries: Vec::new(),
            count: 0,
            metrics: Box::default(),
            figures: Box::default(),
        };
        self.large_replies.reserve(question.reserve_bytes());
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
        let shares = match question {
            ScatterQuery::Metrics | ScatterQuery::Prometheus | ScatterQuery::Doctor => {
                vec![self.share_of_metrics(conns)]
            }
            ScatterQuery::Health
            | ScatterQuery::Ready
            | ScatterQuery::Storage
            | ScatterQuery::ServerStats
            | ScatterQuery::Heap => vec![self.share_of_figures()],
            ScatterQuery::Overview => vec![self.share_of_metrics(conns), self.share_of_figures()],
            ScatterQuery::Stats | ScatterQuery::BackupPoint | ScatterQuery::Tasks { .. } => {
                Vec::new()
            }
        };
        let census = match question {
            ScatterQuery::Stats
            | ScatterQuery::Overview
            | ScatterQuery::Health
            | ScatterQuery::ServerStats
            | ScatterQuery::Heap => self.share_of_stats(),
            _ => Census::default(),
        };
        let rows = match question {
            ScatterQuery::Tasks { scope } => Some(self.rows_of_tasks(scope)),
            _ => None,
        };
        let dest = usize::from(step.shard);
        // Whether it is ready tells nothing of any job, and must be told when nothing can be recorded.
        let batch = match question {
            ScatterQuery::Ready => self.outbox.immediate(dest),
            _ => self.outbox.after_commit(dest),
        };
        let (entries, count) = rows.unwrap_or_default();
        let entries = batch.keep(&entries);
        batch.messages.push(Message::Gather { step, census, entries, count, shares });
    }

    /// A share has come.
    pub(crate) fn answer_came(
        &mut self,
        conns: &mut Connections,
        step: Step,
        census: Census,
        entries: &[u8],
        count: usize,
        shares: &[GatheredPart],
    ) {
        let Some(Task::ScatterGather(all)) = self.tasks.get(step) else { return };
        all.census += census;
        all.entries.extend_from_slice(entries);
        all.count += count;
        for share in shares {
            match share {
                GatheredPart::Metrics(metrics) => all.metrics.add(metrics),
                GatheredPart::Figures(figures) => all.figures.add(figures),
            }
        }
        all.left -= 1;
        if all.left > 0 {
            return;
        }
        let Some(Task::ScatterGather(all)) = self.tasks.end(step) else { return };
        self.large_replies.release(all.question.reserve_bytes());
        let uptime_ms = self.now_ms - self.started_at_ms;
        let tls = self.certificates.as_ref().map(|certificates| certificates.status());
        let shards = self.slots.shards();
        let log_id = self.engine.journal.log.id();
        let home = self.data_presence.home();
        if all.question == ScatterQuery::Overview {
            let overview = Overview::begin(|data| {
                write_census(data, &all.census, (self.now_ms, uptime_ms));
                all.metrics.write_latency(data.map("latency"));
                all.figures.write_overview(data, &all.census);
            });
            self.list_overview(all.origin, all.req_id, overview);
            return;
        }
        let req_id = all.req_id.as_deref();
        if all.question == ScatterQuery::BackupPoint && all.origin.conn == NOBODY {
            if let Some(Ok(number)) = req_id.map(<[u8; 8]>::try_from) {
                self.backup_points.answer(u64::from_le_bytes(number), &all.entries, shards);
            }
            return;
        }
        if all.figures.are_there() {
            let replication = self.about.fleet.clone();
            let fleet = replication.as_deref();
            let of_server = OfServer { census: &all.census, uptime_ms, shards, tls, fleet, req_id };
            self.respond(conns, all.origin, |_, sink| {
                framed(sink, req_id, |sink| all.figures.write(sink.out, all.question, &of_server));
            });
            self.answered(all.origin);
            return;
        }
        if all.question == ScatterQuery::Prometheus {
            let text = all.metrics.text(shards, resident_bytes(), uptime_ms, tls);
            let text = text.of_queues(all.queues).with(self.http.settings.metrics_prefix.clone());
            self.list_queues_in_metrics(conns, all.origin, all.req_id, text);
            return;
        }
        if all.question == ScatterQuery::Doctor {
            self.show_findings(conns, all.origin, req_id, &all.metrics, tls);
            self.answered(all.origin);
            return;
        }
        self.respond(conns, all.origin, |_, sink| {
            framed(sink, req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, req_id);
                match all.question {
                    ScatterQuery::Metrics => {
                        all.metrics.write(&mut reply.key("metrics"), resident_bytes());
                    }
                    ScatterQuery::BackupPoint => {
                        let mut data = reply.map("data");
                        data.key("id").str(&format!("{log_id:016x}"));
                        data.key("path").str(&home.path);
                        data.key("directory").str(&home.directory);
                        let mut list = data.key("shards");
                        list.array(all.count);
                        list.raw(&all.entries);
                    }
                    ScatterQuery::Tasks { .. } => {
                        let mut list = reply.key("tasks");
                        list.array(all.count);
                        list.raw(&all.entries);
                    }
                    ScatterQuery::Stats => write_stats(&mut reply, &all.census, uptime_ms),
                    _ => {}
                }
            });
        });
        self.answered(all.origin);
    }
}
