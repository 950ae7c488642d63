//! The beginning of the log is given up. The fear: a restart that misses what was told only there.

mod attempts;
use crate::support::{Bed, SPAN_BITS, config};
use corq_shards::Config;
use corq_shards::command::{Command, Fail, Limit, PerSpan, SetCron, Stack};
use corq_shards::cron::expression::Plan;
use corq_shards::dead_letter::policy::{DlqPatch, RulePatch};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::effect::Reply;
use corq_shards::family::unreported::KeptUnreported;
use corq_shards::family::{End, NewFamily, Policy};
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::job::trace::{NewTrace, Trace, TraceParent};
use corq_shards::log_record::Record;
use corq_shards::log_record::cron::CronRules;
use corq_shards::log_record::job_change::Level;
use corq_shards::log_record::snapshot::Kept;

const SPAN: usize = 1 << SPAN_BITS;

/// Writes a record that nothing needs for long.
fn fill(bed: &mut Bed) {
    let paused = bed.shard.queue("filler").is_none_or(|queue| !queue.is_paused());
    bed.run(1, &Command::Pause { queue: "filler", paused });
}

/// Gives up all that has been written so far.
fn reclaim_all(bed: &mut Bed) {
    let end = bed.journal.records.len();
    while bed.journal.gone < end {
        // Records that nothing needs fill the span up.
        while bed.journal.gone + SPAN > bed.journal.records.len() {
            fill(bed);
        }
        bed.reclaim(SPAN);
    }
}

/// Ends the process and starts the next one from what is left of the log.
fn restart(bed: &mut Bed) {
    let facts = bed.shard.facts();
    bed.shard = bed.replayed();
    bed.shard.audit().unwrap();
    assert_eq!(bed.shard.facts(), facts);
    bed.shard.restart(bed.now_ms);
}

#[test]
fn order_of_delivery_survives() {
    let mut bed = Bed::new();
    let job = |lifo, priority| NewJob { lifo, priority, data: b"\x01", ..NewJob::default() };
    let fifo: Vec<JobId> = (0..40).map(|_| bed.push("q", job(false, 0))).collect();
    let lifo: Vec<JobId> = (0..40).map(|_| bed.push("q", job(true, 0))).collect();
    let urgent = bed.push("q", job(false, 9));
    // Half of it is written again behind the other half.
    (0..3).for_each(|_| bed.reclaim(SPAN));
    restart(&mut bed);
    let pulled: Vec<JobId> = bed.pull(1, "q", 100).into_iter().map(|(id, _)| id).collect();
    let expected = std::iter::once(urgent).chain(lifo.into_iter().rev()).chain(fifo);
    assert_eq!(pulled, expected.collect::<Vec<_>>());
}

#[test]
fn the_dead_letter_queue_stays_oldest_first() {
    let mut bed = Bed::new();
    let job = NewJob { max_attempts: 1, ..NewJob::default() };
    let ids: Vec<JobId> = (0..30).map(|_| bed.push("q", job.clone())).collect();
    let held = bed.pull(1, "q", 30);
    // They fail in another order than they came, some before and some after others are kept.
    for (place, &(id, token)) in held.iter().rev().enumerate() {
        bed.fail(id, Some(token)).unwrap();
        if place == 12 {
            bed.reclaim(SPAN);
        }
    }
    let listed = |bed: &mut Bed| -> Vec<JobId> {
        let failed: Vec<u32> = bed.shard.failed("q").collect();
        failed.into_iter().map(|index| bed.shard.view(index).job.id).collect()
    };
    let expected: Vec<JobId> = ids.into_iter().rev().collect();
    assert_eq!(listed(&mut bed), expected);
    reclaim_all(&mut bed);
    restart(&mut bed);
    assert_eq!(listed(&mut bed), expected);
}

/// No record says that a completed job was forgotten for its age. When ages are looked at follows from
/// completions, and those may be gone from the log.
#[test]
fn what_was_forgotten_for_its_age_does_not_come_back_with_a_start() {
    let mut bed = Bed::with(Config { completed_retention_ms: 20_000, ..config(1) });
    let complete = |bed: &mut Bed| {
        let (job, token) = bed.pull(1, "q", 1)[0];
        bed.ack(job, Some(token)).unwrap();
    };
    let again = bed.data("q", b"1");
    complete(&mut bed);
    let retry =
        Command::RetryCompleted { queue: "q", job: Some(again), count: 1, until_ms: u64::MAX };
    assert_eq!(bed.ask(1, &retry), Some(Reply::Count(1)));
    reclaim_all(&mut bed);
    bed.pass(36_000);
    complete(&mut bed);
    let job = NewJob { custom_id: Some("name"), ..NewJob::default() };
    let named = bed.push("q", job);
    complete(&mut bed);
    bed.pass(24_000);
    assert_eq!((bed.state(again), bed.state(named)), (None, None), "too old");
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    bed.shard.audit().unwrap();
    assert_eq!((bed.state(again), bed.state(named)), (None, None));
    assert_eq!(bed.shard.custom_ids().count(), 0);
    assert!(bed.shard.completed_names().any(|known| known == ("name", named)));
}

