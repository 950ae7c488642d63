//! The jobs of a flow as its answer shows them: what they are when they come.

use crate::api::flow::FlowJob;
use crate::protocol::msgpack::writer::Writer;
use corq_shards::family::{NewFamily, Policy};
use corq_shards::job::State;
use corq_shards::job::new_job::NewJob;

/// Most bytes that the answer to a flow may be estimated at: it tells of every job.
pub(super) const ANSWER_BYTES_MAX: usize = 60 << 20;

/// Most bytes of a job in the answer, without its payload, its lists and its texts.
const SNAPSHOT_BYTES: usize = 560;

/// See [`corq_shards::job::overrides::Extras::delay_left_ms`].
pub(super) fn delay_ms(job: &NewJob<'_>, now_ms: u64) -> u64 {
    job.extras.as_ref().map_or(job.delay_ms, |extras| extras.delay_left_ms(job.delay_ms, now_ms))
}

pub(super) fn answer_bytes(one: &FlowJob<'_>) -> usize {
    let job = &one.job;
    let family = job.family.as_deref().copied().unwrap_or_default();
    let texts =
        [job.name, job.group_id, family.parent, Some(one.id), Some(one.id), Some(one.queue)];
    let texts: usize = texts.iter().flatten().map(|text| text.len()).sum();
    SNAPSHOT_BYTES
        + job.data.len()
        + job.depends_on.len()
        + family.children.len()
        + job.tags.len()
        + texts
}

/// A job that has just come, as clients look at it.
pub(super) fn write_snapshot(writer: &mut Writer<'_>, one: &FlowJob<'_>, now_ms: u64) {
    const NO_TEXTS: &[u8] = &[0x90];
    let job = &one.job;
    let none = NewFamily::default();
    let family = job.family.as_deref().unwrap_or(&none);
    let delay_ms = delay_ms(job, now_ms);
    let made_at_ms = job.extras.as_ref().and_then(|extras| extras.made_at_ms).unwrap_or(now_ms);
    let state = match delay_ms {
        _ if !job.depends_on.is_empty() => State::WaitingChildren,
        0 => State::Waiting,
        _ => State::Delayed,
    };
    let [depends_on, children, tags] = [job.depends_on, family.children, job.tags]
        .map(|list| if list.is_empty() { NO_TEXTS } else { list });
    let mut map = writer.begin_wide_map();
    for (name, text) in
        [("id", Some(one.id)), ("queue", Some(one.queue)), ("customId", Some(one.id))]
    {
        map.key(name).str_or_nil(text);
    }
    if let Some(name) = job.name {
        map.key("name").str(name);
    }
    for (name, text) in
        [("parentId", family.parent), ("groupId", job.group_id), ("uniqueKey", None)]
    {
        map.key(name).str_or_nil(text);
    }
    map.key("state").str(state.name());
    for (name, value) in
        [("data", job.data), ("dependsOn", depends_on), ("childrenIds", children), ("tags", tags)]
    {
        map.key(name).raw(value);
    }
    map.key("priority").int(i64::from(job.priority));
    for (name, number) in [
        ("createdAt", made_at_ms),
        ("runAt", now_ms + delay_ms),
        ("attempts", 0),
        ("maxAttempts", u64::from(job.max_attempts)),
        ("backoff", u64::from(job.backoff_ms)),
        ("progress", 0),
        ("stallCount", 0),
        ("childrenCompleted", 0),
    ] {
        map.key(name).uint(number);
    }
    for (name, number) in [
        ("startedAt", None),
        ("completedAt", None),
        ("ttl", job.ttl_ms),
        ("timeout", job.timeout_ms.map(u64::from)),
    ] {
        map.key(name).uint_or_nil(number);
    }
    for (name, flag) in [
        ("lifo", job.lifo),
        ("removeOnComplete", job.remove_on_complete),
        ("removeOnFail", job.remove_on_fail),
        ("durable", job.durable),
        ("failParentOnFailure", family.policy == Some(Policy::Fail)),
        ("continueParentOnFailure", family.policy == Some(Policy::Continue)),
        ("ignoreDependencyOnFailure", family.policy == Some(Policy::Ignore)),
        ("removeDependencyOnFailure", family.policy == Some(Policy::Remove)),
    ] {
        map.key(name).bool(flag);
    }
}
