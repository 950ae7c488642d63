//! Rules of queues. The fear: a dead letter that goes too early or never, one that is tried for ever, and a
//! rule that a restart forgets.

use crate::support::{Bed, START_MS, config, locked};
use corq_shards::Config;
use corq_shards::command::{Command, DlqScanRequest, Fail, Pull};
use corq_shards::dead_letter::policy::{DlqPatch, RulePatch, StallPatch};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::dead_letter::scan::{DlqScanFor, FailedFilter, FailedStats};
use corq_shards::effect::{Refusal, Reply};
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;

const NONE: DlqPatch = DlqPatch {
    auto_retry: None,
    retry_interval_ms: None,
    retries_max: None,
    age_max_ms: None,
    entries_max: None,
};

const RETRY: DlqPatch = DlqPatch {
    auto_retry: Some(true),
    retry_interval_ms: Some(1000),
    retries_max: Some(2),
    ..NONE
};

fn dlq(bed: &mut Bed, patch: DlqPatch) {
    let command = Command::Rule { queue: "q", patch: RulePatch::Dlq(patch) };
    let reply = bed.ask(1, &command);
    // Over many jobs, it is answered at the end.
    if reply.is_none() {
        assert!(bed.pass(0).iter().any(|(_, reply)| *reply == Reply::Done));
    }
}

fn stall(bed: &mut Bed, patch: StallPatch) {
    let command = Command::Rule { queue: "q", patch: RulePatch::Stall(patch) };
    assert_eq!(bed.ask(1, &command), Some(Reply::Done));
}

/// Pushes jobs that are allowed one attempt.
fn push(bed: &mut Bed, jobs: usize) -> Vec<JobId> {
    let job = NewJob { data: b"\x01", max_attempts: 1, ..NewJob::default() };
    (0..jobs).map(|_| bed.push("q", job.clone())).collect()
}

/// Fails the next so many jobs.
fn fail_next(bed: &mut Bed, count: u32) -> Vec<JobId> {
    let held = bed.pull(1, "q", count);
    for &(id, token) in &held {
        bed.fail(id, Some(token)).unwrap();
    }
    held.into_iter().map(|(id, _)| id).collect()
}

fn failed(bed: &mut Bed) -> Vec<JobId> {
    let failed: Vec<u32> = bed.shard.failed("q").collect();
    failed.into_iter().map(|index| bed.shard.view(index).job.id).collect()
}

/// Ends the process and starts the next one.
fn restart(bed: &mut Bed) {
    let facts = bed.shard.facts();
    bed.shard = bed.replayed();
    assert_eq!(bed.shard.facts(), facts);
    bed.shard.restart(bed.now_ms);
    bed.shard.audit().unwrap();
}

#[test]
fn nothing_leaves_a_dead_letter_queue_without_a_rule() {
    let mut bed = Bed::new();
    push(&mut bed, 3);
    fail_next(&mut bed, 3);
    bed.pass(400 * 86_400_000);
    assert_eq!(failed(&mut bed).len(), 3);
}

#[test]
fn dead_letters_go_when_they_are_old_enough_and_not_before_over_a_restart_too() {
    let mut bed = Bed::new();
    dlq(&mut bed, DlqPatch { age_max_ms: Some(Some(5000)), ..NONE });
    let ids = push(&mut bed, 3);
    fail_next(&mut bed, 1);
    bed.pass(2000);
    fail_next(&mut bed, 1);
    bed.pass(2999);
    assert_eq!(failed(&mut bed), ids[..2]);
    bed.pass(1);
    assert_eq!((failed(&mut bed), bed.state(ids[0])), (ids[1..2].to_vec(), None));
    restart(&mut bed);
    bed.pass(1999);
    assert_eq!(failed(&mut bed), ids[1..2]);
    bed.pass(1);
    assert!(failed(&mut bed).is_empty());
    assert_eq!(bed.state(ids[2]), Some(State::Waiting), "only dead letters are meant");
    assert_eq!(bed.shard.totals().dlq_dropped, 1, "since the start");
}

