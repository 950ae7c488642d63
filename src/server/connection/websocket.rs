//! WebSocket connections: messages of a client become frames as they come over TCP, and replies to them
//! become messages.

use super::incoming::Incoming;
use super::long_requests::Judged;
use super::protocol::Protocol;
use super::session::{IN_FLIGHT_MAX, UNAUTHENTICATED_FRAME_BYTES_MAX};
use super::transcode::{LONG_REPLY_BYTES, SLICE_BYTES};
use crate::api::error::{Error, ErrorKind};
use crate::api::limits::PAYLOAD_BYTES_MAX;
use crate::protocol::decode::beginning::{BEGINNING_BYTES_MAX, Face, LONG_BYTES, judge, too_long};
use crate::protocol::decode::find_req_id;
use crate::protocol::decode::repair::outcome_in;
use crate::protocol::frame::{PREFIX_BYTES, Split, split};
use crate::protocol::json::{self, Fault, JsonError, Parse, TEXT_BYTES_MAX, Unshown};
use crate::protocol::msgpack::writer::MapWriter;
use crate::protocol::reply;
use crate::protocol::websocket::{self, Begun, Closing, Frame, Head, Kind, MESSAGE_BYTES_MAX};
use crate::server::overload::send_memory::is_tight;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};

/// Memory that is kept for the next message.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A longer reply has more than one payload.
const LIST_BYTES_MIN: usize = PAYLOAD_BYTES_MAX as usize + (1 << 20);

/// Where messages are turned from one form to the other.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    text: Vec<u8>,
    value: Vec<u8>,
    reply: Vec<u8>,
    /// Replies, before they are turned into messages.
    pub(crate) replies: Vec<u8>,
}

