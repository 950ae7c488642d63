//! Groups of jobs. The fears: a group that starves another, a job too many of one, one that is never
//! delivered again, and a queue that becomes slow because most of its groups may not run.

mod brought;
mod limits;
use crate::support::{Bed, locked};
use corq_shards::command::{
    Command, GroupLimit, GroupPull, Limit, Only, PerSpan, Pull, RequestId, Token,
};
use corq_shards::effect::{Refusal, Reply};
use corq_shards::group::GroupRate;
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::Dedup;
use corq_shards::job::overrides::Extras;

const ANY: GroupPull<'_> = GroupPull { active_max: None, rate: None, only: Only::Any };

/// A job whose payload is its number.
fn push(bed: &mut Bed, group: Option<&str>, number: u8) -> JobId {
    let data = [number];
    bed.push("q", NewJob { data: &data, group_id: group, max_attempts: 9, ..NewJob::default() })
}

fn fill(bed: &mut Bed, groups: &[(&str, u8)]) {
    for &(group, number) in groups {
        push(bed, Some(group), number);
    }
}

fn set(bed: &mut Bed, group: &str, limit: GroupLimit) -> Option<Reply> {
    let reply = bed.ask(1, &Command::LimitGroup { queue: "q", group, limit });
    bed.shard.audit().unwrap();
    reply
}

fn number(bed: &Bed, job: JobId) -> u8 {
    let view = bed.shard.view(bed.shard.find(job).unwrap());
    let record = &bed.journal.records[view.data.position as usize];
    record[record.len() - 1]
}

fn pull_with(bed: &mut Bed, count: u32, group: GroupPull<'_>) -> Vec<(JobId, Token)> {
    let pull = Pull { count, group: Some(&group), ..locked("q") };
    let reply = bed.ask(1, &Command::Pull(pull));
    let Some(Reply::Pulled(range)) = reply else { panic!("not answered: {reply:?}") };
    let pulled = bed.effects.deliveries[range].to_vec();
    bed.shard.audit().unwrap();
    pulled.iter().map(|one| (bed.id(one), one.token.unwrap())).collect()
}

/// The numbers of the jobs that a pull gets.
fn numbers(bed: &mut Bed, count: u32, group: GroupPull<'_>) -> Vec<u8> {
    let pulled = pull_with(bed, count, group);
    pulled.into_iter().map(|(job, _)| number(bed, job)).collect()
}

fn wait(bed: &mut Bed, client: u64, group: Option<GroupPull<'_>>) -> RequestId {
    let pull = Pull { timeout_ms: 60_000, group: group.as_ref(), ..locked("q") };
    assert_eq!(bed.ask(client, &Command::Pull(pull)), None, "there is a job already");
    bed.shard.audit().unwrap();
    RequestId(bed.request)
}

fn served(replies: &[(RequestId, Reply)]) -> Vec<RequestId> {
    let with_job = |reply: &Reply| matches!(reply, Reply::Pulled(jobs) if !jobs.is_empty());
    replies.iter().filter(|(_, reply)| with_job(reply)).map(|(request, _)| *request).collect()
}

#[test]
fn groups_take_turns_behind_jobs_that_have_none() {
    let mut bed = Bed::new();
    fill(&mut bed, &[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)]);
    push(&mut bed, None, 7);
    assert_eq!(numbers(&mut bed, 4, ANY), [7, 1, 4, 5]);
    // A group that had nothing for a while comes behind those that wait for their turn.
    push(&mut bed, Some("c"), 8);
    assert_eq!(numbers(&mut bed, 9, ANY), [2, 6, 8, 3]);
}

