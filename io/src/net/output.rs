//! Output of one connection: appended freely, sent only as far as allowed.
//!
//! Two buffers: one that the kernel sends from and nobody touches, one that grows. Both come from
//! the shard's pool and go back as soon as they are empty. Between them stand pieces that other
//! outputs send as well: those are not copied, see [`Shared`]. Positions count bytes since the
//! connection began: `sent <= allowed <= appended`.

use std::collections::VecDeque;

use super::shared::Shared;

/// Free buffers that a shard keeps, and the largest that it keeps: at most 2 MB in all.
const POOLED_BUFFERS_MAX: usize = 32;
const POOLED_BYTES_MAX: usize = 64 * 1024;
/// An unsent rest up to this size is joined with what follows it, so that both go in one send.
const JOINED_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one send: the kernel takes no more than 2 GB at a time.
pub(super) const SEND_BYTES_MAX: usize = 1 << 30;

/// Free buffers of a shard.
#[derive(Default)]
pub(super) struct Pool(Vec<Vec<u8>>);

impl Pool {
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        let fits = (1..=POOLED_BYTES_MAX).contains(&buffer.capacity());
        if fits && self.0.len() < POOLED_BUFFERS_MAX {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}

/// Bytes that stay where they are until they are sent.
enum Piece {
    Own(Vec<u8>),
    Shared(Shared),
}

impl Default for Piece {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(shared) => shared.bytes(),
        }
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Memory that is held for this output alone.
    fn own_bytes(&self) -> usize {
        match self {
            Self::Own(bytes) => bytes.capacity(),
            Self::Shared(_) => 0,
        }
    }

    fn give_back(self, pool: &mut Pool) {
        if let Self::Own(bytes) = self {
            pool.give(bytes);
        }
    }
}

/// The output of one connection.
#[derive(Default)]
pub(super) struct Output {
    /// The piece that is being sent, or is next. Its memory does not move while `in_flight`.
    flight: Piece,
    /// How much of `flight` is sent.
    flight_sent: usize,
    in_flight: bool,
    /// Bytes of the send under way.
    in_flight_bytes: usize,
    /// Pieces after `flight`: empty unless something shared has been appended.
    queue: VecDeque<Piece>,
    queue_bytes: usize,
    /// Memory of the pieces in `queue` that are no one else's.
    queue_own_bytes: usize,
    /// Bytes appended after `queue`.
    filling: Vec<u8>,
    /// The position at which `filling` begins.
    filling_at: u64,
    allowed: u64,
}

impl Output {
    /// Where to append.
    pub(super) fn filling(&mut self, pool: &mut Pool) -> &mut Vec<u8> {
        if self.filling.capacity() == 0 {
            self.filling = pool.take();
        }
        &mut self.filling
    }

    /// Appends bytes that are not copied.
    pub(super) fn append_shared(&mut self, shared: Shared) {
        if !self.filling.is_empty() {
            let filled = Piece::Own(std::mem::take(&mut self.filling));
            self.enqueue(filled);
        }
        self.enqueue(Piece::Shared(shared));
    }

    fn enqueue(&mut self, piece: Piece) {
        self.filling_at += piece.len() as u64;
        self.queue_bytes += piece.len();
        self.queue_own_bytes += piece.own_bytes();
        self.queue.push_back(piece);
    }

    /// Memory that is held for this output alone.
    pub(super) fn own_bytes(&self) -> usize {
        self.flight.own_bytes() + self.queue_own_bytes + self.filling.capacity()
    }

    pub(super) fn appended(&self) -> u64 {
        self.filling_at + self.filling.len() as u64
    }

    /// Bytes in memory that the kernel has not taken.
    pub(super) fn unsent(&self) -> usize {
        self.flight.len() - self.flight_sent + self.queue_bytes + self.filling.len()
    }

    /// Lets everything up to a position go. Going back is not possible, going beyond means the end.
    pub(super) fn allow(&mut self, upto: u64) {
        self.allowed = self.allowed.max(upto.min(self.appended()));
    }

    pub(super) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// Bytes of the send under way.
    pub(super) fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// Whether nothing more may be sent once the send under way is over.
    pub(super) fn is_last_send(&self) -> bool {
        self.allowed <= self.sent() + self.in_flight_bytes as u64
    }

    /// True if nothing is being sent and nothing more may be.
    pub(super) fn is_drained(&self) -> bool {
        !self.in_flight && self.allowed <= self.sent()
    }

