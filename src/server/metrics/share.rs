//! The part of one shard in the metrics: where each number comes from, in the order of [`super::families::FAMILIES`].

use super::families::AccountRow;
use super::{Durations, Metrics, TurnRow};
use crate::server::connection::protocol::Protocol;
use crate::server::http::Limiter;
use crate::server::overload::client_memory::ACCOUNTS;
use crate::server::shard_mail::message::GatheredPart;
use crate::server::shard_server::ShardServer;
use corq_io::chronicle::Replication;
use corq_io::net::Connections;
use corq_shards::stats::Census;
use corq_shards::stats::latency::Timing;
use std::sync::atomic::Ordering::Relaxed;

impl ShardServer {
    /// This shard's part of `Metrics` and `Prometheus`.
    pub(crate) fn share_of_metrics(&self, conns: &Connections) -> GatheredPart {
        let shard = &self.engine.shard;
        let (totals, held) = (shard.totals(), shard.holdings());
        let (net, log) = (self.net, self.engine.journal.log.counters());
        let (segments, spares) = self.engine.journal.log.segments();
        // Numbers of the process are counted by the first shard only.
        let of_process = |number: u64| if self.me == 0 { number } else { 0 };
        let live = shard.needed_bytes();
        let remembered = shard.remembered_attempts();
        let of_webhooks = self.load_of_webhooks();
        let of_spans = self.spans.counts();
        let subscribers = self.subscribers.counts();
        let audit = self.audit.written();
        let backups = &self.backup_points.own().counters;
        let fleet = self.about.fleet.as_deref();
        let of_fleet = |of: fn(&Replication) -> u64| of_process(fleet.map_or(0, of));
        let numbers = [
            totals.pushed,
            totals.pulled,
            totals.completed,
            totals.failed,
            totals.retried,
            totals.stalled,
            totals.leases_expired,
            totals.dlq_retried,
            totals.dlq_dropped,
            held.jobs as u64,
            held.queues as u64,
            held.leases as u64,
            held.waiters as u64,
            held.timers as u64,
            held.unique_keys as u64,
            held.groups as u64,
            held.queue_settings,
            held.group_settings,
            held.groups_lingering,
            held.groups_forgotten,
            held.minutes as u64,
            held.unreported as u64,
            held.unreported_dropped,
            self.open_flows.len() as u64,
            self.child_patches.len() as u64,
            held.crons as u64,
            held.crons_ended as u64,
            totals.crons_missed,
            totals.crons_without_room,
            self.crons.backlog.len() as u64,
            shard.notices_waiting(),
            held.scheduled_put_off,
            self.workers.len() as u64,
            self.workers.bytes() as u64,
            self.workers.crowded_out(),
            shard.webhooks().len() as u64,
            of_webhooks[0],
            of_webhooks[1],
            of_webhooks[2],
            of_webhooks[3],
            of_webhooks[4],
            of_webhooks[5],
            of_webhooks[6],
            of_webhooks[7],
            of_webhooks[8],
            of_process(of_spans[0]),
            of_process(of_spans[1]),
            of_process(of_spans[2]),
            of_process(of_spans[3]),
            of_process(of_spans[4]),
            of_process(of_spans[5]),
            of_process(of_spans[6]),
            shard.traced_back() as u64,
            conns.len() as u64,
            of_process(self.permits.most() as u64),
            net.accepted,
            net.rejected + conns.turned_away(),
            net.given_away - self.migrations.seated(),
            conns.tls_connections() as u64,
            net.handshakes,
            net.resumptions,
            net.handshakes_failed,
            net.handshakes_late,
            net.handshakes_crowded_out,
            net.not_tls,
            self.http.counters.handshakes,
            net.truncated,
            net.corrupt,
            net.accept_pauses,
            net.drains_cut,
            self.sessions.count(Protocol::Http) as u64,
            self.http.counters.requests,
            self.http.counters.timeouts,
            self.http.counters.cross_origin,
            self.http.counters.limited,
            self.http.limiter.as_ref().map_or(0, Limiter::len) as u64,
            self.receive_memory.crowded_out() + self.unauthenticated_memory.crowded_out(),
            self.deadlines.tokens,
            self.access.failures,
            of_process(self.access.guard().sessions() as u64),
            of_process(audit[0]),
            of_process(audit[1]),
            self.audit.counts().1,
            self.audit.counts().0,
            of_process(audit[2]),
            of_process(backups.made.load(Relaxed)),
            of_process(backups.failures.load(Relaxed)),
            of_process(backups.failures_in_a_row.load(Relaxed)),
            of_process(backups.tidying_failures.load(Relaxed)),
            of_process(backups.last_success_s.load(Relaxed)),
            of_process(backups.due_s.load(Relaxed)),
            of_process(backups.last_duration_ms.load(Relaxed).div_ceil(1000)),
            of_process(backups.last_bytes.load(Relaxed)),
            of_fleet(|it| it.logs.load(Relaxed)),
            of_fleet(|it| it.logs_waiting.load(Relaxed)),
            of_fleet(|it| u64::from(!it.is_synchronous.load(Relaxed))),
            of_fleet(|it| it.rows.load(Relaxed)),
            of_fleet(|it| it.row_bytes.load(Relaxed)),
            of_fleet(|it| it.put_back_bytes.load(Relaxed)),
            self.deadlines.frames,
            self.long_refused,
            self.send_memory.crowded_out(),
            net.received_bytes,
            net.sent_bytes,
            net.buffers_exhausted,
            subscribers.sse,
            subscribers.websocket,
            subscribers.events,
            subscribers.lost,
            subscribers.framed,
            self.subscribers.choices().0 as u64,
            self.subscribers.choices().1 as u64,
            self.subscribers.choices().2 as u64,
            self.events.written(),
            self.events.kept().0 as u64,
            self.events.kept().1 as u64,
            subscribers.resumed,
            subscribers.gaps,
            self.subscribers.returns_waiting() as u64,
            self.subscribers.waiting_bytes(conns) as u64,
            net.late,
            self.tasks.len() as u64,
            self.large_replies.begun_peak_bytes() as u64,
            self.shared_values.reads(),
            self.transcodings.len() as u64,
            self.transcodings.slices(),
            self.large_replies.len() as u64,
            self.outbox.stuck() as u64,
            log.records,
            log.blocks,
            log.block_bytes,
            log.syncs,
            log.cold_reads,
            log.segment_failures,
            log.held_writes,
            log.removal_failures,
            self.compaction.scan_failures(),
            segments,
            spares,
            live,
            self.engine.journal.log.used_bytes().saturating_sub(live),
            remembered.count,
            remembered.bytes,
            log.dropped,
            log.dropped_bytes,
            self.compaction.rewritten_bytes,
            shard.unknown_job_records(),
            u64::from(self.engine.journal.is_full(&shard.space_forecast())),
            u64::from(self.said_lack.is_some()),
            of_process(u64::from(self.data_presence.is_gone())),
            of_process(self.data_presence.looks()),
            self.compaction.refused_pushes,
            self.compaction.evicted_jobs,
            u64::from(self.engine.journal.pressure.stalled),
            self.stalled_messages.len() as u64,
            log.disk_bytes,
            self.engine.journal.log.unwritten_bytes(),
            self.engine.journal.log.memory_bytes() as u64,
            self.fair_shares.waiting() as u64,
            shard.history().len() as u64,
            shard.history().bytes() as u64,
            shard.history().dropped(),
            self.figures.viewers.len() as u64,
            self.figures.viewers.sent,
            self.figures.viewers.skipped,
            self.figures.viewers.looks,
            self.bulk_tasks.running() as u64,
            self.bulk_tasks.refused,
            self.bulk_tasks.changed,
        ];
        let Durations { push, pull, ack, turn } = &self.durations;
        let timings = shard.timings();
        let timings =
            [push, pull, ack, &timings.waiting, &timings.processing, turn].map(Timing::clone);
        let shard = self.me;
        let turns = self.meter.longest().map(|(work, longest)| TurnRow { shard, work, longest });
        let turns = turns.collect();
        let shards = vec![(self.me, Box::new(numbers))];
        let accounts = accounts(self, conns);
        GatheredPart::Metrics(Box::new(Metrics { turns, numbers, accounts, shards, timings }))
    }

