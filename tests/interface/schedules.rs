//! Acts of pages and people on schedules beyond setting them: run one now, disable and enable it, and see when it runs
//! next.

use serde_json::{Value, json};

use crate::support::tool::Tool;
use crate::support::{Client, Server, Start, until};
use crate::{client, queue, shared};

const HOUR_MS: u64 = 3_600_000;

fn set(client: &mut Client, name: &str, fields: &Value) -> Value {
    let mut cron = json!({"name": name, "queue": name, "data": {"of": name}});
    cron.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    client.ok("Cron", cron)["cron"].clone()
}

fn get(client: &mut Client, name: &str) -> Value {
    client.ok("CronGet", json!({"name": name}))["cron"].clone()
}

fn enable(client: &mut Client, name: &str, enabled: bool) -> Value {
    client.ok("SetCronEnabled", json!({"name": name, "enabled": enabled}))["cron"].clone()
}

fn waiting(client: &mut Client, queue: &str) -> u64 {
    client.ok("GetJobCounts", json!({"queue": queue}))["counts"]["waiting"].as_u64().unwrap()
}

/// The local times of a preview.
fn local(client: &mut Client, fields: Value) -> Vec<String> {
    let data = client.ok("CronPreview", fields)["data"].clone();
    let runs = data["runs"].as_array().unwrap().iter();
    runs.map(|run| run["local"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_schedule_that_is_triggered_pushes_its_job_at_once_and_keeps_its_cadence() {
    // Of either shard.
    for _ in 0..4 {
        let (mut client, name) = (client(), queue("triggered"));
        let options = json!({"repeatEvery": HOUR_MS, "priority": 7, "jobName": "report", "maxLimit": 1,
            "jobOptions": {"maxAttempts": 5, "timeout": 1234}});
        set(&mut client, &name, &options);
        let before = get(&mut client, &name);
        let id = client.ok("CronTrigger", json!({"name": name}))["id"].clone();
        let job = client.pull(&name);
        assert_eq!((&job["id"], &job["data"]), (&id, &json!({"of": name})));
        assert_eq!((&job["priority"], &job["name"]), (&json!(7), &json!("report")));
        assert_eq!((&job["maxAttempts"], &job["timeout"]), (&json!(5), &json!(1234)));
        assert_eq!(get(&mut client, &name), before, "neither its runs nor its next run");
    }
    assert_eq!(client().refused("CronTrigger", json!({"name": "no such"})), "Cron not found");
}

#[test]
fn a_trigger_answers_the_job_that_its_key_lets_stand() {
    let (mut client, name) = (client(), queue("no-overlap"));
    set(&mut client, &name, &json!({"repeatEvery": HOUR_MS, "preventOverlap": true}));
    let first = client.ok("CronTrigger", json!({"name": name}))["id"].clone();
    let second = client.ok("CronTrigger", json!({"name": name}))["id"].clone();
    assert_eq!((second, waiting(&mut client, &name)), (first.clone(), 1));
    client.pull(&name);
    client.ok("ACK", json!({"id": first}));
    let third = client.ok("CronTrigger", json!({"name": name}))["id"].clone();
    assert_ne!(third, first);
}

#[test]
fn a_disabled_schedule_stays_listed_and_runs_nothing_until_it_is_enabled() {
    let (mut client, name) = (client(), queue("disabled"));
    let control = format!("{name}-control");
    let fields = json!({"queue": name, "repeatEvery": 20});
    set(&mut client, &name, &fields);
    set(&mut client, &control, &fields);
    until("a run", || (get(&mut client, &name)["executions"].as_u64() > Some(0)).then_some(()));
    let disabled = enable(&mut client, &name, false);
    assert_eq!((&disabled["enabled"], &disabled["nextRun"]), (&json!(false), &Value::Null));
    assert_eq!(enable(&mut client, &name, false), disabled, "a second time changes nothing");
    let crons = client.ok("CronList", json!({}))["crons"].clone();
    assert!(crons.as_array().unwrap().contains(&disabled), "{crons}");
    // The other one of the same queue goes on.
    let runs = |client: &mut Client, name: &str| get(client, name)["executions"].as_u64().unwrap();
    let behind = runs(&mut client, &control) + 5;
    until("runs of the other", || (runs(&mut client, &control) >= behind).then_some(()));
    let mut found = get(&mut client, &name);
    let data = found.as_object_mut().unwrap().remove("data");
    assert!(data.is_some() && found == disabled, "with its data as well: {data:?}, {found}");
    // A disabled schedule can be run by hand all the same.
    let id = client.ok("CronTrigger", json!({"name": name}))["id"].clone();
    assert!(id.is_string());
    let enabled = enable(&mut client, &name, true);
    assert_eq!(enabled.get("enabled"), None);
    assert!(enabled["nextRun"].as_u64().is_some());
    let before = disabled["executions"].as_u64().unwrap();
    until("a run", || (runs(&mut client, &name) > before).then_some(()));
    for cron in [name, control] {
        client.ok("CronDelete", json!({"name": cron}));
    }
}

#[test]
fn a_schedule_that_is_enabled_again_goes_on_with_its_cadence() {
    let (mut client, name) = (client(), queue("cadence"));
    let first = set(&mut client, &name, &json!({"repeatEvery": HOUR_MS}));
    enable(&mut client, &name, false);
    assert_eq!(enable(&mut client, &name, true)["nextRun"], first["nextRun"]);
    let refused = client.refused("SetCronEnabled", json!({"name": "no such", "enabled": true}));
    assert_eq!(refused, "Cron not found");
    assert_eq!(client.refused("SetCronEnabled", json!({"name": name})), "enabled is required");
}

/// The schedules of a server by name, with whether each is disabled.
fn disabled(server: &Server) -> Vec<(String, bool)> {
    let crons = server.client().ok("CronList", json!({}))["crons"].clone();
    let row = |cron: &Value| (cron["name"].as_str().unwrap().to_owned(), cron["enabled"] == false);
    let mut rows: Vec<(String, bool)> = crons.as_array().unwrap().iter().map(row).collect();
    rows.sort();
    rows
}

#[test]
fn a_disabled_schedule_stays_so_over_a_kill_and_when_it_is_set_anew_on_whatever_shard() {
    let mut server = Start::new().start();
    let mut client = server.client();
    let names: Vec<String> = (0..6).map(|n| format!("c{n}")).collect();
    for name in &names {
        set(&mut client, name, &json!({"repeatEvery": 50}));
    }
    names[..5].iter().for_each(|name| _ = enable(&mut client, name, false));
    let expected: Vec<(String, bool)> =
        names.iter().enumerate().map(|(n, name)| (name.clone(), n < 5)).collect();
    assert_eq!(disabled(&server), expected);
    server.kill();
    server.start();
    assert_eq!(disabled(&server), expected);
    let mut client = server.client();
    for round in 0..3 {
        for name in &names {
            // The schedule's new queue may be another shard's.
            let queue = format!("{name}-{round}");
            set(&mut client, name, &json!({"queue": queue, "repeatEvery": 40}));
        }
        assert_eq!(disabled(&server), expected);
    }
    server.kill();
    server.start();
    assert_eq!(disabled(&server), expected);
    let mut client = server.client();
    let before: Vec<Value> = names.iter().map(|name| get(&mut client, name)).collect();
    let runs = |cron: &Value| cron["executions"].as_u64().unwrap();
    let target = runs(&before[5]) + 3;
    until("runs", || (runs(&get(&mut client, &names[5])) >= target).then_some(()));
    for (name, cron) in names[..5].iter().zip(&before) {
        assert_eq!(get(&mut client, name), *cron);
    }
}

#[test]
fn many_previews_at_once_are_answered_over_several_turns() {
    /// Previews of 100 runs each.
    const PREVIEWS: usize = 200;
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    for _ in 0..PREVIEWS {
        let fields = json!({"schedule": "0 0 29 2 *", "count": 100});
        client.send("CronPreview", fields).unwrap();
    }
    for _ in 0..PREVIEWS {
        let reply = client.recv().unwrap();
        assert_eq!(reply["data"]["runs"].as_array().map(Vec::len), Some(100), "{reply}");
    }
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let label = "corq_turn_steps_max{shard=\"0\",command=\"CronPreview\"} ";
    let steps = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(label));
    let steps: u64 = steps.unwrap().parse().unwrap();
    assert!((100..3000).contains(&steps), "{steps} steps in one turn");
}

#[test]
fn a_preview_shows_the_next_runs_in_the_zone_of_the_schedule() {
    let mut client = client();
    // 2026-03-28T00:00:00Z; clocks in Berlin are set forward on the 29th.
    let from = 1_774_656_000_000_u64;
    let fields =
        json!({"schedule": "30 2 * * *", "timezone": "Europe/Berlin", "from": from, "count": 3});
    let expected =
        ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"];
    assert_eq!(local(&mut client, fields.clone()), expected);
    let data = client.ok("CronPreview", fields)["data"].clone();
    assert_eq!(data["timezone"], "Europe/Berlin");
    assert_eq!(data["runs"][0]["at"].as_u64(), Some(1_774_661_400_000));
    assert_eq!(data.get("name"), None);
    let every = json!({"repeatEvery": 1500, "from": from, "count": 2});
    let expected = ["2026-03-28T00:00:01.500+00:00", "2026-03-28T00:00:03+00:00"];
    assert_eq!(local(&mut client, every), expected);
    let usual = client.ok("CronPreview", json!({"schedule": "@daily"}))["data"].clone();
    assert_eq!((usual["runs"].as_array().unwrap().len(), &usual["timezone"]), (5, &json!("UTC")));
    assert!(usual["runs"][0]["at"].as_u64().unwrap() + HOUR_MS > client.time());
}

#[test]
fn a_preview_of_a_schedule_begins_with_its_next_run_and_ends_with_its_last() {
    for _ in 0..4 {
        let (mut client, name) = (client(), queue("previewed"));
        let next =
            set(&mut client, &name, &json!({"repeatEvery": HOUR_MS, "maxLimit": 3}))["nextRun"]
                .as_u64()
                .unwrap();
        let preview = |client: &mut Client, fields: Value| {
            let mut asked = json!({"name": name});
            asked.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            client.ok("CronPreview", asked)["data"].clone()
        };
        let at = |data: &Value| -> Vec<u64> {
            let runs = data["runs"].as_array().unwrap().iter();
            runs.map(|run| run["at"].as_u64().unwrap()).collect()
        };
        let data = preview(&mut client, json!({}));
        assert_eq!(at(&data), [next, next + HOUR_MS, next + 2 * HOUR_MS]);
        assert_eq!((&data["name"], &data["enabled"]), (&json!(name), &json!(true)));
        let later = preview(&mut client, json!({"from": next, "count": 1}));
        assert_eq!(at(&later), [next + HOUR_MS]);
        enable(&mut client, &name, false);
        let data = preview(&mut client, json!({"count": 2}));
        assert_eq!((at(&data), &data["enabled"]), (vec![next, next + HOUR_MS], &json!(false)));
    }
}

#[test]
fn a_preview_refuses_what_a_schedule_would_be_refused_for() {
    let mut client = client();
    for (fields, text) in [
        (json!({}), "schedule or repeatEvery is required"),
        (
            json!({"name": "c", "schedule": "@daily"}),
            "name must not be given with schedule, repeatEvery or timezone",
        ),
        (
            json!({"name": "c", "timezone": "UTC"}),
            "name must not be given with schedule, repeatEvery or timezone",
        ),
        (
            json!({"schedule": "@daily", "repeatEvery": 1000}),
            "schedule and repeatEvery must not both be given",
        ),
        (json!({"schedule": "* * *"}), "schedule must have 5 or 6 fields"),
        (json!({"schedule": "0 0 31 6 *"}), "schedule has no run in the future"),
        (
            json!({"schedule": "@daily", "timezone": "Mars"}),
            "timezone must be the name of an IANA time zone",
        ),
        (json!({"schedule": "@daily", "count": 101}), "count must be between 1 and 100"),
        (json!({"name": "no such"}), "Cron not found"),
    ] {
        assert_eq!(client.refused("CronPreview", fields.clone()), text, "{fields}");
    }
    let server = Start::new().env("CRON_MIN_INTERVAL_MS", 1000).start();
    let refused = server.client().refused("CronPreview", json!({"repeatEvery": 999}));
    assert_eq!(refused, "repeatEvery must be between 1000 and 9007199254740991");
}

#[test]
fn schedules_are_triggered_enabled_and_previewed_over_http() {
    let mut web = shared().web();
    let name = queue("over-http");
    let cron = json!({"name": name, "queue": name, "data": 1, "schedule": "@daily", "timezone": "Asia/Tokyo"});
    web.post("/crons", cron).expect(200);
    let bare = |web: &mut crate::support::Http, path: String| {
        web.call("POST", &path, &[], b"").expect(200)
    };
    let id = bare(&mut web, format!("/crons/{name}/trigger"))["id"].clone();
    let path = format!("/jobs/{}/state", id.as_str().unwrap());
    assert_eq!(web.get(&path).expect(200)["state"], "waiting");
    assert_eq!(bare(&mut web, format!("/crons/{name}/disable"))["cron"]["enabled"], false);
    assert_eq!(web.get(&format!("/crons/{name}")).expect(200)["cron"]["enabled"], false);
    assert_eq!(bare(&mut web, format!("/crons/{name}/enable"))["cron"].get("enabled"), None);
    let put = web.call("PUT", &format!("/crons/{name}/enabled"), &[], br#"{"enabled":false}"#);
    assert_eq!(put.expect(200)["cron"]["enabled"], false);
    let data = web.get(&format!("/crons/{name}/preview?count=2")).expect(200)["data"].clone();
    let runs = data["runs"].as_array().unwrap();
    assert_eq!((runs.len(), &data["timezone"]), (2, &json!("Asia/Tokyo")));
    assert!(runs[0]["local"].as_str().unwrap().ends_with("T00:00:00+09:00"), "{data}");
    let given = web.post("/crons/preview", json!({"repeatEvery": 60_000, "count": 1})).expect(200);
    assert_eq!(given["data"]["runs"].as_array().unwrap().len(), 1);
    let missing = web.call("POST", "/crons/none/trigger", &[], b"");
    assert_eq!(missing.refused(404), "Cron not found");
}

#[test]
fn the_command_line_triggers_disables_and_previews_schedules() {
    let (tool, name) = (Tool::of(shared()), queue("by-hand"));
    tool.ok(&["cron", "add", &name, &name, "1", "--every", "1h"]);
    let id = tool.ok(&["cron", "trigger", &name]);
    assert_eq!(client().state(id.trim()), "waiting");
    assert_eq!(tool.ok(&["cron", "disable", &name]), format!("{name} is disabled\n"));
    let listed = tool.ok(&["cron", "list"]);
    let row = listed.lines().find(|line| line.starts_with(&name)).unwrap();
    assert!(row.contains("disabled"), "{row}");
    let shown = tool.ok(&["cron", "preview", &name, "--count", "2"]);
    assert!(shown.starts_with("disabled") && shown.lines().count() == 4, "{shown}");
    let enabled = tool.ok(&["cron", "enable", &name]);
    assert!(enabled.starts_with(&format!("{name} runs next in ")), "{enabled}");
    let given = ["cron", "preview", "--schedule", "@daily", "--timezone", "Asia/Kolkata"];
    assert_eq!(tool.ok(&given).matches("T00:00:00+05:30").count(), 5);
    assert_eq!(tool.fails(1, &["cron", "trigger", "none"]), "Cron not found");
}
