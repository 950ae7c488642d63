//! Streams that go on where they were: what a client that comes back has missed is sent, or said. The fear: an event that is
//! lost between two connections, or comes twice.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use corq_client::{EventChoice, EventType, Missed};
use serde_json::{Value, json};

use crate::interface::event_choice::metric;
use crate::support::stream::{Sse, WebSocket};
use crate::support::{Client, Start, until};
use crate::{client, queue, shared};

/// The jobs of the events that a stream has until one of this job, the last id behind it.
fn jobs_until(stream: &mut Sse, last: &str) -> Vec<String> {
    let mut jobs = Vec::new();
    loop {
        jobs.push(stream.next()["jobId"].as_str().unwrap().to_owned());
        if jobs.last().is_some_and(|job| job == last) {
            return jobs;
        }
    }
}

#[test]
fn a_stream_goes_on_from_its_last_id_and_misses_nothing_of_any_shard() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut client = server.client();
    let path = "/events?type=pushed&data=0&ids=1";
    let mut stream = Sse::open_rich(server.http, path, "");
    assert!(stream.connected.get("missed").is_none());
    assert_eq!(stream.retry_ms, Some(3000), "a browser comes back by itself");
    let queues: Vec<String> = (0..8).map(|n| format!("q{n}")).collect();
    let mut all = Vec::new();
    let mut heard: Vec<String> = Vec::new();
    for round in 0..5 {
        let mut push = |client: &mut Client, count| {
            let of = |n: usize| client.push(&queues[n % queues.len()], n);
            let ids: Vec<String> = (0..count).map(of).collect();
            all.extend(ids.clone());
            ids
        };
        push(&mut client, 20);
        // The listener goes in the middle of the events, wherever that is.
        for _ in 0..round * 4 {
            heard.push(stream.next()["jobId"].as_str().unwrap().to_owned());
        }
        let last_id = stream.id.clone();
        drop(stream);
        push(&mut client, 20);
        let header = format!("Last-Event-ID: {last_id}\r\n");
        let (query, header) = match round % 2 {
            0 => (format!("{path}&lastEventId=nonsense"), header.as_str()),
            _ => (format!("{path}&lastEventId={last_id}"), ""),
        };
        stream = Sse::open_rich(server.http, &query, header);
        assert_eq!(stream.connected["missed"], 0, "{}", stream.connected);
        while heard.len() < all.len() {
            heard.push(stream.next()["jobId"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(heard.len(), all.len());
    heard.sort();
    all.sort();
    assert_eq!(heard, all, "each once");
    assert_eq!(metric(&mut client, "event_resumes_total"), 5);
    assert_eq!(metric(&mut client, "event_resume_gaps_total"), 0);
}

/// The fear: between the answers of two shards that tell a client what it has missed, more happens.
#[test]
fn those_who_come_back_while_all_shards_have_news_hear_each_event_once() {
    const LISTENERS: usize = 4;
    const RETURNS: usize = 40;
    let server = Start::new().env("SHARDS", 4).env("EVENTS_KEPT", 10_000).start();
    let path = "/events?type=pushed&data=0&ids=1";
    let queues: Vec<String> = (0..16).map(|n| format!("q{n}")).collect();
    let ends: Vec<String> = queues.iter().map(|queue| format!("end of {queue}")).collect();
    let next_job = |stream: &mut Sse| stream.next()["jobId"].as_str().unwrap().to_owned();
    // Hears some, goes and comes back, again and again, then to the end of every queue.
    let listen = |mut stream: Sse, me: usize, returned: &AtomicUsize| {
        let mut heard = Vec::new();
        for round in 0..RETURNS {
            let some = (round * 7 + me * 3) % 50;
            heard.extend((0..some).map(|_| next_job(&mut stream)));
            let header = format!("Last-Event-ID: {}\r\n", stream.id);
            stream = Sse::open_rich(server.http, path, &header);
            assert_eq!(stream.connected["missed"], 0, "{}", stream.connected);
            returned.fetch_add(1, Ordering::Relaxed);
        }
        let mut ends_left: BTreeSet<&String> = ends.iter().collect();
        while !ends_left.is_empty() {
            let job = next_job(&mut stream);
            ends_left.remove(&job);
            heard.push(job);
        }
        heard
    };
    let returned = AtomicUsize::new(0);
    let (mut all, heard) = std::thread::scope(|scope| {
        let streams: Vec<Sse> =
            (0..LISTENERS).map(|_| Sse::open_rich(server.http, path, "")).collect();
        let (listen, returned) = (&listen, &returned);
        let listeners: Vec<_> = (0..LISTENERS)
            .zip(streams)
            .map(|(me, stream)| scope.spawn(move || listen(stream, me, returned)))
            .collect();
        let mut client = server.client();
        let mut all = Vec::new();
        let are_back = || returned.load(Ordering::Relaxed) >= LISTENERS * RETURNS;
        while !are_back() && !listeners.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            all.extend(queues.iter().map(|queue| client.push(queue, 0)));
        }
        for (queue, end) in queues.iter().zip(&ends) {
            all.push(client.push_with(queue, 0, json!({"jobId": end})));
        }
        (all, listeners.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>())
    });
    all.sort();
    for mut heard in heard {
        heard.sort();
        let lost = all.iter().filter(|job| heard.binary_search(job).is_err()).count();
        assert_eq!((lost, heard.len()), (0, all.len()), "none is lost, and each comes once");
    }
}

#[test]
fn a_websocket_and_a_connection_of_frames_go_on_from_their_last_id_as_well() {
    let (mut client, queue) = (client(), queue("again"));
    let wish = json!({"queues": [queue], "ids": true, "types": ["pushed"]});
    let mut socket = WebSocket::open(shared().http, "/ws");
    let first = socket.ok("Subscribe", wish.clone());
    assert!(
        first["id"].as_str().is_some_and(|id| id.contains('-')) && first.get("missed").is_none()
    );
    client.push(&queue, 1);
    let last = socket.recv()["id"].clone();
    drop(socket);
    let ids = [client.push(&queue, 2), client.push(&queue, 3)];
    let mut wish = wish;
    wish["lastEventId"] = last;
    let mut socket = WebSocket::open(shared().http, "/ws/queues/none");
    assert_eq!(socket.ok("Subscribe", wish.clone())["missed"], 0);
    let mut frames = shared().client();
    assert_eq!(frames.ok("Subscribe", wish)["missed"], 0);
    for id in ids {
        assert_eq!(socket.recv()["jobId"], id.as_str());
        assert_eq!(frames.recv().unwrap()["event"]["jobId"], id.as_str());
    }
}

/// The fear: a shard is asked for a queue of another, which it was never told of, and says that it does not remember it.
#[test]
fn a_choice_of_queues_on_different_shards_goes_on_and_misses_nothing() {
    let server =
        Start::new().env("SHARDS", 4).env("AUTH_TOKENS", "admin:boss,read(a,b,c,d):reader");
    let server = server.start();
    let mut client = server.client();
    client.ok("Auth", json!({"token": "boss"}));
    let queues = ["a", "b", "c", "d"];
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    for (path, token) in [("/events?queue=a,b,c,d&ids=1", "boss"), ("/events?ids=1", "reader")] {
        let mut stream = Sse::open_rich(server.http, path, &bearer(token));
        for queue in queues {
            client.push(queue, 1);
            stream.next();
        }
        let header = format!("Last-Event-ID: {}\r\n{}", stream.id, bearer(token));
        drop(stream);
        let mut ids: Vec<String> = queues.iter().map(|queue| client.push(queue, 2)).collect();
        let mut stream = Sse::open_rich(server.http, path, &header);
        assert_eq!(stream.connected["missed"], 0, "{path}: {}", stream.connected);
        let mut heard: Vec<String> =
            ids.iter().map(|_| stream.next()["jobId"].as_str().unwrap().to_owned()).collect();
        heard.sort();
        ids.sort();
        assert_eq!(heard, ids, "{path}");
    }
    let wish = json!({"queues": queues, "ids": true});
    let mut frames = server.client();
    frames.ok("Auth", json!({"token": "boss"}));
    let mut wish_again = wish.clone();
    wish_again["lastEventId"] = frames.ok("Subscribe", wish)["id"].clone();
    drop(frames);
    let mut frames = server.client();
    frames.ok("Auth", json!({"token": "boss"}));
    assert_eq!(frames.ok("Subscribe", wish_again)["missed"], 0);
    assert_eq!(metric(&mut client, "event_resume_gaps_total"), 0);
}

/// The most steps that any command, or what is beside them, has taken in a turn.
fn longest_turn(client: &mut Client) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let lines = text.as_str().unwrap().lines();
    let longest = lines.filter(|line| line.starts_with("corq_turn_steps_max{"));
    longest.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).max().unwrap()
}

