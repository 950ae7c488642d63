//! Requests of `demo` that have to be granted, and values of its own texts.

use super::super::client::Client;
use super::super::failure::Failure;
use super::super::input;
use super::super::request::Request;

/// Does what has to be granted.
pub(super) fn order(client: &mut Client, request: Request) -> Result<(), Failure> {
    client.call(request)?.granted().map(drop)
}

/// The value of a JSON text of this program.
pub(super) fn value(text: &str) -> Vec<u8> {
    input::encode(text.as_bytes()).unwrap_or_else(|error| unreachable!("{error}: {text}"))
}
