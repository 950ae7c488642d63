//! The server: starts the shards, runs the event loop of each, and ends them.
//!
//! | folder | responsibility |
//! |---|---|
//! | `lifecycle` | from settings to running shards, and to their end |
//! | `bulk_tasks` | actions on many jobs, slice by slice; groups of dead letters |
//! | `event_loop` | one turn: events, commands, log, durability gate, sleep |
//! | `shard_server` | the parts of one shard, and how the effects of a command reach them |
//! | `audit` | what of the work of a shard has entries in the audit log |
//! | `about` | what the server tells its operators of itself |
//! | `access` | who may come in, and what for |
//! | `connection` | one connection: bytes in, frames, replies out |
//! | `overload` | admission and back-pressure: what a shard does when clients send more, or read less, than it can carry |
//! | `shard_mail` | messages between shards, and which shard a frame belongs to |
//! | `commands` | commands that this shard carries out, by their nouns |
//! | `operations` | long answers under way, slice by slice |
//! | `multi_shard` | commands in several steps on several shards, and batches in slices |
//! | `scan` | pages of jobs by a cursor, and searches, slice by slice |
//! | `storage` | the state machine with its write-ahead log, compaction, cold reads |
//! | `events` | events, and the clients that subscribe to them |
//! | `webhooks` | registrations, and what is posted |
//! | `spans` | steps of sampled jobs on their way to a collector of traces |
//! | `figures` | what happened in the last day, what each shard does, samples for viewers |
//! | `dashboard` | answers for dashboards |
//! | `http` | the HTTP port |
//! | `metrics` | figures for people and for Prometheus |
//! | `ui` | the files of the dashboard |
//! | `census` | the jobs of the server as fields of an answer |
//! | `numbered` | entries by number: commands and connections under way |
//! | `turn_queue` | what waits for its turn, of many clients |

mod about;
mod access;
mod audit;
mod bulk_tasks;
mod census;
mod commands;
mod connection;
mod dashboard;
mod event_loop;
mod events;
mod figures;
mod http;
mod lifecycle;
mod metrics;
mod multi_shard;
mod numbered;
mod operations;
mod overload;
mod scan;
mod shard_mail;
mod shard_server;
mod spans;
mod storage;
mod turn_queue;
mod ui;
mod webhooks;

pub use access::check_tokens;
pub use lifecycle::error::StartError;
pub use lifecycle::start::serve;
