//! Large replies: defers requests whose replies may be large. A few bytes may ask for many megabytes, and a reply for
//! another shard's connection passes no window of that connection until it is there.
//!
//! Four things are bounded, by an account of the client memory or a figure below, and one answer more: what a turn writes
//! of large answers, so that other requests are served in between; what is being written over several turns; what of them
//! is on its way to other shards and not taken in there yet; and what is being read from the disk for answers. While
//! one of them is reached, requests that may be answered with much are deferred and resumed in order, those for single jobs
//! and pulls first. How large a reply may be is known here, what it says is not.

use super::client_memory::ClientMemory;
use crate::api::commands::{Class, ReplySize};
use crate::api::error::ErrorKind;
use crate::api::request::Request;
use crate::api::version::Version;
use crate::protocol::decode::beginning::LONG_BYTES;
use crate::protocol::decode::coerce::coerced;
use crate::protocol::decode::{decode_as, decode_frame};
use crate::protocol::large::KeptFrame;
use crate::server::connection::protocol::Protocol;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::message::Message;
use crate::server::shard_mail::request_context::{Lookup, RequestContext};
use crate::server::shard_server::ShardServer;
use crate::server::turn_queue::TurnQueue;
use corq_io::net::{ConnId, Connections};
use corq_shards::command::ClientId;

/// Bytes from which an answer counts as large.
pub const LARGE_BYTES: usize = 64 << 10;

/// Bytes of large answers after which a turn begins no other.
pub const TURN_BYTES_MAX: usize = 4 << 20;

/// Requests of a shard that may be deferred; those beyond are refused.
pub const DEFERRED_MAX: usize = 10_000;

/// Where a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DeferredQueue {
    Jobs,
    Lists,
    Texts,
}

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    origin: Origin,
    lookup: Lookup,
    /// Whether it takes jobs, which its client must be there for.
    pulls: bool,
    frame: KeptFrame,
}

/// Requests whose large replies are deferred, and how much of such replies is under way.
#[derive(Debug, Default)]
pub struct LargeReplies {
    memory: ClientMemory,
    jobs: TurnQueue<Waiting>,
    lists: TurnQueue<Waiting>,
    /// Requests whose answers become JSON, deferred while enough is being turned into JSON.
    texts: TurnQueue<Waiting>,
    frame_bytes: usize,
    /// Of lists that are being written.
    begun_bytes: usize,
    /// For lists over all shards that are under way.
    reserved_bytes: usize,
    /// The most of both together that there has been.
    begun_peak_bytes: usize,
    /// Of large answers, written in this turn.
    written_bytes: usize,
    /// Of large answers, on their way to other shards.
    in_transit_bytes: usize,
}

impl LargeReplies {
    /// None, within the accounts of `memory`.
    pub fn new(memory: ClientMemory) -> Self {
        Self { memory, ..Self::default() }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.jobs.len() + self.lists.len() + self.texts.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.has_no_queue() && self.texts.is_empty()
    }

    /// Whether none waits but those whose answers become JSON.
    fn has_no_queue(&self) -> bool {
        self.jobs.is_empty() && self.lists.is_empty()
    }

    /// Bytes of the frames of those that wait.
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Bytes of large answers on their way to other shards.
    pub fn in_transit_bytes(&self) -> usize {
        self.in_transit_bytes
    }

    /// Whether so much is on its way to other shards that no command may add to it. Each says when it has its part. Pulls
    /// that have waited are answered all the same; lists alone do not bring that many.
    #[inline]
    pub fn is_backed_up(&self) -> bool {
        self.in_transit_bytes >= self.memory.tight_output()
    }

    /// Bytes of lists that are being written.
    pub fn begun_bytes(&self) -> usize {
        self.begun_bytes
    }

    /// The most bytes of lists that were being written or expected at a time.
    pub fn begun_peak_bytes(&self) -> usize {
        self.begun_peak_bytes
    }

    /// A large answer has been written, in so many bytes as they go out.
    pub fn note_written(&mut self, bytes: usize) {
        self.written_bytes += bytes;
    }

    /// A list is begun that is expected to take so much.
    pub fn note_begun(&mut self, bytes: usize) {
        self.begun_bytes += bytes;
        self.note_peak();
    }

