//! Ids that carry their route: a UUIDv7 whose last three hex digits are the slot of its queue.

/// Number of slots a queue name can hash to.
pub const SLOTS: u16 = 4096;

/// Milliseconds of an id are above these bits.
const TIME_SHIFT: u32 = 80;

/// Times of ids end here.
pub const ID_MS_MAX: u64 = (1 << 48) - 1;

/// The slot of a queue: the stable part of its name that decides which shard owns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
pub struct Slot(u16);

impl Slot {
    /// The slot of a queue name. Written into every id, so the hash can never change: FNV-1a, 64
    /// bits, folded to 12.
    #[allow(clippy::disallowed_methods)] // Decides where the queue lives.
    pub fn of_name(name: &str) -> Self {
        let hash = fnv1a(name.as_bytes());
        let folded = hash ^ (hash >> 12) ^ (hash >> 24) ^ (hash >> 36) ^ (hash >> 48);
        Self((folded & u64::from(SLOTS - 1)) as u16)
    }

    /// The slot of an index below [`SLOTS`].
    pub(crate) fn at(index: u16) -> Self {
        assert!(index < SLOTS, "there is no slot {index}");
        Self(index)
    }

    /// The slot as an index below [`SLOTS`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A job's own id. Ids made by one shard rise strictly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, Default)]
pub struct JobId(pub u128);

impl JobId {
    /// The slot of the queue the job was pushed to.
    pub fn slot(self) -> Slot {
        Slot((self.0 as u16) & (SLOTS - 1))
    }

    /// When the id was made, in milliseconds since the epoch.
    pub fn made_at_ms(self) -> u64 {
        (self.0 >> TIME_SHIFT) as u64
    }

    /// The id that sorts where a job stands that was made at another time than its id: the same behind the time. Later times
    /// than ids have sort as the last that they have.
    #[must_use]
    pub fn made_at(self, at_ms: u64) -> Self {
        let rest = self.0 & ((1 << TIME_SHIFT) - 1);
        Self(u128::from(at_ms.min(ID_MS_MAX)) << TIME_SHIFT | rest)
    }

    /// Number of the id among those of the shard that made it. Wraps after four billion.
    pub fn sequence(self) -> u32 {
        let high = (self.0 >> 64) as u32 & 0xfff;
        let low = (self.0 >> 42) as u32 & ((1 << SEQUENCE_LOW_BITS) - 1);
        (high << SEQUENCE_LOW_BITS) | low
    }

    /// Whether the bits are those of a version 7 UUID, the only form corq gives out.
    pub fn is_v7(self) -> bool {
        (self.0 >> 76) & 0xf == 7 && (self.0 >> 62) & 0b11 == 0b10
    }
}

/// The text that clients see.
impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let group = |shift: u32, digits: u32| (self.0 >> shift) & ((1 << (4 * digits)) - 1);
        let (time, more_time, version) = (group(96, 8), group(80, 4), group(64, 4));
        let (variant, rest) = (group(48, 4), group(0, 12));
        write!(f, "{time:08x}-{more_time:04x}-{version:04x}-{variant:04x}-{rest:012x}")
    }
}

/// FNV-1a over bytes: stable for ever, good enough for short names. It decides where a name lives; in a table that
/// clients fill it would let them choose which names meet: those are looked up by [`crate::collections::hash_key`].
pub fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}

/// Makes ids that rise strictly within a shard, from the time and a seeded generator.
///
/// Layout behind the version and variant bits: 48 bits of time, 32 of a sequence that counts every
/// id of the shard, 30 of chance, 12 of the slot. The sequence never starts over with the time, so
/// that ids made one after the other have neighbouring sequences, which the index of jobs builds on.
/// When it wraps within a millisecond the time moves on by one, so ids still rise.
pub struct IdMaker {
    last_ms: u64,
    sequence: u32,
    chance: Chance,
}

/// Bits of the sequence that stand behind the variant.
const SEQUENCE_LOW_BITS: u32 = 20;

