//! TLS on one connection, between the bytes of the socket and those of the shard.
//!
//! Knows records and whose turn it is in a handshake; does not know the kernel or what the bytes mean. It holds
//! memory only for what has come of a record that is not whole, and for what is on its way out: an idle
//! connection has its keys and nothing else.

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
const HEARD_BYTES_MAX: usize = 16 * 1024;
/// No message of a handshake has more, whatever it is made of.
const INCOMING_BYTES_MAX: usize = 128 * 1024;
/// The first byte of whoever speaks TLS: a record of a handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// What a record has beside its content, at most, and rounded up.
const RECORD_MARGIN_BYTES: usize = 64;
const RECORD_CONTENT_BYTES: usize = 16 * 1024;

type Traffic<'a> = WriteTraffic<'a, ServerConnectionData>;

/// What came of bytes that were received.
pub(super) struct Opened {
    /// What the peer has said. From the pool.
    pub(super) plain: Vec<u8>,
    /// What was wrong, after that. The peer is told by what is to be sent.
    pub(super) outcome: Result<(), rustls::Error>,
}

/// The keys of a connection.
enum Keys {
    /// Nothing has come whose turn it was: whoever only connects costs nothing but its socket.
    Due(Arc<ServerConfig>),
    /// They are agreed on, or about to be.
    Made(Box<UnbufferedServerConnection>),
}

/// See the module.
pub(super) struct Secure {
    keys: Keys,
    /// The tag of the listener that it came through.
    pub(super) listener: u32,
    /// In the list of handshakes whose turn comes.
    pub(super) queued: bool,
    /// The peer has said that it will send no more.
    pub(super) peer_closed: bool,
    /// It has broken the rules, and is closed by us.
    pub(super) failed: bool,
    /// Our end has been announced.
    said_goodbye: bool,
    /// What has come of a record that is not whole.
    incoming: Vec<u8>,
    /// Records to be sent. Its memory does not move while `in_flight`.
    wire: Vec<u8>,
    wire_sent: usize,
    in_flight: bool,
    /// Records that came up while those were being sent.
    next: Vec<u8>,
}

