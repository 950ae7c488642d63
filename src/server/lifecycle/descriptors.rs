//! Who may have how many of the files that the process may have open: what the log and the shards need comes
//! first, connections get the rest. So connections alone cannot keep the log from its next file.
//!
//! Knows numbers only.

use corq_io::log::FileDisk;

/// Of the process, whatever its size: its standard streams, locks, signals, certificates, the audit log, the connection for
/// spans and its look-ups, what answers before the shards do, and room for what is opened for a moment.
const OF_PROCESS: u64 = 39;
/// Of each shard beside its log: rings, wake-ups, listeners, and connections that are turned away at this moment.
const OF_SHARD: u64 = 20;
/// Of a thread that posts to webhooks: its connection, and those of a look-up.
const OF_POSTER: u64 = 3;
/// The least that the rest must be.
const CONNECTIONS_MIN: u64 = 32;

/// Files of the log that a shard may have open besides those that it writes.
const LOG_FILES: std::ops::RangeInclusive<u64> = 8..=256;
/// Threads that post to webhooks.
const POSTERS_MIN: u64 = 4;

/// How many descriptors each use may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptors {
    /// Connections of all shards together.
    pub connections: usize,
    /// Files of the log that each shard may have open besides those that it writes.
    pub log_files: usize,
    /// Threads that post to webhooks.
    pub posters: usize,
}

impl Descriptors {
    /// Shares out what may be open at a time, in a process of so many shards that each would take
    /// `connections_max` connections, and that would post from up to `posters_max` threads.
    pub fn share_out(
        open_max: u64,
        shards: usize,
        connections_max: u32,
        posters_max: usize,
    ) -> Result<Self, String> {
        let shards = shards as u64;
        let others = |log_files: u64, posters: u64| {
            let of_log = FileDisk::descriptors_max(log_files as usize) as u64;
            OF_PROCESS + shards * (OF_SHARD + of_log) + posters * OF_POSTER
        };
        let least = others(*LOG_FILES.start(), POSTERS_MIN) + CONNECTIONS_MIN;
        let Some(spare) = open_max.checked_sub(least) else {
            return Err(format!(
                "only {open_max} files may be open (ulimit -n), and {shards} shards need {least}: raise the limit \
                 (systemd: LimitNOFILE=), or start with fewer SHARDS"
            ));
        };
        // Both together take less than a sixth of what is to spare.
        let log_files = (LOG_FILES.start() + spare / (16 * shards)).min(*LOG_FILES.end());
        let posters = (POSTERS_MIN + spare / 32).min(posters_max as u64);
        let others = others(log_files, posters);
        let wished = shards.saturating_mul(u64::from(connections_max));
        Ok(Self {
            connections: wished.min(open_max - others) as usize,
            log_files: log_files as usize,
            posters: posters as usize,
        })
    }

    /// Says so where connections get fewer than the setting allows.
    pub fn announce(&self, open_max: u64, shards: usize, connections_max: u32) {
        if (self.connections as u64) < shards as u64 * u64::from(connections_max) {
            tracing::info!(
                "At most {} connections: ulimit -n is {open_max}. Raise it (systemd: LimitNOFILE=) for as many as CONNECTIONS_MAX allows.",
                self.connections,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn with_plenty_everybody_gets_what_is_set() {
        let shares = Descriptors::share_out(1 << 20, 4, 65_536, 64).unwrap();
        assert_eq!(shares, Descriptors { connections: 4 * 65_536, log_files: 256, posters: 64 });
        let shares = Descriptors::share_out(u64::MAX, 1024, 1_000_000, 64).unwrap();
        assert_eq!(shares.connections, 1_024_000_000);
    }

    #[test]
    fn with_little_the_log_comes_first_and_all_together_is_no_more_than_there_is() {
        for open_max in (256..70_000).step_by(37) {
            for shards in [1, 2, 3, 16, 200] {
                let Ok(shares) = Descriptors::share_out(open_max, shards, 65_536, 64) else {
                    assert!(open_max < 100 + 60 * shards as u64, "{open_max}, {shards}");
                    continue;
                };
                let of_log = FileDisk::descriptors_max(shares.log_files);
                let all =
                    shares.connections + shards * (OF_SHARD as usize + of_log) + 3 * shares.posters;
                assert!(all as u64 + OF_PROCESS <= open_max, "{open_max}, {shards}: {shares:?}");
                assert!(shares.connections >= 32 && shares.log_files >= 8);
            }
        }
    }

    #[test]
    fn too_few_are_refused_with_the_number_that_is_needed() {
        let said = Descriptors::share_out(256, 64, 10, 64).unwrap_err();
        assert!(
            said.starts_with("only 256 files may be open (ulimit -n), and 64 shards need "),
            "{said}"
        );
        let needed: u64 =
            said.split("shards need ").nth(1).unwrap().split(':').next().unwrap().parse().unwrap();
        assert!(Descriptors::share_out(needed - 1, 64, 10, 64).is_err());
        assert!(Descriptors::share_out(needed, 64, 10, 64).is_ok());
    }
}