impl IdMaker {
    /// A maker whose ids all rise above `floor`.
    pub fn new(seed: u64, floor: JobId) -> Self {
        let mut maker = Self { last_ms: 0, sequence: 0, chance: Chance::new(seed) };
        maker.rise_above(floor);
        maker
    }

    /// Makes sure that no later id is at or below `floor`, as recovery needs for replayed ids.
    pub fn rise_above(&mut self, floor: JobId) {
        if floor.made_at_ms() >= self.last_ms {
            self.last_ms = floor.made_at_ms() + 1;
            self.sequence = floor.sequence();
        }
    }

    /// At or above every id made or seen so far, and below every later one.
    pub fn highest(&self) -> JobId {
        let high = u128::from(self.sequence >> SEQUENCE_LOW_BITS);
        let low = u128::from(self.sequence & ((1 << SEQUENCE_LOW_BITS) - 1));
        let head = (u128::from(self.last_ms) << 80) | (7 << 76) | (high << 64) | (0b10 << 62);
        JobId(head | (low << 42) | ((1 << 42) - 1))
    }

    /// The next id for a queue in `slot`.
    pub fn make(&mut self, now_ms: u64, slot: Slot) -> JobId {
        self.sequence = self.sequence.wrapping_add(1);
        if now_ms > self.last_ms {
            self.last_ms = now_ms;
        } else if self.sequence == 0 {
            self.last_ms += 1;
        }
        let high = u128::from(self.sequence >> SEQUENCE_LOW_BITS);
        let low = u128::from(self.sequence & ((1 << SEQUENCE_LOW_BITS) - 1));
        let chance = u128::from(self.chance.draw() >> 34);
        let bits = (u128::from(self.last_ms) << 80)
            | (7 << 76)
            | (high << 64)
            | (0b10 << 62)
            | (low << 42)
            | (chance << 12)
            | u128::from(slot.0);
        JobId(bits)
    }
}

/// A seeded generator (SplitMix64): the seed comes from outside, so a run can be repeated.
pub struct Chance(u64);

impl Chance {
    /// Starts the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_and_carry_their_slot() {
        let mut maker = IdMaker::new(7, JobId::default());
        let slot = Slot::of_name("emails");
        let mut last = JobId::default();
        for step in 0..100_000_u64 {
            // The clock stands still, jumps back and moves on.
            let now = 1_700_000_000_000 + (step / 5_000) * if step % 7 == 0 { 1 } else { 2 };
            let highest = maker.highest();
            let id = maker.make(now, slot);
            assert!(id > last && id.is_v7() && id.slot() == slot);
            assert!(id > highest && id <= maker.highest());
            last = id;
        }
    }

    #[test]
    fn ids_rise_through_the_end_of_the_sequence() {
        let mut maker = IdMaker { last_ms: 5, sequence: u32::MAX - 2, chance: Chance::new(3) };
        let ids: Vec<JobId> = (0..6).map(|_| maker.make(5, Slot::default())).collect();
        assert!(ids.is_sorted() && ids.iter().all(|id| id.is_v7()));
        assert_eq!(ids[1].sequence(), u32::MAX);
        assert_eq!(ids[3].sequence(), 1);
    }

    #[test]
    fn ids_rise_above_what_recovery_saw() {
        let slot = Slot::of_name("q");
        let seen = IdMaker::new(1, JobId::default()).make(2_000, slot);
        assert!(IdMaker::new(2, seen).make(1_000, slot) > seen);
    }

    #[test]
    fn an_id_is_written_as_a_uuid() {
        let id = JobId(0x0190_1234_5678_7abc_8def_0123_4567_89ab);
        assert_eq!(id.to_string(), "01901234-5678-7abc-8def-0123456789ab");
    }

    #[test]
    fn slot_of_a_name_never_changes() {
        assert_eq!(Slot::of_name("emails").index(), 1927);
        assert_eq!(Slot::of_name("default").index(), 136);
    }
}
