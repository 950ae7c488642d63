//! Figures over time: history, heat maps, shards, and what watchers are sent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::stream::WebSocket;
use crate::support::{Client, Http, Start, until};
use crate::{client, queue, shared};

/// Points that hold whatever a test does, however long it takes.
const ALL: u64 = 1440;

fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_f64().map(|number| number as u64)).unwrap_or_default()
}

fn sum(column: &Value) -> u64 {
    column.as_array().unwrap().iter().map(number).sum()
}

fn last(column: &Value) -> &Value {
    column.as_array().unwrap().last().unwrap()
}

fn metric(client: &mut Client, name: &str) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let line = format!("corq_{name} ");
    let value = text.as_str().unwrap().lines().find_map(|it| it.strip_prefix(&line));
    value.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// Five jobs: two completed, one failed for good, two that wait.
fn some_jobs(client: &mut Client, queue: &str) {
    for _ in 0..5 {
        client.push_with(queue, 1, json!({"maxAttempts": 1}));
    }
    for outcome in ["ACK", "ACK", "FAIL"] {
        let id = client.pull(queue)["id"].clone();
        client.ok(outcome, json!({"id": id}));
    }
}

#[test]
fn history_counts_what_a_queue_has_done_since_its_first_job() {
    // Queues of either shard.
    for _ in 0..4 {
        let (mut client, queue) = (client(), queue("counted"));
        some_jobs(&mut client, &queue);
        let data = client.ok("History", json!({"queue": queue, "points": ALL}))["data"].clone();
        assert_eq!((&data["queue"], &data["tracked"]), (&json!(queue), &json!(true)));
        assert_eq!((number(&data["step"]), number(&data["points"])), (10_000, ALL));
        let series = &data["series"];
        let sums = ["pushed", "completed", "failed"].map(|name| sum(&series[name]));
        assert_eq!(sums, [5, 2, 1]);
        assert_eq!(last(&series["waiting"]), 2);
        for name in ["waitP50", "waitP99", "runP50", "runP99"] {
            let column = series[name].as_array().unwrap();
            assert_eq!(column.len() as u64, ALL);
            assert!(column.iter().any(Value::is_number), "{name}");
            assert!(column[0].is_null(), "no quantile without samples");
        }
        assert!(series["pushed"][0].is_null(), "four hours ago there was no such queue");
        let end = number(&data["from"]) + ALL * 10_000;
        assert!(number(&data["from"]).is_multiple_of(10_000) && end > client.time() - 600_000);
        // As many series as are asked for, one or several.
        let one = json!({"queue": queue, "series": "pushed", "points": 1});
        let one = client.ok("History", one)["data"]["series"].clone();
        assert_eq!(one.as_object().unwrap().keys().collect::<Vec<_>>(), ["pushed"]);
        assert_eq!(one["pushed"].as_array().unwrap().len(), 1);
        let two = json!({"queue": queue, "series": ["waiting", "failed"]});
        let two = client.ok("History", two)["data"]["series"].clone();
        assert_eq!(two.as_object().unwrap().len(), 2);
        assert_eq!(two["failed"].as_array().unwrap().len(), 360);
    }
}

#[test]
fn history_without_a_queue_is_that_of_all_shards() {
    let server = Start::new().start();
    let mut client = server.client();
    for n in 0..20 {
        some_jobs(&mut client, &format!("all-{n}"));
    }
    let data = client.ok("History", json!({"points": ALL}))["data"].clone();
    assert_eq!((data.get("queue"), &data["tracked"]), (None, &json!(true)));
    let series = &data["series"];
    let sums = ["pushed", "completed", "failed"].map(|name| sum(&series[name]));
    assert_eq!((sums, last(&series["waiting"])), ([100, 40, 20], &json!(40)));
    assert!(series["waitP99"].as_array().unwrap().iter().any(Value::is_number));
    // Of the time before the start nothing is known, and a later time than now is now.
    let past = json!({"points": 3, "until": 1_700_000_000_000_u64, "series": "pushed"});
    let past = client.ok("History", past)["data"].clone();
    assert_eq!(past["series"]["pushed"], json!([null, null, null]));
    let to_come = json!({"points": ALL, "until": 9_000_000_000_000_000_u64, "series": "pushed"});
    assert_eq!(sum(&client.ok("History", to_come)["data"]["series"]["pushed"]), 100);
}

