//! JSON that is too long for one turn: requests on their way to frames, and replies on their way to texts. Each goes on
//! by a slice, in turns with the others, so that a shard does a bounded part of them between two looks at its sockets.
//!
//! A connection whose request is being read is served no further meanwhile, so its commands keep their order. Request and
//! reply count as unanswered. What they take in memory counts: of requests as of those that are not there yet, of
//! replies and their texts as output, though as that of no connection, so none is ended for it.
//!
//! Only so many replies become text at a time; the others wait in order, as frames. While there is much, what may be
//! answered with much is deferred. Replies to pulls that have waited come all the same: beyond a bound no command is begun
//! that could bring more of them.

use super::protocol::Protocol;
use super::session::UNSENT_BYTES_MAX;
use crate::protocol::decode::repair::outcome_in;
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::json::{
    EXPANSION_MAX, Fault, JsonError, Mend, Parse, Print, TEXT_BYTES_MAX, Unshown,
};
use crate::server::event_loop::turn_meter::Work;
use crate::server::overload::client_memory::ClientMemory;
use crate::server::overload::shared_values::Value;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections, Counted, Shared, Tally};
use std::collections::VecDeque;
use std::sync::Arc;

/// A request of no more than this is read in one go; of a longer one, as much in a turn.
pub const SLICE_BYTES: usize = 128 << 10;

/// A reply of no more than this is written in one go: its text may be some times as long.
pub const LONG_REPLY_BYTES: usize = 64 << 10;

/// Who wait for one text and learn of it in a turn.
const SENT_PER_TURN: usize = 500;

/// A session's note of its request that is being read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Transcoding {
    /// Number that tells the request from others; 0 is none.
    serial: u64,
    /// Memory of the request.
    pub(crate) bytes: usize,
}

impl Transcoding {
    /// Whether there is one.
    pub fn goes_on(self) -> bool {
        self.serial != 0
    }
}

/// A request that is being read.
#[derive(Debug)]
struct Reading {
    conn: ConnId,
    serial: u64,
    text: Vec<u8>,
    parse: Parse,
    frame: Vec<u8>,
    mending: Mending,
}

/// How far a text that cannot be read is on its way to another form.
#[derive(Debug, Default)]
enum Mending {
    /// None is known to be needed.
    #[default]
    No,
    /// The text is gone through. The error is the one that reading it has met.
    Goes(Box<Mend>, JsonError),
    /// The mended text is read, or nothing could be mended. A request that stays refused gets this error.
    Tried(JsonError),
}

/// A reply that is being written as text.
#[derive(Debug)]
struct Writing {
    reply: Shared,
    print: Print,
    text: Vec<u8>,
    /// The memory of the text, as output.
    counted: Counted,
    due: Due,
}

impl Writing {
    /// Upper bound of the text's bytes.
    fn expected_bytes(&self) -> usize {
        self.reply.bytes().len() * EXPANSION_MAX
    }

    /// Takes the room that its text may need. Memory that is not written to costs nothing, and moving tens of megabytes
    /// when a text outgrows its room would take longer than a turn may.
    fn make_room(&mut self) {
        let most = self.expected_bytes().min(self.print.bytes_max());
        // Where that is refused, the text grows as it comes.
        _ = self.text.try_reserve_exact(most);
    }
}

/// Who gets a text.
#[derive(Debug)]
enum Due {
    /// A connection, as a message.
    Message(Origin),
    /// A connection, as the answer to its request.
    Answer(Origin, u16),
    /// All who are owed this value.
    SharedReply(Arc<Value>, Vec<ConnId>),
}

/// Long requests and replies on their way to the other form.
#[derive(Debug, Default)]
pub struct Transcodings {
    memory: ClientMemory,
    readings: VecDeque<Reading>,
    /// Replies that take turns.
    writings: VecDeque<Writing>,
    /// Upper bound of the bytes of the texts in `writings`.
    begun_bytes: usize,
    /// Replies that wait until there is room in `writings`.
    line: VecDeque<Writing>,
    /// Bytes of the replies in `line`.
    line_bytes: usize,
    /// Requests so far.
    serial: u64,
    /// Of replies and their texts that are being written.
    writing_bytes: usize,
    /// Upper bound of the bytes of all texts, in `writings` and `line`.
    expected_bytes: usize,
    /// Large answers that other shards have sent while so much was being written that they shall send no more for now.
    withheld: Vec<(u16, usize)>,
    /// Clients that wait for texts that are made.
    text_waiters: VecDeque<Vec<ConnId>>,
    /// Slices so far.
    slices: u64,
}

