//! Schedules that an application registers at each of its starts, and the rules of zones that they run by. The fear: a schedule
//! that is registered more often than it runs and so never does, a run that is lost on the way to another shard, and one too many.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::support::tool::Tool;
use crate::support::{Client, Server, Start, until};
use crate::{client, queue, shared};

fn executions(client: &mut Client, name: &str) -> Option<u64> {
    let crons = client.ok("CronList", json!({}))["crons"].clone();
    let found = crons.as_array().unwrap().iter().find(|cron| cron["name"] == json!(name));
    found.and_then(|cron| cron["executions"].as_u64())
}

#[test]
fn a_schedule_that_is_registered_more_often_than_it_runs_runs_on_its_cadence() {
    let (mut client, name) = (client(), queue("again"));
    let mut priority = 0;
    let mut register = |client: &mut Client| {
        priority += 1;
        let fields = json!({"name": name, "queue": name, "data": priority, "repeatEvery": 500,
            "priority": priority, "immediately": true});
        client.ok("Cron", fields)["cron"]["nextRun"].as_u64().unwrap()
    };
    register(&mut client);
    until("three runs", || {
        register(&mut client);
        (executions(&mut client, &name)? >= 3).then_some(())
    });
    client.ok("CronDelete", json!({"name": name}));
    let jobs = client.ok("PULLB", json!({"queue": name, "count": 10}))["jobs"].clone();
    let mut due: Vec<u64> =
        jobs.as_array().unwrap().iter().map(|job| job["runAt"].as_u64().unwrap()).collect();
    due.sort_unstable();
    assert!(due.len() >= 3, "{due:?}");
    assert!(due.windows(2).all(|pair| pair[1] - pair[0] == 500), "{due:?}");
}

/// The queues lie on several shards, so that each registration moves the schedule.
#[test]
fn no_run_is_lost_or_doubled_while_a_schedule_moves_from_shard_to_shard() {
    const EVERY_MS: u64 = 20;
    let server = Start::new().env("SHARDS", 4).start();
    let mut client = server.client();
    let queues: Vec<String> = (0..8).map(|n| format!("moved-{n}")).collect();
    let mut round = 0;
    until("the runs", || {
        round += 1;
        let queue = &queues[round % queues.len()];
        let fields = json!({"name": "c", "queue": queue, "data": 1, "repeatEvery": EVERY_MS});
        client.ok("Cron", fields);
        (round > 200 && executions(&mut client, "c")? >= 50).then_some(())
    });
    let runs = client.ok("CronGet", json!({"name": "c"}))["cron"]["executions"].as_u64().unwrap();
    client.ok("CronDelete", json!({"name": "c"}));
    let mut due = Vec::new();
    for queue in &queues {
        let jobs = client.ok("PULLB", json!({"queue": queue, "count": 1000}))["jobs"].clone();
        due.extend(jobs.as_array().unwrap().iter().map(|job| job["runAt"].as_u64().unwrap()));
    }
    let unique: BTreeSet<u64> = due.iter().copied().collect();
    assert_eq!(unique.len(), due.len(), "a run came twice");
    assert!(due.len() as u64 >= runs, "{} jobs of {runs} runs", due.len());
    let (first, last) = (unique.first().unwrap(), unique.last().unwrap());
    assert_eq!((last - first) / EVERY_MS + 1, due.len() as u64, "a run is missing");
}

