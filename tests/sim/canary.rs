//! The wrongness that canaries plant where the harness meets the engine or the log.

use super::settings::Flaw;
use corq_shards::Caller;
use corq_shards::Out;
use corq_shards::command::{ClientId, Command, NewJob, Pull, RequestId};
use corq_shards::effect::Effects;
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
