//! State of a shard for figures.
//!
//! A ground type: of the server it imports the other ground types of figures only.

use super::load::Load;
use super::sampler::Sampler;
use super::viewers::Viewers;

/// Memory of the history of all shards together: what the busiest 1,000 queues take that have something to tell of each
/// step of a day, and half as much more.
pub const HISTORY_BYTES_MAX: usize = 256 << 20;

/// The figures of a shard.
#[derive(Debug, Default)]
pub struct FigureState {
    pub load: Load,
    pub viewers: Viewers,
    pub sampler: Sampler,
    /// When the step of the history ends that is under way.
    pub step_ends_ms: u64,
}