/// Guards against a job that can name what it depends on before a start, and not after it.
#[test]
fn custom_ids_of_completed_jobs_are_remembered_when_the_records_of_those_jobs_have_gone() {
    let mut bed = Bed::new();
    let job =
        |name| NewJob { custom_id: Some(name), remove_on_complete: true, ..NewJob::default() };
    let mut named = Vec::new();
    for name in ["one", "two", "three"] {
        let id = bed.push("q", job(name));
        let (pulled, token) = bed.pull(1, "q", 1)[0];
        bed.ack(pulled, Some(token)).unwrap();
        named.push((name, id));
    }
    for round in 0..3 {
        reclaim_all(&mut bed);
        bed.shard = bed.replayed();
        bed.shard.restart(bed.now_ms);
        assert_eq!(bed.shard.completed_names().collect::<Vec<_>>(), named, "round {round}");
    }
    bed.shard.audit().unwrap();
}

/// A parent that comes late names its child as its client does, also once another parent has heard of the child.
#[test]
fn the_custom_id_of_a_child_that_is_remembered_for_its_parent_is_known_after_a_start() {
    for ends_well in [true, false] {
        let mut bed = Bed::new();
        let policy = (!ends_well).then_some(Policy::Ignore);
        let family = NewFamily { parent: Some("parent"), policy, ..NewFamily::default() };
        let child = NewJob {
            custom_id: Some("kid"),
            remove_on_complete: true,
            remove_on_fail: true,
            max_attempts: 1,
            family: Some(Box::new(family)),
            ..NewJob::default()
        };
        let id = bed.push("q", child);
        let (pulled, token) = bed.pull(1, "q", 1)[0];
        if ends_well {
            bed.ack(pulled, Some(token)).unwrap();
        } else {
            bed.fail(pulled, Some(token)).unwrap();
        }
        assert_eq!(bed.shard.holdings().unreported, 1, "{ends_well}");
        for round in 0..3 {
            reclaim_all(&mut bed);
            bed.shard = bed.replayed();
            bed.shard.restart(bed.now_ms);
            let known: Vec<_> = bed.shard.completed_names().collect();
            assert_eq!(known, [("kid", id)], "round {round}, {ends_well}");
        }
        bed.shard.audit().unwrap();
    }
}

/// No record says that a completed job was forgotten for its number: others say it, by being there.
#[test]
fn what_was_forgotten_stays_forgotten_when_what_displaced_it_goes() {
    let mut bed = Bed::new();
    let old = bed.data("q", b"1");
    let pause = |bed: &mut Bed| {
        while !bed.journal.records.len().is_multiple_of(SPAN) {
            fill(bed);
        }
    };
    let displacing: Vec<JobId> = (0..20).map(|_| bed.data("q", b"2")).collect();
    pause(&mut bed);
    let (_, token) = bed.pull(1, "q", 1)[0];
    // The job to be removed is written again, behind those that will displace it.
    while bed.journal.gone == 0 {
        bed.reclaim(SPAN);
    }
    bed.ack(old, Some(token)).unwrap();
    for (id, token) in bed.pull(1, "q", 20) {
        bed.ack(id, Some(token)).unwrap();
    }
    assert_eq!(bed.state(old), None, "displaced");
    bed.run(
        1,
        &Command::RetryCompleted { queue: "q", job: None, count: u64::MAX, until_ms: u64::MAX },
    );
    bed.run(1, &Command::Drain { queue: "q" });
    assert!(displacing.iter().all(|&id| bed.state(id).is_none()));
    pause(&mut bed);
    while bed.journal.gone < 2 * SPAN {
        bed.reclaim(SPAN);
        restart(&mut bed);
        assert_eq!(bed.state(old), None);
    }
}

#[test]
fn ids_rise_although_no_record_of_a_job_is_left() {
    let mut bed = Bed::new();
    let last = (0..5).map(|_| bed.data("q", b"1")).last().unwrap();
    bed.run(1, &Command::Drain { queue: "q" });
    reclaim_all(&mut bed);
    restart(&mut bed);
    bed.now_ms -= 60_000;
    assert!(bed.data("q", b"1") > last, "even if the clock went back");
}

