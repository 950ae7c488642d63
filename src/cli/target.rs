//! Where the server is, how it is spoken to and how its answers are shown: `--host`, `--port`, `--socket`, `--http-port`,
//! `--http-socket`, `--tls` and its files, `--token` and `--json`, which every command takes, before its name or behind it.

use clap::builder::{FalseyValueParser, Resettable};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use corq_io::client_connect::{Place, Wire};
use corq_io::tls::{ClientFiles, client_config};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Once;
use std::time::Duration;

use super::failure::{Failure, complain, warn};
use crate::config::is_service_link;

const HOST: &str = "server-host";
const PORT: &str = "server-port";
const TOKEN: &str = "server-token";
const SOCKET: &str = "server-socket";
const HTTP_PORT: &str = "server-http-port";
const HTTP_SOCKET: &str = "server-http-socket";
const TLS: &str = "server-tls";
const TLS_CA: &str = "server-tls-ca";
const TLS_CERT: &str = "server-tls-cert";
const TLS_KEY: &str = "server-tls-key";
const JSON: &str = "json";

/// Commands that speak to no server, or are one.
const WITHOUT_SERVER: &[&str] = &["serve", "completions", "man"];
/// Commands that speak to no server either, and have answers of their own.
const ON_FILES: &[&str] = &["config", "log", "restore", "size"];

/// Whether it was said what is wrong with the modes of files.
static TOLD: Once = Once::new();

/// How long a server may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The server that a command is for.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Its name or address.
    pub host: String,
    /// Its port for frames.
    pub port: u16,
    /// Its socket for frames, which is taken instead of the port.
    pub socket: Option<PathBuf>,
    /// Its port for HTTP.
    pub http_port: u16,
    /// Its socket for HTTP, which is taken instead of that.
    pub http_socket: Option<PathBuf>,
    /// Whether its ports speak TLS.
    pub tls: bool,
    /// Whom to believe there, and what to show.
    pub tls_ca: Option<PathBuf>,
    /// The certificate of the client.
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    /// One of its tokens.
    pub token: Option<String>,
    /// Whether the raw answer is wanted.
    pub json: bool,
}

impl Target {
    /// Where frames are spoken.
    pub fn place(&self) -> Place {
        match &self.socket {
            Some(path) => Place::Path(path.clone()),
            None => Place::Port(self.host.clone(), self.port),
        }
    }

    /// Where HTTP is spoken.
    pub fn http_place(&self) -> Place {
        match &self.http_socket {
            Some(path) => Place::Path(path.clone()),
            None => Place::Port(self.host.clone(), self.http_port),
        }
    }

    /// What a request over HTTP says as `Host`.
    pub fn http_host(&self) -> String {
        match self.http_place() {
            // A path is no host.
            Place::Path(_) => "localhost".to_owned(),
            place @ Place::Port(..) => place.to_string(),
        }
    }

    /// As people write it.
    pub fn address(&self) -> String {
        self.place().to_string()
    }

    /// Connects to a place of the server. What is wrong with files is an error of its own; `lost` says what it
    /// means that the place cannot be reached.
    pub fn dial(
        &self,
        place: &Place,
        silence: Duration,
        lost: impl FnOnce(&std::io::Error) -> String,
    ) -> Result<Wire, Failure> {
        let secure = self.tls && matches!(place, Place::Port(..));
        let config = secure.then(|| self.client_config()).transpose()?;
        Wire::open(place, config.as_ref(), CONNECT_PATIENCE, silence).map_err(|error| {
            let advice = tls_advice(&error).filter(|_| secure);
            let advice = advice.map(|advice| format!("{place}: {error}: {advice}"));
            Failure::Failed(advice.unwrap_or_else(|| lost(&error)))
        })
    }

