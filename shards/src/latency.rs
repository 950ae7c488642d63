//! How long things take: histograms that cost a few instructions per sample, and the fixed buckets in
//! which shards hand them out. Durations are given, never measured here.

use hdrhistogram::Histogram;

/// Upper edges of the buckets, in microseconds; one more bucket lies beyond.
pub const EDGES_US: [u64; 17] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 60_000_000,
];

/// Longer samples count as this long, except in the sum.
const LONGEST_US: u64 = 3_600_000_000;
/// Significant digits of a sample.
const DIGITS: u8 = 2;

/// One kind of duration on one shard.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// Made with the first sample and of fixed size from then on.
    histogram: Option<Box<Histogram<u64>>>,
    sum_us: u64,
}

impl Timing {
    /// Counts `times` samples of one length.
    pub fn record(&mut self, length_us: u64, times: u64) {
        let histogram = self.histogram.get_or_insert_with(|| {
            // The bounds are constants within what the library takes.
            let made = Histogram::new_with_bounds(1, LONGEST_US, DIGITS);
            Box::new(made.expect("constant bounds that are in order"))
        });
        histogram.saturating_record_n(length_us, times);
        self.sum_us = self.sum_us.saturating_add(length_us.saturating_mul(times));
    }

    /// The samples so far, by bucket.
    pub fn buckets(&self) -> Buckets {
        let mut buckets = Buckets { sum_us: self.sum_us, ..Buckets::default() };
        let Some(histogram) = &self.histogram else { return buckets };
        let mut place = 0;
        for step in histogram.iter_recorded() {
            let least_us = histogram.lowest_equivalent(step.value_iterated_to());
            while place < EDGES_US.len() && EDGES_US[place] < least_us {
                place += 1;
            }
            buckets.counts[place] += step.count_since_last_iteration();
        }
        buckets
    }
}

/// Samples by bucket: what is added up over shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// Samples in each bucket, not cumulated; the last is without an upper edge.
    pub counts: [u64; EDGES_US.len() + 1],
    /// All samples together.
    pub sum_us: u64,
}

impl Buckets {
    /// How many samples there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their mean in milliseconds; 0 if there is none.
    pub fn mean_ms(&self) -> f64 {
        self.sum_us as f64 / 1000.0 / self.count().max(1) as f64
    }
}

impl std::ops::AddAssign for Buckets {
    fn add_assign(&mut self, other: Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }
}

/// What the engine of a shard times.
#[derive(Clone, Debug, Default)]
pub struct Timings {
    /// From when a job was due to its delivery.
    pub waiting: Timing,
    /// From its delivery to its completion.
    pub processing: Timing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_fall_into_their_buckets_edges_included() {
        let mut timing = Timing::default();
        assert_eq!(timing.buckets(), Buckets::default());
        for edge in EDGES_US {
            timing.record(edge, 1);
        }
        timing.record(0, 2);
        timing.record(u64::MAX, 1);
        let buckets = timing.buckets();
        let mut expected = [1; EDGES_US.len() + 1];
        expected[0] = 3;
        assert_eq!(buckets.counts, expected);
        assert_eq!(buckets.sum_us, u64::MAX, "a sum that is full stays full");
    }

    #[test]
    fn shares_add_up_and_the_mean_is_that_of_all_samples() {
        let (mut one, mut other) = (Timing::default(), Timing::default());
        one.record(2_000, 3);
        other.record(6_000, 1);
        let mut sum = one.buckets();
        sum += other.buckets();
        assert_eq!(sum.count(), 4);
        assert!((sum.mean_ms() - 3.0).abs() < f64::EPSILON);
    }
}
