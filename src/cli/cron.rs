//! `cron`: schedules.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

use super::context::Context;
use super::failure::Failure;
use super::input;
use super::job_options::{Backoff, Dedup};
use super::output::Table;
use super::request::{Fields, Request};
use super::show;
use super::value::Value;
use super::words::{self, milliseconds};
use crate::api::commands::Op;
use crate::api::objects::GROWTHS;

/// `cron add`.
#[derive(Args, Debug)]
#[group(id = "Cadence", multiple = true)]
pub struct Add {
    /// Name of the schedule; one of the same name is replaced
    name: String,
    /// Queue of its jobs
    queue: String,
    /// Their payload: JSON, @file, or - for standard input (also when it is left out); null if nothing is given
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
    /// Skip a run while nobody pulls from the queue
    #[arg(long)]
    skip_if_no_worker: bool,
    /// Replace the runs that came too late by one, as those that fell due while the server was down
    #[arg(long)]
    catch_up: bool,
    /// Deduplication key of its jobs
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// Longest time the key is held
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    dedup_ttl: Option<i64>,
    /// A second push under the key restarts that time
    #[arg(long)]
    dedup_extend: bool,
    /// A second push under the key replaces a job that is not active
    #[arg(long)]
    dedup_replace: bool,
}

/// Options of the jobs of a schedule.
#[derive(Args, Debug)]
#[group(id = "JobOptions", multiple = true)]
struct JobOptions {
    /// Delay of its jobs after the due time of a run
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    delay: Option<i64>,
    /// Attempts before a job goes to the dead-letter queue
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    max_attempts: Option<i64>,
    /// Wait between attempts, which doubles each time unless --backoff-type says otherwise
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    backoff: Option<i64>,
    /// How the wait between attempts grows
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(GROWTHS))]
    backoff_type: Option<String>,
    /// Longest wait between attempts
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    backoff_max: Option<i64>,
    /// Timeout of one attempt
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    timeout: Option<i64>,
    /// Time without a sign of life after which a job stalls
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    stall_timeout: Option<i64>,
    /// Remove job and result on completion
    #[arg(long)]
    remove_on_complete: bool,
    /// Remove a job instead of moving it to the dead-letter queue
    #[arg(long)]
    remove_on_fail: bool,
    /// Trace that the jobs belong to (W3C Trace Context, 00-...-...-01)
    #[arg(long, value_name = "TRACEPARENT")]
    traceparent: Option<String>,
    /// Trace state that vendors add to the trace, as key=value,...
    #[arg(long, requires = "traceparent", value_name = "TRACESTATE")]
    tracestate: Option<String>,
}

impl Rules {
    fn write(&self, fields: &mut Fields) {
        fields.text_if("uniqueKey", self.unique_key.as_deref());
        let dedup =
            Dedup { ttl: self.dedup_ttl, extend: self.dedup_extend, replace: self.dedup_replace };
        dedup.write(fields);
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
        let (growth, max) = (self.backoff_type.as_deref(), self.backoff_max);
        Backoff { delay: self.backoff, growth, max }.write(&mut options);
        options.integer_if("timeout", self.timeout);
        options.integer_if("stallTimeout", self.stall_timeout);
        options.flag_if("removeOnComplete", self.remove_on_complete);
        options.flag_if("removeOnFail", self.remove_on_fail);
        options.text_if("traceparent", self.traceparent.as_deref());
        options.text_if("tracestate", self.tracestate.as_deref());
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
        /// Name of the schedule
        name: String,
    },
    /// Push a job of a schedule now; its next run stays where it is
    Trigger {
        /// Name of the schedule
        name: String,
    },
    /// Let a disabled schedule run again
    Enable {
        /// Name of the schedule
        name: String,
    },
    /// Let a schedule run no more for now; it keeps its place
    Disable {
        /// Name of the schedule
        name: String,
    },
    /// Show when a schedule runs next
    Preview(Preview),
}

/// `cron preview`.
#[derive(Args, Debug)]
#[group(id = "Preview", multiple = true)]
pub struct Preview {
    /// Name of a schedule; without one, what is given is shown without being set
    name: Option<String>,
    /// A cron expression, as '*/5 * * * *' or '@daily'
    #[arg(long, value_name = "CRON")]
    schedule: Option<String>,
    /// Interval, instead of an expression (milliseconds, or 30s, 5m ...)
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    every: Option<i64>,
    /// IANA name of the time zone of the expression
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// Runs to show
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    count: Option<i64>,
}

/// Carries one out.
pub fn run(context: &mut Context, cron: &Cron) -> Result<(), Failure> {
    match cron {
        Cron::Add(add) => {
            let data = input::payload_or_stdin("data", add.data.as_deref(), Some("null"))?;
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
                let cron = reply.get("cron");
                match show::time(cron.get("nextRun")) {
                    Some(next) => out.pieces(&[format!("{} runs next", add.name).into(), next]),
                    None if cron.get("enabled").is_false() => {
                        out.line(&format!("{} is disabled", add.name))
                    }
                    None => out.line(&format!("{} has had its last run", add.name)),
                }
            })
        }
        Cron::List => list(context),
        Cron::Remove { name } => {
            let request = Request::new(Op::CronDelete).with(|fields| fields.text("name", name));
            context.tell(request, &format!("removed {name}"))
        }
        Cron::Trigger { name } => {
            let request = Request::new(Op::CronTrigger).with(|fields| fields.text("name", name));
            context.ask(request, |out, reply| out.line(reply.get("id").text().unwrap_or_default()))
        }
        Cron::Enable { name } => enable(context, name, true),
        Cron::Disable { name } => enable(context, name, false),
        Cron::Preview(asked) => preview(context, asked),
    }
}

fn enable(context: &mut Context, name: &str, enabled: bool) -> Result<(), Failure> {
    let request = Request::new(Op::SetCronEnabled).with(|fields| {
        fields.text("name", name);
        fields.bool_if("enabled", Some(enabled));
    });
    context.ask(request, |out, reply| match show::time(reply.get("cron").get("nextRun")) {
        Some(next) => out.pieces(&[format!("{name} runs next").into(), next]),
        None => out.line(&format!("{name} is disabled")),
    })
}

fn preview(context: &mut Context, asked: &Preview) -> Result<(), Failure> {
    let request = Request::new(Op::CronPreview).with(|fields| {
        fields.text_if("name", asked.name.as_deref());
        fields.text_if("schedule", asked.schedule.as_deref());
        fields.integer_if("repeatEvery", asked.every);
        fields.text_if("timezone", asked.timezone.as_deref());
        fields.integer_if("count", asked.count);
    });
    context.ask(request, |out, reply| {
        let data = reply.get("data");
        let mut table = Table::new(&["RUN", "LOCAL TIME"]);
        for run in data.get("runs").items() {
            table.row(vec![show::from_now(run.get("at")), show::text(run.get("local"))]);
        }
        if data.get("enabled").is_false() {
            out.line("disabled: these are its runs once it is enabled")?;
        }
        if table.is_empty() { out.line("no run is left") } else { out.table(&table) }
    })
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
                if cron.get("enabled").is_false() {
                    "disabled".into()
                } else {
                    show::from_now(cron.get("nextRun"))
                },
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
