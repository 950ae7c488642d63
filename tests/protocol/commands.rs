//! Meaning of each command, written by hand, so that the table cannot be wrong in silence.

use corq::api::commands::COMMANDS;
use corq::api::request::{Body, Cadence, Cron, Finished, JobRef, StateFilter};
use corq_shards::command::Token;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::cron::CronRules;
use corq_shards::log_record::job_change::Level;
use rmpv::Value;

use crate::{JOB_ID, accepted, command, map, pack, refused, strings};

pub(crate) const JOB: JobRef<'static> =
    JobRef::Id(JobId(0x0190_163d_8694_739b_aea5_966c_26f8_a787));
pub(crate) const TOKEN: Token = Token(0x2f1d_7e64_0c55_4d0a_9b1e_0011_2233_4455);
pub(crate) const TOKEN_TEXT: &str = "2f1d7e64-0c55-4d0a-9b1e-001122334455";

/// Decodes and shows a command, so that it can be compared as text.
pub(crate) fn shown(name: &str, fields: &[(&str, Value)]) -> String {
    format!("{:?}", accepted(&command(name, fields)))
}

#[track_caller]
pub(crate) fn means(name: &str, fields: &[(&str, Value)], expected: &Body<'_>) {
    assert_eq!(shown(name, fields), format!("{expected:?}"));
}

