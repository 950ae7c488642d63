//! The stack trace of a failure. A ground type: it imports nothing.

/// The lines of a stack trace, as MessagePack strings one after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stack<'a> {
    /// How many.
    pub lines: u32,
    /// The strings, not counted in front.
    pub texts: &'a [u8],
}

impl Stack<'_> {
    /// The first `lines_max` lines.
    #[must_use]
    pub fn first(self, lines_max: u32) -> Self {
        if self.lines <= lines_max {
            return self;
        }
        let (mut lines, mut end) = (0, 0);
        while lines < lines_max {
            let Some(bytes) = text_len(&self.texts[end..]) else { break };
            (lines, end) = (lines + 1, end + bytes);
        }
        Self { lines, texts: &self.texts[..end] }
    }

    /// As many of the first lines as take no more than `bytes_max`.
    #[must_use]
    pub fn within(self, bytes_max: usize) -> Self {
        if self.texts.len() <= bytes_max {
            return self;
        }
        let (mut lines, mut end) = (0, 0);
        while let Some(bytes) =
            text_len(&self.texts[end..]).filter(|bytes| end + bytes <= bytes_max)
        {
            (lines, end) = (lines + 1, end + bytes);
        }
        Self { lines, texts: &self.texts[..end] }
    }
}

/// Length of the MessagePack string at the front, its head included; `None` if there is none.
pub(crate) fn text_len(bytes: &[u8]) -> Option<usize> {
    let (head, len) = match bytes {
        [head @ 0xa0..=0xbf, ..] => (1, usize::from(head & 0x1f)),
        [0xd9, len, ..] => (2, usize::from(*len)),
        [0xda, a, b, ..] => (3, usize::from(u16::from_be_bytes([*a, *b]))),
        [0xdb, a, b, c, d, ..] => (5, u32::from_be_bytes([*a, *b, *c, *d]) as usize),
        _ => return None,
    };
    (head + len <= bytes.len()).then_some(head + len)
}
