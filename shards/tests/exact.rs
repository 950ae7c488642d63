//! Small promises, each by itself: a place in a line, a millisecond, a count that begins anew. The fear: what is
//! nearly right, so that nobody misses it.

use crate::support::{Bed, SPAN_BITS, locked};
use corq_shards::command::{Beat, Command, Limit, PerSpan, Pull, Token};
use corq_shards::dependency::{News, Notice, Unmet};
use corq_shards::effect::{Refusal, Reply};
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::job::overrides::{Dedup, Extras};

/// A lock of so many milliseconds on the next job.
fn pull_for(bed: &mut Bed, lock_ttl_ms: u32) -> (JobId, Token) {
    let reply = bed.ask(1, &Command::Pull(Pull { lock_ttl_ms, ..locked("q") }));
    let Some(Reply::Pulled(range)) = reply else { panic!("not pulled: {reply:?}") };
    let delivery = bed.effects.deliveries[range.start];
    (bed.id(&delivery), delivery.token.unwrap())
}

/// The ids of all that waits, in the order in which it is delivered.
fn order(bed: &mut Bed) -> Vec<JobId> {
    bed.pull(9, "q", 100).into_iter().map(|(id, _)| id).collect()
}

/// Lets the worker of the next job go silent.
fn stall_next(bed: &mut Bed) -> JobId {
    let (id, _) = pull_for(bed, 1000);
    bed.pass(1000);
    id
}

fn dedup(ttl_ms: u64, extend: bool) -> Extras {
    let dedup = Some(Dedup { ttl_ms, extend, ..Dedup::default() });
    Extras { dedup, ..Extras::default() }
}

/// How a job goes.
type Go = dyn Fn(&mut Bed, JobId);

#[test]
fn a_job_that_is_tried_again_without_a_wait_goes_behind_those_that_waited_before() {
    let mut bed = Bed::new();
    let failing =
        bed.push("q", NewJob { data: b"1", backoff_ms: 0, max_attempts: 5, ..NewJob::default() });
    bed.pass(10);
    let waiting = bed.data("q", b"2");
    bed.pass(10);
    let (id, token) = pull_for(&mut bed, 1000);
    assert_eq!(id, failing);
    bed.fail(id, Some(token)).unwrap();
    let replayed = bed.replayed().facts();
    assert_eq!(bed.shard.facts(), replayed);
    assert_eq!(order(&mut bed), [waiting, failing]);
}

#[test]
fn a_job_given_back_by_its_worker_keeps_its_place() {
    let mut bed = Bed::new();
    let first = bed.data("q", b"1");
    bed.pass(10);
    let second = bed.data("q", b"2");
    let (id, token) = pull_for(&mut bed, 1000);
    let change = Change::ToWait { token: Some(token) };
    assert_eq!(bed.ask(1, &Command::Change { job: id, change }), Some(Reply::Done));
    assert_eq!(order(&mut bed), [first, second]);
}

#[test]
fn the_stall_that_buries_a_job_frees_its_key() {
    let mut bed = Bed::new();
    let job = NewJob { data: b"1", unique_key: Some("k"), max_attempts: 9, ..NewJob::default() };
    let id = bed.push("q", job.clone());
    for _ in 0..3 {
        assert_eq!(bed.push("q", job.clone()), id, "held until it is buried");
        stall_next(&mut bed);
    }
    assert_eq!(bed.state(id), Some(State::Failed));
    assert_eq!(bed.shard.holdings().unique_keys, 0);
    assert_ne!(bed.push("q", job), id);
}

#[test]
fn a_rate_counts_jobs_that_are_pulled_without_an_owner() {
    let mut bed = Bed::new();
    let limit = Limit::Rate(Some(PerSpan::per_second(2)));
    assert_eq!(bed.ask(1, &Command::Limit { queue: "q", limit }), Some(Reply::Done));
    for _ in 0..6 {
        bed.data("q", b"1");
    }
    let pull = Pull { locked: false, count: 5, ..locked("q") };
    let pulled = |bed: &mut Bed| match bed.ask(1, &Command::Pull(pull)) {
        Some(Reply::Pulled(range)) => range.len(),
        other => panic!("not answered: {other:?}"),
    };
    assert_eq!((pulled(&mut bed), pulled(&mut bed)), (2, 0));
    bed.pass(500);
    assert_eq!((pulled(&mut bed), pulled(&mut bed)), (1, 0));
}

