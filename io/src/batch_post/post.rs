//! A post, and the meaning of its answer.

use super::config::Header;
use crate::webhook::client::{Settings, agent, reason};
use std::io::Read;
use std::time::Duration;
use ureq::Agent;
use ureq::http::StatusCode;

/// Of an answer, so much is read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Longest time that a receiver may ask to be left alone.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// How a post went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With the body of the answer.
    Taken(Vec<u8>),
    Failed {
        reason: String,
        /// Whether the same may be posted again.
        again: bool,
        /// When, if the receiver said so.
        after: Option<Duration>,
    },
}

/// The client of one receiver. It keeps the connection for the next post.
pub(super) struct Client {
    agent: Agent,
    timeout: Duration,
    url: String,
    content_type: &'static str,
}

impl Client {
    pub(super) fn new(settings: &Settings, url: &str, content_type: &'static str) -> Self {
        let (agent, timeout) = (agent(settings), settings.timeout);
        Self { agent, timeout, url: url.to_owned(), content_type }
    }

    pub(super) fn post(&self, headers: &[Header], body: &[u8]) -> Outcome {
        let mut request = self.agent.post(&self.url).header("Content-Type", self.content_type);
        for (name, value) in headers {
            request = request.header(&**name, &**value);
        }
        let mut answer = match request.send(body) {
            Ok(answer) => answer,
            Err(error) => {
                let reason = reason(&error, self.timeout);
                return Outcome::Failed { reason, again: true, after: None };
            }
        };
        let status = answer.status();
        let after = answer.headers().get("Retry-After");
        let after = after.and_then(|value| retry_after(value.to_str().ok()?));
        let mut read = Vec::new();
        // If it does not end, its status stands all the same.
        let _ = answer.body_mut().as_reader().take(ANSWER_BYTES_MAX).read_to_end(&mut read);
        outcome(status, after, read)
    }
}

fn outcome(status: StatusCode, after: Option<Duration>, body: Vec<u8>) -> Outcome {
    let again = matches!(status.as_u16(), 429 | 502..=504);
    match status.as_u16() {
        200..300 => Outcome::Taken(body),
        300..400 => {
            let reason = format!("it answered {status}, and redirects are not followed");
            Outcome::Failed { reason, again, after: None }
        }
        _ => Outcome::Failed { reason: format!("it answered {status}"), again, after },
    }
}

/// The seconds that a receiver asks to be left alone. A date is not understood.
fn retry_after(text: &str) -> Option<Duration> {
    let seconds = text.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let again = |status: u16| match StatusCode::from_u16(status) {
            Ok(status) => match outcome(status, None, Vec::new()) {
                Outcome::Taken(_) => None,
                Outcome::Failed { again, .. } => Some(again),
            },
            Err(_) => None,
        };
        assert_eq!([200, 202].map(again), [None, None]);
        assert_eq!([429, 502, 503, 504].map(again), [Some(true); 4]);
        assert_eq!([301, 400, 401, 404, 413, 500, 501].map(again), [Some(false); 7]);
    }

    #[test]
    fn a_receiver_may_ask_for_a_pause_of_a_minute_at_most() {
        assert_eq!(retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("86400"), Some(RETRY_AFTER_MAX));
        assert_eq!(retry_after("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(retry_after("-1"), None);
    }
}
