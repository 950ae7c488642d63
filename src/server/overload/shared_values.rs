//! Long values that many are answered with: each is in memory once, as it came and as JSON, until the last
//! client has it. One that has to be read from the disk is read once, however many have asked by then.

use super::client_memory::ClientMemory;
use crate::api::error::ErrorKind;
use crate::protocol::json;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::websocket::MESSAGE_BYTES_MAX;
use crate::server::connection::transcode::LONG_REPLY_BYTES;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use crate::server::storage::cold_reads::Continuation;
use crate::server::storage::engine::{Absent, Fetched, Records};
use corq_io::net::{ConnId, Connections, Shared, Tally};
use corq_shards::effect::Ending;
use corq_shards::log_record::location::LogRef;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};

/// A value from which it is not copied for each who gets it. A shorter one goes with the rest of the answer.
pub const SHARED_BYTES_MIN: usize = 16 << 10;

/// Values that are kept from one turn to the next, so that those who ask for them in turns find them; the one used last
/// in any case.
const KEPT_MAX: usize = 64;

/// Clients waiting for one value that are answered in one turn.
const ANSWERED_PER_TURN: usize = 500;

/// No connection: the reading is for several.
const NO_CONN: ConnId = ConnId { index: u32::MAX, generation: u32::MAX };

/// A value in the forms in which it goes out.
#[derive(Debug)]
pub struct Value {
    bytes: Shared,
    /// As JSON, with the end of the answer behind it, once that is wanted. None if no message has room for it.
    text: OnceLock<Option<Shared>>,
}

impl Value {
    fn new(bytes: Arc<Vec<u8>>, tally: &Tally) -> Self {
        Self { bytes: tally.share(bytes), text: OnceLock::new() }
    }

    /// As it came.
    pub fn bytes(&self) -> &Shared {
        &self.bytes
    }

    /// Whether its text is made.
    pub fn is_written(&self) -> bool {
        self.text.get().is_some()
    }

    /// Sets the text of the value once it is made; `None` if no message has room for it.
    pub fn note_written(&self, text: Option<Vec<u8>>, tally: &Tally) {
        let end = |mut text: Vec<u8>| {
            text.push(b'}');
            tally.share(text)
        };
        self.text.get_or_init(|| text.map(end));
    }

    /// Whether its text is there: a short one is made at once.
    pub fn has_text(&self, tally: &Tally) -> bool {
        if !self.is_written() && self.bytes.bytes().len() <= LONG_REPLY_BYTES {
            let mut text = Vec::new();
            let written =
                json::from_msgpack_within(self.bytes.bytes(), &mut text, MESSAGE_BYTES_MAX);
            self.note_written(written.ok().map(|()| text), tally);
        }
        self.is_written()
    }

    /// The text of the value, if it is made and a message has room for it.
    pub fn text(&self) -> Option<&Shared> {
        self.text.get()?.as_ref()
    }
}

/// A value that was asked for lately.
#[derive(Debug)]
struct Kept {
    bytes: Arc<Vec<u8>>,
    value: Option<Arc<Value>>,
    /// Whether it was asked for in this turn.
    used: bool,
}

/// A client that waits for a value, and what its reply says before it.
#[derive(Debug)]
struct Waiting {
    origin: Origin,
    req_id: Option<Box<[u8]>>,
    ending: Ending,
}

/// A value that has been read.
#[derive(Debug)]
struct Arrived {
    /// None if it could not be.
    bytes: Option<Arc<Vec<u8>>>,
    /// Who has not been answered.
    waiting: Vec<Waiting>,
}

/// Values by where they are, for as long as they are in memory.
#[derive(Debug, Default)]
struct LiveValues {
    records: BTreeMap<u64, Weak<Vec<u8>>>,
    /// Bytes of another shard have no record here.
    bytes: BTreeMap<usize, Weak<Value>>,
    /// How many there may be before those that are gone are struck out.
    most: usize,
}

impl LiveValues {
    fn note_bytes(&mut self, position: u64, bytes: &Arc<Vec<u8>>) {
        self.records.insert(position, Arc::downgrade(bytes));
        self.tidy();
    }

    fn note_value(&mut self, bytes: &Arc<Vec<u8>>, value: &Arc<Value>) {
        self.bytes.insert(Arc::as_ptr(bytes) as usize, Arc::downgrade(value));
        self.tidy();
    }

    fn bytes_at(&self, position: u64) -> Option<Arc<Vec<u8>>> {
        self.records.get(&position)?.upgrade()
    }

    /// The value that these bytes are. It has them, so while it is there no others can be where they are.
    fn value_of(&self, bytes: &Arc<Vec<u8>>) -> Option<Arc<Value>> {
        self.bytes.get(&(Arc::as_ptr(bytes) as usize))?.upgrade()
    }

