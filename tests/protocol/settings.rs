//! Settings and filters: objects within commands. The fear: a null that is taken for silence, and a part of a
//! setting that changes another.

use corq::api::request::{Body, Cron, DlqFilter};
use corq_shards::dead_letter::policy::{DlqPatch, RulePatch, StallPatch};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::dead_letter::scan::FailedFilter;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::{Dedup, Extras, Growth};
use corq_shards::log_record::cron::CronRules;
use rmpv::Value;

use crate::{accepted, command, map, refused, undefined};

fn patch_of(name: &str, config: &[(&str, Value)]) -> RulePatch {
    let frame = command(name, &[("queue", "q".into()), ("config", map(config))]);
    match accepted(&frame) {
        Body::SetDlqConfig { queue: "q", config } => RulePatch::Dlq(config),
        Body::SetStallConfig { queue: "q", config } => RulePatch::Stall(config),
        other => panic!("it is another command: {other:?}"),
    }
}

#[test]
fn what_a_setting_does_not_name_stays_and_null_takes_a_bound_away() {
    let none = DlqPatch::default();
    assert_eq!(patch_of("SetDlqConfig", &[]), RulePatch::Dlq(none));
    let all = patch_of(
        "SetDlqConfig",
        &[
            ("autoRetry", true.into()),
            ("autoRetryInterval", 5000.into()),
            ("maxAutoRetries", 2.into()),
            ("maxAge", 60_000.into()),
            ("maxEntries", 9.into()),
        ],
    );
    let expected = DlqPatch {
        auto_retry: Some(true),
        retry_interval_ms: Some(5000),
        retries_max: Some(2),
        age_max_ms: Some(Some(60_000)),
        entries_max: Some(Some(9)),
    };
    assert_eq!(all, RulePatch::Dlq(expected));
    let unbound = patch_of("SetDlqConfig", &[("maxAge", Value::Nil), ("maxEntries", Value::Nil)]);
    let expected = DlqPatch { age_max_ms: Some(None), entries_max: Some(None), ..none };
    assert_eq!(unbound, RulePatch::Dlq(expected));
    let silent = patch_of("SetDlqConfig", &[("maxAge", undefined()), ("autoRetry", Value::Nil)]);
    assert_eq!(silent, RulePatch::Dlq(none));
    let stall = patch_of("SetStallConfig", &[("enabled", false.into()), ("maxStalls", 0.into())]);
    let expected =
        StallPatch { enabled: Some(false), stalls_max: Some(0), ..StallPatch::default() };
    assert_eq!(stall, RulePatch::Stall(expected));
}

#[test]
fn a_wrong_part_of_a_setting_is_named_with_its_bounds() {
    let wrong = |name: &str, field: &str, value: Value| {
        let config = map(&[(field, value)]);
        refused(&command(name, &[("queue", "q".into()), ("config", config)]))
    };
    assert_eq!(
        wrong("SetDlqConfig", "maxEntries", 0.into()),
        "config.maxEntries must be between 1 and 4294967295"
    );
    assert_eq!(wrong("SetDlqConfig", "maxAge", "1".into()), "config.maxAge must be an integer");
    assert_eq!(wrong("SetDlqConfig", "autoRetry", 1.into()), "config.autoRetry must be a boolean");
    assert_eq!(
        wrong("SetStallConfig", "stallInterval", 0.into()),
        "config.stallInterval must be between 1 and 86400000"
    );
    assert_eq!(
        wrong("SetStallConfig", "maxStalls", 255.into()),
        "config.maxStalls must be between 0 and 254"
    );
    let filter = map(&[("reason", "boredom".into())]);
    let text = refused(&command("Dlq", &[("queue", "q".into()), ("filter", filter)]));
    assert!(text.starts_with("filter.reason must be one of unknown, explicit_fail"), "{text}");
    let filter = map(&[]);
    let fields = [("queue", "q".into()), ("jobId", "j".into()), ("filter", filter)];
    assert_eq!(refused(&command("RetryDlq", &fields)), "jobId and filter must not both be given");
}

