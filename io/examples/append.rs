//! The floor of the log: bytes appended to a file that was written before, and nothing else. What a block costs above that is
//! corq's own work.
//!
//! `append DIRECTORY` prints, for a page and for 64 KB, the CPU time and the time of one write: into the page cache, and by
//! `O_DIRECT` with `RWF_DSYNC`, which returns when the disk has it.
#![allow(unsafe_code)] // `pwritev2`, which the standard library does not have.
#![allow(clippy::unwrap_used)] // A measuring tool: every failure ends it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

const FILE_BYTES: usize = 64 << 20;
const PAGE_BYTES: usize = 4096;

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

fn measure(name: &str, file: &File, bytes: &[u8], flags: i32, times: usize) {
    let places = FILE_BYTES / bytes.len();
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
        measure("written", &cached, &BLOCK.0[..length], 0, (1 << 30) / length);
        cached.sync_all().unwrap();
    }
    for length in [PAGE_BYTES, BLOCK.0.len()] {
        measure("synced", &direct, &BLOCK.0[..length], libc::RWF_DSYNC, 5000);
    }
    std::fs::remove_file(&path).unwrap();
}
