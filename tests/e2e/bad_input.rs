//! Wrong fields, all of them, against the real server: for every command of the table and every field
//! of it, another type, a value outside its bounds, an absurd one. The fear: a refusal that does not
//! say what is wrong, costs the connection, or has already changed something.
//!
//! What must be refused in which words follows from the table; a few texts are written out below, so
//! that the table's own words cannot change in silence.

use corq::api::commands::{COMMANDS, CommandSpec, FieldSpec, Kind, Op};
use corq::api::error::Error;
use corq::protocol::decode::beginning::{LONG_BYTES, too_long};
use corq::protocol::decode::decode;
use corq::protocol::decode::repair::repaired;
use rmpv::Value;
use serde_json::{Value as Json, json};

use crate::e2e::bad_values::{Bytes, object, pack, right, wrong};
use crate::support::{Client, Server, Start, until};

/// Where webhooks point to: nobody listens there.
const RECEIVER: &str = "http://127.0.0.1:1/";

/// A day, so that nothing ends by itself while the test looks.
const LONG_MS: u64 = 86_400_000;

/// A job in every state, a schedule and a worker: commands would change them if they were carried out.
struct Witness {
    active: String,
    token: String,
    waiting: String,
    delayed: String,
    webhook: String,
}

impl Witness {
    fn call(client: &mut Client) -> Self {
        let push = |client: &mut Client, options| client.push_with("witness", 1, options);
        let completed = push(client, json!({"priority": 9}));
        let id = client.pull("witness")["id"].clone();
        assert_eq!(id, completed.as_str());
        client.ok("ACK", json!({"id": id, "result": "done"}));
        let failed = push(client, json!({"priority": 9, "maxAttempts": 1}));
        client.pull("witness");
        client.ok("FAIL", json!({"id": failed, "error": "no"}));
        push(client, json!({"priority": 9, "tags": ["a"], "groupId": "g", "uniqueKey": "k"}));
        let (job, token) = client.pull_owned("witness", LONG_MS);
        let active = job["id"].as_str().unwrap().to_owned();
        client.ok("Progress", json!({"id": active, "progress": 10, "message": "begun"}));
        client.ok("AddLog", json!({"id": active, "message": "line"}));
        let waiting = push(client, json!({"jobId": "waits"}));
        let delayed = push(client, json!({"delay": LONG_MS}));
        push(client, json!({"dependsOn": [waiting]}));
        let cron =
            json!({"name": "witness", "queue": "witness", "data": 1, "repeatEvery": LONG_MS});
        client.ok("Cron", cron);
        let worker = json!({"name": "worker", "queues": ["witness"], "workerId": "witness"});
        client.ok("RegisterWorker", worker);
        client.ok("RateLimit", json!({"queue": "witness", "limit": 1000}));
        // Of a queue where nothing happens, so that nothing but commands changes what is listed of it.
        let webhook = json!({"url": RECEIVER, "events": ["job.failed"], "queue": "nowhere"});
        let webhook = client.ok("AddWebhook", webhook)["data"]["webhookId"].clone();
        let webhook = webhook.as_str().unwrap().to_owned();
        Self { active, token, waiting, delayed, webhook }
    }

    /// Everything that a client can see of the server, but for what time changes.
    fn seen(&self, client: &mut Client) -> Vec<Json> {
        // Or it would be gone after a while of silence.
        client.ok("Heartbeat", json!({"id": "witness"}));
        let queue = json!({"queue": "witness"});
        let mut seen = Vec::new();
        for command in ["GetJobs", "GetJobCounts", "GetCountsPerPriority", "Count", "Dlq"] {
            seen.push(client.ok(command, queue.clone()));
        }
        seen.push(client.ok("IsPaused", queue));
        for id in [&self.active, &self.waiting, &self.delayed] {
            for command in ["GetJob", "GetProgress", "GetResult", "GetLogs"] {
                seen.push(client.ok(command, json!({"id": id})));
            }
        }
        for command in ["ListQueues", "CronList", "ListWebhooks", "ListWorkers"] {
            seen.push(client.ok(command, json!({})));
        }
        for answer in &mut seen {
            answer.as_object_mut().unwrap().remove("reqId");
            for worker in answer["data"]["workers"].as_array_mut().into_iter().flatten() {
                for of_time in ["lastSeen", "uptime"] {
                    worker.as_object_mut().unwrap().remove(of_time);
                }
            }
        }
        let stats = client.ok("Stats", json!({}));
        let counts = ["queued", "processing", "delayed", "dlq", "completed"];
        seen.push(json!(counts.map(|count| stats["stats"][count].clone())));
        let metrics = client.ok("Metrics", json!({}));
        let totals = ["totalPushed", "totalPulled", "totalCompleted", "totalFailed"];
        seen.push(json!(totals.map(|total| metrics["metrics"][total].clone())));
        seen
    }

