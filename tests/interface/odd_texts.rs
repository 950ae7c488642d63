//! Texts that people and programs really send: with a dash in front, with nothing but blanks, with characters of four bytes,
//! of control, or that mean something elsewhere. The fear: one surface that takes such a text for something else.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::support::stream::WebSocket;
use crate::support::tool::Tool;
use crate::support::{Client, Http};
use crate::{client, queue, shared};

/// Each has a fear of its own.
const TEXTS: [&str; 16] = [
    "\u{0}",
    "a\u{0}b",
    "-1: no such file",
    "--",
    "--help",
    "a:b:c",
    "100 % of %s %20 %",
    "😀 🏳️‍🌈 𝔘",
    "\u{feff}with a mark",
    "\u{202e}from right to left",
    " ",
    "\ttab and\r\nlines\n",
    r#"{"json":["in","a text"]} \" \ud83d"#,
    "$(id) `id` $HOME 'x'",
    "a/b?c=d&e#f+g",
    "\u{7f}\u{85}\u{2028}\u{ffff}",
];

/// A way to the server.
enum Surface {
    Tcp(Client),
    Socket(WebSocket),
    Web(Http),
}

/// A text as a segment of a path.
fn segment(text: &str) -> String {
    text.bytes().fold(String::new(), |mut path, byte| {
        write!(path, "%{byte:02X}").unwrap();
        path
    })
}

impl Surface {
    fn all() -> [Self; 3] {
        let socket = WebSocket::open(shared().http, "/ws/queues/nothing-happens-here");
        [Self::Tcp(client()), Self::Socket(socket), Self::Web(shared().web())]
    }

    /// The reply to a command, whatever carries it.
    fn call(&mut self, command: &str, fields: &Value) -> Value {
        match self {
            Self::Tcp(tcp) => tcp.call(command, fields.clone()),
            Self::Socket(socket) => socket.call(command, fields.clone()),
            Self::Web(web) => {
                let segment = |name: &str| segment(fields[name].as_str().unwrap());
                let job = || format!("/jobs/{}", segment("id"));
                let (method, path) = match command {
                    "PUSH" => ("POST", format!("/queues/{}/jobs", segment("queue"))),
                    "PULL" => {
                        ("GET", format!("/queues/{}/jobs?owner=w&detach=true", segment("queue")))
                    }
                    "ACK" => ("POST", format!("{}/ack", job())),
                    "FAIL" => ("POST", format!("{}/fail", job())),
                    "Progress" => ("POST", format!("{}/progress", job())),
                    "AddLog" => ("POST", format!("{}/logs", job())),
                    "GetJob" => ("GET", job()),
                    "GetLogs" => ("GET", format!("{}/logs", job())),
                    "GetResult" => ("GET", format!("{}/result", job())),
                    "GetProgress" => ("GET", format!("{}/progress", job())),
                    _ => panic!("{command} has no route here"),
                };
                let mut body = fields.clone();
                for in_path in ["queue", "id", "owner", "detach"] {
                    body.as_object_mut().unwrap().remove(in_path);
                }
                let body = if method == "GET" { String::new() } else { body.to_string() };
                web.call(method, &path, &[], body.as_bytes()).json()
            }
        }
    }

    fn ok(&mut self, command: &str, fields: &Value) -> Value {
        let reply = self.call(command, fields);
        assert_eq!(reply["ok"], true, "{command} {fields}: {reply}");
        reply
    }
}

