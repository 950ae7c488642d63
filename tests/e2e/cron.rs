//! Schedules. The fear: a run that is doubled or lost, over a kill above all, and a name that means
//! two things.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Client, Server, Start, until};
use crate::{client, queue};

fn listed(client: &mut Client, name: &str) -> Option<Value> {
    let crons = client.ok("CronList", json!({}))["crons"].clone();
    let mut found = crons.as_array().unwrap().iter().filter(|cron| cron["name"] == json!(name));
    let first = found.next().cloned();
    assert!(found.next().is_none(), "{name} is listed twice: {crons}");
    first
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_millis() as u64
}

/// Two queues on different shards, or on any if there is but one.
fn two_queues(topic: &str) -> [String; 2] {
    // Slots are dealt out in turn, so some pair among these lies apart; the tests hold either way.
    [queue(topic), queue(topic)]
}

/// The due times of all jobs of a queue, taken out.
fn take_due_times(client: &mut Client, queue: &str) -> Vec<u64> {
    let reply = client.ok("PULLB", json!({"queue": queue, "count": 1000}));
    reply["jobs"].as_array().unwrap().iter().map(|job| job["runAt"].as_u64().unwrap()).collect()
}

#[test]
fn an_interval_pushes_jobs_on_its_cadence() {
    let mut client = client();
    let queue = queue("cron");
    let fields = json!({
        "name": queue, "queue": queue, "data": {"n": 1}, "repeatEvery": 100, "priority": 7
    });
    let cron = client.ok("Cron", fields)["cron"].clone();
    let first = cron["nextRun"].as_u64().unwrap();
    assert_eq!((&cron["name"], &cron["queue"]), (&json!(queue), &json!(queue)));
    assert_eq!((&cron["schedule"], &cron["repeatEvery"]), (&Value::Null, &json!(100)));
    let mut due = BTreeSet::new();
    until("five runs", || {
        let job = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}))["job"].clone();
        assert_eq!((&job["data"], &job["priority"]), (&json!({"n": 1}), &json!(7)));
        assert!(due.insert(job["runAt"].as_u64().unwrap()), "a run came twice: {job}");
        (due.len() == 5).then_some(())
    });
    let expected: BTreeSet<u64> = (0..5).map(|n| first + n * 100).collect();
    assert_eq!(due, expected);
    client.ok("CronDelete", json!({"name": queue}));
    assert_eq!(listed(&mut client, &queue), None);
    assert_eq!(client.refused("CronDelete", json!({"name": queue})), "Cron not found");
    // A job of a schedule is a job like any other.
    let id = client.push(&queue, 1);
    assert_eq!(client.state(&id), "waiting");
}

#[test]
fn an_expression_runs_in_its_zone() {
    let mut client = client();
    let queue = queue("cron");
    let fields = |zone: &str| json!({"name": queue, "queue": queue, "data": 1, "schedule": "30 4 * * *", "timezone": zone});
    let utc = client.ok("Cron", fields("UTC"))["cron"].clone();
    let kolkata = client.ok("Cron", fields("Asia/Kolkata"))["cron"].clone();
    let minute_of_day = |cron: &Value| cron["nextRun"].as_u64().unwrap() / 60_000 % 1440;
    assert_eq!(minute_of_day(&utc), 4 * 60 + 30);
    assert_eq!(minute_of_day(&kolkata), 23 * 60, "half past four in India");
    let entry = listed(&mut client, &queue).unwrap();
    let expected = json!({
        "name": queue, "queue": queue, "schedule": "30 4 * * *", "repeatEvery": null,
        "nextRun": kolkata["nextRun"], "executions": 0, "timezone": "Asia/Kolkata"
    });
    assert_eq!(entry, expected);
    client.ok("CronDelete", json!({"name": queue}));
}

