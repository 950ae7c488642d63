//! The command line: the server's start, and every command an operator has for a server that runs.
//!
//! One file per noun. `target` says which server is meant, `client` speaks to it, `request` writes
//! and `value` reads what goes over the wire, `output` shows it, `failure` is how it can end. No
//! bound of a field is known here: what is wrong is refused by the server, and `wording` says it by the options.
//!
//! | file | responsibility |
//! |---|---|
//! | `audit` | `audit`: who did what |
//! | `backup` | `backup` |
//! | `bulk` | `push --bulk` |
//! | `client` | the connection to a server |
//! | `complete` | names of queues for the completions of a shell |
//! | `completions` | `completions` and `man` |
//! | `config` | `config`: settings and where they come from |
//! | `context` | the server to ask, and the output to answer on |
//! | `cron` | `cron`: schedules |
//! | `demo` | `demo`: sample work |
//! | `dlq` | `dlq`: dead letters |
//! | `doctor` | `doctor`: checks of the machine and the server |
//! | `events` | `events` |
//! | `examples` | examples at the end of every help text |
//! | `export` | `export`: jobs, schedules and settings as lines of JSON |
//! | `failure` | how a command ends that does not succeed |
//! | `figures` | `history`, `heatmap`, `shards` |
//! | `fleet` | `fleet`: nodes that keep their logs in a database |
//! | `flow` | `flow`: a job and those below it |
//! | `follow` | `queue jobs --follow` |
//! | `get` | one GET of the HTTP port |
//! | `group` | `group` |
//! | `health` | `health` |
//! | `import` | `import`: jobs and schedules of other job queues |
//! | `input` | payloads, and the yes before what cannot be undone |
//! | `job` | `job` |
//! | `job_bulk` | `job bulk` |
//! | `job_options` | the options of a job that is pushed |
//! | `limits` | `rate-limit`, `concurrency` |
//! | `listing` | which jobs of a queue are listed |
//! | `log` | `log`: what a data directory holds |
//! | `output` | tables, pairs and lines |
//! | `paging` | lists that come page by page |
//! | `progress` | how far long work is |
//! | `prometheus` | reads the text of the metrics |
//! | `push` | `push` |
//! | `queue` | `queue` |
//! | `request` | requests as the command line writes them |
//! | `rest` | what is left out for want of a limit |
//! | `restore` | `restore` |
//! | `rules` | `dlq config`, `dlq stats`, `queue stalls` |
//! | `search` | `search` |
//! | `show` | jobs as people read them |
//! | `size` | `size`: which machine so many jobs need |
//! | `stats` | `stats`, `metrics`, `ping`, `whoami` |
//! | `stream` | server-sent events |
//! | `target` | where the server is, and how it is spoken to |
//! | `task` | `task`: actions on many jobs |
//! | `top` | `top` |
//! | `value` | a reply as it is read |
//! | `webhook` | `webhook` |
//! | `wording` | refusals by the names of options |
//! | `words` | times, durations and sizes |
//! | `work` | `pull`, `ack`, `fail` |
//! | `worker` | `worker` |

mod audit;
mod backup;
mod bulk;
mod client;
mod complete;
mod completions;
mod config;
mod context;
mod cron;
mod demo;
mod dlq;
mod doctor;
mod events;
mod examples;
mod export;
mod failure;
mod figures;
mod fleet;
mod flow;
mod follow;
mod get;
mod group;
mod health;
mod import;
mod input;
mod job;
mod job_bulk;
mod job_options;
mod limits;
mod listing;
mod log;
mod output;
mod paging;
mod progress;
mod prometheus;
mod push;
mod queue;
mod request;
mod rest;
mod restore;
mod rules;
mod search;
mod show;
mod size;
mod stats;
mod stream;
mod target;
mod task;
mod top;
mod value;
mod webhook;
mod wording;
mod words;
mod work;
mod worker;

use std::error::Error as _;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use corq_io::umask;

use self::context::Context;
use self::failure::Failure;
use self::output::Output;
use self::target::Target;
use self::wording::Wording;
use crate::config::{Config, Environment, Layers, LogFormat, Problem, free};
use crate::logging;

/// A job queue server for Linux: thread-per-core, shared-nothing, every job in a write-ahead log.
///
/// Without a command it runs the server, as `corq serve` does.
#[derive(Parser, Debug)]
#[command(
    name = "corq",
    version,
    subcommand_required = true,
    after_help = examples::PROGRAM
)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

