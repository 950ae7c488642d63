//! The imports of each crate: which module names which, how large the circles among them are, and how many
//! imports run against the order of the rest. The figures below are what there is; they may only fall.
//!
//! It is read as text: paths that begin with `crate`, `super` or `self`, in imports and in code, each to the longest
//! module that it names. Tests at the end of a file do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::tidy::{ROOT, gather};

/// Of a crate: its sources, at most so many modules in its largest circle, and at most so many imports that run backwards.
const CRATES: [(&str, usize, usize); 4] =
    [("src", 32, 42), ("shards/src", 47, 46), ("io/src", 0, 0), ("clients/rust/src", 16, 10)];

type Module = Vec<String>;
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// Where the tests begin at the end of a file, which may have attributes of their own.
fn tests_at(text: &str) -> Option<usize> {
    const MARK: &str = "\n#[cfg(test)]\n";
    text.match_indices(MARK).map(|(at, _)| at).find(|at| {
        let mut behind = text[at + MARK.len()..].lines();
        behind.find(|line| !line.starts_with("#[")) == Some("mod tests {")
    })
}

/// Code without comments, texts, and the tests at its end.
fn code(text: &str) -> String {
    let text = &text[..tests_at(text).unwrap_or(text.len())];
    let without_comment = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(without_comment).collect::<Vec<_>>().join("\n")
}

