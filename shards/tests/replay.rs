//! Recovery against life. The fear: a restart that remembers something else than what was.

use crate::support::life::step;
use crate::support::{Bed, config, locked};
use corq_shards::command::{Command, Pull};
use corq_shards::dead_letter::policy::Rule;
use corq_shards::dependency::Unmet;
use corq_shards::effect::{KnownAs, Reply};
use corq_shards::event::{Event, Step};
use corq_shards::family::{NewFamily, Policy};
use corq_shards::job::State;
use corq_shards::job::id::{Chance, JobId};
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::job::overrides::{Dedup, Extras, Growth};
use corq_shards::job::recurrence::Recurrence;
use corq_shards::job::trace::{NewTrace, TraceParent};
use corq_shards::log_record::job_change::Changed;
use corq_shards::log_record::snapshot::Kept;
use corq_shards::log_record::{Pushed, Record, Revived, Ruled};
use corq_shards::{Config, SLICE};
use std::collections::{BTreeMap, BTreeSet};

/// The job that a record brought, if it did.
fn brought_by(bytes: &[u8]) -> Option<JobId> {
    Some(Record::decode(bytes).unwrap().into_pushed()?.id)
}

#[test]
fn replay_equals_live_state_at_every_moment() {
    live_many_lives(150, 0);
}

/// Replay equals live state also while the beginning of the log is given up, in steps that may end anywhere.
#[test]
fn replay_of_what_is_left_of_the_log_equals_live_state_at_every_moment() {
    let gone: BTreeSet<_> = [1, 3, 20].into_iter().flat_map(|it| live_many_lives(50, it)).collect();
    // A kind that is new here, and that these lives never write, has to be written by them.
    assert_eq!(gone, KINDS.iter().copied().collect());
}

/// How far a clock is ahead that is not right.
const AHEAD_MS: u64 = 65 * 365 * 86_400_000;

