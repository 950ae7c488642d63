//! Repairs that can be seen before they are made and taken back afterwards. The fear: a repair that cuts what is whole,
//! says that all is well over what it has lost, or cannot be undone.

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

/// All files of a directory with their bytes, but for the lock and what repairs keep.
fn files(data: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "audit" {
            // Starts that fail have entries there.
        } else if path.is_dir() && !name.starts_with("repair-") {
            found.extend(files(&path));
        } else if path.is_file() && name != "LOCK" {
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

fn segment(data: &Path, number: u64) -> PathBuf {
    data.join(format!("shard-0000/{number:016x}.seg"))
}

fn counted(client: &mut Client) -> u64 {
    client.counted("many", "waiting")
}

#[test]
fn files_whose_names_were_swapped_get_them_back_and_no_job_is_lost() {
    let (mut server, _) = several_files();
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

    let out = tool().ok(&words(&["log", "repair", "--dry-run"], &data));
    assert!(
        out.contains("mended, these come back: 400 jobs (400 waiting)\nno job is lost\n"),
        "{out}"
    );
    assert!(out.ends_with("this was a dry run: nothing was changed\n"), "{out}");
    assert!(files(&data) == swapped && names(&data).len() == 4, "{:?}", names(&data));

    let out = tool().ok(&words(&["log", "repair", "--yes"], &data));
    assert!(out.contains("renamed to"), "{out}");
    assert!(out.contains("now there are 400 jobs (400 waiting)\n"), "{out}");
    server.start();
    assert_eq!(counted(&mut server.client()), 400);
}

#[test]
fn a_repair_says_how_many_jobs_are_lost_before_and_after_and_an_undo_puts_all_back() {
    let (mut server, start) = several_files();
    let data = server.data.clone();
    // A block in the middle of a file, and a file that is gone.
    let path = segment(&data, 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[3_000_000] ^= 0x20;
    fs::write(&path, bytes).unwrap();
    fs::remove_file(segment(&data, 3)).unwrap();
    let damaged = files(&data);

    let dry = tool().ok(&words(&["log", "repair", "--dry-run"], &data));
    assert!(files(&data) == damaged, "a dry run changes nothing");
    // Only once the file is there again it is seen what it had held; it is said before anything is done.
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

    let ran = tool().run(&words(&["log", "repair"], &data));
    assert!(ran.code == Some(2) && ran.err.contains("--yes"), "{ran:?}");
    assert!(files(&data) == damaged, "without a yes nothing is done");
    let out = tool().ok(&words(&["log", "repair", "--yes"], &data));
    assert!(out.contains(&format!("now there are {back} jobs ({back} waiting)\n")), "{out}");
    tool().ok(&words(&["log", "verify"], &data));
    let mended = files(&data);

    let out = tool().ok(&words(&["log", "undo", "--yes"], &data));
    assert!(out.contains("is as it was before"), "{out}");
    assert!(files(&data) == damaged, "byte for byte");
    let line = tool().fails(1, &words(&["log", "undo", "--yes"], &data));
    assert!(line.contains("there is no repair to be undone"), "{line}");

    // Again; then a server goes on, and an undo says what that costs, and still finds all that was there.
    tool().ok(&words(&["log", "repair", "--yes"], &data));
    assert_eq!(files(&data).len(), mended.len());
    server.start();
    let mut client = server.client();
    assert_eq!(counted(&mut client), back);
    client.push("many", 1);
    drop(client);
    assert!(server.terminate().success());
    let ran = tool().run(&words(&["log", "undo"], &data));
    assert!(ran.code == Some(2) && ran.err.contains("--yes"), "{ran:?}");
    assert!(ran.out.contains(&format!("now there are {} jobs", back + 1)), "{ran:?}");
    tool().ok(&words(&["log", "undo", "--yes"], &data));
    let log = |files: Vec<(PathBuf, Vec<u8>)>| -> Vec<(PathBuf, Vec<u8>)> {
        files
            .into_iter()
            .filter(|(path, _)| path.extension().is_some_and(|it| it == "seg"))
            .collect()
    };
    assert!(log(files(&data)) == log(damaged), "byte for byte, after a start as well");
    let (status, said) = start.run_to_its_end(&data);
    assert!(!status.success() && said.contains("is missing"), "{said}");
}

#[test]
fn a_shard_that_begins_anew_is_missed_until_the_repair_is_in_place_and_after_an_undo() {
    let mut server = Server::start_default();
    let mut client = server.client();
    for number in 0..8 {
        client.push(&format!("q-{number}"), number);
    }
    drop(client);
    assert!(server.terminate().success());
    let data = server.data.clone();
    for entry in fs::read_dir(data.join("shard-0001")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let begun = || fs::read_to_string(data.join("MANIFEST")).unwrap().contains("begun = true\n");
    let before = files(&data);
    tool().ok(&words(&["log", "repair", "--dry-run"], &data));
    assert!(begun() && files(&data) == before);
    tool().ok(&words(&["log", "repair", "--yes"], &data));
    assert!(!begun(), "it may begin anew");
    tool().ok(&words(&["log", "undo", "--yes"], &data));
    assert!(begun() && files(&data) == before);
    let (status, said) = Start::new().run_to_its_end(&data);
    assert!(!status.success() && said.contains("shard-0001"), "{said}");
    // Also one whose directory is gone.
    fs::remove_dir(data.join("shard-0001")).unwrap();
    tool().ok(&words(&["log", "repair", "--yes"], &data));
    tool().ok(&words(&["log", "undo", "--yes"], &data));
    assert!(begun() && !data.join("shard-0001").exists());
    tool().ok(&words(&["log", "repair", "--yes"], &data));
    server.start();
    server.client().push("q-1", 1);
}

#[test]
fn what_a_killed_repair_leaves_goes_with_the_next_start() {
    let mut server = Server::start_default();
    server.client().push("q", 1);
    assert!(server.terminate().success());
    let data = server.data.clone();
    // As a repair that is being prepared: only its own process keeps it.
    let name = "repair-1.corq-draft-0123456789abcdef";
    let draft = data.join(name);
    fs::create_dir_all(draft.join("mended/shard-0000")).unwrap();
    let marker =
        format!("name = {name}\npurpose = repair\ntarget = repair-1\nlinked = true\npid = 1\n");
    fs::write(draft.join("CORQ-DRAFT"), marker).unwrap();
    let shown = tool().env("DATA_PATH", data.display()).run(&["doctor", "--no-server"]).out;
    assert!(shown.contains(name), "{shown}");
    server.start();
    assert!(!draft.exists());
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
        let out = tool().ok(&words(&["log", "repair", "--dry-run"], &data));
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

/// The repairs in a directory, oldest first.
fn repairs(data: &Path) -> Vec<String> {
    let mut names = names(data);
    names.retain(|name| name.starts_with("repair-"));
    names
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
fn an_undo_takes_back_the_newest_repair_whole_or_nothing() {
    let server = two_shards();
    let data = server.data.clone();
    (0..2).for_each(|shard| flip(&segments(&data, shard)[0], 4096 + 100));
    let first = files(&data);
    tool().ok(&words(&["log", "repair", "--yes"], &data));
    for path in segments(&data, 0) {
        fs::remove_file(path).unwrap();
    }
    let second = files(&data);
    tool().ok(&words(&["log", "repair", "--yes"], &data));
    let [older, newer] = &repairs(&data)[..] else { panic!("{:?}", names(&data)) };
    let mended = files(&data);
    // Of what the older one has put there a part has been replaced since.
    let line = tool().fails(1, &words(&["log", "undo", "--yes", "--repair", older], &data));
    assert!(line.contains(&format!("{newer} came after {older}: undo that first")), "{line}");
    assert!(files(&data) == mended, "nothing is done");
    // The files that the newer repair has replaced are gone: there is no way back any more.
    let aside = server.data.with_file_name("aside");
    fs::rename(data.join(newer), &aside).unwrap();
    for named in [vec![], vec!["--repair", older.as_str()], vec!["--repair", newer.as_str()]] {
        let all = [vec!["log", "undo", "--yes"], named].concat();
        let line = tool().fails(1, &words(&all, &data));
        assert!(line.contains(newer.as_str()), "{line}");
        assert!(files(&data) == mended, "nothing is done");
    }
    fs::rename(&aside, data.join(newer)).unwrap();
    // The undo says which shards it is about.
    let out = tool().ok(&words(&["log", "undo", "--yes"], &data));
    assert!(out.contains("shard-0000 of ") && out.contains("the other shards stay"), "{out}");
    assert!(files(&data) == second, "byte for byte");
    let out = tool().ok(&words(&["log", "undo", "--yes", "--repair", older], &data));
    assert!(out.contains("shard-0000 and shard-0001 of "), "{out}");
    assert!(files(&data) == first, "byte for byte");
}

/// The power can go between the two steps in which an undo puts a shard back.
#[test]
fn an_undo_that_was_broken_off_in_any_shard_is_finished_by_the_next() {
    for shard in 0..2 {
        let server = two_shards();
        let data = server.data.clone();
        (0..2).for_each(|shard| flip(&segments(&data, shard)[0], 4096 + 100));
        let first = files(&data);
        tool().ok(&words(&["log", "repair", "--yes"], &data));
        let kept = data.join(&repairs(&data)[0]);
        let name = format!("shard-{shard:04}");
        let (there, before, aside) = (data.join(&name), kept.join(&name), kept.join("aside"));
        let is_spare = |name: &&String| Path::new(name).extension().is_some_and(|it| it == "spare");
        for spare in names(&there).iter().filter(is_spare) {
            fs::rename(there.join(spare), before.join(spare)).unwrap();
        }
        let mended = files(&there).len();
        fs::rename(&there, &aside).unwrap();
        fs::rename(&before, &there).unwrap();
        fs::rename(&aside, &before).unwrap();
        tool().ok(&words(&["log", "undo", "--yes"], &data));
        assert!(files(&data) == first, "shard {shard}: byte for byte");
        assert_eq!(
            files(&kept.join("mended").join(&name)).len(),
            mended,
            "what it took away is kept"
        );
    }
}

#[test]
fn an_undo_after_a_change_of_shards_says_why_there_is_nothing_to_undo() {
    let mut server = two_shards();
    let data = server.data.clone();
    flip(&segments(&data, 0)[0], 4096 + 100);
    tool().ok(&words(&["log", "repair", "--yes"], &data));
    let name = repairs(&data).pop().unwrap();
    server.start_with("SHARDS", 1);
    assert!(server.terminate().success());
    for named in [vec![], vec!["--repair", name.as_str()]] {
        let line = tool().fails(1, &words(&[vec!["log", "undo", "--yes"], named].concat(), &data));
        let why = format!("{name} is of before a change of the number of shards");
        assert!(line.contains(&why), "{line}");
    }
}

#[test]
fn a_repair_never_advises_itself() {
    let server = two_shards();
    let data = server.data.clone();
    let manifest = data.join("MANIFEST");
    let text = fs::read_to_string(&manifest).unwrap();
    let ran_so = |words_of: &[&str], code: i32| {
        let ran = tool().run(&words(words_of, &data));
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(!ran.out.contains("corq log repair"), "{ran:?}");
        assert!(!ran.err.contains("corq log repair"), "{ran:?}");
        ran
    };
    fs::write(&manifest, text.replace("shards = 2", "shards = 3")).unwrap();
    let ran = ran_so(&["log", "repair", "--yes"], 0);
    assert!(ran.out.contains("wrote the MANIFEST anew"), "{ran:?}");
    // Two that contradict each other.
    let other = two_shards();
    fs::remove_file(&manifest).unwrap();
    fs::rename(data.join("shard-0001"), data.with_file_name("aside")).unwrap();
    fs::rename(other.data.join("shard-0001"), data.join("shard-0001")).unwrap();
    let ran = ran_so(&["log", "repair", "--yes"], 1);
    assert!(ran.err.contains("the segments do not agree"), "{ran:?}");
    fs::write(&manifest, text.replace("shards = 2", "shards = 3")).unwrap();
    let ran = ran_so(&["log", "repair", "--yes"], 1);
    assert!(ran.err.contains("the segments do not agree"), "{ran:?}");
}

/// A backup is not started from, and says where its logs end.
#[test]
fn a_repaired_backup_can_be_restored_and_says_so() {
    let (server, _) = several_files();
    let home = tempfile::tempdir().unwrap();
    let to = home.path().join("backup");
    Tool::at(1).env("DATA_PATH", server.data.display()).ok(&["backup", to.to_str().unwrap()]);
    let whole = files(&to);
    let last = segments(&to, 0).pop().unwrap();
    // In the middle of the log, and its end.
    for (round, cut) in [false, true].into_iter().enumerate() {
        if cut {
            fs::remove_file(&last).unwrap();
        } else {
            flip(&segment(&to, 1), 3_000_000);
        }
        let damaged = files(&to);
        let out = tool().ok(&words(&["log", "repair", "--yes"], &to));
        assert!(out.contains("can be restored again") && !out.contains("started from"), "{out}");
        let data = home.path().join(format!("data-{round}"));
        tool().ok(&["restore", to.to_str().unwrap(), data.to_str().unwrap()]);
        let restored = one_shard().start_at(&data);
        let found = counted(&mut restored.client());
        assert!(out.contains(&format!("now there are {found} jobs")), "{found}: {out}");
        assert!((1..400).contains(&found));
        tool().ok(&words(&["log", "undo", "--yes"], &to));
        assert!(files(&to) == damaged, "byte for byte");
        for (path, bytes) in &whole {
            fs::write(path, bytes).unwrap();
        }
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
