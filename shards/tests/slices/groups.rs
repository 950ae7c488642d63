//! Groups for which something is set, as many as a shard takes.

use super::*;
use corq_shards::Shard;
use corq_shards::command::GroupLimit;

/// Weights of `count` groups of a queue.
fn weigh(bed: &mut Bed, queue: &str, count: usize) {
    for n in 0..count {
        let group = format!("g-{n}");
        let limit = Command::LimitGroup { queue, group: &group, limit: GroupLimit::Weight(2) };
        assert_eq!(bed.ask(1, &limit), Some(Reply::Count(1)));
    }
}

fn weight(shard: &mut Shard, group: &str) -> Option<u32> {
    shard.group("q", group).map(|group| group.settings.weight)
}

/// Whatever the queue has beside: jobs, or only that.
fn is_cleared_in_slices(jobs: usize) {
    let mut bed = Bed::new();
    weigh(&mut bed, "q", MANY);
    push_many(&mut bed, "q", jobs, &NewJob { group_id: Some("g-7"), ..NewJob::default() });
    let (most, reply) = longest(&mut bed, &Command::Obliterate { queue: "q" });
    assert_eq!(reply, Some(Reply::Done));
    assert!((1..=STEPS_MAX).contains(&most), "{most} steps in a call");
    bed.shard.audit().unwrap();
    assert_eq!(weight(&mut bed.shard, "g-7"), None);
    assert_eq!(bed.shard.needed_bytes(), 0, "nothing of the log is needed for it");
    assert_eq!(weight(&mut bed.replayed(), "g-7"), None);
}

#[test]
fn what_is_set_for_many_groups_of_an_obliterated_queue_is_cleared_in_slices() {
    is_cleared_in_slices(0);
    is_cleared_in_slices(10);
}

#[test]
fn what_is_set_while_the_groups_of_an_obliterated_queue_are_cleared_stays() {
    let mut bed = Bed::new();
    weigh(&mut bed, "q", MANY);
    assert_eq!(bed.ask(1, &Command::Obliterate { queue: "q" }), None, "it takes a while");
    assert_eq!(weight(&mut bed.shard, "g-7"), None, "to clients nothing is set any more");
    weigh(&mut bed, "q", 10);
    // Records that the log says are not needed any more go, although memory still counts their settings.
    for _ in 0..3 * MANY {
        bed.reclaim(1 << SPAN_BITS);
    }
    while tick(&mut bed) {}
    bed.shard.audit().unwrap();
    for shard in [&mut bed.replayed(), &mut bed.shard] {
        assert_eq!(weight(shard, "g-7"), Some(2));
        assert_eq!(weight(shard, "g-10"), None);
    }
}

#[test]
fn a_hold_that_ends_in_an_obliterated_queue_is_of_no_group_of_the_next_one() {
    let mut bed = Bed::new();
    weigh(&mut bed, "q", MANY);
    // The last one set is the last one cleared.
    let hold = GroupLimit::Hold(5);
    let hold = Command::LimitGroup { queue: "q", group: "held", limit: hold };
    assert_eq!(bed.ask(1, &hold), Some(Reply::Count(1)));
    assert_eq!(bed.ask(1, &Command::Obliterate { queue: "q" }), None, "it takes a while");
    let weight_of_held = GroupLimit::Weight(3);
    let again = Command::LimitGroup { queue: "q", group: "held", limit: weight_of_held };
    assert_eq!(bed.ask(1, &again), Some(Reply::Count(1)));
    bed.now_ms += 10;
    while tick(&mut bed) {}
    bed.shard.audit().unwrap();
    for shard in [&mut bed.replayed(), &mut bed.shard] {
        assert_eq!(weight(shard, "held"), Some(3));
    }
}

#[test]
fn holds_that_end_together_end_in_slices() {
    let mut bed = Bed::new();
    bed.run(1, &Command::LimitGroup { queue: "q", group: "other", limit: GroupLimit::Weight(2) });
    let names: Vec<String> = (0..MANY).map(|n| format!("g-{n}")).collect();
    for some in names.chunks(500) {
        let job = |name| NewJob { group_id: Some(name), ..NewJob::default() };
        let jobs: Vec<NewJob<'_>> = some.iter().map(|name| job(name.as_str())).collect();
        bed.push_all("q", &jobs);
    }
    for group in &names {
        let limit = Command::LimitGroup { queue: "q", group, limit: GroupLimit::Hold(5) };
        assert_eq!(bed.ask(1, &limit), Some(Reply::Count(1)));
    }
    bed.now_ms += 5;
    let held = |bed: &Bed| bed.shard.holdings().group_settings;
    let before = held(&bed);
    let most = steps(&mut bed, |bed| assert!(tick(bed), "there is more to do"));
    assert!((1..=STEPS_MAX).contains(&most), "{most} steps");
    assert!(before - held(&bed) <= 2 * SLICE, "{} are left", held(&bed));
    // A push, which looks at the groups as well, ends no more of them than a slice.
    let before = held(&bed);
    let one = NewJob { group_id: Some("g-1"), ..NewJob::default() };
    assert!(steps(&mut bed, |bed| _ = bed.push("q", one)) <= STEPS_MAX);
    assert!(before - held(&bed) <= SLICE);
    while tick(&mut bed) {}
    assert_eq!(held(&bed), 1);
    bed.shard.audit().unwrap();
}
