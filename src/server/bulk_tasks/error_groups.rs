//! Groups of dead letters as they are counted: data only. A ground type: of the server it imports ground types.

use super::error_text::group_of;
use crate::server::shard_mail::envelope::Origin;
use corq_shards::job::id::JobId;
use corq_shards::queue::scan::{Found, Scan};
use std::collections::{BTreeMap, VecDeque};

/// Groups that are counted at a time: dead letters of others are counted together.
const GROUPS_MAX: usize = 1000;

/// Dead letters that say the same.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) count: u64,
    pub(super) oldest_ms: u64,
    pub(super) newest_ms: u64,
    /// The one that failed last.
    pub(super) sample: JobId,
    /// Queue of the sample.
    pub(super) queue: Box<str>,
}

/// The groups so far.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// By their texts.
    pub(super) by_text: BTreeMap<String, Group>,
    pub(super) total: u64,
    /// Dead letters of groups beyond those that are counted.
    pub(super) others: u64,
    /// Dead letters whose record cannot be read.
    pub(super) damaged: u64,
}

impl Groups {
    /// Counts a dead letter.
    pub(super) fn add(&mut self, error: &str, at_ms: u64, id: JobId, queue: &str) {
        let text = group_of(error);
        if let Some(group) = self.by_text.get_mut(&text) {
            group.count += 1;
            group.oldest_ms = group.oldest_ms.min(at_ms);
            if at_ms >= group.newest_ms {
                (group.newest_ms, group.sample) = (at_ms, id);
                if *group.queue != *queue {
                    group.queue = queue.into();
                }
            }
        } else if self.by_text.len() < GROUPS_MAX {
            let (oldest_ms, newest_ms, sample) = (at_ms, at_ms, id);
            let queue = queue.into();
            let group = Group { count: 1, oldest_ms, newest_ms, sample, queue };
            self.by_text.insert(text, group);
        } else {
            self.others += 1;
        }
    }

    /// The largest groups, and how many dead letters are in none of them.
    pub(super) fn largest(&self, most: usize) -> (Vec<(&str, &Group)>, u64) {
        let mut groups: Vec<_> =
            self.by_text.iter().map(|(text, group)| (text.as_str(), group)).collect();
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
        let rest = groups.split_off(groups.len().min(most));
        let others = rest.iter().map(|(_, group)| group.count).sum::<u64>();
        (groups, others + self.others)
    }
}

/// Dead letters that are being grouped.
#[derive(Debug)]
pub struct GroupScan {
    pub origin: Origin,
    pub(super) req_id: Option<Box<[u8]>>,
    pub(super) scan: Scan,
    /// Dead letters that were found and have yet to be counted.
    pub(super) pending: VecDeque<Found>,
    /// Whether there are no more here.
    pub(super) is_done: bool,
    pub(super) groups: Groups,
    pub(super) limit: usize,
    /// The shard that has room reserved for them.
    pub(crate) begun_at: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_groups_are_shown_and_all_others_are_summed() {
        let mut groups = Groups::default();
        // Words of letters, so that each is a group of its own.
        let word = |number: usize| {
            let letter = |digit: usize| char::from(b'a' + (digit % 26) as u8);
            [letter(number / 676), letter(number / 26), letter(number)].iter().collect::<String>()
        };
        for number in 0..GROUPS_MAX + 500 {
            groups.add(&word(number), number as u64, JobId(number as u128), "q");
        }
        groups.add(&word(7), 5000, JobId(77), "other");
        let (largest, others) = groups.largest(10);
        assert_eq!((largest.len(), others), (10, (GROUPS_MAX + 500 + 1 - 10 - 1) as u64));
        let (text, group) = largest[0];
        assert_eq!((text, group.count, &*group.queue), (&*word(7), 2, "other"));
        assert_eq!((group.oldest_ms, group.newest_ms, group.sample), (7, 5000, JobId(77)));
        assert_eq!(groups.by_text.len(), GROUPS_MAX);
    }
}