/// Guards against memory for the answers of all shards to any number of clients at once: a few bytes ask for them.
#[test]
fn figures_that_many_ask_for_at_once_are_begun_a_few_at_a_time() {
    const CONNECTIONS: usize = 100;
    const BEGUN_BYTES_MAX: u64 = 8 << 20;
    const LISTS: &str = "client_memory_bytes{account=\"lists\"}";
    let server = Start::new().env("SHARDS", 2).env("CLIENT_MEMORY_MB", 2048).start();
    let mut client = server.client();
    some_jobs(&mut client, "asked-by-many");
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send("History", json!({"points": ALL})).unwrap();
    }
    for client in &mut clients {
        let reply = client.recv().unwrap();
        assert_eq!(sum(&reply["data"]["series"]["pushed"]), 5, "{reply}");
    }
    // Two shards are expected to say so much, as long as they have not said it.
    let of_one = 2 * ALL * 256;
    let peak = metric(&mut client, "replies_begun_peak_bytes");
    assert!((of_one..2 * (BEGUN_BYTES_MAX + 2 * of_one)).contains(&peak), "{peak}");
    until("none is under way", || (metric(&mut client, LISTS) == 0).then_some(()));
}

#[test]
fn a_queue_without_a_history_is_shown_as_such() {
    let mut client = client();
    let data = client.ok("History", json!({"queue": queue("never"), "points": 2}))["data"].clone();
    assert_eq!(data["tracked"], false);
    assert_eq!(data["series"]["waiting"], json!([null, null]));
    let map = client.ok("Heatmap", json!({"queue": queue("never"), "points": 2}))["data"].clone();
    let shown = (&map["tracked"], &map["columns"], &map["buckets"]);
    assert_eq!(shown, (&json!(false), &json!([null, null]), &json!([])));
}

/// The fear: figures of the whole server are taken for those of the shard that was asked for.
#[test]
fn a_history_is_not_that_of_a_shard_and_says_so() {
    let expected = "shard is no field of this command";
    assert_eq!(client().refused("History", json!({"shard": 0})), expected);
    let mut http = Http::connect(shared().http);
    for path in ["/history?shard=0", "/queues/q/history?points=2&shard=0"] {
        assert_eq!(http.get(path).refused(400), expected, "{path}");
    }
    let unknown = http.get("/history?of=mail").refused(400);
    assert_eq!(unknown, "of is no field of this command");
}

#[test]
fn longer_points_sum_up_shorter_ones_and_begin_at_multiples_of_their_length() {
    let (mut client, queue) = (client(), queue("longer"));
    some_jobs(&mut client, &queue);
    for (asked, given) in [(10_001, 20_000), (60_000, 60_000), (86_400_000, 86_400_000)] {
        let fields = json!({"queue": queue, "step": asked, "points": ALL});
        let data = client.ok("History", fields)["data"].clone();
        assert_eq!(number(&data["step"]), given);
        assert_eq!(number(&data["from"]) % given, 0);
        let series = &data["series"];
        assert_eq!((sum(&series["pushed"]), last(&series["waiting"])), (5, &json!(2)));
    }
}

#[test]
fn a_heat_map_has_every_delivery_in_the_bucket_of_its_waiting_time() {
    let server = Start::new().start();
    let mut client = server.client();
    let queues: Vec<String> = (0..10).map(|n| format!("heat-{n}")).collect();
    for queue in &queues {
        some_jobs(&mut client, queue);
    }
    let deliveries = |data: &Value| {
        let columns = data["columns"].as_array().unwrap();
        assert_eq!(columns.len() as u64, ALL);
        let columns = columns.iter().filter_map(Value::as_array);
        columns.map(|column| column.iter().map(number).sum::<u64>()).sum::<u64>()
    };
    let one = client.ok("Heatmap", json!({"queue": queues[0], "points": ALL}))["data"].clone();
    assert_eq!((deliveries(&one), &one["queue"]), (3, &json!(queues[0])));
    let edges: Vec<u64> = one["buckets"].as_array().unwrap().iter().map(number).collect();
    assert!(edges.windows(2).all(|pair| pair[0] < pair[1]) && edges[0] == 0, "{edges:?}");
    let longest = one["columns"].as_array().unwrap().iter().filter_map(Value::as_array);
    assert_eq!(longest.map(Vec::len).max(), Some(edges.len()));
    let all = client.ok("Heatmap", json!({"points": ALL}))["data"].clone();
    assert_eq!(deliveries(&all), 30);
    let of_shards = [0, 1].map(|shard| {
        let data = client.ok("Heatmap", json!({"shard": shard, "points": ALL}))["data"].clone();
        assert_eq!(data["shard"], json!(shard));
        deliveries(&data)
    });
    assert_eq!(of_shards.iter().sum::<u64>(), 30);
    // A field out of bounds is refused by its name.
    for (fields, text) in [
        (json!({"shard": 2}), "shard must be between 0 and 1"),
        (json!({"shard": 0, "queue": "q"}), "queue and shard must not both be given"),
        (json!({"points": 1441}), "points must be between 1 and 1440"),
        (json!({"step": 9_999}), "step must be between 10000 and 86400000"),
        (json!({"queue": "a b"}), "queue must be 1 to 256 characters: letters, digits, _ - . :"),
    ] {
        assert_eq!(client.refused("Heatmap", fields), text);
    }
}

