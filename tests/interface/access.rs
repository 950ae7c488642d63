//! Who may do what: tokens with roles, sessions of browsers. The fear: a token that was given away for one
//! thing opens another.

use std::fs;
use std::path::PathBuf;

use corq::api::access::Role;
use corq::api::commands::{COMMANDS, CommandSpec, FieldSpec, Op};
use rustix::process::Signal;
use serde_json::{Map, Value, json};

use crate::e2e::bad_values::right;
use crate::interface::browsers::log_in;
use crate::support::client::decode;
use crate::support::stream::{Sse, UPGRADE, WebSocket};
use crate::support::{Client, Server, Start, until};

pub(crate) const TOKENS: &str = "boss,read:reader,push:pusher,work:worker,admin(emails.*):mailboss,read(emails.*):mailreader,\
    push(emails.*, sms):mailpusher,work(emails.*):mailworker";

pub(crate) fn guarded() -> Server {
    Start::new().env("AUTH_TOKENS", TOKENS).start()
}

pub(crate) fn client(server: &Server, token: &str) -> Client {
    let mut client = server.client();
    client.ok("Auth", json!({"token": token}));
    client
}

/// The text of a refusal for want of rights.
pub(crate) fn forbidden(client: &mut Client, cmd: &str, fields: Value) -> String {
    let shown = fields.to_string();
    let reply = client.call(cmd, fields);
    assert_eq!(reply["code"], "forbidden", "{cmd} {shown}: {reply}");
    reply["error"].as_str().unwrap().to_owned()
}

pub(crate) fn number(client: &mut Client, name: &str) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let line = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap()
}

#[test]
fn each_role_does_what_is_its_own_and_is_refused_all_else() {
    let server = guarded();
    let mut boss = client(&server, "boss");
    let [mut reader, mut pusher, mut worker] =
        ["reader", "pusher", "worker"].map(|token| client(&server, token));
    let id = pusher.push("q", 1);
    assert_eq!(pusher.state(&id), "waiting");
    assert_eq!(
        forbidden(&mut pusher, "PULL", json!({"queue": "q"})),
        "PULL is not for the role push: it needs work or admin"
    );
    for (cmd, fields) in [
        ("GetJob", json!({"id": id})),
        ("GetJobs", json!({"queue": "q"})),
        ("Cancel", json!({"id": id})),
        ("Drain", json!({"queue": "q"})),
        ("ListQueues", json!({})),
        ("SubscribeEvents", json!({"queue": "q"})),
    ] {
        forbidden(&mut pusher, cmd, fields);
    }
    for (cmd, fields) in [
        ("GetJob", json!({"id": id})),
        ("GetJobs", json!({"queue": "q"})),
        ("GetJobCounts", json!({"queue": "q"})),
        ("ListQueues", json!({})),
        ("Stats", json!({})),
        ("Prometheus", json!({})),
        ("ListWebhooks", json!({})),
        ("SubscribeEvents", json!({"queue": "none"})),
    ] {
        reader.ok(cmd, fields);
    }
    for (cmd, fields) in [
        ("PUSH", json!({"queue": "q", "data": 1})),
        ("PUSHB", json!({"queue": "q", "jobs": [{"data": 1}]})),
        ("PULL", json!({"queue": "q"})),
        ("ACK", json!({"id": id})),
        ("Pause", json!({"queue": "q"})),
        ("Obliterate", json!({"queue": "q"})),
        ("AddWebhook", json!({"url": "https://example.org", "events": []})),
        ("BackupPoint", json!({})),
    ] {
        forbidden(&mut reader, cmd, fields);
    }
    // Longer than a turn may take: refused as a short one is.
    let jobs: Vec<Value> = (0..3000).map(|_| json!({"data": 1})).collect();
    forbidden(&mut reader, "PUSHB", json!({"queue": "q", "jobs": jobs}));
    let ids: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
    forbidden(&mut reader, "ACKB", json!({"ids": ids}));
    forbidden(&mut worker, "PUSH", json!({"queue": "q", "data": 1}));
    forbidden(&mut worker, "GetJobs", json!({"queue": "q"}));
    forbidden(&mut worker, "Drain", json!({"queue": "q"}));
    worker.ok("RegisterWorker", json!({"name": "w", "queues": ["q"]}));
    let (job, token) = worker.pull_owned("q", 60_000);
    worker.ok("Progress", json!({"id": job["id"], "progress": 5}));
    worker.ok("ACK", json!({"id": job["id"], "token": token, "result": 7}));
    assert_eq!(pusher.ok("GetResult", json!({"id": id}))["result"], 7);
    boss.ok("Obliterate", json!({"queue": "q"}));
    for client in [&mut reader, &mut pusher, &mut worker] {
        client.ok("Ping", json!({}));
        client.ok("Hello", json!({"protocolVersion": 2}));
    }
}

