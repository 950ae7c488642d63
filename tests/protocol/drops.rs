//! The order in which parts of the server are dropped. Rust drops fields as they are declared, which no type says.

use std::fs;
use std::path::Path;

use crate::tidy::ROOT;

/// The names of the fields of a structure, as they are declared.
fn fields<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let begin = text.find(&format!("pub struct {name} {{")).expect("the structure is there");
    let body = text[begin..].split("\n}").next().unwrap_or_default().lines().skip(1);
    let lines = body.map(str::trim).filter(|line| !line.starts_with("//"));
    lines.filter_map(|line| Some(line.split_once(": ")?.0.trim_start_matches("pub "))).collect()
}

/// Operations that the ring has queued name descriptors of the log: if the log closed them first, a write could reach a
/// file that was opened since under the same number.
#[test]
fn an_event_loop_gives_up_its_ring_before_the_files_of_its_log() {
    let path = Path::new(ROOT).join("src/server/event_loop/mod.rs");
    let text = fs::read_to_string(path).unwrap();
    let fields = fields(&text, "EventLoop");
    let place = |name: &str| fields.iter().position(|field| *field == name).unwrap();
    assert!(place("reactor") < place("server"), "{fields:?}");
}