#[test]
fn the_table_is_the_interface() {
    // Required fields end in `!`; integers show their bounds, then their default.
    let expected = "\
PUSH queue! data! name priority=0 delay[0..31536000000]=0 maxAttempts[1..1000]=3 \
backoff=1000 ttl[0..31536000000] timeout[0..86400000] uniqueKey jobId customId tags groupId lifo \
removeOnComplete removeOnFail durable dependsOn repeat dedup stallTimeout[0..86400000] debounceId \
debounceTtl[0..31536000000] stackTraceLimit[0..1000000] keepLogs[0..1000000] \
sizeLimit[0..9007199254740991] timestamp[0..9007199254740991] groupMaxSize[1..9007199254740991] \
parentId childrenIds \
failParentOnFailure continueParentOnFailure ignoreDependencyOnFailure removeDependencyOnFailure \
traceparent tracestate
ACK id! result token removeOnComplete
PULL queue! timeout[0..60000]=0 owner lockTtl[1..86400000]=30000 detach group
PUSHB queue! jobs! traceparent tracestate
PULLB queue! count![1..1000] timeout[0..60000]=0 owner lockTtl[1..86400000]=30000 detach group
ACKB ids! results tokens removeOnCompletes
FAIL id! error token unrecoverable stack removeOnFail
JobHeartbeat id! token
JobHeartbeatB ids! tokens
Progress id! progress! message
AddLog id! message! level
Ping
Heartbeat id! activeJobs[0..9007199254740991] processed[0..9007199254740991] \
failed[0..9007199254740991]
WaitJob id! timeout[0..600000]=30000
GetJob id!
GetState id!
GetResult id!
Explain id!
GetJobDetail id!
GetFlow id! depth[0..100]=10 limit[1..1000]=100
GetProgress id!
GetLogs id! start[0..9007199254740991]=0 end[-1..9007199254740991]=-1
GetJobByCustomId customId!
GetJobs queue! state limit[0..1000]=100 offset[0..9007199254740991]=0 asc after order fields data name \
tag group from[0..9007199254740991] to[0..9007199254740991]
Search queue text path value state limit[0..1000]=100 budgetMs[1..60000]=1000 after order fields \
data name tag group from[0..9007199254740991] to[0..9007199254740991]
GetJobCounts queue!
GetCountsPerPriority queue!
Count queue!
Cancel id!
Update id! data!
ChangePriority id! priority![-1000000..1000000] lifo
Promote id!
MoveToDelayed id! delay![0..31536000000] token
Discard id! token error reason attempts[0..1000]
ExtendLock id! token duration![1..86400000]
ExtendLocks ids! tokens durations!
MoveToWait id! token
ChangeDelay id! delay![0..31536000000] token
PUSHF jobs! traceparent tracestate
GetChildrenValues id!
GetFailedChildrenValues id!
GetIgnoredChildrenFailures id!
UpdateParent childId! parentId!
RemoveChildDependency id!
RemoveUnprocessedChildren id!
MoveToWaitingChildren id! token
ClearLogs id! keepLogs[0..1000000]=0
RemoveJobDeduplicationKey id!
GetDeduplicationJobId queue! deduplicationId!
RemoveDeduplicationKey queue! deduplicationId!
PromoteJobs queue! count[0..9007199254740991]
Pause queue!
Resume queue!
IsPaused queue!
Drain queue! delayed
Obliterate queue!
Clean queue! grace![0..9007199254740991] state limit[0..1000000]=1000
ListQueues prefix sort order limit[0..1000] after fields
Dlq queue! count[0..1000]=100 filter
RetryDlq queue! jobId count[0..9007199254740991] filter
PurgeDlq queue!
DlqGroups queue by limit[1..1000]=100
Bulk action! queue ids filter delay[0..31536000000] priority[-1000000..1000000] \
limit[0..9007199254740991] dryRun
GetTask task!
ListTasks
CancelTask task!
GetDlqStats queue!
SetDlqConfig queue! config!
GetDlqConfig queue!
SetStallConfig queue! config!
GetStallConfig queue!
RetryCompleted queue! id count[0..9007199254740991] timestamp[0..9007199254740991]
RemoveDlqJob queue! jobId!
Cron name! queue! data! schedule repeatEvery[1..9007199254740991] priority[-1000000..1000000]=0 \
maxLimit[1..9007199254740991] timezone jobName uniqueKey dedup immediately skipIfNoWorker \
skipMissedOnRestart preventOverlap jobOptions
CronDelete name!
CronGet name!
CronTrigger name!
SetCronEnabled name! enabled!
CronPreview name schedule repeatEvery[1..9007199254740991] timezone count[1..100]=5 \
from[0..9007199254740991]
CronList
Stats
Metrics queue type start[0..9007199254740991]=0 end[-1..9007199254740991]=-1
History queue series step[10000..86400000]=10000 points[1..1440]=360 until[0..9007199254740991]
Heatmap queue shard[0..65535] step[10000..86400000]=10000 points[1..1440]=360 \
until[0..9007199254740991]
Shards
Watch what every[1000..60000]=1000 top[1..100]=20
Unwatch
Prometheus queues
StorageStatus
CompactMemory
Doctor
GetSettings
DashboardOverview
DashboardQueues
DashboardQueue queue! includeJobs jobsLimit[0..1000]=10
BackupPoint
RegisterWorker name! queues! workerId concurrency[0..9007199254740991] hostname \
pid[0..9007199254740991]
UnregisterWorker workerId!
ListWorkers queue after limit[1..1000]
AddWebhook url! events! queue secret
RemoveWebhook webhookId!
SetWebhookEnabled id! enabled!
TestWebhook id!
WebhookDeliveries id! limit[1..50]=50
ListWebhooks
RateLimit queue! limit![1..4294967295] duration[1..86400000]=1000 ttl[1..31536000000]
RateLimitClear queue!
SetConcurrency queue! limit![1..4294967295]
ClearConcurrency queue!
GetQueueLimits queue! maxJobs[1..4294967295]=1
GetGroupsJobsCount queue!
GetGroupJobsCount queue! groupId!
GetGroupActiveCount queue! groupId!
GetGroups queue! limit[0..1000]=100 after
SetGroupRateLimit queue! groupId! max![1..9007199254740991] duration![1..9007199254740991]
GetGroupRateLimit queue! groupId!
RemoveGroupRateLimit queue! groupId!
GetGroupRateLimitTtl queue! groupId! maxJobs[0..9007199254740991]
SetGroupConcurrency queue! groupId! concurrency![1..9007199254740991]
GetGroupConcurrency queue! groupId!
RemoveGroupConcurrency queue! groupId!
SetGroupWeight queue! groupId! weight![1..1000]
GetGroupWeight queue! groupId!
PauseGroup queue! groupId!
ResumeGroup queue! groupId!
IsGroupPaused queue! groupId!
RateLimitGroup queue! groupId! duration![1..9007199254740991]
TrimEvents queue! maxLength![0..9007199254740991]
SubscribeEvents queue!
UnsubscribeEvents
Subscribe queues types events jobs sample[1..1000000]=1 data named ids lastEventId
Unsubscribe events
Hello protocolVersion![1..9007199254740991] capabilities
Auth token!
Whoami
AuditLog limit[1..1000]=100 before[1..9007199254740991]
";
    let mut listed = String::new();
    for spec in COMMANDS {
        use corq::api::commands::{Kind, Preset};
        use std::fmt::Write;
        listed.push_str(spec.name);
        for field in spec.fields {
            write!(listed, " {}", field.name).unwrap();
            if field.required {
                listed.push('!');
            }
            if let Kind::Integer { min, max } = field.kind {
                write!(listed, "[{min}..{max}]").unwrap();
            }
            if let Preset::Integer(default) = field.default {
                write!(listed, "={default}").unwrap();
            }
        }
        listed.push('\n');
    }
    assert_eq!(listed, expected);
}

