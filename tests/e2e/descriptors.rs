//! Descriptors, which every connection and every file of the log takes one of. The fear: strangers who only
//! connect take those of the log, and it stops; or a server that has more files than it may open never starts again.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use corq_io::log::{BlockingDisk, DataDir, Log, LogConfig, Mode, Position};
use corq_shards::log_record::Record;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use serde_json::json;

use crate::e2e::space::{SEGMENT, metrics, text};
use crate::support::{Client, Server, Start, until};

/// Files that the server may have open.
const FILES: u64 = 320;

/// Strangers that this process may be at once beside its other tests: several times what the server may have open.
fn strangers() -> usize {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let most = limit.maximum.unwrap_or(u64::MAX).saturating_sub(1000) as usize;
    most.min(2000)
}

fn start() -> Start {
    // A connection that was there first stays, however long the strangers take.
    let start = Start::new().env("HTTP_IDLE_TIMEOUT_MS", 3_600_000);
    let start = start.env("HTTP_REQUEST_TIMEOUT_MS", 3_600_000);
    start.env("PAYLOAD_CACHE_MB", 4).open_files(FILES)
}

fn open_files(server: &Server) -> u64 {
    fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count() as u64
}

/// Pushes until each shard has gone on to `more` files; answers how many jobs that took.
fn fill_segments(client: &mut Client, more: u64) -> u64 {
    let data = text('d', 500_000);
    let before = metrics(client)["corq_log_segments"];
    let mut pushed = 0;
    while metrics(client)["corq_log_segments"] < before + more {
        for queue in ["q-1", "q-2", "q-3", "q-4"] {
            client.push(queue, data.as_str());
            pushed += 1;
        }
        assert!(pushed < 4000, "the log does not grow");
    }
    pushed
}

fn waiting(client: &mut Client) -> u64 {
    ["q-1", "q-2", "q-3", "q-4"].iter().map(|queue| client.counted(queue, "waiting")).sum()
}

/// Who only connects, and stays as long as the server lets it.
fn connect(count: usize, ports: [u16; 2]) -> Vec<TcpStream> {
    let mut there = Vec::new();
    for port in ports.into_iter().cycle().take(count) {
        // A connection that is turned away has had its turn.
        there.extend(TcpStream::connect(("127.0.0.1", port)));
    }
    there
}

#[test]
fn strangers_who_only_connect_neither_stop_the_log_nor_refuse_a_push() {
    for durability in ["written", "synced"] {
        let mut server = start().env("DURABILITY", durability).start();
        let mut client = server.client();
        let mut web = server.web();
        client.push("q-1", 1);
        let crowd = connect(strangers(), [server.tcp, server.http]);
        until("some are turned away", || {
            (metrics(&mut client)["corq_connections_rejected_total"] > 0).then_some(())
        });
        assert!(open_files(&server) < FILES, "{} files are open", open_files(&server));
        let pushed = 1 + fill_segments(&mut client, 6);
        assert_eq!(web.get("/ready").status, 200);
        let now = metrics(&mut client);
        assert_eq!((now["corq_log_segment_failures_total"], now["corq_log_full"]), (0, 0));
        assert!(now["corq_connections"] <= now["corq_connections_max"], "{now:?}");
        assert_eq!(waiting(&mut client), pushed);
        // Payloads come back from files that were closed meanwhile.
        let pulled = client.ok("PULLB", json!({"queue": "q-1", "count": 20}))["jobs"].clone();
        assert_eq!(pulled.as_array().unwrap().len(), 20);
        drop(crowd);
        until("there is room for somebody new", || {
            let mut new = Client::try_connect(server.tcp).ok()?;
            new.try_call("Ping", json!({})).ok()
        });
        server.kill();
        server.start();
        let mut client = server.client();
        assert_eq!(waiting(&mut client) + client.counted("q-1", "active"), pushed);
        let said = server.output();
        assert!(said.contains(&format!(" connections: ulimit -n is {FILES}.")), "{said}");
        assert!(!said.contains("ERROR"), "{said}");
    }
}

/// Says that nobody need stay, also when a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Strangers who connect during a start that reads its log.
#[test]
fn strangers_who_connect_during_a_start_do_not_keep_it_from_its_files() {
    let mut server = start().start();
    let pushed = fill_segments(&mut server.client(), 4);
    server.kill();
    let (stay, most) = (AtomicBool::new(true), strangers());
    std::thread::scope(|scope| {
        let (stay, port) = (&stay, server.http);
        scope.spawn(move || {
            let mut there = Vec::new();
            while stay.load(Ordering::Relaxed) {
                there.extend(TcpStream::connect(("127.0.0.1", port)));
                there.truncate(most);
            }
        });
        let _ends = Ends(stay);
        server.launch();
        until("it serves", || server.output().matches(" serves tcp ").nth(1).map(|_| ()));
    });
    let mut client = until("there is room for a client", || {
        let mut client = Client::try_connect(server.tcp).ok()?;
        client.try_call("Ping", json!({})).ok().map(|_| client)
    });
    assert_eq!(waiting(&mut client), pushed);
}

