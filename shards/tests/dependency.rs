//! Jobs that wait for jobs, as the shards of both see it. The fear: a dependent that runs too early,
//! twice, or never.

use crate::support::{Bed, START_MS};
use corq_shards::command::{Clean, Command};
use corq_shards::dependency::{News, Notice, Standing, Unmet};
use corq_shards::effect::{Ending, Reply};
use corq_shards::family::{End, NewFamily, Policy};
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::location::LogRef;
use corq_shards::query::LOOKS_PER_STEP;

fn unmet(on: &[JobId]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &id in on {
        Unmet::push(&mut bytes, id, "");
    }
    bytes
}

/// Pushes a job that waits, and lets the shards of the others know.
#[allow(clippy::needless_pass_by_value, reason = "a literal in the call reads better")]
fn push_waiting(bed: &mut Bed, queue: &str, on: &[JobId], job: NewJob<'_>) -> JobId {
    let bytes = unmet(on);
    let id = bed.push(queue, NewJob { unmet: Unmet::new(&bytes), ..job });
    bed.carry_notices();
    id
}

fn finish(bed: &mut Bed, queue: &str) -> JobId {
    let (id, token) = bed.pull(1, queue, 1)[0];
    bed.ack(id, Some(token)).unwrap();
    id
}

fn reason(bed: &Bed, id: JobId) -> String {
    let outcome = bed.shard.view(bed.shard.find(id).unwrap()).outcome.unwrap();
    let record = &bed.journal.records[outcome.stored.position as usize];
    let text = &record[record.len() - outcome.stored.payload_bytes as usize..];
    String::from_utf8(text.to_vec()).unwrap()
}

#[test]
fn a_dependent_waits_for_the_last_of_all_it_depends_on() {
    let mut bed = Bed::new();
    let parts: Vec<JobId> = (0..3).map(|_| bed.data("part", b"1")).collect();
    let whole = push_waiting(&mut bed, "whole", &parts, NewJob::default());
    for _ in &parts {
        assert_eq!(bed.state(whole), Some(State::WaitingChildren));
        assert!(bed.pull(1, "whole", 1).is_empty());
        finish(&mut bed, "part");
        bed.carry_notices();
    }
    assert_eq!(bed.pull(1, "whole", 1)[0].0, whole);
    assert_eq!(bed.shard.census().waiting_children, 0);
    bed.shard.audit().unwrap();
}

#[test]
fn a_dependency_that_completes_between_the_check_and_the_push_is_not_missed() {
    for keep in [false, true] {
        let mut bed = Bed::new();
        let part = bed.push("part", NewJob { remove_on_complete: keep, ..NewJob::default() });
        assert_eq!(bed.shard.standing(part), Standing::Open);
        finish(&mut bed, "part");
        assert_eq!(bed.shard.standing(part), Standing::Completed);
        let whole = push_waiting(&mut bed, "whole", &[part], NewJob::default());
        assert_eq!(bed.state(whole), Some(State::Waiting));
    }
}

#[test]
fn a_delay_still_counts_once_all_are_done() {
    let mut bed = Bed::new();
    let parts = [bed.data("part", b"1"), bed.data("part", b"2")];
    let delayed = NewJob { delay_ms: 5000, ..NewJob::default() };
    let early = push_waiting(&mut bed, "whole", &parts[..1], delayed.clone());
    let late = push_waiting(&mut bed, "whole", &parts[1..], delayed);
    finish(&mut bed, "part");
    bed.carry_notices();
    assert_eq!(bed.state(early), Some(State::Delayed));
    bed.pass(5000);
    assert_eq!(bed.state(early), Some(State::Waiting));
    assert_eq!(bed.state(late), Some(State::WaitingChildren));
    finish(&mut bed, "part");
    bed.carry_notices();
    assert_eq!(bed.state(late), Some(State::Waiting));
}

#[test]
fn a_dependency_in_the_dead_letter_queue_keeps_its_dependent_waiting() {
    let mut bed = Bed::new();
    let part = bed.push("part", NewJob { max_attempts: 1, ..NewJob::default() });
    let whole = push_waiting(&mut bed, "whole", &[part], NewJob::default());
    let (_, token) = bed.pull(1, "part", 1)[0];
    bed.fail(part, Some(token)).unwrap();
    bed.carry_notices();
    assert_eq!(bed.state(whole), Some(State::WaitingChildren));
    bed.run(1, &Command::RetryFailed { queue: "part", job: Some(part), count: 1 });
    finish(&mut bed, "part");
    bed.carry_notices();
    assert_eq!(bed.state(whole), Some(State::Waiting));
}

