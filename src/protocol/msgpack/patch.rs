//! A MessagePack map with some entries changed, the others byte for byte as they were. Knows nothing
//! of what the entries mean.

use super::Reader;
use super::writer::Writer;

/// An entry of a map to be changed: its key, and its new value or, to be gone, none.
type Entry<'a> = (&'a str, Option<&'a str>);

/// `map` with these entries. `None` if it is no map.
///
/// The map is walked twice, once to count its entries and once to copy them, so that nothing is remembered of each: it may
/// have millions.
pub fn patched(map: &[u8], entries: &[Entry<'_>]) -> Option<Vec<u8>> {
    let mut kept = 0;
    each_kept(map, entries, |_| kept += 1)?;
    let given = entries.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    let more: usize = given.clone().map(|(name, value)| name.len() + value.len() + 10).sum();
    let mut bytes = Vec::with_capacity(map.len() + more + 10);
    let mut writer = Writer::new(&mut bytes);
    writer.map(kept + given.clone().count());
    each_kept(map, entries, |entry| writer.raw(entry))?;
    for (name, value) in given {
        writer.str(name);
        writer.str(value);
    }
    Some(bytes)
}

/// Calls `see` with the bytes of each entry of `map` that is not one of `entries`.
fn each_kept(map: &[u8], entries: &[Entry<'_>], mut see: impl FnMut(&[u8])) -> Option<()> {
    let mut reader = Reader::new(map);
    for _ in 0..reader.map().ok()?? {
        let before = reader.rest();
        let text = Reader::new(before).text_bytes().ok().flatten();
        let is_meant =
            text.is_some_and(|text| entries.iter().any(|(name, _)| name.as_bytes() == text));
        reader.pass().ok()?;
        reader.pass().ok()?;
        if !is_meant {
            see(&before[..before.len() - reader.rest().len()]);
        }
    }
    Some(())
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
