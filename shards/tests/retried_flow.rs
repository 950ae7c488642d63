//! Flows that failed and are tried again. The fear: a parent that runs before its children, without their values, or
//! never.

use crate::support::Bed;
use crate::support::family::deliver;
use corq_shards::command::{Command, DlqScanRequest};
use corq_shards::dead_letter::policy::{DlqPatch, RulePatch};
use corq_shards::dead_letter::scan::{DlqScanFor, FailedFilter};
use corq_shards::dependency::Unmet;
use corq_shards::event::Step;
use corq_shards::family::{How, NewFamily, Policy};
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use std::collections::VecDeque;

/// Carries all that jobs have to tell each other, all of which are this shard's.
fn carry(bed: &mut Bed) {
    let (mut notices, mut reports) = (VecDeque::new(), VecDeque::new());
    let mut is_quiet = false;
    for _ in 0..1000 {
        let before = notices.len() + reports.len();
        notices.extend(bed.effects.notices.drain(..));
        reports.extend(bed.effects.reports.drain(..));
        if let Some(report) = reports.pop_front() {
            deliver(bed, &report);
        } else if let Some(notice) = notices.pop_front() {
            bed.run(0, &Command::Notice(notice));
        } else if is_quiet && before == 0 {
            return;
        } else {
            bed.pass(0);
            is_quiet = true;
            continue;
        }
        is_quiet = false;
    }
    panic!("jobs answer one another without end");
}

/// A crash, after which every job asks again.
fn restart(bed: &mut Bed) {
    let facts = bed.shard.facts();
    bed.shard = bed.replayed();
    assert_eq!(bed.shard.facts(), facts);
    bed.shard.restart(bed.now_ms);
    bed.effects.reports.clear();
    bed.effects.notices = bed.shard.watches_to_renew().collect();
    carry(bed);
    bed.shard.audit().unwrap();
}

fn child(bed: &mut Bed, policy: Option<Policy>, job: NewJob<'_>) -> JobId {
    let family = NewFamily { parent: Some("whole"), policy, ..NewFamily::default() };
    bed.push("part", NewJob { family: Some(Box::new(family)), max_attempts: 1, ..job })
}

fn parent(bed: &mut Bed, queue: &str, children: &[JobId], family: NewFamily<'_>) -> JobId {
    let mut open = Vec::new();
    for &child in children {
        Unmet::push(&mut open, child, "");
    }
    let family = NewFamily { open: Unmet::new(&open), ..family };
    let job = NewJob { family: Some(Box::new(family)), max_attempts: 1, ..NewJob::default() };
    let parent = bed.push(queue, job);
    carry(bed);
    parent
}

fn fail(bed: &mut Bed, queue: &str) -> JobId {
    let (id, token) = bed.pull(1, queue, 1)[0];
    bed.fail(id, Some(token)).unwrap();
    carry(bed);
    id
}

fn finish(bed: &mut Bed, queue: &str) -> JobId {
    let (id, token) = bed.pull(1, queue, 1)[0];
    bed.ack(id, Some(token)).unwrap();
    carry(bed);
    id
}

/// Two children, of which the first has failed its parent.
fn failed_flow(bed: &mut Bed, job: NewJob<'_>) -> [JobId; 3] {
    let first = child(bed, Some(Policy::Fail), job.clone());
    let second = child(bed, Some(Policy::Fail), job);
    let whole = parent(bed, "whole", &[first, second], NewFamily::default());
    assert_eq!(fail(bed, "part"), first);
    assert_eq!(bed.state(whole), Some(State::Failed));
    [whole, first, second]
}

/// Children whose value a job has.
fn values(bed: &Bed, job: JobId) -> Vec<JobId> {
    let view = bed.shard.view(bed.shard.find(job).unwrap());
    let family = view.options.and_then(|has| has.family.as_deref());
    let ends = family.into_iter().flat_map(|family| family.ends.values());
    let mut values: Vec<JobId> =
        ends.filter(|end| end.how == How::Completed).map(|end| end.child).collect();
    values.sort_unstable();
    values
}

fn retry(bed: &mut Bed, queue: &str, job: JobId) {
    bed.run(1, &Command::RetryFailed { queue, job: Some(job), count: 1 });
    carry(bed);
}

