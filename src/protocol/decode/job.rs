//! The fields of a job that is pushed, put together. What each must look like stands in [`crate::api::commands`].

use corq_shards::dependency::Unmet;
use corq_shards::family::{CHILD_BYTES, NewFamily, Policy};
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::{Dedup, Extras, Growth};
use corq_shards::job::trace::{NewTrace, TraceParent};

use crate::api::error::{Error, ErrorKind};
use crate::api::limits::{FAMILY_BYTES_MAX, GROUP_PRIORITY_MAX, OPTIONS_BYTES_MAX, PRIORITY_MAX};

use super::fields::{Aside, Fields};
use crate::protocol::msgpack::Texts;

/// Takes the fields of a job. `jobId` and `customId` are the same thing; where a client sends both,
/// the name that belongs to its command counts.
#[inline]
pub(crate) fn take_job<'a>(
    f: &mut Fields<'a>,
    aside: &mut Aside<'a>,
    in_batch: bool,
) -> Result<NewJob<'a>, Error> {
    let (data, name) = (f.raw("data"), f.text_or_none("name"));
    // Most jobs are no more than a payload. That these defaults are the table's is tested.
    if f.rest_is_absent() {
        return Ok(NewJob { data, name, ..NewJob::default() });
    }
    let priority = f.integer("priority") as i32;
    let delay_ms = f.integer("delay") as u64;
    let max_attempts = f.integer("maxAttempts") as u16;
    let backoff_ms = f.integer("backoff") as u32;
    let backoff = aside.backoff.take();
    // A life or a time limit of nothing is how clients spell none.
    let ttl_ms = f.integer_or_none("ttl").filter(|ttl| *ttl > 0);
    let timeout_ms = f.integer_or_none("timeout").filter(|timeout| *timeout > 0);
    let unique_key = f.text_or_none("uniqueKey");
    let (job_id, custom_id) = (f.text_or_none("jobId"), f.text_or_none("customId"));
    let tags = f.raw("tags");
    let group_id = f.text_or_none("groupId");
    if group_id.is_some() || i64::from(priority).abs() > PRIORITY_MAX {
        check_priority(priority, group_id.is_some())?;
    }
    let job = NewJob {
        data,
        name,
        priority,
        delay_ms,
        max_attempts,
        backoff_ms,
        ttl_ms,
        timeout_ms: timeout_ms.map(|timeout| timeout as u32),
        unique_key,
        custom_id: if in_batch { custom_id.or(job_id) } else { job_id.or(custom_id) },
        group_id,
        group_max: 0,
        tags,
        lifo: f.flag("lifo"),
        remove_on_complete: f.flag("removeOnComplete"),
        remove_on_fail: f.flag("removeOnFail"),
        durable: f.flag("durable"),
        depends_on: f.raw("dependsOn"),
        // The server finds that out before it pushes the job.
        unmet: Unmet::default(),
        repeat: if f.aside("repeat") { aside.repeat.take() } else { None },
        extras: None,
        family: None,
        recurrence: aside.recurrence.take(),
        trace: None,
    };
    let job = take_extras(f, aside, backoff, job)?;
    if let Some(own) = job.custom_id
        && Texts::new(job.depends_on).iter().any(|other| other == own)
    {
        return Err(ErrorKind::DependsOnItself.into());
    }
    check_options(&job)?;
    Ok(job)
}

/// Checks how long all that a job says of itself is.
fn check_options(job: &NewJob<'_>) -> Result<(), Error> {
    let trace_state = job.trace.as_deref().map(|trace| trace.state);
    let texts = [job.name, job.unique_key, job.custom_id, job.group_id, trace_state];
    let pattern_bytes = job.recurrence.as_deref().and_then(|it| it.pattern).map_or(0, str::len);
    let options_bytes = texts.iter().map(|text| text.map_or(0, str::len)).sum::<usize>()
        + pattern_bytes
        + job.tags.len()
        + dependencies_bytes(job);
    if options_bytes > OPTIONS_BYTES_MAX {
        return Err(Error::options_too_large(OPTIONS_BYTES_MAX));
    }
    Ok(())
}

/// In a group larger numbers mean something, too.
#[cold]
fn check_priority(priority: i32, grouped: bool) -> Result<(), Error> {
    let least = -PRIORITY_MAX;
    let most = if grouped { GROUP_PRIORITY_MAX } else { PRIORITY_MAX };
    if (least..=most).contains(&i64::from(priority)) {
        return Ok(());
    }
    let of = if grouped { " in a group" } else { "" };
    Err(Error::must_be("priority", format_args!("between {least} and {most}{of}")))
}

/// Bytes of the list of dependencies, where it is not that of the children.
fn dependencies_bytes(job: &NewJob<'_>) -> usize {
    let children = job.family.as_deref().map_or(&[][..], |family| family.children);
    if job.depends_on == children { 0 } else { job.depends_on.len() }
}

