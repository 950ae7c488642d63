//! Records of the server as structs: maps by the names of their fields, read one after the other. Fields that
//! are not known are passed over, those that are nil or missing keep their default.

use std::collections::BTreeMap;

use super::read::{Malformed, Number, Read, Reader};
use crate::raw::Raw;

/// Types that can be read out of a reply.
pub(crate) trait FromWire: Sized {
    fn read(reader: &mut Reader<'_>) -> Read<Self>;
}

impl FromWire for bool {
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        reader.bool()
    }
}

impl FromWire for u64 {
    /// Integers beyond 32 bits travel as floats.
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        match reader.number()? {
            Number::Whole(number) => Ok(number),
            Number::Float(number) if number >= 0.0 => Ok(number as u64),
            _ => Err(Malformed("a number from zero was expected")),
        }
    }
}

impl FromWire for i64 {
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match reader.number()? {
            Number::Whole(number) => i64::try_from(number).unwrap_or(i64::MAX),
            Number::Negative(number) => number,
            Number::Float(number) => number as i64,
        })
    }
}

impl FromWire for f64 {
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match reader.number()? {
            Number::Whole(number) => number as f64,
            Number::Negative(number) => number as f64,
            Number::Float(number) => number,
        })
    }
}

impl FromWire for String {
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        reader.str().map(str::to_owned)
    }
}

impl FromWire for Raw {
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        reader.raw()
    }
}

impl<T: FromWire> FromWire for Option<T> {
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        if reader.nil() { Ok(None) } else { T::read(reader).map(Some) }
    }
}

impl<T: FromWire> FromWire for Vec<T> {
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let items = reader.array()?;
        // Reserve at most 1024 items: a list's stated length is not trusted with more memory.
        let mut list = Vec::with_capacity(items.min(1024));
        for _ in 0..items {
            list.push(T::read(reader)?);
        }
        Ok(list)
    }
}

impl<T: FromWire> FromWire for BTreeMap<String, T> {
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        (0..reader.map()?).map(|_| Ok((String::read(reader)?, T::read(reader)?))).collect()
    }
}

/// A struct and the names of its fields on the wire.
macro_rules! record {
    ($(#[$about:meta])* $name:ident {
        $($(#[$field_about:meta])* $field:ident: $kind:ty = $key:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_about])* pub $field: $kind,)*
        }

        impl $crate::wire::record::FromWire for $name {
            fn read(reader: &mut $crate::wire::read::Reader<'_>) -> $crate::wire::read::Read<Self> {
                let mut record = Self::default();
                for _ in 0..reader.map()? {
                    let key = reader.str()?;
                    if reader.nil() {
                        continue;
                    }
                    match key {
                        $($key => {
                            record.$field = $crate::wire::record::FromWire::read(reader)?;
                        })*
                        _ => reader.skip()?,
                    }
                }
                Ok(record)
            }
        }
    };
}

pub(crate) use record;
