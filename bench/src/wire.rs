//! Requests, encoded once and patched for ever: a frame that differs from the one before it in a
//! number or two is a copy and a few stores, so that the generator costs less than the server.
//!
//! Every number that changes has a fixed width (`uint32`, `float64`), which is what makes the
//! offsets constant. Ids and tokens come from the server and go back as the bytes they came in.

use std::ops::Range;

use rmp::encode as mp;

/// Settings that the requests of a run are built from.
pub(crate) struct Shape<'a> {
    pub(crate) queues: &'a [String],
    pub(crate) payload_bytes: usize,
    /// Bytes of a payload's filler that differ from job to job.
    pub(crate) noise_bytes: usize,
    pub(crate) durable: bool,
    /// Priorities are at random below this.
    pub(crate) priorities: Option<u32>,
    /// Delays are at random from this to its double, in milliseconds.
    pub(crate) delay_ms: Option<u32>,
    pub(crate) owner: Option<&'a str>,
    pub(crate) lock_ttl_ms: u32,
}

impl Shape<'_> {
    /// How many options each job is pushed with.
    fn options(&self) -> u32 {
        u32::from(self.durable)
            + u32::from(self.priorities.is_some())
            + u32::from(self.delay_ms.is_some())
    }
}

/// The templates of one run, by queue where the queue's name is in them.
pub(crate) struct Templates {
    push: Vec<Template>,
    batch_head: Vec<Template>,
    batch_job: Template,
    pull: Vec<Template>,
    pull_batch: Vec<Template>,
    ack: Template,
    ack_batch: Template,
}

/// Bytes, and where in them the changing numbers lie.
#[derive(Default)]
struct Template {
    bytes: Vec<u8>,
    request: usize,
    sequence: usize,
    sent: usize,
    noise: Range<usize>,
    priority: Option<Chance>,
    delay: Option<Chance>,
    count: usize,
    timeout: usize,
}

/// A number that differs from job to job: where it lies, and the numbers it is one of.
#[derive(Clone, Copy)]
struct Chance {
    at: usize,
    from: u32,
    range: u32,
}

impl Chance {
    /// Looks like chance, but is the same in every run.
    fn of(self, sequence: u32) -> u32 {
        let mixed = u64::from(sequence).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.from + ((mixed * u64::from(self.range)) >> 32) as u32
    }
}

/// The smallest payload that holds a sequence number and a time.
pub(crate) const PAYLOAD_BYTES_MIN: usize = 24;

impl Templates {
    pub(crate) fn new(shape: &Shape) -> Self {
        let queues = || shape.queues.iter();
        Self {
            push: queues().map(|queue| push(shape, queue)).collect(),
            batch_head: queues().map(|queue| batch_head(queue)).collect(),
            batch_job: batch_job(shape),
            pull: queues().map(|queue| pull(shape, queue, false)).collect(),
            pull_batch: queues().map(|queue| pull(shape, queue, true)).collect(),
            ack: ack(shape.owner.is_some(), "ACK", "id"),
            ack_batch: ack(shape.owner.is_some(), "ACKB", "ids"),
        }
    }

    /// A single push of the job `sequence`, intended to leave at `sent` (microseconds).
    pub(crate) fn push(
        &self,
        out: &mut Vec<u8>,
        queue: usize,
        request: u32,
        sequence: u32,
        sent: f64,
    ) {
        let template = &self.push[queue];
        let base = template.copy(out);
        put_u32(out, base + template.request, request);
        template.fill(out, base, sequence, sent);
    }

    /// A push of `count` jobs numbered from `sequence`.
    pub(crate) fn push_batch(
        &self,
        out: &mut Vec<u8>,
        queue: usize,
        request: u32,
        sequence: u32,
        count: u32,
        sent: f64,
    ) {
        let head = &self.batch_head[queue];
        let base = head.copy(out);
        put_u32(out, base + head.request, request);
        put_u32(out, base + head.count, count);
        for index in 0..count {
            let at = self.batch_job.copy(out);
            self.batch_job.fill(out, at, sequence + index, sent);
        }
        close(out, base);
    }

    /// A pull of one job (`count` 1, command PULL) or of a batch (PULLB).
    pub(crate) fn pull(
        &self,
        out: &mut Vec<u8>,
        queue: usize,
        request: u32,
        batch: Option<u32>,
        timeout_ms: u32,
    ) {
        let template = if batch.is_some() { &self.pull_batch[queue] } else { &self.pull[queue] };
        let base = template.copy(out);
        put_u32(out, base + template.request, request);
        put_u32(out, base + template.timeout, timeout_ms);
        if let Some(count) = batch {
            put_u32(out, base + template.count, count);
        }
    }

