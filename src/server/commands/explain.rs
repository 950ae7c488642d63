//! `Explain`: why a job does not run, in words for programs and for people. What is in its way the engine says
//! ([`corq_shards::explain`]); the full disk is known here, and the states of jobs that it waits for on their shards.

use super::job_view::write_id;
use crate::api::error::ErrorKind;
use crate::api::request::JobRef;
use crate::protocol::msgpack::writer::MapWriter;
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::multi_shard::looks::{JobLook, Looks, Then, write_dependency};
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::Shard;
use corq_shards::explain::{Before, Block, Delay, Explanation, Reason};
use corq_shards::job::State;
use corq_shards::job::id::JobId;

impl ShardServer {
    /// Answers `Explain`.
    pub(crate) fn explain(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
    ) {
        let Some((id, index)) = self.known_job(conns, ctx, job) else { return };
        let explanation = self.engine.shard.explain(self.now_ms, index);
        let waits_for = explanation.reasons.iter().find_map(|reason| match reason {
            Reason::Dependencies { jobs, .. } => Some(jobs.clone()),
            _ => None,
        });
        let Some(jobs) = waits_for.filter(|jobs| !jobs.is_empty()) else {
            self.write_explanation(conns, ctx.origin, ctx.req_id, id, &[]);
            return;
        };
        let looks: Looks = jobs.iter().map(|&(job, _)| (job, None)).collect();
        let asked: Vec<(usize, JobId)> = looks.iter().map(|(job, _)| *job).enumerate().collect();
        let then = Then::Explain { job: id, looks };
        let step = self.begin_looks(ctx.origin, ctx.req_id, then);
        self.ask_for_looks(step, &asked, 0);
    }

    /// Answers with what is in the way of a job now. `looks` is what is known of those that it waits for.
    pub(crate) fn write_explanation(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        job: JobId,
        looks: &[(JobId, Option<JobLook>)],
    ) {
        let Some(index) = self.engine.shard.find(job) else {
            self.refuse(conns, origin, req_id, ErrorKind::JobNotFound);
            return;
        };
        self.meter.note(STEPS);
        let (now_ms, disk_full) = (self.now_ms, self.disk_full_notice.is_full());
        let known = Known { looks, hides_unknown: origin.scope.is_some() };
        self.respond(conns, origin, |engine, sink| {
            framed(sink, req_id, |sink| {
                let shard = &engine.shard;
                let explanation = shard.explain(now_ms, index);
                let mut reply = reply::begin(sink.out, true, req_id);
                let mut data = reply.map("data");
                write_id(&mut data.key("id"), &shard.view(index));
                data.key("queue").str(shard.view(index).queue);
                data.key("state").str(explanation.state.name());
                write_explained(&mut data, shard, &explanation, known, now_ms, disk_full);
            });
        });
    }
}

/// Steps that an explanation counts as: some thousand looks at neighbours and leases.
const STEPS: usize =
    8 * corq_shards::explain::LOOKS_MAX / corq_shards::query::LOOKS_PER_STEP as usize;

/// Jobs that the explained job waits for, as far as they are known.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    /// Jobs that were looked at, each with what its shard says of it.
    looks: &'a [(JobId, Option<JobLook>)],
    /// Whether the client is not to learn which other jobs there are.
    hides_unknown: bool,
}

/// Writes the reasons, and when the job may start.
pub(super) fn write_explained(
    data: &mut MapWriter<'_>,
    shard: &Shard,
    explanation: &Explanation<'_>,
    known: Known<'_>,
    now_ms: u64,
    disk_full: bool,
) {
    let mut reasons = data.key("reasons");
    reasons.array(explanation.reasons.len() + usize::from(disk_full));
    for reason in &explanation.reasons {
        let mut map = reasons.begin_map();
        write_reason(&mut map, shard, reason, known, now_ms);
    }
    if disk_full {
        let mut map = reasons.begin_map();
        map.key("code").str("disk_full");
        map.key("text")
            .str("the disk is full: workers wait while what they do has no room in the log");
    }
    data.key("estimatedStart").uint_or_nil(explanation.starts_at_ms);
    match explanation.per_second {
        Some(per_second) => {
            data.key("jobsPerSecond").number((per_second * 1000.0).round() / 1000.0);
        }
        None => data.key("jobsPerSecond").nil(),
    }
}

