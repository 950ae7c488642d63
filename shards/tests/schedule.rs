//! Schedules against other implementations. The fear: a run at a wrong time, twice, or never, above all where
//! clocks are set.

use chrono::{DateTime, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use corq_shards::cron::expression::{Expression, Plan};
use corq_shards::job::id::Chance;
use std::collections::BTreeSet;
use std::str::FromStr;

fn ms(text: &str) -> u64 {
    DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis() as u64
}

fn text(at_ms: u64) -> String {
    DateTime::from_timestamp_millis(at_ms as i64).unwrap().format("%FT%TZ").to_string()
}

/// The first `count` runs after a time.
fn runs(plan: &Plan, from: &str, count: usize) -> Vec<String> {
    let first = plan.next(ms(from), ms(from));
    std::iter::successors(first, |&at| plan.next(at, at)).take(count).map(text).collect()
}

fn at(expression: &str, zone: &str) -> Plan {
    Plan::at(expression, Some(zone)).unwrap()
}

#[test]
fn fields_mean_what_cron_means_by_them() {
    let start = "2026-01-01T00:00:00Z"; // a Thursday
    let first = |expression: &str| runs(&at(expression, "UTC"), start, 2);
    assert_eq!(first("*/20 * * * *"), ["2026-01-01T00:20:00Z", "2026-01-01T00:40:00Z"]);
    assert_eq!(first("5 * * * * *"), ["2026-01-01T00:00:05Z", "2026-01-01T00:01:05Z"]);
    assert_eq!(first("30 9 * * mon-Fri"), ["2026-01-01T09:30:00Z", "2026-01-02T09:30:00Z"]);
    assert_eq!(first("0 0 * * 0"), ["2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"]);
    assert_eq!(first("0 0 * * 7"), first("0 0 * * SUN"));
    assert_eq!(first("0 0 * * fri-sun"), ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]);
    assert_eq!(first("0 12 1,15 feb *"), ["2026-02-01T12:00:00Z", "2026-02-15T12:00:00Z"]);
    assert_eq!(first("0 50/5 * * * *"), ["2026-01-01T00:50:00Z", "2026-01-01T00:55:00Z"]);
    assert_eq!(first("0 0 29 2 *"), ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
    // Both day fields restricted: either will do.
    assert_eq!(first("0 0 13 * fri"), ["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"]);
    assert_eq!(first("@hourly"), ["2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"]);
    assert_eq!(first("@daily"), first("@midnight"));
    assert_eq!(first("@weekly"), first("0 0 * * 0"));
    assert_eq!(first("@monthly"), ["2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"]);
    assert_eq!(first("@yearly"), ["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"]);
}

#[test]
fn what_is_no_schedule_is_refused_with_the_reason() {
    let why = |expression: &str| Plan::at(expression, None).unwrap_err().0;
    assert_eq!(why("* * * *"), "schedule must have 5 or 6 fields");
    assert_eq!(why("* * * * * * *"), "schedule must have 5 or 6 fields");
    assert_eq!(why("60 * * * *"), "schedule: minute must be between 0 and 59");
    assert_eq!(why("* 24 * * *"), "schedule: hour must be between 0 and 23");
    assert_eq!(why("* * 0 * *"), "schedule: day of month must be between 1 and 31");
    assert_eq!(why("* * * 13 *"), "schedule: month must be between 1 and 12");
    assert_eq!(why("* * * * 8"), "schedule: day of week must be between 0 and 7");
    assert_eq!(why("* * * foo *"), "schedule: month is not understood: foo");
    assert_eq!(why("+1 * * * *"), "schedule: minute is not understood: +1");
    assert_eq!(why("1,,2 * * * *"), "schedule: minute is not understood: ");
    assert_eq!(why("*/0 * * * *"), "schedule: minute has a wrong step: */0");
    let range = "schedule: hour has a range that ends before it begins: 5-3";
    assert_eq!(why("* 5-3 * * *"), range);
    assert!(why("@never").starts_with("schedule must be one of @yearly"));
    let zone = "timezone must be the name of an IANA time zone";
    assert_eq!(Plan::at("* * * * *", Some("Mars/Olympus")).unwrap_err().0, zone);
    assert_eq!(Plan::every(5, Some("")).unwrap_err().0, zone);
    assert_eq!(at("0 0 30 2 *", "UTC").next(0, ms("2026-01-01T00:00:00Z")), None);
}

#[test]
fn odd_text_never_panics() {
    let pieces = ["*", "/", "-", ",", " ", "0", "7", "59", "99999999999", "mon", "jan", "@", "é"];
    let mut chance = Chance::new(5);
    for _ in 0..20_000 {
        let parts = (0..chance.draw() % 14).map(|_| pieces[chance.draw() as usize % pieces.len()]);
        let text: String = parts.collect();
        if let Ok(plan) = Plan::at(&text, Some("Europe/Berlin")) {
            plan.next(0, ms("2026-03-29T00:00:00Z"));
        }
    }
    for plan in [at("* * * * *", "UTC"), Plan::every(u64::MAX, None).unwrap()] {
        for time in [0, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            let _ = (plan.next(time, 0), plan.next(0, time), plan.next(time, time));
        }
    }
}

#[test]
fn an_interval_never_drifts_however_late_it_is_asked() {
    let plan = Plan::every(700, None).unwrap();
    assert_eq!(plan.next(1000, 1000), Some(1700));
    assert_eq!(plan.next(1000, 1699), Some(1700));
    assert_eq!(plan.next(1000, 1700), Some(2400), "a slot that has begun is not to come");
    assert_eq!(plan.next(1000, 100_000), Some(100_400));
}

/// The `cron` crate reads the same fields in its own way: an independent implementation, in UTC, where no clock
/// is set. It counts weekdays from Sunday = 1, wants seconds, and of two restricted day fields it wants
/// both: so it is given each of them alone, and the earlier of the two is ours.
#[test]
fn runs_are_those_of_another_implementation() {
    let mut chance = Chance::new(17);
    let mut both = 0;
    for _ in 0..600 {
        let mut number = |min: u64, max: u64| min + chance.draw() % (max + 1 - min);
        let mut field = |min: u64, max: u64| match number(0, 5) {
            0 => "*".to_string(),
            1 => format!("*/{}", number(2, max)),
            2 => format!("{}", number(min, max)),
            3 => format!("{},{}", number(min, max), number(min, max)),
            range => {
                let (one, other) = (number(min, max), number(min, max));
                let step = if range == 4 { String::new() } else { format!("/{}", number(1, max)) };
                format!("{}-{}{step}", one.min(other), one.max(other))
            }
        };
        let [second, minute, hour] = [field(0, 59), field(0, 59), field(0, 23)];
        let (day, month) = (field(1, 28), field(1, 12));
        let (weekday, reference_weekday) = match number(0, 4) {
            0 => {
                let (one, other) = (number(0, 6), number(0, 6));
                let text = |add: u64| format!("{},{}", one + add, other + add);
                (text(0), text(1))
            }
            1 => ("1-5".into(), "2-6".into()),
            2 => ("mon".into(), "mon".into()),
            _ => ("*".to_string(), "*".to_string()),
        };
        let five = second == "0";
        let ours = format!("{minute} {hour} {day} {month} {weekday}");
        let ours = if five { ours } else { format!("{second} {ours}") };
        let reference = |day: &str, weekday: &str| {
            let text = format!("{second} {minute} {hour} {day} {month} {weekday}");
            cron::Schedule::from_str(&text).unwrap()
        };
        let references = match (day.as_str(), reference_weekday.as_str()) {
            (day, "*") => vec![reference(day, "*")],
            ("*", weekday) => vec![reference("*", weekday)],
            (day, weekday) => {
                both += 1;
                vec![reference(day, "*"), reference("*", weekday)]
            }
        };
        let start = ms("2026-01-01T00:00:00Z") + number(0, 400 * 86_400) * 1000;
        let plan = at(&ours, "UTC");
        let mut last = start;
        for _ in 0..20 {
            let from = DateTime::from_timestamp_millis(last as i64).unwrap();
            let next = |reference: &cron::Schedule| reference.after::<Utc>(&from).next().unwrap();
            let expected = references.iter().map(next).min().unwrap();
            last = plan.next(last, last).unwrap();
            assert_eq!(text(last), text(expected.timestamp_millis() as u64), "{ours}");
        }
    }
    assert!(both > 50, "{both} had two restricted day fields");
}

/// What other readers of expressions take.
#[test]
fn names_and_lists_are_taken_only_where_they_mean_something() {
    for wrong in [
        ", * * * *",
        "* * , * *",
        "1, * * * *",
        "mon * * * *",
        "1mon * * * *",
        "0 0 janfeb * *",
        "0 0 * * \u{17f}un",
        "0 0 * * +fri",
        "0 0 L * *",
        "0 0 15W * *",
        "0 0 * * 1#2",
        "* * * * * * *",
    ] {
        assert!(Plan::at(wrong, None).is_err(), "{wrong}");
    }
    let friday_to_sunday = ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"];
    assert_eq!(runs(&at("0 0 * * 5-0", "UTC"), "2026-01-01T00:00:00Z", 3), friday_to_sunday);
}

#[test]
fn a_local_time_that_does_not_exist_runs_at_the_first_instant_after_the_gap() {
    let daily = at("30 2 * * *", "Europe/Berlin");
    let three = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
    assert_eq!(runs(&daily, "2026-03-28T00:00:00Z", 3), three);
    // Several runs within the hour that is not there are one.
    let twice = at("0,30 2 * * *", "Europe/Berlin");
    let three = ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z", "2026-03-30T00:30:00Z"];
    assert_eq!(runs(&twice, "2026-03-28T12:00:00Z", 3), three);
    // Half an hour, at Lord Howe; a whole day, in Samoa.
    let howe = at("15 2 4 10 *", "Australia/Lord_Howe");
    assert_eq!(runs(&howe, "2026-10-01T00:00:00Z", 1), ["2026-10-03T15:30:00Z"]);
    let samoa = at("0 12 * * *", "Pacific/Apia");
    let around = ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"];
    assert_eq!(runs(&samoa, "2011-12-29T00:00:00Z", 3), around);
}

#[test]
fn a_local_time_that_exists_twice_runs_once_the_first_time() {
    let daily = at("30 2 * * *", "Europe/Berlin");
    let three = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
    assert_eq!(runs(&daily, "2026-10-24T00:00:00Z", 3), three);
    let twice = at("0,30 2 * * *", "Europe/Berlin");
    let three = ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:00:00Z"];
    assert_eq!(runs(&twice, "2026-10-24T12:00:00Z", 3), three);
    // Asked in the middle of the second pass, even of every second: the next run is behind it.
    let all = at("* * * * * *", "Europe/Berlin");
    assert_eq!(runs(&all, "2026-10-25T01:17:03Z", 1), ["2026-10-25T02:00:00Z"]);
}

fn offset_of(zone: Tz, instant: i64) -> i64 {
    let utc = DateTime::from_timestamp(instant, 0).unwrap().naive_utc();
    i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc())
}

