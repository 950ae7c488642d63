//! Asks the shards of jobs what they hold of them in memory: for `Explain`, of what a job waits for, and for `GetFlow`.
//! Read-only; a job that is gone by then is known as one that was completed, or not at all.

use super::looks::{FlowTree, JobDetail, JobLook, LookMessage, LookTask, Then};
use super::task::Task;
use crate::api::access::Scope;
use crate::api::error::ErrorKind;
use crate::api::request::JobRef;
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::message::Message;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::dependency::Standing;
use corq_shards::job::id::JobId;

impl ShardServer {
    /// Answers `GetFlow`.
    pub(crate) fn get_flow(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
        (depth, limit): (u32, u32),
    ) {
        let Some((root, _)) = self.known_job(conns, ctx, job) else { return };
        let tree = FlowTree::new(root, depth, limit as usize, ctx.origin.scope);
        let step = self.begin_looks(ctx.origin, ctx.req_id, Then::Flow(Box::new(tree)));
        self.ask_for_looks(step, &[(0, root)], limit as usize - 1);
    }

    /// Asks for the next level of a flow. False if there is none.
    fn grow_flow_tree(&mut self, step: Step) -> bool {
        let Some(Task::Looks(LookTask { then, left, .. })) = self.tasks.get(step) else {
            return false;
        };
        let Some(tree) = then.tree() else { return false };
        let mut looked_up = tree.is_named();
        if !looked_up {
            let before = tree.jobs();
            let goes_on = tree.descend();
            self.meter.note(tree.jobs() - before);
            if !goes_on {
                return false;
            }
            // Names first: they are known by the shards that they hash to.
            let mut of_shards = vec![Vec::new(); self.slots.shards()];
            for (place, name) in tree.unnamed() {
                let shard = self.slots.of_name(name);
                let name = self.outbox.immediate(shard).keep(name.as_bytes());
                of_shards[shard].push((place, name));
            }
            tree.note_named(true);
            let asked = of_shards.into_iter().enumerate().filter(|(_, names)| !names.is_empty());
            for (shard, names) in asked {
                self.outbox.immediate(shard).messages.push(Message::Resolve { step, names });
                *left += 1;
            }
            looked_up = *left == 0;
        }
        if looked_up {
            tree.note_named(false);
            let (room, jobs) = (tree.room(), tree.unseen().collect::<Vec<_>>());
            if self.ask_for_looks(step, &jobs, room) == 0 {
                // None of the level is known.
                return false;
            }
        }
        true
    }