fn every_900_ms() -> SetCron<'static> {
    SetCron {
        name: "c",
        queue: "q",
        data: b"\xa1x",
        schedule: None,
        repeat_every_ms: Some(900),
        timezone: None,
        priority: 3,
        runs_max: None,
        job: None,
        plan: Plan::every(900, None).unwrap(),
        rules: CronRules::default(),
        moved: None,
    }
}

#[test]
fn settings_and_schedules_survive_and_are_written_once() {
    let mut bed = Bed::new();
    for round in 0..100 {
        let paused = round % 2 == 1;
        bed.run(1, &Command::Pause { queue: "q", paused });
        let limit = Limit::Rate(Some(PerSpan::per_second(1 + round)));
        bed.run(1, &Command::Limit { queue: "q", limit });
    }
    let cron = every_900_ms();
    bed.run(1, &Command::SetCron(&cron));
    bed.run(1, &Command::StartCrons);
    for _ in 0..30 {
        bed.pass(900);
    }
    bed.run(1, &Command::Pause { queue: "q", paused: false });
    bed.run(1, &Command::Drain { queue: "q" });
    bed.run(1, &Command::Pause { queue: "q", paused: true });
    let before = bed.journal.records.len();
    reclaim_all(&mut bed);
    let settings = bed.journal.records[before..].iter().filter(|bytes| {
        let record = Record::decode(bytes).unwrap();
        matches!(record, Record::Limited(_) | Record::CronSet(_))
            || matches!(record, Record::Paused { queue: "q", .. })
    });
    assert!(settings.count() <= 2 * 3, "the pause, the limit and the schedule, at most twice");
    restart(&mut bed);
    assert_eq!(bed.shard.cron("c").unwrap().executions, 30);
}

#[test]
fn a_disabled_schedule_stays_so() {
    let mut bed = Bed::new();
    let cron = every_900_ms();
    bed.run(1, &Command::SetCron(&cron));
    bed.run(1, &Command::StartCrons);
    bed.run(1, &Command::EnableCron { name: "c", enabled: false });
    for _ in 0..3 {
        reclaim_all(&mut bed);
        restart(&mut bed);
        bed.run(1, &Command::StartCrons);
        bed.pass(5000);
        let cron = bed.shard.cron("c").unwrap();
        assert_eq!((cron.is_enabled(), cron.executions), (false, 0));
    }
}

#[test]
fn a_job_that_moved_keeps_all_its_texts() {
    let mut bed = Bed::new();
    let job = bed.push(
        "q",
        NewJob { data: b"\xa4data", tags: b"\x91\xa1t", group_id: Some("g"), ..NewJob::default() },
    );
    let (_, token) = bed.pull(1, "q", 1)[0];
    for change in [
        Change::Log { level: Level::Warn, message: "one" },
        Change::Progress { progress: 50.0, message: Some(b"half") },
        Change::Log { level: Level::Info, message: "two" },
    ] {
        bed.run(1, &Command::Change { job, change });
    }
    bed.ack(job, Some(token)).unwrap();
    for _ in 0..3 {
        reclaim_all(&mut bed);
        restart(&mut bed);
        let view = bed.shard.view(bed.shard.find(job).unwrap());
        let text = |stored: corq_shards::log_record::location::LogRef| {
            let record = &bed.journal.records[stored.position as usize];
            assert_eq!(record.len(), stored.record_bytes as usize);
            &record[record.len() - stored.payload_bytes as usize..]
        };
        let notes = view.options.unwrap().notes.as_ref().unwrap();
        let logs: Vec<&[u8]> = notes.logs.iter().map(|line| text(line.stored)).collect();
        assert_eq!(logs, [&b"one"[..], b"two"]);
        assert_eq!(text(notes.message.unwrap()), b"half");
        assert_eq!(text(view.outcome.unwrap().stored), &[0xc0]);
        assert_eq!(text(view.data), b"\xa4data");
        let record = &bed.journal.records[view.data.position as usize];
        let pushed = Record::decode_original(record).unwrap().into_pushed().unwrap();
        assert_eq!((pushed.job.tags, pushed.job.group_id), (&b"\x91\xa1t"[..], Some("g")));
    }
}

/// The trace of the only job that is known.
fn trace_of_the_job(bed: &mut Bed) -> Option<Trace> {
    let id = bed.known().next()?;
    let view = bed.shard.view(bed.shard.find(id)?);
    view.options?.trace.as_deref().cloned()
}

