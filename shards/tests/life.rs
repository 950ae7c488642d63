//! The life of a job inside one shard. The fear: a transition that loses, doubles or misorders a job.

use crate::support::{Bed, locked, outcome};
use corq_shards::command::{Ack, Beat, Command, Limit, PerSpan, Pull};
use corq_shards::effect::{Refusal, Reply};
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::new_job::NewJob;

#[test]
fn jobs_come_by_priority_then_lifo_then_fifo() {
    let mut bed = Bed::new();
    let first = bed.data("q", b"1");
    let second = bed.data("q", b"2");
    let lifo = bed.push("q", NewJob { lifo: true, ..NewJob::default() });
    let newest = bed.push("q", NewJob { lifo: true, ..NewJob::default() });
    let urgent = bed.push("q", NewJob { priority: 5, ..NewJob::default() });
    let low = bed.push("q", NewJob { priority: -5, ..NewJob::default() });
    let order: Vec<_> = bed.pull(1, "q", 10).into_iter().map(|(id, _)| id).collect();
    assert_eq!(order, [urgent, newest, lifo, first, second, low]);
}

#[test]
fn a_delayed_job_waits_for_its_time_and_blocks_nobody() {
    let mut bed = Bed::new();
    let later = bed.push("q", NewJob { delay_ms: 500, priority: 9, ..NewJob::default() });
    let now = bed.data("q", b"1");
    assert_eq!(bed.state(later), Some(State::Delayed));
    assert_eq!(bed.pull(1, "q", 10).iter().map(|job| job.0).collect::<Vec<_>>(), [now]);
    bed.pass(499);
    assert!(bed.pull(1, "q", 10).is_empty());
    bed.pass(1);
    assert_eq!(bed.pull(1, "q", 10)[0].0, later);
}

#[test]
fn a_failed_attempt_waits_its_backoff_and_the_last_one_buries() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { max_attempts: 2, backoff_ms: 100, ..NewJob::default() });
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.fail(job, Some(token)).unwrap();
    assert_eq!(bed.state(job), Some(State::Delayed));
    bed.pass(99);
    assert!(bed.pull(1, "q", 1).is_empty(), "the backoff is never cut short");
    bed.pass(25);
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.fail(job, Some(token)).unwrap();
    assert_eq!(bed.state(job), Some(State::Failed));
    let all = Command::RetryFailed { queue: "q", job: None, count: u64::MAX };
    assert_eq!(bed.ask(1, &all), Some(Reply::Count(1)));
    assert_eq!(bed.state(job), Some(State::Waiting));
    let index = bed.shard.find(job).unwrap();
    assert_eq!(bed.shard.view(index).job.attempts, 0);
}

#[test]
fn retrying_a_long_dead_letter_queue_is_sliced_and_answers_at_the_end() {
    let mut bed = Bed::new();
    for _ in 0..1700 {
        bed.push("q", NewJob { max_attempts: 1, ..NewJob::default() });
    }
    for _ in 0..2 {
        for (job, token) in bed.pull(1, "q", 1000) {
            bed.fail(job, Some(token)).unwrap();
        }
    }
    let all = Command::RetryFailed { queue: "q", job: None, count: u64::MAX };
    assert_eq!(bed.ask(1, &all), None, "no answer before the last slice");
    let replies = bed.pass(0);
    assert_eq!(replies[0].1, Reply::Count(1700));
    bed.shard.audit().unwrap();
}

#[test]
fn a_locked_job_obeys_only_its_token() {
    let mut bed = Bed::new();
    let job = bed.data("q", b"1");
    let (_, token) = bed.pull(1, "q", 1)[0];
    assert_eq!(bed.ack(job, None), Err(Refusal::TokenRequired));
    let other = corq_shards::command::Token(token.0 ^ 1);
    assert_eq!(bed.ack(job, Some(other)), Err(Refusal::TokenInvalid));
    assert_eq!(
        bed.fail(job, Some(corq_shards::command::Token::UNREADABLE)),
        Err(Refusal::TokenInvalid)
    );
    bed.ack(job, Some(token)).unwrap();
    assert_eq!(bed.ack(job, Some(token)), Err(Refusal::NotActive), "a late ack changes nothing");
    assert_eq!(bed.state(job), Some(State::Completed));
}

