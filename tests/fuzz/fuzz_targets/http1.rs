//! Requests over HTTP from any bytes, in any pieces.
//!
//! Promises: reading never panics; how the bytes are split changes nothing of what is read, nor
//! whether it is refused; nothing that is read exceeds its limit; what is left is less than a head
//! and a line.
#![no_main]

use corq::api::error::ErrorKind;
use corq::protocol::http1::body::{Body, Limit};
use corq::protocol::http1::head;
use corq::protocol::http1::target::{Target, segment};
use corq::protocol::http1::{BODY_BYTES_MAX, HEAD_BYTES_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (bytes, cuts) = input;
    let mut whole = Listener::default();
    whole.hear(&bytes);
    let mut split = Listener::default();
    let mut rest = &bytes[..];
    for cut in cuts {
        let (piece, behind) = rest.split_at(usize::from(cut).min(rest.len()));
        split.hear(piece);
        rest = behind;
    }
    split.hear(rest);
    assert_eq!(whole.said, split.said);
    assert_eq!(whole.problem, split.problem);
});

#[derive(Default)]
struct Listener {
    pending: Vec<u8>,
    seen: usize,
    reading: Option<Body>,
    said: Vec<(String, Vec<u8>)>,
    problem: Option<ErrorKind>,
}

impl Listener {
    fn hear(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while self.problem.is_none() {
            match self.step() {
                Ok(0) => {
                    assert!(self.pending.len() < HEAD_BYTES_MAX);
                    return;
                }
                Ok(used) => drop(self.pending.drain(..used)),
                Err(problem) => self.problem = Some(problem),
            }
        }
    }

    fn step(&mut self) -> Result<usize, ErrorKind> {
        if let Some(mut body) = self.reading.take() {
            let used = body.take(&self.pending)?;
            if body.is_whole() {
                let bytes = body.into_bytes();
                assert!(bytes.len() <= BODY_BYTES_MAX);
                self.said.push((String::new(), bytes));
            } else {
                self.reading = Some(body);
            }
            return Ok(used);
        }
        let empty = head::empty_lines(&self.pending);
        if empty > 0 || self.pending.is_empty() {
            return Ok(empty);
        }
        let Some(head) = head::read(&self.pending, &mut self.seen)? else { return Ok(0) };
        assert!(head.raw.ends_with(b"\r\n\r\n"));
        let _ = head.headers("host").count();
        let target = Target::of(head.target);
        let _ = target.value("timeout");
        for part in target.path.split('/') {
            let _ = segment(part);
        }
        Limit::COMMAND.check(head.length)?;
        self.said.push((format!("{:?} {}", head.method, head.target), Vec::new()));
        self.reading = Some(Body::new(head.length, true, Limit::COMMAND)).filter(|body| !body.is_whole());
        Ok(head.raw.len())
    }
}
