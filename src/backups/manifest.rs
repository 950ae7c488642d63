//! The object that makes others a backup: what is in it, written last. Lines of text, the last of which is the SHA-256 of all
//! before it.

use crate::api::limits::SHARDS_MAX;
use crate::tools::backup::Segment;
use crate::tools::place::Fault;
use corq_io::log::About;
use corq_io::s3::hex;
use ring::digest::{SHA256, digest};
use std::fmt::Write as _;

const VERSION: u32 = 1;
/// Longer ones are refused: it is the manifest of a hundred thousand files.
pub const BYTES_MAX: u64 = 32 << 20;
/// Longest file, far beyond those of any setting. Sums of them fit.
const FILE_BYTES_MAX: u64 = 1 << 40;
/// Behind the name of a backup.
pub const SUFFIX: &str = ".manifest";

/// The contents of a backup's manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub about: About,
    /// Where the log of each shard ends.
    pub ends: Vec<u64>,
    /// Each file with the SHA-256 of what is used of it, in hex.
    pub segments: Vec<(Segment, String)>,
}

impl Manifest {
    /// Bytes of all objects.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(segment, _)| segment.used).sum()
    }

    /// As it is written.
    pub fn text(&self) -> String {
        let About { shards, id, is_begun } = self.about;
        let release = env!("CARGO_PKG_VERSION");
        let mut text = format!(
            "version = {VERSION}\ncorq = {release}\nshards = {shards}\nid = {id:016x}\nbegun = {is_begun}\n"
        );
        // Writing to a text cannot fail.
        for (shard, end) in self.ends.iter().enumerate() {
            let _ = writeln!(text, "end-{shard} = {end:016x}");
        }
        for (Segment { shard, file, bytes, used }, sha256) in &self.segments {
            let _ = writeln!(text, "file = {shard} {file} {bytes} {used} {sha256}");
        }
        let sum = sum(&text);
        let _ = writeln!(text, "sha256 = {sum}");
        text
    }

    /// Reads it. `name` is what it is called.
    pub fn parse(name: &str, text: &str) -> Result<Self, Fault> {
        let wrong = |what: &str| Fault(format!("{name}: {what}: this is no complete backup"));
        let (body, last) = match text.trim_end_matches('\n').rfind('\n') {
            Some(at) => text.split_at(at + 1),
            None => return Err(wrong("it is no manifest")),
        };
        let of = |text: &str, key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(" = "));
            lines.find(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
        };
        match of(body, "version").and_then(|it| it.parse::<u32>().ok()) {
            Some(VERSION) => {}
            Some(version) => {
                return Err(Fault(format!(
                    "{name}: version {version}; this release reads up to {VERSION}"
                )));
            }
            None => return Err(wrong("it is no manifest")),
        }
        if of(last, "sha256") != Some(sum(body)) {
            return Err(wrong("its SHA-256 differs"));
        }
        let value = |key: &str| of(body, key).ok_or_else(|| wrong(&format!("it has no `{key}`")));
        let number = |key: &str| {
            let value = u64::from_str_radix(&value(key)?, 16);
            value.map_err(|_| wrong(&format!("no usable `{key}`")))
        };
        let shards = value("shards")?.parse().ok().filter(|it| (1..=SHARDS_MAX).contains(it));
        let shards: u16 = shards.ok_or_else(|| wrong("no usable `shards`"))?;
        let about = About { shards, id: number("id")?, is_begun: value("begun")? == "true" };
        let ends = (0..shards).map(|shard| number(&format!("end-{shard}")));
        let ends = ends.collect::<Result<_, _>>()?;
        let lines = body.lines().filter_map(|line| line.strip_prefix("file = "));
        let segments =
            lines.map(|line| file(line, shards).ok_or_else(|| wrong("no usable `file`")));
        Ok(Self { about, ends, segments: segments.collect::<Result<_, _>>()? })
    }
}

fn sum(text: &str) -> String {
    hex(digest(&SHA256, text.as_bytes()).as_ref())
}

/// Whether files of logs are called so.
pub fn is_segment(file: &str) -> bool {
    let stem = file.strip_suffix(".seg").unwrap_or_default();
    !stem.is_empty() && stem.bytes().all(|it| it.is_ascii_hexdigit())
}

fn file(line: &str, shards: u16) -> Option<(Segment, String)> {
    let mut words = line.split(' ');
    let shard = words.next()?.parse().ok().filter(|it| *it < shards)?;
    let file = words.next()?.to_owned();
    // The text becomes the name of a file, so it must not lead elsewhere.
    if !is_segment(&file) {
        return None;
    }
    let (bytes, used) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let sha256 = words.next()?.to_owned();
    (used <= bytes && bytes <= FILE_BYTES_MAX && words.next().is_none())
        .then_some((Segment { shard, file, bytes, used }, sha256))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let segment = |shard, file: &str, used| {
            let segment = Segment { shard, file: file.into(), bytes: 1 << 24, used };
            (segment, "ab".repeat(32))
        };
        Manifest {
            about: About { shards: 2, id: 7, is_begun: true },
            ends: vec![5, 0x1000_0000],
            segments: vec![
                segment(0, "0000000000000000.seg", 5),
                segment(1, "000000000000000f.seg", 1 << 24),
            ],
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_is_written() {
        let text = manifest().text();
        assert_eq!(Manifest::parse("m", &text).unwrap(), manifest());
        assert_eq!(manifest().bytes(), 5 + (1 << 24));
    }

    #[test]
    fn one_that_was_cut_or_changed_is_refused() {
        let text = manifest().text();
        for end in 0..text.len() - 1 {
            assert!(Manifest::parse("m", &text[..end]).is_err(), "{end}");
        }
        assert!(Manifest::parse("m", &text.replace("file = 0", "file = 1")).is_err());
        let sealed = |text: &str| format!("{text}sha256 = {}\n", sum(text));
        let body = text.rsplit_once("sha256").unwrap().0;
        assert!(Manifest::parse("m", &sealed(body)).is_ok());
        for (from, to) in [
            ("0000000000000000.seg", "../../x.seg"),
            ("file = 0", "file = 2"),
            ("seg 16777216 5 ", "seg 18446744073709551615 5 "),
            ("seg 16777216 5 ", "seg 16777216 16777217 "),
            ("shards = 2", "shards = 0"),
            ("version = 1", "version = 2"),
        ] {
            let fault = Manifest::parse("m", &sealed(&body.replace(from, to))).unwrap_err();
            assert!(fault.0.starts_with("m: "), "{fault}");
        }
    }
}
