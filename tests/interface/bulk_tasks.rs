//! Actions on many jobs: dry runs, tasks with progress, what may be cancelled. The fear: an operator does not know what has
//! become of ten thousand jobs.

use serde_json::{Value as Json, json};

use super::{client, queue};
use crate::support::{Client, Start, until};

/// Pushes jobs, and says their ids.
pub(crate) fn fill(
    client: &mut Client,
    queue: &str,
    count: usize,
    job: impl Fn(usize) -> Json,
) -> Vec<String> {
    let mut ids = Vec::new();
    let places: Vec<usize> = (0..count).collect();
    for some in places.chunks(1000) {
        let jobs: Vec<Json> = some.iter().map(|&n| job(n)).collect();
        let reply = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
        let of_reply = reply["ids"].as_array().unwrap();
        ids.extend(of_reply.iter().map(|id| id.as_str().unwrap().to_owned()));
    }
    ids
}

/// Pushes jobs that fail for good, each with an error of its own, and says their ids.
pub(crate) fn bury(
    client: &mut Client,
    queue: &str,
    count: usize,
    error: impl Fn(usize) -> String,
) -> Vec<String> {
    let ids = fill(client, queue, count, |n| json!({"data": n, "maxAttempts": 1}));
    let places: Vec<usize> = (0..count).collect();
    for some in places.chunks(500) {
        let pulled = client.ok("PULLB", json!({"queue": queue, "count": some.len()}));
        assert_eq!(pulled["jobs"].as_array().unwrap().len(), some.len());
        for &place in some {
            client.send("FAIL", json!({"id": ids[place], "error": error(place)})).unwrap();
        }
        for _ in some {
            assert_eq!(client.recv().unwrap()["ok"], true);
        }
    }
    ids
}

fn task(client: &mut Client, id: &Json) -> Json {
    client.ok("GetTask", json!({"task": id}))["task"].clone()
}

/// Waits until a task has ended, and says how.
pub(crate) fn ended(client: &mut Client, id: &Json) -> Json {
    until("the end of a task", || {
        let task = task(client, id);
        (task["state"] != "running").then_some(task)
    })
}

#[allow(clippy::needless_pass_by_value, reason = "a literal in the call reads better")]
pub(crate) fn begin(client: &mut Client, fields: Json) -> Json {
    client.ok("Bulk", fields)["taskId"].clone()
}

/// Runs a task to its end.
pub(crate) fn run(client: &mut Client, fields: Json) -> Json {
    let id = begin(client, fields);
    let task = ended(client, &id);
    assert_eq!(task["state"], "done", "{task}");
    task
}

pub(crate) fn figure(task: &Json, name: &str) -> u64 {
    task[name].as_u64().unwrap_or_else(|| panic!("no {name} in {task}"))
}

pub(crate) fn metric(client: &mut Client, name: &str) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let line = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap()
}

#[test]
fn ten_thousand_dead_letters_of_one_error_are_retried_and_seen_finished() {
    let (mut c, q) = (client(), queue("bulk-retry"));
    bury(&mut c, &q, 10_000, |n| format!("timeout after {n} ms"));
    let others = bury(&mut c, &q, 30, |_| "no such user".to_owned());
    let filter = json!({"errorGroup": "timeout after # ms"});
    let fields = json!({"action": "retry", "queue": q, "filter": filter, "dryRun": true});
    let dry = run(&mut c, fields.clone());
    assert_eq!((figure(&dry, "matched"), figure(&dry, "changed")), (10_000, 10_000), "{dry}");
    assert_eq!(c.counted(&q, "failed"), 10_030, "a dry run changes nothing");
    let mut fields = fields;
    fields["dryRun"] = json!(false);
    let done = run(&mut c, fields);
    for (name, figure) in [("counted", 10_030), ("total", 10_030), ("changed", 10_000)] {
        assert_eq!(done[name], figure, "{name} in {done}");
    }
    assert_eq!((c.counted(&q, "failed"), c.counted(&q, "waiting")), (30, 10_000));
    assert!(done["endedAt"].as_u64() >= done["startedAt"].as_u64(), "{done}");
    assert_eq!((&done["action"], &done["queue"]), (&json!("retry"), &json!(q)));
    assert_eq!(done["startedBy"], "admin");
    assert_eq!(c.state(&others[0]), "failed");
    // They run, and finish.
    for _ in 0..10 {
        let pulled = c.ok("PULLB", json!({"queue": q, "count": 1000}));
        let ids: Vec<&Json> =
            pulled["jobs"].as_array().unwrap().iter().map(|job| &job["id"]).collect();
        assert_eq!(ids.len(), 1000);
        c.ok("ACKB", json!({"ids": ids}));
    }
    assert_eq!(c.counted(&q, "completed"), 10_000);
}