#[test]
fn a_dependency_that_is_removed_sends_its_dependent_to_the_dead_letter_queue() {
    let mut bed = Bed::new();
    let mortal = bed.push("part", NewJob { ttl_ms: Some(100), ..NewJob::default() });
    let fails = NewJob { max_attempts: 1, remove_on_fail: true, ..NewJob::default() };
    let failing = bed.push("other", fails);
    let of_mortal = push_waiting(&mut bed, "whole", &[mortal, failing], NewJob::default());
    let of_failing = push_waiting(&mut bed, "whole", &[failing], NewJob::default());
    let forgotten = NewJob { remove_on_fail: true, ..NewJob::default() };
    let forgotten = push_waiting(&mut bed, "whole", &[failing], forgotten);
    let last = push_waiting(&mut bed, "whole", &[forgotten], NewJob::default());
    bed.pass(100);
    bed.carry_notices();
    assert_eq!(reason(&bed, of_mortal), format!("Dependency removed: {mortal}"));
    assert_eq!(bed.state(of_failing), Some(State::WaitingChildren));
    let (_, token) = bed.pull(1, "other", 1)[0];
    bed.fail(failing, Some(token)).unwrap();
    bed.carry_notices();
    assert_eq!(reason(&bed, of_failing), format!("Dependency removed: {failing}"));
    assert_eq!(bed.state(forgotten), None);
    assert_eq!(reason(&bed, last), format!("Dependency removed: {forgotten}"));
    assert_eq!(bed.shard.holdings().watches, 0, "nobody waits any more");
    bed.shard.audit().unwrap();
}

#[test]
fn what_a_failed_child_leaves_to_its_parent_keeps_nobody_else_waiting() {
    let mut bed = Bed::new();
    let family =
        NewFamily { parent: Some("p"), policy: Some(Policy::Ignore), ..NewFamily::default() };
    let family = Some(Box::new(family));
    let fails = NewJob { max_attempts: 1, remove_on_fail: true, family, ..NewJob::default() };
    let child = bed.push("part", fails);
    let (_, token) = bed.pull(1, "part", 1)[0];
    bed.fail(child, Some(token)).unwrap();
    assert_eq!(bed.shard.standing(child), Standing::Open, "its parent may still come");
    let other = push_waiting(&mut bed, "whole", &[child], NewJob::default());
    assert_eq!(reason(&bed, other), format!("Dependency removed: {child}"));
    assert_eq!((bed.shard.holdings().watches, bed.shard.holdings().unreported), (0, 1));
    let parent = with_child(&mut bed, child);
    let watch =
        Notice { news: News::WatchChild { since_ms: 0 }, dependent: parent, dependency: child };
    bed.run(0, &Command::Notice(watch));
    let report = bed.effects.reports[0].clone();
    assert_eq!(report.end, End::Failed(Policy::Ignore), "all is still there to be told");
    crate::support::family::deliver(&mut bed, &report);
    bed.carry_notices();
    assert_eq!((bed.shard.holdings().watches, bed.shard.holdings().unreported), (0, 0));
    bed.shard.audit().unwrap();
}

fn with_child(bed: &mut Bed, child: JobId) -> JobId {
    let open = unmet(&[child]);
    let family = NewFamily { open: Unmet::new(&open), ..NewFamily::default() };
    bed.push("whole", NewJob { family: Some(Box::new(family)), ..NewJob::default() })
}

#[test]
fn a_child_that_its_parent_gave_up_does_not_fail_it_though_a_crash_comes_between() {
    let mut bed = Bed::new();
    let child = bed.data("part", b"1");
    let parent = with_child(&mut bed, child);
    bed.carry_notices();
    let abandon = Command::Change { job: child, change: Change::Abandon };
    assert_eq!(bed.ask(1, &abandon), Some(Reply::Count(1)));
    assert_eq!((bed.state(child), bed.effects.reports.len()), (None, 1));
    // Nobody hears of it.
    let facts = bed.shard.facts();
    bed.shard = bed.replayed();
    assert_eq!(bed.shard.facts(), facts);
    bed.shard.restart(bed.now_ms);
    let watch = bed.shard.watches_to_renew().next().unwrap();
    bed.run(0, &Command::Notice(watch));
    let report = bed.effects.reports[0].clone();
    crate::support::family::deliver(&mut bed, &report);
    bed.carry_notices();
    assert_eq!(bed.state(parent), Some(State::Waiting));
    assert_eq!(bed.shard.holdings().unreported, 0);
    bed.shard.audit().unwrap();
}

