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
use crate::backups::state::BackupState;
use crate::protocol::msgpack::writer::MapWriter;
use crate::protocol::msgpack::{Number, Reader};
use crate::server::events::message::NOBODY;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::message::{Message, ScatterQuery};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::log::Position;
use corq_io::log_ring::Store;
use corq_io::net::Connections;
use corq_shards::stats::Census;
use std::collections::BTreeMap;
use std::sync::Arc;

/// This shard's part in a backup that is beginning.
#[derive(Debug)]
struct Cut {
    end: u64,
    /// Shards, this one and the coordinator included, that have not said that they know.
    left: usize,
}

/// The backups that are beginning. Each belongs to a command that is under way, of which there are few, or is the one that the
/// server makes by its schedule.
#[derive(Debug, Default)]
pub struct BackupPoints {
    cuts: BTreeMap<(u16, u32, u32), Cut>,
    /// Requests of the thread that makes backups by the schedule.
    own: Arc<BackupState>,
    /// The last cut that was asked for here on its behalf.
    asked: u64,
}

impl BackupPoints {
    /// Of a server whose own backups want cuts by `own`.
    pub fn new(own: Arc<BackupState>) -> Self {
        Self { own, ..Self::default() }
    }

    /// State of the server's own backups.
    pub fn own(&self) -> &BackupState {
        &self.own
    }

    /// The number of the server's own cut that is wanted and not asked for yet.
    fn next(&mut self) -> Option<u64> {
        let wanted = self.own.wanted();
        (std::mem::replace(&mut self.asked, wanted) != wanted).then_some(wanted)
    }

    /// The answers of all shards to the cut of a number, as a list of maps.
    pub(super) fn answer(&self, number: u64, entries: &[u8], shards: usize) {
        let mut reader = Reader::new(entries);
        let mut ends = vec![Position(0); shards];
        for _ in 0..shards {
            if entry(&mut reader, &mut ends).is_none() {
                return;
            }
        }
        self.own.answer(number, ends);
    }
}

/// Reads the answer of one shard, and writes down in `ends` where its log ends.
fn entry(reader: &mut Reader<'_>, ends: &mut [Position]) -> Option<()> {
    let (mut shard, mut end) = (None, None);
    for _ in 0..reader.map().ok()?? {
        let key = reader.text().ok()??;
        let value = match reader.number().ok()?? {
            Number::Whole(whole) => u64::try_from(whole).ok()?,
            // Numbers beyond 32 bits travel as floats, exact up to 53 bits.
            Number::Float(float) => float as u64,
        };
        match key {
            "shard" => shard = Some(value),
            "end" => end = Some(value),
            _ => {}
        }
    }
    *ends.get_mut(usize::try_from(shard?).ok()?)? = Position(end?);
    Some(())
}

impl ShardServer {
    /// Asks all shards where they cut for the server's own backup, if one is wanted. Only the first shard does.
    pub(crate) fn follow_backups(&mut self) {
        if self.me == 0
            && let Some(number) = self.backup_points.next()
        {
            let origin = Origin::of_none(self.me as u16, NOBODY);
            self.send_scatter_query(origin, Some(&number.to_le_bytes()), ScatterQuery::BackupPoint);
        }
    }

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
        if !self.backup_points.cuts.contains_key(&key) {
            let end = self.engine.journal.log.cut().0;
            self.backup_points.cuts.insert(key, Cut { end, left: shards });
            // Among the questions, which go first: nothing that is done from here on overtakes it.
            for dest in (0..shards).filter(|&dest| dest != self.me) {
                self.outbox.immediate(dest).messages.push(Message::Cut { step });
            }
        }
        let Some(cut) = self.backup_points.cuts.get_mut(&key) else { return };
        cut.left -= 1;
        if cut.left > 0 {
            return;
        }
        let end = cut.end;
        self.backup_points.cuts.remove(&key);
        // Goes once the log has all that is before the cut.
        let batch = self.outbox.after_commit(usize::from(step.shard));
        let start = batch.bytes.len();
        let mut map = MapWriter::begin(&mut batch.bytes);
        map.key("shard").uint(self.me as u64);
        map.key("end").uint(end);
        drop(map);
        let entries = start..batch.bytes.len();
        let census = Census::default();
        batch.messages.push(Message::Gather {
            step,
            census,
            entries,
            count: 1,
            shares: Vec::new(),
        });
    }
}
