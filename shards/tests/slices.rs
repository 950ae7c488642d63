//! Bounds of what one call does, however much a command is about. The fear: a command of some bytes that holds its
//! shard for as long as it likes. Steps are counted, never time.

mod groups;
mod pulls;
use crate::support::{Bed, SPAN_BITS};
use corq_shards::command::{Ack, Clean, Command, Pull, Token};
use corq_shards::dependency::{News, Unmet};
use corq_shards::effect::Reply;
use corq_shards::family::{End, NewFamily, Report, Reported};
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::{Out, SLICE};

/// As many as each of these commands is about.
const MANY: usize = 20_000;

/// Steps that one call may take.
const STEPS_MAX: u64 = 3000;

/// Calls `tick` once. True if there is more to do.
fn tick(bed: &mut Bed) -> bool {
    bed.effects.clear();
    let mut out = Out { journal: &mut bed.journal, effects: &mut bed.effects };
    bed.shard.tick(bed.now_ms, &mut out) <= bed.now_ms
}

fn count(bed: &mut Bed, queue: &str, state: State) -> u64 {
    bed.shard.queue(queue).map_or(0, |queue| queue.count(state))
}

fn ack(bed: &mut Bed, job: JobId, token: Token, result: &[u8]) {
    let acks = [Ack { job, token: Some(token), result, remove: false }];
    assert_eq!(bed.ask(1, &Command::Ack { acks: &acks }), Some(Reply::Done));
}

/// Hands a report to the shard of the parent, with its value.
fn tell(bed: &mut Bed, report: &Report) {
    let record = &bed.journal.records[report.stored.position as usize];
    let value = record[record.len() - report.stored.payload_bytes as usize..].to_vec();
    let known_as = report.known_as.to_string();
    let Report { parent, child, end, is_last, .. } = *report;
    let (queue, known_as, value) = (&*report.queue, &*known_as, &value[..]);
    let reported = Reported { parent, child, known_as, queue, end, value, is_last };
    bed.run(0, &Command::Report(&reported));
}

/// Calls something and counts its steps.
fn steps(bed: &mut Bed, call: impl FnOnce(&mut Bed)) -> u64 {
    let before = bed.shard.steps();
    call(bed);
    bed.shard.steps() - before
}

/// Carries out a command and all that follows; the most steps that one call has taken, and the reply to the command.
fn longest(bed: &mut Bed, command: &Command<'_>) -> (u64, Option<Reply>) {
    let mut reply = None;
    let mut most = steps(bed, |bed| reply = bed.ask(1, command));
    loop {
        let mut more = false;
        let of_tick = steps(bed, |bed| more = tick(bed));
        if reply.is_none() {
            reply = bed.effects.replies.first().map(|(_, reply)| reply.clone());
        }
        most = most.max(of_tick);
        if !more {
            return (most, reply);
        }
    }
}

fn push_many(bed: &mut Bed, queue: &str, count: usize, job: &NewJob<'_>) -> Vec<JobId> {
    let mut all = Vec::new();
    while all.len() < count {
        let jobs = vec![job.clone(); 500.min(count - all.len())];
        all.extend(bed.push_all(queue, &jobs));
    }
    all
}

/// A list of one id, as clients write it.
fn text_array(id: JobId) -> Vec<u8> {
    let text = id.to_string();
    let mut array = vec![0x91, 0xd9, text.len() as u8];
    array.extend_from_slice(text.as_bytes());
    array
}

fn unmet(on: &[JobId]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &id in on {
        Unmet::push(&mut bytes, id, "");
    }
    bytes
}

