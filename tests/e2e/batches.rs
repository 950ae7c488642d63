//! Batches at their bounds. The fear: one command of many jobs that is half done, answered twice, or mixed up with what comes
//! behind it; or one beyond the bounds that is taken, or refused without a word why.

use corq::api::limits::{BATCH_BYTES_MAX, BATCH_MAX, BATCH_PATTERNS_MAX};
use serde_json::{Value, json};

use crate::support::stream::WebSocket;
use crate::support::{Client, Server, Start, until};

/// As many jobs as a batch may be about.
const MANY: usize = BATCH_MAX as usize;

fn server(shards: usize) -> Server {
    let start = Start::new().env("SHARDS", shards).env("CRON_MIN_INTERVAL_MS", 10);
    start.env("COMPLETED_MAX", 100_000).start()
}

fn jobs(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({"data": n})).collect()
}

fn ids_of(reply: &Value) -> Vec<String> {
    let ids = reply["ids"].as_array().unwrap();
    ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

/// Pulls all jobs of a queue under locks; ids and tokens, in their order.
fn pull_all(client: &mut Client, queue: &str) -> (Vec<Value>, Vec<Value>) {
    let (mut ids, mut tokens) = (Vec::new(), Vec::new());
    loop {
        let pull = json!({"queue": queue, "count": 1000, "owner": "w", "lockTtl": 3_600_000});
        let got = client.ok("PULLB", pull);
        let jobs = got["jobs"].as_array().unwrap();
        if jobs.is_empty() {
            return (ids, tokens);
        }
        ids.extend(jobs.iter().map(|job| job["id"].clone()));
        tokens.extend(got["tokens"].as_array().unwrap().iter().cloned());
    }
}

/// Active jobs of two queues, `MANY` together: ids and tokens.
fn pull_of_both(client: &mut Client) -> (Vec<Value>, Vec<Value>) {
    let (mut ids, mut tokens) = (Vec::new(), Vec::new());
    for queue in ["a", "b"] {
        client.ok("PUSHB", json!({"queue": queue, "jobs": jobs(MANY / 2)}));
        let (some, their) = pull_all(client, queue);
        ids.extend(some);
        tokens.extend(their);
    }
    (ids, tokens)
}

/// Queues of which each of two shards has some.
const QUEUES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

#[test]
fn a_batch_comes_in_order_and_is_answered_once() {
    for shards in [1, 2] {
        let server = server(shards);
        let mut client = server.client();
        for queue in QUEUES {
            let reply = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs(MANY)}));
            let ids = ids_of(&reply);
            assert_eq!(ids.len(), MANY);
            assert_eq!(client.counted(queue, "waiting"), MANY as u64);
            for (place, id) in [(0, &ids[0]), (MANY - 1, &ids[MANY - 1]), (777, &ids[777])] {
                let job = client.ok("GetJob", json!({"id": id}))["job"].clone();
                assert_eq!(job["data"], json!(place));
            }
            assert!(ids.is_sorted(), "they were made in their order");
        }
    }
}

#[test]
fn a_batch_of_large_jobs_comes_as_it_was_sent() {
    let server = server(1);
    let mut client = server.client();
    let data = "x".repeat(30_000);
    let jobs: Vec<Value> = (0..300).map(|n| json!({"data": [n, data]})).collect();
    let reply = client.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
    let ids = ids_of(&reply);
    let job = client.ok("GetJob", json!({"id": ids[299]}))["job"].clone();
    assert_eq!(job["data"], json!([299, data]));
    assert_eq!(client.counted("q", "waiting"), 300);
}

#[test]
fn commands_behind_a_batch_wait_for_it_and_answers_come_in_their_order() {
    let server = server(2);
    for queue in QUEUES {
        let mut client = server.client();
        let first = client.send("PUSHB", json!({"queue": queue, "jobs": jobs(MANY)})).unwrap();
        let second = client.send("GetJobCounts", json!({"queue": queue})).unwrap();
        let third = client.send("PUSHB", json!({"queue": queue, "jobs": jobs(3)})).unwrap();
        let fourth = client.send("Count", json!({"queue": queue})).unwrap();
        let replies: Vec<Value> = (0..4).map(|_| client.recv().unwrap()).collect();
        let req_ids: Vec<&str> = replies.iter().map(|it| it["reqId"].as_str().unwrap()).collect();
        assert_eq!(req_ids, [&first, &second, &third, &fourth]);
        assert_eq!(replies[1]["counts"]["waiting"], json!(MANY));
        assert_eq!(replies[3]["count"], json!(MANY + 3));
    }
}

