//! Edges at which a small change of the engine once went unseen: the last millisecond of a lock, the place
//! of a job that comes back, what a failure leaves of a key. The fear: a wrong that no whole life shows.
#![allow(clippy::unwrap_used)]

mod support;

use corq_shards::change::Change;
use corq_shards::command::{Beat, Clean, Command, Limit, PerSpan, Pull};
use corq_shards::dependency::Unmet;
use corq_shards::effect::{Refusal, Reply};
use corq_shards::extras::{Dedup, Extras};
use corq_shards::id::JobId;
use corq_shards::job::State;
use corq_shards::new_job::NewJob;
use support::{Bed, locked, outcome};

fn pull_with(bed: &mut Bed, pull: Pull<'_>) -> Vec<JobId> {
    let Some(Reply::Pulled(range)) = bed.ask(1, &Command::Pull(pull)) else { panic!("no answer") };
    bed.effects.deliveries[range].iter().map(|one| bed.id(one)).collect()
}

fn order(bed: &mut Bed) -> Vec<JobId> {
    bed.pull(1, "q", 10).into_iter().map(|(id, _)| id).collect()
}

fn stalls_and_attempts(bed: &Bed, id: JobId) -> (u8, u16) {
    let job = bed.shard.view(bed.shard.find(id).unwrap()).job;
    (job.stalls, job.attempts)
}

/// A job that has stalled as often as it may.
fn bury_by_stalls(bed: &mut Bed, job: NewJob<'_>) -> JobId {
    let id = bed.push("q", NewJob { max_attempts: 10, ..job });
    for _ in 0..3 {
        assert_eq!(bed.pull(1, "q", 1)[0].0, id);
        bed.pass(30_000);
    }
    assert_eq!(bed.state(id), Some(State::Failed));
    id
}

#[test]
fn a_job_that_is_tried_again_at_once_comes_by_the_time_of_its_failure() {
    let mut bed = Bed::new();
    let first = bed.push("q", NewJob { backoff_ms: 0, ..NewJob::default() });
    bed.now_ms += 10;
    let second = bed.data("q", b"\x02");
    bed.now_ms += 10;
    let (id, token) = bed.pull(1, "q", 1)[0];
    assert_eq!(id, first);
    bed.fail(first, Some(token)).unwrap();
    bed.now_ms += 10;
    let third = bed.data("q", b"\x03");
    assert_eq!(order(&mut bed), [second, first, third]);
}

#[test]
fn a_key_is_free_after_the_stall_that_buries_and_held_through_those_before() {
    let mut bed = Bed::new();
    let keyed = || NewJob { unique_key: Some("k"), max_attempts: 10, ..NewJob::default() };
    let first = bed.push("q", keyed());
    for _ in 0..3 {
        assert_eq!(bed.push("q", keyed()), first);
        bed.pull(1, "q", 1);
        bed.pass(30_000);
    }
    assert_eq!(bed.state(first), Some(State::Failed));
    let second = bed.push("q", keyed());
    assert_ne!(second, first);
    assert_eq!(bed.shard.holder_of(bed.now_ms, "q", "k"), bed.shard.find(second));
}

#[test]
fn jobs_that_are_pulled_without_an_owner_are_charged_to_the_rate() {
    let mut bed = Bed::new();
    let rate = PerSpan { jobs: 2, span_ms: 1000, until_ms: 0 };
    bed.ask(1, &Command::Limit { queue: "q", limit: Limit::Rate(Some(rate)) });
    for _ in 0..5 {
        bed.data("q", b"\x01");
    }
    let unowned = |count| Pull { locked: false, count, ..locked("q") };
    assert_eq!(pull_with(&mut bed, unowned(1)).len(), 1);
    assert_eq!(pull_with(&mut bed, unowned(9)).len(), 1);
    assert_eq!(pull_with(&mut bed, unowned(1)).len(), 0);
    bed.pass(500);
    assert_eq!(pull_with(&mut bed, unowned(9)).len(), 1);
}