impl Transcodings {
    /// None, within the accounts of `memory`.
    pub fn new(memory: ClientMemory) -> Self {
        Self { memory, ..Self::default() }
    }

    /// How many requests and replies are under way.
    pub fn len(&self) -> usize {
        self.readings.len() + self.writings.len() + self.line.len()
    }

    fn is_idle(&self) -> bool {
        self.len() == 0 && self.text_waiters.is_empty() && self.withheld.is_empty()
    }

    /// Memory of replies that are being written, and of their texts.
    pub fn writing_bytes(&self) -> usize {
        self.writing_bytes
    }

    /// Memory of replies that wait to be written.
    pub fn waiting_bytes(&self) -> usize {
        self.line_bytes
    }

    /// Slices so far.
    pub fn slices(&self) -> u64 {
        self.slices
    }

    /// Whether so much is being written that nothing more is begun.
    pub fn writes_enough(&self) -> bool {
        self.expected_bytes >= self.memory.json()
    }

    /// Whether so much waits to be written that no command may add to it. Lists alone cannot bring that many, as each
    /// is begun only while there is little: one long list stops no commands of others.
    #[inline]
    pub fn writes_too_much(&self) -> bool {
        self.line_bytes >= self.memory.texts()
    }

    fn begin(&mut self, tally: &Tally, reply: Shared, print: Print, due: Due) {
        let (text, counted) = (Vec::new(), tally.count());
        let writing = Writing { reply, print, text, counted, due };
        self.writing_bytes += writing.reply.bytes().len();
        self.expected_bytes += writing.expected_bytes();
        self.line_bytes += writing.reply.bytes().len();
        self.line.push_back(writing);
        self.begin_next();
    }

    /// Has those take turns that come next, as many as there is room for.
    fn begin_next(&mut self) {
        while self.begun_bytes < self.memory.json()
            && let Some(mut next) = self.line.pop_front()
        {
            next.make_room();
            self.line_bytes -= next.reply.bytes().len();
            self.begun_bytes += next.expected_bytes();
            self.writings.push_back(next);
        }
    }

    /// Takes a finished reply out of the sums, and begins the next.
    fn end(&mut self, writing: &Writing) {
        self.writing_bytes -= writing.reply.bytes().len() + writing.text.len();
        self.expected_bytes -= writing.expected_bytes();
        self.begun_bytes -= writing.expected_bytes();
        self.begin_next();
    }
}

impl Reading {
    /// Memory held.
    fn held_bytes(&self) -> usize {
        let mended = match &self.mending {
            Mending::Goes(mend, _) => mend.held_bytes(),
            Mending::No | Mending::Tried(_) => 0,
        };
        self.text.capacity() + self.frame.len() + mended
    }

    /// Goes on by a slice. True once the frame is there.
    fn go_on(&mut self) -> Result<bool, JsonError> {
        let (mut mend, error) = match std::mem::take(&mut self.mending) {
            Mending::Goes(mend, error) => (mend, error),
            other => {
                self.mending = other;
                return self.parse.go_on(&self.text, &mut self.frame, SLICE_BYTES);
            }
        };
        if !mend.go_on(&self.text, SLICE_BYTES) {
            self.mending = Mending::Goes(mend, error);
            return Ok(false);
        }
        self.mending = Mending::Tried(error);
        let Some(mended) = mend.into_changed() else { return Err(error) };
        (self.text, self.parse) = (mended, self.parse.again());
        Ok(false)
    }
}

