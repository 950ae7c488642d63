//! Guards against a lost wake-up: a batch that lies in the inbox of a shard that sleeps.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use corq_io::host::allowed_cpus;
use corq_io::mesh::{Endpoint, Mesh, Refused};
use corq_io::net::{Config, Event, Reactor};
use corq_io::placement::Placement;
use corq_io::runtime::spawn_shards;
use support::{PATIENCE, Rig};

/// Sleeps until something is in the inbox. A sleep this long is a lost wake-up.
fn sleep(endpoint: &Endpoint<Vec<u64>>, reactor: &mut Reactor) -> Result<(), String> {
    let mut events = Vec::new();
    if endpoint.prepare_to_sleep() {
        let limit = Instant::now() + PATIENCE;
        reactor.wait(Some(limit), &mut events).map_err(|error| error.to_string())?;
        if Instant::now() >= limit {
            return Err(format!("shard {} was not woken", endpoint.shard()));
        }
    }
    endpoint.awake();
    Ok(())
}

#[test]
fn ping_pong_between_sleeping_shards_loses_no_wake_up() {
    let config = Config::default();
    let rounds = 30_000;
    let batch_messages = 32; // 30,000 rounds x 2 ways x 32: about two million messages.
    let mesh = Mesh::<Vec<u64>>::new(2).unwrap();
    let shards = spawn_shards(
        &allowed_cpus().unwrap(),
        Placement::Pinned,
        mesh,
        move |me, mut endpoint| async move {
            let mut reactor = Reactor::new(config).map_err(|error| error.to_string())?;
            reactor.watch(endpoint.wakeup());
            // Shard 0 serves; shard 1 sends back what it gets; shard 0 checks it and serves again.
            let mut serve = (me == 0).then(|| (0..batch_messages).collect::<Vec<u64>>());
            for round in 0..rounds {
                if let Some(mut batch) = serve.take() {
                    batch[0] = round;
                    endpoint.send(1 - me, batch).map_err(|_| "refused")?;
                    endpoint.flush();
                }
                let batch = loop {
                    match endpoint.receive() {
                        Some(batch) => break batch,
                        None => sleep(&endpoint, &mut reactor)?,
                    }
                };
                if batch.len() as u64 != batch_messages || batch[0] != round {
                    return Err(format!("round {round}: got {} of {}", batch[0], batch.len()));
                }
                if me == 0 {
                    serve = Some(batch);
                } else {
                    endpoint.send(0, batch).map_err(|_| "refused")?;
                    endpoint.flush();
                }
            }
            Ok::<(), String>(())
        },
    );
    shards.unwrap().join().unwrap();
}

#[test]
fn streams_through_small_inboxes_arrive_whole_and_in_order() {
    let total = 400_000_u64;
    let mesh = Mesh::<Vec<u64>>::with_capacity(2, 4).unwrap();
    let config = Config::default();
    let shards = spawn_shards(
        &allowed_cpus().unwrap(),
        Placement::Pinned,
        mesh,
        move |me, mut endpoint| async move {
            let mut reactor = Reactor::new(config).map_err(|error| error.to_string())?;
            reactor.watch(endpoint.wakeup());
            let mut random = support::Random(me as u64 + 1);
            let (mut next, mut expected, mut kept) = (0, 0, None::<Vec<u64>>);
            let mut events = Vec::new();
            while next < total || kept.is_some() || expected < total {
                let mut full = false;
                for _ in 0..random.next() % 4 {
                    let size = (1 + random.next() % 50).min(total - next);
                    let batch = kept.take().unwrap_or_else(|| (next..next + size).collect());
                    if batch.is_empty() {
                        break;
                    }
                    next = next.max(batch[batch.len() - 1] + 1);
                    match endpoint.send(1 - me, batch) {
                        Ok(()) => {}
                        Err(Refused::Full(batch)) => {
                            kept = Some(batch);
                            full = true;
                            break;
                        }
                        Err(Refused::Gone(_)) => return Err("the other is gone".to_string()),
                    }
                }
                endpoint.flush();
                while let Some(batch) = endpoint.receive() {
                    for number in batch {
                        if number != expected {
                            return Err(format!("{number} instead of {expected}"));
                        }
                        expected += 1;
                    }
                }
                if next == total && kept.is_none() && expected < total {
                    sleep(&endpoint, &mut reactor)?;
                } else if full {
                    // A full inbox is tried again next turn: soon, and without being told.
                    let soon = Instant::now() + Duration::from_micros(100);
                    let waited = reactor.wait(Some(soon), &mut events);
                    waited.map_err(|error| error.to_string())?;
                    events.clear();
                }
            }
            Ok::<(), String>(())
        },
    );
    shards.unwrap().join().unwrap();
}

#[test]
fn a_waker_ends_a_wait_without_a_deadline() {
    let mut rig = Rig::new(Config::default());
    let mesh = Mesh::<u8>::new(1).unwrap();
    rig.reactor.watch(mesh[0].wakeup());
    for _ in 0..100 {
        let waker = mesh[0].waker();
        let waking = std::thread::spawn(move || waker.wake());
        let mut events = Vec::new();
        rig.reactor.wait(None, &mut events).unwrap();
        assert!(matches!(events[..], [Event::Woken]), "{events:?}");
        waking.join().unwrap();
    }
}
