//! Deduplication keys: the reply to a push that meets a holder in its own batch, and keys that any number of
//! jobs hold.

use crate::support::{Bed, config, locked};
use corq_shards::command::{Command, Pull};
use corq_shards::effect::Reply;
use corq_shards::event::Step;
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::{Dedup, Extras};
use corq_shards::log_record::Record;
use corq_shards::{Config, SLICE};

/// More holders of one key than a stack has frames for.
const CROWD: usize = 20_000;

fn keyed(dedup: Option<Dedup>) -> NewJob<'static> {
    let extras = dedup.map(|dedup| Box::new(Extras { dedup: Some(dedup), ..Extras::default() }));
    NewJob { unique_key: Some("k"), extras, data: b"\x01", ..NewJob::default() }
}

fn plain() -> NewJob<'static> {
    keyed(None)
}

fn replacing() -> NewJob<'static> {
    keyed(Some(Dedup { replace: true, ..Dedup::default() }))
}

fn lasting(ttl_ms: u64) -> NewJob<'static> {
    keyed(Some(Dedup { ttl_ms, ..Dedup::default() }))
}

fn other() -> NewJob<'static> {
    NewJob { data: b"\x02", ..NewJob::default() }
}

/// Counts the jobs that events say were removed.
fn removed(bed: &Bed) -> usize {
    bed.events.iter().filter(|event| matches!(event.step, Step::Removed { .. })).count()
}

#[test]
fn each_place_of_a_batch_tells_its_own_job_though_a_later_one_takes_its_place() {
    let named = |name| NewJob { custom_id: Some(name), ..replacing() };
    let debounced = || NewJob { delay_ms: 500, ..replacing() };
    // A job there is before, the batch, and which places share a job or have one that is gone afterwards.
    let batches: Vec<(bool, Vec<NewJob<'_>>, usize)> = vec![
        (false, vec![replacing(), replacing()], 1),
        (false, vec![plain(), replacing()], 1),
        (false, vec![replacing(), replacing(), other()], 1),
        (false, vec![replacing(), other(), replacing(), other(), replacing()], 2),
        (false, vec![debounced(), debounced(), other()], 1),
        (false, vec![named("one"), named("two"), NewJob { custom_id: Some("3"), ..other() }], 1),
        (true, vec![plain(), replacing(), other()], 1),
        (true, vec![plain(), replacing(), replacing(), other()], 2),
        (true, vec![NewJob { custom_id: Some("new"), ..plain() }, replacing(), plain()], 1),
    ];
    for (before, batch, replaced) in batches {
        let mut bed = Bed::new();
        bed.shard.listen(true);
        let old = before.then(|| bed.push("q", plain()));
        let told = bed.push_all("q", &batch);
        assert_eq!(told.len(), batch.len());
        assert_eq!(removed(&bed), replaced, "as many are gone as were replaced");
        let mut made = told.clone();
        made.retain(|id| Some(*id) != old);
        // Every job that was made was told at its own place, in the order of the places.
        let pushes = bed.events.iter().filter(|event| event.step == Step::Pushed).count();
        let known: Vec<JobId> = bed.known().collect();
        assert!(known.iter().all(|id| told.contains(id)), "{known:x?} of {told:x?}");
        let mut distinct = made.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), pushes - usize::from(before), "{told:x?}");
        assert!(made.is_sorted(), "{told:x?}");
        if before {
            assert_eq!(Some(told[0]), old, "the first was a duplicate of what was there");
            assert_eq!(bed.state(told[0]), None, "which the second has replaced");
        }
        for (place, job) in batch.iter().enumerate().filter(|(_, job)| job.unique_key.is_none()) {
            let data = bed.shard.view(bed.shard.find(told[place]).unwrap()).data;
            let record = &bed.journal.records[data.position as usize];
            assert_eq!(&record[record.len() - 1..], job.data, "the id told is that of another job");
        }
        bed.shard.audit().unwrap();
        assert_eq!(bed.replayed().facts(), bed.shard.facts());
    }
}