#[test]
fn every_shard_shows_its_load_its_log_its_mail_and_its_longest_turns() {
    let server = Start::new().start();
    let mut client = server.client();
    for n in 0..20 {
        some_jobs(&mut client, &format!("work-{n}"));
    }
    let shards = client.ok("Shards", json!({}))["data"]["shards"].clone();
    let shards = shards.as_array().unwrap();
    assert_eq!(shards.len(), 2);
    for (place, shard) in shards.iter().enumerate() {
        assert_eq!(number(&shard["shard"]), place as u64);
        let load = shard["load"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&load), "{load}");
        assert!(number(&shard["log"]["diskBytes"]) > 0);
        assert_eq!(shard["log"]["full"], false);
        assert_eq!(number(&shard["mail"]["stuckBatches"]), 0);
        let longest = shard["longestTurns"].as_array().unwrap();
        assert!(longest[0]["command"].is_string() && longest[0]["steps"].is_number());
        let length_ms = |turn: &Value| turn["ms"].as_f64().unwrap();
        assert!(longest.windows(2).all(|pair| length_ms(&pair[0]) >= length_ms(&pair[1])));
        assert!(number(&shard["history"]["bytes"]) > 0 || number(&shard["history"]["queues"]) > 0);
    }
    let total = |field: &str| shards.iter().map(|shard| number(&shard[field])).sum::<u64>();
    assert_eq!((total("waiting"), total("queues"), total("connections")), (40, 20, 1));
    let tracked: u64 = shards.iter().map(|shard| number(&shard["history"]["queues"])).sum();
    assert_eq!(tracked, 20);
}

