//! Report of an import: jobs by state, which field went where, what was left out and why, and what was refused. Counts
//! grow with the kinds of things, not with the jobs.

use std::collections::BTreeMap;

use super::model::State;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table};
use crate::protocol::msgpack::writer::Writer;

/// Kinds of lines that are kept of each sort; there are more only if a source names its options after its jobs.
const KINDS_MAX: usize = 500;
/// Refusals that are shown.
const SHOWN_MAX: usize = 10;

/// How many jobs of a state.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    read: u64,
    pushed: u64,
    known: u64,
    refused: u64,
    left: u64,
}

/// How often, and of which job first.
#[derive(Debug, Default)]
struct Seen {
    count: u64,
    example: String,
}

/// The report.
#[derive(Debug, Default)]
pub struct Report {
    is_dry: bool,
    states: BTreeMap<State, Counts>,
    /// From which field to which.
    carried: BTreeMap<(String, String), Seen>,
    /// Which field, and why not.
    dropped: BTreeMap<(String, String), Seen>,
    refused: Vec<(String, String)>,
    schedules: Counts,
    /// Queues that were set up.
    settings: u64,
    /// Jobs that the source has forgotten.
    removed: u64,
    /// Jobs that a worker of the source had taken when it was to forget them.
    taken: u64,
}

fn note(map: &mut BTreeMap<(String, String), Seen>, one: &str, two: &str, example: &str) {
    let key = (one.to_owned(), two.to_owned());
    if map.len() >= KINDS_MAX && !map.contains_key(&key) {
        return;
    }
    let seen = map.entry(key).or_default();
    if seen.count == 0 {
        example.clone_into(&mut seen.example);
    }
    seen.count += 1;
}

impl Report {
    /// An empty report; `is_dry` if nothing will be pushed.
    pub fn new(is_dry: bool) -> Self {
        Self { is_dry, ..Self::default() }
    }

    pub fn read(&mut self, state: State) {
        self.states.entry(state).or_default().read += 1;
    }

    /// Jobs that are on the server now, so many of them since before.
    pub fn pushed(&mut self, state: State, jobs: u64, known: u64) {
        let counts = self.states.entry(state).or_default();
        counts.pushed += jobs.saturating_sub(known);
        counts.known += known;
    }

    /// A job that was not asked for.
    pub fn left(&mut self, state: State) {
        self.states.entry(state).or_default().left += 1;
    }

    pub fn refused(&mut self, state: State, id: &str, reason: &str) {
        self.states.entry(state).or_default().refused += 1;
        self.note_refusal(id, reason);
    }

    fn note_refusal(&mut self, id: &str, reason: &str) {
        if self.refused.len() < SHOWN_MAX {
            self.refused.push((id.to_owned(), reason.to_owned()));
        }
    }

    pub fn carried(&mut self, from: &str, to: &str, example: &str) {
        note(&mut self.carried, from, to, example);
    }

    pub fn dropped(&mut self, from: &str, why: &str, example: &str) {
        note(&mut self.dropped, from, why, example);
    }

    pub fn schedule_set(&mut self) {
        self.schedules.read += 1;
        self.schedules.pushed += 1;
    }

    pub fn schedule_known(&mut self) {
        self.schedules.read += 1;
        self.schedules.known += 1;
    }

    pub fn schedule_left(&mut self) {
        self.schedules.read += 1;
        self.schedules.left += 1;
    }

    pub fn schedule_refused(&mut self, name: &str, reason: &str) {
        self.schedules.read += 1;
        self.schedules.refused += 1;
        self.note_refusal(name, reason);
    }

    pub fn settings_set(&mut self) {
        self.settings += 1;
    }

    pub fn removed(&mut self, was_there: bool) {
        if was_there {
            self.removed += 1;
        } else {
            self.taken += 1;
        }
    }

    /// Jobs and schedules that were refused.
    pub fn refusals(&self) -> u64 {
        self.schedules.refused + self.states.values().map(|counts| counts.refused).sum::<u64>()
    }

