//! Backups in a bucket: `PREFIX/NAME/SHARD/FILE` for each segment, and `PREFIX/NAME.manifest`, put last. What has no manifest is
//! no backup, and goes once it is old.

use super::Found;
use super::manifest::{BYTES_MAX, Manifest, SUFFIX, is_segment};
use super::name::Name;
use crate::tools::backup::{Ready, Segment};
use crate::tools::place::{Fault, at};
use crate::tools::restore::Source;
use corq_io::log::{About, Position};
use corq_io::s3::{Client, Content, Listed, S3Fault, hex};
use ring::digest::{Context, SHA256, digest};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Age from which an upload without a manifest is taken for given up: none takes so long.
const GIVEN_UP_AFTER_MS: u64 = 24 * 3_600_000;
/// Backups below one prefix, of all servers. Each takes its name in memory.
const BACKUPS_MAX: usize = 100_000;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// The backups below a prefix of a bucket.
#[derive(Debug)]
pub struct Objects {
    client: Client,
    /// Nothing, or a text with a slash at its end.
    prefix: String,
}

impl Objects {
    pub fn new(client: Client, prefix: &str) -> Self {
        Self { client, prefix: prefix.into() }
    }

    fn key(&self, name: Name, segment: &Segment) -> String {
        format!("{}{name}/{:04}/{}", self.prefix, segment.shard, segment.file)
    }

    fn manifest_key(&self, name: Name) -> String {
        format!("{}{name}{SUFFIX}", self.prefix)
    }

    fn fault(&self, what: &str, fault: &S3Fault) -> Fault {
        Fault(format!("s3://{}/{what}: {fault}", self.client.bucket().name))
    }

    /// The backups, oldest first. Sizes are unknown.
    pub fn list(&self) -> Result<Vec<Found>, Fault> {
        let mut found = BTreeMap::new();
        let name = |text: &str, end: &str| {
            Name::parse(text.strip_prefix(&self.prefix)?.strip_suffix(end)?)
        };
        let mut keep = |listed: Listed| {
            for name in listed.prefixes.iter().filter_map(|it| name(it, "/")) {
                found.entry(name).or_insert(false);
            }
            found.extend(
                listed.objects.iter().filter_map(|it| Some((name(&it.key, SUFFIX)?, true))),
            );
            if found.len() > BACKUPS_MAX {
                let error =
                    format!("more than {BACKUPS_MAX} backups: use a prefix for each server");
                return Err(S3Fault::Local(io::Error::other(error)));
            }
            Ok(())
        };
        self.client
            .list(&self.prefix, "/", &mut keep)
            .map_err(|it| self.fault(&self.prefix, &it))?;
        let found = found.into_iter();
        Ok(found.map(|(name, is_complete)| Found { name, bytes: None, is_complete }).collect())
    }

    /// Reads the manifest of a complete backup.
    fn manifest(&self, name: Name) -> Result<Manifest, Fault> {
        let key = self.manifest_key(name);
        let text = self.client.get_small(&key, BYTES_MAX);
        let text = text.map_err(|fault| self.fault(&key, &fault))?;
        Manifest::parse(&key, &String::from_utf8_lossy(&text))
    }

    /// Bytes of the files of a backup; nothing if its manifest is none, or has gone by now.
    pub fn bytes(&self, name: Name) -> Result<Option<u64>, Fault> {
        let key = self.manifest_key(name);
        match self.client.get_small(&key, BYTES_MAX) {
            Ok(text) => {
                let manifest = Manifest::parse(&key, &String::from_utf8_lossy(&text));
                Ok(manifest.ok().map(|it| it.bytes()))
            }
            Err(fault) if fault.is_missing() => Ok(None),
            Err(fault) => Err(self.fault(&key, &fault)),
        }
    }

    /// Sends a backup: its files, then, when all are there in their lengths, the manifest. `progress` counts bytes.
    pub fn send(&self, name: Name, ready: &Ready, progress: &dyn Fn(u64)) -> Result<(), Fault> {
        let mut segments = Vec::new();
        for segment in &ready.segments {
            let key = self.key(name, segment);
            let sha256 = digest_of(ready.open(segment)?, segment.used);
            let sha256 = sha256.map_err(|error| Fault(format!("{}: {error}", segment.file)))?;
            let open = || -> io::Result<Box<dyn Read>> {
                let file = ready.open(segment).map_err(|fault| io::Error::other(fault.0))?;
                Ok(Box::new(file))
            };
            let content = Content { bytes: segment.used, sha256: &sha256, open: &open };
            self.client.put(&key, &content).map_err(|fault| self.fault(&key, &fault))?;
            progress(segment.used);
            segments.push((segment.clone(), sha256));
        }
        let manifest = Manifest { about: ready.about, ends: ready.ends.clone(), segments };
        self.check(name, &manifest)?;
        let key = self.manifest_key(name);
        let text = manifest.text().into_bytes();
        let sha256 = hex(digest(&SHA256, &text).as_ref());
        let open = || -> io::Result<Box<dyn Read>> { Ok(Box::new(io::Cursor::new(text.clone()))) };
        let content = Content { bytes: text.len() as u64, sha256: &sha256, open: &open };
        self.client.put(&key, &content).map_err(|fault| self.fault(&key, &fault))
    }

