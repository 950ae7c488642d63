//! NATS `JetStream`: a work-queue stream per queue in files, a durable pull consumer with explicit
//! acknowledgements. Batches go in by fast ingest (nats-server 2.14 and later; cheaper than its
//! atomic batches) and are confirmed as a whole; they come out of one pull, and their
//! acknowledgements follow each other on the wire and the last is confirmed, which confirms those
//! before it, because a consumer takes them in order.

use std::collections::VecDeque;
use std::io::Write;

use crate::protocol::{Event, Handle, Job, Lane, Protocol, Wire, line, number, shown};

/// How long a pull may wait at the server.
const EXPIRES_NS: u64 = 60_000_000_000;
const WAITING_TAKES_MAX: u32 = 25;
/// Kinds of replies, each with a subscription whose number is its place here. A delivered job keeps the subject that it
/// was pushed to, so only the subscription tells its kind.
const KINDS: [&str; 6] = ["stream", "consumer", "push", "take", "ack", "left"];
const BATCHES: usize = KINDS.len();
/// The steps of a batch, as the subject for its replies names them.
const BATCH_START: u8 = 0;
const BATCH_APPEND: u8 = 1;
const BATCH_COMMIT: u8 = 2;

pub struct Nats {
    name: String,
    /// Replies to this connection come to subjects below this.
    inbox: String,
    /// Replies to batches come to subjects below this, their numbers first.
    batch_inbox: String,
    batches: u64,
    /// Jobs of the pulls under way, front first.
    takes: VecDeque<u32>,
    acks: VecDeque<u32>,
    pushes: VecDeque<u32>,
}

impl Nats {
    pub fn new(lane: Lane, connection: usize) -> Self {
        let inbox = format!("_INBOX.{}-{connection}", std::process::id());
        let batch_inbox = format!("_BATCH{}-{connection}", std::process::id());
        let (takes, acks, pushes) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self {
            name: format!("Q{}", lane.queue),
            inbox,
            batch_inbox,
            batches: 0,
            takes,
            acks,
            pushes,
        }
    }

    fn request(&self, wire: &mut Wire, subject: &str, kind: &str, body: &str) {
        let inbox = &self.inbox;
        put(wire, format_args!("PUB {subject} {inbox}.{kind} {}\r\n{body}\r\n", body.len()));
    }

    fn consumer(&self) -> String {
        let settings = r#""ack_policy":"explicit","deliver_policy":"all","max_ack_pending":-1"#;
        let name = &self.name;
        format!(
            r#"{{"stream_name":"{name}","config":{{"durable_name":"w","ack_wait":600000000000,{settings}}}}}"#
        )
    }

    /// Flow control on the way, and the confirmation of the whole at the end.
    fn batch_reply(&mut self, body: &[u8], wire: &mut Wire) -> Result<(), String> {
        refuse_errors(body)?;
        let refused = || format!("nats: batch: {}", shown(body));
        let reply: serde_json::Value = serde_json::from_slice(body).map_err(|_| refused())?;
        match (reply["type"].as_str(), reply["count"].as_u64()) {
            (Some("ack"), _) => Ok(()),
            (None, Some(stored)) => {
                let count = self.pushes.pop_front().ok_or_else(refused)?;
                if u64::from(count) != stored {
                    return Err(refused());
                }
                wire.events.push(Event::Pushed(count));
                Ok(())
            }
            _ => Err(refused()),
        }
    }