    /// A list that was begun is written, or given up.
    pub fn note_shown(&mut self, expected_bytes: usize) {
        self.begun_bytes -= expected_bytes;
    }

    /// A list over all shards begins.
    pub fn reserve(&mut self, bytes: usize) {
        self.reserved_bytes += bytes;
        self.note_peak();
    }

    fn note_peak(&mut self) {
        self.begun_peak_bytes = self.begun_peak_bytes.max(self.begun_bytes + self.reserved_bytes);
    }

    /// A list over all shards is answered, or given up: its reserve goes back.
    pub fn release(&mut self, bytes: usize) {
        self.reserved_bytes -= bytes;
    }

    /// Whether enough of lists is under way.
    pub fn lists_enough(&self) -> bool {
        self.begun_bytes + self.reserved_bytes >= self.memory.lists()
    }

    /// A large answer goes to another shard.
    pub fn note_sent(&mut self, bytes: usize) {
        self.in_transit_bytes += bytes;
    }

    /// Another shard has taken in large answers of so many bytes.
    pub fn note_taken(&mut self, bytes: usize) {
        self.in_transit_bytes = self.in_transit_bytes.saturating_sub(bytes);
    }

    /// Whether a turn begins no other large answer.
    pub fn is_turn_spent(&self) -> bool {
        self.written_bytes >= TURN_BYTES_MAX
    }

    /// A turn begins.
    pub fn begin_turn(&mut self) {
        self.written_bytes = 0;
    }

    /// Takes a request in. False if there are too many; one of any length is taken if it is the only one.
    fn put(&mut self, waiting: Waiting, line: DeferredQueue) -> bool {
        let bytes = self.frame_bytes + waiting.frame.len();
        let is_full = bytes > self.memory.deferred() && self.frame_bytes > 0;
        if self.len() >= DEFERRED_MAX || is_full {
            return false;
        }
        self.frame_bytes = bytes;
        let line = match line {
            DeferredQueue::Jobs => &mut self.jobs,
            DeferredQueue::Lists => &mut self.lists,
            DeferredQueue::Texts => &mut self.texts,
        };
        line.push_back(waiting.origin.client, waiting);
        true
    }

    fn take(&mut self) -> Option<Waiting> {
        let next = self.jobs.pop_front().or_else(|| self.lists.pop_front())?;
        self.frame_bytes -= next.frame.len();
        Some(next)
    }

    fn take_text(&mut self) -> Option<Waiting> {
        let next = self.texts.pop_front()?;
        self.frame_bytes -= next.frame.len();
        Some(next)
    }

    /// Forgets what a client has asked for that is gone, or its pulls if it only sends no more. Returns
    /// whose requests those were.
    fn forget(&mut self, client: ClientId, gone: bool) -> Vec<Origin> {
        let (mut origins, mut bytes) = (Vec::new(), 0);
        for line in [&mut self.jobs, &mut self.lists, &mut self.texts] {
            for one in line.take_of(client, |one| gone || one.pulls) {
                origins.push(one.origin);
                bytes += one.frame.len();
            }
        }
        self.frame_bytes -= bytes;
        origins
    }
}

impl ShardServer {
    /// Whether enough of large answers is under way.
    pub(crate) fn is_large_budget_spent(&self) -> bool {
        self.large_replies.is_turn_spent() || self.waits_for_answers_to_go()
    }

    /// As `is_large_budget_spent`, but ignores the budget of the turn, which the next turn renews.
    pub(crate) fn waits_for_answers_to_go(&self) -> bool {
        self.waits_for_readers() || self.large_replies.lists_enough()
    }

    /// As `waits_for_answers_to_go`, for an answer under way: ignores the bytes of lists, of which its own are freed
    /// only by going on.
    pub(crate) fn waits_for_readers(&self) -> bool {
        self.large_replies.in_transit_bytes >= self.client_memory.in_transit()
            || self.reads_enough()
    }

    /// Whether enough is being read from the disk for answers.
    fn reads_enough(&self) -> bool {
        self.cold.bytes() >= self.client_memory.disk_reads()
    }