    /// Whether the storage has all files of a backup in their lengths.
    fn check(&self, name: Name, manifest: &Manifest) -> Result<(), Fault> {
        let prefix = format!("{}{name}/", self.prefix);
        let wanted = manifest.segments.iter().map(|(it, _)| (self.key(name, it), it.used));
        let mut wanted: BTreeSet<(String, u64)> = wanted.collect();
        let mut strike = |listed: Listed| {
            for object in listed.objects {
                wanted.remove(&(object.key, object.bytes));
            }
            Ok(())
        };
        self.client.list(&prefix, "", &mut strike).map_err(|it| self.fault(&prefix, &it))?;
        match wanted.first() {
            None => Ok(()),
            Some((key, _)) => {
                Err(Fault(format!("{key} was put and is not there, or not all of it")))
            }
        }
    }

    /// Removes a backup: the manifest first, since half of it must not pass for one; then what has the key of a file of a log,
    /// and nothing else that lies there. Returns how many files there were.
    pub fn remove(&self, name: Name) -> Result<u64, Fault> {
        let key = self.manifest_key(name);
        self.client.delete(&key).map_err(|fault| self.fault(&key, &fault))?;
        let prefix = format!("{}{name}/", self.prefix);
        let mut removed = 0;
        let mut remove = |listed: Listed| {
            let files = listed.objects.iter().map(|object| &object.key);
            for key in files.filter(|key| key.strip_prefix(&*prefix).is_some_and(is_file)) {
                self.client.delete(key)?;
                removed += 1;
            }
            Ok(())
        };
        self.client.list(&prefix, "", &mut remove).map_err(|it| self.fault(&prefix, &it))?;
        Ok(removed)
    }

    /// Of the listed ones, those of data directory `id` that were given up: they have no manifest, and are old.
    pub fn given_up(found: &[Found], id: u64, now_ms: u64) -> Vec<Name> {
        let is_old = |at_ms: u64| at_ms.saturating_add(GIVEN_UP_AFTER_MS) < now_ms;
        let open = found.iter().filter(|it| !it.is_complete && it.name.id == id);
        open.map(|it| it.name).filter(|name| is_old(name.at_ms)).collect()
    }

    /// A complete backup, to be restored.
    pub fn source(&self, name: Name) -> Result<InBucket<'_>, Fault> {
        Ok(InBucket { objects: self, name, manifest: self.manifest(name)? })
    }
}

/// Whether it is `SHARD/FILE`.
fn is_file(key: &str) -> bool {
    key.split_once('/').is_some_and(|(shard, file)| {
        (4..=5).contains(&shard.len())
            && shard.bytes().all(|it| it.is_ascii_digit())
            && is_segment(file)
    })
}

fn digest_of(file: File, bytes: u64) -> io::Result<String> {
    let mut file = file.take(bytes);
    let (mut context, mut chunk) = (Context::new(&SHA256), vec![0; CHUNK_BYTES]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hex(context.finish().as_ref())),
            read => context.update(&chunk[..read]),
        }
    }
}

/// A backup in a bucket.
#[derive(Debug)]
pub struct InBucket<'a> {
    objects: &'a Objects,
    name: Name,
    pub manifest: Manifest,
}

impl Source for InBucket<'_> {
    fn about(&self) -> About {
        self.manifest.about
    }

    fn end(&self, shard: u16) -> Position {
        Position(self.manifest.ends[usize::from(shard)])
    }

    fn segments(&self, shard: u16) -> Result<Vec<Segment>, Fault> {
        let all = self.manifest.segments.iter().map(|(segment, _)| segment);
        Ok(all.filter(|segment| segment.shard == shard).cloned().collect())
    }

    fn copy(&self, segment: &Segment, to: &Path) -> Result<(), Fault> {
        let known = self.manifest.segments.iter().find(|(it, _)| it == segment);
        let sha256 = known.map_or("", |(_, sha256)| sha256);
        let key = self.objects.key(self.name, segment);
        let mut into = |reader: &mut dyn Read| {
            let mut file = File::create(to)?;
            io::copy(reader, &mut file)?;
            file.sync_all()
        };
        let got = self.objects.client.get(&key, (segment.used, sha256), &mut into);
        got.map_err(|fault| match fault {
            S3Fault::Local(error) => at(to)(error),
            other => self.objects.fault(&key, &other),
        })
    }

    fn directory(&self) -> Option<&Path> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_logs_are_removed() {
        for key in ["0000/0000000000000000.seg", "1023/00000000000000af.seg", "0000/0.seg"] {
            assert!(is_file(key), "{key}");
        }
        for key in
            ["", "mine.txt", "0000/.seg", "0000/mine.seg", "0000/0/0.seg", "../0.seg", "0/0.seg"]
        {
            assert!(!is_file(key), "{key}");
        }
    }

    #[test]
    fn what_has_no_manifest_is_given_up_once_it_is_old_and_only_of_the_same_directory() {
        let found = |at_ms: u64, id: u64, is_complete: bool| Found {
            name: Name { at_ms, id },
            bytes: None,
            is_complete,
        };
        let now_ms = 10 * GIVEN_UP_AFTER_MS;
        let old_ms = now_ms - GIVEN_UP_AFTER_MS - 1;
        let all = [
            found(old_ms, 1, true),
            found(old_ms, 1, false),
            found(old_ms, 2, false),
            found(now_ms, 1, false),
        ];
        assert_eq!(Objects::given_up(&all, 1, now_ms), [Name { at_ms: old_ms, id: 1 }]);
    }
}
