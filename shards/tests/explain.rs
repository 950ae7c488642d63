//! Why a job does not run. The fears: a reason that is missing, one that is not so, and a question that costs as much as its
//! queue is long.

use crate::support::{Bed, START_MS, locked};
use corq_shards::command::{Beat, Command, GroupLimit, GroupPull, Limit, Only, PerSpan, Pull};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::dependency::Unmet;
use corq_shards::explain::{Before, Block, Delay, Explanation, NAMED_MAX, Reason};
use corq_shards::group::GroupRate;
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::{NewJob, Repeat};

fn explain(bed: &Bed, job: JobId) -> Explanation<'_> {
    bed.shard.explain(bed.now_ms, bed.shard.find(job).unwrap())
}

fn set(bed: &mut Bed, limit: Limit) {
    bed.run(1, &Command::Limit { queue: "q", limit });
}

fn set_group(bed: &mut Bed, limit: GroupLimit) {
    bed.run(1, &Command::LimitGroup { queue: "q", group: "g", limit });
}

fn grouped(bed: &mut Bed) -> JobId {
    bed.push("q", NewJob { group_id: Some("g"), ..NewJob::default() })
}

/// A pull that finds nothing, so that the queue has a worker.
fn pull_in_vain(bed: &mut Bed) {
    let nobody = GroupPull { active_max: None, rate: None, only: Only::Group("nobody") };
    bed.run(1, &Command::Pull(Pull { group: Some(&nobody), ..locked("q") }));
}

/// A pull that waits, so that the queue has a worker.
fn attend(bed: &mut Bed) {
    let wait = Pull { timeout_ms: 600_000, ..locked("q") };
    bed.run(9, &Command::Pull(wait));
}

#[test]
fn a_job_that_nothing_stops_is_the_next_and_one_without_a_worker_says_so() {
    let mut bed = Bed::new();
    let job = bed.data("q", b"1");
    assert_eq!(explain(&bed, job).reasons, [Reason::NoWorker]);
    assert_eq!(explain(&bed, job).starts_at_ms, None);
    pull_in_vain(&mut bed);
    let told = explain(&bed, job);
    assert_eq!((told.state, told.reasons), (State::Waiting, vec![Reason::Next]));
    assert_eq!(told.starts_at_ms, Some(START_MS));
    bed.pass(89_999);
    assert_eq!(explain(&bed, job).reasons, [Reason::Next]);
    bed.pass(1);
    assert_eq!(explain(&bed, job).reasons, [Reason::NoWorker]);
    // A job that ended lately had a worker, however long ago that one has pulled.
    let (done, token) = bed.pull(1, "q", 1)[0];
    for _ in 0..6 {
        bed.pass(20_000);
        bed.run(1, &Command::Heartbeat(Beat { job: done, token: Some(token), ttl_ms: None }));
    }
    bed.ack(done, Some(token)).unwrap();
    let job = bed.data("q", b"2");
    assert_eq!(explain(&bed, job).reasons, [Reason::Next]);
    bed.pass(90_000);
    assert_eq!(explain(&bed, job).reasons, [Reason::NoWorker]);
}

#[test]
fn a_paused_queue_and_a_paused_or_held_group_are_reasons() {
    let mut bed = Bed::new();
    let job = grouped(&mut bed);
    pull_in_vain(&mut bed);
    bed.run(1, &Command::Pause { queue: "q", paused: true });
    assert_eq!(explain(&bed, job).reasons, [Reason::QueuePaused]);
    assert_eq!(explain(&bed, job).starts_at_ms, None);
    bed.run(1, &Command::Pause { queue: "q", paused: false });
    set_group(&mut bed, GroupLimit::Paused(true));
    let group = |block: Block, active: u64| Reason::Group { name: "g", block, active };
    assert_eq!(explain(&bed, job).reasons, [group(Block::Paused, 0)]);
    set_group(&mut bed, GroupLimit::Paused(false));
    set_group(&mut bed, GroupLimit::Hold(5000));
    let until_ms = bed.now_ms + 5000;
    assert_eq!(explain(&bed, job).reasons, [group(Block::Held { until_ms }, 0)]);
    assert_eq!(explain(&bed, job).starts_at_ms, Some(until_ms));
    bed.pass(5000);
    assert_eq!(explain(&bed, job).reasons, [Reason::Next]);
}

