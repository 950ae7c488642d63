//! Everything deliverable is delivered: whatever holds jobs back is taken away, then a worker works
//! until nothing is left, and nothing is left behind: no lease, no key, no id of a job that is gone.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::support::Client;
use crate::torture::audit::list;
use crate::torture::commands::{CUSTOM_IDS, KEYS, QUEUES};
use crate::torture::face::Door;

/// How long a step may take in which nothing changes. All times that commands set are shorter.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// How long all of it may take, whatever moves.
const WHOLE: Duration = Duration::from_mins(15);

const PENDING: [&str; 5] = ["waiting", "delayed", "active", "failed", "waiting-children"];

/// Takes away what holds jobs back; leaves `forgotten` (the name of a command) out.
pub(crate) fn release(client: &mut Client, forgotten: &str) {
    let mut call = |cmd: &str, fields: Json| {
        if cmd != forgotten {
            client.ok(cmd, fields);
        }
    };
    for queue in QUEUES {
        let about = json!({"queue": queue});
        for cmd in ["Resume", "RateLimitClear", "ClearConcurrency"] {
            call(cmd, about.clone());
        }
        let rules = json!({"autoRetry": false, "maxAge": null, "maxEntries": null});
        call("SetDlqConfig", json!({"queue": queue, "config": rules}));
        let rules = json!({"enabled": true, "stallInterval": 30_000, "maxStalls": 3});
        call("SetStallConfig", json!({"queue": queue, "config": rules}));
    }
    for cron in client.ok("CronList", json!({}))["crons"].as_array().into_iter().flatten() {
        // The schedule may have ended by itself.
        client.call("CronDelete", json!({"name": cron["name"]}));
    }
    for queue in QUEUES {
        let groups = client.ok("GetGroups", json!({"queue": queue, "limit": 1000}));
        for group in groups["groups"].as_array().into_iter().flatten() {
            let about = json!({"queue": queue, "groupId": group["id"]});
            for cmd in ["ResumeGroup", "RemoveGroupRateLimit", "RemoveGroupConcurrency"] {
                client.ok(cmd, about.clone());
            }
        }
    }
    for hook in
        client.ok("ListWebhooks", json!({}))["data"]["webhooks"].as_array().into_iter().flatten()
    {
        client.ok("RemoveWebhook", json!({"webhookId": hook["id"]}));
    }
}

