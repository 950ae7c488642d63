//! Times, durations and sizes as people read and write them. Knows no clock: now is an argument.

pub use crate::units::{bytes, figure};
use chrono::{DateTime, SecondsFormat, Utc};
use clap::builder::{OsStringValueParser, TypedValueParser};

const SECOND_MS: i64 = 1000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Units a duration may be written in, longest first.
const UNITS: [(&str, i64); 5] =
    [("d", DAY_MS), ("h", HOUR_MS), ("m", MINUTE_MS), ("s", SECOND_MS), ("ms", 1)];

/// `250ms`, `4.2s`, `3m 20s`, `5h 2m`, `12d 3h`: two units at most.
pub fn duration(length_ms: i64) -> String {
    let ms = length_ms.max(0);
    match ms {
        0..SECOND_MS => format!("{ms}ms"),
        SECOND_MS..10_000 if ms % SECOND_MS >= 100 => {
            format!("{}.{}s", ms / SECOND_MS, ms % SECOND_MS / 100)
        }
        SECOND_MS..MINUTE_MS => format!("{}s", ms / SECOND_MS),
        MINUTE_MS..HOUR_MS => two_units(ms, MINUTE_MS, "m", SECOND_MS, "s"),
        HOUR_MS..DAY_MS => two_units(ms, HOUR_MS, "h", MINUTE_MS, "m"),
        _ => two_units(ms, DAY_MS, "d", HOUR_MS, "h"),
    }
}

fn two_units(ms: i64, large: i64, large_name: &str, small: i64, small_name: &str) -> String {
    let rest = ms % large / small;
    if rest == 0 {
        format!("{}{large_name}", ms / large)
    } else {
        format!("{}{large_name} {rest}{small_name}", ms / large)
    }
}

/// `3s ago`, `in 5m`, `now`.
pub fn relative(now_ms: i64, at_ms: i64) -> String {
    let away = now_ms.saturating_sub(at_ms);
    if away.abs() < SECOND_MS {
        "now".to_owned()
    } else if away > 0 {
        format!("{} ago", duration(away - away % SECOND_MS))
    } else {
        // Rounded up: what is due in 4.9 s is not due in 4.
        format!(
            "in {}",
            duration(away.saturating_neg().saturating_add(SECOND_MS - 1) / SECOND_MS * SECOND_MS)
        )
    }
}

/// A time as `2026-11-21T02:39:49Z`.
pub fn date(at_ms: i64) -> String {
    let date: Option<DateTime<Utc>> = DateTime::from_timestamp_millis(at_ms);
    date.map_or_else(
        || format!("{at_ms} ms"),
        |date| date.to_rfc3339_opts(SecondsFormat::Secs, true),
    )
}

/// A text as it is typed, with U+FFFD in place of what is no text: what a worker reports is never refused for its form.
pub fn any_text() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|text| text.to_string_lossy().into_owned())
}

/// Milliseconds from `1500`, `250ms`, `30s`, `1h30m`. Whether they are too many or too few is the
/// server's to say.
pub fn milliseconds(text: &str) -> Result<i64, String> {
    let wrong = || {
        format!(
            "'{text}' is no duration: write milliseconds, or numbers with ms, s, m, h or d, as 1h30m"
        )
    };
    if let Ok(plain) = text.parse() {
        return Ok(plain);
    }
    let mut rest = text;
    let mut sum = 0_i64;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|it: char| it.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let number: i64 = number.parse().map_err(|_| wrong())?;
        let part = number.checked_mul(*unit_ms).ok_or_else(wrong)?;
        sum = sum.checked_add(part).ok_or_else(wrong)?;
        rest = behind;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(sum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1000, "1s"),
            (4250, "4.2s"),
            (59_900, "59s"),
            (200_000, "3m 20s"),
            (3_600_000, "1h"),
            (18_120_000, "5h 2m"),
            (1_047_600_000, "12d 3h"),
        ] {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn times_are_told_from_now() {
        assert_eq!(relative(10_000, 6_500), "3s ago");
        assert_eq!(relative(10_000, 10_400), "now");
        assert_eq!(relative(10_000, 14_900), "in 5s");
        assert_eq!(relative(7_200_000, 0), "2h ago");
        assert_eq!(date(1_700_000_000_123), "2023-11-14T22:13:20Z");
        assert_eq!(date(i64::MAX), format!("{} ms", i64::MAX));
    }

    #[test]
    fn durations_are_read_in_units_or_plain() {
        for (text, ms) in
            [("1500", 1500), ("-5", -5), ("250ms", 250), ("30s", 30_000), ("1h30m", 5_400_000)]
        {
            assert_eq!(milliseconds(text), Ok(ms));
        }
        for text in ["", "soon", "5x", "s", "5s5", "99999999999999999999d", "9999999999999999d"] {
            assert!(milliseconds(text).is_err(), "{text}");
        }
    }
}
