//! The command line: the server's start, and every command an operator has for a server that runs.
//!
//! One file per noun. `target` says which server is meant, `client` speaks to it, `request` writes
//! and `value` reads what goes over the wire, `output` shows it, `failure` is how it can end. No
//! bound of a field is known here: what is wrong is refused by the server, in its words.

mod backup;
mod bulk;
mod client;
mod completions;
mod context;
mod cron;
mod dlq;
mod doctor;
mod events;
mod failure;
mod follow;
mod get;
mod group;
mod health;
mod input;
mod job;
mod limits;
mod log;
mod output;
mod progress;
mod prometheus;
mod push;
mod queue;
mod request;
mod restore;
mod rules;
mod show;
mod stats;
mod stream;
mod target;
mod top;
mod value;
mod webhook;
mod words;
mod work;
mod worker;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use corq_io::umask;

use self::context::Context;
use self::failure::Failure;
use self::output::Output;
use self::target::Target;
use crate::config::Config;

/// A job queue server for Linux: thread-per-core, shared-nothing, every job in a write-ahead log.
///
/// Without a command it runs the server, as `corq serve` does.
#[derive(Parser, Debug)]
#[command(
    name = "corq",
    version,
    subcommand_required = true,
    after_help = "Exit codes: 0; 1: the server refused, cannot be reached, or (health) is not healthy; 2: the command line is invalid."
)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

/// The server alone. It has a parser of its own, so that a start does not build the whole program, and
/// because its `--host` is where to listen, which is not where commands look for it.
#[derive(Parser, Debug)]
#[command(name = "corq", version, about = "Run the server; 'corq help' lists the other commands")]
struct Server {
    #[command(flatten)]
    config: Config,
}

#[derive(Args, Debug)]
struct Serve {
    #[command(flatten)]
    config: Config,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the server (also what happens without a command)
    Serve(Box<Serve>),
    /// Push a job to a queue, or many
    Push(Box<push::Push>),
    /// Pull jobs from a queue, each with the token that acknowledges it
    Pull(work::Pull),
    /// Complete a job
    Ack(work::Ack),
    /// Fail an attempt of a job
    Fail(work::Fail),
    /// Show a job, or change it
    #[command(subcommand)]
    Job(job::Job),
    /// Show queues, pause or empty them
    #[command(subcommand)]
    Queue(queue::Queue),
    /// Show groups of jobs, pause or limit them
    #[command(subcommand)]
    Group(group::Group),
    /// Show jobs in the dead-letter queue, retry or remove them
    #[command(subcommand)]
    Dlq(dlq::Dlq),
    /// Manage schedules that push jobs
    #[command(subcommand)]
    Cron(cron::Cron),
    /// Show registered workers
    #[command(subcommand)]
    Worker(worker::Worker),
    /// Manage webhooks, to which the server posts events
    #[command(subcommand)]
    Webhook(webhook::Webhook),
    /// Limit the jobs per second of a queue
    #[command(subcommand)]
    RateLimit(limits::Limit),
    /// Limit the active jobs of a queue
    #[command(subcommand)]
    Concurrency(limits::Limit),
    /// Show jobs by state, totals and rates
    Stats,
    /// Show totals, means and sizes; or all metrics in Prometheus format
    Metrics(stats::Metrics),
    /// Check whether the server can take jobs, and why not
    Health(health::Health),
    /// Check whether the server answers
    Ping,
    /// Check this machine and the server, and say what to change
    Doctor(doctor::Doctor),
    /// Show queues, rates, p99 and workers, live on the terminal
    Top(top::Top),
    /// Show events of jobs, live
    Events(events::Events),
    /// Copy the data of a running server on this machine
    Backup(backup::Backup),
    /// Check a backup and make a data directory of it
    Restore(restore::Restore),
    /// Inspect the log of a data directory, or repair it
    #[command(subcommand)]
    Log(log::Log),
    /// Print the completions of a shell
    Completions(completions::Completions),
    /// Print the manual page, or write those of all commands
    #[command(hide = true)]
    Man(completions::Man),
}

/// What the program was asked to do.
#[derive(Debug)]
pub enum Asked {
    /// To be the server.
    Server(Box<Config>),
    /// To speak to one.
    Tool(Box<Tool>),
    /// Nothing that is left to do; the code to exit with.
    Done(ExitCode),
}

/// A command with its surroundings.
#[derive(Debug)]
pub struct Tool {
    command: Command,
    target: Target,
}

/// Reads the command line. `words` begins with the program's name.
pub fn parse(words: Vec<OsString>) -> Asked {
    let read = match server_words(&words) {
        Some(words) => {
            Server::try_parse_from(words).map(|Server { config }| Asked::Server(Box::new(config)))
        }
        None => tool(words),
    };
    read.unwrap_or_else(|error| Asked::Done(usage(&error)))
}

