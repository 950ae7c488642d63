//! Calls that are broken off, answers that come late, connections that are cut, at every place where that can happen.
//! The fear: a job that no code ever sees and that does not come back, a failure that nobody hears of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fake::wire::{Fault, Way, Wire, broken_off};
use crate::fake::{Asked, DEADLINE, Fake, Peer, map, start, until};
use corq_client::{BatcherOptions, Client, PullOptions};
use rmpv::Value;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// A server with a queue: jobs that wait, or are held under a token.
#[derive(Debug, Default)]
struct Shop {
    jobs: Mutex<BTreeMap<String, Option<String>>>,
    deliveries: Mutex<u64>,
    came: Notify,
}

impl Shop {
    fn with(names: &[&str]) -> Arc<Self> {
        let shop = Self::default();
        shop.jobs.lock().unwrap().extend(names.iter().map(|name| ((*name).to_owned(), None)));
        Arc::new(shop)
    }

    fn free(&self) -> usize {
        self.jobs.lock().unwrap().values().filter(|token| token.is_none()).count()
    }

    fn pull(&self) -> Option<[(&'static str, Value); 2]> {
        let (mut jobs, mut tokens) = (Vec::new(), Vec::new());
        for (name, token) in &mut *self.jobs.lock().unwrap() {
            if token.is_none() {
                let mut deliveries = self.deliveries.lock().unwrap();
                *deliveries += 1;
                let new = format!("token-{name}-{deliveries}");
                let id = Value::from(name.as_str());
                jobs.push(map(&[("id", id), ("queue", "q".into()), ("data", 1.into())]));
                tokens.push(Value::from(new.as_str()));
                *token = Some(new);
            }
        }
        (!jobs.is_empty())
            .then_some([("jobs", Value::Array(jobs)), ("tokens", Value::Array(tokens))])
    }

    fn give_back(&self, asked: &Asked) -> bool {
        let (id, token) = (asked.fields["id"].as_str(), asked.fields["token"].as_str());
        let mut jobs = self.jobs.lock().unwrap();
        let Some(held) = jobs.get_mut(id.unwrap()) else { return false };
        let fits = held.as_deref() == token;
        if fits {
            *held = None;
            self.came.notify_waiters();
        }
        fits
    }

    async fn serve(self: Arc<Self>, mut peer: Peer<TcpStream>) {
        while let Some(asked) = peer.next().await {
            match asked.cmd.as_str() {
                "PULLB" => match self.pull() {
                    Some(pulled) => peer.ok(&asked, &pulled).await,
                    None => peer.ok(&asked, &[("jobs", Value::Array(vec![]))]).await,
                },
                "MoveToWait" if self.give_back(&asked) => peer.ok(&asked, &[]).await,
                "MoveToWait" => peer.refuse(&asked, "Invalid or expired lock token").await,
                _ => peer.ok(&asked, &[]).await,
            }
        }
    }

    async fn open(self: &Arc<Self>) -> Fake {
        let shop = self.clone();
        start(move |peer| shop.clone().serve(peer)).await
    }
}

fn port(fake: &Fake) -> u16 {
    fake.address.rsplit_once(':').unwrap().1.parse().unwrap()
}

fn client(wire: &Wire, timeout: Duration) -> Client {
    let backoff = Duration::from_millis(1);
    let builder = Client::builder(&wire.address()).connections(1).timeout(timeout);
    builder.reconnect_backoff(backoff, 10 * backoff).build().unwrap()
}

#[tokio::test]
async fn a_pull_that_is_broken_off_at_any_await_point_gives_its_jobs_back() {
    for point in 0.. {
        let shop = Shop::with(&["a", "b", "c"]);
        let fake = shop.open().await;
        let wire = Wire::to(port(&fake), None).await;
        let client = client(&wire, DEADLINE);
        let queue = client.queue("q");
        let pulled = broken_off(queue.pull(10, &PullOptions::new()), point).await;
        if let Some(pulled) = pulled {
            assert_eq!(pulled.unwrap().len(), 3);
            assert!(point > 1, "it was never broken off");
            return;
        }
        drop((queue, client));
        until("all connections to end", || wire.open() == 0).await;
        // The shop may read what was sent on them a little later.
        until(&format!("the jobs to go back, broken off at await {point}"), || shop.free() == 3)
            .await;
    }
}

#[tokio::test]
async fn the_jobs_of_an_answer_that_nobody_waits_for_any_more_go_back() {
    let shop = Shop::with(&["a", "b", "c"]);
    let fake = shop.open().await;
    // Late for the pull, in time for what gives the jobs back.
    let late = Fault::Delay(Duration::from_secs(8));
    let wire = Wire::to(port(&fake), Some((Way::ToClient, 1, late))).await;
    let client = client(&wire, Duration::from_secs(5));
    client.server_info().await.unwrap();
    let error = client.queue("q").pull(10, &PullOptions::new()).await.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error}");
    until("the jobs to go back", || shop.free() == 3).await;
}

