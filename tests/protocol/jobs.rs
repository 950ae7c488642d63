//! Jobs as pushed: what the clients' fields become, alone and in batches.

use corq::api::request::Body;
use corq_shards::dependency::Unmet;
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::job::overrides::{Dedup, Extras, Growth};
use corq_shards::job::trace::{NewTrace, TraceParent};
use rmpv::Value;

use crate::{accepted, command, map, pack, refused, strings, undefined};

fn push(options: &[(&str, Value)]) -> Vec<u8> {
    let mut fields = vec![("queue", "q".into()), ("data", map(&[("n", 1.into())]))];
    fields.extend(options.iter().cloned());
    command("PUSH", &fields)
}

/// The job of a PUSH, as text, so that it can be compared.
fn pushed(options: &[(&str, Value)]) -> String {
    let frame = push(options);
    let Body::Push { queue: "q", job } = accepted(&frame) else { panic!() };
    format!("{job:?}")
}

#[test]
fn a_job_that_says_nothing_gets_the_documented_defaults() {
    let data = pack(&map(&[("n", 1.into())]));
    let job = NewJob {
        data: &data,
        name: None,
        priority: 0,
        delay_ms: 0,
        max_attempts: 3,
        backoff_ms: 1000,
        ttl_ms: None,
        timeout_ms: None,
        unique_key: None,
        custom_id: None,
        group_id: None,
        group_max: 0,
        tags: &[],
        depends_on: &[],
        unmet: Unmet::default(),
        repeat: None,
        lifo: false,
        remove_on_complete: false,
        remove_on_fail: false,
        durable: false,
        extras: None,
        family: None,
        recurrence: None,
        trace: None,
    };
    assert_eq!(pushed(&[]), format!("{job:?}"));
    let nothing: Vec<_> =
        ["priority", "delay", "backoff", "tags", "lifo", "repeat", "jobId"].into();
    let undefined: Vec<_> = nothing.into_iter().map(|name| (name, undefined())).collect();
    assert_eq!(pushed(&undefined), format!("{job:?}"));
    assert_eq!(pushed(&[("tags", strings(&[])), ("dependsOn", strings(&[]))]), format!("{job:?}"));
}

#[test]
fn priorities_of_a_group_are_other_numbers() {
    let of = |group: bool, priority: i64| {
        let mut fields = vec![("priority", priority.into()), ("data", 1.into())];
        fields.extend(group.then(|| ("groupId", "g".into())));
        let item = map(&fields);
        fields.push(("queue", "q".into()));
        let alone = command("PUSH", &fields);
        let jobs = [("queue", "q".into()), ("jobs", Value::Array(vec![item]))];
        (alone, command("PUSHB", &jobs))
    };
    for (group, priority, fine) in [
        (true, 0, true),
        (true, 2_097_151, true),
        (true, 2_097_152, false),
        (true, -1_000_000, true),
        (true, -1_000_001, false),
        (false, 1_000_001, false),
        (false, 2_097_152, false),
        (false, -1_000_000, true),
    ] {
        let (alone, batch) = of(group, priority);
        if fine {
            accepted(&alone);
            accepted(&batch);
            continue;
        }
        let bounds = if group { "-1000000 and 2097151 in a group" } else { "-1000000 and 1000000" };
        assert_eq!(refused(&alone), format!("priority must be between {bounds}"));
        assert_eq!(refused(&batch), format!("jobs[0]: priority must be between {bounds}"));
    }
}

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn every_field_of_a_job_arrives() {
    let data = pack(&map(&[("n", 1.into())]));
    let (tags, depends_on) = (pack(&strings(&["x", "y"])), pack(&strings(&["a"])));
    let job = NewJob {
        data: &data,
        name: Some("send"),
        priority: 7,
        delay_ms: 31_536_000_000,
        max_attempts: 1000,
        backoff_ms: 86_400_000,
        ttl_ms: Some(5000),
        timeout_ms: Some(6000),
        unique_key: Some("key"),
        custom_id: Some("mine"),
        group_id: Some("group"),
        group_max: 12,
        tags: &tags,
        depends_on: &depends_on,
        unmet: Unmet::default(),
        repeat: Some(Repeat { every_ms: 10, limit: Some(4), count: 1 }),
        lifo: true,
        remove_on_complete: true,
        remove_on_fail: true,
        durable: true,
        extras: Some(Box::new(Extras {
            backoff: None,
            backoff_max_ms: None,
            stall_timeout_ms: Some(7),
            keep_logs: Some(8),
            size_limit: Some(900),
            stack_lines_max: Some(10),
            made_at_ms: Some(11),
            dedup: Some(Dedup { ttl_ms: 12, extend: true, replace: true, until_ms: 0 }),
        })),
        family: None,
        recurrence: None,
        trace: Some(Box::new(NewTrace {
            parent: TraceParent::parse(TRACEPARENT).unwrap(),
            state: "a=1,b=2",
        })),
    };
    let repeat = map(&[("every", 10.0.into()), ("limit", 4.into()), ("count", 1.into())]);
    let options = [
        ("name", "send".into()),
        ("priority", 7.into()),
        ("delay", 31_536_000_000_f64.into()),
        ("maxAttempts", 1000.into()),
        ("backoff", 86_400_000.into()),
        ("ttl", 5000.into()),
        ("timeout", 6000.into()),
        ("uniqueKey", "key".into()),
        ("jobId", "mine".into()),
        ("tags", strings(&["x", "y"])),
        ("groupId", "group".into()),
        ("groupMaxSize", 12.into()),
        ("lifo", true.into()),
        ("removeOnComplete", true.into()),
        ("removeOnFail", true.into()),
        ("durable", true.into()),
        ("dependsOn", strings(&["a"])),
        ("repeat", repeat),
        ("stallTimeout", 7.into()),
        ("keepLogs", 8.into()),
        ("sizeLimit", 900.into()),
        ("stackTraceLimit", 10.into()),
        ("timestamp", 11.into()),
        ("dedup", map(&[("ttl", 12.into()), ("extend", true.into()), ("replace", true.into())])),
        ("traceparent", TRACEPARENT.into()),
        ("tracestate", "a=1,b=2".into()),
    ];
    assert_eq!(pushed(&options), format!("{job:?}"));

    let mut item = vec![("data", map(&[("n", 1.into())]))];
    item.extend(options);
    let jobs = Value::Array(vec![map(&item)]);
    let batch = command("PUSHB", &[("queue", "q".into()), ("jobs", jobs)]);
    let Body::PushBatch { queue: "q", jobs } = accepted(&batch) else { panic!() };
    assert_eq!(format!("{jobs:?}"), format!("{:?}", [job]));
}