    /// Fields with which a command would be carried out.
    fn fields(&self, spec: &CommandSpec) -> Vec<(&'static str, Bytes)> {
        let text = |text: &str| pack(&text.into());
        let id = match spec.op {
            Op::Cancel | Op::ChangePriority => &self.waiting,
            Op::Promote => &self.delayed,
            _ => &self.active,
        };
        let value = |field: &FieldSpec| match (spec.op, field.name, &field.kind) {
            (Op::RemoveWebhook, ..) | (Op::SetWebhookEnabled, "id", _) => text(&self.webhook),
            (Op::Heartbeat, ..) | (_, "queue" | "name" | "workerId", _) => text("witness"),
            (Op::GetJobByCustomId, ..) => text("waits"),
            (Op::AddWebhook, "url", _) => text(RECEIVER),
            (_, _, Kind::JobId) => text(id),
            (_, _, Kind::Token) => text(&self.token),
            (_, _, Kind::JobIds) => pack(&Value::Array(vec![id.as_str().into()])),
            (_, _, Kind::Tokens) => pack(&Value::Array(vec![self.token.as_str().into()])),
            (_, _, Kind::Payload { .. }) => pack(&7.into()),
            (_, _, Kind::Jobs) => {
                pack(&Value::Array(vec![Value::Map(vec![("data".into(), 7.into())])]))
            }
            (Op::Cron, "repeatEvery", _) => pack(&LONG_MS.into()),
            (_, _, Kind::Integer { min, max }) => pack(&(*min + 1).min(*max).into()),
            _ => right(field).swap_remove(0),
        };
        let also = ["token", "tokens", "repeatEvery"];
        let fields = spec.fields.iter().filter(|it| it.required || also.contains(&it.name));
        fields.map(|field| (field.name, value(field))).collect()
    }
}

/// Gives a command whose fields are bytes already.
fn give(client: &mut Client, name: &str, fields: &[(&str, Bytes)]) -> Json {
    let mut entries = vec![("cmd", pack(&name.into())), ("reqId", pack(&name.into()))];
    entries.extend(fields.iter().cloned());
    let body = object(&entries);
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend(body);
    client.send_bytes(&frame).unwrap();
    loop {
        let reply = client.recv().unwrap_or_else(|error| panic!("{name}: {error}"));
        // Samples of a Watch come between replies.
        if reply["type"] != "watch" {
            assert_eq!(reply["reqId"], name, "{reply}");
            return reply;
        }
    }
}

