//! Can this machine run corq? Asked once, before anything starts.
//!
//! Collects facts, then judges them; the judgement knows no system call, so that each message can be
//! tested. Each error is one line: what is wrong, what was found, what to do.
#![allow(unsafe_code)] // Limits and affinity are system calls on plain memory.

use std::fmt;
use std::io;

use io_uring::{Probe, opcode};

use crate::ring::Ring;

/// The oldest kernel that has all that corq needs.
const KERNEL_MIN: (u32, u32) = (6, 1);
/// Bytes of locked memory that the executors ask for as a limit.
const MEMLOCK_BYTES_MIN: u64 = 512 * 1024;
/// Below this many descriptors a server of connections makes no sense.
const NOFILE_MIN: u64 = 256;
/// A limit that is none.
const UNLIMITED: u64 = libc::RLIM_INFINITY;

/// A machine that can run corq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Kernel release as the kernel says it.
    pub kernel: String,
    /// CPUs this process may run on, ascending.
    pub cpus: Vec<usize>,
    /// Descriptors that may be open at a time; already raised as far as allowed.
    pub nofile: u64,
    /// Bytes that may be locked (`u64::MAX`: no limit); already raised as far as allowed.
    pub memlock_bytes: u64,
}

/// A reason why this machine cannot run corq, as a line for its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostError(String);

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HostError {}

/// Facts about the machine, as they were found.
struct Facts {
    release: String,
    /// The sysctl `kernel.io_uring_disabled`, on kernels that have it.
    io_uring_disabled: Option<u32>,
    /// Whether a seccomp filter is in force, such as that of a container runtime; `None` if the kernel does not say.
    seccomp_filter: Option<bool>,
    /// The error number with which a ring of our kind was refused.
    ring: Result<(), i32>,
    missing_operations: Vec<&'static str>,
    cpus: Result<Vec<usize>, i32>,
    nofile: u64,
    memlock_bytes: u64,
}

/// Looks at the machine. Raises the soft limits of descriptors and locked memory to the hard ones.
pub fn probe() -> Result<Host, Vec<HostError>> {
    let ring = Ring::new(8);
    let missing_operations = ring.as_ref().map(missing_operations).unwrap_or_default();
    let refused = |error: &io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    judge(Facts {
        release: read_line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        io_uring_disabled: read_line("/proc/sys/kernel/io_uring_disabled")
            .and_then(|text| text.parse().ok()),
        seccomp_filter: read_line("/proc/self/status")
            .and_then(|status| has_seccomp_filter(&status)),
        ring: ring.map(drop).map_err(|error| refused(&error)),
        missing_operations,
        cpus: allowed_cpus().map_err(|error| refused(&error)),
        nofile: raised_limit(libc::RLIMIT_NOFILE),
        memlock_bytes: raised_limit(libc::RLIMIT_MEMLOCK),
    })
}

fn judge(facts: Facts) -> Result<Host, Vec<HostError>> {
    let mut errors = Vec::new();
    let mut wrong = |line: String| errors.push(HostError(line));
    let release = &facts.release;
    let (major, minor) = KERNEL_MIN;
    match version(release) {
        Some(found) if found < KERNEL_MIN => {
            wrong(format!(
                "kernel {release} is too old: corq needs Linux {major}.{minor} or later"
            ));
        }
        Some(_) => {}
        None => wrong(format!(
            "kernel release '{release}' is not understood: corq needs Linux {major}.{minor} or later"
        )),
    }
    if let Err(number) = facts.ring {
        wrong(ring_line(number, facts.io_uring_disabled, facts.seccomp_filter));
    }
    if !facts.missing_operations.is_empty() {
        wrong(format!(
            "io_uring lacks {}: use Linux {major}.{minor} or later, or a container runtime that allows them",
            facts.missing_operations.join(", ")
        ));
    }
    let cpus = facts.cpus.unwrap_or_else(|number| {
        wrong(format!("the allowed CPUs cannot be read: {}", io::Error::from_raw_os_error(number)));
        Vec::new()
    });
    if facts.nofile < NOFILE_MIN {
        wrong(format!(
            "only {} files may be open (ulimit -n), {NOFILE_MIN} is the least: raise the limit (systemd: LimitNOFILE=)",
            facts.nofile
        ));
    }
    if facts.memlock_bytes < MEMLOCK_BYTES_MIN {
        wrong(format!(
            "only {} KiB may be locked in memory (ulimit -l), {} KiB are needed: raise the limit (systemd: LimitMEMLOCK=, Docker: --ulimit memlock=)",
            facts.memlock_bytes / 1024,
            MEMLOCK_BYTES_MIN / 1024
        ));
    }
    if errors.is_empty() {
        let Facts { release: kernel, nofile, memlock_bytes, .. } = facts;
        Ok(Host { kernel, cpus, nofile, memlock_bytes })
    } else {
        Err(errors)
    }
}

/// Advice to let io_uring through a seccomp filter, by what sets the filter.
const SECCOMP_ADVICE: &str = "allow io_uring_setup, io_uring_enter and io_uring_register in it (Docker, Podman: --security-opt seccomp=FILE, \
     Kubernetes: a Localhost seccompProfile, both with packaging/container/seccomp.json; systemd: SystemCallFilter=@system-service)";

