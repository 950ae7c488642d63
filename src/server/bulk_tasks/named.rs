//! Tasks on jobs of given ids. The shard that was asked has the task, and sends some of the jobs at a time to the shards that
//! have them: what became of those comes back before others follow, so that a task that is cancelled goes no further
//! than one slice. A job whose queue is none for the client does not exist for it.

use super::messages::{BulkMessage, Part};
use super::tasks::{Counts, Skip, TaskState, Work};
use super::work::Name;
use crate::api::commands::Class;
use crate::api::error::ErrorKind;
use crate::protocol::uuid_text;
use crate::server::scan::turns::SLICE_JOBS;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::job::id::JobId;

/// Steps that a job costs beside those of the engine: it is looked up and judged, and each change has the effects of a
/// command.
const STEPS_PER_JOB: usize = 6;

/// The part of a slice that goes to one shard.
#[derive(Default)]
struct OfShard {
    names: Vec<Box<str>>,
    ids: Vec<JobId>,
    looked_up: Vec<JobId>,
}

impl ShardServer {
    /// Asks for the next slice of a task, or ends it.
    pub(super) fn go_on_with_named(&mut self, number: u64) {
        let mut of_shards: Vec<OfShard> = Vec::new();
        of_shards.resize_with(self.slots.shards(), OfShard::default);
        let Some(task) = self.bulk_tasks.get(number) else { return };
        let Work::Named(named) = &mut task.work else { return };
        let most = SLICE_JOBS.min(usize::try_from(named.left).unwrap_or(SLICE_JOBS));
        let slice: Vec<Name> = (0..most).map_while(|_| named.names.pop_front()).collect();
        if slice.is_empty() {
            return self.bulk_tasks.end(number, TaskState::Done, self.now_ms);
        }
        for name in slice {
            match name {
                Name::Id(id) => of_shards[self.slots.of_job(id)].ids.push(id),
                Name::LookedUp(id) => of_shards[self.slots.of_job(id)].looked_up.push(id),
                Name::Custom(name) => of_shards[self.slots.of_name(&name)].names.push(name),
            }
        }
        let part = Part {
            action: task.action,
            dry_run: task.dry_run,
            scope: task.scope,
            queue: task.queue.clone(),
            looked_up: false,
        };
        let from = self.me as u16;
        for (dest, OfShard { names, ids, looked_up }) in of_shards.into_iter().enumerate() {
            let messages = &mut self.outbox.immediate(dest).messages;
            if !names.is_empty() {
                messages.push(Message::Bulk(BulkMessage::Find { from, task: number, names }));
                named.asked += 1;
            }
            for (jobs, is_looked_up) in [(ids, false), (looked_up, true)] {
                if !jobs.is_empty() {
                    let part = Box::new(Part { looked_up: is_looked_up, ..part.clone() });
                    let act = BulkMessage::Act { from, task: number, part, jobs };
                    messages.push(Message::Bulk(act));
                    named.asked += 1;
                }
            }
        }
    }

    /// Which jobs bear these names.
    pub(super) fn find_named(&mut self, (from, task): (u16, u64), names: &[Box<str>]) {
        self.meter.note(names.len());
        let jobs: Vec<JobId> = names.iter().filter_map(|name| self.directory.find(name)).collect();
        let unknown = (names.len() - jobs.len()) as u64;
        let found = BulkMessage::Found { task, jobs, unknown };
        self.outbox.after_commit(usize::from(from)).messages.push(Message::Bulk(found));
    }

    pub(super) fn named_found(&mut self, number: u64, jobs: &[JobId], unknown: u64) {
        let mut counts = Counts { counted: unknown, ..Counts::default() };
        counts.skipped[Skip::NotFound as usize] = unknown;
        self.named_answered(number, counts, jobs);
    }

    /// Changes some jobs of this shard.
    pub(super) fn act_on_named(
        &mut self,
        conns: &mut Connections,
        (from, task): (u16, u64),
        part: &Part,
        jobs: &[JobId],
    ) {
        let data_gone = self.lacks_data_dir(Class::Bulk);
        let (mut counts, mut named) = (Counts::default(), Vec::new());
        self.meter.note(jobs.len() * STEPS_PER_JOB);
        for &id in jobs.iter().filter(|_| !data_gone) {
            let is_there = self.engine.shard.find(id).is_some();
            // A client may have given a job a name of the form of an id. Such a name is kept where a job of that id would be.
            if !is_there && !part.looked_up {
                let text = uuid_text::format(id.0);
                // The text of a UUID is ASCII.
                let text = std::str::from_utf8(&text).unwrap_or_default();
                if let Some(bearer) = self.directory.find(text) {
                    named.push(bearer);
                    continue;
                }
            }
            counts.counted += 1;
            if !is_there || !self.is_of_part(part, id) {
                counts.note(Err(Skip::NotFound));
                continue;
            }
            counts.matched += 1;
            counts.note(self.act_on_job(conns, id, part.action, part.dry_run));
        }
        let acted = BulkMessage::Acted { task, counts, named, data_gone };
        self.outbox.after_commit(usize::from(from)).messages.push(Message::Bulk(acted));
    }

    /// Whether a job of this shard is of the queue of a task, and exists for its client.
    fn is_of_part(&self, part: &Part, id: JobId) -> bool {
        let shard = &self.engine.shard;
        let Some(index) = shard.find(id).filter(|_| !shard.is_obliterated(id)) else {
            return false;
        };
        let queue = shard.view(index).queue;
        part.queue.as_deref().is_none_or(|meant| meant == queue)
            && part.scope.is_none_or(|queues| queues.cover(queue))
    }

    pub(super) fn named_acted(
        &mut self,
        number: u64,
        counts: Counts,
        named: &[JobId],
        data_gone: bool,
    ) {
        if data_gone {
            self.bulk_tasks.end(number, TaskState::Failed(ErrorKind::DataGone), self.now_ms);
        }
        self.named_answered(number, counts, named);
    }

    /// Counts the answer of one shard, and asks for the next slice after the last. Answers that arrive after a task has
    /// ended count for it, too.
    fn named_answered(&mut self, number: u64, counts: Counts, looked_up: &[JobId]) {
        self.bulk_tasks.note(number, counts);
        let Some(task) = self.bulk_tasks.get(number) else { return };
        let Work::Named(named) = &mut task.work else { return };
        named.names.extend(looked_up.iter().map(|&id| Name::LookedUp(id)));
        named.left = named.left.saturating_sub(counts.changed);
        named.asked -= 1;
        if named.asked == 0 {
            self.go_on_with_named(number);
        }
    }
}
