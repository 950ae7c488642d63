//! CPU time that the control groups of this process leave it, in both versions of control groups.
//!
//! A quota is time, not CPUs: a process that has used its part of a period is stopped as a whole until the next one, up
//! to a tenth of a second later. Shards that never get more CPUs' worth of time than they are do not meet that.

use std::fs;
use std::path::Path;

/// Where control groups are mounted: version 2 alone, and beside version 1.
const MOUNTS_2: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];
/// Where the groups of CPU time are in version 1.
const MOUNTS_1: [&str; 2] = ["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"];

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

/// CPU quota on a machine whose files are below `root`. Each group is bounded by all above it as well.
fn quota_below(root: &Path) -> Option<f64> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let groups = own.lines().filter_map(|line| {
        // `0::/a/b`, or `4:cpu,cpuacct:/a/b`.
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let quotas = groups.filter_map(|(controllers, group)| match controllers {
        "" => least(root, &MOUNTS_2, group, quota_2),
        names if names.split(',').any(|name| name == "cpu") => {
            least(root, &MOUNTS_1, group, quota_1)
        }
        _ => None,
    });
    quotas.min_by(f64::total_cmp)
}

/// The least quota of a group and those above it. Within a container the group may be the root of what is mounted,
/// whatever it is called outside.
fn least(
    root: &Path,
    mounts: &[&str],
    group: &str,
    quota: fn(&Path) -> Option<f64>,
) -> Option<f64> {
    let groups = Path::new(group).ancestors();
    let groups = groups.map(|group| group.strip_prefix("/").unwrap_or(group));
    let quotas = groups.flat_map(|group| {
        mounts.iter().filter_map(move |mount| quota(&root.join(mount).join(group)))
    });
    quotas.min_by(f64::total_cmp)
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The quota of a machine with these files.
    fn quota(files: &[(&str, &str)]) -> Option<f64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        quota_below(root.path())
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
        for mount in MOUNTS_1 {
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
