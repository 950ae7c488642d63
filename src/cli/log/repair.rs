//! `log repair`: bridges what is damaged. What is cut or written over is kept.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use corq_io::log::{Damage, DataDir, Inspection, mend};

use super::{Looked, Trouble, count, look, manifest};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::input;
use crate::cli::output::{Cell, Output, Style};
use crate::protocol::uuid_text;
use crate::tools::place::{Fault, Place};

/// Rounds of mending after which it is given up: each brings to light at most what the one before hid.
const ROUNDS_MAX: u32 = 10;
/// Jobs named in one line.
const NAMED_MAX: usize = 20;

/// What `log repair` takes.
#[derive(Args, Debug)]
pub struct Repair {
    /// The data directory; no server may be using it
    data: PathBuf,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Carries it out.
pub fn run(context: &mut Context, repair: &Repair) -> Result<(), Failure> {
    manifest::restore(context, &repair.data, repair.yes)?;
    // Held until the end: no server starts meanwhile, and none is running.
    let mut held = DataDir::take(&repair.data).map_err(Fault::from)?;
    let mut place = Place::of(held.path())?;
    let damages = |looked: &[Looked]| -> Vec<String> {
        looked.iter().flat_map(Looked::troubles).map(|trouble| trouble.line()).collect()
    };
    let first = look(&place, u32::MAX)?;
    let found = damages(&first);
    if found.is_empty() {
        return Ok(context.out.line("nothing is damaged")?);
    }
    for line in &found {
        context.out.pieces(&[Cell::styled(line, Style::Bad)])?;
    }
    context.out.flush()?;
    if !first.iter().any(|it| !it.inspection.damages.is_empty()) {
        return Err(Failure::Failed(
            "these records are what was written, but not for this release: start the one that wrote \
             them"
                .into(),
        ));
    }
    input::confirm(
        repair.yes,
        "bridge these places, and what the lost records told stays lost: jobs can be missing, and \
         finished ones can come again",
    )?;
    let copies = copies_path(&place)?;
    if first.iter().flat_map(|it| &it.inspection.damages).any(Damage::is_all_lost) {
        // What has lost all of its log may begin one.
        held.set_begun(false).map_err(Fault::from)?;
        place.is_begun = false;
    }
    for round in 0..ROUNDS_MAX {
        let looked = if round == 0 { None } else { Some(look(&place, u32::MAX)?) };
        let looked = looked.as_deref().unwrap_or(&first);
        let broken: Vec<_> = looked.iter().filter(|it| !it.inspection.damages.is_empty()).collect();
        if broken.is_empty() {
            return tell_end(context, &place, &first, looked, &copies);
        }
        for Looked { shard, inspection, .. } in broken {
            let directory = place.shard_path(*shard);
            let subject = place.subject(*shard, &directory);
            let copies = copies.join(format!("round-{round}")).join(format!("shard-{shard:04}"));
            let done = mend(subject, inspection, &copies)
                .map_err(|error| Failure::failed(format!("shard-{shard:04}"), &error))?;
            for it in done {
                let copy = it.copy.map_or(String::new(), |copy| {
                    format!("; what was there is in {}", copy.display())
                });
                let what = match it.file.as_str() {
                    "" => it.what,
                    file => format!("{file} at byte {}: {}", it.offset, it.what),
                };
                context.out.line(&format!("shard-{shard:04}/{what}{copy}"))?;
            }
        }
    }
    Err(Failure::Failed("something is still damaged: restore a backup".into()))
}

/// A directory for what is cut, with a name that was not used before.
fn copies_path(place: &Place) -> Result<PathBuf, Failure> {
    let now_ms = Output::now_ms();
    let path = place.path.join(format!("repair-{now_ms}"));
    fs::create_dir(&path).map_err(|error| Failure::failed(path.display(), &error))?;
    Ok(path)
}

/// What a repair could not bring back.
fn tell_end(
    context: &mut Context,
    place: &Place,
    before: &[Looked],
    after: &[Looked],
    copies: &Path,
) -> Result<(), Failure> {
    let inspections: Vec<&Inspection> = before.iter().map(|it| &it.inspection).collect();
    let mut refused = Vec::new();
    for (looked, inspection) in after.iter().zip(&inspections) {
        refused.extend(looked.troubles().iter().map(Trouble::line));
        let bereft = looked.replay.bereft(&[inspection]);
        if !bereft.is_empty() {
            let named: Vec<String> = bereft.iter().take(NAMED_MAX).map(|id| uuid(*id)).collect();
            let more = bereft.len().saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            context.out.pieces(&[Cell::styled(
                format!(
                    "{} in shard {} have lost their payload, their result or lines of their log: {}{more}; \
                     the log does not give up what lies before them until they are removed",
                    count(bereft.len() as u64, "job"),
                    looked.shard,
                    named.join(" "),
                ),
                Style::Warn,
            )])?;
        }
    }
    if let Some(first) = refused.first() {
        return Err(Failure::Failed(format!(
            "the log is bridged, but a start would still refuse it: {first}; restore a backup"
        )));
    }
    context.out.line(&format!(
        "{} can be started from again; once all is well, {} can go",
        place.path.display(),
        copies.display()
    ))?;
    Ok(())
}

fn uuid(id: u128) -> String {
    String::from_utf8_lossy(&uuid_text::format(id)).into_owned()
}
