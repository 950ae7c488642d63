//! Pulls: those that wait at a queue which goes on, and those that bring limits for its groups.

use super::*;
use corq_shards::command::{GroupPull, Only};

#[test]
fn limits_that_a_pull_brings_are_compared_with_many_groups_in_slices_and_it_gets_its_job() {
    for timeout_ms in [0, 5000] {
        let mut bed = Bed::new();
        let names: Vec<String> = (0..MANY).map(|n| format!("g{n}")).collect();
        for some in names.chunks(500) {
            let job = |n: usize| NewJob { group_id: Some(&some[n]), ..NewJob::default() };
            let jobs: Vec<NewJob<'_>> = (0..some.len()).map(job).collect();
            bed.push_all("a", &jobs);
            bed.push_all("a", &jobs);
        }
        // A job of each group is active, so that a limit of one leaves none but the last.
        for _ in 0..MANY / 500 {
            assert_eq!(bed.pull(1, "a", 500).len(), 500);
        }
        let last = NewJob { group_id: Some("last"), ..NewJob::default() };
        let last = bed.push("a", last);
        let group = GroupPull { active_max: Some(1), ..GroupPull::default() };
        let group = Some(&group);
        let pull = Pull { group, timeout_ms, ..crate::support::locked("a") };
        let mut replies = Vec::new();
        let mut most = steps(&mut bed, |bed| replies = bed.run(2, &Command::Pull(pull)));
        while replies.is_empty() {
            let mut more = false;
            most = most.max(steps(&mut bed, |bed| more = tick(bed)));
            replies.clone_from(&bed.effects.replies);
            assert!(more || !replies.is_empty(), "it is answered");
        }
        assert!(most <= STEPS_MAX, "{most} steps");
        let Reply::Pulled(range) = replies[0].1.clone() else { panic!("{replies:?}") };
        let got: Vec<JobId> = bed.effects.deliveries[range].iter().map(|one| bed.id(one)).collect();
        assert_eq!(got, [last]);
        bed.shard.audit().unwrap();
    }
}

#[test]
fn a_pull_with_new_limits_does_not_wait_for_groups_where_something_else_is_in_the_way() {
    let mut bed = Bed::new();
    bed.push("a", NewJob { group_id: Some("g"), ..NewJob::default() });
    bed.run(1, &Command::Pause { queue: "a", paused: true });
    let group = GroupPull { active_max: Some(1), ..GroupPull::default() };
    let pull = Pull { group: Some(&group), ..crate::support::locked("a") };
    let reply = bed.ask(2, &Command::Pull(pull));
    assert_eq!(reply, Some(Reply::Pulled(0..0)));
    assert!(!tick(&mut bed), "nothing is left to be done");
    bed.shard.audit().unwrap();
}

#[test]
fn a_pull_that_came_while_something_was_in_the_way_waits_for_groups_once_it_is_gone() {
    let mut bed = Bed::new();
    let names: Vec<String> = (0..5000).map(|n| format!("g{n}")).collect();
    for some in names.chunks(500) {
        let job = |n: usize| NewJob { group_id: Some(&some[n]), ..NewJob::default() };
        let jobs: Vec<NewJob<'_>> = (0..some.len()).map(job).collect();
        bed.push_all("a", &jobs);
        bed.push_all("a", &jobs);
    }
    // A limit of one leaves only the last 500 groups.
    for _ in 0..9 {
        assert_eq!(bed.pull(1, "a", 500).len(), 500);
    }
    bed.run(1, &Command::Pause { queue: "a", paused: true });
    let group = GroupPull { active_max: Some(1), ..GroupPull::default() };
    let pull = Pull { group: Some(&group), timeout_ms: 60_000, ..crate::support::locked("a") };
    assert_eq!(bed.ask(2, &Command::Pull(pull)), None);
    assert!(!tick(&mut bed));
    bed.run(1, &Command::Pause { queue: "a", paused: false });
    bed.shard.audit().unwrap();
    let mut more = true;
    while more && bed.effects.deliveries.is_empty() {
        more = tick(&mut bed);
        bed.shard.audit().unwrap();
    }
    assert_eq!(bed.effects.deliveries.len(), 1);
}

