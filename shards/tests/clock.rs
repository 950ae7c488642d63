//! Starts with a clock that is right after one that was ahead. The fear: what was to happen in a second happens once the clock
//! has come as far again, in years.

use crate::support::{Bed, SPAN_BITS};
use corq_shards::command::{Command, GroupLimit, Limit, PerSpan, Pull};
use corq_shards::cron::LATE_MS_MAX;
use corq_shards::dead_letter::policy::{DlqPatch, RulePatch};
use corq_shards::flow::Staged;
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::job::overrides::{Dedup, Extras, Growth};
use corq_shards::job::recurrence::Recurrence;
use corq_shards::log_record::{Pushed, Record, kind_name};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const AGE_MS: u64 = 65 * 365 * DAY_MS;

/// Ends the process, and starts the next one with a clock that shows so much more.
fn start_ahead(bed: &mut Bed, by_ms: u64) {
    bed.now_ms += by_ms;
    start(bed);
}

/// Ends the process, and starts the next one with a clock that shows so much less. Returns by how much the clock is
/// found to have been ahead.
fn start_behind(bed: &mut Bed, by_ms: u64) -> Option<u64> {
    bed.now_ms -= by_ms;
    start(bed)
}

/// Ends the process and starts the next one; what that finds is what a later one will find.
fn start(bed: &mut Bed) -> Option<u64> {
    bed.shard = bed.replayed();
    let found = bed.shard.set_clock_back(bed.now_ms, &mut bed.journal);
    bed.shard.note_clock_of_start(bed.now_ms, &mut bed.journal);
    bed.shard.audit().unwrap();
    let again = bed.replayed();
    again.audit().unwrap();
    assert_eq!(again.facts(), bed.shard.facts(), "a replay does the same");
    bed.shard.restart(bed.now_ms);
    bed.shard.audit().unwrap();
    bed.pass(0);
    found.map(|back| back.by_ms())
}

/// Gives up the beginning of the log, which everything outlives.
fn reclaim(bed: &mut Bed) {
    for round in 0..3 << SPAN_BITS {
        bed.run(1, &Command::Pause { queue: "filler", paused: round % 2 == 0 });
    }
    for _ in 0..bed.journal.records.len() {
        bed.reclaim(usize::MAX);
    }
}

fn extras(dedup_ttl_ms: u64) -> Extras {
    let dedup = Dedup { ttl_ms: dedup_ttl_ms, ..Dedup::default() };
    Extras { dedup: Some(dedup), ..Extras::default() }
}

#[test]
fn what_a_clock_that_was_ahead_has_put_off_for_a_second_is_a_second_away_after_a_right_start() {
    for (by_ms, reclaims) in [(HOUR_MS, false), (AGE_MS, false), (AGE_MS, true)] {
        let mut bed = Bed::new();
        start_ahead(&mut bed, by_ms);
        let second = NewJob { delay_ms: 1000, ..NewJob::default() };
        let delayed = bed.push("delayed", second.clone());
        let fixed = Extras { backoff: Some(Growth::Fixed), ..Extras::default() };
        let retried = bed.push(
            "retried",
            NewJob {
                backoff_ms: 1000,
                max_attempts: 5,
                extras: Some(Box::new(fixed)),
                ..NewJob::default()
            },
        );
        let (_, token) = bed.pull(1, "retried", 1)[0];
        bed.fail(retried, Some(token)).unwrap();
        let put_off = bed.data("put-off", b"1");
        let (_, token) = bed.pull(1, "put-off", 1)[0];
        let change = Change::PutOff { delay_ms: 1000, token: Some(token) };
        bed.ask(1, &Command::Change { job: put_off, change });
        let repeat = Some(Repeat { every_ms: 1000, limit: None, count: 0 });
        let run = bed.push("repeated", NewJob { repeat, ..NewJob::default() });
        let (_, token) = bed.pull(1, "repeated", 1)[0];
        bed.ack(run, Some(token)).unwrap();
        let mortal = bed
            .push("mortal", NewJob { delay_ms: DAY_MS, ttl_ms: Some(1000), ..NewJob::default() });
        let key = NewJob {
            unique_key: Some("key"),
            extras: Some(Box::new(extras(1000))),
            ..NewJob::default()
        };
        let holder = bed.push("keyed", key.clone());
        if reclaims {
            reclaim(&mut bed);
        }

        assert!(start_behind(&mut bed, by_ms).is_some(), "{by_ms}");
        for id in [delayed, retried, put_off] {
            assert_eq!(bed.state(id), Some(State::Delayed), "{by_ms}: {id}");
        }
        assert_eq!(bed.push("keyed", key.clone()), holder, "its time is not over");
        assert!(bed.pull(1, "repeated", 1).is_empty());
        bed.pass(1000);
        for id in [delayed, retried, put_off] {
            assert_eq!(bed.state(id), Some(State::Waiting), "{by_ms}: {id}");
        }
        assert_eq!(bed.pull(1, "repeated", 1).len(), 1, "{by_ms}: the series goes on");
        assert_ne!(bed.push("keyed", key), holder, "{by_ms}: the key is free");
        assert_eq!(bed.state(mortal), None, "{by_ms}: its life is over");
        assert_eq!(start(&mut bed), None, "{by_ms}: it is over");
        bed.shard.audit().unwrap();
    }
}