#[test]
fn those_who_come_back_at_once_take_their_turns_and_none_misses_anything() {
    const BACK: usize = 30;
    const EVENTS: usize = 1000;
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let mut queues: Vec<String> = (0..99).map(|n| format!("*-{n}")).collect();
    queues.push("q".to_owned());
    let wish = json!({"queues": queues, "ids": true, "types": ["pushed"], "data": false});
    let mut first = server.client();
    let mut wish_again = wish.clone();
    wish_again["lastEventId"] = first.ok("Subscribe", wish)["id"].clone();
    let jobs: Vec<Value> = (0..EVENTS).map(|n| json!({"data": n})).collect();
    let ids = client.ok("PUSHB", json!({"queue": "q", "jobs": jobs}))["ids"].clone();
    let mut back: Vec<Client> = (0..BACK).map(|_| server.client()).collect();
    for one in &mut back {
        one.send("Subscribe", wish_again.clone()).unwrap();
    }
    let after = client.push("q", 1);
    for one in &mut back {
        // Events that happen while it waits come behind those that it has missed.
        assert_eq!(one.recv().unwrap()["missed"], 0);
        for id in ids.as_array().unwrap() {
            assert_eq!(one.recv().unwrap()["event"]["jobId"], *id);
        }
        let next = one.recv().unwrap();
        assert_eq!(next["event"]["jobId"], after.as_str());
    }
    assert_eq!(metric(&mut client, "event_resumes_total"), BACK as u64);
    assert_eq!(metric(&mut client, "event_resume_gaps_total"), 0);
    assert_eq!(metric(&mut client, "event_resumes_waiting"), 0);
    // A look at each event and a comparison with each pattern, thirty-two to a step: not even those for one client are
    // taken in one turn.
    let of_one = (EVENTS * 100 / 32) as u64;
    let longest = longest_turn(&mut client);
    assert!(longest < of_one, "{longest} steps, {of_one} for one client");
}