    /// An acknowledgement of one job; `id` and `token` are encoded strings.
    pub(crate) fn ack(&self, out: &mut Vec<u8>, request: u32, id: &[u8], token: Option<&[u8]>) {
        let base = self.ack.copy(out);
        put_u32(out, base + self.ack.request, request);
        out.extend_from_slice(id);
        if let Some(token) = token {
            out.extend_from_slice(TOKEN_KEY);
            out.extend_from_slice(token);
        }
        close(out, base);
    }

    /// An acknowledgement of many; `tokens` is the encoded array as the pull answered it.
    pub(crate) fn ack_batch<'a>(
        &self,
        out: &mut Vec<u8>,
        request: u32,
        ids: impl ExactSizeIterator<Item = &'a [u8]>,
        tokens: Option<&[u8]>,
    ) {
        let base = self.ack_batch.copy(out);
        put_u32(out, base + self.ack_batch.request, request);
        out.push(0xdd);
        out.extend_from_slice(&(ids.len() as u32).to_be_bytes());
        for id in ids {
            out.extend_from_slice(id);
        }
        if let Some(tokens) = tokens {
            out.extend_from_slice(TOKENS_KEY);
            out.extend_from_slice(tokens);
        }
        close(out, base);
    }
}

const TOKEN_KEY: &[u8] = b"\xa5token";
const TOKENS_KEY: &[u8] = b"\xa6tokens";

impl Template {
    fn start(fields: u32, cmd: &str) -> Self {
        let mut template = Self { bytes: vec![0; 4], ..Self::default() };
        template.map(fields);
        template.text("cmd", cmd);
        template.text_key("reqId");
        template.request = template.u32_slot();
        template
    }

    fn map(&mut self, fields: u32) {
        mp::write_map_len(&mut self.bytes, fields).expect("a Vec takes every write");
    }

    fn text_key(&mut self, key: &str) {
        mp::write_str(&mut self.bytes, key).expect("a Vec takes every write");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.text_key(key);
        self.text_key(value);
    }

    /// Room for a number of four bytes behind its marker; answers where the number lies.
    fn u32_slot(&mut self) -> usize {
        self.bytes.extend_from_slice(&[0xce, 0, 0, 0, 0]);
        self.bytes.len() - 4
    }

    /// `data: {s: sequence, t: intended send time, p: filler}`, `payload_bytes` long in all.
    fn payload(&mut self, payload_bytes: usize, noise_bytes: usize) {
        self.text_key("data");
        self.map(3);
        self.text_key("s");
        self.sequence = self.u32_slot();
        self.text_key("t");
        self.bytes.push(0xcb);
        self.sent = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 8]);
        self.text_key("p");
        let left = payload_bytes.saturating_sub(PAYLOAD_BYTES_MIN);
        // The header of the filler grows with it; the few bytes are taken from the filler.
        let header = mp::write_str_len(&mut Vec::new(), left as u32).map_or(1, |m| match m {
            rmp::Marker::FixStr(_) => 1,
            rmp::Marker::Str8 => 2,
            rmp::Marker::Str16 => 3,
            _ => 5,
        });
        let filler = left.saturating_sub(header - 1);
        self.text_key(&"x".repeat(filler));
        let end = self.bytes.len();
        self.noise = end - filler.min(noise_bytes)..end;
    }

    /// The options of a job that were asked for.
    fn options(&mut self, shape: &Shape) {
        if shape.durable {
            self.text_key("durable");
            self.bytes.push(0xc3);
        }
        if let Some(range) = shape.priorities {
            self.text_key("priority");
            self.priority = Some(Chance { at: self.u32_slot(), from: 0, range });
        }
        if let Some(delay_ms) = shape.delay_ms {
            self.text_key("delay");
            self.delay = Some(Chance { at: self.u32_slot(), from: delay_ms, range: delay_ms });
        }
    }

    /// Puts the numbers of one job into a copy that begins at `base`.
    fn fill(&self, out: &mut [u8], base: usize, sequence: u32, sent: f64) {
        put_u32(out, base + self.sequence, sequence);
        put_f64(out, base + self.sent, sent);
        put_noise(&mut out[base + self.noise.start..base + self.noise.end], sequence);
        for chance in [self.priority, self.delay].into_iter().flatten() {
            put_u32(out, base + chance.at, chance.of(sequence));
        }
    }

    fn finish(mut self) -> Self {
        close(&mut self.bytes, 0);
        self
    }

    fn copy(&self, out: &mut Vec<u8>) -> usize {
        let base = out.len();
        out.extend_from_slice(&self.bytes);
        base
    }
}

fn push(shape: &Shape, queue: &str) -> Template {
    let mut template = Template::start(4 + shape.options(), "PUSH");
    template.text("queue", queue);
    template.payload(shape.payload_bytes, shape.noise_bytes);
    template.options(shape);
    template.finish()
}

