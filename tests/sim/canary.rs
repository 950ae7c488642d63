//! The wrongness that canaries plant where the harness meets the engine or the log.

use super::events::{EventStep, ModelEvent};
use super::node::Node;
use super::settings::Flaw;
use corq_shards::Caller;
use corq_shards::Out;
use corq_shards::command::{
    AddWebhook, Clean, ClientId, Command, DlqScanRequest, GroupLimit, GroupPull, Pull, RequestId,
    SetCron,
};
use corq_shards::cron::expression::Plan;
use corq_shards::dead_letter::scan::FailedFilter;
use corq_shards::effect::Effects;
use corq_shards::flow::Fate;
use corq_shards::group::GroupRate;
use corq_shards::job::change::Change;
use corq_shards::job::id::{IdMaker, JobId, Slot};
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::Extras;
use corq_shards::log_record::{Pushed, Record};
use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Whether a failure of this thread is expected and needs no words.
pub fn is_quiet() -> bool {
    QUIET.get()
}

/// A number that no call before has returned.
pub fn ever_new() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Runs `what` without its panics being printed.
pub fn quietly<T>(what: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !is_quiet() {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
    let result = what();
    QUIET.set(false);
    result
}

/// Passes a command on, bent as the flaw has it.
pub fn spoil(flaw: Flaw, command: &Command<'_>, to: &mut dyn FnMut(&Command<'_>)) {
    match command {
        Command::Push { queue, jobs } => {
            let mut jobs: Vec<NewJob<'_>> = jobs.to_vec();
            for job in &mut jobs {
                spoil_job(flaw, job);
            }
            if let (Flaw::OneOfOneKey, Some(second)) = (flaw, jobs.get_mut(1)) {
                second.unique_key = None;
            }
            if flaw == Flaw::ExtraJob {
                jobs.extend(jobs.first().cloned());
            }
            to(&Command::Push { queue, jobs: &jobs });
        }
        Command::SetCron(set) if flaw == Flaw::HastySchedules => {
            to(&Command::SetCron(&SetCron { plan: Plan::Every(333), ..**set }));
        }
        Command::Clean(clean) if flaw == Flaw::ShyClean => {
            to(&Command::Clean(Clean { limit: clean.limit.min(1), ..*clean }));
        }
        Command::LimitGroup { queue, group, limit: GroupLimit::Active(Some(max)) }
            if flaw == Flaw::GenerousGroups =>
        {
            let limit = GroupLimit::Active(Some(max + 1));
            to(&Command::LimitGroup { queue, group, limit });
        }
        Command::Decide { flow, fate: Fate::Released, durable } if flaw == Flaw::HalfFlows => {
            to(&Command::Decide { flow: *flow, fate: Fate::Dropped, durable: *durable });
        }
        Command::LimitGroup { queue, group, limit: GroupLimit::Rate(Some(rate)) }
            if flaw == Flaw::HastyGroups =>
        {
            let limit = GroupLimit::Rate(Some(GroupRate { jobs: rate.jobs + 1, ..*rate }));
            to(&Command::LimitGroup { queue, group, limit });
        }
        Command::Pull(pull) if flaw == Flaw::DeafRates => {
            let group = pull.group.map(|group| GroupPull { rate: None, ..*group });
            to(&Command::Pull(Pull { group: group.as_ref(), ..*pull }));
        }
        Command::Pull(pull) if flaw == Flaw::SmallPulls => {
            to(&Command::Pull(Pull { count: 1, ..*pull }));
        }
        other => spoil_other(flaw, other, to),
    }
}

fn spoil_job(flaw: Flaw, job: &mut NewJob<'_>) {
    match flaw {
        Flaw::PriorityTurned => job.priority = -job.priority,
        Flaw::LifoTurned => job.lifo = !job.lifo,
        Flaw::OneMoreAttempt => job.max_attempts += 1,
        Flaw::NoUniqueKeys => job.unique_key = None,
        Flaw::NoRepeats => job.repeat = None,
        Flaw::RoomyGroups => job.group_max = 0,
        Flaw::NoDelays if job.extras.as_ref().is_some_and(|it| it.dedup.is_some()) => {
            job.delay_ms = 0;
        }
        _ => {
            if let Some(extras) = &mut job.extras {
                spoil_extras(flaw, extras);
            }
        }
    }
}

