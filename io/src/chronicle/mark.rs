//! The file in a data directory that says that its logs are those of a fleet: a server by itself would go on with them
//! beside the node that owns them.

use std::fs;
use std::io;
use std::path::Path;

const FLEET: &str = "FLEET";

/// Marks a data directory as one of the fleet in a database, which is named for people.
pub fn mark(data: &Path, database: &str) -> io::Result<()> {
    fs::write(data.join(FLEET), format!("{database}\n"))
}

/// The database of the fleet that a data directory is of, if it is of one.
pub fn marked(data: &Path) -> Option<String> {
    let said = fs::read_to_string(data.join(FLEET)).ok()?;
    Some(said.trim().to_owned())
}
