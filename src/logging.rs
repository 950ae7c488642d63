//! The server's own log, on standard error. Every event is one line, whatever the texts in it are: clients choose many of
//! them. A reader of the log that goes away costs its lines and nothing else.
//!
//! An event is a text for people. What programs look for is given beside it, under the names in [`FIELDS`]: a line of JSON has
//! it as fields, a line of text has it in the text.

use crate::config::{Config, Environment, LogFormat, LogLevel};
use crate::escape;
use crate::protocol::json;
use chrono::{DateTime, SecondsFormat, Utc};
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// Fields that events have beside their text, where they apply.
pub const FIELDS: [&str; 6] = ["shard", "queue", "command", "code", "conn", "duration_ms"];

/// Where the lowest severity is changed.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}

/// Begins to log, as the settings say.
pub fn start(config: &Config) {
    let (level, handle) = reload::Layer::new(filter(config.log_level));
    // The program begins to log once.
    let _ = LEVEL.set(handle);
    // An error of writing would be reported on standard error, which is what cannot be written to: that would panic.
    let lines = tracing_subscriber::fmt::layer().log_internal_errors(false);
    let lines = lines.with_writer(io::stderr);
    let registry = tracing_subscriber::registry().with(level);
    match config.log_format {
        LogFormat::Text => {
            let colours = io::stderr().is_terminal();
            let lines = lines.with_ansi(colours).with_target(false);
            registry.with(lines.fmt_fields(OneLine)).init();
        }
        LogFormat::Json => {
            registry.with(lines.event_format(JsonLine)).init();
            std::panic::set_hook(Box::new(|panic| tell(LogFormat::Json, &panic.to_string())));
        }
    }
    // A shard that panicked has broken an invariant: no other thread may go on, in builds that unwind, too.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

/// Changes the lowest severity that is logged.
pub fn set_level(level: LogLevel) {
    if let Some(handle) = LEVEL.get() {
        // An error means that nothing logs any more: the level does not matter then.
        let _ = handle.reload(filter(level));
    }
}

/// Prints why the program ends. A standard error that has gone is nothing to panic for.
pub fn complain(text: &str) {
    tell(LogFormat::Text, text);
}

/// Prints why the server does not start or ends, in the format of its log: each line of the text by itself.
pub fn tell(format: LogFormat, text: &str) {
    let mut out = String::new();
    match format {
        LogFormat::Text => _ = writeln!(out, "corq: {text}"),
        LogFormat::Json => text.lines().filter(|line| !line.is_empty()).for_each(|line| {
            let said = Said { msg: line.to_owned(), ..Said::default() };
            out.push_str(&said.json(Level::ERROR));
        }),
    }
    // In one piece, so that lines of others do not come between.
    let _ = io::stderr().write_all(out.as_bytes());
}

/// The format that the words of a command line, or the environment, ask for before they are understood.
pub fn asked_format(words: &[OsString]) -> LogFormat {
    const FLAG: &str = "--log-format";
    let asked = Environment::of_process().setting("log_format");
    let mut asked = asked.and_then(|text| text.into_string().ok());
    let texts: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    for (place, text) in texts.iter().enumerate() {
        if let Some(value) = text.strip_prefix(FLAG).and_then(|rest| rest.strip_prefix('=')) {
            asked = Some(value.to_owned());
        } else if *text == FLAG {
            asked = texts.get(place + 1).map(|&value| value.to_owned());
        }
    }
    if asked.as_deref() == Some("json") { LogFormat::Json } else { LogFormat::Text }
}

/// The fields of an event.
#[derive(Default)]
struct Said {
    msg: String,
    /// Values of the fields named in [`FIELDS`], as JSON.
    fields: Vec<(&'static str, String)>,
    /// All else.
    others: Vec<(&'static str, String)>,
}

impl Said {
    fn of(fields: impl RecordFields) -> Self {
        let mut said = Self::default();
        fields.record(&mut said);
        said
    }

    fn keep(&mut self, field: &Field, value: String, json: impl FnOnce(&str) -> String) {
        let name = field.name();
        if name == "message" {
            self.msg = value;
        } else if FIELDS.contains(&name) {
            self.fields.push((name, json(&value)));
        } else {
            self.others.push((name, value));
        }
    }

    /// As a line of text. What is in the text already is not said twice.
    fn text(&self) -> String {
        let mut line = self.msg.clone();
        for (name, value) in &self.others {
            // Writing to a text does not fail.
            let _ = write!(line, " {name}={value}");
        }
        escape::line(&line).into_owned()
    }

    /// As a line of JSON.
    fn json(&self, level: Level) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now: Option<DateTime<Utc>> = DateTime::from_timestamp_micros(now.as_micros() as i64);
        let time = now.unwrap_or_default().to_rfc3339_opts(SecondsFormat::Micros, true);
        let mut line = format!(r#"{{"ts":"{time}","level":"{level}","msg":{}"#, quoted(&self.msg));
        let others = self.others.iter().map(|(name, value)| (*name, quoted(value)));
        for (name, value) in self.fields.iter().cloned().chain(others) {
            let _ = write!(line, r#","{name}":{value}"#);
        }
        line.push_str("}\n");
        String::from_utf8_lossy(&escape::json(line.as_bytes())).into_owned()
    }
}

impl Visit for Said {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.keep(field, value.to_string(), str::to_owned);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.keep(field, value.to_string(), str::to_owned);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, value.to_owned(), quoted);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.keep(field, format!("{value:?}"), quoted);
    }
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::string(&mut out, text);
    String::from_utf8_lossy(&out).into_owned()
}

/// Fields as text that has no line breaks.
struct OneLine;

impl<'a> FormatFields<'a> for OneLine {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'a>, fields: R) -> fmt::Result {
        writer.write_str(&Said::of(fields).text())
    }
}

/// An event as one object.
struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        writer.write_str(&said.json(*event.metadata().level()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::fmt::MakeWriter;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Kept {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    impl Kept {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn an_event_is_one_line_whichever_field_has_the_text() {
        let kept = Kept::default();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(kept.clone());
        let lines = lines.fmt_fields(OneLine);
        tracing::subscriber::with_default(lines.finish(), || {
            tracing::info!(name = "a\nb", shard = 1, "c\r\nd\u{202e}");
        });
        let text = kept.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.ends_with("c\\r\\nd\\u{202e} name=a\\nb\n"), "{text:?}");
        assert!(!text.trim_end().chars().any(escape::acts), "{text:?}");
    }

    #[test]
    fn a_line_of_json_has_what_programs_look_for_as_fields() {
        let kept = Kept::default();
        let lines = tracing_subscriber::fmt().with_writer(kept.clone()).event_format(JsonLine);
        tracing::subscriber::with_default(lines.finish(), || {
            let (conn, code) = (format_args!("0/{}", 7), "disk_full");
            tracing::warn!(shard = 2_usize, duration_ms = 40_u64, code, conn = %conn, other = "x\n", "a \"b\"\u{9b}");
        });
        let text = kept.text();
        assert!(!text.trim_end().chars().any(escape::acts), "{text:?}");
        let mut line: Value = serde_json::from_str(&text).unwrap();
        let ts = line.as_object_mut().unwrap().remove("ts").unwrap();
        assert!(ts.as_str().unwrap().ends_with('Z') && text.starts_with("{\"ts\":"));
        assert_eq!(
            line,
            json!({"level": "WARN", "msg": "a \"b\"\u{9b}", "shard": 2, "duration_ms": 40, "code": "disk_full",
                "conn": "0/7", "other": "x\n"})
        );
    }

    #[test]
    fn the_format_is_known_before_the_command_line_is_understood() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(asked_format(&words("corq serve --log-format json --bogus")), LogFormat::Json);
        assert_eq!(asked_format(&words("corq --log-format=json")), LogFormat::Json);
        assert_eq!(asked_format(&words("corq --log-format text")), LogFormat::Text);
    }
}
