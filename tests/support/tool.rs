//! The command line as a person or a script uses it: run to its end, its output taken apart.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use serde_json::Value as Json;

use super::Server;

/// How the program is to be run.
pub(crate) struct Tool {
    env: Vec<(String, String)>,
}

/// Outcome of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Tool {
    /// For the server on these ports.
    pub(crate) fn at(port: u16) -> Self {
        Self { env: Vec::new() }.env("CORQ_PORT", port)
    }

    pub(crate) fn of(server: &Server) -> Self {
        Self::at(server.tcp).env("CORQ_HTTP_PORT", server.http)
    }

    #[allow(clippy::needless_pass_by_value)] // A text or a number, whichever the test has.
    pub(crate) fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.env.push((name.to_owned(), value.to_string()));
        self
    }

    /// The program, ready to be started. Nothing of the developer's own environment counts.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = Command::new(super::server::program());
        command
            .args(words)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn start<S: AsRef<OsStr>>(&self, words: &[S]) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program has been built for this test")
    }

    /// Runs it to its end with this on its standard input.
    pub(crate) fn run_with<S: AsRef<OsStr>>(&self, words: &[S], input: &str) -> Ran {
        let mut child = self.start(words);
        // A child that does not read its input may be gone by now.
        let _ = child.stdin.take().expect("it was piped").write_all(input.as_bytes());
        let output = child.wait_with_output().expect("a child can be waited for");
        Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("the program writes text"),
            err: String::from_utf8(output.stderr).expect("the program writes text"),
        }
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Ran {
        self.run_with(words, "")
    }

    /// A run that must succeed and say nothing about trouble; answers its output.
    pub(crate) fn ok<S: AsRef<OsStr> + std::fmt::Debug>(&self, words: &[S]) -> String {
        let ran = self.run(words);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{words:?} said {}", ran.out);
        ran.out
    }

    /// The raw answer of a run that must succeed.
    pub(crate) fn json<S: AsRef<OsStr> + std::fmt::Debug>(&self, words: &[S]) -> Json {
        let words: Vec<&OsStr> =
            words.iter().map(AsRef::as_ref).chain([OsStr::new("--json")]).collect();
        let out = self.ok(&words);
        assert_eq!(out.lines().count(), 1, "{words:?} said {out}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{words:?} said {out}: {error}"))
    }

    /// The one line of trouble of a run that must end with this code.
    pub(crate) fn fails<S: AsRef<OsStr> + std::fmt::Debug>(
        &self,
        code: i32,
        words: &[S],
    ) -> String {
        let ran = self.run(words);
        assert_eq!(ran.code, Some(code), "{words:?} ended with {ran:?}");
        assert_eq!(ran.out, "", "{words:?} told {}", ran.err);
        line_of(&ran.err)
    }
}

/// The text behind the program's name in its one line of trouble.
pub(crate) fn line_of(err: &str) -> String {
    assert_eq!(err.lines().count(), 1, "{err:?}");
    let line = err.trim_end().strip_prefix("corq: ");
    line.unwrap_or_else(|| panic!("the program does not name itself: {err}")).to_owned()
}

/// The rows of a table, without its heads, by columns. Columns are told by two spaces or more.
pub(crate) fn rows(table: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        line.split("  ").map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect()
    };
    table.lines().skip(1).map(cells).collect()
}

/// The value behind a name in pairs.
pub(crate) fn pair<'a>(pairs: &'a str, name: &str) -> &'a str {
    let found = pairs.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("  "));
    found.unwrap_or_else(|| panic!("no {name} in {pairs}")).trim()
}

/// Whether a time is shown as just past, on a machine of any speed.
pub(crate) fn is_recent(time: &str) -> bool {
    time == "now" || time.strip_suffix("s ago").is_some_and(|it| it.parse::<u32>().is_ok())
}