/// Names every kind of record, so that none is added without its loss being tried.
macro_rules! kinds {
    ($($kind:pat => $name:literal,)*) => {
        const KINDS: &[&str] = &[$($name),*];
        fn kind_of(record: &Record<'_>) -> &'static str {
            match record {
                $($kind => $name,)*
            }
        }
    };
}

kinds! {
    Record::Pushed(_) => "pushed",
    Record::Leased(_) => "leased",
    Record::Completed(_) => "completed",
    Record::Retried(_) => "retried",
    Record::Buried(_) => "buried",
    Record::Stalled { .. } => "stalled",
    Record::Released { .. } => "released",
    Record::Revived(Revived { by_itself: false, .. }) => "revived",
    Record::Revived(Revived { by_itself: true, .. }) => "revived-by-itself",
    Record::Ruled(Ruled { rule: Rule::Dlq(_), .. }) => "dlq-ruled",
    Record::Ruled(Ruled { rule: Rule::Stall(_), .. }) => "stall-ruled",
    Record::Removed { .. } => "removed",
    Record::Changed(Changed::Prioritized(_)) => "prioritized",
    Record::Changed(Changed::Promoted { .. }) => "promoted",
    Record::Changed(Changed::PutOff { .. }) => "put off",
    Record::Changed(Changed::Flagged { .. }) => "flagged",
    Record::Changed(Changed::LogCut { .. }) => "log cut",
    Record::Changed(Changed::KeyFreed { .. }) => "key freed",
    Record::Changed(Changed::KeyExtended { .. }) => "key extended",
    Record::Changed(Changed::Renewed { .. }) => "renewed",
    Record::Changed(Changed::Progressed { .. }) => "progressed",
    Record::Changed(Changed::Logged { .. }) => "logged",
    Record::Paused { .. } => "paused",
    Record::Limited(_) => "limited",
    Record::Grouped(_) => "grouped",
    Record::GroupsCleared { .. } => "groups cleared",
    Record::CronSet(_) => "schedule set",
    Record::CronRan(_) => "schedule ran",
    Record::CronMissed { .. } => "schedule missed",
    Record::CronRemoved { .. } => "schedule removed",
    Record::Met { .. } => "met",
    Record::Repeated(_) => "repeated",
    Record::ChildEnded(_) => "child ended",
    Record::Settled { .. } => "settled",
    Record::Adopted(_) => "adopted",
    Record::Blocked { .. } => "blocked",
    Record::Staged(_) => "staged",
    Record::Flow { .. } => "flow",
    Record::FlowSlice { .. } => "flow slice",
    Record::Kept(Kept::Unreported(_)) => "remains",
    Record::WebhookAdded(_) => "webhook added",
    Record::WebhookRemoved { .. } => "webhook removed",
    Record::ClockSetBack { .. } => "clock set back",
    Record::Kept(Kept::Job(_)) => "job kept",
    Record::Kept(Kept::Moved(_)) => "moved",
    Record::Kept(Kept::Evicted { .. }) => "evicted",
    Record::Kept(Kept::CompletedIds(_)) => "past",
    Record::Kept(Kept::CompletedNames(_)) => "completed names",
    Record::Kept(Kept::Ids { .. }) => "ids",
    Record::Kept(Kept::Clock { .. }) => "clock",
    Record::Kept(Kept::GivenUp { .. }) => "given up",
}

/// Returns the kinds of the records that were given up.
fn live_many_lives(lives: u64, eager: u64) -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::new();
    // The last of them run by a clock that is ahead for a while, until a start with one that is right.
    for seed in 0..lives + lives / 6 {
        let is_ahead = seed >= lives;
        let mut chance = Chance::new(seed);
        // Few completed jobs are kept in some of them, so that most are forgotten for their number.
        let completed_max = [20, 2][seed as usize % 2];
        // And in some of those that give up the beginning of the log, flows come in slices.
        let bulk_slice = if eager > 0 && seed / 2 % 2 == 1 { 1 } else { SLICE };
        // In some, few failed attempts are remembered, so that others leave but their marks.
        let remembered_bytes_max = [u64::MAX, 300][seed as usize / 4 % 2];
        let config = Config { completed_max, bulk_slice, remembered_bytes_max, ..config(1) };
        let mut bed = Bed::with(config);
        let mut held = Vec::new();
        let mut late = Vec::new();
        for round in 0..250 {
            // Listeners come and go; what they hear is not part of what is remembered.
            bed.shard.listen(round / 30 % 2 == 1);
            match round {
                100 if is_ahead => bed.now_ms += AHEAD_MS,
                150 if is_ahead => {
                    bed.now_ms -= AHEAD_MS;
                    bed.shard = bed.replayed();
                    let found = bed.shard.set_clock_back(bed.now_ms, &mut bed.journal);
                    assert!(found.is_some(), "seed {seed}");
                    bed.shard.restart(bed.now_ms);
                }
                _ => {}
            }
            step(&mut bed, &mut chance, &mut held, &mut late);
            if eager > 0 && chance.draw().is_multiple_of(eager) {
                let before = bed.journal.gone;
                bed.reclaim(chance.draw() as usize % 40);
                let gone = &bed.journal.records[before..bed.journal.gone];
                kinds.extend(gone.iter().map(|bytes| kind_of(&Record::decode(bytes).unwrap())));
            }
            if round % 10 == 0 {
                bed.shard.audit().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
                // Under whatever settings the next start has.
                let completed_max = [0, 1, 2, 20, 1000][chance.draw() as usize % 5];
                let completed_retention_ms = [0, 1000, 600_000][chance.draw() as usize % 3];
                let config = Config { completed_max, completed_retention_ms, ..bed.config };
                let mut again = bed.replayed_with(config);
                again.audit().unwrap_or_else(|wrong| panic!("seed {seed}, replayed: {wrong}"));
                assert_eq!(again.unknown_job_records(), 0, "seed {seed}, round {round}");
                assert_eq!(again.facts(), bed.shard.facts(), "seed {seed}, round {round}");
                for id in bed.journal.records.iter().filter_map(|bytes| brought_by(bytes)) {
                    if bed.shard.is_obliterated(id) {
                        // An obliterated job goes in slices; a job that has not gone by a crash is there again.
                        continue;
                    }
                    let (live, again) = (bed.shard.standing(id), again.standing(id));
                    assert_eq!(again, live, "seed {seed}, round {round}: {id}");
                }
            }
        }
    }
    kinds
}

