//! Memory that the commands of a job's life take from the allocator. The fear: one allocation a command, which nobody notices in a test and
//! everybody pays for.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Client, Start};

/// Commands of each kind.
const COMMANDS: u64 = 2000;

/// Of so many commands one may take memory: the log grows by blocks, and seconds pass, more of them on a busy machine.
const COMMANDS_PER_ALLOCATION: u64 = 20;

/// As above of pushes, whose jobs make tables grow: one of 24 does by that alone.
const PUSHES_PER_ALLOCATION: u64 = 10;

fn count(socket: &Path) -> u64 {
    let mut text = String::new();
    UnixStream::connect(socket).unwrap().read_to_string(&mut text).unwrap();
    text.parse().unwrap()
}

#[test]
fn a_push_a_pull_and_an_ack_take_no_memory_of_their_own() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("allocations");
    let server = Start::new()
        .env("SHARDS", 1)
        .env("COMPLETED_MAX", 100)
        .env("CORQ_TEST_ALLOCATIONS", socket.to_str().unwrap())
        .start();
    let mut client = server.client();
    let mut findings = Vec::new();
    let mut pulled: Vec<Value> = Vec::new();
    let mut measure = |name: &str, client: &mut Client, command: &mut dyn FnMut(&mut Client)| {
        // The first of a kind set up what is there for all that come.
        (0..100).for_each(|_| command(client));
        let before = count(&socket);
        (0..COMMANDS).for_each(|_| command(client));
        let taken = count(&socket) - before;
        println!("{name}: {taken} allocations for {COMMANDS} commands");
        let is_push = name.starts_with("PUSH");
        let each = if is_push { PUSHES_PER_ALLOCATION } else { COMMANDS_PER_ALLOCATION };
        if taken > COMMANDS / each {
            findings.push(format!("{name}: {taken} for {COMMANDS}"));
        }
    };
    measure("PUSH", &mut client, &mut |client| {
        client.ok("PUSH", json!({"queue": "q", "data": {"order": 7}}));
    });
    measure("PUSH again", &mut client, &mut |client| {
        client.ok("PUSH", json!({"queue": "q", "data": {"order": 7}}));
    });
    measure("PULL", &mut client, &mut |client| {
        let reply = client.ok("PULL", json!({"queue": "q", "owner": "worker"}));
        pulled.push(json!({"id": reply["job"]["id"], "token": reply["token"]}));
    });
    measure("PULL that would wait", &mut client, &mut |client| {
        let request = json!({"queue": "q", "owner": "worker", "timeout": 10_000});
        let reply = client.ok("PULL", request);
        pulled.push(json!({"id": reply["job"]["id"], "token": reply["token"]}));
    });
    measure("ACK", &mut client, &mut |client| {
        let ack = pulled.pop().unwrap();
        client.ok("ACK", ack);
    });
    assert!(findings.is_empty(), "{findings:#?}");
}
