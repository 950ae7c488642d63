//! Events on a connection that gives commands over TCP. The fear: an event that is taken for a reply, that is
//! of another queue, or that comes too early to be believed.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::stream::WebSocket;
use crate::support::{Client, Start};
use crate::{client, queue, shared};

/// The next frame, which must be an event.
fn event(client: &mut Client) -> Value {
    let frame = client.recv().unwrap();
    assert_eq!((&frame["type"], frame.get("reqId")), (&json!("event"), None), "{frame}");
    frame["event"].clone()
}

#[test]
fn a_connection_over_tcp_gets_the_events_of_the_queue_it_subscribes_to() {
    // Queues of either shard.
    for _ in 0..6 {
        let (mut listener, mut other) = (client(), client());
        let (heard, silent) = (queue("heard"), queue("silent"));
        listener.ok("SubscribeEvents", json!({"queue": heard}));
        other.push(&silent, 1);
        let id = other.push(&heard, json!({"n": 7}));
        let pushed = event(&mut listener);
        assert_eq!((&pushed["eventType"], &pushed["jobId"]), (&json!("pushed"), &json!(id)));
        assert_eq!((&pushed["queue"], &pushed["data"]), (&json!(heard), &json!({"n": 7})));
        assert!(pushed["timestamp"].as_u64().unwrap() > 1_700_000_000_000);
        other.ok("PULL", json!({"queue": heard}));
        other.ok("ACK", json!({"id": id, "result": 8}));
        assert_eq!(event(&mut listener)["eventType"], "pulled");
        let completed = event(&mut listener);
        assert_eq!((&completed["eventType"], &completed["data"]), (&json!("completed"), &json!(8)));
        // Another subscription takes its place, and its end is the end.
        listener.ok("SubscribeEvents", json!({"queue": silent}));
        other.push(&heard, 2);
        let id = other.push(&silent, 3);
        assert_eq!(event(&mut listener)["jobId"], id.as_str());
        listener.ok("UnsubscribeEvents", json!({}));
        other.push(&silent, 4);
        assert!(listener.recv_within(Duration::from_millis(200)).is_none());
        listener.ok("Ping", json!({}));
    }
}

#[test]
fn events_and_replies_share_a_connection_and_each_is_what_it_is() {
    let (mut client, queue) = (client(), queue("both"));
    client.ok("SubscribeEvents", json!({"queue": queue}));
    for n in 0..200 {
        client.send("PUSH", json!({"queue": queue, "data": n})).unwrap();
    }
    let (mut replies, mut events) = (0, Vec::new());
    while replies < 200 || events.len() < 200 {
        let frame = client.recv().unwrap();
        if frame["type"] == "event" {
            events.push(frame["event"]["data"].as_u64().unwrap());
        } else {
            assert_eq!(frame["ok"], true);
            replies += 1;
        }
    }
    assert!(events.into_iter().eq(0..200));
}

#[test]
fn subscriptions_that_follow_each_other_at_once_are_all_answered_and_the_last_one_counts() {
    let (mut client, queue) = (client(), queue("hasty"));
    let mut sent = Vec::new();
    for n in 0..20 {
        let queue = if n == 19 { queue.clone() } else { format!("{queue}-{n}") };
        sent.push(client.send("SubscribeEvents", json!({"queue": queue})).unwrap());
    }
    let mut answered: Vec<String> =
        (0..20).map(|_| client.recv().unwrap()["reqId"].as_str().unwrap().to_owned()).collect();
    sent.sort();
    answered.sort();
    assert_eq!(answered, sent);
    let mut other = crate::client();
    other.push(&format!("{queue}-3"), 1);
    let id = other.push(&queue, 2);
    assert_eq!(event(&mut client)["jobId"], id.as_str());
}

#[test]
fn a_server_with_subscribers_stops_in_time() {
    let mut server = Start::new().start();
    let mut client = server.client();
    client.ok("SubscribeEvents", json!({"queue": "q"}));
    client.push("q", 1);
    assert!(server.terminate().success());
    assert!(client.is_closed_by_server());
}

#[test]
fn a_websocket_is_told_that_it_has_its_events_already() {
    let mut socket = WebSocket::open(shared().http, "/ws/queues/nothing-here");
    let text = socket.refused("SubscribeEvents", json!({"queue": "q"}));
    assert_eq!(text, "Subscriptions are for connections over TCP");
}
