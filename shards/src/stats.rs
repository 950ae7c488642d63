//! Totals since the start and rates over the last seconds. Kept in memory only.

/// What a shard has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Jobs pushed.
    pub pushed: u64,
    /// Jobs delivered.
    pub pulled: u64,
    /// Jobs completed.
    pub completed: u64,
    /// Attempts failed.
    pub failed: u64,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.pushed += other.pushed;
        self.pulled += other.pulled;
        self.completed += other.completed;
        self.failed += other.failed;
    }
}

/// Jobs by state, and totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Ready jobs.
    pub waiting: u64,
    /// Jobs with workers.
    pub active: u64,
    /// Jobs whose time has not come.
    pub delayed: u64,
    /// Completed jobs that are kept.
    pub completed: u64,
    /// Jobs in dead-letter queues.
    pub failed: u64,
    /// Since the start.
    pub totals: Totals,
}

impl std::ops::AddAssign for Census {
    fn add_assign(&mut self, other: Self) {
        self.waiting += other.waiting;
        self.active += other.active;
        self.delayed += other.delayed;
        self.completed += other.completed;
        self.failed += other.failed;
        self.totals += other.totals;
    }
}
