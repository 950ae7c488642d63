//! The settings file: TOML, one key for each setting, its name in lower case. All that is wrong with it is found at once,
//! with its line. Knows keys and types of values; what a value may be is asked of the setting.

use super::origin::{Origin, Source};
use super::setting::{HIDDEN, is_secret};
use super::values::{Ratio, RequestsMax, bounds, reason};
use crate::api::spelling;
use crate::api::version::Version;
use clap::Arg;
use memchr::memchr_iter;
use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A longer file is no settings file.
const BYTES_MAX: u64 = 1 << 20;

/// The values of a file, by the names of settings in lower case.
#[derive(Clone, Debug, Default)]
pub(super) struct SettingsFile(BTreeMap<String, Origin>);

impl SettingsFile {
    /// Reads it, for these settings. An error is a line for each thing that is wrong.
    pub(super) fn read(path: &Path, arguments: &[Arg]) -> Result<Self, Vec<String>> {
        let shown = path.display().to_string();
        let text = text_of(path).map_err(|error| vec![format!("{shown}: {error}")])?;
        parse(&shown, &text, arguments)
    }

    pub(super) fn find(&self, id: &str) -> Option<Origin> {
        self.0.get(id).cloned()
    }
}

fn text_of(path: &Path) -> Result<String, String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("it must have at most {BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("line {} is not UTF-8", line(error.as_bytes(), at))
    })
}

/// The type of a setting's values in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Integer,
    IntegerOrInfinity,
    Number,
    Boolean,
    Text,
    /// A text that commas divide, or an array of texts.
    List,
}

impl Kind {
    fn of(arg: &Arg) -> Self {
        let held = arg.get_value_parser().type_id();
        let is = |one: TypeId| held == one;
        let integers = [TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>()];
        if arg.get_value_delimiter().is_some() {
            Self::List
        } else if is(TypeId::of::<bool>()) {
            Self::Boolean
        } else if is(TypeId::of::<RequestsMax>()) {
            Self::IntegerOrInfinity
        } else if is(TypeId::of::<Ratio>()) {
            Self::Number
        } else if arg.get_id() == "unix_socket_mode" {
            // 0660 is no integer of TOML, and 660 would be another mode.
            Self::Text
        } else if integers.into_iter().any(is) || is(TypeId::of::<Version>()) {
            Self::Integer
        } else {
            Self::Text
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Integer => "an integer",
            Self::IntegerOrInfinity => "an integer or \"Infinity\"",
            Self::Number => "a number",
            Self::Boolean => "true or false",
            Self::Text => "a text in quotes",
            Self::List => "an array of texts, or a text with commas",
        }
    }
}

fn kind_of_value(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// A value as a flag would have it; none, if it is of another kind.
fn text(kind: Kind, value: &DeValue<'_>) -> Option<String> {
    match (kind, value) {
        (Kind::Integer | Kind::IntegerOrInfinity | Kind::Number, DeValue::Integer(number)) => {
            // More than fits is out of all bounds, as it is.
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            Some(parsed.map_or_else(|_| number.as_str().to_owned(), |number| number.to_string()))
        }
        (Kind::Number, DeValue::Float(number)) => Some(number.as_str().to_owned()),
        (Kind::IntegerOrInfinity, DeValue::Float(number)) => {
            let is_infinite = number.as_str().trim_start_matches('+') == "inf";
            is_infinite.then(|| "Infinity".to_owned())
        }
        (Kind::Boolean, DeValue::Boolean(value)) => Some(value.to_string()),
        (Kind::Text | Kind::List | Kind::IntegerOrInfinity, DeValue::String(text)) => {
            Some(text.to_string())
        }
        (Kind::List, DeValue::Array(items)) => {
            let text = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            };
            let texts: Option<Vec<String>> = items.iter().map(text).collect();
            Some(texts?.join(","))
        }
        _ => None,
    }
}

/// The number of the line in which a byte is.
fn line(text: &[u8], at: usize) -> usize {
    1 + memchr_iter(b'\n', &text[..at.min(text.len())]).count()
}

fn parse(path: &str, text: &str, arguments: &[Arg]) -> Result<SettingsFile, Vec<String>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut findings: Vec<(usize, String)> = Vec::new();
    for error in errors {
        let at = error.span().map_or(text.len(), |span| span.start);
        findings.push((line(text.as_bytes(), at), error.message().to_owned()));
    }
    let is_whole = findings.is_empty();
    let mut found = SettingsFile::default();
    for (key, value) in table.get_ref() {
        let at = line(text.as_bytes(), key.span().start);
        match entry(key.get_ref(), value.get_ref(), arguments) {
            // An empty array or a blank text leaves the setting out.
            Ok(text) if text.is_empty() => {}
            Ok(text) => {
                let place = format!("{path}:{at}");
                let origin = Origin { source: Source::File, place, text: text.into() };
                found.0.insert(key.get_ref().to_string(), origin);
            }
            // A finding behind a broken line may only follow from that line.
            Err(_) if !is_whole => {}
            Err(finding) => findings.push((at, finding)),
        }
    }
    if findings.is_empty() {
        return Ok(found);
    }
    findings.sort_by_key(|(line, _)| *line);
    Err(findings.into_iter().map(|(line, finding)| format!("{path}:{line}: {finding}")).collect())
}

