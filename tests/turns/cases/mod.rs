//! A case for every command: what it is about is as large as it can be. The `match` names all of them, so that a
//! new command does not compile without one.

mod queues;

use corq::api::commands::Op;
use corq::api::limits::{LIST_MAX, LISTING_MAX, PULL_COUNT_MAX};
use serde_json::{Value, json};

use crate::support::until;
use crate::turns::world::World;
use queues::{dead_letters, one_queue};

/// Most lines that are kept of a job's log.
const LOG_LINES: usize = 100;

const DAY_MS: u64 = 86_400_000;

/// Plays the case of a command, to the end of all that it brings about.
pub(crate) fn play(op: Op, world: &mut World) {
    let sizes = world.sizes;
    match op {
        Op::Push
        | Op::Ack
        | Op::Pull
        | Op::PushBatch
        | Op::PullBatch
        | Op::AckBatch
        | Op::Fail
        | Op::JobHeartbeat
        | Op::JobHeartbeatBatch
        | Op::ExtendLock
        | Op::ExtendLocks
        | Op::PushFlow => ways_of_jobs(op, world),
        Op::Progress
        | Op::AddLog
        | Op::GetJob
        | Op::GetState
        | Op::Explain
        | Op::GetJobDetail
        | Op::GetResult
        | Op::GetProgress
        | Op::GetLogs
        | Op::GetJobByCustomId
        | Op::WaitJob
        | Op::Cancel
        | Op::Update
        | Op::ChangePriority
        | Op::Promote
        | Op::MoveToDelayed
        | Op::Discard
        | Op::MoveToWait
        | Op::ChangeDelay
        | Op::ClearLogs
        | Op::RemoveJobDeduplicationKey => one_job(op, world),
        Op::GetFlow
        | Op::GetChildrenValues
        | Op::GetFailedChildrenValues
        | Op::GetIgnoredChildrenFailures
        | Op::UpdateParent
        | Op::RemoveChildDependency
        | Op::RemoveUnprocessedChildren
        | Op::MoveToWaitingChildren => family(op, world),
        Op::GetJobs
        | Op::Search
        | Op::GetJobCounts
        | Op::GetCountsPerPriority
        | Op::Count
        | Op::GetDeduplicationJobId
        | Op::RemoveDeduplicationKey
        | Op::PromoteJobs
        | Op::Pause
        | Op::Resume
        | Op::IsPaused
        | Op::Drain
        | Op::Obliterate
        | Op::Clean
        | Op::RetryCompleted
        | Op::RateLimit
        | Op::RateLimitClear
        | Op::SetConcurrency
        | Op::ClearConcurrency
        | Op::GetQueueLimits
        | Op::TrimEvents
        | Op::DashboardQueue
        | Op::SubscribeEvents
        | Op::UnsubscribeEvents
        | Op::Subscribe
        | Op::Unsubscribe => one_queue(op, world),
        Op::Dlq
        | Op::RetryDlq
        | Op::PurgeDlq
        | Op::GetDlqStats
        | Op::SetDlqConfig
        | Op::GetDlqConfig
        | Op::SetStallConfig
        | Op::GetStallConfig
        | Op::DlqGroups
        | Op::Bulk
        | Op::GetTask
        | Op::ListTasks
        | Op::CancelTask
        | Op::RemoveDlqJob => dead_letters(op, world),
        Op::GetGroupsJobsCount
        | Op::GetGroupJobsCount
        | Op::GetGroupActiveCount
        | Op::GetGroups
        | Op::SetGroupRateLimit
        | Op::GetGroupRateLimit
        | Op::RemoveGroupRateLimit
        | Op::GetGroupRateLimitTtl
        | Op::SetGroupConcurrency
        | Op::GetGroupConcurrency
        | Op::RemoveGroupConcurrency
        | Op::SetGroupWeight
        | Op::GetGroupWeight
        | Op::PauseGroup
        | Op::ResumeGroup
        | Op::IsGroupPaused
        | Op::RateLimitGroup => groups(op, world),
        Op::Cron
        | Op::CronDelete
        | Op::CronGet
        | Op::CronTrigger
        | Op::SetCronEnabled
        | Op::CronPreview
        | Op::CronList => schedules(op, world),
        Op::RegisterWorker
        | Op::UnregisterWorker
        | Op::ListWorkers
        | Op::DashboardOverview
        | Op::Heartbeat => workers(op, world),
        Op::AddWebhook
        | Op::RemoveWebhook
        | Op::SetWebhookEnabled
        | Op::TestWebhook
        | Op::WebhookDeliveries
        | Op::ListWebhooks => {
            webhooks(op, world);
        }
        Op::ListQueues | Op::DashboardQueues => {
            (0..sizes.names).for_each(|n| _ = world.client.push(&format!("queue-{n}"), 1));
            if op == Op::ListQueues {
                world.ok("ListQueues", json!({"sort": "waiting", "limit": 1000}));
            }
            let reply = world.ok(op.spec().name, json!({}));
            let listed = reply["queues"].as_array().or(reply["data"]["queues"].as_array());
            // Queues of other cases are listed as well.
            assert!(listed.is_some_and(|rows| rows.len() >= sizes.names));
        }
        Op::Stats
        | Op::Prometheus
        | Op::StorageStatus
        | Op::CompactMemory
        | Op::Doctor
        | Op::GetSettings => {
            world.ok(op.spec().name, json!({}));
        }
        Op::Metrics => {
            world.fill_completed("minutes", 10);
            world.ok("Metrics", json!({"queue": "minutes"}));
            let metrics = world.ok("Metrics", json!({}))["metrics"].clone();
            assert!(metrics["longestTurnMs"].as_f64().unwrap() > 0.0, "{metrics}");
            assert!(!metrics["longestTurnCommand"].as_str().unwrap().is_empty(), "{metrics}");
        }
        Op::History | Op::Heatmap | Op::Shards | Op::Watch | Op::Unwatch => figures(op, world),
        Op::Ping => _ = world.ok("Ping", json!({})),
        Op::Whoami => _ = world.ok("Whoami", json!({})),
        Op::AuditLog => {
            (0..LISTING_MAX).for_each(|_| _ = world.ok("Pause", json!({"queue": "audited"})));
            world.ok("AuditLog", json!({"limit": LISTING_MAX}));
        }
        Op::BackupPoint => _ = world.ok("BackupPoint", json!({})),
        Op::Hello => {
            let capabilities = vec!["c".repeat(256); LIST_MAX as usize];
            world.ok("Hello", json!({"protocolVersion": 1, "capabilities": capabilities}));
        }
        Op::Auth => _ = world.ok("Auth", json!({"token": "t".repeat(4096)})),
    }
}