#[test]
fn a_tracestate_without_a_traceparent_says_nothing() {
    assert_eq!(pushed(&[("tracestate", "a=1".into())]), pushed(&[]));
    let both = [("tracestate", "".into()), ("traceparent", TRACEPARENT.into())];
    assert_eq!(pushed(&both), pushed(&both[1..]));
}

#[test]
fn flags_do_not_stand_in_for_each_other() {
    for flag in ["lifo", "removeOnComplete", "removeOnFail", "durable"] {
        let frame = push(&[(flag, true.into())]);
        let Body::Push { job, .. } = accepted(&frame) else { panic!() };
        let set = [
            ("lifo", job.lifo),
            ("removeOnComplete", job.remove_on_complete),
            ("removeOnFail", job.remove_on_fail),
            ("durable", job.durable),
        ];
        assert!(set.iter().all(|(name, value)| *value == (*name == flag)));
    }
}

#[test]
fn both_names_of_the_custom_id_are_taken_everywhere() {
    let id = |name: &str| {
        let frame = push(&[(name, "mine".into())]);
        let Body::Push { job, .. } = accepted(&frame) else { panic!() };
        assert_eq!(job.custom_id, Some("mine"));
        let item = map(&[("data", 1.into()), (name, "mine".into())]);
        let batch = command("PUSHB", &[("queue", "q".into()), ("jobs", Value::Array(vec![item]))]);
        let Body::PushBatch { jobs, .. } = accepted(&batch) else { panic!() };
        assert_eq!(jobs[0].custom_id, Some("mine"));
    };
    id("jobId");
    id("customId");
    // Where both are sent, the one that belongs to the command counts.
    let both = [("data", 1.into()), ("jobId", "j".into()), ("customId", "c".into())];
    let frame = push(&both[1..]);
    let Body::Push { job, .. } = accepted(&frame) else { panic!() };
    assert_eq!(job.custom_id, Some("j"));
    let batch =
        command("PUSHB", &[("queue", "q".into()), ("jobs", Value::Array(vec![map(&both)]))]);
    let Body::PushBatch { jobs, .. } = accepted(&batch) else { panic!() };
    assert_eq!(jobs[0].custom_id, Some("c"));
}

#[test]
fn a_life_or_a_limit_of_nothing_is_none() {
    let frame = push(&[("ttl", 0.into()), ("timeout", 0.into()), ("backoff", 0.into())]);
    let Body::Push { job, .. } = accepted(&frame) else { panic!() };
    assert_eq!((job.ttl_ms, job.timeout_ms, job.backoff_ms), (None, None, 0));
}

