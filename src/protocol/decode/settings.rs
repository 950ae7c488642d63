//! Fields that hold the settings of queues and schedules, and filters: objects of commands that are sent now
//! and then. Which commands those are is not known here.

use corq_shards::dead_letter::policy::{DlqPatch, StallPatch};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::dead_letter::scan::FailedFilter;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::Extras;

use crate::api::bulk::BulkFilter;
use crate::api::commands::{
    BULK_FILTER_FIELDS, BULK_FILTER_REQUIRED, CRON_JOB_FIELDS, CRON_JOB_REQUIRED,
    DLQ_CONFIG_FIELDS, DLQ_CONFIG_NULLABLE, DLQ_CONFIG_REQUIRED, DLQ_FILTER_FIELDS,
    DLQ_FILTER_REQUIRED, FieldSpec, STALL_CONFIG_FIELDS, STALL_CONFIG_REQUIRED,
};
use crate::api::error::Error;
use crate::api::request::DlqFilter;

use super::fields::{Aside, Fields};
use super::job::take_trace;
use super::objects::object;
use super::value::Value;
use crate::protocol::msgpack::Reader;

/// Null on the wire.
const NIL: u8 = 0xc0;

/// Values of the fields that this file reads.
#[derive(Default)]
pub(crate) struct Rare<'a> {
    pub(crate) dlq: Option<DlqPatch>,
    pub(crate) stall: Option<StallPatch>,
    pub(crate) filter: Option<DlqFilter>,
    /// The filter is there, be it null or undefined: clients that want what it comes with name it always.
    pub(crate) filter_is_named: bool,
    pub(crate) job: Option<NewJob<'a>>,
    /// Job of the flow whose other fields are being read.
    pub(crate) flow_job: Option<NewJob<'a>>,
    /// Which jobs an action is about.
    pub(crate) bulk: Option<BulkFilter<'a>>,
}

/// Reads an object within the field `spec`.
fn settings<'a>(
    spec: &FieldSpec,
    fields: &mut Fields<'a>,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<(), Error> {
    let is_object = object(fields, reader, aside)
        .map_err(|error| error.inside(format_args!("{}.", spec.name)))?;
    if is_object { Ok(()) } else { Err(spec.wrong_type()) }
}

pub(crate) fn read_cron_job<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    let mut fields = Fields::new(CRON_JOB_FIELDS, CRON_JOB_REQUIRED);
    settings(spec, &mut fields, reader, aside)?;
    let delay_ms = fields.integer("delay") as u64;
    let max_attempts = fields.integer("maxAttempts") as u16;
    let backoff_ms = fields.integer("backoff") as u32;
    let backoff = aside.backoff.take();
    // None of either is how clients spell no limit.
    let number = |value: Option<u64>| value.filter(|&ms| ms > 0).map(|ms| ms as u32);
    let timeout_ms = number(fields.integer_or_none("timeout"));
    let extras = Extras {
        backoff: backoff.map(|(growth, _)| growth),
        backoff_max_ms: backoff.and_then(|(_, max_ms)| max_ms),
        stall_timeout_ms: number(fields.integer_or_none("stallTimeout")),
        ..Extras::default()
    };
    let job = NewJob {
        delay_ms,
        max_attempts,
        backoff_ms,
        timeout_ms,
        remove_on_complete: fields.flag("removeOnComplete"),
        remove_on_fail: fields.flag("removeOnFail"),
        trace: take_trace(&mut fields),
        extras: (extras != Extras::default()).then(|| Box::new(extras)),
        ..NewJob::default()
    };
    aside.rare.get_or_insert_default().job = Some(job);
    Ok(Value::Aside)
}