#[test]
fn the_limits_of_a_group_are_reasons_whether_they_are_set_or_brought_by_pulls() {
    let mut bed = Bed::new();
    grouped(&mut bed);
    let job = grouped(&mut bed);
    let rate = GroupRate { jobs: 1, span_ms: 7000 };
    set_group(&mut bed, GroupLimit::Rate(Some(rate)));
    set_group(&mut bed, GroupLimit::Active(Some(1)));
    bed.pull(1, "q", 1);
    let until_ms = bed.now_ms + 7000;
    let active = Block::Active { max: 1, of_pulls: false };
    let used = Block::Rate { rate, until_ms, of_pulls: false };
    let of = |block: Block| Reason::Group { name: "g", block, active: 1 };
    assert_eq!(explain(&bed, job).reasons, [of(active), of(used)]);
    set_group(&mut bed, GroupLimit::Rate(None));
    set_group(&mut bed, GroupLimit::Active(None));
    assert_eq!(explain(&bed, job).reasons, [Reason::Next]);
    let brought = GroupPull { active_max: Some(1), rate: None, only: Only::Any };
    let pull = Pull { group: Some(&brought), timeout_ms: 60_000, ..locked("q") };
    bed.run(3, &Command::Pull(pull));
    assert_eq!(explain(&bed, job).reasons, [of(Block::Active { max: 1, of_pulls: true })]);
}

#[test]
fn a_rate_says_when_the_next_job_may_leave() {
    let mut bed = Bed::new();
    set(&mut bed, Limit::Rate(Some(PerSpan { jobs: 2, span_ms: 10_000, until_ms: 0 })));
    let jobs: Vec<JobId> = (0..4).map(|_| bed.data("q", b"1")).collect();
    assert_eq!(bed.pull(1, "q", 9).len(), 2);
    let next_ms = bed.now_ms + 5000;
    let rate = Reason::Rate { jobs: 2, span_ms: 10_000, next_ms };
    let told = explain(&bed, jobs[2]);
    assert_eq!((told.reasons, told.starts_at_ms), (vec![rate.clone()], Some(next_ms)));
    let before = Before { count: 1, exact: true, about: 1, groups: None };
    assert_eq!(explain(&bed, jobs[3]).reasons, [rate, Reason::JobsBefore(before)]);
    bed.pass(5000);
    assert_eq!(explain(&bed, jobs[2]).reasons, [Reason::Next]);
}

#[test]
fn a_full_queue_names_the_jobs_that_fill_it() {
    let mut bed = Bed::new();
    set(&mut bed, Limit::Active(Some(2)));
    let jobs: Vec<JobId> = (0..3).map(|_| bed.data("q", b"1")).collect();
    bed.data("a", b"1");
    bed.pull(1, "a", 1);
    bed.pull(1, "q", 9);
    let full = Reason::Concurrency { max: 2, active: 2, jobs: jobs[..2].to_vec() };
    assert_eq!(explain(&bed, jobs[2]).reasons, [full]);
    pull_in_vain(&mut bed);
    set(&mut bed, Limit::Active(Some(3)));
    assert_eq!(explain(&bed, jobs[2]).reasons, [Reason::Next]);
}