#[test]
fn dead_letters_that_have_expired_stay_for_a_while_and_are_tried_anew_by_clients_only() {
    let mut bed = Bed::with(Config { expired_kept_ms: 3000, ..config(2) });
    let retry = DlqPatch { retry_interval_ms: Some(6000), ..RETRY };
    dlq(&mut bed, DlqPatch { age_max_ms: Some(Some(5000)), ..retry });
    let ids = push(&mut bed, 2);
    fail_next(&mut bed, 2);
    let expired = |bed: &mut Bed| {
        let filter = FailedFilter { expired: true, ..FailedFilter::default() };
        let (offset, limit, purpose) = (0, 9, DlqScanFor::Listing);
        let command = DlqScanRequest { queue: "q", filter, offset, limit, purpose };
        match bed.ask(1, &Command::DlqScan(&command)) {
            Some(Reply::Found(ids)) => ids.to_vec(),
            other => panic!("{other:?}"),
        }
    };
    bed.pass(4999);
    assert!(expired(&mut bed).is_empty());
    bed.pass(1);
    assert_eq!(expired(&mut bed), ids);
    restart(&mut bed);
    bed.pass(2999);
    assert_eq!(failed(&mut bed), ids, "the retry would have come meanwhile");
    bed.shard.audit().unwrap();
    bed.run(1, &Command::RetryFailed { queue: "q", job: Some(ids[0]), count: 1 });
    bed.pass(1);
    assert!(failed(&mut bed).is_empty());
    assert_eq!((bed.state(ids[0]), bed.state(ids[1])), (Some(State::Waiting), None));
}

#[test]
fn a_new_rule_holds_for_those_that_are_there_and_a_taken_back_one_no_longer() {
    let mut bed = Bed::with(Config { bulk_slice: 2, ..config(3) });
    let ids = push(&mut bed, 9);
    for _ in 0..9 {
        fail_next(&mut bed, 1);
        bed.pass(10);
    }
    dlq(&mut bed, DlqPatch { age_max_ms: Some(Some(1000)), ..NONE });
    bed.shard.audit().unwrap();
    bed.pass(1000 - 50);
    assert_eq!(failed(&mut bed), ids[5..], "those that are 1000 ms old have gone");
    dlq(&mut bed, DlqPatch { age_max_ms: Some(None), ..NONE });
    bed.pass(100_000);
    bed.shard.audit().unwrap();
    assert_eq!(failed(&mut bed), ids[5..]);
}

#[test]
fn the_oldest_dead_letters_make_room_for_new_ones() {
    let mut bed = Bed::with(Config { bulk_slice: 2, ..config(4) });
    let ids = push(&mut bed, 8);
    fail_next(&mut bed, 6);
    dlq(&mut bed, DlqPatch { entries_max: Some(Some(2)), ..NONE });
    assert_eq!(failed(&mut bed), ids[4..6], "those that are too many have gone, in slices");
    fail_next(&mut bed, 2);
    assert_eq!(failed(&mut bed), ids[6..8]);
    restart(&mut bed);
    let more = push(&mut bed, 1);
    fail_next(&mut bed, 1);
    assert_eq!(failed(&mut bed), [ids[7], more[0]]);
}

