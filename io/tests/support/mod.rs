//! A reactor in the test's own thread, driven turn by turn, and a server of several shards.
#![allow(dead_code, clippy::missing_panics_doc, missing_docs, unreachable_pub)]

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corq_io::host::allowed_cpus;
use corq_io::mesh::{Endpoint, Mesh, Waker};
use corq_io::net::{Config, ConnId, Counters, Event, Reactor, listen};
use corq_io::placement::Placement;
use corq_io::runtime::{Shards, spawn_shards};

/// No step of a test takes this long; a wait beyond it has failed.
pub const PATIENCE: Duration = Duration::from_mins(5);

/// A single shard in the test's thread.
pub struct Rig {
    pub reactor: Reactor,
    pub addr: SocketAddr,
    /// Bytes received of all connections in order of arrival, unless a test looks for itself.
    pub received: Vec<(ConnId, Vec<u8>)>,
    pub seen: Vec<Event>,
}

impl Rig {
    pub fn new(config: Config) -> Self {
        let mut reactor = Reactor::new(config).unwrap();
        let listener = listen("127.0.0.1:0".parse().unwrap(), true).unwrap();
        let addr = listener.local_addr().unwrap();
        reactor.add_listener(listener, 7);
        let mut rig = Self { reactor, addr, received: Vec::new(), seen: Vec::new() };
        rig.poll(); // The accept is with the kernel from here on.
        rig
    }

    fn sort(&mut self, events: Vec<Event>) {
        for event in events {
            if let Event::Received { conn, chunk } = event {
                self.received.push((conn, self.reactor.buffers.bytes(&chunk).to_vec()));
                self.reactor.buffers.recycle(chunk);
            } else {
                self.seen.push(event);
            }
        }
    }

    pub fn poll(&mut self) {
        let mut events = Vec::new();
        self.reactor.poll(&mut events).unwrap();
        self.sort(events);
    }

    /// Turns until `done`.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "waited in vain for: {what}; seen {:?}", self.seen);
            let mut events = Vec::new();
            let tick = Instant::now() + Duration::from_millis(5);
            self.reactor.wait(Some(tick), &mut events).unwrap();
            self.sort(events);
        }
    }

    /// A client, and its connection here.
    pub fn connect(&mut self) -> (TcpStream, ConnId) {
        let client = TcpStream::connect(self.addr).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut found = None;
        self.until("an accepted connection", |rig| {
            rig.seen.retain(|event| match event {
                Event::Accepted { conn, listener } => {
                    assert_eq!(*listener, 7);
                    found = Some(*conn);
                    false
                }
                _ => true,
            });
            found.is_some()
        });
        (client, found.unwrap())
    }

    /// Appends and allows.
    pub fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        self.reactor.conns.output(conn).unwrap().extend_from_slice(bytes);
        let end = self.reactor.conns.appended(conn);
        self.reactor.conns.allow(conn, end);
    }

    /// Turns until the connection's slot is free.
    pub fn until_closed(&mut self, conn: ConnId) {
        self.until("closed", |rig| {
            let closed = |event: &Event| matches!(event, Event::Closed { conn: c } if *c == conn);
            rig.seen.iter().any(closed)
        });
    }

    pub fn bytes_of(&self, conn: ConnId) -> Vec<u8> {
        let parts = self.received.iter().filter(|(from, _)| *from == conn);
        parts.flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }
}

/// A server of some shards, each with a listener on the same port.
pub struct Server {
    pub addr: SocketAddr,
    stop: Arc<AtomicBool>,
    wakers: Vec<Waker>,
    shards: Option<Shards<String>>,
    counters: std::sync::mpsc::Receiver<Counters>,
}

impl Server {
    pub fn start<H>(shards: usize, config: Config, handler: H) -> Self
    where
        H: FnMut(&mut Reactor, Event) + Clone + Send + 'static,
    {
        let first = listen("127.0.0.1:0".parse().unwrap(), true).unwrap();
        let addr = first.local_addr().unwrap();
        let mut sockets = vec![first];
        sockets.extend((1..shards).map(|_| listen(addr, true).unwrap()));
        let mesh: Vec<Endpoint<()>> = Mesh::new(shards).unwrap();
        let wakers = mesh.iter().map(Endpoint::waker).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let (report, counters) = std::sync::mpsc::channel();
        let seeds: Vec<_> = sockets.into_iter().zip(mesh).collect();
        let running = spawn_shards(
            &allowed_cpus().unwrap(),
            Placement::Pinned,
            seeds,
            move |_, (socket, endpoint)| {
                let mut handler = handler.clone();
                async move {
                    let mut reactor = Reactor::new(config).map_err(|error| error.to_string())?;
                    reactor.add_listener(socket, 0);
                    reactor.watch(endpoint.wakeup());
                    let mut events = Vec::new();
                    while !stopping.load(Ordering::Relaxed) {
                        // No deadline: only events and the waker move this server.
                        reactor.wait(None, &mut events).map_err(|error| error.to_string())?;
                        for event in events.drain(..) {
                            handler(&mut reactor, event);
                        }
                    }
                    report.send(reactor.counters).map_err(|error| error.to_string())
                }
            },
        );
        Self { addr, stop, wakers, shards: Some(running.unwrap()), counters }
    }

    pub fn stop(mut self) -> Vec<Counters> {
        self.stop.store(true, Ordering::Relaxed);
        self.wakers.iter().for_each(Waker::wake);
        self.shards.take().unwrap().join().unwrap();
        self.counters.try_iter().collect()
    }
}

/// Sends back what it gets, and reads no more while a client does not read.
pub fn echo(reactor: &mut Reactor, event: Event) {
    match event {
        Event::Received { conn, chunk } => {
            if let Some(output) = reactor.conns.output(conn) {
                output.extend_from_slice(reactor.buffers.bytes(&chunk));
                let end = reactor.conns.appended(conn);
                reactor.conns.allow(conn, end);
                if reactor.conns.unsent(conn) > 256 * 1024 {
                    reactor.conns.pause_reading(conn);
                }
            }
            reactor.buffers.recycle(chunk);
        }
        Event::Drained { conn } => reactor.conns.resume_reading(conn),
        Event::Ended { conn, .. } => reactor.conns.close(conn),
        _ => {}
    }
}

/// A small generator of reproducible numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count.div_ceil(8)).flat_map(|_| self.next().to_ne_bytes()).take(count).collect()
    }
}

/// Descriptors of this process.
pub fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Tests that need a process of their own: the test binary again, with one ignored test.
pub mod child {
    /// Runs the ignored test `name` of this binary; fails as it fails.
    pub fn run(name: &str) {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{errors}");
        assert!(text.contains("1 passed"), "{name} was not run: {text}");
    }
}
