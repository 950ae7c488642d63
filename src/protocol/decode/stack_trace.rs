//! The lines of a stack trace: as many as fit, since a failure must never fail for being talkative.

use super::value::item;
use crate::api::commands::FieldSpec;
use crate::api::error::Error;
use crate::protocol::msgpack::Reader;
use corq_shards::command::Stack;

/// Reads a list of texts and keeps the first of them, at most `bytes_max` as serialized.
pub(crate) fn read<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    bytes_max: usize,
) -> Result<Stack<'a>, Error> {
    let Some(count) = reader.array()? else { return Err(spec.wrong_type()) };
    let whole = reader.rest();
    let mut stack = Stack::default();
    for index in 0..count {
        item(spec, reader, index)?;
        let texts = &whole[..whole.len() - reader.rest().len()];
        if texts.len() <= bytes_max {
            stack = Stack { lines: stack.lines + 1, texts };
        }
    }
    Ok(stack)
}
