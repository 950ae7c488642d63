//! Documents use the words of the field: a list of words that a newcomer stumbles over is refused. Documents have none of
//! them; comments of code have as many as [`LEFT`] says, a figure that may only fall.

use std::path::Path;

use super::tidy::{ROOT, all_files, gather};

/// Refused in documents. A word counts alone, whatever its case; words of a phrase may stand on two lines.
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

/// Comments that still have such words, by folder, and doc comments of one word. Lower a figure when it has fallen; a
/// folder that is not named here has none.
const LEFT: &[(&str, usize, usize)] = &[];

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
        let behind = || marks.iter().find_map(|mark| Some(line.split_once(&format!(" {mark} "))?.1));
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
    files.retain(|path| {
        matches!(suffix(path), "md" | "yaml" | "") && path.file_name().is_some()
    });
    assert!(files.len() > 50, "{} documents", files.len());
    let mut found = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let at = path.strip_prefix(root).unwrap().display().to_string();
        let words = words((1..).zip(text.lines()));
        let places = refused(&words, IN_DOCUMENTS).into_iter();
        found.extend(places.map(|(line, phrase)| format!("{at}:{line}: '{phrase}'")));
    }
    assert!(found.is_empty(), "say it in plain words:\n{}", found.join("\n"));
}

#[test]
fn comments_have_ever_fewer_of_the_refused_words() {
    let root = Path::new(ROOT);
    let mut wrong = Vec::new();
    for folder in ["src", "shards", "io", "tests", "clients", "bench", "scripts"] {
        let mut files = Vec::new();
        gather(&root.join(folder), &mut files);
        let (mut phrases, mut docs) = (Vec::new(), Vec::new());
        for path in files.iter().filter(|path| matches!(suffix(path), "rs" | "py" | "sh" | "toml")) {
            let text = std::fs::read_to_string(path).unwrap();
            let at = path.strip_prefix(root).unwrap().display().to_string();
            let words = words(comments(suffix(path), &text));
            let places = refused(&words, IN_COMMENTS).into_iter();
            phrases.extend(places.map(|(line, phrase)| format!("{at}:{line}: '{phrase}'")));
            docs.extend(short_docs(&text).into_iter().map(|line| format!("{at}:{line}: one word")));
        }
        let left = LEFT.iter().find(|(name, ..)| *name == folder);
        let (_, phrases_max, docs_max) = left.unwrap_or(&("", 0, 0));
        for (places, most) in [(phrases, *phrases_max), (docs, *docs_max)] {
            if places.len() > most {
                let list = places.join("\n");
                wrong.push(format!("{folder} has {}, {most} are allowed:\n{list}", places.len()));
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
