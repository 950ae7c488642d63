//! TLS on one connection against the other end of the same library, in any pieces and with any bytes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
use super::*;
use crate::net::output::SEND_BYTES_MAX;
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
        ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap()
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
    tls: TlsSession,
    output: Output,
    pool: Pool,
    heard: Vec<u8>,
}

impl Side {
    fn new(config: &Arc<ServerConfig>) -> Self {
        let tls = TlsSession::new(Arc::clone(config), 0);
        Self { tls, output: Output::default(), pool: Pool::default(), heard: Vec::new() }
    }

    fn take(&mut self, bytes: &mut [u8]) -> Result<(), rustls::Error> {
        if self.tls.is_handshaking() {
            assert!(self.tls.receive(bytes));
            let opened = self.tls.open(&mut [], &mut self.pool);
            self.heard.extend_from_slice(&opened.plain);
            return opened.outcome;
        }
        let opened = self.tls.open(bytes, &mut self.pool);
        self.heard.extend_from_slice(&opened.plain);
        opened.outcome
    }

    fn say(&mut self, bytes: &[u8]) {
        self.output.filling(&mut self.pool).extend_from_slice(bytes);
        self.output.allow(u64::MAX);
    }

    /// Sends a piece, or a part of it.
    fn send(&mut self, over: bool, part: impl FnOnce(usize) -> usize) -> Option<Vec<u8>> {
        let piece = self.tls.next_send(&mut self.output, over, &mut self.pool).unwrap()?;
        let piece = piece[..part(piece.len())].to_vec();
        self.tls.complete(piece.len(), &mut self.pool);
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
                if !side.tls.is_handshaking() && dice.roll(4) == 0 {
                    let sent = side.send(false, |length| 1 + dice.roll(length));
                    give(&mut client, &sent.unwrap_or_default(), &mut said);
                }
            }
            // Before the end of a handshake only the handshake itself may write_record.
            let mut nothing = Output::default();
            let handshakes = side.tls.is_handshaking();
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
        let TlsSession { incoming, wire, next, .. } = &side.tls;
        assert_eq!(incoming.capacity() + wire.capacity() + next.capacity(), 0);
        assert!(side.output.next_send(SEND_BYTES_MAX).is_none());
        client.send_close_notify();
        side.take(&mut written(&mut client)).unwrap();
        assert!(side.tls.peer_closed);
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
                // A client that has found a fault takes no more.
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
                if side.tls.is_handshaking() && !side.tls.receive(now) {
                    break 'talk;
                }
                let handshakes = side.tls.is_handshaking();
                let opened = side.tls.open(if handshakes { &mut [] } else { now }, &mut side.pool);
                if opened.outcome.is_err() {
                    refused += 1;
                    side.tls.fail();
                    side.output.discard(&mut side.pool);
                    while side.send(true, |length| length).is_some() {}
                    break 'talk;
                }
                if !side.tls.is_handshaking() {
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
        while !side.tls.is_handshaking() && side.send(true, |length| length).is_some() {}
    }
    assert!(refused > 300 && answered > 100, "{refused} {answered}");
}
