//! `SetDlqConfig` and `SetStallConfig`.

use super::{Answer, Call};
use crate::bulk_operations::Work;
use crate::check::Check;
use crate::job_rules::Moment;
use crate::model::Model;
use crate::rules::Rules;
use crate::world::{QUEUES, World};
use corq_shards::command::Command;
use corq_shards::dead_letter::policy::{DlqPatch, DlqRule, RulePatch, StallPatch, StallRule};

/// Sets one of both.
#[derive(Clone, Debug)]
pub struct SetRule {
    queue: String,
    patch: RulePatch,
}

impl SetRule {
    /// Takes back the rules that keep a queue from coming to rest: jobs leave the dead-letter queue by themselves no
    /// longer, in whatever way, and silent workers are given up.
    pub fn calm(queue: &str) -> [Self; 2] {
        let auto_retry = Some(false);
        let dlq = DlqPatch { auto_retry, age_max_ms: Some(None), ..DlqPatch::default() };
        let stall = StallPatch { enabled: Some(true), ..StallPatch::default() };
        [RulePatch::Dlq(dlq), RulePatch::Stall(stall)]
            .map(|patch| Self { queue: queue.into(), patch })
    }

    fn after(&self, before: Rules) -> Rules {
        let Rules { dlq, stall } = before;
        match self.patch {
            RulePatch::Dlq(patch) => {
                let dlq = DlqRule {
                    auto_retry: patch.auto_retry.unwrap_or(dlq.auto_retry),
                    retry_interval_ms: patch.retry_interval_ms.unwrap_or(dlq.retry_interval_ms),
                    retries_max: patch.retries_max.unwrap_or(dlq.retries_max),
                    age_max_ms: patch.age_max_ms.unwrap_or(dlq.age_max_ms),
                    entries_max: patch.entries_max.unwrap_or(dlq.entries_max),
                };
                Rules { dlq, stall }
            }
            RulePatch::Stall(patch) => {
                let stall = StallRule {
                    enabled: patch.enabled.unwrap_or(stall.enabled),
                    interval_ms: patch.interval_ms.or(stall.interval_ms),
                    stalls_max: patch.stalls_max.unwrap_or(stall.stalls_max),
                    grace_ms: patch.grace_ms.unwrap_or(stall.grace_ms),
                };
                Rules { dlq, stall }
            }
        }
    }
}

impl Call for SetRule {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::Rule { queue: &self.queue, patch: self.patch });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let before = model.rules(&self.queue);
        let after = self.after(before);
        if after == before {
            model.must(Check::Answer, answer == Some(&Answer::Done), || format!("{answer:?}"));
            return;
        }
        model.rule(&self.queue, after);
        model.begin_bulk(at, &self.queue, Work::Rearm, 0);
    }
}

/// A client sets a rule.
pub fn act(world: &mut World, client: usize) {
    let queue = world.dice.pick(QUEUES);
    let dice = &mut world.dice;
    let (dlq, stall) = (DlqPatch::default(), StallPatch::default());
    let patch = match dice.below(6) {
        0 => RulePatch::Stall(StallPatch { stalls_max: Some(dice.pick(&[0, 1, 2, 3])), ..stall }),
        1 => RulePatch::Stall(StallPatch {
            enabled: Some(!dice.one_in(3)),
            interval_ms: dice.pick(&[None, Some(1), Some(500), Some(20_000)]),
            grace_ms: dice.pick(&[None, Some(0), Some(900)]),
            ..stall
        }),
        2 => {
            let age_max_ms = dice.pick(&[None, Some(1), Some(800), Some(40_000)]);
            RulePatch::Dlq(DlqPatch { age_max_ms: Some(age_max_ms), ..dlq })
        }
        3 => {
            let entries_max = dice.pick(&[None, Some(1), Some(2), Some(5)]);
            RulePatch::Dlq(DlqPatch { entries_max: Some(entries_max), ..dlq })
        }
        _ => {
            // Short and often, too, so that the wait is seen to double.
            let retry = [
                None,
                Some((0, 1)),
                Some((20, 4)),
                Some((700, 2)),
                Some((4000, 1)),
                Some((30_000, 3)),
            ];
            let retry = dice.pick(&retry);
            RulePatch::Dlq(DlqPatch {
                auto_retry: Some(retry.is_some()),
                retry_interval_ms: retry.map(|(interval_ms, _)| interval_ms),
                retries_max: retry.map(|(_, most)| most),
                ..dlq
            })
        }
    };
    let shard = world.shard_of_queue(queue);
    world.send(client, shard, SetRule { queue: queue.into(), patch });
}