    /// Jobs that have been read.
    pub fn jobs(&self) -> u64 {
        self.states.values().map(|counts| counts.read).sum()
    }

    /// Shows it to people.
    pub fn show(&self, out: &mut Output) -> Result<(), Failure> {
        let pushed = if self.is_dry { ">WOULD PUSH" } else { ">PUSHED" };
        let mut table = Table::new(&["STATE", ">READ", pushed, ">KNOWN", ">LEFT OUT", ">REFUSED"]);
        let row = |name: &str, counts: &Counts| {
            let Counts { read, pushed, known, left, refused } = counts;
            let numbers = [read, pushed, known, left, refused].map(|it| it.to_string().into());
            [vec![name.to_owned().into()], numbers.to_vec()].concat()
        };
        for (state, counts) in &self.states {
            table.row(row(state.name(), counts));
        }
        if self.schedules.read > 0 {
            table.row(row("schedules", &self.schedules));
        }
        if table.is_empty() {
            out.line("the source has no jobs")?;
        } else {
            out.table(&table)?;
        }
        if self.settings > 0 {
            out.line(&format!("settings of queues: {}", self.settings))?;
        }
        if self.removed + self.taken > 0 {
            out.line(&format!(
                "removed from the source: {}; taken by its workers before that, so that they may run twice: {}",
                self.removed, self.taken
            ))?;
        }
        let kinds = [("FIELD", "BECOMES", &self.carried), ("LEFT OUT", "WHY", &self.dropped)];
        for (one, two, map) in kinds.into_iter().filter(|(_, _, map)| !map.is_empty()) {
            out.line("")?;
            let mut table = Table::new(&[one, two, ">JOBS", "FIRST"]);
            for ((from, to), seen) in map {
                table.row(vec![
                    from.clone().into(),
                    to.clone().into(),
                    seen.count.to_string().into(),
                    seen.example.clone().into(),
                ]);
            }
            out.table(&table)?;
        }
        if !self.refused.is_empty() {
            out.line("")?;
            let mut table = Table::new(&["REFUSED", "WHY"]);
            for (id, reason) in &self.refused {
                table.row(vec![id.clone().into(), reason.clone().into()]);
            }
            out.table(&table)?;
        }
        Ok(())
    }

    /// The report for programs: one map.
    pub fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut to = Writer::new(&mut out);
        to.map(9);
        to.str("dryRun");
        to.bool(self.is_dry);
        to.str("states");
        to.map(self.states.len());
        for (state, counts) in &self.states {
            to.str(state.name());
            write_counts(&mut to, counts);
        }
        to.str("schedules");
        write_counts(&mut to, &self.schedules);
        for (name, count) in
            [("settings", self.settings), ("removed", self.removed), ("taken", self.taken)]
        {
            to.str(name);
            to.uint(count);
        }
        for (name, words, map) in [
            ("carried", ["from", "to"], &self.carried),
            ("dropped", ["field", "why"], &self.dropped),
        ] {
            to.str(name);
            to.array(map.len());
            for ((from, other), seen) in map {
                to.map(4);
                for (name, text) in [(words[0], from), (words[1], other), ("first", &seen.example)]
                {
                    to.str(name);
                    to.str(text);
                }
                to.str("jobs");
                to.uint(seen.count);
            }
        }
        to.str("refused");
        to.array(self.refused.len());
        for (id, reason) in &self.refused {
            to.map(2);
            for (name, text) in [("id", id), ("error", reason)] {
                to.str(name);
                to.str(text);
            }
        }
        out
    }
}

fn write_counts(to: &mut Writer<'_>, counts: &Counts) {
    let Counts { read, pushed, known, refused, left } = *counts;
    let all = [
        ("read", read),
        ("pushed", pushed),
        ("known", known),
        ("refused", refused),
        ("left", left),
    ];
    to.map(all.len());
    for (name, count) in all {
        to.str(name);
        to.uint(count);
    }
}
