//! What the server tells its operators of itself: what is worth a look on it and its machine, and its settings.
//!
//! | file | responsibility |
//! |---|---|
//! | `findings` | Doctor |
//! | `settings` | GetSettings |
//! | `state` | what a shard keeps for that |

mod findings;
mod settings;
pub(super) mod state;
