//! The dead-letter queue.
//!
//! | file | responsibility |
//! |---|---|
//! | `policy` | automatic retries, ages and sizes; when a lock counts as a stall |
//! | `reason` | why a job was buried |
//! | `scan` | filters, retries and counts, in slices |

pub mod policy;
pub mod reason;
pub mod scan;
