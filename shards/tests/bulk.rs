//! Long commands. The fear: one that takes a job it should not, stops half-way, never ends, or keeps
//! the other queues waiting.

use crate::support::{Bed, config, locked};
use corq_shards::command::{Clean, Command, DlqScanRequest, Pull, RequestId, Token};
use corq_shards::dead_letter::scan::{DlqScanFor, FailedFilter};
use corq_shards::dependency::Standing;
use corq_shards::effect::{Ending, KnownAs, Refusal, Reply};
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::Extras;
use corq_shards::{BULK_OPERATIONS_MAX, Config, Out, SLICE};

const DRAIN: Command<'static> = Command::Drain { queue: "q" };
const PURGE: Command<'static> = Command::PurgeFailed { queue: "q" };
const OBLITERATE: Command<'static> = Command::Obliterate { queue: "q" };
const RETRY: Command<'static> = Command::RetryFailed { queue: "q", job: None, count: u64::MAX };
const REDO: Command<'static> =
    Command::RetryCompleted { queue: "q", job: None, count: u64::MAX, until_ms: u64::MAX };
const PENDING: &[State] = &[State::Waiting, State::Delayed];

fn delayed() -> NewJob<'static> {
    NewJob { delay_ms: 3_600_000, ..NewJob::default() }
}

fn push_many(bed: &mut Bed, queue: &str, count: usize) -> Vec<JobId> {
    (0..count).map(|_| bed.data(queue, b"\x01")).collect()
}

fn bury_many(bed: &mut Bed, queue: &str, count: usize) -> Vec<JobId> {
    let once = NewJob { max_attempts: 1, ..NewJob::default() };
    let jobs: Vec<JobId> = (0..count).map(|_| bed.push(queue, once.clone())).collect();
    while let [_, ..] = *bed
        .pull(1, queue, 1000)
        .into_iter()
        .map(|(job, token)| bed.fail(job, Some(token)))
        .collect::<Vec<_>>()
    {}
    jobs
}

/// Calls `tick` once, and returns the replies that it brought.
fn tick(bed: &mut Bed) -> Vec<Reply> {
    bed.effects.clear();
    let mut out = Out { journal: &mut bed.journal, effects: &mut bed.effects };
    bed.shard.tick(bed.now_ms, &mut out);
    bed.effects.replies.iter().map(|(_, reply)| reply.clone()).collect()
}

fn count(bed: &mut Bed, queue: &str, state: State) -> u64 {
    bed.shard.queue(queue).map_or(0, |queue| queue.count(state))
}

/// Runs a clean-up of `q` to its end and returns how many it took.
fn clean(bed: &mut Bed, states: &[State], grace_ms: u64, limit: u64) -> usize {
    let clean = Clean { queue: "q", grace_ms, states, limit };
    let replies = match bed.ask(1, &Command::Clean(clean)) {
        Some(reply) => vec![reply],
        None => bed.pass(0).into_iter().map(|(_, reply)| reply).collect(),
    };
    let [Reply::Cleaned(ids)] = &replies[..] else { panic!("{replies:?}") };
    ids.concat().len()
}

#[test]
fn a_drain_takes_what_waits_wherever_it_stands_and_nothing_else() {
    let mut bed = Bed::new();
    for n in 0..40 {
        bed.push("q", NewJob { priority: n % 5 - 2, lifo: n % 3 == 0, ..NewJob::default() });
    }
    // Some come back out of order, which makes strays of them.
    bed.pull(2, "q", 30);
    push_many(&mut bed, "q", 5);
    bed.run(2, &Command::Disconnect);
    let active = bed.pull(1, "q", 1)[0];
    let later = bed.push("q", delayed());
    let beside = bed.data("other", b"\x01");
    let dead = bury_many(&mut bed, "dead", 1)[0];
    assert_eq!(bed.ask(1, &DRAIN), Some(Reply::Count(44)));
    assert_eq!(count(&mut bed, "q", State::Waiting), 0);
    assert_eq!(bed.state(later), Some(State::Delayed));
    assert_eq!(bed.state(beside), Some(State::Waiting));
    assert_eq!(bed.state(dead), Some(State::Failed));
    bed.ack(active.0, Some(active.1)).unwrap();
    bed.shard.audit().unwrap();
}

