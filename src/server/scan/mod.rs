//! Pages of jobs by a cursor, and searches: they go over the jobs of a queue, or of a shard, slice by slice, a slice a turn, and
//! answer with what they have found when a page is full, when their time is over, or at the end. What is left goes on with
//! the cursor of the reply. See `docs/decisions/0052-lists-by-cursor.md`.
//!
//! | file | responsibility |
//! |---|---|
//! | `matching` | whether the record of a job has what is searched for |
//! | `page` | one page under way: how far it is, and its rows |
//! | `row` | a job as a row of a list |
//! | `turns` | the commands, slice by slice |

pub(super) mod matching;
pub(super) mod page;
pub(super) mod row;
pub(super) mod turns;
