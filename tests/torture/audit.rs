//! Compares a server at rest with itself: every figure that counts jobs against every list that names them.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value as Json, json};

use crate::support::Client;
use crate::torture::commands::QUEUES;

const PAGE: usize = 1000;

/// Every job of every queue in full, if all figures agree with the lists, in both versions of the protocol; else what
/// does not. While time goes on they may disagree for a moment. The client speaks version 2 afterwards.
pub(crate) fn agree(client: &mut Client) -> Result<Vec<Json>, String> {
    speak(client, 2);
    let all = agree_in_version_2(client)?;
    speak(client, 3);
    let same = QUEUES.into_iter().try_for_each(|queue| {
        let of_queue = all.iter().filter(|job| job["queue"] == queue);
        same_in_version_3(client, queue, &of_queue.collect::<Vec<_>>())
    });
    speak(client, 2);
    same.map(|()| all)
}

fn speak(client: &mut Client, version: u64) {
    client.ok("Hello", json!({"protocolVersion": version}));
}

fn agree_in_version_2(client: &mut Client) -> Result<Vec<Json>, String> {
    let mut all = Vec::new();
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for queue in QUEUES {
        let jobs = list(client, queue, &Json::Null);
        let mut counts = client.ok("GetJobCounts", json!({"queue": queue}))["counts"].clone();
        // These are among the ones that wait.
        for word in ["prioritized", "paused"] {
            let count = counts.as_object_mut().and_then(|counts| counts.remove(word));
            let listed = list(client, queue, &json!(word)).len();
            differs(&format!("{queue}: {word}"), count.unwrap_or_default(), listed)?;
        }
        same_counts(client, queue, &jobs, &counts)?;
        for (state, count) in counts.as_object().into_iter().flatten() {
            *sums.entry(state.clone()).or_default() += count.as_u64().unwrap_or_default();
        }
        all.extend(jobs);
    }
    no_job_twice(&all)?;
    same_sums(client, &sums)?;
    same_state(client, &all)?;
    Ok(all)
}

