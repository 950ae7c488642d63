//! `log verify`: every block and every record, and each place that is damaged.

use std::path::PathBuf;

use clap::Args;
use corq_io::log::{Inspection, repair_of};

use super::{Looked, Trouble, count, look};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::output::{Cell, Style};
use crate::protocol::msgpack::writer::MapWriter;
use crate::tools::place::Place;

/// Arguments of `log verify`.
#[derive(Args, Debug)]
pub struct Verify {
    /// The data directory; a server may be using it
    pub(super) data: PathBuf,
}

/// Carries it out.
pub fn run(context: &mut Context, verify: &Verify) -> Result<(), Failure> {
    let (place, fault) = Place::found(&verify.data)?;
    let live = place.is_live()?;
    let looked = look(&place, u32::MAX)?;
    let troubles: Vec<Trouble> = looked.iter().flat_map(Looked::troubles).collect();
    let sum = |count: fn(&Inspection) -> u64| looked.iter().map(|it| count(&it.inspection)).sum();
    let (blocks, records): (u64, u64) = (sum(Inspection::blocks), sum(Inspection::records));
    if context.target.json {
        let mut out = Vec::new();
        let mut map = MapWriter::begin(&mut out);
        map.key("ok").bool(troubles.is_empty() && fault.is_none());
        map.key("live").bool(live);
        map.key("shards").uint(u64::from(place.shards));
        map.key("blocks").uint(blocks);
        map.key("records").uint(records);
        let mut list = map.key("damages");
        list.array(troubles.len());
        for trouble in &troubles {
            let mut row = list.begin_map();
            row.key("shard").uint(u64::from(trouble.shard));
            row.key("file").str(&trouble.file);
            row.key("offset").uint(trouble.offset);
            row.key("reason").str(&trouble.reason);
            row.key("lostBlocks").uint_or_nil(trouble.lost_blocks);
        }
        let torn: Vec<_> = looked.iter().filter(|it| it.inspection.tail.is_some()).collect();
        let mut list = map.key("tornTails");
        list.array(torn.len());
        for Looked { shard, inspection, .. } in torn {
            let Some(tail) = &inspection.tail else { continue };
            let mut row = list.begin_map();
            row.key("shard").uint(u64::from(*shard));
            row.key("file").str(&tail.file);
            row.key("offset").uint(tail.offset);
            row.key("bytes").uint(tail.bytes);
        }
        drop(map);
        context.out.json(&out)?;
    } else {
        for trouble in &troubles {
            context.out.pieces(&[Cell::styled(trouble.line(), Style::Bad)])?;
        }
        for Looked { shard, inspection, .. } in &looked {
            if let Some(tail) = inspection.tail.as_ref().filter(|_| !live) {
                let line = format!(
                    "shard-{shard:04}/{} ends in a torn tail of {} bytes at byte {}: the trace of a \
                     crash, which the next start cuts off",
                    tail.file, tail.bytes, tail.offset
                );
                context.out.pieces(&[Cell::styled(line, Style::Warn)])?;
            }
        }
        let (shards, verdict) = (count(u64::from(place.shards), "shard"), verdict(&troubles));
        context.out.line(&format!(
            "{shards}, {}, {}: {verdict}{}",
            count(blocks, "block"),
            count(records, "record"),
            if live { " (a server is using it)" } else { "" }
        ))?;
    }
    if let Some(fault) = fault {
        return Err(fault.into());
    }
    match troubles.len() {
        0 => Ok(()),
        damaged => Err(Failure::Failed(format!(
            "the log is damaged in {}: restore a backup, or copy what is whole with '{}'",
            count(damaged as u64, "place"),
            repair_of(&verify.data)
        ))),
    }
}

fn verdict(troubles: &[Trouble]) -> &'static str {
    if troubles.is_empty() { "all is whole" } else { "damaged" }
}
