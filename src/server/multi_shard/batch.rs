//! Commands on many jobs: split by owner, merged in the order of the request. All jobs are checked
//! before any is touched; between the two, only a lock that runs out can still change an answer.

use super::task::{BatchTask, Phase, Task};
use crate::api::commands::PerJob;
use crate::api::request::{Batch as JobBatch, Body, JobRef, Request};
use crate::protocol::decode::decode_frame;
use crate::protocol::large::{FrameRef, KeptFrame};
use crate::protocol::{reply, uuid_text};
use crate::server::commands::ack_reply::{write_ignored, write_renewed};
use crate::server::commands::job_view::write_ref;
use crate::server::commands::pending_replies::CURRENT;
use crate::server::shard_mail::envelope::{Origin, Span, Step};
use crate::server::shard_mail::message::{Batch, Message, PartItem, PartKind};
use crate::server::shard_mail::request_context::{Lookup, RequestContext};
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::{Ack, Beat, Command};
use corq_shards::effect::{Refusal, Reply};
use corq_shards::job::id::JobId;

/// How the jobs of a command have to be looked up.
fn lookups(jobs: &[JobRef<'_>]) -> Vec<Lookup> {
    let lookup = |job: &JobRef<'_>| match job {
        JobRef::Id(id) => Lookup::Done(Some(*id)),
        JobRef::Custom(_) => Lookup::AsName,
    };
    jobs.iter().map(lookup).collect()
}

