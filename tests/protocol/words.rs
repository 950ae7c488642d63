//! Documents use the terms of the field; words that stop a newcomer are refused, in comments of code as well. Nor does a
//! comment begin with a word whose meaning stands elsewhere.

use std::path::Path;

use super::tidy::{ROOT, all_files};

/// Refused in documents, in any case. Words of a phrase may be on two lines; a name such as `nobody_is_asked` is one word.
const IN_DOCUMENTS: &[&str] = &[
    "whoever",
    "whomever",
    "nobody",
    "somebody",
    "is told",
    "are told",
    "told of",
    "tell of",
    "tells of",
    "hears of",
    "see the module",
];

/// Refused in comments.
const IN_COMMENTS: &[&str] = &["whoever", "nobody is", "somebody", "is told", "see the module"];

/// Refused at the beginning of a comment, in any case: a comment is read alone, in a hover or in the documentation, and
/// has a noun as its subject or a verb in the imperative.
const BEGINNINGS: &[&str] = &["it", "its", "those", "one", "the same", "so", "what"];

/// Words of a text with their lines, without what is around them.
fn words<'a>(lines: impl IntoIterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    let is_part = |c: char| c.is_alphanumeric() || "_-'".contains(c);
    let of_line = |(line, text): (usize, &'a str)| {
        text.split(move |c| !is_part(c))
            .filter(|word| !word.is_empty())
            .map(move |word| (line, word.to_lowercase()))
    };
    lines.into_iter().flat_map(of_line).collect()
}

/// Where a text has one of the phrases: the line, and the phrase.
fn refused<'a>(words: &[(usize, String)], phrases: &[&'a str]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for phrase in phrases {
        let parts: Vec<&str> = phrase.split(' ').collect();
        let fits = |window: &&[(usize, String)]| window.iter().map(|(_, word)| word).eq(&parts);
        found.extend(words.windows(parts.len()).filter(fits).map(|window| (window[0].0, *phrase)));
    }
    found.sort_unstable();
    found
}

/// The comments of a file of code, line by line.
fn comments<'a>(suffix: &str, text: &'a str) -> Vec<(usize, &'a str)> {
    let marks: &[&str] = if suffix == "rs" { &["//"] } else { &["#", "\"\"\""] };
    let comment = |line: &'a str| {
        let starts = marks.iter().find_map(|mark| line.trim_start().strip_prefix(mark));
        let behind =
            || marks.iter().find_map(|mark| Some(line.split_once(&format!(" {mark} "))?.1));
        starts.or_else(behind)
    };
    (1..).zip(text.lines()).filter_map(|(at, line)| Some((at, comment(line)?))).collect()
}

/// Where a comment of Rust begins with one of the words: lines in a row with the same mark are one comment.
fn begun_elsewhere(text: &str) -> Vec<(usize, &'static str)> {
    let marked = |line: &str| {
        let line = line.trim_start();
        ["///", "//!", "//"].into_iter().find(|mark| line.starts_with(mark))
    };
    let mut found = Vec::new();
    let mut before = None;
    for (at, line) in (1..).zip(text.lines()) {
        let mark = marked(line);
        if let Some(mark) = mark.filter(|_| mark != before) {
            let said = line.trim_start()[mark.len()..].trim_start();
            let words = words([(at, said)]);
            let begins = |phrase: &&&str| {
                let parts: Vec<&str> = phrase.split(' ').collect();
                words.iter().take(parts.len()).map(|(_, word)| word).eq(&parts)
            };
            let is_word = said.starts_with(char::is_alphanumeric);
            found.extend(BEGINNINGS.iter().filter(begins).filter(|_| is_word).map(|it| (at, *it)));
        }
        before = mark;
    }
    found
}

/// Lines of doc comments that are one word and nothing else.
fn short_docs(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_doc = |at: Option<usize>| {
        at.and_then(|at| lines.get(at)).is_some_and(|line| line.starts_with("///"))
    };
    let alone = |at: &usize| !is_doc(at.checked_sub(1)) && !is_doc(Some(at + 1));
    let short = |at: &usize| {
        let text = lines[*at].strip_prefix("///").unwrap_or_default();
        text.split_whitespace().count() == 1
    };
    (0..lines.len()).filter(short).filter(alone).map(|at| at + 1).collect()
}

fn suffix(path: &Path) -> &str {
    path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default()
}

