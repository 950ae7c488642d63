//! Another number of shards. The fear: a job, a setting or a place in a row that did not come along.

use crate::support::life::step;
use crate::support::{Bed, Memory, SPAN_BITS, config};
use corq_shards::command::{Ack, Command, CronStanding, Limit, SetCron};
use corq_shards::compaction::reshard::{Contents, Reshard};
use corq_shards::cron::expression::Plan;
use corq_shards::dependency::{COMPLETED_NAMES_MAX, Standing};
use corq_shards::effect::Reply;
use corq_shards::job::id::{Chance, JobId, Slot};
use corq_shards::job::new_job::NewJob;
use corq_shards::job::{State, flags};
use corq_shards::log_record::cron::CronRules;
use corq_shards::log_record::location::LogRef;
use corq_shards::log_record::{Journal, Record};
use corq_shards::{Config, Shard};

/// Queues of three old shards. A queue is on one shard.
const QUEUES: [[&str; 3]; 3] = [["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"]];

fn replayed(journal: &Memory, config: Config) -> Shard {
    let mut shard = Shard::new(Config { seed: 2, ..config });
    for (position, record) in journal.records.iter().enumerate().skip(journal.gone) {
        shard.replay(position as u64, record).unwrap();
    }
    shard.audit().unwrap();
    shard
}

fn owner(shards: usize) -> impl Fn(Slot) -> usize {
    move |slot| slot.index() % shards
}

/// Where the addresses of new logs begin: in a span of their own.
fn floor_above(olds: &[&Memory]) -> usize {
    olds.iter().map(|old| old.records.len()).max().unwrap().next_multiple_of(1 << SPAN_BITS)
}

/// Deals what is in some logs out to `shards` new ones.
fn reshard(olds: &[&Memory], config: Config, shards: usize) -> Vec<Memory> {
    let floor = floor_above(olds);
    let mut log = Memory::default();
    for _ in 0..floor {
        log.append(&Record::Removed { id: JobId(7) });
    }
    (log.gone, log.kept) = (floor, floor);
    let mut logs = vec![log; shards];
    let mut change = Reshard::new(floor as u64, owner(shards));
    for old in olds {
        let mut shard = replayed(old, config);
        for flow in [shard.staged_flows(), shard.open_flows()].concat() {
            shard.settle_flow(flow, false);
        }
        for (position, record) in old.records.iter().enumerate().skip(old.gone) {
            change.take(&mut shard, position as u64, record, &mut logs).unwrap();
        }
        change.end_shard(&shard).unwrap();
    }
    let expected = change.end(&mut logs).unwrap();
    let mut found = Contents::default();
    for log in &logs {
        found += replayed(log, config).contents();
    }
    assert_eq!(found, expected);
    logs
}

fn text(journal: &Memory, stored: LogRef) -> &[u8] {
    let record = &journal.records[stored.position as usize];
    assert_eq!(record.len(), stored.record_bytes as usize);
    &record[record.len() - stored.payload_bytes as usize..]
}

/// All that is durable of a job, with what its pointers lead to in place of where they do.
fn story_of(shard: &Shard, journal: &Memory, index: u32) -> String {
    let view = shard.view(index);
    let job = view.job;
    let original = |stored: LogRef| {
        Record::decode_original(&journal.records[stored.position as usize]).unwrap()
    };
    let given = original(view.data).into_pushed().unwrap().job;
    let lock = view.lease.map(|lease| (lease.token, lease.ttl_ms, lease.started_at_ms));
    let end = view.outcome.map(|it| {
        let (at, from, order) = (it.finished_at_ms, it.started_at_ms, it.order);
        format!("{at} {from} {order} {:?} {:?}", original(it.stored), text(journal, it.stored))
    });
    let rare = view.options.map(|has| {
        let notes = has.notes.as_ref().map(|notes| {
            let told = notes.message.map(|message| text(journal, message));
            let line = |line: &corq_shards::job::progress::LogEntry| {
                format!("{} {:?} {:?}", line.at_ms, line.level, text(journal, line.stored))
            };
            format!(
                "{} {told:?} {:?}",
                notes.progress,
                notes.logs.iter().map(line).collect::<Vec<_>>()
            )
        });
        let (key, name) = (&has.unique_key, &has.custom_id);
        let (expires, timeout) = (has.expires_at_ms, has.timeout_ms);
        let family = has.family.as_ref().map(|family| {
            let ends: Vec<_> = family.ends.values().map(|end| text(journal, end.stored)).collect();
            let (parent, policy, freed) = (&family.parent, family.policy, family.freed);
            format!("{parent:?} {policy:?} {freed} {:?} {ends:?}", family.children)
        });
        let (unmet, series) = (&has.unmet, &has.series);
        format!("{key:?} {name:?} {expires} {timeout} {notes:?} {unmet:?} {series:?} {family:?}")
    });
    let derived = flags::OUT_OF_ORDER | flags::AWAITED | flags::WATCHED | flags::KEPT_ENDED;
    let flags = job.flags & !derived;
    format!(
        "{} {} {:?} at {} priority {} tried {}/{} stalled {} backoff {} flags {flags} data {:?} tags {:?} \
         group {:?} on {:?} lock {lock:?} end {end:?} rare {rare:?}",
        job.id,
        view.queue,
        job.state,
        job.run_at_ms,
        job.priority,
        job.attempts,
        job.max_attempts,
        job.stalls,
        job.backoff_ms,
        text(journal, view.data),
        given.tags,
        given.group_id,
        given.depends_on,
    )
}

