//! Limits that pulls bring: the last that were said count for the whole queue.

use super::*;

fn at_most(max: u64) -> GroupPull<'static> {
    GroupPull { active_max: Some(max), ..ANY }
}

fn rate(jobs: u64, span_ms: u64) -> GroupPull<'static> {
    GroupPull { rate: Some(GroupRate { jobs, span_ms }), ..ANY }
}

fn push_to(bed: &mut Bed, groups: &[Option<&str>]) -> Vec<RequestId> {
    let job = |&group_id| NewJob { data: &[9], group_id, ..NewJob::default() };
    let jobs: Vec<NewJob<'_>> = groups.iter().map(job).collect();
    let replies = bed.run(9, &Command::Push { queue: "q", jobs: &jobs });
    bed.shard.audit().unwrap();
    served(&replies)
}

#[test]
fn the_limits_said_last_count_for_every_pull() {
    let mut bed = Bed::new();
    for number in 1..8 {
        fill(&mut bed, &[("a", number), ("b", 100 + number)]);
    }
    assert_eq!(numbers(&mut bed, 9, at_most(1)), [1, 101]);
    assert!(numbers(&mut bed, 9, ANY).is_empty(), "one that says nothing");
    let only = |only| GroupPull { only, ..at_most(2) };
    assert!(numbers(&mut bed, 9, only(Only::Ungrouped)).is_empty());
    assert!(numbers(&mut bed, 9, ANY).is_empty(), "one that wants no groups says nothing of them");
    assert_eq!(numbers(&mut bed, 9, only(Only::Group("b"))), [102]);
    assert_eq!(numbers(&mut bed, 9, ANY), [2], "one that wants one group says it for all");
    assert!(numbers(&mut bed, 9, only(Only::Group("unknown"))).is_empty());
    assert!(numbers(&mut bed, 9, at_most(1)).is_empty());
    // A limit that is left out is none.
    assert_eq!(numbers(&mut bed, 9, rate(2, 500)), [103, 3, 104, 4]);
    assert!(numbers(&mut bed, 9, ANY).is_empty());
    assert_eq!(numbers(&mut bed, 9, at_most(5)), [105, 5]);
    // Settings of a group come before them, each of the two for itself.
    set(&mut bed, "a", GroupLimit::Active(Some(6)));
    assert_eq!(numbers(&mut bed, 9, at_most(5)), [6]);
}

#[test]
fn limits_that_pulls_bring_are_forgotten_with_the_last_group_unless_a_pull_waits() {
    let mut bed = Bed::new();
    let round = |bed: &mut Bed| {
        for _ in 0..3 {
            let job = NewJob { group_id: Some("a"), remove_on_complete: true, ..NewJob::default() };
            bed.push("q", job);
        }
        let pulled = pull_with(bed, 9, ANY);
        for &(job, token) in &pulled {
            bed.ack(job, Some(token)).unwrap();
        }
        bed.shard.audit().unwrap();
        pulled.len()
    };
    assert_eq!(round(&mut bed), 3);
    pull_with(&mut bed, 1, at_most(1));
    assert_eq!(round(&mut bed), 3, "there was no group to which it was said");
    wait(&mut bed, 4, None);
    pull_with(&mut bed, 1, at_most(1));
    assert_eq!(bed.shard.limits_of_pulls("q"), (Some(1), None), "for the one that waits");
    bed.run(4, &Command::Disconnect);
    assert_eq!(bed.shard.limits_of_pulls("q"), (None, None));
    wait(&mut bed, 5, Some(at_most(1)));
    wait(&mut bed, 6, None);
    bed.run(5, &Command::Disconnect);
    assert_eq!(push_to(&mut bed, &[Some("a"), Some("a")]).len(), 1, "for the other that waits");
    assert!(numbers(&mut bed, 9, ANY).is_empty());
    assert_eq!(bed.shard.limits_of_pulls("q"), (Some(1), None));
    bed.run(1, &Command::Obliterate { queue: "q" });
    bed.pass(0);
    assert_eq!(round(&mut bed), 3);
    assert_eq!(bed.shard.limits_of_pulls("q"), (None, None));
}

