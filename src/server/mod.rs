//! The server: starts the shards, runs the event loop of each, and ends them.
//!
//! | folder | responsibility |
//! |---|---|
//! | `lifecycle` | from settings to running shards, and to their end |
//! | `event_loop` | one turn: events, commands, log, durability gate, sleep |
//! | `shard_server` | the parts of one shard, and how the effects of a command reach them |
//! | `connection` | one connection: bytes in, frames, replies out |
//! | `overload` | admission and back-pressure: what a shard does when clients send more, or read less, than it can carry |
//! | `shard_mail` | messages between shards, and which shard a frame belongs to |
//! | `commands` | commands that this shard carries out, by their nouns |
//! | `multi_shard` | commands in several steps on several shards, and batches in slices |
//! | `storage` | the state machine with its write-ahead log, compaction, cold reads |
//! | `events` | events, and the clients that subscribe to them |
//! | `webhooks` | registrations, and what is posted |
//! | `http` | the HTTP port |
//! | `metrics` | figures for people and for Prometheus |
//! | `numbered` | entries by number: commands and connections under way |

mod commands;
mod connection;
mod event_loop;
mod events;
mod http;
mod lifecycle;
mod metrics;
mod multi_shard;
mod numbered;
mod overload;
mod shard_mail;
mod shard_server;
mod storage;
mod webhooks;

pub use lifecycle::error::StartError;
pub use lifecycle::start::serve;