#[test]
fn dead_letters_are_tried_anew_in_time_as_often_as_the_rule_says() {
    let mut bed = Bed::new();
    dlq(&mut bed, RETRY);
    let id = push(&mut bed, 1)[0];
    for wait_ms in [1000, 1000] {
        fail_next(&mut bed, 1);
        bed.pass(wait_ms - 1);
        assert_eq!(bed.state(id), Some(State::Failed));
        restart(&mut bed);
        bed.pass(1);
        assert_eq!(bed.state(id), Some(State::Waiting), "{wait_ms}");
    }
    restart(&mut bed);
    fail_next(&mut bed, 1);
    bed.pass(1_000_000);
    assert_eq!(bed.state(id), Some(State::Failed), "it was tried often enough");
    let before = bed.shard.view(bed.shard.find(id).unwrap()).options.unwrap().redelivered.unwrap();
    assert_eq!((before.times, before.last_at_ms), (2, START_MS + 2000));
    // A retry by a client resets the count.
    bed.run(1, &Command::RetryFailed { queue: "q", job: Some(id), count: 1 });
    fail_next(&mut bed, 1);
    bed.pass(1000);
    assert_eq!(bed.state(id), Some(State::Waiting));
    // More often than before, and later each time.
    fail_next(&mut bed, 1);
    dlq(&mut bed, DlqPatch { retries_max: Some(5), ..NONE });
    for wait_ms in [1000, 2000, 4000] {
        bed.pass(wait_ms - 1);
        assert_eq!(bed.state(id), Some(State::Failed), "{wait_ms}");
        bed.pass(1);
        assert_eq!(bed.state(id), Some(State::Waiting), "{wait_ms}");
        fail_next(&mut bed, 1);
    }
}

#[test]
fn a_pull_that_waits_gets_what_is_tried_anew() {
    let mut bed = Bed::new();
    dlq(&mut bed, RETRY);
    push(&mut bed, 1);
    fail_next(&mut bed, 1);
    bed.ask(1, &Command::Pull(Pull { timeout_ms: 60_000, ..locked("q") }));
    let replies = bed.pass(1000);
    assert!(
        replies.iter().any(|(_, reply)| matches!(reply, Reply::Pulled(jobs) if jobs.len() == 1))
    );
}

#[test]
fn what_is_too_old_goes_even_if_it_could_be_tried_anew() {
    let mut bed = Bed::new();
    dlq(&mut bed, DlqPatch { age_max_ms: Some(Some(1000)), ..RETRY });
    let id = push(&mut bed, 1)[0];
    fail_next(&mut bed, 1);
    bed.pass(1000);
    assert_eq!(bed.state(id), None);
}

#[test]
fn a_life_that_is_over_removes_no_dead_letter() {
    let mut bed = Bed::new();
    dlq(&mut bed, DlqPatch { age_max_ms: Some(Some(5000)), ..NONE });
    let job = NewJob { ttl_ms: Some(100), max_attempts: 1, ..NewJob::default() };
    let id = bed.push("q", job);
    fail_next(&mut bed, 1);
    bed.pass(4999);
    assert_eq!(bed.state(id), Some(State::Failed));
    bed.pass(1);
    assert_eq!(bed.state(id), None);
}

#[test]
fn a_start_goes_on_shortening_a_dead_letter_queue_where_the_process_ended() {
    let mut bed = Bed::with(Config { bulk_slice: 1, ..config(1) });
    let ids = push(&mut bed, 7);
    fail_next(&mut bed, 7);
    let patch = RulePatch::Dlq(DlqPatch { entries_max: Some(Some(2)), ..NONE });
    assert_eq!(bed.ask(1, &Command::Rule { queue: "q", patch }), None, "it is long");
    restart(&mut bed);
    assert_eq!(failed(&mut bed).len(), 6);
    bed.pass(0);
    let left: Vec<JobId> = ids.into_iter().filter(|&id| bed.state(id).is_some()).collect();
    assert_eq!(left.len(), 2);
    assert_eq!(left, failed(&mut bed));
    restart(&mut bed);
}

#[test]
fn what_has_no_life_left_is_not_tried_anew_and_stays() {
    let mut bed = Bed::new();
    dlq(&mut bed, RETRY);
    let job = |ttl_ms| NewJob { ttl_ms: Some(ttl_ms), max_attempts: 1, ..NewJob::default() };
    let ids = [bed.push("q", job(1000)), bed.push("q", job(1500)), bed.push("q", job(1001))];
    fail_next(&mut bed, 3);
    bed.now_ms += 200;
    // The last one could have been, and nobody came by in time.
    bed.pass(1000);
    let states: Vec<_> = ids.iter().map(|&id| bed.state(id)).collect();
    assert_eq!(states, [Some(State::Failed), Some(State::Waiting), Some(State::Failed)]);
    restart(&mut bed);
    bed.pass(10_000);
    assert_eq!(bed.state(ids[0]), Some(State::Failed));
}

