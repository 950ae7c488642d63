//! A shard of the server without its sockets: the subsystems that it consists of, the clock of its turns, and how the
//! effects of a command or of time reach those that they concern. Plain calls within a turn; nothing here waits.

use super::about::state::About;
use super::access::shown::ShardAccess;
use super::audit::state::AuditState;
use super::bulk_tasks::tasks::BulkTasks;
use super::commands::pending_replies::Parked;
use super::commands::worker::Workers;
use super::connection::deadlines::{Deadlines, send_refusals};
use super::connection::migration::Migrations;
use super::connection::session::Sessions;
use super::connection::transcode::Transcodings;
use super::connection::websocket::Scratch;
use super::event_loop::turn_meter::{Meter, Work};
use super::events::state::Events;
use super::events::subscribers::Subscribers;
use super::figures::state::FigureState;
use super::http::HttpState;
use super::lifecycle::live_settings::FollowedSettings;
use super::metrics::Durations;
use super::multi_shard::backup_point::BackupPoints;
use super::multi_shard::child_patches::ChildPatches;
use super::multi_shard::cron_names::CronNames;
use super::multi_shard::custom_ids::ClaimProbes;
use super::multi_shard::flow::OpenFlows;
use super::multi_shard::large_commands::LargeCommands;
use super::multi_shard::task::Tasks;
use super::multi_shard::waiting_claims::WaitingClaims;
use super::numbered::Entries;
use super::operations::operation::{Line, Operations};
use super::overload::client_memory::ClientMemory;
use super::overload::command_memory::ForwardedFrames;
use super::overload::fair_share::FairShares;
use super::overload::large_replies::LargeReplies;
use super::overload::receive_memory::ReceiveMemory;
use super::overload::send_memory::SendMemory;
use super::overload::shared_values::SharedValues;
use super::overload::write_stall::{DiskFullNotice, StalledMessages};
use super::shard_mail::inbox::Unread;
use super::shard_mail::outbox::Outbox;
use super::shard_mail::slots::Slots;
use super::spans::Spans;
use super::storage::cold_reads::ColdReplies;
use super::storage::compaction::Compaction;
use super::storage::data_presence::DataPresence;
use super::storage::engine::Engine;
use super::webhooks::registry::Webhooks;
use crate::api::commands::Op;
use crate::audit::writer::AuditLog;
use corq_io::log::Lack;
use corq_io::net::{ConnId, Connections, Counters, Permits};
use corq_io::tls::CertificateStore;
use corq_shards::command::Command;
use corq_shards::dependency::custom_ids::Directory;
use corq_shards::effect::Effects;
use corq_shards::stats::Rates;
use corq_shards::{Caller, Out};
use std::sync::Arc;

/// The state of a shard. Each subsystem owns its fields; state of several is here.
pub struct ShardServer {
    pub(super) me: usize,
    pub(super) now_ms: u64,
    pub(super) slots: Slots,
    pub(super) access: ShardAccess,
    pub(super) audit: AuditState,
    pub(super) engine: Engine,
    pub(super) effects: Effects,
    pub(super) directory: Directory,
    /// Pushes that wait for a name another push holds.
    pub(super) waiting_claims: WaitingClaims,
    pub(super) claim_probes: ClaimProbes,
    pub(super) crons: CronNames,
    pub(super) webhooks: Webhooks,
    pub(super) spans: Spans,
    pub(super) sessions: Sessions,
    pub(super) fair_shares: FairShares,
    pub(super) parked: Entries<Parked>,
    pub(super) tasks: Tasks,
    pub(super) open_flows: OpenFlows,
    pub(super) large_commands: LargeCommands,
    pub(super) cold: ColdReplies,
    pub(super) operations: Operations,
    pub(super) bulk_tasks: BulkTasks,
    pub(super) child_patches: ChildPatches,
    pub(super) outbox: Outbox,
    pub(super) large_replies: LargeReplies,
    pub(super) forwarded_frames: ForwardedFrames,
    pub(super) transcodings: Transcodings,
    pub(super) workers: Workers,
    pub(super) rates: Rates,
    pub(super) durations: Durations,
    pub(super) meter: Meter,
    pub(super) compaction: Compaction,
    /// Whether there is no room for what is to be written, which has been said.
    pub(super) exhausted: bool,
    pub(super) disk_full_notice: DiskFullNotice,
    /// The cause other than space, logged last, for which the log gets no more files.
    pub(super) said_lack: Option<Lack>,
    /// Whether it has been said that a segment cannot be removed.
    pub(super) said_stuck: bool,
    /// Messages that wait for space in the log.
    pub(super) stalled_messages: StalledMessages,
    /// Messages that this turn has begun to read and leaves to the next.
    pub(super) unread: Option<Unread>,
    pub(super) backup_points: BackupPoints,
    pub(super) data_presence: DataPresence,
    pub(super) about: About,
    pub(super) permits: Permits,
    pub(super) settings: FollowedSettings,
    pub(super) http: HttpState,
    /// How much of each kind of memory clients may take.
    pub(super) client_memory: ClientMemory,
    /// Requests that are not there yet.
    pub(super) receive_memory: ReceiveMemory,
    /// Requests refused by their length before they had come.
    pub(super) long_refused: u64,
    /// Memory of incomplete requests of clients that have not authenticated.
    pub(super) unauthenticated_memory: ReceiveMemory,
    /// Counts of connections given up because they missed a deadline.
    pub(super) deadlines: Deadlines,
    pub(super) events: Events,
    pub(super) subscribers: Subscribers,
    pub(super) figures: FigureState,
    pub(super) scratch: Scratch,
    pub(super) shared_values: SharedValues,
    /// Counters of the reactor at the beginning of this turn.
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
    /// Whether commands ran after this turn's step of time; if so, the next turn starts at once.
    pub(super) late: Late,
    /// Connections that have left too much unread and are to be closed.
    pub(super) slow_readers: Vec<ConnId>,
    pub(super) send_memory: SendMemory,
    pub(super) started_at_ms: u64,
    pub(super) stopping: bool,
    /// Whether the disk, or what other shards have yet to learn, is so far behind that no more commands are taken.
    pub(super) saturated: bool,
    /// How far it may be: what a slow disk may cost in memory.
    pub(super) unwritten_bytes_max: u64,
    pub(super) certificates: Option<Arc<CertificateStore>>,
    /// Shards that have not said [`Message::Open`](super::shard_mail::message::Message::Open) yet.
    pub(super) closed_shards: usize,
    /// Whether the others know that every client here has its answer.
    pub(super) counted_quiet: bool,
}

