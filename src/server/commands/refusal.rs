//! Errors for clients, of refusals by the engine and of a log without room.

use crate::api::error::{Error, ErrorKind};
use crate::api::request::JobRef;
use crate::protocol::uuid_text;
use corq_io::log::Lack;
use corq_shards::effect::Refusal;
use corq_shards::job::new_job::NewJob;
use corq_shards::{GROUP_SETTINGS_MAX, QUEUE_SETTINGS_MAX};

/// The error of a log that gets no more room, by what there is too little of.
pub(crate) fn lack_error(lack: Option<Lack>) -> ErrorKind {
    match lack {
        Some(Lack::Descriptors) => ErrorKind::NoFiles,
        Some(Lack::Memory) => ErrorKind::NoMemory,
        Some(Lack::Other) => ErrorKind::NoSegment,
        Some(Lack::Space) | None => ErrorKind::DiskFull,
    }
}

/// Why a job was refused.
pub(crate) fn refusal_error(refusal: Refusal, job: JobRef<'_>) -> Error {
    let kind = match refusal {
        Refusal::NotFound => ErrorKind::JobNotFound,
        Refusal::NotActive | Refusal::TooLate => ErrorKind::NotActive,
        Refusal::NotCancellable => ErrorKind::NotCancellable,
        Refusal::NotPending => ErrorKind::NotPending,
        Refusal::NotDelayed => ErrorKind::NotDelayed,
        Refusal::NotMovable => ErrorKind::NotMovable,
        Refusal::NotDelayable => ErrorKind::NotDelayable,
        Refusal::Ended => ErrorKind::Ended,
        Refusal::Busy => ErrorKind::LongCommandsWait,
        Refusal::Full => ErrorKind::DiskFull,
        Refusal::GroupFull => ErrorKind::GroupOfJobFull,
        Refusal::GroupSettings => return Error::too_many_group_settings(GROUP_SETTINGS_MAX),
        Refusal::QueueSettings => return Error::too_many_queue_settings(QUEUE_SETTINGS_MAX),
        Refusal::TokenRequired => return with_id(job, Error::token_required),
        Refusal::TokenInvalid => return with_id(job, Error::token_invalid),
    };
    kind.into()
}

fn with_id(job: JobRef<'_>, error: impl FnOnce(&str) -> Error) -> Error {
    match job {
        JobRef::Custom(name) => error(name),
        JobRef::Id(id) => {
            let uuid = uuid_text::format(id.0);
            // The text of a UUID is ASCII.
            error(std::str::from_utf8(&uuid).unwrap_or_default())
        }
    }
}

/// The refusal of a push for a group that is full; of one of many with its place.
pub(crate) fn group_full(job: Option<&NewJob<'_>>, place: Option<usize>) -> Error {
    let (group, max) = job.map_or(("", 0), |job| (job.group_id.unwrap_or_default(), job.group_max));
    let error = Error::group_full(group, max);
    match place {
        Some(place) => error.in_job(place),
        None => error,
    }
}
