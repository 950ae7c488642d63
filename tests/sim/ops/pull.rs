//! PULL and PULLB: locked or not, at once or waiting.

use super::{Answer, Call, Learned, push};
use crate::check::Check;
use crate::client::Held;
use crate::dice::Dice;
use crate::groups::{GROUPS, OfGroups, Wanted};
use crate::job_rules::Moment;
use crate::model::{Model, Waiter};
use crate::world::{QUEUES, World};
use corq_shards::command::{self, Command, GroupPull, Only};
use corq_shards::group::GroupRate;

/// PULL or PULLB of a client.
#[derive(Clone, Debug)]
pub struct Pull {
    pub queue: String,
    pub count: u32,
    pub timeout_ms: u64,
    pub locked: bool,
    pub lock_ttl_ms: u32,
    pub detach: bool,
    pub of_groups: OfGroups,
}

impl Call for Pull {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let OfGroups { active_max, rate, wanted } = &self.of_groups;
        let only = match wanted {
            Wanted::Any => Only::Any,
            Wanted::Ungrouped => Only::Ungrouped,
            Wanted::Group(group) => Only::Group(group),
        };
        let group = GroupPull { active_max: *active_max, rate: *rate, only };
        to(&Command::Pull(command::Pull {
            queue: &self.queue,
            count: self.count,
            timeout_ms: self.timeout_ms,
            locked: self.locked,
            lock_ttl_ms: self.lock_ttl_ms,
            detach: self.detach,
            owner: self.locked.then_some("worker"),
            group: (self.of_groups != OfGroups::default()).then_some(&group),
        }));
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        model.hear_limits(&self.queue, &self.of_groups);
        model.waiters.push(Waiter {
            request: at.request,
            client: at.client,
            queue: self.queue.clone(),
            count: self.count as usize,
            until_ms: at.now_ms + self.timeout_ms,
            locked: self.locked,
            detach: self.detach,
            ttl_ms: self.lock_ttl_ms.into(),
            of_groups: self.of_groups.clone(),
        });
        model.must(Check::Answer, answer.is_some() || self.timeout_ms > 0, || {
            "a pull that does not wait has no answer".into()
        });
    }

    fn learn(&self, world: &mut World, learned: &Learned<'_>) {
        let Answer::Pulled(jobs) = learned.answer else { return };
        for &(job, token) in jobs {
            let reopened = &world.nodes[learned.shard].model.reopened;
            let done = world.ledger.done.contains_key(&job) && !reopened.contains(&job);
            world.checks.must(Check::Again, !done, || {
                format!("{job:?} was completed, and a client gets it again")
            });
            let held = Held { job, token, shard: learned.shard };
            match world.clients.iter_mut().find(|client| client.id == learned.client) {
                Some(client) => client.held.push(held),
                // Too late for its client; another one may try it nevertheless.
                None => world.stale.push(held),
            }
        }
    }
}

fn of_groups(dice: &mut Dice) -> OfGroups {
    let wanted = match dice.below(4) {
        0 => Wanted::Ungrouped,
        1 => Wanted::Group(dice.pick(GROUPS).into()),
        _ => Wanted::Any,
    };
    let one = GroupRate { jobs: 1, span_ms: 9000 };
    let two = GroupRate { jobs: 2, span_ms: 2000 };
    let (active_max, rate) = dice.pick(&[
        (None, None),
        (Some(1), None),
        (Some(2), None),
        (None, Some(one)),
        (None, Some(one)),
        (None, Some(two)),
    ]);
    OfGroups { active_max, rate, wanted }
}

/// A client pushes several jobs of one group, and wants all of them at a rate that is too low for that.
pub fn rush(world: &mut World, client: usize) {
    let (queue, group) = (world.dice.pick(QUEUES), world.dice.pick(GROUPS));
    push::of_one_group(world, client, queue, group, 3);
    let dice = &mut world.dice;
    let of_groups = OfGroups { wanted: Wanted::Group(group.into()), ..of_groups(dice) };
    let pull = Pull {
        queue: queue.into(),
        count: 3,
        timeout_ms: dice.pick(&[0, 1000]),
        locked: true,
        lock_ttl_ms: 30_000,
        detach: dice.one_in(2),
        of_groups,
    };
    let shard = world.shard_of_queue(&pull.queue);
    for _ in 0..2 {
        world.send(client, shard, pull.clone());
    }
}

/// A client pulls.
pub fn act(world: &mut World, client: usize) {
    let dice = &mut world.dice;
    let pull = Pull {
        queue: dice.pick(QUEUES).into(),
        count: if dice.one_in(3) { 1 + dice.below(4) as u32 } else { 1 },
        timeout_ms: dice.pick(&[0, 0, 50, 1000, 10_000]),
        locked: !dice.one_in(3),
        lock_ttl_ms: dice.pick(&[1, 200, 3000, 30_000]),
        detach: dice.one_in(5),
        of_groups: if dice.one_in(3) { of_groups(dice) } else { OfGroups::default() },
    };
    let shard = world.shard_of_queue(&pull.queue);
    world.send(client, shard, pull);
}
