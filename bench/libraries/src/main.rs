//! Parts of corq that are written by hand, beside the libraries that could do them: instructions per call, and what
//! each makes of cases in which they differ.
//!
//! `libraries` counts (it runs itself under `valgrind --tool=callgrind`, so a loaded machine changes nothing); `libraries cases`
//! shows the cases; `libraries run TASK CONTENDER TIMES` is what is counted.

mod cases;
mod codecs;
mod schedules;

use std::collections::BTreeMap;
use std::process::Command;

/// Does a task in one way, so many times.
type Run = fn(u64);

/// A task, and ours and the libraries' ways to do it: ours first.
pub struct Task {
    name: &'static str,
    ways: &'static [(&'static str, Run)],
}

/// A count is the difference of two runs, so that neither start nor preparation is in it.
const FEW: u64 = 20;
const MANY: u64 = 220;

fn tasks() -> impl Iterator<Item = &'static Task> {
    codecs::TASKS.iter().chain(schedules::TASKS)
}

/// Instructions of this program when it does something so many times.
fn instructions(task: &str, way: &str, times: u64) -> Result<u64, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(own)
        .args(["run", task, way, &times.to_string()])
        .output()
        .map_err(|error| format!("valgrind cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = said.lines().find_map(|line| line.split_once("Collected : "));
    let count = count.and_then(|(_, count)| count.trim().parse().ok());
    count.ok_or_else(|| format!("{task}, {way}: {said}"))
}

fn count(only: Option<&str>) -> Result<(), String> {
    println!("| task | way | instructions | / ours |\n|---|---|---|---|");
    for task in tasks().filter(|task| only.is_none_or(|only| task.name.contains(only))) {
        let mut ours = None;
        for (way, _) in task.ways {
            let spent = instructions(task.name, way, MANY)? - instructions(task.name, way, FEW)?;
            let each = spent as f64 / (MANY - FEW) as f64;
            let ratio = each / *ours.get_or_insert(each);
            println!("| {} | {way} | {each:.0} | {ratio:.2} |", task.name);
        }
    }
    Ok(())
}

fn run(task: &str, way: &str, times: u64) -> Result<(), String> {
    let task = tasks().find(|one| one.name == task).ok_or("no such task")?;
    let ways: BTreeMap<&str, Run> = task.ways.iter().copied().collect();
    ways.get(way).ok_or("no such way")?(times);
    Ok(())
}

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => count(None),
        ["count", only] => count(Some(only)),
        ["cases"] => {
            cases::show();
            Ok(())
        }
        ["run", task, way, times] => {
            run(task, way, times.parse().map_err(|_| "TIMES is a number")?)
        }
        _ => Err("libraries [count TASK | cases | run TASK WAY TIMES]".into()),
    }
}
