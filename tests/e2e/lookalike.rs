//! The fear: a job's data looks like a part of the log, and where it is left behind in a file that is used again, a later
//! start takes it for one. And what was lost of the newest blocks is not missed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::e2e::space::small;
use crate::support::tool::Tool;
use crate::support::{Server, Start};

const QUEUE: &str = "lookalike";
const BYTES: usize = 960_000;
const UNITS: usize = 20;

/// CRC32C, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

/// 64 bytes of plain text with the magic of a block, the version that two blanks are, and the right checksum.
fn unit() -> String {
    for number in 0_u64.. {
        let text = format!("CQBK  {number:054}");
        let crc = checksum(text.as_bytes()).to_le_bytes();
        if crc.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'"' && *byte != b'\\') {
            return text + std::str::from_utf8(&crc).unwrap();
        }
    }
    unreachable!()
}

/// The files of the one shard whose names end so.
fn files(data: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("shard-0000")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = paths.filter(|path| path.to_string_lossy().ends_with(end)).collect();
    found.sort();
    found
}

/// Data in which the units shift by a byte again and again, so that some of them lie where a block could, wherever it
/// begins.
fn payload() -> String {
    let some = unit().repeat(UNITS) + "-";
    some.repeat(BYTES / some.len())
}

/// Where in a file a stretch of units lies as blocks would, soon behind its beginning.
fn lookalikes(path: &Path) -> Option<usize> {
    let bytes = fs::read(path).unwrap();
    let unit = unit();
    let fits = |at: &usize| bytes[*at..].starts_with(unit.repeat(UNITS - 1).as_bytes());
    (8192..1 << 20).step_by(64).find(fits)
}

/// Whether the data of a job lies in the first blocks of a file.
fn holds_data(path: &Path) -> bool {
    let mut bytes = [0; 4096];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut bytes, 65_536));
    read.is_ok() && bytes.windows(8).any(|it| it == b"CQBK  00")
}

fn push_and_finish(server: &Server, text: &str) {
    let mut client = server.client();
    server.web().push(QUEUE, json!({"data": text, "removeOnComplete": true}));
    let job = client.pull(QUEUE);
    client.ok("ACK", json!({"id": job["id"]}));
}

#[test]
fn a_payload_that_looks_like_the_log_does_not_keep_a_server_from_starting() {
    let mut server = small().start();
    let data = payload();
    let mut pushes = 0;
    let mut rounds = 0;
    // A kill may come when the log has just gone on to another file.
    while rounds == 0 {
        loop {
            let spares = files(&server.data, ".spare");
            let all_used = !spares.is_empty() && spares.iter().all(|path| holds_data(path));
            // The last file was another before as well, and behind the end of the log there is what it held then.
            let last = || files(&server.data, ".seg").pop().unwrap();
            if pushes > 20 && all_used && lookalikes(&last()).is_some() {
                break;
            }
            assert!(pushes < 1000, "no file was used again");
            push_and_finish(&server, &data);
            pushes += 1;
        }
        server.kill();
        server.start();
        while let Some(at) = lookalikes(&files(&server.data, ".seg").pop().unwrap()) {
            rounds += 1;
            // The log ends in the middle of them.
            server.client().push("kept", "k".repeat(at + 640 - 4096 - 200));
            server.kill();
            Tool::at(1).ok(&["log", "verify", server.data.to_str().unwrap()]);
            server.start();
            assert_eq!(server.client().counted("kept", "waiting"), rounds);
            server.kill();
            server.start();
        }
    }
}

/// Where each block of the first segment begins, and its records.
fn blocks(path: &Path) -> Vec<(usize, u32)> {
    let bytes = fs::read(path).unwrap();
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (4096, Vec::new());
    while bytes.get(at..at + 4) == Some(b"CQBK") {
        found.push((at, number(at + 48)));
        at += number(at + 44) as usize;
    }
    found
}

#[test]
fn newest_jobs_that_are_zeroed_after_a_clean_stop_are_missed_and_a_repair_goes_on_without_them() {
    for durability in ["written", "synced"] {
        let start = Start::new().env("SHARDS", 1).env("DURABILITY", durability);
        let mut server = start.clone().start();
        let mut client = server.client();
        for number in 0..10 {
            client.push_with(QUEUE, number, json!({"durable": true}));
        }
        drop(client);
        assert!(server.terminate().success());
        let segment = files(&server.data, ".seg")[0].clone();
        let mut with_jobs = blocks(&segment).into_iter().filter(|(_, records)| *records > 0);
        let (from, _) = with_jobs.nth(3).unwrap();
        let file = File::options().write(true).open(&segment).unwrap();
        file.write_all_at(&vec![0; 1 << 20], from as u64).unwrap();
        let (status, said) = start.clone().run_to_its_end(&server.data);
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("0000000000000000.seg is damaged"), "{said}");
        let data = server.data.to_str().unwrap();
        let ran = Tool::at(1).run(&["log", "verify", data]);
        assert!(ran.code == Some(1) && ran.out.contains("0000000000000000.seg"), "{ran:?}");
        let to = server.data.with_file_name("new");
        let to_text = to.to_str().unwrap();
        let out = Tool::at(1).ok(&["log", "repair", data, "--to", to_text]);
        assert!(out.contains("can be started from"), "{out}");
        Tool::at(1).ok(&["log", "verify", to_text]);
        assert_eq!(start.start_at(&to).client().counted(QUEUE, "waiting"), 3);
    }
}
