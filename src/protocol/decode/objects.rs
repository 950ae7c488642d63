//! Fields that hold objects with fields of their own: `backoff`, `repeat`, `jobs`.
//!
//! An error inside names the path to the field. Which command an object belongs to is not known here.

use corq_shards::command::{GroupPull, Only};
use corq_shards::group::GroupRate;
use corq_shards::job::new_job::Repeat;
use corq_shards::job::overrides::{Dedup, Growth};
use corq_shards::job::recurrence::Recurrence;

use crate::api::commands::{
    BACKOFF_FIELDS, BACKOFF_REQUIRED, DEDUP_FIELDS, DEDUP_REQUIRED, FLOW_FIELDS, FLOW_JOB_FIELDS,
    FLOW_REQUIRED, FieldSpec, GROUP_PULL_FIELDS, GROUP_PULL_REQUIRED, GROUP_RATE_FIELDS,
    GROUP_RATE_REQUIRED, JOB_FIELDS, JOB_REQUIRED, Kind, REPEAT_FIELDS, REPEAT_REQUIRED,
};
use crate::api::error::{Error, ErrorKind};
use crate::api::flow::FlowJob;
use crate::api::limits::BATCH_PATTERNS_MAX;

use super::fields::{Aside, Fields};
use super::job::take_job;
use super::value::{Value, batch, integer};
use crate::protocol::msgpack::Reader;

/// Bytes of a cron expression that are read in about the time of a short one.
const PATTERN_BYTES: usize = 64;

/// Reads an object within a field into `fields`; `false` if another type stands here.
#[inline]
pub(crate) fn object<'a>(
    fields: &mut Fields<'a>,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<bool, Error> {
    let Some(entries) = reader.map()? else { return Ok(false) };
    for _ in 0..entries {
        let key = reader.key()?;
        fields.read(key, reader, aside)?;
    }
    fields.complete(aside.version)?;
    Ok(true)
}

pub(crate) fn read_backoff<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    let mut fields = Fields::new(BACKOFF_FIELDS, BACKOFF_REQUIRED);
    if object(&mut fields, reader, aside).map_err(|error| error.inside("backoff."))? {
        let delay_ms = fields.integer("delay");
        let growth = [Growth::Exponential, Growth::Fixed][fields.choice("type")];
        let max_ms = fields.integer_or_none("maxDelay").map(|max_ms| max_ms as u32);
        aside.backoff = Some((growth, max_ms));
        return Ok(Value::Integer(delay_ms));
    }
    let Kind::Integer { min, max } = BACKOFF_FIELDS[0].kind else { return Err(spec.wrong_type()) };
    integer(spec, reader, min, max).map(Value::Integer)
}

pub(crate) fn read_repeat<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    let mut fields = Fields::new(REPEAT_FIELDS, REPEAT_REQUIRED);
    if !object(&mut fields, reader, aside).map_err(|error| error.inside("repeat."))? {
        return Err(spec.wrong_type());
    }
    let every_ms = fields.integer_or_none("every");
    let (limit, count) = (fields.integer_or_none("limit"), fields.integer("count") as u64);
    let (pattern, timezone) = (fields.text_or_none("pattern"), fields.text_or_none("tz"));
    let immediately = fields.flag("immediately");
    let from_ms = fields.integer_or_none("startDate").unwrap_or(0);
    let until_ms = fields.integer_or_none("endDate");
    let every_ms = match (every_ms, pattern) {
        (None, None) => return Err(Error::required("repeat.every")),
        (Some(_), Some(_)) => return Err(ErrorKind::RepeatTwice.into()),
        // The interval is not used where there is a pattern.
        (None, Some(_)) => u64::MAX,
        (Some(every_ms), None) => every_ms,
    };
    let recurrence = Recurrence { pattern, timezone, until_ms, from_ms, immediately };
    if let Some(pattern) = pattern {
        aside.patterns += 1 + pattern.len() / PATTERN_BYTES;
        if aside.patterns > BATCH_PATTERNS_MAX {
            return Err(Error::too_many_patterns(BATCH_PATTERNS_MAX));
        }
        check_plan(&recurrence)?;
    }
    let is_plain = recurrence == Recurrence { immediately, ..Recurrence::default() };
    aside.recurrence = (!is_plain).then(|| Box::new(recurrence));
    aside.repeat = Some(Repeat { every_ms, limit, count });
    Ok(Value::Aside)
}

