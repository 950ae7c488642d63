//! Figures over time, of the shards, and samples of the server at one moment.

use crate::wire::record::record;

record! {
    /// A column for each series that was asked for: one entry for each point, none where nothing is known.
    Series {
        /// Jobs pushed.
        pushed: Vec<Option<u64>> = "pushed",
        /// Jobs completed.
        completed: Vec<Option<u64>> = "completed",
        /// Attempts failed.
        failed: Vec<Option<u64>> = "failed",
        /// Jobs that waited at the end of the point.
        waiting: Vec<Option<u64>> = "waiting",
        /// Half of the jobs waited no longer, in milliseconds.
        wait_p50_ms: Vec<Option<u64>> = "waitP50",
        /// 99 of 100 jobs waited no longer, in milliseconds.
        wait_p99_ms: Vec<Option<u64>> = "waitP99",
        /// Half of the jobs took no longer, in milliseconds.
        run_p50_ms: Vec<Option<u64>> = "runP50",
        /// 99 of 100 jobs took no longer, in milliseconds.
        run_p99_ms: Vec<Option<u64>> = "runP99",
    }
}

record! {
    /// Figures of a span of the last day.
    History {
        /// Whether there is a history: a queue that is not among the busiest has none.
        tracked: bool = "tracked",
        /// When the first point begins.
        from_ms: u64 = "from",
        /// How long a point is, in milliseconds.
        step_ms: u64 = "step",
        /// How many points there are.
        points: u64 = "points",
        /// Figures for each point.
        series: Series = "series",
    }
}

record! {
    /// How long jobs waited in a span of the last day.
    Heatmap {
        /// Whether there is a history: a queue that is not among the busiest has none.
        tracked: bool = "tracked",
        /// When the first point begins.
        from_ms: u64 = "from",
        /// How long a point is, in milliseconds.
        step_ms: u64 = "step",
        /// How many points there are.
        points: u64 = "points",
        /// The least waiting time of each bucket, in milliseconds.
        buckets_ms: Vec<u64> = "buckets",
        /// For each point how many jobs waited so long, by bucket, up to the last that has one; none where nothing is known.
        columns: Vec<Option<Vec<u64>>> = "columns",
    }
}

record! {
    /// The longest turn of an event loop.
    Turn {
        /// How long it took, in milliseconds.
        ms: f64 = "ms",
        /// The command that took most of it.
        command: String = "command",
        /// The amount of that work.
        steps: u64 = "steps",
    }
}

record! {
    /// The write-ahead log of a shard.
    ShardLog {
        /// Size of the log's files.
        disk_bytes: u64 = "diskBytes",
        /// Bytes of the log that are still needed.
        live_bytes: u64 = "liveBytes",
        /// Bytes that are not written yet.
        unwritten_bytes: u64 = "unwrittenBytes",
        /// Memory of the log's newest blocks.
        memory_bytes: u64 = "memoryBytes",
        /// Number of the log's files.
        segments: u64 = "segments",
        /// Whether it takes no more jobs.
        full: bool = "full",
        /// Whether commands wait for room in it.
        stalled: bool = "stalled",
    }
}

record! {
    /// Messages that wait between shards.
    ShardMail {
        /// Batches for a shard whose inbox is full.
        stuck_batches: u64 = "stuckBatches",
        /// Batches that wait for room in the log.
        stalled_batches: u64 = "stalledBatches",
        /// Notices to dependent jobs.
        notices: u64 = "notices",
        /// Bytes of commands that go to another shard.
        command_bytes: u64 = "commandBytes",
    }
}

record! {
    /// Memory of a shard for the figures of the last day.
    ShardHistory {
        /// Queues that have a history.
        queues: u64 = "queues",
        /// Memory in bytes.
        bytes: u64 = "bytes",
    }
}

