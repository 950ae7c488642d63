//! The records of what is done to a single job besides its course through the queue: facts like those
//! of [`crate::log_record`], with kinds and codec of their own.

use crate::job::id::JobId;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::utf8;

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
}

/// One fact about one job.
#[derive(Debug)]
pub enum Changed<'a> {
    /// Its priority is another one.
    Prioritized {
        /// The job.
        id: JobId,
        /// The new priority.
        priority: i32,
        /// Whether it is [`crate::job::flags::LIFO`] from now on, if that was said.
        lifo: Option<bool>,
    },
    /// Its delay was ended.
    Promoted {
        /// The job.
        id: JobId,
        /// When.
        at_ms: u64,
    },
    /// It was taken from its worker and put off.
    PutOff {
        /// The job.
        id: JobId,
        /// When.
        at_ms: u64,
        /// When it may be delivered again.
        run_at_ms: u64,
    },
    /// It has one more of [`crate::job::flags`].
    Flagged {
        /// The job.
        id: JobId,
        /// The flag.
        flag: u8,
    },
    /// It holds its deduplication key no longer.
    KeyFreed {
        /// The job.
        id: JobId,
    },
    /// It holds its deduplication key for longer.
    KeyExtended {
        /// The job.
        id: JobId,
        /// Until then.
        until_ms: u64,
    },
    /// Its life begins anew.
    Renewed {
        /// The job.
        id: JobId,
        /// The end of it.
        until_ms: u64,
    },
    /// Lines of its log were forgotten, all but the newest.
    LogCut {
        /// The job.
        id: JobId,
        /// How many are left.
        keep: u32,
    },
    /// Its worker told how far it is. Payload: the message.
    Progressed {
        /// The job.
        id: JobId,
        /// 0 to 100.
        progress: f64,
        /// What the worker says.
        message: Option<&'a str>,
    },
    /// A line was added to its log. Payload: the line.
    Logged {
        /// The job.
        id: JobId,
        /// When.
        at_ms: u64,
        /// How serious.
        level: Level,
        /// The line.
        message: &'a str,
    },
}

/// Numbers of the kinds, for ever: 21 to 39 are set aside for this module, but for 26.
pub(crate) mod kind {
    pub(crate) const PRIORITIZED: u8 = 21;
    pub(crate) const PROMOTED: u8 = 22;
    pub(crate) const PUT_OFF: u8 = 23;
    pub(crate) const PROGRESSED: u8 = 24;
    pub(crate) const LOGGED: u8 = 25;
    pub(crate) const FLAGGED: u8 = 27;
    pub(crate) const LOG_CUT: u8 = 28;
    pub(crate) const KEY_FREED: u8 = 29;
    pub(crate) const KEY_EXTENDED: u8 = 30;
    /// [`PRIORITIZED`] with a word on its order.
    pub(crate) const PRIORITIZED_AS: u8 = 31;
    pub(crate) const RENEWED: u8 = 32;
}

