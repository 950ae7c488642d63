//! The state machine of one shard: commands in, records and effects out.
//!
//! Here live commands are judged; [`crate::apply::transitions`] changes the state, for them and for recovery
//! alike; [`crate::apply::due_work`] does what falls due. Nothing here waits, reads a clock or rolls dice.

use crate::apply::allowance::Allowance;
use crate::apply::log_clock::LogClock;
use crate::apply::unknown_jobs::Unknown;
use crate::bulk::{BulkOperation, Retry};
use crate::caller::{ClientId, RequestId};
use crate::collections::deadline_heap::Timers;
use crate::collections::hash_key::HashKey;
use crate::collections::slab::Slab;
use crate::command::Command;
use crate::compaction::evict_history::HistoryEviction;
use crate::compaction::live_bytes::Live;
use crate::compaction::space_forecast::JOB_FORECAST_BYTES;
use crate::cron::Crons;
use crate::cron::push_rate::Scheduled;
use crate::dedup::Met;
use crate::dedup::UniqueKeys;
use crate::dependency::await_end::EndWaiters;
use crate::dependency::completed_ids::CompletedIds;
use crate::dependency::news::Outbox;
use crate::dependency::watchers::Watchers;
use crate::effect::{Delivery, Effects, NameChange, PushedJob, Refusal, Reply};
use crate::event::{Listeners, Step};
use crate::family::unreported::AllUnreported;
use crate::family::{Orphaned, Report};
use crate::flow::Flows;
use crate::group::Groups;
use crate::job::id::{IdMaker, JobId};
use crate::job::new_job::NewJob;
use crate::job::shared_payload::Shares;
use crate::job::{Jobs, State};
use crate::lease::ExpiredTokens;
use crate::lease::Lease;
use crate::lease::clients::Clients;
use crate::lease::group_scans::Seeing;
use crate::lease::owners::Owners;
use crate::lease::token_stream::{SecretKey, Secrets};
use crate::lease::waiting_pulls::Waiter;
use crate::log_record::{Given, Journal, Pushed, Record};
use crate::queue::Queues;
use crate::queue::listing::Views;
use crate::queue::retention::Retention;
use crate::stats::Totals;
use crate::traced::Tracer;
use crate::webhook::Webhooks;
use std::collections::{BTreeSet, VecDeque};

/// Most that is done of one kind of work at a time, so that it never holds a turn for long.
pub const SLICE: u64 = 500;

/// Bytes of a job's record besides its texts, with its later growth, at most.
pub(crate) const JOB_BYTES: u64 = 192 + JOB_FORECAST_BYTES;

/// Log bytes that a push may come to take.
pub fn push_bytes(queue: &str, jobs: &[NewJob<'_>]) -> u64 {
    jobs.iter().map(|job| job.bytes() + queue.len() as u64 + JOB_BYTES).sum()
}

/// Log bytes of a job's end besides texts, at most: of a run, the next one is in it.
pub(crate) const END_BYTES: u64 = 1280;

/// Bytes of the record of a queue's setting besides the queue's name.
pub(crate) const SETTING_BYTES: u64 = 48;

/// The answer to what the log has no room for.
pub(crate) const FULL: Reply = Reply::Refused { place: 0, refusal: Refusal::Full };

/// The answer to a setting of a queue that has none, where as many have some as may.
pub(crate) const TOO_MANY_SETTINGS: Reply =
    Reply::Refused { place: 0, refusal: Refusal::QueueSettings };

/// Settings of a shard, given once.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Completed jobs kept per queue.
    pub completed_max: u32,
    /// Completed jobs kept per queue by records of older releases, which do not say which were forgotten for them.
    /// Rather too many than too few: a job that is forgotten too early is lost if it was run anew.
    pub unsaid_completed_max: u32,
    /// How long a completed job is kept.
    pub completed_retention_ms: u64,
    /// Addresses of the log that go together, as a power of two.
    pub span_bits: u32,
    /// Jobs that a long command touches at a time, at least 1; [`SLICE`] but in tests.
    pub bulk_slice: u64,
    /// The least time between two runs of a schedule or a repeated job, in milliseconds, at least 1.
    pub interval_min_ms: u64,
    /// Jobs that schedules and repeats push in a second, at least 1.
    pub scheduled_per_second: u32,
    /// How long a job stays in a dead-letter queue that is older than the rule of its queue allows, in milliseconds.
    pub expired_kept_ms: u64,
    /// Most log bytes of the records of failed attempts of all jobs together. Beyond it, a failed attempt is counted,
    /// but its details are not remembered.
    pub remembered_bytes_max: u64,
    /// Start of the chance in its ids. Must differ between starts and shards.
    pub seed: u64,
    /// The secret of its hash tables. Of it nothing may be seen from outside.
    pub hash_key: HashKey,
    /// Key from which its lock tokens are derived.
    pub token_key: SecretKey,
}

