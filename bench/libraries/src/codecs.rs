//! MessagePack, JSON and the text of a UUID: ours, and what rmp, rmpv, rmp-serde, serde-transcode and uuid do instead.

use crate::Task;
use corq::protocol::decode::decode;
use corq::protocol::json::{from_msgpack, to_msgpack};
use corq::protocol::msgpack::Reader;
use corq::protocol::uuid_text;
use corq::protocol::msgpack::writer::Writer;
use rmpv::Value;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use uuid::Uuid;

pub const TASKS: &[Task] = &[
    Task {
        name: "read PUSH, 100 bytes",
        ways: &[
            ("corq, checked", |times| read(times, &push(100), |frame| decode(frame).is_ok())),
            ("rmp-serde", |times| read(times, &push(100), |frame| serde::<Push>(frame))),
            ("rmpv", |times| read(times, &push(100), tree)),
        ],
    },
    Task {
        name: "read PUSHB of 100, 100 bytes each",
        ways: &[
            ("corq, checked", |times| read(times, &push_batch(), |frame| decode(frame).is_ok())),
            ("rmp-serde", |times| read(times, &push_batch(), |frame| serde::<PushBatch>(frame))),
            ("rmpv", |times| read(times, &push_batch(), tree)),
        ],
    },
    Task {
        name: "find the end of 10 KB",
        ways: &[
            ("corq", |times| {
                read(times, &payload(10_000), |bytes| Reader::new(bytes).skip().is_ok())
            }),
            ("rmp-serde", |times| {
                read(times, &payload(10_000), |bytes| serde::<IgnoredAny>(bytes))
            }),
            ("rmpv", |times| read(times, &payload(10_000), tree)),
        ],
    },
    Task {
        name: "write a delivered job",
        ways: &[
            ("corq", |times| fill(times, ours)),
            ("rmp", |times| fill(times, with_rmp)),
            ("rmp-serde", |times| fill(times, with_serde)),
            ("rmpv", |times| fill(times, with_tree)),
        ],
    },
    Task {
        name: "JSON to MessagePack, 100 bytes",
        ways: &[
            ("corq", |times| turn(times, &json(100), to_ours)),
            ("serde-transcode", |times| turn(times, &json(100), to_transcoded)),
            ("serde_json::Value", |times| turn(times, &json(100), to_tree)),
        ],
    },
    Task {
        name: "JSON to MessagePack, 10 KB",
        ways: &[
            ("corq", |times| turn(times, &json(10_000), to_ours)),
            ("serde-transcode", |times| turn(times, &json(10_000), to_transcoded)),
            ("serde_json::Value", |times| turn(times, &json(10_000), to_tree)),
        ],
    },
    Task {
        name: "MessagePack to JSON, 100 bytes",
        ways: &[
            ("corq", |times| turn(times, &payload(100), from_ours)),
            ("serde-transcode", |times| turn(times, &payload(100), from_transcoded)),
        ],
    },
    Task {
        name: "MessagePack to JSON, 10 KB",
        ways: &[
            ("corq", |times| turn(times, &payload(10_000), from_ours)),
            ("serde-transcode", |times| turn(times, &payload(10_000), from_transcoded)),
        ],
    },
    Task {
        name: "write a UUID",
        ways: &[
            ("corq", |times| repeat(times, &ID, |id| uuid_text::format(*id))),
            ("uuid", |times| {
                repeat(times, &ID, |id| {
                    let mut text = [0; 36];
                    Uuid::from_u128(*id).hyphenated().encode_lower(&mut text);
                    text
                });
            }),
        ],
    },
    Task {
        name: "read a UUID",
        ways: &[
            ("corq", |times| repeat(times, ID_TEXT, uuid_text::parse_exact)),
            ("uuid", |times| repeat(times, ID_TEXT, |text| Uuid::try_parse(text).ok())),
        ],
    },
];

const ID: u128 = 0x0193_5f2c_9a41_7abc_8def_0123_4567_89ab;
const ID_TEXT: &str = "01935f2c-9a41-7abc-8def-0123456789ab";

fn repeat<T: ?Sized, R>(times: u64, given: &T, act: impl Fn(&T) -> R) {
    for _ in 0..times {
        black_box(act(black_box(given)));
    }
}

fn read(times: u64, bytes: &[u8], act: impl Fn(&[u8]) -> bool) {
    repeat(times, bytes, act);
}

/// Into a vector that is there, as a connection's output is.
fn fill(times: u64, act: impl Fn(&mut Vec<u8>)) {
    let mut out = Vec::with_capacity(1 << 16);
    for _ in 0..times {
        out.clear();
        act(&mut out);
        black_box(&out);
    }
}

fn turn(times: u64, given: &[u8], act: impl Fn(&[u8], &mut Vec<u8>)) {
    fill(times, |out| act(black_box(given), out));
}

