//! `log repair`: copies what is whole into a new data directory, in which it is put right. The source is never changed, and
//! what is lost is said.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use corq_io::log::{Damage, DataDir, LockError, Position, Repaired};

use super::{Looked, Trouble, count, look, look_at};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::output::{Cell, Style};
use crate::protocol::uuid_text;
use crate::tools::place::{Fault, Place};
use crate::tools::repair::{Repair as Copying, missing_ends};
use crate::tools::target::Target;

/// Rounds of mending after which it is given up: each brings to light at most what the one before hid.
const ROUNDS_MAX: u32 = 10;
/// Jobs named in one line.
const NAMED_MAX: usize = 20;

/// Arguments of `log repair`.
#[derive(Args, Debug)]
pub struct Repair {
    /// The damaged data directory or backup, which is not changed; no server may be using it
    pub(super) data: PathBuf,
    /// The data directory to be: one that does not exist, or is empty
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Say what it would do and which jobs there would be, and leave nothing there
    #[arg(long)]
    dry_run: bool,
}

/// Carries it out.
pub fn run(context: &mut Context, repair: &Repair) -> Result<(), Failure> {
    let target = Target::of(&repair.to)?;
    target.is_apart_from(&repair.data, "a repair changes nothing in what it copies")?;
    let (place, lost_manifest) = found(&repair.data)?;
    // Held until the end: no server starts meanwhile, and none is running.
    let _kept_out = DataDir::keep_out(&repair.data).map_err(|error| refused(&error))?;
    let first = look(&place, u32::MAX)?;
    let missing = missing_ends(&place, first.iter().map(|it| (it.shard, &it.inspection)));
    for line in lost_manifest.iter().chain(&missing) {
        context.out.pieces(&[Cell::styled(line.clone(), Style::Bad)])?;
    }
    let is_said_whole = lost_manifest.is_none() && missing.is_empty();
    if is_said_whole && first.iter().all(|it| it.troubles().is_empty()) {
        return whole(context, repair);
    }
    print_troubles(context, &first)?;
    context.out.flush()?;
    let is_newer = |it: &Looked| it.inspection.damages.is_empty() && !it.troubles().is_empty();
    if first.iter().any(is_newer) {
        return Err(Failure::Failed(
            "these records are what was written, but not for this release: start the one that wrote \
             them"
                .into(),
        ));
    }
    let mut copying = Copying::begin(&place, &target)?;
    let (mended, lost) = prepare(context, &mut copying, &first)?;
    print_outcome(context, &first, &mended, &lost, !missing.is_empty())?;
    if repair.dry_run {
        return Ok(context
            .out
            .line("this was a dry run: nothing was changed, and no copy is left")?);
    }
    copying.complete(of_all(&first, &mended).map(|it| (it.shard, &it.inspection)))?;
    // Look at the copy again: the report names what lies on the disk.
    let now = look(copying.place(), u32::MAX)?;
    if let Some(trouble) = now.iter().flat_map(Looked::troubles).next() {
        return Err(Failure::Failed(format!(
            "the copy was mended, and yet: {}; it was removed again",
            trouble.line()
        )));
    }
    copying.finish()?;
    context.out.line(&format!("now there are {}", jobs(now.iter())))?;
    let (data, to) = (repair.data.display(), repair.to.display());
    context.out.line(&format!(
        "{to} can be started from, with DATA_PATH={to} and SHARDS={}, or in the place of {data}, which is as it was: keep \
         that until all is well",
        place.shards
    ))?;
    Ok(())
}

/// Reports that nothing is wrong. Fails unless dry: a start from a copy that was not made would begin without any job.
fn whole(context: &mut Context, repair: &Repair) -> Result<(), Failure> {
    if repair.dry_run {
        return Ok(context.out.line("nothing is damaged")?);
    }
    let (data, to) = (repair.data.display(), repair.to.display());
    Err(Failure::Failed(format!(
        "nothing is damaged, so {to} was not made: {data} can be used as it is"
    )))
}

/// The directory, as its manifest says. Where that is lost or was changed, what the segments say instead, and what is wrong.
fn found(data: &Path) -> Result<(Place, Option<String>), Failure> {
    let error = match DataDir::about(data) {
        Ok(about) => return Ok((Place::described(data, about), None)),
        Err(error) => error,
    };
    match DataDir::found(data).map_err(Fault::from)? {
        Some(about) => Ok((Place::described(data, about), Some(error.bare()))),
        None => Err(refused(&error)),
    }
}

