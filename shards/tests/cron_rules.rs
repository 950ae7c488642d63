//! The rules of schedules. The fear: a run that overlaps another although it must not, one that is made up for
//! twice, and a schedule that waits for workers who are there.

use crate::support::{Bed, START_MS, locked};
use corq_shards::Config;
use corq_shards::command::{Command, GroupPull, Only, Pull, SetCron};
use corq_shards::cron::expression::Plan;
use corq_shards::effect::Reply;
use corq_shards::job::State;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::{Dedup, Extras};
use corq_shards::log_record::cron::CronRules;

fn every<'a>(rules: CronRules, job: Option<&'a NewJob<'a>>) -> SetCron<'a> {
    SetCron {
        name: "c",
        queue: "q",
        data: b"\x01",
        schedule: None,
        repeat_every_ms: Some(1000),
        timezone: None,
        priority: 0,
        runs_max: None,
        job,
        rules,
        plan: Plan::every(1000, None).unwrap(),
        moved: None,
    }
}

const NONE: CronRules = CronRules {
    immediately: false,
    skip_if_no_worker: false,
    catch_up: false,
    prevent_overlap: false,
    disabled: false,
};

fn open() -> Bed {
    let mut bed = Bed::new();
    bed.run(1, &Command::StartCrons);
    bed
}

fn set(bed: &mut Bed, cron: &SetCron<'_>) {
    let reply = bed.ask(1, &Command::SetCron(cron));
    assert!(matches!(reply, Some(Reply::Cron(Some(_)))), "{reply:?}");
}

fn waiting(bed: &mut Bed) -> u64 {
    bed.shard.queue("q").map_or(0, |queue| queue.count(State::Waiting))
}

fn runs(bed: &Bed) -> u64 {
    bed.shard.cron("c").unwrap().executions
}

/// Ends the process, and starts the next one after so long.
fn restart_after(bed: &mut Bed, ms: u64) {
    let facts = bed.shard.facts();
    bed.shard = bed.replayed();
    assert_eq!(bed.shard.facts(), facts);
    bed.now_ms += ms;
    bed.shard.restart(bed.now_ms);
    bed.run(1, &Command::StartCrons);
    bed.pass(0);
}

#[test]
fn a_schedule_that_is_to_run_immediately_does_once_and_then_on_its_cadence() {
    let mut bed = open();
    let rules = CronRules { immediately: true, ..NONE };
    set(&mut bed, &every(rules, None));
    bed.pass(0);
    assert_eq!((waiting(&mut bed), runs(&bed)), (1, 1));
    bed.pass(999);
    assert_eq!(runs(&bed), 1);
    bed.pass(1);
    assert_eq!(runs(&bed), 2);
    // Set anew, it goes on.
    bed.pass(400);
    set(&mut bed, &every(rules, None));
    bed.pass(599);
    assert_eq!(runs(&bed), 2);
    bed.pass(1);
    assert_eq!(runs(&bed), 3);
}

#[test]
fn a_run_that_was_promised_at_once_comes_also_if_its_schedule_is_set_anew_before() {
    let mut bed = open();
    let rules = CronRules { immediately: true, ..NONE };
    set(&mut bed, &every(rules, None));
    set(&mut bed, &every(rules, None));
    restart_after(&mut bed, 60_000);
    assert_eq!((waiting(&mut bed), runs(&bed)), (1, 1));
    restart_after(&mut bed, 60_000);
    set(&mut bed, &every(rules, None));
    assert_eq!(runs(&bed), 1);
}

#[test]
fn a_run_that_was_promised_at_once_comes_after_a_crash_too() {
    let mut bed = open();
    set(&mut bed, &every(CronRules { immediately: true, ..NONE }, None));
    restart_after(&mut bed, 60_000);
    assert_eq!((waiting(&mut bed), runs(&bed)), (1, 1));
    restart_after(&mut bed, 60_000);
    assert_eq!(runs(&bed), 1, "the others are passed over");
}