/// The instants at which a zone sets its clocks.
fn transitions(zone: Tz, from: i64, to: i64) -> Vec<i64> {
    const STEP: i64 = 86_400;
    let mut found = Vec::new();
    for day in (from..to).step_by(STEP as usize) {
        let (mut low, mut high) = (day, day + STEP);
        let before = offset_of(zone, low);
        if before == offset_of(zone, high) {
            continue;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            *(if offset_of(zone, middle) == before { &mut low } else { &mut high }) = middle;
        }
        found.push(high);
    }
    found
}

const MINUTE: i64 = 60;
const HOUR: i64 = 3600;

/// The rule, word by word, minute by minute around one transition: nothing here asks what a local
/// time stands for; it looks at a clock on the wall.
fn expected(zone: Tz, transition: i64, fits: impl Fn(NaiveDateTime) -> bool) -> Vec<i64> {
    let (from, to) = (transition - 5 * HOUR, transition + 5 * HOUR);
    let wall = |instant: i64| {
        DateTime::from_timestamp(instant + offset_of(zone, instant), 0).unwrap().naive_utc()
    };
    let mut shown: BTreeSet<NaiveDateTime> = BTreeSet::new();
    let mut runs = BTreeSet::new();
    for instant in (from..to).step_by(MINUTE as usize) {
        if shown.insert(wall(instant)) && fits(wall(instant)) {
            runs.insert(instant);
        }
    }
    // What the clock never showed between its two ends.
    let mut skipped = wall(from);
    while skipped < wall(to - MINUTE) {
        if !shown.contains(&skipped) && fits(skipped) {
            runs.insert(transition);
        }
        skipped += TimeDelta::minutes(1);
    }
    // The window's first minutes may be part of an hour whose first pass lies before it.
    runs.into_iter()
        .filter(|&at| at > transition - 4 * HOUR && at < transition + 4 * HOUR)
        .collect()
}

