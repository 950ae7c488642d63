//! Commands that take several steps over several shards, as seen by the shard that coordinates them.

use super::cron::CronTask;
use super::dependencies::{DependencyLookup, FoundDependencies};
use super::flow::FlowTask;
use super::large_command::LargeCommand;
use super::looks::LookTask;
use super::parent_links::ParentLinkTask;
use super::queue_rows::QueueTask;
use super::row_lists::RowsTask;
use crate::api::error::Error;
use crate::protocol::large::KeptFrame;
use crate::server::figures::messages::FiguresTask;
use crate::server::http::health::Figures;
use crate::server::metrics::Metrics;
use crate::server::metrics::queue_choice::QueueChoice;
use crate::server::numbered::Entries;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::message::ScatterQuery;
use crate::server::shard_mail::request_context::Lookup;
use crate::server::webhooks::messages::WebhookTask;
use corq_shards::job::id::JobId;
use corq_shards::stats::Census;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A command in several steps.
#[derive(Debug)]
pub enum Task {
    /// A push that learns about its dependencies.
    Dependencies(DependencyLookup),
    /// A push that claims custom ids.
    Claims(Claims),
    /// A command on many jobs.
    Batch(BatchTask),
    /// A flow that is pushed.
    Flow(FlowTask),
    /// A command whose payloads are being checked; not there while it goes on.
    Large(Option<Box<LargeCommand>>),
    /// A command on a parent and a child.
    ParentLink(ParentLinkTask),
    /// A push for parents that are there.
    PushedLinks(PushedLinks),
    /// A question to all shards.
    ScatterGather(ScatterGather),
    /// A list of what all shards have.
    Rows(RowsTask),
    /// A question about figures.
    Figures(FiguresTask),
    /// A page of the queues of all shards.
    Queues(QueueTask),
    /// A question about jobs of other shards.
    Looks(LookTask),
    /// A command on a schedule.
    Cron(CronTask),
    /// A change of the webhooks.
    Webhook(WebhookTask),
}

impl Task {
    /// Bytes of the client's frame that it holds.
    fn frame_bytes(&self) -> usize {
        match self {
            Self::Dependencies(task) => task.frame.len(),
            Self::Claims(task) => task.frame.len(),
            Self::Batch(task) => task.frame.len(),
            Self::Flow(task) => task.frame.len(),
            Self::ParentLink(task) => task.frame.len(),
            Self::PushedLinks(task) => task.reply.len(),
            Self::Cron(task) => task.frame.len(),
            Self::Large(_)
            | Self::ScatterGather(_)
            | Self::Rows(_)
            | Self::Figures(_)
            | Self::Queues(_)
            | Self::Looks(_)
            | Self::Webhook(_) => 0,
        }
    }
}

/// Claims of custom ids before a push.
#[derive(Debug)]
pub struct Claims {
    /// Who asked.
    pub origin: Origin,
    pub frame: KeptFrame,
    /// The shard that owns the queue.
    pub owner: usize,
    /// Per owner shard of names, the jobs whose ids are claimed there. Owners are asked in the order of their numbers and
    /// each grants all or nothing, so two pushes never wait for each other.
    pub name_owners: Vec<(usize, Vec<usize>)>,
    /// How many owner shards have answered.
    pub answered: usize,
    /// For each job, whether its custom id is taken.
    pub taken: Vec<bool>,
    /// Dependencies of its jobs, as found before.
    pub dependencies: FoundDependencies,
}

/// A push whose jobs have come and are still unknown to some of the parents that they are for.
#[derive(Debug)]
pub struct PushedLinks {
    pub(super) origin: Origin,
    /// The client's name for the request.
    pub(super) req_id: Option<Box<[u8]>>,
    /// The frame of its answer.
    pub(super) reply: Vec<u8>,
    /// Answers that are still to come, one for each link.
    pub(super) left: usize,
    /// Links of jobs that were there before and go by their names, by place.
    pub(super) named: Vec<Option<PushedLink>>,
    /// Links of jobs that were there before and are asked for their parents.
    pub(super) asked: BTreeMap<JobId, Vec<PushedLink>>,
    /// Why a parent does not wait for a job, if one does not.
    pub(super) refused: Option<Error>,
}

/// A child and its parent.
#[derive(Debug)]
pub struct PushedLink {
    /// Not known of a job that was there before and goes by its name.
    pub(super) child: Option<JobId>,
    pub(super) name: Box<str>,
    pub(super) parent: JobId,
    /// As the client calls the parent.
    pub(super) parent_text: Box<str>,
    pub(super) durable: bool,
    pub(super) is_new: bool,
}