fn delayed(until_ms: u64, why: Delay<'_>) -> Reason<'_> {
    Reason::Delayed { until_ms, why }
}

#[test]
fn a_delay_says_why_it_is_and_when_it_ends() {
    let mut bed = Bed::new();
    let asked = bed.push("q", NewJob { delay_ms: 4000, ..NewJob::default() });
    pull_in_vain(&mut bed);
    let told = explain(&bed, asked);
    assert_eq!(told.reasons, [delayed(START_MS + 4000, Delay::Asked)]);
    assert_eq!((told.state, told.starts_at_ms), (State::Delayed, Some(START_MS + 4000)));
    let tried = bed.push("q", NewJob { backoff_ms: 1000, ..NewJob::default() });
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.fail(tried, Some(token)).unwrap();
    let run_at_ms = bed.shard.view(bed.shard.find(tried).unwrap()).job.run_at_ms;
    assert_eq!(explain(&bed, tried).reasons, [delayed(run_at_ms, Delay::Backoff { attempt: 1 })]);
    // Put off for longer than any backoff of it.
    bed.run(
        1,
        &Command::Change { job: tried, change: Change::Delay { delay_ms: 90_000, token: None } },
    );
    let until_ms = bed.now_ms + 90_000;
    assert_eq!(explain(&bed, tried).reasons, [delayed(until_ms, Delay::Asked)]);
    let repeat = Some(Repeat { every_ms: 60_000, limit: None, count: 0 });
    let run = bed.push("q", NewJob { repeat, ..NewJob::default() });
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.ack(run, Some(token)).unwrap();
    let known: Vec<JobId> = bed.known().collect();
    let next = known.into_iter().find(|&job| {
        explain(&bed, job).reasons.iter().any(|reason| {
            matches!(reason, Reason::Delayed { why: Delay::Repeat { every_ms: 60_000 }, .. })
        })
    });
    assert!(next.is_some_and(|next| next != run));
}

#[test]
fn a_dependent_names_what_it_waits_for() {
    let mut bed = Bed::new();
    let parts: Vec<JobId> = (0..NAMED_MAX + 5).map(|_| bed.data("part", b"1")).collect();
    let mut unmet = Vec::new();
    for &part in &parts {
        Unmet::push(&mut unmet, part, "");
    }
    let whole = bed.push("q", NewJob { unmet: Unmet::new(&unmet), ..NewJob::default() });
    bed.carry_notices();
    pull_in_vain(&mut bed);
    let told = explain(&bed, whole);
    let [Reason::Dependencies { count, jobs }] = &told.reasons[..] else { panic!("{told:?}") };
    assert_eq!((*count, jobs.len(), told.starts_at_ms), (parts.len(), NAMED_MAX, None));
    assert!(jobs.iter().all(|(job, child)| parts.contains(job) && !child));
}

#[test]
fn jobs_before_one_are_counted_up_to_a_limit_and_estimated_beyond_it() {
    let mut bed = Bed::new();
    let jobs: Vec<JobId> = (0..20_000).map(|_| bed.data("q", b"1")).collect();
    pull_in_vain(&mut bed);
    let before = |bed: &Bed, job: JobId| match &explain(bed, job).reasons[..] {
        [Reason::JobsBefore(before)] => *before,
        other => panic!("{other:?}"),
    };
    let exact = |count: u64| Before { count, exact: true, about: count, groups: None };
    assert_eq!(before(&bed, jobs[7]), exact(7));
    assert_eq!(before(&bed, jobs[19_990]), exact(19_990), "few are behind it");
    let middle = before(&bed, jobs[10_000]);
    assert!(!middle.exact && middle.count >= 1000 && middle.about == 10_000, "{middle:?}");
    let steps = bed.shard.steps();
    let urgent = bed.push("q", NewJob { priority: 5, ..NewJob::default() });
    assert_eq!(explain(&bed, urgent).reasons, [Reason::Next]);
    assert_eq!(before(&bed, jobs[0]), exact(1));
    assert!(bed.shard.steps() - steps < 10, "asking changes nothing");
    let group = grouped(&mut bed);
    let second = grouped(&mut bed);
    assert_eq!(before(&bed, second).groups, Some(1));
    assert_eq!((before(&bed, group).count, before(&bed, group).about), (0, 20_001));
    assert_eq!((before(&bed, second).count, before(&bed, second).about), (1, 20_002));
}

#[test]
fn a_start_is_estimated_from_what_left_the_queue_lately() {
    let mut bed = Bed::new();
    let jobs: Vec<JobId> = (0..80).map(|_| bed.data("q", b"1")).collect();
    attend(&mut bed);
    for _ in 0..40 {
        bed.pass(1000);
        if let Some(&(job, token)) = bed.pull(1, "q", 1).first() {
            bed.ack(job, Some(token)).unwrap();
        }
    }
    let told = explain(&bed, jobs[60]);
    let [Reason::JobsBefore(before)] = &told.reasons[..] else { panic!("{told:?}") };
    let (rate, starts_at_ms) = (told.per_second.unwrap(), told.starts_at_ms.unwrap());
    assert!((0.4..=1.5).contains(&rate), "{rate}");
    let wait_ms = before.about as f64 * 1000.0 / rate;
    assert!((starts_at_ms - bed.now_ms).abs_diff(wait_ms as u64) <= 1);
}

#[test]
fn an_active_job_says_who_has_it_and_until_when() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { timeout_ms: Some(90_000), ..NewJob::default() });
    let pull = Pull { owner: Some("worker 7"), ..locked("q") };
    bed.run(1, &Command::Pull(pull));
    let leased = |owner: Option<&'static str>| Reason::Leased {
        owner,
        locked: true,
        since_ms: START_MS,
        until_ms: Some(START_MS + 30_000),
        timeout_at_ms: Some(START_MS + 90_000),
    };
    assert_eq!(explain(&bed, job).reasons, [leased(Some("worker 7"))]);
    assert_eq!(explain(&bed, job).state, State::Active);
    // A worker that waited for its job is known as well.
    let wait = Pull { owner: Some("worker 8"), timeout_ms: 5000, ..locked("q") };
    bed.run(2, &Command::Pull(wait));
    let other = bed.data("q", b"1");
    let told = explain(&bed, other);
    assert!(matches!(told.reasons[..], [Reason::Leased { owner: Some("worker 8"), .. }]));
}