#[test]
fn commands_on_one_queue_carry_its_name() {
    let expected: [(&str, Body<'_>); 15] = [
        ("GetJobCounts", Body::GetJobCounts { queue: "q" }),
        ("GetCountsPerPriority", Body::GetCountsPerPriority { queue: "q" }),
        ("Count", Body::Count { queue: "q" }),
        ("Pause", Body::Pause { queue: "q" }),
        ("Resume", Body::Resume { queue: "q" }),
        ("IsPaused", Body::IsPaused { queue: "q" }),
        ("Drain", Body::Drain { queue: "q", delayed: None }),
        ("Obliterate", Body::Obliterate { queue: "q" }),
        ("PurgeDlq", Body::PurgeDlq { queue: "q" }),
        ("RateLimitClear", Body::RateLimitClear { queue: "q" }),
        ("ClearConcurrency", Body::ClearConcurrency { queue: "q" }),
        ("Dlq", Body::Dlq { queue: "q", count: 100, filter: None }),
        ("GetDlqStats", Body::GetDlqStats { queue: "q" }),
        ("GetDlqConfig", Body::GetDlqConfig { queue: "q" }),
        ("GetStallConfig", Body::GetStallConfig { queue: "q" }),
    ];
    for (name, body) in expected {
        means(name, &[("queue", "q".into())], &body);
        assert_eq!(
            refused(&command(name, &[("queue", "a b".into())])),
            "queue must be 1 to 256 characters: letters, digits, _ - . :"
        );
    }
}

#[test]
fn commands_on_one_job_carry_its_id_or_the_clients_own() {
    type Make = fn(JobRef<'static>) -> Body<'static>;
    let expected: [(&str, Make); 7] = [
        ("GetJob", |job| Body::GetJob { job }),
        ("GetState", |job| Body::GetState { job }),
        ("GetResult", |job| Body::GetResult { job }),
        ("GetProgress", |job| Body::GetProgress { job }),
        ("Cancel", |job| Body::Cancel { job }),
        ("Promote", |job| Body::Promote { job }),
        ("Discard", |job| Body::Discard {
            job,
            token: None,
            error: "",
            cause: corq_shards::dead_letter::reason::Cause::Unknown,
            attempts: None,
        }),
    ];
    for (name, make) in expected {
        means(name, &[("id", JOB_ID.into())], &make(JOB));
        means(name, &[("id", "order-7".into())], &make(JobRef::Custom("order-7")));
    }
}

#[test]
fn only_the_exact_text_of_a_version_7_id_is_an_id() {
    for other in [
        "0190163D-8694-739B-AEA5-966C26F8A787",
        "0190163d-8694-439b-aea5-966c26f8a787",
        "0190163d-8694-739b-2ea5-966c26f8a787",
        "0190163d8694739baea5966c26f8a787",
        "0190163d-8694-739b-aea5-966c26f8a78",
        "0190163d-8694-739b-aea5-966c26f8a78g",
        "0190163d-8694-739b-aea50966c26f8a787",
    ] {
        means("GetJob", &[("id", other.into())], &Body::GetJob { job: JobRef::Custom(other) });
    }
}

#[test]
fn plain_commands_take_no_fields() {
    for (name, body) in [
        ("Ping", Body::Ping {}),
        ("Whoami", Body::Whoami {}),
        ("AuditLog", Body::AuditLog { limit: 100, before: None }),
        ("ListQueues", Body::ListQueues { page: None }),
        ("CronList", Body::CronList {}),
        ("Stats", Body::Stats {}),
        ("Metrics", Body::Metrics { queue: None, of: Finished::Completed, start: 0, end: None }),
        ("Shards", Body::Shards {}),
        ("Watch", Body::Watch { what: None, every_ms: 1000, top: 20 }),
        ("Unwatch", Body::Unwatch {}),
        ("Prometheus", Body::Prometheus { queues: None }),
        ("BackupPoint", Body::BackupPoint {}),
        ("StorageStatus", Body::StorageStatus {}),
        ("CompactMemory", Body::CompactMemory {}),
        ("Doctor", Body::Doctor {}),
        ("GetSettings", Body::GetSettings {}),
        ("DashboardOverview", Body::DashboardOverview {}),
        ("DashboardQueues", Body::DashboardQueues {}),
        ("ListWorkers", Body::ListWorkers { queue: None, after: None, limit: None }),
        ("ListWebhooks", Body::ListWebhooks {}),
    ] {
        means(name, &[], &body);
    }
}

#[test]
fn commands_with_numbers_carry_them() {
    let id = ("id", JOB_ID.into());
    let queue = ("queue", "q".into());
    means("WaitJob", std::slice::from_ref(&id), &Body::WaitJob { job: JOB, timeout_ms: 30_000 });
    means(
        "ChangePriority",
        &[id.clone(), ("priority", (-5).into())],
        &Body::ChangePriority { job: JOB, priority: -5, lifo: None },
    );
    means(
        "ChangePriority",
        &[id.clone(), ("priority", 1.into()), ("lifo", false.into())],
        &Body::ChangePriority { job: JOB, priority: 1, lifo: Some(false) },
    );
    means(
        "MoveToDelayed",
        &[id.clone(), ("delay", 31_536_000_000_f64.into())],
        &Body::MoveToDelayed { job: JOB, delay_ms: 31_536_000_000, token: None },
    );
    means(
        "RateLimit",
        &[queue.clone(), ("limit", 10.into())],
        &Body::RateLimit { queue: "q", limit: 10, span_ms: 1000, ttl_ms: None },
    );
    means(
        "SetConcurrency",
        &[queue.clone(), ("limit", 10.into())],
        &Body::SetConcurrency { queue: "q", limit: 10 },
    );
    means(
        "RetryDlq",
        &[queue.clone(), ("jobId", "c".into()), ("count", 3.into())],
        &Body::RetryDlq {
            queue: "q",
            job: Some(JobRef::Custom("c")),
            count: Some(3),
            filter: None,
        },
    );
    means(
        "RetryCompleted",
        &[queue, ("id", JOB_ID.into())],
        &Body::RetryCompleted { queue: "q", job: Some(JOB), count: None, until_ms: None },
    );
    means(
        "Hello",
        &[("protocolVersion", 2.into()), ("capabilities", strings(&[]))],
        &Body::Hello {
            protocol_version: 2,
            capabilities: corq::protocol::msgpack::Texts::default(),
        },
    );
}

#[test]
fn a_span_is_so_many_points_until_a_time() {
    let until = Value::from(1.7e12);
    means(
        "History",
        &[("queue", "q".into()), ("series", strings(&["waitP99", "pushed"])), ("until", until)],
        &Body::History {
            queue: Some("q"),
            series: Some(StateFilter(1 | 1 << 5)),
            point_ms: 10_000,
            points: 360,
            until_ms: Some(1_700_000_000_000),
        },
    );
    means(
        "Heatmap",
        &[("shard", 3.into()), ("step", 60_000.into()), ("points", 1440.into())],
        &Body::Heatmap {
            queue: None,
            shard: Some(3),
            point_ms: 60_000,
            points: 1440,
            until_ms: None,
        },
    );
    let series = "pushed, completed, failed, waiting, waitP50, waitP99, runP50, runP99";
    let wrong = command("History", &[("series", strings(&["pushed", "pulled"]))]);
    assert_eq!(refused(&wrong), format!("series[1] must be one of {series}"));
}

#[test]
fn states_come_alone_or_as_a_list() {
    let queue = ("queue", Value::from("q"));
    let all = StateFilter::WAITING | StateFilter::WAITING_CHILDREN;
    for (state, states) in [
        (Value::Nil, None),
        (strings(&[]), None),
        ("delayed".into(), Some(StateFilter::DELAYED)),
        ("active".into(), Some(StateFilter::ACTIVE)),
        ("completed".into(), Some(StateFilter::COMPLETED)),
        ("failed".into(), Some(StateFilter::FAILED)),
        (strings(&["waiting-children", "waiting"]), Some(all)),
    ] {
        let states = states.map(StateFilter);
        means(
            "GetJobs",
            &[queue.clone(), ("state", state.clone())],
            &Body::GetJobs {
                queue: "q",
                states,
                limit: 100,
                offset: 0,
                oldest_first: None,
                page: None,
            },
        );
        means(
            "Clean",
            &[queue.clone(), ("grace", 5.into()), ("state", state)],
            &Body::Clean { queue: "q", grace_ms: 5, states, limit: 1000 },
        );
    }
    let listed = strings(&["paused", "prioritized"]);
    let states = Some(StateFilter(StateFilter::PRIORITIZED | StateFilter::PAUSED));
    means(
        "GetJobs",
        &[queue.clone(), ("state", listed.clone())],
        &Body::GetJobs {
            queue: "q",
            states,
            limit: 100,
            offset: 0,
            oldest_first: None,
            page: None,
        },
    );
    let states = "waiting, delayed, active, completed, failed, waiting-children";
    let wrong = command("GetJobs", &[queue.clone(), ("state", strings(&["waiting", "lost"]))]);
    assert_eq!(
        refused(&wrong),
        format!("state[1] must be one of {states}, prioritized, paused, wait")
    );
    let wrong = command("Clean", &[queue, ("grace", 5.into()), ("state", "lost".into())]);
    assert_eq!(
        refused(&wrong),
        format!("state must be one of {states}, prioritized, paused, wait")
    );
}

#[test]
fn logs_have_a_level() {
    for (level, expected) in [
        (Value::Nil, Level::Info),
        ("info".into(), Level::Info),
        ("warn".into(), Level::Warn),
        ("error".into(), Level::Error),
    ] {
        means(
            "AddLog",
            &[("id", JOB_ID.into()), ("message", "hello".into()), ("level", level)],
            &Body::AddLog { job: JOB, message: "hello", level: expected },
        );
    }
    let wrong = [("id", "c".into()), ("message", "m".into()), ("level", "debug".into())];
    assert_eq!(refused(&command("AddLog", &wrong)), "level must be one of info, warn, error");
}

#[test]
fn schedules_have_exactly_one_cadence() {
    let base = [("name", "nightly".into()), ("queue", "q".into()), ("data", 7.into())];
    let expected = Cron {
        name: "nightly",
        queue: "q",
        data: &[7],
        every: Cadence::Expression("0 3 * * *"),
        priority: 0,
        runs_max: None,
        timezone: None,
        job: None,
        rules: CronRules::default(),
    };
    let mut fields = base.to_vec();
    fields.push(("schedule", "0 3 * * *".into()));
    means("Cron", &fields, &Body::Cron { cron: expected.clone() });
    fields.push(("repeatEvery", 5.into()));
    assert_eq!(
        refused(&command("Cron", &fields)),
        "schedule and repeatEvery must not both be given"
    );
    let mut fields = base.to_vec();
    fields.extend([
        ("repeatEvery", 5.into()),
        ("priority", 2.into()),
        ("maxLimit", 9.into()),
        ("timezone", "Europe/Berlin".into()),
        ("jobName", "report".into()),
    ]);
    let job = NewJob { name: Some("report"), ..NewJob::default() };
    let interval = Cron {
        job: Some(Box::new(job)),
        every: Cadence::Interval(5),
        priority: 2,
        runs_max: Some(9),
        timezone: Some("Europe/Berlin"),
        ..expected
    };
    means("Cron", &fields, &Body::Cron { cron: interval });
    assert_eq!(refused(&command("Cron", &base)), "schedule or repeatEvery is required");
}

#[test]
fn workers_and_webhooks_carry_their_lists() {
    let frame = command(
        "RegisterWorker",
        &[
            ("workerId", "w1".into()),
            ("name", "mailer".into()),
            ("queues", strings(&["a", "b"])),
            ("pid", 77.into()),
            ("startedAt", 1.7e12.into()),
        ],
    );
    let Body::RegisterWorker { name, queues, worker_id, concurrency, hostname, pid } =
        accepted(&frame)
    else {
        panic!()
    };
    assert_eq!((concurrency, hostname, pid), (None, None, Some(77)));
    assert_eq!((name, worker_id), ("mailer", Some("w1")));
    assert_eq!(queues.iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(queues.raw(), pack(&strings(&["a", "b"])));

    let frame = command(
        "AddWebhook",
        &[("url", "https://x.example/".into()), ("events", strings(&["job.failed"]))],
    );
    let Body::AddWebhook { url, events, queue, secret } = accepted(&frame) else { panic!() };
    assert_eq!((url, queue, secret), ("https://x.example/", None, None));
    assert_eq!(events.iter().collect::<Vec<_>>(), ["job.failed"]);

    let wrong = [("url", "u".into()), ("events", strings(&["job.completed", "job.lost"]))];
    assert_eq!(
        refused(&command("AddWebhook", &wrong)),
        "events[1] must be one of job.completed, job.failed, job.progress, job.active, \
         job.waiting, job.delayed, job.stalled, job.pushed, job.started"
    );
    let wrong = [("name", "w".into()), ("queues", strings(&["a", "b c"]))];
    assert_eq!(
        refused(&command("RegisterWorker", &wrong)),
        "queues[1] must be 1 to 256 characters: letters, digits, _ - . :"
    );
}

#[test]
fn single_texts_go_where_they_belong() {
    means("Auth", &[("token", "".into())], &Body::Auth { token: "" });
    let (active, processed, failed) = (None, None, None);
    means(
        "Heartbeat",
        &[("id", "w".into())],
        &Body::Heartbeat { worker_id: "w", active, processed, failed },
    );
    means("GetJobByCustomId", &[("customId", "c".into())], &Body::GetJobByCustomId { name: "c" });
    means("CronDelete", &[("name", "n".into())], &Body::CronDelete { name: "n" });
    means(
        "UnregisterWorker",
        &[("workerId", "w".into())],
        &Body::UnregisterWorker { worker_id: "w" },
    );
    means("RemoveWebhook", &[("webhookId", "h".into())], &Body::RemoveWebhook { id: "h" });
    means(
        "Update",
        &[("id", JOB_ID.into()), ("data", 1.into())],
        &Body::Update { job: JOB, data: &[1] },
    );
}

#[test]
fn unknown_and_missing_commands_are_named() {
    assert_eq!(refused(&command("Explode", &[])), "Unknown command: Explode");
    assert_eq!(refused(&command("push", &[])), "Unknown command: push");
    assert_eq!(refused(&pack(&map(&[("queue", "q".into())]))), "cmd is required");
    assert_eq!(refused(&pack(&map(&[]))), "cmd is required");
    assert_eq!(refused(&pack(&map(&[("cmd", Value::Nil)]))), "cmd is required");
    assert_eq!(refused(&pack(&map(&[("cmd", 1.into())]))), "cmd must be a string");
    let long = command(&"é".repeat(1000), &[]);
    assert_eq!(refused(&long), format!("Unknown command: {}", "é".repeat(32)));
    let twice = map(&[("cmd", "Ping".into()), ("cmd", "Ping".into())]);
    assert_eq!(refused(&pack(&twice)), "cmd must be given only once");
    let late = map(&[("cmd", Value::Nil), ("x", 1.into()), ("cmd", "Ping".into())]);
    accepted(&pack(&late));
}