/// A log of so many segments, each with one record: a queue that is paused.
fn write_segments(path: &std::path::Path, count: u64) {
    let data = DataDir::open(path, 1).unwrap();
    let config = LogConfig {
        log_id: data.id(),
        segment_bytes: SEGMENT,
        cache_bytes: 0,
        ..LogConfig::new(0, Mode::Written)
    };
    for number in 0..count {
        let disk = BlockingDisk::open(path, 0).unwrap();
        let nothing = |_: Position, _: &[u8]| Ok::<(), String>(());
        let (mut log, _) = Log::open(&config, disk, nothing).unwrap();
        let queue = format!("paused-{number}");
        let record = Record::Paused { queue: &queue, paused: true };
        let (_, body) = log.append(record.encoded_len());
        record.encode(body);
        until("the log closes", || log.close(1).unwrap().then_some(()));
    }
}

#[test]
fn with_more_segments_than_descriptors_a_server_starts_and_serves() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    write_segments(&data, 280);
    let start = Start::new().env("SHARDS", 1).open_files(256);
    let mut server = start.start_at(&data);
    let mut client = server.client();
    for queue in ["paused-0", "paused-140", "paused-279"] {
        assert_eq!(client.ok("IsPaused", json!({"queue": queue}))["paused"], true);
    }
    assert!(open_files(&server) < 256);
    client.push("q", 1);
    drop(client);
    assert!(server.terminate().success(), "{}", server.output());
    // Tools read as many.
    crate::support::tool::Tool::at(1).ok(&["log", "verify", data.to_str().unwrap()]);
    // And so does a change of the number of shards.
    server.start_with("SHARDS", 2);
    let mut client = server.client();
    assert_eq!(client.ok("IsPaused", json!({"queue": "paused-140"}))["paused"], true);
    assert_eq!(client.counted("q", "waiting"), 1);
}

/// From now on the server may have so many files open; none: as many as at its start.
fn limit_files(server: &Server, most: Option<u64>) {
    let pid = Pid::from_raw(server.pid() as i32);
    // The server was started with the limits of this process.
    let maximum = getrlimit(Resource::Nofile).maximum;
    prlimit(pid, Resource::Nofile, Rlimit { current: most.or(maximum), maximum }).unwrap();
}

fn refusals(client: &mut Client, data: &str) -> Option<String> {
    let reply = client.call("PUSH", json!({"queue": "q-1", "data": data}));
    (reply["ok"] == false).then(|| reply["error"].as_str().unwrap().to_owned())
}

/// Another program takes all the descriptors there are, for a while: jobs are refused in true words, and taken again.
#[test]
fn a_log_without_descriptors_waits_says_so_and_goes_on_by_itself() {
    for durability in ["written", "synced"] {
        let start = Start::new().env("SHARDS", 1).env("DURABILITY", durability);
        let mut server = start.env("COMPLETED_MAX", 1000).start();
        let mut client = server.client();
        let mut web = server.web();
        let id = client.push("done", 1);
        client.pull("done");
        client.ok("ACK", json!({"id": id}));
        let held: BTreeMap<String, u64> = metrics(&mut client);
        assert_eq!(held["corq_log_full"], 0);
        let data = text('d', 500_000);
        let mut taken = 20;
        (0..taken).for_each(|_| drop(client.push("q-1", data.as_str())));
        limit_files(&server, Some(3));
        let refused = loop {
            match refusals(&mut client, &data) {
                Some(error) => break error,
                None => taken += 1,
            }
            assert!(taken < 4000, "what it had open beforehand lasts for ever");
        };
        assert_eq!(refused, "Too many open files");
        let ready = web.get("/ready");
        assert_eq!((ready.status, ready.text().contains("Too many open files")), (503, true));
        let push = web.post("/queues/q-1/jobs", json!({"data": data}));
        assert_eq!(push.status, 503, "{}", push.text());
        assert_eq!(push.headers["retry-after"], "1");
        assert_eq!(metrics(&mut client)["corq_log_full"], 1);
        // Completed jobs are not forgotten for want of descriptors, and jobs go on.
        assert_eq!(client.counted("done", "completed"), 1);
        for _ in 0..20 {
            let job = client.ok("PULL", json!({"queue": "q-1", "owner": "w"}));
            let result = text('r', 2000);
            client.ok(
                "ACK",
                json!({"id": job["job"]["id"], "token": job["token"], "result": result}),
            );
            taken -= 1;
        }
        limit_files(&server, None);
        until("jobs are taken again", || refusals(&mut client, &data).is_none().then_some(()));
        taken += 1;
        until("it is ready", || (web.get("/ready").status == 200).then_some(()));
        assert_eq!(client.counted("q-1", "waiting"), taken);
        server.kill();
        server.start();
        assert_eq!(server.client().counted("q-1", "waiting"), taken);
    }
}

#[test]
fn so_many_shards_that_descriptors_do_not_suffice_are_refused_with_the_number_they_need() {
    let dir = tempfile::tempdir().unwrap();
    let start = Start::new().env("SHARDS", 64).open_files(256);
    let (status, said) = start.run_to_its_end(&dir.path().join("data"));
    assert!(!status.success() && said.contains("64 shards"), "{said}");
    assert!(said.contains("only 256 files may be open"), "{said}");
}
