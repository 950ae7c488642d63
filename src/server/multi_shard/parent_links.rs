//! Parents and children that are there already: a child gets its parent, loses it, or goes because its
//! parent has no use for it. Each takes steps over the shards of both, one after the other; what has been
//! written down of one is carried on with by the other after a crash.

use super::messages::{AboutChild, EdgeChange, Link, ParentLinkMessage};
use super::task::Task;
use crate::api::commands::Op;
use crate::api::error::{Error, ErrorKind};
use crate::api::request::{Body, JobRef, Request};
use crate::api::version::Version;
use crate::protocol::decode::decode_as;
use crate::protocol::msgpack::patch::patched;
use crate::protocol::{reply, uuid_text};
use crate::server::commands::job_view::pushed_of;
use crate::server::commands::pending_replies::CURRENT;
use crate::server::connection::reply_writer::framed;
use crate::server::event_loop::turn_meter::Work;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::message::{Batch, Message};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use crate::server::storage::cold_reads::Continuation;
use crate::server::storage::engine::{Absent, Engine, Fetched, Records};
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::Command;
use corq_shards::effect::{Refusal, Reply};
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::Journal as _;
use corq_shards::query::AboutParent;

/// Parent given for children that are pushed before their parents.
const PENDING: &str = "pending";

/// Most log bytes of a further child, with the longest name: more than the smallest job, so that a log that takes no
/// job takes no child.
const LINK_BYTES: u64 = 1024;

/// Children that are let go of at a time.
const ABANDON_SLICE: usize = 100;

/// A command on a parent and a child.
#[derive(Debug)]
pub struct ParentLinkTask {
    origin: Origin,
    pub(super) frame: Box<[u8]>,
    /// Child and parent as they were given, with what they are.
    child: (Box<str>, Option<JobId>),
    parent: (Box<str>, Option<JobId>),
    /// The child as its shard describes it.
    about_child: Option<AboutChild>,
    about_parent: Option<AboutParent>,
    /// Answers that are still to come.
    left: usize,
    removed: bool,
    stage: Stage,
    /// Of the children that are let go of, the place of the next one.
    place: usize,
}

/// The question that comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Names,
    Child,
    ParentName,
    Parent,
    Edge,
    Patch,
    Rest,
}

fn text_of(job: JobRef<'_>) -> Box<str> {
    match job {
        JobRef::Custom(name) => name.into(),
        JobRef::Id(id) => {
            let text = uuid_text::format(id.0);
            // The text of a UUID is ASCII.
            std::str::from_utf8(&text).unwrap_or_default().into()
        }
    }
}

