//! The record of a job that failed for good: how it is written and read.

use crate::command::Stack;
use crate::dead_letter::reason::Cause;
use crate::job::id::JobId;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::utf8;

/// Numbers of the kinds, for ever.
pub(crate) mod kind {
    pub(crate) const BURIED: u8 = 5;
    /// [`BURIED`] with a cause, and maybe a stack.
    pub(crate) const FOR: u8 = 11;
    /// [`BURIED`] with a stack.
    pub(crate) const AT: u8 = 26;
}

/// The bit beside a cause that says that a stack follows.
const WITH_STACK: u8 = 0x80;

/// See [`crate::log_record::Record::Buried`].
#[derive(Clone, Copy, Debug)]
pub struct Buried<'a> {
    /// The job.
    pub id: JobId,
    /// When it failed for good.
    pub at_ms: u64,
    /// When its last attempt began; 0 if none did.
    pub started_at_ms: u64,
    /// Attempts that have failed, this one included.
    pub attempts: u16,
    /// Times its worker went silent.
    pub stalls: u8,
    /// Why it failed, in a word.
    pub cause: Cause,
    /// Where it failed, if the worker said so.
    pub stack: Stack<'a>,
    /// Why it failed.
    pub error: &'a str,
}

impl<'a> Buried<'a> {
    pub(crate) fn kind(&self) -> u8 {
        match self.cause {
            Cause::Unknown if self.stack.lines > 0 => kind::AT,
            Cause::Unknown => kind::BURIED,
            _ => kind::FOR,
        }
    }

    pub(crate) fn encoded_len(&self) -> usize {
        let stack = if self.stack.lines > 0 { 8 + self.stack.texts.len() } else { 0 };
        35 + usize::from(self.cause != Cause::Unknown) + stack + self.error.len()
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.id(self.id);
        out.u64(self.at_ms);
        out.u64(self.started_at_ms);
        out.u16(self.attempts);
        out.u8(self.stalls);
        let with_stack = self.stack.lines > 0;
        if self.cause != Cause::Unknown {
            out.u8(self.cause as u8 | if with_stack { WITH_STACK } else { 0 });
        }
        if with_stack {
            out.u32(self.stack.lines);
            out.u32(self.stack.texts.len() as u32);
            out.bytes(self.stack.texts);
        }
        out.bytes(self.error.as_bytes());
    }

    pub(crate) fn decode(kind: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let (id, at_ms, started_at_ms) = (from.id()?, from.u64()?, from.u64()?);
        let (attempts, stalls) = (from.u16()?, from.u8()?);
        let (cause, with_stack) = match kind {
            kind::FOR => {
                let byte = from.u8()?;
                let cause = Cause::of(byte & !WITH_STACK);
                let unknown = Malformed("the cause of a failure is not known to this release");
                (cause.ok_or(unknown)?, byte & WITH_STACK != 0)
            }
            kind => (Cause::Unknown, kind == kind::AT),
        };
        let stack = if with_stack {
            let (lines, bytes) = (from.u32()?, from.u32()?);
            Stack { lines, texts: from.bytes(bytes as usize)? }
        } else {
            Stack::default()
        };
        let error = utf8(from.rest())?;
        Ok(Self { id, at_ms, started_at_ms, attempts, stalls, cause, stack, error })
    }
}