#[test]
fn a_batch_of_replacing_jobs_serves_the_pull_that_waits_with_the_last_one() {
    let mut bed = Bed::new();
    bed.run(7, &Command::Pull(Pull { timeout_ms: 60_000, ..locked("q") }));
    let told = bed.push_all("q", &[replacing(), replacing(), other()]);
    let delivered = bed.effects.deliveries.clone();
    assert_eq!(delivered.len(), 1);
    assert_eq!(bed.id(&delivered[0]), told[1]);
    assert_eq!(bed.state(told[0]), None);
}

/// A shard with a crowd of jobs that hold one key: each was done within the time of its key or after it, and
/// all of them came back.
fn crowd(jobs: usize, of: impl Fn() -> NewJob<'static>, apart_ms: u64) -> Bed {
    let mut bed = Bed::with(Config { completed_max: u32::MAX, ..config(1) });
    for _ in 0..jobs {
        bed.push("q", of());
        let (job, token) = bed.pull(1, "q", 1)[0];
        bed.ack(job, Some(token)).unwrap();
    }
    bed.now_ms += apart_ms;
    let (job, count, until_ms) = (None, u64::MAX, u64::MAX);
    bed.run(1, &Command::RetryCompleted { queue: "q", job, count, until_ms });
    bed.pass(0);
    bed
}

fn freed(bed: &Bed, from: usize) -> usize {
    let records = bed.journal.records[from..].iter();
    let freed = |bytes: &&Vec<u8>| {
        matches!(
            Record::decode(bytes),
            Ok(Record::Changed(corq_shards::log_record::job_change::Changed::KeyFreed { .. }))
        )
    };
    records.filter(freed).count()
}

#[test]
fn any_number_of_jobs_whose_time_with_a_key_is_over_hold_up_no_push() {
    let mut bed = crowd(CROWD, || lasting(1000), 2000);
    for shard in 0..2 {
        let before = bed.journal.records.len();
        let id = bed.push("q", lasting(1000));
        assert_eq!(bed.state(id), Some(State::Waiting), "the key was free");
        assert_eq!(bed.push("q", plain()), id, "and is not any more");
        assert!(bed.journal.records.len() - before < 100, "a push costs no step per holder");
        bed.shard.audit().unwrap();
        if shard == 0 {
            // The key is freed as cheaply after a start.
            let mut again = bed.replayed();
            assert_eq!(again.facts(), bed.shard.facts());
            bed.now_ms += 2000;
            again.restart(bed.now_ms);
            bed.shard = again;
        }
    }
}

