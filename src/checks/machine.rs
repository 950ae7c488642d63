//! The machine: what a server may use of it, and what makes it slow or unsafe.

use super::Finding;
use crate::units;
use corq_io::cgroup;
use corq_io::host::Host;
use corq_io::machine_facts::{self, FileSystem};
use std::path::Path;

/// Fewer open files than this leave room for few connections.
const FILES_FEW: u64 = 16_384;
/// Less room than this is soon filled.
const FREE_FEW_BYTES: u64 = 2 << 30;

/// Findings on the limits that the kernel grants a process on this machine.
pub fn of_host(host: &Host) -> Vec<Finding> {
    let memlock = match host.memlock_bytes {
        u64::MAX => "no limit".to_owned(),
        bytes => units::bytes(bytes as f64),
    };
    let quota = cgroup::cpu_quota();
    let mut findings = vec![
        Finding::good("kernel", host.kernel.clone()),
        Finding::good("io_uring", "all that is needed"),
        files(host.nofile),
        Finding::good("locked memory", memlock),
        cpus(host.cpus.len(), machine_facts::cpus_online(), quota),
    ];
    findings.extend(huge_pages());
    findings
}

fn files(nofile: u64) -> Finding {
    let found = format!("{nofile} at a time");
    if nofile < FILES_FEW {
        let advice = "one per connection and one per file of the log: raise the limit (ulimit -n; \
                      systemd: LimitNOFILE=)";
        return Finding::warning("open files", found, advice);
    }
    Finding::good("open files", found)
}

fn cpus(allowed: usize, online: Option<usize>, quota: Option<f64>) -> Finding {
    let of = online.map(|online| format!(" of {online}")).unwrap_or_default();
    let found = format!("{allowed}{of}");
    match quota {
        Some(quota) if quota < allowed as f64 => {
            let found = format!("{found}, with time for {}", units::figure(quota));
            if quota < 1.0 {
                let advice = "the server would be stopped in the middle of its work: give it one CPU's time at least, \
                              or CPUs of its own (cpuset) instead of a share (cpu.max)";
                return Finding::warning("CPUs", found, advice);
            }
            let shards = cgroup::cpus_with_time(allowed, Some(quota));
            let found = format!("{found}: {shards} shards, unless SHARDS says otherwise");
            Finding::good("CPUs", found)
        }
        _ => Finding::good("CPUs", found),
    }
}

/// Whether the kernel gives memory in huge pages unasked.
pub fn huge_pages() -> Option<Finding> {
    let mode = machine_facts::huge_pages()?;
    Some(if mode == "always" {
        Finding::warning(
            "huge pages",
            "always",
            "memory may grow beyond what is used: echo madvise > \
             /sys/kernel/mm/transparent_hugepage/enabled",
        )
    } else {
        Finding::good("huge pages", mode)
    })
}

/// Whether something keeps the clock in step.
pub fn clock() -> Option<Finding> {
    Some(if machine_facts::clock_is_synchronised()? {
        Finding::good("clock", "kept in step")
    } else {
        let advice = "delays and schedules follow it: run chrony or systemd-timesyncd";
        Finding::warning("clock", "nothing keeps it in step", advice)
    })
}

/// The file system of a directory, and how much room there is.
pub fn disk(path: &Path, found: &FileSystem) -> [Finding; 2] {
    let shown = path.display();
    let kind = match found.kind.as_str() {
        "tmpfs" => Finding::warning(
            "file system",
            format!("{shown} is on tmpfs"),
            "nothing on it survives a restart of the machine: set DATA_PATH to a disk",
        ),
        "nfs" | "smb" | "fuse" => Finding::warning(
            "file system",
            format!("{shown} is on {}", found.kind),
            "the log wants a local file system; ext4 and XFS are known to work",
        ),
        kind => Finding::good("file system", format!("{shown} is on {kind}")),
    };
    let free = units::bytes(found.free_bytes as f64);
    let room = if found.free_bytes < FREE_FEW_BYTES {
        let advice = "a server without room refuses pushes and all else that is new, while pulls and \
                      acknowledgements go on: make room";
        Finding::warning("free space", free, advice)
    } else {
        Finding::good("free space", free)
    };
    [kind, room]
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_share_of_the_cpus_is_worth_a_word() {
        assert_eq!(cpus(4, Some(8), None).verdict, Verdict::Good);
        assert_eq!(cpus(4, Some(8), Some(4.0)).verdict, Verdict::Good);
        let shared = cpus(4, Some(8), Some(2.5));
        assert_eq!(shared.verdict, Verdict::Good);
        assert!(shared.found.contains("2 shards"), "{}", shared.found);
        let throttled = cpus(4, Some(8), Some(0.5));
        assert_eq!(throttled.verdict, Verdict::Warning);
        assert!(throttled.advice.contains("cpu.max"), "{}", throttled.advice);
    }

    #[test]
    fn few_files_and_little_room_are_told_with_what_to_do() {
        assert_eq!(files(1024).verdict, Verdict::Warning);
        assert_eq!(files(1 << 20).verdict, Verdict::Good);
        let on = |kind: &str, free_bytes: u64| {
            let found = FileSystem { kind: kind.to_owned(), free_bytes, total_bytes: 1 << 40 };
            disk(Path::new("/data"), &found).map(|it| it.verdict)
        };
        assert_eq!(on("ext4", 1 << 40), [Verdict::Good; 2]);
        assert_eq!(on("tmpfs", 1 << 20), [Verdict::Warning; 2]);
    }
}
