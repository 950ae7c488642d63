//! Reports of the server on itself for its operators: findings on it and its machine, and its settings.
//!
//! | file | responsibility |
//! |---|---|
//! | `findings` | Doctor |
//! | `settings` | GetSettings |
//! | `state` | what a shard keeps for that |

mod findings;
mod settings;
pub(super) mod state;