#[test]
fn a_bulk_operation_is_about_the_jobs_that_were_there_and_ends_while_producers_push() {
    let kinds = [
        NewJob::default(),
        NewJob { lifo: true, ..NewJob::default() },
        NewJob { priority: 7, ..NewJob::default() },
        NewJob { priority: -7, ..NewJob::default() },
        delayed(),
    ];
    let all = [State::Waiting, State::Delayed, State::Completed, State::Failed];
    let cleaning = Clean { queue: "q", grace_ms: 0, states: &all, limit: u64::MAX };
    for command in [DRAIN, Command::Clean(cleaning), OBLITERATE] {
        let mut bed = Bed::new();
        let old: Vec<JobId> = kinds
            .iter()
            .flat_map(|kind| vec![kind.clone(); 500])
            .map(|kind| bed.push("q", kind))
            .collect();
        assert_eq!(bed.ask(1, &command), None, "no answer before the last slice");
        let mut new = Vec::new();
        let mut replies = Vec::new();
        for slice in 0..12 {
            bed.now_ms += slice % 2;
            // More than a slice of those that come behind what the chore looks at.
            for (kind, count) in kinds.iter().zip([600, 30, 30, 600, 600]) {
                new.extend((0..count).map(|_| bed.push("q", kind.clone())));
            }
            replies.extend(tick(&mut bed));
        }
        bed.shard.audit().unwrap();
        assert_eq!(replies.len(), 1, "{command:?} has ended");
        for id in new {
            assert!(bed.state(id).is_some(), "{command:?} took what came later");
        }
        for id in old {
            let spared = matches!(command, Command::Drain { .. });
            assert!(bed.state(id).is_none_or(|state| spared && state == State::Delayed));
        }
    }
}

/// Guards against one that takes a job which came later for each that has left meanwhile.
#[test]
fn a_chore_about_ended_jobs_takes_none_that_ended_later_in_place_of_those_that_left() {
    let failed = Clean { queue: "q", grace_ms: 0, states: &[State::Failed], limit: u64::MAX };
    let scan_request = DlqScanRequest {
        queue: "q",
        filter: FailedFilter::default(),
        offset: 0,
        limit: u64::MAX,
        purpose: DlqScanFor::Retry,
    };
    for command in [PURGE, RETRY, Command::Clean(failed), Command::DlqScan(&scan_request)] {
        let mut bed = Bed::new();
        let old = bury_many(&mut bed, "q", 1200);
        bury_many(&mut bed, "beside", 1200);
        // The turn of the command comes late.
        assert_eq!(bed.ask(1, &Command::PurgeFailed { queue: "beside" }), None);
        assert_eq!(bed.ask(1, &command), None);
        for &job in &old[1150..] {
            let retry = Command::RetryFailed { queue: "q", job: Some(job), count: 1 };
            assert_eq!(bed.ask(1, &retry), Some(Reply::Count(1)));
        }
        let back: Vec<(JobId, Token)> = bed.pull(1, "q", 50);
        assert_eq!(back.len(), 50);
        let late = bury_many(&mut bed, "q", 50);
        for (job, token) in back {
            bed.fail(job, Some(token)).unwrap();
        }
        let replies = bed.pass(0);
        let counted = |(_, reply): &(RequestId, Reply)| match reply {
            Reply::Count(count) => *count,
            Reply::Cleaned(ids) => ids.concat().len() as u64,
            reply => panic!("{reply:?}"),
        };
        let mut counts: Vec<u64> = replies.iter().map(counted).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1150, 1200], "{command:?}");
        for job in late.iter().chain(&old[1150..]) {
            assert_eq!(bed.state(*job), Some(State::Failed), "{command:?}");
        }
        bed.shard.audit().unwrap();
    }
}

