//! A shard with a journal in memory and a clock that stands still until it is moved.
#![allow(dead_code, clippy::unwrap_used, clippy::missing_panics_doc, missing_docs)]

pub mod family;
pub mod life;

use corq_shards::collections::hash_key::HashKey;
use corq_shards::command::{Ack, ClientId, Command, Fail, Pull, RequestId, Token};
use corq_shards::compaction::space_forecast::SpaceForecast;
use corq_shards::effect::{Delivery, Effects, Refusal, Reply};
use corq_shards::event::Event;
use corq_shards::family::Report;
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::lease::token_stream::SecretKey;
use corq_shards::log_record::location::LogRef;
use corq_shards::log_record::{Journal, Record};
use corq_shards::queue::listing::{Listing, States};
use corq_shards::{Caller, Config, Out, SLICE, Shard};
use std::collections::VecDeque;

pub const START_MS: u64 = 1_700_000_000_000;

/// Records given up at a time, as a power of two.
pub const SPAN_BITS: u32 = 4;

#[derive(Clone, Default)]
pub struct Memory {
    pub records: Vec<Vec<u8>>,
    pub syncs: usize,
    /// Records that have been given up; they are the first ones.
    pub gone: usize,
    /// Records that have been handed over to be kept.
    pub kept: usize,
    /// How many bytes were asked for last, for what comes.
    pub asked: u64,
    /// Room is refused to what comes, and to what ends.
    pub full: (bool, bool),
    /// Room is refused to what lasts and is no job.
    pub no_asides: bool,
}

impl Journal for Memory {
    fn append(&mut self, record: &Record<'_>) -> LogRef {
        let mut bytes = vec![0; record.encoded_len()];
        record.encode(&mut bytes);
        self.records.push(bytes);
        LogRef {
            position: self.records.len() as u64 - 1,
            record_bytes: record.encoded_len() as u32,
            payload_bytes: record.payload_len() as u32,
        }
    }
    fn require_sync(&mut self) {
        self.syncs += 1;
    }
    fn can_append_new(&mut self, bytes: u64, _forecast: impl Fn() -> SpaceForecast) -> bool {
        self.asked = bytes;
        !self.full.0 || bytes == 0
    }
    fn can_append_text(&mut self, _bytes: u64, _forecast: impl Fn() -> SpaceForecast) -> bool {
        !self.full.1 && !self.no_asides
    }
    fn can_append_spare(&mut self, _bytes: u64, _forecast: impl Fn() -> SpaceForecast) -> bool {
        !self.full.0 && !self.full.1 && !self.no_asides
    }
    fn can_append_completion(
        &mut self,
        _bytes: u64,
        _forecast: impl Fn() -> SpaceForecast,
    ) -> bool {
        !self.full.1
    }
}

pub fn config(seed: u64) -> Config {
    Config {
        completed_max: 20,
        unsaid_completed_max: 20,
        completed_retention_ms: 600_000,
        span_bits: SPAN_BITS,
        bulk_slice: SLICE,
        interval_min_ms: 1,
        scheduled_per_second: u32::MAX,
        expired_kept_ms: 0,
        remembered_bytes_max: u64::MAX,
        seed,
        hash_key: HashKey::new(u128::from(seed) << 64 | 0x007a_b1e5),
        token_key: SecretKey::of_seed(seed),
    }
}

pub struct Bed {
    pub config: Config,
    pub shard: Shard,
    pub journal: Memory,
    pub effects: Effects,
    /// All events there have been.
    pub events: Vec<Event>,
    pub now_ms: u64,
    pub client: u64,
    pub request: u64,
    /// Queues that the test uses.
    pub queues: Vec<&'static str>,
    /// Reports of ended children that are still to be delivered; `flows` holds those under way.
    pub reports: Vec<Report>,
    pub flows: Vec<JobId>,
}

impl Bed {
    pub fn new() -> Self {
        Self::with(config(1))
    }

    pub fn with(config: Config) -> Self {
        let mut shard = Shard::new(config);
        shard.restart(START_MS);
        Self {
            config,
            shard,
            journal: Memory::default(),
            effects: Effects::default(),
            events: Vec::new(),
            now_ms: START_MS,
            client: 1,
            request: 0,
            queues: vec!["a", "b", "c"],
            reports: Vec::new(),
            flows: Vec::new(),
        }
    }

    /// Runs a command as `client` and returns the replies it brought about.
    pub fn run(&mut self, client: u64, command: &Command<'_>) -> Vec<(RequestId, Reply)> {
        self.effects.clear();
        self.request += 1;
        let caller = Caller { client: ClientId(client), request: RequestId(self.request) };
        let mut out = Out { journal: &mut self.journal, effects: &mut self.effects };
        self.shard.apply(self.now_ms, caller, command, &mut out);
        self.events.extend_from_slice(&self.effects.events);
        self.effects.replies.clone()
    }

    /// The reply to the command itself.
    pub fn ask(&mut self, client: u64, command: &Command<'_>) -> Option<Reply> {
        let replies = self.run(client, command);
        let own = RequestId(self.request);
        replies.into_iter().find(|(request, _)| *request == own).map(|(_, reply)| reply)
    }

    /// Moves the clock and does what falls due; returns the replies of all ticks.
    pub fn pass(&mut self, ms: u64) -> Vec<(RequestId, Reply)> {
        self.now_ms += ms;
        self.effects.clear();
        let mut out = Out { journal: &mut self.journal, effects: &mut self.effects };
        while self.shard.tick(self.now_ms, &mut out) <= self.now_ms {}
        self.events.extend_from_slice(&self.effects.events);
        self.effects.replies.clone()
    }