/// The fear: what is found for all of them at once is more than may be owed, and is left out.
#[test]
fn those_who_come_back_together_are_owed_more_than_may_be_owed_at_once_and_get_it() {
    const BACK: usize = 12;
    const EVENTS: usize = 700;
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let wish = json!({"queues": ["q"], "ids": true, "types": ["pushed"]});
    let mut wish_again = wish.clone();
    wish_again["lastEventId"] = server.client().ok("Subscribe", wish)["id"].clone();
    let data = "x".repeat(10 << 10);
    for _ in 0..EVENTS / 100 {
        let jobs: Vec<Value> = (0..100).map(|n| json!({"data": [n, data]})).collect();
        client.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
    }
    let clients: Vec<Client> = (0..BACK).map(|_| server.client()).collect();
    std::thread::scope(|scope| {
        for mut one in clients {
            let wish = wish_again.clone();
            scope.spawn(move || {
                assert_eq!(one.ok("Subscribe", wish)["missed"], 0);
                for number in 0..EVENTS {
                    let event = one.recv().unwrap()["event"].clone();
                    assert_eq!(event["data"][0], number % 100);
                }
            });
        }
    });
    assert_eq!(metric(&mut client, "event_resume_gaps_total"), 0);
}

/// Who reads nothing holds up those who come back for a bounded time, and they hear then what they miss.
#[test]
fn one_that_does_not_read_what_it_is_owed_does_not_hold_up_others_for_ever() {
    const EVENTS: usize = 700;
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let wish = json!({"queues": ["q"], "ids": true, "types": ["pushed"]});
    let mut wish_again = wish.clone();
    wish_again["lastEventId"] = server.client().ok("Subscribe", wish)["id"].clone();
    let data = "x".repeat(10 << 10);
    for _ in 0..EVENTS / 100 {
        let jobs: Vec<Value> = (0..100).map(|n| json!({"data": [n, data]})).collect();
        client.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
    }
    let mut silent: Vec<Client> = (0..12).map(|_| server.client()).collect();
    let missed = silent.iter_mut().map(|one| one.ok("Subscribe", wish_again.clone()));
    let missed: Vec<Value> = missed.map(|reply| reply["missed"].clone()).collect();
    let owed = missed.iter().filter(|missed| **missed == 0).count();
    assert!((1..12).contains(&owed) && missed[..owed].iter().all(|one| *one == 0), "{missed:?}");
    assert!(missed[owed..].iter().all(|one| *one == EVENTS), "{missed:?}");
    // Once they have gone, there is room again.
    drop(silent);
    let mut one = server.client();
    until("they are gone", || (metric(&mut client, "connections") <= 2).then_some(()));
    assert_eq!(one.ok("Subscribe", wish_again)["missed"], 0);
    for number in 0..EVENTS {
        assert_eq!(one.recv().unwrap()["event"]["data"][0], number % 100);
    }
}

#[test]
fn an_id_of_a_former_life_says_that_what_was_missed_cannot_be_known() {
    let mut server = Start::new().env("SHARDS", 2).start();
    let path = "/events?type=pushed&ids=1";
    let mut stream = Sse::open_rich(server.http, path, "");
    let mut client = server.client();
    client.push("q", 1);
    stream.next();
    let last_id = stream.id.clone();
    server.terminate();
    server.start();
    let mut client = server.client();
    for last_id in [last_id.as_str(), "garbage", "0000000000000000-1.1", "-1"] {
        let header = format!("Last-Event-ID: {last_id}\r\n");
        let mut stream = Sse::open_rich(server.http, path, &header);
        assert_eq!(stream.connected.get("missed"), Some(&Value::Null), "{last_id}");
        // The stream goes on from now.
        assert_ne!(stream.id, last_id);
        let id = client.push("q", 2);
        assert_eq!(stream.next()["jobId"], id.as_str());
    }
    // Who asks for no ids does not go on from any.
    let header = format!("Last-Event-ID: {last_id}\r\n");
    let plain = Sse::open_with(server.http, "/events", &header).unwrap();
    assert!(plain.connected.get("missed").is_none());
}

