//! The floor: a server that answers each length-prefixed frame with a fixed reply, and nothing else.
//! What it costs per request is what sockets cost; whatever the real server costs above that is its
//! own work.
//!
//! `echo serve [--shards N] [--addr A]` serves until it is killed.
//! `echo measure [--shards N] [--append DIRECTORY]` serves and drives itself from a child process,
//! and prints the server's CPU time per request; with a directory, once more with what a log cannot do without:
//! each turn writes as many bytes as it was sent before it answers, and a sync follows every 10 ms. The connections are spread over the shards, and one thread
//! drives them all by readiness, as the load generator does: what it costs a server to wake depends on
//! who else is awake.
#![allow(clippy::unwrap_used)] // A measuring tool: every failure ends it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};

use corq_io::host;
use corq_io::mesh::Mesh;
use corq_io::net::{Config, Event, Reactor, listen};
use corq_io::placement::Placement;
use corq_io::runtime::{Shards, spawn_shards};

/// About what a push of 100 bytes takes on its way and in the log.
const REQUEST_BYTES: usize = 160;
const REPLY: &[u8] = b"\0\0\0\x10 a fixed reply!!";
/// The length in front is that of what follows.
const _: () = assert!(REPLY.len() == 4 + REPLY[3] as usize);
const CONNECTIONS: usize = 4;
const MEASURE: Duration = Duration::from_secs(3);
const LOG_BYTES: usize = 64 << 20;
const SYNC_EVERY: Duration = Duration::from_millis(10);

/// Bytes of a connection that are not a whole frame yet: how many are still missing.
#[derive(Clone, Copy, Default)]
struct Frame {
    header: [u8; 4],
    header_bytes: usize,
    missing: usize,
}

impl Frame {
    /// Frames that end within `bytes`.
    fn count(&mut self, mut bytes: &[u8]) -> usize {
        let mut frames = 0;
        while !bytes.is_empty() {
            if self.header_bytes < 4 {
                self.header[self.header_bytes] = bytes[0];
                self.header_bytes += 1;
                bytes = &bytes[1..];
                self.missing = u32::from_be_bytes(self.header) as usize;
                continue;
            }
            let here = self.missing.min(bytes.len());
            self.missing -= here;
            bytes = &bytes[here..];
            if self.missing == 0 {
                self.header_bytes = 0;
                frames += 1;
            }
        }
        frames
    }
}

/// Writes the bytes of each turn, round and round in a file that was written before.
struct Log {
    file: File,
    offset: usize,
    /// As many bytes as came in this turn; which ones is all the same.
    turn: Vec<u8>,
}

impl Log {
    fn new(path: &Path) -> Self {
        let file = File::create(path).unwrap();
        (0..LOG_BYTES / 4096).for_each(|_| (&file).write_all(&[1; 4096]).unwrap());
        file.sync_all().unwrap();
        let synced = file.try_clone().unwrap();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(SYNC_EVERY);
                synced.sync_data().unwrap();
            }
        });
        Self { file, offset: 0, turn: Vec::new() }
    }

    fn write(&mut self) {
        if self.turn.is_empty() {
            return;
        }
        if self.offset + self.turn.len() > LOG_BYTES {
            self.offset = 0;
        }
        self.file.write_all_at(&self.turn, self.offset as u64).unwrap();
        self.offset += self.turn.len();
        self.turn.clear();
    }
}

/// A shard: its connections' frames and, if it writes, its log.
#[derive(Default)]
struct Server {
    frames: Vec<Frame>,
    log: Option<Log>,
}

impl Server {
    fn hear(&mut self, reactor: &mut Reactor, event: Event) {
        match event {
            Event::Accepted { conn, .. } => {
                let index = conn.index as usize;
                self.frames.resize(self.frames.len().max(index + 1), Frame::default());
                self.frames[index] = Frame::default();
            }
            Event::Received { conn, chunk } => {
                let bytes = reactor.buffers.bytes(&chunk);
                if let Some(output) = reactor.conns.output(conn) {
                    let whole = self.frames[conn.index as usize].count(bytes);
                    for _ in 0..whole {
                        output.extend_from_slice(REPLY);
                    }
                    let end = reactor.conns.appended(conn);
                    reactor.conns.allow(conn, end);
                }
                if let Some(log) = &mut self.log {
                    log.turn.extend_from_slice(bytes);
                }
                reactor.buffers.recycle(chunk);
            }
            Event::Ended { conn, .. } => reactor.conns.close(conn),
            _ => {}
        }
    }
}

