//! Rows of the table of records, made of parts that are measured, written, read and shown one after the other.
//!
//! A row names its parts once; the macros make the type and its four walks of them, so that they cannot differ. What a row
//! cannot say (parts that are there or not, kinds that are versions of one fact) is a type with a [`Body`] of its own.
//!
//! ```text
//! 28 "log-cut" => LogCut { id: JobId = "id", keep: u32 = "keepLogs" },
//! number  name    variant   part and its type, and the name that it is shown by
//! ```
//!
//! The last part may take all that is left of the record: `..payload` if that is the payload, which is kept out of memory and
//! read back on its own, `..rest` if it is not.

use crate::job::id::JobId;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::show::Show;

/// A part of a record with a length of its own.
pub(crate) trait Part<'a>: Sized {
    fn encoded_len(&self) -> usize;
    fn encode(&self, out: &mut Writer<'_>);
    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed>;
    fn show(&self, name: &'static str, to: &mut impl Show);
}

/// A part that takes all that is left of a record.
pub(crate) trait Tail<'a>: Sized {
    fn encoded_len(&self) -> usize;
    /// How much of it is payload, if it is said to be.
    fn payload_len(&self) -> usize {
        self.encoded_len()
    }
    fn encode(&self, out: &mut Writer<'_>);
    fn decode(from: Reader<'a>) -> Result<Self, Malformed>;
    fn show(&self, name: &'static str, to: &mut impl Show);
}

/// All of a record behind its kind and its version.
pub(crate) trait Body<'a>: Sized {
    fn encoded_len(&self) -> usize;
    /// How much of its end is payload.
    fn payload_len(&self) -> usize {
        0
    }
    fn encode(&self, out: &mut Writer<'_>);
    /// Reads it back. `kind` is one of those of its row.
    fn decode(kind: u8, from: Reader<'a>) -> Result<Self, Malformed>;
    fn show(&self, to: &mut impl Show);
}

impl<'a, T: Body<'a>> Body<'a> for Box<T> {
    fn encoded_len(&self) -> usize {
        T::encoded_len(self)
    }

    fn payload_len(&self) -> usize {
        T::payload_len(self)
    }

    fn encode(&self, out: &mut Writer<'_>) {
        T::encode(self, out);
    }

    fn decode(kind: u8, from: Reader<'a>) -> Result<Self, Malformed> {
        T::decode(kind, from).map(Box::new)
    }

    fn show(&self, to: &mut impl Show) {
        T::show(self, to);
    }
}

/// Parts of a fixed length: the type, how it is written, read and shown.
macro_rules! fixed {
    ($( $type:ty, $len:literal, $write:expr, $read:expr, $show:expr; )*) => {$(
        impl Part<'_> for $type {
            #[inline]
            fn encoded_len(&self) -> usize {
                $len
            }

            #[inline]
            fn encode(&self, out: &mut Writer<'_>) {
                $write(out, *self);
            }

            #[inline]
            fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                $read(from)
            }

            fn show(&self, name: &'static str, to: &mut impl Show) {
                $show(to, name, *self);
            }
        }
    )*};
}

fixed! {
    u32, 4, Writer::u32, Reader::u32, |to: &mut _, name, value| Show::uint(to, name, u64::from(value));
    u64, 8, Writer::u64, Reader::u64, Show::uint;
    JobId, 16, Writer::id, Reader::id, Show::id;
    // An id that is no job's.
    u128, 16, |out: &mut Writer<'_>, id| out.id(JobId(id)), |from: &mut Reader<'_>| from.id().map(|id| id.0),
        |to: &mut _, name, id| Show::id(to, name, JobId(id));
    bool, 1, |out: &mut Writer<'_>, value| out.u8(u8::from(value)), |from: &mut Reader<'_>| from.u8().map(|byte| byte != 0),
        Show::bool;
    f64, 8, |out: &mut Writer<'_>, value: f64| out.u64(value.to_bits()), |from: &mut Reader<'_>| from.u64().map(f64::from_bits),
        Show::number;
    // Nothing is written as 0, which is no value of its own.
    Option<u64>, 8, |out: &mut Writer<'_>, value: Option<u64>| out.u64(value.unwrap_or(0)),
        |from: &mut Reader<'_>| from.u64().map(|value| (value > 0).then_some(value)), Show::uint_or_nil;
}

/// A text behind its length.
impl<'a> Part<'a> for &'a str {
    fn encoded_len(&self) -> usize {
        2 + self.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.short(self.as_bytes());
    }

    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        from.text()
    }

    fn show(&self, name: &'static str, to: &mut impl Show) {
        to.text(name, self);
    }
}

