//! Flows, as one shard sees its part of them. The fear: a flow that was promised to be durable, and of which
//! a loss of power leaves some jobs.

use crate::support::{Bed, config};
use corq_shards::Config;
use corq_shards::command::Command;
use corq_shards::dependency::{News, Notice};
use corq_shards::flow::{Fate, Staged};
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::{Pushed, Record};

/// Stages a job of a flow of its own.
fn stage(bed: &mut Bed, durable: bool) -> JobId {
    let id = bed.shard.reserve_id(bed.now_ms, "q");
    let job = NewJob { data: b"\x01", ..NewJob::default() };
    let pushed = Pushed { id, queue: "q", run_at_ms: bed.now_ms, job: job.into() };
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

const SLICE: u64 = 3;

/// Stages a flow of so many jobs, and says which.
fn stage_many(bed: &mut Bed, count: usize, durable: bool) -> Vec<JobId> {
    let ids: Vec<JobId> = (0..count).map(|_| bed.shard.reserve_id(bed.now_ms, "q")).collect();
    for &id in &ids {
        let job = NewJob { data: b"\x01", ..NewJob::default() };
        let pushed = Pushed { id, queue: "q", run_at_ms: bed.now_ms, job: job.into() };
        let record = Record::Staged(Staged { flow: ids[0], pushed });
        let mut bytes = vec![0; record.encoded_len()];
        record.encode(&mut bytes);
        bed.run(0, &Command::Stage { records: &[&bytes], group_max: &[], durable });
    }
    ids
}

fn come(bed: &Bed, ids: &[JobId]) -> usize {
    ids.iter().filter(|&&id| bed.state(id).is_some()).count()
}

#[test]
fn a_large_part_comes_or_goes_in_slices_and_a_crash_in_between_changes_nothing() {
    for fate in [Fate::Committed, Fate::CommittedHere, Fate::Released, Fate::Dropped] {
        let mut bed = Bed::with(Config { bulk_slice: SLICE, ..config(9) });
        let count = 4 * SLICE as usize + 1;
        let ids = stage_many(&mut bed, count, true);
        let flow = ids[0];
        let before = bed.journal.syncs;
        decide(&mut bed, flow, fate, false);
        assert_eq!(come(&bed, &ids), 0, "{fate:?}: a slice at a time");
        let comes = fate != Fate::Dropped;
        for slice in 1..=5 {
            let all = bed.shard.steps();
            bed.tick();
            let most = (slice * SLICE as usize).min(count);
            assert_eq!(come(&bed, &ids), if comes { most } else { 0 }, "{fate:?}");
            assert!(bed.shard.steps() - all <= 2 * SLICE, "{fate:?}");
            assert_eq!(bed.shard.is_staged(flow), slice < 5, "{fate:?}");
            bed.shard.audit().unwrap();
            // As far as it is written down it is so after a crash; the rest is staged as before.
            let mut again = bed.replayed();
            assert_eq!(again.facts(), bed.shard.facts(), "{fate:?}");
            again.restart(bed.now_ms);
            assert_eq!(again.is_staged(flow), slice < 5, "{fate:?}");
        }
        let word = matches!(fate, Fate::Committed | Fate::CommittedHere);
        assert_eq!(bed.journal.syncs - before, usize::from(word) + if comes { 5 } else { 0 });
        assert_eq!(bed.shard.open_flows(), if word { vec![flow] } else { vec![] });
        decide(&mut bed, flow, Fate::Done, false);
        assert!(bed.shard.open_flows().is_empty());
    }
}

#[test]
fn after_a_crash_the_rest_of_a_committed_part_comes_by_itself_and_that_of_another_by_its_word() {
    for fate in [Fate::CommittedHere, Fate::Released] {
        let mut bed = Bed::with(Config { bulk_slice: SLICE, ..config(9) });
        let ids = stage_many(&mut bed, 8, false);
        decide(&mut bed, ids[0], fate, false);
        bed.tick();
        bed.shard = bed.replayed();
        bed.shard.restart(bed.now_ms);
        if fate == Fate::Released {
            assert_eq!(bed.shard.undecided_names().len(), 0, "its jobs have none");
            bed.tick();
            assert_eq!(come(&bed, &ids), 3);
            decide(&mut bed, ids[0], fate, false);
        }
        bed.tick();
        bed.tick();
        assert_eq!(come(&bed, &ids), 8, "{fate:?}");
        bed.shard.audit().unwrap();
    }
}

#[test]
fn a_job_that_is_heard_of_comes_before_its_slice() {
    for decided in [false, true] {
        let mut bed = Bed::with(Config { bulk_slice: SLICE, ..config(9) });
        let ids = stage_many(&mut bed, 9, false);
        if decided {
            decide(&mut bed, ids[0], Fate::Released, false);
        }
        let watch = Notice { news: News::Watch, dependent: JobId(7), dependency: ids[8] };
        bed.run(0, &Command::Notice(watch));
        assert_eq!((come(&bed, &ids), bed.state(ids[8])), (1, Some(State::Waiting)));
        for most in [4, 7, 9] {
            bed.tick();
            assert_eq!(come(&bed, &ids), most);
        }
        bed.shard.audit().unwrap();
        assert_eq!(bed.replayed().facts(), bed.shard.facts());
    }
}
