//! The pure half of corq: what a shard knows and decides.
//!
//! No IO, no threads, no clock, no chance: time is an argument, randomness is a seed.
#![forbid(unsafe_code)]

pub mod command;
pub mod id;
