//! schemathesis tries the server by `docs/openapi.yaml`: thousands of requests that the document allows or
//! forbids, and chains of them; every answer must be one that the document describes. It comes from
//! `scripts/judges.sh`, which needs the network once; `CORQ_TEST_PYTHON=off` leaves this out where there is
//! none. `CORQ_JUDGE_EXAMPLES` is how many requests are made up per endpoint (default 20; `make judges`: 100).

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::streams::judges_by;
use crate::support::{Server, Start, until};

const TOKEN: &str = "judges-token";

#[test]
fn schemathesis_finds_no_answer_that_the_openapi_document_does_not_describe() {
    let Some(schemathesis) = judges_by("api", "PYTHON") else { return };
    let root = Path::new(crate::ROOT);
    let server = Start::new().env("AUTH_TOKENS", TOKEN).start();
    let examples = std::env::var("CORQ_JUDGE_EXAMPLES").unwrap_or_else(|_| "20".to_owned());
    let scratch = tempfile::tempdir().unwrap();
    let output = Command::new(schemathesis)
        .arg("--config-file")
        .arg(root.join("tests/clients/openapi/schemathesis.toml"))
        .args(["run", "--no-color", "--max-examples", &examples, "--url"])
        .arg(format!("http://127.0.0.1:{}", server.http))
        .arg(root.join("docs/openapi.yaml"))
        .env("CORQ_JUDGE_TOKEN", TOKEN)
        .env("CORQ_JUDGE_HOOKS", root.join("tests/clients/openapi/hooks.py"))
        .current_dir(scratch.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    // An endpoint that it could not make a request for is no failure to it.
    let number = |label: &str| {
        let (_, behind) = said.split_once(label).unwrap_or_else(|| panic!("{said}"));
        behind.split(['/', '\n']).next().unwrap().trim().parse::<u32>().unwrap()
    };
    assert!(number("Selected:") > 140 && number("Tested:") == number("Selected:"), "{said}");
}

/// The object that a schema of the document describes has no other fields, nor have those in its lists.
fn is_described(document: &Value, schema: &Value, value: &Value, path: &str) {
    let schema = match schema["$ref"].as_str() {
        Some(name) => document.pointer(&name[1..]).unwrap(),
        None => schema,
    };
    match value {
        Value::Object(fields) if schema["additionalProperties"] == false => {
            for (name, value) in fields {
                let field = &schema["properties"][name];
                assert!(!field.is_null(), "{path}.{name} is not in docs/openapi.yaml");
                is_described(document, field, value, &format!("{path}.{name}"));
            }
        }
        Value::Array(items) => {
            for item in items {
                is_described(document, &schema["items"], item, path);
            }
        }
        _ => {}
    }
}

/// A job that came to fail, and whose worker went silent, is hardly ever seen by requests that are made up.
#[test]
fn a_job_with_failed_attempts_has_no_field_that_the_openapi_document_does_not_describe() {
    let root = Path::new(crate::ROOT);
    let text = std::fs::read_to_string(root.join("docs/openapi.yaml")).unwrap();
    let document: Value = serde_saphyr::from_str(&text).unwrap();
    let server = Server::start_default();
    let mut client = server.client();
    let options =
        json!({"jobId": "job", "maxAttempts": 3, "backoff": {"type": "fixed", "delay": 0}});
    client.push_with("q", json!({"n": 1}), options);
    let pull = |lock: u64| json!({"queue": "q", "timeout": 60_000, "owner": "w", "lockTtl": lock, "detach": true});
    let mut pulled = client.ok("PULL", pull(1));
    let mut seen = Vec::new();
    for end in ["silent", "FAIL", "FAIL"] {
        if end == "FAIL" {
            let failed = json!({"id": "job", "token": pulled["token"], "error": "broken", "stack": ["a", "b"]});
            client.ok(end, failed);
        }
        let failures = seen.len() as u64 + 1;
        let job = until("the attempt has failed", || {
            let job = server.web().get("/jobs/job").json()["job"].clone();
            let failed =
                job["timeline"].as_array().unwrap().iter().filter(|step| step["state"] == "failed");
            (failed.count() as u64 == failures).then_some(job)
        });
        let detail = server.web().get("/jobs/job/detail").json()["data"]["job"].clone();
        seen.push(job);
        for job in [seen.last().unwrap(), &detail] {
            is_described(&document, &document["components"]["schemas"]["Job"], job, "job");
        }
        if failures < 3 {
            pulled = client.ok("PULL", pull(3_600_000));
        }
    }
    assert_eq!(seen[2]["timeline"].as_array().unwrap().last().unwrap()["error"], "broken");
    // This can fail.
    let wrong = std::panic::catch_unwind(|| {
        let other = json!({"timeline": [{"state": "failed", "unheard": 1}]});
        is_described(&document, &document["components"]["schemas"]["Job"], &other, "job");
    });
    assert!(wrong.is_err());
}
