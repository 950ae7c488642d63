//! A job in detail: its attempts, its flow, and why it does not run.

use crate::records::{Job, JobState, LogLine};
use crate::wire::read::{Read, Reader};
use crate::wire::record::{FromWire, record};

record! {
    /// A job in the view of a flow. Of one that is gone, only its id, its depth and its state are known; of one in a queue that
    /// is none of the token's, only its depth.
    FlowNode {
        /// The id of the job.
        id: String = "id",
        /// How many levels it lies below the job that was asked about.
        depth: u64 = "depth",
        /// The job that it is a child of.
        parent_id: Option<String> = "parentId",
        /// Where it is in its life.
        state: JobState = "state",
        /// The queue it is in.
        queue: Option<String> = "queue",
        /// The name of the job.
        name: Option<String> = "name",
        /// How far its worker is, from 0 to 100.
        progress: f64 = "progress",
        /// Attempts that have failed.
        attempts: u64 = "attempts",
        /// Attempts that it has in all.
        max_attempts: u64 = "maxAttempts",
        /// When it was made.
        created_at_ms: Option<u64> = "createdAt",
        /// When its last attempt began.
        started_at_ms: Option<u64> = "startedAt",
        /// When it ended.
        finished_at_ms: Option<u64> = "finishedAt",
        /// How many children it has.
        children: u64 = "children",
        /// How many of them are done.
        children_completed: u64 = "childrenCompleted",
    }
}

record! {
    /// A job and those below it, level by level.
    FlowView {
        /// Whether there are more, deeper or beyond the limit.
        truncated: bool = "truncated",
        /// The jobs; the first is the one that was asked about.
        jobs: Vec<FlowNode> = "jobs",
    }
}

record! {
    /// An attempt at a job.
    Attempt {
        /// Which one, from 1.
        attempt: u64 = "attempt",
        /// When it began.
        started_at_ms: u64 = "startedAt",
        /// When it ended, unless it is under way.
        ended_at_ms: Option<u64> = "endedAt",
        /// The owner of the pull, while that is known.
        worker: Option<String> = "worker",
        /// Why it failed.
        error: Option<String> = "error",
    }
}

record! {
    /// Some of the children of a job.
    Children {
        /// How many it has.
        count: u64 = "count",
        /// How many of them are done.
        completed: u64 = "completed",
        /// Whether `jobs` are not all of them.
        truncated: bool = "truncated",
        /// The first of them.
        jobs: Vec<FlowNode> = "jobs",
    }
}

record! {
    /// All about one job.
    JobDetail {
        /// The job itself.
        job: Job = "job",
        /// The attempts of the job, as far as the server knows them.
        attempts: Vec<Attempt> = "attempts",
        /// The log of the job.
        logs: Vec<LogLine> = "logs",
        /// The children of the job.
        children: Children = "children",
    }
}

/// A job that another one waits for: its id, and where it is, if that was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedJob {
    /// The id of the job.
    pub id: String,
    /// Where it is in its life.
    pub state: JobState,
    /// The queue it is in.
    pub queue: Option<String>,
}

record! {
    /// A named job in the form of a map.
    NamedJobFields {
        /// The id of the job.
        id: String = "id",
        /// Where it is in its life.
        state: JobState = "state",
        /// The queue it is in.
        queue: Option<String> = "queue",
    }
}

impl FromWire for NamedJob {
    /// A reason names jobs by their ids, or with more of them.
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let mut ahead = reader.clone();
        if let Ok(id) = ahead.str() {
            let id = id.to_owned();
            *reader = ahead;
            return Ok(Self { id, ..Self::default() });
        }
        let NamedJobFields { id, state, queue } = NamedJobFields::read(reader)?;
        Ok(Self { id, state, queue })
    }
}

record! {
    /// An obstacle that keeps a job from running. `code` decides which fields it has; others are empty.
    Reason {
        /// The kind of obstacle, for programs: `queue_paused`, `delayed`, `dependencies` and others.
        code: String = "code",
        /// The obstacle in words, for people.
        text: String = "text",
        /// Until when, if time ends it.
        until_ms: Option<u64> = "until",
        /// How long that is from now, in milliseconds.
        wait_ms: Option<u64> = "wait",
        /// The group that it is about.
        group_id: Option<String> = "groupId",
        /// Jobs that may be active at a time.
        limit: Option<u64> = "limit",
        /// Jobs that are.
        active: Option<u64> = "active",
        /// Jobs in each `duration`.
        max: Option<u64> = "max",
        /// In milliseconds.
        duration_ms: Option<u64> = "duration",
        /// Why a delayed job is: `delay`, `backoff` or `schedule`.
        cause: Option<String> = "cause",
        /// The attempt that failed.
        attempt: Option<u64> = "attempt",
        /// How many jobs: before it, or that it waits for.
        count: Option<u64> = "count",
        /// Whether there are more than `count`.
        at_least: bool = "atLeast",
        /// The worker that has it.
        worker: Option<String> = "worker",
        /// Some of the jobs that it waits for, or that take its place.
        jobs: Vec<NamedJob> = "jobs",
    }
}

record! {
    /// Why a job does not run.
    Explanation {
        /// The id of the job.
        id: String = "id",
        /// The queue it is in.
        queue: String = "queue",
        /// Where it is in its life.
        state: JobState = "state",
        /// All that is in its way.
        reasons: Vec<Reason> = "reasons",
        /// When it starts if nothing changes, if that can be said.
        estimated_start_ms: Option<u64> = "estimatedStart",
        /// How fast the queue was lately.
        jobs_per_second: Option<f64> = "jobsPerSecond",
    }
}
