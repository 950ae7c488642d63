//! Events that the clients of a topic have yet to be sent: each event once, in the form that goes out, however many
//! listen.
//!
//! A shared buffer knows positions and events, and no connection: who has how much is what its [`Place`]s say.
//! While all clients have all events it holds no memory. By its place a client finds out what was dropped.

use super::dashboard_names;
use super::text::{EventText, Shown};
use crate::protocol::{event_frame, sse, websocket};
use corq_io::net::{Shared, Tally};
use std::collections::VecDeque;

/// Bytes of a shared buffer beyond which its oldest events go.
pub const BUFFER_BYTES_MAX: usize = 16 << 20;

/// Memory of an event in a shared buffer beside its bytes.
pub const EVENT_BYTES: usize = 128;

/// A shared buffer that has been emptied gives memory for more events than this back.
const KEPT_EVENTS_MAX: usize = 1024;

/// By what events reach a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Carrier {
    /// As messages of an SSE response.
    Sse,
    /// As WebSocket messages.
    WebSocket,
    /// As MessagePack frames.
    Frames,
}

/// How events are framed for a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Form {
    pub carrier: Carrier,
    /// By the names that dashboards have for them.
    pub named: bool,
    /// With their data.
    pub data: bool,
    /// With an id from which the client can go on when it comes back.
    pub ids: bool,
    /// Whether the client has asked for something of its own, and so knows of messages that are no events.
    pub chosen: bool,
}

impl Form {
    /// The form of those who have chosen nothing.
    pub const fn plain(carrier: Carrier) -> Self {
        Self { carrier, named: false, data: true, ids: false, chosen: false }
    }

    /// Appends an event as it goes out.
    pub fn write(self, out: &mut Vec<u8>, event: &EventText<'_>, id: &str) {
        let Self { carrier, named, data, ids, .. } = self;
        let of_sse = carrier == Carrier::Sse;
        let name = (of_sse && named).then(|| dashboard_names::name_of(event.layout.kind));
        // Over SSE both stand beside the text.
        let id = ids.then_some(id);
        let in_text = id.filter(|_| !of_sse);
        let shown = Shown { named: named && !of_sse, data, id: in_text };
        self.frame(out, id, name, |out| event.write(out, shown));
    }

    /// Appends that so many events of a choice were passed over.
    pub fn write_passed_over(self, out: &mut Vec<u8>, count: u64, at_ms: u64) {
        self.write_notice(out, "passed-over", Some(count), at_ms);
    }

    /// Appends what is no event: a notice of this name, with a number.
    pub fn write_notice(self, out: &mut Vec<u8>, name: &str, count: Option<u64>, at_ms: u64) {
        let of_sse = self.carrier == Carrier::Sse;
        let count = count.map_or_else(|| "null".to_owned(), |count| count.to_string());
        let long = format!("events:{name}");
        let text = if self.named && !of_sse {
            format!("{{\"event\":\"{long}\",\"ts\":{at_ms},\"data\":{{\"count\":{count}}}}}")
        } else {
            format!("{{\"eventType\":\"{name}\",\"timestamp\":{at_ms},\"count\":{count}}}")
        };
        let name = (of_sse && self.named).then_some(&*long);
        self.frame(out, None, name, |out| out.extend_from_slice(text.as_bytes()));
    }

    fn frame(
        self,
        out: &mut Vec<u8>,
        id: Option<&str>,
        name: Option<&str>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.carrier == Carrier::Sse {
            sse::fields(out, &[("id", id), ("event", name)]);
            sse::data(out, write);
            return;
        }
        let mut text = Vec::new();
        write(&mut text);
        if self.carrier == Carrier::WebSocket {
            websocket::message(out, &text);
        } else {
            event_frame::write(out, &text);
        }
    }

    /// An event as it goes out to many.
    pub fn share(self, event: &EventText<'_>, id: &str, tally: &Tally) -> Shared {
        let mut bytes = Vec::with_capacity(event.text.len() + 64);
        self.write(&mut bytes, event, id);
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
    /// Events that were passed over before it. A number and no part of the bytes, which others share.
    passed_over: u64,
    bytes: Shared,
}

/// Events that the subscribers of one topic share.
#[derive(Debug, Default)]
pub struct SharedBuffer {
    events: VecDeque<Entry>,
    /// The number of the first of them.
    first: u64,
    /// Memory of the events.
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

