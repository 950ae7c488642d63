//! The query of a request as fields of its command. A parameter is a text; what it means, the kind of its field says. What
//! cannot mean that stays a text, which the field then refuses in its own words.

use super::route::{Asks, Endpoint, Input, Route, command};
use crate::api::commands::{Class, FieldSpec, Kind, Op};
use crate::api::error::{Error, ErrorKind};
use crate::api::spelling::shown;
use crate::protocol::decode::decode;
use crate::protocol::http1::head::Method;
use crate::protocol::http1::target::{of_query, pairs};
use crate::protocol::msgpack::writer::Writer;
use crate::server::events::shared_buffer::Carrier;
use crate::server::events::wish::{Asked, Wish};
use rmp::Marker;
use std::borrow::Cow;

/// Unknown names of one query that are compared with those that are known.
const COMPARISONS_MAX: usize = 256;

/// Whether the query of a request can be read, and names nothing that is misspelt. A route without parameters passes over
/// all of it.
pub(super) fn check(route: &Route, query: &str) -> Result<(), Error> {
    if route.asks.is_some_and(|asks| asks.op.spec().class == Class::Bulk)
        && let Some((key, _)) = pairs(query).find(|(key, _)| !key.is_empty())
    {
        // A condition that is passed over would make the rest mean more jobs.
        let key = of_query(key).map_err(|_| ErrorKind::QueryEncoding)?;
        return Err(Error::parameter_of_body(&shown(&key)));
    }
    let takes = route.asks.is_some_and(|asks| is_read(asks.input));
    if !takes || query.is_empty() || route.open_fields().next().is_none() {
        return Ok(());
    }
    let mut compared = 0;
    for (key, value) in pairs(query) {
        let key = of_query(key).map_err(|_| ErrorKind::QueryEncoding)?;
        if route.field_of(&key).is_some() {
            of_query(value).map_err(|_| ErrorKind::QueryEncoding)?;
        } else if compared < COMPARISONS_MAX {
            compared += 1;
            if let Some(known) = route.meant_by(&key) {
                return Err(Error::unknown_parameter(&shown(&key), known));
            }
            // Pass over what programs of pages add to the address of an event stream on their own.
            if route.asks.is_some_and(|asks| asks.op.spec().is_closed() && asks.op != Op::Subscribe)
            {
                return Err(Error::no_field(&shown(&key)));
            }
        }
    }
    Ok(())
}

/// Parameters that the query of an event stream may have; a choice has those of `Subscribe`.
static STREAM: Route = command(
    Method::Get,
    &[],
    Endpoint::Command,
    Asks::of(Op::Subscribe, Input::Query).also(&[
        ("queue", "queues"),
        ("type", "types"),
        ("event", "events"),
        ("job", "jobs"),
        ("names", "named"),
    ]),
);

/// Reads the query of an event stream, for the queue in its path if there is one. A query that chooses nothing asks for
/// all events.
pub(super) fn read_stream(query: &str, queue: Option<&str>, upgrade: bool) -> Result<Asked, Error> {
    check(&STREAM, query)?;
    if let Some(name) = empty_list(query) {
        return Err(Error::empty_in_query(name));
    }
    let mut fields = Vec::new();
    let count = write(&mut fields, &STREAM, query);
    if count == 0 {
        return Ok(Asked { address: queue.map(Into::into), ..Asked::plain(queue) });
    }
    let mut frame = Vec::new();
    let mut writer = Writer::new(&mut frame);
    writer.map(count as usize + 1);
    writer.str("cmd");
    writer.str(Op::Subscribe.spec().name);
    writer.raw(&fields);
    let request = decode(&frame).map_err(|refused| refused.error)?;
    let carrier = if upgrade { Carrier::WebSocket } else { Carrier::Sse };
    let asked = Wish::of(&request.body).map(|wish| wish.read(carrier)).transpose()?;
    let asked = asked.ok_or(ErrorKind::BadRequest)?;
    match queue {
        Some(_) if asked.choice.queues().next().is_some() => {
            Err(ErrorKind::StreamQueueTwice.into())
        }
        Some(queue) => {
            let choice = asked.choice.of_queues(std::iter::once(queue));
            Ok(Asked { choice, address: Some(queue.into()), ..asked })
        }
        None => Ok(asked),
    }
}

