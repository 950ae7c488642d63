//! Backups of a server that goes on meanwhile. The fear: a copy that lacks what was acknowledged, holds
//! something twice, or changes when the server uses its files again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value as Json, json};

use crate::support::tool::Tool;
use crate::support::{Client, Server, Start, until};

/// The smallest files, so that many come and go, and little memory for payloads.
fn small() -> Start {
    Start::new().env("SEGMENT_MB", 16).env("PAYLOAD_CACHE_MB", 4)
}

fn tool(server: &Server) -> Tool {
    Tool::of(server).env("DATA_PATH", server.data.display())
}

fn back_up(server: &Server, to: &Path) -> Json {
    let report = tool(server).json(&["backup", to.to_str().unwrap()]);
    assert_eq!((&report["ok"], &report["shards"]), (&json!(true), &json!(2)), "{report}");
    report
}

fn restore(from: &Path, to: &Path) {
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    let report = Tool::at(1).json(&["restore", from, to]);
    assert_eq!(report["ok"], true, "{report}");
}

fn reclaimed(client: &mut Client) -> u64 {
    let metrics = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let name = "corq_log_reclaimed_segments_total ";
    let lines = metrics.as_str().unwrap().lines();
    lines.filter_map(|line| line.strip_prefix(name)?.parse::<u64>().ok()).sum()
}

/// Brings in and completes jobs of which nothing is kept, so that segments fill and go.
fn churn(client: &mut Client, queue: &str, rounds: usize) {
    let data = "c".repeat(100_000);
    for _ in 0..rounds {
        let batch: Vec<Json> =
            (0..20).map(|_| json!({"data": data, "removeOnComplete": true})).collect();
        client.ok("PUSHB", json!({"queue": queue, "jobs": batch}));
        let pulled = client.ok("PULLB", json!({"queue": queue, "count": 20}))["jobs"].clone();
        let ids: Vec<&Json> = pulled.as_array().unwrap().iter().map(|job| &job["id"]).collect();
        client.ok("ACKB", json!({"ids": ids}));
    }
}

/// The clients' knowledge of numbered jobs.
#[derive(Clone, Default)]
struct Known {
    /// Pushes that were answered.
    pushed: BTreeSet<u64>,
    /// Completions that were sent.
    completing: BTreeSet<u64>,
    /// Completions that were answered.
    completed: BTreeSet<u64>,
}

struct Load<'a> {
    server: &'a Server,
    known: Mutex<Known>,
    next: AtomicU64,
    stop: AtomicBool,
}

/// Queues of both shards.
const QUEUES: [&str; 6] = ["b-one", "b-two", "b-three", "b-four", "b-five", "b-six"];

impl Load<'_> {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn note(&self, note: impl FnOnce(&mut Known) -> bool) {
        note(&mut self.known.lock().unwrap());
    }

    /// Pushes a job and one on another queue that depends on it, and completes some of the first.
    fn pairs(&self, seed: u64) {
        let mut client = self.server.client();
        let mut round = seed;
        while self.goes_on() {
            round += 1;
            let (first, second) = (QUEUES[round as usize % 6], QUEUES[(round as usize + 1) % 6]);
            let numbers = self.next.fetch_add(2, Ordering::Relaxed);
            let custom = json!({"jobId": format!("pair-{numbers}")});
            let options = if round.is_multiple_of(3) { custom } else { json!({}) };
            let parent = client.push_with(first, json!({"number": numbers}), options);
            self.note(|known| known.pushed.insert(numbers));
            let depends = json!({"dependsOn": [parent]});
            client.push_with(second, json!({"number": numbers + 1}), depends);
            self.note(|known| known.pushed.insert(numbers + 1));
            self.work(&mut client, first);
        }
    }

    fn work(&self, client: &mut Client, queue: &str) {
        let reply = client.ok("PULL", json!({"queue": queue, "owner": "w", "lockTtl": 60_000}));
        let Some(number) = reply["job"]["data"]["number"].as_u64() else { return };
        self.note(|known| known.completing.insert(number));
        client.ok("ACK", json!({"id": reply["job"]["id"], "token": reply["token"]}));
        self.note(|known| known.completed.insert(number));
    }

    fn churn(&self, queue: &str) {
        let mut client = self.server.client();
        while self.goes_on() {
            churn(&mut client, queue, 1);
        }
    }
}

