//! Why a request did not succeed.

use super::listing::text_of;
use std::fmt;

/// Of what the storage says in its own words, so many characters are shown.
const SAID_MAX: usize = 200;

/// Why a request did not succeed. Holds nothing of the credentials.
#[derive(Debug)]
pub enum S3Fault {
    /// The storage has answered so.
    Answered {
        /// The status of HTTP.
        status: u16,
        /// The storage's own word for it, such as `NoSuchBucket`; empty if it has none.
        code: String,
        /// The storage's explanation.
        said: String,
    },
    /// There was no answer, or a part of one.
    Unanswered(String),
    /// The content that came is not what was put.
    Corrupt(String),
    /// A file of this machine could not be read or written.
    Local(std::io::Error),
    /// The end of the work was wanted.
    Stopped,
}

impl S3Fault {
    /// An answer that is no success, with its body.
    pub(super) fn of_answer(status: u16, body: &str) -> Self {
        let text = |tag: &str| {
            let text = text_of(body, tag).unwrap_or_default();
            text.chars().filter(|it| !it.is_control()).take(SAID_MAX).collect()
        };
        Self::Answered { status, code: text("Code"), said: text("Message") }
    }

    /// Whether the same request may succeed a little later.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Unanswered(_) | Self::Corrupt(_) => true,
            Self::Answered { status, code, .. } => {
                matches!(status, 408 | 429 | 500..) || code == "RequestTimeout"
            }
            Self::Local(_) | Self::Stopped => false,
        }
    }

    /// Whether what was asked for is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Answered { status: 404, code, .. } if code != "NoSuchBucket")
    }
}

impl fmt::Display for S3Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { status, code, said } => {
                write!(f, "the storage answered {status}")?;
                [code, said]
                    .into_iter()
                    .filter(|it| !it.is_empty())
                    .try_for_each(|it| write!(f, " {it}"))?;
                match (&**code, status) {
                    ("SignatureDoesNotMatch", _) => {
                        f.write_str(": the secret key is not the one of this key id")
                    }
                    ("InvalidAccessKeyId", _) => f.write_str(": it does not know the key id"),
                    ("NoSuchBucket", _) => f.write_str(": make the bucket first"),
                    (_, 301 | 307 | 308) => {
                        f.write_str(": endpoint or region is not that of the bucket")
                    }
                    _ => Ok(()),
                }
            }
            Self::Unanswered(why) => write!(f, "the storage did not answer: {why}"),
            Self::Corrupt(what) => f.write_str(what),
            Self::Local(error) => error.fmt(f),
            Self::Stopped => f.write_str("the end was wanted"),
        }
    }
}