/// The value of one key, as a flag would have it, without the blanks around it.
fn entry(key: &str, value: &DeValue<'_>, arguments: &[Arg]) -> Result<String, String> {
    let Some(arg) = arguments.iter().find(|arg| arg.get_id() == key) else {
        return Err(unknown(key, value, arguments));
    };
    let kind = Kind::of(arg);
    let Some(text) = text(kind, value).map(|text| text.trim().to_owned()) else {
        let mut finding = format!("{key} must be {}", kind.name());
        if let (Kind::Integer, Some((least, most))) = (kind, bounds(arg)) {
            // Writing to a text does not fail.
            let _ = write!(finding, " between {least} and {most}");
        }
        let _ = write!(finding, ", and is {}", kind_of_value(value));
        return Err(finding);
    };
    if text.is_empty() {
        return Ok(text);
    }
    match reason(arg, text.as_ref()) {
        None => Ok(text),
        Some(reason) if is_secret(arg) => Err(format!("{key} = {HIDDEN}: {reason}")),
        Some(reason) => Err(format!("{key} = {text}: {reason}")),
    }
}

fn unknown(key: &str, value: &DeValue<'_>, arguments: &[Arg]) -> String {
    let shown = spelling::shown(key);
    if matches!(value, DeValue::Table(_)) {
        return format!("{shown} is a table, and settings have none: each is a key of its own");
    }
    let known = arguments.iter().map(|arg| arg.get_id().as_str());
    match spelling::meant(key, known) {
        Some(meant) => format!("{shown} is no setting; {meant} is one"),
        None => format!("{shown} is no setting; 'corq config show' lists them"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::setting::arguments;
    use super::*;

    fn read(text: &str) -> Result<SettingsFile, Vec<String>> {
        parse("f", text, &arguments())
    }

    fn value(text: &str, id: &str) -> String {
        let origin = read(text).unwrap().find(id).unwrap();
        format!("{} {}", origin.place, origin.text.to_string_lossy())
    }

    #[test]
    fn a_value_of_each_kind_is_what_a_flag_would_have() {
        assert_eq!(value("tcp_port = 7_000", "tcp_port"), "f:1 7000");
        assert_eq!(value("\n# it\ntcp_port = 0x10", "tcp_port"), "f:3 16");
        assert_eq!(value("ui = false", "ui"), "f:1 false");
        assert_eq!(value("memory = true", "memory"), "f:1 true");
        assert_eq!(value("durability = \"synced\"", "durability"), "f:1 synced");
        assert_eq!(value("unix_socket_mode = \"0600\"", "unix_socket_mode"), "f:1 0600");
        assert_eq!(value("protocol_default = 3", "protocol_default"), "f:1 3");
        for infinite in ["inf", "+inf", "\"Infinity\""] {
            let text = format!("rate_limit_max_requests = {infinite}");
            assert_eq!(value(&text, "rate_limit_max_requests"), "f:1 Infinity");
        }
        let list = "auth_tokens = [\n  \"one\",\n  \"read(a,b):two\",\n]";
        assert_eq!(value(list, "auth_tokens"), "f:1 one,read(a,b):two");
        assert_eq!(value("auth_tokens = \"one,two\"", "auth_tokens"), "f:1 one,two");
        assert_eq!(value("durability = \"synced \"", "durability"), "f:1 synced");
        for nothing in [
            "cors_allow_origin = []",
            "data_path = \"\"",
            "tcp_socket_path = \" \"",
            "durability = \"\"",
            "auth_tokens = \"\"",
            "rate_limit_max_requests = \"\"",
        ] {
            assert!(read(nothing).unwrap().0.is_empty(), "{nothing}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_found_at_once_with_its_line_its_key_and_its_bound() {
        let text = "tcp_port = 70000\nHTTP_PORT = 1\nshards = \"two\"\ntpc_port = 1\n\
                    durability = \"hopeful\"\nunix_socket_mode = 660\nsegment_mb = 65\nui = 1\nwhat = 1\n\
                    auth_tokens = [1]\ncompleted_max = -1\n[tls]\nkey = 1\n";
        assert_eq!(
            read(text).err().unwrap(),
            [
                "f:1: tcp_port = 70000: it must be between 0 and 65535",
                "f:2: HTTP_PORT is no setting; http_port is one",
                "f:3: shards must be an integer between 1 and 1024, and is a text",
                "f:4: tpc_port is no setting; tcp_port is one",
                "f:5: durability = hopeful: it must be one of written, synced, replicated",
                "f:6: unix_socket_mode must be a text in quotes, and is an integer",
                "f:7: segment_mb = 65: it must be a power of two between 16 and 1024",
                "f:8: ui must be true or false, and is an integer",
                "f:9: what is no setting; 'corq config show' lists them",
                "f:10: auth_tokens must be an array of texts, or a text with commas, and is an array",
                "f:11: completed_max = -1: it must be between 0 and 4294967295",
                "f:12: tls is a table, and settings have none: each is a key of its own",
            ]
        );
    }

    #[test]
    fn what_is_no_toml_is_said_with_its_line_and_nothing_follows_from_it() {
        let found = read("tcp_port = 1\nhttp_port = \ntcp_port = 2\n").err().unwrap();
        assert!(found.iter().any(|line| line.starts_with("f:2: ")), "{found:?}");
        assert!(found.iter().any(|line| line.starts_with("f:3: ")), "{found:?}");
        assert!(read("").is_ok() && read("# nothing\n").is_ok());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let error = |path: &Path| SettingsFile::read(path, &arguments()).err().unwrap().concat();
        assert!(error(&path).contains("No such file"));
        fs::write(&path, b"\n\xff").unwrap();
        assert!(error(&path).ends_with("line 2 is not UTF-8"));
        fs::write(&path, vec![b'#'; 2 << 20]).unwrap();
        assert!(error(&path).contains("at most 1048576 bytes"));
        assert!(error(dir.path()).contains("directory"));
    }
}
