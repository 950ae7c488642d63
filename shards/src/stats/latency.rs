//! How long things take: histograms that cost a few instructions per sample and add up over shards, the
//! quantiles of them, and the fixed buckets that Prometheus is given. Durations are given, never measured here.

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

/// Durations of one kind on one shard.
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

    /// The value, in microseconds, that a `share` of the samples do not exceed, within two significant
    /// digits; `None` without samples.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        self.histogram.as_ref().map(|histogram| histogram.value_at_quantile(share))
    }

    /// How many samples there are.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, |histogram| histogram.len())
    }

    /// Their mean in milliseconds; 0 if there is none.
    pub fn mean_ms(&self) -> f64 {
        self.sum_us as f64 / 1000.0 / self.count().max(1) as f64
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

impl std::ops::AddAssign<&Self> for Timing {
    fn add_assign(&mut self, other: &Self) {
        match (&mut self.histogram, &other.histogram) {
            // All have the same bounds, without which histograms cannot be added.
            (Some(sum), Some(histogram)) => **sum += &**histogram,
            (sum @ None, Some(histogram)) => *sum = Some(histogram.clone()),
            (_, None) => {}
        }
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }
}

/// Samples by bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// Samples in each bucket, not cumulated; the last is without an upper edge.
    pub counts: [u64; EDGES_US.len() + 1],
    /// All samples together.
    pub sum_us: u64,
}

/// Durations that the engine of a shard measures.
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
    fn quantiles_are_those_of_the_samples_and_not_of_the_buckets() {
        let mut timing = Timing::default();
        assert_eq!(timing.quantile_us(0.5), None);
        // All but a few lie between the same two edges, 2,500 and 5,000.
        timing.record(3_100, 980);
        timing.record(4_200, 15);
        timing.record(40_000_000, 5);
        let near = |share: f64, expected: u64| {
            let quantile = timing.quantile_us(share).unwrap_or_default();
            assert!(quantile.abs_diff(expected) <= expected / 100, "{share}: {quantile}");
        };
        near(0.5, 3_100);
        near(0.99, 4_200);
        near(0.999, 40_000_000);
    }

    #[test]
    fn shares_add_up_and_quantiles_and_mean_are_those_of_all_samples() {
        let (mut one, mut other) = (Timing::default(), Timing::default());
        one.record(2_000, 3);
        other.record(6_000, 97);
        let mut sum = Timing::default();
        for share in [&Timing::default(), &one, &other] {
            sum += share;
        }
        assert_eq!((sum.count(), sum.buckets().sum_us), (100, 588_000));
        assert!((sum.mean_ms() - 5.88).abs() < f64::EPSILON);
        assert!(sum.quantile_us(0.03).is_some_and(|us| us < 2_100));
        assert!(sum.quantile_us(0.04).is_some_and(|us| us > 5_900));
    }
}
