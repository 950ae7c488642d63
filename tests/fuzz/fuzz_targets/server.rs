//! Random well-formed commands on several connections of the real server.
//!
//! Promises: every request gets exactly one reply, with its `reqId`; the server lives on; in the end the
//! counts of every queue agree with each other and with what is listed; a restart, by kill or by signal,
//! changes nothing but what it is meant to (jobs without a lock wait again).
//!
//! `CORQ_BIN` names the program. It is not instrumented: what guides the search is the commands made.
#![no_main]

#[path = "../live/commands.rs"]
mod commands;
#[path = "../../support/mod.rs"]
mod support;

use commands::{Known, QUEUES};
use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use rmpv::Value;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use support::{Client, Dice, Server, Start, until};

/// Bytes that make some hundred commands.
const COMMANDS_BYTES: usize = 3000;

/// Commands that a connection has sent and not seen answered, by `reqId`.
struct Connection {
    client: Client,
    open: BTreeMap<String, Value>,
}

fuzz_target!(|bytes: &[u8]| {
    static SERVER: OnceLock<Mutex<Server>> = OnceLock::new();
    let server = SERVER.get_or_init(|| Mutex::new(start()));
    live(&mut server.lock().expect("a panic ends the process"), bytes);
});

/// A server whose last words are shown by whatever ends this process.
fn start() -> Server {
    let server = Start::new().start();
    let log = server.data.with_file_name("server.log");
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        eprintln!("the server said:\n{}", std::fs::read_to_string(&log).unwrap_or_default());
        abort(info);
    }));
    server
}

/// Inputs begin small and nothing measures the server, so none would ever grow: what is lacking
/// follows from what is there.
fn lengthened(bytes: &[u8]) -> Vec<u8> {
    let mut dice = Dice::new(corq_shards::job::id::fnv1a(bytes));
    let mut long = bytes.to_vec();
    long.resize_with(bytes.len().max(COMMANDS_BYTES), || dice.roll(256) as u8);
    long
}

fn live(server: &mut Server, bytes: &[u8]) {
    let bytes = lengthened(bytes);
    let mut u = Unstructured::new(&bytes);
    sweep(&mut server.client());
    let restart = u.ratio(1, 12).unwrap_or(false);
    let by_kill = u.arbitrary().unwrap_or(false);
    let mut known = Known::default();
    let mut connections: Vec<Connection> = (0..u.int_in_range(1..=3).unwrap_or(1))
        .map(|_| Connection { client: server.client(), open: BTreeMap::new() })
        .collect();
    let mut number = 0;
    while !u.is_empty() {
        // A few commands at once, then their answers: later ones can name what earlier ones made.
        for _ in 0..u.int_in_range(1..=12).unwrap_or(1) {
            let place = u.choose_index(connections.len()).unwrap_or(0);
            let Ok(fields) = commands::command(&mut u, &known) else { break };
            number += 1;
            connections[place].send(number, fields);
        }
        for connection in &mut connections {
            connection.collect(&mut known);
        }
        if u.ratio(1, 15).unwrap_or(false) {
            let gone = u.choose_index(connections.len()).unwrap_or(0);
            connections[gone] = Connection { client: server.client(), open: BTreeMap::new() };
        }
    }
    drop(connections);
    let before = stable(&mut server.client());
    if restart {
        if by_kill {
            server.kill();
        } else {
            assert!(server.terminate().success(), "the server ends as it should");
        }
        server.start();
        let after = stable(&mut server.client());
        assert_eq!(before, after, "a restart has changed something");
    }
}

impl Connection {
    fn send(&mut self, number: u64, mut fields: Vec<(Value, Value)>) {
        let request = format!("r{number}");
        fields.push(("reqId".into(), request.as_str().into()));
        let command = Value::Map(fields);
        self.client.send_value(&command).expect("the server reads");
        self.open.insert(request, command);
    }

    /// Waits for the reply to every command sent.
    fn collect(&mut self, known: &mut Known) {
        while !self.open.is_empty() {
            let reply = self.client.recv().unwrap_or_else(|error| {
                panic!("{error} while waiting for the replies to {:#?}", self.open)
            });
            if reply["type"] == "event" {
                // The connection has subscribed to them.
                continue;
            }
            let request = reply["reqId"].as_str().unwrap_or_default();
            let command = self.open.remove(request);
            let Some(command) = command else { panic!("a reply nobody waits for: {reply}") };
            match (&reply["ok"], &reply["error"]) {
                (Json::Bool(true), _) => learn(known, &reply),
                (Json::Bool(false), Json::String(text)) if !text.is_empty() => {}
                _ => panic!("{command} was answered {reply}"),
            }
        }
    }
}