#[test]
fn runs_that_fell_due_while_the_server_was_down_are_made_up_for_by_one_if_they_are_to_be() {
    for (catch_up, expected) in [(false, 0), (true, 1)] {
        let mut bed = open();
        set(&mut bed, &every(CronRules { catch_up, ..NONE }, None));
        bed.pass(500);
        restart_after(&mut bed, 60_250);
        assert_eq!((waiting(&mut bed), runs(&bed)), (expected, expected), "{catch_up}");
        assert_eq!(bed.shard.cron("c").unwrap().next_run_ms, START_MS + 61_000, "on its cadence");
        restart_after(&mut bed, 0);
        assert_eq!(runs(&bed), expected, "once");
        bed.pass(250);
        assert_eq!(runs(&bed), expected + 1);
    }
}

/// The process was stopped, the machine was, or there was too much to do.
#[test]
fn runs_that_are_late_for_whatever_reason_are_made_up_for_by_one_if_they_are_to_be() {
    for (catch_up, expected) in [(false, 0), (true, 1)] {
        let mut bed = open();
        set(&mut bed, &every(CronRules { catch_up, ..NONE }, None));
        bed.pass(60_250);
        assert_eq!((waiting(&mut bed), runs(&bed)), (expected, expected), "{catch_up}");
        assert_eq!(bed.shard.cron("c").unwrap().next_run_ms, START_MS + 61_000, "on its cadence");
        bed.pass(750);
        assert_eq!(runs(&bed), expected + 1);
        bed.shard.audit().unwrap();
        assert_eq!(bed.replayed().facts(), bed.shard.facts());
    }
}

#[test]
fn no_run_begins_while_the_job_of_the_last_one_is_not_done() {
    let mut bed = open();
    set(&mut bed, &every(CronRules { prevent_overlap: true, ..NONE }, None));
    (0..5).for_each(|_| drop(bed.pass(1000)));
    assert_eq!((waiting(&mut bed), runs(&bed)), (1, 1), "it waits");
    let (id, token) = bed.pull(1, "q", 1)[0];
    bed.pass(1000);
    assert_eq!(runs(&bed), 1, "a worker has it");
    bed.fail(id, Some(token)).unwrap();
    bed.pass(1);
    assert_eq!((bed.state(id), runs(&bed)), (Some(State::Delayed), 1));
    restart_after(&mut bed, 0);
    bed.pass(3000);
    let (id, token) = bed.pull(1, "q", 1)[0];
    bed.ack(id, Some(token)).unwrap();
    bed.pass(1000);
    assert_eq!((waiting(&mut bed), runs(&bed)), (1, 2), "on its cadence again");
    let cron = bed.shard.cron("c").unwrap();
    assert_eq!((cron.next_run_ms - START_MS) % 1000, 0);
    bed.shard.audit().unwrap();
}

#[test]
fn without_that_rule_runs_follow_each_other_whatever_becomes_of_them() {
    let mut bed = open();
    set(&mut bed, &every(NONE, None));
    (0..5).for_each(|_| drop(bed.pass(1000)));
    assert_eq!((waiting(&mut bed), runs(&bed)), (5, 5));
}

#[test]
fn runs_that_were_prevented_do_not_count_for_the_limit() {
    let mut bed = open();
    let cron = every(CronRules { prevent_overlap: true, ..NONE }, None);
    set(&mut bed, &SetCron { runs_max: Some(2), ..cron });
    (0..4).for_each(|_| drop(bed.pass(1000)));
    let (id, token) = bed.pull(1, "q", 1)[0];
    bed.ack(id, Some(token)).unwrap();
    bed.pass(1000);
    assert!(bed.shard.cron("c").is_none() && waiting(&mut bed) == 1);
}

#[test]
fn a_key_of_its_own_stands_in_the_way_like_that_of_any_push_and_may_be_replaced() {
    let mut bed = open();
    let keyed = NewJob { unique_key: Some("k"), ..NewJob::default() };
    let id = bed.push("q", keyed.clone());
    set(&mut bed, &every(NONE, Some(&keyed)));
    bed.pass(1000);
    assert_eq!((waiting(&mut bed), runs(&bed)), (1, 0));
    let dedup = Some(Dedup { replace: true, ..Dedup::default() });
    let extras = Some(Box::new(Extras { dedup, ..Extras::default() }));
    set(&mut bed, &every(NONE, Some(&NewJob { extras, ..keyed })));
    bed.pass(1000);
    assert_eq!((waiting(&mut bed), runs(&bed), bed.state(id)), (1, 1, None));
    restart_after(&mut bed, 0);
    bed.shard.audit().unwrap();
}