/// The server alone. It has a parser of its own, so that a start does not build the whole program, and
/// because its `--host` is where to listen, which is not where commands look for it.
#[derive(Parser, Debug)]
#[command(
    name = "corq",
    version,
    about = "Run the server; 'corq help' lists the other commands",
    after_help = examples::SERVE
)]
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
    #[command(after_help = examples::SERVE)]
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
    /// Say why a job does not run, as 'job explain' does
    #[command(after_help = "Examples:\n  corq explain order-17")]
    Explain(job::Id),
    /// Show a job and those below it as a tree
    Flow(flow::Flow),
    /// Find jobs by what is in their payloads
    Search(Box<search::Search>),
    /// Show queues, pause or empty them
    #[command(subcommand)]
    Queue(queue::Queue),
    /// Show groups of jobs, pause or limit them
    #[command(subcommand)]
    Group(group::Group),
    /// Show jobs in the dead-letter queue, retry or remove them
    #[command(subcommand)]
    Dlq(dlq::Dlq),
    /// Show actions on many jobs, or stop them
    #[command(subcommand)]
    Task(task::Task),
    /// Manage schedules that push jobs
    #[command(subcommand)]
    Cron(cron::Cron),
    /// Show registered workers
    #[command(subcommand)]
    Worker(worker::Worker),
    /// Show registered workers, as 'worker list' does
    Workers(worker::Workers),
    /// Manage webhooks, to which the server posts events
    #[command(subcommand)]
    Webhook(webhook::Webhook),
    /// Limit the jobs per second of a queue
    #[command(subcommand)]
    RateLimit(limits::RateLimit),
    /// Limit the active jobs of a queue
    #[command(subcommand)]
    Concurrency(limits::Concurrency),
    /// Show jobs by state, totals and rates
    Stats,
    /// Show totals, means and sizes; or all metrics in Prometheus format
    Metrics(stats::Metrics),
    /// Show what happened lately, point by point
    History(figures::History),
    /// Show how long jobs waited lately
    Heatmap(figures::Heatmap),
    /// Show how busy each core is
    Shards(figures::Shards),
    /// Say which machine so many jobs need
    Size(size::Size),
    /// Check whether the server can take jobs, and why not
    Health,
    /// Check whether the server answers
    Ping,
    /// Show what the token is for
    Whoami,
    /// Show who did what that changes more than a job, and who was not let in
    Audit(audit::Audit),
    /// Check this machine and the server, and say what to change
    Doctor(doctor::Doctor),
    /// Show queues, rates, cores and workers, live on the terminal
    Top(top::Top),
    /// Show events of jobs, live
    Events(events::Events),
    /// Fill a server with sample work for a minute, or remove that
    Demo(demo::Demo),
    /// Check a settings file, or show the settings of a server with where they come from
    #[command(subcommand)]
    Config(config::Settings),
    /// Move jobs and schedules here from another job queue
    #[command(subcommand)]
    Import(Box<import::Import>),
    /// Write jobs, schedules and settings of queues as lines of JSON
    Export(export::Export),
    /// Copy the data of a running server on this machine, or show the copies that there are
    Backup(backup::Backup),
    /// Check a backup and make a data directory of it
    Restore(restore::Restore),
    /// Keep the logs of several servers in one database, so that each can stand in for the others
    #[command(subcommand)]
    Fleet(fleet::Fleet),
    /// Inspect the log of a data directory, or repair it
    #[command(subcommand)]
    Log(log::Log),
    /// Print the completions of a shell
    Completions(completions::Completions),
    /// Print the queues that a word may be, for the completions of a shell
    #[command(hide = true)]
    Complete(complete::Complete),
    /// Print the manual page, or write those of all commands
    #[command(hide = true)]
    Man(completions::Man),
}

/// The task of the program, by its arguments.
#[derive(Debug)]
pub enum Asked {
    /// To be the server, with settings and the places that they come from.
    Server(Box<Config>, Layers),
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
    wording: Wording,
}

/// Reads the command line. `words` begins with the program's name.
pub fn parse(words: &[OsString]) -> Asked {
    let (read, format) = match server_words(words) {
        Some(words) => {
            let format = logging::asked_format(&words);
            let layers = Layers::new(Server::command, words, Environment::of_process());
            (layers.read().map(|config| Asked::Server(Box::new(config), layers)), format)
        }
        None => (tool(words).map_err(Problem::from), LogFormat::Text),
    };
    read.unwrap_or_else(|problem| Asked::Done(refuse(&problem, format)))
}

fn refuse(problem: &Problem, format: LogFormat) -> ExitCode {
    match problem {
        Problem::Usage(error) => usage(error, format),
        Problem::Settings(lines) => {
            for line in lines {
                logging::tell(format, line);
            }
            ExitCode::from(2)
        }
    }
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
        _ if lacks_command(words) => None,
        _ => Some(words.to_vec()),
    }
}

