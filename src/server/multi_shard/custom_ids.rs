//! Custom ids over all shards: claiming them before a push, telling the directory what came of it.

use super::dependencies::FoundDependencies;
use super::messages::{UnmetOf, unmet_at};
use super::task::{Claims, Task};
use super::waiting_claims::{NAMES_PER_STEP, WaitingClaim, WaitingForName};
use crate::api::request::{Body, JobRef, Request};
use crate::protocol::decode::decode_frame;
use crate::protocol::large::{FrameRef, KeptFrame};
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::protocol::reply;
use crate::server::commands::job_view::write_pushed;
use crate::server::commands::pending_replies::CURRENT;
use crate::server::commands::refusal::group_full;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::envelope::{Origin, Span, Step};
use crate::server::shard_mail::message::{Batch, Message};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::command::Command;
use corq_shards::dependency::Unmet;
use corq_shards::effect::{PushedJob, Refusal, Reply};
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::Journal as _;
use corq_shards::{Caller, Shard};
use std::collections::BTreeMap;

/// Claims of names that jobs of other shards bear, or jobs that are gone from this one. Such a job may be gone, and its
/// client know that, while the news is on its way here; so each of those shards is sounded first: what it has said
/// before its answer has come by then.
#[derive(Debug, Default)]
pub struct ClaimProbes {
    waiting: BTreeMap<u64, (usize, WaitingClaim)>,
    begun: u64,
}

/// Jobs of a push that is carried out in the turn in which it comes, if its queue and its names are of this shard. Of more, each
/// step has a turn.
const DIRECT_JOBS_MAX: usize = 500;

/// Steps of claims that go on, in one turn.
const CLAIM_STEPS_MAX: u64 = 500;

pub(crate) fn jobs_of<'b, 'a>(body: &'b Body<'a>) -> &'b [NewJob<'a>] {
    match body {
        Body::Push { job, .. } => std::slice::from_ref(job),
        Body::PushBatch { jobs, .. } => jobs,
        _ => &[],
    }
}

/// How many jobs of a push were not new: their names were taken, or a holder of their key stood in the way.
pub(crate) fn known_of(taken: &[bool], made: &[PushedJob]) -> u64 {
    let names = taken.iter().filter(|taken| **taken).count();
    let keys = made.iter().filter(|job| !job.is_new).count();
    (names + keys) as u64
}

/// Says how many jobs of a batch were not new, if any.
pub(crate) fn write_known(reply: &mut MapWriter<'_>, known: u64) {
    if known > 0 {
        reply.key("known").uint(known);
    }
}