#[test]
fn rules_of_dead_letter_queues_and_limits_count_from_a_right_start_on() {
    let mut bed = Bed::new();
    start_ahead(&mut bed, AGE_MS);
    let none = DlqPatch {
        auto_retry: None,
        retry_interval_ms: None,
        retries_max: None,
        age_max_ms: None,
        entries_max: None,
    };
    let retry = DlqPatch { auto_retry: Some(true), retry_interval_ms: Some(1000), ..none };
    let age = DlqPatch { age_max_ms: Some(Some(1000)), ..none };
    let once = NewJob { max_attempts: 1, ..NewJob::default() };
    let mut failed = Vec::new();
    for (queue, patch) in [("retry", retry), ("age", age)] {
        bed.ask(1, &Command::Rule { queue, patch: RulePatch::Dlq(patch) });
        failed.push(bed.push(queue, once.clone()));
        let (id, token) = bed.pull(1, queue, 1)[0];
        bed.fail(id, Some(token)).unwrap();
    }
    let until_ms = bed.now_ms + 1000;
    let rate = Some(PerSpan { jobs: 1, span_ms: 100_000_000, until_ms });
    bed.ask(1, &Command::Limit { queue: "limited", limit: Limit::Rate(rate) });
    let hold = Command::LimitGroup { queue: "held", group: "g", limit: GroupLimit::Hold(1000) };
    bed.ask(1, &hold);
    for _ in 0..2 {
        bed.data("limited", b"1");
        bed.push("held", NewJob { group_id: Some("g"), ..NewJob::default() });
    }
    assert!(start_behind(&mut bed, AGE_MS).is_some());
    assert_eq!(bed.pull(1, "limited", 2).len(), 1);
    assert!(bed.pull(1, "held", 2).is_empty());
    assert!(failed.iter().all(|&id| bed.state(id) == Some(State::Failed)));
    bed.pass(999);
    assert!(failed.iter().all(|&id| bed.state(id) == Some(State::Failed)));
    reclaim(&mut bed);
    bed.pass(1);
    assert_eq!((bed.state(failed[0]), bed.state(failed[1])), (Some(State::Waiting), None));
    assert_eq!(bed.pull(1, "limited", 2).len(), 1, "the rate is over");
    assert_eq!(bed.pull(1, "held", 2).len(), 2, "so is the hold");
    assert_eq!(start(&mut bed), None);
}

#[test]
fn what_a_right_clock_has_put_off_comes_at_its_time_whatever_clock_was_between() {
    for by_ms in [HOUR_MS, AGE_MS] {
        let mut bed = Bed::new();
        let delayed = bed.push("q", NewJob { delay_ms: 2 * HOUR_MS, ..NewJob::default() });
        let due_ms = bed.now_ms + 2 * HOUR_MS;
        start_ahead(&mut bed, by_ms);
        bed.data("other", b"1");
        bed.pass(5000);
        assert!(start_behind(&mut bed, by_ms).is_some());
        assert_eq!(bed.state(delayed), Some(State::Delayed), "{by_ms}");
        bed.pass(due_ms - 1 - bed.now_ms);
        assert_eq!(bed.state(delayed), Some(State::Delayed), "{by_ms}");
        bed.pass(1);
        assert_eq!(bed.state(delayed), Some(State::Waiting), "{by_ms}");
    }
}

#[test]
fn jobs_that_wait_are_delivered_in_the_order_of_their_pushes_whatever_the_clock_showed() {
    let mut bed = Bed::new();
    let mut pushed = vec![bed.data("q", b"1")];
    start_ahead(&mut bed, AGE_MS);
    for _ in 0..3 {
        bed.pass(10);
        pushed.push(bed.data("q", b"2"));
    }
    start_behind(&mut bed, AGE_MS);
    for _ in 0..3 {
        bed.pass(10);
        pushed.push(bed.data("q", b"3"));
    }
    let pulled: Vec<_> = bed.pull(1, "q", 10).into_iter().map(|(id, _)| id).collect();
    assert_eq!(pulled, pushed);
}

