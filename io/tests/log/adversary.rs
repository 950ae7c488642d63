//! The fear: what lies in a file from its former life was chosen by a client, and a start, a look or a repair
//! takes it for a part of the log.
//!
//! The client knows the format, the shard, every address that was ever given out and those that will be. It does not
//! read the files.

use super::*;
use corq_io::log::{Disk, Scan, Seen, Subject, inspect};
use std::ops::ControlFlow::Continue;

const UNIT_BYTES: usize = 64;
const FORGED: &[u8] = b"forged by a client";

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }
}

/// Puts the checksum where a header of 64 bytes has it.
fn checked(mut unit: [u8; UNIT_BYTES]) -> [u8; UNIT_BYTES] {
    let crc = crc32c::crc32c(&unit[..60]);
    unit[60..].copy_from_slice(&crc.to_le_bytes());
    unit
}

/// The fields of a forged header that matter.
#[derive(Clone, Copy)]
struct Forgery {
    version: u16,
    shard: u16,
    address: u64,
    sequence: u64,
    salt: u64,
    records: u32,
    body_bytes: u32,
    flags: u32,
}

/// The header of a block that claims all before it, and more.
fn block_header(forgery: Forgery) -> [u8; UNIT_BYTES] {
    let Forgery { version, shard, address, sequence, salt, records, body_bytes, flags } = forgery;
    let mut unit = [0; UNIT_BYTES];
    unit[..4].copy_from_slice(b"CQBK");
    unit[4..6].copy_from_slice(&version.to_le_bytes());
    unit[6..8].copy_from_slice(&shard.to_le_bytes());
    unit[8..16].copy_from_slice(&address.to_le_bytes());
    unit[16..24].copy_from_slice(&sequence.to_le_bytes());
    if version == 1 {
        unit[24..32].copy_from_slice(&address.to_le_bytes());
    } else {
        // Nothing lies between it and what has been synced.
        unit[24..32].copy_from_slice(&salt.to_le_bytes());
    }
    let block_bytes = (UNIT_BYTES as u32 + body_bytes).next_multiple_of(UNIT_BYTES as u32);
    unit[40..44].copy_from_slice(&body_bytes.to_le_bytes());
    unit[44..48].copy_from_slice(&block_bytes.to_le_bytes());
    unit[48..52].copy_from_slice(&records.to_le_bytes());
    unit[52..56].copy_from_slice(&flags.to_le_bytes());
    checked(unit)
}