#[test]
fn six_fields_begin_with_seconds_and_fire() {
    let mut client = client();
    let queue = queue("cron");
    let fields = json!({"name": queue, "queue": queue, "data": 1, "schedule": "* * * * * *"});
    client.ok("Cron", fields);
    let job = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}))["job"].clone();
    assert_eq!(job["runAt"].as_u64().unwrap() % 1000, 0);
    let full = client.ok("GetJob", json!({"id": job["id"]}))["job"].clone();
    assert_eq!((&full["data"], &full["state"]), (&json!(1), &json!("active")));
    client.ok("ACK", json!({"id": job["id"]}));
    client.ok("CronDelete", json!({"name": queue}));
}

#[test]
fn what_is_no_schedule_is_refused_with_the_reason_and_changes_nothing() {
    let mut client = client();
    let queue = queue("cron");
    let mut refused = |fields: Value| {
        let mut all = json!({"name": queue, "queue": queue, "data": 1});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        client.refused("Cron", all)
    };
    assert_eq!(refused(json!({})), "schedule or repeatEvery is required");
    let both = refused(json!({"schedule": "* * * * *", "repeatEvery": 5}));
    assert_eq!(both, "schedule and repeatEvery must not both be given");
    let many = refused(json!({"schedule": "* * * *"}));
    assert_eq!(many, "schedule must have 5 or 6 fields");
    let minute = refused(json!({"schedule": "61 * * * *"}));
    assert_eq!(minute, "schedule: minute must be between 0 and 59");
    let never = refused(json!({"schedule": "0 0 31 6 *"}));
    assert_eq!(never, "schedule has no run in the future");
    let step = refused(json!({"schedule": "*/90 * * * *"}));
    assert_eq!(step, "schedule: minute has a step larger than its range 0-59: */90");
    let zone = refused(json!({"schedule": "* * * * *", "timezone": "Mars/Olympus"}));
    assert_eq!(zone, "timezone must be the name of an IANA time zone");
    assert!(refused(json!({"repeatEvery": 0})).starts_with("repeatEvery must be between 1 and"));
    assert_eq!(listed(&mut client, &queue), None);
}

#[test]
fn the_same_name_replaces_wherever_its_queue_lies_and_keeps_its_runs() {
    let mut client = client();
    let name = queue("name");
    for _ in 0..4 {
        let [one, other] = two_queues("cron");
        client.ok("Cron", json!({"name": name, "queue": one, "data": 1, "repeatEvery": 1}));
        let runs = until("a run", || {
            let runs = listed(&mut client, &name)?["executions"].as_u64()?;
            (runs > 0).then_some(runs)
        });
        client.ok(
            "Cron",
            json!({"name": name, "queue": other, "data": 2, "schedule": "@yearly", "maxLimit": 90_000_000}),
        );
        let entry = listed(&mut client, &name).unwrap();
        assert_eq!((&entry["queue"], &entry["schedule"]), (&json!(other), &json!("@yearly")));
        assert_eq!(entry["maxLimit"], 90_000_000);
        let after = entry["executions"].as_u64().unwrap();
        assert!(after >= runs, "{after} runs of {runs} are left");
        // A limit that is reached already is refused, and what stands goes on standing.
        let limit = json!({"name": name, "queue": one, "data": 1, "repeatEvery": 1, "maxLimit": 1});
        let text = format!("maxLimit must be more than the {after} runs there have been");
        assert_eq!(client.refused("Cron", limit), text);
        assert_eq!(listed(&mut client, &name), Some(entry));
    }
    client.ok("CronDelete", json!({"name": name}));
}