impl ShardServer {
    /// Begins to read a request. `frame` is what it becomes.
    pub(crate) fn read_in_slices(
        &mut self,
        conn: ConnId,
        text: Vec<u8>,
        parse: Parse,
        frame: Vec<u8>,
    ) {
        self.transcodings.serial += 1;
        let serial = self.transcodings.serial;
        let Some(session) = self.sessions.get(conn) else { return };
        session.transcoding = Transcoding { serial, bytes: text.capacity() };
        let mut frame = frame;
        // The frame is nearly always shorter than the text. Memory that is not written to costs nothing, and moving it
        // would.
        frame.reserve(text.len());
        let origin = self.origin(conn);
        self.deferred(origin);
        let mending = Mending::No;
        self.transcodings.readings.push_back(Reading { conn, serial, text, parse, frame, mending });
    }

    /// Gives up the request of a connection that is being read.
    pub(crate) fn cancel_transcoding(&mut self, conn: ConnId) -> bool {
        let Some(session) = self.sessions.get(conn) else { return false };
        let was = std::mem::take(&mut session.transcoding).goes_on();
        if was {
            let origin = self.origin(conn);
            self.answered(origin);
        }
        was
    }

    /// Begins to write the frame of a reply as a message.
    pub(crate) fn write_in_slices(
        &mut self,
        conns: &Connections,
        origin: Origin,
        frame: Vec<u8>,
        most: usize,
    ) {
        self.deferred(origin);
        let (tally, print) = (conns.tally(), Print::reply(0, most));
        self.transcodings.begin(tally, tally.share(frame), print, Due::Message(origin));
    }

    /// Begins to write the frame of a reply as the answer to a request over HTTP.
    pub(crate) fn answer_in_slices(
        &mut self,
        conns: &Connections,
        origin: Origin,
        frame: Vec<u8>,
        status: u16,
    ) {
        self.deferred(origin);
        let (tally, print) = (conns.tally(), Print::reply(0, TEXT_BYTES_MAX));
        self.transcodings.begin(tally, tally.share(frame), print, Due::Answer(origin, status));
    }

    /// Begins to write a value that many are owed, or has one more wait for it.
    pub(crate) fn write_value_in_slices(
        &mut self,
        conns: &Connections,
        conn: ConnId,
        value: &Arc<Value>,
        most: usize,
    ) {
        let Transcodings { writings, line, .. } = &mut self.transcodings;
        for writing in writings.iter_mut().chain(line) {
            if let Due::SharedReply(other, waiting) = &mut writing.due
                && Arc::ptr_eq(other, value)
            {
                waiting.push(conn);
                return;
            }
        }
        let due = Due::SharedReply(value.clone(), vec![conn]);
        let tally = self.shared_values.tally(conns);
        self.transcodings.begin(&tally, value.bytes().clone(), Print::value(0, most), due);
    }

    /// Whether something can be gone on with that nothing else would begin a turn for.
    pub(crate) fn has_transcodings(&self) -> bool {
        let reads = !self.transcodings.readings.is_empty();
        let waits = self.saturated || self.engine.journal.pressure.stalled;
        !self.transcodings.writings.is_empty()
            || !self.transcodings.text_waiters.is_empty()
            || reads && (self.stopping || !waits)
    }

    /// Goes on with the request and the reply whose turn it is.
    pub fn transcode_in_turn(&mut self, conns: &mut Connections) {
        if self.transcodings.is_idle() {
            return;
        }
        let before = self.meter_work(Work::JSON);
        self.write_on(conns);
        self.send_shared_texts(conns);
        self.acknowledge_large_replies();
        if self.stopping || !self.must_stall() {
            self.read_on_in_turn(conns);
        }
        self.meter_work(before);
    }

    fn read_on_in_turn(&mut self, conns: &mut Connections) {
        while let Some(mut reading) = self.transcodings.readings.pop_front() {
            let conn = reading.conn;
            // Skip a request whose connection is gone, or that was given up.
            let Some(session) = self.sessions.get(conn) else { continue };
            if session.transcoding.serial != reading.serial {
                continue;
            }
            let done = reading.go_on();
            session.transcoding.bytes = reading.held_bytes();
            self.transcodings.slices += 1;
            self.meter.note_bytes(SLICE_BYTES);
            match done {
                Ok(true) => self.end_reading(conns, reading, Ok(())),
                Err(error) if !self.may_be_mended(&reading, error) => {
                    self.end_reading(conns, reading, Err(error));
                }
                goes_on => {
                    if let Err(error) = goes_on {
                        reading.mending = Mending::Goes(Box::default(), error);
                    }
                    self.transcodings.readings.push_back(reading);
                    self.note_received(conns, conn);
                }
            }
            return;
        }
    }