/// Starts a shard for each socket. The shards have been set up when this returns.
fn serve(sockets: Vec<TcpListener>, append: Option<&Path>) -> Shards<std::io::Error> {
    let log = |index| append.map(|directory| Log::new(&directory.join(format!("echo-{index}"))));
    let logs: Vec<_> = (0..sockets.len()).map(log).collect();
    let mesh = Mesh::<Vec<u8>>::new(sockets.len()).unwrap();
    let seeds = sockets.into_iter().zip(mesh).zip(logs).collect();
    let cpus = host::allowed_cpus().unwrap();
    spawn_shards(&cpus, Placement::Pinned, seeds, move |_, ((socket, endpoint), log)| async move {
        let mut reactor = Reactor::new(Config::default())?;
        reactor.add_listener(socket, 0);
        reactor.watch(endpoint.wakeup());
        let (mut events, mut server) = (Vec::new(), Server { log, ..Server::default() });
        loop {
            reactor.wait(None, &mut events)?;
            for event in events.drain(..) {
                server.hear(&mut reactor, event);
            }
            if let Some(log) = &mut server.log {
                log.write();
            }
        }
    })
    .unwrap()
}

/// A connection, and the bytes of a reply that have come of it so far.
struct Client {
    stream: TcpStream,
    partial_bytes: usize,
}

impl Client {
    fn open(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, partial_bytes: 0 }
    }

    /// Reads once; how many replies have become whole.
    fn replies(&mut self, buffer: &mut [u8]) -> usize {
        let got = self.partial_bytes + self.stream.read(buffer).unwrap();
        self.partial_bytes = got % REPLY.len();
        got / REPLY.len()
    }
}

/// Keeps `in_flight` requests under way on each connection; prints how many were answered.
fn drive(addrs: &[SocketAddr], in_flight: usize) {
    let mut request = (REQUEST_BYTES as u32).to_be_bytes().to_vec();
    request.resize(4 + REQUEST_BYTES, b'x');
    let requests = request.repeat(in_flight);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let mut clients: Vec<_> =
        addrs.iter().cycle().take(CONNECTIONS).map(|&addr| Client::open(addr)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        let token = EventData::new_u64(index as u64);
        epoll::add(&epoll, &client.stream, token, EventFlags::IN).unwrap();
        client.stream.write_all(&requests).unwrap();
    }
    let (mut answered, mut buffer) = (0, vec![0; 64 * 1024]);
    let mut events = Vec::with_capacity(CONNECTIONS);
    let until = Instant::now() + MEASURE;
    while Instant::now() < until {
        events.clear();
        epoll::wait(&epoll, spare_capacity(&mut events), None).unwrap();
        for event in &events {
            let client = &mut clients[event.data.u64() as usize];
            let replies = client.replies(&mut buffer);
            answered += replies;
            client.stream.write_all(&requests[..replies * request.len()]).unwrap();
        }
    }
    println!("{answered}");
}

/// CPU time of this process so far, all threads, microseconds.
fn cpu_us() -> f64 {
    let schedstat = |entry: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(entry.unwrap().path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<f64>().unwrap()
    };
    std::fs::read_dir("/proc/self/task").unwrap().map(schedstat).sum::<f64>() / 1000.0
}

fn measure(what: &str, addrs: &[SocketAddr], in_flight: usize) {
    let before = cpu_us();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["drive", &in_flight.to_string()])
        .args(addrs.iter().map(SocketAddr::to_string))
        .output()
        .unwrap();
    let answered: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    println!(
        "{what}, {in_flight} in flight on {CONNECTIONS} connections: {:.2} us of server CPU per request, {:.0} requests/s",
        (cpu_us() - before) / answered,
        answered / MEASURE.as_secs_f64(),
    );
}

/// A server of its own, with one request in flight and with many.
fn measure_all(shards: usize, append: Option<&Path>) {
    // A port for each shard, so that each has as many connections.
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let sockets: Vec<_> = (0..shards).map(|_| listen(any, true).unwrap()).collect();
    let addrs: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
    // The server ends with the process.
    let _running = serve(sockets, append);
    let what = if append.is_some() { "answered and appended" } else { "answered" };
    for in_flight in [1, 50] {
        measure(what, &addrs, in_flight);
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).map(String::as_str)
    };
    let shards = option("--shards").map_or(1, |count| count.parse().unwrap());
    let sockets = |addr: &str| {
        let first = listen(addr.parse().unwrap(), true).unwrap();
        let addr = first.local_addr().unwrap();
        let others = (1..shards).map(|_| listen(addr, true).unwrap());
        std::iter::once(first).chain(others).collect()
    };
    match args.get(1).map(String::as_str) {
        Some("serve") => {
            let addr = option("--addr").unwrap_or("127.0.0.1:6789");
            serve(sockets(addr), None).join().unwrap();
        }
        Some("measure") => {
            println!("{shards} shard(s)");
            measure_all(shards, None);
            if let Some(directory) = option("--append") {
                measure_all(shards, Some(Path::new(directory)));
            }
        }
        Some("drive") => {
            let addrs: Vec<_> = args[3..].iter().map(|addr| addr.parse().unwrap()).collect();
            drive(&addrs, args[2].parse().unwrap());
        }
        _ => panic!("serve or measure"),
    }
}
