//! Events by choice: what a subscriber asks for is what it gets.

use serde_json::{Value, json};

use crate::support::stream::{Sse, WebSocket};
use crate::support::{Client, Server, Start, until};
use crate::{client, queue, shared};

/// A listener over any carrier.
enum Ear {
    Tcp(Client),
    Socket(WebSocket),
    Stream(Box<Sse>),
}

impl Ear {
    /// The next message that is no reply.
    fn next(&mut self) -> Value {
        match self {
            Self::Tcp(client) => {
                let frame = client.recv().unwrap();
                assert_eq!(frame["type"], "event", "{frame}");
                frame["event"].clone()
            }
            Self::Socket(socket) => socket.recv(),
            Self::Stream(stream) => stream.next(),
        }
    }

    /// The types and jobs of so many events.
    fn take(&mut self, count: usize) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let of = |event: Value| (text(&event["eventType"]), text(&event["jobId"]));
        (0..count).map(|_| of(self.next())).collect()
    }
}

fn tcp(server: &Server, wish: Value) -> Ear {
    let mut client = server.client();
    client.ok("Subscribe", wish);
    Ear::Tcp(client)
}

fn socket(server: &Server, wish: Value) -> Ear {
    let mut socket = WebSocket::open(server.http, "/ws/queues/none-of-these");
    socket.ok("Subscribe", wish);
    Ear::Socket(socket)
}

fn stream(server: &Server, query: &str) -> Ear {
    Ear::Stream(Box::new(Sse::open(server.http, &format!("/events?{query}"))))
}

/// A job that is pushed, pulled and completed.
fn complete(client: &mut Client, queue: &str, data: Value) -> String {
    let id = client.push(queue, data);
    client.pull(queue);
    client.ok("ACK", json!({"id": id, "result": 1}));
    id
}

pub(crate) fn metric(client: &mut Client, name: &str) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let line = format!("corq_{name} ");
    let value = text.as_str().unwrap().lines().find_map(|it| it.strip_prefix(&line));
    value.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

fn pairs(types: &[&str], id: &str) -> Vec<(String, String)> {
    types.iter().map(|kind| ((*kind).to_owned(), id.to_owned())).collect()
}

#[test]
fn a_choice_of_queues_and_types_is_all_that_is_heard_over_every_carrier() {
    let mut client = client();
    // Queues of either shard.
    for _ in 0..4 {
        let (a, b, other) = (queue("chosen"), queue("chosen"), queue("other"));
        let wish = json!({"queues": [a, b], "types": ["pushed", "completed"]});
        let query = format!("queue={a},{b}&type=pushed,completed");
        let ears = [tcp(shared(), wish.clone()), socket(shared(), wish), stream(shared(), &query)];
        complete(&mut client, &other, json!(0));
        let ids = [complete(&mut client, &a, json!(1)), complete(&mut client, &b, json!(2))];
        for mut ear in ears {
            let mut heard = ear.take(4);
            // Events of two shards have no order among each other.
            heard.sort();
            let expected = ids.iter().flat_map(|id| pairs(&["completed", "pushed"], id));
            let mut expected: Vec<_> = expected.collect();
            expected.sort();
            assert_eq!(heard, expected);
        }
    }
}

#[test]
fn a_pattern_stands_for_all_queues_that_fit_it_and_for_no_other() {
    let (mut client, base) = (client(), queue("tenant"));
    let wish = json!({"queues": [format!("{base}.*"), format!("*.{base}")], "types": "pushed"});
    let mut ears = [tcp(shared(), wish.clone()), socket(shared(), wish)];
    let mut expected = Vec::new();
    for number in 0..8 {
        client.push(&format!("{base}-{number}"), 0);
        expected.push(client.push(&format!("{base}.{number}"), 1));
        expected.push(client.push(&format!("x{number}.{base}"), 1));
    }
    expected.sort();
    for ear in &mut ears {
        let mut heard: Vec<String> = ear.take(16).into_iter().map(|(_, id)| id).collect();
        heard.sort();
        assert_eq!(heard, expected);
    }
}