#[test]
fn each_action_changes_the_jobs_that_it_fits_and_says_why_it_left_the_others() {
    let (mut c, q) = (client(), queue("bulk-actions"));
    let fill_all = |c: &mut Client| {
        c.ok("Obliterate", json!({"queue": q}));
        let waiting = c.push(&q, 1);
        let active = c.pull(&q)["id"].clone();
        assert_eq!(active, json!(waiting));
        let completed = c.push(&q, 1);
        assert_eq!(c.pull(&q)["id"], json!(completed));
        c.ok("ACK", json!({"id": completed}));
        let failed = c.push_with(&q, 1, json!({"maxAttempts": 1}));
        assert_eq!(c.pull(&q)["id"], json!(failed));
        c.ok("FAIL", json!({"id": failed, "error": "broken"}));
        let delayed = c.push_with(&q, 1, json!({"delay": 3_600_000}));
        let waiting = c.push(&q, 1);
        let blocked = c.push_with(&q, 1, json!({"dependsOn": [delayed]}));
        [waiting, delayed, active.as_str().unwrap().to_owned(), completed, failed, blocked]
    };
    let gone = "gone";
    for (action, argument, states) in [
        ("retry", None, ["waiting", "delayed", "active", "waiting", "waiting", "waiting-children"]),
        ("remove", None, [gone, gone, "active", gone, gone, gone]),
        ("cancel", None, [gone, gone, "active", "completed", "failed", gone]),
        (
            "promote",
            None,
            ["waiting", "waiting", "active", "completed", "failed", "waiting-children"],
        ),
        (
            "delay",
            Some(("delay", 7_200_000)),
            ["delayed", "delayed", "active", "completed", "failed", "waiting-children"],
        ),
        (
            "priority",
            Some(("priority", -5)),
            ["waiting", "delayed", "active", "completed", "failed", "waiting-children"],
        ),
    ] {
        let ids = fill_all(&mut c);
        let before = ["waiting", "delayed", "active", "completed", "failed", "waiting-children"];
        let mut fields = json!({"action": action, "ids": ids, "dryRun": true});
        if let Some((name, value)) = argument {
            fields[name] = json!(value);
        }
        let dry = run(&mut c, fields.clone());
        for (id, state) in ids.iter().zip(before) {
            assert_eq!(c.state(id), state, "a dry run changes nothing");
        }
        fields["dryRun"] = json!(false);
        let task = run(&mut c, fields);
        assert_eq!(task["skipped"]["active"], 1, "{action}: {task}");
        assert_eq!((figure(&task, "total"), figure(&task, "matched")), (6, 6), "{action}: {task}");
        let skipped: u64 = ["notFound", "active", "state", "damaged"]
            .iter()
            .map(|why| task["skipped"][why].as_u64().unwrap())
            .sum();
        assert_eq!(figure(&task, "changed") + skipped, 6, "{action}: {task}");
        assert_eq!(figure(&dry, "changed"), figure(&task, "changed"), "{action}");
        for ((id, state), was) in ids.iter().zip(states).zip(before) {
            let reply = c.call("GetState", json!({"id": id}));
            let now = if reply["ok"] == true { reply["state"].as_str().unwrap() } else { gone };
            // Jobs that waited for the job that is gone went to the dead-letter queue, or with the action.
            let ended = was == "waiting-children" && ["failed", gone].contains(&now);
            assert!(
                now == state || now == "unknown" && state == gone || ended,
                "{action}: {was} became {now}"
            );
        }
        if action == "priority" {
            assert_eq!(c.ok("GetJob", json!({"id": ids[0]}))["job"]["priority"], -5);
        }
    }
    let ids = fill_all(&mut c);
    run(&mut c, json!({"action": "discard", "ids": [ids[0], ids[1]]}));
    assert_eq!((c.state(&ids[0]), c.state(&ids[1])), ("failed".to_owned(), "failed".to_owned()));
}

