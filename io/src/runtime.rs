//! Executors, one per shard, on a CPU of its own or on any of them, and how they start and end.
//!
//! Knows glommio's builder and threads; does not know what a shard does. Rules for what runs here:
//! one future, the event loop of the shard, which sleeps in its own ring and so lets nothing else run;
//! no blocking helper and no channel mesh of the executor's own. A second task would need a timer of at most
//! 10 ms armed beside it: an executor may park although a task could run.

use std::fmt::Display;
use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use glommio::{LocalExecutorBuilder, PoolPlacement};

use crate::placement::Placement;

/// Memory that an executor registers for its own files; the log and the sockets do not use it.
const IO_MEMORY_BYTES: usize = 64 * 1024;
/// Depth of the executor's own rings, which carry its timers and little else.
const RING_DEPTH: usize = 16;

/// Running shards.
pub struct Shards<E> {
    threads: Vec<JoinHandle<Result<(), E>>>,
}

/// Starts one shard per seed, each in an executor of its own: pinned to the next of `cpus` (round and round
/// if there are more shards than CPUs), or wherever the process may run. Returns when all executors stand, or with the first reason
/// why one does not; the others then end without having run their shard.
///
/// # Panics
///
/// Without a CPU.
pub fn spawn_shards<S, E, F, Fut>(
    cpus: &[usize],
    placement: Placement,
    seeds: Vec<S>,
    shard: F,
) -> io::Result<Shards<E>>
where
    S: Send + 'static,
    E: Send + 'static,
    F: FnOnce(usize, S) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<(), E>> + 'static,
{
    assert!(!cpus.is_empty(), "no CPU to run on");
    let mut starting = Vec::with_capacity(seeds.len());
    for (index, seed) in seeds.into_iter().enumerate() {
        let cpu = cpus[index % cpus.len()];
        let bound = match placement {
            Placement::Pinned => glommio::Placement::Fixed(cpu),
            Placement::Floating => glommio::Placement::Unbound,
        };
        let (ready, is_ready) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let shard = shard.clone();
        let thread =
            std::thread::Builder::new().name(format!("corq-{index}")).spawn(move || {
                let executor = LocalExecutorBuilder::new(bound)
                    .io_memory(IO_MEMORY_BYTES)
                    .ring_depth(RING_DEPTH)
                    .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
                    .make();
                let (executor, standing) = match executor {
                    Ok(executor) => (Some(executor), Ok(())),
                    Err(error) => (None, Err(failed(index, cpu, &error))),
                };
                // The starting thread may have given up because of another shard.
                let told = ready.send(standing).is_ok() && may_go.recv().is_ok();
                match executor {
                    Some(executor) if told => executor.run(shard(index, seed)),
                    _ => Ok(()),
                }
            })?;
        starting.push((thread, is_ready, go));
    }
    for (index, (_, is_ready, _)) in starting.iter().enumerate() {
        is_ready
            .recv()
            .unwrap_or_else(|lost| Err(failed(index, cpus[index % cpus.len()], &lost)))?;
    }
    let mut threads = Vec::with_capacity(starting.len());
    for (thread, _, go) in starting {
        // The thread waits for exactly this; if the thread is gone, its join says why.
        let _ = go.send(());
        threads.push(thread);
    }
    Ok(Shards { threads })
}

fn failed(index: usize, cpu: usize, error: &dyn Display) -> io::Error {
    io::Error::other(format!("shard {index} cannot start its executor on CPU {cpu}: {error}"))
}

/// How often a wait that has an end looks whether all shards are done.
const LOOK: Duration = Duration::from_millis(5);

impl<E> Shards<E> {
    /// Waits for all shards, at most until `deadline`: as [`Shards::join`], or `None` if one of them is still
    /// there, as when the kernel holds it.
    pub fn join_before(self, deadline: Instant) -> Option<Result<(), E>> {
        while !self.threads.iter().all(JoinHandle::is_finished) {
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(LOOK);
        }
        Some(self.join())
    }

    /// Waits for all shards; the first error in their order, if there is one.
    ///
    /// # Panics
    ///
    /// If a shard panicked (where panics unwind at all).
    pub fn join(self) -> Result<(), E> {
        let mut outcome = Ok(());
        for thread in self.threads {
            match thread.join() {
                Ok(result) => outcome = outcome.and(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn cpus() -> Vec<usize> {
        crate::host::allowed_cpus().unwrap()
    }

    #[test]
    fn each_shard_runs_once_on_its_cpu_under_its_name() {
        let cpus = cpus();
        let runs = Arc::new(AtomicUsize::new(0));
        let (counter, expected) = (Arc::clone(&runs), cpus.clone());
        let shards = spawn_shards(
            &cpus,
            Placement::Pinned,
            vec!["a", "b", "c"],
            move |index, seed| async move {
                assert_eq!(seed, ["a", "b", "c"][index]);
                assert_eq!(std::thread::current().name(), Some(format!("corq-{index}").as_str()));
                let bound = crate::host::allowed_cpus().unwrap();
                assert_eq!(bound, vec![expected[index % expected.len()]]);
                counter.fetch_add(1, Ordering::Relaxed);
                Ok::<(), String>(())
            },
        );
        shards.unwrap().join().unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_floating_shard_may_run_on_every_cpu_of_the_process() {
        let allowed = cpus();
        let expected = allowed.clone();
        let shards =
            spawn_shards(&allowed, Placement::Floating, vec![(), ()], move |_, ()| async move {
                assert_eq!(crate::host::allowed_cpus().unwrap(), expected);
                Ok::<(), String>(())
            });
        shards.unwrap().join().unwrap();
    }

    #[test]
    fn join_returns_the_first_error() {
        let shards =
            spawn_shards(&cpus(), Placement::Floating, vec![0, 1, 2], |index, _| async move {
                if index == 0 { Ok(()) } else { Err(format!("shard {index} failed")) }
            });
        assert_eq!(shards.unwrap().join(), Err("shard 1 failed".to_string()));
    }

    #[test]
    fn a_shard_that_does_not_end_is_not_waited_for_for_ever() {
        let (ends, end) = mpsc::channel::<()>();
        let shards =
            spawn_shards(&cpus()[..1], Placement::Pinned, vec![end], |_, end| async move {
                let _ = end.recv();
                Ok::<(), String>(())
            });
        assert!(shards.unwrap().join_before(Instant::now()).is_none());
        drop(ends);
        let shards = spawn_shards(&cpus()[..1], Placement::Pinned, vec![()], |_, ()| async {
            Err("failed")
        });
        let give_up = Instant::now() + Duration::from_mins(1);
        assert_eq!(shards.unwrap().join_before(give_up), Some(Err("failed")));
    }

    #[test]
    fn an_unusable_cpu_is_an_error_and_no_shard_runs() {
        let runs = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&runs);
        let shards = spawn_shards(
            &[cpus()[0], 100_000],
            Placement::Pinned,
            vec![(), ()],
            move |_, ()| async move {
                counter.fetch_add(1, Ordering::Relaxed);
                Ok::<(), ()>(())
            },
        );
        let error = shards.err().unwrap().to_string();
        assert!(error.starts_with("shard 1 cannot start its executor on CPU 100000"), "{error}");
        assert_eq!(runs.load(Ordering::Relaxed), 0);
    }
}