/// All ways to try the one failed job of a queue again.
const WAYS: [fn(&mut Bed, JobId); 5] = [
    |bed, job| retry(bed, "whole", job),
    |bed, _| {
        bed.run(1, &Command::RetryFailed { queue: "whole", job: None, count: u64::MAX });
        carry(bed);
    },
    |bed, _| {
        let filter = FailedFilter::default();
        let purpose = DlqScanFor::Retry;
        let scan = DlqScanRequest { queue: "whole", filter, offset: 0, limit: 9, purpose };
        bed.run(1, &Command::DlqScan(&scan));
        carry(bed);
    },
    |bed, job| {
        bed.run(1, &Command::Change { job, change: Change::ToWait { token: None } });
        carry(bed);
    },
    |bed, _| {
        let patch = DlqPatch {
            auto_retry: Some(true),
            retry_interval_ms: Some(1000),
            retries_max: Some(9),
            age_max_ms: None,
            entries_max: None,
        };
        bed.run(1, &Command::Rule { queue: "whole", patch: RulePatch::Dlq(patch) });
        bed.pass(1000);
        carry(bed);
    },
];

#[test]
fn a_retried_parent_waits_for_its_children_and_has_the_values_of_all() {
    for (way, retry_parent) in WAYS.into_iter().enumerate() {
        // Whether the parent is tried again before the failed child is, before that is done, or after.
        for order in 0..3 {
            for crash in [false, true] {
                let mut bed = Bed::new();
                let [whole, first, second] = failed_flow(&mut bed, NewJob::default());
                let again = |bed: &mut Bed| {
                    bed.pass(10);
                    retry_parent(bed, whole);
                    let about = format!("way {way}, order {order}");
                    let waits = bed.state(whole) == Some(State::WaitingChildren);
                    assert_eq!(waits, order < 2, "{about}");
                    if crash {
                        restart(bed);
                        assert_eq!(
                            bed.state(whole) == Some(State::WaitingChildren),
                            waits,
                            "{about}"
                        );
                    }
                };
                assert_eq!(finish(&mut bed, "part"), second);
                if order == 0 {
                    again(&mut bed);
                    assert!(bed.pull(1, "whole", 1).is_empty());
                }
                retry(&mut bed, "part", first);
                if order == 1 {
                    again(&mut bed);
                }
                assert_eq!(finish(&mut bed, "part"), first);
                if order == 2 {
                    again(&mut bed);
                }
                assert_eq!(values(&bed, whole), [first, second]);
                assert_eq!(finish(&mut bed, "whole"), whole);
                restart(&mut bed);
                assert_eq!(bed.shard.holdings().watches, 0, "nobody waits any more");
            }
        }
    }
}

#[test]
fn a_retried_parent_has_the_values_of_children_that_went_with_their_completion() {
    for crash in [false, true] {
        let mut bed = Bed::new();
        let goes = NewJob { remove_on_complete: true, ..NewJob::default() };
        let [whole, first, second] = failed_flow(&mut bed, goes);
        finish(&mut bed, "part");
        retry(&mut bed, "part", first);
        finish(&mut bed, "part");
        assert_eq!((bed.state(first), bed.state(second)), (None, None));
        if crash {
            restart(&mut bed);
        }
        retry(&mut bed, "whole", whole);
        assert_eq!(bed.state(whole), Some(State::Waiting));
        assert_eq!(values(&bed, whole), [first, second]);
        assert_eq!(bed.shard.holdings().unreported, 0);
        restart(&mut bed);
    }
}

#[test]
fn a_child_that_fails_again_fails_its_retried_parent_again() {
    // The child is tried again before the parent, or after; a crash comes before the parent has heard of it.
    for (first_is_child, crash) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut bed = Bed::new();
        let [whole, first, _] = failed_flow(&mut bed, NewJob::default());
        finish(&mut bed, "part");
        for is_child in [first_is_child, !first_is_child] {
            bed.pass(10);
            if is_child {
                retry(&mut bed, "part", first);
            } else {
                retry(&mut bed, "whole", whole);
            }
        }
        bed.pass(10);
        let (_, token) = bed.pull(1, "part", 1)[0];
        bed.fail(first, Some(token)).unwrap();
        if crash {
            restart(&mut bed);
        } else {
            carry(&mut bed);
        }
        assert_eq!(bed.state(whole), Some(State::Failed), "{first_is_child} {crash}");
        retry(&mut bed, "whole", whole);
        restart(&mut bed);
        assert_eq!(bed.state(whole), Some(State::WaitingChildren));
    }
}

#[test]
fn a_failure_by_a_clock_that_was_ahead_is_told_once() {
    let mut bed = Bed::new();
    bed.pass(5000);
    let [whole, ..] = failed_flow(&mut bed, NewJob::default());
    bed.now_ms -= 3000;
    restart(&mut bed);
    assert_eq!(bed.state(whole), Some(State::Failed));
}