#[test]
fn other_limits_find_the_groups_that_were_blocked_for_whatever_waits() {
    for only in [Only::Any, Only::Group("z")] {
        let mut bed = Bed::new();
        fill(&mut bed, &[("z", 1), ("z", 2), ("z", 3)]);
        assert_eq!(numbers(&mut bed, 9, at_most(1)), [1]);
        let waiting = wait(&mut bed, 2, Some(GroupPull { only, ..at_most(1) }));
        let other = GroupPull { only: Only::Group("y"), ..at_most(2) };
        let other = Pull { group: Some(&other), ..locked("q") };
        assert_eq!(served(&bed.run(3, &Command::Pull(other))), [waiting], "{only:?}");
        bed.shard.audit().unwrap();
        assert!(numbers(&mut bed, 9, ANY).is_empty());
        // And those that may not run any more do not.
        assert!(numbers(&mut bed, 9, at_most(2)).is_empty());
        fill(&mut bed, &[("x", 4), ("x", 5), ("x", 6)]);
        assert_eq!(numbers(&mut bed, 9, at_most(1)), [4]);
        assert_eq!(numbers(&mut bed, 9, at_most(9)), [3, 5, 6], "{only:?}");
    }
}

#[test]
fn another_rate_counts_what_has_left_before_it() {
    let mut bed = Bed::new();
    for number in 1..9 {
        fill(&mut bed, &[("a", number)]);
    }
    assert_eq!(numbers(&mut bed, 9, rate(1, 9000)), [1]);
    bed.pass(1000);
    assert_eq!(numbers(&mut bed, 9, rate(2, 2000)), [2]);
    assert!(numbers(&mut bed, 9, rate(1, 9000)).is_empty());
    // By a shorter span it is over, and that counts at once.
    bed.now_ms += 500;
    assert_eq!(numbers(&mut bed, 9, rate(1, 300)), [3]);
    let z = wait(&mut bed, 2, Some(rate(1, 9000)));
    bed.now_ms += 300;
    let other = Pull { group: Some(&rate(1, 300)), ..locked("q") };
    assert_eq!(served(&bed.run(3, &Command::Pull(other))), [z]);
    bed.shard.audit().unwrap();
    // Said by turns, neither lets more go than the more patient one.
    let mut given = 0;
    for _ in 0..50 {
        given += numbers(&mut bed, 9, rate(1, 1000)).len();
        given += numbers(&mut bed, 9, rate(1, 1001)).len();
        bed.pass(10);
    }
    assert_eq!(given, 0);
}

#[test]
fn pulls_that_want_one_group_come_first_and_the_others_in_the_order_of_their_arrival() {
    let mut bed = Bed::new();
    let plain = GroupPull { only: Only::Ungrouped, ..ANY };
    let g = GroupPull { only: Only::Group("g"), ..ANY };
    let plain_1 = wait(&mut bed, 1, Some(plain));
    let any_2 = wait(&mut bed, 2, Some(at_most(1)));
    let plain_3 = wait(&mut bed, 3, Some(plain));
    let g_4 = wait(&mut bed, 4, Some(g));
    let any_5 = wait(&mut bed, 5, None);
    let g_6 = wait(&mut bed, 6, Some(g));
    assert_eq!(push_to(&mut bed, &[Some("g"), Some("g")]), [g_4], "at most one of them at a time");
    assert_eq!(push_to(&mut bed, &[None]), [plain_1]);
    assert_eq!(push_to(&mut bed, &[None, None]), [any_2, plain_3]);
    let other = Pull { group: Some(&at_most(2)), ..locked("q") };
    assert_eq!(served(&bed.run(7, &Command::Pull(other))), [g_6], "and not the one before it");
    bed.shard.audit().unwrap();
    assert_eq!(push_to(&mut bed, &[Some("h")]), [any_5]);
    assert_eq!(bed.shard.holdings().waiters, 0);
}
