//! The fear: a start refuses a damaged log and names another place, or another cause, than a look at it does; people
//! then look where nothing is wrong.

use super::*;
use corq_io::log::{BlockingDisk, Subject, inspect, shard_path};
use std::fs;
use std::ops::ControlFlow::Continue;
use std::path::{Path, PathBuf};

/// Writes a few segments more.
fn life(dir: &Path, byte: u8, ends_clean: bool) {
    let config = config(Mode::Written);
    let disk = BlockingDisk::open(dir, config.shard).unwrap();
    let (mut log, _) = Log::open(&config, disk, |_, _| Ok::<_, Infallible>(())).unwrap();
    for turn in 0..25 {
        log.append(7000).1.fill(byte);
        log.flush(turn * 20).unwrap();
    }
    for now_ms in [2000, 4000, 6000] {
        log.flush(now_ms).unwrap();
    }
    while ends_clean && !log.close(7000).unwrap() {}
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(shard_path(dir, 3)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = paths.filter(|it| it.extension().unwrap() == "seg").collect();
    found.sort();
    found
}

/// Where its blocks begin, and which of them is the last.
fn blocks(bytes: &[u8]) -> Vec<usize> {
    let mut at = 4096;
    let mut found = Vec::new();
    while bytes.get(at..at + 4) == Some(b"CQBK") {
        found.push(at);
        at += u32::from_le_bytes(bytes[at + 44..at + 48].try_into().unwrap()) as usize;
    }
    found
}

/// Of each segment of a log that was started three times, each block changed, blotted out, or without its header.
#[test]
fn a_start_and_a_look_name_the_same_place() {
    for ends_clean in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        (1..4).for_each(|byte| life(dir.path(), byte, ends_clean));
        let directory = shard_path(dir.path(), 3);
        let mut refused = 0;
        for file in files(dir.path()) {
            let whole = fs::read(&file).unwrap();
            let blocks = blocks(&whole);
            for (at, next) in blocks.iter().zip(blocks.iter().skip(1).chain([&whole.len()])) {
                for damage in 0..3 {
                    let mut bytes = whole.clone();
                    match damage {
                        0 if next - at <= 64 => continue, // it has no records
                        0 => bytes[at + 70] ^= 1,
                        1 => bytes[*at..(*next).min(at + 8192)].fill(0),
                        _ => bytes[at + 8] ^= 1,
                    }
                    fs::write(&file, &bytes).unwrap();
                    let subject = Subject {
                        directory: &directory,
                        shard: 3,
                        log_id: 0,
                        is_begun: true,
                        until: None,
                    };
                    let looked = inspect(subject, |_| Continue(())).unwrap();
                    let mut disk = BlockingDisk::open(dir.path(), 3).unwrap();
                    let start = Log::replay(&config(Mode::Written), &mut disk, |_, _| {
                        Ok::<_, Infallible>(())
                    });
                    let seen = looked.damages.first().map(|it| (it.file.clone(), it.offset));
                    let said = match start {
                        Ok(_) => None,
                        Err(OpenError::Damaged { file, offset, .. }) => Some((file, offset)),
                        Err(error) => panic!("{error}"),
                    };
                    assert_eq!(said, seen, "{}, block at {at}, {damage}", file.display());
                    if let Some((said, offset)) = said {
                        let here = file.file_name().unwrap().to_str().unwrap();
                        assert_eq!((&*said, offset), (here, *at as u64), "{damage}");
                        refused += 1;
                    }
                }
            }
            fs::write(&file, &whole).unwrap();
        }
        assert!(refused > 100, "{refused}");
    }
}
