//! A client for storage that speaks the protocol of S3: puts, gets, lists and deletes objects of one bucket, with signed requests
//! over the same client of HTTP that webhooks use. Blocks its thread, so it is for threads of their own and for tools.
//!
//! Objects are streamed. A request that may succeed the next time is made again, with a pause that doubles.
//!
//! | file | responsibility |
//! |---|---|
//! | `bucket` | where the bucket is, and who asks |
//! | `client` | requests, their limits and repetitions |
//! | `encoding` | how bytes and texts are written in requests |
//! | `fault` | why a request did not succeed |
//! | `listing` | what a list of objects says |
//! | `sign` | signatures of version 4, and their times |

mod bucket;
mod client;
mod encoding;
mod fault;
mod listing;
mod sign;

pub use bucket::{Bucket, Credentials, check_endpoint};
pub use client::{Client, Content, Stop};
pub use encoding::hex;
pub use fault::S3Fault;
pub use listing::{Listed, Object};