/// Figures, while as many queues have a history as may.
fn figures(op: Op, world: &mut World) {
    const WITH_HISTORY: usize = 1000;
    match op {
        Op::History => {
            (0..WITH_HISTORY).for_each(|n| _ = world.client.push(&format!("figures-{n}"), 1));
            let long = json!({"step": DAY_MS, "points": 1440});
            world.ok("History", long);
            world.ok("History", json!({"queue": "figures-1", "points": 1440}));
        }
        Op::Heatmap => {
            world.client.pull("figures-1");
            world.ok("Heatmap", json!({"points": 1440}));
            world.ok("Heatmap", json!({"queue": "figures-1", "points": 1440}));
        }
        Op::Shards => _ = world.ok("Shards", json!({})),
        Op::Watch => {
            let mut viewer = world.server.client();
            let all = json!({"what": ["stats", "queues", "shards"], "top": 100});
            viewer.ok("Watch", all);
            let sample = viewer.recv().unwrap();
            assert_eq!(sample["queues"].as_array().unwrap().len(), 100);
        }
        _ => _ = world.ok("Unwatch", json!({})),
    }
}

/// Jobs come, go to workers and end.
fn ways_of_jobs(op: Op, world: &mut World) {
    let sizes = world.sizes;
    match op {
        Op::Push => {
            let parts: Vec<Value> = {
                world.fill("push-parts", 1000, &json!({"data": 1}));
                world.pull_many("push-parts", 1000, true).0
            };
            let data = world.payload();
            world.client.push_with("push", data, json!({"dependsOn": parts}));
            // The push takes a key from all jobs that hold it.
            let holds = json!({"data": 1, "uniqueKey": "key", "timeout": 1, "maxAttempts": 1});
            world.client.push_with("push", 1, json!({"uniqueKey": "key"}));
            let mut replaces = holds.clone();
            replaces["dedup"] = json!({"replace": true});
            world.fill("push", 100, &replaces);
        }
        Op::Ack => {
            let id = world.awaited("ack", json!({}));
            let (_, token) = world.client.pull_owned("ack", DAY_MS);
            let result = world.payload();
            world.ok("ACK", json!({"id": id, "token": token, "result": result}));
            world.await_count("ack-after", "waiting", sizes.family);
        }
        Op::Pull => {
            world.fill_groups("pull");
            // A job of each group is active, but of the last: new limits leave no other.
            let most = sizes.groups.min(20_000);
            world.pull_many("pull", most, false);
            for terms in [json!({"concurrency": 1}), json!({"limit": {"max": 1, "duration": 1000}})]
            {
                world.ok("PULL", json!({"queue": "pull", "group": terms}));
            }
            world.fill("pull-plain", sizes.jobs, &json!({"data": 1}));
            world.client.pull("pull-plain");
        }
        Op::PushBatch => {
            let jobs = vec![json!({"data": 1}); sizes.batch];
            world.ok("PUSHB", json!({"queue": "pushb", "jobs": jobs}));
            // As many as a batch may have that is otherwise short.
            let far = json!({"data": 1, "repeat": {"pattern": "59 59 23 29 2 *"}});
            world.ok("PUSHB", json!({"queue": "pushb-plans", "jobs": vec![far; 1000]}));
            let data = world.payload();
            let large = json!([{"data": 1}, {"data": data}]);
            world.ok("PUSHB", json!({"queue": "pushb-large", "jobs": large}));
            // As many bytes as a batch may have, in as many jobs.
            let jobs = vec![json!({"data": "y".repeat(1500)}); sizes.batch];
            world.ok("PUSHB", json!({"queue": "pushb-bytes", "jobs": jobs}));
        }
        Op::PullBatch => {
            world.fill("pullb", sizes.jobs, &json!({"data": 1}));
            let most = PULL_COUNT_MAX;
            world.ok("PULLB", json!({"queue": "pullb", "count": most, "owner": "w"}));
            world.pull_many("pullb", sizes.jobs - most as usize, true);
            // Jobs of a connection that ends go back, all of them at once.
            let next = world.server.client();
            drop(std::mem::replace(&mut world.client, next));
            world.await_count("pullb", "waiting", sizes.jobs);
        }
        Op::AckBatch => {
            world.fill("ackb", sizes.batch, &json!({"data": 1}));
            let (ids, tokens) = world.pull_many("ackb", sizes.batch, true);
            world.ok("ACKB", json!({"ids": ids, "tokens": tokens}));
            world.fill("ackb-large", 2, &json!({"data": 1}));
            let (ids, tokens) = world.pull_many("ackb-large", 2, true);
            let results = json!([1, world.payload()]);
            world.ok("ACKB", json!({"ids": ids, "tokens": tokens, "results": results}));
        }
        Op::Fail => {
            let id = world.awaited("fail", json!({"maxAttempts": 1}));
            let (_, token) = world.client.pull_owned("fail", DAY_MS);
            let error = "e".repeat(60_000);
            world.ok("FAIL", json!({"id": id, "token": token, "error": error, "stack": ["s"]}));
            world.ok("PurgeDlq", json!({"queue": "fail"}));
            world.await_count("fail-after", "failed", sizes.family);
        }
        Op::JobHeartbeat | Op::ExtendLock => {
            let (id, token) = world.active("beat");
            world.ok("JobHeartbeat", json!({"id": id, "token": token}));
            world.ok("ExtendLock", json!({"id": id, "token": token, "duration": DAY_MS}));
        }
        Op::JobHeartbeatBatch | Op::ExtendLocks => {
            let queue = if op == Op::ExtendLocks { "extend" } else { "beats" };
            world.fill(queue, sizes.batch, &json!({"data": 1}));
            let (ids, tokens) = world.pull_many(queue, sizes.batch, true);
            if op == Op::ExtendLocks {
                let durations = vec![DAY_MS; ids.len()];
                world.ok(
                    "ExtendLocks",
                    json!({"ids": ids, "tokens": tokens, "durations": durations}),
                );
            } else {
                world.ok("JobHeartbeatB", json!({"ids": ids, "tokens": tokens}));
            }
        }
        _ => _ = world.parent("flow", &json!({})),
    }
}

