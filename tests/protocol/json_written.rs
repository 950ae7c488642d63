//! Values written as JSON: what JSON has no words for, and how long a text may become.

use corq::protocol::json::{
    EXPANSION_MAX, Unshown, from_msgpack, from_msgpack_within, from_record, from_reply,
};
use corq_shards::job::id::Chance;
use rmpv::Value;
use serde_json::Value as Json;

use crate::json::{any_packed, printed};
use crate::{map, pack};

#[test]
fn what_json_cannot_say_has_a_face_too() {
    let cases = [
        (Value::F64(f64::NAN), "null"),
        (Value::F64(f64::INFINITY), "null"),
        (Value::F64(f64::NEG_INFINITY), "null"),
        (Value::F32(0.5), "0.5"),
        (Value::Binary(vec![]), r#""""#),
        (Value::Binary(b"corq\xff".to_vec()), r#""Y29ycf8=""#),
        (Value::Ext(0, vec![0]), "null"),
        (Value::Ext(5, vec![1, 2, 3]), r#""AQID""#),
        (Value::Ext(-1, vec![0x54, 0x78, 0x61, 0x29]), r#""2014-11-28T11:48:57Z""#),
        (
            Value::Ext(-1, (500_000_000_u64 << 34 | 1).to_be_bytes().to_vec()),
            r#""1970-01-01T00:00:01.500Z""#,
        ),
        (
            Value::Ext(-1, [&[0; 4][..], &(-1_i64).to_be_bytes()].concat()),
            r#""1969-12-31T23:59:59Z""#,
        ),
        (Value::Ext(-1, [&[0; 4][..], &i64::MAX.to_be_bytes()].concat()), r#""AAAAAH//////////""#),
        (Value::Ext(-1, vec![1]), r#""AQ==""#),
    ];
    for (value, face) in cases {
        assert_eq!(printed(&value), face, "{value}");
    }
    let keys = [
        (Value::from(1), r#""1""#),
        (Value::from(-1.5), r#""-1.5""#),
        (Value::from(true), r#""true""#),
        (Value::Nil, r#""null""#),
        (Value::Binary(vec![255]), r#""/w==""#),
        (Value::from(f64::NAN), r#""null""#),
        (Value::Ext(-1, vec![0; 4]), r#""1970-01-01T00:00:00Z""#),
        // Base64 of 92 01 a2 61 22, and of 80.
        (Value::Array(vec![1.into(), "a\"".into()]), r#""kgGiYSI=""#),
        (Value::Map(vec![]), r#""gA==""#),
    ];
    for (key, face) in keys {
        assert_eq!(printed(&Value::Map(vec![(key, 0.into())])), format!("{{{face}:0}}"));
    }
}

/// The fear: an escape of an escape of an escape, 2^n bytes for n levels.
#[test]
fn a_key_within_a_key_is_escaped_once_however_deep() {
    let mut nested = Value::from("\"");
    for depth in 0..20 {
        nested = Value::Map(vec![(nested, depth.into())]);
        let bytes = pack(&nested).len();
        for print in [from_msgpack, from_record, from_reply] {
            let mut out = Vec::new();
            print(&pack(&nested), &mut out).unwrap();
            assert!(out.len() <= bytes * EXPANSION_MAX, "{bytes} became {}", out.len());
        }
    }
}

#[test]
fn no_value_takes_more_than_eight_times_its_bytes() {
    let chance = &mut Chance::new(8);
    let mut most = 0.0_f64;
    for _ in 0..20_000 {
        let bytes = pack(&any_packed(chance, 6));
        for print in [from_msgpack, from_record, from_reply] {
            let mut out = Vec::new();
            print(&bytes, &mut out).unwrap();
            serde_json::from_slice::<Json>(&out).unwrap();
            assert!(out.len() <= bytes.len() * EXPANSION_MAX, "{bytes:02x?} became {}", out.len());
            most = most.max(out.len() as f64 / bytes.len() as f64);
        }
    }
    // The worst there is: false as key of false.
    let worst = Value::Map(vec![(false.into(), false.into()); 1000]);
    let mut out = Vec::new();
    from_msgpack(&pack(&worst), &mut out).unwrap();
    assert_eq!(out.len(), 14_001);
    assert!(most > 4.0, "large ones have been tried: {most}");
}

/// The fear: memory for a text that is given up once it is whole.
#[test]
fn a_text_has_its_limit_while_it_is_written() {
    let chance = &mut Chance::new(9);
    for _ in 0..2000 {
        let bytes = pack(&any_packed(chance, 4));
        let mut whole = Vec::new();
        from_msgpack(&bytes, &mut whole).unwrap();
        let mut out = b"before".to_vec();
        from_msgpack_within(&bytes, &mut out, whole.len()).unwrap();
        assert_eq!(out, [b"before", &whole[..]].concat());
        let most = chance.draw() as usize % whole.len();
        let mut out = Vec::with_capacity(6);
        out.extend_from_slice(b"before");
        assert_eq!(from_msgpack_within(&bytes, &mut out, most), Err(Unshown::TooLong));
        assert_eq!(out, b"before");
    }
    for large in [Value::from("\u{1}".repeat(1 << 20)), Value::Binary(vec![0; 6 << 20])] {
        for value in [large.clone(), Value::Map(vec![(large.clone(), 1.into())])] {
            let mut out = Vec::new();
            let shown = from_msgpack_within(&pack(&value), &mut out, 1 << 20);
            assert_eq!(shown, Err(Unshown::TooLong));
            assert!(out.capacity() < 2 << 20, "{} bytes were taken for it", out.capacity());
        }
    }
}

#[test]
fn bytes_that_are_no_value_are_refused() {
    for bytes in
        [&b""[..], b"\x91", b"\xa2x", b"\xc1", b"\xa1\xff", b"\xdf\xff\xff\xff\xff", b"\x01\x01"]
    {
        for print in [from_msgpack, from_record, from_reply] {
            let mut out = vec![7];
            print(bytes, &mut out).unwrap_err();
            assert_eq!(out, [7]);
        }
    }
}

#[test]
fn integers_of_the_server_are_integers_and_floats_of_clients_floats() {
    let float = |value: f64| Value::F64(value);
    let payload = map(&[("at", float(1.7e12)), ("data", float(1.0)), ("result", float(2.0))]);
    let job = map(&[
        ("createdAt", float(1_700_000_000_000.0)),
        ("progress", float(12.5)),
        ("data", payload.clone()),
        ("returnvalue", payload),
    ]);
    let face = r#"{"createdAt":1700000000000,"progress":12.5,"data":{"at":1700000000000.0,"data":1.0,"result":2.0},"returnvalue":{"at":1700000000000.0,"data":1.0,"result":2.0}}"#;
    let mut out = Vec::new();
    from_record(&pack(&job), &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), face);

    let reply = map(&[
        ("ok", true.into()),
        ("reqId", float(7.0)),
        ("data", map(&[("time", float(1.7e12))])),
        ("jobs", Value::Array(vec![job])),
        ("result", float(3.0)),
        ("values", map(&[("q:1", float(2.0))])),
    ]);
    let mut out = Vec::new();
    from_reply(&pack(&reply), &mut out).unwrap();
    let face = format!(
        r#"{{"ok":true,"reqId":7.0,"data":{{"time":1700000000000}},"jobs":[{face}],"result":3.0,"values":{{"q:1":2.0}}}}"#
    );
    assert_eq!(String::from_utf8(out).unwrap(), face);
}
