//! Runs seeds, each twice: it must do the same twice and break no promise.
//!
//! ```text
//! CORQ_SIM_SEEDS=n     so many seeds            CORQ_SIM_FIRST=k   beginning with seed k
//! CORQ_SIM_SECONDS=s   until the time is up     CORQ_SIM_SEED=n    one seed, printing all that happens
//! ```
//!
//! Beside them `fleet` searches a model of the logs in a database, which needs no seeds.

mod canaries;
mod fleet;

use corq_sim::check::{Check, Checks};
use corq_sim::played::{ALL, NOT_PLAYED, Played};
use corq_sim::settings::Flaw;
use corq_sim::{Life, live};
use std::io::Write;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Seeds of a run that nobody asked for more of.
const SEEDS: u64 = 3000;

/// How often a long run says how far it is, so that a reader knows when he stops it.
const REPORT: Duration = Duration::from_mins(1);

const DAY: Duration = Duration::from_hours(24);

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text}")))
}

/// Runs a seed twice, and returns what one of its lives came to.
fn try_seed(seed: u64) -> Life {
    let run = || live(seed, Flaw::None, Checks::default(), false);
    let twice = catch_unwind(|| (run(), run()));
    let how = format!("make sim SEED={seed}");
    let Ok((one, other)) = twice else { panic!("seed {seed} failed; run it alone: {how}") };
    assert_eq!(one, other, "two runs of seed {seed} differ: {how}");
    one
}

/// Sums over many seeds, each counted once.
#[derive(Default)]
struct Sums {
    seeds: AtomicU64,
    lived_ms: AtomicU64,
    jobs: AtomicU64,
    restarts: AtomicU64,
    power_losses: AtomicU64,
    set_back: AtomicU64,
}

impl Sums {
    fn add(&self, life: &Life) {
        let Life { hash: _, lived_ms, jobs, restarts, power_losses, set_back, played: _ } = *life;
        for (sum, more) in [
            (&self.seeds, 1),
            (&self.lived_ms, lived_ms),
            (&self.jobs, jobs),
            (&self.restarts, restarts),
            (&self.power_losses, power_losses),
            (&self.set_back, set_back),
        ] {
            sum.fetch_add(more, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Display for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sum = |of: &AtomicU64| of.load(Ordering::Relaxed);
        write!(
            f,
            "{} seeds lived {:.2} days of virtual time with {} jobs, {} restarts, \
             of these {} after a loss of power; {} logs were written by a clock that was ahead",
            sum(&self.seeds),
            Duration::from_millis(sum(&self.lived_ms)).as_secs_f64() / DAY.as_secs_f64(),
            sum(&self.jobs),
            sum(&self.restarts),
            sum(&self.power_losses),
            sum(&self.set_back)
        )
    }
}

/// Seeds that several threads take from one line.
struct Line {
    first: u64,
    seeds: u64,
    until: Option<Instant>,
    next: AtomicU64,
    sums: Sums,
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
            sums: Sums::default(),
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
            match catch_unwind(|| try_seed(seed)) {
                Ok(life) => self.sums.add(&life),
                Err(cause) => {
                    self.stopped.store(true, Ordering::Relaxed);
                    std::panic::resume_unwind(cause);
                }
            }
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
        let (seconds, first) = (self.begun.elapsed().as_secs(), self.first);
        let _ = writeln!(std::io::stderr(), "from {first} on, in {seconds} s: {}", self.sums);
    }
}

#[test]
fn everything_that_clients_can_ask_for_is_played() {
    let mut played = Played::default();
    let check_nothing = Checks { only: Some(Check::Log) };
    for seed in 0..40 {
        played.0.extend(live(seed, Flaw::None, check_nothing, false).played.0);
    }
    let unknown: Vec<_> = played.0.iter().filter(|what| !ALL.contains(what)).collect();
    assert!(unknown.is_empty(), "not listed: {unknown:?}");
    let missing = ALL.iter().filter(|what| !played.0.contains(*what));
    let missing: Vec<_> = missing.copied().collect();
    let excused: Vec<_> = ALL.iter().copied().filter(|what| NOT_PLAYED.contains(what)).collect();
    assert_eq!(missing, excused);
}

#[test]
fn every_seed_keeps_every_promise() {
    if let Some(seed) = setting("CORQ_SIM_SEED") {
        let sums = Sums::default();
        sums.add(&live(seed, Flaw::None, Checks::default(), true));
        eprintln!("{sums}");
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
