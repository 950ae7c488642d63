//! The connecting half of corq.

pub mod api;
pub mod protocol;
