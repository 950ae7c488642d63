//! Recovery against life. The fear: a restart that remembers something else than what was.
#![allow(clippy::unwrap_used)]

mod support;

use corq_shards::Config;
use corq_shards::change::Change;
use corq_shards::changed::{Changed, Level};
use corq_shards::command::{
    Ack, AddWebhook, Beat, Clean, Command, Fail, Limit, NewJob, PerSpan, Pull, Repeat, SetCron,
    Stack, Token,
};
use corq_shards::dependency::{Notice, Unmet};
use corq_shards::effect::{KnownAs, Reply};
use corq_shards::event::{Event, Step};
use corq_shards::extras::{Dedup, Extras, Growth};
use corq_shards::id::{Chance, JobId};
use corq_shards::job::State;
use corq_shards::kept_record::Kept;
use corq_shards::record::{Pushed, Record};
use corq_shards::schedule::Plan;
use corq_shards::webhook::Triggers;
use std::collections::{BTreeMap, BTreeSet};
use support::{Bed, config, locked};

/// The job that a record brought, if it did.
fn brought_by(bytes: &[u8]) -> Option<JobId> {
    Some(Record::decode(bytes).unwrap().into_pushed()?.id)
}

/// Some job that was pushed at some time, whatever became of it.
fn pushed_before(bed: &Bed, chance: &mut Chance) -> JobId {
    let any = |_| &bed.journal.records[chance.draw() as usize % bed.journal.records.len().max(1)];
    let ids = (0..bed.journal.records.len().min(20)).map(any);
    let mut pushed = ids.filter_map(|record| match Record::decode(record).unwrap() {
        Record::Pushed(pushed) => Some(pushed.id),
        _ => None,
    });
    pushed.next().unwrap_or(JobId(7))
}

