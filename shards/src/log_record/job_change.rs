//! The records of what is done to a single job besides its course through the queue: parts of the rows of
//! [`Changed`].

use crate::job::flags;
use crate::job::id::JobId;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::kind;
pub use crate::log_record::kind::Changed;
use crate::log_record::row::{Body, Part};
use crate::log_record::show::Show;

/// How serious a log entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Level {
    /// The usual.
    Info,
    /// Worth a look.
    Warn,
    /// Something failed.
    Error,
}

impl Level {
    /// The level that is written as `number`.
    pub(crate) fn of(number: u8) -> Option<Self> {
        [Self::Info, Self::Warn, Self::Error].into_iter().find(|&level| level as u8 == number)
    }

    /// The names that clients see, in the same order.
    pub const NAMES: &'static [&'static str] = &["info", "warn", "error"];

    /// The name that clients see.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl Part<'_> for Level {
    fn encoded_len(&self) -> usize {
        1
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(*self as u8);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::of(from.u8()?).ok_or(Malformed("no known level"))
    }

    fn show(&self, name: &'static str, to: &mut impl Show) {
        to.text(name, self.name());
    }
}

/// Some of [`crate::job::flags`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags(pub u8);

impl Part<'_> for Flags {
    fn encoded_len(&self) -> usize {
        1
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.0);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.u8().map(Self)
    }

    /// Each by the name that clients give it.
    fn show(&self, _: &'static str, to: &mut impl Show) {
        to.flag("lifo", self.0 & flags::LIFO != 0);
        to.flag("removeOnComplete", self.0 & flags::REMOVE_ON_COMPLETE != 0);
        to.flag("removeOnFail", self.0 & flags::REMOVE_ON_FAIL != 0);
    }
}

/// See [`Changed::Prioritized`].
#[derive(Clone, Copy, Debug)]
pub struct Prioritized {
    /// The job.
    pub id: JobId,
    /// The new priority.
    pub priority: i32,
    /// Whether it is [`flags::LIFO`] from now on, if that was said.
    pub lifo: Option<bool>,
}

impl Prioritized {
    pub(crate) fn kind(self) -> u8 {
        if self.lifo.is_some() { kind::PRIORITIZED_AS } else { kind::PRIORITIZED }
    }
}

impl Body<'_> for Prioritized {
    fn encoded_len(&self) -> usize {
        16 + 4 + usize::from(self.lifo.is_some())
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.id(self.id);
        out.u32(self.priority as u32);
        if let Some(lifo) = self.lifo {
            out.u8(u8::from(lifo));
        }
    }

    fn decode(kind: u8, mut from: Reader<'_>) -> Result<Self, Malformed> {
        let (id, priority) = (from.id()?, from.u32()? as i32);
        let lifo = (kind == kind::PRIORITIZED_AS).then(|| from.u8()).transpose()?;
        Ok(Self { id, priority, lifo: lifo.map(|lifo| lifo != 0) })
    }

    fn show(&self, to: &mut impl Show) {
        to.id("id", self.id);
        to.int("priority", i64::from(self.priority));
        if let Some(lifo) = self.lifo {
            to.bool("lifo", lifo);
        }
    }
}