#[test]
fn a_lifo_job_is_one_whatever_becomes_of_it() {
    let mut bed = Bed::new();
    let lifo = NewJob { data: b"1", lifo: true, backoff_ms: 0, ..NewJob::default() };
    let repeat = Some(Repeat { every_ms: 1, limit: Some(2), count: 0 });
    let id = bed.push("q", lifo.clone());
    // After a failed attempt, a stall, and the dead-letter queue.
    let (_, token) = pull_for(&mut bed, 1000);
    bed.fail(id, Some(token)).unwrap();
    assert_eq!(stall_next(&mut bed), id);
    assert_eq!(
        bed.ask(1, &Command::Change { job: id, change: Change::Discard { token: None } }),
        Some(Reply::Done)
    );
    let retry = Command::RetryFailed { queue: "q", job: Some(id), count: 1 };
    assert_eq!(bed.ask(1, &retry), Some(Reply::Count(1)));
    let prioritize = Change::Prioritize { priority: 0, lifo: None };
    assert_eq!(bed.ask(1, &Command::Change { job: id, change: prioritize }), Some(Reply::Done));
    let is_lifo = |bed: &Bed, id: JobId| {
        let index = bed.shard.find(id).unwrap();
        bed.shard.view(index).job.has(corq_shards::job::flags::LIFO)
    };
    assert!(is_lifo(&bed, id));
    // Written again when the beginning of the log goes, and read.
    while bed.journal.gone == 0 {
        bed.run(1, &Command::Pause { queue: "other", paused: true });
        bed.run(1, &Command::Pause { queue: "other", paused: false });
        bed.reclaim(1 << SPAN_BITS);
    }
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    assert!(is_lifo(&bed, id));
    bed.data("q", b"2");
    assert_eq!(order(&mut bed)[0], id);
    // The next run of a series, too.
    let first = bed.push("r", NewJob { repeat, ..lifo });
    let (run, token) = bed.pull(1, "r", 1)[0];
    assert_eq!(run, first);
    bed.ack(run, Some(token)).unwrap();
    bed.pass(1);
    bed.data("r", b"3");
    let (next, _) = bed.pull(1, "r", 1)[0];
    assert!(is_lifo(&bed, next) && next != first);
}

/// A job of another queue that waits for `on`, as that was told.
fn dependent(bed: &mut Bed, on: JobId) -> JobId {
    let mut unmet = Vec::new();
    Unmet::push(&mut unmet, on, "");
    let job = NewJob { data: b"d", unmet: Unmet::new(&unmet), ..NewJob::default() };
    let id = bed.push("d", job);
    bed.carry_notices();
    id
}

