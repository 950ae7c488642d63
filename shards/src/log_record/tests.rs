//! The bytes of records, held for ever: a sample of every kind is written as `shards/tests/records.txt` says, and what stands
//! there is read as the same record. A new kind needs a sample, and lines at the end of the file; lines that are there stay.

use super::codec::Writer;
use super::cron::{CronRules, template_of};
use super::lease::Entries;
use super::repeated::Repeated;
use super::snapshot::{FailedAttempts, KeptNotes, Lines, Place, Rare};
use super::*;
use crate::caller::Token;
use crate::command::{Limit, PerSpan, Stack};
use crate::dead_letter::policy::{DlqRule, Rule, StallRule};
use crate::dead_letter::reason::Cause;
use crate::dependency::Unmet;
use crate::family::unreported::KeptUnreported;
use crate::family::{Adopted, ChildEnd, ChildEnded, End, Ends, Family, How, NewFamily, Policy};
use crate::flow::{Fate, Staged};
use crate::group::{GroupRate, GroupSettings};
use crate::job::id::JobId;
use crate::job::new_job::{NewJob, Repeat};
use crate::job::overrides::{Dedup, Extras, Growth};
use crate::job::progress::LogEntry;
use crate::job::trace::{NewTrace, TraceParent};
use crate::job::{Outcome, Redelivered, State};
use crate::log_record::completed::Evicts;
use crate::log_record::cron::{CronRan, CronSet};
use crate::log_record::job_change::{Flags, Level, Prioritized};
use crate::log_record::lease::Leased;
use crate::log_record::remembered::{CompletedIdBytes, CompletedNameBytes};
use crate::log_record::settings::{Grouped, WebhookAdded};
use crate::log_record::snapshot::KeptJob;
use crate::webhook::Triggers;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const BYTES: &str = include_str!("../../tests/records.txt");

const ID: JobId = JobId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
const OTHER: JobId = JobId(0x1112_1314_1516_1718_191a_1b1c_1d1e_1f20);
const AT_MS: u64 = 0x0191_0000_1234;

fn stored(position: u64) -> LogRef {
    LogRef { position, record_bytes: 77, payload_bytes: 7 }
}

fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = vec![0; record.encoded_len()];
    record.encode(&mut bytes);
    bytes
}