/// An object of about so many bytes: a few short fields, and more of them in a list.
fn json(bytes: usize) -> Vec<u8> {
    let row = r#"{"to":"ada@example.org","subject":"Your order has been sent","count":3,"rate":0.25,"urgent":false}"#;
    let rows = (bytes / row.len()).max(1);
    if rows == 1 {
        row.into()
    } else {
        format!(r#"{{"rows":[{}]}}"#, vec![row; rows].join(",")).into()
    }
}

fn payload(bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    to_ours(&json(bytes), &mut out);
    out
}

fn map(entries: Vec<(&str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn packed(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    // A vector takes all that it is given.
    let _ = rmpv::encode::write_value(&mut out, value);
    out
}

fn value(bytes: usize) -> Value {
    rmpv::decode::read_value(&mut &payload(bytes)[..]).unwrap_or(Value::Nil)
}

fn push(bytes: usize) -> Vec<u8> {
    packed(&map(vec![
        ("cmd", "PUSH".into()),
        ("reqId", 17.into()),
        ("queue", "emails".into()),
        ("data", value(bytes)),
        ("priority", 5.into()),
        ("maxAttempts", 3.into()),
    ]))
}

fn push_batch() -> Vec<u8> {
    let job = map(vec![("data", value(100)), ("priority", 5.into()), ("maxAttempts", 3.into())]);
    let fields =
        [("reqId", 17.into()), ("queue", "emails".into()), ("jobs", Value::Array(vec![job; 100]))];
    packed(&map([("cmd", "PUSHB".into())].into_iter().chain(fields).collect()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read and thrown away")]
struct Push<'a> {
    cmd: &'a str,
    req_id: Option<u64>,
    queue: &'a str,
    data: IgnoredAny,
    priority: Option<i32>,
    max_attempts: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read and thrown away")]
struct PushBatch<'a> {
    cmd: &'a str,
    req_id: Option<u64>,
    queue: &'a str,
    #[serde(borrow)]
    jobs: Vec<BatchJob<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read and thrown away")]
struct BatchJob<'a> {
    data: IgnoredAny,
    name: Option<&'a str>,
    priority: Option<i32>,
    max_attempts: Option<u32>,
}

fn serde<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> bool {
    rmp_serde::from_slice::<T>(bytes).is_ok()
}

fn tree(mut bytes: &[u8]) -> bool {
    rmpv::decode::read_value_ref(&mut bytes).is_ok()
}

const AT_MS: f64 = 1_790_000_000_000.0;

fn ours(out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    writer.map(10);
    writer.str("id");
    writer.uuid(black_box(ID));
    writer.str("queue");
    writer.str(black_box("emails"));
    for (name, number) in
        [("priority", 5), ("attempts", 0), ("maxAttempts", 3), ("stallCount", 0), ("progress", 0)]
    {
        writer.str(name);
        writer.uint(black_box(number));
    }
    for name in ["createdAt", "runAt", "startedAt"] {
        writer.str(name);
        writer.f64(black_box(AT_MS));
    }
}

fn with_rmp(out: &mut Vec<u8>) {
    use rmp::encode::{write_f64, write_map_len, write_str, write_uint};
    let mut write = || -> Result<(), rmp::encode::ValueWriteError> {
        write_map_len(out, 10)?;
        write_str(out, "id")?;
        let mut text = [0; 36];
        write_str(out, Uuid::from_u128(black_box(ID)).hyphenated().encode_lower(&mut text))?;
        write_str(out, "queue")?;
        write_str(out, black_box("emails"))?;
        for (name, number) in [
            ("priority", 5),
            ("attempts", 0),
            ("maxAttempts", 3),
            ("stallCount", 0),
            ("progress", 0),
        ] {
            write_str(out, name)?;
            write_uint(out, black_box(number))?;
        }
        for name in ["createdAt", "runAt", "startedAt"] {
            write_str(out, name)?;
            write_f64(out, black_box(AT_MS))?;
        }
        Ok(())
    };
    // A vector takes all that it is given.
    let _ = write();
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Delivered<'a> {
    id: &'a str,
    queue: &'a str,
    priority: u64,
    attempts: u64,
    max_attempts: u64,
    stall_count: u64,
    progress: u64,
    created_at: f64,
    run_at: f64,
    started_at: f64,
}

fn with_serde(out: &mut Vec<u8>) {
    let mut text = [0; 36];
    let job = Delivered {
        id: Uuid::from_u128(black_box(ID)).hyphenated().encode_lower(&mut text),
        queue: black_box("emails"),
        priority: black_box(5),
        attempts: black_box(0),
        max_attempts: black_box(3),
        stall_count: black_box(0),
        progress: black_box(0),
        created_at: black_box(AT_MS),
        run_at: black_box(AT_MS),
        started_at: black_box(AT_MS),
    };
    let _ = rmp_serde::encode::write_named(out, &job);
}

fn with_tree(out: &mut Vec<u8>) {
    let mut text = [0; 36];
    let id: &str = Uuid::from_u128(black_box(ID)).hyphenated().encode_lower(&mut text);
    let mut entries = vec![("id", Value::from(id)), ("queue", black_box("emails").into())];
    for (name, number) in
        [("priority", 5), ("attempts", 0), ("maxAttempts", 3), ("stallCount", 0), ("progress", 0)]
    {
        entries.push((name, black_box(number).into()));
    }
    for name in ["createdAt", "runAt", "startedAt"] {
        entries.push((name, black_box(AT_MS).into()));
    }
    let _ = rmpv::encode::write_value(out, &map(entries));
}

fn to_ours(text: &[u8], out: &mut Vec<u8>) {
    let _ = to_msgpack(text, out);
}

fn to_transcoded(text: &[u8], out: &mut Vec<u8>) {
    let _ = transcoded_to(text, out);
}

/// JSON to `MessagePack` by what serde has.
pub fn transcoded_to(text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let mut writer = rmp_serde::Serializer::new(out);
    serde_transcode::transcode(&mut reader, &mut writer).map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())
}

fn to_tree(text: &[u8], out: &mut Vec<u8>) {
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(text) {
        let _ = rmp_serde::encode::write(out, &value);
    }
}

fn from_ours(bytes: &[u8], out: &mut Vec<u8>) {
    let _ = from_msgpack(bytes, out);
}

fn from_transcoded(bytes: &[u8], out: &mut Vec<u8>) {
    let _ = transcoded_from(bytes, out);
}

/// `MessagePack` to JSON by what serde has.
pub fn transcoded_from(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
    let mut writer = serde_json::Serializer::new(out);
    serde_transcode::transcode(&mut reader, &mut writer).map_err(|error| error.to_string())
}
