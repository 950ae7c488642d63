//! A life in which every kind of record is written, and the files of it: how the logs beside this file
//! came to be. The engine and the log are the real ones; time is given, so that nothing is left to chance.

mod family;
mod group;
mod registry;

use std::convert::Infallible;
use std::fs;
use std::path::Path;

use corq_io::log::{
    DataDir, Disk, Log, LogConfig, MemoryDisk, Mode, Scan, segment_file, shard_path,
};
use corq_shards::collections::hash_key::HashKey;
use corq_shards::command::{
    Ack, ClientId, Command, Fail, Limit, PerSpan, Pull, RequestId, Stack, Token,
};
use corq_shards::compaction::space_forecast::SpaceForecast;
use corq_shards::dead_letter::policy::{DlqPatch, RulePatch, StallPatch};
use corq_shards::dependency::{News, Notice, Unmet};
use corq_shards::effect::{Effects, Reply};
use corq_shards::job::change::Change;
use corq_shards::job::id::{JobId, Slot};
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::job::overrides::{Dedup, Extras, Growth};
use corq_shards::lease::token_stream::SecretKey;
use corq_shards::log_record::job_change::Level;
use corq_shards::log_record::location::LogRef;
use corq_shards::log_record::{Journal, Record};
use corq_shards::{Caller, Config, Out, Shard};

use family::FLOW_JOBS;

/// Shards of the directories that are written.
pub const SHARDS: u16 = 2;
/// Completed jobs that their shards keep per queue: part of what their logs mean.
pub const COMPLETED_MAX: u32 = 3;
/// The smallest that a server can be told to use.
const SEGMENT_BYTES: u64 = 16 << 20;
/// The first of January 2026.
const START_MS: u64 = 1_767_225_600_000;
const DAY_MS: u64 = 86_400_000;
const YEAR_MS: u64 = 365 * DAY_MS;

/// A log as the engine's journal.
struct Book(Log<MemoryDisk>);

impl Journal for Book {
    fn append(&mut self, record: &Record<'_>) -> LogRef {
        let record_bytes = record.encoded_len();
        let (position, bytes) = self.0.append(record_bytes);
        record.encode(bytes);
        LogRef {
            position: position.0,
            record_bytes: record_bytes as u32,
            payload_bytes: record.payload_len() as u32,
        }
    }

    fn require_sync(&mut self) {
        self.0.require_sync();
    }

    fn can_append_new(&mut self, _bytes: u64, _forecast: impl Fn() -> SpaceForecast) -> bool {
        true
    }

    fn can_append_text(&mut self, _bytes: u64, _forecast: impl Fn() -> SpaceForecast) -> bool {
        true
    }

    fn can_append_spare(&mut self, _bytes: u64, _forecast: impl Fn() -> SpaceForecast) -> bool {
        true
    }

    fn can_append_completion(
        &mut self,
        _bytes: u64,
        _forecast: impl Fn() -> SpaceForecast,
    ) -> bool {
        true
    }
}

/// A shard between two starts.
struct Life {
    number: u16,
    shard: Shard,
    book: Book,
    effects: Effects,
    now_ms: u64,
    request: u64,
}

/// Writes a data directory that nobody has written before.
pub fn write(data: &Path) {
    let directory = DataDir::open(data, SHARDS).unwrap();
    for number in 0..SHARDS {
        // By a clock that is ahead.
        let ahead_ms = START_MS + 20 * DAY_MS;
        let mut life = Life::begin(number, directory.id(), MemoryDisk::new(), ahead_ms);
        life.live("first");
        let disk = life.end();
        // Records that are written again come from the segment before; then all kinds come once more, behind them.
        let mut life = Life::begin(number, directory.id(), disk, START_MS + 10 * DAY_MS);
        life.give_up_the_beginning();
        life.live("second");
        let end = life.book.0.head().0;
        life.end_into(&shard_path(data, number), end);
    }
    drop(directory);
    fs::remove_file(data.join("LOCK")).unwrap();
}

/// Writes one whose jobs are of a time that is still to come: the last is due a second after that.
pub fn write_ahead(data: &Path, now_ms: u64) {
    let directory = DataDir::open(data, 1).unwrap();
    let mut life = Life::begin(0, directory.id(), MemoryDisk::new(), now_ms);
    let job = NewJob { data: b"\x01", delay_ms: 1000, ..NewJob::default() };
    life.push("ahead", job);
    life.flush();
    let end = life.book.0.head().0;
    life.end_into(&shard_path(data, 0), end);
    drop(directory);
    fs::remove_file(data.join("LOCK")).unwrap();
}

