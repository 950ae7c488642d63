//! What each command means, written by hand, so that the table cannot be wrong in silence.

use corq::api::request::{
    Ack, AddWebhook, Answer, Body, Cadence, Cron, Fail, GroupAsk, JobRef, Pull, RegisterWorker,
    StateFilter,
};
use corq::api::spec::COMMANDS;
use corq_shards::changed::Level;
use corq_shards::command::{GroupLimit, GroupPull, NewJob, Only, Stack, Token};
use corq_shards::cron_record::CronRules;
use corq_shards::group::GroupRate;
use corq_shards::id::JobId;
use rmpv::Value;

use crate::{JOB_ID, accepted, command, map, pack, refused, strings, undefined};

const JOB: JobRef<'static> = JobRef::Id(JobId(0x0190_163d_8694_739b_aea5_966c_26f8_a787));
const TOKEN: Token = Token(0x2f1d_7e64_0c55_4d0a_9b1e_0011_2233_4455);
const TOKEN_TEXT: &str = "2f1d7e64-0c55-4d0a-9b1e-001122334455";

/// Decodes and shows a command, so that it can be compared as text.
fn shown(name: &str, fields: &[(&str, Value)]) -> String {
    format!("{:?}", accepted(&command(name, fields)))
}

#[track_caller]
fn means(name: &str, fields: &[(&str, Value)], expected: &Body<'_>) {
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
failParentOnFailure continueParentOnFailure ignoreDependencyOnFailure removeDependencyOnFailure
ACK id! result token removeOnComplete
PULL queue! timeout[0..60000]=0 owner lockTtl[1..86400000]=30000 detach group
PUSHB queue! jobs!
PULLB queue! count![1..1000] timeout[0..60000]=0 owner lockTtl[1..86400000]=30000 detach group
ACKB ids! results tokens removeOnCompletes
FAIL id! error token unrecoverable stack removeOnFail
JobHeartbeat id! token
JobHeartbeatB ids! tokens
Progress id! progress! message
AddLog id! message! level
Ping
Heartbeat id!
WaitJob id! timeout[0..600000]=30000
GetJob id!
GetState id!
GetResult id!
GetProgress id!
GetLogs id! start[0..9007199254740991]=0 end[-1..9007199254740991]=-1
GetJobByCustomId customId!
GetJobs queue! state limit[0..1000]=100 offset[0..9007199254740991]=0 asc
GetJobCounts queue!
GetCountsPerPriority queue!
Count queue!
Cancel id!
Update id! data!
ChangePriority id! priority![-1000000..1000000] lifo
Promote id!
MoveToDelayed id! delay![0..31536000000]
Discard id!
ExtendLock id! token duration![1..86400000]
ExtendLocks ids! tokens durations!
MoveToWait id! token
ChangeDelay id! delay![0..31536000000] token
PUSHF jobs!
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
Drain queue!
Obliterate queue!
Clean queue! grace![0..9007199254740991] state limit[0..1000000]=1000
ListQueues
Dlq queue! count[0..1000]=100 filter
RetryDlq queue! jobId count[0..9007199254740991] filter
PurgeDlq queue!
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
CronList
Stats
Metrics queue type start[0..9007199254740991]=0 end[-1..9007199254740991]=-1
Prometheus
BackupPoint
RegisterWorker name! queues! workerId
UnregisterWorker workerId!
ListWorkers
AddWebhook url! events! queue secret
RemoveWebhook webhookId!
SetWebhookEnabled id! enabled!
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
Hello protocolVersion![1..9007199254740991] capabilities
Auth token!
";
    let mut listed = String::new();
    for spec in COMMANDS {
        use corq::api::spec::{Kind, Preset};
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
        ("GetJobCounts", Body::GetJobCounts("q")),
        ("GetCountsPerPriority", Body::GetCountsPerPriority("q")),
        ("Count", Body::Count("q")),
        ("Pause", Body::Pause("q")),
        ("Resume", Body::Resume("q")),
        ("IsPaused", Body::IsPaused("q")),
        ("Drain", Body::Drain("q")),
        ("Obliterate", Body::Obliterate("q")),
        ("PurgeDlq", Body::PurgeDlq("q")),
        ("RateLimitClear", Body::RateLimitClear("q")),
        ("ClearConcurrency", Body::ClearConcurrency("q")),
        ("Dlq", Body::Dlq { queue: "q", count: 100, filter: None }),
        ("GetDlqStats", Body::GetDlqStats("q")),
        ("GetDlqConfig", Body::GetDlqConfig("q")),
        ("GetStallConfig", Body::GetStallConfig("q")),
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
        ("GetJob", Body::GetJob),
        ("GetState", Body::GetState),
        ("GetResult", Body::GetResult),
        ("GetProgress", Body::GetProgress),
        ("Cancel", Body::Cancel),
        ("Promote", Body::Promote),
        ("Discard", Body::Discard),
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
        means("GetJob", &[("id", other.into())], &Body::GetJob(JobRef::Custom(other)));
    }
}

