//! Webhooks: who wants to be told of which events by HTTP. Kept here because they are durable; who
//! tells them, how and with what success is not known here.
//!
//! All webhooks of a server are in the state of one shard, the registry shard of webhooks.

use crate::command::AddWebhook;
use crate::effect::Reply;
use crate::event::Step;
use crate::job::id::fnv1a;
use crate::log_record::location::LogRef;
use crate::log_record::settings::WebhookAdded;
use crate::log_record::{Journal, Record};
use crate::shard::{Caller, FULL, JOB_BYTES, Out, Shard};
use std::collections::BTreeMap;
use std::fmt;

/// An event that a webhook can ask for. The numbers are those of the bits in the log, for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Trigger {
    /// A job was completed.
    Completed = 0,
    /// An attempt failed, or the job went to the dead-letter queue without one.
    Failed = 1,
    /// A worker told how far it is.
    Progress = 2,
    /// A worker has the job.
    Active = 3,
    /// A job was added to a queue, delayed or not.
    Waiting = 4,
    /// A job was delayed: pushed so, or put off.
    Delayed = 5,
    /// The worker of a job went silent.
    Stalled = 6,
    /// A job came: [`Self::Waiting`] by the name that version 3 of the protocol has for it.
    Pushed = 7,
    /// A worker has a job: [`Self::Active`] by the name that version 3 of the protocol has for it.
    Started = 8,
}

impl Trigger {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Completed,
        Self::Failed,
        Self::Progress,
        Self::Active,
        Self::Waiting,
        Self::Delayed,
        Self::Stalled,
        Self::Pushed,
        Self::Started,
    ];

    /// The name clients see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "job.completed",
            Self::Failed => "job.failed",
            Self::Progress => "job.progress",
            Self::Active => "job.active",
            Self::Waiting => "job.waiting",
            Self::Delayed => "job.delayed",
            Self::Stalled => "job.stalled",
            Self::Pushed => "job.pushed",
            Self::Started => "job.started",
        }
    }

    /// Events that a step of a job triggers: one by its name, and a second one if it has two names.
    pub fn of(step: Step) -> impl Iterator<Item = Self> {
        let (first, second) = match step {
            Step::Completed { .. } => (Some(Self::Completed), None),
            Step::Failed { .. } => (Some(Self::Failed), None),
            Step::Progress(_) => (Some(Self::Progress), None),
            Step::Pulled => (Some(Self::Active), Some(Self::Started)),
            Step::Pushed => (Some(Self::Waiting), Some(Self::Pushed)),
            Step::Delayed { .. } => (Some(Self::Delayed), None),
            Step::Stalled => (Some(Self::Stalled), None),
            Step::Retried { .. }
            | Step::Removed { .. }
            | Step::Duplicated
            | Step::WaitingChildren
            | Step::Drained
            | Step::Paused
            | Step::Resumed
            | Step::Extra(_) => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// Beside the events that a webhook asks for: it gets none for now.
const DISABLED: u32 = 1 << 31;

/// Events of a webhook that names none: every step once, by the first of its names.
const UNNAMED: u32 = (1 << Trigger::Pushed as u8) - 1;

/// A set of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Triggers(u32);

impl Triggers {
    /// The events of these names; others are passed over.
    pub fn named<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let found = names.filter_map(|name| Trigger::ALL.into_iter().find(|it| it.name() == name));
        Self(found.fold(0, |bits, trigger| bits | 1 << trigger as u8))
    }

    /// The set that these bits say.
    pub fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Bits of the set: one for each event, by its number, and one for a disabled webhook.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The bits of the events alone.
    pub fn named_bits(self) -> u32 {
        self.0 & !DISABLED
    }

    /// The bits of the events that a webhook gets: all, each once, if it names none.
    pub fn wanted_bits(self) -> u32 {
        match self.named_bits() {
            0 => UNNAMED,
            named => named,
        }
    }

    /// The events of this set, for a webhook that is enabled, or disabled.
    #[must_use]
    fn enabled(self, enabled: bool) -> Self {
        Self(self.named_bits() | if enabled { 0 } else { DISABLED })
    }

    /// Whether it is enabled.
    pub fn is_enabled(self) -> bool {
        self.0 & DISABLED == 0
    }

    /// The events, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Trigger> {
        Trigger::ALL.into_iter().filter(move |&trigger| self.0 & (1 << trigger as u8) != 0)
    }
}

/// A secret, which no log line may show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Box<str>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A webhook, as it was registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Webhook {
    /// Id of the webhook: a UUID.
    pub id: u128,
    /// Where to post, as given.
    pub url: Box<str>,
    /// Events that the webhook asks for; none means all.
    pub events: Triggers,
    /// Only events of this queue.
    pub queue: Option<Box<str>>,
    /// Signs the posts.
    pub secret: Option<Secret>,
    /// When it came, in milliseconds since the epoch.
    pub created_at_ms: u64,
    /// The record that tells all of it.
    pub(crate) set_in: LogRef,
}

/// The webhooks of the server, on the shard that keeps them.
#[derive(Default)]
pub(crate) struct Webhooks(BTreeMap<u128, Webhook>);

