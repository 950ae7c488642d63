//! The state that a log leads to, by the code that a start uses, and an account of the records that
//! led to it.

use std::collections::BTreeMap;

use corq_io::log::{Inspection, Position};
use corq_shards::job::State;
use corq_shards::job::Stored;
use corq_shards::notes::Notes;
use corq_shards::record::kind_name;
use corq_shards::secret::SecretKey;
use corq_shards::{Config, SLICE, Shard};

/// Records of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub records: u64,
    /// Their bytes, without what the log puts around them.
    pub bytes: u64,
}

/// A record that a start would not take, although it is what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The segment that it lies in.
    pub segment: u64,
    /// Where in that segment's file.
    pub offset: u64,
    /// Why not.
    pub reason: String,
}

/// A shard that is being built from its records.
pub struct Replay {
    /// The state so far.
    pub shard: Shard,
    /// What led to it, by kind. Kinds that are not known have their number as a name.
    pub kinds: BTreeMap<String, Tally>,
    /// What a start would stop at. After the first of them the state is not what a server would have.
    pub refused: Vec<Refused>,
}

/// More of them than this are one fault told many times.
const REFUSED_MAX: usize = 100;

impl Replay {
    /// Nothing yet. `completed_max` is the server's setting, which decides what is forgotten where the log
    /// does not say it, as those of older releases do not.
    pub fn new(completed_max: u32) -> Self {
        let shard = Shard::new(Config {
            completed_max,
            unsaid_completed_max: completed_max,
            completed_retention_ms: u64::MAX,
            // Only sums are asked for.
            span_bits: 26,
            chore_slice: SLICE,
            seed: 0,
            hash_key: crate::secret::hash_key(),
            token_key: SecretKey::of_seed(0),
        });
        Self { shard, kinds: BTreeMap::new(), refused: Vec::new() }
    }

    /// The next record.
    pub fn take(&mut self, position: Position, segment: u64, offset: u64, body: &[u8]) {
        let name = kind_name(body).map_or_else(
            || format!("unknown-{}", body.first().copied().unwrap_or(0)),
            ToOwned::to_owned,
        );
        let tally = self.kinds.entry(name).or_default();
        tally.records += 1;
        tally.bytes += body.len() as u64;
        if let Err(malformed) = self.shard.replay(position.0, body)
            && self.refused.len() < REFUSED_MAX
        {
            let reason = malformed.to_string();
            self.refused.push(Refused { segment, offset, reason });
        }
    }

    /// Jobs that have something among what is missing of the log: their payload, result or one of their
    /// log lines. Costs a step per job.
    pub fn bereft(&self, inspections: &[&Inspection]) -> Vec<u128> {
        let lost = |stored: &Stored| {
            inspections.iter().any(|inspection| inspection.is_lost(Position(stored.position)))
        };
        let mut found = Vec::new();
        for index in self.shard.indices() {
            let view = self.shard.view(index);
            let notes = view.options.and_then(|options| options.notes.as_deref());
            let mut texts = notes.into_iter().flat_map(Notes::texts);
            let outcome = view.outcome.map(|outcome| outcome.stored);
            if lost(&view.data) || outcome.as_ref().is_some_and(lost) || texts.any(lost) {
                found.push(view.job.id.0);
            }
        }
        found
    }

    /// Jobs by state, in the order in which states are named.
    pub fn states(&self) -> Vec<(&'static str, u64)> {
        let count = |state: State| self.shard.queues().map(|queue| queue.count(state)).sum();
        State::ALL.iter().map(|&state| (state.name(), count(state))).collect()
    }
}