    fn tidy(&mut self) {
        if self.records.len() + self.bytes.len() <= self.most {
            return;
        }
        self.records.retain(|_, bytes| bytes.strong_count() > 0);
        self.bytes.retain(|_, value| value.strong_count() > 0);
        self.most = 2 * (self.records.len() + self.bytes.len()) + KEPT_MAX;
    }
}

/// The long values that are on their way to clients.
#[derive(Debug, Default)]
pub struct SharedValues {
    memory: ClientMemory,
    /// Values asked for lately; the one used last is at the end.
    kept: Vec<Kept>,
    kept_bytes: usize,
    /// All that are in memory.
    alive: LiveValues,
    /// Who waits for what is being read, by the place of its record.
    reading: BTreeMap<u64, Vec<Waiting>>,
    /// Values that have been read, or could not be, with the clients that have yet to get them.
    read: VecDeque<Arrived>,
    /// Values that were read from the disk, so far.
    reads: u64,
    tally: Option<Tally>,
}

impl SharedValues {
    /// None, within the account of `memory`.
    pub fn new(memory: ClientMemory) -> Self {
        Self { memory, ..Self::default() }
    }

    /// A turn begins: what the last one had no use for goes.
    pub fn begin_turn(&mut self) {
        self.kept.retain_mut(|kept| std::mem::take(&mut kept.used));
        self.kept_bytes = self.kept.iter().map(|kept| kept.bytes.len()).sum();
    }

    /// Whether there is one to be let go of, or a client to be answered.
    pub fn is_held(&self) -> bool {
        !self.kept.is_empty() || !self.read.is_empty()
    }

    /// Memory of those that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Where their bytes are counted.
    pub fn tally(&mut self, conns: &Connections) -> Tally {
        self.tally.get_or_insert_with(|| conns.tally().part()).clone()
    }

    /// Values that were read from the disk, so far.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Keeps bytes that are asked for now, as they may be again in the next turn.
    fn keep(&mut self, bytes: &Arc<Vec<u8>>) -> &mut Kept {
        let place = self.kept.iter().rposition(|kept| Arc::ptr_eq(&kept.bytes, bytes));
        let kept = if let Some(place) = place {
            self.kept.remove(place)
        } else {
            self.kept_bytes += bytes.len();
            Kept { bytes: bytes.clone(), value: None, used: true }
        };
        self.kept.push(Kept { used: true, ..kept });
        while self.kept.len() > 1
            && (self.kept.len() > KEPT_MAX || self.kept_bytes > self.memory.shared_values())
        {
            self.kept_bytes -= self.kept.remove(0).bytes.len();
        }
        let last = self.kept.len() - 1;
        &mut self.kept[last]
    }

    /// The value of the record at this place, if that is in memory.
    fn find(&mut self, position: u64) -> Option<Arc<Vec<u8>>> {
        let bytes = self.alive.bytes_at(position)?;
        self.keep(&bytes);
        Some(bytes)
    }

    /// The record at this place holds these.
    fn note(&mut self, position: u64, bytes: &Arc<Vec<u8>>) {
        self.alive.note_bytes(position, bytes);
        self.keep(bytes);
    }

    /// The value with these bytes in the form in which this shard sends it; all who wait for it share one.
    pub fn value_of(&mut self, bytes: &Arc<Vec<u8>>, conns: &Connections) -> Arc<Value> {
        let value = self.alive.value_of(bytes).unwrap_or_else(|| {
            let value = Arc::new(Value::new(bytes.clone(), &self.tally(conns)));
            self.alive.note_value(bytes, &value);
            value
        });
        self.keep(bytes).value = Some(value.clone());
        value
    }
}

impl ShardServer {
    /// Answers a wait if its job has ended with a long value. False if it has not.
    pub(crate) fn send_shared_ending(
        &mut self,
        conns: &mut Connections,
        (origin, req_id): (Origin, Option<&[u8]>),
        ending: Ending,
    ) -> bool {
        let (Ending::Completed(stored) | Ending::Failed(stored)) = ending else { return false };
        if (stored.payload_bytes as usize) < SHARED_BYTES_MIN {
            return false;
        }
        match self.value_of_ending(ending, stored) {
            Ok(value) => self.send_shared_reply(conns, origin, (req_id, ending), value),
            Err(Absent::Cold) => self.read_value(origin, req_id, ending, stored),
            // As any other answer that cannot be completed.
            Err(Absent::Damaged) => return false,
        }
        true
    }

    fn value_of_ending(&mut self, ending: Ending, stored: LogRef) -> Result<Arc<Vec<u8>>, Absent> {
        if let Some(bytes) = self.shared_values.find(stored.position) {
            return Ok(bytes);
        }
        let payload = Records::new(&self.engine.journal, &[]).payload(&stored)?;
        let bytes = value_bytes(ending, payload);
        self.shared_values.note(stored.position, &bytes);
        Ok(bytes)
    }

