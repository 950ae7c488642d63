//! Crates that the manifests name are crates that the code needs: one that no line names is built, audited and updated
//! for nothing.

use std::path::Path;

use crate::tidy::ROOT;

/// The names below one heading of a manifest, such as `[dependencies]`.
fn named(manifest: &str, heading: &str) -> Vec<String> {
    let below = manifest.lines().skip_while(|line| *line != heading).skip(1);
    below
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// The crates of the workspace, by the directories of their manifests.
fn members(manifest: &str) -> Vec<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("members = ["));
    let others = line.unwrap_or_default().split('"').skip(1).step_by(2).map(str::to_owned);
    std::iter::once(".".to_owned()).chain(others).collect()
}

/// All code below a directory but that of crates within it.
fn code_below(dir: &Path, code: &mut String) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.join("Cargo.toml").exists() {
            code_below(&path, code);
        } else if path.extension().is_some_and(|suffix| suffix == "rs") {
            code.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

/// The crates that no line of `code` names.
fn unused(crates: &[String], code: &str) -> Vec<String> {
    let is_used = |name: &String| {
        let name = name.replace('-', "_");
        [format!("{name}::"), format!("use {name};"), format!("use {name} as _;")]
            .iter()
            .any(|naming| code.contains(naming))
    };
    crates.iter().filter(|name| !is_used(name)).cloned().collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_dependency_is_named_by_the_code_that_asks_for_it() {
    let root = Path::new(ROOT);
    let workspace = read(&root.join("Cargo.toml"));
    let mut wrong = Vec::new();
    let mut asked_for = Vec::new();
    for member in members(&workspace) {
        let dir = root.join(&member);
        let manifest = read(&dir.join("Cargo.toml"));
        let own = named(&manifest, "[package]");
        assert!(own.contains(&"name".to_owned()), "{member} has a manifest");
        let code = |places: &[&str]| {
            let mut code = String::new();
            for place in places {
                code_below(&dir.join(place), &mut code);
            }
            code
        };
        let (needed, wanted_by_tests) =
            (named(&manifest, "[dependencies]"), named(&manifest, "[dev-dependencies]"));
        // A directory of the workspace that is a crate of tests has them beside its manifest.
        let product = if dir.join("src").exists() { code(&["src"]) } else { code(&["."]) };
        wrong.extend(unused(&needed, &product).into_iter().map(|name| format!("{member}: {name}")));
        let tests = code(&["src", "tests", "examples"]);
        let wrong_of_tests = unused(&wanted_by_tests, &tests);
        wrong.extend(wrong_of_tests.into_iter().map(|name| format!("{member}, tests: {name}")));
        asked_for.extend(needed);
        asked_for.extend(wanted_by_tests);
    }
    let shared = named(&workspace, "[workspace.dependencies]");
    assert!(shared.len() > 30 && asked_for.len() > 60, "{shared:?} {asked_for:?}");
    let left_over = shared.into_iter().filter(|name| !asked_for.contains(name));
    wrong.extend(left_over.map(|name| format!("workspace: {name}")));
    assert!(wrong.is_empty(), "no line names {wrong:#?}");
}

#[test]
fn canary_a_dependency_that_no_line_names_is_seen() {
    let manifest = "[dependencies]\nserde = \"1\"\n# Why.\ncrc-one = { path = \"x\" }\n\n[dev-dependencies]\nother = \"1\"\n";
    let crates = named(manifest, "[dependencies]");
    assert_eq!(crates, ["serde", "crc-one"]);
    assert_eq!(unused(&crates, "use serde::Serialize; // crc-one"), ["crc-one"]);
    assert!(unused(&crates, "use serde::Serialize; crc_one::sum()").is_empty());
}
