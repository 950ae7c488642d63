//! Files of the server that other users of the machine can read. The fear: keys, payloads and the secrets of webhooks
//! in files that are open to all, and not a word about it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::json;

use crate::secure::Authority;
use crate::support::tool::Tool;
use crate::support::{Server, Start, until};

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_key_that_others_can_read_or_write_is_warned_of_by_a_start_and_by_a_sighup() {
    let authority = Authority::new();
    let paper = authority.issue("server", None);
    chmod(&paper.key, 0o666);
    let start = Start::new()
        .env("TLS_CERT_FILE", paper.cert.display())
        .env("TLS_KEY_FILE", paper.key.display());
    let server = start.start();
    let line = format!(
        " WARN TLS_KEY_FILE: {}: its mode is 0666, so every user of this machine can read and replace it",
        paper.key.display()
    );
    assert_eq!(server.output().matches(&line).count(), 1, "{}", server.output());
    server.signal(Signal::HUP);
    until("the warning to come again", || {
        (server.output().matches(&line).count() == 2).then_some(())
    });
    chmod(&paper.key, 0o640);
    chmod(&paper.cert, 0o646);
    server.signal(Signal::HUP);
    until("the certificate to be read", || {
        (server.output().matches("the certificate was read again").count() == 2).then_some(())
    });
    // The warning about the files comes after that line.
    until("the other warning", || server.output().contains("WARN TLS_CERT_FILE: ").then_some(()));
    assert_eq!(server.output().matches(&line).count(), 2, "{}", server.output());
    // The command line says so of its own key.
    let client = authority.issue("client", None);
    let (ca, cert, key) = (authority.path(), client.cert.display().to_string(), &client.key);
    let tool = Tool::of(&server)
        .env("CORQ_TLS_CA", ca.display())
        .env("CORQ_TLS_CERT", cert)
        .env("CORQ_TLS_KEY", key.display());
    tool.ok(&["ping"]);
    chmod(key, 0o644);
    let ran = tool.run(&["ping"]);
    assert!(ran.code == Some(0) && ran.err.starts_with("corq: warning: --tls-key: "), "{ran:?}");
}

/// All below a directory, itself included, that users who are neither its owner nor in its group have any right to.
fn open_to_others(path: &Path) -> Vec<String> {
    let about = fs::symlink_metadata(path).unwrap();
    let mode = about.permissions().mode() & 0o777;
    let own = (mode & 0o007 != 0).then(|| format!("{} {mode:04o}", path.display()));
    let below = about.is_dir().then(|| fs::read_dir(path).unwrap().map(|it| it.unwrap().path()));
    let below = below.into_iter().flatten().flat_map(|path| open_to_others(&path));
    own.into_iter().chain(below).collect()
}

#[test]
fn what_is_written_is_closed_to_other_users() {
    let mut server = Server::start_default();
    server.client().ok("PUSH", json!({"queue": "q", "data": "secret"}));
    assert_eq!(open_to_others(&server.data), [""; 0]);
    let tool = Tool::of(&server);
    let data = server.data.display().to_string();
    let [copy, back] = ["copy", "back"].map(|name| server.data.with_file_name(name));
    tool.ok(&["backup", copy.to_str().unwrap(), "--data-path", &data, "--copy"]);
    tool.ok(&["restore", copy.to_str().unwrap(), back.to_str().unwrap()]);
    assert_eq!([open_to_others(&copy), open_to_others(&back)], [[""; 0], [""; 0]]);
    assert!(!server.output().contains("can read the jobs"), "{}", server.output());
    // As earlier releases left it.
    assert!(server.terminate().success());
    chmod(&server.data, 0o755);
    chmod(&server.data.join("shard-0000"), 0o755);
    server.start();
    let line = "every user of this machine can read the jobs and the webhooks' secrets in ";
    let said = server.output();
    assert_eq!(said.matches(line).count(), 1, "{said}");
}
