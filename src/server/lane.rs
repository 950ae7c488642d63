//! What the clients of one kind that listen to the same have yet to be sent: each event once, in the
//! form that goes out, however many listen.
//!
//! A lane knows positions and bytes, and no connection: who has how much is what its [`Place`]s say.
//! While everybody has everything it holds no memory.

use crate::protocol::{event_frame, sse, websocket};
use std::collections::VecDeque;

/// Bytes of a lane beyond which its oldest events go, unless there is only one.
pub const LANE_BYTES_MAX: usize = 16 << 20;

/// The same where all lanes of a shard together have reached [`LANES_BYTES_MAX`].
pub const LANE_BYTES_MIN: usize = 64 << 10;

/// Bytes of all lanes of a shard beyond which each keeps no more than [`LANE_BYTES_MIN`].
pub const LANES_BYTES_MAX: usize = 64 << 20;

/// A lane that has been emptied gives memory beyond this back.
const KEPT_BYTES_MAX: usize = 64 << 10;

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

/// How far along a lane a client is: the number of the next event it is to get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place(u64);

/// See the module.
#[derive(Debug)]
pub struct Lane {
    form: Form,
    /// Framed events, one behind the other.
    bytes: VecDeque<u8>,
    /// For each of them, where it ends, counted from the beginning of the lane.
    ends: VecDeque<u64>,
    /// The number of the first event in `ends`, and where it begins.
    first: u64,
    first_at: u64,
}

impl Lane {
    /// A lane without events.
    pub fn new(form: Form) -> Self {
        let (bytes, ends) = (VecDeque::new(), VecDeque::new());
        Self { form, bytes, ends, first: 0, first_at: 0 }
    }

    /// Behind the last event.
    pub fn end(&self) -> Place {
        Place(self.first + self.ends.len() as u64)
    }

    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes in an event. The oldest go until there are at most `bytes_max`, or only this one.
    pub fn push(&mut self, text: &[u8], bytes_max: usize) {
        match self.form {
            Form::Sse => sse::message(&mut self.bytes, text),
            Form::WebSocket => {
                self.bytes.extend(websocket::Head::of_text(text.len()).bytes());
                self.bytes.extend(text);
            }
            Form::Frames => event_frame::write(&mut self.bytes, text),
        }
        self.ends.push_back(self.first_at + self.bytes.len() as u64);
        while self.bytes.len() > bytes_max && self.ends.len() > 1 {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some(end) = self.ends.pop_front() else { return };
        self.bytes.drain(..(end - self.first_at) as usize);
        self.first += 1;
        self.first_at = end;
    }

    /// Forgets all events: everybody has them.
    pub fn clear(&mut self) {
        self.first = self.end().0;
        self.first_at += self.bytes.len() as u64;
        self.bytes.clear();
        self.ends.clear();
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = VecDeque::new();
            self.ends = VecDeque::new();
        }
    }

    /// Appends whole events from `place` on, about `bytes_max` bytes of them but one at least, and moves
    /// it. Returns how many events were lost before.
    pub fn read(&self, place: &mut Place, bytes_max: usize, out: &mut Vec<u8>) -> u64 {
        let lost = self.first.saturating_sub(place.0);
        let from = place.0 + lost - self.first;
        let start = match from.checked_sub(1) {
            None => self.first_at,
            Some(before) => self.ends.get(before as usize).copied().unwrap_or(self.first_at),
        };
        let wanted = start + bytes_max as u64;
        let upto = self.ends.partition_point(|&end| end <= wanted).max(from as usize + 1);
        let upto = upto.min(self.ends.len());
        if upto > from as usize {
            let range =
                (start - self.first_at) as usize..(self.ends[upto - 1] - self.first_at) as usize;
            let (front, back) = self.bytes.as_slices();
            let split = front.len();
            out.extend_from_slice(&front[range.start.min(split)..range.end.min(split)]);
            out.extend_from_slice(
                &back[range.start.max(split) - split..range.end.max(split) - split],
            );
        }
        *place = Place(self.first + upto.max(from as usize) as u64);
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lane: &Lane, place: &mut Place, bytes_max: usize) -> (String, u64) {
        let mut out = Vec::new();
        let lost = lane.read(place, bytes_max, &mut out);
        (String::from_utf8(out).expect("the tests push text"), lost)
    }

    #[test]
    fn everybody_gets_every_event_once_at_his_own_pace() {
        let mut lane = Lane::new(Form::Sse);
        let (mut quick, mut slow) = (lane.end(), lane.end());
        lane.push(b"1", 1000);
        assert_eq!(read(&lane, &mut quick, 1000), ("data: 1\n\n".into(), 0));
        lane.push(b"2", 1000);
        assert_eq!(read(&lane, &mut quick, 1000), ("data: 2\n\n".into(), 0));
        assert_eq!(quick, lane.end());
        assert_eq!(read(&lane, &mut quick, 1000), (String::new(), 0));
        assert_eq!(read(&lane, &mut slow, 1), ("data: 1\n\n".into(), 0), "one at least");
        assert_eq!(read(&lane, &mut slow, 1), ("data: 2\n\n".into(), 0));
        lane.clear();
        assert_eq!((quick, slow), (lane.end(), lane.end()));
        lane.push(b"3", 1000);
        assert_eq!(read(&lane, &mut slow, 1000), ("data: 3\n\n".into(), 0));
    }

    #[test]
    fn whoever_is_too_slow_loses_the_oldest_and_is_told_how_many() {
        let mut lane = Lane::new(Form::Sse);
        let mut place = lane.end();
        for number in 0..100_000_u64 {
            lane.push(number.to_string().as_bytes(), 100);
            assert!(lane.len() <= 100);
        }
        let (texts, lost) = read(&lane, &mut place, 1000);
        let expected = (lost..100_000).map(|number| format!("data: {number}\n\n"));
        let expected = expected.collect::<Vec<_>>().concat();
        assert_eq!(texts, expected);
        assert!(lost > 99_000);
        lane.push(&[b'x'; 500], 100);
        assert_eq!(read(&lane, &mut place, 1), (format!("data: {}\n\n", "x".repeat(500)), 0));
    }

    #[test]
    fn a_lane_that_nobody_waits_for_holds_no_memory() {
        let mut lane = Lane::new(Form::WebSocket);
        lane.push(&vec![b'x'; 1 << 20], LANE_BYTES_MAX);
        lane.clear();
        assert!(lane.bytes.capacity() <= KEPT_BYTES_MAX);
        let mut place = lane.end();
        for length in [1, 125, 126, 65_535, 65_536] {
            lane.push(&vec![b'x'; length], LANE_BYTES_MAX);
            let mut out = Vec::new();
            lane.read(&mut place, usize::MAX >> 1, &mut out);
            let head = websocket::Head::of_text(length);
            assert_eq!(out[..head.bytes().len()], *head.bytes());
            assert_eq!(out.len(), head.bytes().len() + length);
        }
    }
}