    /// The position at which `flight` ends.
    fn flight_end(&self) -> u64 {
        self.filling_at - self.queue_bytes as u64
    }

    fn sent(&self) -> u64 {
        self.flight_end() - (self.flight.len() - self.flight_sent) as u64
    }

    /// The next piece to send, of at most `bytes_max`, if there is one and none is being sent. It stays where
    /// it is until [`Self::complete`].
    pub(super) fn next_send(&mut self, bytes_max: usize) -> Option<&[u8]> {
        if self.is_drained() || self.in_flight {
            return None;
        }
        let rest = self.flight.len() - self.flight_sent;
        if rest == 0 {
            self.flight_sent = 0;
            self.flight = self.next_piece();
        } else if let Piece::Own(flight) = &mut self.flight
            && self.queue.is_empty()
            && rest <= JOINED_BYTES_MAX
            && self.filling.len() <= JOINED_BYTES_MAX
        {
            flight.drain(..self.flight_sent);
            self.flight_sent = 0;
            flight.append(&mut self.filling);
            self.filling_at += (flight.len() - rest) as u64;
        }
        // `allowed` is beyond `sent`, so at least one byte; it may end within the flight.
        let beyond = self.flight_end().saturating_sub(self.allowed) as usize;
        let end = (self.flight.len() - beyond).min(self.flight_sent + bytes_max);
        self.in_flight = true;
        self.in_flight_bytes = end - self.flight_sent;
        Some(&self.flight.bytes()[self.flight_sent..end])
    }

    /// Takes the piece that follows the finished `flight`.
    fn next_piece(&mut self) -> Piece {
        let Some(piece) = self.queue.pop_front() else {
            self.filling_at += self.filling.len() as u64;
            return Piece::Own(std::mem::take(&mut self.filling));
        };
        self.queue_bytes -= piece.len();
        self.queue_own_bytes -= piece.own_bytes();
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
        piece
    }

    /// The send under way has ended after `bytes`.
    pub(super) fn complete(&mut self, bytes: usize, pool: &mut Pool) {
        assert!(std::mem::take(&mut self.in_flight), "a send completed twice");
        self.flight_sent += bytes;
        assert!(self.flight_sent <= self.flight.len(), "more sent than there was");
        if self.flight_sent == self.flight.len() {
            self.flight_sent = 0;
            std::mem::take(&mut self.flight).give_back(pool);
            if self.filling.is_empty() {
                pool.give(std::mem::take(&mut self.filling));
            }
        }
    }