#[tokio::test]
async fn jobs_go_back_although_the_connection_is_cut_while_they_do() {
    for fault in [Fault::Cut, Fault::CutWithin] {
        for (way, frame) in [(Way::ToServer, 2), (Way::ToServer, 3), (Way::ToClient, 2)] {
            let shop = Shop::with(&["a", "b", "c"]);
            let fake = shop.open().await;
            let wire = Wire::to(port(&fake), Some((way, frame, fault))).await;
            let client = client(&wire, DEADLINE);
            client.server_info().await.unwrap();
            let queue = client.queue("q");
            // Break off the pull after its request was sent, and before its answer came.
            assert!(broken_off(queue.pull(10, &PullOptions::new()), 0).await.is_none());
            until("the pull to be answered", || *shop.deliveries.lock().unwrap() > 0).await;
            until("the jobs to go back", || shop.free() == 3).await;
        }
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_costs_no_job() {
    let returned = Arc::new(Mutex::new(Vec::new()));
    let noted = returned.clone();
    let fake = start(move |mut peer| {
        let noted = noted.clone();
        async move {
            while let Some(asked) = peer.next().await {
                if asked.cmd == "PULLB" {
                    let job = map(&[("id", "a".into()), ("priority", "no number".into())]);
                    let jobs = Value::Array(vec![job]);
                    let tokens = Value::Array(vec!["token-a".into()]);
                    peer.ok(&asked, &[("jobs", jobs), ("tokens", tokens)]).await;
                } else {
                    let token = asked.fields["token"].as_str().unwrap_or_default().to_owned();
                    noted.lock().unwrap().push((asked.cmd.clone(), token));
                    peer.ok(&asked, &[]).await;
                }
            }
        }
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    client.queue("q").pull(1, &PullOptions::new()).await.unwrap_err();
    until("the job to go back", || !returned.lock().unwrap().is_empty()).await;
    assert_eq!(*returned.lock().unwrap(), [("MoveToWait".to_owned(), "token-a".to_owned())]);
}

#[tokio::test]
async fn a_flush_that_is_broken_off_at_any_await_point_swallows_no_failure() {
    let fake = start(|mut peer| async move {
        while let Some(asked) = peer.next().await {
            peer.refuse(&asked, "Disk full").await;
        }
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    for point in 0.. {
        let batcher = client.queue("q").batcher(BatcherOptions::new().jobs_max(2));
        for number in 0..5 {
            batcher.send(&number).await.unwrap();
        }
        let flushed = broken_off(batcher.flush(), point).await;
        let whole = flushed.is_some();
        let flushed = match flushed {
            Some(flushed) => flushed.unwrap(),
            None => batcher.flush().await.unwrap(),
        };
        assert_eq!((flushed.pushed, flushed.failed), (0, 5), "broken off at await {point}");
        assert!(flushed.error.is_some());
        if whole {
            assert!(point > 0, "it was never broken off");
            return;
        }
    }
}

#[tokio::test]
async fn a_flush_that_is_dropped_with_its_answer_in_hand_swallows_no_failure() {
    let fake = start(|mut peer| async move {
        while let Some(asked) = peer.next().await {
            peer.refuse(&asked, "Disk full").await;
        }
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    let batcher = client.queue("q").batcher(BatcherOptions::new());
    let receipt = batcher.push(&1).await.unwrap();
    let mut flush = Box::pin(batcher.flush());
    // Once, so that it has asked; never again, so that its answer waits in it.
    std::future::poll_fn(|context| {
        assert!(flush.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    assert!(receipt.await.is_err());
    // Flushes are answered in their order: behind this one, the first has been.
    let second = batcher.flush().await.unwrap();
    drop(flush);
    let third = batcher.flush().await.unwrap();
    assert_eq!((second.failed, third.failed), (0, 1));
}
