//! Output that pages show, beside what the program prints.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::page::{Page, pages};
use super::{Scene, repository};
use crate::support::Server;
use crate::support::tool::Tool;

fn page(name: &str) -> Page {
    pages(&repository()).into_iter().find(|page| page.name == name).unwrap()
}

/// A line without what differs from run to run: figures and paths.
fn shape(line: &str) -> String {
    let word = |word: &str| {
        if word.contains('/') {
            "<path>".to_owned()
        } else {
            word.chars().map(|it| if it.is_ascii_digit() { '0' } else { it }).collect()
        }
    };
    let words: Vec<String> = line.split_whitespace().map(word).collect();
    let mut text = words.join(" ");
    while text.contains("00") {
        text = text.replace("00", "0");
    }
    text
}

#[test]
fn the_line_of_a_start_is_the_one_that_the_page_shows() {
    let page = page("docs/operations.md");
    let shown = page.block("INFO corq");
    let server = Server::start_default();
    let output = server.output();
    let line = output.lines().find(|line| line.contains(" serves tcp ")).unwrap();
    let (_, line) = line.split_once("  ").unwrap();
    assert_eq!(shape(line), shape(shown[0]));
}

#[test]
fn a_frame_and_its_answer_are_the_bytes_that_the_page_shows() {
    let page = page("docs/protocol.md");
    let shown = page.block("00 00 00 ");
    let bytes = |line: &str| {
        let (frame, _) = line.split_once("  {").unwrap();
        let mut bytes = Vec::new();
        for word in frame.split_whitespace() {
            match word.strip_prefix('"') {
                Some(text) => bytes.extend_from_slice(text.trim_end_matches('"').as_bytes()),
                None => bytes.push(u8::from_str_radix(word, 16).unwrap()),
            }
        }
        bytes
    };
    let (request, expected) = (bytes(shown[0]), bytes(shown[1]));
    let server = Server::start_default();
    let mut socket = TcpStream::connect(("127.0.0.1", server.tcp)).unwrap();
    socket.write_all(&request).unwrap();
    let mut head = [0; 4];
    socket.read_exact(&mut head).unwrap();
    let mut reply = vec![0; u32::from_be_bytes(head) as usize];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!([&head[..], &reply].concat(), expected);
}

#[test]
fn a_doctor_speaks_as_the_page_shows() {
    let page = page("docs/cli.md");
    let shown = page.block("      CHECK");
    let report = Tool::at(1).run(&["doctor", "--no-server"]).out;
    let printed: Vec<&str> = report.lines().collect();
    let heads = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(heads(printed[0]), heads(shown[0]));
    for line in shown[1..].iter().take_while(|line| **line != "...") {
        let check = line[6..].split("  ").next().unwrap();
        assert!(
            printed.iter().any(|it| it.get(6..).is_some_and(|it| it.starts_with(check))),
            "{check}"
        );
    }
    // Advice begins with the check that it is about.
    let advice = shown.last().unwrap();
    assert!(advice.starts_with("open files: "), "{advice}");
}

#[test]
fn a_backup_says_of_itself_what_the_page_shows() {
    let page = page("docs/log-format.md");
    let shown = page.block("version = 1");
    let mut scene = Scene::new();
    scene.run("corq backup /backup/monday --data-path /var/lib/corq").unwrap();
    let marker = std::fs::read_to_string(scene.dir.path().join("backup/monday/BACKUP")).unwrap();
    let key = |line: &str| line.split(" = ").next().unwrap().to_owned();
    let keys: Vec<String> = marker.lines().map(key).collect();
    let expected: Vec<String> =
        shown.iter().filter(|line| **line != "...").map(|line| key(line)).collect();
    assert_eq!(keys[..expected.len()], expected);
    let version = format!("corq = {}", env!("CARGO_PKG_VERSION"));
    assert!(shown[1].starts_with(&version) && marker.contains(&version), "{marker}");
}
