//! A wire between client and server on which one thing happens at one frame, and a way to break a call off at each of
//! its await points. What a test does with both: everything, at every place.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// Fault that hits a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection ends before the frame.
    Cut,
    /// The connection ends in the midst of the frame.
    CutWithin,
    /// The frame comes late, with all behind it.
    Delay(Duration),
    /// The frame and all behind it, both ways, never come, and neither side is notified.
    Swallow,
}

/// The frame, counted over all connections of the wire, from 0, to which it happens.
pub(crate) type Place = (Way, usize, Fault);

#[derive(Debug, Default)]
struct Counts {
    frames: [AtomicUsize; 2],
    open: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) port: u16,
    counts: Arc<Counts>,
}

impl Wire {
    /// A wire to a port of this machine.
    pub(crate) async fn to(port: u16, place: Option<Place>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let counts = Arc::new(Counts::default());
        let counting = counts.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let counts = counting.clone();
                counts.open.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                        carry(client, server, &counts, place).await;
                    }
                    counts.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { port: own, counts }
    }

    pub(crate) fn address(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port)
    }

    /// How many frames have come this way.
    pub(crate) fn frames(&self, way: Way) -> usize {
        self.counts.frames[way as usize].load(Ordering::SeqCst)
    }

    /// How many connections there are.
    pub(crate) fn open(&self) -> usize {
        self.counts.open.load(Ordering::SeqCst)
    }
}

/// How a direction has ended.
enum End {
    Said,
    Cut,
}

async fn carry(client: TcpStream, server: TcpStream, counts: &Arc<Counts>, place: Option<Place>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let swallowed = Arc::new(AtomicUsize::new(0));
    let mut ways = JoinSet::new();
    for (way, from, to) in
        [(Way::ToServer, from_client, to_server), (Way::ToClient, from_server, to_client)]
    {
        ways.spawn(forward(way, from, to, counts.clone(), swallowed.clone(), place));
    }
    while let Some(end) = ways.join_next().await {
        // Both ways at once, whatever is on them.
        if matches!(end.unwrap(), End::Cut) {
            ways.shutdown().await;
        }
    }
}

async fn forward(
    way: Way,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    counts: Arc<Counts>,
    swallowed: Arc<AtomicUsize>,
    place: Option<Place>,
) -> End {
    while let Some(frame) = next(&mut from).await {
        let number = counts.frames[way as usize].fetch_add(1, Ordering::SeqCst);
        match place.filter(|(at, which, _)| (*at, *which) == (way, number)) {
            Some((_, _, Fault::Cut)) => return End::Cut,
            Some((_, _, Fault::CutWithin)) => {
                let _ = to.write_all(&frame[..frame.len() / 2]).await;
                return End::Cut;
            }
            Some((_, _, Fault::Delay(delay))) => tokio::time::sleep(delay).await,
            Some((_, _, Fault::Swallow)) => {
                swallowed.store(1, Ordering::SeqCst);
            }
            None => {}
        }
        if swallowed.load(Ordering::SeqCst) == 0 && to.write_all(&frame).await.is_err() {
            return End::Cut;
        }
    }
    // A side that says no more may still be told something, unless nothing comes through any more.
    if swallowed.load(Ordering::SeqCst) > 0 {
        return End::Cut;
    }
    let _ = to.shutdown().await;
    End::Said
}

async fn next(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let length = from.read_u32().await.ok()?;
    let mut frame = vec![0; 4 + length as usize];
    frame[..4].copy_from_slice(&length.to_be_bytes());
    from.read_exact(&mut frame[4..]).await.ok()?;
    Some(frame)
}

/// A future that is dropped at its `point`-th await, counted from 0; `None` then.
pub(crate) async fn broken_off<F: Future>(future: F, point: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if polls == point => Poll::Ready(None),
        Poll::Pending => {
            polls += 1;
            Poll::Pending
        }
    })
    .await
}
