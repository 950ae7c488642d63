//! The reader against another library, value by value.

use corq::protocol::msgpack::{Malformed, Reader};
use corq::protocol::uuid_text::{format, parse, parse_exact};
use corq_shards::job::id::Chance;
use rmpv::Value;

use crate::pack;

/// A value of any type, nested at most `depth` deep.
fn any(chance: &mut Chance, depth: u32) -> Value {
    let length = [0, 1, 15, 16, 31, 32, 255, 256, 300][chance.draw() as usize % 9];
    match chance.draw() % if depth == 0 { 9 } else { 12 } {
        0 => Value::Nil,
        1 => (chance.draw() & 1 == 0).into(),
        2 => (chance.draw() >> (chance.draw() % 64)).into(),
        3 => ((chance.draw() as i64) >> (chance.draw() % 64)).into(),
        4 => Value::F32(f32::from_bits(chance.draw() as u32)),
        5 => Value::F64(f64::from_bits(chance.draw())),
        6 => ["x", "xä"][chance.draw() as usize % 2].repeat(length).into(),
        7 => Value::Binary(vec![0xc1; length]),
        8 => Value::Ext(chance.draw() as i8, vec![7; length]),
        9 | 10 => {
            let items = [0, 1, 3, 15, 16, 20][chance.draw() as usize % 6];
            Value::Array((0..items).map(|_| any(chance, depth - 1)).collect())
        }
        _ => {
            let entries = [0, 1, 3, 15, 16, 20][chance.draw() as usize % 6];
            let mut entry = || (any(chance, 0), any(chance, depth - 1));
            Value::Map((0..entries).map(|_| entry()).collect())
        }
    }
}

#[test]
fn a_value_ends_where_the_other_library_says() {
    let mut chance = Chance::new(11);
    for _ in 0..5_000 {
        let (first, second) = (pack(&any(&mut chance, 3)), pack(&any(&mut chance, 1)));
        let both = [&first[..], &second].concat();
        let mut reader = Reader::new(&both);
        assert_eq!(reader.skip(), Ok(&first[..]));
        assert_eq!(reader.skip(), Ok(&second[..]));
        assert_eq!(reader.skip(), Err(Malformed::Truncated));
        let mut reader = Reader::new(&both);
        assert_eq!((reader.pass(), reader.rest()), (Ok(()), &second[..]));
    }
}

#[test]
fn values_of_any_size_are_skipped() {
    for length in [65_535, 65_536, 70_000_usize] {
        for value in [
            Value::from("x".repeat(length)),
            Value::Binary(vec![0; length]),
            Value::Ext(3, vec![0; length]),
            Value::Array(vec![Value::Nil; length]),
            Value::Map(vec![(1.into(), Value::Nil); length]),
        ] {
            let bytes = pack(&value);
            assert_eq!(Reader::new(&bytes).skip(), Ok(&bytes[..]));
        }
    }
}

#[test]
fn the_text_of_an_id_round_trips() {
    let mut chance = Chance::new(5);
    for _ in 0..10_000 {
        let bits = u128::from(chance.draw()) << 64 | u128::from(chance.draw());
        let text = format(bits);
        let text = std::str::from_utf8(&text).unwrap();
        let digits = format!("{bits:032x}");
        let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]);
        assert_eq!(text, groups.join("-"));
        assert_eq!(parse_exact(text), Some(bits));
        assert_eq!(parse(&text.to_uppercase()), Some(bits));
        // Upper case is no id's text, unless it has no letters.
        if text.to_uppercase() != text {
            assert_eq!(parse_exact(&text.to_uppercase()), None);
        }
    }
    for bits in [0, u128::MAX] {
        assert_eq!(parse(std::str::from_utf8(&format(bits)).unwrap()), Some(bits));
    }
}

#[test]
fn one_wrong_character_makes_a_text_no_id() {
    let text = "0190163d-8694-739b-aea5-966c26f8a787";
    assert!(parse(text).is_some());
    for at in 0..36 {
        for wrong in ['g', '/', ':', '@', '`', 'G', ' ', '\0', '~'] {
            let mut changed = text.to_owned();
            changed.replace_range(at..=at, &wrong.to_string());
            assert_eq!(parse(&changed), None, "{changed}");
        }
    }
    let simple = text.replace('-', "");
    let forms =
        [format!("{{{text}}}"), format!("urn:uuid:{text}"), format!("{{{simple}}}"), simple];
    let others = ["", "0190163d-8694-739b-aea5-966c26f8a7870", &text[1..]];
    for other in others.into_iter().chain(forms.iter().map(String::as_str)) {
        assert_eq!((parse(other), parse_exact(other)), (None, None), "{other}");
    }
    // As many bytes, but not as many characters.
    assert_eq!(parse(&format!("ä{}", &text[2..])), None);
}

#[test]
fn a_broken_character_is_found_wherever_it_stands() {
    for length in 1..=80 {
        for at in 0..length {
            let mut text = vec![b'a'; length];
            text[at] = 0xff;
            let mut bytes = vec![0xd9, length as u8];
            bytes.extend_from_slice(&text);
            assert_eq!(Reader::new(&bytes).skip(), Err(Malformed::NotUtf8), "{at} of {length}");
            assert_eq!(Reader::new(&bytes).text(), Err(Malformed::NotUtf8));
            if length < 32 {
                bytes.splice(0..2, [0xa0 | length as u8]);
                assert_eq!(Reader::new(&bytes).skip(), Err(Malformed::NotUtf8));
            }
            // A whole character in its place is fine.
            let whole = pack(&format!("{}ü{}", "a".repeat(at), "a".repeat(length - at)).into());
            assert_eq!(Reader::new(&whole).skip(), Ok(&whole[..]));
        }
    }
}

#[test]
fn a_read_of_another_type_leaves_the_place() {
    let values = [Value::from(1), "a".into(), true.into(), 1.5.into(), Value::Array(vec![])];
    for value in values {
        let bytes = pack(&value);
        let mut reader = Reader::new(&bytes);
        let taken = [
            reader.map().unwrap().is_some(),
            reader.rest().len() < bytes.len() || reader.flag().unwrap().is_some(),
            reader.rest().len() < bytes.len() || reader.number().unwrap().is_some(),
            reader.rest().len() < bytes.len() || reader.text().unwrap().is_some(),
            reader.rest().len() < bytes.len() || reader.array().unwrap().is_some(),
        ];
        assert!(taken[4] && reader.rest().is_empty(), "{value}");
    }
}
