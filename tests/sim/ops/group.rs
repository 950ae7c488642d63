//! Settings of groups of jobs.

use super::{Answer, Call};
use crate::check::Check;
use crate::groups::GROUPS;
use crate::job_rules::Moment;
use crate::model::Model;
use crate::world::{QUEUES, World};
use corq_shards::command::{Command, GroupLimit};
use corq_shards::group::{GroupRate, GroupSettings};

/// A setting of a group.
#[derive(Clone, Debug)]
pub struct LimitGroup {
    pub queue: String,
    pub group: String,
    pub limit: GroupLimit,
}

impl Call for LimitGroup {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::LimitGroup { queue: &self.queue, group: &self.group, limit: self.limit });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let before = model.settings_of(&self.queue, &self.group);
        let after = match self.limit {
            GroupLimit::Active(active_max) => GroupSettings { active_max, ..before },
            GroupLimit::Weight(weight) => GroupSettings { weight, ..before },
            GroupLimit::Paused(paused) => GroupSettings { paused, ..before },
            GroupLimit::Rate(rate) => GroupSettings { rate, ..before },
            GroupLimit::Hold(span_ms) => {
                GroupSettings { held_until_ms: at.now_ms + span_ms, ..before }
            }
        };
        let changed = u64::from(before != after);
        model
            .must(Check::Answer, answer == Some(&Answer::Count(changed)), || format!("{answer:?}"));
        model.set_group(&self.queue, &self.group, after);
    }
}

/// A client sets something for a group.
pub fn act(world: &mut World, client: usize) {
    let dice = &mut world.dice;
    let (queue, group) = (dice.pick(QUEUES), dice.pick(GROUPS));
    let limit = match dice.below(6) {
        0 => GroupLimit::Weight(dice.pick(&[1, 2, 5])),
        1 => GroupLimit::Paused(dice.one_in(3)),
        2 => GroupLimit::Hold(dice.pick(&[1, 100, 3000])),
        3 => {
            let rate = dice.pick(&[None, Some((1, 500)), Some((2, 500)), Some((3, 8000))]);
            GroupLimit::Rate(rate.map(|(jobs, span_ms)| GroupRate { jobs, span_ms }))
        }
        _ => GroupLimit::Active(dice.pick(&[None, Some(1), Some(1), Some(2)])),
    };
    let shard = world.shard_of_queue(queue);
    world.send(client, shard, LimitGroup { queue: queue.into(), group: group.into(), limit });
}
