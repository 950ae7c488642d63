//! Where the shards run: as `PLACEMENT` says, or as the machine suggests. The start log says which and why, since it
//! decides between latencies (decision 0076).

use crate::config::PlacementChoice;
use corq_io::cgroup;
use corq_io::host::Host;
use corq_io::placement::{Facts, Placement};

pub(super) fn of(choice: PlacementChoice, host: &Host, shards: usize) -> Placement {
    let (placement, why) = match choice {
        PlacementChoice::Pinned => (Placement::Pinned, "PLACEMENT says so".to_owned()),
        PlacementChoice::Floating => (Placement::Floating, "PLACEMENT says so".to_owned()),
        PlacementChoice::Auto => {
            Facts::of_machine(shards, host.cpus.len(), cgroup::cpu_quota()).choose()
        }
    };
    tracing::info!("shards are {placement}: {why}");
    placement
}
