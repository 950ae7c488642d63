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
//! | `address` | which hosts and addresses may be posted to |
//! | `client` | one post by HTTP |
//! | `config` | how to deliver, and what operators should know |
//! | `deliveries` | what became of the last posts |
//! | `dispatch` | the thread that knows all queues |
//! | `event` | what is posted |
//! | `feed` | the way in, bounded |
//! | `pool` | start and stop |
//! | `queue` | the posts of one webhook, in order |
//! | `resolve` | names to addresses |
//! | `target` | the URL of a webhook |
//! | `trials` | posts that people ask for |
//! | `work` | from the dispatcher to threads, and back |

mod address;
pub(crate) mod client;
mod config;
mod deliveries;
mod dispatch;
mod event;
mod feed;
mod pool;
mod queue;
mod resolve;
mod target;
mod trials;
mod work;

pub(crate) use client::system_roots;
pub use config::{Config, Report};
pub use deliveries::{DELIVERIES_MAX, Delivery};
pub use event::{Counts, Header, Hook, Notice};
pub use feed::{Feed, Hooks, Load};
pub use pool::Pool;
pub use resolve::Lookup;
pub use target::{Refusal, Target};
pub use trials::Trial;
