//! Names of queues for the completions of a shell, which ask for them with the words that have been typed. Says nothing
//! where no queue is wanted, or no server answers.

use clap::{Args, Command};

use super::client::Client;
use super::context::Context;
use super::failure::Failure;
use super::request::Request;
use super::target::{self, Target};
use super::value::Value;
use crate::api::commands::Op;
use crate::config::Environment;

/// Most names that are offered.
const NAMES_MAX: i64 = 100;
/// The names that arguments of queues have.
const OF_QUEUES: [&str; 2] = ["queue", "queues"];

/// Arguments of `complete`.
#[derive(Args, Debug)]
pub struct Complete {
    /// Which of the words is to be completed, from 0, the program itself
    index: usize,
    /// The words as they have been typed
    #[arg(last = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Prints the names, a line each.
pub fn run(context: &mut Context, program: &Command, complete: &Complete) -> Result<(), Failure> {
    let Complete { index, words } = complete;
    let typed = words.get(*index).map_or("", String::as_str);
    if !wants_queue(program, &words[..(*index).min(words.len())], typed) {
        return Ok(());
    }
    // Of several queues, the last is being typed.
    let (before, prefix) = typed
        .rsplit_once(',')
        .map_or(("", typed), |(_, last)| (&typed[..typed.len() - last.len()], last));
    let program = target::without_variables(program.clone()).ignore_errors(true);
    let matches = program.try_get_matches_from(&words[..*index]);
    let named = matches.ok().and_then(|it| Target::of(&it, &Environment::of_process()).ok());
    let target = named.unwrap_or_else(|| context.target.clone());
    // A person who types wants no errors between the words, and no warning.
    let target = Target { port_doubt: None, ..target };
    for name in names(&target, prefix).unwrap_or_default() {
        context.out.line(&format!("{before}{name}"))?;
    }
    Ok(())
}

/// Whether the word behind these is the name of a queue.
fn wants_queue(program: &Command, before: &[String], typed: &str) -> bool {
    let (mut command, mut values) = (program, 0);
    let mut words = before.iter().skip(1);
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            let option = command.get_arguments().find(|it| it.get_long() == Some(long));
            let Some(option) = option.filter(|it| it.get_action().takes_values()) else { continue };
            if words.next().is_none() {
                return OF_QUEUES.contains(&option.get_id().as_str());
            }
        } else if let Some(below) = command.find_subcommand(word).filter(|_| values == 0) {
            command = below;
        } else if !word.starts_with('-') {
            values += 1;
        }
    }
    let value = command.get_positionals().nth(values);
    !typed.starts_with('-') && value.is_some_and(|it| OF_QUEUES.contains(&it.get_id().as_str()))
}

/// The queues whose names begin so.
fn names(target: &Target, prefix: &str) -> Result<Vec<String>, Failure> {
    let mut client = Client::connect(target)?;
    let page = client.call(Request::new(Op::ListQueues).with(|fields| {
        fields.text_if("prefix", Some(prefix).filter(|prefix| !prefix.is_empty()));
        fields.integer("limit", NAMES_MAX);
        fields.texts("fields", &["paused".to_owned()]);
    }))?;
    // A token that is limited to queues gets its own at once, and no pages.
    let list = match page.refusal() {
        None => page,
        Some(_) => client.call(Request::new(Op::ListQueues))?.granted()?,
    };
    let names = list.value().get("queues").items().filter_map(|queue: Value<'_>| {
        queue.get("name").text().filter(|name| name.starts_with(prefix)).map(str::to_owned)
    });
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::program;

    #[test]
    fn queues_are_wanted_where_a_command_takes_one() {
        let program = program();
        let wants = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (typed, before) = words.split_last().map_or(("", &[][..]), |(it, all)| (it, all));
            wants_queue(&program, before, typed)
        };
        for line in [
            "corq push ",
            "corq push em",
            "corq --host h --json queue pause ",
            "corq queue jobs --limit 5 e",
            "corq cron add nightly ",
            "corq search text --queue ",
            "corq events --queue a,",
        ] {
            assert!(wants(line), "{line}");
        }
        for line in [
            "corq ",
            "corq pu",
            "corq push emails ",
            "corq push -",
            "corq push emails --tag ",
            "corq job get ",
            "corq cron add ",
        ] {
            assert!(!wants(line), "{line}");
        }
    }
}
