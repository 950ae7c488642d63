//! The corq program.

use corq::cli::{self, Asked};
use corq::config::{Config, Layers};
use corq::logging;
use std::process::ExitCode;

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    match cli::parse(&std::env::args_os().collect::<Vec<_>>()) {
        Asked::Server(config, layers) => serve(*config, layers),
        Asked::Tool(tool) => tool.run(),
        Asked::Done(code) => code,
    }
}

fn serve(config: Config, layers: Layers) -> ExitCode {
    logging::start(&config);
    let format = config.log_format;
    match corq::server::serve(config, layers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            logging::tell(format, &error.to_string());
            ExitCode::FAILURE
        }
    }
}
