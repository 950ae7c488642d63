//! Schedules inside one shard. The fear: a run that is lost, doubled or late for good.

use crate::support::{Bed, START_MS};
use corq_shards::Config;
use corq_shards::command::{Command, SetCron};
use corq_shards::cron::LATE_MS_MAX;
use corq_shards::cron::expression::Plan;
use corq_shards::effect::Reply;
use corq_shards::job::State;
use corq_shards::job::new_job::{NewJob, Repeat};
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

/// The due times of the jobs in the queue, in order of delivery; they are done then.
fn due_times(bed: &mut Bed) -> Vec<u64> {
    let jobs = bed.pull(1, "q", 1000);
    let due = |(job, token)| {
        let due_ms = bed.shard.view(bed.shard.find(job).unwrap()).job.run_at_ms - START_MS;
        bed.ack(job, Some(token)).unwrap();
        due_ms
    };
    jobs.into_iter().map(due).collect()
}

#[test]
fn an_interval_runs_first_after_one_interval_and_keeps_its_cadence() {
    let mut bed = open();
    set(&mut bed, &every("c", 1000));
    bed.pass(999);
    assert!(due_times(&mut bed).is_empty());
    // However late the shard comes to it, the due times stay where they were.
    for late in [1, 1300, 700, 2001, 999] {
        bed.pass(late);
    }
    assert_eq!(due_times(&mut bed), [1000, 2000, 3000, 4000, 5000, 6000]);
    bed.shard.audit().unwrap();
    let cron = bed.shard.cron("c").unwrap();
    assert_eq!((cron.executions, cron.next_run_ms), (6, START_MS + 7000));
}

#[test]
fn a_run_is_one_record_and_its_job_carries_data_and_priority() {
    let mut bed = open();
    set(&mut bed, &every("c", 1000));
    let records = bed.journal.records.len();
    bed.pass(1000);
    assert_eq!(bed.journal.records.len(), records + 1, "the job and the next time are one fact");
    let (job, _) = bed.pull(1, "q", 1)[0];
    let view = bed.shard.view(bed.shard.find(job).unwrap());
    let record = &bed.journal.records[view.job.stored.position as usize];
    assert!(record.ends_with(b"\xa1x") && view.job.stored.payload_bytes == 2);
    assert_eq!(view.job.priority, 3);
}

#[test]
fn a_run_asks_for_the_room_that_its_record_takes() {
    let mut bed = open();
    let (name, queue, data) =
        ("n".repeat(200), "q".repeat(200), [vec![0xd9, 200], vec![b'x'; 200]]);
    set(&mut bed, &SetCron { name: &name, queue: &queue, data: &data.concat(), ..every("", 1000) });
    let before = bed.journal.records.len();
    bed.pass(1000);
    let takes: usize = bed.journal.records[before..].iter().map(Vec::len).sum();
    let asked = bed.journal.asked;
    assert!((takes as u64..takes as u64 + 1024).contains(&asked), "{asked} for {takes}");
}

