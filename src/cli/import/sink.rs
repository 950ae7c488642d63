//! Where the jobs of a source go: batches of one queue, pushed under ids that come of the old ones, so that a second run
//! adds nothing; refused jobs are taken out of their batch and reported; at most so many a second.
//!
//! A dead letter is pushed with a delay of a year, so that no worker gets it, and then discarded with its error. An import that
//! was broken off in between does the second step when it runs again, for those that still have that delay.

use std::io::IsTerminal;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use ring::digest;

use super::model::{Death, ForeignJob, ForeignSchedule, Mark, NAME_CHARS_MAX, State};
use super::options::{Options, Schedules};
use super::report::Report;
use crate::api::commands::Op;
use crate::api::error::Code;
use crate::api::limits::YEAR_MS;
use crate::cli::client::{Client, Reply};
use crate::cli::failure::{Failure, Refusal};
use crate::cli::output::Output;
use crate::cli::request::Request;
use crate::protocol::decode::decode;
use crate::protocol::frame::PREFIX_BYTES;

/// Jobs of a batch.
const JOBS_MAX: usize = 500;
/// Bytes of jobs after which a batch is sent.
const BYTES_MAX: usize = 1 << 20;
/// Jobs that name others which are not known yet, held until those have come.
const LATER_MAX: usize = 10_000;
/// Bytes of those.
const LATER_BYTES_MAX: usize = 64 << 20;
/// A delayed job that runs later than this from now was put off by an import and not discarded yet, unless the source
/// says so itself.
const PARKED_MS: i64 = YEAR_MS - 60 * 86_400_000;
/// A dead letter keeps its time of creation if it is younger: delays count from that.
const AGE_KEPT_MS: i64 = 59 * 86_400_000;

/// A job with its whole encoding.
struct Ready {
    id: Option<String>,
    state: State,
    bytes: Vec<u8>,
    death: Option<Death>,
    mark: Mark,
}

/// Takes what a source gives.
pub struct Sink<'a> {
    pub options: &'a Options,
    pub report: Report,
    /// Prefix of the custom ids.
    prefix: String,
    /// None where nothing is pushed.
    client: Option<Client>,
    /// Whether jobs that a worker has are moved if nothing is said: a file has no workers.
    takes_active: bool,
    queue: String,
    batch: Vec<Ready>,
    batch_bytes: usize,
    /// Jobs whose dependencies are not there yet, with their queues.
    later: Vec<(String, Ready)>,
    later_bytes: usize,
    settled: Vec<Mark>,
    now_ms: i64,
    begun: Instant,
    sent: u64,
    bar: ProgressBar,
}

