//! Flows, as one shard sees its part of them. The fear: a flow that was promised to be durable, and of which
//! a loss of power leaves some jobs.
#![allow(clippy::unwrap_used)]

mod support;

use corq_shards::command::Command;
use corq_shards::dependency::{News, Notice};
use corq_shards::flow::{Fate, Staged};
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::{Pushed, Record};
use support::Bed;

/// Stages a job of a flow of its own.
fn stage(bed: &mut Bed, durable: bool) -> JobId {
    let id = bed.shard.reserve_id(bed.now_ms, "q");
    let job = NewJob { data: b"\x01", ..NewJob::default() };
    let pushed = Pushed { id, queue: "q", run_at_ms: bed.now_ms, job };
    let record = Record::Staged(Staged { flow: id, pushed });
    let mut bytes = vec![0; record.encoded_len()];
    record.encode(&mut bytes);
    bed.run(0, &Command::Stage { records: &[&bytes], group_max: &[], durable });
    id
}

/// Decides it, and says whether that waits for the disk.
fn decide(bed: &mut Bed, flow: JobId, fate: Fate, durable: bool) -> bool {
    let before = bed.journal.syncs;
    bed.run(0, &Command::Decide { flow, fate, durable });
    bed.journal.syncs > before
}

#[test]
fn every_step_of_a_durable_flow_waits_for_the_disk_and_none_of_another() {
    let mut bed = Bed::new();
    for durable in [false, true] {
        let before = bed.journal.syncs;
        for fate in [Fate::Committed, Fate::CommittedHere, Fate::Released] {
            let flow = stage(&mut bed, durable);
            assert_eq!(decide(&mut bed, flow, fate, false), durable, "{fate:?}");
            assert_eq!(bed.state(flow), Some(State::Waiting));
        }
        assert_eq!(bed.journal.syncs - before, if durable { 6 } else { 0 });
        let flow = stage(&mut bed, durable);
        assert!(!decide(&mut bed, flow, Fate::Dropped, false), "nobody was told anything");
        let elsewhere = JobId(7);
        assert_eq!(decide(&mut bed, elsewhere, Fate::Committed, durable), durable);
        assert!(!decide(&mut bed, elsewhere, Fate::Done, durable), "it may be told again");
    }
    bed.shard.audit().unwrap();
}

#[test]
fn a_part_that_is_heard_of_or_was_there_before_the_start_comes_durably() {
    let mut bed = Bed::new();
    let heard_of = stage(&mut bed, true);
    let before = bed.journal.syncs;
    let watch = Notice { news: News::Watch, dependent: JobId(7), dependency: heard_of };
    bed.run(0, &Command::Notice(watch));
    assert!(bed.state(heard_of) == Some(State::Waiting) && bed.journal.syncs > before);
    let flow = stage(&mut bed, true);
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    assert!(decide(&mut bed, flow, Fate::Released, false));
    assert_eq!(bed.state(flow), Some(State::Waiting));
}
