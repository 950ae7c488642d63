//! Which queues the text for Prometheus lists one by one: with ten thousand of them it would have megabytes otherwise.

use super::queue_lines::QueueLines;
use crate::api::error::Error;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most queues that `top:N` can ask for: they are kept until all are known.
pub const TOP_MAX: usize = 1000;

/// The value of the field `queues`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum QueueChoice {
    /// All of them, up to the most that are listed.
    #[default]
    All,
    /// None: the sums say enough.
    Nothing,
    /// This many queues: those with the most jobs that wait, are delayed or active.
    Top(usize),
    /// Queues whose names begin so.
    Prefix(Box<str>),
}

impl QueueChoice {
    /// Reads the field `queues`.
    pub fn parse(text: Option<&str>) -> Result<Self, Error> {
        let Some(text) = text else { return Ok(Self::All) };
        let wrong = || {
            Error::must_be(
                "queues",
                format_args!("all, none, top:N (1 to {TOP_MAX}) or prefix:name"),
            )
        };
        match text.split_once(':') {
            None if text == "all" => Ok(Self::All),
            None if text == "none" => Ok(Self::Nothing),
            Some(("prefix", name)) if !name.is_empty() => Ok(Self::Prefix(name.into())),
            Some(("top", number)) => match number.parse() {
                Ok(most @ 1..=TOP_MAX) => Ok(Self::Top(most)),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }

    /// Whether a queue of this name may be listed.
    pub fn takes(&self, name: &str) -> bool {
        match self {
            Self::All | Self::Top(_) => true,
            Self::Nothing => false,
            Self::Prefix(prefix) => name.starts_with(&**prefix),
        }
    }
}

/// Queues by how many jobs they have, and their lines: the longest so far.
#[derive(Debug, Default)]
pub struct Longest {
    /// The shortest is the first to go. Of equals the one that comes later in the alphabet is.
    heap: BinaryHeap<(Reverse<u64>, Box<str>)>,
    lines: std::collections::BTreeMap<Box<str>, (u64, QueueLines)>,
}

impl Longest {
    /// Whether a queue with so many jobs would be kept among so many.
    pub fn wants(&self, jobs: u64, name: &str, most: usize) -> bool {
        self.heap.len() < most
            || self.heap.peek().is_some_and(|(Reverse(least), last)| {
                jobs > *least || jobs == *least && name < &**last
            })
    }

    /// Keeps a queue if it is one of so many.
    pub fn add(&mut self, jobs: u64, name: &str, lines: QueueLines, most: usize) {
        if !self.wants(jobs, name, most) {
            return;
        }
        self.heap.push((Reverse(jobs), name.into()));
        self.lines.insert(name.into(), (jobs, lines));
        if self.heap.len() > most
            && let Some((_, name)) = self.heap.pop()
        {
            self.lines.remove(&name);
        }
    }

    /// How long their lines are.
    pub fn bytes(&self) -> usize {
        self.lines.values().map(|(_, lines)| lines.bytes()).sum()
    }

    /// Adds those of another list.
    pub fn merge(&mut self, other: &Self, most: usize) {
        for (name, (jobs, lines)) in &other.lines {
            self.add(*jobs, name, lines.clone(), most);
        }
    }

    /// The lines, in the order of the names.
    pub fn lines(&self) -> impl Iterator<Item = &QueueLines> {
        self.lines.values().map(|(_, lines)| lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_one_of_four_forms() {
        let parsed = |text| QueueChoice::parse(Some(text));
        assert_eq!(QueueChoice::parse(None), Ok(QueueChoice::All));
        assert_eq!(parsed("all"), Ok(QueueChoice::All));
        assert_eq!(parsed("none"), Ok(QueueChoice::Nothing));
        assert_eq!(parsed("top:7"), Ok(QueueChoice::Top(7)));
        assert_eq!(parsed("prefix:mail:"), Ok(QueueChoice::Prefix("mail:".into())));
        for wrong in ["", "some", "top", "top:", "top:0", "top:1001", "top:-1", "prefix:", "prefix"]
        {
            let error = parsed(wrong).map_err(|error| error.text().to_owned());
            let expected = "queues must be all, none, top:N (1 to 1000) or prefix:name";
            assert_eq!(error, Err(expected.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn the_longest_queues_stay_and_of_equals_the_first_in_the_alphabet() {
        let mut longest = Longest::default();
        for (jobs, name) in [(3, "c"), (9, "z"), (3, "b"), (1, "a"), (3, "d"), (5, "m")] {
            longest.add(jobs, name, QueueLines::default(), 3);
        }
        let names: Vec<&str> = longest.lines.keys().map(|name| &**name).collect();
        assert_eq!(names, ["b", "m", "z"]);
        let mut both = Longest::default();
        both.add(4, "q", QueueLines::default(), 3);
        both.merge(&longest, 3);
        let names: Vec<&str> = both.lines.keys().map(|name| &**name).collect();
        assert_eq!(names, ["m", "q", "z"]);
    }
}
