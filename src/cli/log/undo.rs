//! `log undo`: puts back what a repair has replaced, as it was. What is there now is kept.

use std::path::PathBuf;

use clap::Args;
use corq_io::log::DataDir;

use super::repair::jobs;
use super::{act_as_owner, look, look_at};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::input;
use crate::tools::place::{Fault, Place};
use crate::tools::undo::Done;

/// What `log undo` takes.
#[derive(Args, Debug)]
pub struct Undo {
    /// The data directory; no server may be using it
    data: PathBuf,
    /// The repair that is undone, as `repair-1767225600000`, which must be the last one [default: that]
    #[arg(long)]
    repair: Option<String>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Carries it out.
pub fn run(context: &mut Context, undo: &Undo) -> Result<(), Failure> {
    act_as_owner(&undo.data)?;
    // Held until the end: no server starts meanwhile, and none is running.
    let mut held = DataDir::take(&undo.data).map_err(Fault::from)?;
    let place = Place::of(held.path())?;
    let done = Done::find(&place, undo.repair.as_deref())?;
    let now = look(&place, u32::MAX)?;
    let before = done.before(&place);
    let mut then = Vec::new();
    for shard in 0..place.shards {
        let of = if done.shards().contains(&shard) { &before } else { &place };
        then.push(look_at(of, shard, u32::MAX, None)?);
    }
    context.out.line(&format!("now there are {}", jobs(now.iter())))?;
    let kept = done.kept.display().to_string();
    context.out.line(&format!("in {kept} these can be read: {}", jobs(then.iter())))?;
    context.out.flush()?;
    let shards = done.shards();
    let names = named(&shards);
    let others = shards.len() < usize::from(place.shards);
    let stays = if others { "; the other shards stay as they are now" } else { "" };
    input::confirm(
        undo.yes,
        &format!(
            "put back {names} as before the repair, and what has happened there since is no more in the log{stays}"
        ),
    )?;
    let aside = done.undo(&mut held)?;
    let is = if shards.len() == 1 { "is as it was" } else { "are as they were" };
    context.out.line(&format!(
        "{names} of {} {is} before {kept}; what was there until now is in {}{stays}",
        place.path.display(),
        aside.display()
    ))?;
    Ok(())
}

/// `shard-0000, shard-0002 and shard-0003`.
fn named(shards: &[u16]) -> String {
    let names: Vec<String> = shards.iter().map(|shard| format!("shard-{shard:04}")).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}
