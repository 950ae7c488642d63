//! Cases in which ours and the libraries differ.

use crate::codecs::{transcoded_from, transcoded_to};
use crate::schedules::{Due, ours, with_cron, with_croner};
use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::Tz;
use corq::protocol::json::{from_msgpack, to_msgpack};
use corq::protocol::msgpack::Reader;
use corq::protocol::uuid_text;
use rmpv::Value;
use std::fmt::Debug;
use std::time::Instant;
use uuid::Uuid;

pub fn show() {
    println!("## Schedules\n");
    refusals();
    runs();
    all_zones();
    endless();
    println!("\n## JSON to MessagePack\n");
    let deep = "[".repeat(128) + &"]".repeat(128);
    for text in [
        "1.0",
        "-0",
        "18446744073709551616",
        "1e400",
        r#"{"a":1,"a":2}"#,
        r#""\ud800""#,
        "1 2",
        &deep,
    ] {
        let mut bytes = Vec::new();
        let by_us = to_msgpack(text.as_bytes(), &mut bytes)
            .map(|()| shown(&bytes))
            .map_err(|error| error.to_string());
        let mut bytes = Vec::new();
        let by_them = transcoded_to(text.as_bytes(), &mut bytes).map(|()| shown(&bytes));
        line(text, &by_us, &by_them);
    }
    println!("\n## MessagePack to JSON\n");
    let map = |key: Value| Value::Map(vec![(key, 1.into())]);
    for (what, value) in [
        ("float 1.0", Value::F64(1.0)),
        ("not a number", Value::F64(f64::NAN)),
        ("three bytes", Value::Binary(vec![1, 2, 3])),
        ("a point in time", Value::Ext(-1, vec![0x67, 0x48, 0x5f, 0x80])),
        ("an extension", Value::Ext(5, vec![1, 2])),
        ("undefined", Value::Ext(0, vec![0])),
        ("a number as key", map(7.into())),
        ("nil as key", map(Value::Nil)),
        ("bytes as key", map(Value::Binary(vec![1, 2, 3]))),
        ("a map as key", map(map("a".into()))),
    ] {
        let mut bytes = Vec::new();
        let _ = rmpv::encode::write_value(&mut bytes, &value);
        both(what, &bytes);
    }
    both("a value and a byte behind it", &[1, 2]);
    both("a text that is not UTF-8", &[0xa1, 0xff]);
    both("a list of 4 billion, of which none follows", &[0xdd, 0xff, 0xff, 0xff, 0xff]);
    println!(
        "\n## MessagePack itself: ours, and what rmpv and rmp-serde say to bytes that end or lie\n"
    );
    for (what, bytes) in [
        ("a list of 4 billion, of which none follows", vec![0xdd, 0xff, 0xff, 0xff, 0xff]),
        ("a text that is not UTF-8", vec![0xa1, 0xff]),
        ("the reserved byte", vec![0xc1]),
        ("200 lists within each other", [vec![0x91; 200], vec![0xc0]].concat()),
        ("2,000 lists within each other", [vec![0x91; 2000], vec![0xc0]].concat()),
    ] {
        let ours = Reader::new(&bytes).skip().map(<[u8]>::len);
        let tree = rmpv::decode::read_value_ref(&mut &bytes[..])
            .map(|_| "taken")
            .map_err(|error| error.to_string());
        let serde = rmp_serde::from_slice::<serde::de::IgnoredAny>(&bytes)
            .map(|_| "taken")
            .map_err(|error| error.to_string());
        println!("{what}\n    corq {ours:?}\n    rmpv {tree:?}\n    rmp-serde {serde:?}");
    }
    println!("\n## UUID: texts that may be an id\n");
    let text = "01935f2c-9a41-7abc-8def-0123456789ab";
    for text in [
        text.to_owned(),
        text.to_uppercase(),
        text.replace('-', ""),
        format!("{{{text}}}"),
        format!("urn:uuid:{text}"),
    ] {
        println!(
            "{text}: corq {}, uuid {}",
            uuid_text::parse_exact(&text).is_some(),
            Uuid::try_parse(&text).is_ok()
        );
    }
}

fn shown(bytes: &[u8]) -> String {
    let value = rmpv::decode::read_value(&mut &bytes[..])
        .map_or_else(|_| "?".into(), |value| value.to_string());
    format!("{value:.60}")
}

fn line(what: &str, ours: &impl Debug, theirs: &impl Debug) {
    println!("{what:.60}\n    corq {ours:?}\n    serde {theirs:?}");
}

fn both(what: &str, bytes: &[u8]) {
    let text = |out: Vec<u8>| String::from_utf8_lossy(&out).into_owned();
    let mut out = Vec::new();
    let by_us =
        from_msgpack(bytes, &mut out).map(|()| text(out)).map_err(|error| error.to_string());
    let mut out = Vec::new();
    let by_them = transcoded_from(bytes, &mut out).map(|()| text(out));
    line(what, &by_us, &by_them);
}

/// Shows texts that are no expression here, or are one here and not elsewhere.
fn refusals() {
    for text in [
        "60 * * * *",
        "1,,2 * * * *",
        "MON * * * *",
        "1MON * * * *",
        "0 0 JANFEB * *",
        "0 0 * * \u{17f}un",
        "0 0 * * +fri",
        "0 0 L * *",
        "0 0 * * fri-sun",
        "0 0 * * 5-0",
        "0 0 * * 0",
        "0 0 * * 1",
        "0 0 13 * fri",
        "@midnight",
        "@annually",
        "* * * * * * *",
    ] {
        println!("{text}");
        let from = ms("2026-01-01T00:00:00Z");
        let next = |due: &dyn Due| due.next(from, Tz::UTC).map(at);
        println!("    corq {:?}", ours(text).map(|it| next(&it)));
        println!("    cron {:?}", with_cron(text).map(|it| next(&it)));
        println!("    croner {:?}", with_croner(text).map(|it| next(&it)));
    }
}

