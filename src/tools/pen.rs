//! The entries of one map, written as they come. What they tell of is not known here.

use corq_shards::job::Stored;
use corq_shards::job::id::JobId;

use crate::protocol::msgpack::writer::Writer;

/// Writes entries of one map and counts them.
pub(super) struct Pen<'o> {
    pub(super) writer: Writer<'o>,
    pub(super) entries: u16,
}

impl<'o> Pen<'o> {
    pub(super) fn key(&mut self, name: &str) -> &mut Writer<'o> {
        self.entries += 1;
        self.writer.str(name);
        &mut self.writer
    }

    pub(super) fn uint(&mut self, name: &str, value: u64) {
        self.key(name).whole_uint(value);
    }

    pub(super) fn text(&mut self, name: &str, text: &str) {
        self.key(name).str(text);
    }

    pub(super) fn flag(&mut self, name: &str, flag: bool) {
        if flag {
            self.key(name).bool(true);
        }
    }

    pub(super) fn some_uint(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.uint(name, value);
        }
    }

    pub(super) fn some_text(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    pub(super) fn id(&mut self, name: &str, id: JobId) {
        self.key(name).uuid(id.0);
    }

    /// One value of a client.
    pub(super) fn value(&mut self, name: &str, value: &[u8]) {
        if !value.is_empty() {
            self.key(name).raw(value);
        }
    }

    pub(super) fn stored(&mut self, name: &str, stored: &Stored) {
        let writer = self.key(name);
        writer.map(3);
        writer.str("position");
        writer.whole_uint(stored.position);
        writer.str("bytes");
        writer.uint(u64::from(stored.record_bytes));
        writer.str("payloadBytes");
        writer.uint(u64::from(stored.payload_bytes));
    }
}
