//! CPU time and memory that the control groups of this process leave it, in both versions of control groups.
//!
//! A quota is time, not CPUs: a process that has used its part of a period is stopped as a whole until the next one, up
//! to a tenth of a second later. Shards that never get more CPUs' worth of time than they are do not meet that.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted: version 2 alone, and beside version 1.
const MOUNTS_2: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];
/// Where the groups of CPU time are in version 1.
const CPU_MOUNTS_1: [&str; 2] = ["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"];
/// Where the groups of memory are in version 1.
const MEMORY_MOUNTS_1: [&str; 1] = ["sys/fs/cgroup/memory"];

/// CPUs' worth of time that the control groups of this process leave it; `None` for no limit.
pub fn cpu_quota() -> Option<f64> {
    quota_below(Path::new("/"))
}

/// How many of so many CPUs there is time for all the time: at least one.
pub fn cpus_with_time(allowed: usize, quota: Option<f64>) -> usize {
    match quota {
        Some(quota) if quota < allowed as f64 => (quota.floor() as usize).max(1),
        _ => allowed,
    }
}

/// Memory that a process may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLimit {
    /// All of it.
    pub bytes: u64,
    /// Whether a control group has less than the machine.
    pub is_of_group: bool,
}

/// Memory of the machine, or of the control groups of this process if they leave it less; `None` if the system does not say.
pub fn memory_limit() -> Option<MemoryLimit> {
    memory_below(Path::new("/"))
}

/// CPU quota on a machine whose files are below `root`.
fn quota_below(root: &Path) -> Option<f64> {
    let groups = groups(root, "cpu", &CPU_MOUNTS_1);
    let quotas = groups.iter().filter_map(|group| quota_2(group).or_else(|| quota_1(group)));
    quotas.min_by(f64::total_cmp)
}

/// Memory on a machine whose files are below `root`.
fn memory_below(root: &Path) -> Option<MemoryLimit> {
    let groups = groups(root, "memory", &MEMORY_MOUNTS_1);
    let of_groups = groups.iter().filter_map(|group| memory_of(group)).min();
    let of_groups = of_groups.map(|bytes| MemoryLimit { bytes, is_of_group: true });
    let of_machine = total(root).map(|bytes| MemoryLimit { bytes, is_of_group: false });
    of_machine.into_iter().chain(of_groups).min_by_key(|limit| limit.bytes)
}

/// Directories of the control groups that share `controller` out to this process: its own and all above, each of which bounds
/// it. Within a container the group may be the root of what is mounted, whatever it is called outside.
fn groups(root: &Path, controller: &str, mounts_1: &[&str]) -> Vec<PathBuf> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut directories = Vec::new();
    for line in own.lines() {
        // `0::/a/b`, or `4:cpu,cpuacct:/a/b`.
        let rest = line.split_once(':').and_then(|(_, rest)| rest.split_once(':'));
        let Some((controllers, group)) = rest else { continue };
        let mounts = match controllers {
            "" => &MOUNTS_2[..],
            names if names.split(',').any(|name| name == controller) => mounts_1,
            _ => continue,
        };
        for group in Path::new(group).ancestors() {
            let group = group.strip_prefix("/").unwrap_or(group);
            directories.extend(mounts.iter().map(|mount| root.join(mount).join(group)));
        }
    }
    directories
}

/// `200000 100000` is 2, `max 100000` no limit.
fn quota_2(group: &Path) -> Option<f64> {
    let limit = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (time, period) = limit.trim().split_once(' ')?;
    ratio(time, period)
}

