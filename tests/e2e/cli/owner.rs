//! Tools that another user runs than the server's, mostly root. The fear: they leave files that the server cannot use.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use super::names;
use super::repair::two_shards;
use crate::support::terminal::Terminal;
use crate::support::tool::Tool;
use crate::support::{Server, Start};

/// A user that has nothing to do with the tests.
pub(super) const SERVICE: u32 = 54_321;

/// Owner, group and mode of a file.
pub(super) type Whose = (u32, u32, u32);

pub(super) fn whose(path: &Path) -> Whose {
    let about = fs::symlink_metadata(path).unwrap();
    (about.uid(), about.gid(), about.mode() & 0o7777)
}

/// All below a directory, and itself.
pub(super) fn all(path: &Path) -> BTreeMap<PathBuf, Whose> {
    let mut found = BTreeMap::from([(path.to_path_buf(), whose(path))]);
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            found.extend(all(&entry.unwrap().path()));
        }
    }
    found
}

/// Makes all of a directory the service user's, with modes that are not those of a new file. Others than root can only
/// change the modes.
pub(super) fn hand_over(path: &Path) {
    for path in all(path).into_keys() {
        let mode = if path.is_dir() { 0o750 } else { 0o640 };
        if !path.is_symlink() {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        if rustix::process::geteuid().is_root() {
            lchown(&path, Some(SERVICE), Some(SERVICE + 1)).unwrap();
        }
    }
}

/// The owner and group that all in a directory must have.
fn is_all_of(path: &Path, (uid, gid): (u32, u32)) {
    for (path, whose) in all(path) {
        assert_eq!((whose.0, whose.1), (uid, gid), "{}", path.display());
    }
}

/// A stopped server's directory, of two shards, of which one is damaged.
fn damaged() -> Server {
    let server = two_shards();
    let shard = server.data.join("shard-0000");
    let mut segments = names(&shard);
    segments.retain(|name| Path::new(name).extension().is_some_and(|it| it == "seg"));
    let path = shard.join(&segments[0]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096 + 100] ^= 0x20;
    fs::write(&path, bytes).unwrap();
    // The service user comes to its directory.
    let above = server.data.parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o711)).unwrap();
    server
}

/// A directory that the service user may not change, although its links lead there.
struct Precious {
    path: PathBuf,
    was: BTreeMap<PathBuf, Whose>,
}

impl Precious {
    /// Beside the data directory of a server, so on its file system.
    fn beside(server: &Server) -> Self {
        let path = server.data.parent().unwrap().join("precious");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("kept"), "precious").unwrap();
        for (path, mode) in [(path.clone(), 0o755), (path.join("kept"), 0o644)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let was = all(&path);
        Self { path, was }
    }

    fn assert_untouched(&self, what: &str) {
        assert_eq!(all(&self.path), self.was, "{what}");
        assert_eq!(fs::read_to_string(self.path.join("kept")).unwrap(), "precious", "{what}");
    }
}

#[test]
fn what_a_repair_and_an_undo_put_in_place_belongs_to_those_that_it_belonged_to() {
    let server = damaged();
    let data = &server.data;
    let path = data.to_str().unwrap();
    fs::remove_file(data.join("LOCK")).unwrap();
    // A shard's directory that is gone is made anew.
    fs::remove_dir_all(data.join("shard-0001")).unwrap();
    hand_over(data);
    let before = all(data);
    let (uid, gid, _) = whose(data);
    let is_kept = |what: &str| {
        is_all_of(data, (uid, gid));
        for (path, was) in &before {
            assert_eq!(whose(path), *was, "{what}: {}", path.display());
        }
    };
    Tool::at(1).ok(&["log", "repair", "--yes", path]);
    is_kept("repaired");
    assert!(data.join("shard-0001").is_dir());
    Tool::at(1).ok(&["log", "undo", "--yes", path]);
    is_kept("put back");
    fs::remove_file(data.join("MANIFEST")).unwrap();
    Tool::at(1).ok(&["log", "repair", "--yes", path]);
    is_all_of(data, (uid, gid));
}

