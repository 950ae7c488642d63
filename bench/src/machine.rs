//! The machine that figures are from.

use std::fs;

/// Describes this machine and its load in one line.
pub(crate) fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let after = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let model = after(&read("/proc/cpuinfo"), "model name");
    let memory = after(&read("/proc/meminfo"), "MemTotal");
    let kilobytes: u64 =
        memory.and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or_default();
    format!(
        "Linux {}, {cpus} CPUs ({}), {:.1} GB of memory, load {} before",
        read("/proc/sys/kernel/osrelease").trim(),
        model.as_deref().unwrap_or("model unknown"),
        kilobytes as f64 / 1e6,
        read("/proc/loadavg").split(' ').next().unwrap_or_default(),
    )
}
