//! What one field of a command is: its kind, its bounds, and what it counts as when it is absent.

/// What a field holds, and within which bounds (both ends included).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// A queue name: 1 to 256 of letters, digits, `_ - . :`.
    Queue,
    /// A list of queue names.
    Queues {
        /// Most names.
        items_max: u32,
    },
    /// A text measured in characters.
    Text {
        /// Fewest characters.
        chars_min: u32,
        /// Most characters.
        chars_max: u32,
    },
    /// A text measured in bytes.
    LongText {
        /// Most bytes of UTF-8.
        bytes_max: u32,
        /// Whether a longer one is cut at a character's edge instead of refused.
        cut: bool,
    },
    /// A list of texts.
    Texts {
        /// Most texts.
        items_max: u32,
        /// Most characters of each; none may be empty.
        chars_max: u32,
    },
    /// A list of texts, of which as many are kept as fit together; the others are left out.
    Stack {
        /// Most bytes of all as serialized.
        bytes_max: u32,
    },
    /// A list of texts out of these.
    TextsOf(&'static [&'static str]),
    /// One text out of these.
    Choice(&'static [&'static str]),
    /// One text out of these, or a list of them. An empty list counts as absent.
    Choices(&'static [&'static str]),
    /// A whole number.
    Integer {
        /// The smallest value.
        min: i64,
        /// The largest value.
        max: i64,
    },
    /// A number that may have a fraction.
    Number {
        /// The smallest value.
        min: i32,
        /// The largest value.
        max: i32,
    },
    /// True or false.
    Flag,
    /// Any value, at most so many bytes as serialized.
    Payload {
        /// Most bytes.
        bytes_max: u32,
    },
    /// Base of the backoff in milliseconds: a whole number, or an object with [`super::objects::BACKOFF_FIELDS`].
    Backoff,
    /// An object with [`super::objects::REPEAT_FIELDS`].
    Repeat,
    /// The id of a job, given by the server or by the client: 1 to 256 characters.
    JobId,
    /// A list of job ids, as a batch.
    JobIds,
    /// A lock token. An empty text counts as absent.
    Token,
    /// Lock tokens in the order of the ids; entries may be null or empty for none.
    Tokens,
    /// Results in the order of the ids.
    Results,
    /// True or false, or null, in the order of the ids.
    Flags,
    /// Whole numbers in the order of the ids.
    Integers {
        /// The smallest value.
        min: i64,
        /// The largest value.
        max: i64,
    },
    /// A list of objects with [`super::objects::JOB_FIELDS`].
    Jobs,
    /// An object with [`super::objects::DEDUP_FIELDS`].
    Dedup,
    /// A whole number. Its bounds are others for a job in a group; who puts the job together minds them.
    Priority,
    /// An object with [`super::objects::GROUP_PULL_FIELDS`].
    GroupPull,
    /// An object with [`super::objects::GROUP_RATE_FIELDS`].
    GroupRate,
    /// An object with [`super::objects::CRON_JOB_FIELDS`].
    CronJob,
    /// An object with [`super::objects::DLQ_CONFIG_FIELDS`].
    DlqConfig,
    /// An object with [`super::objects::STALL_CONFIG_FIELDS`].
    StallConfig,
    /// An object with [`super::objects::DLQ_FILTER_FIELDS`].
    DlqFilter,
    /// A list of objects with [`super::objects::FLOW_FIELDS`].
    Flow,
    /// An object with [`super::objects::FLOW_JOB_FIELDS`].
    FlowJob,
}

/// What an absent field counts as.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Preset {
    /// Nothing: the field has no default.
    Nothing,
    /// A whole number.
    Integer(i64),
    /// One of the field's choices.
    Text(&'static str),
    /// The boolean false.
    Off,
    /// An empty list.
    Empty,
}

/// One field of a command.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FieldSpec {
    /// The name on the wire.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether the command is refused without it.
    pub required: bool,
    /// What it counts as when absent.
    pub default: Preset,
}

/// One bit for each field, by its place, that is required.
pub const fn required_of(fields: &[FieldSpec]) -> u64 {
    let mut mask = 0;
    let mut at = 0;
    while at < fields.len() {
        if fields[at].required {
            mask |= 1 << at;
        }
        at += 1;
    }
    mask
}

pub(super) const fn required(name: &'static str, kind: Kind) -> FieldSpec {
    FieldSpec { name, kind, required: true, default: Preset::Nothing }
}

pub(super) const fn optional(name: &'static str, kind: Kind) -> FieldSpec {
    FieldSpec { name, kind, required: false, default: Preset::Nothing }
}

pub(super) const fn integer(name: &'static str, min: i64, max: i64) -> FieldSpec {
    optional(name, Kind::Integer { min, max })
}

pub(super) const fn flag(name: &'static str) -> FieldSpec {
    FieldSpec { default: Preset::Off, ..optional(name, Kind::Flag) }
}

impl FieldSpec {
    pub(super) const fn or(self, default: i64) -> Self {
        Self { default: Preset::Integer(default), ..self }
    }

    pub(super) const fn must(self) -> Self {
        Self { required: true, ..self }
    }

    pub(super) const fn or_empty(self) -> Self {
        Self { default: Preset::Empty, ..self }
    }
}
