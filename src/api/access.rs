//! Who may do what: the roles of tokens, what each command needs, and the queues that a token may be limited to.
//!
//! | who | may |
//! |---|---|
//! | [`Role::Admin`] | all |
//! | [`Role::Read`] | look at everything, change nothing |
//! | [`Role::Push`] | push jobs and follow what becomes of them |
//! | [`Role::Work`] | take jobs, finish them, and tell of them meanwhile |
//!
//! What a command needs is one line of [`Op::needs`], without which it does not compile. [`permit`] is asked at the door,
//! before a command goes anywhere. It knows the names of queues that a command brings; which queue a job belongs to
//! only the shard of the job knows, for whom [`Grant::queues`] goes along. There a job of another queue does not exist.
//!
//! How a token is shown and kept is not known here.

use super::commands::Op;
use super::error::Error;
use super::objects::WATCHED_QUEUES;
use super::request::{Body, Route, StateFilter};
use corq_shards::job::new_job::NewJob;
use std::fmt;
use std::num::NonZeroU32;

/// The purpose of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// For everything.
    Admin,
    /// To look.
    Read,
    /// To push.
    Push,
    /// To work.
    Work,
}

/// Permission that a command needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permission {
    /// None: the command is about the connection itself.
    Any,
    /// To see how the server, its queues and its jobs are.
    Read,
    /// To see what becomes of one job whose id is known.
    Follow,
    /// To push.
    Push,
    /// To take and finish jobs.
    Work,
    /// To change what others have made.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Read, Self::Push, Self::Work];

    /// As settings and replies call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Read => "read",
            Self::Push => "push",
            Self::Work => "work",
        }
    }

    /// The role of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Whether it has a permission.
    pub const fn has(self, permission: Permission) -> bool {
        match (self, permission) {
            (Self::Admin, _)
            | (_, Permission::Any | Permission::Follow)
            | (Self::Read, Permission::Read)
            | (Self::Push, Permission::Push)
            | (Self::Work, Permission::Work) => true,
            (
                Self::Read | Self::Push | Self::Work,
                Permission::Read | Permission::Push | Permission::Work | Permission::Admin,
            ) => false,
        }
    }
}

/// Names of queues, in which `*` stands for any characters.
#[derive(PartialEq, Eq, Debug)]
pub struct QueuePatterns(Box<[Box<str>]>);

/// Which queues there are for a client: all, if it is none. The patterns of a token are kept as long as the process
/// runs, so that a command carries them along without counting who uses them.
pub type Scope = Option<&'static QueuePatterns>;

impl QueuePatterns {
    pub fn new(patterns: impl Iterator<Item = impl Into<Box<str>>>) -> Self {
        Self(patterns.map(Into::into).collect())
    }

    /// Whether a queue is among them.
    pub fn cover(&self, queue: &str) -> bool {
        self.0.iter().any(|pattern| fits(pattern.as_bytes(), queue.as_bytes()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|pattern| &**pattern)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for QueuePatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// Whether a name fits a pattern. A star takes as little as it can, and more only if what follows fits nowhere else, so
/// that no star is tried again once a later one has been reached.
pub fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star = None;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, from));
                at += 1;
            }
            Some(byte) if *byte == name[from] => (at, from) = (at + 1, from + 1),
            _ => {
                let Some((behind, taken)) = star else { return false };
                (at, from) = (behind, taken + 1);
                star = Some((behind, from));
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Which token a client has shown, by a number of its own in this life of the server; none if none is asked for.
pub type Holder = Option<NonZeroU32>;

/// Rights of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    pub role: Role,
    /// With which queues.
    pub queues: Scope,
    /// Whether it only looks on, whatever its role lets it do.
    pub looks_on: bool,
    pub holder: Holder,
}

impl Grant {
    /// All that an admin may do.
    pub const ALL: Self = Self { role: Role::Admin, queues: None, looks_on: false, holder: None };

    /// Whether there is nothing that it may not do.
    #[inline]
    pub fn is_all(self) -> bool {
        self.role == Role::Admin && self.queues.is_none() && !self.looks_on
    }

