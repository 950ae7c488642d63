//! The floor of the log: bytes appended to a file that was written before, and nothing else. What a block costs above that is
//! corq's own work.
//!
//! `append DIRECTORY` prints the CPU time and the time of one write: a page and 64 KB into the page cache, and by `O_DIRECT` with
//! `RWF_DSYNC`, which returns when the disk has it; then 64 KB and 1 MB into a file that is new, whose pages the kernel has yet to find.
#![allow(unsafe_code)] // `pwritev2`, which the standard library does not have.
#![allow(clippy::unwrap_used)] // A measuring tool: every failure ends it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

const FILE_BYTES: usize = 64 << 20;
const NEW_FILE_BYTES: usize = 500_000_000;
const PAGE_BYTES: usize = 4096;
const LARGE_BYTES: usize = 1 << 20;

/// Memory that begins at a page, as `O_DIRECT` wants it.
#[repr(align(4096))]
struct Block([u8; 64 << 10]);

static BLOCK: Block = Block([2; 64 << 10]);

fn cpu_us() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1000.0
}

fn write(file: &File, bytes: &[u8], offset: usize, flags: i32) {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: the vector names `bytes`, which are only read and live until the call returns.
    let written =
        unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, offset as i64, flags) };
    assert_eq!(written, bytes.len() as isize, "{}", std::io::Error::last_os_error());
}

/// Writes round and round in a file of so many bytes.
fn measure(name: &str, file: &File, file_bytes: usize, bytes: &[u8], flags: i32, times: usize) {
    let places = file_bytes / bytes.len();
    let (cpu, began) = (cpu_us(), Instant::now());
    for n in 0..times {
        write(file, bytes, n % places * bytes.len(), flags);
    }
    let each = |us: f64| us / times as f64;
    let (cpu, time) = (each(cpu_us() - cpu), each(began.elapsed().as_secs_f64() * 1e6));
    println!("{name} {}: {cpu:.2} us of CPU, {time:.2} us", bytes.len());
}

fn main() {
    let directory = std::env::args().nth(1).expect("append DIRECTORY");
    let path = Path::new(&directory).join("append");
    let mut cached = File::create(&path).unwrap();
    (0..FILE_BYTES / PAGE_BYTES).for_each(|_| cached.write_all(&[1; PAGE_BYTES]).unwrap());
    cached.sync_all().unwrap();
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    for length in [PAGE_BYTES, BLOCK.0.len()] {
        let block = &BLOCK.0[..length];
        measure("written", &cached, FILE_BYTES, block, 0, (1 << 30) / length);
        cached.sync_all().unwrap();
    }
    for length in [PAGE_BYTES, BLOCK.0.len()] {
        measure("synced", &direct, FILE_BYTES, &BLOCK.0[..length], libc::RWF_DSYNC, 5000);
    }
    std::fs::remove_file(&path).unwrap();
    let large = vec![3; LARGE_BYTES];
    // Both stay until the end: pages that one gives back would be the other's.
    for bytes in [&large, &BLOCK.0[..]] {
        let new = File::create(path.with_extension(bytes.len().to_string())).unwrap();
        measure("new", &new, NEW_FILE_BYTES, bytes, 0, NEW_FILE_BYTES / bytes.len());
    }
    for length in [LARGE_BYTES, BLOCK.0.len()] {
        std::fs::remove_file(path.with_extension(length.to_string())).unwrap();
    }
}
