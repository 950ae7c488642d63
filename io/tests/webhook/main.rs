//! Deliveries against receivers on loopback. The fears: an event that is lost, comes out of order or
//! without its signature; a receiver that holds up others; a way into the network behind the server.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/receiver.rs"]
#[allow(dead_code)]
mod receiver;

mod names;

use corq_io::webhook::{Config, Feed, Hook, Notice, Pool, Report, Target};
use receiver::{Habit, Receiver};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_mins(5);

/// The time of a post that must not run out.
const LONG: Duration = Duration::from_mins(2);

fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        if let Some(found) = probe() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("waited in vain: {what}");
}

/// A pool and what it reported.
struct Bed {
    pool: Pool,
    feed: Feed,
    reports: Arc<Mutex<Vec<String>>>,
    next_hook: AtomicUsize,
    next_event: AtomicUsize,
}

fn config() -> Config {
    Config {
        attempts_max: 3,
        retry_delay: Duration::from_millis(5),
        timeout: LONG,
        threads_max: 4,
        posts_max: 4,
        backlog_max: 1000,
        backlog_bytes_max: 1 << 20,
        allow_private: true,
        lookup: None,
        report: Arc::new(|_| {}),
    }
}

impl Bed {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&reports);
        let mut config = config();
        config.report = Arc::new(move |report: &Report<'_>| {
            kept.lock().unwrap().push(format!("{report:?}"));
        });
        change(&mut config);
        let pool = Pool::start(config).unwrap();
        let feed = pool.feed();
        let (next_hook, next_event) = (AtomicUsize::new(1), AtomicUsize::new(0));
        Self { pool, feed, reports, next_hook, next_event }
    }

    fn hook(&self, url: &str, secret: Option<&str>) -> Arc<Hook> {
        let id = self.next_hook.fetch_add(1, Ordering::Relaxed) as u128;
        Arc::new(Hook::new(id, Target::parse(url, true).unwrap(), secret, 0b11))
    }

    /// Tells of an event whose body is its number.
    fn tell(&self, hooks: &[&Arc<Hook>]) {
        let number = self.next_event.fetch_add(1, Ordering::Relaxed);
        self.tell_body(hooks, 1, number as u64, number.to_string().into());
    }

    fn tell_body(&self, hooks: &[&Arc<Hook>], kind: u32, at_ms: u64, body: Vec<u8>) {
        let hooks: Arc<[Arc<Hook>]> = hooks.iter().map(|hook| Arc::clone(hook)).collect();
        let bytes = body.len().max(1);
        let render = move || body.clone();
        let notice = Notice::new(kind, "job.waiting", at_ms, "j".into(), bytes, bytes, render);
        self.feed.offer([hooks, Arc::default()], notice);
    }

    /// Tells of an event of a job.
    fn tell_of(&self, hook: &Arc<Hook>, job: &str, body: String) {
        let bytes = body.len();
        let render = move || body.clone().into();
        let notice = Notice::new(1, "job.waiting", 1, job.into(), bytes, bytes, render);
        self.feed.offer([Arc::from([Arc::clone(hook)]), Arc::default()], notice);
    }

    /// Tells of an event that takes a byte until its body is rendered.
    fn tell_rendered(
        &self,
        hook: &Arc<Hook>,
        body_bytes_max: usize,
        render: impl Fn() -> Vec<u8> + Send + Sync + 'static,
    ) {
        let notice = Notice::new(1, "job.waiting", 1, "j".into(), 1, body_bytes_max, render);
        self.feed.offer([Arc::from([Arc::clone(hook)]), Arc::default()], notice);
    }

    fn reports(&self) -> Vec<String> {
        self.reports.lock().unwrap().clone()
    }
}

/// The numbers that have come, in their order.
fn numbers(receiver: &Receiver) -> Vec<u64> {
    receiver.posts().iter().map(|post| post.text().parse().unwrap()).collect()
}