    /// Whether it has a permission.
    pub fn has(self, permission: Permission) -> bool {
        let looks = matches!(permission, Permission::Any | Permission::Read | Permission::Follow);
        self.role.has(permission) && (looks || !self.looks_on)
    }
}

impl Op {
    /// Permission that this command needs. A new command does not compile without a line here.
    pub const fn needs(self) -> Permission {
        match self {
            Self::Ping | Self::Hello | Self::Auth | Self::Whoami => Permission::Any,

            Self::WaitJob | Self::GetState | Self::GetResult | Self::GetProgress => {
                Permission::Follow
            }

            Self::Push | Self::PushBatch | Self::PushFlow => Permission::Push,

            // Questions of a worker about the job that it has, and about the job's children.
            Self::Pull
            | Self::PullBatch
            | Self::Ack
            | Self::AckBatch
            | Self::Fail
            | Self::JobHeartbeat
            | Self::JobHeartbeatBatch
            | Self::ExtendLock
            | Self::ExtendLocks
            | Self::Progress
            | Self::AddLog
            | Self::Update
            | Self::MoveToDelayed
            | Self::MoveToWait
            | Self::MoveToWaitingChildren
            | Self::Discard
            // As the command that does the same with one job: permit() looks.
            | Self::Bulk
            | Self::CancelTask
            | Self::RateLimitGroup
            | Self::Heartbeat
            | Self::RegisterWorker
            | Self::UnregisterWorker => Permission::Work,

            Self::GetJob
            | Self::GetLogs
            | Self::GetJobByCustomId
            | Self::GetJobs
            | Self::GetJobCounts
            | Self::GetCountsPerPriority
            | Self::Count
            | Self::GetChildrenValues
            | Self::GetFailedChildrenValues
            | Self::GetIgnoredChildrenFailures
            | Self::GetDeduplicationJobId
            | Self::IsPaused
            | Self::ListQueues
            | Self::Dlq
            | Self::GetDlqStats
            | Self::GetDlqConfig
            | Self::GetStallConfig
            | Self::CronGet
            | Self::CronPreview
            | Self::CronList
            | Self::Stats
            | Self::Metrics
            | Self::Prometheus
            | Self::ListWorkers
            | Self::ListWebhooks
            | Self::WebhookDeliveries
            | Self::Explain
            | Self::GetFlow
            | Self::GetJobDetail
            | Self::Search
            | Self::History
            | Self::Heatmap
            | Self::Shards
            | Self::Watch
            | Self::Unwatch
            | Self::StorageStatus
            | Self::DashboardOverview
            | Self::DashboardQueues
            | Self::DashboardQueue
            | Self::DlqGroups
            | Self::GetTask
            | Self::ListTasks
            | Self::GetQueueLimits
            | Self::GetGroupsJobsCount
            | Self::GetGroupJobsCount
            | Self::GetGroupActiveCount
            | Self::GetGroups
            | Self::GetGroupRateLimit
            | Self::GetGroupRateLimitTtl
            | Self::GetGroupConcurrency
            | Self::GetGroupWeight
            | Self::IsGroupPaused
            | Self::SubscribeEvents
            | Self::UnsubscribeEvents
            | Self::Subscribe
            | Self::Unsubscribe => Permission::Read,

            Self::Cancel
            | Self::ChangePriority
            | Self::Promote
            | Self::ChangeDelay
            | Self::UpdateParent
            | Self::RemoveChildDependency
            | Self::RemoveUnprocessedChildren
            | Self::ClearLogs
            | Self::RemoveJobDeduplicationKey
            | Self::RemoveDeduplicationKey
            | Self::PromoteJobs
            | Self::Pause
            | Self::Resume
            | Self::Drain
            | Self::Obliterate
            | Self::Clean
            | Self::RetryDlq
            | Self::PurgeDlq
            | Self::SetDlqConfig
            | Self::SetStallConfig
            | Self::RetryCompleted
            | Self::RemoveDlqJob
            | Self::Cron
            | Self::CronDelete
            | Self::CronTrigger
            | Self::SetCronEnabled
            | Self::BackupPoint
            // Facts about the server that are for its operators only.
            | Self::Doctor
            | Self::GetSettings
            | Self::CompactMemory
            | Self::AddWebhook
            | Self::RemoveWebhook
            | Self::SetWebhookEnabled
            | Self::TestWebhook
            | Self::RateLimit
            | Self::RateLimitClear
            | Self::SetConcurrency
            | Self::ClearConcurrency
            | Self::SetGroupRateLimit
            | Self::RemoveGroupRateLimit
            | Self::SetGroupConcurrency
            | Self::RemoveGroupConcurrency
            | Self::SetGroupWeight
            | Self::PauseGroup
            | Self::ResumeGroup
            | Self::TrimEvents
            | Self::AuditLog => Permission::Admin,
        }
    }