impl<'a> Sink<'a> {
    pub fn new(
        options: &'a Options,
        prefix: &str,
        takes_active: bool,
        client: Option<Client>,
    ) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(100));
            match ProgressStyle::with_template("{spinner} {msg} · {elapsed}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        } else {
            ProgressBar::hidden()
        };
        Self {
            options,
            report: Report::new(client.is_none()),
            prefix: options.id_prefix.clone().unwrap_or_else(|| prefix.to_owned()),
            client,
            takes_active,
            queue: String::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            later: Vec::new(),
            later_bytes: 0,
            settled: Vec::new(),
            now_ms: Output::now_ms(),
            begun: Instant::now(),
            sent: 0,
            bar,
        }
    }

    /// Whether jobs in this state are moved.
    pub fn takes(&self, state: State) -> bool {
        self.options.takes(state, self.takes_active)
    }

    /// The custom id of a job of the source. What is too long for one is named by its digest.
    pub fn custom_id(&self, id: &str) -> String {
        let whole = format!("{}{id}", self.prefix);
        if whole.chars().count() <= NAME_CHARS_MAX {
            return whole;
        }
        let digest = digest::digest(&digest::SHA256, id.as_bytes());
        let prefix: String = self.prefix.chars().take(NAME_CHARS_MAX - 72).collect();
        format!("{prefix}sha256-{}", data_encoding::HEXLOWER.encode(digest.as_ref()))
    }

    /// Takes a job.
    pub fn job(&mut self, job: ForeignJob) -> Result<(), Failure> {
        self.report.read(job.state);
        if !self.takes(job.state) {
            self.report.left(job.state);
            return Ok(());
        }
        let queue = self.options.into.clone().unwrap_or_else(|| job.queue.clone());
        let ready = self.ready(job);
        if queue != self.queue
            || self.batch.len() >= self.batch_jobs()
            || self.batch_bytes + ready.bytes.len() > BYTES_MAX
        {
            self.flush()?;
            self.queue = queue;
        }
        self.batch_bytes += ready.bytes.len();
        self.batch.push(ready);
        Ok(())
    }

    /// A batch is never more than a second's worth.
    fn batch_jobs(&self) -> usize {
        self.options.rate.map_or(JOBS_MAX, |rate| JOBS_MAX.min(rate as usize))
    }

    /// Writes what all sources have alike.
    fn ready(&mut self, job: ForeignJob) -> Ready {
        let ForeignJob { id, state, mut fields, created_ms, run_at_ms, death, mark, .. } = job;
        let shown = id.clone().unwrap_or_default();
        match &id {
            Some(id) => fields.text("customId", &self.custom_id(id)),
            None => {
                self.report.dropped("id", "none is given: a second run pushes the job again", "");
            }
        }
        let (created_ms, run_at_ms) =
            (created_ms.filter(|at| *at > 0), run_at_ms.filter(|_| death.is_none()));
        let keeps_time = match (&death, created_ms, run_at_ms) {
            (Some(_), Some(created), _) => self.now_ms - created <= AGE_KEPT_MS,
            (None, Some(created), Some(at)) => (0..=YEAR_MS).contains(&(at - created)),
            (_, created, _) => created.is_some(),
        };
        let created_ms = created_ms.filter(|_| keeps_time);
        if let Some(created) = created_ms {
            fields.integer("timestamp", created);
        } else {
            self.report.dropped(
                "time of creation",
                "unknown, or a delay cannot be counted from it",
                &shown,
            );
        }
        if death.is_some() {
            fields.integer("delay", YEAR_MS);
        } else if let Some(at) = run_at_ms {
            let delay = at - created_ms.unwrap_or(self.now_ms);
            if delay > YEAR_MS {
                self.report.dropped("time beyond a year", "a delay is a year at most", &shown);
            }
            if delay > 0 {
                fields.integer("delay", delay.min(YEAR_MS));
            }
        }
        Ready { id, state, bytes: fields.finish(), death, mark }
    }

    /// Pushes what is gathered, and gives the marks of all that the server has since the last call, for a source to forget.
    pub fn settle(&mut self) -> Result<Vec<Mark>, Failure> {
        self.flush()?;
        Ok(std::mem::take(&mut self.settled))
    }

    /// The end of the source: jobs that wait for others are pushed once those are there. A job whose dependencies never come is
    /// refused.
    pub fn finish(&mut self) -> Result<Vec<Mark>, Failure> {
        self.flush()?;
        loop {
            let later = std::mem::take(&mut self.later);
            let before = later.len();
            self.later_bytes = 0;
            for (queue, ready) in later {
                if queue != self.queue {
                    self.flush()?;
                    self.queue = queue;
                }
                self.batch.push(ready);
                if self.batch.len() >= self.batch_jobs() {
                    self.flush()?;
                }
            }
            self.flush()?;
            if self.later.is_empty() || self.later.len() >= before {
                break;
            }
        }
        for (_, ready) in std::mem::take(&mut self.later) {
            let id = ready.id.unwrap_or_default();
            self.report.refused(ready.state, &id, "a job that it depends on was not found");
        }
        self.bar.finish_and_clear();
        Ok(std::mem::take(&mut self.settled))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.batch_bytes = 0;
        let mut batch = std::mem::take(&mut self.batch);
        while !batch.is_empty() {
            match self.push(&batch)? {
                Pushed::All { known } => {
                    self.pace(batch.len());
                    self.bury(&batch, known > 0)?;
                    self.count(&batch, known);
                    let marks = std::mem::take(&mut batch).into_iter().map(|ready| ready.mark);
                    if self.options.remove {
                        self.settled.extend(marks);
                    }
                }
                Pushed::Waits(place) if self.holds_one_more(&batch[place.min(batch.len() - 1)]) => {
                    let ready = batch.remove(place.min(batch.len() - 1));
                    self.later_bytes += ready.bytes.len();
                    self.later.push((self.queue.clone(), ready));
                }
                Pushed::Waits(place) => {
                    let ready = batch.remove(place.min(batch.len() - 1));
                    let id = ready.id.unwrap_or_default();
                    self.report.refused(ready.state, &id, "a job that it depends on was not found");
                }
                Pushed::Refused(place, reason) => {
                    let ready = batch.remove(place.min(batch.len() - 1));
                    self.report.refused(ready.state, &ready.id.unwrap_or_default(), &reason);
                }
            }
            self.bar.set_message(format!("{} jobs read, {} sent", self.report.jobs(), self.sent));
        }
        Ok(())
    }

    fn holds_one_more(&self, ready: &Ready) -> bool {
        self.later.len() < LATER_MAX && self.later_bytes + ready.bytes.len() <= LATER_BYTES_MAX
    }

    /// Pushes a batch, or decodes it as the server would where nothing is pushed.
    fn push(&mut self, batch: &[Ready]) -> Result<Pushed, Failure> {
        let jobs: Vec<u8> = batch.iter().flat_map(|ready| ready.bytes.iter().copied()).collect();
        let request = Request::on_queue(Op::PushBatch, &self.queue)
            .with(|fields| fields.raw_list("jobs", batch.len(), &jobs));
        let Some(client) = &mut self.client else {
            let frame = request.frame();
            return Ok(match decode(&frame[PREFIX_BYTES..]) {
                Ok(_) => Pushed::All { known: 0 },
                Err(refused) => Pushed::of_refusal(refused.error.text()),
            });
        };
        let reply = client.call(request)?;
        match reply.refusal() {
            None => Ok(Pushed::All { known: reply.value().get("known").count() }),
            Some(Refusal { text, code }) if of_a_job(text) || is_about_fields(code) => {
                Ok(Pushed::of_refusal(text))
            }
            // An error of the server itself is no property of a job.
            Some(refusal) => Err(Failure::refused(refusal)),
        }
    }

    /// Discards the dead letters of a batch that was pushed. Where some jobs were known, those that have left their delay
    /// behind have been in the dead-letter queue already.
    fn bury(&mut self, batch: &[Ready], some_known: bool) -> Result<(), Failure> {
        for ready in batch {
            let (Some(death), Some(id)) = (&ready.death, &ready.id) else { continue };
            let id = self.custom_id(id);
            let Some(client) = &mut self.client else { continue };
            if some_known {
                let known = client.call(Request::on_job(Op::GetJob, &id))?;
                if !is_parked(&known, self.now_ms) {
                    continue;
                }
            }
            let request = Request::on_job(Op::Discard, &id).with(|fields| {
                fields.text_if("error", Some(death.error.as_str()).filter(|text| !text.is_empty()));
                fields.text("reason", death.reason);
                fields.integer("attempts", death.attempts.clamp(0, 1000));
            });
            let reply = client.call(request)?;
            if let Some(refusal) = reply.refusal() {
                return Err(Failure::refused(refusal));
            }
        }
        Ok(())
    }

    fn count(&mut self, batch: &[Ready], known: u64) {
        // Which of a batch were known is not said; in most batches it is all of them or none.
        let mut known = known;
        for ready in batch {
            let was = u64::from(known > 0);
            known -= was;
            self.report.pushed(ready.state, 1, was);
        }
    }

    /// Waits until the jobs that were sent are no more than the rate allows.
    fn pace(&mut self, jobs: usize) {
        self.sent += jobs as u64;
        if let (Some(rate), true) = (self.options.rate, self.client.is_some()) {
            let due = Duration::from_secs_f64(self.sent as f64 / f64::from(rate));
            thread::sleep(due.saturating_sub(self.begun.elapsed()));
        }
    }

    /// Takes a schedule. One of its name stays as it is.
    pub fn schedule(&mut self, schedule: &ForeignSchedule) -> Result<(), Failure> {
        if self.options.schedules == Schedules::None {
            self.report.schedule_left();
            return Ok(());
        }
        let name = self.custom_id(&schedule.name);
        let queue = self.options.into.as_ref().unwrap_or(&schedule.queue);
        let request = Request::new(Op::Cron).with(|fields| {
            fields.text("name", &name);
            fields.text("queue", queue);
            schedule.fields.iter().for_each(|(field, value)| fields.raw(field, value));
        });
        let Some(client) = &mut self.client else {
            let frame = request.frame();
            match decode(&frame[PREFIX_BYTES..]) {
                Ok(_) => self.report.schedule_set(),
                Err(refused) => self.report.schedule_refused(&name, refused.error.text()),
            }
            return Ok(());
        };
        let known =
            client.call(Request::new(Op::CronGet).with(|fields| fields.text("name", &name)))?;
        if known.refusal().is_none() {
            self.report.schedule_known();
            return Ok(());
        }
        let reply = client.call(request)?;
        if let Some(refusal) = reply.refusal() {
            self.report.schedule_refused(&name, refusal.text);
            return Ok(());
        }
        if !schedule.enabled || self.options.schedules == Schedules::Disabled {
            let disable = Request::new(Op::SetCronEnabled).with(|fields| {
                fields.text("name", &name);
                fields.bool_if("enabled", Some(false));
            });
            client.call(disable)?.granted()?;
        }
        self.report.schedule_set();
        Ok(())
    }

    /// Takes the settings of a queue: commands that set the same however often they come.
    pub fn settings(&mut self, requests: Vec<Request>) -> Result<(), Failure> {
        self.flush()?;
        for request in requests {
            if let Some(client) = &mut self.client {
                client.call(request)?.granted()?;
            }
        }
        self.report.settings_set();
        Ok(())
    }
}

