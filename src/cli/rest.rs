//! Notes about rows and jobs that a command leaves out for want of a limit. A part that looks like all of it is taken for all of it.

use std::io;

use super::context::Context;
use super::failure::Failure;
use super::listing::Jobs;
use super::output::Output;
use super::request::Request;
use crate::api::commands::Op;

/// Rows of a listing without a limit.
pub const LISTED_MAX: u64 = 100;
/// Jobs that `queue clean` removes without a limit.
pub const CLEANED_MAX: u64 = 1000;

/// Says that a listing ends at the default limit. `all` is the number of rows that there are, where it is known.
pub fn tell_unlisted(
    out: &mut Output,
    shown: u64,
    all: Option<u64>,
    option: &str,
) -> io::Result<()> {
    match all {
        Some(all) if all <= shown => Ok(()),
        Some(all) => out.line(&format!("{shown} of {all} are shown: give {option} for more")),
        None => out.line(&format!("only {shown} are shown: give {option} for more")),
    }
}

/// Says that a listing of the jobs of a queue ends at the default limit.
pub fn tell_unlisted_jobs(context: &mut Context, jobs: &Jobs, shown: u64) -> Result<(), Failure> {
    if jobs.limit.is_some() || shown < LISTED_MAX {
        return Ok(());
    }
    let all = in_states(context, &jobs.name.queue, &jobs.state, true)?;
    let before = jobs.offset.unwrap_or(0).max(0).cast_unsigned();
    let all = all.map(|all| all.saturating_sub(before));
    Ok(tell_unlisted(&mut context.out, shown, all, "--limit")?)
}

/// Says how many jobs are left where the default limit has stopped a clean of these states.
pub fn tell_uncleaned(
    context: &mut Context,
    queue: &str,
    states: &[String],
    grace_ms: i64,
) -> Result<(), Failure> {
    let left = in_states(context, queue, states, false)?;
    let left = match (left, if left == Some(1) { "is" } else { "are" }) {
        (Some(0), _) => return Ok(()),
        (Some(left), are) if grace_ms == 0 => format!("{left} more {are} left"),
        (Some(left), are) => format!("{left} more {are} left in these states, of any age"),
        (None, _) => "more may be left".to_owned(),
    };
    Ok(context.out.line(&format!(
        "{left}: without --limit at most {CLEANED_MAX} are removed; run it again, or give --limit"
    ))?)
}

/// States that are parts of another one, `waiting`.
const PARTS: [&str; 2] = ["prioritized", "paused"];

/// The jobs of a queue in these states; without any, in all, the active one only `with_active`. None where the server does not
/// tell.
pub fn in_states(
    context: &Context,
    queue: &str,
    states: &[String],
    with_active: bool,
) -> Result<Option<u64>, Failure> {
    let reply = context.client()?.call(Request::on_queue(Op::GetJobCounts, queue))?;
    if reply.refusal().is_some() {
        return Ok(None);
    }
    let (mut whole, mut part) = (0, 0);
    for (state, count) in reply.value().get("counts").entries() {
        let (name, count) = (state.text().unwrap_or_default(), count.count());
        let is_named = states.iter().any(|state| state == name);
        let counts = is_named || states.is_empty() && (with_active || name != "active");
        match PARTS.contains(&name) {
            _ if !counts => {}
            true => part = count.max(part),
            false => whole += count,
        }
    }
    let has_all = states.is_empty() || states.iter().any(|state| state == "waiting");
    Ok(Some(if has_all { whole } else { whole + part }))
}