    /// Whether a role may use a command. A worker looks up the job that it has.
    pub fn is_for(self, role: Role) -> bool {
        let of_worker = matches!(
            self,
            Self::GetJob
                | Self::GetLogs
                | Self::IsPaused
                | Self::GetChildrenValues
                | Self::GetFailedChildrenValues
                | Self::GetIgnoredChildrenFailures
                // Views of one job that combine these answers, and say why the job does not run.
                | Self::GetJobDetail
                | Self::GetFlow
                | Self::Explain
                | Self::GetTask
                | Self::ListTasks
        );
        role.has(self.needs()) || role == Role::Work && of_worker
    }
}

/// Whether a command may go on.
pub fn permit(grant: Grant, body: &Body<'_>) -> Result<(), Error> {
    if grant.is_all() {
        return Ok(());
    }
    let op = match body {
        Body::Bulk { bulk } => bulk.action().acts_as(),
        _ => body.op(),
    };
    let looks = matches!(op.needs(), Permission::Any | Permission::Read | Permission::Follow);
    if !op.is_for(grant.role) || grant.looks_on && !looks {
        let role = if grant.looks_on { Role::Read } else { grant.role };
        return Err(forbidden(op, role));
    }
    grant.queues.map_or(Ok(()), |queues| permit_queues(queues, body))
}

/// The refusal of a command to a role: with the roles that may give it.
#[cold]
pub fn forbidden(op: Op, role: Role) -> Error {
    let others = Role::ALL.into_iter().rev().filter(|&other| other != role && op.is_for(other));
    let needed: Vec<&str> = others.map(Role::name).collect();
    Error::role_forbids(op.spec().name, role.name(), &needed.join(" or "))
}

fn one(queues: &QueuePatterns, queue: &str) -> Result<(), Error> {
    if queues.cover(queue) { Ok(()) } else { Err(Error::queue_forbidden(queue, queues)) }
}

/// A job that is tied to one that is there already would change that, whichever queue it is of.
fn no_parents<'a>(queues: &QueuePatterns, jobs: &[NewJob<'a>]) -> Result<(), Error> {
    let has_parent =
        |job: &NewJob<'a>| job.family.as_deref().is_some_and(|family| family.parent.is_some());
    if jobs.iter().any(has_parent) { Err(Error::parent_forbidden(queues)) } else { Ok(()) }
}

