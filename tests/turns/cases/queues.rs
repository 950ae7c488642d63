//! Commands on a queue as a whole, and on its dead letters.

use corq::api::commands::Op;
use corq::api::limits::PULL_COUNT_MAX;
use serde_json::json;

use super::DAY_MS;
use crate::support::until;
use crate::turns::world::World;

/// Commands on a long queue.
pub(super) fn one_queue(op: Op, world: &mut World) {
    let sizes = world.sizes;
    let count = sizes.jobs;
    let queue = format!("queue-{op:?}");
    let queue = queue.as_str();
    let of_queue = json!({"queue": queue});
    match op {
        Op::GetJobs => {
            world.fill(queue, count, &json!({"data": 1}));
            let page = json!({"queue": queue, "limit": 1000, "offset": count - 1000});
            let jobs = world.ok("GetJobs", page)["jobs"].clone();
            assert_eq!(jobs.as_array().unwrap().len(), 1000);
            world.ok("GetJobs", json!({"queue": queue, "state": "failed", "asc": false}));
            for page in [json!({"order": "desc"}), json!({"state": "failed", "order": "asc"})] {
                let mut fields = json!({"queue": queue, "limit": 1000, "data": "preview"});
                fields.as_object_mut().unwrap().extend(page.as_object().unwrap().clone());
                world.ok("GetJobs", fields);
            }
        }
        Op::Search => {
            world.fill(queue, count, &json!({"data": {"text": "a needle", "n": 1}}));
            for what in [json!({"text": "no such text"}), json!({"path": "n", "value": 2})] {
                let mut fields = json!({"queue": queue, "budgetMs": 60_000});
                fields.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
                while !fields["after"].is_null() || fields.get("after").is_none() {
                    let reply = world.ok("Search", fields.clone());
                    assert_eq!(reply["jobs"], json!([]));
                    fields["after"] = reply["next"].clone();
                }
            }
        }
        Op::GetJobCounts | Op::Count => {
            world.fill(queue, count, &json!({"data": 1}));
            world.ok("GetJobCounts", of_queue.clone());
            world.ok("Count", of_queue);
        }
        Op::GetCountsPerPriority => {
            world.fill_with(queue, count, |n| json!({"data": 1, "priority": n % 1_000_001}));
            // Jobs of a group count beside the others.
            world.fill_with(queue, 2, |n| json!({"data": 1, "priority": n, "groupId": "g"}));
            let counts = world.ok("GetCountsPerPriority", of_queue)["counts"].clone();
            let shown = ["0", "1", "2"].map(|priority| counts[priority].clone());
            assert_eq!(shown, [json!(2), json!(2), json!(1)]);
            assert_eq!(counts.as_object().unwrap().len(), count.min(1_000_001));
        }
        Op::GetDeduplicationJobId | Op::RemoveDeduplicationKey => {
            // Jobs that end free their key, and hold it again when they are tried anew.
            let held = json!({"uniqueKey": "key", "dedup": {"ttl": 1}});
            for _ in 0..sizes.jobs.min(100_000) {
                let id = world.client.push_with(queue, 1, held.clone());
                world.client.pull(queue);
                world.ok("ACK", json!({"id": id}));
            }
            world.ok("RetryCompleted", of_queue);
            world.ok("GetDeduplicationJobId", json!({"queue": queue, "deduplicationId": "key"}));
            world.ok("RemoveDeduplicationKey", json!({"queue": queue, "deduplicationId": "key"}));
        }
        Op::PromoteJobs => {
            world.fill_delayed(queue, count);
            let reply = world.ok("PromoteJobs", of_queue);
            assert_eq!(reply["count"], json!(count));
        }
        Op::Pause | Op::Resume | Op::IsPaused => {
            world.ok("Pause", of_queue.clone());
            world.fill(queue, count, &json!({"data": 1}));
            world.ok("IsPaused", of_queue.clone());
            let waiting = waiters(world, queue);
            world.ok("Resume", of_queue);
            served(waiting);
        }
        Op::Drain => {
            world.fill(queue, count, &json!({"data": 1}));
            assert_eq!(world.ok("Drain", of_queue)["count"], json!(count));
        }
        Op::Obliterate => {
            world.fill_groups(queue);
            world.fill(queue, count, &json!({"data": 1}));
            world.fill_with(queue, 1000, |n| json!({"data": 1, "priority": n, "delay": 1000}));
            world.ok("Obliterate", of_queue);
        }
        Op::Clean => {
            world.fill(queue, count, &json!({"data": 1}));
            // As many as a reply has room to name.
            let limit = count.min(900_000);
            let reply = world.ok("Clean", json!({"queue": queue, "grace": 0, "limit": limit}));
            assert_eq!(reply["count"], json!(limit));
        }
        Op::RetryCompleted => {
            world.fill_completed(queue, count);
            assert_eq!(world.ok("RetryCompleted", of_queue)["count"], json!(count));
        }
        Op::RateLimit | Op::RateLimitClear => {
            world.fill(queue, count, &json!({"data": 1}));
            world.ok("RateLimit", json!({"queue": queue, "limit": 1, "duration": 86_400_000}));
            world.client.pull(queue);
            let waiting = waiters(world, queue);
            world.ok("RateLimitClear", of_queue);
            served(waiting);
        }
        Op::SetConcurrency | Op::ClearConcurrency => {
            world.fill(queue, count, &json!({"data": 1}));
            world.ok("SetConcurrency", json!({"queue": queue, "limit": 1}));
            world.client.pull(queue);
            let waiting = waiters(world, queue);
            world.ok("ClearConcurrency", of_queue);
            served(waiting);
        }
        Op::GetQueueLimits => {
            world.fill(queue, count, &json!({"data": 1}));
            world.ok("GetQueueLimits", json!({"queue": queue, "maxJobs": 100_000}));
        }
        Op::DashboardQueue => {
            world.fill_with(queue, count, |n| json!({"data": 1, "priority": n % 1_000_001}));
            world.fill_delayed(queue, 1);
            let page = json!({"queue": queue, "includeJobs": true});
            let data = world.ok("DashboardQueue", page)["data"].clone();
            assert_eq!(data["jobs"]["delayed"].as_array().unwrap().len(), 1);
        }
        Op::TrimEvents => _ = world.ok("TrimEvents", json!({"queue": queue, "maxLength": 0})),
        Op::Subscribe | Op::Unsubscribe => {
            let names: Vec<String> = (0..100).map(|n| format!("{queue}-{n}*")).collect();
            let jobs: Vec<String> = (0..100).map(|n| format!("job-{n}")).collect();
            world.ok("Subscribe", json!({"queues": names, "sample": 2, "ids": true}));
            world.ok("Subscribe", json!({"jobs": jobs, "data": false}));
            world.ok("Unsubscribe", json!({}));
        }
        _ => {
            world.ok("SubscribeEvents", of_queue);
            world.ok("UnsubscribeEvents", json!({}));
        }
    }
}