/// Whether commands are applied behind the step of time of a turn: what of them is left for the next step makes that come
/// at once.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Late {
    /// Time has not been stepped on in this turn.
    #[default]
    No,
    /// The step of time is done, and no command was applied after it.
    Stepped,
    /// A command was applied after the step of time.
    Applied,
}

/// Settings and shared handles that a shard starts with.
pub struct ShardSettings {
    /// Which shard owns which queue.
    pub slots: Slots,
    /// Who may come in.
    pub access: ShardAccess,
    /// Where entries of the audit log go.
    pub audit: Option<AuditLog>,
    /// Where posts to webhooks go.
    pub webhooks: Webhooks,
    /// Where spans go.
    pub spans: Spans,
    /// How HTTP is spoken.
    pub http: HttpState,
    /// The shard's part of the memory of clients.
    pub client_memory: ClientMemory,
    /// Bytes of records that may wait for the disk before no more commands are taken.
    pub unwritten_bytes_max: u64,
    /// The certificate, where TLS is spoken.
    pub certificates: Option<Arc<CertificateStore>>,
    /// Whether the files of the log are still there.
    pub data_presence: DataPresence,
    /// Facts about the server and its machine.
    pub about: About,
    /// How many connections all shards may have.
    pub permits: Permits,
    /// The settings that may change.
    pub settings: FollowedSettings,
    /// The server's own backups.
    pub backups: BackupPoints,
}

impl ShardServer {
    /// A shard that has recovered and has no connection yet.
    pub fn new(
        engine: Engine,
        outbox: Outbox,
        shard_settings: ShardSettings,
        me: usize,
        now_ms: u64,
    ) -> Self {
        let ShardSettings {
            slots,
            access,
            audit,
            webhooks,
            spans,
            http,
            client_memory,
            unwritten_bytes_max,
            certificates,
            data_presence,
            about,
            permits,
            settings,
            backups,
        } = shard_settings;
        Self {
            me,
            now_ms,
            closed_shards: slots.shards(),
            workers: Workers::new(slots.shards()),
            slots,
            access,
            audit: AuditState::new(audit),
            directory: Directory::new(engine.shard.hash_key()),
            engine,
            effects: Effects::default(),
            waiting_claims: WaitingClaims::default(),
            claim_probes: ClaimProbes::default(),
            crons: CronNames::new(client_memory.schedules()),
            webhooks,
            spans,
            sessions: Sessions::default(),
            fair_shares: FairShares::default(),
            parked: Entries::default(),
            tasks: Tasks::default(),
            open_flows: OpenFlows::default(),
            large_commands: LargeCommands::default(),
            cold: ColdReplies::default(),
            operations: Operations::default(),
            bulk_tasks: BulkTasks::default(),
            child_patches: ChildPatches::default(),
            outbox,
            large_replies: LargeReplies::new(client_memory),
            forwarded_frames: ForwardedFrames::default(),
            transcodings: Transcodings::new(client_memory),
            rates: Rates::default(),
            durations: Durations::default(),
            meter: Meter::default(),
            compaction: Compaction::default(),
            exhausted: false,
            disk_full_notice: DiskFullNotice::default(),
            said_lack: None,
            said_stuck: false,
            stalled_messages: StalledMessages::default(),
            unread: None,
            backup_points: backups,
            data_presence,
            about,
            permits,
            settings,
            http,
            client_memory,
            receive_memory: ReceiveMemory::new(client_memory.input()),
            unauthenticated_memory: ReceiveMemory::new(client_memory.strangers()),
            long_refused: 0,
            deadlines: Deadlines::default(),
            events: Events::default(),
            subscribers: Subscribers::new(client_memory.events()),
            figures: FigureState::default(),
            scratch: Scratch::default(),
            shared_values: SharedValues::new(client_memory),
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
            certificates,
            counted_quiet: false,
        }
    }

