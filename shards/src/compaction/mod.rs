//! Rewriting live records at the end of the log, so that its oldest segment can go.
//!
//! | file | responsibility |
//! |---|---|
//! | `audit` | what is needed of the log, counted anew |
//! | `evict_history` | history gives way on a full disk |
//! | `live_bytes` | how much of each part of the log is needed |
//! | `replay` | what was written again is replayed |
//! | `reshard` | the state of one shard dealt out to others |
//! | `rewrite` | what of the oldest segment is still needed |
//! | `space_forecast` | how much room the ends of all jobs may come to take |

mod audit;
pub(crate) mod evict_history;
pub mod live_bytes;
pub(crate) mod replay;
pub mod reshard;
pub mod rewrite;
pub mod space_forecast;
