//! Why the server has refused a command: a text for people, and a code that programs tell refusals by.

use std::fmt;
use std::ops::Deref;

macro_rules! codes {
    ($($(#[$doc:meta])+ $code:ident = $name:literal;)+) => {
        /// Reason of a refusal, for programs. Texts may change with the server, codes do not.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])+ $code,)+ }

        impl Code {
            /// All codes that this client knows.
            pub const ALL: &[Self] = &[$(Self::$code,)+];

            /// The code as the server writes it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$code => $name,)+ }
            }

            /// The code of this name; a newer server may have others.
            pub fn named(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$code),)+ _ => None }
            }
        }
    };
}

codes! {
    /// The bytes are no request.
    InvalidRequest = "invalid_request";
    /// A field is missing, of another type, out of its bounds, or does not fit the others.
    InvalidField = "invalid_field";
    /// The server has no command of this name.
    UnknownCommand = "unknown_command";
    /// This server, port or kind of connection does not offer what is asked for.
    Unsupported = "unsupported";
    /// There is no such job, or it is not active.
    NotActive = "not_active";
    /// The state of the job, or its place in a family, does not allow the command.
    WrongState = "wrong_state";
    /// The job is locked, and the command has no lock token.
    TokenRequired = "token_required";
    /// The lock token is wrong or expired.
    TokenMismatch = "token_mismatch";
    /// A job of this id exists.
    DuplicateId = "duplicate_id";
    /// A job that the pushed one depends on does not exist.
    DependencyNotFound = "dependency_not_found";
    /// A group, or the number or size of things of a kind, is at its limit.
    LimitReached = "limit_reached";
    /// There is no valid token for the server.
    Unauthorized = "unauthorized";
    /// The request seems to come from a web page that is not allowed.
    CrossOrigin = "cross-origin";
    /// The token is valid, but not for this command or this queue.
    Forbidden = "forbidden";
    /// The job, schedule, worker, webhook or group does not exist.
    NotFound = "not_found";
    /// The request was not complete in time.
    Timeout = "timeout";
    /// The request is longer than it may be.
    TooLarge = "too_large";
    /// HTTP: `Expect` asks for something that the server does not know.
    ExpectationFailed = "expectation_failed";
    /// HTTP: the path needs another version of WebSocket.
    UpgradeRequired = "upgrade_required";
    /// The client sends more requests than it may.
    RateLimited = "rate_limited";
    /// HTTP: the head of the request is too long.
    HeadersTooLarge = "headers_too_large";
    /// The server made a mistake.
    Internal = "internal";
    /// The stored record of the job cannot be read.
    Damaged = "damaged";
    /// The reply would be longer than a frame or a text may be.
    ReplyTooLarge = "reply_too_large";
    /// HTTP: the request has a transfer coding that the server does not know.
    NotImplemented = "not_implemented";
    /// Too much of this kind waits already.
    Busy = "busy";
    /// The server reads its log and takes no requests yet.
    Starting = "starting";
    /// The server stops.
    ShuttingDown = "shutting_down";
    /// The system lacks something other than disk space.
    NoResources = "no_resources";
    /// The data directory has been removed or replaced.
    DataGone = "data_gone";
    /// HTTP: the version is none that the server speaks.
    VersionNotSupported = "version_not_supported";
    /// The disk has no space for what the command adds.
    DiskFull = "disk_full";
}

/// The server's refusal of a command. It reads as its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    text: Box<str>,
    code: Option<Code>,
}

/// Texts of servers that send no code, as a whole: names and values that others chose may be part of a refusal.
const BY_TEXT: [(&str, Code); 9] = [
    ("Job not found", Code::NotFound),
    ("Cron not found", Code::NotFound),
    ("Webhook not found", Code::NotFound),
    ("Group not found", Code::NotFound),
    ("Worker not found", Code::NotFound),
    ("Job not found or not active", Code::NotActive),
    ("Disk full", Code::DiskFull),
    ("Rate limit exceeded", Code::RateLimited),
    ("Too many long commands wait already", Code::Busy),
];

/// Beginnings of texts that end with the id of a job.
const BY_BEGINNING: [(&str, Code); 3] = [
    ("Child job not found: ", Code::NotFound),
    ("Parent job not found: ", Code::NotFound),
    ("Dependency job not found: ", Code::DependencyNotFound),
];

impl Refusal {
    /// A refusal as the server has sent it. Servers older than codes are understood by some of their texts.
    pub(crate) fn new(text: Box<str>, code: Option<&str>) -> Self {
        let code = match code {
            Some(code) => Code::named(code),
            None => of_text(&text),
        };
        Self { text, code }
    }

    /// The server's words, for people.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The code, for programs; none if the server is older than codes, or this code newer than the client.
    pub fn code(&self) -> Option<Code> {
        self.code
    }
}

fn of_text(text: &str) -> Option<Code> {
    let whole = BY_TEXT.iter().find(|(known, _)| *known == text);
    let begun = || BY_BEGINNING.iter().find(|(known, _)| text.starts_with(known));
    whole.or_else(begun).map(|(_, code)| *code)
}

/// A refusal of a server that sends no code.
impl From<&str> for Refusal {
    fn from(text: &str) -> Self {
        Self::new(text.into(), None)
    }
}

impl Deref for Refusal {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_the_server_counts_and_without_one_some_texts_are_known() {
        let code = |text: &str, code| Refusal::new(text.into(), code).code();
        assert_eq!(code("Disk full", Some("not_found")), Some(Code::NotFound));
        assert_eq!(code("Job not found", Some("of_a_newer_server")), None);
        assert_eq!(code("Job not found", None), Some(Code::NotFound));
        assert_eq!(code("Job not found or not active", None), Some(Code::NotActive));
        assert_eq!(code("Dependency job not found: a", None), Some(Code::DependencyNotFound));
        // Text that contains a user's words must not be taken for the server's own.
        assert_eq!(code("Invalid or expired lock token for job Job not found", None), None);
        for &known in Code::ALL {
            assert_eq!(Code::named(known.name()), Some(known));
        }
    }
}
