//! Webhooks over all shards: who they are. One shard, the registry shard, has their registrations in its log;
//! every shard knows them all and which of its queues they watch.
//!
//! ```text
//! client --AddWebhook--> registry --Known--> every shard --Noted--> registry --> reply
//! ```
//!
//! The reply waits for all shards: of what happens after it, nothing is missed. What is posted is put
//! together in [`super::webhooks::outbox`].
//!
//! | file | responsibility |
//! |---|---|
//! | `delivery` | between the shard and the threads that post |
//! | `looks` | a sample that is posted, the last posts |
//! | `messages` | what the shards tell each other: data only |
//! | `outbox` | what is posted, once it is durable |
//! | `registry` | what a shard knows of webhooks |
//! | `told` | what webhooks were told of one job |
//! | `trials` | samples under way: data only |

pub(super) mod delivery;
mod looks;
pub(super) mod messages;
pub(super) mod outbox;
pub(super) mod registry;
pub(super) mod told;
mod trials;

pub use self::registry::Webhooks;

use self::messages::{WebhookMessage, WebhookTask};
use self::registry::Known;
use super::connection::reply_writer::ReplyWriter;
use super::multi_shard::cron::REGISTRY_SHARD;
use super::multi_shard::task::Task;
use super::shard_mail::envelope::{Origin, Step};
use super::shard_mail::message::Message;
use super::shard_mail::request_context::RequestContext;
use super::shard_server::ShardServer;
use crate::api::error::{Error, ErrorKind};
use crate::protocol::msgpack::Texts;
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::protocol::reply;
use crate::protocol::uuid_text;
use crate::server::connection::reply_writer::framed;
use corq_io::net::Connections;
use corq_io::webhook::{Counts, Hook, Target};
use corq_shards::command::{self, Command};
use corq_shards::effect::Reply;
use corq_shards::webhook::{Triggers, Webhook};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Webhooks of the server.
pub const WEBHOOKS_MAX: usize = 1000;

/// The part of the registry shard.
impl ShardServer {
    /// Answers `AddWebhook`.
    pub(crate) fn add_webhook(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        url: &str,
        events: Texts<'_>,
        (queue, secret): (Option<&str>, Option<&str>),
    ) {
        let events = Triggers::named(events.iter());
        let added = self.try_add_webhook(conns, ctx, url, |id| command::AddWebhook {
            id,
            url,
            events,
            queue,
            secret,
        });
        self.refuse_if_not(conns, ctx, added);
    }

    fn refuse_if_not(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        done: Result<(), Error>,
    ) {
        if let Err(error) = done {
            self.refuse(conns, ctx.origin, ctx.req_id, &error);
        }
    }