/// Commands on one job.
fn one_job(op: Op, world: &mut World) {
    let sizes = world.sizes;
    let long = "x".repeat(60_000);
    match op {
        Op::Progress | Op::GetProgress => {
            let (id, _) = world.active("progress");
            let message = world.payload();
            world.ok("Progress", json!({"id": id, "progress": 50, "message": message}));
            world.ok("GetProgress", json!({"id": id}));
        }
        Op::AddLog | Op::GetLogs | Op::ClearLogs => {
            let id = world.client.push("logs", 1);
            let lines = if op == Op::AddLog { 1 } else { LOG_LINES };
            for _ in 0..lines {
                world.ok("AddLog", json!({"id": id, "message": long}));
            }
            let logs = world.ok("GetLogs", json!({"id": id}))["data"]["logs"].clone();
            assert_eq!(logs.as_array().unwrap().len(), lines);
            world.ok("ClearLogs", json!({"id": id}));
        }
        Op::Explain => {
            // Many priorities before it, and many jobs of its own.
            world.fill_with("explain", sizes.jobs, |n| json!({"data": 1, "priority": n % 5000}));
            let last = world.client.push_with("explain", 1, json!({"priority": -1}));
            let told = world.ok("Explain", json!({"id": last}))["data"]["reasons"].clone();
            assert!(told.to_string().contains("jobs_before"), "{told}");
        }
        Op::GetJobDetail => {
            let data = world.payload();
            let id = world.client.push("detail", data);
            for _ in 0..LOG_LINES {
                world.ok("AddLog", json!({"id": id, "message": long}));
            }
            let logs = world.ok("GetJobDetail", json!({"id": id}))["data"]["logs"].clone();
            assert_eq!(logs.as_array().unwrap().len(), LOG_LINES);
        }
        Op::GetJob | Op::GetJobByCustomId | Op::Update => {
            let data = world.payload();
            let custom = format!("large-{op:?}");
            let id = world.client.push_with("large", data.clone(), json!({"jobId": custom}));
            world.ok("Update", json!({"id": id, "data": data}));
            world.ok("GetJob", json!({"id": id}));
            world.ok("GetJobByCustomId", json!({"customId": custom}));
        }
        Op::GetResult | Op::WaitJob => {
            let (id, token) = world.active("results");
            let result = world.payload();
            world.ok("ACK", json!({"id": id, "token": token, "result": result}));
            world.ok("GetResult", json!({"id": id}));
            world.ok("WaitJob", json!({"id": id}));
        }
        Op::Cancel => {
            let id = world.awaited("cancel", json!({}));
            world.ok("Cancel", json!({"id": id}));
            world.await_count("cancel-after", "failed", sizes.family);
        }
        Op::Discard => {
            let id = world.awaited("discard", json!({}));
            world.ok("Discard", json!({"id": id}));
            world.ok("PurgeDlq", json!({"queue": "discard"}));
            world.await_count("discard-after", "failed", sizes.family);
        }
        Op::MoveToDelayed => {
            let (id, token) = world.active("delays");
            world.ok("MoveToDelayed", json!({"id": id, "delay": DAY_MS, "token": token}));
        }
        _ => {
            // In a long queue, each with a priority of its own.
            let queue = format!("line-{op:?}");
            world.fill_with(&queue, sizes.jobs.min(100_000), |n| json!({"data": 1, "priority": n}));
            let delayed = json!({"delay": DAY_MS, "uniqueKey": "key"});
            let id = world.client.push_with(&queue, 1, delayed);
            world.ok("GetState", json!({"id": id}));
            world.ok("ChangePriority", json!({"id": id, "priority": 5, "lifo": true}));
            world.ok("ChangeDelay", json!({"id": id, "delay": DAY_MS}));
            match op {
                Op::MoveToWait => world.ok("MoveToWait", json!({"id": id})),
                _ => world.ok("Promote", json!({"id": id})),
            };
            world.ok("RemoveJobDeduplicationKey", json!({"id": id}));
        }
    }
}