#[test]
fn a_post_has_its_headers_and_its_signature() {
    let bed = Bed::new(|_| {});
    let receiver = Receiver::always(Habit::Status(204));
    let signed = bed.hook(&receiver.url(), Some("Jefe"));
    bed.tell_body(&[&signed], 1, 1_700_000_000_123, b"what do ya want for nothing?".to_vec());
    until("a post", || (!receiver.posts().is_empty()).then_some(()));
    let post = &receiver.posts()[0];
    assert_eq!(post.line, "POST /hook HTTP/1.1");
    for (name, value) in [
        ("Content-Type", "application/json"),
        ("X-Webhook-Event", "job.waiting"),
        ("X-Webhook-Timestamp", "1700000000123"),
        ("X-Webhook-Signature", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
    ] {
        assert_eq!(post.header(name), Some(value), "{name}");
    }
    let plain = bed.hook(&receiver.url(), None);
    bed.tell(&[&plain]);
    until("another", || (receiver.posts().len() == 2).then_some(()));
    assert_eq!(receiver.posts()[1].header("X-Webhook-Signature"), None);
    until("the count", || (signed.counts().delivered == 1).then_some(()));
    assert!(signed.counts().triggered_at_ms > Some(1_700_000_000_000));
}

#[test]
fn events_come_in_order_over_one_connection_and_only_those_that_are_wanted() {
    let bed = Bed::new(|_| {});
    let receiver = Receiver::always(Habit::Status(200));
    let hook = bed.hook(&receiver.url(), None);
    for number in 0..200 {
        bed.tell(&[&hook]);
        // Of a kind that it has not asked for.
        bed.tell_body(&[&hook], 0b100, number, b"never".to_vec());
    }
    until("all", || (receiver.posts().len() == 200).then_some(()));
    assert!(numbers(&receiver).is_sorted());
    let connections = receiver.posts().iter().map(|post| post.connection).max();
    assert_eq!(connections, Some(0), "the connection was not kept");
}

/// The fear: a receiver that takes its time gets one event after the other, and most of them never.
#[test]
fn a_receiver_that_answers_gets_several_events_at_once_and_those_of_one_job_in_order() {
    const AT_ONCE: usize = 4;
    let bed = Bed::new(|config| config.posts_max = AT_ONCE);
    let (begun, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, seen) = (Arc::clone(&begun), Arc::clone(&most));
    let receiver = Receiver::start(move |before, _| {
        if before > 0 {
            seen.fetch_max(running.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
            until("posts at once", || (seen.load(Ordering::Acquire) >= AT_ONCE).then_some(()));
            running.fetch_sub(1, Ordering::AcqRel);
        }
        Habit::Status(200)
    });
    let hook = bed.hook(&receiver.url(), None);
    bed.tell_of(&hook, "first", "first 0".into());
    until("the first", || (hook.counts().delivered == 1).then_some(()));
    for number in 0..5 {
        (0..40)
            .for_each(|job| bed.tell_of(&hook, &format!("job-{job}"), format!("{job} {number}")));
    }
    until("all", || (hook.counts().delivered == 201).then_some(()));
    assert_eq!(most.load(Ordering::Acquire), AT_ONCE);
    let posts: Vec<String> = receiver.posts().iter().map(|post| post.text().into()).collect();
    for job in 0..40 {
        let of_job = format!("{job} ");
        let numbers: Vec<_> = posts.iter().filter_map(|text| text.strip_prefix(&of_job)).collect();
        assert_eq!(numbers, ["0", "1", "2", "3", "4"], "job {job}");
    }
}

/// The fear: a receiver that hangs takes as many threads as one that answers may have.
#[test]
fn a_receiver_that_has_yet_to_answer_gets_one_event_at_a_time() {
    let bed = Bed::new(|config| config.threads_max = 16);
    let hanging = Receiver::always(Habit::Hang);
    let hook = bed.hook(&hanging.url(), None);
    (0..40).for_each(|job| bed.tell_of(&hook, &format!("job-{job}"), "1".into()));
    let load = bed.feed.load();
    until("all to wait", || (load.backlog.load(Ordering::Relaxed) == 40).then_some(()));
    until("a post", || (!hanging.posts().is_empty()).then_some(()));
    assert_eq!((hanging.posts().len(), load.threads.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn a_failed_post_is_tried_again_with_growing_pauses_and_before_those_behind_it() {
    let bed = Bed::new(|config| config.retry_delay = Duration::from_millis(100));
    let receiver = Receiver::start(|before, _| Habit::Status(if before < 2 { 500 } else { 200 }));
    let hook = bed.hook(&receiver.url(), None);
    (0..3).for_each(|_| bed.tell(&[&hook]));
    until("all", || (hook.counts().delivered == 3).then_some(()));
    assert_eq!(numbers(&receiver), [0, 0, 0, 1, 2]);
    let posts = receiver.posts();
    let pauses: Vec<u128> =
        posts.windows(2).map(|two| (two[1].at - two[0].at).as_millis()).collect();
    assert!(pauses[0] >= 100 && pauses[1] >= 200, "{pauses:?}");
    assert_eq!((hook.counts().failed, bed.reports()), (0, vec![]));
    let load = bed.feed.load();
    assert_eq!(load.failed_attempts.load(Ordering::Relaxed), 2);
}

#[test]
fn after_the_last_attempt_an_event_is_abandoned_and_the_next_one_begins() {
    let target = Receiver::always(Habit::Status(200));
    let elsewhere = target.port();
    for (answer, reason) in [
        (Habit::Status(500), "it answered 500"),
        (Habit::Status(404), "it answered 404"),
        (Habit::Redirect(elsewhere), "it answered 302 Found, and redirects are not followed"),
        (Habit::Close, ""),
    ] {
        is_abandoned(LONG, answer, reason);
    }
    assert_eq!(target.posts().len(), 0, "a redirect was followed");
    // Three times that must run out, and one that must not.
    let short = Duration::from_secs(5);
    std::thread::scope(|scope| {
        for answer in [Habit::Hang, Habit::Drip] {
            scope.spawn(move || is_abandoned(short, answer, "it did not answer within 5000 ms"));
        }
    });
}

/// The first event fails for the reason, the second is delivered.
fn is_abandoned(timeout: Duration, answer: Habit, reason: &str) {
    let bed = Bed::new(|config| config.timeout = timeout);
    let receiver = Receiver::start(move |before, _| match before {
        0..3 => answer,
        _ => Habit::Status(200),
    });
    let hook = bed.hook(&receiver.url(), None);
    bed.tell(&[&hook]);
    bed.tell(&[&hook]);
    until("the next", || (hook.counts().delivered == 1).then_some(()));
    assert_eq!((receiver.posts().len(), hook.counts().failed), (4, 1), "{answer:?}");
    let last = bed.reports().pop().unwrap();
    assert!(last.starts_with("Abandoned") && last.contains("attempts: 3"), "{last}");
    assert!(last.contains(reason), "{answer:?}: {last}");
    let load = bed.feed.load();
    until("the count", || (load.abandoned.load(Ordering::Relaxed) == 1).then_some(()));
}

#[test]
fn nobody_listening_is_a_failure_that_is_told() {
    let bed = Bed::new(|config| config.attempts_max = 1);
    // A port below 1024 is given to nobody who asks for any.
    let hook = bed.hook("http://127.0.0.1:1/secret-path", None);
    bed.tell(&[&hook]);
    until("the end", || (hook.counts().failed == 1).then_some(()));
    let said = until("a report", || bed.reports().pop());
    assert!(said.contains("refused") && !said.contains("secret-path"), "{said}");
}

/// The fear: limits for each read and write, which a byte now and then satisfies for ever.
#[test]
fn a_receiver_that_reads_byte_by_byte_is_cut_off_at_the_limit() {
    let bed = Bed::new(|config| {
        config.attempts_max = 1;
        config.timeout = Duration::from_millis(600);
        config.backlog_bytes_max = 64 << 20;
    });
    let receiver = Receiver::always(Habit::ReadSlowly);
    let hook = bed.hook(&receiver.url(), None);
    bed.tell_body(&[&hook], 1, 1, vec![b'1'; 30 << 20]);
    // To read all of it would take days.
    until("the end", || (hook.counts().failed == 1).then_some(()));
}

#[test]
fn of_an_answer_only_the_status_counts() {
    let bed = Bed::new(|_| {});
    let receiver = Receiver::always(Habit::DripBody);
    let hook = bed.hook(&receiver.url(), None);
    bed.tell(&[&hook]);
    bed.tell(&[&hook]);
    // An answer that was read to its end would fail at the timeout.
    until("both", || (hook.counts().delivered == 2).then_some(()));
}

#[test]
fn receivers_that_hang_hold_up_nobody_else() {
    let bed = Bed::new(|config| {
        config.timeout = DEADLINE;
        config.retry_delay = Duration::ZERO;
    });
    let good = Receiver::always(Habit::Status(200));
    let hook = bed.hook(&good.url(), None);
    bed.tell(&[&hook]);
    until("the first delivery", || (hook.counts().delivered == 1).then_some(()));
    let hanging = Receiver::always(Habit::Hang);
    let hooks: Vec<_> = (0..8).map(|_| bed.hook(&hanging.url(), None)).collect();
    for _ in 0..50 {
        bed.tell(&hooks.iter().collect::<Vec<_>>());
    }
    until("a hanging post", || (!hanging.posts().is_empty()).then_some(()));
    for _ in 0..5 {
        let before = hook.counts().delivered;
        bed.tell(&[&hook]);
        until("a delivery", || (hook.counts().delivered > before).then_some(()));
    }
    let failed = bed.feed.load().failed_attempts.load(Ordering::Relaxed);
    assert_eq!(failed, 0, "it has waited for the end of one that hangs");
    assert!(bed.feed.load().threads.load(Ordering::Relaxed) <= 4);
}

#[test]
fn receivers_that_hang_are_not_left_out() {
    let bed = Bed::new(|config| {
        config.timeout = Duration::from_millis(300);
        config.retry_delay = Duration::ZERO;
    });
    let hanging = Receiver::always(Habit::Hang);
    let hooks: Vec<_> = (0..8).map(|_| bed.hook(&hanging.url(), None)).collect();
    bed.tell(&hooks.iter().collect::<Vec<_>>());
    for hook in &hooks {
        until("its end", || (hook.counts().failed > 0).then_some(()));
    }
}

#[test]
fn a_full_backlog_loses_its_oldest_events_and_counts_them() {
    let bed = Bed::new(|config| {
        config.backlog_max = 10;
    });
    let gate = Arc::new(AtomicUsize::new(0));
    let closed = Arc::clone(&gate);
    let receiver = Receiver::start(move |_, _| {
        until("the gate", || (closed.load(Ordering::Acquire) > 0).then_some(()));
        Habit::Status(200)
    });
    let hook = bed.hook(&receiver.url(), None);
    let other = bed.hook(&receiver.url(), None);
    for _ in 0..30 {
        bed.tell(&[&hook]);
    }
    let load = bed.feed.load();
    until("the loss", || (load.dropped.load(Ordering::Relaxed) == 20).then_some(()));
    bed.tell(&[&other]);
    gate.store(1, Ordering::Release);
    until("the rest", || (hook.counts().delivered == 10).then_some(()));
    until("the other", || (other.counts().delivered == 1).then_some(()));
    let mut got = numbers(&receiver);
    got.retain(|&number| number != 30);
    // The one that was on its way is never the one that goes.
    assert!(got == [0, 21, 22, 23, 24, 25, 26, 27, 28, 29] || got == (20..30).collect::<Vec<_>>());
    assert_eq!(hook.counts().failed, 20);
    assert_eq!(bed.reports().iter().filter(|one| one.starts_with("Overflow")).count(), 1);
    until("an empty backlog", || (load.backlog.load(Ordering::Relaxed) == 0).then_some(()));
    assert_eq!(load.backlog_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn when_memory_is_short_the_webhook_that_has_most_of_it_loses() {
    let bed = Bed::new(|config| {
        config.backlog_bytes_max = 100_000;
    });
    let hanging = Receiver::always(Habit::Hang);
    let (fat, thin) = (bed.hook(&hanging.url(), None), bed.hook(&hanging.url(), None));
    for _ in 0..5 {
        bed.tell(&[&thin]);
    }
    for number in 0..20 {
        bed.tell_body(&[&fat], 1, number, vec![b'1'; 10_000]);
    }
    until("the loss", || (fat.counts().failed >= 10).then_some(()));
    until("its body", || (fat.counts().failed >= 12).then_some(()));
    // Nine have room, or eight and the body of the one on its way.
    assert_eq!((fat.counts().failed, thin.counts().failed), (12, 0));
    assert!(bed.feed.load().backlog_bytes.load(Ordering::Relaxed) <= 100_000);
}

#[test]
fn a_removed_webhook_gets_nothing_more() {
    let bed = Bed::new(|config| config.retry_delay = Duration::from_secs(5));
    let receiver = Receiver::always(Habit::Status(500));
    let hook = bed.hook(&receiver.url(), None);
    (0..5).for_each(|_| bed.tell(&[&hook]));
    until("a post", || (!receiver.posts().is_empty()).then_some(()));
    hook.remove();
    let load = bed.feed.load();
    until("an empty backlog", || (load.backlog.load(Ordering::Relaxed) == 0).then_some(()));
    assert!(receiver.posts().len() <= 2, "{}", receiver.posts().len());
    assert_eq!((hook.counts().failed, bed.reports()), (0, vec![]), "that is no failure");
}

/// The fear: what was let in as a few bytes takes many times as much once it is rendered.
#[test]
fn bodies_on_their_way_count_as_rendered_and_wait_for_room() {
    const BODY: usize = 60_000;
    let bed = Bed::new(|config| {
        config.backlog_bytes_max = 400_000;
        config.threads_max = 16;
    });
    let hanging = Receiver::always(Habit::Hang);
    let rendered = Arc::new(AtomicUsize::new(0));
    let hooks: Vec<_> = (0..8).map(|_| bed.hook(&hanging.url(), None)).collect();
    for hook in &hooks {
        let rendered = Arc::clone(&rendered);
        bed.tell_rendered(hook, BODY, move || {
            rendered.fetch_add(1, Ordering::Relaxed);
            vec![b'1'; BODY]
        });
    }
    let load = bed.feed.load();
    until("a body", || {
        (load.backlog_bytes.load(Ordering::Relaxed) == 8 + BODY as u64).then_some(())
    });
    until("all of them", || (load.backlog.load(Ordering::Relaxed) == 8).then_some(()));
    until("one to be rendered", || (rendered.load(Ordering::Relaxed) > 0).then_some(()));
    // A quarter of the memory is for those that have yet to show that they answer.
    assert_eq!((rendered.load(Ordering::Relaxed), load.threads.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn a_body_that_is_smaller_than_it_might_have_been_makes_room_for_the_next() {
    let bed = Bed::new(|config| {
        config.backlog_bytes_max = 400_000;
    });
    let hanging = Receiver::always(Habit::Hang);
    let hooks: Vec<_> = (0..2).map(|_| bed.hook(&hanging.url(), None)).collect();
    for hook in &hooks {
        bed.tell_rendered(hook, 90_000, || vec![b'1'; 1000]);
    }
    until("both", || (hanging.posts().len() == 2).then_some(()));
    let bytes = || bed.feed.load().backlog_bytes.load(Ordering::Relaxed);
    until("both to be counted as they are", || (bytes() == 2 + 2000).then_some(()));
}

#[test]
fn a_disabled_webhook_gets_nothing_of_what_waited_also_when_it_is_enabled_again() {
    let bed = Bed::new(|config| {
        config.retry_delay = Duration::from_millis(50);
        config.attempts_max = 100;
    });
    let status = Arc::new(AtomicUsize::new(500));
    let now = Arc::clone(&status);
    let receiver = Receiver::start(move |_, _| Habit::Status(now.load(Ordering::Acquire) as u16));
    let hook = bed.hook(&receiver.url(), None);
    (0..5).for_each(|_| bed.tell(&[&hook]));
    until("a post", || (!receiver.posts().is_empty()).then_some(()));
    hook.set_enabled(false);
    bed.tell(&[&hook]);
    hook.set_enabled(true);
    let load = bed.feed.load();
    until("an empty backlog", || {
        bed.tell_body(&[&hook], 0b100, 0, b"wakes the dispatcher".to_vec());
        (load.backlog.load(Ordering::Relaxed) <= 1).then_some(())
    });
    status.store(200, Ordering::Release);
    let number = bed.next_event.load(Ordering::Relaxed) as u64;
    bed.tell(&[&hook]);
    until("the new one", || numbers(&receiver).contains(&number).then_some(()));
    let others = numbers(&receiver);
    assert!(others.iter().all(|one| *one == 0 || *one >= 5), "{others:?}");
}

/// The fear: a thread that ends in the middle of a post takes its webhook with it.
#[test]
fn a_body_that_cannot_be_rendered_holds_up_nothing() {
    let bed = Bed::new(|config| {
        config.attempts_max = 2;
        config.threads_max = 1;
    });
    let receiver = Receiver::always(Habit::Status(200));
    let hook = bed.hook(&receiver.url(), None);
    bed.tell_rendered(&hook, 10, || panic!("a bug"));
    bed.tell(&[&hook]);
    until("the next one", || (numbers(&receiver) == [0]).then_some(()));
    until("the counts", || (hook.counts().delivered == 1).then_some(()));
    let load = bed.feed.load();
    until("the other count", || (load.abandoned.load(Ordering::Relaxed) == 1).then_some(()));
    assert_eq!(hook.counts().failed, 1);
    until("its memory", || (load.backlog_bytes.load(Ordering::Relaxed) == 0).then_some(()));
}

#[test]
fn a_stop_ends_what_can_be_ended_and_gives_up_the_rest() {
    let bed = Bed::new(|config| {
        config.retry_delay = Duration::from_secs(1000);
    });
    let slow = Receiver::start(|_, _| {
        std::thread::sleep(Duration::from_millis(50));
        Habit::Status(200)
    });
    let failing = Receiver::always(Habit::Status(500));
    let (good, bad) = (bed.hook(&slow.url(), None), bed.hook(&failing.url(), None));
    (0..3).for_each(|_| bed.tell(&[&bad]));
    until("a failure", || (!failing.posts().is_empty()).then_some(()));
    until("its count", || {
        (bed.feed.load().failed_attempts.load(Ordering::Relaxed) == 1).then_some(())
    });
    (0..10).for_each(|_| bed.tell(&[&good]));
    let begin = Instant::now();
    assert_eq!(bed.pool.stop(Instant::now() + DEADLINE), 3);
    assert!(begin.elapsed() < DEADLINE / 2);
    assert_eq!((slow.posts().len(), good.counts().delivered), (10, 10));
}

#[test]
fn a_stop_waits_no_longer_than_it_may() {
    let bed = Bed::new(|config| config.timeout = Duration::from_mins(1));
    let hanging = Receiver::always(Habit::Hang);
    let hook = bed.hook(&hanging.url(), None);
    (0..3).for_each(|_| bed.tell(&[&hook]));
    until("a post", || (!hanging.posts().is_empty()).then_some(()));
    let begin = Instant::now();
    assert_eq!(bed.pool.stop(begin + Duration::from_millis(200)), 3);
    assert!(begin.elapsed() < Duration::from_secs(50), "it has waited for the timeout");
}