#[test]
fn one_bad_job_refuses_the_whole_of_a_batch_and_is_named() {
    let server = server(2);
    let mut client = server.client();
    for queue in ["a", "b"] {
        for (bad, text) in [
            (json!({"data": 1, "priority": "x"}), "jobs[9999]: priority must be an integer"),
            (json!(7), "jobs[9999] must be an object"),
            (json!({"priority": 1}), "jobs[9999]: data is required"),
            (
                json!({"data": 1, "repeat": {"every": 1}}),
                "jobs[9999]: repeat.every must be between 10 and 9007199254740991",
            ),
            (
                json!({"data": 1, "dependsOn": ["nobody"]}),
                "jobs[9999]: Dependency job not found: nobody",
            ),
        ] {
            let mut all = jobs(MANY - 1);
            all[0]["customId"] = json!("first");
            all[1]["dependsOn"] = json!([client.push("other", 1)]);
            all.push(bad);
            assert_eq!(client.refused("PUSHB", json!({"queue": queue, "jobs": all})), text);
            assert_eq!(client.counted(queue, "waiting"), 0);
        }
        assert!(client.refused("PUSHB", json!({"jobs": jobs(MANY)})).contains("queue is required"));
        let reply =
            client.ok("PUSHB", json!({"queue": queue, "jobs": [{"data": 1, "customId": "first"}]}));
        assert_eq!(ids_of(&reply), ["first"], "what was refused holds no name");
        client.ok("Cancel", json!({"id": "first"}));
    }
}

#[test]
fn custom_ids_of_a_batch_make_one_job_each_whoever_pushes_them() {
    let server = server(2);
    let name = |n: usize| format!("job {n}");
    let named = |from: usize, to: usize| -> Vec<Value> {
        (from..to).map(|n| json!({"data": n, "customId": name(n)})).collect()
    };
    let mut client = server.client();
    client.ok("PUSHB", json!({"queue": "a", "jobs": named(0, 10)}));
    let mut all = named(0, MANY / 2);
    all.push(json!({"data": "again", "customId": name(MANY / 2 - 1)}));
    let reply = client.ok("PUSHB", json!({"queue": "a", "jobs": all}));
    let mut expected: Vec<String> = (0..MANY / 2).map(name).collect();
    expected.push(name(MANY / 2 - 1));
    assert_eq!(ids_of(&reply), expected);
    assert_eq!(client.counted("a", "waiting"), (MANY / 2) as u64);
    // Several at once, in opposite orders and to both shards: none waits for ever for another.
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for (nth, client) in clients.iter_mut().enumerate() {
        let mut all = named(MANY / 2, MANY);
        if nth % 2 == 1 {
            all.reverse();
        }
        client.send("PUSHB", json!({"queue": QUEUES[1 + nth], "jobs": all})).unwrap();
    }
    for client in &mut clients {
        assert_eq!(ids_of(&client.recv().unwrap()).len(), MANY / 2);
    }
    let all: u64 = QUEUES[1..5].iter().map(|queue| client.counted(queue, "waiting")).sum();
    assert_eq!(all, (MANY / 2) as u64);
}

#[test]
fn a_name_that_stands_twice_in_a_batch_is_answered_with_what_became_of_the_first() {
    let server = server(1);
    let mut client = server.client();
    let holder = client.push_with("q", 1, json!({"uniqueKey": "k"}));
    let mut all = jobs(MANY);
    all[3] = json!({"data": 1, "customId": "n", "uniqueKey": "k"});
    all[MANY - 1] = json!({"data": 1, "customId": "n"});
    let ids = ids_of(&client.ok("PUSHB", json!({"queue": "q", "jobs": all})));
    assert_eq!((&ids[3], &ids[MANY - 1]), (&holder, &holder));
    let reply = client.ok("PUSHB", json!({"queue": "q", "jobs": [{"data": 1, "customId": "n"}]}));
    assert_eq!(ids_of(&reply), ["n"], "the name was not used");
    assert_eq!(client.counted("q", "waiting"), MANY as u64);
}

