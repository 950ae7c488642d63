//! When a schedule is due: cron expressions, time zones and plain intervals. Pure arithmetic on the
//! times it is given; jobs and records are not known here.
//!
//! An expression is kept as one bit per allowed value, so a schedule is a few words and its next run
//! a few bit scans. Clients send expressions, so a search that finds nothing ends after nine years. Why no
//! crate does it: `docs/decisions/0040-cron-expressions.md`.
//!
//! Daylight saving: a local time that does not exist stands for the first
//! instant after the gap, one that exists twice for the first of the two.

use chrono::{DateTime, Datelike, Days, MappedLocalTime, NaiveDate, NaiveDateTime, Offset};
use chrono::{TimeDelta, TimeZone, Timelike};
use chrono_tz::Tz;

/// When something is due, again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Once per so many milliseconds, at least 1.
    Every(u64),
    /// At the local times of an expression.
    At(Expression, Tz),
}

impl Default for Plan {
    fn default() -> Self {
        Self::Every(1)
    }
}

/// Why there is no plan: one line for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPlan(pub String);

/// Days looked at before an expression counts as never due: a leap day is at most eight years away.
const DAYS_AHEAD: u32 = 9 * 366;

impl Plan {
    /// The plan of a cron expression in a zone, by its IANA name; UTC if none is given.
    pub fn at(expression: &str, zone: Option<&str>) -> Result<Self, BadPlan> {
        Ok(Self::At(Expression::parse(expression)?, parse_zone(zone)?))
    }

    /// The plan of an interval, at least 1 ms. A zone changes nothing about it, but must exist.
    pub fn every(interval_ms: u64, zone: Option<&str>) -> Result<Self, BadPlan> {
        parse_zone(zone)?;
        Ok(Self::Every(interval_ms.max(1)))
    }

    /// The first time after both `last_ms` and `now_ms` on the cadence that `last_ms` is part of, in
    /// milliseconds since the epoch; `None` if there is none.
    pub fn next(&self, last_ms: u64, now_ms: u64) -> Option<u64> {
        match self {
            Self::Every(interval_ms) => {
                let missed = now_ms.saturating_sub(last_ms) / interval_ms;
                last_ms.checked_add(interval_ms.checked_mul(missed + 1)?)
            }
            Self::At(expression, zone) => expression.next(*zone, last_ms.max(now_ms)),
        }
    }
}

/// A time in a zone, as people read it: local date and time with their distance from UTC.
pub fn local_text(at_ms: u64, zone: Option<&str>) -> Option<String> {
    let at = DateTime::from_timestamp_millis(i64::try_from(at_ms).ok()?)?;
    let local = at.with_timezone(&parse_zone(zone).ok()?).fixed_offset();
    let offset = local.offset().local_minus_utc();
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs() / 60);
    let date = format!("{:04}-{:02}-{:02}", local.year(), local.month(), local.day());
    let time = format!("{:02}:{:02}:{:02}", local.hour(), local.minute(), local.second());
    let ms = at_ms % 1000;
    let fraction = if ms > 0 { format!(".{ms:03}") } else { String::new() };
    Some(format!("{date}T{time}{fraction}{sign}{:02}:{:02}", minutes / 60, minutes % 60))
}

fn parse_zone(name: Option<&str>) -> Result<Tz, BadPlan> {
    let unknown = |_| BadPlan("timezone must be the name of an IANA time zone".into());
    name.map_or(Ok(Tz::UTC), |name| name.parse().map_err(unknown))
}

/// The local times of a cron expression: one bit per allowed value of each field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expression {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
}

