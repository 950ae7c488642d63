//! Effect of a command on what the server stores, and size of its reply: two columns of the table in
//! [`super::commands`].

/// Effect of a command on what the server stores, and with that the resources that it needs.
///
/// While the log has no room for what ends jobs, commands of every class wait: `server/overload/write_stall.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Changes nothing. One shard answers.
    Read,
    /// Changes nothing. Every shard answers its part.
    Scatter,
    /// Concerns connections and workers, which are in no record.
    Local,
    /// Changes what is stored, and is recorded.
    Write,
    /// Takes jobs for its client, which must be there for them, and is recorded.
    Pull,
    /// Goes over jobs of a queue in slices, and is recorded.
    Bulk,
    /// Concerns as many jobs as its lists have items, is recorded, and is cut into pieces where it is long.
    Batch(Batched),
}

/// Effect on the jobs of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batched {
    /// The jobs are pushed to a queue.
    Push,
    /// The jobs are pushed together, each to its queue.
    Flow,
    /// Each job is held by a worker, which has done something with it.
    Held(PerJob),
}

/// Effect on each job that a worker holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PerJob {
    /// Completes the job: all jobs of a batch or none.
    Ack,
    /// Renews the lock of the job.
    Renew,
    /// Renews the lock of the job for a time given with it.
    Extend,
}

impl Class {
    /// Whether the command is recorded, so that it needs the files of the log.
    pub const fn is_recorded(self) -> bool {
        match self {
            Self::Read | Self::Scatter | Self::Local => false,
            Self::Write | Self::Pull | Self::Bulk | Self::Batch(_) => true,
        }
    }
}

/// How much a command may be answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplySize {
    /// Little, or what must not wait.
    Short,
    /// At most one job, which a pull gets.
    Pulled,
    /// A job or a value, or several jobs.
    Jobs,
    /// A list, up to a whole frame.
    List,
}
