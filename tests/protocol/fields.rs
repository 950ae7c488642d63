//! Every field of every command, driven by the table: missing, of another type, at its bounds.

use corq::api::commands::{
    BACKOFF_FIELDS, BULK_FILTER_FIELDS, COMMANDS, CRON_JOB_FIELDS, Class, CommandSpec,
    DEDUP_FIELDS, DLQ_CONFIG_FIELDS, DLQ_FILTER_FIELDS, FIELDS_MAX, FieldSpec, JOB_FIELDS, Kind,
    REPEAT_FIELDS, STALL_CONFIG_FIELDS,
};
use rmpv::Value;

use crate::{JOB_ID, accepted, command, map, refused, strings, undefined};

/// A value that a field of this kind takes.
fn sample(kind: &Kind) -> Value {
    match kind {
        Kind::Queues { .. } | Kind::Texts { .. } | Kind::Stack { .. } => strings(&["a"]),
        Kind::Queue | Kind::Text { .. } | Kind::LongText { .. } | Kind::Payload { .. } => {
            "text".into()
        }
        Kind::Traceparent => "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(),
        Kind::Tracestate => "a=1".into(),
        Kind::TextsOf(choices) | Kind::Choices(choices) => strings(&choices[..1]),
        Kind::Choice(choices) => choices[0].into(),
        Kind::Integer { min, .. } => (*min).into(),
        Kind::Number { min, .. } => (*min).into(),
        Kind::Flag => true.into(),
        Kind::Backoff => 10.into(),
        Kind::Repeat => map(&[("every", 5.into())]),
        Kind::JobId | Kind::Token => JOB_ID.into(),
        Kind::JobIds | Kind::Tokens => strings(&[JOB_ID]),
        Kind::Results => Value::Array(vec![1.into()]),
        Kind::Flags => Value::Array(vec![true.into()]),
        Kind::Integers { min, .. } => Value::Array(vec![(*min).into()]),
        Kind::Dedup => map(&[("ttl", 5.into())]),
        Kind::Priority => 7.into(),
        Kind::GroupPull => map(&[("concurrency", 5.into())]),
        Kind::GroupRate => map(&[("max", 5.into()), ("duration", 1.into())]),
        Kind::CronJob => map(&[("maxAttempts", 5.into())]),
        Kind::DlqConfig => map(&[("maxAge", Value::Nil)]),
        Kind::StallConfig => map(&[("maxStalls", 5.into())]),
        Kind::DlqFilter => map(&[("reason", "stalled".into())]),
        Kind::BulkFilter => map(&[("tag", "red".into())]),
        Kind::Jobs => Value::Array(vec![map(&[("data", 1.into())])]),
        Kind::FlowJob => map(&[("data", 1.into())]),
        Kind::Flow => {
            let input = sample(&Kind::FlowJob);
            let one = [("id", "a".into()), ("queue", "q".into()), ("input", input)];
            Value::Array(vec![map(&one)])
        }
    }
}

/// The fewest fields that make the command, `leave_out` not among them.
fn fewest(spec: &CommandSpec, leave_out: &str) -> Vec<(&'static str, Value)> {
    let mut fields: Vec<_> = spec
        .fields
        .iter()
        .filter(|field| field.required && field.name != leave_out)
        .map(|field| (field.name, sample(&field.kind)))
        .collect();
    // The one rule that spans two fields.
    if spec.name == "Cron" && !["schedule", "repeatEvery"].contains(&leave_out) {
        fields.push(("schedule", "* * * * *".into()));
    }
    fields
}

/// The command with `field` set to `value` and as little else as can be.
fn with(spec: &CommandSpec, field: &FieldSpec, value: Value) -> Vec<u8> {
    let mut fields = fewest(spec, field.name);
    fields.push((field.name, value));
    command(spec.name, &fields)
}

fn each_field(test: impl Fn(&CommandSpec, &FieldSpec)) {
    for spec in COMMANDS {
        for field in spec.fields {
            test(spec, field);
        }
    }
}

