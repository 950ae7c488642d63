//! Random lives of a shard.

use super::family::{deliver, step_family};
use super::{Bed, locked};
use corq_shards::command::{
    Ack, AddWebhook, Beat, Clean, Command, DlqScanRequest, Fail, GroupLimit, GroupPull, Limit,
    Only, PerSpan, Pull, SetCron, Stack, Token,
};
use corq_shards::cron::expression::Plan;
use corq_shards::dead_letter::policy::{DlqPatch, RulePatch, StallPatch};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::dead_letter::scan::{DlqScanFor, FailedFilter};
use corq_shards::dependency::{Notice, Unmet};
use corq_shards::group::GroupRate;
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::{Chance, JobId};
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::job::overrides::{Dedup, Extras, Growth};
use corq_shards::log_record::Record;
use corq_shards::log_record::cron::CronRules;
use corq_shards::log_record::job_change::Level;
use corq_shards::webhook::Triggers;

/// Some job that was pushed at some time, whatever became of it.
pub fn pushed_before(bed: &Bed, chance: &mut Chance) -> JobId {
    let any = |_| &bed.journal.records[chance.draw() as usize % bed.journal.records.len().max(1)];
    let ids = (0..bed.journal.records.len().min(20)).map(any);
    let mut pushed = ids.filter_map(|record| match Record::decode(record).unwrap() {
        Record::Pushed(pushed) => Some(pushed.id),
        _ => None,
    });
    pushed.next().unwrap_or(JobId(7))
}

