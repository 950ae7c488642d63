//! Writes an event as text, once, where it happens.

use super::text::{Layout, Place, kind_of, write_job};
use crate::protocol::json;
use crate::server::commands::job_view::text_of;
use crate::server::storage::engine::{Absent, Records};
use corq_shards::event::{Event, Extra, Step};
use corq_shards::log_record::location::LogRef;

/// The longest text of an event. One that would be longer comes without its data.
pub const EVENT_BYTES_MAX: usize = 1 << 20;

/// How much an event shows of records: as much as fits, and as can be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    All,
    /// Why an attempt failed, without the data of the job.
    Reason,
    Nothing,
}

impl Part {
    /// How much is tried, with the data of jobs only if it is wanted.
    pub(super) fn upto(full: bool) -> impl Iterator<Item = Self> {
        [Self::All, Self::Reason, Self::Nothing].into_iter().skip(usize::from(!full))
    }

    /// The records whose payloads are shown.
    pub(super) fn shown(self, event: &Event) -> impl Iterator<Item = LogRef> + use<> {
        let records = match (self, event.step) {
            (Self::All, Step::Pushed) => [event.data, LogRef::default()],
            (Self::All, Step::Completed { result }) => [result, LogRef::default()],
            (Self::All, Step::Failed { error, .. }) => [error, event.data],
            (Self::Reason, Step::Failed { error, .. }) => [error, LogRef::default()],
            _ => [LogRef::default(); 2],
        };
        records.into_iter().filter(|stored| stored.payload_bytes > 0)
    }
}

/// Writes an event as clients see it; says where its parts stand.
pub(super) fn write_event(
    out: &mut Vec<u8>,
    records: &Records<'_>,
    event: &Event,
    part: Part,
) -> Result<Layout, Absent> {
    let mut layout = Layout { kind: kind_of(event.step), at_ms: event.at_ms, ..Layout::default() };
    out.extend_from_slice(b"{\"eventType\":");
    json::string(out, event.step.name());
    layout.begin = out.len() as u32 + 1;
    out.extend_from_slice(b",\"queue\":");
    json::string(out, &event.queue);
    out.extend_from_slice(b",\"jobId\":");
    layout.job.0 = out.len() as u32;
    write_job(out, event);
    layout.job.1 = out.len() as u32;
    if let Some(name) = &event.name {
        out.extend_from_slice(b",\"name\":");
        json::string(out, name);
    }
    if let Some(trace) = &event.trace {
        // Hexadecimal digits are ASCII.
        out.extend_from_slice(b",\"traceparent\":");
        json::string(out, std::str::from_utf8(&trace.parent.text()).unwrap_or_default());
        if !trace.state.is_empty() {
            out.extend_from_slice(b",\"tracestate\":");
            json::string(out, &trace.state);
        }
    }
    layout.timestamp.0 = out.len() as u32;
    out.extend_from_slice(b",\"timestamp\":");
    json::integer(out, event.at_ms);
    layout.timestamp.1 = out.len() as u32;
    write_shown(out, records, event, part, &mut layout.data)?;
    match event.step {
        Step::Failed { terminal, .. } => {
            out.extend_from_slice(if terminal {
                b",\"terminal\":true".as_slice()
            } else {
                b",\"terminal\":false"
            });
        }
        Step::Retried { prev } | Step::Removed { prev } => {
            out.extend_from_slice(b",\"prev\":");
            json::string(out, prev.name());
        }
        Step::Progress(progress) => {
            out.extend_from_slice(b",\"progress\":");
            json::number(out, progress);
        }
        Step::Delayed { delay_ms } => {
            out.extend_from_slice(b",\"delay\":");
            json::integer(out, delay_ms);
        }
        Step::Extra(extra) => write_extra(out, extra),
        _ => {}
    }
    out.push(b'}');
    Ok(layout)
}

fn write_extra(out: &mut Vec<u8>, extra: Extra) {
    let (key, number) = match extra {
        Extra::Prioritized { priority } => ("priority", f64::from(priority)),
        Extra::DelayChanged { delay_ms } => ("delay", delay_ms as f64),
        Extra::Cleaned { jobs } | Extra::DlqRetriedAll { jobs } | Extra::DlqPurged { jobs } => {
            ("count", jobs as f64)
        }
        Extra::RateLimited { jobs } => ("max", f64::from(jobs)),
        Extra::ConcurrencyLimited { jobs } => ("concurrency", f64::from(jobs)),
        _ => return,
    };
    out.push(b',');
    json::string(out, key);
    out.push(b':');
    json::number(out, number);
}

fn write_shown(
    out: &mut Vec<u8>,
    records: &Records<'_>,
    event: &Event,
    part: Part,
    data: &mut Place,
) -> Result<(), Absent> {
    match event.step {
        Step::Failed { error, .. } if part != Part::Nothing => {
            let error = text_of(records, &error)?;
            out.extend_from_slice(b",\"error\":");
            json::string(out, error);
            if part == Part::All {
                write_data(out, records, &event.data, data)?;
            }
        }
        Step::Completed { result } if result.payload_bytes == 0 && part == Part::All => {
            data.0 = out.len() as u32;
            out.extend_from_slice(b",\"data\":null");
            data.1 = out.len() as u32;
        }
        Step::Pushed if part == Part::All => write_data(out, records, &event.data, data)?,
        Step::Completed { result } if part == Part::All => {
            write_data(out, records, &result, data)?;
        }
        _ => {}
    }
    Ok(())
}

fn write_data(
    out: &mut Vec<u8>,
    records: &Records<'_>,
    stored: &LogRef,
    place: &mut Place,
) -> Result<(), Absent> {
    let value = records.payload(stored)?;
    place.0 = out.len() as u32;
    out.extend_from_slice(b",\"data\":");
    let room = EVENT_BYTES_MAX.saturating_sub(out.len());
    // The payload was checked when it came: an error means a damaged record, or a text that is too long.
    json::from_msgpack_within(value, out, room).map_err(|_| Absent::Damaged)?;
    place.1 = out.len() as u32;
    Ok(())
}