fn spoil_extras(flaw: Flaw, extras: &mut Extras) {
    match flaw {
        Flaw::GrowingWaits => extras.backoff = None,
        Flaw::PatientStalls => extras.stall_timeout_ms = None,
        Flaw::LongLogs => extras.keep_logs = None,
        Flaw::NoTimestamps => extras.made_at_ms = None,
        _ => {}
    }
    let Some(dedup) = &mut extras.dedup else { return };
    match flaw {
        Flaw::EndlessKeys => dedup.ttl_ms = 0,
        Flaw::ShortKeys => dedup.extend = false,
        Flaw::NoReplacing => dedup.replace = false,
        _ => {}
    }
}

/// Bends commands about queues and single jobs as the flaw has it.
fn spoil_other(flaw: Flaw, command: &Command<'_>, to: &mut dyn FnMut(&Command<'_>)) {
    match *command {
        Command::FreeKey { queue, .. } if flaw == Flaw::StubbornKeys => {
            to(&Command::FreeKey { queue, key: "another" });
        }
        Command::PromoteAll { queue, count } if flaw == Flaw::ShyPromotions => {
            to(&Command::PromoteAll { queue, count: count.min(2).saturating_sub(1) });
        }
        Command::DlqScan(scan_request) if flaw == Flaw::WideSieves => {
            to(&Command::DlqScan(&DlqScanRequest {
                filter: FailedFilter::default(),
                ..*scan_request
            }));
        }
        Command::RetryCompleted { queue, job, count, .. } if flaw == Flaw::LateRetries => {
            to(&Command::RetryCompleted { queue, job, count, until_ms: u64::MAX });
        }
        Command::AddWebhook(hook) if flaw == Flaw::NosyHooks => {
            to(&Command::AddWebhook(&AddWebhook { queue: None, ..*hook }));
        }
        Command::Change { job, change } => {
            to(&Command::Change { job, change: spoil_change(flaw, change) });
        }
        ref other => to(other),
    }
}

fn spoil_change(flaw: Flaw, change: Change<'_>) -> Change<'_> {
    match (flaw, change) {
        (Flaw::BlindTokens, Change::ToWait { .. }) => Change::ToWait { token: None },
        (Flaw::BlindTokens, Change::Discard { .. }) => Change::Discard { token: None },
        (Flaw::BlindTokens, Change::PutOff { delay_ms, .. }) => {
            Change::PutOff { delay_ms, token: None }
        }
        (Flaw::BlindTokens, Change::Delay { delay_ms, .. }) => {
            Change::Delay { delay_ms, token: None }
        }
        (Flaw::LongDelays, Change::Delay { delay_ms, token }) => {
            Change::Delay { delay_ms: delay_ms + 1, token }
        }
        (Flaw::DeafBins, Change::Bin { .. }) => Change::Bin { queue: "another" },
        (Flaw::LongCuts, Change::CutLog(keep)) => Change::CutLog(keep + 1),
        (Flaw::NoLinks, Change::Link { job, .. }) => Change::Link { job, parent: None },
        (_, change) => change,
    }
}

/// Bends the events that listeners get as the flaw has it.
pub fn spoil_events(flaw: Flaw, published: &mut Vec<ModelEvent>) {
    match flaw {
        Flaw::LostEvents => published.retain(|one| !matches!(one.step, EventStep::Retried(_))),
        Flaw::EventsBackwards => published.reverse(),
        _ => {}
    }
}

impl super::world::World {
    /// Does the damage of a flaw once a turn.
    pub fn spoil_turn(&mut self, node: usize) {
        if self.settings.has(Flaw::SecretPush) {
            self.push_secretly(node);
        }
        if !self.settings.has(Flaw::SecretRelease) {
            return;
        }
        let client = self.clients[self.now_ms as usize % self.clients.len()].id;
        let caller = Caller { client: ClientId(client), request: RequestId(0) };
        let mut effects = Effects::default();
        let Node { shard, book, .. } = &mut self.nodes[node];
        let mut out = Out { journal: book, effects: &mut effects };
        shard.apply(self.now_ms, caller, &Command::Disconnect, &mut out);
    }

    fn push_secretly(&mut self, node: usize) {
        let Node { model, .. } = &self.nodes[node];
        let waited_at: Vec<String> =
            model.waiters.iter().map(|waiter| waiter.queue.clone()).collect();
        for queue in &waited_at {
            let mut ids = IdMaker::new(self.dice.draw(), JobId::default());
            let id = ids.make(self.now_ms, Slot::of_name(queue));
            let job = NewJob { data: b"\x07", ..NewJob::default() };
            let record =
                Record::Pushed(Pushed { id, queue, run_at_ms: self.now_ms, job: job.into() });
            let mut bytes = vec![0; record.encoded_len()];
            record.encode(&mut bytes);
            let _ = self.nodes[node].shard.replay(1, &bytes);
            self.nodes[node].check_replay(&self.settings);
        }
    }
}
