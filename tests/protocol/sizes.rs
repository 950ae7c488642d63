//! How large things are: methods and fields of the two central types, lines of a file, lines of the product and of its tests.
//! Figures only fall. A feature is a type that owns its fields, so neither central type needs a method for it; one that needs
//! more lines than are left raises the figure in a commit that says why they are worth it.

use std::path::{Path, PathBuf};

use super::tidy::{ROOT, gather};

/// A central type: its name, the sources of its crate, and at most so many methods and fields.
const CENTRAL: [(&str, &str, usize, usize); 2] =
    [("ShardServer", "src", 663, 70), ("Shard", "shards/src", 489, 56)];

/// Lines of a file of code.
const FILE_LINES_MAX: usize = 600;

/// Where the product is. Files that are called `tests.rs` or end so, and what of others begins with their tests, are counted
/// with the tests.
const PRODUCT: [&str; 4] = ["src", "shards/src", "io/src", "clients/rust/src"];

/// Where only tests are.
const TESTS: [&str; 5] = ["tests", "shards/tests", "io/tests", "clients/rust/tests", "bench/tests"];

/// Lines of the product and of tests, in thousands.
const LINES_MAX: (usize, usize) = (144, 104);

fn sources(places: &[&str]) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for place in places.iter().map(|place| Path::new(ROOT).join(place)).filter(|it| it.exists()) {
        gather(&place, &mut files);
    }
    files.retain(|path| path.extension().is_some_and(|suffix| suffix == "rs"));
    files.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The code of a file without the tests at its end.
fn without_tests(text: &str) -> &str {
    &text[..text.find("\n#[cfg(test)]\nmod tests").unwrap_or(text.len())]
}

/// The lines between one that begins an item and its end.
fn items<'a>(text: &'a str, head: &str) -> impl Iterator<Item = &'a str> {
    let begins = text.match_indices(head).map(|(at, _)| at).collect::<Vec<_>>();
    let starts_line = |at: &usize| *at == 0 || text[..*at].ends_with('\n');
    begins.into_iter().filter(starts_line).flat_map(move |at| {
        let item = &text[at..];
        item[..item.find("\n}").unwrap_or(item.len())].lines()
    })
}

fn methods(text: &str, name: &str) -> usize {
    let is_method = |line: &&str| {
        let line = line.strip_prefix("    ").unwrap_or_default();
        let public = line.strip_prefix("pub").map_or(line, |rest| {
            rest.split_once(") ")
                .filter(|_| rest.starts_with('('))
                .map_or(rest.trim_start(), |it| it.1)
        });
        ["fn ", "const fn ", "async fn "].iter().any(|begin| public.starts_with(begin))
    };
    items(text, &format!("impl {name} {{\n")).filter(is_method).count()
}

fn fields(text: &str, name: &str) -> usize {
    let is_field = |line: &&str| {
        let line = line.strip_prefix("    ").unwrap_or_default();
        line.starts_with(char::is_alphabetic) && line.contains(": ")
    };
    items(text, &format!("pub struct {name} {{\n")).filter(is_field).count()
}

#[test]
fn the_central_types_have_no_more_methods_and_fields_than_they_had() {
    for (name, place, methods_max, fields_max) in CENTRAL {
        let sources = sources(&[place]);
        let count = |of: fn(&str, &str) -> usize| -> usize {
            sources.iter().map(|(_, text)| of(without_tests(text), name)).sum()
        };
        let (methods, fields) = (count(methods), count(fields));
        println!("{name}: {methods} methods, {fields} fields");
        assert!(fields > 0, "{name} is declared otherwise");
        assert!(
            methods <= methods_max && fields <= fields_max,
            "{name} has {methods} methods (at most {methods_max}) and {fields} fields (at most {fields_max})"
        );
    }
}

#[test]
fn no_file_is_too_long_to_be_read_and_the_whole_grows_no_further() {
    let mut lines = (0, 0);
    let mut long = Vec::new();
    for (places, is_test) in [(&PRODUCT[..], false), (&TESTS, true)] {
        for (path, text) in sources(places) {
            let all = text.lines().count();
            let is_test = is_test || path.to_string_lossy().ends_with("tests.rs");
            let product = if is_test { 0 } else { without_tests(&text).lines().count() };
            lines = (lines.0 + product, lines.1 + all - product);
            if all > FILE_LINES_MAX {
                long.push(format!("{}: {all} lines", path.display()));
            }
        }
    }
    println!("{} lines of the product, {} of tests", lines.0, lines.1);
    assert!(long.is_empty(), "at most {FILE_LINES_MAX} lines: {long:#?}");
    let (product_max, tests_max) = (LINES_MAX.0 * 1000, LINES_MAX.1 * 1000);
    assert!(lines.0 <= product_max, "{} lines of the product, at most {product_max}", lines.0);
    assert!(lines.1 <= tests_max, "{} lines of tests, at most {tests_max}", lines.1);
}

#[test]
fn canary_methods_and_fields_are_counted_of_the_type_itself() {
    let text = "pub struct A {\n    /// About: b.\n    pub(super) b: u8,\n    c: u8,\n}\n\nimpl A {\n    pub(crate) fn d() {\n        \
                fn inner() {}\n    }\n\n    fn e() {}\n}\n\nimpl A {\n    pub const fn f() {}\n}\n\nimpl B for A {\n    fn g() {}\n}\n\
                impl AB {\n    fn h() {}\n}\n";
    assert_eq!((methods(text, "A"), fields(text, "A")), (3, 2));
    let (own, tests) = ("fn a() {}\n", "\n#[cfg(test)]\nmod tests {}\n");
    assert_eq!(without_tests(&format!("{own}{tests}")), own);
}
