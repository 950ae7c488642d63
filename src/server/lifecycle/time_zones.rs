//! Which rules of time zones a server goes by: those of its build, or those of the system if they are newer.

use corq_io::zone_files::{USUAL_DIRECTORY, ZoneFiles};
use corq_shards::cron::zones::{bundled_version, is_newer, use_system_rules};
use std::path::PathBuf;

/// Takes the rules of the system, if they are newer. `TZDIR` names another directory, as it does for other programs.
pub fn take_up() {
    let named = std::env::var_os("TZDIR").filter(|path| !path.is_empty());
    let directory = named.map_or_else(|| PathBuf::from(USUAL_DIRECTORY), PathBuf::from);
    // A system without zones is a usual one.
    let Ok(found) = ZoneFiles::list(&directory) else { return };
    let version = found.version();
    if !is_newer(version) {
        return;
    }
    let (files, bundled) = (found.read(), bundled_version());
    let (count, shown) = (files.len(), directory.display());
    if count > 0 && use_system_rules(version, files) {
        tracing::info!(
            "time zones: rules {version} of {shown} ({count} zones) replace {bundled} of this build, which are older"
        );
    }
}
