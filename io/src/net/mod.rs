//! Sockets, disk operations and wake-ups of one shard, as plain events.
//!
//! A [`Reactor`] turns completions of the shard's ring into [`Event`]s and what the shard wants into
//! submissions. It knows descriptors, bytes and order; it knows no protocol and no command. Its two
//! tables are public fields so that the bytes of a chunk (`reactor.buffers`) can be read while a
//! reply is appended to a connection's output (`reactor.conns`).
//!
//! | file | responsibility |
//! |---|---|
//! | `accept` | accepts connections |
//! | `buffers` | receive buffers that the kernel fills |
//! | `connection` | one connection: its descriptor, and how far it is in its life |
//! | `connections` | the connections of a shard |
//! | `handshake_memory` | the memory of handshakes that are not over |
//! | `inherited` | listening sockets that a service manager has opened |
//! | `listener` | listening sockets |
//! | `op_token` | what a completion belongs to |
//! | `output` | what one connection is to send |
//! | `permits` | how many connections a process may have |
//! | `reactor` | completions become events, wishes become operations |
//! | `shared` | bytes that many outputs send |
//! | `tls_handshake` | handshakes, in turns |
//! | `tls_session` | TLS over our buffers |
//! | `unix_socket` | sockets in the file system |
//! | `wakeup_batching` | several clients for one wake-up |

mod accept;
mod buffers;
mod connection;
mod connections;
mod handshake_memory;
mod inherited;
mod listener;
mod op_token;
mod output;
mod permits;
mod reactor;
mod shared;
mod tls_handshake;
mod tls_session;
mod unix_socket;
mod wakeup_batching;

use std::io;

pub use buffers::{Buffers, Chunk};
pub use connections::{Connections, Socket};
pub use inherited::{Inherited, Place, inherited};
pub use listener::{lacks_family, listen};
pub use permits::Permits;
pub use reactor::Reactor;
pub use shared::{Counted, Shared, Tally};
pub use unix_socket::{SocketFile, listen_at};

/// A connection of one shard. An id whose connection is gone is harmless everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    /// Place in the shard's table; used again after the connection is closed.
    pub index: u32,
    /// How often the place has been used before.
    pub generation: u32,
}

/// An event of a turn. Of each connection: one `Accepted`, any number of `Received`, at most one `Ended` of each
/// reason's direction, and, after the shard's own `close` or `abort`, one `Closed`; or, after its `give_away`, one
/// `GivenAway`.
#[derive(Debug)]
pub enum Event {
    /// A client has connected and, where TLS is spoken, agreed on keys.
    Accepted {
        /// The new connection, already being read.
        conn: ConnId,
        /// The tag of the listener that it came through.
        listener: u32,
    },
    /// Bytes have come. The chunk must go back by [`Buffers::recycle`].
    Received {
        /// From whom.
        conn: ConnId,
        /// Where they are.
        chunk: Chunk,
    },
    /// Bytes have come over TLS. The memory should go back by [`Connections::give_back`].
    Decrypted {
        /// From whom.
        conn: ConnId,
        /// The decrypted bytes.
        bytes: Vec<u8>,
    },
    /// A client that has connected speaks no TLS where it should. What is sent to it goes as it is; to be closed.
    NotTls {
        /// The new connection.
        conn: ConnId,
        /// The tag of the listener that it came through.
        listener: u32,
    },
    /// A client that had connected could not agree on keys, and is gone.
    HandshakeFailed {
        /// The tag of the listener that it came through.
        listener: u32,
        /// Why they could not agree.
        reason: String,
    },
    /// The peer is done, half or altogether. The connection stays until it is closed from here.
    Ended {
        /// The connection.
        conn: ConnId,
        /// Why its peer is done.
        reason: EndReason,
    },
    /// All output of a connection has been taken by the kernel. Said of those whose reading is paused
    /// (time to resume, if the output was why), and once after
    /// [`Connections::notify_when_drained`].
    Drained {
        /// The connection.
        conn: ConnId,
    },
    /// The slot of a connection that was closed from here is free; its id will not be seen again.
    Closed {
        /// The connection.
        conn: ConnId,
    },
    /// A connection that was to be given away has nothing under way any more: it is no longer this
    /// shard's. Bytes that came after [`Connections::give_away`] were events before this one.
    GivenAway {
        /// The connection.
        conn: ConnId,
        /// The socket, for [`Connections::adopt`] of another shard.
        socket: Socket,
    },
    /// Another thread woke this shard: look into the inbox.
    Woken,
    /// A disk operation has completed.
    Disk {
        /// As given to [`Reactor::submit_disk`].
        tag: u64,
        /// Bytes moved (0 for a sync).
        result: io::Result<u32>,
    },
}