/// Commands on a job with as many children as there may be.
fn family(op: Op, world: &mut World) {
    let sizes = world.sizes;
    let count = sizes.family;
    match op {
        Op::GetChildrenValues => {
            world.parent("values", &json!({}));
            world.complete("values-parts", count);
            world.await_count("values", "waiting", 1);
            let reply = world.ok("GetChildrenValues", json!({"id": "values"}));
            assert_eq!(reply["data"]["values"].as_object().unwrap().len(), count);
        }
        Op::GetFailedChildrenValues | Op::GetIgnoredChildrenFailures => {
            let failed = op == Op::GetFailedChildrenValues;
            let (name, command, policy) = if failed {
                ("failed", "GetFailedChildrenValues", "continueParentOnFailure")
            } else {
                ("ignored", "GetIgnoredChildrenFailures", "ignoreDependencyOnFailure")
            };
            world.parent(name, &json!({"maxAttempts": 1, "timeout": 1, policy: true}));
            let parts = format!("{name}-parts");
            world.pull_many(&parts, count, false);
            world.await_count(&parts, "failed", count);
            until("all failures to be known", || {
                let reply = world.ok(command, json!({"id": name}));
                (reply["values"].as_object().unwrap().len() == count).then_some(())
            });
        }
        Op::UpdateParent | Op::RemoveChildDependency => {
            let name = if op == Op::UpdateParent { "adopts" } else { "lets-go" };
            world.parent(name, &json!({}));
            let child = world.client.push("adopted", 1);
            world.ok("UpdateParent", json!({"childId": child, "parentId": name}));
            let removed = world.ok("RemoveChildDependency", json!({"id": child}));
            assert_eq!(removed["removed"], json!(true));
        }
        Op::GetFlow => {
            world.parent("flow-tree", &json!({}));
            let flow = world.ok("GetFlow", json!({"id": "flow-tree", "limit": 1000}));
            assert_eq!(flow["data"]["jobs"].as_array().unwrap().len(), 1000);
        }
        Op::RemoveUnprocessedChildren => {
            world.parent("abandons", &json!({}));
            world.ok("RemoveUnprocessedChildren", json!({"id": "abandons"}));
            world.await_count("abandons", "waiting", 1);
        }
        _ => {
            let (id, token) = world.active("returns");
            world.parent("returns-family", &json!({}));
            let child = world.client.push("returns-parts", 1);
            world.ok("UpdateParent", json!({"childId": child, "parentId": id}));
            let moved = world.ok("MoveToWaitingChildren", json!({"id": id, "token": token}));
            assert_eq!(moved["data"]["moved"], json!(true));
        }
    }
}

