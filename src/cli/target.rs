//! Where the server is, how it is spoken to and how its answers are shown: `--host`, `--port`, `--socket`, `--http-port`,
//! `--http-socket`, `--tls` and its files, `--token` and `--json`, which every command takes, before its name or behind it.

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use corq_io::client_connect::{Place, Wire};
use corq_io::tls::{ClientFiles, client_config};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Once;
use std::time::Duration;

use super::failure::{Failure, complain, warn};
use crate::config::{Environment, is_off, is_service_link};

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

/// The variables that stand for options.
const VARIABLES: [(&str, &str); 10] = [
    (HOST, "CORQ_HOST"),
    (PORT, "CORQ_PORT"),
    (TOKEN, "CORQ_TOKEN"),
    (SOCKET, "CORQ_SOCKET"),
    (HTTP_PORT, "CORQ_HTTP_PORT"),
    (HTTP_SOCKET, "CORQ_HTTP_SOCKET"),
    (TLS, "CORQ_TLS"),
    (TLS_CA, "CORQ_TLS_CA"),
    (TLS_CERT, "CORQ_TLS_CERT"),
    (TLS_KEY, "CORQ_TLS_KEY"),
];

/// Each path of a socket, and the options that say the same of a server elsewhere.
const INSTEAD: [(&str, [&str; 2]); 2] = [(SOCKET, [HOST, PORT]), (HTTP_SOCKET, [HOST, HTTP_PORT])];

/// Where a server is that nothing names.
const HOST_DEFAULT: &str = "127.0.0.1";
const PORT_DEFAULT: &str = "6789";
const HTTP_PORT_DEFAULT: &str = "6790";

/// Commands that speak to no server, or are one.
const WITHOUT_SERVER: &[&str] = &["serve", "completions", "man"];
/// Commands that speak to no server either, and have answers of their own.
const ON_FILES: &[&str] = &["config", "log", "restore", "size"];

/// Whether it was said what is wrong with the modes of files.
static TOLD: Once = Once::new();
/// Whether it was said that the variable of a port announces a service.
static LINK_TOLD: Once = Once::new();

/// How long a server may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The server that a command is for.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Name or address of the server.
    pub host: String,
    /// Port for frames.
    pub port: u16,
    /// Socket for frames, which is taken instead of the port.
    pub socket: Option<PathBuf>,
    /// Port for HTTP.
    pub http_port: u16,
    /// Socket for HTTP, which is taken instead of the port.
    pub http_socket: Option<PathBuf>,
    /// Whether the server's ports speak TLS.
    pub tls: bool,
    /// File with the authorities that may vouch for the server.
    pub tls_ca: Option<PathBuf>,
    /// The certificate of the client.
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    /// Token shown to the server.
    pub token: Option<String>,
    /// Whether the raw answer is wanted.
    pub json: bool,
    /// Doubts about the variables of the ports.
    pub port_doubt: Option<Doubt>,
    pub http_port_doubt: Option<Doubt>,
}

/// A variable of a port that gives no port. A command that does not connect to that port never says so.
#[derive(Clone, Debug)]
pub enum Doubt {
    /// Kubernetes has set the variable for a service: the default counts.
    Link(String),
    /// Nothing counts until the variable is set right.
    Wrong(String),
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

