//! The oldest segment is given up.
//!
//! | file | responsibility |
//! |---|---|
//! | `drop_oldest` | lets it go |
//! | `scan_oldest` | reads it once more for compaction |

pub(super) mod drop_oldest;
pub(super) mod scan_oldest;