#[test]
fn the_time_of_an_attempt_that_began_by_a_clock_that_was_ahead_counts_from_a_right_start_on() {
    let mut bed = Bed::new();
    start_ahead(&mut bed, AGE_MS);
    let timed = NewJob { timeout_ms: Some(10_000), max_attempts: 3, ..NewJob::default() };
    let id = bed.push("q", timed);
    bed.pull(1, "q", 1);
    start_behind(&mut bed, AGE_MS);
    let index = bed.shard.find(id).unwrap();
    let lease = bed.shard.view(index).lease.unwrap();
    assert!(lease.started_at_ms <= bed.now_ms && lease.timeout_at_ms == bed.now_ms + 10_000);
    bed.pass(9999);
    assert_eq!(bed.state(id), Some(State::Active));
    bed.pass(1);
    assert_ne!(bed.state(id), Some(State::Active), "it has lasted too long");
}

#[test]
fn nothing_ended_later_than_a_right_start() {
    let mut bed = Bed::new();
    start_ahead(&mut bed, AGE_MS);
    let id = bed.data("q", b"1");
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.pass(700);
    bed.ack(id, Some(token)).unwrap();
    start_behind(&mut bed, AGE_MS);
    let index = bed.shard.find(id).unwrap();
    let ended = bed.shard.view(index).outcome.unwrap();
    assert_eq!((ended.finished_at_ms, ended.started_at_ms), (bed.now_ms, bed.now_ms - 700));
    bed.pass(bed.config.completed_retention_ms + 100_000);
    assert_eq!(bed.state(id), None, "it is kept as long as any other");
}

#[test]
fn a_clock_that_is_corrected_a_little_changes_nothing() {
    let mut bed = Bed::new();
    bed.pass(60_000);
    bed.push("q", NewJob { delay_ms: 1000, ..NewJob::default() });
    let written = bed.journal.records.len();
    assert_eq!(start_behind(&mut bed, LATE_MS_MAX), None);
    assert_eq!(bed.journal.records.len(), written);
    assert_eq!(start_behind(&mut bed, 1), Some(LATE_MS_MAX + 1));
    let set_back = |bytes: &&Vec<u8>| kind_name(bytes) == Some("clock-set-back");
    let found: Vec<_> = bed.journal.records.iter().filter(set_back).collect();
    assert_eq!(found.len(), 1);
    assert!(matches!(Record::decode(found[0]), Ok(Record::ClockSetBack { .. })));
}

/// Ids rise, so those made after a clock was set back are ahead of it; they are no reason to set it back again.
#[test]
fn ids_that_are_ahead_of_the_clock_set_nothing_back_again() {
    let mut bed = Bed::new();
    start_ahead(&mut bed, DAY_MS);
    bed.data("q", b"1");
    assert!(start_behind(&mut bed, DAY_MS).is_some());
    for round in 0..4 {
        let id = bed.push("q", NewJob { delay_ms: 2 * DAY_MS, ..NewJob::default() });
        assert!(id.made_at_ms() > bed.now_ms);
        assert_eq!(start(&mut bed), None, "round {round}");
        bed.pass(1000);
    }
    let mut delays: Vec<_> = bed.known().collect();
    delays.retain(|&id| bed.state(id) == Some(State::Delayed));
    assert_eq!(delays.len(), 4);
    // Whatever is wrong with the clock next, they are not early by it.
    let first = delays[0];
    let due_ms = bed.shard.view(bed.shard.find(first).unwrap()).job.run_at_ms;
    bed.pass(HOUR_MS);
    let pulled = bed.pull(1, "q", 1)[0];
    bed.ack(pulled.0, Some(pulled.1)).unwrap();
    assert!(start_behind(&mut bed, HOUR_MS).is_some());
    bed.pass(due_ms - 1 - bed.now_ms);
    assert_eq!(bed.state(first), Some(State::Delayed));
    bed.pass(1);
    assert_eq!(bed.state(first), Some(State::Waiting));
}

