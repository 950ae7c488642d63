//! The doing half of corq.

pub mod log;
