//! The dashboard in a real browser, against the real server: every page and what it does, in light and dark, by keys, with
//! tokens and roles, behind a proxy, and while the server is restarted. The fears: a page that only works where it was written,
//! a text of a stranger that becomes a script, a button that does something else than it says.
//!
//! The browser comes from `scripts/judges.sh browser`, what drives it from `scripts/judges.sh page`. `CORQ_TEST_BROWSER=off` leaves
//! these tests out, `on` insists on them; otherwise they are left out where no browser can be had. `CORQ_TEST_NODE=off` leaves out
//! what needs Node.js.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::browser::browser;
use crate::streams::judges_by;
use crate::support::{Client, Server, Start, free_port, until};

const ROOT: &str = crate::ROOT;

/// The files below a directory, by their paths in it.
fn files(dir: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(next) = open.pop() {
        for path in fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(dir).unwrap().to_path_buf());
            }
        }
    }
    found
}

fn unpacked(path: &Path) -> Vec<u8> {
    let output = Command::new("gzip").arg("-dc").arg(path).output().unwrap();
    assert!(output.status.success(), "{}", path.display());
    output.stdout
}

/// The build checks types and sizes as well: `web/build.mjs`.
#[test]
fn the_committed_page_is_what_its_sources_build() {
    if std::env::var("CORQ_TEST_NODE").is_ok_and(|value| value == "off") {
        eprintln!("CORQ_TEST_NODE=off: the page is not built");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(Path::new(ROOT).join("scripts/web.sh")).arg(dir.path()).output();
    let output = output.unwrap();
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "scripts/web.sh:\n{}", String::from_utf8_lossy(&said));
    let committed = Path::new(ROOT).join("web/dist");
    assert_eq!(files(dir.path()), files(&committed), "run `make web` and commit web/dist");
    for name in files(&committed) {
        let (own, built) = (committed.join(&name), dir.path().join(&name));
        // The bytes of a compressed file depend on who has compressed it.
        let is_same = if name.extension().is_some_and(|suffix| suffix == "gz") {
            unpacked(&own) == fs::read(own.with_extension("")).unwrap()
        } else {
            fs::read(&own).unwrap() == fs::read(built).unwrap()
        };
        assert!(is_same, "{}: run `make web` and commit web/dist", name.display());
    }
}

/// Drives a browser by a script.
pub(super) struct Driver {
    browser: String,
    judges: String,
}

impl Driver {
    pub(super) fn find() -> Option<Self> {
        let browser = browser()?;
        Some(Self { browser, judges: judges_by("page", "NODE")? })
    }