record! {
    /// A shard: a core of the server and what belongs to it.
    ShardInfo {
        /// The number of the shard, from 0.
        shard: u64 = "shard",
        /// The share of the last seconds in which it was busy, from 0 to 1.
        load: f64 = "load",
        /// Turns of its event loop in a second.
        turns_per_sec: f64 = "turnsPerSec",
        /// Connections that it has.
        connections: u64 = "connections",
        /// Queues that it has.
        queues: u64 = "queues",
        /// Jobs that may be delivered.
        waiting: u64 = "waiting",
        /// Jobs that workers have.
        active: u64 = "active",
        /// Jobs that wait for their time.
        delayed: u64 = "delayed",
        /// Jobs pushed in a second.
        push_per_sec: f64 = "pushPerSec",
        /// Jobs pulled in a second.
        pull_per_sec: f64 = "pullPerSec",
        /// The longest turn of the event loop in the last minute.
        longest_turn: Turn = "longestTurn",
        /// The longest turns of the event loop since the start, by kind of work.
        longest_turns: Vec<Turn> = "longestTurns",
        /// The write-ahead log of the shard.
        log: ShardLog = "log",
        /// Messages that wait between this shard and others.
        mail: ShardMail = "mail",
        /// Memory for the figures of the last day.
        history: ShardHistory = "history",
        /// Connections that get samples from it.
        viewers: u64 = "viewers",
    }
}

record! {
    /// The jobs of the server, and what was done with them since its start. What the answer does not tell is zero.
    ServerStats {
        /// Jobs that may be delivered.
        waiting: u64 = "waiting",
        /// Jobs that workers have.
        active: u64 = "active",
        /// Jobs that wait for their time.
        delayed: u64 = "delayed",
        /// Jobs in dead-letter queues, in a sample.
        failed: u64 = "failed",
        /// Jobs in dead-letter queues, on a dashboard.
        dlq: u64 = "dlq",
        /// Jobs that are done.
        completed: u64 = "completed",
        /// Jobs that wait for others.
        waiting_children: u64 = "waitingChildren",
        /// How long the server has been running, in milliseconds.
        uptime_ms: u64 = "uptime",
        /// Jobs pushed.
        total_pushed: u64 = "totalPushed",
        /// Jobs pulled.
        total_pulled: u64 = "totalPulled",
        /// Jobs completed.
        total_completed: u64 = "totalCompleted",
        /// Attempts failed.
        total_failed: u64 = "totalFailed",
        /// Jobs pushed in a second, in a sample.
        push_per_sec: f64 = "pushPerSec",
        /// Jobs pulled in a second, in a sample.
        pull_per_sec: f64 = "pullPerSec",
    }
}

record! {
    /// A busy queue in a sample.
    BusyQueue {
        /// The name of the queue.
        name: String = "name",
        /// Jobs that may be delivered.
        waiting: u64 = "waiting",
        /// Jobs that workers have.
        active: u64 = "active",
        /// Jobs that wait for their time.
        delayed: u64 = "delayed",
        /// Jobs in its dead-letter queue.
        failed: u64 = "failed",
        /// Whether it gives out no jobs.
        paused: bool = "paused",
        /// Jobs pushed in a second.
        push_per_sec: f64 = "pushPerSec",
        /// Jobs completed in a second.
        complete_per_sec: f64 = "completePerSec",
        /// Attempts failed in a second.
        fail_per_sec: f64 = "failPerSec",
        /// 99 of 100 jobs waited no longer, in milliseconds.
        wait_p99_ms: Option<u64> = "waitP99",
        /// 99 of 100 jobs took no longer, in milliseconds.
        run_p99_ms: Option<u64> = "runP99",
    }
}

record! {
    /// The server at one moment. Parts that were not asked for are empty.
    Sample {
        /// When it was taken.
        at_ms: u64 = "at",
        /// The jobs of the server.
        stats: Option<ServerStats> = "stats",
        /// The busiest queues, busiest first.
        queues: Vec<BusyQueue> = "queues",
        /// The shards.
        shards: Vec<ShardInfo> = "shards",
    }
}
