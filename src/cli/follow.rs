//! `queue jobs --follow`: the jobs of a queue, then a row for every change of one.

use super::client::{Client, Reply};
use super::context::Context;
use super::failure::Failure;
use super::input;
use super::listing::{Jobs, listing};
use super::output::Table;
use super::request::Request;
use super::rest;
use super::show;
use super::stream::{self, Stream};
use super::value::Value;
use crate::api::commands::Op;

/// Lists and follows until the stream ends.
pub fn jobs(context: &mut Context, jobs: &Jobs) -> Result<(), Failure> {
    // Subscribed before the listing, so that no change falls between the two.
    let mut stream = Stream::open(&context.target, &stream::path_of(&jobs.name.queue), None)?;
    let mut client = context.client()?;
    let reply = client.call(listing(jobs))?;
    let mut shown = 0;
    context.show(&reply, |out, reply| {
        let table = show::job_table(reply.get("jobs").items());
        shown = reply.get("jobs").items().count() as u64;
        out.table(&table.steady())
    })?;
    rest::tell_unlisted_jobs(context, jobs, shown)?;
    context.out.flush()?;
    while let Some(event) = stream.next()? {
        follow(context, &mut client, jobs, &event)?;
        context.out.flush()?;
    }
    Err(Failure::Failed("the server ended the stream".to_owned()))
}

fn follow(
    context: &mut Context,
    client: &mut Client,
    jobs: &Jobs,
    event: &[u8],
) -> Result<(), Failure> {
    let event = input::encode(event).unwrap_or_default();
    let Ok(event) = Value::of(&event) else { return Ok(()) };
    let (Some(kind), Some(id)) = (event.get("eventType").text(), event.get("jobId").text()) else {
        return Ok(());
    };
    // A repeated push changes nothing about the job.
    if id.is_empty() || kind == "duplicated" {
        return Ok(());
    }
    let reply: Reply = client.call(Request::on_job(Op::GetJob, id))?;
    let gone = reply.refusal().is_some();
    let job = reply.value().get("job");
    // A job that is gone by now is shown with its last event.
    let state = if gone { kind } else { job.get("state").text().unwrap_or_default() };
    if !jobs.state.is_empty() && !jobs.state.iter().any(|wanted| wanted == state) {
        return Ok(());
    }
    if context.target.json {
        return context.out.json(reply.value().bytes());
    }
    let table = if gone {
        let mut table = Table::new(&show::JOB_HEADS);
        table.row(show::gone_row(id, kind));
        table
    } else {
        show::job_table([job].into_iter())
    };
    Ok(context.out.rows(&table.steady())?)
}