/// A command on many jobs that has just been begun.
fn jobs_task(origin: Origin, frame: KeptFrame, jobs: &[JobRef<'_>]) -> BatchTask {
    BatchTask {
        origin,
        frame,
        names: lookups(jobs),
        left: 0,
        phase: Phase::Resolve,
        as_names: false,
        refused: None,
        count: 0,
        gone: Vec::new(),
        late: Vec::new(),
    }
}

/// Names that are looked up in about the time of a step.
const NAMES_PER_STEP: usize = 8;

impl ShardServer {
    /// Finds the shards that a command on many jobs concerns.
    pub(crate) fn dispatch_jobs(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        batch: &JobBatch<'_>,
        per_job: PerJob,
    ) {
        let mut owners = batch.ids.iter().map(|job| match job {
            JobRef::Id(id) => Some(self.slots.of_job(*id)),
            JobRef::Custom(_) => None,
        });
        let first = owners.next().unwrap_or(Some(self.me));
        match first.filter(|_| owners.all(|owner| owner == first)) {
            Some(owner) if owner == self.me => self.on_own_jobs(conns, ctx, batch, per_job),
            Some(owner) => self.forward(ctx, owner),
            None => self.start_on_jobs(conns, ctx, &batch.ids, None),
        }
    }

    /// All jobs are this shard's: one step.
    fn on_own_jobs(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        batch: &JobBatch<'_>,
        per_job: PerJob,
    ) {
        let jobs = &batch.ids[..];
        let scope = ctx.origin.scope;
        let id = |job: JobRef<'_>| self.as_known(scope, ctx.id_of(job).unwrap_or_default());
        let caller = Caller { client: ctx.origin.client, request: CURRENT };
        match per_job {
            PerJob::Ack => {
                let ack = |ack: crate::api::request::Ack<'_>| (id(ack.job), ack.token);
                let acks: Vec<Ack<'_>> = batch
                    .acks()
                    .map(|one| {
                        let (job, token) = ack(one);
                        Ack { job, token, result: one.result, remove: one.remove }
                    })
                    .collect();
                self.apply(conns, caller, &Command::Ack { acks: &acks });
            }
            PerJob::Renew | PerJob::Extend => {
                let beat = |(place, &job): (usize, &JobRef<'_>)| Beat {
                    job: id(job),
                    token: batch.token(place),
                    ttl_ms: batch.ttl_ms(place),
                };
                let beats: Vec<_> = jobs.iter().enumerate().map(beat).collect();
                self.apply(conns, caller, &Command::Heartbeats { beats: &beats });
            }
        }
        match self.own_reply_on_many() {
            Some(Reply::Refused { place, .. })
                if jobs.get(place).is_some_and(|&job| self.may_be_name(job)) =>
            {
                self.start_on_jobs(conns, ctx, jobs, Some((0, (0..jobs.len()).collect())));
            }
            Some(Reply::Gone { renewed, places })
                if places.iter().any(|&place| self.may_be_name(jobs[place])) =>
            {
                self.start_on_jobs(conns, ctx, jobs, Some((renewed, places.into())));
            }
            Some(Reply::Count(count) | Reply::Gone { renewed: count, .. })
                if per_job == PerJob::Extend =>
            {
                self.write_count(conns, ctx.origin, ctx.req_id, count);
            }
            Some(reply) => self.write_merged(conns, ctx.origin, ctx.req_id, jobs, &reply),
            None => {}
        }
    }

    /// The engine's answer to a command on many jobs, also if that had one only.
    fn own_reply_on_many(&mut self) -> Option<Reply> {
        match self.own_reply() {
            Some(Reply::Refused { place, refusal: Refusal::TooLate }) => {
                Some(Reply::Late([place].into()))
            }
            reply => reply,
        }
    }

    fn may_be_name(&self, job: JobRef<'_>) -> bool {
        matches!(job, JobRef::Id(id) if self.engine.shard.find(id).is_none())
    }

    fn write_merged(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        jobs: &[JobRef<'_>],
        reply: &Reply,
    ) {
        match reply {
            Reply::Refused { place, refusal } => {
                // A command on no jobs at all can be refused, too: for want of room.
                let job = jobs.get(*place).copied().unwrap_or(JobRef::Custom(""));
                let error = self.refusal_error(*refusal, job);
                self.refuse(conns, origin, req_id, &error);
            }
            Reply::Count(count) => {
                self.respond(conns, origin, |_, sink| write_renewed(sink, req_id, *count, &[]));
            }
            Reply::Gone { renewed, places } => {
                self.respond(conns, origin, |_, sink| {
                    write_renewed(sink, req_id, *renewed, places);
                });
            }
            Reply::Late(places) => {
                self.respond(conns, origin, |_, sink| {
                    write_ignored(sink, req_id, places, |writer| {
                        places.iter().for_each(|&place| write_ref(writer, jobs[place]));
                    });
                });
            }
            _ => self.respond(conns, origin, |_, sink| reply::ok(sink.out, req_id)),
        }
    }

    /// Several shards, or names: step by step. `missed` are the places where no job was found that goes by such an
    /// id, which are looked up as names, too, with the number of those that are done already.
    fn start_on_jobs(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        jobs: &[JobRef<'_>],
        missed: Option<(u64, Vec<usize>)>,
    ) {
        let as_names = missed.is_some();
        let names = if let Some((_, places)) = &missed {
            let mut names = vec![Lookup::Done(None); jobs.len()];
            for &place in places {
                names[place] = Lookup::AsName;
            }
            names
        } else {
            lookups(jobs)
        };
        let (count, gone) = missed.unwrap_or_default();
        self.deferred(ctx.origin);
        let task = jobs_task(ctx.origin, ctx.frame.into(), jobs);
        let task = BatchTask { names, as_names, count, gone, ..task };
        let step = self.tasks.start(self.me, Task::Batch(task));
        self.begin_on_jobs(conns, step, jobs);
    }

    fn begin_on_jobs(&mut self, conns: &mut Connections, step: Step, jobs: &[JobRef<'_>]) {
        self.resolve_jobs(step, jobs);
        self.advance_jobs(conns, step);
    }

    fn resolve_jobs(&mut self, step: Step, jobs: &[JobRef<'_>]) {
        let mut asks: Vec<Vec<(usize, Span)>> = vec![Vec::new(); self.slots.shards()];
        let Some(Task::Batch(task)) = self.tasks.get(step) else { return };
        for (place, job) in jobs.iter().enumerate() {
            if task.names[place] != Lookup::AsName {
                continue;
            }
            let text;
            let name = match job {
                JobRef::Custom(name) => name,
                JobRef::Id(id) => {
                    text = uuid_text::format(id.0);
                    // The text of a UUID is ASCII.
                    std::str::from_utf8(&text).unwrap_or_default()
                }
            };
            let owner = self.slots.of_name(name);
            let span = self.outbox.immediate(owner).keep(name.as_bytes());
            asks[owner].push((place, span));
        }
        for (owner, names) in asks.into_iter().enumerate().filter(|(_, names)| !names.is_empty()) {
            task.left += 1;
            self.outbox.immediate(owner).messages.push(Message::Resolve { step, names });
        }
    }

    /// The directory's part.
    pub(crate) fn resolve(&mut self, batch: &Batch, step: Step, names: &[(usize, Span)]) {
        self.meter.note(names.len() / NAMES_PER_STEP);
        // A name whose job is gone still leads to it: its shard knows what became of it.
        let jobs = names
            .iter()
            .map(|(place, name)| (*place, self.directory.find_completed(batch.text(name))));
        let jobs = jobs.collect();
        self.outbox
            .after_commit(usize::from(step.shard))
            .messages
            .push(Message::Resolved { step, jobs });
    }

    pub(crate) fn resolved(
        &mut self,
        conns: &mut Connections,
        step: Step,
        found: &[(usize, Option<JobId>)],
    ) {
        self.meter.note(found.len() / NAMES_PER_STEP);
        if let Some(Task::Dependencies(_)) = self.tasks.get(step) {
            self.dependencies_named(conns, step, found);
            return;
        }
        if let Some(Task::PushedLinks(_)) = self.tasks.get(step) {
            self.pushed_is_named(conns, step, found);
            return;
        }
        if let Some(Task::ParentLink(_)) = self.tasks.get(step) {
            self.parent_link_named(conns, step, found);
            return;
        }
        if let Some(Task::Looks(_)) = self.tasks.get(step) {
            self.looks_named(conns, step, found);
            return;
        }
        let Some(Task::Batch(task)) = self.tasks.get(step) else { return };
        for &(place, id) in found {
            task.names[place] = Lookup::Done(id);
        }
        task.left -= 1;
        self.advance_jobs(conns, step);
    }

    pub(crate) fn parted(&mut self, conns: &mut Connections, step: Step, outcome: &Reply) {
        let Some(Task::Batch(task)) = self.tasks.get(step) else { return };
        match outcome {
            Reply::Refused { place, refusal } => task.refuse(*place, *refusal),
            Reply::Count(count) => task.count += count,
            Reply::Gone { renewed, places } => {
                task.count += renewed;
                task.gone.extend_from_slice(places);
            }
            // A check does not count late jobs: the act that follows finds them again.
            Reply::Late(places) if task.phase == Phase::Act => {
                task.late.extend_from_slice(places);
            }
            _ => {}
        }
        task.left -= 1;
        self.advance_jobs(conns, step);
    }

    /// Goes on with a command once the answers of its phase are there.
    fn advance_jobs(&mut self, conns: &mut Connections, step: Step) {
        let Some(Task::Batch(task)) = self.tasks.get(step) else { return };
        if task.left > 0 {
            return;
        }
        let phase = task.phase;
        let (frame, version) = (std::mem::take(&mut task.frame), task.origin.version);
        if let Ok(request) = decode_frame(frame.view(), version) {
            match phase {
                Phase::Resolve => self.send_parts(step, frame.view(), &request),
                Phase::Check if self.acts_next(step) => {
                    self.send_acts(step, frame.view(), &request);
                }
                Phase::Check | Phase::Act => {}
            }
            self.try_all_as_names(step, &request);
            let done = matches!(self.tasks.get(step), Some(Task::Batch(task)) if task.left == 0);
            if done {
                self.finish_jobs(conns, step, &request);
                return;
            }
        }
        if let Some(Task::Batch(task)) = self.tasks.get(step) {
            task.frame = frame;
        }
    }

    /// Where a job was not found that goes by a text of the server's own form, all such texts are
    /// looked up as names and the command starts anew. Nothing but heartbeats has been done so far:
    /// those that were counted stay so, and only what goes by such a name is done now.
    fn try_all_as_names(&mut self, step: Step, request: &Request<'_>) {
        let (Body::AckBatch { batch }
        | Body::JobHeartbeatBatch { batch }
        | Body::ExtendLocks { batch }) = &request.body
        else {
            return;
        };
        let Some(Task::Batch(task)) = self.tasks.get(step) else { return };
        let is_id = |place: usize| matches!(batch.ids[place], JobRef::Id(_));
        let missed = match (&request.body, task.refused) {
            (Body::AckBatch { .. }, Some((place, refusal))) => {
                task.phase == Phase::Check && refusal == Refusal::NotActive && is_id(place)
            }
            (Body::AckBatch { .. }, None) => false,
            _ => task.gone.iter().copied().any(is_id),
        };
        if task.left > 0 || task.as_names || !missed {
            return;
        }
        task.as_names = true;
        task.phase = Phase::Resolve;
        task.refused = None;
        task.late.clear();
        if matches!(request.body, Body::AckBatch { .. }) {
            task.names.fill(Lookup::AsName);
        } else {
            task.names.fill(Lookup::Done(None));
            for &place in task.gone.iter().filter(|&&place| is_id(place)) {
                task.names[place] = Lookup::AsName;
            }
        }
        self.resolve_jobs(step, &batch.ids);
    }

    /// Whether what was checked is done now: none is refused.
    fn acts_next(&mut self, step: Step) -> bool {
        let Some(Task::Batch(task)) = self.tasks.get(step) else { return false };
        task.refused.is_none()
    }

    /// The first parts after the names are known: a check for acks, the act itself for heartbeats.
    fn send_parts(&mut self, step: Step, frame: FrameRef<'_>, request: &Request<'_>) {
        let Some(Task::Batch(task)) = self.tasks.get(step) else { return };
        let (Body::AckBatch { batch }
        | Body::JobHeartbeatBatch { batch }
        | Body::ExtendLocks { batch }) = &request.body
        else {
            return;
        };
        let acks = matches!(request.body, Body::AckBatch { .. });
        let beats_again = task.as_names && !acks;
        for (place, job) in batch.ids.iter().enumerate() {
            match (job, task.names[place]) {
                (JobRef::Id(_), Lookup::Done(None)) if beats_again => {}
                (JobRef::Id(id), Lookup::Done(None)) => {
                    task.names[place] = Lookup::Done(Some(*id));
                }
                (JobRef::Id(_), _) => {}
                _ if beats_again => task.names[place] = Lookup::Done(None),
                _ => {}
            }
            if acks && task.id(place).is_none() {
                task.refuse(place, Refusal::NotActive);
            }
        }
        if beats_again {
            // Jobs that are tried once more, by the id that their name has led to, are gone only if that fails, too.
            let BatchTask { gone, names, .. } = task;
            gone.retain(|&place| !matches!(names[place], Lookup::Done(Some(_))));
        } else if !acks {
            let unknown = (0..batch.ids.len()).filter(|&place| task.id(place).is_none());
            let unknown: Vec<usize> = unknown.collect();
            task.gone = unknown;
        }
        task.phase = if acks { Phase::Check } else { Phase::Act };
        let kind = if acks { PartKind::Check } else { PartKind::Beat };
        self.send_part_of_each(step, frame, request, kind);
    }

    fn send_acts(&mut self, step: Step, frame: FrameRef<'_>, request: &Request<'_>) {
        if let Some(Task::Batch(task)) = self.tasks.get(step) {
            task.phase = Phase::Act;
        }
        self.send_part_of_each(step, frame, request, PartKind::Ack);
    }

    fn send_part_of_each(
        &mut self,
        step: Step,
        frame: FrameRef<'_>,
        request: &Request<'_>,
        kind: PartKind,
    ) {
        let (Body::AckBatch { batch }
        | Body::JobHeartbeatBatch { batch }
        | Body::ExtendLocks { batch }) = &request.body
        else {
            return;
        };
        let Some(Task::Batch(task)) = self.tasks.get(step) else { return };
        let origin = task.origin;
        let mut parts: Vec<Vec<PartItem>> = (0..self.slots.shards()).map(|_| Vec::new()).collect();
        for place in 0..batch.ids.len() {
            let Some(job) = task.id(place) else { continue };
            let owner = self.slots.of_job(job);
            let result = if kind == PartKind::Ack { batch.result(place) } else { &[] };
            let result = self.outbox.immediate(owner).keep_payload(result, frame);
            let (token, remove, ttl_ms) =
                (batch.token(place), batch.remove(place), batch.ttl_ms(place));
            parts[owner].push(PartItem { place, job, token, result, remove, ttl_ms });
        }
        for (owner, items) in parts.into_iter().enumerate().filter(|(_, items)| !items.is_empty()) {
            task.left += 1;
            let message = Message::BatchPart { step, origin, kind, items };
            self.outbox.immediate(owner).messages.push(message);
        }
    }

    fn finish_jobs(&mut self, conns: &mut Connections, step: Step, request: &Request<'_>) {
        let Some(Task::Batch(task)) = self.tasks.end(step) else { return };
        let (Body::AckBatch { batch }
        | Body::JobHeartbeatBatch { batch }
        | Body::ExtendLocks { batch }) = &request.body
        else {
            return;
        };
        let reply = match (&request.body, task.refused) {
            (Body::AckBatch { .. }, Some((place, refusal))) => Reply::Refused { place, refusal },
            (Body::AckBatch { .. }, None) if task.late.is_empty() => Reply::Done,
            (Body::AckBatch { .. }, None) => {
                let mut late = task.late;
                late.sort_unstable();
                Reply::Late(late.into())
            }
            _ if task.gone.is_empty() => Reply::Count(task.count),
            _ => {
                let mut gone = task.gone;
                gone.sort_unstable();
                Reply::Gone { renewed: task.count, places: gone.into() }
            }
        };
        match reply {
            Reply::Count(count) | Reply::Gone { renewed: count, .. }
                if matches!(request.body, Body::ExtendLocks { .. }) =>
            {
                self.write_count(conns, task.origin, request.req_id, count);
            }
            reply => {
                self.write_merged(conns, task.origin, request.req_id, &batch.ids, &reply);
            }
        }
        self.answered(task.origin);
    }

    /// The owner's part.
    pub(crate) fn part(
        &mut self,
        conns: &mut Connections,
        batch: &Batch,
        step: Step,
        origin: Origin,
        kind: PartKind,
        items: &[PartItem],
    ) {
        let caller = Caller { client: origin.client, request: CURRENT };
        if kind == PartKind::Beat {
            let beat = |item: &PartItem| {
                let &PartItem { job, token, ttl_ms, .. } = item;
                Beat { job: self.as_known(origin.scope, job), token, ttl_ms }
            };
            let beats: Vec<_> = items.iter().map(beat).collect();
            self.apply(conns, caller, &Command::Heartbeats { beats: &beats });
        } else {
            let acks = items.iter().map(|item| Ack {
                job: self.as_known(origin.scope, item.job),
                token: item.token,
                result: batch.payload(&item.result),
                remove: item.remove,
            });
            let acks: Vec<Ack<'_>> = acks.collect();
            let command = match kind {
                PartKind::Check => Command::CheckAcks { acks: &acks },
                _ => Command::Ack { acks: &acks },
            };
            self.apply(conns, caller, &command);
        }
        let outcome = match self.own_reply_on_many() {
            Some(Reply::Refused { place, refusal }) => {
                Reply::Refused { place: items[place].place, refusal }
            }
            Some(Reply::Late(late)) => {
                Reply::Late(late.iter().map(|&place| items[place].place).collect())
            }
            Some(Reply::Gone { renewed, places }) => {
                let places = places.iter().map(|&place| items[place].place).collect();
                Reply::Gone { renewed, places }
            }
            Some(reply) => reply,
            None => Reply::Done,
        };
        self.outbox
            .after_commit(usize::from(step.shard))
            .messages
            .push(Message::BatchPartDone { step, outcome });
    }
}