/// Everything that some shards remember together.
fn story(logs: &[&Memory], config: Config) -> Vec<String> {
    let mut lines = Vec::new();
    for journal in logs {
        let shard = replayed(journal, config);
        lines.extend(shard.indices().map(|index| story_of(&shard, journal, index)));
        let settings = ["paused ", "limited ", "group ", "cron ", "webhook "];
        let is_setting = |fact: &String| settings.iter().any(|word| fact.starts_with(word));
        lines.extend(shard.facts().into_iter().filter(is_setting));
    }
    lines.sort();
    lines
}

/// A process that has started with a log.
fn started(journal: Memory, config: Config, now_ms: u64) -> Bed {
    let mut shard = replayed(&journal, config);
    shard.restart(now_ms);
    Bed { shard, journal, now_ms, ..Bed::with(config) }
}

/// The jobs of a queue as workers would get them.
fn order(bed: &mut Bed, queue: &str) -> Vec<JobId> {
    bed.run(9, &Command::Pause { queue, paused: false });
    bed.run(9, &Command::Limit { queue, limit: Limit::Rate(None) });
    bed.run(9, &Command::Limit { queue, limit: Limit::Active(None) });
    bed.pull(9, queue, 1000).into_iter().map(|(id, _)| id).collect()
}

/// Dead and completed jobs of a queue, oldest end first.
fn ends(bed: &mut Bed, queue: &str) -> Vec<JobId> {
    let failed: Vec<u32> = bed.shard.failed(queue).collect();
    failed.into_iter().map(|index| bed.shard.view(index).job.id).collect()
}

#[test]
fn random_lives_are_the_same_on_any_number_of_shards() {
    for seed in 0..60 {
        let mut chance = Chance::new(seed);
        let config = Config { completed_max: [20, 2][seed as usize % 2], ..config(1) };
        let olds: Vec<Bed> = (0..=seed as usize % 3)
            .map(|shard| {
                let mut bed = Bed::with(Config { seed: shard as u64, ..config });
                bed.queues = QUEUES[shard].to_vec();
                let (mut held, mut late) = (Vec::new(), Vec::new());
                for _ in 0..150 {
                    step(&mut bed, &mut chance, &mut held, &mut late);
                    if seed % 4 > 0 && chance.draw().is_multiple_of(5) {
                        bed.reclaim(chance.draw() as usize % 40);
                    }
                }
                if shard > 0 {
                    // A single shard keeps all webhooks of a server.
                    (0..3).for_each(|id| drop(bed.run(1, &Command::RemoveWebhook { id })));
                }
                bed
            })
            .collect();
        let journals: Vec<&Memory> = olds.iter().map(|bed| &bed.journal).collect();
        // These shards may have schedules of one name.
        let without_crons = |lines: Vec<String>| -> Vec<String> {
            lines.into_iter().filter(|line| !line.starts_with("cron ")).collect()
        };
        let expected = story(&journals, config);
        let ids: Vec<JobId> = journals
            .iter()
            .flat_map(|journal| &journal.records)
            .filter_map(|bytes| Some(Record::decode(bytes).unwrap().into_pushed()?.id))
            .collect();
        let now_ms = olds.iter().map(|bed| bed.now_ms).max().unwrap();
        let mut before: Vec<Bed> =
            journals.iter().map(|&journal| started(journal.clone(), config, now_ms)).collect();

        let some = [1, 2, 3, 5][chance.draw() as usize % 4];
        let others = [1, 3, 8][chance.draw() as usize % 3];
        let first = reshard(&journals, config, some);
        let first: Vec<&Memory> = first.iter().collect();
        let found = story(&first, config);
        assert_eq!(without_crons(found.clone()), without_crons(expected), "seed {seed}");
        let second = reshard(&first, config, others);
        assert_eq!(story(&second.iter().collect::<Vec<_>>(), config), found, "seed {seed}");

        let mut after: Vec<Bed> =
            second.into_iter().map(|journal| started(journal, config, now_ms)).collect();
        let place = owner(others);
        for &id in &ids {
            let is = |bed: &mut Bed| bed.shard.standing(id);
            let known = before.iter_mut().map(is).find(|it| *it != Standing::Unknown);
            let known = known.unwrap_or(Standing::Unknown);
            assert_eq!(is(&mut after[place(id.slot())]), known, "seed {seed}: {id}");
        }
        for (old, queue) in QUEUES.iter().enumerate().flat_map(|(at, row)| row.map(|it| (at, it))) {
            let Some(old) = before.get_mut(old) else { continue };
            let new = &mut after[place(Slot::of_name(queue))];
            assert_eq!(ends(new, queue), ends(old, queue), "seed {seed}, queue {queue}");
            assert_eq!(order(new, queue), order(old, queue), "seed {seed}, queue {queue}");
        }
        // Life goes on, and the log with it.
        for bed in &mut after {
            let (mut held, mut late) = (Vec::new(), Vec::new());
            let last = bed.data("q", b"1");
            assert!(ids.iter().all(|&id| id < last), "seed {seed}");
            for _ in 0..60 {
                step(bed, &mut chance, &mut held, &mut late);
                bed.reclaim(chance.draw() as usize % 40);
            }
            bed.shard.audit().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
            assert_eq!(bed.replayed().facts(), bed.shard.facts(), "seed {seed}");
        }
    }
}

