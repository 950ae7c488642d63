//! Lines of `log dump` for every kind of record: the samples of `shards/tests/records.txt`, each as the line of
//! `shards/tests/records_shown.txt`. People and tools read these names; a new kind adds lines.

use std::path::Path;

use corq::protocol::json::from_msgpack;
use corq::tools::describe::{Whereabouts, describe, jobs_of, queue_of};
use corq_shards::log_record::Record;
use serde_json::{Value as Json, json};

use super::tidy::ROOT;

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// The samples: name and bytes.
fn samples() -> Vec<(String, Vec<u8>)> {
    let text = std::fs::read_to_string(Path::new(ROOT).join("shards/tests/records.txt")).unwrap();
    let sample = |line: &str| {
        let (name, hex) = (line.split(" | ").next(), line.rsplit(" | ").next());
        (name.unwrap().to_owned(), bytes_of(hex.unwrap()))
    };
    text.lines().map(sample).collect()
}

fn shown(name: &str, bytes: &[u8]) -> Json {
    let mut value = Vec::new();
    let place = Whereabouts { shard: 1, position: 4096, file: "f", offset: 7 };
    describe(place, bytes, &mut value);
    let mut text = Vec::new();
    from_msgpack(&value, &mut text).unwrap();
    let mut record: Json = serde_json::from_slice(&text).unwrap();
    let entries = record.as_object_mut().unwrap();
    for place in ["shard", "position", "file", "offset"] {
        assert!(entries.remove(place).is_some(), "{name} has no {place}");
    }
    let read = Record::decode(bytes).unwrap();
    let jobs: Vec<String> = jobs_of(&read).iter().map(|id| format!("{:x}", id.0)).collect();
    json!({ "name": name, "record": record, "queue": queue_of(&read), "jobs": jobs })
}

#[test]
fn every_kind_of_record_is_shown_as_it_always_was() {
    let path = Path::new(ROOT).join("shards/tests/records_shown.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let samples = samples();
    assert!(samples.len() > 80, "{} samples", samples.len());
    for (name, bytes) in samples {
        let line: Json = serde_json::from_str(lines.next().unwrap_or("null")).unwrap();
        assert_eq!(shown(&name, &bytes), line);
    }
    assert_eq!(lines.next(), None);
}

/// For the lines of a new kind: `cargo test --test protocol lines_of_all_shown -- --ignored --nocapture`.
#[test]
#[ignore = "prints; asserts nothing"]
fn lines_of_all_shown() {
    for (name, bytes) in samples() {
        println!("{}", shown(&name, &bytes));
    }
}