/// Why there is nothing to repair here. That a repair could help is for others to say.
fn refused(error: &LockError) -> Failure {
    let what = error.bare();
    Failure::Failed(match error {
        LockError::Manifest { .. } | LockError::NoManifest { .. } => format!(
            "{what}; the segments do not agree on what it said: put it back as it was, or restore a backup"
        ),
        _ => what,
    })
}

/// All shards: as they lie, and those that were mended as they are then.
fn of_all<'a>(first: &'a [Looked], mended: &'a [Looked]) -> impl Iterator<Item = &'a Looked> {
    first.iter().map(|it| mended.iter().find(|mended| mended.shard == it.shard).unwrap_or(it))
}

fn print_troubles(context: &mut Context, looked: &[Looked]) -> Result<(), Failure> {
    for line in looked.iter().flat_map(Looked::troubles).map(|trouble| trouble.line()) {
        context.out.pieces(&[Cell::styled(line, Style::Bad)])?;
    }
    Ok(())
}

/// The part of one shard's log that is missing.
struct Lost {
    shard: u16,
    stretches: Vec<std::ops::Range<Position>>,
    /// Nothing says how much was behind the end.
    end: bool,
    /// Nothing at all: files had the names of others.
    only_names: bool,
    /// Nothing at all: files had lost their names or their headers.
    nothing: bool,
}

impl Lost {
    /// Whether the jobs around what is lost say how many were there at most. Of a lost end nothing does.
    fn is_bounded(&self, looked: &Looked) -> bool {
        let between: Vec<_> =
            self.stretches.iter().filter(|it| it.end.0 != u64::MAX).cloned().collect();
        // Where older segments were given up, jobs of theirs may have been written again in what is lost.
        let is_from_the_start = looked.inspection.first_segment() == 0;
        if between.is_empty() {
            self.nothing || self.end
        } else {
            is_from_the_start && looked.replay.bounds(&between)
        }
    }
}

/// Mends copies until nothing is wrong with them, and says what was done.
fn prepare(
    context: &mut Context,
    copying: &mut Copying<'_>,
    first: &[Looked],
) -> Result<(Vec<Looked>, Vec<Lost>), Failure> {
    let (mut mended, mut lost): (Vec<Looked>, Vec<Lost>) = (Vec::new(), Vec::new());
    for looked in first.iter().filter(|it| !it.inspection.damages.is_empty()) {
        let shard = looked.shard;
        let (stretches, end) = (Vec::new(), false);
        let mut of_shard = Lost { shard, stretches, end, only_names: true, nothing: true };
        let mut again: Option<Looked> = None;
        for round in 0.. {
            let found = again.as_ref().unwrap_or(looked);
            if found.inspection.damages.is_empty() {
                break;
            }
            if round == ROUNDS_MAX {
                return Err(Failure::Failed(format!(
                    "shard-{shard:04} is still damaged after {ROUNDS_MAX} rounds, so there is no copy: restore a \
                     backup"
                )));
            }
            if round > 0 {
                // Only now it can be seen.
                print_troubles(context, std::slice::from_ref(found))?;
            }
            of_shard.stretches.extend(found.inspection.lost());
            of_shard.end |= found.inspection.damages.iter().any(Damage::is_end);
            of_shard.only_names &= found.inspection.damages.iter().all(Damage::is_misnamed);
            of_shard.nothing &= found.inspection.damages.iter().all(Damage::loses_nothing);
            for done in copying.repair(shard, &found.inspection)? {
                context.out.line(&format!("  mended in the copy: {}", summary(shard, &done)))?;
            }
            again = Some(look_at(copying.place(), shard, u32::MAX, None)?);
        }
        mended.extend(again);
        lost.push(of_shard);
    }
    Ok((mended, lost))
}

fn summary(shard: u16, done: &Repaired) -> String {
    let Repaired { file, offset, what } = done;
    match file.as_str() {
        "" => format!("shard-{shard:04}: {what}"),
        file => format!("shard-{shard:04}/{file} at byte {offset}: {what}"),
    }
}

