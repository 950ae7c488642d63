//! Values that a field must refuse or take, made from its row in the command table. Which commands
//! there are, and who judges the answers, is not known here.

use corq::api::commands::{
    BACKOFF_FIELDS, BULK_FILTER_FIELDS, CRON_JOB_FIELDS, DEDUP_FIELDS, DLQ_CONFIG_FIELDS,
    DLQ_FILTER_FIELDS, FLOW_FIELDS, FLOW_JOB_FIELDS, FieldSpec, GROUP_PULL_FIELDS,
    GROUP_RATE_FIELDS, JOB_FIELDS, Kind, REPEAT_FIELDS, STALL_CONFIG_FIELDS,
};
use corq::api::error::Error;
use corq::api::limits::{BATCH_MAX, DAY_MS, DEPTH_MAX, PAYLOAD_BYTES_MAX, PRIORITY_MAX};
use rmpv::Value;

/// A value in MessagePack, as it goes over the wire.
pub(crate) type Bytes = Vec<u8>;

/// A value that must be refused, and the words of the refusal.
pub(crate) struct Wrong {
    pub(crate) value: Bytes,
    pub(crate) complaint: Error,
}

pub(crate) fn pack(value: &Value) -> Bytes {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes
}

/// A map of values that are bytes already.
pub(crate) fn object(entries: &[(&str, Bytes)]) -> Bytes {
    let mut bytes = Vec::new();
    rmp::encode::write_map_len(&mut bytes, entries.len() as u32).unwrap();
    for (key, value) in entries {
        bytes.extend(pack(&Value::from(*key)));
        bytes.extend_from_slice(value);
    }
    bytes
}

fn list(items: &[Bytes]) -> Bytes {
    let mut bytes = Vec::new();
    rmp::encode::write_array_len(&mut bytes, items.len() as u32).unwrap();
    for item in items {
        bytes.extend_from_slice(item);
    }
    bytes
}

fn text(text: &str) -> Bytes {
    pack(&text.into())
}

/// A text of so many characters, each of two bytes.
fn characters(count: u32) -> Bytes {
    text(&"é".repeat(count as usize))
}

/// A string that is not UTF-8.
fn garbled() -> Bytes {
    vec![0xa2, 0xff, 0xfe]
}

/// A text of so many bytes with its head.
fn serialized(bytes: u32) -> Bytes {
    let mut value = vec![0xdb];
    value.extend((bytes - 5).to_be_bytes());
    value.resize(bytes as usize, b'x');
    value
}

fn nested(levels: usize) -> Bytes {
    let mut value = vec![0x91; levels];
    value.push(0xc0);
    value
}

