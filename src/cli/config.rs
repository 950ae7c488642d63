//! `config`: what a settings file says, and where the settings of a server come from. Speaks to no server.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use corq_io::host;

use super::context::Context;
use super::failure::{Failure, complain};
use super::output::{Cell, Output, Table};
use crate::config::{Config, Environment, Layers, Problem, Setting};
use crate::protocol::msgpack::writer::MapWriter;
use crate::server::check_tokens;

/// Arguments of `config`.
#[derive(Subcommand, Debug)]
pub enum Settings {
    /// Check a settings file: every wrong key and value is found at once
    Check(Check),
    /// Show what 'corq serve' would start with here, and where each setting comes from
    Show(Show),
}

#[derive(Args, Debug)]
pub struct Check {
    /// The settings file
    file: PathBuf,
}

#[derive(Args, Debug)]
pub struct Show {
    /// Settings file of the server [default: the one that the environment names, if it does]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Carries it out; `server` describes the command line of a server.
pub fn run(
    context: &mut Context,
    settings: &Settings,
    server: fn() -> clap::Command,
) -> Result<(), Failure> {
    match settings {
        Settings::Check(check) => {
            let layers = Layers::of_file(server, check.file.as_os_str());
            self::check(context, check, &findings(&layers))
        }
        Settings::Show(show) => {
            let mut words = vec![OsString::from("corq")];
            if let Some(path) = &show.config {
                words.extend(["--config".into(), path.into()]);
            }
            let config = Layers::new(server, words, Environment::of_process()).read();
            self::show(context, &config.map_err(failed)?)
        }
    }
}

/// Lists the errors in settings, in lines; none if a server would start with them.
fn findings(layers: &Layers) -> Vec<String> {
    match layers.read() {
        Err(Problem::Settings(lines)) => lines,
        Err(problem @ Problem::Usage(_)) => vec![problem.to_string()],
        Ok(config) => {
            // Without a number of shards a server has one for each CPU that it may use.
            let cpus = || host::allowed_cpus().map_or(1, |cpus| cpus.len());
            let shards = config.shards.map_or_else(cpus, usize::from);
            let checks = [config.check(shards), check_tokens(&config.auth_tokens.join(","))];
            checks.into_iter().filter_map(Result::err).collect()
        }
    }
}

pub(super) fn failed(problem: Problem) -> Failure {
    match problem {
        Problem::Settings(mut lines) => {
            let last = lines.pop().unwrap_or_default();
            for line in &lines {
                complain(line);
            }
            Failure::Usage(last)
        }
        problem @ Problem::Usage(_) => Failure::Usage(problem.to_string()),
    }
}

fn check(context: &mut Context, check: &Check, findings: &[String]) -> Result<(), Failure> {
    let path = check.file.display().to_string();
    if context.target.json {
        let mut out = Vec::new();
        let mut map = MapWriter::begin(&mut out);
        map.key("ok").bool(findings.is_empty());
        let mut list = map.key("findings");
        list.array(findings.len());
        for finding in findings {
            list.str(finding);
        }
        drop(map);
        context.out.json(&out)?;
    } else if findings.is_empty() {
        context.out.line(&format!("{path}: nothing is wrong"))?;
    } else {
        findings.iter().try_for_each(|finding| context.out.line(finding))?;
    }
    match findings.len() {
        0 => Ok(()),
        1 => Err(Failure::Failed(format!("{path}: one thing is wrong"))),
        many => Err(Failure::Failed(format!("{path}: {many} things are wrong"))),
    }
}

fn show(context: &mut Context, config: &Config) -> Result<(), Failure> {
    let settings = config.settings();
    config.origins.notes.iter().for_each(|note| complain(&format!("warning: {note}")));
    if context.target.json {
        return context.out.json(&as_value(&settings));
    }
    Ok(as_table(&mut context.out, &settings)?)
}

fn as_table(out: &mut Output, settings: &[Setting]) -> std::io::Result<()> {
    let mut table = Table::new(&["SETTING", "VALUE", "UNIT", "FROM", "CHANGES"]);
    for setting in settings {
        let value = setting.value.as_deref().unwrap_or("-");
        let unit = setting.unit.unwrap_or_default();
        let from = setting.place.as_deref().unwrap_or("default");
        let changes = if setting.is_live { "SIGHUP" } else { "restart" };
        let cells = [&*setting.name, value, unit, from, changes];
        table.row(cells.map(Cell::from).into());
    }
    out.table(&table)
}

fn as_value(settings: &[Setting]) -> Vec<u8> {
    let mut value = Vec::new();
    let mut map = MapWriter::begin(&mut value);
    map.key("ok").bool(true);
    let mut list = map.key("settings");
    list.array(settings.len());
    for setting in settings {
        let texts = [
            ("name", Some(&*setting.name)),
            ("value", setting.value.as_deref()),
            ("source", Some(setting.source.name())),
            ("place", setting.place.as_deref()),
            ("default", setting.default.as_deref()),
            ("unit", setting.unit),
        ];
        let mut row = list.begin_map();
        for (name, text) in texts {
            if let Some(text) = text {
                row.key(name).str(text);
            }
        }
        row.key("live").bool(setting.is_live);
    }
    drop(map);
    value
}
