//! Resources that a process has used, read from `/proc`. CPU time per job is the figure that holds on a machine that
//! the server shares with its load generator.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// A reading of the server's process.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    /// utime, in the kernel's ticks of 10 ms.
    pub(crate) user_us: f64,
    /// utime + stime, in the same ticks.
    cpu_ticks_us: f64,
    /// The sum over its threads, in nanoseconds, where the kernel keeps it.
    cpu_threads_us: f64,
    pub(crate) rss_bytes: u64,
}

impl Usage {
    pub(crate) fn read(pid: u32) -> Result<Self, String> {
        let stat = read(&format!("/proc/{pid}/stat"))?;
        // The name in brackets may hold anything, so fields are counted from its end.
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
        let (Some(user), Some(system)) = (ticks(11), ticks(12)) else {
            return Err(format!("/proc/{pid}/stat is not what it should be"));
        };
        let tick_us = 1e6 / rustix::param::clock_ticks_per_second() as f64;
        Ok(Self {
            user_us: user * tick_us,
            cpu_ticks_us: (user + system) * tick_us,
            cpu_threads_us: threads_us(pid),
            rss_bytes: rss_bytes(pid)?,
        })
    }

    /// CPU time from `before` to this reading. Ticks are coarse, and threads that end take their
    /// time with them; so the threads are believed unless they fall short of the ticks.
    pub(crate) fn cpu_us_since(&self, before: &Self) -> f64 {
        let ticks = self.cpu_ticks_us - before.cpu_ticks_us;
        let threads = self.cpu_threads_us - before.cpu_threads_us;
        if threads + 20_000.0 < ticks { ticks } else { threads }
    }
}

/// Resources that a server used in the measured spans of a run.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) user_us: f64,
    pub(crate) cpu_us: f64,
    pub(crate) rss_bytes_before: u64,
    pub(crate) rss_bytes_after: u64,
}

impl Spent {
    pub(crate) fn between(before: &Usage, after: &Usage) -> Self {
        Self {
            user_us: after.user_us - before.user_us,
            cpu_us: after.cpu_us_since(before),
            rss_bytes_before: before.rss_bytes,
            rss_bytes_after: after.rss_bytes,
        }
    }

    /// Adds a later span.
    pub(crate) fn and(self, later: Self) -> Self {
        Self {
            user_us: self.user_us + later.user_us,
            cpu_us: self.cpu_us + later.cpu_us,
            rss_bytes_after: later.rss_bytes_after,
            ..self
        }
    }
}

/// The CPU time that this process has used so far, in microseconds.
pub(crate) fn own_cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn threads_us(pid: u32) -> f64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0.0 };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<f64>().ok())
        .sum::<f64>()
        / 1e3
}

fn rss_bytes(pid: u32) -> Result<u64, String> {
    let status = read(&format!("/proc/{pid}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok())
        .map(|kilobytes: u64| kilobytes << 10)
        .ok_or_else(|| format!("/proc/{pid}/status has no VmRSS"))
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_as_cpu_time_of_this_process() {
        let before = Usage::read(std::process::id()).expect("our own process can be read");
        let own = own_cpu_us();
        while own_cpu_us() < own + 50_000.0 {}
        let after = Usage::read(std::process::id()).expect("our own process can be read");
        assert!(after.cpu_us_since(&before) > 25_000.0);
        assert!(after.rss_bytes > 0);
    }
}
