//! Repairs: the whole parts of a damaged directory are copied into a new one. The fear: a repair that leaves out what is whole, says that
//! all is well over what it has lost, or changes what it copies.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::names;
use crate::support::tool::Tool;
use crate::support::{Client, Server, Start};

fn tool() -> Tool {
    Tool::at(1)
}

fn words<'a>(words: &[&'a str], data: &'a Path) -> Vec<&'a str> {
    words.iter().copied().chain([data.to_str().unwrap()]).collect()
}

/// All files of a directory with their bytes, but for the lock.
fn files(data: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "audit" {
            // Starts that fail have entries there.
        } else if path.is_dir() {
            found.extend(files(&path));
        } else if name != "LOCK" {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

fn one_shard() -> Start {
    Start::new().env("SHARDS", 1).env("SEGMENT_MB", 16).env("PAYLOAD_CACHE_MB", 4)
}

/// A stopped server with 400 jobs of 200 KB, over several files.
fn several_files() -> (Server, Start) {
    let start = one_shard();
    let mut server = start.clone().start();
    let mut client = server.client();
    let text = "x".repeat(200_000);
    for round in 0..20 {
        let jobs: Vec<_> =
            (0..20).map(|n| json!({"data": {"n": round * 20 + n, "text": text}})).collect();
        client.ok("PUSHB", json!({"queue": "many", "jobs": jobs}));
    }
    drop(client);
    assert!(server.terminate().success());
    (server, start)
}

/// Where a repair of a directory goes: beside it.
fn beside(data: &Path) -> PathBuf {
    data.with_file_name("new")
}

/// The words of a repair to there.
fn repair<'a>(data: &'a Path, to: &'a Path) -> Vec<&'a str> {
    vec!["log", "repair", data.to_str().unwrap(), "--to", to.to_str().unwrap()]
}

fn dry(data: &Path) -> String {
    let to = beside(data);
    let out = tool().ok(&[repair(data, &to), vec!["--dry-run"]].concat());
    assert!(!to.exists(), "nothing is left of a dry run");
    out
}

fn segment(data: &Path, number: u64) -> PathBuf {
    data.join(format!("shard-0000/{number:016x}.seg"))
}

fn counted(client: &mut Client) -> u64 {
    client.counted("many", "waiting")
}

#[test]
fn files_whose_names_were_swapped_get_them_back_in_the_copy_and_no_job_is_lost() {
    let (server, _) = several_files();
    let data = server.data.clone();
    let aside = data.join("aside");
    fs::rename(segment(&data, 1), &aside).unwrap();
    fs::rename(segment(&data, 2), segment(&data, 1)).unwrap();
    fs::rename(&aside, segment(&data, 2)).unwrap();
    let swapped = files(&data);

    let (status, said) = one_shard().run_to_its_end(&data);
    assert!(!status.success() && said.contains("belongs at segment "), "{said}");
    let ran = tool().run(&words(&["log", "verify"], &data));
    assert_eq!(ran.code, Some(1));
    for (one, other) in [(1, 2), (2, 1)] {
        let line = format!(
            "shard-0000/{one:016x}.seg belongs at segment {other}: its name should be {other:016x}.seg\n"
        );
        assert!(ran.out.contains(&line), "{line} in {}", ran.out);
    }
    assert!(!ran.out.contains("lost"), "{}", ran.out);

    let out = dry(&data);
    let all = "mended, these come back: 400 jobs (400 waiting)\nno job is lost\n";
    assert!(out.contains(all) && out.contains("this was a dry run: nothing was changed"), "{out}");
    let to = beside(&data);
    let out = tool().ok(&repair(&data, &to));
    assert!(out.contains("renamed to") && out.contains("now there are 400 jobs"), "{out}");
    assert_eq!(counted(&mut one_shard().start_at(&to).client()), 400);
    assert!(files(&data) == swapped, "the source is as it was");
}

#[test]
fn a_repair_copies_what_is_whole_says_what_is_lost_and_changes_nothing_of_its_source() {
    let (server, start) = several_files();
    let data = server.data.clone();
    // A block in the middle of a file, and a file that is gone.
    flip(&segment(&data, 1), 3_000_000);
    fs::remove_file(segment(&data, 3)).unwrap();
    let damaged = files(&data);
    let to = beside(&data);

    // The refusal of a start says what can be done.
    let (status, said) = start.clone().run_to_its_end(&data);
    let command = format!("corq log repair {} --to NEW_DIRECTORY", data.display());
    assert!(!status.success() && said.contains(&command), "{said}");
    let ran = tool().run(&words(&["log", "verify"], &data));
    assert!(ran.code == Some(1) && ran.err.contains(&command), "{ran:?}");

    let dry = dry(&data);
    // Only once the file is there again it is seen what it had held.
    assert!(
        dry.contains(&format!("{:016x}.seg", 3)) && dry.contains("the file is missing"),
        "{dry}"
    );
    let number = |line: &str| -> u64 {
        let told = dry.lines().find_map(|it| it.strip_prefix(line));
        told.unwrap_or_else(|| panic!("{line} in {dry}"))
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    let back = number("mended, these come back: ");
    assert_eq!(back + number("lost: up to "), 400, "{dry}");
    assert_eq!(number("as it lies, these can be read: "), back, "{dry}");

    let out = tool().ok(&repair(&data, &to));
    assert!(out.contains(&format!("now there are {back} jobs ({back} waiting)\n")), "{out}");
    assert!(
        out.contains(&format!("can be started from, with DATA_PATH={}", to.display())),
        "{out}"
    );
    tool().ok(&words(&["log", "verify"], &to));
    // Writes of a server to the copy, whose files may be shared, stay there.
    for expected in [back, 0] {
        let mut copied = start.clone().start_at(&to);
        let mut client = copied.client();
        assert_eq!(counted(&mut client), expected);
        client.push("many", 1);
        client.ok("Drain", json!({"queue": "many"}));
        drop(client);
        assert!(copied.terminate().success());
    }
    assert!(files(&data) == damaged, "byte for byte");
    let line = tool().fails(1, &repair(&data, &to));
    assert!(line.contains("is not empty"), "{line}");
}

#[test]
fn a_repair_that_cannot_be_made_says_why_and_leaves_nothing() {
    let server = two_shards();
    let (data, to) = (server.data.clone(), beside(&server.data));
    let is_refused = |words: &[&str], code: i32, why: &str| {
        let before = (files(&data), names(data.parent().unwrap()));
        let ran = tool().run(words);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.err.contains(why), "{why}: {ran:?}");
        assert!((files(&data), names(data.parent().unwrap())) == before, "{ran:?}");
    };
    // Otherwise a script would start a server without a job.
    is_refused(&repair(&data, &to), 1, "nothing is damaged, so");
    assert_eq!(dry(&data), "nothing is damaged\n");
    flip(&segments(&data, 0)[0], 4096 + 100);
    is_refused(&words(&["log", "repair"], &data), 2, "--to");
    is_refused(&repair(&data, &data.join("new")), 1, "lies in");
    // A file that is of another directory is nobody's to mend.
    let (other, place) =
        (two_shards(), segments(&data, 0)[0].with_file_name("00000000000000ff.seg"));
    fs::copy(&segments(&other.data, 0)[0], &place).unwrap();
    is_refused(&repair(&data, &to), 1, "was made for another data directory");
    fs::remove_file(place).unwrap();
    // Of a copy that was broken off nobody knows what is missing: neither a repair nor a start uses it.
    fs::create_dir_all(to.join("shard-0000")).unwrap();
    fs::copy(&segments(&data, 0)[0], to.join("shard-0000/0000000000000000.seg")).unwrap();
    fs::write(to.join("UNFINISHED"), "1\n").unwrap();
    is_refused(&repair(&data, &to), 1, "holds a copy that was not completed");
    is_refused(&repair(&to, &data.with_file_name("other")), 1, "was not completed");
    let (status, said) = Start::new().run_to_its_end(&to);
    assert!(!status.success() && said.contains("was not completed"), "{said}");
}

#[test]
fn a_shard_of_which_nothing_is_left_begins_anew_in_the_copy() {
    let server = two_shards();
    let (data, to) = (server.data.clone(), beside(&server.data));
    for entry in fs::read_dir(data.join("shard-0001")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let begun =
        |path: &Path| fs::read_to_string(path.join("MANIFEST")).unwrap().contains("begun = true\n");
    for gone in [false, true] {
        if gone {
            fs::remove_dir(data.join("shard-0001")).unwrap();
        }
        let before = files(&data);
        let (status, said) = Start::new().run_to_its_end(&data);
        assert!(!status.success() && said.contains("shard-0001"), "{said}");
        assert!(said.contains("corq log repair") && said.contains("--to"), "{said}");
        dry(&data);
        tool().ok(&repair(&data, &to));
        assert!(begun(&data) && !begun(&to) && files(&data) == before);
        let mut copied = Start::new().start_at(&to);
        copied.client().push("q-1", 1);
        assert!(copied.terminate().success());
        fs::remove_dir_all(&to).unwrap();
    }
}

/// A byte of a file gets another value.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x20;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_repair_says_that_no_job_is_lost_only_where_that_is_known() {
    let (server, _) = several_files();
    let data = server.data.clone();
    let case = |name: &str, change: &dyn Fn(), back: &dyn Fn()| {
        change();
        let out = dry(&data);
        back();
        assert!(out.contains("mended, these come back: "), "{name}: {out}");
        out
    };
    let cannot_tell = |name: &str, change: &dyn Fn(), back: &dyn Fn()| {
        let out = case(name, change, back);
        assert!(
            out.contains("jobs are lost cannot be told") && !out.contains("no job is lost"),
            "{name}: {out}"
        );
    };
    let (first, second) = (segment(&data, 0), segment(&data, 1));
    let flipped = |at: usize| move |path: &Path| flip(path, at);
    // Nothing is before what is lost, or nothing at all is left.
    let begin = flipped(4096 + 100);
    cannot_tell("the first block", &|| begin(&first), &|| begin(&first));
    let aside = data.join("aside");
    let (take, put) = (|| fs::rename(&first, &aside), || fs::rename(&aside, &first));
    cannot_tell("the first file", &|| take().unwrap(), &|| put().unwrap());
    let shard = data.join("shard-0000");
    let (take, put) = (|| fs::rename(&shard, &aside), || fs::rename(&aside, &shard));
    cannot_tell("all", &|| take().unwrap(), &|| put().unwrap());
    // A header tells of no job.
    let header = flipped(20);
    let out = case("a header", &|| header(&second), &|| header(&second));
    assert!(out.contains("400 jobs (400 waiting)\nno job is lost\n"), "{out}");
    // Between jobs that came one after another their numbers tell.
    let middle = flipped(3_000_000);
    let out = case("the middle", &|| middle(&second), &|| middle(&second));
    assert!(out.contains("lost: up to ") && !out.contains("cannot be told"), "{out}");

    // Jobs that were written again tell nothing of those beside them.
    let mut other = one_shard().env("SHARDS", 2).start_at(&data);
    assert_eq!(counted(&mut other.client()), 400);
    assert!(other.terminate().success());
    let segments = |shard: &str| {
        let path = data.join(shard);
        let paths = names(&path).into_iter().map(|name| path.join(name));
        paths.filter(|path| path.extension().is_some_and(|it| it == "seg")).collect::<Vec<_>>()
    };
    let all = ["shard-0000", "shard-0001"].map(segments).concat();
    let path = all.iter().find(|path| fs::read(path).unwrap()[3_000_000] != 0).unwrap();
    cannot_tell("kept jobs", &|| middle(path), &|| middle(path));
}

/// A stopped server of two shards with jobs on both.
pub(super) fn two_shards() -> Server {
    let mut server = Server::start_default();
    let mut client = server.client();
    for number in 0..40 {
        client.push(&format!("q-{number}"), number);
    }
    drop(client);
    assert!(server.terminate().success());
    server
}

fn segments(data: &Path, shard: u16) -> Vec<PathBuf> {
    let path = data.join(format!("shard-{shard:04}"));
    let paths = names(&path).into_iter().map(|name| path.join(name));
    paths.filter(|path| path.extension().is_some_and(|it| it == "seg")).collect()
}

#[test]
fn a_repair_never_advises_itself() {
    let server = two_shards();
    let (data, to) = (server.data.clone(), beside(&server.data));
    let manifest = data.join("MANIFEST");
    let text = fs::read_to_string(&manifest).unwrap();
    let ran_so = |code: i32| {
        let ran = tool().run(&repair(&data, &to));
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(!ran.out.contains("corq log repair"), "{ran:?}");
        assert!(!ran.err.contains("corq log repair"), "{ran:?}");
        ran
    };
    let changed = text.replace("shards = 2", "shards = 3");
    fs::write(&manifest, &changed).unwrap();
    let ran = ran_so(0);
    assert!(
        ran.out.contains("its checksum is wrong") && ran.out.contains("no job is lost"),
        "{ran:?}"
    );
    assert_eq!(fs::read_to_string(to.join("MANIFEST")).unwrap(), text);
    fs::remove_dir_all(&to).unwrap();
    // Two that contradict each other.
    let other = two_shards();
    fs::remove_file(&manifest).unwrap();
    fs::rename(data.join("shard-0001"), data.with_file_name("aside")).unwrap();
    fs::rename(other.data.join("shard-0001"), data.join("shard-0001")).unwrap();
    let ran = ran_so(1);
    assert!(ran.err.contains("the segments do not agree"), "{ran:?}");
    fs::write(&manifest, changed).unwrap();
    let ran = ran_so(1);
    assert!(ran.err.contains("the segments do not agree"), "{ran:?}");
}

/// Whose backup it is may serve still.
#[test]
fn a_damaged_backup_becomes_a_data_directory_of_its_own() {
    let (server, _) = several_files();
    let home = tempfile::tempdir().unwrap();
    let to = home.path().join("backup");
    Tool::at(1).env("DATA_PATH", server.data.display()).ok(&["backup", to.to_str().unwrap()]);
    let whole = files(&to);
    let last = segments(&to, 0).pop().unwrap();
    let id = |path: &Path| {
        let manifest = fs::read_to_string(path.join("MANIFEST")).unwrap();
        manifest.lines().find(|line| line.starts_with("id = ")).unwrap().to_owned()
    };
    let damages: [(&str, &dyn Fn()); 4] = [
        ("the middle of the log", &|| flip(&segment(&to, 1), 3_000_000)),
        ("the last file", &|| fs::remove_file(&last).unwrap()),
        ("the end that it says", &|| {
            let path = to.join("BACKUP");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, text.replace("end-0 = 0000", "end-0 = 00ff")).unwrap();
        }),
        ("what it says of itself", &|| fs::write(to.join("BACKUP"), "").unwrap()),
    ];
    for (round, (name, damage)) in damages.into_iter().enumerate() {
        // Write new files: those of the copy may be the server's.
        for (path, bytes) in &whole {
            fs::remove_file(path).ok();
            fs::write(path, bytes).unwrap();
        }
        damage();
        let damaged = files(&to);
        let data = home.path().join(format!("data-{round}"));
        let line = tool().fails(1, &["restore", to.to_str().unwrap(), data.to_str().unwrap()]);
        let is_unread = name == "what it says of itself";
        assert!(is_unread || line.contains("corq log repair"), "{name}: {line}");
        let out = tool().ok(&repair(&to, &data));
        assert!(!out.contains("no job is lost"), "{name}: {out}");
        let restored = one_shard().start_at(&data);
        let found = counted(&mut restored.client());
        assert!(out.contains(&format!("now there are {found} jobs")), "{name}, {found}: {out}");
        assert!((1..=400).contains(&found), "{name}: {found}");
        assert_ne!(id(&data), id(&to), "{name}");
        assert!(!data.join("BACKUP").exists() && files(&to) == damaged, "{name}");
    }
}

#[test]
fn a_change_of_shards_that_a_damaged_log_stops_promises_nothing_of_the_old_number() {
    let (server, _) = several_files();
    flip(&segment(&server.data, 1), 3_000_000);
    let (status, said) = one_shard().env("SHARDS", 2).run_to_its_end(&server.data);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("does not take it either") && !said.contains("as before"), "{said}");
    let (status, said) = one_shard().run_to_its_end(&server.data);
    assert_eq!(status.code(), Some(1), "{said}");
}