#[test]
fn plain_commands_take_no_fields() {
    for (name, body) in [
        ("Ping", Body::Ping),
        ("ListQueues", Body::ListQueues),
        ("CronList", Body::CronList),
        ("Stats", Body::Stats),
        ("Metrics", Body::Metrics),
        ("Prometheus", Body::Prometheus),
        ("BackupPoint", Body::BackupPoint),
        ("ListWorkers", Body::ListWorkers),
        ("ListWebhooks", Body::ListWebhooks),
    ] {
        means(name, &[], &body);
    }
}

#[test]
fn pulls_with_an_owner_are_locked() {
    let plain = Pull {
        queue: "q",
        count: 1,
        timeout_ms: 0,
        owner: None,
        lock_ttl_ms: 30_000,
        detach: false,
        group: None,
    };
    means("PULL", &[("queue", "q".into())], &Body::Pull(plain));
    assert!(!plain.command().locked);
    let owned = Pull {
        count: 50,
        timeout_ms: 60_000,
        owner: Some("w 1"),
        lock_ttl_ms: 5,
        detach: true,
        ..plain
    };
    assert!(owned.command().locked);
    let fields = [
        ("queue", "q".into()),
        ("count", 50.0.into()),
        ("timeout", 60_000.into()),
        ("owner", "w 1".into()),
        ("lockTtl", 5.into()),
        ("detach", true.into()),
    ];
    means("PULLB", &fields, &Body::PullBatch(owned));
    let count = [("queue", "q".into()), ("count", 0.into())];
    assert_eq!(refused(&command("PULLB", &count)), "count must be between 1 and 1000");
}

#[test]
fn pulls_say_what_they_want_of_groups() {
    let pull = |group: Value| {
        let frame = command("PULL", &[("queue", "q".into()), ("group", group)]);
        let Body::Pull(pull) = accepted(&frame) else { panic!("not a pull") };
        format!("{:?}", pull.group)
    };
    let shown = |group: GroupPull<'_>| format!("{:?}", Some(group));
    let any = GroupPull::default();
    assert_eq!(pull(map(&[])), shown(any));
    assert_eq!(pull(Value::Nil), "None");
    let limit = map(&[("max", 20.into()), ("duration", 1000.0.into())]);
    let all = [("concurrency", 2.into()), ("limit", limit), ("affinity", "a".into())];
    let rate = Some(GroupRate { jobs: 20, span_ms: 1000 });
    let expected = GroupPull { active_max: Some(2), rate, only: Only::Group("a") };
    assert_eq!(pull(map(&all)), shown(expected));
    // Null is a wish of its own here, what a client leaves undefined is none.
    let ungrouped = GroupPull { only: Only::Ungrouped, ..any };
    assert_eq!(pull(map(&[("affinity", Value::Nil)])), shown(ungrouped));
    assert_eq!(pull(map(&[("affinity", undefined())])), shown(any));
    let wrong =
        |group: Value| refused(&command("PULL", &[("queue", "q".into()), ("group", group)]));
    assert_eq!(wrong(7.into()), "group must be an object");
    assert_eq!(wrong(map(&[("affinity", 7.into())])), "group.affinity must be a string");
    assert_eq!(
        wrong(map(&[("limit", map(&[("max", 1.into())]))])),
        "group.limit.duration is required"
    );
    assert_eq!(
        wrong(map(&[("concurrency", 0.into())])),
        "group.concurrency must be between 1 and 9007199254740991"
    );
    assert_eq!(
        wrong(map(&[("affinity", Value::Nil), ("affinity", "a".into())])),
        "group.affinity must be given only once"
    );
}

/// A command on a group, its numbers, and what is understood.
type Row<'a> = (&'a str, &'a [(&'a str, i64)], GroupAsk);

