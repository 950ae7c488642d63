//! The power goes at the moment at which a tool has said that it is done. The fear: what it has put together was not on the
//! disk, nor the directories above it.
//!
//! Each tool runs on a file system of the test's own, where nothing outlives the power but what was synced; where a test may
//! not mount one, these do nothing and say so. That they would see a sync that is left out is tried by leaving out some.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use crate::crash::volatile::Volatile;
use crate::support::tool::Tool;
use crate::support::{Server, Start, copy};

/// All below a directory: the bytes of files, and none for directories. Who has it is of the moment.
fn content(path: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let Ok(entries) = fs::read_dir(path) else { return found };
    for entry in entries.map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.insert(path.clone(), None);
            found.extend(content(&path));
        } else if !path.ends_with("LOCK") {
            found.insert(path.clone(), Some(fs::read(&path).unwrap()));
        }
    }
    found
}

/// Directories to begin with, made once: a data directory, a backup of it, and a damaged one.
struct Prepared {
    home: TempDir,
}

impl Prepared {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        let mut server: Server = Start::new().env("SHARDS", 1).start_at(&data);
        let mut client = server.client();
        for number in 0..40 {
            client.push_with(&format!("q-{number}"), json!({"n": number}), json!({}));
        }
        drop(client);
        assert!(server.terminate().success());
        let path = |name: &str| home.path().join(name);
        let text = |name: &str| path(name).to_str().unwrap().to_owned();
        let tool = Tool::at(1).env("DATA_PATH", data.display());
        tool.ok(&["backup", &text("backup")]);
        copy(&data, &path("damaged"));
        let shard = path("damaged").join("shard-0000");
        let mut segments: Vec<PathBuf> =
            fs::read_dir(&shard).unwrap().map(|entry| entry.unwrap().path()).collect();
        segments.retain(|path| path.extension().is_some_and(|it| it == "seg"));
        segments.sort();
        let mut bytes = fs::read(&segments[0]).unwrap();
        bytes[4096 + 100] ^= 0x20;
        fs::write(&segments[0], bytes).unwrap();
        Self { home }
    }
}

/// A run of a tool: on what, with which words, and what of the disk it has made or changed.
struct Run {
    name: &'static str,
    from: &'static str,
    words: &'static [&'static str],
    made: &'static str,
}

/// `@` stands for the disk.
const RUNS: [Run; 4] = [
    Run { name: "backup", from: "data", words: &["backup", "@/new/deep/copy"], made: "new" },
    Run {
        name: "copy",
        from: "data",
        words: &["backup", "--copy", "@/new/deep/copy"],
        made: "new",
    },
    Run {
        name: "restore",
        from: "backup",
        words: &["restore", "@/from", "@/new/deep/data"],
        made: "new",
    },
    Run {
        name: "repair",
        from: "damaged",
        words: &["log", "repair", "@/from", "--to", "@/new/deep/data"],
        made: "new",
    },
];

/// Files that are not as the tool left them when the power is back, and how many syncs there were. The sync with the
/// number `skipped` is left out.
fn gone(prepared: &Prepared, run: &Run, skipped: Option<u64>) -> Option<(Vec<PathBuf>, u64)> {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = Volatile::new(&dir.path().join("disk"))?;
    let root = disk.path().to_str().unwrap().to_owned();
    copy(&prepared.home.path().join(run.from), &disk.path().join("from"));
    disk.settle();
    let before = disk.syncs();
    disk.skip_sync(skipped.map(|number| before + number));
    let words: Vec<String> = run.words.iter().map(|word| word.replace('@', &root)).collect();
    Tool::at(1).env("DATA_PATH", format!("{root}/from")).ok(&words);
    let syncs = disk.syncs() - before;
    let made = disk.path().join(run.made);
    let left = content(&made);
    assert!(left.len() > 4, "{}: {left:?}", run.name);
    disk.cut_to_what_was_synced();
    let found = content(&made);
    let names = left.keys().chain(found.keys());
    let mut gone: Vec<PathBuf> =
        names.filter(|it| left.get(*it) != found.get(*it)).cloned().collect();
    gone.dedup();
    Some((gone, syncs))
}

#[test]
fn what_a_tool_says_is_done_outlives_the_power_with_all_directories_above_it() {
    let prepared = Prepared::new();
    for run in &RUNS {
        let Some((lost, _)) = gone(&prepared, run, None) else {
            eprintln!("no file system can be mounted here: not tried");
            return;
        };
        assert!(lost.is_empty(), "{}: {lost:?} went with the power", run.name);
    }
}

/// Of those that are left out one by one, some are of what had been synced before, or is again: others are missed.
#[test]
fn canary_a_sync_that_a_tool_leaves_out_is_missed() {
    let prepared = Prepared::new();
    for run in &RUNS {
        let Some((_, syncs)) = gone(&prepared, run, None) else { return };
        // Each takes seconds where all is slow; the last makes the name of what was done durable.
        let numbers = (0..syncs).rev().step_by(4);
        let tried: Vec<bool> = numbers
            .filter_map(|number| Some(!gone(&prepared, run, Some(number))?.0.is_empty()))
            .collect();
        assert!(tried.contains(&true), "{}: of {syncs} syncs none is missed", run.name);
    }
}