/// Works until nothing is left to do.
pub(crate) fn work_off(client: &mut Client, patience: Duration) -> Result<(), String> {
    let begun = Instant::now();
    let mut last = (begun, Vec::new());
    loop {
        let mut worked = 0;
        for queue in QUEUES {
            client.ok("RetryDlq", json!({"queue": queue}));
            client.ok("PromoteJobs", json!({"queue": queue}));
            worked += work(client, queue);
        }
        let left = left(client);
        if left.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > WHOLE {
            return Err(format!("jobs come back for ever: {}", json!(left)));
        }
        if worked > 0 || left != last.1 {
            last = (Instant::now(), left);
        } else if !untie(client, &last.1)? {
            let waited = last.0.elapsed();
            if waited > patience {
                return Err(format!("not delivered after {waited:?}: {}", json!(last.1)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Pulls and completes all that a queue gives.
fn work(client: &mut Client, queue: &str) -> usize {
    let mut worked = 0;
    loop {
        let fields = json!({"queue": queue, "count": 1000, "owner": "last", "lockTtl": 60_000});
        let reply = client.ok("PULLB", fields);
        let jobs = reply["jobs"].as_array().cloned().unwrap_or_default();
        if jobs.is_empty() {
            return worked;
        }
        worked += jobs.len();
        for (job, token) in jobs.iter().zip(reply["tokens"].as_array().into_iter().flatten()) {
            // The lock of a job may have run out.
            client.call("ACK", json!({"id": job["id"], "token": token}));
        }
    }
}

/// Jobs that are not completed, as id and state.
fn left(client: &mut Client) -> Vec<Json> {
    let mut left = Vec::new();
    for queue in QUEUES {
        let counts = client.ok("GetJobCounts", json!({"queue": queue}))["counts"].clone();
        if PENDING.iter().all(|state| counts[*state] == 0) {
            continue;
        }
        for job in list(client, queue, &json!(PENDING)) {
            left.push(json!([queue, job["id"], job["state"]]));
        }
    }
    left
}

/// Lets go of one job of each circle. A job that waits for nothing that is still to come is stuck, which
/// is an error.
fn untie(client: &mut Client, left: &[Json]) -> Result<bool, String> {
    if left.is_empty() || left.iter().any(|one| one[2] != "waiting-children") {
        return Ok(false);
    }
    let unfinished: HashSet<String> = left.iter().map(|one| one[1].to_string()).collect();
    for one in left {
        let reply = client.call("GetJob", json!({"id": one[1]}));
        let job = &reply["job"];
        let named = ["dependsOn", "childrenIds"].map(|field| job[field].as_array());
        let mut named = named.into_iter().flatten().flatten();
        if job["state"] == "waiting-children"
            && !named.any(|id| unfinished.contains(&id.to_string()))
        {
            return Err(format!("waits for nothing that is unfinished: {job}"));
        }
    }
    // A circle of parents is cut where one of them became a child. Another one that is retried waits again.
    let mut cut =
        |one: &Json| client.call("RemoveChildDependency", json!({"id": one[1]}))["removed"] == true;
    if !left.iter().any(&mut cut) {
        client.call("Discard", json!({"id": left[0][1]}));
    }
    Ok(true)
}

/// Nothing is left of jobs that are gone, and every name can be given again.
pub(crate) fn nothing_is_held(door: &Door, client: &mut Client) -> Result<(), String> {
    for queue in QUEUES {
        for key in KEYS {
            let about = json!({"queue": queue, "deduplicationId": key});
            no_more(
                || match &client.ok("GetDeduplicationJobId", about.clone())["data"]["jobId"] {
                    Json::Null => Ok(()),
                    holder => Err(format!("{key} of {queue} is still held by {holder}")),
                },
            )?;
        }
    }
    for queue in QUEUES {
        client.ok("Obliterate", json!({"queue": queue}));
    }
    let tag = std::process::id();
    for queue in QUEUES {
        for key in KEYS {
            let data = json!({"last": tag});
            push_anew(client, &json!({"queue": queue, "uniqueKey": key, "data": data}), "key")?;
        }
    }
    for id in CUSTOM_IDS {
        push_anew(client, &json!({"queue": QUEUES[0], "jobId": id, "data": {"last": tag}}), "id")?;
    }
    work_off(client, PATIENCE)?;
    for queue in QUEUES {
        client.ok("Obliterate", json!({"queue": queue}));
    }
    no_more(|| figures(door))
}

/// Waits until there is no more to say against it.
fn no_more(mut objection: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let start = Instant::now();
    loop {
        match objection() {
            Ok(()) => return Ok(()),
            Err(text) if start.elapsed() > PATIENCE => return Err(text),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A push whose name is free makes a job of its own.
fn push_anew(client: &mut Client, fields: &Json, what: &str) -> Result<(), String> {
    let queue = fields["queue"].as_str().unwrap_or_default().to_owned();
    let before = client.counted(&queue, "waiting");
    let reply = client.ok("PUSH", fields.clone());
    let after = client.counted(&queue, "waiting");
    if after == before + 1 {
        return Ok(());
    }
    Err(format!("the {what} of {fields} is held by {}", reply["id"]))
}

/// Checks by the counts of `/heapstats` that nothing is left behind.
fn figures(door: &Door) -> Result<(), String> {
    let answer = crate::support::get(door.http, "/heapstats").ok_or("no /heapstats")?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let json: Json = serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))?;
    for kind in json["topObjectTypes"].as_array().into_iter().flatten() {
        let name = kind["type"].as_str().unwrap_or_default();
        let most = match name {
            "Job" | "Lease" | "Timer" | "WaitingPull" | "UniqueKey" | "Cron"
            | "DependencyWatch" | "CustomId" | "EventStream" | "ParkedCommand" => 0,
            // The question itself.
            "CommandInSteps" => 1,
            _ => continue,
        };
        if kind["count"].as_u64() > Some(most) {
            return Err(format!("{kind} are left behind"));
        }
    }
    Ok(())
}
