//! Memory of failed attempts, and its bound.

use super::*;

#[test]
fn how_attempts_failed_survives_and_goes_with_the_job() {
    let mut bed = Bed::new();
    let job =
        bed.push("q", NewJob { data: b"1", max_attempts: 30, backoff_ms: 0, ..NewJob::default() });
    let other = bed.push("q", NewJob { data: b"2", max_attempts: 2, ..NewJob::default() });
    let fail = |bed: &mut Bed, job, error| {
        bed.pass(10_000);
        let pulled = bed.pull(1, "q", 10);
        let token = pulled.iter().find(|(id, _)| *id == job).map(|(_, token)| *token).unwrap();
        let fail = Fail {
            job,
            token: Some(token),
            error,
            unrecoverable: false,
            stack: Stack::default(),
            remove: false,
        };
        bed.run(1, &Command::Fail(fail));
        bed.run(1, &Command::Disconnect);
    };
    for error in ["one", "two", "three"] {
        fail(&mut bed, job, error);
    }
    for _ in 0..3 {
        reclaim_all(&mut bed);
        restart(&mut bed);
        let view = bed.shard.view(bed.shard.find(job).unwrap());
        let text = |stored: &corq_shards::log_record::location::LogRef| {
            let record = &bed.journal.records[stored.position as usize];
            String::from_utf8(record[record.len() - stored.payload_bytes as usize..].to_vec())
                .unwrap()
        };
        assert_eq!(view.failures().iter().map(text).collect::<Vec<_>>(), ["one", "two", "three"]);
        assert!(bed.shard.view(bed.shard.find(other).unwrap()).failures().is_empty());
        bed.shard.audit().unwrap();
    }
    bed.run(1, &Command::Obliterate { queue: "q" });
    bed.pass(10);
    bed.shard.audit().unwrap();
    assert_eq!(bed.shard.needed_bytes(), 0, "nothing of it is needed any more");
}

#[test]
fn a_job_that_is_sent_to_the_dead_letters_keeps_the_attempts_that_are_remembered_of_it() {
    let mut bed = Bed::new();
    let job = fail_once(&mut bed, 1, "first")[0];
    let bury = Change::Bury { token: None, cause: Cause::Explicit, error: "e", attempts: Some(0) };
    bed.run(1, &Command::Change { job, change: bury });
    let view = bed.shard.view(bed.shard.find(job).unwrap());
    assert_eq!((view.job.attempts, view.failures().len()), (1, 1));
    bed.shard.audit().unwrap();
    let more = bed.push("q", NewJob { data: b"1", ..NewJob::default() });
    let bury = Change::Bury { token: None, cause: Cause::Explicit, error: "e", attempts: Some(9) };
    bed.run(1, &Command::Change { job: more, change: bury });
    assert_eq!(bed.shard.view(bed.shard.find(more).unwrap()).job.attempts, 9);
    for id in [job, more] {
        bed.run(1, &Command::Change { job: id, change: Change::Remove });
    }
    bed.shard.audit().unwrap();
    assert_eq!(bed.shard.needed_bytes(), 0, "nothing of it is needed any more");
}

/// Fails the first attempt of so many new jobs; returns them.
fn fail_once(bed: &mut Bed, count: usize, error: &str) -> Vec<JobId> {
    let job = NewJob { data: b"1", max_attempts: 3, backoff_ms: 600_000, ..NewJob::default() };
    let one = |bed: &mut Bed| {
        let id = bed.push("q", job.clone());
        let token = bed.pull(1, "q", 1).first().map(|(_, token)| *token);
        bed.run(1, &Command::Fail(Fail { job: id, token, error, ..Fail::default() }));
        id
    };
    (0..count).map(|_| one(bed)).collect()
}

fn is_remembered(bed: &Bed, job: JobId) -> bool {
    !bed.shard.view(bed.shard.find(job).unwrap()).failures().is_empty()
}

#[test]
fn attempts_of_all_jobs_are_remembered_within_one_bound() {
    let mut bed = Bed::with(Config { remembered_bytes_max: 5000, ..config(1) });
    let reason = "r".repeat(900);
    let jobs = fail_once(&mut bed, 8, &reason);
    let remembered = |bed: &Bed| jobs.iter().filter(|&&job| is_remembered(bed, job)).count();
    assert_eq!(remembered(&bed), 5, "the first ones");
    let known = bed.shard.remembered_attempts();
    assert!(known.count == 5 && (4500..5000).contains(&known.bytes), "{known:?}");
    for _ in 0..2 {
        restart(&mut bed);
        assert_eq!(bed.shard.remembered_attempts().count, 5, "as it was decided then");
        reclaim_all(&mut bed);
        bed.shard.audit().unwrap();
    }
    assert_eq!(bed.shard.view(bed.shard.find(jobs[7]).unwrap()).job.attempts, 1, "it counts");
    // With the jobs goes what they took.
    bed.run(1, &Command::Obliterate { queue: "q" });
    bed.pass(10);
    assert_eq!(bed.shard.remembered_attempts().bytes, 0);
    let next = fail_once(&mut bed, 1, &reason);
    assert!(is_remembered(&bed, next[0]));
    bed.shard.audit().unwrap();
}

#[test]
fn of_a_long_reason_and_a_long_stack_their_beginnings_are_remembered() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { data: b"1", max_attempts: 3, ..NewJob::default() });
    let token = bed.pull(1, "q", 1).first().map(|(_, token)| *token);
    let line = [&[0xda, 3, 232][..], &[b's'; 1000]].concat();
    let texts = line.repeat(8);
    let (error, stack) = ("r".repeat(60_000), Stack { lines: 8, texts: &texts });
    bed.run(1, &Command::Fail(Fail { job, token, error: &error, stack, ..Fail::default() }));
    let [stored] = bed.shard.view(bed.shard.find(job).unwrap()).failures() else { panic!("one") };
    let record = Record::decode(&bed.journal.records[stored.position as usize]).unwrap();
    let Record::Retried(retried) = record else { panic!("{record:?}") };
    assert_eq!(retried.error.len(), 8 << 10);
    assert_eq!(retried.attempt.map(|it| (it.stack.lines, it.stack.texts.len())), Some((4, 4012)));
}

#[test]
fn no_attempt_is_remembered_where_a_job_would_find_no_room() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { data: b"1", max_attempts: 3, ..NewJob::default() });
    bed.journal.full.0 = true;
    let token = bed.pull(1, "q", 1).first().map(|(_, token)| *token);
    bed.run(1, &Command::Fail(Fail { job, token, error: "why", ..Fail::default() }));
    assert!(!is_remembered(&bed, job));
    assert_eq!(bed.shard.view(bed.shard.find(job).unwrap()).job.attempts, 1);
    bed.shard.audit().unwrap();
}