    /// Gives up what is not being sent; the rest goes with the connection.
    pub(super) fn discard(&mut self, pool: &mut Pool) {
        pool.give(std::mem::take(&mut self.filling));
        for piece in std::mem::take(&mut self.queue) {
            piece.give_back(pool);
        }
        (self.queue_bytes, self.queue_own_bytes) = (0, 0);
        if !self.in_flight {
            self.flight_sent = 0;
            std::mem::take(&mut self.flight).give_back(pool);
        }
        self.allowed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::shared::Tally;

    fn append(output: &mut Output, pool: &mut Pool, bytes: &[u8]) -> u64 {
        output.filling(pool).extend_from_slice(bytes);
        output.appended()
    }

    #[test]
    fn nothing_goes_before_it_is_allowed() {
        let (mut output, mut pool) = (Output::default(), Pool::default());
        append(&mut output, &mut pool, b"held");
        assert!(output.next_send(SEND_BYTES_MAX).is_none());
        assert!(output.is_drained());
        output.allow(2);
        assert_eq!(output.next_send(SEND_BYTES_MAX), Some(&b"he"[..]));
        output.complete(2, &mut pool);
        assert!(output.next_send(SEND_BYTES_MAX).is_none());
        assert_eq!(output.unsent(), 2);
    }

    #[test]
    fn a_partial_send_is_continued_and_order_kept() {
        let (mut output, mut pool) = (Output::default(), Pool::default());
        let end = append(&mut output, &mut pool, b"abcdef");
        output.allow(end);
        assert_eq!(output.next_send(SEND_BYTES_MAX), Some(&b"abcdef"[..]));
        append(&mut output, &mut pool, b"ghi");
        assert!(output.next_send(SEND_BYTES_MAX).is_none(), "two sends at once");
        output.complete(4, &mut pool);
        assert_eq!(output.next_send(SEND_BYTES_MAX), Some(&b"ef"[..]));
        output.complete(2, &mut pool);
        output.allow(8);
        assert_eq!(output.next_send(SEND_BYTES_MAX), Some(&b"gh"[..]));
        output.complete(2, &mut pool);
        let end = append(&mut output, &mut pool, b"jk");
        output.allow(end);
        assert_eq!(
            output.next_send(SEND_BYTES_MAX),
            Some(&b"ijk"[..]),
            "rest and new bytes in one send"
        );
        output.complete(3, &mut pool);
        assert_eq!((output.unsent(), output.appended()), (0, 11));
    }

    #[test]
    fn a_large_rest_is_not_copied() {
        let (mut output, mut pool) = (Output::default(), Pool::default());
        let large = vec![7; JOINED_BYTES_MAX * 4];
        let end = append(&mut output, &mut pool, &large);
        output.allow(end);
        output.next_send(SEND_BYTES_MAX);
        output.complete(10, &mut pool);
        let end = append(&mut output, &mut pool, b"tail");
        output.allow(end);
        assert_eq!(output.next_send(SEND_BYTES_MAX).map(<[u8]>::len), Some(large.len() - 10));
        output.complete(large.len() - 10, &mut pool);
        assert_eq!(output.next_send(SEND_BYTES_MAX), Some(&b"tail"[..]));
    }

    #[test]
    fn a_drained_output_holds_no_memory_and_the_pool_stays_small() {
        let mut pool = Pool::default();
        for size in [10, 1000, POOLED_BYTES_MAX * 8] {
            let mut outputs: Vec<Output> = (0..100).map(|_| Output::default()).collect();
            for output in &mut outputs {
                let end = append(output, &mut pool, &vec![1; size]);
                output.allow(end);
                output.next_send(SEND_BYTES_MAX);
            }
            for output in &mut outputs {
                output.complete(size, &mut pool);
                assert_eq!(output.own_bytes(), 0);
            }
        }
        assert!(pool.0.len() <= POOLED_BUFFERS_MAX);
        assert!(pool.0.iter().all(|buffer| buffer.capacity() <= POOLED_BYTES_MAX));
    }

    #[test]
    fn shared_bytes_are_sent_in_their_place_and_held_once() {
        let (tally, mut pool) = (Tally::default(), Pool::default());
        let shared = tally.share(b"SHARED".to_vec());
        let mut outputs: Vec<Output> = (0..3).map(|_| Output::default()).collect();
        for output in &mut outputs {
            append(output, &mut pool, b"head ");
            output.append_shared(shared.clone());
            output.append_shared(shared.clone());
            let end = append(output, &mut pool, b" tail");
            assert_eq!((end, output.unsent()), (22, 22));
            output.allow(end - 2);
        }
        drop(shared);
        assert_eq!(tally.bytes(), 6, "once, however many send it");
        for output in &mut outputs {
            let mut sent = Vec::new();
            while let Some(piece) = output.next_send(4) {
                sent.extend_from_slice(piece);
                let bytes = piece.len();
                assert!(!output.is_last_send() || sent.len() == 20);
                output.complete(bytes, &mut pool);
            }
            assert_eq!((&sent[..], output.unsent()), (&b"head SHAREDSHARED ta"[..], 2));
            output.allow(22);
            assert_eq!(output.next_send(4), Some(&b"il"[..]));
            output.complete(2, &mut pool);
            assert_eq!((output.unsent(), output.own_bytes()), (0, 0));
        }
        assert_eq!(tally.bytes(), 0);
    }

    #[test]
    fn shared_bytes_stay_while_they_are_being_sent_and_no_longer() {
        let (tally, mut pool) = (Tally::default(), Pool::default());
        let mut output = Output::default();
        for _ in 0..2 {
            output.append_shared(tally.share(vec![7; 10]));
        }
        output.allow(20);
        output.next_send(SEND_BYTES_MAX);
        output.discard(&mut pool);
        assert_eq!(tally.bytes(), 10);
        output.complete(10, &mut pool);
        assert_eq!((tally.bytes(), output.unsent()), (0, 0));
        assert!(output.is_drained());
    }

    #[test]
    fn allow_beyond_the_end_does_not_allow_the_future() {
        let (mut output, mut pool) = (Output::default(), Pool::default());
        output.allow(100);
        append(&mut output, &mut pool, b"later");
        assert!(output.next_send(SEND_BYTES_MAX).is_none());
    }
}