/// One random command, or the passing of time.
fn step(
    bed: &mut Bed,
    chance: &mut Chance,
    held: &mut Vec<(JobId, Option<Token>)>,
    late: &mut Vec<Notice>,
) {
    let queue = ["a", "b", "c"][chance.draw() as usize % 3];
    let client = chance.draw() % 4;
    match chance.draw() % 30 {
        0..=6 => {
            let key = format!("k{}", chance.draw() % 5);
            let name = format!("id{}", bed.request);
            let every_ms = 1 + chance.draw() % 900;
            let repeat = Repeat { every_ms, limit: Some(1 + chance.draw() % 4), count: 0 };
            let mut unmet = Vec::new();
            for _ in 0..(chance.draw() % 5).saturating_sub(2) {
                let pushed = pushed_before(bed, chance);
                Unmet::push(&mut unmet, pushed, ["", "named"][chance.draw() as usize % 2]);
            }
            let dedup = Dedup {
                ttl_ms: (chance.draw() % 3) * 400,
                extend: chance.draw().is_multiple_of(2),
                replace: chance.draw().is_multiple_of(2),
                until_ms: 0,
            };
            let extras = Extras {
                backoff: chance.draw().is_multiple_of(2).then_some(Growth::Fixed),
                stall_timeout_ms: chance.draw().is_multiple_of(3).then_some(200),
                keep_logs: chance.draw().is_multiple_of(3).then_some((chance.draw() % 3) as u32),
                made_at_ms: chance.draw().is_multiple_of(4).then_some(bed.now_ms - 300),
                dedup: chance.draw().is_multiple_of(2).then_some(dedup),
                ..Extras::default()
            };
            let ruled = chance.draw().is_multiple_of(3);
            let keyed = ruled && extras.dedup.is_some() || chance.draw().is_multiple_of(3);
            let job = NewJob {
                extras: ruled.then(|| Box::new(extras)),
                name: chance.draw().is_multiple_of(4).then_some(key.as_str()),
                unmet: Unmet::new(&unmet),
                repeat: chance.draw().is_multiple_of(4).then_some(repeat),
                data: b"\xa5hello",
                priority: (chance.draw() % 3) as i32,
                delay_ms: (chance.draw() % 4).saturating_sub(2) * 700,
                max_attempts: 1 + (chance.draw() % 3) as u16,
                backoff_ms: (chance.draw() % 2) as u32 * 300,
                ttl_ms: chance.draw().is_multiple_of(5).then_some(3000),
                timeout_ms: chance.draw().is_multiple_of(5).then_some(900),
                unique_key: keyed.then_some(key.as_str()),
                custom_id: chance.draw().is_multiple_of(4).then_some(name.as_str()),
                lifo: chance.draw().is_multiple_of(4),
                remove_on_complete: chance.draw().is_multiple_of(6),
                remove_on_fail: chance.draw().is_multiple_of(6),
                ..NewJob::default()
            };
            bed.run(client, &Command::Push { queue, jobs: &[job] });
        }
        7..=11 => {
            let count = 1 + (chance.draw() % 3) as u32;
            let wait = chance.draw() % 2 * 400;
            let owned = !chance.draw().is_multiple_of(3);
            let pull =
                Pull { count, timeout_ms: wait, locked: owned, lock_ttl_ms: 1000, ..locked(queue) };
            bed.run(client, &Command::Pull(pull));
        }
        12..=14 if !held.is_empty() => {
            let (job, token) = held.swap_remove(chance.draw() as usize % held.len());
            let acks =
                [Ack { job, token, result: b"\xa4done", remove: chance.draw().is_multiple_of(8) }];
            bed.run(client, &Command::Ack { acks: &acks });
        }
        15 if !held.is_empty() => {
            let (job, token) = held.swap_remove(chance.draw() as usize % held.len());
            bed.run(
                client,
                &Command::Fail(Fail {
                    job,
                    token,
                    error: "no",
                    stack: Stack { lines: 1, texts: b"\xa2at" },
                    unrecoverable: chance.draw().is_multiple_of(4),
                    remove: chance.draw().is_multiple_of(8),
                }),
            );
        }
        16 if !held.is_empty() => {
            let (job, token) = held[chance.draw() as usize % held.len()];
            bed.run(client, &Command::Heartbeat(Beat { job, token, ttl_ms: None }));
        }
        17 => {
            bed.run(client, &Command::Disconnect);
        }
        18 => {
            let paused = chance.draw().is_multiple_of(3);
            bed.run(client, &Command::Pause { queue, paused });
            bed.run(client, &Command::RetryFailed { queue, job: None, count: 3 });
            bed.run(client, &Command::PromoteAll { queue, count: chance.draw() % 4 });
            bed.run(client, &Command::FreeKey { queue, key: "k1" });
        }
        20..=24 => change(bed, chance, client),
        25 | 26 => change_queue(bed, chance, client, queue),
        27 => step_cron(bed, chance, queue),
        28 => step_webhook(bed, chance, queue),
        _ => {
            bed.pass(chance.draw() % 600);
        }
    }
    let deliveries = bed.effects.deliveries.clone();
    // Notices may come late, or twice, or be lost in a crash and asked for again.
    late.append(&mut bed.effects.notices);
    if chance.draw().is_multiple_of(3) {
        for notice in std::mem::take(late) {
            for _ in 0..=chance.draw() % 2 {
                bed.run(0, &Command::Notice(notice));
                late.append(&mut bed.effects.notices);
            }
        }
    }
    if chance.draw().is_multiple_of(40) {
        late.clear();
        late.extend(bed.shard.watches_to_renew());
    }
    for delivery in deliveries {
        if bed.shard.view(delivery.job).lease.is_some() {
            held.push((bed.id(&delivery), delivery.token));
        }
    }
}

/// Something done to a job that may be in any state, or gone.
fn change(bed: &mut Bed, chance: &mut Chance, client: u64) {
    let known: Vec<JobId> = bed.known().collect();
    let Some(&job) = known.get(chance.draw() as usize % known.len().max(1)) else { return };
    let new = NewJob { data: b"\xa3new", unique_key: Some("not news"), ..NewJob::default() };
    let change = match chance.draw() % 15 {
        0 => Change::Cancel,
        10 => Change::ToWait { token: None },
        11 => Change::Delay { delay_ms: chance.draw() % 3 * 300, token: None },
        12 => Change::CutLog(chance.draw() as u32 % 3),
        13 => Change::FreeKey,
        14 => Change::Log { level: Level::Info, message: "more" },
        1 => Change::Update { job: &new },
        2 => Change::Prioritize(chance.draw() as i32 % 4),
        3 => Change::Promote,
        4 => Change::PutOff(chance.draw() % 3 * 400),
        5 => Change::Discard,
        6 => Change::Progress { progress: 12.5, message: None },
        7 => Change::Progress { progress: 99.0, message: Some("nearly") },
        8 => Change::Log { level: Level::Warn, message: "look" },
        _ => {
            let timeout_ms = chance.draw() % 3 * 300;
            bed.run(client, &Command::AwaitEnd { job, timeout_ms });
            return;
        }
    };
    bed.run(client, &Command::Change { job, change });
}