    /// Jobs by state, totals and rates of this shard.
    pub(crate) fn share_of_stats(&self) -> Census {
        let mut census = self.engine.shard.census();
        census.per_second = self.rates.per_second(self.now_ms, census.totals);
        census
    }
}

/// Memory of clients on a shard by account, and the bounds of these, in the order of [`ACCOUNTS`].
fn accounts(server: &ShardServer, conns: &Connections) -> [AccountRow; ACCOUNTS.len()] {
    let ShardServer { large_replies, transcodings, client_memory, .. } = server;
    let held = [
        server.receive_memory.bytes(),
        server.unauthenticated_memory.bytes(),
        conns.handshake_bytes(),
        server.command_bytes(),
        large_replies.frame_bytes(),
        server.crons.backlog.bytes(),
        conns.output_bytes(),
        transcodings.waiting_bytes(),
        transcodings.writing_bytes() - transcodings.waiting_bytes(),
        large_replies.begun_bytes(),
        large_replies.in_transit_bytes(),
        server.cold.bytes(),
        server.shared_values.kept_bytes(),
    ];
    let bounds = client_memory.bounds();
    std::array::from_fn(|place| AccountRow {
        bytes: held[place] as u64,
        limit_bytes: bounds[place] as u64,
        fullest: held[place] as f64 / bounds[place] as f64,
    })
}
