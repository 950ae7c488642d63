//! Changes to single jobs. The fear: a change in a state where it has no meaning, one that a restart forgets, and a
//! caller who waits for an end that has long come.

use crate::support::{Bed, locked, outcome};
use corq_shards::SLICE;
use corq_shards::command::{Ack, Command, Fail, Pull, RequestId, Stack};
use corq_shards::effect::{Ending, Refusal, Reply};
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::Record;
use corq_shards::log_record::job_change::Level;
use corq_shards::queue::listing::{Listing, States};

fn change(bed: &mut Bed, job: JobId, change: Change<'_>) -> Result<(), Refusal> {
    let reply = bed.ask(1, &Command::Change { job, change });
    let replayed = bed.replayed();
    assert_eq!(replayed.facts(), bed.shard.facts(), "{change:?}");
    bed.shard.audit().unwrap();
    outcome(reply)
}

/// A job in each state: waiting, delayed, active, completed, failed.
fn one_of_each(bed: &mut Bed) -> [JobId; 5] {
    let completed = bed.data("q", b"\x01");
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.ack(completed, Some(token)).unwrap();
    let failed = bed.push("q", NewJob { max_attempts: 1, ..NewJob::default() });
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.fail(failed, Some(token)).unwrap();
    let active = bed.data("q", b"\x02");
    bed.pull(1, "q", 1);
    let delayed = bed.push("q", NewJob { delay_ms: 5000, ..NewJob::default() });
    let waiting = bed.data("q", b"\x03");
    [waiting, delayed, active, completed, failed]
}

fn wait(bed: &mut Bed, job: JobId, timeout_ms: u64) -> (RequestId, Option<Reply>) {
    let reply = bed.ask(5, &Command::AwaitEnd { job, timeout_ms });
    (RequestId(bed.request), reply)
}

#[test]
fn each_change_is_for_its_states_and_refuses_the_others() {
    use Refusal::{Ended, NotActive, NotCancellable, NotDelayed, NotPending};
    let new = NewJob { data: b"\x07", ..NewJob::default() };
    let progress = Change::Progress { progress: 1.0, message: None };
    let log = Change::Log { level: Level::Info, message: "x" };
    // For each change, whether it is for waiting, delayed, active, completed, failed jobs.
    let cases: [(Change<'_>, [bool; 5], Refusal); 9] = [
        (Change::Cancel, [true, true, false, false, false], NotCancellable),
        (Change::Remove, [true, true, false, true, true], NotCancellable),
        (Change::Update { job: &new }, [true, true, true, false, false], Ended),
        (
            Change::Prioritize { priority: 4, lifo: None },
            [true, true, false, false, false],
            NotPending,
        ),
        (Change::Promote, [false, true, false, false, false], NotDelayed),
        (Change::PutOff { delay_ms: 50, token: None }, [true, true, true, false, false], NotActive),
        (progress, [false, false, true, false, false], NotActive),
        (Change::Discard { token: None }, [true; 5], Refusal::NotFound),
        (log, [true; 5], Refusal::NotFound),
    ];
    for (what, fits, refusal) in cases {
        let mut bed = Bed::new();
        let jobs = one_of_each(&mut bed);
        for (job, fits) in jobs.into_iter().zip(fits) {
            let before = bed.shard.facts();
            let answer = change(&mut bed, job, what);
            assert_eq!(answer, if fits { Ok(()) } else { Err(refusal) }, "{what:?}");
            if !fits {
                assert_eq!(bed.shard.facts(), before, "a refusal changes nothing");
            }
        }
        assert_eq!(change(&mut bed, JobId(77), what), Err(refusal), "nobody");
    }
}

#[test]
fn a_cancelled_job_is_gone_and_its_key_is_free() {
    let mut bed = Bed::new();
    let keyed = || NewJob { unique_key: Some("k"), delay_ms: 100, ..NewJob::default() };
    let job = bed.push("q", keyed());
    change(&mut bed, job, Change::Cancel).unwrap();
    assert_eq!(bed.state(job), None);
    assert_ne!(bed.push("q", keyed()), job);
}

#[test]
fn a_promoted_job_is_delivered_at_once_to_whoever_waits() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { delay_ms: 60_000, ..NewJob::default() });
    let sleeper = Pull { timeout_ms: 1000, ..locked("q") };
    assert_eq!(bed.ask(8, &Command::Pull(sleeper)), None);
    change(&mut bed, job, Change::Promote).unwrap();
    assert_eq!(bed.state(job), Some(State::Active));
}