/// The name of the task that begins next where this one did.
fn following(id: &Json) -> String {
    let (head, number) = id.as_str().unwrap().rsplit_once('.').unwrap();
    format!("{head}.{}", number.parse::<u64>().unwrap() + 1)
}

#[test]
fn a_cancelled_task_stops_and_what_it_has_done_stays_done() {
    let server = Start::new().env("SHARDS", 1).start();
    let mut c = server.client();
    fill(&mut c, "q", 20_000, |_| json!({"data": 1}));
    let fields =
        json!({"action": "remove", "queue": "q", "filter": {}, "limit": 1, "dryRun": true});
    let first = begin(&mut c, fields);
    ended(&mut c, &first);
    // The two come in one piece, so the task has hardly begun when it is cancelled.
    let id = following(&first);
    let [begun, cancelled] = c.at_once([
        ("Bulk", json!({"action": "remove", "queue": "q", "filter": {}})),
        ("CancelTask", json!({"task": id})),
    ]);
    assert_eq!(begun["taskId"], json!(id));
    let task = cancelled["task"].clone();
    assert_eq!(task["state"], "cancelled", "{task}");
    let changed = figure(&task, "changed");
    assert!(changed < 20_000, "{task}");
    for _ in 0..50 {
        c.ok("Ping", json!({}));
    }
    assert_eq!(c.counted("q", "waiting"), 20_000 - changed);
    let again = self::task(&mut c, &json!(id));
    assert_eq!((&again, again["endedAt"].is_u64()), (&task, true));
    // To cancel what has ended changes nothing.
    assert_eq!(c.ok("CancelTask", json!({"task": first}))["task"]["state"], "done");
    assert_eq!(metric(&mut c, "corq_bulk_tasks_running"), 0);
}

#[test]
fn a_task_goes_on_when_its_client_leaves() {
    let (mut c, q) = (client(), queue("bulk-leaves"));
    fill(&mut c, &q, 5000, |_| json!({"data": 1}));
    {
        let mut leaver = client();
        leaver.send("Bulk", json!({"action": "remove", "queue": q, "filter": {}})).unwrap();
        leaver.recv().unwrap();
    }
    let task = until("the task of a client that is gone", || {
        let tasks = c.ok("ListTasks", json!({}))["tasks"].clone();
        let mine = tasks.as_array().unwrap().iter().find(|task| task["queue"] == json!(q)).cloned();
        mine.filter(|task| task["state"] == "done")
    });
    assert_eq!((figure(&task, "changed"), c.counted(&q, "waiting")), (5000, 0));
}

#[test]
fn jobs_of_both_shards_are_changed_by_their_ids_and_by_names_of_their_clients() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut c = server.client();
    let uuid = "01901600-0000-7000-8000-00000000abcd";
    let mut ids = Vec::new();
    for n in 0..40 {
        let q = format!("ids-{}", n % 8);
        let more = match n {
            0 => json!({"jobId": uuid}),
            1..10 => json!({"jobId": format!("mine-{n}")}),
            _ => json!({}),
        };
        let id = c.push_with(&q, n, more);
        ids.push(id);
    }
    assert_eq!(ids[0], uuid);
    let mut named = ids.clone();
    named.push("unknown".to_owned());
    named.push("01901600-0000-7000-8000-00000000dcba".to_owned());
    let task = run(&mut c, json!({"action": "priority", "priority": 9, "ids": named}));
    assert_eq!((figure(&task, "total"), figure(&task, "counted")), (42, 42), "{task}");
    assert_eq!((figure(&task, "changed"), &task["skipped"]["notFound"]), (40, &json!(2)), "{task}");
    for id in &ids {
        assert_eq!(c.ok("GetJob", json!({"id": id}))["job"]["priority"], 9, "{id}");
    }
    // Of one queue only, and no more than so many.
    let of_one = run(&mut c, json!({"action": "cancel", "ids": ids, "queue": "ids-3", "limit": 4}));
    assert_eq!(figure(&of_one, "changed"), 4, "{of_one}");
    assert_eq!(c.counted("ids-3", "waiting"), 1);
    let all = c.ok("ListTasks", json!({}))["tasks"].as_array().unwrap().len();
    assert_eq!(all, 2);
}

