//! Changes of parents and children that exist: a parent gets one more child, or waits for one less; a child goes as its
//! parent wishes; a worker lets its job wait for the children it has.

use super::change::pick;
use super::{Answer, Call, Learned};
use crate::check::Check;
use crate::events::EventStep;
use crate::job_rules::Moment;
use crate::model::{Job, Model, State};
use crate::names::Task;
use crate::world::{Mail, World};
use corq_shards::command::{Command, Token};
use corq_shards::dependency::Standing;
use corq_shards::effect::Refusal;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;

/// A change of a parent or of a child.
#[derive(Clone, Copy, Debug)]
enum What {
    Adopt(JobId),
    LetGo(JobId),
    Abandon,
    Block(Option<Token>),
}

/// A change of the links between a parent and its children.
#[derive(Clone, Debug)]
pub struct ChangeFamily {
    job: JobId,
    what: What,
}

impl ChangeFamily {
    /// Whether it can be done to a job: to how many, or why not.
    fn verdict(&self, model: &Model, now_ms: u64) -> Result<u64, Refusal> {
        let job = model.jobs.get(&self.job);
        let live = job.filter(|job| job.is_live());
        match self.what {
            What::Adopt(_) => live.map(|_| 1).ok_or(Refusal::NotFound),
            What::LetGo(child) => Ok(u64::from(job.is_some_and(|job| job.cares_for(child)))),
            What::Abandon => Ok(u64::from(job.is_some_and(Job::is_pending))),
            What::Block(token) => match live.map(|job| (job, &job.state)) {
                Some((job, State::Active(lease))) => {
                    let living = now_ms < lease.expires_at_ms;
                    if token.is_some() && (token != lease.token || !living) {
                        Err(Refusal::TokenInvalid)
                    } else if now_ms >= model.hold_ends_ms(job, lease) {
                        Err(Refusal::NotActive)
                    } else {
                        Ok(u64::from(!job.unmet.is_empty()))
                    }
                }
                _ => Err(Refusal::NotActive),
            },
        }
    }
}

impl Call for ChangeFamily {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let name = |child: &JobId| child.to_string();
        match &self.what {
            What::Adopt(child) => to(&Command::Change {
                job: self.job,
                change: Change::Adopt { child: *child, name: &name(child) },
            }),
            What::LetGo(child) => to(&Command::Change {
                job: self.job,
                change: Change::LetGo { child: *child, name: &name(child) },
            }),
            What::Abandon => to(&Command::Change { job: self.job, change: Change::Abandon }),
            What::Block(token) => {
                to(&Command::Change { job: self.job, change: Change::Block { token: *token } });
            }
        }
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let verdict = self.verdict(model, at.now_ms);
        let refused = |refusal| Answer::Refused { place: 0, refusal };
        let expected = verdict.map_or_else(refused, Answer::Count);
        model.must(Check::Answer, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
        if verdict.is_ok_and(|count| count > 0) {
            match self.what {
                // The parent has that child already.
                What::Adopt(child) if model.declares(self.job, child) => {}
                What::Adopt(child) => {
                    let waited = model.jobs[&self.job].state == State::WaitingChildren;
                    model.change(self.job).adopt(child);
                    let waits = model.jobs[&self.job].state == State::WaitingChildren;
                    if waits && !waited {
                        model.note_event(self.job, EventStep::WaitingChildren);
                    }
                }
                What::LetGo(child) => {
                    let waited = model.jobs[&self.job].state == State::WaitingChildren;
                    model.change(self.job).family.declared.remove(&child.to_string());
                    model.change(self.job).meet(child, at.now_ms);
                    if waited {
                        model.tell_delay(at.now_ms, self.job);
                    }
                }
                What::Abandon => {
                    model.remove(self.job);
                    model.change(self.job).family.abandoned = true;
                }
                What::Block(_) => {
                    model.renew_life(at.now_ms, self.job);
                    model.change(self.job).block();
                    model.note_event(self.job, EventStep::WaitingChildren);
                }
            }
        }
    }