#[test]
fn an_odd_text_is_kept_as_it_is_or_refused_by_the_name_of_its_field_on_every_surface() {
    let mut refused = Vec::new();
    for (number, mut surface) in Surface::all().into_iter().enumerate() {
        for (place, text) in TEXTS.into_iter().enumerate() {
            let queue = queue(&format!("odd-{number}-{place}"));
            for field in ["jobId", "name", "groupId", "uniqueKey", "tags"] {
                let value = if field == "tags" { json!([text]) } else { json!(text) };
                let push = json!({"queue": queue, "data": {text: [text]}, field: value});
                let reply = surface.call("PUSH", &push);
                if reply["ok"] == true {
                    let job = surface.ok("GetJob", &json!({"id": reply["id"]}))["job"].clone();
                    assert_eq!(job["data"], json!({text: [text]}), "{field} {text:?}");
                    let shown = if field == "jobId" { "id" } else { field };
                    assert_eq!(job[shown], value, "{field} {text:?}: {job}");
                } else {
                    let error = reply["error"].as_str().unwrap();
                    let named = if field == "tags" { "tags[0]" } else { field };
                    assert!(error.starts_with(named), "{field} {text:?}: {error}");
                    refused.push((number, field, text));
                }
            }
        }
    }
    // The surfaces agree.
    let of = |surface| refused.iter().filter(move |it| it.0 == surface).map(|it| (it.1, it.2));
    assert!(of(0).eq(of(1)) && of(0).eq(of(2)), "{refused:?}");
}

#[test]
fn what_a_worker_says_of_its_job_in_odd_texts_is_kept_as_it_is_on_every_surface() {
    for mut surface in Surface::all() {
        let queue = queue("odd-worker");
        for text in TEXTS {
            surface.ok("PUSH", &json!({"queue": queue, "data": 1, "maxAttempts": 2, "backoff": 0}));
            let mut pull = || {
                let pulled =
                    surface.ok("PULL", &json!({"queue": queue, "owner": "w", "detach": true}));
                (pulled["job"]["id"].clone(), pulled["token"].clone())
            };
            let (id, token) = pull();
            let one = json!({ "id": id });
            surface.ok("AddLog", &json!({"id": id, "message": text}));
            let logs = surface.ok("GetLogs", &one);
            assert_eq!(logs["data"]["logs"][0]["message"], text, "{logs}");
            surface
                .ok("Progress", &json!({"id": id, "progress": 5, "message": text, "token": token}));
            assert_eq!(surface.ok("GetProgress", &one)["message"], text);
            surface.ok("FAIL", &json!({"id": id, "token": token, "error": text, "stack": [text]}));
            let failed = surface.ok("GetJob", &one)["job"].clone();
            assert_eq!(failed["failedReason"], text, "{failed}");
            let pulled = surface.ok("PULL", &json!({"queue": queue, "owner": "w", "detach": true}));
            assert_eq!(pulled["job"]["id"], id);
            let result = json!({"id": id, "token": pulled["token"], "result": {text: text}});
            surface.ok("ACK", &result);
            assert_eq!(surface.ok("GetResult", &one)["result"], json!({text: text}));
        }
    }
}

/// Takes texts without a zero byte, which no word of a command line can have.
#[test]
fn odd_texts_on_the_command_line_are_texts() {
    let (mut tcp, tool, queue) = (client(), Tool::of(shared()), queue("odd-typed"));
    for text in TEXTS.into_iter().filter(|text| !text.contains('\0')) {
        let payload = json!(text).to_string();
        tool.ok(&["push", &queue, &payload, "--name", text, "--tag", text, "--max-attempts", "1"]);
        let (job, token) = tcp.pull_owned(&queue, 60_000);
        assert_eq!([&job["data"], &job["name"], &job["tags"][0]], [text; 3]);
        let id = job["id"].as_str().unwrap();
        tool.ok(&["job", "log", id, "--", text]);
        assert_eq!(tcp.ok("GetLogs", json!({"id": id}))["data"]["logs"][0]["message"], text);
        tool.ok(&["job", "progress", id, "5", "--message", text]);
        assert_eq!(tcp.ok("GetProgress", json!({"id": id}))["message"], text);
        tool.ok(&["fail", id, "--lock-token", &token, "--error", text]);
        assert_eq!(tcp.ok("WaitJob", json!({"id": id, "timeout": 0}))["error"], text);
    }
}