/// All paths that an import names: its braces written out.
fn written_out(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        found.push(format!("{prefix}{path}"));
        return;
    };
    let prefix = format!("{prefix}{}", tree[..open].trim());
    let inner = tree[open + 1..].trim_end().trim_end_matches('}');
    let (mut depth, mut begin) = (0, 0);
    for (at, one) in inner.char_indices().chain([(inner.len(), ',')]) {
        match one {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[begin..at].trim().is_empty() {
                    written_out(&prefix, &inner[begin..at], found);
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
}

fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = String::new();
    for (number, statement) in code.split(';').enumerate() {
        let begin = statement.find("use ").filter(|&at| {
            let before = statement[..at].trim_end();
            before.is_empty() || before.ends_with([')', ']', '}', '\n']) || before.ends_with("pub")
        });
        match begin {
            Some(at) => written_out("", &statement[at + 4..], &mut found),
            None => rest.extend([if number > 0 { ";" } else { "" }, statement]),
        }
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = rest.split(|c| !is_part(c)).filter(|word| word.contains("::"));
    found.extend(words.map(str::to_owned));
    found
}

/// The module that a path names from `module`, as far as it is one of the crate's.
fn target(path: &str, module: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    let mut parts = path.split("::").map(str::trim).peekable();
    let mut at = match parts.next()? {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module.split_last()?.1.to_vec(),
        _ => return None,
    };
    while parts.next_if(|part| *part == "super").is_some() {
        at.pop()?;
    }
    at.extend(parts.map(str::to_owned));
    while !modules.contains(&at) {
        at.pop()?;
    }
    Some(at)
}

fn graph(source: &Path) -> Graph {
    let mut files = Vec::new();
    gather(source, &mut files);
    let named = files.iter().filter_map(|file| {
        let inside = file.strip_prefix(source).ok()?.with_extension("");
        let mut module: Module =
            inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if ["mod", "lib", "main"].contains(&module.last()?.as_str()) {
            module.pop();
        }
        let is_test = module.last().is_some_and(|name| name.ends_with("tests"));
        (!is_test).then_some((module, std::fs::read_to_string(file).ok()?))
    });
    let texts: Vec<(Module, String)> = named.collect();
    let modules: BTreeSet<Module> = texts.iter().map(|(module, _)| module.clone()).collect();
    let mut graph = Graph::new();
    for (module, text) in &texts {
        let code = code(text);
        let targets = paths(&code).into_iter().filter_map(|it| target(&it, module, &modules));
        let others = targets.filter(|other: &Module| other != module);
        let imported: BTreeSet<Module> = others.collect();
        graph.insert(module.clone(), imported);
    }
    graph
}

/// All that can be reached from a module.
fn reached(graph: &Graph, from: &Module) -> BTreeSet<Module> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(module) = open.pop() {
        for next in graph.get(&module).into_iter().flatten() {
            if seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    seen
}

/// The circles: modules that reach each other.
fn circles(graph: &Graph) -> Vec<BTreeSet<Module>> {
    let reach: BTreeMap<&Module, BTreeSet<Module>> =
        graph.keys().map(|module| (module, reached(graph, module))).collect();
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for module in graph.keys().filter(|module| reach[*module].contains(*module)) {
        if seen.contains(module) {
            continue;
        }
        let circle: BTreeSet<Module> =
            reach[module].iter().filter(|other| reach[*other].contains(module)).cloned().collect();
        seen.extend(circle.iter().cloned());
        found.push(circle);
    }
    found
}

/// How many imports within a circle run against an order of its modules: the one of Eades, Lin and Smyth,
/// which puts next whatever has most more imports out of it than into it.
fn backwards(graph: &Graph, circle: &BTreeSet<Module>) -> usize {
    let within = |module: &Module, left: &BTreeSet<Module>| {
        graph[module].iter().filter(|other| left.contains(*other)).count()
    };
    let (mut left, mut count) = (circle.clone(), 0);
    while !left.is_empty() {
        let into = |module: &Module| left.iter().filter(|it| graph[*it].contains(module)).count();
        let ends = |module: &&Module| into(module) == 0 || within(module, &left) == 0;
        let next = left.iter().find(ends).cloned().unwrap_or_else(|| {
            let gain = |it: &Module| within(it, &left).cast_signed() - into(it).cast_signed();
            left.iter().max_by_key(|it| (gain(it), (*it).clone())).cloned().unwrap_or_default()
        });
        // Imports of the next module by those that are left run backwards; its own imports of them run forwards.
        let is_end = within(&next, &left) == 0;
        count += if is_end { 0 } else { into(&next) };
        left.remove(&next);
    }
    count
}

/// The modules in the largest circle of a crate, and the imports in circles that run backwards.
fn figures(graph: &Graph) -> (usize, usize) {
    let circles = circles(graph);
    let largest = circles.iter().map(BTreeSet::len).max().unwrap_or(0);
    (largest, circles.iter().map(|circle| backwards(graph, circle)).sum())
}

#[test]
fn no_crate_has_more_circles_of_imports_than_it_had() {
    let found = CRATES.map(|(source, ..)| {
        let graph = graph(&Path::new(ROOT).join(source));
        let (largest, backwards) = figures(&graph);
        let arrows: usize = graph.values().map(BTreeSet::len).sum();
        println!(
            "{source}: {} modules, {arrows} imports, {largest} in a circle, {backwards} backwards",
            graph.len()
        );
        (source, largest, backwards)
    });
    for ((source, largest, backwards), (_, largest_max, backwards_max)) in found.iter().zip(CRATES)
    {
        assert!(
            *largest <= largest_max && *backwards <= backwards_max,
            "{source}: {largest} modules in the largest circle (at most {largest_max}), {backwards} imports \
             run backwards (at most {backwards_max})"
        );
    }
}

#[test]
fn canary_a_circle_is_seen_and_an_import_against_the_order_counted() {
    let module = |name: &str| vec![name.to_owned()];
    let imports = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c"), ("c", "d")];
    let mut graph = Graph::new();
    for (from, to) in imports {
        graph.entry(module(from)).or_default().insert(module(to));
        graph.entry(module(to)).or_default();
    }
    assert_eq!(figures(&graph), (3, 1));
    graph.get_mut(&module("c")).unwrap().remove(&module("a"));
    assert_eq!(figures(&graph), (0, 0));
}

#[test]
fn canary_imports_are_found_in_braces_in_code_and_upwards() {
    for tests in ["#[cfg(test)]\n", "#[cfg(test)]\n#[allow(clippy::unwrap_used)]\n"] {
        let text = "//! crate::no\nuse crate::{a::{B, c::D}, e};\npub use super::f::G;\nfn h() { crate::i::j() }\n"
            .to_owned() + tests + "mod tests {\n use crate::k;\n}\n";
        let found: BTreeSet<String> = paths(&code(&text)).into_iter().collect();
        let expected = ["crate::a::B", "crate::a::c::D", "crate::e", "super::f::G", "crate::i::j"];
        assert_eq!(found, expected.map(str::to_owned).into());
    }
}