#[test]
fn one_job_is_followed_by_its_id_whoever_chose_the_id() {
    let (mut client, queue) = (client(), queue("followed"));
    let own = format!("order \"{queue}\"");
    let id = client.push_with(&queue, 1, json!({"delay": 60_000}));
    let wish = json!({"jobs": [id, own], "types": ["pushed", "removed"]});
    // Without queues a choice is one among the events of the address.
    let mut socket = WebSocket::open(shared().http, &format!("/ws/queues/{queue}"));
    socket.ok("Subscribe", wish.clone());
    let mut ears = [tcp(shared(), wish), Ear::Socket(socket)];
    client.push(&queue, 2);
    client.push_with(&queue, 3, json!({"jobId": own}));
    client.ok("Cancel", json!({"id": id}));
    for ear in &mut ears {
        let mut heard = ear.take(2);
        heard.sort();
        assert_eq!(heard, [pairs(&["pushed"], &own), pairs(&["removed"], &id)].concat());
    }
}

#[test]
fn names_of_dashboards_bring_the_form_of_dashboards_and_add_up() {
    let (mut client, queue) = (client(), queue("dashboard"));
    let mut socket = WebSocket::open(shared().http, "/ws");
    let reply =
        socket.ok("Subscribe", json!({"events": ["job:completed", "queue:*"], "queues": [queue]}));
    assert_eq!(reply["subscribed"], json!(["job:completed", "queue:*"]));
    let mut frames = shared().client();
    frames.ok("Subscribe", json!({"events": ["job:completed", "queue:*"], "queues": [queue]}));
    let id = complete(&mut client, &queue, json!({"secret": 1}));
    client.ok("Pause", json!({"queue": queue}));
    let (first, second) = (socket.recv(), socket.recv());
    assert_eq!(first["event"], "job:completed");
    assert!(first["ts"].as_u64().unwrap() > 1_700_000_000_000);
    assert_eq!(first["data"], json!({"queue": queue, "jobId": id}));
    assert_eq!(
        (&second["event"], &second["data"]["queue"]),
        (&json!("queue:paused"), &json!(queue))
    );
    let framed = frames.recv().unwrap()["event"].clone();
    assert_eq!((&framed["event"], &framed["data"]), (&first["event"], &first["data"]));
    // Names add up; what the server never tells of is said.
    let reply =
        socket.ok("Subscribe", json!({"events": ["job:failed", "flow:*"], "queues": [queue]}));
    assert_eq!(reply["subscribed"], json!(["job:completed", "queue:*", "job:failed", "flow:*"]));
    assert_eq!(reply["never"], json!(["flow:*"]));
    let reply = socket.ok("Unsubscribe", json!({"events": ["queue:*"]}));
    assert_eq!(reply["subscribed"], json!(["job:completed", "job:failed", "flow:*"]));
    client.ok("Resume", json!({"queue": queue}));
    complete(&mut client, &queue, json!(2));
    assert_eq!(socket.recv()["event"], "job:completed");
    assert_eq!(socket.ok("Unsubscribe", json!({}))["subscribed"], json!([]));
    complete(&mut client, &queue, json!(3));
    // Nothing of that comes before the answer to what is asked behind it.
    let request = socket.send("Ping", json!({}));
    assert_eq!(socket.recv()["reqId"], request);
    assert_eq!(socket.ok("Unsubscribe", json!({"events": ["job:*"]}))["subscribed"], json!([]));
}

