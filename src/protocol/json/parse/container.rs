//! Lists and maps that are being written, and their heads.

use rmp::Marker;

/// A container that is being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    /// Where its head is.
    pub(super) at: usize,
    /// Whether that has room for any count.
    pub(super) wide: bool,
    pub(super) kind: Kind,
    pub(super) count: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Array,
    Map,
}

impl Kind {
    pub(super) fn tight(self, count: u8) -> u8 {
        match self {
            Self::Array => Marker::FixArray(count).to_u8(),
            Self::Map => Marker::FixMap(count).to_u8(),
        }
    }

    pub(super) fn wide(self) -> u8 {
        match self {
            Self::Array => Marker::Array16.to_u8(),
            Self::Map => Marker::Map16.to_u8(),
        }
    }

    pub(super) fn widest(self) -> u8 {
        match self {
            Self::Array => Marker::Array32.to_u8(),
            Self::Map => Marker::Map32.to_u8(),
        }
    }
}
