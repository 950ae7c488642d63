//! The last day of a shard and its busiest queues, as real commands make it.

use crate::support::Bed;
use corq_shards::command::{Ack, Command};
use corq_shards::job::new_job::NewJob;
use corq_shards::stats::history::record::Sums;
use corq_shards::stats::history::share::{Share, each_point};
use corq_shards::stats::history::span::{STEP_MS, Span};

/// The points of a share.
fn points(share: &Share, span: Span) -> Vec<Option<Sums>> {
    let mut points = Vec::new();
    each_point(&[share], span, |sums| points.push(sums.cloned()));
    points
}

/// The last points of a queue, the one under way included.
fn of_queue(bed: &mut Bed, queue: &str, count: u32) -> Option<Vec<Option<Sums>>> {
    let span = Span::until(bed.now_ms, STEP_MS, count);
    let (share, _) = bed.shard.history_of(queue, bed.now_ms, span)?;
    Some(points(&share, span))
}

/// Time goes on to the next step.
fn next_step(bed: &mut Bed) {
    bed.pass(STEP_MS - bed.now_ms % STEP_MS);
    while bed.shard.end_history_step(bed.now_ms, usize::MAX) <= bed.now_ms {}
}

fn numbers(sums: Option<&Sums>) -> (u64, u64, u64, Option<u64>) {
    let sums = sums.unwrap();
    (sums.pushed, sums.completed, sums.failed, sums.waiting)
}

/// Guards what is counted together: jobs of a batch that were pulled or completed at one time, but not equally long.
#[test]
fn each_job_of_a_batch_counts_for_its_own_queue_and_time() {
    let mut bed = Bed::new();
    for queue in ["a", "b", "a"] {
        bed.data(queue, b"x");
        bed.pass(5_000);
    }
    bed.data("a", b"x");
    let mut held = bed.pull(1, "a", 10);
    bed.pass(20_000);
    held.insert(1, bed.pull(1, "b", 1)[0]);
    bed.pass(500);
    let ack = |&(job, token)| Ack { job, token: Some(token), result: &[], remove: false };
    let acks: Vec<Ack<'_>> = held.iter().map(ack).collect();
    bed.ask(1, &Command::Ack { acks: &acks });
    let mut counted = |queue| {
        let queue = bed.shard.queue(queue).unwrap();
        let (waits, runs) = (queue.waits.as_deref().unwrap(), queue.runs.as_deref().unwrap());
        (waits.counts[..4].to_vec(), waits.sum_ms, runs.counts[..4].to_vec(), runs.sum_ms)
    };
    assert_eq!(counted("a"), (vec![1, 0, 1, 1], 20_000, vec![0, 0, 0, 3], 61_500));
    assert_eq!(counted("b"), (vec![0, 0, 0, 1], 30_000, vec![0, 1, 0, 0], 500));
    let timings = bed.shard.timings();
    assert_eq!((timings.waiting.count(), timings.processing.count()), (4, 4));
    assert!((timings.waiting.mean_ms() - 12_500.0).abs() < 1.0);
    assert!((timings.processing.mean_ms() - 15_500.0).abs() < 1.0);
}

