//! The record of a webhook: how it is written and read. What it does stands in [`crate::webhook`].

use crate::job::id::JobId;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::webhook::Triggers;
use std::fmt;

/// A webhook came. Payload: none.
#[derive(Clone, Copy)]
pub struct WebhookAdded<'a> {
    /// Its id.
    pub id: u128,
    /// When it came.
    pub created_at_ms: u64,
    /// Where to post.
    pub url: &'a str,
    /// What it asks for.
    pub events: Triggers,
    /// Only events of this queue.
    pub queue: Option<&'a str>,
    /// Signs the posts.
    pub secret: Option<&'a str>,
}

impl fmt::Debug for WebhookAdded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the secret, which no log line may show.
        write!(f, "WebhookAdded({:032x} to {})", self.id, self.url)
    }
}

/// Texts that are not there are written as empty ones: those that are given are not empty.
fn text(text: Option<&str>) -> &[u8] {
    text.unwrap_or_default().as_bytes()
}

impl<'a> WebhookAdded<'a> {
    fn texts(&self) -> [&[u8]; 3] {
        [self.url.as_bytes(), text(self.queue), text(self.secret)]
    }

    pub(crate) fn encoded_len(&self) -> usize {
        16 + 8 + 4 + self.texts().iter().map(|text| 2 + text.len()).sum::<usize>()
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.id(JobId(self.id));
        out.u64(self.created_at_ms);
        out.u32(self.events.bits());
        for text in self.texts() {
            out.short(text);
        }
    }

    pub(crate) fn decode(mut from: Reader<'a>) -> Result<Self, Malformed> {
        let text = |text: &'a str| (!text.is_empty()).then_some(text);
        Ok(Self {
            id: from.id()?.0,
            created_at_ms: from.u64()?,
            events: Triggers::of_bits(from.u32()?),
            url: text(from.text()?).ok_or(Malformed("a webhook has no URL"))?,
            queue: text(from.text()?),
            secret: text(from.text()?),
        })
    }
}
