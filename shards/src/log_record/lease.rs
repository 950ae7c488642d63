//! The record of jobs pulled under locks: how it is written and read. What it does stands in
//! `mutate`.

use crate::command::Token;
use crate::job::id::JobId;
use crate::log_record::codec::{Malformed, Reader, Writer};

/// Jobs were pulled under locks. Payload: none.
#[derive(Clone, Copy, Debug)]
pub struct Leased<'a> {
    /// When the jobs were pulled.
    pub at_ms: u64,
    /// Life of the locks.
    pub ttl_ms: u32,
    /// The jobs and their tokens.
    pub entries: Entries<'a>,
}

/// Pairs of job and token, as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'a>(&'a [u8]);

const ENTRY: usize = 32;

impl<'a> Entries<'a> {
    /// Views pairs written by [`Entries::push`].
    pub fn new(bytes: &'a [u8]) -> Self {
        assert!(bytes.len().is_multiple_of(ENTRY), "entries are whole");
        Self(bytes)
    }

    /// Adds a pair to a buffer of them.
    pub fn push(bytes: &mut Vec<u8>, id: JobId, token: Token) {
        bytes.extend_from_slice(&id.0.to_le_bytes());
        bytes.extend_from_slice(&token.0.to_le_bytes());
    }

    /// The pairs.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, Token)> + use<'a> {
        self.0.as_chunks::<ENTRY>().0.iter().map(|entry| {
            let (id, token) = entry.split_at(16);
            let number = |half: &[u8]| {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(half);
                u128::from_le_bytes(bytes)
            };
            (JobId(number(id)), Token(number(token)))
        })
    }
}

impl<'a> Leased<'a> {
    pub(crate) fn encoded_len(&self) -> usize {
        12 + self.entries.0.len()
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.at_ms);
        out.u32(self.ttl_ms);
        out.bytes(self.entries.0);
    }

    pub(crate) fn decode(mut from: Reader<'a>) -> Result<Self, Malformed> {
        let (at_ms, ttl_ms, rest) = (from.u64()?, from.u32()?, from.rest());
        if !rest.len().is_multiple_of(ENTRY) {
            return Err(Malformed("entries are cut short"));
        }
        Ok(Self { at_ms, ttl_ms, entries: Entries(rest) })
    }
}