/// Takes a sample: its name, and the record.
type Give<'g> = &'g mut dyn FnMut(&str, Record<'_>);

fn plain<'a>() -> Pushed<'a> {
    let job = NewJob { data: b"\x81\xa1a\x01", priority: -5, ..NewJob::default() };
    Pushed { id: ID, queue: "mail", run_at_ms: AT_MS, job: job.into() }
}

fn full<'a>(unmet: Unmet<'a>, open: Unmet<'a>) -> Pushed<'a> {
    let dedup = Dedup { ttl_ms: 5, extend: true, replace: true, until_ms: AT_MS + 5 };
    let extras = Extras {
        backoff: Some(Growth::Fixed),
        backoff_max_ms: Some(60_000),
        stall_timeout_ms: Some(30_000),
        keep_logs: Some(9),
        size_limit: Some(1000),
        stack_lines_max: Some(4),
        made_at_ms: Some(AT_MS - 1),
        dedup: Some(dedup),
    };
    let policy = Some(Policy::Continue);
    let family = NewFamily { parent: Some("p"), policy, children: b"\x91\xa1c", open };
    let job = NewJob {
        data: b"\xa4data",
        name: Some("send"),
        priority: 7,
        delay_ms: 100,
        max_attempts: 9,
        backoff_ms: 250,
        ttl_ms: Some(1000),
        timeout_ms: Some(2000),
        unique_key: Some("key"),
        custom_id: Some("custom"),
        group_id: Some("tenant"),
        tags: b"\x91\xa3red",
        depends_on: b"\x91\xa1d",
        unmet,
        repeat: Some(Repeat { every_ms: 60_000, limit: Some(10), count: 3 }),
        lifo: true,
        remove_on_complete: true,
        remove_on_fail: true,
        durable: true,
        extras: Some(Box::new(extras)),
        family: Some(Box::new(family)),
        ..NewJob::default()
    };
    Pushed { id: OTHER, queue: "r\u{e9}ports", run_at_ms: AT_MS + 100, job: job.into() }
}

fn courses(give: Give<'_>) {
    let mut unmet = Vec::new();
    Unmet::push(&mut unmet, ID, "d");
    let mut open = Vec::new();
    Unmet::push(&mut open, JobId(9), "");
    give("pushed", Record::Pushed(plain()));
    give("pushed with all", Record::Pushed(full(Unmet::new(&unmet), Unmet::new(&open))));
    let parent = TraceParent { trace_id: [0x4b; 16], span_id: [0xf0; 8], flags: 1 };
    for (name, state) in [("pushed in a trace", ""), ("pushed in a trace with a state", "rojo=1")] {
        let trace = Some(Box::new(NewTrace { parent, state }));
        let job = NewJob { trace, ..plain().job.into_own() };
        give(name, Record::Pushed(Pushed { job: job.into(), ..plain() }));
    }
    let mut entries = Vec::new();
    Entries::push(&mut entries, ID, Token(3));
    Entries::push(&mut entries, OTHER, Token(4));
    let entries = Entries::new(&entries);
    give("leased", Record::Leased(Leased { at_ms: AT_MS, ttl_ms: 30_000, entries }));
    let ended = Ended {
        id: ID,
        at_ms: AT_MS,
        started_at_ms: AT_MS - 9,
        evicts: Evicts::Unsaid,
        result: b"\xa2ok",
    };
    for (name, evicts) in [
        ("completed", Evicts::Unsaid),
        ("done", Evicts::Nothing),
        ("done for others", Evicts::Below(1 << 40)),
        ("done for itself", Evicts::Itself),
    ] {
        give(name, Record::Completed(Ended { evicts, ..ended }));
    }
    let (run_at_ms, error) = (AT_MS + 1000, "b\u{e4}d");
    let retried = Retried { id: ID, at_ms: AT_MS, run_at_ms, attempt: None, error };
    give("retried", Record::Retried(retried));
    let buried = Buried {
        id: ID,
        at_ms: AT_MS,
        started_at_ms: AT_MS - 3,
        attempts: 300,
        stalls: 2,
        cause: Cause::Unknown,
        stack: Stack::default(),
        error: "boom",
    };
    let stack = Stack { lines: 2, texts: b"\xa1x\xa1y" };
    give("buried", Record::Buried(buried));
    give("buried at", Record::Buried(Buried { stack, ..buried }));
    give("buried for", Record::Buried(Buried { cause: Cause::Timeout, ..buried }));
    give("buried for, at", Record::Buried(Buried { cause: Cause::Attempts, stack, ..buried }));
    give("stalled", Record::Stalled { id: ID });
    give("released", Record::Released { id: ID });
    for (name, by_itself) in [("revived", false), ("revived by itself", true)] {
        give(name, Record::Revived(Revived { id: ID, run_at_ms: AT_MS, by_itself }));
    }
    give("removed", Record::Removed { id: ID });
    give("blocked", Record::Blocked { id: ID });
    let shared = Some(stored(3));
    let pushed = Pushed { job: NewJob { data: b"", ..plain().job.into_own() }.into(), ..plain() };
    let repeat = Some(Repeat { every_ms: 5, limit: None, count: 1 });
    let next = KeptJob {
        pushed: Pushed { job: NewJob { repeat, ..pushed.job.into_own() }.into(), ..pushed },
        attempts: 0,
        stalls: 0,
        place: Place::Pending(State::Delayed),
        rare: None,
        shared,
        failures: FailedAttempts::default(),
    };
    for (name, evicts) in [("repeated", Evicts::Unsaid), ("run done", Evicts::Below(7))] {
        let next = Box::new(next.clone());
        give(name, Record::Repeated(Repeated { ended: Ended { evicts, ..ended }, next }));
    }
}

fn changes(give: Give<'_>) {
    let mut give = |name: &str, changed: Changed<'_>| give(name, Record::Changed(changed));
    for (name, lifo) in [
        ("prioritized", None),
        ("prioritized as it came", Some(false)),
        ("prioritized newest first", Some(true)),
    ] {
        give(name, Changed::Prioritized(Prioritized { id: ID, priority: -7, lifo }));
    }
    give("promoted", Changed::Promoted { id: ID, at_ms: AT_MS });
    give("put off", Changed::PutOff { id: ID, at_ms: AT_MS, run_at_ms: AT_MS + 5 });
    give("flagged", Changed::Flagged { id: ID, flag: Flags(2) });
    give("key freed", Changed::KeyFreed { id: ID });
    give("key extended", Changed::KeyExtended { id: ID, until_ms: AT_MS });
    give("renewed", Changed::Renewed { id: ID, until_ms: AT_MS });
    give("log cut", Changed::LogCut { id: ID, keep: 5 });
    for (name, message) in
        [("progressed", None), ("progressed to nothing", Some("")), ("progressed to", Some("half"))]
    {
        let message = message.map(str::as_bytes);
        give(name, Changed::Progressed { id: ID, progress: 62.5, message });
    }
    let (level, message) = (Level::Warn, "line");
    give("logged", Changed::Logged { id: ID, at_ms: AT_MS, level, message });
}

fn settings(give: Give<'_>) {
    let queue = "mail";
    let limits = [
        ("rate limited", Limit::Rate(Some(PerSpan::per_second(9)))),
        ("no rate limit", Limit::Rate(None)),
        ("rate limited for", Limit::Rate(Some(PerSpan { jobs: 9, span_ms: 60, until_ms: AT_MS }))),
        ("active limited", Limit::Active(Some(8))),
        ("no active limit", Limit::Active(None)),
    ];
    for (name, limit) in limits {
        give(name, Record::Limited(Limited { queue, limit }));
    }
    let dlq = DlqRule {
        auto_retry: true,
        retry_interval_ms: 5000,
        retries_max: 3,
        age_max_ms: Some(1 << 33),
        entries_max: Some(12),
    };
    let bare = DlqRule { auto_retry: false, age_max_ms: None, entries_max: None, ..dlq };
    let stall = StallRule { enabled: true, interval_ms: Some(9000), stalls_max: 4, grace_ms: 1000 };
    for (name, rule) in [
        ("ruled dlq", Rule::Dlq(dlq)),
        ("ruled dlq without", Rule::Dlq(bare)),
        ("ruled stall", Rule::Stall(stall)),
        ("ruled stall off", Rule::Stall(StallRule { enabled: false, interval_ms: None, ..stall })),
    ] {
        give(name, Record::Ruled(Ruled { queue, rule }));
    }
    give("paused", Record::Paused { queue, paused: true });
    give("resumed", Record::Paused { queue, paused: false });
    let rate = Some(GroupRate { jobs: 1 << 40, span_ms: 7 });
    let all =
        GroupSettings { rate, active_max: Some(3), weight: 9, paused: true, held_until_ms: 5 };
    let group = "tenant";
    give("grouped", Record::Grouped(Grouped { queue, group, settings: all }));
    let settings = GroupSettings::default();
    give("grouped by default", Record::Grouped(Grouped { queue, group, settings }));
    give("groups cleared", Record::GroupsCleared { queue });
    let added = WebhookAdded {
        id: ID.0,
        created_at_ms: AT_MS,
        url: "http://127.0.0.1:1/hook",
        events: Triggers::of_bits(5),
        queue: Some(queue),
        secret: Some("secret"),
    };
    give("webhook added", Record::WebhookAdded(added));
    let few = WebhookAdded { queue: None, secret: None, ..added };
    give("webhook added with little", Record::WebhookAdded(few));
    give("webhook removed", Record::WebhookRemoved { id: ID.0 });
}

fn schedules(give: Give<'_>) {
    let template = template_of(&NewJob { name: Some("n"), ..NewJob::default() });
    let set = CronSet {
        name: "nightly",
        queue: "mail",
        data: b"\xa1d",
        schedule: Some("0 3 * * *"),
        repeat_every_ms: None,
        timezone: Some("Europe/Berlin"),
        priority: -3,
        runs_max: Some(5),
        executions: 2,
        version: 4,
        next_run_ms: AT_MS,
        template: &[],
        rules: CronRules::default(),
    };
    let rules = CronRules { immediately: true, catch_up: true, ..CronRules::default() };
    let every = Some(1000);
    give("cron set", Record::CronSet(set));
    let plain = CronSet { schedule: None, repeat_every_ms: every, timezone: None, ..set };
    give("cron set every second", Record::CronSet(plain));
    give("cron set with", Record::CronSet(CronSet { template: &template, ..set }));
    give("cron set by", Record::CronSet(CronSet { rules, ..set }));
    give("cron set by, with", Record::CronSet(CronSet { rules, template: &template, ..set }));
    let name = "nightly";
    for (of, next_run_ms) in [("cron ran", Some(AT_MS)), ("cron ran at last", None)] {
        give(of, Record::CronRan(CronRan { name, next_run_ms, pushed: self::plain() }));
    }
    give("cron missed", Record::CronMissed { name, next_run_ms: AT_MS });
    give("cron removed", Record::CronRemoved { name });
}

fn families(give: Give<'_>) {
    give("met", Record::Met { id: ID, dependency: OTHER, at_ms: AT_MS });
    for (name, how) in [
        ("child completed", How::Completed),
        ("child failed", How::Failed),
        ("child ignored", How::Ignored),
        ("child dropped", How::Dropped),
        ("child detached", How::Detached),
    ] {
        let (queue, known_as, value) = ("mail", "child", &b"\xa1v"[..]);
        let (parent, child, at_ms) = (ID, OTHER, AT_MS);
        let ended = ChildEnded { parent, child, at_ms, how, queue, known_as, value };
        give(name, Record::ChildEnded(ended));
    }
    give("settled", Record::Settled { child: ID });
    let adopted = Adopted { parent: ID, child: OTHER, name: "child", waits: true };
    give("adopted", Record::Adopted(adopted));
    give("staged", Record::Staged(Staged { flow: OTHER, pushed: plain() }));
    for (name, fate) in [
        ("flow committed", Fate::Committed),
        ("flow committed here", Fate::CommittedHere),
        ("flow released", Fate::Released),
        ("flow dropped", Fate::Dropped),
        ("flow done", Fate::Done),
    ] {
        give(name, Record::Flow { flow: ID, fate });
    }
}

fn kept(give: Give<'_>) {
    let give = &mut |name: &str, kept: Kept<'_>| give(name, Record::Kept(kept));
    kept_jobs(give);
    let record = encoded(&Record::Completed(Ended {
        id: ID,
        at_ms: AT_MS,
        started_at_ms: AT_MS,
        evicts: Evicts::Nothing,
        result: b"\xa2ok",
    }));
    let moved = Moved { id: ID, from: 4096, record: &record, payload_bytes: 3 };
    give("moved", Kept::Moved(moved));
    give("evicted", Kept::Evicted { queue: "mail", below: AT_MS });
    give("ids", Kept::Ids { highest: OTHER });
    let mut bytes = Vec::new();
    give("past", Kept::CompletedIds(CompletedIdBytes::new(&[ID, OTHER], &mut bytes)));
    for (name, custom_id, end) in [
        ("remains", None, End::Completed),
        ("remains of a failure", Some("custom"), End::Failed(Policy::Remove)),
    ] {
        let unreported =
            KeptUnreported { child: ID, queue: "mail", custom_id, end, value: b"\xa1v" };
        give(name, Kept::Unreported(unreported));
    }
    give("given up", Kept::GivenUp { until: 1 << 33 });
}

fn kept_jobs(give: &mut dyn FnMut(&str, Kept<'_>)) {
    let job = KeptJob {
        pushed: plain(),
        attempts: 2,
        stalls: 1,
        place: Place::Pending(State::Waiting),
        rare: None,
        shared: None,
        failures: FailedAttempts::default(),
    };
    let mut give = |name: &str, job: KeptJob<'_>| give(name, Kept::Job(Box::new(job)));
    give("kept waiting", job.clone());
    let place = Place::Active { token: Token(6), ttl_ms: 1000, at_ms: AT_MS };
    give("kept active", KeptJob { place, ..job.clone() });
    let outcome = Outcome {
        finished_at_ms: AT_MS,
        started_at_ms: AT_MS - 1,
        order: 1 << 30,
        stored: stored(5),
        cause: Cause::Stalled,
    };
    let done = Outcome { cause: Cause::Unknown, ..outcome };
    give("kept completed", KeptJob { place: Place::Ended(State::Completed, done), ..job.clone() });
    let place = Place::Ended(State::Failed, outcome);
    let redelivered = Some(Redelivered { times: 3, last_at_ms: AT_MS });
    let rare = Rare { expires_at_ms: 0, notes: None, run: None, family: None, redelivered };
    give("kept failed", KeptJob { place, rare: Some(rare), ..job.clone() });

    let mut unmet = Vec::new();
    Unmet::push(&mut unmet, ID, "d");
    let mut open = Vec::new();
    Unmet::push(&mut open, JobId(9), "");
    let mut lines = Vec::new();
    Lines::push(&mut lines, &LogEntry { at_ms: AT_MS, level: Level::Error, stored: stored(6) });
    let (message, logs) = (Some(stored(7)), Lines::new(&lines));
    let end = ChildEnd { child: OTHER, how: How::Ignored, stored: stored(8) };
    let family = Family { ends: [end].into_iter().collect(), ..Family::default() };
    let mut ends = Vec::new();
    let rare = Rare {
        expires_at_ms: AT_MS + 7,
        notes: Some(KeptNotes { progress: 50.0, message, logs }),
        run: Some((AT_MS, true)),
        family: Some(Ends::of(&family, &mut ends)),
        redelivered: None,
    };
    let all = KeptJob {
        pushed: full(Unmet::new(&unmet), Unmet::new(&open)),
        place: Place::Pending(State::WaitingChildren),
        rare: Some(rare),
        shared: Some(stored(9)),
        ..job
    };
    give("kept with all", all);
}

/// Calls `give` with every sample, in the order of the file.
fn samples(give: Give<'_>) {
    courses(give);
    changes(give);
    settings(give);
    schedules(give);
    families(give);
    kept(give);
    give("flow committed in slices", Record::Flow { flow: ID, fate: Fate::CommittedInSlices });
    let (flow, first, last, come) = (ID, ID, OTHER, true);
    give("flow slice", Record::FlowSlice { flow, first, last, come });
    let (from_ms, to_ms, stuck_ms) = (AT_MS + 9, AT_MS, 7);
    give("clock set back", Record::ClockSetBack { from_ms, to_ms, stuck_ms });
    give("clock", Record::Kept(Kept::Clock { at_ms: AT_MS, stuck_ms }));
    let mut bytes = Vec::new();
    let names = CompletedNameBytes::new(&[("custom", ID), ("other", OTHER)], &mut bytes);
    give("completed names", Record::Kept(Kept::CompletedNames(names)));
    failed_attempts(give);
}

fn failed_attempts(give: Give<'_>) {
    let attempt = Attempt {
        number: 2,
        started_at_ms: AT_MS - 5,
        stalled: false,
        cause: Cause::Attempts,
        worker: None,
        stack: Stack::default(),
    };
    let (run_at_ms, error) = (AT_MS + 1000, "b\u{e4}d");
    let retried = |attempt| {
        Record::Retried(Retried { id: ID, at_ms: AT_MS, run_at_ms, attempt: Some(attempt), error })
    };
    give("attempt failed", retried(attempt));
    let stack = Stack { lines: 2, texts: b"\xa1x\xa1y" };
    give("attempt failed at", retried(Attempt { worker: Some("w"), stack, ..attempt }));
    let stalled = Attempt { stalled: true, cause: Cause::Stalled, ..attempt };
    give("attempt stalled", retried(stalled));
    let mut failures = Vec::new();
    FailedAttempts::push(&mut failures, &stored(3));
    FailedAttempts::push(&mut failures, &stored(4));
    let job = KeptJob {
        pushed: plain(),
        attempts: 2,
        stalls: 1,
        place: Place::Pending(State::Waiting),
        rare: None,
        shared: None,
        failures: FailedAttempts::new(&failures),
    };
    give("kept with failures", Record::Kept(Kept::Job(Box::new(job))));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn line(name: &str, record: &Record<'_>) -> String {
    let bytes = encoded(record);
    let kind = kind_name(&bytes).unwrap_or("unknown");
    format!("{name} | {} {kind} | payload {} | {}", bytes[0], record.payload_len(), hex(&bytes))
}

#[test]
fn records_are_written_with_the_bytes_of_the_first_release_that_had_them() {
    let mut lines = BYTES.lines();
    samples(&mut |name, record| {
        let written = line(name, &record);
        assert_eq!(written, lines.next().unwrap_or_default(), "{record:?}");
        assert_eq!(record.kind(), encoded(&record)[0]);
    });
    assert_eq!(lines.next(), None);
}

#[test]
fn records_are_read_as_they_were_written() {
    samples(&mut |name, record| {
        let bytes = encoded(&record);
        let read = Record::decode(&bytes);
        let read = read.unwrap_or_else(|refused| panic!("{name}: {refused}"));
        assert_eq!(line(name, &read), line(name, &record));
        assert_eq!(format!("{read:?}"), format!("{record:?}"));
        // Every byte before the payload is needed, and none of a cut record is read beyond its end.
        for len in 0..bytes.len() - record.payload_len() {
            if let Ok(short) = Record::decode(&bytes[..len]) {
                assert_eq!(encoded(&short), bytes[..len], "{name} cut at {len}");
            }
        }
    });
}

/// The fear: a record whose payload is no piece by itself, as that of one which was moved, ends the process.
#[test]
fn a_record_without_its_payload_is_its_head_or_is_not_to_be_had() {
    let mut apart = 0;
    samples(&mut |name, record| {
        let (bytes, payload_bytes) = (encoded(&record), record.payload_len());
        let mut head = vec![0; bytes.len() - payload_bytes];
        let Some(payload) = record.encode_head(&mut head) else { return };
        apart += 1;
        assert_eq!((payload.bytes, &head[..]), (payload_bytes, &bytes[..head.len()]), "{name}");
    });
    assert!(apart > 9, "{apart} payloads stand by themselves");
}

#[test]
fn every_kind_of_record_has_a_sample() {
    let mut seen = BTreeSet::new();
    samples(&mut |_, record| {
        seen.insert(record.kind());
    });
    let all: BTreeSet<u8> = KINDS.iter().map(|(number, _)| *number).collect();
    assert_eq!((&seen, all.len()), (&all, KINDS.len()));
}

/// Prints the lines, for those of a new kind: `cargo test -p corq-shards --lib lines_of_all_samples -- --ignored --nocapture`.
#[test]
#[ignore = "prints; asserts nothing"]
fn lines_of_all_samples() {
    samples(&mut |name, record| println!("{}", line(name, &record)));
}

#[test]
fn a_writer_takes_no_more_and_no_less_than_was_measured() {
    let mut bytes = [0; 3];
    let mut out = Writer::new(&mut bytes);
    out.u8(1);
    out.u16(2);
    out.finish();
    assert_eq!(bytes, [1, 2, 0]);
}