    /// Waits for a value with those who have asked for it before, or has it read.
    fn read_value(
        &mut self,
        origin: Origin,
        req_id: Option<&[u8]>,
        ending: Ending,
        stored: LogRef,
    ) {
        let waiting = Waiting { origin, req_id: req_id.map(Into::into), ending };
        let list = self.shared_values.reading.entry(stored.position).or_default();
        list.push(waiting);
        if list.len() == 1 {
            self.shared_values.reads += 1;
            let for_several = Origin::of_none(self.me as u16, NO_CONN);
            self.read_first(for_several, Continuation::SharedValue(stored), &[stored], Vec::new());
        }
    }

    /// A value has been read, or could not be.
    pub(crate) fn value_arrived(&mut self, stored: LogRef, fetched: &[Fetched]) {
        let Some(waiting) = self.shared_values.reading.remove(&stored.position) else { return };
        let payload = Records::new(&self.engine.journal, fetched).payload(&stored).ok();
        let ending = waiting.first().map(|first| first.ending);
        let bytes = payload.zip(ending).map(|(payload, ending)| value_bytes(ending, payload));
        if let Some(bytes) = &bytes {
            self.shared_values.note(stored.position, bytes);
        }
        self.shared_values.read.push_back(Arrived { bytes, waiting });
    }

    /// Answers some of those who have waited for what has been read.
    pub(crate) fn answer_value_readers(&mut self, conns: &mut Connections) {
        let Some(Arrived { bytes, mut waiting }) = self.shared_values.read.pop_front() else {
            return;
        };
        let now: Vec<Waiting> = waiting.drain(..waiting.len().min(ANSWERED_PER_TURN)).collect();
        self.meter.note(now.len());
        if !waiting.is_empty() {
            self.shared_values.read.push_back(Arrived { bytes: bytes.clone(), waiting });
        }
        for Waiting { origin, req_id, ending } in now {
            match &bytes {
                Some(bytes) => {
                    self.send_shared_reply(
                        conns,
                        origin,
                        (req_id.as_deref(), ending),
                        bytes.clone(),
                    );
                }
                None => {
                    self.answered(origin);
                    self.refuse(conns, origin, req_id.as_deref(), ErrorKind::Damaged);
                }
            }
        }
    }
}

/// The value of an ending: a result as it is, an error as a text.
fn value_bytes(ending: Ending, payload: &[u8]) -> Arc<Vec<u8>> {
    if !matches!(ending, Ending::Failed(_)) {
        return Arc::new(payload.to_vec());
    }
    let mut text = Vec::with_capacity(payload.len() + 5);
    Writer::new(&mut text).str_head(payload.len());
    text.extend_from_slice(payload);
    Arc::new(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MEMORY: ClientMemory = ClientMemory::new(1024, 1);

    fn note(values: &mut SharedValues, position: u64, bytes: usize) -> Arc<Vec<u8>> {
        let bytes = Arc::new(vec![0; bytes]);
        values.note(position, &bytes);
        bytes
    }

    #[test]
    fn values_that_are_asked_for_in_turns_are_kept_as_long_as_they_are() {
        let mut values = SharedValues::new(MEMORY);
        for position in 0..3 {
            note(&mut values, position, 10);
        }
        for _ in 0..5 {
            values.begin_turn();
            assert!(values.find(0).is_some() && values.find(2).is_some());
        }
        assert!(values.find(1).is_none());
        values.begin_turn();
        values.begin_turn();
        assert!(!values.is_held());
        assert_eq!(values.kept_bytes, 0);
    }

    #[test]
    fn a_value_that_is_in_memory_is_found_however_long_that_takes() {
        let mut values = SharedValues::new(MEMORY);
        let bytes = note(&mut values, 7, 10);
        for position in 100..1000 {
            note(&mut values, position, 10);
            values.begin_turn();
        }
        assert!(Arc::ptr_eq(&values.find(7).unwrap(), &bytes));
        assert!(values.alive.records.len() < 4 * KEPT_MAX, "those that are gone are struck out");
    }

    #[test]
    fn what_is_kept_has_bounds_in_number_and_in_bytes() {
        let mut values = SharedValues::new(MEMORY);
        for position in 0..2 * KEPT_MAX as u64 {
            note(&mut values, position, 10);
        }
        assert_eq!((values.kept.len(), values.kept_bytes), (KEPT_MAX, 10 * KEPT_MAX));
        let first = KEPT_MAX as u64;
        assert!(values.find(first).is_some() && values.find(first - 1).is_none());
        note(&mut values, 1000, MEMORY.shared_values() + 1);
        assert_eq!(values.kept.len(), 1, "the last one in any case");
    }
}
