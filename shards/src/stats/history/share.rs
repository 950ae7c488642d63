//! Shares of shards in the history of a span, and how the shares of all become points.

use super::record::{Records, Sums};
use super::span::Span;

/// A shard's history of a span: records by point of the span instead of by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The first point that is known.
    pub known_from: u64,
    /// Jobs that waited before the first point.
    pub waiting: u64,
    /// The records.
    pub bytes: Vec<u8>,
}

/// Gives the points of a span in their order: none for those of which not all shares know, else the sum, with what waited at
/// its end.
pub fn each_point(shares: &[&Share], span: Span, mut give: impl FnMut(Option<&Sums>)) {
    let known_from = shares.iter().map(|share| share.known_from).max().unwrap_or(u64::MAX);
    let mut records: Vec<(Records<'_>, u64)> =
        shares.iter().map(|share| (Records::new(&share.bytes, 0), share.waiting)).collect();
    let mut waiting: u64 = records.iter().map(|(_, waits)| *waits).sum();
    let mut sums = Sums::default();
    for point in 0..u64::from(span.points) {
        let mut is_empty = true;
        for (records, waits) in &mut records {
            if records.next_step() != Some(point) {
                continue;
            }
            if std::mem::take(&mut is_empty) {
                sums.clear();
            }
            sums.waiting = None;
            records.add_next(&mut sums);
            if let Some(now) = sums.waiting {
                waiting = waiting - *waits + now;
                *waits = now;
            }
        }
        if is_empty {
            sums.clear();
        }
        sums.waiting = Some(waiting);
        give((point >= known_from).then_some(&sums));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(known_from: u64, waiting: u64, points: &[(u64, u64, Option<u64>)]) -> Share {
        let (mut bytes, mut last) = (Vec::new(), 0);
        for &(point, pushed, waiting) in points {
            let mut sums = Sums { pushed, waiting, ..Sums::default() };
            sums.waits.record(pushed, 1);
            sums.write(&mut bytes, point - last);
            last = point;
        }
        Share { known_from, waiting, bytes }
    }

    #[test]
    fn points_are_the_sum_of_all_shares_and_none_where_one_does_not_know() {
        let one = share(0, 5, &[(1, 10, Some(8)), (3, 20, None)]);
        let other = share(1, 100, &[(0, 7, None), (2, 1, Some(0)), (3, 2, Some(40))]);
        let span = Span { first: 0, per_point: 1, points: 5 };
        let mut points = Vec::new();
        each_point(&[&one, &other], span, |sums| {
            points.push(sums.map(|sums| (sums.pushed, sums.waits.count(), sums.waiting)));
        });
        let expected = [
            None,
            Some((10, 1, Some(108))),
            Some((1, 1, Some(8))),
            Some((22, 2, Some(48))),
            Some((0, 0, Some(48))),
        ];
        assert_eq!(points, expected);
        let mut known = 0;
        each_point(&[], span, |sums| known += usize::from(sums.is_some()));
        assert_eq!(known, 0, "no share knows nothing");
    }
}
