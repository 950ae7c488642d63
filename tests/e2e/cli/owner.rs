//! Tools that another user runs than the server's, mostly root. The fear: they leave files that the server cannot use, or
//! follow a link that the server's user has put there.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use super::repair::two_shards;
use crate::support::Start;
use crate::support::tool::Tool;

/// A user that has nothing to do with the tests.
const SERVICE: u32 = 54_321;

/// Owner, group and mode of a file.
type Whose = (u32, u32, u32);

/// All below a directory, and itself.
fn all(path: &Path) -> BTreeMap<PathBuf, Whose> {
    let about = fs::symlink_metadata(path).unwrap();
    let whose = (about.uid(), about.gid(), about.mode() & 0o7777);
    let mut found = BTreeMap::from([(path.to_path_buf(), whose)]);
    if about.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            found.extend(all(&entry.unwrap().path()));
        }
    }
    found
}

/// Makes all of a directory the service user's.
fn hand_over(path: &Path) {
    for path in all(path).into_keys() {
        lchown(&path, Some(SERVICE), Some(SERVICE)).unwrap();
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not root: not tried");
    }
    is_root
}

#[test]
fn root_is_refused_in_what_belongs_to_another_user_and_told_whose_it_is() {
    if !is_root() {
        return;
    }
    let server = two_shards();
    let home = tempfile::tempdir().unwrap();
    let (own, theirs, backup) =
        (home.path().join("own"), home.path().join("theirs"), home.path().join("backup"));
    let data = server.data.to_str().unwrap();
    let tool = || Tool::at(1).env("DATA_PATH", data);
    tool().ok(&["backup", backup.to_str().unwrap()]);
    fs::create_dir(&theirs).unwrap();
    for path in [&server.data, &theirs, &backup] {
        hand_over(path);
    }
    let before = [&server.data, home.path()].map(all);
    let (own_text, backup_text) = (own.to_str().unwrap(), backup.to_str().unwrap());
    let below = theirs.join("below");
    let refused = [
        vec!["log", "verify", data],
        vec!["log", "stat", data],
        vec!["log", "dump", data],
        vec!["log", "repair", data, "--to", own_text],
        vec!["audit", data],
        vec!["backup", own_text],
        vec!["restore", backup_text, own_text],
    ];
    for words in refused {
        let line = tool().fails(1, &words);
        let says = "belongs to uid 54321, and this is root (uid 0): run it as the owner, with 'sudo -u '#54321' corq ...'";
        assert!(line.contains(says), "{words:?}: {line}");
    }
    for to in [&theirs, &below] {
        let other = two_shards();
        let line = Tool::at(1)
            .env("DATA_PATH", other.data.display())
            .fails(1, &["backup", to.to_str().unwrap()]);
        assert!(line.contains("belongs to uid 54321"), "{line}");
    }
    let (status, said) = Start::new().run_to_its_end(&server.data);
    assert!(!status.success() && said.contains("belong to uid 54321"), "{said}");
    assert_eq!([&server.data, home.path()].map(all), before);
}

#[test]
fn links_in_place_of_the_small_files_lead_no_start_elsewhere() {
    let server = two_shards();
    let data = &server.data;
    let precious = data.with_file_name("precious");
    fs::create_dir(&precious).unwrap();
    let kept = precious.join("kept");
    fs::write(&kept, "precious").unwrap();
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o644)).unwrap();
    let was = all(&precious);
    let is_untouched = |what: &str| {
        assert_eq!(all(&precious), was, "{what}");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "precious", "{what}");
    };
    let lock = data.join("LOCK");
    for target in [precious.join("new"), kept.clone()] {
        fs::remove_file(&lock).unwrap();
        symlink(&target, &lock).unwrap();
        let (status, said) = Start::new().run_to_its_end(data);
        is_untouched(&said);
        assert!(!status.success() && said.contains("LOCK"), "{said}");
    }
    fs::remove_file(&lock).unwrap();
    symlink(&kept, data.join("MANIFEST.new")).unwrap();
    let mut changed = Start::new().env("SHARDS", 3).start_at(data);
    changed.kill();
    is_untouched("a manifest that was written");
    assert!(data.join("MANIFEST").symlink_metadata().unwrap().is_file());
}