#[test]
fn links_in_place_of_the_small_files_lead_no_tool_elsewhere() {
    let server = damaged();
    let precious = Precious::beside(&server);
    let (data, kept) = (&server.data, precious.path.join("kept"));
    let repair = || Tool::at(1).run(&["log", "repair", "--yes", data.to_str().unwrap()]);
    let (lock, manifest) = (data.join("LOCK"), data.join("MANIFEST"));
    for target in [precious.path.join("new"), kept.clone()] {
        fs::remove_file(&lock).unwrap();
        symlink(&target, &lock).unwrap();
        hand_over(data);
        let ran = repair();
        precious.assert_untouched(&format!("{ran:?}"));
        assert!(ran.code == Some(1) && ran.err.contains("LOCK"), "{ran:?}");
        let start = Start::new().run_to_its_end(data);
        precious.assert_untouched(&format!("{start:?}"));
        assert!(!start.0.success(), "{start:?}");
    }
    fs::remove_file(&lock).unwrap();
    fs::remove_file(&manifest).unwrap();
    symlink(&kept, data.join("MANIFEST.new")).unwrap();
    hand_over(data);
    let ran = repair();
    precious.assert_untouched(&format!("{ran:?}"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(manifest.symlink_metadata().unwrap().is_file());
}

/// The answer to a question takes its time: meanwhile the service user can replace what has been prepared.
#[test]
fn links_put_into_a_prepared_repair_lead_root_nowhere() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: not tried");
        return;
    }
    let server = damaged();
    let precious = Precious::beside(&server);
    let data = &server.data;
    hand_over(data);
    let path = data.to_str().unwrap();
    let mut terminal = Terminal::start(Tool::at(1).command(&["log", "repair", path]));
    terminal.wait_for("Go on? [y/N]");
    let status = fs::read_to_string(format!("/proc/{}/status", terminal.child().id())).unwrap();
    let mut drafts = names(data);
    drafts.retain(|name| name.contains(".corq-draft-"));
    let copy = data.join(&drafts[0]).join("mended/shard-0000");
    fs::rename(&copy, data.join("aside")).unwrap();
    symlink(&precious.path, &copy).unwrap();
    terminal.press("y\n");
    let (code, shown) = terminal.end();
    precious.assert_untouched(&shown);
    assert_eq!(code, Some(1), "{shown}");
    // Not by luck: no privilege is left, and no group of root's.
    let line = |name: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        found.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let (uid, gid) = (SERVICE.to_string(), (SERVICE + 1).to_string());
    assert_eq!(line("Uid:"), vec![uid; 4]);
    assert_eq!(line("Gid:"), vec![gid.clone(); 4]);
    assert_eq!(line("Groups:"), [gid]);
    for name in ["CapPrm:", "CapEff:"] {
        assert_eq!(line(name), ["0000000000000000"], "{name}");
    }
}

#[test]
fn a_copy_put_in_place_of_an_empty_directory_belongs_to_those_that_have_that() {
    let mut server = Server::start_default();
    server.client().push("q", 1);
    assert!(server.terminate().success());
    let home = tempfile::tempdir().unwrap();
    let (to, data) = (home.path().join("backup"), home.path().join("data"));
    for path in [&to, &data] {
        fs::create_dir(path).unwrap();
        hand_over(path);
    }
    let was = whose(&data);
    let original = all(&server.data);
    let tool = Tool::at(1).env("DATA_PATH", server.data.display());
    tool.ok(&["backup", "--copy", to.to_str().unwrap()]);
    assert_eq!(whose(&to), was);
    is_all_of(&to, (was.0, was.1));
    tool.ok(&["restore", to.to_str().unwrap(), data.to_str().unwrap()]);
    assert_eq!(whose(&data), was);
    is_all_of(&data, (was.0, was.1));
    // Files that a backup shares stay the server's.
    fs::remove_dir_all(&to).unwrap();
    fs::create_dir(&to).unwrap();
    hand_over(&to);
    tool.ok(&["backup", to.to_str().unwrap()]);
    assert_eq!(all(&server.data), original);
}

#[test]
fn shards_that_take_the_place_of_others_belong_to_those_that_these_belonged_to() {
    let mut server = Server::start_default();
    server.client().push("q", 1);
    assert!(server.terminate().success());
    hand_over(&server.data);
    let before = ["MANIFEST", "shard-0000"].map(|name| whose(&server.data.join(name)));
    let (uid, gid, _) = whose(&server.data);
    let start = Start::new().env("SHARDS", 3).env("DURABILITY", "written");
    let mut changed = start.start_at(&server.data);
    changed.kill();
    let after = ["MANIFEST", "shard-0000"].map(|name| whose(&server.data.join(name)));
    assert_eq!(before, after);
    for shard in 0..3 {
        let path = server.data.join(format!("shard-{shard:04}"));
        let (found, of_group, _) = whose(&path);
        assert_eq!((found, of_group), (uid, gid), "{}", path.display());
    }
}
