//! Forecast of the log space that jobs may still take. The fear: a full disk on which records that end jobs need more
//! room than was kept for them.

use crate::support::{Bed, SPAN_BITS, config};
use corq_shards::command::{Ack, Command, Fail, Limit, Token};
use corq_shards::dead_letter::policy::{DlqPatch, RulePatch};
use corq_shards::effect::Reply;
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::log_record::Record;
use corq_shards::log_record::job_change::Level;
use corq_shards::{Config, Out};

const SPAN: usize = 1 << SPAN_BITS;
const QUEUES: [&str; 3] = ["a", "b", "c"];

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn one_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Something new comes, of any shape.
fn come(bed: &mut Bed, dice: &mut Dice, plain: bool, number: usize) {
    let data = vec![0xc0; dice.below(40)];
    if plain {
        bed.data(dice.of(&QUEUES), &data);
        return;
    }
    let (key, custom) = (format!("key-{number}"), format!("custom-{number}"));
    let repeat = Repeat { every_ms: 1000, limit: None, count: 0 };
    let job = NewJob {
        data: &data,
        delay_ms: if dice.one_in(4) { 5000 } else { 0 },
        max_attempts: 1 + dice.below(3) as u16,
        backoff_ms: if dice.one_in(2) { 0 } else { 1000 },
        ttl_ms: dice.one_in(6).then_some(100_000),
        timeout_ms: dice.one_in(6).then_some(20_000),
        unique_key: dice.one_in(4).then_some(&key),
        custom_id: dice.one_in(4).then_some(&custom),
        group_id: dice.one_in(4).then_some("group"),
        tags: if dice.one_in(4) { b"\x91\xa1t" } else { b"" },
        repeat: dice.one_in(6).then_some(repeat),
        lifo: dice.one_in(3),
        remove_on_complete: dice.one_in(5),
        remove_on_fail: dice.one_in(5),
        ..NewJob::default()
    };
    bed.push(dice.of(&QUEUES), job);
    let known: Vec<JobId> = bed.known().collect();
    if dice.one_in(3) && !known.is_empty() {
        let job = dice.of(&known);
        let change = match dice.below(2) {
            0 => Change::Log { level: Level::Info, message: "a line" },
            _ => Change::Progress { progress: 50.0, message: Some(b"half") },
        };
        bed.run(1, &Command::Change { job, change });
    }
}

/// Something happens for which nobody asks whether there is room that lasts.
fn go_on(bed: &mut Bed, dice: &mut Dice) {
    let known: Vec<JobId> = bed.known().collect();
    if known.is_empty() {
        return;
    }
    let queue = dice.of(&QUEUES);
    let job = dice.of(&known);
    match dice.below(14) {
        0..=3 => {
            for (job, token) in bed.pull(1, queue, 1 + dice.below(4) as u32) {
                let token = Some(token);
                match dice.below(4) {
                    0 => {
                        let result: &[u8] = if dice.one_in(2) { b"" } else { &[0xc0; 20] };
                        bed.run(
                            1,
                            &Command::Ack { acks: &[Ack { job, token, result, remove: false }] },
                        );
                    }
                    1 | 2 => {
                        let error = "the reason is long, and there is no room for long reasons";
                        let unrecoverable = dice.one_in(2);
                        let fail = Fail { job, token, error, unrecoverable, ..Fail::default() };
                        bed.run(1, &Command::Fail(fail));
                    }
                    _ => {}
                }
            }
        }
        4 => drop(bed.pass(dice.of(&[1, 1000, 31_000]))),
        5 => drop(bed.run(1, &Command::Disconnect)),
        6 => drop(bed.run(1, &Command::Change { job, change: Change::Discard { token: None } })),
        7 => drop(bed.run(
            1,
            &Command::Change { job, change: Change::Prioritize { priority: 7, lifo: None } },
        )),
        8 => drop(bed.run(1, &Command::Change { job, change: Change::Promote })),
        9 => drop(bed.run(
            1,
            &Command::Change { job, change: Change::PutOff { delay_ms: 500, token: None } },
        )),
        10 => drop(bed.run(1, &Command::RetryFailed { queue, job: Some(job), count: 1 })),
        11 => drop(bed.run(
            1,
            &Command::RetryCompleted { queue, job: None, until_ms: u64::MAX, count: u64::MAX },
        )),
        12 => {
            let change = Change::Progress { progress: 10.0, message: None };
            bed.run(1, &Command::Change { job, change });
        }
        _ => drop(bed.run(1, &Command::Limit { queue, limit: Limit::Rate(None) })),
    }
}