#[test]
fn rules_survive_that_the_beginning_of_the_log_goes_and_go_with_their_queue() {
    let mut bed = Bed::new();
    dlq(&mut bed, DlqPatch { entries_max: Some(Some(7)), ..RETRY });
    stall(&mut bed, StallPatch { stalls_max: Some(9), ..StallPatch::default() });
    push(&mut bed, 2);
    fail_next(&mut bed, 1);
    bed.pass(1000);
    fail_next(&mut bed, 2);
    for paused in [true, false].repeat(40) {
        bed.run(1, &Command::Pause { queue: "filler", paused });
    }
    while bed.journal.records.len() - bed.journal.gone > 16 {
        bed.reclaim(16);
    }
    restart(&mut bed);
    let rules = bed.shard.queue("q").unwrap().rules.as_deref().unwrap().clone();
    assert_eq!(
        (rules.dlq.entries_max, rules.dlq.retries_max, rules.stall.stalls_max),
        (Some(7), 2, 9)
    );
    bed.run(1, &Command::Obliterate { queue: "q" });
    bed.pass(0);
    assert!(bed.shard.queue("q").is_none_or(|queue| !queue.exists()));
    restart(&mut bed);
    assert!(bed.shard.queue("q").is_none_or(|queue| queue.rules.is_none()));
}

#[test]
fn the_same_rule_again_writes_nothing_and_a_default_one_is_none() {
    let mut bed = Bed::new();
    dlq(&mut bed, NONE);
    assert_eq!(bed.journal.records.len(), 0);
    dlq(&mut bed, RETRY);
    dlq(&mut bed, RETRY);
    assert_eq!(bed.journal.records.len(), 1);
    assert!(bed.shard.queue("q").unwrap().exists(), "a setting is enough to be listed");
    let back = DlqPatch { auto_retry: Some(false), retry_interval_ms: Some(3_600_000), ..NONE };
    dlq(&mut bed, DlqPatch { retries_max: Some(3), ..back });
    assert!(!bed.shard.queue("q").unwrap().exists());
    restart(&mut bed);
}

fn pull_unlocked(bed: &mut Bed) -> JobId {
    let pull = Pull { locked: false, ..locked("q") };
    let Some(Reply::Pulled(range)) = bed.ask(1, &Command::Pull(pull)) else { panic!("no answer") };
    bed.id(&bed.effects.deliveries[range.start].clone())
}

#[test]
fn silence_counts_by_the_rule_of_the_queue_and_from_the_last_sign_of_life() {
    let mut bed = Bed::new();
    let patch = StallPatch { interval_ms: Some(1000), grace_ms: Some(0), ..StallPatch::default() };
    stall(&mut bed, patch);
    let id = bed.data("q", b"\x01");
    let token = bed.pull(1, "q", 1)[0].1;
    bed.pass(999);
    let beat = corq_shards::command::Beat { job: id, token: Some(token), ttl_ms: None };
    assert_eq!(bed.ask(1, &Command::Heartbeat(beat)), Some(Reply::Done));
    bed.pass(999);
    assert_eq!(bed.state(id), Some(State::Active));
    bed.pass(1);
    assert_eq!(bed.state(id), Some(State::Waiting), "though its lock is one of 30 seconds");
    pull_unlocked(&mut bed);
    bed.pass(1000);
    assert_eq!(bed.state(id), Some(State::Waiting));
}

