//! Input of commands: payloads from an argument, a file or standard input, and the yes before something is destroyed.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Read, Write};

use super::failure::Failure;
use crate::escape;
use crate::protocol::json;

/// Most bytes of a text: a frame holds no more.
pub const TEXT_BYTES_MAX: u64 = 64 << 20;

/// The value of a JSON text, encoded, for the field `name`: the argument itself, `@file`, or `-` for
/// standard input.
pub fn payload(name: &str, argument: &str) -> Result<Vec<u8>, Failure> {
    payload_or(name, argument, None)
}

/// As [`payload`], of a result: what is no text or no number in it is mended, as the server does it.
pub fn outcome(argument: &str) -> Result<Vec<u8>, Failure> {
    let text = text_of("result", argument, None)?;
    encoded("result", json::mended(&text).as_deref().unwrap_or(&text))
}

/// As [`payload`], with a text in place of standard input that holds nothing.
fn payload_or(name: &str, argument: &str, nothing: Option<&str>) -> Result<Vec<u8>, Failure> {
    encoded(name, &text_of(name, argument, nothing)?)
}

/// The JSON text itself, which is not empty.
fn text_of(name: &str, argument: &str, nothing: Option<&str>) -> Result<Vec<u8>, Failure> {
    let text = match argument.strip_prefix('@') {
        None if argument == "-" => {
            let text = read_stdin(name)?;
            match nothing.filter(|_| text.trim_ascii().is_empty()) {
                Some(nothing) => nothing.as_bytes().to_vec(),
                None => text,
            }
        }
        None => argument.as_bytes().to_vec(),
        Some(path) => {
            let read = fs::File::open(path).and_then(read_all);
            read.map_err(|error| Failure::Usage(format!("{name}: {path}: {error}")))?
        }
    };
    if text.trim_ascii().is_empty() {
        let what = if name == "data" { "payload" } else { name };
        return Err(Failure::Usage(format!("no {what}: give JSON, @file, or null")));
    }
    Ok(text)
}

fn encoded(name: &str, text: &[u8]) -> Result<Vec<u8>, Failure> {
    encode(text).map_err(|reason| {
        Failure::Usage(format!(
            "{name} is not JSON ({reason}): a text needs quotes of its own, as '\"hello\"'; a file \
             is @name, standard input is -"
        ))
    })
}

/// As [`payload`], where nothing given means standard input, unless that is a person. `nothing` is the payload if there is none
/// at all.
pub fn payload_or_stdin(
    name: &str,
    argument: Option<&str>,
    nothing: Option<&str>,
) -> Result<Vec<u8>, Failure> {
    match (argument, nothing) {
        (Some(argument), _) => payload(name, argument),
        (None, Some(nothing)) if io::stdin().is_terminal() => payload(name, nothing),
        (None, None) if io::stdin().is_terminal() => Err(Failure::Usage(format!(
            "{name} is required: give JSON, @file, or - for standard input"
        ))),
        (None, nothing) => payload_or(name, "-", nothing),
    }
}

/// The value of a JSON text, encoded.
pub fn encode(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut value = Vec::with_capacity(text.len());
    json::to_msgpack(text, &mut value).map_err(|error| error.to_string())?;
    Ok(value)
}

fn read_stdin(name: &str) -> Result<Vec<u8>, Failure> {
    read_all(io::stdin().lock())
        .map_err(|error| Failure::Usage(format!("{name}: standard input: {error}")))
}

/// Everything, unless it is more than any server takes.
fn read_all(input: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    input.take(TEXT_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        return Err(io::Error::other("more than 64 MB, which no server takes"));
    }
    Ok(text)
}

/// Asks a person before `deed` is done, and takes `--yes` from everybody else.
pub fn confirm(yes: bool, deed: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::Usage(format!(
            "this would {deed}, and there is nobody to ask: say --yes"
        )));
    }
    let refused = || Failure::Failed("nothing was done".to_owned());
    eprint!("This will {}. Go on? [y/N] ", escape::line(deed));
    io::stderr().flush().map_err(|_| refused())?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(|_| refused())?;
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        Ok(())
    } else {
        Err(refused())
    }
}