/// A text that ends the record.
impl<'a> Tail<'a> for &'a str {
    #[inline]
    fn encoded_len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(self.as_bytes());
    }

    #[inline]
    fn decode(from: Reader<'a>) -> Result<Self, Malformed> {
        from.rest_text()
    }

    fn show(&self, name: &'static str, to: &mut impl Show) {
        to.text(name, self);
    }
}

/// A byte that says whether there is a text, and its bytes. It may have megabytes, and was checked where it came in.
impl<'a> Tail<'a> for Option<&'a [u8]> {
    fn encoded_len(&self) -> usize {
        1 + self.payload_len()
    }

    fn payload_len(&self) -> usize {
        self.unwrap_or_default().len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(u8::from(self.is_some()));
        out.bytes(self.unwrap_or_default());
    }

    fn decode(mut from: Reader<'a>) -> Result<Self, Malformed> {
        let is_some = from.u8()? != 0;
        let text = from.rest();
        Ok(is_some.then_some(text))
    }

    fn show(&self, name: &'static str, to: &mut impl Show) {
        to.some_text(name, self.map(String::from_utf8_lossy).as_deref());
    }
}

/// A walk over the parts of a row. Each part is in a variable of its name, a body in `$body`.
macro_rules! row {
    (@pattern $variant:ident ($type:ty) $body:ident) => { Self::$variant($body) };
    (@pattern $variant:ident {
        $( $part:ident : $type:ty = $shown:literal ),* $(,)?
        $( .. $sort:ident $tail:ident : $tail_type:ty = $tail_shown:literal )?
    } $body:ident) => {
        Self::$variant { $( $part, )* $( $tail )? }
    };

    (@len ($type:ty) $body:ident) => { <$type as $crate::log_record::row::Body<'_>>::encoded_len($body) };
    (@len {
        $( $part:ident : $type:ty = $shown:literal ),* $(,)?
        $( .. $sort:ident $tail:ident : $tail_type:ty = $tail_shown:literal )?
    } $body:ident) => {
        0 $( + $crate::log_record::row::Part::encoded_len($part) )*
            $( + $crate::log_record::row::Tail::encoded_len($tail) )?
    };

    (@payload ($type:ty) $body:ident) => { <$type as $crate::log_record::row::Body<'_>>::payload_len($body) };
    (@payload {
        $( $part:ident : $type:ty = $shown:literal ),* $(,)?
        .. payload $tail:ident : $tail_type:ty = $tail_shown:literal
    } $body:ident) => {
        $crate::log_record::row::Tail::payload_len($tail)
    };
    (@payload { $( $part:tt )* } $body:ident) => { 0 };

    (@encode ($type:ty) $body:ident $out:ident) => {
        <$type as $crate::log_record::row::Body<'_>>::encode($body, $out)
    };
    (@encode {
        $( $part:ident : $type:ty = $shown:literal ),* $(,)?
        $( .. $sort:ident $tail:ident : $tail_type:ty = $tail_shown:literal )?
    } $body:ident $out:ident) => {{
        $( $crate::log_record::row::Part::encode($part, $out); )*
        $( $crate::log_record::row::Tail::encode($tail, $out); )?
    }};

    (@decode $variant:ident ($type:ty) $kind:ident $from:ident) => {
        Self::$variant(<$type as $crate::log_record::row::Body<'_>>::decode($kind, $from)?)
    };
    (@decode $variant:ident {
        $( $part:ident : $type:ty = $shown:literal ),* $(,)?
        $( .. $sort:ident $tail:ident : $tail_type:ty = $tail_shown:literal )?
    } $kind:ident $from:ident) => {
        Self::$variant {
            $( $part: <$type as $crate::log_record::row::Part<'_>>::decode(&mut $from)?, )*
            $( $tail: <$tail_type as $crate::log_record::row::Tail<'_>>::decode($from)?, )?
        }
    };

    (@show ($type:ty) $body:ident $to:ident) => { <$type as $crate::log_record::row::Body<'_>>::show($body, $to) };
    (@show {
        $( $part:ident : $type:ty = $shown:literal ),* $(,)?
        $( .. $sort:ident $tail:ident : $tail_type:ty = $tail_shown:literal )?
    } $body:ident $to:ident) => {{
        $( $crate::log_record::row::Part::show($part, $shown, $to); )*
        $( $crate::log_record::row::Tail::show($tail, $tail_shown, $to); )?
    }};

    (@part $wanted:ident ($type:ty) $body:ident) => { $body.$wanted };
    (@part $wanted:ident { $( $part:tt )* } $body:ident) => { *$wanted };

    // A fact that is written as one kind is of that; one that has several says which.
    (@kind $body:ident $number:literal) => { $number };
    (@kind $body:ident $( $number:literal )+) => { $body.kind() };
}

/// A body that is its parts, one after the other: the type and its [`Body`].
macro_rules! parts {
    (
        $( #[$meta:meta] )*
        $vis:vis struct $name:ident<$life:lifetime> {
            $( $( #[$doc:meta] )* $part:ident : $type:ty = $shown:literal, )*
            $( .. $sort:ident $( #[$tail_doc:meta] )* $tail:ident : $tail_type:ty = $tail_shown:literal, )?
        }
    ) => {
        $( #[$meta] )*
        $vis struct $name<$life> {
            $( $( #[$doc] )* pub $part: $type, )*
            $( $( #[$tail_doc] )* pub $tail: $tail_type, )?
        }

        impl<$life> $crate::log_record::row::Body<$life> for $name<$life> {
            fn encoded_len(&self) -> usize {
                let Self { $( $part, )* $( $tail )? } = self;
                $crate::log_record::row::row!(@len {
                    $( $part: $type = $shown, )* $( .. $sort $tail: $tail_type = $tail_shown )?
                } parts)
            }

            #[allow(unused_variables, reason = "a payload is measured by itself")]
            fn payload_len(&self) -> usize {
                let Self { $( $part, )* $( $tail )? } = self;
                $crate::log_record::row::row!(@payload {
                    $( $part: $type = $shown, )* $( .. $sort $tail: $tail_type = $tail_shown )?
                } parts)
            }

            fn encode(&self, out: &mut $crate::log_record::codec::Writer<'_>) {
                let Self { $( $part, )* $( $tail )? } = self;
                $( $crate::log_record::row::Part::encode($part, out); )*
                $( $crate::log_record::row::Tail::encode($tail, out); )?
            }

            fn decode(
                _: u8,
                mut from: $crate::log_record::codec::Reader<$life>,
            ) -> Result<Self, $crate::log_record::codec::Malformed> {
                Ok(Self {
                    $( $part: $crate::log_record::row::Part::decode(&mut from)?, )*
                    $( $tail: $crate::log_record::row::Tail::decode(from)?, )?
                })
            }

            fn show(&self, to: &mut impl $crate::log_record::show::Show) {
                let Self { $( $part, )* $( $tail )? } = self;
                $( $crate::log_record::row::Part::show($part, $shown, to); )*
                $( $crate::log_record::row::Tail::show($tail, $tail_shown, to); )?
            }
        }
    };
}

/// The table: enums of facts, with the numbers and names of their kinds. Rows that a table does not have itself are those of
/// the tables behind `..`. All rows of a table `with` a part have it, and a method of its name returns it.
macro_rules! records {
    (@types $(
        $( #[$meta:meta] )*
        $vis:vis enum $name:ident<$life:lifetime> $( with $common:ident : $common_type:ty )? {
            $(
                $( #[$doc:meta] )*
                $( $number:literal $text:literal $( $constant:ident )? ),+ =>
                $variant:ident
                $( ( $body:ty ) )?
                $( {
                    $( $part:ident : $type:ty = $shown:literal ),* $(,)?
                    $( .. $sort:ident $tail:ident : $tail_type:ty = $tail_shown:literal )?
                } )?
                ,
            )*
            $( .. $( #[$more_doc:meta] )* $more:ident($more_type:ty), )*
        }
    )*) => {
        $(
            $( #[$meta] )*
            $vis enum $name<$life> {
                $(
                    $( #[$doc] )*
                    $variant
                    $( ( $body ) )?
                    $( {
                        $( #[doc = concat!("Shown as `", $shown, "`; see `docs/log-format.md`.")] $part: $type, )*
                        $( #[doc = concat!("Shown as `", $tail_shown, "`; see `docs/log-format.md`.")] $tail: $tail_type, )?
                    } )?
                    ,
                )*
                $( $( #[$more_doc] )* $more($more_type), )*
            }
        )*

        $( $( $( $( pub(crate) const $constant: u8 = $number; )? )* )* )*

        /// Every kind there is or was: its number and its name, for people and tools.
        pub const KINDS: &[(u8, &str)] = &[ $( $( $( ($number, $text), )* )* )* ];

        /// The name of a kind. Two of one number do not compile.
        pub(crate) fn name_of(kind: u8) -> Option<&'static str> {
            match kind {
                $( $( $( $number => Some($text), )* )* )*
                _ => None,
            }
        }
    };

    (@codecs $(
        $( #[$meta:meta] )*
        $vis:vis enum $name:ident<$life:lifetime> $( with $common:ident : $common_type:ty )? {
            $(
                $( #[$doc:meta] )*
                $( $number:literal $text:literal $( $constant:ident )? ),+ => $variant:ident $shape:tt,
            )*
            $( .. $( #[$more_doc:meta] )* $more:ident($more_type:ty), )*
        }
    )*) => {$(
        #[allow(unused_variables, reason = "a walk does not look at every part of every row")]
        impl<$life> $name<$life> {
            /// The number of its kind, as in [`KINDS`].
            pub fn kind(&self) -> u8 {
                use $crate::log_record::row::row;
                match self {
                    $( row!(@pattern $variant $shape body) => row!(@kind body $( $number )+), )*
                    $( Self::$more(more) => more.kind(), )*
                }
            }

            /// Length of what follows kind and version, payload included.
            pub(crate) fn body_len(&self) -> usize {
                use $crate::log_record::row::row;
                match self {
                    $( row!(@pattern $variant $shape body) => row!(@len $shape body), )*
                    $( Self::$more(more) => more.body_len(), )*
                }
            }

            /// Length of the payload at the end.
            pub fn payload_len(&self) -> usize {
                use $crate::log_record::row::row;
                match self {
                    $( row!(@pattern $variant $shape body) => row!(@payload $shape body), )*
                    $( Self::$more(more) => more.payload_len(), )*
                }
            }

            /// Writes what follows kind and version.
            pub(crate) fn encode_body(&self, out: &mut $crate::log_record::codec::Writer<'_>) {
                use $crate::log_record::row::row;
                match self {
                    $( row!(@pattern $variant $shape body) => row!(@encode $shape body out), )*
                    $( Self::$more(more) => more.encode_body(out), )*
                }
            }

            /// Reads what follows kind and version; `None` if no row has this kind.
            pub(crate) fn decode_body(
                kind: u8,
                mut from: $crate::log_record::codec::Reader<$life>,
            ) -> Result<Option<Self>, $crate::log_record::codec::Malformed> {
                use $crate::log_record::row::row;
                #[allow(clippy::manual_range_patterns)] // A row lists its numbers.
                Ok(Some(match kind {
                    $( $( $number )|+ => row!(@decode $variant $shape kind from), )*
                    _ => {
                        $(
                            if let Some(more) = <$more_type>::decode_body(kind, from.clone())? {
                                return Ok(Some(Self::$more(more)));
                            }
                        )*
                        return Ok(None);
                    }
                }))
            }

            /// Shows all that it says but its kind.
            pub fn show(&self, to: &mut impl $crate::log_record::show::Show) {
                use $crate::log_record::row::row;
                match self {
                    $( row!(@pattern $variant $shape body) => row!(@show $shape body to), )*
                    $( Self::$more(more) => more.show(to), )*
                }
            }
        }
    )*};

    (@common $(
        $( #[$meta:meta] )*
        $vis:vis enum $name:ident<$life:lifetime> $( with $common:ident : $common_type:ty )? { $( $row:tt )* }
    )*) => {$(
        $crate::log_record::row::records!(@method ($( $common: $common_type )?) $name { $( $row )* });
    )*};

    (@method () $name:ident $rows:tt) => {};
    (@method ($common:ident : $common_type:ty) $name:ident {
        $(
            $( #[$doc:meta] )*
            $( $number:literal $text:literal $( $constant:ident )? ),+ => $variant:ident $shape:tt,
        )*
    }) => {
        #[allow(unused_variables, reason = "it looks at one part of every row")]
        impl $name<'_> {
            #[doc = concat!("The part `", stringify!($common), "`, which every row has.")]
            pub fn $common(&self) -> $common_type {
                use $crate::log_record::row::row;
                match self {
                    $( row!(@pattern $variant $shape body) => row!(@part $common $shape body), )*
                }
            }
        }
    };

    ($( $token:tt )*) => {
        $crate::log_record::row::records!(@types $( $token )*);
        $crate::log_record::row::records!(@codecs $( $token )*);
        $crate::log_record::row::records!(@common $( $token )*);
    };
}

pub(crate) use {parts, records, row};