    fn client_config(
        &self,
    ) -> Result<std::sync::Arc<corq_io::client_connect::ClientConfig>, Failure> {
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            (Some(_), None) => {
                return Err(Failure::Usage("--tls-cert wants its key: --tls-key".to_owned()));
            }
            (None, Some(_)) => {
                return Err(Failure::Usage(
                    "--tls-key wants its certificate: --tls-cert".to_owned(),
                ));
            }
        };
        let files = ClientFiles { authorities: self.tls_ca.clone(), identity };
        // A command may connect often, and one of them draws on the terminal.
        TOLD.call_once(|| {
            files.exposures().iter().for_each(|line| complain(&format!("warning: {line}")));
        });
        client_config(&files).map_err(Failure::Failed)
    }

    /// What was said before the command or behind it; the latter counts where both were.
    pub fn of(matches: &ArgMatches) -> Self {
        let mut target = Self::default();
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
        if given(HTTP_PORT) {
            self.http_port = matches.get_one(HTTP_PORT).copied().unwrap_or_default();
        }
        if given(TOKEN) {
            let token: Option<&String> = matches.get_one(TOKEN);
            self.token = token.filter(|token| !token.is_empty()).cloned();
        }
        let path = |place: &mut Option<PathBuf>, name: &str| {
            if given(name) {
                *place = matches.get_one(name).cloned();
            }
        };
        path(&mut self.socket, SOCKET);
        path(&mut self.http_socket, HTTP_SOCKET);
        path(&mut self.tls_ca, TLS_CA);
        path(&mut self.tls_cert, TLS_CERT);
        path(&mut self.tls_key, TLS_KEY);
        // Nobody names those files for a server without.
        let files = [&self.tls_ca, &self.tls_cert, &self.tls_key];
        self.tls |= matches.get_flag(TLS) || files.iter().any(|file| file.is_some());
        self.json |= matches.get_flag(JSON);
    }
}

/// What to do about an error of TLS, if that is what it is.
pub fn tls_advice(error: &std::io::Error) -> Option<&'static str> {
    let text = error.get_ref()?.to_string();
    Some(if text.contains("CaUsedAsEndEntity") {
        "its certificate says that it is an authority: give the server one that does not"
    } else if text.contains("UnknownIssuer") || text.contains("BadSignature") {
        "name the file with its authority by --tls-ca (CORQ_TLS_CA)"
    } else if text.contains("not valid for name") || text.contains("NotValidForName") {
        "its certificate is for other names: see --host"
    } else if text.contains("xpired") {
        "its certificate has expired"
    } else if text.contains("CertificateRequired") || text.contains("certificate required") {
        "it wants a certificate of this client: --tls-cert and --tls-key"
    } else if text.contains("corrupt message") || text.contains("InvalidContentType") {
        "it does not speak TLS there: leave --tls out"
    } else {
        return None;
    })
}

fn arguments() -> [Arg; 11] {
    let option = |name: &'static str, long: &'static str, value: &'static str| {
        Arg::new(name).long(long).value_name(value).help_heading("Server")
    };
    [
        option(HOST, "host", "HOST").help("Name or address of the server"),
        option(PORT, "port", "PORT").value_parser(value_parser!(u16)).help("Its TCP_PORT"),
        option(SOCKET, "socket", "PATH")
            .value_parser(value_parser!(PathBuf))
            .help("Its TCP_SOCKET_PATH, instead of host and port"),
        option(HTTP_PORT, "http-port", "PORT")
            .value_parser(value_parser!(u16))
            .help("Its HTTP_PORT, for health, events and queue jobs --follow"),
        option(HTTP_SOCKET, "http-socket", "PATH")
            .value_parser(value_parser!(PathBuf))
            .help("Its HTTP_SOCKET_PATH, instead of that"),
        option(TLS, "tls", "TLS")
            .action(ArgAction::SetTrue)
            .value_parser(FalseyValueParser::new())
            .help("Use TLS; the options below imply it"),
        option(TLS_CA, "tls-ca", "FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Certificate authorities, as PEM, instead of those of the system"),
        option(TLS_CERT, "tls-cert", "FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Client certificate, as PEM, for a server that requires one"),
        option(TLS_KEY, "tls-key", "FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Private key of the client certificate, as PEM"),
        option(TOKEN, "token", "TOKEN").help("One of its AUTH_TOKENS"),
        option(JSON, "json", "JSON")
            .action(ArgAction::SetTrue)
            .help("Print the server's raw reply as JSON"),
    ]
}

