//! A request over HTTP as the frame that a client over TCP would send.

use super::routes::{Asks, path_field};
use super::{ConnId, Connections, Plan, slimmed};
use crate::api::commands::{CommandSpec, Op};
use crate::api::error::ErrorKind;
use crate::protocol::json::{Fault, JsonError, Parse};
use crate::protocol::msgpack::writer::Writer;
use crate::server::connection::transcode::SLICE_BYTES;
use crate::server::shard_server::ShardServer;
use rmp::Marker;
use std::borrow::Cow;

/// The owner of all jobs that are pulled over HTTP: with one they come with a token.
const OWNER: &str = "http";

/// Writes a command without fields.
pub fn plain(out: &mut Vec<u8>, cmd: &str) {
    out.clear();
    let mut writer = Writer::new(out);
    writer.map(1);
    writer.str("cmd");
    writer.str(cmd);
}

/// Writes a command whose only field is `key`.
pub fn bare(out: &mut Vec<u8>, cmd: &str, key: &str, name: &str) {
    out.clear();
    let mut writer = Writer::new(out);
    writer.map(2);
    lead(&mut writer, cmd, key, name);
}

fn lead(writer: &mut Writer<'_>, cmd: &str, key: &str, name: &str) {
    writer.str("cmd");
    writer.str(cmd);
    writer.str(key);
    writer.str(name);
}

/// Writes a pull. The job stays with its token when the connection goes: over HTTP a connection says
/// nothing about a worker. `numbers` are further fields as they came.
pub fn pull(out: &mut Vec<u8>, queue: &str, numbers: &[(&str, Option<&str>)]) {
    out.clear();
    let mut writer = Writer::new(out);
    let given = || numbers.iter().filter_map(|(key, text)| Some((key, (*text)?)));
    writer.map(4 + given().count());
    lead(&mut writer, "PULL", "queue", queue);
    writer.str("owner");
    writer.str(OWNER);
    writer.str("detach");
    writer.bool(true);
    for (key, text) in given() {
        writer.str(key);
        // What is no number stays a text, which the field then refuses in its own words.
        match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) => writer.int(number),
            (_, Ok(number)) => writer.f64(number),
            _ => writer.str(text),
        }
    }
}

/// Writes a command of the field that its path names, to which the fields of a JSON object come that is read by what is returned. Whatever the
/// object says of the command itself is left out: that stands in the path.
fn fields(out: &mut Vec<u8>, spec: &'static CommandSpec, name: &str) -> Parse {
    let (cmd, key) = (spec.name, path_field(spec.op));
    out.clear();
    out.extend_from_slice(&[Marker::Map32.to_u8(), 0, 0, 0, 0]);
    lead(&mut Writer::new(out), cmd, key, name);
    Parse::fields((0, 2), out.len(), spec.bytes_max, ["cmd", "reqId", key])
}

/// What came of reading such an object.
fn judge(read: Result<(), JsonError>, parse: &Parse) -> Result<(), ErrorKind> {
    read.map_err(|error| match error.fault {
        Fault::Depth => ErrorKind::BodyTooDeep,
        Fault::TooLong => ErrorKind::BodyTooLong,
        _ => ErrorKind::BodyNotJson,
    })?;
    if parse.is_object() { Ok(()) } else { Err(ErrorKind::BodyNotObject) }
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
        let mut scratch = std::mem::take(&mut self.http.frame);
        let name = &*plan.name;
        match plan.endpoint.asks() {
            Asks::Body { op, may_lack } if body.is_empty() && may_lack => {
                bare(&mut scratch, op.spec().name, path_field(op), name);
                self.begin(conns, conn, &scratch);
            }
            Asks::Body { op, .. } => {
                let mut parse = fields(&mut scratch, op.spec(), name);
                if body.len() > SLICE_BYTES {
                    self.read_in_slices(conn, body.into_owned(), parse, scratch);
                    return;
                }
                let read = parse.go_on(&body, &mut scratch, usize::MAX).map(|_| ());
                self.begin_fields(conns, conn, &scratch, read, &parse);
            }
            Asks::Path(Op::Pull) => {
                let timeout = ("timeout", plan.timeout.as_deref());
                let lock_ttl = ("lockTtl", plan.lock_ttl.as_deref());
                pull(&mut scratch, name, &[timeout, lock_ttl]);
                self.begin(conns, conn, &scratch);
            }
            Asks::Path(op) => {
                bare(&mut scratch, op.spec().name, path_field(op), name);
                self.begin(conns, conn, &scratch);
            }
            Asks::Plain(op) => {
                plain(&mut scratch, op.spec().name);
                self.begin(conns, conn, &scratch);
            }
            // It has been answered before.
            Asks::Nothing => {}
        }
        self.http.frame = slimmed(scratch);
    }

    /// The body of a request has been read into the command `frame`, or cannot be.
    pub(crate) fn begin_fields(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        frame: &[u8],
        read: Result<(), JsonError>,
        parse: &Parse,
    ) {
        match judge(read, parse) {
            Ok(()) => self.begin(conns, conn, frame),
            Err(error) => self.conclude_error(conns, conn, error),
        }
    }
}