    /// Has a part played against a server, and does what it asks for.
    pub(super) fn play(
        &self,
        base: &str,
        part: &str,
        settings: Value,
        mut answer: impl FnMut(&str) -> Value,
    ) {
        let mut all = settings;
        for (name, value) in [("base", base), ("browser", &self.browser), ("judges", &self.judges)]
        {
            all[name] = value.into();
        }
        let script = Path::new(ROOT).join("tests/clients/dashboard/page.mjs");
        let mut child = Running(
            Command::new("node")
                .arg(script)
                .args([part, &all.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let mut stdin = child.0.stdin.take().unwrap();
        for line in BufReader::new(child.0.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some(asked) = line.strip_prefix("ask ") else { continue };
            writeln!(stdin, "{}", answer(asked)).unwrap();
        }
        assert!(child.0.wait().unwrap().success(), "{part} failed, as said above");
    }
}

/// A program, ended when it goes out of scope.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn base(server: &Server) -> String {
    format!("http://127.0.0.1:{}/ui/", server.http)
}

fn nothing(asked: &str) -> Value {
    panic!("the page has asked for {asked}")
}

/// Pushes a job, and has a worker take it and end it as `end` says.
fn ended(client: &mut Client, queue: &str, id: &str, end: &str, fields: Value) {
    client.push_with(
        queue,
        json!({"n": 1}),
        json!({"jobId": id, "maxAttempts": 1, "priority": 1000}),
    );
    let pulled = client
        .ok("PULL", json!({"queue": queue, "owner": "w-1", "lockTtl": 3_600_000, "detach": true}));
    assert_eq!(pulled["job"]["id"], id);
    let mut fields = fields;
    fields["id"] = id.into();
    fields["token"] = pulled["token"].clone();
    client.ok(end, fields);
}

/// Jobs in most states in the queue `mail`, by names of their states.
fn with_work(server: &Server) -> Value {
    let mut client = server.client();
    let stack = ["Error: broken pipe", "    at send (mail.js:4:2)"];
    ended(&mut client, "mail", "dead", "FAIL", json!({"error": "broken pipe", "stack": stack}));
    ended(&mut client, "mail", "done", "ACK", json!({"result": {"sent": true}}));
    client.push_with(
        "mail",
        json!({"to": "ada@example.org"}),
        json!({"jobId": "waiting", "tags": ["eu"]}),
    );
    client.push_with(
        "mail",
        json!({"to": "bob@example.org"}),
        json!({"jobId": "waiting-2", "groupId": "g"}),
    );
    client.push_with(
        "mail",
        json!({"to": "eve@example.org"}),
        json!({"jobId": "later", "delay": 86_400_000}),
    );
    json!({"waiting": "waiting", "delayed": "later", "dead": "dead", "completed": "done"})
}

#[test]
fn every_page_of_the_dashboard_works_in_light_and_dark_on_desks_and_phones_and_axe_finds_nothing() {
    let Some(driver) = Driver::find() else { return };
    let server = Server::start_default();
    let jobs = with_work(&server);
    driver.play(&base(&server), "pages", json!({ "jobs": jobs }), nothing);
}

#[test]
fn what_the_dashboard_does_to_queues_and_jobs_is_what_it_says() {
    let Some(driver) = Driver::find() else { return };
    let server = Server::start_default();
    let jobs = with_work(&server);
    let mut client = server.client();
    let answer = |asked: &str| match asked.split_once(' ').unwrap_or((asked, "")) {
        ("paused", _) => client.ok("IsPaused", json!({"queue": "mail"})),
        ("limits", _) => {
            client.ok("GetQueueLimits", json!({"queue": "mail"}))["data"]["limits"].clone()
        }
        ("counts", _) => client.ok("GetJobCounts", json!({"queue": "mail"}))["counts"].clone(),
        ("state", id) => client.state(id).into(),
        other => panic!("{other:?}"),
    };
    driver.play(&base(&server), "actions", json!({ "jobs": jobs }), answer);
}

#[test]
fn all_jobs_of_a_state_are_counted_before_a_task_runs_retries_or_removes_them() {
    let Some(driver) = Driver::find() else { return };
    let server = Server::start_default();
    with_work(&server);
    let mut client = server.client();
    driver.play(&base(&server), "queue_tasks", json!({}), |asked| match asked {
        "counts" => client.ok("GetJobCounts", json!({"queue": "mail"}))["counts"].clone(),
        _ => {
            for id in ["dead-2", "dead-3"] {
                ended(&mut client, "mail", id, "FAIL", json!({"error": "broken pipe"}));
            }
            true.into()
        }
    });
}

#[test]
fn the_dashboard_says_why_a_job_does_not_run() {
    let Some(driver) = Driver::find() else { return };
    let server = Server::start_default();
    let mut client = server.client();
    let mut push = |queue: &str, id: &str, fields: Value| {
        let mut fields = fields;
        fields["jobId"] = id.into();
        client.push_with(queue, 1, fields);
    };
    push("paused", "in-paused", json!({}));
    push("idle", "in-idle", json!({}));
    push("idle", "second", json!({"priority": -1}));
    push("idle", "delayed", json!({"delay": 86_400_000}));
    push("idle", "child", json!({"dependsOn": ["in-idle"]}));
    push("idle", "mortal", json!({"ttl": 86_400_000}));
    push("groups", "in-group", json!({"groupId": "g"}));
    push("slow", "first-slow", json!({}));
    push("slow", "in-slow", json!({}));
    push("narrow", "leased", json!({}));
    push("narrow", "in-narrow", json!({}));
    push("held", "in-held", json!({"groupId": "g"}));
    client.ok("Pause", json!({"queue": "paused"}));
    client.ok("PauseGroup", json!({"queue": "groups", "groupId": "g"}));
    client.ok("RateLimitGroup", json!({"queue": "held", "groupId": "g", "duration": 86_400_000}));
    client.ok("RateLimit", json!({"queue": "slow", "limit": 1, "duration": 86_400_000}));
    client.ok("SetConcurrency", json!({"queue": "narrow", "limit": 1}));
    for queue in ["slow", "narrow"] {
        let pull = json!({"queue": queue, "owner": "w-1", "lockTtl": 3_600_000, "detach": true});
        assert!(client.ok("PULL", pull)["job"].is_object());
    }
    let jobs = json!({
        "queue_paused": "in-paused",
        "no_worker": "in-idle",
        "jobs_before": "second",
        "delayed": "delayed",
        "dependencies": "child",
        "ttl": "mortal",
        "group_paused": "in-group",
        "group_held": "in-held",
        "queue_rate": "in-slow",
        "queue_concurrency": "in-narrow",
        "leased": "leased",
    });
    driver.play(&base(&server), "reasons", json!({ "jobs": jobs }), nothing);
}

/// A cause, where a job has it, and what is read of it.
fn cause(code: &str, queue: &str, job: &str, says: &[&str]) -> Value {
    let title = if code == "leased" { "It runs" } else { "Why it does not run" };
    json!({"code": code, "queue": queue, "job": job, "says": says, "title": title})
}

/// The fear: `Explain` knows, and a person who looks at the page does not.
#[test]
fn the_page_explains_each_of_eleven_causes() {
    let Some(driver) = Driver::find() else { return };
    let server = Server::start_default();
    let mut client = server.client();
    let mut push = |queue: &str, id: &str, fields: Value| {
        let mut fields = fields;
        fields["jobId"] = id.into();
        client.push_with(queue, 1, fields);
    };
    push("paused", "in-paused", json!({}));
    push("groups", "in-group", json!({"groupId": "g"}));
    push("held", "in-held", json!({"groupId": "g"}));
    push("slow", "first-slow", json!({}));
    push("slow", "in-slow", json!({}));
    push("narrow", "taken", json!({}));
    push("narrow", "in-narrow", json!({}));
    push("later", "in-later", json!({"delay": 86_400_000}));
    push("again", "in-again", json!({"backoff": 86_400_000, "maxAttempts": 3}));
    push("series", "first-run", json!({"repeat": {"every": 86_400_000}}));
    push("family", "needed", json!({}));
    push("family", "in-family", json!({"dependsOn": ["needed"]}));
    push("line", "in-front", json!({}));
    push("line", "in-line", json!({"priority": -1}));
    push("lonely", "in-lonely", json!({}));
    push("mortal", "in-mortal", json!({"ttl": 86_400_000}));
    client.ok("Pause", json!({"queue": "paused"}));
    client.ok("PauseGroup", json!({"queue": "groups", "groupId": "g"}));
    client.ok("RateLimitGroup", json!({"queue": "held", "groupId": "g", "duration": 86_400_000}));
    client.ok("RateLimit", json!({"queue": "slow", "limit": 1, "duration": 86_400_000}));
    client.ok("SetConcurrency", json!({"queue": "narrow", "limit": 1}));
    for queue in ["slow", "narrow", "again", "series"] {
        let pull = json!({"queue": queue, "owner": "w-1", "lockTtl": 3_600_000, "detach": true});
        let pulled = client.ok("PULL", pull);
        let held = json!({"id": pulled["job"]["id"], "token": pulled["token"]});
        match queue {
            "again" => drop(client.ok("FAIL", held)),
            "series" => drop(client.ok("ACK", held)),
            _ => {}
        }
    }
    let delayed = client.ok("GetJobs", json!({"queue": "series", "state": "delayed"}));
    let next_run = delayed["jobs"][0]["id"].as_str().unwrap().to_owned();
    let causes = [
        // 1: something is paused or held.
        cause(
            "queue_paused",
            "paused",
            "in-paused",
            &["Its queue is paused", "resumed", "Resume the queue"],
        ),
        cause(
            "group_paused",
            "groups",
            "in-group",
            &["Its group is paused", "group g", "resumed", "Show the group"],
        ),
        cause("group_held", "held", "in-held", &["Its group is held", "group g"]),
        // 2 and 3: limits, the second with the jobs that take the places.
        cause("queue_rate", "slow", "in-slow", &["rate limit", "1 in 1 d", "Show the limits"]),
        // 11: when it starts if nothing changes.
        json!({"code": "queue_rate", "queue": "slow", "job": "in-slow", "says": [], "title": "Estimated start, if nothing changes"}),
        cause(
            "queue_concurrency",
            "narrow",
            "in-narrow",
            &["1 active job, and the limit is 1", "taken", "one of them ends"],
        ),
        // 4: its time has not come, for one of three reasons.
        cause("delayed", "later", "in-later", &["It is delayed", "It is delayed for"]),
        cause("delayed", "again", "in-again", &["after attempt 1 failed"]),
        cause("delayed", "series", &next_run, &["repeats every 1 d"]),
        // 5 to 9: other jobs, no worker, a worker, the end of its life.
        cause(
            "dependencies",
            "family",
            "in-family",
            &["It waits for other jobs", "needed (waiting)"],
        ),
        cause("jobs_before", "line", "in-line", &["Other jobs go first", "1 job goes before it"]),
        cause(
            "no_worker",
            "lonely",
            "in-lonely",
            &["Nobody pulls from its queue", "Show the workers"],
        ),
        cause("leased", "narrow", "taken", &["A worker has it", "The worker w-1 has it"]),
        cause("ttl", "mortal", "in-mortal", &["Its time to live ends", "unless it starts before"]),
    ];
    driver.play(&base(&server), "causes", json!({ "causes": causes }), nothing);

    // 10: the disk is full.
    let start = Start::new().env("SHARDS", 1).env("SEGMENT_MB", 16).env("DATA_MAX_MB", 96);
    let server = start.env("PAYLOAD_CACHE_MB", 8).start();
    let mut client = server.client();
    client.push_with("small", 1, json!({"jobId": "in-small"}));
    let large = "f".repeat(300_000);
    until("the disk is full", || {
        let reply = client.call("PUSH", json!({"queue": "full", "data": large}));
        (reply["code"] == "disk_full").then_some(())
    });
    let causes = [cause("disk_full", "small", "in-small", &["The disk is full", "there is room"])];
    driver.play(&base(&server), "causes", json!({ "causes": causes }), nothing);
}

#[test]
fn payloads_are_shown_with_their_digits_and_what_is_covered_is_nowhere() {
    let Some(driver) = Driver::find() else { return };
    let server = Start::new().env("UI_REDACT", "password,cards.*.number").start();
    let data = r#"{"data":{"id":18446744073709551615,"odd":9007199254740993,"whole":1.0,"text":"<img src=x onerror=window.stolen=1>",
        "list":[1,{"deep":true}],"user":{"password":"hunter2"},"cards":[{"number":"4111111111111111"}]},
        "jobId":"job","name":"<script>window.stolen=1</script>"}"#;
    let pushed = server.web().call("POST", "/queues/mail/jobs", &[], data.as_bytes());
    pushed.expect(200);
    let shown = ["18446744073709551615", "9007199254740993", "1.0", "onerror"];
    let hidden = ["hunter2", "4111111111111111"];
    driver.play(
        &base(&server),
        "payloads",
        json!({"job": "job", "shown": shown, "hidden": hidden}),
        nothing,
    );
}

