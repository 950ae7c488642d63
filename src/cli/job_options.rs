//! The options of a job that is pushed: one or more for each of its fields. A test compares them with the table.

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::request::Fields;
use super::words::milliseconds;
use crate::api::objects::GROWTHS;

/// Values of `--on-failure`, and the fields that they set.
const ON_FAILURE: [(&str, &str); 4] = [
    ("fail-parent", "failParentOnFailure"),
    ("continue-parent", "continueParentOnFailure"),
    ("ignore", "ignoreDependencyOnFailure"),
    ("remove", "removeDependencyOnFailure"),
];

/// The options of a job.
#[derive(Args, Debug)]
#[group(id = "Options", multiple = true)]
pub struct Options {
    /// Name of the job, besides its payload
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Higher is delivered first
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    priority: Option<i64>,
    /// Delay before delivery (milliseconds, or 30s, 5m, 1h30m ...)
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    delay: Option<i64>,
    /// Attempts before the job goes to the dead-letter queue
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
    /// Time to live from creation while the job is not active
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    ttl: Option<i64>,
    /// Timeout of one attempt
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    timeout: Option<i64>,
    /// Time without a sign of life after which the job stalls
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    stall_timeout: Option<i64>,
    /// Deduplication key within the queue
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
    /// The key if there is no --unique-key, held for --debounce-ttl
    #[arg(long, value_name = "KEY")]
    debounce_id: Option<String>,
    /// Longest time the key of --debounce-id is held
    #[arg(long, requires = "debounce_id", value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    debounce_ttl: Option<i64>,
    /// Custom id; pushing it again returns the first job
    #[arg(long, value_name = "ID", conflicts_with = "bulk")]
    job_id: Option<String>,
    /// A label; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Group of the job
    #[arg(long, value_name = "GROUP")]
    group_id: Option<String>,
    /// Refuse the job if its group has this many waiting jobs
    #[arg(long, requires = "group_id", allow_negative_numbers = true, value_name = "N")]
    group_max_size: Option<i64>,
    /// Newest first within its priority
    #[arg(long)]
    lifo: bool,
    /// Remove job and result on completion
    #[arg(long)]
    remove_on_complete: bool,
    /// Remove the job instead of moving it to the dead-letter queue
    #[arg(long)]
    remove_on_fail: bool,
    /// Reply after an fsync
    #[arg(long)]
    durable: bool,
    /// Lines of its log that are kept, the newest
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    keep_logs: Option<i64>,
    /// Lines of a stack trace that are kept
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    stack_trace_limit: Option<i64>,
    /// Bytes that its payload may have, now and after each update
    #[arg(long, allow_negative_numbers = true, value_name = "BYTES")]
    size_limit: Option<i64>,
    /// Creation time, milliseconds since 1970
    #[arg(long, allow_negative_numbers = true, value_name = "MS")]
    timestamp: Option<i64>,
    /// Id of a job that must complete first; may be given several times
    #[arg(long, value_name = "ID")]
    depends_on: Vec<String>,
    /// Id of a child: a job that must complete first, and whose result the job can read; may be given several times
    #[arg(long = "child", value_name = "ID")]
    children: Vec<String>,
    /// Id of the parent, or pending if that is pushed later
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// Effect of its final failure: fail its parent, let it run at once, or count as the end of a child, with or
    /// without the error to be read
    #[arg(long, value_name = "WHAT", value_parser = PossibleValuesParser::new(ON_FAILURE.map(|(name, _)| name)))]
    on_failure: Option<String>,
    /// Trace that the job belongs to (W3C Trace Context, 00-...-...-01)
    #[arg(long, value_name = "TRACEPARENT")]
    traceparent: Option<String>,
    /// Trace state that vendors add to the trace, as key=value,...
    #[arg(long, requires = "traceparent", value_name = "TRACESTATE")]
    tracestate: Option<String>,
}

