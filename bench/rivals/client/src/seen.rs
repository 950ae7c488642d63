//! Which jobs have come back: one bit per number, so that "exactly once" is a fact about a run.

/// The numbers given out so far, and those that came back.
#[derive(Default)]
pub struct Seen {
    words: Vec<u64>,
    given: u32,
    pub received: u64,
    pub twice: u64,
    pub strange: u64,
}

impl Seen {
    /// A number for a new job.
    pub fn next(&mut self) -> u32 {
        let sequence = self.given;
        self.given += 1;
        if self.words.len() <= sequence as usize / 64 {
            self.words.push(0);
        }
        sequence
    }

    pub fn note(&mut self, sequence: u32) {
        if sequence >= self.given {
            self.strange += 1;
            return;
        }
        let (word, bit) = (&mut self.words[sequence as usize / 64], 1_u64 << (sequence % 64));
        if *word & bit != 0 {
            self.twice += 1;
        } else {
            *word |= bit;
            self.received += 1;
        }
    }

    /// Jobs that are still to come.
    pub fn missing(&self) -> u64 {
        u64::from(self.given) - self.received
    }

    /// The faults so far, in words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.twice > 0 {
            problems.push(format!("{} jobs were received twice", self.twice));
        }
        if self.strange > 0 {
            problems.push(format!("{} jobs were received that nobody pushed", self.strange));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_and_strangers_are_told_from_firsts() {
        let mut seen = Seen::default();
        for _ in 0..100 {
            seen.next();
        }
        for sequence in [0, 64, 99, 64, 100] {
            seen.note(sequence);
        }
        assert_eq!((seen.received, seen.twice, seen.strange, seen.missing()), (3, 1, 1, 97));
        assert_eq!(seen.problems().len(), 2);
    }
}
