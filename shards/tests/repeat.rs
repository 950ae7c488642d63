//! Repeated jobs. The fear: a series that a crash ends, or splits in two.

use crate::support::{Bed, START_MS};
use corq_shards::Config;
use corq_shards::command::Command;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::job::recurrence::Recurrence;
use corq_shards::job::{State, flags};

const EVERY: Repeat = Repeat { every_ms: 1000, limit: None, count: 0 };

fn finish(bed: &mut Bed, queue: &str) -> JobId {
    let (id, token) = bed.pull(1, queue, 1)[0];
    bed.ack(id, Some(token)).unwrap();
    id
}

#[test]
fn a_series_ends_with_its_limit_and_every_run_has_its_own_id() {
    let mut bed = Bed::new();
    let repeat = Some(Repeat { limit: Some(3), ..EVERY });
    let mut runs = vec![bed.push("q", NewJob { repeat, data: b"\x01", ..NewJob::default() })];
    for _ in 0..3 {
        let done = finish(&mut bed, "q");
        assert_eq!(done, *runs.last().unwrap());
        assert!(bed.pull(1, "q", 1).is_empty(), "not before its time");
        bed.pass(1000);
        if let Some(&(next, token)) = bed.pull(2, "q", 1).first() {
            let view = bed.shard.view(bed.shard.find(next).unwrap());
            let count = view.options.unwrap().series.as_ref().unwrap().count;
            assert_eq!(count, runs.len() as u64);
            runs.push(next);
            bed.fail(next, Some(token)).unwrap();
            bed.pass(1200);
        }
    }
    assert_eq!(runs.len(), 3);
    assert_eq!(bed.shard.census().completed, 3);
}

#[test]
fn runs_are_due_on_cadence_and_missed_slots_are_skipped() {
    let mut bed = Bed::new();
    let start = bed.now_ms;
    bed.push("q", NewJob { repeat: Some(EVERY), delay_ms: 500, ..NewJob::default() });
    bed.pass(500);
    bed.pass(200);
    let due = |bed: &Bed, id| bed.shard.view(bed.shard.find(id).unwrap()).job.run_at_ms - start;
    finish(&mut bed, "q");
    bed.pass(800);
    let (second, token) = bed.pull(1, "q", 1)[0];
    assert_eq!(due(&bed, second), 1500);
    bed.pass(2200);
    bed.ack(second, Some(token)).unwrap();
    bed.pass(799);
    assert!(bed.pull(1, "q", 1).is_empty());
    bed.pass(1);
    let third = finish(&mut bed, "q");
    assert_eq!(due(&bed, third), 4500);
}

#[test]
fn a_run_for_which_too_many_come_is_late_and_the_next_is_on_cadence() {
    let config = Config { scheduled_per_second: 1, ..crate::support::config(1) };
    let mut bed = Bed::with(config);
    let repeat = Some(Repeat { every_ms: 1500, limit: None, count: 0 });
    bed.push_all("q", &vec![NewJob { repeat, ..NewJob::default() }; 4]);
    let due = |bed: &Bed, id| bed.shard.view(bed.shard.find(id).unwrap()).job.run_at_ms - START_MS;
    for (job, token) in bed.pull(1, "q", 4) {
        bed.ack(job, Some(token)).unwrap();
    }
    // Two are free at once, and one in each second from then on.
    bed.pass(1500);
    assert_eq!(bed.pull(1, "q", 4).len(), 3);
    bed.pass(500);
    let (late, token) = bed.pull(1, "q", 4)[0];
    assert_eq!(due(&bed, late), 2000);
    let replayed = bed.replayed();
    assert_eq!(replayed.facts(), bed.shard.facts());
    bed.ack(late, Some(token)).unwrap();
    bed.pass(1000);
    let (next, _) = bed.pull(1, "q", 1)[0];
    assert_eq!(due(&bed, next), 3000);
    bed.shard.audit().unwrap();
}