/// The command line of the server, if that is what is asked for: `serve`, or flags without a command.
fn server_words(words: &[OsString]) -> Option<Vec<OsString>> {
    let behind = words.get(1..).unwrap_or_default();
    let first = target::first_word(behind);
    let word = behind.get(first).and_then(|word| word.to_str());
    match word {
        Some("serve") if first == 0 => {
            let name = OsString::from("corq serve");
            Some([name].into_iter().chain(behind[1..].iter().cloned()).collect())
        }
        Some("-h" | "--help" | "-V" | "--version") => None,
        Some(word) if !word.starts_with('-') => None,
        _ => Some(words.to_vec()),
    }
}

fn program() -> clap::Command {
    target::add_to(Program::command())
}

fn tool(words: Vec<OsString>) -> Result<Asked, clap::Error> {
    let matches = program().try_get_matches_from(words)?;
    let target = Target::of(&matches);
    let Program { command } = Program::from_arg_matches(&matches)?;
    if matches!(command, Command::Serve(_)) {
        let text = "options before 'serve' say where commands find a server: put those of the \
                    server behind it";
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, text));
    }
    Ok(Asked::Tool(Box::new(Tool { command, target })))
}

/// A wrong command line is one line that names what is wrong.
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
    Failure::Usage(said.join(" ").trim_start_matches("error: ").to_owned()).report()
}

impl Tool {
    /// Does it and gives the code to exit with.
    pub fn run(self) -> ExitCode {
        let mut context = Context { target: self.target, out: Output::new() };
        let outcome = run(&mut context, &self.command);
        // What was written is handed on also before an error is said.
        let outcome = outcome.and(context.out.flush().map_err(Failure::from));
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(),
        }
    }
}

fn run(context: &mut Context, command: &Command) -> Result<(), Failure> {
    if matches!(command, Command::Backup(_) | Command::Restore(_) | Command::Log(_)) {
        umask::keep_others_out();
    }
    match command {
        // Taken care of where it was parsed.
        Command::Serve(_) => Err(Failure::Usage("put 'serve' first".to_owned())),
        Command::Push(push) => push::run(context, push),
        Command::Pull(pull) => work::pull(context, pull),
        Command::Ack(ack) => work::ack(context, ack),
        Command::Fail(fail) => work::fail(context, fail),
        Command::Job(job) => job::run(context, job),
        Command::Queue(queue) => queue::run(context, queue),
        Command::Group(group) => group::run(context, group),
        Command::Dlq(dlq) => dlq::run(context, dlq),
        Command::Cron(cron) => cron::run(context, cron),
        Command::Worker(worker) => worker::run(context, worker),
        Command::Webhook(webhook) => webhook::run(context, webhook),
        Command::RateLimit(limit) => limits::rate(context, limit),
        Command::Concurrency(limit) => limits::concurrency(context, limit),
        Command::Stats => stats::stats(context),
        Command::Metrics(metrics) => stats::metrics(context, metrics),
        Command::Health(health) => health::run(context, health),
        Command::Ping => stats::ping(context),
        Command::Doctor(doctor) => doctor::run(context, doctor),
        Command::Top(top) => top::run(context, top),
        Command::Events(events) => events::run(context, events),
        Command::Backup(backup) => backup::run(context, backup),
        Command::Restore(restore) => restore::run(context, restore),
        Command::Log(log) => log::run(context, log),
        Command::Completions(shell) => completions::run(context, &mut program(), shell),
        Command::Man(man) => completions::man(context, program(), man),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn server(line: &str) -> bool {
        server_words(&words(line)).is_some()
    }

    #[test]
    fn the_description_of_the_command_line_is_sound() {
        program().debug_assert();
        Server::command().debug_assert();
    }

    /// The names of all commands below one, as they are typed.
    fn names(command: &clap::Command, before: &str, found: &mut Vec<String>) {
        let name = format!("{before}{}", command.get_name());
        let mut below = command.get_subcommands().filter(|it| !it.is_hide_set()).peekable();
        if below.peek().is_none() {
            found.push(name);
            return;
        }
        below.for_each(|it| names(it, &format!("{name} "), found));
    }

    #[test]
    fn the_page_has_a_row_for_every_command_and_for_no_other() {
        let page = include_str!("../../docs/cli.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `corq ")?.split('`').next());
        let rows: Vec<String> = rows.map(|name| format!("corq {name}")).collect();
        let mut found = Vec::new();
        names(&program(), "", &mut found);
        assert_eq!(rows, found);
    }

    #[test]
    fn without_a_command_it_is_the_server() {
        assert!(server("corq") && server("corq serve") && server("corq --memory"));
        assert!(server("corq --host 0.0.0.0 --memory") && server("corq serve --help"));
        assert!(!server("corq stats") && !server("corq --json --host x stats"));
        assert!(!server("corq --help") && !server("corq --host x serve"));
    }

    #[test]
    fn the_server_is_named_before_the_command_or_behind_it() {
        for line in [
            "corq --host h --port 7 --token t --json queue list",
            "corq queue list --host h --port 7 --token t --json",
            "corq --host other --port 7 queue --host h list --json --token t",
        ] {
            let Ok(Asked::Tool(tool)) = tool(words(line)) else { panic!("{line}") };
            let Target { host, port, token, json, .. } = tool.target;
            assert_eq!((host.as_str(), port, token.as_deref(), json), ("h", 7, Some("t"), true));
        }
    }
}