    fn try_add_webhook<'a>(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        url: &str,
        make: impl FnOnce(u128) -> command::AddWebhook<'a>,
    ) -> Result<(), Error> {
        if self.engine.shard.webhooks().len() >= WEBHOOKS_MAX {
            return Err(Error::too_many_webhooks(WEBHOOKS_MAX));
        }
        Target::parse(url, self.webhooks.allow_private).map_err(Error::bad_url)?;
        let id = uuid::Uuid::new_v4().as_u128();
        self.apply(conns, Self::caller(&ctx), &Command::AddWebhook(&make(id)));
        let Some(webhook) = self.engine.shard.webhook(id) else {
            return Err(self.no_room().into());
        };
        let frame = frame_of(ctx.req_id, |data| write_webhook(data, "webhookId", webhook));
        let known = Self::known_webhook(webhook)?;
        self.send_change_to_all(ctx.origin, frame, |step| {
            let Known { hook, queue, enabled } = known.clone();
            WebhookMessage::Known { step: Some(step), hook, queue, enabled }
        });
        Ok(())
    }

    /// Answers `RemoveWebhook`.
    pub(crate) fn remove_webhook(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        id: &str,
    ) {
        let removed = self.try_remove_webhook(conns, ctx, id);
        self.refuse_if_not(conns, ctx, removed);
    }

    fn try_remove_webhook(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        id: &str,
    ) -> Result<(), Error> {
        let id = uuid_text::parse(id).ok_or(ErrorKind::WebhookNotFound)?;
        self.apply(conns, Self::caller(&ctx), &Command::RemoveWebhook { id });
        if self.own_reply() == Some(Reply::Count(0)) {
            return Err(ErrorKind::WebhookNotFound.into());
        }
        let frame = frame_of(ctx.req_id, |data| data.key("removed").bool(true));
        self.send_change_to_all(ctx.origin, frame, |step| WebhookMessage::Gone { step, id });
        Ok(())
    }

    /// Answers `SetWebhookEnabled`.
    pub(crate) fn enable_webhook(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        id: &str,
        enabled: bool,
    ) {
        let set = self.try_enable_webhook(conns, ctx, id, enabled);
        self.refuse_if_not(conns, ctx, set);
    }

    fn try_enable_webhook(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        id: &str,
        enabled: bool,
    ) -> Result<(), Error> {
        let id = uuid_text::parse(id).ok_or(ErrorKind::WebhookNotFound)?;
        self.apply(conns, Self::caller(&ctx), &Command::EnableWebhook { id, enabled });
        if self.own_reply() == Some(Reply::Count(0)) {
            return Err(ErrorKind::WebhookNotFound.into());
        }
        // All shards share the hook, and one sets it: what waits is given up from here on.
        if let Some(known) = self.webhooks.known.get(&id) {
            known.hook.set_enabled(enabled);
        }
        let mut frame = Vec::new();
        reply::ok(&mut frame, ctx.req_id);
        let message = |step| WebhookMessage::Enabled { step, id, enabled };
        self.send_change_to_all(ctx.origin, frame.into(), message);
        Ok(())
    }

    /// A webhook as the other shards are to know it. One that was let in under other rules than those
    /// of now is known as well: those of now are applied to each connection.
    fn known_webhook(webhook: &Webhook) -> Result<Known, Error> {
        let target = Target::known(&webhook.url).map_err(Error::bad_url)?;
        let secret = webhook.secret.as_ref().map(|secret| &*secret.0);
        let hook = Hook::new(webhook.id, target, secret, webhook.events.wanted_bits());
        hook.set_enabled(webhook.is_enabled());
        let (hook, queue) = (Arc::new(hook), webhook.queue.clone());
        Ok(Known { hook, queue, enabled: webhook.is_enabled() })
    }

    /// Tells all shards, and the client once they know.
    fn send_change_to_all(
        &mut self,
        origin: Origin,
        frame: Box<[u8]>,
        message: impl Fn(Step) -> WebhookMessage,
    ) {
        let left = self.slots.shards();
        self.deferred(origin);
        let task = WebhookTask { origin, frame, left };
        let step = self.tasks.start(self.me, Task::Webhook(task));
        for dest in 0..left {
            self.outbox.after_commit(dest).messages.push(Message::Webhook(message(step)));
        }
    }

    fn webhook_noted(&mut self, conns: &mut Connections, step: Step) {
        let Some(Task::Webhook(task)) = self.tasks.get(step) else { return };
        task.left -= 1;
        if task.left > 0 {
            return;
        }
        let Some(Task::Webhook(WebhookTask { origin, frame, .. })) = self.tasks.end(step) else {
            return;
        };
        self.send_frame(conns, origin, &frame);
        self.answered(origin);
    }

    /// Tells all shards of the webhooks that the log has, after recovery.
    pub(super) fn send_all_webhooks(&mut self) {
        if self.me != REGISTRY_SHARD {
            return;
        }
        let mut found = Vec::new();
        for webhook in self.engine.shard.webhooks() {
            match Self::known_webhook(webhook) {
                Ok(known) => found.push(known),
                Err(why) => tracing::error!(
                    "the webhook {} is not served: {why}",
                    uuid::Uuid::from_u128(webhook.id)
                ),
            }
        }
        for known in found {
            for dest in 0..self.slots.shards() {
                let Known { hook, queue, enabled } = known.clone();
                let known = WebhookMessage::Known { step: None, hook, queue, enabled };
                self.outbox.after_commit(dest).messages.push(Message::Webhook(known));
            }
        }
    }

    /// Answers `ListWebhooks`.
    pub(crate) fn list_webhooks(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        let counts = |id: u128| {
            let known = self.webhooks.known.get(&id);
            known.map(|known| known.hook.counts()).unwrap_or_default()
        };
        let counts: Vec<Counts> =
            self.engine.shard.webhooks().map(|webhook| counts(webhook.id)).collect();
        self.meter.note(counts.len());
        self.respond(conns, ctx.origin, |engine, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                let mut data = reply.map("data");
                let mut list = data.key("webhooks");
                list.array(counts.len());
                for (webhook, counts) in engine.shard.webhooks().zip(&counts) {
                    write_listed(&mut list, webhook, *counts);
                }
                let enabled = engine.shard.webhooks().filter(|webhook| webhook.is_enabled());
                let mut stats = data.map("stats");
                stats.key("total").uint(counts.len() as u64);
                stats.key("enabled").uint(enabled.count() as u64);
            });
        });
    }
}