#[test]
fn a_lock_ends_on_time_and_the_third_stall_buries() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { max_attempts: 10, ..NewJob::default() });
    for stall in 1..=3 {
        let (_, token) = bed.pull(1, "q", 1)[0];
        bed.pass(29_999);
        assert_eq!(bed.state(job), Some(State::Active));
        bed.pass(1);
        assert_eq!(bed.ack(job, Some(token)), Err(Refusal::NotActive));
        let expected = if stall < 3 { State::Waiting } else { State::Failed };
        assert_eq!(bed.state(job), Some(expected));
    }
}

#[test]
fn a_heartbeat_gives_the_whole_lock_again() {
    let mut bed = Bed::new();
    let job = bed.data("q", b"1");
    let (_, token) = bed.pull(1, "q", 1)[0];
    for _ in 0..5 {
        bed.pass(20_000);
        assert_eq!(
            outcome(
                bed.ask(1, &Command::Heartbeat(Beat { job, token: Some(token), ttl_ms: None }))
            ),
            Ok(())
        );
    }
    bed.ack(job, Some(token)).unwrap();
}

#[test]
fn disconnect_releases_owned_jobs_and_wakes_sleeping_pullers() {
    let mut bed = Bed::new();
    let job = bed.data("q", b"1");
    bed.pull(7, "q", 1);
    let sleeper = Pull { timeout_ms: 60_000, ..locked("q") };
    assert_eq!(bed.ask(8, &Command::Pull(sleeper)), None);
    let sleeping = corq_shards::command::RequestId(bed.request);
    let replies = bed.run(7, &Command::Disconnect);
    assert_eq!(replies, [(sleeping, Reply::Pulled(0..1))]);
    assert_eq!(bed.id(&bed.effects.deliveries[0]), job);
    let index = bed.shard.find(job).unwrap();
    assert_eq!(bed.shard.view(index).job.attempts, 0, "a disconnect is no failure");
}

#[test]
fn disconnect_keeps_what_lives_elsewhere() {
    let mut bed = Bed::new();
    let detached = bed.data("q", b"1");
    bed.ask(7, &Command::Pull(Pull { detach: true, ..locked("q") }));
    let renewed = bed.data("q", b"2");
    let (_, token) = bed.pull(7, "q", 1)[0];
    bed.ask(8, &Command::Heartbeat(Beat { job: renewed, token: Some(token), ttl_ms: None }));
    bed.run(7, &Command::Disconnect);
    assert_eq!(bed.state(detached), Some(State::Active));
    assert_eq!(bed.state(renewed), Some(State::Active));
}

#[test]
fn waiters_are_served_in_turn_and_a_wait_ends_empty_on_time() {
    let mut bed = Bed::new();
    let wait = Pull { timeout_ms: 1000, ..locked("q") };
    let mut sleeping = Vec::new();
    for client in 1..=3 {
        assert_eq!(bed.ask(client, &Command::Pull(wait)), None);
        sleeping.push(corq_shards::command::RequestId(bed.request));
    }
    let jobs = [NewJob::default(), NewJob::default()];
    let replies = bed.run(9, &Command::Push { queue: "q", jobs: &jobs });
    let served: Vec<_> =
        replies.iter().map(|reply| reply.0).filter(|it| sleeping.contains(it)).collect();
    assert_eq!(served, sleeping[..2], "first come, first served, one job each");
    assert_eq!(bed.pass(1000), [(sleeping[2], Reply::Pulled(0..0))]);
}

#[test]
fn a_paused_queue_delivers_nothing_until_it_resumes() {
    let mut bed = Bed::new();
    bed.ask(1, &Command::Pause { queue: "q", paused: true });
    bed.data("q", b"1");
    assert!(bed.pull(1, "q", 1).is_empty());
    let wait = Pull { timeout_ms: 1000, ..locked("q") };
    assert_eq!(bed.ask(2, &Command::Pull(wait)), None);
    let replies = bed.run(1, &Command::Pause { queue: "q", paused: false });
    assert!(
        replies.iter().any(|(_, reply)| matches!(reply, Reply::Pulled(range) if range.len() == 1))
    );
}

