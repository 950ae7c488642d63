//! `Watch` and `Unwatch`: a connection that gets samples beside what it asks. One shard gathers them for the viewers of all
//! shards: it asks each for its part, puts the parts together and gives the sample to the shards that have viewers.
//!
//! A viewer that has not read a sample gets no other until it has, and then the newest.

use super::messages::{BusyRow, FiguresMessage, Seen, SnapshotPart, Wanted};
use super::sample::{QUEUES, SHARDS, SNAPSHOT, STATS};
use super::sampler::SNAPSHOT_QUEUES_MAX;
use super::state::HISTORY_BYTES_MAX;
use super::viewers::{Viewer, Viewers};
use crate::api::access::QueuePatterns;
use crate::api::commands::{Op, WATCHED};
use crate::api::error::ErrorKind;
use crate::api::request::StateFilter;
use crate::protocol::msgpack::writer::MapWriter;
use crate::protocol::{event_frame, reply, sse, websocket};
use crate::server::census::write_totals;
use crate::server::connection::protocol::Protocol;
use crate::server::connection::reply_writer::framed;
use crate::server::multi_shard::cron::REGISTRY_SHARD;
use crate::server::shard_mail::message::Message;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};
use corq_shards::job::State;
use corq_shards::queue::Queue;
use corq_shards::stats::Census;
use corq_shards::stats::sampling::Busy;
use std::ptr;
use std::sync::Arc;

/// Viewers that are offered a sample in a turn, and about how many bytes are written for them.
const TURN_VIEWERS_MAX: usize = 500;
const TURN_BYTES_MAX: usize = 2 << 20;

/// How often those who subscribe to snapshots get one.
const SNAPSHOT_MS: u64 = 5000;

/// Requests of clients.
impl ShardServer {
    /// Answers `Watch`.
    pub(crate) fn watch(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        what: Option<StateFilter>,
        every_ms: u64,
        top: u32,
    ) {
        let conn = ctx.origin.conn;
        let protocol = self.sessions.protocol(conn);
        if !matches!(protocol, Some(Protocol::Frames | Protocol::WebSocket)) {
            return self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::WatchOverHttp);
        }
        self.end_watch(conn);
        let scope = ctx.origin.scope;
        // A token that is limited to queues sees nothing but these.
        let default = if scope.is_some() { QUEUES } else { STATS };
        let what = what.map_or(default, |what| what.0);
        let (due_ms, sent_upto, subscribes) = (0, 0, false);
        let viewer = Viewer { conn, what, every_ms, top, due_ms, sent_upto, subscribes, scope };
        let place = self.figures.viewers.insert(viewer);
        if let Some(session) = self.sessions.get(conn) {
            session.watch = Some(place);
        }
        self.tell_interest(true);
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                let mut data = reply.map("data");
                let names = WATCHED.iter().enumerate();
                let names = names.filter(|(bit, _)| what & 1 << bit > 0).map(|(_, name)| *name);
                data.key("what").strs(&names.collect::<Vec<_>>());
                data.key("every").uint(every_ms);
                data.key("top").uint(u64::from(top));
            });
        });
    }

    /// Answers `Unwatch`.
    pub(crate) fn unwatch(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        self.end_watch(ctx.origin.conn);
        self.respond(conns, ctx.origin, |_, sink| reply::ok(sink.out, ctx.req_id));
    }

    fn end_watch(&mut self, conn: ConnId) {
        let place = self.sessions.get(conn).and_then(|session| session.watch.take());
        self.forget_viewer(place);
    }

    /// A connection that may be a viewer is about to go.
    pub(crate) fn forget_viewers(&mut self, conn: ConnId) {
        self.end_watch(conn);
        self.set_snapshots(conn, false);
    }

    /// A connection watches no more. What the others want follows with the next sample.
    fn forget_viewer(&mut self, place: Option<u32>) {
        let Some(place) = place else { return };
        if let Some(moved) = self.figures.viewers.remove(place)
            && let Some(session) = self.sessions.get(moved.conn)
        {
            *session.place_as_viewer(moved.subscribes) = Some(place);
        }
    }

    /// A connection subscribes to snapshots of the figures, or does not any more.
    pub(crate) fn set_snapshots(&mut self, conn: ConnId, wanted: bool) {
        let Some(session) = self.sessions.get(conn) else { return };
        if wanted == session.snapshots.is_some() {
            return;
        }
        let before = session.snapshots.take();
        self.forget_viewer(before);
        if wanted {
            let (what, every_ms, top) = (STATS | SNAPSHOT, SNAPSHOT_MS, 1);
            let (due_ms, sent_upto, subscribes, scope) = (0, 0, true, None);
            let viewer = Viewer { conn, what, every_ms, top, due_ms, sent_upto, subscribes, scope };
            let place = self.figures.viewers.insert(viewer);
            if let Some(session) = self.sessions.get(conn) {
                session.snapshots = Some(place);
            }
            self.tell_interest(true);
        }
    }

    /// Nothing is sampled any more: viewers that do not read are not waited for.
    pub(crate) fn end_watches(&mut self, conns: &mut Connections) {
        let behind = self.figures.viewers.iter().filter(|viewer| is_behind(conns, viewer));
        let behind: Vec<ConnId> = behind.map(|viewer| viewer.conn).collect();
        for conn in behind {
            self.ended(conns, conn);
        }
    }

    fn tell_interest(&mut self, is_new: bool) {
        let (shard, wanted) = (self.me as u16, self.figures.viewers.told.clone());
        let message = FiguresMessage::Interest { shard, wanted, is_new };
        self.outbox.immediate(REGISTRY_SHARD).messages.push(Message::Figures(message));
    }
}