/// Two jobs in each of many groups, and a third with a worker.
fn many_groups() -> Bed {
    let mut bed = Bed::new();
    let names: Vec<String> = (0..MANY).map(|n| format!("g{n}")).collect();
    for some in names.chunks(500) {
        let job = |n: usize| NewJob { group_id: Some(&some[n]), ..NewJob::default() };
        let jobs: Vec<NewJob<'_>> = (0..some.len()).map(job).collect();
        for _ in 0..3 {
            bed.push_all("a", &jobs);
        }
    }
    for _ in 0..MANY / 500 {
        assert_eq!(bed.pull(1, "a", 500).len(), 500);
    }
    bed
}

/// Guards against limits that are compared with all groups whenever they change, and against pulls that wait for that
/// when there is a job for them.
#[test]
fn limits_that_change_with_each_pull_cost_each_of_them_little() {
    let mut bed = many_groups();
    let some = |max| GroupPull { active_max: Some(max), ..GroupPull::default() };
    for (max, other, least) in [(100, 200, 2000), (1, 2, 200)] {
        let (mut delivered, mut all) = (0, 0);
        for n in 0..2000 {
            let group = some(if n % 2 == 0 { max } else { other });
            let pull = Pull { group: Some(&group), ..crate::support::locked("a") };
            let of_call = steps(&mut bed, |bed| _ = bed.run(2, &Command::Pull(pull)));
            delivered += bed.effects.deliveries.len();
            assert!(of_call <= STEPS_MAX, "{of_call} steps");
            all += of_call;
            if n % 99 == 0 {
                bed.now_ms += 1;
                all += steps(&mut bed, |bed| _ = tick(bed));
                delivered += bed.effects.deliveries.len();
            }
        }
        // Between two steps of time there are 2000 looks, by all together.
        assert!(all <= 20 * 2 * STEPS_MAX, "{all} steps");
        assert!(delivered >= least, "{delivered} jobs");
        bed.shard.audit().unwrap();
    }
    let mut more = true;
    while more {
        bed.now_ms += 1;
        let of_tick = steps(&mut bed, |bed| more = tick(bed));
        assert!(of_tick <= STEPS_MAX + SLICE, "{of_tick} steps");
    }
    assert_eq!(bed.shard.holdings().waiters, 0);
}

#[test]
fn a_pull_for_one_of_many_groups_learns_in_slices_of_limits_that_let_it_run() {
    let mut bed = many_groups();
    let last = format!("g{}", MANY - 1);
    let only =
        |group, max| GroupPull { active_max: Some(max), rate: None, only: Only::Group(group) };
    let own = only(&last, 1);
    let pull = Pull { group: Some(&own), timeout_ms: 5000, ..crate::support::locked("a") };
    assert_eq!(bed.ask(2, &Command::Pull(pull)), None);
    while tick(&mut bed) {}
    bed.shard.audit().unwrap();
    let other = only("g0", 2);
    let other = Pull { group: Some(&other), ..crate::support::locked("a") };
    let of_call = steps(&mut bed, |bed| _ = bed.run(3, &Command::Pull(other)));
    assert!(of_call <= STEPS_MAX && bed.effects.deliveries.len() == 1, "{of_call} steps");
    let mut ticks = 0;
    while bed.shard.holdings().waiters > 0 {
        bed.shard.audit().unwrap();
        let mut more = false;
        let of_tick = steps(&mut bed, |bed| more = tick(bed));
        assert!(of_tick <= STEPS_MAX, "{of_tick} steps");
        assert!(more || bed.shard.holdings().waiters == 0, "it is served");
        ticks += 1;
    }
    assert!(ticks > 1 && bed.effects.deliveries.len() == 1);
}