#[test]
fn after_a_crash_no_run_is_doubled_and_missed_ones_are_skipped() {
    let mut bed = open();
    set(&mut bed, &every("c", 1000));
    bed.pass(2000);
    assert_eq!(due_times(&mut bed), [1000, 2000]);
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    bed.now_ms += 4500;
    bed.run(1, &Command::StartCrons);
    bed.pass(0);
    bed.pass(499);
    assert!(due_times(&mut bed).is_empty(), "what fell due while the server was down is skipped");
    bed.pass(1);
    assert_eq!(due_times(&mut bed), [7000], "on the old cadence");
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

#[test]
fn a_shard_that_is_not_open_yet_runs_nothing() {
    let mut bed = Bed::new();
    set(&mut bed, &every("c", 1000));
    assert!(bed.pass(5000).is_empty());
    assert!(due_times(&mut bed).is_empty());
}

#[test]
fn runs_that_are_far_too_late_are_skipped() {
    let mut bed = open();
    set(&mut bed, &every("c", 1));
    bed.pass(LATE_MS_MAX * 100);
    let cron = bed.shard.cron("c").unwrap();
    assert_eq!((cron.executions, cron.next_run_ms), (0, bed.now_ms + 1));
    bed.pass(3);
    assert_eq!(due_times(&mut bed).len(), 3);
}

#[test]
fn after_its_last_run_a_schedule_is_gone() {
    let mut bed = open();
    set(&mut bed, &SetCron { runs_max: Some(2), ..every("c", 1000) });
    bed.pass(1000);
    assert!(bed.effects.cron_ends.is_empty());
    bed.pass(1000);
    assert_eq!(bed.effects.cron_ends, ["c".into()]);
    bed.pass(9000);
    assert_eq!(due_times(&mut bed), [1000, 2000]);
    assert!(bed.shard.cron("c").is_none());
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

#[test]
fn setting_a_name_again_replaces_it_and_keeps_its_runs() {
    let mut bed = open();
    set(&mut bed, &every("c", 1000));
    bed.pass(3000);
    set(&mut bed, &SetCron { priority: 0, ..every("c", 700) });
    let cron = bed.shard.cron("c").unwrap();
    assert_eq!((cron.executions, cron.version, cron.next_run_ms), (3, 2, START_MS + 3700));
    assert_eq!(bed.shard.crons().count(), 1);
    // Three runs are behind it already: a third would be no limit but an end.
    let spent = SetCron { runs_max: Some(3), ..every("c", 1000) };
    let refused = Reply::CronSpent { executions: 3, has_ended: false };
    assert_eq!(bed.ask(1, &Command::SetCron(&spent)), Some(refused));
    assert_eq!(bed.shard.cron("c").unwrap().runs_max, None, "a refusal changes nothing");
    bed.shard.audit().unwrap();
}

#[test]
fn a_plan_that_never_comes_is_refused() {
    let mut bed = open();
    let never = Plan::at("0 0 31 2 *", None).unwrap();
    let cron = SetCron { schedule: Some("0 0 31 2 *"), plan: never, ..every("c", 1) };
    assert_eq!(bed.ask(1, &Command::SetCron(&cron)), Some(Reply::Cron(None)));
    assert!(bed.journal.records.is_empty() && bed.shard.cron("c").is_none());
}

#[test]
fn a_removed_schedule_runs_no_more() {
    let mut bed = open();
    set(&mut bed, &every("c", 1000));
    assert_eq!(bed.ask(1, &Command::RemoveCron { name: "c" }), Some(Reply::Count(1)));
    assert_eq!(bed.ask(1, &Command::RemoveCron { name: "c" }), Some(Reply::Count(0)));
    bed.pass(5000);
    assert!(due_times(&mut bed).is_empty());
    assert!(bed.replayed().cron("c").is_none());
}

#[test]
fn a_paused_queue_still_receives_its_jobs() {
    let mut bed = open();
    bed.ask(1, &Command::Pause { queue: "q", paused: true });
    set(&mut bed, &every("c", 1000));
    bed.pass(2000);
    assert!(due_times(&mut bed).is_empty());
    bed.ask(1, &Command::Pause { queue: "q", paused: false });
    assert_eq!(due_times(&mut bed), [1000, 2000]);
}

#[test]
fn a_schedule_that_is_held_neither_runs_nor_is_listed_until_it_is_let_go() {
    let mut bed = open();
    set(&mut bed, &every("c", 1000));
    let held = bed.ask(1, &Command::HoldCron { name: "c", held: true });
    assert!(matches!(held, Some(Reply::Cron(Some(_)))));
    bed.pass(1500);
    bed.shard.audit().unwrap();
    assert!(due_times(&mut bed).is_empty() && bed.shard.crons().next().is_none());
    bed.ask(1, &Command::HoldCron { name: "c", held: false });
    bed.pass(0);
    assert_eq!(due_times(&mut bed), [1000]);
}

/// The clock was ahead when a schedule ran last, and is right at the next start.
#[test]
fn a_schedule_does_not_wait_for_a_time_that_a_wrong_clock_has_shown() {
    const YEARS_MS: u64 = 65 * 365 * 86_400_000;
    let mut bed = open();
    set(&mut bed, &every("interval", 60_000));
    set(&mut bed, &SetCron { queue: "often", ..every("often", 4000) });
    let plan = Plan::at("*/5 * * * *", None).unwrap();
    let schedule = Some("*/5 * * * *");
    set(&mut bed, &SetCron { schedule, repeat_every_ms: None, plan, ..every("expression", 1) });
    set(&mut bed, &SetCron { runs_max: Some(9), ..every("seldom", 86_400_000) });
    let jobs = |bed: &mut Bed| {
        let pulled = bed.pull(1, "q", 1000);
        for &(job, token) in &pulled {
            bed.ack(job, Some(token)).unwrap();
        }
        pulled.len()
    };
    bed.now_ms += YEARS_MS;
    bed.pass(0);
    for _ in 0..6 {
        bed.pass(60_000);
    }
    assert!(jobs(&mut bed) >= 6);
    // Some that run by then are on time; what is a little ahead stays as it is.
    bed.now_ms = START_MS + 7000;
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    bed.run(1, &Command::StartCrons);
    bed.pass(0);
    let next = |bed: &Bed, name: &str| bed.shard.cron(name).unwrap().next_run_ms - bed.now_ms;
    assert!(next(&bed, "interval") <= 60_000, "{}", next(&bed, "interval"));
    assert!(next(&bed, "often") <= 4000, "{}", next(&bed, "often"));
    assert!(next(&bed, "expression") <= 300_000, "{}", next(&bed, "expression"));
    assert!(next(&bed, "seldom") <= 86_400_000, "{}", next(&bed, "seldom"));
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
    bed.pass(60_000);
    assert_eq!(jobs(&mut bed), 1);
    // A clock that is a little behind brings no run twice, and moves no cadence.
    let before = bed.shard.cron("interval").unwrap().next_run_ms;
    for now_ms in [bed.now_ms - 5000, before - 60_000 - LATE_MS_MAX] {
        bed.now_ms = now_ms;
        bed.shard = bed.replayed();
        bed.shard.restart(bed.now_ms);
        bed.run(1, &Command::StartCrons);
        bed.pass(0);
        assert_eq!(bed.shard.cron("interval").unwrap().next_run_ms, before);
    }
}

/// The log of a server that let schedules run as often as they liked, read by a shard that does not.
#[test]
fn schedules_and_repeats_of_an_old_log_are_spaced_out_on_their_cadence_and_none_is_lost() {
    let mut bed = open();
    set(&mut bed, &every("c", 3));
    let repeat = Some(Repeat { every_ms: 3, limit: None, count: 0 });
    bed.push("r", NewJob { repeat, ..NewJob::default() });
    bed.pass(3);
    assert_eq!(due_times(&mut bed), [3]);
    let config = Config { interval_min_ms: 100, ..bed.config };
    bed.shard = bed.replayed_with(config);
    bed.shard.restart(bed.now_ms);
    bed.run(1, &Command::StartCrons);
    for _ in 0..500 {
        bed.pass(1);
    }
    assert_eq!(due_times(&mut bed), [6, 108, 210, 312, 414]);
    let mut due = Vec::new();
    for _ in 0..3 {
        let (job, token) = bed.pull(1, "r", 1)[0];
        due.push(bed.shard.view(bed.shard.find(job).unwrap()).job.run_at_ms - START_MS);
        bed.ack(job, Some(token)).unwrap();
        bed.pass(150);
    }
    assert_eq!(due, [0, 504, 654], "each a whole number of intervals after the one before");
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed_with(config).facts(), bed.shard.facts());
}

#[test]
fn what_schedules_push_in_a_second_is_bounded_and_each_has_its_turn() {
    let mut bed = Bed::with(Config { scheduled_per_second: 100, ..crate::support::config(1) });
    bed.run(1, &Command::StartCrons);
    let names: Vec<String> = (0..70).map(|n| format!("c{n}")).collect();
    for name in &names {
        set(&mut bed, &every(name, 1));
    }
    for second in 1..=30_u64 {
        for _ in 0..100 {
            bed.pass(10);
        }
        let pushed = bed.shard.queue("q").unwrap().count(State::Waiting);
        assert!(pushed <= 100 * (second + 1), "{pushed} in {second} s");
        assert!(
            pushed >= 100 * second - 1,
            "{pushed} in {second} s: what is due comes as soon as it may"
        );
    }
    let runs: Vec<u64> =
        names.iter().map(|name| bed.shard.cron(name).unwrap().executions).collect();
    let (least, most) = (runs.iter().min().unwrap(), runs.iter().max().unwrap());
    assert!(*least >= 40 && most - least <= 2, "{runs:?}");
    assert!(bed.shard.holdings().scheduled_put_off > 2000);
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

#[test]
fn repeated_jobs_count_among_what_is_pushed_in_a_second() {
    let mut bed = Bed::with(Config { scheduled_per_second: 100, ..crate::support::config(1) });
    let repeat = Some(Repeat { every_ms: 1, limit: None, count: 0 });
    let job = NewJob { repeat, remove_on_complete: true, ..NewJob::default() };
    bed.push_all("r", &vec![job; 50]);
    let mut runs = 0;
    for _ in 0..1000 {
        for (job, token) in bed.pull(1, "r", 50) {
            bed.ack(job, Some(token)).unwrap();
            runs += 1;
        }
        bed.pass(10);
    }
    assert!((1000..=1000 + 100 + 50).contains(&runs), "{runs} runs in 10 s");
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

fn enable(bed: &mut Bed, enabled: bool) {
    enable_of(bed, "c", enabled);
}

fn enable_of(bed: &mut Bed, name: &str, enabled: bool) {
    let reply = bed.ask(1, &Command::EnableCron { name, enabled });
    assert!(matches!(reply, Some(Reply::Cron(Some(_)))), "{reply:?}");
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

#[test]
fn a_disabled_schedule_runs_nothing_and_goes_on_with_its_cadence() {
    let mut bed = open();
    set(&mut bed, &every("c", 1000));
    bed.pass(2500);
    enable(&mut bed, false);
    let records = bed.journal.records.len();
    assert!(bed.pass(3000).is_empty());
    assert_eq!(bed.journal.records.len(), records, "nothing is passed over that is not due");
    set(&mut bed, &every("c", 1000));
    assert!(!bed.shard.cron("c").unwrap().is_enabled(), "set anew, it stays disabled");
    bed.pass(400);
    enable(&mut bed, true);
    assert_eq!(bed.shard.cron("c").unwrap().next_run_ms, START_MS + 6000, "on its cadence");
    bed.pass(600);
    assert_eq!(due_times(&mut bed), [1000, 2000, 6000]);
    let unknown = bed.ask(1, &Command::EnableCron { name: "d", enabled: true });
    assert_eq!(unknown, Some(Reply::Cron(None)));
}

#[test]
fn a_schedule_that_moves_between_shards_stays_disabled() {
    let (mut from, mut to) = (open(), open());
    set(&mut from, &every("c", 1000));
    enable(&mut from, false);
    let moved = Some(from.shard.cron("c").unwrap().standing(&Plan::every(1000, None).unwrap()));
    from.run(1, &Command::HoldCron { name: "c", held: true });
    from.run(1, &Command::HoldCron { name: "c", held: false });
    assert!(from.pass(5000).is_empty());
    from.shard.audit().unwrap();
    set(&mut to, &SetCron { moved, ..every("c", 1000) });
    assert!(to.pass(5000).is_empty() && !to.shard.cron("c").unwrap().is_enabled());
    to.shard.audit().unwrap();
}

/// Logs have steps that are refused by now.
#[test]
fn a_step_that_is_larger_than_its_range_goes_on_in_a_log() {
    let mut bed = open();
    let schedule = Some("*/90 * * * *");
    let plan = Plan::recorded("*/90 * * * *", None).unwrap();
    set(&mut bed, &SetCron { schedule, repeat_every_ms: None, plan, ..every("c", 1) });
    let next_ms = bed.shard.cron("c").unwrap().next_run_ms;
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    bed.run(1, &Command::StartCrons);
    bed.pass(next_ms - bed.now_ms);
    let cron = bed.shard.cron("c").unwrap();
    assert_eq!((cron.executions, cron.next_run_ms), (1, next_ms + 3_600_000));
}

/// The rules of a zone that a log was written by, and those of the build that opens it.
#[test]
fn a_start_with_other_rules_of_zones_plans_next_runs_anew() {
    /// The start of 2026-11-28, in UTC.
    const NOV_28_MS: u64 = 1_795_824_000_000;
    const HOUR_MS: u64 = 3_600_000;
    for (zone, old_rules, before, after) in [
        ("America/Vancouver", "America/Los_Angeles", 17, 16),
        ("Africa/Casablanca", "Africa/Algiers", 8, 9),
        ("Europe/Berlin", "Europe/Berlin", 8, 8),
    ] {
        let mut bed = open();
        bed.now_ms = NOV_28_MS;
        let (schedule, plan) = (Some("0 9 * * *"), Plan::at("0 9 * * *", Some(old_rules)).unwrap());
        let cron = SetCron { schedule, repeat_every_ms: None, plan, ..every("c", 1) };
        let rules = CronRules { immediately: true, ..CronRules::default() };
        set(&mut bed, &SetCron { timezone: Some(zone), ..cron });
        set(&mut bed, &SetCron { name: "promised", timezone: Some(zone), rules, ..cron });
        let next = |bed: &Bed, name: &str| bed.shard.cron(name).unwrap().next_run_ms - NOV_28_MS;
        assert_eq!(next(&bed, "c"), before * HOUR_MS);
        bed.shard = bed.replayed();
        // A clock that is a little behind moves nothing that was promised.
        bed.now_ms -= 5000;
        bed.shard.restart(bed.now_ms);
        bed.run(1, &Command::StartCrons);
        bed.pass(0);
        assert_eq!((next(&bed, "c"), next(&bed, "promised")), (after * HOUR_MS, 0), "{zone}");
        bed.pass(5000);
        assert_eq!(due_times(&mut bed).len(), 1);
        bed.pass(after * HOUR_MS);
        assert_eq!(due_times(&mut bed).len(), 2);
        assert_eq!(next(&bed, "c"), (24 + after) * HOUR_MS);
        assert_eq!(bed.replayed().facts(), bed.shard.facts());
    }
}

#[test]
fn a_run_for_which_there_is_no_room_stays_due_until_there_is() {
    let mut bed = open();
    set(&mut bed, &every("c", 60_000));
    bed.pass(59_000);
    bed.journal.full.0 = true;
    bed.pass(1000);
    assert_eq!(bed.effects.crons_without_room, ["c".into()]);
    let records = bed.journal.records.len();
    for _ in 0..30 {
        bed.pass(1000);
        assert!(bed.effects.crons_without_room.is_empty(), "told once");
    }
    assert_eq!(bed.journal.records.len(), records, "nothing is passed over");
    let totals = bed.shard.census().totals;
    assert_eq!((totals.crons_without_room, totals.crons_missed), (1, 0));
    bed.journal.full.0 = false;
    bed.pass(1000);
    assert_eq!(due_times(&mut bed), [60_000]);
    let cron = bed.shard.cron("c").unwrap();
    assert_eq!((cron.executions, cron.next_run_ms), (1, START_MS + 120_000), "on its cadence");
    bed.journal.full.0 = true;
    bed.pass(29_000);
    assert_eq!(bed.effects.crons_without_room, ["c".into()], "of each run");
    // Many that it stands for are one.
    bed.pass(600_000);
    bed.journal.full.0 = false;
    bed.pass(1000);
    assert_eq!(due_times(&mut bed), [120_000]);
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}
