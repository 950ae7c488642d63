//! A request over HTTP as the frame that a client over TCP would send.

use super::connection::Plan;
use super::route::{Asks, Given, Input, Route, Values};
use super::trace_headers::TraceHeaders;
use super::{query, slimmed};
use crate::api::error::{Error, ErrorKind};
use crate::api::spelling::{self, shown};
use crate::protocol::decode::repair::takes_any_form;
use crate::protocol::json::{self, Fault, FieldNames, JsonError, Parse};
use crate::protocol::msgpack::Reader;
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::server::connection::transcode::SLICE_BYTES;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};
use rmp::Marker;
use std::borrow::Cow;

/// Bytes of the head of a frame: of a map of any number of entries.
const HEAD_BYTES: usize = 5;

/// Writes a command whose only field is `key`.
pub fn bare(out: &mut Vec<u8>, cmd: &str, key: &str, name: &str) {
    out.clear();
    let mut map = MapWriter::begin(out);
    map.key("cmd").str(cmd);
    map.key(key).str(name);
}

/// Begins a command with the fields that its path and its row say. Returns how many entries the frame has.
fn begin(out: &mut Vec<u8>, route: &Route, asks: &Asks, values: &Values<'_>) -> u32 {
    out.clear();
    out.extend_from_slice(&[Marker::Map32.to_u8(), 0, 0, 0, 0]);
    let mut writer = Writer::new(out);
    writer.str("cmd");
    writer.str(asks.op.spec().name);
    let mut entries = 1;
    for (field, value) in route.path_fields().zip(values) {
        writer.str(field);
        writer.str(value);
        entries += 1;
    }
    give(&mut writer, asks.fixed.iter());
    entries + asks.fixed.len() as u32
}

fn give<'g>(writer: &mut Writer<'_>, given: impl Iterator<Item = &'g (&'static str, Given)>) {
    for (field, value) in given {
        writer.str(field);
        match *value {
            Given::Text(text) => writer.str(text),
            Given::True => writer.bool(true),
            Given::False => writer.bool(false),
            Given::Number(number) => writer.uint(number),
        }
    }
}

/// Says how many entries a frame has.
fn end(out: &mut [u8], entries: u32) {
    out[1..HEAD_BYTES].copy_from_slice(&entries.to_be_bytes());
}

/// How many entries a frame has.
fn entries(frame: &[u8]) -> u32 {
    frame[1..].first_chunk().map_or(0, |count| u32::from_be_bytes(*count))
}

