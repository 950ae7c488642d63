//! When a schedule is due: cron expressions, time zones and plain intervals. Pure arithmetic on the
//! times it is given; jobs and records are not known here.
//!
//! An expression is kept as one bit per allowed value, so a schedule is a few words and its next run
//! a few bit scans. Clients send expressions, so a search that finds nothing ends after thirteen years. Why no
//! crate does it: `docs/decisions/0040-cron-expressions.md`.
//!
//! Where clocks are set, an expression with `*` or a step in its minutes or hours runs whenever clocks show a time that
//! fits. Any other one names times of the day, each of which comes once: one that does not exist stands for the first
//! instant after the gap, one that exists twice for the first of the two.

use crate::cron::zones::{Zone, local_of, seconds_of};
use jiff::civil::{Date, DateTime};

/// When something is due, again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Once per so many milliseconds, at least 1.
    Every(u64),
    /// At the local times of an expression.
    At(Expression, Zone),
}

impl Default for Plan {
    fn default() -> Self {
        Self::Every(1)
    }
}

/// Why there is no plan: one line for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPlan(pub String);

/// Days looked at before an expression counts as never due: a leap day is at most eight years away, and a day of the year
/// that has to be a Monday at most twelve.
const DAYS_AHEAD: i64 = 13 * 366;
const DAY_SECONDS: i64 = 86_400;

impl Plan {
    /// The plan of a cron expression in a zone, by its IANA name; UTC if none is given.
    pub fn at(expression: &str, zone: Option<&str>) -> Result<Self, BadPlan> {
        Ok(Self::At(Expression::parse(expression, Origin::Client)?, parse_zone(zone)?))
    }

    /// The plan of an expression that was taken once, which is understood for ever: steps might be larger than their
    /// ranges, and the name of the zone might be one that only newer rules of the system had.
    pub fn recorded(expression: &str, zone: Option<&str>) -> Result<Self, BadPlan> {
        let zone = Zone::find(zone).unwrap_or(Zone::UTC);
        Ok(Self::At(Expression::parse(expression, Origin::Log)?, zone))
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
    let instant = i64::try_from(at_ms / 1000).ok()?;
    let zone = Zone::find(zone)?;
    let (offset, local) = (zone.offset_at(instant)?, zone.local_at(instant)?);
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs() / 60);
    let date = format!("{:04}-{:02}-{:02}", local.year(), local.month(), local.day());
    let time = format!("{:02}:{:02}:{:02}", local.hour(), local.minute(), local.second());
    let ms = at_ms % 1000;
    let fraction = if ms > 0 { format!(".{ms:03}") } else { String::new() };
    Some(format!("{date}T{time}{fraction}{sign}{:02}:{:02}", minutes / 60, minutes % 60))
}

fn parse_zone(name: Option<&str>) -> Result<Zone, BadPlan> {
    let unknown = || BadPlan("timezone must be the name of an IANA time zone".into());
    Zone::find(name).ok_or_else(unknown)
}

/// Where an expression comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Client,
    Log,
}

/// The local times of a cron expression: one bit per allowed value of each field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expression {
    seconds: u64,
    minutes: u64,
    hours: u32,
    days: u32,
    months: u16,
    weekdays: u8,
    /// A day has to fit both day fields: one of them begins with `*`, which restricts nothing by itself. Else
    /// either will do.
    fits_both_days: bool,
    /// Minutes or hours have `*` or a step: it follows clocks wherever they are set to.
    follows_clocks: bool,
}

/// Name and bounds of a field, both inclusive, and the names that may stand for its numbers.
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