/// Carries notices and reports as a shard does that reads some of its mail in each turn, and counts the
/// notices of one turn, of all turns, and the most steps of one.
fn carry(bed: &mut Bed) -> (usize, usize, u64) {
    let (mut most, mut all, mut most_steps) = (0, 0, 0);
    let mut notices = std::mem::take(&mut bed.effects.notices);
    let mut reports = std::mem::take(&mut bed.effects.reports);
    let mut more = true;
    while more || !notices.is_empty() || !reports.is_empty() {
        let before = bed.shard.steps();
        let (mut news, mut told) = (Vec::new(), Vec::new());
        for notice in notices.drain(..notices.len().min(500)) {
            bed.run(0, &Command::Notice(notice));
            news.append(&mut bed.effects.notices);
            told.append(&mut bed.effects.reports);
        }
        for report in reports.drain(..reports.len().min(500)) {
            tell(bed, &report);
            news.append(&mut bed.effects.notices);
            told.append(&mut bed.effects.reports);
        }
        more = tick(bed);
        news.append(&mut bed.effects.notices);
        told.append(&mut bed.effects.reports);
        most = most.max(news.len() + told.len());
        all += news.len() + told.len();
        most_steps = most_steps.max(bed.shard.steps() - before);
        notices.append(&mut news);
        reports.append(&mut told);
    }
    (most, all, most_steps)
}

#[test]
fn a_job_that_waits_for_many_says_so_and_takes_it_back_in_slices() {
    let mut bed = Bed::new();
    let parts = push_many(&mut bed, "part", MANY, &NewJob::default());
    let on = unmet(&parts);
    let waits = NewJob { unmet: Unmet::new(&on), ..NewJob::default() };
    let whole = bed.push("whole", waits);
    let first = bed.effects.notices.len();
    let (most, all, _) = carry(&mut bed);
    assert!(first.max(most) <= 1000, "{first}, {most} in a turn");
    assert_eq!(first + all, MANY);
    assert_eq!(bed.shard.holdings().watches, MANY);
    bed.ask(1, &Command::Change { job: whole, change: Change::Cancel });
    let first = bed.effects.notices.len();
    assert!(bed.effects.notices.iter().all(|notice| notice.news == News::Unwatch));
    let (most, all, _) = carry(&mut bed);
    assert!(first.max(most) <= 1000, "{first}, {most} in a turn");
    assert_eq!((first + all, bed.shard.holdings().watches), (MANY, 0));
    bed.shard.audit().unwrap();
}

/// Guards against links of old children to a parent of very many that are counted as if each was the newest.
#[test]
fn a_child_that_comes_before_many_others_counts_those_that_it_moves() {
    let mut bed = Bed::new();
    let old = bed.push("part", NewJob::default());
    let parts = push_many(&mut bed, "part", MANY, &NewJob::default());
    let on = unmet(&parts);
    let whole = bed.push("whole", NewJob { unmet: Unmet::new(&on), ..NewJob::default() });
    carry(&mut bed);
    let new = bed.push("part", NewJob::default());
    let [old, new] = [old, new].map(|child| {
        let name = child.to_string();
        let change = Change::Adopt { child, name: &name };
        let adopt = Command::Change { job: whole, change };
        steps(&mut bed, |bed| assert_eq!(bed.ask(1, &adopt), Some(Reply::Count(1))))
    });
    assert_eq!(old, new + MANY as u64 / 1024);
    bed.shard.audit().unwrap();
}

#[test]
fn dependents_of_a_job_are_told_of_its_end_though_jobs_come_that_wait_for_many() {
    let mut bed = Bed::new();
    let part = bed.data("part", b"1");
    let on = unmet(&[part]);
    let waits = NewJob { unmet: Unmet::new(&on), ..NewJob::default() };
    bed.push_all("whole", &vec![waits; 100]);
    carry(&mut bed);
    let parts = push_many(&mut bed, "parts", 1000, &NewJob::default());
    let on = unmet(&parts);
    let waits = NewJob { unmet: Unmet::new(&on), ..NewJob::default() };
    bed.push_all("others", &vec![waits.clone(); 10]);
    let (id, token) = bed.pull(1, "part", 1)[0];
    bed.ack(id, Some(token)).unwrap();
    let told = |bed: &Bed| {
        bed.effects.notices.iter().filter(|notice| notice.news == News::Completed).count()
    };
    let mut all = told(&bed);
    for _ in 0..3 {
        bed.push_all("others", &vec![waits.clone(); 10]);
        all += told(&bed);
        assert!(tick(&mut bed), "there is more to be told");
        all += told(&bed);
    }
    assert_eq!(all, 100);
    assert!(bed.shard.notices_waiting() > 30_000, "{}", bed.shard.notices_waiting());
    carry(&mut bed);
    assert_eq!(bed.shard.notices_waiting(), 0);
    bed.shard.audit().unwrap();
}