#[test]
fn running_completed_jobs_anew_takes_none_that_was_completed_later() {
    let mut bed = Bed::with(Config { completed_max: 50_000, ..config(1) });
    let complete = |bed: &mut Bed, count: u32| {
        push_many(bed, "q", count as usize);
        let held = bed.pull(1, "q", count);
        for &(job, token) in &held {
            bed.ack(job, Some(token)).unwrap();
        }
        held.into_iter().map(|(job, _)| job).collect::<Vec<_>>()
    };
    let old = complete(&mut bed, 600);
    assert_eq!(bed.ask(1, &Command::Pause { queue: "q", paused: true }), Some(Reply::Done));
    assert_eq!(bed.ask(1, &REDO), None);
    for &job in &old[590..] {
        let redo =
            Command::RetryCompleted { queue: "q", job: Some(job), count: 1, until_ms: u64::MAX };
        assert_eq!(bed.ask(1, &redo), Some(Reply::Count(1)));
    }
    bed.run(1, &Command::Pause { queue: "q", paused: false });
    let held = bed.pull(1, "q", 5);
    assert_eq!(held.len(), 5);
    for &(job, token) in &held {
        bed.ack(job, Some(token)).unwrap();
    }
    assert_eq!(bed.pass(0).pop().map(|(_, reply)| reply), Some(Reply::Count(590)));
    assert_eq!(count(&mut bed, "q", State::Completed), 5);
}

#[test]
fn retrying_and_purging_end_while_workers_fail_more() {
    let mut bed = Bed::new();
    bury_many(&mut bed, "q", 1200);
    assert_eq!(bed.ask(1, &RETRY), None);
    let mut answered = None;
    for _ in 0..10 {
        for (job, token) in bed.pull(2, "q", 1000) {
            bed.fail(job, Some(token)).unwrap();
        }
        answered = answered.or(tick(&mut bed).pop());
    }
    assert_eq!(answered, Some(Reply::Count(1200)));
    assert_eq!(bed.ask(1, &PURGE), None, "a chore again");
    let mut answered = None;
    for _ in 0..10 {
        bury_many(&mut bed, "q", 600);
        answered = answered.or(tick(&mut bed).pop());
    }
    assert_eq!(answered, Some(Reply::Count(1200)));
    assert_eq!(count(&mut bed, "q", State::Failed), 6000, "those that came later");
}

#[test]
fn cleaning_keeps_to_states_grace_and_limit() {
    let mut bed = Bed::new();
    let done = bed.data("q", b"\x01");
    let (_, token) = bed.pull(1, "q", 1)[0];
    bury_many(&mut bed, "q", 2);
    bed.push("q", delayed());
    let waiting = push_many(&mut bed, "q", 3);
    bed.pass(1000);
    bed.ack(done, Some(token)).unwrap();
    let young = bed.data("q", b"\x01");
    let kept = [State::Waiting, State::Delayed, State::Completed, State::Failed];
    assert_eq!(clean(&mut bed, &kept, 1001, u64::MAX), 0);
    assert_eq!(clean(&mut bed, &[State::Completed], 1, 10), 0, "its age counts from its end");
    assert_eq!(clean(&mut bed, &[State::Failed], 1000, 1), 1);
    assert_eq!(clean(&mut bed, &kept, 1000, 0), 0);
    assert_eq!(clean(&mut bed, PENDING, 1000, 100), 4);
    assert!(waiting.iter().all(|&job| bed.state(job).is_none()));
    assert_eq!(bed.state(young), Some(State::Waiting));
    assert_eq!(clean(&mut bed, &kept, 0, 100), 3);
    assert_eq!(bed.shard.holdings().jobs, 0);
}

#[test]
fn cleaning_tells_the_ids_that_clients_know() {
    let mut bed = Bed::new();
    let plain = bed.data("q", b"\x01");
    bed.push("q", NewJob { custom_id: Some("mine"), ..NewJob::default() });
    let clean = Clean { queue: "q", grace_ms: 0, states: PENDING, limit: 9 };
    let ids: Box<[KnownAs]> = [KnownAs::Id(plain), KnownAs::Custom("mine".into())].into();
    assert_eq!(bed.ask(1, &Command::Clean(clean)), Some(Reply::Cleaned(vec![ids].into())));
    let change = &bed.effects.names[0];
    assert_eq!((&*change.name, change.known), ("mine", false), "the name is free");
}

