//! Limits that may be set for a queue. A ground type: it imports nothing.

/// The span of a rate that does not say.
const SPAN_MS_DEFAULT: u32 = 1000;

/// A limit of a queue: at least 1, or `None` to take it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Jobs that may leave in a span of time, and at once after a quiet one.
    Rate(Option<PerSpan>),
    /// Jobs that may be active at a time.
    Active(Option<u32>),
}

/// A rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerSpan {
    /// How many jobs, at least 1.
    pub jobs: u32,
    /// In which time, at least 1.
    pub span_ms: u32,
    /// When it ends, in milliseconds since the epoch; 0 for never.
    pub until_ms: u64,
}

impl PerSpan {
    /// A rate of so many jobs per second, for ever.
    pub fn per_second(jobs: u32) -> Self {
        Self { jobs, span_ms: SPAN_MS_DEFAULT, until_ms: 0 }
    }

    /// Whether it is no more than jobs per second.
    pub(crate) fn is_plain(&self) -> bool {
        self.span_ms == SPAN_MS_DEFAULT && self.until_ms == 0
    }
}