#[test]
fn a_batch_that_would_overfill_its_group_is_refused_whole() {
    let server = server(2);
    for queue in ["a", "b"] {
        let mut client = server.client();
        let of_group = |n: usize, most: usize| json!({"data": n, "groupId": "g", "groupMaxSize": most, "customId": format!("{queue}{n}")});
        let all = |most| -> Vec<Value> { (0..MANY).map(|n| of_group(n, most)).collect() };
        let text = client.refused("PUSHB", json!({"queue": queue, "jobs": all(MANY - 1)}));
        assert!(text.starts_with(&format!("jobs[{}]: ", MANY - 1)), "{text}");
        assert_eq!(client.counted(queue, "waiting"), 0);
        client.ok("PUSHB", json!({"queue": queue, "jobs": all(MANY)}));
        assert_eq!(client.counted(queue, "waiting"), MANY as u64);
        let one_more =
            json!({"queue": queue, "jobs": [{"data": 1, "groupId": "g", "groupMaxSize": MANY}]});
        assert!(client.refused("PUSHB", one_more).starts_with("jobs[0]: "));
        // As many have left as come.
        for _ in 0..10 {
            client.pull(queue);
        }
        let ten = vec![json!({"data": 1, "groupId": "g", "groupMaxSize": MANY}); 10];
        client.ok("PUSHB", json!({"queue": queue, "jobs": ten}));
    }
}

#[test]
fn jobs_of_a_batch_wait_for_those_they_depend_on() {
    let server = server(2);
    let mut client = server.client();
    let parts: Vec<String> = ["a", "b"].iter().map(|queue| client.push(queue, 1)).collect();
    let whole: Vec<Value> = (0..MANY / 4).map(|n| json!({"data": n, "dependsOn": parts})).collect();
    for queue in ["c", "d"] {
        client.ok("PUSHB", json!({"queue": queue, "jobs": whole}));
        assert_eq!(client.counted(queue, "waiting-children"), (MANY / 4) as u64);
    }
    for (queue, part) in ["a", "b"].iter().zip(&parts) {
        client.pull(queue);
        client.ok("ACK", json!({"id": part}));
    }
    for queue in ["c", "d"] {
        let all = |client: &mut Client| client.counted(queue, "waiting") == (MANY / 4) as u64;
        until("all to hear", || all(&mut client).then_some(()));
    }
}

#[test]
fn an_ack_of_many_is_done_whole_or_not_at_all() {
    for shards in [1, 2] {
        let server = server(shards);
        let mut client = server.client();
        let (ids, tokens) = pull_of_both(&mut client);
        let results: Vec<Value> = (0..MANY).map(|n| json!([n])).collect();
        let ack = json!({"ids": ids, "tokens": tokens, "results": results});
        let mut bad = ack.clone();
        bad["tokens"][MANY - 2] = json!("5e0f8d1e-3c55-4b2a-9a3e-2b8d0a5ba001");
        let text = client.refused("ACKB", bad);
        let id = ids[MANY - 2].as_str().unwrap();
        assert_eq!(text, format!("Invalid or expired lock token for job {id}"));
        let mut twice = ack.clone();
        twice["ids"][MANY - 1] = ids[0].clone();
        twice["tokens"][MANY - 1] = tokens[0].clone();
        assert_eq!(client.refused("ACKB", twice), "Job not found or not active");
        let mut unknown = ack.clone();
        unknown["ids"][5] = json!("nobody");
        assert_eq!(client.refused("ACKB", unknown), "Job not found or not active");
        let short = json!({"ids": ids, "tokens": tokens, "results": [1]});
        assert_eq!(client.refused("ACKB", short), "results must have the same length as ids");
        let active: u64 = ["a", "b"].iter().map(|queue| client.counted(queue, "active")).sum();
        assert_eq!(active, MANY as u64, "nothing was done");
        client.ok("ACKB", ack);
        for queue in ["a", "b"] {
            assert_eq!(client.counted(queue, "completed"), (MANY / 2) as u64);
        }
        for place in [0, MANY / 2, MANY - 1] {
            let result = client.ok("GetResult", json!({"id": ids[place]}))["result"].clone();
            assert_eq!(result, json!([place]));
        }
    }
}

#[test]
fn an_ack_of_many_takes_custom_ids() {
    let server = server(2);
    let mut client = server.client();
    let named: Vec<Value> = (0..MANY / 2)
        .map(|n| json!({"data": n, "customId": format!("n{n}"), "removeOnComplete": n == 7}))
        .collect();
    client.ok("PUSHB", json!({"queue": "a", "jobs": named}));
    let (ids, tokens) = pull_all(&mut client, "a");
    let removes = vec![true; ids.len()];
    client.ok("ACKB", json!({"ids": ids, "tokens": tokens, "removeOnCompletes": removes}));
    assert_eq!(client.counted("a", "completed") + client.counted("a", "active"), 0);
}

