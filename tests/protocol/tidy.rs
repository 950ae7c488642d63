//! Names that a reader follows in code and documents lead somewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub(super) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Where code, scripts and documents are. What is built or fetched lies elsewhere.
const PLACES: [&str; 9] =
    ["src", "shards", "io", "tests", "clients", "bench", "scripts", "docs", "packaging"];
const SUFFIXES: [&str; 5] = ["rs", "sh", "py", "toml", "md"];

pub(super) fn gather(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_built = ["target", "node_modules", "corpus", "artifacts"].contains(&name.as_str());
        if path.is_dir() && !is_built && !name.starts_with('.') {
            gather(&path, files);
        } else if path.extension().is_some_and(|suffix| SUFFIXES.iter().any(|one| suffix == *one)) {
            files.push(path);
        }
    }
}

pub(super) fn all_files() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let mut files =
        vec![root.join("README.md"), root.join("CONTRIBUTING.md"), root.join("CHANGELOG.md")];
    for place in PLACES {
        gather(&root.join(place), &mut files);
    }
    files
}

/// The names of pages in a text; not those that begin with a variable of a script.
fn pages(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    let ends = text.match_indices(".md").map(|(at, _)| at + 3);
    ends.filter(|&end| !text[end..].starts_with(is_part))
        .filter_map(|end| {
            let begin = text[..end].rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
            let is_variable = text[..begin].ends_with(['$', '}', '*']);
            (!is_variable && end - begin > 3).then(|| &text[begin..end])
        })
        .collect()
}

fn unknown_pages<'a>(text: &'a str, known: &BTreeSet<String>) -> Vec<&'a str> {
    let name = |page: &str| page.rsplit('/').next().unwrap_or_default().to_owned();
    pages(text).into_iter().filter(|page| !known.contains(&name(page))).collect()
}

#[test]
fn every_page_that_is_named_anywhere_exists() {
    let files = all_files();
    let known: BTreeSet<String> = files
        .iter()
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "md"))
        .map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned())
        .collect();
    assert!(known.contains("ARCHITECTURE.md"), "{known:?}");
    let mut wrong = Vec::new();
    for path in files.iter().filter(|path| !path.ends_with("protocol/tidy.rs")) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        wrong.extend(
            unknown_pages(&text, &known)
                .into_iter()
                .map(|page| format!("{}: {page}", path.display())),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The check sees a page that is not there.
    assert_eq!(unknown_pages("see `docs/absent.md`, and $place/x.md.", &known), ["docs/absent.md"]);
}

/// Where code names a path as the reach of an item.
fn reaches_of_paths(text: &str) -> Vec<usize> {
    let mark = concat!("pub", "(in ");
    (1..).zip(text.lines()).filter(|(_, line)| line.contains(mark)).map(|(at, _)| at).collect()
}

#[test]
fn what_only_its_folder_uses_says_super_and_all_else_that_is_not_public_says_crate() {
    let mut wrong = Vec::new();
    for path in all_files() {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines = reaches_of_paths(&text).into_iter();
        wrong.extend(lines.map(|line| format!("{}:{line}", path.display())));
    }
    assert!(wrong.is_empty(), "say `pub(super)` or `pub(crate)`: {wrong:#?}");
    assert_eq!(
        reaches_of_paths(concat!("pub", "(crate) fn a\n", "pub", "(in crate::b) fn c")),
        [2]
    );
}

/// Where documents leave out the beginning of a path.
const BEGINNINGS: [&str; 6] = ["", "src", "src/server", "shards/src", "io/src", "io/src/log"];

/// The paths of source files in backticks that a text names, folder included.
fn source_files(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted
        .filter(|name| {
            Path::new(name).extension() == Some("rs".as_ref())
                && name.contains('/')
                && name.chars().all(is_part)
        })
        .collect()
}

fn is_there(path: &str) -> bool {
    BEGINNINGS.iter().any(|beginning| Path::new(ROOT).join(beginning).join(path).is_file())
}

#[test]
fn every_source_file_that_a_document_names_exists() {
    let mut named = 0;
    let mut wrong = Vec::new();
    for path in all_files() {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if path.extension().is_none_or(|suffix| suffix != "md") || path.ends_with("CHANGELOG.md") {
            continue;
        }
        let files = source_files(&text);
        named += files.len();
        let absent = files.into_iter().filter(|file| !is_there(file));
        wrong.extend(absent.map(|file| format!("{}: {file}", path.display())));
    }
    assert!(named > 50, "{named} files are named");
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The check sees a file that is not there.
    let text = "see `server/absent.rs`, `main.rs` and `src/main.rs`";
    let files = source_files(text);
    assert_eq!(files, ["server/absent.rs", "src/main.rs"]);
    assert!(!is_there(files[0]) && is_there(files[1]));
}

/// The modules that a file declares outside of its functions, but for its tests.
fn declared(text: &str) -> BTreeSet<&str> {
    let heads = ["mod ", "pub mod ", "pub(super) mod ", "pub(crate) mod "];
    let names = text.lines().filter_map(|line| {
        let rest = heads.iter().find_map(|head| line.strip_prefix(head))?;
        rest.strip_suffix(';')
    });
    names.filter(|name| !name.ends_with("tests")).collect()
}

/// The modules in the table at the head of a file, if it has one.
fn tabled(text: &str) -> Option<BTreeSet<&str>> {
    let rows = text.lines().take_while(|line| line.starts_with("//!")).skip_while(|line| {
        !line.starts_with("//! | file |")
            && !line.starts_with("//! | folder |")
            && !line.starts_with("//! | module |")
    });
    let cells: Vec<&str> = rows.skip(2).filter_map(|row| row.split('|').nth(1)).collect();
    let names = cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2));
    (!cells.is_empty()).then(|| names.filter(|name| !name.ends_with("tests")).collect())
}

/// The table of a folder and its modules are compared by their names alone.
#[test]
fn the_table_of_each_folder_has_its_modules_and_no_others() {
    let mut wrong = Vec::new();
    let mut tables = 0;
    let files = all_files().into_iter().filter(|path| {
        let inside = path.strip_prefix(ROOT).unwrap_or(path);
        ["src", "shards/src", "io/src"].iter().any(|crate_| inside.starts_with(crate_))
            && ["mod.rs", "lib.rs"].iter().any(|name| path.ends_with(name))
    });
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let modules = declared(&text);
        let Some(table) = tabled(&text) else {
            if modules.len() > 1 {
                wrong.push(format!("{}: no table", path.display()));
            }
            continue;
        };
        tables += 1;
        let differ = modules.symmetric_difference(&table);
        wrong.extend(differ.map(|name| format!("{}: {name}", path.display())));
    }
    assert!(tables > 50, "{tables} tables");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn canary_a_module_without_a_row_and_a_row_without_a_module_are_seen() {
    let text = "//! Things.\n//!\n//! | file | responsibility |\n//! |---|---|\n//! | `a`, `b` | x |\n\n\
                mod a;\npub(super) mod c;\n#[cfg(test)]\nmod tests;\nmod inner {}\n";
    let (modules, table) = (declared(text), tabled(text).unwrap());
    let differ: Vec<&&str> = modules.symmetric_difference(&table).collect();
    assert_eq!(differ, [&"b", &"c"]);
    assert_eq!(tabled("//! Nothing.\nmod a;\n"), None);
}
