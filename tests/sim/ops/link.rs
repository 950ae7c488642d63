//! Writes a parent into a child as `UpdateParent` and `RemoveChildDependency` do, once the parent knows of the child or
//! knows of it no longer: into its options and into its data.

use super::change::pick;
use super::update::record_of;
use super::{Answer, Call};
use crate::check::Check;
use crate::job_rules::Moment;
use crate::model::{Model, State};
use crate::world::World;
use corq_shards::command::Command;
use corq_shards::effect::Refusal;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::Record;

/// A link from a child to its parent.
#[derive(Clone, Debug)]
struct Link {
    job: JobId,
    record: Vec<u8>,
    data: Vec<u8>,
    parent: Option<String>,
}

impl Call for Link {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let record = Record::decode_original(&self.record).expect("it was written");
        let pushed = record.into_pushed().expect("jobs point to records of jobs");
        let new = NewJob { data: &self.data, ..pushed.job.into_own() };
        let change = Change::Link { job: &new, parent: self.parent.as_deref() };
        to(&Command::Change { job: self.job, change });
    }

    fn check(&self, model: &mut Model, _at: &Moment<'_>, answer: Option<&Answer>) {
        let known = model.jobs.get(&self.job).is_some_and(|job| job.state != State::Gone);
        let not_found = Answer::Refused { place: 0, refusal: Refusal::NotFound };
        let expected = if known { Answer::Count(1) } else { not_found };
        model.must(Check::Family, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
        if known {
            let job = model.change(self.job);
            job.data.clone_from(&self.data);
            job.family.parent.clone_from(&self.parent);
        }
    }
}

impl World {
    /// A child gets a parent, or loses it.
    pub fn link(&mut self, client: u64, job: JobId, parent: Option<JobId>) {
        let shard = self.shard_of_job(job);
        let Some(record) = record_of(&self.nodes[shard], job) else { return };
        let data = self.new_data();
        let parent = parent.map(|parent| parent.to_string());
        self.send_as(client, shard, Link { job, record, data, parent });
    }
}

/// A client says again who the parent of a job is that has one, wherever it stands.
pub fn act(world: &mut World, client: usize) {
    let Some((shard, job)) = pick(world, |state| *state != State::Gone) else { return };
    let parent = world.nodes[shard].model.jobs[&job].family.parent.clone();
    let Some(record) = record_of(&world.nodes[shard], job) else { return };
    if parent.is_some() {
        let data = world.new_data();
        world.send(client, shard, Link { job, record, data, parent });
    }
}