#[test]
fn renewals_of_many_tell_which_jobs_are_gone() {
    for shards in [1, 2] {
        let server = server(shards);
        let mut client = server.client();
        let (ids, tokens) = pull_of_both(&mut client);
        let gone = [3, MANY / 2, MANY - 1];
        for place in gone {
            client.ok("ACK", json!({"id": ids[place], "token": tokens[place]}));
        }
        let beats = json!({"ids": ids, "tokens": tokens});
        let data = client.ok("JobHeartbeatB", beats)["data"].clone();
        assert_eq!(data, json!({"ok": true, "count": MANY - 3, "goneIndices": gone}));
        let durations = vec![60_000; MANY];
        let extends = json!({"ids": ids, "tokens": tokens, "durations": durations});
        assert_eq!(client.ok("ExtendLocks", extends)["count"], json!(MANY - 3));
    }
}

#[test]
fn batches_go_over_websocket() {
    let server = server(2);
    let mut socket = WebSocket::open(server.http, "/ws");
    for queue in ["a", "b"] {
        let reply = socket.ok("PUSHB", json!({"queue": queue, "jobs": jobs(MANY)}));
        assert_eq!(ids_of(&reply).len(), MANY);
    }
    let mut all = jobs(MANY);
    all[MANY - 1] = json!(1);
    let text = socket.refused("PUSHB", json!({"queue": "a", "jobs": all}));
    assert_eq!(text, format!("jobs[{}] must be an object", MANY - 1));
    socket.ok("Ping", json!({}));
}

#[test]
fn batches_of_many_clients_go_on_side_by_side_beside_short_commands() {
    let server = server(2);
    let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for (nth, client) in clients.iter_mut().enumerate() {
        let queue = QUEUES[nth % QUEUES.len()];
        client.send("PUSHB", json!({"queue": queue, "jobs": jobs(MANY)})).unwrap();
    }
    let mut other = server.client();
    other.push("other", 1);
    for client in &mut clients {
        assert_eq!(ids_of(&client.recv().unwrap()).len(), MANY);
    }
    let all: u64 = QUEUES.iter().map(|queue| other.counted(queue, "waiting")).sum();
    assert_eq!(all, 8 * MANY as u64);
    other.ok("Ping", json!({}));
}

#[test]
fn a_client_that_goes_in_the_middle_of_a_batch_leaves_all_or_nothing_of_it() {
    let server = server(2);
    let name = |n: usize| format!("n{n}");
    let named: Vec<Value> = (0..MANY).map(|n| json!({"data": n, "customId": name(n)})).collect();
    for _ in 0..5 {
        let mut client = server.client();
        client.send("PUSHB", json!({"queue": "a", "jobs": named})).unwrap();
    }
    let mut client = server.client();
    // The names are free, or have their jobs: this push is behind those of the clients that are gone.
    let ids = ids_of(&client.ok("PUSHB", json!({"queue": "a", "jobs": named})));
    assert_eq!(ids, (0..MANY).map(name).collect::<Vec<_>>());
    let all = |client: &mut Client| client.counted("a", "waiting") == MANY as u64;
    until("each job to be there once", || all(&mut client).then_some(()));
}

#[test]
fn what_a_batch_has_answered_is_there_after_a_kill() {
    let mut server = server(2);
    let mut client = server.client();
    for queue in QUEUES {
        client.ok("PUSHB", json!({"queue": queue, "jobs": jobs(MANY)}));
    }
    client.send("PUSHB", json!({"queue": "other", "jobs": jobs(MANY)})).unwrap();
    server.kill();
    server.start();
    let mut client = server.client();
    for queue in QUEUES {
        assert_eq!(client.counted(queue, "waiting"), MANY as u64);
    }
}

#[test]
fn an_ack_of_many_of_a_client_that_sends_no_more_is_done_all_the_same() {
    for shards in [1, 2] {
        let server = server(shards);
        let mut client = server.client();
        client.ok("PUSHB", json!({"queue": "a", "jobs": jobs(MANY)}));
        let mut worker = server.client();
        let (ids, tokens) = pull_all(&mut worker, "a");
        worker.send("ACKB", json!({"ids": ids, "tokens": tokens})).unwrap();
        worker.shutdown_write();
        let reply = worker.recv().unwrap();
        assert_eq!(reply["ok"], json!(true), "{reply}");
        assert_eq!(reply["ignoredIndices"], Value::Null, "{reply}");
        assert_eq!(client.counted("a", "completed"), MANY as u64);
    }
}

#[test]
fn what_a_client_holds_beside_an_ack_of_many_goes_back_after_it() {
    for shards in [1, 2] {
        let server = server(shards);
        let mut client = server.client();
        client.ok("PUSHB", json!({"queue": "a", "jobs": jobs(MANY)}));
        let mut worker = server.client();
        let (ids, tokens) = pull_all(&mut worker, "a");
        worker.send("ACKB", json!({"ids": ids[..MANY - 5], "tokens": tokens[..MANY - 5]})).unwrap();
        worker.shutdown_write();
        assert_eq!(worker.recv().unwrap()["ok"], json!(true));
        let five = |client: &mut Client| client.counted("a", "waiting") == 5;
        until("the others to wait again", || five(&mut client).then_some(()));
    }
}