    /// Whether a text that cannot be read may tell what has come of a job, and has not been mended yet.
    fn may_be_mended(&mut self, reading: &Reading, error: JsonError) -> bool {
        let Some(session) = self.sessions.get(reading.conn) else { return false };
        let may_help = matches!(reading.mending, Mending::No) && error.fault.is_mendable();
        may_help
            && match session.protocol {
                Protocol::Http => session.http.takes_any_form(),
                _ => session.trusted && error.fault != Fault::NotUtf8,
            }
    }

    /// A request is read, or is none.
    fn end_reading(
        &mut self,
        conns: &mut Connections,
        reading: Reading,
        read: Result<(), JsonError>,
    ) {
        let Reading { conn, text, parse, frame, mending, .. } = reading;
        let Some(session) = self.sessions.get(conn) else { return };
        session.transcoding = Transcoding::default();
        let protocol = session.protocol;
        let origin = self.origin(conn);
        if protocol == Protocol::Http {
            self.begin_fields(conns, conn, frame.into(), read, &parse);
        } else {
            let read = match mending {
                Mending::Tried(error) if read.is_err() || outcome_in(&frame).is_none() => {
                    Err(error)
                }
                _ => read,
            };
            self.begin_text(conns, conn, &text, frame, read);
        }
        self.answered(origin);
        self.note_received(conns, conn);
    }

    fn write_on(&mut self, conns: &mut Connections) {
        while let Some(mut writing) = self.transcodings.writings.pop_front() {
            let Writing { reply, print, text, counted, due } = &mut writing;
            let text_bytes = text.len();
            let prefix_bytes = match due {
                Due::Message(origin) | Due::Answer(origin, _) => {
                    if self.sessions.protocol(origin.conn).is_none() {
                        self.transcodings.end(&writing);
                        continue;
                    }
                    PREFIX_BYTES
                }
                Due::SharedReply(..) => 0,
            };
            let done = print.go_on(&reply.bytes()[prefix_bytes..], text, SLICE_BYTES);
            // An error leaves nothing of it.
            let bytes = text.len();
            counted.set(bytes);
            self.transcodings.writing_bytes += bytes;
            self.transcodings.writing_bytes -= text_bytes;
            self.transcodings.slices += 1;
            self.meter.note_bytes(SLICE_BYTES);
            if done == Ok(false) {
                self.transcodings.writings.push_back(writing);
            } else {
                self.end_writing(conns, writing, done.map(|_| ()));
            }
            return;
        }
    }

    /// A reply is written as text, or cannot be.
    fn end_writing(
        &mut self,
        conns: &mut Connections,
        mut writing: Writing,
        written: Result<(), Unshown>,
    ) {
        self.transcodings.end(&writing);
        // From here on it counts as what it becomes.
        writing.counted.set(0);
        let mut text = std::mem::take(&mut writing.text);
        // Give back spare memory: no copy is made for it.
        text.shrink_to_fit();
        match writing.due {
            Due::SharedReply(value, waiting) => {
                let tally = self.shared_values.tally(conns);
                value.note_written(written.ok().map(|()| text), &tally);
                self.transcodings.text_waiters.push_back(waiting);
            }
            Due::Message(origin) | Due::Answer(origin, _) => {
                let before = conns.appended(origin.conn);
                if conns.unsent(origin.conn) > UNSENT_BYTES_MAX {
                    self.slow_readers.push(origin.conn);
                } else if let Due::Answer(_, status) = writing.due {
                    self.conclude_text(conns, origin.conn, text, (status, written));
                } else {
                    let reply = &writing.reply.bytes()[PREFIX_BYTES..];
                    self.send_as_message(conns, origin.conn, reply, text, written);
                }
                self.answered(origin);
                let bytes = conns.appended(origin.conn).saturating_sub(before) as usize;
                self.note_large_answer(self.me, bytes);
            }
        }
    }

