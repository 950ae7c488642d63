//! TLS on one connection, between the bytes of the socket and those of the shard.
//!
//! Knows records and whose turn it is in a handshake; does not know the kernel or what the bytes mean. It holds
//! memory only for what has come of a record that is not whole, and for what is on its way out: an idle
//! connection has its keys and nothing else.

#[cfg(test)]
pub(super) mod tests;

use std::fmt;
use std::sync::Arc;

use rustls::server::{ServerConfig, ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};

use super::output::{Output, Pool};

/// Plain bytes that are sealed at a time: what comes of them fits a buffer that the pool keeps.
const SEALED_BYTES_MAX: usize = 60 * 1024;
/// Bytes that may wait for their turn in a handshake before no more are received.
const QUEUED_BYTES_MAX: usize = 16 * 1024;
/// No message of a handshake has more, whatever it is made of.
const INCOMING_BYTES_MAX: usize = 128 * 1024;
/// The first byte of a client that speaks TLS: a record of a handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// Bytes of a record beside its content, at most, and rounded up.
const RECORD_MARGIN_BYTES: usize = 64;
const RECORD_CONTENT_BYTES: usize = 16 * 1024;

type Traffic<'a> = WriteTraffic<'a, ServerConnectionData>;

/// Result of decrypting received bytes.
pub(super) struct Opened {
    /// Decrypted bytes, in a buffer of the pool.
    pub(super) plain: Vec<u8>,
    /// Fault found after `plain`. The alert for the peer is in the output.
    pub(super) outcome: Result<(), rustls::Error>,
}

/// The keys of a connection.
enum Keys {
    /// No handshake step has run yet: a client that only connects costs nothing but its socket.
    Due(Arc<ServerConfig>),
    /// They are agreed on, or about to be.
    Made(Box<UnbufferedServerConnection>),
}

/// TLS of one connection.
pub(super) struct TlsSession {
    keys: Keys,
    /// The tag of the listener that it came through.
    pub(super) listener: u32,
    /// In the list of handshakes whose turn comes.
    pub(super) queued: bool,
    /// The peer has said that it will send no more.
    pub(super) peer_closed: bool,
    /// The peer has broken the rules, and we close the connection.
    pub(super) failed: bool,
    /// Our end has been announced.
    close_notify_sent: bool,
    /// Received bytes of an incomplete record.
    incoming: Vec<u8>,
    /// Records to be sent. Its memory does not move while `in_flight`.
    wire: Vec<u8>,
    wire_sent: usize,
    in_flight: bool,
    /// Records that came up while those were being sent.
    next: Vec<u8>,
}

impl TlsSession {
    /// Before the first byte.
    pub(super) fn new(config: Arc<ServerConfig>, listener: u32) -> Self {
        Self {
            keys: Keys::Due(config),
            listener,
            queued: false,
            peer_closed: false,
            failed: false,
            close_notify_sent: false,
            incoming: Vec::new(),
            wire: Vec::new(),
            wire_sent: 0,
            in_flight: false,
            next: Vec::new(),
        }
    }

    fn tls(&self) -> Option<&UnbufferedServerConnection> {
        match &self.keys {
            Keys::Due(_) => None,
            Keys::Made(tls) => Some(tls),
        }
    }

