//! Packs the purpose of an operation into the 64 bits that its completion carries.
//!
//! Kind (4 bits), then either a connection (24 bits of index, 32 of generation) or 60 bits of number.

use super::ConnId;

/// Connections that an index can name.
pub(super) const CONNECTIONS_MAX: usize = 1 << 24;
/// Tags of disk operations are below this.
pub(super) const TAG_MAX: u64 = 1 << 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Accept(u32),
    Receive(ConnId),
    Send(ConnId),
    CancelReceive(ConnId),
    CancelAccept,
    Wakeup,
    Disk(u64),
}

impl Token {
    pub(super) fn pack(self) -> u64 {
        let conn = |id: ConnId| u64::from(id.generation) << 24 | u64::from(id.index);
        let (kind, rest) = match self {
            Self::Accept(listener) => (1, u64::from(listener)),
            Self::Receive(id) => (2, conn(id)),
            Self::Send(id) => (3, conn(id)),
            Self::CancelReceive(id) => (4, conn(id)),
            Self::CancelAccept => (5, 0),
            Self::Wakeup => (6, 0),
            Self::Disk(tag) => (7, tag),
        };
        kind << 60 | rest
    }

    pub(super) fn unpack(bits: u64) -> Option<Self> {
        let rest = bits & (TAG_MAX - 1);
        let conn = || ConnId { index: (rest & 0xff_ffff) as u32, generation: (rest >> 24) as u32 };
        Some(match bits >> 60 {
            1 => Self::Accept(rest as u32),
            2 => Self::Receive(conn()),
            3 => Self::Send(conn()),
            4 => Self::CancelReceive(conn()),
            5 => Self::CancelAccept,
            6 => Self::Wakeup,
            7 => Self::Disk(rest),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_comes_back() {
        let id = ConnId { index: CONNECTIONS_MAX as u32 - 1, generation: u32::MAX };
        for token in [
            Token::Accept(u32::MAX),
            Token::Receive(id),
            Token::Send(ConnId { index: 0, generation: 1 }),
            Token::CancelReceive(id),
            Token::CancelAccept,
            Token::Wakeup,
            Token::Disk(TAG_MAX - 1),
        ] {
            assert_eq!(Token::unpack(token.pack()), Some(token));
        }
        assert_eq!(Token::unpack(0), None);
    }
}
