//! Messages in the encoding of Protocol Buffers: fields by their numbers. As much of it as asynq uses.

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field<'a> {
    Integer(u64),
    Bytes(&'a [u8]),
}

/// A message whose edges are right.
#[derive(Debug)]
pub struct Message<'a>(Vec<(u32, Field<'a>)>);

impl<'a> Message<'a> {
    /// Reads one; `None` if it is none.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let (mut rest, mut fields) = (bytes, Vec::new());
        while !rest.is_empty() {
            let key = varint(&mut rest)?;
            let field = match key & 7 {
                0 => Field::Integer(varint(&mut rest)?),
                1 => Field::Integer(u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?)),
                2 => {
                    let length = usize::try_from(varint(&mut rest)?).ok()?;
                    Field::Bytes(take(&mut rest, length)?)
                }
                5 => Field::Integer(u64::from(u32::from_le_bytes(
                    take(&mut rest, 4)?.try_into().ok()?,
                ))),
                _ => return None,
            };
            fields.push((u32::try_from(key >> 3).ok()?, field));
        }
        Some(Self(fields))
    }

    /// The last field of a number, which counts.
    fn field(&self, number: u32) -> Option<Field<'a>> {
        self.0.iter().rev().find(|(known, _)| *known == number).map(|(_, field)| *field)
    }

    pub fn bytes(&self, number: u32) -> &'a [u8] {
        match self.field(number) {
            Some(Field::Bytes(bytes)) => bytes,
            _ => &[],
        }
    }

    /// All of a number.
    pub fn all(&self, number: u32) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter_map(move |(known, field)| match field {
            Field::Bytes(bytes) if *known == number => Some(*bytes),
            _ => None,
        })
    }

    pub fn text(&self, number: u32) -> &'a str {
        std::str::from_utf8(self.bytes(number)).unwrap_or_default()
    }

    pub fn integer(&self, number: u32) -> i64 {
        match self.field(number) {
            Some(Field::Integer(value)) => value as i64,
            _ => 0,
        }
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..10 {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        value |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_numbers() {
        // 1: "ab", 5: 300, 5: 301, 20: fixed64.
        let bytes = [10, 2, b'a', b'b', 40, 0xac, 2, 40, 0xad, 2, 0xa1, 1, 1, 0, 0, 0, 0, 0, 0, 0];
        let message = Message::of(&bytes).unwrap();
        assert_eq!((message.text(1), message.integer(5), message.integer(20)), ("ab", 301, 1));
        assert_eq!((message.text(2), message.integer(9)), ("", 0));
        assert_eq!(message.all(1).count(), 1);
    }

    #[test]
    fn what_is_cut_is_no_message() {
        for bytes in [&[10, 5, b'a'][..], &[40], &[0xff; 11], &[0x0b]] {
            assert!(Message::of(bytes).is_none(), "{bytes:?}");
        }
    }
}
