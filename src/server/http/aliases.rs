//! Routes that are no more than a command: a row says method, path, command, and where the fields of the command come
//! from. All else follows from the command table: which query parameters and fields there are, how long a body may be, which
//! names are refused as misspelt, and what stands in the documents, against which tests hold this table.

use super::route::{Asks, Endpoint, Given, Input, Route, command};
use crate::api::commands::Op;
use crate::protocol::http1::head::Method;

const fn get(path: &'static [&'static str], op: Op) -> Route {
    by(Method::Get, path, Asks::of(op, Input::Query))
}

const fn post(path: &'static [&'static str], op: Op) -> Route {
    by(Method::Post, path, Asks::of(op, Input::MaybeBody))
}

const fn put(path: &'static [&'static str], op: Op) -> Route {
    by(Method::Put, path, Asks::of(op, Input::Body))
}

const fn delete(path: &'static [&'static str], op: Op) -> Route {
    by(Method::Delete, path, Asks::of(op, Input::Query))
}

const fn by(method: Method, path: &'static [&'static str], asks: Asks) -> Route {
    command(method, path, Endpoint::Command, asks)
}

/// Pulls several jobs, as a worker that has no connection.
const PULL_BATCH: Asks = Asks::of(Op::PullBatch, Input::Body).as_http_worker();

/// Lists jobs by state, under any of the names that clients give it.
const LIST_JOBS: Asks =
    Asks::of(Op::GetJobs, Input::Query).also(&[("status", "state"), ("states", "state")]);

const CLEAN: Asks =
    Asks::of(Op::Clean, Input::MaybeBody).with_presets(&[("grace", Given::Number(0))]);

const CONCURRENCY: Asks =
    Asks::of(Op::SetConcurrency, Input::Body).also(&[("concurrency", "limit")]);

/// Holds a group back for a while, without which it means nothing.
const HOLD: Asks = Asks::of(Op::RateLimitGroup, Input::Body);

/// Both jobs stand in the path.
const LINK: Asks = Asks::of(Op::UpdateParent, Input::Nothing);
const ENABLE_CRON: Asks =
    Asks::of(Op::SetCronEnabled, Input::MaybeBody).with_fixed(&[("enabled", Given::True)]);

const DISABLE_CRON: Asks =
    Asks::of(Op::SetCronEnabled, Input::MaybeBody).with_fixed(&[("enabled", Given::False)]);