/// The command with every field it can have.
fn most(spec: &CommandSpec) -> Vec<(&'static str, Value)> {
    let mut fields = fewest(spec, "");
    for field in spec.fields {
        let second_cadence = spec.name == "Cron" && field.name == "repeatEvery";
        let second_choice = spec.name == "RetryDlq" && field.name == "filter";
        let left_out = second_cadence || second_choice;
        if !fields.iter().any(|(name, _)| *name == field.name) && !left_out {
            fields.push((field.name, sample(&field.kind)));
        }
    }
    fields
}

#[test]
fn every_command_decodes_with_its_fewest_fields_and_with_all() {
    for spec in COMMANDS {
        accepted(&command(spec.name, &fewest(spec, "")));
        accepted(&command(spec.name, &most(spec)));
    }
}

#[test]
#[ignore = "makes the fuzzer's seeds; scripts/fuzz.sh runs it"]
fn write_fuzz_seeds() {
    let dir = std::path::PathBuf::from(std::env::var("FUZZ_SEEDS").unwrap());
    std::fs::create_dir_all(&dir).unwrap();
    for spec in COMMANDS {
        let mut fields = most(spec);
        fields.push(("reqId", "r".into()));
        std::fs::write(dir.join(spec.name), command(spec.name, &fields)).unwrap();
    }
}

#[test]
fn a_required_field_that_is_missing_is_named() {
    each_field(|spec, field| {
        let frame = command(spec.name, &fewest(spec, field.name));
        if field.required {
            assert_eq!(refused(&frame), format!("{} is required", field.name), "{}", spec.name);
        }
    });
}

#[test]
fn nil_and_undefined_count_as_absent_in_every_field() {
    each_field(|spec, field| {
        for nothing in [Value::Nil, undefined(), Value::Ext(0, vec![1, 2, 3])] {
            let frame = with(spec, field, nothing.clone());
            // Null is a payload; what JavaScript calls undefined is none.
            let is_payload = matches!(field.kind, Kind::Payload { .. }) && nothing.is_nil();
            if field.required && !is_payload {
                assert_eq!(refused(&frame), format!("{} is required", field.name));
            } else if spec.name == "Bulk" {
                // A condition that is lost would mean more jobs.
                assert_eq!(refused(&frame), format!("{} must not be null", field.name));
            } else if spec.name == "Cron" && ["schedule", "repeatEvery"].contains(&field.name) {
                assert_eq!(refused(&frame), "schedule or repeatEvery is required");
            } else {
                accepted(&frame);
            }
        }
    });
}

#[test]
fn another_type_is_refused_in_every_field_and_named() {
    each_field(|spec, field| {
        let wrong: Vec<Value> = match field.kind {
            // Any value is a payload.
            Kind::Payload { .. } => Vec::new(),
            Kind::Flag => vec![1.into(), "true".into(), strings(&[])],
            Kind::Integer { .. } | Kind::Priority => {
                vec!["1".into(), 1.5.into(), f64::NAN.into(), f64::INFINITY.into(), true.into()]
            }
            Kind::Number { .. } => vec!["1".into(), f64::NAN.into(), true.into()],
            Kind::Backoff => vec!["1".into(), 1.5.into(), true.into()],
            Kind::Repeat
            | Kind::Dedup
            | Kind::GroupPull
            | Kind::GroupRate
            | Kind::CronJob
            | Kind::DlqConfig
            | Kind::StallConfig
            | Kind::DlqFilter
            | Kind::BulkFilter => vec!["1".into(), 1.into(), strings(&["a"])],
            Kind::Jobs
            | Kind::Flow
            | Kind::Results
            | Kind::Flags
            | Kind::Integers { .. }
            | Kind::JobIds
            | Kind::Tokens
            | Kind::Texts { .. }
            | Kind::Queues { .. }
            | Kind::Stack { .. }
            | Kind::TextsOf(_) => vec!["a".into(), 1.into(), map(&[("a", 1.into())])],
            Kind::Choices(_) => vec![1.into(), map(&[("a", 1.into())])],
            _ => vec![1.into(), true.into(), strings(&["a"]), Value::Binary(vec![b'a'])],
        };
        for value in wrong {
            let frame = with(spec, field, value.clone());
            let expected = format!("{} must be {}", field.name, field.kind.noun());
            assert_eq!(refused(&frame), expected, "{} {value}", spec.name);
        }
    });
}