#[test]
fn a_pull_that_says_nothing_waits_as_well_until_groups_have_been_compared_with_limits() {
    let mut bed = many_groups();
    let free = NewJob { group_id: Some("last"), ..NewJob::default() };
    let free = bed.push("a", free);
    let group = GroupPull { active_max: Some(1), rate: None, only: Only::Group("unknown") };
    bed.run(2, &Command::Pull(Pull { group: Some(&group), ..crate::support::locked("a") }));
    assert!(bed.shard.is_seeing("a"));
    assert_eq!(bed.ask(3, &Command::Pull(crate::support::locked("a"))), None);
    while bed.effects.deliveries.is_empty() {
        let more = tick(&mut bed);
        assert!(more || !bed.effects.deliveries.is_empty(), "it is answered");
    }
    assert_eq!(bed.id(&bed.effects.deliveries[0]), free);
    bed.shard.audit().unwrap();
}

/// A queue with jobs of groups, at which more pulls waited than one step of time serves, as it goes on.
fn unserved(bed: &mut Bed) -> usize {
    bed.run(1, &Command::Pause { queue: "a", paused: true });
    for group in ["g", "h", "i"] {
        let job = NewJob { group_id: Some(group), ..NewJob::default() };
        push_many(bed, "a", MANY / 4, &job);
    }
    let group = GroupPull { active_max: Some(100_000), ..GroupPull::default() };
    for client in 0..100 {
        let pull = Pull { timeout_ms: 5000, count: 100, ..crate::support::locked("a") };
        bed.run(client, &Command::Pull(Pull { group: Some(&group), ..pull }));
    }
    bed.run(1, &Command::Pause { queue: "a", paused: false }).len() - 1
}

#[test]
fn a_pull_that_cannot_wait_gets_a_job_beside_those_who_are_put_off_whatever_it_says_of_groups() {
    let same = GroupPull { active_max: Some(100_000), ..GroupPull::default() };
    let other = GroupPull { active_max: Some(99_999), ..GroupPull::default() };
    let one = GroupPull { only: Only::Group("h"), ..GroupPull::default() };
    let mut bed = Bed::new();
    assert!(unserved(&mut bed) < 100);
    for group in [None, Some(&same), Some(&other), Some(&one)] {
        let reply = bed.ask(200, &Command::Pull(Pull { group, ..crate::support::locked("a") }));
        assert_eq!(reply, Some(Reply::Pulled(0..1)), "{group:?}");
    }
    bed.shard.audit().unwrap();
}

#[test]
fn a_pull_that_can_wait_comes_behind_those_who_are_put_off_whatever_it_says_of_groups() {
    let same = GroupPull { active_max: Some(100_000), ..GroupPull::default() };
    let other = GroupPull { active_max: Some(99_999), ..GroupPull::default() };
    for group in [None, Some(&same), Some(&other)] {
        let mut bed = Bed::new();
        let mut served = unserved(&mut bed);
        let pull = Pull { group, timeout_ms: 5000, ..crate::support::locked("a") };
        assert_eq!(bed.ask(200, &Command::Pull(pull)), None, "{group:?}");
        let own = bed.request;
        loop {
            let more = tick(&mut bed);
            let place = bed.effects.replies.iter().position(|(request, _)| request.0 == own);
            served += place.unwrap_or(bed.effects.replies.len());
            if place.is_some() {
                break;
            }
            assert!(more, "{group:?}: it is served");
        }
        assert_eq!(served, 100, "{group:?}");
        bed.shard.audit().unwrap();
    }
}

#[test]
fn pulls_that_are_put_off_are_served_however_much_time_brings_to_other_queues() {
    let mut bed = Bed::new();
    for queue in ["a", "b"] {
        bed.run(1, &Command::Pause { queue, paused: true });
        push_many(&mut bed, queue, MANY, &NewJob::default());
        for client in 0..200 {
            let pull = Pull { timeout_ms: 5000, count: 100, ..crate::support::locked(queue) };
            bed.run(client, &Command::Pull(pull));
        }
    }
    for delay_ms in 1..=20 {
        bed.push("b", NewJob { delay_ms, ..NewJob::default() });
    }
    for queue in ["b", "a"] {
        bed.run(1, &Command::Pause { queue, paused: false });
    }
    for _ in 0..10 {
        bed.now_ms += 1;
        let of_tick = steps(&mut bed, |bed| assert!(tick(bed)));
        assert!(of_tick <= STEPS_MAX && bed.effects.deliveries.len() < 2000);
        bed.shard.audit().unwrap();
    }
    let active = ["a", "b"].map(|queue| count(&mut bed, queue, State::Active));
    assert!(active.iter().all(|&active| active >= 2000), "{active:?}");
}