#[test]
fn more_tasks_than_a_shard_runs_are_refused_and_the_oldest_that_ended_are_forgotten() {
    let server = Start::new().env("SHARDS", 1).start();
    let mut c = server.client();
    fill(&mut c, "q", 10_000, |n| json!({"data": {"n": n}}));
    let fields = json!({"action": "remove", "queue": "q", "filter": {"text": "x"}, "dryRun": true});
    let replies: [Json; 40] = c.at_once(std::array::from_fn(|_| ("Bulk", fields.clone())));
    let (begun, refused): (Vec<&Json>, Vec<&Json>) =
        replies.iter().partition(|reply| reply["ok"] == true);
    assert!(begun.len() >= 32 && !refused.is_empty(), "{} {}", begun.len(), refused.len());
    for reply in &refused {
        assert_eq!(reply["error"], "Too many tasks are running: at most 32 on a shard");
        assert_eq!(reply["code"], "busy");
    }
    assert_eq!(metric(&mut c, "corq_bulk_tasks_refused_total"), refused.len() as u64);
    for reply in &begun {
        ended(&mut c, &reply["taskId"]);
    }
    let first = begun[0]["taskId"].clone();
    for _ in 0..100 {
        run(&mut c, json!({"action": "remove", "queue": "none", "filter": {}}));
    }
    assert_eq!(c.refused("GetTask", json!({"task": first})), "Task not found");
    let listed = c.ok("ListTasks", json!({}))["tasks"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 100);
    assert_eq!((&listed[0]["queue"], &listed[99]["queue"]), (&json!("none"), &json!("none")));
    assert_eq!(metric(&mut c, "corq_bulk_tasks_running"), 0);
    assert_eq!(metric(&mut c, "corq_bulk_jobs_changed_total"), 0, "dry runs change nothing");
}

#[test]
fn a_restart_forgets_tasks_and_keeps_what_they_changed() {
    let mut server = Start::new().env("SHARDS", 1).start();
    let mut c = server.client();
    fill(&mut c, "q", 3000, |n| {
        let tag = ["even", "odd"][n % 2];
        json!({"data": n, "tags": [tag]})
    });
    let fields = json!({"action": "discard", "queue": "q", "filter": {"tag": "odd"}});
    let id = begin(&mut c, fields);
    assert_eq!(figure(&ended(&mut c, &id), "changed"), 1500);
    server.kill();
    server.start();
    let mut c = server.client();
    assert_eq!((c.counted("q", "failed"), c.counted("q", "waiting")), (1500, 1500));
    let ended = "Task not found: a restart of the server has ended it. Send the Bulk again";
    for command in ["GetTask", "CancelTask"] {
        assert_eq!(c.refused(command, json!({"task": id})), ended);
    }
    assert_eq!(c.ok("ListTasks", json!({}))["tasks"], json!([]));
}

/// Pushes jobs, so many at a time.
pub(crate) fn fill_by(
    client: &mut Client,
    queue: &str,
    count: usize,
    at_a_time: usize,
    job: impl Fn(usize) -> Json,
) -> Vec<String> {
    let mut ids = Vec::new();
    for first in (0..count).step_by(at_a_time) {
        ids.extend(fill(client, queue, at_a_time, |n| job(first + n)));
    }
    ids
}