/// Commands on groups, in a queue with many.
fn groups(op: Op, world: &mut World) {
    let queue = "groups";
    if world.client.counted(queue, "waiting") == 0 {
        world.fill_groups(queue);
    }
    let group = json!({"queue": queue, "groupId": "g1"});
    let with = |more: Value| {
        let mut fields = group.clone();
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    };
    let (command, fields) = match op {
        Op::GetGroupsJobsCount => ("GetGroupsJobsCount", json!({"queue": queue})),
        Op::GetGroups => ("GetGroups", json!({"queue": queue, "limit": 1000})),
        Op::GetGroupJobsCount => ("GetGroupJobsCount", group),
        Op::GetGroupActiveCount => ("GetGroupActiveCount", group),
        Op::SetGroupRateLimit => ("SetGroupRateLimit", with(json!({"max": 1, "duration": 1000}))),
        Op::GetGroupRateLimit => ("GetGroupRateLimit", group),
        Op::RemoveGroupRateLimit => ("RemoveGroupRateLimit", group),
        Op::GetGroupRateLimitTtl => ("GetGroupRateLimitTtl", group),
        Op::SetGroupConcurrency => ("SetGroupConcurrency", with(json!({"concurrency": 1}))),
        Op::GetGroupConcurrency => ("GetGroupConcurrency", group),
        Op::RemoveGroupConcurrency => ("RemoveGroupConcurrency", group),
        Op::SetGroupWeight => ("SetGroupWeight", with(json!({"weight": 5}))),
        Op::GetGroupWeight => ("GetGroupWeight", group),
        Op::PauseGroup => ("PauseGroup", group),
        Op::ResumeGroup => ("ResumeGroup", group),
        Op::IsGroupPaused => ("IsGroupPaused", group),
        _ => ("RateLimitGroup", with(json!({"duration": 1}))),
    };
    world.ok(command, fields);
}

