//! The records of attempts that failed: the job is tried again, goes to the dead-letter queue, or comes back from there.

use crate::dead_letter::reason::Cause;
use crate::job::id::JobId;
use crate::job::stack::Stack;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::kind;
use crate::log_record::row::Body;
use crate::log_record::show::Show;

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

impl Buried<'_> {
    pub(crate) fn kind(&self) -> u8 {
        match self.cause {
            Cause::Unknown if self.stack.lines > 0 => kind::BURIED_AT,
            Cause::Unknown => kind::BURIED,
            _ => kind::BURIED_FOR,
        }
    }
}

impl<'a> Body<'a> for Buried<'a> {
    fn encoded_len(&self) -> usize {
        let stack = if self.stack.lines > 0 { 8 + self.stack.texts.len() } else { 0 };
        35 + usize::from(self.cause != Cause::Unknown) + stack + self.error.len()
    }

    fn payload_len(&self) -> usize {
        self.error.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
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

    fn decode(kind: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let (id, at_ms, started_at_ms) = (from.id()?, from.u64()?, from.u64()?);
        let (attempts, stalls) = (from.u16()?, from.u8()?);
        let (cause, with_stack) = match kind {
            kind::BURIED_FOR => {
                let byte = from.u8()?;
                let cause = Cause::of(byte & !WITH_STACK);
                let unknown = Malformed("the cause of a failure is not known to this release");
                (cause.ok_or(unknown)?, byte & WITH_STACK != 0)
            }
            kind => (Cause::Unknown, kind == kind::BURIED_AT),
        };
        let stack = if with_stack {
            let (lines, bytes) = (from.u32()?, from.u32()?);
            Stack { lines, texts: from.bytes(bytes as usize)? }
        } else {
            Stack::default()
        };
        let error = from.rest_text()?;
        Ok(Self { id, at_ms, started_at_ms, attempts, stalls, cause, stack, error })
    }
    fn show(&self, to: &mut impl Show) {
        to.id("id", self.id);
        to.uint("at", self.at_ms);
        to.uint("startedAt", self.started_at_ms);
        to.uint("attempts", u64::from(self.attempts));
        to.uint("stalls", u64::from(self.stalls));
        to.text("cause", self.cause.name());
        let Stack { lines, texts } = self.stack;
        if lines > 0 {
            to.values("stacktrace", lines as usize, texts);
        }
        to.text("error", self.error);
    }
}

/// See [`crate::log_record::Record::Retried`].
#[derive(Clone, Copy, Debug)]
pub struct Retried<'a> {
    /// The job.
    pub id: JobId,
    /// When the attempt failed.
    pub at_ms: u64,
    /// When the next one may begin.
    pub run_at_ms: u64,
    /// Details of the attempt, if it is to be remembered.
    pub attempt: Option<Attempt<'a>>,
    /// Why it failed.
    pub error: &'a str,
}

/// An attempt that another follows.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Which one it was, from 1.
    pub number: u16,
    /// When it began.
    pub started_at_ms: u64,
    /// The worker went silent: the job waits again at its old place.
    pub stalled: bool,
    /// Why it failed, in a word.
    pub cause: Cause,
    /// Who had the job, if that is known.
    pub worker: Option<&'a str>,
    /// Where it failed, if the worker said so.
    pub stack: Stack<'a>,
}

/// The bit beside a cause that says that the attempt stalled.
const STALLED: u8 = 0x40;

impl Retried<'_> {
    pub(crate) fn kind(&self) -> u8 {
        if self.attempt.is_some() { kind::ATTEMPT_FAILED } else { kind::RETRIED }
    }

    /// Whether its worker went silent.
    pub(crate) fn is_stall(&self) -> bool {
        self.attempt.is_some_and(|attempt| attempt.stalled)
    }
}

