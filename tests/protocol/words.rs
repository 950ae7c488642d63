//! Documents use the terms of the field; words that stop a newcomer are refused. Documents have none of them. Comments of
//! code have none, but for the folders in [`LEFT`], with figures that may only fall.

use std::collections::BTreeMap;
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

/// Folders whose comments still have such words: how many of them, and how many doc comments of one word. A file belongs to
/// the longest name that fits, and to none where none does: then it has no such comment. Figures may only fall.
const LEFT: &[(&str, usize, usize)] =
    &[("io/src", 0, 0), ("src/protocol", 0, 0), ("src/server", 0, 0)];

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

/// The folder of [`LEFT`] that a file belongs to, and what it may have.
fn allowed(path: &str) -> (&'static str, usize, usize) {
    let fits = |&&(folder, ..): &&(&str, usize, usize)| {
        path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    };
    let longest = LEFT.iter().filter(fits).max_by_key(|(folder, ..)| folder.len());
    longest.copied().unwrap_or(("any other folder", 0, 0))
}

#[test]
fn comments_have_ever_fewer_of_the_refused_words() {
    let root = Path::new(ROOT);
    let mut found: BTreeMap<&str, [Vec<String>; 2]> =
        LEFT.iter().map(|(folder, ..)| (*folder, Default::default())).collect();
    for path in all_files().iter().filter(|path| !path.ends_with("protocol/words.rs")) {
        let at = path.strip_prefix(root).unwrap().display().to_string();
        if !["rs", "py", "sh", "toml"].contains(&suffix(path)) {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let [phrases, docs] = found.entry(allowed(&at).0).or_default();
        let places = refused(&words(comments(suffix(path), &text)), IN_COMMENTS).into_iter();
        phrases.extend(places.map(|(line, phrase)| format!("{at}:{line}: '{phrase}'")));
        let short = if suffix(path) == "rs" { short_docs(&text) } else { Vec::new() };
        docs.extend(
            short.into_iter().map(|line| format!("{at}:{line}: a doc comment of one word")),
        );
    }
    let mut wrong = Vec::new();
    for (folder, [phrases, docs]) in &found {
        let (_, phrases_max, docs_max) = allowed(&format!("{folder}/"));
        for (places, most) in [(phrases, phrases_max), (docs, docs_max)] {
            if places.len() > most {
                let list = places.join("\n");
                wrong.push(format!("{folder} may have {most}, and has {}:\n{list}", places.len()));
            } else if places.len() < most {
                eprintln!("{folder} has {} of {most}: lower the figure", places.len());
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
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