    /// Some of those who wait for a text that is made get it, the others in the next turn.
    fn send_shared_texts(&mut self, conns: &mut Connections) {
        let Some(mut waiting) = self.transcodings.text_waiters.pop_front() else { return };
        let now = waiting.split_off(waiting.len().saturating_sub(SENT_PER_TURN));
        self.meter.note(now.len());
        if !waiting.is_empty() {
            self.transcodings.text_waiters.push_back(waiting);
        }
        for conn in now {
            self.send_next_shared(conns, conn);
        }
    }

    /// A shard has sent a large answer. Its acknowledgement, which lets it send another, waits while too much is being
    /// written.
    pub(crate) fn carried(&mut self, from: u16, bytes: usize) {
        self.transcodings.withheld.push((from, bytes));
        self.acknowledge_large_replies();
    }

    fn acknowledge_large_replies(&mut self) {
        if self.transcodings.writes_enough() {
            return;
        }
        for (from, bytes) in std::mem::take(&mut self.transcodings.withheld) {
            self.outbox.immediate(usize::from(from)).messages.push(Message::Taken { bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY_BYTES: usize = 1 << 20;

    const MEMORY: ClientMemory = ClientMemory::new(1024, 1);

    fn begin(transcodings: &mut Transcodings, tally: &Tally, index: u32) {
        let conn = ConnId { index, generation: 0 };
        let client = corq_shards::command::ClientId(u64::from(index));
        let origin = Origin { client, ..Origin::of_none(0, conn) };
        let reply = tally.share(vec![0; REPLY_BYTES]);
        transcodings.begin(tally, reply, Print::reply(0, TEXT_BYTES_MAX), Due::Message(origin));
    }

    fn turns(transcodings: &Transcodings) -> Vec<u32> {
        let of = |writing: &Writing| match &writing.due {
            Due::Message(origin) | Due::Answer(origin, _) => origin.conn.index,
            Due::SharedReply(..) => u32::MAX,
        };
        transcodings.writings.iter().map(of).collect()
    }

    /// A text of tens of megabytes that outgrows its room is moved, all of it in one turn.
    #[test]
    fn a_text_has_its_room_from_the_beginning_once_it_has_its_turn() {
        let (mut transcodings, tally) = (Transcodings::new(MEMORY), Tally::default());
        for index in 0..(MEMORY.json() / REPLY_BYTES) as u32 {
            begin(&mut transcodings, &tally, index);
        }
        let Transcodings { writings, line, writing_bytes, .. } = &transcodings;
        assert!(!writings.is_empty() && !line.is_empty());
        let has_room = |it: &Writing| it.text.capacity() >= REPLY_BYTES * EXPANSION_MAX;
        assert!(writings.iter().all(has_room));
        assert!(line.iter().all(|waiting| waiting.text.capacity() == 0));
        let replies = (writings.len() + line.len()) * REPLY_BYTES;
        assert_eq!(*writing_bytes, replies, "room counts once it is written to");
    }

    #[test]
    fn only_so_many_replies_become_text_at_a_time_and_the_others_keep_their_order() {
        let (mut transcodings, tally) = (Transcodings::new(MEMORY), Tally::default());
        let all = 2 * (MEMORY.texts() / REPLY_BYTES) as u32;
        let most = MEMORY.json() / (REPLY_BYTES * EXPANSION_MAX);
        for index in 0..all {
            let waiting = (index as usize).saturating_sub(most) * REPLY_BYTES;
            assert_eq!(transcodings.writes_too_much(), waiting >= MEMORY.texts());
            begin(&mut transcodings, &tally, index);
        }
        assert_eq!((transcodings.len(), tally.bytes()), (all as usize, all as usize * REPLY_BYTES));
        for first in 0..all {
            let due: Vec<u32> = (first..all).take(most).collect();
            assert_eq!(turns(&transcodings), due);
            if let Some(writing) = transcodings.writings.pop_front() {
                transcodings.end(&writing);
            }
        }
        let Transcodings { writing_bytes, expected_bytes, begun_bytes, line_bytes, .. } =
            transcodings;
        assert_eq!([writing_bytes, expected_bytes, begun_bytes, line_bytes], [0; 4]);
        assert_eq!(tally.bytes(), 0);
    }
}