    /// The `Host` header of a request over HTTP.
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
        self.tell_doubts(place)?;
        let secure = self.tls && matches!(place, Place::Port(..));
        let config = secure.then(|| self.client_config()).transpose()?;
        Wire::open(place, config.as_ref(), CONNECT_PATIENCE, silence).map_err(|error| {
            let advice = tls_advice(&error).filter(|_| secure);
            let advice = advice.map(|advice| format!("{place}: {error}: {advice}"));
            Failure::Failed(advice.unwrap_or_else(|| lost(&error)))
        })
    }

    /// Says what is wrong with the variable of the port that is about to be connected to.
    fn tell_doubts(&self, place: &Place) -> Result<(), Failure> {
        let doubts = [(self.place(), &self.port_doubt), (self.http_place(), &self.http_port_doubt)];
        for (doubtful, doubt) in doubts {
            let counts = doubtful == *place && matches!(place, Place::Port(..));
            match doubt.as_ref().filter(|_| counts) {
                None => {}
                Some(Doubt::Link(text)) => LINK_TOLD.call_once(|| warn(text)),
                Some(Doubt::Wrong(text)) => return Err(Failure::Usage(text.clone())),
            }
        }
        Ok(())
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

    /// The server of a command line. An option behind the command comes before the same one in front of it, and options come
    /// before variables.
    pub fn of(matches: &ArgMatches, environment: &Environment) -> Result<Self, String> {
        let (levels, json) = levels(matches);
        let given = Given { levels, environment };
        given.refuse_two_places()?;
        let (port, port_doubt) = given.port(PORT, PORT_DEFAULT);
        let (http_port, http_port_doubt) = given.port(HTTP_PORT, HTTP_PORT_DEFAULT);
        let path = |id: &str| given.value(id).map(PathBuf::from);
        let files = [TLS_CA, TLS_CERT, TLS_KEY].map(path);
        let tls = given.has_flag(TLS) || given.variable(TLS).is_some_and(|text| !is_off(text));
        let [tls_ca, tls_cert, tls_key] = files;
        // Nobody names those files for a server without.
        let tls = tls || tls_ca.is_some() || tls_cert.is_some() || tls_key.is_some();
        let text = |value: OsString| value.to_string_lossy().into_owned();
        Ok(Self {
            host: given.host().map_or_else(|| HOST_DEFAULT.to_owned(), text),
            port,
            socket: path(SOCKET),
            http_port,
            http_socket: path(HTTP_SOCKET),
            tls,
            tls_ca,
            tls_cert,
            tls_key,
            token: given.value(TOKEN).map(text).filter(|token| !token.is_empty()),
            json: json || given.has_flag(JSON),
            port_doubt,
            http_port_doubt,
        })
    }
}

/// The options and variables that name the server.
struct Given<'a> {
    /// The options, of the program and of each command below.
    levels: Vec<&'a ArgMatches>,
    environment: &'a Environment,
}

impl Given<'_> {
    /// The value that an option was given by hand.
    fn typed(&self, id: &str) -> Option<&OsStr> {
        let level = self.levels.iter().rev().find(|level| is_typed(level, id))?;
        level.get_raw(id)?.next_back()
    }

    /// The variable of an option.
    fn variable(&self, id: &str) -> Option<&OsStr> {
        let (_, name) = VARIABLES.iter().find(|(known, _)| *known == id)?;
        self.environment.get(name)
    }

    fn has_flag(&self, id: &str) -> bool {
        self.levels.iter().any(|level| level.get_flag(id))
    }

    /// An option, else its variable, unless other options say the same thing by hand.
    fn value(&self, id: &str) -> Option<OsString> {
        let others = INSTEAD.iter().find(|(socket, _)| *socket == id);
        let is_overruled = others
            .is_some_and(|(_, others)| others.iter().any(|other| self.typed(other).is_some()));
        let variable = || self.variable(id).filter(|_| !is_overruled);
        self.typed(id).or_else(variable).map(OsStr::to_owned)
    }

    /// The host. A socket that was given by hand is on this machine, whatever variable names another.
    fn host(&self) -> Option<OsString> {
        let is_here = self.typed(HOST).is_none() && self.typed(SOCKET).is_some();
        if is_here { None } else { self.value(HOST) }
    }

    /// A port, and what is wrong with its variable if that would count.
    fn port(&self, id: &str, default: &str) -> (u16, Option<Doubt>) {
        let default = || default.parse().unwrap_or_default();
        let Some(text) = self.value(id) else { return (default(), None) };
        if let Some(port) = text.to_str().and_then(|text| text.parse().ok()) {
            return (port, None);
        }
        let variable =
            VARIABLES.iter().find(|(known, _)| *known == id).map_or("", |(_, name)| name);
        let shown = text.to_string_lossy();
        let option = long(id);
        let doubt = if is_service_link(&text) {
            Doubt::Link(format!(
                "warning: {variable}={shown} is how Kubernetes announces a service, and is passed over: say where the \
                 server is with --host and --{option}, or set enableServiceLinks: false for the pod"
            ))
        } else {
            Doubt::Wrong(format!(
                "{variable}={shown}: it must be between 0 and 65535, as --{option}"
            ))
        };
        (default(), Some(doubt))
    }

    /// Options by hand may name one place only.
    fn refuse_two_places(&self) -> Result<(), String> {
        for (socket, others) in INSTEAD {
            let other = others.into_iter().find(|other| self.typed(other).is_some());
            if let (Some(_), Some(other)) = (self.typed(socket), other) {
                let (socket, other) = (long(socket), long(other));
                return Err(format!("--{socket} and --{other} name two places: give one of them"));
            }
        }
        Ok(())
    }
}

