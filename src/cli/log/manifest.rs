//! A `MANIFEST` that is lost or was changed: the headers of the segments say what it said.

use std::path::Path;

use corq_io::log::DataDir;

use crate::cli::context::Context;
use crate::cli::failure::{Failure, warn};
use crate::cli::input;
use crate::cli::output::{Cell, Style};
use crate::tools::place::{Fault, Place};

/// What is known of a directory. Says so if not all of it comes from its manifest.
pub(super) fn found(data: &Path) -> Result<Place, Failure> {
    let (place, fault) = Place::found(data)?;
    if let Some(fault) = fault {
        warn(&fault.0);
    }
    Ok(place)
}

/// Writes it anew, if it has to be and the segments agree on what it said.
pub(super) fn restore(context: &mut Context, data: &Path, yes: bool) -> Result<(), Failure> {
    let Some(about) = DataDir::found(data).map_err(Fault::from)? else { return Ok(()) };
    if let Err(error) = DataDir::about(data) {
        context.out.pieces(&[Cell::styled(error.bare(), Style::Bad)])?;
        context.out.flush()?;
    }
    input::confirm(yes, &format!("write it anew: {} shards lie there", about.shards))?;
    DataDir::describe(data, about).map_err(Fault::from)?;
    context.out.line("wrote the MANIFEST anew, as the segments say")?;
    Ok(())
}