enum Pushed {
    All {
        known: u64,
    },
    /// The job at this place names another that is not known.
    Waits(usize),
    Refused(usize, String),
}

impl Pushed {
    fn of_refusal(text: &str) -> Self {
        let (place, reason) = match text.strip_prefix("jobs[").and_then(|rest| rest.split_once(']'))
        {
            Some((place, reason)) => {
                (place.parse().unwrap_or(0), reason.trim_start_matches([':', ' ']))
            }
            None => (0, text),
        };
        if reason.starts_with("Dependency job not found") {
            return Self::Waits(place);
        }
        Self::Refused(place, reason.to_owned())
    }
}

/// Whether a refusal names a job of the batch.
fn of_a_job(text: &str) -> bool {
    text.starts_with("jobs[") || text.starts_with("Dependency job not found")
}

fn is_about_fields(code: Option<Code>) -> bool {
    matches!(code, Some(Code::InvalidField | Code::InvalidRequest))
}

/// Whether a job still has the delay of a dead letter that is to be discarded.
fn is_parked(reply: &Reply, now_ms: i64) -> bool {
    let job = reply.value().get("job");
    let at = job.get("runAt").integer().unwrap_or(0);
    job.get("state").text() == Some("delayed") && at - now_ms > PARKED_MS
}
