//! Encoded and decoded payloads, compared with another implementation of `MessagePack`. The fear: a payload that is
//! changed on its way, or bytes from the network that bring the client down.

use corq_client::Raw;
use proptest::prelude::*;
use rmpv::Value;

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Value::from),
        (any::<i8>(), proptest::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(kind, bytes)| Value::Ext(kind, bytes)),
    ];
    leaf.prop_recursive(6, 200, 20, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..20).prop_map(Value::Array),
            proptest::collection::vec((inner.clone(), inner), 0..20).prop_map(Value::Map),
        ]
    })
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes
}

proptest! {
    #[test]
    fn a_value_is_taken_whole_and_not_with_a_byte_more_or_less(value in values(), tail in any::<u8>()) {
        let bytes = encoded(&value);
        let raw = Raw::from_msgpack(bytes.clone()).unwrap();
        prop_assert_eq!(raw.as_bytes(), &bytes);
        prop_assert!(Raw::from_msgpack(bytes[..bytes.len() - 1].to_vec()).is_err());
        let mut longer = bytes;
        longer.push(tail);
        prop_assert!(Raw::from_msgpack(longer).is_err());
    }

    #[test]
    fn any_bytes_at_all_are_taken_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        // The byte that stands for nothing, which the other implementation takes for nil, has a test of its own.
        bytes.iter_mut().filter(|byte| **byte == 0xc1).for_each(|byte| *byte = 0xc0);
        let mut rest = &bytes[..];
        let whole = rmpv::decode::read_value(&mut rest).is_ok() && rest.is_empty();
        let raw = Raw::from_msgpack(bytes);
        prop_assert_eq!(raw.is_ok(), whole);
        if let Ok(raw) = raw {
            let _ = raw.decode::<serde_json::Value>();
        }
    }

    #[test]
    fn serde_values_come_back_as_they_went(
        texts in proptest::collection::btree_map(".{0,20}", any::<i64>(), 0..20),
        numbers in proptest::collection::vec(any::<f64>().prop_filter("not a number", |n| !n.is_nan()), 0..20),
    ) {
        let value = (texts, numbers, Some("x"), ());
        let raw = Raw::encode(&value).unwrap();
        let read: (std::collections::BTreeMap<String, i64>, Vec<f64>, Option<&str>, ()) = raw.decode().unwrap();
        prop_assert_eq!(read, value);
        prop_assert!(rmpv::decode::read_value(&mut &raw.as_bytes()[..]).is_ok());
    }
}

#[test]
fn structs_are_maps_by_name_and_types_for_people_are_texts() {
    #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
    struct Job {
        to: std::net::IpAddr,
        kind: Kind,
    }
    #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
    enum Kind {
        Plain,
        Sized(u32),
    }
    let jobs = [
        Job { to: [127, 0, 0, 1].into(), kind: Kind::Plain },
        Job { to: [127, 0, 0, 1].into(), kind: Kind::Sized(3) },
    ];
    let raw = Raw::encode(&jobs).unwrap();
    let json = serde_json::json!([
        {"to": "127.0.0.1", "kind": "Plain"},
        {"to": "127.0.0.1", "kind": {"Sized": 3}},
    ]);
    assert_eq!(raw.decode::<serde_json::Value>().unwrap(), json);
    assert_eq!(raw.decode::<Vec<Job>>().unwrap(), jobs);
    assert_eq!(Raw::encode(&json).unwrap().decode::<Vec<Job>>().unwrap(), jobs);
}

#[test]
fn what_nests_ten_thousand_deep_is_passed_over_without_a_stack() {
    let mut bytes = vec![0x91; 100_000];
    bytes.push(0xc0);
    assert!(Raw::from_msgpack(bytes).is_ok());
}

#[test]
fn the_byte_that_stands_for_nothing_is_refused() {
    for bytes in [&[0xc1][..], &[0x91, 0xc1], &[0x81, 0xa1, b'a', 0xc1]] {
        assert!(Raw::from_msgpack(bytes.to_vec()).is_err(), "{bytes:?}");
    }
}