#[test]
fn events_beyond_those_that_are_kept_are_missed_and_that_is_said() {
    let server = Start::new().env("SHARDS", 1).env("EVENTS_KEPT", 5).start();
    let mut client = server.client();
    let path = "/events?queue=q&type=pushed&ids=1";
    let mut stream = Sse::open_rich(server.http, path, "");
    client.push("q", 0);
    stream.next();
    let header = format!("Last-Event-ID: {}\r\n", stream.id);
    drop(stream);
    let ids: Vec<String> = (0..9).map(|n| client.push("q", n)).collect();
    assert_eq!(metric(&mut client, "events_kept"), 5);
    let mut stream = Sse::open_rich(server.http, path, &header);
    assert_eq!(stream.connected.get("missed"), Some(&Value::Null));
    assert_eq!(jobs_until(&mut stream, &ids[8]), ids[4..]);
    let (id, last) = (stream.id.clone(), client.push("q", 10));
    // Another choice was not kept for: none can say what it would have heard.
    let other = "/events?queue=q&ids=1";
    let header = format!("Last-Event-ID: {id}\r\n");
    let mut wider = Sse::open_rich(server.http, other, &header);
    assert_eq!(wider.connected.get("missed"), Some(&Value::Null));
    assert_eq!(jobs_until(&mut wider, &last), [last.as_str()]);
    assert_eq!(metric(&mut client, "event_resume_gaps_total"), 2);
    // Without the setting nothing is kept, and ids say so.
    let server = Start::new().env("EVENTS_KEPT", 0).start();
    let stream = Sse::open_rich(server.http, path, "");
    let header = format!("Last-Event-ID: {}\r\n", stream.id);
    drop(stream);
    let stream = Sse::open_rich(server.http, path, &header);
    assert_eq!(stream.connected.get("missed"), Some(&Value::Null));
}

#[test]
fn a_client_that_reads_too_slowly_is_told_how_many_events_it_has_missed() {
    // More than a buffer of events holds.
    const JOBS: u64 = 400;
    let server = Start::new().env("SHARDS", 1).start();
    let mut slow = server.client();
    slow.take_little();
    slow.ok("Subscribe", json!({"queues": ["q"], "types": ["pushed"]}));
    let mut client = server.client();
    let data = "x".repeat(100 << 10);
    for number in 0..JOBS {
        client.push("q", json!([number, data]));
    }
    let lost = until("events to be lost", || {
        let lost = metric(&mut client, "events_lost_total");
        (lost > 0 || metric(&mut client, "events_total") == JOBS).then_some(lost)
    });
    let (mut heard, mut missed) = (0, 0);
    while heard + missed < JOBS {
        let event = slow.recv().unwrap()["event"].clone();
        match event["eventType"].as_str().unwrap() {
            "missed" => missed += event["count"].as_u64().unwrap(),
            _ => {
                // The events that it has are in order, with a gap where one is announced.
                assert_eq!(event["data"][0].as_u64().unwrap(), heard + missed);
                heard += 1;
            }
        }
    }
    assert!(missed > 0 && missed >= lost, "{missed} {lost}");
    assert_eq!(metric(&mut client, "events_lost_total"), missed);
}

#[test]
fn our_client_hears_its_choice_and_goes_on_where_it_was() {
    let queue = queue("typed");
    let address = format!("127.0.0.1:{}", shared().tcp);
    let ours = corq_client::blocking::Client::connect(&address).unwrap();
    let choice = EventChoice::new()
        .queues([queue.clone(), format!("{queue}.*")])
        .types([EventType::Pushed])
        .without_data();
    let mut events = ours.events_of(choice).unwrap();
    let mut client = client();
    client.push(&format!("{queue}-other"), 1);
    let ids = [client.push(&queue, 1), client.push(&queue, 2)];
    for id in ids {
        let event = events.next_event().unwrap();
        assert_eq!((&event.job_id, &*event.event_type), (&id, "pushed"));
        assert!(event.data.is_none() && event.id.is_some());
    }
    assert_eq!(events.missed(), Missed::default());
    let bad = ours.events_of(EventChoice::new().queues(["a*b*"]));
    assert!(bad.unwrap_err().to_string().contains("queues[0]"));
}
