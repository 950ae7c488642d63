//! The log, read back.
//!
//! | file | responsibility |
//! |---|---|
//! | `block_reader` | blocks one after the other |
//! | `cold_read` | records that have left memory |
//! | `recovery` | the start: replay, torn tail or damage |
//! | `resume` | a start that finds no room for another segment |

pub(super) mod block_reader;
pub(super) mod cold_read;
pub(super) mod recovery;
pub(super) mod resume;