/// Whether a viewer has not read its last sample.
fn is_behind(conns: &Connections, viewer: &Viewer) -> bool {
    let read_upto = conns.appended(viewer.conn) - conns.unsent(viewer.conn) as u64;
    read_upto < viewer.sent_upto
}

/// Work that falls due with time.
impl ShardServer {
    /// Ends the step of the history that is over, before anything of the next one is counted.
    pub(crate) fn end_history_step(&mut self) {
        if self.now_ms >= self.figures.step_ends_ms {
            let bytes_max = HISTORY_BYTES_MAX / self.slots.shards();
            let shard = &mut self.engine.shard;
            self.figures.step_ends_ms = shard.end_history_step(self.now_ms, bytes_max);
        }
    }

    /// Takes samples that are due, and hands out what there is, to some viewers in a turn. Returns when to come again, in
    /// milliseconds since the epoch.
    pub(crate) fn sample_in_turn(&mut self, conns: &mut Connections) -> u64 {
        if self.stopping {
            return u64::MAX;
        }
        if self.figures.sampler.next_ms() <= self.now_ms {
            let shards = self.slots.shards();
            let (round, wanted) = self.figures.sampler.begin(self.now_ms, shards);
            for dest in 0..shards {
                let look = FiguresMessage::Look { round, wanted: wanted.clone() };
                self.outbox.immediate(dest).messages.push(Message::Figures(look));
            }
        }
        let next_ms = self.figures.sampler.next_ms().min(self.figures.step_ends_ms);
        if self.feed_viewers(conns) { self.now_ms } else { next_ms }
    }

    /// Hands a sample to some viewers. True if there are more.
    fn feed_viewers(&mut self, conns: &mut Connections) -> bool {
        if self.figures.viewers.feeding.is_none() {
            return false;
        }
        let (mut left, mut bytes) = (TURN_VIEWERS_MAX, 0);
        while left > 0 && bytes < TURN_BYTES_MAX {
            let Some(viewer) = self.figures.viewers.next().copied() else {
                if self.figures.viewers.end().is_some() {
                    self.tell_interest(false);
                }
                return false;
            };
            left -= 1;
            bytes += self.feed_viewer(conns, viewer);
        }
        self.meter.note(TURN_VIEWERS_MAX - left);
        true
    }

