//! How many bytes a command can need: what its fields may hold together, as serialized, and some more for what is around
//! them. A frame that is longer is refused by its length, before it has come.

use super::field::{FieldSpec, Kind};
use super::limits::{
    BATCH_BYTES_MAX, LINE_CHARS_MAX, NAME_CHARS_MAX, PAYLOAD_BYTES_MAX, QUEUE_CHARS_MAX,
    SEARCH_VALUE_BYTES_MAX,
};
use corq_shards::job::trace::STATE_BYTES_MAX;

/// For names of fields, a `reqId`, and fields that are not known.
const AROUND_BYTES: usize = 64 << 10;

/// Bytes of fields that are not known, in all of a frame: they are looked through for their end, for nothing.
pub const IGNORED_BYTES_MAX: usize = 64 << 10;

/// Entries that a frame can need: what the server does not know is two bytes at least of [`IGNORED_BYTES_MAX`], and commands
/// have few fields. A long one of more is refused before they are looked at.
pub const ENTRIES_MAX: usize = IGNORED_BYTES_MAX / 2 + 1024;

/// An object with fields of its own, all of them numbers and short texts.
const OBJECT_BYTES: usize = 4 << 10;

/// A list of which only the front is kept may be longer than that.
const STACK_BYTES: usize = 1 << 20;

const SCALAR_BYTES: usize = 16;

/// Most bytes of a character, and of what stands before a text.
const CHAR_BYTES: usize = 4;
const HEAD_BYTES: usize = 5;

const fn text_bytes(chars_max: u32) -> usize {
    chars_max as usize * CHAR_BYTES + HEAD_BYTES
}

const fn kind_bytes(kind: Kind) -> usize {
    match kind {
        Kind::Queue => text_bytes(QUEUE_CHARS_MAX),
        Kind::Queues { items_max } => items_max as usize * text_bytes(QUEUE_CHARS_MAX),
        Kind::Text { chars_max, .. } => text_bytes(chars_max),
        Kind::Traceparent | Kind::Tracestate => text_bytes(STATE_BYTES_MAX as u32),
        // A text that is cut is taken whatever its length is.
        Kind::LongText { cut: true, .. } => PAYLOAD_BYTES_MAX as usize,
        Kind::LongText { bytes_max, .. } | Kind::Payload { bytes_max } => {
            bytes_max as usize + HEAD_BYTES
        }
        Kind::Texts { items_max, chars_max } => items_max as usize * text_bytes(chars_max),
        Kind::Stack { .. } => STACK_BYTES,
        Kind::TextsOf(texts) | Kind::Choice(texts) | Kind::Choices(texts) => {
            (texts.len() + 1) * text_bytes(NAME_CHARS_MAX)
        }
        Kind::Integer { .. } | Kind::Number { .. } | Kind::Flag | Kind::Priority => SCALAR_BYTES,
        Kind::JobId | Kind::Token => text_bytes(NAME_CHARS_MAX),
        Kind::Backoff
        | Kind::Repeat
        | Kind::Dedup
        | Kind::GroupPull
        | Kind::GroupRate
        | Kind::CronJob
        | Kind::DlqConfig
        | Kind::StallConfig
        | Kind::DlqFilter => OBJECT_BYTES,
        Kind::BulkFilter => {
            OBJECT_BYTES + SEARCH_VALUE_BYTES_MAX as usize + 8 * text_bytes(LINE_CHARS_MAX)
        }
        Kind::JobIds
        | Kind::Tokens
        | Kind::Results
        | Kind::Flags
        | Kind::Integers { .. }
        | Kind::Jobs
        | Kind::Flow
        | Kind::FlowJob => BATCH_BYTES_MAX,
    }
}

/// Most bytes of a command with these fields.
pub const fn bytes_max(fields: &[FieldSpec]) -> usize {
    let (mut bytes, mut at) = (AROUND_BYTES, 0);
    while at < fields.len() {
        bytes += kind_bytes(fields[at].kind);
        at += 1;
    }
    if bytes < BATCH_BYTES_MAX { bytes } else { BATCH_BYTES_MAX }
}