#[test]
fn a_key_with_a_time_is_held_for_that_time_from_each_run() {
    let mut bed = open();
    let dedup = Some(Dedup { ttl_ms: 1500, ..Dedup::default() });
    let extras = Some(Box::new(Extras { dedup, ..Extras::default() }));
    let job = NewJob { unique_key: Some("k"), extras, ..NewJob::default() };
    set(&mut bed, &every(NONE, Some(&job)));
    (0..6).for_each(|_| drop(bed.pass(1000)));
    assert_eq!(runs(&bed), 3, "every second one");
}

#[test]
fn jobs_are_pushed_with_what_the_schedule_says() {
    let mut bed = open();
    let extras = Extras { stall_timeout_ms: Some(700), ..Extras::default() };
    let job = NewJob {
        delay_ms: 300,
        max_attempts: 7,
        backoff_ms: 5,
        timeout_ms: Some(90),
        remove_on_fail: true,
        extras: Some(Box::new(extras)),
        ..NewJob::default()
    };
    set(&mut bed, &every(NONE, Some(&job)));
    restart_after(&mut bed, 0);
    bed.pass(1000);
    assert_eq!(waiting(&mut bed), 0);
    bed.pass(300);
    let (id, _) = bed.pull(1, "q", 1)[0];
    let view = bed.shard.view(bed.shard.find(id).unwrap());
    assert_eq!((view.job.max_attempts, view.job.backoff_ms), (7, 5));
    assert_eq!((view.options.unwrap().timeout_ms, view.lease.unwrap().ttl_ms), (90, 700));
    assert!(view.job.has(corq_shards::job::flags::REMOVE_ON_FAIL));
}

/// A schedule of each second that wants workers.
fn wanting_workers() -> Bed {
    let mut bed = open();
    set(&mut bed, &every(CronRules { skip_if_no_worker: true, ..NONE }, None));
    bed
}

/// A pull of nothing that there is.
fn pull_in_vain(bed: &mut Bed, timeout_ms: u64) {
    let group = GroupPull { active_max: None, rate: None, only: Only::Group("nobody") };
    bed.run(1, &Command::Pull(Pull { timeout_ms, group: Some(&group), ..locked("q") }));
}

/// Runs in the next seconds.
fn runs_in(bed: &mut Bed, seconds: u64) -> u64 {
    let before = runs(bed);
    for _ in 0..seconds {
        bed.pass(1000);
    }
    bed.shard.audit().unwrap();
    runs(bed) - before
}

#[test]
fn a_schedule_that_wants_workers_runs_while_somebody_has_pulled_lately() {
    let mut bed = wanting_workers();
    assert_eq!(runs_in(&mut bed, 3), 0);
    // Nobody has ever pushed to it.
    assert!(bed.pull(1, "other", 1).is_empty());
    assert_eq!(runs_in(&mut bed, 3), 0);
    assert!(bed.pull(1, "q", 1).is_empty());
    assert_eq!(runs_in(&mut bed, 200), 89);
    // Of what was decided, a replay decides nothing anew.
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
    pull_in_vain(&mut bed, 0);
    assert_eq!(runs_in(&mut bed, 200), 89);
}

#[test]
fn a_schedule_that_wants_workers_runs_while_a_pull_waits_and_soon_after() {
    let mut bed = wanting_workers();
    pull_in_vain(&mut bed, 200_500);
    // The pull has waited until then.
    assert_eq!(runs_in(&mut bed, 400), 200 + 90);
}

#[test]
fn a_schedule_that_wants_workers_runs_while_one_has_a_job_and_soon_after() {
    let mut bed = wanting_workers();
    let job = bed.data("q", b"1");
    let pull = Pull { lock_ttl_ms: 600_000, ..locked("q") };
    bed.run(1, &Command::Pull(pull));
    let token = bed.effects.deliveries[0].token;
    assert_eq!(runs_in(&mut bed, 200), 200);
    bed.ack(job, token).unwrap();
    assert_eq!(runs_in(&mut bed, 200), 89);
}

