//! Text that is nearly JSON, as programs write that do not escape what they quote: for outcomes, which are taken in any
//! form. What is no text becomes U+FFFD, what is no number `null`.

/// A byte order mark.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Words that some languages write for what is no number. The longer come before those that they begin with.
const NO_NUMBERS: [&[u8]; 6] = [b"-Infinity", b"+Infinity", b"Infinity", b"-NaN", b"+NaN", b"NaN"];

/// Digits of a longer number are not read.
const NUMBER_BYTES_MAX: usize = 1 << 16;

/// A text with its mistakes mended as far as they are in texts and numbers; `None` if that changes nothing. What is mended is
/// not mended again.
#[cold]
pub fn mended(text: &[u8]) -> Option<Vec<u8>> {
    let mut body = text;
    while let Some(behind) = body.strip_prefix(BOM) {
        body = behind;
    }
    let body = String::from_utf8_lossy(body);
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body.as_bytes();
    while let Some(&first) = rest.first() {
        let taken = match first {
            b'"' => string(rest, &mut out),
            _ => outside(rest, &mut out),
        };
        rest = &rest[taken..];
    }
    (out != text).then_some(out)
}

/// Writes what is at the front outside of any string. Returns how many bytes that was.
fn outside(rest: &[u8], out: &mut Vec<u8>) -> usize {
    if let Some(word) = NO_NUMBERS.iter().find(|word| rest.starts_with(word)) {
        out.extend_from_slice(b"null");
        return word.len();
    }
    let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let is_number =
        rest[0].is_ascii_digit() || rest[0] == b'-' && rest.get(1).is_some_and(u8::is_ascii_digit);
    if !is_number {
        out.push(rest[0]);
        return 1;
    }
    let number = &rest[..rest.iter().take_while(is_part).count()];
    let value = std::str::from_utf8(number).ok().and_then(|text| text.parse::<f64>().ok());
    if value.is_some_and(|value| value.is_infinite() || number.len() > NUMBER_BYTES_MAX) {
        out.extend_from_slice(b"null");
    } else {
        out.extend_from_slice(number);
    }
    number.len()
}

/// Writes the string at the front. Returns how many bytes it took.
fn string(rest: &[u8], out: &mut Vec<u8>) -> usize {
    out.push(b'"');
    let mut at = 1;
    while let Some(&byte) = rest.get(at) {
        match byte {
            b'"' => {
                out.push(b'"');
                return at + 1;
            }
            b'\\' => at += escape(&rest[at..], out),
            0..=0x1f => {
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                at += 1;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    at
}

/// Writes the escape at the front, or the backslash that is none. Returns how many bytes that was.
fn escape(rest: &[u8], out: &mut Vec<u8>) -> usize {
    match (rest.get(1), unit(rest)) {
        (Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't'), _) => {
            out.extend_from_slice(&rest[..2]);
            2
        }
        (_, Some(0xd800..=0xdbff)) if matches!(unit(&rest[6..]), Some(0xdc00..=0xdfff)) => {
            out.extend_from_slice(&rest[..12]);
            12
        }
        (_, Some(0xd800..=0xdfff)) => {
            out.extend_from_slice(b"\\ufffd");
            6
        }
        (_, Some(_)) => {
            out.extend_from_slice(&rest[..6]);
            6
        }
        // The text ends there, and is refused for that.
        (None, None) => {
            out.push(b'\\');
            1
        }
        (Some(_), None) => {
            out.extend_from_slice(b"\\\\");
            1
        }
    }
}

/// The UTF-16 unit of the escape at the front.
fn unit(rest: &[u8]) -> Option<u16> {
    let digits = rest.strip_prefix(b"\\u")?.get(..4)?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::to_msgpack;
    use super::*;

    #[test]
    fn what_is_no_text_or_no_number_is_replaced() {
        for (given, meant) in [
            (&br#"{"result":"half \ud83d"}"#[..], r#"{"result":"half \ufffd"}"#),
            (br#"["\udc00\ud83d\ude00\ud83dx"]"#, r#"["\ufffd\ud83d\ude00\ufffdx"]"#),
            (b"{\"result\":NaN}", r#"{"result":null}"#),
            (b"[Infinity,-Infinity,-NaN,1e999,-1e999,12]", "[null,null,null,null,null,12]"),
            (b"\xef\xbb\xbf{}", "{}"),
            (b"\"a\xffb\"", "\"a\u{fffd}b\""),
            (b"\"a\nb\x00\"", r#""a\u000ab\u0000""#),
            (br#""C:\dir\u12""#, r#""C:\\dir\\u12""#),
        ] {
            assert!(to_msgpack(given, &mut Vec::new()).is_err(), "{meant}");
            let out = mended(given).unwrap();
            assert_eq!(String::from_utf8_lossy(&out), meant);
            to_msgpack(&out, &mut Vec::new()).unwrap();
            assert_eq!(mended(&out), None, "{meant}: once is enough");
        }
    }

    #[test]
    fn what_is_json_and_what_is_far_from_it_stay() {
        for text in
            [r#"{"NaN":"Infinity \u0000 \"","a":[-1.5e3,0]}"#, "{", "\"a", "nul", "\"\\", ""]
        {
            assert_eq!(mended(text.as_bytes()), None, "{text}");
        }
    }
}
