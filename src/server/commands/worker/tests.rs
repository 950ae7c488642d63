use super::super::worker_list::{WorkerList, write_worker};
use super::*;
use crate::protocol::frame::FRAME_BYTES_MAX;

fn worker(client: u64, last_seen_ms: u64) -> Worker {
    Worker {
        client: ClientId(client),
        name: "w".into(),
        queues: [0x91, 0xa1, b'a' + client as u8 % 26].into(),
        concurrency: 1,
        hostname: "h".into(),
        pid: 1,
        told: Told::default(),
        registered_at_ms: 0,
        last_seen_ms,
    }
}

#[test]
fn workers_go_with_their_connection_and_with_no_other() {
    let mut workers = Workers::new(1);
    for (id, client) in [("a", 1), ("b", 2), ("c", 1), ("d", 3)] {
        workers.register(id, worker(client, 0));
    }
    workers.register("d", worker(1, 0));
    workers.leave(ClientId(3));
    assert!(workers.seen("d", 5), "it came again by another connection");
    workers.leave(ClientId(1));
    assert_eq!(workers.by_id.keys().map(|id| &**id).collect::<Vec<_>>(), ["b"]);
    assert_eq!(workers.by_client.len(), 1);
}

#[test]
fn a_leap_of_the_clock_is_no_silence() {
    const LEAP_MS: u64 = 2 * SILENCE_MS_MAX;
    let mut workers = Workers::new(1);
    workers.register("a", worker(1, 1000));
    workers.register("b", worker(2, 2000));
    workers.put_off(3000 + LEAP_MS, LEAP_MS);
    workers.register("c", worker(3, 3000 + LEAP_MS));
    for (seen_ms, left) in [(1000, 3), (2000, 2), (3000, 1)] {
        let silent_ms = seen_ms + LEAP_MS + SILENCE_MS_MAX;
        assert_eq!(workers.attending(silent_ms - 1), left);
        assert_eq!(workers.attending(silent_ms), left - 1);
    }
    let (listed, _) = workers.behind("", 9, 9000);
    let seen: Vec<u64> = listed.iter().map(|(_, worker)| worker.last_seen_ms).collect();
    assert_eq!(seen, [1000, 2000, 3000].map(|seen_ms| seen_ms + LEAP_MS));
    // A second leap, soon after.
    workers.put_off(4000 + 2 * LEAP_MS, LEAP_MS);
    assert_eq!(workers.since_leap(1000), 1000 + 2 * LEAP_MS);
    let second_ms = 4000 + 2 * LEAP_MS;
    assert_eq!(workers.since_leap(3000 + LEAP_MS), second_ms, "no later than the last leap");
    workers.put_off(9 * LEAP_MS, 10);
    assert_eq!(workers.since_leap(8 * LEAP_MS), 8 * LEAP_MS + 10);
}

#[test]
fn names_are_kept_once_and_in_their_order() {
    let array = |names: &[&str]| -> Arc<[u8]> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.array(names.len());
        for name in names {
            writer.str(name);
        }
        bytes.into()
    };
    let given = array(&["b", "a", "b", "c", "a"]);
    let kept = each_once(Texts::new(&given));
    assert_eq!(kept, array(&["b", "a", "c"]));
    assert_eq!(each_once(Texts::new(&kept)), kept);
}

#[test]
fn registrations_have_a_limit_and_the_most_silent_goes() {
    let mut workers = Workers::new(1);
    for n in 0..=WORKERS_MAX {
        workers.register(&n.to_string(), worker(1, 1000 - (n as u64 % 1000)));
    }
    assert_eq!((workers.by_id.len(), workers.by_client.len()), (WORKERS_MAX, WORKERS_MAX));
    let silent = (0..WORKERS_MAX).filter(|n| n % 1000 == 999).map(|n| n.to_string());
    let gone = silent.filter(|id| !workers.seen(id, 0)).count();
    assert!(gone == 1 && workers.seen("0", 0), "{gone}");
    assert_eq!((workers.by_silence.len(), workers.crowded_out()), (WORKERS_MAX, 1));
}

