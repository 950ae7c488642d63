//! Clients that do a little of everything until the server is killed under them.

use std::io::Result;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::crash::ledger::Ledger;
use crate::support::{Client, Dice};

pub(crate) const QUEUES: [&str; 5] = ["red", "green", "blue", "white", "black"];
/// Short, so that the next round sees what the last one left locked.
pub(crate) const LOCK_TTL_MS: u64 = 1500;

/// The kind of load.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    /// Payloads are up to so large; one in fifty is ten times as large.
    pub(crate) filler_max: u64,
    /// Completed jobs are forgotten at once.
    pub(crate) forget: bool,
    /// With more jobs than this open, clients only work.
    pub(crate) open_max: u64,
    /// `Disk full` is an answer to a push.
    pub(crate) may_be_full: bool,
}

impl Style {
    /// Small jobs that stay, so that every one of them can be counted at the end.
    pub(crate) const KEPT: Self =
        Self { filler_max: 300, forget: false, open_max: u64::MAX, may_be_full: false };
}

/// A client with one connection. An error means that the connection is gone: what it had sent stays in doubt.
pub(crate) struct Worker<'a> {
    pub(crate) client: Client,
    pub(crate) ledger: &'a Mutex<Ledger>,
    pub(crate) dice: Dice,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) style: Style,
}

