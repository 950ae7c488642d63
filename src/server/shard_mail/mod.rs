//! Messages between shards.
//!
//! | file | responsibility |
//! |---|---|
//! | `dispatch` | brings a frame to the shard that carries it out |
//! | `envelope` | where an answer goes, which step waits for it, a batch of messages |
//! | `inbox` | reads batches of other shards |
//! | `message` | the messages |
//! | `outbox` | what a turn sends to each shard |
//! | `req_id` | the client's name of a request that is answered later |
//! | `request_context` | what a command brings along: who sent it, in which bytes |
//! | `scatter_query` | questions that all shards answer |
//! | `slots` | queue, job id or name to slot to shard |

pub(super) mod dispatch;
pub(super) mod envelope;
pub(super) mod inbox;
pub(super) mod message;
pub(super) mod outbox;
pub(super) mod req_id;
pub(super) mod request_context;
pub(super) mod scatter_query;
pub(super) mod slots;
