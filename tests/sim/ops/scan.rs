//! `Dlq`, `RetryDlq` with a filter, and `GetDlqStats`.

use super::{Answer, Call};
use crate::bulk_operations::Work;
use crate::job_rules::Moment;
use crate::model::Model;
use crate::scan;
use crate::world::{QUEUES, World};
use corq_shards::command::{Command, DlqScanRequest};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::dead_letter::scan::{DlqScanFor, FailedFilter};

/// A walk through a dead-letter queue.
#[derive(Clone, Debug)]
struct DlqScan {
    queue: String,
    scan: scan::DlqScan,
}

impl Call for DlqScan {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let scan::DlqScan { filter, offset, limit, purpose } = self.scan;
        to(&Command::DlqScan(&DlqScanRequest {
            queue: &self.queue,
            filter,
            offset,
            limit,
            purpose,
        }));
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, _answer: Option<&Answer>) {
        model.begin_bulk(at, &self.queue, Work::DlqScan(self.scan), self.scan.limit);
    }
}

/// A client looks through a dead-letter queue.
pub fn act(world: &mut World, client: usize) {
    let queue = world.dice.pick(QUEUES);
    let (dice, now_ms) = (&mut world.dice, world.now_ms);
    let purpose = dice.pick(&[DlqScanFor::Listing, DlqScanFor::Retry, DlqScanFor::Stats]);
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
    let all =
        scan::DlqScan { filter: FailedFilter::default(), offset: 0, limit: u64::MAX, purpose };
    let some = match purpose {
        DlqScanFor::Stats => all,
        DlqScanFor::Retry => scan::DlqScan { filter, limit: dice.pick(&[1, 3, u64::MAX]), ..all },
        DlqScanFor::Listing => {
            let offset = dice.pick(&[0, 0, 1, 4]);
            scan::DlqScan { filter, offset, limit: dice.pick(&[0, 1, 3, 1000]), ..all }
        }
    };
    let shard = world.shard_of_queue(queue);
    world.send(client, shard, DlqScan { queue: queue.into(), scan: some });
}