/// All numbered jobs of a server with their states. None may be there twice.
fn listed(client: &mut Client) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    for queue in QUEUES {
        for offset in (0..).step_by(1000) {
            let page = json!({"queue": queue, "limit": 1000, "offset": offset});
            let jobs = client.ok("GetJobs", page)["jobs"].clone();
            let jobs = jobs.as_array().unwrap();
            for job in jobs {
                let number = job["data"]["number"].as_u64().unwrap();
                let state = job["state"].as_str().unwrap().to_owned();
                assert_ne!(state, "failed", "{job}");
                assert_eq!(found.insert(number, state), None, "{number} is there twice");
            }
            if jobs.len() < 1000 {
                break;
            }
        }
    }
    found
}

/// Checks the jobs of a backup by the clients' knowledge before and after it was made.
fn reconcile(found: &BTreeMap<u64, String>, before: &Known, after: &Known) {
    for number in &before.pushed {
        let state = found.get(number);
        let state =
            state.unwrap_or_else(|| panic!("{number} was answered before and is not there"));
        let done = state == "completed";
        assert!(!before.completed.contains(number) || done, "{number} comes again: {state}");
        assert!(!done || after.completing.contains(number), "nobody completed {number}");
    }
}

#[test]
fn a_backup_under_load_holds_all_that_was_acknowledged_and_nothing_twice() {
    let server = small().start();
    let load = Load {
        server: &server,
        known: Mutex::default(),
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let home = tempfile::tempdir().unwrap();
    let mut made: Vec<(PathBuf, Known, Known)> = Vec::new();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let load = &load;
            scope.spawn(move || load.pairs(seed));
        }
        for queue in ["churn-a", "churn-b", "churn-c"] {
            let load = &load;
            scope.spawn(move || load.churn(queue));
        }
        let stops = Stops(&load.stop);
        let mut client = server.client();
        for round in 0..2 {
            let gone = reclaimed(&mut client);
            until("segments go", || (reclaimed(&mut client) > gone).then_some(()));
            let to = home.path().join(format!("backup-{round}"));
            let before = load.known.lock().unwrap().clone();
            let asked = reclaimed(&mut client);
            match round {
                0 => drop(back_up(&server, &to)),
                _ => drop(tool(&server).ok(&["backup", to.to_str().unwrap(), "--copy"])),
            }
            made.push((to, before, load.known.lock().unwrap().clone()));
            // The files that the backup shares go from the server before it is looked at.
            until("segments go", || (reclaimed(&mut client) > asked + 3).then_some(()));
        }
        drop(stops);
    });
    for (to, before, after) in made {
        assert!(before.pushed.len() > 20, "there was no load");
        Tool::at(1).ok(&["log", "verify", to.to_str().unwrap()]);
        let data = home.path().join("restored");
        restore(&to, &data);
        let restored = small().start_at(&data);
        let found = listed(&mut restored.client());
        reconcile(&found, &before, &after);
        let latest = load.next.load(Ordering::Relaxed);
        assert!(found.keys().all(|&number| number < latest));
        // Nothing waits for what is not there: when all that can be done is done, all is done.
        let mut client = restored.client();
        until("all jobs are done", || {
            for queue in QUEUES {
                let pulled = client.ok("PULLB", json!({"queue": queue, "count": 1000}));
                for job in pulled["jobs"].as_array().unwrap() {
                    client.ok("ACK", json!({"id": job["id"]}));
                }
            }
            // Jobs that were with a worker are with it still: their locks are alive.
            let open = |state: &String| state != "completed" && state != "active";
            (!listed(&mut client).values().any(open) || only_waits_for_active(&mut client))
                .then_some(())
        });
        drop(restored);
        fs::remove_dir_all(&data).unwrap();
    }
}

/// The addresses at which a server says that its logs can be cut, by shard.
fn cuts(client: &mut Client) -> Vec<u64> {
    let point = client.ok("BackupPoint", json!({}))["data"].clone();
    let shards = point["shards"].as_array().unwrap().iter();
    let number = |value: &Json| value.as_f64().unwrap() as u64;
    let ends = shards.map(|shard| (number(&shard["shard"]), number(&shard["end"])));
    ends.collect::<BTreeMap<u64, u64>>().into_values().collect()
}

/// A shard, and an address in its log.
type Place = (usize, u64);

