//! Runs seeds, each twice: it must do the same twice and break no promise.
//!
//! ```text
//! CORQ_SIM_SEEDS=n     so many seeds            CORQ_SIM_FIRST=k   beginning with seed k
//! CORQ_SIM_SECONDS=s   until the time is up     CORQ_SIM_SEED=n    one seed, printing all that happens
//! ```

mod canaries;

use corq_sim::check::Checks;
use corq_sim::live;
use corq_sim::settings::Flaw;
use std::io::Write;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Seeds of a run that nobody asked for more of.
const SEEDS: u64 = 3000;

/// How often a long run says how far it is, so that whoever stops it knows.
const REPORT: Duration = Duration::from_mins(1);

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text}")))
}

/// Runs a seed twice.
fn try_seed(seed: u64) {
    let run = || live(seed, Flaw::None, Checks::default(), false);
    let twice = catch_unwind(|| (run(), run()));
    let how = format!("CORQ_SIM_SEED={seed} cargo test --test sim every_seed");
    let Ok((one, other)) = twice else { panic!("seed {seed} failed; run it alone: {how}") };
    assert_eq!(one, other, "two runs of seed {seed} differ: {how}");
}

/// Seeds that several threads take from one line.
struct Line {
    first: u64,
    seeds: u64,
    until: Option<Instant>,
    next: AtomicU64,
    done: AtomicU64,
    stopped: AtomicBool,
    begun: Instant,
    reported: std::sync::Mutex<Instant>,
}

impl Line {
    fn new() -> Self {
        let first = setting("CORQ_SIM_FIRST").unwrap_or(0);
        let seconds = setting("CORQ_SIM_SECONDS");
        let unbounded = seconds.map_or(SEEDS, |_| u64::MAX - first);
        let now = Instant::now();
        Self {
            first,
            seeds: setting("CORQ_SIM_SEEDS").unwrap_or(unbounded),
            until: seconds.map(|seconds| now + Duration::from_secs(seconds)),
            next: AtomicU64::new(first),
            done: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            begun: now,
            reported: std::sync::Mutex::new(now),
        }
    }

    fn take(&self) -> Option<u64> {
        let over = self.until.is_some_and(|until| Instant::now() >= until);
        if over || self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        let seed = self.next.fetch_add(1, Ordering::Relaxed);
        (seed - self.first < self.seeds).then_some(seed)
    }

    /// Takes seeds and runs them. The first that fails ends the run of all.
    fn work(&self) {
        while let Some(seed) = self.take() {
            if let Err(cause) = catch_unwind(|| try_seed(seed)) {
                self.stopped.store(true, Ordering::Relaxed);
                std::panic::resume_unwind(cause);
            }
            self.done.fetch_add(1, Ordering::Relaxed);
            if let Ok(mut reported) = self.reported.try_lock()
                && reported.elapsed() >= REPORT
            {
                *reported = Instant::now();
                self.report();
            }
        }
    }

    /// Past the test harness, which keeps what is printed until the end.
    fn report(&self) {
        let (done, seconds) = (self.done.load(Ordering::Relaxed), self.begun.elapsed().as_secs());
        let first = self.first;
        let _ = writeln!(std::io::stderr(), "{done} seeds from {first} on in {seconds} s");
    }
}

#[test]
fn every_seed_keeps_every_promise() {
    if let Some(seed) = setting("CORQ_SIM_SEED") {
        live(seed, Flaw::None, Checks::default(), true);
        return;
    }
    let line = Line::new();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| line.work());
        }
    });
    line.report();
}
