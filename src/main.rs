//! The corq program.

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use corq::config::{Config, LogFormat, LogLevel};
use std::io::IsTerminal;
use std::process::ExitCode;

/// A job queue server for Linux: one executor per core, nothing shared, every job in a log.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server (also what happens without a command)
    Serve(Serve),
}

#[derive(Args)]
struct Serve {
    #[command(flatten)]
    config: Config,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let Some(Command::Serve(Serve { config })) = cli.command.or(Some(Command::Serve(cli.serve)))
    else {
        return ExitCode::from(2);
    };
    start_logging(&config);
    match corq::server::serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corq: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A wrong setting is one line that names it, its value and its bound.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Nothing is left to be done about a closed terminal.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let said: Vec<&str> = lines
        .take_while(|line| !line.starts_with("For more information") && !line.starts_with("Usage:"))
        .collect();
    eprintln!("corq: {}", said.join(" ").trim_start_matches("error: "));
    ExitCode::from(2)
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