/// A quota of -1 is no limit.
fn quota_1(group: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    ratio(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
}

fn ratio(time: &str, period: &str) -> Option<f64> {
    let [time, period] =
        [time, period].map(|text| text.trim().parse::<u64>().ok().filter(|it| *it > 0));
    Some(time? as f64 / period? as f64)
}

/// `max` is no limit. Version 1 writes more bytes than any machine has.
fn memory_of(group: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    read("memory.max").or_else(|| read("memory.limit_in_bytes"))?.trim().parse().ok()
}

/// Memory of the machine.
fn total(root: &Path) -> Option<u64> {
    let facts = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let total = facts.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The root of a machine with these files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn quota(files: &[(&str, &str)]) -> Option<f64> {
        quota_below(machine(files).path())
    }

    /// Bytes of a machine with these files, and whether a control group says so.
    fn memory(files: &[(&str, &str)]) -> Option<(u64, bool)> {
        memory_below(machine(files).path()).map(|limit| (limit.bytes, limit.is_of_group))
    }

    #[test]
    fn version_2_is_bounded_by_the_own_group_and_by_all_above_it() {
        let own = ("proc/self/cgroup", "0::/a.slice/b.service\n");
        assert_eq!(
            quota(&[own, ("sys/fs/cgroup/a.slice/b.service/cpu.max", "150000 100000\n")]),
            Some(1.5)
        );
        let files = [
            own,
            ("sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a.slice/cpu.max", "400000 50000\n"),
            ("sys/fs/cgroup/cpu.max", "900000 100000\n"),
        ];
        assert_eq!(quota(&files), Some(8.0));
        assert_eq!(quota(&files[..2]), None);
    }

    #[test]
    fn in_a_container_the_group_is_the_root_of_what_is_mounted() {
        for own in ["0::/\n", "0::/docker/17\n", "0::/../other\n"] {
            let files = [("proc/self/cgroup", own), ("sys/fs/cgroup/cpu.max", "200000 100000\n")];
            assert_eq!(quota(&files), Some(2.0), "{own}");
        }
    }

    #[test]
    fn version_1_has_a_quota_and_a_period() {
        let own = ("proc/self/cgroup", "12:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/b\n");
        for mount in CPU_MOUNTS_1 {
            let path = |name: &str| format!("{mount}/a/{name}");
            let (time, period) = (path("cpu.cfs_quota_us"), path("cpu.cfs_period_us"));
            let of = |text| quota(&[own, (time.as_str(), text), (period.as_str(), "100000\n")]);
            assert_eq!((of("250000\n"), of("-1\n")), (Some(2.5), None), "{mount}");
        }
    }

    #[test]
    fn of_both_versions_at_once_the_less_counts() {
        let files = [
            ("proc/self/cgroup", "4:cpu:/a\n0::/a\n"),
            ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000"),
            ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000"),
            ("sys/fs/cgroup/unified/a/cpu.max", "700000 100000"),
        ];
        assert_eq!(quota(&files), Some(3.0));
    }

    #[test]
    fn what_cannot_be_understood_is_no_limit() {
        assert_eq!(quota(&[]), None);
        for text in ["", "max", "1", "0 100000", "100000 0", "-5 100000", "a b"] {
            let files = [("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.max", text)];
            assert_eq!(quota(&files), None, "{text}");
        }
    }

    #[test]
    fn memory_is_that_of_the_machine_or_the_least_of_the_own_group_and_all_above_it() {
        let files = [
            ("proc/meminfo", "MemTotal:        4096 kB\nMemFree:          100 kB\n"),
            ("proc/self/cgroup", "5:memory:/v1\n0::/a.slice/b.service\n"),
            ("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/a.slice/memory.max", "3000000\n"),
            ("sys/fs/cgroup/memory/v1/memory.limit_in_bytes", "2000000\n"),
            ("sys/fs/cgroup/unified/a.slice/memory.max", "1000000\n"),
        ];
        for (count, expected) in [
            (1, (4096 << 10, false)),
            (4, (4096 << 10, false)),
            (5, (3_000_000, true)),
            (6, (2_000_000, true)),
            (7, (1_000_000, true)),
        ] {
            assert_eq!(memory(&files[..count]), Some(expected), "{count}");
        }
        let [_, own @ .., _] = &files;
        assert_eq!(memory(own), Some((2_000_000, true)), "a machine that does not say what it has");
        assert_eq!(memory(&[("proc/meminfo", "MemTotal: many kB\n")]), None);
        assert_eq!(memory(&[]), None);
    }

    #[test]
    fn there_is_a_shard_for_each_cpu_that_has_time_all_the_time() {
        for (allowed, quota, cpus) in [
            (8, None, 8),
            (8, Some(2.0), 2),
            (8, Some(2.9), 2),
            (8, Some(0.25), 1),
            (2, Some(7.0), 2),
            (1, Some(1.0), 1),
        ] {
            assert_eq!(cpus_with_time(allowed, quota), cpus, "{allowed} {quota:?}");
        }
    }
}
