//! Views of a webhook's deliveries: a sample that is posted on request, and the last posts.
//!
//! A sample is posted by the threads that deliver, and its outcome found by looking for it now and then: what waits for
//! receivers never wakes a shard. So many may be under way; the next are refused.

use super::registry::Webhooks;
use super::trials::{TRIALS_MAX, Waiting};
use crate::api::error::ErrorKind;
use crate::protocol::msgpack::writer::MapWriter;
use crate::protocol::reply;
use crate::protocol::uuid_text;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_io::webhook::{Delivery, Notice, Trial};

/// How often their outcomes are looked for.
const PAUSE_MS: u64 = 20;

/// The event of a sample. No job brings it about.
const TEST_EVENT: &str = "webhook.test";

/// Job that a sample is about, and queue if the webhook is about all.
const TEST_JOB: &str = "test";

/// Memory of a sample beside the name of its queue, about.
const TEST_BYTES: usize = 256;

impl Webhooks {
    /// Posts that are remembered of all webhooks, and their memory.
    pub fn remembered(&self) -> (u64, u64) {
        let sizes = self.known.values().map(|known| known.hook.remembered());
        sizes.fold((0, 0), |(kept, bytes), one| (kept + one.0 as u64, bytes + one.1 as u64))
    }
}

impl ShardServer {
    /// Answers `TestWebhook`, once the sample was posted.
    pub(crate) fn test_webhook(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        id: &str,
    ) {
        match self.begin_trial(id) {
            Ok(trial) => {
                self.deferred(ctx.origin);
                let (origin, req_id) = (ctx.origin, ctx.req_id.map(Into::into));
                self.webhooks.trials.0.push(Waiting { origin, req_id, trial });
            }
            Err(error) => self.refuse(conns, ctx.origin, ctx.req_id, error),
        }
    }

    fn begin_trial(&mut self, id: &str) -> Result<Trial, ErrorKind> {
        let known = uuid_text::parse(id).and_then(|id| self.webhooks.known.get(&id));
        let known = known.ok_or(ErrorKind::WebhookNotFound)?;
        if self.webhooks.trials.0.len() >= TRIALS_MAX {
            return Err(ErrorKind::WebhookTestsWait);
        }
        let (at_ms, queue) = (self.now_ms, known.queue.as_deref().unwrap_or(TEST_JOB));
        // The name of a queue has no character that JSON escapes.
        let body = format!(
            r#"{{"event":"{TEST_EVENT}","timestamp":{at_ms},"jobId":"{TEST_JOB}","queue":"{queue}","data":{{"test":true}}}}"#
        );
        let bytes = TEST_BYTES + body.len();
        let render = move || body.clone().into_bytes();
        let notice = Notice::new(0, TEST_EVENT, at_ms, TEST_JOB.into(), bytes, bytes, render);
        self.webhooks.feed.try_out(&known.hook, notice).ok_or(ErrorKind::WebhookTestsWait)
    }

    /// Answers those whose samples were posted. Returns when to come again, in milliseconds since the epoch.
    pub(crate) fn answer_trials(&mut self, conns: &mut Connections) -> u64 {
        if self.webhooks.trials.0.is_empty() {
            return u64::MAX;
        }
        for waiting in std::mem::take(&mut self.webhooks.trials.0) {
            let Waiting { origin, req_id, trial } = &waiting;
            let req_id = req_id.as_deref();
            match trial.outcome() {
                Some(delivery) => self.respond(conns, *origin, |_, sink| {
                    framed(sink, req_id, |sink| {
                        let mut reply = reply::begin(sink.out, true, req_id);
                        write_delivery(&mut reply.map("data"), delivery);
                    });
                }),
                None if self.stopping => self.refuse(conns, *origin, req_id, ErrorKind::Stopping),
                None => {
                    self.webhooks.trials.0.push(waiting);
                    continue;
                }
            }
            self.answered(waiting.origin);
        }
        if self.webhooks.trials.0.is_empty() { u64::MAX } else { self.now_ms + PAUSE_MS }
    }

    /// Answers `WebhookDeliveries`.
    pub(crate) fn webhook_deliveries(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        id: &str,
        limit: u32,
    ) {
        let known = uuid_text::parse(id).and_then(|id| self.webhooks.known.get(&id));
        let webhook = uuid_text::parse(id).and_then(|id| self.engine.shard.webhook(id));
        let (Some(known), Some(webhook)) = (known, webhook) else {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::WebhookNotFound);
            return;
        };
        let deliveries = known.hook.deliveries(limit as usize);
        let since_ms = self.started_at_ms.max(webhook.created_at_ms);
        self.meter.note(deliveries.len());
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                let mut data = reply.map("data");
                data.key("since").uint(since_ms);
                let mut list = data.key("deliveries");
                list.array(deliveries.len());
                for delivery in &deliveries {
                    write_delivery(&mut list.begin_map(), delivery);
                }
            });
        });
    }
}

/// A post as clients see it.
pub fn write_delivery(row: &mut MapWriter<'_>, delivery: &Delivery) {
    row.key("timestamp").uint(delivery.at_ms);
    row.key("event").str(delivery.event);
    row.key("jobId").str(&delivery.job);
    row.key("attempt").uint(u64::from(delivery.attempt));
    row.key("delivered").bool(delivery.error.is_none());
    row.key("status").uint_or_nil(delivery.status.map(u64::from));
    row.key("error").str_or_nil(delivery.error.as_deref());
    row.key("duration").uint(delivery.took_ms);
    row.key("test").bool(delivery.is_test);
}
