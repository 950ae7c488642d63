//! The entries of one map, written as they come. What they tell of is not known here.

use corq_shards::job::id::JobId;
use corq_shards::log_record::show::Show;

use crate::protocol::msgpack::writer::Writer;

/// Writes entries of one map and counts them.
pub(super) struct Pen<'o> {
    pub(super) writer: Writer<'o>,
    pub(super) entries: u16,
}

impl<'o> Pen<'o> {
    fn key(&mut self, name: &str) -> &mut Writer<'o> {
        self.entries += 1;
        self.writer.str(name);
        &mut self.writer
    }

    /// Writes a map as the next value.
    fn inside(&mut self, entries: impl FnOnce(&mut Self)) {
        let outside = std::mem::take(&mut self.entries);
        let map = self.writer.open_map();
        entries(self);
        map.close(&mut self.writer, self.entries);
        self.entries = outside;
    }
}

impl Show for Pen<'_> {
    fn uint(&mut self, name: &'static str, value: u64) {
        self.key(name).whole_uint(value);
    }

    fn int(&mut self, name: &'static str, value: i64) {
        self.key(name).int(value);
    }

    fn number(&mut self, name: &'static str, value: f64) {
        self.key(name).number(value);
    }

    fn bool(&mut self, name: &'static str, value: bool) {
        self.key(name).bool(value);
    }

    fn nil(&mut self, name: &'static str) {
        self.key(name).nil();
    }

    fn text(&mut self, name: &'static str, text: &str) {
        self.key(name).str(text);
    }

    fn id(&mut self, name: &'static str, id: JobId) {
        self.key(name).uuid(id.0);
    }

    fn values(&mut self, name: &'static str, count: usize, values: &[u8]) {
        let writer = self.key(name);
        writer.array(count);
        writer.raw(values);
    }

    fn value(&mut self, name: &'static str, value: &[u8]) {
        if !value.is_empty() {
            self.key(name).raw(value);
        }
    }

    fn ids(&mut self, name: &'static str, ids: impl Iterator<Item = JobId>) {
        let writer = self.key(name);
        let array = writer.open_array();
        let mut items = 0;
        for id in ids {
            writer.uuid(id.0);
            items += 1;
        }
        array.close(writer, items);
    }

    fn texts<'t>(&mut self, name: &'static str, texts: impl Iterator<Item = &'t str>) {
        let writer = self.key(name);
        let array = writer.open_array();
        let mut items = 0;
        for text in texts {
            writer.str(text);
            items += 1;
        }
        array.close(writer, items);
    }

    fn map(&mut self, name: &'static str, entries: impl FnOnce(&mut Self)) {
        self.key(name);
        self.inside(entries);
    }

    fn maps<T>(
        &mut self,
        name: &'static str,
        items: impl Iterator<Item = T>,
        mut entries: impl FnMut(&mut Self, T),
    ) {
        let array = self.key(name).open_array();
        let mut count = 0;
        for item in items {
            self.inside(|pen| entries(pen, item));
            count += 1;
        }
        array.close(&mut self.writer, count);
    }
}
