//! Bytes that lie: cut, nested, counted wrong, random. None may panic, none may cost much.

use std::time::{Duration, Instant};

use corq::api::commands::COMMANDS;
use corq::protocol::decode::decode;
use corq::protocol::frame::{FRAME_BYTES_MAX, Split, split};
use corq_shards::job::id::Chance;
use rmpv::Value;

use crate::{accepted, command, map, pack, refused, strings, undefined};

/// A frame that uses most of what the decoder knows.
fn rich() -> Vec<u8> {
    let job = map(&[
        ("data", map(&[("list", strings(&["ä", "b"])), ("n", 1.5.into())])),
        ("priority", 70_000.into()),
        ("tags", strings(&["a", "b"])),
        ("repeat", map(&[("every", 5000.into())])),
        ("backoff", map(&[("delay", 5.0.into())])),
        ("lifo", true.into()),
        ("extra", Value::Ext(5, vec![1, 2, 3])),
        ("groupId", undefined()),
    ]);
    let jobs = Value::Array(vec![job.clone(), job]);
    command("PUSHB", &[("queue", "q".into()), ("jobs", jobs), ("reqId", "r".into())])
}

#[test]
fn every_cut_of_a_frame_is_refused() {
    let frame = rich();
    accepted(&frame);
    for cut in 0..frame.len() {
        let error = refused(&frame[..cut]);
        assert!(error.starts_with("Invalid frame: "), "cut at {cut}: {error}");
    }
}

#[test]
fn every_single_byte_changed_is_decoded_or_refused() {
    let frame = rich();
    for at in 0..frame.len() {
        for byte in 0..=255 {
            let mut changed = frame.clone();
            changed[at] = byte;
            let _ = decode(&changed);
        }
    }
}

#[test]
fn random_bytes_are_refused_without_harm() {
    let mut chance = Chance::new(0x00c0_ffee);
    for round in 0..100_000_u32 {
        let length = chance.draw() as usize % 64;
        let mut bytes: Vec<u8> = (0..length).map(|_| chance.draw() as u8).collect();
        if round % 2 == 0 {
            // Half of them begin as a command, so that they come further.
            let spec = &COMMANDS[chance.draw() as usize % COMMANDS.len()];
            let mut frame = command(spec.name, &[]);
            frame[0] = 0x80 | (1 + chance.draw() as u8 % 14);
            for field in spec.fields {
                frame.extend(pack(&field.name.into()));
                let taken = bytes.len().min(chance.draw() as usize % 8);
                frame.extend(bytes.drain(..taken));
            }
            bytes = frame;
        }
        let _ = decode(&bytes);
        let _ = split(&bytes);
    }
}

#[test]
fn bytes_behind_the_command_are_refused() {
    let mut frame = command("Ping", &[]);
    frame.push(0xc0);
    assert_eq!(refused(&frame), "Invalid frame: bytes follow the command");
}

#[test]
fn what_is_no_map_is_no_command() {
    for value in [Value::Nil, 1.into(), "PING".into(), strings(&["Ping"])] {
        assert_eq!(refused(&pack(&value)), "Invalid frame: it is not a map");
    }
    assert_eq!(refused(&[]), "Invalid frame: it ends in the middle of a value");
    assert_eq!(refused(&[0xc1]), "Invalid frame: it is not a map");
}

/// A PUSH whose `data` is `open` repeated around a nil.
fn nested(open: &[u8], levels: usize) -> Vec<u8> {
    let mut frame = command("PUSH", &[("queue", "q".into())]);
    frame[0] += 1;
    frame.extend(pack(&"data".into()));
    for _ in 0..levels {
        frame.extend_from_slice(open);
    }
    frame.push(0xc0);
    frame
}

#[test]
fn nesting_ends_at_its_bound_and_a_bomb_does_no_harm() {
    let map_with_key = [0x81, 0xa1, b'k'];
    for open in [&[0x91][..], &map_with_key, &[0xdc, 0, 1], &[0xdd, 0, 0, 0, 1]] {
        accepted(&nested(open, 128));
        assert_eq!(refused(&nested(open, 129)), "data must be at most 128 levels deep");
        refused(&nested(open, 1_000_000));
    }
    let mut unknown = nested(&[0x91], 129);
    let at = unknown.windows(4).position(|window| window == b"data").unwrap();
    unknown[at] = b'x';
    assert_eq!(refused(&unknown), "Invalid frame: lists and maps nest too deep");
    // Maps nested as keys, of commands and of payloads.
    let mut keys = vec![0x81; 1_000_000];
    keys.push(0xc0);
    refused(&keys);
    refused(&nested(&[0x81], 1_000_000));
}

