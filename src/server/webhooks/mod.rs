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
//! | `outbox` | what is posted, once it is durable |

pub(super) mod delivery;
pub(super) mod outbox;

use super::connection::reply_writer::ReplyWriter;
use super::multi_shard::cron::REGISTRY_SHARD;
use super::multi_shard::task::Task;
use super::shard_mail::envelope::{Origin, Step};
use super::shard_mail::message::Message;
use super::shard_mail::request_context::RequestContext;
use super::shard_server::ShardServer;
use super::webhooks::outbox::WebhookOutbox;
use crate::api::error::{Error, ErrorKind};
use crate::protocol::msgpack::Texts;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::protocol::uuid_text;
use crate::server::connection::reply_writer::framed;
use corq_io::net::Connections;
use corq_io::webhook::{Counts, Feed, Hook, Hooks, Target};
use corq_shards::command::{self, Command};
use corq_shards::effect::Reply;
use corq_shards::webhook::{Triggers, Webhook};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Webhooks of the server.
pub const WEBHOOKS_MAX: usize = 1000;

/// What the shards tell each other about webhooks.
#[derive(Debug)]
pub enum WebhookMessage {
    /// There is a webhook.
    Known {
        /// Who waits until the receiver knows it; `None` after a restart.
        step: Option<Step>,
        /// Where and how it is posted to.
        hook: Arc<Hook>,
        /// Only of events of this queue.
        queue: Option<Box<str>>,
        /// Whether it gets events.
        enabled: bool,
    },
    /// A webhook is disabled, or enabled again.
    Enabled {
        /// Who waits until the receiver knows it.
        step: Step,
        id: u128,
        /// Whether it gets events.
        enabled: bool,
    },
    /// A webhook is gone.
    Gone {
        /// Who waits until the receiver knows it.
        step: Step,
        id: u128,
    },
    /// The sender knows it.
    Noted {
        /// Who waits.
        step: Step,
    },
}

/// A change of the webhooks that not all shards know yet.
#[derive(Debug)]
pub struct WebhookTask {
    origin: Origin,
    frame: Box<[u8]>,
    /// Shards that have not said that they know.
    left: usize,
}

/// Webhooks that watch the same: one queue, or all.
#[derive(Default)]
struct Watchers {
    /// What any of them asks for.
    wants: u32,
    hooks: Arc<[Arc<Hook>]>,
}

/// What a shard knows of webhooks.
pub struct Webhooks {
    /// The way to those who deliver.
    pub feed: Feed,
    /// Events on their way there.
    pub outbox: WebhookOutbox,
    allow_private: bool,
    known: BTreeMap<u128, Known>,
    /// Those that watch one queue of this shard.
    by_queue: BTreeMap<Box<str>, Watchers>,
    /// Those that watch all queues.
    of_all: Watchers,
}

impl Webhooks {
    /// None yet.
    pub fn new(feed: Feed, allow_private: bool) -> Self {
        Self {
            feed,
            outbox: WebhookOutbox::default(),
            allow_private,
            known: BTreeMap::new(),
            by_queue: BTreeMap::new(),
            of_all: Watchers::default(),
        }
    }

    /// Puts those together anew that watch `queue`, a queue of this shard, or all.
    fn renew(&mut self, queue: Option<&str>) {
        let same = |known: &&Known| known.enabled && known.queue.as_deref() == queue;
        let same = self.known.values().filter(same);
        let hooks: Arc<[Arc<Hook>]> = same.map(|known| Arc::clone(&known.hook)).collect();
        let wants = hooks.iter().fold(0, |all, hook| all | hook.wants());
        let watchers = Watchers { wants, hooks };
        match queue {
            None => self.of_all = watchers,
            Some(queue) if watchers.hooks.is_empty() => drop(self.by_queue.remove(queue)),
            Some(queue) => drop(self.by_queue.insert(queue.into(), watchers)),
        }
    }

    /// Whether an event of any queue of this shard may be wanted.
    pub fn are_watching(&self) -> bool {
        self.of_all.wants != 0 || !self.by_queue.is_empty()
    }

    /// Those that want to know of an event of `queue`, among others; none if no webhook does. `kind` is
    /// the bit of the event.
    pub fn watching(&self, queue: &str, kind: u32) -> Option<Hooks> {
        let of_queue = self.by_queue.get(queue);
        let wants = self.of_all.wants | of_queue.map_or(0, |watchers| watchers.wants);
        if wants & kind == 0 {
            return None;
        }
        let of_queue = of_queue.map(|watchers| Arc::clone(&watchers.hooks));
        Some([Arc::clone(&self.of_all.hooks), of_queue.unwrap_or_default()])
    }
}

/// A webhook as all shards know it.
#[derive(Clone)]
struct Known {
    hook: Arc<Hook>,
    /// The queue that it watches, if it is one.
    queue: Option<Box<str>>,
    /// Whether it gets events.
    enabled: bool,
}

