//! Ends of children that were forgotten with their end, until their parents have learnt of them. Bounded: beyond, the
//! oldest go, and their parents learn no more than that they ended.

use crate::collections::count::Count;
use crate::collections::hash_key::HashKey;
use crate::collections::table::Map;
use crate::effect::KnownAs;
use crate::family::{End, Policy};
use crate::job::id::JobId;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::location::LogRef;
use crate::log_record::row::Body;
use crate::log_record::show::Show;
use std::collections::BTreeMap;

/// Children remembered.
pub const UNREPORTED_MAX: usize = 100_000;

/// Bytes of their values in the log.
pub const UNREPORTED_BYTES_MAX: u64 = 256 << 20;

/// How one child ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreported {
    /// The child's queue.
    pub queue: Box<str>,
    /// The child as its clients know it.
    pub known_as: KnownAs,
    /// How it ended.
    pub end: End,
    /// The record whose payload is the value.
    pub stored: LogRef,
}

/// All of a shard.
pub(crate) struct AllUnreported {
    by_child: Map<JobId, (u64, Unreported)>,
    /// By the number of their coming, which is the order of their records: oldest first.
    order: BTreeMap<u64, JobId>,
    inserted: u64,
    bytes: u64,
    /// Ends that were given up to make room for others.
    dropped: u64,
}

impl AllUnreported {
    pub(crate) fn new(key: HashKey) -> Self {
        Self { by_child: Map::new(key), order: BTreeMap::new(), inserted: 0, bytes: 0, dropped: 0 }
    }

    pub(crate) fn get(&self, child: JobId) -> Option<&Unreported> {
        self.by_child.get(child).map(|(_, unreported)| unreported)
    }

    /// Remembers one. Returns those that have to go for it.
    pub(crate) fn insert(&mut self, child: JobId, unreported: Unreported) -> Vec<Unreported> {
        self.inserted += 1;
        let mut gone = Vec::new();
        gone.extend(self.remove(child));
        self.bytes += u64::from(unreported.stored.payload_bytes);
        self.order.insert(self.inserted, child);
        self.by_child.insert(child, (self.inserted, unreported));
        while (self.by_child.len() > UNREPORTED_MAX || self.bytes > UNREPORTED_BYTES_MAX)
            && self.by_child.len() > 1
            && let Some((_, oldest)) = self.order.pop_first()
        {
            gone.extend(self.remove(oldest));
            self.dropped += 1;
        }
        gone
    }

    pub(crate) fn remove(&mut self, child: JobId) -> Option<Unreported> {
        let (number, unreported) = self.by_child.remove(child)?;
        self.order.remove(&number);
        self.bytes.take_out(u64::from(unreported.stored.payload_bytes));
        Some(unreported)
    }

    /// The record of one lies at `to` from now on, behind all others: it is the newest, as for a replay that finds it only
    /// there. Returns where it lay.
    pub(crate) fn relocate(&mut self, child: JobId, to: LogRef) -> Option<LogRef> {
        let (number, unreported) = self.by_child.get_mut(child)?;
        self.inserted += 1;
        self.order.remove(&std::mem::replace(number, self.inserted));
        self.order.insert(self.inserted, child);
        self.bytes += u64::from(to.payload_bytes);
        self.bytes.take_out(u64::from(unreported.stored.payload_bytes));
        Some(std::mem::replace(&mut unreported.stored, to))
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_child.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_child.len()
    }

    /// In no order that may decide anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobId, &Unreported)> {
        self.by_child.iter().map(|(child, (_, unreported))| (child, unreported))
    }

    pub(crate) fn audit(&self) -> Result<(), String> {
        let bytes: u64 = self.iter().map(|(_, one)| u64::from(one.stored.payload_bytes)).sum();
        if bytes != self.bytes {
            return Err(format!("{bytes} bytes remain of children, counted as {}", self.bytes));
        }
        let is_here = |(number, child): &(&u64, &JobId)| {
            self.by_child.get(**child).is_some_and(|(its, _)| its == *number)
        };
        let (listed, all) = (self.order.iter().filter(is_here).count(), self.order.len());
        if (listed, all) != (self.by_child.len(), self.by_child.len()) {
            return Err(format!("{} children remain, {listed} listed", self.by_child.len()));
        }
        Ok(())
    }
}

