//! Events as listeners get them. The fear: a step that no listener hears of, that is heard twice, or in the wrong
//! order.

use crate::support::Bed;
use corq_shards::command::{Ack, Clean, Command, Fail, SetCron};
use corq_shards::cron::expression::Plan;
use corq_shards::dependency::Unmet;
use corq_shards::effect::KnownAs;
use corq_shards::event::{Event, Step};
use corq_shards::family::NewFamily;
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::log_record::cron::CronRules;
use corq_shards::log_record::location::LogRef;

fn listening() -> Bed {
    let mut bed = Bed::new();
    bed.shard.listen(true);
    bed
}

fn payload(bed: &Bed, stored: LogRef) -> String {
    let record = &bed.journal.records[stored.position as usize];
    let text = &record[record.len() - stored.payload_bytes as usize..];
    String::from_utf8_lossy(text).into_owned()
}

fn told(bed: &Bed, event: &Event) -> String {
    let name = event.step.name();
    match event.step {
        Step::Pushed => format!("{name} {}", payload(bed, event.data)),
        Step::Completed { result } => format!("{name} {}", payload(bed, result)),
        Step::Failed { error, terminal } => {
            let last = if terminal { " for good" } else { "" };
            format!("{name} {}{last}", payload(bed, error))
        }
        Step::Retried { prev } | Step::Removed { prev } => format!("{name} {}", prev.name()),
        Step::Progress(progress) => format!("{name} {progress}"),
        Step::Delayed { delay_ms } => format!("{name} {delay_ms}"),
        Step::Pulled
        | Step::Stalled
        | Step::Duplicated
        | Step::WaitingChildren
        | Step::Drained
        | Step::Paused
        | Step::Extra(_)
        | Step::Resumed => name.to_owned(),
    }
}

/// The events of the last call, as names with their fields.
fn heard(bed: &Bed) -> Vec<String> {
    bed.effects.events.iter().map(|event| told(bed, event)).collect()
}

fn change(bed: &mut Bed, job: JobId, change: Change<'_>) {
    bed.run(1, &Command::Change { job, change });
}

fn fail(bed: &mut Bed, queue: &str, unrecoverable: bool) -> JobId {
    let (job, token) = bed.pull(1, queue, 1)[0];
    let token = Some(token);
    bed.run(
        1,
        &Command::Fail(Fail { job, token, error: "boom", unrecoverable, ..Fail::default() }),
    );
    job
}

fn ack(bed: &mut Bed, queue: &str) -> JobId {
    let (job, token) = bed.pull(1, queue, 1)[0];
    bed.run(
        1,
        &Command::Ack {
            acks: &[Ack { job, token: Some(token), result: b"\xa4done", remove: false }],
        },
    );
    job
}

#[test]
fn pushed_tells_the_data_the_queue_the_id_and_the_time() {
    let mut bed = listening();
    bed.pass(77);
    let id = bed.data("q", b"1");
    let [event] = &bed.effects.events[..] else { panic!("{:?}", bed.effects.events) };
    assert_eq!(told(&bed, event), "pushed 1");
    assert_eq!((&*event.queue, event.at_ms), ("q", bed.now_ms));
    assert_eq!(event.job, Some(KnownAs::Id(id)));
    bed.push("r", NewJob { custom_id: Some("mine"), ..NewJob::default() });
    let event = &bed.effects.events[0];
    assert_eq!((&*event.queue, &event.job), ("r", &Some(KnownAs::Custom("mine".into()))));
}

#[test]
fn pushed_is_told_of_each_job_of_a_push_and_before_a_worker_has_it() {
    let mut bed = listening();
    let pull =
        corq_shards::command::Pull { timeout_ms: 9, count: 5, ..crate::support::locked("q") };
    bed.run(1, &Command::Pull(pull));
    assert!(bed.effects.events.is_empty());
    let job = |data| NewJob { data, ..NewJob::default() };
    bed.run(2, &Command::Push { queue: "q", jobs: &[job(b"1"), job(b"2")] });
    assert_eq!(heard(&bed), ["pushed 1", "pushed 2", "pulled", "pulled"]);
    let jobs: Vec<_> = bed.effects.events.iter().map(|event| event.job.clone()).collect();
    assert_eq!((&jobs[0], &jobs[1]), (&jobs[2], &jobs[3]));
}