#[test]
fn the_dashboard_is_used_by_keys_alone() {
    let Some(driver) = Driver::find() else { return };
    let server = Server::start_default();
    with_work(&server);
    server.client().push("bills", 1);
    driver.play(&base(&server), "keys", json!({}), nothing);
}

#[test]
fn the_dashboard_asks_for_a_token_and_offers_what_its_role_may_do() {
    let Some(driver) = Driver::find() else { return };
    let tokens = "boss,read:reader,admin(mail*):clerk,work:hand";
    let server = Start::new().env("AUTH_TOKENS", tokens).start();
    let mut web = server.web().with_token("boss");
    web.push("mail", json!({"data": 1, "jobId": "job"}));
    web.push("other", json!({"data": 1}));
    let mut boss = server.client();
    boss.ok("Auth", json!({"token": "boss"}));
    let child = |id: &str, queue: &str| json!({"id": id, "queue": queue, "input": {"data": 1, "parentId": "top"}});
    let children = ["own-child", "secret-child"];
    let top = json!({"data": 1, "childrenIds": children, "dependsOn": children});
    let jobs = json!([
        child("own-child", "mail"),
        child("secret-child", "other"),
        {"id": "top", "queue": "mail", "input": top},
    ]);
    boss.ok("PUSHF", json!({ "jobs": jobs }));
    let tokens = json!({"admin": "boss", "read": "reader", "clerk": "clerk", "work": "hand"});
    let neighbour = format!("http://127.0.0.1:{}", free_port());
    let settings = json!({"tokens": tokens, "job": "job", "flow": "top", "neighbour": neighbour});
    driver.play(&base(&server), "login", settings, |asked| {
        if asked == "paused" {
            return boss.ok("IsPaused", json!({"queue": "mail"}))["paused"].clone();
        }
        assert_eq!(asked, "workers");
        for (name, queue) in [("mailer", "mail"), ("stranger", "other")] {
            boss.ok("RegisterWorker", json!({"name": name, "queues": [queue]}));
        }
        true.into()
    });
}

