//! How many groups may have settings, and what rates and settings cost.

use super::*;
use corq_shards::{GROUP_SETTINGS_MAX, GROUPS_LINGERING_MAX};

#[test]
fn as_many_groups_have_settings_as_may() {
    let mut bed = Bed::new();
    for group in 0..GROUP_SETTINGS_MAX {
        let (group, limit) = (format!("g{group}"), GroupLimit::Paused(true));
        let reply = bed.ask(1, &Command::LimitGroup { queue: "q", group: &group, limit });
        assert_eq!(reply, Some(Reply::Count(1)));
    }
    let refused = |refusal| Some(Reply::Refused { place: 0, refusal });
    let too_many = set(&mut bed, "more", GroupLimit::Paused(true));
    assert_eq!(too_many, refused(Refusal::GroupSettings));
    assert_eq!(set(&mut bed, "g7", GroupLimit::Weight(2)), Some(Reply::Count(1)));
    let resumed = bed
        .ask(1, &Command::LimitGroup { queue: "q", group: "g8", limit: GroupLimit::Paused(false) });
    assert_eq!(resumed, Some(Reply::Count(1)));
    assert_eq!(set(&mut bed, "more", GroupLimit::Paused(true)), Some(Reply::Count(1)));
}

/// With a look at each group that may not run, this would be two thousand million looks, and never end.
#[test]
fn groups_that_may_not_run_cost_pulls_nothing() {
    const GROUPS: u32 = 40_000;
    let mut bed = Bed::new();
    let one = GroupPull { active_max: Some(1), ..ANY };
    for group in 0..GROUPS {
        let name = format!("g{group}");
        let job = NewJob { data: &[1], group_id: Some(&name), ..NewJob::default() };
        bed.run(1, &Command::Push { queue: "q", jobs: &[job.clone(), job] });
    }
    let pull = |bed: &mut Bed, count| {
        let pull = Pull { count, group: Some(&one), locked: false, ..locked("q") };
        // A pull that comes before all groups have been looked at may have to wait for that.
        let reply = bed.ask(1, &Command::Pull(pull));
        match reply.or_else(|| (0..3).find_map(|_| bed.pass(1).pop()).map(|(_, reply)| reply)) {
            Some(Reply::Pulled(range)) => range.len(),
            other => panic!("{other:?}"),
        }
    };
    let mut active = 0;
    while active < GROUPS as usize {
        active += pull(&mut bed, 1000);
    }
    for _ in 0..50_000 {
        assert_eq!(pull(&mut bed, 1), 0);
    }
    bed.shard.audit().unwrap();
}

/// The harness must be able to see a group that gives too many.
#[test]
fn canary_a_group_that_gives_a_job_too_many_is_noticed() {
    let mut bed = Bed::new();
    set(&mut bed, "a", GroupLimit::Active(Some(3)));
    fill(&mut bed, &[("a", 1), ("a", 2), ("a", 3)]);
    assert_ne!(numbers(&mut bed, 9, ANY), [1, 2]);
}

/// Guards against a pull that gets what time brings since it came at that moment, before those that wait.
#[test]
fn a_pull_that_comes_as_a_hold_ends_does_not_overtake_those_that_wait() {
    let mut bed = Bed::new();
    let one = GroupPull { active_max: Some(1), ..ANY };
    let only_a = GroupPull { only: Only::Group("a"), ..ANY };
    fill(&mut bed, &[("a", 1), ("a", 2), ("a", 3)]);
    set(&mut bed, "a", GroupLimit::Hold(100));
    let (any, choosy) = (wait(&mut bed, 1, Some(one)), wait(&mut bed, 2, Some(only_a)));
    // The clock has gone on, and nobody has looked yet.
    bed.now_ms += 100;
    let replies = bed.run(3, &Command::Pull(locked("q")));
    // The pull that takes jobs of this group only goes first; then the group is full.
    assert_eq!(served(&replies), [choosy]);
    bed.shard.audit().unwrap();
    assert_eq!(served(&bed.run(2, &Command::Disconnect)), [any]);
    bed.shard.audit().unwrap();
}

