//! A connection: its socket, its buffers, and the requests that are in flight on it.

use std::io::{ErrorKind, Read, Write};

use crate::socket::{CLOSED, Socket, lost};

/// A frame may be this long; one byte more and the reply is refused.
const FRAME_BYTES_MAX: usize = 64 << 20;
const INPUT_BYTES: usize = 256 << 10;

/// Purpose of a request in flight.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Push,
    Pull,
    Ack,
}

/// A request in flight. Its number on the wire is `generation << 20 | index`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Slot {
    pub(crate) kind: Kind,
    pub(crate) queue: u16,
    pub(crate) jobs: u32,
    pub(crate) sent_ns: u64,
    generation: u16,
    busy: bool,
}

const INDEX_BITS: u32 = 20;
/// No connection may have more requests in flight than its numbers can tell apart.
pub(crate) const IN_FLIGHT_MAX: usize = 1 << INDEX_BITS;

/// The requests of one connection and the bytes that carry them.
pub(crate) struct Pipeline {
    pub(crate) out: Vec<u8>,
    written: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The queues this connection works on, and the one whose turn it is.
    pub(crate) queues: Vec<u16>,
    turn: usize,
    pub(crate) pushes_left: u64,
}

impl Pipeline {
    fn new(queues: Vec<u16>) -> Self {
        Self {
            out: Vec::with_capacity(64 << 10),
            written: 0,
            slots: Vec::new(),
            free: Vec::new(),
            queues,
            turn: 0,
            pushes_left: 0,
        }
    }

    pub(crate) fn next_queue(&mut self) -> u16 {
        let queue = self.queues[self.turn];
        self.turn = (self.turn + 1) % self.queues.len();
        queue
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Purpose of the request that has been in flight for longest.
    pub(crate) fn oldest(&self) -> Option<Kind> {
        let busy = self.slots.iter().filter(|slot| slot.busy);
        busy.min_by_key(|slot| slot.sent_ns).map(|slot| slot.kind)
    }

    /// Takes a slot for a request; answers the number that goes on the wire.
    pub(crate) fn open(&mut self, kind: Kind, queue: u16, jobs: u32, now: u64) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        let generation = (slot.generation + 1) & 0x3ff;
        *slot = Slot { kind, queue, jobs, sent_ns: now, generation, busy: true };
        u32::from(generation) << INDEX_BITS | index
    }

    /// Gives a slot back when its reply has come; `None` if no such request is in flight.
    pub(crate) fn close(&mut self, request: u32) -> Option<Slot> {
        let index = request & ((1 << INDEX_BITS) - 1);
        let slot = self.slots.get_mut(index as usize)?;
        if !slot.busy || u32::from(slot.generation) != request >> INDEX_BITS {
            return None;
        }
        slot.busy = false;
        self.free.push(index);
        Some(*slot)
    }
}

/// Bytes that have arrived and are not read yet.
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// The range of the next whole frame's body in `bytes()`, if there is one.
    pub(crate) fn next_frame(&mut self) -> Result<Option<(usize, usize)>, String> {
        let Some(length) = self.frame_bytes() else { return Ok(None) };
        if length > FRAME_BYTES_MAX {
            return Err(format!("a reply announces {length} bytes"));
        }
        let begin = self.start + 4;
        if self.end - begin < length {
            return Ok(None);
        }
        self.start = begin + length;
        Ok(Some((begin, begin + length)))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn frame_bytes(&self) -> Option<usize> {
        let head: [u8; 4] = self.bytes[self.start..self.end].get(..4)?.try_into().ok()?;
        Some(u32::from_be_bytes(head) as usize)
    }

    /// Moves what is left to the front and makes room for at least the frame that has begun.
    fn make_room(&mut self) {
        // Moving bytes to where they are is not free, and a large frame comes in many reads.
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let wanted = self.frame_bytes().map_or(0, |length| length.min(FRAME_BYTES_MAX) + 4);
        if wanted > self.bytes.len() {
            self.bytes.resize(wanted.next_power_of_two(), 0);
        }
    }
}

/// A connection as the event loop holds it; `pipeline` and `input` part so that a reply may be read
/// while requests are written.
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) pipeline: Pipeline,
    pub(crate) input: Input,
    pub(crate) wants_write: bool,
}

impl Connection {
    pub(crate) fn new(socket: Socket, queues: Vec<u16>) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        let input = Input { bytes: vec![0; INPUT_BYTES], start: 0, end: 0 };
        Ok(Self { socket, pipeline: Pipeline::new(queues), input, wants_write: false })
    }

    /// Reads what there is, once. Level-triggered readiness brings the loop back for the rest.
    pub(crate) fn receive(&mut self) -> Result<(), String> {
        self.input.make_room();
        let input = &mut self.input;
        match self.socket.read(&mut input.bytes[input.end..]) {
            Ok(0) => Err(CLOSED.to_owned()),
            Ok(bytes) => {
                input.end += bytes;
                Ok(())
            }
            Err(error) if is_not_yet(&error) => Ok(()),
            Err(error) => Err(lost("reading from the server", &error)),
        }
    }

    /// Writes what there is, in one call; answers whether anything is left.
    pub(crate) fn send(&mut self) -> Result<bool, String> {
        let pipeline = &mut self.pipeline;
        let left = pipeline.written < pipeline.out.len();
        if !left && !self.socket.holds_output() {
            return Ok(false);
        }
        let outcome = if left {
            self.socket.write(&pipeline.out[pipeline.written..])
        } else {
            self.socket.flush().map(|()| 0)
        };
        match outcome {
            Ok(bytes) => pipeline.written += bytes,
            Err(error) if is_not_yet(&error) => {}
            Err(error) => return Err(lost("writing to the server", &error)),
        }
        if pipeline.written == pipeline.out.len() {
            pipeline.out.clear();
            pipeline.written = 0;
            return Ok(self.socket.holds_output());
        }
        // Written bytes must not pile up in front of unwritten ones.
        if pipeline.written > 1 << 20 {
            pipeline.out.drain(..pipeline.written);
            pipeline.written = 0;
        }
        Ok(true)
    }
}

fn is_not_yet(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_taken_once_and_only_for_a_request_in_flight() {
        let mut pipeline = Pipeline::new(vec![0]);
        let first = pipeline.open(Kind::Push, 0, 1, 5);
        assert!(pipeline.close(first).is_some());
        assert!(pipeline.close(first).is_none(), "a second reply to the same request");
        let second = pipeline.open(Kind::Pull, 0, 1, 6);
        assert_ne!(first, second);
        assert!(pipeline.close(first).is_none(), "a late reply to an old request");
        assert!(pipeline.close(second).is_some());
        assert!(pipeline.close(999).is_none());
    }
}
