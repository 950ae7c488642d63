//! The pure half of corq: what a shard knows and decides.
//!
//! No IO, no threads, no clock, no chance: time is an argument, randomness is a seed. The whole
//! interface of a shard is [`Shard::apply`], [`Shard::tick`] and [`Shard::replay`], and what may be
//! asked of it in [`query`].
//!
//! ```text
//! Command --> shard (judges) --> Record --> mutate (changes the state) --> Effects
//!                                  |             ^
//!                                  v             |
//!                               Journal       replay
//! ```
#![forbid(unsafe_code)]

mod apply;
mod bulk;
pub mod collections;
pub mod command;
pub mod compaction;
pub mod cron;
pub mod dead_letter;
mod dedup;
pub mod dependency;
pub mod effect;
pub mod event;
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
mod unique;
pub mod webhook;

pub use bulk::CHORES_MAX;
pub use collections::slab::Slab;
pub use group::push_plan::Foresight;
pub use group::scheduler::VIEWS_MAX;
pub use group::{GROUP_SETTINGS_MAX, GROUPS_LINGERING_MAX, WEIGHT_MAX};
pub use lease::pull::PULL_BYTES_MAX;
pub use queue::rate_limit::Limits;
pub use shard::{Caller, Config, Out, SLICE, Shard, push_bytes};