#[test]
fn within_a_group_the_lower_priority_goes_first_and_then_the_older() {
    let mut bed = Bed::new();
    for (number, priority) in [(1, 5), (2, 1), (3, 5), (4, 0), (5, 1)] {
        let (data, lifo) = ([number], number == 5);
        bed.push(
            "q",
            NewJob { data: &data, priority, lifo, group_id: Some("a"), ..NewJob::default() },
        );
    }
    let counts = bed.shard.queue("q").unwrap().priorities(None, usize::MAX);
    assert_eq!(counts, [(5, 2), (1, 2), (0, 1)]);
    assert_eq!(numbers(&mut bed, 9, ANY), [4, 2, 5, 1, 3]);
}

#[test]
fn a_weight_is_how_many_jobs_a_group_gives_in_a_turn() {
    let mut bed = Bed::new();
    assert_eq!(set(&mut bed, "a", GroupLimit::Weight(3)), Some(Reply::Count(1)));
    for number in 0..8 {
        fill(&mut bed, &[("a", number), ("b", 100 + number)]);
    }
    assert_eq!(numbers(&mut bed, 9, ANY), [0, 1, 2, 100, 3, 4, 5, 101, 6]);
    set(&mut bed, "a", GroupLimit::Weight(1));
    assert_eq!(numbers(&mut bed, 4, ANY), [7, 102, 103, 104]);
}

#[test]
fn no_more_of_a_group_is_active_than_is_set_for_it_or_than_the_pull_says() {
    let mut bed = Bed::new();
    set(&mut bed, "a", GroupLimit::Active(Some(2)));
    for number in 0..5 {
        fill(&mut bed, &[("a", number), ("b", 100 + number)]);
    }
    let one = GroupPull { active_max: Some(1), ..ANY };
    let pulled = pull_with(&mut bed, 9, one);
    let got: Vec<u8> = pulled.iter().map(|(job, _)| number(&bed, *job)).collect();
    assert_eq!(got, [0, 100, 1], "what is set holds, else what the pull says");
    assert!(numbers(&mut bed, 9, one).is_empty());
    assert!(numbers(&mut bed, 1, ANY).is_empty(), "a pull that says nothing is bound as well");
    bed.ack(pulled[0].0, Some(pulled[0].1)).unwrap();
    assert_eq!(numbers(&mut bed, 9, one), [2]);
    set(&mut bed, "a", GroupLimit::Active(None));
    let group = bed.shard.group("q", "a").unwrap();
    assert_eq!((group.pending, group.active), (2, 2));
    assert_eq!(numbers(&mut bed, 9, GroupPull { active_max: Some(3), ..ANY }), [101, 3, 102]);
}

#[test]
fn a_rate_counts_from_the_first_job_of_its_span() {
    let mut bed = Bed::new();
    set(&mut bed, "a", GroupLimit::Rate(Some(GroupRate { jobs: 2, span_ms: 1000 })));
    for number in 0..6 {
        fill(&mut bed, &[("a", number), ("b", 100 + number)]);
    }
    let wait_ms =
        |bed: &mut Bed, group, jobs| bed.shard.group_wait_ms(bed.now_ms, ("q", group), jobs);
    assert_eq!(wait_ms(&mut bed, "a", None), None);
    let slow = GroupPull { rate: Some(GroupRate { jobs: 1, span_ms: 300 }), ..ANY };
    assert_eq!(numbers(&mut bed, 9, slow), [0, 100, 1]);
    assert_eq!(wait_ms(&mut bed, "a", None), Some(1000));
    assert_eq!(wait_ms(&mut bed, "a", Some(3)), Some(0));
    assert_eq!(wait_ms(&mut bed, "b", None), Some(300));
    bed.pass(299);
    assert!(numbers(&mut bed, 9, slow).is_empty());
    bed.now_ms += 1;
    assert_eq!(numbers(&mut bed, 9, slow), [101], "by the clock, whether or not somebody looked");
    bed.pass(700);
    assert_eq!(
        numbers(&mut bed, 9, slow),
        [2, 102, 3],
        "the one that was served longest ago first"
    );
    // Said again, it is the span of before; another one is a new one.
    set(&mut bed, "a", GroupLimit::Rate(Some(GroupRate { jobs: 2, span_ms: 1000 })));
    assert!(numbers(&mut bed, 9, slow).is_empty());
    set(&mut bed, "a", GroupLimit::Rate(Some(GroupRate { jobs: 1, span_ms: 1000 })));
    assert_eq!(numbers(&mut bed, 9, slow), [4]);
    set(&mut bed, "a", GroupLimit::Rate(None));
    assert!(numbers(&mut bed, 9, ANY).is_empty(), "what pulls bring has counted its jobs as well");
    let unhurried = GroupPull { active_max: Some(9), ..ANY };
    assert_eq!(numbers(&mut bed, 9, unhurried), [103, 5, 104, 105]);
}

