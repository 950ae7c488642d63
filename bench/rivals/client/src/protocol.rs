//! The driver's view of a server: requests go out as bytes, bytes come in as events.
//!
//! A protocol may not know sockets, clocks or how many jobs a run has; the driver may not know
//! what a request looks like. Every request is answered on its connection, in whatever order.

use crate::payload;

/// Output of a protocol: bytes for the server, and events for the driver.
#[derive(Default)]
pub struct Wire {
    pub out: Vec<u8>,
    pub events: Vec<Event>,
}

/// How a delivered job is named when it is acknowledged.
pub enum Handle {
    Number(u64),
    Bytes(Box<[u8]>),
    /// The connection knows (a transaction that holds the job).
    Connection,
}

/// A job that a server delivered.
pub struct Job {
    pub sequence: u32,
    pub sent_ns: u64,
    pub handle: Handle,
}

impl Job {
    /// Reads the payload of a delivery.
    pub fn new(bytes: &[u8], handle: Handle) -> Result<Self, String> {
        let (sequence, sent_ns) = payload::read(bytes)?;
        Ok(Self { sequence, sent_ns, handle })
    }
}

/// An event in the bytes that arrived.
pub enum Event {
    /// The connection is set up: its queue exists.
    Ready,
    /// Pushed jobs, so many, are stored as durably as the server is set to.
    Pushed(u32),
    Delivered(Job),
    /// All jobs of one take have been delivered.
    TakeDone,
    /// Acknowledgements, so many, have been accepted.
    Acked(u32),
    /// The taking phase is over for the server, too.
    Ended,
    /// The number of jobs in the queue, delivered or not.
    Left(u64),
}

/// The queue of a connection, and what is asked of it.
#[derive(Clone, Copy)]
pub struct Lane {
    pub queue: usize,
    /// Pushes wake workers that wait, where a server needs telling.
    pub waking: bool,
}

/// The client's side of a server's protocol, for one connection.
pub trait Protocol {
    /// The first bytes of a connection, if the client speaks first. Ends in `Event::Ready`.
    fn greet(&mut self, wire: &mut Wire);
    /// Pushes the payloads, `size` bytes each, as one request where the protocol can.
    fn push(&mut self, wire: &mut Wire, payloads: &[u8], size: usize) -> Result<(), String>;
    /// Called once before the takes of a phase: so many at a time, so many requests in flight, so
    /// many jobs in all.
    fn begin(&mut self, _wire: &mut Wire, _take: Take) {}
    /// Asks for `count` jobs; `wait` if there may be none yet.
    fn take(&mut self, wire: &mut Wire, count: u32, wait: bool);
    /// Acknowledges delivered jobs, as one request where the protocol can.
    fn ack(&mut self, wire: &mut Wire, jobs: &[Job]);
    /// Ends the takes of a phase; answered by `Event::Ended`.
    fn end(&mut self, wire: &mut Wire) {
        wire.events.push(Event::Ended);
    }
    /// Asks how many jobs the queue holds; answered by `Event::Left`.
    fn left(&mut self, wire: &mut Wire);
    /// Takes whole messages off the front of `bytes`; answers how many bytes they were.
    fn read(&mut self, bytes: &[u8], wire: &mut Wire) -> Result<usize, String>;
    /// Takes that may wait at the server at a time on one connection.
    fn waiting_takes_max(&self) -> u32 {
        1
    }
}

/// The takes of a phase, on one connection.
#[derive(Clone, Copy)]
pub struct Take {
    pub batch: u32,
    pub window: u32,
    pub total: u64,
}

/// The end of the line that begins at `from`, without and with its CR LF.
pub fn line(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    let rest = bytes.get(from..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some((from + end, from + end + 2))
}

/// Decimal digits, nothing else.
pub fn number(text: &[u8]) -> Result<u64, String> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| format!("no number: {}", shown(text)))
}

/// Bytes of a server as text for an error.
pub fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned()
}
