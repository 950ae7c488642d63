//! The tables of the interface, row by row: what each command answers, where each transition leads,
//! which fields each record has. What a row is about in depth has tests of its own; `tests/README.md`
//! says which.

use corq::api::commands::{COMMANDS, CommandSpec};
use serde_json::{Value, json};

use crate::e2e::space::metrics;
use crate::support::{Client, Server, Start};
use crate::{client, queue};

/// A version 7 id that no job has.
const NOBODY: &str = "0190163d-8694-739b-aea5-966c26f8a787";

/// The fields of a command on one job, and on one queue.
type OfOne = fn(&str) -> Value;
type OfQueue = fn(&str) -> Value;

fn keys(value: &Value) -> Vec<&str> {
    let fields = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    fields.keys().map(String::as_str).filter(|key| !["ok", "reqId"].contains(key)).collect()
}

/// Compares in any order.
#[track_caller]
fn has(value: &Value, fields: &str) {
    let (mut found, mut expected) = (keys(value), fields.split(' ').collect::<Vec<_>>());
    expected.retain(|field| !["", "ok"].contains(field));
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "{value}");
}

#[track_caller]
fn has_at_least(value: &Value, fields: &str) {
    for field in fields.split(' ') {
        assert!(value.get(field).is_some(), "{field} is not in {value}");
    }
}

/// A job in each state, by the name of the state.
fn job_in(client: &mut Client, queue: &str, state: &str) -> String {
    let push = |client: &mut Client, options| client.push_with(queue, 1, options);
    match state {
        "unknown" => NOBODY.to_owned(),
        "waiting" => push(client, json!({})),
        "delayed" => push(client, json!({"delay": 3_600_000})),
        "waiting-children" => {
            let child = client.push_with(&format!("{queue}.children"), 1, json!({}));
            push(client, json!({"dependsOn": [child]}))
        }
        "active" | "completed" | "failed" => {
            let id = push(client, json!({"maxAttempts": if state == "failed" { 1 } else { 3 }}));
            assert_eq!(client.pull(queue)["id"], id.as_str());
            match state {
                "completed" => drop(client.ok("ACK", json!({"id": id, "result": 7}))),
                "failed" => drop(client.ok("FAIL", json!({"id": id, "error": "no"}))),
                _ => {}
            }
            id
        }
        other => panic!("no such state: {other}"),
    }
}

/// Records that the server has written.
fn records(client: &mut Client) -> u64 {
    metrics(client)["corq_log_records_total"]
}

/// A command whose row says that it is not recorded has written no record. If one was written, a lock may have ended
/// beside it: then it is asked again.
fn writes_what_its_class_says(client: &mut Client, command: &str, fields: &Value, before: u64) {
    let class = CommandSpec::find(command.as_bytes()).unwrap().class;
    let is_quiet = class.is_recorded()
        || records(client) == before
        || (0..9).any(|_| {
            let before = records(client);
            client.call(command, fields.clone());
            records(client) == before
        });
    assert!(is_quiet, "{command} is of class {class:?}, and writes a record each time");
}