/// Which jobs there are, which there would be, and which are lost.
fn print_outcome(
    context: &mut Context,
    first: &[Looked],
    mended: &[Looked],
    lost: &[Lost],
    is_cut: bool,
) -> Result<(), Failure> {
    context.out.line(&format!("as it lies, these can be read: {}", jobs(first.iter())))?;
    context.out.line(&format!("mended, these come back: {}", jobs(of_all(first, mended))))?;
    print_lost(context, first, mended, lost, is_cut)?;
    for (looked, lost) in mended.iter().zip(lost) {
        let bereft = looked.replay.bereft(&lost.stretches);
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
    let refused = mended.iter().flat_map(Looked::troubles).next();
    match refused.as_ref().map(Trouble::line) {
        Some(line) => Err(Failure::Failed(format!(
            "the log can be bridged, but a start would still refuse it, so there is no copy: {line}; restore a \
             backup"
        ))),
        None => Ok(()),
    }
}

fn print_lost(
    context: &mut Context,
    first: &[Looked],
    mended: &[Looked],
    lost: &[Lost],
    is_cut: bool,
) -> Result<(), Failure> {
    let mut missed = 0;
    for (looked, lost) in mended.iter().zip(lost) {
        missed += looked.replay.missed_between(&lost.stretches);
    }
    let before: BTreeSet<u128> = first.iter().flat_map(ids_of).collect();
    let after: BTreeSet<u128> = of_all(first, mended).flat_map(ids_of).collect();
    let cut = before.difference(&after).count() as u64;
    let later: u64 = mended.iter().map(|it| it.replay.shard.unknown_job_records()).sum();
    let mut lines = Vec::new();
    if missed > 0 {
        lines.push(format!(
            "lost: up to {}, by the numbers that are missing between those of the jobs around what is lost",
            count(missed, "job")
        ));
    }
    if cut > 0 {
        lines.push(format!("lost: {} of those that can be read as it lies", count(cut, "job")));
    }
    if later > 0 {
        lines.push(format!("{} are about jobs that are lost", count(later, "later record")));
    }
    let ends: Vec<String> = lost
        .iter()
        .filter(|lost| lost.end)
        .map(|lost| format!("shard-{:04}", lost.shard))
        .collect();
    if !ends.is_empty() {
        lines.push(format!(
            "the end of {} is lost: how many jobs came there nobody can tell",
            ends.join(" and ")
        ));
    }
    let unbounded: Vec<String> = mended
        .iter()
        .zip(lost)
        .filter(|(looked, lost)| !lost.is_bounded(looked))
        .map(|(looked, _)| format!("shard-{:04}", looked.shard))
        .collect();
    if !unbounded.is_empty() {
        let more = if missed + cut > 0 { " more" } else { "" };
        lines.push(format!(
            "how many{more} jobs are lost cannot be told: nothing in {} says how many there were in what is lost",
            unbounded.join(" and ")
        ));
    }
    if is_cut {
        lines.push(
            "what was behind the end of a log that is not where it was nobody can tell".to_owned(),
        );
    } else if lost.iter().all(|lost| lost.nothing) {
        lines.push("no job is lost".to_owned());
    } else if lines.is_empty() {
        lines.push("no job is missing between those around what is lost".to_owned());
    }
    for line in lines {
        context.out.pieces(&[Cell::styled(line, Style::Warn)])?;
    }
    Ok(())
}

fn ids_of(looked: &Looked) -> impl Iterator<Item = u128> {
    looked.replay.ids()
}

/// `5 jobs (3 waiting, 2 failed)`.
fn jobs<'a>(looked: impl Iterator<Item = &'a Looked>) -> String {
    let mut states: BTreeMap<usize, (&str, u64)> = BTreeMap::new();
    for it in looked {
        for (place, (state, jobs)) in it.replay.states().into_iter().enumerate() {
            states.entry(place).or_insert((state, 0)).1 += jobs;
        }
    }
    let all: u64 = states.values().map(|(_, jobs)| jobs).sum();
    let by_state: Vec<String> = states
        .values()
        .filter(|(_, jobs)| *jobs > 0)
        .map(|(state, jobs)| format!("{jobs} {state}"))
        .collect();
    let by_state =
        if by_state.is_empty() { String::new() } else { format!(" ({})", by_state.join(", ")) };
    format!("{}{by_state}", count(all, "job"))
}

fn uuid(id: u128) -> String {
    String::from_utf8_lossy(&uuid_text::format(id)).into_owned()
}