#[test]
fn a_schedule_that_max_limit_has_ended_is_not_begun_again_until_it_is_deleted() {
    let mut server = Start::new().env("SHARDS", 4).start();
    let queues: Vec<String> = (0..8).map(|n| format!("once-{n}")).collect();
    let registered = |client: &mut Client, queue: &str| {
        let fields = json!({"name": "once", "queue": queue, "data": [1], "repeatEvery": 10,
            "maxLimit": 2, "immediately": true});
        client.ok("Cron", fields)["cron"].clone()
    };
    let mut client = server.client();
    assert!(registered(&mut client, &queues[0])["nextRun"].is_u64());
    until("its end", || executions(&mut client, "once").is_none().then_some(()));
    let jobs = |client: &mut Client| -> u64 {
        queues.iter().map(|queue| client.counted(queue, "waiting")).sum()
    };
    for _ in 0..2 {
        for queue in &queues {
            let cron = registered(&mut client, queue);
            let expected = json!({"name": "once", "queue": queue, "schedule": null, "repeatEvery": 10,
                "nextRun": null});
            assert_eq!(cron, expected);
        }
        let get = client.refused("CronGet", json!({"name": "once"}));
        assert_eq!(get, "Cron not found", "it is only remembered");
        assert_eq!((executions(&mut client, "once"), jobs(&mut client)), (None, 2));
        server.kill();
        server.start();
        client = server.client();
    }
    let tool = Tool::of(&server);
    let again = ["cron", "add", "once", "once-1", "1", "--every", "10ms", "--max-limit", "2"];
    assert_eq!(tool.ok(&again), "once has had its last run\n");
    // More runs go on, also on another shard; other times are another schedule.
    let more =
        json!({"name": "once", "queue": queues[5], "data": 1, "repeatEvery": 10, "maxLimit": 3});
    assert!(client.ok("Cron", more)["cron"]["nextRun"].is_u64());
    until("its end", || executions(&mut client, "once").is_none().then_some(()));
    assert_eq!(jobs(&mut client), 3);
    client.ok("CronDelete", json!({"name": "once"}));
    assert_eq!(client.refused("CronDelete", json!({"name": "once"})), "Cron not found");
    registered(&mut client, &queues[2]);
    until("its end", || executions(&mut client, "once").is_none().then_some(()));
    assert_eq!(jobs(&mut client), 5);
    let yearly = json!({"name": "once", "queue": queues[3], "data": 1, "schedule": "@yearly"});
    client.ok("Cron", yearly);
    assert_eq!(executions(&mut client, "once"), Some(0), "at other times it is new");
}

#[test]
fn a_step_that_is_larger_than_its_range_is_refused_wherever_an_expression_is_given() {
    let (mut client, name) = (client(), queue("step"));
    let why = |name: &str| format!("{name}: hour has a step larger than its range 0-23: */36");
    let fields = json!({"name": name, "queue": name, "data": 1, "schedule": "0 */36 * * *"});
    assert_eq!(client.refused("Cron", fields.clone()), why("schedule"));
    let preview = json!({"schedule": "0 */36 * * *"});
    assert_eq!(client.refused("CronPreview", preview.clone()), why("schedule"));
    let push = json!({"queue": name, "data": 1, "repeat": {"pattern": "0 */36 * * *"}});
    assert_eq!(client.refused("PUSH", push), why("repeat.pattern"));
    let mut web = shared().web();
    assert_eq!(web.post("/crons", fields).refused(400), why("schedule"));
    assert_eq!(web.post("/crons/preview", preview).refused(400), why("schedule"));
    let add = ["cron", "add", &name, &name, "1", "--schedule", "0 */36 * * *"];
    let text = Tool::of(shared()).fails(1, &add);
    assert!(text.contains("hour has a step larger than its range 0-23: */36"), "{text}");
    assert_eq!(executions(&mut client, &name), None);
}

/// As an application pushes it at each of its starts.
#[test]
fn a_repeated_job_with_an_id_is_one_series_however_often_it_is_pushed() {
    let mut server = Start::new().env("SHARDS", 4).start();
    let mut client = server.client();
    let push = |client: &mut Client| {
        let fields = json!({"queue": "ticks", "data": 1, "jobId": "tick", "repeat": {"every": 50},
            "removeOnComplete": true});
        assert_eq!(client.ok("PUSH", fields)["id"], "tick");
    };
    let mut due = BTreeSet::new();
    for run in 0..6 {
        push(&mut client);
        let known = client.ok("GetJob", json!({"id": "tick"}))["job"].clone();
        push(&mut client);
        let pull = json!({"queue": "ticks", "owner": "w", "timeout": 60_000});
        let reply = client.ok("PULL", pull);
        assert_eq!(reply["job"]["runAt"], known["runAt"], "the id names the run that comes next");
        assert!(due.insert(reply["job"]["runAt"].as_u64().unwrap()), "{run}: {reply}");
        push(&mut client);
        client.ok("ACK", json!({"id": "tick", "token": reply["token"]}));
        // In one reply: the next run may become due between two.
        let counts = client.ok("GetJobCounts", json!({"queue": "ticks"}))["counts"].clone();
        let left = ["waiting", "delayed", "active"].map(|state| counts[state].as_u64().unwrap());
        assert_eq!(left.iter().sum::<u64>(), 1, "after run {run}: {left:?}");
        if run == 3 {
            server.kill();
            server.start();
            client = server.client();
        }
    }
    // The series ends with its run.
    until("its end", || {
        client.call("Cancel", json!({"id": "tick"}))["ok"].as_bool().filter(|ended| *ended)
    });
    assert_eq!(client.ok("GetState", json!({"id": "tick"}))["state"], "unknown");
    push(&mut client);
    assert_eq!(client.counted("ticks", "waiting"), 1, "the id is free");
}

