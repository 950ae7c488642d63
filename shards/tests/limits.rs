//! Limits of a queue. The fear: one that lets a job too many through, or that never lets go.

use crate::support::{Bed, locked};
use corq_shards::QUEUE_SETTINGS_MAX;
use corq_shards::command::{Clean, Command, Limit, PerSpan, Pull};
use corq_shards::dead_letter::policy::{DlqPatch, RulePatch};
use corq_shards::effect::{Refusal, Reply};
use corq_shards::job::State;
use corq_shards::job::new_job::NewJob;

fn limit(bed: &mut Bed, limit: Limit) {
    assert_eq!(bed.ask(1, &Command::Limit { queue: "q", limit }), Some(Reply::Done));
}

fn rate(bed: &mut Bed, per_second: u32) {
    limit(bed, Limit::Rate(Some(PerSpan::per_second(per_second))));
}

fn active(bed: &mut Bed, max: u32) {
    limit(bed, Limit::Active(Some(max)));
}

fn push(bed: &mut Bed, count: usize) {
    for _ in 0..count {
        bed.data("q", b"\x01");
    }
}

/// A pull that waits; its request.
fn wait(bed: &mut Bed, client: u64) -> u64 {
    let pull = Pull { timeout_ms: 60_000, ..locked("q") };
    assert_eq!(bed.ask(client, &Command::Pull(pull)), None);
    bed.request
}

/// The requests that were answered with a job, in order.
fn served(replies: &[(corq_shards::command::RequestId, Reply)]) -> Vec<u64> {
    let with_job = |reply: &Reply| matches!(reply, Reply::Pulled(jobs) if !jobs.is_empty());
    replies.iter().filter(|(_, reply)| with_job(reply)).map(|(request, _)| request.0).collect()
}

#[test]
fn a_bucket_gives_a_second_s_jobs_at_once_and_then_one_per_token() {
    let mut bed = Bed::new();
    rate(&mut bed, 10);
    push(&mut bed, 30);
    assert_eq!(bed.pull(1, "q", 30).len(), 10);
    assert!(bed.pull(1, "q", 30).is_empty());
    bed.pass(99);
    assert!(bed.pull(1, "q", 30).is_empty());
    bed.pass(1);
    assert_eq!(bed.pull(1, "q", 30).len(), 1);
    bed.pass(3_600_000);
    assert_eq!(bed.pull(1, "q", 30).len(), 10, "a bucket holds no more than one second");
}

#[test]
fn pulls_that_wait_get_each_token_when_it_comes_in_their_order() {
    let mut bed = Bed::new();
    rate(&mut bed, 4);
    push(&mut bed, 10);
    assert_eq!(bed.pull(1, "q", 10).len(), 4);
    let first = wait(&mut bed, 1);
    let second = wait(&mut bed, 2);
    bed.shard.audit().unwrap();
    assert!(bed.pass(249).is_empty());
    assert_eq!(served(&bed.pass(1)), [first]);
    assert!(bed.pull(3, "q", 1).is_empty(), "nobody overtakes the one that waits");
    assert!(bed.pass(249).is_empty());
    assert_eq!(served(&bed.pass(1)), [second]);
    bed.pass(250);
    assert_eq!(bed.pull(3, "q", 1).len(), 1);
    bed.shard.audit().unwrap();
}

/// Found by the simulator: waits ended before tokens came.
#[test]
fn a_pull_whose_token_came_and_whose_time_ended_between_two_ticks_gets_its_job() {
    let mut bed = Bed::new();
    rate(&mut bed, 1);
    push(&mut bed, 2);
    assert_eq!(bed.pull(1, "q", 1).len(), 1);
    // Shorter than the lock of the first job, whose end would serve the pull as well.
    let pull = Pull { timeout_ms: 2000, ..locked("q") };
    assert_eq!(bed.ask(1, &Command::Pull(pull)), None);
    let late = bed.request;
    assert_eq!(served(&bed.pass(2000)), [late]);
    bed.shard.audit().unwrap();
}

#[test]
fn a_token_that_comes_while_nothing_waits_is_kept_for_the_next_job() {
    let mut bed = Bed::new();
    rate(&mut bed, 1);
    push(&mut bed, 1);
    assert_eq!(bed.pull(1, "q", 1).len(), 1);
    let waiting = wait(&mut bed, 1);
    bed.pass(5000);
    let replies = bed.run(1, &Command::Push { queue: "q", jobs: &[NewJob::default()] });
    assert_eq!(served(&replies), [waiting]);
}