#[test]
fn a_page_goes_on_after_the_server_was_restarted_under_it() {
    let Some(driver) = Driver::find() else { return };
    let mut server = Server::start_default();
    with_work(&server);
    let at = base(&server);
    driver.play(&at, "restart", json!({}), |asked| {
        match asked {
            "kill" => server.kill(),
            "start" => server.start(),
            _ => {
                let id = server.client().push("mail", 7);
                return json!({ "id": id });
            }
        }
        json!({})
    });
}

/// The colour is one on which white text cannot be read.
#[test]
fn a_page_that_may_only_look_offers_nothing_else_and_names_its_environment() {
    let Some(driver) = Driver::find() else { return };
    let start = Start::new().env("UI_READ_ONLY", "true").env("UI_LABEL", "prod");
    let server = start.env("UI_COLOR", "yellow").start();
    let jobs = with_work(&server);
    let cron = json!({"name": "nightly", "queue": "bills", "data": 1, "schedule": "0 3 * * *"});
    server.client().ok("Cron", cron);
    driver.play(&base(&server), "read_only", json!({ "jobs": jobs }), nothing);
}

/// More queues have a larger backlog than the page has rows for.
#[test]
fn the_overview_finds_the_job_that_waits_longest_and_alerts_to_it_and_to_new_dead_letters() {
    let Some(driver) = Driver::find() else { return };
    let server = Server::start_default();
    let mut client = server.client();
    client.push("forgotten", 1);
    for n in 0..101 {
        for _ in 0..2 {
            client.push_with(&format!("crowd-{n:03}"), 1, json!({"delay": 2000}));
        }
    }
    driver.play(&base(&server), "alerts", json!({"oldest": "forgotten"}), |asked| {
        assert_eq!(asked, "bury");
        ended(&mut client, "mail", "dead", "FAIL", json!({"error": "broken pipe"}));
        true.into()
    });
}

