//! The protocol's page says what the table says: every command, every field, every bound.

use corq::api::commands::{
    BULK_FILTER_FIELDS, COMMANDS, CRON_JOB_FIELDS, DEDUP_FIELDS, DLQ_CONFIG_FIELDS,
    DLQ_CONFIG_NULLABLE, DLQ_FILTER_FIELDS, FieldSpec, GROWTHS, JOB_FIELDS, Kind, LOG_LEVELS,
    METRICS, Op, Preset, REPEAT_FIELDS, STALL_CONFIG_FIELDS, STATES, WEBHOOK_EVENTS,
};
use corq::api::error::Code;
use corq_shards::dead_letter::reason::Cause;

const PAGE: &str = include_str!("../../docs/protocol.md");

/// The cells of the one table row whose first cell is `name`, below the heading `section`.
fn row(section: &str, name: &str) -> Vec<&'static str> {
    let Some((_, below)) = PAGE.split_once(&format!("\n## {section}\n")) else {
        panic!("the page has no section {section}");
    };
    let end = below.find("\n## ").unwrap_or(below.len());
    let rows: Vec<Vec<&str>> = below[..end]
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .filter(|cells: &Vec<&str>| cells[0] == format!("`{name}`"))
        .collect();
    assert_eq!(rows.len(), 1, "rows for {name} in {section}");
    rows[0].clone()
}

fn default(preset: Preset) -> String {
    match preset {
        Preset::Nothing => String::new(),
        Preset::Integer(value) => value.to_string(),
        Preset::Text(text) => text.to_owned(),
        Preset::Off => "false".to_owned(),
        Preset::Empty => "[]".to_owned(),
    }
}

/// A field in the cell of a command: bold if required, integers with bounds and default.
fn brief(field: &FieldSpec) -> String {
    let name = if field.required { format!("**{}**", field.name) } else { field.name.to_owned() };
    match (field.kind, field.default) {
        (Kind::Integer { min, max }, Preset::Integer(value)) => {
            format!("{name} {min}..{max} = {value}")
        }
        (Kind::Integer { min, max }, _) => format!("{name} {min}..{max}"),
        _ => name,
    }
}

/// Values that a field of a job takes, in words.
fn long(kind: Kind) -> String {
    match kind {
        Kind::Payload { bytes_max } if bytes_max < 1 << 20 => {
            format!("any value, at most {} KB", bytes_max >> 10)
        }
        Kind::Payload { bytes_max } => format!("any value, at most {} MB", bytes_max >> 20),
        Kind::Integer { min, max } => format!("integer, {min} to {max}"),
        Kind::Backoff => "integer, 0 to 86400000, or an object with `delay`".to_owned(),
        Kind::Text { chars_min, chars_max } => {
            format!("string, {chars_min} to {chars_max} characters")
        }
        Kind::Texts { items_max, chars_max } => {
            format!("list of at most {items_max} strings of 1 to {chars_max} characters")
        }
        Kind::Flag => "boolean".to_owned(),
        Kind::Traceparent => "string, see below".to_owned(),
        Kind::Tracestate => "string, at most 512 bytes".to_owned(),
        Kind::Repeat | Kind::Dedup => "object, see below".to_owned(),
        Kind::Priority => "integer, -1000000 to 1000000, with a `groupId` to 2097151".to_owned(),
        other => panic!("no words for {other:?}"),
    }
}

#[test]
fn every_command_has_a_row_with_its_fields() {
    for spec in COMMANDS {
        let fields = if spec.op == Op::Push {
            "**queue**, the fields of a job".to_owned()
        } else {
            spec.fields.iter().map(brief).collect::<Vec<_>>().join(", ")
        };
        let row = row("Commands", spec.name);
        assert_eq!(row[1], fields, "fields of {}", spec.name);
        assert!(row.len() == 3 && !row[2].is_empty(), "answer of {}", spec.name);
    }
}

#[test]
fn the_page_names_no_command_that_is_none() {
    let (_, below) = PAGE.split_once("\n## Commands\n").unwrap();
    let below = &below[..below.find("\n## ").unwrap_or(below.len())];
    for line in below.lines().filter(|line| line.starts_with("| `")) {
        let name = line[3..].split('`').next().unwrap();
        if name.contains(' ') {
            // A row of a table of error texts.
            continue;
        }
        assert!(COMMANDS.iter().any(|spec| spec.name == name), "{name}");
    }
}

#[test]
fn every_field_of_a_job_has_a_row_with_bounds_and_default() {
    for field in JOB_FIELDS {
        let row = row("Jobs", field.name);
        assert_eq!(row[1], long(field.kind), "{}", field.name);
        let expected = if field.required { "required".to_owned() } else { default(field.default) };
        assert_eq!(row[2], expected, "{}", field.name);
    }
    for (object, fields) in [("repeat", REPEAT_FIELDS), ("dedup", DEDUP_FIELDS)] {
        for field in fields {
            let row = row("Jobs", &format!("{object}.{}", field.name));
            assert_eq!(row[1], long(field.kind));
            let expected =
                if field.required { "required".to_owned() } else { default(field.default) };
            assert_eq!(row[2], expected, "{}", field.name);
        }
    }
}

#[test]
fn every_setting_has_a_row_with_its_bounds() {
    for field in DLQ_CONFIG_FIELDS.iter().chain(STALL_CONFIG_FIELDS) {
        let nullable = DLQ_CONFIG_NULLABLE.contains(&field.name);
        let value = format!("{}{}", long(field.kind), if nullable { ", or nil" } else { "" });
        assert!(
            PAGE.contains(&format!("\n| {} | {value} |", field.name)),
            "{}: {value}",
            field.name
        );
    }
    let bulk = BULK_FILTER_FIELDS.iter();
    for field in DLQ_FILTER_FIELDS.iter().chain(CRON_JOB_FIELDS).chain(bulk) {
        let named =
            ["| {} |", "| {}, ", ", {} |", "`{}`"].map(|form| form.replace("{}", field.name));
        assert!(named.iter().any(|name| PAGE.contains(name)), "{}", field.name);
    }
    assert!(Cause::NAMES.iter().all(|name| PAGE.contains(&format!("`{name}`"))));
}

#[test]
fn every_code_of_an_error_has_a_row_with_its_status_and_what_to_do() {
    let (_, below) = PAGE.split_once("\n### Codes\n").unwrap();
    let section = &below[..below.find("\n## ").unwrap()];
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let codes: Vec<&str> = rows.iter().map(|cells| cells[0].trim_matches('`')).collect();
    assert_eq!(codes, Code::ALL.iter().map(|code| code.name()).collect::<Vec<_>>());
    for (cells, code) in rows.iter().zip(Code::ALL) {
        assert_eq!(cells[1], code.status().to_string(), "{cells:?}");
        assert!(cells.len() == 4 && !cells[2].is_empty() && !cells[3].is_empty(), "{cells:?}");
    }
}

#[test]
fn the_rust_client_knows_every_code() {
    let known = corq_client::Code::ALL.iter().map(|code| code.name());
    assert!(known.eq(Code::ALL.iter().map(|code| code.name())));
}

#[test]
fn every_choice_is_named() {
    for choice in
        STATES.iter().chain(LOG_LEVELS).chain(GROWTHS).chain(METRICS).chain(WEBHOOK_EVENTS)
    {
        assert!(PAGE.contains(&format!("`{choice}`")), "{choice}");
    }
}
