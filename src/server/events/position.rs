//! Where a client is in the events of all shards: how many events each shard has kept, and which life of the server that
//! was. As text it is the id of an event; a client that comes back shows the last one that it has.

use crate::api::limits::SHARDS_MAX;
use std::fmt::Write;

/// A position: the number of the last event of each shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// The life of the server.
    pub epoch: u64,
    pub seen: Vec<u64>,
}

impl Position {
    pub fn new(epoch: u64, shards: usize) -> Self {
        Self { epoch, seen: vec![0; shards] }
    }

    /// Notes that all events of a shard up to this one have come.
    pub fn note(&mut self, shard: u16, number: u64) {
        if let Some(seen) = self.seen.get_mut(usize::from(shard)) {
            *seen = number.max(*seen);
        }
    }

    pub fn write(&self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = write!(out, "{:016x}", self.epoch);
        for (shard, number) in self.seen.iter().enumerate() {
            let _ = write!(out, "{}{number}", if shard == 0 { '-' } else { '.' });
        }
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    /// The position of an id; none if it is no id of this life of a server with so many shards.
    pub fn parse(text: &str, epoch: u64, shards: usize) -> Option<Self> {
        let (life, numbers) = text.split_once('-')?;
        if life.len() != 16 || u64::from_str_radix(life, 16) != Ok(epoch) {
            return None;
        }
        let seen =
            numbers.split('.').take(usize::from(SHARDS_MAX) + 1).map(|number| number.parse().ok());
        let seen: Vec<u64> = seen.collect::<Option<_>>()?;
        (seen.len() == shards).then_some(Self { epoch, seen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_the_position_of_the_life_and_server_that_it_is_of() {
        let mut position = Position::new(0xabc, 2);
        for (shard, number) in [(1, 17), (1, 5), (9, 1)] {
            position.note(shard, number);
        }
        let text = position.text();
        assert_eq!(text, "0000000000000abc-0.17");
        assert_eq!(Position::parse(&text, 0xabc, 2), Some(position));
        assert_eq!(Position::parse(&text, 0xabd, 2), None);
        assert_eq!(Position::parse(&text, 0xabc, 3), None);
        let long = format!("0000000000000abc-{}", "1.".repeat(10_000));
        for wrong in ["", "-", "abc-0.17", "0000000000000abc-", "0000000000000abc-0.x", &long] {
            assert_eq!(Position::parse(wrong, 0xabc, 2), None, "{wrong}");
        }
    }
}