#[test]
fn a_lock_ends_whatever_the_rule_says_and_a_job_s_own_time_comes_first() {
    let mut bed = Bed::new();
    stall(&mut bed, StallPatch { enabled: Some(false), ..StallPatch::default() });
    let id = bed.data("q", b"\x01");
    bed.pull(1, "q", 1);
    bed.pass(30_000);
    assert_eq!(bed.state(id), Some(State::Waiting));
    pull_unlocked(&mut bed);
    bed.pass(86_400_000);
    assert_eq!(bed.state(id), Some(State::Active), "nobody looks for silent workers");
    let progress = Change::Progress { progress: 5.0, message: None };
    assert_eq!(bed.ask(1, &Command::Change { job: id, change: progress }), Some(Reply::Done));
    let extras =
        corq_shards::job::overrides::Extras { stall_timeout_ms: Some(500), ..Default::default() };
    let own = NewJob { extras: Some(Box::new(extras)), ..NewJob::default() };
    let own = bed.push("q", own);
    pull_unlocked(&mut bed);
    bed.pass(500);
    assert_eq!(bed.state(own), Some(State::Waiting));
}

#[test]
fn silence_right_after_the_pull_does_not_count() {
    let mut bed = Bed::new();
    let patch = StallPatch { interval_ms: Some(100), ..StallPatch::default() };
    stall(&mut bed, patch);
    let id = bed.data("q", b"\x01");
    bed.pull(1, "q", 1);
    bed.pass(4999);
    assert_eq!(bed.state(id), Some(State::Active));
    bed.pass(1);
    assert_eq!(bed.state(id), Some(State::Waiting));
}

#[test]
fn a_new_rule_for_silence_holds_for_those_that_work_already() {
    let mut bed = Bed::new();
    let ids = [bed.data("q", b"\x01"), bed.data("q", b"\x02")];
    bed.pull(1, "q", 1);
    pull_unlocked(&mut bed);
    bed.pass(6000);
    let shorter = StallPatch { interval_ms: Some(7000), ..StallPatch::default() };
    stall(&mut bed, shorter);
    bed.pass(999);
    assert!(ids.iter().all(|&id| bed.state(id) == Some(State::Active)));
    bed.pass(1);
    assert!(ids.iter().all(|&id| bed.state(id) == Some(State::Waiting)));
    pull_unlocked(&mut bed);
    stall(&mut bed, StallPatch { interval_ms: Some(60_000), ..StallPatch::default() });
    bed.pass(59_999);
    assert_eq!(bed.state(ids[0]), Some(State::Active));
    bed.shard.audit().unwrap();
}

#[test]
fn the_number_of_stalls_that_bury_is_that_of_the_queue() {
    for (most, expected) in [(1, 1), (2, 2), (3, 3), (0, 5)] {
        let mut bed = Bed::new();
        stall(&mut bed, StallPatch { stalls_max: Some(most), ..StallPatch::default() });
        let id = bed.push("q", NewJob { max_attempts: 5, ..NewJob::default() });
        for stalls in 1..=expected {
            assert_eq!(bed.state(id), Some(State::Waiting), "{most}, {stalls}");
            bed.pull(1, "q", 1);
            bed.pass(30_000);
        }
        assert_eq!(bed.state(id), Some(State::Failed), "{most}");
        let view = bed.shard.view(bed.shard.find(id).unwrap());
        let cause = if most == 0 { Cause::Attempts } else { Cause::Stalled };
        assert_eq!(view.outcome.unwrap().cause, cause);
    }
}

#[test]
fn leases_under_a_rule_get_their_whole_time_again_at_a_start() {
    let mut bed = Bed::new();
    let patch = StallPatch { interval_ms: Some(1000), grace_ms: Some(0), ..StallPatch::default() };
    stall(&mut bed, patch);
    let id = bed.data("q", b"\x01");
    bed.pull(1, "q", 1);
    bed.pass(900);
    restart(&mut bed);
    bed.pass(999);
    assert_eq!(bed.state(id), Some(State::Active));
    bed.pass(1);
    assert_eq!(bed.state(id), Some(State::Waiting));
}

