//! Canaries: for each check, a wrongness planted where the harness meets the engine or the log, and
//! the proof that this check, alone, sees it.

use super::check::{Check, Checks};
use super::settings::Flaw;
use super::{live, message_of};
use corq_shards::Caller;
use corq_shards::Out;
use corq_shards::command::{ClientId, Command, NewJob, Pull, RequestId};
use corq_shards::effect::Effects;
use std::cell::Cell;
use std::panic::catch_unwind;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds that a flaw may take to be seen.
const SEEDS_MAX: u64 = 60;

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
            if flaw == Flaw::ExtraJob {
                jobs.extend(jobs.first().cloned());
            }
            to(&Command::Push { queue, jobs: &jobs });
        }
        Command::Pull(pull) if flaw == Flaw::SmallPulls => {
            to(&Command::Pull(Pull { count: 1, ..*pull }));
        }
        other => to(other),
    }
}

fn spoil_job(flaw: Flaw, job: &mut NewJob<'_>) {
    match flaw {
        Flaw::PriorityTurned => job.priority = -job.priority,
        Flaw::LifoTurned => job.lifo = !job.lifo,
        Flaw::OneMoreAttempt => job.max_attempts += 1,
        Flaw::NoUniqueKeys => job.unique_key = None,
        _ => {}
    }
}

impl super::world::World {
    /// What a flaw does once a turn.
    pub fn spoil_turn(&mut self, node: usize) {
        if !self.settings.has(Flaw::SecretRelease) {
            return;
        }
        let client = self.clients[self.now_ms as usize % self.clients.len()].id;
        let caller = Caller { client: ClientId(client), request: RequestId(0) };
        let mut effects = Effects::default();
        let super::node::Node { shard, book, .. } = &mut self.nodes[node];
        let mut out = Out { journal: book, effects: &mut effects };
        shard.apply(self.now_ms, caller, &Command::Disconnect, &mut out);
    }
}

/// The flaw is seen by this check in one of a few seeds; the same check sees nothing without it.
fn sees(check: Check, flaw: Flaw) {
    let checks = Checks { only: Some(check) };
    let named = format!("[{check:?}]");
    let seen = (0..SEEDS_MAX).find(|&seed| {
        let lived = quietly(|| catch_unwind(|| live(seed, flaw, checks, false)));
        lived.is_err_and(|cause| message_of(&*cause).starts_with(&named))
    });
    let Some(seed) = seen else { panic!("{flaw:?} was never seen by {check:?}") };
    live(seed, Flaw::None, checks, false);
}

macro_rules! canaries {
    ($($name:ident: $check:ident sees $flaw:ident;)*) => {
        $(#[test] fn $name() { sees(Check::$check, Flaw::$flaw); })*
    };
}

canaries! {
    canary_a_forgetful_journal_is_seen: Replay sees ForgetfulJournal;
    canary_an_answer_before_its_record_is_seen: Lost sees ReleaseEarly;
    canary_a_lying_disk_is_seen: Lost sees LyingDisk;
    canary_a_durable_job_without_a_barrier_is_seen: Lost sees NoBarrier;
    canary_a_completed_job_that_comes_again_is_seen: Again sees LostCompletions;
    canary_a_second_lease_is_seen: Lease sees SecretRelease;
    canary_an_early_delay_is_seen: EarlyDelay sees ClockAhead;
    canary_an_early_retry_is_seen: EarlyBackoff sees ClockAhead;
    canary_an_early_end_of_a_lock_is_seen: EarlyLock sees ClockAhead;
    canary_an_early_end_of_a_life_is_seen: EarlyLife sees ClockAhead;
    canary_an_early_timeout_is_seen: EarlyTimeout sees ClockAhead;
    canary_turned_priorities_are_seen: Order sees PriorityTurned;
    canary_lifo_for_fifo_is_seen: Order sees LifoTurned;
    canary_a_pull_in_the_wrong_order_is_seen: Order sees PullBackwards;
    canary_one_attempt_too_many_is_seen: Attempts sees OneMoreAttempt;
    canary_a_job_from_nowhere_is_seen: Counters sees ExtraJob;
    canary_two_holders_of_a_key_are_seen: Unique sees NoUniqueKeys;
    canary_a_name_that_stays_taken_is_seen: Directory sees NamesKept;
    canary_a_queue_that_cannot_be_drained_is_seen: Quiet sees SecretPause;
    canary_a_pull_that_gets_too_little_is_seen: Starved sees SmallPulls;
    canary_a_late_timer_is_seen: Overdue sees SleepyTimers;
    canary_a_wrong_answer_is_seen: Answer sees DeafHeartbeat;
    canary_a_job_in_the_wrong_place_is_seen: State sees SecretRelease;
    canary_a_record_that_comes_back_changed_is_seen: Log sees BentRecord;
    canary_a_reclaim_that_drops_a_job_is_seen: Replay sees SloppyReclaim;
}

#[test]
fn canary_a_run_that_depends_on_more_than_its_seed_is_seen() {
    let once = |flaw| live(1, flaw, Checks::default(), false);
    assert_ne!(once(Flaw::LoadedDice), once(Flaw::LoadedDice));
    assert_eq!(once(Flaw::None), once(Flaw::None));
}