#[test]
fn a_new_priority_changes_the_order_also_of_a_delayed_job() {
    let mut bed = Bed::new();
    let first = bed.data("q", b"1");
    let second = bed.data("q", b"2");
    let later = bed.push("q", NewJob { delay_ms: 10, ..NewJob::default() });
    change(&mut bed, second, Change::Prioritize { priority: 5, lifo: None }).unwrap();
    change(&mut bed, later, Change::Prioritize { priority: 9, lifo: None }).unwrap();
    bed.pass(10);
    let order: Vec<_> = bed.pull(1, "q", 10).into_iter().map(|(id, _)| id).collect();
    assert_eq!(order, [later, second, first]);
}

#[test]
fn a_job_that_is_put_off_keeps_its_attempts_and_comes_back_on_time() {
    let mut bed = Bed::new();
    let job = bed.data("q", b"1");
    let (_, token) = bed.pull(1, "q", 1)[0];
    change(&mut bed, job, Change::PutOff { delay_ms: 500, token: None }).unwrap();
    assert_eq!(bed.ack(job, Some(token)), Err(Refusal::NotActive));
    bed.pass(499);
    assert!(bed.pull(1, "q", 1).is_empty());
    bed.pass(1);
    assert_eq!(bed.pull(1, "q", 1)[0].0, job);
    let index = bed.shard.find(job).unwrap();
    assert_eq!(bed.shard.view(index).job.attempts, 0);
}

#[test]
fn an_update_leaves_one_record_that_tells_all_of_the_job() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { data: b"\x01", group_id: Some("g"), ..NewJob::default() });
    let new = NewJob { data: b"\x02", group_id: Some("g"), ..NewJob::default() };
    change(&mut bed, job, Change::Update { job: &new }).unwrap();
    let stored = bed.shard.view(bed.shard.find(job).unwrap()).job.stored;
    let record = Record::decode(&bed.journal.records[stored.position as usize]).unwrap();
    let pushed = record.into_pushed().unwrap();
    assert_eq!((pushed.job.data, pushed.job.group_id), (&b"\x02"[..], Some("g")));
    assert_eq!(stored.payload_bytes, 1);
}

#[test]
fn progress_keeps_a_job_alive_and_a_new_run_begins_at_zero() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { max_attempts: 1, ..NewJob::default() });
    let (_, token) = bed.pull(1, "q", 1)[0];
    for step in 1..=3 {
        bed.pass(20_000);
        let progress = f64::from(step) * 12.5;
        change(&mut bed, job, Change::Progress { progress, message: Some(b"on") }).unwrap();
    }
    let progress = |bed: &Bed| {
        let view = bed.shard.view(bed.shard.find(job).unwrap());
        let notes = view.options.and_then(|options| options.notes.as_ref()).unwrap();
        (notes.progress, notes.message.is_some(), notes.logs.len())
    };
    change(&mut bed, job, Change::Log { level: Level::Error, message: "hm" }).unwrap();
    bed.fail(job, Some(token)).unwrap();
    assert_eq!(progress(&bed), (37.5, true, 1));
    bed.ask(1, &Command::RetryFailed { queue: "q", job: Some(job), count: 1 });
    assert_eq!(progress(&bed), (0.0, false, 1));
}

#[test]
fn a_job_whose_time_is_over_takes_no_more_progress() {
    let mut bed = Bed::new();
    let job = bed.data("q", b"1");
    bed.pull(1, "q", 1);
    // The time has come and the timer has not been served yet.
    bed.now_ms += 30_000;
    let late = Change::Progress { progress: 1.0, message: None };
    assert_eq!(change(&mut bed, job, late), Err(Refusal::NotActive));
    bed.pass(0);
    assert_eq!(bed.state(job), Some(State::Waiting));
}

#[test]
fn the_newest_hundred_lines_of_a_log_are_kept() {
    let mut bed = Bed::new();
    let job = bed.data("q", b"1");
    let mut first_kept = 0;
    for line in 0..150 {
        if line == 50 {
            first_kept = bed.journal.records.len() as u64;
        }
        let text = line.to_string();
        let log = Change::Log { level: Level::Info, message: &text };
        outcome(bed.ask(1, &Command::Change { job, change: log })).unwrap();
    }
    for shard in [&bed.replayed(), &bed.shard] {
        let view = shard.view(shard.find(job).unwrap());
        let logs = &view.options.unwrap().notes.as_ref().unwrap().logs;
        assert_eq!((logs.len(), logs[0].stored.position), (100, first_kept));
    }
}

