//! A clock that leaps: it is set forward, or the process did not run for a while. The fear: every lock expires at once and
//! its job runs twice, and every wait ends, although no time has passed for those who hold and wait.

use crate::support::{Bed, START_MS, locked};
use corq_shards::command::{Beat, Command, Pull, Token};
use corq_shards::dead_letter::policy::{RulePatch, StallPatch};
use corq_shards::effect::Reply;
use corq_shards::explain::Reason;
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;

const MINUTE_MS: u64 = 60_000;

impl Bed {
    /// The clock leaps, and what is due by it happens.
    fn leap(&mut self, by_ms: u64) -> usize {
        self.shard.put_off(by_ms);
        self.pass(by_ms).len()
    }

    fn pull_one(&mut self, queue: &str) -> (JobId, Option<Token>) {
        let (id, token) = self.pull(1, queue, 1)[0];
        (id, Some(token))
    }

    fn renew(&mut self, job: JobId, token: Option<Token>, ttl_ms: Option<u32>) -> bool {
        let reply = self.ask(1, &Command::Heartbeat(Beat { job, token, ttl_ms }));
        matches!(reply, Some(Reply::Done))
    }
}

#[test]
fn a_clock_that_leaps_ends_no_lock_no_attempt_and_no_wait() {
    let mut bed = Bed::new();
    let owned = bed.data("owned", b"1");
    let (_, token) = bed.pull_one("owned");
    let unowned = bed.data("unowned", b"1");
    bed.run(1, &Command::Pull(Pull { locked: false, ..locked("unowned") }));
    let timed = bed.push("timed", NewJob { timeout_ms: Some(20_000), ..NewJob::default() });
    bed.pull_one("timed");
    bed.run(2, &Command::Pull(Pull { timeout_ms: 30_000, ..locked("empty") }));
    bed.run(2, &Command::AwaitEnd { job: owned, timeout_ms: 30_000 });
    bed.pass(10_000);

    assert_eq!(bed.leap(MINUTE_MS), 0, "no wait has ended");
    for job in [owned, unowned, timed] {
        assert_eq!(bed.state(job), Some(State::Active));
    }
    // They last as long as they were to, from then on.
    bed.pass(9999);
    assert_eq!(bed.state(timed), Some(State::Active));
    assert_eq!(bed.leap(MINUTE_MS), 0);
    assert_eq!(bed.state(timed), Some(State::Active), "whatever the number of leaps");
    bed.pass(1);
    assert_ne!(bed.state(timed), Some(State::Active), "its time is over");
    assert_eq!(bed.pass(9999).len(), 0);
    for job in [owned, unowned] {
        assert_eq!(bed.state(job), Some(State::Active));
    }
    assert_eq!(bed.pass(1).len(), 2, "both waits end");
    for job in [owned, unowned] {
        assert_eq!(bed.state(job), Some(State::Waiting), "it has stalled");
    }
    assert!(bed.ack(owned, token).is_err());
    bed.shard.audit().unwrap();
}

#[test]
fn a_clock_that_leaps_brings_what_is_due_by_the_wall() {
    let mut bed = Bed::new();
    let delayed = bed.push("q", NewJob { delay_ms: MINUTE_MS, ..NewJob::default() });
    let mortal = bed.push("other", NewJob { ttl_ms: Some(MINUTE_MS), ..NewJob::default() });
    bed.leap(MINUTE_MS);
    assert_eq!(bed.state(delayed), Some(State::Waiting));
    assert_eq!(bed.state(mortal), None);
    // A pull that waits gets what the leap has made due.
    let later = bed.push("q", NewJob { delay_ms: MINUTE_MS, ..NewJob::default() });
    bed.pull_one("q");
    bed.run(2, &Command::Pull(Pull { timeout_ms: 1000, ..locked("q") }));
    assert_eq!(bed.leap(MINUTE_MS), 1);
    assert_eq!(bed.state(later), Some(State::Active));
}

#[test]
fn a_lock_that_is_renewed_after_a_leap_lasts_as_long_as_any() {
    let mut bed = Bed::new();
    let job = bed.data("q", b"1");
    let (_, token) = bed.pull_one("q");
    bed.leap(MINUTE_MS);
    assert!(bed.renew(job, token, None));
    bed.pass(29_999);
    assert!(bed.renew(job, token, Some(1000)));
    bed.leap(MINUTE_MS);
    bed.pass(999);
    assert_eq!(bed.state(job), Some(State::Active));
    bed.pass(1);
    assert_eq!(bed.state(job), Some(State::Waiting));
    // Of a lock that begins after leaps they are no part.
    let (_, token) = bed.pull_one("q");
    bed.pass(29_999);
    assert!(bed.ack(job, token).is_ok());
}

#[test]
fn a_rule_for_silent_workers_counts_no_leap() {
    let mut bed = Bed::new();
    let patch =
        StallPatch { interval_ms: Some(1000), grace_ms: Some(5000), ..StallPatch::default() };
    bed.run(1, &Command::Rule { queue: "q", patch: RulePatch::Stall(patch) });
    let job = bed.data("q", b"1");
    let (_, token) = bed.pull_one("q");
    bed.pass(2000);
    bed.leap(MINUTE_MS);
    bed.pass(2999);
    assert_eq!(bed.state(job), Some(State::Active), "it has its grace");
    assert!(bed.renew(job, token, None));
    bed.leap(MINUTE_MS);
    bed.pass(999);
    assert_eq!(bed.state(job), Some(State::Active), "it was heard a second ago");
    bed.pass(1);
    assert_eq!(bed.state(job), Some(State::Waiting));
}

#[test]
fn a_job_says_until_when_it_is_held_by_the_wall() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { timeout_ms: Some(90_000), ..NewJob::default() });
    bed.pull_one("q");
    bed.leap(MINUTE_MS);
    let told = bed.shard.explain(bed.now_ms, bed.shard.find(job).unwrap());
    let expected = Reason::Leased {
        owner: None,
        locked: true,
        since_ms: START_MS,
        until_ms: Some(START_MS + MINUTE_MS + 30_000),
        timeout_at_ms: Some(START_MS + MINUTE_MS + 90_000),
    };
    assert_eq!(told.reasons, [expected]);
}

#[test]
fn a_restart_after_leaps_gives_a_lock_its_whole_life_as_any_restart_does() {
    let mut bed = Bed::new();
    let job = bed.push("q", NewJob { timeout_ms: Some(20_000), ..NewJob::default() });
    let (_, token) = bed.pull_one("q");
    bed.leap(MINUTE_MS);
    bed.pass(19_000);
    bed.shard = bed.replayed();
    bed.shard.restart(bed.now_ms);
    bed.pass(19_999);
    assert!(bed.renew(job, token, None));
    bed.pass(1);
    assert_ne!(bed.state(job), Some(State::Active), "the attempt has taken too long");
}