impl ShardServer {
    /// Handles whole frames at the front of `bytes`; returns how many bytes they took.
    pub(crate) fn handle_websocket(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        bytes: &[u8],
    ) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let Some(session) = self.sessions.get(conn) else { return bytes.len() };
            let (trusted, key) = (session.trusted, session.stream.unwrap_or(u32::MAX));
            if self.subscribers.is_opening(key) {
                session.blocked = true;
                return used;
            }
            let Some(subscriber) = self.subscribers.subscriber(key) else { return bytes.len() };
            let open = subscriber.incoming.as_ref().map(|incoming| incoming.bytes.len());
            if let Some(begun) = subscriber.incoming.as_ref().and_then(|incoming| incoming.begun) {
                // The last bytes of a frame wait as a whole frame would.
                if begun.left <= bytes.len() - used && self.is_blocked(conns, conn, false) {
                    return used;
                }
                used += self.take_on(conns, conn, key, &bytes[used..]);
                continue;
            }
            if !trusted && Self::is_too_much(&bytes[used..], open) {
                self.close_websocket(conns, conn, Some(Closing::STRANGER));
                return bytes.len();
            }
            match websocket::split(&bytes[used..], open) {
                Ok(Some((frame, _))) if self.is_blocked(conns, conn, frame.is_control()) => {
                    return used;
                }
                Ok(Some((frame, length))) => {
                    if !self.admit(conn, length, bytes.len() - used) {
                        return used;
                    }
                    used += length;
                    self.take_frame(conns, conn, key, &frame);
                }
                Ok(None) => match self.judge_message(conns, conn, &bytes[used..], open) {
                    Judged::NotYet => break,
                    Judged::Refused => return bytes.len(),
                    Judged::MayBe => used += self.begin_long_frame(key, &bytes[used..]),
                },
                Err(closing) => {
                    self.close_websocket(conns, conn, Some(closing));
                    return bytes.len();
                }
            }
        }
        if let Some(session) = self.sessions.get(conn) {
            session.blocked = false;
        }
        used
    }

    /// Whether the next frame of a connection has to wait. A ping is answered whatever its commands wait for, but not
    /// before the answers to earlier ones have been read: an answer to a ping is output as any other.
    fn is_blocked(&mut self, conns: &Connections, conn: ConnId, is_control: bool) -> bool {
        let busy = self.must_stall();
        let Some(session) = self.sessions.get(conn) else { return false };
        let choked = session.note_unread(conns.untaken(conn), is_tight(conns, self.client_memory));
        // Hold any message back while a list is under way: the command is known only once the message is taken.
        let waits = session.in_flight >= IN_FLIGHT_MAX || session.lists > 0 || busy;
        // Messages behind one that is still being read keep their place.
        let waits = waits || session.transcoding.goes_on();
        session.blocked = choked || waits && !is_control;
        session.blocked
    }

    fn take_frame(&mut self, conns: &mut Connections, conn: ConnId, key: u32, frame: &Frame<'_>) {
        match frame.kind {
            Kind::Ping => {
                let mut payload = Vec::new();
                frame.unmask(&mut payload);
                if let Some(out) = conns.output(conn) {
                    websocket::pong(out, &payload);
                    self.touch(conn);
                }
            }
            // That something came is noted for any bytes.
            Kind::Pong => {}
            Kind::Close => {
                let mut payload = Vec::new();
                frame.unmask(&mut payload);
                self.close_websocket(conns, conn, websocket::answer_to_close(&payload));
            }
            Kind::First { text } if frame.last => {
                let mut bytes = std::mem::take(&mut self.scratch.text);
                bytes.clear();
                frame.unmask(&mut bytes);
                let mut bytes = self.take_message(conns, conn, text, bytes);
                bytes.shrink_to(KEPT_BYTES_MAX);
                self.scratch.text = bytes;
            }
            Kind::First { text } => {
                let mut bytes = Vec::new();
                frame.unmask(&mut bytes);
                let since_ms = self.http.alarms.steady_ms(self.now_ms);
                let Some(subscriber) = self.subscribers.subscriber(key) else { return };
                let begun = None;
                subscriber.incoming = Some(Box::new(Incoming { text, since_ms, bytes, begun }));
            }
            Kind::Next => {
                let Some(subscriber) = self.subscribers.subscriber(key) else { return };
                let Some(incoming) = &mut subscriber.incoming else { return };
                frame.unmask(&mut incoming.bytes);
                if frame.last
                    && let Some(incoming) = subscriber.incoming.take()
                {
                    self.take_message(conns, conn, incoming.text, incoming.bytes);
                }
            }
        }
    }

    /// The head of a long frame of a message is there: its payload is taken as it comes, so that it is no work when its
    /// end does. Returns the bytes of the head.
    fn begin_long_frame(&mut self, key: u32, bytes: &[u8]) -> usize {
        let since_ms = self.http.alarms.steady_ms(self.now_ms);
        let Some((begun, head_bytes)) = Begun::of(bytes) else { return bytes.len() };
        let Some(subscriber) = self.subscribers.subscriber(key) else { return bytes.len() };
        if let Some(text) = begun.first {
            let bytes = Vec::new();
            subscriber.incoming = Some(Box::new(Incoming { text, since_ms, bytes, begun: None }));
        }
        if let Some(incoming) = &mut subscriber.incoming {
            incoming.begun = Some(begun);
        }
        head_bytes
    }

    /// More of such a frame is there. Returns how many bytes of it.
    fn take_on(&mut self, conns: &mut Connections, conn: ConnId, key: u32, bytes: &[u8]) -> usize {
        let Some(subscriber) = self.subscribers.subscriber(key) else { return bytes.len() };
        let Some(incoming) = &mut subscriber.incoming else { return bytes.len() };
        let Some(begun) = &mut incoming.begun else { return 0 };
        let taken = begun.take(bytes, &mut incoming.bytes);
        if begun.left > 0 {
            return taken;
        }
        let is_last = begun.last;
        incoming.begun = None;
        if is_last && let Some(incoming) = subscriber.incoming.take() {
            self.take_message(conns, conn, incoming.text, incoming.bytes);
        }
        taken
    }

    /// A message is there. Returns its memory if that is free again.
    pub(super) fn take_message(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        text: bool,
        bytes: Vec<u8>,
    ) -> Vec<u8> {
        if !text {
            self.close_websocket(conns, conn, Some(Closing::NOT_TEXT));
            return bytes;
        }
        let trusted = self.sessions.get(conn).is_some_and(|session| session.trusted);
        let mut most = usize::MAX;
        if bytes.len() > LONG_BYTES && trusted {
            match judge(&bytes, bytes.len(), Face::Text) {
                Some(Ok(spec)) => most = spec.bytes_max,
                Some(Err(_)) => {
                    self.long_refused += 1;
                    self.close_websocket(conns, conn, Some(Closing::TOO_LONG));
                    return bytes;
                }
                None => {}
            }
        }
        let rule = self.http.settings.message_rule;
        if !self.counts_frame(conn, rule) {
            self.refuse_message(conns, conn, &bytes);
            return bytes;
        }
        if bytes.len() > SLICE_BYTES {
            self.read_in_slices(conn, bytes, Parse::new(0, most), Vec::new());
            return Vec::new();
        }
        let mut value = std::mem::take(&mut self.scratch.value);
        value.clear();
        let read = json::to_msgpack_within(&bytes, &mut value, most);
        let mut value = self.begin_text(conns, conn, &bytes, value, read);
        value.shrink_to(KEPT_BYTES_MAX);
        self.scratch.value = value;
        bytes
    }

    /// A message has been read as the frame `value`, or is none. Returns its memory if that is free again.
    pub(crate) fn begin_text(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        text: &[u8],
        value: Vec<u8>,
        read: Result<(), JsonError>,
    ) -> Vec<u8> {
        match read {
            Ok(()) => match self.large_op(conn, &value) {
                Some(op) => {
                    self.check_in_slices(conns, conn, (value, 0), op);
                    return Vec::new();
                }
                None => self.begin(conns, conn, (&*value).into()),
            },
            Err(error) if error.fault == Fault::NotUtf8 => {
                self.close_websocket(conns, conn, Some(Closing::NOT_UTF8));
            }
            Err(error) => {
                let trusted = self.sessions.get(conn).is_some_and(|session| session.trusted);
                // A longer one has been mended in slices, as far as that helps.
                if trusted
                    && text.len() <= SLICE_BYTES
                    && error.fault.is_mendable()
                    && let Some(frame) = mended_outcome(text)
                {
                    return self.begin_text(conns, conn, text, frame, Ok(()));
                }
                let longest = match judge(text, text.len(), Face::Text) {
                    Some(Ok(spec)) if error.fault == Fault::TooLong => Some(spec),
                    _ => None,
                };
                let error = match longest {
                    _ if !trusted => ErrorKind::NotAuthenticated.into(),
                    Some(spec) => too_long(spec, spec.bytes_max),
                    None => Error::invalid_json(error),
                };
                let origin = self.origin(conn);
                self.refuse(conns, origin, req_id_in(text).as_deref(), &error);
            }
        }
        value
    }

    /// Refuses a message that comes too often, to its `reqId`: looked for no further than where a command has to be named.
    fn refuse_message(&mut self, conns: &mut Connections, conn: ConnId, bytes: &[u8]) {
        let mut value = std::mem::take(&mut self.scratch.value);
        value.clear();
        let told = if bytes.len() < BEGINNING_BYTES_MAX {
            if json::to_msgpack(bytes, &mut value).is_err() {
                value.clear();
            }
            None
        } else {
            req_id_in(bytes)
        };
        let origin = self.origin(conn);
        let req_id = told.as_deref().or_else(|| find_req_id((&*value).into()));
        self.refuse(conns, origin, req_id, ErrorKind::TooOften);
        self.scratch.value = value;
    }

    /// Writes the frames of replies as messages, or begins to.
    pub(crate) fn send_as_messages(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        mut frames: Vec<u8>,
    ) {
        let conn = origin.conn;
        let mut begun = 0;
        while let Split::Complete { frame, rest } = split(&frames[begun..]) {
            let (whole, behind) = (PREFIX_BYTES + frame.len(), rest.is_empty());
            // A payload has room whatever is in it; a list has as much as a frame.
            let is_list = frame.len() > LIST_BYTES_MIN;
            let most = if is_list { MESSAGE_BYTES_MAX } else { TEXT_BYTES_MAX };
            if frame.len() > LONG_REPLY_BYTES {
                // Nearly always it is the only one, and is moved.
                let alone = begun == 0 && behind;
                let frame = if alone {
                    std::mem::take(&mut frames)
                } else {
                    frames[begun..begun + whole].to_vec()
                };
                self.write_in_slices(conns, origin, frame, most);
                begun = if alone { 0 } else { begun + whole };
                continue;
            }
            let mut text = std::mem::take(&mut self.scratch.reply);
            text.clear();
            let written = json::from_reply_within(frame, &mut text, most);
            self.send_as_message(
                conns,
                conn,
                &frames[begun + PREFIX_BYTES..begun + whole],
                text,
                written,
            );
            begun += whole;
        }
        frames.clear();
        frames.shrink_to(KEPT_BYTES_MAX);
        self.scratch.replies = frames;
    }

    /// Sends what a reply has become as a message.
    pub(crate) fn send_as_message(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        reply: &[u8],
        mut text: Vec<u8>,
        written: Result<(), Unshown>,
    ) {
        match written {
            Ok(()) => {}
            Err(Unshown::TooLong) => write_too_large(reply, &mut text),
            // The reply was written here, and the values in it were checked when they came.
            Err(Unshown::Malformed(_)) => {
                debug_assert!(false, "a reply is a value");
                return;
            }
        }
        let Some(out) = conns.output(conn) else { return };
        out.extend_from_slice(Head::of_text(text.len()).bytes());
        if text.len() <= KEPT_BYTES_MAX {
            out.extend_from_slice(&text);
            text.shrink_to(KEPT_BYTES_MAX);
            self.scratch.reply = text;
        } else {
            // Send the text from where it is: another copy would take as much memory again.
            let text = conns.tally().share(text);
            conns.append_shared(conn, &text);
        }
        self.touch(conn);
    }

    /// Whether a client that may do nothing sends more than it takes to show a token.
    fn is_too_much(bytes: &[u8], open: Option<usize>) -> bool {
        let announced = websocket::announced(bytes).saturating_add(open.unwrap_or(0) as u64);
        announced > UNAUTHENTICATED_FRAME_BYTES_MAX as u64
    }

    /// Tells the peer why, and closes once that is sent.
    pub(crate) fn close_websocket(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        closing: Option<Closing>,
    ) {
        if let Some(out) = conns.output(conn) {
            websocket::close(out, closing);
        }
        self.finish_connection(conns, conn);
    }

    /// Tells the peer that the server ends, which waits until that is sent, if it has its answers.
    pub(crate) fn say_goodbye_if_answered(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        if session.protocol != Protocol::WebSocket
            || session.in_flight > 0
            || session.stream.is_none()
        {
            return;
        }
        if let Some(out) = conns.output(conn) {
            websocket::close(out, Some(Closing::GOING_AWAY));
            self.touch(conn);
        }
        if let Some(session) = self.sessions.get(conn)
            && let Some(key) = session.stream.take()
        {
            self.close_stream(key);
        }
    }
}