#[test]
fn a_group_that_is_paused_or_held_gives_nothing_until_it_is_let_go() {
    let mut bed = Bed::new();
    fill(&mut bed, &[("a", 1), ("b", 2), ("a", 3), ("b", 4)]);
    assert_eq!(set(&mut bed, "a", GroupLimit::Paused(true)), Some(Reply::Count(1)));
    assert_eq!(set(&mut bed, "a", GroupLimit::Paused(true)), Some(Reply::Count(0)));
    set(&mut bed, "b", GroupLimit::Hold(500));
    assert!(numbers(&mut bed, 9, ANY).is_empty());
    assert_eq!(bed.shard.group_wait_ms(bed.now_ms, ("q", "b"), None), Some(500));
    let waiting = wait(&mut bed, 1, None);
    assert!(served(&bed.pass(499)).is_empty());
    assert_eq!(served(&bed.pass(1)), [waiting], "when its time is over");
    assert!(!bed.shard.group("q", "b").unwrap().settings.paused);
    assert_eq!(bed.replayed().facts(), bed.shard.facts(), "that it is over is written");
    assert_eq!(numbers(&mut bed, 9, ANY), [4]);
    let waiting = wait(&mut bed, 1, None);
    let resume = GroupLimit::Paused(false);
    let replies = bed.run(2, &Command::LimitGroup { queue: "q", group: "a", limit: resume });
    assert_eq!(served(&replies), [waiting], "when it is resumed");
    assert_eq!(numbers(&mut bed, 9, ANY), [3]);
}

#[test]
fn pulls_that_wait_are_served_by_whatever_ends_what_was_in_their_way() {
    let mut bed = Bed::new();
    let one = GroupPull { active_max: Some(1), ..ANY };
    fill(&mut bed, &[("a", 1), ("a", 2), ("a", 3), ("a", 4)]);
    let first = pull_with(&mut bed, 9, one);
    assert_eq!(first.len(), 1);
    let (early, late) = (wait(&mut bed, 1, Some(one)), wait(&mut bed, 2, Some(one)));
    // The end of a job, a failure that is tried again at once, a lock that ends, a connection that goes.
    let acks = [corq_shards::command::Ack {
        job: first[0].0,
        token: Some(first[0].1),
        result: &[],
        remove: false,
    }];
    assert_eq!(served(&bed.run(3, &Command::Ack { acks: &acks })), [early]);
    bed.shard.audit().unwrap();
    assert_eq!(served(&bed.run(1, &Command::Disconnect)), [late]);
    bed.shard.audit().unwrap();
    let third = wait(&mut bed, 3, Some(one));
    assert_eq!(served(&bed.pass(30_000)), [third], "when the lock of the job has ended");
    bed.shard.audit().unwrap();
    // Limits that a later pull says count for those who wait as well, and the queue's own for all.
    let fourth = wait(&mut bed, 4, Some(one));
    bed.run(1, &Command::Limit { queue: "q", limit: Limit::Active(Some(1)) });
    let fifth = wait(&mut bed, 5, Some(GroupPull { active_max: Some(2), ..ANY }));
    let limit = Limit::Active(None);
    assert_eq!(served(&bed.run(1, &Command::Limit { queue: "q", limit })), [fourth]);
    assert_eq!(bed.shard.group("q", "a").unwrap().active, 2);
    assert_eq!(served(&bed.run(3, &Command::Disconnect)), [fifth]);
    bed.shard.audit().unwrap();
}

