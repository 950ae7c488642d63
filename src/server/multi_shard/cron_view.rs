//! A schedule as clients see it: its row, and what it was set with.

use crate::api::commands::GROWTHS;
use crate::api::request::{self, Cadence};
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::server::commands::given_options::write_traceparent;
use corq_shards::cron::Cron;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::Extras;

/// A schedule as clients see it; in a list with its runs.
pub(crate) fn write_cron(writer: &mut Writer<'_>, cron: &Cron, listed: bool) {
    write_row(&mut writer.begin_map(), cron, listed);
}

/// A registration of a schedule that has ended, as a schedule without a next run.
pub(crate) fn write_ended_cron(writer: &mut Writer<'_>, cron: &request::Cron<'_>) {
    let (schedule, every_ms) = match cron.every {
        Cadence::Expression(expression) => (Some(expression), None),
        Cadence::Interval(every_ms) => (None, Some(every_ms)),
    };
    let mut row = writer.begin_map();
    row.key("name").str(cron.name);
    row.key("queue").str(cron.queue);
    row.key("schedule").str_or_nil(schedule);
    row.key("repeatEvery").uint_or_nil(every_ms);
    row.key("nextRun").nil();
    if let Some(timezone) = cron.timezone {
        row.key("timezone").str(timezone);
    }
    if let Some(name) = cron.job.as_deref().and_then(|job| job.name) {
        row.key("jobName").str(name);
    }
}

/// As in a list, and with the payload of its jobs.
pub(crate) fn write_whole_cron(writer: &mut Writer<'_>, cron: &Cron) {
    let mut row = writer.begin_map();
    write_row(&mut row, cron, true);
    row.key("data").raw(&cron.data);
}

fn write_row(row: &mut MapWriter<'_>, cron: &Cron, listed: bool) {
    let job = cron.job();
    row.key("name").str(&cron.name);
    row.key("queue").str(&cron.queue);
    row.key("schedule").str_or_nil(cron.schedule.as_deref());
    row.key("repeatEvery").uint_or_nil(cron.repeat_every_ms);
    row.key("nextRun").uint_or_nil(cron.is_enabled().then_some(cron.next_run_ms));
    if !cron.is_enabled() {
        row.key("enabled").bool(false);
    }
    if listed {
        row.key("executions").uint(cron.executions);
    }
    if let Some(runs_max) = cron.runs_max.filter(|_| listed) {
        row.key("maxLimit").uint(runs_max);
    }
    if let Some(timezone) = &cron.timezone {
        row.key("timezone").str(timezone);
    }
    if let Some(name) = job.name {
        row.key("jobName").str(name);
    }
    if listed {
        write_options(row, cron, &job);
    }
}

fn write_flag(map: &mut MapWriter<'_>, name: &str, set: bool) {
    if set {
        map.key(name).bool(true);
    }
}

fn write_number(map: &mut MapWriter<'_>, name: &str, number: Option<u64>) {
    if let Some(number) = number {
        map.key(name).uint(number);
    }
}

/// Writes the options of a schedule that differ from the defaults, under the names of the command.
fn write_options(row: &mut MapWriter<'_>, cron: &Cron, job: &NewJob<'_>) {
    if cron.priority != 0 {
        row.key("priority").int(i64::from(cron.priority));
    }
    let rules = cron.rules;
    write_flag(row, "immediately", rules.immediately);
    write_flag(row, "skipIfNoWorker", rules.skip_if_no_worker);
    write_flag(row, "preventOverlap", rules.prevent_overlap);
    if rules.catch_up {
        row.key("skipMissedOnRestart").bool(false);
    }
    if let Some(key) = job.unique_key {
        row.key("uniqueKey").str(key);
    }
    let extras = job.extras.as_deref().copied().unwrap_or_default();
    if let Some(dedup) = extras.dedup {
        let mut map = row.map("dedup");
        map.key("ttl").uint(dedup.ttl_ms);
        map.key("extend").bool(dedup.extend);
        map.key("replace").bool(dedup.replace);
    }
    let mut bytes = Vec::new();
    let mut of_jobs = MapWriter::begin(&mut bytes);
    write_job_options(&mut of_jobs, job, &extras);
    let has_any = !of_jobs.is_empty();
    drop(of_jobs);
    if has_any {
        row.key("jobOptions").raw(&bytes);
    }
}

/// Writes the options of a schedule's jobs that differ from the defaults.
fn write_job_options(options: &mut MapWriter<'_>, job: &NewJob<'_>, extras: &Extras) {
    let usual = NewJob::default();
    write_number(options, "delay", Some(job.delay_ms).filter(|&delay_ms| delay_ms > 0));
    let attempts = Some(job.max_attempts).filter(|&most| most != usual.max_attempts);
    write_number(options, "maxAttempts", attempts.map(u64::from));
    match extras.backoff {
        Some(growth) => {
            let mut map = options.map("backoff");
            map.key("type").str(GROWTHS[growth as usize]);
            map.key("delay").uint(u64::from(job.backoff_ms));
            if let Some(max_ms) = extras.backoff_max_ms {
                map.key("maxDelay").uint(u64::from(max_ms));
            }
        }
        None if job.backoff_ms != usual.backoff_ms => {
            write_number(options, "backoff", Some(u64::from(job.backoff_ms)));
        }
        None => {}
    }
    write_number(options, "timeout", job.timeout_ms.map(u64::from));
    write_number(options, "stallTimeout", extras.stall_timeout_ms.map(u64::from));
    write_flag(options, "removeOnComplete", job.remove_on_complete);
    write_flag(options, "removeOnFail", job.remove_on_fail);
    if let Some(trace) = job.trace.as_deref() {
        write_traceparent(&mut options.key("traceparent"), &trace.parent);
        if !trace.state.is_empty() {
            options.key("tracestate").str(trace.state);
        }
    }
}
