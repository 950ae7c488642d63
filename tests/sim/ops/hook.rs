//! `AddWebhook`, `SetWebhookEnabled`, `RemoveWebhook`. Each shard has its own here: that one of them keeps
//! those of the server, and tells the others, is not simulated.

use super::{Answer, Call};
use crate::check::Check;
use crate::hooks::Hook;
use crate::job_rules::Moment;
use crate::model::Model;
use crate::world::{QUEUES, World};
use corq_shards::command::{AddWebhook, Command};
use corq_shards::log_record::Record;
use corq_shards::webhook::{Trigger, Triggers};

/// A change of webhooks.
#[derive(Clone, Debug)]
enum What {
    Add { events: Vec<Trigger>, queue: Option<String> },
    Enable(bool),
    Remove,
}

/// A change of a webhook.
#[derive(Clone, Debug)]
struct ChangeHook {
    id: u128,
    what: What,
}

impl ChangeHook {
    fn url(&self) -> String {
        format!("http://host/{}", self.id)
    }
}

impl Call for ChangeHook {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let id = self.id;
        match &self.what {
            What::Add { events, queue } => {
                let events = Triggers::named(events.iter().map(|event| event.name()));
                let (url, queue) = (&*self.url(), queue.as_deref());
                to(&Command::AddWebhook(&AddWebhook { id, url, events, queue, secret: None }));
            }
            What::Enable(enabled) => to(&Command::EnableWebhook { id, enabled: *enabled }),
            What::Remove => to(&Command::RemoveWebhook { id }),
        }
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let known = model.hooks.get(&self.id).cloned();
        let count = Answer::Count(u64::from(known.is_some()));
        let (expected, hook) = match &self.what {
            What::Add { events, queue } => {
                let (url, events, queue) = (self.url(), events.clone(), queue.clone());
                let created_at_ms = at.now_ms;
                (Answer::Done, Some(Hook { url, events, queue, enabled: true, created_at_ms }))
            }
            What::Enable(enabled) => {
                (count, known.clone().map(|hook| Hook { enabled: *enabled, ..hook }))
            }
            What::Remove => (count, None),
        };
        model.must(Check::Hook, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
        if hook != known {
            model.record = at.place_of(|record| {
                matches!(record, Record::WebhookAdded(_) | Record::WebhookRemoved { .. })
            });
            model.must(Check::Hook, model.record.is_some(), || format!("{self:?} is not noted"));
            model.set_hook(self.id, hook);
            model.record = None;
        }
    }
}

/// A client adds a webhook, or changes one.
pub fn act(world: &mut World, client: usize) {
    let shard = world.dice.index(world.nodes.len());
    let known: Vec<u128> = world.nodes[shard].model.hooks.keys().copied().collect();
    let dice = &mut world.dice;
    let call = if known.len() < 3 && dice.one_in(2) {
        let mut events = Trigger::ALL.to_vec();
        if dice.one_in(3) {
            events.clear();
        } else {
            events.retain(|_| dice.one_in(3));
        }
        let queue = dice.one_in(2).then(|| dice.pick(QUEUES).to_owned());
        ChangeHook { id: dice.draw().into(), what: What::Add { events, queue } }
    } else {
        // Now and then one that is not there.
        let id = if known.is_empty() || dice.one_in(8) { 7 } else { dice.pick(&known) };
        let what = if dice.one_in(3) { What::Remove } else { What::Enable(dice.one_in(2)) };
        ChangeHook { id, what }
    };
    world.send(client, shard, call);
}