/// Remembers ids and tokens.
fn learn(known: &mut Known, reply: &Json) {
    let jobs = reply["jobs"].as_array().into_iter().flatten();
    let jobs = jobs.chain([&reply["job"]]).map(|job| &job["id"]);
    let ids = reply["ids"].as_array().into_iter().flatten().chain([&reply["id"]]).chain(jobs);
    known.ids.extend(ids.filter_map(|id| Some(id.as_str()?.to_owned())));
    known.ids.sort();
    known.ids.dedup();
    let tokens = reply["tokens"].as_array().into_iter().flatten().chain([&reply["token"]]);
    known.tokens.extend(tokens.filter_map(|token| Some(token.as_str()?.to_owned())));
}

/// Leaves nothing of what was there before, so that an input always meets the same server.
fn sweep(client: &mut Client) {
    for queue in QUEUES {
        client.ok("Obliterate", json!({"queue": queue}));
    }
    for cron in client.ok("CronList", json!({}))["crons"].as_array().into_iter().flatten() {
        client.ok("CronDelete", json!({"name": cron["name"]}));
    }
}

/// Jobs, queues and schedules as clients see them, once the server comes to rest.
fn stable(client: &mut Client) -> Vec<Json> {
    let mut last = Vec::new();
    until("the server to come to rest", || {
        let seen = seen(client);
        if seen.as_ref() == Some(&last) && !last.is_empty() {
            return seen;
        }
        last = seen.unwrap_or_default();
        std::thread::sleep(Duration::from_millis(25));
        None
    })
}

/// As above; none if counts and listings disagree, as they may while time goes on.
fn seen(client: &mut Client) -> Option<Vec<Json>> {
    let mut seen = Vec::new();
    for queue in QUEUES {
        let about = json!({"queue": queue});
        let counts = client.ok("GetJobCounts", about.clone())["counts"].clone();
        let total = client.ok("Count", about.clone())["count"].as_u64();
        let jobs = client.ok("GetJobs", json!({"queue": queue, "limit": 1000}))["jobs"].clone();
        let is_state = |name: &str| !["prioritized", "paused"].contains(&name);
        let by_name = counts.as_object()?.iter().filter(|(name, _)| is_state(name));
        let sum: u64 = by_name.filter_map(|(_, count)| count.as_u64()).sum();
        let listed = jobs.as_array()?.len() as u64;
        if Some(sum) != total || listed != sum.min(1000) {
            return None;
        }
        let mut by_state: BTreeMap<&str, u64> = BTreeMap::new();
        for job in jobs.as_array()? {
            *by_state.entry(job["state"].as_str()?).or_default() += 1;
        }
        if listed < 1000
            && by_state.iter().any(|(state, listed)| counts[*state].as_u64() != Some(*listed))
        {
            return None;
        }
        for job in jobs.as_array()? {
            seen.push(facts(client, job)?);
        }
        seen.push(client.ok("IsPaused", about)["paused"].clone());
    }
    // They are listed in no particular order.
    let mut crons = client.ok("CronList", json!({}))["crons"].as_array()?.clone();
    crons.sort_by_key(|cron| cron["name"].to_string());
    seen.push(crons.into());
    Some(seen)
}

/// Facts about a job that a restart may not change.
fn facts(client: &mut Client, job: &Json) -> Option<Json> {
    let mut job = job.clone();
    let id = json!({"id": job["id"]});
    let about = job.as_object_mut()?;
    // A job without a lock waits again, and a delay or a lock can end while the server is down.
    if ["waiting", "delayed", "active"].contains(&about["state"].as_str()?) {
        about.insert("state".into(), "pending".into());
        about.remove("startedAt");
        // Nothing is written down of an attempt without a lock.
        if let Some(timeline) = about.get_mut("timeline").and_then(Json::as_array_mut) {
            timeline.retain(|entry| entry["state"] != "active");
        }
    }
    let mut more: Vec<Json> = ["GetResult", "GetProgress", "GetLogs"]
        .map(|command| client.call(command, id.clone()))
        .into();
    for answer in &mut more {
        // The job can have gone since it was listed.
        answer["ok"].as_bool().filter(|&ok| ok)?;
        answer.as_object_mut()?.remove("reqId");
    }
    Some(json!([job, more]))
}
