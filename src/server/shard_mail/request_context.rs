//! The context of a command on its way through the server: who sent it, under which name, in which bytes.
//!
//! A ground type: of the server it imports the envelope only.

use super::envelope::Origin;
use crate::api::request::{Body, JobRef};
use crate::protocol::large::FrameRef;
use crate::server::storage::engine::Fetched;
use corq_shards::job::id::JobId;

/// A command on its way: who asked, under which name, and the bytes it came in.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// Who asked.
    pub origin: Origin,
    /// The client's name for the request.
    pub req_id: Option<&'a [u8]>,
    /// The frame, for those who have to pass it on.
    pub frame: FrameRef<'a>,
    /// The decoded fields of the command.
    pub body: &'a Body<'a>,
    /// The directory's answer for the custom id of the job, if the command names it by one.
    pub lookup: Lookup,
    /// Records that had to be read from the disk before it could be answered.
    pub fetched: &'a [Fetched],
}

/// How far the name of a job has been looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// Not yet.
    Fresh,
    /// The owner of the id does not know it: the directory has to be asked for it as a name.
    AsName,
    /// The directory has answered.
    Done(Option<JobId>),
}

impl RequestContext<'_> {
    /// The id that `job` stands for; `None` if no job bears it.
    pub fn id_of(&self, job: JobRef<'_>) -> Option<JobId> {
        match (self.lookup, job) {
            (Lookup::Done(named), _) => named,
            (_, JobRef::Id(id)) => Some(id),
            (_, JobRef::Custom(_)) => None,
        }
    }
}