#[test]
fn a_full_disk_takes_no_more_settings_of_groups_and_gives_back_those_it_has() {
    let mut bed = Bed::new();
    fill(&mut bed, &[("a", 1)]);
    set(&mut bed, "a", GroupLimit::Paused(true));
    set(&mut bed, "a", GroupLimit::Hold(100));
    let before = bed.shard.facts();
    bed.journal.full.0 = true;
    bed.journal.no_asides = true;
    let full = Some(Reply::Refused { place: 0, refusal: Refusal::Full });
    let rate = GroupRate { jobs: 1, span_ms: 1 };
    for limit in [
        GroupLimit::Active(Some(1)),
        GroupLimit::Rate(Some(rate)),
        GroupLimit::Weight(2),
        GroupLimit::Hold(500),
    ] {
        assert_eq!(set(&mut bed, "a", limit), full, "{limit:?}");
        assert_eq!(set(&mut bed, "b", limit), full, "{limit:?}");
    }
    assert_eq!(set(&mut bed, "b", GroupLimit::Paused(true)), full);
    assert_eq!(bed.shard.facts(), before);
    // A command that takes a setting back is always taken, and so is the end of a setting's time.
    assert_eq!(set(&mut bed, "a", GroupLimit::Paused(false)), Some(Reply::Count(1)));
    bed.pass(100);
    assert_eq!(bed.shard.holdings().group_settings, 0);
    assert_eq!(numbers(&mut bed, 9, ANY), [1]);
}

fn complete(bed: &mut Bed, group: GroupPull<'_>) -> usize {
    let pulled = pull_with(bed, 10, group);
    for &(job, token) in &pulled {
        bed.ack(job, Some(token)).unwrap();
    }
    pulled.len()
}

/// A rate that pulls bring counts jobs, and jobs may go: what has left of them has left.
#[test]
fn a_rate_that_pulls_bring_outlives_the_last_job_of_the_group() {
    let rate = |jobs| GroupPull { rate: Some(GroupRate { jobs, span_ms: 1000 }), ..ANY };
    let mut bed = Bed::new();
    let job = || NewJob { group_id: Some("g"), remove_on_complete: true, ..NewJob::default() };
    let mut given = 0;
    for _ in 0..5 {
        bed.push("q", job());
        given += complete(&mut bed, rate(1));
        bed.run(1, &Command::Drain { queue: "q" });
        bed.pass(10);
    }
    assert_eq!(given, 1, "of at most 1 in a second");
    // Nothing of it is left when the span is over.
    bed.pass(1000);
    bed.shard.audit().unwrap();
    assert_eq!(bed.shard.holdings().groups, 0);
    bed.push("q", job());
    assert_eq!(complete(&mut bed, rate(1)), 1);
    // Nor of a queue that is obliterated.
    bed.push("q", job());
    bed.run(1, &Command::Obliterate { queue: "q" });
    bed.pass(0);
    bed.shard.audit().unwrap();
    assert_eq!(bed.shard.holdings().groups, 0);
}

#[test]
fn groups_that_are_remembered_for_a_rate_only_have_a_limit() {
    let rate = GroupPull { rate: Some(GroupRate { jobs: 1, span_ms: 1_000_000 }), ..ANY };
    let mut bed = Bed::new();
    let names: Vec<String> = (0..GROUPS_LINGERING_MAX + 10).map(|n| format!("g{n}")).collect();
    for names in names.chunks(1000) {
        let job =
            |name| NewJob { group_id: Some(name), remove_on_complete: true, ..NewJob::default() };
        let jobs: Vec<NewJob<'_>> = names.iter().map(|name| job(name.as_str())).collect();
        bed.run(1, &Command::Push { queue: "q", jobs: &jobs });
        let pull = Pull { count: 1000, group: Some(&rate), ..locked("q") };
        bed.run(1, &Command::Pull(pull));
        let pulled: Vec<(JobId, Token)> =
            bed.effects.deliveries.iter().map(|one| (bed.id(one), one.token.unwrap())).collect();
        assert_eq!(pulled.len(), names.len());
        for (job, token) in pulled {
            bed.ack(job, Some(token)).unwrap();
        }
    }
    let held = bed.shard.holdings();
    assert_eq!((held.groups_lingering, held.groups_forgotten), (GROUPS_LINGERING_MAX, 10));
    assert_eq!(held.groups as u64, GROUPS_LINGERING_MAX);
    bed.shard.audit().unwrap();
    // They go in slices with the queue.
    bed.data("q", b"1");
    bed.run(1, &Command::Obliterate { queue: "q" });
    bed.pass(0);
    bed.shard.audit().unwrap();
    assert_eq!((bed.shard.holdings().groups, bed.shard.holdings().queues), (0, 0));
}