/// The fear: a connection with as many workers as there may be closes, or speaks, and its shard stands still meanwhile.
#[test]
fn the_workers_of_one_connection_go_and_live_on_a_slice_at_a_time() {
    let mut workers = Workers::new(1);
    for n in 1..WORKERS_MAX {
        workers.register(&n.to_string(), worker(1, 1000));
    }
    workers.register("other", worker(2, 1000));
    let slices = |workers: &mut Workers, begin: &mut dyn FnMut(&mut Workers)| {
        workers.take_steps();
        begin(workers);
        let (mut slices, mut steps) = (1, workers.take_steps());
        assert!(steps <= SLICE, "{steps} steps");
        while workers.has_left() {
            workers.go_on();
            steps = workers.take_steps();
            assert!(steps <= SLICE, "{steps} steps");
            slices += 1;
        }
        slices
    };
    let spoken = slices(&mut workers, &mut |workers| workers.saw(ClientId(1), 5000));
    assert!(spoken >= WORKERS_MAX / SLICE);
    assert!(
        workers.by_id.values().all(|it| (it.client == ClientId(1)) == (it.last_seen_ms == 5000))
    );
    let gone = slices(&mut workers, &mut |workers| workers.leave(ClientId(1)));
    assert!(gone >= WORKERS_MAX / SLICE);
    assert_eq!(workers.by_id.keys().map(|id| &**id).collect::<Vec<_>>(), ["other"]);
    assert_eq!((workers.by_client.len(), workers.by_silence.len()), (1, 1));
}

/// The fear: each connection that closes or speaks behind one with many workers does a slice of them, all in one turn.
#[test]
fn connections_that_follow_one_with_many_workers_bring_no_slices_of_their_own() {
    let mut workers = Workers::new(1);
    for n in 0..WORKERS_MAX - 1 {
        workers.register(&n.to_string(), worker(1, 1000));
    }
    workers.register("other", worker(2, 1000));
    workers.take_steps();
    workers.leave(ClientId(1));
    for n in 3..1000 {
        workers.leave(ClientId(n));
        workers.saw(ClientId(2), 2000);
    }
    assert!(workers.take_steps() <= SLICE);
    let mut turns = 0;
    while workers.has_left() {
        workers.go_on();
        assert!(workers.take_steps() <= SLICE);
        turns += 1;
    }
    assert!((WORKERS_MAX / SLICE..2 * WORKERS_MAX / SLICE).contains(&turns), "{turns}");
    assert_eq!(workers.by_id.keys().map(|id| &**id).collect::<Vec<_>>(), ["other"]);
    assert_eq!(workers.by_id["other"].last_seen_ms, 2000);
}

#[test]
fn registrations_have_a_limit_in_bytes_and_all_of_them_fit_a_frame() {
    let queues: Arc<[u8]> = vec![0xc0; 258_000].into();
    for shards in [1, 2, 3, 16, 64] {
        let mut workers = Workers::new(shards);
        for n in 0..500 {
            let mut one = worker(n, n);
            one.queues = queues.clone();
            workers.register(&n.to_string(), one);
        }
        assert!(workers.bytes() <= WORKERS_BYTES_MAX);
        assert!(workers.bytes() * shards < FRAME_BYTES_MAX, "{shards} shards");
        assert!(workers.seen("499", 500) && !workers.seen("0", 500));
        assert_eq!(workers.crowded_out() as usize + workers.len(), 500);
        (0..500).for_each(|n| workers.leave(ClientId(n)));
        assert!(!workers.has_left());
        assert_eq!((workers.len(), workers.bytes(), workers.by_silence.len()), (0, 0, 0));
    }
}