#[test]
fn commands_on_a_group_name_it_and_what_they_want() {
    let (queue, group) = ("q", "a");
    let set = |limit, answer| GroupAsk::Set { limit, answer };
    let rate = GroupRate { jobs: 3, span_ms: 50 };
    let rows: &[Row<'_>] = &[
        ("GetGroupJobsCount", &[], GroupAsk::JobsCount),
        ("GetGroupActiveCount", &[], GroupAsk::ActiveCount),
        ("GetGroupRateLimit", &[], GroupAsk::RateLimit),
        ("GetGroupRateLimitTtl", &[], GroupAsk::RateLimitTtl { jobs: None }),
        ("GetGroupRateLimitTtl", &[("maxJobs", 4)], GroupAsk::RateLimitTtl { jobs: Some(4) }),
        ("GetGroupConcurrency", &[], GroupAsk::Concurrency),
        ("GetGroupWeight", &[], GroupAsk::Weight),
        ("IsGroupPaused", &[], GroupAsk::IsPaused),
        (
            "SetGroupRateLimit",
            &[("max", 3), ("duration", 50)],
            set(GroupLimit::Rate(Some(rate)), Answer::Ok),
        ),
        ("RemoveGroupRateLimit", &[], set(GroupLimit::Rate(None), Answer::Removed)),
        (
            "SetGroupConcurrency",
            &[("concurrency", 5)],
            set(GroupLimit::Active(Some(5)), Answer::Ok),
        ),
        ("RemoveGroupConcurrency", &[], set(GroupLimit::Active(None), Answer::Removed)),
        ("SetGroupWeight", &[("weight", 6)], set(GroupLimit::Weight(6), Answer::Ok)),
        ("PauseGroup", &[], set(GroupLimit::Paused(true), Answer::Changed)),
        ("ResumeGroup", &[], set(GroupLimit::Paused(false), Answer::Changed)),
        ("RateLimitGroup", &[("duration", 7)], set(GroupLimit::Hold(7), Answer::Ok)),
    ];
    for &(name, numbers, ask) in rows {
        let mut fields = vec![("queue", queue.into()), ("groupId", group.into())];
        fields.extend(numbers.iter().map(|(name, number)| (*name, Value::from(*number))));
        means(name, &fields, &Body::Group { queue, group, ask });
    }
    means("GetGroupsJobsCount", &[("queue", "q".into())], &Body::GetGroupsJobsCount("q"));
    let fields = [("queue", "q".into()), ("limit", 5.into()), ("after", "x".into())];
    means("GetGroups", &fields, &Body::GetGroups { queue, limit: 5, after: Some("x") });
}

#[test]
fn acks_carry_result_and_token() {
    means(
        "ACK",
        &[("id", JOB_ID.into())],
        &Body::Ack(Ack { job: JOB, token: None, result: &[], remove: false }),
    );
    let result = map(&[("n", 1.into())]);
    means(
        "ACK",
        &[("id", "c".into()), ("token", TOKEN_TEXT.into()), ("result", result.clone())],
        &Body::Ack(Ack {
            job: JobRef::Custom("c"),
            token: Some(TOKEN),
            result: &pack(&result),
            remove: false,
        }),
    );
    for (text, token) in [
        ("", None),
        ("nonsense", Some(Token::UNREADABLE)),
        ("2F1D7E64-0C55-4D0A-9B1E-001122334455", Some(TOKEN)),
    ] {
        means(
            "JobHeartbeat",
            &[("id", JOB_ID.into()), ("token", text.into())],
            &Body::JobHeartbeat { job: JOB, token },
        );
    }
}

#[test]
fn failures_keep_the_front_of_a_long_error() {
    means(
        "FAIL",
        &[("id", JOB_ID.into()), ("stack", strings(&["at x"])), ("unrecoverable", true.into())],
        &Body::Fail(Fail {
            remove: false,
            job: JOB,
            token: None,
            error: "",
            unrecoverable: true,
            stack: Stack { lines: 1, texts: b"\xa4at x" },
        }),
    );
    // 65536 lies within the third byte of a three-byte character.
    let long = "\u{20ac}".repeat(30_000);
    let frame = command("FAIL", &[("id", "c".into()), ("error", long.as_str().into())]);
    let Body::Fail(fail) = accepted(&frame) else { panic!() };
    assert_eq!(fail.error, &long[..65_535]);
    let lines = vec!["x".repeat(20_000); 5];
    let lines = lines.iter().map(String::as_str).collect::<Vec<_>>();
    let frame = command("FAIL", &[("id", "c".into()), ("stack", strings(&lines))]);
    let Body::Fail(fail) = accepted(&frame) else { panic!() };
    assert_eq!((fail.stack.lines, fail.stack.texts.len()), (3, 3 * 20_003), "the first that fit");
    let wrong = command("FAIL", &[("id", "c".into()), ("stack", "at x".into())]);
    assert_eq!(refused(&wrong), "stack must be a list of strings");
    let wrong = command("FAIL", &[("id", "c".into()), ("stack", Value::Array(vec![7.into()]))]);
    assert_eq!(refused(&wrong), "stack[0] must be a string");
    let number = command("FAIL", &[("id", "c".into()), ("error", 7.into())]);
    assert_eq!(refused(&number), "error must be a string");
}