/// The server hears both in one piece: the push wants the id before the keeper of ids has read which run bears it now.
#[test]
fn a_push_right_behind_the_end_of_a_run_makes_no_second_job_of_its_id() {
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let push = json!({"queue": "ticks", "data": 1, "jobId": "tick", "removeOnComplete": true,
        "repeat": {"every": 3_600_000}});
    client.ok("PUSH", push.clone());
    assert_eq!(client.pull("ticks")["id"], "tick");
    let replies = client.at_once([("ACK", json!({"id": "tick"})), ("PUSH", push)]);
    assert_eq!((&replies[0]["ok"], &replies[1]["id"]), (&json!(true), &json!("tick")));
    let counts = client.ok("GetJobCounts", json!({"queue": "ticks"}))["counts"].clone();
    assert_eq!((&counts["delayed"], &counts["waiting"]), (&json!(1), &json!(0)), "{replies:?}");
}

/// A file of a zone that is so many hours from UTC and always was, as `zic` writes it.
fn zone_file(hours: u8) -> Vec<u8> {
    let header = |counts: [u8; 6]| {
        let mut header = b"TZif2".to_vec();
        header.extend([0; 15]);
        header.extend(counts.into_iter().flat_map(|count| [0, 0, 0, count]));
        header
    };
    let offset = i32::from(hours) * 3600;
    let mut body = offset.to_be_bytes().to_vec();
    body.extend(b"\0\0XXX\0");
    let half = [header([0, 0, 0, 0, 1, 4]), body].concat();
    let rule = format!("\nXXX-{hours}\n").into_bytes();
    [half.clone(), half, rule].concat()
}

#[test]
fn newer_rules_of_zones_of_the_system_count_and_are_told() {
    let zones = tempfile::tempdir().unwrap();
    fs::create_dir(zones.path().join("Europe")).unwrap();
    fs::write(zones.path().join("Europe/Berlin"), zone_file(9)).unwrap();
    let list = |version: &str| {
        let list = format!("# version {version}\nZ Europe/Berlin 9 - X\n");
        fs::write(zones.path().join("tzdata.zi"), list).unwrap();
    };
    let told = |server: &Server| -> (Value, String) {
        let health = server.web().get("/health").expect(200)["timeZoneRules"].clone();
        let shown = format!("rules {}, {}", text(&health["version"]), text(&health["source"]));
        let data = server.client().ok("Doctor", json!({}))["data"]["checks"].clone();
        let found = data.as_array().unwrap().iter().find(|row| row["check"] == "time zones");
        assert_eq!(found.unwrap()["found"], shown);
        let metrics = server.client().ok("Prometheus", json!({}))["data"]["metrics"].clone();
        let (version, source) = (text(&health["version"]), text(&health["source"]));
        let line =
            format!("corq_time_zone_rules_info{{version=\"{version}\",source=\"{source}\"}} 1\n");
        assert!(text(&metrics).contains(&line), "{line}");
        (health, shown)
    };
    let next_hour = |server: &Server| {
        let cron = server.client().ok("CronGet", json!({"name": "c"}))["cron"].clone();
        cron["nextRun"].as_u64().unwrap() / 3_600_000 % 24
    };
    list("2099a");
    let mut server = Start::new().env("TZDIR", zones.path().display()).start();
    let fields = json!({"name": "c", "queue": "q", "data": 1, "schedule": "0 9 * * *",
        "timezone": "Europe/Berlin"});
    server.client().ok("Cron", fields);
    let (health, shown) = told(&server);
    assert_eq!(health, json!({"version": "2099a", "source": "system"}));
    assert_eq!(next_hour(&server), 0);
    let doctor = Tool::of(&server).ok(&["doctor", "--data-path", server.data.to_str().unwrap()]);
    assert!(doctor.contains(&shown), "{doctor}");
    // Rules that are older than those of the build do not count, and the next run is planned anew.
    list("2001a");
    assert!(server.terminate().success());
    server.start();
    assert_eq!(told(&server).0["source"], "bundled");
    assert!([7, 8].contains(&next_hour(&server)), "{}", next_hour(&server));
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}