fn program() -> clap::Command {
    examples::add_to(with_free_values(target::add_to(Program::command())))
}

/// Whether there are options that say where a server is, and nothing for it to do.
fn lacks_command(words: &[OsString]) -> bool {
    let behind = words.get(1..).unwrap_or_default();
    !behind.is_empty() && target::first_word(behind) == behind.len()
}

fn tool(words: &[OsString]) -> Result<Asked, clap::Error> {
    if lacks_command(words) {
        let text = "no command is given, and these options alone start no server: put 'serve' before those of a \
                    server, and 'corq help' lists the commands";
        return Err(clap::Error::raw(ErrorKind::MissingSubcommand, text));
    }
    let mut bare = target::without_variables(program());
    let matches = bare.try_get_matches_from_mut(words);
    let matches = matches.or_else(|error| read_again(error, words))?;
    let wording = Wording::of(&bare, &matches);
    let target = Target::of(&matches, &Environment::of_process())
        .map_err(|text| clap::Error::raw(ErrorKind::ArgumentConflict, text))?;
    let Program { command } = Program::from_arg_matches(&matches)?;
    if matches!(command, Command::Serve(_)) {
        let text = "options before 'serve' say where commands find a server: put those of the \
                    server behind it";
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, text));
    }
    Ok(Asked::Tool(Box::new(Tool { command, target, wording })))
}

/// Reads the words once more where the first reading could not do them justice: a help names the variables, too, and a word with
/// one dash that is no option may be a name, an id or a text.
fn read_again(error: clap::Error, words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    if error.kind() == ErrorKind::DisplayHelp {
        return Err(program().try_get_matches_from(words).err().unwrap_or(error));
    }
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument => word,
        _ => return Err(error),
    };
    if !unknown.starts_with('-') || unknown.starts_with("--") {
        return Err(error);
    }
    let program = with_free_words(target::without_variables(program()));
    program.try_get_matches_from(words).map_err(|_| error)
}

/// Lets what has no name begin with a dash.
fn with_free_words(command: clap::Command) -> clap::Command {
    let free = |arg: Arg| if arg.is_positional() { arg.allow_hyphen_values(true) } else { arg };
    command.mut_args(free).mut_subcommands(with_free_words)
}

/// Lets each option take any text.
fn with_free_values(command: clap::Command) -> clap::Command {
    command.mut_args(free).mut_subcommands(with_free_values)
}

/// A wrong command line is one line that names what is wrong.
fn usage(error: &clap::Error, format: LogFormat) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Nothing is left to be done about a closed terminal.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if let Some(said) = no_number(error) {
        return complain_of_usage(said, format);
    }
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let said: Vec<&str> = lines
        .take_while(|line| !line.starts_with("For more information") && !line.starts_with("Usage:"))
        .collect();
    complain_of_usage(said.join(" ").trim_start_matches("error: ").to_owned(), format)
}

/// The complaint about an option that wants a whole number, if the error is about one.
fn no_number(error: &clap::Error) -> Option<String> {
    let reason = error.source()?.to_string();
    let (Some(ContextValue::String(option)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return None;
    };
    let is_none =
        ["digit found in string", "from empty string"].iter().any(|it| reason.contains(it));
    is_none.then(|| format!("{option}: '{value}' is no whole number"))
}

fn complain_of_usage(said: String, format: LogFormat) -> ExitCode {
    match format {
        LogFormat::Text => Failure::Usage(said).report(),
        LogFormat::Json => {
            logging::tell(format, &said);
            ExitCode::from(2)
        }
    }
}

impl Tool {
    /// Does it and gives the code to exit with.
    pub fn run(self) -> ExitCode {
        let Self { command, target, wording } = self;
        let mut context = Context { target, out: Output::new(), wording };
        let outcome = run(&mut context, &command);
        // Hand on the output before an error is shown: the answer so far comes first.
        let outcome = outcome.and(context.out.flush().map_err(Failure::from));
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            // Half an answer is none to a program. What goes on for ever may be left at any line.
            Err(Failure::Gone)
                if (context.target.json || is_kept(&command)) && !goes_on(&command) =>
            {
                Failure::Failed("the answer was cut: nothing reads the output any more".to_owned())
                    .report()
            }
            Err(failure) => failure.worded(&context.wording).report(),
        }
    }
}

/// Whether what a command prints is kept and read by programs, however it is shown.
fn is_kept(command: &Command) -> bool {
    matches!(command, Command::Export(_) | Command::Log(_))
}

/// Whether a command has no end of its own.
fn goes_on(command: &Command) -> bool {
    match command {
        Command::Events(_) => true,
        Command::Queue(queue) => queue.goes_on(),
        Command::Audit(audit) => audit.follow,
        _ => false,
    }
}

