//! The fields of a map that is sent, of which most may be left out.

use std::time::Duration;

use crate::rules::Bound;
use crate::wire::encode::Encoder;
use crate::wire::request::millis;

/// Fields that are counted as they are written; what is not there is left out.
pub(crate) struct Fields<'e> {
    encoder: &'e mut Encoder,
    pub(crate) count: u16,
    /// Where their count lies, if they are a map of their own.
    count_at: Option<usize>,
}

impl Encoder {
    /// Begins a map whose entries are counted as they are written.
    pub(crate) fn count_fields(&mut self) -> Fields<'_> {
        let count_at = Some(self.open_map());
        Fields { encoder: self, count: 0, count_at }
    }
}

impl<'e> Fields<'e> {
    /// Goes on in a map that has `count` fields, and that the caller ends.
    pub(crate) fn after(count: u16, encoder: &'e mut Encoder) -> Self {
        Self { encoder, count, count_at: None }
    }

    /// Ends the map.
    pub(crate) fn close(self) {
        if let Some(count_at) = self.count_at {
            self.encoder.close_map(count_at, self.count);
        }
    }

    /// A number, nil for none, or nothing at all.
    pub(crate) fn bound(&mut self, key: &str, bound: Bound) {
        match bound {
            Bound::AsItWas => {}
            Bound::No => self.key(key).nil(),
            Bound::At(value) => self.key(key).uint(value),
        }
    }

    pub(crate) fn key(&mut self, key: &str) -> &mut Encoder {
        self.count += 1;
        self.encoder.str(key);
        self.encoder
    }

    pub(crate) fn text(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.key(key).str(value);
        }
    }

    pub(crate) fn uint(&mut self, key: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.key(key).uint(value);
        }
    }

    pub(crate) fn time(&mut self, key: &str, value: Option<Duration>) {
        self.uint(key, value.map(millis));
    }

    pub(crate) fn flag(&mut self, key: &str, value: bool) {
        if value {
            self.key(key).bool(true);
        }
    }

    pub(crate) fn texts<'t>(
        &mut self,
        key: &str,
        values: impl Iterator<Item = &'t String> + Clone,
    ) {
        let count = values.clone().count();
        if count > 0 {
            let encoder = self.key(key);
            encoder.array(count);
            values.for_each(|value| encoder.str(value));
        }
    }
}