/// Where jobs stand, as a listener knows it. Locks that end with their connection, delays that end and
/// dependencies that are met are no events, so a job that has not ended may come to a worker from
/// anywhere.
fn follow(known: &mut BTreeMap<String, State>, event: &Event) -> Result<(), String> {
    let Some(job) = &event.job else { return Ok(()) };
    // An ended run of a series bears its own id once the next run has taken over its custom id.
    let ended = matches!(job, KnownAs::Id(_)).then_some(State::Completed);
    let job = format!("{job:?}");
    let before = known.get(&job).copied();
    let open = before.is_some_and(|state| !state.is_end());
    let (fits, after) = match event.step {
        Step::Pushed => (before.is_none_or(State::is_end), State::Waiting),
        // With its push, given back by its worker, or for a child that came late.
        Step::WaitingChildren => (open, State::WaitingChildren),
        // A delay may be changed while it lasts.
        Step::Delayed { .. } => (open, State::Delayed),
        Step::Pulled => (open, State::Active),
        Step::Completed { .. } => (before == Some(State::Active), State::Completed),
        Step::Failed { .. } => {
            (before.or(ended).is_some_and(|it| it != State::Failed), State::Failed)
        }
        // Of a failed attempt, `failed` came before.
        Step::Retried { prev } => (before.or(ended) == Some(prev), State::Waiting),
        Step::Progress(_) => (before == Some(State::Active), State::Active),
        // The job waits again if no failure follows: either is still open.
        Step::Stalled => (before == Some(State::Active), State::Waiting),
        Step::Duplicated => (open, before.unwrap_or_default()),
        Step::Drained | Step::Paused | Step::Resumed | Step::Extra(_) => (false, State::Vacant),
        Step::Removed { prev } => {
            known.remove(&job);
            let fits = if prev.is_end() { before.or(ended) == Some(prev) } else { open };
            return fits.then_some(()).ok_or(format!("{event:?} after {before:?}"));
        }
    };
    known.insert(job, after);
    fits.then_some(()).ok_or(format!("{event:?} after {before:?}"))
}

#[test]
fn events_tell_what_became_of_every_job() {
    for seed in 0..60 {
        let mut chance = Chance::new(seed);
        let mut bed = Bed::new();
        bed.shard.listen(true);
        let (mut held, mut late) = (Vec::new(), Vec::new());
        let mut known = BTreeMap::new();
        for round in 0..250 {
            step(&mut bed, &mut chance, &mut held, &mut late);
            // Jobs that are left of an obliterated queue are listed nowhere, so they have to be gone.
            bed.pass(0);
            for event in std::mem::take(&mut bed.events) {
                follow(&mut known, &event)
                    .unwrap_or_else(|wrong| panic!("seed {seed}, round {round}: {wrong}"));
            }
            let jobs: Vec<JobId> = bed.known().collect();
            let mut found = 0;
            for job in jobs {
                let view = bed.shard.view(bed.shard.find(job).unwrap());
                let name = view.options.and_then(|has| has.custom_id.clone());
                let job = name.map_or(KnownAs::Id(job), KnownAs::Custom);
                let state = view.job.state;
                let Some(&told) = known.get(&format!("{job:?}")) else {
                    // An ended run of a series, whose custom id the next run has taken over.
                    let is_past_run = matches!(job, KnownAs::Id(_)) && state.is_end();
                    assert!(is_past_run, "seed {seed}, round {round}: {job:?} {state:?}");
                    continue;
                };
                found += usize::from(!state.is_end());
                let agree = told == state || !told.is_end() && !state.is_end();
                assert!(agree, "seed {seed}, round {round}: {job:?} {told:?} {state:?}");
            }
            let told = known.values().filter(|state| !state.is_end()).count();
            assert_eq!(told, found, "seed {seed}, round {round}: jobs that have not ended");
        }
    }
}

#[test]
fn a_lock_that_lived_gets_its_whole_life_again() {
    let mut bed = Bed::new();
    let job = bed.data("q", b"1");
    let (_, token) = bed.pull(1, "q", 1)[0];
    let unlocked = bed.data("q", b"2");
    bed.ask(1, &Command::Pull(Pull { locked: false, ..locked("q") }));
    bed.pass(25_000);
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    assert_eq!(bed.state(unlocked), Some(corq_shards::job::State::Waiting));
    bed.pass(29_000);
    bed.ack(job, Some(token)).unwrap();
}

