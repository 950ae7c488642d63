//! `cron`: schedules.

use clap::{Args, Subcommand};

use super::context::Context;
use super::failure::Failure;
use super::input;
use super::output::Table;
use super::request::{Fields, Request};
use super::show;
use super::value::Value;
use super::words::{self, milliseconds};
use crate::api::commands::Op;

/// `cron add`.
#[derive(Args, Debug)]
#[group(id = "Cadence", multiple = true)]
pub struct Add {
    /// Name of the schedule; one of the same name is replaced
    name: String,
    /// Queue of its jobs
    queue: String,
    /// Their payload: JSON, @file, or - for standard input (also when it is left out)
    #[arg(allow_negative_numbers = true)]
    data: Option<String>,
    /// A cron expression, as '*/5 * * * *' or '@daily'
    #[arg(long, value_name = "CRON")]
    schedule: Option<String>,
    /// Interval, instead of an expression (milliseconds, or 30s, 5m ...)
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    every: Option<i64>,
    /// Priority of its jobs
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    priority: Option<i64>,
    /// Name of its jobs
    #[arg(long, value_name = "NAME")]
    job_name: Option<String>,
    /// Number of runs after which it is removed
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    max_limit: Option<i64>,
    /// IANA name of the time zone of the expression
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    #[command(flatten)]
    rules: Rules,
    #[command(flatten)]
    jobs: JobOptions,
}

/// By which rules a schedule runs.
#[derive(Args, Debug)]
#[group(id = "Rules", multiple = true)]
struct Rules {
    /// Run at once, too, if there is no schedule of that name
    #[arg(long)]
    immediately: bool,
    /// Skip a run while the job of an earlier run is not done
    #[arg(long)]
    no_overlap: bool,
    /// Skip a run while the queue has no worker
    #[arg(long)]
    skip_if_no_worker: bool,
    /// Replace the runs that fell due while the server was down by one
    #[arg(long)]
    catch_up: bool,
    /// Deduplication key of its jobs
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
}

/// What the jobs of a schedule are pushed with.
#[derive(Args, Debug)]
#[group(id = "JobOptions", multiple = true)]
struct JobOptions {
    /// Delay of its jobs after the due time of a run
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    delay: Option<i64>,
    /// Attempts before a job goes to the dead-letter queue
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    max_attempts: Option<i64>,
    /// Base of the exponential wait between attempts
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    backoff: Option<i64>,
    /// Timeout of one attempt
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    timeout: Option<i64>,
    /// Remove job and result on completion
    #[arg(long)]
    remove_on_complete: bool,
    /// Remove a job instead of moving it to the dead-letter queue
    #[arg(long)]
    remove_on_fail: bool,
}

impl Rules {
    fn write(&self, fields: &mut Fields) {
        fields.text_if("uniqueKey", self.unique_key.as_deref());
        fields.flag_if("immediately", self.immediately);
        fields.flag_if("skipIfNoWorker", self.skip_if_no_worker);
        fields.bool_if("skipMissedOnRestart", self.catch_up.then_some(false));
        fields.flag_if("preventOverlap", self.no_overlap);
    }
}

impl JobOptions {
    fn write(&self, fields: &mut Fields) {
        let mut options = Fields::of_cron_job();
        options.integer_if("delay", self.delay);
        options.integer_if("maxAttempts", self.max_attempts);
        options.integer_if("backoff", self.backoff);
        options.integer_if("timeout", self.timeout);
        options.flag_if("removeOnComplete", self.remove_on_complete);
        options.flag_if("removeOnFail", self.remove_on_fail);
        if !options.is_empty() {
            fields.raw("jobOptions", &options.finish());
        }
    }
}

/// Commands on schedules.
#[derive(Subcommand, Debug)]
pub enum Cron {
    /// Push a job at every time of a schedule
    Add(Box<Add>),
    /// List the schedules
    List,
    /// Remove a schedule
    Remove {
        /// Its name
        name: String,
    },
}

/// Carries one out.
pub fn run(context: &mut Context, cron: &Cron) -> Result<(), Failure> {
    match cron {
        Cron::Add(add) => {
            let data = input::payload_or_stdin("data", add.data.as_deref())?;
            let request = Request::new(Op::Cron).with(|fields| {
                fields.text("name", &add.name);
                fields.text("queue", &add.queue);
                fields.raw("data", &data);
                fields.text_if("schedule", add.schedule.as_deref());
                fields.integer_if("repeatEvery", add.every);
                fields.integer_if("priority", add.priority);
                fields.text_if("jobName", add.job_name.as_deref());
                fields.integer_if("maxLimit", add.max_limit);
                fields.text_if("timezone", add.timezone.as_deref());
                add.rules.write(fields);
                add.jobs.write(fields);
            });
            context.ask(request, |out, reply| {
                let next = show::time(reply.get("cron").get("nextRun"));
                out.pieces(&[
                    format!("{} runs next", add.name).into(),
                    next.unwrap_or_else(|| "at a time of the server's".into()),
                ])
            })
        }
        Cron::List => list(context),
        Cron::Remove { name } => {
            let request = Request::new(Op::CronDelete).with(|fields| fields.text("name", name));
            context.tell(request, &format!("removed {name}"))
        }
    }
}

fn list(context: &mut Context) -> Result<(), Failure> {
    context.ask(Request::new(Op::CronList), |out, reply| {
        let mut table = Table::new(&["NAME", "QUEUE", "SCHEDULE", "NEXT", ">RUNS"]);
        for cron in reply.get("crons").items() {
            let runs = cron.get("executions").count();
            let runs = match cron.get("maxLimit").integer() {
                Some(limit) => format!("{runs}/{limit}"),
                None => runs.to_string(),
            };
            table.row(vec![
                show::text(cron.get("name")),
                show::text(cron.get("queue")),
                cadence(cron).into(),
                show::from_now(cron.get("nextRun")),
                runs.into(),
            ]);
        }
        if table.is_empty() { out.line("there are no schedules") } else { out.table(&table) }
    })
}

fn cadence(cron: Value<'_>) -> String {
    match (cron.get("schedule").text(), cron.get("repeatEvery").integer()) {
        (Some(schedule), _) => match cron.get("timezone").text() {
            Some(zone) => format!("{schedule} {zone}"),
            None => schedule.to_owned(),
        },
        (None, Some(every)) => format!("every {}", words::duration(every)),
        (None, None) => "-".to_owned(),
    }
}
