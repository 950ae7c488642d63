//! `Dlq`, `RetryDlq` with a filter, and `GetDlqStats`.

use super::{Answer, Call};
use crate::chores::Work;
use crate::judge::Moment;
use crate::model::Model;
use crate::sift;
use crate::world::{QUEUES, World};
use corq_shards::command::{Command, Sifting};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::dead_letter::scan::{FailedFilter, SiftFor};

/// A walk through a dead-letter queue.
#[derive(Clone, Debug)]
struct Sift {
    queue: String,
    sift: sift::Sift,
}

impl Call for Sift {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let sift::Sift { filter, offset, limit, purpose } = self.sift;
        to(&Command::Sift(&Sifting { queue: &self.queue, filter, offset, limit, purpose }));
    }

    fn judge(&self, model: &mut Model, at: &Moment<'_>, _answer: Option<&Answer>) {
        model.begin_chore(at, &self.queue, Work::Sift(self.sift), self.sift.limit);
    }
}

/// A client looks through a dead-letter queue.
pub fn act(world: &mut World, client: usize) {
    let queue = world.dice.pick(QUEUES);
    let (dice, now_ms) = (&mut world.dice, world.now_ms);
    let purpose = dice.pick(&[SiftFor::Listing, SiftFor::Retry, SiftFor::Stats]);
    let ago = [None, None, None, Some(0), Some(100), Some(5000)];
    let filter = FailedFilter {
        cause: dice.pick(&[
            None,
            None,
            None,
            None,
            Some(Cause::Attempts),
            Some(Cause::Explicit),
            Some(Cause::Timeout),
            Some(Cause::Stalled),
            Some(Cause::Unknown),
        ]),
        until_ms: dice.pick(&ago).map(|ago_ms| now_ms - ago_ms),
        since_ms: dice.pick(&ago).map(|ago_ms| now_ms - ago_ms),
        retriable: dice.one_in(8),
        expired: dice.one_in(8),
    };
    let all = sift::Sift { filter: FailedFilter::default(), offset: 0, limit: u64::MAX, purpose };
    let some = match purpose {
        SiftFor::Stats => all,
        SiftFor::Retry => sift::Sift { filter, limit: dice.pick(&[1, 3, u64::MAX]), ..all },
        SiftFor::Listing => {
            let offset = dice.pick(&[0, 0, 1, 4]);
            sift::Sift { filter, offset, limit: dice.pick(&[0, 1, 3, 1000]), ..all }
        }
    };
    let shard = world.shard_of_queue(queue);
    world.send(client, shard, Sift { queue: queue.into(), sift: some });
}
