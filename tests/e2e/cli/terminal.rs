//! On a terminal: colour, width, and `top`, which must give it back as it was.

use rustix::process::{Pid, Signal, kill_process};

use super::{push, tool};
use crate::queue;
use crate::support::Start;
use crate::support::terminal::Terminal;
use crate::support::tool::Tool;

#[test]
fn colour_is_for_terminals_that_want_it() {
    let words = ["job", "state", "nobody"];
    let (code, shown) = Terminal::start(tool().command(&words)).end();
    assert_eq!((code, shown.as_str()), (Some(0), "\x1b[31munknown\x1b[0m\r\n"));
    let plain = Terminal::start(tool().env("NO_COLOR", "1").command(&words)).end();
    assert_eq!(plain, (Some(0), "unknown\r\n".to_owned()));
    assert_eq!(tool().ok(&words), "unknown\n");
}

#[test]
fn rows_end_where_the_terminal_does() {
    let (tool, queue) = (tool(), queue("cli-width"));
    push(&tool, &queue, &format!("\"{}\"", "x".repeat(500)));
    let words = ["queue", "jobs", &queue];
    let plain = tool.env("NO_COLOR", "1");
    let (_, shown) = Terminal::start(plain.command(&words)).end();
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    assert!(shown.contains("xx…"), "{shown}");
    // A pipe has no edge.
    assert!(plain.ok(&words).contains(&"x".repeat(500)));
}

#[test]
fn top_needs_a_terminal() {
    let line = tool().fails(2, &["top"]);
    assert!(line.contains("corq stats --json"), "{line}");
}

#[test]
fn top_shows_the_server_and_gives_the_terminal_back() {
    let server = Start::new().memory().start();
    let tool = Tool::of(&server);
    push(&tool, "emails", "1");
    let start = || {
        let terminal = Terminal::start(tool.command(&["top", "--interval", "100ms"]));
        // Spaces are not drawn, so words are what can be waited for.
        for word in ["emails", "second", "p99", "workers"] {
            terminal.wait_for(word);
        }
        assert!(!terminal.is_restored(), "it reads keys");
        terminal
    };
    let ends: [(&str, End); 4] = [
        ("q", |terminal| terminal.press("q")),
        ("Ctrl-C", |terminal| terminal.press("\x03")),
        ("SIGTERM", |terminal| signal(terminal, Signal::TERM)),
        ("SIGINT", |terminal| signal(terminal, Signal::INT)),
    ];
    for (name, end) in ends {
        let mut terminal = start();
        end(&mut terminal);
        crate::support::until("a usable terminal", || terminal.is_restored().then_some(()));
        let (code, shown) = terminal.end();
        assert_eq!(code, Some(0), "{name}");
        // The screen of before is back, and the cursor.
        assert!(shown.contains("\x1b[?1049l") && shown.contains("\x1b[?25h"), "{name}: {shown:?}");
    }
}

/// A way to end it.
type End = fn(&mut Terminal);

fn signal(terminal: &Terminal, signal: Signal) {
    kill_process(Pid::from_child(terminal.child()), signal).unwrap();
}

#[test]
fn top_goes_on_when_the_server_comes_back() {
    let mut server = Start::new().memory().start();
    let tool = Tool::of(&server);
    let mut terminal = Terminal::start(tool.command(&["top", "--interval", "100ms"]));
    terminal.wait_for("workers");
    server.kill();
    terminal.wait_for("server at 127.0.0.1");
    server.start();
    push(&tool, "afterwards", "1");
    terminal.wait_for("afterwards");
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn top_without_a_server_says_so_on_a_clean_terminal() {
    let tool = Tool::at(crate::support::free_port());
    let (code, shown) = Terminal::start(tool.command(&["top"])).end();
    assert_eq!(code, Some(1));
    assert!(shown.starts_with("corq: cannot reach a server"), "{shown:?}");
}
