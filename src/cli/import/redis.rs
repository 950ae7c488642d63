//! A connection to Redis as far as an import needs it: commands and answers, lists and sorted sets in pages.
//!
//! A list is read from its oldest end by places that are counted from the newest one: what workers take meanwhile moves
//! nothing that is still to be read, and what producers add shows up twice, which does no harm. A sorted set is read by
//! scores, not by ranks, for the same reason.

use std::path::PathBuf;

use super::place::{Stream, Url};
use crate::cli::failure::Failure;

/// Schemes of URLs.
pub const SCHEMES: &[&str] = &["redis", "rediss", "redis+unix"];
const PORT: u16 = 6379;
/// Members of a page.
pub const PAGE: usize = 200;
/// Bytes of answers that one round trip aims at.
const ROUND_BYTES: usize = 4 << 20;

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Nil,
    Integer(i64),
    Bytes(Vec<u8>),
    List(Vec<Answer>),
}

impl Answer {
    pub fn integer(&self) -> i64 {
        if let Self::Integer(value) = self { *value } else { 0 }
    }

    /// The items that are bytes.
    pub fn items(self) -> Vec<Vec<u8>> {
        let Self::List(items) = self else { return Vec::new() };
        let bytes = |item| if let Self::Bytes(bytes) = item { Some(bytes) } else { None };
        items.into_iter().filter_map(bytes).collect()
    }

    pub fn bytes(self) -> Option<Vec<u8>> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

/// The fields of a hash.
#[derive(Debug, Default)]
pub struct Hash(Vec<(Vec<u8>, Vec<u8>)>);

impl Hash {
    fn of(answer: Answer) -> Self {
        let mut items = answer.items().into_iter();
        let mut fields = Vec::new();
        while let (Some(name), Some(value)) = (items.next(), items.next()) {
            fields.push((name, value));
        }
        Self(fields)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.0.iter().find(|(known, _)| known == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get(name)?).ok()
    }

    pub fn integer(&self, name: &str) -> Option<i64> {
        let text = self.text(name)?;
        text.parse().ok().or_else(|| text.parse::<f64>().ok().map(|number| number as i64))
    }