/// The frame of a message that is nearly JSON, if it tells what has come of a job.
#[cold]
fn mended_outcome(text: &[u8]) -> Option<Vec<u8>> {
    let (mended, mut frame) = (json::mended(text)?, Vec::new());
    json::to_msgpack(&mended, &mut frame).ok()?;
    outcome_in(&frame).is_some().then_some(frame)
}

/// The `reqId` of a message that is not read, or not to its end, as a reply has it: looked for no further than where a command
/// has to be named.
fn req_id_in(text: &[u8]) -> Option<Vec<u8>> {
    let value = json::value_of(&text[..text.len().min(BEGINNING_BYTES_MAX)], "reqId")?;
    let (mut req_id, mut request) = (Vec::new(), Vec::new());
    json::to_msgpack(value, &mut req_id).ok()?;
    MapWriter::begin(&mut request).key("reqId").raw(&req_id);
    // By the rules for any request.
    find_req_id((&*request).into()).map(Into::into)
}

/// Says that a reply takes more as JSON than a message may, to the same `reqId`. That stands first in a reply, so it
/// is short enough unless it is what takes so much.
pub(crate) fn write_too_large(reply: &[u8], text: &mut Vec<u8>) {
    for req_id in [reply::req_id_of(reply), None] {
        let mut frame = Vec::new();
        reply::error(&mut frame, req_id, ErrorKind::ReplyTooLarge);
        if json::from_reply(&frame[PREFIX_BYTES..], text).is_ok() {
            return;
        }
    }
}
