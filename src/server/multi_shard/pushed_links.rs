//! Jobs that are pushed for a parent which is there already: the parent waits for them before their client gets its answer, as
//! durably as the push wants it, or the answer is an error that says so.
//!
//! Whether the parent takes one more child, and whether its log has room for that, was found out before the push. One that has
//! ended since has no use for the child, which runs all the same; one that has begun since runs on, as with `UpdateParent`.
//!
//! A push whose job is there already makes the link as well, if the job says that it is for this parent: the push that made it
//! may have ended between the two, with the server, and its client does not know.

use super::messages::{AboutChild, EdgeChange, ParentLinkMessage};
use super::task::{PushedLink, PushedLinks, Task};
use crate::api::error::Error;
use crate::api::request::JobRef;
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::uuid_text;
use crate::server::commands::pending_replies::CURRENT;
use crate::server::shard_mail::envelope::{Origin, Span, Step};
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::Command;
use corq_shards::effect::{PushedJob, Refusal, Reply};
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::Journal as _;
use std::collections::{BTreeMap, BTreeSet};

impl ShardServer {
    /// The links of a push: of the jobs that it has made, and of those that stood in the way.
    pub(super) fn links_of_push(
        (all, taken): (&[NewJob<'_>], &[bool]),
        parents: &[(usize, JobId)],
        made: &[PushedJob],
        holders: &[JobId],
    ) -> Vec<PushedLink> {
        let mut links: Vec<PushedLink> = Vec::new();
        let (holders, mut seen) = (BTreeSet::from_iter(holders), BTreeSet::new());
        // For each place, which of the jobs that were made it is.
        let mut next = 0;
        let nth_of: Vec<usize> = taken
            .iter()
            .map(|&taken| {
                let nth = next;
                next += usize::from(!taken);
                nth
            })
            .collect();
        for &(place, parent) in parents {
            let Some(job) = all.get(place) else { continue };
            let parent_text = job.family.as_deref().and_then(|family| family.parent);
            let Some(parent_text) = parent_text.map(Into::into) else { continue };
            let durable = job.durable;
            if taken[place] {
                let name = job.custom_id.unwrap_or_default().into();
                let link =
                    PushedLink { child: None, name, parent, parent_text, durable, is_new: false };
                links.push(link);
                continue;
            }
            let Some(PushedJob { id, custom_id, .. }) = made.get(nth_of[place]) else { continue };
            let uuid = uuid_text::format(id.0);
            // The text of a UUID is ASCII.
            let known_as = std::str::from_utf8(&uuid).unwrap_or_default();
            let name = custom_id.as_deref().unwrap_or(known_as).into();
            let is_new = seen.insert(*id) && !holders.contains(id);
            links.push(PushedLink { child: Some(*id), name, parent, parent_text, durable, is_new });
        }
        links
    }

    /// The jobs that hold keys of a push before it comes, if some of its jobs have a parent.
    pub(super) fn holders_of_keys(
        &mut self,
        queue: &str,
        jobs: &[NewJob<'_>],
        parents: &[(usize, JobId)],
    ) -> Vec<JobId> {
        if parents.is_empty() {
            return Vec::new();
        }
        let now_ms = self.now_ms;
        let shard = &mut self.engine.shard;
        let keys = jobs.iter().filter_map(|job| job.unique_key);
        let holders: Vec<u32> =
            keys.filter_map(|key| shard.holder_of(now_ms, queue, key)).collect();
        holders.into_iter().map(|holder| shard.view(holder).job.id).collect()
    }

    /// Has parents wait for the jobs of a push, and answers then. `reply` is the payload of the answer.
    pub(super) fn link_pushed(
        &mut self,
        origin: Origin,
        req_id: Option<&[u8]>,
        reply: &[u8],
        links: Vec<PushedLink>,
    ) {
        let mut frame = Vec::with_capacity(PREFIX_BYTES + reply.len());
        frame.extend_from_slice(&(reply.len() as u32).to_be_bytes());
        frame.extend_from_slice(reply);
        let left = links.len();
        let (new, known): (Vec<_>, Vec<_>) = links.into_iter().partition(|link| link.is_new);
        let task = PushedLinks {
            origin,
            req_id: req_id.map(Into::into),
            reply: frame,
            left,
            named: Vec::new(),
            asked: BTreeMap::new(),
            refused: None,
        };
        let step = self.tasks.start(self.me, Task::PushedLinks(task));
        for link in &new {
            if let Some(child) = link.child {
                self.send_pushed_edge(step, child, link);
            }
        }
        let mut asks: Vec<Vec<(usize, Span)>> = vec![Vec::new(); self.slots.shards()];
        let mut named = 0;
        for link in known {
            if let Some(child) = link.child {
                self.ask_pushed_child(step, child, link);
                continue;
            }
            let owner = self.slots.of_name(&link.name);
            asks[owner].push((named, self.outbox.after_commit(owner).keep(link.name.as_bytes())));
            named += 1;
            if let Some(Task::PushedLinks(task)) = self.tasks.get(step) {
                task.named.push(Some(link));
            }
        }
        for (owner, names) in asks.into_iter().enumerate().filter(|(_, names)| !names.is_empty()) {
            self.outbox.after_commit(owner).messages.push(Message::Resolve { step, names });
        }
    }

    fn send_pushed_edge(&mut self, step: Step, child: JobId, link: &PushedLink) {
        let batch = self.outbox.after_commit(self.slots.of_job(link.parent));
        let name = batch.keep(link.name.as_bytes());
        let change = EdgeChange::AdoptPushed { durable: link.durable };
        let edge = ParentLinkMessage::Edge { step, parent: link.parent, child, name, change };
        batch.messages.push(Message::ParentLink(edge));
    }

    /// Asks for the parent that a job names which was there before.
    fn ask_pushed_child(&mut self, step: Step, child: JobId, link: PushedLink) {
        let Some(Task::PushedLinks(task)) = self.tasks.get(step) else { return };
        task.asked.entry(child).or_default().push(link);
        let ask = ParentLinkMessage::AskChild { step, child };
        self.outbox.after_commit(self.slots.of_job(child)).messages.push(Message::ParentLink(ask));
    }

    /// A directory has answered.
    pub(super) fn pushed_is_named(
        &mut self,
        conns: &mut Connections,
        step: Step,
        found: &[(usize, Option<JobId>)],
    ) {
        for &(place, child) in found {
            let Some(Task::PushedLinks(task)) = self.tasks.get(step) else { return };
            let Some(link) = task.named[place].take() else { continue };
            let child = child.or(match JobRef::of(&link.name) {
                JobRef::Id(id) => Some(id),
                JobRef::Custom(_) => None,
            });
            match child {
                Some(child) => self.ask_pushed_child(step, child, link),
                // The child is gone meanwhile, so no parent waits for it.
                None => self.pushed_is_linked(conns, step, None),
            }
        }
    }

    /// The shard of a job that was there before has answered. False if the step is not one of a push.
    pub(super) fn pushed_is_known(
        &mut self,
        conns: &mut Connections,
        step: Step,
        child: JobId,
        about: &AboutChild,
    ) -> bool {
        let Some(Task::PushedLinks(task)) = self.tasks.get(step) else { return false };
        // A job that stands twice in a push is asked twice.
        let Some(link) = task.asked.get_mut(&child).and_then(Vec::pop) else { return true };
        if about.known && about.parent.as_ref() == Some(&link.parent_text) {
            self.send_pushed_edge(step, child, &link);
        } else {
            self.pushed_is_linked(conns, step, None);
        }
        true
    }

    /// The parent's part: it has one more child from now on, unless it has that already. Answers with what keeps it from waiting.
    pub(super) fn adopt_pushed(
        &mut self,
        conns: &mut Connections,
        (parent, child): (JobId, JobId),
        name: &str,
        durable: bool,
    ) -> Result<bool, Error> {
        // A parent that is gone has no use for the child.
        let Some(about) = self.engine.shard.about_parent(parent, name) else { return Ok(true) };
        let change = Change::Adopt { child, name };
        if !about.declared {
            let caller = Caller { request: CURRENT, ..Caller::default() };
            self.apply(conns, caller, &Command::Change { job: parent, change });
        }
        if durable {
            self.engine.journal.require_sync();
        }
        let error = match self.own_reply().filter(|_| !about.declared) {
            // The last room for a child has gone to another one meanwhile.
            Some(Reply::Count(0)) => Error::parent_not_linkable(&about.known_as),
            Some(Reply::Refused { refusal: Refusal::Full, .. }) => self.no_room().into(),
            // The parent has the child already, or has ended.
            _ => return Ok(true),
        };
        let parent = about.known_as;
        Err(error.inside(format_args!(
            "{name} was pushed, but its parent {parent} does not wait for it: "
        )))
    }

    /// A parent has answered, or need not be asked.
    fn pushed_is_linked(&mut self, conns: &mut Connections, step: Step, error: Option<Error>) {
        let Some(Task::PushedLinks(task)) = self.tasks.get(step) else { return };
        task.left -= 1;
        task.refused = task.refused.take().or(error);
        if task.left > 0 {
            return;
        }
        let Some(Task::PushedLinks(task)) = self.tasks.end(step) else { return };
        match task.refused {
            Some(error) => self.refuse(conns, task.origin, task.req_id.as_deref(), &error),
            None => self.send_whole(conns, task.origin, task.reply),
        }
        self.answered(task.origin);
    }

    /// Takes in that a parent has been linked, or why not. False if the step is not one of a push.
    pub(super) fn is_pushed_link_done(
        &mut self,
        conns: &mut Connections,
        step: Step,
        outcome: &Result<bool, Error>,
    ) -> bool {
        let is_push = matches!(self.tasks.get(step), Some(Task::PushedLinks(_)));
        if is_push {
            self.pushed_is_linked(conns, step, outcome.as_ref().err().cloned());
        }
        is_push
    }
}
