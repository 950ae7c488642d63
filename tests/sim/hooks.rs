//! Webhooks in the model.

use super::check::Check;
use super::model::{Model, Old};
use corq_shards::Shard;
use corq_shards::webhook::Trigger;

/// A webhook in the model.
#[derive(Clone, PartialEq, Debug)]
pub struct Hook {
    pub url: String,
    /// Events that the webhook asks for; none means all.
    pub events: Vec<Trigger>,
    pub queue: Option<String>,
    pub enabled: bool,
    pub created_at_ms: u64,
}

impl Hook {
    pub fn wants(&self, queue: &str, trigger: Trigger) -> bool {
        let second_name = matches!(trigger, Trigger::Pushed | Trigger::Started);
        (self.events.contains(&trigger) || self.events.is_empty() && !second_name)
            && self.queue.as_ref().is_none_or(|own| own == queue)
    }
}

impl Model {
    pub fn set_hook(&mut self, id: u128, hook: Option<Hook>) {
        self.keep(Old::Hook(id, self.hooks.get(&id).cloned()));
        self.put_hook(id, hook);
    }

    pub fn put_hook(&mut self, id: u128, hook: Option<Hook>) {
        match hook {
            Some(hook) => self.hooks.insert(id, hook),
            None => self.hooks.remove(&id),
        };
    }

    /// The webhooks of the shard are those of the model.
    pub fn compare_hooks(&self, shard: &Shard) {
        let found = shard.webhooks().map(|hook| {
            let events: Vec<Trigger> = hook.events.iter().collect();
            let (url, queue) = (hook.url.to_string(), hook.queue.as_ref().map(ToString::to_string));
            let (enabled, created_at_ms) = (hook.is_enabled(), hook.created_at_ms);
            (hook.id, Hook { url, events, queue, enabled, created_at_ms })
        });
        let found: Vec<(u128, Hook)> = found.collect();
        let expected = self.hooks.iter().map(|(id, hook)| (*id, hook.clone()));
        self.must(Check::Hook, expected.eq(found.iter().cloned()), || {
            format!("webhooks {found:?}, not {:?}", self.hooks)
        });
    }
}