/// How many connections watch, as the shards say.
fn viewers(client: &mut Client) -> u64 {
    let shards = client.ok("Shards", json!({}))["data"]["shards"].clone();
    shards.as_array().unwrap().iter().map(|shard| shard["viewers"].as_u64().unwrap()).sum()
}

#[test]
fn a_page_says_that_it_is_behind_and_asks_for_nothing_while_it_is_not_seen() {
    let Some(driver) = Driver::find() else { return };
    let server = Server::start_default();
    with_work(&server);
    let mut client = server.client();
    driver.play(&base(&server), "pauses", json!({}), |asked| {
        match asked.split_once(' ').unwrap_or((asked, "")) {
            ("freeze", _) => server.freeze(),
            ("thaw", _) => server.signal(Signal::CONT),
            ("push", pushes) => {
                let (number, name) = pushes.split_once(' ').unwrap();
                for _ in 0..number.parse().unwrap() {
                    client.push_with("mail", 1, json!({ "name": name }));
                }
            }
            (_, wanted) => {
                let wanted: u64 = wanted.parse().unwrap();
                until("as many viewers", || (viewers(&mut client) == wanted).then_some(()));
            }
        }
        true.into()
    });
}

#[test]
fn an_empty_server_shows_how_to_push_a_first_job_and_then_shows_it() {
    let Some(driver) = Driver::find() else { return };
    let server = Server::start_default();
    let address = format!("http://127.0.0.1:{}/queues", server.http);
    let settings = json!({"address": address, "tcp": server.tcp});
    // The Rust program that the page shows is an example that is built with the client.
    let example = Path::new(ROOT).join("clients/rust/examples/first.rs");
    let example =
        fs::read_to_string(example).unwrap().replace(":6789", &format!(":{}", server.tcp));
    let (_, example) = example.split_once("\n\n").unwrap();
    driver.play(&base(&server), "empty", settings, |asked| {
        let output = match asked.split_once(' ').unwrap() {
            ("rust", program) => {
                let program: String = serde_json::from_str(program).unwrap();
                assert_eq!(program.split_once('\n').unwrap().1.trim_end(), example.trim_end());
                return json!({});
            }
            ("sh", command) => Command::new("sh").args(["-c", command]).output(),
            (_, program) => {
                let program: String = serde_json::from_str(program).unwrap();
                Command::new("node").args(["--input-type=module", "-e", &program]).output()
            }
        };
        let output = output.unwrap();
        assert!(output.status.success(), "{asked}: {output:?}");
        json!({})
    });
}

