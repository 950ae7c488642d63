//! Who answers at the HTTP port while the shards are not there yet: a thread of its own, from the first
//! moment of a start to the last moment before the shards take connections themselves.
//!
//! It says that the process lives, that it is not ready, and how far it is. All else it puts off with a
//! time to come again. It accepts from the very sockets that the shards will accept from, so no connection in
//! between is refused.
//!
//! At the other port connections wait until the shards take them. A client of MessagePack
//! has one connection for long, sends its first command and waits for the answer, whenever it comes;
//! refused, it would have to try again at times of its own.

use super::certificate;
use super::listeners::{BoundListener, Port};
use crate::api::error::{ErrorKind, ErrorRef};
use crate::protocol::http1::HEAD_BYTES_MAX;
use crate::protocol::http1::answer::{self, Answer, JSON, Manner, Standing, TEXT};
use crate::protocol::http1::head::{self, Head, Method};
use crate::protocol::http1::target::Target;
use crate::server::http::{Rules, date_of};
use corq_io::net::{self, ConnId, Connections, Event, Permits, Reactor};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often it looks whether it may go.
const LOOK: Duration = Duration::from_millis(5);
/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client may take to send its request once the shards are ready: they are waiting for the port.
const LAST_PATIENCE: Duration = Duration::from_millis(500);

/// State that the start shares with the start-up thread.
#[derive(Debug, Default)]
struct StartupState {
    leave: AtomicBool,
    progress: Mutex<String>,
}

/// The thread at the door. It is left alone when this is dropped without [`StartupHttp::leave`]: the process ends.
#[derive(Debug)]
pub struct StartupHttp {
    state: Arc<StartupState>,
    gone: Receiver<io::Result<()>>,
}

impl StartupHttp {
    /// Answers all who come to `listeners`, as `rules` let them in and there are permits for.
    pub fn open(listeners: Vec<BoundListener>, rules: Rules, permits: Permits) -> io::Result<Self> {
        let state = Arc::new(StartupState::default());
        let shared = Arc::clone(&state);
        let (goes, gone) = channel();
        thread::Builder::new().name("corq-startup".into()).spawn(move || {
            let outcome =
                StartupServer::new(shared, rules, permits).and_then(|it| it.run(listeners, &goes));
            // The start does not wait for what follows the leave.
            let _ = goes.send(outcome);
        })?;
        Ok(Self { state, gone })
    }

    /// How far the start is: words without quotes.
    pub fn set_progress(&self, progress: String) {
        *self.state.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// The shards take over. Returns when every client here has its answer, and no further one is accepted.
    pub fn leave(self) -> io::Result<()> {
        self.state.leave.store(true, Ordering::Release);
        self.gone.recv().unwrap_or_else(|_| Err(io::Error::other("it has gone without a word")))
    }
}

/// A client whose request is not complete.
struct StartupClient {
    since: Instant,
    said: Vec<u8>,
    seen: usize,
    /// Whether it came through a unix socket.
    through_path: bool,
}

struct StartupServer {
    state: Arc<StartupState>,
    rules: Rules,
    standing: Standing,
    reactor: Reactor,
    visitors: HashMap<ConnId, StartupClient>,
}

impl StartupServer {
    fn new(state: Arc<StartupState>, rules: Rules, permits: Permits) -> io::Result<Self> {
        let standing = rules.standing();
        let mut reactor = Reactor::new(net::Config {
            ring_entries: 64,
            connections_max: 1024,
            buffers: 64,
            buffer_bytes: 4096,
            drain_ms: 1000,
            linger_ms: 200,
            ..net::Config::default()
        })?;
        reactor.limit(permits);
        Ok(Self { state, rules, standing, reactor, visitors: HashMap::new() })
    }

    fn run(
        mut self,
        listeners: Vec<BoundListener>,
        goes: &Sender<io::Result<()>>,
    ) -> io::Result<()> {
        for listener in listeners {
            listener.open(&mut self.reactor);
        }
        let mut events = Vec::new();
        let mut leaving = false;
        loop {
            self.wait(&mut events)?;
            for event in events.drain(..) {
                self.take(event);
            }
            if !leaving && self.state.leave.load(Ordering::Acquire) {
                leaving = true;
                self.reactor.leave_listeners();
            }
            let patience = if leaving { LAST_PATIENCE } else { PATIENCE };
            let conns = &mut self.reactor.conns;
            self.visitors.retain(|&conn, visitor| {
                let waits = visitor.since.elapsed() < patience;
                if !waits {
                    conns.abort(conn);
                }
                waits
            });
            if leaving && !self.reactor.listens() && self.visitors.is_empty() {
                // The start may have given up waiting.
                let _ = goes.send(Ok(()));
                return self.finish();
            }
        }
    }

