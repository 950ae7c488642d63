//! `PostgreSQL`: a table as the queue, taken from with `FOR UPDATE SKIP LOCKED`. The transaction that
//! takes jobs is their lease and its COMMIT their acknowledgement, which is the cheapest form of
//! this pattern: one transaction and one row version per job, and a worker that dies gives its
//! jobs back. A connection therefore holds one take at a time. Workers that wait are woken by NOTIFY.

use std::collections::VecDeque;

use crate::protocol::{Event, Handle, Job, Lane, Protocol, Wire, shown};

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS jobs (\
    queue int NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY, payload bytea NOT NULL, \
    PRIMARY KEY (queue, id)) WITH (autovacuum_vacuum_scale_factor = 0.02, \
    autovacuum_vacuum_cost_delay = 0)";
const STATEMENTS: [(&str, &str); 6] = [
    ("begin", "BEGIN"),
    ("commit", "COMMIT"),
    ("push", "INSERT INTO jobs (queue, payload) VALUES ($1::int, $2::bytea)"),
    ("batch", "INSERT INTO jobs (queue, payload) SELECT $1::int, unnest($2::bytea[])"),
    (
        "take",
        "DELETE FROM jobs WHERE queue = $1::int AND id = ANY (ARRAY (SELECT id FROM jobs \
         WHERE queue = $1::int ORDER BY id FOR UPDATE SKIP LOCKED LIMIT $2::int)) \
         RETURNING payload",
    ),
    ("left", "SELECT count(*)::text::bytea FROM jobs WHERE queue = $1::int"),
];
const BYTEA: u32 = 17;

/// The request that the next `ReadyForQuery` ends.
#[derive(PartialEq)]
enum Asked {
    Setup,
    Push(u32),
    Take {
        wait: bool,
        rows: u32,
    },
    Ack(u32),
    /// The end of a take that found nothing.
    GiveUp,
    Left,
}

pub struct Postgres {
    lane: Lane,
    asked: VecDeque<Asked>,
    /// A take waits for a notification; `Some(count)` is what it asks for.
    idle: Option<u32>,
    taking: u32,
    notified: bool,
    /// Schema and statements have been sent.
    prepared: bool,
}

impl Postgres {
    pub fn new(lane: Lane) -> Self {
        Self {
            lane,
            asked: VecDeque::new(),
            idle: None,
            taking: 0,
            notified: false,
            prepared: false,
        }
    }

    fn setup(&mut self, wire: &mut Wire) {
        let queue = self.lane.queue;
        message(&mut wire.out, b'Q', |out| text(out, SCHEMA));
        self.asked.push_back(Asked::Setup);
        for (name, sql) in STATEMENTS {
            message(&mut wire.out, b'P', |out| {
                text(out, name);
                text(out, sql);
                out.extend_from_slice(&[0, 0]);
            });
        }
        if self.lane.waking {
            let notify = format!(
                "WITH pushed AS (INSERT INTO jobs (queue, payload) VALUES ($1::int, $2::bytea)) \
                 SELECT pg_notify('q{queue}', '')"
            );
            message(&mut wire.out, b'P', |out| {
                text(out, "waking");
                text(out, &notify);
                out.extend_from_slice(&[0, 0]);
            });
        }
        sync(&mut wire.out);
        self.asked.push_back(Asked::Setup);
    }

    fn ready(&mut self, wire: &mut Wire) -> Result<(), String> {
        match self.asked.pop_front().ok_or("postgres: an answer that nobody asked for")? {
            // The setting up ends three times: greeting, schema, statements.
            Asked::Setup if !self.prepared => {
                self.prepared = true;
                self.setup(wire);
            }
            Asked::Setup if self.asked.is_empty() => wire.events.push(Event::Ready),
            Asked::Setup | Asked::GiveUp | Asked::Left => {}
            Asked::Push(count) => wire.events.push(Event::Pushed(count)),
            Asked::Take { rows: 0, wait: false } => {
                return Err("postgres: there was nothing to take".to_owned());
            }
            Asked::Take { rows: 0, wait: true } => {
                run(&mut wire.out, "commit", &[]);
                sync(&mut wire.out);
                self.asked.push_back(Asked::GiveUp);
                self.idle = Some(self.taking);
            }
            Asked::Take { .. } => wire.events.push(Event::TakeDone),
            Asked::Ack(count) => wire.events.push(Event::Acked(count)),
        }
        self.wake(wire);
        Ok(())
    }

    /// Takes again when a notification has come since the last take found nothing.
    fn wake(&mut self, wire: &mut Wire) {
        if self.notified
            && self.asked.is_empty()
            && let Some(count) = self.idle.take()
        {
            self.take(wire, count, true);
        }
    }

    fn row(&mut self, body: &[u8], wire: &mut Wire) -> Result<(), String> {
        let short = || "postgres: a row too short".to_owned();
        let size = body.get(2..6).ok_or_else(short)?;
        let size = u32::from_be_bytes([size[0], size[1], size[2], size[3]]) as usize;
        match self.asked.front_mut() {
            Some(Asked::Take { rows, .. }) => {
                let value = body.get(6..6 + size).ok_or_else(short)?;
                *rows += 1;
                wire.events.push(Event::Delivered(Job::new(value, Handle::Connection)?));
            }
            Some(Asked::Left) => {
                let value = body.get(6..6 + size).ok_or_else(short)?;
                wire.events.push(Event::Left(crate::protocol::number(value)?));
            }
            // The row of pg_notify is void.
            _ => {}
        }
        Ok(())
    }

    fn queue(&self) -> [u8; 4] {
        (self.lane.queue as i32).to_be_bytes()
    }
}

