//! Texts become values, of those settings that are more than a number or a path; and why a text is none.

use crate::api::version::Version;
use crate::backups::target::BackupTarget;
use crate::otlp::endpoint;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use corq_shards::cron::expression::Plan;
use std::error::Error as _;
use std::ffi::{OsStr, OsString};

/// Reads a text as the value of a setting, as if its flag had it.
fn read(arg: &Arg, text: &OsStr) -> Result<(), clap::Error> {
    let command = Command::new("corq").no_binary_name(true).arg(arg.clone());
    command.try_get_matches_from([flag(arg, text)]).map(|_| ())
}

/// The word of a command line that gives a setting this text.
pub(super) fn flag(arg: &Arg, text: &OsStr) -> OsString {
    let mut word = OsString::from(format!("--{}=", arg.get_long().unwrap_or_default()));
    word.push(text);
    word
}

/// Lets an option that takes a value take any word, also one that begins with a dash: what stands behind `--error` is a text.
pub fn free(arg: Arg) -> Arg {
    let takes_one = arg.get_action().takes_values() && arg.get_num_args().is_none();
    if takes_one && !arg.is_positional() { arg.allow_hyphen_values(true) } else { arg }
}

/// Whether a text turns a switch off.
pub fn is_off(text: &OsStr) -> bool {
    let text = text.to_string_lossy().to_ascii_lowercase();
    ["false", "0", "no", "n", "off", "f"].contains(&&*text)
}

/// The reason for which a text is no value of a setting; `None` if it is one.
pub(super) fn reason(arg: &Arg, text: &OsStr) -> Option<String> {
    let error = read(arg, text).err()?;
    if let Some((least, most)) = bounds(arg) {
        return Some(format!("it must be between {least} and {most}"));
    }
    if let Some(ContextValue::Strings(known)) = error.get(ContextKind::ValidValue)
        && !known.is_empty()
    {
        return Some(format!("it must be one of {}", known.join(", ")));
    }
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    Some(match error.kind() {
        ErrorKind::InvalidUtf8 => "it must be UTF-8".into(),
        _ if source == "value was not a boolean" => "it must be true or false".into(),
        _ if source.contains("digit found")
            || source.contains("too large")
            || source.contains("empty string") =>
        {
            "it must be a whole number from 0 on".into()
        }
        _ if source.is_empty() => "it must not be empty".into(),
        _ => source,
    })
}

/// The least and the most that a setting may be, if it is a number with bounds: those are said by the refusal of what is
/// beyond all of them.
pub(super) fn bounds(arg: &Arg) -> Option<(String, String)> {
    ["-1", "18446744073709551615"].into_iter().find_map(|beyond| {
        let refusal = read(arg, beyond.as_ref()).err()?;
        let refusal = refusal.source()?.to_string();
        let (least, most) = refusal.split_once(" is not in ")?.1.split_once("..=")?;
        Some((least.to_owned(), most.to_owned()))
    })
}

/// A limit on requests, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestsMax(pub Option<u32>);

pub(super) fn requests_max(text: &str) -> Result<RequestsMax, String> {
    if text.eq_ignore_ascii_case("infinity") {
        return Ok(RequestsMax(None));
    }
    match text.parse() {
        Ok(requests) if requests > 0 => Ok(RequestsMax(Some(requests))),
        _ => Err(format!("it must be between 1 and {}, or Infinity", u32::MAX)),
    }
}

/// A part of all, from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio(pub f64);

pub(super) fn ratio(text: &str) -> Result<Ratio, String> {
    match text.trim().parse() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Ratio(ratio)),
        _ => Err("it must be between 0 and 1".into()),
    }
}

/// Nothing at all is how a setting is left out in many places.
pub(super) fn otlp_endpoint(text: &str) -> Result<String, String> {
    let text = text.trim();
    if !text.is_empty() {
        endpoint::target(text)?;
    }
    Ok(text.to_owned())
}

pub(super) fn otlp_header(text: &str) -> Result<String, String> {
    if !text.trim().is_empty() {
        endpoint::header(text)?;
    }
    Ok(text.to_owned())
}

pub(super) fn service_name(text: &str) -> Result<String, String> {
    let fits = text.chars().count() <= 128 && !text.chars().any(char::is_control);
    if fits && !text.trim().is_empty() {
        Ok(text.to_owned())
    } else {
        Err("it must be a name of at most 128 characters".into())
    }
}

/// As browsers write it, in lower case and without the port that its scheme means, since it is compared as it is and goes
/// into a header.
pub(super) fn origin(text: &str) -> Result<String, String> {
    let text = text.trim().to_ascii_lowercase();
    let is_one = text.split_once("://").is_some_and(|(scheme, host)| {
        let graphic = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        !scheme.is_empty() && !host.is_empty() && graphic(&text) && !host.contains(['/', '?', '#'])
    });
    if text == "*" || is_one && text.len() <= 256 {
        let port = if text.starts_with("https://") { ":443" } else { ":80" };
        let usual = text.starts_with("http://") || text.starts_with("https://");
        Ok(text.strip_suffix(port).filter(|_| usual).unwrap_or(&text).to_string())
    } else {
        Err("it must be * or origins without a path, such as https://example.com".into())
    }
}