#[test]
fn a_trace_stays_with_its_job_through_attempts_moves_and_the_dead_letter_queue() {
    let mut bed = Bed::new();
    let parent = TraceParent { trace_id: [1; 16], span_id: [2; 8], flags: 1 };
    let given = NewTrace { parent, state: "rojo=1" };
    let trace = Some(Box::new(given));
    let job = NewJob { trace, max_attempts: 2, backoff_ms: 0, data: b"\x01", ..NewJob::default() };
    let id = bed.push("q", job);
    for _ in 0..2 {
        let (job, token) = bed.pull(1, "q", 1)[0];
        let (token, stack) = (Some(token), Stack::default());
        let fail = Fail { job, token, error: "no", unrecoverable: false, remove: false, stack };
        bed.run(1, &Command::Fail(fail));
        bed.pass(1000);
        reclaim_all(&mut bed);
        restart(&mut bed);
        assert_eq!(trace_of_the_job(&mut bed).unwrap().given(), given);
    }
    bed.run(1, &Command::RetryFailed { queue: "q", job: None, count: u64::MAX });
    bed.pass(1);
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.ack(id, Some(token)).unwrap();
    reclaim_all(&mut bed);
    restart(&mut bed);
    assert_eq!(trace_of_the_job(&mut bed).unwrap().given(), given);
}

#[test]
fn the_next_run_of_a_series_belongs_to_the_same_trace() {
    let mut bed = Bed::new();
    let parent = TraceParent { trace_id: [3; 16], span_id: [4; 8], flags: 0 };
    let given = NewTrace { parent, state: "" };
    let (trace, repeat) =
        (Some(Box::new(given)), Some(Repeat { every_ms: 1000, limit: None, count: 0 }));
    let remove_on_complete = true;
    bed.push("q", NewJob { trace, repeat, remove_on_complete, data: b"\x01", ..NewJob::default() });
    for _ in 0..3 {
        bed.pass(1000);
        let (id, token) = bed.pull(1, "q", 1)[0];
        bed.ack(id, Some(token)).unwrap();
        reclaim_all(&mut bed);
        restart(&mut bed);
        assert_eq!(trace_of_the_job(&mut bed).unwrap().given(), given);
    }
}

#[test]
fn the_runs_of_a_series_share_one_payload_wherever_it_moves() {
    let mut bed = Bed::new();
    let repeat = Repeat { every_ms: 1000, limit: None, count: 0 };
    let data = vec![0xc0; 5000];
    let job = NewJob { data: &data, repeat: Some(repeat), tags: b"\x91\xa1t", ..NewJob::default() };
    bed.push("q", job);
    for round in 0..60 {
        bed.pass(1000);
        let (id, token) = bed.pull(1, "q", 1)[0];
        let view = bed.shard.view(bed.shard.find(id).unwrap());
        let record = &bed.journal.records[view.data.position as usize];
        let pushed = Record::decode_original(record).unwrap().into_pushed().unwrap();
        assert_eq!((pushed.job.data, pushed.job.tags), (&data[..], &b"\x91\xa1t"[..]));
        bed.ack(id, Some(token)).unwrap();
        if round % 7 == 0 {
            reclaim_all(&mut bed);
            restart(&mut bed);
            let large = bed.journal.records[bed.journal.gone..].iter();
            assert_eq!(large.filter(|record| record.len() > 5000).count(), 1, "round {round}");
        }
    }
    // A run with a payload of its own leaves the others theirs.
    let queued = bed.known().last().unwrap();
    let new = NewJob { data: b"\x07", repeat: Some(repeat), ..NewJob::default() };
    bed.run(1, &Command::Change { job: queued, change: Change::Update { job: &new } });
    reclaim_all(&mut bed);
    restart(&mut bed);
    let view = bed.shard.view(bed.shard.find(queued).unwrap());
    assert_eq!((view.data.payload_bytes, view.data.position), (1, view.job.stored.position));
    assert_eq!(view.options.unwrap().series.as_ref().unwrap().count, 60);
}

#[test]
fn a_log_of_what_is_over_shrinks_to_nothing() {
    let mut bed = Bed::new();
    for _ in 0..50 {
        let job = NewJob { remove_on_complete: true, data: b"\x01", ..NewJob::default() };
        let id = bed.push("q", job);
        let (_, token) = bed.pull(1, "q", 1)[0];
        bed.ack(id, Some(token)).unwrap();
    }
    assert_eq!(bed.shard.needed_bytes(), 0);
    let before = bed.journal.records.len();
    for position in 0..before {
        let record = bed.journal.records[position].clone();
        assert!(!bed.shard.needs(position as u64, &record).unwrap(), "{position}");
    }
    reclaim_all(&mut bed);
    let kept = bed.journal.records[before..].iter().map(|bytes| Record::decode(bytes).unwrap());
    assert_eq!(kept.filter(|it| matches!(it, Record::Kept(Kept::Job(_)))).count(), 0);
}