fn ring_line(number: i32, disabled: Option<u32>, seccomp_filter: Option<bool>) -> String {
    let refused = io::Error::from_raw_os_error(number);
    match (number, disabled) {
        (_, Some(2)) => "io_uring is disabled (kernel.io_uring_disabled = 2): set it to 0 with sysctl".into(),
        (libc::EPERM, Some(1)) => {
            "io_uring is reserved (kernel.io_uring_disabled = 1): set it to 0 with sysctl, or run with CAP_SYS_ADMIN or in the group kernel.io_uring_group".into()
        }
        (libc::EPERM | libc::EACCES | libc::ENOSYS, _) => hidden_line(number, disabled.is_some(), seccomp_filter),
        (libc::EINVAL, _) => {
            "io_uring does not know the needed setup flags (DEFER_TASKRUN, SINGLE_ISSUER): use Linux 6.1 or later".into()
        }
        (libc::ENOMEM, _) => {
            "io_uring gets no memory for its queues (ENOMEM): raise the limit of locked memory (ulimit -l) or of the container's memory".into()
        }
        (libc::EMFILE | libc::ENFILE, _) => {
            format!("io_uring gets no descriptor ({refused}): raise the limit of open files (ulimit -n)")
        }
        _ => format!("io_uring cannot be set up: {refused}"),
    }
}

/// A refusal that does not come from the kernel's own switch. Runtimes answer calls outside their profile with `EPERM`
/// (Docker) or `ENOSYS` (Podman), so the number alone does not tell a filter from a kernel without io_uring.
fn hidden_line(number: i32, has_switch: bool, seccomp_filter: Option<bool>) -> String {
    let refused = io::Error::from_raw_os_error(number);
    match (number, seccomp_filter) {
        // A kernel with the switch has io_uring, so a filter says that it has not.
        (libc::ENOSYS, Some(true)) if !has_switch => format!(
            "io_uring does not exist here ({refused}): most likely a seccomp filter, such as that of a container, hides it: {SECCOMP_ADVICE}; \
             or the kernel was built without CONFIG_IO_URING"
        ),
        (_, Some(true)) => format!(
            "io_uring is forbidden here ({refused}) by a seccomp filter, such as that of a container: {SECCOMP_ADVICE}"
        ),
        (libc::ENOSYS, _) => format!(
            "io_uring does not exist here ({refused}), and no seccomp filter hides it: use a kernel built with CONFIG_IO_URING, and no sandbox \
             without it (gVisor, WSL1)"
        ),
        (_, Some(false)) => format!(
            "io_uring is forbidden here ({refused}), but not by a seccomp filter: a security module such as SELinux must allow it"
        ),
        (_, None) => format!(
            "io_uring is forbidden here ({refused}): if it is by a seccomp filter, {SECCOMP_ADVICE}"
        ),
    }
}

/// The line `Seccomp:` of `/proc/self/status`: 0 is off, 1 strict, 2 a filter.
fn has_seccomp_filter(status: &str) -> Option<bool> {
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?;
    Some(mode.trim() != "0")
}

/// `6.1.0-13-amd64` -> (6, 1).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    }
}

fn missing_operations(ring: &Ring) -> Vec<&'static str> {
    let mut probe = Probe::new();
    // A kernel that cannot be asked is older than all of them: the probe then says "none".
    let _ = ring.submitter().register_probe(&mut probe);
    [
        ("accept", opcode::Accept::CODE),
        ("recv", opcode::Recv::CODE),
        ("send", opcode::Send::CODE),
        ("read", opcode::Read::CODE),
        ("write", opcode::Write::CODE),
        ("fsync", opcode::Fsync::CODE),
        ("poll", opcode::PollAdd::CODE),
        ("cancel", opcode::AsyncCancel::CODE),
        // Not used, but came with the kernel that multishot receive came with.
        ("send_zc", opcode::SendZc::CODE),
    ]
    .into_iter()
    .filter(|(_, code)| !probe.is_supported(*code))
    .map(|(name, _)| name)
    .collect()
}

/// CPUs the calling thread may run on, ascending.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // The kernel's set may be wider than libc's type: double until it fits.
    let mut words = vec![0_u64; 16];
    loop {
        let bytes = words.len() * 8;
        // SAFETY: the kernel writes at most `bytes` bytes into the live array; any bits are a u64.
        let result = unsafe {
            libc::syscall(libc::SYS_sched_getaffinity, 0, bytes, words.as_mut_ptr().cast::<u8>())
        };
        if result >= 0 {
            let allowed = |cpu: &usize| words[cpu / 64] >> (cpu % 64) & 1 == 1;
            return Ok((0..words.len() * 64).filter(allowed).collect());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) || words.len() >= 1 << 14 {
            return Err(error);
        }
        words = vec![0; words.len() * 2];
    }
}

