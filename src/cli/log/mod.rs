//! `log`: what the log of a data directory holds, whether it is sound, and copying what is. Speaks to no server.
//!
//! | file | responsibility |
//! |---|---|
//! | `dump` | `log dump` |
//! | `manifest` | a `MANIFEST` that is lost, from the headers of the segments |
//! | `repair` | `log repair` |
//! | `stat` | `log stat` |
//! | `verify` | `log verify` |

mod dump;
mod manifest;
mod repair;
mod stat;
mod verify;

use clap::Subcommand;
use corq_io::log::{Inspection, Seen, segment_file};

use super::context::Context;
use super::failure::Failure;
use super::progress::Progress;
use crate::tools::place::{Fault, Place, must_own};
use crate::tools::replay::Replay;

/// Commands on the log of a data directory.
#[derive(Subcommand, Debug)]
pub enum Log {
    /// Check every block and every record; exit code 1 if anything is damaged
    Verify(verify::Verify),
    /// Count segments, blocks, records, bytes, jobs and queues
    Stat(stat::Stat),
    /// Print the records, a line of JSON each
    Dump(dump::Dump),
    /// Copy what is whole into a new data directory, from which the server starts again
    Repair(repair::Repair),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault.0)
    }
}

/// Carries one out.
pub fn run(context: &mut Context, log: &Log) -> Result<(), Failure> {
    let data = match log {
        Log::Verify(verify::Verify { data, .. })
        | Log::Stat(stat::Stat { data, .. })
        | Log::Dump(dump::Dump { data, .. })
        | Log::Repair(repair::Repair { data, .. }) => data,
    };
    must_own(data)?;
    match log {
        Log::Verify(verify) => verify::run(context, verify),
        Log::Stat(stat) => stat::run(context, stat),
        Log::Dump(dump) => dump::run(context, dump),
        Log::Repair(repair) => repair::run(context, repair),
    }
}

/// A fault of a log and its place, as shown to people and programs.
struct Trouble {
    shard: u16,
    file: String,
    offset: u64,
    reason: String,
    lost_blocks: Option<u64>,
    misnamed: bool,
}

impl Trouble {
    fn line(&self) -> String {
        let Self { shard, file, offset, reason, lost_blocks, misnamed } = self;
        let lost = match lost_blocks {
            Some(1) => "; 1 block is lost".to_owned(),
            Some(blocks) => format!("; {blocks} blocks are lost"),
            None => String::new(),
        };
        if file.is_empty() {
            return format!("shard-{shard:04} is lost: {reason}");
        }
        if *misnamed {
            return format!("shard-{shard:04}/{file} {reason}");
        }
        format!("shard-{shard:04}/{file} is damaged at byte {offset}: {reason}{lost}")
    }
}

/// A shard whose log was looked at whole.
struct Looked {
    shard: u16,
    inspection: Inspection,
    replay: Replay,
}

impl Looked {
    fn troubles(&self) -> Vec<Trouble> {
        let damages = self.inspection.damages.iter().map(|damage| Trouble {
            shard: self.shard,
            file: damage.file.clone(),
            offset: damage.offset,
            reason: damage.reason.clone(),
            lost_blocks: damage.blocks,
            misnamed: damage.is_misnamed(),
        });
        let mut troubles: Vec<Trouble> = damages.collect();
        if troubles.is_empty() {
            // With records missing, others can only be misunderstood.
            troubles.extend(self.replay.refused.iter().map(|refused| Trouble {
                shard: self.shard,
                file: segment_file(refused.segment),
                offset: refused.offset,
                reason: format!("an intact record that a start would refuse: {}", refused.reason),
                lost_blocks: None,
                misnamed: false,
            }));
        }
        troubles
    }
}

/// Lines about all that a start would find wrong with the logs.
pub(super) fn troubles(place: &Place) -> Result<Vec<String>, Failure> {
    let looked = look(place, u32::MAX)?;
    Ok(looked.iter().flat_map(Looked::troubles).map(|trouble| trouble.line()).collect())
}

/// Looks at all shards.
fn look(place: &Place, completed_max: u32) -> Result<Vec<Looked>, Failure> {
    let progress = Progress::bytes(place.bytes(), "checked");
    (0..place.shards).map(|shard| look_at(place, shard, completed_max, Some(&progress))).collect()
}

/// Looks at one.
fn look_at(
    place: &Place,
    shard: u16,
    completed_max: u32,
    progress: Option<&Progress>,
) -> Result<Looked, Failure> {
    let fresh = || Replay::new(completed_max);
    let (inspection, replay) = place.look(shard, fresh, |replay, seen| match seen {
        Seen::Block(bytes) => progress.iter().for_each(|progress| progress.add(bytes)),
        Seen::Record { position, segment, offset, body } => {
            replay.take(position, segment, offset, body);
        }
    })?;
    Ok(Looked { shard, inspection, replay })
}

/// `1 block`, `2 blocks`.
pub(super) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