#[test]
fn an_unrecoverable_failure_spends_no_more_attempts_and_keeps_its_stack() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { max_attempts: 9, ..NewJob::default() });
    let (_, token) = bed.pull(1, "q", 1)[0];
    let stack = Stack { lines: 2, texts: b"\xa1a\xa1b" };
    let fail =
        Fail { job, token: Some(token), error: "no", stack, unrecoverable: true, remove: false };
    outcome(bed.ask(1, &Command::Fail(fail))).unwrap();
    let view = bed.shard.view(bed.shard.find(job).unwrap());
    assert_eq!((view.job.state, view.job.attempts), (State::Failed, 1));
    let stored = view.outcome.unwrap().stored;
    let record = Record::decode(&bed.journal.records[stored.position as usize]).unwrap();
    let Record::Buried(buried) = record else { panic!("{record:?}") };
    assert_eq!((buried.error, buried.stack), ("no", stack));
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

#[test]
fn whoever_waits_for_a_job_learns_of_every_kind_of_end() {
    let options = [
        NewJob::default(),
        NewJob { remove_on_complete: true, ..NewJob::default() },
        NewJob { max_attempts: 1, ..NewJob::default() },
        NewJob { max_attempts: 1, remove_on_fail: true, ..NewJob::default() },
        NewJob { ttl_ms: Some(1000), ..NewJob::default() },
        NewJob::default(),
        NewJob::default(),
    ];
    for (case, options) in options.into_iter().enumerate() {
        let mut bed = Bed::new();
        let job = bed.push("q", options);
        let (waiting, none) = wait(&mut bed, job, 60_000);
        assert_eq!(none, None);
        let replies = match case {
            0 | 1 => {
                let (_, token) = bed.pull(1, "q", 1)[0];
                bed.ack(job, Some(token)).unwrap();
                bed.effects.replies.clone()
            }
            2 | 3 => {
                let (_, token) = bed.pull(1, "q", 1)[0];
                bed.fail(job, Some(token)).unwrap();
                bed.effects.replies.clone()
            }
            4 => bed.pass(1000),
            5 => bed.run(1, &Command::Change { job, change: Change::Cancel }),
            _ => bed.run(1, &Command::Change { job, change: Change::Discard { token: None } }),
        };
        let told = replies.into_iter().find(|(request, _)| *request == waiting).unwrap().1;
        let as_expected = match case {
            0 | 1 => matches!(told, Reply::Ended(Ending::Completed(how)) if how.payload_bytes == 1),
            2 | 3 => matches!(told, Reply::Ended(Ending::Failed(how)) if how.payload_bytes == 4),
            4 | 5 => told == Reply::Ended(Ending::Removed),
            _ => matches!(told, Reply::Ended(Ending::Failed(_))),
        };
        assert!(as_expected, "case {case}: {told:?}");
        bed.shard.audit().unwrap();
        assert_eq!(bed.replayed().facts(), bed.shard.facts());
    }
}

#[test]
fn a_retry_is_no_end_and_a_wait_ends_on_time_or_with_its_connection() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { backoff_ms: 0, ..NewJob::default() });
    let (first, _) = wait(&mut bed, job, 1000);
    let (_, none) = wait(&mut bed, job, 2000);
    let (_, token) = bed.pull(1, "q", 1)[0];
    bed.fail(job, Some(token)).unwrap();
    assert_eq!((none, bed.effects.replies.len()), (None, 1), "a retry is no end");
    assert_eq!(bed.pass(999), []);
    assert_eq!(bed.pass(1), [(first, Reply::Unended)]);
    let (stopped, _) = wait(&mut bed, job, 60_000);
    let dropped = bed.run(5, &Command::Disconnect);
    assert!(dropped.contains(&(stopped, Reply::Dropped)) && dropped.len() == 2, "{dropped:?}");
    bed.shard.audit().unwrap();
    let (at_the_end, _) = wait(&mut bed, job, 60_000);
    assert_eq!(bed.run(9, &Command::EndWaits), [(at_the_end, Reply::Unended)]);
    bed.shard.audit().unwrap();
}