    /// A command begins, or goes on, that came in so many bytes. Returns what was being done.
    #[inline]
    pub(super) fn meter_command(&mut self, op: Op, bytes: usize) -> Work {
        let before = self.meter_work(Work::of(op));
        self.meter.note_bytes(bytes);
        before
    }

    /// Other work begins. Returns what was being done.
    #[inline]
    pub(super) fn meter_work(&mut self, work: Work) -> Work {
        self.meter.begin(work, self.engine.steps())
    }

    /// All steps so far.
    #[inline]
    pub(super) fn steps(&self) -> u64 {
        self.meter.steps(self.engine.steps())
    }

    /// A turn of this length is over.
    pub fn end_turn(&mut self, length_us: u64) {
        let work = self.meter.end_turn(self.engine.steps(), length_us);
        self.figures.load.end_turn(length_us, work.name());
    }

    /// Whether this turn leaves something to do that nothing else would wake the shard for.
    pub fn has_left(&self) -> bool {
        self.outbox.has_left()
            || self.unread.is_some()
            || self.large_commands.has_left() && !self.is_disk_behind()
            || self.waiting_claims.has_free()
            || !self.touched.is_empty()
            || !self.unblocked.is_empty()
            || self.fair_shares.waiting() > 0
            || !self.slow_readers.is_empty()
            || self.late == Late::Applied
            || Line::ALL.into_iter().any(|line| self.runnable(line) > 0)
            || self.bulk_tasks.has_turns() && !self.stopping && !self.saturated
            || self.saturated && self.may_take_commands()
            || !self.stalled_messages.is_empty() && !self.waits_for_wakeup()
            || self.has_deferred()
            || self.has_child_patches()
            || self.has_transcodings()
            || self.shared_values.is_held()
            || self.access.has_left()
    }

    /// Carries out a command and writes every reply that it brings about, but not the caller's: its
    /// replies are those left in `effects.replies` under `CURRENT`.
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
        if let Some((request, steps)) = self.engine.shard.take_bulk_steps()
            && let Some(parked) = self.parked.get(request.0.wrapping_sub(1) as u32)
        {
            self.meter.credit(parked.work, steps);
        }
        self.follow_up(conns);
        self.report_applied_flows(conns);
        let next_ms = next_ms.min(self.feed_streams(conns));
        self.answer_value_readers(conns);
        self.run_operations(conns);
        self.bulk_tasks_in_turn(conns);
        next_ms
    }

    /// Does what is due beside jobs. Returns when to come again, in milliseconds since the epoch.
    pub fn tend(&mut self, conns: &mut Connections) -> u64 {
        let next_ms = self.evict_history(conns).min(self.end_patience(conns));
        let next_ms = next_ms.min(send_refusals(self, conns));
        let next_ms = next_ms.min(self.receive_memory.give_memory_back(self.now_ms));
        let next_ms = next_ms.min(self.give_back_output(conns)).min(self.beat_streams(conns));
        let next_ms = next_ms.min(self.workers.tend(self.now_ms, &mut self.meter));
        let next_ms = next_ms.min(self.sample_in_turn(conns));
        next_ms.min(self.answer_trials(conns)).min(self.audit_in_turn(conns))
    }

    /// Routes the effects of the last command or step of time: webhooks, events, replies, messages.
    #[inline]
    pub(super) fn follow_up(&mut self, conns: &mut Connections) {
        if self.effects.has_news() {
            self.send_news(conns);
        } else {
            self.answer_parked(conns);
        }
    }

    #[cold]
    fn send_news(&mut self, conns: &mut Connections) {
        self.trigger_webhooks();
        self.publish_events();
        if !self.effects.traced.is_empty() {
            self.spans.take(&mut self.effects.traced, self.engine.journal.log.head());
        }
        self.answer_parked(conns);
        self.send_names();
        self.send_cron_ends();
        self.send_notices();
        self.send_reports();
    }
}