impl Worker<'_> {
    pub(crate) fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let crowded = self.ledger(|ledger| ledger.open) > self.style.open_max;
            let step = match self.dice.roll(100) {
                _ if crowded => self.work_batch(),
                0..20 => self.push(),
                20..30 => self.push_pipelined(),
                30..40 => self.push_batch(),
                40..80 => self.work(true),
                80..90 => self.work(false),
                _ => self.work_batch(),
            };
            if step.is_err() {
                return;
            }
        }
    }

    fn queue(&mut self) -> &'static str {
        QUEUES[self.dice.roll(QUEUES.len() as u64) as usize]
    }

    fn ledger<T>(&self, note: impl FnOnce(&mut Ledger) -> T) -> T {
        note(&mut self.ledger.lock().unwrap())
    }

    /// A new job: its number, and the fields of its push.
    fn job(&mut self, id_field: &str) -> (usize, Value) {
        let number = self.ledger(Ledger::pushing);
        let large = if self.dice.roll(50) == 0 && self.style.forget { 10 } else { 1 };
        let filler = "x".repeat((self.dice.roll(self.style.filler_max) * large) as usize);
        let mut fields = json!({
            "data": {"number": number, "filler": filler}, "backoff": self.dice.roll(20),
        });
        if self.style.forget {
            fields["removeOnComplete"] = json!(true);
        }
        match self.dice.roll(10) {
            0 => fields["durable"] = json!(true),
            1 | 2 => fields["delay"] = json!(self.dice.roll(100)),
            3 => fields["priority"] = json!(self.dice.roll(10)),
            4 => fields[id_field] = json!(format!("custom-{number}")),
            5 => fields["lifo"] = json!(true),
            6 => fields["uniqueKey"] = json!(format!("key-{number}")),
            _ => {}
        }
        (number, fields)
    }

    fn push(&mut self) -> Result<()> {
        let (number, mut fields) = self.job("jobId");
        fields["queue"] = json!(self.queue());
        let reply = self.client.try_call("PUSH", fields)?;
        self.note_pushed(number, &reply, &reply["id"]);
        Ok(())
    }

    /// Several pushes under way when the kill comes.
    fn push_pipelined(&mut self) -> Result<()> {
        let mut sent = Vec::new();
        for _ in 0..10 {
            let (number, mut fields) = self.job("jobId");
            fields["queue"] = json!(self.queue());
            sent.push((self.client.send("PUSH", fields)?, number));
        }
        for _ in 0..sent.len() {
            let reply = self.client.recv()?;
            let found = sent.iter().find(|(request, _)| reply["reqId"] == request.as_str());
            let (_, number) = found.unwrap_or_else(|| panic!("a reply to nothing: {reply}"));
            self.note_pushed(*number, &reply, &reply["id"]);
        }
        Ok(())
    }

    fn push_batch(&mut self) -> Result<()> {
        let count = 1 + self.dice.roll(20);
        let (numbers, jobs): (Vec<usize>, Vec<Value>) =
            (0..count).map(|_| self.job("customId")).unzip();
        let queue = self.queue();
        let reply = self.client.try_call("PUSHB", json!({"queue": queue, "jobs": jobs}))?;
        for (index, number) in numbers.into_iter().enumerate() {
            self.note_pushed(number, &reply, &reply["ids"][index]);
        }
        Ok(())
    }

    fn note_pushed(&self, number: usize, reply: &Value, id: &Value) {
        if self.style.may_be_full
            && reply["error"].as_str().is_some_and(|e| e.contains("Disk full"))
        {
            return self.ledger(|ledger| {
                ledger.not_pushed(number);
                ledger.refusals += 1;
            });
        }
        let id = id.as_str().unwrap_or_else(|| panic!("a push was refused: {reply}"));
        self.ledger(|ledger| ledger.pushed(number, id));
    }

    /// Pulls a job and acknowledges it, fails it, or keeps it and goes on.
    fn work(&mut self, owner: bool) -> Result<()> {
        let mut fields = json!({"queue": self.queue()});
        if owner {
            fields["owner"] = json!("crash");
            fields["lockTtl"] = json!(LOCK_TTL_MS);
        }
        let sent_at = self.ledger(|ledger| ledger.answers);
        let reply = self.client.try_call("PULL", fields)?;
        if !reply["job"].is_object() {
            assert_eq!(reply["ok"], true, "a pull was refused: {reply}");
            self.ledger(Ledger::answered);
            return Ok(());
        }
        let (number, id) = self.note_delivered(&reply["job"], sent_at);
        let fate = self.dice.roll(100);
        if fate >= 90 {
            return Ok(());
        }
        let mut fields = json!({"id": id});
        if owner {
            fields["token"] = reply["token"].clone();
        }
        if fate >= 75 {
            fields["error"] = json!("as the dice would have it");
            self.client.try_call("FAIL", fields)?;
            self.ledger(Ledger::answered);
            return Ok(());
        }
        fields["result"] = json!({"number": number});
        self.ledger(|ledger| ledger.completing(number));
        let reply = self.client.try_call("ACK", fields)?;
        self.note_completed(&[number], &reply);
        Ok(())
    }

    fn work_batch(&mut self) -> Result<()> {
        let count = 1 + self.dice.roll(20);
        let fields = json!({
            "queue": self.queue(), "count": count, "owner": "crash", "lockTtl": LOCK_TTL_MS,
        });
        let sent_at = self.ledger(|ledger| ledger.answers);
        let reply = self.client.try_call("PULLB", fields)?;
        self.finish_batch(&reply, sent_at).map(|_| ())
    }

    /// Acknowledges all that a PULLB has brought; answers how many.
    pub(crate) fn finish_batch(&mut self, reply: &Value, sent_at: u64) -> Result<usize> {
        let jobs = reply["jobs"].as_array().unwrap_or_else(|| panic!("no jobs in {reply}"));
        self.ledger(Ledger::answered);
        let (numbers, ids): (Vec<usize>, Vec<String>) =
            jobs.iter().map(|job| self.note_delivered(job, sent_at)).unzip();
        if numbers.is_empty() {
            return Ok(0);
        }
        let results: Vec<Value> = numbers.iter().map(|n| json!({"number": n})).collect();
        self.ledger(|ledger| numbers.iter().for_each(|number| ledger.completing(*number)));
        let fields = json!({"ids": ids, "tokens": reply["tokens"], "results": results});
        let reply = self.client.try_call("ACKB", fields)?;
        self.note_completed(&numbers, &reply);
        Ok(numbers.len())
    }

    fn note_delivered(&self, job: &Value, sent_at: u64) -> (usize, String) {
        let number = job["data"]["number"].as_u64().unwrap_or_else(|| panic!("whose is {job}?"));
        let id = job["id"].as_str().unwrap_or_else(|| panic!("no id in {job}")).to_owned();
        self.ledger(|ledger| ledger.delivered(number as usize, &id, sent_at));
        (number as usize, id)
    }

    fn note_completed(&self, numbers: &[usize], reply: &Value) {
        let done = reply["ok"] == true;
        self.ledger(|ledger| {
            for number in numbers {
                if done { ledger.completed(*number) } else { ledger.not_completed(*number) }
            }
        });
    }
}
