//! `RabbitMQ` over AMQP 0-9-1: a durable quorum queue, persistent messages, publisher confirms, and
//! a consumer with a prefetch window whose acknowledgements may cover many deliveries at once.

use std::collections::BTreeSet;

use crate::protocol::{Event, Handle, Job, Lane, Protocol, Take, Wire, shown};

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xce;
const PERSISTENT: u8 = 2;
const DURABLE: u8 = 2;
const ACK_MULTIPLE: u8 = 1;

pub struct Amqp {
    queue: String,
    ready: bool,
    next_tag: u64,
    unconfirmed: BTreeSet<u64>,
    delivering: Option<Delivery>,
    delivered: u64,
    take: Take,
}

/// A delivery whose body has not come yet.
struct Delivery {
    tag: u64,
    size: Option<u64>,
    body: Vec<u8>,
}

impl Amqp {
    pub fn new(lane: Lane) -> Self {
        Self {
            queue: format!("q{}", lane.queue),
            ready: false,
            next_tag: 0,
            unconfirmed: BTreeSet::new(),
            delivering: None,
            delivered: 0,
            take: Take { batch: 1, window: 1, total: 0 },
        }
    }

    fn declare(&self, wire: &mut Wire) {
        method(&mut wire.out, 1, (50, 10), |out| {
            out.extend_from_slice(&[0, 0]);
            short(out, &self.queue);
            out.push(DURABLE);
            table(out, |out| {
                short(out, "x-queue-type");
                out.push(b'S');
                long(out, b"quorum");
            });
        });
    }

    fn on_method(&mut self, body: &[u8], wire: &mut Wire) -> Result<(), String> {
        let mut reader = Reader(body);
        let id = (reader.u16()?, reader.u16()?);
        let out = &mut wire.out;
        match id {
            // Connection: start, tune, open-ok.
            (10, 10) => method(out, 0, (10, 11), |out| {
                table(out, |_| {});
                short(out, "PLAIN");
                long(out, b"\0guest\0guest");
                short(out, "en_US");
            }),
            (10, 30) => {
                let limits = reader.take(6)?;
                method(out, 0, (10, 31), |out| {
                    out.extend_from_slice(limits);
                    out.extend_from_slice(&[0, 0]);
                });
                method(out, 0, (10, 40), |out| {
                    short(out, "/");
                    short(out, "");
                    out.push(0);
                });
            }
            (10, 41) => method(out, 1, (20, 10), |out| short(out, "")),
            (20, 11) => self.declare(wire),
            // Queue declared: at the setting up, or when its count was asked for.
            (50, 11) if self.ready => {
                reader.short()?;
                wire.events.push(Event::Left(u64::from(reader.u32()?)));
            }
            (50, 11) => method(out, 1, (85, 10), |out| out.push(0)),
            (85, 11) => {
                self.ready = true;
                wire.events.push(Event::Ready);
            }
            // Basic: qos-ok, consume-ok, cancel-ok, deliver, ack of a publish.
            (60, 11 | 21) => {}
            (60, 31) => wire.events.push(Event::Ended),
            (60, 60) => {
                reader.short()?;
                self.delivering = Some(Delivery { tag: reader.u64()?, size: None, body: vec![] });
            }
            (60, 80) => {
                let (tag, multiple) = (reader.u64()?, reader.u8()? & 1 == 1);
                self.confirm(tag, multiple, wire)?;
            }
            (class, number) => {
                let text = shown(body.get(4..).unwrap_or_default());
                return Err(format!("amqp: method {class}.{number}: {text}"));
            }
        }
        Ok(())
    }

    fn confirm(&mut self, tag: u64, multiple: bool, wire: &mut Wire) -> Result<(), String> {
        let before = self.unconfirmed.len();
        if multiple {
            self.unconfirmed = self.unconfirmed.split_off(&(tag + 1));
        } else {
            self.unconfirmed.remove(&tag);
        }
        let count = before - self.unconfirmed.len();
        if count == 0 {
            return Err(format!("amqp: publish {tag} was confirmed twice"));
        }
        wire.events.push(Event::Pushed(count as u32));
        Ok(())
    }

