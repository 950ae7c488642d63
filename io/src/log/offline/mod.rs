//! A log that no server has open.
//!
//! | file | responsibility |
//! |---|---|
//! | `damage` | what can be wrong |
//! | `filling` | a directory that is filled in its place |
//! | `find_segments` | its files and their headers |
//! | `inspection` | what a look at it shows |
//! | `new_id` | a copy made a directory of its own |
//! | `repair` | putting a copy right |
//! | `replace_shards` | other shards in place of these |
//! | `verify` | all that is wrong with it |

pub(super) mod damage;
pub(super) mod filling;
pub(super) mod find_segments;
pub(super) mod inspection;
pub(super) mod new_id;
pub(super) mod repair;
pub(super) mod replace_shards;
pub(super) mod verify;
