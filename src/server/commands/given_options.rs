//! Options that a job was pushed with, as a worker is shown them: those that were given, and nothing for a job without
//! any. All of them are in memory; the tags are not, they stand in the record of the job beside its payload.

use crate::api::commands::GROWTHS;
use crate::api::limits::BACKOFF_DEFAULT_MS;
use crate::protocol::msgpack::writer::Writer;
use corq_shards::job::flags;
use corq_shards::job::overrides::Growth;
use corq_shards::job::trace::TraceParent;
use corq_shards::job::{Job, Options};

/// The value of an option.
#[derive(Clone, Copy)]
pub enum Given<'a> {
    Number(u64),
    Text(&'a str),
    Yes,
    Traceparent(TraceParent),
    Backoff { growth: Growth, delay_ms: u32, max_ms: Option<u32> },
}

impl Given<'_> {
    pub fn write(self, writer: &mut Writer<'_>) {
        match self {
            Self::Number(number) => writer.uint(number),
            Self::Text(text) => writer.str(text),
            Self::Yes => writer.bool(true),
            Self::Traceparent(parent) => write_traceparent(writer, &parent),
            Self::Backoff { growth, delay_ms, max_ms } => {
                let mut map = writer.begin_map();
                map.key("type").str(GROWTHS[growth as usize]);
                map.key("delay").uint(u64::from(delay_ms));
                if let Some(max_ms) = max_ms {
                    map.key("maxDelay").uint(u64::from(max_ms));
                }
            }
        }
    }
}

/// Where a job was pushed, as text.
pub fn write_traceparent(writer: &mut Writer<'_>, parent: &TraceParent) {
    // Hexadecimal digits are ASCII.
    writer.str(std::str::from_utf8(&parent.text()).unwrap_or_default());
}

/// Whether a job has none of them. All that this looks at is looked at by every delivery.
#[inline]
pub fn is_plain(job: &Job, options: Option<&Options>) -> bool {
    options.is_none() && !job.has(flags::PUSHED) && i64::from(job.backoff_ms) == BACKOFF_DEFAULT_MS
}

/// How many options of a job were given. Apart from the delivery of a plain job, as [`write_given`] is, whose few hundred
/// bytes of code would otherwise lie among those of every pull.
#[cold]
pub fn count_given(job: &Job, options: Option<&Options>) -> usize {
    options_of(job, options).iter().filter(|(_, given)| given.is_some()).count()
}

/// Writes the options of a job that were given, each behind its name.
#[cold]
pub fn write_given(writer: &mut Writer<'_>, job: &Job, options: Option<&Options>) {
    for (name, given) in options_of(job, options) {
        if let Some(given) = given {
            writer.str(name);
            given.write(writer);
        }
    }
}

fn options_of<'a>(
    job: &Job,
    options: Option<&'a Options>,
) -> [(&'static str, Option<Given<'a>>); 12] {
    let extras = options.and_then(|has| has.extras.as_deref());
    let growth = extras.and_then(|extras| extras.backoff);
    let delay_ms = job.backoff_ms;
    let says_backoff = growth.is_some() || i64::from(delay_ms) != BACKOFF_DEFAULT_MS;
    let max_ms = extras.and_then(|extras| extras.backoff_max_ms);
    let timeout_ms = options.map_or(0, |has| has.timeout_ms);
    let dedup_ms = extras.and_then(|extras| extras.dedup).map_or(0, |dedup| dedup.ttl_ms);
    let lines_max = extras.and_then(|extras| extras.stack_lines_max);
    let trace = options.and_then(|has| has.trace.as_deref());
    let state = trace.map(|trace| &*trace.state).filter(|state| !state.is_empty());
    let number = |number: u64| (number > 0).then_some(Given::Number(number));
    let text = |text: Option<&'a str>| text.map(Given::Text);
    let flag = |flag: u8| job.has(flag).then_some(Given::Yes);
    [
        ("backoff", says_backoff.then_some(Given::Number(u64::from(delay_ms)))),
        ("backoffConfig", growth.map(|growth| Given::Backoff { growth, delay_ms, max_ms })),
        ("timeout", number(u64::from(timeout_ms))),
        ("uniqueKey", text(options.and_then(|has| has.unique_key.as_deref()))),
        ("customId", text(options.and_then(|has| has.custom_id.as_deref()))),
        ("lifo", flag(flags::LIFO)),
        ("removeOnComplete", flag(flags::REMOVE_ON_COMPLETE)),
        ("removeOnFail", flag(flags::REMOVE_ON_FAIL)),
        ("deduplicationTtl", number(dedup_ms)),
        ("stackTraceLimit", lines_max.map(|lines| Given::Number(u64::from(lines)))),
        ("traceparent", trace.map(|trace| Given::Traceparent(trace.parent))),
        ("tracestate", text(state)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use corq_shards::job::overrides::{Dedup, Extras};
    use corq_shards::job::trace::Trace;

    fn names(job: &Job, options: Option<&Options>) -> Vec<&'static str> {
        let given = options_of(job, options).into_iter().filter(|(_, given)| given.is_some());
        let names: Vec<&str> = given.map(|(name, _)| name).collect();
        assert_eq!(count_given(job, options), names.len());
        names
    }

    /// The fear: every pull pays for what few jobs have.
    #[test]
    fn of_a_plain_job_nothing_is_shown_or_looked_up() {
        let plain = Job { backoff_ms: BACKOFF_DEFAULT_MS as u32, ..Job::default() };
        assert!(is_plain(&plain, None));
        assert!(names(&plain, None).is_empty());
        let ended = Job { flags: flags::AWAITED | flags::WATCHED | flags::OUT_OF_ORDER, ..plain };
        assert!(is_plain(&ended, None), "what a shard notes of a job is no option");
    }

    #[test]
    fn options_that_were_given_are_shown_and_no_others() {
        let plain = Job { backoff_ms: BACKOFF_DEFAULT_MS as u32, ..Job::default() };
        assert!(names(&plain, Some(&Options::default())).is_empty());
        assert_eq!(names(&Job { backoff_ms: 0, ..plain.clone() }, None), ["backoff"]);
        assert_eq!(names(&Job { flags: flags::LIFO, ..plain.clone() }, None), ["lifo"]);
        let dedup = Some(Dedup { ttl_ms: 5, ..Dedup::default() });
        let growth = Some(Growth::Exponential);
        let extras =
            Extras { backoff: growth, stack_lines_max: Some(0), dedup, ..Extras::default() };
        let parent = TraceParent { trace_id: [1; 16], span_id: [2; 8], flags: 1 };
        let trace = Trace { parent, state: "a=1".into() };
        let options = Options {
            unique_key: Some("k".into()),
            custom_id: Some("c".into()),
            timeout_ms: 9,
            extras: Some(Box::new(extras)),
            trace: Some(Box::new(trace)),
            ..Options::default()
        };
        let all = Job { flags: flags::PUSHED, ..plain };
        assert_eq!(
            names(&all, Some(&options)),
            [
                "backoff",
                "backoffConfig",
                "timeout",
                "uniqueKey",
                "customId",
                "lifo",
                "removeOnComplete",
                "removeOnFail",
                "deduplicationTtl",
                "stackTraceLimit",
                "traceparent",
                "tracestate",
            ]
        );
    }
}
