//! Repeated jobs in the model: the completion of a run brings the next one, in one record.

use super::check::Check;
use super::family::FamilyModel;
use super::job_rules::Moment;
use super::keys::begin_key;
use super::model::{Job, Model, Notes, State};
use corq_shards::job::id::{JobId, Slot};
use corq_shards::log_record::Record;
use std::collections::BTreeSet;

/// The series of a run, and its place there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Series {
    pub every_ms: u64,
    pub limit: Option<u64>,
    pub count: u64,
    pub due_ms: u64,
    pub ttl_ms: Option<u64>,
    pub continued: bool,
}

impl Series {
    fn has_next(&self) -> bool {
        !self.continued && self.limit.is_none_or(|limit| self.count + 1 < limit)
    }

    fn next_due_ms(&self, now_ms: u64) -> u64 {
        let mut due_ms = self.due_ms + self.every_ms;
        if due_ms < now_ms {
            due_ms += (now_ms - due_ms).div_ceil(self.every_ms) * self.every_ms;
        }
        due_ms
    }
}

impl Model {
    /// The next run of a completed one, if one is due. Its id is the shard's choice.
    pub fn repeat(&mut self, at: &Moment<'_>, id: JobId) {
        let follower = at.records().find_map(|(place, record)| match record {
            Record::Repeated(repeated) if repeated.ended.id == id => {
                let next = &repeated.next.pushed;
                Some((place, next.id, next.run_at_ms))
            }
            _ => None,
        });
        let job = &self.jobs[&id];
        let next = job.series.filter(Series::has_next);
        self.must(Check::Repeat, follower.is_some() == next.is_some(), || {
            format!("{job:?}\n  is followed by {follower:?}")
        });
        let (Some(series), Some((place, next, run_at_ms))) = (next, follower) else { return };
        let due_ms = series.next_due_ms(at.now_ms);
        let highest = self.jobs.keys().next_back().is_none_or(|&last| last < next);
        let routed = next.is_v7() && next.slot() == Slot::of_name(job.queue_name());
        self.must(Check::Repeat, run_at_ms == due_ms && highest && routed, || {
            format!("{job:?}\n  is followed at {run_at_ms}, not {due_ms}, by {next:?}")
        });
        let mut extras = job.extras;
        extras.made_at_ms = None;
        begin_key(&mut extras, at.now_ms);
        let state = if run_at_ms > at.now_ms { State::Delayed } else { State::Waiting };
        let run = Job {
            id: next,
            run_at_ms,
            state,
            expires_at_ms: series.ttl_ms.map(|ttl_ms| at.now_ms + ttl_ms),
            extras,
            attempts: 0,
            stalls: 0,
            redelivered: 0,
            family: FamilyModel::default(),
            unmet: BTreeSet::new(),
            notes: Notes::default(),
            series: Some(Series { count: series.count + 1, due_ms: run_at_ms, ..series }),
            ..job.clone()
        };
        self.record = Some(place);
        self.change(id).series = Some(Series { continued: true, ..series });
        self.come(at.now_ms, run);
    }
}