#[test]
fn a_dependency_that_becomes_a_child_says_with_what_it_was_completed() {
    let mut bed = Bed::new();
    let part = bed.data("part", b"1");
    let whole = push_waiting(&mut bed, "whole", &[part], NewJob::default());
    let adopt = Change::Adopt { child: part, name: "part" };
    bed.run(1, &Command::Change { job: whole, change: adopt });
    bed.carry_notices();
    finish(&mut bed, "part");
    let report = bed.effects.reports[0].clone();
    assert_eq!((report.parent, report.end), (whole, End::Completed));
    crate::support::family::deliver(&mut bed, &report);
    bed.carry_notices();
    assert_eq!(bed.state(whole), Some(State::Waiting));
    bed.shard.audit().unwrap();
}

#[test]
fn the_reason_names_a_dependency_as_its_client_did_even_after_a_restart() {
    let mut bed = Bed::new();
    let part = bed.push("part", NewJob { ttl_ms: Some(100), ..NewJob::default() });
    let mut bytes = Vec::new();
    Unmet::push(&mut bytes, part, "my part");
    let whole = bed.push("whole", NewJob { unmet: Unmet::new(&bytes), ..NewJob::default() });
    bed.pass(100);
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    bed.effects.notices = bed.shard.watches_to_renew().collect();
    bed.carry_notices();
    assert_eq!(reason(&bed, whole), "Dependency removed: my part");
}

#[test]
fn a_job_that_went_with_its_end_is_known_by_how_it_ended() {
    let mut bed = Bed::new();
    let job = NewJob { max_attempts: 1, remove_on_fail: true, ..NewJob::default() };
    let failed = bed.push("part", job.clone());
    let (_, token) = bed.pull(1, "part", 1)[0];
    bed.fail(failed, Some(token)).unwrap();
    let completed = bed.push("part", NewJob { remove_on_complete: true, ..NewJob::default() });
    finish(&mut bed, "part");
    let purged = bed.push("part", job);
    bed.run(1, &Command::Drain { queue: "part" });
    let ends = [failed, completed, purged].map(|job| {
        assert_eq!(bed.state(job), None);
        let told = bed.ask(1, &Command::AwaitEnd { job, timeout_ms: 1000 });
        assert_eq!(matches!(told, Some(Reply::Ended(_))), job != purged, "{told:?}");
        bed.shard.remembered_end(job)
    });
    let none = LogRef::default();
    assert_eq!(ends, [Some(Ending::Failed(none)), Some(Ending::Completed(none)), None]);
    // A job that failed is no dependency that was met.
    assert_eq!(bed.shard.standing(failed), Standing::Unknown);
}

#[test]
fn a_dependent_taken_out_of_the_dead_letter_queue_waits_for_nobody() {
    let mut bed = Bed::new();
    let gone = JobId(99);
    let whole = push_waiting(&mut bed, "whole", &[gone], NewJob::default());
    assert_eq!(bed.state(whole), Some(State::Failed));
    bed.run(1, &Command::RetryFailed { queue: "whole", job: Some(whole), count: 1 });
    assert_eq!(bed.pull(1, "whole", 1)[0].0, whole);
    bed.shard.audit().unwrap();
}