    /// Handles a message of the server to this connection.
    fn message(&mut self, message: &Message, wire: &mut Wire) -> Result<(), String> {
        let body = message.body;
        if message.subscription == BATCHES {
            return self.batch_reply(body, wire);
        }
        match KINDS.get(message.subscription).copied().unwrap_or_default() {
            "stream" => {
                refuse_errors(body)?;
                let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.{}.w", self.name);
                self.request(wire, &subject, "consumer", &self.consumer());
            }
            "consumer" => {
                refuse_errors(body)?;
                wire.events.push(Event::Ready);
            }
            "push" => {
                refuse_errors(body)?;
                let count = self.pushes.pop_front().ok_or("nats: a push nobody made")?;
                wire.events.push(Event::Pushed(count));
            }
            "take" => {
                if !message.headers.is_empty() && message.reply.is_empty() {
                    return Err(format!("nats: pull: {}", shown(message.headers)));
                }
                let job = Job::new(body, Handle::Bytes(message.reply.into()))?;
                wire.events.push(Event::Delivered(job));
                let left = self.takes.front_mut().ok_or("nats: a job nobody pulled")?;
                *left -= 1;
                if *left == 0 {
                    self.takes.pop_front();
                    wire.events.push(Event::TakeDone);
                }
            }
            "ack" => {
                let count = self.acks.pop_front().ok_or("nats: an ack nobody made")?;
                wire.events.push(Event::Acked(count));
            }
            "left" => {
                refuse_errors(body)?;
                let text = String::from_utf8_lossy(body);
                let info: serde_json::Value =
                    serde_json::from_str(&text).map_err(|error| format!("nats: {error}"))?;
                let left = info["state"]["messages"].as_u64().ok_or("nats: no message count")?;
                wire.events.push(Event::Left(left));
            }
            _ => return Err("nats: a message of no subscription".to_owned()),
        }
        Ok(())
    }
}

impl Protocol for Nats {
    fn greet(&mut self, wire: &mut Wire) {
        let options = r#"{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}"#;
        let inbox = &self.inbox;
        put(wire, format_args!("CONNECT {options}\r\n"));
        for (number, kind) in KINDS.iter().enumerate() {
            put(wire, format_args!("SUB {inbox}.{kind} {number}\r\n"));
        }
        put(wire, format_args!("SUB {}.> {BATCHES}\r\n", self.batch_inbox));
        let name = &self.name;
        let stream = format!(
            r#"{{"name":"{name}","subjects":["{name}"],"retention":"workqueue","storage":"file","num_replicas":1,"allow_batched":true}}"#
        );
        self.request(wire, &format!("$JS.API.STREAM.CREATE.{name}"), "stream", &stream);
    }