/// Runs a random command, or lets time pass.
pub fn step(
    bed: &mut Bed,
    chance: &mut Chance,
    held: &mut Vec<(JobId, Option<Token>)>,
    late: &mut Vec<Notice>,
) {
    let queue = bed.queues[chance.draw() as usize % bed.queues.len()];
    let client = chance.draw() % 4;
    match chance.draw() % 34 {
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
                group_id: any_group(chance),
                group_max: [0, 0, 0, 2][chance.draw() as usize % 4],
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
            let group = group_pull(chance);
            let pull = Pull {
                count,
                timeout_ms: wait,
                locked: owned,
                lock_ttl_ms: 1000,
                group: group.as_ref(),
                ..locked(queue)
            };
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
        29..=31 => step_family(bed, chance, queue),
        _ => {
            bed.pass(chance.draw() % 600);
        }
    }
    let deliveries = bed.effects.deliveries.clone();
    // Notices may come late, or twice, or be lost in a crash and asked for again.
    late.append(&mut bed.effects.notices);
    bed.reports.append(&mut bed.effects.reports);
    if chance.draw().is_multiple_of(3) {
        for notice in std::mem::take(late) {
            for _ in 0..=chance.draw() % 2 {
                bed.run(0, &Command::Notice(notice));
                late.append(&mut bed.effects.notices);
                bed.reports.append(&mut bed.effects.reports);
            }
        }
        for report in std::mem::take(&mut bed.reports) {
            for _ in 0..=chance.draw() % 2 {
                deliver(bed, &report);
                late.append(&mut bed.effects.notices);
            }
        }
    }
    if chance.draw().is_multiple_of(40) {
        late.clear();
        bed.reports.clear();
        late.extend(bed.shard.watches_to_renew());
    }
    for delivery in deliveries {
        if bed.shard.look(delivery.job).unwrap().lease.is_some() {
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
        2 => {
            let lifo = [None, Some(true), Some(false)][chance.draw() as usize % 3];
            Change::Prioritize { priority: chance.draw() as i32 % 4, lifo }
        }
        3 => Change::Promote,
        4 => Change::PutOff { delay_ms: chance.draw() % 3 * 400, token: None },
        5 => Change::Discard { token: None },
        6 => Change::Progress { progress: 12.5, message: None },
        7 => Change::Progress { progress: 99.0, message: Some(b"nearly") },
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
    let dlq = DlqPatch {
        auto_retry: Some(!chance.draw().is_multiple_of(4)),
        retry_interval_ms: Some(chance.draw() % 3 * 400),
        retries_max: Some(chance.draw() as u32 % 3),
        age_max_ms: Some((chance.draw().is_multiple_of(2)).then_some(chance.draw() % 4 * 700)),
        entries_max: Some(some(chance.draw())),
    };
    let stall = StallPatch {
        enabled: Some(!chance.draw().is_multiple_of(3)),
        interval_ms: some(chance.draw()).map(|ms| ms * 150),
        stalls_max: some(chance.draw()).map(|most| most as u8 - 1),
        grace_ms: Some(chance.draw() as u32 % 2 * 300),
    };
    let scan_request = DlqScanRequest {
        queue,
        filter: FailedFilter {
            cause: chance.draw().is_multiple_of(3).then_some(Cause::Attempts),
            since_ms: chance.draw().is_multiple_of(3).then_some(bed.now_ms - 500),
            retriable: chance.draw().is_multiple_of(4),
            ..FailedFilter::default()
        },
        offset: chance.draw() % 2,
        limit: 1 + chance.draw() % 4,
        purpose: [DlqScanFor::Retry, DlqScanFor::Listing, DlqScanFor::Stats]
            [chance.draw() as usize % 3],
    };
    let command = match chance.draw() % 16 {
        12.. => Command::LimitGroup {
            queue,
            group: GROUPS[chance.draw() as usize % GROUPS.len()],
            limit: group_limit(chance),
        },
        8 | 9 => Command::Rule { queue, patch: RulePatch::Dlq(dlq) },
        10 => Command::Rule { queue, patch: RulePatch::Stall(stall) },
        11 => Command::DlqScan(&scan_request),
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

const GROUPS: [&str; 3] = ["g", "h", "i"];

/// No group, for half of the jobs.
fn any_group(chance: &mut Chance) -> Option<&'static str> {
    GROUPS.get(chance.draw() as usize % (2 * GROUPS.len())).copied()
}

/// Limits for groups that a pull brings, if any.
fn group_pull(chance: &mut Chance) -> Option<GroupPull<'static>> {
    let some = |draw: u64| draw.is_multiple_of(2).then_some(1 + draw % 3);
    let rate = some(chance.draw()).map(|jobs| GroupRate { jobs, span_ms: 700 });
    let only = match chance.draw() % 6 {
        0 => Only::Ungrouped,
        1 | 2 => Only::Group(GROUPS[chance.draw() as usize % GROUPS.len()]),
        _ => Only::Any,
    };
    let pull = GroupPull { active_max: some(chance.draw()), rate, only };
    chance.draw().is_multiple_of(3).then_some(pull)
}

fn group_limit(chance: &mut Chance) -> GroupLimit {
    let some = |draw: u64| draw.is_multiple_of(2).then_some(1 + draw % 3);
    match chance.draw() % 6 {
        0 => GroupLimit::Rate(some(chance.draw()).map(|jobs| GroupRate { jobs, span_ms: 500 })),
        1 => GroupLimit::Active(some(chance.draw())),
        2 => GroupLimit::Weight(1 + chance.draw() as u32 % 3),
        3 | 4 => GroupLimit::Paused(chance.draw().is_multiple_of(3)),
        _ => GroupLimit::Hold(1 + chance.draw() % 400),
    }
}

/// Something about schedules.
fn step_cron(bed: &mut Bed, chance: &mut Chance, queue: &str) {
    let name = ["x", "y", "z"][chance.draw() as usize % 3];
    let zone = chance.draw().is_multiple_of(2).then_some("Asia/Kolkata");
    let job = NewJob { name: Some("kind"), max_attempts: 2, delay_ms: 40, ..NewJob::default() };
    let rules = CronRules {
        immediately: chance.draw().is_multiple_of(3),
        skip_if_no_worker: chance.draw().is_multiple_of(4),
        catch_up: chance.draw().is_multiple_of(3),
        prevent_overlap: chance.draw().is_multiple_of(3),
        disabled: false,
    };
    let cron = SetCron {
        rules,
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