#[test]
fn saying_the_rate_again_or_changing_it_fills_no_bucket() {
    let mut bed = Bed::new();
    rate(&mut bed, 10);
    push(&mut bed, 50);
    assert_eq!(bed.pull(1, "q", 50).len(), 10);
    rate(&mut bed, 10);
    rate(&mut bed, 20);
    assert!(bed.pull(1, "q", 50).is_empty());
    bed.pass(50);
    assert_eq!(bed.pull(1, "q", 50).len(), 1, "the new rate brings the tokens");
    let waiting = wait(&mut bed, 1);
    rate(&mut bed, 1000);
    assert_eq!(served(&bed.pass(1)), [waiting], "also to those who began to wait before");
}

#[test]
fn taking_a_limit_back_serves_those_who_wait() {
    for back in [Limit::Rate(None), Limit::Active(None)] {
        let mut bed = Bed::new();
        push(&mut bed, 3);
        match back {
            Limit::Rate(_) => rate(&mut bed, 1),
            Limit::Active(_) => active(&mut bed, 1),
        }
        assert_eq!(bed.pull(1, "q", 3).len(), 1);
        let waiting = [wait(&mut bed, 1), wait(&mut bed, 2)];
        let replies = bed.run(1, &Command::Limit { queue: "q", limit: back });
        assert_eq!(served(&replies), waiting);
        assert_eq!(bed.shard.holdings().timers, 3, "only those of the locks are left");
        bed.shard.audit().unwrap();
    }
}

#[test]
fn no_more_are_active_than_allowed_and_every_end_makes_room() {
    type End = fn(&mut Bed);
    fn pulled(bed: &mut Bed) -> (corq_shards::job::id::JobId, corq_shards::command::Token) {
        let jobs: Vec<_> = bed.pull(9, "q", 5);
        assert_eq!(jobs.len(), 1, "the limit is one");
        jobs[0]
    }
    let ends: [(&str, End); 5] = [
        ("ack", |bed| {
            let (job, token) = pulled(bed);
            wait(bed, 1);
            bed.ack(job, Some(token)).unwrap();
        }),
        ("fail", |bed| {
            let (job, token) = pulled(bed);
            wait(bed, 1);
            bed.fail(job, Some(token)).unwrap();
        }),
        ("disconnect", |bed| {
            pulled(bed);
            wait(bed, 1);
            bed.run(9, &Command::Disconnect);
        }),
        ("stall", |bed| {
            pulled(bed);
            wait(bed, 1);
            bed.pass(30_000);
        }),
        ("clean", |bed| {
            pulled(bed);
            wait(bed, 1);
            let clean = Clean { queue: "q", grace_ms: 0, states: &[State::Active], limit: 9 };
            bed.run(1, &Command::Clean(clean));
        }),
    ];
    for (name, end) in ends {
        let mut bed = Bed::new();
        active(&mut bed, 1);
        push(&mut bed, 3);
        end(&mut bed);
        assert_eq!(served(&bed.effects.replies.clone()).len(), 1, "{name} makes room for one");
        assert!(bed.pull(9, "q", 5).is_empty(), "{name}");
        assert_eq!(bed.shard.queue("q").unwrap().count(State::Active), 1, "{name}");
        bed.shard.audit().unwrap();
    }
}

#[test]
fn lowering_recalls_nothing_and_holds_until_enough_have_ended() {
    let mut bed = Bed::new();
    active(&mut bed, 3);
    push(&mut bed, 9);
    let jobs = bed.pull(1, "q", 9);
    assert_eq!(jobs.len(), 3);
    active(&mut bed, 1);
    let waiting = wait(&mut bed, 2);
    for (job, token) in &jobs[..2] {
        bed.ack(*job, Some(*token)).unwrap();
        assert!(served(&bed.effects.replies.clone()).is_empty());
    }
    bed.ack(jobs[2].0, Some(jobs[2].1)).unwrap();
    assert_eq!(served(&bed.effects.replies.clone()), [waiting]);
    let more = wait(&mut bed, 2);
    let replies = bed.run(1, &Command::Limit { queue: "q", limit: Limit::Active(Some(2)) });
    assert_eq!(served(&replies), [more], "raising it makes room at once");
}

#[test]
fn both_limits_hold_together() {
    let mut bed = Bed::new();
    rate(&mut bed, 5);
    active(&mut bed, 2);
    push(&mut bed, 9);
    for expected in [2, 2, 1, 0] {
        let jobs = bed.pull(1, "q", 9);
        assert_eq!(jobs.len(), expected);
        for (job, token) in jobs {
            bed.ack(job, Some(token)).unwrap();
        }
    }
}

