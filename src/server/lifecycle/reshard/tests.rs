//! The fear: a change that is broken off, or refused, and has lost something.
#![allow(clippy::unwrap_used)]

use super::*;
use clap::Parser;
use corq_io::log::shard_path;
use corq_shards::command::{Ack, AddWebhook, Command, Fail, Limit, Pull, SetCron};
use corq_shards::cron::expression::Plan;
use corq_shards::effect::Effects;
use corq_shards::job::change::Change as JobChange;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::lease::token_stream::SecretKey;
use corq_shards::log_record::cron::CronRules;
use corq_shards::log_record::job_change::Level;
use corq_shards::log_record::location::LogRef;
use corq_shards::webhook::Triggers;
use corq_shards::{Caller, Out};
use std::collections::BTreeMap;

const NOW_MS: u64 = 1_700_000_000_000;

#[derive(Parser)]
struct Words {
    #[command(flatten)]
    config: Config,
}

fn config() -> Config {
    Words::parse_from(["corq", "--segment-mb", "16"]).config
}

fn queue(number: u64) -> String {
    format!("queue-{number}")
}

/// A shard at work, with a log in files.
struct Bed {
    shard: Shard,
    journal: LogJournal<BlockingDisk>,
    effects: Effects,
}

impl Bed {
    fn new(data: &DataDir, index: u16) -> Self {
        let log_config = LogConfig {
            log_id: data.id(),
            segment_bytes: 16 << 20,
            ..LogConfig::new(index, Mode::Written)
        };
        let disk = BlockingDisk::open(data.path(), index).unwrap();
        let nothing = |_: Position, _: &[u8]| Ok::<(), String>(());
        let journal = LogJournal::new(Log::open(&log_config, disk, nothing).unwrap().0);
        // Both ways of making a state must give the same lock tokens, since the states are compared.
        let token_key = SecretKey::of_seed(u64::from(index));
        let mut shard = Shard::new(corq_shards::Config {
            token_key,
            ..shard_config(&config(), 1, u64::from(index))
        });
        shard.restart(NOW_MS);
        Self { shard, journal, effects: Effects::default() }
    }

    fn run(&mut self, command: &Command<'_>) {
        self.effects.clear();
        let mut out = Out { journal: &mut self.journal, effects: &mut self.effects };
        self.shard.apply(NOW_MS, Caller::default(), command, &mut out);
    }

    fn push(&mut self, queue: &str, job: NewJob<'_>) -> JobId {
        self.run(&Command::Push { queue, jobs: &[job] });
        self.effects.pushed[0].id
    }

    fn pull(&mut self, queue: &str) -> Ack<'static> {
        let pull = Pull {
            queue,
            count: 1,
            timeout_ms: 0,
            locked: true,
            lock_ttl_ms: 30_000,
            detach: false,
            owner: None,
            group: None,
        };
        self.run(&Command::Pull(pull));
        let one = &self.effects.deliveries[0];
        let (job, token) = (one.job.id, one.token);
        Ack { job, token, result: b"\xa4done", remove: false }
    }

    /// Jobs of one queue in many states.
    fn fill(&mut self, queue: &str) {
        let job = |data| NewJob { data, max_attempts: 1, ..NewJob::default() };
        self.push(queue, job(b"\xa1a"));
        let done = self.pull(queue);
        let log = JobChange::Log { level: Level::Info, message: "a line" };
        self.run(&Command::Change { job: done.job, change: log });
        self.run(&Command::Ack { acks: &[done] });
        self.push(queue, job(b"\xa1b"));
        let Ack { job: dead, token, .. } = self.pull(queue);
        let fail = Fail { job: dead, token, error: "why", ..Fail::default() };
        self.run(&Command::Fail(fail));
        self.push(queue, job(b"\xa1c"));
        self.pull(queue);
        let name = format!("name of {queue}");
        self.push(queue, NewJob { custom_id: Some(&name), priority: 3, ..job(b"\xa1d") });
        self.push(queue, NewJob { delay_ms: 10_000, unique_key: Some("key"), ..job(b"\xa1e") });
        self.run(&Command::Pause { queue, paused: true });
        self.run(&Command::Limit { queue, limit: Limit::Active(Some(7)) });
        let job = NewJob { name: Some("named"), ..NewJob::default() };
        let cron = SetCron {
            rules: CronRules::default(),
            job: Some(&job),
            name: &name,
            queue,
            data: b"\xa1x",
            schedule: None,
            repeat_every_ms: Some(60_000),
            timezone: None,
            priority: 0,
            runs_max: None,
            plan: Plan::every(60_000, None).unwrap(),
            moved: None,
        };
        self.run(&Command::SetCron(&cron));
    }
}

/// A data directory of so many shards, always with the same in it.
fn made(path: &Path, shards: u16) -> DataDir {
    let data = DataDir::open(path, shards).unwrap();
    let slots = Slots::new(usize::from(shards));
    let mut beds: Vec<Bed> = (0..shards).map(|index| Bed::new(&data, index)).collect();
    for number in 0..9 {
        let queue = queue(number);
        beds[slots.of_queue(&queue)].fill(&queue);
    }
    let webhook = AddWebhook {
        id: 5,
        url: "https://example.com/",
        events: Triggers::of_bits(3),
        queue: None,
        secret: None,
    };
    beds[0].run(&Command::AddWebhook(&webhook));
    for mut bed in beds {
        close(&mut bed.journal.log, Instant::now()).unwrap();
    }
    data
}