    /// The last answers go out, also to those who take them slowly.
    fn finish(mut self) -> io::Result<()> {
        let give_up = Instant::now() + LAST_PATIENCE;
        let mut events = Vec::new();
        while !self.reactor.conns.is_empty() && Instant::now() < give_up {
            self.wait(&mut events)?;
            for event in events.drain(..) {
                self.take(event);
            }
        }
        Ok(())
    }

    fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let until = Instant::now() + LOOK;
        self.reactor.wait(Some(until), events)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Accepted { conn, listener } => {
                let through_path = Port::of(listener).is_path;
                let since = Instant::now();
                let visitor = StartupClient { since, said: Vec::new(), seen: 0, through_path };
                self.visitors.insert(conn, visitor);
            }
            Event::Received { conn, chunk } => {
                if let Some(visitor) = self.visitors.get_mut(&conn) {
                    visitor.said.extend_from_slice(self.reactor.buffers.bytes(&chunk));
                }
                self.reactor.buffers.recycle(chunk);
                self.hear(conn);
            }
            Event::Decrypted { conn, bytes } => {
                if let Some(visitor) = self.visitors.get_mut(&conn) {
                    visitor.said.extend_from_slice(&bytes);
                }
                self.reactor.conns.give_back(bytes);
                self.hear(conn);
            }
            Event::NotTls { conn, listener } => {
                let conns = &mut self.reactor.conns;
                if let Some(out) = conns.output(conn) {
                    let port = Port::of(listener);
                    certificate::refuse_plain(out, port, &self.standing, &date_now());
                }
                conns.allow(conn, conns.appended(conn));
                conns.close(conn);
            }
            Event::Ended { conn, .. } => {
                if self.visitors.remove(&conn).is_some() {
                    self.reactor.conns.abort(conn);
                }
            }
            Event::HandshakeFailed { .. }
            | Event::GivenAway { .. }
            | Event::Drained { .. }
            | Event::Closed { .. }
            | Event::Woken
            | Event::Disk { .. } => {}
        }
    }

    /// Answers once the head of the request is there. Its body is not waited for.
    fn hear(&mut self, conn: ConnId) {
        let Some(StartupClient { said, seen, through_path, .. }) = self.visitors.get_mut(&conn)
        else {
            return;
        };
        let empty = head::empty_lines(said);
        said.drain(..empty);
        let read = match head::read(said, seen) {
            Ok(None) if said.len() <= HEAD_BYTES_MAX => return,
            Ok(Some(head)) => {
                let mut reply = match self.rules.judge_early(&head, *through_path) {
                    Ok(()) => reply_to(&head, &self.state),
                    Err(error) => {
                        Reply { bodiless: head.method == Method::Head, ..Reply::of(error) }
                    }
                };
                reply.origin = self.rules.place_of(&head);
                Ok(reply)
            }
            Ok(None) => Err(ErrorKind::HeadTooLong),
            Err(error) => Err(error),
        };
        let reply = read.unwrap_or_else(Reply::of);
        self.visitors.remove(&conn);
        send(&mut self.reactor.conns, conn, &self.standing, &reply);
    }
}

struct Reply {
    status: u16,
    kind: &'static str,
    body: String,
    bodiless: bool,
    /// See [`Manner::origin`].
    origin: u8,
}

impl Reply {
    fn of(error: ErrorKind) -> Self {
        let error = ErrorRef::from(error);
        let (status, body) = (error.code.status(), error.json());
        Self { status, kind: JSON, body, bodiless: false, origin: 0 }
    }
}

/// The reply to a request that comes before the shards serve.
fn reply_to(head: &Head<'_>, state: &StartupState) -> Reply {
    let bodiless = head.method == Method::Head;
    let asks = bodiless || head.method == Method::Get;
    let progress = state.progress.lock().unwrap_or_else(PoisonError::into_inner);
    let starting = ErrorKind::Starting;
    let (text, code) = (starting.text(), starting.code().name());
    let (status, kind, body) = match Target::of(head.target).path {
        "/healthz" | "/live" if asks => (200, TEXT, "OK".to_string()),
        "/ready" if asks => {
            let body = format!(
                r#"{{"ok":false,"ready":false,"error":"{text}","code":"{code}","reason":"recovering","progress":"{progress}"}}"#
            );
            (503, JSON, body)
        }
        "/health" if asks => {
            let body = format!(
                r#"{{"ok":false,"status":"starting","reason":"recovering","progress":"{progress}","version":"{}"}}"#,
                env!("CARGO_PKG_VERSION")
            );
            (503, JSON, body)
        }
        _ => return Reply { bodiless, ..Reply::of(starting) },
    };
    Reply { status, kind, body, bodiless, origin: 0 }
}

fn date_now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date_of(now.as_secs())
}

