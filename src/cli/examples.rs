//! Examples at the end of every help and manual page. A test parses each of them.
//!
//! A command may have examples in its own description instead; those stay.

use clap::Command;

/// Examples of `serve`, which is parsed on its own.
pub const SERVE: &str = "Examples:\n  \
    corq serve\n  \
    corq serve --data-path /var/lib/corq --durability synced\n  \
    corq serve --memory --tcp-port 0 --http-port 0";

/// Examples and exit codes below the help of the program itself.
pub const PROGRAM: &str = "Examples:\n  \
    corq serve\n  \
    corq push emails '{\"to\":\"ada@example.org\"}'\n  \
    corq pull emails --timeout 30s\n  \
    corq queue list\n  \
    corq top\n\n\
    Exit codes: 0; 1: the server refused, cannot be reached, or (health) is not healthy, or what was waited for did \
    not happen; 2: the command line is invalid.";

/// A command by its words, and how it is used.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "push",
        &[
            "push emails '{\"to\":\"ada@example.org\"}' --priority 5 --delay 10m",
            "push reports @report.json --job-id report-17 --max-attempts 5 --backoff 2s --backoff-type fixed",
            "push emails --bulk payloads.jsonl --tag nightly",
            "push orders '{}' --child pack-17 --child pay-17",
        ],
    ),
    (
        "pull",
        &[
            "pull emails",
            "pull emails --timeout 30s --lock-ttl 5m",
            "pull emails --count 10 --json",
        ],
    ),
    (
        "ack",
        &[
            "ack order-17 --lock-token d276375e-6c87-4aee-80d5-90be2d3cd60d --result '{\"sent\":true}'",
        ],
    ),
    (
        "fail",
        &[
            "fail order-17 --lock-token d276375e-6c87-4aee-80d5-90be2d3cd60d --error 'no ink'",
            "fail order-17 --lock-token d276375e-6c87-4aee-80d5-90be2d3cd60d --unrecoverable",
        ],
    ),
    (
        "import bullmq",
        &[
            "import bullmq redis://127.0.0.1:6379 --dry-run",
            "import bullmq rediss://:secret@redis.example.org/1 --queue emails --rate 2000 --schedules disabled",
        ],
    ),
    (
        "import sidekiq",
        &[
            "import sidekiq redis://127.0.0.1:6379 --dry-run",
            "import sidekiq redis://127.0.0.1:6379 --states delayed,retrying,dead --remove",
        ],
    ),
    ("import asynq", &["import asynq redis://127.0.0.1:6379 --dry-run"]),
    ("import bunqueue", &["import bunqueue tcp://127.0.0.1:6789 --port 7789"]),
    (
        "import beanstalkd",
        &[
            "import beanstalkd tcp://127.0.0.1:11300",
            "import beanstalkd tcp://127.0.0.1:11300 --queue emails --remove",
        ],
    ),
    (
        "import faktory",
        &[
            "import faktory redis+unix:///var/lib/faktory/db/redis.sock",
            "import faktory tcp://:secret@127.0.0.1:7419 --remove",
        ],
    ),
    ("import ndjson", &["import ndjson jobs.ndjson", "import ndjson - --into emails --dry-run"]),
    ("export", &["export --output jobs.ndjson", "export --queue emails --completed"]),
    ("job get", &["job get order-17", "job get order-17 --json"]),
    ("job state", &["job state order-17"]),
    ("job explain", &["job explain order-17"]),
    ("job result", &["job result order-17"]),
    ("job wait", &["job wait order-17 --timeout 5m"]),
    ("job cancel", &["job cancel order-17 --yes"]),
    (
        "job progress",
        &["job progress order-17", "job progress order-17 40 --message 'page 4 of 10'"],
    ),
    ("job update", &["job update order-17 '{\"to\":\"bob@example.org\"}'"]),
    ("job priority", &["job priority order-17 100"]),
    ("job promote", &["job promote order-17"]),
    ("job delay", &["job delay order-17 15m"]),
    ("job discard", &["job discard order-17"]),
    ("job logs", &["job logs order-17"]),
    ("job log", &["job log order-17 'address looked up' --level info"]),
    (
        "job bulk",
        &[
            "job bulk retry --queue emails --state failed --error timeout --dry-run",
            "job bulk priority --queue emails --tag vip --priority 100 --yes",
            "job bulk cancel --id order-17 --id order-18",
        ],
    ),
    (
        "queue jobs",
        &["queue jobs emails --state waiting,delayed --limit 20", "queue jobs emails --follow"],
    ),
    ("queue counts", &["queue counts emails", "queue counts emails --by-priority"]),
    ("queue pause", &["queue pause emails", "queue pause new-queue --yes"]),
    ("queue resume", &["queue resume emails"]),
    ("queue stalls", &["queue stalls emails", "queue stalls emails --interval 1m --max-stalls 5"]),
    ("queue drain", &["queue drain emails --yes"]),
    (
        "queue clean",
        &[
            "queue clean emails --grace 7d --state completed",
            "queue clean emails --grace 1h --limit 1000 --yes",
        ],
    ),
    ("queue obliterate", &["queue obliterate emails --yes"]),
    ("group list", &["group list emails --limit 50"]),
    ("group pause", &["group pause emails customer-7"]),
    ("group resume", &["group resume emails customer-7"]),
    ("group hold", &["group hold emails customer-7 10m"]),
    (
        "group concurrency",
        &["group concurrency emails customer-7 3", "group concurrency emails customer-7"],
    ),
    ("group rate-limit", &["group rate-limit emails customer-7 100 --per 1m"]),
    ("group weight", &["group weight emails customer-7 5"]),
    ("dlq list", &["dlq list emails --count 20", "dlq list emails --reason timeout"]),
    ("dlq retry", &["dlq retry emails order-17", "dlq retry emails --count 100"]),
    ("dlq stats", &["dlq stats emails"]),
    ("dlq groups", &["dlq groups", "dlq groups emails --limit 10"]),
    (
        "dlq config",
        &[
            "dlq config emails",
            "dlq config emails --auto-retry on --retry-interval 1h --max-age 30d",
        ],
    ),
    ("dlq purge", &["dlq purge emails --yes"]),
    ("task list", &["task list"]),
    ("task get", &["task get 0-17"]),
    ("task cancel", &["task cancel 0-17"]),
    (
        "cron add",
        &[
            "cron add nightly reports '{}' --schedule '0 3 * * *' --timezone Europe/Berlin",
            "cron add poll feeds '{\"url\":\"https://example.org\"}' --every 30s --no-overlap",
        ],
    ),
    ("cron list", &["cron list"]),
    ("cron remove", &["cron remove nightly"]),
    ("cron trigger", &["cron trigger nightly"]),
    ("cron enable", &["cron enable nightly"]),
    ("cron disable", &["cron disable nightly"]),
    (
        "cron preview",
        &[
            "cron preview nightly --count 3",
            "cron preview --schedule '0 3 * * 1-5' --timezone Europe/Berlin",
        ],
    ),
    ("worker list", &["worker list", "worker list --queue emails --limit 20"]),
    ("workers", &["workers", "workers --queue emails --limit 20"]),
    (
        "webhook add",
        &[
            "webhook add https://example.org/hook --events job.failed,job.completed --queue emails --secret s3cret",
            "webhook add https://example.org/hook --events all",
        ],
    ),
    ("webhook list", &["webhook list"]),
    ("webhook test", &["webhook test 01a1fc16-b9dd-7000-8000-0ae340900787"]),
    ("webhook deliveries", &["webhook deliveries 01a1fc16-b9dd-7000-8000-0ae340900787 --limit 10"]),
    ("webhook remove", &["webhook remove 01a1fc16-b9dd-7000-8000-0ae340900787"]),
    (
        "rate-limit set",
        &["rate-limit set emails 50", "rate-limit set emails 1000 --per 1m --for 2h"],
    ),
    ("rate-limit show", &["rate-limit show emails"]),
    ("rate-limit clear", &["rate-limit clear emails"]),
    ("concurrency set", &["concurrency set emails 8"]),
    ("concurrency show", &["concurrency show emails"]),
    ("concurrency clear", &["concurrency clear emails"]),
    ("stats", &["stats", "stats --json"]),
    ("metrics", &["metrics", "metrics --prometheus"]),
    (
        "size",
        &[
            "size --jobs 1e7 --payload 256 --rate 5000",
            "size --jobs 2M --payload 4KB --rate 300 --durability synced",
        ],
    ),
    ("health", &["health", "health --http-port 6790 --json"]),
    ("ping", &["ping", "ping --host queue.example.org --tls"]),
    ("whoami", &["whoami"]),
    ("doctor", &["doctor", "doctor --no-server --data-path /var/lib/corq"]),
    ("top", &["top", "top --interval 5s"]),
    (
        "events",
        &[
            "events --queue 'mail.*' --type failed,stalled",
            "events --job order-17 --follow",
            "events --count 10 --json",
        ],
    ),
    ("audit", &["audit --since 1h", "audit /var/lib/corq --command Obliterate", "audit --follow"]),
    ("demo", &["demo", "demo --seconds 600 --rate 100", "demo --remove"]),
    ("config", &["config check /etc/corq/corq.toml", "config show"]),
    ("config check", &["config check /etc/corq/corq.toml"]),
    ("config show", &["config show", "config show --config /etc/corq/corq.toml --json"]),
    (
        "backup",
        &[
            "backup /backup/monday --data-path /var/lib/corq",
            "backup s3://corq-backups/prod --config /etc/corq/corq.toml",
        ],
    ),
    ("backup list", &["backup list s3://corq-backups/prod", "backup list /backup"]),
    ("restore", &["restore /backup/monday /var/lib/corq-new"]),
    (
        "fleet found",
        &[
            "fleet found --database postgres://corq@db.example.org/corq --shards 8",
            "fleet found --database postgres://corq@db.example.org/corq --data-path /var/lib/corq",
        ],
    ),
    ("fleet status", &["fleet status --database postgres://corq@db.example.org/corq"]),
    ("fleet bury", &["fleet bury node-a --database postgres://corq@db.example.org/corq"]),
    (
        "fleet export",
        &["fleet export /var/lib/corq-single --database postgres://corq@db.example.org/corq"],
    ),
    ("log verify", &["log verify /var/lib/corq"]),
    ("log stat", &["log stat /var/lib/corq --json"]),
    ("log dump", &["log dump /var/lib/corq --shard 0 --queue emails"]),
    ("log repair", &["log repair /var/lib/corq --to /var/lib/corq-whole"]),
    ("completions", &["completions bash"]),
];

