//! Samples for viewers. A sample is made once; a viewer gets the parts that it watches, as bytes that are copied
//! together for it: nothing is encoded per viewer.
//!
//! A ground type: it imports nothing of the server.

use crate::api::access::{QueuePatterns, Scope};
use crate::api::objects::WATCHED_QUEUES;
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::json;
use crate::protocol::msgpack::writer::MapWriter;
use crate::protocol::websocket::Head;

/// The bit of the server's figures in a mask of what is watched.
pub const STATS: u32 = 1;
/// The bit of the busiest queues.
pub const QUEUES: u32 = WATCHED_QUEUES;
/// The bit of the shards.
pub const SHARDS: u32 = 1 << 2;
/// The bit of what snapshots have beside the figures of the server. No viewer names it.
pub const SNAPSHOT: u32 = 1 << 3;

/// Rows that lie behind each other, and where each ends.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Rows {
    /// Adds a row.
    pub fn push(&mut self, row: &[u8]) {
        self.bytes.extend_from_slice(row);
        self.ends.push(self.bytes.len());
    }

    /// The first rows, and how many they are.
    fn first(&self, most: usize) -> (&[u8], usize) {
        let count = most.min(self.ends.len());
        let end = count.checked_sub(1).map_or(0, |last| self.ends[last]);
        (&self.bytes[..end], count)
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.bytes[begin..end])
    }

    /// Adds a row of JSON, with a comma in front but for the first.
    fn push_text(&mut self, row: &[u8]) {
        if !self.ends.is_empty() {
            self.bytes.push(b',');
        }
        self.push(row);
    }

    /// The rows as JSON, each with a comma in front but for the first.
    fn texts(&self) -> Self {
        let mut texts = Self::default();
        for row in self.iter() {
            if !texts.ends.is_empty() {
                texts.bytes.push(b',');
            }
            // They were written here.
            let written = json::from_msgpack(row, &mut texts.bytes);
            debug_assert!(written.is_ok(), "a row is a value");
            texts.ends.push(texts.bytes.len());
        }
        texts
    }
}

/// A sample of the whole server. Parts that no viewer watches are empty.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// When it was taken.
    pub at_ms: u64,
    /// Parts of the sample, as a mask, and how many queues it may have.
    pub what: u32,
    pub top: u32,
    /// Figures of the server, one value.
    pub stats: Rows,
    /// The busiest queues.
    pub queues: Rows,
    /// The shards.
    pub shards: Rows,
    /// The busiest queues of those that tokens are limited to.
    pub scoped: Vec<(&'static QueuePatterns, Rows)>,
    /// Figures of snapshots beside those of the server.
    pub snapshot: Snapshot,
}

/// Figures of a snapshot for dashboards, beside those of the server.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The busiest queues, as entries of an object of JSON.
    queues: Rows,
    /// Registered workers, and those of them that have been heard of lately.
    pub workers: u64,
    pub attending: u64,
    /// How many schedules there are.
    pub crons: u64,
}

impl Snapshot {
    /// Adds a queue.
    pub fn push_queue(&mut self, entry: &[u8]) {
        self.queues.push_text(entry);
    }
}

impl Sample {
    /// The sample with its rows as JSON, for subscribers to snapshots and viewers over WebSocket.
    pub fn as_text(&self) -> Self {
        Self {
            at_ms: self.at_ms,
            what: self.what,
            top: self.top,
            stats: self.stats.texts(),
            queues: self.queues.texts(),
            shards: self.shards.texts(),
            scoped: self.scoped.iter().map(|(queues, rows)| (*queues, rows.texts())).collect(),
            snapshot: self.snapshot.clone(),
        }
    }

    /// The queues that a viewer of this scope sees; none if the sample is not about them.
    pub fn queues_of(&self, scope: Scope) -> Option<&Rows> {
        let Some(own) = scope else { return Some(&self.queues) };
        self.scoped.iter().find(|(queues, _)| std::ptr::eq(*queues, own)).map(|(_, rows)| rows)
    }