#[test]
fn a_retried_parent_does_not_wait_for_children_that_are_gone() {
    for before in [false, true] {
        let mut bed = Bed::new();
        let [whole, first, second] = failed_flow(&mut bed, NewJob::default());
        finish(&mut bed, "part");
        if !before {
            retry(&mut bed, "whole", whole);
            assert_eq!(bed.state(whole), Some(State::WaitingChildren));
        }
        bed.run(1, &Command::PurgeFailed { queue: "part" });
        carry(&mut bed);
        assert_eq!(bed.state(first), None);
        if before {
            retry(&mut bed, "whole", whole);
        }
        assert_eq!(bed.state(whole), Some(State::Waiting));
        assert_eq!(values(&bed, whole), [second]);
        restart(&mut bed);
    }
}

#[test]
fn a_flow_of_three_levels_is_retried_in_order_from_any_end() {
    for upwards in [false, true] {
        let mut bed = Bed::new();
        let leaf = child(&mut bed, Some(Policy::Fail), NewJob::default());
        let policy = Some(Policy::Fail);
        let family = NewFamily { parent: Some("root"), policy, ..NewFamily::default() };
        let middle = parent(&mut bed, "middle", &[leaf], family);
        let root = parent(&mut bed, "root", &[middle], NewFamily::default());
        fail(&mut bed, "part");
        let all = [(leaf, "part"), (middle, "middle"), (root, "root")];
        assert!(all.iter().all(|(id, _)| bed.state(*id) == Some(State::Failed)));
        let mut order = all;
        if !upwards {
            order.reverse();
        }
        for (id, queue) in order {
            bed.pass(10);
            retry(&mut bed, queue, id);
        }
        restart(&mut bed);
        for (id, queue) in all {
            assert_eq!(finish(&mut bed, queue), id);
        }
        assert_eq!(values(&bed, root), [middle]);
    }
}

#[test]
fn a_completed_parent_that_went_on_without_a_child_waits_for_it_when_it_runs_again() {
    let mut bed = Bed::new();
    let failing = child(&mut bed, Some(Policy::Continue), NewJob::default());
    let late = child(&mut bed, None, NewJob::default());
    let whole = parent(&mut bed, "whole", &[failing, late], NewFamily::default());
    fail(&mut bed, "part");
    assert_eq!(finish(&mut bed, "whole"), whole);
    restart(&mut bed);
    let job = Some(whole);
    let again = Command::RetryCompleted { queue: "whole", job, count: 1, until_ms: u64::MAX };
    bed.run(1, &again);
    carry(&mut bed);
    assert_eq!(bed.state(whole), Some(State::WaitingChildren));
    assert_eq!(finish(&mut bed, "part"), late);
    assert_eq!(finish(&mut bed, "whole"), whole);
    assert_eq!(values(&bed, whole), [late]);
    restart(&mut bed);
}

#[test]
fn a_retried_parent_is_told_of_as_waiting_for_children() {
    let mut bed = Bed::new();
    bed.shard.listen(true);
    let [whole, ..] = failed_flow(&mut bed, NewJob::default());
    bed.events.clear();
    retry(&mut bed, "whole", whole);
    let steps: Vec<Step> = bed.events.iter().map(|event| event.step).collect();
    assert_eq!(steps, [Step::Retried { prev: State::Failed }, Step::WaitingChildren]);
}

#[test]
fn a_retried_flow_is_the_same_after_its_records_were_written_again() {
    let mut bed = Bed::new();
    let [whole, first, _] = failed_flow(&mut bed, NewJob::default());
    finish(&mut bed, "part");
    bed.pass(10);
    let reclaim = |bed: &mut Bed| {
        for _ in 0..40 {
            bed.data("other", b"\x01");
        }
        (0..8).for_each(|_| bed.reclaim(usize::MAX));
        restart(bed);
    };
    reclaim(&mut bed);
    retry(&mut bed, "whole", whole);
    reclaim(&mut bed);
    assert_eq!(bed.state(whole), Some(State::WaitingChildren), "its child failed before");
    retry(&mut bed, "part", first);
    finish(&mut bed, "part");
    assert_eq!(bed.state(whole), Some(State::Waiting));
}

/// Logs of releases that ran a retried parent at once say so still.
#[test]
fn a_revival_in_an_old_log_waits_for_nobody() {
    let mut bed = Bed::new();
    let [whole, ..] = failed_flow(&mut bed, NewJob::default());
    bed.run(1, &Command::RetryFailed { queue: "whole", job: Some(whole), count: 1 });
    let blocked = bed.journal.records.len() - 2;
    assert_eq!(bed.state(whole), Some(State::WaitingChildren));
    bed.journal.records.remove(blocked);
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    assert_eq!(bed.state(whole), Some(State::Waiting));
    bed.shard.audit().unwrap();
}