/// The table. A row with a literal segment stands before one that takes any value there.
#[rustfmt::skip]
pub(super) const ALIASES: &[Route] = &[
    post(&["queues", ":queue", "jobs", "bulk"], Op::PushBatch),
    by(Method::Post, &["queues", ":queue", "jobs", "pull-batch"], PULL_BATCH),
    post(&["jobs", "ack-batch"], Op::AckBatch),
    post(&["jobs", "heartbeat-batch"], Op::JobHeartbeatBatch),
    post(&["jobs", "extend-locks"], Op::ExtendLocks),
    by(Method::Post, &["jobs", "bulk"], Asks::of(Op::Bulk, Input::Body)),
    post(&["flows"], Op::PushFlow),

    get(&["jobs", "custom", ":customId"], Op::GetJobByCustomId),
    get(&["jobs", ":id", "state"], Op::GetState),
    get(&["jobs", ":id", "result"], Op::GetResult),
    get(&["jobs", ":id", "explain"], Op::Explain),
    get(&["jobs", ":id", "detail"], Op::GetJobDetail),
    get(&["jobs", ":id", "flow"], Op::GetFlow),
    get(&["jobs", ":id", "progress"], Op::GetProgress),
    post(&["jobs", ":id", "progress"], Op::Progress),
    get(&["jobs", ":id", "logs"], Op::GetLogs),
    post(&["jobs", ":id", "logs"], Op::AddLog),
    delete(&["jobs", ":id", "logs"], Op::ClearLogs),
    get(&["jobs", ":id", "children"], Op::GetChildrenValues),
    get(&["jobs", ":id", "children", "failed"], Op::GetFailedChildrenValues),
    get(&["jobs", ":id", "children", "ignored"], Op::GetIgnoredChildrenFailures),
    delete(&["jobs", ":id", "children"], Op::RemoveUnprocessedChildren),
    by(Method::Put, &["jobs", ":childId", "parent", ":parentId"], LINK),
    delete(&["jobs", ":id", "parent"], Op::RemoveChildDependency),
    delete(&["jobs", ":id", "dedup"], Op::RemoveJobDeduplicationKey),
    post(&["jobs", ":id", "wait"], Op::WaitJob),
    post(&["jobs", ":id", "heartbeat"], Op::JobHeartbeat),
    post(&["jobs", ":id", "extend-lock"], Op::ExtendLock),
    put(&["jobs", ":id", "data"], Op::Update),
    put(&["jobs", ":id", "priority"], Op::ChangePriority),
    put(&["jobs", ":id", "delay"], Op::ChangeDelay),
    post(&["jobs", ":id", "promote"], Op::Promote),
    post(&["jobs", ":id", "discard"], Op::Discard),
    post(&["jobs", ":id", "move-to-wait"], Op::MoveToWait),
    post(&["jobs", ":id", "move-to-delayed"], Op::MoveToDelayed),
    post(&["jobs", ":id", "move-to-waiting-children"], Op::MoveToWaitingChildren),

    get(&["queues"], Op::ListQueues),
    get(&["queues", "summary"], Op::DashboardQueues),
    get(&["queues", ":queue"], Op::DashboardQueue),
    by(Method::Get, &["queues", ":queue", "jobs", "list"], LIST_JOBS),
    get(&["queues", ":queue", "search"], Op::Search),
    get(&["queues", ":queue", "counts"], Op::GetJobCounts),
    get(&["queues", ":queue", "count"], Op::Count),
    get(&["queues", ":queue", "priority-counts"], Op::GetCountsPerPriority),
    get(&["queues", ":queue", "metrics"], Op::Metrics),
    get(&["queues", ":queue", "history"], Op::History),
    get(&["queues", ":queue", "heatmap"], Op::Heatmap),
    get(&["queues", ":queue", "workers"], Op::ListWorkers),
    get(&["queues", ":queue", "paused"], Op::IsPaused),
    post(&["queues", ":queue", "pause"], Op::Pause),
    post(&["queues", ":queue", "resume"], Op::Resume),
    post(&["queues", ":queue", "drain"], Op::Drain),
    post(&["queues", ":queue", "obliterate"], Op::Obliterate),
    by(Method::Post, &["queues", ":queue", "clean"], CLEAN),
    post(&["queues", ":queue", "promote-jobs"], Op::PromoteJobs),
    post(&["queues", ":queue", "promote-all"], Op::PromoteJobs),
    post(&["queues", ":queue", "retry-completed"], Op::RetryCompleted),
    by(Method::Get, &["queues", ":queue", "dlq"], Asks::of(Op::Dlq, Input::QueryInto("filter"))),
    get(&["queues", ":queue", "dlq", "stats"], Op::GetDlqStats),
    get(&["queues", ":queue", "dlq", "groups"], Op::DlqGroups),
    get(&["dlq", "groups"], Op::DlqGroups),
    post(&["queues", ":queue", "dlq", "retry"], Op::RetryDlq),
    post(&["queues", ":queue", "retry"], Op::RetryDlq),
    post(&["queues", ":queue", "dlq", "purge"], Op::PurgeDlq),
    post(&["queues", ":queue", "dlq", ":jobId", "retry"], Op::RetryDlq),
    delete(&["queues", ":queue", "dlq", ":jobId"], Op::RemoveDlqJob),
    get(&["queues", ":queue", "dlq-config"], Op::GetDlqConfig),
    by(Method::Put, &["queues", ":queue", "dlq-config"], Asks::of(Op::SetDlqConfig, Input::BodyOf("config"))),
    get(&["queues", ":queue", "stall-config"], Op::GetStallConfig),
    by(Method::Put, &["queues", ":queue", "stall-config"], Asks::of(Op::SetStallConfig, Input::BodyOf("config"))),
    get(&["queues", ":queue", "limits"], Op::GetQueueLimits),
    put(&["queues", ":queue", "rate-limit"], Op::RateLimit),
    delete(&["queues", ":queue", "rate-limit"], Op::RateLimitClear),
    by(Method::Put, &["queues", ":queue", "concurrency"], CONCURRENCY),
    delete(&["queues", ":queue", "concurrency"], Op::ClearConcurrency),
    get(&["queues", ":queue", "dedup", ":deduplicationId"], Op::GetDeduplicationJobId),
    delete(&["queues", ":queue", "dedup", ":deduplicationId"], Op::RemoveDeduplicationKey),

    get(&["queues", ":queue", "groups"], Op::GetGroups),
    get(&["queues", ":queue", "groups", "count"], Op::GetGroupsJobsCount),
    get(&["queues", ":queue", "groups", ":groupId", "count"], Op::GetGroupJobsCount),
    get(&["queues", ":queue", "groups", ":groupId", "active"], Op::GetGroupActiveCount),
    get(&["queues", ":queue", "groups", ":groupId", "paused"], Op::IsGroupPaused),
    post(&["queues", ":queue", "groups", ":groupId", "pause"], Op::PauseGroup),
    post(&["queues", ":queue", "groups", ":groupId", "resume"], Op::ResumeGroup),
    by(Method::Post, &["queues", ":queue", "groups", ":groupId", "hold"], HOLD),
    get(&["queues", ":queue", "groups", ":groupId", "rate-limit"], Op::GetGroupRateLimit),
    get(&["queues", ":queue", "groups", ":groupId", "rate-limit-ttl"], Op::GetGroupRateLimitTtl),
    get(&["queues", ":queue", "groups", ":groupId", "concurrency"], Op::GetGroupConcurrency),
    get(&["queues", ":queue", "groups", ":groupId", "weight"], Op::GetGroupWeight),
    put(&["queues", ":queue", "groups", ":groupId", "rate-limit"], Op::SetGroupRateLimit),
    delete(&["queues", ":queue", "groups", ":groupId", "rate-limit"], Op::RemoveGroupRateLimit),
    put(&["queues", ":queue", "groups", ":groupId", "concurrency"], Op::SetGroupConcurrency),
    delete(&["queues", ":queue", "groups", ":groupId", "concurrency"], Op::RemoveGroupConcurrency),
    put(&["queues", ":queue", "groups", ":groupId", "weight"], Op::SetGroupWeight),

    get(&["crons"], Op::CronList),
    post(&["crons"], Op::Cron),
    get(&["crons", ":name"], Op::CronGet),
    delete(&["crons", ":name"], Op::CronDelete),
    by(Method::Post, &["crons", "preview"], Asks::of(Op::CronPreview, Input::MaybeBody)),
    get(&["crons", ":name", "preview"], Op::CronPreview),
    post(&["crons", ":name", "trigger"], Op::CronTrigger),
    put(&["crons", ":name", "enabled"], Op::SetCronEnabled),
    by(Method::Post, &["crons", ":name", "enable"], ENABLE_CRON),
    by(Method::Post, &["crons", ":name", "disable"], DISABLE_CRON),

    get(&["webhooks"], Op::ListWebhooks),
    post(&["webhooks"], Op::AddWebhook),
    delete(&["webhooks", ":webhookId"], Op::RemoveWebhook),
    put(&["webhooks", ":id", "enabled"], Op::SetWebhookEnabled),
    post(&["webhooks", ":id", "test"], Op::TestWebhook),
    get(&["webhooks", ":id", "deliveries"], Op::WebhookDeliveries),

    get(&["workers"], Op::ListWorkers),
    post(&["workers"], Op::RegisterWorker),
    delete(&["workers", ":workerId"], Op::UnregisterWorker),
    post(&["workers", ":id", "heartbeat"], Op::Heartbeat),

    get(&["tasks"], Op::ListTasks),
    get(&["tasks", ":task"], Op::GetTask),
    delete(&["tasks", ":task"], Op::CancelTask),

    get(&["ping"], Op::Ping),
    get(&["search"], Op::Search),
    get(&["history"], Op::History),
    get(&["heatmap"], Op::Heatmap),
    get(&["shards"], Op::Shards),
    get(&["storage"], Op::StorageStatus),
    get(&["dashboard"], Op::DashboardOverview),
    get(&["dashboard", "queues"], Op::DashboardQueues),
    get(&["dashboard", "queues", ":queue"], Op::DashboardQueue),
    post(&["memory", "compact"], Op::CompactMemory),
    get(&["whoami"], Op::Whoami),
    get(&["audit"], Op::AuditLog),
    get(&["doctor"], Op::Doctor),
    get(&["settings"], Op::GetSettings),
];