#[test]
fn ten_thousand_queues_are_scrolled_to_the_last_and_only_those_seen_are_rows_made_few_at_a_time() {
    const QUEUES: usize = 10_000;
    let Some(driver) = Driver::find() else { return };
    let server = Start::new().memory().start();
    let mut client = server.client();
    let names: Vec<String> = (0..QUEUES).map(|n| format!("q-{n:05}")).collect();
    for queue in &names {
        client.push(queue, 1);
    }
    driver.play(&base(&server), "many", json!({"last": names[QUEUES - 1]}), nothing);
}

/// Of the distribution, as in front of many servers.
#[test]
fn the_dashboard_works_below_a_path_of_a_proxy() {
    let Some(driver) = Driver::find() else { return };
    let Some(nginx) = judges_by("nginx", "NGINX") else { return };
    let server = Server::start_default();
    with_work(&server);
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let conf = dir.path().join("nginx.conf");
    let text = fs::read_to_string(Path::new(ROOT).join("docs/dashboard.md")).unwrap();
    let (_, location) = text.split_once("```nginx\n").unwrap();
    let (location, _) = location.split_once("```").unwrap();
    let location = location.replace(":6790/", &format!(":{}/", server.http));
    let own = dir.path().display();
    let text = format!(
        "daemon off; master_process off; pid {own}/pid; error_log stderr;
        events {{}}
        http {{
            access_log off;
            client_body_temp_path {own}/body; proxy_temp_path {own}/proxy; fastcgi_temp_path {own}/fastcgi;
            uwsgi_temp_path {own}/uwsgi; scgi_temp_path {own}/scgi;
            server {{ listen 127.0.0.1:{port}; {location} }}
        }}"
    );
    fs::write(&conf, text).unwrap();
    let child = Command::new(nginx).arg("-p").arg(dir.path()).arg("-c").arg(&conf).spawn().unwrap();
    let _running = Running(child);
    until("the proxy listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let page = format!("http://127.0.0.1:{port}/corq/ui/");
    driver.play(&page, "proxy", json!({"path": "/corq/ui/"}), nothing);
}