    /// Gives a viewer the sample, if it is time. Returns how many bytes were written.
    fn feed_viewer(&mut self, conns: &mut Connections, viewer: Viewer) -> usize {
        let conn = viewer.conn;
        let Some(session) = self.sessions.get(conn) else { return 0 };
        // Rights that the viewer had when it asked may have gone since.
        let grant = session.access.grant;
        let is_own = grant.queues.is_none_or(|own| viewer.scope.is_some_and(|it| ptr::eq(it, own)));
        if !session.trusted || !grant.has(Op::Watch.needs()) || !is_own {
            return 0;
        }
        let (protocol, place) = (session.protocol, *session.place_as_viewer(viewer.subscribes));
        let Viewers { feeding, sent, skipped, scratch, .. } = &mut self.figures.viewers;
        let Some(feeding) = feeding else { return 0 };
        // A little early counts as in time: samples are not taken at the millisecond.
        if feeding.sample.at_ms + viewer.every_ms / 10 < viewer.due_ms {
            return 0;
        }
        if is_behind(conns, &viewer) {
            *skipped += 1;
            return 0;
        }
        // A viewer that came while the sample was under way waits for the next; viewers with too many lists of queues
        // take turns.
        if !viewer.is_served_by(&feeding.sample) {
            return 0;
        }
        let Some(out) = conns.output(conn) else { return 0 };
        let before = out.len();
        let (what, top) = (viewer.what, viewer.top as usize);
        if viewer.subscribes {
            let text = feeding.text.get_or_insert_with(|| feeding.sample.as_text());
            text.write_snapshot(scratch);
            match protocol {
                Protocol::Events => sse::message(out, scratch),
                Protocol::WebSocket => websocket::message(out, scratch),
                Protocol::Frames | Protocol::Http => event_frame::write(out, scratch),
            }
        } else if protocol == Protocol::WebSocket {
            let text = feeding.text.get_or_insert_with(|| feeding.sample.as_text());
            if let Some(queues) = text.queues_of(viewer.scope) {
                text.write_message(out, scratch, what, top, queues);
            }
        } else if let Some(queues) = feeding.sample.queues_of(viewer.scope) {
            feeding.sample.write_frame(out, what, top, queues);
        }
        let (bytes, due_ms) = (out.len() - before, feeding.sample.at_ms + viewer.every_ms);
        *sent += 1;
        self.touch(conn);
        let sent_upto = conns.appended(conn);
        if let Some(place) = place {
            self.figures.viewers.note_sent(place, due_ms, sent_upto);
        }
        bytes
    }
}

/// How a sample is made.
impl ShardServer {
    /// This shard's part of a sample.
    pub(super) fn look_for_sample(&mut self, conns: &Connections, round: u32, wanted: &Wanted) {
        self.figures.viewers.looks += 1;
        let mut seen = Box::<Seen>::default();
        if wanted.what & STATS > 0 {
            seen.census = self.share_of_stats();
        }
        if wanted.what & SHARDS > 0 {
            seen.row = self.row_of_shard(conns);
        }
        if wanted.what & QUEUES > 0 {
            let shard = &self.engine.shard;
            let busiest = shard.busiest(self.now_ms, wanted.top as usize);
            seen.queues = busiest.iter().map(row_of_queue).collect();
            let looks = shard.history().len() + busiest.len();
            self.meter.note(looks / LOOKS_PER_STEP);
        }
        if !wanted.scopes.is_empty() {
            seen.scoped = self.busiest_of_scopes(wanted);
        }
        if wanted.what & SNAPSHOT > 0 {
            seen.snapshot = self.part_of_snapshot();
        }
        let message = FiguresMessage::Seen { shard: self.me as u16, round, seen };
        self.outbox.after_commit(REGISTRY_SHARD).messages.push(Message::Figures(message));
    }

