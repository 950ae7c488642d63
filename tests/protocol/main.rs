//! The fear: a client says one thing and the server understands another, or bytes bring it down.
//!
//! Requests are built and replies are read with another library's `MessagePack`, so that reader and
//! writer cannot be wrong in the same way.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bytes;
mod commands;
mod dependencies;
mod docs;
mod drops;
mod fields;
mod hostile;
mod http1;
mod imports;
mod jobs;
mod json;
mod json_slices;
mod json_written;
mod log_dump;
mod openapi;
mod packaging;
mod replies;
mod rows;
mod settings;
mod sizes;
mod tidy;
mod words;
mod work;

use corq::api::request::{Body, Refused, Request};
use corq::protocol::decode::decode;
use rmpv::Value;

/// A map with string keys.
pub(crate) fn map(entries: &[(&str, Value)]) -> Value {
    Value::Map(entries.iter().map(|(key, value)| (Value::from(*key), value.clone())).collect())
}

/// The bytes of a value.
pub(crate) fn pack(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes
}

/// The payload of a frame with a command, `cmd` first.
pub(crate) fn command(name: &str, fields: &[(&str, Value)]) -> Vec<u8> {
    let mut entries = vec![("cmd", Value::from(name))];
    entries.extend(fields.iter().cloned());
    pack(&map(&entries))
}

/// The body of a frame that must decode.
pub(crate) fn accepted(frame: &[u8]) -> Body<'_> {
    match decode(frame) {
        Ok(Request { body, .. }) => body,
        Err(refused) => panic!("refused: {}", refused.error),
    }
}

/// The error of a frame that must not.
pub(crate) fn refused(frame: &[u8]) -> String {
    match decode(frame) {
        Ok(request) => panic!("accepted: {request:?}"),
        Err(Refused { error, .. }) => error.to_string(),
    }
}

/// The value that `undefined` becomes in JavaScript clients.
pub(crate) fn undefined() -> Value {
    Value::Ext(0, vec![0])
}

/// Strings as a list.
pub(crate) fn strings(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| Value::from(*text)).collect())
}

/// A version 7 UUID as the server would give it out.
pub(crate) const JOB_ID: &str = "0190163d-8694-739b-aea5-966c26f8a787";