/// In lower case and without the dot that may end it.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    let name = text.trim().trim_end_matches('.').to_ascii_lowercase();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if name == "*" || name.len() <= 253 && name.bytes().all(fits) {
        Ok(name)
    } else {
        Err("it must be * or names of hosts without ports, such as queue.example.com".into())
    }
}

pub(super) fn protocol_version(text: &str) -> Result<Version, String> {
    let version = [Version::Two, Version::Three]
        .into_iter()
        .find(|version| text.parse() == Ok(version.number()));
    version.ok_or_else(|| "it must be 2 or 3".into())
}

/// A prefix ends with an underscore, whether it is given with one or not.
pub(super) fn metrics_prefix(text: &str) -> Result<String, String> {
    let prefix = text.trim_end_matches('_');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = prefix.starts_with(|first: char| first.is_ascii_alphabetic());
    match prefix {
        "corq" => {
            Err("it must be another one than corq_, under which all metrics come anyway".into())
        }
        _ if begins && prefix.len() < 64 && prefix.bytes().all(fits) => Ok(format!("{prefix}_")),
        _ => Err("it must be a letter, then up to 63 letters, digits and underscores".into()),
    }
}

/// First segments of paths that are routes.
const TAKEN: [&str; 18] = [
    "crons",
    "events",
    "flows",
    "gc",
    "health",
    "healthz",
    "heapstats",
    "jobs",
    "live",
    "metrics",
    "ping",
    "prometheus",
    "queues",
    "ready",
    "stats",
    "webhooks",
    "whoami",
    "workers",
];

/// Without the slash that may end it.
pub(super) fn page_path(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    let fits = |segment: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        !segment.is_empty() && !segment.starts_with('.') && segment.bytes().all(fits)
    };
    let segments = path.strip_prefix('/').map(|path| path.split('/'));
    match segments {
        Some(mut segments) if path.len() <= 256 && segments.clone().all(fits) => {
            let first = segments.next().unwrap_or_default();
            if TAKEN.contains(&first) || first == "ws" {
                return Err(format!("it must not begin with /{first}, which is taken"));
            }
            Ok(path.to_owned())
        }
        _ => Err("it must be a path of letters, digits and -._~, such as /ui".into()),
    }
}

pub(super) fn page_label(text: &str) -> Result<String, String> {
    if text.chars().count() <= 32 && !text.chars().any(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err("it must have at most 32 characters".into())
    }
}

pub(super) fn page_color(text: &str) -> Result<String, String> {
    let is_number = text.strip_prefix('#').is_some_and(|digits| {
        matches!(digits.len(), 3 | 6) && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    });
    let is_name =
        (3..=24).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    if is_number || is_name || text.is_empty() {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("it must be a colour such as #c0392b or red".into())
    }
}

pub(super) fn page_secret(text: &str) -> Result<String, String> {
    let path = text.trim();
    if path.len() <= 256 && !path.chars().any(char::is_control) {
        Ok(path.to_owned())
    } else {
        Err("it must be paths of at most 256 characters, such as password or *.token".into())
    }
}

pub(super) fn socket_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("it must be between 0000 and 0777, in octal".into()),
    }
}

/// As it is written; schedules of jobs are read the same way.
pub(super) fn backup_schedule(text: &str) -> Result<String, String> {
    if !text.is_empty() {
        Plan::at(text, None).map_err(|bad| bad.0)?;
    }
    Ok(text.to_owned())
}

pub(super) fn backup_target(text: &str) -> Result<String, String> {
    if !text.is_empty() {
        BackupTarget::parse(text)?;
    }
    Ok(text.to_owned())
}

pub(super) fn s3_endpoint(text: &str) -> Result<String, String> {
    corq_io::s3::check_endpoint(&text.replace("{bucket}", "bucket")).map(|_| text.to_owned())
}

/// Checks that a region can be a part of a host's name.
pub(super) fn s3_region(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if (1..=64).contains(&text.len()) && text.bytes().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("it must be the name of a region, such as eu-west-1".into())
    }
}

/// Checks that a word can be in a header.
pub(super) fn s3_word(text: &str) -> Result<String, String> {
    if text.len() <= 8192 && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text.to_owned())
    } else {
        Err("it must be a word of at most 8192 ASCII characters".into())
    }
}

pub(super) fn segment_mb(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(size @ (16 | 32 | 64 | 128 | 256 | 512 | 1024)) => Ok(size),
        _ => Err("it must be a power of two between 16 and 1024".into()),
    }
}
