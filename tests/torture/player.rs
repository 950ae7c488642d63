//! A client that does a little of everything, and leaves in the middle of it now and then.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::support::{Client, Dice};
use crate::torture::commands::{Command, Maker, QUEUES, Weather};
use crate::torture::face::{Door, Face, Kind, OVER_HTTP, Said, shows_wrong_token};
use crate::torture::known::Known;
use crate::torture::ledger::Ledger;
use crate::torture::refusals::is_expected;
use crate::torture::trace::Trace;

/// State shared by all clients.
pub(crate) struct Shared {
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) known: Mutex<Known>,
    pub(crate) trace: Trace,
    /// Commands sent in this round.
    pub(crate) sent: Arc<AtomicU64>,
    /// A player still sends pings.
    pub(crate) pinging: AtomicBool,
    /// From now on connections may end without a reason.
    pub(crate) ending: AtomicBool,
    /// The first thing that was wrong.
    pub(crate) finding: Mutex<Option<String>>,
    /// How often each command was answered with ok, and how often at all.
    pub(crate) played: Mutex<BTreeMap<&'static str, (u64, u64)>>,
    /// How often each refusal came.
    pub(crate) refusals: Mutex<BTreeMap<String, u64>>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            ledger: Mutex::default(),
            known: Mutex::default(),
            trace: Trace::new(),
            sent: Arc::default(),
            pinging: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            finding: Mutex::default(),
            played: Mutex::default(),
            refusals: Mutex::default(),
        }
    }

    pub(crate) fn found(&self, what: String) {
        self.finding.lock().unwrap().get_or_insert(what);
    }

    fn is_over(&self) -> bool {
        self.ending.load(Ordering::SeqCst) || self.finding.lock().unwrap().is_some()
    }
}

/// Several times what may wait for a client that does not read.
const PINGS_BYTES: usize = 300 << 20;

/// A client that sends random commands.
pub(crate) struct Player<'a> {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) door: &'a Door,
    pub(crate) shared: &'a Shared,
    pub(crate) weather: &'a Weather,
    pub(crate) dice: Dice,
}

