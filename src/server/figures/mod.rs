//! Figures for people and pages: what happened in the last day, what each shard does, and samples for those who watch.
//!
//! What happened is counted and kept by the state machine (`corq_shards::stats::history`); here its steps are ended, it is asked
//! of all shards, and written. Viewers are sent what one shard gathers for all of them, once per interval; while there is no
//! viewer, none of that is done.
//!
//! | file | responsibility |
//! |---|---|
//! | `gather` | questions about figures to all shards |
//! | `load` | how busy a shard is, and its longest turn lately |
//! | `over_time` | History and Heatmap |
//! | `messages` | what shards say to each other about figures |
//! | `sample` | what viewers are sent, in both forms |
//! | `sampler` | what the shard knows that gathers samples for the viewers of all shards |
//! | `shard_row` | Shards: what one shard does |
//! | `state` | what a shard keeps for all that |
//! | `viewers` | the table of viewers |
//! | `watch` | Watch and Unwatch, and how samples reach viewers |

mod gather;
mod load;
pub(super) mod messages;
mod over_time;
mod sample;
mod sampler;
mod shard_row;
pub(super) mod state;
mod viewers;
mod watch;
