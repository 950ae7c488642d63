//! Where the threads of shards run, and what this machine says about that.
//!
//! A pinned shard finds its code and data in the caches of its CPU, and no other shard ever takes that CPU from it. But it
//! waits for that very CPU, also while something else runs there and another CPU is idle. Facts and their judgement are
//! apart, so that each judgement can be tested.

use std::fmt;
use std::fs;

/// Other work that keeps more than this part of the CPUs busy shares them with the shards.
const OTHER_LOAD_MAX: f64 = 0.25;

/// Where the threads of shards run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Each on a CPU of its own.
    Pinned,
    /// Each on any CPU that the process may use, as the scheduler finds best.
    Floating,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pinned => "pinned",
            Self::Floating => "floating",
        })
    }
}

/// Facts that a choice of placement depends on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Facts {
    /// Threads to place.
    pub shards: usize,
    /// CPUs that the process may use.
    pub cpus: usize,
    /// CPUs' worth of time that its control groups leave it; `None` for no limit.
    pub quota: Option<f64>,
    /// Whether a hypervisor runs this machine, and so decides when its CPUs run at all.
    pub is_virtual: bool,
    /// Tasks that run on average of the last minute; `None` if the kernel does not say.
    pub load: Option<f64>,
}

impl Facts {
    /// Looks at the machine. `cpus` and `quota` are what the process may use.
    pub fn of_machine(shards: usize, cpus: usize, quota: Option<f64>) -> Self {
        Self { shards, cpus, quota, is_virtual: is_virtual(), load: load() }
    }

    /// The better placement, and why.
    pub fn choose(&self) -> (Placement, String) {
        let Self { shards, cpus, quota, is_virtual, load } = *self;
        if shards > cpus {
            return (Placement::Floating, format!("{shards} shards share {cpus} CPUs"));
        }
        if let Some(quota) = quota.filter(|quota| *quota < cpus as f64) {
            return (Placement::Floating, format!("there is time for {quota:.1} of {cpus} CPUs"));
        }
        if is_virtual {
            return (Placement::Floating, "a virtual machine shares its CPUs with others".into());
        }
        match load {
            Some(load) if load > OTHER_LOAD_MAX * cpus as f64 => {
                (Placement::Floating, format!("other work runs here (load {load:.1})"))
            }
            _ => (Placement::Pinned, "the CPUs seem to be its own".into()),
        }
    }
}

fn is_virtual() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| names_hypervisor(&text))
        || fs::read_to_string("/sys/hypervisor/type").is_ok()
}

/// x86 has a flag for it. Elsewhere only some hypervisors can be told.
fn names_hypervisor(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

fn load() -> Option<f64> {
    first_load(&fs::read_to_string("/proc/loadavg").ok()?)
}

/// `0.52 0.58 0.59 1/467 12345`.
fn first_load(loadavg: &str) -> Option<f64> {
    loadavg.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const OWN: Facts =
        Facts { shards: 8, cpus: 8, quota: None, is_virtual: false, load: Some(0.3) };

    #[test]
    fn shards_are_pinned_only_where_the_cpus_are_their_own() {
        assert_eq!(OWN.choose().0, Placement::Pinned);
        assert_eq!(Facts { load: None, ..OWN }.choose().0, Placement::Pinned);
        assert_eq!(Facts { shards: 2, ..OWN }.choose().0, Placement::Pinned);
        let shared = [
            (Facts { shards: 9, ..OWN }, "9 shards share 8 CPUs"),
            (Facts { quota: Some(2.5), ..OWN }, "there is time for 2.5 of 8 CPUs"),
            (Facts { is_virtual: true, ..OWN }, "a virtual machine shares its CPUs with others"),
            (Facts { load: Some(2.5), ..OWN }, "other work runs here (load 2.5)"),
        ];
        for (facts, why) in shared {
            assert_eq!(facts.choose(), (Placement::Floating, why.to_owned()));
        }
        assert_eq!(Facts { quota: Some(8.0), ..OWN }.choose().0, Placement::Pinned);
    }

    #[test]
    fn a_hypervisor_and_the_load_are_read_as_the_kernel_writes_them() {
        assert!(names_hypervisor("processor\t: 0\nflags\t\t: fpu hypervisor sse\n"));
        assert!(!names_hypervisor("processor\t: 0\nflags\t\t: fpu nohypervisor\n"));
        assert!(!names_hypervisor("Features\t: fp asimd\n"));
        assert_eq!(first_load("0.52 0.58 0.59 1/467 12345\n"), Some(0.52));
        assert_eq!(first_load(""), None);
    }
}