/// Writes the ids of a push: of the jobs that were made, and of those whose names were taken.
pub(crate) fn write_ids(
    writer: &mut Writer<'_>,
    all: &[NewJob<'_>],
    taken: &[bool],
    granted: &[NewJob<'_>],
    made: &[PushedJob],
) {
    // A name that stands twice in one push is answered twice with what became of the first, which
    // may be another job: one that holds the same deduplication key.
    let here: BTreeMap<&str, &PushedJob> = if taken.contains(&true) {
        let jobs = granted.iter().zip(made);
        jobs.filter_map(|(job, made)| Some((job.custom_id?, made))).collect()
    } else {
        BTreeMap::new()
    };
    let mut pushed = made.iter();
    for (job, &taken) in all.iter().zip(taken) {
        match (taken, job.custom_id) {
            (true, Some(name)) => match here.get(name) {
                Some(made) => write_pushed(writer, made),
                None => writer.str(name),
            },
            _ => {
                if let Some(made) = pushed.next() {
                    write_pushed(writer, made);
                }
            }
        }
    }
}

/// The job that has a name as its id from the server. Such a job would be on the shard that the name hashes to.
fn jobs_id(shard: &Shard, name: &str) -> Option<JobId> {
    let JobRef::Id(id) = JobRef::of(name) else { return None };
    shard.find(id).map(|_| id)
}

impl ShardServer {
    /// Claims the custom ids of a push, if it has any, before it goes to the owner of the queue.
    pub(crate) fn claim_names(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        frame: KeptFrame,
        body: &Body<'_>,
        dependencies: FoundDependencies,
    ) {
        let (Body::Push { queue, .. } | Body::PushBatch { queue, .. }) = body else { return };
        let jobs = jobs_of(body);
        let mut taken = vec![false; jobs.len()];
        let mut name_owners: Vec<(usize, Vec<usize>)> =
            (0..self.slots.shards()).map(|owner| (owner, Vec::new())).collect();
        let mut seen = std::collections::BTreeSet::new();
        for (place, job) in jobs.iter().enumerate() {
            let Some(name) = job.custom_id else { continue };
            if seen.insert(name) {
                name_owners[self.slots.of_name(name)].1.push(place);
            } else {
                taken[place] = true;
            }
        }
        name_owners.retain(|(_, places)| !places.is_empty());
        let owner = self.slots.of_queue(queue);
        let claims = Claims { origin, frame, owner, name_owners, answered: 0, taken, dependencies };
        if claims.name_owners.is_empty() {
            self.send_push(conns, claims);
            return;
        }
        let step = self.tasks.start(self.me, Task::Claims(claims));
        self.claim_at_next_owner(conns, step, jobs);
    }

    /// Claims names at the shard whose turn it is. This one is asked directly if no other has a part in the push: the reply is
    /// held back until the log has all that the answer tells of.
    fn claim_at_next_owner(&mut self, conns: &mut Connections, step: Step, jobs: &[NewJob<'_>]) {
        let Some(Task::Claims(claims)) = self.tasks.get(step) else { return };
        let is_direct = claims.owner == self.me
            && claims.name_owners.len() == 1
            && jobs.len() <= DIRECT_JOBS_MAX;
        let (owner, places) = &claims.name_owners[claims.answered];
        let names = places.iter().map(|&place| jobs[place].custom_id.unwrap_or_default());
        let durable = places.iter().any(|&place| jobs[place].durable);
        if is_direct && *owner == self.me {
            let names = names.map(Into::into).collect();
            let claim = WaitingClaim { step, names, first: 0, sounded: false, durable };
            if let Some((step, taken)) = self.grant(claim) {
                self.claimed(conns, step, &taken);
            }
            return;
        }
        let batch = self.outbox.immediate(*owner);
        let names = names.map(|name| batch.keep(name.as_bytes())).collect();
        batch.messages.push(Message::Claim { step, names, durable });
    }

    /// The directory's part: grants all names or lets the push wait.
    pub(crate) fn claim(&mut self, batch: &Batch, step: Step, names: &[Span], durable: bool) {
        let names = names.iter().map(|name| batch.text(name).into()).collect();
        self.grant_or_wait(WaitingClaim { step, names, first: 0, sounded: false, durable });
    }

    fn grant_or_wait(&mut self, claim: WaitingClaim) {
        let Some((step, taken)) = self.grant(claim) else { return };
        let batch = self.outbox.after_commit(usize::from(step.shard));
        batch.messages.push(Message::Claimed { step, taken });
    }

    /// Grants all names of a claim, and says which are taken. None if the claim waits.
    fn grant(&mut self, claim: WaitingClaim) -> Option<(Step, Vec<bool>)> {
        let (claimed, looks) = claim.claimed_by_others(|name| self.directory.is_claimed(name));
        self.meter.note(1 + looks / NAMES_PER_STEP);
        if let Some(first) = claimed {
            let name = claim.names[first].clone();
            // Whatever is known of it by then is asked for then.
            let claim = WaitingClaim { first, sounded: false, ..claim };
            self.waiting_claims.push(name, WaitingForName::Claim(claim));
            return None;
        }
        let claim = self.probe(claim)?;
        let shard = &self.engine.shard;
        let names = claim.names.iter();
        let taken = names.map(|name| jobs_id(shard, name).is_some() || !self.directory.claim(name));
        Some((claim.step, taken.collect()))
    }

    /// Sounds the shards of jobs that bear names of a claim, if that has not been done: then the claim comes
    /// back with the last answer.
    fn probe(&mut self, claim: WaitingClaim) -> Option<WaitingClaim> {
        if claim.sounded {
            return Some(claim);
        }
        let mut owners: BTreeMap<usize, Vec<JobId>> = BTreeMap::new();
        for name in &claim.names {
            let Some(job) = self.directory.find(name).or_else(|| jobs_id(&self.engine.shard, name))
            else {
                continue;
            };
            let (owner, shard) = (self.slots.of_job(job), &self.engine.shard);
            // The news of a job that is gone from here has yet to be read: another run may bear its name.
            let is_settled = owner == self.me && shard.find(job).is_some();
            if !is_settled || claim.durable || shard.is_obliterated(job) {
                owners.entry(owner).or_default().push(job);
            }
        }
        let durable = claim.durable;
        let claim = WaitingClaim { sounded: true, ..claim };
        if owners.is_empty() {
            return Some(claim);
        }
        self.claim_probes.begun += 1;
        let number = self.claim_probes.begun;
        let from = self.me as u16;
        self.claim_probes.waiting.insert(number, (owners.len(), claim));
        for (owner, jobs) in owners {
            let probe = Message::Probe { from, number, jobs, durable };
            self.outbox.immediate(owner).messages.push(probe);
        }
        None
    }

    /// A shard wants to have read what this one has said before, and the names of some jobs if they are to go.
    pub(crate) fn answer_probe(
        &mut self,
        conns: &mut Connections,
        (from, number): (u16, u64),
        jobs: &[JobId],
        durable: bool,
    ) {
        if durable {
            self.engine.journal.require_sync();
        }
        self.apply(conns, Caller::default(), &Command::GiveBackNames { jobs });
        // With the news, which wait for the log as well.
        self.outbox.after_commit(usize::from(from)).messages.push(Message::Probed { number });
    }

    pub(crate) fn probed(&mut self, number: u64) {
        let Some((missing, _)) = self.claim_probes.waiting.get_mut(&number) else { return };
        *missing -= 1;
        if *missing == 0
            && let Some((_, claim)) = self.claim_probes.waiting.remove(&number)
        {
            self.grant_or_wait(claim);
        }
    }

    /// Lets a command wait for a name that is claimed.
    pub(crate) fn wait_for_name(&mut self, ctx: RequestContext<'_>, name: &str) {
        let RequestContext { origin, frame, lookup, .. } = ctx;
        if usize::from(origin.shard) == self.me {
            self.deferred(origin);
            self.forwarded_frames.note_sent(&frame);
        } else {
            self.forwarded_frames.note_passed_on();
        }
        let command = WaitingForName::Command { origin, frame: frame.into(), lookup };
        self.waiting_claims.push(name.into(), command);
    }

    /// Goes on with claims and commands whose names are free, for so many steps.
    pub fn go_on_with_claims(&mut self) {
        let until = self.steps() + CLAIM_STEPS_MAX;
        while self.steps() < until
            && let Some(waiting) = self.waiting_claims.pop(|name| self.directory.is_claimed(name))
        {
            match waiting {
                WaitingForName::Claim(claim) => self.grant_or_wait(claim),
                WaitingForName::Command { origin, frame, lookup } => {
                    self.meter.note(1);
                    let batch = self.outbox.immediate(self.me);
                    let frame = batch.keep_frame(frame.view());
                    batch.messages.push(Message::Request { origin, frame, lookup });
                }
            }
        }
    }

    /// The owner shard of names has answered.
    pub(crate) fn claimed(&mut self, conns: &mut Connections, step: Step, taken: &[bool]) {
        if let Some(Task::Flow(_)) = self.tasks.get(step) {
            self.flow_claimed(conns, step, taken);
            return;
        }
        let Some(Task::Claims(claims)) = self.tasks.get(step) else { return };
        for (&place, &taken) in claims.name_owners[claims.answered].1.iter().zip(taken) {
            claims.taken[place] = taken;
        }
        claims.answered += 1;
        if claims.answered < claims.name_owners.len() {
            let (frame, version) = (std::mem::take(&mut claims.frame), claims.origin.version);
            if let Ok(Request { body, .. }) = decode_frame(frame.view(), version) {
                self.claim_at_next_owner(conns, step, jobs_of(&body));
            }
            if let Some(Task::Claims(claims)) = self.tasks.get(step) {
                claims.frame = frame;
            }
            return;
        }
        if let Some(Task::Claims(claims)) = self.tasks.end(step) {
            self.send_push(conns, claims);
        }
    }

    fn send_push(&mut self, conns: &mut Connections, claims: Claims) {
        let refused = claims.dependencies.refusals.iter().find(|(place, _)| !claims.taken[*place]);
        if let Some((_, error)) = refused {
            self.take_back_claims(&claims);
            let decoded = decode_frame(claims.frame.view(), claims.origin.version);
            let req_id = decoded.ok().and_then(|request| request.req_id);
            self.refuse(conns, claims.origin, req_id, error);
            self.answered(claims.origin);
            return;
        }
        let is_direct = claims.owner == self.me && claims.taken.len() <= DIRECT_JOBS_MAX;
        if is_direct && self.stalled_messages.is_empty() && !self.must_pause() {
            let Claims { origin, frame, taken, dependencies, .. } = claims;
            let FoundDependencies { unmet, open, parents, .. } = dependencies;
            let of = |lists, place| unmet_at(lists, place).map_or(&[][..], Vec::as_slice);
            let waits = |place| (of(&unmet, place), of(&open, place));
            return self.push_prepared(conns, origin, frame.view(), (&taken, &parents), waits);
        }
        self.forwarded_frames.note_sent(&claims.frame);
        let batch = self.outbox.immediate(claims.owner);
        let frame = batch.keep_frame(claims.frame.view());
        let mut keep = |lists: &UnmetOf<Vec<u8>>| {
            lists.iter().map(|(job, bytes)| (*job, batch.keep(bytes))).collect()
        };
        let (unmet, open) = (keep(&claims.dependencies.unmet), keep(&claims.dependencies.open));
        let (origin, taken) = (claims.origin, claims.taken.into());
        let parents = claims.dependencies.parents.into();
        batch.messages.push(Message::Push { origin, frame, taken, unmet, open, parents });
    }

    /// Frees the names that were granted to a push which is refused after all.
    fn take_back_claims(&mut self, claims: &Claims) {
        let decoded = decode_frame(claims.frame.view(), claims.origin.version);
        let Ok(Request { body, .. }) = decoded else { return };
        let jobs = jobs_of(&body);
        let asked_for = claims.name_owners.iter().flat_map(|(_, places)| places);
        for &place in asked_for.filter(|&&place| !claims.taken[place]) {
            self.release_name(jobs[place].custom_id.unwrap_or_default());
        }
    }

    pub(crate) fn release_name(&mut self, name: &str) {
        let batch = self.outbox.after_commit(self.slots.of_name(name));
        let name = batch.keep(name.as_bytes());
        batch.messages.push(Message::Unclaim { name });
    }

    /// The owner's part: pushes the jobs whose names were granted. `waits` gives what the job at a
    /// place waits for: other jobs, and children.
    pub(crate) fn push_prepared<'a>(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        frame: FrameRef<'a>,
        (taken, parents): (&[bool], &[(usize, JobId)]),
        waits: impl Fn(usize) -> (&'a [u8], &'a [u8]),
    ) {
        let Ok(Request { req_id, body, .. }) = decode_frame(frame, origin.version) else { return };
        let (Body::Push { queue, .. } | Body::PushBatch { queue, .. }) = &body else { return };
        let many = matches!(body, Body::PushBatch { .. });
        let all = jobs_of(&body);
        let granted = all.iter().enumerate().zip(taken).filter(|(_, taken)| !**taken);
        let granted = granted.map(|((place, job), _)| {
            let (unmet, open) = waits(place);
            let mut job = NewJob { unmet: Unmet::new(unmet), ..job.clone() };
            if let Some(family) = job.family.as_deref_mut() {
                family.open = Unmet::new(open);
            }
            job
        });
        let granted: Vec<NewJob<'_>> = granted.collect();
        let caller = Caller { client: origin.client, request: CURRENT };
        let holders = self.holders_of_keys(queue, &granted, parents);
        self.apply(conns, caller, &Command::Push { queue, jobs: &granted });
        let known = all.iter().zip(taken).filter(|(_, taken)| **taken);
        self.publish_duplicates(queue, known.filter_map(|(job, _)| job.custom_id));
        self.sync_duplicates(all, taken);
        let pushed = match self.own_reply() {
            Some(Reply::Pushed(pushed)) => pushed,
            Some(Reply::Refused { place, refusal }) => {
                let names = granted.iter().filter_map(|job| job.custom_id);
                names.for_each(|name| self.release_name(name));
                if refusal == Refusal::GroupFull {
                    // The refusal counts places among the jobs whose names were granted; the client counts all jobs.
                    let places = taken.iter().enumerate().filter(|(_, taken)| !**taken);
                    let place = places.map(|(place, _)| place).nth(place).unwrap_or(place);
                    let error = group_full(all.get(place), many.then_some(place));
                    self.refuse(conns, origin, req_id, &error);
                } else {
                    self.refuse_push(conns, origin, req_id, refusal, granted.len());
                }
                self.answered(origin);
                return;
            }
            _ => return,
        };
        let effects = std::mem::take(&mut self.effects);
        let made = &effects.pushed[pushed];
        self.release_unused(&granted, made);
        let write = |out: &mut Vec<u8>| {
            let mut reply = reply::begin(out, true, req_id);
            let mut ids = reply.key(if many { "ids" } else { "id" });
            if many {
                ids.array(all.len());
            }
            write_ids(&mut ids, all, taken, &granted, made);
            if many {
                write_known(&mut reply, known_of(taken, made));
            }
        };
        let links = Self::links_of_push((all, taken), parents, made, &holders);
        if links.is_empty() {
            self.respond(conns, origin, |_, sink| framed(sink, req_id, |sink| write(sink.out)));
            self.answered(origin);
        } else {
            let mut reply = Vec::new();
            write(&mut reply);
            self.link_pushed(origin, req_id, &reply, links);
        }
        self.effects = effects;
    }

    /// A job that was pushed with a name twice is as durable as the second one wants it.
    pub(crate) fn sync_duplicates(&mut self, all: &[NewJob<'_>], taken: &[bool]) {
        if all.iter().zip(taken).any(|(job, taken)| *taken && job.durable) {
            self.engine.journal.require_sync();
        }
    }

    /// Names that were granted to jobs which another job stood in the way of (its unique key).
    pub(crate) fn release_unused(&mut self, granted: &[NewJob<'_>], pushed: &[PushedJob]) {
        for (job, made) in granted.iter().zip(pushed) {
            let Some(name) = job.custom_id else { continue };
            if made.custom_id.as_deref() != Some(name) {
                self.release_name(name);
            }
        }
    }

    /// Tells the directory of custom ids that came or went with the last command.
    pub(crate) fn send_names(&mut self) {
        if self.effects.names.is_empty() {
            return;
        }
        for change in std::mem::take(&mut self.effects.names) {
            let (name, id, known) = (&*change.name, change.id, change.known);
            let batch = self.outbox.after_commit(self.slots.of_name(name));
            let name = batch.keep(name.as_bytes());
            batch.messages.push(Message::Named { name, id, known });
        }
    }

    /// Tells the directory of all custom ids, after recovery.
    pub(crate) fn send_all_names(&mut self) {
        // The gone ones first: a name may have been given again.
        for (name, id) in self.engine.shard.completed_names() {
            let batch = self.outbox.after_commit(self.slots.of_name(name));
            let name = batch.keep(name.as_bytes());
            batch.messages.push(Message::Named { name, id, known: false });
        }
        for (name, id) in self.engine.shard.custom_ids() {
            let batch = self.outbox.after_commit(self.slots.of_name(name));
            let name = batch.keep(name.as_bytes());
            batch.messages.push(Message::Named { name, id, known: true });
        }
        for name in self.engine.shard.staged_names() {
            let batch = self.outbox.after_commit(self.slots.of_name(&name));
            let name = batch.keep(name.as_bytes());
            batch.messages.push(Message::Reserve { name });
        }
    }

    /// Settled when its job comes, released when that is dropped.
    pub(crate) fn reserve(&mut self, name: &str) {
        self.directory.claim(name);
    }

    pub(crate) fn unclaimed(&mut self, name: &str) {
        self.directory.release(name);
        self.waiting_claims.note_free(name);
    }

    pub(crate) fn named(&mut self, name: &str, id: JobId, known: bool) {
        if known {
            self.directory.settle(name, id);
        } else {
            self.directory.forget(name, id);
        }
        self.waiting_claims.note_free(name);
    }
}
