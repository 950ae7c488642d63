//! `SetDlqConfig` and `SetStallConfig`.

use super::{Answer, Call};
use crate::check::Check;
use crate::chores::Work;
use crate::judge::Moment;
use crate::model::Model;
use crate::rules::Rules;
use crate::world::{QUEUES, World};
use corq_shards::command::Command;
use corq_shards::rules::{DlqPatch, RulePatch, StallPatch};

/// Sets one of both.
#[derive(Clone, Debug)]
pub struct SetRule {
    queue: String,
    part: Part,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Retry(Option<(u64, u32)>),
    Stalls(u8),
}

impl SetRule {
    /// Jobs leave the dead-letter queue by themselves no longer.
    pub fn no_retry(queue: &str) -> Self {
        Self { queue: queue.into(), part: Part::Retry(None) }
    }

    fn patch(&self) -> RulePatch {
        match self.part {
            Part::Stalls(most) => {
                RulePatch::Stall(StallPatch { stalls_max: Some(most), ..StallPatch::default() })
            }
            Part::Retry(retry) => RulePatch::Dlq(DlqPatch {
                auto_retry: Some(retry.is_some()),
                retry_interval_ms: Some(retry.map_or(3_600_000, |(interval_ms, _)| interval_ms)),
                retries_max: Some(retry.map_or(3, |(_, most)| most)),
                ..DlqPatch::default()
            }),
        }
    }
}

impl Call for SetRule {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::Rule { queue: &self.queue, patch: self.patch() });
    }

    fn judge(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let before = model.rules(&self.queue);
        let after = match self.part {
            Part::Retry(retry) => Rules { retry, ..before },
            Part::Stalls(stalls_max) => Rules { stalls_max, ..before },
        };
        if after == before {
            model.must(Check::Answer, answer == Some(&Answer::Done), || format!("{answer:?}"));
            return;
        }
        model.rule(&self.queue, after);
        model.begin_chore(at, &self.queue, Work::Rearm, 0);
    }
}

/// A client sets a rule.
pub fn act(world: &mut World, client: usize) {
    let queue = world.dice.pick(QUEUES);
    let part = if world.dice.one_in(3) {
        Part::Stalls(world.dice.pick(&[0, 1, 2, 3]))
    } else {
        let retry = [None, Some((0, 1)), Some((700, 2)), Some((4000, 1)), Some((30_000, 3))];
        Part::Retry(world.dice.pick(&retry))
    };
    let shard = world.shard_of_queue(queue);
    world.send(client, shard, SetRule { queue: queue.into(), part });
}