#[test]
fn dashboards_are_told_of_what_commands_do_by_the_names_that_they_ask_for() {
    let (mut client, queue) = (client(), queue("commanded"));
    let mut socket = WebSocket::open(shared().http, "/ws");
    let names = ["job:*", "queue:*", "dlq:*", "ratelimit:*", "concurrency:*", "cron:*"];
    let reply = socket.ok("Subscribe", json!({"events": names, "queues": [queue]}));
    assert_eq!(reply.get("never"), None);
    // Others get types only.
    let mut plain = tcp(shared(), json!({"queues": [queue]}));
    let id = client.push_with(&queue, 1, json!({"delay": 60_000}));
    client.ok("ChangePriority", json!({"id": id, "priority": 7}));
    client.ok("Update", json!({"id": id, "data": 2}));
    client.ok("ChangeDelay", json!({"id": id, "delay": 50_000}));
    client.ok("Promote", json!({"id": id}));
    client.ok("Discard", json!({"id": id}));
    client.ok("RetryDlq", json!({"queue": queue, "jobId": id}));
    client.ok("Discard", json!({"id": id}));
    client.ok("RetryDlq", json!({"queue": queue}));
    client.ok("Discard", json!({"id": id}));
    client.ok("PurgeDlq", json!({"queue": queue}));
    client.push(&queue, 3);
    client.ok("Clean", json!({"queue": queue, "grace": 0, "state": "waiting"}));
    client.ok("RateLimit", json!({"queue": queue, "limit": 9}));
    client.ok("RateLimitClear", json!({"queue": queue}));
    client.ok("SetConcurrency", json!({"queue": queue, "limit": 4}));
    client.ok("ClearConcurrency", json!({"queue": queue}));
    let cron = json!({"name": queue, "queue": queue, "data": 1, "repeatEvery": 3_600_000});
    client.ok("Cron", cron.clone());
    client.ok("Cron", cron);
    client.ok("CronDelete", json!({"name": queue}));
    client.push(&queue, 4);
    client.ok("Obliterate", json!({"queue": queue}));
    let mut heard = Vec::new();
    while heard.last().is_none_or(|last: &Value| last["event"] != "queue:obliterated") {
        heard.push(socket.recv());
    }
    let told = |name: &str, field: &str| -> Vec<Value> {
        let named = heard.iter().filter(|event| event["event"] == name);
        named.map(|event| event["data"][field].clone()).collect()
    };
    assert_eq!(told("job:priority-changed", "priority"), [json!(7)]);
    assert_eq!(told("job:data-updated", "jobId"), [json!(id)]);
    assert_eq!(told("job:delay-changed", "delay"), [json!(50_000)]);
    assert_eq!(told("job:promoted", "jobId"), [json!(id)]);
    assert_eq!(told("job:discarded", "jobId").len(), 3);
    assert_eq!(told("dlq:added", "jobId").len(), 3);
    assert_eq!(told("dlq:retried", "jobId"), [json!(id)]);
    assert_eq!(told("dlq:retry-all", "count"), [json!(1)]);
    assert_eq!(told("dlq:purged", "count"), [json!(1)]);
    assert_eq!(told("queue:cleaned", "count"), [json!(1)]);
    assert_eq!(told("ratelimit:set", "max"), [json!(9)]);
    assert_eq!(told("ratelimit:cleared", "queue"), [json!(queue)]);
    assert_eq!(told("concurrency:set", "concurrency"), [json!(4)]);
    assert_eq!(told("concurrency:cleared", "queue"), [json!(queue)]);
    for name in ["cron:created", "cron:updated", "cron:deleted"] {
        assert_eq!(told(name, "name"), [json!(queue)], "{name}");
    }
    let types: Vec<String> = plain.take(2).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(types, ["pushed", "delayed"], "nothing that is no type");
}

#[test]
fn a_socket_of_one_queue_stays_with_it_when_it_subscribes_without_queues() {
    let (mut client, own, other) = (client(), queue("address"), queue("elsewhere"));
    let mut socket = WebSocket::open(shared().http, &format!("/ws/queues/{own}"));
    for wish in [json!({"events": ["job:pushed"]}), json!({"types": ["pushed"]})] {
        socket.ok("Subscribe", wish);
        client.push(&other, 1);
        client.push(&own, 2);
        let heard = socket.recv();
        let about = if heard["event"].is_null() { &heard } else { &heard["data"] };
        assert_eq!(about["queue"], json!(own), "{heard}");
        socket.ok("Unsubscribe", json!({}));
    }
    socket.ok("Subscribe", json!({"types": ["pushed"], "queues": [other]}));
    client.push(&own, 3);
    client.push(&other, 4);
    assert_eq!(socket.recv()["queue"], json!(other), "a queue that is named counts");
}