#[test]
fn backoff_may_be_an_object() {
    for (backoff, expected) in [
        (map(&[("type", "exponential".into()), ("delay", 250.into())]), 250),
        (map(&[("type", "fixed".into())]), 1000),
        (map(&[]), 1000),
    ] {
        let frame = push(&[("backoff", backoff)]);
        let Body::Push { job, .. } = accepted(&frame) else { panic!() };
        assert_eq!(job.backoff_ms, expected);
    }
    assert_eq!(
        refused(&push(&[("backoff", map(&[("delay", (-1).into())]))])),
        "backoff.delay must be between 0 and 86400000"
    );
}

#[test]
fn repetition_needs_a_positive_distance() {
    let repeat = |entries: &[(&str, Value)]| refused(&push(&[("repeat", map(entries))]));
    let max = 9_007_199_254_740_991_i64;
    assert_eq!(repeat(&[("limit", 5.into())]), "repeat.every is required");
    assert_eq!(repeat(&[("every", 0.into())]), format!("repeat.every must be between 1 and {max}"));
    assert_eq!(repeat(&[("every", 1.5.into())]), "repeat.every must be an integer");
    assert_eq!(
        repeat(&[("every", 1.into()), ("limit", 0.into())]),
        format!("repeat.limit must be between 1 and {max}")
    );
    assert_eq!(
        repeat(&[("every", 1.into()), ("count", (-1).into())]),
        format!("repeat.count must be between 0 and {max}")
    );
    let frame = push(&[("repeat", map(&[("every", 1.into()), ("limit", Value::Nil)]))]);
    let Body::Push { job, .. } = accepted(&frame) else { panic!() };
    assert_eq!(job.repeat, Some(Repeat { every_ms: 1, limit: None, count: 0 }));
}

#[test]
fn a_bad_job_refuses_the_batch_and_is_named_by_its_index() {
    let batch = |bad: Value| {
        let good = map(&[("data", 1.into()), ("priority", 5.into())]);
        let jobs = Value::Array(vec![good.clone(), good.clone(), good.clone(), bad, good]);
        refused(&command("PUSHB", &[("queue", "q".into()), ("jobs", jobs)]))
    };
    let item = |name: &str, value: Value| map(&[("data", 1.into()), (name, value)]);
    assert_eq!(
        batch(item("priority", 1_000_001.into())),
        "jobs[3]: priority must be between -1000000 and 1000000"
    );
    assert_eq!(batch(item("lifo", 1.into())), "jobs[3]: lifo must be a boolean");
    assert_eq!(batch(map(&[("priority", 1.into())])), "jobs[3]: data is required");
    assert_eq!(
        batch(item("repeat", map(&[("every", 0.into())]))),
        "jobs[3]: repeat.every must be between 1 and 9007199254740991"
    );
    assert_eq!(
        batch(item("tags", strings(&["a", ""]))),
        "jobs[3]: tags[1] must be a string of 1 to 256 characters"
    );
    assert_eq!(batch("no object".into()), "jobs[3] must be an object");
}

#[test]
fn options_of_one_job_do_not_leak_into_the_next() {
    let jobs = Value::Array(vec![
        map(&[("data", 1.into()), ("priority", 5.into()), ("customId", "a".into())]),
        map(&[("data", 2.into())]),
    ]);
    let frame = command("PUSHB", &[("queue", "q".into()), ("jobs", jobs)]);
    let Body::PushBatch { jobs, .. } = accepted(&frame) else { panic!() };
    assert_eq!((jobs[0].priority, jobs[0].custom_id), (5, Some("a")));
    assert_eq!((jobs[1].priority, jobs[1].custom_id), (0, None));
    assert_eq!(jobs[1].data, [2]);
}

#[test]
fn options_of_one_job_are_bounded_together() {
    let ids = |count: usize, chars: usize| {
        Value::Array((0..count).map(|_| "x".repeat(chars).into()).collect())
    };
    // A thousand ids of the server's own fit; as many of the longest custom ids do not.
    accepted(&push(&[("dependsOn", ids(1000, 36))]));
    let error = "job options must be at most 49152 bytes together";
    assert_eq!(refused(&push(&[("dependsOn", ids(1000, 256))])), error);
    // 190 of 256 bytes with three in front, and three for the list, leave 13 bytes.
    let list = ("dependsOn", ids(189, 256));
    let rest = 49_152 - (189 * 259 + 3);
    accepted(&push(&[list.clone(), ("uniqueKey", "k".repeat(rest).into())]));
    assert_eq!(refused(&push(&[list, ("uniqueKey", "k".repeat(rest + 1).into())])), error);
}