    /// Appends the frame of a viewer over TCP.
    pub fn write_frame(&self, out: &mut Vec<u8>, what: u32, top: usize, queues: &Rows) {
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX_BYTES]);
        let mut sample = MapWriter::begin(out);
        sample.key("type").str("watch");
        sample.key("at").uint(self.at_ms);
        if what & STATS > 0 {
            sample.key("stats").raw(self.stats.first(1).0);
        }
        for (bit, name, rows, most) in self.lists(top, queues) {
            if what & bit > 0 {
                let (bytes, count) = rows.first(most);
                let mut list = sample.key(name);
                list.array(count);
                list.raw(bytes);
            }
        }
        drop(sample);
        let length = (out.len() - start - PREFIX_BYTES) as u32;
        out[start..start + PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    }

    /// Appends the message of a viewer over WebSocket; this sample is [`Sample::as_text`] of one.
    pub fn write_message(
        &self,
        out: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
        what: u32,
        top: usize,
        queues: &Rows,
    ) {
        scratch.clear();
        scratch.extend_from_slice(b"{\"type\":\"watch\",\"at\":");
        json::integer(scratch, self.at_ms);
        if what & STATS > 0 {
            scratch.extend_from_slice(b",\"stats\":");
            scratch.extend_from_slice(self.stats.first(1).0);
        }
        for (bit, name, rows, most) in self.lists(top, queues) {
            if what & bit > 0 {
                scratch.extend_from_slice(b",\"");
                scratch.extend_from_slice(name.as_bytes());
                scratch.extend_from_slice(b"\":[");
                scratch.extend_from_slice(rows.first(most).0);
                scratch.push(b']');
            }
        }
        scratch.push(b'}');
        out.extend_from_slice(Head::of_text(scratch.len()).bytes());
        out.extend_from_slice(scratch);
    }

    /// Writes the figures of the server as an event of dashboards; this sample is [`Sample::as_text`] of one.
    pub fn write_snapshot(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(b"{\"event\":\"stats:snapshot\",\"ts\":");
        json::integer(out, self.at_ms);
        out.extend_from_slice(b",\"data\":");
        // The figures are an object with entries, which goes on with those of the snapshot.
        let stats = self.stats.first(1).0;
        out.extend_from_slice(stats.strip_suffix(b"}").unwrap_or(b"{\"waiting\":0"));
        out.extend_from_slice(b",\"queues\":{");
        out.extend_from_slice(&self.snapshot.queues.bytes);
        out.extend_from_slice(b"},\"workers\":{\"total\":");
        json::integer(out, self.snapshot.workers);
        out.extend_from_slice(b",\"active\":");
        json::integer(out, self.snapshot.attending);
        out.extend_from_slice(b"},\"cronJobs\":");
        json::integer(out, self.snapshot.crons);
        out.extend_from_slice(b"}}");
    }

    fn lists<'a>(
        &'a self,
        top: usize,
        queues: &'a Rows,
    ) -> [(u32, &'static str, &'a Rows, usize); 2] {
        [(QUEUES, "queues", queues, top), (SHARDS, "shards", &self.shards, usize::MAX)]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn row(name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        MapWriter::begin(&mut bytes).key("name").str(name);
        bytes
    }

    #[test]
    fn a_viewer_gets_what_it_watches_and_as_many_queues_as_it_wants() {
        let mut sample = Sample { at_ms: 1_700_000_000_000, ..Sample::default() };
        sample.stats.push(&row("all"));
        for name in ["a", "b\"", "c"] {
            sample.queues.push(&row(name));
        }
        let mut frame = Vec::new();
        sample.write_frame(&mut frame, STATS | QUEUES, 2, &sample.queues);
        assert_eq!(u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize, frame.len() - 4);
        let value = rmpv::decode::read_value(&mut &frame[4..]).unwrap();
        assert_eq!(value["queues"].as_array().unwrap().len(), 2);
        assert_eq!(value["stats"]["name"], rmpv::Value::from("all"));
        assert!(value["shards"].is_nil());

        let (mut message, mut scratch) = (Vec::new(), Vec::new());
        let texts = sample.as_text();
        texts.write_message(&mut message, &mut scratch, QUEUES | SHARDS, 3, &texts.queues);
        let text = r#"{"type":"watch","at":1700000000000,"queues":[{"name":"a"},{"name":"b\""},{"name":"c"}],"shards":[]}"#;
        assert_eq!(String::from_utf8_lossy(&message[2..]), text);
        assert!(message.ends_with(text.as_bytes()));
    }

    #[test]
    fn a_snapshot_is_one_object_with_the_queues_the_workers_and_the_schedules() {
        let mut sample = Sample { at_ms: 1_700_000_000_000, ..Sample::default() };
        sample.stats.push(&row("all"));
        let mut out = Vec::new();
        sample.as_text().write_snapshot(&mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["data"]["queues"], serde_json::json!({}));
        for name in ["a", "b"] {
            sample.snapshot.push_queue(format!(r#""{name}":{{"waiting":1}}"#).as_bytes());
        }
        (sample.snapshot.workers, sample.snapshot.attending, sample.snapshot.crons) = (3, 2, 1);
        sample.as_text().write_snapshot(&mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["event"], "stats:snapshot");
        let expected = serde_json::json!({
            "name": "all",
            "queues": {"a": {"waiting": 1}, "b": {"waiting": 1}},
            "workers": {"total": 3, "active": 2},
            "cronJobs": 1,
        });
        assert_eq!(value["data"], expected);
    }

    #[test]
    fn viewers_of_some_queues_find_theirs_and_no_others() {
        let patterns: &'static QueuePatterns =
            Box::leak(Box::new(QueuePatterns::new(["a.*"].into_iter())));
        let other: &'static QueuePatterns =
            Box::leak(Box::new(QueuePatterns::new(["a.*"].into_iter())));
        let mut sample = Sample::default();
        sample.queues.push(&row("b"));
        let mut own = Rows::default();
        own.push(&row("a.1"));
        sample.scoped.push((patterns, own));
        let shown = |scope: Scope| {
            let rows = sample.queues_of(scope)?;
            Some(rows.iter().map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        assert_eq!(shown(None), Some(vec![row("b")]));
        assert_eq!(shown(Some(patterns)), Some(vec![row("a.1")]));
        assert_eq!(shown(Some(other)), None, "the sample is not about them");
    }
}