/// Values at the inner edges of a kind's bounds, and at the outer ones.
fn edges(kind: &Kind) -> (Vec<Value>, Vec<Value>) {
    let text = |chars: u32| Value::from("ä".repeat(chars as usize));
    let list = |items: u32, item: &str| {
        Value::Array((0..items).map(|_| Value::from(item)).collect::<Vec<_>>())
    };
    match *kind {
        Kind::Queue => (
            vec!["q".into(), "aZ09_-.:".into(), "q".repeat(256).into()],
            vec!["".into(), "q".repeat(257).into(), "a b".into(), "a/b".into(), "ä".into()],
        ),
        Kind::Text { chars_min, chars_max } => (
            vec![text(chars_min), text(chars_max)],
            if chars_min == 0 {
                vec![text(chars_max + 1)]
            } else {
                vec![text(chars_min - 1), text(chars_max + 1)]
            },
        ),
        Kind::Traceparent => (vec![sample(kind)], vec!["".into(), "00-1-2-01".into(), text(55)]),
        Kind::Tracestate => {
            let state =
                |bytes: usize| format!("a={},b={}", "x".repeat(256), "y".repeat(bytes - 261));
            (vec!["".into(), state(512).into()], vec![state(513).into(), "a".into(), text(1)])
        }
        Kind::JobId => (vec![text(1), text(256)], vec![text(0), text(257)]),
        Kind::LongText { bytes_max, cut } => {
            let text = |bytes: u32| Value::from("x".repeat(bytes as usize));
            let over = text(bytes_max + 1);
            if cut {
                (vec![text(0), text(bytes_max), over], vec![])
            } else {
                (vec![text(0), text(bytes_max)], vec![over])
            }
        }
        Kind::Texts { items_max, .. } | Kind::Queues { items_max } => {
            (vec![list(0, "a"), list(items_max, "a")], vec![list(items_max + 1, "a")])
        }
        Kind::Stack { bytes_max } => {
            (vec![list(0, ""), list(1, ""), list(bytes_max + 1, "a")], vec![])
        }
        Kind::TextsOf(choices) => {
            (vec![list(0, ""), strings(choices)], vec![list(choices.len() as u32 + 1, choices[0])])
        }
        Kind::Choice(choices) => {
            (choices.iter().map(|choice| (*choice).into()).collect(), vec!["other".into()])
        }
        Kind::Choices(choices) => (
            choices.iter().map(|choice| (*choice).into()).chain([strings(choices)]).collect(),
            vec!["other".into()],
        ),
        Kind::Integer { min, max } => (
            vec![min.into(), max.into(), (min as f64).into(), (max as f64).into()],
            vec![
                (min - 1).into(),
                (max + 1).into(),
                u64::MAX.into(),
                i64::MIN.into(),
                1e300.into(),
                (-1e300).into(),
            ],
        ),
        Kind::Number { min, max } => (
            vec![min.into(), max.into(), 0.5.into(), 99.9_f32.into()],
            vec![(min - 1).into(), (f64::from(max) + 0.001).into(), f64::INFINITY.into()],
        ),
        Kind::Backoff => (vec![0.into(), 86_400_000.into()], vec![(-1).into(), 86_400_001.into()]),
        Kind::Payload { bytes_max } => {
            // A string of that length has so many bytes in front.
            let head = if bytes_max <= 1 << 16 { 3 } else { 5 };
            let inner = Value::from("x".repeat(bytes_max as usize - head));
            (vec![inner], vec!["x".repeat(bytes_max as usize - head + 1).into()])
        }
        Kind::JobIds | Kind::Tokens | Kind::Results | Kind::Flags | Kind::Integers { .. } => {
            (vec![], vec![list(100_001, "a")])
        }
        Kind::Jobs | Kind::Flow => (vec![list(0, "")], vec![list(100_001, "a")]),
        Kind::Flag => (vec![true.into(), false.into()], vec![]),
        Kind::Priority => (
            vec![(-1_000_000).into(), 1_000_000.into()],
            vec![(-1_000_001).into(), 1_000_001.into(), u64::MAX.into(), 1e300.into()],
        ),
        Kind::Repeat
        | Kind::Dedup
        | Kind::GroupPull
        | Kind::GroupRate
        | Kind::CronJob
        | Kind::DlqConfig
        | Kind::StallConfig
        | Kind::DlqFilter
        | Kind::BulkFilter
        | Kind::FlowJob
        | Kind::Token => (vec![], vec![]),
    }
}

