//! Connections and frames. The fear: a client that speaks a little differently from the official
//! ones, or a network that cuts frames in odd places, loses a reply or the connection.

use std::collections::HashSet;

use rmpv::Value;
use serde_json::json;

use crate::support::{encode, frame};
use crate::{client, queue};

#[test]
fn hello_names_the_server_its_version_and_the_protocol() {
    let reply = client().ok("Hello", json!({"protocolVersion": 2, "capabilities": ["pipelining"]}));
    assert_eq!(reply["server"], "corq");
    assert_eq!(reply["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(reply["protocolVersion"], 2);
    assert_eq!(reply["capabilities"], json!(["pipelining"]));
}

#[test]
fn ping_answers_pong_and_the_time() {
    let reply = client().ok("Ping", json!({}));
    assert_eq!(reply["data"]["pong"], true);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let time = u128::from(reply["data"]["time"].as_u64().unwrap());
    assert!(now.as_millis().abs_diff(time) < 60_000, "{time}");
}

#[test]
fn auth_without_configured_tokens_is_ok() {
    client().ok("Auth", json!({"token": "whatever"}));
}

#[test]
fn an_unknown_command_is_named_in_the_refusal() {
    let mut client = client();
    let text = client.refused("MakeCoffee", json!({}));
    assert!(text.contains("MakeCoffee"), "{text}");
    client.ok("Ping", json!({}));
}

#[test]
fn a_command_without_cmd_is_refused_and_the_connection_lives_on() {
    let mut client = client();
    client.send_value(&encode(&json!({"reqId": "x"}))).unwrap();
    let reply = client.recv().unwrap();
    assert_eq!((&reply["ok"], &reply["reqId"]), (&json!(false), &json!("x")));
    assert!(reply["error"].as_str().unwrap().contains("cmd"), "{reply}");
    client.ok("Ping", json!({}));
}

#[test]
fn frames_that_are_no_commands_are_refused_one_by_one_and_the_connection_lives_on() {
    let mut client = client();
    let bodies: [&[u8]; 7] =
        [b"", b"\xc1", b"\x93\x01\x02", b"\x2a", b"\xa5hello", b"\x81\xa3cmd", b"\x91\xc0"];
    for body in bodies {
        let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(body);
        client.send_bytes(&bytes).unwrap();
        let reply = client.recv().unwrap();
        assert_eq!(reply["ok"], false, "{body:?} answered {reply}");
        assert!(!reply["error"].as_str().unwrap().is_empty());
    }
    client.ok("Ping", json!({}));
}

#[test]
fn a_request_id_has_at_most_4096_bytes() {
    let mut client = client();
    // A text of so many bytes has three more that say so.
    for (bytes, taken) in [(4093, true), (4094, false), (60_000, false)] {
        let id = "r".repeat(bytes);
        client.send_value(&encode(&json!({"cmd": "Ping", "reqId": id}))).unwrap();
        let reply = client.recv().unwrap();
        if taken {
            assert_eq!((&reply["ok"], &reply["reqId"]), (&json!(true), &json!(id)));
        } else {
            let refused = json!({"ok": false, "error": "reqId must have at most 4096 bytes", "code": "invalid_field"});
            assert_eq!(reply, refused);
        }
    }
    client.ok("Ping", json!({}));
}

#[test]
fn a_reply_to_a_command_without_request_id_has_none() {
    let mut client = client();
    client.send_value(&encode(&json!({"cmd": "Ping"}))).unwrap();
    let reply = client.recv().unwrap();
    assert_eq!(reply["ok"], true);
    assert!(reply.get("reqId").is_none(), "{reply}");
}

#[test]
fn integers_beyond_32_bits_travel_as_floats_and_small_ones_as_integers() {
    let (mut client, queue) = (client(), queue("integers"));
    let id = client.push(&queue, 1);
    client.send_value(&encode(&json!({"cmd": "GetJob", "id": id}))).unwrap();
    let Value::Map(reply) = client.recv_value().unwrap() else { panic!("no map") };
    let (_, job) = reply.iter().find(|(key, _)| key.as_str() == Some("job")).unwrap();
    let field = |name: &str| {
        let fields = job.as_map().unwrap();
        fields.iter().find(|(key, _)| key.as_str() == Some(name)).unwrap().1.clone()
    };
    assert!(matches!(field("createdAt"), Value::F64(_)), "{:?}", field("createdAt"));
    for small in ["attempts", "maxAttempts", "priority", "backoff", "progress"] {
        assert!(matches!(field(small), Value::Integer(_)), "{small}: {:?}", field(small));
    }
}

#[test]
fn payloads_of_every_kind_come_back_as_they_went() {
    let (mut client, queue) = (client(), queue("payload"));
    let payloads = [
        Value::Nil,
        Value::from("text"),
        Value::from("\u{1F980}"),
        Value::F64(1.25),
        Value::from(-7),
        Value::Binary(vec![0, 255, 1]),
        Value::Array(vec![Value::Nil, Value::Boolean(false)]),
        Value::Map(vec![("name".into(), "job".into()), ("deep".into(), Value::Array(vec![]))]),
    ];
    // A payload of nil would count as absent, so the first is tried inside another.
    for payload in payloads {
        let payload = if payload.is_nil() { Value::Array(vec![payload]) } else { payload };
        client
            .send_value(&Value::Map(vec![
                ("cmd".into(), "PUSH".into()),
                ("queue".into(), queue.as_str().into()),
                ("data".into(), payload.clone()),
            ]))
            .unwrap();
        assert_eq!(client.recv().unwrap()["ok"], true);
        client.send_value(&encode(&json!({"cmd": "PULL", "queue": queue}))).unwrap();
        let Value::Map(reply) = client.recv_value().unwrap() else { panic!("no map") };
        let (_, job) = reply.iter().find(|(key, _)| key.as_str() == Some("job")).unwrap();
        let fields = job.as_map().unwrap();
        let (_, data) = fields.iter().find(|(key, _)| key.as_str() == Some("data")).unwrap();
        assert_eq!(*data, payload);
    }
}

#[test]
fn two_frames_may_be_cut_anywhere() {
    let (mut client, queue) = (client(), queue("cuts"));
    let one = frame(&encode(&json!({"cmd": "PUSH", "queue": queue, "data": 1, "reqId": 1})));
    let two = frame(&encode(&json!({"cmd": "Ping", "reqId": 2})));
    let both = [one, two].concat();
    for cut in 1..both.len() {
        client.send_bytes(&both[..cut]).unwrap();
        // The server must see the first part alone at least sometimes: a reply to another
        // connection shows that it has turned since.
        if cut % 8 == 0 {
            crate::client().ok("Ping", json!({}));
        }
        client.send_bytes(&both[cut..]).unwrap();
        let replies: HashSet<i64> =
            (0..2).map(|_| client.recv().unwrap()["reqId"].as_i64().unwrap()).collect();
        assert_eq!(replies, HashSet::from([1, 2]), "cut at {cut}");
    }
    assert_eq!(client.counted(&queue, "waiting"), both.len() as u64 - 1);
}

#[test]
fn two_hundred_commands_in_one_write_get_two_hundred_replies() {
    let (mut client, queue) = (client(), queue("pipeline"));
    let mut bytes = Vec::new();
    for number in 0..200 {
        let command = if number % 2 == 0 {
            json!({"cmd": "PUSH", "queue": queue, "data": number, "reqId": number})
        } else {
            json!({"cmd": "Count", "queue": queue, "reqId": number})
        };
        bytes.extend_from_slice(&frame(&encode(&command)));
    }
    client.send_bytes(&bytes).unwrap();
    let mut seen = HashSet::new();
    for _ in 0..200 {
        let reply = client.recv().unwrap();
        assert_eq!(reply["ok"], true, "{reply}");
        assert!(seen.insert(reply["reqId"].as_i64().unwrap()), "twice: {reply}");
    }
    assert_eq!(client.counted(&queue, "waiting"), 100);
}

#[test]
fn a_frame_over_64_mb_gets_one_error_and_the_connection_is_closed() {
    let mut client = client();
    let length = u32::try_from((64 << 20) + 1).unwrap();
    client.send_bytes(&length.to_be_bytes()).unwrap();
    let reply = client.recv().unwrap();
    assert_eq!(reply["ok"], false);
    assert!(client.is_closed_by_server());
    crate::client().ok("Ping", json!({}));
}