/// Gives every command below `program` its examples: a group of commands gets the first of each of them.
pub fn add_to(program: Command) -> Command {
    add_below(program, "")
}

fn add_below(command: Command, before: &str) -> Command {
    command.mut_subcommands(|below| {
        let name = format!("{before}{}", below.get_name());
        let below = add_below(below, &format!("{name} "));
        if below.get_after_help().is_some() {
            return below;
        }
        let lines = lines_of(&name);
        if lines.is_empty() { below } else { below.after_help(text(&lines)) }
    })
}

/// The examples of a command, or the first ones of those below it.
fn lines_of(name: &str) -> Vec<&'static str> {
    let own = EXAMPLES.iter().find(|(of, _)| *of == name);
    if let Some((_, lines)) = own {
        return lines.to_vec();
    }
    let below = EXAMPLES
        .iter()
        .filter(|(of, _)| of.strip_prefix(name).is_some_and(|it| it.starts_with(' ')));
    below.filter_map(|(_, lines)| lines.first().copied()).take(BELOW_MAX).collect()
}

/// Most examples of a group of commands.
const BELOW_MAX: usize = 4;

fn text(lines: &[&str]) -> String {
    lines.iter().fold("Examples:".to_owned(), |text, line| format!("{text}\n  corq {line}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::program;

    /// A line as a shell splits it, as far as examples go.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
        for letter in line.chars() {
            match letter {
                '\'' => {
                    quoted = !quoted;
                    word.get_or_insert_default();
                }
                ' ' if !quoted => words.extend(word.take()),
                '#' if !quoted && word.is_none() => break,
                _ => word.get_or_insert_default().push(letter),
            }
        }
        words.extend(word);
        words
    }

    fn each(command: &Command, name: &str, look: &mut impl FnMut(&Command, &str)) {
        look(command, name);
        for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            each(below, &format!("{name} {}", below.get_name()), look);
        }
    }

    #[test]
    fn every_help_has_examples_that_can_be_typed() {
        let program = program();
        each(&program, "corq", &mut |command, name| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.split("\n\n").next().unwrap_or_default();
            assert!(examples.starts_with("Examples:\n  corq "), "{name} has no examples");
            for line in examples.lines().skip(1) {
                assert!(line.trim_start().starts_with(name), "{line} is not about {name}");
                let words = words(line);
                let read = crate::cli::parse(&words.iter().map(Into::into).collect::<Vec<_>>());
                assert!(!matches!(read, crate::cli::Asked::Done(_)), "{line}");
            }
        });
    }

    #[test]
    fn no_example_is_of_a_command_that_is_not_there() {
        let mut found = Vec::new();
        each(&program(), "", &mut |_, name| found.push(name.trim_start().to_owned()));
        for (name, _) in EXAMPLES {
            assert!(found.iter().any(|it| it == name), "{name}");
        }
    }

    #[test]
    fn words_are_split_as_by_a_shell() {
        assert_eq!(words("a 'b c' --d='e f' '' g # h"), ["a", "b c", "--d=e f", "", "g"]);
    }
}
