//! Errors of the client, distinguished by what the caller may conclude from each.

use std::sync::Arc;
use std::time::Duration;

use crate::refusal::{Code, Refusal};
use crate::wire::read::Malformed;

/// Why a call has no answer, or not the one hoped for.
///
/// The question that matters after a failed push or acknowledgement is whether it happened all the same:
///
/// | error | what became of the command |
/// |---|---|
/// | [`Refused`](Error::Refused) | nothing was changed |
/// | [`Unreachable`](Error::Unreachable), [`Payload`](Error::Payload), [`Invalid`](Error::Invalid), [`Closed`](Error::Closed) | it was not sent |
/// | [`Lost`](Error::Lost), [`Protocol`](Error::Protocol) | nobody knows |
/// | [`Timeout`](Error::Timeout) | nobody knows if `sent`, else it was not sent |
///
/// [`Error::is_outcome_unknown`] answers it in one word. A push with a
/// [job id](crate::JobOptions::job_id) may simply be repeated, and is, by the client itself.
///
/// ```no_run
/// # use corq_client::{Client, Code, Error};
/// # async fn example(client: Client) -> Result<(), Error> {
/// match client.queue("emails").push("hello").await {
///     Ok(id) => println!("job {id}"),
///     Err(error) if error.code() == Some(Code::DiskFull) => println!("later: {error}"),
///     Err(Error::Refused(words)) => println!("the server will not have it: {words}"),
///     Err(error) if error.is_outcome_unknown() => println!("perhaps pushed: {error}"),
///     Err(error) => println!("not pushed: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server has refused the command, with this text and code. Nothing was changed.
    #[error("{0}")]
    Refused(Refusal),
    /// The connection broke after the command was sent, before its answer came. It may have been carried out.
    #[error("the connection was lost, and what became of the command is unknown: {0}")]
    Lost(Arc<str>),
    /// The answer did not come in time.
    #[error("no answer within {after:?} ({})", fate(.sent))]
    Timeout {
        /// How long was waited.
        after: Duration,
        /// Whether the command was on its way already.
        sent: bool,
    },
    /// There is no connection to be had. The command was not sent.
    #[error("the server cannot be reached: {0}")]
    Unreachable(Arc<str>),
    /// A value cannot be written, or what came back cannot be read as the type asked for.
    #[error("the payload does not fit: {0}")]
    Payload(Box<str>),
    /// The server has sent what the protocol does not allow.
    #[error("the server does not speak the protocol: {0}")]
    Protocol(Box<str>),
    /// A setting makes no sense.
    #[error("{0}")]
    Invalid(Box<str>),
    /// The client, or whatever the call was made on, was closed.
    #[error("it is closed")]
    Closed,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The form in which the derived code has it.
fn fate(sent: &bool) -> &'static str {
    if *sent { "what became of the command is unknown" } else { "it was not sent" }
}

impl Error {
    /// Whether the server has refused it.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Code of a refusal, for programs: `None` for all other errors, and for refusals whose code is not known.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(refusal) => refusal.code(),
            _ => None,
        }
    }

    /// Whether the server knows nothing of the job, schedule, webhook, group or worker that was meant. A job that may only be
    /// in a state that the command is not for, as in `Job not found or not active`, does not count.
    pub fn is_not_found(&self) -> bool {
        matches!(self.code(), Some(Code::NotFound | Code::DependencyNotFound))
    }

    /// Whether the command may have been carried out although there is no answer.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Protocol(_) | Self::Timeout { sent: true, .. })
    }

    /// Whether the same may go well a moment later: the server had no room, was too busy, or was not there.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(refusal) => matches!(
                refusal.code(),
                Some(
                    Code::DiskFull
                        | Code::RateLimited
                        | Code::Busy
                        | Code::Starting
                        | Code::ShuttingDown
                        | Code::NoResources
                )
            ),
            Self::Lost(_) | Self::Timeout { .. } | Self::Unreachable(_) => true,
            Self::Payload(_) | Self::Protocol(_) | Self::Invalid(_) | Self::Closed => false,
        }
    }
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Self::Protocol(format!("a reply cannot be read: {}", malformed.0).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, code: Option<&str>) -> Error {
        Error::Refused(Refusal::new(text.into(), code))
    }

    #[test]
    fn only_the_servers_own_word_says_that_something_was_not_found() {
        assert!(refused("gone", Some("not_found")).is_not_found());
        assert!(!refused("Job not found", Some("invalid_field")).is_not_found());
        let missing = |words: &str| refused(words, None).is_not_found();
        assert!(missing("Worker not found"));
        assert!(missing("Parent job not found: invoice-4711"));
        // A job that is "not active" may be there, in another state.
        assert!(!missing("Job not found or not active"));
        // Texts that contain a user's words must not be taken for the server's own.
        assert!(!missing("Invalid or expired lock token for job Job not found"));
        assert!(!missing("jobs[0]: tag `not found` is too long"));
        assert!(!Error::Lost("Job not found".into()).is_not_found());
    }

    #[test]
    fn what_passes_by_itself_is_transient_with_and_without_a_code() {
        for code in ["disk_full", "rate_limited", "busy", "starting", "no_resources"] {
            assert!(refused("x", Some(code)).is_transient(), "{code}");
        }
        assert!(refused("Disk full", None).is_transient());
        assert!(!refused("Disk full", Some("invalid_field")).is_transient());
        assert!(!refused("x", Some("not_active")).is_transient());
    }
}