#[test]
fn counts_that_lie_cost_nothing() {
    let begun = Instant::now();
    let huge = [0xdd, 0xff, 0xff, 0xff, 0xff];
    let huge_map = [0xdf, 0xff, 0xff, 0xff, 0xff];
    for (name, field) in [
        ("PUSH", "data"),
        ("PUSH", "tags"),
        ("PUSHB", "jobs"),
        ("ACKB", "ids"),
        ("ACKB", "tokens"),
        ("ACKB", "results"),
        ("GetJobs", "state"),
        ("Ping", "unknown"),
        ("Ping", "reqId"),
    ] {
        for bomb in [huge, huge_map] {
            let mut frame = command(name, &[]);
            frame[0] += 1;
            frame.extend(pack(&field.into()));
            frame.extend(bomb);
            frame.extend([0; 100]);
            refused(&frame);
        }
    }
    assert!(
        refused(&huge_map).starts_with("Invalid frame: a list or map announces more"),
        "the command itself"
    );
    // To go through what is announced would take hours.
    assert!(begun.elapsed() < Duration::from_mins(10));
}

#[test]
fn lengths_that_lie_are_refused() {
    for lie in [
        &[0xd9, 0xff][..],
        &[0xda, 0xff, 0xff],
        &[0xdb, 0xff, 0xff, 0xff, 0xff],
        &[0xc4, 0xff],
        &[0xc5, 0xff, 0xff],
        &[0xc6, 0xff, 0xff, 0xff, 0xff],
        &[0xc7, 0xff, 1],
        &[0xc8, 0xff, 0xff, 1],
        &[0xc9, 0xff, 0xff, 0xff, 0xff, 1],
        &[0xd8, 1],
        &[0xcf, 1],
        &[0xbf],
    ] {
        let mut frame = command("Ping", &[]);
        frame[0] += 1;
        frame.extend(pack(&"x".into()));
        frame.extend_from_slice(lie);
        assert_eq!(refused(&frame), "Invalid frame: it ends in the middle of a value");
    }
    let mut reserved = command("Ping", &[]);
    reserved[0] += 1;
    reserved.extend(pack(&"x".into()));
    reserved.push(0xc1);
    assert_eq!(refused(&reserved), "Invalid frame: the byte 0xc1 begins no value");
}

#[test]
fn refusals_carry_the_request_id_wherever_it_stands() {
    let id = pack(&Value::from("r-1"));
    let late =
        command("PULL", &[("queue", "a b".into()), ("x", 1.into()), ("reqId", "r-1".into())]);
    assert_eq!(decode(&late).unwrap_err().req_id, Some(&id[..]));
    let unknown = pack(&map(&[("reqId", "r-1".into()), ("cmd", "Nope".into())]));
    assert_eq!(decode(&unknown).unwrap_err().req_id, Some(&id[..]));
    let missing = pack(&map(&[("reqId", Value::Nil), ("reqId", "r-1".into())]));
    assert_eq!(decode(&missing).unwrap_err().req_id, Some(&id[..]));
    // The request id stands behind a payload that is the very thing refused.
    for data in [&[0xa1, 0xff][..], &[[0x91; 200].as_slice(), &[0xc0]].concat()] {
        for (cmd_first, key) in [(true, "data"), (false, "data"), (true, "unknown")] {
            let mut frame = vec![0x84];
            let push = [pack(&"cmd".into()), pack(&"PUSH".into())].concat();
            let payload = [&pack(&key.into()), data].concat();
            let [first, second] = if cmd_first { [&push, &payload] } else { [&payload, &push] };
            frame.extend_from_slice(first);
            frame.extend_from_slice(second);
            for text in ["queue", "q", "reqId", "r-1"] {
                frame.extend(pack(&text.into()));
            }
            let refusal = decode(&frame).unwrap_err();
            assert_eq!(refusal.req_id, Some(&id[..]), "{}", refusal.error);
            assert!(key != "data" || refusal.error.text().starts_with("data must be"));
        }
    }
    // The request id stands before the damage.
    let mut broken = command("Ping", &[("reqId", "r-1".into()), ("x", 1.into())]);
    broken.pop();
    assert_eq!(decode(&broken).unwrap_err().req_id, Some(&id[..]));
    // The request id is part of the damage.
    assert_eq!(decode(&broken[..broken.len() - 4]).unwrap_err().req_id, None);
}

#[test]
fn frames_are_split_at_their_edges() {
    let mut stream = Vec::new();
    for payload in [&b"one"[..], b"", b"three"] {
        stream.extend((payload.len() as u32).to_be_bytes());
        stream.extend_from_slice(payload);
    }
    let mut rest = &stream[..];
    for payload in [&b"one"[..], b"", b"three"] {
        let Split::Complete { frame, rest: behind } = split(rest) else { panic!() };
        assert_eq!(frame, payload);
        rest = behind;
    }
    assert_eq!(split(rest), Split::Incomplete { need: 4 });
    for cut in 0..4 {
        assert_eq!(split(&stream[..cut]), Split::Incomplete { need: 4 });
    }
    for cut in 4..7 {
        assert_eq!(split(&stream[..cut]), Split::Incomplete { need: 7 });
    }
}

#[test]
fn a_frame_may_have_64_mb_and_no_more() {
    let max = FRAME_BYTES_MAX as u32;
    assert_eq!(max, 64 << 20);
    assert_eq!(split(&max.to_be_bytes()), Split::Incomplete { need: FRAME_BYTES_MAX + 4 });
    assert_eq!(split(&(max + 1).to_be_bytes()), Split::TooLarge(max + 1));
    assert_eq!(split(&[0xff; 8]), Split::TooLarge(u32::MAX));
}
