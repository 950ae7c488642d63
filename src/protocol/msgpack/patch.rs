//! A MessagePack map with some entries changed, the others byte for byte as they were. Knows nothing
//! of what the entries mean.

use super::Reader;
use super::writer::Writer;

/// `map` with these entries, each a text or, to be gone, none. `None` if it is no map.
pub fn patched(map: &[u8], entries: &[(&str, Option<&str>)]) -> Option<Vec<u8>> {
    let mut reader = Reader::new(map);
    let count = reader.map().ok()??;
    let mut kept = Vec::new();
    for _ in 0..count {
        let before = reader.rest();
        let is_meant = {
            let mut key = Reader::new(before);
            let text = key.text_bytes().ok().flatten();
            text.is_some_and(|text| entries.iter().any(|(name, _)| name.as_bytes() == text))
        };
        reader.pass().ok()?;
        reader.pass().ok()?;
        if !is_meant {
            kept.push(&before[..before.len() - reader.rest().len()]);
        }
    }
    let given = entries.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    let mut bytes = Vec::with_capacity(map.len() + 64);
    let mut writer = Writer::new(&mut bytes);
    writer.map(kept.len() + given.clone().count());
    for entry in kept {
        writer.raw(entry);
    }
    for (name, value) in given {
        writer.str(name);
        writer.str(value);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_change_and_go_and_the_others_stay() {
        // {"a": 1, "b": {"a": "x"}, 5: nil}
        let map = b"\x83\xa1a\x01\xa1b\x81\xa1a\xa1x\x05\xc0";
        let with = patched(map, &[("a", Some("y")), ("c", Some("z"))]);
        assert_eq!(
            with.as_deref(),
            Some(&b"\x84\xa1b\x81\xa1a\xa1x\x05\xc0\xa1a\xa1y\xa1c\xa1z"[..])
        );
        assert_eq!(patched(map, &[("b", None)]).as_deref(), Some(&b"\x82\xa1a\x01\x05\xc0"[..]));
        assert_eq!(patched(b"\xa1a", &[("b", None)]), None);
        assert_eq!(patched(b"\x90", &[("b", None)]), None);
    }
}
