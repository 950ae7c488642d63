//! Whether a start would take the data directory: asked of the functions that a start asks, and of those that look at
//! logs. While a server has it, it has been taken.

use std::path::Path;

use corq_io::log::DataDir;

use crate::checks::Finding;
use crate::cli::failure::Failure;
use crate::cli::log;
use crate::tools::place::Place;

const WHAT: &str = "data directory";
/// Damages named; `corq log verify` has all of them.
const NAMED_MAX: usize = 5;

/// Finds what a start would refuse.
pub fn findings(data: &Path) -> Vec<Finding> {
    if DataDir::is_held(data).unwrap_or(false) {
        return vec![Finding::good(WHAT, "in use")];
    }
    if let Err(error) = DataDir::check(data) {
        return vec![Finding::wrong(WHAT, error.to_string(), "a start refuses it as it is")];
    }
    // A directory without a manifest is new to the start, which goes on with one in the middle of a move.
    let Ok(place) = Place::of(data) else { return vec![Finding::good(WHAT, "a start makes it")] };
    let verify = format!("a start refuses it as it is: see 'corq log verify {}'", data.display());
    match log::troubles(&place) {
        Ok(troubles) if troubles.is_empty() => {
            vec![Finding::good(
                WHAT,
                format!("{} shards, all of whose logs are whole", place.shards),
            )]
        }
        Ok(troubles) => {
            let named = troubles.iter().take(NAMED_MAX);
            named.map(|line| Finding::wrong(WHAT, line, &verify)).collect()
        }
        Err(Failure::Failed(line) | Failure::Refused(line) | Failure::Usage(line)) => {
            vec![Finding::wrong(WHAT, line, &verify)]
        }
        Err(_) => Vec::new(),
    }
}
