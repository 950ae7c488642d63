//! Guards the life of a connection: what is sent when, how it ends, and that nothing of it is left.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use corq_io::net::{Config, EndReason, Event, Socket};
use socket2::SockRef;
use support::{Rig, open_files};

fn ended(rig: &Rig, with: EndReason) -> bool {
    rig.seen.iter().any(|event| matches!(event, Event::Ended { reason, .. } if *reason == with))
}

/// Bytes that a client has received by now.
fn arrived(client: &mut TcpStream) -> Vec<u8> {
    client.set_nonblocking(true).unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = client.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..count]);
    }
    client.set_nonblocking(false).unwrap();
    bytes
}

#[test]
fn output_is_not_sent_before_it_is_allowed() {
    let mut rig = Rig::new(Config::default());
    let (mut client, conn) = rig.connect();
    rig.reactor.conns.output(conn).unwrap().extend_from_slice(b"one two");
    // A full round trip of another connection: whatever was to be sent has been sent.
    let (mut other, other_conn) = rig.connect();
    rig.send(other_conn, b"x");
    rig.poll();
    other.read_exact(&mut [0]).unwrap();
    assert_eq!(arrived(&mut client), b"");
    assert_eq!((rig.reactor.conns.appended(conn), rig.reactor.conns.unsent(conn)), (7, 7));
    rig.reactor.conns.allow(conn, 3);
    rig.until("the first part sent", |rig| rig.reactor.conns.unsent(conn) == 4);
    assert_eq!(arrived(&mut client), b"one");
    rig.reactor.conns.output(conn).unwrap().extend_from_slice(b" three");
    rig.reactor.conns.allow(conn, 13);
    rig.until("all sent", |rig| rig.reactor.conns.unsent(conn) == 0);
    assert_eq!(arrived(&mut client), b" two three");
}

#[test]
fn of_too_much_output_those_go_first_of_whom_nothing_has_been_taken_for_longest() {
    const BYTES: usize = 64 << 20;
    let mut rig = Rig::new(Config::default());
    let (mut reader, reads) = rig.connect();
    let (_silent, reads_not) = rig.connect();
    let (_waiting, held) = rig.connect();
    // Written, and not to be sent yet.
    rig.reactor.conns.output(held).unwrap().extend_from_slice(&vec![1; BYTES]);
    rig.reactor.conns.allow(held, 0);
    for conn in [reads, reads_not] {
        rig.send(conn, &vec![1; BYTES]);
        let stuck = |rig: &mut Rig| rig.reactor.conns.unsent(conn) < BYTES;
        rig.until("the kernel has as much as it takes", stuck);
    }
    // The reader takes something now and then, though never all of it.
    let mut buffer = vec![0; 1 << 20];
    reader.set_nonblocking(true).unwrap();
    rig.until("the other to be the first to go", |rig| {
        let _ = reader.read(&mut buffer);
        let conns = &rig.reactor.conns;
        assert!(conns.unsent(reads) > 0);
        conns.overdue(conns.output_bytes() - 1, 0) == Some(vec![reads_not])
    });
    let conns = &mut rig.reactor.conns;
    assert_eq!(conns.overdue(conns.output_bytes(), 0), None);
    let all = Some(vec![reads_not, reads]);
    assert_eq!(conns.overdue(0, usize::MAX), all, "nobody for what may not be sent");
    conns.allow(held, BYTES as u64);
    rig.until("some of it is taken", |rig| rig.reactor.conns.unsent(held) < BYTES);
    assert!(rig.reactor.conns.overdue(0, 0).unwrap().contains(&held));
}

#[test]
fn who_alone_has_output_left_may_have_a_reply_beyond_the_bound_and_no_more() {
    const BYTES: usize = 64 << 20;
    let mut rig = Rig::new(Config::default());
    let (_client, conn) = rig.connect();
    rig.send(conn, &vec![1; BYTES]);
    rig.until("the kernel has as much as it takes", |rig| rig.reactor.conns.unsent(conn) < BYTES);
    let conns = &mut rig.reactor.conns;
    assert_eq!(conns.overdue(1, 2 * BYTES), None);
    assert_eq!(conns.overdue(1, BYTES / 2), Some(vec![conn]));
    conns.note_owed(conn, 2 * BYTES);
    assert_eq!(conns.overdue(1, 2 * BYTES), Some(vec![conn]), "what it is owed counts");
}

