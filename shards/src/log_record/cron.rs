//! The records of schedules: how they are written and read. What they do stands in [`crate::cron`].

use crate::cron::expression::Plan;
use crate::job::id::JobId;
use crate::job::new_job::NewJob;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::row::{Body, parts};
use crate::log_record::show::Show;
use crate::log_record::{Pushed, kind};

/// A schedule came, or was set anew. Payload: the data of its jobs.
#[derive(Clone, Copy, Debug)]
pub struct CronSet<'a> {
    /// Name of the schedule.
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
    /// Time of the next run.
    pub next_run_ms: u64,
    /// Other fields that its jobs are pushed with, as `template_of` writes them; empty for none.
    pub template: &'a [u8],
    /// By which rules it runs.
    pub rules: CronRules,
}

/// By which rules a schedule runs. By default a job is pushed whenever it is due while the server is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CronRules {
    /// The first run is at once when the schedule is set, if there was none of its name.
    pub immediately: bool,
    /// No run while no worker works on its queue.
    pub skip_if_no_worker: bool,
    /// Runs that fell due while the server was down are made up for by one, at its start.
    pub catch_up: bool,
    /// No run while the job of the last one is not done.
    pub prevent_overlap: bool,
    /// No run at all, until it is enabled again.
    pub disabled: bool,
}

impl CronRules {
    /// As bits, lowest first in the order of the fields.
    fn bits(self) -> u8 {
        let Self { immediately, skip_if_no_worker, catch_up, prevent_overlap, disabled } = self;
        let rules = [immediately, skip_if_no_worker, catch_up, prevent_overlap, disabled];
        rules.into_iter().rev().fold(0, |bits, rule| bits << 1 | u8::from(rule))
    }

    fn of_bits(bits: u8) -> Result<Self, Malformed> {
        let rule = |at: u8| bits & 1 << at != 0;
        let (immediately, skip_if_no_worker) = (rule(0), rule(1));
        let (catch_up, prevent_overlap, disabled) = (rule(2), rule(3), rule(4));
        let rules = Self { immediately, skip_if_no_worker, catch_up, prevent_overlap, disabled };
        if rules.bits() == bits {
            Ok(rules)
        } else {
            Err(Malformed("a schedule has rules that are not known to this release"))
        }
    }
}

parts! {
    /// A schedule ran: the job it pushed and its next time, in one. Payload: the job's data.
    #[derive(Clone, Debug)]
    pub struct CronRan<'a> {
        /// Time of the next run; without one the schedule is gone.
        next_run_ms: Option<u64> = "nextRun",
        /// The schedule.
        name: &'a str = "name",
        ..payload
        /// The job.
        pushed: Pushed<'a> = "job",
    }
}

/// Texts that are not there are written as empty ones, numbers as 0: neither is a value of its own.
fn text(text: Option<&str>) -> &[u8] {
    text.unwrap_or_default().as_bytes()
}

/// Fields that the jobs of a schedule are pushed with beside payload and priority, for its record.
pub(crate) fn template_of(job: &NewJob<'_>) -> Vec<u8> {
    let job = NewJob { data: &[], ..job.clone() };
    let pushed = Pushed { id: JobId::default(), queue: "", run_at_ms: 0, job: job.into() };
    let mut bytes = vec![0; pushed.measured_len()];
    let mut out = Writer::new(&mut bytes);
    pushed.write(&mut out);
    out.finish();
    bytes
}

/// Reads what [`template_of`] has written.
pub(crate) fn job_of_template(template: &[u8]) -> Result<NewJob<'_>, Malformed> {
    match template {
        [] => Ok(NewJob::default()),
        _ => Ok(Pushed::read(Reader::new(template))?.job.into_own()),
    }
}

impl<'a> CronSet<'a> {
    /// Fields that its jobs are pushed with beside payload and priority.
    pub fn job(&self) -> NewJob<'a> {
        // Every template that there is has been read before.
        job_of_template(self.template).unwrap_or_default()
    }

    /// Whether it has run as often as it may: it is only remembered.
    pub fn has_ended(&self) -> bool {
        self.runs_max.is_some_and(|most| self.executions >= most)
    }

    pub(crate) fn kind(&self) -> u8 {
        match (self.rules == CronRules::default(), self.template) {
            (true, []) => kind::CRON_SET,
            (true, _) => kind::CRON_SET_WITH,
            (false, _) => kind::CRON_SET_BY,
        }
    }

    fn texts(&self) -> [&[u8]; 4] {
        [self.name.as_bytes(), self.queue.as_bytes(), text(self.schedule), text(self.timezone)]
    }

    /// The plan of its schedule.
    pub(crate) fn plan(&self) -> Result<Plan, Malformed> {
        let plan = match (self.schedule, self.repeat_every_ms) {
            (Some(expression), _) => Plan::recorded(expression, self.timezone),
            (None, every) => Plan::every(every.unwrap_or(1), None),
        };
        plan.map_err(|_| Malformed("a schedule is not understood by this release"))
    }
}

impl<'a> Body<'a> for CronSet<'a> {
    fn encoded_len(&self) -> usize {
        let texts: usize = self.texts().iter().map(|text| 2 + text.len()).sum();
        let template = match self.kind() {
            kind::CRON_SET => 0,
            kind::CRON_SET_WITH => 2 + self.template.len(),
            _ => 1 + 2 + self.template.len(),
        };
        4 + 5 * 8 + texts + template + self.data.len()
    }

    fn payload_len(&self) -> usize {
        self.data.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let kind = self.kind();
        if kind == kind::CRON_SET_BY {
            out.u8(self.rules.bits());
        }
        if kind != kind::CRON_SET {
            out.short(self.template);
        }
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

    fn decode(kind: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let rules = match kind {
            kind::CRON_SET_BY => CronRules::of_bits(from.u8()?)?,
            _ => CronRules::default(),
        };
        let template = if kind == kind::CRON_SET { &[] } else { from.short()? };
        job_of_template(template)?;
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
            template,
            rules,
            data: from.rest(),
        })
    }

    fn show(&self, to: &mut impl Show) {
        to.text("name", self.name);
        to.text("queue", self.queue);
        to.some_text("schedule", self.schedule);
        to.some_uint("repeatEvery", self.repeat_every_ms);
        to.some_text("timezone", self.timezone);
        to.int("priority", i64::from(self.priority));
        to.some_uint("maxLimit", self.runs_max);
        to.uint("executions", self.executions);
        to.uint("version", self.version);
        to.uint("nextRun", self.next_run_ms);
        to.flag("immediately", self.rules.immediately);
        to.flag("skipIfNoWorker", self.rules.skip_if_no_worker);
        to.flag("catchesUp", self.rules.catch_up);
        to.flag("preventOverlap", self.rules.prevent_overlap);
        to.flag("disabled", self.rules.disabled);
        if !self.template.is_empty() {
            to.map("job", |to| self.job().show(to));
        }
        to.value("data", self.data);
    }
}
