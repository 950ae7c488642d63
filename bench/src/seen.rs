//! Which jobs have come back: one bit per sequence number, so that "exactly once" is a fact about
//! this run and not a hope.

/// A growing set of sequence numbers.
#[derive(Default)]
pub(crate) struct Seen {
    words: Vec<u64>,
    pub(crate) received: u64,
    pub(crate) twice: u64,
    pub(crate) strange: u64,
}

impl Seen {
    /// Notes a received job. `pushed` is how many numbers have been given out so far.
    pub(crate) fn note(&mut self, sequence: Option<u32>, pushed: u32) {
        let Some(sequence) = sequence.filter(|sequence| *sequence < pushed) else {
            self.strange += 1;
            return;
        };
        let (word, bit) = (sequence as usize / 64, 1_u64 << (sequence % 64));
        if word >= self.words.len() {
            self.words.resize((word + 1).next_power_of_two(), 0);
        }
        if self.words[word] & bit != 0 {
            self.twice += 1;
            return;
        }
        self.words[word] |= bit;
        self.received += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_and_strangers_are_told_from_firsts() {
        let mut seen = Seen::default();
        for sequence in [0, 63, 64, 1000, 64] {
            seen.note(Some(sequence), 1001);
        }
        seen.note(Some(1001), 1001);
        seen.note(None, 1001);
        assert_eq!((seen.received, seen.twice, seen.strange), (4, 1, 2));
    }
}
