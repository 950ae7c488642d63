//! The state that a log leads to, by the code that a start uses, and an account of the records that
//! led to it.

use std::collections::BTreeMap;
use std::ops::Range;

use corq_io::log::Position;
use corq_shards::job::State;
use corq_shards::job::progress::Notes;
use corq_shards::lease::token_stream::SecretKey;
use corq_shards::log_record::location::LogRef;
use corq_shards::log_record::{Record, kind_name};
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
    /// Records replayed, by kind. Kinds that are not known have their number as a name.
    pub kinds: BTreeMap<String, Tally>,
    /// Records at which a start would stop. After the first of them the state is not what a server would have.
    pub refused: Vec<Refused>,
    /// Where ids are missing.
    jumps: Vec<Jump>,
    /// The first record that brought one.
    first_new: Option<Position>,
    /// The last record that brought one, and the number of that.
    last_new: Option<(Position, u32)>,
}

/// Between two records that brought jobs there are numbers of which the log says nothing.
#[derive(Clone, Copy, Debug)]
struct Jump {
    after: Position,
    before: Position,
    missing: u64,
}

/// Records that bring a job with a new id.
const BRING_ONE: [&str; 2] = ["pushed", "repeated"];
/// Records that bring jobs in no order of their ids.
const BRING_OTHERS: [&str; 2] = ["kept-job", "staged"];
/// More jumps than this are one loss told many times.
const JUMPS_MAX: usize = 10_000;

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
            bulk_slice: SLICE,
            interval_min_ms: 1,
            scheduled_per_second: u32::MAX,
            expired_kept_ms: 0,
            remembered_bytes_max: u64::MAX,
            seed: 0,
            hash_key: crate::secret::hash_key(),
            token_key: SecretKey::of_seed(0),
        });
        let (kinds, refused, jumps) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { shard, kinds, refused, jumps, first_new: None, last_new: None }
    }

    /// The next record.
    pub fn take(&mut self, position: Position, segment: u64, offset: u64, body: &[u8]) {
        let name = kind_name(body).map_or_else(
            || format!("unknown-{}", body.first().copied().unwrap_or(0)),
            ToOwned::to_owned,
        );
        let brings_one = BRING_ONE.contains(&name.as_str());
        let tally = self.kinds.entry(name).or_default();
        tally.records += 1;
        tally.bytes += body.len() as u64;
        if let Err(malformed) = self.shard.replay(position.0, body)
            && self.refused.len() < REFUSED_MAX
        {
            let reason = malformed.to_string();
            self.refused.push(Refused { segment, offset, reason });
        }
        self.note_new(position, body, brings_one);
    }

    /// Ids of one shard are numbered in the order in which its jobs came.
    fn note_new(&mut self, position: Position, body: &[u8], brings_one: bool) {
        let id = match brings_one.then(|| Record::decode(body)) {
            Some(Ok(Record::Pushed(pushed))) => pushed.id,
            Some(Ok(Record::Repeated(repeated))) => repeated.next.pushed.id,
            _ => return,
        };
        let now = (position, id.sequence());
        self.first_new.get_or_insert(position);
        let Some((after, sequence)) = self.last_new.replace(now) else { return };
        let step = id.sequence().wrapping_sub(sequence);
        // More than half of all numbers is a step back.
        if (2..u32::MAX / 2).contains(&step) && self.jumps.len() < JUMPS_MAX {
            let missing = u64::from(step - 1);
            self.jumps.push(Jump { after, before: position, missing });
        }
    }

    /// At most so many jobs came with records that lay in these stretches: as many as there are ids missing between those of
    /// the jobs around them. Some ids were never given to a job.
    pub fn missed_between(&self, stretches: &[Range<Position>]) -> u64 {
        let spans = |jump: &&Jump| {
            stretches.iter().any(|lost| jump.after < lost.start && jump.before >= lost.end)
        };
        self.jumps.iter().filter(spans).map(|jump| jump.missing).sum()
    }

    /// Whether no more jobs came with records that lay in these stretches than [`Replay::missed_between`] says: there are jobs
    /// with numbers before and behind each of them, and no other record of the log brings jobs.
    pub fn bounds(&self, stretches: &[Range<Position>]) -> bool {
        let Some((first, (last, _))) = self.first_new.zip(self.last_new) else { return false };
        let is_numbered = !BRING_OTHERS.iter().any(|kind| self.kinds.contains_key(*kind));
        is_numbered && stretches.iter().all(|lost| first < lost.start && last >= lost.end)
    }

    /// All jobs there are. Costs a step per job.
    pub fn ids(&self) -> impl Iterator<Item = u128> {
        self.shard.indices().map(|index| self.shard.view(index).job.id.0)
    }

    /// Jobs that have something among what is missing of the log: their payload, result or one of their
    /// log lines. Costs a step per job.
    pub fn bereft(&self, stretches: &[Range<Position>]) -> Vec<u128> {
        let lost = |stored: &LogRef| {
            stretches.iter().any(|stretch| stretch.contains(&Position(stored.position)))
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
