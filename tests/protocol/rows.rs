//! The page of tests says the truth: every test it names exists, and no row is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use corq::api::commands::{COMMANDS, JOB_FIELDS, WEBHOOK_EVENTS};
use serde_json::Value;

const PAGE: &str = include_str!("../README.md");
const OPENAPI: &str = include_str!("../../docs/openapi.yaml");

/// Rows of a section: the name and the tests.
fn rows(section: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    let Some((_, below)) = PAGE.split_once(&format!("\n### {section} ")) else {
        panic!("the page has no section {section}");
    };
    let table = below[..below.find("\n### ").unwrap_or(below.len())].lines();
    let rows = table.filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| {
        let (name, tests) = line.trim_matches(['|', ' ']).split_once(" | ").unwrap();
        (name, tests.split('`').skip(1).step_by(2).collect())
    })
    .collect()
}

/// Names of all test functions below a directory: those marked, and those that lists of canaries make.
fn collect(dir: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, names);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut marked = false;
            for line in text.lines().map(str::trim) {
                if let Some((name, _)) = line.split_once(": ").filter(|_| line.contains(" sees ")) {
                    names.insert(name.to_owned());
                }
                if line == "#[test]" {
                    marked = true;
                } else if let Some(name) = line.strip_prefix("fn ").filter(|_| marked) {
                    names.insert(name.split('(').next().unwrap_or_default().to_owned());
                    marked = false;
                }
            }
        }
    }
}

fn tests() -> BTreeSet<String> {
    let root = Path::new(crate::tidy::ROOT);
    let mut names = BTreeSet::new();
    for dir in ["tests", "shards", "io", "src", "bench"] {
        collect(&root.join(dir), &mut names);
    }
    names
}

#[test]
fn every_row_of_the_page_of_tests_names_tests_that_exist() {
    let tests = tests();
    assert!(tests.len() > 500, "only {} tests are found", tests.len());
    for (section, least) in [
        ("2.1", 17),
        ("2.2", 2),
        ("2.3", 9),
        ("3", 18),
        ("4.1", 20),
        ("4.2", 9),
        ("4.3", 60),
        ("Versions", 30),
        ("Pages", 35),
        ("5", 7),
        ("6.1", 16),
        ("6.2", 14),
        ("7", 14),
        ("8", 24),
    ] {
        let rows = rows(section);
        assert!(rows.len() >= least, "{section} has {} rows", rows.len());
        for (row, named) in rows {
            assert!(!named.is_empty(), "{section} {row} names no test");
            for test in named {
                assert!(tests.contains(test), "{section} {row}: there is no test {test}");
            }
        }
    }
}

#[test]
fn the_page_of_tests_has_a_row_for_every_command_and_field() {
    let commands: Vec<&str> = rows("4.3").into_iter().map(|(row, _)| row).collect();
    for spec in COMMANDS {
        assert!(commands.contains(&spec.name), "no row for {}", spec.name);
    }
    let fields: Vec<&str> = rows("2.1").into_iter().map(|(row, _)| row).collect();
    for field in JOB_FIELDS {
        assert!(fields.contains(&field.name), "no row for {}", field.name);
    }
}

#[test]
fn the_page_of_tests_has_a_row_for_every_endpoint_and_event() {
    let endpoints: Vec<&str> = rows("4.1").into_iter().map(|(row, _)| row).collect();
    // That the document has every route of the server stands beside the routes.
    let document: Value = serde_saphyr::from_str(OPENAPI).unwrap();
    for (path, item) in document["paths"].as_object().unwrap() {
        let methods = item.as_object().unwrap().keys().filter(|key| *key != "parameters");
        for method in methods.filter(|method| *method != "options") {
            let path = path.replace('{', ":").replace('}', "");
            let row = format!("{} {path}", method.to_uppercase());
            assert!(endpoints.contains(&row.as_str()), "no row for {row}");
        }
    }
    let told: Vec<&str> = rows("6.1").into_iter().map(|(row, _)| row).collect();
    let kinds = &document["components"]["schemas"]["Event"]["properties"]["eventType"]["enum"];
    for kind in kinds.as_array().unwrap() {
        assert!(told.contains(&kind.as_str().unwrap()), "no row for {kind}");
    }
    let posted: Vec<&str> = rows("6.2").into_iter().map(|(row, _)| row).collect();
    for event in WEBHOOK_EVENTS {
        assert!(posted.contains(event), "no row for {event}");
    }
}