#[test]
fn ends_say_when_and_why() {
    let mut bed = Bed::new();
    let done = bed.data("q", b"1");
    let dead = bed.push("q", NewJob { max_attempts: 1, ..NewJob::default() });
    for (job, token) in bed.pull(1, "q", 2) {
        bed.pass(10);
        if job == done { bed.ack(job, Some(token)) } else { bed.fail(job, Some(token)) }.unwrap();
    }
    assert_eq!(explain(&bed, done).reasons, [Reason::Completed { at_ms: START_MS + 10 }]);
    let failed = Reason::Failed {
        at_ms: START_MS + 20,
        cause: Cause::Attempts,
        retries_at_ms: None,
        expires_at_ms: None,
    };
    assert_eq!(explain(&bed, dead).reasons, [failed]);
}

#[test]
fn a_life_that_ends_before_the_job_starts_leaves_no_start() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { ttl_ms: Some(9000), ..NewJob::default() });
    pull_in_vain(&mut bed);
    let expires = Reason::Expires { at_ms: START_MS + 9000 };
    let told = explain(&bed, job);
    assert_eq!(told.reasons, [Reason::Next, expires.clone()]);
    assert_eq!(told.starts_at_ms, Some(START_MS));
    let ttl_ms = Some(9000);
    let late = bed.push("q", NewJob { ttl_ms, delay_ms: 10_000, ..NewJob::default() });
    let told = explain(&bed, late);
    assert!(told.reasons.contains(&expires));
    assert_eq!(told.starts_at_ms, None);
}

#[test]
fn a_job_of_an_obliterated_queue_is_on_its_way_out() {
    let mut bed = Bed::new();
    let jobs: Vec<JobId> = (0..2000).map(|_| bed.data("q", b"1")).collect();
    bed.run(1, &Command::Obliterate { queue: "q" });
    let left = jobs.iter().rev().find(|&&job| bed.shard.find(job).is_some());
    let told = explain(&bed, *left.unwrap());
    assert_eq!((told.reasons[0].clone(), told.starts_at_ms), (Reason::Obliterated, None));
}