pub(crate) fn read_dlq_config<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    let nulls = nulls(*reader, &DLQ_CONFIG_NULLABLE);
    let mut fields = Fields::new(DLQ_CONFIG_FIELDS, DLQ_CONFIG_REQUIRED);
    settings(spec, &mut fields, reader, aside)?;
    let patch = DlqPatch {
        auto_retry: fields.flag_or_none("autoRetry"),
        retry_interval_ms: fields.integer_or_none("autoRetryInterval"),
        retries_max: fields.integer_or_none("maxAutoRetries").map(|most| most as u32),
        age_max_ms: fields.integer_or_none("maxAge").map(Some).or(nulls[0].then_some(None)),
        entries_max: fields
            .integer_or_none("maxEntries")
            .map(|most| Some(most as u32))
            .or(nulls[1].then_some(None)),
    };
    aside.rare.get_or_insert_default().dlq = Some(patch);
    Ok(Value::Aside)
}

/// Which of these fields of an object are null, as opposed to absent. Errors in the object are reported
/// when it is read.
fn nulls<const N: usize>(mut reader: Reader<'_>, names: &[&str; N]) -> [bool; N] {
    let mut nulls = [false; N];
    let Ok(Some(entries)) = reader.map() else { return nulls };
    for _ in 0..entries {
        let Ok(key) = reader.pass_key() else { break };
        let place = names.iter().position(|name| name.as_bytes() == key);
        if let Some(place) = place.filter(|_| reader.rest().first() == Some(&NIL)) {
            nulls[place] = true;
        }
        if reader.pass().is_err() {
            break;
        }
    }
    nulls
}

pub(crate) fn read_stall_config<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    let mut fields = Fields::new(STALL_CONFIG_FIELDS, STALL_CONFIG_REQUIRED);
    settings(spec, &mut fields, reader, aside)?;
    let patch = StallPatch {
        enabled: fields.flag_or_none("enabled"),
        interval_ms: fields.integer_or_none("stallInterval").map(|ms| ms as u32),
        stalls_max: fields.integer_or_none("maxStalls").map(|most| most as u8),
        grace_ms: fields.integer_or_none("gracePeriod").map(|ms| ms as u32),
    };
    aside.rare.get_or_insert_default().stall = Some(patch);
    Ok(Value::Aside)
}

pub(crate) fn read_dlq_filter<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    let mut fields = Fields::new(DLQ_FILTER_FIELDS, DLQ_FILTER_REQUIRED).closed(true);
    settings(spec, &mut fields, reader, aside)?;
    let cause = fields.mask("reason").map(|bit| Cause::ALL[bit.trailing_zeros() as usize]);
    // A time or a number of nothing is how clients spell none.
    let number = |value: Option<u64>| value.filter(|&number| number > 0);
    let filter = FailedFilter {
        cause,
        until_ms: number(fields.integer_or_none("olderThan")),
        since_ms: number(fields.integer_or_none("newerThan")),
        retriable: fields.flag("retriable"),
        expired: fields.flag("expired"),
    };
    let limit = number(fields.integer_or_none("limit")).unwrap_or(u64::MAX);
    let offset = fields.integer("offset") as u64;
    let rare = aside.rare.get_or_insert_default();
    rare.filter = Some(DlqFilter { filter, offset, limit });
    rare.filter_is_named = true;
    Ok(Value::Aside)
}

pub(crate) fn read_bulk_filter<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Error> {
    let mut fields = Fields::new(BULK_FILTER_FIELDS, BULK_FILTER_REQUIRED).strict(true);
    settings(spec, &mut fields, reader, aside)?;
    let filter = BulkFilter {
        states: fields.mask("state"),
        name: fields.text_or_none("name"),
        tag: fields.text_or_none("tag"),
        group: fields.text_or_none("group"),
        from_ms: fields.integer_or_none("from"),
        to_ms: fields.integer_or_none("to"),
        text: fields.text_or_none("text"),
        path: fields.text_or_none("path"),
        value: fields.raw("value"),
        error: fields.text_or_none("error"),
        error_group: fields.text_or_none("errorGroup"),
    };
    aside.rare.get_or_insert_default().bulk = Some(filter);
    Ok(Value::Aside)
}
