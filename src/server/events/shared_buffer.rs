//! What the clients of one kind that listen to the same have yet to be sent: each event once, in the
//! form that goes out, however many listen.
//!
//! A shared buffer knows positions and events, and no connection: who has how much is what its [`Place`]s say.
//! While all clients have all events it holds no memory. By its place a client finds out what was dropped.

use crate::protocol::{event_frame, sse, websocket};
use corq_io::net::{Shared, Tally};
use std::collections::VecDeque;

/// Bytes of a shared buffer beyond which its oldest events go.
pub const BUFFER_BYTES_MAX: usize = 16 << 20;

/// Bytes of all shared buffers of a shard beyond which the oldest events of all go.
pub const BUFFERS_BYTES_MAX: usize = 64 << 20;

/// What an event takes in a shared buffer beside its bytes.
const EVENT_BYTES: usize = 128;

/// A shared buffer that has been emptied gives memory for more events than this back.
const KEPT_EVENTS_MAX: usize = 1024;

/// How events are framed for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As messages of an SSE response.
    Sse,
    /// As WebSocket messages.
    WebSocket,
    /// As MessagePack frames.
    Frames,
}

impl Form {
    /// Each of them, by its number.
    pub const ALL: [Self; 3] = [Self::Sse, Self::WebSocket, Self::Frames];

    /// An event as it goes out.
    pub fn frame(self, text: &[u8], tally: &Tally) -> Shared {
        let mut bytes = Vec::with_capacity(text.len() + 64);
        match self {
            Self::Sse => sse::message(&mut bytes, text),
            Self::WebSocket => {
                bytes.extend_from_slice(websocket::Head::of_text(text.len()).bytes());
                bytes.extend_from_slice(text);
            }
            Self::Frames => event_frame::write(&mut bytes, text),
        }
        tally.share(bytes)
    }
}

/// How far along a shared buffer a client is: the number of the next event it is to get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place(u64);

/// An event, and when it came among those of all shared buffers.
#[derive(Debug)]
struct Entry {
    stamp: u64,
    bytes: Shared,
}

/// Events that the subscribers of one topic share.
#[derive(Debug, Default)]
pub struct SharedBuffer {
    events: VecDeque<Entry>,
    /// The number of the first of them.
    first: u64,
    /// What they take.
    bytes: usize,
}

impl SharedBuffer {
    /// Behind the last event.
    pub fn end(&self) -> Place {
        Place(self.first + self.events.len() as u64)
    }

    /// Bytes that wait, and what keeping them takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest event came, if there is one.
    pub fn oldest(&self) -> Option<u64> {
        self.events.front().map(|entry| entry.stamp)
    }

    /// Takes in an event.
    pub fn push(&mut self, stamp: u64, event: Shared) {
        self.bytes += event.bytes().len() + EVENT_BYTES;
        self.events.push_back(Entry { stamp, bytes: event });
    }

    /// Forgets the oldest event. Those who have not got it have lost it.
    pub fn drop_oldest(&mut self) {
        let Some(entry) = self.events.pop_front() else { return };
        self.bytes -= entry.bytes.bytes().len() + EVENT_BYTES;
        self.first += 1;
    }

    /// Forgets all events: all clients have them.
    pub fn clear(&mut self) {
        self.first = self.end().0;
        self.bytes = 0;
        self.events.clear();
        self.events.shrink_to(KEPT_EVENTS_MAX);
    }

    /// Gives whole events from `place` on, about `bytes_max` bytes of them but one at least, and moves
    /// it. Returns how many events were lost before.
    pub fn read(&self, place: &mut Place, bytes_max: usize, mut give: impl FnMut(&Shared)) -> u64 {
        let lost = self.first.saturating_sub(place.0);
        let mut next = (place.0 + lost - self.first) as usize;
        let mut given = 0;
        while given < bytes_max
            && let Some(event) = self.events.get(next)
        {
            given += event.bytes.bytes().len();
            next += 1;
            give(&event.bytes);
        }
        *place = Place(self.first + next as u64);
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(buffer: &mut SharedBuffer, text: &str) {
        let stamp = buffer.end().0;
        buffer.push(stamp, Form::Sse.frame(text.as_bytes(), &Tally::default()));
    }

    fn read(buffer: &SharedBuffer, place: &mut Place, bytes_max: usize) -> (String, u64) {
        let mut out = Vec::new();
        let lost = buffer.read(place, bytes_max, |event| out.extend_from_slice(event.bytes()));
        (String::from_utf8(out).expect("the tests push text"), lost)
    }

    #[test]
    fn everybody_gets_every_event_once_at_his_own_pace() {
        let mut buffer = SharedBuffer::default();
        let (mut quick, mut slow) = (buffer.end(), buffer.end());
        push(&mut buffer, "1");
        assert_eq!(read(&buffer, &mut quick, 1000), ("data: 1\n\n".into(), 0));
        push(&mut buffer, "2");
        assert_eq!(read(&buffer, &mut quick, 1000), ("data: 2\n\n".into(), 0));
        assert_eq!(quick, buffer.end());
        assert_eq!(read(&buffer, &mut quick, 1000), (String::new(), 0));
        assert_eq!(read(&buffer, &mut slow, 1), ("data: 1\n\n".into(), 0), "one at least");
        assert_eq!(read(&buffer, &mut slow, 1), ("data: 2\n\n".into(), 0));
        buffer.clear();
        assert_eq!((quick, slow, buffer.bytes()), (buffer.end(), buffer.end(), 0));
        push(&mut buffer, "3");
        assert_eq!(read(&buffer, &mut slow, 1000), ("data: 3\n\n".into(), 0));
    }

    #[test]
    fn whoever_is_too_slow_loses_the_oldest_and_is_told_how_many() {
        let mut buffer = SharedBuffer::default();
        let (mut place, mut other) = (buffer.end(), buffer.end());
        for number in 0..1000_u64 {
            push(&mut buffer, &number.to_string());
            while buffer.bytes() > 1000 {
                buffer.drop_oldest();
            }
        }
        assert_eq!(buffer.oldest(), Some(buffer.first));
        let (texts, lost) = read(&buffer, &mut place, 1000);
        let expected = (lost..1000).map(|number| format!("data: {number}\n\n"));
        let expected = expected.collect::<Vec<_>>().concat();
        assert_eq!(texts, expected);
        assert!(lost > 900);
        while buffer.oldest().is_some() {
            buffer.drop_oldest();
        }
        assert_eq!(read(&buffer, &mut other, 1000), (String::new(), 1000), "all of them are gone");
        assert_eq!((other, buffer.bytes()), (buffer.end(), 0));
    }

    #[test]
    fn a_lane_that_nobody_waits_for_holds_no_memory() {
        let mut buffer = SharedBuffer::default();
        let tally = Tally::default();
        for stamp in 0..5000 {
            buffer.push(stamp, Form::WebSocket.frame(&[b'x'; 100], &tally));
        }
        buffer.clear();
        assert!(buffer.events.capacity() <= KEPT_EVENTS_MAX);
        assert_eq!((tally.bytes(), buffer.bytes()), (0, 0));
        for length in [1, 125, 126, 65_535, 65_536] {
            let event = Form::WebSocket.frame(&vec![b'x'; length], &tally);
            let head = websocket::Head::of_text(length);
            assert_eq!(event.bytes()[..head.bytes().len()], *head.bytes());
            assert_eq!(event.bytes().len(), head.bytes().len() + length);
        }
    }
}