/// Times further away than a year stay where they are if a right clock has set them.
#[test]
fn far_times_that_a_client_has_asked_for_stay() {
    for by_ms in [HOUR_MS, 300 * DAY_MS] {
        let mut bed = Bed::new();
        let from_ms = bed.now_ms + 3 * 365 * DAY_MS;
        let first = Recurrence { pattern: Some("0 0 * * *"), from_ms, ..Recurrence::default() };
        let repeat = Some(Repeat { every_ms: 1 << 40, limit: None, count: 0 });
        let recurrence = Some(Box::new(first));
        let late = bed.push("q", NewJob { repeat, recurrence, ..NewJob::default() });
        let extras =
            Extras { made_at_ms: Some(bed.now_ms + 2 * 365 * DAY_MS), ..Extras::default() };
        let told = NewJob { delay_ms: 1000, extras: Some(Box::new(extras)), ..NewJob::default() };
        let told = bed.push("q", told);
        let due = |bed: &Bed, id| bed.shard.view(bed.shard.find(id).unwrap()).job.run_at_ms;
        let before = [late, told].map(|id| due(&bed, id));
        assert!(before[0] >= from_ms);
        start_ahead(&mut bed, by_ms);
        bed.push("other", NewJob::default());
        assert_eq!(start_behind(&mut bed, by_ms), Some(by_ms));
        assert_eq!([late, told].map(|id| due(&bed, id)), before);
        // A delay that a command gives to a run of a series is no time of that kind: it goes back with the clock.
        start_ahead(&mut bed, AGE_MS);
        let change = Change::Delay { delay_ms: 1000, token: None };
        bed.ask(1, &Command::Change { job: late, change });
        start_behind(&mut bed, AGE_MS);
        assert_eq!(due(&bed, late), bed.now_ms + 1000);
    }
}

/// After a clock was set back, ids stay where it was. What it does when it is wrong by the same again is then not told by ids.
#[test]
fn the_same_wrong_time_twice_puts_nothing_off_for_longer_than_was_asked_for() {
    let pattern = |immediately| Recurrence {
        pattern: Some("* * * * * *"),
        immediately,
        ..Recurrence::default()
    };
    let series = |every_ms, recurrence: Option<Recurrence<'static>>| NewJob {
        repeat: Some(Repeat { every_ms, limit: None, count: 0 }),
        recurrence: recurrence.map(Box::new),
        ..NewJob::default()
    };
    let told = |made_at_ms, delay_ms| NewJob {
        delay_ms,
        extras: Some(Box::new(Extras { made_at_ms: Some(made_at_ms), ..Extras::default() })),
        ..NewJob::default()
    };
    for only_pushes in [false, true] {
        let mut bed = Bed::new();
        bed.queues = vec!["every", "pattern"];
        start_ahead(&mut bed, AGE_MS);
        bed.data("first", b"1");
        assert!(start_behind(&mut bed, AGE_MS).is_some());
        // The first runs come by a right clock.
        bed.push("every", series(1000, None));
        bed.push("pattern", series(1000, Some(pattern(true))));
        let put_off = bed.push("put-off", told(bed.now_ms, 60_000));
        let kept = bed.push("kept", told(bed.now_ms + 2 * 365 * DAY_MS, 1000));
        let due = |bed: &Bed, id| bed.shard.view(bed.shard.find(id).unwrap()).job.run_at_ms;
        let kept_ms = due(&bed, kept);

        start_ahead(&mut bed, AGE_MS - 2345);
        let mut later = vec![
            bed.push("new pattern", series(1000, Some(pattern(false)))),
            bed.push("new told", told(bed.now_ms, 1000)),
            bed.push("new", NewJob { delay_ms: 1000, ..NewJob::default() }),
        ];
        if !only_pushes {
            for queue in ["every", "pattern"] {
                let (id, token) = bed.pull(1, queue, 1)[0];
                bed.ack(id, Some(token)).unwrap();
            }
            let change = Change::Delay { delay_ms: 1000, token: None };
            bed.ask(1, &Command::Change { job: put_off, change });
            later.push(put_off);
            let known: Vec<_> = bed.known().collect();
            later.extend(known.into_iter().filter(|&id| bed.state(id) == Some(State::Delayed)));
            assert_eq!(later.len(), 6);
        }
        for &id in &later {
            assert!(due(&bed, id) > bed.now_ms, "{id}");
        }
        assert!(start_behind(&mut bed, AGE_MS - 2345).is_some(), "only pushes: {only_pushes}");
        for &id in &later {
            let queue = bed.shard.view(bed.shard.find(id).unwrap()).queue.to_owned();
            let in_ms = due(&bed, id) - bed.now_ms;
            assert!(in_ms <= 1000, "only pushes: {only_pushes}: {queue} is due in {in_ms} ms");
        }
        assert_eq!(due(&bed, kept), kept_ms, "a client has asked for it");
        bed.pass(1000);
        for &id in &later {
            assert_eq!(bed.state(id), Some(State::Waiting));
        }
    }
}