    /// Whether the keys are not agreed on yet.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls().is_none_or(|tls| tls.is_handshaking())
    }

    /// Whether the peer came with keys of an earlier connection.
    pub(super) fn is_resumed(&self) -> bool {
        let kind = self.tls().and_then(|tls| tls.handshake_kind());
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    /// Puts bytes of a handshake aside until its turn comes. False if they are no TLS at all.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> bool {
        // No larger than it needs to be: of all handshakes together the largest gives way.
        self.incoming.extend_from_slice(bytes);
        // Once it has been answered it has begun well.
        self.incoming.first().is_none_or(|&first| first == HANDSHAKE_RECORD) || self.has_begun()
    }

    /// Whether anything of it has been understood.
    fn has_begun(&self) -> bool {
        self.tls().is_some_and(|tls| tls.protocol_version().is_some())
    }

    /// Memory of what has come and is not a whole record or message.
    pub(super) fn incoming_bytes(&self) -> usize {
        self.incoming.capacity()
    }

    /// Whether so much waits for its turn that no more must come.
    pub(super) fn has_enough_input(&self) -> bool {
        self.queued && self.incoming.len() > QUEUED_BYTES_MAX
    }

    /// Takes in what has come, behind what was put aside.
    pub(super) fn open(&mut self, bytes: &mut [u8], pool: &mut Pool) -> Opened {
        let mut plain = Vec::new();
        if let Keys::Due(config) = &self.keys {
            match UnbufferedServerConnection::new(Arc::clone(config)) {
                Ok(tls) => self.keys = Keys::Made(Box::new(tls)),
                Err(error) => return Opened { plain, outcome: Err(error) },
            }
        }
        if self.incoming.is_empty() {
            let (used, outcome) = self.process(bytes, &mut plain, pool);
            if outcome.is_ok() && used < bytes.len() && !self.peer_closed {
                if self.incoming.capacity() == 0 {
                    self.incoming = pool.take();
                }
                self.incoming.extend_from_slice(&bytes[used..]);
            }
            return Opened { plain, outcome };
        }
        let mut incoming = std::mem::take(&mut self.incoming);
        incoming.extend_from_slice(bytes);
        let (used, mut outcome) = self.process(&mut incoming, &mut plain, pool);
        if outcome.is_err() || self.peer_closed || used == incoming.len() {
            pool.give(incoming);
        } else {
            incoming.drain(..used);
            if incoming.len() > INCOMING_BYTES_MAX {
                outcome = Err(rustls::Error::General("a message has no end".into()));
            }
            self.incoming = incoming;
        }
        Opened { plain, outcome }
    }

    /// Opens records at the front of `input`; returns how many bytes they took.
    fn process(
        &mut self,
        input: &mut [u8],
        plain: &mut Vec<u8>,
        pool: &mut Pool,
    ) -> (usize, Result<(), rustls::Error>) {
        let mut used = 0;
        loop {
            let Some((tls, wire)) = self.parts() else { return (used, Ok(())) };
            let UnbufferedStatus { mut discard, state } =
                tls.process_tls_records(&mut input[used..]);
            let mut rests = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                discard += record.discard;
                                if plain.capacity() == 0 {
                                    *plain = pool.take();
                                }
                                plain.extend_from_slice(record.payload);
                            }
                            Err(error) => return (used + discard, Err(error)),
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    write(wire, pool, 0, |room| data.encode(room).map_err(Short::of_encode));
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.peer_closed = true,
                // Early data is not offered, so none comes.
                Ok(_) => rests = true,
                Err(error) => {
                    used += discard;
                    self.encode_alerts(pool);
                    return (used, Err(error));
                }
            }
            used += discard;
            if rests {
                return (used, Ok(()));
            }
        }
    }

    /// Queues the alerts for the peer. What it sent is not read any more.
    fn encode_alerts(&mut self, pool: &mut Pool) {
        let Some((tls, wire)) = self.parts() else { return };
        while tls.wants_write() {
            match tls.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    write(wire, pool, 0, |room| data.encode(room).map_err(Short::of_encode));
                }
                _ => return,
            }
        }
    }

    /// The next piece to send: what there is already, else the next of what the shard has let go, and behind the
    /// last of it the announcement of our end if it is `over`. It stays where it is until [`Self::complete`].
    /// An error says that nothing can be sealed any more.
    pub(super) fn next_send(
        &mut self,
        output: &mut Output,
        over: bool,
        pool: &mut Pool,
    ) -> Result<Option<&[u8]>, rustls::Error> {
        if self.in_flight {
            return Ok(None);
        }
        if self.wire.is_empty() {
            if let Some(piece) = output.next_send(SEALED_BYTES_MAX) {
                let bytes = piece.len();
                let sealed = self.seal(piece, pool);
                output.complete(bytes, pool);
                sealed?;
            }
            if over && output.is_drained() {
                self.send_close_notify(pool);
            }
        }
        if self.wire.is_empty() {
            return Ok(None);
        }
        self.in_flight = true;
        Ok(Some(&self.wire[self.wire_sent..]))
    }

    fn seal(&mut self, piece: &[u8], pool: &mut Pool) -> Result<(), rustls::Error> {
        let records = piece.len().div_ceil(RECORD_CONTENT_BYTES);
        let guess = piece.len() + records * RECORD_MARGIN_BYTES;
        let sealed = self.write_record(pool, |traffic, wire, pool| {
            write(wire, pool, guess, |room| traffic.encrypt(piece, room).map_err(Short::of_encrypt))
        })?;
        if sealed { Ok(()) } else { Err(rustls::Error::General("its keys are used up".into())) }
    }

    fn send_close_notify(&mut self, pool: &mut Pool) {
        if std::mem::replace(&mut self.close_notify_sent, true) || self.failed {
            return;
        }
        // Leave the close notify out if it cannot be written any more.
        let _ = self.write_record(pool, |traffic, wire, pool| {
            write(wire, pool, RECORD_MARGIN_BYTES, |room| {
                traffic.queue_close_notify(room).map_err(Short::of_encrypt)
            })
        });
    }

    /// Writes a record. What has come so far is shown again, since what is understood of it points into it.
    fn write_record(
        &mut self,
        pool: &mut Pool,
        say: impl FnOnce(&mut Traffic<'_>, &mut Vec<u8>, &mut Pool) -> bool,
    ) -> Result<bool, rustls::Error> {
        let Self { keys: Keys::Made(tls), incoming, wire, next, in_flight, .. } = self else {
            return Err(rustls::Error::HandshakeNotComplete);
        };
        let wire = if *in_flight { next } else { wire };
        loop {
            let UnbufferedStatus { discard, state } = tls.process_tls_records(incoming);
            match state? {
                ConnectionState::EncodeTlsData(mut data) => {
                    write(wire, pool, 0, |room| data.encode(room).map_err(Short::of_encode));
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::WriteTraffic(mut traffic) => {
                    let said = say(&mut traffic, wire, pool);
                    incoming.drain(..discard);
                    return Ok(said);
                }
                _ => return Err(rustls::Error::HandshakeNotComplete),
            }
            incoming.drain(..discard);
        }
    }

    /// Notes that the peer has broken the rules: nothing is sent but the alert.
    pub(super) fn fail(&mut self) {
        self.failed = true;
        self.close_notify_sent = true;
    }

    /// Whether our end has been announced, or need not be.
    pub(super) fn is_over(&self) -> bool {
        self.close_notify_sent
    }

    pub(super) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// Bytes of records that the kernel has not taken.
    pub(super) fn unsent(&self) -> usize {
        self.wire.len() - self.wire_sent + self.next.len()
    }

    /// Bytes of the send under way.
    pub(super) fn in_flight_bytes(&self) -> usize {
        self.wire.len() - self.wire_sent
    }

    /// The keys, and where to write records.
    fn parts(&mut self) -> Option<(&mut UnbufferedServerConnection, &mut Vec<u8>)> {
        let Self { keys: Keys::Made(tls), wire, next, in_flight, .. } = self else { return None };
        Some((tls, if *in_flight { next } else { wire }))
    }

    /// The send under way has ended after `bytes`.
    pub(super) fn complete(&mut self, bytes: usize, pool: &mut Pool) {
        assert!(std::mem::take(&mut self.in_flight), "a send completed twice");
        self.wire_sent += bytes;
        assert!(self.wire_sent <= self.wire.len(), "more sent than there was");
        if self.wire_sent == self.wire.len() {
            self.wire_sent = 0;
            pool.give(std::mem::replace(&mut self.wire, std::mem::take(&mut self.next)));
        }
    }

    /// Gives up what is not being sent.
    pub(super) fn discard(&mut self, pool: &mut Pool) {
        pool.give(std::mem::take(&mut self.incoming));
        pool.give(std::mem::take(&mut self.next));
        if !self.in_flight {
            self.wire_sent = 0;
            pool.give(std::mem::take(&mut self.wire));
        }
    }
}

/// Too little room for what is to be written, or nothing to write at all.
struct Short(Option<usize>);

impl Short {
    #[expect(clippy::needless_pass_by_value, reason = "the shape of a map")]
    fn of_encode(error: EncodeError) -> Self {
        match error {
            EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => {
                Self(Some(required_size))
            }
            EncodeError::AlreadyEncoded => Self(None),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "the shape of a map")]
    fn of_encrypt(error: EncryptError) -> Self {
        match error {
            EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
                Self(Some(required_size))
            }
            EncryptError::EncryptExhausted => Self(None),
        }
    }
}

/// Lets `fill` write behind what is there, with room for `guess` bytes or as many as it then says it needs.
fn write(
    wire: &mut Vec<u8>,
    pool: &mut Pool,
    guess: usize,
    mut fill: impl FnMut(&mut [u8]) -> Result<usize, Short>,
) -> bool {
    if wire.capacity() == 0 {
        *wire = pool.take();
    }
    let before = wire.len();
    let mut room = guess;
    loop {
        wire.reserve_exact(room);
        wire.resize(before + room, 0);
        match fill(&mut wire[before..]) {
            Ok(bytes) => {
                wire.truncate(before + bytes);
                return true;
            }
            Err(Short(Some(needed))) if needed > room => room = needed,
            Err(_) => {
                wire.truncate(before);
                return false;
            }
        }
    }
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession")
            .field("version", &self.tls().and_then(|tls| tls.protocol_version()))
            .finish_non_exhaustive()
    }
}