/// A frame that is whole but for the fields that its row gives where the request does not; none if it lacks none.
fn with_presets(asks: &Asks, frame: &[u8]) -> Option<Vec<u8>> {
    let lacks = |(name, _): &&(&'static str, Given)| !has_key(frame, name);
    let count = asks.presets.iter().filter(lacks).count() as u32;
    if count == 0 {
        return None;
    }
    let mut out = frame.to_vec();
    give(&mut Writer::new(&mut out), asks.presets.iter().filter(lacks));
    end(&mut out, entries(frame) + count);
    Some(out)
}

/// A frame with the trace that headers name, where its body names none.
fn with_trace(trace: &TraceHeaders, frame: Cow<'_, [u8]>) -> Vec<u8> {
    let mut out = frame.into_owned();
    let count = entries(&out) + trace.join(&mut out);
    end(&mut out, count);
    out
}

/// The keys of a map, as far as it can be read.
fn keys(map: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(map);
    let count = reader.map().ok().flatten().unwrap_or(0);
    (0..count).map_while(move |_| {
        let key = reader.pass_key().ok()?;
        reader.pass().ok().map(|()| key)
    })
}

fn has_key(map: &[u8], name: &str) -> bool {
    keys(map).any(|key| key == name.as_bytes())
}

/// Checks the result of reading a body whose fields join a frame.
fn judge(read: Result<(), JsonError>, parse: &Parse) -> Result<(), Error> {
    unreadable(read)?;
    if !parse.is_object() {
        return Err(ErrorKind::BodyNotObject.into());
    }
    match parse.misnamed() {
        Some((name, known)) => Err(Error::unknown_field(&shown(name), known)),
        None => Ok(()),
    }
}

/// The body of a request that cannot be read, in another form, if it tells what has come of a job.
#[cold]
fn mended_outcome(asks: &Asks, error: JsonError, body: &[u8]) -> Option<Vec<u8>> {
    let may_help = error.fault.is_mendable() && takes_any_form(asks.op);
    may_help.then(|| json::mended(body))?
}

fn unreadable(read: Result<(), JsonError>) -> Result<(), ErrorKind> {
    read.map_err(|error| match error.fault {
        Fault::Depth => ErrorKind::BodyTooDeep,
        Fault::TooLong => ErrorKind::BodyTooLong,
        _ => ErrorKind::BodyNotJson,
    })
}

/// Writes the object that a body is as the field that holds it. True if it has that field itself, and is to be read as
/// other bodies are.
fn write_object(
    out: &mut Vec<u8>,
    route: &Route,
    (asks, name): (&Asks, &str),
    body: &[u8],
) -> Result<bool, Error> {
    let before = out.len();
    Writer::new(out).str(name);
    let at = out.len();
    unreadable(json::to_msgpack_within(body, out, asks.op.spec().bytes_max))?;
    let object = &out[at..];
    if Reader::new(object).map().ok().flatten().is_none() {
        return Err(ErrorKind::BodyNotObject.into());
    }
    if has_key(object, name) {
        out.truncate(before);
        return Ok(true);
    }
    let inner = route.field_of(name).map_or(&[][..], |field| field.kind.fields());
    for key in keys(object).take(256).filter_map(|key| std::str::from_utf8(key).ok()) {
        let known = inner.iter().map(|field| field.name).chain([name]);
        if known.clone().all(|one| one != key)
            && let Some(known) = spelling::meant(key, known)
        {
            return Err(Error::unknown_field(&shown(key), known));
        }
    }
    Ok(false)
}

impl ShardServer {
    /// Sends a request on its way as the frame of a command.
    pub(super) fn command(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        plan: &Plan<'_>,
        body: Cow<'_, [u8]>,
    ) {
        // A route without a command has been answered before.
        let Some(asks) = &plan.route.asks else { return };
        let mut scratch = std::mem::take(&mut self.http.frame);
        let mut entries = begin(&mut scratch, plan.route, asks, &plan.values);
        let is_read = match asks.input {
            Input::Nothing | Input::Query | Input::QueryInto(_) => {
                entries += query::write(&mut scratch, plan.route, &plan.query);
                false
            }
            Input::MaybeBody => !body.is_empty(),
            Input::Body => true,
            Input::BodyOf(_) if body.len() > SLICE_BYTES => true,
            Input::BodyOf(name) => {
                entries += 1;
                match write_object(&mut scratch, plan.route, (asks, name), &body) {
                    Ok(has_field) => {
                        entries -= u32::from(has_field);
                        has_field
                    }
                    Err(error) => {
                        self.http.frame = slimmed(scratch);
                        self.conclude_error(conns, conn, &error);
                        return;
                    }
                }
            }
        };
        if is_read {
            let names: &'static dyn FieldNames = plan.route;
            let bytes_max = asks.op.spec().bytes_max;
            let mut parse = Parse::fields((0, entries as usize), scratch.len(), bytes_max, names);
            if body.len() > SLICE_BYTES {
                self.read_in_slices(conn, body.into_owned(), parse, scratch);
                return;
            }
            let mut read = parse.go_on(&body, &mut scratch, usize::MAX).map(|_| ());
            if let Err(error) = read
                && let Some(mended) = mended_outcome(asks, error, &body)
            {
                parse = parse.again();
                read = parse.go_on(&mended, &mut scratch, usize::MAX).map(|_| ());
            }
            self.begin_fields(conns, conn, Cow::Borrowed(&scratch), read, &parse);
        } else {
            end(&mut scratch, entries);
            self.begin_whole(conns, conn, asks, Cow::Borrowed(&scratch));
        }
        self.http.frame = slimmed(scratch);
    }

    /// The body of a request has been read into the command `frame`, or cannot be.
    pub(crate) fn begin_fields(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        frame: Cow<'_, [u8]>,
        read: Result<(), JsonError>,
        parse: &Parse,
    ) {
        let session = self.sessions.get(conn);
        let exchange = session.and_then(|session| session.http.exchange.as_mut());
        let (route, trace) = exchange.map_or((None, None), |it| (Some(it.route), it.trace.take()));
        let frame = match trace.filter(|_| read.is_ok() && parse.is_object() && !parse.has_noted())
        {
            Some(trace) => Cow::Owned(with_trace(&trace, frame)),
            None => frame,
        };
        match (judge(read, parse), route.and_then(|route| route.asks.as_ref())) {
            (Ok(()), Some(asks)) => self.begin_whole(conns, conn, asks, frame),
            (Ok(()), None) => self.begin_or_check(conns, conn, frame),
            (Err(error), _) => self.conclude_error(conns, conn, &error),
        }
    }

    fn begin_whole(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        asks: &Asks,
        frame: Cow<'_, [u8]>,
    ) {
        let whole = with_presets(asks, &frame);
        self.begin_or_check(conns, conn, whole.map_or(frame, Cow::Owned));
    }

    /// Begins a command, behind a check in slices if it is large.
    fn begin_or_check(&mut self, conns: &mut Connections, conn: ConnId, frame: Cow<'_, [u8]>) {
        match self.large_op(conn, &frame) {
            Some(op) => self.check_in_slices(conns, conn, (frame.into_owned(), 0), op),
            None => self.begin(conns, conn, (&*frame).into()),
        }
    }
}
