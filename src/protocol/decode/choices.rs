//! Fields that hold one of some words, or a list of them.

use crate::api::commands::FieldSpec;
use crate::api::error::Error;

use super::value::{Value, item, text};
use crate::protocol::msgpack::Reader;

/// Reads the words as a mask: a bit for each, by its place in `choices`.
pub(crate) fn read_choices<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    choices: &[&str],
) -> Result<Value<'a>, Error> {
    let bit = |chosen: &str| choices.iter().position(|choice| *choice == chosen).map(|at| 1 << at);
    let Some(count) = reader.array()? else {
        let mask = bit(text(spec, reader)?).ok_or_else(|| spec.out_of_bounds())?;
        return Ok(Value::Mask(mask));
    };
    let mut mask = 0;
    for index in 0..count {
        mask |= bit(item(spec, reader, index)?).ok_or_else(|| spec.wrong_item(index))?;
    }
    Ok(if mask == 0 { Value::Nothing } else { Value::Mask(mask) })
}
