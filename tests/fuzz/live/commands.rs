//! Random commands out of the table, mostly right and near the bounds, on few queues and names so that
//! they meet. Durations are next to nothing or very long: what time does is done before anybody looks.

use corq::api::commands::{BULK_FILTER_FIELDS, 
    BACKOFF_FIELDS, COMMANDS, CRON_JOB_FIELDS, CommandSpec, DLQ_CONFIG_FIELDS, DLQ_FILTER_FIELDS,
    FLOW_FIELDS, FLOW_JOB_FIELDS, FieldSpec, GROUP_PULL_FIELDS, GROUP_RATE_FIELDS, JOB_FIELDS,
    Kind, STALL_CONFIG_FIELDS,
};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use rmpv::Value;

pub const QUEUES: &[&str] = &["fuzz-a", "fuzz-b", "fuzz-c"];

/// Ids and tokens of earlier answers, from which commands choose.
#[derive(Default)]
pub struct Known {
    pub ids: Vec<String>,
    pub tokens: Vec<String>,
}

/// A command, as the fields of its map.
pub fn command(u: &mut Unstructured<'_>, known: &Known) -> Result<Vec<(Value, Value)>> {
    let spec = busiest(u)?;
    let mut fields = fields(u, known, spec.name, spec.fields)?;
    if spec.name == "Cron" && u.ratio(7, 8)? {
        // Exactly one of the two is allowed.
        fields.retain(|(name, _)| {
            !["schedule", "repeatEvery"].contains(&name.as_str().unwrap_or(""))
        });
        fields.push(("repeatEvery".into(), 3_600_000.into()));
    }
    if u.ratio(1, 40)? {
        fields.push(("unknown".into(), payload(u, 0)?));
    }
    fields.insert(0, ("cmd".into(), spec.name.into()));
    Ok(fields)
}