#[test]
fn a_unique_key_is_held_until_the_job_ends() {
    let mut bed = Bed::new();
    let keyed = || NewJob { unique_key: Some("k"), max_attempts: 1, ..NewJob::default() };
    let first = bed.push("q", keyed());
    assert_eq!(bed.push("q", keyed()), first);
    assert_ne!(bed.push("other", keyed()), first, "keys belong to a queue");
    let (_, token) = bed.pull(1, "q", 1)[0];
    assert_eq!(bed.push("q", keyed()), first, "held while active");
    bed.ack(first, Some(token)).unwrap();
    assert_ne!(bed.push("q", keyed()), first);
}

#[test]
fn an_ack_of_many_is_all_or_nothing() {
    let mut bed = Bed::new();
    for _ in 0..3 {
        bed.data("q", b"1");
    }
    let pulled = bed.pull(1, "q", 3);
    let ack = |place: usize| Ack {
        job: pulled[place].0,
        token: Some(pulled[place].1),
        result: &[],
        remove: false,
    };
    let twice = [ack(0), ack(1), ack(0)];
    assert_eq!(
        bed.ask(1, &Command::Ack { acks: &twice }),
        Some(Reply::Refused { place: 2, refusal: Refusal::NotActive })
    );
    assert!(pulled.iter().all(|(job, _)| bed.state(*job) == Some(State::Active)));
    assert_eq!(bed.ask(1, &Command::Ack { acks: &[ack(0), ack(1), ack(2)] }), Some(Reply::Done));
}

#[test]
fn an_attempt_that_takes_too_long_fails() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { timeout_ms: Some(200), max_attempts: 1, ..NewJob::default() });
    bed.pull(1, "q", 1);
    bed.pass(200);
    assert_eq!(bed.state(job), Some(State::Failed));
}

#[test]
fn a_life_ends_on_time_but_not_in_a_workers_hands() {
    let mut bed = Bed::new();
    let mortal = || NewJob { ttl_ms: Some(1000), ..NewJob::default() };
    let held = bed.push("q", mortal());
    bed.pull(1, "q", 1);
    let waiting = bed.push("q", mortal());
    let delayed = bed.push("q", NewJob { delay_ms: 5000, ..mortal() });
    bed.pass(1000);
    assert_eq!(bed.state(held), Some(State::Active));
    assert_eq!((bed.state(waiting), bed.state(delayed)), (None, None));
}

#[test]
fn completed_jobs_are_kept_by_number_and_by_age() {
    let mut bed = Bed::new();
    let mut jobs = Vec::new();
    for _ in 0..25 {
        jobs.push(bed.data("q", b"1"));
        let (job, token) = bed.pull(1, "q", 1)[0];
        bed.ack(job, Some(token)).unwrap();
    }
    assert_eq!(jobs.iter().filter(|job| bed.state(**job).is_some()).count(), 20);
    assert_eq!(bed.state(jobs[4]), None, "the oldest go first");
    bed.pass(700_000);
    assert_eq!(bed.shard.census().completed, 0);
}

/// A delay and a life end in the same tick, the delay first: the pull that waits gets the job that was
/// delayed, not the better one that is over.
#[test]
fn a_job_is_not_delivered_by_the_tick_that_finds_its_life_over() {
    let mut bed = Bed::new();
    let limit = Limit::Rate(Some(PerSpan::per_second(1)));
    bed.run(1, &Command::Limit { queue: "q", limit });
    bed.data("q", b"1");
    assert_eq!(bed.pull(1, "q", 1).len(), 1, "the token is spent");
    let over = bed.push("q", NewJob { ttl_ms: Some(100), lifo: true, ..NewJob::default() });
    let due = bed.push("q", NewJob { delay_ms: 50, ..NewJob::default() });
    bed.run(1, &Command::Pull(Pull { timeout_ms: 5000, ..locked("q") }));
    bed.pass(2000);
    assert_eq!((bed.state(over), bed.state(due)), (None, Some(State::Active)));
}

