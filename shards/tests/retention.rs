//! How many completed jobs are kept, and for how long, is a setting, and the next start may have another
//! one. The fear: a start that reads its log otherwise than it was written, and loses or brings back jobs.

use crate::support::{Bed, config};
use corq_shards::command::{Command, Fail};
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::Record;
use corq_shards::{Config, Shard};

/// Pushes jobs and completes them, in order.
fn completed(bed: &mut Bed, queue: &str, count: u32) -> Vec<JobId> {
    let ids: Vec<JobId> = (0..count).map(|_| bed.data(queue, b"\x01")).collect();
    for (id, token) in bed.pull(1, queue, count) {
        bed.ack(id, Some(token)).unwrap();
    }
    ids
}

fn retry(bed: &mut Bed, id: JobId) {
    let retry = Command::RetryCompleted { queue: "q", job: Some(id), count: 1, until_ms: u64::MAX };
    bed.run(1, &retry);
}

/// The next start, with other settings.
fn restart(bed: &mut Bed, completed_max: u32, completed_retention_ms: u64) {
    bed.config = Config { completed_max, completed_retention_ms, ..bed.config };
    bed.shard = bed.replayed();
    bed.shard.audit().unwrap();
    bed.shard.restart(bed.now_ms);
    bed.pass(0);
    bed.shard.audit().unwrap();
}

#[test]
fn a_lower_completed_max_loses_no_job_that_runs_anew() {
    for completed_max in [0, 1, 2] {
        let mut bed = Bed::new();
        let ids = completed(&mut bed, "q", 5);
        for &id in &ids[..4] {
            retry(&mut bed, id);
        }
        let held = bed.pull(1, "q", 3);
        let [active, failed, done] = [held[0], held[1], held[2]];
        let (job, token) = (failed.0, Some(failed.1));
        bed.run(1, &Command::Fail(Fail { job, token, unrecoverable: true, ..Fail::default() }));
        bed.ack(done.0, Some(done.1)).unwrap();
        restart(&mut bed, completed_max, 600_000);
        assert_eq!(bed.state(active.0), Some(State::Active), "at most {completed_max}");
        assert_eq!(bed.state(failed.0), Some(State::Failed), "at most {completed_max}");
        assert_eq!(bed.state(ids[3]), Some(State::Waiting), "at most {completed_max}");
        let left = bed.shard.queue("q").map_or(0, |queue| queue.count(State::Completed));
        assert_eq!(left, u64::from(completed_max));
        bed.ack(active.0, Some(active.1)).unwrap();
        let left = bed.shard.queue("q").map_or(0, |queue| queue.count(State::Completed));
        assert_eq!(left, u64::from(completed_max), "the setting of today holds for new ends");
    }
}

#[test]
fn a_higher_completed_max_brings_nothing_back() {
    let mut bed = Bed::with(Config { completed_max: 2, ..config(1) });
    let ids = completed(&mut bed, "q", 6);
    retry(&mut bed, ids[5]);
    let before = bed.shard.facts();
    restart(&mut bed, 1000, 600_000);
    assert_eq!(bed.shard.facts(), before);
    assert_eq!(bed.state(ids[3]), None, "it was forgotten");
    // And the next start, after a change back, finds what this one left.
    completed(&mut bed, "q", 6);
    let before = bed.shard.facts();
    restart(&mut bed, 1000, 600_000);
    assert_eq!(bed.shard.facts(), before);
}

#[test]
fn a_longer_retention_brings_nothing_back_and_a_shorter_one_loses_nothing_that_runs() {
    let mut bed = Bed::with(Config { completed_retention_ms: 10_000, ..config(1) });
    let ids = completed(&mut bed, "q", 3);
    bed.pass(70_000);
    assert_eq!(bed.state(ids[0]), None, "too old");
    let kept = completed(&mut bed, "q", 3);
    retry(&mut bed, kept[0]);
    restart(&mut bed, 20, 600_000_000);
    assert_eq!(bed.state(ids[0]), None, "it was forgotten");
    assert_eq!(bed.state(kept[1]), Some(State::Completed));
    bed.pass(3_600_000);
    restart(&mut bed, 20, 1000);
    assert_eq!(bed.state(kept[0]), Some(State::Waiting));
    assert_eq!(bed.state(kept[1]), None);
}

