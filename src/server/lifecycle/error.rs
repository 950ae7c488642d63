//! Why the server did not start, in one line each.

use crate::escape;
use corq_io::host::HostError;
use std::fmt;

/// Why the server did not start, or did not end well. One line each.
#[derive(Debug)]
pub enum StartError {
    /// The machine lacks something.
    Host(Vec<HostError>),
    /// Something else, said in full.
    Other(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(errors) => {
                for (place, error) in errors.iter().enumerate() {
                    write!(f, "{}{error}", if place > 0 { "\n" } else { "" })?;
                }
                Ok(())
            }
            Self::Other(text) => f.write_str(&escape::line(text)),
        }
    }
}

pub(super) fn other(what: impl fmt::Display, error: impl fmt::Display) -> StartError {
    StartError::Other(format!("{what}: {error}"))
}