    fn on_content(&mut self, kind: u8, bytes: &[u8], wire: &mut Wire) -> Result<(), String> {
        let stray = "amqp: content of no delivery";
        let delivery = self.delivering.as_mut().ok_or(stray)?;
        if kind == HEADER {
            let mut reader = Reader(bytes);
            reader.take(4)?;
            delivery.size = Some(reader.u64()?);
        } else {
            delivery.body.extend_from_slice(bytes);
        }
        if delivery.size != Some(delivery.body.len() as u64) {
            return Ok(());
        }
        let Delivery { tag, body, .. } = self.delivering.take().ok_or(stray)?;
        wire.events.push(Event::Delivered(Job::new(&body, Handle::Number(tag))?));
        self.delivered += 1;
        let whole = self.delivered.is_multiple_of(u64::from(self.take.batch));
        if whole || self.delivered == self.take.total {
            wire.events.push(Event::TakeDone);
        }
        Ok(())
    }
}

impl Protocol for Amqp {
    fn greet(&mut self, wire: &mut Wire) {
        wire.out.extend_from_slice(b"AMQP\x00\x00\x09\x01");
    }

    fn push(&mut self, wire: &mut Wire, payloads: &[u8], size: usize) -> Result<(), String> {
        for payload in payloads.chunks(size) {
            let out = &mut wire.out;
            method(out, 1, (60, 40), |out| {
                out.extend_from_slice(&[0, 0]);
                short(out, "");
                short(out, &self.queue);
                out.push(0);
            });
            frame(out, HEADER, 1, |out| {
                out.extend_from_slice(&[0, 60, 0, 0]);
                out.extend_from_slice(&(size as u64).to_be_bytes());
                // Only the delivery mode is set.
                out.extend_from_slice(&[0x10, 0x00, PERSISTENT]);
            });
            frame(out, BODY, 1, |out| out.extend_from_slice(payload));
            self.next_tag += 1;
            self.unconfirmed.insert(self.next_tag);
        }
        Ok(())
    }