impl Protocol for Postgres {
    fn greet(&mut self, wire: &mut Wire) {
        sized(&mut wire.out, |out| {
            out.extend_from_slice(&196_608_u32.to_be_bytes());
            for word in ["user", "postgres", "database", "postgres", ""] {
                text(out, word);
            }
        });
        self.asked.push_back(Asked::Setup);
    }

    fn push(&mut self, wire: &mut Wire, payloads: &[u8], size: usize) -> Result<(), String> {
        let (queue, count) = (self.queue(), payloads.len() / size);
        if count == 1 {
            let name = if self.lane.waking { "waking" } else { "push" };
            run(&mut wire.out, name, &[&queue, payloads]);
        } else {
            let mut array = Vec::with_capacity(20 + payloads.len() + 4 * count);
            for word in [1, 0, BYTEA, count as u32, 1] {
                array.extend_from_slice(&word.to_be_bytes());
            }
            for payload in payloads.chunks(size) {
                array.extend_from_slice(&(size as u32).to_be_bytes());
                array.extend_from_slice(payload);
            }
            run(&mut wire.out, "batch", &[&queue, &array]);
        }
        sync(&mut wire.out);
        self.asked.push_back(Asked::Push(count as u32));
        Ok(())
    }

    fn begin(&mut self, wire: &mut Wire, _take: crate::protocol::Take) {
        if self.lane.waking {
            // The ReadyForQuery of LISTEN comes before that of the first take.
            message(&mut wire.out, b'Q', |out| text(out, &format!("LISTEN q{}", self.lane.queue)));
            self.asked.push_back(Asked::GiveUp);
        }
    }

    fn take(&mut self, wire: &mut Wire, count: u32, wait: bool) {
        self.taking = count;
        self.notified = false;
        run(&mut wire.out, "begin", &[]);
        run(&mut wire.out, "take", &[&self.queue(), &(count as i32).to_be_bytes()]);
        sync(&mut wire.out);
        self.asked.push_back(Asked::Take { wait, rows: 0 });
    }

    fn ack(&mut self, wire: &mut Wire, jobs: &[Job]) {
        run(&mut wire.out, "commit", &[]);
        sync(&mut wire.out);
        self.asked.push_back(Asked::Ack(jobs.len() as u32));
    }

    fn left(&mut self, wire: &mut Wire) {
        run(&mut wire.out, "left", &[&self.queue()]);
        sync(&mut wire.out);
        self.asked.push_back(Asked::Left);
    }

    fn read(&mut self, bytes: &[u8], wire: &mut Wire) -> Result<usize, String> {
        let mut done = 0;
        while let Some(head) = bytes.get(done..done + 5) {
            let size = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let Some(body) = bytes.get(done + 5..done + 1 + size) else { break };
            match head[0] {
                b'D' => self.row(body, wire)?,
                b'Z' => self.ready(wire)?,
                b'A' => {
                    self.notified = true;
                    self.wake(wire);
                }
                b'R' if body != [0; 4] => return Err("postgres: wants a password".to_owned()),
                b'E' => return Err(format!("postgres: {}", shown(body).replace('\0', " "))),
                // Authentication done, settings, keys, notices, and the ends of single statements.
                b'R' | b'S' | b'K' | b'N' | b'1' | b'2' | b'C' | b'I' => {}
                kind => return Err(format!("postgres: message {:?}", char::from(kind))),
            }
            done += 1 + size;
        }
        Ok(done)
    }
}

/// Runs a prepared statement with binary values and results.
fn run(out: &mut Vec<u8>, name: &str, values: &[&[u8]]) {
    message(out, b'B', |out| {
        text(out, "");
        text(out, name);
        out.extend_from_slice(&[0, 1, 0, 1]);
        out.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for value in values {
            out.extend_from_slice(&(value.len() as u32).to_be_bytes());
            out.extend_from_slice(value);
        }
        out.extend_from_slice(&[0, 1, 0, 1]);
    });
    message(out, b'E', |out| {
        text(out, "");
        out.extend_from_slice(&[0; 4]);
    });
}

fn sync(out: &mut Vec<u8>) {
    message(out, b'S', |_| {});
}

fn message(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    sized(out, body);
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// Something behind its length, which counts its own four bytes.
fn sized(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let size = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        message(&mut out, b'D', |out| {
            out.extend_from_slice(&[0, 1]);
            out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
            out.extend_from_slice(payload);
        });
        out
    }

    #[test]
    fn a_take_ends_after_its_rows_and_one_without_rows_waits_for_a_notification() {
        let mut lane = Postgres::new(Lane { queue: 0, waking: true });
        let (mut wire, ready) = (Wire::default(), b"Z\0\0\0\x05T");
        lane.take(&mut wire, 1, true);
        lane.read(ready, &mut wire).expect("nothing there");
        lane.read(b"Z\0\0\0\x05I", &mut wire).expect("the end of the transaction");
        assert!(wire.events.is_empty() && lane.asked.is_empty());
        lane.read(b"A\0\0\0\x0a\0\0\0\0\0\0", &mut wire).expect("a notification");
        assert_eq!(lane.asked.len(), 1);
        let mut payload = Vec::new();
        crate::payload::write(&mut payload, 1, 2, 100);
        lane.read(&row(&payload), &mut wire).expect("a row");
        lane.read(ready, &mut wire).expect("the end of the take");
        assert!(matches!(wire.events[..], [Event::Delivered(_), Event::TakeDone]));
    }

    #[test]
    fn an_error_of_the_server_is_an_error() {
        let mut lane = Postgres::new(Lane { queue: 0, waking: false });
        assert!(lane.read(b"E\0\0\0\x08oops", &mut Wire::default()).is_err());
    }
}