/// Fields with which a command can be read.
fn needed(spec: &CommandSpec) -> Value {
    let value = |bytes: Vec<u8>| decode(&rmpv::decode::read_value(&mut &*bytes).unwrap());
    let first = |field: &FieldSpec| value(right(field).swap_remove(0));
    let required = spec.fields.iter().filter(|field| field.required);
    let mut fields =
        required.map(|field| (field.name.to_owned(), first(field))).collect::<Map<_, _>>();
    let further = match spec.op {
        // As the command that does the same with one job.
        Op::Bulk => json!({"action": "discard", "ids": ["none"]}),
        Op::Cron | Op::CronPreview => json!({"repeatEvery": 3_600_000}),
        _ => json!({}),
    };
    fields.extend(further.as_object().unwrap().clone());
    fields.into()
}

/// A surface that forgets to ask, or asks about another command, is where a token opens what it was not given for.
#[test]
fn every_command_is_refused_to_the_roles_that_it_is_not_for_on_every_surface() {
    let server = guarded();
    for role in Role::ALL {
        let token = ["boss", "reader", "pusher", "worker"][role as usize];
        let headers = format!("{UPGRADE}Authorization: Bearer {token}\r\n");
        let mut web = server.web().with_token(token);
        for spec in COMMANDS.iter().filter(|spec| spec.op != Op::Auth) {
            // A connection each: some commands have it sent more than their reply.
            let mut tcp = client(&server, token);
            let mut socket =
                WebSocket::open_with(server.http, "/ws/queues/none", &headers).unwrap();
            let fields = needed(spec);
            let answer = web.post(&format!("/v1/{}", spec.name), fields.clone());
            let answers = [
                ("tcp", tcp.call(spec.name, fields.clone())),
                ("websocket", socket.call(spec.name, fields)),
                ("http", answer.json()),
            ];
            for (surface, reply) in answers {
                let is_refused = reply["code"] == "forbidden";
                let about = format!("{} as {} over {surface}: {reply}", spec.name, role.name());
                let is_of_connection = surface == "http" && reply["code"] == "unsupported";
                assert!(is_of_connection || is_refused != spec.op.is_for(role), "{about}");
                let names_it = reply["error"].as_str().is_some_and(|it| it.contains(": it needs "));
                assert_eq!(is_refused, names_it, "{about}");
            }
        }
    }
}

#[test]
fn over_http_a_role_is_refused_with_403() {
    let server = guarded();
    let web = |token: &str| server.web().with_token(token);
    let id = web("pusher").push("q", json!({"data": 1}));
    assert_eq!(web("reader").get(&format!("/jobs/{id}")).expect(200)["job"]["id"], json!(id));
    assert_eq!(
        web("pusher").get(&format!("/jobs/{id}")).refused(403),
        "GetJob is not for the role push: it needs work or read or admin"
    );
    for (token, method, path) in [
        ("reader", "GET", "/queues/q/jobs"),
        ("reader", "DELETE", "/jobs/x"),
        ("reader", "POST", "/jobs/x/ack"),
        ("pusher", "GET", "/stats"),
        ("pusher", "GET", "/metrics"),
        ("pusher", "GET", "/events"),
        ("worker", "GET", "/events/queues/q"),
        ("mailreader", "GET", "/stats"),
        ("mailreader", "GET", "/metrics"),
        ("mailreader", "GET", "/events/queues/other"),
        ("mailboss", "GET", "/ws/queues/other"),
    ] {
        let upgrade = if path.starts_with("/ws") { UPGRADE } else { "" };
        let headers: Vec<(&str, &str)> =
            upgrade.lines().filter_map(|line| line.split_once(": ")).collect();
        let answer = web(token).call(method, path, &headers, b"");
        assert_eq!(answer.expect(403)["code"], "forbidden", "{token} {method} {path}");
    }
    let (job, token) = web("worker").pull("q");
    assert_eq!(job["id"], json!(id));
    web("worker").post(&format!("/jobs/{id}/ack"), json!({"token": token})).expect(200);
}