#[test]
fn a_pull_may_want_one_group_only_or_none() {
    let mut bed = Bed::new();
    fill(&mut bed, &[("a", 1), ("b", 2), ("b", 3)]);
    push(&mut bed, None, 4);
    let of = |group| GroupPull { only: Only::Group(group), ..ANY };
    let none = GroupPull { only: Only::Ungrouped, ..ANY };
    assert_eq!(numbers(&mut bed, 9, of("b")), [2, 3]);
    assert!(numbers(&mut bed, 9, of("x")).is_empty());
    assert_eq!(numbers(&mut bed, 9, none), [4]);
    assert!(numbers(&mut bed, 9, none).is_empty());
    // They wait, too, each for what it wants, for a group that is not known yet as well.
    let plain = wait(&mut bed, 1, Some(none));
    let b = wait(&mut bed, 2, Some(of("b")));
    let x = wait(&mut bed, 3, Some(of("x")));
    let any = pull_with(&mut bed, 1, ANY);
    assert_eq!(number(&bed, any[0].0), 1);
    let push = |bed: &mut Bed, group_id| {
        let job = NewJob { data: &[9], group_id, ..NewJob::default() };
        let replies = bed.run(9, &Command::Push { queue: "q", jobs: &[job] });
        bed.shard.audit().unwrap();
        served(&replies)
    };
    assert!(push(&mut bed, Some("c")).is_empty());
    assert_eq!(push(&mut bed, Some("x")), [x]);
    assert_eq!(push(&mut bed, None), [plain]);
    bed.run(1, &Command::Pause { queue: "q", paused: true });
    assert!(push(&mut bed, Some("b")).is_empty());
    let replies = bed.run(1, &Command::Pause { queue: "q", paused: false });
    assert_eq!(served(&replies), [b]);
    // A rate of the queue brings a token to a pull that wants one group.
    let rate = Limit::Rate(Some(PerSpan::per_second(1)));
    bed.run(1, &Command::Limit { queue: "q", limit: rate });
    assert_eq!(numbers(&mut bed, 9, ANY), [9]);
    push(&mut bed, Some("b"));
    let b = wait(&mut bed, 2, Some(of("b")));
    assert_eq!(served(&bed.pass(1000)), [b]);
}

#[test]
fn a_wait_for_a_group_that_ends_leaves_nothing_behind() {
    let mut bed = Bed::new();
    let of = GroupPull { only: Only::Group("nobody"), active_max: Some(4), ..ANY };
    for client in 1..4 {
        wait(&mut bed, client, Some(of));
    }
    assert_eq!(bed.shard.holdings().groups, 1);
    bed.run(1, &Command::Disconnect);
    bed.shard.audit().unwrap();
    bed.pass(60_000);
    assert_eq!(bed.shard.holdings().groups, 0);
    bed.shard.audit().unwrap();
    assert!(bed.shard.queues().next().is_none(), "nobody sees a queue in which nothing was");
}