#[test]
fn pulls_that_wait_at_a_queue_that_is_obliterated_are_moved_in_slices() {
    let mut bed = Bed::new();
    let wait = Pull { timeout_ms: 60_000, ..crate::support::locked("q") };
    for client in 0..MANY as u64 {
        bed.run(client, &Command::Pull(wait));
    }
    bed.push("q", NewJob { data: b"1", delay_ms: 60_000, ..NewJob::default() });
    let (most, reply) = longest(&mut bed, &Command::Obliterate { queue: "q" });
    assert_eq!(reply, Some(Reply::Done));
    assert!((1..=STEPS_MAX).contains(&most), "{most} steps in a call");
    assert_eq!(bed.shard.holdings().waiters, MANY);
    bed.push("q", NewJob { data: b"1", ..NewJob::default() });
    assert_eq!(bed.shard.holdings().waiters, MANY - 1, "they wait for what comes");
    bed.shard.audit().unwrap();
}

#[test]
fn pulls_at_an_obliterated_queue_do_not_wait_for_what_else_is_done_to_its_jobs() {
    let mut bed = Bed::new();
    push_many(&mut bed, "q", MANY, &NewJob { delay_ms: 60_000, ..NewJob::default() });
    let wait = Pull { timeout_ms: 60_000, ..crate::support::locked("q") };
    for client in 0..2000 {
        bed.run(client, &Command::Pull(wait));
    }
    let clean = Clean { queue: "q", grace_ms: 0, states: &[State::Delayed], limit: u64::MAX };
    assert_eq!(bed.ask(1, &Command::Clean(clean)), None, "it takes a while");
    assert_eq!(bed.ask(2, &Command::Obliterate { queue: "q" }), None);
    // Slices that suffice to move them, far fewer than the jobs take to go.
    for _ in 0..=2000 / SLICE {
        assert!(tick(&mut bed), "there is more to do");
    }
    // As many as are delivered without another tick.
    for served in 1..=900 {
        bed.push("q", NewJob::default());
        assert_eq!(bed.shard.holdings().waiters, 2000 - served);
    }
    assert!(bed.shard.holdings().jobs > 2000, "the old ones are on their way");
}

/// Connections are ended a slice a turn by counts of these steps.
#[test]
fn each_wait_that_ends_with_its_connection_is_a_step() {
    let mut bed = Bed::new();
    for _ in 0..100 {
        let pull = Pull { timeout_ms: 5000, ..crate::support::locked("a") };
        bed.run(7, &Command::Pull(pull));
    }
    let mut dropped = 0;
    let taken = steps(&mut bed, |bed| dropped = bed.run(7, &Command::Disconnect).len());
    assert_eq!((dropped, taken), (100, 100));
    bed.shard.audit().unwrap();
}

#[test]
fn of_many_queues_that_are_put_off_those_are_looked_at_that_can_be_served() {
    let mut bed = Bed::new();
    let names: Vec<String> = (0..MANY).map(|n| format!("q-{n}")).collect();
    for (client, queue) in names.iter().enumerate() {
        let pull = Pull { timeout_ms: 60_000, ..crate::support::locked(queue) };
        bed.run(client as u64, &Command::Pull(pull));
    }
    // Without a step of time in between, as in one turn.
    for queue in &names {
        bed.push(queue, NewJob::default());
    }
    assert!(bed.shard.holdings().waiters > MANY / 2, "most are put off");
    let mut more = true;
    while more {
        let most = steps(&mut bed, |bed| more = tick(bed));
        assert!((0..=STEPS_MAX).contains(&most), "{most} steps");
    }
    assert_eq!(bed.shard.holdings().waiters, 0);
    bed.shard.audit().unwrap();
}