fn send(conns: &mut Connections, conn: ConnId, standing: &Standing, reply: &Reply) {
    let Some(out) = conns.output(conn) else { return };
    let extra = if reply.status == 503 { "Retry-After: 1\r\n" } else { "" };
    let body = reply.body.as_bytes();
    let answer = Answer { status: reply.status, kind: reply.kind, extra, body };
    let manner = Manner { bodiless: reply.bodiless, stay: false, origin: reply.origin };
    answer::write(out, standing, &date_now(), &answer, manner);
    conns.allow(conn, conns.appended(conn));
    conns.close(conn);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::server::connection::protocol::Protocol;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn listener(socket: std::net::TcpListener) -> BoundListener {
        let port = Port { protocol: Protocol::Http, seats: false, is_path: false };
        BoundListener { socket: socket.into(), port, acceptor: None }
    }

    fn ask(address: std::net::SocketAddr, request: &str) -> String {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    }

    #[test]
    fn it_lives_is_not_ready_and_puts_off_all_else() {
        let socket = net::listen("127.0.0.1:0".parse().unwrap(), true).unwrap();
        let address = socket.local_addr().unwrap();
        let permits = Permits::new(100, 1, 1);
        let startup_http =
            StartupHttp::open(vec![listener(socket)], Rules::default(), permits).unwrap();
        startup_http.set_progress("5 of 9 MB read".into());
        assert!(ask(address, &get("/healthz")).starts_with("HTTP/1.1 200"));
        assert!(ask(address, &get("/live")).ends_with("\r\n\r\nOK"));
        let head = ask(address, "HEAD /ready HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 503") && head.ends_with("\r\n\r\n"), "{head}");
        let ready = ask(address, &get("/ready"));
        for part in [
            "HTTP/1.1 503",
            "Retry-After: 1\r\n",
            "Connection: close",
            r#""ready":false"#,
            r#""reason":"recovering""#,
            r#""progress":"5 of 9 MB read""#,
        ] {
            assert!(ready.contains(part), "{part}: {ready}");
        }
        assert!(ask(address, &get("/health")).contains(r#""status":"starting""#));
        let push = "POST /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n{\"data\":123}";
        let starting = ErrorRef::from(ErrorKind::Starting).json();
        for request in [push.to_string(), get("/jobs/1"), get("/nowhere")] {
            let answer = ask(address, &request);
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            assert!(answer.ends_with(&starting) && answer.contains("Retry-After"), "{answer}");
        }
        assert!(ask(address, "GET / HTTP/1.1\nHost: a\n\n").starts_with("HTTP/1.1 400"));
        for (path, lines) in [
            ("/ready", "Host: localhost\r\nOrigin: http://evil.example"),
            ("/healthz", "Host: localhost\r\nSec-Fetch-Site: cross-site"),
            ("/health", "Host: evil.example"),
            ("/nowhere", "Host: evil.example\r\nOrigin: http://evil.example"),
        ] {
            let answer = ask(address, &format!("GET {path} HTTP/1.1\r\n{lines}\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
            assert!(answer.ends_with(r#","code":"cross-origin"}"#), "{answer}");
        }
        let probe = "GET /live HTTP/1.1\r\nHost: any.example\r\n\r\n";
        assert!(ask(address, probe).starts_with("HTTP/1.1 200"));
        startup_http.leave().unwrap();
    }

    /// A client that has connected is answered, by the start-up thread or by the shards.
    #[test]
    fn nobody_is_turned_away_when_it_leaves() {
        let socket = net::listen("127.0.0.1:0".parse().unwrap(), true).unwrap();
        let address = socket.local_addr().unwrap();
        let next = socket.try_clone().unwrap();
        let permits = Permits::new(100, 1, 1);
        let startup_http =
            StartupHttp::open(vec![listener(socket)], Rules::default(), permits).unwrap();
        let (enough, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let askers: Vec<_> = (0..4)
            .map(|_| {
                let enough = Arc::clone(&enough);
                thread::spawn(move || {
                    while !enough.load(Ordering::Acquire) {
                        assert!(ask(address, &get("/healthz")).contains("OK"));
                    }
                })
            })
            .collect();
        let late = thread::spawn({
            let over = Arc::clone(&over);
            move || {
                // Stands for the shards, which accept from the same socket after the start-up thread has left.
                while !over.load(Ordering::Acquire) {
                    let (mut socket, _) = next.accept().unwrap();
                    let mut said = [0; 512];
                    if socket.read(&mut said).unwrap_or(0) > 0 {
                        socket.write_all(b"HTTP/1.1 200 OK\r\n\r\nOK, too").unwrap();
                    }
                }
            }
        });
        assert!(ask(address, &get("/healthz")).contains("OK"));
        startup_http.leave().unwrap();
        while !ask(address, &get("/healthz")).contains("OK, too") {}
        enough.store(true, Ordering::Release);
        for asker in askers {
            asker.join().unwrap();
        }
        over.store(true, Ordering::Release);
        drop(TcpStream::connect(address).unwrap());
        late.join().unwrap();
    }
}
