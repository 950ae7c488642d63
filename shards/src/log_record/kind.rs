//! The table of records: a row for every kind there is or was, with its number and its name for ever, and what it says. See the
//! recipe in [`crate::log_record`] and the rows in `row.rs`.

use crate::family::unreported::KeptUnreported;
use crate::family::{Adopted, ChildEnded};
use crate::flow::{Fate, Staged};
use crate::job::id::JobId;
use crate::log_record::completed::Ended;
use crate::log_record::cron::{CronRan, CronSet};
use crate::log_record::failed::{Buried, Retried, Revived};
use crate::log_record::job_change::{Flags, Level, Prioritized};
use crate::log_record::lease::Leased;
use crate::log_record::push::Pushed;
use crate::log_record::remembered::{CompletedIdBytes, CompletedNameBytes};
use crate::log_record::repeated::Repeated;
use crate::log_record::row::records;
use crate::log_record::settings::{Grouped, Limited, Ruled, WebhookAdded};
use crate::log_record::snapshot::{KeptJob, Moved};

records! {
    /// A fact in the log.
    #[derive(Debug)]
    pub enum Record<'a> {
        /// A job came. Payload: its data.
        1 "pushed" PUSHED => Pushed(Pushed<'a>),
        /// Jobs were pulled under locks. Payload: none.
        2 "leased" => Leased(Leased<'a>),
        /// A job was done. Payload: the result.
        3 "completed" COMPLETED, 13 "done" DONE, 14 "done-for" DONE_FOR => Completed(Ended<'a>),
        /// An attempt failed and another follows. Payload: the error.
        4 "retried" RETRIED, 15 "attempt-failed" ATTEMPT_FAILED => Retried(Retried<'a>),
        /// A job went to the dead-letter queue. Payload: the reason.
        5 "buried" BURIED, 11 "buried-for" BURIED_FOR, 26 "buried-at" BURIED_AT => Buried(Buried<'a>),
        /// A worker went silent; the job waits again.
        6 "stalled" => Stalled { id: JobId = "id" },
        /// A locked job went back because its connection closed.
        7 "released" => Released { id: JobId = "id" },
        /// A job was taken out of the dead-letter queue.
        8 "revived" REVIVED, 12 "revived-by-itself" REVIVED_BY_ITSELF => Revived(Revived),
        /// A job is gone.
        9 "removed" => Removed { id: JobId = "id" },
        /// A queue was paused or resumed.
        10 "paused" => Paused { paused: bool = "paused", ..rest queue: &'a str = "queue" },
        /// A limit of a queue was set or taken back.
        40 "rate-limited" RATE_LIMITED, 41 "active-limited" ACTIVE_LIMITED, 42 "rate-limited-for" RATE_LIMITED_FOR =>
            Limited(Limited<'a>),
        /// A queue has another rule.
        43 "dlq-ruled" DLQ_RULED, 44 "stall-ruled" STALL_RULED => Ruled(Ruled<'a>),
        /// Something was set for a group, or taken back.
        45 "grouped" => Grouped(Grouped<'a>),
        /// All that was set for the groups of a queue was taken back.
        46 "groups-cleared" => GroupsCleared { ..rest queue: &'a str = "queue" },
        /// A job learnt of the completion of one that it depends on. The time is when this shard learnt of it.
        60 "met" => Met { id: JobId = "id", dependency: JobId = "dependency", at_ms: u64 = "at" },
        /// A run of a repeated job was done, and the next one came. Payload: the result.
        61 "repeated" REPEATED, 68 "run-done" RUN_DONE => Repeated(Repeated<'a>),
        /// A child ended, and its parent has learnt how. Payload: the value.
        62 "child-ended" => ChildEnded(ChildEnded<'a>),
        /// A parent has heard of the end of a child that is forgotten.
        63 "settled" => Settled { child: JobId = "id" },
        /// A job has one more child, which was there before. Payload: none.
        64 "adopted" => Adopted(Adopted<'a>),
        /// A job was taken from its worker until its children have ended.
        65 "blocked" => Blocked { id: JobId = "id" },
        /// A job of a flow, which has not come yet. Payload: its data.
        66 "staged" => Staged(Staged<'a>),
        /// A flow was decided, or a part of it carried out. Payload: none.
        67 "flow" => Flow { flow: JobId = "flow", fate: Fate = "fate" },
        /// Some of the jobs of a flow that were staged came, or went. Payload: none.
        69 "flow-slice" => FlowSlice { flow: JobId = "flow", first: JobId = "first", last: JobId = "last", come: bool = "come" },
        /// A schedule came, or was set anew. Payload: the data of its jobs.
        80 "cron-set" CRON_SET, 86 "cron-set-with" CRON_SET_WITH, 87 "cron-set-by" CRON_SET_BY => CronSet(CronSet<'a>),
        /// A schedule pushed a job. Payload: the job's data.
        81 "cron-ran" => CronRan(CronRan<'a>),
        /// Runs of a schedule were passed over.
        82 "cron-missed" => CronMissed { next_run_ms: u64 = "nextRun", ..rest name: &'a str = "name" },
        /// A schedule is gone.
        83 "cron-removed" => CronRemoved { ..rest name: &'a str = "name" },
        /// A webhook came. Payload: none.
        84 "webhook-added" => WebhookAdded(WebhookAdded<'a>),
        /// A webhook is gone.
        85 "webhook-removed" => WebhookRemoved { id: u128 = "id" },
        /// A start found that the clock before was ahead: what it has set is counted from the right one on.
        88 "clock-set-back" => ClockSetBack { from_ms: u64 = "from", to_ms: u64 = "to", stuck_ms: u64 = "idsFrom" },
        ..
        /// Something else about one job has changed. Payload: see there.
        Changed(Changed<'a>),
        ..
        /// Something that was written before, written again.
        Kept(Kept<'a>),
    }

    /// A fact about one job besides its course through the queue. 33 to 39 are set aside for more. Every row names the
    /// job.
    #[derive(Debug)]
    pub enum Changed<'a> with id: JobId {
        /// The job's priority changed.
        21 "prioritized" PRIORITIZED, 31 "prioritized-as" PRIORITIZED_AS => Prioritized(Prioritized),
        /// The job's delay was ended.
        22 "promoted" => Promoted { id: JobId = "id", at_ms: u64 = "at" },
        /// The job was taken from its worker and put off until it may be delivered again.
        23 "put-off" => PutOff { id: JobId = "id", at_ms: u64 = "at", run_at_ms: u64 = "runAt" },
        /// The job's worker told how far it is, from 0 to 100. Payload: the message.
        24 "progressed" =>
            Progressed { id: JobId = "id", progress: f64 = "progress", ..payload message: Option<&'a [u8]> = "message" },
        /// A line was added to its log. Payload: the line.
        25 "logged" =>
            Logged { id: JobId = "id", at_ms: u64 = "at", level: Level = "level", ..payload message: &'a str = "message" },
        /// The job has one more of [`crate::job::flags`].
        27 "flagged" => Flagged { id: JobId = "id", flag: Flags = "flags" },
        /// Lines of its log were forgotten, all but so many of the newest.
        28 "log-cut" => LogCut { id: JobId = "id", keep: u32 = "keepLogs" },
        /// The job holds its deduplication key no longer.
        29 "key-freed" => KeyFreed { id: JobId = "id" },
        /// The job holds its deduplication key for longer.
        30 "key-extended" => KeyExtended { id: JobId = "id", until_ms: u64 = "until" },
        /// The job's life begins anew.
        32 "renewed" => Renewed { id: JobId = "id", until_ms: u64 = "until" },
    }

    /// A fact that a shard writes again, so that the beginning of the log can be given up. 109 to 119 are set aside for
    /// more.
    #[derive(Debug)]
    pub enum Kept<'a> {
        /// A job as it stands. Payload: its data, unless that is shared.
        100 "kept-job" => Job(Box<KeptJob<'a>>),
        /// A record that something points to lies here now. Payload: as in that record.
        101 "moved" MOVED => Moved(Moved<'a>),
        /// Completed jobs of a queue were forgotten for their age or their number: those whose place among the ends is below
        /// this.
        102 "evicted" => Evicted { below: u64 = "below", ..rest queue: &'a str = "queue" },
        /// Ids up to this one have been given out.
        103 "ids" => Ids { highest: JobId = "highest" },
        /// Jobs that were completed and are forgotten.
        104 "past" => CompletedIds(CompletedIdBytes<'a>),
        /// How a child ended that is forgotten. Payload: the value.
        105 "remains" => Unreported(KeptUnreported<'a>),
        /// All that was needed of records before an address has been written again before this one.
        106 "given-up" => GivenUp { until: u64 = "until" },
        /// Custom ids of jobs that were completed and are forgotten.
        107 "completed-names" => CompletedNames(CompletedNameBytes<'a>),
        /// The clock as records before this one tell of it.
        108 "clock" => Clock { at_ms: u64 = "at", stuck_ms: u64 = "idsFrom" },
    }
}
