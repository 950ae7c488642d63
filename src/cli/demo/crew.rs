//! The workers of `demo`. Each has a connection, is registered, and has several jobs in hand at a time, which end when their
//! time has come: completed, or failed with one of a few errors.

use std::time::{Duration, Instant};

use super::super::client::Client;
use super::super::failure::{Failure, Refusal};
use super::super::request::Request;
use super::orders::{order, value};
use super::samples::Dice;
use crate::api::commands::Op;
use crate::api::error::Code;

/// A kind of worker: its name, its host, its queues and how it works.
#[derive(Debug)]
pub struct About {
    name: &'static str,
    host: &'static str,
    queues: &'static [&'static str],
    /// Jobs at a time.
    slots: u64,
    /// How long a job takes, in milliseconds: at least and at most.
    takes_ms: (u64, u64),
    /// How many of a hundred attempts fail.
    fails_percent: u64,
    /// With what.
    errors: &'static [(&'static str, &'static str)],
}

const OF_MAIL: &[(&str, &str)] = &[
    ("connection reset by smtp.example.net", "at Smtp.send (smtp.js:88:13)"),
    ("mailbox is full", "at Smtp.verdict (smtp.js:131:9)"),
];
const OF_PAYMENTS: &[(&str, &str)] = &[
    ("card declined: insufficient funds", "at Bank.charge (bank.js:52:11)"),
    ("timeout after 3000 ms at api.bank.example", "at Http.request (http.js:204:17)"),
    ("TypeError: cannot read 'id' of undefined", "at charge (payments.js:17:29)"),
];
const OF_IMAGES: &[(&str, &str)] =
    &[("unsupported image format: webp2", "at Image.decode (image.js:9:7)")];

/// All workers.
pub const CREWS: &[About] = &[
    About {
        name: "mailer-1",
        host: "app-1",
        queues: &["demo.emails", "demo.reminders"],
        slots: 8,
        takes_ms: (30, 400),
        fails_percent: 4,
        errors: OF_MAIL,
    },
    About {
        name: "mailer-2",
        host: "app-2",
        queues: &["demo.emails", "demo.tenants"],
        slots: 10,
        takes_ms: (60, 600),
        fails_percent: 3,
        errors: OF_MAIL,
    },
    About {
        name: "accountant",
        host: "app-1",
        queues: &["demo.payments"],
        slots: 8,
        takes_ms: (100, 900),
        fails_percent: 25,
        errors: OF_PAYMENTS,
    },
    About {
        name: "imager",
        host: "gpu-1",
        queues: &["demo.images"],
        slots: 6,
        takes_ms: (400, 3000),
        fails_percent: 2,
        errors: OF_IMAGES,
    },
    About {
        name: "clerk",
        host: "app-2",
        queues: &["demo.reports", "demo.sync"],
        slots: 4,
        takes_ms: (200, 1500),
        fails_percent: 1,
        errors: OF_MAIL,
    },
];

/// For how many jobs per second the slots above are enough.
const USUAL_RATE: u64 = 40;

/// How often a worker says that it is there.
const BEAT_EVERY: Duration = Duration::from_secs(10);

/// Most jobs of a pull.
const PULL_MAX: u64 = 200;

/// A job in hand.
#[derive(Debug)]
struct Held {
    id: String,
    token: String,
    ends: Instant,
    /// When its progress is shown, if it is.
    halfway: Option<Instant>,
}

/// A worker.
#[derive(Debug)]
pub struct Crew {
    client: Client,
    about: &'static About,
    id: String,
    slots: u64,
    held: Vec<Held>,
    completed: u64,
    failed: u64,
    beats: Instant,
    dice: Dice,
}

impl Crew {
    /// Registers a worker that is good for so many jobs a second together with the others.
    pub fn begin(mut client: Client, about: &'static About, rate: u64) -> Result<Self, Failure> {
        let slots = about.slots * rate.div_ceil(USUAL_RATE);
        let queues: Vec<String> = about.queues.iter().map(|queue| (*queue).to_owned()).collect();
        let register = Request::new(Op::RegisterWorker).with(|fields| {
            fields.text("name", about.name);
            fields.texts("queues", &queues);
            fields.integer("concurrency", slots as i64);
            fields.text("hostname", about.host);
            fields.integer("pid", i64::from(std::process::id()));
        });
        let reply = client.call(register)?.granted()?;
        let id = reply.value().get("data").get("workerId").text().unwrap_or_default().to_owned();
        let (held, beats, dice) = (Vec::new(), Instant::now() + BEAT_EVERY, Dice::new());
        Ok(Self { client, about, id, slots, held, completed: 0, failed: 0, beats, dice })
    }