#[test]
fn pushed_is_told_of_the_jobs_of_a_schedule() {
    let mut bed = listening();
    bed.run(1, &Command::StartCrons);
    let cron = SetCron {
        name: "c",
        queue: "q",
        data: b"tick",
        schedule: None,
        repeat_every_ms: Some(500),
        timezone: None,
        priority: 0,
        runs_max: Some(1),
        job: None,
        plan: Plan::every(500, None).unwrap(),
        rules: CronRules::default(),
        moved: None,
    };
    bed.run(1, &Command::SetCron(&cron));
    bed.pass(500);
    assert_eq!(heard(&bed), ["pushed tick"]);
}

#[test]
fn pulled_is_told_of_each_job_pulled() {
    let mut bed = listening();
    bed.data("q", b"1");
    bed.data("q", b"2");
    bed.pull(1, "q", 5);
    assert_eq!(heard(&bed), ["pulled", "pulled"]);
    bed.pull(1, "q", 5);
    assert!(heard(&bed).is_empty());
}

#[test]
fn completed_tells_the_result_and_the_data_though_the_job_is_forgotten() {
    for remove_on_complete in [false, true] {
        let mut bed = listening();
        let custom_id = Some("mine");
        bed.push("q", NewJob { data: b"1", remove_on_complete, custom_id, ..NewJob::default() });
        ack(&mut bed, "q");
        assert_eq!(heard(&bed), ["completed \u{fffd}done"], "no event says that it was removed");
        let event = &bed.effects.events[0];
        assert_eq!(event.job, Some(KnownAs::Custom("mine".into())));
        assert_eq!(payload(&bed, event.data), "1");
    }
}

#[test]
fn a_run_of_a_repeated_job_is_completed_before_the_next_one_is_pushed() {
    let mut bed = listening();
    let repeat = Some(Repeat { every_ms: 400, limit: None, count: 0 });
    bed.push("q", NewJob { data: b"1", repeat, ..NewJob::default() });
    let first = ack(&mut bed, "q");
    assert_eq!(heard(&bed), ["completed \u{fffd}done", "pushed 1", "delayed 400"]);
    let jobs: Vec<_> = bed.effects.events.iter().map(|event| event.job.clone()).collect();
    assert!(jobs[0] == Some(KnownAs::Id(first)) && jobs[1] != jobs[0] && jobs[2] == jobs[1]);
}

#[test]
fn failed_and_retried_are_told_of_an_attempt_that_another_follows() {
    let mut bed = listening();
    bed.push("q", NewJob { max_attempts: 2, backoff_ms: 9, ..NewJob::default() });
    fail(&mut bed, "q", false);
    assert_eq!(heard(&bed), ["failed boom", "retried failed"], "a backoff is no delay");
    bed.pass(20);
    assert!(heard(&bed).is_empty());
    fail(&mut bed, "q", false);
    assert_eq!(heard(&bed), ["failed boom for good"], "nothing follows the last one");
}

