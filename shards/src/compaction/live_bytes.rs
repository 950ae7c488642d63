//! How much of the log is still needed: bytes of records that something in memory points to, counted
//! by the span of addresses they lie in. A span is what goes as a whole, a file of the log.
//!
//! Knows addresses only. A record that two things point to counts twice.

use crate::collections::count::Count;
use crate::log_record::location::LogRef;
use std::collections::VecDeque;

/// Bytes around a record that its length does not tell.
const HEADER_BYTES: u64 = 8;
/// A record of more is large: the end of a span that it does not fit is worth counting.
pub const LARGE_BYTES: u64 = 64 << 10;

/// Live bytes by span of the log.
#[derive(Default)]
pub struct Live {
    span_bits: u32,
    /// Number of the first span in `spans`.
    first: u64,
    spans: VecDeque<u64>,
    total: u64,
    /// Of records of more than [`LARGE_BYTES`].
    large: u64,
    /// Of the largest record there ever was.
    largest: u64,
    /// Lines of logs among the records.
    lines: u64,
}

impl Live {
    /// Counts by spans of `1 << span_bits` addresses.
    pub fn new(span_bits: u32) -> Self {
        Self { span_bits, ..Self::default() }
    }

    /// Something points to a record.
    #[inline]
    pub fn add(&mut self, stored: &LogRef) {
        let bytes = bytes_of(stored);
        *self.span(stored.position) += bytes;
        self.total += bytes;
        self.largest = self.largest.max(bytes);
        if bytes > LARGE_BYTES {
            self.large += bytes;
        }
    }

    /// Something points to a record no longer.
    #[inline]
    pub fn sub(&mut self, stored: &LogRef) {
        let bytes = bytes_of(stored);
        self.span(stored.position).take_out(bytes);
        self.total.take_out(bytes);
        if bytes > LARGE_BYTES {
            self.large.take_out(bytes);
        }
    }

    /// Adds log lines of jobs to those that are pointed to.
    pub fn add_lines(&mut self, lines: usize) {
        self.lines += lines as u64;
    }

    /// Takes log lines of jobs out of those that are pointed to.
    pub fn sub_lines(&mut self, lines: usize) {
        self.lines.take_out(lines as u64);
    }

    /// Something points to another record than before, or to none.
    pub fn replace(&mut self, before: Option<LogRef>, after: Option<LogRef>) {
        if let Some(stored) = before {
            self.sub(&stored);
        }
        if let Some(stored) = after {
            self.add(&stored);
        }
    }

    #[inline]
    fn span(&mut self, position: u64) -> &mut u64 {
        let number = position >> self.span_bits;
        let place = number.wrapping_sub(self.first) as usize;
        if place >= self.spans.len() {
            return self.grow(number);
        }
        &mut self.spans[place]
    }

    #[cold]
    fn grow(&mut self, number: u64) -> &mut u64 {
        if self.total == 0 {
            self.spans.clear();
        }
        if self.spans.is_empty() {
            self.first = number;
        }
        while number < self.first {
            self.spans.push_front(0);
            self.first -= 1;
        }
        let place = (number - self.first) as usize;
        if place >= self.spans.len() {
            self.spans.resize(place + 1, 0);
        }
        // Spans that have gone, or that nothing needs, are not held for ever.
        while self.spans[0] == 0 && self.first < number {
            self.spans.pop_front();
            self.first += 1;
        }
        let place = (number - self.first) as usize;
        &mut self.spans[place]
    }

    /// Bytes needed in the span that holds an address.
    pub fn in_span_of(&self, position: u64) -> u64 {
        let place = (position >> self.span_bits).checked_sub(self.first);
        place.and_then(|place| self.spans.get(place as usize)).copied().unwrap_or(0)
    }

    /// Bytes needed in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes needed in records of more than [`LARGE_BYTES`].
    pub fn large(&self) -> u64 {
        self.large
    }

    /// Bytes of the largest record that was ever needed.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// Lines of logs that are needed.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The spans in which something is needed, with how much.
    pub fn spans(&self) -> impl Iterator<Item = (u64, u64)> {
        let numbered = self.spans.iter().zip(self.first..);
        numbered.filter(|(bytes, _)| **bytes > 0).map(|(&bytes, number)| (number, bytes))
    }

    /// The number of the span that holds an address.
    pub fn span_of(&self, position: u64) -> u64 {
        position >> self.span_bits
    }
}

/// Bytes of a record in the log, with its header.
pub fn bytes_of(stored: &LogRef) -> u64 {
    u64::from(stored.record_bytes) + HEADER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(position: u64) -> LogRef {
        LogRef { position, record_bytes: 92, payload_bytes: 0 }
    }

    #[test]
    fn bytes_are_counted_where_they_lie_whatever_the_order() {
        let mut live = Live::new(10);
        for position in [5000, 1, 2048, 900, 9000] {
            live.add(&at(position));
        }
        let spans: Vec<_> = live.spans().collect();
        assert_eq!(spans, [(0, 200), (2, 100), (4, 100), (8, 100)]);
        assert_eq!((live.in_span_of(1023), live.in_span_of(1024), live.total()), (200, 0, 500));
        for position in [1, 900, 2048] {
            live.sub(&at(position));
        }
        live.add(&at(1 << 20));
        live.sub(&at(1 << 20));
        assert_eq!(live.spans().collect::<Vec<_>>(), [(4, 100), (8, 100)]);
        assert_eq!(live.in_span_of(u64::MAX), 0);
    }
}
