//! The search: breadth first, so that the first broken promise has the shortest way to it.

use super::promises::broken;
use super::rules::Rules;
use super::state::State;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

/// Mixes small numbers: the usual hasher, which resists attackers, takes most of the time of a search.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u8(byte);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u8(number as u8);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u8(number as u8);
    }
}

/// A promise that is broken, and the steps that lead there.
pub struct Violation {
    pub promise: &'static str,
    pub steps: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is broken in {} steps", self.promise, self.steps.len())?;
        (1..).zip(&self.steps).try_for_each(|(at, step)| write!(f, "\n{at:4}. {step}"))
    }
}

/// The outcome of a search.
pub struct Found {
    pub states: usize,
    /// The steps that were taken, each once.
    pub taken: BTreeSet<&'static str>,
    pub violation: Option<Violation>,
}

/// Searches all that can happen, up to the first broken promise.
pub fn search(rules: Rules) -> Found {
    let first = State::first([1, 2].map(|process| rules.nonce(process)));
    // Each state with its number and that of the one before it, for the way to it.
    let mut seen: HashMap<State, (u32, u32), BuildHasherDefault<Mixer>> = HashMap::default();
    seen.insert(first, (0, 0));
    let mut queue = VecDeque::from([first]);
    let (mut taken, mut steps) = (BTreeSet::new(), Vec::new());
    for at in 0.. {
        let Some(state) = queue.pop_front() else { break };
        if let Some(promise) = broken(&rules, &state) {
            let mut states: Vec<_> =
                seen.into_iter().map(|(state, (at, from))| (at, from, state)).collect();
            states.sort_unstable_by_key(|(at, ..)| *at);
            let steps = way(&rules, &states, at);
            let violation = Some(Violation { promise, steps });
            return Found { states: states.len(), taken, violation };
        }
        rules.steps(&state, &mut steps);
        for (step, next) in steps.drain(..) {
            taken.insert(step.what);
            let number = seen.len() as u32;
            seen.entry(next).or_insert_with(|| {
                queue.push_back(next);
                (number, at)
            });
        }
    }
    Found { states: seen.len(), taken, violation: None }
}

/// The steps that lead to a state, found again from each state and the one before.
fn way(rules: &Rules, states: &[(u32, u32, State)], mut at: u32) -> Vec<String> {
    let mut way = Vec::new();
    while at > 0 {
        let (_, before, state) = states[at as usize];
        at = before;
        let mut steps = Vec::new();
        rules.steps(&states[at as usize].2, &mut steps);
        let step = steps.iter().find(|(_, next)| *next == state);
        way.extend(step.map(|(step, _)| step.to_string()));
    }
    way.reverse();
    way
}