#[test]
fn bounds_hold_at_both_ends_of_every_field() {
    each_field(|spec, field| {
        let (inside, outside) = edges(&field.kind);
        for value in inside {
            if spec.name == "Bulk" && value == Value::Array(vec![]) {
                assert_eq!(refused(&with(spec, field, value)), "ids must not be empty");
                continue;
            }
            // The limits of tags and dependencies together are another test's.
            accepted(&with(spec, field, value));
        }
        for value in outside {
            let expected = format!("{} must be {}", field.name, field.kind.bounds());
            assert_eq!(refused(&with(spec, field, value)), expected, "{}", spec.name);
        }
    });
}

#[test]
fn a_field_given_twice_is_refused_unless_one_is_absent() {
    each_field(|spec, field| {
        let mut fields = fewest(spec, field.name);
        fields.push((field.name, sample(&field.kind)));
        fields.push((field.name, sample(&field.kind)));
        let expected = format!("{} must be given only once", field.name);
        assert_eq!(refused(&command(spec.name, &fields)), expected);
        fields.last_mut().unwrap().1 = Value::Nil;
        if spec.name == "Bulk" && !field.required {
            return;
        }
        accepted(&command(spec.name, &fields));
    });
}

#[test]
fn fields_may_come_in_any_order() {
    for spec in COMMANDS {
        let mut entries = fewest(spec, "");
        entries.reverse();
        entries.push(("cmd", spec.name.into()));
        let frame = crate::pack(&map(&entries));
        let turned = format!("{:?}", accepted(&frame));
        let straight = command(spec.name, &fewest(spec, ""));
        assert_eq!(turned, format!("{:?}", accepted(&straight)), "{}", spec.name);
    }
}

#[test]
fn unknown_fields_and_keys_that_are_no_strings_are_ignored() {
    for spec in COMMANDS {
        let Value::Map(mut entries) = map(&fewest(spec, "")) else { unreachable!() };
        entries.insert(0, (Value::from("cmd"), spec.name.into()));
        let plain = format!("{:?}", accepted(&crate::pack(&Value::Map(entries.clone()))));
        entries.insert(1, (Value::from(7), strings(&["seven"])));
        entries.push((Value::from("stackLines"), strings(&["at line 1"])));
        entries.push((Value::from("notAField"), true.into()));
        entries.push((Value::Nil, map(&[("deep", strings(&["x"]))])));
        entries.push((strings(&["a", "list"]), 1.into()));
        let more = crate::pack(&Value::Map(entries));
        if spec.class == Class::Bulk || ["Subscribe", "History"].contains(&spec.name) {
            // An action on many jobs refuses them: a field that it does not read may have been a condition. So does a choice.
            assert!(refused(&more).ends_with(" is no field of this command"), "{}", spec.name);
        } else {
            assert_eq!(format!("{:?}", accepted(&more)), plain);
        }
    }
}

#[test]
fn the_table_names_each_command_and_field_once_and_fits_the_decoder() {
    for (at, spec) in COMMANDS.iter().enumerate() {
        assert!(COMMANDS[..at].iter().all(|other| other.name != spec.name && other.op != spec.op));
    }
    let objects = [
        JOB_FIELDS,
        BACKOFF_FIELDS,
        DEDUP_FIELDS,
        REPEAT_FIELDS,
        CRON_JOB_FIELDS,
        DLQ_CONFIG_FIELDS,
        STALL_CONFIG_FIELDS,
        DLQ_FILTER_FIELDS,
        BULK_FILTER_FIELDS,
    ];
    for fields in COMMANDS.iter().map(|spec| spec.fields).chain(objects) {
        assert!(fields.len() <= FIELDS_MAX);
        for (at, field) in fields.iter().enumerate() {
            assert!(fields[..at].iter().all(|other| other.name != field.name));
            assert!(!["cmd", "reqId"].contains(&field.name));
        }
    }
}
