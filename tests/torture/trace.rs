//! The last commands of all clients with their answers, to look into a finding.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Instant;

/// Lines that are kept.
const LINES_MAX: usize = 4000;
/// Characters that are kept of a line.
const CHARS_MAX: usize = 600;

/// A ring of the last commands.
pub(crate) struct Trace {
    start: Instant,
    lines: Mutex<VecDeque<String>>,
}

impl Trace {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), lines: Mutex::default() }
    }

    /// Notes what `who` did.
    pub(crate) fn note(&self, who: &str, what: impl FnOnce() -> String) {
        let mut line = format!("{:9.3} {who} ", self.start.elapsed().as_secs_f64());
        let what = what();
        line.extend(what.chars().take(CHARS_MAX));
        let mut lines = self.lines.lock().unwrap();
        if lines.len() >= LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.lines.lock().unwrap();
        lines.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{line}");
            text
        })
    }
}
