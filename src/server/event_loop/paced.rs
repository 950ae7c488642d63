//! Work of which each millisecond does a slice, not each turn. A shard whose clients send one command at a time has twenty
//! turns in a millisecond, and a turn that looks at all there is takes longer than the command does.

/// When such work was done last, and when it is due.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paced {
    at_ms: u64,
    next_ms: u64,
}

impl Paced {
    /// Whether a slice was done in this millisecond.
    pub fn is_of(&self, now_ms: u64) -> bool {
        self.at_ms == now_ms
    }

    /// Does a slice of it, unless one was done in this millisecond and left nothing to do at once; `u64::MAX` is never that
    /// millisecond. Returns when to come again, in milliseconds since the epoch.
    #[inline]
    pub fn go_on(&mut self, now_ms: u64, slice: impl FnOnce() -> u64) -> u64 {
        if self.is_of(now_ms) && self.next_ms > now_ms {
            // A command of this turn may have brought the time forward.
            return now_ms + 1;
        }
        *self = Self { at_ms: now_ms, next_ms: slice() };
        self.next_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_millisecond_has_one_slice_and_more_while_there_is_more_to_do() {
        let mut paced = Paced::default();
        assert_eq!(paced.go_on(7, || 90), 90);
        assert_eq!(paced.go_on(7, || unreachable!("it was done")), 8);
        assert_eq!((paced.go_on(8, || 8), paced.go_on(8, || 8), paced.go_on(8, || 50)), (8, 8, 50));
        assert_eq!((paced.go_on(8, || 1), paced.is_of(8), paced.is_of(9)), (9, true, false));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_put_the_work_off() {
        let mut paced = Paced::default();
        assert_eq!((paced.go_on(1000, || 2000), paced.go_on(7, || 60)), (2000, 60));
    }
}