    /// How many events wait.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Takes in an event, before which so many were passed over.
    pub fn push(&mut self, stamp: u64, passed_over: u64, event: Shared) {
        self.bytes += event.bytes().len() + EVENT_BYTES;
        self.events.push_back(Entry { stamp, passed_over, bytes: event });
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

    /// How many events one at this place has lost.
    pub fn lost_at(&self, place: Place) -> u64 {
        self.first.saturating_sub(place.0)
    }

    /// Gives whole events from `place` on, about `bytes_max` bytes of them but one at least, and moves
    /// it. With each goes how many were passed over before it. Returns how many events were lost before.
    pub fn read(
        &self,
        place: &mut Place,
        bytes_max: usize,
        mut give: impl FnMut(u64, &Shared),
    ) -> u64 {
        let lost = self.lost_at(*place);
        let mut next = (place.0 + lost - self.first) as usize;
        let mut given = 0;
        while given < bytes_max
            && let Some(event) = self.events.get(next)
        {
            given += event.bytes.bytes().len();
            next += 1;
            give(event.passed_over, &event.bytes);
        }
        *place = Place(self.first + next as u64);
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::Layout;
    use super::*;

    fn push(buffer: &mut SharedBuffer, text: &str) {
        let stamp = buffer.end().0;
        buffer.push(stamp, 0, framed(Carrier::Sse, text.as_bytes(), &Tally::default()));
    }

    fn framed(carrier: Carrier, text: &[u8], tally: &Tally) -> Shared {
        let event = EventText { text, layout: Layout::default() };
        Form::plain(carrier).share(&event, "", tally)
    }

    fn read(buffer: &SharedBuffer, place: &mut Place, bytes_max: usize) -> (String, u64) {
        let mut out = Vec::new();
        let lost = buffer.read(place, bytes_max, |_, event| out.extend_from_slice(event.bytes()));
        (String::from_utf8(out).expect("the tests push text"), lost)
    }

    #[test]
    fn a_form_says_what_it_was_asked_for_and_where_its_carrier_has_a_place_for_it() {
        let text = br#"{"eventType":"pushed","queue":"q"}"#;
        let event = EventText { text, layout: Layout::default() };
        let written = |form: Form| {
            let mut out = Vec::new();
            form.write(&mut out, &event, "e-1");
            out
        };
        let sse = Form { named: true, ids: true, chosen: true, ..Form::plain(Carrier::Sse) };
        let expected =
            "id: e-1\nevent: job:pushed\ndata: {\"eventType\":\"pushed\",\"queue\":\"q\"}\n\n";
        assert_eq!(String::from_utf8(written(sse)).expect("text"), expected);
        let socket = Form { ids: true, ..Form::plain(Carrier::WebSocket) };
        assert!(written(socket).ends_with(br#","id":"e-1"}"#));
        let mut out = Vec::new();
        sse.write_notice(&mut out, "missed", None, 5);
        let notice = "event: events:missed\ndata: {\"eventType\":\"missed\",\"timestamp\":5,\"count\":null}\n\n";
        assert_eq!(String::from_utf8(out).expect("text"), notice);
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
            buffer.push(stamp, 0, framed(Carrier::WebSocket, &[b'x'; 100], &tally));
        }
        buffer.clear();
        assert!(buffer.events.capacity() <= KEPT_EVENTS_MAX);
        assert_eq!((tally.bytes(), buffer.bytes()), (0, 0));
        for length in [1, 125, 126, 65_535, 65_536] {
            let event = framed(Carrier::WebSocket, &vec![b'x'; length], &tally);
            let head = websocket::Head::of_text(length);
            assert_eq!(event.bytes()[..head.bytes().len()], *head.bytes());
            assert_eq!(event.bytes().len(), head.bytes().len() + length);
        }
    }
}
