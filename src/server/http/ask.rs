//! A request over HTTP as the frame that a client over TCP would send.

use crate::api::spec::CommandSpec;
use crate::protocol::json::{self, Fault};
use crate::protocol::msgpack::Reader;
use crate::protocol::write::Writer;
use rmp::Marker;

/// The owner of all jobs that are pulled over HTTP: with one they come with a token.
const OWNER: &str = "http";

/// Why a body is no command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadBody {
    /// It is no JSON.
    NotJson,
    /// It is JSON of another kind.
    NotObject,
    /// Its lists and objects nest too deep.
    TooDeep,
    /// It would take more as a frame than its command can need.
    TooLong,
}

impl BadBody {
    /// The text for the client.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotJson => "Invalid JSON body",
            Self::NotObject => "body must be an object",
            Self::TooDeep => "body must be at most 128 levels deep",
            Self::TooLong => "body is longer than its command can be",
        }
    }
}

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

/// Makes a command of `key` and the fields of a JSON object, behind what `out` held and instead of
/// it; returns where in `out` it is. `text` may be empty where `optional`. Whatever the object says
/// of the command itself is left out: that stands in the path.
pub fn with_fields<'o>(
    out: &'o mut Vec<u8>,
    (cmd, key, name): (&str, &str, &str),
    text: &[u8],
    optional: bool,
) -> Result<&'o [u8], BadBody> {
    if optional && text.is_empty() {
        bare(out, cmd, key, name);
        return Ok(out);
    }
    out.clear();
    out.extend_from_slice(&[Marker::Map32.to_u8(), 0, 0, 0, 0]);
    lead(&mut Writer::new(out), cmd, key, name);
    let fields_at = out.len();
    let most = CommandSpec::find(cmd.as_bytes()).map_or(usize::MAX, |spec| spec.bytes_max);
    json::to_msgpack_within(text, out, most).map_err(|error| match error.fault {
        Fault::Depth => BadBody::TooDeep,
        Fault::TooLong => BadBody::TooLong,
        _ => BadBody::NotJson,
    })?;
    let object = &out[fields_at..];
    let mut reader = Reader::new(object);
    // What the codec has written is well-formed.
    let Ok(Some(fields)) = reader.map() else { return Err(BadBody::NotObject) };
    let head_bytes = object.len() - reader.rest().len();
    let own = ["cmd", "reqId", key];
    let Some(names_own) = count_of(reader, fields, &own) else { return Err(BadBody::NotJson) };
    if names_own > 0 {
        let kept = without(reader, fields, &own);
        out.truncate(fields_at + head_bytes);
        out.extend_from_slice(&kept);
    }
    // The object's own head goes: the lead moves over it, up to the first field.
    let count = (fields - names_own + 2) as u32;
    out[1..5].copy_from_slice(&count.to_be_bytes());
    out.copy_within(..fields_at, head_bytes);
    Ok(&out[head_bytes..])
}

/// How many of so many fields bear one of these names.
fn count_of(mut reader: Reader<'_>, fields: usize, names: &[&str]) -> Option<usize> {
    let mut found = 0;
    for _ in 0..fields {
        let key = reader.pass_key().ok()?;
        found += usize::from(names.iter().any(|name| name.as_bytes() == key));
        reader.pass().ok()?;
    }
    Some(found)
}

/// The fields that bear none of these names.
#[cold]
fn without(mut reader: Reader<'_>, fields: usize, names: &[&str]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(reader.rest().len());
    for _ in 0..fields {
        let field = reader.rest();
        let Ok(key) = reader.pass_key() else { break };
        if reader.pass().is_err() {
            break;
        }
        if !names.iter().any(|name| name.as_bytes() == key) {
            kept.extend_from_slice(&field[..field.len() - reader.rest().len()]);
        }
    }
    kept
}
