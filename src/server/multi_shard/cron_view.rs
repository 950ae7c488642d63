//! A schedule as clients see it: its row, and what it was set with.

use crate::api::commands::GROWTHS;
use crate::protocol::msgpack::writer::Writer;
use corq_shards::cron::Cron;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::Extras;

/// A schedule as clients see it; in a list with its runs.
pub(crate) fn write_cron(writer: &mut Writer<'_>, cron: &Cron, listed: bool) {
    let limited = listed && cron.runs_max.is_some();
    let job = cron.job();
    let given = [listed, limited, cron.timezone.is_some(), job.name.is_some()];
    let options = if listed { options_of(cron, &job) } else { Options::default() };
    writer.map(5 + given.into_iter().map(usize::from).sum::<usize>() + options.entries);
    writer.str("name");
    writer.str(&cron.name);
    writer.str("queue");
    writer.str(&cron.queue);
    writer.str("schedule");
    writer.str_or_nil(cron.schedule.as_deref());
    writer.str("repeatEvery");
    writer.uint_or_nil(cron.repeat_every_ms);
    writer.str("nextRun");
    writer.uint(cron.next_run_ms);
    if listed {
        writer.str("executions");
        writer.uint(cron.executions);
    }
    if let Some(runs_max) = cron.runs_max.filter(|_| listed) {
        writer.str("maxLimit");
        writer.uint(runs_max);
    }
    if let Some(timezone) = &cron.timezone {
        writer.str("timezone");
        writer.str(timezone);
    }
    if let Some(name) = job.name {
        writer.str("jobName");
        writer.str(name);
    }
    writer.raw(&options.bytes);
}

/// Entries of a map, written before it is known how many the map has.
#[derive(Default)]
struct Options {
    entries: usize,
    bytes: Vec<u8>,
}

impl Options {
    fn key(&mut self, name: &str) -> Writer<'_> {
        self.entries += 1;
        let mut writer = Writer::new(&mut self.bytes);
        writer.str(name);
        writer
    }

    fn flag(&mut self, name: &str, set: bool) {
        if set {
            self.key(name).bool(true);
        }
    }

    fn number(&mut self, name: &str, number: Option<u64>) {
        if let Some(number) = number {
            self.key(name).uint(number);
        }
    }
}

/// What a schedule has been set with beside the usual, under the names of the command.
fn options_of(cron: &Cron, job: &NewJob<'_>) -> Options {
    let mut options = Options::default();
    if cron.priority != 0 {
        options.key("priority").int(i64::from(cron.priority));
    }
    let rules = cron.rules;
    options.flag("immediately", rules.immediately);
    options.flag("skipIfNoWorker", rules.skip_if_no_worker);
    options.flag("preventOverlap", rules.prevent_overlap);
    if rules.catch_up {
        options.key("skipMissedOnRestart").bool(false);
    }
    if let Some(key) = job.unique_key {
        options.key("uniqueKey").str(key);
    }
    let extras = job.extras.as_deref().copied().unwrap_or_default();
    if let Some(dedup) = extras.dedup {
        let mut writer = options.key("dedup");
        writer.map(3);
        writer.str("ttl");
        writer.uint(dedup.ttl_ms);
        writer.str("extend");
        writer.bool(dedup.extend);
        writer.str("replace");
        writer.bool(dedup.replace);
    }
    let of_jobs = job_options_of(job, &extras);
    if of_jobs.entries > 0 {
        let mut writer = options.key("jobOptions");
        writer.map(of_jobs.entries);
        writer.raw(&of_jobs.bytes);
    }
    options
}

/// What the jobs of a schedule are pushed with beside the usual.
fn job_options_of(job: &NewJob<'_>, extras: &Extras) -> Options {
    let (mut options, usual) = (Options::default(), NewJob::default());
    options.number("delay", Some(job.delay_ms).filter(|&delay_ms| delay_ms > 0));
    let attempts = Some(job.max_attempts).filter(|&most| most != usual.max_attempts);
    options.number("maxAttempts", attempts.map(u64::from));
    match extras.backoff {
        Some(growth) => {
            let mut writer = options.key("backoff");
            writer.map(2 + usize::from(extras.backoff_max_ms.is_some()));
            writer.str("type");
            writer.str(GROWTHS[growth as usize]);
            writer.str("delay");
            writer.uint(u64::from(job.backoff_ms));
            if let Some(max_ms) = extras.backoff_max_ms {
                writer.str("maxDelay");
                writer.uint(u64::from(max_ms));
            }
        }
        None if job.backoff_ms != usual.backoff_ms => {
            options.number("backoff", Some(u64::from(job.backoff_ms)));
        }
        None => {}
    }
    options.number("timeout", job.timeout_ms.map(u64::from));
    options.number("stallTimeout", extras.stall_timeout_ms.map(u64::from));
    options.flag("removeOnComplete", job.remove_on_complete);
    options.flag("removeOnFail", job.remove_on_fail);
    options
}
