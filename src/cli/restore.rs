//! `restore`: a backup made a data directory again. Speaks to no server.

use std::path::PathBuf;

use clap::Args;

use super::context::Context;
use super::failure::Failure;
use super::log::count;
use super::progress::Progress;
use super::words;
use crate::protocol::msgpack::writer::Writer;
use crate::tools::backup::Summary;
use crate::tools::place::Place;
use crate::tools::restore::restore;

/// What `restore` takes.
#[derive(Args, Debug)]
pub struct Restore {
    /// The backup
    from: PathBuf,
    /// The data directory to be: one that does not exist, or is empty
    to: PathBuf,
}

/// Carries it out.
pub fn run(context: &mut Context, args: &Restore) -> Result<(), Failure> {
    let source = Place::of(&args.from)?;
    let progress = Progress::bytes(2 * source.bytes(), "copied and checked");
    let summary = restore(&args.from, &args.to, &|bytes| progress.add(bytes))?;
    drop(progress);
    let Summary { segments, bytes, .. } = summary;
    let to = args.to.display().to_string();
    if context.target.json {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.map(5);
        writer.str("ok");
        writer.bool(true);
        writer.str("path");
        writer.str(&to);
        writer.str("shards");
        writer.uint(u64::from(source.shards));
        writer.str("segments");
        writer.uint(segments);
        writer.str("bytes");
        writer.uint(bytes);
        return context.out.json(&out);
    }
    Ok(context.out.line(&format!(
        "restored {}, {}, {} to {to}: start with DATA_PATH={to} and SHARDS={}",
        count(u64::from(source.shards), "shard"),
        count(segments, "segment"),
        words::bytes(bytes as f64),
        source.shards,
    ))?)
}
