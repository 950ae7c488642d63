//! schemathesis tries the server by `docs/openapi.yaml`: thousands of requests that the document allows or
//! forbids, and chains of them; every answer must be one that the document describes. It comes from
//! `scripts/judges.sh`, which needs the network once; `CORQ_TEST_PYTHON=off` leaves this out where there is
//! none. `CORQ_JUDGE_EXAMPLES` is how many requests are made up per endpoint (default 20; `make judges`: 100).

use std::path::Path;
use std::process::Command;

use crate::streams::judges_by;
use crate::support::Start;

const TOKEN: &str = "judges-token";

#[test]
fn schemathesis_finds_no_answer_that_the_openapi_document_does_not_describe() {
    let Some(schemathesis) = judges_by("api", "PYTHON") else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
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
    assert!(said.contains("Tested: 20\n"), "{said}");
}
