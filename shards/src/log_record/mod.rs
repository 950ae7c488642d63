//! What is persisted: one record per fact, with the payload, if any, as its last bytes.
//!
//! Records hold facts, not orders: replaying one needs no clock and cannot be refused.
//!
//! Recipe for a change. A kind keeps its number and the meaning of its bytes for ever, so:
//!
//! 1. *Something new is to be said*: a new kind with a number that was never used (those of `record_kind`
//!    and of the modules of other records; each says which are set aside for it).
//! 2. *A kind is to say more*: a new kind beside it, as 26 stands beside 5. The old one is still
//!    decoded, into the same variant, with what it does not say filled in; it is written no more, or
//!    only where the new one has nothing to add. A part that few jobs have gets a bit in `part` of
//!    `pushed_record` or `kept_record` instead, if one is free: an older release refuses a bit that it
//!    does not know.
//! 3. *All kinds are to change*: `VERSION` rises, and `decode` goes on reading the older ones.
//! 4. *The files around the records are to change*: see `io/src/log/format/block.rs` and the page.
//!
//! Then, in the same commit: a row in [`KINDS`]; the bytes in `docs/log-format.md`; whether reclaim
//! needs it, in `keep.rs`, which does not compile before; and a log that holds it, written once and
//! never again: `tests/compat/main.rs` says how. Logs of older versions stay as they are.
//!
//! | file | responsibility |
//! |---|---|
//! | `codec` | numbers and texts as bytes |
//! | `cron` | schedules |
//! | `failed` | a job is buried |
//! | `group` | limits of groups |
//! | `job_change` | a job is changed |
//! | `kind` | numbers of the kinds |
//! | `lease` | a lease begins |
//! | `push` | a job comes |
//! | `rule` | rules of queues |
//! | `snapshot` | a job as compaction writes it again |
//! | `webhook` | webhooks |

pub mod codec;
pub mod cron;
pub(crate) mod failed;
pub mod group;
pub mod job_change;
pub(crate) mod kind;
pub mod lease;
pub mod push;
pub(crate) mod rule;
pub mod snapshot;
#[cfg(test)]
mod tests;
pub mod webhook;

use crate::command::{Limit, PerSpan};
use crate::compaction::space_forecast::Upkeep;
use crate::dead_letter::policy::Rule;
use crate::family::{Adopted, ChildEnded};
use crate::flow::{Fate, Staged};
use crate::job::Stored;
use crate::job::id::JobId;
use crate::log_record::cron::{CronRan, CronSet, decode_name};
pub use crate::log_record::failed::Buried;
use crate::log_record::failed::kind as buried;
use crate::log_record::group::Grouped;
use crate::log_record::job_change::Changed;
use crate::log_record::lease::Leased;
pub use crate::log_record::push::Pushed;
use crate::log_record::snapshot::{Kept, Moved};
use crate::queue::retention::Evicts;

pub use crate::log_record::kind::KINDS;
use crate::repeat::Repeated;

use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::webhook::WebhookAdded;

/// Version of the encoding of every kind below.
const VERSION: u8 = 1;