/// Takes what a job says of its parent and its children.
fn take_family<'a>(
    f: &mut Fields<'a>,
    job: &NewJob<'a>,
) -> Result<Option<Box<NewFamily<'a>>>, Error> {
    if f.rest_is_absent() {
        return Ok(None);
    }
    let (parent, children) = (f.text_or_none("parentId"), f.raw("childrenIds"));
    let policies = [
        ("failParentOnFailure", Policy::Fail),
        ("continueParentOnFailure", Policy::Continue),
        ("ignoreDependencyOnFailure", Policy::Ignore),
        ("removeDependencyOnFailure", Policy::Remove),
    ];
    let mut policy = None;
    for (name, given) in policies {
        if f.flag(name) {
            policy = policy.or(Some(given));
        }
    }
    if parent.is_none() && children.is_empty() && policy.is_none() {
        return Ok(None);
    }
    let family_bytes = 2 * children.len() + CHILD_BYTES * Texts::new(children).len() / 2;
    if family_bytes > 0 && job.data.len() + family_bytes > FAMILY_BYTES_MAX {
        let most = FAMILY_BYTES_MAX.saturating_sub(family_bytes);
        return Err(Error::data_beside_children(most));
    }
    Ok(Some(Box::new(NewFamily { parent, policy, children, ..NewFamily::default() })))
}

/// Takes the rules that few jobs have.
#[inline]
fn take_extras<'a>(
    f: &mut Fields<'a>,
    aside: &mut Aside<'a>,
    backoff: Option<(Growth, Option<u32>)>,
    job: NewJob<'a>,
) -> Result<NewJob<'a>, Error> {
    if f.rest_is_absent() && backoff.is_none() {
        return Ok(job);
    }
    take_all_extras(f, aside, backoff, job)
}

fn take_all_extras<'a>(
    f: &mut Fields<'a>,
    aside: &mut Aside<'a>,
    backoff: Option<(Growth, Option<u32>)>,
    mut job: NewJob<'a>,
) -> Result<NewJob<'a>, Error> {
    let number = |value: Option<u64>| value.map(|value| value.min(u64::from(u32::MAX)) as u32);
    let mut dedup = if f.aside("dedup") { aside.dedup.take() } else { None };
    let stall_timeout_ms = number(f.integer_or_none("stallTimeout").filter(|&ms| ms > 0));
    // A debounce is a key with a time under another name.
    let (debounce_id, debounce_ttl) =
        (f.text_or_none("debounceId"), f.integer_or_none("debounceTtl"));
    if let (None, Some(id)) = (job.unique_key, debounce_id) {
        job.unique_key = Some(id);
        let ttl_ms = debounce_ttl.unwrap_or(0);
        dedup = dedup.or(Some(Dedup { ttl_ms, ..Dedup::default() }));
    }
    let extras = Extras {
        backoff: backoff.map(|(growth, _)| growth),
        backoff_max_ms: backoff.and_then(|(_, max_ms)| max_ms),
        stall_timeout_ms,
        stack_lines_max: number(f.integer_or_none("stackTraceLimit")),
        keep_logs: number(f.integer_or_none("keepLogs")),
        size_limit: number(f.integer_or_none("sizeLimit").filter(|&bytes| bytes > 0)),
        made_at_ms: f.integer_or_none("timestamp"),
        dedup: dedup.filter(|dedup| job.unique_key.is_some() && *dedup != Dedup::default()),
    };
    let group_max = number(f.integer_or_none("groupMaxSize"));
    job.group_max = group_max.filter(|_| job.group_id.is_some()).unwrap_or(0);
    if let Some(most) = extras.size_limit
        && job.data.len() > most as usize
    {
        return Err(Error::over_size_limit(most));
    }
    if extras != Extras::default() {
        job.extras = Some(Box::new(extras));
    }
    job.family = take_family(f, &job)?;
    job.trace = if f.rest_is_absent() { None } else { take_trace(f) };
    Ok(job)
}

/// Takes the trace that a job belongs to. What vendors add to none says nothing.
pub(super) fn take_trace<'a>(f: &mut Fields<'a>) -> Option<Box<NewTrace<'a>>> {
    let (parent, state) = (f.text_or_none("traceparent"), f.text_or_none("tracestate"));
    // The form was checked when the field was read.
    let parent = TraceParent::parse(parent?)?;
    Some(Box::new(NewTrace { parent, state: state.unwrap_or_default() }))
}

/// Gives the trace that a request names to those of its jobs that name none. The first job has the place `base`.
pub(super) fn join_trace<'a: 'j, 'j>(
    f: &mut Fields<'a>,
    jobs: impl Iterator<Item = &'j mut NewJob<'a>>,
) -> Result<(), Error> {
    if f.rest_is_absent() {
        return Ok(());
    }
    let Some(trace) = take_trace(f) else { return Ok(()) };
    for (place, job) in jobs.enumerate() {
        if job.trace.is_none() {
            job.trace = Some(trace.clone());
            check_options(job).map_err(|error| error.in_job(place))?;
        }
    }
    Ok(())
}