#[test]
fn a_wait_for_an_ended_or_unknown_job_is_none() {
    let mut bed = Bed::new();
    let [waiting, _, _, completed, failed] = one_of_each(&mut bed);
    let ended = |reply: Option<Reply>| matches!(reply, Some(Reply::Ended(_)));
    assert!(ended(wait(&mut bed, completed, 60_000).1) && ended(wait(&mut bed, failed, 9).1));
    assert_eq!(wait(&mut bed, waiting, 0).1, Some(Reply::Unended));
    let refused = Reply::Refused { place: 0, refusal: Refusal::NotFound };
    assert_eq!(wait(&mut bed, JobId(3), 9).1, Some(refused));
    assert_eq!(bed.run(5, &Command::Disconnect), []);
}

#[test]
fn a_page_is_found_in_slices_whatever_happens_between_them() {
    let mut bed = Bed::new();
    let jobs: Vec<JobId> = (0..30_000).map(|_| bed.data("q", b"1")).collect();
    let waiting: States = [State::Waiting].into_iter().collect();
    let mut page = Listing::new("q", waiting, 20_000, 10);
    assert!(!bed.shard.look_for(&mut page), "more than a slice");
    // Behind the listing, at its place, before it.
    for place in [0, 8191, 8192, 25_000] {
        change(&mut bed, jobs[place], Change::Cancel).unwrap();
    }
    while !bed.shard.look_for(&mut page) {}
    assert_eq!(page.found(), jobs[20_001..20_011], "one before the page is gone since");
    let completed: States = [State::Completed].into_iter().collect();
    assert!(
        bed.shard.look_for(&mut Listing::new("q", completed, 0, 10)),
        "counted, not looked for"
    );
    let mut all = Listing::new("q", States::all(), 29_990, 1000);
    assert!(bed.shard.look_for(&mut all));
    assert_eq!(all.found(), jobs[29_994..]);
}

#[test]
fn any_number_of_clients_learn_of_one_end_a_slice_at_a_time_and_in_order() {
    const WAITS: usize = 6 * SLICE as usize;
    let mut bed = Bed::new();
    let job = bed.data("q", b"\x01");
    let (_, token) = bed.pull(1, "q", 1)[0];
    let mut requests = Vec::new();
    for number in 0..WAITS {
        // Every tenth is another's, who goes before its turn has come.
        let client = if number % 10 == 9 { 6 } else { 5 };
        let timeout_ms = if number % 10 == 8 { 1000 } else { 60_000 };
        let command = Command::AwaitEnd { job, timeout_ms };
        assert_eq!(bed.ask(client, &command), None);
        requests.push((bed.request, client));
    }
    let ack = Ack { job, token: Some(token), result: b"\x02", remove: true };
    let of_waits = |replies: Vec<(RequestId, Reply)>| -> Vec<(u64, Reply)> {
        let known = |id| requests.iter().any(|(request, _)| *request == id);
        replies.into_iter().map(|(id, reply)| (id.0, reply)).filter(|(id, _)| known(*id)).collect()
    };
    let mut told = of_waits(bed.run(1, &Command::Ack { acks: &[ack] }));
    assert_eq!(told.len(), SLICE as usize, "no more with the command itself");
    bed.shard.audit().unwrap();
    assert!(bed.state(job).is_none(), "the job is gone meanwhile");
    // Another job has its place, and a client waits for that one as well.
    let next = bed.data("q", b"\x03");
    told.extend(of_waits(bed.effects.replies.clone()));
    assert_eq!(wait(&mut bed, next, 60_000).1, None);
    told.extend(of_waits(bed.effects.replies.clone()));
    let gone = of_waits(bed.run(6, &Command::Disconnect));
    told.extend(gone);
    bed.shard.audit().unwrap();
    // A job that has ended has ended, also for waits whose time is over by now.
    while told.len() < WAITS {
        let before = told.len();
        told.extend(of_waits(bed.pass(1000)));
        assert!(told.len() > before, "it goes on by itself");
        bed.shard.audit().unwrap();
    }
    let ended = |reply: &Reply| matches!(reply, Reply::Ended(Ending::Completed(_)));
    let (dropped, told): (Vec<_>, Vec<_>) =
        told.into_iter().partition(|(_, reply)| *reply == Reply::Dropped);
    assert!(!dropped.is_empty() && told.iter().all(|(_, reply)| ended(reply)));
    assert_eq!(bed.state(next), Some(State::Waiting));
}