#[test]
fn a_move_that_is_refused_hides_no_schedule_from_a_listing() {
    // More shards than cores: each is a while behind the others.
    let server = Start::new().env("SHARDS", 8).start();
    let movers: Vec<_> = (0..4)
        .map(|n| {
            let mut client = server.client();
            std::thread::spawn(move || {
                let name = format!("name-{n}");
                let fields = json!({"name": name, "queue": name, "data": 1, "repeatEvery": 1});
                client.ok("Cron", fields.clone());
                let runs = |client: &mut Client| listed(client, &name)?["executions"].as_u64();
                until("two runs", || (runs(&mut client)? > 1).then_some(()));
                for round in 0..200 {
                    let mut move_it = fields.clone();
                    move_it["queue"] = json!(format!("{name}-{}", round % 8));
                    move_it["maxLimit"] = json!(1);
                    client.refused("Cron", move_it);
                    assert_eq!(listed(&mut client, &name).unwrap()["queue"], json!(name));
                }
            })
        })
        .collect();
    for mover in movers {
        mover.join().unwrap();
    }
}

#[test]
fn after_max_limit_runs_a_schedule_is_removed() {
    let mut client = client();
    let queue = queue("cron");
    let fields =
        json!({"name": queue, "queue": queue, "data": 1, "repeatEvery": 20, "maxLimit": 3});
    client.ok("Cron", fields);
    until("its end", || listed(&mut client, &queue).is_none().then_some(()));
    assert_eq!(client.counted(&queue, "waiting"), 3);
    // The name is free again.
    until("the name", || {
        let fields = json!({"name": queue, "queue": queue, "data": 1, "schedule": "@yearly"});
        client.ok("Cron", fields);
        (listed(&mut client, &queue)?["executions"] == 0).then_some(())
    });
    client.ok("CronDelete", json!({"name": queue}));
}

#[test]
fn a_paused_queue_still_receives_the_jobs_of_its_schedules() {
    let mut client = client();
    let queue = queue("cron");
    client.ok("Pause", json!({"queue": queue}));
    client.ok("Cron", json!({"name": queue, "queue": queue, "data": 1, "repeatEvery": 10}));
    until("three jobs", || (client.counted(&queue, "waiting") >= 3).then_some(()));
    client.ok("CronDelete", json!({"name": queue}));
}