    /// Whether a request has to wait, as others do or because of what is under way. Single jobs for a connection
    /// here go into its output at once, and it has no other while that is too long; but all connections together
    /// may ask for many in one turn, and what has to be read for them first is not in any output yet.
    #[inline]
    pub(crate) fn must_defer(&self, ctx: &RequestContext<'_>) -> bool {
        let (origin, reply) = (ctx.origin, ctx.body.spec().reply);
        let may_wait = match reply {
            ReplySize::Short => return false,
            ReplySize::Pulled => self.defers_jobs(),
            ReplySize::Jobs => usize::from(origin.shard) != self.me || self.defers_jobs(),
            ReplySize::List => true,
        };
        may_wait && (!self.large_replies.has_no_queue() || self.is_large_budget_spent())
            || self.defers_texts(origin)
    }

    /// Whether what is asked for from there has to become JSON and enough does. Those who get frames do not wait for that.
    fn defers_texts(&self, origin: Origin) -> bool {
        let waits = self.transcodings.writes_enough() || !self.large_replies.texts.is_empty();
        waits
            && usize::from(origin.shard) == self.me
            && self
                .sessions
                .protocol(origin.conn)
                .is_some_and(|protocol| protocol != Protocol::Frames)
    }

    /// Whether even single jobs wait, or others that do come first.
    fn defers_jobs(&self) -> bool {
        let large_replies = &self.large_replies;
        !large_replies.jobs.is_empty() || large_replies.is_turn_spent() || self.reads_enough()
    }

    /// Whether a frame has to wait that comes while a list is under way, because it asks for another: what the
    /// connection has not read then tells how much more it may be sent.
    pub(crate) fn waits_for_list(&mut self, conn: ConnId, frame: &[u8]) -> bool {
        let Some(session) = self.sessions.get(conn) else { return false };
        let (version, is_open) = (session.spoken.version(), session.spoken.is_open());
        let is_list = |request: &Request<'_>| request.op.spec().reply == ReplySize::List;
        // No request for a list is so long, and others are not read before they are admitted.
        session.blocked = frame.len() <= LONG_BYTES
            && match &decode_as(frame, version) {
                Ok(request) => is_list(request),
                Err(_) if version.is_three() || is_open => {
                    coerced(frame.into()).is_some_and(|frame| {
                        decode_as(&frame, Version::Three).is_ok_and(|request| is_list(&request))
                    })
                }
                Err(_) => false,
            };
        session.blocked
    }

    /// Defers a request.
    pub(crate) fn defer_large(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        let RequestContext { origin, req_id, frame, lookup, .. } = ctx;
        let spec = ctx.body.spec();
        let pulls = spec.class == Class::Pull;
        let waiting = Waiting { origin, lookup, pulls, frame: frame.into() };
        let line = match spec.reply {
            _ if self.defers_texts(origin) => DeferredQueue::Texts,
            ReplySize::List => DeferredQueue::Lists,
            ReplySize::Short | ReplySize::Pulled | ReplySize::Jobs => DeferredQueue::Jobs,
        };
        if self.large_replies.put(waiting, line) {
            self.deferred(origin);
        } else {
            self.refuse(conns, origin, req_id, ErrorKind::LongCommandsWait);
        }
    }

    /// Resumes deferred requests, as far as that goes in this turn.
    pub fn resume_deferred(&mut self, conns: &mut Connections) {
        while !self.is_large_budget_spent() && !self.must_pause() {
            let text = if self.transcodings.writes_enough() {
                None
            } else {
                self.large_replies.take_text()
            };
            let Some(next) = text.or_else(|| self.large_replies.take()) else { return };
            let Waiting { origin, lookup, frame, .. } = next;
            self.answered(origin);
            // The request was decoded without error before it was deferred.
            if let Ok(request) = decode_frame(frame.view(), origin.version) {
                self.meter_command(request.op, frame.len());
                let (req_id, frame, body) = (request.req_id, frame.view(), &request.body);
                let ctx = RequestContext { origin, req_id, frame, body, lookup, fetched: &[] };
                self.execute(conns, ctx);
            }
        }
    }

    /// Whether something can be taken up in the next turn that nothing else would begin.
    pub(crate) fn has_deferred(&self) -> bool {
        let texts = !self.large_replies.texts.is_empty() && !self.transcodings.writes_enough();
        (texts || !self.large_replies.has_no_queue())
            && !self.waits_for_answers_to_go()
            && !self.engine.journal.pressure.stalled
    }