/// The state of one shard.
pub struct Shard {
    pub(crate) config: Config,
    pub(crate) ids: IdMaker,
    pub(crate) tokens: Secrets,
    pub(crate) jobs: Jobs,
    pub(crate) queues: Queues,
    pub(crate) leases: Slab<Lease>,
    pub(crate) owners: Owners,
    pub(crate) waiters: Slab<Waiter>,
    pub(crate) end_waiters: EndWaiters,
    pub(crate) clients: Clients,
    /// Clients that are gone and whose jobs go back in slices.
    pub(crate) leavers: VecDeque<ClientId>,
    pub(crate) unique: UniqueKeys,
    pub(crate) job_timers: Timers,
    pub(crate) lease_timers: Timers,
    pub(crate) waiter_timers: Timers,
    pub(crate) limit_timers: Timers,
    pub(crate) groups: Groups,
    /// Queues where pulls wait until all groups have been looked at.
    pub(crate) seeing: Seeing,
    /// Pulls that have come to wait.
    pub(crate) waits: u64,
    /// Queues whose pulls may be served by what has changed in this call. At one that has gone in the same
    /// call, nobody waits.
    pub(crate) with_room: Vec<u32>,
    /// Queues that may have more for those who wait there than there was room for in this step of time, and from which
    /// on it is their turn.
    pub(crate) unserved: BTreeSet<u32>,
    pub(crate) unserved_from: u32,
    pub(crate) crons: Crons,
    pub(crate) scheduled: Scheduled,
    pub(crate) shares: Shares,
    /// Live bytes per log span, for compaction.
    pub(crate) live: Live,
    /// Bytes of the records that are to tell of forgotten completed jobs.
    pub(crate) unrecorded_evictions: u64,
    /// Ended jobs whose record does not say so, and ends whose record has never moved.
    pub(crate) ends_unkept: u64,
    pub(crate) ends_unmoved: u64,
    /// Completed jobs there are.
    pub(crate) completed_jobs: u64,
    /// Where completed jobs make room, if they have to.
    pub(crate) history_eviction: HistoryEviction,
    /// The next queue that [`Shard::end_keeping`] looks at.
    pub(crate) keep_cursor: u32,
    pub(crate) webhooks: Webhooks,
    pub(crate) bulk_operations: VecDeque<BulkOperation>,
    /// Dead-letter queues that a start found longer than their rules want. One whose index has come to
    /// another queue meanwhile does no harm: each is judged by its own rules.
    pub(crate) overfull: Vec<u32>,
    pub(crate) retention: Retention,
    pub(crate) unknown: Unknown,
    pub(crate) totals: Totals,
    pub(crate) recovering: bool,
    pub(crate) watchers: Watchers,
    pub(crate) listeners: Listeners,
    pub(crate) tracer: Tracer,
    pub(crate) completed_ids: CompletedIds,
    pub(crate) log_clock: LogClock,
    pub(crate) expired_tokens: ExpiredTokens,
    /// News for shards of other jobs, since effects were last handed out.
    pub(crate) notices: Outbox,
    pub(crate) allowance: Allowance,
    /// Ends of children here for the shards of their parents, since effects were last handed out.
    pub(crate) reports: Vec<Report>,
    pub(crate) unreported: AllUnreported,
    /// Ends of children that their parents keep.
    pub(crate) child_ends: u64,
    /// Ends of children whose parents are gone, to be let go of in slices.
    pub(crate) orphaned: Orphaned,
    pub(crate) flows: Flows,
    /// Custom ids that came or went since effects were last handed out.
    pub(crate) names: Vec<NameChange>,
    /// Scratch for the pairs of one record.
    pub(crate) entries: Vec<u8>,
    /// Steps done so far, see [`Shard::steps`].
    pub(crate) steps: u64,
    /// Steps of the last slice of a long command, and the command.
    pub(crate) bulk_steps: Option<(RequestId, u64)>,
}

