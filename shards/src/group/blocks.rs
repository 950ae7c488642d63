//! Reasons why a group gives no job, for people who ask. Decides nothing: whose turn it is stands in `scheduler`.

use crate::group::scheduler::{Rotation, VIEW_IDLE_MS};
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
    /// All that keeps a group from giving a job now. Limits that pulls bring count if such pulls wait or came lately.
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
        if let Some(max) = settings.active_max.filter(|&max| active >= max) {
            found.push(Block::Active { max, of_pulls: false });
        }
        let full = |until_ms: Option<u64>| until_ms.filter(|&until_ms| until_ms > now_ms);
        if let (Some(rate), Some(own)) = (settings.rate, about.own.as_deref())
            && let Some(until_ms) = full(own.window.full_until_ms(rate))
        {
            found.push(Block::Rate { rate, until_ms, of_pulls: false });
        }
        // The first view is that of pulls that bring none.
        for (place, view) in rotation.views.iter().enumerate().skip(1) {
            let lately = view.used_at_ms.saturating_add(VIEW_IDLE_MS) > now_ms;
            if view.waiting == 0 && !lately {
                continue;
            }
            let max = view.terms.active_max.filter(|_| settings.active_max.is_none());
            if let Some(max) = max.filter(|&max| active >= max) {
                found.push(Block::Active { max, of_pulls: true });
            }
            let seat = about.seat(place);
            let rate = view.terms.rate.filter(|_| settings.rate.is_none());
            if let Some(rate) = rate.filter(|_| seat.epoch == view.epoch)
                && let Some(until_ms) = full(seat.window.full_until_ms(rate))
            {
                found.push(Block::Rate { rate, until_ms, of_pulls: true });
            }
        }
        found
    }
}