#[test]
fn no_way_to_go_without_being_completed_lets_dependents_run() {
    let mut bed = Bed::new();
    let gone_on_failure = NewJob { data: b"1", remove_on_fail: true, ..NewJob::default() };
    let short_lived = NewJob { data: b"1", ttl_ms: Some(50), ..NewJob::default() };
    let plain = NewJob { data: b"1", ..NewJob::default() };
    let ways: [(&NewJob<'_>, &Go); 4] = [
        (&gone_on_failure, &|bed, job| {
            bed.run(1, &Command::Change { job, change: Change::Discard { token: None } });
        }),
        (&short_lived, &|bed, _| {
            bed.pass(50);
        }),
        (&plain, &|bed, job| {
            bed.run(1, &Command::Change { job, change: Change::Cancel });
        }),
        (&plain, &|bed, job| {
            bed.run(1, &Command::Change { job, change: Change::Discard { token: None } });
            bed.run(1, &Command::Change { job, change: Change::Bin { queue: "q" } });
        }),
    ];
    for (place, (job, go)) in ways.into_iter().enumerate() {
        let dependency = bed.push("q", job.clone());
        let waiting = dependent(&mut bed, dependency);
        assert_eq!(bed.state(waiting), Some(State::WaitingChildren));
        go(&mut bed, dependency);
        bed.carry_notices();
        assert_eq!(bed.state(waiting), Some(State::Failed), "way {place}");
        // Asked for when it was gone already.
        let late = dependent(&mut bed, dependency);
        assert_eq!(bed.state(late), Some(State::Failed), "way {place}, late");
    }
    let (dependent, dependency) = (JobId(2), JobId(1));
    bed.run(0, &Command::Notice(Notice { news: News::Watch, dependent, dependency }));
    assert_eq!(bed.effects.notices, [Notice { news: News::Removed, dependent, dependency }]);
}

#[test]
fn a_lock_opens_nothing_from_the_millisecond_on_in_which_it_ends() {
    let mut bed = Bed::new();
    for _ in 0..2 {
        bed.data("q", b"1");
    }
    let (late, late_token) = pull_for(&mut bed, 1000);
    let (early, early_token) = pull_for(&mut bed, 1000);
    bed.now_ms += 999;
    assert_eq!(bed.ack(early, Some(early_token)), Ok(()));
    // The clock has moved, and nobody has looked yet at what that brings.
    bed.now_ms += 1;
    let token = Some(late_token);
    assert_eq!(bed.ack(late, token), Err(Refusal::TokenInvalid));
    assert_eq!(bed.fail(late, token), Err(Refusal::TokenInvalid));
    let beat = Command::Heartbeat(Beat { job: late, token, ttl_ms: None });
    let refused = Reply::Refused { place: 0, refusal: Refusal::TokenInvalid };
    assert_eq!(bed.ask(1, &beat), Some(refused));
    bed.pass(0);
    assert_eq!(bed.state(late), Some(State::Waiting));
}

#[test]
fn a_job_out_of_the_dead_letter_queue_may_stall_as_often_as_a_new_one() {
    let mut bed = Bed::new();
    let id = bed.push("q", NewJob { data: b"1", max_attempts: 100, ..NewJob::default() });
    for round in 0..3 {
        for stall in 0..3 {
            assert_eq!(bed.state(id), Some(State::Waiting), "round {round}, stall {stall}");
            stall_next(&mut bed);
        }
        assert_eq!(bed.state(id), Some(State::Failed), "round {round}");
        let job = (round == 0).then_some(id);
        let retry = Command::RetryFailed { queue: "q", job, count: 9 };
        assert_eq!(bed.ask(1, &retry), Some(Reply::Count(1)));
    }
}

/// A job with a lock of a second, of whose worker there is a sign of life after 900 ms.
fn seen_after_900_ms(sign: &dyn Fn(JobId, Option<Token>) -> Command<'static>) -> Bed {
    let mut bed = Bed::new();
    bed.data("q", b"1");
    let (job, token) = pull_for(&mut bed, 1000);
    bed.pass(900);
    let reply = bed.ask(1, &sign(job, Some(token)));
    assert!(matches!(reply, Some(Reply::Done | Reply::Count(1))), "{reply:?}");
    bed
}

fn beat(job: JobId, token: Option<Token>, ttl_ms: Option<u32>) -> Command<'static> {
    Command::Heartbeat(Beat { job, token, ttl_ms })
}

#[test]
fn a_sign_of_life_holds_a_job_for_the_time_of_its_own_lock() {
    let progress = |job, _| {
        let change = Change::Progress { progress: 1.0, message: None };
        Command::Change { job, change }
    };
    for sign in [&(|job, token| beat(job, token, None)) as &dyn Fn(_, _) -> _, &progress] {
        let mut bed = seen_after_900_ms(sign);
        bed.pass(999);
        assert_eq!(bed.shard.active_jobs(), 1);
        bed.pass(1);
        assert_eq!(bed.shard.active_jobs(), 0);
    }
}

#[test]
fn a_sign_of_life_that_says_for_how_long_counts_once() {
    let mut bed = seen_after_900_ms(&|job, token| beat(job, token, Some(5000)));
    bed.pass(4999);
    assert_eq!(bed.shard.active_jobs(), 1);
    let held = bed.known().next().unwrap();
    let lease = bed.shard.view(bed.shard.find(held).unwrap()).lease.unwrap();
    let sign = beat(held, lease.token, None);
    assert_eq!(bed.ask(1, &sign), Some(Reply::Done));
    bed.pass(999);
    assert_eq!(bed.shard.active_jobs(), 1);
    bed.pass(1);
    assert_eq!(bed.shard.active_jobs(), 0);
}

#[test]
fn a_second_push_extends_a_key_by_its_own_time() {
    for (own_ms, second_ms) in [(1000, 5000), (5000, 1000)] {
        let mut bed = Bed::new();
        let job =
            |extras| NewJob { data: b"1", unique_key: Some("k"), extras, ..NewJob::default() };
        let holder = bed.push("q", job(Some(Box::new(dedup(own_ms, false)))));
        bed.pass(500);
        assert_eq!(bed.push("q", job(Some(Box::new(dedup(second_ms, true))))), holder);
        bed.shard = bed.replayed();
        bed.shard.restart(bed.now_ms);
        bed.pass(second_ms - 1);
        assert_eq!(bed.push("q", job(None)), holder, "still held");
        bed.pass(1);
        assert_ne!(bed.push("q", job(None)), holder, "free again");
    }
}
