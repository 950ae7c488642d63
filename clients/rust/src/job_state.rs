//! Where a job is in its life.

use std::fmt;

use crate::wire::read::{Read, Reader};
use crate::wire::record::FromWire;

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobState {
    /// The job may be delivered.
    Waiting,
    /// The job is not due yet.
    Delayed,
    /// A worker has the job.
    Active,
    /// The job was completed.
    Completed,
    /// The job has failed for good and is in the dead-letter queue.
    Failed,
    /// The job waits for other jobs to end.
    WaitingChildren,
    /// The server knows no such job, or has not said.
    #[default]
    Unknown,
}

impl JobState {
    /// The name of the state in the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delayed => "delayed",
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::WaitingChildren => "waiting-children",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromWire for JobState {
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let name = reader.str()?;
        let states = [
            Self::Waiting,
            Self::Delayed,
            Self::Active,
            Self::Completed,
            Self::Failed,
            Self::WaitingChildren,
        ];
        Ok(states.into_iter().find(|state| state.as_str() == name).unwrap_or_default())
    }
}
