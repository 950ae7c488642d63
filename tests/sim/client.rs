//! A simulated client: a worker and producer on one connection, and what it believes it holds.

use corq_shards::command::Token;
use corq_shards::job::id::JobId;

/// A job that was delivered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Held {
    pub job: JobId,
    pub token: Option<Token>,
    pub shard: usize,
}

/// A simulated client.
#[derive(Debug)]
pub struct Client {
    /// The connection; a new one after each end.
    pub id: u64,
    pub held: Vec<Held>,
}
