//! Where the server is: the options and environment variables that `corq` has, too, with the same rules.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{FalseyValueParser, Resettable};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};

/// The server, and how to speak to it.
#[derive(Args, Clone)]
#[command(next_help_heading = "Server")]
pub(crate) struct Target {
    /// Name or address of the server.
    #[arg(long, env = "CORQ_HOST", default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// TCP port of the server.
    #[arg(long, env = "CORQ_PORT", default_value_t = 6789)]
    pub(crate) port: u16,
    /// Unix socket for frames, instead of host and port.
    #[arg(long, env = "CORQ_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// HTTP port of the server, for --listeners.
    #[arg(long, env = "CORQ_HTTP_PORT", default_value_t = 6790)]
    pub(crate) http_port: u16,
    /// Unix socket for HTTP, instead of host and HTTP port.
    #[arg(long, env = "CORQ_HTTP_SOCKET", value_name = "PATH")]
    pub(crate) http_socket: Option<PathBuf>,
    /// Speak TLS; the file options below say so, too.
    #[arg(long, env = "CORQ_TLS", value_parser = FalseyValueParser::new())]
    pub(crate) tls: bool,
    /// Authorities to believe, as PEM, instead of those of the system.
    #[arg(long, env = "CORQ_TLS_CA", value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Certificate to show, as PEM.
    #[arg(long, env = "CORQ_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Key of that certificate, as PEM.
    #[arg(long, env = "CORQ_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Token, where the server asks for one.
    #[arg(long, env = "CORQ_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Process of the server, for its CPU time and memory; found by itself on this machine.
    #[arg(long)]
    pub(crate) pid: Option<u32>,
}

impl Target {
    /// The command line overrules the environment: a host or port given there is not passed over for `CORQ_SOCKET`.
    pub(crate) fn settle(&mut self, command: &mut Command, said: &ArgMatches) {
        let given = |id: &str| said.value_source(id) == Some(ValueSource::CommandLine);
        let pairs = [
            ("socket", &mut self.socket, "port", "CORQ_PORT"),
            ("http_socket", &mut self.http_socket, "http_port", "CORQ_HTTP_PORT"),
        ];
        for (socket, path, port, variable) in pairs {
            let by_port = given(port) || given("host");
            if by_port && given(socket) && (given(port) || socket == "socket") {
                let (socket, port) = (socket.replace('_', "-"), port.replace('_', "-"));
                let text = format!("--{socket} and --host or --{port} are two servers: give one");
                command.error(ErrorKind::ArgumentConflict, text).exit();
            }
            if by_port && !given(socket) {
                *path = None;
            }
            let link = std::env::var_os(variable).is_some_and(|value| is_service_link(&value));
            let listeners = said.try_get_one::<u32>("listeners");
            let needed = socket == "socket" || matches!(listeners, Ok(Some(1..)));
            if link && needed && path.is_none() && !given(port) {
                eprintln!(
                    "corq-bench: warning: {variable} is how Kubernetes announces a service, and is passed over: give \
                     --{}, or set enableServiceLinks: false for the pod",
                    port.replace('_', "-")
                );
            }
        }
    }

    /// As people write it.
    pub(crate) fn address(&self) -> String {
        match &self.socket {
            Some(path) => path.display().to_string(),
            None if self.host.contains(':') => format!("[{}]:{}", self.host, self.port),
            None => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Whether Kubernetes has set a variable, for a service of the name `corq`.
fn is_service_link(value: &OsStr) -> bool {
    let value = value.to_string_lossy();
    ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme))
}

/// Takes the variables from a command that say nothing: those set to nothing, and ports that Kubernetes has set.
pub(crate) fn without_void_variables(command: Command) -> Command {
    let says_nothing = |value: OsString| value.to_string_lossy().trim().is_empty();
    let is_void = |name: &OsStr| {
        let port = name == "CORQ_PORT" || name == "CORQ_HTTP_PORT";
        std::env::var_os(name).is_some_and(|it| port && is_service_link(&it) || says_nothing(it))
    };
    command.mut_args(|arg| {
        if arg.get_env().is_some_and(is_void) { arg.env(Resettable::Reset) } else { arg }
    })
}