#[test]
fn failed_tells_the_error_though_the_job_is_forgotten() {
    let mut bed = listening();
    bed.push("q", NewJob { remove_on_fail: true, ..NewJob::default() });
    let job = fail(&mut bed, "q", true);
    assert_eq!(heard(&bed), ["failed boom for good"], "no event says that it was removed");
    assert_eq!(bed.state(job), None);
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

#[test]
fn failed_is_told_of_a_job_that_takes_too_long_or_is_discarded() {
    let mut bed = listening();
    bed.push("q", NewJob { timeout_ms: Some(50), max_attempts: 2, ..NewJob::default() });
    bed.pull(1, "q", 1);
    bed.pass(50);
    assert_eq!(heard(&bed), ["failed Job timeout exceeded", "retried failed"]);
    let job = bed.data("q", b"1");
    change(&mut bed, job, Change::Discard { token: None });
    assert_eq!(heard(&bed), ["failed Job discarded for good"]);
    change(&mut bed, job, Change::Discard { token: None });
    assert!(heard(&bed).is_empty(), "it is there already");
}

#[test]
fn retried_tells_which_end_a_job_came_back_from() {
    let mut bed = listening();
    for count in [1, u64::MAX] {
        bed.data("q", b"1");
        let job = fail(&mut bed, "q", true);
        let job = (count == 1).then_some(job);
        bed.run(1, &Command::RetryFailed { queue: "q", job, count });
        assert_eq!(heard(&bed), ["retried failed"]);
        ack(&mut bed, "q");
        bed.run(
            1,
            &Command::RetryCompleted { queue: "q", job, count: u64::MAX, until_ms: u64::MAX },
        );
        assert_eq!(heard(&bed), ["retried completed"]);
        bed.run(1, &Command::Obliterate { queue: "q" });
    }
}

#[test]
fn progress_tells_how_far_a_worker_is() {
    let mut bed = listening();
    let job = bed.data("q", b"1");
    change(&mut bed, job, Change::Progress { progress: 1.0, message: None });
    assert!(heard(&bed).is_empty(), "no worker has it");
    bed.pull(1, "q", 1);
    change(&mut bed, job, Change::Progress { progress: 12.5, message: Some(b"on my way") });
    assert_eq!(heard(&bed), ["progress 12.5"]);
}

#[test]
fn stalled_is_told_each_time_and_failed_once_it_is_too_often() {
    let mut bed = listening();
    bed.push("q", NewJob { max_attempts: 10, ..NewJob::default() });
    for stall in 1..=3 {
        bed.pull(1, "q", 1);
        bed.pass(30_000);
        let last = ["stalled", "failed Job stalled 3 times for good"];
        assert_eq!(heard(&bed), last[..if stall < 3 { 1 } else { 2 }]);
    }
}

#[test]
fn removed_tells_where_the_job_stood_whatever_removed_it() {
    let mut bed = listening();
    let job = bed.push("q", NewJob { delay_ms: 900, ..NewJob::default() });
    change(&mut bed, job, Change::Cancel);
    assert_eq!(heard(&bed), ["removed delayed"]);
    bed.push("q", NewJob { ttl_ms: Some(50), ..NewJob::default() });
    bed.pass(50);
    assert_eq!(heard(&bed), ["removed waiting"]);
    bed.data("q", b"1");
    fail(&mut bed, "q", true);
    bed.run(1, &Command::PurgeFailed { queue: "q" });
    assert_eq!(heard(&bed), ["removed failed"]);
    bed.data("q", b"1");
    ack(&mut bed, "q");
    let states = &[State::Completed];
    bed.run(1, &Command::Clean(Clean { queue: "q", grace_ms: 0, states, limit: 9 }));
    assert_eq!(heard(&bed), ["removed completed"]);
    bed.data("q", b"1");
    bed.pull(1, "q", 1);
    bed.run(1, &Command::Obliterate { queue: "q" });
    assert_eq!(heard(&bed), ["removed active"]);
    assert_eq!(&*bed.effects.events[0].queue, "q", "though there is no such queue any more");
}

#[test]
fn completed_jobs_that_make_room_or_grow_old_are_not_told_of() {
    let mut bed = listening();
    for _ in 0..21 {
        bed.data("q", b"1");
        ack(&mut bed, "q");
        assert_eq!(heard(&bed), ["completed \u{fffd}done"]);
    }
    bed.pass(700_000);
    assert_eq!(bed.known().count(), 0);
    assert!(bed.effects.events.is_empty());
}

#[test]
fn delayed_tells_for_how_long_after_a_push_and_after_a_worker_put_it_off() {
    let mut bed = listening();
    let job = bed.push("q", NewJob { data: b"1", delay_ms: 700, ..NewJob::default() });
    assert_eq!(heard(&bed), ["pushed 1", "delayed 700"]);
    bed.pass(700);
    assert!(heard(&bed).is_empty());
    bed.pull(1, "q", 1);
    change(&mut bed, job, Change::PutOff { delay_ms: 300, token: None });
    assert_eq!(heard(&bed), ["delayed 300"]);
    change(&mut bed, job, Change::Promote);
    bed.pull(1, "q", 1);
    change(&mut bed, job, Change::PutOff { delay_ms: 0, token: None });
    assert!(heard(&bed).is_empty(), "it waits again and is not delayed");
}

#[test]
fn duplicated_names_the_job_that_stood_in_the_way() {
    let mut bed = listening();
    let job = NewJob { unique_key: Some("k"), custom_id: Some("first"), ..NewJob::default() };
    bed.push("q", job.clone());
    bed.push("q", NewJob { custom_id: Some("second"), ..job });
    assert_eq!(heard(&bed), ["duplicated"]);
    assert_eq!(bed.effects.events[0].job, Some(KnownAs::Custom("first".into())));
}

#[test]
fn waiting_children_is_told_and_the_rest_of_a_delay_when_the_waiting_ends() {
    let mut bed = listening();
    let part = bed.data("part", b"1");
    let mut unmet = Vec::new();
    Unmet::push(&mut unmet, part, "");
    let unmet = Unmet::new(&unmet);
    bed.push("q", NewJob { data: b"2", unmet, delay_ms: 100, ..NewJob::default() });
    assert_eq!(heard(&bed), ["pushed 2", "waiting-children"]);
    let watches: Vec<_> = bed.effects.notices.clone();
    bed.run(0, &Command::Notice(watches[0]));
    bed.pass(30);
    ack(&mut bed, "part");
    let completed = bed.effects.notices[0];
    bed.run(0, &Command::Notice(completed));
    assert_eq!(heard(&bed), ["delayed 70"]);
    bed.run(0, &Command::Notice(completed));
    assert!(heard(&bed).is_empty(), "a notice that comes twice is told of once");
}

/// A job with a delay that waits for a child as well; both of them.
fn with_child(bed: &mut Bed, delay_ms: u64) -> (JobId, JobId) {
    let child = bed.data("c", b"child");
    let mut open = Vec::new();
    Unmet::push(&mut open, child, "c");
    let family =
        NewFamily { children: b"\x91\xa1c", open: Unmet::new(&open), ..NewFamily::default() };
    let job = NewJob { data: b"p", delay_ms, family: Some(Box::new(family)), ..NewJob::default() };
    let parent = bed.push("p", job);
    bed.carry_notices();
    (parent, child)
}

#[test]
fn the_rest_of_a_delay_is_told_when_the_last_child_is_let_go() {
    let mut bed = listening();
    let (parent, child) = with_child(&mut bed, 500);
    bed.pass(100);
    change(&mut bed, parent, Change::LetGo { child, name: "c" });
    assert_eq!(heard(&bed), ["delayed 400"]);
    assert_eq!(bed.state(parent), Some(State::Delayed));
}

#[test]
fn waiting_children_is_told_of_a_job_that_gets_a_child_while_it_waits() {
    let mut bed = listening();
    let parent = bed.data("p", b"parent");
    let (first, second) = (bed.data("c", b"1"), bed.data("c", b"2"));
    change(&mut bed, parent, Change::Adopt { child: first, name: "1" });
    assert_eq!(heard(&bed), ["waiting-children"]);
    change(&mut bed, parent, Change::Adopt { child: second, name: "2" });
    assert!(heard(&bed).is_empty(), "it waits already");
}

#[test]
fn a_wait_between_two_attempts_is_not_told_as_a_delay_when_a_child_ends_meanwhile() {
    let mut bed = listening();
    let parent = bed.data("p", b"parent");
    bed.data("c", b"child");
    let (_, token) = bed.pull(1, "p", 1)[0];
    let (child, child_token) = bed.pull(2, "c", 1)[0];
    change(&mut bed, parent, Change::Adopt { child, name: "c" });
    bed.carry_notices();
    bed.fail(parent, Some(token)).unwrap();
    assert_eq!(bed.state(parent), Some(State::Delayed));
    bed.ack(child, Some(child_token)).unwrap();
    let reports = std::mem::take(&mut bed.effects.reports);
    for report in &reports {
        crate::support::family::deliver(&mut bed, report);
        assert!(heard(&bed).is_empty(), "{:?}", heard(&bed));
    }
    assert_eq!((reports.len(), bed.state(parent)), (1, Some(State::Delayed)));
}

#[test]
fn drained_comes_last_and_names_no_job() {
    let mut bed = listening();
    for _ in 0..700 {
        bed.data("q", b"1");
    }
    bed.run(1, &Command::Drain { queue: "q" });
    assert!(!heard(&bed).contains(&"drained".to_owned()), "it goes on");
    bed.pass(0);
    let (last, before) = bed.effects.events.split_last().unwrap();
    assert!(before.iter().all(|event| event.step == Step::Removed { prev: State::Waiting }));
    assert_eq!((last.step, &*last.queue, &last.job), (Step::Drained, "q", &None));
    bed.run(1, &Command::Drain { queue: "nobody knows it" });
    assert_eq!(heard(&bed), ["drained"]);
    bed.run(1, &Command::PurgeFailed { queue: "q" });
    assert!(heard(&bed).is_empty(), "only a drain drains");
}

#[test]
fn paused_and_resumed_are_told_of_the_queue_once_each_and_before_what_follows() {
    let mut bed = listening();
    bed.run(1, &Command::Pause { queue: "q", paused: false });
    assert!(heard(&bed).is_empty(), "it was not paused");
    for _ in 0..2 {
        bed.run(1, &Command::Pause { queue: "q", paused: true });
    }
    assert!(heard(&bed).is_empty(), "it was paused already");
    bed.run(1, &Command::Pause { queue: "p", paused: true });
    let event = &bed.effects.events[0];
    assert_eq!((event.step, &*event.queue, &event.job), (Step::Paused, "p", &None));
    bed.data("p", b"1");
    let pull = corq_shards::command::Pull { timeout_ms: 99, ..crate::support::locked("p") };
    bed.run(2, &Command::Pull(pull));
    bed.run(1, &Command::Pause { queue: "p", paused: false });
    assert_eq!(heard(&bed), ["resumed", "pulled"]);
}

#[test]
fn the_events_of_a_whole_life_come_in_its_order() {
    let mut bed = listening();
    let mut life = Vec::new();
    let job = NewJob { data: b"1", delay_ms: 10, backoff_ms: 0, ..NewJob::default() };
    let job = bed.push("q", job);
    life.append(&mut heard(&bed));
    bed.pass(10);
    life.append(&mut heard(&bed));
    let (_, token) = bed.pull(1, "q", 1)[0];
    life.append(&mut heard(&bed));
    change(&mut bed, job, Change::Progress { progress: 50.0, message: None });
    life.append(&mut heard(&bed));
    // Another worker sleeps: it gets the job in the same call in which the first one fails it.
    let pull = corq_shards::command::Pull { timeout_ms: 99, ..crate::support::locked("q") };
    bed.run(2, &Command::Pull(pull));
    bed.fail(job, Some(token)).unwrap();
    life.append(&mut heard(&bed));
    bed.pass(30_000);
    life.append(&mut heard(&bed));
    ack(&mut bed, "q");
    life.append(&mut heard(&bed));
    bed.run(1, &Command::Obliterate { queue: "q" });
    life.append(&mut heard(&bed));
    let expected = [
        "pushed 1",
        "delayed 10",
        "pulled",
        "progress 50",
        "failed boom",
        "retried failed",
        "pulled",
        "stalled",
        "completed \u{fffd}done",
        "removed completed",
    ];
    assert_eq!(life, expected);
}

#[test]
fn nothing_is_collected_while_nobody_listens() {
    let mut bed = Bed::new();
    for round in 0..3 {
        bed.shard.listen(round == 1);
        let mut heard = 0;
        bed.push("q", NewJob { unique_key: Some("k"), ..NewJob::default() });
        heard += bed.effects.events.len();
        fail(&mut bed, "q", false);
        heard += bed.effects.events.len();
        bed.run(1, &Command::Drain { queue: "q" });
        heard += bed.effects.events.len();
        bed.run(1, &Command::Obliterate { queue: "q" });
        heard += bed.effects.events.len();
        assert_eq!(heard > 0, round == 1, "round {round}");
        if round == 0 {
            assert_eq!(bed.effects.events.capacity(), 0);
        }
    }
}

#[test]
fn after_a_restart_nobody_listens_until_somebody_does_again() {
    let mut bed = listening();
    bed.push("q", NewJob { max_attempts: 9, ..NewJob::default() });
    bed.pull(1, "q", 1);
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    bed.pass(30_000);
    assert!(bed.effects.events.is_empty());
    bed.pull(1, "q", 1);
    bed.shard.listen(true);
    bed.pass(30_000);
    assert_eq!(heard(&bed), ["stalled"], "what comes in the middle of a life is told");
}
