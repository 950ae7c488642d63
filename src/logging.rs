//! The server's own log, on standard error. Every event is one line, whatever the texts in it are: clients choose many of
//! them. A reader of the log that goes away costs its lines and nothing else.

use crate::config::{Config, LogFormat, LogLevel};
use crate::escape;
use std::fmt;
use std::io::{self, IsTerminal, Stderr, Write};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

/// Begins to log, as the settings say.
pub fn start(config: &Config) {
    let level = match config.log_level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
    };
    // What cannot be written would be complained of on standard error, where it cannot be written: a panic.
    let lines = tracing_subscriber::fmt().with_max_level(level).log_internal_errors(false);
    match config.log_format {
        LogFormat::Text => {
            let colours = io::stderr().is_terminal();
            let lines = lines.with_writer(io::stderr).with_ansi(colours).with_target(false);
            lines.fmt_fields(OneLine).init();
        }
        LogFormat::Json => lines.json().with_writer(|| Json(io::stderr())).init(),
    }
}

/// Prints why the program ends. A standard error that has gone is nothing to panic for.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "corq: {text}");
}

/// Fields as text that has no line breaks.
struct OneLine;

impl<'a> FormatFields<'a> for OneLine {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'a>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&escape::line(&text))
    }
}

/// Takes each event in one piece, as JSON.
struct Json(Stderr);

impl Write for Json {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(&escape::json(event))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
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

    #[test]
    fn an_event_is_one_line_whichever_field_has_the_text() {
        let kept = Kept::default();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(kept.clone());
        let lines = lines.fmt_fields(OneLine);
        tracing::subscriber::with_default(lines.finish(), || {
            tracing::info!(name = "a\nb", "c\r\nd\u{202e}");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.ends_with('\n') && !text.trim_end().chars().any(escape::acts), "{text:?}");
    }
}