/// Where records go. Whoever implements it gives each record its address and keeps its bytes.
pub trait Journal {
    /// Appends a record.
    fn append(&mut self, record: &Record<'_>) -> Stored;
    /// The record appended last, and all after it, may not be shown before the disk has it.
    fn require_sync(&mut self);
    /// Whether there is room for `bytes` more of what comes: jobs, and texts about them. Always for 0.
    /// `upkeep` is what those there are may still take; it goes before.
    fn takes_more(&mut self, bytes: u64, upkeep: impl Fn() -> Upkeep) -> bool;
    /// Whether there is room for `bytes` more that stay and that jobs bring with them as they go their
    /// way, for which a little is set aside: why they failed, that a queue is paused.
    fn takes_asides(&mut self, bytes: u64, upkeep: impl Fn() -> Upkeep) -> bool;
    /// Whether there is room for `bytes` more of what ends jobs, for which some is set aside.
    fn takes_ends(&mut self, bytes: u64, upkeep: impl Fn() -> Upkeep) -> bool;
}

/// One fact.
#[derive(Debug)]
pub enum Record<'a> {
    /// A job came. Payload: its data.
    Pushed(Pushed<'a>),
    /// Jobs were pulled under locks. Payload: none.
    Leased(Leased<'a>),
    /// A job was done. Payload: the result.
    Completed(Ended<'a>),
    /// An attempt failed and another follows. Payload: the error.
    Retried(Retried<'a>),
    /// A job went to the dead-letter queue. Payload: the reason.
    Buried(Buried<'a>),
    /// A worker went silent; the job waits again.
    Stalled {
        /// The job.
        id: JobId,
    },
    /// A locked job went back because its connection closed.
    Released {
        /// The job.
        id: JobId,
    },
    /// A job was taken out of the dead-letter queue.
    Revived {
        /// The job.
        id: JobId,
        /// When it may be delivered.
        run_at_ms: u64,
        /// By the rule of its queue, not because somebody asked for it.
        by_itself: bool,
    },
    /// A job is gone.
    Removed {
        /// The job.
        id: JobId,
    },
    /// Something else about one job has changed. Payload: see there.
    Changed(Changed<'a>),
    /// A limit of a queue was set or taken back.
    Limited {
        /// The queue.
        queue: &'a str,
        /// The new setting.
        limit: Limit,
    },
    /// Something was set for a group, or taken back.
    Grouped(Grouped<'a>),
    /// All that was set for the groups of a queue was taken back.
    GroupsCleared {
        /// The queue.
        queue: &'a str,
    },
    /// A queue has another rule.
    Ruled {
        /// The queue.
        queue: &'a str,
        /// All of it; the default takes it back.
        rule: Rule,
    },
    /// A queue was paused or resumed.
    Paused {
        /// The queue.
        queue: &'a str,
        /// The new setting.
        paused: bool,
    },
    /// A schedule came, or was set anew. Payload: the data of its jobs.
    CronSet(CronSet<'a>),
    /// A schedule pushed a job. Payload: the job's data.
    CronRan(CronRan<'a>),
    /// Runs of a schedule were passed over.
    CronMissed {
        /// The schedule.
        name: &'a str,
        /// Its next run.
        next_run_ms: u64,
    },
    /// A schedule is gone.
    CronRemoved {
        /// The schedule.
        name: &'a str,
    },
    /// One of the jobs that a job depends on was completed.
    Met {
        /// The job that waits.
        id: JobId,
        /// The job that was completed.
        dependency: JobId,
        /// When this shard learnt of it.
        at_ms: u64,
    },
    /// A child ended, and its parent has learnt how. Payload: the value.
    ChildEnded(ChildEnded<'a>),
    /// A job has one more child, which was there before. Payload: none.
    Adopted(Adopted<'a>),
    /// A job was taken from its worker until its children have ended.
    Blocked {
        /// The job.
        id: JobId,
    },
    /// A job of a flow, which has not come yet. Payload: its data.
    Staged(Staged<'a>),
    /// What became of a flow. Payload: none.
    Flow {
        /// The flow.
        flow: JobId,
        /// What became of it.
        fate: Fate,
    },
    /// A parent has heard of the end of a child that is forgotten.
    Settled {
        /// The child.
        child: JobId,
    },
    /// A run of a repeated job was done, and the next one came. Payload: the result.
    Repeated(Repeated<'a>),
    /// Something that was written before, written again.
    Kept(Kept<'a>),
    /// A webhook came. Payload: none.
    WebhookAdded(WebhookAdded<'a>),
    /// A webhook is gone.
    WebhookRemoved {
        /// The webhook.
        id: u128,
    },
}

/// See [`Record::Completed`].
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The job.
    pub id: JobId,
    /// When it was done.
    pub at_ms: u64,
    /// When its last attempt began.
    pub started_at_ms: u64,
    /// What of its queue was forgotten for it.
    pub evicts: Evicts,
    /// One MessagePack value, or nothing.
    pub result: &'a [u8],
}

impl Ended<'_> {
    fn kind(&self) -> u8 {
        match self.evicts {
            Evicts::Unsaid => kind::COMPLETED,
            Evicts::Nothing => kind::DONE,
            Evicts::Below(_) | Evicts::Itself => kind::DONE_FOR,
        }
    }
}

/// See [`Record::Retried`].
#[derive(Clone, Copy, Debug)]
pub struct Retried<'a> {
    /// The job.
    pub id: JobId,
    /// When the attempt failed.
    pub at_ms: u64,
    /// When the next one may begin.
    pub run_at_ms: u64,
    /// Why it failed.
    pub error: &'a str,
}

/// The name of a record's kind, from its encoding; `None` if this release does not know it.
pub fn kind_name(bytes: &[u8]) -> Option<&'static str> {
    let kind = bytes.first()?;
    KINDS.iter().find(|(number, _)| number == kind).map(|(_, name)| *name)
}

impl Record<'_> {
    /// Length of the encoding, payload included.
    pub fn encoded_len(&self) -> usize {
        2 + match self {
            Self::Pushed(pushed) => pushed.encoded_len(),
            Self::Leased(leased) => leased.encoded_len(),
            Self::Completed(ended) => {
                let said = if ended.kind() == kind::DONE_FOR { 8 } else { 0 };
                32 + said + ended.result.len()
            }
            Self::Retried(retried) => 32 + retried.error.len(),
            Self::Buried(buried) => buried.encoded_len(),
            Self::Changed(changed) => changed.encoded_len(),
            Self::Stalled { .. }
            | Self::Released { .. }
            | Self::Removed { .. }
            | Self::Settled { .. }
            | Self::Blocked { .. }
            | Self::WebhookRemoved { .. } => 16,
            Self::Revived { .. } => 24,
            Self::Paused { queue, .. } => 1 + queue.len(),
            Self::Limited { queue, limit: Limit::Rate(Some(rate)) } if !rate.is_plain() => {
                4 + 4 + 8 + queue.len()
            }
            Self::Limited { queue, .. } => 4 + queue.len(),
            Self::Ruled { queue, rule } => rule.encoded_len() + queue.len(),
            Self::Grouped(grouped) => grouped.encoded_len(),
            Self::GroupsCleared { queue } => queue.len(),
            Self::CronSet(set) => set.encoded_len(),
            Self::CronRan(ran) => ran.encoded_len(),
            Self::CronMissed { name, .. } => 8 + name.len(),
            Self::CronRemoved { name } => name.len(),
            Self::Met { .. } => 40,
            Self::ChildEnded(ended) => ended.encoded_len(),
            Self::Adopted(adopted) => 33 + adopted.name.len(),
            Self::Staged(staged) => staged.encoded_len(),
            Self::Flow { .. } => 17,
            Self::Repeated(repeated) => repeated.encoded_len(),
            Self::WebhookAdded(added) => added.encoded_len(),
            Self::Kept(kept) => kept.encoded_len(),
        }
    }

    /// Length of the payload at the end.
    pub fn payload_len(&self) -> usize {
        match self {
            Self::Pushed(pushed) => pushed.job.data.len(),
            Self::Completed(ended) => ended.result.len(),
            Self::Repeated(repeated) => repeated.ended.result.len(),
            Self::ChildEnded(ended) => ended.value.len(),
            Self::Staged(staged) => staged.pushed.job.data.len(),
            Self::Retried(retried) => retried.error.len(),
            Self::Buried(buried) => buried.error.len(),
            Self::Changed(changed) => changed.payload_len(),
            Self::CronSet(set) => set.data.len(),
            Self::CronRan(ran) => ran.pushed.job.data.len(),
            Self::Kept(kept) => kept.payload_len(),
            _ => 0,
        }
    }

    /// Writes the record into `bytes`, which is [`Record::encoded_len`] long.
    pub fn encode(&self, bytes: &mut [u8]) {
        let mut out = Writer::new(bytes);
        out.u8(self.kind());
        out.u8(VERSION);
        match self {
            Self::Pushed(pushed) => pushed.encode(&mut out),
            Self::Leased(leased) => leased.encode(&mut out),
            Self::Completed(ended) => {
                out.id(ended.id);
                out.u64(ended.at_ms);
                out.u64(ended.started_at_ms);
                if ended.kind() == kind::DONE_FOR {
                    out.u64(ended.evicts.below());
                }
                out.bytes(ended.result);
            }
            Self::Retried(retried) => {
                out.id(retried.id);
                out.u64(retried.at_ms);
                out.u64(retried.run_at_ms);
                out.bytes(retried.error.as_bytes());
            }
            Self::Buried(buried) => buried.encode(&mut out),
            Self::Changed(changed) => changed.encode(&mut out),
            Self::Stalled { id }
            | Self::Released { id }
            | Self::Removed { id }
            | Self::Blocked { id }
            | Self::Settled { child: id } => out.id(*id),
            Self::Revived { id, run_at_ms, .. } => {
                out.id(*id);
                out.u64(*run_at_ms);
            }
            Self::Limited { queue, limit } => {
                // A limit is at least 1: zero stands for none.
                match limit {
                    Limit::Rate(rate) => {
                        out.u32(rate.map_or(0, |rate| rate.jobs));
                        if let Some(rate) = rate.filter(|rate| !rate.is_plain()) {
                            out.u32(rate.span_ms);
                            out.u64(rate.until_ms);
                        }
                    }
                    Limit::Active(limit) => out.u32(limit.unwrap_or(0)),
                }
                out.bytes(queue.as_bytes());
            }
            Self::Ruled { queue, rule } => {
                rule.encode(&mut out);
                out.bytes(queue.as_bytes());
            }
            Self::Paused { queue, paused } => {
                out.u8(u8::from(*paused));
                out.bytes(queue.as_bytes());
            }
            Self::Grouped(grouped) => grouped.encode(&mut out),
            Self::GroupsCleared { queue } => out.bytes(queue.as_bytes()),
            Self::CronSet(set) => set.encode(&mut out),
            Self::CronRan(ran) => ran.encode(&mut out),
            Self::CronMissed { name, next_run_ms } => {
                out.u64(*next_run_ms);
                out.bytes(name.as_bytes());
            }
            Self::CronRemoved { name } => out.bytes(name.as_bytes()),
            Self::Met { id, dependency, at_ms } => {
                out.id(*id);
                out.id(*dependency);
                out.u64(*at_ms);
            }
            Self::ChildEnded(ended) => ended.encode(&mut out),
            Self::Staged(staged) => staged.encode(&mut out),
            Self::Flow { flow, fate } => {
                out.id(*flow);
                out.u8(*fate as u8);
            }
            Self::Adopted(adopted) => {
                out.id(adopted.parent);
                out.id(adopted.child);
                out.u8(u8::from(adopted.waits));
                out.bytes(adopted.name.as_bytes());
            }
            Self::Repeated(repeated) => repeated.encode(&mut out),
            Self::WebhookAdded(added) => added.encode(&mut out),
            Self::WebhookRemoved { id } => out.id(JobId(*id)),
            Self::Kept(kept) => kept.encode(&mut out),
        }
        out.finish();
    }

    /// The number of its kind, as in [`KINDS`].
    pub fn kind(&self) -> u8 {
        match self {
            Self::Pushed(_) => kind::PUSHED,
            Self::Leased(_) => kind::LEASED,
            Self::Completed(ended) => ended.kind(),
            Self::Retried(_) => kind::RETRIED,
            Self::Buried(buried) => buried.kind(),
            Self::Changed(changed) => changed.kind(),
            Self::Stalled { .. } => kind::STALLED,
            Self::Released { .. } => kind::RELEASED,
            Self::Revived { by_itself: true, .. } => kind::REVIVED_BY_ITSELF,
            Self::Revived { .. } => kind::REVIVED,
            Self::Removed { .. } => kind::REMOVED,
            Self::Paused { .. } => kind::PAUSED,
            Self::Limited { limit: Limit::Rate(Some(rate)), .. } if !rate.is_plain() => {
                kind::RATE_LIMITED_FOR
            }
            Self::Limited { limit: Limit::Rate(_), .. } => kind::RATE_LIMITED,
            Self::Limited { limit: Limit::Active(_), .. } => kind::ACTIVE_LIMITED,
            Self::Ruled { rule, .. } => rule.kind(),
            Self::Grouped(_) => group::kind::GROUPED,
            Self::GroupsCleared { .. } => group::kind::CLEARED,
            Self::CronSet(set) => set.kind(),
            Self::CronRan(_) => kind::CRON_RAN,
            Self::CronMissed { .. } => kind::CRON_MISSED,
            Self::CronRemoved { .. } => kind::CRON_REMOVED,
            Self::Met { .. } => kind::MET,
            Self::ChildEnded(_) => kind::CHILD_ENDED,
            Self::Settled { .. } => kind::SETTLED,
            Self::Adopted(_) => kind::ADOPTED,
            Self::Blocked { .. } => kind::BLOCKED,
            Self::Staged(_) => kind::STAGED,
            Self::Flow { .. } => kind::FLOW,
            Self::Repeated(repeated) => repeated.kind(),
            Self::WebhookAdded(_) => kind::WEBHOOK_ADDED,
            Self::WebhookRemoved { .. } => kind::WEBHOOK_REMOVED,
            Self::Kept(kept) => kept.kind(),
        }
    }
}

impl<'a> Record<'a> {
    /// Reads a record back.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        let kind = from.u8()?;
        if from.u8()? != VERSION {
            return Err(Malformed("its version is not known to this release"));
        }
        Ok(match kind {
            kind::PUSHED => Self::Pushed(Pushed::decode(from)?),
            kind::LEASED => Self::Leased(Leased::decode(from)?),
            kind::COMPLETED | kind::DONE | kind::DONE_FOR => {
                let (id, at_ms, started_at_ms) = (from.id()?, from.u64()?, from.u64()?);
                let evicts = match kind {
                    kind::COMPLETED => Evicts::Unsaid,
                    kind::DONE => Evicts::Nothing,
                    _ => Evicts::of(from.u64()?),
                };
                let result = from.rest();
                Self::Completed(Ended { id, at_ms, started_at_ms, evicts, result })
            }
            kind::RETRIED => Self::Retried(Retried {
                id: from.id()?,
                at_ms: from.u64()?,
                run_at_ms: from.u64()?,
                error: utf8(from.rest())?,
            }),
            buried::BURIED | buried::AT | buried::FOR => Self::Buried(Buried::decode(kind, from)?),
            kind::STALLED => Self::Stalled { id: from.id()? },
            kind::RELEASED => Self::Released { id: from.id()? },
            kind::REVIVED | kind::REVIVED_BY_ITSELF => {
                let (id, run_at_ms) = (from.id()?, from.u64()?);
                Self::Revived { id, run_at_ms, by_itself: kind == kind::REVIVED_BY_ITSELF }
            }
            kind::REMOVED => Self::Removed { id: from.id()? },
            kind::RATE_LIMITED | kind::ACTIVE_LIMITED | kind::RATE_LIMITED_FOR => {
                let limit = Some(from.u32()?).filter(|&limit| limit > 0);
                let limit = match (kind, limit) {
                    (kind::RATE_LIMITED, limit) => Limit::Rate(limit.map(PerSpan::per_second)),
                    (kind::RATE_LIMITED_FOR, Some(jobs)) => {
                        let (span_ms, until_ms) = (from.u32()?.max(1), from.u64()?);
                        Limit::Rate(Some(PerSpan { jobs, span_ms, until_ms }))
                    }
                    (_, limit) => Limit::Active(limit),
                };
                Self::Limited { queue: utf8(from.rest())?, limit }
            }
            kind::PAUSED => {
                let paused = from.u8()? != 0;
                Self::Paused { queue: utf8(from.rest())?, paused }
            }
            group::kind::GROUPED => Self::Grouped(Grouped::decode(from)?),
            group::kind::CLEARED => Self::GroupsCleared { queue: utf8(from.rest())? },
            rule::kind::DLQ | rule::kind::STALL => {
                let (queue, rule) = Rule::decode(kind, from)?;
                Self::Ruled { queue, rule }
            }
            cron::kind::SET | cron::kind::SET_WITH | cron::kind::SET_BY => {
                Self::CronSet(CronSet::decode(kind, from)?)
            }
            kind::CRON_RAN => Self::CronRan(CronRan::decode(from)?),
            kind::CRON_MISSED => {
                let next_run_ms = from.u64()?;
                Self::CronMissed { name: decode_name(from)?, next_run_ms }
            }
            kind::CRON_REMOVED => Self::CronRemoved { name: decode_name(from)? },
            kind::MET => Self::Met { id: from.id()?, dependency: from.id()?, at_ms: from.u64()? },
            kind::CHILD_ENDED => Self::ChildEnded(ChildEnded::decode(from)?),
            kind::SETTLED => Self::Settled { child: from.id()? },
            kind::BLOCKED => Self::Blocked { id: from.id()? },
            kind::STAGED => Self::Staged(Staged::decode(from)?),
            kind::FLOW => {
                let (flow, fate) = (from.id()?, from.u8()?);
                let fate = Fate::ALL.into_iter().find(|&known| known as u8 == fate);
                let fate = fate.ok_or(Malformed("no known fate of a flow"))?;
                Self::Flow { flow, fate }
            }
            kind::ADOPTED => {
                let (parent, child, waits) = (from.id()?, from.id()?, from.u8()? != 0);
                Self::Adopted(Adopted { parent, child, name: utf8(from.rest())?, waits })
            }
            kind::REPEATED | kind::RUN_DONE => Self::Repeated(Repeated::decode(kind, from)?),
            kind::WEBHOOK_ADDED => Self::WebhookAdded(WebhookAdded::decode(from)?),
            kind::WEBHOOK_REMOVED => Self::WebhookRemoved { id: from.id()?.0 },
            _ => match Changed::decode(kind, from.clone())? {
                Some(changed) => Self::Changed(changed),
                None => match Kept::decode(kind, from)? {
                    Some(kept) => Self::Kept(kept),
                    None => return Err(Malformed("its kind is not known to this release")),
                },
            },
        })
    }

    /// Reads a record as it was written first, if this one only says that it was moved.
    pub fn decode_original(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match Self::decode(bytes)? {
            Self::Kept(Kept::Moved(Moved { record, .. })) => Self::decode(record),
            record => Ok(record),
        }
    }

    /// The job that the record holds, as pushed.
    pub fn into_pushed(self) -> Option<Pushed<'a>> {
        match self {
            Self::Pushed(pushed) => Some(pushed),
            Self::CronRan(ran) => Some(ran.pushed),
            Self::Staged(staged) => Some(staged.pushed),
            Self::Repeated(repeated) => Some(repeated.next.pushed),
            Self::Kept(Kept::Job(job)) => Some(job.pushed),
            _ => None,
        }
    }
}

pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed("text is not UTF-8"))
}