impl<'a> Changed<'a> {
    /// The job.
    pub fn id(&self) -> JobId {
        match self {
            Self::Prioritized { id, .. }
            | Self::Promoted { id, .. }
            | Self::PutOff { id, .. }
            | Self::Flagged { id, .. }
            | Self::LogCut { id, .. }
            | Self::KeyFreed { id }
            | Self::KeyExtended { id, .. }
            | Self::Renewed { id, .. }
            | Self::Progressed { id, .. }
            | Self::Logged { id, .. } => *id,
        }
    }

    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Prioritized { lifo: Some(_), .. } => kind::PRIORITIZED_AS,
            Self::Prioritized { .. } => kind::PRIORITIZED,
            Self::Promoted { .. } => kind::PROMOTED,
            Self::PutOff { .. } => kind::PUT_OFF,
            Self::Flagged { .. } => kind::FLAGGED,
            Self::LogCut { .. } => kind::LOG_CUT,
            Self::KeyFreed { .. } => kind::KEY_FREED,
            Self::KeyExtended { .. } => kind::KEY_EXTENDED,
            Self::Renewed { .. } => kind::RENEWED,
            Self::Progressed { .. } => kind::PROGRESSED,
            Self::Logged { .. } => kind::LOGGED,
        }
    }

    pub(crate) fn encoded_len(&self) -> usize {
        match self {
            Self::KeyFreed { .. } => 16,
            Self::Flagged { .. } => 16 + 1,
            Self::Prioritized { lifo, .. } => 16 + 4 + lifo.map_or(0, |_| 1),
            Self::LogCut { .. } => 16 + 4,
            Self::Promoted { .. } | Self::KeyExtended { .. } | Self::Renewed { .. } => 16 + 8,
            Self::PutOff { .. } => 16 + 8 + 8,
            Self::Progressed { .. } | Self::Logged { .. } => 16 + 8 + 1 + self.payload_len(),
        }
    }

    pub(crate) fn payload_len(&self) -> usize {
        match self {
            Self::Progressed { message, .. } => message.unwrap_or_default().len(),
            Self::Logged { message, .. } => message.len(),
            Self::Prioritized { .. }
            | Self::Promoted { .. }
            | Self::PutOff { .. }
            | Self::Flagged { .. }
            | Self::LogCut { .. }
            | Self::KeyFreed { .. }
            | Self::KeyExtended { .. }
            | Self::Renewed { .. } => 0,
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.id(self.id());
        match self {
            Self::Prioritized { priority, lifo, .. } => {
                out.u32(*priority as u32);
                if let Some(lifo) = lifo {
                    out.u8(u8::from(*lifo));
                }
            }
            Self::Promoted { at_ms, .. } => out.u64(*at_ms),
            Self::Flagged { flag, .. } => out.u8(*flag),
            Self::LogCut { keep, .. } => out.u32(*keep),
            Self::KeyFreed { .. } => {}
            Self::KeyExtended { until_ms, .. } | Self::Renewed { until_ms, .. } => {
                out.u64(*until_ms);
            }
            Self::PutOff { at_ms, run_at_ms, .. } => {
                out.u64(*at_ms);
                out.u64(*run_at_ms);
            }
            Self::Progressed { progress, message, .. } => {
                out.u64(progress.to_bits());
                out.u8(u8::from(message.is_some()));
                out.bytes(message.unwrap_or_default().as_bytes());
            }
            Self::Logged { at_ms, level, message, .. } => {
                out.u64(*at_ms);
                out.u8(*level as u8);
                out.bytes(message.as_bytes());
            }
        }
    }

    /// Reads a record of one of the kinds above; `None` for any other kind.
    pub(crate) fn decode(kind: u8, mut from: Reader<'a>) -> Result<Option<Self>, Malformed> {
        Ok(Some(match kind {
            kind::PRIORITIZED | kind::PRIORITIZED_AS => {
                let (id, priority) = (from.id()?, from.u32()? as i32);
                let lifo = (kind == kind::PRIORITIZED_AS).then(|| from.u8()).transpose()?;
                Self::Prioritized { id, priority, lifo: lifo.map(|lifo| lifo != 0) }
            }
            kind::PROMOTED => Self::Promoted { id: from.id()?, at_ms: from.u64()? },
            kind::PUT_OFF => {
                Self::PutOff { id: from.id()?, at_ms: from.u64()?, run_at_ms: from.u64()? }
            }
            kind::FLAGGED => Self::Flagged { id: from.id()?, flag: from.u8()? },
            kind::LOG_CUT => Self::LogCut { id: from.id()?, keep: from.u32()? },
            kind::KEY_FREED => Self::KeyFreed { id: from.id()? },
            kind::KEY_EXTENDED => Self::KeyExtended { id: from.id()?, until_ms: from.u64()? },
            kind::RENEWED => Self::Renewed { id: from.id()?, until_ms: from.u64()? },
            kind::PROGRESSED => {
                let (id, progress) = (from.id()?, f64::from_bits(from.u64()?));
                let said = from.u8()? != 0;
                let message = utf8(from.rest())?;
                Self::Progressed { id, progress, message: said.then_some(message) }
            }
            kind::LOGGED => {
                let (id, at_ms) = (from.id()?, from.u64()?);
                let level = Level::of(from.u8()?).ok_or(Malformed("no known level"))?;
                Self::Logged { id, at_ms, level, message: utf8(from.rest())? }
            }
            _ => return Ok(None),
        }))
    }
}
