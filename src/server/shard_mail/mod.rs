//! Messages between shards.
//!
//! | file | responsibility |
//! |---|---|
//! | `dispatch` | brings a frame to the shard that carries it out |
//! | `inbox` | reads batches of other shards |
//! | `message` | the messages and their batch |
//! | `outbox` | what a turn sends to each shard |
//! | `slots` | queue, job id or name to slot to shard |

pub(super) mod dispatch;
pub(super) mod inbox;
pub(super) mod message;
pub(super) mod outbox;
pub(super) mod slots;
