//! Lookup of the dependencies of a push over all shards: found before the push, watched after it.
//!
//! Names become ids, the shards of the ids say how those jobs stand, and the push carries along what is
//! still unmet. A job that completes between that answer and the push is not missed, since the shard
//! that pushes subscribes to the end of each, and gets past ends, too.

use super::custom_ids::jobs_of;
use super::messages::UnmetOf;
use super::task::Task;
use crate::api::access::Scope;
use crate::api::error::Error;
use crate::api::limits::BATCH_DEPENDENCIES_MAX;
use crate::api::parent_link::linked_parent;
use crate::api::request::{Body, JobRef, Request};
use crate::api::version::Version;
use crate::protocol::decode::decode_frame;
use crate::protocol::large::KeptFrame;
use crate::protocol::msgpack::Texts;
use crate::server::shard_mail::envelope::{Origin, Span, Step};
use crate::server::shard_mail::message::{AsParent, Message};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::dependency::{Standing, Unmet};
use corq_shards::family::NAMED_CHILDREN_MAX;
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use std::collections::{BTreeMap, HashSet};

/// A push that has to learn about the jobs it names.
#[derive(Debug)]
pub struct DependencyLookup {
    origin: Origin,
    pub(super) frame: KeptFrame,
    /// States of the dependencies: one for each job that each job of the push names, in order.
    found: Vec<DependencyState>,
    /// Of those that are parents, which are there already: their places, and what is known of them.
    parents: BTreeMap<usize, Option<AsParent>>,
    /// Answers that are still to come.
    left: usize,
}

/// How far one dependency has been found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DependencyState {
    /// The directory has to be asked for it.
    Name,
    /// The job's shard has to be asked how the job stands.
    Job { id: JobId, by_name: bool },
    /// The job is completed.
    Met { id: JobId },
    /// The job is not completed.
    Open { id: JobId, by_name: bool },
    /// There is no such job.
    Unknown,
}

/// Outcome of the lookup of a push's dependencies.
#[derive(Clone, Debug, Default)]
pub struct FoundDependencies {
    /// Jobs that the push's jobs wait for, by place.
    pub unmet: UnmetOf<Vec<u8>>,
    /// Children that the push's jobs wait for, by place.
    pub open: UnmetOf<Vec<u8>>,
    /// Jobs, by place, that name an unknown job, and the error that says so: the push is refused
    /// unless their custom ids are taken.
    pub refusals: Vec<(usize, Error)>,
    /// The parents that are to wait for jobs of it, by place.
    pub parents: Vec<(usize, JobId)>,
}

/// The children of one job of a push after the other.
#[derive(Default)]
struct Children<'a> {
    of: Option<usize>,
    names: HashSet<&'a str>,
    /// The job depends on its children, and on nothing else.
    are_all: bool,
    count: usize,
}

impl<'a> Children<'a> {
    /// Whether a dependency of a job is one of its children.
    fn has(&mut self, jobs: &[NewJob<'a>], job: usize, text: &str) -> bool {
        if self.of != Some(job) {
            let family = jobs[job].family.as_deref();
            let children = family.map_or(&[][..], |family| family.children);
            let are_all = children == jobs[job].depends_on;
            let all = Texts::new(children);
            let names = if are_all { HashSet::new() } else { all.iter().collect() };
            *self = Self { of: Some(job), names, are_all, count: all.len() };
        }
        self.are_all || self.names.contains(text)
    }

    fn are_few(&self) -> bool {
        self.count <= NAMED_CHILDREN_MAX
    }
}

/// The bytes for a job, at the end of a row that is in the order of the jobs.
fn entry(lists: &mut UnmetOf<Vec<u8>>, job: usize) -> &mut Vec<u8> {
    if lists.last().is_none_or(|(last, _)| *last != job) {
        lists.push((job, Vec::new()));
    }
    let last = lists.len() - 1;
    &mut lists[last].1
}

fn need_of(text: &str) -> DependencyState {
    match JobRef::of(text) {
        JobRef::Id(id) => DependencyState::Job { id, by_name: false },
        JobRef::Custom(_) => DependencyState::Name,
    }
}

/// A job that another one names, with the place of that.
#[derive(Clone, Copy)]
struct Named<'a> {
    job: usize,
    text: &'a str,
    role: Role<'a>,
}