/// What one field may hold.
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const fn field(name: &'static str, min: u32, max: u32, names: &'static [&'static str]) -> Field {
    Field { name, min, max, names }
}

const MONTHS: &[&str] =
    &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const SECOND: Field = field("second", 0, 59, &[]);
const MINUTE: Field = field("minute", 0, 59, &[]);
const HOUR: Field = field("hour", 0, 23, &[]);
const DAY: Field = field("day of month", 1, 31, &[]);
const MONTH: Field = field("month", 1, 12, MONTHS);
const WEEKDAY: Field = field("day of week", 0, 7, WEEKDAYS);

const ALL_DAYS: u64 = 0xffff_fffe;
const ALL_WEEKDAYS: u64 = 0x7f;

const NICKNAMES: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl Expression {
    /// Reads five fields (minute, hour, day of month, month, day of week), six with leading seconds,
    /// or a nickname such as `@daily`. Each field is a list of `*`, `n`, `n-m`, with `/step` behind any
    /// of them; months and weekdays have English names, Sunday is 0 and 7. Where both day fields are
    /// restricted, a day that fits either of them counts.
    pub fn parse(text: &str) -> Result<Self, BadPlan> {
        let text = text.trim();
        let nickname = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        if nickname.is_none() && text.starts_with('@') {
            let names: Vec<&str> = NICKNAMES.iter().map(|(name, _)| *name).collect();
            return Err(BadPlan(format!("schedule must be one of {}", names.join(", "))));
        }
        let text = nickname.map_or(text, |(_, text)| *text);
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let (second, rest) = match fields.len() {
            5 => ("0", &fields[..]),
            6 => (fields[0], &fields[1..]),
            _ => return Err(BadPlan("schedule must have 5 or 6 fields".into())),
        };
        let weekdays = WEEKDAY.parse(rest[4])?;
        Ok(Self {
            seconds: SECOND.parse(second)?,
            minutes: MINUTE.parse(rest[0])?,
            hours: HOUR.parse(rest[1])?,
            days: DAY.parse(rest[2])?,
            months: MONTH.parse(rest[3])?,
            weekdays: (weekdays | weekdays >> 7) & ALL_WEEKDAYS,
        })
    }

    fn next(&self, zone: Tz, after_ms: u64) -> Option<u64> {
        let after = i64::try_from(after_ms / 1000).ok()?;
        let mut from = local_of(zone, after)?.checked_add_signed(TimeDelta::seconds(1))?;
        loop {
            let local = self.first_from(from)?;
            let instant = instant_of(zone, local)?;
            if instant > after {
                return u64::try_from(instant).ok()?.checked_mul(1000);
            }
            // `after` lies in the second pass of an hour that exists twice, and this local time had
            // its run in the first. All others of that hour have, too.
            from = end_of_first_pass(zone, instant, after)?;
        }
    }

    /// The first local time at or after `from` that fits.
    fn first_from(&self, from: NaiveDateTime) -> Option<NaiveDateTime> {
        let mut date = from.date();
        let mut time = (from.hour(), from.minute(), from.second());
        for _ in 0..DAYS_AHEAD {
            if self.months & (1 << date.month()) == 0 {
                let (year, month) = match date.month() {
                    12 => (date.year() + 1, 1),
                    month => (date.year(), month + 1),
                };
                date = NaiveDate::from_ymd_opt(year, month, 1)?;
            } else {
                if self.fits_day(date)
                    && let Some((hour, minute, second)) = self.time_from(time)
                {
                    return date.and_hms_opt(hour, minute, second);
                }
                date = date.checked_add_days(Days::new(1))?;
            }
            time = (0, 0, 0);
        }
        None
    }

    fn fits_day(&self, date: NaiveDate) -> bool {
        let day = self.days & (1 << date.day()) != 0;
        let weekday = self.weekdays & (1 << date.weekday().num_days_from_sunday()) != 0;
        if self.days == ALL_DAYS || self.weekdays == ALL_WEEKDAYS {
            day && weekday
        } else {
            day || weekday
        }
    }

    /// The first time of day at or after `from` that fits, as hour, minute and second.
    fn time_from(&self, (hour, minute, second): (u32, u32, u32)) -> Option<(u32, u32, u32)> {
        let first = |mask: u64| mask.trailing_zeros();
        if self.hours & (1 << hour) != 0 {
            if self.minutes & (1 << minute) != 0
                && let Some(second) = bit_from(self.seconds, second)
            {
                return Some((hour, minute, second));
            }
            if let Some(minute) = bit_from(self.minutes, minute + 1) {
                return Some((hour, minute, first(self.seconds)));
            }
        }
        let hour = bit_from(self.hours, hour + 1)?;
        Some((hour, first(self.minutes), first(self.seconds)))
    }
}

/// The lowest bit that is set at or above `from`.
fn bit_from(mask: u64, from: u32) -> Option<u32> {
    let left = mask.checked_shr(from)?;
    (left != 0).then(|| from + left.trailing_zeros())
}

impl Field {
    fn parse(&self, text: &str) -> Result<u64, BadPlan> {
        text.split(',').try_fold(0, |mask, item| Ok(mask | self.parse_item(item)?))
    }

    fn parse_item(&self, item: &str) -> Result<u64, BadPlan> {
        let (range, step) = match item.split_once('/') {
            None => (item, None),
            Some((range, step)) => {
                let step = number(step).filter(|step| *step > 0);
                let bad = || BadPlan(format!("schedule: {} has a wrong step: {item}", self.name));
                (range, Some(step.ok_or_else(bad)?))
            }
        };
        let (low, high) = match range.split_once('-') {
            None if range == "*" || range == "?" => (self.min, self.last()),
            None => {
                let low = self.value(range)?;
                (low, if step.is_some() { self.last().max(low) } else { low })
            }
            Some((low, high)) => match (self.value(low)?, self.value(high)?) {
                (low, 0) if self.max == 7 && low > 0 => (low, 7),
                ends => ends,
            },
        };
        if low > high {
            return Err(BadPlan(format!(
                "schedule: {} has a range that ends before it begins: {range}",
                self.name
            )));
        }
        let values = (low..=high).step_by(step.unwrap_or(1) as usize);
        Ok(values.fold(0, |mask, value| mask | 1 << value))
    }

    /// The last value of a full round. Sunday stands at either end of the week.
    fn last(&self) -> u32 {
        self.max - u32::from(self.max == 7)
    }

    fn value(&self, text: &str) -> Result<u32, BadPlan> {
        let (name, min, max) = (self.name, self.min, self.max);
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        match named.map(|place| place as u32 + min).or_else(|| number(text)) {
            Some(value) if (min..=max).contains(&value) => Ok(value),
            Some(_) => Err(BadPlan(format!("schedule: {name} must be between {min} and {max}"))),
            None => Err(BadPlan(format!("schedule: {name} is not understood: {text}"))),
        }
    }
}

/// Digits only: the parser of the standard library takes signs as well.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Seconds east of Greenwich at an instant, in seconds since the epoch.
fn offset_at(zone: Tz, instant: i64) -> Option<i64> {
    let utc = DateTime::from_timestamp(instant, 0)?.naive_utc();
    Some(i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc()))
}

