//! The search for the `reqId` of a long frame that is refused.

use crate::protocol::decode::REQ_ID_BYTES_MAX;
use crate::protocol::msgpack::{Malformed, Reader};
use std::ops::Range;

/// A search for the `reqId` of a long frame that is refused, a slice at a time: what [`find_req_id`] finds at once.
///
/// [`find_req_id`]: crate::protocol::decode::find_req_id
#[derive(Clone, Debug, Default)]
pub struct ReqIdSearch {
    at: usize,
    /// Entries to come; `None` before the first look.
    entries: Option<usize>,
    /// Values to be stepped over.
    left: usize,
    found: Range<usize>,
}

impl ReqIdSearch {
    /// Goes on by about `steps` values, which it counts down. True once it is at its end; an error is one.
    pub fn go_on(&mut self, frame: &[u8], steps: &mut usize) -> bool {
        self.look(frame, steps).unwrap_or(true)
    }

    /// The `reqId` that was found, in the same frame.
    pub fn req_id<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(self.found.clone()).filter(|value| !value.is_empty())
    }

    fn look(&mut self, frame: &[u8], steps: &mut usize) -> Result<bool, Malformed> {
        let mut reader = Reader::new(frame.get(self.at..).unwrap_or_default());
        let mut entries = match self.entries {
            Some(entries) => entries,
            None => reader.map_begun()?.unwrap_or(0),
        };
        while *steps > 0 {
            reader.pass_some(&mut self.left, steps)?;
            if self.left > 0 {
                break;
            }
            let Some(fewer) = entries.checked_sub(1) else { return Ok(true) };
            entries = fewer;
            *steps = steps.saturating_sub(1);
            // A key that is no text is passed over with its value.
            self.left = match reader.text_bytes()? {
                Some(b"reqId") if reader.absent()? => 0,
                Some(b"reqId") => {
                    let start = frame.len() - reader.rest().len();
                    let value = reader.skip_within(REQ_ID_BYTES_MAX)?.unwrap_or_default();
                    self.found = start..start + value.len();
                    return Ok(true);
                }
                Some(_) => 1,
                None => 2,
            };
        }
        self.entries = Some(entries);
        self.at = frame.len() - reader.rest().len();
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::decode::find_req_id;
    use crate::protocol::json::packed;

    #[test]
    fn a_search_in_slices_finds_the_request_id_that_a_search_at_once_finds() {
        for text in [
            r#"{"cmd":"PUSHB","jobs":[[1,{"reqId":3}],2],"reqId":"x"}"#,
            r#"{"reqId":null,"a":[],"reqId":{"b":[1,2]},"reqId":2}"#,
            r#"{"cmd":"PUSHB","jobs":[]}"#,
            "[1,2]",
        ] {
            let frame = packed(text);
            for cut in 0..=frame.len() {
                let frame = &frame[..cut];
                let mut search = ReqIdSearch::default();
                while !search.go_on(frame, &mut 1) {}
                let found = find_req_id(frame.into());
                assert_eq!(search.req_id(frame), found, "{text} cut at {cut}");
            }
        }
        let key = &b"\x82\x92\x01\xa5reqId\x05\xa5reqId\x06"[..];
        assert_eq!(find_req_id(key.into()), Some(&b"\x06"[..]));
        let mut search = ReqIdSearch::default();
        while !search.go_on(key, &mut 1) {}
        assert_eq!(search.req_id(key), find_req_id(key.into()));
    }
}
