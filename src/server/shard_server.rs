//! One shard of the server without its sockets: bytes of connections in, replies of connections out,
//! mail to and from the other shards. Plain calls within a turn; nothing here waits.

use super::commands::job_list::JobListings;
use super::commands::job_record::JobRecordLists;
use super::commands::pending_replies::{CURRENT, Parked};
use super::commands::priority_counts::PriorityCounts;
use super::commands::worker::{SEEN_TOLD_MS, Workers};
use super::connection::auth::Guard;
use super::connection::deadlines::Deadlines;
use super::connection::migration::Migrations;
use super::connection::session::{
    IN_FLIGHT_MAX, PENDING_BYTES_MAX, Protocol, Session, Sessions, UNAUTHENTICATED_FRAME_BYTES_MAX,
};
use super::connection::transcode::Transcodings;
use super::connection::websocket::Scratch;
use super::event_loop::turn_meter::{Meter, Work};
use super::events::Events;
use super::events::subscribers::Subscribers;
use super::http::{HttpState, Phase, Rule};
use super::lifecycle::certificate;
use super::lifecycle::listeners::Port;
use super::metrics::Durations;
use super::multi_shard::backup_point::BackupPoints;
use super::multi_shard::child_values::ChildValueReads;
use super::multi_shard::cron::CronNames;
use super::multi_shard::custom_ids::{ClaimProbes, WaitingClaims};
use super::multi_shard::flow::OpenFlows;
use super::multi_shard::long_batch::{Leave, LongCommands};
use super::multi_shard::task::Tasks;
use super::numbered::Entries;
use super::overload::fair_share::FairShares;
use super::overload::large_replies::LargeReplies;
use super::overload::receive_memory::{FRAMES_BYTES_MAX, ReceiveMemory, UNAUTHENTICATED_BYTES_MAX};
use super::overload::send_memory::{SendMemory, is_tight};
use super::overload::shared_values::SharedValues;
use super::overload::write_stall::{DiskFullNotice, StalledMessages};
use super::shard_mail::inbox::Unread;
use super::shard_mail::message::{Message, Origin};
use super::shard_mail::outbox::Outbox;
use super::shard_mail::slots::Slots;
use super::storage::cold_reads::{ColdReplies, Placeholder};
use super::storage::compaction::Compaction;
use super::storage::data_presence::DataPresence;
use super::storage::engine::Engine;
use super::webhooks::Webhooks;
use crate::protocol::decode::beginning::BEGINNING_BYTES_MAX;
use crate::protocol::decode::find_req_id;
use crate::protocol::frame::{PREFIX_BYTES, Split, split};
use corq_io::log::Lack;
use corq_io::net::{ConnId, Connections, Counters, Permits};
use corq_io::tls::Keeper;
use corq_shards::command::{ClientId, Command};
use corq_shards::dependency::custom_ids::Directory;
use corq_shards::effect::Effects;
use corq_shards::stats::Rates;
use corq_shards::{Caller, Out};
use std::sync::Arc;

/// The refusal of what comes too often.
pub const TOO_OFTEN: &str = "Rate limit exceeded";

