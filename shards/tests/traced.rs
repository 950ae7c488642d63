//! Steps of sampled jobs. The fear: a step that comes of one part of a job's life and not of another, an attempt that comes
//! twice, and a wait that begins at another time than it did.

use crate::support::{Bed, START_MS};
use corq_shards::command::{Command, Fail};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::job::change::Change;
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::job::trace::{NewTrace, TraceParent};
use corq_shards::traced::{ERROR_BYTES_MAX, Sampling, Settled, Traced, What};

fn tracing() -> Bed {
    let mut bed = Bed::new();
    bed.shard.trace(Some(Sampling::of(1.0)));
    bed
}

#[allow(clippy::unnecessary_box_returns, reason = "a push takes it boxed")]
fn trace(flags: u8) -> Box<NewTrace<'static>> {
    let parent = TraceParent { trace_id: [1; 16], span_id: [2; 8], flags };
    Box::new(NewTrace { parent, state: "a=1" })
}

/// A step in words, its times counted from the start.
fn shown(step: &Traced) -> String {
    let since = |at_ms: u64| at_ms - START_MS;
    match &step.what {
        What::Enqueued { payload_bytes } => format!("enqueued {payload_bytes}"),
        What::Pulled { since_ms } => {
            format!("pulled {} since {} at {}", step.attempt, since(*since_ms), since(step.at_ms))
        }
        What::Settled { started_at_ms, how } => {
            let how = match how {
                Settled::Completed => "completed".to_owned(),
                Settled::Failed { cause, error, terminal } => {
                    let last = if *terminal { " for good" } else { "" };
                    format!("{} {error}{last}", cause.name())
                }
                Settled::GivenBack => "given back".to_owned(),
                Settled::Removed => "removed".to_owned(),
            };
            let began =
                started_at_ms.map(|at_ms| format!(" {} since {}", step.attempt, since(at_ms)));
            format!("{how}{} at {}", began.unwrap_or_default(), since(step.at_ms))
        }
    }
}

/// The steps of the last call.
fn told(bed: &Bed) -> Vec<String> {
    bed.effects.traced.iter().map(shown).collect()
}

#[test]
fn a_job_that_is_done_tells_how_long_it_waited_and_ran() {
    let mut bed = tracing();
    bed.pass(5);
    let job =
        NewJob { data: b"1", custom_id: Some("own"), trace: Some(trace(1)), ..NewJob::default() };
    let id = bed.push("q", job);
    let [step] = &bed.effects.traced[..] else { panic!("{:?}", bed.effects.traced) };
    assert_eq!((&*step.queue, step.id, step.custom_id.as_deref()), ("q", id, Some("own")));
    assert_eq!(step.trace.as_ref().map(|trace| Box::new(trace.given())), Some(trace(1)));
    assert_eq!(told(&bed), ["enqueued 1"]);
    bed.pass(10);
    let (_, token) = bed.pull(1, "q", 1)[0];
    assert_eq!(told(&bed), ["pulled 1 since 5 at 15"]);
    bed.pass(20);
    bed.ack(id, Some(token)).unwrap();
    assert_eq!(told(&bed), ["completed 1 since 15 at 35"]);
}

#[test]
fn nothing_is_told_of_jobs_that_are_not_sampled_nor_while_none_is() {
    let mut bed = tracing();
    let id = bed.push("q", NewJob { trace: Some(trace(0)), ..NewJob::default() });
    assert!(bed.effects.traced.is_empty());
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.ack(id, Some(token)).unwrap();
    assert!(bed.effects.traced.is_empty());
    bed.shard.trace(None);
    bed.push("q", NewJob { trace: Some(trace(1)), ..NewJob::default() });
    bed.pull(1, "q", 1);
    assert!(bed.effects.traced.is_empty());
}

#[test]
fn deliveries_of_one_millisecond_are_told_apart() {
    let mut bed = tracing();
    let job = NewJob { max_attempts: 3, backoff_ms: 0, ..NewJob::default() };
    let id = bed.push("q", job);
    let mut again = Vec::new();
    for client in 1..=2 {
        bed.pull(client, "q", 1);
        again.push(bed.effects.traced[0].again);
        bed.run(client, &Command::Disconnect);
        again.push(bed.effects.traced[0].again);
    }
    let (_, token) = bed.pull(3, "q", 1)[0];
    bed.fail(id, Some(token)).unwrap();
    again.push(bed.effects.traced[0].again);
    let (_, token) = bed.pull(3, "q", 1)[0];
    again.push(bed.effects.traced[0].again);
    bed.pass(1);
    bed.ack(id, Some(token)).unwrap();
    again.push(bed.effects.traced[0].again);
    assert_eq!(again, [0, 0, 1, 1, 2, 3, 3]);
    assert_eq!(bed.shard.traced_back(), 0);
}

#[test]
fn each_attempt_is_told_once_however_it_ends() {
    let mut bed = tracing();
    let job = NewJob { max_attempts: 3, backoff_ms: 50, ..NewJob::default() };
    let id = bed.push("q", job);
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.fail(id, Some(token)).unwrap();
    assert_eq!(told(&bed), ["max_attempts_exceeded boom 1 since 0 at 0"]);
    bed.pass(1000);
    let (_, token) = bed.pull(1, "q", 1)[0];
    let pulled = told(&bed);
    assert!(pulled[0].starts_with("pulled 2 since ") && pulled[0] != "pulled 2 since 0 at 1000");
    // The last attempt fails for good, with an error whose text is cut.
    let long = "\u{e4}".repeat(ERROR_BYTES_MAX);
    let fail =
        Fail { job: id, token: Some(token), error: &long, unrecoverable: true, ..Fail::default() };
    bed.run(1, &Command::Fail(fail));
    let [step] = &bed.effects.traced[..] else { panic!("{:?}", bed.effects.traced) };
    let What::Settled { how: Settled::Failed { cause, error, terminal }, .. } = &step.what else {
        panic!("{step:?}")
    };
    assert_eq!((*cause, *terminal, step.attempt), (Cause::Explicit, true, 2));
    assert_eq!(error.len(), ERROR_BYTES_MAX);
}

#[test]
fn a_job_that_goes_back_waits_since_then_and_not_since_it_was_due() {
    let mut bed = tracing();
    let id = bed.push("q", NewJob { max_attempts: 9, ..NewJob::default() });
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.pass(30);
    let token = Some(token);
    bed.run(1, &Command::Change { job: id, change: Change::ToWait { token } });
    assert_eq!(told(&bed), ["given back 1 since 0 at 30"]);
    assert_eq!(bed.shard.traced_back(), 1);
    bed.pass(10);
    bed.pull(1, "q", 1);
    assert_eq!(told(&bed), ["pulled 1 since 30 at 40"]);
    assert_eq!(bed.shard.traced_back(), 0);
    // The connection of the worker goes.
    bed.pass(10);
    bed.run(1, &Command::Disconnect);
    assert_eq!(told(&bed), ["given back 1 since 40 at 50"]);
}

#[test]
fn a_run_of_a_repeated_job_is_a_job_of_its_own_in_the_same_trace() {
    let mut bed = tracing();
    let repeat = Repeat { every_ms: 100, limit: None, count: 0 };
    let job = NewJob { repeat: Some(repeat), trace: Some(trace(1)), ..NewJob::default() };
    let id = bed.push("q", job);
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.ack(id, Some(token)).unwrap();
    assert_eq!(told(&bed), ["completed 1 since 0 at 0", "enqueued 0"]);
    let [end, next] = &bed.effects.traced[..] else { panic!("two steps") };
    assert!(end.id != next.id && end.trace == next.trace);
}