    /// Does a step of what falls due now.
    pub fn tick(&mut self) {
        self.effects.clear();
        let mut out = Out { journal: &mut self.journal, effects: &mut self.effects };
        self.shard.tick(self.now_ms, &mut out);
    }

    /// Carries notices between jobs, all of which are this shard's, until there are none.
    pub fn carry_notices(&mut self) {
        let mut notices: VecDeque<_> = self.effects.notices.drain(..).collect();
        loop {
            while let Some(notice) = notices.pop_front() {
                self.run(0, &Command::Notice(notice));
                notices.extend(self.effects.notices.drain(..));
            }
            self.pass(0);
            notices.extend(self.effects.notices.drain(..));
            if notices.is_empty() {
                return;
            }
        }
    }

    /// Hands one of the oldest records to be kept.
    pub fn keep_one(&mut self, position: usize) {
        let record = self.journal.records[position].clone();
        let needed = self.shard.needs(position as u64, &record).unwrap();
        let before = self.journal.records.len();
        self.shard.keep(position as u64, &record, &mut self.journal).unwrap();
        assert_eq!(needed, self.journal.records.len() > before, "what is not needed is not kept");
    }

    /// Goes on giving up the oldest span of records, if it is complete: hands over at most `steps` of
    /// them, and lets them go after the last.
    pub fn reclaim(&mut self, steps: usize) {
        let end = self.journal.gone + (1 << SPAN_BITS);
        if end > self.journal.records.len() {
            return;
        }
        for _ in 0..steps.min(end - self.journal.kept) {
            self.keep_one(self.journal.kept);
            self.journal.kept += 1;
        }
        if self.journal.kept == end {
            while !self.shard.end_keeping(end as u64, &mut self.journal) {}
            let last = end as u64 - 1;
            assert_eq!(self.shard.needed_in_span_of(last), 0, "something points to what goes");
            self.journal.gone = end;
        }
    }

    pub fn push(&mut self, queue: &str, job: NewJob<'_>) -> JobId {
        let reply = self.ask(1, &Command::Push { queue, jobs: &[job] });
        let Some(Reply::Pushed(range)) = reply else { panic!("not pushed: {reply:?}") };
        self.effects.pushed[range.start].id
    }

    /// Pushes a batch; the job at each of its places.
    pub fn push_all(&mut self, queue: &str, jobs: &[NewJob<'_>]) -> Vec<JobId> {
        let reply = self.ask(1, &Command::Push { queue, jobs });
        let Some(Reply::Pushed(range)) = reply else { panic!("not pushed: {reply:?}") };
        self.effects.pushed[range].iter().map(|one| one.id).collect()
    }

    pub fn data(&mut self, queue: &str, data: &[u8]) -> JobId {
        self.push(queue, NewJob { data, ..NewJob::default() })
    }

    /// Pulls up to `count` at once, locked for 30 s; ids and tokens.
    pub fn pull(&mut self, client: u64, queue: &str, count: u32) -> Vec<(JobId, Token)> {
        let pull = Pull { count, ..locked(queue) };
        let reply = self.ask(client, &Command::Pull(pull));
        let Some(Reply::Pulled(range)) = reply else { panic!("not answered: {reply:?}") };
        self.effects.deliveries[range]
            .iter()
            .map(|one| (self.id(one), one.token.unwrap()))
            .collect()
    }

    pub fn id(&self, delivery: &Delivery) -> JobId {
        self.shard.look(delivery.job).expect("a job that is delivered is there").job.id
    }

    pub fn ack(&mut self, job: JobId, token: Option<Token>) -> Result<(), Refusal> {
        let acks = [Ack { job, token, result: &[0xc0], remove: false }];
        outcome(self.ask(1, &Command::Ack { acks: &acks }))
    }

    pub fn fail(&mut self, job: JobId, token: Option<Token>) -> Result<(), Refusal> {
        outcome(self.ask(1, &Command::Fail(Fail { job, token, error: "boom", ..Fail::default() })))
    }

    /// Every job of the queues that tests use, oldest first within each.
    pub fn known(&mut self) -> impl Iterator<Item = JobId> {
        let queues: Vec<&str> = self.queues.iter().copied().chain(["q"]).collect();
        queues.into_iter().flat_map(|queue| {
            let mut listing = Listing::new(queue, States::all(), 0, usize::MAX);
            while !self.shard.look_for(&mut listing) {}
            listing.found()
        })
    }

    pub fn state(&self, job: JobId) -> Option<State> {
        self.shard.find(job).map(|index| self.shard.view(index).job.state)
    }

    /// A shard that has replayed everything written so far.
    pub fn replayed(&self) -> Shard {
        self.replayed_with(self.config)
    }

    /// A shard with other settings that has replayed everything written so far.
    pub fn replayed_with(&self, config: Config) -> Shard {
        let mut shard = Shard::new(Config { seed: 2, ..config });
        for (position, record) in self.journal.records.iter().enumerate().skip(self.journal.gone) {
            shard.replay(position as u64, record).unwrap();
        }
        shard
    }
}

pub fn outcome(reply: Option<Reply>) -> Result<(), Refusal> {
    match reply {
        Some(Reply::Done) => Ok(()),
        Some(Reply::Refused { refusal, .. }) => Err(refusal),
        other => panic!("unexpected {other:?}"),
    }
}

pub fn locked(queue: &str) -> Pull<'_> {
    Pull {
        queue,
        count: 1,
        timeout_ms: 0,
        locked: true,
        lock_ttl_ms: 30_000,
        detach: false,
        owner: None,
        group: None,
    }
}
