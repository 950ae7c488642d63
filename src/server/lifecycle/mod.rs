//! From settings to running shards, and to their end.
//!
//! | file | responsibility |
//! |---|---|
//! | `certificate` | the certificate of the server in logs, metrics and `/health` |
//! | `data_dir_watch` | looks once a second whether the data directory is still there |
//! | `descriptors` | shares the file descriptors out: log, shards, connections |
//! | `error` | why the server did not start |
//! | `listeners` | TCP ports and unix sockets, and which protocol each speaks |
//! | `progress` | how often a start reports its progress |
//! | `recovery` | opens the log and replays it into the shard |
//! | `reshard` | rewrites a data directory for another number of shards |
//! | `signals` | SIGTERM, SIGINT, SIGHUP |
//! | `start` | settings to running shards to the end of the process |
//! | `startup_http` | answers `/health` and `/ready` while the log is recovered |
//! | `warnings` | what settings and files let others do |

pub(super) mod certificate;
pub(super) mod data_dir_watch;
pub(super) mod descriptors;
pub(super) mod error;
pub(super) mod listeners;
pub(super) mod progress;
pub(super) mod recovery;
pub(super) mod reshard;
pub(super) mod signals;
pub(super) mod start;
pub(super) mod startup_http;
pub(super) mod warnings;
