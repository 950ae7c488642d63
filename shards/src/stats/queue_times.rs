//! How long the jobs of one queue have waited, or have run, in a few fixed buckets: there may be very many queues.

/// Upper edges of the buckets, in milliseconds; one more bucket lies beyond.
pub const EDGES_MS: [u64; 7] = [100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000];

/// Times of the jobs of one queue since it was made, or since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueTimes {
    /// Jobs in each bucket, not cumulated; the last is without an upper edge.
    pub counts: [u64; EDGES_MS.len() + 1],
    /// All times together.
    pub sum_ms: u64,
}

/// Jobs of the queue with this index that took equally long, as most of a batch do: they are counted together.
#[derive(Default)]
pub(crate) struct Alike {
    pub(crate) queue: u32,
    pub(crate) ms: u64,
    pub(crate) jobs: u32,
}

impl Alike {
    /// Adds a job. Returns those before if they are not like it, which are to be counted then.
    pub fn add(&mut self, queue: u32, ms: u64) -> Option<Self> {
        if (self.queue, self.ms) == (queue, ms) {
            self.jobs += 1;
            return None;
        }
        let before = std::mem::replace(self, Self { queue, ms, jobs: 1 });
        (before.jobs > 0).then_some(before)
    }
}

impl QueueTimes {
    /// Counts jobs that took so long each.
    pub fn note(&mut self, took_ms: u64, jobs: u32) {
        let place = EDGES_MS.iter().position(|&edge_ms| took_ms <= edge_ms);
        self.counts[place.unwrap_or(EDGES_MS.len())] += u64::from(jobs);
        self.sum_ms = self.sum_ms.saturating_add(took_ms.saturating_mul(u64::from(jobs)));
    }

    /// A time that so many hundredths of them do not exceed: the edge of a bucket, `u64::MAX` beyond the last. `None`
    /// without any.
    pub fn percentile_edge_ms(&self, hundredths: u64) -> Option<u64> {
        let all = self.count();
        let rank = (all * hundredths).div_ceil(100).max(1);
        let mut below = 0;
        let place = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        let edge_ms = |place: usize| EDGES_MS.get(place).copied().unwrap_or(u64::MAX);
        place.filter(|_| all > 0).map(edge_ms)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_fall_into_their_buckets_edges_included() {
        let mut waits = QueueTimes::default();
        for edge_ms in EDGES_MS {
            waits.note(edge_ms, 1);
        }
        waits.note(0, 1);
        waits.note(EDGES_MS[6] + 1, 1);
        assert_eq!(waits.counts, [2, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(waits.percentile_edge_ms(1), Some(100));
        assert_eq!(waits.percentile_edge_ms(50), Some(60_000));
        assert_eq!(waits.percentile_edge_ms(99), Some(u64::MAX));
        assert_eq!(QueueTimes::default().percentile_edge_ms(99), None);
        assert_eq!((waits.count(), waits.sum_ms), (9, EDGES_MS.iter().sum::<u64>() + 86_400_001));
    }
}
