//! The corq program.

use corq::cli::{self, Asked};
use corq::config::Config;
use corq::logging;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().collect()) {
        Asked::Server(config) => serve(*config),
        Asked::Tool(tool) => tool.run(),
        Asked::Done(code) => code,
    }
}

fn serve(config: Config) -> ExitCode {
    logging::start(&config);
    match corq::server::serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            logging::complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}