/// The types of `MessagePack`, a value each, and which of them a kind may take.
fn types() -> [(&'static str, Bytes); 8] {
    [
        ("flag", pack(&true.into())),
        ("integer", pack(&7.into())),
        ("fraction", pack(&1.5.into())),
        ("text", text("text")),
        ("binary", pack(&Value::Binary(vec![1, 2]))),
        ("list", list(&[])),
        ("map", object(&[])),
        ("extension", pack(&Value::Ext(5, vec![1, 2]))),
    ]
}

/// A `traceparent` with nothing wrong.
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn takes(kind: &Kind, of_type: &str) -> bool {
    match kind {
        Kind::Payload { .. } => true,
        Kind::Queue
        | Kind::Text { .. }
        | Kind::LongText { .. }
        | Kind::JobId
        | Kind::Token
        | Kind::Traceparent
        | Kind::Tracestate
        | Kind::Choice(_) => of_type == "text",
        Kind::Queues { .. }
        | Kind::Texts { .. }
        | Kind::Stack { .. }
        | Kind::TextsOf(_)
        | Kind::JobIds
        | Kind::Tokens
        | Kind::Results
        | Kind::Flags
        | Kind::Integers { .. }
        | Kind::Flow
        | Kind::Jobs => of_type == "list",
        Kind::Choices(_) => matches!(of_type, "text" | "list"),
        Kind::Integer { .. } | Kind::Priority => of_type == "integer",
        Kind::Number { .. } => matches!(of_type, "integer" | "fraction"),
        Kind::Flag => of_type == "flag",
        Kind::Backoff => matches!(of_type, "integer" | "map"),
        Kind::Repeat
        | Kind::Dedup
        | Kind::GroupPull
        | Kind::GroupRate
        | Kind::CronJob
        | Kind::DlqConfig
        | Kind::StallConfig
        | Kind::DlqFilter
        | Kind::BulkFilter
        | Kind::FlowJob => of_type == "map",
    }
}

/// Whole numbers right outside of two bounds, and far outside.
fn outside(min: i64, max: i64) -> Vec<Bytes> {
    let mut values: Vec<Bytes> = [min - 1, max + 1, i64::MIN].map(|it| pack(&it.into())).into();
    values.push(pack(&(1_u64 << 63).into()));
    values.push(pack(&u64::MAX.into()));
    values.push(pack(&(max as f64 + 1.0).into()));
    values.push(pack(&(-1e300).into()));
    values
}

/// Every value that `field` must refuse. `at` stands in front of each complaint.
pub(crate) fn wrong(field: &FieldSpec, at: &str) -> Vec<Wrong> {
    let mut all = Vec::new();
    let mut add = |value: Bytes, complaint: Error| {
        all.push(Wrong { value, complaint: complaint.inside(at) });
    };
    for (of_type, value) in types() {
        if !takes(&field.kind, of_type) {
            add(value, field.wrong_type());
        }
    }
    if field.required {
        if !matches!(field.kind, Kind::Payload { .. }) {
            add(pack(&Value::Nil), field.missing());
        }
        add(pack(&Value::Ext(0, vec![0])), field.missing());
    }
    if !takes(&field.kind, "list") {
        add(nested(DEPTH_MAX as usize + 1), field.wrong_type());
    }
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        match field.kind {
            Kind::Number { .. } if !number.is_nan() => {
                add(pack(&number.into()), field.out_of_bounds());
            }
            Kind::Payload { .. } => {}
            _ => add(pack(&number.into()), field.wrong_type()),
        }
    }
    for (value, complaint) in wrong_of_kind(field) {
        add(value, complaint);
    }
    let inner = inner_fields(&field.kind);
    for inner_field in inner {
        let path = match field.kind {
            Kind::Jobs | Kind::Flow => "jobs[1]: ".to_owned(),
            _ => format!("{}.", field.name),
        };
        for Wrong { value, complaint } in wrong(inner_field, &format!("{at}{path}")) {
            all.push(Wrong { value: holding(&field.kind, inner_field.name, value), complaint });
        }
    }
    all
}

/// The fields of the object that a field holds.
fn inner_fields(kind: &Kind) -> &'static [FieldSpec] {
    match kind {
        Kind::Jobs => JOB_FIELDS,
        Kind::Flow => FLOW_FIELDS,
        Kind::FlowJob => FLOW_JOB_FIELDS,
        Kind::Backoff => BACKOFF_FIELDS,
        Kind::Repeat => REPEAT_FIELDS,
        Kind::Dedup => DEDUP_FIELDS,
        Kind::GroupPull => GROUP_PULL_FIELDS,
        Kind::GroupRate => GROUP_RATE_FIELDS,
        Kind::CronJob => CRON_JOB_FIELDS,
        Kind::DlqConfig => DLQ_CONFIG_FIELDS,
        Kind::StallConfig => STALL_CONFIG_FIELDS,
        Kind::DlqFilter => DLQ_FILTER_FIELDS,
        Kind::BulkFilter => BULK_FILTER_FIELDS,
        _ => &[],
    }
}

/// A job of a flow with nothing wrong.
fn flow_entry(id: &str) -> Vec<(&'static str, Bytes)> {
    let input = object(&[("data", pack(&7.into()))]);
    vec![("id", text(id)), ("queue", text("witness")), ("input", input)]
}