/// See the module.
pub struct ShardServer {
    pub(super) me: usize,
    pub(super) now_ms: u64,
    pub(super) slots: Slots,
    pub(super) guard: Arc<Guard>,
    pub(super) engine: Engine,
    pub(super) effects: Effects,
    pub(super) directory: Directory,
    /// Pushes that wait for a name another push holds.
    pub(super) waiting_claims: WaitingClaims,
    pub(super) claim_probes: ClaimProbes,
    pub(super) crons: CronNames,
    pub(super) webhooks: Webhooks,
    pub(super) sessions: Sessions,
    pub(super) fair_shares: FairShares,
    pub(super) parked: Entries<Parked>,
    pub(super) tasks: Tasks,
    pub(super) open_flows: OpenFlows,
    pub(super) long_commands: LongCommands,
    pub(super) cold: ColdReplies,
    pub(super) job_listings: JobListings,
    pub(super) job_record_lists: JobRecordLists,
    pub(super) priority_counts: PriorityCounts,
    pub(super) child_value_reads: ChildValueReads,
    pub(super) outbox: Outbox,
    pub(super) large_replies: LargeReplies,
    pub(super) transcodings: Transcodings,
    pub(super) workers: Workers,
    pub(super) rates: Rates,
    pub(super) durations: Durations,
    pub(super) meter: Meter,
    pub(super) compaction: Compaction,
    /// Whether there is no room for what is to be written, which has been said.
    pub(super) exhausted: bool,
    pub(super) disk_full_notice: DiskFullNotice,
    /// What is lacking for it besides space, which has been said as well.
    pub(super) said_lack: Option<Lack>,
    /// Mail that waits for room in the log.
    pub(super) stalled_messages: StalledMessages,
    /// Mail that this turn has begun to read and leaves to the next.
    pub(super) unread: Option<Unread>,
    pub(super) backup_points: BackupPoints,
    pub(super) data_presence: DataPresence,
    pub(super) permits: Permits,
    pub(super) http: HttpState,
    /// Frames and messages that are not there yet.
    pub(super) receive_memory: ReceiveMemory,
    pub(super) frames_crowded_out: u64,
    /// Requests refused by their length before they had come.
    pub(super) long_refused: u64,
    /// The same of clients that have shown no token.
    pub(super) unauthenticated_memory: ReceiveMemory,
    /// Those that were waited for in vain.
    pub(super) deadlines: Deadlines,
    pub(super) events: Events,
    pub(super) subscribers: Subscribers,
    pub(super) scratch: Scratch,
    pub(super) shared_values: SharedValues,
    /// What the reactor had done when this turn began.
    pub(super) net: Counters,
    /// Connections with new output in this turn.
    pub(super) touched: Vec<ConnId>,
    /// Output that tells nothing of any job, and how far it goes: it waits for no record.
    pub(super) unrecorded: Vec<(ConnId, u64)>,
    /// Connections to close once their output of this turn is released.
    pub(super) finishing: Vec<ConnId>,
    /// Connections whose waiting input may go on.
    pub(super) unblocked: Vec<ConnId>,
    /// Connections about to move to another shard.
    pub(super) migrations: Migrations,
    /// What is applied once time has brought what it brings in this turn.
    pub(super) late: Late,
    /// Connections that have left too much unread and are to be closed.
    pub(super) slow_readers: Vec<ConnId>,
    pub(super) send_memory: SendMemory,
    pub(super) started_at_ms: u64,
    pub(super) stopping: bool,
    /// Whether the disk, or what other shards are to be told of, is so far behind that no more commands are taken.
    pub(super) saturated: bool,
    /// How far it may be: what a slow disk may cost in memory.
    unwritten_bytes_max: u64,
    pub(super) keeper: Option<Arc<Keeper>>,
    /// Shards that have not said [`Message::Open`] yet.
    pub(super) closed_shards: usize,
    /// Whether the others know that everybody here has an answer.
    pub(super) counted_quiet: bool,
}

/// Whether commands are applied behind the step of time of a turn: what of them is left for the next step makes that come
/// at once.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Late {
    /// Time has not been stepped on in this turn.
    #[default]
    No,
    /// It has, and nothing was applied since.
    Stepped,
    /// Something was.
    Applied,
}

/// A reply being written.
pub struct ReplyWriter<'a> {
    /// The connection's output, or the batch that carries it there.
    pub out: &'a mut Vec<u8>,
    /// Payloads that are still missing in it.
    pub placeholders: &'a mut Vec<Placeholder>,
}

/// What the settings fit a shard out with.
pub struct ShardSettings {
    /// Which shard owns which queue.
    pub slots: Slots,
    /// Who may come in.
    pub guard: Arc<Guard>,
    /// Where posts to webhooks go.
    pub webhooks: Webhooks,
    /// How HTTP is spoken.
    pub http: HttpState,
    /// Bytes of records that may wait for the disk before no more commands are taken.
    pub unwritten_bytes_max: u64,
    /// The certificate, where TLS is spoken.
    pub keeper: Option<Arc<Keeper>>,
    /// Whether the files of the log are still there.
    pub data_presence: DataPresence,
    /// How many connections all shards may have.
    pub permits: Permits,
}

