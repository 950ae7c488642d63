//! The command line, tried as the program that people run, against the real server. The fear: a tool
//! that says done when it is not, or hides why.

mod backup;
mod basics;
mod bulk;
mod demo;
mod doctor;
mod fake;
mod fake_redis;
mod follow;
mod group;
mod health;
mod job;
mod keeping;
mod limits;
mod log;
mod moving;
mod numbers;
mod owner;
mod push;
mod queue;
mod raw;
mod repair;
mod rest;
mod schedules;
mod terminal;
mod typed;
mod webhook;
mod work;

use std::fs;
use std::path::Path;

use crate::shared;
use crate::support::tool::Tool;

/// The program, pointed at the server that tests share.
fn tool() -> Tool {
    Tool::of(shared())
}

/// Pushes one job with the program; answers its id.
fn push(tool: &Tool, queue: &str, data: &str) -> String {
    tool.ok(&["push", queue, data]).trim().to_owned()
}

/// The names of what lies in a directory, in order.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