#[test]
fn a_push_that_would_overfill_its_group_is_refused_whole() {
    let mut bed = Bed::new();
    let job = |number: &'static [u8], max| NewJob {
        data: number,
        group_id: Some("a"),
        group_max: max,
        ..NewJob::default()
    };
    let push = |bed: &mut Bed, jobs: &[NewJob<'_>]| bed.ask(1, &Command::Push { queue: "q", jobs });
    assert_eq!(push(&mut bed, &[job(&[1], 2), job(&[2], 2)]), Some(Reply::Pushed(0..2)));
    let full = |place| Some(Reply::Refused { place, refusal: Refusal::GroupFull });
    assert_eq!(push(&mut bed, &[job(&[3], 2)]), full(0));
    assert_eq!(push(&mut bed, &[job(&[3], 3), job(&[4], 3)]), full(1));
    assert_eq!(bed.shard.group("q", "a").unwrap().pending, 2, "none of them came");
    assert_eq!(push(&mut bed, &[job(&[3], 0)]), Some(Reply::Pushed(0..1)));
    // Jobs that workers have do not count, delayed ones do.
    assert_eq!(numbers(&mut bed, 2, ANY), [1, 2]);
    let delayed = NewJob { delay_ms: 500, ..job(&[4], 2) };
    assert_eq!(push(&mut bed, &[delayed]), Some(Reply::Pushed(0..1)));
    assert_eq!(push(&mut bed, &[job(&[5], 2)]), full(0));
    // A push that makes no job takes no room.
    let keyed = NewJob { unique_key: Some("k"), ..job(&[6], 3) };
    assert_eq!(push(&mut bed, &[keyed.clone(), keyed.clone()]), Some(Reply::Pushed(0..2)));
    assert_eq!(push(&mut bed, std::slice::from_ref(&keyed)), Some(Reply::Pushed(0..1)));
    let replace = Dedup { replace: true, ..Dedup::default() };
    let extras = Some(Box::new(Extras { dedup: Some(replace), ..Extras::default() }));
    assert_eq!(push(&mut bed, &[NewJob { extras, ..keyed }]), Some(Reply::Pushed(0..1)));
    assert_eq!(bed.shard.group("q", "a").unwrap().pending, 3);
    bed.shard.audit().unwrap();
}

#[test]
fn a_job_that_comes_back_comes_into_its_group_at_its_old_place() {
    let mut bed = Bed::new();
    set(&mut bed, "a", GroupLimit::Active(Some(1)));
    fill(&mut bed, &[("a", 1), ("a", 2), ("a", 3)]);
    let round = |bed: &mut Bed, back: &mut dyn FnMut(&mut Bed, JobId, Token)| {
        let (job, token) = pull_with(bed, 9, ANY)[0];
        assert_eq!(number(bed, job), 1);
        back(bed, job, token);
        bed.shard.audit().unwrap();
        assert_eq!(bed.shard.group("q", "a").unwrap().active, 0);
    };
    round(&mut bed, &mut |bed, job, token| {
        // A failure: while it is delayed, the next one has its turn.
        bed.fail(job, Some(token)).unwrap();
        let (second, token) = pull_with(bed, 9, ANY)[0];
        assert_eq!(number(bed, second), 2);
        let change = Change::ToWait { token: Some(token) };
        bed.run(1, &Command::Change { job: second, change });
        bed.pass(5000);
    });
    round(&mut bed, &mut |bed, _, _| {
        bed.pass(30_000);
    });
    round(&mut bed, &mut |bed, _, _| {
        bed.run(1, &Command::Disconnect);
    });
    round(&mut bed, &mut |bed, job, _| {
        bed.run(1, &Command::Change { job, change: Change::PutOff { delay_ms: 400, token: None } });
        bed.pass(400);
    });
    round(&mut bed, &mut |bed, job, _| {
        bed.run(1, &Command::Change { job, change: Change::Discard { token: None } });
        assert_eq!(bed.state(job), Some(State::Failed));
        bed.run(1, &Command::RetryFailed { queue: "q", job: None, count: 9 });
    });
    assert_eq!(numbers(&mut bed, 9, ANY), [1]);
}