fn local_of(zone: Tz, instant: i64) -> Option<NaiveDateTime> {
    let local = instant.checked_add(offset_at(zone, instant)?)?;
    Some(DateTime::from_timestamp(local, 0)?.naive_utc())
}

/// Two offsets are never further apart than this.
const OFFSET_SECONDS_MAX: i64 = 16 * 3600;

/// The instant a local time stands for. Later local times never stand for earlier instants.
fn instant_of(zone: Tz, local: NaiveDateTime) -> Option<i64> {
    let as_utc = local.and_utc().timestamp();
    let behind = |offset: i32| as_utc - i64::from(offset);
    match zone.offset_from_local_datetime(&local) {
        MappedLocalTime::Single(one) => Some(behind(one.fix().local_minus_utc())),
        MappedLocalTime::Ambiguous(one, other) => {
            let (one, other) = (one.fix().local_minus_utc(), other.fix().local_minus_utc());
            Some(behind(one.max(other)))
        }
        MappedLocalTime::None => {
            let (low, high) = (as_utc - OFFSET_SECONDS_MAX, as_utc + OFFSET_SECONDS_MAX);
            first_instant(low, high, |instant| local_of(zone, instant).is_some_and(|at| at > local))
        }
    }
}

/// Where a clock that was set back between `instant` and `after` had got to before.
fn end_of_first_pass(zone: Tz, instant: i64, after: i64) -> Option<NaiveDateTime> {
    let offset = offset_at(zone, instant)?;
    let set_back = |at: i64| offset_at(zone, at).is_some_and(|now| now < offset);
    let end = first_instant(instant, after, set_back)?;
    Some(DateTime::from_timestamp(end + offset, 0)?.naive_utc())
}

/// The first instant behind `low`, up to `high`, from which on `holds` is true; `None` if it is not
/// so even at `high`.
fn first_instant(mut low: i64, mut high: i64, holds: impl Fn(i64) -> bool) -> Option<i64> {
    if !holds(high) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}
