//! Bounds memory and work when clients send more, or read less, than a shard can carry.
//!
//! | file | responsibility |
//! |---|---|
//! | `backpressure` | when connections are not read, and when no command begins |
//! | `client_memory` | what each kind of client memory may take of a shard |
//! | `command_memory` | the memory of commands that go to other shards or take several steps |
//! | `fair_share` | how many request bytes one connection may use of a turn |
//! | `large_replies` | defers requests whose replies may be large |
//! | `receive_memory` | the memory of requests that have not come whole |
//! | `send_memory` | the memory of replies that clients have yet to read |
//! | `shared_replies` | long answers that many connections wait for, held once |
//! | `shared_values` | values that many are answered with, as they came and as JSON |
//! | `write_stall` | on a full disk: puts writes off until compaction has made room |

pub(super) mod backpressure;
pub(super) mod client_memory;
pub(super) mod command_memory;
pub(super) mod fair_share;
pub(super) mod large_replies;
pub(super) mod receive_memory;
pub(super) mod send_memory;
pub(super) mod shared_replies;
pub(super) mod shared_values;
pub(super) mod write_stall;