impl ShardServer {
    /// A shard that has recovered and knows nobody yet.
    pub fn new(
        engine: Engine,
        outbox: Outbox,
        shard_settings: ShardSettings,
        me: usize,
        now_ms: u64,
    ) -> Self {
        let ShardSettings {
            slots,
            guard,
            webhooks,
            http,
            unwritten_bytes_max,
            keeper,
            data_presence,
            permits,
        } = shard_settings;
        Self {
            me,
            now_ms,
            closed_shards: slots.shards(),
            workers: Workers::new(slots.shards()),
            slots,
            guard,
            directory: Directory::new(engine.shard.hash_key()),
            engine,
            effects: Effects::default(),
            waiting_claims: WaitingClaims::default(),
            claim_probes: ClaimProbes::default(),
            crons: CronNames::default(),
            webhooks,
            sessions: Sessions::default(),
            fair_shares: FairShares::default(),
            parked: Entries::default(),
            tasks: Tasks::default(),
            open_flows: OpenFlows::default(),
            long_commands: LongCommands::default(),
            cold: ColdReplies::default(),
            job_listings: JobListings::default(),
            job_record_lists: JobRecordLists::default(),
            priority_counts: PriorityCounts::default(),
            child_value_reads: ChildValueReads::default(),
            outbox,
            large_replies: LargeReplies::default(),
            transcodings: Transcodings::default(),
            rates: Rates::default(),
            durations: Durations::default(),
            meter: Meter::default(),
            compaction: Compaction::default(),
            exhausted: false,
            disk_full_notice: DiskFullNotice::default(),
            said_lack: None,
            stalled_messages: StalledMessages::default(),
            unread: None,
            backup_points: BackupPoints::default(),
            data_presence,
            permits,
            http,
            receive_memory: ReceiveMemory::new(FRAMES_BYTES_MAX),
            unauthenticated_memory: ReceiveMemory::new(UNAUTHENTICATED_BYTES_MAX),
            frames_crowded_out: 0,
            long_refused: 0,
            deadlines: Deadlines::default(),
            events: Events::default(),
            subscribers: Subscribers::default(),
            scratch: Scratch::default(),
            shared_values: SharedValues::default(),
            net: Counters::default(),
            touched: Vec::new(),
            unrecorded: Vec::new(),
            finishing: Vec::new(),
            unblocked: Vec::new(),
            migrations: Migrations::default(),
            late: Late::default(),
            slow_readers: Vec::new(),
            send_memory: SendMemory::default(),
            started_at_ms: now_ms,
            stopping: false,
            saturated: false,
            unwritten_bytes_max,
            keeper,
            counted_quiet: false,
        }
    }

    /// Notes what has been done so far, for rates.
    pub fn note_rates(&mut self) {
        self.rates.note(self.now_ms, self.engine.shard.totals());
    }

    /// Whether this turn leaves something to do that nothing else would wake the shard for.
    pub fn has_left(&self) -> bool {
        self.outbox.has_left()
            || self.unread.is_some()
            || self.long_commands.has_left() && !self.is_disk_behind()
            || !self.touched.is_empty()
            || !self.unblocked.is_empty()
            || self.fair_shares.waiting() > 0
            || !self.slow_readers.is_empty()
            || self.late == Late::Applied
            // What the disk has brought may have been a slice of a list.
            || !self.job_record_lists.is_empty()
            || !self.priority_counts.is_empty()
            || !self.child_value_reads.is_empty()
            || self.saturated && !self.waits_for_disk() && !self.waits_for_word()
            || !self.stalled_messages.is_empty() && !self.waits_for_word()
            || self.has_deferred()
            || self.has_transcodings()
            || self.shared_values.is_held()
    }