/// Why a job names another.
#[derive(Clone, Copy)]
enum Role<'a> {
    /// The named job is in `dependsOn`.
    WaitedFor,
    /// The named job is a child that is not in `dependsOn`: its parent does not wait for it, and learns its end only if
    /// it has ended.
    Child,
    /// The named job is the parent, which is there already, in this queue.
    Parent(&'a str),
}

/// All jobs that those of a push name. In version 3 of the protocol a parent that is there is one of them.
fn texts<'b, 'a: 'b>(
    jobs: &'b [NewJob<'a>],
    version: Version,
) -> impl Iterator<Item = Named<'a>> + 'b {
    let of_job = move |(place, job): (usize, &NewJob<'a>)| {
        let named = move |text, role| Named { job: place, text, role };
        let waited_for =
            Texts::new(job.depends_on).iter().map(move |text| named(text, Role::WaitedFor));
        let children = other_children(job).into_iter().map(move |text| named(text, Role::Child));
        let parent = linked_parent(job).filter(|_| version.is_three());
        let parent = parent.map(move |(text, queue)| named(text, Role::Parent(queue)));
        waited_for.chain(children).chain(parent)
    };
    jobs.iter().enumerate().flat_map(of_job)
}

/// The children of a job that its `dependsOn` does not name.
fn other_children<'a>(job: &NewJob<'a>) -> Vec<&'a str> {
    let children = job.family.as_deref().map_or(&[][..], |family| family.children);
    if children.is_empty() || children == job.depends_on {
        return Vec::new();
    }
    let waited_for: HashSet<&str> = Texts::new(job.depends_on).iter().collect();
    Texts::new(children).iter().filter(|text| !waited_for.contains(text)).collect()
}