/// All jobs of a queue in these states.
pub(crate) fn list(client: &mut Client, queue: &str, state: &Json) -> Vec<Json> {
    let mut jobs = Vec::new();
    loop {
        let fields = json!({"queue": queue, "state": state, "offset": jobs.len(), "limit": PAGE});
        let page = client.ok("GetJobs", fields)["jobs"].as_array().cloned().unwrap_or_default();
        let is_last = page.len() < PAGE;
        jobs.extend(page);
        if is_last {
            return jobs;
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // Numbers of any kind, and those of answers.
fn differs(what: &str, one: impl ToString, other: impl ToString) -> Result<(), String> {
    let (one, other) = (one.to_string(), other.to_string());
    if one == other { Ok(()) } else { Err(format!("{what}: {one} and {other}")) }
}

fn same_counts(
    client: &mut Client,
    queue: &str,
    jobs: &[Json],
    counts: &Json,
) -> Result<(), String> {
    let about = json!({"queue": queue});
    let of_state = |state: &str| jobs.iter().filter(|job| job["state"] == state).count() as u64;
    let mut sum = 0;
    for (state, count) in counts.as_object().into_iter().flatten() {
        let count = count.as_u64().unwrap_or_default();
        sum += count;
        differs(&format!("{queue}: {state}, counted and listed"), count, of_state(state))?;
        let listed = list(client, queue, &json!(state)).len();
        differs(&format!("{queue}: {state}, counted and listed alone"), count, listed)?;
    }
    differs(&format!("{queue}: sum of counts and list"), sum, jobs.len())?;
    let count = client.ok("Count", about.clone())["count"].clone();
    differs(&format!("{queue}: sum of counts and Count"), sum, count)?;
    let by_priority = client.ok("GetCountsPerPriority", about.clone())["counts"].clone();
    let waiting: u64 =
        by_priority.as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
    differs(&format!("{queue}: waiting by priority"), waiting, counts["waiting"].clone())?;
    same_groups(client, queue, jobs)?;
    let failed = client.ok("GetDlqStats", about)["data"]["stats"]["total"].clone();
    differs(&format!("{queue}: GetDlqStats and failed"), failed, counts["failed"].clone())?;
    let known = client.ok("ListQueues", json!({}))["queues"].clone();
    let row = known.as_array().into_iter().flatten().find(|row| row["name"] == queue);
    for state in ["waiting", "delayed", "active"] {
        let listed = row.map_or(json!(0), |row| row[state].clone());
        differs(&format!("{queue}: {state} of ListQueues"), listed, counts[state].clone())?;
    }
    Ok(())
}

/// The figures of a queue as version 3 has them, where they differ, beside these jobs.
pub(crate) fn same_in_version_3(
    client: &mut Client,
    queue: &str,
    jobs: &[&Json],
) -> Result<(), String> {
    let about = json!({"queue": queue});
    let of_state = |state: &str| jobs.iter().filter(|job| job["state"] == state).count() as u64;
    let (waiting, delayed) = (of_state("waiting"), of_state("delayed"));
    let differs = |what: &str, one: u64, other: u64| {
        differs(&format!("{queue}, version 3: {what}"), one, other)
    };
    let counts = client.ok("GetJobCounts", about.clone())["counts"].clone();
    let counted = |state: &str| counts[state].as_u64().unwrap_or_default();
    // Each that waits is one of these.
    let all_waiting = counted("waiting") + counted("prioritized") + counted("paused");
    differs("waiting", all_waiting, waiting)?;
    for state in ["delayed", "active", "completed", "failed", "waiting-children"] {
        differs(state, counted(state), of_state(state))?;
    }
    let count = client.ok("Count", about.clone())["count"].as_u64().unwrap_or_default();
    differs("Count", count, waiting + delayed)?;
    let by_priority = client.ok("GetCountsPerPriority", about)["counts"].clone();
    let by_priority = by_priority.as_object().into_iter().flatten();
    let by_priority = by_priority.filter_map(|(_, count)| count.as_u64()).sum();
    differs("GetCountsPerPriority", by_priority, waiting + delayed)?;
    differs("GetJobs", list(client, queue, &Json::Null).len() as u64, jobs.len() as u64)?;
    let known = client.ok("ListQueues", json!({}))["queues"].clone();
    let is_named = known.as_array().into_iter().flatten().any(|name| name == queue);
    if is_named || jobs.is_empty() {
        return Ok(());
    }
    Err(format!("{queue}, version 3: ListQueues has {known} without it"))
}

fn same_groups(client: &mut Client, queue: &str, jobs: &[Json]) -> Result<(), String> {
    let pending = ["waiting", "delayed"];
    let is_pending = |job: &&Json| pending.iter().any(|state| job["state"] == *state);
    let mut waiting: HashMap<&str, u64> = HashMap::new();
    let mut active: HashMap<&str, u64> = HashMap::new();
    for job in jobs {
        let Some(group) = job["groupId"].as_str() else { continue };
        *waiting.entry(group).or_default() += u64::from(is_pending(&job));
        *active.entry(group).or_default() += u64::from(job["state"] == "active");
    }
    let all = client.ok("GetGroupsJobsCount", json!({"queue": queue}))["data"]["count"].clone();
    differs(&format!("{queue}: jobs of groups"), waiting.values().sum::<u64>(), all)?;
    let groups = client.ok("GetGroups", json!({"queue": queue, "limit": 1000}))["groups"].clone();
    let groups = groups.as_array().cloned().unwrap_or_default();
    for (group, count) in &waiting {
        let row = groups.iter().find(|row| row["id"] == *group);
        let shown = row.map_or((json!("no"), json!("row")), |row| {
            (row["count"].clone(), row["active"].clone())
        });
        differs(&format!("{queue}: jobs of {group}"), count, shown.0)?;
        differs(&format!("{queue}: active jobs of {group}"), active[group], shown.1)?;
    }
    for row in &groups {
        let count =
            waiting.get(row["id"].as_str().unwrap_or_default()).copied().unwrap_or_default();
        differs(&format!("{queue}: group {}", row["id"]), count, row["count"].clone())?;
    }
    Ok(())
}

fn no_job_twice(jobs: &[Json]) -> Result<(), String> {
    let mut seen = HashMap::new();
    match jobs.iter().find_map(|job| Some((seen.insert(job["id"].to_string(), job)?, job))) {
        Some((first, second)) => Err(format!(
            "{} is listed twice: {}; {}: {first} {second}",
            second["id"],
            brief(first),
            brief(second)
        )),
        None => Ok(()),
    }
}

/// Tells jobs of one id apart.
fn brief(job: &Json) -> String {
    let (number, queue, state) = (&job["data"]["number"], &job["queue"], &job["state"]);
    format!("number {number} in {queue}, {state}, created at {}", job["createdAt"])
}

fn same_sums(client: &mut Client, sums: &BTreeMap<String, u64>) -> Result<(), String> {
    let stats = client.ok("Stats", json!({}))["stats"].clone();
    for (figure, state) in [
        ("queued", "waiting"),
        ("processing", "active"),
        ("delayed", "delayed"),
        ("dlq", "failed"),
        ("completed", "completed"),
        ("waitingChildren", "waiting-children"),
    ] {
        let sum = sums.get(state).copied().unwrap_or_default();
        differs(&format!("Stats: {figure}"), stats[figure].clone(), sum)?;
    }
    Ok(())
}

/// The job by itself is what the list says of it.
fn same_state(client: &mut Client, jobs: &[Json]) -> Result<(), String> {
    for job in jobs.iter().step_by(1 + jobs.len() / 40) {
        let state = client.ok("GetState", json!({"id": job["id"]}))["state"].clone();
        differs(&format!("state of {}", job["id"]), state, job["state"].clone())?;
        if job["state"] == "completed" {
            continue;
        }
        if let Some(key) = job["uniqueKey"].as_str() {
            let fields = json!({"queue": job["queue"], "deduplicationId": key});
            let holder = client.ok("GetDeduplicationJobId", fields)["data"]["jobId"].clone();
            if let Some(holder) = holder.as_str() {
                let state = client.ok("GetState", json!({"id": holder}))["state"].clone();
                if state == "unknown" {
                    return Err(format!("{key} is held by {holder}, which is gone"));
                }
            }
        }
    }
    Ok(())
}