#[test]
fn a_filter_says_which_jobs_and_how_many_of_them() {
    let filter = map(&[
        ("reason", "stalled".into()),
        ("olderThan", 7.into()),
        ("newerThan", 0.into()),
        ("retriable", true.into()),
        ("limit", 3.into()),
        ("offset", 2.into()),
    ]);
    let frame = command("Dlq", &[("queue", "q".into()), ("filter", filter)]);
    let filter = FailedFilter {
        cause: Some(Cause::Stalled),
        until_ms: Some(7),
        retriable: true,
        ..FailedFilter::default()
    };
    let filter = Some(DlqFilter { filter, offset: 2, limit: 3 });
    let expected = Body::Dlq { queue: "q", count: 100, filter };
    assert_eq!(format!("{:?}", accepted(&frame)), format!("{expected:?}"));
    for nothing in [Value::Nil, undefined(), map(&[])] {
        let frame = command("Dlq", &[("queue", "q".into()), ("filter", nothing)]);
        let filter = Some(DlqFilter::default());
        let expected = Body::Dlq { queue: "q", count: 100, filter };
        assert_eq!(format!("{:?}", accepted(&frame)), format!("{expected:?}"));
    }
    let undefined = [("queue", "q".into()), ("jobId", "j".into()), ("filter", undefined())];
    accepted(&command("RetryDlq", &undefined));
}

fn cron_of(fields: &[(&'static str, Value)]) -> Vec<u8> {
    let mut all = vec![
        ("name", "n".into()),
        ("queue", "q".into()),
        ("data", 1.into()),
        ("repeatEvery", 5.into()),
    ];
    all.extend_from_slice(fields);
    command("Cron", &all)
}

#[test]
fn a_schedule_carries_its_rules_and_what_its_jobs_are_pushed_with() {
    let options = map(&[
        ("maxAttempts", 7.into()),
        ("backoff", map(&[("type", "fixed".into()), ("delay", 50.into())])),
        ("delay", 9.into()),
        ("timeout", 0.into()),
        ("stallTimeout", 800.into()),
        ("removeOnComplete", true.into()),
    ]);
    let frame = cron_of(&[
        ("uniqueKey", "k".into()),
        ("dedup", map(&[("ttl", 5.into())])),
        ("immediately", true.into()),
        ("skipIfNoWorker", true.into()),
        ("skipMissedOnRestart", false.into()),
        ("preventOverlap", true.into()),
        ("jobOptions", options),
    ]);
    let Body::Cron { cron: Cron { rules, job, .. } } = accepted(&frame) else {
        panic!("no schedule")
    };
    let all = CronRules {
        immediately: true,
        skip_if_no_worker: true,
        catch_up: true,
        prevent_overlap: true,
        disabled: false,
    };
    assert_eq!(rules, all);
    let extras = Extras {
        backoff: Some(Growth::Fixed),
        stall_timeout_ms: Some(800),
        dedup: Some(Dedup { ttl_ms: 5, ..Dedup::default() }),
        ..Extras::default()
    };
    let expected = NewJob {
        max_attempts: 7,
        backoff_ms: 50,
        delay_ms: 9,
        remove_on_complete: true,
        unique_key: Some("k"),
        extras: Some(Box::new(extras)),
        ..NewJob::default()
    };
    assert_eq!(format!("{:?}", job.unwrap()), format!("{expected:?}"));
    let plain = cron_of(&[("dedup", map(&[("ttl", 5.into())]))]);
    let Body::Cron { cron: Cron { rules, job, .. } } = accepted(&plain) else {
        panic!("no schedule")
    };
    assert!(rules == CronRules::default() && job.is_none(), "a policy without a key is nothing");
    let wrong = cron_of(&[("jobOptions", map(&[("maxAttempts", 0.into())]))]);
    assert_eq!(refused(&wrong), "jobOptions.maxAttempts must be between 1 and 1000");
}