    /// Whether there is enough that waits for the disk, to be written or to be sent.
    fn waits_for_disk(&self) -> bool {
        self.is_disk_behind() || self.send_memory.waits_for_log()
    }

    /// Whether what commands and mail wait for begins a turn of its own: room in the log, or word from other shards.
    fn waits_for_word(&self) -> bool {
        self.engine.journal.pressure.stalled || self.large_replies.is_backed_up()
    }

    pub(super) fn is_disk_behind(&self) -> bool {
        self.engine.journal.log.unwritten_bytes() > self.unwritten_bytes_max
    }

    /// Looks how far the disk and the notices are behind, and whether there is room. Once there is, everybody goes on.
    pub fn note_saturation(&mut self) {
        let was = self.saturated;
        self.saturated = self.must_pause() || self.waits_for_disk();
        if was && !self.saturated {
            self.restart_auth_deadlines();
            let blocked = self.sessions.iter().filter(|session| session.blocked);
            self.unblocked.extend(blocked.map(|session| session.conn));
        }
    }

    /// A new connection.
    pub fn accepted(&mut self, conn: ConnId, port: Port) {
        let protocol = port.protocol;
        // Over HTTP each request shows a token of its own.
        let trusted = protocol == Protocol::Http || !self.guard.is_on();
        self.sessions.open(self.me, conn, protocol, trusted);
        if let Some(session) = self.sessions.get(conn) {
            session.through_path = port.seats;
            session.http.has_shown = !self.guard.is_on();
        }
        if protocol == Protocol::Http {
            self.await_conn(conn, Phase::Fresh);
        } else if !trusted {
            self.note_trust(conn, false);
        }
    }

    /// Bytes of a connection.
    pub fn received(&mut self, conns: &mut Connections, conn: ConnId, bytes: &[u8]) {
        let now_ms = self.now_ms;
        let Some(session) = self.sessions.get(conn) else { return };
        session.last_seen_ms = now_ms;
        let is_first = session.pending.is_empty();
        if !is_first {
            session.pending.extend(bytes);
        }
        if session.has_worker && session.told_seen_ms + SEEN_TOLD_MS <= now_ms {
            session.told_seen_ms = now_ms;
            let client = session.client;
            self.send_seen(client);
        }
        if is_first {
            let used = self.handle(conns, conn, bytes);
            let Some(session) = self.sessions.get(conn) else { return };
            session.pending.extend(&bytes[used..]);
            self.take_whole(conns);
            self.note_rest(conn, used > 0);
            self.read_on_or_not(conns, conn);
        } else {
            self.go_on(conns, conn);
        }
    }

    /// Handles what a connection has sent before.
    pub(super) fn go_on(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        if session.quota.waits() {
            self.read_on_or_not(conns, conn);
            return;
        }
        let mut pending = std::mem::take(&mut session.pending);
        let used = self.handle(conns, conn, pending.bytes());
        pending.consume(used);
        let Some(session) = self.sessions.get(conn) else { return };
        session.pending = pending;
        self.take_whole(conns);
        self.note_rest(conn, used > 0);
        self.read_on_or_not(conns, conn);
    }

    /// Back-pressure: a connection whose commands wait for answers is not read beyond a limit.
    fn read_on_or_not(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        let most =
            if session.quota.waits() { self.fair_shares.held_bytes_max() } else { usize::MAX };
        let most = most.min(PENDING_BYTES_MAX) >> u32::from(session.paused);
        let full = session.blocked && (session.choked || session.pending.len() > most);
        if full && !session.paused {
            conns.pause_reading(conn);
        } else if !full && session.paused {
            conns.resume_reading(conn);
        }
        session.paused = full;
        self.note_received(conns, conn);
    }