/// The code and the text of a reason, then what it is made of.
fn write_reason(
    map: &mut MapWriter<'_>,
    shard: &Shard,
    reason: &Reason<'_>,
    known: Known<'_>,
    now_ms: u64,
) {
    let left = |at_ms: u64| at_ms.saturating_sub(now_ms);
    match reason {
        Reason::Next => say(map, "next", "nothing is in its way: the next pull gets it"),
        Reason::QueuePaused => say(map, "queue_paused", "its queue is paused"),
        Reason::Obliterated => {
            say(map, "obliterated", "its queue was obliterated: it is being removed");
        }
        Reason::NoWorker => say(map, "no_worker", "nobody pulls from its queue"),
        Reason::Group { name, block, active } => write_block(map, name, *block, *active, now_ms),
        Reason::Rate { jobs, span_ms, next_ms } => {
            let wait_ms = left(*next_ms);
            let text = format!(
                "the rate limit of its queue, {jobs} in {span_ms} ms, lets the next job go in {wait_ms} ms"
            );
            say(map, "queue_rate", &text);
            map.key("max").uint(u64::from(*jobs));
            map.key("duration").uint(u64::from(*span_ms));
            map.key("until").uint(*next_ms);
            map.key("wait").uint(wait_ms);
        }
        Reason::Concurrency { max, active, jobs } => {
            let active_jobs = counted(*active, "active job");
            let text = format!("its queue has {active_jobs}, and the limit is {max}");
            say(map, "queue_concurrency", &text);
            map.key("limit").uint(u64::from(*max));
            map.key("active").uint(*active);
            let mut list = map.key("jobs");
            let there = jobs.iter().filter_map(|&job| shard.find(job));
            let there: Vec<u32> = there.collect();
            list.array(there.len());
            for job in there {
                write_id(&mut list, &shard.view(job));
            }
        }
        Reason::Delayed { until_ms, why } => write_delay(map, *until_ms, *why, now_ms),
        Reason::Dependencies { count, jobs } => {
            let others = counted(*count as u64, "other job");
            let dead = dead_among(known.looks)
                .map_or_else(String::new, |dead| format!(", and depends on {dead}"));
            say(map, "dependencies", &format!("it waits for {others}{dead}"));
            map.key("count").uint(*count as u64);
            let mut list = map.key("jobs");
            list.array(jobs.len());
            for (job, child) in jobs {
                let look = known.looks.iter().find(|(one, _)| one == job);
                let look = look.and_then(|(_, look)| look.as_ref());
                write_dependency(&mut list, *job, look, *child, known.hides_unknown);
            }
        }
        Reason::JobsBefore(before) => write_before(map, before),
        Reason::Leased { owner, locked, since_ms, until_ms, timeout_at_ms } => {
            let worker =
                owner.map_or_else(|| "a worker".to_owned(), |owner| format!("the worker {owner}"));
            say(map, "leased", &format!("{worker} has it"));
            map.key("worker").str_or_nil(*owner);
            map.key("locked").bool(*locked);
            map.key("since").uint(*since_ms);
            map.key("until").uint_or_nil(*until_ms);
            map.key("timeoutAt").uint_or_nil(*timeout_at_ms);
        }
        Reason::Expires { at_ms } => {
            say(
                map,
                "ttl",
                &format!("it is removed in {} ms unless it starts before", left(*at_ms)),
            );
            map.key("until").uint(*at_ms);
            map.key("wait").uint(left(*at_ms));
        }
        Reason::Completed { at_ms } => {
            say(map, "completed", "it was completed");
            map.key("at").uint(*at_ms);
        }
        Reason::Failed { at_ms, cause, retries_at_ms, expires_at_ms } => {
            say(map, "failed", "it is in the dead-letter queue");
            map.key("at").uint(*at_ms);
            map.key("reason").str(cause.name());
            map.key("nextRetryAt").uint_or_nil(*retries_at_ms);
            map.key("expiresAt").uint_or_nil(*expires_at_ms);
        }
    }
}

/// Jobs in the dead-letter queue among those that one waits for.
fn dead_among(looks: &[(JobId, Option<JobLook>)]) -> Option<String> {
    let mut dead = looks.iter().filter_map(|(_, look)| {
        let look = look.as_ref().filter(|look| look.state == State::Failed)?;
        look.known_as.as_deref()
    });
    let first = dead.next()?;
    let more = match dead.count() {
        0 => String::new(),
        more => format!(", and {more} more there"),
    };
    Some(format!("job {first}, which is in the dead-letter queue{more}"))
}

