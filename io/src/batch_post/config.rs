//! Settings of posts: what is posted where, and reports for operators.

use crate::webhook::Target;
use std::time::Duration;

/// An item to be posted.
pub trait Item: Send + 'static {
    /// As how many it counts.
    fn units(&self) -> u64;
    /// Memory of the item in bytes, about.
    fn bytes(&self) -> usize;
}

/// Name and value of a header.
pub type Header = (Box<str>, Box<str>);

/// Writes items as a body.
pub type Render<T> = Box<dyn Fn(&[T]) -> Vec<u8> + Send>;

/// How to post.
pub struct Config<T> {
    /// Where. It is the operator's, so it may be anywhere.
    pub target: Target,
    /// Headers of each post beside its type.
    pub headers: Vec<Header>,
    /// The type of the bodies.
    pub content_type: &'static str,
    /// Longest time of one post.
    pub timeout: Duration,
    /// Longest time that an item waits for others.
    pub linger: Duration,
    /// Items of one post.
    pub items_max: usize,
    /// Their memory. One item is always posted.
    pub items_bytes_max: usize,
    /// Items that may wait.
    pub waiting_max: usize,
    /// Memory of those that wait or are on their way.
    pub waiting_bytes_max: usize,
    /// Attempts for the same items, at least 1.
    pub attempts_max: u32,
    /// How long after the first of them the second follows; twice as long for each more.
    pub retry_delay: Duration,
    /// Writes items as a body.
    pub render: Render<T>,
    /// How many units the body of a good answer says that the receiver has not taken, and why.
    pub rejected: fn(&[u8]) -> (u64, String),
    /// Takes reports for people. Called by the thread.
    pub report: Box<dyn Fn(&Report<'_>) + Send>,
}

/// A report for people, each kind at most once a minute.
#[derive(Debug)]
pub enum Report<'a> {
    /// Items were given up.
    Failing {
        /// Units lost since this was last reported.
        units: u64,
        /// How the last attempt failed.
        reason: &'a str,
    },
    /// Items are taken again.
    Working,
    /// The receiver has not taken all of a post.
    Rejected {
        /// How many units.
        units: u64,
        /// Reason that the receiver gives.
        reason: &'a str,
    },
    /// The system has no certificates: posts by HTTPS fail.
    NoCertificates {
        /// Why there are none.
        errors: &'a [String],
    },
}
