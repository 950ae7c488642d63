//! A field of an object of which only the beginning has come.

use super::mend::BOM;
use super::plain_length;

/// The text of this name at the top of the object that `beginning` begins with, if all of it has come. Only names without
/// escapes are found, a text is given as it stands, and what is no JSON is not noticed as such.
pub fn text_of<'t>(beginning: &'t [u8], name: &str) -> Option<&'t [u8]> {
    let value = found(beginning, name, |first| first == b'"')?;
    beginning.get(value + 1..string_end(beginning, value)? - 1)
}

/// As [`text_of`], for a value of any kind, as it stands.
pub fn value_of<'t>(beginning: &'t [u8], name: &str) -> Option<&'t [u8]> {
    let value = found(beginning, name, |_| true)?;
    beginning.get(value..value_end(beginning, value)?)
}

/// Where the first value of this name begins whose first byte `fits`.
fn found(beginning: &[u8], name: &str, fits: impl Fn(u8) -> bool) -> Option<usize> {
    // A byte order mark is mended where it may stand, so it hides nothing.
    let marks = beginning.chunks_exact(BOM.len()).take_while(|chunk| *chunk == BOM).count();
    let mut at = after_space(beginning, marks * BOM.len());
    if beginning.get(at) != Some(&b'{') {
        return None;
    }
    at += 1;
    loop {
        let key_end = string_end(beginning, after_space(beginning, at))?;
        let key = beginning.get(after_space(beginning, at) + 1..key_end - 1)?;
        let colon = after_space(beginning, key_end);
        if beginning.get(colon) != Some(&b':') {
            return None;
        }
        let value = after_space(beginning, colon + 1);
        if key == name.as_bytes() && fits(*beginning.get(value)?) {
            return Some(value);
        }
        let comma = value_end(beginning, value)?;
        if beginning.get(comma) != Some(&b',') {
            return None;
        }
        at = comma + 1;
    }
}

fn after_space(text: &[u8], at: usize) -> usize {
    let space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    at + text.get(at..).map_or(0, |rest| rest.iter().take_while(space).count())
}

/// Behind the string at `at`.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += plain_length(text.get(at..)?);
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Where the comma or the end of the object follows the value at `at`.
fn value_end(text: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match text.get(at)? {
            b'"' => {
                at = string_end(text, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b',' | b'}' | b']' if depth == 0 => return Some(at),
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_as_it_stands_if_all_of_it_has_come() {
        for (text, found) in [
            (&br#"{"a":[{"reqId":"in"}],"reqId":"r-1","b":2}"#[..], Some(&br#""r-1""#[..])),
            (br#"{"reqId":"a\"b"}"#, Some(br#""a\"b""#)),
            (br#"{"reqId": 7 ,"a"#, Some(b"7 ")),
            (br#"{"reqId":-7.5e3}"#, Some(b"-7.5e3")),
            (br#"{"reqId":[1,{"a":"]"}],"x"#, Some(br#"[1,{"a":"]"}]"#)),
            (br#"{"reqId":7"#, None),
            (br#"{"reqId":"cut"#, None),
            (br#"{"reqId":"#, None),
            (b"no JSON", None),
        ] {
            assert_eq!(value_of(text, "reqId"), found, "{}", text.escape_ascii());
        }
    }
}
