//! Spans of jobs in the form in which OpenTelemetry takes them: OTLP, as protobuf. Knows no shard and posts nothing.
//!
//! | file | responsibility |
//! |---|---|
//! | `answer` | what a receiver says of a post |
//! | `endpoint` | where to, and with which headers |
//! | `message` | a post: the server and its spans |
//! | `span` | which spans a step of a job makes, with their ids and attributes |
//! | `wire` | protobuf, as far as it is needed |

pub mod answer;
pub mod endpoint;
pub mod message;
pub mod span;
mod wire;
