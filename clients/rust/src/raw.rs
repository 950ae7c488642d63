//! Payloads: any serde value in and out, and values that are encoded already, passed through as they are.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::wire::encode::Encoder;
use crate::wire::read::Reader;

/// A `MessagePack` value as bytes: the data of a job, or a result.
///
/// A `Raw` shares the memory of the frame that it came in, and is sent again without a copy. Decoding happens in
/// [`Raw::decode`] only.
///
/// ```
/// use corq_client::Raw;
///
/// let raw = Raw::encode(&("ada", 36))?;
/// let (name, age): (&str, u32) = raw.decode()?;
/// assert_eq!((name, age), ("ada", 36));
/// assert!(Raw::from_msgpack(&[0x92, 0x01][..]).is_err(), "a list of two with one item");
/// # Ok::<(), corq_client::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Raw(Bytes);

impl Raw {
    /// Takes bytes that are one `MessagePack` value. That they are is checked; the bytes are not copied.
    pub fn from_msgpack(bytes: impl Into<Bytes>) -> Result<Self, Error> {
        let bytes = bytes.into();
        let mut reader = Reader::new(&bytes);
        let whole = reader.skip().is_ok() && reader.at() == bytes.len();
        if whole {
            Ok(Self(bytes))
        } else {
            Err(Error::Payload("the bytes are not one value".into()))
        }
    }

    /// Writes any value.
    pub fn encode<P: Payload + ?Sized>(value: &P) -> Result<Self, Error> {
        let mut encoder = Encoder::default();
        value.encode(&mut encoder)?;
        Ok(Self(encoder.into_bytes()))
    }

    /// A value that was cut out of a frame by its own length.
    pub(crate) fn of_value(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Reads it as a value of any type. Texts and bytes may be borrowed.
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Error> {
        decode(&self.0)
    }

    /// The encoded value, in `MessagePack`.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Whether it is nil, which is also what stands for nothing.
    pub fn is_nil(&self) -> bool {
        *self.0 == [0xc0]
    }
}

/// Reads one value. Types that have a form for people are read in it, as they are written in it.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(bytes).with_human_readable();
    T::deserialize(&mut deserializer).map_err(|error| Error::Payload(error.to_string().into()))
}

impl Default for Raw {
    /// The value nil.
    fn default() -> Self {
        Self(Bytes::from_static(&[0xc0]))
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Raw({} bytes)", self.0.len())
    }
}

/// Types that can be the data of a job or its result: every type that serde can write, and [`Raw`].
///
/// Structs are written as maps by the names of their fields, and types that have a form for people (UUIDs,
/// addresses, times) in that form, so that clients in other languages read what they would expect. Nil counts as
/// nothing: `()` is no result, and is refused as the data of a job.
pub trait Payload: Encode {}

impl<T: Encode + ?Sized> Payload for T {}

/// How a payload gets into a request. Not to be implemented elsewhere.
pub trait Encode {
    #[doc(hidden)]
    fn encode(&self, encoder: &mut Encoder) -> Result<(), Error>;
}

impl<T: Serialize + ?Sized> Encode for T {
    fn encode(&self, encoder: &mut Encoder) -> Result<(), Error> {
        encoder.serialize(self)
    }
}

impl Encode for Raw {
    fn encode(&self, encoder: &mut Encoder) -> Result<(), Error> {
        encoder.raw(self);
        Ok(())
    }
}
