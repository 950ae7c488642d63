//! Facts about this machine that are worth knowing to an operator although corq runs without them: the disk, the clock,
//! the share of the CPUs. The caller judges what they mean.
#![allow(unsafe_code)] // Clock state and file systems are system calls on plain memory.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of one write whose sync is timed: a small block of the log.
const BLOCK: [u8; 4096] = [0x5a; 4096];

/// The file system that a directory is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Kind of the file system, as `ext4`; in hex where the kind has no name here.
    pub kind: String,
    /// Bytes that an ordinary user may still write.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// Looks at the file system of a path that exists.
pub fn file_system(path: &Path) -> io::Result<FileSystem> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut found = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a text that ends with zero, and room for what the kernel writes.
    let result = unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled it, as its answer says.
    let found = unsafe { found.assume_init() };
    #[allow(clippy::unnecessary_cast, reason = "the widths differ between architectures")]
    let (kind, unit) = (found.f_type as u64 & 0xffff_ffff, found.f_bsize as u64);
    Ok(FileSystem {
        kind: kind_name(kind),
        free_bytes: found.f_bavail.saturating_mul(unit),
        total_bytes: found.f_blocks.saturating_mul(unit),
    })
}

/// The kinds that logs are likely to be put on, wisely or not.
fn kind_name(kind: u64) -> String {
    let name = match kind {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlay",
        0x6969 => "nfs",
        0xff53_4d42 | 0xfe53_4d42 => "smb",
        0x6573_5546 => "fuse",
        _ => return format!("{kind:#x}"),
    };
    name.to_owned()
}

/// Writes and syncs blocks of 4 KB in a file of its own in `directory`, which is removed, and tells how
/// long each took, shortest first. Like the log, it overwrites a file whose space is there already.
pub fn sync_times(directory: &Path, blocks: usize) -> io::Result<Vec<Duration>> {
    let path = directory.join(format!(".corq-doctor-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let times = timed(file, blocks);
    fs::remove_file(&path)?;
    times
}

fn timed(mut file: File, blocks: usize) -> io::Result<Vec<Duration>> {
    for _ in 0..blocks {
        file.write_all(&BLOCK)?;
    }
    file.sync_all()?;
    io::Seek::rewind(&mut file)?;
    let mut times = Vec::with_capacity(blocks);
    for _ in 0..blocks {
        let began = Instant::now();
        file.write_all(&BLOCK)?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

/// Whether something keeps the machine's clock in step with the world's; `None` if the kernel does not
/// say.
pub fn clock_is_synchronised() -> Option<bool> {
    let mut state = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zero is a request that changes nothing; the kernel fills the rest.
    let result = unsafe { libc::adjtimex(state.as_mut_ptr()) };
    // SAFETY: zeroed above, and every bit pattern is a `timex`.
    let state = unsafe { state.assume_init() };
    (result >= 0).then_some(result != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0)
}

/// The mode of transparent huge pages: `always`, `madvise` or `never`.
pub fn huge_pages() -> Option<String> {
    let modes = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    chosen(&modes).map(str::to_owned)
}

/// `always [madvise] never` -> `madvise`.
fn chosen(modes: &str) -> Option<&str> {
    Some(modes.split_once('[')?.1.split_once(']')?.0)
}

/// CPUs that this machine has switched on.
pub fn cpus_online() -> Option<usize> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()? + 1 - first.parse::<usize>().ok()?)
    };
    list.trim().split(',').map(count).sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_timed_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let times = sync_times(directory.path(), 5).unwrap();
        assert_eq!(times.len(), 5);
        assert!(times.is_sorted() && times[0] > Duration::ZERO);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(sync_times(&directory.path().join("nowhere"), 1).is_err());
    }

    #[test]
    fn the_file_system_tells_its_kind_and_room() {
        let found = file_system(Path::new("/")).unwrap();
        assert!(!found.kind.is_empty() && found.free_bytes <= found.total_bytes);
        assert_eq!(
            file_system(Path::new("/proc/nowhere")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!((kind_name(0xef53).as_str(), kind_name(7).as_str()), ("ext4", "0x7"));
    }

    #[test]
    fn what_the_kernel_prints_is_understood() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("odd"), None);
        assert!(cpus_online().is_none_or(|cpus| cpus > 0));
    }
}
