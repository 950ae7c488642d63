//! JSON and `MessagePack` in slices. The fear: where a slice ends changes what comes of it, or one of them is no slice.

use corq::protocol::json::{self, Fault, JsonError, Parse, Print, Unshown};
use corq_shards::job::id::Chance;
use rmpv::Value;

use crate::json::{any, any_packed};
use crate::pack;

/// Parses a text in slices of so many bytes. Returns how many those were, too.
fn parsed(text: &[u8], slice: usize) -> (Result<Vec<u8>, JsonError>, usize) {
    let mut out = b"before".to_vec();
    let mut parse = Parse::new(out.len(), usize::MAX);
    for slices in 1.. {
        match parse.go_on(text, &mut out, slice) {
            Ok(false) => {}
            Ok(true) => return (Ok(out.split_off(6)), slices),
            Err(error) => {
                assert_eq!(out, b"before");
                return (Err(error), slices);
            }
        }
    }
    unreachable!()
}

fn whole(text: &[u8]) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::new();
    json::to_msgpack(text, &mut out).map(|()| out)
}

fn printed(value: &[u8], slice: usize, most: usize) -> (Result<Vec<u8>, Unshown>, usize, usize) {
    let mut out = b"before".to_vec();
    let mut print = Print::value(out.len(), most);
    let mut largest = 0;
    for slices in 1.. {
        let before = out.len();
        match print.go_on(value, &mut out, slice) {
            Ok(done) => {
                largest = largest.max(out.len() - before);
                if done {
                    return (Ok(out.split_off(6)), slices, largest);
                }
            }
            Err(error) => {
                assert_eq!(out, b"before");
                return (Err(error), slices, largest);
            }
        }
    }
    unreachable!()
}

fn value(bytes: &[u8]) -> Value {
    let mut left = bytes;
    let value = rmpv::decode::read_value(&mut left).unwrap();
    assert!(left.is_empty());
    value
}

#[test]
fn a_text_means_the_same_wherever_its_slices_end() {
    let chance = &mut Chance::new(7);
    for round in 0..2000 {
        let text = any(chance, 4).to_string();
        let slice = 1 + chance.draw() as usize % 40;
        let (sliced, slices) = parsed(text.as_bytes(), slice);
        assert_eq!(
            value(&sliced.unwrap()),
            value(&whole(text.as_bytes()).unwrap()),
            "{round}: {text}"
        );
        assert!(slices > text.len() / 1000, "{slices}");
    }
}

#[test]
fn an_error_is_the_same_wherever_slices_end() {
    let chance = &mut Chance::new(8);
    for _ in 0..2000 {
        let mut text = any(chance, 4).to_string().into_bytes();
        let at = chance.draw() as usize % text.len();
        match chance.draw() % 3 {
            0 => text.truncate(at),
            1 => text[at] = chance.draw() as u8,
            _ => text.insert(at, b"{}[],:\"x\\"[chance.draw() as usize % 9]),
        }
        let slice = 1 + chance.draw() as usize % 40;
        let shown = String::from_utf8_lossy(&text);
        match (whole(&text), parsed(&text, slice).0) {
            (Ok(whole), Ok(sliced)) => assert_eq!(value(&whole), value(&sliced), "{shown}"),
            (whole, sliced) => assert_eq!(whole, sliced, "{shown}"),
        }
    }
}

#[test]
fn no_text_has_a_slice_that_is_larger_than_others() {
    const SLICE: usize = 64 << 10;
    let long = 6 << 20;
    let texts = [
        format!("\"{}\"", "x".repeat(long)),
        format!("\"{}\"", "\\u0001".repeat(long / 6)),
        format!("\"{}\"", "\u{1f980}".repeat(long / 4)),
        format!("[{}1]", "1,".repeat(long / 2)),
        format!("{{\"a\":{{\"b\":[{}1.5]}}}}", "1.5,".repeat(long / 4)),
        format!("{}1", " ".repeat(long)),
        format!("{{\"{}\":1}}", "k".repeat(long)),
        format!("[{}[]]", "[],".repeat(long / 3)),
        format!("{}1{}", "[".repeat(8), &format!("{}]", ",1".repeat(long / 16)).repeat(8)),
    ];
    for text in texts {
        let shown = text.chars().take(20).collect::<String>();
        let mut out = Vec::new();
        let mut parse = Parse::new(0, usize::MAX);
        let (mut slices, mut largest, mut before) = (1, 0, 0);
        while !parse.go_on(text.as_bytes(), &mut out, SLICE).unwrap() {
            slices += 1;
            largest = largest.max(parse.read_bytes() - before);
            before = parse.read_bytes();
        }
        // Looking whether it is UTF-8 takes a quarter as many.
        assert!(slices >= text.len() / SLICE, "{shown}: {slices}");
        assert!(largest <= 7 * SLICE, "{shown}: {largest}");
        assert_eq!(value(&out), value(&whole(text.as_bytes()).unwrap()), "{shown}");
    }
}