/// The bound in bytes holds for the list only if this does.
#[test]
fn a_worker_is_counted_with_more_than_what_the_list_has_of_it() {
    let one = Worker {
        client: ClientId(1),
        name: "n".repeat(256).into(),
        queues: [0x90].into(),
        concurrency: u64::MAX,
        hostname: "h".repeat(256).into(),
        pid: u64::MAX,
        told: Told::default(),
        registered_at_ms: 1 << 60,
        last_seen_ms: 1 << 60,
    };
    let done = Activity { active: u64::MAX, processed: u64::MAX, failed: u64::MAX };
    let mut bytes = Vec::new();
    write_worker(&mut Writer::new(&mut bytes), &"i".repeat(256), &one, Some(done), u64::MAX, None);
    assert!(bytes.len() <= one.bytes(&"i".repeat(256)), "{}", bytes.len());
}

/// A worker that pulls by several connections counts what it does itself.
#[test]
fn what_a_worker_says_of_its_work_stands_for_what_its_connection_has_done() {
    let mut crew = WorkerList::default();
    let told = Told::of(Some(3), Some(20), None).or(Told::of(Some(9), None, Some(5)));
    let mut says = worker(1, 500);
    says.told = told;
    crew.add_workers(&[("says".into(), says), ("silent".into(), worker(1, 500))]);
    assert_eq!(crew.next(1000, None).unwrap().len(), 2);
    let done = Activity { active: 1, processed: 2, failed: 3 };
    crew.add_activity(&[done; 2], &[]);
    let mut rows = Vec::new();
    crew.write(&mut Writer::new(&mut rows), 1000);
    let mut rest = &rows[..];
    let mut next = || rmpv::decode::read_value(&mut rest).unwrap();
    let counts = |row: &rmpv::Value| {
        ["activeJobs", "processedJobs", "failedJobs"].map(|name| row[name].as_u64().unwrap())
    };
    assert_eq!((counts(&next()), counts(&next())), ([3, 20, 5], [1, 2, 3]));
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    writer.map(1);
    crew.write_stats(&mut writer, 2);
    let stats = rmpv::decode::read_value(&mut &bytes[..]).unwrap().to_string();
    assert!(
        stats.contains(r#""activeJobs": 4, "totalProcessed": 22, "totalFailed": 8"#),
        "{stats}"
    );
}

#[test]
fn a_worker_that_is_silent_for_long_is_gone_unless_its_connection_speaks() {
    let now_ms = 1_000_000;
    let silent = now_ms - SILENCE_MS_MAX;
    let mut crew = WorkerList::default();
    crew.add_workers(&[
        ("gone".into(), worker(1, silent)),
        ("here".into(), worker(2, silent + 1)),
        ("speaks".into(), worker(3, silent)),
    ]);
    crew.add_seen(&[(ClientId(3), now_ms)]);
    assert_eq!(crew.next(now_ms, None).unwrap()[..], [ClientId(2), ClientId(3)]);
    let done = Activity { active: 1, processed: 2, failed: 3 };
    crew.add_activity(&[done, Activity::default()], &[]);
    crew.add_activity(&[Activity { processed: 5, ..Activity::default() }; 2], &[]);
    let mut rows = Vec::new();
    assert_eq!(crew.write(&mut Writer::new(&mut rows), now_ms), 2);
    assert!(crew.next(now_ms, None).is_none());
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    writer.map(2);
    writer.str("workers");
    writer.array(2);
    writer.raw(&rows);
    crew.write_stats(&mut writer, 2);
    let data = rmpv::decode::read_value(&mut &bytes[..]).unwrap().to_string();
    assert!(data.contains(r#""id": "here""#) && data.contains(r#""id": "speaks""#), "{data}");
    assert!(!data.contains("gone"), "{data}");
    let stats = r#""stats": {"total": 2, "active": 1, "activeJobs": 1, "totalProcessed": 12, "totalFailed": 3, "concurrencySlots": 1}"#;
    assert!(data.contains(stats), "{data}");
}