impl<'a> Body<'a> for Retried<'a> {
    fn encoded_len(&self) -> usize {
        let attempt = self.attempt.map_or(0, |attempt| {
            let stack = if attempt.stack.lines > 0 { 8 + attempt.stack.texts.len() } else { 0 };
            2 + 8 + 1 + 2 + attempt.worker.map_or(0, str::len) + stack
        });
        16 + 8 + 8 + attempt + self.error.len()
    }

    fn payload_len(&self) -> usize {
        self.error.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.id(self.id);
        out.u64(self.at_ms);
        out.u64(self.run_at_ms);
        if let Some(Attempt { number, started_at_ms, stalled, cause, worker, stack }) = self.attempt
        {
            let with_stack = stack.lines > 0;
            let bit = |set: bool, bit: u8| if set { bit } else { 0 };
            out.u16(number);
            out.u64(started_at_ms);
            out.u8(cause as u8 | bit(with_stack, WITH_STACK) | bit(stalled, STALLED));
            out.short(worker.unwrap_or_default().as_bytes());
            if with_stack {
                out.u32(stack.lines);
                out.u32(stack.texts.len() as u32);
                out.bytes(stack.texts);
            }
        }
        out.bytes(self.error.as_bytes());
    }

    fn decode(kind: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let (id, at_ms, run_at_ms) = (from.id()?, from.u64()?, from.u64()?);
        let attempt = if kind == kind::ATTEMPT_FAILED {
            let (number, started_at_ms) = (from.u16()?, from.u64()?);
            let byte = from.u8()?;
            let cause = Cause::of(byte & !(WITH_STACK | STALLED));
            let cause =
                cause.ok_or(Malformed("the cause of a failure is not known to this release"))?;
            let worker = Some(from.text()?).filter(|worker| !worker.is_empty());
            let mut stack = Stack::default();
            if byte & WITH_STACK != 0 {
                let (lines, bytes) = (from.u32()?, from.u32()?);
                stack = Stack { lines, texts: from.bytes(bytes as usize)? };
            }
            let stalled = byte & STALLED != 0;
            Some(Attempt { number, started_at_ms, stalled, cause, worker, stack })
        } else {
            None
        };
        Ok(Self { id, at_ms, run_at_ms, attempt, error: from.rest_text()? })
    }

    fn show(&self, to: &mut impl Show) {
        to.id("id", self.id);
        to.uint("at", self.at_ms);
        to.uint("runAt", self.run_at_ms);
        if let Some(Attempt { number, started_at_ms, stalled, cause, worker, stack }) = self.attempt
        {
            to.uint("attempt", u64::from(number));
            to.uint("startedAt", started_at_ms);
            to.flag("stalled", stalled);
            to.text("cause", cause.name());
            to.some_text("worker", worker);
            if stack.lines > 0 {
                to.values("stacktrace", stack.lines as usize, stack.texts);
            }
        }
        to.text("error", self.error);
    }
}

/// See [`crate::log_record::Record::Revived`].
#[derive(Clone, Copy, Debug)]
pub struct Revived {
    /// The job.
    pub id: JobId,
    /// When it may be delivered.
    pub run_at_ms: u64,
    /// By the rule of its queue, not because a client asked for it.
    pub by_itself: bool,
}

impl Revived {
    pub(crate) fn kind(self) -> u8 {
        if self.by_itself { kind::REVIVED_BY_ITSELF } else { kind::REVIVED }
    }
}

impl Body<'_> for Revived {
    fn encoded_len(&self) -> usize {
        16 + 8
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.id(self.id);
        out.u64(self.run_at_ms);
    }

    fn decode(kind: u8, mut from: Reader<'_>) -> Result<Self, Malformed> {
        let (id, run_at_ms) = (from.id()?, from.u64()?);
        Ok(Self { id, run_at_ms, by_itself: kind == kind::REVIVED_BY_ITSELF })
    }

    fn show(&self, to: &mut impl Show) {
        to.id("id", self.id);
        to.uint("runAt", self.run_at_ms);
    }
}