#[test]
fn a_number_of_more_digits_than_anyone_needs_is_refused() {
    let number = |digits: usize| whole(format!("0.{}", "1".repeat(digits)).as_bytes());
    assert!(number(65_536).is_ok());
    assert_eq!(number(65_537).map_err(|error| error.fault), Err(Fault::NumberRange));
}

#[test]
fn a_value_is_shown_the_same_wherever_its_slices_end() {
    let chance = &mut Chance::new(9);
    for round in 0..3000 {
        let bytes = pack(&any_packed(chance, 4));
        let slice = 1 + chance.draw() as usize % 60;
        let most =
            if chance.draw().is_multiple_of(4) { chance.draw() as usize % 200 } else { usize::MAX };
        let mut expected = Vec::new();
        let expected = json::from_msgpack_within(&bytes, &mut expected, most).map(|()| expected);
        let (text, ..) = printed(&bytes, slice, most);
        assert_eq!(text, expected, "{round}");
    }
}

#[test]
fn no_value_has_a_slice_that_is_larger_than_others() {
    const SLICE: usize = 64 << 10;
    let long = 6 << 20;
    let list = Value::Array(vec![Value::from(1); long]);
    let values = [
        Value::from("x".repeat(long)),
        Value::from("\u{1}".repeat(long)),
        Value::from("\u{1f980}".repeat(long / 4)),
        Value::Binary(vec![7; long]),
        Value::Ext(3, vec![7; long]),
        list.clone(),
        Value::Map(vec![(list, Value::from(1))]),
        Value::Map(vec![(Value::from("k".repeat(long)), Value::from(1))]),
        Value::Map(vec![(Value::Binary(vec![7; long]), Value::from(1))]),
    ];
    for (number, it) in values.iter().enumerate() {
        let bytes = pack(it);
        let mut expected = Vec::new();
        json::from_msgpack(&bytes, &mut expected).unwrap();
        let (text, slices, largest) = printed(&bytes, SLICE, usize::MAX);
        assert!(text.unwrap() == expected, "{number}");
        // A piece may be begun at the end of a slice.
        assert!(slices >= long / SLICE / 2, "{number}: {slices}");
        assert!(largest <= 6 * SLICE, "{number}: {largest}");
    }
    // Bytes that are no text, and a text that grows too long, are found in the middle of the work.
    let mut bytes = pack(&Value::from("x".repeat(long)));
    *bytes.last_mut().unwrap() = 0xff;
    assert!(matches!(printed(&bytes, SLICE, usize::MAX).0, Err(Unshown::Malformed(_))));
    let bytes = pack(&Value::from("\u{1}".repeat(long)));
    assert_eq!(printed(&bytes, SLICE, long * 3).0, Err(Unshown::TooLong));
    assert!(printed(&bytes, SLICE, long * 6 + 2).0.is_ok());
    assert_eq!(printed(&bytes, SLICE, long * 6 + 1).0, Err(Unshown::TooLong));
}

#[test]
fn fields_join_a_map_but_for_those_that_are_left_out() {
    let text = br#"{"a":1,"cmd":{"x":[1,2,3]},"b":"two","queue":3,"cmd":4,"c":{"cmd":5}}"#;
    for slice in [1, 2, 5, 1000] {
        let mut out = vec![0xdf, 0, 0, 0, 0, 0xa1, b'q', 7];
        let mut parse = Parse::fields((0, 1), out.len(), usize::MAX, &["cmd", "reqId", "queue"]);
        while !parse.go_on(text, &mut out, slice).unwrap() {}
        assert!(parse.is_object());
        let expected = serde_json::json!({"q": 7, "a": 1, "b": "two", "c": {"cmd": 5}});
        let mut shown = Vec::new();
        json::from_msgpack(&out, &mut shown).unwrap();
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&shown).unwrap(), expected);
        assert_eq!(value(&out).as_map().unwrap().len(), 4, "none stands twice");
    }
    let mut out = vec![0xdf, 0, 0, 0, 0];
    let mut parse = Parse::fields((0, 0), out.len(), usize::MAX, &["cmd", "reqId", "queue"]);
    assert_eq!(parse.go_on(b"[{\"cmd\":1}]", &mut out, usize::MAX), Ok(true));
    assert!(!parse.is_object());
}