#[test]
fn a_subscription_without_fields_is_that_of_everything_as_it_is() {
    let (mut client, queue) = (client(), queue("whole"));
    let mut socket = WebSocket::open(shared().http, &format!("/ws/queues/{queue}"));
    let mut chosen = WebSocket::open(shared().http, "/ws");
    chosen.ok("Subscribe", json!({"queues": [queue]}));
    complete(&mut client, &queue, json!({"n": 1}));
    for _ in 0..3 {
        assert_eq!(socket.recv_frame().unwrap(), chosen.recv_frame().unwrap());
    }
    // Over TCP the two commands take each other's place.
    let mut frames = shared().client();
    frames.ok("SubscribeEvents", json!({"queue": queue}));
    frames.ok("Subscribe", json!({"queues": [queue], "types": ["completed"]}));
    complete(&mut client, &queue, json!(2));
    assert_eq!(frames.recv().unwrap()["event"]["eventType"], "completed");
    frames.ok("UnsubscribeEvents", json!({}));
    client.push(&queue, 3);
    frames.ok("Ping", json!({}));
}

#[test]
fn without_data_events_come_without_it_over_every_carrier() {
    let (mut client, queue) = (client(), queue("lean"));
    let wish = json!({"queues": [queue], "data": false});
    let query = format!("queue={queue}&data=0");
    let ears = [tcp(shared(), wish.clone()), socket(shared(), wish), stream(shared(), &query)];
    let id = client.push_with(&queue, json!({"n": 1}), json!({"maxAttempts": 1}));
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id, "error": "broken"}));
    for mut ear in ears {
        let events = [ear.next(), ear.next(), ear.next()];
        assert!(events.iter().all(|event| event.get("data").is_none()), "{events:?}");
        let failed = (&events[2]["error"], &events[2]["terminal"], &events[2]["jobId"]);
        assert_eq!(failed, (&json!("broken"), &json!(true), &json!(id)));
    }
}

#[test]
fn nothing_is_written_for_choices_that_do_not_fit_and_once_for_all_that_are_equal() {
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let wish = json!({"queues": ["heard"], "types": ["completed"], "data": false});
    let mut ears: Vec<Ear> = (0..20).map(|_| tcp(&server, wish.clone())).collect();
    for number in 0..50 {
        client.push("other", number);
        client.push("heard", number);
    }
    let figures = |client: &mut Client| {
        ["events_written_total", "events_framed_total"].map(|name| metric(client, name))
    };
    assert_eq!(figures(&mut client), [0, 0]);
    let id = client.pull("heard")["id"].as_str().unwrap().to_owned();
    client.ok("ACK", json!({"id": id}));
    for ear in &mut ears {
        assert_eq!(ear.take(1), pairs(&["completed"], &id));
    }
    assert_eq!(figures(&mut client), [1, 1]);
    assert_eq!(metric(&mut client, "event_choices"), 1);
    drop(ears);
    until("the choice to be forgotten", || {
        (metric(&mut client, "event_choices") == 0).then_some(())
    });
}