/// Half of all commands push, pull or end jobs, or the others would find none.
fn busiest(u: &mut Unstructured<'_>) -> Result<&'static CommandSpec> {
    let half = u.arbitrary()?;
    let among = if half { &COMMANDS[..7] } else { COMMANDS };
    u.choose(among)
}

fn fields(
    u: &mut Unstructured<'_>,
    known: &Known,
    command: &str,
    specs: &[FieldSpec],
) -> Result<Vec<(Value, Value)>> {
    let mut fields = Vec::new();
    for spec in specs {
        let wanted = if spec.required { u.ratio(40, 41)? } else { u.ratio(1, 3)? };
        // Without a token, most jobs that are held cannot be ended.
        let wanted = wanted || spec.kind == Kind::Token && u.ratio(1, 2)?;
        // A `WaitJob` without a timeout waits for half a minute.
        let waits = command == "WaitJob" && spec.name == "timeout";
        if wanted || waits {
            let odd = !waits && u.ratio(1, 50)?;
            let value = if odd { strange(u)? } else { value(u, known, command, spec)? };
            fields.push((spec.name.into(), value));
        }
    }
    Ok(fields)
}

fn value(
    u: &mut Unstructured<'_>,
    known: &Known,
    command: &str,
    spec: &FieldSpec,
) -> Result<Value> {
    Ok(match (&spec.kind, spec.name) {
        (Kind::Queue, _) => queue(u)?,
        (Kind::Queues { .. }, _) => list(u, queue)?,
        (Kind::Text { .. }, "schedule") => {
            (*u.choose(&["0 0 29 2 *", "@yearly", "61 * * * *", "?"])?).into()
        }
        (Kind::Text { .. }, "timezone") => {
            (*u.choose(&["UTC", "Europe/Berlin", "Mars/Olympus"])?).into()
        }
        (Kind::Text { .. }, "queues") => {
            (*u.choose(&["none", "top:1", "top:0", "prefix:n"])?).into()
        }
        (Kind::Traceparent, _) => "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(),
        (Kind::Tracestate, _) => (*u.choose(&["", "a=1", "a"])?).into(),
        (Kind::Text { .. }, _) => format!("name{}", u.int_in_range(0..=3)?).into(),
        (Kind::LongText { .. }, _) => (*u.choose(&["", "text", "ä\u{10ffff}\0"])?).into(),
        (Kind::JobId, _) => id(u, known)?.into(),
        (Kind::JobIds, _) | (Kind::Texts { .. }, "dependsOn") => {
            list(u, |u| Ok(id(u, known)?.into()))?
        }
        (Kind::Texts { .. } | Kind::Stack { .. }, _) => list(u, |u| payload(u, 9))?,
        (Kind::Token, _) => token(u, known)?,
        (Kind::Tokens, _) => list(u, |u| token(u, known))?,
        (Kind::TextsOf(choices), _) => list(u, |u| Ok((*u.choose(choices)?).into()))?,
        (Kind::Choice(choices), _) => (*u.choose(choices)?).into(),
        (Kind::Choices(choices), _) => {
            if u.arbitrary()? {
                (*u.choose(choices)?).into()
            } else {
                list(u, |u| Ok((*u.choose(choices)?).into()))?
            }
        }
        (Kind::Integer { min, max }, name) => number(u, command, name, *min, *max)?,
        (Kind::Number { min, max }, _) => {
            let (min, max) = (f64::from(*min), f64::from(*max));
            (*u.choose(&[min, max, 0.5, f64::midpoint(min, max), min - 0.1, max + 0.1])?).into()
        }
        (Kind::Flag, _) => u.arbitrary::<bool>()?.into(),
        (Kind::Payload { .. }, _) => payload(u, 0)?,
        (Kind::Backoff, _) => {
            let delay = value(u, known, command, &BACKOFF_FIELDS[0])?;
            if u.arbitrary()? { delay } else { Value::Map(vec![("delay".into(), delay)]) }
        }
        (Kind::Repeat, _) => Value::Map(vec![
            ("every".into(), (*u.choose(&[1, 3_600_000, 0])?).into()),
            ("limit".into(), u.int_in_range(0..=3)?.into()),
        ]),
        (Kind::Flags, _) => list(u, |u| Ok(u.arbitrary::<bool>()?.into()))?,
        (Kind::Integers { min, max }, name) => list(u, |u| number(u, command, name, *min, *max))?,
        (Kind::Dedup, _) => Value::Map(vec![
            ("ttl".into(), u.int_in_range(0..=3000)?.into()),
            ("extend".into(), u.arbitrary::<bool>()?.into()),
            ("replace".into(), u.arbitrary::<bool>()?.into()),
        ]),
        (Kind::CronJob, _) => Value::Map(fields(u, known, command, CRON_JOB_FIELDS)?),
        (Kind::DlqConfig, _) => Value::Map(fields(u, known, command, DLQ_CONFIG_FIELDS)?),
        (Kind::StallConfig, _) => Value::Map(fields(u, known, command, STALL_CONFIG_FIELDS)?),
        (Kind::DlqFilter, _) => Value::Map(fields(u, known, command, DLQ_FILTER_FIELDS)?),
        (Kind::BulkFilter, _) => Value::Map(fields(u, known, command, BULK_FILTER_FIELDS)?),
        (Kind::Priority, name) => number(u, command, name, -1_000_000, 1_000_000)?,
        (Kind::GroupPull, _) => Value::Map(fields(u, known, command, GROUP_PULL_FIELDS)?),
        (Kind::GroupRate, _) => Value::Map(fields(u, known, command, GROUP_RATE_FIELDS)?),
        (Kind::Flow, _) => list(u, |u| Ok(Value::Map(fields(u, known, command, FLOW_FIELDS)?)))?,
        (Kind::FlowJob, _) => Value::Map(fields(u, known, command, FLOW_JOB_FIELDS)?),
        (Kind::Results, _) => list(u, |u| payload(u, 0))?,
        (Kind::Jobs, _) => list(u, |u| Ok(Value::Map(fields(u, known, "PUSHB", JOB_FIELDS)?)))?,
    })
}

fn queue(u: &mut Unstructured<'_>) -> Result<Value> {
    if u.ratio(1, 60)? {
        return Ok((*u.choose(&["", "a b", "é"])?).into());
    }
    Ok((*u.choose(QUEUES)?).into())
}

fn id(u: &mut Unstructured<'_>, known: &Known) -> Result<String> {
    if known.ids.is_empty() || u.ratio(1, 8)? {
        return Ok(format!("name{}", u.int_in_range(0..=4)?));
    }
    u.choose(&known.ids).cloned()
}

fn token(u: &mut Unstructured<'_>, known: &Known) -> Result<Value> {
    if known.tokens.is_empty() || u.ratio(1, 12)? {
        return Ok((*u.choose(&["", "no token"])?).into());
    }
    // The newest fit most often.
    let newest = &known.tokens[known.tokens.len().saturating_sub(4)..];
    Ok(u.choose(newest)?.as_str().into())
}

fn list(
    u: &mut Unstructured<'_>,
    mut item: impl FnMut(&mut Unstructured<'_>) -> Result<Value>,
) -> Result<Value> {
    let length = u.int_in_range(0..=4)?;
    Ok(Value::Array((0..length).map(|_| item(u)).collect::<Result<_>>()?))
}

/// A number at or next to a bound, or a small one. Waits are short, so that answers come.
fn number(
    u: &mut Unstructured<'_>,
    command: &str,
    name: &str,
    min: i64,
    max: i64,
) -> Result<Value> {
    let waits = matches!(command, "PULL" | "PULLB" | "WaitJob") && name == "timeout";
    let short = waits || name == "repeatEvery" || name == "limit" && command == "RateLimit";
    let largest = match name {
        "repeatEvery" => 3_600_000,
        _ if waits => 20,
        _ => max,
    };
    let smallest = if name == "repeatEvery" { largest } else { min };
    let number = match u.int_in_range(0..=19)? {
        0 => min - 1,
        1 => max + 1,
        2..=6 => smallest,
        7..=9 if !short => max,
        _ => smallest.saturating_add(u.int_in_range(0..=3)?).min(largest),
    };
    Ok(number.into())
}

/// A value that most fields do not take. No number: it could be a time that ends between two looks.
fn strange(u: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match u.int_in_range(0..=5)? {
        0 => Value::Nil,
        1 => u.arbitrary::<bool>()?.into(),
        2 => Value::Binary(u.arbitrary::<[u8; 3]>()?.to_vec()),
        3 => Value::Ext(u.arbitrary()?, u.arbitrary::<[u8; 2]>()?.to_vec()),
        4 => "strange".into(),
        _ => Value::Array(vec![payload(u, 0)?]),
    })
}

/// Any small value.
fn payload(u: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    Ok(match u.int_in_range(0..=if depth < 4 { 9 } else { 6 })? {
        0 => Value::Nil,
        1 => u.arbitrary::<bool>()?.into(),
        2 => u.arbitrary::<i64>()?.into(),
        3 => u.arbitrary::<u8>()?.into(),
        4 => u.arbitrary::<f64>()?.into(),
        5 => Value::Binary(u.arbitrary::<[u8; 3]>()?.to_vec()),
        6 => Value::Ext(u.arbitrary()?, u.arbitrary::<[u8; 2]>()?.to_vec()),
        7 => "text".into(),
        8 => Value::Array(vec![payload(u, depth + 1)?, payload(u, depth + 1)?]),
        _ => Value::Map(vec![(payload(u, depth + 1)?, payload(u, depth + 1)?)]),
    })
}