#[test]
fn what_comes_is_refused_while_there_is_no_room_and_what_ends_is_not() {
    let mut bed = Bed::new();
    let jobs: Vec<JobId> = (0..6).map(|_| bed.data("q", b"1")).collect();
    let held = bed.pull(1, "q", 3);
    bed.journal.full = (true, false);
    let full = Some(Reply::Refused { place: 0, refusal: corq_shards::effect::Refusal::Full });
    let before = bed.shard.facts();
    let job = NewJob { data: b"\x01", ..NewJob::default() };
    assert_eq!(bed.ask(1, &Command::Push { queue: "new", jobs: std::slice::from_ref(&job) }), full);
    let update = Change::Update { job: &job };
    assert_eq!(bed.ask(1, &Command::Change { job: jobs[5], change: update }), full);
    let log = Change::Log { level: Level::Info, message: "x" };
    assert_eq!(bed.ask(1, &Command::Change { job: jobs[5], change: log }), full);
    assert_eq!(bed.shard.facts(), before, "nothing was changed");
    bed.ack(held[0].0, Some(held[0].1)).unwrap();
    bed.fail(held[1].0, Some(held[1].1)).unwrap();
    let silent = Change::Progress { progress: 1.0, message: None };
    assert_eq!(bed.ask(1, &Command::Change { job: held[2].0, change: silent }), Some(Reply::Done));
    assert_eq!(bed.pull(1, "q", 1).len(), 1);
    assert_eq!(
        bed.ask(1, &Command::Change { job: jobs[5], change: Change::Cancel }),
        Some(Reply::Done)
    );
    assert_eq!(bed.ask(1, &Command::Drain { queue: "q" }), Some(Reply::Count(1)));
    // Reasons of failures use up the room for settings as well.
    bed.journal.no_asides = true;
    let patch = RulePatch::Dlq(DlqPatch { entries_max: Some(Some(9)), ..DlqPatch::default() });
    assert_eq!(bed.ask(1, &Command::Rule { queue: "q", patch }), full);
    bed.journal.full = (true, true);
    let refused = bed.ack(held[2].0, Some(held[2].1)).unwrap_err();
    assert_eq!(refused, corq_shards::effect::Refusal::Full);
    assert_eq!(bed.state(held[2].0), Some(State::Active), "its worker can try again");
    bed.journal.full = (false, false);
    bed.ack(held[2].0, Some(held[2].1)).unwrap();
}

#[test]
fn a_schedule_passes_over_the_runs_that_find_no_room() {
    let mut bed = Bed::new();
    let cron = SetCron {
        name: "c",
        queue: "q",
        data: b"\xa1x",
        schedule: None,
        repeat_every_ms: Some(1000),
        timezone: None,
        priority: 0,
        runs_max: None,
        job: None,
        plan: Plan::every(1000, None).unwrap(),
        rules: CronRules::default(),
        moved: None,
    };
    bed.run(1, &Command::SetCron(&cron));
    bed.run(1, &Command::StartCrons);
    bed.pass(1000);
    bed.journal.full.0 = true;
    (0..3).for_each(|_| drop(bed.pass(1000)));
    assert_eq!(bed.known().count(), 1);
    bed.journal.full.0 = false;
    bed.pass(1000);
    assert_eq!((bed.known().count(), bed.shard.cron("c").unwrap().executions), (2, 2));
}

/// Guards against what a disk gives back: a record is judged by its own length.
#[test]
fn a_record_that_is_shorter_than_it_was_said_to_be_is_passed_over() {
    let mut bed = Bed::new();
    let child = JobId(7 << 80);
    let unreported = |value| {
        let end = End::Completed;
        let left = KeptUnreported { child, queue: "q", custom_id: None, end, value };
        let record = Record::Kept(Kept::Unreported(left));
        let mut bytes = vec![0; record.encoded_len()];
        record.encode(&mut bytes);
        bytes
    };
    bed.shard.replay(64, &unreported(&[1; 500])).unwrap();
    let written = bed.journal.records.len();
    bed.shard.keep(64, &unreported(b""), &mut bed.journal).unwrap();
    assert_eq!(bed.journal.records.len(), written);
    bed.shard.keep(64, &unreported(&[1; 500]), &mut bed.journal).unwrap();
    assert_eq!(bed.journal.records.len(), written + 1);
}
