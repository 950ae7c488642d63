//! Backups, restores and starts that root runs in directories of the server's user. That user can put a link in place of
//! any file there, at any time. The fear: root follows it, and what lies elsewhere is read, changed or given away.
//!
//! A tool stands still where it opens a pipe that has the name of a file. Meanwhile the kernel says with whose rights
//! it does that.

use std::fs::{self, File};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Child;

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use serde_json::{Value as Json, json};

use super::names;
use super::owner::{SERVICE, all, hand_over, whose};
use crate::support::tool::Tool;
use crate::support::{Server, Start, copy, free_port, until};

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not root: not tried");
    }
    is_root
}

/// A stopped server whose directory belongs to the service user, with another one around it.
struct Bed {
    _server: Server,
    _home: tempfile::TempDir,
    data: PathBuf,
    /// A directory of the service user.
    theirs: PathBuf,
    /// A directory of root, which all may pass.
    own: PathBuf,
}

impl Bed {
    /// With several segments in each log, if `many`.
    fn new(many: bool) -> Self {
        let mut server = Start::new().env("PAYLOAD_CACHE_MB", 4).start();
        let mut client = server.client();
        for queue in ["b-one", "b-two", "b-three", "b-four"] {
            let jobs = if many { 12 } else { 1 };
            let payload = "p".repeat(if many { 900_000 } else { 10 });
            for _ in 0..jobs {
                client.push(queue, json!(payload));
            }
        }
        assert!(server.terminate().success());
        let home = tempfile::tempdir().unwrap();
        let passable = fs::Permissions::from_mode(0o755);
        let pass = |path: &Path| fs::set_permissions(path, passable.clone()).unwrap();
        pass(home.path());
        let (theirs, own) = (home.path().join("theirs"), home.path().join("own"));
        for path in [&theirs, &own] {
            fs::create_dir(path).unwrap();
            pass(path);
        }
        let data = theirs.join("data");
        copy(&server.data, &data);
        hand_over(&theirs);
        Self { _server: server, _home: home, data, theirs, own }
    }

    fn tool(&self) -> Tool {
        Tool::at(1).env("DATA_PATH", self.data.display())
    }

    fn back_up(&self, to: &Path) -> Json {
        self.tool().json(&["backup", to.to_str().unwrap()])
    }
}

/// Puts a pipe of the service user in place of a file.
fn obstruct(path: &Path) {
    fs::remove_file(path).unwrap();
    mkfifoat(CWD, path, Mode::from_raw_mode(0o640)).unwrap();
    hand_over(path);
}

/// Waits until a process has opened the pipe, and answers with whose rights: real and effective user and group, and the
/// other groups.
fn rights_at(pipe: &Path, child: &mut Child) -> [Vec<String>; 3] {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let _writer: File = until("the pipe to be opened", || {
        let ended = child.try_wait().unwrap();
        assert_eq!(ended, None, "it never opened {}", pipe.display());
        File::options().write(true).custom_flags(flags).open(pipe).ok()
    });
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    ["Uid:", "Gid:", "Groups:"].map(|name| {
        let found = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        found.split_whitespace().map(str::to_owned).collect()
    })
}

/// Runs a program of root until it stands still at the pipe, and demands that it does so as the service user.
fn assert_acts_as_owner(what: &str, pipe: &Path, mut child: Child) {
    let [uid, gid, groups] = rights_at(pipe, &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(uid[1], SERVICE.to_string(), "{what}: {uid:?}");
    assert_eq!(gid[1], (SERVICE + 1).to_string(), "{what}: {gid:?}");
    assert_eq!(groups, [(SERVICE + 1).to_string()], "{what}");
}

#[test]
fn a_backup_reads_and_writes_with_the_rights_of_the_owner_of_the_data_directory() {
    if !is_root() {
        return;
    }
    let bed = Bed::new(false);
    let pipe = bed.data.join("MANIFEST");
    obstruct(&pipe);
    let to = bed.theirs.join("backup");
    let child = bed.tool().start(&["backup", to.to_str().unwrap()]);
    assert_acts_as_owner("backup", &pipe, child);
}

#[test]
fn a_restore_reads_with_the_rights_of_the_owner_of_the_backup() {
    if !is_root() {
        return;
    }
    let bed = Bed::new(false);
    let backup = bed.theirs.join("backup");
    bed.back_up(&backup);
    let pipe = backup.join("MANIFEST");
    obstruct(&pipe);
    let to = bed.own.join("restored");
    let words = ["restore", backup.to_str().unwrap(), to.to_str().unwrap()];
    assert_acts_as_owner("restore", &pipe, Tool::at(1).start(&words));
}

#[test]
fn a_start_prepares_its_directory_with_the_rights_of_its_owner_and_serves_as_root() {
    if !is_root() {
        return;
    }
    let bed = Bed::new(false);
    let start = Start::new().env("SHARDS", 3);
    let server = start.start_at(&bed.data);
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    assert!(line.split_whitespace().all(|uid| uid == "0"), "{line}");
    drop(server);
    hand_over(&bed.data);
    let pipe = bed.data.join("MANIFEST");
    obstruct(&pipe);
    let child = Tool::at(1)
        .env("DATA_PATH", bed.data.display())
        .env("HOST", "127.0.0.1")
        .env("TCP_PORT", free_port())
        .env("HTTP_PORT", free_port())
        .start(&["serve"]);
    assert_acts_as_owner("start", &pipe, child);
}

#[test]
fn a_new_target_belongs_to_the_owner_of_the_directory_above_or_to_that_of_the_backup() {
    if !is_root() {
        return;
    }
    let bed = Bed::new(true);
    let root = (0, 0);
    let service = (SERVICE, SERVICE + 1);
    let is_all_of = |path: &Path, (uid, gid): (u32, u32)| {
        for (path, whose) in all(path) {
            assert_eq!((whose.0, whose.1), (uid, gid), "{}", path.display());
        }
    };
    let before = all(&bed.data);
    // In a directory of root: what is shared stays the server's, all else is root's.
    let shared = bed.own.join("shared");
    let report = bed.back_up(&shared);
    assert!(report["linked"].as_u64().unwrap() > 0, "{report}");
    assert_eq!((whose(&shared).0, whose(&shared.join("MANIFEST")).0), root);
    assert_eq!(all(&bed.data), before);
    let copied = bed.own.join("copied");
    bed.tool().ok(&["backup", "--copy", copied.to_str().unwrap()]);
    is_all_of(&copied, root);
    // In one of the service user all is theirs.
    let theirs = bed.theirs.join("backup");
    bed.back_up(&theirs);
    is_all_of(&theirs, service);
    let restore = |from: &Path, to: &Path, owner| {
        Tool::at(1).ok(&["restore", from.to_str().unwrap(), to.to_str().unwrap()]);
        is_all_of(to, owner);
    };
    restore(&copied, &bed.theirs.join("one"), service);
    // The directory above says nothing: the backup does.
    restore(&theirs, &bed.own.join("two"), service);
    restore(&copied, &bed.own.join("three"), root);
    assert!(names(&bed.own).iter().all(|name| !name.contains(".corq-draft-")));
    let server = Start::new().start_at(&bed.own.join("two"));
    let counts = server.client().ok("GetJobCounts", json!({"queue": "b-one"}));
    assert_eq!(counts["counts"]["waiting"], 12, "{counts}");
}
