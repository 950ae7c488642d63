//! Ids and custom ids of completed jobs that are gone.

use crate::job::id::JobId;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::row::Body;
use crate::log_record::show::Show;

/// Ids of jobs, as bytes.
#[derive(Clone, Copy)]
pub struct CompletedIdBytes<'a>(&'a [u8]);

impl<'a> CompletedIdBytes<'a> {
    /// Writes ids into `bytes`, and views them.
    pub fn new(ids: &[JobId], bytes: &'a mut Vec<u8>) -> Self {
        bytes.clear();
        bytes.extend(ids.iter().flat_map(|id| id.0.to_le_bytes()));
        Self(bytes)
    }

    /// The ids.
    pub fn iter(self) -> impl Iterator<Item = JobId> {
        let (ids, _) = self.0.as_chunks::<16>();
        ids.iter().map(|id| JobId(u128::from_le_bytes(*id)))
    }
}

impl<'a> Body<'a> for CompletedIdBytes<'a> {
    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(self.0);
    }

    fn decode(_: u8, from: Reader<'a>) -> Result<Self, Malformed> {
        let bytes = from.rest();
        match bytes.as_chunks::<16>() {
            (_, []) => Ok(Self(bytes)),
            _ => Err(Malformed("a row of ids is cut short")),
        }
    }

    fn show(&self, to: &mut impl Show) {
        to.ids("ids", self.iter());
    }
}

impl std::fmt::Debug for CompletedIdBytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Custom ids of jobs with the jobs, as bytes that can be read.
#[derive(Clone, Copy)]
pub struct CompletedNameBytes<'a>(&'a [u8]);

impl<'a> CompletedNameBytes<'a> {
    /// Writes names into `bytes`, and views them.
    pub fn new(names: &[(&str, JobId)], bytes: &'a mut Vec<u8>) -> Self {
        bytes.clear();
        for (name, id) in names {
            bytes.extend_from_slice(&id.0.to_le_bytes());
            bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        Self(bytes)
    }

    fn first(bytes: &[u8]) -> Option<((&str, JobId), &[u8])> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        Some(((std::str::from_utf8(name).ok()?, JobId(u128::from_le_bytes(*id))), rest))
    }

    /// The names.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, JobId)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (named, left) = Self::first(rest)?;
            rest = left;
            Some(named)
        })
    }
}

impl<'a> Body<'a> for CompletedNameBytes<'a> {
    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(self.0);
    }

    fn decode(_: u8, from: Reader<'a>) -> Result<Self, Malformed> {
        let bytes = from.rest();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (_, left) = Self::first(rest).ok_or(Malformed("a row of names is cut short"))?;
            rest = left;
        }
        Ok(Self(bytes))
    }

    fn show(&self, to: &mut impl Show) {
        to.maps("names", self.iter(), |to, (name, id)| {
            to.id("id", id);
            to.text("customId", name);
        });
    }
}

impl std::fmt::Debug for CompletedNameBytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