fn yield_until(bed: &mut Bed, most: u64) {
    loop {
        let space_forecast = bed.shard.space_forecast();
        if space_forecast.live + space_forecast.rewriting <= most || !bed.shard.has_history() {
            return;
        }
        bed.effects.clear();
        let mut out = Out { journal: &mut bed.journal, effects: &mut bed.effects };
        bed.shard.forget_history(&mut out);
    }
}

#[test]
fn what_jobs_may_come_to_take_is_never_more_than_was_said_when_the_last_one_came() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut bed = Bed::with(Config { completed_max: 5, ..config(seed + 1) });
        // Options that few jobs have are counted generously, and would hide the rest: half of the lives go without.
        let plain = seed % 2 == 0;
        if seed % 3 == 0 {
            // Jobs are tried anew by themselves, and remember it.
            let patch = DlqPatch {
                auto_retry: Some(true),
                retry_interval_ms: Some(500),
                retries_max: Some(9),
                ..DlqPatch::default()
            };
            bed.run(1, &Command::Rule { queue: "a", patch: RulePatch::Dlq(patch) });
        }
        for number in 0..100 {
            come(&mut bed, &mut dice, plain, number);
            if dice.one_in(2) {
                go_on(&mut bed, &mut dice);
            }
            if dice.one_in(20) {
                bed.reclaim(SPAN);
            }
        }
        bed.journal.full.0 = true;
        bed.journal.no_asides = true;
        let space_forecast = bed.shard.space_forecast();
        let most = space_forecast.live + space_forecast.growth;
        for step in 0..400 {
            go_on(&mut bed, &mut dice);
            yield_until(&mut bed, most);
            let space_forecast = bed.shard.space_forecast();
            let now = space_forecast.live + space_forecast.rewriting;
            assert!(now <= most, "seed {seed}, step {step}: {now} bytes, {most} were expected");
            if dice.one_in(3) {
                bed.reclaim(dice.below(2 * SPAN));
            }
            bed.shard.audit().unwrap();
        }
    }
}

#[test]
fn jobs_that_all_fail_take_no_more_than_was_said_and_not_much_less() {
    let mut bed = Bed::new();
    for number in 0..160 {
        bed.data(QUEUES[number % 3], &vec![0xc0; number]);
    }
    bed.journal.full.0 = true;
    bed.journal.no_asides = true;
    let space_forecast = bed.shard.space_forecast();
    let most = space_forecast.live + space_forecast.growth;
    for queue in QUEUES {
        for (job, token) in bed.pull(1, queue, 1000) {
            let (token, error) = (Some(token), "a text of a length that is cut off");
            let fail = Fail { job, token, error, unrecoverable: true, ..Fail::default() };
            assert_eq!(bed.ask(1, &Command::Fail(fail)), Some(Reply::Done));
        }
    }
    for _ in 0..60 {
        bed.reclaim(SPAN);
        let space_forecast = bed.shard.space_forecast();
        assert!(space_forecast.live + space_forecast.rewriting <= most);
    }
    let now = bed.shard.space_forecast().live;
    assert!(now + 160 * 8 > most, "{now} bytes, {most} were kept for them");
    let texts = bed.journal.records.iter().filter_map(|record| match Record::decode(record) {
        Ok(Record::Buried(buried)) => Some(buried.error.to_owned()),
        _ => None,
    });
    let texts: Vec<String> = texts.collect();
    assert!(texts.len() == 160 && texts.iter().all(|text| text == "a text of a length that "));
    let buried = bed.known().collect::<Vec<_>>();
    assert!(buried.iter().all(|&id| bed.state(id) == Some(State::Failed)));
}

