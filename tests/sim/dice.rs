//! Chance with a seed: the only source of choice in a run.

use corq_shards::job::id::Chance;

/// A source of random choices.
pub struct Dice(Chance);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Chance::new(seed ^ 0x7369_6d75_6c61_7465))
    }

    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.draw() % bound
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}
