//! The record of jobs pulled under locks: how it is written and read. What it does stands in
//! `mutate`.

use crate::caller::Token;
use crate::job::id::JobId;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::row::{Tail, parts};
use crate::log_record::show::Show;

parts! {
    /// Jobs were pulled under locks. Payload: none.
    #[derive(Clone, Copy, Debug)]
    pub struct Leased<'a> {
        /// When the jobs were pulled.
        at_ms: u64 = "at",
        /// Life of the locks.
        ttl_ms: u32 = "lockTtl",
        ..rest
        /// The jobs and their tokens.
        entries: Entries<'a> = "jobs",
    }
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

impl<'a> Tail<'a> for Entries<'a> {
    #[inline]
    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(self.0);
    }

    fn decode(from: Reader<'a>) -> Result<Self, Malformed> {
        let rest = from.rest();
        if !rest.len().is_multiple_of(ENTRY) {
            return Err(Malformed("entries are cut short"));
        }
        Ok(Self(rest))
    }

    fn show(&self, name: &'static str, to: &mut impl Show) {
        to.maps(name, self.iter(), |to, (id, token)| {
            to.id("id", id);
            to.id("token", JobId(token.0));
        });
    }
}