/// Every shard's part.
impl ShardServer {
    /// For metrics: events delivered, failed attempts, events abandoned and lost; events that wait, their
    /// memory, and threads; posts that are remembered, and their memory. All shards share what delivers, so that one of
    /// them reports it.
    pub(super) fn load_of_webhooks(&self) -> [u64; 9] {
        if self.me != REGISTRY_SHARD {
            return [0; 9];
        }
        let (remembered, remembered_bytes) = self.webhooks.remembered();
        let load = self.webhooks.feed.load();
        let lost = load.dropped.load(Relaxed) + load.refused.load(Relaxed);
        [
            load.delivered.load(Relaxed),
            load.failed_attempts.load(Relaxed),
            load.abandoned.load(Relaxed),
            lost,
            load.backlog.load(Relaxed),
            load.backlog_bytes.load(Relaxed),
            load.threads.load(Relaxed),
            remembered,
            remembered_bytes,
        ]
    }

    /// Reads messages about webhooks.
    pub(super) fn read_webhook_message(
        &mut self,
        conns: &mut Connections,
        message: &WebhookMessage,
    ) {
        let (step, queue) = match message {
            WebhookMessage::Known { step, hook, queue, enabled } => {
                let (hook, queue) = (Arc::clone(hook), queue.clone());
                let known = Known { hook, queue: queue.clone(), enabled: *enabled };
                self.webhooks.known.insert(known.hook.id(), known);
                (*step, queue)
            }
            WebhookMessage::Enabled { step, id, enabled } => {
                let Some(known) = self.webhooks.known.get_mut(id) else { return };
                known.enabled = *enabled;
                (Some(*step), known.queue.clone())
            }
            WebhookMessage::Gone { step, id } => {
                let Some(known) = self.webhooks.known.remove(id) else { return };
                known.hook.remove();
                (Some(*step), known.queue)
            }
            WebhookMessage::Noted { step } => {
                self.webhook_noted(conns, *step);
                return;
            }
        };
        if queue.as_deref().is_none_or(|queue| self.slots.of_queue(queue) == self.me) {
            self.webhooks.renew(queue.as_deref());
            self.listen_as_needed();
        }
        if let Some(step) = step {
            let noted = Message::Webhook(WebhookMessage::Noted { step });
            self.outbox.immediate(usize::from(step.shard)).messages.push(noted);
        }
    }
}

/// A whole reply with `data`.
fn frame_of(req_id: Option<&[u8]>, write: impl FnOnce(&mut MapWriter<'_>)) -> Box<[u8]> {
    let (mut out, mut placeholders) = (Vec::new(), Vec::new());
    framed(&mut ReplyWriter { out: &mut out, placeholders: &mut placeholders }, req_id, |sink| {
        write(&mut reply::begin(sink.out, true, req_id).map("data"));
    });
    out.into()
}

/// A webhook, with its id under the name that the command gives it.
fn write_webhook(map: &mut MapWriter<'_>, id: &str, webhook: &Webhook) {
    map.key(id).uuid(webhook.id);
    map.key("url").str(&webhook.url);
    let mut events = map.key("events");
    events.array(webhook.events.iter().count());
    webhook.events.iter().for_each(|trigger| events.str(trigger.name()));
    if let Some(queue) = &webhook.queue {
        map.key("queue").str(queue);
    }
    map.key("createdAt").uint(webhook.created_at_ms);
}

fn write_listed(writer: &mut Writer<'_>, webhook: &Webhook, counts: Counts) {
    let mut row = writer.begin_map();
    write_webhook(&mut row, "id", webhook);
    row.key("lastTriggered").uint_or_nil(counts.triggered_at_ms);
    row.key("successCount").uint(counts.delivered);
    row.key("failureCount").uint(counts.failed);
    row.key("enabled").bool(webhook.is_enabled());
}