/// Raises a soft limit to the hard one and returns what then holds.
fn raised_limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls work on one live struct. They cannot fail for a resource that exists; if
    // they do, the zero is below every minimum.
    unsafe {
        libc::getrlimit(resource, &raw mut limit);
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
        if limit.rlim_cur != limit.rlim_max && libc::setrlimit(resource, &raw const raised) == 0 {
            limit = raised;
        }
    }
    if limit.rlim_cur == UNLIMITED { u64::MAX } else { limit.rlim_cur }
}

fn read_line(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            release: "6.1.0-13-amd64".into(),
            io_uring_disabled: Some(0),
            seccomp_filter: Some(false),
            ring: Ok(()),
            missing_operations: vec![],
            cpus: Ok(vec![0, 3]),
            nofile: 1024,
            memlock_bytes: 8 << 20,
        }
    }

    fn lines(facts: Facts) -> Vec<String> {
        judge(facts).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn this_machine_passes() {
        let host = probe().unwrap();
        assert!(!host.cpus.is_empty());
        assert!(host.nofile >= NOFILE_MIN);
    }

    #[test]
    fn a_good_machine_passes_with_its_cpus() {
        assert_eq!(judge(good()).unwrap().cpus, vec![0, 3]);
    }

    #[test]
    fn an_old_kernel_is_named() {
        for release in ["6.0.19", "5.15.0-91-generic", "4.4"] {
            let found = lines(Facts { release: release.into(), ..good() });
            let expected = format!("kernel {release} is too old: corq needs Linux 6.1 or later");
            assert_eq!(found, vec![expected]);
        }
        for release in ["6.1", "6.18.44-fc", "10.0.1"] {
            assert!(judge(Facts { release: release.into(), ..good() }).is_ok(), "{release}");
        }
        assert_eq!(lines(Facts { release: "plan9".into(), ..good() }).len(), 1);
    }

    #[test]
    fn each_refusal_of_io_uring_says_what_to_do() {
        let line = |number, disabled| {
            let found = lines(Facts { ring: Err(number), io_uring_disabled: disabled, ..good() });
            assert_eq!(found.len(), 1);
            assert!(!found[0].contains('\n'));
            found[0].clone()
        };
        assert!(line(libc::EPERM, Some(2)).contains("kernel.io_uring_disabled = 2"));
        assert!(line(libc::EPERM, Some(1)).contains("kernel.io_uring_group"));
        assert!(line(libc::EPERM, Some(0)).contains("SELinux"));
        assert!(line(libc::ENOSYS, None).contains("CONFIG_IO_URING"));
        assert!(line(libc::EINVAL, None).contains("Linux 6.1"));
        assert!(line(libc::ENOMEM, None).contains("ulimit -l"));
        assert!(line(libc::EMFILE, None).contains("ulimit -n"));
    }

    #[test]
    fn a_refusal_by_a_seccomp_filter_says_so_whatever_its_number_is() {
        let line = |number, disabled, filter| {
            let facts = Facts {
                ring: Err(number),
                io_uring_disabled: disabled,
                seccomp_filter: filter,
                ..good()
            };
            lines(facts).remove(0)
        };
        // Podman answers ENOSYS, Docker EPERM.
        for number in [libc::ENOSYS, libc::EPERM, libc::EACCES] {
            let found = line(number, Some(0), Some(true));
            assert!(found.contains("by a seccomp filter"), "{found}");
            assert!(found.contains("packaging/container/seccomp.json"), "{found}");
            assert!(!found.contains("gVisor") && !found.contains('\n'), "{found}");
        }
        // Before Linux 6.6 there is no switch that tells a filter from a kernel without io_uring.
        let unsure = line(libc::ENOSYS, None, Some(true));
        assert!(
            unsure.contains("most likely a seccomp filter") && unsure.contains("CONFIG_IO_URING")
        );
        let hidden = line(libc::ENOSYS, None, Some(false));
        assert!(hidden.contains("gVisor") && hidden.contains("no seccomp filter"), "{hidden}");
        assert!(line(libc::EPERM, Some(0), None).contains("if it is by a seccomp filter"));
    }

    #[test]
    fn the_line_about_seccomp_is_found_in_the_status_of_a_process() {
        let status = "Name:\tcorq\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(has_seccomp_filter(status), Some(true));
        assert_eq!(has_seccomp_filter("Name:\tcorq\nSeccomp:\t0\n"), Some(false));
        assert_eq!(has_seccomp_filter("Name:\tcorq\n"), None);
    }

    #[test]
    fn low_limits_are_told_with_their_value() {
        let found = lines(Facts { nofile: 64, memlock_bytes: 65536, ..good() });
        assert!(found[0].contains("only 64 files"), "{found:?}");
        assert!(found[1].contains("only 64 KiB"), "{found:?}");
        assert!(judge(Facts { memlock_bytes: u64::MAX, ..good() }).is_ok());
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let facts = Facts { ring: Err(libc::EPERM), nofile: 1, cpus: Err(libc::EFAULT), ..good() };
        assert_eq!(lines(facts).len(), 3);
        let facts = Facts { missing_operations: vec!["recv", "send"], ..good() };
        assert!(lines(facts)[0].contains("recv, send"));
    }
}
