//! A service manager such as systemd: what it hears, and sockets that it keeps open. The fear: a start that is cut off while it
//! reads its log, a server that stands still and is taken for a living one, a restart that refuses connections.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::secure::{Authority, tunnel};
use crate::support::{Client, DEADLINE, Http, Server, Start, until};

/// A stand-in for the service manager, which listens where `NOTIFY_SOCKET` leads.
struct Manager {
    _dir: TempDir,
    socket: UnixDatagram,
    path: String,
}

impl Manager {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { _dir: dir, socket, path: path.display().to_string() }
    }

    /// The lines of the next message.
    fn next(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap().lines().map(str::to_owned).collect()
    }

    /// The next message that has this line, without those before it.
    fn until(&self, line: &str) -> Vec<String> {
        loop {
            let lines = self.next();
            if lines.iter().any(|it| it == line) {
                return lines;
            }
        }
    }
}

fn has(lines: &[String], begin: &str) -> bool {
    lines.iter().any(|line| line.starts_with(begin))
}

#[test]
fn a_manager_hears_how_far_a_start_is_that_it_is_ready_that_it_reloads_and_that_it_ends() {
    let manager = Manager::new();
    let mut server = Start::new().env("NOTIFY_SOCKET", &manager.path).start();
    let first = manager.next();
    assert!(
        has(&first, "STATUS=at the beginning") && has(&first, "EXTEND_TIMEOUT_USEC="),
        "{first:?}"
    );
    let ready = manager.until("READY=1");
    assert!(has(&ready, "STATUS=serves tcp 127.0.0.1:"), "{ready:?}");
    server.signal(Signal::HUP);
    let reloading = manager.next();
    assert_eq!(reloading[0], "RELOADING=1");
    let since_us: u64 = reloading[1].strip_prefix("MONOTONIC_USEC=").unwrap().parse().unwrap();
    assert!(since_us > 0);
    assert_eq!(manager.next()[0], "READY=1");
    assert_eq!(server.terminate().code(), Some(0));
    let stopping = manager.next();
    assert!(has(&stopping, "STOPPING=1") && has(&stopping, "EXTEND_TIMEOUT_USEC="), "{stopping:?}");
}

#[test]
fn a_manager_gets_signs_of_life_only_while_the_server_lives() {
    let manager = Manager::new();
    let start = Start::new().env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", 200_000);
    let server = start.start();
    manager.until("READY=1");
    for _ in 0..3 {
        manager.until("WATCHDOG=1");
    }
    server.freeze();
    manager.socket.set_nonblocking(true).unwrap();
    while manager.socket.recv(&mut [0; 64]).is_ok() {}
    manager.socket.set_nonblocking(false).unwrap();
    manager.socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(manager.socket.recv(&mut [0; 64]).is_err(), "it stands still");
    server.signal(Signal::CONT);
    manager.socket.set_read_timeout(Some(DEADLINE)).unwrap();
    manager.until("WATCHDOG=1");
    // Another process's watchdog is none of ours.
    let other = Manager::new();
    let start = Start::new().env("NOTIFY_SOCKET", &other.path).env("WATCHDOG_USEC", 1);
    let mut server = start.env("WATCHDOG_PID", 1).start();
    other.until("READY=1");
    server.terminate();
    assert_eq!(other.next()[0], "STOPPING=1");
}

fn sockets() -> Arc<[TcpListener; 2]> {
    Arc::new([0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap()))
}

fn connections(server: &Server) -> Vec<u64> {
    let shards = server.client().ok("Shards", json!({}));
    let shards = shards["data"]["shards"].as_array().unwrap().clone();
    shards.iter().map(|shard| shard["connections"].as_u64().unwrap()).collect()
}

#[test]
fn connections_of_an_inherited_socket_are_shared_out_among_the_shards() {
    for shards in [1, 2, 4] {
        let server = Start::new().env("SHARDS", shards).inherits(&sockets()).start();
        assert!(server.output().contains(", inherited"), "{}", server.output());
        let mut clients: Vec<Client> = (0..8 * shards).map(|_| server.client()).collect();
        for (n, client) in clients.iter_mut().enumerate() {
            client.push("q", n);
        }
        until("as many on each shard", || {
            // The one that asks comes on top.
            let found = connections(&server);
            found.iter().all(|some| (8..=10).contains(some)).then_some(())
        });
        assert_eq!(clients[0].counted("q", "waiting"), 8 * shards);
        // The inherited socket is no path: a name of a host is judged as at a port of its own.
        let mut web = Http::connect(server.http);
        web.raw(b"GET /stats HTTP/1.1\r\nHost: evil.example\r\n\r\n").unwrap();
        assert_eq!(web.recv(false).unwrap().status, 403);
    }
}

