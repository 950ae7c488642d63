//! Records which commands and options of jobs a life has played. Matched without a wildcard, so that a new command or
//! option does not build before this file says how the simulator plays it.

use corq_shards::command::{Beat, Command, GroupLimit, Limit, Only};
use corq_shards::dead_letter::policy::RulePatch;
use corq_shards::dead_letter::scan::DlqScanFor;
use corq_shards::job::change::Change;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::{Dedup, Extras};
use std::collections::BTreeSet;

/// Names of what a run has played.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Played(pub BTreeSet<&'static str>);

/// Commands and options that are not played, and why not.
pub const NOT_PLAYED: &[&str] = &[
    // How a schedule moves between shards is the server's own.
    "HoldCron",
    // Neither changes what becomes of a job.
    "job size limit",
    "job stack lines",
];

/// All that there is.
pub const ALL: &[&str] = &[
    "Push",
    "Push of several",
    "Pull",
    "Pull of groups",
    "Pull of a group",
    "Pull of no group",
    "Pull with a limit of groups",
    "Pull rate of groups",
    "CheckAcks",
    "Ack",
    "Ack that removes",
    "Fail",
    "Fail that removes",
    "Heartbeat",
    "Heartbeats",
    "ExtendLock",
    "AwaitEnd",
    "Pause",
    "Limit rate",
    "Limit active",
    "LimitGroup rate",
    "LimitGroup active",
    "LimitGroup weight",
    "LimitGroup pause",
    "LimitGroup hold",
    "Rule dlq",
    "Rule stall",
    "Sift for listing",
    "Sift for retry",
    "Sift for stats",
    "Sift with a filter",
    "RetryFailed",
    "RetryCompleted",
    "RetryCompleted of old ones",
    "FreeKey",
    "PromoteAll",
    "Drain",
    "DrainAll",
    "PurgeFailed",
    "Clean",
    "CleanViews",
    "Obliterate",
    "SetCron",
    "HoldCron",
    "EnableCron",
    "RemoveCron",
    "StartCrons",
    "AddWebhook",
    "EnableWebhook",
    "RemoveWebhook",
    "Notice",
    "Stage",
    "Decide",
    "Report",
    "Disconnect",
    "EndWaits",
    "Cancel",
    "Remove",
    "Update",
    "Prioritize",
    "Promote",
    "PutOff",
    "ToWait",
    "Delay",
    "Discard",
    "Bury",
    "Bin",
    "FreeKey of a job",
    "Adopt",
    "LetGo",
    "Link",
    "Abandon",
    "Block",
    "CutLog",
    "Progress",
    "Log",
    "job name",
    "job priority",
    "job delay",
    "job attempts",
    "job backoff",
    "job ttl",
    "job timeout",
    "job unique key",
    "job custom id",
    "job group",
    "job group max",
    "job tags",
    "job depends on",
    "job repeat",
    "job lifo",
    "job remove on complete",
    "job remove on fail",
    "job durable",
    "job kin",
    "job trace",
    "job backoff growth",
    "job backoff max",
    "job stall timeout",
    "job keep logs",
    "job size limit",
    "job stack lines",
    "job timestamp",
    "job key ttl",
    "job key extend",
    "job key replace",
];

impl Played {
    fn note(&mut self, what: &'static str) {
        self.0.insert(what);
    }

    fn note_if(&mut self, is_so: bool, what: &'static str) {
        if is_so {
            self.0.insert(what);
        }
    }

    pub fn command(&mut self, command: &Command<'_>) {
        match command {
            Command::Push { jobs, .. } => {
                self.note("Push");
                self.note_if(jobs.len() > 1, "Push of several");
                jobs.iter().for_each(|job| self.job(job));
            }
            Command::Pull(pull) => {
                self.note("Pull");
                if let Some(group) = pull.group {
                    self.note("Pull of groups");
                    self.note_if(matches!(group.only, Only::Group(_)), "Pull of a group");
                    self.note_if(group.only == Only::Ungrouped, "Pull of no group");
                    self.note_if(group.active_max.is_some(), "Pull with a limit of groups");
                    self.note_if(group.rate.is_some(), "Pull rate of groups");
                }
            }
            Command::CheckAcks { .. } => self.note("CheckAcks"),
            Command::Ack { acks } => {
                self.note("Ack");
                self.note_if(acks.iter().any(|ack| ack.remove), "Ack that removes");
            }
            Command::Fail(fail) => {
                self.note("Fail");
                self.note_if(fail.remove, "Fail that removes");
            }
            Command::Heartbeat(Beat { ttl_ms, .. }) => {
                self.note("Heartbeat");
                self.note_if(ttl_ms.is_some(), "ExtendLock");
            }
            Command::Heartbeats { .. } => self.note("Heartbeats"),
            Command::Change { change, .. } => self.change(change),
            Command::AwaitEnd { .. } => self.note("AwaitEnd"),
            Command::Pause { .. } => self.note("Pause"),
            Command::Limit { limit: Limit::Rate(_), .. } => self.note("Limit rate"),
            Command::Limit { limit: Limit::Active(_), .. } => self.note("Limit active"),
            Command::LimitGroup { limit, .. } => self.note(match limit {
                GroupLimit::Rate(_) => "LimitGroup rate",
                GroupLimit::Active(_) => "LimitGroup active",
                GroupLimit::Weight(_) => "LimitGroup weight",
                GroupLimit::Paused(_) => "LimitGroup pause",
                GroupLimit::Hold(_) => "LimitGroup hold",
            }),
            Command::Rule { patch: RulePatch::Dlq(_), .. } => self.note("Rule dlq"),
            Command::Rule { patch: RulePatch::Stall(_), .. } => self.note("Rule stall"),
            Command::DlqScan(scan_request) => {
                self.note(match scan_request.purpose {
                    DlqScanFor::Listing => "Sift for listing",
                    DlqScanFor::Retry => "Sift for retry",
                    DlqScanFor::Stats => "Sift for stats",
                });
                self.note_if(scan_request.filter.cause.is_some(), "Sift with a filter");
            }
            Command::RetryFailed { .. } => self.note("RetryFailed"),
            Command::RetryCompleted { until_ms, .. } => {
                self.note("RetryCompleted");
                self.note_if(*until_ms < u64::MAX, "RetryCompleted of old ones");
            }
            Command::FreeKey { .. } => self.note("FreeKey"),
            Command::PromoteAll { .. } => self.note("PromoteAll"),
            Command::Drain { .. } => self.note("Drain"),
            Command::DrainAll { .. } => self.note("DrainAll"),
            Command::PurgeFailed { .. } => self.note("PurgeFailed"),
            Command::Clean(_) => self.note("Clean"),
            Command::CleanViews { .. } => self.note("CleanViews"),
            Command::Obliterate { .. } => self.note("Obliterate"),
            Command::GiveBackNames { .. } => self.note("GiveBackNames"),
            Command::SetCron(_) => self.note("SetCron"),
            Command::HoldCron { .. } => self.note("HoldCron"),
            Command::EnableCron { .. } => self.note("EnableCron"),
            Command::RemoveCron { .. } => self.note("RemoveCron"),
            Command::StartCrons => self.note("StartCrons"),
            Command::AddWebhook(_) => self.note("AddWebhook"),
            Command::EnableWebhook { .. } => self.note("EnableWebhook"),
            Command::RemoveWebhook { .. } => self.note("RemoveWebhook"),
            Command::Notice(_) => self.note("Notice"),
            Command::Stage { .. } => self.note("Stage"),
            Command::Decide { .. } => self.note("Decide"),
            Command::Report(_) => self.note("Report"),
            Command::Disconnect => self.note("Disconnect"),
            Command::EndWaits => self.note("EndWaits"),
        }
    }

