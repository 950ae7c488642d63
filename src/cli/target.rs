//! Where the server is and how its answers are shown: `--host`, `--port`, `--token` and `--json`, which
//! every command takes, before its name or behind it.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::ffi::OsString;

const HOST: &str = "server-host";
const PORT: &str = "server-port";
const TOKEN: &str = "server-token";
const JSON: &str = "json";

/// Commands that speak to no server, or are one.
const WITHOUT_SERVER: &[&str] = &["serve", "completions", "man"];
/// Commands that speak to no server either, and have answers of their own.
const ON_FILES: &[&str] = &["log", "restore"];

/// The server that a command is for.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name or address.
    pub host: String,
    /// Its port for frames.
    pub port: u16,
    /// One of its tokens.
    pub token: Option<String>,
    /// Whether the raw answer is wanted.
    pub json: bool,
}

impl Target {
    /// As people write it.
    pub fn address(&self) -> String {
        address(&self.host, self.port)
    }

    /// What was said before the command or behind it; the latter counts where both were.
    pub fn of(matches: &ArgMatches) -> Self {
        let mut target = Self { host: String::new(), port: 0, token: None, json: false };
        target.take(matches, |_| true);
        let mut level = matches;
        while let Some((name, below)) = level.subcommand() {
            if WITHOUT_SERVER.contains(&name) {
                break;
            }
            if ON_FILES.contains(&name) {
                target.json |= asks_for_json(below);
                break;
            }
            target.take(below, |source| source == ValueSource::CommandLine);
            level = below;
        }
        target
    }

    fn take(&mut self, matches: &ArgMatches, counts: impl Fn(ValueSource) -> bool) {
        let given = |name: &str| matches.value_source(name).is_some_and(&counts);
        if given(HOST) {
            self.host = matches.get_one(HOST).cloned().unwrap_or_default();
        }
        if given(PORT) {
            self.port = matches.get_one(PORT).copied().unwrap_or_default();
        }
        if given(TOKEN) {
            let token: Option<&String> = matches.get_one(TOKEN);
            self.token = token.filter(|token| !token.is_empty()).cloned();
        }
        self.json |= matches.get_flag(JSON);
    }
}

/// Host and port as people write them.
pub fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn arguments() -> [Arg; 4] {
    let option = |name: &'static str, long: &'static str, value: &'static str| {
        Arg::new(name).long(long).value_name(value).help_heading("Server")
    };
    [
        option(HOST, "host", "HOST").help("Name or address of the server"),
        option(PORT, "port", "PORT").value_parser(value_parser!(u16)).help("Its TCP_PORT"),
        option(TOKEN, "token", "TOKEN").help("One of its AUTH_TOKENS"),
        option(JSON, "json", "JSON")
            .action(ArgAction::SetTrue)
            .help("Print the server's raw answer as JSON"),
    ]
}

/// Gives the options to the program, with their environment variables, and to every command.
pub fn add_to(program: Command) -> Command {
    let [host, port, token, json] = arguments();
    let program = program.args([
        host.env("CORQ_HOST").default_value("127.0.0.1"),
        port.env("CORQ_PORT").default_value("6789"),
        token.env("CORQ_TOKEN").hide_env_values(true),
        json,
    ]);
    add_below(program.arg_required_else_help(false))
}

/// Whether JSON was asked for, at whatever depth.
fn asks_for_json(matches: &ArgMatches) -> bool {
    let below = matches.subcommand().is_some_and(|(_, below)| asks_for_json(below));
    below || matches.get_flag(JSON)
}

fn add_json(command: Command) -> Command {
    let [.., json] = arguments();
    let json = json.help("Print the answer as JSON").help_heading(None);
    command.arg(json).arg_required_else_help(false).mut_subcommands(add_json)
}

fn add_below(command: Command) -> Command {
    command.mut_subcommands(|below| {
        if ON_FILES.contains(&below.get_name()) {
            return add_json(below);
        }
        if WITHOUT_SERVER.contains(&below.get_name()) {
            return below;
        }
        // Without a command, one line says which there are; the page is behind --help.
        add_below(below.args(arguments()).arg_required_else_help(false))
    })
}

/// Where the first word stands that is neither one of these options nor the value of one.
pub fn first_word(words: &[OsString]) -> usize {
    let mut at = 0;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        at += match word {
            "--json" => 1,
            "--host" | "--port" | "--token" => 2,
            _ if ["--host=", "--port=", "--token="].iter().any(|it| word.starts_with(it)) => 1,
            _ => break,
        };
    }
    at.min(words.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_found_behind_the_options() {
        let at = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            first_word(&words)
        };
        assert_eq!(at("stats"), 0);
        assert_eq!(at("--json --host push --port=3 queue list"), 4);
        assert_eq!(at("--memory"), 0);
        assert_eq!(at("--host"), 1);
        assert_eq!(at(""), 0);
    }

    #[test]
    fn addresses_of_six_bytes_groups_are_bracketed() {
        assert_eq!(address("::1", 6789), "[::1]:6789");
        assert_eq!(address("localhost", 1), "localhost:1");
    }
}