/// Around the times at which clocks are set.
fn runs() {
    for (text, zone, from, count) in [
        ("30 2 * * *", Tz::Europe__Berlin, "2026-03-28T12:00:00Z", 2),
        ("0,30 2 * * *", Tz::Europe__Berlin, "2026-03-28T12:00:00Z", 2),
        ("0,30 2 * * *", Tz::Europe__Berlin, "2026-10-24T12:00:00Z", 5),
        ("0 12 * * *", Tz::Pacific__Apia, "2011-12-29T12:00:00Z", 3),
        ("15 2 4 10 *", Tz::Australia__Lord_Howe, "2026-10-01T00:00:00Z", 1),
    ] {
        println!("{text} in {zone} from {from}");
        let walk = |due: &dyn Due| -> Vec<String> {
            let first = due.next(ms(from), zone);
            std::iter::successors(first, |&last| due.next(last, zone)).take(count).map(at).collect()
        };
        println!("    corq {:?}", ours(text).map(|it| walk(&it)));
        println!("    cron {:?}", with_cron(text).map(|it| walk(&it)));
        println!("    croner {:?}", with_croner(text).map(|it| walk(&it)));
    }
}

/// How often the runs around a change of clocks are others than ours, of all changes from 2020 to 2030. Ours are judged by
/// `shards/tests/schedule.rs`, which looks at a clock on the wall.
fn all_zones() {
    const HOURS_4_MS: u64 = 4 * 3_600_000;
    let around = |due: &dyn Due, zone: Tz, change_ms: u64| -> Vec<u64> {
        let first = due.next(change_ms - HOURS_4_MS, zone);
        let runs = std::iter::successors(first, |&last| due.next(last, zone));
        runs.take_while(|&run| run < change_ms + HOURS_4_MS).collect()
    };
    let (mut changes, mut others) = (0, [[0; 2]; 2]);
    for zone in chrono_tz::TZ_VARIANTS {
        for change_ms in changes_of(zone) {
            changes += 1;
            // The middle of the hour that is skipped or comes twice, and what has a run every few minutes.
            let before_ms = change_ms - 1000;
            let middle_ms =
                change_ms as i64 + (offset_ms(zone, before_ms) + offset_ms(zone, change_ms)) / 2;
            let (hour, minute) = (middle_ms / 3_600_000 % 24, middle_ms / 60_000 % 60);
            for (place, text) in
                [format!("{minute} {hour} * * *"), "*/10 * * * *".into()].iter().enumerate()
            {
                let expected = ours(text).map(|it| around(&it, zone, change_ms));
                let of = [
                    with_cron(text).map(|it| around(&it, zone, change_ms)),
                    with_croner(text).map(|it| around(&it, zone, change_ms)),
                ];
                for (count, runs) in others.iter_mut().zip(of) {
                    count[place] += u32::from(runs != expected);
                }
            }
        }
    }
    let [[cron_once, cron_often], [croner_once, croner_often]] = others;
    println!(
        "of {changes} changes of clocks, runs that are others than ours (once a day, every ten minutes)"
    );
    println!("    cron {cron_once}, {cron_often}\n    croner {croner_once}, {croner_often}");
}

fn offset_ms(zone: Tz, at_ms: u64) -> i64 {
    let utc = DateTime::from_timestamp_millis(at_ms.cast_signed()).unwrap_or(DateTime::UNIX_EPOCH);
    i64::from(zone.offset_from_utc_datetime(&utc.naive_utc()).fix().local_minus_utc()) * 1000
}

/// When the clocks of a zone are set, to the second.
fn changes_of(zone: Tz) -> Vec<u64> {
    const DAY_MS: u64 = 86_400_000;
    let days = (ms("2020-01-01T00:00:00Z")..ms("2030-01-01T00:00:00Z")).step_by(DAY_MS as usize);
    days.filter(|&day| offset_ms(zone, day) != offset_ms(zone, day + DAY_MS))
        .map(|day| {
            let (mut low, mut high) = (day / 1000, (day + DAY_MS) / 1000);
            while high - low > 1 {
                let middle = low.midpoint(high);
                let is_before = offset_ms(zone, middle * 1000) == offset_ms(zone, day);
                *(if is_before { &mut low } else { &mut high }) = middle;
            }
            high * 1000
        })
        .collect()
}

/// How long a search may take that finds nothing.
fn endless() {
    for text in ["0 0 30 2 *", "* * , * *", ", * * * *"] {
        println!("{text}, rough time of one search");
        let took = |due: &dyn Due| {
            let begun = Instant::now();
            (due.next(ms("2026-01-01T00:00:00Z"), Tz::UTC), begun.elapsed())
        };
        println!("    corq {:?}", ours(text).map(|it| took(&it)));
        println!("    cron {:?}", with_cron(text).map(|it| took(&it)));
        println!("    croner {:?}", with_croner(text).map(|it| took(&it)));
    }
}

fn ms(text: &str) -> u64 {
    DateTime::parse_from_rfc3339(text).map_or(0, |at| at.timestamp_millis()).cast_unsigned()
}

fn at(at_ms: u64) -> String {
    let at = DateTime::from_timestamp_millis(at_ms.cast_signed());
    at.map_or_else(String::new, |at| at.format("%FT%TZ").to_string())
}