/// A record with the checksum that one at this address has, as far as a client can know it.
fn record(address: u64, body: &[u8], salt: Option<u64>) -> Vec<u8> {
    let length = (RECORD_HEADER_BYTES + body.len()) as u32;
    let mut hashed = salt.map_or_else(Vec::new, |salt| salt.to_le_bytes().to_vec());
    hashed.extend(address.to_le_bytes());
    hashed.extend(length.to_le_bytes());
    hashed.extend(body);
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend(crc32c::crc32c(&hashed).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// A mark, a segment's header or a slot, which no block may be taken for.
fn other_form(random: &mut Random, magic: [u8; 4], segment: u64, log_id: u64) -> [u8; UNIT_BYTES] {
    let mut unit = [0; UNIT_BYTES];
    unit[..4].copy_from_slice(&magic);
    unit[4] = 1 + random.below(2) as u8;
    unit[6] = 3;
    unit[8..16].copy_from_slice(&segment.to_le_bytes());
    unit[16..24].copy_from_slice(&(segment + 1 + random.below(9)).to_le_bytes());
    unit[24..32].copy_from_slice(&log_id.to_le_bytes());
    unit[32..40].copy_from_slice(&(u64::MAX >> random.below(40)).to_le_bytes());
    checked(unit)
}

/// A payload for a record whose body begins at `body_at`: every form there is, at every place where one could be
/// looked for, for the segment that the file may be next.
fn hostile(random: &mut Random, body_at: u64, bytes: usize, log: &LogConfig) -> Vec<u8> {
    let segment_bytes = log.segment_bytes;
    let mut payload = vec![0x20; bytes];
    let first = body_at.next_multiple_of(UNIT_BYTES as u64) - body_at;
    let mut at = first as usize;
    while at + 3 * UNIT_BYTES <= bytes {
        let now = body_at + at as u64;
        let segment = now / segment_bytes + random.below(12);
        let address = segment * segment_bytes + now % segment_bytes;
        let salt = [0, 1, u64::MAX, random.next(), log.log_id][random.below(5) as usize];
        let forgery = Forgery {
            version: [1, 1, 2, 2, 3, 9][random.below(6) as usize],
            shard: [3, 3, 3, 4][random.below(4) as usize],
            address,
            sequence: [0, random.below(2000), random.below(1 << 40)][random.below(3) as usize],
            salt,
            records: 1,
            body_bytes: (RECORD_HEADER_BYTES + FORGED.len()) as u32,
            flags: random.below(4) as u32,
        };
        match random.below(8) {
            0 => {
                let magic = [*b"CQGO", *b"CQSG", *b"CQSY"][random.below(3) as usize];
                let unit = other_form(random, magic, segment, log.log_id);
                payload[at..at + UNIT_BYTES].copy_from_slice(&unit);
                at += UNIT_BYTES;
            }
            1 | 2 => {
                payload[at..at + UNIT_BYTES].copy_from_slice(&block_header(forgery));
                at += UNIT_BYTES;
            }
            3 => {
                // Only records: what a torn block would be completed by.
                let salt = [None, Some(salt)][random.below(2) as usize];
                let record = record(address, FORGED, salt);
                payload[at..at + record.len()].copy_from_slice(&record);
                at += UNIT_BYTES;
            }
            _ => {
                payload[at..at + UNIT_BYTES].copy_from_slice(&block_header(forgery));
                let salt = (forgery.version > 1).then_some(salt);
                let record = record(address + UNIT_BYTES as u64, FORGED, salt);
                payload[at + UNIT_BYTES..][..record.len()].copy_from_slice(&record);
                at += 2 * UNIT_BYTES;
            }
        }
    }
    payload
}

/// Gives up the oldest segment, of which nothing is needed.
fn forget(log: &mut Log<FaultyDisk>) -> Option<Position> {
    let oldest = log.oldest()?;
    loop {
        match log.scan() {
            Scan::Record(..) => {}
            Scan::Reading => return None,
            Scan::End => break,
            Scan::Failed(error) => panic!("{error}"),
        }
    }
    log.drop_oldest();
    Some(oldest.end)
}

/// Inspects the files as they are.
fn look(disk: &mut FaultyDisk, config: &LogConfig) -> (corq_io::log::Inspection, Records) {
    let dir = tempfile::tempdir().unwrap();
    for name in disk.list().unwrap() {
        let number = u64::from_str_radix(name.trim_end_matches(".seg"), 16).unwrap();
        std::fs::write(dir.path().join(name), disk.content(number)).unwrap();
    }
    let LogConfig { shard, log_id, .. } = *config;
    let subject = Subject { directory: dir.path(), shard, log_id, is_begun: true, until: None };
    let mut found = Records::new();
    let inspection = inspect(subject, |seen| {
        if let Seen::Record { position, body, .. } = seen {
            found.push((position, body.to_vec()));
        }
        Continue(())
    });
    (inspection.unwrap(), found)
}

struct Life {
    recycled: u64,
    dropped: u64,
    restarts: u64,
}

/// Jobs of a hostile client through the log itself, files used again, an end at any moment, and a start.
fn live(seed: u64) -> Life {
    let mut random = Random(seed);
    let mode = if random.one_in(2) { Mode::Written } else { Mode::Synced };
    let config = LogConfig {
        segment_bytes: 1 << [14, 15, 16][random.below(3) as usize],
        record_bytes_max: 7000,
        reserve_bytes: 1 << 16,
        is_begun: true,
        log_id: 77,
        ..config(mode)
    };
    let faults = if random.one_in(3) { Faults::default() } else { late(random.one_in(2)) };
    let begin = LogConfig { is_begun: false, ..config.clone() };
    let mut log = open(&begin, FaultyDisk::new(seed, faults)).0;
    let mut life = Life { recycled: 0, dropped: 0, restarts: 0 };
    let (mut written, mut forgotten, mut now_ms) = (Records::new(), Position(0), 0);
    for _ in 0..4 {
        for _ in 0..random.below(250) {
            now_ms += random.below(300);
            let bytes = [200, 3000, 6900][random.below(3) as usize];
            let bytes = random.below(bytes) as usize;
            let (position, room) = log.append(bytes);
            let payload =
                hostile(&mut random, position.0 + RECORD_HEADER_BYTES as u64, bytes, &config);
            room.copy_from_slice(&payload);
            written.push((position, payload));
            if random.one_in(3) {
                log.require_sync();
            }
            log.flush(now_ms).unwrap();
            for _ in 0..random.below(5) {
                finish_one(&mut log);
                log.flush(now_ms).unwrap();
            }
            forgotten = forget(&mut log).unwrap_or(forgotten);
        }
        life.recycled += log.counters().recycled;
        let (released, synced) = (log.released(), log.synced());
        let mut safe = synced;
        let mut disk = log.into_disk();
        if random.one_in(2) {
            disk.power_loss();
        } else {
            disk.kill();
            safe = released;
        }
        let (inspection, seen) = look(&mut disk, &config);
        assert!(inspection.damages.is_empty(), "{:?}", inspection.damages);
        let (again, recovery, found) = open(&config, disk);
        assert!(seen == found, "a look and a start see the same");
        assert_eq!(recovery.dropped.is_some(), inspection.tail.is_some());
        let first = found.first().map_or(written.len(), |first| {
            written.iter().position(|it| it == first).expect("not what was written")
        });
        let end = first + found.len();
        assert!(found == written[first..end], "not what was written");
        let lost = written[end..].iter().find(|(at, _)| *at < safe && *at >= forgotten);
        assert!(lost.is_none(), "what was promised is gone");
        written.truncate(end);
        life.dropped += u64::from(recovery.dropped.is_some());
        life.restarts += 1;
        log = again;
    }
    life
}

/// `CORQ_LOG_SEEDS` asks for more of them.
#[test]
fn no_payload_is_ever_taken_for_the_log() {
    let seeds = std::env::var("CORQ_LOG_SEEDS").ok().and_then(|text| text.parse().ok());
    let seeds: u64 = seeds.unwrap_or(100);
    let (mut recycled, mut dropped) = (0, 0);
    for seed in 0..seeds {
        let Ok(life) = std::panic::catch_unwind(|| live(seed)) else {
            panic!("seed {seed} failed")
        };
        recycled += life.recycled;
        dropped += life.dropped;
    }
    assert!(recycled > seeds * 5, "hardly a file used again: {recycled}");
    assert!(dropped > seeds / 10, "hardly a torn tail: {dropped}");
}

/// A log in a file that was another segment before, all of which one client wrote with `form`.
fn after(form: &dyn Fn(u64) -> Vec<u8>) -> (Log<FaultyDisk>, Records) {
    let config = LogConfig { reserve_bytes: 1 << 17, log_id: 77, ..config(Mode::Written) };
    let mut log = open(&config, FaultyDisk::new(5, Faults::default())).0;
    let mut now_ms = 0;
    while log.counters().recycled < 6 {
        now_ms += 20;
        let (position, room) = log.append(30_000);
        let body_at = position.0 + RECORD_HEADER_BYTES as u64;
        room.fill(0);
        let first = (body_at.next_multiple_of(UNIT_BYTES as u64) - body_at) as usize;
        for at in (first..30_000 - UNIT_BYTES).step_by(UNIT_BYTES) {
            let unit = form(body_at + at as u64);
            room[at..at + UNIT_BYTES].copy_from_slice(&unit);
        }
        settle(&mut log, now_ms);
        forget(&mut log);
        settle(&mut log, now_ms);
    }
    // Into the file that was entered last.
    let segment = log.head().0 >> 16;
    let mut kept = Records::new();
    while log.head().0 >> 16 == segment {
        kept.push(append(&mut log, 20_000, 1));
        settle(&mut log, now_ms);
    }
    kept = vec![kept.pop().unwrap()];
    (log, kept)
}

fn starts_with(log: Log<FaultyDisk>, kept: &Records, what: &str) {
    let config = LogConfig { is_begun: true, log_id: 77, ..config(Mode::Written) };
    let mut disk = log.into_disk();
    let (inspection, _) = look(&mut disk, &config);
    assert!(inspection.damages.is_empty(), "{what}: {:?}", inspection.damages);
    for _ in 0..3 {
        let (log, _, found) = match try_open(&config, disk) {
            Ok(opened) => opened,
            Err(error) => panic!("{what}: {error}"),
        };
        assert!(found.ends_with(kept), "{what}");
        assert!(found.iter().all(|(_, body)| body != FORGED), "{what}");
        disk = log.into_disk();
    }
}

fn forgery(version: u16, address: u64, sequence: u64) -> Forgery {
    let (shard, salt, records, body_bytes, flags) = (3, 0, 0, 0, 0);
    Forgery { version, shard, address, sequence, salt, records, body_bytes, flags }
}

#[test]
fn a_payload_with_another_version_in_it_does_not_keep_a_server_from_starting() {
    for version in [2, 3, 77] {
        let (log, kept) = after(&|at| block_header(forgery(version, at, 0)).to_vec());
        starts_with(log, &kept, &format!("version {version}"));
    }
}

#[test]
fn a_payload_that_names_its_own_address_claims_nothing() {
    for ahead in 1..14 {
        for sequence in [0, 40, 1 << 40] {
            let (log, kept) =
                after(&|at| block_header(forgery(1, at + (ahead << 16), sequence)).to_vec());
            starts_with(log, &kept, &format!("{ahead} segments ahead, sequence {sequence}"));
        }
    }
}

#[test]
fn a_payload_that_names_another_shard_does_not_keep_a_server_from_starting() {
    for ahead in 1..14 {
        let shard = 4;
        let forgery = |at| Forgery { shard, ..forgery(1, at + (ahead << 16), 0) };
        let (log, kept) = after(&|at| block_header(forgery(at)).to_vec());
        starts_with(log, &kept, &format!("{ahead} segments ahead"));
    }
}

/// The header of the block has reached the disk, its body has not: what lies there was chosen for this place.
#[test]
fn a_torn_block_is_not_completed_by_what_lay_there_before() {
    let (mut log, _) = after(&|_| vec![0; UNIT_BYTES]);
    let (position, _) = append(&mut log, FORGED.len(), 1);
    log.flush(1_000_000).unwrap();
    let mut disk = log.into_disk();
    let segment = position.0 >> 16;
    for salt in [None, Some(0), Some(77)] {
        let record = record(position.0, FORGED, salt);
        disk.tamper(segment, |bytes| {
            let at = (position.0 & 0xffff) as usize;
            bytes[at..at + record.len()].copy_from_slice(&record);
        });
        let config = LogConfig { is_begun: true, log_id: 77, ..config(Mode::Written) };
        let (_, recovery, found) = open(&config, disk.copy());
        assert!(found.iter().all(|(_, body)| body != FORGED), "salt {salt:?}");
        assert!(recovery.dropped.is_some());
    }
}

/// A log as builds of version 1 wrote it: one segment in a file that was used before, with a record in each of three
/// blocks. Also answers where it ends.
fn of_version_1(clean: bool) -> (FaultyDisk, Records, u64) {
    let mut bytes = vec![0; 1 << 16];
    let mut header = [0; UNIT_BYTES];
    header[..8].copy_from_slice(b"CQSG\x01\0\x03\0");
    header[16..24].copy_from_slice(&(1_u64 << 16).to_le_bytes());
    header[24..32].fill(0xff);
    header[48] = 3;
    header[52..60].copy_from_slice(&77_u64.to_le_bytes());
    bytes[..UNIT_BYTES].copy_from_slice(&checked(header));
    let (mut at, mut prev, mut records) = (4096, 0_u32, Records::new());
    for sequence in 0..3 {
        let body = vec![sequence as u8; 40];
        let flags = if clean && sequence == 2 { 2 } else { 0 };
        let forgery =
            Forgery { flags, records: 1, body_bytes: 48, ..forgery(1, at as u64, sequence) };
        let mut unit = block_header(forgery);
        unit[56..60].copy_from_slice(&prev.to_le_bytes());
        let unit = checked(unit);
        let record = record((at + UNIT_BYTES) as u64, &body, None);
        let crc = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        prev = crc(&unit[60..]).rotate_left(1) ^ crc(&record[4..8]);
        bytes[at..at + UNIT_BYTES].copy_from_slice(&unit);
        bytes[at + UNIT_BYTES..][..record.len()].copy_from_slice(&record);
        records.push((Position((at + UNIT_BYTES) as u64), body));
        at += 2 * UNIT_BYTES;
    }
    let mut disk = FaultyDisk::new(1, Faults::default());
    disk.tamper(0, |content| *content = bytes);
    (disk, records, at as u64)
}

type Form = Box<dyn Fn(u64) -> Vec<u8>>;

#[test]
fn what_lies_behind_a_log_of_version_1_is_believed_only_as_far_as_it_can_be() {
    let config = LogConfig { is_begun: true, log_id: 77, ..config(Mode::Written) };
    let whole = |sequence| {
        move |at: u64| {
            let bytes = (RECORD_HEADER_BYTES + FORGED.len()) as u32;
            let forgery = forgery(1, at, sequence);
            let header = block_header(Forgery { records: 1, body_bytes: bytes, ..forgery });
            let mut bytes = header.to_vec();
            bytes.extend(record(at + UNIT_BYTES as u64, FORGED, None));
            bytes
        }
    };
    let forms: [(&str, Form); 7] = [
        ("another version", Box::new(|at| block_header(forgery(2, at, 3)).to_vec())),
        ("a newer version", Box::new(|at| block_header(forgery(9, at, 3)).to_vec())),
        (
            "another shard",
            Box::new(|at| block_header(Forgery { shard: 4, ..forgery(1, at, 3) }).to_vec()),
        ),
        (
            "no body",
            Box::new(|at| {
                block_header(Forgery { records: 1, body_bytes: 200, ..forgery(1, at, 4) }).to_vec()
            }),
        ),
        ("an impossible sequence", Box::new(whole(1 << 40))),
        ("an earlier sequence", Box::new(whole(1))),
        ("a possible sequence", Box::new(whole(4))),
    ];
    for clean in [false, true] {
        for (what, form) in &forms {
            let (mut disk, records, end) = of_version_1(clean);
            disk.tamper(0, |bytes| {
                for at in (end as usize..60_000).step_by(2 * UNIT_BYTES) {
                    let unit = form(at as u64);
                    bytes[at..at + unit.len()].copy_from_slice(&unit);
                }
            });
            let (inspection, seen) = look(&mut disk, &config);
            let opened = try_open(&config, disk);
            if !clean && *what == "a possible sequence" {
                // A forgery that cannot be told from a block of the log: see docs/log-format.md.
                assert!(opened.is_err() && !inspection.damages.is_empty());
                continue;
            }
            let (log, recovery, found) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(found == records && seen == records, "{what}");
            assert!(inspection.damages.is_empty(), "{what}: {:?}", inspection.damages);
            assert_eq!(recovery.clean, clean && recovery.dropped.is_none(), "{what}");
            let mut disk = log.into_disk();
            assert_eq!(disk.content(0).len() as u64, end, "{what}: nothing is left of it");
            assert_eq!(disk.content(1)[4], 2, "it goes on in the version of this build");
            let (.., found) = open(&config, disk.copy());
            assert!(found == records);
            // A block that had been synced is still missed.
            disk.tamper(0, |bytes| bytes[4096 + 2 * UNIT_BYTES + 80] ^= 1);
            assert!(matches!(try_open(&config, disk), Err(OpenError::Damaged { .. })), "{what}");
        }
    }
}