fn is_typed(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// The option as it is typed, without dashes.
fn long(id: &str) -> &str {
    id.trim_start_matches("server-")
}

/// The levels of a command line that have these options, and whether JSON is asked for below them.
fn levels(matches: &ArgMatches) -> (Vec<&ArgMatches>, bool) {
    let mut levels = vec![matches];
    let mut level = matches;
    while let Some((name, below)) = level.subcommand() {
        if WITHOUT_SERVER.contains(&name) {
            break;
        }
        if ON_FILES.contains(&name) {
            return (levels, asks_for_json(below));
        }
        levels.push(below);
        level = below;
    }
    (levels, false)
}

/// Advice on an error of TLS; none for other errors.
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
    let options = arguments().map(|arg| {
        let variable = VARIABLES.iter().find(|(id, _)| arg.get_id() == *id);
        match variable {
            Some((_, name)) => arg.env(*name),
            None => arg,
        }
    });
    let program = program
        .args(options)
        .mut_arg(HOST, |arg| arg.default_value(HOST_DEFAULT))
        .mut_arg(PORT, |arg| arg.default_value(PORT_DEFAULT))
        .mut_arg(HTTP_PORT, |arg| arg.default_value(HTTP_PORT_DEFAULT))
        .mut_arg(TOKEN, |arg| arg.hide_env_values(true));
    add_below(program.arg_required_else_help(false))
}

/// A command without its variables. They are read where they are needed, so that one which is wrong, or another program's, is in
/// the way of nothing else.
pub fn without_variables(command: Command) -> Command {
    command.mut_args(|arg| arg.env(Resettable::Reset)).mut_subcommands(without_variables)
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
#[allow(clippy::unwrap_used)]
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

    /// The places for frames and for HTTP that a line names, with these variables.
    fn places(line: &str, variables: &[(&str, &str)]) -> Result<String, String> {
        let program = add_to(Command::new("corq").subcommand(Command::new("ping")));
        let words = ["corq"].into_iter().chain(line.split_whitespace());
        let matches = without_variables(program).try_get_matches_from(words).unwrap();
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let target = Target::of(&matches, &variables.collect())?;
        Ok(format!("{} {}", target.place(), target.http_place()))
    }

    #[test]
    fn an_option_overrules_the_variables_that_say_the_same_by_another_name() {
        let sockets = [("CORQ_SOCKET", "/a"), ("CORQ_HTTP_SOCKET", "/b")];
        for (line, named) in [
            ("ping", "/a /b"),
            ("ping --host h", "h:6789 h:6790"),
            ("--host h ping", "h:6789 h:6790"),
            ("ping --port 7", "127.0.0.1:7 /b"),
            ("ping --http-port 7", "/a 127.0.0.1:7"),
            ("ping --socket /c", "/c /b"),
            ("ping --http-socket /c", "/a /c"),
        ] {
            assert_eq!(places(line, &sockets).unwrap(), named, "{line}");
        }
        let elsewhere = [("CORQ_HOST", "far"), ("CORQ_PORT", "7"), ("CORQ_HTTP_PORT", "8")];
        assert_eq!(places("ping", &elsewhere).unwrap(), "far:7 far:8");
        assert_eq!(places("ping --host h", &elsewhere).unwrap(), "h:7 h:8");
        assert_eq!(places("ping --socket /c", &elsewhere).unwrap(), "/c 127.0.0.1:8");
        let nothing =
            [("CORQ_SOCKET", ""), ("CORQ_HOST", " "), ("CORQ_PORT", ""), ("CORQ_TLS", "")];
        assert_eq!(places("ping", &nothing).unwrap(), "127.0.0.1:6789 127.0.0.1:6790");
        assert_eq!(places("ping", &[("CORQ_PORT", "7 ")]).unwrap(), "127.0.0.1:7 127.0.0.1:6790");
    }

    #[test]
    fn two_places_by_hand_are_refused() {
        for (line, names) in [
            ("ping --socket /a --port 7", "--socket and --port"),
            ("--socket /a ping --host h", "--socket and --host"),
            ("--http-port 7 ping --http-socket /a", "--http-socket and --http-port"),
            ("ping --http-socket /a --host h", "--http-socket and --host"),
        ] {
            assert!(places(line, &[]).unwrap_err().starts_with(names), "{line}");
        }
        assert_eq!(places("ping --socket /a --http-port 7", &[]).unwrap(), "/a 127.0.0.1:7");
    }
}
