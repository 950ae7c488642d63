//! Reasons why a group gives no job, for people who ask. Decides nothing: whose turn it is stands in `scheduler`.

use crate::group::scheduler::Rotation;
use crate::group::{GroupRate, Groups};

/// A reason why a group gives no job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    /// The group is paused.
    Paused,
    /// The group is held until a time.
    Held {
        /// In milliseconds since the epoch.
        until_ms: u64,
    },
    /// As many of its jobs are active as may be.
    Active {
        /// How many.
        max: u64,
        /// Whether pulls brought that limit, and it is not set.
        of_pulls: bool,
    },
    /// As many of its jobs have left as may leave in a span of time.
    Rate {
        /// How many, in which span.
        rate: GroupRate,
        /// When that ends.
        until_ms: u64,
        /// Whether pulls brought that limit, and it is not set.
        of_pulls: bool,
    },
}

impl Groups {
    /// All that keeps a group from giving a job now.
    pub(crate) fn blocks(&self, rotation: &Rotation, now_ms: u64, group: u32) -> Vec<Block> {
        let about = &self.slab[group];
        let (settings, active) = (about.settings(), u64::from(about.active));
        let mut found = Vec::new();
        if settings.paused {
            found.push(Block::Paused);
        }
        if settings.held_until_ms > now_ms {
            found.push(Block::Held { until_ms: settings.held_until_ms });
        }
        let of_pulls = settings.active_max.is_none();
        let max = settings.active_max.or(rotation.limits.active_max);
        if let Some(max) = max.filter(|&max| active >= max) {
            found.push(Block::Active { max, of_pulls });
        }
        let of_pulls = settings.rate.is_none();
        if let Some((rate, window)) = about.rate(rotation.limits)
            && let Some(until_ms) = window.full_until_ms(rate).filter(|&at_ms| at_ms > now_ms)
        {
            found.push(Block::Rate { rate, until_ms, of_pulls });
        }
        found
    }
}