    fn push(&mut self, wire: &mut Wire, payloads: &[u8], size: usize) -> Result<(), String> {
        let (name, inbox) = (&self.name, &self.inbox);
        let count = payloads.len() / size;
        self.pushes.push_back(count as u32);
        if count == 1 {
            put(wire, format_args!("PUB {name} {inbox}.push {size}\r\n"));
            wire.out.extend_from_slice(payloads);
            wire.out.extend_from_slice(b"\r\n");
            return Ok(());
        }
        self.batches += 1;
        let (batches, batch) = (&self.batch_inbox, self.batches);
        for (index, payload) in payloads.chunks(size).enumerate() {
            let step = match index {
                0 => BATCH_START,
                index if index + 1 == count => BATCH_COMMIT,
                _ => BATCH_APPEND,
            };
            let sequence = index + 1;
            put(
                wire,
                format_args!(
                    "PUB {name} {batches}.{batch}.{count}.fail.{sequence}.{step}.$FI {size}\r\n"
                ),
            );
            wire.out.extend_from_slice(payload);
            wire.out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    fn take(&mut self, wire: &mut Wire, count: u32, wait: bool) {
        let expires = if wait { EXPIRES_NS } else { EXPIRES_NS / 6 };
        let body = format!(r#"{{"batch":{count},"expires":{expires}}}"#);
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.w", self.name);
        self.request(wire, &subject, "take", &body);
        self.takes.push_back(count);
    }

    fn ack(&mut self, wire: &mut Wire, jobs: &[Job]) {
        for (index, job) in jobs.iter().enumerate() {
            let Handle::Bytes(subject) = &job.handle else { continue };
            wire.out.extend_from_slice(b"PUB ");
            wire.out.extend_from_slice(subject);
            if index + 1 == jobs.len() {
                put(wire, format_args!(" {}.ack", self.inbox));
            }
            wire.out.extend_from_slice(b" 4\r\n+ACK\r\n");
        }
        self.acks.push_back(jobs.len() as u32);
    }

    fn left(&mut self, wire: &mut Wire) {
        self.request(wire, &format!("$JS.API.STREAM.INFO.{}", self.name), "left", "");
    }

    fn waiting_takes_max(&self) -> u32 {
        WAITING_TAKES_MAX
    }

    fn read(&mut self, bytes: &[u8], wire: &mut Wire) -> Result<usize, String> {
        let mut done = 0;
        while let Some((end, next)) = line(bytes, done) {
            let text = &bytes[done..end];
            done = if text.starts_with(b"MSG ") || text.starts_with(b"HMSG ") {
                let Some((message, next)) = Message::parse(bytes, text, next)? else { break };
                self.message(&message, wire)?;
                next
            } else if text == b"PING" {
                wire.out.extend_from_slice(b"PONG\r\n");
                next
            } else if text.starts_with(b"INFO ") || text == b"PONG" || text == b"+OK" {
                next
            } else {
                return Err(format!("nats: {}", shown(text)));
            };
        }
        Ok(done)
    }
}

/// A message as it came, headers apart.
struct Message<'a> {
    subscription: usize,
    reply: &'a [u8],
    headers: &'a [u8],
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// `text` is the line that announces the message, `from` where its bytes begin.
    fn parse(
        bytes: &'a [u8],
        text: &'a [u8],
        from: usize,
    ) -> Result<Option<(Self, usize)>, String> {
        let words: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
        let sizes = if words[0] == b"HMSG" { 2 } else { 1 };
        if words.len() < 3 + sizes {
            return Err(format!("nats: {}", shown(text)));
        }
        let reply = if words.len() > 3 + sizes { words[3] } else { &[] };
        let all = number(words[words.len() - 1])? as usize;
        let head = if sizes == 2 { number(words[words.len() - 2])? as usize } else { 0 };
        if head > all {
            return Err(format!("nats: {}", shown(text)));
        }
        if bytes.len() < from + all + 2 {
            return Ok(None);
        }
        let (headers, body) = bytes[from..from + all].split_at(head);
        let subscription = number(words[2])? as usize;
        Ok(Some((Self { subscription, reply, headers, body }, from + all + 2)))
    }
}

fn refuse_errors(body: &[u8]) -> Result<(), String> {
    if body.windows(8).any(|window| window == b"\"error\":") || body.is_empty() {
        return Err(format!("nats: {}", shown(body)));
    }
    Ok(())
}

fn put(wire: &mut Wire, text: std::fmt::Arguments) {
    wire.out.write_fmt(text).expect("a Vec takes every write");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_with_and_without_reply_and_headers() {
        let mut bytes = b"MSG a 1 5\r\nhello\r\nHMSG b 3 r 6 9\r\nhead\r\nyou\r\n".to_vec();
        let mut texts = Vec::new();
        let mut from = 0;
        while let Some((end, next)) = line(&bytes, from) {
            let (message, next) =
                Message::parse(&bytes, &bytes[from..end], next).expect("sound").expect("whole");
            let parts = [message.reply, message.headers, message.body];
            texts.push((message.subscription, parts.map(shown)));
            from = next;
        }
        assert_eq!(texts[0], (1, ["", "", "hello"].map(str::to_owned)));
        assert_eq!(texts[1], (3, ["r", "head\r\n", "you"].map(str::to_owned)));
        bytes.truncate(15);
        let (end, next) = line(&bytes, 0).expect("a line");
        assert!(Message::parse(&bytes, &bytes[..end], next).expect("sound").is_none());
    }

    #[test]
    fn a_refused_push_is_an_error() {
        assert!(refuse_errors(br#"{"error":{"code":503},"stream":"Q0"}"#).is_err());
        assert!(refuse_errors(br#"{"stream":"Q0","seq":1}"#).is_ok());
    }
}
