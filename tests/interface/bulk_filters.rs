//! Which jobs an action on many reaches, by the filter of its client. The fear: a condition that is lost, and an action that
//! reaches all jobs.

use serde_json::{Value as Json, json};

use crate::interface::bulk_tasks::{figure, fill, fill_by, run};
use crate::support::Start;
use crate::{client, queue};

#[test]
fn a_filter_selects_jobs_as_a_search_does_and_without_states_those_that_the_action_is_for() {
    let (mut c, q) = (client(), queue("bulk-filter"));
    let job = |n: usize| {
        let (name, tag) = (["mail", "sms"][n % 2], ["red", "blue"][n / 2 % 2]);
        let mut job = json!({
            "data": {"user": {"id": n % 10}, "text": format!("user {n}")},
            "name": name,
            "tags": [tag],
        });
        if n.is_multiple_of(3) {
            job["groupId"] = json!("g");
        }
        if n.is_multiple_of(5) {
            job["delay"] = json!(3_600_000);
        }
        job
    };
    fill(&mut c, &q, 60, job);
    let mut matched = |filter: Json, action: &str, is: &dyn Fn(usize) -> bool| {
        let fields =
            json!({"action": action, "queue": q, "filter": filter, "dryRun": true, "delay": 1});
        let task = run(&mut c, fields);
        let expected = (0..60).filter(|&n| is(n)).count() as u64;
        assert_eq!(figure(&task, "matched"), expected, "{action} {filter}: {task}");
        assert_eq!(figure(&task, "changed"), expected, "{action} {filter}: {task}");
    };
    matched(json!({}), "cancel", &|_| true);
    matched(json!({}), "promote", &|n| n % 5 == 0);
    matched(json!({}), "retry", &|_| false);
    matched(json!({"name": "sms"}), "delay", &|n| n % 2 == 1);
    matched(json!({"tag": "blue", "state": "waiting"}), "remove", &|n| n / 2 % 2 == 1 && n % 5 > 0);
    matched(json!({"group": "g", "state": ["delayed"]}), "discard", &|n| n % 15 == 0);
    matched(json!({"text": "user 5"}), "cancel", &|n| n == 5 || n >= 50);
    matched(json!({"path": "user.id", "value": 3}), "cancel", &|n| n % 10 == 3);
    matched(json!({"path": "user.id", "value": "3", "name": "mail"}), "cancel", &|_| false);
    matched(json!({"to": 5}), "cancel", &|_| false);
    matched(json!({"from": 5, "to": 9_007_199_254_740_991_u64}), "cancel", &|_| true);
    matched(json!({"error": "any"}), "remove", &|_| false);
    // With a limit the oldest go.
    let fields =
        json!({"action": "remove", "queue": q, "filter": {"state": "waiting"}, "limit": 7});
    let task = run(&mut c, fields);
    assert_eq!(figure(&task, "changed"), 7, "{task}");
    let left = c.ok("GetJobs", json!({"queue": q, "state": "waiting", "order": "asc"}));
    assert_eq!(left["jobs"][0]["name"], "sms", "the ninth came first of those that are left");
    assert_eq!(c.counted(&q, "waiting"), 41);
    // A queue that is not there has nothing to be changed.
    let none = json!({"action": "remove", "queue": queue("none"), "filter": {}});
    assert_eq!(figure(&run(&mut c, none), "counted"), 0);
}

#[test]
fn bad_input_is_refused_with_its_field_and_changes_nothing() {
    let (mut c, q) = (client(), queue("bulk-bad"));
    c.push(&q, 1);
    let ids: Vec<&str> = vec!["x"; 1001];
    for (fields, error) in [
        (json!({"queue": q, "filter": {}}), "action is required"),
        (
            json!({"action": "eat", "queue": q, "filter": {}}),
            "action must be one of retry, remove, cancel, promote, discard, delay, priority",
        ),
        (json!({"action": "remove", "queue": q}), "ids or filter is required"),
        (json!({"action": "remove", "queue": q, "ids": []}), "ids must not be empty"),
        (
            json!({"action": "remove", "queue": q, "ids": ["a"], "filter": {}}),
            "ids and filter must not both be given",
        ),
        (json!({"action": "remove", "filter": {}}), "queue is required with filter"),
        (json!({"action": "remove", "ids": ids}), "ids must be at most 1000 items"),
        (
            json!({"action": "remove", "ids": [""]}),
            "ids[0] must be a string of 1 to 256 characters",
        ),
        (json!({"action": "delay", "queue": q, "filter": {}}), "delay is required"),
        (json!({"action": "priority", "queue": q, "filter": {}}), "priority is required"),
        (
            json!({"action": "delay", "delay": -1, "queue": q, "filter": {}}),
            "delay must be between 0 and 31536000000",
        ),
        (
            json!({"action": "remove", "queue": q, "filter": {"state": "odd"}}),
            "filter.state must be one of waiting, delayed, active, completed, failed, waiting-children, \
             prioritized, paused, wait",
        ),
        (
            json!({"action": "remove", "queue": q, "filter": {"value": 1}}),
            "filter.path is required",
        ),
        (json!({"action": "remove", "queue": q, "filter": 1}), "filter must be an object"),
        (
            json!({"action": "remove", "queue": q, "filter": {}, "limit": -1}),
            "limit must be between 0 and 9007199254740991",
        ),
    ] {
        assert_eq!(c.refused("Bulk", fields.clone()), error, "{fields}");
    }
    assert_eq!(c.counted(&q, "waiting"), 1);
    for task in ["x", "b0.9007199254740991.1", "b9999.9007199254740991.1", "b0"] {
        for cmd in ["GetTask", "CancelTask"] {
            let reply = c.call(cmd, json!({"task": task}));
            assert_eq!(
                (&reply["error"], &reply["code"]),
                (&json!("Task not found"), &json!("not_found"))
            );
        }
    }
    assert_eq!(c.refused("DlqGroups", json!({"by": "name"})), "by must be one of error");
    assert_eq!(c.refused("DlqGroups", json!({"limit": 0})), "limit must be between 1 and 1000");
}