    fn show_flow_tree(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        tree: &FlowTree,
    ) {
        if !tree.is_there() {
            self.refuse(conns, origin, req_id, ErrorKind::JobNotFound);
            return;
        }
        self.meter.note(tree.jobs());
        self.respond(conns, origin, |_, sink| {
            framed(sink, req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, req_id);
                tree.write(&mut reply.map("data"), 0);
            });
        });
    }

    /// Looks up a job of this shard for a client that may see these queues. None if there is no such job.
    fn look_at_job(&mut self, id: JobId, children_max: usize, scope: Scope) -> Option<JobLook> {
        if self.as_known(scope, id) != id {
            return Some(JobLook::hidden());
        }
        let shard = &mut self.engine.shard;
        if let Some(index) = shard.find(id).filter(|_| !shard.is_obliterated(id)) {
            return Some(JobLook::of(&shard.view(index), children_max));
        }
        (shard.standing(id) == Standing::Completed).then(JobLook::gone)
    }

    /// Begins a command that asks about jobs.
    pub(crate) fn begin_looks(
        &mut self,
        origin: Origin,
        req_id: Option<&[u8]>,
        then: Then,
    ) -> Step {
        self.deferred(origin);
        self.large_replies.reserve(then.reserve_bytes());
        let task = LookTask { origin, req_id: req_id.map(Into::into), left: 0, then };
        self.tasks.start(self.me, Task::Looks(task))
    }

    /// Asks the shards of jobs about them. Returns how many shards are asked.
    pub(crate) fn ask_for_looks(
        &mut self,
        step: Step,
        jobs: &[(usize, JobId)],
        children_max: usize,
    ) -> usize {
        let mut of_shards = vec![Vec::new(); self.slots.shards()];
        for &(place, id) in jobs {
            of_shards[self.slots.of_job(id)].push((place, id));
        }
        let scope = self.look_task(step).and_then(|task| task.origin.scope);
        let mut asked = 0;
        for (shard, jobs) in of_shards.into_iter().enumerate() {
            if jobs.is_empty() {
                continue;
            }
            asked += 1;
            let message = LookMessage::Ask { step, jobs, scope, children_max };
            self.outbox.immediate(shard).messages.push(Message::Look(message));
        }
        if let Some(task) = self.look_task(step) {
            task.left += asked;
        }
        asked
    }

    fn look_task(&mut self, step: Step) -> Option<&mut LookTask> {
        match self.tasks.get(step) {
            Some(Task::Looks(task)) => Some(task),
            _ => None,
        }
    }

    /// Messages about it.
    pub(crate) fn read_look_message(&mut self, conns: &mut Connections, message: LookMessage) {
        match message {
            LookMessage::Ask { step, jobs, scope, children_max } => {
                let (mut looks, mut room) = (Vec::with_capacity(jobs.len()), children_max);
                let asked = jobs.len();
                for (place, id) in jobs {
                    let look = self.look_at_job(id, room, scope);
                    room -= look.as_ref().map_or(0, |look| look.children.len());
                    looks.push((place, look));
                }
                self.meter.note(asked + children_max - room);
                let message = LookMessage::Found { step, looks };
                let dest = usize::from(step.shard);
                self.outbox.after_commit(dest).messages.push(Message::Look(message));
            }
            LookMessage::Found { step, looks } => {
                let children = |(_, look): &(usize, Option<JobLook>)| {
                    look.as_ref().map_or(0, |look| look.children.len())
                };
                self.meter.note(looks.len() + looks.iter().map(children).sum::<usize>());
                let Some(task) = self.look_task(step) else { return };
                task.left -= 1;
                for (place, look) in looks {
                    match &mut task.then {
                        Then::Explain { looks, .. } => looks[place].1 = look,
                        Then::Flow(tree) | Then::Detail(tree) => tree.found(place, look),
                    }
                }
                self.go_on_with_looks(conns, step);
            }
        }
    }

    /// Names were looked up for it.
    pub(crate) fn looks_named(
        &mut self,
        conns: &mut Connections,
        step: Step,
        found: &[(usize, Option<JobId>)],
    ) {
        self.meter.note(found.len());
        let Some(task) = self.look_task(step) else { return };
        task.left -= 1;
        if let Some(tree) = task.then.tree() {
            for &(place, id) in found {
                tree.named(place, id);
            }
        }
        self.go_on_with_looks(conns, step);
    }

    fn go_on_with_looks(&mut self, conns: &mut Connections, step: Step) {
        let Some(task) = self.look_task(step) else { return };
        if task.left > 0 || self.grow_flow_tree(step) {
            return;
        }
        let Some(Task::Looks(task)) = self.tasks.end(step) else { return };
        let LookTask { origin, req_id, then, .. } = task;
        self.large_replies.release(then.reserve_bytes());
        self.answered(origin);
        match then {
            Then::Explain { job, looks } => {
                self.write_explanation(conns, origin, req_id.as_deref(), job, &looks);
            }
            Then::Flow(tree) => self.show_flow_tree(conns, origin, req_id.as_deref(), &tree),
            Then::Detail(tree) => {
                let Some(job) = tree.root() else { return };
                let detail = JobDetail { origin, req_id, job, children: Some(tree) };
                self.show_job_detail(conns, detail, Vec::new());
            }
        }
    }
}