    fn bytes_len(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

/// A connection.
#[derive(Debug)]
pub struct Redis {
    stream: Stream,
    /// How many hashes are asked for at once.
    at_once: usize,
}

impl Redis {
    pub fn open(text: &str, authority: Option<&PathBuf>) -> Result<Self, Failure> {
        let url = Url::parse(text, SCHEMES)?;
        let stream = Stream::open(&url, PORT, url.scheme == "rediss", authority)?;
        let mut redis = Self { stream, at_once: 50 };
        let database = match url.of_query("db") {
            Some(number) => number,
            None if url.scheme == "redis+unix" => "",
            None => url.path.trim_matches('/'),
        };
        if let Some(password) = &url.password {
            let mut auth = vec!["AUTH"];
            auth.extend(url.user.as_deref());
            auth.push(password);
            redis.call(&auth)?;
        }
        if !database.is_empty() {
            redis.call(&["SELECT", database])?;
        }
        redis.call(&["PING"])?;
        Ok(redis)
    }

    /// Sends a command and reads its answer; an error is a failure.
    pub fn call<T: AsRef<[u8]>>(&mut self, words: &[T]) -> Result<Answer, Failure> {
        let mut bytes = Vec::new();
        write_command(&mut bytes, words);
        self.stream.send(&bytes)?;
        self.answer(0)
    }

    /// Several commands in one round trip.
    pub fn calls(&mut self, commands: &[Vec<Vec<u8>>]) -> Result<Vec<Answer>, Failure> {
        let mut bytes = Vec::new();
        for words in commands {
            write_command(&mut bytes, words);
        }
        self.stream.send(&bytes)?;
        commands.iter().map(|_| self.answer(0)).collect()
    }

    fn answer(&mut self, depth: usize) -> Result<Answer, Failure> {
        let line = self.stream.line()?;
        let strange = || self.stream.lost("it does not speak the protocol of Redis");
        let (kind, rest) = line.split_first().ok_or_else(strange)?;
        let text = std::str::from_utf8(rest).map_err(|_| strange())?;
        let number = || text.parse::<i64>().map_err(|_| strange());
        Ok(match kind {
            b'+' => Answer::Bytes(rest.to_vec()),
            b'-' => return Err(Failure::Failed(format!("Redis refused: {text}"))),
            b':' => Answer::Integer(number()?),
            b'$' => match number()? {
                ..0 => Answer::Nil,
                length => Answer::Bytes(self.stream.value(length as usize)?),
            },
            b'*' if depth < 4 => match number()? {
                ..0 => Answer::Nil,
                count => {
                    let mut items = Vec::new();
                    for _ in 0..count {
                        items.push(self.answer(depth + 1)?);
                    }
                    Answer::List(items)
                }
            },
            _ => return Err(strange()),
        })
    }

    /// The members of a set, which hold names: few.
    pub fn members(&mut self, key: &str) -> Result<Vec<String>, Failure> {
        let members = self.call(&["SMEMBERS", key])?.items();
        let mut names: Vec<String> =
            members.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// The keys that match a pattern, which hold names: few.
    pub fn keys(&mut self, pattern: &str) -> Result<Vec<String>, Failure> {
        let (mut names, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let page = self.call(&["SCAN", &cursor, "MATCH", pattern, "COUNT", "1000"])?;
            let Answer::List(mut parts) = page else { return Ok(names) };
            let keys = parts.pop().unwrap_or(Answer::Nil).items();
            names.extend(keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()));
            let next = parts.pop().and_then(Answer::bytes).unwrap_or_default();
            cursor = String::from_utf8_lossy(&next).into_owned();
            if cursor == "0" || cursor.is_empty() {
                names.sort();
                names.dedup();
                return Ok(names);
            }
        }
    }

    pub fn hash(&mut self, key: &str) -> Result<Hash, Failure> {
        Ok(Hash::of(self.call(&["HGETALL", key])?))
    }

    /// The hashes of so many keys from the front as one round trip takes, at least one.
    pub fn hashes(&mut self, keys: &[String]) -> Result<Vec<Hash>, Failure> {
        let keys = &keys[..self.at_once.min(keys.len())];
        let commands: Vec<_> =
            keys.iter().map(|key| vec![b"HGETALL".to_vec(), key.clone().into_bytes()]).collect();
        let hashes: Vec<Hash> = self.calls(&commands)?.into_iter().map(Hash::of).collect();
        let bytes: usize = hashes.iter().map(Hash::bytes_len).sum();
        self.at_once = (ROUND_BYTES / (bytes / hashes.len().max(1)).max(1)).clamp(1, PAGE);
        Ok(hashes)
    }
}

fn write_command<T: AsRef<[u8]>>(out: &mut Vec<u8>, words: &[T]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// A list from its oldest end, which is its last place.
#[derive(Debug)]
pub struct ListPages {
    key: String,
    /// Places that are still to be read, those before it.
    left: Option<i64>,
    page: i64,
}

impl ListPages {
    pub fn of(key: String) -> Self {
        Self { key, left: None, page: 50 }
    }

    /// The next members, oldest first.
    pub fn next(&mut self, redis: &mut Redis) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let left = match self.left {
            Some(left) => left,
            None => redis.call(&["LLEN", &self.key])?.integer(),
        };
        if left <= 0 {
            return Ok(None);
        }
        let first = (left - self.page).max(0);
        let (from, to) = (first.to_string(), (left - 1).to_string());
        let mut page = redis.call(&["LRANGE", self.key.as_str(), &from, &to])?.items();
        page.reverse();
        self.left = Some(first);
        let bytes = page.iter().map(Vec::len).sum::<usize>() / page.len().max(1);
        self.page = (ROUND_BYTES / bytes.max(1)).clamp(1, PAGE) as i64;
        Ok(Some(page))
    }
}

/// Members with their scores.
pub type Scored = Vec<(Vec<u8>, f64)>;

/// A sorted set from its lowest score.
#[derive(Debug)]
pub struct SetPages {
    key: String,
    /// The score of the last member that was read, and how many of that score were and are still there.
    last: Option<(Vec<u8>, usize)>,
    /// The members of the page that have it.
    at_last: Vec<Vec<u8>>,
    page: usize,
}

impl SetPages {
    pub fn of(key: String) -> Self {
        Self { key, last: None, at_last: Vec::new(), page: 50 }
    }

    /// The next members with their scores.
    pub fn next(&mut self, redis: &mut Redis) -> Result<Option<Scored>, Failure> {
        let (score, skipped) = self.last.clone().unwrap_or_else(|| (b"-inf".to_vec(), 0));
        let (offset, count) = (skipped.to_string(), self.page.to_string());
        let words: [&[u8]; 8] = [
            b"ZRANGEBYSCORE",
            self.key.as_bytes(),
            &score,
            b"+inf",
            b"WITHSCORES",
            b"LIMIT",
            offset.as_bytes(),
            count.as_bytes(),
        ];
        let mut items = redis.call(&words)?.items().into_iter();
        let mut page = Vec::new();
        let (mut last, mut bytes) = (self.last.take(), 0);
        self.at_last.clear();
        while let (Some(member), Some(score)) = (items.next(), items.next()) {
            if last.as_ref().is_none_or(|(known, _)| *known != score) {
                last = Some((score.clone(), 0));
                self.at_last.clear();
            }
            if let Some((_, seen)) = &mut last {
                *seen += 1;
            }
            self.at_last.push(member.clone());
            bytes += member.len();
            let number = std::str::from_utf8(&score).ok().and_then(|text| text.parse().ok());
            page.push((member, number.unwrap_or(0.0)));
        }
        self.last = last;
        self.page = (ROUND_BYTES / (bytes / page.len().max(1)).max(1)).clamp(1, PAGE);
        Ok((!page.is_empty()).then_some(page))
    }

    /// A member of the page is gone from the set.
    pub fn forget(&mut self, member: &[u8]) {
        if self.at_last.iter().any(|known| known == member)
            && let Some((_, seen)) = &mut self.last
        {
            *seen = seen.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_list_of_counted_words() {
        let mut bytes = Vec::new();
        write_command(&mut bytes, &["GET", "a b"]);
        assert_eq!(bytes, b"*2\r\n$3\r\nGET\r\n$3\r\na b\r\n");
    }
}