#[test]
fn a_job_that_goes_when_it_fails_is_never_found_in_the_dead_letter_queue() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { remove_on_fail: true, ..NewJob::default() });
    // A client asks why it failed, so a record must say it.
    bed.run(1, &Command::AwaitEnd { job, timeout_ms: 1000 });
    bed.run(1, &Command::Change { job, change: Change::Discard { token: None } });
    assert_eq!(bed.state(job), None);
    // However much of it a crash leaves.
    while bed.journal.records.pop().is_some() {
        let again = bed.replayed();
        let state = again.find(job).map(|index| again.view(index).job.state);
        assert!(matches!(state, None | Some(State::Waiting)), "{state:?}");
    }
}

/// Who wants a job to begin anew is not told that it does, to have it removed at once.
#[test]
fn a_job_that_is_run_anew_lives_anew() {
    let mut bed = Bed::new();
    let job = || NewJob { ttl_ms: Some(1000), max_attempts: 1, ..NewJob::default() };
    let take = |bed: &mut Bed| {
        let id = bed.push("q", job());
        (id, bed.pull(1, "q", 1)[0].1)
    };
    let (failed, token) = take(&mut bed);
    bed.fail(failed, Some(token)).unwrap();
    let (completed, token) = take(&mut bed);
    bed.ack(completed, Some(token)).unwrap();
    let (moved, token) = take(&mut bed);
    bed.fail(moved, Some(token)).unwrap();
    let (held, token) = take(&mut bed);
    let delay_ms = 900;
    let late = bed.push("q", NewJob { delay_ms, ..job() });
    bed.pass(500);
    let to_wait = |bed: &mut Bed, job, token| {
        let change = Change::ToWait { token };
        assert_eq!(bed.ask(1, &Command::Change { job, change }), Some(Reply::Done));
    };
    to_wait(&mut bed, late, None);
    bed.pass(4500);
    assert_eq!(bed.state(late), None, "five seconds are more than its second life");
    let retry = Command::RetryFailed { queue: "q", job: Some(failed), count: 1 };
    assert_eq!(bed.ask(1, &retry), Some(Reply::Count(1)));
    let job = Some(completed);
    let retry = Command::RetryCompleted { queue: "q", job, count: 1, until_ms: u64::MAX };
    assert_eq!(bed.ask(1, &retry), Some(Reply::Count(1)));
    to_wait(&mut bed, moved, None);
    to_wait(&mut bed, held, Some(token));
    let all = [failed, completed, moved, held];
    for passed_ms in [0, 999] {
        bed.pass(passed_ms);
        assert_eq!(all.map(|id| bed.state(id)), [Some(State::Waiting); 4], "{passed_ms} ms later");
        let again = bed.replayed();
        assert_eq!(again.facts(), bed.shard.facts());
    }
    bed.pass(1);
    assert_eq!(all.map(|id| bed.state(id)), [None; 4]);
}

/// Guards against a job that is gone although the answer says where it has been moved to.
#[test]
fn a_job_whose_time_to_live_ended_with_its_worker_lives_on_where_it_is_moved_to() {
    let job = |name| NewJob { ttl_ms: Some(1000), custom_id: Some(name), ..NewJob::default() };
    for change in ["put off", "delay", "block"] {
        let mut bed = Bed::new();
        let id = bed.push("q", job("parent"));
        let (_, token) = bed.pull(1, "q", 1)[0];
        let child = bed.push("beside", NewJob::default());
        let adopt = Change::Adopt { child, name: "child" };
        assert_eq!(bed.ask(1, &Command::Change { job: id, change: adopt }), Some(Reply::Count(1)));
        bed.pass(5000);
        let token = Some(token);
        let (change, state, reply) = match change {
            "put off" => (Change::PutOff { delay_ms: 9000, token }, State::Delayed, Reply::Done),
            "delay" => (Change::Delay { delay_ms: 9000, token }, State::Delayed, Reply::Done),
            _ => (Change::Block { token }, State::WaitingChildren, Reply::Count(1)),
        };
        assert_eq!(bed.ask(1, &Command::Change { job: id, change }), Some(reply));
        for passed_ms in [0, 999] {
            bed.pass(passed_ms);
            assert_eq!(bed.state(id), Some(state), "{passed_ms} ms later");
            assert_eq!(bed.replayed().facts(), bed.shard.facts());
        }
        bed.pass(1);
        assert_eq!(bed.state(id), None);
        bed.shard.audit().unwrap();
    }
}
