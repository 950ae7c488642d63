//! Update: the record of a job is read when the command comes, and another payload put into it.

use super::{Answer, Call};
use crate::check::Check;
use crate::job_rules::Moment;
use crate::model::{Model, State};
use crate::node::Node;
use crate::ops::change::pick;
use crate::world::World;
use corq_shards::command::Command;
use corq_shards::effect::Refusal;
use corq_shards::job::change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::Record;

/// Update of the data of a job.
#[derive(Clone, Debug)]
pub struct Update {
    job: JobId,
    record: Vec<u8>,
    data: Vec<u8>,
}

impl Call for Update {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let record = Record::decode_original(&self.record).expect("it was written");
        let pushed = record.into_pushed().expect("jobs point to records of jobs");
        let new = NewJob { data: &self.data, ..pushed.job.into_own() };
        to(&Command::Change { job: self.job, change: change::Change::Update { job: &new } });
    }

    fn check(&self, model: &mut Model, _at: &Moment<'_>, answer: Option<&Answer>) {
        let open = model.jobs.get(&self.job).is_some_and(crate::model::Job::is_live);
        let refused = Answer::Refused { place: 0, refusal: Refusal::Ended };
        let expected = if open { Answer::Done } else { refused };
        model.must(Check::Answer, answer == Some(&expected), || {
            format!("an update of {:?} was answered {answer:?}, not {expected:?}", self.job)
        });
        if open {
            model.change(self.job).data.clone_from(&self.data);
        }
    }
}

/// The record of a job, as the server reads it before it gives such a command.
pub fn record_of(node: &Node, job: JobId) -> Option<Vec<u8>> {
    let index = node.shard.find(job)?;
    let record = node.book.record_at(node.shard.view(index).data.position);
    Some(record.expect("a job points into the log").to_vec())
}

/// A client gives a job another payload.
pub fn act(world: &mut World, client: usize) {
    let open = |state: &State| {
        !matches!(state, State::Gone | State::Completed { .. } | State::Failed { .. })
    };
    let Some((shard, job)) = pick(world, open) else { return };
    let Some(record) = record_of(&world.nodes[shard], job) else { return };
    let data = world.new_data();
    world.send(client, shard, Update { job, record, data });
}