    /// Handles whole requests at the front of `bytes`; returns how many bytes they took.
    fn handle(&mut self, conns: &mut Connections, conn: ConnId, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let Some(session) = self.sessions.get(conn) else { return bytes.len() };
            let protocol = session.protocol;
            used += match protocol {
                Protocol::Frames => self.handle_frames(conns, conn, bytes),
                Protocol::Http => self.handle_http(conns, conn, bytes),
                Protocol::WebSocket => self.handle_websocket(conns, conn, &bytes[used..]),
                // A client of a stream has nothing more to say.
                Protocol::Events => return bytes.len(),
            };
            // A request may change what the connection speaks from there on.
            if self.sessions.get(conn).is_none_or(|session| session.protocol == protocol) {
                return used;
            }
        }
    }

    fn handle_frames(&mut self, conns: &mut Connections, conn: ConnId, bytes: &[u8]) -> usize {
        let mut left = bytes;
        loop {
            left = &left[self.drop_refused(conn, left.len())..];
            let busy = self.must_stall();
            let Some(session) = self.sessions.get(conn) else { return bytes.len() };
            session.blocked = session.note_unread(conns.untaken(conn), is_tight(conns))
                || session.in_flight >= IN_FLIGHT_MAX
                || session.affinity.is_migrating()
                || busy;
            if session.blocked {
                return bytes.len() - left.len();
            }
            let lists = session.lists > 0;
            match split(left) {
                Split::Complete { frame, rest } => {
                    if !self.fair_shares.admit(session, frame.len(), left.len())
                        || lists && self.waits_for_list(conn, frame)
                    {
                        return bytes.len() - left.len();
                    }
                    let admitted = self.admits_frame(conns, conn, frame)
                        && !self.refuses_long_frame(conns, conn, frame, frame.len());
                    if admitted && self.is_taken_whole(conn, frame) {
                        return bytes.len() - left.len();
                    }
                    left = rest;
                    if admitted {
                        self.begin(conns, conn, frame);
                    }
                }
                Split::Incomplete { need }
                    if need > UNAUTHENTICATED_FRAME_BYTES_MAX && !session.trusted =>
                {
                    let origin = self.origin(conn);
                    self.refuse(conns, origin, None, "Not authenticated");
                    self.finish_connection(conns, conn);
                    return bytes.len();
                }
                Split::Incomplete { need } => {
                    let begun = left.get(PREFIX_BYTES..).unwrap_or_default();
                    if self.refuses_long_frame(conns, conn, begun, need - PREFIX_BYTES) {
                        return bytes.len();
                    }
                    return bytes.len() - left.len();
                }
                Split::TooLarge(_) => {
                    let origin = self.origin(conn);
                    let knocks = certificate::is_handshake(left);
                    self.http.counters.handshakes += u64::from(knocks);
                    let text = if knocks { certificate::NO_TLS } else { "Frame exceeds 64 MB" };
                    self.refuse(conns, origin, None, text);
                    self.finish_connection(conns, conn);
                    return bytes.len();
                }
            }
        }
    }

    /// Counts a frame where that is limited; one too many is refused.
    #[inline]
    pub(super) fn admits_frame(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        frame: &[u8],
    ) -> bool {
        if self.counts_frame(conn, self.http.settings.frame_rule) {
            return true;
        }
        let origin = self.origin(conn);
        // No further than where a command has to be named.
        let beginning = &frame[..frame.len().min(BEGINNING_BYTES_MAX)];
        self.refuse(conns, origin, find_req_id(beginning), TOO_OFTEN);
        false
    }

    /// Counts a frame or message of a connection by `rule`. False if it is one too many.
    #[inline]
    pub(super) fn counts_frame(&mut self, conn: ConnId, rule: Option<Rule>) -> bool {
        let Some(rule) = rule else { return true };
        let Some(session) = self.sessions.get(conn) else { return true };
        let admitted = session.window.admit(self.now_ms, rule).is_ok();
        self.http.counters.limited += u64::from(!admitted);
        admitted
    }

    /// Handles nothing more of a connection, and closes it once its output is sent.
    pub(super) fn finish_connection(&mut self, conns: &mut Connections, conn: ConnId) {
        self.forget_session(conns, conn);
        self.touch(conn);
        self.finishing.push(conn);
    }

    /// A peer is gone.
    pub fn ended(&mut self, conns: &mut Connections, conn: ConnId) {
        self.forget_session(conns, conn);
        conns.abort(conn);
    }

    /// A peer sends no more. What it held goes back, as a worker's end is no different from here; what it has asked is
    /// still answered.
    pub fn half_closed(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        (session.half_closed, session.owes_leave) = (true, true);
        self.finish_if_answered(conns, conn);
    }

    /// Input that waits for nothing but bytes is the beginning of a request whose end will not come.
    fn finish_if_answered(&mut self, conns: &mut Connections, conn: ConnId) {
        if self.sessions.get(conn).is_some_and(|session| session.half_closed) {
            self.answer_dropped(conns, conn);
        }
        self.leave_if_due(conns, conn);
        let answered = |session: &mut Session| {
            let waits_for_turn = session.blocked && !session.pending.is_empty();
            session.half_closed && session.in_flight == 0 && !waits_for_turn
        };
        if self.sessions.get(conn).is_some_and(answered) {
            self.finish_connection(conns, conn);
        }
    }

    /// Has a peer that sends no more give back what it held, unless that is what its last requests are about: a long
    /// command that is under way, or what it has sent and has to wait for its turn.
    fn leave_if_due(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn).filter(|session| session.owes_leave) else {
            return;
        };
        let waits = session.blocked && session.in_flight == 0 && !session.pending.is_empty();
        if waits || self.long_commands.completes(conn) {
            return;
        }
        session.owes_leave = false;
        let Session { client, seen_elsewhere, .. } = *session;
        self.give_back(conns, conn, Leave { client, seen_elsewhere, gone: false });
    }

    fn forget_session(&mut self, conns: &mut Connections, conn: ConnId) {
        self.drop_body(conn);
        self.drop_received(conn);
        if let Some(session) = self.sessions.close(conn) {
            if let Some(key) = session.stream {
                self.close_stream(key);
            }
            let Session { client, seen_elsewhere, .. } = session;
            self.give_back(conns, conn, Leave { client, seen_elsewhere, gone: true });
        }
    }

    /// What a connection holds goes back, here and elsewhere; behind a long command that still needs it.
    pub(super) fn give_back(&mut self, conns: &mut Connections, conn: ConnId, leave: Leave) {
        // Locks outlive the stop, so that their workers can come back for their jobs.
        if self.stopping || self.long_commands.defers_leave(conn, leave) {
            return;
        }
        let Leave { client, seen_elsewhere, gone } = leave;
        self.leave(conns, client, gone);
        if seen_elsewhere {
            for dest in (0..self.slots.shards()).filter(|&dest| dest != self.me) {
                self.outbox.immediate(dest).messages.push(Message::Leave { client, gone });
            }
        }
    }

    pub(super) fn leave(&mut self, conns: &mut Connections, client: ClientId, gone: bool) {
        let before = self.meter_work(Work::DISCONNECT);
        self.forget_deferred(client, gone);
        self.workers.leave(client);
        self.send_worker_presence();
        self.apply(conns, Caller { client, request: CURRENT }, &Command::Disconnect);
        self.meter_work(before);
    }

    pub(super) fn origin(&mut self, conn: ConnId) -> Origin {
        let session = self.sessions.get(conn);
        let about = session.map(|session| (session.client, session.protocol == Protocol::Http));
        let (client, tokenless) = about.unwrap_or_default();
        Origin { shard: self.me as u16, conn, client, tokenless, lists: false }
    }

    /// Carries out a command and answers everybody whom it lets answer, but not the caller: its
    /// replies are those left in `effects.replies` under [`CURRENT`].
    pub(super) fn apply(&mut self, conns: &mut Connections, caller: Caller, command: &Command<'_>) {
        if self.late == Late::Stepped {
            self.late = Late::Applied;
        }
        self.effects.clear();
        let mut out = Out { journal: &mut self.engine.journal, effects: &mut self.effects };
        self.engine.shard.apply(self.now_ms, caller, command, &mut out);
        self.follow_up(conns);
    }

    /// Does what is due. Returns when to come again, in milliseconds since the epoch.
    pub fn tick(&mut self, conns: &mut Connections) -> u64 {
        self.meter_work(Work::DUE);
        self.effects.clear();
        let mut out = Out { journal: &mut self.engine.journal, effects: &mut self.effects };
        let next_ms = self.engine.shard.tick(self.now_ms, &mut out);
        self.late = Late::Stepped;
        if let Some((request, steps)) = self.engine.shard.take_chore_steps()
            && let Some(parked) = self.parked.get(request.0.wrapping_sub(1) as u32)
        {
            self.meter.credit(parked.work, steps);
        }
        self.follow_up(conns);
        let next_ms = next_ms.min(self.evict_history(conns)).min(self.end_patience(conns));
        let next_ms = next_ms.min(self.http.bodies.give_memory_back(self.now_ms));
        let next_ms = next_ms.min(self.receive_memory.give_memory_back(self.now_ms));
        let next_ms = next_ms.min(self.give_back_output(conns));
        let next_ms = next_ms.min(self.feed_streams(conns)).min(self.beat_streams(conns));
        let next_ms = next_ms.min(self.note_silent_workers());
        self.answer_value_readers(conns);
        self.show_in_turn(conns);
        let counts_on = self.count_in_turn(conns);
        let values_on = self.read_child_values_in_turn(conns);
        let looks_on = self.list_in_turn(conns);
        if looks_on || counts_on || values_on { self.now_ms } else { next_ms }
    }

    /// What a command or the time has brought about goes where it belongs.
    pub(super) fn follow_up(&mut self, conns: &mut Connections) {
        self.trigger_webhooks();
        self.publish_events();
        self.answer_parked(conns);
        self.send_names();
        self.send_cron_ends();
        self.send_notices();
        self.send_reports();
    }

    /// A command of a connection here waits for its answer.
    pub(super) fn deferred(&mut self, origin: Origin) {
        if usize::from(origin.shard) == self.me
            && let Some(session) = self.sessions.get(origin.conn)
        {
            session.in_flight += 1;
            session.lists += u32::from(origin.lists);
        }
    }

    /// A command that waited gets its answer.
    pub(super) fn answered(&mut self, origin: Origin) {
        if usize::from(origin.shard) == self.me
            && let Some(session) = self.sessions.get(origin.conn)
        {
            session.in_flight -= 1;
            session.lists -= u32::from(origin.lists);
            let says_goodbye = self.stopping && session.stream.is_some();
            if session.blocked || session.half_closed || says_goodbye {
                self.unblocked.push(origin.conn);
            }
            if session.begins_to_migrate() {
                self.note_migration(origin.conn);
            }
        }
    }

    /// Lets connections go on whose answers have made room. True if there were any.
    pub fn go_on_unblocked(&mut self, conns: &mut Connections) -> bool {
        let unblocked = std::mem::take(&mut self.unblocked);
        for &conn in &unblocked {
            self.finish_if_over(conns, conn);
            if self.sessions.get(conn).is_some_and(|session| session.blocked) {
                self.go_on(conns, conn);
            }
            self.finish_if_answered(conns, conn);
            if self.stopping {
                self.say_goodbye_if_answered(conns, conn);
            }
        }
        !unblocked.is_empty()
    }

    /// Cuts off connections that do not read what they asked for.
    pub fn cut_off_slow_readers(&mut self, conns: &mut Connections) {
        for conn in std::mem::take(&mut self.slow_readers) {
            self.ended(conns, conn);
        }
    }

    /// A connection has taken all its output.
    pub fn drained(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        let stream = session.stream;
        if session.choked {
            self.unblocked.push(conn);
        }
        if let Some(key) = stream {
            self.feed_drained(conns, key);
        }
        self.send_next_shared(conns, conn);
    }
}