/// Whether there is a run.
fn check_plan(recurrence: &Recurrence<'_>) -> Result<(), Error> {
    let plan = recurrence.plan().map_err(|bad| {
        let why = bad.0.replacen("schedule", "repeat.pattern", 1);
        Error::bad_schedule(why.replacen("timezone", "repeat.tz", 1))
    })?;
    let Recurrence { from_ms, until_ms, .. } = *recurrence;
    let too_late = |due_ms: u64| until_ms.is_some_and(|until_ms| due_ms > until_ms);
    if let Some(plan) = plan
        && plan.next(0, from_ms.saturating_sub(1)).is_none_or(too_late)
    {
        return Err(ErrorKind::RepeatNever.into());
    }
    Ok(())
}

pub(crate) fn read_dedup<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    let mut fields = Fields::new(DEDUP_FIELDS, DEDUP_REQUIRED);
    if !object(&mut fields, reader, aside).map_err(|error| error.inside("dedup."))? {
        return Err(spec.wrong_type());
    }
    aside.dedup = Some(Dedup {
        ttl_ms: fields.integer_or_none("ttl").unwrap_or(0),
        extend: fields.flag("extend"),
        replace: fields.flag("replace"),
        until_ms: 0,
    });
    Ok(Value::Aside)
}

pub(crate) fn read_group_pull<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    /// Null in `MessagePack`.
    const NIL: u8 = 0xc0;
    let mut fields = Fields::new(GROUP_PULL_FIELDS, GROUP_PULL_REQUIRED);
    let Some(entries) = reader.map()? else { return Err(spec.wrong_type()) };
    let mut ungrouped = false;
    for _ in 0..entries {
        let key = reader.key()?;
        if key == b"affinity" && reader.rest().first() == Some(&NIL) {
            ungrouped = true;
            reader.skip()?;
            continue;
        }
        fields.read(key, reader, aside).map_err(|error| error.inside("group."))?;
    }
    let active_max = fields.integer_or_none("concurrency");
    let rate = if fields.aside("limit") { aside.rate.take() } else { None };
    let only = match (fields.text_or_none("affinity"), ungrouped) {
        (Some(_), true) => return Err(ErrorKind::AffinityTwice.into()),
        (Some(group), false) => Only::Group(group),
        (None, true) => Only::Ungrouped,
        (None, false) => Only::Any,
    };
    aside.group = Some(GroupPull { active_max, rate, only });
    Ok(Value::Aside)
}

pub(crate) fn read_group_rate<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    let mut fields = Fields::new(GROUP_RATE_FIELDS, GROUP_RATE_REQUIRED);
    if !object(&mut fields, reader, aside).map_err(|error| error.inside("limit."))? {
        return Err(spec.wrong_type());
    }
    let (jobs, span_ms) = (fields.integer("max") as u64, fields.integer("duration") as u64);
    aside.rate = Some(GroupRate { jobs, span_ms });
    Ok(Value::Aside)
}

pub(crate) fn read_jobs<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    let count = batch(spec, reader)?;
    let mut jobs = Vec::with_capacity(count);
    let mut fields = Fields::new(JOB_FIELDS, JOB_REQUIRED);
    for index in 0..count {
        fields.reset();
        let job = match object(&mut fields, reader, aside) {
            Ok(true) => take_job(&mut fields, aside, true),
            Ok(false) => return Err(spec.wrong_item(index)),
            Err(error) => Err(error),
        };
        match job {
            Ok(job) => jobs.push(job),
            Err(error) => return Err(error.in_job(index)),
        }
    }
    aside.jobs = jobs;
    Ok(Value::Aside)
}

pub(crate) fn read_flow_job<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    let mut fields = Fields::new(FLOW_JOB_FIELDS, JOB_REQUIRED);
    let job = match object(&mut fields, reader, aside) {
        Ok(true) => take_job(&mut fields, aside, true),
        Ok(false) => return Err(spec.wrong_type()),
        Err(error) => Err(error),
    };
    let job = job.map_err(|error| error.inside("input."))?;
    aside.rare.get_or_insert_default().flow_job = Some(job);
    Ok(Value::Aside)
}

pub(crate) fn read_flow<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    let count = batch(spec, reader)?;
    let mut jobs = Vec::with_capacity(count);
    let mut fields = Fields::new(FLOW_FIELDS, FLOW_REQUIRED);
    for index in 0..count {
        fields.reset();
        match object(&mut fields, reader, aside) {
            Ok(true) => {}
            Ok(false) => return Err(spec.wrong_item(index)),
            Err(error) => return Err(error.in_job(index)),
        }
        let (id, queue) = (fields.text("id"), fields.text("queue"));
        let job = aside.rare.as_deref_mut().and_then(|rare| rare.flow_job.take());
        let job = job.unwrap_or_default();
        jobs.push(FlowJob { id, queue, job });
    }
    aside.flow = jobs;
    Ok(Value::Aside)
}
