//! Signals. The fear: one that a supervisor, a terminal or an operator sends by mistake ends a server that has work.

use std::process::Command;

use serde_json::json;

use crate::support::{Server, Start, until};

fn send(server: &Server, number: u32) {
    let words =
        ["-c", "kill -s \"$1\" \"$2\"", "sh", &number.to_string(), &server.pid().to_string()];
    assert!(Command::new("sh").args(words).status().unwrap().success(), "{number}");
}

/// Signals that end a process by default, but for SIGKILL, those that end a server (SIGINT, SIGQUIT, SIGTERM, SIGPWR),
/// those that tell of a fault (SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS) and the two that the C
/// library has for itself: by their names in the log, with their numbers on all systems that corq runs on.
fn strays() -> Vec<(u32, String)> {
    let named = [
        (1, "SIGHUP"),
        (10, "SIGUSR1"),
        (12, "SIGUSR2"),
        (14, "SIGALRM"),
        (16, "SIGSTKFLT"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
        (26, "SIGVTALRM"),
        (27, "SIGPROF"),
        (29, "SIGIO"),
    ];
    let named = named.map(|(number, name)| (number, name.to_owned()));
    named.into_iter().chain((34..=64).map(|n| (n, format!("SIGRTMIN+{}", n - 34)))).collect()
}

#[test]
fn signals_that_mean_nothing_do_not_end_it_and_are_told_of_once() {
    let mut server = Start::new().start();
    let mut client = server.client();
    let id = client.push("q", 1);
    for (number, name) in strays() {
        for _ in 0..2 {
            send(&server, number);
            let line = format!("{name} came and means nothing here");
            until(&line, || {
                let ended = server.ended();
                assert!(ended.is_none(), "{name}: {ended:?}");
                server.output().contains(&line).then_some(())
            });
        }
    }
    // SIGPIPE is ignored, without a word.
    send(&server, 13);
    assert_eq!(client.pull("q")["id"], json!(id));
    assert_eq!(server.terminate().code(), Some(0));
    for (_, name) in strays() {
        assert_eq!(server.output().matches(&format!(" {name} came")).count(), 1, "{name}");
    }
}

#[test]
fn signals_that_want_the_end_bring_a_good_one() {
    let mut server = Start::new().start();
    for (number, said) in [(2, "Interrupt"), (3, "Quit"), (15, "Terminate"), (30, "Power")] {
        let id = server.client().push("q", number);
        send(&server, number);
        assert_eq!(server.wait_for_end().code(), Some(0), "{number}: {}", server.output());
        assert!(server.output().contains(&format!("stopping on {said}")), "{}", server.output());
        server.start();
        assert_eq!(server.client().state(&id), "waiting");
    }
}