/// Gives the options to the program, with their environment variables, and to every command.
pub fn add_to(program: Command) -> Command {
    let [host, port, socket, http_port, http_socket, tls, ca, certificate, key, token, json] =
        arguments();
    let program = program.args([
        host.env("CORQ_HOST").default_value("127.0.0.1"),
        port.env("CORQ_PORT").default_value("6789"),
        socket.env("CORQ_SOCKET"),
        http_port.env("CORQ_HTTP_PORT").default_value("6790"),
        http_socket.env("CORQ_HTTP_SOCKET"),
        tls.env("CORQ_TLS"),
        ca.env("CORQ_TLS_CA"),
        certificate.env("CORQ_TLS_CERT"),
        key.env("CORQ_TLS_KEY"),
        token.env("CORQ_TOKEN").hide_env_values(true),
        json,
    ]);
    add_below(program.arg_required_else_help(false))
}

/// Variables of ports that Kubernetes has set for a service, and not an operator: those are passed over.
pub fn without_service_links(program: Command) -> Command {
    let is_link = |name: &&str| std::env::var_os(name).is_some_and(|it| is_service_link(&it));
    let links: Vec<&str> = ["CORQ_PORT", "CORQ_HTTP_PORT"].into_iter().filter(is_link).collect();
    for link in &links {
        warn(&format!(
            "warning: {link} is how Kubernetes announces a service, and is passed over: set enableServiceLinks: false for \
             the pod"
        ));
    }
    if links.is_empty() { program } else { without(program, &links) }
}

fn without(command: Command, variables: &[&str]) -> Command {
    let is_one = |arg: &Arg| arg.get_env().is_some_and(|it| variables.iter().any(|one| it == *one));
    let command =
        command.mut_args(|arg| if is_one(&arg) { arg.env(Resettable::Reset) } else { arg });
    command.mut_subcommands(|below| without(below, variables))
}

/// Whether JSON was asked for, at whatever depth.
fn asks_for_json(matches: &ArgMatches) -> bool {
    let below = matches.subcommand().is_some_and(|(_, below)| asks_for_json(below));
    below || matches.get_flag(JSON)
}

fn add_json(command: Command) -> Command {
    let [.., json] = arguments();
    let json = json.help("Print the reply as JSON").help_heading(None);
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

/// The options that take a value.
const WITH_VALUE: &[&str] = &[
    "--host",
    "--port",
    "--socket",
    "--http-port",
    "--http-socket",
    "--tls-ca",
    "--tls-cert",
    "--tls-key",
    "--token",
];

fn is_given(word: &str, option: &str) -> bool {
    word.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))
}

/// Where the first word stands that is neither one of these options nor the value of one.
pub fn first_word(words: &[OsString]) -> usize {
    let mut at = 0;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        at += match word {
            "--json" | "--tls" => 1,
            _ if WITH_VALUE.contains(&word) => 2,
            _ if WITH_VALUE.iter().any(|it| is_given(word, it)) => 1,
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
        assert_eq!(at("--tls --tls-ca a --socket=b --tls-cert-file c"), 4);
        assert_eq!(at("--http-port 1 --http-socket=x events"), 3);
        assert_eq!(at("--memory"), 0);
        assert_eq!(at("--host"), 1);
        assert_eq!(at(""), 0);
    }

    #[test]
    fn addresses_are_written_as_people_do() {
        let at = |host: &str, port| Target { host: host.into(), port, ..Target::default() };
        assert_eq!(at("::1", 6789).address(), "[::1]:6789");
        assert_eq!(at("localhost", 1).address(), "localhost:1");
        let path = Target { socket: Some("/run/corq".into()), ..at("localhost", 1) };
        assert_eq!(path.address(), "/run/corq");
    }
}
