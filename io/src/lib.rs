//! The doing half of corq.
