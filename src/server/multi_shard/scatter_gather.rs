//! Questions to all shards: each adds its share, the one that was asked writes the sum.

use super::row_pages::Kind;
use super::task::{All, Task};
use crate::api::request::Body;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::commands::framed;
use crate::server::http::health::OfServer;
use crate::server::shard_mail::dispatch::Asked;
use crate::server::shard_mail::message::{Message, Origin, Question, Share, Step};
use crate::server::shard_server::Core;
use corq_io::memory::resident_bytes;
use corq_io::net::Connections;
use corq_shards::stats::Census;

impl Core {
    /// Asks all shards.
    pub(crate) fn ask_all(&mut self, asked: Asked<'_>, body: &Body<'_>) {
        let (origin, req_id) = (asked.origin, asked.req_id);
        let question = match body {
            Body::ListQueues => return self.list_rows(origin, req_id, Kind::Queues),
            Body::CronList => return self.list_rows(origin, req_id, Kind::Crons),
            Body::ListWorkers => return self.list_rows(origin, req_id, Kind::Workers),
            Body::Metrics => Question::Metrics,
            Body::Prometheus => Question::Prometheus,
            _ => Question::Stats,
        };
        self.ask_question(origin, req_id, question);
    }

    /// Asks all shards a question that may be no command.
    pub(crate) fn ask_question(
        &mut self,
        origin: Origin,
        req_id: Option<&[u8]>,
        question: Question,
    ) {
        self.deferred(origin);
        let shards = self.slots.shards();
        let task = All {
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
        let step = self.tasks.start(self.me, Task::All(task));
        for dest in 0..shards {
            self.post.ask(dest).messages.push(Message::Ask { step, question });
        }
    }

    /// This shard's share.
    pub(crate) fn answer_share(&mut self, conns: &Connections, step: Step, question: Question) {
        let share = match question {
            Question::Metrics | Question::Prometheus => Some(self.share_of_metrics(conns)),
            Question::Health | Question::Ready | Question::ServerStats | Question::Heap => {
                Some(self.share_of_figures())
            }
            _ => None,
        };
        let census = match question {
            Question::Stats | Question::Health | Question::ServerStats | Question::Heap => {
                self.share_of_stats()
            }
            _ => Census::default(),
        };
        let dest = usize::from(step.shard);
        // Whether it is ready tells nothing of any job, and must be told when nothing can be recorded.
        let batch = match question {
            Question::Ready => self.post.ask(dest),
            _ => self.post.tell(dest),
        };
        batch.messages.push(Message::Answer { step, census, entries: 0..0, count: 0, share });
    }

    /// A share has come.
    pub(crate) fn answer_came(
        &mut self,
        conns: &mut Connections,
        step: Step,
        census: Census,
        entries: &[u8],
        count: usize,
        share: Option<&Share>,
    ) {
        let Some(Task::All(all)) = self.tasks.get(step) else { return };
        all.census += census;
        all.entries.extend_from_slice(entries);
        all.count += count;
        match share {
            Some(Share::Metrics(metrics)) => all.metrics.add(metrics),
            Some(Share::Figures(figures)) => all.figures.add(figures),
            None => {}
        }
        all.left -= 1;
        if all.left > 0 {
            return;
        }
        let Some(Task::All(all)) = self.tasks.end(step) else { return };
        let uptime_ms = self.now_ms - self.started_at_ms;
        let tls = self.keeper.as_ref().map(|keeper| keeper.standing());
        let shards = self.slots.shards();
        let log_id = self.engine.book.0.id();
        let home = self.ground.home();
        let req_id = all.req_id.as_deref();
        if all.figures.are_there() {
            let of_server = OfServer { census: &all.census, uptime_ms, shards, tls };
            self.respond(conns, all.origin, |_, pen| {
                framed(pen, req_id, |pen| all.figures.write(pen.out, all.question, &of_server));
            });
            self.answered(all.origin);
            return;
        }
        if all.question == Question::Prometheus {
            let text = all.metrics.text(shards, resident_bytes(), uptime_ms, tls);
            self.list_queues_in_metrics(all.origin, all.req_id, text);
            return;
        }
        self.respond(conns, all.origin, |_, pen| {
            framed(pen, req_id, |pen| {
                let mut writer = reply::head(pen.out, true, req_id, 1);
                match all.question {
                    Question::Metrics => {
                        writer.str("metrics");
                        all.metrics.write(&mut writer, resident_bytes());
                    }
                    Question::BackupPoint => {
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
                    Question::Stats => write_stats(&mut writer, &all.census, uptime_ms),
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
