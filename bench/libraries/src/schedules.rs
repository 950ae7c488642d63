//! Cron expressions: ours, and what `cron` and `croner` do instead.

use crate::Task;
use chrono::{DateTime, TimeZone};
use chrono_tz::Tz;
use corq_shards::cron::expression::Plan;
use corq_shards::cron::zones::Zone;
use croner::parser::{CronParser, Seconds, Year};
use std::hint::black_box;
use std::str::FromStr;

/// Every weekday at half past nine, as `cron` must be given it.
const WEEKDAYS: &str = "0 30 9 * * mon-fri";
/// A day that no February has.
const NEVER: &str = "0 0 0 30 2 *";
/// The beginning of 2026.
const START_MS: u64 = 1_767_225_600_000;

pub const TASKS: &[Task] = &[
    Task {
        name: "read an expression",
        ways: &[
            ("corq", |times| each(times, || ours(black_box(WEEKDAYS)).is_ok())),
            ("cron", |times| each(times, || with_cron(black_box(WEEKDAYS)).is_ok())),
            ("croner", |times| each(times, || with_croner(black_box(WEEKDAYS)).is_ok())),
        ],
    },
    Task {
        name: "its next run",
        ways: &[
            ("corq", |times| ours(WEEKDAYS).iter().for_each(|it| walk(times, it))),
            ("cron", |times| with_cron(WEEKDAYS).iter().for_each(|it| walk(times, it))),
            ("croner", |times| with_croner(WEEKDAYS).iter().for_each(|it| walk(times, it))),
        ],
    },
    Task {
        name: "that 30 February never comes",
        ways: &[
            ("corq", |times| ours(NEVER).iter().for_each(|it| again(times, it))),
            ("cron", |times| with_cron(NEVER).iter().for_each(|it| again(times, it))),
            ("croner", |times| with_croner(NEVER).iter().for_each(|it| again(times, it))),
        ],
    },
];

/// A schedule of any maker.
pub trait Due {
    /// The first time after another, in milliseconds since the epoch.
    fn next(&self, after_ms: u64, zone: Tz) -> Option<u64>;
}

pub struct Ours(Plan);

impl Due for Ours {
    fn next(&self, after_ms: u64, zone: Tz) -> Option<u64> {
        let plan = match self.0 {
            Plan::At(expression, _) => {
                Plan::At(expression, Zone::find(Some(zone.name())).unwrap_or(Zone::UTC))
            }
            every @ Plan::Every(_) => every,
        };
        plan.next(after_ms, after_ms)
    }
}

impl Due for cron::Schedule {
    fn next(&self, after_ms: u64, zone: Tz) -> Option<u64> {
        let next = self.after(&zoned(after_ms, zone)).next()?;
        u64::try_from(next.timestamp_millis()).ok()
    }
}

impl Due for croner::Cron {
    fn next(&self, after_ms: u64, zone: Tz) -> Option<u64> {
        let next = self.find_next_occurrence(&zoned(after_ms, zone), false).ok()?;
        u64::try_from(next.timestamp_millis()).ok()
    }
}

fn zoned(at_ms: u64, zone: Tz) -> DateTime<Tz> {
    let utc = DateTime::from_timestamp_millis(at_ms.cast_signed()).unwrap_or(DateTime::UNIX_EPOCH);
    zone.from_utc_datetime(&utc.naive_utc())
}

pub fn ours(text: &str) -> Result<Ours, String> {
    Plan::at(text, None).map(Ours).map_err(|bad| bad.0)
}

/// With the seconds that it demands.
pub fn with_cron(text: &str) -> Result<cron::Schedule, String> {
    let five = text.split_whitespace().count() == 5;
    let text = if five { format!("0 {text}") } else { text.into() };
    cron::Schedule::from_str(&text).map_err(|error| error.to_string())
}

/// As near to our rules as its options lead.
pub fn with_croner(text: &str) -> Result<croner::Cron, String> {
    let options = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed);
    let parser = options.sloppy_ranges(true).build();
    parser.parse(text).map_err(|error| error.to_string())
}

fn each<R>(times: u64, act: impl Fn() -> R) {
    for _ in 0..times {
        black_box(act());
    }
}

fn walk(times: u64, due: &impl Due) {
    let mut at_ms = START_MS;
    for _ in 0..times {
        at_ms = due.next(black_box(at_ms), Tz::Europe__Berlin).unwrap_or(START_MS);
    }
    black_box(at_ms);
}

fn again(times: u64, due: &impl Due) {
    each(times, || due.next(black_box(START_MS), Tz::Europe__Berlin));
}