/// Connections with pulls that wait for as many jobs as they may.
fn waiters(world: &mut World, queue: &str) -> Vec<crate::support::Client> {
    let pull = json!({"queue": queue, "count": PULL_COUNT_MAX, "timeout": 60_000});
    let waiting = (0..world.sizes.jobs.min(20_000) / PULL_COUNT_MAX as usize).map(|_| {
        let mut client = world.server.client();
        client.send("PULLB", pull.clone()).unwrap();
        client
    });
    let waiting: Vec<_> = waiting.collect();
    let family = "corq_waiting_pulls ";
    until("all pulls to wait", || {
        let text = world.metrics();
        let line = text.lines().find_map(|line| line.strip_prefix(family))?;
        (line.parse::<usize>().unwrap() >= waiting.len()).then_some(())
    });
    waiting
}

/// All of them have their jobs.
fn served(waiting: Vec<crate::support::Client>) {
    for mut client in waiting {
        let reply = client.recv().unwrap();
        assert!(!reply["jobs"].as_array().unwrap().is_empty(), "{reply}");
    }
}

/// Commands on a long dead-letter queue, and rules of queues.
pub(super) fn dead_letters(op: Op, world: &mut World) {
    let count = world.sizes.jobs;
    let queue = format!("dead-{op:?}");
    let queue = queue.as_str();
    let of_queue = json!({"queue": queue});
    match op {
        Op::Dlq => {
            world.fill_failed(queue, count);
            let filter = json!({"reason": "timeout", "offset": count - 1000});
            let page = json!({"queue": queue, "count": 1000, "filter": filter});
            assert_eq!(world.ok("Dlq", page)["jobs"].as_array().unwrap().len(), 1000);
            world.ok("Dlq", json!({"queue": queue, "count": 1000}));
        }
        Op::RetryDlq => {
            world.fill_failed(queue, count);
            let filter = json!({"queue": queue, "filter": {"reason": "stalled"}});
            assert_eq!(world.ok("RetryDlq", filter)["count"], json!(0));
            assert_eq!(world.ok("RetryDlq", of_queue)["count"], json!(count));
        }
        Op::PurgeDlq => {
            world.fill_failed(queue, count);
            assert_eq!(world.ok("PurgeDlq", of_queue)["count"], json!(count));
        }
        Op::DlqGroups => {
            world.fill_failed(queue, count);
            let groups = world.ok("DlqGroups", of_queue);
            assert_eq!(
                (&groups["total"], &groups["groups"][0]["count"]),
                (&json!(count), &json!(count))
            );
            world.ok("DlqGroups", json!({}));
        }
        Op::Bulk | Op::GetTask | Op::ListTasks | Op::CancelTask => {
            world.fill_failed(queue, count);
            let filter = json!({"error": "t"});
            let fields = json!({"action": "retry", "queue": queue, "filter": filter});
            let begun = world.ok("Bulk", fields.clone())["taskId"].clone();
            let cancelled = world.ok("Bulk", fields)["taskId"].clone();
            world.ok("CancelTask", json!({"task": cancelled}));
            until("the end of a task", || {
                let task = world.ok("GetTask", json!({"task": begun}))["task"].clone();
                (task["state"] == "done").then_some(())
            });
            let waiting = world.ok("GetJobCounts", of_queue)["counts"]["waiting"].clone();
            assert_eq!(waiting, json!(count));
            let jobs = json!({"queue": queue, "limit": 1000, "order": "asc", "fields": ["id"]});
            let rows = world.ok("GetJobs", jobs)["jobs"].clone();
            let ids: Vec<_> =
                rows.as_array().unwrap().iter().map(|row| row["id"].clone()).collect();
            world.ok("Bulk", json!({"action": "remove", "ids": ids}));
            world.ok("ListTasks", json!({}));
        }
        Op::GetDlqStats => {
            world.fill_failed(queue, count);
            world.ok("GetDlqStats", of_queue);
        }
        Op::SetDlqConfig | Op::GetDlqConfig => {
            world.fill_failed(queue, count);
            let rules = [
                json!({"autoRetry": true, "autoRetryInterval": DAY_MS}),
                json!({"maxAge": DAY_MS}),
                json!({"maxEntries": 1}),
            ];
            for config in rules {
                world.ok("SetDlqConfig", json!({"queue": queue, "config": config}));
            }
            world.ok("GetDlqConfig", of_queue);
        }
        Op::SetStallConfig | Op::GetStallConfig => {
            world.fill(queue, count, &json!({"data": 1}));
            world.pull_many(queue, count.min(100_000), true);
            let config = json!({"stallInterval": DAY_MS});
            world.ok("SetStallConfig", json!({"queue": queue, "config": config}));
            world.ok("GetStallConfig", of_queue);
        }
        _ => {
            world.fill_failed(queue, 1);
            let id = world.ok("Dlq", of_queue)["jobs"][0]["id"].clone();
            world.ok("RemoveDlqJob", json!({"queue": queue, "jobId": id}));
        }
    }
}
