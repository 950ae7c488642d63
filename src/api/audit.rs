//! Which commands have an entry in the audit log: those that change more than one job, or what is set for many. What is worth
//! knowing of each is put together here, too.
//!
//! A new command for admins has an entry unless it is named below.

use super::access::Permission;
use super::bulk::{Action, Bulk};
use super::commands::Op;
use super::objects::LISTED;
use super::request::{Body, Cadence, Cron, Route};
use corq_shards::dead_letter::policy::{DlqPatch, StallPatch};
use std::fmt::{Display, Write};

impl Op {
    /// Whether it may have an entry.
    pub const fn is_audited(self) -> bool {
        let of_one_job = matches!(
            self,
            Self::Cancel
                | Self::ChangePriority
                | Self::Promote
                | Self::ChangeDelay
                | Self::UpdateParent
                | Self::RemoveChildDependency
                | Self::ClearLogs
                | Self::RemoveJobDeduplicationKey
                | Self::RemoveDeduplicationKey
                | Self::RemoveDlqJob
        );
        let changes_nothing =
            matches!(self, Self::CompactMemory | Self::TrimEvents | Self::AuditLog);
        let of_admin = matches!(self.needs(), Permission::Admin);
        of_admin && !of_one_job && !changes_nothing || matches!(self, Self::Bulk | Self::CancelTask)
    }
}

/// Details of a command for its audit entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject<'a> {
    pub queue: Option<&'a str>,
    /// In words, as short as it goes.
    pub about: String,
}

/// Details of a command for its audit entry; `None` if it has no entry.
pub fn subject<'b>(body: &'b Body<'_>) -> Option<Subject<'b>> {
    if !body.op().is_audited() {
        return None;
    }
    let about = match body {
        Body::RetryDlq { job: Some(_), .. } | Body::RetryCompleted { job: Some(_), .. } => {
            return None;
        }
        Body::Bulk { bulk } => return Some(Subject { queue: bulk.queue, about: of_bulk(bulk) }),
        Body::Cron { cron } => {
            return Some(Subject { queue: Some(cron.queue), about: of_cron(cron) });
        }
        Body::AddWebhook { url, queue, .. } => {
            return Some(Subject { queue: *queue, about: without_secrets(url) });
        }
        Body::RateLimit { limit, span_ms, ttl_ms, .. } => {
            let ttl = ttl_ms.map_or(String::new(), |ttl_ms| format!(" for {ttl_ms} ms"));
            format!("{limit} per {span_ms} ms{ttl}")
        }
        Body::SetConcurrency { limit, .. } => format!("limit {limit}"),
        Body::PromoteJobs { count, .. }
        | Body::RetryDlq { count, .. }
        | Body::RetryCompleted { count, .. } => at_most(*count),
        Body::Drain { delayed: Some(delayed), .. } => format!("delayed {delayed}"),
        Body::Clean { grace_ms, limit, .. } => format!("older than {grace_ms} ms, at most {limit}"),
        Body::SetDlqConfig { config, .. } => of_dlq(config),
        Body::SetStallConfig { config, .. } => of_stalls(config),
        Body::CronDelete { name } | Body::CronTrigger { name } => (*name).to_owned(),
        Body::SetCronEnabled { name, enabled } => format!("{name} enabled {enabled}"),
        Body::RemoveWebhook { id } | Body::TestWebhook { id } => (*id).to_owned(),
        Body::SetWebhookEnabled { id, enabled } => format!("{id} enabled {enabled}"),
        Body::CancelTask { task } => (*task).to_owned(),
        Body::SetGroupRateLimit { group, jobs, span_ms, .. } => {
            format!("group {group}: {jobs} per {span_ms} ms")
        }
        Body::SetGroupConcurrency { group, most, .. } => format!("group {group}: limit {most}"),
        Body::SetGroupWeight { group, weight, .. } => format!("group {group}: weight {weight}"),
        Body::RemoveGroupRateLimit { group, .. }
        | Body::RemoveGroupConcurrency { group, .. }
        | Body::PauseGroup { group, .. }
        | Body::ResumeGroup { group, .. } => format!("group {group}"),
        _ => String::new(),
    };
    Some(Subject { queue: queue_of(body), about })
}

/// The queue that a command names.
pub fn queue_of<'b>(body: &'b Body<'_>) -> Option<&'b str> {
    match body.route() {
        Route::Queue(queue) | Route::JobInQueue(queue, _) => Some(queue),
        _ => None,
    }
}