/// Why a peer is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The peer will send no more; it may still read what is sent to it.
    HalfClosed,
    /// The peer's end came over TLS without a close notify: what it sent may have been cut. All that came is the peer's
    /// own.
    Truncated,
    /// The peer has broken the rules of TLS. The connection is being closed already.
    Corrupt,
    /// The peer has reset the connection without waiting for bytes on the way.
    Reset,
    /// The peer has not answered the keepalive.
    TimedOut,
    /// The socket failed with this error number.
    Failed(i32),
}

impl EndReason {
    fn of(number: i32) -> Self {
        match number {
            libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED | libc::ENOTCONN => Self::Reset,
            libc::ETIMEDOUT => Self::TimedOut,
            _ => Self::Failed(number),
        }
    }
}

/// Sizes and limits of a reactor.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Depth of the submission queue; the completion queue is sixteen times as deep.
    pub ring_entries: u32,
    /// Connections beyond this many are closed as soon as they are accepted.
    pub connections_max: usize,
    /// Receive buffers, a power of two up to 32768. Their memory is touched only as it is used.
    pub buffers: u16,
    /// Size of a receive buffer, and so the largest chunk.
    pub buffer_bytes: u32,
    /// How long a closed connection may take to accept the rest of its output.
    pub drain_ms: u64,
    /// How long a closed connection is then read, so that the peer is not reset before it has read.
    pub linger_ms: u64,
    /// How long keys may take to be agreed on.
    pub handshake_ms: u64,
    /// Most bytes of handshakes that are not over; the largest gives way.
    pub handshakes_bytes_max: usize,
    /// How long a sleep may go on so that more connections are heard by one wake-up, in microseconds. Counts as 0
    /// where the kernel does not know how (before 6.12).
    pub gather_us: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ring_entries: 256,
            connections_max: 10_000,
            buffers: 256,
            buffer_bytes: 16 * 1024,
            drain_ms: 10_000,
            linger_ms: 1000,
            handshake_ms: 10_000,
            handshakes_bytes_max: 16 << 20,
            gather_us: 0,
        }
    }
}

impl Config {
    /// Connections that a listener can accept before they can be counted: as many as complete at once.
    pub fn accepted_at_once(&self) -> usize {
        self.ring_entries as usize * 16
    }
}

/// Counts of a reactor's work since its start, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Connections taken.
    pub accepted: u64,
    /// Connections closed.
    pub closed: u64,
    /// Connections given away to another shard.
    pub given_away: u64,
    /// Connections closed at once because of `connections_max`.
    pub rejected: u64,
    /// Times that accepting paused because the process or machine ran out of something.
    pub accept_pauses: u64,
    /// Closed connections cut because they did not read in time.
    pub drains_cut: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Chunks received.
    pub chunks: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Send operations.
    pub sends: u64,
    /// `io_uring_enter` calls.
    pub enters: u64,
    /// Times that a receive had to be armed again.
    pub recv_rearmed: u64,
    /// Times that a receive found no buffer.
    pub buffers_exhausted: u64,
    /// Waits that ended more than 10 ms after their deadline.
    pub late: u64,
    /// Times that keys were agreed on.
    pub handshakes: u64,
    /// Of those, by showing keys of an earlier connection.
    pub resumptions: u64,
    /// Clients that could not agree on keys, or went away before.
    pub handshakes_failed: u64,
    /// Clients that did not agree on keys in time.
    pub handshakes_late: u64,
    /// Clients that gave way because all that had come of handshakes was too much together.
    pub handshakes_crowded_out: u64,
    /// Clients that spoke no TLS where it is spoken.
    pub not_tls: u64,
    /// Connections whose end came without being announced.
    pub truncated: u64,
    /// Connections that broke the rules of TLS after they had agreed on keys.
    pub corrupt: u64,
    /// Completions that belonged to nothing. Not zero means a bug.
    pub stray: u64,
}