/// Where a command's consequences go.
pub struct Out<'a, J> {
    /// Takes the records.
    pub journal: &'a mut J,
    /// Takes all else.
    pub effects: &'a mut Effects,
}

/// Who asks, and which answer it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// The connection.
    pub client: ClientId,
    /// The request.
    pub request: RequestId,
}

impl Shard {
    /// An empty shard, ready to replay records; [`Shard::restart`] ends that and opens it.
    pub fn new(config: Config) -> Self {
        let key = config.hash_key;
        Self {
            config,
            ids: IdMaker::new(config.seed, JobId::default()),
            tokens: Secrets::new(config.token_key),
            jobs: Jobs::new(key),
            queues: Queues::new(key),
            leases: Slab::new(),
            owners: Owners::new(),
            waiters: Slab::new(),
            end_waiters: EndWaiters::new(key),
            clients: Clients::new(key),
            leavers: VecDeque::new(),
            unique: UniqueKeys::new(key),
            job_timers: Timers::default(),
            lease_timers: Timers::default(),
            waiter_timers: Timers::default(),
            limit_timers: Timers::default(),
            groups: Groups::new(key),
            seeing: Seeing::default(),
            waits: 0,
            with_room: Vec::new(),
            unserved: BTreeSet::new(),
            unserved_from: 0,
            crons: Crons::new(key),
            scheduled: Scheduled::new(config.scheduled_per_second),
            shares: Shares::default(),
            live: Live::new(config.span_bits),
            unrecorded_evictions: 0,
            ends_unkept: 0,
            ends_unmoved: 0,
            completed_jobs: 0,
            history_eviction: HistoryEviction::default(),
            keep_cursor: 0,
            webhooks: Webhooks::default(),
            bulk_operations: VecDeque::new(),
            overfull: Vec::new(),
            retention: Retention::default(),
            unknown: Unknown::default(),
            totals: Totals::default(),
            recovering: true,
            watchers: Watchers::new(key),
            listeners: Listeners::default(),
            tracer: Tracer::default(),
            completed_ids: CompletedIds::new(key),
            log_clock: LogClock::default(),
            expired_tokens: ExpiredTokens::new(key),
            notices: Outbox::default(),
            allowance: Allowance::default(),
            reports: Vec::new(),
            unreported: AllUnreported::new(key),
            child_ends: 0,
            orphaned: Orphaned::default(),
            flows: Flows::new(key),
            names: Vec::new(),
            entries: Vec::new(),
            steps: 0,
            bulk_steps: None,
        }
    }