#[test]
fn jobs_are_counted_in_the_step_in_which_they_come_and_end() {
    let mut bed = Bed::new();
    next_step(&mut bed);
    for _ in 0..3 {
        bed.data("a", b"x");
    }
    bed.data("b", b"x");
    next_step(&mut bed);
    bed.now_ms += 50;
    let pulled = bed.pull(1, "a", 2);
    bed.now_ms += 300;
    bed.ack(pulled[0].0, Some(pulled[0].1)).unwrap();
    bed.fail(pulled[1].0, Some(pulled[1].1)).unwrap();
    let steps = of_queue(&mut bed, "a", 2).unwrap();
    assert_eq!(numbers(steps[0].as_ref()), (3, 0, 0, Some(3)));
    let (pushed, completed, failed, _) = numbers(steps[1].as_ref());
    assert_eq!((pushed, completed, failed), (0, 1, 1), "the step under way is there");
    next_step(&mut bed);
    let steps = of_queue(&mut bed, "a", 3).unwrap();
    let ended = steps[1].as_ref().unwrap();
    assert_eq!((ended.completed, ended.failed), (1, 1));
    assert_eq!((ended.waits.count(), ended.runs.count()), (2, 1));
    let near = |ms: Option<u64>, expected: u64| ms.unwrap().abs_diff(expected) <= expected / 4;
    assert!(near(ended.waits.percentile_ms(99), STEP_MS + 50), "{:?}", ended.waits);
    assert!(near(ended.runs.percentile_ms(50), 300), "{:?}", ended.runs);
    let span = Span::until(bed.now_ms, STEP_MS, 3);
    let (share, _) = bed.shard.history_of_shard(bed.now_ms, span);
    let steps = points(&share, span);
    assert_eq!(numbers(steps[0].as_ref()), (4, 0, 0, Some(4)), "the shard is all of its queues");
    assert_eq!(steps[1].as_ref().unwrap().waits.count(), 2);
    assert_eq!(of_queue(&mut bed, "none", 1), None);
}

#[test]
fn what_was_before_the_start_is_not_known_and_a_start_knows_what_waits() {
    let mut bed = Bed::new();
    for _ in 0..5 {
        bed.data("a", b"x");
    }
    next_step(&mut bed);
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    let steps = of_queue(&mut bed, "a", 2).unwrap();
    assert_eq!(steps[0], None);
    assert_eq!(numbers(steps[1].as_ref()), (0, 0, 0, Some(5)));
}

#[test]
fn a_queue_that_is_obliterated_takes_its_history_along() {
    let mut bed = Bed::new();
    next_step(&mut bed);
    bed.data("a", b"x");
    next_step(&mut bed);
    assert_eq!(bed.shard.history().len(), 1);
    bed.run(1, &Command::Obliterate { queue: "a" });
    for _ in 0..5 {
        bed.tick();
    }
    assert_eq!((bed.shard.history().len(), of_queue(&mut bed, "a", 1)), (0, None));
    bed.data("a", b"y");
    next_step(&mut bed);
    let steps = of_queue(&mut bed, "a", 3).unwrap();
    assert_eq!((steps[0].as_ref(), numbers(steps[1].as_ref()).0), (None, 1));
}

/// The fear: a queue that is empty whenever the idle ones are swept never has a history.
#[test]
fn a_queue_whose_jobs_leave_nothing_behind_keeps_its_history() {
    let mut bed = Bed::new();
    next_step(&mut bed);
    let job = NewJob { remove_on_complete: true, ..NewJob::default() };
    bed.push("busy", job);
    let (id, token) = bed.pull(1, "busy", 1)[0];
    bed.ack(id, Some(token)).unwrap();
    for n in 0..3000 {
        bed.data(&format!("once-{n}"), b"x");
        bed.pass(1);
    }
    let steps = of_queue(&mut bed, "busy", 20).unwrap();
    let completed: u64 = steps.iter().flatten().map(|sums| sums.completed).sum();
    assert_eq!(completed, 1);
    assert_eq!(bed.shard.history().len(), corq_shards::stats::history::QUEUES_MAX);
}

#[test]
fn the_busiest_queues_come_first() {
    let mut bed = Bed::new();
    next_step(&mut bed);
    for (queue, jobs) in [("a", 2), ("b", 9), ("c", 5)] {
        (0..jobs).for_each(|_| _ = bed.data(queue, b"x"));
    }
    let busiest = bed.shard.busiest(bed.now_ms, 2);
    let names: Vec<&str> = busiest.iter().map(|busy| &*busy.queue.name).collect();
    assert_eq!(names, ["b", "c"]);
    assert!(busiest[0].pace.pushed > busiest[1].pace.pushed);
}