#[test]
fn of_two_schedules_of_one_name_the_newer_one_is_kept() {
    let cron = |queue: &'static str, moved| SetCron {
        rules: CronRules::default(),
        job: None,
        name: "c",
        queue,
        data: b"\xa1x",
        schedule: None,
        repeat_every_ms: Some(1000),
        timezone: None,
        priority: 0,
        runs_max: None,
        plan: Plan::every(1000, None).unwrap(),
        moved,
    };
    let standing = CronStanding { executions: 7, version: 4, ..CronStanding::default() };
    for newer_first in [false, true] {
        let (mut older, mut newer) = (Bed::new(), Bed::new());
        older.run(1, &Command::SetCron(&cron("a", None)));
        newer.run(1, &Command::SetCron(&cron("b", Some(standing))));
        let mut olds = [&older.journal, &newer.journal];
        if newer_first {
            olds.reverse();
        }
        let logs = reshard(&olds, config(1), 3);
        let lines = story(&logs.iter().collect::<Vec<_>>(), config(1));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("cron c to b") && lines[0].contains("ran 7"), "{lines:?}");
    }
}

#[test]
fn a_schedule_is_told_with_the_runs_it_has_had() {
    let mut bed = Bed::new();
    let plan = Plan::every(1000, None).unwrap();
    let cron = SetCron {
        job: None,
        name: "c",
        queue: "q",
        data: b"\xa1x",
        schedule: None,
        repeat_every_ms: Some(1000),
        timezone: None,
        priority: 0,
        runs_max: None,
        plan,
        rules: CronRules::default(),
        moved: None,
    };
    bed.run(1, &Command::SetCron(&cron));
    bed.run(1, &Command::StartCrons);
    (0..3).for_each(|_| drop(bed.pass(1000)));
    let before = story(&[&bed.journal], bed.config);
    let logs = reshard(&[&bed.journal], bed.config, 2);
    assert_eq!(story(&logs.iter().collect::<Vec<_>>(), bed.config), before);
    assert!(before.iter().any(|line| line.contains("ran 3 of")), "{before:?}");
}

#[test]
fn what_ended_before_the_change_comes_before_what_ends_after_it() {
    let mut bed = Bed::new();
    let job = NewJob { max_attempts: 1, ..NewJob::default() };
    // The later half of them goes to the dead-letter queue only after the change.
    let ids: Vec<JobId> = (0..10).map(|_| bed.push("q", job.clone())).collect();
    let held = bed.pull(1, "q", 10);
    held[..5].iter().rev().for_each(|&(id, token)| bed.fail(id, Some(token)).unwrap());
    let logs = reshard(&[&bed.journal], bed.config, 1);
    let mut bed = started(logs.into_iter().next().unwrap(), bed.config, bed.now_ms);
    assert_eq!(bed.state(ids[7]), Some(State::Active), "its lock lives on");
    held[5..].iter().for_each(|&(id, token)| bed.fail(id, Some(token)).unwrap());
    let first = ids[..5].iter().rev();
    assert_eq!(ends(&mut bed, "q"), first.chain(&ids[5..]).copied().collect::<Vec<_>>());
}

