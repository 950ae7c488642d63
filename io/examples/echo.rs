//! The floor: a server that answers each length-prefixed frame with a fixed reply, and nothing else.
//! What it costs per request is what sockets cost; whatever the real server costs above that is its
//! own work.
//!
//! `echo serve [--wait ring|glommio] [--shards N] [--addr A]` serves until it is killed.
//! `echo measure [--wait ...] [--shards N]` serves and drives itself from a child process, and
//! prints the server's CPU time per request.
#![allow(clippy::unwrap_used)] // A measuring tool: every failure ends it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use corq_io::host;
use corq_io::mesh::Mesh;
use corq_io::net::{Config, Event, Reactor, Wait, listen};
use corq_io::runtime::{Shards, spawn_shards};

const REQUEST_BYTES: usize = 100;
const REPLY: &[u8] = b"\0\0\0\x10 a fixed reply!!";
/// The length in front is that of what follows.
const _: () = assert!(REPLY.len() == 4 + REPLY[3] as usize);
const CONNECTIONS: usize = 4;
const MEASURE: Duration = Duration::from_secs(3);

/// One connection's bytes that are not a whole frame yet: how many are still missing.
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

fn answer(reactor: &mut Reactor, frames: &mut Vec<Frame>, event: Event) {
    match event {
        Event::Accepted { conn, .. } => {
            let index = conn.index as usize;
            frames.resize(frames.len().max(index + 1), Frame::default());
            frames[index] = Frame::default();
        }
        Event::Received { conn, chunk } => {
            if let Some(output) = reactor.conns.output(conn) {
                let whole = frames[conn.index as usize].count(reactor.buffers.bytes(&chunk));
                for _ in 0..whole {
                    output.extend_from_slice(REPLY);
                }
                let end = reactor.conns.appended(conn);
                reactor.conns.allow(conn, end);
            }
            reactor.buffers.recycle(chunk);
        }
        Event::Ended { conn, .. } => reactor.conns.close(conn),
        _ => {}
    }
}

fn serve(wait: Wait, first: TcpListener, shards: usize) -> Shards<std::io::Error> {
    let addr = first.local_addr().unwrap();
    let mut sockets = vec![first];
    sockets.extend((1..shards).map(|_| listen(addr, true).unwrap()));
    let mesh = Mesh::<Vec<u8>>::new(shards).unwrap();
    let seeds = sockets.into_iter().zip(mesh).collect();
    let cpus = host::allowed_cpus().unwrap();
    spawn_shards(&cpus, seeds, move |_, (socket, endpoint)| async move {
        let mut reactor = Reactor::new(Config { wait, ..Config::default() })?;
        reactor.add_listener(socket, 0);
        reactor.watch(endpoint.alarm());
        let (mut events, mut frames) = (Vec::new(), Vec::new());
        loop {
            reactor.wait(None, &mut events).await?;
            for event in events.drain(..) {
                answer(&mut reactor, &mut frames, event);
            }
        }
    })
    .unwrap()
}

/// Keeps `in_flight` requests under way on each connection; prints how many were answered.
fn drive(addr: SocketAddr, in_flight: usize) {
    let mut request = (REQUEST_BYTES as u32).to_be_bytes().to_vec();
    request.resize(4 + REQUEST_BYTES, b'x');
    let until = Instant::now() + MEASURE;
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let request = request.clone();
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(addr).unwrap();
                stream.set_nodelay(true).unwrap();
                stream.write_all(&request.repeat(in_flight)).unwrap();
                let (mut answered, mut got) = (0, 0);
                let mut buffer = vec![0; 64 * 1024];
                while Instant::now() < until {
                    got += stream.read(&mut buffer).unwrap();
                    let replies = got / REPLY.len();
                    got %= REPLY.len();
                    answered += replies as u64;
                    stream.write_all(&request.repeat(replies)).unwrap();
                }
                answered
            })
        })
        .collect();
    let answered: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
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

fn measure(addr: SocketAddr, in_flight: usize) {
    let before = cpu_us();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["drive", &addr.to_string(), &in_flight.to_string()])
        .output()
        .unwrap();
    let answered: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    println!(
        "{in_flight} in flight on {CONNECTIONS} connections: {:.2} us of server CPU per request, {:.0} requests/s",
        (cpu_us() - before) / answered,
        answered / MEASURE.as_secs_f64(),
    );
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).map(String::as_str)
    };
    let wait = match option("--wait") {
        None | Some("ring") => Wait::Ring,
        Some("glommio") => Wait::Glommio,
        Some(other) => panic!("--wait {other}: ring or glommio"),
    };
    let shards = option("--shards").map_or(1, |count| count.parse().unwrap());
    let socket = |addr: &str| listen(addr.parse().unwrap(), true).unwrap();
    match args.get(1).map(String::as_str) {
        Some("serve") => {
            let addr = option("--addr").unwrap_or("127.0.0.1:6789");
            serve(wait, socket(addr), shards).join().unwrap();
        }
        Some("measure") => {
            let first = socket("127.0.0.1:0");
            let addr = first.local_addr().unwrap();
            let _running = serve(wait, first, shards);
            println!("{wait:?}, {shards} shard(s)");
            for in_flight in [1, 50] {
                measure(addr, in_flight);
            }
        }
        Some("drive") => drive(args[2].parse().unwrap(), args[3].parse().unwrap()),
        _ => panic!("serve or measure"),
    }
}