    fn begin(&mut self, wire: &mut Wire, take: Take) {
        self.take = take;
        self.delivered = 0;
        let prefetch = (take.batch * take.window).min(u32::from(u16::MAX)) as u16;
        method(&mut wire.out, 1, (60, 10), |out| {
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&prefetch.to_be_bytes());
            out.push(0);
        });
        method(&mut wire.out, 1, (60, 20), |out| {
            out.extend_from_slice(&[0, 0]);
            short(out, &self.queue);
            short(out, "w");
            out.push(0);
            table(out, |_| {});
        });
    }

    /// The server sends without being asked, as far as the prefetch window goes.
    fn take(&mut self, _wire: &mut Wire, _count: u32, _wait: bool) {}

    fn ack(&mut self, wire: &mut Wire, jobs: &[Job]) {
        let tags =
            jobs.iter().map(|job| if let Handle::Number(tag) = job.handle { tag } else { 0 });
        let tag = tags.max().unwrap_or(0);
        method(&mut wire.out, 1, (60, 80), |out| {
            out.extend_from_slice(&tag.to_be_bytes());
            out.push(if jobs.len() > 1 { ACK_MULTIPLE } else { 0 });
        });
        // The protocol confirms no acknowledgement: what is left is counted at the end.
        wire.events.push(Event::Acked(jobs.len() as u32));
    }

    fn end(&mut self, wire: &mut Wire) {
        method(&mut wire.out, 1, (60, 30), |out| {
            short(out, "w");
            out.push(0);
        });
    }

    fn left(&mut self, wire: &mut Wire) {
        self.declare(wire);
    }

    fn waiting_takes_max(&self) -> u32 {
        25
    }

    fn read(&mut self, bytes: &[u8], wire: &mut Wire) -> Result<usize, String> {
        let mut done = 0;
        while let Some(head) = bytes.get(done..done + 7) {
            if head.starts_with(b"AMQP") {
                return Err("amqp: the server speaks another version".to_owned());
            }
            let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
            let Some(rest) = bytes.get(done + 7..done + 7 + size + 1) else { break };
            let (body, end) = rest.split_at(size);
            if end != [FRAME_END] {
                return Err("amqp: a frame without its end".to_owned());
            }
            match head[0] {
                METHOD => self.on_method(body, wire)?,
                HEADER | BODY => self.on_content(head[0], body, wire)?,
                HEARTBEAT => {}
                kind => return Err(format!("amqp: a frame of kind {kind}")),
            }
            done += 7 + size + 1;
        }
        Ok(done)
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("amqp: a frame too short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self, count: usize) -> Result<u64, String> {
        Ok(self.take(count)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn u8(&mut self) -> Result<u8, String> {
        Ok(self.number(1)? as u8)
    }

    fn u16(&mut self) -> Result<u16, String> {
        Ok(self.number(2)? as u16)
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(self.number(4)? as u32)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.number(8)
    }

    fn short(&mut self) -> Result<&'a [u8], String> {
        let size = self.u8()?;
        self.take(usize::from(size))
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, channel: u16, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    out.extend_from_slice(&channel.to_be_bytes());
    sized(out, body);
    out.push(FRAME_END);
}

fn method(out: &mut Vec<u8>, channel: u16, id: (u16, u16), body: impl FnOnce(&mut Vec<u8>)) {
    frame(out, METHOD, channel, |out| {
        out.extend_from_slice(&id.0.to_be_bytes());
        out.extend_from_slice(&id.1.to_be_bytes());
        body(out);
    });
}

fn table(out: &mut Vec<u8>, fields: impl FnOnce(&mut Vec<u8>)) {
    sized(out, fields);
}

fn short(out: &mut Vec<u8>, text: &str) {
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

fn long(out: &mut Vec<u8>, bytes: &[u8]) {
    sized(out, |out| out.extend_from_slice(bytes));
}

/// Something behind its length in four bytes.
fn sized(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let size = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane() -> Amqp {
        Amqp::new(Lane { queue: 0, waking: false })
    }

    fn confirmed(wire: &Wire) -> u32 {
        let count = |event: &Event| if let Event::Pushed(count) = event { *count } else { 0 };
        wire.events.iter().map(count).sum()
    }

    #[test]
    fn confirms_out_of_order_and_of_many_are_counted_once_each() {
        let (mut lane, mut wire) = (lane(), Wire::default());
        lane.push(&mut wire, &[b'x'; 500], 100).expect("pushes");
        lane.confirm(3, false, &mut wire).expect("the third");
        lane.confirm(4, true, &mut wire).expect("all up to the fourth");
        assert_eq!(confirmed(&wire), 4);
        assert!(lane.confirm(3, false, &mut wire).is_err());
    }

    #[test]
    fn a_delivery_comes_in_frames_and_whole() {
        let (mut lane, mut bytes) = (lane(), Vec::new());
        method(&mut bytes, 1, (60, 60), |out| {
            short(out, "w");
            out.extend_from_slice(&9_u64.to_be_bytes());
            out.push(0);
            short(out, "");
            short(out, "q0");
        });
        frame(&mut bytes, HEADER, 1, |out| {
            out.extend_from_slice(&[0, 60, 0, 0]);
            out.extend_from_slice(&100_u64.to_be_bytes());
            out.extend_from_slice(&[0, 0]);
        });
        frame(&mut bytes, BODY, 1, |out| crate::payload::write(out, 5, 6, 100));
        let mut wire = Wire::default();
        let cut = bytes.len() - 1;
        let done = lane.read(&bytes[..cut], &mut wire).expect("two whole frames");
        assert!(wire.events.is_empty());
        lane.read(&bytes[done..], &mut wire).expect("the third");
        let Event::Delivered(job) = &wire.events[0] else { panic!("no delivery") };
        assert!(job.sequence == 5 && matches!(job.handle, Handle::Number(9)));
    }
}