/// A dead-letter queue with a job for every cause that there can be.
fn causes() -> (Bed, Vec<(JobId, Cause)>) {
    let mut bed = Bed::new();
    let mut all = Vec::new();
    let job = |max_attempts| NewJob { max_attempts, ..NewJob::default() };
    let id = bed.push("q", job(1));
    fail_next(&mut bed, 1);
    all.push((id, Cause::Attempts));
    bed.pass(10);
    let job_id = bed.push("q", job(3));
    let token = Some(bed.pull(1, "q", 1)[0].1);
    let fail = Fail { job: job_id, token, unrecoverable: true, ..Fail::default() };
    bed.run(1, &Command::Fail(fail));
    all.push((job_id, Cause::Explicit));
    bed.pass(10);
    let id = bed.push("q", NewJob { timeout_ms: Some(100), ..job(1) });
    bed.pull(1, "q", 1);
    bed.pass(100);
    all.push((id, Cause::Timeout));
    let id = bed.push("q", job(9));
    for _ in 0..3 {
        bed.pull(1, "q", 1);
        bed.pass(30_000);
    }
    all.push((id, Cause::Stalled));
    let id = bed.push("q", job(9));
    bed.run(1, &Command::Change { job: id, change: Change::Discard { token: None } });
    all.push((id, Cause::Unknown));
    (bed, all)
}

fn scan(
    bed: &mut Bed,
    filter: FailedFilter,
    offset: u64,
    limit: u64,
    purpose: DlqScanFor,
) -> Reply {
    let scan_request = DlqScanRequest { queue: "q", filter, offset, limit, purpose };
    let request = bed.request + 1;
    let reply = bed.ask(1, &Command::DlqScan(&scan_request));
    reply
        .or_else(|| {
            let replies = bed.pass(0).into_iter();
            replies.into_iter().find(|(id, _)| id.0 == request).map(|(_, reply)| reply)
        })
        .unwrap()
}

