//! No spans.

use super::{TraceContext, Worked};
use crate::error::Error;
use crate::records::Job;
use std::future::Future;

pub(crate) struct Producing;

impl Producing {
    pub(crate) fn begin(_: &'static str, _: &str, _: Option<usize>) -> Self {
        Self
    }

    #[allow(clippy::unused_self)] // With the feature it has one.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        None
    }

    pub(crate) fn end(self, _: Result<Option<&str>, &Error>) {}
}

pub(crate) struct Consuming;

impl Consuming {
    pub(crate) fn begin(_: &str, _: &Job) -> Self {
        Self
    }

    #[allow(clippy::unused_self)] // With the feature it has one.
    pub(crate) fn of<F: Future>(&self, work: F) -> F {
        work
    }

    pub(crate) fn end(self, _: &Worked<'_>) {}
}

#[cfg(feature = "blocking")]
pub(crate) fn carried<R>(work: impl FnOnce() -> R) -> impl FnOnce() -> R {
    work
}
