//! Meaning of the commands of workers: pulls, acks, failures, progress; and of those on groups.

use corq::api::request::{Ack, Body, JobRef, Pull};
use corq_shards::command::{GroupPull, Only, Stack, Token};
use corq_shards::group::GroupRate;
use rmpv::Value;

use crate::commands::{JOB, TOKEN, TOKEN_TEXT, means};
use crate::{JOB_ID, accepted, command, map, pack, refused, strings, undefined};

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
    means("PULL", &[("queue", "q".into())], &Body::Pull { pull: plain });
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
    means("PULLB", &fields, &Body::PullBatch { pull: owned });
    let count = [("queue", "q".into()), ("count", 0.into())];
    assert_eq!(refused(&command("PULLB", &count)), "count must be between 1 and 1000");
}

#[test]
fn pulls_say_what_they_want_of_groups() {
    let pull = |group: Value| {
        let frame = command("PULL", &[("queue", "q".into()), ("group", group)]);
        let Body::Pull { pull } = accepted(&frame) else { panic!("not a pull") };
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
type Row<'a> = (&'a str, &'a [(&'a str, i64)], Body<'a>);

#[test]
fn commands_on_a_group_name_it_and_what_they_want() {
    let (queue, group) = ("q", "a");
    let (jobs, span_ms, hold_ms) = (3, 50, 7);
    let none = |name, body| (name, &[][..], body);
    let rows: Vec<Row<'_>> = vec![
        none("GetGroupJobsCount", Body::GetGroupJobsCount { queue, group }),
        none("GetGroupActiveCount", Body::GetGroupActiveCount { queue, group }),
        none("GetGroupRateLimit", Body::GetGroupRateLimit { queue, group }),
        none("GetGroupRateLimitTtl", Body::GetGroupRateLimitTtl { queue, group, jobs: None }),
        (
            "GetGroupRateLimitTtl",
            &[("maxJobs", 4)],
            Body::GetGroupRateLimitTtl { queue, group, jobs: Some(4) },
        ),
        none("GetGroupConcurrency", Body::GetGroupConcurrency { queue, group }),
        none("GetGroupWeight", Body::GetGroupWeight { queue, group }),
        none("IsGroupPaused", Body::IsGroupPaused { queue, group }),
        (
            "SetGroupRateLimit",
            &[("max", 3), ("duration", 50)],
            Body::SetGroupRateLimit { queue, group, jobs, span_ms },
        ),
        none("RemoveGroupRateLimit", Body::RemoveGroupRateLimit { queue, group }),
        (
            "SetGroupConcurrency",
            &[("concurrency", 5)],
            Body::SetGroupConcurrency { queue, group, most: 5 },
        ),
        none("RemoveGroupConcurrency", Body::RemoveGroupConcurrency { queue, group }),
        ("SetGroupWeight", &[("weight", 6)], Body::SetGroupWeight { queue, group, weight: 6 }),
        none("PauseGroup", Body::PauseGroup { queue, group }),
        none("ResumeGroup", Body::ResumeGroup { queue, group }),
        ("RateLimitGroup", &[("duration", 7)], Body::RateLimitGroup { queue, group, hold_ms }),
    ];
    for (name, numbers, body) in rows {
        let mut fields = vec![("queue", queue.into()), ("groupId", group.into())];
        fields.extend(numbers.iter().map(|(name, number)| (*name, Value::from(*number))));
        means(name, &fields, &body);
    }
    means("GetGroupsJobsCount", &[("queue", "q".into())], &Body::GetGroupsJobsCount { queue });
    let fields = [("queue", "q".into()), ("limit", 5.into()), ("after", "x".into())];
    means("GetGroups", &fields, &Body::GetGroups { queue, limit: 5, after: Some("x") });
}

#[test]
fn acks_carry_result_and_token() {
    means(
        "ACK",
        &[("id", JOB_ID.into())],
        &Body::Ack { job: JOB, token: None, result: &[], remove: false },
    );
    let result = map(&[("n", 1.into())]);
    means(
        "ACK",
        &[("id", "c".into()), ("token", TOKEN_TEXT.into()), ("result", result.clone())],
        &Body::Ack {
            job: JobRef::Custom("c"),
            token: Some(TOKEN),
            result: &pack(&result),
            remove: false,
        },
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
        &Body::Fail {
            remove: false,
            job: JOB,
            token: None,
            error: "",
            unrecoverable: true,
            stack: Stack { lines: 1, texts: b"\xa4at x" },
        },
    );
    // 65536 lies within the third byte of a three-byte character.
    let long = "\u{20ac}".repeat(30_000);
    let frame = command("FAIL", &[("id", "c".into()), ("error", long.as_str().into())]);
    let Body::Fail { error, .. } = accepted(&frame) else { panic!() };
    assert_eq!(error, &long[..65_535]);
    let lines = vec!["x".repeat(20_000); 5];
    let lines = lines.iter().map(String::as_str).collect::<Vec<_>>();
    let frame = command("FAIL", &[("id", "c".into()), ("stack", strings(&lines))]);
    let Body::Fail { stack, .. } = accepted(&frame) else { panic!() };
    assert_eq!((stack.lines, stack.texts.len()), (3, 3 * 20_003), "the first that fit");
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
    let Body::AckBatch { batch } = accepted(&frame) else { panic!() };
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
    let Body::JobHeartbeatBatch { batch: empty } = accepted(&frame) else { panic!() };
    assert!(empty.ids.is_empty());
}

#[test]
fn progress_may_be_a_fraction() {
    for (value, progress) in [(Value::from(50), 50.0), (Value::from(12.5), 12.5)] {
        means(
            "Progress",
            &[("id", JOB_ID.into()), ("progress", value), ("message", "half".into())],
            &Body::Progress { job: JOB, progress, message: Some(b"half") },
        );
    }
    let over = command("Progress", &[("id", "c".into()), ("progress", 101.into())]);
    assert_eq!(refused(&over), "progress must be between 0 and 100");
}