#[test]
fn batches_keep_tokens_and_results_with_their_ids() {
    let frame = command(
        "ACKB",
        &[
            ("tokens", Value::Array(vec![TOKEN_TEXT.into(), "".into()])),
            ("results", Value::Array(vec![Value::Nil, 7.into(), crate::undefined()])),
            ("ids", strings(&[JOB_ID, "b", "c"])),
        ],
    );
    let Body::AckBatch(batch) = accepted(&frame) else { panic!() };
    let acks: Vec<_> = batch.acks().collect();
    assert_eq!(
        acks,
        [
            Ack { job: JOB, token: Some(TOKEN), result: &[], remove: false },
            Ack { job: JobRef::Custom("b"), token: None, result: &[7], remove: false },
            Ack { job: JobRef::Custom("c"), token: None, result: &[], remove: false },
        ]
    );
    let ids = ("ids", strings(&["a"]));
    let two = strings(&["x", "y"]);
    for (name, field, error) in [
        ("ACKB", "tokens", "tokens must not be longer than ids"),
        ("JobHeartbeatB", "tokens", "tokens must not be longer than ids"),
        ("ACKB", "results", "results must have the same length as ids"),
    ] {
        assert_eq!(refused(&command(name, &[ids.clone(), (field, two.clone())])), error);
    }
    let none = command("ACKB", &[ids.clone(), ("results", Value::Array(vec![]))]);
    assert_eq!(refused(&none), "results must have the same length as ids");
    let bad = command("ACKB", &[("ids", Value::Array(vec!["a".into(), 5.into()]))]);
    assert_eq!(refused(&bad), "ids[1] must be a string of 1 to 256 characters");
    let token = command("ACKB", &[ids, ("tokens", Value::Array(vec![5.into()]))]);
    assert_eq!(refused(&token), "tokens[0] must be a string");
    let frame = command("JobHeartbeatB", &[("ids", strings(&[]))]);
    let Body::JobHeartbeatBatch(empty) = accepted(&frame) else { panic!() };
    assert!(empty.ids.is_empty());
}

#[test]
fn progress_may_be_a_fraction() {
    for (value, progress) in [(Value::from(50), 50.0), (Value::from(12.5), 12.5)] {
        means(
            "Progress",
            &[("id", JOB_ID.into()), ("progress", value), ("message", "half".into())],
            &Body::Progress { job: JOB, progress, message: Some("half") },
        );
    }
    let over = command("Progress", &[("id", "c".into()), ("progress", 101.into())]);
    assert_eq!(refused(&over), "progress must be between 0 and 100");
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
        &Body::MoveToDelayed { job: JOB, delay_ms: 31_536_000_000 },
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
            &Body::GetJobs { queue: "q", states, limit: 100, offset: 0, newest_first: false },
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
        &Body::GetJobs { queue: "q", states, limit: 100, offset: 0, newest_first: false },
    );
    let states = "waiting, delayed, active, completed, failed, waiting-children";
    let wrong = command("GetJobs", &[queue.clone(), ("state", strings(&["waiting", "lost"]))]);
    assert_eq!(refused(&wrong), format!("state[1] must be one of {states}, prioritized, paused"));
    let wrong = command("Clean", &[queue, ("grace", 5.into()), ("state", listed)]);
    assert_eq!(refused(&wrong), format!("state[0] must be one of {states}"));
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
    means("Cron", &fields, &Body::Cron(expected.clone()));
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
    means("Cron", &fields, &Body::Cron(interval));
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
    let Body::RegisterWorker(RegisterWorker { name, queues, worker_id }) = accepted(&frame) else {
        panic!()
    };
    assert_eq!((name, worker_id), ("mailer", Some("w1")));
    assert_eq!(queues.iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(queues.raw(), pack(&strings(&["a", "b"])));

    let frame = command(
        "AddWebhook",
        &[("url", "https://x.example/".into()), ("events", strings(&["job.failed"]))],
    );
    let Body::AddWebhook(AddWebhook { url, events, queue, secret }) = accepted(&frame) else {
        panic!()
    };
    assert_eq!((url, queue, secret), ("https://x.example/", None, None));
    assert_eq!(events.iter().collect::<Vec<_>>(), ["job.failed"]);

    let wrong = [("url", "u".into()), ("events", strings(&["job.completed", "job.lost"]))];
    assert_eq!(
        refused(&command("AddWebhook", &wrong)),
        "events[1] must be one of job.completed, job.failed, job.progress, job.active, \
         job.waiting, job.delayed, job.stalled"
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
    means("Heartbeat", &[("id", "w".into())], &Body::Heartbeat { worker_id: "w" });
    means("GetJobByCustomId", &[("customId", "c".into())], &Body::GetJobByCustomId("c"));
    means("CronDelete", &[("name", "n".into())], &Body::CronDelete("n"));
    means("UnregisterWorker", &[("workerId", "w".into())], &Body::UnregisterWorker("w"));
    means("RemoveWebhook", &[("webhookId", "h".into())], &Body::RemoveWebhook("h"));
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
