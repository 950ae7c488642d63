//! The words in which a wrong request is refused, the same on every surface.
//!
//! Only built when something is wrong, so nothing here is hurried. The form of the sentences is
//! `<field> is required`, `<field> must be <type>`, `<field> must be between A and B`.

use super::error::Error;
use super::field::{FieldSpec, Kind};
use super::limits::{DEPTH_MAX, PRIORITY_MAX, QUEUE_CHARS_MAX};
use corq_shards::job::trace::{MEMBERS_MAX, STATE_BYTES_MAX};

impl FieldSpec {
    /// The refusal of a command without this field.
    #[cold]
    pub fn missing(&self) -> Error {
        Error::required(self.name)
    }

    /// The refusal of a value of another type.
    #[cold]
    pub fn wrong_type(&self) -> Error {
        Error::must_be(self.name, self.kind.noun())
    }

    /// The refusal of a value of the right type outside its bounds.
    #[cold]
    pub fn out_of_bounds(&self) -> Error {
        Error::must_be(self.name, self.kind.bounds())
    }

    /// The refusal of a list for one of its items.
    #[cold]
    pub fn wrong_item(&self, index: usize) -> Error {
        Error::item_must_be(self.name, index, self.kind.item())
    }

    /// The refusal of a second value for the same field.
    #[cold]
    pub fn repeated(&self) -> Error {
        Error::given_twice(self.name)
    }

    /// The refusal of a text that is none.
    #[cold]
    pub fn not_utf8(&self) -> Error {
        Error::must_be(self.name, "valid UTF-8")
    }

    /// The refusal of a payload whose lists and maps nest too deep.
    #[cold]
    pub fn too_deep(&self) -> Error {
        Error::must_be(self.name, format_args!("at most {DEPTH_MAX} levels deep"))
    }
}

impl Kind {
    /// The type, as the sentence needs it.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Queue
            | Self::Text { .. }
            | Self::LongText { .. }
            | Self::JobId
            | Self::Token
            | Self::Traceparent
            | Self::Tracestate
            | Self::Choice(_) => "a string",
            Self::Queues { .. }
            | Self::Texts { .. }
            | Self::Stack { .. }
            | Self::TextsOf(_)
            | Self::JobIds
            | Self::Tokens => "a list of strings",
            Self::Choices(_) => "a string or a list of strings",
            Self::Integer { .. } | Self::Priority => "an integer",
            Self::Number { .. } => "a number",
            Self::Flag => "a boolean",
            Self::Payload { .. } => "a value",
            Self::Backoff => "an integer or an object",
            Self::Repeat
            | Self::Dedup
            | Self::GroupPull
            | Self::GroupRate
            | Self::CronJob
            | Self::DlqConfig
            | Self::StallConfig
            | Self::DlqFilter
            | Self::BulkFilter
            | Self::FlowJob => "an object",
            Self::Results => "a list",
            Self::Flags => "a list of booleans",
            Self::Integers { .. } => "a list of integers",
            Self::Jobs | Self::Flow => "a list of objects",
        }
    }

    /// The bounds, as the sentence needs them. Also what the documentation prints.
    pub fn bounds(&self) -> String {
        match self {
            Self::Queue => queue_rule(),
            Self::Text { chars_min, chars_max } => {
                format!("between {chars_min} and {chars_max} characters")
            }
            Self::Traceparent => {
                "00-<32 digits>-<16 digits>-<2 digits> in lower-case hexadecimal digits, not all 0"
                    .into()
            }
            Self::Tracestate => {
                format!(
                    "a list of at most {MEMBERS_MAX} key=value, at most {STATE_BYTES_MAX} bytes"
                )
            }
            Self::JobId => item_characters(super::limits::NAME_CHARS_MAX),
            Self::LongText { bytes_max, .. }
            | Self::Payload { bytes_max }
            | Self::Stack { bytes_max } => {
                format!("at most {}", size(*bytes_max))
            }
            Self::Queues { items_max } | Self::Texts { items_max, .. } => {
                format!("at most {items_max} items")
            }
            Self::JobIds
            | Self::Jobs
            | Self::Flow
            | Self::Tokens
            | Self::Results
            | Self::Flags
            | Self::Integers { .. } => {
                format!("at most {} items", super::limits::BATCH_MAX)
            }
            Self::TextsOf(choices) => format!("at most {} items", choices.len()),
            Self::Choice(choices) | Self::Choices(choices) => {
                format!("one of {}", choices.join(", "))
            }
            Self::Integer { min, max } => format!("between {min} and {max}"),
            Self::Number { min, max } => format!("between {min} and {max}"),
            Self::Priority => format!("between {} and {PRIORITY_MAX}", -PRIORITY_MAX),
            Self::Backoff => format!("between 0 and {}", super::limits::DAY_MS),
            Self::Token
            | Self::Flag
            | Self::Repeat
            | Self::Dedup
            | Self::GroupPull
            | Self::GroupRate
            | Self::CronJob
            | Self::DlqConfig
            | Self::StallConfig
            | Self::DlqFilter
            | Self::BulkFilter
            | Self::FlowJob => self.noun().to_owned(),
        }
    }

    /// The rule for an item of a list.
    fn item(&self) -> String {
        match self {
            Self::Queues { .. } => queue_rule(),
            Self::Texts { chars_max, .. } => item_characters(*chars_max),
            Self::JobIds => item_characters(super::limits::NAME_CHARS_MAX),
            Self::TextsOf(choices) | Self::Choices(choices) => {
                format!("one of {}", choices.join(", "))
            }
            Self::Results => {
                let most = size(super::limits::PAYLOAD_BYTES_MAX);
                format!("a value of at most {most} and {DEPTH_MAX} levels, all text in UTF-8")
            }
            Self::Jobs | Self::Flow => "an object".to_owned(),
            Self::Flags => "a boolean".to_owned(),
            Self::Integers { min, max } => format!("an integer between {min} and {max}"),
            _ => "a string".to_owned(),
        }
    }
}

fn item_characters(chars_max: u32) -> String {
    format!("a string of 1 to {chars_max} characters")
}

fn queue_rule() -> String {
    format!("1 to {QUEUE_CHARS_MAX} characters: letters, digits, _ - . :")
}

fn size(bytes: u32) -> String {
    const MB: u32 = 1024 * 1024;
    if bytes.is_multiple_of(MB) {
        format!("{} MB", bytes / MB)
    } else {
        format!("{} KB", bytes / 1024)
    }
}
