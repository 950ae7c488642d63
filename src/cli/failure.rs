//! How a command ends when it does not succeed: one line on stderr that says what to do, and an exit
//! code. Knows no socket and no terminal.

use std::io;
use std::process::ExitCode;

use crate::{escape, logging};

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong, or says too little: exit code 2.
    Usage(String),
    /// The server said no, cannot be reached, or what was asked did not come true: exit code 1.
    Failed(String),
    /// Nobody reads the output any more, as behind `| head`: a quiet end.
    Gone,
}

impl Failure {
    /// Something that the machine refused, with what was being done.
    pub fn failed(what: impl std::fmt::Display, error: &io::Error) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }

    /// The server's refusal, and what helps against it where that is known.
    pub fn refused(error: &str) -> Self {
        Self::Failed(match advice(error) {
            Some(advice) => format!("{error}: {advice}"),
            None => error.to_owned(),
        })
    }

    /// Says it and gives the code to exit with.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::Usage(text) => {
                complain(text);
                ExitCode::from(2)
            }
            Self::Failed(text) => {
                complain(text);
                ExitCode::FAILURE
            }
            Self::Gone => ExitCode::SUCCESS,
        }
    }
}

/// Says something beside the output, which goes on.
pub fn warn(text: &str) {
    complain(text);
}

/// Every text becomes one line, whatever a server put into it.
pub fn complain(text: &str) {
    logging::complain(&escape::line(text));
}

/// What to do about refusals that a command line can cure.
fn advice(error: &str) -> Option<&'static str> {
    if matches!(error, "Not authenticated" | "Invalid token") {
        return Some("set CORQ_TOKEN, or --token, to one of the server's AUTH_TOKENS");
    }
    if error.starts_with("Lock token required") {
        return Some("say --lock-token with the token that the pull gave");
    }
    if error.starts_with("Invalid or expired lock token") {
        return Some("the job may have gone to another worker; pull it again");
    }
    None
}

/// Errors of a write to the output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Gone,
            _ => Self::failed("the output cannot be written", &error),
        }
    }
}
