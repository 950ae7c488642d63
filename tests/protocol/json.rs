//! JSON against another library, and against the cases in which JSON readers are known to differ.

use corq::protocol::json::{Fault, JSON_DEPTH_MAX, JsonError, from_msgpack, to_msgpack};
use corq::protocol::msgpack::{Malformed, Reader};
use corq_shards::job::id::Chance;
use rmpv::Value;
use serde_json::Value as Json;

use crate::pack;

fn packed(text: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    to_msgpack(text.as_ref(), &mut out).unwrap();
    assert_eq!(Reader::new(&out).skip().map(<[u8]>::len), Ok(out.len()), "one well-formed value");
    out
}

fn value(text: &str) -> Value {
    rmpv::decode::read_value(&mut &packed(text)[..]).unwrap()
}

fn refused(text: impl AsRef<[u8]>) -> JsonError {
    let mut out = vec![7];
    let error = to_msgpack(text.as_ref(), &mut out).unwrap_err();
    assert_eq!(out, [7], "nothing is left of what was refused");
    error
}

pub(crate) fn printed(value: &Value) -> String {
    let mut out = Vec::new();
    from_msgpack(&pack(value), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// A text with everything that is written in more than one way.
fn any_text(chance: &mut Chance) -> String {
    let length = [0, 1, 7, 8, 9, 31, 32, 255, 256, 300][chance.draw() as usize % 10];
    let mut character = || match chance.draw() % 40 {
        0 => char::from(chance.draw() as u8 % 0x20),
        1 => '"',
        2 => '\\',
        3 => char::from_u32(chance.draw() as u32 % 0x11_0000).unwrap_or('\u{fffd}'),
        4 => '😀',
        5 => '\u{2028}',
        _ => 'x',
    };
    (0..length).map(|_| character()).collect()
}

/// A value that JSON can say, nested at most `depth` deep.
pub(crate) fn any(chance: &mut Chance, depth: u32) -> Json {
    match chance.draw() % if depth == 0 { 7 } else { 10 } {
        0 => Json::Null,
        1 => (chance.draw() & 1 == 0).into(),
        2 => (chance.draw() >> (chance.draw() % 64)).into(),
        3 => ((chance.draw() as i64) >> (chance.draw() % 64)).into(),
        4 => Json::from(f64::from_bits(chance.draw())),
        5 => Json::from(f64::from(chance.draw() as i32)),
        6 => any_text(chance).into(),
        7 | 8 => {
            let items = [0, 1, 15, 16, 20][chance.draw() as usize % 5];
            (0..items).map(|_| any(chance, depth - 1)).collect()
        }
        _ => {
            let entries = [0, 1, 15, 16, 20][chance.draw() as usize % 5];
            let mut entry = || (any_text(chance), any(chance, depth - 1));
            Json::Object((0..entries).map(|_| entry()).collect())
        }
    }
}

#[test]
fn every_document_comes_back_as_it_went() {
    let mut chance = Chance::new(4);
    for _ in 0..200 {
        let before = any(&mut chance, 3);
        let text = serde_json::to_string(&before).unwrap();
        for text in [text, serde_json::to_string_pretty(&before).unwrap()] {
            let bytes = packed(&text);
            let mut after = Vec::new();
            from_msgpack(&bytes, &mut after).unwrap();
            assert!(!after.contains(&b'\n'), "it is one line");
            let read: Json = serde_json::from_slice(&after).unwrap();
            assert!(read == before, "{text}\n{}", String::from_utf8_lossy(&after));
            assert!(packed(&after) == bytes, "and so does the other face");
        }
    }
}

#[test]
fn what_it_means_is_what_the_other_library_reads() {
    let mut chance = Chance::new(5);
    for _ in 0..150 {
        let before = any(&mut chance, 2);
        let bytes = packed(serde_json::to_string(&before).unwrap());
        let read = rmpv::decode::read_value(&mut &bytes[..]).unwrap();
        assert!(pack(&read) == bytes, "every head is as short as the other library's");
        assert!(as_json(&read) == before);
    }
}

fn as_json(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Boolean(value) => (*value).into(),
        Value::Integer(value) if value.is_u64() => value.as_u64().into(),
        Value::Integer(value) => value.as_i64().into(),
        Value::F64(value) => (*value).into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(as_json).collect(),
        Value::Map(entries) => {
            let entry =
                |(key, value): &(Value, Value)| (key.as_str().unwrap().to_owned(), as_json(value));
            Json::Object(entries.iter().map(entry).collect())
        }
        other => panic!("no JSON makes {other}"),
    }
}

#[test]
fn containers_of_every_size_and_depth_are_counted_right() {
    for count in [0, 15, 16, 65_535, 65_536] {
        let list = format!("[{}]", vec!["1"; count].join(","));
        assert_eq!(value(&list).as_array().unwrap().len(), count);
        let object = format!("{{{}}}", vec!["\"a\":1"; count].join(","));
        assert_eq!(value(&object).as_map().unwrap().len(), count, "repeated keys stay");
        for depth in [1, 8, 9, 20] {
            let (open, close) = ("[2,".repeat(depth), "]".repeat(depth));
            let mut inner = value(&format!("{open}{list}{close}"));
            for _ in 0..depth {
                inner = inner[1].clone();
            }
            assert_eq!(inner.as_array().unwrap().len(), count, "{depth} deep");
        }
    }
}

#[test]
fn integers_of_64_bits_are_exact() {
    let integers: [i128; 15] = [
        0,
        127,
        128,
        -1,
        -32,
        -33,
        -128,
        -129,
        1 << 32,
        (1 << 53) + 1,
        i128::from(i64::MAX),
        i128::from(i64::MIN),
        i128::from(u64::MAX),
        -(1 << 31),
        -(1 << 31) - 1,
    ];
    for integer in integers {
        let text = integer.to_string();
        let read = value(&text);
        let exact = read.as_i64().map(i128::from).or(read.as_u64().map(i128::from));
        assert_eq!(exact, Some(integer));
        assert_eq!(printed(&read), text);
    }
}

#[test]
fn other_numbers_are_the_nearest_float() {
    let cases = [
        ("18446744073709551616", "18446744073709552000.0"),
        ("-9223372036854775809", "-9223372036854775808.0"),
        ("99999999999999999999", "100000000000000000000.0"),
        ("1.0", "1.0"),
        ("-0", "-0.0"),
        ("0.0", "0.0"),
        ("-0.0", "-0.0"),
        ("1e3", "1000.0"),
        ("1E+3", "1000.0"),
        ("1e-3", "0.001"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("1.7976931348623157e308", "1.7976931348623157e308"),
        ("5e-324", "5e-324"),
        ("1e-400", "0.0"),
        ("-1e-99999999999", "-0.0"),
        ("0e99999999999", "0.0"),
        ("9007199254740993.0", "9007199254740992.0"),
    ];
    for (text, back) in cases {
        let exact: f64 = text.parse().unwrap();
        assert_eq!(value(text).as_f64().map(f64::to_bits), Some(exact.to_bits()), "{text}");
        let shown = printed(&value(text));
        let again: f64 = shown.parse().unwrap();
        assert_eq!(again.to_bits(), exact.to_bits(), "{text}");
        assert!(matches!(value(&shown), Value::F64(_)), "{shown} is still a float");
        let expected: f64 = back.parse().unwrap();
        assert_eq!(again.to_bits(), expected.to_bits(), "{text}");
    }
    assert_eq!(printed(&Value::F64(1.0)), "1.0");
    assert_eq!(printed(&Value::F64(1e21)), "1e+21");
    for text in ["1e309", "-1e400", "1e99999999999999999999"] {
        assert_eq!(refused(text).fault, Fault::NumberRange, "{text}");
    }
}

#[test]
fn the_grammar_is_that_of_the_standard() {
    let accepted = [
        " [] ",
        "\t{}\r\n",
        "[1 , 2]",
        "{ \"a\" : [ ] }",
        "\"\"",
        "null",
        "true",
        "-1",
        "[0]",
        "[[],{}]",
        "{\"\":0}",
        "{\"a\":1,\"a\":2}",
        "\"\u{7f}\"",
        "\"\u{2028}\"",
        "[-0.1e+1]",
        "\"\\/\"",
        "[\"\\u0000\"]",
    ];
    for text in accepted {
        serde_json::from_str::<Json>(text).unwrap();
        packed(text);
    }
    let refusals = [
        "",
        " ",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1,,2]",
        "[1 2]",
        "[1]]",
        "[1}",
        "{",
        "{]",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\"::1}",
        "{,}",
        "1 2",
        "[] []",
        "[]x",
        "{}}",
        "nul",
        "nulll",
        "True",
        "TRUE",
        "tru",
        "fals",
        "undefined",
        "NaN",
        "Infinity",
        "-Infinity",
        "-",
        "+1",
        "01",
        "-01",
        "00",
        "1.",
        ".1",
        "-.1",
        "1.e1",
        "1e",
        "1e+",
        "1E-",
        "0x1",
        "1_000",
        "1a",
        "--1",
        "1-",
        "1.2.3",
        "1e2e3",
        "0e",
        "\"",
        "\"a",
        "'a'",
        "\"\\",
        "\"\\\"",
        "\"\\x41\"",
        "\"\\'\"",
        "\"\\u\"",
        "\"\\u12\"",
        "\"\\u123g\"",
        "\"\\u+123\"",
        "\"\\U0041\"",
        "\"\u{0}\"",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"\u{1f}\"",
        "\u{feff}[]",
        "\u{a0}1",
        "\u{c}1",
        "\u{b}1",
        "// x\n1",
        "/* x */ 1",
        "1 // x",
        "#1",
        "[1]\u{0}",
        "\"a\"b",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800x\"",
        "\"\\ud800\\n\"",
        "\"\\ud800\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\\ud800\"",
        "\"\\ud83d\\ude0\"",
        "\"\\ud83d\\",
        "[\"\\u00A\"]",
        "{\"\\ud800\":1}",
    ];
    for text in refusals {
        assert!(serde_json::from_str::<Json>(text).is_err(), "{text} is refused by others");
        refused(text);
    }
}

#[test]
fn an_error_says_what_and_where() {
    let cases: [(&[u8], Fault, usize); 14] = [
        (b"", Fault::Truncated, 0),
        (b"  ", Fault::Truncated, 2),
        (b"[1,", Fault::Truncated, 3),
        (b"[1,]", Fault::Unexpected, 3),
        (b"{\"a\" 1}", Fault::Unexpected, 5),
        (b"[1] 2", Fault::Trailing, 4),
        (b"012", Fault::Unexpected, 1),
        (b"truf", Fault::Unexpected, 3),
        (b"[1e999]", Fault::NumberRange, 1),
        (b"\"ab\\q\"", Fault::Escape, 3),
        (b"\"abcdefghi\x01\"", Fault::Control, 10),
        (b"\"abc", Fault::Truncated, 4),
        (b"[\"\xff\"]", Fault::NotUtf8, 2),
        (b"\xef\xbb\xbf1", Fault::Unexpected, 0),
    ];
    for (text, fault, at) in cases {
        assert_eq!(refused(text), JsonError { at, fault }, "{}", String::from_utf8_lossy(text));
    }
    assert_eq!(refused("[1,]").to_string(), "unexpected character at byte 3");
}

#[test]
fn text_that_is_not_utf8_is_refused_wherever_it_stands() {
    let bad: [&[u8]; 7] =
        [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xe2\x82", b"\xc3"];
    for bytes in bad {
        for (front, back) in [("\"", "\""), ("{\"", "\":1}"), ("1", ""), ("[1", "]")] {
            let text = [front.as_bytes(), bytes, back.as_bytes()].concat();
            assert_eq!(refused(&text), JsonError { at: front.len(), fault: Fault::NotUtf8 });
        }
    }
}

#[test]
fn escapes_mean_what_they_say_at_every_place() {
    let cases = [
        (r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
        (r#""\u0041\u00e4\u20AC""#, "Aä€"),
        (r#""\ud83d\ude00""#, "😀"),
        (r#""\uD83D\uDE00x""#, "😀x"),
        (r#""\u0000""#, "\0"),
        (r#""\udbff\udfff""#, "\u{10ffff}"),
    ];
    for (text, meaning) in cases {
        assert_eq!(value(text).as_str(), Some(meaning));
        // Every place within the words that the reader looks at, and every width of the length.
        for before in (0..40).chain([255, 65_535]) {
            let text = format!("\"{}{}", "y".repeat(before), &text[1..]);
            let expected = format!("{}{meaning}", "y".repeat(before));
            assert_eq!(value(&text).as_str(), Some(&expected[..]));
            let object = format!("{{{text}:1}}");
            assert_eq!(value(&object).as_map().unwrap()[0].0.as_str(), Some(&expected[..]));
        }
    }
}

#[test]
fn what_needs_an_escape_gets_one() {
    let all: String = (0..0x80).map(char::from).chain("ä€😀\u{2028}".chars()).collect();
    let shown = printed(&Value::from(&all[..]));
    assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), all);
    assert_eq!(shown, serde_json::to_string(&all).unwrap(), "no more than needed");
}

#[test]
fn nesting_is_bounded_as_on_the_other_surfaces() {
    let deep = |open: &str, close: &str, depth: usize| {
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    };
    let max = JSON_DEPTH_MAX as usize;
    let bytes = |text: &str| {
        let mut out = Vec::new();
        to_msgpack(text.as_bytes(), &mut out).map(|()| out)
    };
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let fits = bytes(&deep(open, close, max)).unwrap();
        let mut shown = Vec::new();
        from_msgpack(&fits, &mut shown).unwrap();
        assert_eq!(shown, deep(open, close, max).as_bytes());
        assert_eq!(refused(deep(open, close, max + 1)).fault, Fault::Depth);
        assert_eq!(refused(open.repeat(1_000_000)).fault, Fault::Depth);
    }
    // A payload as deep as one may be, in the deepest envelope that a command has.
    let payload = deep("[", "]", 128);
    let push =
        bytes(&format!("{{\"cmd\":\"PUSHB\",\"queue\":\"q\",\"jobs\":[{{\"data\":{payload}}}]}}"));
    crate::accepted(&push.unwrap());
    let deeper = deep("[", "]", 129);
    let push = bytes(&format!("{{\"cmd\":\"PUSH\",\"queue\":\"q\",\"data\":{deeper}}}"));
    assert!(crate::refused(&push.unwrap()).starts_with("data"));
    let too_deep: Vec<u8> = std::iter::repeat_n(0x91, max + 1).chain([0xc0]).collect();
    assert_eq!(from_msgpack(&too_deep, &mut Vec::new()), Err(Malformed::Depth.into()));
}

/// A value of any kind, its keys too.
pub(crate) fn any_packed(chance: &mut Chance, depth: u32) -> Value {
    match chance.draw() % if depth == 0 { 10 } else { 14 } {
        0 => Value::Nil,
        1 => (chance.draw() & 1 == 0).into(),
        2 => (chance.draw() >> (chance.draw() % 64)).into(),
        3 => ((chance.draw() as i64) >> (chance.draw() % 64)).into(),
        4 => Value::F64(f64::from_bits(chance.draw())),
        5 => Value::F32(f32::from_bits(chance.draw() as u32)),
        6 => any_text(chance).into(),
        7 => Value::Binary(vec![1; chance.draw() as usize % 20]),
        8 => {
            let length = [1, 2, 4, 8, 12, 16, 5][chance.draw() as usize % 7];
            Value::Ext(chance.draw() as i8 % 3 - 1, vec![7; length])
        }
        9 => "\u{1}".repeat(chance.draw() as usize % 40).into(),
        10 | 11 => {
            let items = chance.draw() % 5;
            Value::Array((0..items).map(|_| any_packed(chance, depth - 1)).collect())
        }
        _ => {
            let entries = chance.draw() % 5;
            let mut any = || any_packed(chance, depth - 1);
            Value::Map((0..entries).map(|_| (any(), any())).collect())
        }
    }
}