/// The object of a field, with `value` in one of its own fields and nothing wrong in the others.
fn holding(kind: &Kind, name: &str, value: Bytes) -> Bytes {
    let needed: &[(&str, i64)] = match kind {
        Kind::Jobs | Kind::FlowJob => &[("data", 7)],
        // A pattern takes the place of `every`: the job needs one of the two, and both are too many.
        Kind::Repeat if name == "pattern" => &[],
        Kind::Repeat => &[("every", 60_000)],
        Kind::GroupRate => &[("max", 5), ("duration", 1000)],
        _ => &[],
    };
    let mut entries: Vec<(&str, Bytes)> = needed
        .iter()
        .filter(|(needed, _)| *needed != name)
        .map(|(needed, number)| (*needed, pack(&(*number).into())))
        .collect();
    if matches!(kind, Kind::Flow) {
        let fine = flow_entry("second");
        entries = fine.into_iter().filter(|(needed, _)| *needed != name).collect();
    }
    entries.push((name, value));
    match kind {
        Kind::Flow => list(&[object(&flow_entry("first")), object(&entries)]),
        Kind::Jobs => list(&[object(&[("data", text("fine"))]), object(&entries)]),
        _ => object(&entries),
    }
}

fn wrong_of_kind(field: &FieldSpec) -> Vec<(Bytes, Error)> {
    let outside_of = |values: Vec<Bytes>| -> Vec<(Bytes, Error)> {
        values.into_iter().map(|value| (value, field.out_of_bounds())).collect()
    };
    // The second item of a list is wrong, and the complaint says which.
    let with_item = |fine: &str, items: Vec<Bytes>| -> Vec<(Bytes, Error)> {
        let wrong = |item: Bytes| (list(&[text(fine), item]), field.wrong_item(1));
        items.into_iter().map(wrong).collect()
    };
    let too_many = |fine: &Bytes, most: u32| vec![list(&vec![fine.clone(); most as usize + 1])];
    let no_text = || vec![pack(&7.into()), pack(&Value::Nil), garbled(), nested(200)];
    let huge = || serialized(PAYLOAD_BYTES_MAX);
    let queues = || ["", "a b", "a/b", "é", &"q".repeat(257)].map(text).to_vec();
    match &field.kind {
        Kind::Queue => {
            let mut wrong = outside_of([queues(), vec![huge()]].concat());
            wrong.push((garbled(), field.not_utf8()));
            wrong
        }
        Kind::Text { chars_min, chars_max } => {
            let mut wrong = outside_of(vec![characters(chars_max + 1), huge()]);
            wrong.extend((*chars_min > 0).then(|| (text(""), field.out_of_bounds())));
            wrong.push((garbled(), field.not_utf8()));
            wrong
        }
        Kind::Traceparent => {
            let mut wrong = outside_of(["", "00-1-2-01", &PARENT.to_uppercase()].map(text).into());
            wrong.push((garbled(), field.not_utf8()));
            wrong
        }
        Kind::Tracestate => {
            let mut wrong = outside_of(["a", "a=1\r\nx: y", &"a=1,".repeat(33)].map(text).into());
            wrong.push((garbled(), field.not_utf8()));
            wrong
        }
        Kind::JobId => {
            let mut wrong = outside_of(vec![text(""), characters(257), huge()]);
            wrong.push((garbled(), field.not_utf8()));
            wrong
        }
        Kind::LongText { bytes_max, cut } => {
            let mut wrong = vec![(garbled(), field.not_utf8())];
            if !cut {
                wrong.extend(outside_of(vec![text(&"x".repeat(*bytes_max as usize + 1))]));
            }
            wrong
        }
        Kind::Token => vec![(garbled(), field.not_utf8())],
        Kind::Choice(_) => {
            let mut wrong = outside_of(vec![text(""), text("lost"), huge()]);
            wrong.push((garbled(), field.not_utf8()));
            wrong
        }
        Kind::Choices(choices) => {
            let mut wrong = outside_of(vec![text(""), text("lost"), huge()]);
            wrong.push((garbled(), field.not_utf8()));
            wrong.extend(with_item(choices[0], [no_text(), vec![text("lost")]].concat()));
            wrong
        }
        Kind::Queues { items_max } => {
            let mut wrong = outside_of(too_many(&text("a"), *items_max));
            wrong.extend(with_item("a", [no_text(), queues()].concat()));
            wrong
        }
        Kind::Texts { items_max, chars_max } => {
            let mut wrong = outside_of(too_many(&text("a"), *items_max));
            let items = vec![text(""), characters(chars_max + 1)];
            wrong.extend(with_item("a", [no_text(), items].concat()));
            wrong
        }
        Kind::TextsOf(choices) => {
            let mut wrong = outside_of(too_many(&text(choices[0]), choices.len() as u32));
            wrong.extend(with_item(choices[0], [no_text(), vec![text("lost")]].concat()));
            wrong
        }
        Kind::Stack { .. } => with_item("at x", no_text()),
        Kind::JobIds => {
            let mut wrong = outside_of(too_many(&text("a"), BATCH_MAX));
            let items = vec![text(""), characters(257)];
            wrong.extend(with_item("a", [no_text(), items].concat()));
            wrong
        }
        Kind::Tokens => {
            let mut wrong = outside_of(too_many(&text(""), BATCH_MAX));
            wrong.extend(with_item("", vec![pack(&7.into()), garbled(), nested(200)]));
            wrong
        }
        Kind::Flags => {
            let mut wrong = outside_of(too_many(&pack(&true.into()), BATCH_MAX));
            for item in [pack(&7.into()), text("true"), list(&[])] {
                wrong.push((list(&[pack(&true.into()), item]), field.wrong_item(1)));
            }
            wrong
        }
        Kind::Integers { min, max } => {
            let mut wrong = outside_of(too_many(&pack(&(*min).into()), BATCH_MAX));
            let items =
                [vec![pack(&1.5.into()), text("7"), pack(&Value::Nil)], outside(*min, *max)];
            for item in items.concat() {
                wrong.push((list(&[pack(&(*min).into()), item]), field.wrong_item(1)));
            }
            wrong
        }
        Kind::Results => {
            let mut wrong = outside_of(too_many(&pack(&7.into()), BATCH_MAX));
            let items = vec![serialized(PAYLOAD_BYTES_MAX + 1), garbled(), nested(129)];
            wrong.extend(with_item("a", items));
            wrong
        }
        Kind::Jobs => {
            let job = object(&[("data", pack(&7.into()))]);
            let mut wrong = outside_of(too_many(&job, BATCH_MAX));
            for item in [pack(&7.into()), list(&[]), pack(&Value::Nil)] {
                wrong.push((list(&[job.clone(), item]), field.wrong_item(1)));
            }
            wrong
        }
        Kind::Flow => {
            let one = object(&flow_entry("first"));
            let mut wrong = outside_of(too_many(&one, BATCH_MAX));
            for item in [pack(&7.into()), list(&[]), pack(&Value::Nil)] {
                wrong.push((list(&[one.clone(), item]), field.wrong_item(1)));
            }
            wrong
        }
        Kind::Payload { bytes_max } => vec![
            (serialized(bytes_max + 1), field.out_of_bounds()),
            (nested(DEPTH_MAX as usize + 1), field.too_deep()),
            (nested(1_000_000), field.too_deep()),
            (garbled(), field.not_utf8()),
            (list(&[text("fine"), garbled()]), field.not_utf8()),
        ],
        Kind::Integer { min, max } => outside_of(outside(*min, *max)),
        Kind::Backoff => outside_of(outside(0, DAY_MS)),
        Kind::Number { min, max } => {
            let mut wrong = outside_of(outside(i64::from(*min), i64::from(*max)));
            let right_outside = [f64::from(*min) - 0.001, f64::from(*max) + 0.001];
            wrong.extend(outside_of(right_outside.map(|it| pack(&it.into())).to_vec()));
            wrong
        }
        Kind::Priority => outside_of(outside(-PRIORITY_MAX, PRIORITY_MAX)),
        Kind::Flag
        | Kind::Repeat
        | Kind::Dedup
        | Kind::GroupPull
        | Kind::GroupRate
        | Kind::CronJob
        | Kind::DlqConfig
        | Kind::StallConfig
        | Kind::DlqFilter
        | Kind::BulkFilter
        | Kind::FlowJob => Vec::new(),
    }
}