    /// The busiest queues of those that tokens are limited to.
    fn busiest_of_scopes(&mut self, wanted: &Wanted) -> Vec<Vec<BusyRow>> {
        let shard = &self.engine.shard;
        let all = shard.by_pace(self.now_ms, usize::MAX);
        let of_scope = |own: &&QueuePatterns| {
            let own = all.iter().filter(|queue| own.cover(&queue.name)).take(wanted.top as usize);
            let busy = own.filter_map(|queue| shard.busy(self.now_ms, queue));
            busy.map(|busy| row_of_queue(&busy)).collect()
        };
        let rows: Vec<Vec<BusyRow>> = wanted.scopes.iter().map(of_scope).collect();
        let looks = all.len() * (1 + wanted.scopes.len());
        self.meter.note(looks / LOOKS_PER_STEP + rows.iter().map(Vec::len).sum::<usize>());
        rows
    }

    /// This shard's part of a snapshot for dashboards.
    fn part_of_snapshot(&mut self) -> SnapshotPart {
        let shard = &self.engine.shard;
        let busiest = shard.by_pace(self.now_ms, SNAPSHOT_QUEUES_MAX);
        let queues: Vec<BusyRow> = (0_u32..).zip(&busiest).map(entry_of_queue).collect();
        let (workers, crons) = (self.workers.len() as u64, shard.holdings().crons as u64);
        let attending = self.workers.attending(self.now_ms) as u64;
        self.meter.note((shard.history().len() + self.workers.len()) / LOOKS_PER_STEP);
        SnapshotPart { queues, workers, attending, crons }
    }

    /// A part has come: with the last of them the sample goes to the shards of the viewers.
    pub(super) fn take_part_of_sample(&mut self, shard: u16, round: u32, seen: Box<Seen>) {
        if !self.figures.sampler.take(shard, round, seen) {
            return;
        }
        let uptime_ms = self.now_ms - self.started_at_ms;
        let write_stats = |census: &Census, out: &mut Vec<u8>| {
            let mut map = MapWriter::begin(out);
            write_totals(&mut map, census, census.failed, uptime_ms);
            // As dashboards call them.
            map.key("dlq").uint(census.failed);
        };
        let sample = Arc::new(self.figures.sampler.end(self.now_ms, write_stats));
        for dest in self.figures.sampler.watching() {
            let message = FiguresMessage::Sample(sample.clone());
            self.outbox.immediate(dest).messages.push(Message::Figures(message));
        }
    }
}

/// Looks that take about as long as a step.
const LOOKS_PER_STEP: usize = corq_shards::query::LOOKS_PER_STEP as usize;

/// A queue of a snapshot, by its place among the busiest: what dashboards read of it. Names of queues need no escapes.
fn entry_of_queue((place, queue): (u32, &&Queue)) -> BusyRow {
    let [waiting, active, delayed, dead] =
        [State::Waiting, State::Active, State::Delayed, State::Failed]
            .map(|state| queue.count(state));
    let entry = format!(
        r#""{}":{{"waiting":{waiting},"active":{active},"delayed":{delayed},"dlq":{dead},"paused":{}}}"#,
        queue.name,
        queue.is_paused()
    );
    (-f64::from(place), entry.into_bytes().into())
}

/// A queue of a sample: how busy it is, and its row.
fn row_of_queue(busy: &Busy<'_>) -> BusyRow {
    let Busy { queue, pace } = busy;
    let mut bytes = Vec::new();
    let mut row = MapWriter::begin(&mut bytes);
    row.key("name").str(&queue.name);
    for state in [State::Waiting, State::Active, State::Delayed, State::Failed] {
        row.key(state.name()).uint(queue.count(state));
    }
    row.key("paused").bool(queue.is_paused());
    let tenths = |number: f64| (number * 10.0).round() / 10.0;
    row.key("pushPerSec").number(tenths(pace.pushed));
    row.key("completePerSec").number(tenths(pace.completed));
    row.key("failPerSec").number(tenths(pace.failed));
    row.key("waitP99").uint_or_nil(pace.wait_p99_ms);
    row.key("runP99").uint_or_nil(pace.run_p99_ms);
    drop(row);
    (pace.pushed + pace.completed + pace.failed, bytes.into())
}
