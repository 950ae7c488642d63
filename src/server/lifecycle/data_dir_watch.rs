//! Looks once a second whether the data directory is still there, and says loudly when it is not.

use super::error::StartError;
use corq_io::log::{Change, DataDir, Presence, Watch};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Watches the inodes of the data directory.
#[derive(Debug)]
pub struct DataDirWatch {
    watch: Watch,
    /// The directory or file that is missing at the moment, to name it again when it is back.
    gone: Option<PathBuf>,
}

impl DataDirWatch {
    /// Between two looks.
    pub const PAUSE: Duration = Duration::from_secs(1);

    /// Over a directory with all its shards.
    pub fn new(data: &DataDir, presence: Arc<Presence>) -> io::Result<Self> {
        Ok(Self { watch: Watch::new(data, presence)?, gone: None })
    }

    /// Looks once. True if it is otherwise than before.
    pub fn look(&mut self) -> bool {
        match self.watch.look() {
            None => return false,
            Some(Change::Gone(path)) => {
                tracing::error!(
                    "{} is gone: it was removed or renamed, or is another now. What is written would be lost, so \
                     nothing is taken until it is back",
                    path.display()
                );
                self.gone = Some(path);
            }
            Some(Change::Back) => {
                if let Some(path) = self.gone.take() {
                    tracing::info!("{} is back: jobs are taken again", path.display());
                }
            }
        }
        true
    }

    /// Looks for the last time: an end is a good one only if the next start finds everything.
    pub fn end(mut self) -> Result<(), StartError> {
        self.look();
        match self.gone {
            None => Ok(()),
            Some(path) => Err(StartError::Other(format!(
                "{} is gone: what was written since is lost, unless it is put back",
                path.display()
            ))),
        }
    }
}