fn run(context: &mut Context, command: &Command) -> Result<(), Failure> {
    if matches!(
        command,
        Command::Backup(_) | Command::Restore(_) | Command::Log(_) | Command::Export(_)
    ) {
        umask::keep_others_out();
    }
    match command {
        // Taken care of where it was parsed.
        Command::Serve(_) => Err(Failure::Usage("put 'serve' first".to_owned())),
        Command::Push(push) => match &push.bulk {
            Some(file) => bulk::run(context, push, file),
            None => push::run(context, push),
        },
        Command::Pull(pull) => work::pull(context, pull),
        Command::Ack(ack) => work::ack(context, ack),
        Command::Fail(fail) => work::fail(context, fail),
        Command::Job(job) => job::run(context, job),
        Command::Explain(id) => job::explain(context, &id.id),
        Command::Flow(flow) => flow::run(context, flow),
        Command::Search(search) => search::run(context, search),
        Command::Queue(queue) => queue::run(context, queue),
        Command::Group(group) => group::run(context, group),
        Command::Dlq(dlq) => dlq::run(context, dlq),
        Command::Task(task) => task::run(context, task),
        Command::Cron(cron) => cron::run(context, cron),
        Command::Worker(worker) => worker::run(context, worker),
        Command::Workers(workers) => worker::list(context, workers),
        Command::Webhook(webhook) => webhook::run(context, webhook),
        Command::RateLimit(limit) => limits::rate(context, limit),
        Command::Concurrency(limit) => limits::concurrency(context, limit),
        Command::Stats => stats::stats(context),
        Command::Metrics(metrics) => stats::metrics(context, metrics),
        Command::History(history) => figures::history(context, history),
        Command::Heatmap(heatmap) => figures::heatmap(context, heatmap),
        Command::Shards(_) => figures::shards(context),
        Command::Size(size) => size::run(context, size),
        Command::Health => health::run(context),
        Command::Ping => stats::ping(context),
        Command::Whoami => stats::whoami(context),
        Command::Audit(audit) => audit::run(context, audit),
        Command::Doctor(doctor) => doctor::run(context, doctor),
        Command::Top(top) => top::run(context, top),
        Command::Events(events) => events::run(context, events),
        Command::Demo(demo) => demo::run(context, demo),
        Command::Import(import) => import::run(context, import),
        Command::Export(export) => export::run(context, export),
        Command::Config(settings) => config::run(context, settings, Server::command),
        Command::Backup(backup) => backup::run(context, backup, Server::command),
        Command::Restore(restore) => restore::run(context, restore, Server::command),
        Command::Fleet(fleet) => fleet::run(context, fleet),
        Command::Log(log) => log::run(context, log),
        Command::Complete(complete) => complete::run(context, &program(), complete),
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
    fn leaves(command: &clap::Command, before: &str, found: &mut Vec<String>) {
        let name = format!("{before}{}", command.get_name());
        let mut below = command.get_subcommands().filter(|it| !it.is_hide_set()).peekable();
        // A command may do something itself, beside those below it.
        if below.peek().is_none() || command.is_args_conflicts_with_subcommands_set() {
            found.push(name.clone());
        }
        below.for_each(|it| leaves(it, &format!("{name} "), found));
    }

    #[test]
    fn the_page_has_a_row_for_every_command_and_for_no_other() {
        let page = include_str!("../../docs/cli.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `corq ")?.split('`').next());
        let rows: Vec<String> = rows.map(|name| format!("corq {name}")).collect();
        let mut found = Vec::new();
        leaves(&program(), "", &mut found);
        assert_eq!(rows, found);
    }

    #[test]
    fn without_a_command_it_is_the_server() {
        assert!(server("corq") && server("corq serve") && server("corq --memory"));
        assert!(server("corq --host 0.0.0.0 --memory") && server("corq serve --help"));
        assert!(!server("corq stats") && !server("corq --json --host x stats"));
        assert!(!server("corq --host 0.0.0.0") && !server("corq --http-port 80"));
        assert!(!server("corq --help") && !server("corq --host x serve"));
    }

    #[test]
    fn the_server_is_named_before_the_command_or_behind_it() {
        for line in [
            "corq --host h --port 7 --token t --json queue list",
            "corq queue list --host h --port 7 --token t --json",
            "corq --host other --port 7 queue --host h list --json --token t",
        ] {
            let Ok(Asked::Tool(tool)) = tool(&words(line)) else { panic!("{line}") };
            let Target { host, port, token, json, .. } = tool.target;
            assert_eq!((host.as_str(), port, token.as_deref(), json), ("h", 7, Some("t"), true));
        }
    }
}