#[test]
fn active_jobs_are_cleaned_only_by_name_of_their_state_and_by_age_of_the_attempt() {
    let mut bed = Bed::new();
    push_many(&mut bed, "q", 2);
    let (old, token) = bed.pull(1, "q", 1)[0];
    bed.pass(1000);
    let (young, _) = bed.pull(1, "q", 1)[0];
    assert_eq!(clean(&mut bed, &[State::Active], 1000, 9), 1);
    assert_eq!((bed.state(old), bed.state(young)), (None, Some(State::Active)));
    assert_eq!(bed.ack(old, Some(token)), Err(Refusal::NotActive));
}

#[test]
fn a_search_goes_on_when_the_jobs_it_comes_to_change_their_state() {
    let mut bed = Bed::new();
    let old = push_many(&mut bed, "q", 1200);
    bed.now_ms += 1000;
    // More than are looked at in one slice.
    let young = push_many(&mut bed, "q", 9000);
    let clean = Clean { queue: "q", grace_ms: 1000, states: &[State::Waiting], limit: u64::MAX };
    assert_eq!(bed.ask(1, &Command::Clean(clean)), None);
    assert_eq!(bed.pull(2, "q", 300).len(), 300);
    let replies = bed.pass(0);
    let [(_, Reply::Cleaned(ids))] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!(ids.concat().len(), 900);
    assert!(ids.iter().all(|slice| slice.len() as u64 <= SLICE), "they come in slices");
    let left = old.iter().filter(|&&job| bed.state(job).is_some()).count();
    assert_eq!(left, 300, "those that were pulled in time");
    assert!(young.iter().all(|&job| bed.state(job) == Some(State::Waiting)));
    let nothing = Clean { states: &[State::Delayed], ..clean };
    assert_eq!(bed.ask(1, &Command::Clean(nothing)), None, "a search in vain is sliced, too");
    assert_eq!(bed.pass(0)[0].1, Reply::Cleaned(Vec::new().into()));
    bed.shard.audit().unwrap();
}