/// A command on many jobs: check all, then act.
#[derive(Debug)]
pub struct BatchTask {
    /// Who asked.
    pub origin: Origin,
    pub frame: KeptFrame,
    /// The jobs it names, by place.
    pub names: Vec<Lookup>,
    /// Answers that are still to come in this phase.
    pub left: usize,
    /// The phase that the answers belong to.
    pub phase: Phase,
    /// Whether ids were looked up as names, too.
    pub as_names: bool,
    /// The first refusal so far: its place and text.
    pub refused: Option<(usize, corq_shards::effect::Refusal)>,
    /// Jobs renewed so far.
    pub count: u64,
    /// Places of those that were not, as far as is known.
    pub gone: Vec<usize>,
    /// Places of those whose attempt was over already.
    pub late: Vec<usize>,
}

/// The steps of a command on many jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Names are looked up.
    Resolve,
    /// All shards are asked whether they could.
    Check,
    /// All shards do it.
    Act,
}

/// A question to all shards, and the answers so far.
#[derive(Debug)]
pub struct ScatterGather {
    /// Who asked.
    pub origin: Origin,
    /// The client's name for the request.
    pub req_id: Option<Box<[u8]>>,
    pub question: ScatterQuery,
    /// Which queues metrics list, if those are asked for.
    pub queues: Arc<QueueChoice>,
    /// Answers that are still to come.
    pub left: usize,
    /// Their sum.
    pub census: Census,
    /// Their list entries.
    pub entries: Vec<u8>,
    /// How many entries.
    pub count: usize,
    /// Metrics, if they were.
    pub metrics: Box<Metrics>,
    /// Figures for HTTP, if those are asked for.
    pub figures: Box<Figures>,
}

impl BatchTask {
    /// The id of the job at `place`, once names are looked up.
    pub fn id(&self, place: usize) -> Option<JobId> {
        match self.names[place] {
            Lookup::Done(id) => id,
            Lookup::Fresh | Lookup::AsName => None,
        }
    }

    /// Keeps the refusal of the first place in the command.
    pub fn refuse(&mut self, place: usize, refusal: corq_shards::effect::Refusal) {
        if self.refused.is_none_or(|(first, _)| place < first) {
            self.refused = Some((place, refusal));
        }
    }
}

/// The tasks a shard coordinates. Each belongs to a command of a connection, which may have no more
/// than fifty unanswered, so their number is bounded by the connections.
///
/// A task that ends early leaves answers on their way, and its number goes to the next one: each has a round
/// of its own, so that no answer comes to a task that did not ask for it.
#[derive(Debug, Default)]
pub struct Tasks {
    running: Entries<(u32, usize, Box<Task>)>,
    rounds: u32,
    /// Bytes of their frames, but for large commands, which count with what their connections have sent.
    frame_bytes: usize,
}

impl Tasks {
    /// Starts a task on shard `me`.
    pub fn start(&mut self, me: usize, task: Task) -> Step {
        self.rounds = self.rounds.wrapping_add(1);
        let (round, bytes) = (self.rounds, task.frame_bytes());
        self.frame_bytes += bytes;
        Step { shard: me as u16, task: self.running.insert((round, bytes, Box::new(task))), round }
    }

    /// A task that goes on.
    pub fn get(&mut self, step: Step) -> Option<&mut Task> {
        let (round, _, task) = self.running.get_mut(step.task)?;
        (*round == step.round).then_some(&mut **task)
    }

    /// Ends a task.
    pub fn end(&mut self, step: Step) -> Option<Task> {
        self.get(step)?;
        let (_, bytes, task) = self.running.remove(step.task)?;
        self.frame_bytes -= bytes;
        Some(*task)
    }

    /// Bytes of the frames that they hold.
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// How many go on.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether none goes on.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        let origin = Origin::of_none(0, crate::server::events::message::NOBODY);
        Task::Claims(Claims {
            origin,
            frame: vec![0; 7].into(),
            owner: 0,
            name_owners: Vec::new(),
            answered: 0,
            taken: Vec::new(),
            dependencies: FoundDependencies::default(),
        })
    }

    #[test]
    fn an_answer_that_comes_late_comes_to_no_other_task() {
        let mut tasks = Tasks::default();
        let first = tasks.start(3, task());
        assert!(tasks.get(first).is_some() && tasks.end(first).is_some());
        let again = |tasks: &mut Tasks| {
            let next = tasks.start(3, task());
            if next.task != first.task {
                assert!(tasks.end(next).is_some());
            }
            (next.task == first.task).then_some(next)
        };
        let second = (0..5000).find_map(|_| again(&mut tasks));
        let second = second.expect("a number that is used again, if late where indices rest");
        assert_eq!(second.shard, 3);
        assert!(tasks.get(first).is_none() && tasks.end(first).is_none());
        assert_eq!((tasks.len(), tasks.frame_bytes()), (1, 7));
        assert!(tasks.end(second).is_some() && tasks.is_empty() && tasks.frame_bytes() == 0);
    }
}
