//! The page of one job in a real browser while a worker has the job. The fears: a page that shows what was, and a command that is
//! copied from it and pushes another job.

use std::process::Command;

use serde_json::json;

use crate::dashboard::{Driver, base};
use crate::support::{Server, program};

#[test]
fn a_job_is_followed_live_and_what_is_copied_from_its_page_pushes_the_same_again() {
    let Some(driver) = Driver::find() else { return };
    let server = Server::start_default();
    let mut client = server.client();
    let pull = json!({"queue": "mail", "owner": "w-1", "lockTtl": 3_600_000, "detach": true});
    client.push_with("mail", "f".repeat(1_200_000), json!({"jobId": "large"}));
    let large = client.ok("PULL", pull.clone());
    let data = json!({"id": u64::MAX, "odd": 9_007_199_254_740_993_u64, "text": "it's 5 % \"off\" & $HOME `id` \\ é"});
    let options = json!({
        "jobId": "small", "name": "welcome o'clock", "tags": ["eu", "two words"], "priority": -7, "groupId": "tenant 1",
    });
    client.push_with("mail", data, options);
    let small = client.ok("PULL", pull.clone());
    assert_eq!([&large["job"]["id"], &small["job"]["id"]], ["large", "small"]);
    let bin = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(program(), bin.path().join("corq")).unwrap();
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let settings = json!({"jobs": {"small": "small", "large": "large"}});
    driver.play(&base(&server), "job_live", settings, |asked| {
        match asked.split_once(' ').unwrap() {
            ("sh", command) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", command]).env("PATH", &path).env("CORQ_PORT", server.tcp.to_string());
                let output = shell.env("CORQ_TOKEN", "").output().unwrap();
                assert!(output.status.success(), "{command}: {output:?}");
                let pushed = client.ok("PULL", pull.clone());
                for field in ["data", "name", "tags", "priority", "groupId"] {
                    assert_eq!(pushed["job"][field], small["job"][field], "{field} of {command}");
                }
                client.ok("ACK", json!({"id": pushed["job"]["id"], "token": pushed["token"]}));
            }
            ("log", message) => drop(client.ok("AddLog", json!({"id": "small", "message": message}))),
            ("progress", percent) => {
                let percent: u64 = percent.parse().unwrap();
                let token = &small["token"];
                client.ok(
                    "Progress",
                    json!({"id": "small", "progress": percent, "message": "half of it", "token": token}),
                );
            }
            (_, id) => {
                let token = if id == "small" { &small["token"] } else { &large["token"] };
                client.ok("ACK", json!({"id": id, "token": token, "result": {"sent": 20}}));
            }
        }
        true.into()
    });
}
