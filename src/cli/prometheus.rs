//! Reads out of the metrics text what the command line shows. Knows the form of the lines, not what
//! they mean.

/// The samples of a family: labels (without braces) and value of each.
fn samples<'a>(text: &'a str, family: &str) -> impl Iterator<Item = (&'a str, f64)> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(family)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        Some((labels, value.parse().ok()?))
    })
}

/// The number that a family is.
pub fn number(text: &str, family: &str) -> Option<f64> {
    samples(text, family).next().map(|(_, value)| value)
}

/// A family with a number for each queue.
pub fn by_queue<'a>(text: &'a str, family: &str) -> impl Iterator<Item = (&'a str, f64)> {
    let queue = |labels: &'a str| labels.strip_prefix("queue=\"")?.strip_suffix('"');
    samples(text, family).filter_map(move |(labels, value)| Some((queue(labels)?, value)))
}

/// A histogram: the upper edges of its buckets and how many samples were at most as large.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram(Vec<(f64, f64)>);

impl Histogram {
    /// The buckets of the family with this name (without `_bucket`).
    pub fn of(text: &str, family: &str) -> Self {
        let edge = |labels: &str| match labels.strip_prefix("le=\"")?.strip_suffix('"')? {
            "+Inf" => Some(f64::INFINITY),
            edge => edge.parse().ok(),
        };
        let family = format!("{family}_bucket");
        let buckets = samples(text, &family);
        Self(buckets.filter_map(|(labels, count)| Some((edge(labels)?, count))).collect())
    }

    /// The samples that came since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |place: usize| earlier.0.get(place).map_or(0.0, |(_, count)| *count);
        let counts = self.0.iter().enumerate();
        // A server that was restarted counts anew: fewer than before means from nothing.
        let anew = self.0.last().map_or(0.0, |(_, count)| *count) < before(self.0.len().max(1) - 1);
        let base = |place| if anew { 0.0 } else { before(place) };
        Self(counts.map(|(place, (edge, count))| (*edge, count - base(place))).collect())
    }

    /// The value that a `share` of the samples do not exceed, as exactly as the buckets tell; `None`
    /// without samples. Beyond the last edge it is that edge.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let all = self.0.last().map_or(0.0, |(_, count)| *count);
        if all <= 0.0 {
            return None;
        }
        let rank = share * all;
        let (mut edge_below, mut count_below) = (0.0, 0.0);
        for (edge, count) in &self.0 {
            if *count >= rank && *count > count_below {
                if edge.is_infinite() {
                    break;
                }
                let part = (rank - count_below) / (count - count_below);
                return Some(edge_below + (edge - edge_below) * part.max(0.0));
            }
            (edge_below, count_below) = (*edge, *count);
        }
        Some(edge_below)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP corq_jobs Jobs.\n# TYPE corq_jobs gauge\ncorq_jobs 7\n\
        corq_queue_jobs_dlq{queue=\"a\"} 3\ncorq_queue_jobs_dlq{queue=\"b:c\"} 0\n\
        corq_t_ms_bucket{le=\"1\"} 50\ncorq_t_ms_bucket{le=\"10\"} 90\n\
        corq_t_ms_bucket{le=\"+Inf\"} 100\ncorq_t_ms_sum 5\ncorq_t_ms_count 100\n";

    #[test]
    fn families_are_told_apart() {
        assert_eq!(number(TEXT, "corq_jobs"), Some(7.0));
        assert_eq!(number(TEXT, "corq_job"), None);
        let dlq: Vec<(&str, f64)> = by_queue(TEXT, "corq_queue_jobs_dlq").collect();
        assert_eq!(dlq, [("a", 3.0), ("b:c", 0.0)]);
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let histogram = Histogram::of(TEXT, "corq_t_ms");
        assert_eq!(histogram.quantile(0.5), Some(1.0));
        assert_eq!(histogram.quantile(0.7), Some(5.5));
        assert_eq!(histogram.quantile(0.99), Some(10.0), "beyond the last edge");
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn only_new_samples_count_and_a_restart_begins_anew() {
        let early = Histogram(vec![(1.0, 40.0), (f64::INFINITY, 40.0)]);
        let late = Histogram(vec![(1.0, 40.0), (f64::INFINITY, 50.0)]);
        assert_eq!(late.since(&early).0, [(1.0, 0.0), (f64::INFINITY, 10.0)]);
        assert_eq!(late.since(&late).quantile(0.5), None);
        assert_eq!(early.since(&late), early);
    }
}