#[test]
fn the_last_that_came_goes_first_whatever_happened_to_it_meanwhile() {
    let mut bed = Bed::new();
    let lifo = || NewJob { lifo: true, backoff_ms: 0, ..NewJob::default() };
    let failed = bed.push("q", lifo());
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.fail(failed, Some(token)).unwrap();
    let stalled = bed.push("q", lifo());
    assert_eq!(bed.pull(1, "q", 1)[0].0, stalled);
    bed.pass(30_000);
    let released = bed.push("q", lifo());
    assert_eq!(bed.pull(7, "q", 1)[0].0, released);
    bed.run(7, &Command::Disconnect);
    let delayed = bed.push("q", NewJob { delay_ms: 10, ..lifo() });
    bed.pass(10);
    let dear = bed.push("q", lifo());
    let change = Change::Prioritize { priority: 0, lifo: None };
    bed.run(1, &Command::Change { job: dear, change });
    let usual = bed.data("q", b"\x01");
    let expected = [dear, delayed, released, stalled, failed, usual];
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    bed.pass(0);
    assert_eq!(order(&mut bed), expected);
}

#[test]
fn whoever_says_so_turns_the_order_of_a_job_and_back() {
    let mut bed = Bed::new();
    let first = bed.data("q", b"\x01");
    let second = bed.data("q", b"\x02");
    let third = bed.data("q", b"\x03");
    let lifo = |lifo| Change::Prioritize { priority: 0, lifo: Some(lifo) };
    for job in [third, second] {
        bed.run(1, &Command::Change { job, change: lifo(true) });
    }
    bed.run(1, &Command::Change { job: second, change: lifo(false) });
    assert_eq!(order(&mut bed), [third, first, second]);
}

#[test]
fn a_dependency_that_is_removed_by_whatever_way_is_not_told_as_completed() {
    type Remove = fn(&mut Bed, JobId);
    let removals: [(&str, Remove); 6] = [
        ("cancel", |bed, job| {
            bed.run(1, &Command::Change { job, change: Change::Cancel });
        }),
        ("drain", |bed, _| {
            bed.run(1, &Command::Drain { queue: "part" });
        }),
        ("obliterate", |bed, _| {
            bed.run(1, &Command::Obliterate { queue: "part" });
        }),
        ("clean", |bed, _| {
            let states = &[State::Waiting];
            let clean = Clean { queue: "part", grace_ms: 0, states, limit: 9 };
            bed.run(1, &Command::Clean(clean));
        }),
        ("purge", |bed, job| {
            let (_, token) = bed.pull(1, "part", 1)[0];
            bed.fail(job, Some(token)).unwrap();
            bed.run(1, &Command::PurgeFailed { queue: "part" });
        }),
        ("bin", |bed, job| {
            let (_, token) = bed.pull(1, "part", 1)[0];
            bed.fail(job, Some(token)).unwrap();
            bed.run(1, &Command::Change { job, change: Change::Bin { queue: "part" } });
        }),
    ];
    for (name, remove) in removals {
        let mut bed = Bed::new();
        let part = bed.push("part", NewJob { max_attempts: 1, ..NewJob::default() });
        let mut on = Vec::new();
        Unmet::push(&mut on, part, "");
        let waits = NewJob { unmet: Unmet::new(&on), ..NewJob::default() };
        let whole = bed.push("whole", waits.clone());
        bed.carry_notices();
        remove(&mut bed, part);
        bed.carry_notices();
        bed.carry_notices();
        assert_eq!(bed.state(part), None, "{name}");
        assert_eq!(bed.state(whole), Some(State::Failed), "{name}");
        // One that comes when it is gone learns the same.
        let late = bed.push("whole", waits);
        bed.carry_notices();
        assert_eq!(bed.state(late), Some(State::Failed), "{name}, asked later");
    }
}