/// The harness must be able to see a difference.
#[test]
fn canary_a_job_that_is_left_behind_is_noticed() {
    let mut bed = Bed::new();
    bed.data("a", b"1");
    bed.data("a", b"2");
    let expected = story(&[&bed.journal], bed.config);
    let mut logs = reshard(&[&bed.journal], bed.config, 1);
    assert_eq!(story(&[&logs[0]], bed.config), expected);
    // Behind the jobs stand the highest id, the clock, and that all has been told.
    let job = logs[0].records.len() - 4;
    logs[0].records.remove(job);
    assert_ne!(story(&[&logs[0]], bed.config), expected);
    // And one that was not handed over at all.
    let mut change = Reshard::new(floor_above(&[&bed.journal]) as u64, owner(1));
    let shard = replayed(&bed.journal, bed.config);
    assert!(change.end_shard(&shard).unwrap_err().contains("still needed"));
    assert_eq!(bed.ask(1, &Command::Heartbeats { beats: &[] }), Some(Reply::Count(0)));
    bed.journal.require_sync();
}

/// A clock that was set back stays so: the ids of the new shards go on from where the wrong clock was, which must not look
/// like a clock that is ahead.
#[test]
fn a_clock_that_was_set_back_is_right_over_a_change_of_shards() {
    const HOUR_MS: u64 = 3_600_000;
    let mut bed = Bed::new();
    bed.now_ms += HOUR_MS;
    bed.data("q", b"1");
    bed.now_ms -= HOUR_MS;
    bed.shard = replayed(&bed.journal, config(1));
    assert!(bed.shard.set_clock_back(bed.now_ms, &mut bed.journal).is_some());
    let mut logs = reshard(&[&bed.journal], config(1), 1);
    let mut again = Bed::new();
    again.now_ms = bed.now_ms + 20_000;
    again.journal = logs.remove(0);
    again.shard = replayed(&again.journal, config(1));
    assert!(again.shard.set_clock_back(again.now_ms, &mut again.journal).is_none());
    let delay_ms = 2 * HOUR_MS;
    let id = again.push("q", NewJob { delay_ms, ..NewJob::default() });
    again.shard = replayed(&again.journal, config(1));
    assert!(again.shard.set_clock_back(again.now_ms, &mut again.journal).is_none());
    let due_ms = again.shard.view(again.shard.find(id).unwrap()).job.run_at_ms;
    assert_eq!(due_ms, again.now_ms + delay_ms);
}

/// Of more custom ids than a shard remembers, a new shard forgets the oldest of each old one, not all of one.
#[test]
fn the_newest_custom_ids_of_each_old_shard_are_remembered_by_fewer_shards() {
    const NAMES: usize = 1000;
    let completed = |queue: &str, count: usize| {
        let mut bed = Bed::new();
        bed.now_ms += queue.len() as u64 * 100_000;
        for from in (0..count).step_by(NAMES) {
            let names: Vec<String> =
                (from..count.min(from + NAMES)).map(|number| format!("{queue}-{number}")).collect();
            let job = |name| NewJob {
                custom_id: Some(name),
                remove_on_complete: true,
                ..NewJob::default()
            };
            let jobs: Vec<_> = names.iter().map(|name| job(name)).collect();
            bed.push_all(queue, &jobs);
            let acks: Vec<Ack<'_>> = (bed.pull(1, queue, NAMES as u32).into_iter())
                .map(|(job, token)| Ack { job, token: Some(token), result: &[0xc0], remove: true })
                .collect();
            assert_eq!(acks.len(), names.len());
            bed.ask(1, &Command::Ack { acks: &acks });
        }
        bed.journal
    };
    let logs = [completed("a", 10), completed("bb", COMPLETED_NAMES_MAX), completed("ccc", 10)];
    let olds: Vec<&Memory> = logs.iter().collect();
    let news = reshard(&olds, config(1), 1);
    let shard = replayed(&news[0], config(1));
    let names: Vec<&str> = shard.completed_names().map(|(name, _)| name).collect();
    assert_eq!(names.len(), COMPLETED_NAMES_MAX);
    for queue in ["a", "ccc"] {
        for number in 0..10 {
            assert!(names.contains(&&*format!("{queue}-{number}")), "{queue}-{number}");
        }
    }
    assert!(!names.contains(&"bb-0") && names.contains(&"bb-20"));
    let newest = format!("bb-{}", COMPLETED_NAMES_MAX - 1);
    assert!(names[COMPLETED_NAMES_MAX - 3..].contains(&&*newest), "the newest are forgotten last");
}
