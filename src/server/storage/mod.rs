//! The state machine with its write-ahead log, and the room that the log has.
//!
//! | file | responsibility |
//! |---|---|
//! | `cold_reads` | replies that wait for a read of the disk |
//! | `compaction` | the pace of compaction |
//! | `data_presence` | refuses all writes while the files of the log are gone |
//! | `disk_full_tests` | tests: lives of jobs on a full log |
//! | `engine` | the state machine and its log |
//! | `journal` | the log as the state machine writes to it |
//! | `space` | how much room must stay free before a record may be appended |
//! | `staged_payloads` | payloads that are copied into the log's memory in slices, before their records |

pub(super) mod cold_reads;
pub(super) mod compaction;
pub(super) mod data_presence;
#[cfg(test)]
pub(super) mod disk_full_tests;
pub(super) mod engine;
pub(super) mod journal;
pub(super) mod space;
pub(super) mod staged_payloads;
