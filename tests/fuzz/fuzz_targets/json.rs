//! JSON and `MessagePack` into each other, any bytes, compared with another JSON library.
//!
//! Promises: neither way panics; a text is accepted exactly when the other library accepts it, unless
//! it nests too deep, and comes back as the same value; what is shown of well-formed bytes is JSON, of at most eight times
//! their length, and is given up within a smaller bound.
#![no_main]

use corq::protocol::json::{
    EXPANSION_MAX, Fault, Unshown, from_msgpack, from_msgpack_within, from_record, from_reply,
    to_msgpack,
};
use corq::protocol::msgpack::Reader;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    text(bytes);
    packed(bytes);
});

fn text(bytes: &[u8]) {
    let mut value = Vec::new();
    match to_msgpack(bytes, &mut value) {
        Ok(()) => {
            let judge: Value = serde_json::from_slice(bytes).expect("the other library reads it");
            let mut shown = Vec::new();
            from_msgpack(&value, &mut shown).expect("what was made of a text is well-formed");
            let back: Value = serde_json::from_slice(&shown).expect("what is shown is JSON");
            assert_eq!(back, judge);
            let mut again = Vec::new();
            to_msgpack(&shown, &mut again).expect("and is read again");
            assert_eq!(again, value);
        }
        Err(error) if error.fault == Fault::Depth => {}
        Err(_) => assert!(serde_json::from_slice::<Value>(bytes).is_err()),
    }
}

fn packed(bytes: &[u8]) {
    let whole = Reader::new(bytes).skip() == Ok(bytes);
    for print in [from_msgpack, from_record, from_reply] {
        let mut shown = Vec::new();
        match print(bytes, &mut shown) {
            Ok(()) => {
                serde_json::from_slice::<Value>(&shown).expect("what is shown is JSON");
                assert!(shown.len() <= bytes.len() * EXPANSION_MAX);
                let less = from_msgpack_within(bytes, &mut Vec::new(), shown.len() / 2);
                assert!(less == Ok(()) || less == Err(Unshown::TooLong));
                to_msgpack(&shown, &mut Vec::new()).expect("and is read again");
            }
            Err(_) => assert!(!whole && shown.is_empty(), "only what is malformed is refused"),
        }
    }
}