/// A number of things, the word for one of which is `one`.
fn counted(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

fn say(map: &mut MapWriter<'_>, code: &str, text: &str) {
    map.key("code").str(code);
    map.key("text").str(text);
}

fn write_block(map: &mut MapWriter<'_>, group: &str, block: Block, active: u64, now_ms: u64) {
    let whose = |of_pulls: bool| if of_pulls { "that pulls bring" } else { "that is set for it" };
    match block {
        Block::Paused => say(map, "group_paused", &format!("its group {group} is paused")),
        Block::Held { until_ms } => {
            let wait_ms = until_ms.saturating_sub(now_ms);
            say(map, "group_held", &format!("its group {group} is held for {wait_ms} ms"));
            map.key("until").uint(until_ms);
            map.key("wait").uint(wait_ms);
        }
        Block::Active { max, of_pulls } => {
            let text = format!(
                "its group {group} has {}, and the limit {} is {max}",
                counted(active, "active job"),
                whose(of_pulls)
            );
            say(map, "group_concurrency", &text);
            map.key("limit").uint(max);
            map.key("active").uint(active);
            map.key("ofPulls").bool(of_pulls);
        }
        Block::Rate { rate, until_ms, of_pulls } => {
            let wait_ms = until_ms.saturating_sub(now_ms);
            let text = format!(
                "the rate limit of its group {group} {}, {} in {} ms, lets the next job go in {wait_ms} ms",
                whose(of_pulls),
                rate.jobs,
                rate.span_ms
            );
            say(map, "group_rate", &text);
            map.key("max").uint(rate.jobs);
            map.key("duration").uint(rate.span_ms);
            map.key("until").uint(until_ms);
            map.key("wait").uint(wait_ms);
            map.key("ofPulls").bool(of_pulls);
        }
    }
    map.key("groupId").str(group);
}

fn write_delay(map: &mut MapWriter<'_>, until_ms: u64, why: Delay<'_>, now_ms: u64) {
    let wait_ms = until_ms.saturating_sub(now_ms);
    let (text, cause) = match why {
        Delay::Asked => (format!("it is delayed for {wait_ms} ms"), "delay"),
        Delay::Backoff { attempt } => {
            (format!("it waits {wait_ms} ms after attempt {attempt} failed"), "backoff")
        }
        Delay::Repeat { every_ms } => (
            format!(
                "it is the next run of a job that repeats every {every_ms} ms, due in {wait_ms} ms"
            ),
            "schedule",
        ),
        Delay::Pattern { pattern, timezone } => {
            let zone = timezone.map_or_else(String::new, |zone| format!(" in {zone}"));
            let text = format!(
                "it is the next run of a job that repeats by {pattern}{zone}, due in {wait_ms} ms"
            );
            (text, "schedule")
        }
    };
    say(map, "delayed", &text);
    map.key("cause").str(cause);
    map.key("until").uint(until_ms);
    map.key("wait").uint(wait_ms);
    match why {
        Delay::Asked => {}
        Delay::Backoff { attempt } => map.key("attempt").uint(u64::from(attempt)),
        Delay::Repeat { every_ms } => map.key("every").uint(every_ms),
        Delay::Pattern { pattern, timezone } => {
            map.key("pattern").str(pattern);
            map.key("tz").str_or_nil(timezone);
        }
    }
}

fn write_before(map: &mut MapWriter<'_>, before: &Before) {
    let Before { count, exact, about, groups } = *before;
    let least = if exact { "" } else { "at least " };
    let goes = if count == 1 { "goes" } else { "go" };
    let jobs = counted(count, "job");
    let text = match groups {
        None if exact => format!("{jobs} {goes} before it"),
        None => format!("at least {jobs} {goes} before it, about {about}"),
        Some(groups) => {
            let take = if groups == 1 { "takes" } else { "take" };
            format!(
                "{least}{jobs} of its group {goes} before it, and {} {take} turns: about {}",
                counted(groups, "group"),
                counted(about, "job")
            )
        }
    };
    say(map, "jobs_before", &text);
    map.key("count").uint(count);
    map.key("atLeast").bool(!exact);
    map.key("about").uint(about);
    if let Some(groups) = groups {
        map.key("groups").uint(groups);
    }
}