#[test]
fn every_command_answers_with_exactly_the_fields_of_its_row() {
    let server = Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true").start();
    let mut client = server.client();
    let c = &mut client;
    let [waiting, delayed, active, completed, failed] =
        ["waiting", "delayed", "active", "completed", "failed"]
            .map(|state| job_in(c, state, state));
    c.push_with("named", 1, json!({"jobId": "mine"}));
    let mut seen = Vec::new();
    for (command, fields, answer) in [
        ("Hello", json!({"protocolVersion": 2}), "protocolVersion capabilities server version"),
        ("Auth", json!({"token": "any"}), ""),
        ("Whoami", json!({}), "data"),
        ("AuditLog", json!({}), "entries next"),
        ("PUSH", json!({"queue": "q", "data": 1}), "id"),
        ("PUSHB", json!({"queue": "q", "jobs": [{"data": 1}, {"data": 2}]}), "ids"),
        ("PULL", json!({"queue": "q"}), "job"),
        ("PULLB", json!({"queue": "q", "count": 1}), "jobs"),
        ("GetJob", json!({"id": waiting}), "job"),
        ("GetState", json!({"id": waiting}), "id state"),
        ("Explain", json!({"id": waiting}), "data"),
        ("GetJobDetail", json!({"id": waiting}), "data"),
        ("GetFlow", json!({"id": waiting}), "data"),
        ("GetResult", json!({"id": completed}), "id result"),
        ("GetJobs", json!({"queue": "waiting"}), "jobs"),
        ("GetJobs", json!({"queue": "waiting", "order": "desc"}), "jobs next"),
        ("Search", json!({"queue": "waiting", "text": "x"}), "jobs next covered"),
        ("GetJobCounts", json!({"queue": "waiting"}), "counts"),
        ("GetCountsPerPriority", json!({"queue": "waiting"}), "queue counts"),
        ("GetJobByCustomId", json!({"customId": "mine"}), "job"),
        ("Count", json!({"queue": "waiting"}), "count"),
        ("GetProgress", json!({"id": active}), "progress message"),
        ("Progress", json!({"id": active, "progress": 50}), ""),
        ("AddLog", json!({"id": active, "message": "line"}), "data"),
        ("GetLogs", json!({"id": active}), "data"),
        ("JobHeartbeat", json!({"id": active}), "data"),
        ("JobHeartbeatB", json!({"ids": [active]}), "data"),
        ("ExtendLock", json!({"id": active, "duration": 60_000}), ""),
        ("ExtendLocks", json!({"ids": [active], "durations": [60_000]}), "count"),
        ("ClearLogs", json!({"id": active}), ""),
        ("RemoveJobDeduplicationKey", json!({"id": waiting}), "data"),
        ("PUSHF", json!({"jobs": [{"id": "f", "queue": "named", "input": {"data": 1}}]}), "data"),
        ("UpdateParent", json!({"childId": "f", "parentId": "mine"}), ""),
        ("GetChildrenValues", json!({"id": "mine"}), "data"),
        ("GetFailedChildrenValues", json!({"id": "mine"}), "values"),
        ("GetIgnoredChildrenFailures", json!({"id": "mine"}), "values"),
        ("RemoveChildDependency", json!({"id": "f"}), "removed"),
        ("RemoveUnprocessedChildren", json!({"id": "mine"}), ""),
        ("MoveToWaitingChildren", json!({"id": active}), "data"),
        ("GetDeduplicationJobId", json!({"queue": "waiting", "deduplicationId": "k"}), "data"),
        ("RemoveDeduplicationKey", json!({"queue": "waiting", "deduplicationId": "k"}), "data"),
        ("PromoteJobs", json!({"queue": "waiting"}), "count"),
        ("MoveToWait", json!({"id": waiting}), ""),
        ("ChangeDelay", json!({"id": delayed, "delay": 3_600_000}), ""),
        ("Update", json!({"id": waiting, "data": 2}), ""),
        ("ChangePriority", json!({"id": waiting, "priority": 5}), ""),
        ("Promote", json!({"id": delayed}), ""),
        ("WaitJob", json!({"id": completed}), "completed result"),
        ("ACK", json!({"id": active}), ""),
        ("Pause", json!({"queue": "named"}), ""),
        ("IsPaused", json!({"queue": "named"}), "paused"),
        ("Resume", json!({"queue": "named"}), ""),
        ("ListQueues", json!({}), "queues"),
        ("ListQueues", json!({"sort": "waiting"}), "queues next"),
        ("Dlq", json!({"queue": "failed"}), "jobs"),
        ("Dlq", json!({"queue": "failed", "filter": null}), "jobs entries"),
        ("GetDlqStats", json!({"queue": "failed"}), "data"),
        ("DlqGroups", json!({"queue": "failed"}), "groups total others damaged"),
        ("ListTasks", json!({}), "tasks"),
        ("SetDlqConfig", json!({"queue": "failed", "config": {"maxEntries": 9}}), ""),
        ("GetDlqConfig", json!({"queue": "failed"}), "config"),
        ("SetStallConfig", json!({"queue": "failed", "config": {"maxStalls": 9}}), ""),
        ("GetStallConfig", json!({"queue": "failed"}), "config"),
        ("RetryDlq", json!({"queue": "failed", "jobId": failed}), "count"),
        ("PurgeDlq", json!({"queue": "failed"}), "count"),
        ("RetryCompleted", json!({"queue": "completed"}), "count"),
        ("RemoveDlqJob", json!({"queue": "failed", "jobId": failed}), "data"),
        ("GetQueueLimits", json!({"queue": "failed"}), "data"),
        ("GetGroupsJobsCount", json!({"queue": "g"}), "data"),
        ("GetGroupJobsCount", json!({"queue": "g", "groupId": "a"}), "data"),
        ("GetGroupActiveCount", json!({"queue": "g", "groupId": "a"}), "data"),
        ("GetGroups", json!({"queue": "g"}), "groups"),
        ("SetGroupRateLimit", json!({"queue": "g", "groupId": "a", "max": 1, "duration": 5}), ""),
        ("GetGroupRateLimit", json!({"queue": "g", "groupId": "a"}), "data"),
        ("GetGroupRateLimitTtl", json!({"queue": "g", "groupId": "a"}), "data"),
        ("RemoveGroupRateLimit", json!({"queue": "g", "groupId": "a"}), "data"),
        ("SetGroupConcurrency", json!({"queue": "g", "groupId": "a", "concurrency": 1}), ""),
        ("GetGroupConcurrency", json!({"queue": "g", "groupId": "a"}), "data"),
        ("RemoveGroupConcurrency", json!({"queue": "g", "groupId": "a"}), "data"),
        ("SetGroupWeight", json!({"queue": "g", "groupId": "a", "weight": 2}), ""),
        ("GetGroupWeight", json!({"queue": "g", "groupId": "a"}), "data"),
        ("PauseGroup", json!({"queue": "g", "groupId": "a"}), "data"),
        ("IsGroupPaused", json!({"queue": "g", "groupId": "a"}), "data"),
        ("ResumeGroup", json!({"queue": "g", "groupId": "a"}), "data"),
        ("RateLimitGroup", json!({"queue": "g", "groupId": "a", "duration": 5}), ""),
        ("TrimEvents", json!({"queue": "failed", "maxLength": 5}), "data"),
        ("Metrics", json!({"queue": "failed"}), "data"),
        ("Discard", json!({"id": failed}), ""),
        ("Cancel", json!({"id": waiting}), ""),
        ("Drain", json!({"queue": "delayed"}), "count"),
        ("Clean", json!({"queue": "q", "grace": 0}), "count ids"),
        ("Obliterate", json!({"queue": "q"}), ""),
        ("Cron", json!({"name": "c", "queue": "q", "data": 1, "repeatEvery": 3_600_000}), "cron"),
        ("CronList", json!({}), "crons"),
        ("CronGet", json!({"name": "c"}), "cron"),
        ("CronTrigger", json!({"name": "c"}), "id"),
        ("SetCronEnabled", json!({"name": "c", "enabled": false}), "cron"),
        ("CronPreview", json!({"name": "c"}), "data"),
        ("CronDelete", json!({"name": "c"}), ""),
        ("Ping", json!({}), "data"),
        ("SubscribeEvents", json!({"queue": "silent"}), ""),
        ("UnsubscribeEvents", json!({}), ""),
        ("Subscribe", json!({"queues": ["silent"]}), "subscribed sample"),
        ("Unsubscribe", json!({}), "subscribed"),
        ("Stats", json!({}), "stats"),
        ("Metrics", json!({}), "metrics"),
        ("History", json!({"queue": "failed"}), "data"),
        ("Heatmap", json!({}), "data"),
        ("Shards", json!({}), "data"),
        ("Prometheus", json!({}), "data"),
        ("BackupPoint", json!({}), "data"),
        ("StorageStatus", json!({}), "data"),
        ("CompactMemory", json!({}), ""),
        ("Doctor", json!({}), "data"),
        ("GetSettings", json!({}), "data"),
        ("DashboardOverview", json!({}), "data"),
        ("DashboardQueues", json!({}), "data"),
        ("DashboardQueue", json!({"queue": "completed", "includeJobs": true}), "data"),
        ("RegisterWorker", json!({"name": "w", "queues": ["q"], "workerId": "w1"}), "data"),
        ("Heartbeat", json!({"id": "w1"}), "data"),
        ("ListWorkers", json!({}), "data"),
        ("UnregisterWorker", json!({"workerId": "w1"}), "data"),
        ("RateLimit", json!({"queue": "q", "limit": 5}), ""),
        ("RateLimitClear", json!({"queue": "q"}), ""),
        ("SetConcurrency", json!({"queue": "q", "limit": 5}), ""),
        ("ClearConcurrency", json!({"queue": "q"}), ""),
    ] {
        let before = records(c);
        has(&c.ok(command, fields.clone()), answer);
        writes_what_its_class_says(c, command, &fields, before);
        seen.push(command);
    }
    // These need what the table above has used up.
    let id = job_in(c, "more", "active");
    has(&c.ok("MoveToDelayed", json!({"id": id, "delay": 5})), "");
    let id = job_in(c, "most", "active");
    has(&c.ok("FAIL", json!({"id": id})), "");
    let id = job_in(c, "rest", "active");
    has(&c.ok("ACKB", json!({"ids": [id]})), "");
    let webhook = json!({"url": "http://127.0.0.1:1/", "events": [], "queue": "nowhere"});
    let added = c.ok("AddWebhook", webhook);
    has(&added, "data");
    has(&added["data"], "webhookId url events queue createdAt");
    let listed = c.ok("ListWebhooks", json!({}));
    has(&listed, "data");
    has(&listed["data"], "webhooks stats");
    let fields = "id url events queue createdAt lastTriggered successCount failureCount enabled";
    has(&listed["data"]["webhooks"][0], fields);
    let disabled = json!({"id": added["data"]["webhookId"], "enabled": false});
    has(&c.ok("SetWebhookEnabled", disabled), "");
    // Nothing listens there, and a sample is posted all the same.
    let hook = json!({"id": added["data"]["webhookId"]});
    let tested = c.ok("TestWebhook", hook.clone());
    has(&tested, "data");
    let fields = "timestamp event jobId attempt delivered status error duration test";
    has(&tested["data"], fields);
    let deliveries = c.ok("WebhookDeliveries", hook);
    has(&deliveries, "data");
    has(&deliveries["data"], "since deliveries");
    has(&deliveries["data"]["deliveries"][0], fields);
    seen.extend(["SetWebhookEnabled", "TestWebhook", "WebhookDeliveries"]);
    let removed = c.ok("RemoveWebhook", json!({"webhookId": added["data"]["webhookId"]}));
    has(&removed, "data");
    has(&removed["data"], "removed");
    seen.extend(["MoveToDelayed", "FAIL", "ACKB", "AddWebhook", "ListWebhooks", "RemoveWebhook"]);
    let dry = json!({"action": "retry", "queue": "failed", "filter": {}, "dryRun": true});
    let begun = c.ok("Bulk", dry);
    has(&begun, "taskId");
    for command in ["GetTask", "CancelTask"] {
        let shown = c.ok(command, json!({"task": begun["taskId"]}));
        has(&shown, "task");
        assert_eq!(shown["task"]["id"], begun["taskId"]);
    }
    seen.extend(["Bulk", "GetTask", "CancelTask"]);
    // A viewer is sent samples between its replies.
    let mut viewer = server.client();
    has(&viewer.ok("Watch", json!({"every": 60_000, "what": ["stats"]})), "data");
    let request = viewer.send("Unwatch", json!({})).unwrap();
    let reply = std::iter::repeat_with(|| viewer.recv().unwrap());
    has(&{ reply }.find(|frame| frame["reqId"] == *request).unwrap(), "");
    seen.extend(["Watch", "Unwatch"]);
    for spec in COMMANDS {
        assert!(seen.contains(&spec.name), "{} has not been tried", spec.name);
    }
    // With an owner, tokens come along; a wait that ends without its job says so.
    c.push("owned", 1);
    c.push("owned", 2);
    has(&c.ok("PULL", json!({"queue": "owned", "owner": "me"})), "job token");
    has(&c.ok("PULLB", json!({"queue": "owned", "owner": "me", "count": 9})), "jobs tokens");
    let late = json!({"id": job_in(c, "late", "waiting"), "timeout": 1});
    assert_eq!(c.ok("WaitJob", late)["completed"], false);
}