/// The next sample.
fn sample(client: &mut Client) -> Value {
    let sample = client.recv().unwrap();
    assert_eq!((&sample["type"], sample.get("reqId")), (&json!("watch"), None), "{sample:.300}");
    sample
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn a_viewer_gets_what_it_watches_until_it_watches_no_more() {
    let server = Start::new().start();
    let (mut client, mut viewer) = (server.client(), server.client());
    let watched = viewer.ok("Watch", json!({}))["data"].clone();
    assert_eq!(watched, json!({"what": ["stats"], "every": 1000, "top": 20}));
    let first = sample(&mut viewer);
    assert_eq!(keys(&first), ["at", "stats", "type"]);
    some_jobs(&mut client, "seen");
    (0..9).for_each(|_| drop(client.push("busier", 1)));
    until("the jobs to be seen", || {
        let next = sample(&mut viewer);
        (number(&next["stats"]["totalPushed"]) == 14).then_some(())
    });
    // Another one takes its place; an answer comes between samples.
    viewer.send("Watch", json!({"what": ["queues", "shards"], "top": 1})).unwrap();
    until("the answer", || viewer.recv().unwrap().get("reqId").cloned());
    until("both queues to be known", || {
        let next = sample(&mut viewer);
        assert_eq!(keys(&next), ["at", "queues", "shards", "type"]);
        assert_eq!(next["shards"].as_array().unwrap().len(), 2);
        let queues = next["queues"].as_array().unwrap();
        assert!(queues.len() <= 1, "as many as were asked for");
        let is_busier = |queue: &Value| queue["name"] == "busier" && queue["waiting"] == 9;
        queues.first().is_some_and(is_busier).then_some(())
    });
    viewer.send("Unwatch", json!({})).unwrap();
    until("the answer", || viewer.recv().unwrap().get("reqId").cloned());
    assert!(viewer.recv_within(Duration::from_millis(300)).is_none());
    viewer.ok("Ping", json!({}));
    // With the last viewer the samples end: what it wanted follows it.
    until("no viewer to be counted", || (metric(&mut client, "watchers") == 0).then_some(()));
    for (fields, text) in [
        (json!({"every": 999}), "every must be between 1000 and 60000"),
        (json!({"top": 101}), "top must be between 1 and 100"),
        (json!({"what": "jobs"}), "what must be one of stats, queues, shards"),
    ] {
        assert_eq!(viewer.refused("Watch", fields), text);
    }
}

#[test]
fn while_there_is_no_viewer_no_shard_is_asked() {
    let server = Start::new().start();
    let mut client = server.client();
    some_jobs(&mut client, "unseen");
    client.ok("Shards", json!({}));
    client.ok("History", json!({}));
    assert_eq!(metric(&mut client, "watch_looks_total"), 0);
    let mut viewer = server.client();
    viewer.ok("Watch", json!({}));
    sample(&mut viewer);
    assert!(metric(&mut client, "watch_looks_total") >= 2, "each shard has been asked");
    assert_eq!(metric(&mut client, "watchers"), 1);
}

#[test]
fn all_viewers_get_the_same_sample() {
    let server = Start::new().start();
    let mut client = server.client();
    some_jobs(&mut client, "shared");
    let mut viewers: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for viewer in &mut viewers {
        viewer.send("Watch", json!({"what": ["stats", "queues"]})).unwrap();
    }
    let mut by_time: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    until("all to get a sample of the same moment", || {
        for viewer in &mut viewers {
            let message = viewer.recv().unwrap();
            if message["type"] == "watch" {
                by_time.entry(number(&message["at"])).or_default().push(message);
            }
        }
        by_time.values().any(|samples| samples.len() == 6).then_some(())
    });
    for (at, samples) in &by_time {
        assert!(samples.iter().all(|one| *one == samples[0]), "of {at}: {samples:?}");
    }
}

#[test]
fn a_viewer_over_websocket_gets_samples_as_json() {
    let server = Start::new().start();
    let mut client = server.client();
    some_jobs(&mut client, "text");
    // The viewer gets the events of one queue, in which nothing happens.
    let mut viewer = WebSocket::open(server.http, "/ws/queues/silent");
    let what = ["queues", "stats", "shards"];
    let watched = viewer.ok("Watch", json!({"what": what, "top": 5}))["data"].clone();
    assert_eq!(watched["what"], json!(["stats", "queues", "shards"]));
    until("the queue to be seen", || {
        let next = viewer.recv();
        assert_eq!(keys(&next), ["at", "queues", "shards", "stats", "type"]);
        assert_eq!(next["shards"].as_array().unwrap().len(), 2);
        let row = next["queues"].as_array().unwrap().first()?.clone();
        assert_eq!((&row["name"], &row["waiting"]), (&json!("text"), &json!(2)));
        assert_eq!((&row["failed"], &row["paused"]), (&json!(1), &json!(false)));
        Some(())
    });
    let request = viewer.send("Unwatch", json!({}));
    until("the answer", || (viewer.recv()["reqId"] == request.as_str()).then_some(()));
    viewer.ok("Ping", json!({}));
}

#[test]
fn a_viewer_that_does_not_read_gets_the_newest_only() {
    /// More than the kernel takes for a connection, and less than the server lets one leave unread.
    const PAYLOAD: usize = 9 << 20;
    let server = Start::new().start();
    let mut client = server.client();
    let id = client.push("large", "x".repeat(PAYLOAD));
    let mut viewer = server.client();
    viewer.take_little();
    viewer.send("Watch", json!({})).unwrap();
    viewer.send("GetJob", json!({"id": id})).unwrap();
    viewer.send("GetJob", json!({"id": id})).unwrap();
    until("samples to be left out", || {
        (metric(&mut client, "watch_skipped_total") >= 2).then_some(())
    });
    // Of the time before it reads there is the sample that waited, and one that was on its way, however many there were.
    let now_ms = client.time();
    let mut large = 0;
    while large < 2 {
        large += u32::from(viewer.recv().unwrap().get("job").is_some());
    }
    let mut old = 0;
    while number(&sample(&mut viewer)["at"]) < now_ms {
        old += 1;
    }
    assert!(old <= 2, "{old} samples of earlier times");
}

#[test]
fn a_server_stops_while_a_viewer_does_not_read() {
    let mut server = Start::new().start();
    let mut client = server.client();
    let id = client.push("large", "x".repeat(9 << 20));
    let mut viewer = server.client();
    viewer.take_little();
    viewer.send("Watch", json!({})).unwrap();
    viewer.send("GetJob", json!({"id": id})).unwrap();
    until("a sample to be left out", || {
        (metric(&mut client, "watch_skipped_total") >= 1).then_some(())
    });
    assert!(server.terminate().success());
}

#[test]
fn samples_end_with_their_connection_and_take_nothing_from_others() {
    let mut others = client();
    for _ in 0..20 {
        let mut viewer = shared().client();
        viewer.ok("Watch", json!({"what": "shards"}));
    }
    let mut stays = client();
    stays.ok("Watch", json!({"what": "stats"}));
    for _ in 0..3 {
        assert_eq!(keys(&sample(&mut stays)), ["at", "stats", "type"]);
    }
    others.ok("Ping", json!({}));
}
