//! The doing half of corq: rings, sockets, TLS, executors, the log, posts to webhooks and of batches, objects of backups. The only crate that names glommio,
//! io-uring and libc; knows bytes and order, no protocol and no command.
//!
//! | module | responsibility |
//! |---|---|
//! | `allocations` | an allocator that counts, for tests |
//! | `batch_post` | items that one receiver gets, many at a time |
//! | `cgroup` | what control groups leave of CPUs and memory |
//! | `chronicle` | logs as rows of a database |
//! | `client_connect` | blocking connections of tools to a server |
//! | `clock` | the time of a turn |
//! | `host` | whether this machine can run the server |
//! | `line_files` | files of lines that are rotated |
//! | `log` | the write-ahead log |
//! | `log_ring` | disk operations of the log on the ring of its shard |
//! | `machine_facts` | what about the machine is worth knowing to operators |
//! | `memory` | how much memory the process has, and giving it back |
//! | `mesh` | messages between shards |
//! | `net` | sockets: the reactor, connections, TLS |
//! | `pass_on` | connections of clients that are passed on to another server |
//! | `placement` | whether shards are pinned to CPUs |
//! | `privileges` | whose a directory is, and whose this process |
//! | `ring` | one io_uring, and how to wait for it |
//! | `runtime` | one executor per shard |
//! | `s3` | objects in storage that speaks the protocol of S3 |
//! | `service_manager` | messages to systemd |
//! | `signal` | signals |
//! | `tls` | certificates and keys |
//! | `umask` | who may look at the files of the process |
//! | `webhook` | posts to webhooks |
//! | `zone_files` | the rules of time zones that the system keeps |
#![warn(missing_docs)]

pub mod allocations;
pub mod batch_post;
pub mod cgroup;
pub mod chronicle;
pub mod client_connect;
pub mod clock;
pub mod host;
pub mod line_files;
pub mod log;
pub mod log_ring;
pub mod machine_facts;
pub mod memory;
pub mod mesh;
pub mod net;
pub mod pass_on;
pub mod placement;
pub mod privileges;
mod ring;
pub mod runtime;
pub mod s3;
pub mod service_manager;
pub mod signal;
pub mod tls;
pub mod umask;
pub mod webhook;
pub mod zone_files;
