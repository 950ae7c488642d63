//! The trace that a job belongs to, as its client says (W3C Trace Context): kept with the job and given back to workers,
//! events and webhooks. What is done with it is not known here.

/// Bytes that a `tracestate` may have.
pub const STATE_BYTES_MAX: usize = 512;

/// Members that one may have.
pub const MEMBERS_MAX: usize = 32;

/// Bytes of the key of a member: a tenant of 241, an `@`, a system of 14.
const KEY_BYTES_MAX: usize = 256;

/// Bytes of its value.
const VALUE_BYTES_MAX: usize = 256;

/// The flag by which a client says that it records the trace.
const SAMPLED: u8 = 1;

/// The flags that are kept of a version that is newer than the one known here: sampled, and that the trace id is random.
const FLAGS_OF_NEWER: u8 = 3;

/// A `traceparent`: which trace, which span in it, and its flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceParent {
    /// The trace; not 0.
    pub trace_id: [u8; 16],
    /// The span that the job was pushed in; not 0.
    pub span_id: [u8; 8],
    /// Bit 0: sampled.
    pub flags: u8,
}

impl TraceParent {
    /// Length of its text.
    pub const CHARS: usize = 55;

    /// Reads `version-trace id-span id-flags` in lower-case hexadecimal digits. Of a version beyond 00, more may follow,
    /// which is left out.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (head, rest) = bytes.split_at_checked(Self::CHARS)?;
        if [2, 35, 52].iter().any(|&at| head[at] != b'-') {
            return None;
        }
        let [version] = from_hex(&head[..2])?;
        let is_known = version == 0 && rest.is_empty();
        let is_newer = version != 0 && version != 0xff && matches!(rest.first(), None | Some(b'-'));
        if !is_known && !is_newer {
            return None;
        }
        let (trace_id, span_id) = (from_hex(&head[3..35])?, from_hex(&head[36..52])?);
        let [flags] = from_hex(&head[53..])?;
        let flags = if is_known { flags } else { flags & FLAGS_OF_NEWER };
        (trace_id != [0; 16] && span_id != [0; 8]).then_some(Self { trace_id, span_id, flags })
    }

    /// The `traceparent` text, as version 00.
    pub fn text(&self) -> [u8; Self::CHARS] {
        let mut text = [b'-'; Self::CHARS];
        to_hex(&[0], &mut text[..2]);
        to_hex(&self.trace_id, &mut text[3..35]);
        to_hex(&self.span_id, &mut text[36..52]);
        to_hex(&[self.flags], &mut text[53..]);
        text
    }

    /// Whether the client records the trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

fn from_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn to_hex(bytes: &[u8], text: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(text.as_chunks_mut::<2>().0) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
}

/// Whether a text is a `tracestate`: at most 32 members `key=value` between commas.
pub fn is_trace_state(text: &str) -> bool {
    let members = || text.split(',').map(|member| member.trim_matches([' ', '\t']));
    text.len() <= STATE_BYTES_MAX
        && members().filter(|member| !member.is_empty()).count() <= MEMBERS_MAX
        && members().all(|member| member.is_empty() || is_member(member))
}

fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let of_key =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(&byte);
    let of_value = |byte: u8| matches!(byte, b' '..=b'~') && !b",=".contains(&byte);
    key.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && key.len() <= KEY_BYTES_MAX
        && key.bytes().all(of_key)
        && (1..=VALUE_BYTES_MAX).contains(&value.len())
        && value.bytes().all(of_value)
}

/// The trace of a job as it is pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewTrace<'a> {
    /// Where the job was pushed.
    pub parent: TraceParent,
    /// The `tracestate` of vendors, or empty.
    pub state: &'a str,
}

/// A [`NewTrace`] as a job holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// Where the job was pushed.
    pub parent: TraceParent,
    /// The `tracestate` of vendors, or empty.
    pub state: Box<str>,
}

impl Trace {
    pub(crate) fn of(given: &NewTrace<'_>) -> Self {
        Self { parent: given.parent, state: given.state.into() }
    }

    /// As it would be pushed.
    pub fn given(&self) -> NewTrace<'_> {
        NewTrace { parent: self.parent, state: &self.state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_as_it_is_written() {
        let parent = TraceParent::parse(TEXT).map(|parent| (parent.is_sampled(), parent.text()));
        assert_eq!(parent, Some((true, TEXT.as_bytes().try_into().unwrap_or([0; 55]))));
        let not = TraceParent::parse(&TEXT.replace("-01", "-02"));
        assert_eq!(not.map(|parent| (parent.is_sampled(), parent.flags)), Some((false, 2)));
    }

    #[test]
    fn a_newer_version_is_read_as_far_as_it_is_known() {
        for newer in ["cc-", "01-"] {
            let text = TEXT.replacen("00-", newer, 1).replace("-01", "-ff-what-follows");
            let parent = TraceParent::parse(&text).map(|parent| parent.text());
            let expected = TEXT.replace("-01", "-03");
            assert_eq!(parent.as_ref().map(|text| &text[..]), Some(expected.as_bytes()));
        }
    }

    #[test]
    fn what_is_no_traceparent_is_not_read() {
        let wrong = [
            String::new(),
            TEXT[1..].into(),
            format!("{TEXT}-00"),
            format!("{TEXT} "),
            TEXT.to_uppercase(),
            TEXT.replace('-', "_"),
            TEXT.replacen("00-", "ff-", 1),
            TEXT.replacen("00-", "01-", 1) + "x",
            TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            TEXT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            TEXT.replace("4bf9", "4bg9"),
            TEXT.replace("4bf9", "é9"),
            "é".repeat(40),
        ];
        for text in wrong {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn a_tracestate_is_a_list_of_keys_and_values() {
        let many = |count: usize| vec!["a=1"; count].join(",");
        for right in
            ["", "a=1", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "1a@b_-*/=!~ x", "a=1, ,b=2"]
        {
            assert!(is_trace_state(right), "{right}");
        }
        assert!(is_trace_state(&many(32)) && !is_trace_state(&many(33)));
        let long = |bytes: usize| format!("a={}", "x".repeat(bytes));
        assert!(is_trace_state(&long(256)) && !is_trace_state(&long(257)));
        let both = |bytes: usize| format!("{},{}", long(256), long(bytes));
        assert!(is_trace_state(&both(251)) && !is_trace_state(&both(252)), "512 bytes in all");
        for wrong in
            ["a", "=1", "a=", "A=1", "_a=1", "a=b=c", "a=1\r\nx: y", "a=\u{7f}", "a=é", "é=1"]
        {
            assert!(!is_trace_state(wrong), "{wrong}");
        }
    }
}
