//! Which points of time a question about the past is about.

/// The length of a step.
pub const STEP_MS: u64 = 10_000;

/// Points of time: `points` of `per_point` steps each, from the step `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first step.
    pub first: u64,
    /// Steps that a point sums up, at least 1.
    pub per_point: u64,
    /// How many points.
    pub points: u32,
}

impl Span {
    /// The points up to the one that holds `until_ms`. They begin at multiples of their length, whenever they are asked for.
    pub fn until(until_ms: u64, point_ms: u64, points: u32) -> Self {
        let per_point = point_ms.div_ceil(STEP_MS).max(1);
        let last = until_ms / STEP_MS / per_point;
        let first = (last + 1).saturating_sub(u64::from(points)) * per_point;
        Self { first, per_point, points }
    }

    /// How many steps they are.
    pub fn steps(self) -> u64 {
        self.per_point * u64::from(self.points)
    }

    /// The point that a step belongs to; the first one for those before.
    pub fn point_of(self, step: u64) -> u64 {
        step.saturating_sub(self.first) / self.per_point
    }

    /// When a point begins, in milliseconds since the epoch.
    pub fn begins_ms(self, point: u64) -> u64 {
        (self.first + point * self.per_point) * STEP_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_begin_at_multiples_of_their_length() {
        let span = Span::until(123_456, 25_000, 3);
        assert_eq!((span.first, span.per_point, span.points), (6, 3, 3));
        assert_eq!((span.begins_ms(0), span.begins_ms(2)), (60_000, 120_000));
        assert_eq!(Span::until(123_456 + 20_000, 25_000, 3), span);
        assert_eq!(Span::until(5, 10_000, 100).first, 0, "time has a beginning");
    }
}
