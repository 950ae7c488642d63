//! A job of another job queue on its way: what a push needs, what the source needs to forget it, and how its values become ours.

use crate::cli::request::Fields;
use crate::protocol::json;
use crate::protocol::msgpack::writer::Writer;

/// Most characters of a queue's name, an id or a key.
pub const NAME_CHARS_MAX: usize = 256;

/// In which state a job is in its source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum State {
    /// Ready for a worker
    Waiting,
    /// To be run at a time
    Delayed,
    /// Failed, to be run again
    Retrying,
    /// Failed for good
    Dead,
    /// Waits for other jobs
    Parents,
    /// A worker has it
    Active,
    /// Has succeeded
    Completed,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delayed => "delayed",
            Self::Retrying => "retrying",
            Self::Dead => "dead",
            Self::Parents => "parents",
            Self::Active => "active",
            Self::Completed => "completed",
        }
    }
}

/// How a dead letter came to be one.
#[derive(Clone, Debug)]
pub struct Death {
    pub error: String,
    /// Reason, in the words of a dead-letter queue.
    pub reason: &'static str,
    /// Attempts that failed.
    pub attempts: i64,
}

/// Facts that a source needs to forget a job.
#[derive(Clone, Debug, Default)]
pub struct Mark {
    /// The list or set that it is in.
    pub place: String,
    /// Member of the list or set.
    pub member: Vec<u8>,
    /// Further keys or words that go with it.
    pub with: Vec<String>,
}

/// A job that is to be pushed.
#[derive(Debug)]
pub struct ForeignJob {
    pub queue: String,
    /// Id of the job in its source, unique there; a job without one is pushed again by a second run.
    pub id: Option<String>,
    pub state: State,
    /// Fields of the job but for `customId`, `delay` and `timestamp`.
    pub fields: Fields,
    /// When it came, milliseconds since 1970.
    pub created_ms: Option<i64>,
    /// When it is to run.
    pub run_at_ms: Option<i64>,
    pub death: Option<Death>,
    pub mark: Mark,
}

impl ForeignJob {
    pub fn new(queue: &str, id: impl Into<String>, state: State) -> Self {
        Self {
            queue: queue.to_owned(),
            id: Some(id.into()),
            state,
            fields: Fields::of_job(),
            created_ms: None,
            run_at_ms: None,
            death: None,
            mark: Mark::default(),
        }
    }
}

/// A schedule that is to be set.
#[derive(Debug)]
pub struct ForeignSchedule {
    pub name: String,
    /// The fields of `Cron` but for its name and its queue, encoded: names and values.
    pub fields: Vec<(&'static str, Vec<u8>)>,
    pub queue: String,
    pub enabled: bool,
}

impl ForeignSchedule {
    pub fn new(name: impl Into<String>, queue: &str, data: Vec<u8>) -> Self {
        Self {
            name: name.into(),
            fields: vec![("data", data)],
            queue: queue.to_owned(),
            enabled: true,
        }
    }

    pub fn text(&mut self, name: &'static str, value: &str) {
        self.fields.push((name, text(value)));
    }

    pub fn integer(&mut self, name: &'static str, value: i64) {
        let mut out = Vec::new();
        Writer::new(&mut out).int(value);
        self.fields.push((name, out));
    }
}

/// A text, encoded.
pub fn text(value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    Writer::new(&mut out).str(value);
    out
}

/// Bytes, encoded as such.
pub fn binary(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 5);
    match bytes.len() {
        length @ ..=0xff => out.extend([0xc4, length as u8]),
        length @ ..=0xffff => {
            out.push(0xc5);
            out.extend((length as u16).to_be_bytes());
        }
        length => {
            out.push(0xc6);
            out.extend((length as u32).to_be_bytes());
        }
    }
    out.extend_from_slice(bytes);
    out
}

/// A payload of bytes: the value of its JSON, else its text, else the bytes.
pub fn payload(bytes: &[u8]) -> Vec<u8> {
    if let Some(value) = json_value(bytes) {
        return value;
    }
    match std::str::from_utf8(bytes) {
        Ok(words) => text(words),
        Err(_) => binary(bytes),
    }
}

/// The value of a JSON text, encoded.
pub fn json_value(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    json::to_msgpack(bytes, &mut out).ok()?;
    Some(out)
}

/// The name of a queue as it may be here, where other characters become `_`.
pub fn queue_name(name: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "_-.:".contains(letter);
    let name: String =
        name.chars().take(NAME_CHARS_MAX).map(|it| if fits(it) { it } else { '_' }).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// A text that fits a field of names.
pub fn short(text: &str) -> String {
    text.chars().take(NAME_CHARS_MAX).collect()
}

/// Milliseconds since 1970 of a time in RFC 3339.
pub fn time_ms(text: &str) -> Option<i64> {
    chrono::DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp_millis())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_json_or_text_or_bytes() {
        assert_eq!(payload(b"{\"a\":1}"), [0x81, 0xa1, b'a', 1]);
        assert_eq!(payload(b"hello"), [&[0xa5], &b"hello"[..]].concat());
        assert_eq!(payload(&[0xff, 0]), [0xc4, 2, 0xff, 0]);
        assert_eq!(binary(&[7; 300])[..3], [0xc5, 1, 44]);
        assert_eq!(binary(&vec![7; 70_000])[..5], [0xc6, 0, 1, 0x11, 0x70]);
    }

    #[test]
    fn names_of_queues_fit() {
        assert_eq!(queue_name("mail/high prio"), "mail_high_prio");
        assert_eq!(queue_name(""), "_");
        assert_eq!(queue_name(&"ü".repeat(300)).len(), 256);
    }

    #[test]
    fn times_are_read() {
        assert_eq!(time_ms("2026-11-24T05:00:00.5Z"), Some(1_795_496_400_500));
        assert_eq!(time_ms("soon"), None);
    }
}