impl Life {
    /// A start from what is on the disk.
    fn begin(number: u16, log_id: u64, disk: MemoryDisk, now_ms: u64) -> Self {
        let mut shard = Shard::new(Config {
            completed_max: COMPLETED_MAX,
            unsaid_completed_max: COMPLETED_MAX,
            completed_retention_ms: 100 * YEAR_MS,
            span_bits: SEGMENT_BYTES.trailing_zeros(),
            // Few jobs are a flow that comes in slices.
            bulk_slice: FLOW_JOBS / 2,
            interval_min_ms: 1,
            scheduled_per_second: u32::MAX,
            expired_kept_ms: 0,
            remembered_bytes_max: u64::MAX,
            seed: now_ms + u64::from(number),
            hash_key: HashKey::new(u128::from(now_ms)),
            token_key: SecretKey::of_seed(now_ms + u64::from(number)),
        });
        let config = LogConfig {
            log_id,
            segment_bytes: SEGMENT_BYTES,
            ..LogConfig::new(number, Mode::Written)
        };
        let (log, _) = Log::open(&config, disk, |position, body| {
            shard.replay(position.0, body).unwrap();
            Ok::<_, Infallible>(())
        })
        .unwrap();
        let mut book = Book(log);
        shard.set_clock_back(now_ms, &mut book);
        shard.restart(now_ms);
        let mut life =
            Self { number, shard, book, effects: Effects::default(), now_ms, request: 0 };
        life.run(1, &Command::StartCrons);
        life.pass(0);
        life
    }

    /// Writes what there is to write, as blocks of a few records.
    fn flush(&mut self) {
        self.book.0.flush(self.now_ms).unwrap();
    }

    /// A clean stop.
    fn end(mut self) -> MemoryDisk {
        while !self.book.0.close(self.now_ms).unwrap() {}
        self.book.0.into_disk()
    }

    /// A clean stop whose files are kept, up to the end of the log: what is behind it was never written.
    fn end_into(self, path: &Path, head: u64) {
        fs::create_dir(path).unwrap();
        let mut disk = self.end();
        let mut names = disk.list().unwrap();
        names.sort();
        let first = head / SEGMENT_BYTES;
        assert_eq!(names, [segment_file(first)], "the log lies in one file");
        let mut bytes = vec![0; disk.len(first).unwrap() as usize];
        let read = disk.read_at(first, 0, &mut bytes).unwrap();
        let end = bytes[..read].iter().rposition(|&byte| byte != 0).unwrap() + 1;
        // The checksum of the last header may end in zeros.
        fs::write(path.join(&names[0]), &bytes[..end.next_multiple_of(64)]).unwrap();
    }

    fn run(&mut self, client: u64, command: &Command<'_>) -> Option<Reply> {
        self.effects.clear();
        self.request += 1;
        let caller = Caller { client: ClientId(client), request: RequestId(self.request) };
        let mut out = Out { journal: &mut self.book, effects: &mut self.effects };
        self.shard.apply(self.now_ms, caller, command, &mut out);
        if self.request.is_multiple_of(3) {
            self.flush();
        }
        let mut replies = self.effects.replies.iter();
        replies.find(|(request, _)| *request == caller.request).map(|(_, reply)| reply.clone())
    }

