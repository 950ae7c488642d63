//! Refusals of the server in the words of the command line: the option that was given instead of the field of the
//! protocol that it became, what was typed, and bounds with their units. Knows the options of one command; not what the server
//! checks.

use clap::{Arg, ArgMatches, Command};
use corq_shards::cron::expression;

use super::words;
use crate::api::limits::INTEGER_MAX;

/// The value name of options that take a duration.
const TIME: &str = "TIME";

/// Fields whose options have another name than theirs, as they are named in objects, or alone.
const RENAMED: &[(&str, &[&str])] = &[
    ("backoff.delay", &["backoff"]),
    ("backoff.type", &["backoff-type"]),
    ("backoff.maxDelay", &["backoff-max"]),
    ("dedup", &["dedup-ttl"]),
    ("dedup.ttl", &["dedup-ttl"]),
    ("repeat", &["repeat-every"]),
    ("repeat.every", &["repeat-every"]),
    ("repeat.limit", &["repeat-limit"]),
    ("repeat.count", &["repeat-count"]),
    ("repeat.pattern", &["repeat-pattern"]),
    ("repeat.tz", &["repeat-timezone"]),
    ("repeat.startDate", &["repeat-start"]),
    ("repeat.endDate", &["repeat-end"]),
    ("autoRetryInterval", &["retry-interval"]),
    ("maxAutoRetries", &["max-retries"]),
    ("stallInterval", &["interval"]),
    ("gracePeriod", &["grace"]),
    ("childrenIds", &["child"]),
    ("concurrency", &["limit"]),
    ("count", &["count", "limit"]),
    ("customId", &["job-id"]),
    ("duration", &["per", "duration"]),
    ("every", &["interval"]),
    ("groupId", &["group-id", "group"]),
    ("id", &["id"]),
    ("ids", &["id"]),
    ("jobId", &["job-id", "job"]),
    ("jobs", &["job"]),
    ("max", &["limit"]),
    ("parentId", &["parent"]),
    ("queues", &["queue"]),
    ("repeatEvery", &["every"]),
    ("tags", &["tag"]),
    ("token", &["lock-token"]),
    ("ttl", &["ttl", "for"]),
    ("webhookId", &["id"]),
];

/// The options of one command.
#[derive(Debug, Default)]
pub struct Wording(Vec<Named>);

/// An option, or a value without a name.
#[derive(Debug)]
struct Named {
    /// As it is compared: `max-attempts`.
    name: String,
    /// As it is typed: `--max-attempts`, `<LIMIT>`.
    shown: String,
    /// The text that was typed behind it.
    given: Option<String>,
    is_time: bool,
}

impl Named {
    fn of(arg: &Arg, matches: &ArgMatches) -> Self {
        let is_time = arg.get_value_names().is_some_and(|names| names.iter().any(|it| it == TIME));
        let id = arg.get_id().as_str();
        let given = matches.try_get_raw(id).ok().flatten().and_then(Iterator::last);
        let given = given.map(|text| text.to_string_lossy().into_owned());
        let id = id.replace('_', "-");
        match arg.get_long() {
            Some(long) => {
                Self { name: long.to_owned(), shown: format!("--{long}"), given, is_time }
            }
            None => Self { shown: format!("<{}>", id.to_uppercase()), name: id, given, is_time },
        }
    }

    /// A rule that what was typed has broken.
    fn broken(&self, rule: &str) -> Option<String> {
        let (shown, given) = (&self.shown, self.given.as_deref()?);
        if rule == "must be the name of an IANA time zone" {
            let meant = zone_meant(given).map(|zone| format!(": did you mean {zone}?"));
            return Some(format!("unknown time zone '{given}'{}", meant.unwrap_or_default()));
        }
        let typed_ms = words::milliseconds(given).ok().filter(|_| self.is_time)?;
        let (least, most) = range(rule)?;
        let (end, bound) = match typed_ms {
            _ if typed_ms > most => ("longest", most),
            _ if typed_ms < least => ("shortest", least),
            _ => return None,
        };
        Some(format!("{shown} is {given}; the {end} is {}", bound_of(bound, true)))
    }
}

/// `must be between 1 and 5` as its bounds.
fn range(rule: &str) -> Option<(i64, i64)> {
    let (least, most) = rule.strip_prefix("must be between ")?.split_once(" and ")?;
    Some((least.parse().ok()?, most.parse().ok()?))
}

/// A bound as people type it.
fn bound_of(bound: i64, is_time: bool) -> String {
    match bound {
        0 => "0".to_owned(),
        _ if is_time => words::duration(bound),
        _ => bound.to_string(),
    }
}