#[test]
fn a_sample_has_every_event_of_its_jobs_and_says_how_many_were_passed_over() {
    const JOBS: usize = 300;
    let (mut client, queue) = (client(), queue("sampled"));
    let mut socket = WebSocket::open(shared().http, "/ws");
    let wish = json!({"queues": [queue], "types": ["pushed", "pulled"], "sample": 5});
    assert_eq!(socket.ok("Subscribe", wish)["sample"], 5);
    let ids: Vec<String> = (0..JOBS).map(|n| client.push(&queue, n)).collect();
    for _ in &ids {
        client.pull(&queue);
    }
    // An event of the queue itself is never passed over.
    let wish = json!({"queues": [queue], "types": ["pushed", "pulled", "paused"], "sample": 5});
    let mut ear = tcp(shared(), wish.clone());
    for _ in 0..JOBS {
        client.push(&queue, 0);
    }
    client.ok("Pause", json!({"queue": queue}));
    let (mut heard, mut passed_over) = (0, 0);
    loop {
        let event = ear.next();
        if event["eventType"] == "passed-over" {
            passed_over += event["count"].as_u64().unwrap();
            continue;
        }
        heard += 1;
        if event["eventType"] == "paused" {
            break;
        }
    }
    assert_eq!(heard + passed_over, JOBS as u64 + 1);
    assert!((20..150).contains(&heard), "{heard}");
    // Of a job that was heard once, all is heard.
    let (mut pushed, mut pulled) = (Vec::new(), Vec::new());
    while pulled.len() < pushed.len() || pulled.is_empty() {
        let event = socket.recv();
        if event["eventType"] == "passed-over" {
            continue;
        }
        let list = if event["eventType"] == "pushed" { &mut pushed } else { &mut pulled };
        list.push(event["jobId"].clone());
    }
    assert_eq!(pushed[..pulled.len()], pulled);
}

#[test]
fn a_stream_that_chooses_nothing_has_no_other_fields_than_data() {
    let (mut client, queue) = (client(), queue("plain"));
    // This reader takes no other line.
    let mut plain = Sse::open(shared().http, &format!("/events/queues/{queue}"));
    let mut keys: Vec<_> = plain.connected.as_object().unwrap().keys().cloned().collect();
    keys.sort();
    assert_eq!(keys, ["clientId", "connected"]);
    let mut named = Sse::open_rich(shared().http, &format!("/events?queue={queue}&names=1"), "");
    let mut counted = Sse::open_rich(shared().http, &format!("/events?queue={queue}&ids=1"), "");
    complete(&mut client, &queue, json!({"n": 1}));
    for name in ["job:pushed", "job:active", "job:completed"] {
        let event = plain.next();
        assert_eq!(named.next(), event);
        assert_eq!((named.event.as_str(), named.id.as_str()), (name, ""));
        assert_eq!(counted.next(), event);
        assert!(counted.event.is_empty() && !counted.id.is_empty());
    }
}

#[test]
fn what_cannot_be_meant_is_refused_by_name_and_changes_nothing() {
    let (mut client, queue) = (client(), queue("refused"));
    let mut listener = shared().client();
    listener.ok("Subscribe", json!({"queues": [queue], "types": ["pushed"]}));
    let long = "x".repeat(257);
    let many: Vec<String> = (0..101).map(|n| format!("q{n}")).collect();
    for (wish, text) in [
        (json!({"types": ["exploded"]}), "types[0] must be one of pushed, pulled"),
        (json!({"types": 5}), "types must be"),
        (json!({"types": ["failed"], "events": ["job:*"]}), "types and events must not both"),
        (json!({"events": []}), "events must be a non-empty array"),
        (json!({"queues": []}), "queues must not be empty"),
        (json!({"queue": "x"}), "queue is no field of this command; did you mean queues?"),
        (json!({"queues": ["x"], "whatever": 1}), "whatever is no field of this command"),
        (json!({"events": ["job:*", "jobs:*", "x"]}), "Invalid: jobs:*, x"),
        (json!({"queues": ["ok", "a*b*c"]}), "queues[1] must be 1 to 256 characters"),
        (json!({"queues": ["with space"]}), "queues[0] must be 1 to 256 characters"),
        (json!({"queues": [long]}), "queues[0]"),
        (json!({"queues": many}), "queues must"),
        (json!({"jobs": many}), "jobs must"),
        (json!({"jobs": [5]}), "jobs[0] must be"),
        (json!({"sample": 0}), "sample must be between 1 and 1000000"),
        (json!({"sample": 1_000_001}), "sample must be between 1 and 1000000"),
        (json!({"data": "no"}), "data must be"),
        (json!({"ids": 1}), "ids must be"),
    ] {
        let error = listener.refused("Subscribe", wish.clone());
        assert!(error.contains(text), "{wish}: {error}");
    }
    for (query, text) in [
        ("type=exploded", "types[0] must be one of pushed, pulled"),
        ("queue=a*b*", "queues[0] must be"),
        ("queue=", "queues must not be empty"),
        ("queue=,&queue=", "queues must not be empty"),
        ("type=&data=0", "types must not be empty"),
        ("event=", "events must not be empty"),
        ("job=,", "jobs must not be empty"),
        ("sample=none", "sample must be"),
        ("data=maybe", "data must be"),
        ("tpye=failed", "tpye"),
        ("events=job:never", "Invalid: job:never"),
        ("type=failed&events=job:*", "types and events must not both"),
    ] {
        for path in ["/events", "/ws"] {
            let answer = match path {
                "/ws" => WebSocket::open_with(
                    shared().http,
                    &format!("{path}?{query}"),
                    crate::support::stream::UPGRADE,
                )
                .err(),
                _ => Sse::open_with(shared().http, &format!("{path}?{query}"), "").err(),
            };
            let answer = answer.unwrap_or_else(|| panic!("{path}?{query} was taken"));
            assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(text), "{answer}");
        }
    }
    let path = format!("/events/queues/{queue}?queue=other");
    let answer = Sse::open_with(shared().http, &path, "").err().unwrap();
    assert!(answer.contains("queue must not be given in the path and in the query"), "{answer}");
    // The listener still hears its earlier choice.
    let id = client.push(&queue, 1);
    assert_eq!(listener.recv().unwrap()["event"]["jobId"], id.as_str());
}

