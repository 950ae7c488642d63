//! Flows in the model of one shard: parts that nobody sees yet, and words that were given.

use super::check::Check;
use super::job_rules::Moment;
use super::model::{Job, Model, Old};
use corq_shards::Shard;
use corq_shards::flow::Fate;
use corq_shards::job::id::JobId;
use corq_shards::log_record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// Staged jobs of flows.
#[derive(Default)]
pub struct Staged {
    /// The parts of flows, by job.
    pub parts: BTreeMap<JobId, BTreeMap<JobId, Job>>,
    /// Flows that others may not know of.
    pub words: BTreeSet<JobId>,
    /// Parts that come, or go, in slices.
    pub sliced: BTreeMap<JobId, bool>,
}

/// The state before a change, to undo it by.
pub enum OldStaged {
    Part { flow: JobId, id: JobId, job: Option<Box<Job>> },
    Word { flow: JobId, given: bool },
}

impl Staged {
    fn take(&mut self, flow: JobId, id: JobId) -> Option<Job> {
        let parts = self.parts.get_mut(&flow)?;
        let job = parts.remove(&id);
        if parts.is_empty() {
            self.parts.remove(&flow);
            self.sliced.remove(&flow);
        }
        job
    }

    /// A change is lost.
    pub fn undo(&mut self, old: OldStaged) {
        match old {
            OldStaged::Part { flow, id, job: Some(job) } => {
                self.parts.entry(flow).or_default().insert(id, *job);
            }
            OldStaged::Part { flow, id, job: None } => {
                let parts = self.parts.entry(flow).or_default();
                parts.remove(&id);
                if parts.is_empty() {
                    self.parts.remove(&flow);
                }
            }
            OldStaged::Word { flow, given: true } => {
                self.words.insert(flow);
            }
            OldStaged::Word { flow, given: false } => {
                self.words.remove(&flow);
            }
        }
    }
}

impl Model {
    /// A part of a flow is written down.
    pub fn stage(&mut self, at: &Moment<'_>, flow: JobId, jobs: &[Job]) {
        for job in jobs {
            let place = at.place_of(|record| match record {
                Record::Staged(staged) => staged.pushed.id == job.id,
                _ => false,
            });
            self.must(Check::Flow, place.is_some(), || format!("{job:?} is not staged"));
            self.record = place;
            self.keep(Old::Staged(OldStaged::Part { flow, id: job.id, job: None }));
            self.staged.parts.entry(flow).or_default().insert(job.id, job.clone());
        }
        self.record = None;
    }

    /// A shard decides what becomes of a flow, as far as it is its own.
    pub fn decide(&mut self, at: &Moment<'_>, flow: JobId, fate: Fate) {
        let is_staged = self.staged.parts.contains_key(&flow);
        let known = match fate {
            Fate::Committed | Fate::CommittedHere | Fate::CommittedInSlices => true,
            Fate::Released | Fate::Dropped => is_staged && !self.staged.sliced.contains_key(&flow),
            Fate::Done => self.staged.words.contains(&flow),
        };
        let in_slices = known && is_staged && at.shard.is_staged(flow);
        let place = at.place_of(|record| match record {
            Record::Flow { flow: of, fate: Fate::CommittedInSlices } => *of == flow && in_slices,
            Record::Flow { flow: of, fate: its } => (*of, *its) == (flow, fate),
            _ => false,
        });
        if in_slices {
            let come = fate != Fate::Dropped;
            self.staged.sliced.insert(flow, come);
            if matches!(fate, Fate::Released | Fate::Dropped) {
                // The records of the slices say it.
                return;
            }
        }
        self.must(Check::Flow, place.is_some() == known, || {
            format!("{flow:?} is to be {fate:?}, and is it at {place:?}")
        });
        if !known {
            return;
        }
        self.record = place;
        if matches!(fate, Fate::Committed | Fate::Done) || in_slices {
            let given = self.staged.words.contains(&flow);
            self.keep(Old::Staged(OldStaged::Word { flow, given }));
            if fate == Fate::Done {
                self.staged.words.remove(&flow);
            } else {
                self.staged.words.insert(flow);
            }
        }
        if fate != Fate::Done && !in_slices {
            for (id, job) in self.staged.parts.remove(&flow).unwrap_or_default() {
                let old = Some(Box::new(job.clone()));
                self.keep(Old::Staged(OldStaged::Part { flow, id, job: old }));
                if fate != Fate::Dropped {
                    self.come(at.now_ms, job);
                }
            }
        }
        self.record = None;
    }

    /// A job is heard of. If it is staged here, its flow must have come.
    pub fn hear_of(&mut self, at: &Moment<'_>, job: JobId) {
        let flow = self.staged.parts.iter().find(|(_, parts)| parts.contains_key(&job));
        if let Some(flow) = flow.map(|(&flow, _)| flow) {
            self.decide(at, flow, Fate::Released);
            let comes = self.staged.parts.get(&flow).and_then(|parts| parts.get(&job)).is_none();
            let recorded = at.place_of(|record| match record {
                Record::FlowSlice { first, last, .. } => (*first, *last) == (job, job),
                _ => false,
            });
            self.must(Check::Flow, comes || recorded.is_some(), || {
                format!("{job:?} is heard of, and does not come")
            });
            self.follow_slices(at);
        }
    }

    /// Follows parts that come or go in slices, by the shard's records.
    pub fn follow_slices(&mut self, at: &Moment<'_>) {
        for (place, record) in at.records() {
            let Record::FlowSlice { flow, first, last, come } = record else { continue };
            let decided = self.staged.sliced.get(&flow) == Some(&come);
            let parts = self.staged.parts.get(&flow);
            let ids: Vec<JobId> = parts
                .map(|parts| parts.range(first..=last).map(|(&id, _)| id).collect())
                .unwrap_or_default();
            self.must(Check::Flow, decided && !ids.is_empty(), || {
                format!("from {first:?} to {last:?} of {flow:?}: {ids:?}, {:?}", self.staged.sliced)
            });
            self.record = Some(place);
            for id in ids {
                let Some(job) = self.staged.take(flow, id) else { continue };
                let old = Some(Box::new(job.clone()));
                self.keep(Old::Staged(OldStaged::Part { flow, id, job: old }));
                if come {
                    self.come(at.now_ms, job);
                }
            }
            self.record = None;
        }
    }

    /// After a start: what others may not know of comes.
    pub fn resume_slices(&mut self) {
        let Staged { parts, words, sliced } = &mut self.staged;
        sliced
            .extend(words.iter().filter(|flow| parts.contains_key(flow)).map(|&flow| (flow, true)));
    }

    /// Checks that the shard knows the flows under way, and no others.
    pub fn compare_flows(&self, shard: &Shard) {
        let staged: Vec<JobId> = self.staged.parts.keys().copied().collect();
        let words: Vec<JobId> = self.staged.words.iter().copied().collect();
        let found = (shard.staged_flows(), shard.open_flows());
        self.must(Check::Flow, (&found.0, &found.1) == (&staged, &words), || {
            format!("flows {found:?} are under way, not {staged:?} and {words:?}")
        });
    }
}
