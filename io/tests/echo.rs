//! Guards against lost, doubled or reordered bytes when many clients, large transfers and slow
//! readers meet on two shards.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use corq_io::net::Config;
use support::{PATIENCE, Random, Server, echo};

/// Sends `total` random bytes in random pieces and reads them back in others.
fn exchange(addr: SocketAddr, seed: u64, total: usize, piece_max: usize) {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let sent = Random(seed).bytes(total);
    let (mut writer, mut reader) = (stream.try_clone().unwrap(), stream);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut rest, mut random) = (&sent[..], Random(seed + 1));
            while !rest.is_empty() {
                let piece = (1 + random.next() as usize % piece_max).min(rest.len());
                writer.write_all(&rest[..piece]).unwrap();
                rest = &rest[piece..];
            }
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let (mut random, mut got) = (Random(seed + 2), 0);
        let mut buffer = vec![0; piece_max];
        loop {
            let room = 1 + random.next() as usize % piece_max;
            let count = reader.read(&mut buffer[..room]).unwrap();
            if count == 0 {
                break;
            }
            assert_eq!(buffer[..count], sent[got..got + count], "after {got} bytes");
            got += count;
        }
        assert_eq!(got, total, "the end came too early");
    });
}

#[test]
fn many_pipelining_clients_get_their_bytes_back() {
    let config = Config::default();
    let server = Server::start(2, config, echo);
    let addr = server.addr;
    std::thread::scope(|scope| {
        for seed in 1..=24 {
            scope.spawn(move || exchange(addr, seed * 1000, 300_000, 3000));
        }
    });
    let counters = server.stop();
    let sum = |of: fn(&corq_io::net::Counters) -> u64| counters.iter().map(of).sum::<u64>();
    assert_eq!(sum(|c| c.received_bytes), 24 * 300_000);
    assert_eq!(sum(|c| c.sent_bytes), 24 * 300_000);
    assert_eq!(sum(|c| c.accepted), 24);
    assert_eq!(sum(|c| c.stray), 0);
}

#[test]
fn large_transfers_go_both_ways_at_once() {
    let config = Config::default();
    let server = Server::start(2, config, echo);
    let addr = server.addr;
    std::thread::scope(|scope| {
        for seed in [77, 78] {
            scope.spawn(move || exchange(addr, seed, 20 << 20, 1 << 20));
        }
    });
    server.stop();
}

#[test]
fn few_small_buffers_slow_things_down_but_lose_nothing() {
    let config = Config { buffers: 2, buffer_bytes: 512, ring_entries: 8, ..Config::default() };
    let server = Server::start(1, config, echo);
    let addr = server.addr;
    std::thread::scope(|scope| {
        for seed in 1..=8 {
            scope.spawn(move || exchange(addr, seed, 200_000, 20_000));
        }
    });
    let counters = server.stop();
    assert!(counters[0].buffers_exhausted > 0, "the test did not reach what it is for");
}

#[test]
fn a_slow_reader_costs_only_itself() {
    let server = Server::start(1, Config::default(), echo);
    let addr = server.addr;
    let mut slow = TcpStream::connect(addr).unwrap();
    slow.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let bytes = Random(5).bytes(1 << 20);
    // Fill every buffer between us until nothing goes: the server has stopped reading from us.
    let mut sent = 0;
    while let Ok(count) = slow.write(&bytes[sent % bytes.len()..]) {
        sent += count;
        assert!(sent < 1 << 30, "the server reads on although nobody reads its output");
    }
    exchange(addr, 9, 100_000, 1000);
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut got, mut buffer) = (0, vec![0; 64 * 1024]);
    while got < sent {
        let count = slow.read(&mut buffer).unwrap();
        assert!(count > 0, "closed after {got} of {sent}");
        for (at, byte) in buffer[..count].iter().enumerate() {
            assert_eq!(*byte, bytes[(got + at) % bytes.len()], "at {}", got + at);
        }
        got += count;
    }
    server.stop();
}
