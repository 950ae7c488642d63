//! A reply: a map of `ok`, the number of its request, and the command's own fields.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::read::{Number, Read, Reader};
use super::record::FromWire;
use crate::error::Error;
use crate::raw::{Raw, decode};
use crate::refusal::Refusal;

/// A frame from the server, by kind.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// The answer to the request of this number.
    Reply(u64, Reply),
    /// An event or a sample, sent because it was asked for.
    Event(Reply),
    /// An answer to nothing that could be read: why the connection will close.
    Complaint(Box<str>),
}

impl Incoming {
    pub(crate) fn read(frame: Bytes) -> Read<Self> {
        let (mut ok, mut number, mut event) = (true, None, false);
        let mut reader = Reader::new(&frame);
        for _ in 0..reader.map()? {
            match reader.str()? {
                "ok" => ok = reader.bool()?,
                "reqId" => {
                    let mut ahead = reader.clone();
                    if let Ok(Number::Whole(given)) = ahead.number() {
                        number = Some(given);
                    }
                    reader.skip()?;
                }
                // A sample has its type and nothing else in common with an event.
                "event" | "type" => {
                    event = true;
                    reader.skip()?;
                }
                _ if number.is_some() => break,
                _ => reader.skip()?,
            }
        }
        let reply = Reply { frame, ok };
        match number {
            Some(number) => Ok(Self::Reply(number, reply)),
            None if event => Ok(Self::Event(reply)),
            None => Ok(Self::Complaint(reply.error())),
        }
    }
}

/// The server's answer to a command: its fields, decoded when they are asked for.
///
/// [`Client::call`](crate::Client::call) answers with a `Reply`.
///
/// ```no_run
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// let reply = client.call("Count", &serde_json::json!({"queue": "emails"})).await?;
/// let count: u64 = reply.get("count")?.unwrap_or(0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Reply {
    frame: Bytes,
    ok: bool,
}

impl Reply {
    pub(crate) fn ok(&self) -> bool {
        self.ok
    }

    /// Why it was refused, in the server's words.
    pub(crate) fn error(&self) -> Box<str> {
        let said = self.read::<Option<String>>("error").ok().flatten();
        said.map_or_else(|| "the server gave no reason".into(), Into::into)
    }

    /// Why the command was refused: the server's words with their code.
    pub(crate) fn refusal(&self) -> Refusal {
        let code = self.read::<Option<String>>("code").ok().flatten();
        Refusal::new(self.error(), code.as_deref())
    }

    fn find(&self, field: &str) -> Read<Option<Reader<'_>>> {
        let mut reader = Reader::new(&self.frame);
        for _ in 0..reader.map()? {
            if reader.str()? == field {
                return Ok(Some(reader));
            }
            reader.skip()?;
        }
        Ok(None)
    }

    /// A field of the server's own; one that is missing counts as nil.
    pub(crate) fn read<T: FromWire>(&self, field: &str) -> Result<T, Error> {
        static NIL: Bytes = Bytes::from_static(&[0xc0]);
        let mut reader = self.find(field)?.unwrap_or_else(|| Reader::new(&NIL));
        T::read(&mut reader).map_err(|malformed| {
            Error::Protocol(format!("the field `{field}` of a reply: {}", malformed.0).into())
        })
    }

    /// The whole reply as a record.
    pub(crate) fn record<T: FromWire>(&self) -> Result<T, Error> {
        Ok(T::read(&mut Reader::new(&self.frame))?)
    }

    /// A field within `data`; one that is missing counts as nil.
    pub(crate) fn within<T: FromWire>(&self, outer: &str, field: &str) -> Result<T, Error> {
        if let Some(mut reader) = self.find(outer)?
            && !reader.nil()
        {
            for _ in 0..reader.map()? {
                if reader.str()? == field {
                    return Ok(T::read(&mut reader)?);
                }
                reader.skip()?;
            }
        }
        Ok(T::read(&mut Reader::new(&Bytes::from_static(&[0xc0])))?)
    }

    /// The value of a field as the server wrote it, sharing its memory.
    pub fn raw(&self, field: &str) -> Result<Option<Raw>, Error> {
        Ok(self.find(field)?.map(|mut reader| reader.raw()).transpose()?)
    }

    /// The value of a field; `None` if the reply has none of that name, or nil.
    pub fn get<T: DeserializeOwned>(&self, field: &str) -> Result<Option<T>, Error> {
        match self.raw(field)? {
            Some(value) => value.decode::<Option<T>>(),
            None => Ok(None),
        }
    }

    /// The whole reply, `ok` and `reqId` included, as a value of its own.
    ///
    /// The server's integers beyond 32 bits are floats: read times as `f64`.
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Error> {
        decode(&self.frame)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::refusal::Code;
    use serde_json::json;

    fn incoming(value: &serde_json::Value) -> Incoming {
        Incoming::read(Raw::encode(value).unwrap().as_bytes().clone()).unwrap()
    }

    #[test]
    fn a_reply_is_known_by_its_number_wherever_it_stands() {
        for value in [json!({"ok": true, "reqId": 7, "id": "a"}), json!({"id": "a", "reqId": 7})] {
            let Incoming::Reply(7, reply) = incoming(&value) else { panic!("{value}") };
            assert!(reply.ok());
            assert_eq!(reply.read::<String>("id").unwrap(), "a");
            assert_eq!(reply.get::<u64>("count").unwrap(), None);
        }
    }

    #[test]
    fn what_bears_no_number_is_an_event_a_sample_or_a_complaint() {
        let event = incoming(&json!({"type": "event", "event": {"eventType": "pushed"}}));
        assert!(matches!(event, Incoming::Event(_)));
        let sample = incoming(&json!({"type": "watch", "at": 1.7e12}));
        assert!(matches!(sample, Incoming::Event(_)));
        let complaint = incoming(&json!({"ok": false, "error": "Frame exceeds 64 MB"}));
        assert!(matches!(complaint, Incoming::Complaint(text) if &*text == "Frame exceeds 64 MB"));
    }

    #[test]
    fn a_refusal_has_the_code_that_stands_beside_its_text() {
        let refused = json!({"ok": false, "reqId": 1, "error": "Disk full", "code": "disk_full"});
        let Incoming::Reply(1, reply) = incoming(&refused) else { panic!("no reply") };
        let refusal = reply.refusal();
        assert_eq!((refusal.text(), refusal.code()), ("Disk full", Some(Code::DiskFull)));
        let newer = json!({"ok": false, "reqId": 1, "error": "No", "code": "of_tomorrow"});
        let Incoming::Reply(1, reply) = incoming(&newer) else { panic!("no reply") };
        assert_eq!(reply.refusal().code(), None);
    }

    #[test]
    fn numbers_are_read_in_every_form_they_travel_in() {
        let Incoming::Reply(_, reply) = incoming(&json!({"reqId": 1, "at": 1.7e12, "n": 3})) else {
            panic!("no reply");
        };
        assert_eq!(reply.read::<u64>("at").unwrap(), 1_700_000_000_000);
        assert_eq!(reply.read::<u64>("n").unwrap(), 3);
        assert!(reply.read::<String>("n").is_err());
        assert!(reply.read::<u64>("missing").is_err());
        assert_eq!(reply.read::<Option<u64>>("missing").unwrap(), None);
    }
}
