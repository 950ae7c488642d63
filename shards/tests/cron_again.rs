//! Schedules that are registered again, as by an application at each of its starts. The fear: a run that never comes because its
//! time is planned anew each time, one that is lost when its schedule is replaced, and one too many.

use crate::support::{Bed, START_MS};
use corq_shards::command::{Command, SetCron};
use corq_shards::cron::expression::Plan;
use corq_shards::effect::Reply;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::cron::CronRules;

fn every(name: &str, interval_ms: u64) -> SetCron<'_> {
    SetCron {
        name,
        queue: "q",
        data: b"\xa1x",
        schedule: None,
        repeat_every_ms: Some(interval_ms),
        timezone: None,
        priority: 3,
        runs_max: None,
        job: None,
        plan: Plan::every(interval_ms, None).unwrap(),
        rules: CronRules::default(),
        moved: None,
    }
}

/// A shard whose schedules run.
fn open() -> Bed {
    let mut bed = Bed::new();
    bed.run(1, &Command::StartCrons);
    bed
}

fn set(bed: &mut Bed, cron: &SetCron<'_>) {
    let reply = bed.ask(1, &Command::SetCron(cron));
    assert!(matches!(reply, Some(Reply::Cron(Some(_)))), "{reply:?}");
}

fn enable_of(bed: &mut Bed, name: &str, enabled: bool) {
    let reply = bed.ask(1, &Command::EnableCron { name, enabled });
    assert!(matches!(reply, Some(Reply::Cron(Some(_)))), "{reply:?}");
}

/// The due times of the jobs in the queue, which are done then.
fn due_times(bed: &mut Bed) -> Vec<u64> {
    let jobs = bed.pull(1, "q", 1000);
    let due = |(job, token)| {
        let due_ms = bed.shard.view(bed.shard.find(job).unwrap()).job.run_at_ms - START_MS;
        bed.ack(job, Some(token)).unwrap();
        due_ms
    };
    jobs.into_iter().map(due).collect()
}

/// The next process reads the log.
fn restart(bed: &mut Bed) {
    let facts = bed.shard.facts();
    bed.shard = bed.replayed();
    assert_eq!(bed.shard.facts(), facts);
    bed.shard.restart(bed.now_ms);
    bed.run(1, &Command::StartCrons);
    bed.shard.audit().unwrap();
}

/// The log goes on for so long that its beginning goes.
fn give_up_beginning(bed: &mut Bed) {
    let end = bed.journal.records.len();
    for paused in [true, false].repeat(20) {
        bed.run(1, &Command::Pause { queue: "filler", paused });
    }
    while bed.journal.gone < end {
        bed.reclaim(16);
    }
}