/// Everything that clients would find in a data directory.
fn story(data: &DataDir) -> Vec<String> {
    let mut lines = Vec::new();
    for index in 0..data.shards() {
        let log_config = LogConfig {
            log_id: data.id(),
            segment_bytes: 16 << 20,
            ..LogConfig::new(index, Mode::Written)
        };
        let mut disk = BlockingDisk::open(data.path(), index).unwrap();
        let mut shard = Shard::new(shard_config(&config(), 1, 1));
        let mut records = BTreeMap::new();
        let replay = |position: Position, record: &[u8]| {
            records.insert(position.0, record.to_vec());
            shard.replay(position.0, record)
        };
        Log::replay(&log_config, &mut disk, replay).unwrap();
        shard.audit().unwrap();
        let text = |stored: LogRef| {
            let record = &records[&stored.position];
            record[record.len() - stored.payload_bytes as usize..].to_vec()
        };
        for index in shard.indices() {
            let view = shard.view(index);
            let (state, due_ms) = (view.job.state, view.job.run_at_ms);
            let token = view.lease.map(|lease| lease.token);
            let end = view.outcome.map(|outcome| text(outcome.stored));
            let options = view.options.map(|has| {
                let lines = has.notes.iter().flat_map(|notes| notes.texts());
                let lines: Vec<Vec<u8>> = lines.map(|stored| text(*stored)).collect();
                format!("{:?} {:?} {lines:?}", has.custom_id, has.unique_key)
            });
            lines.push(format!(
                "{} {} {state:?} {due_ms} {:?} {token:?} {end:?} {options:?}",
                view.job.id,
                view.queue,
                text(view.data),
            ));
        }
        let settings = ["paused ", "limited ", "cron ", "webhook "];
        let is_setting = |fact: &String| settings.iter().any(|word| fact.starts_with(word));
        lines.extend(shard.facts().into_iter().filter(is_setting));
    }
    lines.sort();
    lines
}

/// Whenever the process ends, the next start finds everything, whatever number of shards it wants.
#[test]
fn broken_off_at_any_step_it_has_lost_nothing() {
    for (before, after) in [(2_u16, 3_u16), (3, 1), (1, 2)] {
        let slots = Slots::new(usize::from(after));
        let dir = tempfile::tempdir().unwrap();
        let mut data = made(dir.path(), before);
        let expected = story(&data);
        let mut all = 0_usize;
        let contents = reshard(&config(), &mut data, &slots, &mut |_| {
            all += 1;
            true
        });
        assert_eq!(contents.unwrap().jobs_in_all(), 45);
        assert_eq!((story(&data), data.shards()), (expected.clone(), after));
        assert!(all > 200, "{all}");
        let (mut found_old, mut found_new) = (0, 0);
        // Each step of the end changes what a start would find.
        for end in (1..all).step_by(97).chain(all - 7..all) {
            let dir = tempfile::tempdir().unwrap();
            let mut data = made(dir.path(), before);
            let mut step = 0;
            let outcome = reshard(&config(), &mut data, &slots, &mut |_| {
                step += 1;
                step < end
            });
            assert_eq!(outcome, Err(Halt::Stopped), "step {end} of {all}");
            drop(data);
            let mut data = DataDir::open(dir.path(), before).unwrap();
            assert_eq!(story(&data), expected, "step {end} of {all}");
            let is_new = data.shards() == after;
            found_new += usize::from(is_new);
            found_old += usize::from(!is_new);
            let last = Slots::new(if is_new { usize::from(before) } else { slots.shards() });
            reshard(&config(), &mut data, &last, &mut |_| true).unwrap();
            assert_eq!(story(&data), expected, "step {end} of {all}");
            assert_eq!(usize::from(data.shards()), last.shards());
        }
        assert!(found_old > 3 && found_new > 1, "{found_old} {found_new}");
    }
}

#[test]
fn what_cannot_be_changed_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut data = made(dir.path(), 2);
    let expected = story(&data);
    // A segment of another directory.
    let other = tempfile::tempdir().unwrap();
    drop(made(other.path(), 2));
    let name = "0000000000000000.seg";
    let of = |path: &Path| shard_path(path, 1).join(name);
    let own = std::fs::read(of(dir.path())).unwrap();
    std::fs::copy(of(other.path()), of(dir.path())).unwrap();
    let outcome = reshard(&config(), &mut data, &Slots::new(3), &mut |_| true);
    let Err(Halt::Failed(reason)) = outcome else { panic!("{outcome:?}") };
    let said = ["shard 1: ", "Nothing was changed; a start with SHARDS=2 does not take it either"];
    assert!(said.iter().all(|words| reason.contains(words)), "{reason}");
    assert!(!dir.path().join("next-shards").exists());
    std::fs::write(of(dir.path()), own).unwrap();
    assert_eq!((story(&data), data.shards()), (expected, 2));
}
