//! Lives of jobs on a full log: real shards, logs and books, and reclaiming as the server does it, without
//! its connections. The fear: an end that is refused, or a walk that finds no room.
#![allow(clippy::unwrap_used)]

use super::journal::LogJournal;
use corq_io::log::{Log, LogConfig, Mode, Scan};
use corq_io::log_ring::Store;
use corq_shards::collections::hash_key::HashKey;
use corq_shards::command::{Ack, Clean, ClientId, Command, Fail, Pull, RequestId, Token};
use corq_shards::effect::{Effects, Reply};
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::lease::token_stream::SecretKey;
use corq_shards::log_record::Journal;
use corq_shards::{Caller, Config, Out, Shard};

const SEGMENT_BYTES: u64 = 4 << 20;
const QUEUES: [&str; 3] = ["a", "b", "c"];

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }
}

struct Bed {
    mode: Mode,
    /// Files that there may be.
    segments: u64,
    shard: Shard,
    journal: LogJournal,
    effects: Effects,
    now_ms: u64,
    request: u64,
    walked: u64,
}

fn fresh_shard() -> Shard {
    Shard::new(Config {
        completed_max: 50_000,
        unsaid_completed_max: 50_000,
        completed_retention_ms: 600_000_000,
        span_bits: SEGMENT_BYTES.trailing_zeros(),
        bulk_slice: 500,
        interval_min_ms: 1,
        scheduled_per_second: u32::MAX,
        expired_kept_ms: 0,
        remembered_bytes_max: SEGMENT_BYTES,
        seed: 7,
        hash_key: HashKey::new(7),
        token_key: SecretKey::of_seed(7),
    })
}

fn open(mode: Mode, segments: u64, disk: Store) -> (Shard, LogJournal) {
    let mut shard = fresh_shard();
    let config = LogConfig {
        segment_bytes: SEGMENT_BYTES,
        record_bytes_max: 3 << 20,
        block_bytes: 256 << 10,
        cache_bytes: 2 << 20,
        bytes_max: segments * SEGMENT_BYTES,
        reserve_bytes: 2 * SEGMENT_BYTES,
        ..LogConfig::new(0, mode)
    };
    let replay = |position: corq_io::log::Position, record: &[u8]| shard.replay(position.0, record);
    let (log, _) = Log::open(&config, disk, replay).unwrap();
    (shard, LogJournal::new(log))
}

impl Bed {
    fn new(mode: Mode, segments: u64) -> Self {
        let disk = Store::Memory(corq_io::log::MemoryDisk::new());
        let (shard, journal) = open(mode, segments, disk);
        Self::of(mode, segments, shard, journal, 1_700_000_000_000)
    }

    fn of(mode: Mode, segments: u64, mut shard: Shard, journal: LogJournal, now_ms: u64) -> Self {
        shard.restart(now_ms);
        let effects = Effects::default();
        Self { mode, segments, shard, journal, effects, now_ms, request: 0, walked: 0 }
    }

    /// The process is killed after what it has written.
    fn kill(self) -> Self {
        let facts = self.shard.facts();
        let (shard, journal) = open(self.mode, self.segments, self.journal.log.into_disk());
        assert!(facts == shard.facts(), "what was written is there");
        Self::of(self.mode, self.segments, shard, journal, self.now_ms)
    }

    /// The end of a turn: what was appended is written, and the walk goes on as it does when pressed.
    fn end_turn(&mut self) {
        self.now_ms += 1;
        let space_forecast = self.shard.space_forecast();
        self.journal.note_needs(&space_forecast);
        if self.shard.has_history() && self.journal.is_crowded(&space_forecast, false) {
            let mut out = Out { journal: &mut self.journal, effects: &mut self.effects };
            self.shard.forget_history(&mut out);
        }
        self.journal.log.flush(self.now_ms).unwrap();
        assert_eq!(
            self.journal.log.released(),
            self.journal.log.head(),
            "what was appended found its room"
        );
    }