/// The places of the parents among the jobs that a push names.
fn parents_in(named: &[Named<'_>]) -> BTreeMap<usize, Option<AsParent>> {
    let places = named.iter().enumerate();
    let parents = places.filter(|(_, named)| matches!(named.role, Role::Parent(_)));
    parents.map(|(place, _)| (place, None)).collect()
}

/// Why a job cannot be pushed for a parent, if so.
fn judge_parent(about: Option<&AsParent>, text: &str, expected: &str) -> Result<(), Error> {
    match about {
        None => Err(Error::parent_not_found(text)),
        Some(about) if !about.is_linkable => Err(Error::parent_not_linkable(text)),
        Some(about) if *about.queue != *expected => {
            Err(Error::parent_elsewhere(text, &about.queue, expected))
        }
        Some(AsParent { lacks: Some(lack), .. }) => Err((*lack).into()),
        Some(_) => Ok(()),
    }
}

impl ShardServer {
    /// Starts a push that has custom ids, dependencies or both.
    pub(crate) fn begin_push(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        let texts = texts(jobs_of(ctx.body), ctx.origin.version).take(BATCH_DEPENDENCIES_MAX + 1);
        let named: Vec<Named<'_>> = texts.collect();
        let found: Vec<DependencyState> = named.iter().map(|named| need_of(named.text)).collect();
        let parents = parents_in(&named);
        if found.len() > BATCH_DEPENDENCIES_MAX {
            let error = Error::too_many_dependencies(BATCH_DEPENDENCIES_MAX);
            self.refuse(conns, ctx.origin, ctx.req_id, &error);
            return;
        }
        self.deferred(ctx.origin);
        let (origin, frame) = (ctx.origin, ctx.frame.into());
        if found.is_empty() {
            self.claim_names(conns, origin, frame, ctx.body, FoundDependencies::default());
            return;
        }
        let task = DependencyLookup { origin, frame, found, parents, left: 0 };
        let step = self.tasks.start(self.me, Task::Dependencies(task));
        self.advance_dependencies(conns, step);
    }

    /// Goes on once the answers to the last questions are there.
    fn advance_dependencies(&mut self, conns: &mut Connections, step: Step) {
        let Some(Task::Dependencies(task)) = self.tasks.get(step) else { return };
        if task.left > 0 {
            return;
        }
        if task.found.contains(&DependencyState::Name) {
            self.ask_directories(step);
        } else if task.found.iter().any(|need| matches!(need, DependencyState::Job { .. })) {
            self.ask_standings(step);
        } else {
            self.finish_dependencies(conns, step);
        }
    }

    fn ask_directories(&mut self, step: Step) {
        let Some(Task::Dependencies(task)) = self.tasks.get(step) else { return };
        let mut asks: Vec<Vec<(usize, Span)>> = vec![Vec::new(); self.slots.shards()];
        let version = task.origin.version;
        let Ok(Request { body, .. }) = decode_frame(task.frame.view(), version) else { return };
        for (place, Named { text, .. }) in texts(jobs_of(&body), version).enumerate() {
            if task.found[place] == DependencyState::Name {
                let owner = self.slots.of_name(text);
                let span = self.outbox.immediate(owner).keep(text.as_bytes());
                asks[owner].push((place, span));
            }
        }
        for (owner, names) in asks.into_iter().enumerate().filter(|(_, names)| !names.is_empty()) {
            task.left += 1;
            self.outbox.immediate(owner).messages.push(Message::Resolve { step, names });
        }
    }

    /// A directory has answered.
    pub(crate) fn dependencies_named(
        &mut self,
        conns: &mut Connections,
        step: Step,
        found: &[(usize, Option<JobId>)],
    ) {
        let Some(Task::Dependencies(task)) = self.tasks.get(step) else { return };
        for &(place, id) in found {
            task.found[place] = id
                .map_or(DependencyState::Unknown, |id| DependencyState::Job { id, by_name: true });
        }
        task.left -= 1;
        self.advance_dependencies(conns, step);
    }

    fn ask_standings(&mut self, step: Step) {
        let Some(Task::Dependencies(task)) = self.tasks.get(step) else { return };
        let scope = task.origin.scope;
        let mut asks: Vec<Vec<(usize, JobId)>> = vec![Vec::new(); self.slots.shards()];
        let mut parents = asks.clone();
        for (place, need) in task.found.iter().enumerate() {
            if let DependencyState::Job { id, .. } = *need {
                let is_parent = task.parents.contains_key(&place);
                let asks = if is_parent { &mut parents } else { &mut asks };
                asks[self.slots.of_job(id)].push((place, id));
            }
        }
        for (owner, jobs) in parents.into_iter().enumerate().filter(|(_, jobs)| !jobs.is_empty()) {
            task.left += 1;
            self.outbox.immediate(owner).messages.push(Message::AskParents { step, jobs });
        }
        for (owner, jobs) in asks.into_iter().enumerate().filter(|(_, jobs)| !jobs.is_empty()) {
            task.left += 1;
            self.outbox.immediate(owner).messages.push(Message::Stand { step, scope, jobs });
        }
    }

    /// The part of the shard that owns the dependencies.
    pub(crate) fn stand(&mut self, step: Step, scope: Scope, jobs: &[(usize, JobId)]) {
        let standing = |&(place, id): &(usize, JobId)| {
            let id = self.as_known(scope, id);
            (place, self.engine.shard.standing(id))
        };
        let jobs = jobs.iter().map(standing).collect();
        self.outbox
            .after_commit(usize::from(step.shard))
            .messages
            .push(Message::Stood { step, jobs });
    }

    /// The part of the shard that owns the parents. One that a worker has takes no more children from outside.
    pub(crate) fn tell_of_parents(&mut self, step: Step, jobs: &[(usize, JobId)]) {
        let lacks = (!self.has_room_for_links(jobs.len())).then(|| self.no_room());
        if lacks.is_some() {
            self.compaction.refused_pushes += jobs.len() as u64;
        }
        let shard = &mut self.engine.shard;
        let mut about = |id: JobId| {
            let about = shard.about_parent(id, "")?;
            let state = shard.find(id).map(|index| shard.view(index).job.state);
            let is_linkable = about.linkable && state != Some(State::Active);
            Some(AsParent { queue: about.queue, is_linkable, lacks })
        };
        let jobs = jobs.iter().map(|&(place, id)| (place, about(id))).collect();
        self.outbox
            .after_commit(usize::from(step.shard))
            .messages
            .push(Message::Parents { step, jobs });
    }

    /// The owner of parents has answered.
    pub(crate) fn parents_known(
        &mut self,
        conns: &mut Connections,
        step: Step,
        jobs: &[(usize, Option<AsParent>)],
    ) {
        let Some(Task::Dependencies(task)) = self.tasks.get(step) else { return };
        for (place, about) in jobs {
            let DependencyState::Job { id, by_name } = task.found[*place] else { continue };
            task.found[*place] = match about {
                Some(_) => DependencyState::Met { id },
                None if by_name => DependencyState::Unknown,
                None => DependencyState::Name,
            };
            task.parents.insert(*place, about.clone());
        }
        task.left -= 1;
        self.advance_dependencies(conns, step);
    }

    /// The owner of dependencies has answered.
    pub(crate) fn stood(
        &mut self,
        conns: &mut Connections,
        step: Step,
        jobs: &[(usize, Standing)],
    ) {
        let Some(Task::Dependencies(task)) = self.tasks.get(step) else { return };
        for &(place, standing) in jobs {
            let DependencyState::Job { id, by_name } = task.found[place] else { continue };
            task.found[place] = match standing {
                Standing::Completed => DependencyState::Met { id },
                Standing::Open => DependencyState::Open { id, by_name },
                Standing::Unknown if by_name => DependencyState::Unknown,
                // A client may have chosen a text of the server's own form as its custom id.
                Standing::Unknown => DependencyState::Name,
            };
        }
        task.left -= 1;
        self.advance_dependencies(conns, step);
    }

    /// Everything is known: refuses the push, or lets it go on with what is unmet.
    fn finish_dependencies(&mut self, conns: &mut Connections, step: Step) {
        let Some(Task::Dependencies(task)) = self.tasks.end(step) else { return };
        let DependencyLookup { origin, frame, found, parents, .. } = task;
        let decoded = decode_frame(frame.view(), origin.version);
        let Ok(Request { req_id, body, .. }) = decoded else { return };
        let mut dependencies = FoundDependencies::default();
        let mut children = Children::default();
        for (place, (need, named)) in
            found.iter().zip(texts(jobs_of(&body), origin.version)).enumerate()
        {
            let Named { job, text, role } = named;
            let error = match (role, *need) {
                (Role::Parent(queue), need) => {
                    let about = parents.get(&place).and_then(Option::as_ref);
                    // Of a job that is there already, the link is made although no other child could come.
                    if let (Some(about), DependencyState::Met { id }) = (about, need)
                        && *about.queue == *queue
                    {
                        dependencies.parents.push((job, id));
                    }
                    match (judge_parent(about, text, queue), need) {
                        (Ok(()), DependencyState::Met { .. }) => continue,
                        (Ok(()), _) => Error::parent_not_found(text),
                        (Err(error), _) => error,
                    }
                }
                // A child that is waited for, or that is completed, has still to report its end to the parent.
                (_, DependencyState::Open { id, .. } | DependencyState::Met { id })
                    if (matches!(role, Role::WaitedFor)
                        || matches!(need, DependencyState::Met { .. }))
                        && children.has(jobs_of(&body), job, text) =>
                {
                    let name = if children.are_few() { text } else { "" };
                    Unmet::push(entry(&mut dependencies.open, job), id, name);
                    continue;
                }
                // A child that has not ended, or is unknown, has nothing to report yet; a completed dependency needs no
                // wait.
                (Role::Child, _) | (_, DependencyState::Met { .. }) => continue,
                (_, DependencyState::Open { id, by_name }) => {
                    let name = if by_name { text } else { "" };
                    Unmet::push(entry(&mut dependencies.unmet, job), id, name);
                    continue;
                }
                (
                    _,
                    DependencyState::Name | DependencyState::Job { .. } | DependencyState::Unknown,
                ) => Error::dependency_not_found(text),
            };
            let is_batch = matches!(body, Body::PushBatch { .. });
            let error = if is_batch { error.in_job(job) } else { error };
            if jobs_of(&body)[job].custom_id.is_none() {
                self.refuse(conns, origin, req_id, &error);
                self.answered(origin);
                return;
            }
            // If a job bears its custom id, this push makes none and depends on nothing.
            dependencies.refusals.push((job, error));
        }
        self.claim_names(conns, origin, frame.clone(), &body, dependencies);
    }

    /// Passes on what the last command means for jobs of other shards, and of this one.
    pub(crate) fn send_notices(&mut self) {
        for place in 0..self.effects.notices.len() {
            let notice = self.effects.notices[place];
            let dest = self.slots.of_job(notice.addressee());
            self.outbox.after_commit(dest).messages.push(Message::Notice(notice));
        }
    }

    /// Asks anew for the end of all that jobs here wait for, after recovery.
    pub(crate) fn renew_watches(&mut self) {
        for notice in self.engine.shard.watches_to_renew() {
            let dest = self.slots.of_job(notice.addressee());
            self.outbox.after_commit(dest).messages.push(Message::Notice(notice));
        }
    }
}