#[test]
fn choices_that_differ_are_bounded_and_plain_streams_are_open_all_the_same() {
    let server = Start::new().env("SHARDS", 1).start();
    let mut clients: Vec<Client> = (0..101).map(|_| server.client()).collect();
    let mut last = clients.pop().unwrap();
    for (number, client) in clients.iter_mut().enumerate() {
        client.ok("Subscribe", json!({"queues": ["q"], "sample": number + 1}));
    }
    let reply = last.call("Subscribe", json!({"queues": ["q"], "sample": 200}));
    assert_eq!((&reply["ok"], &reply["code"]), (&json!(false), &json!("limit_reached")));
    let answer = Sse::open_with(server.http, "/events?queue=q&sample=201", "").err().unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    // A choice that is there already, one of another queue, and a stream without a choice.
    last.ok("Subscribe", json!({"queues": ["q"], "sample": 7}));
    last.ok("Subscribe", json!({"queues": ["other"], "sample": 200}));
    let mut plain = Sse::open(server.http, "/events/queues/q");
    last.ok("SubscribeEvents", json!({"queue": "q"}));
    let id = clients[0].push("q", 1);
    assert_eq!(plain.next()["jobId"], id.as_str());
}

#[test]
fn patterns_are_bounded_together_and_the_refusal_names_the_bound() {
    let server = Start::new().env("SHARDS", 1).start();
    let patterns = |of: usize| (0..100).map(|n| format!("*-{of}-{n}")).collect::<Vec<_>>();
    let mut clients: Vec<Client> = (0..50).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.ok("Subscribe", json!({"queues": patterns(number)}));
    }
    let mut last = server.client();
    assert_eq!(metric(&mut last, "event_choice_patterns"), 5000);
    let reply = last.call("Subscribe", json!({"queues": ["one*more"]}));
    assert_eq!(reply["code"], "limit_reached", "{reply}");
    assert!(reply["error"].as_str().unwrap().contains("5000 patterns"), "{reply}");
    last.ok("Subscribe", json!({"queues": patterns(7)}));
    last.ok("Subscribe", json!({"queues": ["q"]}));
    let mut plain = Sse::open(server.http, "/events");
    let id = clients[0].push("q", 1);
    assert_eq!(plain.next()["jobId"], id.as_str());
    assert_eq!(last.recv().unwrap()["event"]["jobId"], id.as_str());
}

