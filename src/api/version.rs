//! The versions of the protocol, and how it becomes known which of them a connection speaks.
//!
//! Frames of both versions are read the same way, and every command exists in both. The version decides where the two
//! differ: how lenient the decoder is with a field, and what a reply looks like. It travels with a command
//! ([`crate::protocol::decode::decode`] takes it, the origin of a request has it), so that a shard that gets a command
//! from another one reads and answers it as the first would have.
//!
//! - `Hello` settles the version of its connection.
//! - Until then a connection over TCP speaks the version of the setting `PROTOCOL_DEFAULT`. If that is 2, the first frame
//!   that has a command or a field which only version 3 has is read as one of version 3, and so is everything behind it.
//! - WebSocket speaks version 2 unless `Hello` says otherwise, HTTP always.

/// A version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Version {
    /// The first one that is spoken here.
    #[default]
    Two,
    /// Jobs have names of their own.
    Three,
}

impl Version {
    /// As it is written.
    pub const fn number(self) -> u64 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
        }
    }

    /// The one that is spoken with a client that asks for `asked`: the newest that both know.
    pub const fn answering(asked: u64) -> Self {
        if asked >= Self::Three.number() { Self::Three } else { Self::Two }
    }

    /// Whether it is version 3.
    #[inline]
    pub fn is_three(self) -> bool {
        self == Self::Three
    }
}

/// The version that a connection speaks, and whether the client has said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spoken {
    version: Version,
    told: bool,
}

impl Spoken {
    /// The client has not said a version yet; `version` is presumed.
    pub fn presumed(version: Version) -> Self {
        Self { version, told: false }
    }

    /// The connection has told, or is of a kind that cannot.
    pub fn told(version: Version) -> Self {
        Self { version, told: true }
    }

    /// How its next frame is read.
    #[inline]
    pub fn version(self) -> Version {
        self.version
    }

    /// Whether a frame that only version 3 has would settle it.
    #[inline]
    pub fn is_open(self) -> bool {
        !self.told && self.version == Version::Two
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_newest_version_that_both_know() {
        for (asked, version) in [(1, 2), (2, 2), (3, 3), (4, 3), (u64::MAX, 3)] {
            assert_eq!(Version::answering(asked).number(), version, "{asked}");
        }
    }

    #[test]
    fn what_was_told_is_not_open_and_what_is_presumed_is_only_below_three() {
        assert!(Spoken::default().is_open() && Spoken::presumed(Version::Two).is_open());
        assert!(!Spoken::presumed(Version::Three).is_open());
        assert!(!Spoken::told(Version::Two).is_open() && !Spoken::told(Version::Three).is_open());
    }
}