/// The fear: among many names, that of the queue is forgotten with its pulls, since it has no job.
#[test]
fn pulls_of_a_queue_without_jobs_are_remembered_where_a_schedule_asks_for_them() {
    let mut bed = wanting_workers();
    bed.pull(1, "q", 1);
    for n in 0..5000 {
        let name = format!("other{n}");
        bed.run(2, &Command::Pull(Pull { timeout_ms: 1, ..locked(&name) }));
        bed.pass(if n % 100 == 0 { 10 } else { 0 });
    }
    assert_eq!(runs_in(&mut bed, 2), 2);
    let held = bed.shard.holdings().queues;
    assert!(held < 3000, "{held} queues");
}

#[test]
fn pulls_are_remembered_where_the_jobs_of_a_queue_are_obliterated() {
    let mut bed = wanting_workers();
    for _ in 0..2000 {
        bed.data("q", b"1");
    }
    pull_in_vain(&mut bed, 0);
    bed.run(1, &Command::Obliterate { queue: "q" });
    bed.shard.audit().unwrap();
    assert_eq!(runs_in(&mut bed, 200), 89);
    bed.run(1, &Command::RemoveCron { name: "c" });
    bed.shard.audit().unwrap();
}

#[test]
fn a_leap_of_the_clock_is_no_silence_of_those_who_pull() {
    let mut bed = wanting_workers();
    bed.pull(1, "q", 1);
    for _ in 0..2 {
        bed.now_ms += 600_000;
        bed.shard.put_off(600_000);
        // The run that was due meanwhile is too late.
        bed.pass(0);
    }
    assert_eq!(runs_in(&mut bed, 200), 89);
}

#[test]
fn runs_that_are_passed_over_take_nothing_of_what_may_be_pushed_in_a_second() {
    for rules in
        [CronRules { skip_if_no_worker: true, ..NONE }, CronRules { prevent_overlap: true, ..NONE }]
    {
        let mut bed = Bed::with(Config { scheduled_per_second: 1, ..crate::support::config(1) });
        bed.run(1, &Command::StartCrons);
        let names = ["s0", "s1", "s2", "s3"];
        for name in names {
            set(&mut bed, &SetCron { name, queue: name, ..every(rules, None) });
            if rules.prevent_overlap {
                let key = format!("cron:{name}");
                bed.push(name, NewJob { unique_key: Some(&key), ..NewJob::default() });
            }
        }
        set(&mut bed, &every(NONE, None));
        for second in 1..=5 {
            bed.pass(1000);
            assert_eq!(runs(&bed), second, "{rules:?}");
        }
        assert_eq!(bed.shard.holdings().scheduled_put_off, 0);
        assert_eq!(bed.shard.cron("s3").unwrap().executions, 0);
        bed.shard.audit().unwrap();
    }
}

#[test]
fn a_pull_that_says_something_of_groups_counts_as_a_worker_like_any_other() {
    let any = GroupPull { active_max: Some(2), rate: None, only: Only::Any };
    let ungrouped = GroupPull { active_max: None, only: Only::Ungrouped, ..any };
    for group in [any, ungrouped, GroupPull { only: Only::Group("g"), ..any }] {
        let mut bed = open();
        set(&mut bed, &every(CronRules { skip_if_no_worker: true, ..NONE }, None));
        let pull = Pull { timeout_ms: 1500, group: Some(&group), ..locked("q") };
        assert_eq!(bed.ask(1, &Command::Pull(pull)), None, "it waits");
        bed.pass(1000);
        assert_eq!(runs(&bed), 1, "{group:?}");
    }
}

#[test]
fn rules_are_told_again_when_the_beginning_of_the_log_goes() {
    let mut bed = open();
    let rules = CronRules { skip_if_no_worker: true, catch_up: true, ..NONE };
    let job = NewJob { max_attempts: 9, ..NewJob::default() };
    set(&mut bed, &every(rules, Some(&job)));
    for paused in [true, false].repeat(20) {
        bed.run(1, &Command::Pause { queue: "filler", paused });
    }
    while bed.journal.records.len() - bed.journal.gone > 16 {
        bed.reclaim(16);
    }
    restart_after(&mut bed, 0);
    let cron = bed.shard.cron("c").unwrap();
    assert_eq!((cron.rules, cron.job().max_attempts), (rules, 9));
}