#[test]
fn documents_have_none_of_the_refused_words() {
    let root = Path::new(ROOT);
    let mut files = all_files();
    files.push(root.join("docs/openapi.yaml"));
    files.push(root.join("Makefile"));
    files.retain(|path| matches!(suffix(path), "md" | "yaml" | ""));
    assert!(files.len() > 50, "{} documents", files.len());
    let mut found = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let at = path.strip_prefix(root).unwrap().display().to_string();
        let words = words((1..).zip(text.lines()));
        let places = refused(&words, IN_DOCUMENTS).into_iter();
        found.extend(places.map(|(line, phrase)| format!("{at}:{line}: '{phrase}'")));
    }
    assert!(found.is_empty(), "name who or what acts, in the active voice:\n{}", found.join("\n"));
}

#[test]
fn comments_have_none_of_the_refused_words() {
    let root = Path::new(ROOT);
    let mut found = Vec::new();
    for path in all_files().iter().filter(|path| !path.ends_with("protocol/words.rs")) {
        if !["rs", "py", "sh", "toml"].contains(&suffix(path)) {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let at = path.strip_prefix(root).unwrap().display().to_string();
        let places = refused(&words(comments(suffix(path), &text)), IN_COMMENTS).into_iter();
        found.extend(places.map(|(line, phrase)| format!("{at}:{line}: '{phrase}'")));
        let short = if suffix(path) == "rs" { short_docs(&text) } else { Vec::new() };
        found.extend(
            short.into_iter().map(|line| format!("{at}:{line}: a doc comment of one word")),
        );
    }
    assert!(found.is_empty(), "name who acts, and say more than a word:\n{}", found.join("\n"));
}

#[test]
fn no_comment_begins_with_a_word_that_means_something_elsewhere() {
    let root = Path::new(ROOT);
    let mut found = Vec::new();
    for path in all_files().iter().filter(|path| suffix(path) == "rs") {
        let text = std::fs::read_to_string(path).unwrap();
        let at = path.strip_prefix(root).unwrap().display().to_string();
        let places = begun_elsewhere(&text).into_iter();
        found.extend(places.map(|(line, word)| format!("{at}:{line}: '{word}'")));
    }
    assert!(found.is_empty(), "name the subject, or say what to do:\n{}", found.join("\n"));
}

#[test]
fn canary_beginnings_of_comments_are_seen_at_their_first_line_only() {
    let code = "/// It is.\n/// One.\n//! so\n  // The same.\nlet it = 1; // its\n// A\n// what";
    assert_eq!(begun_elsewhere(code), [(1, "it"), (3, "so"), (4, "the same")]);
    let code = "/// Items.\n\n/// `What`\n// The sames\n/// One-way.\n\n/// What's\n";
    assert_eq!(begun_elsewhere(code), []);
}

#[test]
fn canary_refused_words_are_seen_across_lines_and_in_comments_only() {
    let seen = |text: &str| refused(&words((1..).zip(text.lines())), IN_DOCUMENTS);
    assert_eq!(seen("A client is\ntold; Whoever asks."), [(1, "is told"), (2, "whoever")]);
    assert_eq!(seen("`nobody_is_asked`, told, this tells"), []);
    let code = "let nobody = 1; // somebody\n/// Whoever\n/// asks.\nlet is_told = \"is told\";\n";
    assert_eq!(
        refused(&words(comments("rs", code)), IN_COMMENTS),
        [(1, "somebody"), (2, "whoever")]
    );
    assert_eq!(short_docs("/// One.\n\n/// Two\n/// words.\n"), [1]);
    assert_eq!(comments("py", "a = 1 # why\n\"\"\"What.\"\"\"\n").len(), 2);
}

/// A help text is read alone, beside its metric: each names its own subject.
#[test]
fn no_help_of_a_metric_leans_on_the_one_before() {
    let families = include_str!("../../src/server/metrics/families.rs");
    let begins = [
        "Of those",
        "Of these",
        "Those",
        "These",
        "Their",
        "It",
        "Its",
        "The same",
        "Memory of those",
    ];
    let found = families.split('"').filter(|text| {
        begins.iter().any(|begin| {
            let rest = text.strip_prefix(begin);
            rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        })
    });
    assert_eq!(found.collect::<Vec<_>>(), [] as [&str; 0]);
}
