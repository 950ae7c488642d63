//! Redis lists: the bare minimum that can be called a queue (LPUSH, LMOVE to a list of active
//! jobs, LREM from it). No retry, no delay, no priority: it shows what Redis itself costs.

use std::collections::VecDeque;
use std::io::Write;

use crate::protocol::{Event, Handle, Job, Lane, Protocol, Wire, line, number, shown};

/// The request that the next answer belongs to.
enum Asked {
    Ping,
    Push(u32),
    Take,
    /// Removals of one ack: how many, and whether this is the last.
    Ack(u32, bool),
    /// The waiting ones, then the active ones.
    Left(Option<u64>),
}

pub struct Redis {
    queue: Vec<u8>,
    active: Vec<u8>,
    asked: VecDeque<Asked>,
}

impl Redis {
    pub fn new(lane: Lane) -> Self {
        Self {
            queue: format!("q{}", lane.queue).into_bytes(),
            active: format!("q{}:active", lane.queue).into_bytes(),
            asked: VecDeque::new(),
        }
    }

    fn answer(&mut self, answer: &Answer, wire: &mut Wire) -> Result<(), String> {
        let asked = self.asked.front_mut().ok_or("redis: an answer that nobody asked for")?;
        match (asked, answer) {
            (_, Answer::Error(text)) => return Err(format!("redis: {}", shown(text))),
            (Asked::Ping, Answer::Text) => wire.events.push(Event::Ready),
            (Asked::Push(count), Answer::Number(_)) => wire.events.push(Event::Pushed(*count)),
            (Asked::Take, Answer::Bytes(body)) => {
                let job = Job::new(body, Handle::Bytes((*body).into()))?;
                wire.events.push(Event::Delivered(job));
                wire.events.push(Event::TakeDone);
            }
            (Asked::Take, Answer::Nothing) => return Err("redis: the list is empty".to_owned()),
            (Asked::Ack(_, false), Answer::Number(1)) => {}
            (Asked::Ack(count, true), Answer::Number(1)) => wire.events.push(Event::Acked(*count)),
            (Asked::Left(waiting @ None), Answer::Number(count)) => {
                *waiting = Some(*count);
                return Ok(());
            }
            (Asked::Left(Some(waiting)), Answer::Number(active)) => {
                wire.events.push(Event::Left(*waiting + active));
            }
            _ => return Err("redis: an answer of the wrong kind".to_owned()),
        }
        self.asked.pop_front();
        Ok(())
    }
}

impl Protocol for Redis {
    fn greet(&mut self, wire: &mut Wire) {
        command(wire, &[b"PING"]);
        self.asked.push_back(Asked::Ping);
    }

    fn push(&mut self, wire: &mut Wire, payloads: &[u8], size: usize) -> Result<(), String> {
        let jobs = payloads.chunks(size);
        self.asked.push_back(Asked::Push(jobs.len() as u32));
        let words: Vec<&[u8]> = [b"LPUSH", self.queue.as_slice()].into_iter().chain(jobs).collect();
        command(wire, &words);
        Ok(())
    }

    fn take(&mut self, wire: &mut Wire, count: u32, wait: bool) {
        for _ in 0..count {
            let (queue, active) = (self.queue.as_slice(), self.active.as_slice());
            if wait {
                command(wire, &[b"BLMOVE", queue, active, b"RIGHT", b"LEFT", b"0"]);
            } else {
                command(wire, &[b"LMOVE", queue, active, b"RIGHT", b"LEFT"]);
            }
            self.asked.push_back(Asked::Take);
        }
    }

    fn ack(&mut self, wire: &mut Wire, jobs: &[Job]) {
        for (index, job) in jobs.iter().enumerate() {
            let Handle::Bytes(body) = &job.handle else { continue };
            // From the tail: the oldest active job is there, and is acknowledged first.
            command(wire, &[b"LREM", &self.active, b"-1", body]);
            self.asked.push_back(Asked::Ack(jobs.len() as u32, index + 1 == jobs.len()));
        }
    }

    fn left(&mut self, wire: &mut Wire) {
        command(wire, &[b"LLEN", &self.queue]);
        command(wire, &[b"LLEN", &self.active]);
        self.asked.push_back(Asked::Left(None));
    }

    fn read(&mut self, bytes: &[u8], wire: &mut Wire) -> Result<usize, String> {
        let mut done = 0;
        while let Some((answer, next)) = Answer::parse(bytes, done)? {
            self.answer(&answer, wire)?;
            done = next;
        }
        Ok(done)
    }
}

enum Answer<'a> {
    Text,
    Number(u64),
    Bytes(&'a [u8]),
    Nothing,
    Error(&'a [u8]),
}

impl<'a> Answer<'a> {
    fn parse(bytes: &'a [u8], from: usize) -> Result<Option<(Self, usize)>, String> {
        let Some((end, next)) = line(bytes, from) else { return Ok(None) };
        let text = &bytes[from + 1..end];
        Ok(match bytes[from] {
            b'+' => Some((Self::Text, next)),
            b'-' => Some((Self::Error(text), next)),
            b':' => Some((Self::Number(number(text)?), next)),
            b'$' | b'*' if text == b"-1" => Some((Self::Nothing, next)),
            b'$' => {
                let size = number(text)? as usize;
                let whole = bytes.len() >= next + size + 2;
                whole.then(|| (Self::Bytes(&bytes[next..next + size]), next + size + 2))
            }
            _ => return Err(format!("redis: {}", shown(&bytes[from..end]))),
        })
    }
}

fn command(wire: &mut Wire, words: &[&[u8]]) {
    let out = &mut wire.out;
    write!(out, "*{}\r\n", words.len()).expect("a Vec takes every write");
    for word in words {
        write!(out, "${}\r\n", word.len()).expect("a Vec takes every write");
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_only_when_it_is_whole() {
        let bytes = b"$5\r\nhello\r\n:12\r\n";
        for cut in 0..11 {
            assert!(Answer::parse(&bytes[..cut], 0).is_ok_and(|answer| answer.is_none()));
        }
        let (answer, next) = Answer::parse(bytes, 0).expect("sound").expect("whole");
        assert!(matches!(answer, Answer::Bytes(b"hello")));
        let (answer, _) = Answer::parse(bytes, next).expect("sound").expect("whole");
        assert!(matches!(answer, Answer::Number(12)));
    }

    #[test]
    fn a_job_that_was_not_active_is_an_error() {
        let mut lane = Redis::new(Lane { queue: 0, waking: false });
        lane.asked.push_back(Asked::Ack(1, true));
        assert!(lane.read(b":0\r\n", &mut Wire::default()).is_err());
    }
}
