//! `AuditLog`: a page of the log. It is read by the thread that writes it, and its answer looked for now and then, so that no turn waits
//! for the disk.

use super::state::{READERS_MAX, Reader};
use crate::api::error::ErrorKind;
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;

/// How often answers are looked for.
const PAUSE_MS: u64 = 5;

/// Bytes of a page that a turn copies in a step.
const STEP_BYTES: usize = 4096;

impl ShardServer {
    /// Answers `AuditLog`, once the entries were read.
    pub(crate) fn audit_log(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        limit: u32,
        before: Option<u64>,
    ) {
        let Some(log) = &self.audit.log else {
            return self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::AuditOff);
        };
        let has_room = self.audit.readers.len() < READERS_MAX;
        let answer = has_room.then(|| log.ask(before.unwrap_or(u64::MAX), limit as usize));
        let Some(answer) = answer.flatten() else {
            return self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::AuditReadsWait);
        };
        self.deferred(ctx.origin);
        let (origin, req_id) = (ctx.origin, ctx.req_id.map(Into::into));
        self.audit.readers.push(Reader { origin, req_id, answer });
    }

    /// Writes what is due, and answers those whose entries were read. Returns when to come again, in milliseconds since the epoch.
    pub(crate) fn audit_in_turn(&mut self, conns: &mut Connections) -> u64 {
        let next_ms = self.audit.note_due(self.now_ms);
        if self.audit.readers.is_empty() {
            return next_ms;
        }
        for reader in std::mem::take(&mut self.audit.readers) {
            let Reader { origin, req_id, answer } = &reader;
            let req_id = req_id.as_deref();
            match answer.get() {
                Some(Some(page)) => {
                    self.meter.note(1 + page.entries.len() / STEP_BYTES);
                    self.respond(conns, *origin, |_, sink| {
                        framed(sink, req_id, |sink| {
                            let mut reply = reply::begin(sink.out, true, req_id);
                            let mut entries = reply.key("entries");
                            entries.array(page.count);
                            entries.raw(&page.entries);
                            reply.key("next").uint_or_nil(page.next);
                        });
                    });
                }
                Some(None) => self.refuse(conns, *origin, req_id, ErrorKind::Internal),
                None if self.stopping => self.refuse(conns, *origin, req_id, ErrorKind::Stopping),
                None => {
                    self.audit.readers.push(reader);
                    continue;
                }
            }
            self.answered(reader.origin);
        }
        if self.audit.readers.is_empty() { next_ms } else { next_ms.min(self.now_ms + PAUSE_MS) }
    }
}
