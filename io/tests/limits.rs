//! Guards what happens when something runs out, and that an idle server is small.
#![allow(missing_docs, clippy::unwrap_used)]
// Resource limits and disk operations are system calls.
#![allow(unsafe_code)]

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use corq_io::log::DiskOpKind;
use corq_io::net::{Config, ConnId, Event};
use support::{PATIENCE, Rig, Server, child, echo};

#[test]
fn connections_beyond_the_limit_are_closed_at_once() {
    let mut rig = Rig::new(Config { connections_max: 2, ..Config::default() });
    let (_first, first) = rig.connect();
    let (mut second, second_conn) = rig.connect();
    let mut third = TcpStream::connect(rig.addr).unwrap();
    rig.until("the rejection", |rig| rig.reactor.counters.rejected == 1);
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(third.read(&mut [0]).unwrap(), 0);
    second.write_all(b"fine").unwrap();
    rig.until("the second client", |rig| rig.bytes_of(second_conn) == b"fine");
    rig.reactor.conns.abort(first);
    rig.until_closed(first);
    rig.connect();
    assert_eq!(rig.reactor.counters.rejected, 1);
}

#[test]
fn stop_accepting_closes_the_door_and_keeps_the_guests() {
    let mut rig = Rig::new(Config::default());
    let (mut client, conn) = rig.connect();
    rig.reactor.stop_accepting();
    let addr = rig.addr;
    rig.until("a refusal", |_| TcpStream::connect(addr).is_err());
    client.write_all(b"still here").unwrap();
    rig.until("the bytes", |rig| rig.bytes_of(conn) == b"still here");
    assert!(!rig.seen.iter().any(|event| matches!(event, Event::Accepted { .. })));
}

/// Nothing can come while no buffer is free, and waiting must not spin either.
fn hold_all_buffers_for_a_while(rig: &mut Rig, conn: ConnId) {
    let (mut held, mut events) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    while held.len() < 4 {
        assert!(Instant::now() < deadline, "only {} chunks came", held.len());
        let tick = Some(Instant::now() + Duration::from_millis(5));
        rig.reactor.wait(tick, &mut events).unwrap();
        for event in events.drain(..) {
            match event {
                Event::Received { chunk, .. } => held.push(chunk),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(rig.reactor.buffers.outstanding(), 4);
    let enters = rig.reactor.counters.enters;
    let tick = Some(Instant::now() + Duration::from_millis(20));
    rig.reactor.wait(tick, &mut events).unwrap();
    assert!(events.is_empty());
    assert!(rig.reactor.counters.enters - enters < 10);
    for chunk in held {
        let bytes = rig.reactor.buffers.bytes(&chunk).to_vec();
        rig.received.push((conn, bytes));
        rig.reactor.buffers.recycle(chunk);
    }
}

#[test]
fn held_chunks_stop_the_reading_and_recycled_ones_go_on() {
    let config = Config { buffers: 4, buffer_bytes: 1024, ..Config::default() };
    let mut rig = Rig::new(config);
    let (mut client, conn) = rig.connect();
    let sent: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    let bytes = sent.clone();
    let sending = std::thread::spawn(move || {
        client.write_all(&bytes).unwrap();
        client
    });
    for _ in 0..3 {
        hold_all_buffers_for_a_while(&mut rig, conn);
    }
    rig.until("all bytes", |rig| rig.bytes_of(conn).len() == sent.len());
    assert_eq!(rig.bytes_of(conn), sent);
    drop(sending.join().unwrap());
}

fn disk(rig: &mut Rig, op: DiskOpKind, tag: u64) -> std::io::Result<u32> {
    // SAFETY: the callers keep file and memory until this returns, which is after the completion.
    unsafe { rig.reactor.submit_disk(op, tag) };
    let mut found = None;
    rig.until("the disk", |rig| {
        rig.seen.retain_mut(|event| match event {
            Event::Disk { tag: of, result } if *of == tag => {
                found = Some(std::mem::replace(result, Ok(0)));
                false
            }
            _ => true,
        });
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn what_is_written_to_the_disk_is_read_back() {
    let mut rig = Rig::new(Config::default());
    let file: File = tempfile::tempfile().unwrap();
    let fd: RawFd = file.as_raw_fd();
    let out = vec![0xa5_u8; 10_000];
    for (tag, dsync) in [(1, false), ((1 << 60) - 1, true)] {
        let offset = tag & 1 << 20;
        let len = out.len() as u32;
        let write = DiskOpKind::Write { fd, offset, ptr: out.as_ptr(), len, dsync, apart: false };
        assert_eq!(disk(&mut rig, write, tag).unwrap(), len);
        assert_eq!(disk(&mut rig, DiskOpKind::Sync { fd, data_only: true }, 2).unwrap(), 0);
        let mut back = vec![0; out.len()];
        let read = DiskOpKind::Read { fd, offset, ptr: back.as_mut_ptr(), len };
        assert_eq!(disk(&mut rig, read, 3).unwrap(), len);
        assert_eq!(back, out);
    }
    let closed = DiskOpKind::Sync { fd: 9999, data_only: true };
    let error = disk(&mut rig, closed, 4).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
}

fn set_files_max(count: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls work on one live struct.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, count);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}

#[test]
#[ignore = "run by the next test in a process of its own"]
fn child_runs_out_of_descriptors() {
    // The kernel notes the limit when the accept is armed.
    let before = set_files_max(64);
    let mut rig = Rig::new(Config::default());
    // The client's socket is made while there is room; connecting needs no further descriptor.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    socket.connect(&rig.addr.into()).unwrap();
    let begin = Instant::now();
    rig.until("three pauses", |rig| rig.reactor.counters.accept_pauses >= 3);
    assert!(begin.elapsed() >= Duration::from_millis(100), "accepting does not pause");
    assert!(rig.reactor.counters.enters < 500, "accepting spins");
    assert_eq!(rig.reactor.counters.accepted, 0);
    drop(fillers);
    set_files_max(before);
    rig.until("accepted after all", |rig| rig.reactor.counters.accepted == 1);
}

#[test]
fn without_descriptors_accepting_pauses_and_then_goes_on() {
    child::run("child_runs_out_of_descriptors");
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "run by the next test in a process of its own"]
fn child_idles() {
    let server = Server::start(2, Config::default(), echo);
    let mut clients: Vec<_> = (0..1000).map(|_| TcpStream::connect(server.addr).unwrap()).collect();
    for client in &mut clients {
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
    }
    let resident = resident_kb();
    println!("resident: {resident} kB with 1000 connections");
    assert!(resident < 30_000, "{resident} kB resident");
    drop(clients);
    server.stop();
}

#[test]
fn two_idle_shards_with_a_thousand_connections_stay_under_30_mb() {
    child::run("child_idles");
}
