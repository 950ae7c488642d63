//! Shows the contents of a record, entry by entry, for people and tools. Names are those of `docs/log-format.md`, in
//! the style of the protocol; how entries are written down is not known here.

use crate::job::id::JobId;
use crate::log_record::location::LogRef;

/// Takes the entries of one map, in order.
pub trait Show: Sized {
    /// A whole number from zero.
    fn uint(&mut self, name: &'static str, value: u64);
    /// A whole number.
    fn int(&mut self, name: &'static str, value: i64);
    /// Any number.
    fn number(&mut self, name: &'static str, value: f64);
    /// Whether something is so.
    fn bool(&mut self, name: &'static str, value: bool);
    /// A name without a value.
    fn nil(&mut self, name: &'static str);
    /// A text.
    fn text(&mut self, name: &'static str, text: &str);
    /// The id of a job, a webhook or a lock.
    fn id(&mut self, name: &'static str, id: JobId);
    /// MessagePack values that a client gave, one after the other, as an array of so many.
    fn values(&mut self, name: &'static str, count: usize, values: &[u8]);
    /// A MessagePack value that a client gave; left out if there is none.
    fn value(&mut self, name: &'static str, value: &[u8]);
    /// An array of ids.
    fn ids(&mut self, name: &'static str, ids: impl Iterator<Item = JobId>);
    /// An array of texts.
    fn texts<'t>(&mut self, name: &'static str, texts: impl Iterator<Item = &'t str>);
    /// A map of its own.
    fn map(&mut self, name: &'static str, entries: impl FnOnce(&mut Self));
    /// Maps, one for each item.
    fn maps<T>(
        &mut self,
        name: &'static str,
        items: impl Iterator<Item = T>,
        entries: impl FnMut(&mut Self, T),
    );

    /// Something that is so; it is left out if it is not.
    fn flag(&mut self, name: &'static str, flag: bool) {
        if flag {
            self.bool(name, true);
        }
    }

    /// A number; it is left out if there is none.
    fn some_uint(&mut self, name: &'static str, value: Option<u64>) {
        if let Some(value) = value {
            self.uint(name, value);
        }
    }

    /// A number, or nil.
    fn uint_or_nil(&mut self, name: &'static str, value: Option<u64>) {
        match value {
            Some(value) => self.uint(name, value),
            None => self.nil(name),
        }
    }

    /// A text; it is left out if there is none.
    fn some_text(&mut self, name: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    /// A text that was not checked when it was read.
    fn text_of_bytes(&mut self, name: &'static str, text: &[u8]) {
        self.text(name, std::str::from_utf8(text).unwrap_or_default());
    }

    /// Where another record lies.
    fn stored(&mut self, name: &'static str, stored: &LogRef) {
        self.map(name, |to| {
            to.uint("position", stored.position);
            to.uint("bytes", u64::from(stored.record_bytes));
            to.uint("payloadBytes", u64::from(stored.payload_bytes));
        });
    }
}