impl Player<'_> {
    /// Plays until the round is over.
    pub(crate) fn play(mut self) {
        while !self.shared.is_over() {
            let result = self.session();
            let Err(error) = result else { continue };
            self.shared.trace.note(&self.name, || format!("connection ended: {error}"));
            if self.shared.is_over() {
                return;
            }
            // A server that dies under its clients is found by who watches it, and says more.
            std::thread::sleep(Duration::from_secs(2));
            if !self.shared.is_over() {
                self.shared.found(format!("the connection of {} ended: {error}", self.name));
            }
        }
    }

    /// Plays over a connection until it is left.
    fn session(&mut self) -> Result<()> {
        let queue = (self.dice.roll(2) == 0).then_some(QUEUES[self.dice.roll(4) as usize]);
        let mut face = Face::open(self.kind, self.door, queue)?;
        self.shared.trace.note(&self.name, || format!("connected, {:?}", self.kind));
        let number = || {
            let mut ledger = self.shared.ledger.lock().unwrap();
            ledger.next_number += 1;
            ledger.next_number - 1
        };
        let dice = Dice::new(self.dice.roll(u64::MAX));
        let mut maker = Maker { dice, weather: self.weather, number: &number };
        if self.kind == Kind::Tcp && maker.roll(10) == 0 {
            self.knock_wrongly()?;
        }
        loop {
            if self.shared.is_over() {
                return Ok(());
            }
            let commands = self.draw(&mut maker);
            let mut open = BTreeMap::new();
            for command in commands {
                self.shared.trace.note(&self.name, || format!("> {command}"));
                self.shared.ledger.lock().unwrap().sending(&command);
                self.shared.sent.fetch_add(1, Ordering::SeqCst);
                open.insert(face.send(&command)?, command);
            }
            if maker.roll(25) == 0 || open.values().any(|command| command.is_endless) {
                self.shared.trace.note(&self.name, || "leaves without waiting".to_owned());
                return Ok(());
            }
            while !open.is_empty() {
                match face.recv()? {
                    Said::Event(event) => self.heard(&event),
                    Said::Reply(number, reply) => match open.remove(&number) {
                        Some(command) => self.answered(&command, &reply),
                        None => self.shared.found(format!("a reply to nothing: {reply}")),
                    },
                }
            }
        }
    }

    /// Some commands, to be sent at once.
    fn draw(&self, maker: &mut Maker<'_>) -> Vec<Command> {
        let mut known = self.shared.known.lock().unwrap();
        let count = if self.kind == Kind::Http { 1 } else { 1 + maker.roll(8) };
        let mut commands = Vec::new();
        while commands.len() < count as usize {
            let command = maker.command(&known);
            if self.kind == Kind::Http && !OVER_HTTP.contains(&command.name) {
                continue;
            }
            if maker.roll(4) > 0 {
                known.end(&command);
            }
            commands.push(command);
        }
        commands
    }

    fn heard(&self, event: &Json) {
        const EVENTS: [&str; 14] = [
            "pushed",
            "pulled",
            "completed",
            "failed",
            "progress",
            "stalled",
            "removed",
            "delayed",
            "duplicated",
            "retried",
            "waiting-children",
            "drained",
            "paused",
            "resumed",
        ];
        // Events asked for by name may bear the names of dashboards, and say what is missing.
        let is_named = event["event"].as_str().is_some_and(|name| name.contains(':'));
        let is_notice = ["missed", "passed-over"].iter().any(|kind| event["eventType"] == *kind);
        if is_named && event["ts"].is_u64() || is_notice && event["count"].is_u64() {
            return;
        }
        let is_known = event["eventType"].as_str().is_some_and(|kind| EVENTS.contains(&kind));
        if !is_known || !event["queue"].is_string() || !event["timestamp"].is_u64() {
            self.shared.found(format!("a strange event: {event}"));
        }
    }

    fn answered(&self, command: &Command, reply: &Json) {
        let shared = self.shared;
        shared.trace.note(&self.name, || format!("< {} {reply}", command.name));
        let (is_ok, error) = (reply["ok"] == true, reply["error"].as_str().unwrap_or_default());
        let mut played = shared.played.lock().unwrap();
        let counts = played.entry(command.name).or_default();
        counts.0 += u64::from(is_ok);
        counts.1 += 1;
        drop(played);
        if !is_ok {
            let words = error.split(' ').take(6).collect::<Vec<_>>().join(" ");
            *shared.refusals.lock().unwrap().entry(words).or_default() += 1;
            if !is_expected(command.name, error) {
                shared.found(format!("{error:?} was the answer to {command}"));
            }
        }
        // Commands for active jobs alone: for other jobs, a token says nothing.
        let ends = ["ACK", "FAIL", "JobHeartbeat", "ExtendLock", "MoveToWaitingChildren"];
        let passed = is_ok && reply["data"]["applied"] != false;
        if passed && ends.contains(&command.name) && shows_wrong_token(command) {
            shared.found(format!("a token that fits nothing was taken: {command}"));
        }
        if command.name == "PUSHB" && is_ok {
            let asked = command.fields["jobs"].as_array().map(Vec::len);
            if reply["ids"].as_array().map(Vec::len) != asked {
                shared.found(format!("other ids than jobs, {reply}, for {command}"));
            }
        }
        shared.ledger.lock().unwrap().answered(command, reply);
        shared.known.lock().unwrap().learn(reply);
    }

    /// Without a token a client gets no answer, where there are tokens.
    fn knock_wrongly(&self) -> Result<()> {
        let mut stranger = Client::try_connect(self.door.tcp)?;
        let reply = stranger.try_call("Auth", json!({"token": "wrong"}))?;
        let is_guarded = self.door.token.is_some();
        let next = stranger.try_call("Stats", json!({}))?;
        if (reply["ok"] == false) != is_guarded || (next["ok"] == false) != is_guarded {
            self.shared.found(format!("a wrong token was answered {reply}, then {next}"));
        }
        Ok(())
    }
}

/// Pings and never reads, until the server takes no more: far before [`PINGS_BYTES`].
pub(crate) fn ping(door: &Door, shared: &Shared) -> Result<()> {
    use crate::support::stream::{PING, UPGRADE, WebSocket, client_frame};
    let headers = format!("{UPGRADE}{}", door.headers());
    let mut socket = WebSocket::try_open(door.http, "/ws", &headers)?;
    let pings = client_frame(true, PING, &[7; 125]).repeat(100);
    socket.socket.get_mut().set_write_timeout(Some(Duration::from_millis(200)))?;
    for _ in 0..PINGS_BYTES / pings.len() {
        if shared.is_over() {
            return Ok(());
        }
        socket.send_bytes(&pings)?;
    }
    shared.found(format!("{PINGS_BYTES} bytes of pings were taken of a client that never reads"));
    Ok(())
}

/// Opens a stream of events over HTTP and reads it until the round is over, or never.
pub(crate) fn listen(door: &Door, shared: &Shared, reads: bool) -> Result<()> {
    let mut socket = TcpStream::connect(("127.0.0.1", door.http))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let head = format!("GET /events HTTP/1.1\r\nHost: localhost\r\n{}\r\n", door.headers());
    socket.write_all(head.as_bytes())?;
    let (mut text, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    while !shared.is_over() {
        if !reads {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        match socket.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(bytes) => text.extend_from_slice(&chunk[..bytes]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
        while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
            let message: Vec<u8> = text.drain(..end + 2).collect();
            let Some(json) = message.strip_prefix(b"data: ") else { continue };
            if serde_json::from_slice::<Json>(json).is_err() {
                let message = String::from_utf8_lossy(&message);
                shared.found(format!("an event that is no JSON: {message}"));
            }
        }
    }
    Ok(())
}