#[test]
fn racing_settings_of_one_name_leave_one_schedule() {
    let name = queue("race");
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let name = name.clone();
            std::thread::spawn(move || {
                let mut client = client();
                for round in 0..20 {
                    let queue = format!("{name}-{}", (n + round) % 5);
                    let fields =
                        json!({"name": name, "queue": queue, "data": 1, "repeatEvery": 50});
                    client.ok("Cron", fields);
                    if round % 7 == n {
                        client.call("CronDelete", json!({"name": name}));
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let mut client = client();
    client.ok("Cron", json!({"name": name, "queue": name, "data": 1, "repeatEvery": 50}));
    assert_eq!(listed(&mut client, &name).unwrap()["queue"], json!(name));
    client.ok("CronDelete", json!({"name": name}));
    assert_eq!(listed(&mut client, &name), None);
}

/// Guards that commands which wait for another are taken up some at a time, in their order and before later ones.
#[test]
fn commands_that_wait_for_a_schedule_are_answered_also_where_many_are_refused() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut client = server.client();
    let set = |schedule: &str| json!({"name": "c", "queue": "q", "data": 1, "schedule": schedule});
    for round in 0..5 {
        let mut expected = Vec::new();
        let mut send = |cmd: &str, fields: Value, outcome: &str| {
            expected.push((client.send(cmd, fields).unwrap(), outcome.to_owned()));
        };
        send("Cron", set("@yearly"), "");
        (0..40).for_each(|_| send("Cron", set("0 0 31 6 *"), "schedule has no run in the future"));
        send("CronGet", json!({"name": "c"}), "");
        send("CronDelete", json!({"name": "c"}), "");
        (0..5).for_each(|_| send("CronGet", json!({"name": "c"}), "Cron not found"));
        send("Cron", set("@monthly"), "");
        for _ in 0..expected.len() {
            let reply = client.recv().unwrap();
            let place = expected.iter().position(|(request, _)| reply["reqId"] == *request);
            let (_, outcome) = expected.swap_remove(place.unwrap());
            assert_eq!(reply["error"].as_str().unwrap_or_default(), outcome, "{round}: {reply}");
        }
        assert_eq!(listed(&mut client, "c").unwrap()["schedule"], "@monthly");
    }
    let numbers = crate::e2e::space::metrics(&mut client);
    let waiting_bytes = numbers[r#"corq_client_memory_bytes{account="schedules"}"#];
    assert_eq!((numbers["corq_crons_waiting"], waiting_bytes), (0, 0));
}

#[test]
fn many_schedules_of_one_connection_may_be_under_way() {
    let mut client = client();
    let name = queue("pipe");
    let mut waiting = BTreeSet::new();
    for n in 0..200 {
        let fields = json!({
            "name": format!("{name}-{}", n % 7), "queue": format!("{name}-{}", n % 5), "data": 1,
            "schedule": "@yearly"
        });
        waiting.insert(client.send("Cron", fields).unwrap());
    }
    while !waiting.is_empty() {
        let reply = client.recv().unwrap();
        assert_eq!(reply["ok"], true, "{reply}");
        assert!(waiting.remove(reply["reqId"].as_str().unwrap()));
    }
    for n in 0..7 {
        client.ok("CronDelete", json!({"name": format!("{name}-{n}")}));
    }
}

/// Every run of every schedule over kills: none twice, and none left out but those that fell due while
/// the server was down.
#[test]
fn over_kills_no_run_is_doubled_or_lost() {
    const INTERVAL_MS: u64 = 25;
    let mut server = Server::start_default();
    let mut client = server.client();
    let names: Vec<String> = (0..4).map(|n| format!("c{n}")).collect();
    let number = |client: &mut Client, name: &str, field: &str| {
        listed(client, name).unwrap()[field].as_u64().unwrap()
    };
    let mut first = Vec::new();
    for name in &names {
        let fields = json!({"name": name, "queue": name, "data": 1, "repeatEvery": INTERVAL_MS});
        first.push(client.ok("Cron", fields)["cron"]["nextRun"].as_u64().unwrap());
    }
    // Of each kill and schedule: the run that was next before it, and the run that was next when one had
    // come after it. Those between fell due while the server was down, or while its shards, each at its
    // own pace, opened their doors again.
    let mut down = vec![Vec::new(); names.len()];
    let run = |client: &mut Client| {
        for name in &names {
            let before = number(client, name, "executions");
            until("a run", || (number(client, name, "executions") > before).then_some(()));
        }
    };
    for _ in 0..6 {
        let enough = now_ms() + 500;
        until("some runs", || (now_ms() > enough).then_some(()));
        for (name, down) in names.iter().zip(&mut down) {
            down.push((number(&mut client, name, "nextRun"), 0));
        }
        server.kill();
        server.start();
        client = server.client();
        run(&mut client);
        for (name, down) in names.iter().zip(&mut down) {
            down.last_mut().unwrap().1 = number(&mut client, name, "nextRun");
        }
    }
    for ((name, first), down) in names.iter().zip(first).zip(down) {
        client.ok("CronDelete", json!({"name": name}));
        let jobs = client.counted(name, "waiting");
        let mut due = Vec::new();
        while due.len() < jobs as usize {
            due.extend(take_due_times(&mut client, name));
        }
        let last = due.iter().copied().max().unwrap();
        let unique: BTreeSet<u64> = due.iter().copied().collect();
        assert_eq!(unique.len(), due.len(), "{name}: a run came twice");
        assert!(unique.iter().all(|at| (at - first) % INTERVAL_MS == 0), "{name} drifted");
        for slot in (first..=last).step_by(INTERVAL_MS as usize) {
            let excused = down.iter().any(|&(from, to)| (from..to).contains(&slot));
            assert!(unique.contains(&slot) || excused, "{name}: the run at {slot} is lost");
        }
    }
}

#[test]
fn schedules_survive_a_kill_with_runs_and_limit_and_the_next_run_on_cadence() {
    let mut server = Start::new().start();
    let mut client = server.client();
    let yearly = json!({
        "name": "yearly", "queue": "q", "data": {"deep": [1, 2]}, "schedule": "0 0 1 1 *",
        "timezone": "America/New_York", "maxLimit": 9, "priority": -3
    });
    client.ok("Cron", yearly);
    client.ok("Cron", json!({"name": "fast", "queue": "r", "data": 1, "repeatEvery": 10}));
    until("a run", || (listed(&mut client, "fast")?["executions"].as_u64()? > 2).then_some(()));
    client.ok("Cron", json!({"name": "fast", "queue": "r", "data": 1, "schedule": "@yearly"}));
    let before = [listed(&mut client, "yearly"), listed(&mut client, "fast")];
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!([listed(&mut client, "yearly"), listed(&mut client, "fast")], before);
    client.ok("CronDelete", json!({"name": "yearly"}));
    server.kill();
    server.start();
    assert_eq!(listed(&mut server.client(), "yearly"), None);
}

#[test]
fn a_schedule_or_a_repeated_job_that_runs_too_often_is_refused_with_field_and_bound() {
    for (setting, least) in [(None, 10), (Some(250), 250)] {
        let mut start = Start::new().without("CRON_MIN_INTERVAL_MS");
        if let Some(setting) = setting {
            start = start.env("CRON_MIN_INTERVAL_MS", setting);
        }
        let server = start.start();
        let mut client = server.client();
        let bound = format!("must be between {least} and 9007199254740991");
        let cron = |every: u64| json!({"name": "c", "queue": "q", "data": 1, "repeatEvery": every});
        assert_eq!(client.refused("Cron", cron(least - 1)), format!("repeatEvery {bound}"));
        let job = |every: u64| json!({"data": 1, "repeat": {"every": every, "limit": 1}});
        let mut push = job(least - 1);
        push["queue"] = json!("q");
        assert_eq!(client.refused("PUSH", push.clone()), format!("repeat.every {bound}"));
        let jobs = json!({"queue": "q", "jobs": [{"data": 1}, job(least - 1)]});
        assert_eq!(client.refused("PUSHB", jobs), format!("jobs[1]: repeat.every {bound}"));
        let answer = server.web().post("/queues/q/jobs", job(least - 1));
        assert_eq!(answer.refused(400), format!("repeat.every {bound}"));
        assert_eq!(client.counted("q", "waiting") + client.counted("q", "delayed"), 0);
        push["repeat"]["every"] = json!(least);
        client.ok("PUSH", push);
        client.ok("Cron", cron(least));
    }
}

#[test]
fn schedules_push_no_more_than_they_may_in_a_second_and_are_put_off_not_lost() {
    let server = Start::new().env("SHARDS", 1).env("SCHEDULED_PUSHES_PER_SECOND", 100).start();
    let mut client = server.client();
    let names: Vec<String> = (0..50).map(|n| format!("every-{n}")).collect();
    for name in &names {
        let cron = json!({"name": name, "queue": name, "data": 1, "repeatEvery": 1});
        client.ok("Cron", cron);
    }
    let numbers = |client: &mut Client| {
        let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
        let text = text.as_str().unwrap().to_owned();
        let number = |family: &str| -> f64 {
            let line = text.lines().find(|line| line.starts_with(&format!("{family} "))).unwrap();
            line.rsplit_once(' ').unwrap().1.parse().unwrap()
        };
        (
            number("corq_jobs_pushed_total"),
            number("corq_uptime_seconds"),
            number("corq_scheduled_put_off_total"),
        )
    };
    until("each to have run four times", || {
        let ran = |name: &String| client.counted(name, "waiting") >= 4;
        names.iter().all(ran).then_some(())
    });
    let (pushed, uptime_s, put_off) = numbers(&mut client);
    assert!(pushed <= 100.0 * (uptime_s + 2.0), "{pushed} in {uptime_s} s");
    assert!(put_off > 0.0);
}