#[test]
fn an_obliterated_queue_is_new_at_once_while_the_rest_of_the_old_one_goes() {
    let mut bed = Bed::new();
    let old = push_many(&mut bed, "q", 1500);
    let key = NewJob { unique_key: Some("k"), ..NewJob::default() };
    let holder = bed.push("q", key.clone());
    let (active, token) = bed.pull(1, "q", 1)[0];
    bed.run(1, &Command::Pause { queue: "q", paused: true });
    bed.run(3, &Command::Pull(Pull { timeout_ms: 60_000, ..locked("q") }));
    let waiting = bed.request;
    assert_eq!(bed.ask(1, &OBLITERATE), None);
    assert_eq!(bed.ack(active, Some(token)), Err(Refusal::NotActive), "it went with its queue");
    assert!(bed.shard.queues().next().is_none(), "nobody sees it any more");
    let replies = bed.run(1, &Command::Push { queue: "q", jobs: &[key] });
    assert_eq!(replies.len(), 2, "the pull that waited gets the new job: {replies:?}");
    assert!(replies.iter().any(|(request, _)| request.0 == waiting));
    let new = bed.id(&bed.effects.deliveries[0]);
    assert_ne!(new, holder, "the key is free");
    let other = bed.data("other", b"\x01");
    assert_eq!(bed.pull(1, "other", 1)[0].0, other, "others are served meanwhile");
    assert_eq!(bed.pass(0).pop().map(|(_, reply)| reply), Some(Reply::Done));
    assert!(old.iter().all(|&job| bed.state(job).is_none()));
    assert_eq!(bed.state(new), Some(State::Active));
    assert_eq!(bed.shard.holdings().queues, 2);
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

/// Guards against a push that is answered with a job which the obliterate has yet to reach.
#[test]
fn a_job_that_an_obliterate_has_yet_to_reach_gives_its_custom_id_back_when_it_is_wanted() {
    let mut bed = Bed::new();
    push_many(&mut bed, "q", 1500);
    let last = bed.push("q", NewJob { custom_id: Some("last"), ..NewJob::default() });
    let beside = bed.push("beside", NewJob { custom_id: Some("other"), ..NewJob::default() });
    bed.run(1, &Command::GiveBackNames { jobs: &[last, beside] });
    assert!(bed.effects.names.is_empty(), "their queues are there");
    assert_eq!(bed.ask(1, &OBLITERATE), None);
    assert_eq!(bed.shard.standing(last), Standing::Unknown, "nothing can depend on it any more");
    bed.run(1, &Command::GiveBackNames { jobs: &[last, last, beside] });
    let freed: Vec<&str> = bed.effects.names.iter().map(|change| &*change.name).collect();
    assert_eq!(freed, ["last"]);
    assert_eq!((bed.state(last), bed.state(beside)), (None, Some(State::Waiting)));
    assert_eq!(bed.replayed().facts(), bed.shard.facts(), "a start knows it, too");
    assert_eq!(bed.pass(0).pop().map(|(_, reply)| reply), Some(Reply::Done));
    bed.shard.audit().unwrap();
}

#[test]
fn obliterating_takes_every_state_and_setting() {
    let mut bed = Bed::new();
    bury_many(&mut bed, "q", 2);
    let names = ["done", "active"];
    for name in names {
        bed.push("q", NewJob { custom_id: Some(name), ..NewJob::default() });
    }
    let (job, token) = bed.pull(1, "q", 1)[0];
    bed.ack(job, Some(token)).unwrap();
    bed.pull(1, "q", 1);
    bed.push("q", delayed());
    bed.data("q", b"\x01");
    bed.run(1, &Command::Pause { queue: "q", paused: true });
    assert_eq!(bed.ask(1, &OBLITERATE), Some(Reply::Done));
    let mut freed: Vec<&str> = bed.effects.names.iter().map(|change| &*change.name).collect();
    freed.sort_unstable();
    assert_eq!(freed, ["active", "done"]);
    assert!(bed.shard.facts().is_empty() && bed.replayed().facts().is_empty());
    assert_eq!(bed.ask(1, &OBLITERATE), Some(Reply::Done), "of an unknown queue too");
    bed.shard.audit().unwrap();
}

#[test]
fn after_a_crash_in_the_middle_what_was_done_is_done_and_the_rest_is_there() {
    for command in [DRAIN, OBLITERATE] {
        let mut bed = Bed::new();
        push_many(&mut bed, "q", 1300);
        assert_eq!(bed.ask(1, &command), None);
        assert!(tick(&mut bed).is_empty());
        let mut again = bed.replayed();
        assert_eq!(again.facts(), bed.shard.facts());
        let left = again.queue("q").unwrap().count(State::Waiting);
        assert!(left > 0 && left < 800, "{left}");
        again.restart(bed.now_ms);
        again.audit().unwrap();
    }
}

#[test]
fn bulk_operations_of_one_queue_follow_each_other_and_those_of_others_take_turns() {
    let mut bed = Bed::new();
    bury_many(&mut bed, "q", 1800);
    push_many(&mut bed, "b", 10);
    assert_eq!(bed.ask(1, &RETRY), None);
    let retry = bed.request;
    assert_eq!(bed.ask(1, &DRAIN), None);
    let drain = bed.request;
    assert_eq!(bed.ask(1, &Command::Drain { queue: "b" }), None);
    let beside = bed.request;
    let ended: Vec<_> =
        bed.pass(0).into_iter().map(|(request, reply)| (request.0, reply)).collect();
    let [first, second, third] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!(*first, (beside, Reply::Count(10)), "a short one need not wait for a long one");
    assert_eq!(*second, (retry, Reply::Count(1800)));
    assert_eq!(*third, (drain, Reply::Count(1800)));
    push_many(&mut bed, "q", 1300);
    let urgent = NewJob { max_attempts: 1, priority: 9, ..NewJob::default() };
    let dead: Vec<JobId> = (0..5).map(|_| bed.push("q", urgent.clone())).collect();
    for (job, token) in bed.pull(1, "q", 5) {
        bed.fail(job, Some(token)).unwrap();
    }
    bed.run(1, &DRAIN);
    bed.run(1, &RETRY);
    let counts: Vec<Reply> = bed.pass(0).into_iter().map(|(_, reply)| reply).collect();
    assert_eq!(counts, [Reply::Count(1300), Reply::Count(5)]);
    assert!(dead.iter().all(|&job| bed.state(job) == Some(State::Waiting)), "after the drain");
}

#[test]
fn a_client_that_waits_for_a_job_learns_that_a_bulk_operation_has_removed_it() {
    for command in [DRAIN, OBLITERATE] {
        let mut bed = Bed::new();
        let jobs = push_many(&mut bed, "q", 1200);
        let wait = |job| Command::AwaitEnd { job, timeout_ms: 60_000 };
        assert_eq!(bed.ask(2, &wait(jobs[0])), None);
        let first = bed.request;
        assert_eq!(bed.ask(2, &wait(jobs[1199])), None);
        let last = bed.request;
        let replies = bed.run(1, &command);
        assert!(replies.iter().any(|(request, _)| request.0 == first), "with its own slice");
        let replies = bed.pass(0);
        let place = |id| replies.iter().position(|(request, _)| request.0 == id).unwrap();
        assert_eq!(replies[place(last)].1, Reply::Ended(Ending::Removed));
        bed.shard.audit().unwrap();
    }
}

#[test]
fn a_bulk_operation_goes_on_when_its_client_leaves() {
    let mut bed = Bed::new();
    push_many(&mut bed, "q", 1300);
    bed.run(5, &DRAIN);
    bed.run(5, &Command::Disconnect);
    bed.pass(0);
    assert_eq!(bed.shard.holdings().jobs, 0);
}

#[test]
fn what_was_completed_runs_anew_under_its_own_id() {
    let mut bed = Bed::new();
    let jobs = push_many(&mut bed, "q", 3);
    for (job, token) in bed.pull(1, "q", 2) {
        bed.ack(job, Some(token)).unwrap();
    }
    let one = Command::RetryCompleted {
        queue: "q",
        job: Some(jobs[0]),
        count: u64::MAX,
        until_ms: u64::MAX,
    };
    assert_eq!(bed.ask(1, &one), Some(Reply::Count(1)));
    assert_eq!(bed.ask(1, &one), Some(Reply::Count(0)), "it is not completed now");
    let elsewhere = Command::RetryCompleted {
        queue: "other",
        job: Some(jobs[1]),
        count: u64::MAX,
        until_ms: u64::MAX,
    };
    assert_eq!(bed.ask(1, &elsewhere), Some(Reply::Count(0)));
    assert_eq!(bed.ask(1, &REDO), Some(Reply::Count(1)));
    for &job in &jobs {
        let view = bed.shard.view(bed.shard.find(job).unwrap());
        assert_eq!((view.job.state, view.job.attempts), (State::Waiting, 0));
        assert!(view.outcome.is_none(), "its result is gone");
    }
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

#[test]
fn more_bulk_operations_than_there_may_be_are_refused_and_change_nothing() {
    let mut bed = Bed::new();
    push_many(&mut bed, "q", 600);
    for _ in 0..BULK_OPERATIONS_MAX {
        assert_eq!(bed.ask(1, &DRAIN), None);
    }
    let before = bed.shard.facts();
    for command in [DRAIN, OBLITERATE] {
        let refused = Reply::Refused { place: 0, refusal: Refusal::Busy };
        assert_eq!(bed.ask(1, &command), Some(refused));
    }
    assert_eq!(bed.shard.facts(), before);
    assert_eq!(bed.pass(0).len(), BULK_OPERATIONS_MAX, "all others are answered");
}

/// Found by looking at what the simulator may do: the code that renders the delivery looks the job up.
#[test]
fn a_job_is_not_removed_in_the_call_that_delivers_it() {
    let mut bed = Bed::with(Config { bulk_slice: 1, ..config(1) });
    let held = push_many(&mut bed, "q", 2);
    bed.pull(1, "q", 2);
    let late = bed.push("q", NewJob { delay_ms: 10, ..NewJob::default() });
    bed.run(1, &Command::Pull(Pull { timeout_ms: 1000, ..locked("q") }));
    let clean = Clean { queue: "q", grace_ms: 0, states: &[State::Active], limit: 1000 };
    assert_eq!(bed.ask(1, &Command::Clean(clean)), None, "it takes more than one slice");
    tick(&mut bed);
    assert!(held.iter().all(|&job| bed.state(job).is_none()));
    bed.now_ms += 10;
    tick(&mut bed);
    let [delivery] = bed.effects.deliveries[..] else { panic!("{:?}", bed.effects) };
    assert_eq!(bed.id(&delivery), late);
    bed.pass(0);
}

/// Found by the simulator: the clean-up stopped at the first job whose end lay ahead of the clock.
#[test]
fn ends_of_a_clock_that_was_ahead_keep_no_older_ones_from_being_cleaned() {
    let mut bed = Bed::new();
    let jobs = push_many(&mut bed, "q", 3);
    let held = bed.pull(1, "q", 3);
    let now_ms = bed.now_ms;
    for ((job, token), ahead_ms) in held.into_iter().zip([5000, 0, 0]) {
        bed.now_ms = now_ms + ahead_ms;
        bed.ack(job, Some(token)).unwrap();
    }
    bed.now_ms = now_ms + 10;
    assert_eq!(clean(&mut bed, &[State::Completed], 10, 1000), 2);
    assert!(jobs.iter().map(|&job| bed.state(job)).eq([Some(State::Completed), None, None]));
    bed.now_ms = now_ms + 5010;
    assert_eq!(clean(&mut bed, &[State::Completed], 10, 1000), 1);
}

/// Found by the simulator: the third came before the second, if the first was in between at the time.
#[test]
fn bulk_operations_of_one_queue_keep_their_order_whenever_they_come() {
    for waited in 0..4 {
        let mut bed = Bed::with(Config { bulk_slice: 1, ..config(1) });
        push_many(&mut bed, "q", 30);
        let mut requests = Vec::new();
        for command in [DRAIN, PURGE, REDO, RETRY] {
            assert_eq!(bed.ask(1, &command), None);
            requests.push(RequestId(bed.request));
            (0..waited).for_each(|_| drop(tick(&mut bed)));
        }
        let answered: Vec<RequestId> =
            bed.pass(0).into_iter().map(|(request, _)| request).collect();
        assert!(requests.ends_with(&answered), "{answered:?} of {requests:?}");
    }
}

/// A job is shown by its creation time; only a delay counts from it.
#[test]
fn a_timestamp_in_the_future_delays_no_job_without_a_delay() {
    let mut bed = Bed::new();
    let made_at_ms = Some(crate::support::START_MS + 60_000);
    let extras = Some(Box::new(Extras { made_at_ms, ..Extras::default() }));
    let plain = bed.push("q", NewJob { extras: extras.clone(), ..NewJob::default() });
    let delayed = bed.push("q", NewJob { extras, delay_ms: 1, ..NewJob::default() });
    assert_eq!(bed.state(plain), Some(State::Waiting));
    assert_eq!(bed.state(delayed), Some(State::Delayed));
}

/// Age counts from when a job was made, as its client says, and not from when it came.
#[test]
fn a_grace_counts_from_the_timestamp_that_was_given() {
    let mut bed = Bed::new();
    let made = |ago_ms: u64| {
        let made_at_ms = Some(crate::support::START_MS - ago_ms);
        let extras = Some(Box::new(Extras { made_at_ms, ..Extras::default() }));
        NewJob { extras, ..NewJob::default() }
    };
    let old = bed.push("q", made(60_000));
    let young = bed.push("q", made(1000));
    let plain = bed.push("q", NewJob::default());
    let clean = Clean { queue: "q", states: PENDING, grace_ms: 30_000, limit: 10 };
    let reply = bed.ask(1, &Command::Clean(clean));
    assert!(matches!(reply, Some(Reply::Cleaned(ref ids)) if ids.len() == 1), "{reply:?}");
    assert_eq!(bed.state(old), None);
    assert!(bed.state(young).is_some() && bed.state(plain).is_some());
}