#[test]
fn a_run_keeps_every_option_and_takes_over_the_custom_id() {
    let mut bed = Bed::new();
    let job = NewJob {
        data: b"\xa4data",
        repeat: Some(EVERY),
        priority: 7,
        max_attempts: 9,
        backoff_ms: 77,
        ttl_ms: Some(100_000),
        timeout_ms: Some(5000),
        unique_key: Some("key"),
        custom_id: Some("mine"),
        tags: b"\x91\xa1t",
        lifo: true,
        remove_on_complete: true,
        ..NewJob::default()
    };
    let first = bed.push("q", job.clone());
    let before = bed.shard.view(bed.shard.find(first).unwrap());
    let (data, before) = (before.data, before.job.flags);
    finish(&mut bed, "q");
    assert_eq!(bed.state(first), None, "removed on completion");
    let next = bed.push("q", NewJob { custom_id: None, ..job });
    let view = bed.shard.view(bed.shard.find(next).unwrap());
    assert_eq!(view.job.state, State::Delayed, "the key is the next run's");
    assert_eq!((view.job.priority, view.job.max_attempts, view.job.backoff_ms), (7, 9, 77));
    assert_eq!((view.data, view.job.flags & !flags::SHARED), (data, before));
    assert!(view.job.has(flags::SHARED), "with whatever other run there is");
    let options = view.options.unwrap();
    assert_eq!(
        (options.unique_key.as_deref(), options.custom_id.as_deref()),
        (Some("key"), Some("mine"))
    );
    assert_eq!((options.expires_at_ms, options.timeout_ms), (bed.now_ms + 100_000, 5000));
}

#[test]
fn the_custom_id_of_a_series_names_the_run_that_is_to_be_done() {
    for remove_on_complete in [false, true] {
        let mut bed = Bed::new();
        let tick = NewJob {
            repeat: Some(Repeat { limit: Some(3), ..EVERY }),
            custom_id: Some("tick"),
            remove_on_complete,
            ..NewJob::default()
        };
        let mut current = bed.push("q", tick);
        let named = |shard: &corq_shards::Shard| -> Vec<JobId> {
            shard.custom_ids().filter(|(name, _)| *name == "tick").map(|(_, id)| id).collect()
        };
        for run in 0..3 {
            assert_eq!(named(&bed.shard), [current], "run {run}");
            assert_eq!(finish(&mut bed, "q"), current);
            let told = bed.effects.names.clone();
            let replayed = bed.replayed();
            assert_eq!(replayed.facts(), bed.shard.facts());
            assert_eq!(named(&replayed), named(&bed.shard));
            if run < 2 {
                current = named(&bed.shard)[0];
                // The new bearer comes first, or the name is free for a moment.
                let change = told.first().unwrap();
                assert_eq!((&*change.name, change.id, change.known), ("tick", current, true));
            }
            bed.pass(1000);
        }
        // The last run keeps it for as long as it is known.
        let left = if remove_on_complete { vec![] } else { vec![current] };
        assert_eq!(named(&bed.shard), left);
        bed.shard.audit().unwrap();
    }
}

#[test]
fn a_crash_neither_loses_nor_doubles_a_run() {
    let mut bed = Bed::new();
    bed.push("q", NewJob { repeat: Some(EVERY), ..NewJob::default() });
    for _ in 0..4 {
        finish(&mut bed, "q");
        bed.pass(1000);
    }
    for crash in 1..=bed.journal.records.len() {
        let mut again = Bed::new();
        again.journal.records = bed.journal.records[..crash].to_vec();
        let census = again.replayed().census();
        let alive = census.waiting + census.delayed + census.active;
        assert_eq!(alive, 1, "after {crash} records");
    }
}

#[test]
fn a_run_in_the_dead_letter_queue_ends_the_series() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { repeat: Some(EVERY), max_attempts: 1, ..NewJob::default() });
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.fail(job, Some(token)).unwrap();
    bed.pass(10_000);
    let census = bed.shard.census();
    assert_eq!((census.failed, census.waiting + census.delayed), (1, 0));
}

#[test]
fn a_durable_series_waits_for_the_disk_with_every_run() {
    let mut bed = Bed::new();
    bed.push("q", NewJob { repeat: Some(EVERY), durable: true, ..NewJob::default() });
    finish(&mut bed, "q");
    assert_eq!(bed.journal.syncs, 2);
}