#[test]
fn our_client_begins_watches_and_cancels_tasks() {
    use corq_client::{Action, Bulk, JobState, blocking};
    let server = Start::new().start();
    let mut c = server.client();
    bury(&mut c, "ours", 30, |n| format!("no {n}"));
    let client = blocking::Client::connect(&format!("tcp://127.0.0.1:{}", server.tcp)).unwrap();
    let groups = client.queue("ours").dead_letter_groups(5).unwrap();
    let group = &groups.groups[0];
    assert_eq!((group.error.as_str(), group.count, groups.total), ("no #", 30, 30));
    assert_eq!(client.dead_letter_groups(5).unwrap().total, 30);
    let run = |bulk: &Bulk| {
        let id = client.bulk(bulk).unwrap();
        until("the end of a task", || {
            client.task(&id).unwrap().filter(|task| task.state != "running")
        })
    };
    let retry = Bulk::of_queue(Action::Retry, "ours").error_group(&group.error);
    let of_some =
        retry.clone().payload_value("none", &7).unwrap().state(JobState::Failed).dry_run();
    assert_eq!((run(&of_some).changed, run(&of_some).total), (0, 30));
    let task = run(&retry.limit(10));
    assert_eq!((task.changed, task.state.as_str(), task.dry_run), (10, "done", false));
    assert_eq!(c.counted("ours", "waiting"), 10);
    let ids = ["x".to_owned(), group.sample.clone()];
    let task = run(&Bulk::of_jobs(Action::Remove, ids));
    assert_eq!((task.changed, task.skipped.not_found, task.queue), (1, 1, None));
    let both = Bulk::of_jobs(Action::Remove, [&group.sample]).tag("a");
    let error = client.bulk(&both).unwrap_err().to_string();
    assert!(error.contains("ids and filter must not both be given"), "{error}");
    let none = Bulk::of_jobs(Action::Remove, Vec::<String>::new());
    let error = client.bulk(&none).unwrap_err().to_string();
    assert!(error.contains("ids must not be empty"), "{error}");
    let later = Action::Delay(std::time::Duration::from_hours(1));
    assert_eq!(run(&Bulk::of_queue(later, "ours")).changed, 10);
    let cancelled = client.cancel_task(&task.id).unwrap().unwrap();
    assert_eq!((cancelled.state.as_str(), cancelled.ended_at_ms), ("done", task.ended_at_ms));
    assert_eq!(client.tasks().unwrap().len(), 5);
    assert!(client.task("b0.1.1").unwrap().is_none());
}

#[test]
fn tasks_and_groups_have_routes_of_their_own() {
    let server = Start::new().start();
    let (mut c, mut web) = (server.client(), server.web());
    bury(&mut c, "web", 20, |n| format!("no {n}"));
    let answer = web.get("/queues/web/dlq/groups?limit=5").expect(200);
    assert_eq!((&answer["groups"][0]["error"], &answer["total"]), (&json!("no #"), &json!(20)));
    assert_eq!(web.get("/dlq/groups").expect(200)["groups"], answer["groups"]);
    let filter = json!({"error": "no 1", "state": "failed"});
    let body = json!({"action": "retry", "queue": "web", "filter": filter});
    let begun = web.post("/jobs/bulk", body).expect(200)["taskId"].clone();
    let path = format!("/tasks/{}", begun.as_str().unwrap());
    let task = until("the end of a task", || {
        let task = web.get(&path).expect(200)["task"].clone();
        (task["state"] == "done").then_some(task)
    });
    assert_eq!(figure(&task, "changed"), 11, "{task}");
    assert_eq!(web.get("/tasks").expect(200)["tasks"], json!([task]));
    assert_eq!(web.delete(&path).expect(200)["task"], task);
    assert_eq!(web.get("/tasks/b0.9007199254740991.1").refused(404), "Task not found");
    let misspelt = json!({"action": "retry", "queue": "web", "filter": {}, "dryrun": true});
    let error = web.post("/jobs/bulk", misspelt).refused(400);
    assert!(error.contains("dryRun"), "{error}");
}