/// Commands on schedules, of which there are many.
fn schedules(op: Op, world: &mut World) {
    let names = world.sizes.names;
    let name = |n: usize| format!("cron-{n}");
    match op {
        Op::Cron => {
            for n in 0..names {
                let cron =
                    json!({"name": name(n), "queue": "crons", "data": 1, "repeatEvery": DAY_MS});
                world.ok("Cron", cron);
            }
        }
        Op::CronDelete => _ = world.ok("CronDelete", json!({"name": name(0)})),
        Op::CronGet => _ = world.ok("CronGet", json!({"name": name(1)})),
        Op::CronTrigger => _ = world.ok("CronTrigger", json!({"name": name(1)})),
        Op::SetCronEnabled => {
            world.ok("SetCronEnabled", json!({"name": name(1), "enabled": false}));
            world.ok("SetCronEnabled", json!({"name": name(1), "enabled": true}));
        }
        Op::CronPreview => {
            world.ok("CronPreview", json!({"name": name(1), "count": 100}));
            // Every run is days and months away from the one before.
            world.ok("CronPreview", json!({"schedule": "59 59 23 29 2 *", "count": 100}));
        }
        _ => {
            let crons = world.ok("CronList", json!({}))["crons"].clone();
            assert_eq!(crons.as_array().unwrap().len(), names - 1);
        }
    }
}

/// Commands on workers, of which there are many.
fn workers(op: Op, world: &mut World) {
    let names = world.sizes.names;
    match op {
        Op::Heartbeat | Op::RegisterWorker | Op::UnregisterWorker => {
            let name = format!("large-{op:?}");
            let queues: Vec<String> = (0..LIST_MAX).map(|n| format!("worked-{n}")).collect();
            world.ok("RegisterWorker", json!({"name": name, "queues": queues, "workerId": name}));
            world.ok("Heartbeat", json!({"id": name}));
            world.ok("UnregisterWorker", json!({"workerId": name}));
        }
        _ => {
            for n in 0..names {
                let worker =
                    json!({"name": "w", "queues": ["worked"], "workerId": format!("w{n}")});
                world.ok("RegisterWorker", worker);
            }
            let data = world.ok(op.spec().name, json!({}))["data"].clone();
            let workers = &data["workers"];
            let listed = workers.as_array().or(workers["list"].as_array());
            assert_eq!(listed.map(Vec::len), Some(names));
        }
    }
}

/// Commands on webhooks, of which there are as many as there may be.
fn webhooks(op: Op, world: &mut World) {
    const MOST: usize = 1000;
    let of_queue = "hooked";
    let add =
        json!({"url": "https://example.org/jobs", "events": ["job.failed"], "queue": of_queue});
    let listed =
        |world: &mut World| world.ok("ListWebhooks", json!({}))["data"]["webhooks"].clone();
    match op {
        Op::AddWebhook => {
            for _ in 0..MOST {
                world.ok("AddWebhook", add.clone());
            }
        }
        Op::RemoveWebhook => {
            let id = listed(world)[0]["id"].clone();
            world.ok("RemoveWebhook", json!({"webhookId": id}));
        }
        Op::SetWebhookEnabled => {
            let id = listed(world)[0]["id"].clone();
            world.ok("SetWebhookEnabled", json!({"id": id, "enabled": false}));
        }
        Op::TestWebhook => {
            // A name that leads nowhere: the outcome comes without a network.
            let add = json!({"url": "https://nothing.invalid/", "events": [], "queue": of_queue});
            let id = world.ok("AddWebhook", add)["data"]["webhookId"].clone();
            let tested = world.ok("TestWebhook", json!({"id": id}))["data"].clone();
            assert_eq!(tested["delivered"], false);
            world.ok("RemoveWebhook", json!({"webhookId": id}));
        }
        Op::WebhookDeliveries => {
            let id = listed(world)[0]["id"].clone();
            world.ok("WebhookDeliveries", json!({"id": id}));
        }
        _ => assert_eq!(listed(world).as_array().unwrap().len(), MOST - 1),
    }
}