#[test]
fn a_crash_at_any_moment_loses_and_doubles_no_release() {
    // Every prefix of the log is a moment of a crash; what was on the way between shards is lost.
    let mut bed = Bed::new();
    let parts: Vec<JobId> = (0..3)
        .map(|n| bed.push("part", NewJob { remove_on_complete: n == 1, ..NewJob::default() }))
        .collect();
    let whole = push_waiting(&mut bed, "whole", &parts, NewJob::default());
    for _ in &parts {
        finish(&mut bed, "part");
        bed.carry_notices();
    }
    let records = bed.journal.records.clone();
    for crash in 4..=records.len() {
        let mut bed = Bed::new();
        bed.journal.records = records[..crash].to_vec();
        bed.shard = bed.replayed();
        bed.now_ms = START_MS + 1;
        bed.shard.restart(bed.now_ms);
        bed.effects.notices = bed.shard.watches_to_renew().collect();
        bed.carry_notices();
        // A job that was active when it happened is delivered again; the others continue.
        bed.pass(31_000);
        while let Some(&(id, token)) = bed.pull(1, "part", 1).first() {
            assert_eq!(bed.state(whole), Some(State::WaitingChildren), "crash {crash}");
            bed.ack(id, Some(token)).unwrap();
            bed.carry_notices();
        }
        let pulled = bed.pull(1, "whole", 10);
        assert_eq!(pulled.iter().map(|job| job.0).collect::<Vec<_>>(), [whole], "crash {crash}");
        bed.shard.audit().unwrap();
    }
}

#[test]
fn notices_that_come_late_or_twice_change_nothing() {
    let mut bed = Bed::new();
    let parts = [bed.data("part", b"1"), bed.data("part", b"2")];
    let whole = push_waiting(&mut bed, "whole", &parts, NewJob::default());
    let notice = |news, dependency| Notice { news, dependent: whole, dependency };
    for _ in 0..2 {
        bed.run(0, &Command::Notice(notice(News::Watch, parts[0])));
        bed.run(0, &Command::Notice(notice(News::Completed, parts[0])));
        bed.run(0, &Command::Notice(notice(News::Removed, parts[0])));
    }
    assert_eq!(bed.state(whole), Some(State::WaitingChildren));
    bed.run(0, &Command::Notice(notice(News::Completed, parts[1])));
    let before = bed.journal.records.len();
    for dependency in parts {
        for news in [News::Completed, News::Removed, News::Unwatch, News::Unwatch] {
            bed.run(0, &Command::Notice(notice(news, dependency)));
        }
    }
    assert_eq!(bed.state(whole), Some(State::Waiting));
    assert_eq!(bed.journal.records.len(), before);
    bed.shard.audit().unwrap();
}

#[test]
fn a_dependent_that_ends_is_watched_for_no_more() {
    let mut bed = Bed::new();
    let part = bed.data("part", b"1");
    let mortal = NewJob { ttl_ms: Some(100), ..NewJob::default() };
    let whole = push_waiting(&mut bed, "whole", &[part], mortal);
    assert_eq!(bed.shard.holdings().watches, 1);
    bed.pass(100);
    bed.carry_notices();
    assert_eq!((bed.state(whole), bed.shard.holdings().watches), (None, 0));
    bed.shard.audit().unwrap();
}

#[test]
fn a_key_is_held_while_its_job_waits_for_others() {
    let mut bed = Bed::new();
    let part = bed.data("part", b"1");
    let keyed = NewJob { unique_key: Some("k"), ..NewJob::default() };
    let whole = push_waiting(&mut bed, "whole", &[part], keyed.clone());
    assert_eq!(bed.push("whole", keyed), whole);
}

#[test]
fn the_end_of_a_job_with_many_dependents_is_told_in_slices() {
    let mut bed = Bed::new();
    let part = bed.data("part", b"1");
    for _ in 0..1700 {
        push_waiting(&mut bed, "whole", &[part], NewJob::default());
    }
    finish(&mut bed, "part");
    assert!(bed.effects.notices.len() < 1000, "{}", bed.effects.notices.len());
    bed.carry_notices();
    assert_eq!(bed.shard.census().waiting, 1700);
    bed.shard.audit().unwrap();
}

#[test]
fn a_dependent_can_be_cancelled_and_discarded() {
    let mut bed = Bed::new();
    let part = bed.data("part", b"1");
    let cancelled = push_waiting(&mut bed, "whole", &[part], NewJob::default());
    let discarded = push_waiting(&mut bed, "whole", &[part], NewJob::default());
    for (job, change) in [(cancelled, Change::Cancel), (discarded, Change::Discard { token: None })]
    {
        let reply = bed.ask(1, &Command::Change { job, change });
        assert_eq!(reply, Some(Reply::Done));
        bed.carry_notices();
    }
    assert_eq!((bed.state(cancelled), bed.state(discarded)), (None, Some(State::Failed)));
    assert_eq!(bed.shard.holdings().watches, 0);
    finish(&mut bed, "part");
    bed.carry_notices();
    assert_eq!(bed.state(discarded), Some(State::Failed));
    bed.shard.audit().unwrap();
}