#[test]
fn records_get_no_longer_by_being_written_again_than_is_said() {
    for seed in 100..160 {
        let mut dice = Dice(seed);
        let mut bed = Bed::with(Config { completed_max: 5, ..config(seed + 1) });
        // Options that few jobs have are counted generously, and would hide the rest: half of the lives go without.
        let plain = seed % 2 == 0;
        for number in 0..200 {
            come(&mut bed, &mut dice, plain, number);
            go_on(&mut bed, &mut dice);
            if dice.one_in(20) {
                bed.reclaim(SPAN);
            }
        }
        let before = bed.shard.space_forecast();
        let end = bed.journal.records.len();
        let mut written = 0;
        while bed.journal.gone + SPAN <= end {
            let head = bed.journal.records.len();
            bed.reclaim(SPAN);
            // Besides what is needed: ids and the clock, which have their own room.
            let again = bed.journal.records[head..]
                .iter()
                .filter(|it| ![103, 104, 106, 108].contains(&it[0]));
            written += again.map(|record| record.len() as u64 + 8).sum::<u64>();
        }
        let most = before.live + before.rewriting;
        assert!(written <= most, "seed {seed}: {written} bytes, {most} were expected");
        assert!(bed.shard.space_forecast().live <= most);
    }
}

/// Bytes to write a log again whose jobs have all been brought to a place, and the forecast of them.
fn written_again(place: impl Fn(&mut Bed, JobId, Token)) -> (u64, u64) {
    let mut bed = Bed::with(Config { completed_max: 1000, ..config(1) });
    for _ in 0..120 {
        bed.data("a", b"1");
    }
    for (job, token) in bed.pull(1, "a", 1000) {
        place(&mut bed, job, token);
    }
    while !bed.journal.records.len().is_multiple_of(SPAN) {
        bed.data("b", b"1");
    }
    let before = bed.shard.space_forecast();
    let end = bed.journal.records.len();
    while bed.journal.gone < end {
        bed.reclaim(SPAN);
    }
    let again =
        bed.journal.records[end..].iter().filter(|it| ![103, 104, 106, 108].contains(&it[0]));
    let written = again.map(|record| record.len() as u64 + 8).sum();
    (written, before.live + before.rewriting)
}

#[test]
fn what_is_said_of_writing_again_holds_for_each_place_of_a_job_and_is_not_much_more() {
    let ends = |bed: &mut Bed, job, token| bed.ack(job, Some(token)).unwrap();
    let fails = |bed: &mut Bed, job, token| {
        let fail = Fail { job, token: Some(token), unrecoverable: true, ..Fail::default() };
        assert_eq!(bed.ask(1, &Command::Fail(fail)), Some(Reply::Done));
    };
    let retries = |bed: &mut Bed, job, token| {
        let fail = Fail { job, token: Some(token), ..Fail::default() };
        assert_eq!(bed.ask(1, &Command::Fail(fail)), Some(Reply::Done));
    };
    let told = [
        ("locked", written_again(|_, _, _| ())),
        ("completed", written_again(ends)),
        ("failed", written_again(fails)),
        ("retried", written_again(retries)),
    ];
    for (place, (written, said)) in told {
        assert!(written <= said, "{place}: {written} bytes, {said} were said");
        assert!(written + 120 * 10 > said, "{place}: {written} bytes, {said} were said");
    }
}

/// Oldest first over all queues, as far as segments tell; failed and waiting jobs never.
#[test]
fn history_gives_way_oldest_first_and_a_restart_does_not_bring_it_back() {
    let mut bed = Bed::with(Config { completed_max: 1000, ..config(1) });
    let mut done = Vec::new();
    for number in 0..300 {
        let id = bed.data(QUEUES[number % 3], b"1");
        let (_, token) = bed.pull(1, QUEUES[number % 3], 1)[0];
        if number % 10 == 0 {
            let fail = Fail { job: id, token: Some(token), unrecoverable: true, ..Fail::default() };
            assert_eq!(bed.ask(1, &Command::Fail(fail)), Some(Reply::Done));
        } else {
            bed.ack(id, Some(token)).unwrap();
            done.push(id);
        }
    }
    let waits = bed.data("a", b"1");
    let mut forgotten = 0;
    while bed.shard.has_history() {
        bed.effects.clear();
        let mut out = Out { journal: &mut bed.journal, effects: &mut bed.effects };
        forgotten += bed.shard.forget_some_history(40, &mut out) as usize;
        bed.shard.audit().unwrap();
        // As many as have gone are the oldest, but for those of one segment.
        let left = done.iter().rposition(|&id| bed.state(id).is_none()).map_or(0, |at| at + 1);
        assert!(left <= forgotten + SPAN, "{forgotten} are forgotten, one of the first {left}");
        let again = bed.replayed();
        assert_eq!(again.facts(), bed.shard.facts());
    }
    assert_eq!(forgotten, done.len());
    assert_eq!(bed.known().count(), 31);
    assert!(bed.state(waits).is_some());
}
