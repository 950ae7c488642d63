//! The doing half of corq.

mod bell;
pub mod clock;
pub mod host;
pub mod mesh;
pub mod net;
mod ring;
pub mod runtime;
pub mod signal;
