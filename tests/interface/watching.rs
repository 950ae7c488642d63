//! Means to watch a server: the board of Grafana, the alerts of Prometheus, the entries of the runbook. The fear: a
//! name changes, and an alert never fires again, or a panel stays empty.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::ROOT;
use crate::secure::{Authority, tunnel};
use crate::support::{Http, Start};

/// Labels that Prometheus adds to every sample.
const ADDED: [&str; 2] = ["job", "instance"];

const FUNCTIONS: [&str; 17] = [
    "changes",
    "delta",
    "histogram_quantile",
    "increase",
    "irate",
    "label_values",
    "max",
    "min",
    "predict_linear",
    "quantile",
    "rate",
    "resets",
    "sum",
    "time",
    "topk",
    "avg",
    "count",
];

const WORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

fn text(path: &str) -> String {
    let path = Path::new(ROOT).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of an expression: of metrics with the labels that select, and of labels that group.
#[derive(Default, Debug, PartialEq)]
struct Names {
    metrics: Vec<(String, Vec<String>)>,
    groups: Vec<String>,
}

fn is_word(it: char) -> bool {
    it.is_ascii_alphanumeric() || it == '_' || it == ':'
}

/// The words of a text that stand before `=`, `!`, `~` or alone, without those in quotes.
fn labels(text: &str) -> Vec<String> {
    let outside: Vec<&str> = text.split('"').step_by(2).collect();
    let outside = outside.join(" ");
    let words = outside.split(|it: char| !is_word(it)).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// Splits behind the bracket that closes the one at the front.
fn bracketed(text: &str, open: char, close: char) -> Option<(&str, &str)> {
    let inner = text.trim_start().strip_prefix(open)?;
    let mut is_quoted = false;
    let end = inner.char_indices().find(|&(_, it)| {
        is_quoted ^= it == '"';
        it == close && !is_quoted
    });
    let (end, _) = end.unwrap_or_else(|| panic!("no {close} in {text}"));
    Some((&inner[..end], &inner[end + close.len_utf8()..]))
}

/// Reads an expression; what it does not understand it refuses.
fn names(expression: &str) -> Names {
    let mut found = Names::default();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            rest = &rest[1 + rest[1..].find('"').expect("a closed text") + 1..];
        } else if first == '[' {
            rest = bracketed(rest, '[', ']').unwrap().1;
        } else if first.is_ascii_digit() {
            rest = rest.trim_start_matches(|it: char| is_word(it) || it == '.');
        } else if is_word(first) {
            let end = rest.find(|it| !is_word(it)).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            rest = behind;
            if ["by", "on", "without", "ignoring", "group_left", "group_right"].contains(&word) {
                let (inner, behind) = bracketed(rest, '(', ')').expect("a list of labels");
                found.groups.extend(labels(inner));
                rest = behind;
            } else if ["(", "by ", "without "].iter().any(|it| rest.trim_start().starts_with(it)) {
                assert!(FUNCTIONS.contains(&word), "no function {word}: {expression}");
            } else if !WORDS.contains(&word) {
                let selected = bracketed(rest, '{', '}').filter(|_| rest.starts_with('{'));
                let (inner, behind) = selected.unwrap_or(("", rest));
                found.metrics.push((word.to_owned(), labels(inner)));
                rest = behind;
            }
        } else {
            let known = "()+-*/<>=!,. \n%^".contains(first);
            assert!(known, "{first:?} in {expression}");
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

/// The names of an exposition, each with the labels of its samples.
fn exposition(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut families = BTreeMap::<String, BTreeSet<String>>::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).unwrap();
        let (name, behind) = line.split_at(end);
        let known = families.entry(name.to_owned()).or_default();
        if let Some((inner, _)) = bracketed(behind, '{', '}').filter(|_| behind.starts_with('{')) {
            known.extend(labels(inner));
        }
    }
    families
}

/// Every expression of the board and of the alerts, with where it stands.
fn expressions() -> Vec<(String, String)> {
    let board: Value = serde_json::from_str(&text("packaging/grafana/corq.json")).unwrap();
    let mut found = Vec::new();
    for panel in board["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push((title.to_owned(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    for variable in board["templating"]["list"].as_array().unwrap() {
        if variable["type"] == "query" {
            let name = variable["name"].as_str().unwrap();
            // The label that is asked for stands behind the selector.
            let query = variable["definition"].as_str().unwrap();
            let (selector, label) = query.rsplit_once(", ").unwrap();
            let grouped = format!(
                "sum by ({}) ({}))",
                label.trim_end_matches(')'),
                &selector["label_values(".len()..]
            );
            found.push((name.to_owned(), grouped));
        }
    }
    found.extend(alerts().into_iter().map(|alert| (alert.0, alert.1)));
    found
}

/// Name and expression of every alert.
fn alerts() -> Vec<(String, String)> {
    let rules: Value = serde_saphyr::from_str(&text("packaging/prometheus/alerts.yml")).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    let of = |rule: &Value, field: &str| rule[field].as_str().unwrap().to_owned();
    rules.map(|rule| (of(rule, "alert"), of(rule, "expr"))).collect()
}

#[test]
fn expressions_are_read_as_prometheus_reads_them() {
    let read = names(
        "topk(3, sum by (le, queue) (rate(corq_a_bucket{queue=~\"$q{x}\", job=\"a\"}[$__rate_interval])) > 0.5 and on (job) corq_b == 1)",
    );
    let own = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<String>>();
    let metrics =
        vec![("corq_a_bucket".to_owned(), own(&["queue", "job"])), ("corq_b".to_owned(), vec![])];
    assert_eq!(read, Names { metrics, groups: own(&["le", "queue", "job"]) });
    assert!(std::panic::catch_unwind(|| names("nonsense(corq_a)")).is_err());
}

#[test]
fn every_metric_and_label_of_the_board_and_the_alerts_is_in_the_exposition() {
    let authority = Authority::new();
    let server = Start::new().tls(&authority.issue("server", None)).start();
    let mut web = Http::connect(tunnel(server.http, &authority.believer()));
    for n in 0..3 {
        web.push("watched", json!({"data": n}));
    }
    web.pull("watched");
    let families = exposition(web.get("/prometheus").text());
    let expressions = expressions();
    assert!(expressions.len() > 80, "{}", expressions.len());
    for (place, expression) in expressions {
        let names = names(&expression);
        assert!(!names.metrics.is_empty(), "{place}: {expression}");
        let mut known: BTreeSet<&str> = ADDED.into();
        for (metric, selected) in &names.metrics {
            if metric == "up" {
                continue;
            }
            let labels = families.get(metric);
            let labels = labels
                .unwrap_or_else(|| panic!("{place}: there is no metric {metric}: {expression}"));
            known.extend(labels.iter().map(String::as_str));
            for label in selected {
                let is_there = ADDED.contains(&&**label) || labels.contains(label);
                assert!(is_there, "{place}: {metric} has no label {label}: {expression}");
            }
        }
        for label in &names.groups {
            assert!(
                known.contains(&**label),
                "{place}: no metric has the label {label}: {expression}"
            );
        }
    }
}

#[test]
fn every_alert_has_an_entry_in_the_runbook_and_is_tried() {
    let (runbook, tests) = (text("docs/runbook.md"), text("packaging/prometheus/alerts.test.yml"));
    let tests: Value = serde_saphyr::from_str(&tests).unwrap();
    let tried: Vec<&str> = tests["tests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|test| test["name"].as_str().unwrap())
        .collect();
    let mut entries: Vec<&str> = runbook.split("\n## ").skip(1).collect();
    for (alert, _) in alerts() {
        let found = entries.iter().position(|entry| entry.lines().next() == Some(&*alert));
        let entry = entries.remove(found.unwrap_or_else(|| panic!("the runbook lacks {alert}")));
        for part in ["**Means.**", "**Look.**", "**Act.**"] {
            assert!(entry.contains(part), "{alert}: {part}");
        }
        for how in ["fires", "stays quiet"] {
            assert!(tried.contains(&&*format!("{alert} {how}")), "{alert} {how}");
        }
    }
    assert_eq!(entries, Vec::<&str>::new(), "no alert leads there");
}
