//! Texts of others on one line of a terminal or a log: what could begin a line, move the cursor, change colours, or show
//! what follows in another order is written as an escape sequence. Used for every line of the log and for all that
//! the command line prints, so that no place has to know which texts clients chose.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character does more than stand in its place: control characters (C0, DEL, C1), separators of lines and
/// paragraphs, marks, embeddings, overrides and isolates of the bidirectional algorithm, the byte order mark, and
/// the brackets of annotations.
pub fn acts(it: char) -> bool {
    it.is_control()
        || matches!(it, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(it, '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// A text as one line: `\n`, `\t`, `\r`, and `\u{202e}` for the others.
pub fn line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for it in text.chars() {
        if acts(it) {
            shown.extend(it.escape_default());
        } else {
            shown.push(it);
        }
    }
    Cow::Owned(shown)
}

/// Lines that stay lines, each as `line` has it.
pub fn lines(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|it| it != '\n' && acts(it)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for (place, one) in text.split('\n').enumerate() {
        if place > 0 {
            shown.push('\n');
        }
        shown.push_str(&line(one));
    }
    Cow::Owned(shown)
}

/// JSON that says the same, with `\u202e` for what acts beyond ASCII, which JSON lets stand raw. Everything of that
/// kind is within a string, where it may be written so. What is no UTF-8 stays as it is.
pub fn json(text: &[u8]) -> Cow<'_, [u8]> {
    let raw = |it: char| it >= '\u{7f}' && acts(it);
    let Ok(chars) = str::from_utf8(text) else { return Cow::Borrowed(text) };
    if !chars.chars().any(raw) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for it in chars.chars() {
        if raw(it) {
            // All of them have four digits. Writing to a text does not fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(it));
        } else {
            shown.push(it);
        }
    }
    Cow::Owned(shown.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_shown_and_all_else_stays() {
        assert_eq!(line("a\x1b[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(line("a\u{9b}31m\u{7f}\u{85}"), "a\\u{9b}31m\\u{7f}\\u{85}");
        assert_eq!(
            line("\u{202e}a\u{2066}\u{2028}\u{61c}"),
            "\\u{202e}a\\u{2066}\\u{2028}\\u{61c}"
        );
        // Letters of any script, joined emoji and backslashes are what they are.
        for plain in ["plain ü", "שלום", "👩\u{200d}💻", r"C:\new"] {
            assert!(matches!(line(plain), Cow::Borrowed(it) if it == plain), "{plain}");
        }
        assert_eq!(lines("a\u{9b}\nb\r\n"), "a\\u{9b}\nb\\r\n");
    }

    #[test]
    fn json_says_the_same() {
        let text = "{\"a\":\"\u{202e}b\u{9b}\u{7f}\\n\"}\n".as_bytes();
        let shown = json(text);
        assert_eq!(
            &*shown,
            br#"{"a":"\u202eb\u009b\u007f\n"}
"#
        );
        let read = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).ok();
        assert_eq!(read(&shown), read(text));
        assert!(matches!(json(b"[\"\\u001b\"]\n"), Cow::Borrowed(_)));
        assert!(matches!(json(b"\xff\xc2\x9b"), Cow::Borrowed(_)));
    }
}