/// A server with tokens in a file.
fn with_file(tokens: &str) -> (Server, PathBuf, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    fs::write(&file, tokens).unwrap();
    let server = Start::new().env("AUTH_TOKENS_FILE", file.display()).start();
    (server, file, dir)
}

fn reload(server: &Server, words: &str) {
    let said = || server.output().matches(words).count();
    let before = said();
    server.signal(Signal::HUP);
    until("the tokens are read again", || (said() > before).then_some(()));
}

#[test]
fn tokens_are_read_again_on_a_signal_and_connections_stay() {
    let (server, file, _dir) = with_file("# people\nold\nread:keeper\nwork:mover\n");
    let mut old = client(&server, "old");
    let mut keeper = client(&server, "keeper");
    let mut mover = client(&server, "mover");
    let cookie = log_in(&server, "old");
    let mut stream =
        Sse::open_with(server.http, "/events", "Authorization: Bearer old\r\n").unwrap();
    let mut kept =
        Sse::open_with(server.http, "/events", "Authorization: Bearer keeper\r\n").unwrap();
    old.push("q", 1);
    assert_eq!(stream.next()["eventType"], "pushed");
    fs::write(&file, "new\nread:keeper\npush:mover\n").unwrap();
    reload(&server, "the tokens were read again: there are 3");
    client(&server, "new").push("q", 2);
    assert_eq!(server.client().refused("Auth", json!({"token": "old"})), "Invalid token");
    // The connections are the same; each may do what its token lets it do now.
    until("the old token opens nothing", || {
        (old.call("Ping", json!({}))["code"] == "unauthorized").then_some(())
    });
    old.ok("Auth", json!({"token": "new"}));
    old.push("q", 3);
    keeper.ok("GetJobCounts", json!({"queue": "q"}));
    until("the new role counts", || {
        (mover.call("PULL", json!({"queue": "none"}))["code"] == "forbidden").then_some(())
    });
    mover.push("q", 4);
    assert_eq!(server.web().call("GET", "/stats", &[("Cookie", &cookie)], b"").status, 401);
    assert_eq!(kept.next()["eventType"], "pushed");
    while stream.try_next().unwrap().is_some() {}
    // A list of tokens with a mistake changes nothing.
    fs::write(&file, "new\npush(x:mover\n").unwrap();
    reload(&server, "the tokens stay as they were: AUTH_TOKENS_FILE: line 2: push(");
    fs::write(&file, "\n").unwrap();
    reload(&server, "the tokens stay as they were: AUTH_TOKENS_FILE: it holds no token");
    client(&server, "new").ok("Ping", json!({}));
    mover.push("q", 5);
}

#[test]
fn a_signal_without_anything_to_read_again_ends_nothing() {
    let server = Server::start_default();
    let mut client = server.client();
    reload(&server, "without a file to read again");
    client.push("q", 1);
}

#[test]
fn tokens_that_mean_nothing_stop_the_start_and_are_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    for (tokens, words) in [
        ("ok,push(emails:hidden", "AUTH_TOKENS: entry 2: push("),
        ("read:", "AUTH_TOKENS: entry 1: read: must be followed by a token"),
        ("work(a b):hidden", "must name queues"),
    ] {
        let (status, output) = Start::new().env("AUTH_TOKENS", tokens).run_to_its_end(dir.path());
        assert!(!status.success() && output.contains(words), "{tokens}: {output}");
        assert!(!output.contains("hidden"), "{output}");
    }
    let missing = dir.path().join("none");
    let start = Start::new().env("AUTH_TOKENS_FILE", missing.display());
    let (status, output) = start.run_to_its_end(dir.path());
    assert!(!status.success() && output.contains("AUTH_TOKENS_FILE: "), "{output}");
}

