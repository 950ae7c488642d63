//! How a command ends when it does not succeed: one line on stderr that says what to do, and an exit
//! code. Knows no socket and no terminal.

use std::io;
use std::process::ExitCode;

use super::value::Value;
use super::wording::Wording;
use crate::api::error::{Code, ErrorKind};
use crate::{escape, logging};

/// The server's refusal of a request.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// Text for people.
    pub text: &'a str,
    /// Code for programs; none of a server that is older or newer than this program.
    pub code: Option<Code>,
}

impl<'a> Refusal<'a> {
    /// That of a reply which does not say ok.
    pub fn of(reply: Value<'a>) -> Self {
        let text = reply.get("error").text().unwrap_or("the server gave no reason");
        Self { text, code: reply.get("code").text().and_then(Code::named) }
    }
}

impl From<ErrorKind> for Refusal<'static> {
    fn from(kind: ErrorKind) -> Self {
        Self { text: kind.text(), code: Some(kind.code()) }
    }
}

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong, or says too little: exit code 2.
    Usage(String),
    /// The server cannot be reached, or what was asked did not come true: exit code 1.
    Failed(String),
    /// The server said no, in the words of the protocol: exit code 1.
    Refused(String),
    /// Nobody reads the output any more, as behind `| head`: a quiet end.
    Gone,
}

impl Failure {
    /// Something that the machine refused, with what was being done.
    pub fn failed(what: impl std::fmt::Display, error: &io::Error) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }

    /// The server's refusal, and what helps against it where that is known.
    pub fn refused(Refusal { text, code }: Refusal<'_>) -> Self {
        let tls = Some("use --tls or --tls-ca").filter(|_| text == ErrorKind::TlsSpoken.text());
        Self::Refused(match tls.or_else(|| code.and_then(advice)) {
            Some(advice) => format!("{text}: {advice}"),
            None => text.to_owned(),
        })
    }

    /// A refusal in the words of the command line.
    #[must_use]
    pub fn worded(self, wording: &Wording) -> Self {
        match self {
            Self::Refused(text) => Self::Refused(wording.of_refusal(&text)),
            other => other,
        }
    }

    /// Says it and gives the code to exit with.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::Usage(text) => {
                complain(text);
                ExitCode::from(2)
            }
            Self::Failed(text) | Self::Refused(text) => {
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

/// The failure of a command without TLS at a port with it.
pub fn wants_tls(address: &str) -> Failure {
    let text = ErrorKind::TlsSpoken.text();
    Failure::Failed(format!("{address} answered 400 \"{text}\": use --tls or --tls-ca"))
}

/// Advice on refusals that a command line can cure.
fn advice(code: Code) -> Option<&'static str> {
    match code {
        Code::Unauthorized => {
            Some("set CORQ_TOKEN, or --token, to one of the server's AUTH_TOKENS")
        }
        Code::TokenRequired => Some("say --lock-token with the token that the pull gave"),
        Code::TokenMismatch => Some("the job may have gone to another worker; pull it again"),
        _ => None,
    }
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