#[test]
fn a_run_that_is_run_again_brings_no_second_successor() {
    let mut bed = Bed::new();
    let first = bed.push("q", NewJob { repeat: Some(EVERY), ..NewJob::default() });
    finish(&mut bed, "q");
    bed.ask(
        1,
        &Command::RetryCompleted {
            queue: "q",
            job: Some(first),
            count: u64::MAX,
            until_ms: u64::MAX,
        },
    );
    assert_eq!(finish(&mut bed, "q"), first);
    let census = bed.shard.census();
    assert_eq!((census.completed, census.delayed), (1, 1));
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

#[test]
fn a_run_retried_from_the_dead_letter_queue_carries_the_series_on() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { repeat: Some(EVERY), max_attempts: 1, ..NewJob::default() });
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.fail(job, Some(token)).unwrap();
    bed.pass(2500);
    bed.run(1, &Command::RetryFailed { queue: "q", job: Some(job), count: 1 });
    finish(&mut bed, "q");
    assert_eq!(bed.shard.census().delayed, 1);
    bed.pass(499);
    assert!(bed.pull(1, "q", 1).is_empty(), "still on cadence");
    bed.pass(1);
    assert_eq!(bed.pull(1, "q", 1).len(), 1);
}

/// Runs every ten seconds by the clock, up to a time.
const TENS: Recurrence<'static> = Recurrence {
    pattern: Some("*/10 * * * * *"),
    timezone: Some("Asia/Kathmandu"),
    until_ms: None,
    from_ms: 0,
    immediately: false,
};

#[test]
fn a_series_of_an_expression_runs_at_its_times_until_its_end_and_outlives_a_restart() {
    let mut bed = Bed::new();
    let first_ms = (START_MS / 10_000 + 1) * 10_000;
    let recurrence = Recurrence { until_ms: Some(first_ms + 25_000), ..TENS };
    let repeat = Some(Repeat { every_ms: 1 << 40, limit: None, count: 0 });
    let recurrence = Some(Box::new(recurrence));
    bed.push("q", NewJob { repeat, recurrence, data: b"\x07", ..NewJob::default() });
    assert!(bed.pull(1, "q", 1).is_empty(), "it waits for its first time");
    for run in 0..3 {
        let due_ms = first_ms + run * 10_000;
        bed.pass(due_ms - bed.now_ms);
        let (id, token) = bed.pull(1, "q", 1)[0];
        let view = bed.shard.view(bed.shard.find(id).unwrap());
        assert_eq!(view.job.run_at_ms, due_ms);
        let series = view.options.unwrap().series.as_deref().unwrap();
        let given = series.recurrence.as_deref().unwrap().given();
        assert_eq!((series.count, given.pattern), (run, TENS.pattern));
        assert_eq!((given.timezone, given.until_ms), (TENS.timezone, Some(first_ms + 25_000)));
        bed.ack(id, Some(token)).unwrap();
        let replayed = bed.replayed();
        assert_eq!(replayed.facts(), bed.shard.facts());
    }
    bed.pass(60_000);
    assert!(bed.pull(1, "q", 1).is_empty(), "the series has come to its end");
    assert_eq!(bed.shard.census().completed, 3);
    bed.shard.audit().unwrap();
}

#[test]
fn a_series_of_an_expression_runs_at_once_or_later_where_its_push_says_so() {
    let mut bed = Bed::new();
    let repeat = Some(Repeat { every_ms: 1 << 40, limit: Some(2), count: 0 });
    let push = |bed: &mut Bed, recurrence, delay_ms| {
        let recurrence = Some(Box::new(recurrence));
        let id = bed.push("q", NewJob { repeat, recurrence, delay_ms, ..NewJob::default() });
        bed.shard.view(bed.shard.find(id).unwrap()).job.run_at_ms - START_MS
    };
    let now = Recurrence { immediately: true, ..TENS };
    assert_eq!(push(&mut bed, now, 0), 0);
    assert_eq!(push(&mut bed, TENS, 7), 7);
    let from_ms = START_MS + 3_600_000;
    let later = push(&mut bed, Recurrence { from_ms, ..TENS }, 0);
    assert!((3_600_000..3_610_000).contains(&later), "{later}");
    let plain = Recurrence { pattern: None, timezone: None, from_ms, ..TENS };
    assert_eq!(push(&mut bed, plain, 0), 3_600_000);
}