/// Records and what they follow from, as far as that is on another shard: a dependent from what it depends
/// on, the end of its waiting from the completion.
fn consequences(data: &Path) -> Vec<(Place, Place)> {
    let words = ["log", "dump", data.to_str().unwrap(), "--kind", "pushed,done,met"];
    let mut found: BTreeMap<(String, String), Place> = BTreeMap::new();
    let mut follows = Vec::new();
    for line in Tool::at(1).ok(&words).lines() {
        let record: Json = serde_json::from_str(line).unwrap();
        let number = |name: &str| record[name].as_u64().unwrap();
        let place = (number("shard") as usize, number("position"));
        let text = |name: &str| record[name].as_str().unwrap().to_owned();
        match text("kind").as_str() {
            "met" => follows.push((place, ("done".to_owned(), text("dependency")))),
            kind => drop(found.insert((kind.to_owned(), text("id")), place)),
        }
        for id in record["unmet"].as_array().into_iter().flatten() {
            follows.push((place, ("pushed".to_owned(), id.as_str().unwrap().to_owned())));
        }
    }
    let pairs = follows.into_iter().map(|(place, cause)| (place, found[&cause]));
    pairs.filter(|(place, cause)| place.0 != cause.0).collect()
}

/// Whether what is before the cuts lacks nothing that it follows from.
fn is_one_state(cuts: &[u64], consequences: &[(Place, Place)]) -> bool {
    let has = |(shard, position): Place| position < cuts[shard];
    consequences.iter().all(|&(place, cause)| !has(place) || has(cause))
}

#[test]
fn the_cuts_of_all_shards_are_one_state() {
    let mut server = small().env("SHARDS", 4).start();
    let load = Load {
        server: &server,
        known: Mutex::default(),
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let mut asked = Vec::new();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let load = &load;
            scope.spawn(move || load.pairs(seed));
        }
        let stops = Stops(&load.stop);
        let mut client = server.client();
        let done = || load.known.lock().unwrap().completed.len();
        until("there is load", || (done() > 50).then_some(()));
        let before = done();
        while asked.len() < 1000 || done() < before + 200 {
            asked.push(cuts(&mut client));
        }
        drop(stops);
    });
    assert!(server.terminate().success());
    let consequences = consequences(&server.data);
    assert!(consequences.len() > 100, "only {} cross shards", consequences.len());
    for cuts in &asked {
        assert!(is_one_state(cuts, &consequences), "{cuts:?}");
    }
    // If some shards had cut only at the next question, it would be seen.
    let torn =
        |cuts: &[Vec<u64>]| -> Vec<u64> { (0..4).map(|shard| cuts[shard % 2][shard]).collect() };
    let torn = asked.windows(2).filter(|cuts| !is_one_state(&torn(cuts), &consequences)).count();
    assert!(torn > 0, "the load would not show it");
}

/// Whether every job that waits for another one waits for one that a worker has.
fn only_waits_for_active(client: &mut Client) -> bool {
    let mut active = BTreeSet::new();
    let mut waiting = Vec::new();
    for queue in QUEUES {
        let jobs = client.ok("GetJobs", json!({"queue": queue, "limit": 1000}))["jobs"].clone();
        for job in jobs.as_array().unwrap() {
            let number = job["data"]["number"].as_u64().unwrap();
            match job["state"].as_str().unwrap() {
                "active" => {
                    active.insert(number);
                }
                "completed" => {}
                _ => waiting.push(number),
            }
        }
    }
    waiting.iter().all(|number| active.contains(&(number - 1)))
}

/// Ends the load, also when the test has failed.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn files_that_a_backup_shares_are_never_written_to_again() {
    let server = small().env("SHARDS", 1).start();
    let mut client = server.client();
    let witness = client.push("kept", json!({"text": "w".repeat(100_000)}));
    churn(&mut client, "churn", 15);
    let home = tempfile::tempdir().unwrap();
    let to = home.path().join("backup");
    let report = tool(&server).json(&["backup", to.to_str().unwrap()]);
    assert!(report["linked"].as_u64().unwrap() >= 1, "{report}");
    let content = |path: &Path| -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(path.join("shard-0000")).unwrap().map(Result::unwrap);
        let mut files: Vec<(String, Vec<u8>)> = entries
            .map(|it| (it.file_name().into_string().unwrap(), fs::read(it.path()).unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = content(&to);
    let gone = reclaimed(&mut client);
    while reclaimed(&mut client) < gone + 8 {
        churn(&mut client, "churn", 5);
    }
    assert!(content(&to) == before, "the backup has changed");
    let links = before.iter().map(|(name, _)| to.join("shard-0000").join(name));
    let shared = links.filter(|path| fs::metadata(path).unwrap().nlink() > 1).count();
    assert_eq!(shared, 0, "the server has let go of all of them");
    let data = home.path().join("restored");
    restore(&to, &data);
    let restored = small().env("SHARDS", 1).start_at(&data);
    let job = restored.client().ok("GetJob", json!({"id": witness}))["job"].clone();
    assert_eq!(job["data"]["text"].as_str().unwrap().len(), 100_000);
}

#[test]
fn a_stopped_servers_directory_is_backed_up_as_well_also_to_another_file_system() {
    let mut server = small().start();
    let mut client = server.client();
    let ids: Vec<String> =
        QUEUES.iter().map(|queue| client.push(queue, json!({"number": 1}))).collect();
    assert!(server.terminate().success());
    // Memory, if there is such a file system: then the files cannot be shared.
    let other = Path::new("/dev/shm");
    let elsewhere = other.is_dir().then(|| tempfile::tempdir_in(other).ok()).flatten();
    let home = tempfile::tempdir().unwrap();
    let shm = elsewhere.as_ref().map(|dir| dir.path().join("backup"));
    for to in [Some(home.path().join("backup")), shm].into_iter().flatten() {
        let report = back_up(&server, &to);
        assert_eq!(report["segments"], 2, "{report}");
        let mut names: Vec<String> = fs::read_dir(&to)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["BACKUP", "MANIFEST", "shard-0000", "shard-0001"]);
        assert!(!server.data.join("backup-pins").exists(), "nothing is left behind");
        let data = home.path().join("restored");
        restore(&to, &data);
        let restored = small().start_at(&data);
        let mut client = restored.client();
        for id in &ids {
            assert_eq!(client.state(id), "waiting");
        }
        drop(restored);
        fs::remove_dir_all(&data).unwrap();
    }
    server.start();
}

