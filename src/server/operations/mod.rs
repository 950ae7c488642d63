//! Long answers of a shard: each is written slice by slice, in its turn with others, and none makes a turn long. The slices
//! are where their commands are.
//!
//! | file | responsibility |
//! |---|---|
//! | `operation` | an answer under way, and the lines in which answers wait: data only |
//! | `running` | begins answers, goes on with them, ends those of clients that are gone |

pub(super) mod operation;
mod running;
