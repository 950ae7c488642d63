//! What happened in a run, as a hash, and its last lines for whoever has to understand a failure.

use corq_shards::id::fnv1a;
use std::collections::VecDeque;
use std::fmt::Arguments;

/// Lines kept for a failure.
const LINES: usize = 25;

/// See the module.
pub struct Trace {
    pub hash: u64,
    lines: VecDeque<String>,
    print: bool,
}

impl Trace {
    /// `print`: every line goes out as it comes.
    pub fn new(print: bool) -> Self {
        Self { hash: 0, lines: VecDeque::new(), print }
    }

    #[allow(clippy::disallowed_methods)] // Looks nothing up.
    pub fn note(&mut self, line: Arguments<'_>) {
        let line = line.to_string();
        self.hash = self.hash.rotate_left(5) ^ fnv1a(line.as_bytes());
        if self.print {
            eprintln!("{line}");
        } else if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

impl Drop for Trace {
    /// A run that fails says what led to it.
    fn drop(&mut self) {
        if std::thread::panicking() && !self.print && !super::canary::is_quiet() {
            for line in &self.lines {
                eprintln!("  {line}");
            }
        }
    }
}