/// The zone of a city or of a name in other letters, as `Europe/Berlin` of `berlin`.
fn zone_meant(text: &str) -> Option<String> {
    const REGIONS: [&str; 11] = [
        "",
        "Europe/",
        "America/",
        "Asia/",
        "Africa/",
        "Australia/",
        "Pacific/",
        "Atlantic/",
        "Indian/",
        "America/Argentina/",
        "Antarctica/",
    ];
    let mut city = String::new();
    for letter in text.trim().replace(' ', "_").chars() {
        let begins = city.chars().last().is_none_or(|before| !before.is_alphabetic());
        city.push(if begins { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() });
    }
    let names = [city, text.trim().to_ascii_uppercase()];
    let mut candidates =
        names.iter().flat_map(|name| REGIONS.map(|region| format!("{region}{name}")));
    candidates.find(|zone| expression::local_text(0, Some(zone)).is_some())
}

impl Wording {
    /// The options of the command that `matches` of `program` names, with what they were given.
    pub fn of(program: &Command, matches: &ArgMatches) -> Self {
        let (mut command, mut given) = (program, matches);
        while let Some((name, below)) = given.subcommand() {
            let Some(found) = command.find_subcommand(name) else { return Self::default() };
            (command, given) = (found, below);
        }
        let own = command.get_arguments().filter(|arg| arg.get_help_heading() != Some("Server"));
        Self(own.map(|arg| Named::of(arg, given)).collect())
    }

    /// The option that a field came from.
    fn option(&self, field: &str) -> Option<&Named> {
        let last = field.rsplit('.').next().unwrap_or(field);
        let renamed = |field: &str| RENAMED.iter().find(|(name, _)| *name == field);
        let find = |name: &str| self.0.iter().find(|it| it.name == name);
        let others = renamed(field).or_else(|| renamed(last)).map_or(&[][..], |(_, names)| names);
        others.iter().find_map(|name| find(name)).or_else(|| find(&kebab(last)))
    }

    /// `schedule, repeatEvery or timezone` by the options.
    fn listed(&self, fields: &str) -> String {
        let shown = |word: &str| {
            let field = word.trim_end_matches(',');
            let option = self.option(field).map_or(field, |it| &it.shown);
            format!("{option}{}", &word[field.len()..])
        };
        fields.split(' ').map(shown).collect::<Vec<_>>().join(" ")
    }

    /// A refusal, by the options where it names fields that came from options.
    pub fn of_refusal(&self, text: &str) -> String {
        if let Some((fields, rest)) = required(text) {
            let shown = |field: &str| self.option(field).map(|it| it.shown.clone());
            let fields = fields.split(" or ").map(|it| shown(it).unwrap_or_else(|| it.to_owned()));
            let fields: Vec<String> = fields.collect();
            if fields.len() > 1 && rest == " is required" {
                return format!("give {}", fields.join(" or "));
            }
            let rest = match rest.rsplit_once(' ') {
                Some((words, field)) if rest.contains(" with ") => {
                    format!("{words} {}", shown(field).unwrap_or_else(|| field.to_owned()))
                }
                _ => rest.to_owned(),
            };
            return format!("{}{rest}", fields.join(" or "));
        }
        if let Some((fields, rest)) = named(text, " must not both be given", " and ") {
            let fields = fields.split(" and ");
            let shown = |field: &str| {
                self.option(field).map_or_else(|| field.to_owned(), |it| it.shown.clone())
            };
            return format!("{}{rest}", fields.map(shown).collect::<Vec<_>>().join(" and "));
        }
        let Some((field, rest)) = text.split_once(' ') else { return text.to_owned() };
        // `schedule: minute must be ...`: a part of the value is wrong.
        let (field, colon) = match field.strip_suffix(':') {
            Some(field) => (field, ":"),
            None => (field, ""),
        };
        // Which of several values it is can be seen by what is said of it.
        let name = field.split_once('[').map_or(field, |(name, _)| name);
        let is_of_it = rest.starts_with("must ") || !colon.is_empty() && !field.contains('[');
        let (Some(option), true) = (self.option(name), is_of_it) else {
            return text.to_owned();
        };
        if let Some(broken) = option.broken(rest) {
            return broken;
        }
        let rule = match rest.strip_prefix("must not be given with ") {
            Some(others) => format!("must not be given with {}", self.listed(others)),
            None => bounds(rest, option.is_time),
        };
        format!("{}{colon} {rule}", option.shown)
    }
}

/// `schedule or repeatEvery`, ` is required`.
fn required(text: &str) -> Option<(&str, &str)> {
    named(text, " is required", " or ")
}

/// The names before what is said of them, and the rest; none if words that are no names stand there.
fn named<'t>(text: &'t str, said: &str, between: &str) -> Option<(&'t str, &'t str)> {
    let (fields, rest) = text.split_at(text.find(said)?);
    let is_name = |field: &str| !field.is_empty() && !field.contains(' ');
    fields.split(between).all(is_name).then_some((fields, rest))
}

/// `maxAttempts` as `max-attempts`.
fn kebab(field: &str) -> String {
    field.chars().fold(String::new(), |mut name, letter| {
        if letter.is_ascii_uppercase() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
        name
    })
}

