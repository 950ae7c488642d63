//! Reading the lines from the newest back. A line that is not ended, or has no number, is passed over: it is being written, or was
//! torn by a crash.

use super::{name_of, parts_of};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Bytes read at a time.
const STEP_BYTES: u64 = 64 * 1024;
/// Longest line that is read. What is longer is none that was written here.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// The number of a line.
pub fn number_of(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"{\"seq\":")?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    if !line.ends_with(b"}") {
        return None;
    }
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// At most `limit` lines of a directory with numbers below `before`, newest first, without their ends.
pub fn page(path: &Path, before: u64, limit: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut lines = Vec::new();
    for part in parts_of(path)?.iter().rev().filter(|part| part.first < before) {
        let Some(mut back) = Backward::open(&path.join(name_of(part.first)))? else { continue };
        while lines.len() < limit {
            let Some(line) = back.line()? else { break };
            if number_of(&line).is_some_and(|number| number < before) {
                lines.push(line);
            }
        }
        if lines.len() >= limit {
            break;
        }
    }
    Ok(lines)
}

/// The number of the newest line.
pub(super) fn last_number(path: &Path) -> io::Result<Option<u64>> {
    Ok(page(path, u64::MAX, 1)?.first().and_then(|line| number_of(line)))
}

/// The lines of a file, the last one first.
struct Backward {
    file: File,
    /// All before this is still to be read.
    at: u64,
    /// Bytes that were read and not given out. They end where a line ends, without the line's end.
    held: Vec<u8>,
}

impl Backward {
    /// Nothing if the file has gone.
    fn open(path: &Path) -> io::Result<Option<Self>> {
        // A pipe in its place would be waited for.
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let about = file.metadata()?;
        if !about.is_file() {
            return Ok(None);
        }
        let mut back = Self { file, at: about.len(), held: Vec::new() };
        // Text behind the last line end is no line yet.
        back.cut()?;
        Ok(Some(back))
    }

    /// The line before those that were given out.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.at == 0 && self.held.is_empty() {
            return Ok(None);
        }
        self.cut().map(Some)
    }

    /// Takes what stands behind the last end of a line that is left, and that end. An overlong text comes without its front.
    fn cut(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.held.iter().rposition(|byte| *byte == b'\n') {
                let line = self.held.split_off(end + 1);
                self.held.truncate(end);
                return Ok(line);
            }
            if self.at == 0 {
                return Ok(std::mem::take(&mut self.held));
            }
            self.held.truncate(LINE_BYTES_MAX);
            let bytes = STEP_BYTES.min(self.at);
            let mut before = vec![0; bytes as usize];
            self.file.read_exact_at(&mut before, self.at - bytes)?;
            self.at -= bytes;
            before.append(&mut self.held);
            self.held = before;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_come_whole_wherever_they_lie_in_what_is_read_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let text = |number: u64| {
            let filler = "x".repeat((number * 7919 % 3000) as usize);
            format!("{{\"seq\":{number},\"a\":\"{filler}\"}}")
        };
        let all: Vec<String> = (1..=300).map(text).collect();
        std::fs::write(dir.path().join(name_of(1)), all.join("\n") + "\n").unwrap();
        let read = page(dir.path(), u64::MAX, 1000).unwrap();
        let read: Vec<String> = read.into_iter().map(|it| String::from_utf8(it).unwrap()).collect();
        assert_eq!(read, all.into_iter().rev().collect::<Vec<_>>());
    }

    #[test]
    fn what_is_no_line_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let long = "y".repeat(5 * LINE_BYTES_MAX);
        let text =
            format!("{{\"seq\":1}}\n\nnonsense\n{long}\n{{\"seq\":\n{{\"seq\":2}}\n{{\"seq\":3}}");
        std::fs::write(dir.path().join(name_of(1)), text).unwrap();
        let read = page(dir.path(), u64::MAX, 10).unwrap();
        assert_eq!(read, [b"{\"seq\":2}".to_vec(), b"{\"seq\":1}".to_vec()]);
    }
}
