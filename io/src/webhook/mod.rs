//! Webhooks: posts to other people's servers, made by threads of their own, so that waiting for such a
//! server holds up no shard.
//!
//! ```text
//! shard --Feed--> dispatcher --> queue of each webhook --> threads --> HTTP
//!                     ^                                      |
//!                     +---------------- outcome -------------+
//! ```
//!
//! The shards know which event is for which webhook, and what is posted about it.
//!
//! | file | responsibility |
//! |---|---|
//! | `event` | what is posted |
//! | `queue` | the posts of one webhook, in order |

mod address;
mod client;
mod dispatch;
mod event;
mod pool;
mod queue;
mod resolve;
mod target;

pub use event::{Counts, Hook, Notice};
pub use pool::{Config, Feed, Hooks, Load, Pool, Report};
pub use resolve::Lookup;
pub use target::{Refusal, Target};
