//! Checks that the files of a shard are where the next start will look for them. When they are gone, because the data
//! directory or a part of it was removed or renamed, every command that would be recorded is refused until they are
//! back.

use crate::api::commands::Class;
use crate::server::shard_server::ShardServer;
use corq_io::log::Presence;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::Command;
use std::sync::Arc;

/// A data directory as those on the same machine know it.
#[derive(Debug, Default)]
pub struct Home {
    /// Where it was at the start, from the root on.
    pub path: String,
    /// Device and inode, which stay when the directory is renamed.
    pub directory: String,
}

/// Whether the data directory is still there, and what is refused when it is not.
#[derive(Debug, Default)]
pub struct DataPresence {
    /// None without a data directory.
    presence: Option<Arc<Presence>>,
    /// Which data directory it is.
    home: Option<Arc<Home>>,
    /// Whether the files were gone in the turn before, to see a change.
    was_gone: bool,
}

impl DataPresence {
    /// Of a shard whose files the watch looks after; or of one without any.
    pub fn new(presence: Option<Arc<Presence>>, home: Option<Arc<Home>>) -> Self {
        Self { presence, home, ..Self::default() }
    }

    /// Which data directory it is; nothing in memory.
    pub fn home(&self) -> Arc<Home> {
        self.home.clone().unwrap_or_default()
    }

    /// Whether what is written now may never be found.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.is_gone())
    }

    /// How often has been looked.
    pub fn looks(&self) -> u64 {
        self.presence.as_ref().map_or(0, |presence| presence.looks())
    }
}

impl ShardServer {
    /// Whether a command must be refused because what it writes would be lost.
    #[inline]
    pub(crate) fn lacks_data_dir(&self, class: Class) -> bool {
        self.data_presence.is_gone() && class.is_recorded()
    }

    /// Once per turn. Pulls that wait get their empty answer when the files are gone: a job that they got could not
    /// be acknowledged.
    pub fn check_data_presence(&mut self, conns: &mut Connections) {
        let gone = self.data_presence.is_gone();
        if gone && !std::mem::replace(&mut self.data_presence.was_gone, gone) {
            self.apply(conns, Caller::default(), &Command::EndWaits);
        }
        self.data_presence.was_gone = gone;
    }

    /// Says which file is written to.
    pub fn publish_files(&mut self) {
        if let Some(presence) = &self.data_presence.presence
            && let Some(newest) = self.engine.journal.log.newest_segment()
        {
            presence.publish(self.me, newest);
        }
    }
}