/// A schedule as an application registers it at each of its starts.
#[test]
fn a_schedule_that_is_registered_again_goes_on() {
    let mut bed = open();
    for second in 1..=10 {
        // Whatever else is another, its times are the same.
        set(&mut bed, &SetCron { priority: 10 - second, ..every("c", 3000) });
        bed.pass(2000);
    }
    assert_eq!(due_times(&mut bed), [3000, 6000, 9000, 12_000, 15_000, 18_000]);
    let plan = Plan::at("0 * * * *", None).unwrap();
    let hourly =
        SetCron { schedule: Some("0 * * * *"), repeat_every_ms: None, plan, ..every("d", 1) };
    set(&mut bed, &hourly);
    let next = |bed: &Bed| bed.shard.cron("d").unwrap().next_run_ms;
    let first = next(&bed);
    bed.pass(first - bed.now_ms - 1);
    let plan = Plan::at("@hourly", Some("UTC")).unwrap();
    set(&mut bed, &SetCron { schedule: Some("@hourly"), timezone: Some("UTC"), plan, ..hourly });
    assert_eq!(next(&bed), first);
    // Other times are planned from now on.
    set(&mut bed, &every("d", 7000));
    assert_eq!(next(&bed), bed.now_ms + 7000);
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

#[test]
fn a_run_that_is_due_when_its_schedule_is_replaced_happens() {
    let mut bed = open();
    set(&mut bed, &every("same", 1000));
    set(&mut bed, &every("other", 1000));
    bed.now_ms += 1000;
    set(&mut bed, &SetCron { priority: 9, ..every("same", 1000) });
    set(&mut bed, &every("other", 60_000));
    bed.pass(0);
    assert_eq!(due_times(&mut bed), [1000, 1000]);
    let next = |name: &str| bed.shard.cron(name).unwrap().next_run_ms - START_MS;
    assert_eq!((next("same"), next("other")), (2000, 61_000));
    // A schedule that is disabled has none.
    enable_of(&mut bed, "same", false);
    bed.now_ms += 5000;
    set(&mut bed, &every("same", 7000));
    enable_of(&mut bed, "same", true);
    bed.pass(0);
    assert!(due_times(&mut bed).is_empty());
    bed.shard.audit().unwrap();
}

#[test]
fn a_schedule_that_moves_between_shards_keeps_its_next_run_also_if_that_is_due() {
    for (interval_ms, next) in [(1000, 2000), (60_000, 61_000)] {
        let (mut from, mut to) = (open(), open());
        set(&mut from, &every("c", 1000));
        from.now_ms += 999;
        from.run(1, &Command::HoldCron { name: "c", held: true });
        let plan = Plan::every(interval_ms, None).unwrap();
        let moved = Some(from.shard.cron("c").unwrap().standing(&plan));
        from.pass(9000);
        assert!(due_times(&mut from).is_empty());
        to.now_ms += 1002;
        set(&mut to, &SetCron { moved, ..every("c", interval_ms) });
        to.pass(0);
        assert_eq!(due_times(&mut to), [1000], "every {interval_ms} ms");
        assert_eq!(to.shard.cron("c").unwrap().next_run_ms - START_MS, next);
        to.shard.audit().unwrap();
    }
}

#[test]
fn what_a_clock_that_was_ahead_has_planned_is_not_kept() {
    let mut bed = open();
    bed.now_ms += 1_000_000_000;
    set(&mut bed, &every("c", 1000));
    bed.now_ms -= 1_000_000_000;
    set(&mut bed, &every("c", 1000));
    assert_eq!(bed.shard.cron("c").unwrap().next_run_ms, START_MS + 1000);
}

fn ended(bed: &mut Bed, cron: &SetCron<'_>) -> bool {
    match bed.ask(1, &Command::SetCron(cron)) {
        Some(Reply::CronSpent { has_ended, .. }) => has_ended,
        Some(Reply::Cron(Some(_))) => false,
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn a_schedule_that_its_limit_has_ended_is_not_begun_again_by_the_same_registration() {
    let mut bed = open();
    let job = NewJob { remove_on_complete: true, ..NewJob::default() };
    let thrice =
        SetCron { runs_max: Some(3), data: b"\xa4data", job: Some(&job), ..every("c", 1000) };
    set(&mut bed, &thrice);
    (0..5).for_each(|_| drop(bed.pass(1000)));
    assert_eq!(due_times(&mut bed), [1000, 2000, 3000]);
    for round in 0..3 {
        let records = bed.journal.records.len();
        assert!(ended(&mut bed, &SetCron { priority: round, ..thrice }), "{round}");
        assert_eq!(bed.journal.records.len(), records);
        bed.pass(5000);
        restart(&mut bed);
    }
    assert!(due_times(&mut bed).is_empty());
    let holdings = bed.shard.holdings();
    assert_eq!((holdings.crons, holdings.crons_ended), (0, 1));
    // The payload of its jobs is not remembered, neither here nor in the log, however often that is written again.
    for _ in 0..3 {
        give_up_beginning(&mut bed);
        restart(&mut bed);
        assert!(ended(&mut bed, &thrice));
    }
    let kept = &bed.journal.records[bed.journal.gone..];
    assert!(!kept.iter().any(|record| record.ends_with(b"\xa4data")), "a payload is kept");
    // More runs are two more; other times are another schedule.
    set(&mut bed, &SetCron { runs_max: Some(5), ..thrice });
    assert_eq!(bed.shard.cron("c").unwrap().executions, 3);
    (0..5).for_each(|_| drop(bed.pass(1000)));
    assert_eq!(due_times(&mut bed).len(), 2);
    assert!(ended(&mut bed, &SetCron { runs_max: Some(4), ..thrice }));
    set(&mut bed, &SetCron { runs_max: Some(1), ..every("c", 2000) });
    assert_eq!(bed.shard.cron("c").unwrap().executions, 0);
    bed.pass(2000);
    assert_eq!(due_times(&mut bed).len(), 1);
    assert!(ended(&mut bed, &SetCron { runs_max: Some(1), ..every("c", 2000) }));
    restart(&mut bed);
    assert_eq!(bed.ask(1, &Command::RemoveCron { name: "c" }), Some(Reply::Count(1)));
    assert_eq!(bed.ask(1, &Command::RemoveCron { name: "c" }), Some(Reply::Count(0)));
    restart(&mut bed);
    set(&mut bed, &SetCron { runs_max: Some(1), ..every("c", 2000) });
    assert_eq!(bed.shard.holdings().crons_ended, 0);
}

#[test]
fn a_crash_between_the_last_run_and_its_end_leaves_one_that_has_ended() {
    let mut bed = open();
    let once = SetCron { runs_max: Some(1), ..every("c", 1000) };
    set(&mut bed, &once);
    bed.pass(1000);
    bed.journal.records.pop();
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    bed.run(1, &Command::StartCrons);
    assert!(ended(&mut bed, &once));
    bed.pass(60_000);
    assert_eq!(due_times(&mut bed).len(), 1);
    bed.shard.audit().unwrap();
    // The whole record is given up for what is remembered.
    give_up_beginning(&mut bed);
    bed.shard = bed.replayed();
    assert!(ended(&mut bed, &once));
}

#[test]
fn an_end_asks_for_the_room_that_it_takes() {
    let mut bed = open();
    let (name, zone) = ("n".repeat(256), "America/Argentina/ComodRivadavia");
    let schedule = format!("* * * * * {}*", "0,".repeat(2000));
    let plan = Plan::at(&schedule, Some(zone)).unwrap();
    let long = SetCron { schedule: Some(&schedule), timezone: Some(zone), plan, ..every(&name, 1) };
    set(&mut bed, &SetCron { repeat_every_ms: None, runs_max: Some(1), ..long });
    let before = bed.journal.records.len();
    bed.pass(1000);
    let takes: usize = bed.journal.records[before..].iter().map(Vec::len).sum();
    let asked = bed.journal.asked;
    assert!((takes as u64..takes as u64 + 1024).contains(&asked), "{asked} for {takes}");
}