fn actual(zone: Tz, transition: i64, expression: &str) -> Vec<i64> {
    let plan = at(expression, zone.name());
    let start = (transition - 4 * HOUR) as u64 * 1000;
    let runs = std::iter::successors(plan.next(start, start), |&at| plan.next(at, at));
    let runs = runs.map(|at| at as i64 / 1000);
    runs.take_while(|&at| at < transition + 4 * HOUR).collect()
}

/// Every transition of every zone over ten years; of every eighth zone in debug builds, unless
/// `CORQ_ALL_ZONES` is set.
#[test]
fn clocks_that_are_set_anywhere_in_the_world_double_and_lose_no_run() {
    let all = !cfg!(debug_assertions) || std::env::var_os("CORQ_ALL_ZONES").is_some();
    let (from, to) = (ms("2020-01-01T00:00:00Z") / 1000, ms("2030-01-01T00:00:00Z") / 1000);
    let (mut gaps, mut folds) = (0, 0);
    for zone in TZ_VARIANTS.iter().step_by(if all { 1 } else { 8 }) {
        for transition in transitions(*zone, from as i64, to as i64) {
            let (before, after) = (offset_of(*zone, transition - 1), offset_of(*zone, transition));
            *(if before < after { &mut gaps } else { &mut folds }) += 1;
            // A clock that stood in the middle of what is skipped or shown twice.
            let middle = transition + i64::midpoint(before, after);
            let middle = DateTime::from_timestamp(middle, 0).unwrap().naive_utc();
            let (hour, minute) = (middle.hour(), middle.minute());
            let fits_once = move |at: NaiveDateTime| at.hour() == hour && at.minute() == minute;
            let once = format!("{minute} {hour} * * *");
            assert_eq!(
                actual(*zone, transition, &once),
                expected(*zone, transition, fits_once),
                "{zone} at {transition}: {once}"
            );
            assert_eq!(
                actual(*zone, transition, "*/10 * * * *"),
                expected(*zone, transition, |at| at.minute() % 10 == 0),
                "{zone} at {transition}"
            );
        }
    }
    assert!(gaps > 50 && folds > 50, "{gaps} gaps and {folds} folds were seen");
    if all {
        assert!(gaps + folds > 3000, "{gaps} gaps and {folds} folds were seen");
    }
}

#[test]
fn a_plan_is_small() {
    assert!(size_of::<Plan>() <= 64 && size_of::<Expression>() <= 48);
}