#[test]
fn an_event_is_framed_once_for_samples_that_have_passed_over_different_numbers() {
    const EARS: usize = 12;
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let wish = |n: usize| {
        let types = ["pushed", "paused"];
        json!({"queues": ["q", format!("own-{n}")], "types": types, "sample": 1_000_000})
    };
    let mut ears: Vec<Ear> = (0..EARS).map(|number| tcp(&server, wish(number))).collect();
    for number in 0..EARS {
        for _ in 0..number {
            client.push(&format!("own-{number}"), 0);
        }
    }
    let framed = metric(&mut client, "events_framed_total");
    client.ok("Pause", json!({"queue": "q"}));
    for (number, ear) in ears.iter_mut().enumerate() {
        let mut event = ear.next();
        // With a sample of one job in a million, jobs are passed over, and counted.
        let mut said = 0;
        while event["eventType"] != "paused" {
            said += event["count"].as_u64().unwrap_or(1);
            event = ear.next();
        }
        assert_eq!(said, number as u64);
        assert!(event.get("passedOver").is_none(), "{event}");
    }
    assert_eq!(metric(&mut client, "events_framed_total"), framed + 1);
}

#[test]
fn snapshots_of_the_figures_come_to_those_who_subscribe_to_them() {
    let server = Start::new().start();
    let mut client = server.client();
    client.push("q", 1);
    let mut socket = WebSocket::open(server.http, "/ws");
    let reply = socket.ok("Subscribe", json!({"events": ["stats:snapshot", "job:completed"]}));
    assert_eq!((&reply["subscribed"][0], reply.get("never")), (&json!("stats:snapshot"), None));
    let mut stream = Sse::open_rich(server.http, "/events?events=stats:*", "");
    let snapshot = until("a snapshot of the job", || {
        let snapshot = socket.recv();
        (snapshot["data"]["totalPushed"] == 1).then_some(snapshot)
    });
    assert_eq!(snapshot["event"], "stats:snapshot");
    assert!(snapshot["ts"].as_u64().unwrap() > 1_700_000_000_000);
    let data = &snapshot["data"];
    assert_eq!((&data["waiting"], &data["dlq"]), (&json!(1), &json!(0)));
    let shown = json!({"waiting": 1, "active": 0, "delayed": 0, "dlq": 0, "paused": false});
    assert_eq!(data["queues"], json!({ "q": shown }));
    assert_eq!(
        (&data["workers"], &data["cronJobs"]),
        (&json!({"total": 0, "active": 0}), &json!(0))
    );
    client.ok("RegisterWorker", json!({"name": "w", "queues": ["q"]}));
    client.ok("Cron", json!({"name": "c", "queue": "r", "data": 1, "repeatEvery": 3_600_000}));
    client.ok("Pause", json!({"queue": "q"}));
    until("a snapshot with all that", || {
        let snapshot = stream.next();
        assert_eq!(snapshot["event"], "stats:snapshot");
        let data = &snapshot["data"];
        let workers = data["workers"] == json!({"total": 1, "active": 1});
        (workers && data["cronJobs"] == 1 && data["queues"]["q"]["paused"] == true).then_some(())
    });
    // Watching is another thing, and goes on when the subscription ends.
    socket.send("Watch", json!({}));
    until("both kinds", || (socket.recv()["type"] == "watch").then_some(()));
    socket.send("Unsubscribe", json!({}));
    until("the answer", || socket.recv().get("subscribed").map(drop));
    until("a sample", || (socket.recv()["type"] == "watch").then_some(()));
}

#[test]
fn a_websocket_chooses_by_its_address_as_well() {
    let (mut client, queue) = (client(), queue("address"));
    let path = format!("/ws?queue={queue}&events=job:completed");
    let mut socket = WebSocket::open(shared().http, &path);
    let id = complete(&mut client, &queue, json!(1));
    let event = socket.recv();
    assert_eq!((&event["event"], &event["data"]["jobId"]), (&json!("job:completed"), &json!(id)));
}
