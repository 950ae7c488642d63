//! Judges a long request by its beginning: which command it is, and whether such a command can be as long as the
//! request is announced to be. A request that is too long for its command costs no more than its beginning.

use super::value::cut;
use crate::api::commands::{CommandSpec, FieldSpec, Kind};
use crate::api::error::Error;
use crate::protocol::json;
use crate::protocol::msgpack::Reader;

/// Requests that are longer are judged by their beginning.
pub const LONG_BYTES: usize = 256 << 10;

/// The command of a long request must be named within so many bytes.
pub const BEGINNING_BYTES_MAX: usize = 64 << 10;

/// A byte of text may take so many as JSON.
pub const JSON_EXPANSION: usize = 6;

/// Enough of a name to recognise it.
const SHOWN_BYTES_MAX: usize = 64;

/// In which form a request comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Face {
    /// As `MessagePack`.
    Frame,
    /// As JSON.
    Text,
}

/// Judgement of a long request of which more is to come, so that it is not judged anew with each packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verdict {
    /// The command was not named within this many bytes.
    Open(usize),
    /// The command may be as long as the request is.
    MayBe,
    /// No judgement was made yet, or the request was refused.
    #[default]
    None,
}

impl Verdict {
    /// Whether a request of which so many bytes have come is to be judged: not if nothing can have changed, and not again
    /// before twice as much has come, so that all looks together are no more than two at all of it.
    pub fn is_due(self, come: usize) -> bool {
        match self {
            Self::Open(seen) => come >= 2 * seen || come >= BEGINNING_BYTES_MAX,
            Self::MayBe => false,
            Self::None => true,
        }
    }

    /// Keeps the result of [`judge`] on the first `come` bytes.
    pub fn note<T, E>(&mut self, come: usize, judged: Option<&Result<T, E>>) {
        *self = match judged {
            None => Self::Open(come),
            Some(Ok(_)) => Self::MayBe,
            Some(Err(_)) => Self::None,
        };
    }
}

/// Judges a request of `bytes` bytes by what has come of it. `None` if more has to come first.
///
/// The command is the one named first: another name behind it is refused when all of it is read.
pub fn judge(
    beginning: &[u8],
    bytes: usize,
    face: Face,
) -> Option<Result<&'static CommandSpec, Error>> {
    let window = &beginning[..beginning.len().min(BEGINNING_BYTES_MAX)];
    let name = match face {
        Face::Frame => name_in_frame(window),
        Face::Text => json::text_of(window, "cmd"),
    };
    let Some(name) = name else {
        let all = window.len() == BEGINNING_BYTES_MAX || beginning.len() >= bytes;
        let most = BEGINNING_BYTES_MAX;
        return all.then(|| Err(Error::cmd_too_late(most)));
    };
    let Some(spec) = CommandSpec::find(name) else {
        let name = String::from_utf8_lossy(name);
        return Some(Err(Error::unknown_command(cut(&name, SHOWN_BYTES_MAX))));
    };
    let most = match face {
        Face::Frame => spec.bytes_max,
        Face::Text => spec.bytes_max.saturating_mul(JSON_EXPANSION),
    };
    Some(if bytes <= most { Ok(spec) } else { Err(too_long(spec, most)) })
}

/// Says that a command can not need as many bytes, and which of its fields may have most of them.
pub fn too_long(spec: &CommandSpec, most: usize) -> Error {
    let is_long = |field: &&FieldSpec| {
        matches!(field.kind, Kind::Payload { .. } | Kind::Jobs | Kind::Flow | Kind::JobIds)
    };
    let long = spec.fields.iter().find(is_long);
    let of_field = long.map(|field| format!(", {} {}", field.name, field.kind.bounds()));
    Error::command_too_long(spec.name, most, &of_field.unwrap_or_default())
}

