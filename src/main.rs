//! The corq program.

use corq::cli::{self, Asked};
use corq::config::{Config, LogFormat, LogLevel};
use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().collect()) {
        Asked::Server(config) => serve(*config),
        Asked::Tool(tool) => tool.run(),
        Asked::Done(code) => code,
    }
}

fn serve(config: Config) -> ExitCode {
    start_logging(&config);
    match corq::server::serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corq: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start_logging(config: &Config) {
    let level = match config.log_level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => {
            lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).init();
        }
        LogFormat::Json => lines.json().init(),
    }
}