/// Whether a command leaves other queues alone. What is about the whole server and is not filtered is refused.
fn permit_queues(queues: &QueuePatterns, body: &Body<'_>) -> Result<(), Error> {
    match body {
        Body::Push { queue, job } => {
            one(queues, queue)?;
            return no_parents(queues, std::slice::from_ref(job));
        }
        Body::PushBatch { queue, jobs } => {
            one(queues, queue)?;
            return no_parents(queues, jobs);
        }
        Body::PushFlow { jobs } => {
            return jobs.iter().try_for_each(|job| one(queues, job.queue));
        }
        Body::RegisterWorker { queues: names, .. } => {
            return names.iter().try_for_each(|name| one(queues, name));
        }
        Body::SubscribeEvents { queue } => return one(queues, queue),
        Body::Bulk { bulk } => return bulk.queue.map_or(Ok(()), |queue| one(queues, queue)),
        // A subscriber hears of the queues of its token alone, whatever it asks for; a name that is none of these is a
        // mistake.
        Body::Subscribe { queues: names, .. } => {
            let mut names = names.iter().filter(|name| !name.contains('*'));
            return names.try_for_each(|name| one(queues, name));
        }
        // The shards of the jobs know of which queues these are, and those of the others which rows to show.
        Body::AckBatch { .. }
        | Body::JobHeartbeatBatch { .. }
        | Body::ExtendLocks { .. }
        | Body::Heartbeat { .. }
        | Body::UnregisterWorker { .. }
        | Body::UnsubscribeEvents { .. }
        | Body::GetTask { .. }
        | Body::ListTasks { .. }
        | Body::CancelTask { .. }
        | Body::Unsubscribe { .. }
        | Body::Unwatch {}
        | Body::ListQueues { .. }
        | Body::CronList { .. } => return Ok(()),
        // Workers of its queues, with what they do there.
        Body::ListWorkers { queue, .. } => return queue.map_or(Ok(()), |queue| one(queues, queue)),
        // The busiest of its queues; the rest of a sample is about all of them.
        Body::Watch { what, .. } => {
            return match what {
                Some(StateFilter(what)) if *what != WATCHED_QUEUES => {
                    Err(Error::watch_forbidden(queues))
                }
                _ => Ok(()),
            };
        }
        // Refuse a scoped token: the command removes the children of a job, whichever queues they are in.
        Body::RemoveUnprocessedChildren { .. } => {
            return Err(Error::scope_forbids(body.spec().name, queues));
        }
        _ => {}
    }
    match body.route() {
        Route::Queue(queue) | Route::JobInQueue(queue, _) => one(queues, queue),
        Route::Job(_) => Ok(()),
        _ if body.op().needs() == Permission::Any => Ok(()),
        Route::Here
        | Route::Shard(_)
        | Route::Prepared
        | Route::Name(_)
        | Route::Registry
        | Route::All => Err(Error::scope_forbids(body.spec().name, queues)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::api::commands::COMMANDS;

    #[test]
    fn a_star_stands_for_any_characters_and_all_else_for_itself() {
        for (pattern, name) in [
            ("emails.*", "emails."),
            ("emails.*", "emails.welcome"),
            ("*", "anything"),
            ("*.eu", "a.eu.eu"),
            ("a*b*c", "abc"),
            ("a*b*c", "a-b-b-c"),
            ("a**", "a"),
            ("exact", "exact"),
        ] {
            assert!(fits(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("emails.*", "emails"),
            ("emails.*", "xemails.a"),
            ("a*b*c", "acb"),
            ("exact", "exactly"),
            ("exact", "exac"),
            ("", "a"),
        ] {
            assert!(!fits(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        // A name that nearly fits costs no more than pattern times name.
        let name = "a".repeat(256);
        assert!(!fits(format!("{}b", "a*".repeat(100)).as_bytes(), name.as_bytes()));
    }

    #[test]
    fn an_admin_may_do_all_and_the_others_no_more_than_is_theirs() {
        let count = |role: Role| COMMANDS.iter().filter(|spec| spec.op.is_for(role)).count();
        assert_eq!(count(Role::Admin), COMMANDS.len());
        for spec in COMMANDS {
            if spec.class.is_recorded() {
                assert!(!spec.op.is_for(Role::Read), "{} changes something", spec.name);
            }
            let both = spec.op.is_for(Role::Push) && spec.op.is_for(Role::Work);
            assert!(!both || !spec.class.is_recorded(), "{}", spec.name);
        }
        for role in [Role::Push, Role::Work] {
            for op in [Op::Obliterate, Op::AddWebhook, Op::Cron, Op::Cancel, Op::GetJobs, Op::Dlq] {
                assert!(!op.is_for(role), "{role:?} {op:?}");
            }
        }
    }
}