/// The bits of what a webhook asks for: one that names nothing asks for everything.
fn wants(events: Triggers) -> u32 {
    match events.named_bits() {
        0 => u32::MAX,
        bits => bits,
    }
}

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
        let frame = frame_of(ctx.req_id, |writer| write_added(writer, webhook));
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
        let frame = frame_of(ctx.req_id, |writer| {
            writer.map(1);
            writer.str("removed");
            writer.bool(true);
        });
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
        let hook = Hook::new(webhook.id, target, secret, wants(webhook.events));
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
                let mut writer = reply::head(sink.out, true, ctx.req_id, 1);
                writer.str("data");
                writer.map(2);
                writer.str("webhooks");
                writer.array(counts.len());
                for (webhook, counts) in engine.shard.webhooks().zip(&counts) {
                    write_listed(&mut writer, webhook, *counts);
                }
                writer.str("stats");
                let enabled = engine.shard.webhooks().filter(|webhook| webhook.is_enabled());
                writer.map(2);
                for (name, number) in [("total", counts.len()), ("enabled", enabled.count())] {
                    writer.str(name);
                    writer.uint(number as u64);
                }
            });
        });
    }
}

/// Every shard's part.
impl ShardServer {
    /// For metrics: events delivered, failed attempts, events abandoned and lost; events that wait, their
    /// memory, and threads. All shards share what delivers, so that one of them reports it.
    pub(super) fn load_of_webhooks(&self) -> [u64; 7] {
        if self.me != REGISTRY_SHARD {
            return [0; 7];
        }
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
fn frame_of(req_id: Option<&[u8]>, write: impl FnOnce(&mut Writer<'_>)) -> Box<[u8]> {
    let (mut out, mut placeholders) = (Vec::new(), Vec::new());
    framed(&mut ReplyWriter { out: &mut out, placeholders: &mut placeholders }, req_id, |sink| {
        let mut writer = reply::head(sink.out, true, req_id, 1);
        writer.str("data");
        write(&mut writer);
    });
    out.into()
}

fn write_events(writer: &mut Writer<'_>, events: Triggers) {
    writer.str("events");
    writer.array(events.iter().count());
    events.iter().for_each(|trigger| writer.str(trigger.name()));
}

fn write_place(writer: &mut Writer<'_>, webhook: &Webhook) {
    writer.uuid(webhook.id);
    writer.str("url");
    writer.str(&webhook.url);
    write_events(writer, webhook.events);
    if let Some(queue) = &webhook.queue {
        writer.str("queue");
        writer.str(queue);
    }
    writer.str("createdAt");
    writer.uint(webhook.created_at_ms);
}

fn write_added(writer: &mut Writer<'_>, webhook: &Webhook) {
    writer.map(4 + usize::from(webhook.queue.is_some()));
    writer.str("webhookId");
    write_place(writer, webhook);
}

fn write_listed(writer: &mut Writer<'_>, webhook: &Webhook, counts: Counts) {
    writer.map(8 + usize::from(webhook.queue.is_some()));
    writer.str("id");
    write_place(writer, webhook);
    writer.str("lastTriggered");
    writer.uint_or_nil(counts.triggered_at_ms);
    writer.str("successCount");
    writer.uint(counts.delivered);
    writer.str("failureCount");
    writer.uint(counts.failed);
    writer.str("enabled");
    writer.bool(webhook.is_enabled());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use corq_io::webhook::{Config, Pool};
    use std::time::Duration;

    fn webhooks() -> Webhooks {
        let pool = Pool::start(Config {
            attempts_max: 1,
            retry_delay: Duration::ZERO,
            timeout: Duration::from_secs(1),
            threads_max: 1,
            backlog_max: 1,
            backlog_bytes_max: 1,
            allow_private: false,
            lookup: None,
            report: Arc::new(|_| {}),
        });
        Webhooks::new(pool.unwrap().feed(), false)
    }

    fn know(webhooks: &mut Webhooks, id: u128, events: u32, queue: Option<&str>) {
        let target = Target::parse("https://example.com", false).unwrap();
        let hook = Arc::new(Hook::new(id, target, None, wants(Triggers::of_bits(events))));
        let known = Known { hook, queue: queue.map(Into::into), enabled: true };
        webhooks.known.insert(id, known);
        webhooks.renew(queue);
    }

    fn ids(hooks: &Hooks) -> Vec<u128> {
        hooks.iter().flat_map(|some| some.iter()).map(|hook| hook.id()).collect()
    }

    /// The fear: every queue of a server pays for one that is watched.
    #[test]
    fn only_what_is_watched_costs_anything() {
        let mut webhooks = webhooks();
        assert!(!webhooks.are_watching());
        know(&mut webhooks, 1, 0b01, Some("a"));
        know(&mut webhooks, 2, 0b10, Some("a"));
        assert!(webhooks.are_watching());
        assert!(webhooks.watching("b", 0b01).is_none());
        assert!(webhooks.watching("a", 0b100).is_none());
        assert_eq!(ids(&webhooks.watching("a", 0b10).unwrap()), [1, 2]);
        // One that names no event asks for all.
        know(&mut webhooks, 3, 0, None);
        assert_eq!(ids(&webhooks.watching("a", 0b100).unwrap()), [3, 1, 2]);
        assert_eq!(ids(&webhooks.watching("b", 0b1000).unwrap()), [3]);
        for (id, queue) in [(1, Some("a")), (2, Some("a")), (3, None)] {
            assert!(webhooks.are_watching());
            webhooks.known.remove(&id);
            webhooks.renew(queue);
        }
        assert!(!webhooks.are_watching());
    }
}
