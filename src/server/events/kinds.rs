//! Types of events as a set.

use super::dashboard_names::KINDS;
use crate::api::objects::EVENT_TYPES;

/// Types of events, a bit for each by its place in [`EVENT_TYPES`]; behind these, what has a name of dashboards
/// only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Kinds(pub u64);

impl Kinds {
    pub const ALL: Self = Self((1 << EVENT_TYPES.len()) - 1);
    /// Also what has a name of dashboards only.
    pub const ALL_NAMES: Self = Self((1 << KINDS) - 1);
    pub const NONE: Self = Self(0);

    #[inline]
    pub fn has(self, kind: u8) -> bool {
        self.0 & (1 << kind) != 0
    }

    pub fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The places of its types.
    pub fn each(self) -> impl Iterator<Item = usize> {
        (0..KINDS).filter(move |kind| self.has(*kind as u8))
    }

    /// The names of its types.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.each().filter_map(|kind| EVENT_TYPES.get(kind).copied())
    }
}