    /// The child learns of it next.
    fn learn(&self, world: &mut World, learned: &Learned<'_>) {
        if learned.answer == &Answer::Count(1) {
            match self.what {
                What::Adopt(child) => world.link(learned.client, child, Some(self.job)),
                What::LetGo(child) => world.link(learned.client, child, None),
                What::Abandon | What::Block(_) => {}
            }
        }
    }
}

impl Model {
    fn declares(&self, parent: JobId, child: JobId) -> bool {
        self.jobs[&parent].family.declared.contains(&child.to_string())
    }
}

/// A client changes what jobs have to do with each other.
pub fn act(world: &mut World, client: usize) {
    match world.dice.below(4) {
        0 => adopt(world, client),
        1 => let_go(world, client),
        2 => {
            let pending = |state: &State| matches!(state, State::Waiting | State::Delayed);
            if let Some((shard, job)) = pick(world, pending) {
                world.send(client, shard, ChangeFamily { job, what: What::Abandon });
            }
        }
        _ => {
            let Some(held) = world.see_held(client) else { return };
            let what = What::Block(held.token);
            world.send(client, held.shard, ChangeFamily { job: held.job, what });
        }
    }
}

/// A job that is to have one child more, as the server takes it: the shard of the child says first how that
/// stands, once its log has it. A parent that had a child which a loss of power takes back would let the
/// other jobs of that child's flow believe, by asking for it, that the flow had come.
#[derive(Debug)]
pub struct Adoption {
    client: u64,
    parent: JobId,
    child: JobId,
}

/// Whether a job may be told to wait for another: only for a younger one that waits for nobody, so that none
/// waits for itself in a circle.
fn may_adopt(parent: &Job, child: &Job) -> bool {
    let known = parent.unmet.contains(&child.id) || parent.family.ends.contains_key(&child.id);
    child.id > parent.id && child.is_live() && child.unmet.is_empty() && !known
}

fn adopt(world: &mut World, client: usize) {
    let can_append_new = |state: &State| matches!(state, State::WaitingChildren | State::Active(_));
    let Some((shard, parent)) = pick(world, can_append_new) else { return };
    let job = &world.nodes[shard].model.jobs[&parent];
    let jobs = world.nodes.iter().flat_map(|node| node.model.jobs.values());
    let children = jobs.filter(|child| may_adopt(job, child)).map(|child| child.id);
    let children: Vec<JobId> = children.collect();
    if !children.is_empty() {
        let child = world.dice.pick(&children);
        let (task, client) = (world.new_request(), world.clients[client].id);
        world.tasks.insert(task, Task::Adoption(Adoption { client, parent, child }));
        let way = (false, client, world.shard_of_job(child));
        world.post(way, Mail::Stand { task, jobs: vec![child] });
    }
}

impl World {
    /// The shard of a child has said how that stands.
    pub fn child_stood(&mut self, task: u64, standings: &[(JobId, Standing)]) {
        let Some(Task::Adoption(adoption)) = self.tasks.remove(&task) else { return };
        let Adoption { client, parent, child } = adoption;
        let open = standings.iter().any(|(_, standing)| *standing == Standing::Open);
        let shard = self.shard_of_job(parent);
        let job = |id: JobId| self.nodes[self.shard_of_job(id)].model.jobs.get(&id);
        let pair = job(parent).zip(job(child));
        // Another client may have linked it meanwhile.
        if open && pair.is_some_and(|(parent, child)| may_adopt(parent, child)) {
            self.send_as(client, shard, ChangeFamily { job: parent, what: What::Adopt(child) });
        }
    }
}

fn let_go(world: &mut World, client: usize) {
    let waits = |state: &State| *state == State::WaitingChildren;
    let Some((shard, job)) = pick(world, waits) else { return };
    let children = &world.nodes[shard].model.jobs[&job].family.children;
    let children: Vec<JobId> = children.iter().copied().collect();
    if !children.is_empty() {
        let child = world.dice.pick(&children);
        world.send(client, shard, ChangeFamily { job, what: What::LetGo(child) });
    }
}