/// How a job repeats.
#[derive(Args, Debug)]
#[group(id = "Repeat", multiple = true)]
#[allow(clippy::struct_field_names)] // They are the names of the options.
pub struct Repeat {
    /// Push the next run this long after the due time of each run
    #[arg(long, group = "Cadence", value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    repeat_every: Option<i64>,
    /// Push the next run at the times of a cron expression instead
    #[arg(long, group = "Cadence", value_name = "CRON")]
    repeat_pattern: Option<String>,
    /// IANA name of the time zone of the expression
    #[arg(long, requires = "repeat_pattern", value_name = "ZONE")]
    repeat_timezone: Option<String>,
    /// The first run of the expression is ready at once
    #[arg(long, requires = "repeat_pattern")]
    repeat_immediately: bool,
    /// Total number of runs
    #[arg(long, requires = "Cadence", allow_negative_numbers = true, value_name = "N")]
    repeat_limit: Option<i64>,
    /// Runs so far
    #[arg(long, requires = "Cadence", allow_negative_numbers = true, value_name = "N")]
    repeat_count: Option<i64>,
    /// The first run is not due before, milliseconds since 1970
    #[arg(long, requires = "Cadence", allow_negative_numbers = true, value_name = "MS")]
    repeat_start: Option<i64>,
    /// No run is due later, milliseconds since 1970
    #[arg(long, requires = "Cadence", allow_negative_numbers = true, value_name = "MS")]
    repeat_end: Option<i64>,
}

impl Options {
    /// Writes those that were given into a job.
    pub fn write(&self, fields: &mut Fields) {
        fields.text_if("name", self.name.as_deref());
        fields.integer_if("priority", self.priority);
        fields.integer_if("delay", self.delay);
        fields.integer_if("maxAttempts", self.max_attempts);
        let (growth, max) = (self.backoff_type.as_deref(), self.backoff_max);
        Backoff { delay: self.backoff, growth, max }.write(fields);
        fields.integer_if("ttl", self.ttl);
        fields.integer_if("timeout", self.timeout);
        fields.integer_if("stallTimeout", self.stall_timeout);
        self.write_keys(fields);
        fields.texts_if("tags", &self.tags);
        fields.text_if("groupId", self.group_id.as_deref());
        fields.integer_if("groupMaxSize", self.group_max_size);
        fields.flag_if("lifo", self.lifo);
        fields.flag_if("removeOnComplete", self.remove_on_complete);
        fields.flag_if("removeOnFail", self.remove_on_fail);
        fields.flag_if("durable", self.durable);
        fields.integer_if("keepLogs", self.keep_logs);
        fields.integer_if("stackTraceLimit", self.stack_trace_limit);
        fields.integer_if("sizeLimit", self.size_limit);
        fields.integer_if("timestamp", self.timestamp);
        fields.text_if("traceparent", self.traceparent.as_deref());
        fields.text_if("tracestate", self.tracestate.as_deref());
        self.write_family(fields);
    }

    fn write_keys(&self, fields: &mut Fields) {
        fields.text_if("jobId", self.job_id.as_deref());
        fields.text_if("uniqueKey", self.unique_key.as_deref());
        fields.text_if("debounceId", self.debounce_id.as_deref());
        fields.integer_if("debounceTtl", self.debounce_ttl);
        let (extend, replace) = (self.dedup_extend, self.dedup_replace);
        Dedup { ttl: self.dedup_ttl, extend, replace }.write(fields);
    }

    /// Whether the job waits for others.
    pub fn has_dependencies(&self) -> bool {
        !(self.depends_on.is_empty() && self.children.is_empty())
    }

    /// Children are jobs that it depends on, too.
    fn write_family(&self, fields: &mut Fields) {
        let waits_for: Vec<String> =
            self.depends_on.iter().chain(&self.children).cloned().collect();
        fields.texts_if("dependsOn", &waits_for);
        fields.texts_if("childrenIds", &self.children);
        fields.text_if("parentId", self.parent.as_deref());
        let on_failure =
            ON_FAILURE.iter().find(|(name, _)| Some(*name) == self.on_failure.as_deref());
        if let Some((_, field)) = on_failure {
            fields.flag_if(field, true);
        }
    }
}

/// How long attempts wait.
pub struct Backoff<'a> {
    pub delay: Option<i64>,
    pub growth: Option<&'a str>,
    pub max: Option<i64>,
}

impl Backoff<'_> {
    /// A plain number is enough if the wait grows as usual.
    pub fn write(&self, fields: &mut Fields) {
        if self.growth.is_none() && self.max.is_none() {
            return fields.integer_if("backoff", self.delay);
        }
        let mut backoff = Fields::of_backoff();
        backoff.integer_if("delay", self.delay);
        backoff.text_if("type", self.growth);
        backoff.integer_if("maxDelay", self.max);
        fields.raw("backoff", &backoff.finish());
    }
}

/// Effect of a second push under the same key.
pub struct Dedup {
    pub ttl: Option<i64>,
    pub extend: bool,
    pub replace: bool,
}