/// The fear: what a held group stood in line for stays there for as long as the clock was ahead.
#[test]
fn a_hold_that_has_ended_by_a_clock_that_was_ahead_leaves_no_timer() {
    let mut bed = Bed::new();
    start_ahead(&mut bed, AGE_MS);
    let hold = Command::LimitGroup { queue: "held", group: "g", limit: GroupLimit::Hold(1000) };
    bed.ask(1, &hold);
    let id = bed.push("held", NewJob { group_id: Some("g"), ..NewJob::default() });
    bed.pass(1000);
    let (job, token) = bed.pull(1, "held", 1)[0];
    assert_eq!(job, id);
    bed.ack(job, Some(token)).unwrap();
    bed.pass(100_000);
    assert_eq!(bed.shard.holdings().timers, 0);
    // The group is still there, with its completed job.
    assert!(start_behind(&mut bed, AGE_MS).is_some());
    assert_eq!(bed.state(id), Some(State::Completed));
    assert_eq!(bed.shard.holdings().timers, 0);
}

#[test]
fn a_hold_that_is_all_that_a_clock_ahead_has_written_ends_in_its_time() {
    let mut bed = Bed::new();
    bed.push("held", NewJob { data: b"1", ..NewJob::default() });
    start_ahead(&mut bed, DAY_MS);
    let hold = Command::LimitGroup { queue: "held", group: "g", limit: GroupLimit::Hold(1000) };
    bed.run(1, &hold);
    assert!(start_behind(&mut bed, DAY_MS).is_some(), "the log tells it");
    bed.pass(2000);
    assert_eq!(bed.shard.holdings().group_settings, 0, "it is over");
}

/// Ids of a shard whose clock was set back stay where that was. A flow brings them to others, which saw nothing of that clock.
#[test]
fn a_part_of_a_flow_with_an_id_of_a_wrong_clock_makes_no_other_shard_believe_in_it() {
    let mut bed = Bed::new();
    let hold = GroupLimit::Hold(HOUR_MS);
    bed.run(1, &Command::LimitGroup { queue: "held", group: "g", limit: hold });
    let id = JobId(u128::from(bed.now_ms + DAY_MS) << 80);
    let pushed = Pushed { id, queue: "q", run_at_ms: bed.now_ms, job: NewJob::default().into() };
    let record = Record::Staged(Staged { flow: id, pushed });
    let mut bytes = vec![0; record.encoded_len()];
    record.encode(&mut bytes);
    bed.run(0, &Command::Stage { records: &[&bytes], group_max: &[], durable: false });
    assert_eq!(start(&mut bed), None, "no clock was ahead");
    assert_eq!(bed.shard.holdings().group_settings, 1, "the hold goes on");
    // Nor do the ids that this shard makes from there on.
    bed.push("q", NewJob { data: b"1", ..NewJob::default() });
    assert_eq!(start(&mut bed), None);
}

#[test]
fn a_clock_that_goes_ahead_where_ids_say_nothing_is_seen_by_the_next_start() {
    let mut bed = Bed::new();
    start_ahead(&mut bed, DAY_MS);
    bed.push("q", NewJob { data: b"1", ..NewJob::default() });
    assert!(start_behind(&mut bed, DAY_MS).is_some());
    bed.now_ms += HOUR_MS;
    bed.push("q", NewJob { data: b"1", delay_ms: 1000, ..NewJob::default() });
    assert_eq!(start_behind(&mut bed, HOUR_MS), Some(HOUR_MS));
}

#[test]
fn a_shorter_hold_and_a_longer_life_tell_of_a_clock_that_is_ahead() {
    let mut bed = Bed::new();
    let hold = |ms| Command::LimitGroup { queue: "q", group: "g", limit: GroupLimit::Hold(ms) };
    bed.run(1, &hold(30 * DAY_MS));
    start_ahead(&mut bed, 10 * DAY_MS);
    bed.run(1, &hold(1000));
    assert!(start_behind(&mut bed, 10 * DAY_MS).is_some(), "the hold is all that tells");
    bed.pass(2000);
    assert_eq!(bed.shard.holdings().group_settings, 0);

    // A job without an owner, whose life begins anew: no record tells that it was pulled.
    let job = bed.push("q", NewJob { data: b"1", ttl_ms: Some(HOUR_MS), ..NewJob::default() });
    bed.now_ms += 10 * DAY_MS;
    bed.run(1, &Command::Pull(Pull { locked: false, ..crate::support::locked("q") }));
    bed.run(1, &Command::Change { job, change: Change::ToWait { token: None } });
    assert!(start_behind(&mut bed, 10 * DAY_MS).is_some());
}
