//! Specification of a field of a command: its kind, its bounds, and its default.

/// Values that a field can have, with their bounds (both ends included).
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
    /// A text out of these.
    Choice(&'static [&'static str]),
    /// A text out of these, or a list of them. An empty list counts as absent.
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
    /// Where a trace comes from, in the form of W3C Trace Context.
    Traceparent,
    /// Additions of vendors to a trace.
    Tracestate,
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
    /// An object with [`super::objects::BULK_FILTER_FIELDS`].
    BulkFilter,
    /// A list of objects with [`super::objects::FLOW_FIELDS`].
    Flow,
    /// An object with [`super::objects::FLOW_JOB_FIELDS`].
    FlowJob,
}

/// Value that an absent field counts as.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Preset {
    /// Nothing: the field has no default.
    Nothing,
    /// A whole number.
    Integer(i64),
    /// A text out of the field's choices.
    Text(&'static str),
    /// The boolean false.
    Off,
    /// An empty list.
    Empty,
}

/// A field of a command.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FieldSpec {
    /// The name on the wire.
    pub name: &'static str,
    /// The values that the field can have.
    pub kind: Kind,
    /// Whether the command is refused without it.
    pub required: bool,
    /// The value that an absent field counts as.
    pub default: Preset,
    /// Whether a number below its bound counts as absent in version 3 of the protocol.
    pub is_absent_below: bool,
    /// Whether no release of version 2 of the protocol sends it: a client that does speaks version 3.
    pub is_of_three: bool,
    /// Further values that version 3 of the protocol takes.
    pub on_three: Coercion,
}

/// Further values that version 3 of the protocol takes for a field, where version 2 refuses them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Coercion {
    /// Nothing more than in version 2.
    None,
    /// A number with a fraction as the whole number below, and a text that spells a number as that number.
    Number {
        /// Whether a fraction is refused all the same.
        is_whole: bool,
        /// Whether a number below the bound counts as the bound.
        from_least: bool,
    },
    /// A whole number as the text that spells it; in a list each of its items.
    Digits,
    /// Any value as true, except zero, what is no number, and the empty text.
    Truth,
}

impl Coercion {
    /// The coercion of most fields of a kind.
    const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Integer { .. } | Kind::Integers { .. } | Kind::Backoff => {
                Self::Number { is_whole: false, from_least: false }
            }
            Kind::Priority => Self::Number { is_whole: true, from_least: false },
            Kind::JobId | Kind::JobIds => Self::Digits,
            _ => Self::None,
        }
    }
}

impl Kind {
    /// The smallest number of those that have bounds.
    pub const fn least(self) -> Option<i64> {
        match self {
            Self::Integer { min, .. } | Self::Integers { min, .. } => Some(min),
            _ => None,
        }
    }
}

/// Mask of the required fields: a bit for each, by its place.
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
    FieldSpec {
        name,
        kind,
        required: true,
        default: Preset::Nothing,
        is_absent_below: false,
        is_of_three: false,
        on_three: Coercion::of(kind),
    }
}

pub(super) const fn optional(name: &'static str, kind: Kind) -> FieldSpec {
    FieldSpec {
        name,
        kind,
        required: false,
        default: Preset::Nothing,
        is_absent_below: false,
        is_of_three: false,
        on_three: Coercion::of(kind),
    }
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

    pub(super) const fn absent_below(self) -> Self {
        Self { is_absent_below: true, ..self }
    }

    pub(super) const fn of_three(self) -> Self {
        Self { is_of_three: true, ..self }
    }

    /// In version 3 a number below its bound counts as the bound.
    pub(super) const fn clamped(self) -> Self {
        let is_whole = matches!(self.on_three, Coercion::Number { is_whole: true, .. });
        Self { on_three: Coercion::Number { is_whole, from_least: true }, ..self }
    }

    /// In version 3 a number may be a text, but has no fraction.
    pub(super) const fn whole(self) -> Self {
        Self { on_three: Coercion::Number { is_whole: true, from_least: false }, ..self }
    }

    /// In version 3 a text may be a number.
    pub(super) const fn digits(self) -> Self {
        Self { on_three: Coercion::Digits, ..self }
    }

    /// In version 3 any value is true or false.
    pub(super) const fn truth(self) -> Self {
        Self { on_three: Coercion::Truth, ..self }
    }

    /// Version 3 takes nothing for it that version 2 does not.
    pub(super) const fn strict(self) -> Self {
        Self { on_three: Coercion::None, ..self }
    }

    pub(super) const fn or_empty(self) -> Self {
        Self { default: Preset::Empty, ..self }
    }
}