#[test]
fn all_parents_of_a_child_have_its_value_though_they_are_told_in_slices_and_it_is_gone() {
    for (is_child, remove) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut bed = Bed::new();
        let parent = is_child.then_some("some");
        let family = parent.map(|_| Box::new(NewFamily { parent, ..NewFamily::default() }));
        let part =
            bed.push("part", NewJob { family, remove_on_complete: remove, ..NewJob::default() });
        let children = text_array(part);
        let open = unmet(&[part]);
        let family =
            NewFamily { children: &children, open: Unmet::new(&open), ..NewFamily::default() };
        let waits =
            NewJob { depends_on: &children, family: Some(Box::new(family)), ..NewJob::default() };
        let mut wholes = Vec::new();
        for _ in 0..MANY / 500 {
            wholes.extend(bed.push_all("whole", &vec![waits.clone(); 500]));
            carry(&mut bed);
        }
        assert_eq!(count(&mut bed, "whole", State::WaitingChildren), MANY as u64);
        let (id, token) = bed.pull(1, "part", 1)[0];
        let of_call = steps(&mut bed, |bed| ack(bed, id, token, b"\x07"));
        let first = bed.effects.reports.len();
        assert!(of_call <= STEPS_MAX && first <= 1001, "{of_call} steps, {first} told");
        let (most, _, most_steps) = carry(&mut bed);
        assert!(most <= 2000 && most_steps <= 2 * STEPS_MAX, "{most}, {most_steps} steps");
        assert_eq!(count(&mut bed, "whole", State::Waiting), MANY as u64);
        for &whole in &wholes {
            let view = bed.shard.view(bed.shard.find(whole).unwrap());
            let end =
                view.options.unwrap().family.as_deref().unwrap().ends.values().next().unwrap();
            assert_eq!(end.stored.payload_bytes, 1, "{is_child} {remove}");
        }
        let held = bed.shard.holdings();
        assert_eq!((held.unreported, held.watches), (0, 0), "{is_child} {remove}");
        bed.shard.audit().unwrap();
    }
}

#[test]
fn locks_of_a_connection_that_is_gone_do_not_stall_though_their_jobs_wait_for_their_slice() {
    let mut bed = Bed::new();
    push_many(&mut bed, "a", MANY, &NewJob::default());
    for _ in 0..MANY / 500 {
        assert_eq!(bed.pull(7, "a", 500).len(), 500);
    }
    bed.run(7, &Command::Disconnect);
    bed.now_ms += 60_000;
    while tick(&mut bed) {}
    let stalled = bed.shard.indices().filter(|&job| bed.shard.view(job).job.stalls > 0).count();
    assert_eq!((stalled, count(&mut bed, "a", State::Waiting)), (0, MANY as u64));
    bed.shard.audit().unwrap();
}

#[test]
fn waits_that_end_together_end_in_slices() {
    let mut bed = Bed::new();
    for client in 0..MANY {
        let pull = Pull { timeout_ms: 100, ..crate::support::locked("a") };
        bed.run(client as u64, &Command::Pull(pull));
    }
    bed.now_ms += 100;
    let (mut more, mut ended) = (true, 0);
    while more {
        let of_tick = steps(&mut bed, |bed| more = tick(bed));
        assert!(of_tick <= STEPS_MAX, "{of_tick} steps");
        ended += bed.effects.replies.len();
    }
    assert_eq!(ended, MANY);
}