    /// Carries out one command.
    pub fn apply<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        command: &Command<'_>,
        out: &mut Out<'_, J>,
    ) {
        self.log_clock.show(now_ms);
        self.tell_silent_clock(now_ms, out.journal);
        let delivered = out.effects.deliveries.len();
        match command {
            Command::Push { queue, jobs } => self.push(now_ms, caller, queue, jobs, out),
            Command::Pull(pull) => self.pull(now_ms, caller, pull, out),
            Command::CheckAcks { acks } => {
                let reply = match self.check_acks(now_ms, acks) {
                    Ok(late) if late.is_empty() => Reply::Done,
                    Ok(late) => Reply::Late(late.into()),
                    Err(refused) => refused,
                };
                out.effects.replies.push((caller.request, reply));
            }
            Command::Ack { acks } => self.ack(now_ms, caller, acks, out),
            Command::Fail(fail) => self.fail(now_ms, caller, fail, out),
            Command::Heartbeat(beat) => {
                let reply = match self.renew(now_ms, caller.client, *beat) {
                    Ok(()) => Reply::Done,
                    Err(refusal) => Reply::Refused { place: 0, refusal },
                };
                out.effects.replies.push((caller.request, reply));
            }
            Command::Heartbeats { beats } => {
                let reply = self.renew_many(now_ms, caller.client, beats);
                out.effects.replies.push((caller.request, reply));
            }
            Command::Change { job, change } => self.change(now_ms, caller, *job, change, out),
            Command::AwaitEnd { job, timeout_ms } => {
                self.await_end(now_ms, caller, *job, *timeout_ms, out);
            }
            Command::Pause { queue, paused } => self.pause(now_ms, caller, queue, *paused, out),
            Command::RetryFailed { queue, job, count } => {
                let (ended, job, count, until_ms) = (State::Failed, *job, *count, u64::MAX);
                self.retry_ended(
                    now_ms,
                    caller,
                    &Retry { queue, ended, job, count, until_ms },
                    out,
                );
            }
            Command::LimitGroup { queue, group, limit } => {
                self.limit_group(now_ms, caller, (queue, group), *limit, out);
            }
            Command::Rule { queue, patch } => self.rule(now_ms, caller, queue, *patch, out),
            Command::DlqScan(scan_request) => self.scan_failed(now_ms, caller, scan_request, out),
            Command::Limit { queue, limit } => self.limit(now_ms, caller, queue, *limit, out),
            Command::RetryCompleted { queue, job, count, until_ms } => {
                let (ended, job, count, until_ms) = (State::Completed, *job, *count, *until_ms);
                self.retry_ended(
                    now_ms,
                    caller,
                    &Retry { queue, ended, job, count, until_ms },
                    out,
                );
            }
            Command::FreeKey { queue, key } => {
                self.free_key(now_ms, caller, (queue, key), out);
            }
            Command::PromoteAll { queue, count } => {
                self.promote_all(now_ms, caller, queue, *count, out);
            }
            Command::Drain { queue } => {
                self.drain(now_ms, caller, queue, &[State::Waiting], out);
            }
            Command::DrainAll { queue } => {
                self.drain(now_ms, caller, queue, &[State::Waiting, State::Delayed], out);
            }
            Command::PurgeFailed { queue } => self.purge_failed(now_ms, caller, queue, out),
            Command::Clean(clean) => self.clean(now_ms, caller, clean, Views::default(), out),
            Command::CleanViews { clean, views } => {
                self.clean(now_ms, caller, clean, *views, out);
            }
            Command::Obliterate { queue } => self.obliterate(now_ms, caller, queue, out),
            Command::SetCron(cron) => self.set_cron_live(now_ms, caller, cron, out),
            Command::HoldCron { name, held } => self.hold_cron(caller, name, *held, out),
            Command::EnableCron { name, enabled } => {
                self.enable_cron(now_ms, caller, (name, *enabled), out);
            }
            Command::RemoveCron { name } => self.remove_cron(now_ms, caller, name, out),
            Command::StartCrons => self.start_crons(now_ms),
            Command::AddWebhook(webhook) => self.add_webhook_live(now_ms, caller, webhook, out),
            Command::EnableWebhook { id, enabled } => {
                self.enable_webhook(caller, *id, *enabled, out);
            }
            Command::RemoveWebhook { id } => self.remove_webhook_live(caller, *id, out),
            Command::Notice(notice) => self.take_notice(now_ms, *notice, out),
            Command::GiveBackNames { jobs } => self.give_back_names(now_ms, jobs, out),
            Command::Stage { records, group_max, durable } => {
                self.stage(caller, (records, group_max), *durable, out);
            }
            Command::Decide { flow, fate, durable } => {
                self.decide(now_ms, caller.request, (*flow, *fate, *durable), out);
            }
            Command::Report(reported) => self.take_report(now_ms, reported, out),
            Command::Disconnect => self.disconnect(now_ms, caller.client, out),
            Command::EndWaits => {
                while !self.waiters.is_empty() {
                    self.end_waits(u64::MAX, out);
                }
                while !self.end_waiters.is_empty() {
                    self.expire_end_waiters(u64::MAX, out);
                }
            }
        }
        self.answer_ended(&mut out.effects.replies);
        self.fill_room(now_ms, out);
        self.queues.sweep(0);
        out.effects.names.append(&mut self.names);
        self.give_notices(out.effects);
        debug_assert!(self.holds_delivered(&out.effects.deliveries[delivered..]));
    }

    /// Whether what was delivered is still there to be rendered.
    pub(crate) fn holds_delivered(&self, deliveries: &[Delivery]) -> bool {
        let active = |state| state == Some(State::Active);
        deliveries.iter().all(|one| active(self.look(one.job).map(|view| view.job.state)))
    }

    fn push<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        queue_name: &str,
        jobs: &[NewJob<'_>],
        out: &mut Out<'_, J>,
    ) {
        if jobs.iter().any(|job| job.group_max > 0)
            && let Some(place) = self.find_overfull(now_ms, queue_name, jobs)
        {
            let refused = Reply::Refused { place, refusal: Refusal::GroupFull };
            out.effects.replies.push((caller.request, refused));
            return;
        }
        if !out.journal.can_append_new(push_bytes(queue_name, jobs), || self.space_forecast()) {
            out.effects.replies.push((caller.request, FULL));
            return;
        }
        self.push_all(now_ms, caller, queue_name, jobs, out);
    }

    fn push_all<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        queue_name: &str,
        jobs: &[NewJob<'_>],
        out: &mut Out<'_, J>,
    ) {
        let queue = self.queues.find_or_insert(queue_name);
        let slot = self.queues[queue].slot;
        let first = out.effects.pushed.len();
        for job in jobs {
            let replaced = match self.meet_holder(now_ms, queue, job, out) {
                Met::Nobody => None,
                Met::Goes(holder) => Some(holder),
                Met::Stays(holder) => {
                    // The holder stands for this job, which was to outlive a power loss.
                    if job.durable {
                        out.journal.require_sync();
                    }
                    out.effects.pushed.push(holder);
                    continue;
                }
            };
            let custom_id = job.custom_id.map(Into::into);
            let id = self.ids.make(now_ms, slot);
            let is_plain = job.extras.is_none() && job.recurrence.is_none();
            let job = if is_plain { Given::Lent(job) } else { job.begun(now_ms).into() };
            let (run_at_ms, durable) = (now_ms + job.delay_ms, job.durable);
            let pushed = Pushed { id, queue: queue_name, run_at_ms, job };
            let record = Record::Pushed(pushed);
            let stored = out.journal.append(&record);
            if durable {
                out.journal.require_sync();
            }
            let Record::Pushed(pushed) = &record else { continue };
            let index = self.add(queue, pushed, stored);
            out.effects.pushed.push(PushedJob { id, custom_id, is_new: true });
            self.emit_push(now_ms, index, out.effects);
            self.totals.pushed += 1;
            self.queues.count_push(queue, now_ms);
            self.remove_replaced(now_ms, replaced, out);
        }
        let last = out.effects.pushed.len();
        out.effects.replies.push((caller.request, Reply::Pushed(first..last)));
        self.serve(now_ms, queue, out);
    }

    fn pause<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        name: &str,
        paused: bool,
        out: &mut Out<'_, J>,
    ) {
        let known = self.queues.find(name);
        if known.is_some_and(|queue| self.queues[queue].is_paused()) != paused {
            let bytes = if paused { SETTING_BYTES + name.len() as u64 } else { 0 };
            if paused && self.queues.refuses_settings(known) {
                out.effects.replies.push((caller.request, TOO_MANY_SETTINGS));
                return;
            }
            if bytes > 0 && !out.journal.can_append_text(bytes, || self.space_forecast()) {
                out.effects.replies.push((caller.request, FULL));
                return;
            }
            let stored = out.journal.append(&Record::Paused { queue: name, paused });
            let queue = self.set_paused(name, paused, stored);
            let step = if paused { Step::Paused } else { Step::Resumed };
            self.emit_of_queue(now_ms, name, step, out.effects);
            self.serve(now_ms, queue, out);
        }
        out.effects.replies.push((caller.request, Reply::Done));
    }
}
