//! Backups and restores beside what is not theirs. The fear: a tool that is to save something removes what it
//! finds in its way, or says that all went well over a copy that another one has broken.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::names;
use crate::support::tool::{Ran, Tool, line_of};
use crate::support::{Server, Start, until};

fn small() -> Start {
    Start::new().env("SEGMENT_MB", 16).env("PAYLOAD_CACHE_MB", 4)
}

fn tool(data: &Path) -> Tool {
    Tool::at(1).env("DATA_PATH", data.display())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The data directory of a stopped server with a job in it.
fn stopped(data: &Path) -> String {
    let mut server = small().start_at(data);
    let id = server.client().push("kept", json!({"n": 1}));
    assert!(server.terminate().success());
    id
}

/// All files of a directory with their bytes.
fn content(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(content(&path));
        } else if !path.ends_with("LOCK") {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// Directories with files that a backup has pinned in a data directory.
fn pins(data: &Path) -> Vec<String> {
    let mut names = names(data);
    names.retain(|name| name.starts_with("backup-pins"));
    names
}

#[test]
fn a_backup_removes_neither_the_data_directory_nor_anything_else_beside_its_target() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data.partial");
    stopped(&data);
    let photos = home.path().join("monday.partial/photos");
    fs::create_dir_all(&photos).unwrap();
    fs::write(photos.join("cat"), "meow").unwrap();
    let before = content(&data);
    tool(&data).ok(&["backup", text(&home.path().join("data"))]);
    assert!(content(&data) == before, "the data directory is what it was");
    tool(&data).ok(&["backup", text(&home.path().join("monday"))]);
    assert_eq!(fs::read_to_string(photos.join("cat")).unwrap(), "meow");
    assert_eq!(names(home.path()), ["data", "data.partial", "monday", "monday.partial"]);
}

#[test]
fn a_restore_leaves_its_backup_alone_whatever_both_are_called() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let id = stopped(&data);
    let (backup, to) = (home.path().join("m.partial"), home.path().join("m"));
    tool(&data).ok(&["backup", text(&backup)]);
    let before = content(&backup);
    Tool::at(1).ok(&["restore", text(&backup), text(&to)]);
    assert!(content(&backup) == before, "the backup is what it was");
    assert_eq!(names(home.path()), ["data", "m", "m.partial"]);
    let restored = small().start_at(&to);
    assert_eq!(restored.client().state(&id), "waiting");
}

#[test]
fn no_target_lies_in_its_source_by_whatever_path() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    stopped(&data);
    let backup = home.path().join("backup");
    tool(&data).ok(&["backup", text(&backup)]);
    let (to_data, to_backup) = (home.path().join("to-data"), home.path().join("to-backup"));
    symlink(&data, &to_data).unwrap();
    symlink(&backup, &to_backup).unwrap();
    let before = (content(&data), content(&backup));
    let shard = to_data.join("shard-0000");
    for inside in [&data, &to_data, &shard] {
        let line = tool(&data).fails(1, &["backup", text(&inside.join("new/one"))]);
        assert!(line.contains("no backup") && line.contains("lies in"), "{line}");
        let line = tool(&to_data).fails(1, &["backup", text(&inside.join("one"))]);
        assert!(line.contains("no backup"), "{line}");
    }
    // A backup in a backup, and a data directory in a backup.
    for inside in [&backup, &to_backup] {
        let line = tool(&data).fails(1, &["backup", text(&inside.join("one"))]);
        assert!(line.contains("lies in"), "{line}");
        let line = Tool::at(1).fails(1, &["restore", text(&backup), text(&inside.join("one"))]);
        assert!(line.contains("lies in"), "{line}");
        let line = Tool::at(1).fails(1, &["restore", text(&backup), text(inside)]);
        assert!(line.contains("is not empty"), "{line}");
    }
    assert!((content(&data), content(&backup)) == before, "nothing has changed");
    assert_eq!(names(&data), names(&to_data));
    assert_eq!(names(home.path()), ["backup", "data", "to-backup", "to-data"]);
}