#[test]
fn a_half_closed_client_still_gets_its_replies() {
    let mut rig = Rig::new(Config::default());
    let (mut client, conn) = rig.connect();
    client.write_all(b"request").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    rig.until("the half close", |rig| ended(rig, EndReason::HalfClosed));
    assert_eq!(rig.bytes_of(conn), b"request");
    rig.send(conn, b"reply");
    rig.reactor.conns.close(conn);
    rig.until_closed(conn);
    let mut reply = Vec::new();
    client.read_to_end(&mut reply).unwrap();
    assert_eq!(reply, b"reply");
}

#[test]
fn a_reset_in_the_middle_of_a_send_ends_the_connection_once() {
    let mut rig = Rig::new(Config::default());
    let (client, conn) = rig.connect();
    rig.send(conn, &vec![1; 64 << 20]);
    rig.until("a send that cannot go on", |rig| rig.reactor.counters.sends > 0);
    assert!(rig.reactor.conns.unsent(conn) > 0);
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    rig.until("the reset", |rig| ended(rig, EndReason::Reset));
    assert!(rig.reactor.conns.output(conn).is_none(), "output for a dead peer");
    rig.reactor.conns.close(conn);
    rig.until_closed(conn);
    let ends = rig.seen.iter().filter(|event| matches!(event, Event::Ended { .. })).count();
    assert_eq!((ends, rig.reactor.conns.len()), (1, 0));
}

/// More sends fall short at once than the completion queue has room to tell of.
#[test]
fn sends_that_all_find_no_room_at_once_are_all_carried_on() {
    const BYTES: usize = 5 << 20;
    let mut rig = Rig::new(Config { ring_entries: 2, ..Config::default() });
    let pairs: Vec<_> = (0..60).map(|_| rig.connect()).collect();
    let large = vec![7; BYTES];
    for (_, conn) in &pairs {
        rig.send(*conn, &large);
    }
    rig.poll();
    let readers = pairs.into_iter().map(|(mut client, conn)| {
        let reader = std::thread::spawn(move || client.read_exact(&mut vec![0; BYTES]).is_ok());
        (reader, conn)
    });
    for (reader, conn) in readers.collect::<Vec<_>>() {
        rig.until("all is sent", |rig| rig.reactor.conns.unsent(conn) == 0 && reader.is_finished());
        assert!(reader.join().unwrap());
    }
    assert_eq!(rig.reactor.counters.stray, 0);
}

#[test]
fn close_delivers_the_last_words_although_the_client_still_sends() {
    let mut rig = Rig::new(Config::default());
    let (mut client, conn) = rig.connect();
    let words = vec![9; 100_000];
    rig.send(conn, &words);
    rig.reactor.conns.close(conn);
    let talking = std::thread::spawn(move || {
        // Bytes that nobody wants. A socket closed over them, or before them, is reset.
        for _ in 0..64 {
            client.write_all(&[7; 10_000]).unwrap();
        }
        client.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        got
    });
    rig.until_closed(conn);
    assert_eq!(talking.join().unwrap(), words);
    assert!(rig.received.is_empty(), "bytes after the close");
}

#[test]
fn close_drops_what_is_not_allowed() {
    let mut rig = Rig::new(Config { linger_ms: 1, ..Config::default() });
    let (mut client, conn) = rig.connect();
    rig.send(conn, b"said");
    rig.reactor.conns.output(conn).unwrap().extend_from_slice(b"unsaid");
    rig.reactor.conns.close(conn);
    assert!(rig.reactor.conns.output(conn).is_none(), "output after the close");
    rig.until_closed(conn);
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"said");
}