#[test]
fn a_lock_is_over_in_the_very_millisecond_in_which_it_ends() {
    let mut bed = Bed::new();
    for late_ms in [0, 1] {
        let job = bed.data("q", b"\x01");
        let (_, token) = bed.pull(1, "q", 1)[0];
        // No tick: the command comes first.
        bed.now_ms += 30_000 + late_ms;
        assert_eq!(bed.ack(job, Some(token)), Err(Refusal::TokenInvalid));
        assert_eq!(bed.fail(job, Some(token)), Err(Refusal::TokenInvalid));
        let beat = Beat { job, token: Some(token), ttl_ms: None };
        let reply = bed.ask(1, &Command::Heartbeat(beat));
        assert_eq!(outcome(reply), Err(Refusal::TokenInvalid));
        bed.pass(0);
        assert_eq!(bed.state(job), Some(State::Waiting));
        let (_, token) = bed.pull(1, "q", 1)[0];
        bed.now_ms += 29_999;
        bed.ack(job, Some(token)).unwrap();
    }
}

#[test]
fn a_job_that_begins_anew_has_stalled_never() {
    let mut bed = Bed::new();
    let job = bury_by_stalls(&mut bed, NewJob::default());
    assert_eq!(stalls_and_attempts(&bed, job), (3, 3));
    bed.run(1, &Command::RetryFailed { queue: "q", job: Some(job), count: 1 });
    assert_eq!(stalls_and_attempts(&bed, job), (0, 0));
    // So it may stall as often again.
    for _ in 0..2 {
        bed.pull(1, "q", 1);
        bed.pass(30_000);
        assert_eq!(bed.state(job), Some(State::Waiting));
    }
    let shard = bed.replayed();
    let about = shard.view(shard.find(job).unwrap()).job;
    assert_eq!((about.stalls, about.attempts), (2, 2));
}

#[test]
fn a_sign_of_life_gives_a_lock_its_own_time_and_no_more() {
    let stall = Extras { stall_timeout_ms: Some(700), ..Extras::default() };
    for (lock_ttl_ms, extras, life_ms) in
        [(1000, None, 1000), (50, None, 50), (9000, Some(stall), 700), (60_000, None, 60_000)]
    {
        let mut bed = Bed::new();
        let extras = extras.map(Box::new);
        let job = bed.push("q", NewJob { extras, ..NewJob::default() });
        let pull = Pull { lock_ttl_ms, ..locked("q") };
        assert_eq!(pull_with(&mut bed, pull), [job]);
        let token = bed.effects.deliveries[0].token;
        for _ in 0..3 {
            bed.pass(life_ms - 1);
            let beat = Beat { job, token, ttl_ms: None };
            assert_eq!(outcome(bed.ask(1, &Command::Heartbeat(beat))), Ok(()), "{lock_ttl_ms}");
        }
        bed.pass(life_ms - 1);
        assert_eq!(bed.state(job), Some(State::Active), "{lock_ttl_ms}");
        bed.pass(1);
        assert_eq!(bed.state(job), Some(State::Waiting), "{lock_ttl_ms}");
    }
}

#[test]
fn a_second_push_extends_a_key_by_its_own_time() {
    let keyed = |ttl_ms, extend| {
        let dedup = Dedup { ttl_ms, extend, ..Dedup::default() };
        let extras = Extras { dedup: Some(dedup), ..Extras::default() };
        NewJob { unique_key: Some("k"), extras: Some(Box::new(extras)), ..NewJob::default() }
    };
    for (own_ms, extend, expected_ms) in [(5000, true, 5400), (100, true, 500), (5000, false, 1000)]
    {
        let mut bed = Bed::new();
        let anew = |bed: &Bed, job: NewJob<'static>| {
            let extras = job.extras.map(|extras| Box::new(extras.anew(bed.now_ms)));
            NewJob { extras, ..job }
        };
        let job = anew(&bed, keyed(1000, false));
        let first = bed.push("q", job);
        let end_ms = bed.now_ms + expected_ms;
        bed.pass(400);
        let job = anew(&bed, keyed(own_ms, extend));
        assert_eq!(bed.push("q", job), first);
        let holder = bed.shard.find(first);
        assert_eq!(bed.shard.holder_of(end_ms - 1, "q", "k"), holder, "{own_ms} {extend}");
        assert_eq!(bed.shard.holder_of(end_ms, "q", "k"), None, "{own_ms} {extend}");
        assert_eq!(bed.replayed().holder_of(end_ms - 1, "q", "k").is_some(), holder.is_some());
        assert_eq!(bed.replayed().holder_of(end_ms, "q", "k"), None);
    }
}