#[test]
fn groups_and_what_is_set_for_them_survive_a_restart_and_the_loss_of_old_records() {
    let mut bed = Bed::new();
    let rate = Some(GroupRate { jobs: 5, span_ms: 60_000 });
    set(&mut bed, "a", GroupLimit::Rate(rate));
    set(&mut bed, "a", GroupLimit::Active(Some(2)));
    set(&mut bed, "b", GroupLimit::Paused(true));
    set(&mut bed, "c", GroupLimit::Weight(7));
    set(&mut bed, "d", GroupLimit::Hold(90_000));
    set(&mut bed, "e", GroupLimit::Active(Some(2)));
    set(&mut bed, "e", GroupLimit::Active(None));
    fill(&mut bed, &[("a", 1), ("b", 2), ("a", 3), ("a", 4)]);
    assert_eq!(numbers(&mut bed, 9, ANY), [1, 3]);
    for number in 0..200 {
        let job = bed.data("other", &[number]);
        bed.run(1, &Command::Change { job, change: Change::Cancel });
        bed.reclaim(16);
    }
    assert!(bed.journal.gone > 20, "the first records are gone");
    let before = bed.shard.facts();
    let mut again = bed.replayed();
    again.audit().unwrap();
    assert_eq!(again.facts(), before);
    let a = again.group("q", "a").unwrap();
    assert_eq!((a.active, a.pending, a.settings.rate), (2, 1, rate));
    again.restart(bed.now_ms);
    bed.shard = again;
    assert!(numbers(&mut bed, 9, ANY).is_empty(), "as many are active as may be");
    assert_eq!(bed.shard.holdings().group_settings, 4);
    // With the queue goes all of it.
    assert_eq!(bed.ask(1, &Command::Obliterate { queue: "q" }), Some(Reply::Done));
    bed.pass(0);
    let (mut again, now) = (bed.replayed(), &mut bed.shard);
    assert_eq!((now.holdings().groups, now.holdings().group_settings), (0, 0));
    assert_eq!((again.holdings().group_settings, again.group("q", "a")), (0, None));
    bed.shard.audit().unwrap();
}

#[test]
fn pulls_that_wait_while_their_queue_is_obliterated_get_what_comes_after() {
    let mut bed = Bed::new();
    fill(&mut bed, &[("a", 1), ("b", 2)]);
    set(&mut bed, "a", GroupLimit::Paused(true));
    set(&mut bed, "b", GroupLimit::Paused(true));
    let of = GroupPull { only: Only::Group("b"), ..ANY };
    let one = GroupPull { active_max: Some(1), ..ANY };
    let (b, any, plain) = (
        wait(&mut bed, 1, Some(of)),
        wait(&mut bed, 2, Some(one)),
        wait(&mut bed, 3, Some(GroupPull { only: Only::Ungrouped, ..ANY })),
    );
    bed.run(9, &Command::Obliterate { queue: "q" });
    bed.pass(0);
    bed.shard.audit().unwrap();
    let jobs = [Some("b"), None, Some("a")].map(|group_id| NewJob {
        data: &[1],
        group_id,
        ..NewJob::default()
    });
    let got = served(&bed.run(9, &Command::Push { queue: "q", jobs: &jobs }));
    assert_eq!(got, [b, any], "the one without a group went to the one that came first");
    let job = NewJob { data: &[2], ..NewJob::default() };
    assert_eq!(served(&bed.run(9, &Command::Push { queue: "q", jobs: &[job] })), [plain]);
    bed.shard.audit().unwrap();
    fill(&mut bed, &[("a", 3)]);
    assert_eq!(numbers(&mut bed, 9, ANY), [1], "what pulls have said goes with those that wait");
}