    /// Waits as every command does while there is too little space.
    fn wait(&mut self) {
        let mut turns = 0;
        while self.journal.is_stalled(&self.shard) {
            self.walk();
            self.end_turn();
            turns += 1;
            assert!(turns < 20_000, "the walk brings nothing back");
        }
    }

    /// A slice of reclaiming.
    fn walk(&mut self) {
        let Self { shard, journal, .. } = self;
        let mut left = 128 << 10;
        let Some(oldest) = journal.log.oldest() else { return };
        let needed = shard.needed_in_span_of(oldest.start.0);
        let room = journal.room().of_segment(needed, &shard.space_forecast());
        assert!(needed == 0 || journal.log.has_room(room), "the walk has the room it needs");
        while left > 0 {
            match journal.log.scan() {
                Scan::Record(position, body) => {
                    let body = body.to_vec();
                    left -= (body.len() as i64 + 8).min(left);
                    if shard.needs(position.0, &body).unwrap() {
                        shard.keep(position.0, &body, journal).unwrap();
                    }
                }
                Scan::End => {
                    if shard.end_keeping(oldest.end.0, journal) {
                        assert_eq!(shard.needed_in_span_of(oldest.start.0), 0);
                        journal.log.drop_oldest();
                        self.walked += 1;
                    }
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn run(&mut self, command: &Command<'_>) -> Reply {
        self.wait();
        self.effects.clear();
        self.request += 1;
        let caller = Caller { client: ClientId(1), request: RequestId(self.request) };
        let mut out = Out { journal: &mut self.journal, effects: &mut self.effects };
        self.shard.apply(self.now_ms, caller, command, &mut out);
        self.end_turn();
        let own = self.effects.replies.iter().find(|(request, _)| *request == caller.request);
        own.map_or(Reply::Dropped, |(_, reply)| reply.clone())
    }

    /// Runs a command on many jobs to its end.
    fn run_whole(&mut self, command: &Command<'_>) {
        self.run(command);
        let mut more = true;
        while more {
            self.wait();
            more = self.tick() <= self.now_ms;
            self.end_turn();
        }
    }

    fn tick(&mut self) -> u64 {
        let mut out = Out { journal: &mut self.journal, effects: &mut self.effects };
        self.shard.tick(self.now_ms, &mut out)
    }

    /// Turns in which nothing comes: after them a job of a megabyte is taken.
    fn has_room_again(&mut self) {
        for _ in 0..2000 {
            self.tick();
            self.walk();
            self.end_turn();
        }
        let space_forecast = self.shard.space_forecast();
        assert!(self.journal.can_append_new(1 << 20, || space_forecast), "there is room again");
    }

    /// Jobs of up to `bytes` until none is taken.
    fn fill(&mut self, bytes: u64, max_attempts: u16, dice: &mut Dice) -> u64 {
        let data = vec![0xc0; bytes as usize];
        let mut jobs = 0;
        loop {
            let count = (100_000 / bytes).clamp(1, 200);
            let batch: Vec<NewJob<'_>> = (0..count)
                .map(|_| NewJob {
                    data: &data[..=dice.below(bytes) as usize],
                    max_attempts,
                    backoff_ms: 0,
                    ..NewJob::default()
                })
                .collect();
            let queue = QUEUES[dice.below(3) as usize];
            match self.run(&Command::Push { queue, jobs: &batch }) {
                Reply::Pushed(_) => jobs += count,
                Reply::Refused { .. } => return jobs,
                other => panic!("{other:?}"),
            }
        }
    }

    fn pull(&mut self, queue: &str, count: u32) -> Vec<(JobId, Option<Token>)> {
        let pull = Pull {
            queue,
            count,
            timeout_ms: 0,
            locked: true,
            lock_ttl_ms: 3_600_000,
            detach: false,
            owner: None,
            group: None,
        };
        let Reply::Pulled(range) = self.run(&Command::Pull(pull)) else { panic!("a pull") };
        let deliveries = self.effects.deliveries[range].iter();
        deliveries.map(|one| (one.job.id, one.token)).collect()
    }

    /// Takes some jobs and ends them, or not; returns how many were completed.
    fn end_some(&mut self, dice: &mut Dice, failures: u64) -> u64 {
        let queue = QUEUES[dice.below(3) as usize];
        let held = self.pull(queue, 1 + dice.below(300) as u32);
        let error = "e".repeat(3000);
        let mut acks = Vec::new();
        for &(job, token) in &held {
            if dice.below(100) < failures {
                let unrecoverable = dice.below(2) == 0;
                let fail = Fail { job, token, error: &error, unrecoverable, ..Fail::default() };
                assert_eq!(self.run(&Command::Fail(fail)), Reply::Done);
            } else if dice.below(20) == 0 {
                let change = Change::PutOff { delay_ms: 0, token: None };
                assert_eq!(self.run(&Command::Change { job, change }), Reply::Done);
            } else {
                acks.push(Ack {
                    job,
                    token,
                    remove: false,
                    result: &[0xc0; 3][..dice.below(4) as usize],
                });
            }
        }
        assert_eq!(self.run(&Command::Ack { acks: &acks }), Reply::Done);
        acks.len() as u64
    }

    fn jobs(&self) -> u64 {
        let census = self.shard.census();
        census.waiting + census.active + census.delayed
    }
}

fn live(mode: Mode, bytes: u64, failures: u64, seed: u64) {
    let mut dice = Dice(seed);
    let mut bed = Bed::new(mode, 5);
    let mut came = bed.fill(bytes, 3, &mut dice);
    let mut went = 0;
    for round in 0_u64.. {
        went += bed.end_some(&mut dice, failures);
        if round % 199 == 50 {
            bed = bed.kill();
        }
        if round % 41 == 7 && round < 130 {
            // As much as there is room for comes again.
            came += bed.fill(bytes, 3, &mut dice);
        }
        if round == 300 {
            let before = bed.jobs();
            bed.run_whole(&Command::Drain { queue: "a" });
            went += before - bed.jobs();
        }
        if bed.jobs() == 0 {
            break;
        }
        assert!(round < 50_000, "{} jobs are left", bed.jobs());
    }
    assert!(went == came || failures > 0, "{went} of {came} jobs were there");
    bed.shard.audit().unwrap();
    for queue in QUEUES {
        bed.run(&Command::PurgeFailed { queue });
    }
    bed.has_room_again();
    assert!(bed.walked > 0);
}

#[test]
fn whatever_fills_the_log_is_ended_and_nothing_of_it_refused() {
    for (seed, (bytes, failures)) in
        [(1, 0), (1, 100), (60, 50), (3000, 30), (200_000, 20)].into_iter().enumerate()
    {
        live(Mode::Written, bytes, failures, seed as u64 + 1);
    }
}

#[test]
fn the_same_where_every_block_is_a_page() {
    for (seed, (bytes, failures)) in [(60, 50), (3000, 10)].into_iter().enumerate() {
        live(Mode::Synced, bytes, failures, seed as u64 + 20);
    }
}

/// All jobs are held under locks, so that each gets longer by it: the walk through a log in which nothing is
/// gained before its end has room for all of that.
#[test]
fn a_walk_through_jobs_that_all_get_longer_has_room_to_its_end() {
    let mut dice = Dice(9);
    let mut bed = Bed::new(Mode::Written, 16);
    let jobs = bed.fill(1, 3, &mut dice);
    let mut held = Vec::new();
    for queue in QUEUES {
        while let some @ [_, ..] = &bed.pull(queue, 1000)[..] {
            held.extend_from_slice(some);
        }
    }
    assert_eq!(held.len() as u64, jobs);
    let error = "e".repeat(20_000);
    let segments = bed.journal.log.segments().0;
    let mut failures = held.into_iter();
    while bed.walked < segments {
        let (job, token) = failures.next().unwrap();
        let fail = Fail { job, token, error: &error, ..Fail::default() };
        assert_eq!(bed.run(&Command::Fail(fail)), Reply::Done);
    }
    bed.shard.audit().unwrap();
}

/// Guards that commands which end many jobs at once have room, whichever of them comes first.
#[test]
fn a_log_full_of_the_smallest_jobs_is_emptied_queue_by_queue() {
    for first in 0..3 {
        let mut bed = Bed::new(Mode::Written, 6);
        let jobs = bed.fill(1, 3, &mut Dice(30));
        assert!(jobs > 30_000, "{jobs} jobs fit");
        for (n, queue) in QUEUES.into_iter().enumerate() {
            let states = &[State::Waiting];
            bed.run_whole(&match (first + n) % 3 {
                0 => Command::Drain { queue },
                1 => Command::Obliterate { queue },
                _ => Command::Clean(Clean { queue, grace_ms: 0, states, limit: u64::MAX }),
            });
            let left = bed.jobs();
            assert!((left == 0) == (n == 2), "{left} jobs are left after {queue}");
            bed = bed.kill();
            assert_eq!(bed.jobs(), left, "{queue} came back");
        }
        bed.shard.audit().unwrap();
        bed.has_room_again();
    }
}

/// Retries without end complete nothing and write all the time: the log is reclaimed as fast as they do.
#[test]
fn attempts_without_end_find_room_without_end() {
    let mut dice = Dice(40);
    let mut bed = Bed::new(Mode::Written, 6);
    let jobs = bed.fill(5000, 1000, &mut dice);
    let error = "e".repeat(2500);
    while bed.walked < 24 {
        for (job, token) in bed.pull(QUEUES[dice.below(3) as usize], 200) {
            let fail = Fail { job, token, error: &error, ..Fail::default() };
            assert_eq!(bed.run(&Command::Fail(fail)), Reply::Done);
        }
    }
    assert_eq!(bed.jobs(), jobs);
    bed.shard.audit().unwrap();
    for queue in QUEUES {
        bed.run_whole(&Command::Drain { queue });
    }
    bed.has_room_again();
}

/// Guards that a job which fills the smallest log there may be leaves room for the next one: completed jobs give way,
/// and a job that was large costs nothing once it is gone.
#[test]
fn the_smallest_log_takes_one_of_the_largest_jobs_after_another() {
    // The part of a segment that 10 MB are of the smallest that a server may have.
    let data = vec![0xc0; 2_500_000];
    let mut bed = Bed::new(Mode::Written, 5);
    for round in 0..16 {
        let job = NewJob { data: &data, ..NewJob::default() };
        let push = Command::Push { queue: "a", jobs: std::slice::from_ref(&job) };
        let mut tries = 0;
        while !matches!(bed.run(&push), Reply::Pushed(_)) {
            tries += 1;
            assert!(tries < 100, "round {round}: the job finds no room");
            bed.tick();
            bed.walk();
            bed.end_turn();
        }
        if round % 8 == 4 {
            bed = bed.kill();
        }
        let (job, token) = bed.pull("a", 1)[0];
        if round % 2 == 0 {
            let acks = [Ack { job, token, remove: false, result: &[0xc0; 4000] }];
            assert_eq!(bed.run(&Command::Ack { acks: &acks }), Reply::Done);
        } else {
            let error = "e".repeat(4000);
            let fail = Fail { job, token, error: &error, ..Fail::default() };
            assert_eq!(bed.run(&Command::Fail(fail)), Reply::Done);
            let change = Change::Cancel;
            assert_eq!(bed.run(&Command::Change { job, change }), Reply::Done);
        }
    }
    bed.has_room_again();
}
