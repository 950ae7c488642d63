//! The record of a job that was done.

use crate::job::id::JobId;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::kind;
use crate::log_record::row::Body;
use crate::log_record::show::Show;

/// Effect of a completion on other completed jobs of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evicts {
    /// The record is of a release that did not say: it kept as many as
    /// [`crate::Config::unsaid_completed_max`] says.
    Unsaid,
    /// Nothing is forgotten.
    Nothing,
    /// Completed jobs whose place among the ends is below this are forgotten.
    Below(u64),
    /// The job itself is not kept.
    Itself,
}

impl Evicts {
    /// As records have it: a place among the ends, 0 for nothing.
    pub(crate) fn below(self) -> u64 {
        match self {
            Self::Unsaid | Self::Nothing => 0,
            Self::Below(below) => below,
            Self::Itself => u64::MAX,
        }
    }

    /// Reads [`Evicts::below`] back.
    pub(crate) fn of(below: u64) -> Self {
        match below {
            0 => Self::Nothing,
            u64::MAX => Self::Itself,
            below => Self::Below(below),
        }
    }
}

/// See [`crate::log_record::Record::Completed`].
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The job.
    pub id: JobId,
    /// When it was done.
    pub at_ms: u64,
    /// When its last attempt began.
    pub started_at_ms: u64,
    /// Completed jobs of the queue that were forgotten for this one.
    pub evicts: Evicts,
    /// The result as a MessagePack value, or empty.
    pub result: &'a [u8],
}

impl Ended<'_> {
    pub(crate) fn kind(&self) -> u8 {
        match self.evicts {
            Evicts::Unsaid => kind::COMPLETED,
            Evicts::Nothing => kind::DONE,
            Evicts::Below(_) | Evicts::Itself => kind::DONE_FOR,
        }
    }
}

impl<'a> Body<'a> for Ended<'a> {
    fn encoded_len(&self) -> usize {
        let said = if self.kind() == kind::DONE_FOR { 8 } else { 0 };
        32 + said + self.result.len()
    }

    fn payload_len(&self) -> usize {
        self.result.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.id(self.id);
        out.u64(self.at_ms);
        out.u64(self.started_at_ms);
        if self.kind() == kind::DONE_FOR {
            out.u64(self.evicts.below());
        }
        out.bytes(self.result);
    }

    fn decode(kind: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let (id, at_ms, started_at_ms) = (from.id()?, from.u64()?, from.u64()?);
        let evicts = match kind {
            kind::COMPLETED => Evicts::Unsaid,
            kind::DONE => Evicts::Nothing,
            _ => Evicts::of(from.u64()?),
        };
        Ok(Self { id, at_ms, started_at_ms, evicts, result: from.rest() })
    }

    fn show(&self, to: &mut impl Show) {
        to.id("id", self.id);
        to.uint("at", self.at_ms);
        to.uint("startedAt", self.started_at_ms);
        match self.evicts {
            Evicts::Unsaid | Evicts::Nothing => {}
            Evicts::Below(below) => to.uint("forgottenBelow", below),
            Evicts::Itself => to.text("forgotten", "itself"),
        }
        to.value("result", self.result);
    }
}