#[test]
fn those_who_wait_for_jobs_are_answered_in_slices_however_many_commands_end_some() {
    let mut bed = Bed::new();
    let jobs = push_many(&mut bed, "a", MANY / 100, &NewJob::default());
    for client in 0..MANY {
        let job = jobs[client / 100];
        bed.run(client as u64, &Command::AwaitEnd { job, timeout_ms: 100 });
    }
    let before = bed.shard.steps();
    let mut most = 0;
    for &job in &jobs {
        most += bed.run(1, &Command::Change { job, change: Change::Cancel }).len() - 1;
    }
    assert!(bed.shard.steps() - before >= most as u64, "each answer is counted");
    let (mut more, mut all) = (true, most);
    while more {
        let steps = steps(&mut bed, |bed| more = tick(bed));
        let answered = bed.effects.replies.len();
        assert!(steps >= answered as u64, "{answered} answered in {steps} steps");
        most = most.max(answered);
        all += answered;
    }
    assert_eq!(all, MANY);
    assert!(most <= 500, "{most} in a turn");
    bed.shard.audit().unwrap();
}

/// Waits whose time is over are answered in slices as well.
#[test]
fn waits_for_jobs_whose_time_is_over_are_counted() {
    let mut bed = Bed::new();
    let job = bed.push("a", NewJob::default());
    for client in 0..1000 {
        bed.run(client, &Command::AwaitEnd { job, timeout_ms: 100 });
    }
    bed.now_ms += 100;
    let (mut more, mut all) = (true, 0);
    while more {
        let steps = steps(&mut bed, |bed| more = tick(bed));
        let answered = bed.effects.replies.len();
        assert!(steps >= answered as u64, "{answered} answered in {steps} steps");
        all += answered;
    }
    assert_eq!(all, 1000);
    bed.shard.audit().unwrap();
}

/// Steps of a command's first slice were counted when the command came.
#[test]
fn a_step_of_time_tells_only_of_long_commands_that_it_worked_on() {
    let mut bed = Bed::new();
    push_many(&mut bed, "a", 700, &NewJob::default());
    bed.ask(1, &Command::Drain { queue: "a" });
    tick(&mut bed);
    assert!(bed.shard.take_bulk_steps().is_some_and(|(_, steps)| steps >= 200));
    push_many(&mut bed, "a", 10, &NewJob::default());
    bed.ask(1, &Command::Drain { queue: "a" });
    tick(&mut bed);
    assert_eq!(bed.shard.take_bulk_steps(), None);
}

#[test]
fn a_parent_that_goes_lets_go_of_what_it_knew_of_its_children_in_slices() {
    let mut bed = Bed::new();
    let children = 4 * SLICE;
    let child = |n: u64| JobId(1_u128 << 100 | u128::from(n));
    let mut open = Vec::new();
    (0..=children).for_each(|n| Unmet::push(&mut open, child(n), ""));
    let family = NewFamily { open: Unmet::new(&open), ..NewFamily::default() };
    let whole = NewJob { data: b"\x01", family: Some(Box::new(family)), ..NewJob::default() };
    let parent = bed.push("parent", whole);
    for n in 0..children {
        let child = child(n);
        let (end, value) = (End::Completed, &b"\x01"[..]);
        let (queue, known_as, is_last) = ("parts", "child", false);
        let reported = Reported { parent, child, known_as, queue, end, value, is_last };
        bed.run(0, &Command::Report(&reported));
    }
    let record = bed.journal.records.last().unwrap().len() as u64;
    let all = bed.shard.needed_bytes();
    assert!(all > children * record);
    bed.run(1, &Command::Change { job: parent, change: Change::Cancel });
    assert_eq!(bed.state(parent), None);
    let mut needed = bed.shard.needed_bytes();
    assert!(needed >= children * record, "nothing in the call that removes it");
    while needed > 0 {
        let taken = steps(&mut bed, |bed| _ = tick(bed));
        let left = bed.shard.needed_bytes();
        let most = SLICE * (record + 8);
        assert!(left < needed && needed - left <= most && taken <= STEPS_MAX, "{needed} to {left}");
        needed = left;
        bed.shard.audit().unwrap();
    }
    assert!(!tick(&mut bed), "and rests");
}
