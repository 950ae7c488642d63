//! How durations spread: samples by buckets whose width grows with the duration, two for each doubling. A sample costs a
//! few instructions, spreads of any two spans or shards can be added, and a quantile is off by a quarter at most.

/// How many buckets there are.
pub const BUCKETS: usize = 64;

/// The bucket of a duration: below 1 ms, 1 ms, 2, 3, 4 to 5, 6 to 7, 8 to 11, and so on; the last has no upper edge.
#[inline]
pub fn bucket_of(ms: u64) -> usize {
    if ms < 2 {
        return ms as usize;
    }
    let doublings = ms.ilog2();
    let upper_half = (ms >> (doublings - 1)) & 1;
    ((2 * doublings) as usize + upper_half as usize).min(BUCKETS - 1)
}

/// The least duration of a bucket.
pub fn least_ms(bucket: usize) -> u64 {
    if bucket < 2 {
        return bucket as u64;
    }
    (2 + (bucket as u64 & 1)) << (bucket / 2 - 1)
}

/// Samples by bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    counts: [u32; BUCKETS],
}

impl Default for Spread {
    fn default() -> Self {
        Self { counts: [0; BUCKETS] }
    }
}

impl Spread {
    /// Counts samples of one duration.
    #[inline]
    pub fn record(&mut self, ms: u64, samples: u32) {
        self.add(bucket_of(ms), samples);
    }

    /// Counts samples of a bucket.
    #[inline]
    pub fn add(&mut self, bucket: usize, samples: u32) {
        let count = &mut self.counts[bucket.min(BUCKETS - 1)];
        *count = count.saturating_add(samples);
    }

    /// Forgets all samples.
    pub fn clear(&mut self) {
        self.counts.fill(0);
    }

    /// The buckets that have samples, with how many.
    pub fn filled(&self) -> impl DoubleEndedIterator<Item = (usize, u32)> {
        self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// How many samples there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// The duration that so many hundredths of the samples do not exceed; within a bucket they count as spread evenly.
    pub fn percentile_ms(&self, hundredths: u64) -> Option<u64> {
        let all = self.count();
        if all == 0 {
            return None;
        }
        let mut rank = (all * hundredths).div_ceil(100).clamp(1, all);
        for (bucket, count) in self.filled() {
            let count = u64::from(count);
            if rank > count {
                rank -= count;
                continue;
            }
            let least = least_ms(bucket);
            let width = if bucket + 1 < BUCKETS { least_ms(bucket + 1) - least } else { 1 };
            return Some(least + width * (2 * rank - 1) / (2 * count));
        }
        None
    }
}

impl std::ops::AddAssign<&Self> for Spread {
    fn add_assign(&mut self, other: &Self) {
        for (bucket, count) in other.filled() {
            self.add(bucket, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_between_the_edges_of_its_bucket() {
        let mut before = 0;
        for ms in (0..5000).chain((0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) + 1])) {
            let bucket = bucket_of(ms);
            assert!(least_ms(bucket) <= ms, "{ms} in {bucket}");
            assert!(bucket + 1 == BUCKETS || ms < least_ms(bucket + 1), "{ms} in {bucket}");
        }
        for bucket in 1..BUCKETS {
            assert!(least_ms(bucket) > before, "edges rise");
            before = least_ms(bucket);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_samples_within_a_bucket() {
        let mut spread = Spread::default();
        assert_eq!((spread.percentile_ms(50), spread.is_empty()), (None, true));
        spread.record(3, 980);
        spread.record(40_000, 20);
        assert_eq!((spread.percentile_ms(50), spread.percentile_ms(98)), (Some(3), Some(3)));
        let p99 = spread.percentile_ms(99).unwrap_or_default();
        assert!(p99.abs_diff(40_000) <= 10_000, "{p99}");
        let mut sum = Spread::default();
        sum += &spread;
        sum += &spread;
        assert_eq!((sum.count(), sum.percentile_ms(50)), (2000, Some(3)));
        sum.clear();
        assert!(sum.is_empty());
    }
}