    fn change(&mut self, change: &Change<'_>) {
        self.note(match change {
            Change::Cancel => "Cancel",
            Change::Remove => "Remove",
            Change::Update { .. } => "Update",
            Change::Prioritize { .. } => "Prioritize",
            Change::Promote => "Promote",
            Change::PutOff { .. } => "PutOff",
            Change::ToWait { .. } => "ToWait",
            Change::Delay { .. } => "Delay",
            Change::Discard { .. } => "Discard",
            Change::Bury { .. } => "Bury",
            Change::Bin { .. } => "Bin",
            Change::FreeKey => "FreeKey of a job",
            Change::Adopt { .. } => "Adopt",
            Change::LetGo { .. } => "LetGo",
            Change::Link { .. } => "Link",
            Change::Abandon => "Abandon",
            Change::Block { .. } => "Block",
            Change::CutLog(_) => "CutLog",
            Change::Progress { .. } => "Progress",
            Change::Log { .. } => "Log",
        });
    }

    fn job(&mut self, job: &NewJob<'_>) {
        let usual = NewJob::default();
        let NewJob {
            data: _,
            name,
            priority,
            delay_ms,
            max_attempts,
            backoff_ms,
            ttl_ms,
            timeout_ms,
            unique_key,
            custom_id,
            group_id,
            group_max,
            tags,
            depends_on: _,
            unmet,
            repeat,
            lifo,
            remove_on_complete,
            remove_on_fail,
            durable,
            extras,
            family,
            // The cadence of expressions is tested in shards/tests/repeat.rs.
            recurrence: _,
            trace,
        } = job;
        for (is_so, what) in [
            (name.is_some(), "job name"),
            (*priority != usual.priority, "job priority"),
            (*delay_ms > 0, "job delay"),
            (*max_attempts != usual.max_attempts, "job attempts"),
            (*backoff_ms != usual.backoff_ms, "job backoff"),
            (ttl_ms.is_some(), "job ttl"),
            (timeout_ms.is_some(), "job timeout"),
            (unique_key.is_some(), "job unique key"),
            (custom_id.is_some(), "job custom id"),
            (group_id.is_some(), "job group"),
            (*group_max > 0, "job group max"),
            (!tags.is_empty(), "job tags"),
            (!unmet.is_empty(), "job depends on"),
            (repeat.is_some(), "job repeat"),
            (*lifo, "job lifo"),
            (*remove_on_complete, "job remove on complete"),
            (*remove_on_fail, "job remove on fail"),
            (*durable, "job durable"),
            (family.is_some(), "job kin"),
            (trace.is_some(), "job trace"),
        ] {
            self.note_if(is_so, what);
        }
        if let Some(extras) = extras.as_deref() {
            self.extras(extras);
        }
    }

    fn extras(&mut self, extras: &Extras) {
        let Extras {
            backoff,
            backoff_max_ms,
            stall_timeout_ms,
            keep_logs,
            size_limit,
            stack_lines_max,
            made_at_ms,
            dedup,
        } = extras;
        let Dedup { ttl_ms, extend, replace, until_ms: _ } = dedup.unwrap_or_default();
        for (is_so, what) in [
            (backoff.is_some(), "job backoff growth"),
            (backoff_max_ms.is_some(), "job backoff max"),
            (stall_timeout_ms.is_some(), "job stall timeout"),
            (keep_logs.is_some(), "job keep logs"),
            (size_limit.is_some(), "job size limit"),
            (stack_lines_max.is_some(), "job stack lines"),
            (made_at_ms.is_some(), "job timestamp"),
            (ttl_ms > 0, "job key ttl"),
            (extend, "job key extend"),
            (replace, "job key replace"),
        ] {
            self.note_if(is_so, what);
        }
    }
}