#[test]
fn an_ack_of_many_of_a_client_that_leaves_is_done_whole_or_not_at_all() {
    let server = server(1);
    let mut client = server.client();
    for round in 0..10 {
        let queue = format!("q{round}");
        client.ok("PUSHB", json!({"queue": queue, "jobs": jobs(MANY)}));
        let mut worker = server.client();
        let (ids, tokens) = pull_all(&mut worker, &queue);
        worker.send("ACKB", json!({"ids": ids, "tokens": tokens})).unwrap();
        if round % 2 == 0 {
            // Some of it is done when the client goes.
            let some = |client: &mut Client| client.counted(&queue, "completed") > 0;
            until("the first to be done", || some(&mut client).then_some(()));
        }
        drop(worker);
        let none = |client: &mut Client| client.counted(&queue, "active") == 0;
        until("all to be done or given back", || none(&mut client).then_some(()));
        let (done, left) = (client.counted(&queue, "completed"), client.counted(&queue, "waiting"));
        assert!(
            (done, left) == (MANY as u64, 0) || (done, left) == (0, MANY as u64),
            "{done} {left}"
        );
        if round % 2 == 0 {
            assert_eq!(left, 0, "it had begun");
        }
    }
}

#[test]
fn a_batch_beyond_its_bounds_is_refused_and_says_why() {
    let server = server(2);
    let mut client = server.client();
    let told = format!("must be at most {MANY} items");
    let many = jobs(MANY + 1);
    assert!(client.refused("PUSHB", json!({"queue": "a", "jobs": many})).ends_with(&told));
    let ids = vec!["x"; MANY + 1];
    for command in ["ACKB", "JobHeartbeatB"] {
        let refused = client.refused(command, json!({"ids": ids}));
        assert_eq!(refused, format!("ids {told}"));
    }
    // Fewer jobs of more bytes than a batch may have, over each face.
    let large = vec![json!({"data": "x".repeat(1 << 20)}); 17];
    let fields = json!({"queue": "a", "jobs": large});
    let told =
        format!("PUSHB must have at most {BATCH_BYTES_MAX} bytes, jobs at most {MANY} items");
    client.send("PUSHB", fields.clone()).unwrap();
    // Of what is refused before it has come, the rest is not looked through for a name.
    let refused = client.recv().unwrap();
    assert_eq!((&refused["error"], &refused["code"]), (&json!(told), &json!("too_large")));
    let mut socket = WebSocket::open(server.http, "/ws");
    let text = format!(r#"{{"cmd":"PUSHB","reqId":"r",{}"#, &fields.to_string()[1..]);
    socket.send_text(&text);
    let refused = socket.recv();
    assert_eq!((&refused["error"], &refused["reqId"]), (&json!(told), &json!("r")));
    assert_eq!(client.counted("a", "waiting"), 0, "nothing of it came");
    client.ok("PUSHB", json!({"queue": "a", "jobs": &large[..15]}));
    assert_eq!(client.counted("a", "waiting"), 15);
}

/// The fear: expressions that are read one after the other for as long as a turn takes a thousand times.
#[test]
fn a_batch_has_so_many_cron_expressions_and_no_more() {
    let server = server(1);
    let mut client = server.client();
    let repeated = |count: usize| -> Vec<Value> {
        let job = |n: usize| {
            let pattern = format!("{} {} 29 2 *", n % 60, n / 60 % 24);
            json!({"data": 1, "repeat": {"pattern": pattern}})
        };
        (0..count).map(job).collect()
    };
    client.ok("PUSHB", json!({"queue": "q", "jobs": repeated(BATCH_PATTERNS_MAX)}));
    let text = client.refused("PUSHB", json!({"queue": "q", "jobs": repeated(1001)}));
    assert_eq!(text, "jobs[1000]: repeat.pattern must be in at most 1000 jobs of a batch");
    let mut wrong = repeated(900);
    wrong[800]["repeat"]["pattern"] = json!("0 0 31 2 *");
    let text = client.refused("PUSHB", json!({"queue": "q", "jobs": wrong}));
    let alone = client.refused("PUSHB", json!({"queue": "q", "jobs": &wrong[800..801]}));
    assert_eq!(text, alone.replace("jobs[0]", "jobs[800]"));
    assert_eq!(client.counted("q", "delayed"), 1000);
}