/// A random command on a queue as a whole.
fn change_queue(bed: &mut Bed, chance: &mut Chance, client: u64, queue: &str) {
    let some = |draw: u64| (draw.is_multiple_of(2)).then_some(1 + draw as u32 % 4);
    let states = [State::Waiting, State::Delayed, State::Completed, State::Failed, State::Active];
    let first = chance.draw() as usize % states.len();
    let clean = Clean {
        queue,
        grace_ms: chance.draw() % 3 * 500,
        states: &states[first..],
        limit: 1 + chance.draw() % 5,
    };
    let command = match chance.draw() % 8 {
        0 | 1 => {
            let rate = some(chance.draw()).map(|jobs| PerSpan {
                jobs,
                span_ms: [1000, 300][chance.draw() as usize % 2],
                until_ms: [0, bed.now_ms + 900][chance.draw() as usize % 2],
            });
            Command::Limit { queue, limit: Limit::Rate(rate) }
        }
        2 | 3 => Command::Limit { queue, limit: Limit::Active(some(chance.draw())) },
        4 => Command::Clean(clean),
        5 => Command::RetryCompleted { queue, job: None, count: u64::MAX, until_ms: u64::MAX },
        6 => Command::PurgeFailed { queue },
        _ if chance.draw().is_multiple_of(2) => Command::Drain { queue },
        _ => Command::Obliterate { queue },
    };
    bed.run(client, &command);
}

/// Something about schedules.
fn step_cron(bed: &mut Bed, chance: &mut Chance, queue: &str) {
    let name = ["x", "y", "z"][chance.draw() as usize % 3];
    let zone = chance.draw().is_multiple_of(2).then_some("Asia/Kolkata");
    let job = NewJob { name: Some("kind"), max_attempts: 2, delay_ms: 40, ..NewJob::default() };
    let cron = SetCron {
        job: chance.draw().is_multiple_of(2).then_some(&job),
        name,
        queue,
        data: b"\xa4tick",
        schedule: Some("*/2 * * * * *"),
        repeat_every_ms: None,
        timezone: zone,
        priority: (chance.draw() % 3) as i32,
        runs_max: chance.draw().is_multiple_of(3).then_some(4),
        plan: Plan::at("*/2 * * * * *", zone).unwrap(),
        moved: None,
    };
    let every = SetCron {
        schedule: None,
        repeat_every_ms: Some(900),
        plan: Plan::every(900, zone).unwrap(),
        ..cron
    };
    let command = match chance.draw() % 5 {
        0 => Command::SetCron(&cron),
        1 => Command::SetCron(&every),
        2 => Command::RemoveCron { name },
        3 => Command::HoldCron { name, held: chance.draw().is_multiple_of(2) },
        _ => Command::StartCrons,
    };
    bed.run(1, &command);
}

/// A webhook comes or goes.
fn step_webhook(bed: &mut Bed, chance: &mut Chance, queue: &str) {
    let id = u128::from(chance.draw() % 3);
    let webhook = AddWebhook {
        id,
        url: "https://example.com/hook",
        events: Triggers::of_bits(chance.draw() as u32 & 0x7f),
        queue: chance.draw().is_multiple_of(2).then_some(queue),
        secret: chance.draw().is_multiple_of(2).then_some("hush"),
    };
    let command = match chance.draw() % 2 {
        0 => Command::RemoveWebhook { id },
        _ => Command::AddWebhook(&webhook),
    };
    bed.run(1, &command);
}

#[test]
fn replay_equals_live_state_at_every_moment() {
    live_many_lives(150, 0);
}

