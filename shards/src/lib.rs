//! The pure half of corq: what a shard knows and decides.
//!
//! No IO, no threads, no clock, no chance: time is an argument, randomness is a seed. The whole
//! interface of a shard is [`Shard::apply`], [`Shard::tick`] and [`Shard::replay`], and what may be
//! asked of it in [`query`].
//!
//! ```text
//! Command --> shard (validates) --> Record --> apply (changes the state) --> Effects
//!                                  |             ^
//!                                  v             |
//!                               Journal       replay
//! ```
//!
//! | folder | responsibility |
//! |---|---|
//! | `shard`, `command`, `caller`, `effect`, `query` | the state machine: its inputs and outputs |
//! | `apply` | how the state changes: transitions, replay, due work |
//! | `job` | one job: ids, options, changes, progress |
//! | `queue` | the order of delivery, what has finished, limits |
//! | `lease` | pull, ACK, FAIL, backoff |
//! | `dead_letter` | the dead-letter queue and its rules |
//! | `dedup` | deduplication keys |
//! | `dependency`, `family`, `flow` | jobs that wait for jobs, parents and children, two-phase commit |
//! | `group`, `cron`, `repeat` | groups that take turns, schedules, repeated jobs |
//! | `explain` | why a job does not run |
//! | `bulk` | commands on many jobs, in slices |
//! | `compaction` | what is written again so that the oldest segment can go |
//! | `log_record` | the records of the log |
//! | `event`, `traced`, `tracer`, `webhook`, `stats` | events, steps of sampled jobs, webhooks, counts and histograms |
//! | `collections` | containers that clients can fill |
//! | `invariants` | the audit of the state, for tests and the simulator |
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod apply;
mod bulk;
pub mod caller;
pub mod collections;
pub mod command;
pub mod compaction;
pub mod cron;
pub mod dead_letter;
mod dedup;
pub mod dependency;
pub mod effect;
pub mod event;
pub mod explain;
pub mod family;
pub mod flow;
pub mod group;
mod invariants;
pub mod job;
pub mod lease;
pub mod log_record;
pub mod query;
pub mod queue;
pub mod repeat;
mod shard;
pub mod stats;
pub mod traced;
mod tracer;
pub mod webhook;

pub use apply::log_clock::SetBack;
pub use bulk::BULK_OPERATIONS_MAX;
pub use collections::slab::Slab;
pub use group::{GROUP_SETTINGS_MAX, GROUPS_LINGERING_MAX, WEIGHT_MAX};
pub use lease::pull::PULL_BYTES_MAX;
pub use queue::QUEUE_SETTINGS_MAX;
pub use queue::rate_limit::Limits;
pub use shard::{Caller, Config, Out, SLICE, Shard, push_bytes};
