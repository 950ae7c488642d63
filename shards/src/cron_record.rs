//! The records of schedules: how they are written and read. What they do stands in [`crate::cron`].

use crate::record::{Pushed, utf8};
use crate::schedule::Plan;
use crate::wire::{Malformed, Reader, Writer};

/// A schedule came, or was set anew. Payload: the data of its jobs.
#[derive(Clone, Copy, Debug)]
pub struct CronSet<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where its jobs go.
    pub queue: &'a str,
    /// Their payload.
    pub data: &'a [u8],
    /// The expression, if it has one.
    pub schedule: Option<&'a str>,
    /// The interval, if it has one.
    pub repeat_every_ms: Option<u64>,
    /// The zone, as given.
    pub timezone: Option<&'a str>,
    /// Priority of its jobs.
    pub priority: i32,
    /// Runs after which it ends.
    pub runs_max: Option<u64>,
    /// Runs so far.
    pub executions: u64,
    /// Times it has been set.
    pub version: u64,
    /// Its next run.
    pub next_run_ms: u64,
}

/// A schedule ran: the job it pushed and its next time, in one. Payload: the job's data.
#[derive(Clone, Debug)]
pub struct CronRan<'a> {
    /// The schedule.
    pub name: &'a str,
    /// Its next run; none, and it is gone.
    pub next_run_ms: Option<u64>,
    /// The job.
    pub pushed: Pushed<'a>,
}

/// Texts that are not there are written as empty ones, numbers as 0: neither is a value of its own.
fn text(text: Option<&str>) -> &[u8] {
    text.unwrap_or_default().as_bytes()
}

impl<'a> CronSet<'a> {
    fn texts(&self) -> [&[u8]; 4] {
        [self.name.as_bytes(), self.queue.as_bytes(), text(self.schedule), text(self.timezone)]
    }

    pub(crate) fn encoded_len(&self) -> usize {
        let texts: usize = self.texts().iter().map(|text| 2 + text.len()).sum();
        4 + 5 * 8 + texts + self.data.len()
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.u32(self.priority as u32);
        out.u64(self.repeat_every_ms.unwrap_or(0));
        out.u64(self.runs_max.unwrap_or(0));
        out.u64(self.executions);
        out.u64(self.version);
        out.u64(self.next_run_ms);
        for text in self.texts() {
            out.short(text);
        }
        out.bytes(self.data);
    }

    pub(crate) fn decode(mut from: Reader<'a>) -> Result<Self, Malformed> {
        let number = |number: u64| (number > 0).then_some(number);
        let text = |text: &'a str| (!text.is_empty()).then_some(text);
        Ok(Self {
            priority: from.u32()? as i32,
            repeat_every_ms: number(from.u64()?),
            runs_max: number(from.u64()?),
            executions: from.u64()?,
            version: from.u64()?,
            next_run_ms: from.u64()?,
            name: text(from.text()?).ok_or(Malformed("a schedule has no name"))?,
            queue: from.text()?,
            schedule: text(from.text()?),
            timezone: text(from.text()?),
            data: from.rest(),
        })
    }

    /// The plan of its schedule. An expression that was understood once is understood for ever.
    pub(crate) fn plan(&self) -> Result<Plan, Malformed> {
        let plan = match (self.schedule, self.repeat_every_ms) {
            (Some(expression), _) => Plan::at(expression, self.timezone),
            (None, every) => Plan::every(every.unwrap_or(1), self.timezone),
        };
        plan.map_err(|_| Malformed("a schedule is not understood by this release"))
    }
}

impl<'a> CronRan<'a> {
    pub(crate) fn encoded_len(&self) -> usize {
        8 + 2 + self.name.len() + self.pushed.encoded_len()
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.next_run_ms.unwrap_or(0));
        out.short(self.name.as_bytes());
        self.pushed.encode(out);
    }

    pub(crate) fn decode(mut from: Reader<'a>) -> Result<Self, Malformed> {
        let next_run_ms = from.u64()?;
        Ok(Self {
            next_run_ms: (next_run_ms > 0).then_some(next_run_ms),
            name: from.text()?,
            pushed: Pushed::decode(from)?,
        })
    }
}

/// The name that is all of a record.
pub(crate) fn decode_name(from: Reader<'_>) -> Result<&str, Malformed> {
    utf8(from.rest())
}
