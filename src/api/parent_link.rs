//! Which jobs are pushed for a parent that is there already. Clients of version 3 of the protocol name it, and its queue, in
//! the job's data; a `parentId` alone is that of a parent which may come later.

use crate::protocol::msgpack::Reader;
use corq_shards::job::new_job::NewJob;

/// The parent of a job and the queue of that parent, if the job is to be linked to it.
pub fn linked_parent<'a>(job: &NewJob<'a>) -> Option<(&'a str, &'a str)> {
    let parent = job.family.as_deref()?.parent?;
    let (mut named, mut queue) = (false, None);
    let mut reader = Reader::new(job.data);
    for _ in 0..reader.map().ok()?? {
        let key = reader.pass_key().ok()?;
        let is_queue = key == b"__parentQueue";
        if !is_queue && key != b"__parentId" {
            reader.pass().ok()?;
            continue;
        }
        let Some(text) = reader.text().ok()? else {
            reader.pass().ok()?;
            continue;
        };
        if is_queue {
            queue = Some(text).filter(|queue| !queue.is_empty());
        } else {
            named = text == parent;
        }
    }
    queue.filter(|_| named).map(|queue| (parent, queue))
}