/// Values right inside the bounds, which `field` must take.
pub(crate) fn right(field: &FieldSpec) -> Vec<Bytes> {
    let numbers = |min: i64, max: i64| vec![pack(&min.into()), pack(&max.into())];
    match &field.kind {
        Kind::Queue => ["q", &"Az09_-.:".repeat(32)].map(text).to_vec(),
        Kind::Text { chars_min, chars_max } => vec![characters(*chars_min), characters(*chars_max)],
        Kind::Traceparent => vec![text(PARENT)],
        Kind::Tracestate => vec![text(""), text(&"a=1,".repeat(32))],
        Kind::JobId => vec![characters(1), characters(256)],
        Kind::LongText { bytes_max, cut } => {
            let longest = if *cut { PAYLOAD_BYTES_MAX } else { *bytes_max };
            vec![text(""), text(&"x".repeat(longest as usize))]
        }
        // As long as its command may be.
        Kind::Token => vec![text(""), text("no token at all"), serialized(32_000)],
        Kind::Choice(choices) => choices.iter().map(|choice| text(choice)).collect(),
        Kind::Choices(choices) => {
            let all: Vec<Bytes> = choices.iter().map(|choice| text(choice)).collect();
            vec![list(&[]), list(&all), text(choices[0])]
        }
        Kind::TextsOf(choices) => {
            vec![list(&choices.iter().map(|choice| text(choice)).collect::<Vec<_>>())]
        }
        Kind::Queues { items_max } => {
            vec![list(&[]), list(&vec![text("q"); *items_max as usize])]
        }
        // All texts of a job share one more bound, so the longest item stands alone.
        Kind::Texts { items_max, chars_max } => vec![
            list(&[]),
            list(&[characters(*chars_max)]),
            list(&vec![text("q"); *items_max as usize]),
        ],
        Kind::Stack { .. } => vec![list(&[]), list(&[serialized(PAYLOAD_BYTES_MAX)])],
        Kind::JobIds => {
            vec![list(&[characters(256)]), list(&vec![text("a"); BATCH_MAX as usize])]
        }
        Kind::Tokens => vec![list(&[]), list(&[text("")]), list(&[pack(&Value::Nil)])],
        Kind::Results => vec![list(&[nested(127)]), list(&[serialized(PAYLOAD_BYTES_MAX)])],
        Kind::Flow => vec![list(&[object(&flow_entry("flow"))])],
        Kind::FlowJob => Vec::new(),
        Kind::Jobs => vec![list(&[object(&[("data", serialized(PAYLOAD_BYTES_MAX))])])],
        Kind::Payload { bytes_max } => {
            vec![serialized(*bytes_max), nested(DEPTH_MAX as usize), pack(&false.into())]
        }
        Kind::Integer { min, max } => numbers(*min, *max),
        Kind::Number { min, max } => numbers(i64::from(*min), i64::from(*max)),
        Kind::Flag => vec![pack(&false.into()), pack(&true.into())],
        Kind::Backoff => {
            let inner = BACKOFF_FIELDS
                .iter()
                .flat_map(|inner| right(inner).into_iter().map(|value| (inner.name, value)));
            let objects = inner.map(|(name, value)| holding(&field.kind, name, value));
            numbers(0, DAY_MS).into_iter().chain(objects).collect()
        }
        Kind::Flags => vec![list(&[pack(&true.into())]), list(&[pack(&Value::Nil)])],
        Kind::Integers { min, max } => {
            numbers(*min, *max).into_iter().map(|number| list(&[number])).collect()
        }
        Kind::Priority => numbers(-PRIORITY_MAX, PRIORITY_MAX),
        Kind::Repeat
        | Kind::Dedup
        | Kind::GroupPull
        | Kind::GroupRate
        | Kind::CronJob
        | Kind::DlqConfig
        | Kind::StallConfig
        | Kind::DlqFilter
        | Kind::BulkFilter => inner_fields(&field.kind)
            .iter()
            .flat_map(|inner| right(inner).into_iter().map(|value| (inner.name, value)))
            .map(|(name, value)| holding(&field.kind, name, value))
            .collect(),
    }
}