/// `must be between 0 and 86400000` as `must be between 0 and 1d`.
fn bounds(rule: &str, is_time: bool) -> String {
    if let Some((least, most)) = range(rule) {
        let shown = |bound| bound_of(bound, is_time);
        return match most {
            INTEGER_MAX => format!("must be {} or more", shown(least)),
            _ => format!("must be between {} and {}", shown(least), shown(most)),
        };
    }
    let most = rule.strip_prefix("must be at most ").and_then(|rule| rule.split_once(" bytes"));
    match most.and_then(|(most, rest)| Some((most.parse::<u64>().ok()?, rest))) {
        Some((most, rest)) if most >= 1024 => {
            let rest = rest.replace("sizeLimit", "--size-limit").replace("childrenIds", "--child");
            format!("must be at most {}{rest}", words::bytes(most as f64))
        }
        Some((most, rest)) => {
            format!("must be at most {most} bytes{}", rest.replace("sizeLimit", "--size-limit"))
        }
        None => rule.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The options of a push, with what this line gives them.
    fn wording(line: &str) -> Wording {
        let arg = |name: &'static str| Arg::new(name).long(name);
        let push = Command::new("push")
            .arg(Arg::new("data"))
            .args(["max-attempts", "size-limit", "tag", "every", "schedule", "timezone"].map(arg))
            .args(["delay", "backoff", "grace"].map(|name| arg(name).value_name(TIME)));
        let program = Command::new("corq").subcommand(push);
        let line = ["corq", "push"].into_iter().chain(line.split_whitespace());
        let matches = program.clone().try_get_matches_from(line).unwrap();
        Wording::of(&program, &matches)
    }

    #[test]
    fn a_field_becomes_the_option_that_it_came_from() {
        for (text, told) in [
            ("maxAttempts must be an integer", "--max-attempts must be an integer"),
            ("config.gracePeriod must be between 0 and 9", "--grace must be between 0 and 9ms"),
            ("tags[3] must be 1 to 256 characters", "--tag must be 1 to 256 characters"),
            ("data is required", "<DATA> is required"),
            ("schedule or repeatEvery is required", "give --schedule or --every"),
            (
                "schedule and repeatEvery must not both be given",
                "--schedule and --every must not both be given",
            ),
            ("schedule is required with repeatEvery", "--schedule is required with --every"),
            ("groupId must be 1 to 256 characters", "groupId must be 1 to 256 characters"),
            ("schedule must have 5 or 6 fields", "--schedule must have 5 or 6 fields"),
            (
                "schedule: minute must be between 0 and 59",
                "--schedule: minute must be between 0 and 59",
            ),
            (
                "tags must not be given with data, schedule or repeatEvery",
                "--tag must not be given with <DATA>, --schedule or --every",
            ),
            ("repeat.pattern: no day matches", "repeat.pattern: no day matches"),
            ("Job not found", "Job not found"),
            ("jobs[3]: delay must be an integer", "jobs[3]: delay must be an integer"),
        ] {
            assert_eq!(wording("").of_refusal(text), told);
        }
    }

    #[test]
    fn a_time_out_of_bounds_is_told_as_it_was_typed_beside_the_bound() {
        for (line, told) in [
            ("--delay 5h", "--delay is 5h; the longest is 1m"),
            ("--delay 90000", "--delay is 90000; the longest is 1m"),
            ("--delay 4", "--delay is 4; the shortest is 5ms"),
            ("", "--delay must be between 5ms and 1m"),
        ] {
            assert_eq!(wording(line).of_refusal("delay must be between 5 and 60000"), told);
        }
    }

    #[test]
    fn a_zone_that_is_none_is_told_with_the_one_that_was_likely_meant() {
        for (zone, meant) in [
            ("Berlin", ": did you mean Europe/Berlin?"),
            ("new_york", ": did you mean America/New_York?"),
            ("Atlantis", ""),
        ] {
            let refusal = "timezone must be the name of an IANA time zone";
            let told = wording(&format!("--timezone {zone}")).of_refusal(refusal);
            assert_eq!(told, format!("unknown time zone '{zone}'{meant}"));
        }
    }

    #[test]
    fn bounds_have_the_units_that_people_type() {
        for (text, told) in [
            ("delay must be between 0 and 31536000000", "--delay must be between 0 and 365d"),
            (
                "backoff.delay must be between 1 and 86400000",
                "--backoff must be between 1ms and 1d",
            ),
            ("sizeLimit must be between 0 and 9007199254740991", "--size-limit must be 0 or more"),
            ("data must be at most 10485760 bytes", "<DATA> must be at most 10.0 MB"),
            (
                "data must be at most 20 bytes, as sizeLimit says",
                "<DATA> must be at most 20 bytes, as --size-limit says",
            ),
        ] {
            assert_eq!(wording("").of_refusal(text), told);
        }
    }
}
