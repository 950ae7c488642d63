//! How far long work is, for people: a bar on standard error, and nothing where that is no terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over bytes. It goes when it is dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar over `total` bytes, which are `done` one after the other: "checked", "copied".
    pub fn bytes(total: u64, done: &'static str) -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(total);
        bar.enable_steady_tick(Duration::from_millis(100));
        let template = "{bar:30} {percent}% · {bytes} {msg} · {elapsed}, {eta} to go";
        Self(match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style).with_message(done),
            Err(_) => bar,
        })
    }

    /// Adds bytes that are done.
    pub fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