impl Secure {
    /// Before the first byte.
    pub(super) fn new(config: Arc<ServerConfig>, listener: u32) -> Self {
        Self {
            keys: Keys::Due(config),
            listener,
            queued: false,
            peer_closed: false,
            failed: false,
            said_goodbye: false,
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
    pub(super) fn hear(&mut self, bytes: &[u8], pool: &mut Pool) -> bool {
        if self.incoming.capacity() == 0 {
            self.incoming = pool.take();
        }
        self.incoming.extend_from_slice(bytes);
        // Once it has been answered it has begun well.
        self.incoming.first().is_none_or(|&first| first == HANDSHAKE_RECORD) || self.has_spoken()
    }

    /// Whether anything of it has been understood.
    fn has_spoken(&self) -> bool {
        self.tls().is_some_and(|tls| tls.protocol_version().is_some())
    }

    /// Whether so much waits for its turn that no more must come.
    pub(super) fn has_heard_enough(&self) -> bool {
        self.queued && self.incoming.len() > HEARD_BYTES_MAX
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

    /// What the peer is told about its fault is to be sent. What came is not looked at again.
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
                self.say_goodbye(pool);
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
        let sealed = self.speak(pool, |traffic, wire, pool| {
            write(wire, pool, guess, |room| traffic.encrypt(piece, room).map_err(Short::of_encrypt))
        })?;
        if sealed { Ok(()) } else { Err(rustls::Error::General("its keys are used up".into())) }
    }

    fn say_goodbye(&mut self, pool: &mut Pool) {
        if std::mem::replace(&mut self.said_goodbye, true) || self.failed {
            return;
        }
        // One that cannot be said any more is not.
        let _ = self.speak(pool, |traffic, wire, pool| {
            write(wire, pool, RECORD_MARGIN_BYTES, |room| {
                traffic.queue_close_notify(room).map_err(Short::of_encrypt)
            })
        });
    }

    /// Writes a record. What has come so far is shown again, since what is understood of it points into it.
    fn speak(
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

    /// It has broken the rules: nothing is sent but what says so.
    pub(super) fn fail(&mut self) {
        self.failed = true;
        self.said_goodbye = true;
    }

    /// Whether our end has been announced, or need not be.
    pub(super) fn is_over(&self) -> bool {
        self.said_goodbye
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

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secure")
            .field("version", &self.tls().and_then(|tls| tls.protocol_version()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::output::SEND_BYTES_MAX;
    use super::*;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
    use std::io::{Read, Write};

    type Version = &'static SupportedProtocolVersion;

    fn configs() -> (Arc<ServerConfig>, impl Fn(Version) -> ClientConnection) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let client = move |version: Version| {
            let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap())
                .unwrap()
        };
        (Arc::new(server), client)
    }

    /// Numbers that look random and are the same each time.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % bound.max(1) as u64) as usize
        }
    }

    /// A server's side without a socket.
    struct Side {
        secure: Secure,
        output: Output,
        pool: Pool,
        heard: Vec<u8>,
    }

    impl Side {
        fn new(config: &Arc<ServerConfig>) -> Self {
            let secure = Secure::new(Arc::clone(config), 0);
            Self { secure, output: Output::default(), pool: Pool::default(), heard: Vec::new() }
        }

        fn take(&mut self, bytes: &mut [u8]) -> Result<(), rustls::Error> {
            if self.secure.is_handshaking() {
                assert!(self.secure.hear(bytes, &mut self.pool));
                let opened = self.secure.open(&mut [], &mut self.pool);
                self.heard.extend_from_slice(&opened.plain);
                return opened.outcome;
            }
            let opened = self.secure.open(bytes, &mut self.pool);
            self.heard.extend_from_slice(&opened.plain);
            opened.outcome
        }

        fn say(&mut self, bytes: &[u8]) {
            self.output.filling(&mut self.pool).extend_from_slice(bytes);
            self.output.allow(u64::MAX);
        }

        /// Sends a piece, or a part of it.
        fn send(&mut self, over: bool, part: impl FnOnce(usize) -> usize) -> Option<Vec<u8>> {
            let piece = self.secure.next_send(&mut self.output, over, &mut self.pool).unwrap()?;
            let piece = piece[..part(piece.len())].to_vec();
            self.secure.complete(piece.len(), &mut self.pool);
            Some(piece)
        }
    }

    fn written(client: &mut ClientConnection) -> Vec<u8> {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    fn give(client: &mut ClientConnection, mut bytes: &[u8], said: &mut Vec<u8>) {
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).unwrap();
            client.process_new_packets().unwrap();
            // Would block, or the end: whatever is there has been read.
            let _ = client.reader().read_to_end(said);
        }
    }

    #[test]
    fn whatever_the_pieces_both_sides_hear_what_the_other_said_and_nothing_is_kept() {
        let (config, client) = configs();
        let mut dice = Dice(77);
        for round in 0..60 {
            let mut client = client(if round % 2 == 0 { &TLS12 } else { &TLS13 });
            let mut side = Side::new(&config);
            let question: Vec<u8> = (0..dice.roll(200_000)).map(|n| n as u8).collect();
            let answer: Vec<u8> = (0..dice.roll(300_000)).map(|n| (n * 3) as u8).collect();
            client.set_buffer_limit(None);
            client.writer().write_all(&question).unwrap();
            side.say(&answer);
            let (mut said, mut stuck) = (Vec::new(), 0);
            while said.len() < answer.len() || side.heard.len() < question.len() {
                let mut bytes = written(&mut client);
                let quiet = bytes.is_empty();
                let mut rest = &mut bytes[..];
                while !rest.is_empty() {
                    let most = [1, 7, 300, 5000, 70_000][dice.roll(5)];
                    let (now, later) = rest.split_at_mut(most.min(rest.len()));
                    side.take(now).unwrap();
                    rest = later;
                    if !side.secure.is_handshaking() && dice.roll(4) == 0 {
                        let sent = side.send(false, |length| 1 + dice.roll(length));
                        give(&mut client, &sent.unwrap_or_default(), &mut said);
                    }
                }
                // Before the end of a handshake only the handshake itself may speak.
                let mut nothing = Output::default();
                let handshakes = side.secure.is_handshaking();
                if handshakes {
                    std::mem::swap(&mut nothing, &mut side.output);
                }
                let sent = side.send(false, |length| 1 + dice.roll(length));
                if handshakes {
                    std::mem::swap(&mut nothing, &mut side.output);
                }
                stuck = if quiet && sent.is_none() { stuck + 1 } else { 0 };
                assert!(stuck < 3, "both wait for each other");
                give(&mut client, &sent.unwrap_or_default(), &mut said);
            }
            assert!(said == answer && side.heard == question, "round {round}");
            while let Some(rest) = side.send(true, |length| length) {
                give(&mut client, &rest, &mut said);
            }
            assert_eq!(client.reader().read(&mut [0]).unwrap(), 0, "the end is announced");
            let Secure { incoming, wire, next, .. } = &side.secure;
            assert_eq!(incoming.capacity() + wire.capacity() + next.capacity(), 0);
            assert!(side.output.next_send(SEND_BYTES_MAX).is_none());
            client.send_close_notify();
            side.take(&mut written(&mut client)).unwrap();
            assert!(side.secure.peer_closed);
        }
    }

    /// A panic here would end the server.
    #[test]
    fn whatever_comes_it_is_an_error_at_worst() {
        let (config, client) = configs();
        let mut dice = Dice(4711);
        let (mut refused, mut answered) = (0, 0);
        for round in 0..1500 {
            let mut client = client(if round % 2 == 0 { &TLS12 } else { &TLS13 });
            let mut side = Side::new(&config);
            let spoils_at = dice.roll(5);
            'talk: for step in 0..6 {
                if step == 3 && !client.is_handshaking() {
                    // One that has found a fault takes no more.
                    let _ = client.writer().write_all(&[7; 300]);
                }
                let mut bytes = written(&mut client);
                if step >= spoils_at {
                    match dice.roll(5) {
                        0 if bytes.len() > 1 => {
                            let at = 1 + dice.roll(bytes.len() - 1);
                            bytes[at] = dice.roll(256) as u8;
                        }
                        1 => bytes.truncate(dice.roll(bytes.len())),
                        2 => {
                            let kind = [0x14, 0x15, 0x16, 0x17][dice.roll(4)];
                            let length = dice.roll(60);
                            bytes.extend([kind, 3, 3, 0, length as u8]);
                            bytes.extend((0..length).map(|_| dice.roll(256) as u8));
                        }
                        3 => {
                            // A message that has no end, in pieces that have.
                            for piece in 0..=dice.roll(8) {
                                let head = [1, 0, 200, 0];
                                let body = if piece == 0 { &head[..] } else { &[5; 40][..] };
                                bytes.extend([0x16, 3, 3, 0, body.len() as u8]);
                                bytes.extend(body);
                            }
                        }
                        _ => bytes.extend_from_within(..),
                    }
                }
                let mut rest = &mut bytes[..];
                while !rest.is_empty() {
                    let most = 1 + dice.roll(400);
                    let (now, later) = rest.split_at_mut(most.min(rest.len()));
                    rest = later;
                    if side.secure.is_handshaking() && !side.secure.hear(now, &mut side.pool) {
                        break 'talk;
                    }
                    let handshakes = side.secure.is_handshaking();
                    let opened =
                        side.secure.open(if handshakes { &mut [] } else { now }, &mut side.pool);
                    if opened.outcome.is_err() {
                        refused += 1;
                        side.secure.fail();
                        side.output.discard(&mut side.pool);
                        while side.send(true, |length| length).is_some() {}
                        break 'talk;
                    }
                    if !side.secure.is_handshaking() {
                        side.say(b"an answer");
                        answered += usize::from(side.send(false, |length| length).is_some());
                    }
                }
                while let Some(sent) = side.send(false, |length| length) {
                    let mut bytes = &sent[..];
                    while !bytes.is_empty() && client.read_tls(&mut bytes).is_ok() {
                        if client.process_new_packets().is_err() {
                            break;
                        }
                    }
                }
            }
            while !side.secure.is_handshaking() && side.send(true, |length| length).is_some() {}
        }
        assert!(refused > 300 && answered > 100, "{refused} {answered}");
    }
}