#[test]
fn payloads_arrive_byte_for_byte() {
    for data in [
        Value::from("text"),
        true.into(),
        (-1).into(),
        u64::MAX.into(),
        1.5.into(),
        1.5_f32.into(),
        Value::Binary(vec![0xff, 0xc1]),
        Value::Ext(-1, vec![1, 2, 3, 4]),
        map(&[("undefined", undefined()), ("nil", Value::Nil), ("list", strings(&["ü"]))]),
        strings(&[]),
    ] {
        let frame = command("PUSH", &[("data", data.clone()), ("queue", "q".into())]);
        let Body::Push { job, .. } = accepted(&frame) else { panic!() };
        assert_eq!(job.data, pack(&data));
    }
}

#[test]
fn text_that_is_not_utf8_is_refused_by_the_name_of_its_field() {
    let frame = |field: &str, value: &[u8]| {
        let mut bytes = vec![0x83];
        for text in ["cmd", "PUSH", "queue", "q", field] {
            bytes.push(0xa0 | text.len() as u8);
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(value);
        bytes
    };
    let broken = [0xa2, 0xc3, 0x28];
    assert_eq!(refused(&frame("data", &broken)), "data must be valid UTF-8");
    let nested = [0x81, 0xa1, b'k', 0x91, 0xa2, 0xc3, 0x28];
    assert_eq!(refused(&frame("data", &nested)), "data must be valid UTF-8");
    assert_eq!(refused(&frame("uniqueKey", &broken)), "uniqueKey must be valid UTF-8");
    assert_eq!(refused(&frame("unknown", &broken)), "Invalid frame: a string is not valid UTF-8");
    // Binary is no text and may hold anything.
    accepted(&frame("data", &[0xc4, 2, 0xc3, 0x28]));
}

fn extras_of(options: &[(&str, Value)]) -> Option<Extras> {
    let frame = push(options);
    let Body::Push { job, .. } = accepted(&frame) else { panic!() };
    job.extras.map(|extras| *extras)
}

#[test]
fn a_backoff_may_be_an_object_with_growth_and_ceiling() {
    let backoff = |fields: &[(&str, Value)]| [("backoff", map(fields))];
    let expected = |backoff, backoff_max_ms| {
        Some(Extras { backoff: Some(backoff), backoff_max_ms, ..Extras::default() })
    };
    assert_eq!(extras_of(&backoff(&[])), expected(Growth::Exponential, None));
    let fixed = backoff(&[("type", "fixed".into()), ("delay", 5.into())]);
    assert_eq!(extras_of(&fixed), expected(Growth::Fixed, None));
    let capped = backoff(&[("type", "exponential".into()), ("maxDelay", 9.into())]);
    assert_eq!(extras_of(&capped), expected(Growth::Exponential, Some(9)));
    assert_eq!(extras_of(&[("backoff", 5.into())]), None);
    let wrong = push(&backoff(&[("type", "linear".into())]));
    assert_eq!(refused(&wrong), "backoff.type must be one of exponential, fixed");
}

#[test]
fn a_debounce_is_a_key_with_a_time_unless_there_is_a_key() {
    let frame = push(&[("debounceId", "d".into()), ("debounceTtl", 5.into())]);
    let Body::Push { job, .. } = accepted(&frame) else { panic!() };
    assert_eq!(job.unique_key, Some("d"));
    let dedup = job.extras.and_then(|extras| extras.dedup);
    assert_eq!(dedup, Some(Dedup { ttl_ms: 5, ..Dedup::default() }));
    let frame = push(&[("debounceId", "d".into()), ("uniqueKey", "u".into())]);
    let Body::Push { job, .. } = accepted(&frame) else { panic!() };
    assert_eq!((job.unique_key, job.extras), (Some("u"), None));
    assert_eq!(extras_of(&[("dedup", map(&[("ttl", 5.into())]))]), None, "there is no key");
}

#[test]
fn rules_of_one_job_of_a_batch_are_not_those_of_the_next() {
    let fixed = map(&[("type", "fixed".into())]);
    let jobs = [
        map(&[("data", 1.into()), ("backoff", fixed), ("keepLogs", 1.into())]),
        map(&[("data", 2.into()), ("backoff", 5.into())]),
    ];
    let batch = [("queue", "q".into()), ("jobs", Value::Array(jobs.into()))];
    let batch = command("PUSHB", &batch);
    let Body::PushBatch { jobs, .. } = accepted(&batch) else { panic!() };
    assert!(jobs[0].extras.is_some() && jobs[1].extras.is_none(), "{jobs:?}");
}

#[test]
fn a_payload_beyond_its_own_limit_is_refused() {
    let text = |chars: usize| Value::from("x".repeat(chars));
    let with = |chars, limit: i64| {
        command(
            "PUSH",
            &[("queue", "q".into()), ("data", text(chars)), ("sizeLimit", limit.into())],
        )
    };
    accepted(&with(30, 31));
    assert_eq!(refused(&with(31, 31)), "data must be at most 31 bytes, as sizeLimit says");
}
