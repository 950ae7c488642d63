//! A `MANIFEST` that is lost or was changed: the headers of the segments say what it said.

use std::path::Path;

use crate::cli::failure::{Failure, warn};
use crate::tools::place::Place;

/// Finds the shards and the id of a directory. Warns if not all of it comes from its manifest.
pub(super) fn found(data: &Path) -> Result<Place, Failure> {
    let (place, fault) = Place::found(data)?;
    if let Some(fault) = fault {
        warn(&fault.0);
    }
    Ok(place)
}