#[test]
fn a_restart_refuses_no_connection_to_an_inherited_socket() {
    let sockets = sockets();
    let mut server = Start::new().env("SHARDS", 2).inherits(&sockets).start();
    let port = server.tcp;
    let enough = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&enough);
    let clients = std::thread::spawn(move || {
        let (mut acknowledged, mut ended) = (Vec::new(), 0);
        while !over.load(Ordering::Acquire) {
            // Refused would be an error here; a client that waits in the socket is connected.
            TcpStream::connect(("127.0.0.1", port)).expect("no connection is refused");
            let mut client = Client::connect(port);
            // A connection that was open when the server stopped ends with it.
            match client.try_call("PUSH", json!({"queue": "q", "data": 1})) {
                Ok(reply) if reply["ok"] == true => {
                    acknowledged.push(reply["id"].as_str().unwrap().to_owned());
                }
                Ok(_) | Err(_) => ended += 1,
            }
        }
        (acknowledged, ended)
    });
    for kill in [false, true, false] {
        let before = server.client().counted("q", "waiting");
        until("pushes", || (server.client().counted("q", "waiting") > before).then_some(()));
        if kill {
            server.kill();
        } else {
            assert_eq!(server.terminate().code(), Some(0));
        }
        server.start();
    }
    enough.store(true, Ordering::Release);
    let (acknowledged, _) = clients.join().unwrap();
    let mut client = server.client();
    for id in &acknowledged {
        assert_eq!(client.state(id), "waiting");
    }
    assert!(acknowledged.len() > 3);
}

/// TLS is agreed on where the connection came in, and the connection is dealt out as any other.
#[test]
fn inherited_sockets_speak_tls_where_the_server_does() {
    let authority = Authority::new();
    let paper = authority.issue("server", None);
    let server = Start::new().env("SHARDS", 2).tls(&paper).inherits(&sockets()).start();
    let port = tunnel(server.tcp, &authority.believer());
    let mut clients: Vec<Client> = (0..8).map(|_| Client::connect(port)).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        let id = client.push(&format!("q{n}"), "x".repeat(1 << 20));
        assert_eq!(client.pull(&format!("q{n}"))["id"], json!(id));
    }
    until("both shards to have some", || {
        let shards = clients[0].ok("Shards", json!({}));
        let shards = shards["data"]["shards"].as_array().unwrap().clone();
        shards.iter().all(|shard| shard["connections"].as_u64() >= Some(3)).then_some(())
    });
}

#[test]
fn a_socket_that_is_neither_by_name_nor_by_port_stops_the_start() {
    let [_, http] = &*sockets();
    let dir = tempfile::tempdir().unwrap();
    let script =
        "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=corq.socket exec \"$@\"";
    let output = std::process::Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(crate::support::program())
        .args(["serve", "--memory", "--tcp-port", "0", "--http-port", "0"])
        .stdin(std::os::fd::OwnedFd::from(http.try_clone().unwrap()))
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("FileDescriptorName=tcp or http"), "{said}");
}

/// The units name no option that the server does not have, and what they promise holds.
#[test]
fn the_units_start_the_server_as_it_is() {
    let service = include_str!("../../packaging/systemd/corq.service");
    let socket = include_str!("../../packaging/systemd/corq.socket");
    for line in
        ["Type=notify", "ExecReload=/bin/sh -c 'kill -HUP $$MAINPID'", "RestartPreventExitStatus=2"]
    {
        assert!(service.lines().any(|it| it == line), "{line}");
    }
    let start = service.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/corq "));
    assert_eq!(start, Some("serve --config /etc/corq/corq.toml"));
    assert!(!service.contains("SystemCallFilter=~@resources"));
    for port in ["6789", "6790"] {
        assert!(socket.contains(&format!("ListenStream=127.0.0.1:{port}\n")), "{port}");
    }
}

/// Where systemd is installed, it judges them itself.
#[test]
fn systemd_finds_nothing_wrong_with_the_units_and_little_exposed() {
    let dir = tempfile::tempdir().unwrap();
    let analyze = |words: &[&str]| {
        let mut command = std::process::Command::new("systemd-analyze");
        command.args(words).current_dir(dir.path()).output().ok()
    };
    if analyze(&["--version"]).is_none() {
        return;
    }
    let program = crate::support::program().display().to_string();
    for (name, unit) in [
        ("corq.service", include_str!("../../packaging/systemd/corq.service")),
        ("corq.socket", include_str!("../../packaging/systemd/corq.socket")),
    ] {
        // The manual and the program are not installed here.
        let unit = unit.replace("/usr/bin/corq", &program);
        let lines = unit.lines().filter(|line| !line.starts_with("Documentation="));
        let unit: String = lines.flat_map(|line| [line, "\n"]).collect();
        std::fs::write(dir.path().join(name), unit).unwrap();
    }
    let verified = analyze(&["verify", "./corq.service", "./corq.socket"]).unwrap();
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && !said.contains("corq"), "{said}");
    let words = ["security", "--offline=true", "--threshold=20", "./corq.service"];
    let judged = analyze(&words).unwrap();
    let said = [judged.stdout, judged.stderr].concat();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&said));
}