#[test]
fn what_answers_nest_has_exactly_the_fields_of_its_row() {
    let server = Server::start_default();
    let mut client = server.client();
    let c = &mut client;
    let id = job_in(c, "q", "active");
    has(&c.ok("AddLog", json!({"id": id, "message": "line", "level": "warn"}))["data"], "added");
    let logs = c.ok("GetLogs", json!({"id": id}));
    has(&logs["data"], "logs");
    has(&logs["data"]["logs"][0], "message level timestamp");
    has(&c.ok("JobHeartbeat", json!({"id": id}))["data"], "ok");
    has(&c.ok("JobHeartbeatB", json!({"ids": [id]}))["data"], "ok count");
    has(&c.ok("Ping", json!({}))["data"], "pong time");
    has(&c.ok("Prometheus", json!({}))["data"], "metrics");
    let point = c.ok("BackupPoint", json!({}))["data"].clone();
    has(&point, "id path directory shards");
    has(&point["shards"][0], "shard end");
    let counts = c.ok("GetJobCounts", json!({"queue": "q"}));
    has(
        &counts["counts"],
        "waiting delayed active completed failed waiting-children prioritized paused",
    );
    let queues = c.ok("ListQueues", json!({}));
    has_at_least(&queues["queues"][0], "name waiting delayed active paused");
    let stats = c.ok("Stats", json!({}));
    has_at_least(
        &stats["stats"],
        "queued processing delayed dlq completed uptime pushPerSec pullPerSec",
    );
    let metrics = c.ok("Metrics", json!({}));
    has_at_least(
        &metrics["metrics"],
        "totalPushed totalPulled totalCompleted totalFailed avgLatencyMs avgProcessingMs \
         memoryUsageMb sqliteSizeMb activeConnections",
    );
    let cron =
        json!({"name": "c", "queue": "q", "data": 1, "schedule": "@daily", "timezone": "UTC"});
    has_at_least(&c.ok("Cron", cron)["cron"], "name queue schedule repeatEvery nextRun timezone");
    let crons = c.ok("CronList", json!({}));
    has_at_least(&crons["crons"][0], "name queue schedule repeatEvery nextRun executions timezone");
    let worker = json!({"name": "w", "queues": ["q"], "workerId": "w1"});
    has(
        &c.ok("RegisterWorker", worker)["data"],
        "workerId name queues concurrency hostname pid status registeredAt lastSeen activeJobs \
         processedJobs failedJobs",
    );
    has(&c.ok("Heartbeat", json!({"id": "w1"}))["data"], "ok");
    let workers = c.ok("ListWorkers", json!({}));
    has(&workers["data"], "workers stats");
    has_at_least(
        &workers["data"]["workers"][0],
        "id name queues concurrency hostname pid status uptime registeredAt lastSeen activeJobs \
         processedJobs failedJobs",
    );
    has(
        &workers["data"]["stats"],
        "total active activeJobs totalProcessed totalFailed concurrencySlots",
    );
    has(&c.ok("UnregisterWorker", json!({"workerId": "w1"}))["data"], "removed");
}