/// Conditions as they are lost, and what is said of each.
fn lost_conditions() -> Vec<(Json, &'static str)> {
    vec![
        (
            json!({"filter": {"states": "failed"}}),
            "filter.states is no field of this command; did you mean state?",
        ),
        (
            json!({"filter": {"errorgroup": "x"}}),
            "filter.errorgroup is no field of this command; did you mean errorGroup?",
        ),
        (json!({"filter": {"olderThan": 5}}), "filter.olderThan is no field of this command"),
        (json!({"filter": {"state": []}}), "filter.state must not be empty"),
        (json!({"filter": {"state": null}}), "filter.state must not be null"),
        (json!({"filter": {"tag": "a", "text": null}}), "filter.text must not be null"),
        (json!({"filter": {"name": ""}}), "filter.name must be between 1 and 256 characters"),
        (json!({"filter": {"value": null}}), "filter.path is required"),
        (json!({"filter": null}), "filter must not be null"),
        (json!({"filter": {}, "ids": []}), "ids must not be empty"),
        (json!({"filter": {}, "ids": null}), "ids must not be null"),
        (json!({"filter": {}, "ids": ["a"]}), "ids and filter must not both be given"),
        (json!({"filter": {}, "dryRun": null}), "dryRun must not be null"),
        (json!({"filter": {}, "limit": null}), "limit must not be null"),
        (json!({"filter": {}, "most": 1}), "most is no field of this command"),
    ]
}

#[test]
fn a_condition_that_is_lost_is_refused_on_every_carrier_and_removes_no_job() {
    let server = Start::new().start();
    let (mut c, mut web) = (server.client(), server.web());
    let mut of_three = server.client();
    of_three.ok("Hello", json!({"protocolVersion": 3}));
    fill(&mut c, "lost", 5, |n| json!({"data": n}));
    let with = |more: &Json| {
        let mut fields = json!({"action": "remove", "queue": "lost"});
        let more = more.as_object().unwrap().clone();
        fields.as_object_mut().unwrap().extend(more);
        fields
    };
    for (lost, error) in lost_conditions() {
        assert_eq!(c.refused("Bulk", with(&lost)), error, "{lost}");
        assert_eq!(of_three.refused("Bulk", with(&lost)), error, "{lost}");
        assert_eq!(web.post("/jobs/bulk", with(&lost)).refused(400), error, "{lost}");
    }
    let misspelt = json!({"filter": {}, "dryrun": true});
    let error = "dryrun is no field of this command; did you mean dryRun?";
    assert_eq!(c.refused("Bulk", with(&misspelt)), error);
    assert_eq!(of_three.refused("Bulk", with(&misspelt)), error);
    let all = with(&json!({"filter": {}}));
    for query in ["dryRun=true", "limit=1", "state=failed", "x=1", "x"] {
        let error = web.post(&format!("/jobs/bulk?{query}"), all.clone()).refused(400);
        let name = query.split('=').next().unwrap();
        let begins = format!("Unknown query parameter: {name};");
        assert!(error.starts_with(&begins), "{error}");
    }
    assert_eq!(c.ok("ListTasks", json!({}))["tasks"], json!([]), "no task was begun");
    assert_eq!(c.counted("lost", "waiting"), 5);
    // All of them are meant where that is said.
    assert_eq!(figure(&run(&mut c, all), "changed"), 5);
}

#[test]
fn a_value_of_null_means_null_and_no_other_value() {
    let (mut c, q) = (client(), queue("bulk-null"));
    let data = [json!({"a": null}), json!({"a": 1}), json!({"b": null})];
    let ids = fill(&mut c, &q, 3, |n| json!({"data": data[n]}));
    let filter = json!({"path": "a", "value": null});
    let task = run(&mut c, json!({"action": "remove", "queue": q, "filter": filter}));
    assert_eq!(figure(&task, "changed"), 1, "{task}");
    assert_eq!((c.counted(&q, "waiting"), c.state(&ids[1])), (2, "waiting".to_owned()));
}

#[test]
fn a_filter_reads_payloads_and_errors_from_the_disk() {
    let mut server = Start::new().env("SHARDS", 1).start();
    let mut c = server.client();
    let filler = "x".repeat(20_000);
    let job = |n: usize| json!({"data": {"n": n, "filler": filler}, "maxAttempts": 1});
    let ids = fill_by(&mut c, "q", 300, 50, job);
    for id in &ids {
        c.ok("Discard", json!({"id": id}));
    }
    fill_by(&mut c, "filler", 1000, 50, |_| json!({"data": filler}));
    server.kill();
    server.start();
    let mut c = server.client();
    let filter = json!({"path": "n", "value": 7, "error": "discarded"});
    let task = run(&mut c, json!({"action": "retry", "queue": "q", "filter": filter}));
    assert_eq!((figure(&task, "counted"), figure(&task, "changed")), (300, 1), "{task}");
    assert_eq!(c.state(&ids[7]), "waiting");
    let groups = c.ok("DlqGroups", json!({"queue": "q"}));
    assert_eq!((&groups["total"], &groups["groups"][0]["count"]), (&json!(299), &json!(299)));
    assert_eq!(groups["groups"][0]["error"], "Job discarded");
}
