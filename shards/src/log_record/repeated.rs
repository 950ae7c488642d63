//! A run of a repeated job is done, and the next one comes.

use super::codec::{Malformed, Reader, Writer};
use super::completed::{Ended, Evicts};
use super::kind;
use super::row::Body;
use super::show::Show;
use super::snapshot::{KeptJob, Place};

/// See [`super::Record::Repeated`].
#[derive(Clone, Debug)]
pub struct Repeated<'a> {
    /// The run that was done.
    pub ended: Ended<'a>,
    /// The next run.
    pub next: Box<KeptJob<'a>>,
}

impl Repeated<'_> {
    pub(crate) fn kind(&self) -> u8 {
        match self.ended.evicts {
            Evicts::Unsaid => kind::REPEATED,
            _ => kind::RUN_DONE,
        }
    }
}

impl<'a> Body<'a> for Repeated<'a> {
    fn encoded_len(&self) -> usize {
        let said = if self.kind() == kind::RUN_DONE { 8 } else { 0 };
        32 + said + 4 + self.next.encoded_len() + self.ended.result.len()
    }

    fn payload_len(&self) -> usize {
        self.ended.result.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.id(self.ended.id);
        out.u64(self.ended.at_ms);
        out.u64(self.ended.started_at_ms);
        if self.kind() == kind::RUN_DONE {
            out.u64(self.ended.evicts.below());
        }
        out.u32(self.next.encoded_len() as u32);
        self.next.encode(out);
        out.bytes(self.ended.result);
    }

    fn decode(kind: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let (id, at_ms, started_at_ms) = (from.id()?, from.u64()?, from.u64()?);
        let evicts = match kind {
            kind::REPEATED => Evicts::Unsaid,
            _ => Evicts::of(from.u64()?),
        };
        let bytes = from.u32()?;
        let next = Box::new(KeptJob::decode(kind, Reader::new(from.bytes(bytes as usize)?))?);
        if next.shared.is_none() || !matches!(next.place, Place::Pending(_)) {
            return Err(Malformed("a run must wait for its turn and share its payload"));
        }
        let ended = Ended { id, at_ms, started_at_ms, evicts, result: from.rest() };
        Ok(Self { ended, next })
    }

    fn show(&self, to: &mut impl Show) {
        self.ended.show(to);
        to.map("next", |to| self.next.show(to));
    }
}
