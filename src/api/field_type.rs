//! Types of the fields of commands: which specifications each can hold. What stands in the bytes is checked against
//! the specification alone, so a type that holds less would lose some of it.

use super::field::{FieldSpec, Kind, Preset};
use super::flow::FlowJob;
use super::limits::LARGE_BYTES_MIN;
use crate::protocol::msgpack::Texts;
use corq_shards::command::{Stack, Token};
use corq_shards::dead_letter::policy::{DlqPatch, StallPatch};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::job_change::Level;

/// Values that a type can hold.
#[derive(Clone, Copy, Debug)]
pub enum Held {
    /// A text; empty for none, where an empty one counts as none.
    Text,
    /// A text or none.
    MaybeText,
    /// The bytes of a text that may have megabytes, or none: it is checked once, where it comes in.
    MaybeLargeText,
    /// The name of a job.
    Job,
    /// The name of a job, or none.
    MaybeJob,
    /// A token or none.
    Token,
    /// A value as it came; empty for none.
    Value,
    /// A whole number between these.
    Integer(i64, i64),
    /// A whole number from 0, or none; one below 0 counts as none.
    MaybeInteger,
    Number,
    /// A boolean; false for none.
    Flag,
    /// A boolean or none.
    MaybeFlag,
    /// A choice among this many texts.
    Choice(usize),
    /// A set of texts, or none.
    Choices,
    /// A list of texts; empty for none.
    Texts,
    /// The lines of a stack trace.
    Stack,
    /// Jobs to be pushed.
    Jobs,
    /// Jobs of a flow.
    Flow,
    /// Settings of a dead-letter queue.
    DlqConfig,
    /// Settings of stalled jobs.
    StallConfig,
    /// Several fields, put together by a function of the decoder.
    Several,
}

impl Held {
    /// Whether it holds all that a field lets through.
    pub const fn holds(self, field: &FieldSpec) -> bool {
        let known = field.required || !matches!(field.default, Preset::Nothing);
        match (self, field.kind) {
            (Self::MaybeText | Self::MaybeLargeText, Kind::LongText { bytes_max, .. }) => {
                let is_large = bytes_max >= LARGE_BYTES_MIN;
                !field.required && is_large == matches!(self, Self::MaybeLargeText)
            }
            (Self::MaybeText, Kind::Queue | Kind::Text { .. }) | (Self::MaybeJob, Kind::JobId) => {
                !field.required
            }
            (Self::Text, Kind::Queue | Kind::Text { .. })
            | (Self::Job, Kind::JobId)
            | (Self::Number, Kind::Number { .. }) => field.required,
            (Self::Integer(least, most), Kind::Integer { min, max }) => {
                known && least <= min && max <= most
            }
            (Self::MaybeInteger, Kind::Integer { min, .. }) => min < 0 || !known,
            (Self::Flag, Kind::Flag) => known,
            (Self::MaybeFlag, Kind::Flag) => !known,
            (Self::Choice(count), Kind::Choice(choices)) => known && choices.len() == count,
            (Self::Text, Kind::LongText { .. })
            | (Self::Token, Kind::Token)
            | (Self::Value, Kind::Payload { .. })
            | (Self::Choices, Kind::Choices(_))
            | (Self::Texts, Kind::Texts { .. } | Kind::TextsOf(_) | Kind::Queues { .. })
            | (Self::Stack, Kind::Stack { .. })
            | (Self::Jobs, Kind::Jobs)
            | (Self::Flow, Kind::Flow)
            | (Self::DlqConfig, Kind::DlqConfig)
            | (Self::StallConfig, Kind::StallConfig) => true,
            _ => false,
        }
    }
}

/// A type that a field of a command can have.
pub trait FieldType {
    /// The values that the type can hold.
    const HELD: Held;

    /// How many jobs the value lists.
    fn items(&self) -> usize {
        0
    }
}

/// Types that list no jobs.
macro_rules! field_types {
    ($($type:ty => $held:expr;)*) => {
        $(impl FieldType for $type {
            const HELD: Held = $held;
        })*
    };
}
pub(super) use field_types;

field_types! {
    &str => Held::Text;
    Option<&str> => Held::MaybeText;
    Option<&[u8]> => Held::MaybeLargeText;
    Option<Token> => Held::Token;
    &[u8] => Held::Value;
    u32 => Held::Integer(0, u32::MAX as i64);
    i32 => Held::Integer(i32::MIN as i64, i32::MAX as i64);
    u64 => Held::Integer(0, i64::MAX);
    Option<u64> => Held::MaybeInteger;
    f64 => Held::Number;
    bool => Held::Flag;
    Option<bool> => Held::MaybeFlag;
    Level => Held::Choice(3);
    Cause => Held::Choice(7);
    Texts<'_> => Held::Texts;
    Stack<'_> => Held::Stack;
    DlqPatch => Held::DlqConfig;
    StallPatch => Held::StallConfig;
    NewJob<'_> => Held::Several;
}

impl FieldType for Vec<NewJob<'_>> {
    const HELD: Held = Held::Jobs;

    fn items(&self) -> usize {
        self.len()
    }
}

impl FieldType for Vec<FlowJob<'_>> {
    const HELD: Held = Held::Flow;

    fn items(&self) -> usize {
        self.len()
    }
}