fn found(bed: &mut Bed, filter: FailedFilter, offset: u64, limit: u64) -> Vec<JobId> {
    match scan(bed, filter, offset, limit, DlqScanFor::Listing) {
        Reply::Found(jobs) => jobs.to_vec(),
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn dead_letters_are_found_by_cause_and_time_and_page_over_restarts_and_reclaim_too() {
    let (mut bed, all) = causes();
    for turn in 0..3 {
        for &(id, cause) in &all {
            let filter = FailedFilter { cause: Some(cause), ..FailedFilter::default() };
            assert_eq!(found(&mut bed, filter, 0, 9), [id], "{cause:?}");
        }
        let ids: Vec<JobId> = all.iter().map(|(id, _)| *id).collect();
        assert_eq!(found(&mut bed, FailedFilter::default(), 1, 3), ids[1..4]);
        let from = FailedFilter { since_ms: Some(START_MS + 10), ..FailedFilter::default() };
        assert_eq!(found(&mut bed, from, 0, 9), ids[1..]);
        let until = FailedFilter { until_ms: Some(START_MS + 10), ..FailedFilter::default() };
        assert_eq!(found(&mut bed, until, 0, 9), ids[..2]);
        if turn == 1 {
            for paused in [true, false].repeat(40) {
                bed.run(1, &Command::Pause { queue: "filler", paused });
            }
            while bed.journal.records.len() - bed.journal.gone > 16 {
                bed.reclaim(16);
            }
        }
        restart(&mut bed);
    }
    let nobody = DlqScanRequest {
        queue: "nobody's",
        filter: FailedFilter::default(),
        offset: 0,
        limit: 1,
        purpose: DlqScanFor::Listing,
    };
    assert_eq!(bed.ask(1, &Command::DlqScan(&nobody)), Some(Reply::Found([].into())));
}

#[test]
fn what_a_filter_finds_is_tried_anew_and_nothing_else() {
    let (mut bed, all) = causes();
    let stalled = FailedFilter { cause: Some(Cause::Stalled), ..FailedFilter::default() };
    assert_eq!(scan(&mut bed, stalled, 0, 9, DlqScanFor::Retry), Reply::Count(1));
    let expected: Vec<State> = all
        .iter()
        .map(|(_, cause)| if *cause == Cause::Stalled { State::Waiting } else { State::Failed })
        .collect();
    let states: Vec<State> = all.iter().map(|(id, _)| bed.state(*id).unwrap()).collect();
    assert_eq!(states, expected);
    assert_eq!(scan(&mut bed, FailedFilter::default(), 1, 2, DlqScanFor::Retry), Reply::Count(2));
    assert_eq!(failed(&mut bed), [all[0].0, all[4].0]);
}

#[test]
fn a_dead_letter_queue_is_counted_by_cause_and_by_what_awaits_it() {
    let (mut bed, all) = causes();
    let Reply::FailedStats(stats) =
        scan(&mut bed, FailedFilter::default(), 0, u64::MAX, DlqScanFor::Stats)
    else {
        panic!("no figures");
    };
    let mut expected = FailedStats {
        queue: "q".into(),
        total: 5,
        oldest_ms: Some(START_MS),
        newest_ms: Some(bed.now_ms),
        ..FailedStats::default()
    };
    for (_, cause) in &all {
        expected.by_cause[*cause as usize] += 1;
    }
    assert_eq!(*stats, expected);
    dlq(&mut bed, DlqPatch { retry_interval_ms: Some(1 << 40), ..RETRY });
    let retriable = FailedFilter { retriable: true, ..FailedFilter::default() };
    assert_eq!(found(&mut bed, retriable, 0, 9).len(), 5);
    dlq(&mut bed, DlqPatch { retries_max: Some(0), ..NONE });
    assert_eq!(found(&mut bed, retriable, 0, 9).len(), 0);
}

/// Guards against slices that miss a job or meet it twice.
#[test]
fn a_long_dead_letter_queue_is_looked_through_in_slices() {
    let mut bed = Bed::with(Config { bulk_slice: 7, ..config(8) });
    let ids = push(&mut bed, 100);
    fail_next(&mut bed, 100);
    let scan_request = DlqScanRequest {
        queue: "q",
        filter: FailedFilter::default(),
        offset: 5,
        limit: 80,
        purpose: DlqScanFor::Retry,
    };
    assert_eq!(bed.ask(1, &Command::DlqScan(&scan_request)), None, "not at once");
    // Jobs that go meanwhile take no place among those that are retried.
    for id in [ids[20], ids[21], ids[50]] {
        bed.run(1, &Command::Change { job: id, change: Change::Bin { queue: "q" } });
    }
    let replies = bed.pass(0);
    assert!(replies.iter().any(|(_, reply)| *reply == Reply::Count(80)), "{replies:?}");
    let left: Vec<JobId> = ids[..5].iter().chain(&ids[88..]).copied().collect();
    assert_eq!(failed(&mut bed), left);
    bed.shard.audit().unwrap();
}

#[test]
fn a_rule_is_refused_before_it_changes_anything_if_too_many_long_commands_wait() {
    let mut bed = Bed::with(Config { bulk_slice: 1, ..config(9) });
    push(&mut bed, 3);
    for _ in 0..corq_shards::BULK_OPERATIONS_MAX {
        bed.run(1, &Command::PromoteAll { queue: "q", count: 9 });
        bed.run(1, &Command::Drain { queue: "q" });
    }
    let records = bed.journal.records.len();
    let command = Command::Rule { queue: "q", patch: RulePatch::Dlq(RETRY) };
    let refused = Reply::Refused { place: 0, refusal: Refusal::Busy };
    assert_eq!(bed.ask(1, &command), Some(refused));
    assert_eq!(bed.journal.records.len(), records);
}