#[test]
fn a_target_that_is_a_dangling_link_is_refused_before_anything_is_copied() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    stopped(&data);
    let backup = home.path().join("backup");
    tool(&data).ok(&["backup", text(&backup)]);
    let link = home.path().join("link");
    symlink(home.path().join("nowhere"), &link).unwrap();
    for words in [vec!["backup", text(&link)], vec!["restore", text(&backup), text(&link)]] {
        let Ran { code, err, .. } = tool(&data).run(&words);
        let line = line_of(&err);
        assert_eq!(code, Some(1), "{line}");
        assert!(line.contains("is a symbolic link to") && line.contains("nowhere"), "{line}");
    }
    assert_eq!(names(home.path()), ["backup", "data", "link"]);
    // A link to an empty directory means that directory.
    let real = home.path().join("real");
    fs::create_dir(&real).unwrap();
    fs::remove_file(&link).unwrap();
    symlink(&real, &link).unwrap();
    Tool::at(1).ok(&["restore", text(&backup), text(&link)]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(real.join("MANIFEST").exists());
}

/// Starts them at once and waits for all.
fn race(commands: Vec<Child>) -> Vec<Output> {
    commands.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

/// Checks that one of them has won, and that the others say that they have not, and why.
fn one_wins(outputs: &[Output]) {
    let won = outputs.iter().filter(|output| output.status.success()).count();
    assert_eq!(won, 1, "{outputs:?}");
    for output in outputs.iter().filter(|output| !output.status.success()) {
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = line_of(&err);
        let says = line.contains("is being made by ") || line.contains("is not empty");
        assert!(output.status.code() == Some(1) && says, "{line}");
    }
}

#[test]
fn of_backups_to_one_place_at_once_one_wins_whole_and_the_others_say_so() {
    let mut server = small().start();
    for n in 0..20 {
        server.client().push("kept", json!({"n": n, "text": "x".repeat(10_000)}));
    }
    assert!(server.terminate().success());
    let home = tempfile::tempdir().unwrap();
    for round in 0..8 {
        let to = home.path().join(format!("backup-{round}"));
        let children = (0..4).map(|_| tool(&server.data).start(&["backup", text(&to)]));
        let outputs = race(children.collect());
        one_wins(&outputs);
        let data = home.path().join(format!("data-{round}"));
        let children = (0..4).map(|_| Tool::at(1).start(&["restore", text(&to), text(&data)]));
        one_wins(&race(children.collect()));
        Tool::at(1).ok(&["log", "verify", text(&data)]);
        let stat = Tool::at(1).json(&["log", "stat", text(&data)]);
        assert_eq!(stat["jobs"]["waiting"], 20, "{stat}");
        fs::remove_dir_all(&data).unwrap();
        fs::remove_dir_all(&to).unwrap();
        assert_eq!(names(home.path()), Vec::<String>::new());
    }
}

#[test]
fn a_restored_directory_is_one_of_its_own() {
    let server = small().start();
    server.client().push("kept", json!({"n": 1}));
    let home = tempfile::tempdir().unwrap();
    let (to, data) = (home.path().join("backup"), home.path().join("data"));
    Tool::of(&server).env("DATA_PATH", server.data.display()).ok(&["backup", text(&to)]);
    Tool::at(1).ok(&["restore", text(&to), text(&data)]);
    let id = |path: &Path| {
        let manifest = fs::read_to_string(path.join("MANIFEST")).unwrap();
        manifest.lines().find(|line| line.starts_with("id = ")).unwrap().to_owned()
    };
    assert_eq!(id(&to), id(&server.data));
    assert_ne!(id(&data), id(&server.data));
    let restored = small().start_at(&data);
    assert_eq!(restored.client().counted("kept", "waiting"), 1);
    // The tools tell the two servers apart.
    let strange = Tool::of(&restored).env("DATA_PATH", server.data.display());
    let line = strange.fails(1, &["backup", text(&home.path().join("other"))]);
    assert!(line.contains("another server"), "{line}");
}

/// A backup that hangs, since the server does not answer, and is killed.
fn killed_backup(server: &Server, to: &Path) {
    let frozen = Tool::of(server).env("DATA_PATH", server.data.display());
    server.freeze();
    let mut child = frozen.start(&["backup", text(to)]);
    let pinned = || {
        let within = pins(&server.data).into_iter().map(|name| server.data.join(name));
        let mut shards = within.chain([to.to_owned()]).map(|path| path.join("shard-0000"));
        shards.any(|shard| fs::read_dir(shard).is_ok_and(|mut it| it.next().is_some()))
    };
    until("files are pinned", || pinned().then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    server.signal(Signal::CONT);
}

#[test]
fn what_a_killed_backup_leaves_is_shown_and_passes_for_nothing_whole() {
    let server = small().start();
    let to = server.data.with_file_name("monday");
    killed_backup(&server, &to);
    let tool = || Tool::of(&server).env("DATA_PATH", server.data.display());
    let shown = tool().run(&["doctor"]).out;
    assert!(shown.contains("leftovers") && shown.contains(text(&to)), "{shown}");
    let left = content(&to);
    let restored = to.with_file_name("restored");
    let line = tool().fails(1, &["restore", text(&to), text(&restored)]);
    assert!(line.contains("was not completed"), "{line}");
    let (status, said) = small().run_to_its_end(&to);
    assert!(!status.success() && said.contains("was not completed"), "{said}");
    let line = tool().fails(1, &["backup", text(&to)]);
    assert!(line.contains("holds a copy that was not completed: remove it"), "{line}");
    assert!(content(&to) == left, "nothing removes it by itself");
    fs::remove_dir_all(&to).unwrap();
    tool().ok(&["backup", text(&to)]);
    let shown = tool().run(&["doctor"]).out;
    assert!(!shown.contains(text(&to)), "{shown}");
}

#[test]
fn what_a_killed_backup_has_pinned_goes_with_the_next_backup_and_the_next_start() {
    let mut server = small().start();
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    if device(home.path()) == device(&server.data) {
        eprintln!("no other file system is here: not tried");
        return;
    }
    killed_backup(&server, &home.path().join("monday"));
    assert_eq!(pins(&server.data).len(), 1);
    let tool = Tool::of(&server).env("DATA_PATH", server.data.display());
    let shown = tool.run(&["doctor"]).out;
    assert!(shown.contains(&pins(&server.data)[0]), "{shown}");
    // A directory without the mark of a backup is left alone.
    fs::create_dir(server.data.join("backup-pins-own")).unwrap();
    tool.ok(&["backup", text(&home.path().join("tuesday"))]);
    assert_eq!(pins(&server.data), ["backup-pins-own"]);
    killed_backup(&server, &home.path().join("wednesday"));
    assert_eq!(pins(&server.data).len(), 2);
    server.terminate();
    server.start();
    assert_eq!(pins(&server.data), ["backup-pins-own"]);
}

#[test]
fn a_backup_that_is_being_made_is_left_alone_by_others() {
    let server = small().start();
    server.client().push("kept", json!({"n": 1}));
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let tool = || Tool::of(&server).env("DATA_PATH", server.data.display());
    // The backup cannot end while the server is silent, nor while it stands still itself.
    server.freeze();
    let first = tool().start(&["backup", text(&path("first"))]);
    until("its mark", || path("first").join("UNFINISHED").exists().then_some(()));
    let pid = Pid::from_child(&first);
    kill_process(pid, Signal::STOP).unwrap();
    server.signal(Signal::CONT);
    // A second copy to the first place is refused, with the process that makes the first.
    let line = tool().fails(1, &["backup", text(&path("first"))]);
    assert!(line.contains("is being made by process"), "{line}");
    tool().ok(&["backup", text(&path("second"))]);
    kill_process(pid, Signal::CONT).unwrap();
    let output = first.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(names(home.path()), ["first", "second"]);
    for name in ["first", "second"] {
        Tool::at(1).ok(&["log", "verify", text(&path(name))]);
        assert!(!path(name).join("UNFINISHED").exists());
    }
}

/// A copy has the same id. Its server knows nothing of what has been acknowledged since it was made.
#[test]
fn a_server_of_a_copy_does_not_speak_for_the_directory_that_it_was_copied_from() {
    let home = tempfile::tempdir().unwrap();
    let (data, copy) = (home.path().join("data"), home.path().join("copy"));
    stopped(&data);
    let copied = Command::new("cp").arg("-a").args([&data, &copy]).status().unwrap();
    assert!(copied.success());
    let server = small().start_at(&data);
    server.client().push("kept", json!({"n": 2}));
    let other = small().start_at(&copy);
    // The one whose directory it is stands still, and the other one has its port.
    server.freeze();
    let to = home.path().join("backup");
    let tool = Tool::of(&other).env("DATA_PATH", data.display());
    let line = tool.fails(1, &["backup", text(&to)]);
    assert!(line.contains(text(&copy)) && line.contains("has the same id"), "{line}");
    let shown = tool.run(&["doctor"]).out;
    assert!(shown.contains("is not what the server at"), "{shown}");
    assert_eq!(names(home.path()), ["copy", "data"]);
    server.signal(Signal::CONT);
    // By whatever path, it is the same directory.
    let link = home.path().join("link");
    symlink(&data, &link).unwrap();
    Tool::of(&server).env("DATA_PATH", link.display()).ok(&["backup", text(&to)]);
    let stat = Tool::at(1).json(&["log", "stat", text(&to)]);
    assert_eq!(stat["jobs"]["waiting"], 2, "{stat}");
}