/// The place that a replaced job leaves in its group is for the job that replaces it alone.
#[test]
fn a_push_that_replaces_a_job_keeps_to_the_size_of_its_group() {
    let job = |group, key, replace| {
        let dedup = Some(Dedup { replace, ..Dedup::default() });
        let extras = Some(Box::new(Extras { dedup, ..Extras::default() }));
        NewJob {
            group_id: group,
            group_max: if group.is_some() { 2 } else { 0 },
            unique_key: Some(key),
            extras,
            ..NewJob::default()
        }
    };
    let full = Some(Reply::Refused { place: 0, refusal: Refusal::GroupFull });
    let pending = |bed: &mut Bed| bed.shard.group("q", "g").map_or(0, |group| group.pending);
    let mut bed = Bed::new();
    bed.push("q", job(None, "elsewhere", false));
    bed.push("q", job(Some("g"), "a", false));
    bed.push("q", job(Some("g"), "b", false));
    // From outside of the group there is no room.
    let outside = [job(Some("g"), "elsewhere", true)];
    assert_eq!(bed.ask(1, &Command::Push { queue: "q", jobs: &outside }), full);
    // Within it there is, for one each.
    bed.push("q", job(Some("g"), "a", true));
    assert_eq!(pending(&mut bed), 2);
    // The worker that has a job keeps it, and another one comes beside it.
    let pulled = bed.pull(1, "q", 3);
    assert_eq!((pulled.len(), pending(&mut bed)), (3, 0));
    bed.push("q", job(Some("g"), "a", true));
    bed.push("q", job(Some("g"), "b", true));
    for (job, token) in pulled {
        bed.ack(job, Some(token)).unwrap();
    }
    bed.push("q", job(Some("g"), "a", true));
    let third = [job(Some("g"), "c", true)];
    assert_eq!(bed.ask(1, &Command::Push { queue: "q", jobs: &third }), full);
    // Who leaves the group in the same push makes room for the next one.
    let swap = [job(None, "a", true), job(Some("g"), "c", true), job(Some("g"), "d", true)];
    let refused = Some(Reply::Refused { place: 2, refusal: Refusal::GroupFull });
    assert_eq!(bed.ask(1, &Command::Push { queue: "q", jobs: &swap }), refused);
    assert_eq!(pending(&mut bed), 2, "nothing of a push that is refused comes");
    bed.run(1, &Command::Push { queue: "q", jobs: &swap[..2] });
    assert_eq!(pending(&mut bed), 2);
    bed.shard.audit().unwrap();
}

#[test]
fn another_priority_changes_nothing_about_whose_turn_it_is() {
    let mut bed = Bed::new();
    let first = push(&mut bed, Some("a"), 1);
    fill(&mut bed, &[("b", 2), ("c", 3), ("c", 4)]);
    bed.run(
        1,
        &Command::Change { job: first, change: Change::Prioritize { priority: 7, lifo: None } },
    );
    bed.shard.audit().unwrap();
    assert_eq!(numbers(&mut bed, 4, ANY), [1, 2, 3, 4]);
}

#[test]
fn pulls_that_wait_for_one_group_are_served_in_their_order_by_the_limits_said_last() {
    let mut bed = Bed::new();
    fill(&mut bed, &[("g", 1), ("g", 2), ("g", 3)]);
    let g = GroupPull { only: Only::Group("g"), ..ANY };
    assert_eq!(numbers(&mut bed, 1, g), [1]);
    let modest = GroupPull { active_max: Some(1), ..g };
    let waiting = [10, 11, 12].map(|client| wait(&mut bed, client, Some(modest)));
    assert!(numbers(&mut bed, 1, g).is_empty(), "others are before it");
    let hasty = Pull { group: Some(&GroupPull { active_max: Some(3), ..g }), ..locked("q") };
    assert_eq!(served(&bed.run(20, &Command::Pull(hasty))), waiting[..2]);
    for client in 10..13 {
        bed.run(client, &Command::Disconnect);
        bed.shard.audit().unwrap();
    }
    assert_eq!(bed.shard.holdings().waiters, 0);
}

#[test]
fn a_job_that_is_put_off_by_nothing_leaves_its_group_its_turn() {
    let mut bed = Bed::new();
    let first = push(&mut bed, Some("g"), 1);
    push(&mut bed, Some("h"), 2);
    let change = Change::Delay { delay_ms: 0, token: None };
    assert_eq!(bed.ask(1, &Command::Change { job: first, change }), Some(Reply::Done));
    assert_eq!(numbers(&mut bed, 2, ANY), [1, 2]);
}
