//! The connecting half of corq: settings, protocols, the loop of a shard, the command line.

pub mod api;
pub mod cli;
pub mod config;
pub mod escape;
pub mod logging;
pub mod protocol;
mod secret;
pub mod server;
pub mod tools;
