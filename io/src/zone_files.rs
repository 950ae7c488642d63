//! The rules of time zones that the system keeps, as files that `zic` has compiled. Bytes only; what is in them is read by who asks.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Where systems keep them.
pub const USUAL_DIRECTORY: &str = "/usr/share/zoneinfo";

/// Zones with a file; there are about 600.
const ZONES_MAX: usize = 5000;
/// Bytes of the file of a zone; the largest has 4 KB.
const ZONE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of the list of all rules; it has 100 KB.
const LIST_BYTES_MAX: u64 = 4 << 20;

/// The name of a zone, and its file.
pub type ZoneFile = (Box<str>, Box<[u8]>);

/// The zones of a directory.
#[derive(Debug)]
pub struct ZoneFiles {
    directory: PathBuf,
    version: Box<str>,
    names: Vec<Box<str>>,
}

impl ZoneFiles {
    /// Reads which edition of the rules a directory has, and of which zones: `tzdata.zi` beside the files says so.
    pub fn list(directory: &Path) -> io::Result<Self> {
        let list = read(&directory.join("tzdata.zi"), LIST_BYTES_MAX)?;
        let list = String::from_utf8(list).map_err(io::Error::other)?;
        let first = list.lines().next().unwrap_or_default();
        let version =
            first.strip_prefix("# version ").ok_or_else(|| io::Error::other("no version"))?;
        let names = list.lines().filter_map(name_in).take(ZONES_MAX).map(Into::into).collect();
        Ok(Self { directory: directory.into(), version: version.trim().into(), names })
    }

    /// The edition, such as `2026c`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Reads the files, without those that cannot be read.
    pub fn read(&self) -> Vec<ZoneFile> {
        let file = |name: &str| {
            let bytes = read(&self.directory.join(name), ZONE_BYTES_MAX).ok()?;
            Some((name.into(), bytes.into()))
        };
        self.names.iter().filter_map(|name| file(name)).collect()
    }
}

/// The name that a line of the list is about: `Z name rules` of a zone, `L other name` of one that is the same as another.
fn name_in(line: &str) -> Option<&str> {
    let mut words = line.split(' ');
    let name = match words.next()? {
        "Z" => words.next()?,
        "L" => words.nth(1)?,
        _ => return None,
    };
    let is_plain = |part: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"+-_".contains(&byte);
        !part.is_empty() && part.bytes().all(known)
    };
    name.split('/').all(is_plain).then_some(name)
}

fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if read as u64 > bytes_max { Err(io::Error::other("too large")) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_zones_and_those_that_are_the_same_as_others() {
        for (line, name) in [
            ("Z Europe/Berlin 0:53:28 - LMT 1893 Apr", Some("Europe/Berlin")),
            ("L Europe/Berlin Europe/Stockholm", Some("Europe/Stockholm")),
            ("L Etc/GMT GMT+0", Some("GMT+0")),
            ("R E 1977 1980 - Ap Su>=1 1u 1 S", None),
            ("1 E CE%sT", None),
            ("Z ../../etc/passwd 0 - X", None),
            ("Z /etc/passwd 0 - X", None),
            ("Z", None),
            ("", None),
        ] {
            assert_eq!(name_in(line), name, "{line}");
        }
    }

    #[test]
    fn files_of_a_directory_are_read_with_their_edition() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path();
        assert!(ZoneFiles::list(path).is_err());
        std::fs::create_dir(path.join("Mars"))?;
        std::fs::write(path.join("Mars/Olympus"), b"TZif")?;
        let list = "# version 2099a\nZ Mars/Olympus 0 - X\nL Mars/Olympus Mars/Phobos\n";
        std::fs::write(path.join("tzdata.zi"), list)?;
        let files = ZoneFiles::list(path)?;
        assert_eq!(files.version(), "2099a");
        assert_eq!(files.read(), [("Mars/Olympus".into(), Box::from(*b"TZif"))]);
        Ok(())
    }
}