/// The value of `cmd`, if it has come.
pub fn name_in_frame(beginning: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(beginning);
    // Few of the entries may have come.
    let entries = reader.map_begun().ok()??;
    for _ in 0..entries {
        if reader.pass_key().ok()? != b"cmd" {
            reader.pass().ok()?;
        } else if !reader.absent().ok()? {
            return reader.text_bytes().ok()?;
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::api::limits::BATCH_BYTES_MAX;
    use crate::protocol::json::packed as frame;

    fn both(text: &str, bytes: usize) -> [Option<Result<&'static str, String>>; 2] {
        let name = |judged: Option<Result<&'static CommandSpec, Error>>| {
            let outcome = |spec: &'static CommandSpec| spec.name;
            judged.map(|judged| judged.map(outcome).map_err(|error| error.to_string()))
        };
        let packed = frame(text);
        // Cut in the middle of the last value.
        let half = |bytes: &[u8]| bytes[..bytes.len() - 4].to_vec();
        [
            name(judge(&half(&packed), bytes, Face::Frame)),
            name(judge(&half(text.as_bytes()), bytes, Face::Text)),
        ]
    }

    #[test]
    fn a_command_is_known_by_its_beginning_wherever_its_name_stands_in_it() {
        for text in [
            r#"{"cmd":"PUSHB","x":"12345678"}"#,
            r#" { "a" : [ 1 , {"cmd":"Ping"}, "]\"" ] , "cmd" : "PUSHB" , "x":"12345678"}"#,
            r#"{"cmd":null,"reqId":{"cmd":"Ping"},"cmd":"PUSHB","x":"12345678"}"#,
        ] {
            let marked = format!("\u{feff}\u{feff}{text}");
            let judged = judge(marked.as_bytes(), BATCH_BYTES_MAX, Face::Text);
            assert_eq!(judged.unwrap().unwrap().name, "PUSHB", "behind marks of the byte order");
            let known = Some(Ok("PUSHB"));
            assert_eq!(both(text, BATCH_BYTES_MAX), [known.clone(), known], "{text}");
        }
        assert_eq!(both(r#"{"reqId":"1","x":"12345678"}"#, 1 << 20), [None, None]);
    }

    #[test]
    fn a_command_of_short_fields_is_refused_by_its_length_alone() {
        let text = r#"{"cmd":"Ping","x":"12345678"}"#;
        let most = 64 << 10;
        for (judged, most) in both(text, BATCH_BYTES_MAX).into_iter().zip([most, most * 6]) {
            let expected = format!("Ping must have at most {most} bytes");
            assert_eq!(judged, Some(Err(expected)));
        }
        assert_eq!(both(text, most), [Some(Ok("Ping")), Some(Ok("Ping"))]);
        for (name, field) in
            [("ACK", "result at most 10 MB"), ("PUSHB", "jobs at most 10000 items")]
        {
            let text = format!(r#"{{"cmd":"{name}","x":"12345678"}}"#);
            let [judged, _] = both(&text, BATCH_BYTES_MAX + 1);
            let error = judged.unwrap().unwrap_err();
            assert!(error.ends_with(&format!(" bytes, {field}")), "{error}");
        }
        let text = r#"{"cmd":"MakeCoffee","x":"12345678"}"#;
        let unknown = Some(Err("Unknown command: MakeCoffee".to_owned()));
        assert_eq!(both(text, 1 << 20), [unknown.clone(), unknown]);
    }

    #[test]
    fn a_long_request_is_not_judged_with_each_packet() {
        const PACKET_BYTES: usize = 1400;
        let looks = |request: &[u8]| {
            let (mut verdict, mut looks) = (Verdict::default(), 0);
            for come in (PACKET_BYTES..request.len()).step_by(PACKET_BYTES) {
                if verdict.is_due(come) {
                    looks += 1;
                    let judged = judge(&request[..come], request.len(), Face::Frame);
                    verdict.note(come, judged.as_ref());
                }
            }
            (verdict, looks)
        };
        let many = format!("[{}1]", "1,".repeat(30_000));
        let long = "x".repeat(1 << 20);
        let first = frame(&format!(r#"{{"cmd":"PUSHB","x":"{long}"}}"#));
        assert_eq!(looks(&first), (Verdict::MayBe, 1));
        let last = frame(&format!(r#"{{"a":{many},"cmd":"PUSHB","x":"{long}"}}"#));
        let (verdict, looks) = looks(&last);
        assert!(verdict == Verdict::MayBe && looks <= 7, "{looks}");
    }

    #[test]
    fn a_name_that_comes_late_is_looked_for_no_further() {
        let text = format!(r#"{{"x":"{}","cmd":"PUSHB","y":"12345678"}}"#, "x".repeat(1 << 17));
        let late = Some(Err("cmd must stand in the first 65536 bytes".to_owned()));
        assert_eq!(both(&text, BATCH_BYTES_MAX), [late.clone(), late]);
    }

    #[test]
    fn whatever_fits_the_fields_of_a_command_fits_its_bound() {
        let most = |name: &str| CommandSpec::find(name.as_bytes()).unwrap().bytes_max;
        for name in ["PUSH", "ACK", "FAIL", "Update", "Cron", "Progress"] {
            assert!((10 << 20..14 << 20).contains(&most(name)), "{name}: {}", most(name));
        }
        for name in ["PUSHB", "PUSHF", "ACKB", "JobHeartbeatB", "ExtendLocks"] {
            assert_eq!(most(name), BATCH_BYTES_MAX, "{name}");
        }
        for name in ["Ping", "PULL", "GetJobs", "WaitJob", "Cancel", "AddLog"] {
            assert!(most(name) < 256 << 10, "{name}: {}", most(name));
        }
    }
}