/// See [`crate::log_record::snapshot::Kept::Unreported`].
#[derive(Clone, Copy, Debug)]
pub struct KeptUnreported<'a> {
    /// The child.
    pub child: JobId,
    /// The child's queue.
    pub queue: &'a str,
    /// The id that its client chose, if it did.
    pub custom_id: Option<&'a str>,
    /// How it ended.
    pub end: End,
    /// The result, or the error.
    pub value: &'a [u8],
}

impl<'a> Body<'a> for KeptUnreported<'a> {
    fn encoded_len(&self) -> usize {
        let name = self.custom_id.unwrap_or_default();
        16 + 1 + 2 + self.queue.len() + 1 + 2 + name.len() + self.value.len()
    }

    fn payload_len(&self) -> usize {
        self.value.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.id(self.child);
        out.u8(match self.end {
            End::Completed => 0,
            End::Failed(policy) => policy as u8,
        });
        out.short(self.queue.as_bytes());
        out.u8(u8::from(self.custom_id.is_some()));
        out.short(self.custom_id.unwrap_or_default().as_bytes());
        out.bytes(self.value);
    }

    fn decode(_: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let child = from.id()?;
        let end = match from.u8()? {
            0 => End::Completed,
            policy => End::Failed(Policy::of(policy)?),
        };
        let queue = from.text()?;
        let named = from.u8()? != 0;
        let name = from.text()?;
        let custom_id = named.then_some(name);
        Ok(Self { child, queue, custom_id, end, value: from.rest() })
    }

    fn show(&self, to: &mut impl Show) {
        to.id("id", self.child);
        to.text("queue", self.queue);
        to.some_text("customId", self.custom_id);
        match self.end {
            End::Completed => to.value("result", self.value),
            End::Failed(policy) => {
                to.text("onFailure", policy.name());
                to.text_of_bytes("error", self.value);
            }
        }
    }
}

impl KeptUnreported<'_> {
    pub(crate) fn unreported(&self, stored: LogRef) -> Unreported {
        let known_as = match self.custom_id {
            Some(name) => KnownAs::Custom(name.into()),
            None => KnownAs::Id(self.child),
        };
        Unreported { queue: self.queue.into(), known_as, end: self.end, stored }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(bytes: u32) -> Unreported {
        let stored = LogRef { position: 0, record_bytes: bytes, payload_bytes: bytes };
        Unreported {
            queue: "q".into(),
            known_as: KnownAs::Id(JobId(0)),
            end: End::Completed,
            stored,
        }
    }

    #[test]
    fn the_oldest_go_beyond_the_number_and_beyond_the_bytes() {
        let mut all = AllUnreported::new(HashKey::new(1));
        for child in 0..UNREPORTED_MAX as u128 + 10 {
            let gone = all.insert(JobId(child), left(1)).len();
            assert_eq!(gone, usize::from(child >= UNREPORTED_MAX as u128));
        }
        assert!(all.get(JobId(9)).is_none() && all.get(JobId(10)).is_some());
        assert_eq!(
            all.insert(JobId(1 << 40), left(UNREPORTED_BYTES_MAX as u32)).len(),
            UNREPORTED_MAX
        );
        assert!(all.len() == 1 && all.audit().is_ok());
        for child in 0..1000 {
            all.insert(JobId(child), left(0));
            all.remove(JobId(child));
        }
        assert!(all.order.len() == 1 && all.audit().is_ok());
    }

    /// A replay of what compaction has left knows those that were written again by their new records alone.
    #[test]
    fn what_goes_beyond_the_number_is_the_same_after_a_reclaim_and_a_replay() {
        let most = UNREPORTED_MAX as u128;
        let (mut live, mut replayed) =
            (AllUnreported::new(HashKey::new(1)), AllUnreported::new(HashKey::new(2)));
        (0..most).for_each(|child| drop(live.insert(JobId(child), left(1))));
        for child in 0..100 {
            assert!(live.relocate(JobId(child), left(1).stored).is_some());
        }
        (most..most + 50).for_each(|child| drop(live.insert(JobId(child), left(1))));
        // The first hundred records are gone with their segment.
        for child in (100..most).chain(0..100).chain(most..most + 50) {
            replayed.insert(JobId(child), left(1));
        }
        let missing = live.iter().filter(|(child, _)| replayed.get(*child).is_none()).count();
        assert_eq!((missing, live.len(), replayed.len()), (0, UNREPORTED_MAX, UNREPORTED_MAX));
        assert!(live.audit().is_ok() && replayed.audit().is_ok());
    }
}