#[test]
fn a_job_is_shown_with_the_fields_of_its_record_wherever_it_is_shown() {
    let (mut c, queue) = (client(), queue("record"));
    c.push_with(&queue, 1, json!({"tags": ["a"], "groupId": "g"}));
    let pulled = c.pull(&queue);
    has_at_least(&pulled, "id queue data priority createdAt attempts maxAttempts progress");
    let whole = "id queue data priority createdAt runAt startedAt completedAt attempts maxAttempts \
                 backoff progress tags lifo removeOnComplete removeOnFail";
    has_at_least(&c.ok("GetJob", json!({"id": pulled["id"]}))["job"], whole);
    let listed = c.ok("GetJobs", json!({"queue": queue}))["jobs"][0].clone();
    has_at_least(&listed, &format!("{whole} state"));
    c.ok("FAIL", json!({"id": pulled["id"], "error": "no", "unrecoverable": true}));
    let dead = c.ok("Dlq", json!({"queue": queue}))["jobs"][0].clone();
    has_at_least(&dead, &format!("{whole} failedReason failedAt stacktrace"));
}

#[test]
fn every_transition_of_the_state_table_leads_where_it_says() {
    const NOT: &str = "not possible";
    let states =
        ["waiting", "delayed", "waiting-children", "active", "completed", "failed", "unknown"];
    // For each command on one job, where it leads from each of these states.
    let rows: [(&str, OfOne, [&str; 7]); 10] = [
        ("ACK", |id| json!({"id": id}), [NOT, NOT, NOT, "completed", NOT, NOT, NOT]),
        ("FAIL", |id| json!({"id": id}), [NOT, NOT, NOT, "delayed", NOT, NOT, NOT]),
        ("Cancel", |id| json!({"id": id}), ["unknown", "unknown", "unknown", NOT, NOT, NOT, NOT]),
        ("Promote", |id| json!({"id": id}), [NOT, "waiting", NOT, NOT, NOT, NOT, NOT]),
        (
            "MoveToDelayed",
            |id| json!({"id": id, "delay": 3_600_000}),
            ["delayed", "delayed", NOT, "delayed", NOT, NOT, NOT],
        ),
        (
            "Discard",
            |id| json!({"id": id}),
            ["failed", "failed", "failed", "failed", "failed", "failed", NOT],
        ),
        (
            "ChangePriority",
            |id| json!({"id": id, "priority": 1}),
            ["waiting", "delayed", NOT, NOT, NOT, NOT, NOT],
        ),
        (
            "Update",
            |id| json!({"id": id, "data": 2}),
            ["waiting", "delayed", "waiting-children", "active", NOT, NOT, NOT],
        ),
        (
            "Progress",
            |id| json!({"id": id, "progress": 1}),
            [NOT, NOT, NOT, "active", NOT, NOT, NOT],
        ),
        (
            "AddLog",
            |id| json!({"id": id, "message": "line"}),
            ["waiting", "delayed", "waiting-children", "active", "completed", "failed", NOT],
        ),
    ];
    let mut c = client();
    for (command, fields, leads) in rows {
        for (from, to) in states.into_iter().zip(leads) {
            let queue = queue("transition");
            let id = job_in(&mut c, &queue, from);
            assert_eq!(c.state(&id), from);
            let fields = fields(&id);
            if to == NOT {
                c.refused(command, fields);
                assert_eq!(c.state(&id), from, "{command} changes what it refuses");
            } else {
                c.ok(command, fields);
                assert_eq!(c.state(&id), to, "{command} from {from}");
            }
        }
    }
}

