//! The moment of a backup: where the log of every shard may be cut so that what is before all the cuts is
//! a state the server could have been killed in.
//!
//! ```text
//! client --BackupPoint--> any shard --Ask--> every shard     each cuts its log at the first message about it,
//!                                  every shard --Cut--> every other     and tells the others before all else
//! ```
//!
//! Messages keep their order, so whatever a shard sends after its cut comes after its word of the cut: no
//! shard has anything before its cut that another one did after its own. What was on its way is lost
//! to the backup, as it would be by a kill. The client copies the files, up to the cuts; that is not done here.

use crate::api::error::ErrorKind;
use crate::protocol::msgpack::writer::Writer;
use crate::server::shard_mail::envelope::Step;
use crate::server::shard_mail::message::{Message, ScatterQuery};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::log_ring::Store;
use corq_io::net::Connections;
use corq_shards::stats::Census;
use std::collections::BTreeMap;

/// One shard's part in a backup that is beginning.
#[derive(Debug)]
struct Cut {
    end: u64,
    /// Shards, this one and the coordinator included, that have not said that they know.
    left: usize,
}

/// The backups that are beginning. Each belongs to a command that is under way, of which there are few.
#[derive(Debug, Default)]
pub struct BackupPoints(BTreeMap<(u16, u32, u32), Cut>);

impl ShardServer {
    /// Asks all shards where they cut.
    pub(crate) fn ask_backup_point(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        if matches!(self.engine.journal.log.disk_mut(), Store::Memory(_)) {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::NothingOnDisk);
            return;
        }
        self.send_scatter_query(ctx.origin, ctx.req_id, ScatterQuery::BackupPoint);
    }

    /// A backup begins: the coordinator asks, or another shard has cut. The first time, this one cuts as
    /// well; the last time, nothing of this backup is on its way any more, and it answers.
    pub(crate) fn cut(&mut self, step: Step) {
        let shards = self.slots.shards();
        let key = (step.shard, step.task, step.round);
        if !self.backup_points.0.contains_key(&key) {
            let end = self.engine.journal.log.cut().0;
            self.backup_points.0.insert(key, Cut { end, left: shards });
            // Among the questions, which go first: nothing that is done from here on overtakes it.
            for dest in (0..shards).filter(|&dest| dest != self.me) {
                self.outbox.immediate(dest).messages.push(Message::Cut { step });
            }
        }
        let Some(cut) = self.backup_points.0.get_mut(&key) else { return };
        cut.left -= 1;
        if cut.left > 0 {
            return;
        }
        let end = cut.end;
        self.backup_points.0.remove(&key);
        // Goes once the log has all that is before the cut.
        let batch = self.outbox.after_commit(usize::from(step.shard));
        let start = batch.bytes.len();
        let mut writer = Writer::new(&mut batch.bytes);
        writer.map(2);
        writer.str("shard");
        writer.uint(self.me as u64);
        writer.str("end");
        writer.uint(end);
        let entries = start..batch.bytes.len();
        let census = Census::default();
        batch.messages.push(Message::Gather { step, census, entries, count: 1, share: None });
    }
}
