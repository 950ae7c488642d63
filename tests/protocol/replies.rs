//! Replies as another library reads them.

use corq::api::error::ErrorKind;
use corq::protocol::decode::decode;
use corq::protocol::frame::{FRAME_BYTES_MAX, Split, split};
use corq::protocol::msgpack::writer::Writer;
use corq::protocol::reply::{self, Frame, ReplyTooLarge};
use corq_shards::job::id::JobId;
use rmpv::Value;

use crate::{JOB_ID, command, map, pack, strings, undefined};

/// The one frame in `out`, read by the other library.
fn read(out: &[u8]) -> Value {
    let Split::Complete { mut frame, rest } = split(out) else { panic!("no whole frame") };
    assert!(rest.is_empty());
    let value = rmpv::decode::read_value(&mut frame).unwrap();
    assert!(frame.is_empty(), "bytes follow the reply");
    value
}

/// The value that `write` writes, read by the other library.
fn written(write: impl Fn(&mut Writer<'_>)) -> Value {
    let mut out = vec![1, 2, 3];
    write(&mut Writer::new(&mut out));
    let mut bytes = &out[3..];
    let value = rmpv::decode::read_value(&mut bytes).unwrap();
    assert!(bytes.is_empty());
    value
}

#[test]
fn the_request_id_comes_back_as_it_was_sent() {
    let ids = [
        "text".into(),
        "".into(),
        0.into(),
        (-1).into(),
        u64::MAX.into(),
        i64::MIN.into(),
        1.0.into(),
        1.5_f32.into(),
        true.into(),
        Value::Binary(vec![1, 2]),
        strings(&["a", "b"]),
        map(&[("k", Value::Nil)]),
        Value::Ext(7, vec![1]),
    ];
    for id in ids {
        let frame = command("Ping", &[("reqId", id.clone())]);
        let req_id = decode(&frame).unwrap().req_id;
        assert_eq!(req_id, Some(&pack(&id)[..]));
        let mut out = Vec::new();
        reply::ok(&mut out, req_id);
        assert_eq!(read(&out), map(&[("ok", true.into()), ("reqId", id)]));
    }
    for nothing in [Value::Nil, undefined()] {
        let frame = command("Ping", &[("reqId", nothing)]);
        assert_eq!(decode(&frame).unwrap().req_id, None);
    }
    let mut out = Vec::new();
    reply::ok(&mut out, None);
    assert_eq!(read(&out), map(&[("ok", true.into())]));
}

#[test]
fn errors_and_ids_have_their_shape() {
    let req_id = pack(&7.into());
    let mut out = Vec::new();
    reply::error(&mut out, Some(&req_id), ErrorKind::JobNotFound);
    let error = [
        ("ok", false.into()),
        ("reqId", 7.into()),
        ("error", "Job not found".into()),
        ("code", "not_found".into()),
    ];
    assert_eq!(read(&out), map(&error));
    let mut out = Vec::new();
    reply::id(&mut out, Some(&req_id), JobId(0x0190_163d_8694_739b_aea5_966c_26f8_a787));
    let id = [("ok", true.into()), ("reqId", 7.into()), ("id", JOB_ID.into())];
    assert_eq!(read(&out), map(&id));
}

#[test]
fn replies_follow_each_other_and_may_leave_holes() {
    let mut out = Vec::new();
    reply::ok(&mut out, None);
    let before = out.len();
    let payload = pack(&strings(&["from", "disk"]));
    let frame = Frame::begin(&mut out);
    let mut reply = reply::begin(&mut out, true, None);
    let hole = reply.key("job").raw_hole(payload.len());
    reply.key("token").nil();
    drop(reply);
    frame.finish(&mut out).unwrap();
    reply::ok(&mut out, None);
    out[hole..hole + payload.len()].copy_from_slice(&payload);
    let Split::Complete { rest, .. } = split(&out) else { panic!() };
    assert_eq!(rest.len(), out.len() - before);
    let Split::Complete { mut frame, rest } = split(rest) else { panic!() };
    let expected =
        [("ok", true.into()), ("job", strings(&["from", "disk"])), ("token", Value::Nil)];
    assert_eq!(rmpv::decode::read_value(&mut frame).unwrap(), map(&expected));
    assert_eq!(read(rest), map(&[("ok", true.into())]));
}

#[test]
fn a_reply_that_fits_no_frame_is_taken_back() {
    let mut out = Vec::new();
    reply::ok(&mut out, None);
    let before = out.clone();
    let frame = Frame::begin(&mut out);
    Writer::new(&mut out).raw_hole(FRAME_BYTES_MAX + 1);
    assert_eq!(frame.finish(&mut out), Err(ReplyTooLarge));
    assert_eq!(out, before);
    let frame = Frame::begin(&mut out);
    Writer::new(&mut out).raw_hole(FRAME_BYTES_MAX);
    assert_eq!(frame.finish(&mut out), Ok(()));
    // A request id that fills a frame by itself must not end in silence.
    let mut out = Vec::new();
    let huge = vec![0xc0; FRAME_BYTES_MAX];
    reply::ok(&mut out, Some(&huge));
    let error = [
        ("ok", false.into()),
        ("error", "The reply does not fit a frame".into()),
        ("code", "reply_too_large".into()),
    ];
    assert_eq!(read(&out), map(&error));
}

#[test]
fn integers_within_32_bits_are_integers_and_others_floats() {
    let edges = [0, 1, 127, 128, 255, 256, 65_535, 65_536, i64::from(u32::MAX)];
    for value in edges {
        assert_eq!(written(|w| w.uint(value as u64)), Value::from(value));
        assert_eq!(written(|w| w.int(value)), Value::from(value));
    }
    for value in [-1, -32, -33, -128, -129, -32_768, -32_769, i64::from(i32::MIN)] {
        assert_eq!(written(|w| w.int(value)), Value::from(value));
    }
    for value in [1_i64 << 32, 1_700_000_000_000, (1 << 53) - 1] {
        assert_eq!(written(|w| w.uint(value as u64)), Value::F64(value as f64));
        assert_eq!(written(|w| w.int(-value)), Value::F64(-value as f64));
    }
    assert_eq!(written(|w| w.number(50.0)), Value::from(50));
    assert_eq!(written(|w| w.number(-3.0)), Value::from(-3));
    for value in [0.5, 1e300, -1e12, f64::INFINITY] {
        assert_eq!(written(|w| w.number(value)), Value::F64(value));
    }
}

#[test]
fn every_value_reads_back() {
    for length in [0, 1, 31, 32, 255, 256, 65_535, 65_536] {
        let text = "x".repeat(length);
        assert_eq!(written(|w| w.str(&text)), Value::from(text.clone()));
        let counted = written(|w| {
            w.array(length);
            (0..length).for_each(|_| w.nil());
        });
        assert_eq!(counted.as_array().unwrap().len(), length);
        let counted = written(|w| {
            w.map(length);
            (0..2 * length).for_each(|_| w.bool(true));
        });
        assert_eq!(counted.as_map().unwrap().len(), length);
    }
    assert_eq!(written(|w| w.uuid(0)), Value::from("00000000-0000-0000-0000-000000000000"));
    assert_eq!(written(|w| w.str_or_nil(None)), Value::Nil);
    assert_eq!(written(|w| w.str_or_nil(Some("a"))), "a".into());
    assert_eq!(written(|w| w.uint_or_nil(Some(5))), 5.into());
    assert_eq!(written(|w| w.uint_or_nil(None)), Value::Nil);
    assert_eq!(written(|w| w.raw_or_nil(&[])), Value::Nil);
    assert_eq!(written(|w| w.raw_or_nil(&[7])), 7.into());
    assert_eq!(written(|w| w.f64(1.0)), Value::F64(1.0));
}

#[test]
fn a_map_counts_its_entries_however_many_and_however_deep() {
    for count in [0, 1, 15, 16, 17, 300] {
        let value = written(|w| {
            let mut outer = w.begin_map();
            outer.key("before").uint(1);
            let mut inner = outer.map("inner");
            for entry in 0..count {
                inner.key(&entry.to_string()).map(0);
            }
            drop(inner);
            for entry in 0..count {
                outer.key(&entry.to_string()).strs(&["a", "b"]);
            }
        });
        let entries = value.as_map().unwrap();
        assert_eq!(entries.len(), 2 + count);
        assert_eq!(entries[1].1.as_map().unwrap().len(), count);
        assert!(entries[2..].iter().all(|(_, value)| *value == strings(&["a", "b"])));
    }
}

#[test]
fn maps_and_lists_may_be_counted_when_they_end() {
    let value = written(|w| {
        let open = w.open_map();
        w.str("jobs");
        let list = w.open_array();
        w.uint(1);
        w.uint(2);
        list.close(w, 2);
        w.str("done");
        w.bool(false);
        open.close(w, 2);
    });
    let jobs = Value::Array(vec![1.into(), 2.into()]);
    assert_eq!(value, map(&[("jobs", jobs), ("done", false.into())]));
}
