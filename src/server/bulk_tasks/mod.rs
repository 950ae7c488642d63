//! Actions on many jobs: each is a task that is answered with its name at once and goes on slice by slice, a slice a turn,
//! whether its client stays or not. Each job is changed by the call of the engine that a command on that job makes. And
//! the dead letters of a queue by their errors. See `docs/decisions/0056-bulk-tasks.md`.
//!
//! | file | responsibility |
//! |---|---|
//! | `act` | one action on one job of this shard |
//! | `begin` | the commands: a task begins, is looked at, is cancelled |
//! | `error_groups` | groups of dead letters as they are counted: data only |
//! | `error_text` | which errors count as one |
//! | `filtered` | tasks on the jobs of a queue that a filter lets through, slice by slice |
//! | `groups` | groups of dead letters, slice by slice |
//! | `messages` | what shards say to each other about all this: data only |
//! | `named` | tasks on jobs of given ids, which may be on any shard |
//! | `tasks` | the tasks of a shard, running and remembered |
//! | `work` | what is left to do of a task: data only |

mod act;
mod begin;
pub(super) mod error_groups;
mod error_text;
mod filtered;
mod groups;
pub(super) mod messages;
mod named;
pub(super) mod tasks;
mod work;
