//! Judges facts about a machine and a server, as `corq doctor` and the dashboard show them: what was found, how bad
//! that is, and what to change. The facts are given; only `machine` looks for some itself, which takes no time.
//!
//! | file | responsibility |
//! |---|---|
//! | `machine` | limits, CPUs, memory, clock and disk of this machine |
//! | `server` | counters of a server that should be zero, its certificate, its data directory |

pub mod machine;
pub mod server;

use crate::protocol::msgpack::writer::Writer;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Good,
    /// The subject works, and would work better otherwise.
    Warning,
    /// The subject does not work.
    Wrong,
}

impl Verdict {
    /// As programs read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Warning => "warning",
            Self::Wrong => "wrong",
        }
    }
}

/// A subject that was looked at, with the verdict.
#[derive(Clone, Debug)]
pub struct Finding {
    pub verdict: Verdict,
    pub what: &'static str,
    pub found: String,
    /// Advice on what to change; empty if nothing.
    pub advice: String,
}

impl Finding {
    pub fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Good, what, found: found.into(), advice: String::new() }
    }

    pub fn warning(
        what: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Warning, what, found: found.into(), advice: advice.into() }
    }

    pub fn wrong(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Wrong, what, found: found.into(), advice: advice.into() }
    }
}

/// Writes findings as the command line and the server show them.
pub fn write<'a>(
    writer: &mut Writer<'_>,
    count: usize,
    findings: impl Iterator<Item = &'a Finding>,
) {
    writer.array(count);
    for finding in findings {
        let mut row = writer.begin_map();
        row.key("check").str(finding.what);
        row.key("verdict").str(finding.verdict.name());
        row.key("found").str(&finding.found);
        row.key("advice").str(&finding.advice);
    }
}