#[test]
fn a_paused_queue_spends_no_tokens_and_sets_no_timer() {
    let mut bed = Bed::new();
    rate(&mut bed, 1);
    push(&mut bed, 2);
    assert_eq!(bed.pull(1, "q", 1).len(), 1);
    bed.run(1, &Command::Pause { queue: "q", paused: true });
    let waiting = wait(&mut bed, 1);
    assert_eq!(bed.shard.holdings().timers, 2, "of the lock and of the wait");
    bed.pass(5000);
    let replies = bed.run(1, &Command::Pause { queue: "q", paused: false });
    assert_eq!(served(&replies), [waiting]);
}

#[test]
fn limits_survive_a_restart_with_a_full_bucket_and_go_with_their_queue() {
    let mut bed = Bed::new();
    rate(&mut bed, 3);
    active(&mut bed, 2);
    assert_eq!(bed.shard.queues().count(), 1, "a limit is a setting: the queue exists");
    push(&mut bed, 9);
    bed.pull(1, "q", 9);
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    assert!(bed.pull(1, "q", 9).is_empty(), "the locked jobs still count");
    active(&mut bed, 8);
    assert_eq!(bed.pull(1, "q", 9).len(), 3);
    assert_eq!(bed.ask(1, &Command::Obliterate { queue: "q" }), Some(Reply::Done));
    assert_eq!(bed.shard.queues().count(), 0);
    push(&mut bed, 9);
    assert_eq!(bed.pull(1, "q", 9).len(), 9);
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
    limit(&mut bed, Limit::Rate(None));
    let records = bed.journal.records.len();
    limit(&mut bed, Limit::Rate(None));
    assert_eq!(bed.journal.records.len(), records, "no record for what is so already");
}

/// The fear: names that no job has to bear fill the memory, one setting each.
#[test]
fn so_many_queues_have_settings_and_no_more_whatever_is_set() {
    let mut bed = Bed::new();
    let too_many = Some(Reply::Refused { place: 0, refusal: Refusal::QueueSettings });
    for n in 0..QUEUE_SETTINGS_MAX {
        let queue = &*format!("set-{n}");
        let command = match n % 3 {
            0 => Command::Pause { queue, paused: true },
            1 => Command::Limit { queue, limit: Limit::Active(Some(1)) },
            _ => Command::Limit { queue, limit: Limit::Rate(Some(PerSpan::per_second(1))) },
        };
        assert_eq!(bed.ask(1, &command), Some(Reply::Done));
    }
    assert_eq!(bed.shard.holdings().queue_settings, QUEUE_SETTINGS_MAX);
    let (records, queues) = (bed.journal.records.len(), bed.shard.holdings().queues);
    bed.data("with-a-job", b"\x01");
    for queue in ["new", "with-a-job"] {
        let patch = DlqPatch { entries_max: Some(Some(5)), ..DlqPatch::default() };
        for command in [
            Command::Pause { queue, paused: true },
            Command::Limit { queue, limit: Limit::Active(Some(1)) },
            Command::Limit { queue, limit: Limit::Rate(Some(PerSpan::per_second(1))) },
            Command::Rule { queue, patch: RulePatch::Dlq(patch) },
        ] {
            assert_eq!(bed.ask(1, &command), too_many, "{command:?}");
        }
        // A command that sets nothing is not refused.
        let back = Command::Limit { queue, limit: Limit::Active(None) };
        assert_eq!(bed.ask(1, &back), Some(Reply::Done));
    }
    assert_eq!(bed.journal.records.len(), records + 1, "a refusal leaves no record but the push");
    assert_eq!(bed.shard.holdings().queues, queues + 1, "and no queue");
    // A queue that has a setting gets another, and once a queue has none there is room.
    let other = Command::Limit { queue: "set-0", limit: Limit::Active(Some(1)) };
    assert_eq!(bed.ask(1, &other), Some(Reply::Done));
    assert_eq!(bed.shard.holdings().queue_settings, QUEUE_SETTINGS_MAX);
    let resumed = Command::Pause { queue: "set-3", paused: false };
    assert_eq!(bed.ask(1, &resumed), Some(Reply::Done));
    let paused = Command::Pause { queue: "new", paused: true };
    assert_eq!(bed.ask(1, &paused), Some(Reply::Done));
    assert_eq!(bed.ask(1, &Command::Pause { queue: "newer", paused: true }), too_many);
    // A log is read whatever it says, and what is set goes with its queue.
    assert_eq!(bed.replayed().holdings().queue_settings, QUEUE_SETTINGS_MAX);
    assert_eq!(bed.ask(1, &Command::Obliterate { queue: "new" }), Some(Reply::Done));
    assert_eq!(bed.shard.holdings().queue_settings, QUEUE_SETTINGS_MAX - 1);
}