#[test]
fn every_command_on_a_queue_takes_the_states_of_the_table_and_no_others() {
    let states = ["waiting", "delayed", "waiting-children", "active", "completed", "failed"];
    let rows: [(&str, OfQueue, [&str; 6]); 6] = [
        ("Drain", |queue| json!({"queue": queue}), ["unknown", "", "", "", "", ""]),
        ("PurgeDlq", |queue| json!({"queue": queue}), ["", "", "", "", "", "unknown"]),
        ("RetryDlq", |queue| json!({"queue": queue}), ["", "", "", "", "", "waiting"]),
        ("RetryCompleted", |queue| json!({"queue": queue}), ["", "", "", "", "waiting", ""]),
        (
            "Clean",
            |queue| json!({"queue": queue, "grace": 0}),
            ["unknown", "unknown", "unknown", "", "unknown", "unknown"],
        ),
        ("Obliterate", |queue| json!({"queue": queue}), ["unknown"; 6]),
    ];
    let mut c = client();
    for (command, fields, leads) in rows {
        let queue = queue("sweep");
        // A job that is to wait is pushed last, or a pull for the others would take it.
        let jobs: Vec<_> = states.iter().zip(leads).rev().collect();
        let jobs: Vec<_> =
            jobs.into_iter().map(|(from, to)| (job_in(&mut c, &queue, from), *from, to)).collect();
        c.ok(command, fields(&queue));
        for (id, from, to) in jobs {
            let expected = if to.is_empty() { from } else { to };
            assert_eq!(c.state(&id), expected, "{command} and a job that was {from}");
        }
    }
}

#[test]
fn defaults_are_those_of_the_table_of_limits() {
    let (mut c, queue) = (client(), queue("defaults"));
    let jobs: Vec<Value> = (0..101).map(|number| json!({"data": number})).collect();
    c.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    let listed = c.ok("GetJobs", json!({"queue": queue}))["jobs"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 100);
    assert_eq!(listed[0]["data"], 0, "from the first on");
    let job = &listed[0];
    assert_eq!((&job["maxAttempts"], &job["backoff"]), (&json!(3), &json!(1000)));
    assert_eq!(
        (&job["priority"], &job["tags"], &job["lifo"]),
        (&json!(0), &json!([]), &json!(false))
    );
    let none = c.ok("PULL", json!({"queue": format!("{queue}.empty")}));
    assert_eq!(none["job"], Value::Null, "a pull does not wait unless it is told to");
}
