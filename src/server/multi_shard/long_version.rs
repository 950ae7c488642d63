//! The version of the protocol of a long command whose connection has not told it: any of its parts may be the first that
//! only version 3 has. The connection is taken to speak that version once all of the command is in order.

use super::long_batch::LongCommand;
use crate::api::request::Request;
use crate::api::version::Version;
use crate::protocol::decode::needs_three;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;

impl ShardServer {
    /// Whether a part of a long command of a connection that has not told its version is the first that only version 3
    /// has: then the command is one of version 3, all of it, and what was read before reads the same in both.
    pub(super) fn turns_three(
        &mut self,
        command: &mut LongCommand,
        decoded: Option<&Request<'_>>,
        part: &[u8],
    ) -> bool {
        let session = self.sessions.get(command.origin.conn);
        let is_open = session.is_some_and(|session| session.spoken.is_open());
        let turns = is_open
            && !command.origin.version.is_three()
            && decoded.map_or_else(|| needs_three(part), |request| request.needs.is_three());
        if turns {
            command.origin.version = Version::Three;
        }
        turns
    }

    /// All of a long command has been read, and is in order.
    pub(super) fn settle_version_of(&mut self, command: &LongCommand) {
        let Origin { conn, version, .. } = command.origin;
        let session = self.sessions.get(conn).filter(|session| session.spoken.is_open());
        if session.is_some() && version.is_three() {
            self.sessions.settle_version(conn, version);
        }
    }
}
