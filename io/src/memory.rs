//! How much memory the process has.

use std::fs;

/// Resident memory of the process in bytes; 0 if the kernel does not say. A read of a few
/// microseconds from a file that is no disk's.
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kilobytes.unwrap_or(0_u64) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_knows_its_memory() {
        let before = resident_bytes();
        let held = std::hint::black_box(vec![1_u8; 32 << 20]);
        let after = resident_bytes();
        assert!(before > 1 << 20 && after > before + (16 << 20), "{before} then {after}");
        drop(held);
    }
}
