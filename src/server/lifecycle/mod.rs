//! From settings to running shards, and to their end.
//!
//! | file | responsibility |
//! |---|---|
//! | `audit` | the audit log of a server, from its start to its end |
//! | `certificate` | the certificate of the server in logs, metrics and `/health` |
//! | `client_memory` | shares out the memory of clients |
//! | `clock` | the clock beside the times in the log |
//! | `data_dir_watch` | looks once a second whether the data directory is still there |
//! | `descriptors` | shares the file descriptors out: log, shards, connections |
//! | `error` | why the server did not start |
//! | `fleet` | owns the logs of a fleet |
//! | `follow_settings` | a shard takes over settings that were read again |
//! | `http_settings` | what the settings say to the HTTP port and to the dashboard |
//! | `listeners` | TCP ports and unix sockets, and which protocol each speaks |
//! | `live_settings` | the settings that count by now, read again on SIGHUP |
//! | `placement` | where the shards run: on a CPU each, or on any |
//! | `progress` | how often a start reports its progress |
//! | `recovery` | opens the log and replays it into the shard |
//! | `reshard` | rewrites a data directory for another number of shards |
//! | `signals` | SIGTERM, SIGINT, SIGHUP |
//! | `stand_by` | a node of a fleet that does not own the logs |
//! | `start` | settings to running shards to the end of the process |
//! | `start_report` | how far a start is |
//! | `startup_http` | answers `/health` and `/ready` while the log is recovered |
//! | `time_zones` | which rules of time zones count |
//! | `warnings` | what settings and files let others do |
//! | `watchdog` | signs of life for a service manager |

pub(super) mod audit;
pub(super) mod certificate;
mod client_memory;
pub(super) mod clock;
pub(super) mod data_dir_watch;
pub(super) mod descriptors;
pub(super) mod error;
mod fleet;
mod follow_settings;
mod http_settings;
pub(super) mod listeners;
pub(super) mod live_settings;
mod placement;
pub(super) mod progress;
pub(super) mod recovery;
pub(super) mod reshard;
pub(super) mod signals;
mod stand_by;
pub(super) mod start;
mod start_report;
pub(super) mod startup_http;
mod time_zones;
pub(super) mod warnings;
mod watchdog;