const ALL_WEEKDAYS: u8 = 0x7f;

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
    /// of them; months and weekdays have English names, Sunday is 0 and 7. A day field that begins with `*` does not
    /// restrict by itself; where neither does so, a day that fits either of them counts.
    fn parse(text: &str, origin: Origin) -> Result<Self, BadPlan> {
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
        let [minute, hour, day, month, weekday] = [rest[0], rest[1], rest[2], rest[3], rest[4]];
        let weekdays = WEEKDAY.parse(weekday, origin)?;
        Ok(Self {
            seconds: SECOND.parse(second, origin)?,
            minutes: MINUTE.parse(minute, origin)?,
            hours: HOUR.parse(hour, origin)? as u32,
            days: DAY.parse(day, origin)? as u32,
            months: MONTH.parse(month, origin)? as u16,
            weekdays: (weekdays | weekdays >> 7) as u8 & ALL_WEEKDAYS,
            fits_both_days: [day, weekday].iter().any(|field| field.starts_with(['*', '?'])),
            follows_clocks: [minute, hour].iter().any(|field| field.contains(['*', '?', '/'])),
        })
    }

    fn next(&self, zone: Zone, after_ms: u64) -> Option<u64> {
        let after = i64::try_from(after_ms / 1000).ok()?;
        let next = if self.follows_clocks {
            self.next_shown(zone, after)
        } else {
            self.next_once(zone, after)
        };
        u64::try_from(next?).ok()?.checked_mul(1000)
    }

    /// The next instant at which clocks show a local time that fits.
    fn next_shown(&self, zone: Zone, after: i64) -> Option<i64> {
        let mut from = after.checked_add(1)?;
        // Each time that was found so far is one that clocks do not show, or a change comes before it.
        while from - after <= DAYS_AHEAD * DAY_SECONDS {
            let offset = zone.offset_at(from)?;
            let local = self.first_from(local_of(from + offset)?)?;
            let instant = seconds_of(local)? - offset;
            match zone.next_change(from) {
                Some(change) if change <= instant => from = change,
                _ => return Some(instant),
            }
        }
        None
    }

    /// The next instant that a local time stands for which fits.
    fn next_once(&self, zone: Zone, after: i64) -> Option<i64> {
        let mut from = local_of(seconds_of(zone.local_at(after)?)? + 1)?;
        loop {
            let instant = zone.instant_of(self.first_from(from)?)?;
            if instant > after {
                return Some(instant);
            }
            // `after` lies in the second pass of an hour that exists twice, and this local time had
            // its run in the first. All others of that hour have, too.
            from = zone.end_of_first_pass(instant, after)?;
        }
    }

    /// The first local time at or after `from` that fits.
    fn first_from(&self, from: DateTime) -> Option<DateTime> {
        let mut date = from.date();
        let mut time = (from.hour() as u32, from.minute() as u32, from.second() as u32);
        for _ in 0..DAYS_AHEAD {
            if self.months & (1 << date.month()) == 0 {
                date = date.last_of_month().tomorrow().ok()?;
            } else {
                if self.fits_day(date)
                    && let Some((hour, minute, second)) = self.time_from(time)
                {
                    return Some(date.at(hour as i8, minute as i8, second as i8, 0));
                }
                date = date.tomorrow().ok()?;
            }
            time = (0, 0, 0);
        }
        None
    }

    fn fits_day(&self, date: Date) -> bool {
        let day = self.days & (1 << date.day()) != 0;
        let weekday = self.weekdays & (1 << date.weekday().to_sunday_zero_offset()) != 0;
        if self.fits_both_days { day && weekday } else { day || weekday }
    }

    /// The first time of day at or after `from` that fits, as hour, minute and second.
    fn time_from(&self, (hour, minute, second): (u32, u32, u32)) -> Option<(u32, u32, u32)> {
        let first = |mask: u64| mask.trailing_zeros();
        let hours = u64::from(self.hours);
        if hours & (1 << hour) != 0 {
            if self.minutes & (1 << minute) != 0
                && let Some(second) = bit_from(self.seconds, second)
            {
                return Some((hour, minute, second));
            }
            if let Some(minute) = bit_from(self.minutes, minute + 1) {
                return Some((hour, minute, first(self.seconds)));
            }
        }
        let hour = bit_from(hours, hour + 1)?;
        Some((hour, first(self.minutes), first(self.seconds)))
    }
}

/// The lowest bit that is set at or above `from`.
fn bit_from(mask: u64, from: u32) -> Option<u32> {
    let left = mask.checked_shr(from)?;
    (left != 0).then(|| from + left.trailing_zeros())
}

impl Field {
    fn parse(&self, text: &str, origin: Origin) -> Result<u64, BadPlan> {
        text.split(',').try_fold(0, |mask, item| Ok(mask | self.parse_item(item, origin)?))
    }

    fn parse_item(&self, item: &str, origin: Origin) -> Result<u64, BadPlan> {
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
        let step = step.unwrap_or(1);
        // Such a step leaves the first value only, which is not what it says.
        if step > (high - low).max(1) && origin == Origin::Client {
            let (name, text) = (self.name, "has a step larger than its range");
            return Err(BadPlan(format!("schedule: {name} {text} {low}-{high}: {item}")));
        }
        let values = (low..=high).step_by(step as usize);
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
