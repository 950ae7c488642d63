//! Items that are posted to one receiver of the operator's, many at a time, by a thread of their own with the client of the
//! webhooks. Lossy: what finds no room, or is not taken after some attempts, goes and is counted. No shard ever waits.
//!
//! ```text
//! shard --Feed--> thread: gathers, renders, posts --> HTTP
//! ```
//!
//! What items are, and how many of them become a body, is known to the caller.
//!
//! | file | responsibility |
//! |---|---|
//! | `config` | what is posted where, and what operators should know |
//! | `feed` | the way in, bounded, and the counters |
//! | `post` | one post, and what its answer means |
//! | `thread` | gathers items, posts them, tries again |

mod config;
mod feed;
mod post;
mod thread;

pub use config::{Config, Header, Item, Render, Report};
pub use feed::{Counters, Feed};
pub use thread::BatchPoster;