    /// Moves the clock and does what falls due.
    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.effects.clear();
        let mut out = Out { journal: &mut self.book, effects: &mut self.effects };
        while self.shard.tick(self.now_ms, &mut out) <= self.now_ms {}
        self.flush();
    }

    /// A queue of this shard.
    fn queue(&self, name: &str) -> String {
        let shard = |queue: &str| Slot::of_name(queue).index() % usize::from(SHARDS);
        let mut queues = (0..).map(|number| format!("{name}-{number}"));
        queues.find(|queue| shard(queue) == usize::from(self.number)).unwrap()
    }

    fn push(&mut self, queue: &str, job: NewJob<'_>) -> JobId {
        let reply = self.run(1, &Command::Push { queue, jobs: &[job] });
        let Some(Reply::Pushed(range)) = reply else { panic!("not pushed: {reply:?}") };
        self.effects.pushed[range.start].id
    }

    fn simple(&mut self, queue: &str, data: &[u8]) -> JobId {
        self.push(queue, NewJob { data, ..NewJob::default() })
    }

    /// Pulls one job as `client`, under a lock.
    fn pull(&mut self, client: u64, queue: &str, lock_ttl_ms: u32) -> (JobId, Token) {
        let (count, timeout_ms) = (1, 0);
        let pull = Pull {
            queue,
            count,
            timeout_ms,
            locked: true,
            lock_ttl_ms,
            detach: false,
            owner: None,
            group: None,
        };
        let reply = self.run(client, &Command::Pull(pull));
        let Some(Reply::Pulled(range)) = reply else { panic!("not answered: {reply:?}") };
        let delivery = &self.effects.deliveries[range.start];
        (delivery.job.id, delivery.token.unwrap())
    }

    fn done(&mut self, command: &Command<'_>) {
        let reply = self.run(1, command);
        assert!(
            matches!(reply, Some(Reply::Done | Reply::Count(_) | Reply::Cron(_))),
            "{command:?}: {reply:?}"
        );
    }

    fn ack(&mut self, (job, token): (JobId, Token), result: &[u8]) {
        let ack = Ack { job, token: Some(token), result, remove: false };
        self.done(&Command::Ack { acks: &[ack] });
    }

    fn fail(&mut self, (job, token): (JobId, Token), error: &str, stack: Stack<'_>) {
        let (unrecoverable, remove) = (false, false);
        let fail = Fail { job, token: Some(token), error, stack, unrecoverable, remove };
        self.done(&Command::Fail(fail));
    }

    fn change(&mut self, job: JobId, change: Change<'_>) {
        self.done(&Command::Change { job, change });
    }

    /// Hands over all of the oldest segment, and lets it go.
    fn give_up_the_beginning(&mut self) {
        let Book(log) = &self.book;
        let oldest = log.oldest().unwrap();
        loop {
            let (position, body) = match self.book.0.scan() {
                Scan::Record(position, body) => (position.0, body.to_vec()),
                Scan::Reading => continue,
                Scan::End => break,
                Scan::Failed(error) => panic!("{error}"),
            };
            if self.shard.needs(position, &body).unwrap() {
                self.shard.keep(position, &body, &mut self.book).unwrap();
            }
        }
        assert_eq!(self.shard.needed_in_span_of(oldest.start.0), 0);
        while !self.shard.end_keeping(oldest.end.0, &mut self.book) {}
        self.book.0.drop_oldest();
        while self.book.0.segments().0 > 1 || self.book.0.counters().dropped == 0 {
            self.now_ms += 20;
            self.flush();
        }
    }

    /// Everything that can happen.
    fn live(&mut self, round: &str) {
        self.jobs_that_wait(round);
        self.jobs_that_depend(round);
        self.families(round);
        self.jobs_that_end(round);
        self.jobs_with_workers(round);
        self.jobs_that_are_changed(round);
        self.jobs_that_repeat(round);
        self.jobs_with_rules(round);
        self.settings(round);
        self.rules(round);
        self.groups(round);
        self.traces(round);
        self.schedules(round);
        self.webhooks(round);
    }

    fn jobs_that_wait(&mut self, round: &str) {
        let queue = self.queue(&format!("{round}.waiting"));
        self.simple(&queue, b"\xa5plain");
        let custom_id = format!("{round}-custom-{}", self.number);
        let job = NewJob {
            data: b"\x82\xa1n\x2a\xa1t\xa3all",
            priority: -5,
            max_attempts: 7,
            backoff_ms: 5000,
            ttl_ms: Some(YEAR_MS),
            timeout_ms: Some(3_600_000),
            unique_key: Some("unique"),
            custom_id: Some(&custom_id),
            group_id: Some("group"),
            tags: b"\x92\xa3one\xa3two",
            lifo: true,
            remove_on_complete: true,
            remove_on_fail: true,
            durable: true,
            ..NewJob::default()
        };
        self.push(&queue, job);
        let job = NewJob { data: b"\xc3", delay_ms: DAY_MS, ..NewJob::default() };
        self.push(&queue, job.clone());
        let ttl_ms = Some(YEAR_MS);
        let moved = self.push(&queue, NewJob { ttl_ms, ..job });
        let change = Change::ToWait { token: None };
        self.done(&Command::Change { job: moved, change });
    }

    fn jobs_that_depend(&mut self, round: &str) {
        let queue = self.queue(&format!("{round}.dependent"));
        let (met, open) = (self.simple(&queue, b"\x01"), self.simple(&queue, b"\x02"));
        let mut on_both = Vec::new();
        Unmet::push(&mut on_both, met, "");
        Unmet::push(&mut on_both, open, "by-name");
        let depends_on = [b"\x92\xd9\x24", met.to_string().as_bytes(), b"\xa7by-name"].concat();
        let dependents: Vec<JobId> = [&on_both[..], &on_both[..18]]
            .into_iter()
            .map(|unmet| {
                let unmet = Unmet::new(unmet);
                let job =
                    NewJob { data: b"\x03", depends_on: &depends_on, unmet, ..NewJob::default() };
                self.push(&queue, job)
            })
            .collect();
        let held = self.pull(1, &queue, 60_000);
        assert_eq!(held.0, met);
        self.ack(held, b"\xc0");
        for dependent in dependents {
            let notice = Notice { news: News::Completed, dependent, dependency: met };
            self.run(0, &Command::Notice(notice));
        }
        self.pass(1);
    }

    fn jobs_that_end(&mut self, round: &str) {
        // Two more than are kept.
        let queue = self.queue(&format!("{round}.completed"));
        for number in 0..COMPLETED_MAX as u8 + 2 {
            self.simple(&queue, &[number]);
            self.pass(1000);
            let held = self.pull(1, &queue, 60_000);
            self.ack(held, &[0x92, number, 0xc2]);
        }
        let queue = self.queue(&format!("{round}.failed"));
        let once = NewJob { data: b"\xa4once", max_attempts: 1, ..NewJob::default() };
        for stack in [Stack::default(), Stack { lines: 2, texts: b"\xa4at a\xa4at b" }] {
            self.push(&queue, once.clone());
            let held = self.pull(1, &queue, 60_000);
            self.pass(10);
            self.fail(held, "it broke", stack);
        }
        let revived = self.push(&queue, once);
        let held = self.pull(1, &queue, 60_000);
        self.fail(held, "", Stack::default());
        self.done(&Command::RetryFailed { queue: &queue, job: Some(revived), count: 1 });
        let queue = self.queue(&format!("{round}.retried"));
        self.simple(&queue, b"\xa5again");
        let held = self.pull(1, &queue, 60_000);
        self.fail(held, "not yet", Stack::default());
        let queue = self.queue(&format!("{round}.named"));
        let custom_id = format!("{round}-done-{}", self.number);
        let named = NewJob {
            data: b"\xa5named",
            custom_id: Some(&custom_id),
            remove_on_complete: true,
            ..NewJob::default()
        };
        self.push(&queue, named);
        let held = self.pull(1, &queue, 60_000);
        self.ack(held, b"\xc0");
        let queue = self.queue(&format!("{round}.removed"));
        let removed = self.simple(&queue, b"\x07");
        self.change(removed, Change::Cancel);
    }

    fn jobs_with_workers(&mut self, round: &str) {
        let queue = self.queue(&format!("{round}.stalled"));
        self.simple(&queue, b"\xa6silent");
        self.pull(1, &queue, 1000);
        self.pass(2000);
        let queue = self.queue(&format!("{round}.released"));
        self.simple(&queue, b"\xa4gone");
        self.pull(2, &queue, 60_000);
        self.run(2, &Command::Disconnect);
        let queue = self.queue(&format!("{round}.active"));
        self.simple(&queue, b"\xa6locked");
        self.pull(1, &queue, DAY_MS as u32);
    }

    fn jobs_that_are_changed(&mut self, round: &str) {
        let queue = self.queue(&format!("{round}.changed"));
        let prioritized = self.simple(&queue, b"\x01");
        self.change(prioritized, Change::Prioritize { priority: -9, lifo: None });
        let turned = self.simple(&queue, b"\x01");
        self.change(turned, Change::Prioritize { priority: 2, lifo: Some(true) });
        let delayed = NewJob { data: b"\x02", delay_ms: DAY_MS, ..NewJob::default() };
        let promoted = self.push(&queue, delayed);
        self.change(promoted, Change::Promote);
        let updated = self.simple(&queue, b"\x03");
        let new = NewJob { data: b"\xa3new", ..NewJob::default() };
        self.change(updated, Change::Update { job: &new });
        let discarded = self.simple(&queue, b"\x04");
        self.change(discarded, Change::Discard { token: None });
        let (put_off, _) = self.pull(1, &queue, 60_000);
        self.change(put_off, Change::PutOff { delay_ms: DAY_MS, token: None });
        let (noted, _) = self.pull(1, &queue, DAY_MS as u32);
        self.change(noted, Change::Progress { progress: 12.5, message: None });
        self.change(noted, Change::Progress { progress: 50.0, message: Some(b"half") });
        for (level, message) in
            [(Level::Info, "begun"), (Level::Warn, "slow"), (Level::Error, "wr\u{f6}ng")]
        {
            self.change(noted, Change::Log { level, message });
        }
    }

    fn jobs_that_repeat(&mut self, round: &str) {
        let queue = self.queue(&format!("{round}.repeated"));
        let repeat = Some(Repeat { every_ms: 60_000, limit: Some(9), count: 0 });
        let job = NewJob { data: b"\xa6series", tags: b"\x91\xa1t", repeat, ..NewJob::default() };
        self.push(&queue, job);
        for result in [b"\x01", b"\x02"] {
            let held = self.pull(1, &queue, 60_000);
            self.ack(held, result);
            self.pass(60_000);
        }
    }

    fn jobs_with_rules(&mut self, round: &str) {
        let queue = self.queue(&format!("{round}.ruled"));
        let named = NewJob { data: b"\x01", name: Some("named"), ..NewJob::default() };
        self.push(&queue, named.clone());
        let dedup = Dedup { ttl_ms: YEAR_MS, extend: true, replace: false, until_ms: 0 };
        let all = Extras {
            backoff: Some(Growth::Fixed),
            backoff_max_ms: Some(9000),
            stall_timeout_ms: Some(4000),
            keep_logs: Some(2),
            size_limit: Some(100),
            stack_lines_max: Some(3),
            made_at_ms: Some(START_MS - DAY_MS),
            dedup: Some(dedup),
        };
        let replacing = Dedup { replace: true, extend: false, ..dedup };
        let grows = Extras {
            backoff: Some(Growth::Exponential),
            dedup: Some(replacing),
            ..Extras::default()
        };
        let keys = [("extended", all), ("replaced", grows)];
        for (key, extras) in keys {
            let extras = Some(Box::new(extras));
            let job = NewJob { data: b"\x02", unique_key: Some(key), extras, ..named.clone() };
            for _ in 0..2 {
                self.pass(1000);
                self.push(&queue, job.clone());
            }
        }
        let keyed = NewJob { unique_key: Some("freed"), ..named };
        self.push(&queue, keyed);
        self.done(&Command::FreeKey { queue: &queue, key: "freed" });
        let queue = self.queue(&format!("{round}.handled"));
        let logged = self.simple(&queue, b"\x03");
        for message in ["one", "two", "three"] {
            self.change(logged, Change::Log { level: Level::Info, message });
        }
        self.change(logged, Change::CutLog(1));
        let (job, token) = self.pull(1, &queue, 60_000);
        let (token, remove) = (Some(token), true);
        let (error, stack) = ("it goes", Stack::default());
        let fail = Fail { job, token, error, stack, unrecoverable: false, remove };
        self.done(&Command::Fail(fail));
    }

    fn settings(&mut self, round: &str) {
        let queue = self.queue(&format!("{round}.settings"));
        self.simple(&queue, b"\x01");
        for paused in [true, false, true] {
            self.done(&Command::Pause { queue: &queue, paused });
        }
        let rate = Limit::Rate(Some(PerSpan::per_second(7)));
        for limit in [rate, Limit::Active(None), Limit::Active(Some(5))] {
            self.done(&Command::Limit { queue: &queue, limit });
        }
        for (name, until_ms) in [("spanned", 0), ("limited-for-long", START_MS + YEAR_MS)] {
            let queue = self.queue(&format!("{round}.{name}"));
            self.simple(&queue, b"\x01");
            let limit = Limit::Rate(Some(PerSpan { jobs: 9, span_ms: 60_000, until_ms }));
            self.done(&Command::Limit { queue: &queue, limit });
        }
    }

    /// Rules of queues, and what they lead to.
    fn rules(&mut self, round: &str) {
        let queue = self.queue(&format!("{round}.letters"));
        let dlq = DlqPatch {
            auto_retry: Some(true),
            retry_interval_ms: Some(1000),
            retries_max: Some(1),
            age_max_ms: Some(Some(50 * YEAR_MS)),
            entries_max: Some(Some(3)),
        };
        self.done(&Command::Rule { queue: &queue, patch: RulePatch::Dlq(dlq) });
        let stall =
            StallPatch { interval_ms: Some(20_000), stalls_max: Some(7), ..StallPatch::default() };
        self.done(&Command::Rule { queue: &queue, patch: RulePatch::Stall(stall) });
        let job = NewJob { data: b"\xa4stub", max_attempts: 1, ..NewJob::default() };
        self.push(&queue, job);
        let held = self.pull(1, &queue, 60_000);
        self.fail(held, "once", Stack::default());
        self.pass(1000);
        let held = self.pull(1, &queue, 60_000);
        self.fail(held, "and again", Stack { lines: 1, texts: b"\xa2at" });
        let one = self.queue(&format!("{round}.one-rule"));
        let stall = StallPatch { enabled: Some(false), ..StallPatch::default() };
        self.done(&Command::Rule { queue: &one, patch: RulePatch::Stall(stall) });
    }
}