#[test]
fn a_closed_client_that_does_not_read_is_cut() {
    let mut rig = Rig::new(Config { drain_ms: 50, ..Config::default() });
    let (_client, conn) = rig.connect();
    rig.send(conn, &vec![1; 64 << 20]);
    rig.reactor.conns.close(conn);
    let begin = Instant::now();
    rig.until_closed(conn);
    assert!(begin.elapsed() >= Duration::from_millis(50));
    assert_eq!(rig.reactor.counters.drains_cut, 1);
}

#[test]
fn a_closed_client_that_does_not_close_is_let_go() {
    let mut rig = Rig::new(Config { linger_ms: 50, ..Config::default() });
    let (_client, conn) = rig.connect();
    rig.reactor.conns.close(conn);
    rig.until_closed(conn);
    assert_eq!((rig.reactor.counters.drains_cut, rig.reactor.conns.len()), (0, 0));
}

#[test]
fn abort_resets_at_once() {
    let mut rig = Rig::new(Config::default());
    let (mut client, conn) = rig.connect();
    rig.send(conn, &vec![1; 64 << 20]);
    rig.poll();
    rig.reactor.conns.abort(conn);
    rig.until_closed(conn);
    let error = client.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let (mut idle, conn) = rig.connect();
    rig.reactor.conns.abort(conn);
    rig.until_closed(conn);
    assert_eq!(idle.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_paused_connection_is_not_read_and_a_resumed_one_loses_nothing() {
    let mut rig = Rig::new(Config::default());
    let (mut client, conn) = rig.connect();
    let total = 32 << 20;
    let sending = std::thread::spawn(move || {
        client.write_all(&vec![3; total]).unwrap();
        client
    });
    rig.until("some bytes", |rig| !rig.received.is_empty());
    rig.reactor.conns.pause_reading(conn);
    // Bytes that the kernel had taken before it heard of the pause still come: at most all buffers.
    let bound = rig.bytes_of(conn).len() + 256 * 16 * 1024;
    let (mut came, mut quiet_turns) = (0, 0);
    rig.until("quiet", |rig| {
        let before = std::mem::replace(&mut came, rig.bytes_of(conn).len());
        quiet_turns = if came == before { quiet_turns + 1 } else { 0 };
        quiet_turns > 50
    });
    let paused_at = rig.bytes_of(conn).len();
    assert!(paused_at <= bound && paused_at < total, "{paused_at} bytes in spite of the pause");
    let (mut other, other_conn) = rig.connect();
    other.write_all(b"meanwhile").unwrap();
    rig.until("the other client", |rig| rig.bytes_of(other_conn) == b"meanwhile");
    assert_eq!(rig.bytes_of(conn).len(), paused_at, "read while paused");
    rig.reactor.conns.resume_reading(conn);
    rig.until("the rest", |rig| {
        rig.received.iter().filter(|(from, _)| *from == conn).map(|(_, b)| b.len()).sum::<usize>()
            == total
    });
    drop(sending.join().unwrap());
}

#[test]
fn pausing_and_resuming_in_every_order_ends_as_asked() {
    let mut rig = Rig::new(Config::default());
    let (mut client, conn) = rig.connect();
    for round in 0..200_u32 {
        for step in 0..4 {
            match round >> step & 1 {
                0 => rig.reactor.conns.pause_reading(conn),
                _ => rig.reactor.conns.resume_reading(conn),
            }
            if round >> (step + 4) & 1 == 1 {
                rig.poll();
            }
        }
        rig.reactor.conns.resume_reading(conn);
        client.write_all(&round.to_ne_bytes()).unwrap();
        let expected = (round as usize + 1) * 4;
        rig.until("four bytes more", |rig| rig.bytes_of(conn).len() == expected);
    }
    assert_eq!(rig.reactor.counters.stray, 0);
}

#[test]
fn a_paused_connection_tells_when_its_output_is_taken() {
    let mut rig = Rig::new(Config::default());
    let (mut client, conn) = rig.connect();
    rig.send(conn, &vec![1; 32 << 20]);
    rig.reactor.conns.pause_reading(conn);
    let reading = std::thread::spawn(move || client.read_exact(&mut vec![0; 32 << 20]));
    rig.until("drained", |rig| {
        rig.seen.iter().any(|event| matches!(event, Event::Drained { conn: c } if *c == conn))
    });
    assert_eq!(rig.reactor.conns.unsent(conn), 0);
    reading.join().unwrap().unwrap();
}

#[test]
fn whoever_asks_is_told_once_that_the_output_has_been_taken() {
    let mut rig = Rig::new(Config::default());
    let (mut client, conn) = rig.connect();
    let drained = |rig: &Rig| {
        let told = |event: &&Event| matches!(event, Event::Drained { conn: c } if *c == conn);
        rig.seen.iter().filter(told).count()
    };
    for round in 1..3 {
        rig.send(conn, &vec![7; 16 << 20]);
        rig.reactor.conns.notify_when_drained(conn);
        let mut reader = client.try_clone().unwrap();
        let reading = std::thread::spawn(move || reader.read_exact(&mut vec![0; 16 << 20]));
        rig.until("drained", |rig| drained(rig) == round);
        assert_eq!(rig.reactor.conns.unsent(conn), 0);
        reading.join().unwrap().unwrap();
        // Bytes sent now were not asked about, so no `Drained` follows; the connection is still read.
        rig.send(conn, b"more");
        client.write_all(b"x").unwrap();
        rig.until("bytes of the client", |rig| rig.bytes_of(conn).len() == round);
        client.read_exact(&mut [0; 4]).unwrap();
        assert_eq!(drained(&rig), round);
    }
}

#[test]
fn a_stale_id_is_harmless_everywhere() {
    let mut rig = Rig::new(Config { linger_ms: 1, ..Config::default() });
    let (first, stale) = rig.connect();
    rig.reactor.conns.close(stale);
    drop(first);
    rig.until_closed(stale);
    let (mut client, conn) = rig.connect();
    assert_eq!((conn.index, conn.generation), (stale.index, stale.generation + 1));
    assert!(rig.reactor.conns.output(stale).is_none());
    assert_eq!((rig.reactor.conns.appended(stale), rig.reactor.conns.unsent(stale)), (0, 0));
    rig.reactor.conns.allow(stale, 100);
    rig.reactor.conns.pause_reading(stale);
    rig.reactor.conns.close(stale);
    rig.reactor.conns.abort(stale);
    rig.reactor.conns.resume_reading(stale);
    assert!(rig.reactor.conns.peer(stale).is_err());
    assert!(!rig.reactor.conns.is_open(stale));
    let never = corq_io::net::ConnId { index: 12345, generation: 0 };
    rig.reactor.conns.abort(never);
    assert!(rig.reactor.conns.is_open(conn));
    assert_eq!(rig.reactor.conns.peer(conn).unwrap(), client.local_addr().unwrap());
    client.write_all(b"alive").unwrap();
    rig.until("the new client's bytes", |rig| rig.bytes_of(conn) == b"alive");
    rig.send(conn, b"yes");
    rig.poll();
    client.read_exact(&mut [0; 3]).unwrap();
}

#[test]
fn a_connection_that_is_gone_can_be_closed_in_every_way() {
    let mut rig = Rig::new(Config::default());
    for round in 0..64 {
        let (client, conn) = rig.connect();
        if round & 1 != 0 {
            rig.send(conn, &[0; 1000]);
        }
        if round & 2 != 0 {
            rig.reactor.conns.pause_reading(conn);
        }
        if round & 4 != 0 {
            rig.poll();
        }
        if round & 8 != 0 {
            SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(client);
        if round & 16 != 0 {
            rig.poll();
        }
        if round & 32 != 0 {
            rig.reactor.conns.close(conn);
        } else {
            rig.reactor.conns.abort(conn);
        }
        rig.until_closed(conn);
        assert_eq!(rig.reactor.conns.len(), 0, "round {round}");
    }
    assert_eq!((rig.reactor.counters.accepted, rig.reactor.counters.closed), (64, 64));
    assert_eq!(rig.reactor.counters.stray, 0);
}

/// Alone in its process as far as descriptors go: the tests of a file share them.
#[test]
#[ignore = "run by the next test in a process of its own"]
fn child_connects_and_disconnects() {
    let mut rig = Rig::new(Config::default());
    let (client, conn) = rig.connect();
    rig.reactor.conns.abort(conn);
    rig.until_closed(conn);
    drop(client);
    let before = open_files();
    for round in 0..5000 {
        let (client, conn) = rig.connect();
        rig.send(conn, b"hello");
        match round % 4 {
            0 => rig.reactor.conns.close(conn),
            1 => rig.reactor.conns.abort(conn),
            _ => {}
        }
        drop(client);
        if round % 4 > 1 {
            rig.until("its end", |rig| {
                rig.seen.iter().any(|e| matches!(e, Event::Ended { conn: c, .. } if *c == conn))
            });
            rig.reactor.conns.close(conn);
        }
        rig.until_closed(conn);
        rig.seen.clear();
    }
    assert_eq!(rig.reactor.conns.len(), 0);
    assert_eq!(open_files(), before, "descriptors are left");
    // Operations in flight do not outlive the reactor either.
    let (client, conn) = rig.connect();
    rig.send(conn, &vec![0; 16 << 20]);
    rig.poll();
    drop(rig);
    drop(client);
    assert!(open_files() < before, "a dropped reactor keeps descriptors");
}

#[test]
fn thousands_of_connections_leave_no_descriptor() {
    support::child::run("child_connects_and_disconnects");
}

/// Two reactors in one thread, and a client of the first.
fn two_rigs() -> (Rig, Rig, TcpStream, corq_io::net::ConnId) {
    let (mut here, there) = (Rig::new(Config::default()), Rig::new(Config::default()));
    let (client, conn) = here.connect();
    (here, there, client, conn)
}

fn given_away(rig: &mut Rig) -> Option<Socket> {
    let at = rig.seen.iter().position(|event| matches!(event, Event::GivenAway { .. }))?;
    let Event::GivenAway { socket, .. } = rig.seen.remove(at) else { return None };
    Some(socket)
}

#[test]
fn a_connection_given_away_goes_on_elsewhere_with_every_byte() {
    let (mut here, mut there, mut client, conn) = two_rigs();
    here.reactor.conns.output(conn).unwrap().extend_from_slice(b"held");
    here.reactor.conns.give_away(conn);
    client.write_all(b"early").unwrap();
    for _ in 0..3 {
        here.poll();
    }
    assert!(given_away(&mut here).is_none(), "it still owes the client something");
    let end = here.reactor.conns.appended(conn);
    here.reactor.conns.allow(conn, end);
    let mut socket = None;
    here.until("given away", |rig| {
        socket = given_away(rig);
        socket.is_some()
    });
    client.write_all(b" and late").unwrap();
    let adopted = there.reactor.conns.adopt(socket.unwrap());
    let early = here.bytes_of(conn);
    there.until("all bytes", |rig| {
        [&early[..], &rig.bytes_of(adopted)].concat() == b"early and late"
    });
    there.send(adopted, b" sent");
    there.poll();
    let mut got = [0; 9];
    client.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"held sent");
    assert!(here.reactor.conns.is_empty() && here.reactor.counters.stray == 0);
    assert_eq!((here.reactor.counters.given_away, here.reactor.counters.closed), (1, 0));
}

#[test]
fn a_connection_whose_peer_has_ended_stays() {
    let (mut here, _, client, conn) = two_rigs();
    client.shutdown(Shutdown::Write).unwrap();
    here.until("its end", |rig| ended(rig, EndReason::HalfClosed));
    here.reactor.conns.give_away(conn);
    for _ in 0..3 {
        here.poll();
    }
    assert!(given_away(&mut here).is_none());
    here.send(conn, b"bye");
    here.reactor.conns.close(conn);
    here.until_closed(conn);
}