    /// Ends what is done by now, and takes more.
    pub fn work(&mut self, now: Instant) -> Result<(), Failure> {
        for place in (0..self.held.len()).rev() {
            let held = &mut self.held[place];
            if held.ends <= now {
                let held = self.held.swap_remove(place);
                self.finish(&held)?;
            } else if held.halfway.is_some_and(|halfway| halfway <= now) {
                held.halfway = None;
                let id = held.id.clone();
                self.tell_progress(&id)?;
            }
        }
        if self.beats <= now {
            self.beats = now + BEAT_EVERY;
            let beat = Request::new(Op::Heartbeat).with(|fields| {
                fields.text("id", &self.id);
                fields.integer("activeJobs", self.held.len() as i64);
                fields.integer("processed", self.completed as i64);
                fields.integer("failed", self.failed as i64);
            });
            order(&mut self.client, beat)?;
        }
        let queues = self.about.queues;
        // The first one is not always first.
        let turn = self.dice.below(queues.len() as u64) as usize;
        for queue in queues.iter().cycle().skip(turn).take(queues.len()) {
            self.pull(queue, now)?;
        }
        Ok(())
    }

    fn pull(&mut self, queue: &str, now: Instant) -> Result<(), Failure> {
        let free = self.slots.saturating_sub(self.held.len() as u64).min(PULL_MAX);
        if free == 0 {
            return Ok(());
        }
        let pull = Request::on_queue(Op::PullBatch, queue).with(|fields| {
            fields.integer("count", free as i64);
            fields.text("owner", self.about.name);
        });
        let reply = self.client.call(pull)?.granted()?;
        let reply = reply.value();
        for (job, token) in reply.get("jobs").items().zip(reply.get("tokens").items()) {
            let (least_ms, most_ms) = self.about.takes_ms;
            let takes_ms = least_ms + self.dice.below(most_ms - least_ms);
            let takes = Duration::from_millis(takes_ms);
            let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
            self.held.push(Held {
                id: text(job.get("id").text()),
                token: text(token.text()),
                ends: now + takes,
                halfway: (takes_ms > 1000).then_some(now + takes / 2),
            });
        }
        Ok(())
    }

    /// Of a job that is gone by now, as its queue was removed, there is nothing to be told.
    fn tell(&mut self, request: Request) -> Result<bool, Failure> {
        let reply = self.client.call(request)?;
        match reply.refusal() {
            None => Ok(true),
            Some(Refusal {
                code:
                    Some(Code::NotActive | Code::NotFound | Code::TokenMismatch | Code::WrongState),
                ..
            }) => Ok(false),
            Some(refusal) => Err(Failure::refused(refusal)),
        }
    }

    fn tell_progress(&mut self, id: &str) -> Result<(), Failure> {
        let progress = Request::on_job(Op::Progress, id).with(|fields| {
            fields.number("progress", 50.0);
            fields.text("message", "half of it is done");
        });
        self.tell(progress)?;
        let line = Request::on_job(Op::AddLog, id)
            .with(|fields| fields.text("message", "the first half took as long as usual"));
        self.tell(line).map(drop)
    }

    fn finish(&mut self, held: &Held) -> Result<(), Failure> {
        if self.dice.chance(self.about.fails_percent) {
            let (error, place) = self.dice.one_of(self.about.errors);
            let is_final = self.dice.chance(20);
            let fail = Request::on_job(Op::Fail, &held.id).with(|fields| {
                fields.text("token", &held.token);
                fields.text("error", error);
                fields.texts("stack", &[error.to_owned(), format!("    {place}")]);
                fields.flag_if("unrecoverable", is_final);
            });
            self.failed += u64::from(self.tell(fail)?);
        } else {
            let result = value(r#"{"done":true}"#);
            let ack = Request::on_job(Op::Ack, &held.id).with(|fields| {
                fields.text("token", &held.token);
                fields.raw("result", &result);
            });
            self.completed += u64::from(self.tell(ack)?);
        }
        Ok(())
    }

    /// Ends what is in hand and goes. Says how many jobs were completed and how many attempts failed.
    pub fn end(mut self) -> Result<(u64, u64), Failure> {
        for held in std::mem::take(&mut self.held) {
            self.finish(&held)?;
        }
        Ok((self.completed, self.failed))
    }
}
