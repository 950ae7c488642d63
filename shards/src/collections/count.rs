//! Counts that never go under zero. One that did would wrap in a release build, and every decision by it would be wrong from
//! then on; so it stops the shard instead, whose log still says what is so.

/// A number of things, each of which was counted in before it is counted out.
pub(crate) trait Count {
    /// Counts so many out.
    fn take_out(&mut self, count: Self);
}

macro_rules! counts {
    ($( $number:ty ),*) => {$(
        impl Count for $number {
            #[inline]
            #[track_caller]
            fn take_out(&mut self, count: Self) {
                assert!(count <= *self, "a count goes under zero");
                *self -= count;
            }
        }
    )*};
}

counts!(u16, u32, u64, usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_goes_down_to_zero() {
        let mut count = 3_u32;
        count.take_out(1);
        count.take_out(2);
        assert_eq!(count, 0);
    }

    #[test]
    #[should_panic(expected = "a count goes under zero")]
    fn a_count_does_not_go_under_zero() {
        let mut count = 3_u64;
        count.take_out(4);
    }
}