/// The same while the beginning of the log is given up, in steps that may end anywhere.
#[test]
fn replay_of_what_is_left_of_the_log_equals_live_state_at_every_moment() {
    let gone: BTreeSet<_> = [1, 3, 20].into_iter().flat_map(|it| live_many_lives(50, it)).collect();
    // A kind that is new here, and that these lives never write, has to be written by them.
    assert_eq!(gone, KINDS.iter().copied().collect());
}

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
    Record::Revived { .. } => "revived",
    Record::Removed { .. } => "removed",
    Record::Changed(Changed::Prioritized { .. }) => "prioritized",
    Record::Changed(Changed::Promoted { .. }) => "promoted",
    Record::Changed(Changed::PutOff { .. }) => "put off",
    Record::Changed(Changed::Flagged { .. }) => "flagged",
    Record::Changed(Changed::LogCut { .. }) => "log cut",
    Record::Changed(Changed::KeyFreed { .. }) => "key freed",
    Record::Changed(Changed::KeyExtended { .. }) => "key extended",
    Record::Changed(Changed::Progressed { .. }) => "progressed",
    Record::Changed(Changed::Logged { .. }) => "logged",
    Record::Paused { .. } => "paused",
    Record::Limited { .. } => "limited",
    Record::CronSet(_) => "schedule set",
    Record::CronRan(_) => "schedule ran",
    Record::CronMissed { .. } => "schedule missed",
    Record::CronRemoved { .. } => "schedule removed",
    Record::Met { .. } => "met",
    Record::Repeated(_) => "repeated",
    Record::WebhookAdded(_) => "webhook added",
    Record::WebhookRemoved { .. } => "webhook removed",
    Record::Kept(Kept::Job(_)) => "job kept",
    Record::Kept(Kept::Moved(_)) => "moved",
    Record::Kept(Kept::Evicted { .. }) => "evicted",
    Record::Kept(Kept::Past(_)) => "past",
    Record::Kept(Kept::Ids { .. }) => "ids",
}

/// Returns the kinds of the records that were given up.
fn live_many_lives(lives: u64, eager: u64) -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::new();
    for seed in 0..lives {
        let mut chance = Chance::new(seed);
        // Few completed jobs are kept in some of them, so that most are forgotten for their number.
        let completed_max = [20, 2][seed as usize % 2];
        let mut bed = Bed::with(Config { completed_max, ..config(1) });
        let mut held = Vec::new();
        let mut late = Vec::new();
        for round in 0..250 {
            // Listeners come and go; what they hear is not part of what is remembered.
            bed.shard.listen(round / 30 % 2 == 1);
            step(&mut bed, &mut chance, &mut held, &mut late);
            if eager > 0 && chance.draw().is_multiple_of(eager) {
                let before = bed.journal.gone;
                bed.reclaim(chance.draw() as usize % 40);
                let gone = &bed.journal.records[before..bed.journal.gone];
                kinds.extend(gone.iter().map(|bytes| kind_of(&Record::decode(bytes).unwrap())));
            }
            if round % 10 == 0 {
                bed.shard.audit().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
                let mut again = bed.replayed();
                again.audit().unwrap_or_else(|wrong| panic!("seed {seed}, replayed: {wrong}"));
                assert_eq!(again.facts(), bed.shard.facts(), "seed {seed}, round {round}");
                for id in bed.journal.records.iter().filter_map(|bytes| brought_by(bytes)) {
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
    let job = format!("{job:?}");
    let before = known.get(&job).copied();
    let open = before.is_some_and(|state| !state.is_end());
    let (fits, after) = match event.step {
        Step::Pushed => (before.is_none_or(State::is_end), State::Waiting),
        Step::WaitingChildren => (before == Some(State::Waiting), State::WaitingChildren),
        // A delay may be changed while it lasts.
        Step::Delayed { .. } => (open, State::Delayed),
        Step::Pulled => (open, State::Active),
        Step::Completed { .. } => (before == Some(State::Active), State::Completed),
        Step::Failed { .. } => (before.is_some_and(|it| it != State::Failed), State::Failed),
        // After a failed attempt, or given back.
        Step::Retried { prev: State::Active } => {
            (matches!(before, Some(State::Failed | State::Active)), State::Waiting)
        }
        Step::Retried { prev } => (before == Some(prev), State::Waiting),
        Step::Progress(_) => (before == Some(State::Active), State::Active),
        // It waits again if no failure follows: either is still open.
        Step::Stalled => (before == Some(State::Active), State::Waiting),
        Step::Duplicated => (open, before.unwrap_or_default()),
        Step::Drained => (false, State::Vacant),
        Step::Removed { prev } => {
            known.remove(&job);
            let fits = if prev.is_end() { before == Some(prev) } else { open };
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
            // What is left of an obliterated queue is listed nowhere, so it has to be gone.
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
                let told = known[&format!("{job:?}")];
                let state = view.job.state;
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
        tags: b"\x91\xa1t",
        depends_on: b"\x91\xa1d",
        unmet: Unmet::new(&unmet),
        repeat: Some(Repeat { every_ms: 5, limit: Some(6), count: 7 }),
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
    };
    let record = Record::Pushed(Pushed { id: JobId(77), queue: "q", run_at_ms: 8, job });
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