#[test]
fn ids_made_after_recovery_are_new() {
    let mut bed = Bed::new();
    let last = (0..1000).map(|_| bed.data("q", b"1")).last().unwrap();
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms - 5000);
    bed.now_ms -= 5000;
    assert!(bed.data("q", b"1") > last, "even if the clock went back");
}

#[test]
fn every_option_of_a_job_survives_its_record() {
    let mut unmet = Vec::new();
    Unmet::push(&mut unmet, JobId(4), "");
    Unmet::push(&mut unmet, JobId(5), "\u{e4}");
    let job = NewJob {
        data: b"\x93\x01\x02\x03",
        name: Some("kind"),
        priority: -999_999,
        delay_ms: 31_536_000_000,
        max_attempts: 1000,
        backoff_ms: 86_400_000,
        ttl_ms: Some(1),
        timeout_ms: Some(2),
        unique_key: Some("unique"),
        custom_id: Some("custom"),
        group_id: Some("group"),
        group_max: 0,
        tags: b"\x91\xa1t",
        depends_on: b"\x91\xa1d",
        unmet: Unmet::new(&unmet),
        repeat: Some(Repeat { every_ms: 5, limit: Some(6), count: 7 }),
        recurrence: Some(Box::new(Recurrence {
            pattern: Some("* * * * *"),
            timezone: Some("Asia/Kathmandu"),
            until_ms: Some(9),
            ..Recurrence::default()
        })),
        trace: Some(Box::new(NewTrace {
            parent: TraceParent { trace_id: [1; 16], span_id: [2; 8], flags: 3 },
            state: "a=1",
        })),
        lifo: true,
        remove_on_complete: true,
        remove_on_fail: true,
        durable: true,
        extras: Some(Box::new(Extras {
            backoff: Some(Growth::Fixed),
            backoff_max_ms: Some(1),
            stall_timeout_ms: Some(2),
            keep_logs: Some(3),
            size_limit: Some(4),
            stack_lines_max: Some(5),
            made_at_ms: Some(6),
            dedup: Some(Dedup { ttl_ms: 7, extend: true, replace: true, until_ms: 8 }),
        })),
        family: Some(Box::new(NewFamily {
            parent: Some("parent"),
            policy: Some(Policy::Ignore),
            children: b"\x91\xa1c",
            open: Unmet::new(&unmet),
        })),
    };
    let record =
        Record::Pushed(Pushed { id: JobId(77), queue: "q", run_at_ms: 8, job: job.into() });
    let mut bytes = vec![0; record.encoded_len()];
    record.encode(&mut bytes);
    assert_eq!(format!("{:?}", Record::decode(&bytes).unwrap()), format!("{record:?}"));
    assert!(format!("{record:?}").contains("\u{e4}"), "what is compared is all of it");
}

#[test]
fn a_damaged_record_is_refused_and_never_panics() {
    let mut bed = Bed::new();
    let mut chance = Chance::new(3);
    let mut held = Vec::new();
    let mut late = Vec::new();
    for _ in 0..300 {
        step(&mut bed, &mut chance, &mut held, &mut late);
    }
    for record in &bed.journal.records {
        for cut in 0..record.len() {
            let _ = Record::decode(&record[..cut]);
        }
        for at in 0..record.len() {
            let mut bent = record.clone();
            bent[at] ^= 1 << (chance.draw() % 8);
            let _ = corq_shards::Shard::new(config(0)).replay(0, &bent);
        }
    }
}

/// The harness must be able to see a difference.
#[test]
fn canary_a_lost_record_is_noticed() {
    let mut bed = Bed::new();
    bed.data("q", b"1");
    bed.data("q", b"2");
    bed.journal.records.pop();
    assert_ne!(bed.replayed().facts(), bed.shard.facts());
    let reply = bed.ask(1, &Command::Heartbeats { beats: &[] });
    assert_eq!(reply, Some(Reply::Count(0)));
}
