//! Names of backups: when they were begun, and of which data directory. Their order is that of time.

use chrono::{DateTime, NaiveDateTime};
use std::fmt;

/// Times in names, in UTC. Milliseconds tell two apart that follow at once.
const FORMAT: &str = "%Y%m%dT%H%M%S%.3fZ";

/// The name of a backup: `20261124T030000.000Z-0123456789abcdef`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Name {
    /// When it was begun, in milliseconds since the epoch.
    pub at_ms: u64,
    /// The number of the data directory.
    pub id: u64,
}

impl Name {
    /// The name that a text is; nothing if it is the name of something else.
    pub fn parse(text: &str) -> Option<Self> {
        let (time, id) = text.split_once('-')?;
        let at = NaiveDateTime::parse_from_str(time, FORMAT).ok()?;
        let at_ms = u64::try_from(at.and_utc().timestamp_millis()).ok()?;
        let name = Self { at_ms, id: u64::from_str_radix(id, 16).ok()? };
        // Nothing that is only similar is taken for ours.
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = i64::try_from(self.at_ms).ok().and_then(DateTime::from_timestamp_millis);
        let at = at.unwrap_or_default();
        write!(f, "{}-{:016x}", at.format(FORMAT), self.id)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_nothing_else_is_one() {
        let name = Name { at_ms: 1_795_489_200_042, id: 0xab };
        let text = name.to_string();
        assert_eq!(text, "20261124T030000.042Z-00000000000000ab");
        assert_eq!(Name::parse(&text), Some(name));
        let others = [
            "",
            "monday",
            "20261124T030000.042Z",
            "20261124T030000.042Z-ab",
            "20261324T030000.042Z-00000000000000ab",
        ];
        for other in others {
            assert_eq!(Name::parse(other), None, "{other}");
        }
        let later = Name { at_ms: name.at_ms + 1, id: 0 };
        assert!(later > name && later.to_string() > text);
    }
}
