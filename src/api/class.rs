//! What a command does to what the server keeps, and how large its reply may be: two columns of the table in
//! [`super::commands`].

/// What a command does to what the server keeps, and with that what it needs.
///
/// While the log has no room for what ends jobs, commands of every class wait: `server/overload/write_stall.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It leaves everything as it is. One shard answers.
    Read,
    /// The same, but every shard answers its part.
    Scatter,
    /// It is about connections and workers, which no record tells of.
    Local,
    /// It is recorded.
    Write,
    /// It takes jobs for its client, which must be there for them, and is recorded.
    Pull,
    /// It goes over jobs of a queue in slices, and is recorded.
    Bulk,
    /// It is about as many jobs as its lists have items, is recorded, and is cut into pieces where it is long.
    Batch(Batched),
}

/// What is done with the jobs of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batched {
    /// They are pushed to a queue.
    Push,
    /// They are pushed together, each to its queue.
    Flow,
    /// Each is held by a worker, which has done something with it.
    Held(PerJob),
}

/// What is done with each job that a worker holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PerJob {
    /// It is completed: all of them or none.
    Ack,
    /// Its lock is renewed.
    Renew,
    /// Its lock is renewed for a time of its own.
    Extend,
}

impl Class {
    /// Whether a record tells of it, so that it needs the files of the log.
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