#[test]
fn pages_only_look_where_the_setting_says_so() {
    let start = Start::new().env("AUTH_TOKENS", "boss").env("UI_READ_ONLY", "true");
    let server = start.start();
    let cookie = log_in(&server, "boss");
    let ask = |method: &str, path: &str, body: &[u8]| {
        server.web().call(method, path, &[("Cookie", &cookie)], body)
    };
    let about = ask("GET", "/whoami", b"").expect(200);
    assert_eq!(
        (&about["data"]["role"], &about["data"]["readOnly"]),
        (&json!("admin"), &json!(true))
    );
    assert_eq!(ask("GET", "/stats", b"").status, 200);
    let text = ask("POST", "/queues/q/jobs", br#"{"data":1}"#).refused(403);
    assert_eq!(text, "PUSH is not for the role read: it needs push or admin");
    let lines = format!("{UPGRADE}Cookie: {cookie}\r\n");
    let mut socket = WebSocket::open_with(server.http, "/ws", &lines).unwrap();
    assert_eq!(socket.call("Pause", json!({"queue": "q"}))["code"], "forbidden");
    assert_eq!(socket.call("ListQueues", json!({}))["ok"], true);
    // A program is none of them.
    server.web().with_token("boss").push("q", json!({"data": 1}));

    let server = Start::new().env("UI_READ_ONLY", "true").start();
    let own = ("Origin", "http://localhost");
    let push = |headers: &[(&str, &str)]| {
        server.web().call("POST", "/queues/q/jobs", headers, br#"{"data":1}"#).status
    };
    assert_eq!(
        (push(&[own]), push(&[("Sec-Fetch-Site", "same-origin")]), push(&[])),
        (403, 403, 200)
    );
    assert_eq!(server.web().call("GET", "/stats", &[own], b"").status, 200);
    // A token that no one asked for changes nothing.
    let lines = format!("{UPGRADE}Sec-Fetch-Site: same-origin\r\n");
    let mut socket = WebSocket::open_with(server.http, "/ws", &lines).unwrap();
    assert_eq!(socket.call("Pause", json!({"queue": "q"}))["code"], "forbidden");
    assert_eq!(socket.call("Auth", json!({"token": "any"}))["ok"], true);
    assert_eq!(socket.call("Pause", json!({"queue": "q"}))["code"], "forbidden");
}

/// The samples that come before the reply to a Ping.
fn samples(viewer: &mut Client) -> usize {
    let request = viewer.send("Ping", json!({})).unwrap();
    std::iter::repeat_with(|| viewer.recv().unwrap())
        .take_while(|frame| frame["reqId"] != *request)
        .count()
}

#[test]
fn a_viewer_whose_token_sees_less_now_gets_no_more_samples() {
    let (server, file, _dir) = with_file("boss\nread:viewer\n");
    let [mut boss, mut viewer] = ["boss", "viewer"].map(|token| client(&server, token));
    for one in [&mut boss, &mut viewer] {
        one.ok("Watch", json!({"every": 1000, "what": ["queues"]}));
    }
    until("the viewer sees something", || (samples(&mut viewer) > 0).then_some(()));
    fs::write(&file, "boss\nread(emails.*):viewer\n").unwrap();
    reload(&server, "the tokens were read again: there are 2");
    until("the new queues count", || {
        (viewer.call("GetJobCounts", json!({"queue": "q"}))["code"] == "forbidden").then_some(())
    });
    samples(&mut viewer);
    for _ in 0..2 {
        until("others go on seeing", || (samples(&mut boss) > 0).then_some(()));
        assert_eq!(samples(&mut viewer), 0);
    }
}

#[test]
fn a_client_is_told_who_it_is() {
    let server = guarded();
    assert_eq!(server.client().refused("Whoami", json!({})), "Not authenticated");
    assert_eq!(server.web().get("/whoami").refused(401), "Unauthorized");
    let mut about = client(&server, "mailpusher").ok("Whoami", json!({}))["data"].clone();
    let name = about.as_object_mut().unwrap().remove("tokenName").unwrap();
    assert!(name.as_str().is_some_and(|name| name.len() == 8), "{name}");
    let expected = json!({
        "role": "push", "readOnly": false, "by": "token", "queues": ["emails.*", "sms"]
    });
    assert_eq!(about, expected);
    let about = server.web().with_token("boss").get("/whoami").expect(200)["data"].clone();
    let name = &about["tokenName"];
    assert_eq!(
        about,
        json!({"role": "admin", "readOnly": false, "by": "token", "tokenName": name})
    );
    let open = Server::start_default();
    let about = open.client().ok("Whoami", json!({}))["data"].clone();
    assert_eq!(about, json!({"role": "admin", "readOnly": false, "by": "nothing"}));
}