#[test]
fn every_way_to_empty_a_queue_tells_those_who_wait_for_its_jobs() {
    let clean = Clean { queue: "part", grace_ms: 0, states: &[State::Waiting], limit: 10 };
    for command in [
        Command::Drain { queue: "part" },
        Command::Clean(clean),
        Command::Obliterate { queue: "part" },
        Command::PurgeFailed { queue: "part" },
    ] {
        let mut bed = Bed::new();
        let part = bed.push("part", NewJob { max_attempts: 1, ..NewJob::default() });
        let whole = push_waiting(&mut bed, "whole", &[part], NewJob::default());
        if matches!(command, Command::PurgeFailed { .. }) {
            let (_, token) = bed.pull(1, "part", 1)[0];
            bed.fail(part, Some(token)).unwrap();
        }
        bed.run(1, &command);
        bed.carry_notices();
        assert_eq!(reason(&bed, whole), format!("Dependency removed: {part}"), "{command:?}");
        bed.shard.audit().unwrap();
    }
}

#[test]
fn an_obliterated_queue_takes_its_dependents_with_it() {
    let mut bed = Bed::new();
    let part = bed.data("part", b"1");
    for _ in 0..1200 {
        push_waiting(&mut bed, "whole", &[part], NewJob::default());
    }
    bed.run(1, &Command::Obliterate { queue: "whole" });
    let notices = std::mem::take(&mut bed.effects.notices);
    // The dependency of the queue's jobs ends while they are being removed: no pull gets them.
    finish(&mut bed, "part");
    bed.effects.notices.splice(0..0, notices);
    bed.carry_notices();
    assert!(bed.pull(1, "whole", 10).is_empty());
    assert_eq!((bed.shard.holdings().watches, bed.shard.holdings().jobs), (0, 1));
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

/// Found by the simulator: whether a job counted as completed depended on whether a job waited for it.
#[test]
fn a_completed_job_that_is_discarded_counts_no_longer_even_if_it_is_not_kept() {
    for remove_on_fail in [false, true] {
        let mut bed = Bed::new();
        let part = bed.push("part", NewJob { remove_on_fail, ..NewJob::default() });
        finish(&mut bed, "part");
        assert_eq!(bed.shard.standing(part), Standing::Completed);
        bed.run(1, &Command::Change { job: part, change: Change::Discard { token: None } });
        let expected = if remove_on_fail { Standing::Unknown } else { Standing::Open };
        assert_eq!(bed.shard.standing(part), expected);
        assert_eq!(bed.replayed().standing(part), expected);
    }
}

/// Counted looks bound how many of these commands a turn takes on.
#[test]
fn looks_at_the_many_children_of_a_job_are_counted() {
    const MANY: usize = 20_000;
    let mut bed = Bed::new();
    let parts: Vec<JobId> =
        (0..MANY / 500).flat_map(|_| bed.push_all("part", &vec![NewJob::default(); 500])).collect();
    let mut children = vec![0xdd];
    children.extend_from_slice(&(MANY as u32).to_be_bytes());
    for &part in &parts {
        let text = part.to_string();
        children.extend_from_slice(&[0xd9, text.len() as u8]);
        children.extend_from_slice(text.as_bytes());
    }
    let open = unmet(&parts);
    let family = NewFamily { children: &children, open: Unmet::new(&open), ..NewFamily::default() };
    let waits =
        NewJob { depends_on: &children, family: Some(Box::new(family)), ..NewJob::default() };
    let whole = bed.push("whole", waits);
    let child = bed.data("part", b"1");
    let name = child.to_string();
    let least = MANY as u64 / LOOKS_PER_STEP;
    let before = bed.shard.steps();
    let about = bed.shard.about_parent(whole, &name).unwrap();
    assert!(about.linkable && !about.declared);
    let asked = bed.shard.steps() - before;
    assert!(asked >= least, "{asked} steps");
    for change in [Change::Adopt { child, name: &name }, Change::LetGo { child, name: &name }] {
        let before = bed.shard.steps();
        let reply = bed.ask(1, &Command::Change { job: whole, change });
        assert_eq!(reply, Some(Reply::Count(1)), "{change:?}");
        let of_change = bed.shard.steps() - before;
        assert!(of_change >= least, "{change:?}: {of_change} steps");
    }
    bed.shard.audit().unwrap();
}
