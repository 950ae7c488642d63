//! The connecting half of corq: settings, protocols, the loop of a shard, the command line.
//!
//! | module | responsibility |
//! |---|---|
//! | `api` | what clients may ask: commands, fields, bounds, errors, rights |
//! | `audit` | the audit log: entries, and the thread that writes them |
//! | `backups` | backups by a schedule, and in buckets |
//! | `checks` | findings about a server and its machine |
//! | `cli` | the command line |
//! | `config` | settings: their declaration, their sources, and what SIGHUP reads again |
//! | `escape` | texts of clients on one line of a terminal or a log |
//! | `logging` | the log on standard error |
//! | `otlp` | spans of jobs in the form in which OpenTelemetry takes them |
//! | `protocol` | bytes to commands, and answers to bytes |
//! | `secret` | random secrets of a process |
//! | `server` | the shards and their event loop |
//! | `tools` | backup, restore, and repair of a data directory |
//! | `units` | sizes and numbers for people |

pub mod api;
pub mod audit;
pub mod backups;
mod checks;
pub mod cli;
pub mod config;
pub mod escape;
pub mod logging;
pub mod otlp;
pub mod protocol;
mod secret;
pub mod server;
pub mod tools;
mod units;
