//! How many jobs schedules and repeats push by themselves: at most so many a second, together. One too many comes
//! later, at the next time that is free; times are given out in the order in which they are asked for, so that none
//! waits for others that came after it. A second in which nothing came may be made up for at once.

const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;

/// The rate limit of runs. Where it stands is forgotten with the process: it bounds, and decides nothing that lasts.
#[derive(Debug)]
pub(crate) struct Scheduled {
    /// Between two, if many come on end.
    gap_ns: u64,
    /// When the next one is free, since the epoch.
    next_ns: u64,
    put_off: u64,
}

impl Scheduled {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { gap_ns: SECOND_NS / u64::from(per_second.max(1)), next_ns: 0, put_off: 0 }
    }

    /// Takes the next time that is free for a push: `now_ms`, or later.
    pub(crate) fn take(&mut self, now_ms: u64) -> u64 {
        let now_ns = now_ms.saturating_mul(MS_NS);
        let free_ns = self.next_ns.max(now_ns.saturating_sub(SECOND_NS));
        self.next_ns = free_ns.saturating_add(self.gap_ns);
        let later = free_ns > now_ns;
        self.put_off += u64::from(later);
        if later { free_ns.div_ceil(MS_NS) } else { now_ms }
    }

    /// Takes the time back that was taken last, for a push that has not been made.
    pub(crate) fn untake(&mut self) {
        self.next_ns = self.next_ns.saturating_sub(self.gap_ns);
    }

    /// Pushes that came later than they were due because of the rate limit, since the start.
    pub(crate) fn put_off(&self) -> u64 {
        self.put_off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_come_than_may_and_each_has_its_time() {
        let mut scheduled = Scheduled::new(1000);
        let start_ms = 1_700_000_000_000;
        let at: Vec<u64> = (0..5000).map(|_| scheduled.take(start_ms)).collect();
        assert_eq!(at.iter().filter(|&&at_ms| at_ms == start_ms).count(), 1001);
        assert!(at.is_sorted() && at[4999] == start_ms + 3999, "{}", at[4999]);
        assert_eq!(scheduled.put_off(), 3999);
        assert_eq!(scheduled.take(start_ms + 4000), start_ms + 4000, "one a millisecond is free");
    }
}
