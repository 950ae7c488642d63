//! The course of a run, as a hash, and its last lines to understand a failure by.
//!
//! Lines are hashed as they are and printed short: a job is `job:` and four characters that stand for its id in every
//! run, a token likewise, a time is milliseconds since the start of the life (`+129`), the bytes of records are their
//! number, and fields without a value are left out.

use corq_shards::job::id::fnv1a;
use std::collections::VecDeque;
use std::fmt::Arguments;

use super::world::START_MS;

/// Characters of a job's short name.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// More bytes than this are shown as their number.
const BYTES_SHOWN_MAX: usize = 16;

/// Lines kept for a failure.
const LINES: usize = 25;

/// Prints the lines of a run, and hashes all of them.
pub struct Trace {
    pub hash: u64,
    lines: VecDeque<String>,
    print: bool,
}

impl Trace {
    /// `print`: every line goes out as it comes.
    pub fn new(print: bool) -> Self {
        Self { hash: 0, lines: VecDeque::new(), print }
    }

    #[allow(clippy::disallowed_methods)] // Looks nothing up.
    pub fn note(&mut self, line: Arguments<'_>) {
        let line = line.to_string();
        self.hash = self.hash.rotate_left(5) ^ fnv1a(line.as_bytes());
        if self.print {
            eprintln!("{}", short(&line));
        } else if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

impl Drop for Trace {
    /// A run that fails says what led to it.
    fn drop(&mut self) {
        if std::thread::panicking() && !self.print && !super::canary::is_quiet() {
            for line in &self.lines {
                eprintln!("  {}", short(line));
            }
        }
    }
}

/// Shortens a line by what makes it long.
fn short(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(end);
        rest = after;
        match (before.strip_suffix("JobId("), digits.parse::<u128>()) {
            (Some(before), Ok(_)) => {
                text.push_str(before);
                text.push_str(&short_name("job:", digits));
                rest = rest.strip_prefix(')').unwrap_or(rest);
            }
            (None, Ok(_)) if before.ends_with("Token(") => {
                text.push_str(before);
                text.push_str(&short_name("", digits));
            }
            (None, Ok(ms)) if is_time(ms) => {
                text.push_str(before);
                text.push('+');
                text.push_str(&(ms - u128::from(START_MS)).to_string());
            }
            _ => {
                text.push_str(before);
                text.push_str(digits);
            }
        }
    }
    text.push_str(rest);
    without_absent_fields(&without_long_bytes(&text))
}

/// Within a year of virtual time.
fn is_time(ms: u128) -> bool {
    let begin_ms = u128::from(START_MS);
    (begin_ms..begin_ms + 366 * 24 * 3_600_000).contains(&ms)
}

#[allow(clippy::disallowed_methods)] // Looks nothing up.
fn short_name(kind: &str, digits: &str) -> String {
    let mut hash = fnv1a(digits.as_bytes());
    let mut name = String::from(kind);
    for _ in 0..4 {
        name.push(char::from(LETTERS[(hash >> 40) as usize % LETTERS.len()]));
        hash >>= 5;
    }
    name
}

/// `[1, 2, 3, ...]` becomes `[133 bytes]` if it is long.
fn without_long_bytes(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('[') {
        let (before, from) = rest.split_at(at + 1);
        left.push_str(before);
        let end = from.find(['[', ']']).unwrap_or(from.len());
        let mut parts = from[..end].split(", ");
        let count = parts.clone().count();
        if from[end..].starts_with(']')
            && count > BYTES_SHOWN_MAX
            && parts.all(|part| part.parse::<u8>().is_ok())
        {
            left.push_str(&count.to_string());
            left.push_str(" bytes");
        } else {
            left.push_str(&from[..end]);
        }
        rest = &from[end..];
    }
    left.push_str(rest);
    left
}

/// `{ a: 1, b: None, c: None }` becomes `{ a: 1 }`.
fn without_absent_fields(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    for part in text.split_inclusive(", ") {
        let field = part.strip_suffix(", ").unwrap_or(part);
        let opens = field.rfind("{ ").map_or(0, |at| at + 2);
        let closes = field.find(" }").unwrap_or(field.len()).max(opens);
        if !field[opens..closes].ends_with(": None") {
            left.push_str(part);
            continue;
        }
        // Brackets that the field opens or closes stay.
        left.push_str(&field[..opens]);
        if closes < field.len() {
            let kept = left.trim_end_matches(", ").len();
            left.truncate(kept);
            let end = &field[closes..];
            left.push_str(if left.ends_with(' ') { end.trim_start() } else { end });
            left.push_str(&part[field.len()..]);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn a_line_shows_jobs_and_times_short_and_no_absent_fields() {
        let line = "1700000000129 to 0: Pull { job: JobId(2055173893378039508399580176195243489), at: None, \
                    until_ms: Some(1700000000137), of: Of { max: None, rate: None }, last: None } }";
        let shown = short(line);
        let job = shown.split("job:").nth(2).map(|rest| &rest[..4]).unwrap_or_default();
        let expected =
            format!("+129 to 0: Pull {{ job: job:{job}, until_ms: Some(+137), of: Of {{ }} }} }}");
        assert_eq!(shown, expected);
        assert_ne!(short("JobId(1)"), short("JobId(2)"));
    }

    #[test]
    fn a_line_shows_long_bytes_as_their_number_and_tokens_short() {
        let bytes: Vec<u8> = (0..60).collect();
        let line = format!(
            "[{bytes:?}, [1, 2]], data: [206, 7], Token(206587533425207552308860255037375005999)"
        );
        let shown = short(&line);
        let (before, token) = shown.split_once("Token(").unwrap_or_default();
        assert_eq!(before, "[[60 bytes], [1, 2]], data: [206, 7], ");
        assert_eq!(token.len(), "abcd)".len());
    }
}