fn with(
    fields: &[(&'static str, Bytes)],
    name: &'static str,
    value: Bytes,
) -> Vec<(&'static str, Bytes)> {
    let mut fields = fields.to_vec();
    fields.retain(|(other, _)| *other != name);
    fields.push((name, value));
    fields
}

/// The refusal that a wrong command gets: its complaint, or what is wrong still once its texts are repaired, if
/// anything.
fn said(spec: &CommandSpec, fields: &[(&'static str, Bytes)], complaint: Error) -> Option<Error> {
    let mut entries = vec![("cmd", pack(&spec.name.into()))];
    entries.extend(fields.iter().cloned());
    match repaired(&object(&entries)) {
        Some(frame) => decode(&frame).err().map(|refused| refused.error),
        None => Some(complaint),
    }
}

fn shown(value: &Bytes) -> String {
    format!("{:x?} ({} bytes)", &value[..value.len().min(40)], value.len())
}

#[test]
fn every_wrong_field_of_every_command_is_refused_by_name_and_changes_nothing() {
    let server = Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true").start();
    let mut client = server.client().speaking(2);
    let witness = Witness::call(&mut client);
    let before = witness.seen(&mut client);
    let mut cases = 0;
    for spec in COMMANDS {
        let fields = witness.fields(spec);
        for field in spec.fields {
            let mut judge = |fields: &[(&'static str, Bytes)], complaint: &Error, value: &str| {
                let reply = give(&mut client, spec.name, fields);
                // A command that is longer than any of its kind is refused for that, whatever is in it.
                let bytes: usize =
                    fields.iter().map(|(name, value)| name.len() + value.len()).sum();
                let long = bytes > spec.bytes_max.max(LONG_BYTES);
                let too_long = too_long(spec, spec.bytes_max);
                let complaint = if long { &too_long } else { complaint };
                let expected = json!({ "ok": false, "error": complaint.text(), "code": complaint.code().name(), "reqId": spec.name });
                assert_eq!(reply, expected, "{} with {} = {value}", spec.name, field.name);
                cases += 1;
            };
            for case in wrong(field, "") {
                let value = shown(&case.value);
                let given = with(&fields, field.name, case.value);
                if let Some(complaint) = said(spec, &given, case.complaint) {
                    judge(&given, &complaint, &value);
                }
            }
            let one = fields.iter().find(|(name, _)| *name == field.name);
            let value = one.map_or_else(|| right(field).swap_remove(0), |(_, value)| value.clone());
            if field.required {
                let rest: Vec<_> = fields.iter().filter(|it| it.0 != field.name).cloned().collect();
                judge(&rest, &field.missing(), "nothing");
            }
            let mut twice = with(&fields, field.name, value.clone());
            twice.push((field.name, value));
            if !right_is_absent(field) {
                judge(&twice, &field.repeated(), "the same, twice");
            }
        }
        assert_eq!(witness.seen(&mut client), before, "{} has changed something", spec.name);
    }
    assert!(cases > 2500, "{cases} cases");
}

/// Whether the first of the right values counts as absent, so that a second one may follow.
fn right_is_absent(field: &FieldSpec) -> bool {
    let is_list = matches!(field.kind, Kind::Texts { .. } | Kind::Choices(_));
    // The first of a filter is an empty list of states, which is refused before anything follows.
    !field.required && (is_list || matches!(field.kind, Kind::BulkFilter))
}

#[test]
fn every_value_just_inside_the_bounds_is_taken() {
    let server = Start::new().memory().env("WEBHOOK_ALLOW_PRIVATE", "true").start();
    let mut client = server.client();
    let witness = Witness::call(&mut client);
    for spec in COMMANDS {
        let fields = witness.fields(spec);
        for field in spec.fields {
            for value in right(field) {
                if matches!(spec.op, Op::Pull | Op::PullBatch) {
                    // With nothing there, the longest wait would be waited for.
                    client.push("witness", 1);
                    client.ok("RateLimitClear", json!({"queue": "witness"}));
                    client.ok("ClearConcurrency", json!({"queue": "witness"}));
                }
                let value_shown = shown(&value);
                let mut fields = with(&fields, field.name, value);
                if spec.op == Op::Cron && field.name == "schedule" {
                    fields.retain(|(name, _)| *name != "repeatEvery");
                }
                // Figures that are watched come between the replies for as long as the connection stays.
                let mut viewer = (spec.op == Op::Watch).then(|| server.client());
                let reply = give(viewer.as_mut().unwrap_or(&mut client), spec.name, &fields);
                assert!(
                    is_taken(spec, field, &reply),
                    "{} with {} = {value_shown} answered {reply}",
                    spec.name,
                    field.name
                );
                if let Some(id) = reply["data"]["webhookId"].as_str() {
                    // The webhook goes, so that nothing is posted to it.
                    let id = pack(&id.into());
                    assert_eq!(
                        give(&mut client, "RemoveWebhook", &[("webhookId", id)])["ok"],
                        true
                    );
                }
                if spec.op == Op::Cron && reply["ok"] == true {
                    let name = fields.iter().find(|(name, _)| *name == "name").unwrap().clone();
                    assert_eq!(give(&mut client, "CronDelete", &[name])["ok"], true);
                }
            }
        }
        // The next command is not to be about megabytes that this one has pushed.
        client.ok("Obliterate", json!({"queue": "witness"}));
    }
}

/// Whether a command came past the checks of its fields. That there is no such job is another matter.
fn is_taken(spec: &CommandSpec, field: &FieldSpec, reply: &Json) -> bool {
    let Some(error) = reply["error"].as_str() else { return reply["ok"] == true };
    let about_the_world: &[&str] = match spec.op {
        Op::CronDelete | Op::CronGet | Op::CronTrigger | Op::SetCronEnabled => &["Cron not found"],
        Op::CronPreview => &[
            "Cron not found",
            "schedule or repeatEvery is required",
            "schedule and repeatEvery must not both be given",
            "name must not be given with",
        ],
        Op::GetGroups => &["Group not found"],
        Op::GetJobs => &["offset must not be given with after"],
        Op::Search => &["path is required with value"],
        Op::Bulk => &[
            "ids or filter is required",
            "queue is required with filter",
            "delay is required",
            "priority is required",
            "filter.path is required",
            "ids must not be empty",
            "filter.state must not be empty",
            "Too many tasks are running",
        ],
        Op::GetTask | Op::CancelTask => &["Task not found"],
        Op::Heatmap => &["shard must be between 0 and 1"],
        Op::Heartbeat | Op::UnregisterWorker => &["Worker not found"],
        Op::RemoveWebhook | Op::SetWebhookEnabled | Op::TestWebhook | Op::WebhookDeliveries => {
            &["Webhook not found"]
        }
        Op::ExtendLocks => &["durations must have the same length as ids"],
        Op::Push | Op::PushBatch => &["Dependency job not found"],
        Op::PushFlow => &["Flow job"],
        Op::UpdateParent => &["Child job", "Parent job", "A job cannot"],
        Op::RemoveChildDependency => &["Job "],
        Op::Cron | Op::AddWebhook => &[],
        _ => &["Job not found", "Lock token required", "Invalid or expired lock token"],
    };
    // The meaning of these texts is checked behind the table.
    let has_meaning = match spec.op {
        Op::Cron | Op::CronPreview => ["schedule", "timezone"].contains(&field.name),
        Op::AddWebhook => field.name == "url",
        Op::Subscribe => ["queues", "events", "lastEventId"].contains(&field.name),
        Op::Prometheus => field.name == "queues",
        Op::GetJobs | Op::Search | Op::ListQueues => field.name == "after",
        Op::Push => field.name == "repeat",
        _ => false,
    };
    let in_its_words =
        || *error != *field.out_of_bounds().text() && *error != *field.wrong_type().text();
    about_the_world.iter().any(|known| error.starts_with(known))
        || has_meaning && error.starts_with(field.name) && in_its_words()
}

#[test]
fn refusals_say_field_and_bound_in_these_words() {
    let server = Server::start_default();
    let mut client = server.client().speaking(2);
    let id = client.push("q", 1);
    for (command, fields, text) in [
        ("PUSH", json!({"queue": "q"}), "data is required"),
        (
            "PUSH",
            json!({"queue": "a b", "data": 1}),
            "queue must be 1 to 256 characters: letters, digits, _ - . :",
        ),
        (
            "PUSH",
            json!({"queue": "q", "data": 1, "priority": 1_000_001}),
            "priority must be between -1000000 and 1000000",
        ),
        ("PUSH", json!({"queue": "q", "data": 1, "lifo": 1}), "lifo must be a boolean"),
        (
            "PUSH",
            json!({"queue": "q", "data": 1, "uniqueKey": ""}),
            "uniqueKey must be between 1 and 256 characters",
        ),
        (
            "PUSH",
            json!({"queue": "q", "data": 1, "tags": ["a", 5]}),
            "tags[1] must be a string of 1 to 256 characters",
        ),
        (
            "PUSH",
            json!({"queue": "q", "data": 1, "backoff": {"delay": -1}}),
            "backoff.delay must be between 0 and 86400000",
        ),
        (
            "PUSH",
            json!({"queue": "q", "data": 1, "repeat": {"every": 0}}),
            "repeat.every must be between 1 and 9007199254740991",
        ),
        (
            "PUSHB",
            json!({"queue": "q", "jobs": [{"data": 1}, {"data": 1, "maxAttempts": 0}]}),
            "jobs[1]: maxAttempts must be between 1 and 1000",
        ),
        ("PULLB", json!({"queue": "q", "count": 1001}), "count must be between 1 and 1000"),
        ("PULL", json!({"queue": "q", "timeout": 0.5}), "timeout must be an integer"),
        ("ACKB", json!({"ids": [""]}), "ids[0] must be a string of 1 to 256 characters"),
        ("Progress", json!({"id": id, "progress": 100.5}), "progress must be between 0 and 100"),
        ("Progress", json!({"id": id, "progress": "half"}), "progress must be a number"),
        (
            "AddLog",
            json!({"id": id, "message": "m", "level": "fatal"}),
            "level must be one of info, warn, error",
        ),
        (
            "AddLog",
            json!({"id": id, "message": "m".repeat(65_537)}),
            "message must be at most 64 KB",
        ),
        ("PUSH", json!({"queue": "q", "data": "x".repeat(10 << 20)}), "data must be at most 10 MB"),
        (
            "GetJobs",
            json!({"queue": "q", "state": "lost"}),
            "state must be one of waiting, delayed, active, completed, failed, waiting-children, prioritized, paused, wait",
        ),
    ] {
        assert_eq!(client.refused(command, fields), text);
    }
    assert_eq!(client.counted("q", "waiting"), 1);
}

#[test]
fn a_refusal_costs_no_memory_that_stays() {
    let server = Start::new().memory().env("SHARDS", 1).start();
    let mut client = server.client().speaking(2);
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/statm", server.pid())).unwrap();
        status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
    };
    let huge = [("queue", pack(&"q".into())), ("data", pack(&"x".repeat(11 << 20).into()))];
    let mut refuse = || {
        assert_eq!(give(&mut client, "PUSH", &huge)["error"], "data must be at most 10 MB");
    };
    refuse();
    let before = resident();
    (0..20).for_each(|_| refuse());
    until("the memory is given back", || (resident() < before + (30 << 10)).then_some(()));
}