    /// A client is gone, or at least sends no more: then its pulls get no job, and are answered for.
    pub(crate) fn forget_deferred(&mut self, client: ClientId, gone: bool) {
        if gone {
            self.stop_operations(client);
        }
        if self.large_replies.is_empty() {
            return;
        }
        for origin in self.large_replies.forget(client, gone) {
            self.answered(origin);
            let dest = usize::from(origin.shard);
            if dest != self.me {
                self.outbox
                    .after_commit(dest)
                    .messages
                    .push(Message::Reply { origin, frame: 0..0 });
            }
        }
    }

    /// Counts an answer that has just been written, and has the shard that gets it say when it has it.
    pub(crate) fn note_large_answer(&mut self, dest: usize, bytes: usize) {
        self.large_replies.note_written(bytes);
        if dest != self.me {
            self.large_replies.note_sent(bytes);
            let from = self.me as u16;
            self.outbox.after_commit(dest).messages.push(Message::Carried { from, bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::commands::COMMANDS;

    fn waiting(client: u64, pulls: bool, bytes: usize) -> Waiting {
        let conn = ConnId { index: client as u32, generation: 0 };
        let origin = Origin { client: ClientId(client), ..Origin::of_none(1, conn) };
        Waiting { origin, lookup: Lookup::Fresh, pulls, frame: vec![0; bytes].into() }
    }

    fn large_replies() -> LargeReplies {
        LargeReplies::new(ClientMemory::new(1024, 1))
    }

    fn next(large_replies: &mut LargeReplies) -> Option<u64> {
        large_replies.take().map(|one| one.origin.client.0)
    }

    #[test]
    fn no_request_for_a_list_is_long() {
        let lists = COMMANDS.iter().filter(|spec| spec.reply == ReplySize::List);
        for spec in lists.clone() {
            assert!(spec.bytes_max <= LONG_BYTES, "{}: {}", spec.name, spec.bytes_max);
        }
        assert_eq!(lists.count(), 28);
    }

    #[test]
    fn what_is_set_aside_is_taken_up_in_order_and_single_jobs_first() {
        let mut large_replies = large_replies();
        for (client, line) in [
            (1, DeferredQueue::Lists),
            (2, DeferredQueue::Jobs),
            (3, DeferredQueue::Lists),
            (4, DeferredQueue::Jobs),
        ] {
            assert!(large_replies.put(waiting(client, false, 10), line));
        }
        let order: Vec<u64> = std::iter::from_fn(|| next(&mut large_replies)).collect();
        assert_eq!((order, large_replies.frame_bytes), (vec![2, 4, 1, 3], 0));
    }

    #[test]
    fn what_is_set_aside_has_bounds_in_number_and_in_bytes() {
        let mut many = large_replies();
        for _ in 0..DEFERRED_MAX {
            assert!(many.put(waiting(1, false, 1), DeferredQueue::Lists));
        }
        assert!(!many.put(waiting(1, false, 1), DeferredQueue::Jobs));
        let mut large = large_replies();
        let most = large.memory.deferred();
        assert!(large.put(waiting(1, false, most - 1), DeferredQueue::Lists));
        assert!(large.put(waiting(1, false, 1), DeferredQueue::Lists));
        assert!(!large.put(waiting(1, false, 1), DeferredQueue::Lists));
        let mut longer = large_replies();
        assert!(longer.put(waiting(1, false, most + 1), DeferredQueue::Lists), "the only one");
        assert!(!longer.put(waiting(1, false, 1), DeferredQueue::Lists));
    }

    #[test]
    fn pulls_of_a_client_that_sends_no_more_are_forgotten_and_all_of_one_that_is_gone() {
        let mut large_replies = large_replies();
        for client in [1, 2] {
            assert!(large_replies.put(waiting(client, true, 10), DeferredQueue::Jobs));
            assert!(large_replies.put(waiting(client, false, 10), DeferredQueue::Lists));
        }
        assert_eq!(large_replies.forget(ClientId(1), false).len(), 1);
        assert_eq!((large_replies.jobs.len(), large_replies.lists.len()), (1, 2));
        assert_eq!(large_replies.forget(ClientId(1), true).len(), 1);
        assert_eq!(
            (next(&mut large_replies), next(&mut large_replies), next(&mut large_replies)),
            (Some(2), Some(2), None)
        );
        assert_eq!(large_replies.frame_bytes, 0);
    }
}