/// A list of the query of a stream that names nothing. It would count as absent, but who names nothing does not mean all.
fn empty_list(query: &str) -> Option<&'static str> {
    let mut lists: Vec<(&'static str, bool)> = Vec::new();
    for (key, value) in pairs(query) {
        let (Ok(key), Ok(value)) = (of_query(key), of_query(value)) else { continue };
        let Some(field) = STREAM.field_of(&key).filter(|field| is_list(field.kind)) else {
            continue;
        };
        let names = value.split(',').any(|item| !item.is_empty());
        match lists.iter_mut().find(|list| list.0 == field.name) {
            Some(list) => list.1 |= names,
            None => lists.push((field.name, names)),
        }
    }
    lists.into_iter().find(|(_, names)| !names).map(|(name, _)| name)
}

/// Whether a query says fields.
fn is_read(input: Input) -> bool {
    matches!(input, Input::Query | Input::QueryInto(_))
}

/// Writes the fields that a query says, which [`check`] has read. Returns how many there are.
pub(super) fn write(out: &mut Vec<u8>, route: &Route, query: &str) -> u32 {
    let Some(asks) = route.asks.filter(|asks| is_read(asks.input)) else { return 0 };
    let mut said: Vec<Said<'_>> = Vec::new();
    for (key, value) in pairs(query) {
        let (Ok(key), Ok(value)) = (of_query(key), of_query(value)) else { continue };
        let Some(field) = route.field_of(&key) else { continue };
        // An empty number or list says nothing; an empty text is one that the field may refuse.
        if value.is_empty() && !matches!(field.kind, Kind::Text { .. } | Kind::Queue) {
            continue;
        }
        match said.iter_mut().find(|said| said.field.name == field.name) {
            Some(said) if is_list(field.kind) => said.values.push(value),
            // Of several values the first counts.
            Some(_) => {}
            None => said.push(Said { field, values: vec![value] }),
        }
    }
    let Input::QueryInto(object) = asks.input else {
        for one in &said {
            one.write(out);
        }
        return said.len() as u32;
    };
    let is_outer = |said: &&Said<'_>| route.is_of_command(said.field);
    said.iter().filter(is_outer).for_each(|said| said.write(out));
    let outer = said.iter().filter(is_outer).count();
    Writer::new(out).str(object);
    let inner = (said.len() - outer) as u32;
    out.push(Marker::Map32.to_u8());
    out.extend_from_slice(&inner.to_be_bytes());
    said.iter().filter(|said| !is_outer(said)).for_each(|said| said.write(out));
    outer as u32 + 1
}

/// A field that a query says.
struct Said<'a> {
    field: &'static FieldSpec,
    values: Vec<Cow<'a, str>>,
}

/// Whether a parameter of this kind may be given several times, or several values at once, with commas between.
fn is_list(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Choices(_)
            | Kind::Texts { .. }
            | Kind::TextsOf(_)
            | Kind::Queues { .. }
            | Kind::JobIds
            | Kind::Tokens
    )
}

impl Said<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.str(self.field.name);
        if is_list(self.field.kind) {
            let values = || {
                let all = self.values.iter().flat_map(|value| value.split(','));
                all.map(str::trim).filter(|value| !value.is_empty())
            };
            writer.array(values().count());
            values().for_each(|value| writer.str(value));
            return;
        }
        let text = self.values.first().map_or("", |value| &**value);
        let is_number = matches!(
            self.field.kind,
            Kind::Integer { .. } | Kind::Number { .. } | Kind::Priority | Kind::Backoff
        );
        match (self.field.kind, text) {
            (Kind::Flag, "true" | "1") => writer.bool(true),
            (Kind::Flag, "false" | "0") => writer.bool(false),
            _ if is_number => match (text.parse::<i64>(), text.parse::<f64>()) {
                (Ok(number), _) => writer.int(number),
                (_, Ok(number)) => writer.f64(number),
                _ => writer.str(text),
            },
            _ => writer.str(text),
        }
    }
}