impl ShardServer {
    /// Starts a command on a parent and a child.
    pub(crate) fn begin_parent_link(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        child: JobRef<'_>,
        parent: Option<JobRef<'_>>,
    ) {
        let (child, parent) = (text_of(child), parent.map(text_of).unwrap_or_default());
        if child == parent {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::OwnParent);
            return;
        }
        self.deferred(ctx.origin);
        let task = ParentLinkTask {
            origin: ctx.origin,
            frame: ctx.frame.into(),
            child: (child, None),
            parent: (parent, None),
            about_child: None,
            about_parent: None,
            left: 0,
            removed: false,
            stage: Stage::Names,
            place: 0,
        };
        let step = self.tasks.start(self.me, Task::ParentLink(task));
        self.name_parent_link(step);
    }

    fn parent_link_task(&mut self, step: Step) -> Option<&mut ParentLinkTask> {
        match self.tasks.get(step) {
            Some(Task::ParentLink(task)) => Some(task),
            _ => None,
        }
    }

    /// Looks both up as names: a text of the server's own form may be one, too.
    fn name_parent_link(&mut self, step: Step) {
        let Some(Task::ParentLink(task)) = self.tasks.get(step) else { return };
        for (place, (text, _)) in [&task.child, &task.parent].into_iter().enumerate() {
            let asked_for = match task.stage {
                Stage::Names => !text.is_empty(),
                _ => place == 1,
            };
            if !asked_for {
                continue;
            }
            let owner = self.slots.of_name(text);
            let batch = self.outbox.immediate(owner);
            let name = batch.keep(text.as_bytes());
            batch.messages.push(Message::Resolve { step, names: vec![(place, name)] });
            task.left += 1;
        }
    }

    /// A directory has answered.
    pub(crate) fn parent_link_named(
        &mut self,
        conns: &mut Connections,
        step: Step,
        found: &[(usize, Option<JobId>)],
    ) {
        let Some(task) = self.parent_link_task(step) else { return };
        for &(place, named) in found {
            let (text, id) = if place == 0 { &mut task.child } else { &mut task.parent };
            *id = named.or(match JobRef::of(text) {
                JobRef::Id(id) => Some(id),
                JobRef::Custom(_) => None,
            });
        }
        self.advance_parent_link(conns, step);
    }

    fn advance_parent_link(&mut self, conns: &mut Connections, step: Step) {
        let Some(task) = self.parent_link_task(step) else { return };
        task.left -= 1;
        if task.left > 0 {
            return;
        }
        let stage = task.stage;
        let next = match stage {
            Stage::Names => self.ask_child(step),
            Stage::Child => self.child_is_known(step),
            Stage::ParentName => self.ask_parent(step),
            Stage::Parent => self.parent_is_known(step),
            Stage::Edge => self.patch_next(step),
            Stage::Rest if self.abandon_more(step) => Ok(()),
            Stage::Patch | Stage::Rest => Err(None),
        };
        if let Err(end) = next {
            self.finish_parent_link(conns, step, end.as_ref());
        }
    }

    /// Sends `mail` to the owner of `job`.
    fn parent_link_asks(
        &mut self,
        step: Step,
        stage: Stage,
        job: JobId,
        message: ParentLinkMessage,
    ) {
        if let Some(task) = self.parent_link_task(step) {
            (task.stage, task.left) = (stage, 1);
        }
        self.outbox.immediate(self.slots.of_job(job)).messages.push(Message::ParentLink(message));
    }

    fn ask_child(&mut self, step: Step) -> Result<(), Option<Error>> {
        let Some(task) = self.parent_link_task(step) else { return Err(None) };
        let Some(child) = task.child.1 else { return Err(Some(no_child(task))) };
        self.parent_link_asks(
            step,
            Stage::Child,
            child,
            ParentLinkMessage::AskChild { step, child },
        );
        Ok(())
    }

    fn child_is_known(&mut self, step: Step) -> Result<(), Option<Error>> {
        let Some(task) = self.parent_link_task(step) else { return Err(None) };
        let about = task.about_child.clone().unwrap_or_default();
        if !task.parent.0.is_empty() {
            return self.ask_parent(step);
        }
        // The child's own word on whose it is.
        if !about.known {
            return Err(Some(no_child(task)));
        }
        let Some(parent) = about.parent.filter(|parent| **parent != *PENDING) else {
            return Err(Some(Error::no_parent(&task.child.0)));
        };
        task.parent.0 = parent;
        task.stage = Stage::ParentName;
        self.name_parent_link(step);
        Ok(())
    }

    fn ask_parent(&mut self, step: Step) -> Result<(), Option<Error>> {
        let Some(Task::ParentLink(task)) = self.tasks.get(step) else { return Err(None) };
        let Some(parent) = task.parent.1 else { return Err(no_parent(task)) };
        let batch = self.outbox.immediate(self.slots.of_job(parent));
        let child = batch.keep(task.child.0.as_bytes());
        batch.messages.push(Message::ParentLink(ParentLinkMessage::AskParent {
            step,
            parent,
            child,
        }));
        (task.stage, task.left) = (Stage::Parent, 1);
        Ok(())
    }

    /// Both are known: decides what is to be done.
    fn parent_is_known(&mut self, step: Step) -> Result<(), Option<Error>> {
        let Some(Task::ParentLink(task)) = self.tasks.get(step) else { return Err(None) };
        let (Some(child), Some(parent)) = (task.child.1, task.parent.1) else { return Err(None) };
        let Some(about) = task.about_parent.clone() else { return Err(no_parent(task)) };
        let adopt = is_update(&task.frame);
        if adopt {
            let of_child = task.about_child.clone().unwrap_or_default();
            if !of_child.known {
                // A child that was forgotten with its end needs no parent written into it.
                return Err((!about.declared).then(|| no_child(task)));
            }
            let owner = of_child.parent.filter(|owner| **owner != *PENDING);
            if let Some(owner) = owner.filter(|owner| *owner != about.known_as) {
                return Err(Some(Error::other_parent(&task.child.0, &owner)));
            }
            if about.declared {
                return self.patch_next(step);
            }
            if about.parent.is_some_and(|parent| parent == task.child.0) || child == parent {
                return Err(Some(Error::parent_is_child(&task.parent.0)));
            }
            if !about.linkable {
                return Err(Some(Error::parent_not_linkable(&task.parent.0)));
            }
        }
        let batch = self.outbox.immediate(self.slots.of_job(parent));
        let name = batch.keep(task.child.0.as_bytes());
        let change = if adopt { EdgeChange::Adopt } else { EdgeChange::LetGo };
        let edge = ParentLinkMessage::Edge { step, parent, child, name, change };
        batch.messages.push(Message::ParentLink(edge));
        (task.stage, task.left) = (Stage::Edge, 1);
        Ok(())
    }

    /// The parent knows: now the child.
    fn patch_next(&mut self, step: Step) -> Result<(), Option<Error>> {
        let Some(task) = self.parent_link_task(step) else { return Err(None) };
        let Some(child) = task.child.1 else { return Err(None) };
        let update = is_update(&task.frame);
        if !update && !task.removed {
            return Err(None);
        }
        let about = task.about_parent.as_ref().filter(|_| update);
        let parent = about.map(|about| (about.known_as.clone(), about.queue.clone()));
        let link = Link { child, parent };
        self.parent_link_asks(step, Stage::Patch, child, ParentLinkMessage::Patch { step, link });
        Ok(())
    }

    fn finish_parent_link(&mut self, conns: &mut Connections, step: Step, error: Option<&Error>) {
        let Some(Task::ParentLink(task)) = self.tasks.end(step) else { return };
        let decoded = decode_as(&task.frame, task.origin.version);
        let Ok(Request { req_id, body, .. }) = decoded else { return };
        match error {
            Some(error) => self.refuse(conns, task.origin, req_id, error),
            None => self.respond(conns, task.origin, |_, sink| match body {
                Body::RemoveChildDependency { .. } => framed(sink, req_id, |sink| {
                    reply::begin(sink.out, true, req_id).key("removed").bool(task.removed);
                }),
                _ => reply::ok(sink.out, req_id),
            }),
        }
        self.answered(task.origin);
    }

    /// Lets go of all children of a job here that no worker has.
    pub(crate) fn abandon_children(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
    ) {
        let Some((parent, _)) = self.known_job(conns, ctx, job) else { return };
        self.deferred(ctx.origin);
        let task = ParentLinkTask {
            origin: ctx.origin,
            frame: ctx.frame.into(),
            child: Default::default(),
            parent: (Box::default(), Some(parent)),
            about_child: None,
            about_parent: None,
            left: 0,
            removed: false,
            stage: Stage::Rest,
            place: 0,
        };
        let step = self.tasks.start(self.me, Task::ParentLink(task));
        if !self.abandon_more(step) {
            self.finish_parent_link(conns, step, None);
        }
    }

    /// Lets go of the next children, a slice of them: there may be very many, and the next follow when these have
    /// been. False if there are no more.
    fn abandon_more(&mut self, step: Step) -> bool {
        let Some(Task::ParentLink(task)) = self.tasks.get(step) else { return false };
        let shard = &self.engine.shard;
        let found = task.parent.1.and_then(|id| shard.find(id));
        let Some(options) = found.and_then(|index| shard.view(index).options) else { return false };
        while task.left < ABANDON_SLICE
            && let Some((place, one)) = options.unmet.behind(task.place)
        {
            task.place = place + 1;
            if one.child {
                task.left += 1;
                let message = ParentLinkMessage::Abandon { step, child: one.id };
                self.outbox
                    .immediate(self.slots.of_job(one.id))
                    .messages
                    .push(Message::ParentLink(message));
            }
        }
        self.meter.note(task.left);
        task.left > 0
    }

    /// Messages about parents and children.
    pub(crate) fn read_parent_link_message(
        &mut self,
        conns: &mut Connections,
        batch: &Batch,
        message: &ParentLinkMessage,
    ) {
        match message {
            ParentLinkMessage::AskChild { step, child } => {
                let found = self.engine.shard.find(*child);
                let options = found.and_then(|index| self.engine.shard.view(index).options);
                let parent = options.and_then(|has| has.family.as_deref()?.parent.clone());
                let about = AboutChild { known: found.is_some(), parent };
                let answer = ParentLinkMessage::Child { step: *step, child: *child, about };
                self.reply_parent_link(*step, answer);
            }
            ParentLinkMessage::AskParent { step, parent, child } => {
                let about = self.engine.shard.about_parent(*parent, batch.text(child));
                self.reply_parent_link(*step, ParentLinkMessage::Parent { step: *step, about });
            }
            ParentLinkMessage::Edge { step, parent, child, name, change } => {
                let (step, job, child, name) = (*step, *parent, *child, batch.text(name));
                match *change {
                    EdgeChange::AdoptPushed { durable } => {
                        let outcome = self.adopt_pushed(conns, (job, child), name, durable);
                        self.reply_parent_link(step, ParentLinkMessage::Done { step, outcome });
                    }
                    EdgeChange::Adopt if !self.has_room_for_links(1) => {
                        let outcome = Err(self.no_room().into());
                        self.reply_parent_link(step, ParentLinkMessage::Done { step, outcome });
                    }
                    EdgeChange::Adopt => {
                        self.change_parent_link(conns, step, job, Change::Adopt { child, name });
                    }
                    EdgeChange::LetGo => {
                        self.change_parent_link(conns, step, job, Change::LetGo { child, name });
                    }
                }
            }
            ParentLinkMessage::Abandon { step, child } => {
                self.meter_work(Work::of(Op::RemoveUnprocessedChildren));
                self.change_parent_link(conns, *step, *child, Change::Abandon);
            }
            ParentLinkMessage::Patch { step, link } => {
                self.child_patches.push(*step, link.clone());
            }
            ParentLinkMessage::Child { step, child, about }
                if self.pushed_is_known(conns, *step, *child, about) => {}
            ParentLinkMessage::Child { step, about, .. } => {
                if let Some(task) = self.parent_link_task(*step) {
                    task.about_child = Some(about.clone());
                }
                self.advance_parent_link(conns, *step);
            }
            ParentLinkMessage::Parent { step, about } => {
                if let Some(task) = self.parent_link_task(*step) {
                    task.about_parent.clone_from(about);
                }
                self.advance_parent_link(conns, *step);
            }
            ParentLinkMessage::Done { step, outcome }
                if self.is_pushed_link_done(conns, *step, outcome) => {}
            ParentLinkMessage::Done { step, outcome } => {
                let Some(task) = self.parent_link_task(*step) else { return };
                match outcome {
                    // The last room for a child has gone to another one meanwhile.
                    Ok(false) if task.stage == Stage::Edge && is_update(&task.frame) => {
                        let error = Error::parent_not_linkable(&task.parent.0);
                        self.finish_parent_link(conns, *step, Some(&error));
                        return;
                    }
                    Ok(done) if task.stage == Stage::Edge => task.removed = *done,
                    // A child that goes while it is linked has told its parent so.
                    Err(error) if task.stage != Stage::Rest => {
                        let error = error.clone();
                        self.finish_parent_link(conns, *step, Some(&error));
                        return;
                    }
                    Ok(_) | Err(_) => {}
                }
                self.advance_parent_link(conns, *step);
            }
        }
    }

    /// Whether there is room in the log for so many more children of jobs here, beside what the jobs themselves may still take.
    pub(super) fn has_room_for_links(&mut self, links: usize) -> bool {
        let Engine { shard, journal } = &mut self.engine;
        journal.can_append_new(links as u64 * LINK_BYTES, || shard.space_forecast())
    }

    fn reply_parent_link(&mut self, step: Step, message: ParentLinkMessage) {
        self.outbox
            .after_commit(usize::from(step.shard))
            .messages
            .push(Message::ParentLink(message));
    }

    fn change_parent_link(
        &mut self,
        conns: &mut Connections,
        step: Step,
        job: JobId,
        change: Change<'_>,
    ) {
        let caller = Caller { request: CURRENT, ..Caller::default() };
        self.apply(conns, caller, &Command::Change { job, change });
        let outcome = match self.own_reply() {
            Some(Reply::Count(count)) => Ok(count > 0),
            Some(Reply::Refused { refusal: Refusal::Full, .. }) => Err(self.no_room().into()),
            Some(Reply::Refused { .. }) => Err(ErrorKind::JobNotFound.into()),
            _ => Ok(true),
        };
        self.reply_parent_link(step, ParentLinkMessage::Done { step, outcome });
    }

    /// Whether a child can be patched in another turn that nothing else would begin.
    pub(crate) fn has_child_patches(&self) -> bool {
        self.child_patches.has_left() && !self.is_disk_behind() && !self.waits_for_wakeup()
    }

    /// Patches the next children, as far as a turn goes.
    pub fn patch_children_in_turn(&mut self, conns: &mut Connections) {
        let mut bytes = 0;
        while !self.must_pause()
            && !self.is_disk_behind()
            && let Some((step, link)) = self.child_patches.next(bytes)
        {
            bytes += self.patch_child(conns, step, link, &[]);
        }
    }

    /// A child's record has been read.
    pub(crate) fn child_record_arrived(
        &mut self,
        conns: &mut Connections,
        step: Step,
        link: Link,
        fetched: &[Fetched],
    ) {
        self.child_patches.reads = false;
        self.patch_child(conns, step, link, fetched);
    }

    /// Writes a parent into a child, or takes it out: into its data, too, where clients look for it.
    /// `fetched` has the child's record if it was read for that. Returns how many bytes it has.
    fn patch_child(
        &mut self,
        conns: &mut Connections,
        step: Step,
        link: Link,
        fetched: &[Fetched],
    ) -> usize {
        let before = self.meter_work(Work::of(Op::UpdateParent));
        let bytes = self.patch_record(conns, step, link, fetched);
        self.meter.note_bytes(bytes);
        self.meter_work(before);
        bytes
    }

    fn patch_record(
        &mut self,
        conns: &mut Connections,
        step: Step,
        link: Link,
        fetched: &[Fetched],
    ) -> usize {
        let Some(index) = self.engine.shard.find(link.child) else {
            self.reply_parent_link(step, ParentLinkMessage::Done { step, outcome: Ok(false) });
            return 0;
        };
        let stored = self.engine.shard.view(index).data;
        let bytes = stored.record_bytes as usize;
        let record = match Records::new(&self.engine.journal, fetched).record(&stored) {
            Ok(record) => record.to_vec(),
            Err(Absent::Cold) => {
                let nobody = crate::server::events::message::NOBODY;
                let origin = Origin::of_none(self.me as u16, nobody);
                self.child_patches.reads = true;
                self.read_first(
                    origin,
                    Continuation::ParentLink { step, link },
                    &[stored],
                    fetched.to_vec(),
                );
                return bytes;
            }
            Err(Absent::Damaged) => {
                self.reply_parent_link(
                    step,
                    ParentLinkMessage::Done { step, outcome: Err(ErrorKind::Damaged.into()) },
                );
                return bytes;
            }
        };
        let Ok(pushed) = pushed_of(&record) else {
            self.reply_parent_link(
                step,
                ParentLinkMessage::Done { step, outcome: Err(ErrorKind::Damaged.into()) },
            );
            return bytes;
        };
        let parent = link.parent.as_ref();
        let entries = [
            ("__parentId", parent.map(|(parent, _)| &**parent)),
            ("__parentQueue", parent.map(|(_, queue)| &**queue)),
        ];
        let data = patched(pushed.job.data, &entries);
        let data = data.as_deref().unwrap_or(pushed.job.data);
        let new = NewJob { data, ..pushed.job.into_own() };
        let parent = parent.map(|(parent, _)| &**parent);
        self.change_parent_link(conns, step, link.child, Change::Link { job: &new, parent });
        bytes
    }
}

fn no_child(task: &ParentLinkTask) -> Error {
    if is_update(&task.frame) {
        Error::child_not_found(&task.child.0)
    } else {
        ErrorKind::JobNotFound.into()
    }
}

/// The answer where there is no parent: nothing to let go of, or an error.
fn no_parent(task: &ParentLinkTask) -> Option<Error> {
    is_update(&task.frame).then(|| Error::parent_not_found(&task.parent.0))
}

/// The two commands read the same in all versions.
fn is_update(frame: &[u8]) -> bool {
    matches!(decode_as(frame, Version::Two), Ok(Request { body: Body::UpdateParent { .. }, .. }))
}