fn at_most(count: Option<u64>) -> String {
    count.map_or(String::new(), |count| format!("at most {count}"))
}

/// The fields that are given, as `name value`.
fn given(fields: &[(&str, Option<String>)]) -> String {
    let given =
        fields.iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)));
    given.collect::<Vec<_>>().join(", ")
}

fn text(value: Option<impl Display>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// A bound that may be taken away.
#[allow(
    clippy::option_option,
    reason = "a patch tells what is taken away from what is left as it is"
)]
fn bound(value: Option<Option<impl Display>>) -> Option<String> {
    value.map(|value| value.map_or("none".to_owned(), |value| value.to_string()))
}

fn of_dlq(patch: &DlqPatch) -> String {
    given(&[
        ("autoRetry", text(patch.auto_retry)),
        ("autoRetryInterval", text(patch.retry_interval_ms)),
        ("maxAutoRetries", text(patch.retries_max)),
        ("maxAge", bound(patch.age_max_ms)),
        ("maxEntries", bound(patch.entries_max)),
    ])
}

fn of_stalls(patch: &StallPatch) -> String {
    given(&[
        ("enabled", text(patch.enabled)),
        ("stallInterval", text(patch.interval_ms)),
        ("maxStalls", text(patch.stalls_max)),
        ("gracePeriod", text(patch.grace_ms)),
    ])
}

fn of_cron(cron: &Cron<'_>) -> String {
    match cron.every {
        Cadence::Expression(schedule) => format!("{}: {schedule}", cron.name),
        Cadence::Interval(every_ms) => format!("{}: every {every_ms} ms", cron.name),
    }
}

/// The states of these bits.
fn names_of(bits: u32) -> String {
    let named = LISTED.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
    named.map(|(_, name)| *name).collect::<Vec<_>>().join("+")
}

fn of_bulk(bulk: &Bulk<'_>) -> String {
    let mut about = bulk.action().name().to_owned();
    // Writing to a text does not fail.
    let _ = match bulk.action() {
        Action::Delay { delay_ms } => write!(about, " by {delay_ms} ms"),
        Action::Priority { priority } => write!(about, " {priority}"),
        _ => Ok(()),
    };
    if let Some(ids) = bulk.ids {
        let _ = write!(about, " of {} ids", ids.len());
    }
    if let Some(filter) = &bulk.filter {
        let fields = given(&[
            ("states", filter.states.map(names_of)),
            ("name", text(filter.name)),
            ("tag", text(filter.tag)),
            ("group", text(filter.group)),
            ("from", text(filter.from_ms)),
            ("to", text(filter.to_ms)),
            ("path", text(filter.path)),
            ("text", filter.text.map(|_| "given".to_owned())),
            ("error", text(filter.error)),
            ("errorGroup", text(filter.error_group)),
        ]);
        about.push_str(if fields.is_empty() { " of all jobs" } else { " where " });
        about.push_str(&fields);
    }
    if let Some(limit) = bulk.limit {
        let _ = write!(about, ", at most {limit}");
    }
    if bulk.dry_run {
        about.push_str(", dry run");
    }
    about
}

/// A URL without what may be a secret: user, password, query and fragment.
fn without_secrets(url: &str) -> String {
    let front = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = front.split_once("://") else { return "a URL".to_owned() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::commands::COMMANDS;

    #[test]
    fn every_command_for_admins_has_an_entry_unless_it_is_about_one_job_or_changes_nothing() {
        let audited: Vec<&str> =
            COMMANDS.iter().filter(|spec| spec.op.is_audited()).map(|spec| spec.name).collect();
        for name in
            ["Obliterate", "Drain", "Clean", "PurgeDlq", "Pause", "Resume", "RateLimit", "Cron"]
        {
            assert!(audited.contains(&name), "{name}");
        }
        for name in ["AddWebhook", "Bulk", "RetryDlq", "BackupPoint", "SetDlqConfig", "PauseGroup"]
        {
            assert!(audited.contains(&name), "{name}");
        }
        for name in ["PUSH", "ACK", "Cancel", "GetJob", "TrimEvents", "Auth", "AuditLog"] {
            assert!(!audited.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_url_is_told_without_what_may_be_a_secret() {
        for (url, told) in [
            ("https://user:pass@example.com/hook?key=1#x", "https://example.com/hook"),
            ("https://example.com?key=1", "https://example.com"),
            ("http://a@b@host:8080/p", "http://host:8080/p"),
            ("nonsense", "a URL"),
        ] {
            assert_eq!(without_secrets(url), told);
        }
    }
}
