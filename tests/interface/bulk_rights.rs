//! Rights of a token to change many jobs at once.

use rustix::process::Signal;
use serde_json::{Value as Json, json};

use crate::interface::bulk_tasks::{begin, ended, figure, fill, run};
use crate::support::{Client, Server, Start, until};

fn admitted(server: &Server, token: &str) -> Client {
    let mut client = server.client();
    client.ok("Auth", json!({"token": token}));
    client
}

#[test]
fn a_token_acts_as_its_role_may_and_on_its_queues_only() {
    let tokens =
        "boss,read:reader,push:pusher,work:worker,admin(mail.*):postmaster,work(other.*):sorter";
    let server = Start::new().env("AUTH_TOKENS", tokens).env("SHARDS", 2).start();
    let mut boss = admitted(&server, "boss");
    let mine = boss.push("mail.a", 1);
    let other = boss.push("sms", 1);
    let bulk = |action: &str, queue: &str| json!({"action": action, "queue": queue, "filter": {}, "delay": 3_600_000});
    let refuses = |client: &mut Client, cmd: &str, fields: Json| {
        let reply = client.call(cmd, fields);
        assert_eq!(reply["code"], "forbidden", "{cmd}: {reply}");
    };
    for (token, action) in
        [("reader", "remove"), ("pusher", "delay"), ("worker", "remove"), ("worker", "cancel")]
    {
        refuses(&mut admitted(&server, token), "Bulk", bulk(action, "sms"));
    }
    // A worker may put off one job, so it may put off many.
    let mut worker = admitted(&server, "worker");
    let of_worker = worker.ok("Bulk", bulk("delay", "sms"))["taskId"].clone();
    let task = ended(&mut worker, &of_worker);
    assert_eq!((figure(&task, "changed"), &task["startedBy"]), (1, &json!("work")));
    assert_eq!(ended(&mut admitted(&server, "reader"), &of_worker)["state"], "done");
    refuses(&mut admitted(&server, "pusher"), "GetTask", json!({"task": of_worker}));
    refuses(&mut admitted(&server, "reader"), "CancelTask", json!({"task": of_worker}));
    // A worker may not cancel the task of an admin.
    let of_boss = begin(&mut boss, bulk("promote", "sms"));
    refuses(&mut worker, "CancelTask", json!({"task": of_boss}));
    ended(&mut boss, &of_boss);

    let mut postmaster = admitted(&server, "postmaster");
    refuses(&mut postmaster, "Bulk", bulk("remove", "sms"));
    refuses(&mut postmaster, "DlqGroups", json!({}));
    postmaster.ok("DlqGroups", json!({"queue": "mail.a"}));
    // A job of another queue is one that does not exist.
    let ids = json!({"action": "cancel", "ids": [mine, other, "unknown"]});
    let by_ids = begin(&mut postmaster, ids);
    let task = ended(&mut postmaster, &by_ids);
    assert_eq!((figure(&task, "changed"), &task["skipped"]["notFound"]), (1, &json!(2)), "{task}");
    assert_eq!((figure(&task, "matched"), boss.state(&other)), (1, "waiting".to_owned()));
    // Tasks on other queues are as little there.
    assert_eq!(postmaster.refused("GetTask", json!({"task": of_boss})), "Task not found");
    assert_eq!(postmaster.refused("CancelTask", json!({"task": of_boss})), "Task not found");
    let listed = postmaster.ok("ListTasks", json!({}))["tasks"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let sorter = admitted(&server, "sorter").ok("ListTasks", json!({}))["tasks"].clone();
    assert_eq!(sorter, json!([]));
    assert_eq!(boss.ok("ListTasks", json!({}))["tasks"].as_array().unwrap().len(), 3);
}

/// The fear: an operator takes a token away, and what was begun with it goes on for hours.
#[test]
fn a_task_ends_when_its_token_is_gone_or_may_not_do_it_any_more() {
    const JOBS: usize = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    let write = |tokens: &str| std::fs::write(&file, tokens).unwrap();
    write("boss\ngone\nadmin(narrow, wide):narrowed\ndemoted\nkept\n");
    let start = Start::new().env("AUTH_TOKENS_FILE", file.display()).env("SHARDS", 2);
    let server = start.start();
    let mut boss = admitted(&server, "boss");
    let tokens = ["gone", "narrowed", "demoted", "kept"];
    let queues = ["of-one", "narrow", "of-another", "of-all"];
    for queue in queues {
        fill(&mut boss, queue, JOBS, |_| json!({"data": 1, "delay": 3_600_000}));
    }
    let mut clients = tokens.map(|token| admitted(&server, token));
    // Each of them takes hundreds of turns, and this is read with the signal.
    write("boss\nadmin(wide):narrowed\nread:demoted\nadmin(of-all):kept\n");
    let tasks = clients.iter_mut().zip(queues).map(|(client, queue)| {
        begin(client, json!({"action": "cancel", "queue": queue, "filter": {}}))
    });
    let tasks: Vec<Json> = tasks.collect();
    server.signal(Signal::HUP);
    let [gone, narrowed, demoted, kept] = [0, 1, 2, 3].map(|place| ended(&mut boss, &tasks[place]));
    for task in [gone, narrowed, demoted] {
        assert_eq!(task["state"], "cancelled", "{task}");
        let error = "The token that began it is gone or may not do this any more";
        assert_eq!(task["error"], error, "{task}");
        let (queue, changed) = (task["queue"].as_str().unwrap(), figure(&task, "changed"));
        assert!(changed < JOBS as u64, "{task}");
        assert_eq!(boss.counted(queue, "delayed"), JOBS as u64 - changed, "{task}");
    }
    assert_eq!((&kept["state"], figure(&kept, "changed")), (&json!("done"), JOBS as u64), "{kept}");
    // A token that comes back is another one, and begins anew.
    write("boss\ngone\n");
    server.signal(Signal::HUP);
    until("the token to count again", || {
        let mut client = server.client();
        (client.call("Auth", json!({"token": "gone"}))["ok"] == true).then_some(())
    });
    let fields = json!({"action": "cancel", "queue": "of-one", "filter": {}});
    run(&mut admitted(&server, "gone"), fields);
    assert_eq!(boss.counted("of-one", "delayed"), 0);
}
