//! A shard's load and contents, as a row of `Shards` and of samples.

use crate::protocol::msgpack::writer::MapWriter;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;

/// Kinds of work whose longest turns are shown.
const TURNS_SHOWN: usize = 5;

fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// Two decimals, or four where it matters.
fn rounded(number: f64, places: i32) -> f64 {
    let scale = 10_f64.powi(places);
    (number * scale).round() / scale
}

impl ShardServer {
    /// The row of this shard.
    pub(super) fn row_of_shard(&self, conns: &Connections) -> Box<[u8]> {
        let mut bytes = Vec::new();
        let mut row = MapWriter::begin_wide(&mut bytes);
        let census = self.share_of_stats();
        let (load, turns) = self.figures.load.lately(self.now_ms);
        row.key("shard").uint(self.me as u64);
        row.key("load").number(rounded(load, 4));
        row.key("turnsPerSec").number(turns.round());
        row.key("connections").uint(conns.len() as u64);
        row.key("queues").uint(self.engine.shard.holdings().queues as u64);
        row.key("waiting").uint(census.waiting);
        row.key("active").uint(census.active);
        row.key("delayed").uint(census.delayed);
        row.key("pushPerSec").number(census.per_second.pushed.round());
        row.key("pullPerSec").number(census.per_second.pulled.round());
        self.write_turns(&mut row);
        self.write_log(&mut row);
        let mut mail = row.map("mail");
        mail.key("stuckBatches").uint(self.outbox.stuck() as u64);
        mail.key("stalledBatches").uint(self.stalled_messages.len() as u64);
        mail.key("notices").uint(self.engine.shard.notices_waiting());
        mail.key("commandBytes").uint(self.command_bytes() as u64);
        drop(mail);
        let history = self.engine.shard.history();
        let mut kept = row.map("history");
        kept.key("queues").uint(history.len() as u64);
        kept.key("bytes").uint(history.bytes() as u64);
        drop(kept);
        row.key("viewers").uint(self.figures.viewers.len() as u64);
        drop(row);
        bytes.into()
    }

    /// The longest turn lately, and of the kinds of work that had the longest since the start.
    fn write_turns(&self, row: &mut MapWriter<'_>) {
        let lately = self.figures.load.longest();
        let mut turn = row.map("longestTurn");
        turn.key("ms").number(ms(lately.length_us));
        turn.key("command").str(lately.work);
        drop(turn);
        let mut longest: Vec<_> = self.meter.longest().collect();
        longest.sort_by_key(|(_, longest)| std::cmp::Reverse(longest.length_us));
        longest.truncate(TURNS_SHOWN);
        let mut turns = row.key("longestTurns");
        turns.array(longest.len());
        for (work, longest) in longest {
            let mut turn = turns.begin_map();
            turn.key("command").str(work.name());
            turn.key("ms").number(ms(longest.length_us));
            turn.key("steps").uint(longest.steps);
        }
    }

    fn write_log(&self, row: &mut MapWriter<'_>) {
        let (shard, journal) = (&self.engine.shard, &self.engine.journal);
        let counters = journal.log.counters();
        let mut log = row.map("log");
        log.key("diskBytes").uint(counters.disk_bytes);
        log.key("liveBytes").uint(shard.needed_bytes());
        log.key("unwrittenBytes").uint(journal.log.unwritten_bytes());
        log.key("memoryBytes").uint(journal.log.memory_bytes() as u64);
        log.key("segments").uint(journal.log.segments().0);
        log.key("full").bool(journal.is_full(&shard.space_forecast()));
        log.key("stalled").bool(journal.pressure.stalled);
    }
}