#[test]
fn a_replacing_push_costs_no_step_per_job_that_workers_have_under_its_key() {
    let mut bed = crowd(CROWD, plain, 0);
    for _ in 0..CROWD / 1000 {
        bed.pull(1, "q", 1000);
    }
    let before = bed.journal.records.len();
    let id = bed.push("q", replacing());
    assert_eq!(bed.state(id), Some(State::Waiting));
    assert!(bed.journal.records.len() - before < 100);
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

#[test]
fn the_oldest_of_many_holds_the_key_and_the_next_one_after_it() {
    let mut bed = crowd(5, plain, 0);
    let jobs: Vec<JobId> = bed.known().collect();
    for &job in &jobs {
        assert_eq!(bed.push("q", plain()), job);
        let (pulled, token) = bed.pull(1, "q", 1)[0];
        assert_eq!(pulled, job);
        bed.ack(job, Some(token)).unwrap();
        bed.shard.audit().unwrap();
    }
    assert!(!jobs.contains(&bed.push("q", plain())), "all of them are done");
}

#[test]
fn a_key_that_many_hold_is_taken_from_them_in_slices() {
    let mut bed = crowd(CROWD, plain, 0);
    assert_eq!(bed.shard.holdings().unique_keys, CROWD);
    let before = bed.journal.records.len();
    let free = Command::FreeKey { queue: "q", key: "k" };
    assert_eq!(bed.ask(1, &free), None, "it takes more than one slice");
    let request = bed.request;
    let most = SLICE as usize;
    assert!((1..=most).contains(&freed(&bed, before)), "one slice");
    // Others go on meanwhile: a job that comes now is none of those that were there.
    let late = bed.push("q", NewJob { unique_key: Some("j"), ..plain() });
    let replies = bed.pass(0);
    assert!(replies.iter().any(|(at, reply)| at.0 == request && *reply == Reply::Count(1)));
    assert_eq!(freed(&bed, before), CROWD);
    assert_eq!(bed.shard.holdings().unique_keys, 1);
    assert_eq!(bed.push("q", NewJob { unique_key: Some("j"), ..plain() }), late);
    let fresh = bed.push("q", plain());
    assert_eq!(bed.push("q", plain()), fresh);
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

/// Guards against a slice that looks at none but holders that came since, and takes them for all there are.
#[test]
fn any_number_of_holders_that_came_since_hide_none_that_were_there() {
    const NEWER: usize = 8500;
    let mut bed = crowd(CROWD, || lasting(1_000_000), 0);
    let free = Command::FreeKey { queue: "q", key: "k" };
    assert_eq!(bed.ask(1, &free), None, "it takes more than one slice");
    let request = bed.request;
    // Each takes the place of one that was there, is done and comes back: with no end to its time it stands in front.
    let newer: Vec<JobId> = (0..NEWER)
        .map(|_| {
            let id = bed.push("q", NewJob { priority: 1, ..replacing() });
            let (job, token) = bed.pull(1, "q", 1)[0];
            assert_eq!(job, id);
            bed.ack(job, Some(token)).unwrap();
            id
        })
        .collect();
    for &id in &newer {
        let (job, count, until_ms) = (Some(id), 1, u64::MAX);
        bed.run(1, &Command::RetryCompleted { queue: "q", job, count, until_ms });
    }
    let replies = bed.pass(0);
    assert!(replies.iter().any(|(at, reply)| at.0 == request && *reply == Reply::Count(1)));
    assert_eq!(bed.shard.holdings().unique_keys, NEWER, "those that came since keep it");
    bed.shard.audit().unwrap();
    assert_eq!(bed.replayed().facts(), bed.shard.facts());
}

#[test]
fn a_key_that_one_holds_is_taken_from_it_at_once() {
    let mut bed = Bed::new();
    let free = Command::FreeKey { queue: "q", key: "k" };
    assert_eq!(bed.ask(1, &free), Some(Reply::Count(0)), "nothing is known of it");
    let first = bed.push("q", plain());
    assert_eq!(bed.ask(1, &free), Some(Reply::Count(1)));
    assert_eq!(bed.ask(1, &free), Some(Reply::Count(0)));
    assert_ne!(bed.push("q", plain()), first);
    // A key whose time is over was held by nobody.
    bed.push("q", NewJob { unique_key: Some("t"), ..lasting(10) });
    bed.now_ms += 11;
    assert_eq!(bed.ask(1, &Command::FreeKey { queue: "q", key: "t" }), Some(Reply::Count(0)));
    bed.shard.audit().unwrap();
}

/// Guards against an answer with a job that a power loss may still take.
#[test]
fn a_durable_push_that_finds_its_key_held_waits_for_the_disk() {
    let mut bed = Bed::new();
    let held = bed.push("q", NewJob { unique_key: Some("k"), ..plain() });
    assert_eq!(bed.journal.syncs, 0);
    assert_eq!(bed.push("q", NewJob { unique_key: Some("k"), ..plain() }), held);
    assert_eq!(bed.journal.syncs, 0, "as durable as it was asked for");
    assert_eq!(bed.push("q", NewJob { unique_key: Some("k"), durable: true, ..plain() }), held);
    assert_eq!(bed.journal.syncs, 1);
}