impl Dedup {
    /// Nothing, if nothing is said.
    pub fn write(&self, fields: &mut Fields) {
        let mut dedup = Fields::of_dedup();
        dedup.integer_if("ttl", self.ttl);
        dedup.flag_if("extend", self.extend);
        dedup.flag_if("replace", self.replace);
        if !dedup.is_empty() {
            fields.raw("dedup", &dedup.finish());
        }
    }
}

impl Repeat {
    /// Writes what was given of it into a job.
    pub fn write(&self, fields: &mut Fields) {
        let mut repeat = Fields::of_repeat();
        repeat.integer_if("every", self.repeat_every);
        repeat.text_if("pattern", self.repeat_pattern.as_deref());
        repeat.text_if("tz", self.repeat_timezone.as_deref());
        repeat.flag_if("immediately", self.repeat_immediately);
        repeat.integer_if("limit", self.repeat_limit);
        repeat.integer_if("count", self.repeat_count);
        repeat.integer_if("startDate", self.repeat_start);
        repeat.integer_if("endDate", self.repeat_end);
        if !repeat.is_empty() {
            fields.raw("repeat", &repeat.finish());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::api::objects::{BACKOFF_FIELDS, DEDUP_FIELDS, JOB_FIELDS, REPEAT_FIELDS};
    use crate::cli::value::Value;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[arg(long)]
        bulk: bool,
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        repeat: Repeat,
    }

    /// A job with all these options.
    fn job(line: &str) -> Vec<u8> {
        let Line { bulk, options, repeat } =
            Line::try_parse_from(["push"].into_iter().chain(line.split(' '))).unwrap();
        assert!(!bulk);
        let mut fields = Fields::of_job();
        options.write(&mut fields);
        repeat.write(&mut fields);
        fields.finish()
    }

    #[test]
    fn every_field_of_a_job_has_an_option() {
        let job = job(
            "--name n --priority 1 --delay 1 --max-attempts 1 --backoff 1 --backoff-type fixed --backoff-max 1 --ttl 1 \
             --timeout 1 --stall-timeout 1 --unique-key k --dedup-ttl 1 --dedup-extend --dedup-replace \
             --debounce-id k --debounce-ttl 1 --job-id i --tag t --group-id g --group-max-size 1 --lifo \
             --remove-on-complete --remove-on-fail --durable --keep-logs 1 --stack-trace-limit 1 --size-limit 1 \
             --timestamp 1 --traceparent t --tracestate a=1 --depends-on d --child c --parent p --on-failure ignore --repeat-pattern @daily \
             --repeat-timezone UTC --repeat-immediately --repeat-limit 1 --repeat-count 1 --repeat-start 1 --repeat-end 1",
        );
        let job = Value::of(&job).unwrap();
        // The payload is no option, the custom id has two names, and one failure does one thing.
        let others: Vec<&str> = ON_FAILURE.iter().map(|(_, field)| *field).collect();
        let left_out = |name: &str| ["data", "customId"].contains(&name) || others.contains(&name);
        let fields = JOB_FIELDS.iter().filter(|field| !left_out(field.name));
        fields.for_each(|field| assert!(!job.get(field.name).is_nil(), "{}", field.name));
        for (name, fields) in [("backoff", BACKOFF_FIELDS), ("dedup", DEDUP_FIELDS)] {
            let object = job.get(name);
            for field in fields {
                assert!(!object.get(field.name).is_nil(), "{name}.{}", field.name);
            }
        }
        let given = |field: &&str| !job.get("repeat").get(field).is_nil();
        let repeat: Vec<&str> = REPEAT_FIELDS.iter().map(|field| field.name).collect();
        assert!(repeat.iter().filter(|field| **field != "every").all(given));
        assert!(
            others.iter().filter(|field| given_of(job, field)).eq(&["ignoreDependencyOnFailure"])
        );
        let children: Vec<_> = job.get("dependsOn").items().filter_map(Value::text).collect();
        assert_eq!(children, ["d", "c"]);
    }

    fn given_of(job: Value<'_>, field: &str) -> bool {
        job.get(field).is_true()
    }

    #[test]
    fn a_plain_wait_stays_a_number() {
        let plain = job("--backoff 2s --repeat-every 1m");
        let plain = Value::of(&plain).unwrap();
        assert_eq!(plain.get("backoff").integer(), Some(2000));
        assert_eq!(plain.get("repeat").get("every").integer(), Some(60_000));
        for (name, field) in ON_FAILURE {
            let job = job(&format!("--on-failure {name}"));
            assert!(Value::of(&job).unwrap().get(field).is_true(), "{name}");
        }
    }
}
