//! Commands over WebSocket. The fear: a browser that cannot do what a TCP client can, or that brings a
//! connection of the server into a state that no TCP client could.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::support::stream::{
    BINARY, CLOSE, CONTINUED, PING, PONG, TEXT, UPGRADE, WebSocket, client_frame,
};
use crate::support::{DEADLINE, Start, until};
use crate::{client, queue, shared};

/// A connection that gets no events.
fn websocket() -> WebSocket {
    WebSocket::open(shared().http, "/ws/queues/nothing-happens-here")
}

#[test]
fn push_answers_the_id_and_the_request_id() {
    let queue = queue("ws-push");
    let mut websocket = websocket();
    websocket
        .send_text(&format!(r#"{{"cmd":"PUSH","queue":"{queue}","data":{{"a":1}},"reqId":7}}"#));
    let reply = websocket.recv();
    let id = reply["id"].as_str().unwrap();
    assert_eq!(reply, json!({"ok": true, "reqId": 7, "id": id}));
    let options =
        json!({"queue": queue, "data": 1, "delay": 60_000, "priority": 5, "jobId": "ws-own"});
    assert_eq!(websocket.ok("PUSH", options)["id"], "ws-own");
    assert_eq!(client().counted(&queue, "delayed"), 1);
}

#[test]
fn pull_answers_the_job_and_its_token() {
    let queue = queue("ws-pull");
    let mut websocket = websocket();
    let id = client().push(&queue, json!({"n": [1.5, "x"]}));
    let job = websocket.ok("PULL", json!({"queue": queue}))["job"].clone();
    assert_eq!((&job["id"], &job["queue"]), (&json!(id), &json!(queue)));
    assert_eq!(job["data"], json!({"n": [1.5, "x"]}));
    assert!(job["createdAt"].is_u64() && job["runAt"].is_u64(), "{job}");
    assert_eq!(websocket.ok("PULL", json!({"queue": queue}))["job"], Json::Null);
    client().push(&queue, 1);
    let reply = websocket.ok("PULL", json!({"queue": queue, "owner": "me", "timeout": 1000}));
    assert_eq!(reply["token"].as_str().unwrap().len(), 36);
}

#[test]
fn ack_completes_and_keeps_the_result() {
    let queue = queue("ws-ack");
    let mut websocket = websocket();
    let id = client().push(&queue, 1);
    websocket.ok("PULL", json!({"queue": queue}));
    let reply = websocket.ok("ACK", json!({"id": id, "result": {"sum": 3}}));
    assert_eq!(reply.as_object().unwrap().len(), 2, "{reply}");
    assert_eq!(websocket.ok("GetResult", json!({"id": id}))["result"], json!({"sum": 3}));
    assert_eq!(websocket.refused("ACK", json!({"id": id})), "Job not found or not active");
}

#[test]
fn fail_retries_or_buries() {
    let queue = queue("ws-fail");
    let mut websocket = websocket();
    let id = client().push_with(&queue, 1, json!({"maxAttempts": 1}));
    websocket.ok("PULL", json!({"queue": queue}));
    websocket.ok("FAIL", json!({"id": id, "error": "no"}));
    let job = websocket.ok("GetJob", json!({"id": id}))["job"].clone();
    assert_eq!((&job["state"], &job["failedReason"]), (&json!("failed"), &json!("no")));
}

#[test]
fn auth_answers_ok_or_invalid_token_and_takes_trust_away() {
    let mut websocket = websocket();
    websocket.ok("Auth", json!({"token": "whatever, nobody is kept out here"}));

    // On one shard an event has reached all who listen when its push is answered.
    let server = Start::new().env("AUTH_TOKENS", "secret").env("SHARDS", 1).start();
    let headers = format!("{UPGRADE}Authorization: Bearer secret\r\n");
    let mut websocket = WebSocket::open_with(server.http, "/ws", &headers).unwrap();
    websocket.ok("Ping", json!({}));
    assert_eq!(websocket.refused("Auth", json!({"token": "wrong"})), "Invalid token");
    assert_eq!(websocket.refused("Ping", json!({})), "Not authenticated");
    websocket.send_text("no JSON");
    assert_eq!(
        websocket.recv(),
        json!({"ok": false, "error": "Not authenticated", "code": "unauthorized"})
    );
    // Neither are there events for those who may not ask.
    let mut client = server.client();
    client.ok("Auth", json!({"token": "secret"}));
    client.push("q", 1);
    websocket.ok("Auth", json!({"token": "secret"}));
    let id = client.push("q", 2);
    assert_eq!(websocket.next()["jobId"], *id);
    websocket.call("Auth", json!({"token": "wrong"}));
    websocket.send_bytes(&client_frame(true, TEXT, &vec![b'x'; 70_000])).unwrap();
    assert_eq!(websocket.closed_with(), Some(1008));
}

#[test]
fn a_failed_command_is_answered_with_its_error_and_request_id() {
    let mut websocket = websocket();
    let cases = [
        (r#"{"cmd":"MakeCoffee","reqId":"a"}"#, json!("a"), "MakeCoffee"),
        (r#"{"reqId":1}"#, json!(1), "cmd is required"),
        (r#"{"cmd":"PUSH","queue":"q","reqId":2}"#, json!(2), "data is required"),
        (r#"{"cmd":"PUSH","queue":"a b","data":1,"reqId":3}"#, json!(3), "queue"),
        (r#"{"cmd":"PUSH","queue":"q","data":1,"priority":1e7,"reqId":4}"#, json!(4), "priority"),
    ];
    for (command, request, text) in cases {
        websocket.send_text(command);
        let reply = websocket.recv();
        assert_eq!((&reply["ok"], &reply["reqId"]), (&json!(false), &request));
        assert!(reply["error"].as_str().unwrap().contains(text), "{reply}");
    }
    for text in ["", "{", "[1,]", "{\"cmd\":\"Ping\"} x", "\"\\ud800\"", "01"] {
        websocket.send_text(text);
        let reply = websocket.recv();
        assert_eq!((reply.get("reqId"), &reply["ok"]), (None, &json!(false)));
        assert!(reply["error"].as_str().unwrap().starts_with("Invalid JSON: "), "{reply}");
    }
    for text in ["1", "[]", "null", "\"Ping\""] {
        websocket.send_text(text);
        assert_eq!(websocket.recv()["error"], "Invalid frame: it is not a map");
    }
    websocket.ok("Ping", json!({}));
}

#[test]
fn a_request_id_of_any_kind_comes_back_exactly_as_it_was_sent() {
    let mut websocket = websocket();
    let ids = [
        "1",
        "-1",
        "18446744073709551615",
        "-9223372036854775808",
        "1.5",
        "1.0",
        "1700000000000.0",
        "\"text\"",
        "\"\"",
        "\"ä\\n\"",
        "true",
        "[1,\"a\"]",
        "{\"a\":{\"b\":2.0}}",
    ];
    for id in ids {
        websocket.send_text(&format!("{{\"cmd\":\"Ping\",\"reqId\":{id}}}"));
        let frame = websocket.recv_frame().unwrap();
        let text = String::from_utf8(frame.payload).unwrap();
        assert!(
            text.starts_with(&format!("{{\"ok\":true,\"reqId\":{id},\"data\":{{\"pong\"")),
            "{text}"
        );
    }
    websocket.send_text(r#"{"cmd":"Ping"}"#);
    assert!(websocket.recv().get("reqId").is_none());
}

#[test]
fn every_command_of_the_table_is_understood() {
    let mut websocket = websocket();
    for spec in corq::api::commands::COMMANDS {
        // Figures of one that watches come between replies.
        let mut viewer = (spec.name == "Watch").then(self::websocket);
        let reply = viewer.as_mut().unwrap_or(&mut websocket).call(spec.name, json!({}));
        let text = reply["error"].as_str().unwrap_or_default();
        assert!(!text.starts_with("Unknown command"), "{}: {reply}", spec.name);
    }
    let stats = websocket.ok("Stats", json!({}))["stats"].clone();
    assert!(stats["uptime"].is_u64(), "{stats}");
    let time = websocket.ok("Ping", json!({}))["data"]["time"].clone();
    assert!(time.as_u64().unwrap() > 1_700_000_000_000, "{time}");
    let queue = queue("ws-all");
    websocket
        .ok("Cron", json!({"name": queue, "queue": queue, "data": 1, "repeatEvery": 86_400_000}));
    let crons = websocket.ok("CronList", json!({}))["crons"].clone();
    let cron = crons.as_array().unwrap().iter().find(|cron| cron["name"] == *queue).unwrap();
    assert!(cron["nextRun"].is_u64() && cron["repeatEvery"] == 86_400_000, "{cron}");
    websocket.ok("CronDelete", json!({"name": queue}));
}

#[test]
fn payloads_are_the_same_over_tcp_and_websocket() {
    let queue = queue("ws-faces");
    let mut websocket = websocket();
    let payloads = [
        "18446744073709551615",
        "-9223372036854775808",
        "9007199254740993",
        "1.0",
        "-0.0",
        "1700000000000.0",
        "1700000000000",
        "5e-324",
        "1.7976931348623157e+308",
        "0.1",
        "\"\\u0000\\u001f\\\"\\\\ä😀\"",
        "{\"b\":1,\"a\":2,\"b\":3}",
        "[[[[]]],{}]",
        "\"\"",
    ];
    for payload in payloads {
        websocket
            .send_text(&format!("{{\"cmd\":\"PUSH\",\"queue\":\"{queue}\",\"data\":{payload}}}"));
        assert_eq!(websocket.recv()["ok"], true);
        websocket.send_text(&format!("{{\"cmd\":\"PULL\",\"queue\":\"{queue}\"}}"));
        let text = String::from_utf8(websocket.recv_frame().unwrap().payload).unwrap();
        assert!(text.contains(&format!("\"data\":{payload},\"priority\":0")), "{payload}: {text}");
    }
    let binary = rmpv::Value::Map(vec![
        ("cmd".into(), "PUSH".into()),
        ("queue".into(), queue.as_str().into()),
        ("data".into(), rmpv::Value::Binary(vec![0, 255, 1])),
    ]);
    let mut tcp = client();
    tcp.send_value(&binary).unwrap();
    assert_eq!(tcp.recv().unwrap()["ok"], true);
    assert_eq!(websocket.ok("PULL", json!({"queue": queue}))["job"]["data"], "AP8B");
}

#[test]
fn events_have_no_request_id_and_come_between_replies() {
    let queue = queue("ws-between");
    let mut websocket = WebSocket::open(shared().http, &format!("/ws/queues/{queue}"));
    for number in 0..50 {
        let id = websocket.ok("PUSH", json!({"queue": queue, "data": number}))["id"].clone();
        let event = websocket.next();
        assert_eq!((&event["jobId"], &event["data"]), (&id, &json!(number)));
        assert!(event.get("reqId").is_none() && event.get("ok").is_none());
    }
}

#[test]
fn fifty_commands_are_worked_on_at_a_time_and_pings_still_answered() {
    let queue = queue("ws-fifty");
    let mut websocket = websocket();
    let pulls: Vec<String> = (0..50)
        .map(|_| websocket.send("PULL", json!({"queue": queue, "timeout": 60_000})))
        .collect();
    websocket.send_frame(true, PING, b"are you there?");
    let pong = websocket.recv_frame().unwrap();
    assert_eq!((pong.opcode, &pong.payload[..]), (PONG, &b"are you there?"[..]));
    let late = websocket.send("Ping", json!({}));
    websocket.send_frame(true, PING, b"behind a command that waits");
    assert!(websocket.is_silent_for(Duration::from_millis(200)), "the fifty-first waits");
    client().push(&queue, 1);
    let replies: Vec<String> = (0..2)
        .map(|_| {
            loop {
                let frame = websocket.recv_frame().unwrap();
                if frame.opcode == TEXT {
                    let reply: Json = serde_json::from_slice(&frame.payload).unwrap();
                    break reply["reqId"].as_str().unwrap().to_owned();
                }
            }
        })
        .collect();
    assert!(pulls.contains(&replies[0]) && replies[1] == late, "{replies:?}");
}

#[test]
fn outcomes_pass_waits_over_a_websocket_too() {
    let queue = queue("ws-pass");
    let mut websocket = websocket();
    client().push(&queue, 1);
    let pulled = websocket.ok("PULL", json!({"queue": queue, "owner": "w"}));
    let (id, token) = (&pulled["job"]["id"], &pulled["token"]);
    for _ in 0..50 {
        websocket.send("PULL", json!({"queue": queue, "timeout": 60_000}));
    }
    websocket.send("Ping", json!({}));
    websocket.send_frame(true, PING, b"between");
    let beat = websocket.send("JobHeartbeat", json!({"id": id, "token": token}));
    let ack = websocket.send("ACK", json!({"id": id, "token": token}));
    let mut replies = Vec::new();
    while replies.len() < 2 {
        let frame = websocket.recv_frame().unwrap();
        if frame.opcode == TEXT {
            let reply: Json = serde_json::from_slice(&frame.payload).unwrap();
            assert_eq!(reply["ok"], json!(true), "{reply}");
            replies.push(reply["reqId"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(replies, [beat, ack]);
}

#[test]
fn a_disconnect_gives_the_jobs_back() {
    let queue = queue("ws-disconnect");
    let mut tcp = client();
    for how in 0..3 {
        let mut websocket = websocket();
        let id = tcp.push(&queue, 1);
        let other = tcp.push(&queue, 2);
        assert_eq!(websocket.ok("PULL", json!({"queue": queue}))["job"]["id"], *id);
        let owned = json!({"queue": queue, "owner": "me"});
        assert_eq!(websocket.ok("PULL", owned)["job"]["id"], *other);
        match how {
            0 => drop(websocket),
            1 => {
                websocket.send_frame(true, CLOSE, &1000_u16.to_be_bytes());
                assert_eq!(websocket.closed_with(), Some(1000));
            }
            _ => {
                websocket.send_frame(true, BINARY, b"");
                assert_eq!(websocket.closed_with(), Some(1003));
            }
        }
        until("both wait again", || (tcp.counted(&queue, "waiting") == 2).then_some(()));
        let job = tcp.ok("GetJob", json!({"id": id}))["job"].clone();
        assert_eq!(job["attempts"], 0);
        tcp.ok("Drain", json!({"queue": queue}));
    }
}

#[test]
fn the_server_proves_that_it_read_the_key_and_offers_no_extension() {
    let offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
    let websocket =
        WebSocket::open_with(shared().http, "/ws", &format!("{UPGRADE}{offer}")).unwrap();
    let head = websocket.head.to_ascii_lowercase();
    // The example of RFC 6455.
    assert!(websocket.head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    assert!(head.contains("upgrade: websocket\r\n") && head.contains("connection: upgrade\r\n"));
    assert!(!head.contains("extensions") && !head.contains("content-length"), "{head}");
}

/// A list may stand in several lines; HTTP/1.0 knows no change to something else.
#[test]
fn an_upgrade_is_read_from_all_its_lines_and_from_http_1_1_alone() {
    for headers in [
        UPGRADE.replace("keep-alive, Upgrade", "keep-alive\r\nConnection: Upgrade"),
        UPGRADE.replace("Upgrade: websocket", "Upgrade: h2c, x/1\r\nUpgrade: WebSocket"),
    ] {
        WebSocket::open_with(shared().http, "/ws", &headers).unwrap().ok("Ping", json!({}));
    }
    let mut web = shared().web();
    web.raw(format!("GET /ws HTTP/1.0\r\nHost: localhost\r\n{UPGRADE}\r\n").as_bytes()).unwrap();
    let answer = web.recv(false).unwrap();
    assert_eq!(answer.refused(400), "A WebSocket begins with HTTP/1.1");
}

#[test]
fn a_request_that_is_no_upgrade_is_refused_with_a_reason() {
    let cases = [
        ("Upgrade: websocket", "Upgrade: h2c", 400),
        ("Connection: keep-alive, Upgrade", "Connection: keep-alive", 400),
        ("Version: 13", "Version: 8", 426),
        ("Sec-WebSocket-Version: 13\r\n", "", 400),
        ("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ=", 400),
        ("dGhlIHNhbXBsZSBub25jZQ==", "!!!!IHNhbXBsZSBub25jZQ==", 400),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", 400),
        // A header that is no list is given once, be it the same twice.
        (
            "Sec-WebSocket-Key:",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Key:",
            400,
        ),
        (
            "Sec-WebSocket-Version: 13\r\n",
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Version: 13\r\n",
            400,
        ),
    ];
    for (right, wrong, status) in cases {
        let headers = UPGRADE.replace(right, wrong);
        assert_ne!(headers, UPGRADE);
        let answer = WebSocket::open_with(shared().http, "/ws", &headers).err().unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(r#"{"ok":false,"error":""#), "{answer}");
        let names_version = answer.contains("\r\nSec-WebSocket-Version: 13\r\n");
        let names_protocol = answer.contains("\r\nUpgrade: websocket\r\n")
            && answer.contains("\r\nConnection: close, Upgrade\r\n");
        assert_eq!((names_version, names_protocol), (status == 426, status == 426), "{answer}");
    }
}

#[test]
fn messages_may_come_in_pieces_with_pings_between_them_and_byte_by_byte() {
    let mut websocket = websocket();
    let command = r#"{"cmd":"Ping","reqId":"pieces"}"#.as_bytes();
    for cut in 0..=command.len() {
        websocket.send_frame(false, TEXT, &command[..cut]);
        websocket.send_frame(true, PING, b"between");
        websocket.send_frame(false, CONTINUED, b"");
        websocket.send_frame(true, CONTINUED, &command[cut..]);
        assert_eq!(websocket.recv_frame().unwrap().opcode, PONG);
        assert_eq!(websocket.recv()["reqId"], "pieces");
    }
    for byte in client_frame(true, TEXT, command) {
        websocket.send_bytes(&[byte]).unwrap();
    }
    assert_eq!(websocket.recv()["reqId"], "pieces");
    let twice = [client_frame(true, TEXT, command), client_frame(true, TEXT, command)].concat();
    for cut in 1..twice.len() {
        websocket.send_bytes(&twice[..cut]).unwrap();
        if cut % 8 == 0 {
            client().ok("Ping", json!({}));
        }
        websocket.send_bytes(&twice[cut..]).unwrap();
        assert_eq!(websocket.recv()["reqId"], "pieces");
        assert_eq!(websocket.recv()["reqId"], "pieces");
    }
}

#[test]
fn a_command_may_come_together_with_the_request_to_upgrade() {
    use std::io::{Read, Write};
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", shared().http)).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut bytes =
        format!("GET /ws/queues/q HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n").into_bytes();
    bytes.extend(client_frame(true, TEXT, br#"{"cmd":"Ping","reqId":"early"}"#));
    bytes.extend(client_frame(true, CLOSE, &1000_u16.to_be_bytes()));
    socket.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("101 Switching") && answer.contains(r#""reqId":"early""#), "{answer}");
}

#[test]
fn what_breaks_the_protocol_is_closed_with_the_code_that_says_why() {
    let reserved = {
        let mut frame = client_frame(true, TEXT, b"{}");
        frame[0] |= 0x40;
        frame
    };
    let unmasked = vec![0x81, 2, b'{', b'}'];
    let cases: [(Vec<u8>, Option<u16>); 17] = [
        (unmasked, Some(1002)),
        (reserved, Some(1002)),
        (client_frame(true, 3, b""), Some(1002)),
        (client_frame(true, 11, b""), Some(1002)),
        (client_frame(true, CONTINUED, b""), Some(1002)),
        ([client_frame(false, TEXT, b"{"), client_frame(true, TEXT, b"}")].concat(), Some(1002)),
        (client_frame(false, PING, b""), Some(1002)),
        (client_frame(true, PING, &[b'x'; 126]), Some(1002)),
        (client_frame(true, BINARY, b"\x81"), Some(1003)),
        (client_frame(true, TEXT, b"{\"cmd\":\"\xff\"}"), Some(1007)),
        (
            [client_frame(false, TEXT, b"\"\xe2\x82"), client_frame(true, CONTINUED, b"\"")]
                .concat(),
            Some(1007),
        ),
        (client_frame(true, CLOSE, b""), None),
        (client_frame(true, CLOSE, b"\x03"), Some(1002)),
        (client_frame(true, CLOSE, &[&1005_u16.to_be_bytes()[..], b"no"].concat()), Some(1002)),
        (client_frame(true, CLOSE, &[&1000_u16.to_be_bytes()[..], b"\xff"].concat()), Some(1007)),
        (client_frame(true, CLOSE, &[&1000_u16.to_be_bytes()[..], b"bye"].concat()), Some(1000)),
        (client_frame(true, CLOSE, &4999_u16.to_be_bytes()), Some(4999)),
    ];
    for (bytes, code) in cases {
        let mut websocket = websocket();
        websocket.send_bytes(&bytes).unwrap();
        let shown = &bytes[..bytes.len().min(20)];
        assert_eq!(websocket.closed_with(), code, "{shown:x?}");
    }
    client().ok("Ping", json!({}));
}

#[test]
fn a_message_over_64_mb_is_closed_with_1009_before_it_has_come() {
    let mut whole = websocket();
    let mut head = vec![0x81, 0xff];
    head.extend_from_slice(&((64_u64 << 20) + 1).to_be_bytes());
    head.extend_from_slice(&[0; 4]);
    whole.send_bytes(&head).unwrap();
    assert_eq!(whole.closed_with(), Some(1009));

    let mut pieces = websocket();
    let piece = vec![b' '; 33 << 20];
    pieces.send_frame(false, TEXT, &piece);
    head[0] = 0x80;
    head[2..10].copy_from_slice(&(32_u64 << 20).to_be_bytes());
    pieces.send_bytes(&head).unwrap();
    assert_eq!(pieces.closed_with(), Some(1009));
}

#[test]
fn a_message_of_many_megabytes_is_a_command_like_others() {
    let queue = queue("ws-large");
    let mut websocket = websocket();
    let data = "ä".repeat(4 << 20);
    websocket.ok("PUSH", json!({"queue": queue, "data": data}));
    assert_eq!(websocket.ok("PULL", json!({"queue": queue}))["job"]["data"], *data);
    let text = websocket.refused("PUSH", json!({"queue": queue, "data": "x".repeat(11 << 20)}));
    assert!(text.starts_with("data"), "{text}");
}

#[test]
fn a_payload_that_is_on_the_disk_only_is_delivered() {
    let server = Start::new().env("PAYLOAD_CACHE_MB", 4).start();
    let mut client = server.client();
    for number in 0..16 {
        client.push("q", json!([number, "x".repeat(1 << 20)]));
    }
    let mut websocket = WebSocket::open(server.http, "/ws/queues/other");
    for number in 0..16 {
        let job = websocket.ok("PULL", json!({"queue": "q"}))["job"].clone();
        assert_eq!(job["data"][0], number);
        let full = websocket.ok("GetJob", json!({"id": job["id"]}))["job"].clone();
        assert_eq!(full["data"], job["data"]);
    }
}

#[test]
fn a_client_that_reads_no_replies_costs_only_itself() {
    let queue = queue("ws-deaf");
    let mut tcp = client();
    let id = tcp.push(&queue, "x".repeat(1 << 20));
    let mut deaf = websocket();
    for _ in 0..200 {
        let command = json!({"cmd": "GetJob", "id": id}).to_string();
        if deaf.send_bytes(&client_frame(true, TEXT, command.as_bytes())).is_err() {
            break;
        }
    }
    for _ in 0..20 {
        tcp.ok("Ping", json!({}));
    }
    // The client may come back and read all replies.
    for _ in 0..200 {
        assert_eq!(deaf.recv()["ok"], true);
    }
    deaf.ok("Ping", json!({}));
}
