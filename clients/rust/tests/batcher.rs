//! The batcher against a server that answers on demand. The fear: a producer that outruns the server until
//! memory ends, a job that is forgotten, a failure that is not reported.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fake::start;
use corq_client::{BatcherOptions, Client, Error};
use rmpv::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// A server that takes a batch for each permit, and notes how large it was.
async fn gated() -> (Client, Arc<Semaphore>, Arc<Mutex<Vec<usize>>>) {
    let gate = Arc::new(Semaphore::new(0));
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let (entrance, noted) = (gate.clone(), sizes.clone());
    let fake = start(move |mut peer| {
        let (entrance, noted) = (entrance.clone(), noted.clone());
        async move {
            while let Some(asked) = peer.next().await {
                let jobs = asked.fields["jobs"].as_array().unwrap().len();
                entrance.acquire().await.unwrap().forget();
                noted.lock().unwrap().push(jobs);
                let ids = vec![Value::from("id"); jobs];
                peer.ok(&asked, &[("ids", Value::Array(ids))]).await;
            }
        }
    })
    .await;
    (Client::connect(&fake.address).await.unwrap(), gate, sizes)
}

/// How long a push has that is taken; one that waits gives up after it.
const MOMENT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_push_waits_while_too_many_jobs_do() {
    let (client, gate, _) = gated().await;
    let options = BatcherOptions::new().waiting_max(10).jobs_max(5).in_flight(1);
    let batcher = client.queue("q").batcher(options);
    let mut taken = 0;
    while timeout(MOMENT, batcher.send(&1)).await.is_ok() {
        taken += 1;
        assert!(taken < 100, "nothing held it");
    }
    // Ten wait, five are under way, five are gathered, and one more may be in a hand.
    assert!((10..=21).contains(&taken), "{taken}");
    gate.add_permits(1000);
    // The send that timed out above was not taken.
    assert_eq!(batcher.flush().await.unwrap().all().unwrap(), taken);
}

#[tokio::test]
async fn a_push_waits_while_too_many_bytes_do() {
    let (client, gate, _) = gated().await;
    let options = BatcherOptions::new().waiting_bytes_max(10_000);
    let batcher = client.queue("q").batcher(options);
    let job = "x".repeat(1000);
    let mut taken = 0;
    while timeout(MOMENT, batcher.send(&job)).await.is_ok() {
        taken += 1;
        assert!(taken < 100, "nothing held it");
    }
    assert_eq!(taken, 9);
    gate.add_permits(1000);
    assert_eq!(batcher.flush().await.unwrap().all().unwrap(), 9);
    // A job that is larger than all the room takes all of it, and goes.
    batcher.send(&"x".repeat(50_000)).await.unwrap();
    assert_eq!(batcher.flush().await.unwrap().all().unwrap(), 1);
}

#[tokio::test]
async fn a_batch_leaves_when_it_is_full_or_its_time_is_over() {
    let (client, gate, sizes) = gated().await;
    gate.add_permits(1000);
    let options = BatcherOptions::new().jobs_max(3).linger(Duration::from_hours(1));
    let batcher = client.queue("q").batcher(options);
    let mut receipts = Vec::new();
    for number in 0..6 {
        receipts.push(batcher.push(&number).await.unwrap());
    }
    for receipt in receipts {
        assert_eq!(receipt.await.unwrap(), "id");
    }
    batcher.send(&7).await.unwrap();
    assert_eq!(batcher.flush().await.unwrap().pushed, 7);
    assert_eq!(*sizes.lock().unwrap(), [3, 3, 1]);

    let batcher = client.queue("q").batcher(BatcherOptions::new().linger(Duration::from_millis(1)));
    assert_eq!(batcher.push(&1).await.unwrap().await.unwrap(), "id");
    let large = BatcherOptions::new().bytes_max(100).linger(Duration::from_hours(1));
    let batcher = client.queue("q").batcher(large);
    assert_eq!(batcher.push(&"x".repeat(200)).await.unwrap().await.unwrap(), "id");
}

#[tokio::test]
async fn what_is_left_when_the_batcher_is_dropped_is_still_pushed() {
    let (client, gate, sizes) = gated().await;
    gate.add_permits(1000);
    let batcher = client.queue("q").batcher(BatcherOptions::new().linger(Duration::from_hours(1)));
    let receipt = batcher.push(&1).await.unwrap();
    drop(batcher);
    assert_eq!(receipt.await.unwrap(), "id");
    assert_eq!(*sizes.lock().unwrap(), [1]);
}

#[tokio::test]
async fn a_lost_batch_is_told_with_every_receipt_and_by_the_flush() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let fake = start(move |mut peer| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            peer.next().await;
        }
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    let batcher = client.queue("q").batcher(BatcherOptions::new());
    let first = batcher.push(&1).await.unwrap();
    batcher.send(&2).await.unwrap();
    let flushed = batcher.flush().await.unwrap();
    assert_eq!((flushed.pushed, flushed.failed), (0, 2));
    assert!(matches!(flushed.error, Some(Error::Lost(_))));
    assert!(first.await.unwrap_err().is_outcome_unknown());
    assert_eq!(batcher.flush().await.unwrap().all().unwrap(), 0, "it is told once");
}

/// A value that no encoder can write.
struct Broken;

impl serde::Serialize for Broken {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("broken"))
    }
}

#[tokio::test]
async fn a_job_that_cannot_be_written_is_not_taken() {
    let (client, _, _) = gated().await;
    let batcher = client.queue("q").batcher(BatcherOptions::new());
    assert!(matches!(batcher.send(&Broken).await, Err(Error::Payload(_))));
    assert_eq!(batcher.flush().await.unwrap().all().unwrap(), 0);
}