impl Shard {
    pub(crate) fn add_webhook_live<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        command: &AddWebhook<'_>,
        out: &mut Out<'_, J>,
    ) {
        let bytes = command.url.len() as u64 + JOB_BYTES;
        if !out.journal.can_append_new(bytes, || self.space_forecast()) {
            out.effects.replies.push((caller.request, FULL));
            return;
        }
        let &AddWebhook { id, url, events, queue, secret } = command;
        let added = WebhookAdded { id, created_at_ms: now_ms, url, events, queue, secret };
        let stored = out.journal.append(&Record::WebhookAdded(added));
        self.add_webhook(&added, stored);
        out.effects.replies.push((caller.request, Reply::Done));
    }

    pub(crate) fn enable_webhook<J: Journal>(
        &mut self,
        caller: Caller,
        id: u128,
        enabled: bool,
        out: &mut Out<'_, J>,
    ) {
        let known = self.webhooks.0.get(&id).cloned();
        if let Some(webhook) = known.as_ref().filter(|webhook| webhook.is_enabled() != enabled) {
            // All of it is written again: one record is the whole truth about a webhook.
            let added = WebhookAdded {
                id,
                created_at_ms: webhook.created_at_ms,
                url: &webhook.url,
                events: webhook.events.enabled(enabled),
                queue: webhook.queue.as_deref(),
                secret: webhook.secret.as_ref().map(|secret| &*secret.0),
            };
            let stored = out.journal.append(&Record::WebhookAdded(added));
            self.add_webhook(&added, stored);
        }
        out.effects.replies.push((caller.request, Reply::Count(u64::from(known.is_some()))));
    }

    pub(crate) fn remove_webhook_live<J: Journal>(
        &mut self,
        caller: Caller,
        id: u128,
        out: &mut Out<'_, J>,
    ) {
        let known = self.webhooks.0.contains_key(&id);
        if known {
            out.journal.append(&Record::WebhookRemoved { id });
            self.remove_webhook(id);
        }
        out.effects.replies.push((caller.request, Reply::Count(u64::from(known))));
    }

    /// Applies [`Record::WebhookAdded`]. One that is known already is replaced.
    pub(crate) fn add_webhook(&mut self, added: &WebhookAdded<'_>, stored: LogRef) {
        let webhook = Webhook {
            id: added.id,
            url: added.url.into(),
            events: added.events,
            queue: added.queue.map(Into::into),
            secret: added.secret.map(|secret| Secret(secret.into())),
            created_at_ms: added.created_at_ms,
            set_in: stored,
        };
        let before = self.webhooks.0.insert(webhook.id, webhook);
        self.live.replace(before.map(|it| it.set_in), Some(stored));
    }

    /// Applies [`Record::WebhookRemoved`].
    pub(crate) fn remove_webhook(&mut self, id: u128) {
        let before = self.webhooks.0.remove(&id);
        self.live.replace(before.map(|it| it.set_in), None);
    }

    /// A webhook.
    pub fn webhook(&self, id: u128) -> Option<&Webhook> {
        self.webhooks.0.get(&id)
    }

    /// The webhooks, by id.
    pub fn webhooks(&self) -> impl ExactSizeIterator<Item = &Webhook> {
        self.webhooks.0.values()
    }
}

impl Webhook {
    /// Whether it is enabled.
    pub fn is_enabled(&self) -> bool {
        self.events.is_enabled()
    }

    /// All that is durable of it, as text; of a secret only whether it is the same.
    #[allow(clippy::disallowed_methods)] // Looks nothing up.
    pub(crate) fn facts(&self) -> String {
        let secret = self.secret.as_ref().map(|secret| fnv1a(secret.0.as_bytes()));
        format!(
            "webhook {:032x} to {} for {:x} of {:?} since {} secret {secret:x?}",
            self.id,
            self.url,
            self.events.bits(),
            self.queue,
            self.created_at_ms,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_keep_their_names_and_numbers() {
        let names = [
            "job.completed",
            "job.failed",
            "job.progress",
            "job.active",
            "job.waiting",
            "job.delayed",
            "job.stalled",
            "job.pushed",
            "job.started",
        ];
        for (place, name) in names.into_iter().enumerate() {
            let set = Triggers::named(std::iter::once(name));
            assert_eq!(set.bits(), 1 << place, "{name}");
            assert_eq!(set.iter().map(Trigger::name).collect::<Vec<_>>(), [name]);
        }
        assert_eq!(Triggers::named(names.into_iter()).iter().count(), names.len());
    }

    #[test]
    fn a_step_with_two_names_is_posted_once_to_a_webhook_that_names_none() {
        for step in [Step::Pushed, Step::Pulled] {
            let names: Vec<Trigger> = Trigger::of(step).collect();
            assert_eq!(names.len(), 2);
            let wanted = |events: Triggers| {
                names.iter().filter(|&&it| events.wanted_bits() & (1 << it as u8) != 0).count()
            };
            assert_eq!(wanted(Triggers::default()), 1);
            let both = Triggers::named(names.iter().map(|it| it.name()));
            assert_eq!(wanted(both), 2, "what is named is posted by each name");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let webhook = Webhook {
            id: 1,
            url: "http://a".into(),
            events: Triggers::default(),
            queue: None,
            secret: Some(Secret("hush".into())),
            created_at_ms: 2,
            set_in: LogRef::default(),
        };
        assert!(!format!("{webhook:?} {}", webhook.facts()).contains("hush"));
    }
}
