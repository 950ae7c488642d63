//! beanstalkd: a text protocol, answered in order. Requests may follow each other on the wire
//! unanswered; there are no batches.

use std::collections::VecDeque;
use std::io::Write;

use crate::protocol::{Event, Handle, Job, Lane, Protocol, Wire, line, number, shown};

/// Seconds that a worker has for a job.
const TTR: u32 = 600;

pub struct Beanstalkd {
    tube: String,
    /// Answers still to come before the connection is set up.
    greeting: u32,
    /// Deletions of one ack that are unanswered, front first.
    acks: VecDeque<(u32, u32)>,
}

impl Beanstalkd {
    pub fn new(lane: Lane) -> Self {
        Self { tube: format!("q{}", lane.queue), greeting: 3, acks: VecDeque::new() }
    }

    fn greeted(&mut self, wire: &mut Wire) {
        self.greeting -= 1;
        if self.greeting == 0 {
            wire.events.push(Event::Ready);
        }
    }

    fn deleted(&mut self, wire: &mut Wire) -> Result<(), String> {
        let (all, left) = self.acks.front_mut().ok_or("DELETED that nobody asked for")?;
        *left -= 1;
        if *left == 0 {
            wire.events.push(Event::Acked(*all));
            self.acks.pop_front();
        }
        Ok(())
    }
}

impl Protocol for Beanstalkd {
    fn greet(&mut self, wire: &mut Wire) {
        let tube = &self.tube;
        put(wire, format_args!("use {tube}\r\nwatch {tube}\r\nignore default\r\n"));
    }

    fn push(&mut self, wire: &mut Wire, payloads: &[u8], size: usize) -> Result<(), String> {
        for payload in payloads.chunks(size) {
            put(wire, format_args!("put 1024 0 {TTR} {size}\r\n"));
            wire.out.extend_from_slice(payload);
            wire.out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    fn take(&mut self, wire: &mut Wire, count: u32, _wait: bool) {
        for _ in 0..count {
            wire.out.extend_from_slice(b"reserve\r\n");
        }
    }

    fn ack(&mut self, wire: &mut Wire, jobs: &[Job]) {
        for job in jobs {
            let Handle::Number(id) = job.handle else { continue };
            put(wire, format_args!("delete {id}\r\n"));
        }
        self.acks.push_back((jobs.len() as u32, jobs.len() as u32));
    }

    fn left(&mut self, wire: &mut Wire) {
        put(wire, format_args!("stats-tube {}\r\n", self.tube));
    }

    fn read(&mut self, bytes: &[u8], wire: &mut Wire) -> Result<usize, String> {
        let mut done = 0;
        while let Some((end, mut next)) = line(bytes, done) {
            let text = &bytes[done..end];
            let mut words = text.split(|byte| *byte == b' ');
            match words.next().unwrap_or_default() {
                b"USING" | b"WATCHING" => self.greeted(wire),
                b"INSERTED" => wire.events.push(Event::Pushed(1)),
                b"DELETED" => self.deleted(wire)?,
                b"RESERVED" => {
                    let id = number(words.next().unwrap_or_default())?;
                    let size = number(words.next().unwrap_or_default())? as usize;
                    let Some(body) = bytes.get(next..next + size) else { break };
                    if bytes.len() < next + size + 2 {
                        break;
                    }
                    next += size + 2;
                    wire.events.push(Event::Delivered(Job::new(body, Handle::Number(id))?));
                    wire.events.push(Event::TakeDone);
                }
                b"OK" => {
                    let size = number(words.next().unwrap_or_default())? as usize;
                    let Some(body) = bytes.get(next..next + size) else { break };
                    if bytes.len() < next + size + 2 {
                        break;
                    }
                    next += size + 2;
                    wire.events.push(Event::Left(current_jobs(body)?));
                }
                b"NOT_FOUND" if self.acks.is_empty() => wire.events.push(Event::Left(0)),
                _ => return Err(format!("beanstalkd: {}", shown(text))),
            }
            done = next;
        }
        Ok(done)
    }
}

/// Ready, reserved, delayed and buried jobs in the statistics of a tube.
fn current_jobs(yaml: &[u8]) -> Result<u64, String> {
    let mut jobs = 0;
    for text in yaml.split(|byte| *byte == b'\n') {
        let counted = ["ready", "reserved", "delayed", "buried"];
        let key = |state| format!("current-jobs-{state}: ");
        if let Some(key) = counted.map(key).iter().find(|key| text.starts_with(key.as_bytes())) {
            jobs += number(&text[key.len()..])?;
        }
    }
    Ok(jobs)
}

fn put(wire: &mut Wire, text: std::fmt::Arguments) {
    wire.out.write_fmt(text).expect("a Vec takes every write");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane() -> Beanstalkd {
        Beanstalkd::new(Lane { queue: 0, waking: false })
    }

    #[test]
    fn a_reservation_is_read_only_when_it_is_whole() {
        let mut bytes = b"RESERVED 7 100\r\n".to_vec();
        crate::payload::write(&mut bytes, 3, 4, 100);
        bytes.extend_from_slice(b"\r\nDELETED\r\n");
        for cut in 0..117 {
            let mut wire = Wire::default();
            assert_eq!(lane().read(&bytes[..cut], &mut wire), Ok(0));
        }
        let (mut lane, mut wire) = (lane(), Wire::default());
        lane.acks.push_back((1, 1));
        assert_eq!(lane.read(&bytes, &mut wire), Ok(bytes.len()));
        let Event::Delivered(job) = &wire.events[0] else { panic!("no delivery") };
        assert_eq!((job.sequence, job.sent_ns), (3, 4));
        assert!(matches!(wire.events[2], Event::Acked(1)));
    }

    #[test]
    fn a_refusal_is_an_error() {
        assert!(lane().read(b"OUT_OF_MEMORY\r\n", &mut Wire::default()).is_err());
    }
}