fn batch_head(queue: &str) -> Template {
    let mut template = Template::start(4, "PUSHB");
    template.text("queue", queue);
    template.text_key("jobs");
    template.bytes.extend_from_slice(&[0xdd, 0, 0, 0, 0]);
    template.count = template.bytes.len() - 4;
    template
}

fn batch_job(shape: &Shape) -> Template {
    let mut template = Template::default();
    template.map(1 + shape.options());
    template.payload(shape.payload_bytes, shape.noise_bytes);
    template.options(shape);
    template
}

fn pull(shape: &Shape, queue: &str, batch: bool) -> Template {
    let owner = if shape.owner.is_some() { 2 } else { 0 };
    let cmd = if batch { "PULLB" } else { "PULL" };
    let mut template = Template::start(4 + owner + u32::from(batch), cmd);
    template.text("queue", queue);
    template.text_key("timeout");
    template.timeout = template.u32_slot();
    if batch {
        template.text_key("count");
        template.count = template.u32_slot();
    }
    if let Some(owner) = shape.owner {
        template.text("owner", owner);
        template.text_key("lockTtl");
        let at = template.u32_slot();
        put_u32(&mut template.bytes, at, shape.lock_ttl_ms);
    }
    template.finish()
}

fn ack(owner: bool, cmd: &str, key: &str) -> Template {
    let mut template = Template::start(3 + u32::from(owner), cmd);
    template.text_key(key);
    template
}

fn put_u32(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn put_f64(out: &mut [u8], at: usize, value: f64) {
    out[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

/// Fills a part of a text with characters that look like chance, and are the same in every run: a server that compresses
/// finds none of them again.
fn put_noise(out: &mut [u8], sequence: u32) {
    let mut state = u64::from(sequence) << 32;
    for part in out.chunks_mut(10) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        for (place, byte) in part.iter_mut().enumerate() {
            *byte = b'0' + (mixed >> (4 + 6 * place)) as u8 % 64;
        }
    }
}

/// Writes the length of the frame that began at `base` into its first four bytes.
fn close(out: &mut [u8], base: usize) {
    let length = out.len() - base - 4;
    put_u32(out, base, length as u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(queues: &[String]) -> Shape<'_> {
        Shape {
            queues,
            payload_bytes: 100,
            noise_bytes: 64,
            durable: true,
            priorities: Some(10),
            delay_ms: Some(50),
            owner: Some("me"),
            lock_ttl_ms: 30_000,
        }
    }

    #[test]
    fn a_payload_has_the_size_that_was_asked_for() {
        for bytes in [24, 40, 55, 60, 100, 290, 1000, 70_000] {
            let mut template = Template::default();
            template.payload(bytes, 64);
            let data = template.bytes.len() - "\u{4}data".len();
            assert!(bytes - data <= 4, "{bytes} asked, {data} made");
        }
    }

    #[test]
    fn the_noise_of_a_payload_differs_from_job_to_job_and_stays_within_its_text() {
        let queues = vec!["q".to_owned()];
        // All behind the payload is the same in each job.
        let alike = Shape { priorities: None, delay_ms: None, ..shape(&queues) };
        let template = push(&alike, "q");
        let mut frames = [1, 2].map(|_| template.bytes.clone());
        for (frame, sequence) in frames.iter_mut().zip([1, 2]) {
            template.fill(frame, 0, sequence, 1.5);
        }
        let [first, second] = frames.each_ref().map(|frame| &frame[template.noise.clone()]);
        assert!(first.len() == 64 && first.is_ascii());
        let same = first.iter().zip(second).filter(|(one, other)| one == other).count();
        assert!(same < 16, "{same} of 64");
        assert_eq!(frames[0][template.noise.end..], frames[1][template.noise.end..]);
    }

    #[test]
    fn frames_carry_their_length_and_the_numbers_they_were_given() {
        let queues = vec!["q".to_owned()];
        let templates = Templates::new(&shape(&queues));
        let mut out = Vec::new();
        templates.push(&mut out, 0, 7, 41, 1.5);
        let length = u32::from_be_bytes([out[0], out[1], out[2], out[3]]) as usize;
        assert_eq!(length, out.len() - 4);
        assert!(out.windows(5).any(|w| w == [0xce, 0, 0, 0, 7]));
        assert!(out.windows(5).any(|w| w == [0xce, 0, 0, 0, 41]));

        out.clear();
        templates.push_batch(&mut out, 0, 8, 100, 3, 2.0);
        let length = u32::from_be_bytes([out[0], out[1], out[2], out[3]]) as usize;
        assert_eq!(length, out.len() - 4);
        assert!(out.windows(5).any(|w| w == [0xce, 0, 0, 0, 102]));
    }
}