/// Jobs that a start forgets because its settings are others are forgotten in the log, too, and in slices.
#[test]
fn a_start_forgets_what_is_too_much_in_slices_and_for_good() {
    let mut bed = Bed::with(Config { completed_max: 5000, ..config(1) });
    let ids = completed(&mut bed, "q", 3000);
    bed.config.completed_max = 10;
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    let left = |bed: &mut Bed| bed.shard.queue("q").unwrap().count(State::Completed);
    let mut last = left(&mut bed);
    assert_eq!(last, 3000, "a replay goes by its records alone");
    while last > 10 {
        bed.tick();
        let now = left(&mut bed);
        assert!(now < last && last - now <= corq_shards::SLICE, "{last}, then {now}");
        last = now;
    }
    restart(&mut bed, 5000, 600_000);
    assert_eq!(last, left(&mut bed));
    assert_eq!(bed.state(ids[2989]), None);
    assert_eq!(bed.state(ids[2990]), Some(State::Completed));
}

/// The name of an obliterated queue has a new owner at once, while its completed jobs go in slices.
#[test]
fn what_is_left_of_an_obliterated_queue_is_not_taken_for_its_heir() {
    let mut bed = Bed::with(Config { completed_max: 2, bulk_slice: 1, ..config(1) });
    bed.config.completed_max = 40;
    bed.shard = Shard::new(bed.config);
    bed.shard.restart(bed.now_ms);
    completed(&mut bed, "q", 30);
    restart(&mut bed, 2, 600_000);
    let old = completed(&mut bed, "q", 2);
    bed.run(1, &Command::Obliterate { queue: "q" });
    for _ in 0..3 {
        completed(&mut bed, "q", 3);
        let again = bed.replayed();
        assert_eq!(again.facts(), bed.shard.facts());
        assert_eq!(again.unknown_job_records(), 0);
        bed.tick();
    }
    bed.pass(0);
    assert_eq!(bed.state(old[0]), None);
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
    assert_eq!(bed.shard.queue("q").unwrap().count(State::Completed), 2);
}

/// A canary: what is lost of a log is seen by what is left.
#[test]
fn a_record_of_a_job_that_was_never_told_of_is_counted() {
    let mut bed = Bed::new();
    completed(&mut bed, "q", 2);
    bed.push("q", NewJob::default());
    bed.run(1, &Command::Drain { queue: "q" });
    assert_eq!(bed.replayed().unknown_job_records(), 0);
    let pushed: Vec<usize> = (0..bed.journal.records.len())
        .filter(|&at| matches!(Record::decode(&bed.journal.records[at]), Ok(Record::Pushed(_))))
        .collect();
    for at in pushed {
        let mut shard = Shard::new(bed.config);
        for (position, record) in bed.journal.records.iter().enumerate().filter(|it| it.0 != at) {
            shard.replay(position as u64, record).unwrap();
        }
        assert!(shard.unknown_job_records() > 0, "without record {at}");
    }
}

/// Reclaimed records are no loss: records of jobs whose push was reclaimed are not counted as unknown.
#[test]
fn records_of_jobs_from_before_the_beginning_are_not_counted_and_later_ones_are() {
    let mut bed = Bed::with(Config { completed_max: 3, ..config(1) });
    for _ in 0..12 {
        let ids = completed(&mut bed, "q", 2);
        retry(&mut bed, ids[0]);
        bed.reclaim(16);
        assert_eq!(bed.replayed().unknown_job_records(), 0);
    }
    assert!(bed.journal.gone > 0);
    // A job is lost whose beginning was compacted: records about it are from now on about an unknown job.
    let (id, token) = bed.pull(1, "q", 1)[0];
    bed.ack(id, Some(token)).unwrap();
    let mut shard = Shard::new(bed.config);
    for (position, record) in bed.journal.records.iter().enumerate().skip(bed.journal.gone) {
        let is_its_own =
            Record::decode(record).unwrap().into_pushed().is_some_and(|it| it.id == id);
        if !is_its_own {
            shard.replay(position as u64, record).unwrap();
        }
    }
    assert!(shard.unknown_job_records() > 0);
}
