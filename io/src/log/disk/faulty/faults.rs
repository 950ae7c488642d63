//! Faults of a disk of tests.

/// Faults and how often they occur. All zero: none, and everything is done at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Writes, syncs and reads end when `finish_one` says so, in any order.
    pub late: bool,
    /// With `late`: block writes in `written` mode end at once nevertheless, as a `pwrite` does.
    pub inline_writes: bool,
    /// Of this many writes, one is short; 0 for none.
    pub short_writes: u32,
    /// Of this many reads, one is short; 0 for none.
    pub short_reads: u32,
    /// Of this many writes or reads, one is interrupted; 0 for none.
    pub interrupts: u32,
    /// This many writes from now, one fails with `errno`; 0 for never.
    pub fail_write: u32,
    /// Every write fails with `errno`, as where no room is set aside and there is none.
    pub fail_writes: bool,
    /// Every write to another segment than the newest fails with `errno`, as that of a mark where there is no room.
    pub fail_older: bool,
    /// This many syncs from now, one fails with `errno`; 0 for never.
    pub fail_sync: u32,
    /// This many reads from now, one fails with `errno`; 0 for never. Those of a start do not count.
    pub fail_read: u32,
    /// The disk has no room for another file, or none at all: making one fails with `errno`.
    pub fail_create: bool,
    /// The system opens no more files, which fails with `errno`; what is open stays so.
    pub fail_open: bool,
    /// The errno that failures return.
    pub errno: i32,
    /// Syncs and durable writes say they are done, and are not: the canary of every test that
    /// turns the power off.
    pub lying: bool,
    /// New segments start with the bytes of the oldest one behind their header, as recycled files do.
    pub stale_segments: bool,
}