#[test]
fn an_empty_server_can_be_backed_up_and_restored() {
    let server = small().start();
    let home = tempfile::tempdir().unwrap();
    let (to, data) = (home.path().join("backup"), home.path().join("restored"));
    // An empty directory is as good as none.
    fs::create_dir(&to).unwrap();
    fs::create_dir(&data).unwrap();
    let out = tool(&server).ok(&["backup", to.to_str().unwrap()]);
    assert!(out.starts_with("backed up 2 shards, "), "{out}");
    let out = Tool::at(1).ok(&["restore", to.to_str().unwrap(), data.to_str().unwrap()]);
    assert!(out.contains("SHARDS=2"), "{out}");
    let restored = small().start_at(&data);
    restored.client().push("q", 1);
}

#[test]
fn what_would_make_a_bad_backup_is_refused() {
    let (server, other) = (small().start(), small().start());
    server.client().push("q", 1);
    let home = tempfile::tempdir().unwrap();
    let to = home.path().join("backup");
    let to = to.to_str().unwrap();
    // Another server's directory.
    let strange = Tool::of(&other).env("DATA_PATH", server.data.display());
    let line = strange.fails(1, &["backup", to]);
    assert!(line.contains("another server"), "{line}");
    // A directory that is used, by a server that cannot be reached.
    let line = Tool::at(1).env("DATA_PATH", server.data.display()).fails(1, &["backup", to]);
    assert!(line.contains("cannot reach a server"), "{line}");
    let inside = server.data.join("backup");
    let line = tool(&server).fails(1, &["backup", inside.to_str().unwrap()]);
    assert!(line.contains("no backup"), "{line}");
    assert!(!inside.exists());
    let line = Tool::of(&server).env("DATA_PATH", to).fails(1, &["backup", to]);
    assert!(line.contains("MANIFEST"), "{line}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "a refusal leaves nothing");
    back_up(&server, Path::new(to));
    let line = tool(&server).fails(1, &["backup", to]);
    assert!(line.contains("is not empty"), "{line}");
}

#[test]
fn what_would_make_a_bad_data_directory_is_refused() {
    let server = small().start();
    let mut client = server.client();
    for n in 0..200 {
        client.push("q", json!({"n": n}));
    }
    let home = tempfile::tempdir().unwrap();
    let (to, data) = (home.path().join("backup"), home.path().join("restored"));
    let words = ["restore", to.to_str().unwrap(), data.to_str().unwrap()];
    back_up(&server, &to);
    let line = Tool::at(1).fails(1, &["restore", words[1], server.data.to_str().unwrap()]);
    assert!(line.contains("is not empty"), "{line}");

    let marker = fs::read(to.join("BACKUP")).unwrap();
    fs::remove_file(to.join("BACKUP")).unwrap();
    assert!(Tool::at(1).fails(1, &words).contains("no complete backup"));
    fs::write(to.join("BACKUP"), "version = 9\n").unwrap();
    assert!(Tool::at(1).fails(1, &words).contains("version 9"));
    fs::write(to.join("BACKUP"), marker).unwrap();

    let full = (0..2).map(|shard| to.join(format!("shard-{shard:04}"))).find_map(|shard| {
        let files = fs::read_dir(shard).unwrap().map(|entry| entry.unwrap().path());
        files.max_by_key(|path| fs::metadata(path).unwrap().len())
    });
    let segment = full.unwrap();
    let sound = fs::read(&segment).unwrap();
    // A flipped bit, a shorter end, and a file that is gone: nothing synced has to say so.
    let mut flipped = sound.clone();
    flipped[5000] ^= 4;
    for bytes in [Some(flipped), Some(sound[..sound.len() - 64].to_vec()), None] {
        match &bytes {
            Some(bytes) => fs::write(&segment, bytes).unwrap(),
            None => fs::remove_file(&segment).unwrap(),
        }
        let line = Tool::at(1).fails(1, &words);
        assert!(line.contains("the backup is damaged"), "{line}");
        let left: Vec<_> = fs::read_dir(home.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing is put in place, nothing is left");
    }
    fs::write(&segment, sound).unwrap();
    Tool::at(1).ok(&words);
}

/// A backup of two shards with jobs on both.
fn of_two_shards(home: &Path) -> PathBuf {
    let server = small().start();
    let mut client = server.client();
    for n in 0..16 {
        client.push(&format!("q-{n}"), n);
    }
    let to = home.join("backup");
    back_up(&server, &to);
    let text = fs::read_to_string(to.join("BACKUP")).unwrap();
    assert!(text.contains("shards = 2\n") && !text.contains(" = 0000000000000000\n"), "{text}");
    to
}

/// A `MANIFEST` can say less than there was, as those of early builds do without a checksum; what the backup says of itself
/// does not.
#[test]
fn a_backup_that_has_lost_a_shard_is_not_restored_nor_backed_up() {
    let home = tempfile::tempdir().unwrap();
    let from = of_two_shards(home.path());
    fs::remove_dir_all(from.join("shard-0001")).unwrap();
    let manifest = fs::read_to_string(from.join("MANIFEST")).unwrap();
    let lines = manifest.lines().filter(|line| !line.starts_with("checksum"));
    let fewer = lines.collect::<Vec<_>>().join("\n").replace("shards = 2", "shards = 1");
    fs::write(from.join("MANIFEST"), fewer + "\n").unwrap();
    let from = from.to_str().unwrap();
    let to = home.path().join("restored");
    let copy = Tool::at(1).env("DATA_PATH", from);
    for command in [&["restore", from][..], &["backup"]] {
        let line = copy.fails(1, &[command, &[to.to_str().unwrap()]].concat());
        assert!(line.contains("BACKUP") && line.contains("of 2 shards"), "{line}");
        assert!(!to.exists());
    }
}

#[test]
fn a_restored_directory_misses_a_shard_from_its_first_start() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("restored");
    restore(&of_two_shards(home.path()), &data);
    fs::rename(data.join("shard-0001"), home.path().join("aside")).unwrap();
    let (status, said) = small().run_to_its_end(&data);
    assert!(!status.success() && said.contains("shard-0001"), "{said}");
    fs::rename(home.path().join("aside"), data.join("shard-0001")).unwrap();
    let server = small().start_at(&data);
    let mut client = server.client();
    let waiting: u64 = (0..16).map(|n| client.counted(&format!("q-{n}"), "waiting")).sum();
    assert_eq!(waiting, 16);
}

#[test]
fn a_server_without_a_disk_has_no_backup_point() {
    let server = Start::new().memory().start();
    let said = server.client().refused("BackupPoint", json!({}));
    assert_eq!(said, "The server keeps nothing on a disk");
}

#[test]
fn a_backup_of_no_named_directory_is_one_of_the_servers_own() {
    let server = small().start();
    let id = server.client().push("q", 1);
    let dir = tempfile::tempdir().unwrap();
    let run = |tool: &Tool, to: &str| {
        let output = tool.command(&["backup", to]).current_dir(dir.path()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (output.status.success(), err)
    };
    assert_eq!(run(&Tool::of(&server), "to"), (true, String::new()));
    restore(&dir.path().join("to"), &dir.path().join("restored"));
    let restored = small().start_at(&dir.path().join("restored"));
    assert_eq!(restored.client().state(&id), "waiting");
    let memory = Start::new().memory().start();
    let (is_done, line) = run(&Tool::of(&memory), "of-memory");
    assert!(!is_done && line.contains("keeps all in memory"), "{line}");
    let (is_done, line) = run(&Tool::at(1), "of-none");
    assert!(!is_done && line.contains("--data-path") && line.contains("cannot reach"), "{line}");
}
