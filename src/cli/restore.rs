//! `restore`: a backup made a data directory again. Speaks to no server.

use std::path::{Path, PathBuf};

use clap::Args;
use corq_io::s3::Stop;

use super::backup::{Storage, bucket};
use super::context::Context;
use super::failure::Failure;
use super::log::count;
use super::progress::Progress;
use super::words;
use crate::backups::access;
use crate::backups::name::Name;
use crate::backups::target::BackupTarget;
use crate::protocol::msgpack::writer::Writer;
use crate::tools::backup::Summary;
use crate::tools::restore::{InDirectory, Source, restore};

/// Arguments of `restore`.
#[derive(Args, Debug)]
pub struct Restore {
    #[arg(help = "The backup: its directory, or s3://BUCKET/PREFIX/NAME")]
    from: PathBuf,
    /// The data directory to be: one that does not exist, or is empty
    to: PathBuf,
    #[command(flatten)]
    storage: Storage,
}

/// Carries it out.
pub fn run(
    context: &mut Context,
    args: &Restore,
    server: fn() -> clap::Command,
) -> Result<(), Failure> {
    let Some((target, name)) = named(&args.from)? else {
        let source = InDirectory::open(&args.from)?;
        return put(context, &source, source.bytes(), args);
    };
    let objects = access::open(&args.storage.settings(server)?, &target, &Stop::default())?;
    let Some(objects) = objects else { return Err(Failure::Usage("it is no bucket".into())) };
    let source = objects.source(name)?;
    let bytes = source.manifest.segments.iter().map(|(segment, _)| segment.bytes).sum();
    put(context, &source, bytes, args)
}

/// Bucket and prefix of a backup, and its name; nothing of one in a directory.
fn named(from: &Path) -> Result<Option<(BackupTarget, Name)>, Failure> {
    let Some(target) = bucket(from)? else { return Ok(None) };
    let text = target.to_string();
    let split = text
        .rsplit_once('/')
        .and_then(|(before, name)| Some((BackupTarget::parse(before).ok()?, Name::parse(name)?)));
    let usage = || {
        let form = "s3://BUCKET/PREFIX/NAME, with a NAME of 'corq backup list'";
        Failure::Usage(format!("{text}: a backup in a bucket is {form}"))
    };
    split.map(Some).ok_or_else(usage)
}

fn put(
    context: &mut Context,
    source: &dyn Source,
    bytes: u64,
    args: &Restore,
) -> Result<(), Failure> {
    let shards = source.about().shards;
    let progress = Progress::bytes(2 * bytes, "copied and checked");
    let summary = restore(source, &args.to, &|bytes| progress.add(bytes))?;
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
        writer.uint(u64::from(shards));
        writer.str("segments");
        writer.uint(segments);
        writer.str("bytes");
        writer.uint(bytes);
        return context.out.json(&out);
    }
    Ok(context.out.line(&format!(
        "restored {}, {}, {} to {to}: start with DATA_PATH={to} and SHARDS={}",
        count(u64::from(shards), "shard"),
        count(segments, "segment"),
        words::bytes(bytes as f64),
        shards,
    ))?)
}
